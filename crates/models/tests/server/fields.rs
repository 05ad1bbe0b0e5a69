//! Tests that every field that `FIELDS.md` lists as implemented has its effect.

use crate::client::{Choices, Client, model, start};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use tensorloom_models::Tokenizer;

const TEMPLATE: &str = "{% if documents %}{% for d in documents %}[{{ d.text }}]{% endfor %}{% endif %}{% if tone is defined %}{{ tone }}{% endif %}\
    {% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/// One endpoint of a server.
struct Asked {
    client: Client,
    path: &'static str,
    tokenizer: Tokenizer,
}

impl Asked {
    fn is_chat(&self) -> bool {
        self.path.contains("chat")
    }

    fn body(&self, more: Json) -> Json {
        let mut body = match self.path {
            "/v1/embeddings" => json!({ "model": "tiny", "input": "the cat sat" }),
            "/v1/completions" => {
                json!({ "model": "tiny", "prompt": "the cat", "max_tokens": 12, "temperature": 0, "ignore_eos": true })
            }
            _ => {
                json!({ "model": "tiny", "messages": [{ "role": "user", "content": "the cat" }], "max_tokens": 12, "temperature": 0, "ignore_eos": true })
            }
        };
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    }

    fn refused(&self, more: Json, field: &str) {
        let answer = self.client.post(self.path, &self.body(more.clone()));
        assert_eq!(answer.status, 400, "{} {more}: {}", self.path, answer.body);
        assert_eq!(answer.json()["error"]["param"], field, "{} {more}: {}", self.path, answer.body);
    }

    fn json(&self, more: Json) -> Json {
        let answer = self.client.post(self.path, &self.body(more.clone()));
        assert_eq!(answer.status, 200, "{} {more}: {}", self.path, answer.body);
        answer.json()
    }

    fn text_of(&self, choice: &Json) -> String {
        let text = if self.is_chat() { &choice["message"]["content"] } else { &choice["text"] };
        text.as_str().expect("a text").to_string()
    }

    fn text(&self, more: Json) -> String {
        self.text_of(&self.json(more)["choices"][0])
    }

    fn vector(&self, more: Json) -> Vec<f64> {
        let answer = self.json(more);
        answer["data"][0]["embedding"].as_array().expect("a list").iter().filter_map(Json::as_f64).collect()
    }

    fn count(&self, more: Json) -> u64 {
        self.json(more)["usage"]["completion_tokens"].as_u64().expect("a number")
    }

    fn prompt_tokens(&self, more: Json) -> u64 {
        self.json(more)["usage"]["prompt_tokens"].as_u64().expect("a number")
    }

    fn events(&self, more: Json) -> Vec<Json> {
        self.client.events(self.path, &self.body(more))
    }

    /// The token IDs of the greedy text.
    fn ids(&self) -> Vec<i32> {
        let logprobs = if self.is_chat() { json!({ "logprobs": true }) } else { json!({ "logprobs": 0 }) };
        let mut body = logprobs;
        body["return_tokens_as_token_ids"] = true.into();
        let told = self.json(body)["choices"][0]["logprobs"].clone();
        let tokens: Vec<Json> = match self.is_chat() {
            true => told["content"].as_array().expect("a list").iter().map(|entry| entry["token"].clone()).collect(),
            false => told["tokens"].as_array().expect("a list").clone(),
        };
        let id = |token: &Json| token.as_str()?.strip_prefix("token_id:")?.parse().ok();
        tokens.iter().map(|token| id(token).unwrap_or_else(|| panic!("{token}"))).collect()
    }

    /// The result of a completion with this text; for a chat, the template is applied to it.
    fn completion(&self, prompt: &str) -> String {
        self.client.complete(prompt, 12)
    }
}

/// Tests the effect of a field; false if there is no test for it.
fn works(on: &Asked, field: &str) -> bool {
    let plain = || on.text(json!({}));
    let drawn = |more: Json| {
        let mut body = json!({ "temperature": 1.0, "seed": 5 });
        body.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
        on.text(body)
    };
    let ids = || on.ids();
    let decoded = |ids: &[i32]| on.tokenizer.decode(ids).expect("decodes");
    match field {
        "model" => assert_eq!(on.json(json!({}))["model"], "tiny"),
        "prompt" => assert_eq!(on.text(json!({ "prompt": on.tokenizer.encode("the cat").expect("encodes") })), plain()),
        "messages" => assert_eq!(plain(), on.completion("<user>the cat<assistant>")),
        "add_generation_prompt" => {
            assert_eq!(on.text(json!({ "add_generation_prompt": false })), on.completion("<user>the cat"));
        }
        "continue_final_message" => {
            let messages =
                json!([{ "role": "user", "content": "the cat" }, { "role": "assistant", "content": "sat on" }]);
            let goes_on = on
                .text(json!({ "messages": messages, "continue_final_message": true, "add_generation_prompt": false }));
            assert_eq!(goes_on, on.completion("<user>the cat<assistant>sat on"));
            on.refused(json!({ "messages": messages, "continue_final_message": true }), field);
        }
        "chat_template_kwargs" => {
            let text = on.text(json!({ "chat_template_kwargs": { "tone": "kind" } }));
            assert_eq!(text, on.completion("kind<user>the cat<assistant>"));
        }
        "documents" => {
            assert_eq!(
                on.text(json!({ "documents": [{ "text": "mat" }] })),
                on.completion("[mat]<user>the cat<assistant>")
            );
        }
        "echo" => {
            let messages = json!([{ "role": "assistant", "content": "the cat" }]);
            let body = if on.is_chat() { json!({ "messages": messages }) } else { json!({}) };
            let mut echoed = body.clone();
            echoed["echo"] = true.into();
            assert_eq!(on.text(echoed), format!("the cat{}", on.text(body)));
        }
        "max_tokens" | "max_completion_tokens" => assert_eq!(on.count(json!({ field: 5 })), 5),
        "n" => assert_eq!(on.json(json!({ "n": 3 }))["choices"].as_array().map(Vec::len), Some(3)),
        "request_id" => {
            let id = on.json(json!({ "request_id": "abc" }))["id"].as_str().expect("an id").to_string();
            assert!(id.ends_with("-abc"), "{id}");
        }
        "seed" => {
            assert_eq!(drawn(json!({})), drawn(json!({})));
            assert_ne!(drawn(json!({})), drawn(json!({ "seed": 6 })));
        }
        "temperature" => {
            assert!(drawn(json!({ "temperature": 50 })) != plain() && drawn(json!({ "temperature": 0 })) == plain())
        }
        "top_k" => assert_eq!(drawn(json!({ "top_k": 1 })), plain()),
        "top_p" => assert_eq!(drawn(json!({ "top_p": 1e-9 })), plain()),
        "min_p" => assert_eq!(drawn(json!({ "min_p": 1 })), plain()),
        "typical_p" => assert_ne!(drawn(json!({ "typical_p": 0.05 })), drawn(json!({}))),
        "logit_bias" => assert_eq!(on.text(json!({ "logit_bias": { "66": 100 } })), decoded(&[66; 12])),
        "allowed_token_ids" => {
            assert_eq!(on.text(json!({ "allowed_token_ids": [66] })), decoded(&[66; 12]));
            on.refused(json!({ "allowed_token_ids": [100_000] }), field);
        }
        "repetition_penalty" | "presence_penalty" | "frequency_penalty" => {
            let value = if field == "repetition_penalty" { 100.0 } else { 2.0 };
            let found = on.text(json!({ "logit_bias": { "66": 10.0, "67": 9.5 }, field: value }));
            assert!(found != on.text(json!({ "logit_bias": { "66": 10.0, "67": 9.5 } })), "{found}");
        }
        "stop" => {
            let whole = plain();
            let word: String = whole.chars().skip(3).take(2).collect();
            let found = on.json(json!({ "stop": [word] }))["choices"][0].clone();
            assert_eq!(on.text_of(&found), whole[..whole.find(&word).expect("there")]);
            assert_eq!((&found["finish_reason"], &found["stop_reason"]), (&json!("stop"), &json!(word)));
        }
        "include_stop_str_in_output" => {
            let whole = plain();
            let word: String = whole.chars().skip(3).take(2).collect();
            let end = whole.find(&word).expect("there") + word.len();
            assert_eq!(on.text(json!({ "stop": word, "include_stop_str_in_output": true })), whole[..end]);
            let (all, id) = (ids(), ids()[4]);
            let first = all.iter().position(|own| *own == id).expect("there");
            let shown = on.text(json!({ "stop_token_ids": [id], "include_stop_str_in_output": true }));
            assert_eq!(shown, decoded(&all[..=first]));
        }
        "stop_token_ids" => {
            let (all, id) = (ids(), ids()[4]);
            let first = all.iter().position(|own| *own == id).expect("there");
            let found = on.json(json!({ "stop_token_ids": [id] }))["choices"][0].clone();
            assert_eq!(on.text_of(&found), decoded(&all[..first]));
            assert_eq!((&found["finish_reason"], &found["stop_reason"]), (&json!("stop"), &json!(id)));
            on.refused(json!({ "stop_token_ids": [100_000] }), field);
        }
        "min_tokens" => {
            let all = ids();
            let stopped = on.count(json!({ "stop_token_ids": [all[2]] }));
            assert!(stopped < 6 && on.count(json!({ "stop_token_ids": [all[2]], "min_tokens": 6 })) >= 6);
            let whole = plain();
            let word = whole.chars().next().expect("a text").to_string();
            assert_eq!(on.text(json!({ "stop": [word] })), "");
            let later = on.text(json!({ "stop": [word], "min_tokens": 10 }));
            assert!(!later.is_empty() && whole.starts_with(&later), "{whole:?} {later:?}");
        }
        "ignore_eos" => {
            let end = on.tokenizer.eos_id().expect("there");
            let bias = json!({ end.to_string(): 100 });
            assert_eq!(on.count(json!({ "logit_bias": bias, "ignore_eos": false })), 0);
            assert_eq!(on.count(json!({ "logit_bias": bias, "ignore_eos": true })), 12);
        }
        "skip_special_tokens" => {
            let end = on.tokenizer.eos_id().expect("there");
            let bias = json!({ end.to_string(): 100 });
            let name = on.tokenizer.token(end).expect("there");
            assert_eq!(on.text(json!({ "logit_bias": bias })), "");
            assert_eq!(on.text(json!({ "logit_bias": bias, "skip_special_tokens": false })), name.repeat(12));
        }
        _ => return shapes(on, field),
    }
    true
}

/// [`works`] for fields of prompts, of the output format, and of details in the response.
fn shapes(on: &Asked, field: &str) -> bool {
    match field {
        "logprobs" | "top_logprobs" | "return_tokens_as_token_ids" => {
            assert_eq!(on.tokenizer.decode(&on.ids()).expect("decodes"), on.text(json!({})));
            if on.is_chat() {
                let told = on.json(json!({ "logprobs": true, "top_logprobs": 2 }));
                assert_eq!(
                    told["choices"][0]["logprobs"]["content"][0]["top_logprobs"].as_array().map(Vec::len),
                    Some(2)
                );
            }
        }
        "stream" | "stream_options" | "stream_options.include_usage" | "stream_options.continuous_usage_stats" => {
            let events = on.events(json!({ "stream": true, "stream_options": { "include_usage": true } }));
            let last = &events[events.len() - 1];
            assert_eq!(last["usage"]["completion_tokens"], 12);
            assert!(events[..events.len() - 1].iter().all(|event| event["usage"].is_null()));
            let events = on.events(json!({ "stream": true, "stream_options": { "continuous_usage_stats": true } }));
            let counts: Vec<u64> =
                events.iter().filter_map(|event| event["usage"]["completion_tokens"].as_u64()).collect();
            assert!(counts.len() == events.len() && counts.is_sorted() && counts.last() == Some(&12), "{counts:?}");
            let plain = on.events(json!({ "stream": true }));
            assert!(plain.iter().all(|event| event.get("usage").is_none()));
        }
        "truncate_prompt_tokens" | "truncation_side" => {
            let long: Vec<i32> = (40..240).collect();
            let body = match (on.is_chat(), on.path) {
                (true, _) => json!({ "messages": [{ "role": "user", "content": "the cat ".repeat(300) }] }),
                (_, "/v1/embeddings") => json!({ "input": long }),
                _ => json!({ "prompt": long }),
            };
            let with = |n: i64, side: &str| {
                let mut body = body.clone();
                body["truncate_prompt_tokens"] = n.into();
                body["truncation_side"] = side.into();
                body
            };
            assert_eq!(on.client.post(on.path, &on.body(body.clone())).status, 400);
            assert_eq!(on.prompt_tokens(with(7, "left")), 7);
            assert_eq!(on.prompt_tokens(with(-1, "right")), 199);
            match on.path {
                "/v1/embeddings" => {
                    assert_eq!(on.vector(with(7, "left")), on.vector(json!({ "input": long[193..] })));
                    assert_eq!(on.vector(with(7, "right")), on.vector(json!({ "input": long[..7] })));
                }
                "/v1/completions" => {
                    assert_eq!(on.text(with(7, "left")), on.text(json!({ "prompt": long[193..] })));
                    assert_eq!(on.text(with(7, "right")), on.text(json!({ "prompt": long[..7] })));
                }
                _ => assert_ne!(on.text(with(7, "left")), on.text(with(7, "right"))),
            }
        }
        "add_special_tokens" => {
            // The tokenizer adds no leading special tokens.
            assert_eq!(on.prompt_tokens(json!({ field: true })), on.prompt_tokens(json!({ field: false })));
        }
        "guided_choice" | "structured_outputs" | "structured_outputs.choice" => {
            let list = json!(["red", "green"]);
            let body = if field == "guided_choice" {
                json!({ field: list })
            } else {
                json!({ "structured_outputs": { "choice": list } })
            };
            let found = on.text(body);
            assert!(["red", "green"].contains(&&*found), "{found}");
        }
        "guided_regex"
        | "structured_outputs.regex"
        | "response_format"
        | "response_format.type"
        | "response_format.pattern" => {
            let found = on.text(match field {
                "guided_regex" => json!({ field: "\\d{4}" }),
                "structured_outputs.regex" => json!({ "structured_outputs": { "regex": "\\d{4}" } }),
                _ => json!({ "response_format": { "type": "regex", "pattern": "\\d{4}" } }),
            });
            assert!(found.len() == 4 && found.bytes().all(|byte| byte.is_ascii_digit()), "{found}");
        }
        "guided_json"
        | "structured_outputs.json"
        | "response_format.json_schema"
        | "response_format.json_schema.schema" => {
            let schema = json!({ "type": "object", "properties": { "a": { "enum": [1, 2] } }, "required": ["a"] });
            for schema in [schema.clone(), schema.to_string().into()] {
                let found = on.text(match field {
                    "guided_json" => json!({ field: schema }),
                    "structured_outputs.json" => json!({ "structured_outputs": { "json": schema } }),
                    _ if schema.is_string() => continue,
                    _ => json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": schema, "strict": true } } }),
                });
                let value: Json = serde_json::from_str(&found).unwrap_or_else(|e| panic!("{e}: {found}"));
                assert!(value["a"] == 1 || value["a"] == 2, "{found}");
            }
        }
        "structured_outputs.json_object" => {
            let found = on.text(json!({ "structured_outputs": { "json_object": true }, "max_tokens": 3 }));
            assert!(found.starts_with('{'), "{found}");
        }
        "input" => assert_eq!(
            on.vector(json!({ "input": on.tokenizer.encode("the cat sat").expect("encodes") })),
            on.vector(json!({}))
        ),
        "encoding_format" => assert!(on.json(json!({ field: "base64" }))["data"][0]["embedding"].is_string()),
        "dimensions" => {
            assert_eq!(on.vector(json!({ "dimensions": 32 })), on.vector(json!({})));
            on.refused(json!({ "dimensions": 16 }), field);
        }
        _ => return false,
    }
    true
}

/// A value that is invalid for the field with this name.
fn strange(field: &str) -> Json {
    let value = json!([[{ "strange": true }]]);
    field.split('.').rev().fold(value, |value, part| json!({ part: value }))
}

#[test]
fn every_field_is_implemented_or_refused() {
    let folder = model();
    std::fs::write(folder.0.join("tiny/chat_template.jinja"), TEMPLATE).expect("written");
    let (_running, client) = start(&folder, Choices::default());
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/FIELDS.md")).expect("read");
    let mut counts = [0; 3];
    let mut path = "";
    let mut seen = BTreeSet::new();
    for line in page.lines() {
        if let Some(found) = line.strip_prefix("## ") {
            path = ["/v1/completions", "/v1/chat/completions", "/v1/embeddings"]
                .into_iter()
                .find(|p| *p == found)
                .expect("known");
        }
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(field), Some(how)) =
            (cells.next().and_then(|name| name.strip_prefix('`')?.strip_suffix('`')), cells.next())
        else {
            continue;
        };
        let tokenizer = Tokenizer::from_dir(&folder.0.join("tiny")).expect("reads");
        let on = Asked { client, path, tokenizer };
        let top = field.split('.').next().expect("a name");
        match how {
            "implemented" => {
                assert!(works(&on, field), "nobody says what `{field}` of {path} does");
                // An invalid value is rejected with the field's name; a schema may be any value, and is rejected for its contents.
                let mut body = strange(field);
                if field.starts_with("stream_options") {
                    body["stream"] = true.into();
                }
                if field.starts_with("response_format.") && field != "response_format.type" {
                    body["response_format"]["type"] =
                        if field.ends_with("pattern") { "regex" } else { "json_schema" }.into();
                }
                let answer = client.post(path, &on.body(body));
                assert_eq!(answer.status, 400, "{path} {field}: {}", answer.body);
                let schema = field.ends_with("json") || field.ends_with(".schema");
                assert!(schema || answer.json()["error"]["param"] == top, "{path} {field}: {}", answer.body);
                counts[0] += 1;
            }
            "changes nothing" => {
                let mut body = strange(field);
                if field.starts_with("response_format") {
                    body["response_format"]["type"] = "json_schema".into();
                    body["response_format"]["json_schema"]["schema"] = json!({ "enum": ["x"] });
                }
                let answer = client.post(path, &on.body(body));
                assert_eq!(answer.status, 200, "{path} {field}: {}", answer.body);
                counts[1] += 1;
            }
            _ => {
                on.refused(strange(field), field);
                counts[2] += 1;
            }
        }
        assert!(seen.insert((path, field)), "{field} twice");
    }
    assert!(counts[0] > 90 && counts[1] > 10 && counts[2] > 70, "{counts:?}");
    for path in ["/v1/completions", "/v1/chat/completions", "/v1/embeddings"] {
        let tokenizer = Tokenizer::from_dir(&folder.0.join("tiny")).expect("reads");
        Asked { client, path, tokenizer }.refused(json!({ "no_such_field": null }), "no_such_field");
    }
}
