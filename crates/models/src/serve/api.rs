//! Requests of the OpenAI API, parsed and checked field by field.

use crate::SamplingOptions;
use serde_json::{Map, Value as Json, json};

/// Why a request is rejected: one line, and the name of the field.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    /// Number of seconds after which the client may retry.
    pub(crate) retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), param: None, retry_after: None }
    }

    pub(crate) fn for_param(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.to_string()), ..ApiError::new(400, message) }
    }

    pub(crate) fn json(&self) -> Json {
        let kind = match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": null } })
    }
}

pub(crate) type ApiResult<T> = std::result::Result<T, ApiError>;

/// Text or token IDs.
#[derive(Clone, Debug)]
pub(crate) enum Prompt {
    Text(String),
    Ids(Vec<i32>),
}

/// The format that the output must have.
#[derive(Clone, Debug)]
pub(crate) enum ResponseFormat {
    Any,
    /// Any JSON object.
    Object,
    Schema(Json),
    Regex(String),
    Choice(Vec<String>),
}

/// How a prompt is tokenized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptEncoding {
    /// Whether the tokenizer's leading special tokens are added.
    pub(crate) add_special_tokens: bool,
    /// Whether its trailing special tokens are added too.
    pub(crate) add_trailing_tokens: bool,
    /// Maximum number of tokens; longer prompts are truncated. A length of `None` is the largest that fits into the context.
    pub(crate) max_tokens: Option<Option<usize>>,
    /// Whether the prompt is truncated on the left and not on the right.
    pub(crate) truncate_left: bool,
}

/// The fields that both kinds of completions share.
#[derive(Clone, Debug)]
pub(crate) struct CompletionRequest {
    pub(crate) model: String,
    pub(crate) n: usize,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) sampling: SamplingOptions,
    pub(crate) logit_bias: Vec<(i32, f32)>,
    pub(crate) stop: Vec<String>,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) logprobs: Option<usize>,
    pub(crate) ignore_eos: bool,
    /// Minimum number of new tokens before an end.
    pub(crate) min_tokens: usize,
    /// Further token IDs that end the text.
    pub(crate) stop_token_ids: Vec<i32>,
    /// Whether the stop string is included in the output.
    pub(crate) include_stop: bool,
    /// Whether special tokens are included in the output text.
    pub(crate) keep_special_tokens: bool,
    /// The only token IDs that may be generated.
    pub(crate) allowed_token_ids: Option<Vec<i32>>,
    /// Whether an answer starts with its prompt, or with the last message.
    pub(crate) echo: bool,
    /// Whether every chunk of a stream reports its usage.
    pub(crate) continuous_usage: bool,
    /// Whether tokens are reported as their IDs.
    pub(crate) tokens_as_ids: bool,
    /// The suffix of the response's ID.
    pub(crate) request_id: Option<String>,
    pub(crate) encoding: PromptEncoding,
    pub(crate) format: ResponseFormat,
}

/// The messages of a chat and how they are rendered.
#[derive(Clone, Debug)]
pub(crate) struct ChatRequest {
    pub(crate) messages: Vec<Json>,
    /// Whether the template adds the generation prompt.
    pub(crate) add_generation_prompt: bool,
    /// Whether the answer continues the last message.
    pub(crate) continue_final_message: bool,
    /// Variables of the template.
    pub(crate) template_kwargs: Map<String, Json>,
}

/// Maximum number of choices and of prompts per request, and of stop strings.
const MAX_CHOICES: usize = 16;
const MAX_PROMPTS: usize = 64;
const MAX_STOPS: usize = 16;
const MAX_BIASES: usize = 1024;
/// Maximum bytes of a stop string, number of stop or allowed tokens, number of texts to choose from, bytes of a request's name.
const MAX_STOP_BYTES: usize = 4096;
const MAX_STOP_IDS: usize = 1024;
const MAX_ALLOWED_IDS: usize = 1 << 20;
const MAX_CHOICE_TEXTS: usize = 10_000;
const MAX_NAME_BYTES: usize = 256;

/// Parses the body of a request as an object.
pub(crate) fn parse_object(bytes: &[u8]) -> ApiResult<Map<String, Json>> {
    match serde_json::from_slice(bytes) {
        Ok(Json::Object(fields)) => Ok(fields),
        Ok(_) => Err(ApiError::new(400, "the body must be a JSON object")),
        Err(e) => Err(ApiError::new(400, format!("the body is not valid JSON: {e}"))),
    }
}

/// Returns a field that is present and not null.
fn field<'a>(body: &'a Map<String, Json>, name: &str) -> Option<&'a Json> {
    body.get(name).filter(|value| !value.is_null())
}

fn number_in_range(body: &Map<String, Json>, name: &str, from: f64, to: f64) -> ApiResult<Option<f64>> {
    let Some(value) = field(body, name) else { return Ok(None) };
    let x = value.as_f64().filter(|x| (from..=to).contains(x));
    x.map(Some).ok_or_else(|| ApiError::for_param(name, format!("`{name}` must be a number from {from} to {to}")))
}

fn integer_in_range(body: &Map<String, Json>, name: &str, from: u64, to: u64) -> ApiResult<Option<u64>> {
    let Some(value) = field(body, name) else { return Ok(None) };
    let n = value.as_u64().filter(|n| (from..=to).contains(n));
    n.map(Some).ok_or_else(|| ApiError::for_param(name, format!("`{name}` must be an integer from {from} to {to}")))
}

fn bool_field(body: &Map<String, Json>, name: &str) -> ApiResult<bool> {
    bool_field_or(body, name, false)
}

fn bool_field_or(body: &Map<String, Json>, name: &str, usual: bool) -> ApiResult<bool> {
    match field(body, name) {
        None => Ok(usual),
        Some(value) => {
            value.as_bool().ok_or_else(|| ApiError::for_param(name, format!("`{name}` must be true or false")))
        }
    }
}

pub(crate) fn string_field(body: &Map<String, Json>, name: &str) -> ApiResult<String> {
    match field(body, name) {
        None => Err(ApiError::for_param(name, format!("`{name}` is missing"))),
        Some(value) => value
            .as_str()
            .map(String::from)
            .ok_or_else(|| ApiError::for_param(name, format!("`{name}` must be a string"))),
    }
}

/// Parses everything but the prompt; `chat` selects the kind of the completion.
pub(crate) fn parse_completion(body: &Map<String, Json>, chat: bool) -> ApiResult<CompletionRequest> {
    let temperature = number_in_range(body, "temperature", 0.0, 100.0)?.unwrap_or(1.0);
    let seed = match field(body, "seed") {
        None => random_seed(),
        Some(value) => {
            let seed = value.as_i64().map(|seed| seed as u64).or_else(|| value.as_u64());
            seed.ok_or_else(|| ApiError::for_param("seed", "`seed` must be an integer"))?
        }
    };
    let sampling = SamplingOptions {
        temperature,
        top_k: top_k(body)?,
        top_p: fraction_field(body, "top_p")?,
        min_p: number_in_range(body, "min_p", 0.0, 1.0)?.unwrap_or(0.0),
        typical_p: fraction_field(body, "typical_p")?,
        repetition_penalty: number_in_range(body, "repetition_penalty", 0.01, 100.0)?.unwrap_or(1.0),
        presence_penalty: number_in_range(body, "presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        frequency_penalty: number_in_range(body, "frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        seed,
    };
    let most = match integer_in_range(body, "max_completion_tokens", 1, 1 << 32)? {
        Some(most) => Some(most),
        None => integer_in_range(body, "max_tokens", 1, 1 << 32)?,
    };
    let logprobs = match chat {
        true => match bool_field(body, "logprobs")? {
            true => Some(integer_in_range(body, "top_logprobs", 0, 20)?.unwrap_or(0)),
            false if field(body, "top_logprobs").is_some_and(|n| n != 0) => {
                return Err(ApiError::for_param("top_logprobs", "`top_logprobs` needs `logprobs: true`"));
            }
            false => None,
        },
        false => integer_in_range(body, "logprobs", 0, 20)?,
    };
    let echo = bool_field(body, "echo")?;
    if echo && !chat && logprobs.is_some() {
        return Err(ApiError::for_param(
            "echo",
            "log probabilities of prompt tokens are not supported: remove `echo` or `logprobs`",
        ));
    }
    let stream = bool_field(body, "stream")?;
    let empty = Map::new();
    let options = match field(body, "stream_options") {
        None => &empty,
        Some(_) if !stream => {
            return Err(ApiError::for_param("stream_options", "`stream_options` needs `stream: true`"));
        }
        Some(options) => options
            .as_object()
            .ok_or_else(|| ApiError::for_param("stream_options", "`stream_options` must be an object"))?,
    };
    let option = |name: &str| {
        bool_field(options, name).map_err(|_| {
            ApiError::for_param("stream_options", format!("`stream_options.{name}` must be true or false"))
        })
    };
    let (usage, usage_always) = (option("include_usage")?, option("continuous_usage_stats")?);
    let least = integer_in_range(body, "min_tokens", 0, 1 << 32)?.unwrap_or(0);
    if most.is_some_and(|most| most < least) {
        return Err(ApiError::for_param("min_tokens", "`min_tokens` is greater than the maximum number of tokens"));
    }
    let stop_ids = token_ids_field(body, "stop_token_ids", MAX_STOP_IDS)?.unwrap_or_default();
    let allowed = token_ids_field(body, "allowed_token_ids", MAX_ALLOWED_IDS)?;
    if allowed.as_ref().is_some_and(Vec::is_empty) {
        return Err(ApiError::for_param("allowed_token_ids", "`allowed_token_ids` must not be empty"));
    }
    let request = field(body, "request_id").map(|_| string_field(body, "request_id")).transpose()?;
    if request.as_ref().is_some_and(|name| name.len() > MAX_NAME_BYTES) {
        return Err(ApiError::for_param(
            "request_id",
            format!("`request_id` must have at most {MAX_NAME_BYTES} bytes"),
        ));
    }
    Ok(CompletionRequest {
        model: string_field(body, "model")?,
        n: integer_in_range(body, "n", 1, MAX_CHOICES as u64)?.unwrap_or(1) as usize,
        max_tokens: most.map(|most| most as usize),
        sampling,
        logit_bias: parse_logit_bias(body)?,
        stop: parse_stops(body)?,
        stream,
        include_usage: usage || usage_always,
        continuous_usage: usage_always,
        logprobs: logprobs.map(|n| n as usize),
        ignore_eos: bool_field(body, "ignore_eos")?,
        min_tokens: least as usize,
        stop_token_ids: stop_ids,
        include_stop: bool_field(body, "include_stop_str_in_output")?,
        keep_special_tokens: !bool_field_or(body, "skip_special_tokens", true)?,
        allowed_token_ids: allowed,
        echo,
        tokens_as_ids: bool_field(body, "return_tokens_as_token_ids")?,
        request_id: request,
        encoding: parse_encoding(body, !chat, true)?,
        format: parse_format(body)?,
    })
}

/// Parses how prompts are tokenized; `special` and `left` are the defaults.
pub(crate) fn parse_encoding(body: &Map<String, Json>, special: bool, left: bool) -> ApiResult<PromptEncoding> {
    let cut = match field(body, "truncate_prompt_tokens") {
        None => None,
        Some(n) if *n == -1 => Some(None),
        Some(_) => integer_in_range(body, "truncate_prompt_tokens", 1, 1 << 32)?.map(|n| Some(n as usize)),
    };
    let left = match field(body, "truncation_side").map(Json::as_str) {
        None => left,
        Some(Some("left")) => true,
        Some(Some("right")) => false,
        Some(_) => return Err(ApiError::for_param("truncation_side", "`truncation_side` must be left or right")),
    };
    Ok(PromptEncoding {
        add_special_tokens: bool_field_or(body, "add_special_tokens", special)?,
        add_trailing_tokens: false,
        max_tokens: cut,
        truncate_left: left,
    })
}

/// Parses the requested number of dimensions of an embedding.
pub(crate) fn dimensions(body: &Map<String, Json>) -> ApiResult<Option<usize>> {
    Ok(integer_in_range(body, "dimensions", 1, 1 << 32)?.map(|n| n as usize))
}

/// Whether embeddings are encoded in base64.
pub(crate) fn wants_base64(body: &Map<String, Json>) -> ApiResult<bool> {
    match field(body, "encoding_format").map(Json::as_str) {
        None | Some(Some("float")) => Ok(false),
        Some(Some("base64")) => Ok(true),
        Some(_) => Err(ApiError::for_param("encoding_format", "`encoding_format` must be float or base64")),
    }
}

fn token_ids_field(body: &Map<String, Json>, name: &str, most: usize) -> ApiResult<Option<Vec<i32>>> {
    let Some(value) = field(body, name) else { return Ok(None) };
    let list = value.as_array().filter(|list| list.len() <= most);
    let id = |id: &Json| id.as_i64().and_then(|id| i32::try_from(id).ok()).filter(|id| *id >= 0);
    let ids = list.and_then(|list| list.iter().map(id).collect());
    ids.map(Some).ok_or_else(|| ApiError::for_param(name, format!("`{name}` must be a list of up to {most} token IDs")))
}

fn top_k(body: &Map<String, Json>) -> ApiResult<usize> {
    // Other servers write -1 for "all".
    if field(body, "top_k").is_some_and(|k| *k == -1) {
        return Ok(0);
    }
    Ok(integer_in_range(body, "top_k", 0, 1 << 32)?.unwrap_or(0) as usize)
}

fn fraction_field(body: &Map<String, Json>, name: &str) -> ApiResult<f64> {
    match number_in_range(body, name, 0.0, 1.0)? {
        Some(x) if x > 0.0 => Ok(x),
        // Only the most probable token remains.
        Some(_) => Ok(f64::MIN_POSITIVE),
        None => Ok(1.0),
    }
}

fn parse_stops(body: &Map<String, Json>) -> ApiResult<Vec<String>> {
    let fault = || {
        ApiError::for_param(
            "stop",
            format!(
                "`stop` must be a string or a list of up to {MAX_STOPS} strings, none of them empty or longer than \
                 {MAX_STOP_BYTES} bytes"
            ),
        )
    };
    let words = match field(body, "stop") {
        None => return Ok(Vec::new()),
        Some(Json::String(word)) => vec![word.clone()],
        Some(Json::Array(words)) => {
            words.iter().map(|word| word.as_str().map(String::from)).collect::<Option<_>>().ok_or_else(fault)?
        }
        Some(_) => return Err(fault()),
    };
    let fine = |word: &String| (1..=MAX_STOP_BYTES).contains(&word.len());
    if words.len() > MAX_STOPS || !words.iter().all(fine) { Err(fault()) } else { Ok(words) }
}

fn parse_logit_bias(body: &Map<String, Json>) -> ApiResult<Vec<(i32, f32)>> {
    let fault = || {
        ApiError::for_param(
            "logit_bias",
            format!("`logit_bias` must map up to {MAX_BIASES} token IDs to numbers from -100 to 100"),
        )
    };
    let Some(value) = field(body, "logit_bias") else { return Ok(Vec::new()) };
    let map = value.as_object().filter(|map| map.len() <= MAX_BIASES).ok_or_else(fault)?;
    let pair = |(id, by): (&String, &Json)| {
        let by = by.as_f64().filter(|by| (-100.0..=100.0).contains(by))?;
        Some((id.parse::<i32>().ok().filter(|id| *id >= 0)?, by as f32))
    };
    map.iter().map(pair).collect::<Option<_>>().ok_or_else(fault)
}

/// Parses the output format. Several fields can specify it, but only one of them at a time.
fn parse_format(body: &Map<String, Json>) -> ApiResult<ResponseFormat> {
    let empty = Map::new();
    let outputs = match field(body, "structured_outputs") {
        None => &empty,
        Some(fields) => fields
            .as_object()
            .ok_or_else(|| ApiError::for_param("structured_outputs", "`structured_outputs` must be an object"))?,
    };
    let mut found: Vec<(String, ResponseFormat)> = Vec::new();
    for (fields, prefix) in [(body, "guided_"), (outputs, "")] {
        for kind in ["json", "regex", "choice", "json_object"] {
            let name = format!("{prefix}{kind}");
            let Some(value) = field(fields, &name).filter(|value| kind != "json_object" || **value != false) else {
                continue;
            };
            let param = if prefix.is_empty() { "structured_outputs".to_string() } else { name };
            let fault = |what: &str| ApiError::for_param(&param, format!("`{param}`: `{kind}` must be {what}"));
            let format = match (kind, value) {
                ("json", Json::String(text)) => {
                    ResponseFormat::Schema(serde_json::from_str(text).map_err(|_| fault("a JSON schema"))?)
                }
                ("json", schema) => ResponseFormat::Schema(schema.clone()),
                ("regex", Json::String(pattern)) => ResponseFormat::Regex(pattern.clone()),
                ("regex", _) => return Err(fault("a text")),
                ("choice", list) => {
                    ResponseFormat::Choice(choices(list).ok_or_else(|| fault("a list of strings, none of them empty"))?)
                }
                ("json_object", Json::Bool(true)) if prefix.is_empty() => ResponseFormat::Object,
                (_, _) if prefix.is_empty() => return Err(fault("true or false")),
                _ => continue,
            };
            found.push((param, format));
        }
    }
    if field(body, "structured_outputs").is_some() && found.iter().all(|(name, _)| name != "structured_outputs") {
        let what = "`structured_outputs` must have one of `json`, `regex`, `choice`, `json_object`";
        return Err(ApiError::for_param("structured_outputs", what));
    }
    match response_format(body)? {
        ResponseFormat::Any => {}
        format => found.push(("response_format".into(), format)),
    }
    match found.len() {
        0 => Ok(ResponseFormat::Any),
        1 => Ok(found.remove(0).1),
        _ => {
            let name = &found[1].0;
            Err(ApiError::for_param(
                name,
                format!("`{name}`: structured output is specified twice: give only one of the fields"),
            ))
        }
    }
}

fn choices(list: &Json) -> Option<Vec<String>> {
    let list = list.as_array().filter(|list| !list.is_empty() && list.len() <= MAX_CHOICE_TEXTS)?;
    list.iter().map(|text| text.as_str().filter(|text| !text.is_empty()).map(String::from)).collect()
}

fn response_format(body: &Map<String, Json>) -> ApiResult<ResponseFormat> {
    let Some(format) = field(body, "response_format") else { return Ok(ResponseFormat::Any) };
    let fault = |what: &str| ApiError::for_param("response_format", format!("`response_format`: {what}"));
    match format.get("type").and_then(Json::as_str) {
        Some("text") => Ok(ResponseFormat::Any),
        Some("json_object") => Ok(ResponseFormat::Object),
        Some("json_schema") => {
            let schema = format.get("json_schema").and_then(|own| own.get("schema"));
            schema.cloned().map(ResponseFormat::Schema).ok_or_else(|| fault("`json_schema.schema` is missing"))
        }
        Some("regex") => {
            let pattern = format.get("pattern").and_then(Json::as_str);
            pattern.map(|text| ResponseFormat::Regex(text.into())).ok_or_else(|| fault("`pattern` is missing"))
        }
        _ => Err(fault("`type` must be text, json_object, json_schema or regex")),
    }
}

/// Parses the messages of a chat and the fields of its template.
pub(crate) fn parse_chat(body: &Map<String, Json>) -> ApiResult<ChatRequest> {
    let (open, goes_on) =
        (bool_field_or(body, "add_generation_prompt", true)?, bool_field(body, "continue_final_message")?);
    if open && goes_on {
        let what = "`continue_final_message` needs `add_generation_prompt: false`";
        return Err(ApiError::for_param("continue_final_message", what));
    }
    let mut variables = match field(body, "chat_template_kwargs") {
        None => Map::new(),
        Some(Json::Object(variables)) => variables.clone(),
        Some(_) => return Err(ApiError::for_param("chat_template_kwargs", "`chat_template_kwargs` must be an object")),
    };
    if let Some(documents) = field(body, "documents") {
        let fine = documents.as_array().is_some_and(|list| list.iter().all(Json::is_object));
        if !fine {
            return Err(ApiError::for_param("documents", "`documents` must be a list of objects"));
        }
        variables.insert("documents".into(), documents.clone());
    }
    Ok(ChatRequest {
        messages: parse_messages(body)?,
        add_generation_prompt: open,
        continue_final_message: goes_on,
        template_kwargs: variables,
    })
}

/// The prompts of a completion, or the inputs of an embedding: a text, token IDs, or several of either.
pub(crate) fn parse_prompts(body: &Map<String, Json>, name: &str) -> ApiResult<Vec<Prompt>> {
    let fault = || {
        ApiError::for_param(
            name,
            format!(
                "`{name}` must be a string, a list of token IDs, or a list of up to {MAX_PROMPTS} of either, none of \
                 them empty"
            ),
        )
    };
    let ids = |list: &[Json]| -> Option<Vec<i32>> {
        list.iter().map(|id| id.as_i64().and_then(|id| i32::try_from(id).ok())).collect()
    };
    let found = match field(body, name) {
        None => return Err(ApiError::for_param(name, format!("`{name}` is missing"))),
        Some(Json::String(text)) => vec![Prompt::Text(text.clone())],
        Some(Json::Array(list)) if list.first().is_some_and(Json::is_number) => {
            vec![Prompt::Ids(ids(list).ok_or_else(fault)?)]
        }
        Some(Json::Array(list)) => {
            let one = |item: &Json| match item {
                Json::String(text) => Some(Prompt::Text(text.clone())),
                Json::Array(list) if !list.is_empty() => ids(list).map(Prompt::Ids),
                _ => None,
            };
            list.iter().map(one).collect::<Option<Vec<_>>>().ok_or_else(fault)?
        }
        Some(_) => return Err(fault()),
    };
    if found.is_empty() || found.len() > MAX_PROMPTS { Err(fault()) } else { Ok(found) }
}

/// The messages of a chat, each with its content as one string.
fn parse_messages(body: &Map<String, Json>) -> ApiResult<Vec<Json>> {
    let fault = |what: String| ApiError::for_param("messages", what);
    let list = field(body, "messages").ok_or_else(|| fault("`messages` is missing".into()))?;
    let list = list.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| fault("`messages` must be a list with at least one message".into()))?;
    let mut messages = Vec::new();
    for (i, message) in list.iter().enumerate() {
        let Some(fields) = message.as_object() else { return Err(fault(format!("message {i} is not an object"))) };
        if !fields.get("role").is_some_and(Json::is_string) {
            return Err(fault(format!("message {i} has no `role`")));
        }
        let mut fields = fields.clone();
        let content = match fields.get("content") {
            Some(Json::String(text)) => text.clone(),
            Some(Json::Array(parts)) => {
                let part = |part: &Json| match part.get("type").and_then(Json::as_str) {
                    Some("text") => part.get("text").and_then(Json::as_str).map(String::from),
                    _ => None,
                };
                let texts: Option<Vec<String>> = parts.iter().map(part).collect();
                texts
                    .ok_or_else(|| fault(format!("message {i} has parts that are not text: only text is supported")))?
                    .concat()
            }
            Some(Json::Null) | None => String::new(),
            Some(_) => return Err(fault(format!("the `content` of message {i} must be a string"))),
        };
        fields.insert("content".into(), content.into());
        messages.push(Json::Object(fields));
    }
    Ok(messages)
}

/// A random seed, for requests without one.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Json, chat: bool) -> ApiResult<CompletionRequest> {
        parse_completion(body.as_object().expect("an object"), chat)
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            (json!({}), "model"),
            (json!({ "model": 3 }), "model"),
            (json!({ "model": "m", "temperature": -1 }), "temperature"),
            (json!({ "model": "m", "temperature": "hot" }), "temperature"),
            (json!({ "model": "m", "top_p": 1.5 }), "top_p"),
            (json!({ "model": "m", "top_k": -2 }), "top_k"),
            (json!({ "model": "m", "max_tokens": 0 }), "max_tokens"),
            (json!({ "model": "m", "n": 1000 }), "n"),
            (json!({ "model": "m", "stop": [1] }), "stop"),
            (json!({ "model": "m", "stop": "" }), "stop"),
            (json!({ "model": "m", "logit_bias": { "x": 1 } }), "logit_bias"),
            (json!({ "model": "m", "logit_bias": { "1": 1000 } }), "logit_bias"),
            (json!({ "model": "m", "seed": 1.5 }), "seed"),
            (json!({ "model": "m", "stream": "yes" }), "stream"),
            (json!({ "model": "m", "top_logprobs": 3 }), "top_logprobs"),
            (json!({ "model": "m", "min_tokens": 9, "max_tokens": 8 }), "min_tokens"),
            (json!({ "model": "m", "stop_token_ids": [-1] }), "stop_token_ids"),
            (json!({ "model": "m", "allowed_token_ids": [] }), "allowed_token_ids"),
            (json!({ "model": "m", "stream_options": {} }), "stream_options"),
            (json!({ "model": "m", "stream": true, "stream_options": { "include_usage": 3 } }), "stream_options"),
            (json!({ "model": "m", "truncate_prompt_tokens": 0 }), "truncate_prompt_tokens"),
            (json!({ "model": "m", "truncation_side": "top" }), "truncation_side"),
            (json!({ "model": "m", "structured_outputs": {} }), "structured_outputs"),
            (json!({ "model": "m", "structured_outputs": { "choice": [] } }), "structured_outputs"),
            (json!({ "model": "m", "structured_outputs": { "json": "{" } }), "structured_outputs"),
            (json!({ "model": "m", "guided_choice": ["a"], "guided_regex": "a" }), "guided_choice"),
            (json!({ "model": "m", "stop": ["x".repeat(5000)] }), "stop"),
            (json!({ "model": "m", "response_format": { "type": "xml" } }), "response_format"),
            (json!({ "model": "m", "presence_penalty": 3 }), "presence_penalty"),
        ];
        for (body, param) in cases {
            let fault = read(body.clone(), true).expect_err("refused");
            assert_eq!((fault.status, fault.param.as_deref()), (400, Some(param)), "{body} {}", fault.message);
            assert!(fault.message.contains(param), "{}", fault.message);
        }
    }

    #[test]
    fn null_is_not_given() {
        let body =
            json!({ "model": "m", "temperature": null, "stop": null, "n": null, "logprobs": null, "tools": null });
        let found = read(body, true).expect("fine");
        assert_eq!((found.sampling.temperature, found.n, found.logprobs), (1.0, 1, None));
    }

    #[test]
    fn prompts_have_four_forms() {
        let count = |value: Json| {
            parse_prompts(json!({ "prompt": value }).as_object().expect("object"), "prompt").map(|p| p.len())
        };
        for (value, n) in [(json!("a"), 1), (json!(["a", "b"]), 2), (json!([1, 2, 3]), 1), (json!([[1], [2, 3]]), 2)] {
            assert_eq!(count(value).expect("fine"), n);
        }
        for value in [
            json!(3),
            json!([]),
            json!([[]]),
            json!([1, "a"]),
            json!([1.5]),
            json!([1u64 << 40]),
            json!({}),
            json!(null),
        ] {
            assert!(count(value.clone()).is_err(), "{value}");
        }
    }

    #[test]
    fn contents_of_parts_are_joined() {
        let body = json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }] });
        assert_eq!(parse_messages(body.as_object().expect("object")).expect("fine")[0]["content"], "ab");
        for wrong in [
            json!([]),
            json!("x"),
            json!([{}]),
            json!([{ "role": "user", "content": 3 }]),
            json!([{ "role": "user", "content": [{ "type": "image_url" }] }]),
        ] {
            assert!(parse_messages(json!({ "messages": wrong }).as_object().expect("object")).is_err(), "{wrong}");
        }
    }
}
