//! Every field of requests, of OpenAI's interface and of vLLM's: what is implemented, what changes nothing, and what is refused by
//! name. `FIELDS.md` is written from this table.

use crate::serve::api::{Fault, Parsed};
use serde_json::{Map, Value as Json};

/// Which address a field belongs to.
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

/// What is done with a field.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "the page is written from the notes"))]
enum How {
    Implemented(&'static str),
    /// Read by nobody: it can't change an answer. Why it can't.
    Accepted(&'static str),
    /// Answered with 400 and this reason, save for values that ask for nothing.
    Refused(&'static str, &'static [&'static str]),
}

use How::{Accepted, Implemented, Refused};

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    on: &'static [Endpoint],
    how: How,
}

const BOTH: &[Endpoint] = &[Text, Chat];
const ALL: &[Endpoint] = &[Text, Chat, Embed];

/// By name; those of a field that is an object are written behind its name.
#[rustfmt::skip]
const FIELDS: &[Field] = &[
    Field { name: "add_generation_prompt", on: &[Chat], how: Implemented("whether the template opens the answer; true by default") },
    Field { name: "add_generation_prompt", on: &[Embed], how: Refused("messages are not embedded", &["false"]) },
    Field { name: "add_special_tokens", on: ALL, how: Implemented("whether the tokenizer puts its special tokens in front; by default for texts, not for messages") },
    Field { name: "additional_data", on: &[Embed], how: Refused("it has no meaning here", &[]) },
    Field { name: "allowed_token_ids", on: BOTH, how: Implemented("only these tokens are generated") },
    Field { name: "audio", on: &[Chat], how: Refused("only text is generated", &[]) },
    Field { name: "bad_words", on: BOTH, how: Refused("use `logit_bias`", &["[]"]) },
    Field { name: "best_of", on: BOTH, how: Refused("ask for several with `n`", &["1"]) },
    Field { name: "cache_salt", on: ALL, how: Refused("beginnings of prompts are shared among all clients", &[]) },
    Field { name: "chat_template", on: &[Chat, Embed], how: Refused("the model's own template is used", &[]) },
    Field { name: "chat_template_kwargs", on: &[Chat], how: Implemented("variables of the template") },
    Field { name: "chat_template_kwargs", on: &[Embed], how: Refused("messages are not embedded", &["{}"]) },
    Field { name: "continue_final_message", on: &[Chat], how: Implemented("the answer goes on with the last message; needs `add_generation_prompt: false`") },
    Field { name: "continue_final_message", on: &[Embed], how: Refused("messages are not embedded", &["false"]) },
    Field { name: "dimensions", on: &[Embed], how: Implemented("the first so many numbers, of length 1 again, for models whose `config.json` says that they were trained for it; for others only the full number") },
    Field { name: "documents", on: &[Chat], how: Implemented("a variable of the template") },
    Field { name: "early_stopping", on: BOTH, how: Refused("there is no beam search", &["false"]) },
    Field { name: "ec_transfer_params", on: BOTH, how: Refused("caches are not handed over", &[]) },
    Field { name: "echo", on: &[Text], how: Implemented("the answer begins with the prompt; not with `logprobs`") },
    Field { name: "echo", on: &[Chat], how: Implemented("the answer begins with the last message, if it is one of the assistant") },
    Field { name: "embed_dtype", on: &[Embed], how: Refused("numbers are float32", &["\"float32\""]) },
    Field { name: "encoding_format", on: &[Embed], how: Implemented("`float` or `base64`") },
    Field { name: "endianness", on: &[Embed], how: Refused("base64 has little-endian numbers", &["\"native\"", "\"little\""]) },
    Field { name: "frequency_penalty", on: BOTH, how: Implemented("from -2 to 2") },
    Field { name: "function_call", on: &[Chat], how: Refused("there are no tools", &["\"none\"", "\"auto\""]) },
    Field { name: "functions", on: &[Chat], how: Refused("there are no tools", &["[]"]) },
    Field { name: "guided_choice", on: BOTH, how: Implemented("as `structured_outputs.choice`") },
    Field { name: "guided_decoding_backend", on: BOTH, how: Refused("there is one way", &["\"auto\""]) },
    Field { name: "guided_grammar", on: BOTH, how: Refused("only regular expressions and JSON schemas are enforced", &[]) },
    Field { name: "guided_json", on: BOTH, how: Implemented("as `structured_outputs.json`") },
    Field { name: "guided_regex", on: BOTH, how: Implemented("as `structured_outputs.regex`") },
    Field { name: "guided_whitespace_pattern", on: BOTH, how: Refused("there is at most one space behind `,` and `:`", &[]) },
    Field { name: "ignore_eos", on: BOTH, how: Implemented("tokens that end a text are like others") },
    Field { name: "include_reasoning", on: &[Chat], how: Refused("reasoning is not told apart from the answer", &["true"]) },
    Field { name: "include_stop_str_in_output", on: BOTH, how: Implemented("the stop word, or the text of the stop token, is shown") },
    Field { name: "input", on: &[Embed], how: Implemented("a text, ids, or several of either") },
    Field { name: "kv_transfer_params", on: BOTH, how: Refused("caches are not handed over", &[]) },
    Field { name: "length_penalty", on: BOTH, how: Refused("there is no beam search", &["1"]) },
    Field { name: "logit_bias", on: BOTH, how: Implemented("up to 1024 tokens, from -100 to 100") },
    Field { name: "logits_processors", on: BOTH, how: Refused("no code is run for clients", &["[]"]) },
    Field { name: "logprob_token_ids", on: BOTH, how: Refused("use `logprobs`", &["[]"]) },
    Field { name: "logprobs", on: &[Text], how: Implemented("that many most probable tokens, up to 20") },
    Field { name: "logprobs", on: &[Chat], how: Implemented("whether tokens are told with the logarithms of their probabilities") },
    Field { name: "max_completion_tokens", on: BOTH, how: Implemented("before `max_tokens`") },
    Field { name: "max_tokens", on: BOTH, how: Implemented("by default 16, in chats what the context has room for") },
    Field { name: "media_io_kwargs", on: &[Chat, Embed], how: Refused("only text is read", &["{}"]) },
    Field { name: "messages", on: &[Chat], how: Implemented("text only; further fields of a message are variables of the template") },
    Field { name: "messages", on: &[Embed], how: Refused("send `input`", &[]) },
    Field { name: "metadata", on: BOTH, how: Accepted("a note of the client") },
    Field { name: "min_p", on: BOTH, how: Implemented("from 0 to 1") },
    Field { name: "min_tokens", on: BOTH, how: Implemented("so many tokens come before an end or a stop word may") },
    Field { name: "mm_processor_kwargs", on: &[Chat, Embed], how: Refused("only text is read", &["{}"]) },
    Field { name: "modalities", on: &[Chat], how: Refused("only text is generated", &["[\"text\"]"]) },
    Field { name: "model", on: ALL, how: Implemented("a name of `/v1/models`") },
    Field { name: "moderation", on: &[Chat], how: Refused("answers are not moderated", &[]) },
    Field { name: "n", on: BOTH, how: Implemented("from 1 to 16") },
    Field { name: "normalize", on: &[Embed], how: Refused("vectors have length 1", &["true"]) },
    Field { name: "parallel_tool_calls", on: &[Chat], how: Accepted("there are no tools") },
    Field { name: "prediction", on: &[Chat], how: Accepted("a hint for speed") },
    Field { name: "presence_penalty", on: BOTH, how: Implemented("from -2 to 2") },
    Field { name: "priority", on: ALL, how: Refused("clients are served in turns", &["0"]) },
    Field { name: "prompt", on: &[Text], how: Implemented("a text, ids, or several of either") },
    Field { name: "prompt_cache_key", on: &[Chat], how: Accepted("a hint for speed") },
    Field { name: "prompt_cache_options", on: &[Chat], how: Accepted("a hint for speed") },
    Field { name: "prompt_cache_retention", on: &[Chat], how: Accepted("a hint for speed") },
    Field { name: "prompt_embeds", on: &[Text], how: Refused("prompts are texts or ids", &[]) },
    Field { name: "prompt_logprobs", on: BOTH, how: Refused("nothing is told about tokens of the prompt", &[]) },
    Field { name: "reasoning_effort", on: &[Chat], how: Refused("give it in `chat_template_kwargs` if the template knows it", &[]) },
    Field { name: "repetition_detection", on: BOTH, how: Refused("use `repetition_penalty`", &[]) },
    Field { name: "repetition_penalty", on: BOTH, how: Implemented("from 0.01 to 100") },
    Field { name: "request_id", on: BOTH, how: Implemented("the answer's `id` ends with it") },
    Field { name: "request_id", on: &[Embed], how: Accepted("a note of the client") },
    Field { name: "response_format", on: BOTH, how: Implemented("`text`, `json_object`, `json_schema`, or `regex` with `pattern`") },
    Field { name: "return_assistant_tokens_mask", on: &[Chat], how: Refused("tokens of the prompt are not told", &["false"]) },
    Field { name: "return_prompt_text", on: &[Chat], how: Refused("tokens of the prompt are not told", &["false"]) },
    Field { name: "return_token_ids", on: BOTH, how: Refused("ask for `logprobs` with `return_tokens_as_token_ids`", &["false"]) },
    Field { name: "return_token_offsets", on: BOTH, how: Refused("ask for `logprobs`", &["false"]) },
    Field { name: "return_tokens_as_token_ids", on: BOTH, how: Implemented("`logprobs` name tokens as `token_id:ID`") },
    Field { name: "routed_experts_prompt_start", on: BOTH, how: Refused("experts are not told", &["0"]) },
    Field { name: "safety_identifier", on: &[Chat], how: Accepted("a note of the client") },
    Field { name: "seed", on: BOTH, how: Implemented("the same seed gives the same text") },
    Field { name: "service_tier", on: &[Chat], how: Refused("there is one tier", &["\"auto\"", "\"default\""]) },
    Field { name: "session_id", on: BOTH, how: Accepted("a hint for speed") },
    Field { name: "skip_special_tokens", on: BOTH, how: Implemented("whether special tokens have no text; true by default") },
    Field { name: "spaces_between_special_tokens", on: BOTH, how: Refused("special tokens stand as they are written", &["true"]) },
    Field { name: "stop", on: BOTH, how: Implemented("up to 16 texts of up to 4096 bytes") },
    Field { name: "stop_token_ids", on: BOTH, how: Implemented("tokens that end the text, and are not shown") },
    Field { name: "store", on: &[Chat], how: Refused("nothing is stored", &["false"]) },
    Field { name: "stream", on: BOTH, how: Implemented("server-sent events") },
    Field { name: "stream_interval", on: BOTH, how: Refused("each piece is sent when it is there", &["1"]) },
    Field { name: "stream_options", on: BOTH, how: Implemented("`include_usage`, `continuous_usage_stats`; only with `stream`") },
    Field { name: "structural_tag", on: BOTH, how: Refused("only regular expressions and JSON schemas are enforced", &[]) },
    Field { name: "structured_outputs", on: BOTH, how: Implemented("one of `json`, `regex`, `choice`, `json_object`") },
    Field { name: "suffix", on: &[Text], how: Refused("nothing is written before a suffix", &["\"\""]) },
    Field { name: "temperature", on: BOTH, how: Implemented("from 0 to 100; 0 takes the most probable token") },
    Field { name: "thinking_token_budget", on: BOTH, how: Refused("reasoning is not told apart from the answer", &[]) },
    Field { name: "tool_choice", on: &[Chat], how: Refused("there are no tools", &["\"none\"", "\"auto\""]) },
    Field { name: "tools", on: &[Chat], how: Refused("there are no tools", &["[]"]) },
    Field { name: "top_k", on: BOTH, how: Implemented("0 or -1 for all") },
    Field { name: "top_logprobs", on: &[Chat], how: Implemented("up to 20, with `logprobs`") },
    Field { name: "top_p", on: BOTH, how: Implemented("from 0 to 1") },
    Field { name: "truncate_prompt_tokens", on: ALL, how: Implemented("a longer prompt is cut to so many tokens; -1 for what the context has room for") },
    Field { name: "truncation_side", on: ALL, how: Implemented("where `truncate_prompt_tokens` cuts: by default at the left, of texts to embed at the right") },
    Field { name: "typical_p", on: BOTH, how: Implemented("from 0 to 1") },
    Field { name: "use_activation", on: &[Embed], how: Refused("vectors have length 1", &["true"]) },
    Field { name: "use_beam_search", on: BOTH, how: Refused("there is no beam search", &["false"]) },
    Field { name: "user", on: ALL, how: Accepted("a note of the client") },
    Field { name: "verbosity", on: &[Chat], how: Refused("give it in `chat_template_kwargs` if the template knows it", &["\"medium\""]) },
    Field { name: "vllm_xargs", on: BOTH, how: Refused("they have no meaning here", &["{}"]) },
    Field { name: "web_search_options", on: &[Chat], how: Refused("nothing is searched", &[]) },
    Field { name: "response_format.json_schema", on: BOTH, how: Implemented("`schema`, and `name`, `description`, `strict`, which change nothing") },
    Field { name: "response_format.json_schema.description", on: BOTH, how: Accepted("a note of the client") },
    Field { name: "response_format.json_schema.name", on: BOTH, how: Accepted("a note of the client") },
    Field { name: "response_format.json_schema.schema", on: BOTH, how: Implemented("a JSON schema") },
    Field { name: "response_format.json_schema.strict", on: BOTH, how: Accepted("a schema is always enforced") },
    Field { name: "response_format.pattern", on: BOTH, how: Implemented("of `regex`") },
    Field { name: "response_format.type", on: BOTH, how: Implemented("`structural_tag` is refused") },
    Field { name: "stream_options.continuous_usage_stats", on: BOTH, how: Implemented("every piece has `usage`") },
    Field { name: "stream_options.include_obfuscation", on: BOTH, how: Refused("pieces are not padded", &["false"]) },
    Field { name: "stream_options.include_usage", on: BOTH, how: Implemented("a last piece has `usage`") },
    Field { name: "structured_outputs.choice", on: BOTH, how: Implemented("one of these texts") },
    Field { name: "structured_outputs.disable_additional_properties", on: BOTH, how: Refused("set `additionalProperties` in the schema", &["false"]) },
    Field { name: "structured_outputs.disable_any_whitespace", on: BOTH, how: Refused("there is at most one space behind `,` and `:`", &["false"]) },
    Field { name: "structured_outputs.grammar", on: BOTH, how: Refused("only regular expressions and JSON schemas are enforced", &[]) },
    Field { name: "structured_outputs.json", on: BOTH, how: Implemented("a JSON schema, as an object or a text") },
    Field { name: "structured_outputs.json_object", on: BOTH, how: Implemented("true: some JSON object") },
    Field { name: "structured_outputs.regex", on: BOTH, how: Implemented("a regular expression") },
    Field { name: "structured_outputs.structural_tag", on: BOTH, how: Refused("only regular expressions and JSON schemas are enforced", &[]) },
    Field { name: "structured_outputs.whitespace_pattern", on: BOTH, how: Refused("there is at most one space behind `,` and `:`", &[]) },
];

/// Refuses fields that are not known, and those that are refused. Whatever else is wrong with a field is found where it is read.
pub(crate) fn check(body: &Map<String, Json>, on: Endpoint) -> Parsed<()> {
    inside(body, "", on)
}

fn inside(fields: &Map<String, Json>, prefix: &str, on: Endpoint) -> Parsed<()> {
    for (name, value) in fields {
        let full = format!("{prefix}{name}");
        let field = FIELDS.iter().find(|field| field.name == full && field.on.contains(&on));
        let Some(field) = field else {
            let shown: String = full.chars().take(80).collect();
            return Err(Fault::of(&shown, format!("`{shown}` is not a field of {}: leave it out", on.path())));
        };
        match field.how {
            Refused(why, harmless) if !value.is_null() && !harmless.iter().any(|text| same(value, text)) => {
                return Err(Fault::of(&full, format!("`{full}` is not supported: {why}")));
            }
            Implemented(_) => {
                let prefix = format!("{full}.");
                if let (Json::Object(inner), true) = (value, FIELDS.iter().any(|own| own.name.starts_with(&prefix))) {
                    inside(inner, &prefix, on)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a value is this one, in JSON.
fn same(value: &Json, text: &str) -> bool {
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

    /// The table for people.
    fn page() -> String {
        let mut text = String::from(
            "# Fields of requests\n\nWritten from `src/serve/fields.rs`; `TENSORLOOM_WRITE=1 cargo test -p tensorloom-models --features serve --lib serve::fields` writes it again.\n\n\
             A field that is not listed for an address, or that is refused, is answered with 400 and its name. `null` is as if it were not there.\n",
        );
        for on in [Text, Chat, Embed] {
            let _ = write!(text, "\n## {}\n\n| field | | |\n| --- | --- | --- |\n", on.path());
            for field in FIELDS.iter().filter(|field| field.on.contains(&on)) {
                let (what, why) = match field.how {
                    Implemented(note) => ("implemented", note.to_string()),
                    Accepted(why) => ("changes nothing", why.to_string()),
                    Refused(why, []) => ("refused", why.to_string()),
                    Refused(why, harmless) => ("refused", format!("{why}; accepted: `{}`", harmless.join("`, `"))),
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

    /// Every field of OpenAI's and vLLM's requests is in the table, for its address.
    #[test]
    fn nothing_of_openai_and_vllm_is_missing() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/serve_fields.json");
        let peers: Json = serde_json::from_str(&std::fs::read_to_string(path).expect("read")).expect("JSON");
        let mut count = 0;
        for (name, on) in [("completions", Text), ("chat", Chat), ("embeddings", Embed)] {
            for peer in ["openai", "vllm"] {
                for field in peers[peer][name].as_array().expect("a list").iter().filter_map(Json::as_str) {
                    let known = FIELDS.iter().any(|own| own.name == field && own.on.contains(&on));
                    assert!(known, "{peer}'s `{field}` of {} is not in the table", on.path());
                    count += 1;
                }
            }
        }
        assert!(count > 150);
    }

    /// What is refused is refused with its name for any value but those that ask for nothing; what is unknown too.
    #[test]
    fn what_is_refused_is_named() {
        let body = |name: &str, value: Json| {
            let nested = name.split('.').rev().fold(value, |value, part| json!({ part: value }));
            nested.as_object().expect("an object").clone()
        };
        for (field, on) in FIELDS.iter().flat_map(|field| field.on.iter().map(move |on| (field, *on))) {
            let name = field.name;
            assert!(check(&body(name, Json::Null), on).is_ok(), "{name}");
            let strange = body(name, json!(["strange", 77]));
            match field.how {
                Refused(why, harmless) => {
                    let fault = check(&strange, on).expect_err(name);
                    assert_eq!((fault.status, fault.param.as_deref()), (400, Some(name)));
                    assert!(fault.message.contains(name) && fault.message.contains(why), "{}", fault.message);
                    for text in harmless {
                        let value = serde_json::from_str(text).expect("JSON");
                        assert!(check(&body(name, value), on).is_ok(), "{name}: {text}");
                    }
                }
                Implemented(_) | Accepted(_) => assert!(check(&strange, on).is_ok(), "{name}"),
            }
        }
        for (name, on) in [("tempurature", Text), ("prompt", Chat), ("temperature", Embed), ("stream_options.x", Chat)]
        {
            let fault = check(&body(name, json!(1)), on).expect_err(name);
            assert_eq!((fault.status, fault.param.as_deref()), (400, Some(name)));
        }
    }
}
