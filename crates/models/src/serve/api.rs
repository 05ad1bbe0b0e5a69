//! Requests of OpenAI's interface, read and checked field by field.

use crate::Sampling;
use serde_json::{Map, Value as Json, json};

/// Why a request is refused: one line, and the field it is about.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    /// Seconds after which to try again.
    pub(crate) later: Option<u64>,
}

impl Fault {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Fault {
        Fault { status, message: message.into(), param: None, later: None }
    }

    pub(crate) fn of(param: &str, message: impl Into<String>) -> Fault {
        Fault { param: Some(param.to_string()), ..Fault::new(400, message) }
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

pub(crate) type Parsed<T> = std::result::Result<T, Fault>;

/// Text or ids.
#[derive(Clone, Debug)]
pub(crate) enum Prompt {
    Text(String),
    Ids(Vec<i32>),
}

/// What a text must be.
#[derive(Clone, Debug)]
pub(crate) enum Format {
    Any,
    /// Some JSON object.
    Object,
    Schema(Json),
    Regex(String),
    Choice(Vec<String>),
}

/// How a prompt becomes ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoding {
    /// Whether the tokenizer's special tokens stand in front.
    pub(crate) special: bool,
    /// Whether those that it puts behind a text stand there too.
    pub(crate) framed: bool,
    /// Ids at most; where there are more, the others are cut off. `None` as the length is what the context has room for.
    pub(crate) cut: Option<Option<usize>>,
    /// Whether the first ids are cut off, and not the last.
    pub(crate) left: bool,
}

/// What both kinds of completions may ask for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) choices: usize,
    pub(crate) most: Option<usize>,
    pub(crate) sampling: Sampling,
    pub(crate) bias: Vec<(i32, f32)>,
    pub(crate) stop: Vec<String>,
    pub(crate) stream: bool,
    pub(crate) usage: bool,
    pub(crate) logprobs: Option<usize>,
    pub(crate) ignore_end: bool,
    /// New tokens before an end may come.
    pub(crate) least: usize,
    /// Further ids that end a text.
    pub(crate) stop_ids: Vec<i32>,
    /// Whether what stopped a text is shown.
    pub(crate) show_stop: bool,
    /// Whether special tokens have a text.
    pub(crate) show_special: bool,
    /// The only ids that may come.
    pub(crate) allowed: Option<Vec<i32>>,
    /// Whether an answer begins with its prompt, or the last message.
    pub(crate) echo: bool,
    /// Whether every piece of a stream has its usage.
    pub(crate) usage_always: bool,
    /// Whether tokens are told by their ids.
    pub(crate) by_id: bool,
    /// How the answer's id ends.
    pub(crate) request: Option<String>,
    pub(crate) encoding: Encoding,
    pub(crate) format: Format,
}

/// What becomes of messages.
#[derive(Clone, Debug)]
pub(crate) struct Chat {
    pub(crate) messages: Vec<Json>,
    /// Whether the template opens the answer.
    pub(crate) open: bool,
    /// Whether the answer goes on with the last message.
    pub(crate) goes_on: bool,
    /// Variables of the template.
    pub(crate) variables: Map<String, Json>,
}

/// Choices of one request, prompts of one request, stop words.
const MOST_CHOICES: usize = 16;
const MOST_PROMPTS: usize = 64;
const MOST_STOPS: usize = 16;
const MOST_BIASES: usize = 1024;
/// Bytes of a stop word, ids that stop or are allowed, texts to choose from, bytes of a request's name.
const LONGEST_STOP: usize = 4096;
const MOST_STOP_IDS: usize = 1024;
const MOST_ALLOWED: usize = 1 << 20;
const MOST_TEXTS: usize = 10_000;
const LONGEST_NAME: usize = 256;

/// The body of a request as an object.
pub(crate) fn object(bytes: &[u8]) -> Parsed<Map<String, Json>> {
    match serde_json::from_slice(bytes) {
        Ok(Json::Object(fields)) => Ok(fields),
        Ok(_) => Err(Fault::new(400, "the body must be a JSON object")),
        Err(e) => Err(Fault::new(400, format!("the body is not valid JSON: {e}"))),
    }
}

/// A field that is there and not null.
fn given<'a>(body: &'a Map<String, Json>, name: &str) -> Option<&'a Json> {
    body.get(name).filter(|value| !value.is_null())
}

fn number(body: &Map<String, Json>, name: &str, from: f64, to: f64) -> Parsed<Option<f64>> {
    let Some(value) = given(body, name) else { return Ok(None) };
    let x = value.as_f64().filter(|x| (from..=to).contains(x));
    x.map(Some).ok_or_else(|| Fault::of(name, format!("`{name}` must be a number from {from} to {to}")))
}

fn whole(body: &Map<String, Json>, name: &str, from: u64, to: u64) -> Parsed<Option<u64>> {
    let Some(value) = given(body, name) else { return Ok(None) };
    let n = value.as_u64().filter(|n| (from..=to).contains(n));
    n.map(Some).ok_or_else(|| Fault::of(name, format!("`{name}` must be a whole number from {from} to {to}")))
}

fn flag(body: &Map<String, Json>, name: &str) -> Parsed<bool> {
    flag_or(body, name, false)
}

fn flag_or(body: &Map<String, Json>, name: &str, usual: bool) -> Parsed<bool> {
    match given(body, name) {
        None => Ok(usual),
        Some(value) => value.as_bool().ok_or_else(|| Fault::of(name, format!("`{name}` must be true or false"))),
    }
}

pub(crate) fn text(body: &Map<String, Json>, name: &str) -> Parsed<String> {
    match given(body, name) {
        None => Err(Fault::of(name, format!("`{name}` is missing"))),
        Some(value) => {
            value.as_str().map(String::from).ok_or_else(|| Fault::of(name, format!("`{name}` must be a text")))
        }
    }
}

/// Everything but the prompt; `chat` says which of the two kinds it is.
pub(crate) fn ask(body: &Map<String, Json>, chat: bool) -> Parsed<Ask> {
    let temperature = number(body, "temperature", 0.0, 100.0)?.unwrap_or(1.0);
    let seed = match given(body, "seed") {
        None => fresh_seed(),
        Some(value) => {
            let seed = value.as_i64().map(|seed| seed as u64).or_else(|| value.as_u64());
            seed.ok_or_else(|| Fault::of("seed", "`seed` must be a whole number"))?
        }
    };
    let sampling = Sampling {
        temperature,
        top_k: top_k(body)?,
        top_p: share(body, "top_p")?,
        min_p: number(body, "min_p", 0.0, 1.0)?.unwrap_or(0.0),
        typical_p: share(body, "typical_p")?,
        repetition: number(body, "repetition_penalty", 0.01, 100.0)?.unwrap_or(1.0),
        presence: number(body, "presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        frequency: number(body, "frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        seed,
    };
    let most = match whole(body, "max_completion_tokens", 1, 1 << 32)? {
        Some(most) => Some(most),
        None => whole(body, "max_tokens", 1, 1 << 32)?,
    };
    let logprobs = match chat {
        true => match flag(body, "logprobs")? {
            true => Some(whole(body, "top_logprobs", 0, 20)?.unwrap_or(0)),
            false if given(body, "top_logprobs").is_some_and(|n| n != 0) => {
                return Err(Fault::of("top_logprobs", "`top_logprobs` needs `logprobs: true`"));
            }
            false => None,
        },
        false => whole(body, "logprobs", 0, 20)?,
    };
    let echo = flag(body, "echo")?;
    if echo && !chat && logprobs.is_some() {
        return Err(Fault::of("echo", "nothing is told about tokens of the prompt: leave out `echo` or `logprobs`"));
    }
    let stream = flag(body, "stream")?;
    let empty = Map::new();
    let options = match given(body, "stream_options") {
        None => &empty,
        Some(_) if !stream => return Err(Fault::of("stream_options", "`stream_options` needs `stream: true`")),
        Some(options) => {
            options.as_object().ok_or_else(|| Fault::of("stream_options", "`stream_options` must be an object"))?
        }
    };
    let option = |name: &str| {
        flag(options, name)
            .map_err(|_| Fault::of("stream_options", format!("`stream_options.{name}` must be true or false")))
    };
    let (usage, usage_always) = (option("include_usage")?, option("continuous_usage_stats")?);
    let least = whole(body, "min_tokens", 0, 1 << 32)?.unwrap_or(0);
    if most.is_some_and(|most| most < least) {
        return Err(Fault::of("min_tokens", "`min_tokens` is above the largest number of tokens that is asked for"));
    }
    let stop_ids = ids_of(body, "stop_token_ids", MOST_STOP_IDS)?.unwrap_or_default();
    let allowed = ids_of(body, "allowed_token_ids", MOST_ALLOWED)?;
    if allowed.as_ref().is_some_and(Vec::is_empty) {
        return Err(Fault::of("allowed_token_ids", "`allowed_token_ids` must have an id"));
    }
    let request = given(body, "request_id").map(|_| text(body, "request_id")).transpose()?;
    if request.as_ref().is_some_and(|name| name.len() > LONGEST_NAME) {
        return Err(Fault::of("request_id", format!("`request_id` must have at most {LONGEST_NAME} bytes")));
    }
    Ok(Ask {
        model: text(body, "model")?,
        choices: whole(body, "n", 1, MOST_CHOICES as u64)?.unwrap_or(1) as usize,
        most: most.map(|most| most as usize),
        sampling,
        bias: biases(body)?,
        stop: stops(body)?,
        stream,
        usage: usage || usage_always,
        usage_always,
        logprobs: logprobs.map(|n| n as usize),
        ignore_end: flag(body, "ignore_eos")?,
        least: least as usize,
        stop_ids,
        show_stop: flag(body, "include_stop_str_in_output")?,
        show_special: !flag_or(body, "skip_special_tokens", true)?,
        allowed,
        echo,
        by_id: flag(body, "return_tokens_as_token_ids")?,
        request,
        encoding: encoding(body, !chat, true)?,
        format: format(body)?,
    })
}

/// How prompts become ids; where special tokens stand and which end is cut off unless the request says.
pub(crate) fn encoding(body: &Map<String, Json>, special: bool, left: bool) -> Parsed<Encoding> {
    let cut = match given(body, "truncate_prompt_tokens") {
        None => None,
        Some(n) if *n == -1 => Some(None),
        Some(_) => whole(body, "truncate_prompt_tokens", 1, 1 << 32)?.map(|n| Some(n as usize)),
    };
    let left = match given(body, "truncation_side").map(Json::as_str) {
        None => left,
        Some(Some("left")) => true,
        Some(Some("right")) => false,
        Some(_) => return Err(Fault::of("truncation_side", "`truncation_side` must be left or right")),
    };
    Ok(Encoding { special: flag_or(body, "add_special_tokens", special)?, framed: false, cut, left })
}

/// How many numbers a vector is to have.
pub(crate) fn dimensions(body: &Map<String, Json>) -> Parsed<Option<usize>> {
    Ok(whole(body, "dimensions", 1, 1 << 32)?.map(|n| n as usize))
}

/// Whether vectors are written in base64.
pub(crate) fn coded(body: &Map<String, Json>) -> Parsed<bool> {
    match given(body, "encoding_format").map(Json::as_str) {
        None | Some(Some("float")) => Ok(false),
        Some(Some("base64")) => Ok(true),
        Some(_) => Err(Fault::of("encoding_format", "`encoding_format` must be float or base64")),
    }
}

fn ids_of(body: &Map<String, Json>, name: &str, most: usize) -> Parsed<Option<Vec<i32>>> {
    let Some(value) = given(body, name) else { return Ok(None) };
    let list = value.as_array().filter(|list| list.len() <= most);
    let id = |id: &Json| id.as_i64().and_then(|id| i32::try_from(id).ok()).filter(|id| *id >= 0);
    let ids = list.and_then(|list| list.iter().map(id).collect());
    ids.map(Some).ok_or_else(|| Fault::of(name, format!("`{name}` must be a list of up to {most} ids")))
}

fn top_k(body: &Map<String, Json>) -> Parsed<usize> {
    // Others write -1 for all.
    if given(body, "top_k").is_some_and(|k| *k == -1) {
        return Ok(0);
    }
    Ok(whole(body, "top_k", 0, 1 << 32)?.unwrap_or(0) as usize)
}

fn share(body: &Map<String, Json>, name: &str) -> Parsed<f64> {
    match number(body, name, 0.0, 1.0)? {
        Some(x) if x > 0.0 => Ok(x),
        // The most probable token alone.
        Some(_) => Ok(f64::MIN_POSITIVE),
        None => Ok(1.0),
    }
}

fn stops(body: &Map<String, Json>) -> Parsed<Vec<String>> {
    let fault = || {
        Fault::of(
            "stop",
            format!(
                "`stop` must be a text, or up to {MOST_STOPS} of them, none of them empty or of over {LONGEST_STOP} bytes"
            ),
        )
    };
    let words = match given(body, "stop") {
        None => return Ok(Vec::new()),
        Some(Json::String(word)) => vec![word.clone()],
        Some(Json::Array(words)) => {
            words.iter().map(|word| word.as_str().map(String::from)).collect::<Option<_>>().ok_or_else(fault)?
        }
        Some(_) => return Err(fault()),
    };
    let fine = |word: &String| (1..=LONGEST_STOP).contains(&word.len());
    if words.len() > MOST_STOPS || !words.iter().all(fine) { Err(fault()) } else { Ok(words) }
}

fn biases(body: &Map<String, Json>) -> Parsed<Vec<(i32, f32)>> {
    let fault = || {
        Fault::of("logit_bias", format!("`logit_bias` must map up to {MOST_BIASES} ids to numbers from -100 to 100"))
    };
    let Some(value) = given(body, "logit_bias") else { return Ok(Vec::new()) };
    let map = value.as_object().filter(|map| map.len() <= MOST_BIASES).ok_or_else(fault)?;
    let pair = |(id, by): (&String, &Json)| {
        let by = by.as_f64().filter(|by| (-100.0..=100.0).contains(by))?;
        Some((id.parse::<i32>().ok().filter(|id| *id >= 0)?, by as f32))
    };
    map.iter().map(pair).collect::<Option<_>>().ok_or_else(fault)
}

/// What the text must be. Several fields may ask for it, one of them at once.
fn format(body: &Map<String, Json>) -> Parsed<Format> {
    let empty = Map::new();
    let outputs = match given(body, "structured_outputs") {
        None => &empty,
        Some(fields) => fields
            .as_object()
            .ok_or_else(|| Fault::of("structured_outputs", "`structured_outputs` must be an object"))?,
    };
    let mut found: Vec<(String, Format)> = Vec::new();
    for (fields, prefix) in [(body, "guided_"), (outputs, "")] {
        for kind in ["json", "regex", "choice", "json_object"] {
            let name = format!("{prefix}{kind}");
            let Some(value) = given(fields, &name).filter(|value| kind != "json_object" || **value != false) else {
                continue;
            };
            let param = if prefix.is_empty() { "structured_outputs".to_string() } else { name };
            let fault = |what: &str| Fault::of(&param, format!("`{param}`: `{kind}` must be {what}"));
            let format = match (kind, value) {
                ("json", Json::String(text)) => {
                    Format::Schema(serde_json::from_str(text).map_err(|_| fault("a JSON schema"))?)
                }
                ("json", schema) => Format::Schema(schema.clone()),
                ("regex", Json::String(pattern)) => Format::Regex(pattern.clone()),
                ("regex", _) => return Err(fault("a text")),
                ("choice", list) => {
                    Format::Choice(choices(list).ok_or_else(|| fault("a list of texts, none of them empty"))?)
                }
                ("json_object", Json::Bool(true)) if prefix.is_empty() => Format::Object,
                (_, _) if prefix.is_empty() => return Err(fault("true or false")),
                _ => continue,
            };
            found.push((param, format));
        }
    }
    if given(body, "structured_outputs").is_some() && found.iter().all(|(name, _)| name != "structured_outputs") {
        let what = "`structured_outputs` must have one of `json`, `regex`, `choice`, `json_object`";
        return Err(Fault::of("structured_outputs", what));
    }
    match response_format(body)? {
        Format::Any => {}
        format => found.push(("response_format".into(), format)),
    }
    match found.len() {
        0 => Ok(Format::Any),
        1 => Ok(found.remove(0).1),
        _ => {
            let name = &found[1].0;
            Err(Fault::of(name, format!("`{name}`: the form of the text is given twice")))
        }
    }
}

fn choices(list: &Json) -> Option<Vec<String>> {
    let list = list.as_array().filter(|list| !list.is_empty() && list.len() <= MOST_TEXTS)?;
    list.iter().map(|text| text.as_str().filter(|text| !text.is_empty()).map(String::from)).collect()
}

fn response_format(body: &Map<String, Json>) -> Parsed<Format> {
    let Some(format) = given(body, "response_format") else { return Ok(Format::Any) };
    let fault = |what: &str| Fault::of("response_format", format!("`response_format`: {what}"));
    match format.get("type").and_then(Json::as_str) {
        Some("text") => Ok(Format::Any),
        Some("json_object") => Ok(Format::Object),
        Some("json_schema") => {
            let schema = format.get("json_schema").and_then(|own| own.get("schema"));
            schema.cloned().map(Format::Schema).ok_or_else(|| fault("`json_schema.schema` is missing"))
        }
        Some("regex") => {
            let pattern = format.get("pattern").and_then(Json::as_str);
            pattern.map(|text| Format::Regex(text.into())).ok_or_else(|| fault("`pattern` is missing"))
        }
        _ => Err(fault("`type` must be text, json_object, json_schema or regex")),
    }
}

/// What becomes of messages.
pub(crate) fn chat(body: &Map<String, Json>) -> Parsed<Chat> {
    let (open, goes_on) = (flag_or(body, "add_generation_prompt", true)?, flag(body, "continue_final_message")?);
    if open && goes_on {
        let what = "`continue_final_message` needs `add_generation_prompt: false`";
        return Err(Fault::of("continue_final_message", what));
    }
    let mut variables = match given(body, "chat_template_kwargs") {
        None => Map::new(),
        Some(Json::Object(variables)) => variables.clone(),
        Some(_) => return Err(Fault::of("chat_template_kwargs", "`chat_template_kwargs` must be an object")),
    };
    if let Some(documents) = given(body, "documents") {
        let fine = documents.as_array().is_some_and(|list| list.iter().all(Json::is_object));
        if !fine {
            return Err(Fault::of("documents", "`documents` must be a list of objects"));
        }
        variables.insert("documents".into(), documents.clone());
    }
    Ok(Chat { messages: messages(body)?, open, goes_on, variables })
}

/// The prompts of a completion, or the texts to embed: a text, ids, or several of either.
pub(crate) fn prompts(body: &Map<String, Json>, name: &str) -> Parsed<Vec<Prompt>> {
    let fault = || {
        Fault::of(
            name,
            format!("`{name}` must be a text, a list of ids, or up to {MOST_PROMPTS} of either, none of them empty"),
        )
    };
    let ids = |list: &[Json]| -> Option<Vec<i32>> {
        list.iter().map(|id| id.as_i64().and_then(|id| i32::try_from(id).ok())).collect()
    };
    let found = match given(body, name) {
        None => return Err(Fault::of(name, format!("`{name}` is missing"))),
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
    if found.is_empty() || found.len() > MOST_PROMPTS { Err(fault()) } else { Ok(found) }
}

/// The messages of a chat, each with its content as one text.
fn messages(body: &Map<String, Json>) -> Parsed<Vec<Json>> {
    let fault = |what: String| Fault::of("messages", what);
    let list = given(body, "messages").ok_or_else(|| fault("`messages` is missing".into()))?;
    let list = list.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| fault("`messages` must be a list of messages, at least one".into()))?;
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
                    .ok_or_else(|| fault(format!("message {i} has parts that are no text: only text is read")))?
                    .concat()
            }
            Some(Json::Null) | None => String::new(),
            Some(_) => return Err(fault(format!("the `content` of message {i} is no text"))),
        };
        fields.insert("content".into(), content.into());
        messages.push(Json::Object(fields));
    }
    Ok(messages)
}

/// A seed that nobody gave.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Json, chat: bool) -> Parsed<Ask> {
        ask(body.as_object().expect("an object"), chat)
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
        assert_eq!((found.sampling.temperature, found.choices, found.logprobs), (1.0, 1, None));
    }

    #[test]
    fn prompts_have_four_forms() {
        let count =
            |value: Json| prompts(json!({ "prompt": value }).as_object().expect("object"), "prompt").map(|p| p.len());
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
        assert_eq!(messages(body.as_object().expect("object")).expect("fine")[0]["content"], "ab");
        for wrong in [
            json!([]),
            json!("x"),
            json!([{}]),
            json!([{ "role": "user", "content": 3 }]),
            json!([{ "role": "user", "content": [{ "type": "image_url" }] }]),
        ] {
            assert!(messages(json!({ "messages": wrong }).as_object().expect("object")).is_err(), "{wrong}");
        }
    }
}
