//! All request fields of the OpenAI and vLLM APIs: which are implemented, which have no effect, and which are rejected by name.
//! `FIELDS.md` is generated from this table.

use crate::serve::api::{ApiError, ApiResult};
use serde_json::{Map, Value as Json};

/// The endpoint of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/v1/completions`
    Text,
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/embeddings`
    Embed,
}

use Endpoint::{Chat, Embed, Text};

impl Endpoint {
    fn path(self) -> &'static str {
        match self {
            Text => "/v1/completions",
            Chat => "/v1/chat/completions",
            Embed => "/v1/embeddings",
        }
    }
}

/// How a field is handled.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "the page is written from the notes"))]
enum FieldSupport {
    Implemented(&'static str),
    /// Ignored: it can't change an answer, for this reason.
    Ignored(&'static str),
    /// Rejected with status 400 and this reason, except for these values, which request nothing.
    Rejected(&'static str, &'static [&'static str]),
}

use FieldSupport::{Ignored, Implemented, Rejected};

#[derive(Clone, Copy, Debug)]
struct RequestField {
    name: &'static str,
    endpoints: &'static [Endpoint],
    support: FieldSupport,
}

const TEXT_AND_CHAT: &[Endpoint] = &[Text, Chat];
const ALL: &[Endpoint] = &[Text, Chat, Embed];

/// Sorted by name; the fields of a nested object follow its name.
#[rustfmt::skip]
const FIELDS: &[RequestField] = &[
    RequestField { name: "add_generation_prompt", endpoints: &[Chat], support: Implemented("whether the chat template opens the assistant's message; true by default") },
    RequestField { name: "add_generation_prompt", endpoints: &[Embed], support: Rejected("messages cannot be embedded: send `input`", &["false"]) },
    RequestField { name: "add_special_tokens", endpoints: ALL, support: Implemented("whether the tokenizer adds its special tokens; by default true for prompts, false for messages") },
    RequestField { name: "additional_data", endpoints: &[Embed], support: Rejected("not applicable", &[]) },
    RequestField { name: "allowed_token_ids", endpoints: TEXT_AND_CHAT, support: Implemented("only these tokens are generated") },
    RequestField { name: "audio", endpoints: &[Chat], support: Rejected("only text output is supported", &[]) },
    RequestField { name: "bad_words", endpoints: TEXT_AND_CHAT, support: Rejected("use `logit_bias`", &["[]"]) },
    RequestField { name: "best_of", endpoints: TEXT_AND_CHAT, support: Rejected("use `n`", &["1"]) },
    RequestField { name: "cache_salt", endpoints: ALL, support: Rejected("the prefix cache is shared among all clients", &[]) },
    RequestField { name: "chat_template", endpoints: &[Chat, Embed], support: Rejected("the model's own chat template is used", &[]) },
    RequestField { name: "chat_template_kwargs", endpoints: &[Chat], support: Implemented("variables of the chat template") },
    RequestField { name: "chat_template_kwargs", endpoints: &[Embed], support: Rejected("messages cannot be embedded: send `input`", &["{}"]) },
    RequestField { name: "continue_final_message", endpoints: &[Chat], support: Implemented("the completion continues the last message; needs `add_generation_prompt: false`") },
    RequestField { name: "continue_final_message", endpoints: &[Embed], support: Rejected("messages cannot be embedded: send `input`", &["false"]) },
    RequestField { name: "dimensions", endpoints: &[Embed], support: Implemented("the number of leading dimensions to return, normalized, for models whose `config.json` declares support; for others only the full number") },
    RequestField { name: "documents", endpoints: &[Chat], support: Implemented("a variable of the chat template") },
    RequestField { name: "early_stopping", endpoints: TEXT_AND_CHAT, support: Rejected("beam search is not supported", &["false"]) },
    RequestField { name: "ec_transfer_params", endpoints: TEXT_AND_CHAT, support: Rejected("KV cache transfer is not supported", &[]) },
    RequestField { name: "echo", endpoints: &[Text], support: Implemented("the completion starts with the prompt; cannot be combined with `logprobs`") },
    RequestField { name: "echo", endpoints: &[Chat], support: Implemented("the completion starts with the last message, if its role is assistant") },
    RequestField { name: "embed_dtype", endpoints: &[Embed], support: Rejected("embeddings are float32", &["\"float32\""]) },
    RequestField { name: "encoding_format", endpoints: &[Embed], support: Implemented("`float` or `base64`") },
    RequestField { name: "endianness", endpoints: &[Embed], support: Rejected("base64 values are little-endian", &["\"native\"", "\"little\""]) },
    RequestField { name: "frequency_penalty", endpoints: TEXT_AND_CHAT, support: Implemented("from -2 to 2") },
    RequestField { name: "function_call", endpoints: &[Chat], support: Rejected("tool calls are not supported", &["\"none\"", "\"auto\""]) },
    RequestField { name: "functions", endpoints: &[Chat], support: Rejected("tool calls are not supported", &["[]"]) },
    RequestField { name: "guided_choice", endpoints: TEXT_AND_CHAT, support: Implemented("as `structured_outputs.choice`") },
    RequestField { name: "guided_decoding_backend", endpoints: TEXT_AND_CHAT, support: Rejected("there is only one backend", &["\"auto\""]) },
    RequestField { name: "guided_grammar", endpoints: TEXT_AND_CHAT, support: Rejected("only regular expressions and JSON schemas are supported", &[]) },
    RequestField { name: "guided_json", endpoints: TEXT_AND_CHAT, support: Implemented("as `structured_outputs.json`") },
    RequestField { name: "guided_regex", endpoints: TEXT_AND_CHAT, support: Implemented("as `structured_outputs.regex`") },
    RequestField { name: "guided_whitespace_pattern", endpoints: TEXT_AND_CHAT, support: Rejected("the output has at most one space after `,` and `:`", &[]) },
    RequestField { name: "ignore_eos", endpoints: TEXT_AND_CHAT, support: Implemented("end-of-text tokens do not stop generation") },
    RequestField { name: "include_reasoning", endpoints: &[Chat], support: Rejected("reasoning is not separated from the completion", &["true"]) },
    RequestField { name: "include_stop_str_in_output", endpoints: TEXT_AND_CHAT, support: Implemented("the stop string, or the text of the stop token, is included in the output") },
    RequestField { name: "input", endpoints: &[Embed], support: Implemented("a string, token IDs, or a list of either") },
    RequestField { name: "kv_transfer_params", endpoints: TEXT_AND_CHAT, support: Rejected("KV cache transfer is not supported", &[]) },
    RequestField { name: "length_penalty", endpoints: TEXT_AND_CHAT, support: Rejected("beam search is not supported", &["1"]) },
    RequestField { name: "logit_bias", endpoints: TEXT_AND_CHAT, support: Implemented("up to 1024 tokens, from -100 to 100") },
    RequestField { name: "logits_processors", endpoints: TEXT_AND_CHAT, support: Rejected("custom logits processors are not supported", &["[]"]) },
    RequestField { name: "logprob_token_ids", endpoints: TEXT_AND_CHAT, support: Rejected("use `logprobs`", &["[]"]) },
    RequestField { name: "logprobs", endpoints: &[Text], support: Implemented("the number of most probable tokens to return, up to 20") },
    RequestField { name: "logprobs", endpoints: &[Chat], support: Implemented("whether to return log probabilities of the tokens") },
    RequestField { name: "max_completion_tokens", endpoints: TEXT_AND_CHAT, support: Implemented("takes precedence over `max_tokens`") },
    RequestField { name: "max_tokens", endpoints: TEXT_AND_CHAT, support: Implemented("default: 16, in chats the remaining context length") },
    RequestField { name: "media_io_kwargs", endpoints: &[Chat, Embed], support: Rejected("only text input is supported", &["{}"]) },
    RequestField { name: "messages", endpoints: &[Chat], support: Implemented("text only; further fields of a message are available to the chat template") },
    RequestField { name: "messages", endpoints: &[Embed], support: Rejected("send `input`", &[]) },
    RequestField { name: "metadata", endpoints: TEXT_AND_CHAT, support: Ignored("metadata of the client") },
    RequestField { name: "min_p", endpoints: TEXT_AND_CHAT, support: Implemented("from 0 to 1") },
    RequestField { name: "min_tokens", endpoints: TEXT_AND_CHAT, support: Implemented("the minimum number of tokens before an end-of-text token or a stop string") },
    RequestField { name: "mm_processor_kwargs", endpoints: &[Chat, Embed], support: Rejected("only text input is supported", &["{}"]) },
    RequestField { name: "modalities", endpoints: &[Chat], support: Rejected("only text output is supported", &["[\"text\"]"]) },
    RequestField { name: "model", endpoints: ALL, support: Implemented("a name of `/v1/models`") },
    RequestField { name: "moderation", endpoints: &[Chat], support: Rejected("moderation is not supported", &[]) },
    RequestField { name: "n", endpoints: TEXT_AND_CHAT, support: Implemented("from 1 to 16") },
    RequestField { name: "normalize", endpoints: &[Embed], support: Rejected("embeddings are always normalized", &["true"]) },
    RequestField { name: "parallel_tool_calls", endpoints: &[Chat], support: Ignored("tool calls are not supported") },
    RequestField { name: "prediction", endpoints: &[Chat], support: Ignored("a performance hint") },
    RequestField { name: "presence_penalty", endpoints: TEXT_AND_CHAT, support: Implemented("from -2 to 2") },
    RequestField { name: "priority", endpoints: ALL, support: Rejected("requests are scheduled fairly among clients", &["0"]) },
    RequestField { name: "prompt", endpoints: &[Text], support: Implemented("a string, token IDs, or a list of either") },
    RequestField { name: "prompt_cache_key", endpoints: &[Chat], support: Ignored("a performance hint") },
    RequestField { name: "prompt_cache_options", endpoints: &[Chat], support: Ignored("a performance hint") },
    RequestField { name: "prompt_cache_retention", endpoints: &[Chat], support: Ignored("a performance hint") },
    RequestField { name: "prompt_embeds", endpoints: &[Text], support: Rejected("prompts must be strings or token IDs", &[]) },
    RequestField { name: "prompt_logprobs", endpoints: TEXT_AND_CHAT, support: Rejected("log probabilities of prompt tokens are not supported", &[]) },
    RequestField { name: "reasoning_effort", endpoints: &[Chat], support: Rejected("use `chat_template_kwargs` if the chat template supports it", &[]) },
    RequestField { name: "repetition_detection", endpoints: TEXT_AND_CHAT, support: Rejected("use `repetition_penalty`", &[]) },
    RequestField { name: "repetition_penalty", endpoints: TEXT_AND_CHAT, support: Implemented("from 0.01 to 100") },
    RequestField { name: "request_id", endpoints: TEXT_AND_CHAT, support: Implemented("the suffix of the response's `id`") },
    RequestField { name: "request_id", endpoints: &[Embed], support: Ignored("metadata of the client") },
    RequestField { name: "response_format", endpoints: TEXT_AND_CHAT, support: Implemented("`text`, `json_object`, `json_schema`, or `regex` with `pattern`") },
    RequestField { name: "return_assistant_tokens_mask", endpoints: &[Chat], support: Rejected("prompt tokens are not returned", &["false"]) },
    RequestField { name: "return_prompt_text", endpoints: &[Chat], support: Rejected("prompt tokens are not returned", &["false"]) },
    RequestField { name: "return_token_ids", endpoints: TEXT_AND_CHAT, support: Rejected("use `logprobs` with `return_tokens_as_token_ids`", &["false"]) },
    RequestField { name: "return_token_offsets", endpoints: TEXT_AND_CHAT, support: Rejected("use `logprobs`", &["false"]) },
    RequestField { name: "return_tokens_as_token_ids", endpoints: TEXT_AND_CHAT, support: Implemented("`logprobs` name tokens as `token_id:ID`") },
    RequestField { name: "routed_experts_prompt_start", endpoints: TEXT_AND_CHAT, support: Rejected("routed experts are not returned", &["0"]) },
    RequestField { name: "safety_identifier", endpoints: &[Chat], support: Ignored("metadata of the client") },
    RequestField { name: "seed", endpoints: TEXT_AND_CHAT, support: Implemented("the same seed gives the same output") },
    RequestField { name: "service_tier", endpoints: &[Chat], support: Rejected("there is only one service tier", &["\"auto\"", "\"default\""]) },
    RequestField { name: "session_id", endpoints: TEXT_AND_CHAT, support: Ignored("a performance hint") },
    RequestField { name: "skip_special_tokens", endpoints: TEXT_AND_CHAT, support: Implemented("whether special tokens are omitted from the text; true by default") },
    RequestField { name: "spaces_between_special_tokens", endpoints: TEXT_AND_CHAT, support: Rejected("no spaces are added between special tokens", &["true"]) },
    RequestField { name: "stop", endpoints: TEXT_AND_CHAT, support: Implemented("up to 16 strings of up to 4096 bytes") },
    RequestField { name: "stop_token_ids", endpoints: TEXT_AND_CHAT, support: Implemented("tokens that stop generation and are not included in the output") },
    RequestField { name: "store", endpoints: &[Chat], support: Rejected("responses are not stored", &["false"]) },
    RequestField { name: "stream", endpoints: TEXT_AND_CHAT, support: Implemented("server-sent events") },
    RequestField { name: "stream_interval", endpoints: TEXT_AND_CHAT, support: Rejected("each chunk is sent as soon as it is available", &["1"]) },
    RequestField { name: "stream_options", endpoints: TEXT_AND_CHAT, support: Implemented("`include_usage`, `continuous_usage_stats`; only with `stream`") },
    RequestField { name: "structural_tag", endpoints: TEXT_AND_CHAT, support: Rejected("only regular expressions and JSON schemas are supported", &[]) },
    RequestField { name: "structured_outputs", endpoints: TEXT_AND_CHAT, support: Implemented("one of `json`, `regex`, `choice`, `json_object`") },
    RequestField { name: "suffix", endpoints: &[Text], support: Rejected("suffixes are not supported", &["\"\""]) },
    RequestField { name: "temperature", endpoints: TEXT_AND_CHAT, support: Implemented("from 0 to 100; 0 takes the most probable token") },
    RequestField { name: "thinking_token_budget", endpoints: TEXT_AND_CHAT, support: Rejected("reasoning is not separated from the completion", &[]) },
    RequestField { name: "tool_choice", endpoints: &[Chat], support: Rejected("tool calls are not supported", &["\"none\"", "\"auto\""]) },
    RequestField { name: "tools", endpoints: &[Chat], support: Rejected("tool calls are not supported", &["[]"]) },
    RequestField { name: "top_k", endpoints: TEXT_AND_CHAT, support: Implemented("0 or -1 for all tokens") },
    RequestField { name: "top_logprobs", endpoints: &[Chat], support: Implemented("up to 20, with `logprobs`") },
    RequestField { name: "top_p", endpoints: TEXT_AND_CHAT, support: Implemented("from 0 to 1") },
    RequestField { name: "truncate_prompt_tokens", endpoints: ALL, support: Implemented("the maximum number of prompt tokens; -1 for the remaining context length") },
    RequestField { name: "truncation_side", endpoints: ALL, support: Implemented("the side that `truncate_prompt_tokens` truncates; default: left, for embeddings right") },
    RequestField { name: "typical_p", endpoints: TEXT_AND_CHAT, support: Implemented("from 0 to 1") },
    RequestField { name: "use_activation", endpoints: &[Embed], support: Rejected("embeddings are always normalized", &["true"]) },
    RequestField { name: "use_beam_search", endpoints: TEXT_AND_CHAT, support: Rejected("beam search is not supported", &["false"]) },
    RequestField { name: "user", endpoints: ALL, support: Ignored("metadata of the client") },
    RequestField { name: "verbosity", endpoints: &[Chat], support: Rejected("use `chat_template_kwargs` if the chat template supports it", &["\"medium\""]) },
    RequestField { name: "vllm_xargs", endpoints: TEXT_AND_CHAT, support: Rejected("not applicable", &["{}"]) },
    RequestField { name: "web_search_options", endpoints: &[Chat], support: Rejected("web search is not supported", &[]) },
    RequestField { name: "response_format.json_schema", endpoints: TEXT_AND_CHAT, support: Implemented("`schema`; `name`, `description` and `strict` have no effect") },
    RequestField { name: "response_format.json_schema.description", endpoints: TEXT_AND_CHAT, support: Ignored("metadata of the client") },
    RequestField { name: "response_format.json_schema.name", endpoints: TEXT_AND_CHAT, support: Ignored("metadata of the client") },
    RequestField { name: "response_format.json_schema.schema", endpoints: TEXT_AND_CHAT, support: Implemented("a JSON schema") },
    RequestField { name: "response_format.json_schema.strict", endpoints: TEXT_AND_CHAT, support: Ignored("a schema is always enforced") },
    RequestField { name: "response_format.pattern", endpoints: TEXT_AND_CHAT, support: Implemented("of `regex`") },
    RequestField { name: "response_format.type", endpoints: TEXT_AND_CHAT, support: Implemented("`structural_tag` is refused") },
    RequestField { name: "stream_options.continuous_usage_stats", endpoints: TEXT_AND_CHAT, support: Implemented("every chunk has `usage`") },
    RequestField { name: "stream_options.include_obfuscation", endpoints: TEXT_AND_CHAT, support: Rejected("chunks are not padded", &["false"]) },
    RequestField { name: "stream_options.include_usage", endpoints: TEXT_AND_CHAT, support: Implemented("a final chunk has `usage`") },
    RequestField { name: "structured_outputs.choice", endpoints: TEXT_AND_CHAT, support: Implemented("one of these strings") },
    RequestField { name: "structured_outputs.disable_additional_properties", endpoints: TEXT_AND_CHAT, support: Rejected("set `additionalProperties` in the schema", &["false"]) },
    RequestField { name: "structured_outputs.disable_any_whitespace", endpoints: TEXT_AND_CHAT, support: Rejected("the output has at most one space after `,` and `:`", &["false"]) },
    RequestField { name: "structured_outputs.grammar", endpoints: TEXT_AND_CHAT, support: Rejected("only regular expressions and JSON schemas are supported", &[]) },
    RequestField { name: "structured_outputs.json", endpoints: TEXT_AND_CHAT, support: Implemented("a JSON schema, as an object or a string") },
    RequestField { name: "structured_outputs.json_object", endpoints: TEXT_AND_CHAT, support: Implemented("true: any JSON object") },
    RequestField { name: "structured_outputs.regex", endpoints: TEXT_AND_CHAT, support: Implemented("a regular expression") },
    RequestField { name: "structured_outputs.structural_tag", endpoints: TEXT_AND_CHAT, support: Rejected("only regular expressions and JSON schemas are supported", &[]) },
    RequestField { name: "structured_outputs.whitespace_pattern", endpoints: TEXT_AND_CHAT, support: Rejected("the output has at most one space after `,` and `:`", &[]) },
];

/// Rejects unknown fields and unsupported ones. Other errors in a field are reported where it is parsed.
pub(crate) fn check(body: &Map<String, Json>, on: Endpoint) -> ApiResult<()> {
    check_nested(body, "", on)
}

fn check_nested(fields: &Map<String, Json>, prefix: &str, on: Endpoint) -> ApiResult<()> {
    for (name, value) in fields {
        let full = format!("{prefix}{name}");
        let field = FIELDS.iter().find(|field| field.name == full && field.endpoints.contains(&on));
        let Some(field) = field else {
            let shown: String = full.chars().take(80).collect();
            return Err(ApiError::for_param(&shown, format!("`{shown}` is not a field of {}: remove it", on.path())));
        };
        match field.support {
            Rejected(why, harmless) if !value.is_null() && !harmless.iter().any(|text| equals_json(value, text)) => {
                return Err(ApiError::for_param(&full, format!("`{full}` is not supported: {why}")));
            }
            Implemented(_) => {
                let prefix = format!("{full}.");
                if let (Json::Object(inner), true) = (value, FIELDS.iter().any(|own| own.name.starts_with(&prefix))) {
                    check_nested(inner, &prefix, on)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a value equals this JSON text.
fn equals_json(value: &Json, text: &str) -> bool {
    let Ok(other) = serde_json::from_str::<Json>(text) else { return false };
    match (value.as_f64(), other.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => *value == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fmt::Write;

    /// Renders the table as Markdown.
    fn page() -> String {
        let mut text = String::from(
            "# Fields of requests\n\nWritten from `src/serve/fields.rs`; `TENSORLOOM_WRITE=1 cargo test -p tensorloom-models --features serve --lib serve::fields` writes it again.\n\n\
             A field that is not listed for an address, or that is refused, is answered with 400 and its name. `null` is as if it were not there.\n",
        );
        for on in [Text, Chat, Embed] {
            let _ = write!(text, "\n## {}\n\n| field | | |\n| --- | --- | --- |\n", on.path());
            for field in FIELDS.iter().filter(|field| field.endpoints.contains(&on)) {
                let (what, why) = match field.support {
                    Implemented(note) => ("implemented", note.to_string()),
                    Ignored(why) => ("changes nothing", why.to_string()),
                    Rejected(why, []) => ("refused", why.to_string()),
                    Rejected(why, harmless) => ("refused", format!("{why}; accepted: `{}`", harmless.join("`, `"))),
                };
                let _ = writeln!(text, "| `{}` | {what} | {why} |", field.name);
            }
        }
        text
    }

    #[test]
    fn the_page_is_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/FIELDS.md");
        if std::env::var_os("TENSORLOOM_WRITE").is_some() {
            std::fs::write(path, page()).expect("written");
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == page(),
            "FIELDS.md is not what the table says; the first line of it says how to write it again"
        );
    }

    /// Checks that every request field of OpenAI and vLLM is in the table, for its endpoint.
    #[test]
    fn nothing_of_openai_and_vllm_is_missing() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/serve_fields.json");
        let peers: Json = serde_json::from_str(&std::fs::read_to_string(path).expect("read")).expect("JSON");
        let mut count = 0;
        for (name, on) in [("completions", Text), ("chat", Chat), ("embeddings", Embed)] {
            for peer in ["openai", "vllm"] {
                for field in peers[peer][name].as_array().expect("a list").iter().filter_map(Json::as_str) {
                    let known = FIELDS.iter().any(|own| own.name == field && own.endpoints.contains(&on));
                    assert!(known, "{peer}'s `{field}` of {} is not in the table", on.path());
                    count += 1;
                }
            }
        }
        assert!(count > 150);
    }

    /// Checks that unsupported and unknown fields are rejected with their names, except for values that request nothing.
    #[test]
    fn what_is_refused_is_named() {
        let body = |name: &str, value: Json| {
            let nested = name.split('.').rev().fold(value, |value, part| json!({ part: value }));
            nested.as_object().expect("an object").clone()
        };
        for (field, on) in FIELDS.iter().flat_map(|field| field.endpoints.iter().map(move |on| (field, *on))) {
            let name = field.name;
            assert!(check(&body(name, Json::Null), on).is_ok(), "{name}");
            let strange = body(name, json!(["strange", 77]));
            match field.support {
                Rejected(why, harmless) => {
                    let fault = check(&strange, on).expect_err(name);
                    assert_eq!((fault.status, fault.param.as_deref()), (400, Some(name)));
                    assert!(fault.message.contains(name) && fault.message.contains(why), "{}", fault.message);
                    for text in harmless {
                        let value = serde_json::from_str(text).expect("JSON");
                        assert!(check(&body(name, value), on).is_ok(), "{name}: {text}");
                    }
                }
                Implemented(_) | Ignored(_) => assert!(check(&strange, on).is_ok(), "{name}"),
            }
        }
        for (name, on) in [("tempurature", Text), ("prompt", Chat), ("temperature", Embed), ("stream_options.x", Chat)]
        {
            let fault = check(&body(name, json!(1)), on).expect_err(name);
            assert_eq!((fault.status, fault.param.as_deref()), (400, Some(name)));
        }
    }
}
