//! Tests of the server's behaviour as clients see it.

use crate::client::{Choices, Client, model, read, start};
use cpu::Cpu;
use ir::DType;
use serde_json::{Value as Json, json};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tensorloom_models::serve::ServerLimits;
use tensorloom_models::{Adapter, Model, Tokenizer};

const PROMPTS: [&str; 6] =
    ["the cat", "Zoë", "the mat sat on the cat and sang", "{\"a\": [1", "x", "the cat sat on the mat"];

#[test]
fn models_are_listed_and_found() {
    let folder = model();
    let (_running, client) = start(&folder, Choices { adapter: true, ..Choices::default() });
    let list = client.get("/v1/models").json();
    let names: Vec<&str> = list["data"].as_array().expect("a list").iter().filter_map(|m| m["id"].as_str()).collect();
    assert_eq!(names, ["tiny", "tuned"]);
    assert_eq!(client.get("/v1/models/tiny").json()["id"], "tiny");
    assert_eq!(client.get("/v1/models/none").status, 404);
    let other = client.post("/v1/models", &json!({}));
    assert!(other.status == 405 && other.json()["error"]["message"].is_string(), "{}", other.body);
    assert_eq!(client.get("/health").status, 200);
    let page = client.get("/");
    assert!(page.status == 200 && page.body.contains("/v1/chat/completions"));
}

/// A sequence has the text that the model generates, alone or batched, as a whole or streamed.
#[test]
fn greedy_text_is_the_same_alone_batched_and_streamed() {
    let folder = model();
    let (_running, client) = start(&folder, Choices::default());
    let alone: Vec<String> = PROMPTS.iter().map(|prompt| client.complete(prompt, 40)).collect();
    let dir = folder.0.join("tiny");
    let (model, tokenizer) = (Model::load(&dir, DType::F32).expect("loads"), Tokenizer::from_dir(&dir).expect("reads"));
    for (prompt, text) in PROMPTS.iter().zip(&alone) {
        let plain = model.generate_greedy(&tokenizer.encode(prompt).expect("encodes"), 40, &Cpu::new(2)).expect("runs");
        assert_eq!(*text, tokenizer.decode(&plain.ids).expect("decodes"), "{prompt}");
    }
    // More clients than rows, starting at different times.
    let threads: Vec<_> = (0..14)
        .map(|i| {
            let expected = alone[i % PROMPTS.len()].clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(7 * i as u64));
                let prompt = PROMPTS[i % PROMPTS.len()];
                if i % 2 == 0 {
                    assert_eq!(client.complete(prompt, 40), expected, "{prompt}");
                    return;
                }
                let body = json!({ "model": "tiny", "prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": true, "stream": true });
                let events = client.events("/v1/completions", &body);
                let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
                assert_eq!(text, expected, "{prompt}");
                assert_eq!(events[events.len() - 1]["choices"][0]["finish_reason"], "length");
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a client failed"));
    client.wait_for("loom_rows_running", 0);
    assert!(client.metric("loom_tokens_new_total") >= 20 * 40);
}

#[test]
fn seeds_choices_and_penalties() {
    let folder = model();
    let (_running, client) = start(&folder, Choices::default());
    let ask = |further: Json| {
        let mut body = json!({ "model": "tiny", "prompt": "the cat", "max_tokens": 20, "seed": 5, "ignore_eos": true });
        body.as_object_mut().expect("object").extend(further.as_object().expect("object").clone());
        let answer = client.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let choices = answer.json()["choices"].as_array().expect("a list").clone();
        let texts: Vec<String> = choices.iter().map(|c| c["text"].as_str().expect("text").to_string()).collect();
        assert_eq!(answer.json()["usage"]["completion_tokens"], 20 * texts.len());
        texts
    };
    let first = ask(json!({}));
    assert_eq!(first, ask(json!({})));
    assert_ne!(first, ask(json!({ "seed": 6 })));
    let several = ask(json!({ "n": 3 }));
    assert!(several.len() == 3 && several[0] == first[0] && several[1] != several[0]);
    assert_eq!(ask(json!({ "prompt": ["the cat", "the mat"] })).len(), 2);
    // `top_k` leaves only one token, so a penalty can't prevent that it is repeated.
    assert_eq!(ask(json!({ "top_k": 1 })), ask(json!({ "temperature": 0 })));
    assert_eq!(ask(json!({ "top_p": 0 })), ask(json!({ "temperature": 0 })));
    assert_eq!(ask(json!({ "min_p": 1 })), ask(json!({ "temperature": 0 })));
    let ids: Vec<i32> = vec![65];
    let biased = ask(json!({ "prompt": ids, "temperature": 0, "logit_bias": { "66": 100 } }));
    let tokenizer = Tokenizer::from_dir(&folder.0.join("tiny")).expect("reads");
    assert_eq!(biased[0], tokenizer.decode(&[66; 20]).expect("decodes"));
    let penalised =
        ask(json!({ "prompt": ids, "temperature": 0, "logit_bias": { "66": 100 }, "repetition_penalty": 100 }));
    assert_ne!(biased, penalised);
}

#[test]
fn stop_words_end_a_text_and_logprobs_are_told() {
    let folder = model();
    let (_running, client) = start(&folder, Choices::default());
    let whole = client.complete("the cat", 30);
    let word: String = whole.chars().skip(9).take(3).collect();
    let before = &whole[..whole.find(&word).expect("there")];
    let mut body = json!({ "model": "tiny", "prompt": "the cat", "max_tokens": 30, "temperature": 0, "stop": [word], "ignore_eos": true });
    let answer = client.post("/v1/completions", &body).json();
    assert_eq!(
        (answer["choices"][0]["text"].as_str(), &answer["choices"][0]["finish_reason"]),
        (Some(before), &json!("stop"))
    );
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    let events = client.events("/v1/completions", &body);
    let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, before);
    let usage = &events[events.len() - 1];
    assert!(
        usage["choices"].as_array().is_some_and(Vec::is_empty) && usage["usage"]["prompt_tokens"].as_u64() > Some(0),
        "{usage}"
    );

    // A client that has all its tokens does not count as disconnected.
    client.wait_for("loom_rows_running", 0);
    assert_eq!(client.metric("loom_requests_abandoned_total"), 0);

    let ask = json!({ "model": "tiny", "prompt": "the cat", "max_tokens": 5, "temperature": 0, "logprobs": 3, "ignore_eos": true });
    let told = client.post("/v1/completions", &ask).json()["choices"][0]["logprobs"].clone();
    assert_eq!(told["tokens"].as_array().map(Vec::len), Some(5), "{told}");
    for (own, top) in
        told["token_logprobs"].as_array().expect("list").iter().zip(told["top_logprobs"].as_array().expect("list"))
    {
        // Greedy decoding: the token is the most probable one.
        let best = top.as_object().expect("map").values().filter_map(Json::as_f64).fold(f64::MIN, f64::max);
        assert!(own.as_f64() == Some(best) && best < 0.0, "{told}");
    }
    let chat = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 4, "logprobs": true, "top_logprobs": 2, "ignore_eos": true });
    let told = client.post("/v1/chat/completions", &chat).json()["choices"][0]["logprobs"]["content"].clone();
    assert_eq!(told.as_array().map(Vec::len), Some(4), "{told}");
    assert_eq!(told[0]["top_logprobs"].as_array().map(Vec::len), Some(2));
}

/// With `echo`, the prompt comes before its answer, from text or token IDs, as a whole or streamed.
#[test]
fn answers_begin_with_their_prompt_if_asked_to() {
    let folder = model();
    let (_running, client) = start(&folder, Choices::default());
    let tokenizer = Tokenizer::from_dir(&folder.0.join("tiny")).expect("reads");
    let alone = client.complete("the cat", 12);
    let ids = tokenizer.encode("the cat").expect("encodes");
    for prompt in [json!("the cat"), json!(ids)] {
        let mut body = json!({ "model": "tiny", "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": true, "echo": true });
        let answer = client.post("/v1/completions", &body).json();
        assert_eq!(answer["choices"][0]["text"].as_str(), Some(&format!("the cat{alone}")[..]));
        assert_eq!(answer["usage"]["completion_tokens"], 12);
        body["stream"] = true.into();
        let events = client.events("/v1/completions", &body);
        let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
        assert_eq!(text, format!("the cat{alone}"));
        body["logprobs"] = 1.into();
        assert_eq!(client.post("/v1/completions", &body).status, 400);
    }
    let several = json!({ "model": "tiny", "prompt": ["x", "Zoë"], "max_tokens": 2, "n": 2, "echo": true });
    let answer = client.post("/v1/completions", &several).json();
    for (i, before) in ["x", "x", "Zoë", "Zoë"].iter().enumerate() {
        assert!(answer["choices"][i]["text"].as_str().is_some_and(|text| text.starts_with(before)), "{answer}");
    }
    // In a chat the last message is echoed, if it is one of the assistant.
    for (role, before) in [("assistant", "hi"), ("user", "")] {
        let mut chat = json!({ "model": "tiny", "messages": [{ "role": role, "content": "hi" }], "max_tokens": 3, "temperature": 0, "ignore_eos": true });
        let plain = client.post("/v1/chat/completions", &chat).json()["choices"][0]["message"]["content"].clone();
        chat["echo"] = true.into();
        let echoed = client.post("/v1/chat/completions", &chat).json()["choices"][0]["message"]["content"].clone();
        assert_eq!(echoed.as_str(), plain.as_str().map(|text| format!("{before}{text}")).as_deref());
    }
}

#[test]
fn chats_go_through_the_template() {
    let folder = model();
    let template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    std::fs::write(folder.0.join("tiny/chat_template.jinja"), template).expect("written");
    let (_running, client) = start(&folder, Choices::default());
    let messages = json!([{ "role": "system", "content": "be" }, { "role": "user", "content": [{ "type": "text", "text": "hi" }] }]);
    let body = json!({ "model": "tiny", "messages": messages, "max_completion_tokens": 12, "temperature": 0, "ignore_eos": true });
    let answer = client.post("/v1/chat/completions", &body).json();
    let text = answer["choices"][0]["message"]["content"].as_str().expect("text").to_string();
    assert_eq!(text, client.complete("<system>be<user>hi<assistant>", 12));
    assert_eq!(answer["object"], "chat.completion");
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let events = client.events("/v1/chat/completions", &streamed);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let pieces: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(pieces, text);
}

#[test]
fn output_can_be_held_to_a_form() {
    let folder = model();
    let (_running, client) = start(&folder, Choices::default());
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer", "minimum": 0, "maximum": 9 }, "b": { "enum": ["x", "y"] } }, "required": ["a", "b"] });
    for seed in 0..4 {
        let format = json!({ "type": "json_schema", "json_schema": { "name": "t", "schema": schema } });
        let body = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "hi" }], "seed": seed, "max_tokens": 60, "response_format": format });
        let answer = client.post("/v1/chat/completions", &body).json();
        let text = answer["choices"][0]["message"]["content"].as_str().expect("text").to_string();
        let value: Json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(value["a"].is_u64() && value["b"].is_string(), "{text}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
    let body = json!({ "model": "tiny", "prompt": "the", "max_tokens": 60, "guided_regex": "(cat|mat){3}" });
    let text = client.post("/v1/completions", &body).json()["choices"][0]["text"].as_str().expect("text").to_string();
    assert!(text.len() == 9 && text.as_bytes().chunks(3).all(|three| three == b"cat" || three == b"mat"), "{text}");
    let body = json!({ "model": "tiny", "prompt": "the", "guided_regex": "(" });
    assert_eq!(client.post("/v1/completions", &body).status, 400);
}

#[test]
fn embeddings_are_vectors_of_length_one() {
    let folder = model();
    let (_running, client) = start(&folder, Choices::default());
    let ask = |input: Json, format: &str| {
        let answer =
            client.post("/v1/embeddings", &json!({ "model": "tiny", "input": input, "encoding_format": format }));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let found = ask(json!(["the cat", "the mat"]), "float");
    let vector = |i: usize| -> Vec<f64> {
        found["data"][i]["embedding"].as_array().expect("list").iter().filter_map(Json::as_f64).collect()
    };
    let length: f64 = vector(0).iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-5 && vector(0).len() == 32 && vector(0) != vector(1));
    let coded = ask(json!("the cat"), "base64")["data"][0]["embedding"].as_str().expect("text").len();
    assert_eq!(coded, (32 * 4usize).div_ceil(3) * 4);
}

#[test]
fn adapters_are_served_beside_their_model() {
    let folder = model();
    let (_running, client) = start(&folder, Choices { adapter: true, ..Choices::default() });
    let dir = folder.0.join("tiny");
    let tokenizer = Tokenizer::from_dir(&dir).expect("reads");
    let mut merged = Model::load(&dir, DType::F32).expect("loads");
    let adapter = Adapter::read(&folder.0.join("tuned"), &merged).expect("reads");
    merged.merge(&adapter).expect("fits");
    let threads: Vec<_> = (0..8)
        .map(|i| {
            std::thread::spawn(move || {
                let name = if i % 2 == 0 { "tiny" } else { "tuned" };
                let body = json!({ "model": name, "prompt": "the cat", "max_tokens": 24, "temperature": 0, "ignore_eos": true });
                client.post("/v1/completions", &body).json()["choices"][0]["text"].as_str().expect("text").to_string()
            })
        })
        .collect();
    let texts: Vec<String> = threads.into_iter().map(|thread| thread.join().expect("a client failed")).collect();
    let plain = merged.generate_greedy(&tokenizer.encode("the cat").expect("encodes"), 24, &Cpu::new(2)).expect("runs");
    assert_eq!(texts[1], tokenizer.decode(&plain.ids).expect("decodes"));
    assert!(texts[0] != texts[1] && (2..8).all(|i| texts[i] == texts[i % 2]));
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let folder = model();
    let limits = ServerLimits { max_body_bytes: 4096, read_timeout: Duration::from_secs(2), ..ServerLimits::default() };
    let (_running, client) = start(&folder, Choices { limits, ..Choices::default() });
    let raw = |body: &str| read(&mut client.send("POST", "/v1/completions", "", body));
    let long = vec![5; 300];
    let cases = [
        (raw("{"), 400),
        (raw(""), 400),
        (raw("[]"), 400),
        (raw("\u{0}\u{1}"), 400),
        (raw(&"[".repeat(3000)), 400),
        (raw(&"x".repeat(5000)), 413),
        (raw("{\"model\": \"tiny\"}"), 400),
        (raw("{\"model\": \"other\", \"prompt\": \"x\"}"), 404),
        (raw(&json!({ "model": "tiny", "prompt": long }).to_string()), 400),
        (raw("{\"model\": \"tiny\", \"prompt\": [300]}"), 400),
        (raw("{\"model\": \"tiny\", \"prompt\": [-1]}"), 400),
        (raw("{\"model\": \"tiny\", \"prompt\": \"x\", \"temperature\": 1e400}"), 400),
        (raw("{\"model\": \"tiny\", \"prompt\": \"x\", \"max_tokens\": -3}"), 400),
        (client.get("/v1/completions"), 405),
        (client.get("/nothing"), 404),
        (client.post("/v1/chat/completions", &json!({ "model": "tiny", "messages": [] })), 400),
        (client.post("/v1/embeddings", &json!({ "model": "tiny", "input": [] })), 400),
    ];
    for (i, (answer, status)) in cases.iter().enumerate() {
        assert_eq!(answer.status, *status, "{i}: {}", answer.body);
        let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_string();
        assert!(!message.is_empty(), "{i}: {}", answer.body);
    }
    // A body with too large a declared length is not read; invalid HTTP is rejected.
    let mut stream = client.connect();
    stream
        .write_all(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        .expect("sent");
    assert_eq!(read(&mut std::io::BufReader::new(stream)).status, 413);
    let mut stream = client.connect();
    stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").expect("sent");
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 400"));
    assert_eq!(client.complete("the cat", 3).is_empty(), false);
}

#[test]
fn slow_clients_are_cut_off() {
    let folder = model();
    let limits = ServerLimits { read_timeout: Duration::from_millis(400), ..ServerLimits::default() };
    let (_running, client) = start(&folder, Choices { limits, ..Choices::default() });
    // A body that is never sent.
    let mut stream = client.connect();
    stream.write_all(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{").expect("sent");
    let begun = Instant::now();
    assert_eq!(read(&mut std::io::BufReader::new(stream)).status, 408);
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Headers that never end.
    let mut stream = client.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost:").expect("sent");
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    assert!(begun.elapsed() < Duration::from_secs(40));
    assert!(client.metric("loom_clients_slow_total") >= 1);
}

fn endless(client: &Client, most: usize) -> std::io::BufReader<std::net::TcpStream> {
    let body = json!({ "model": "tiny", "prompt": "the cat", "max_tokens": most, "stream": true, "ignore_eos": true });
    let mut stream = client.send("POST", "/v1/completions", "", &body.to_string());
    let mut some = [0; 200];
    stream.read_exact(&mut some).expect("it begins");
    stream
}

#[test]
fn a_client_that_vanishes_frees_its_row() {
    let folder = model();
    let (_running, client) = start(&folder, Choices { rows: 2, context: 512, ..Choices::default() });
    let (first, second) = (endless(&client, 500), endless(&client, 500));
    let new = client.metric("loom_tokens_new_total");
    drop(first);
    drop(second);
    client.wait_for("loom_rows_running", 0);
    assert!(client.metric("loom_tokens_new_total") < new + 900);
    // Without streaming.
    let body = json!({ "model": "tiny", "prompt": "the cat", "max_tokens": 500, "ignore_eos": true }).to_string();
    let gone = client.send("POST", "/v1/completions", "", &body);
    std::thread::sleep(Duration::from_millis(30));
    drop(gone);
    client.wait_for("loom_rows_running", 0);
    client.wait_for("loom_requests_waiting", 0);
    assert!(!client.complete("the cat", 3).is_empty());
}

#[test]
fn a_full_queue_says_so() {
    let folder = model();
    let (_running, client) = start(&folder, Choices { rows: 1, queue: 1, context: 512, ..Choices::default() });
    let busy = endless(&client, 500);
    let threads: Vec<_> = (0..12)
        .map(|_| {
            std::thread::spawn(move || {
                let answer =
                    client.post("/v1/completions", &json!({ "model": "tiny", "prompt": "x", "max_tokens": 100 }));
                let later = answer.header("retry-after").is_some();
                assert!(answer.status == 200 || answer.status == 429 && later, "{} {}", answer.status, answer.body);
                answer.status
            })
        })
        .collect();
    let statuses: Vec<u16> = threads.into_iter().map(|thread| thread.join().expect("a client failed")).collect();
    assert!(statuses.contains(&429), "{statuses:?}");
    drop(busy);
    client.wait_for("loom_rows_running", 0);
}

#[test]
fn stopping_lets_requests_end() {
    let folder = model();
    let (running, client) = start(&folder, Choices { context: 512, ..Choices::default() });
    let mut busy = endless(&client, 300);
    let reader = std::thread::spawn(move || {
        let mut rest = String::new();
        busy.read_to_string(&mut rest).expect("read");
        rest
    });
    running.stop();
    let rest = reader.join().expect("read");
    assert!(rest.contains("data: [DONE]"), "{}", &rest[rest.len().saturating_sub(300)..]);
    assert!(std::net::TcpStream::connect(client.address).is_err());
}

/// Requests that exceed the shutdown timeout receive an error.
#[test]
fn the_grace_ends() {
    let folder = model();
    let limits = ServerLimits { shutdown_timeout: Duration::ZERO, ..ServerLimits::default() };
    let (running, client) = start(&folder, Choices { rows: 1, context: 512, limits, ..Choices::default() });
    let busy = endless(&client, 500);
    let waiting = std::thread::spawn(move || {
        let mut rest = Vec::new();
        let mut busy = busy;
        let _ = busy.read_to_end(&mut rest);
    });
    let begun = Instant::now();
    running.stop();
    waiting.join().expect("read");
    assert!(begun.elapsed() < Duration::from_secs(8));
}

#[test]
fn a_key_can_be_asked_for() {
    let folder = model();
    let limits = ServerLimits { api_keys: vec!["secret".into()], key_for_metrics: true, ..ServerLimits::default() };
    let (_running, client) = start(&folder, Choices { limits, ..Choices::default() });
    let ask = |header: &str| read(&mut client.send("GET", "/v1/models", header, "")).status;
    assert_eq!(ask(""), 401);
    assert_eq!(ask("Authorization: Bearer secre\r\n"), 401);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        assert_eq!(ask(&format!("Authorization: {scheme} secret\r\n")), 200, "{scheme}");
    }
    assert_eq!(client.get("/metrics").status, 401);
    assert_eq!(read(&mut client.send("GET", "/metrics", "authorization: bearer secret\r\n", "")).status, 200);
}

/// Prefixes that were computed before are reused, and results are unchanged.
#[test]
fn shared_beginnings_are_reused() {
    let folder = model();
    let (_running, client) = start(&folder, Choices::default());
    let long = "the cat sat on the mat and the cat sang on the mat while the mat sat on the cat ".repeat(3);
    let first = client.complete(&long, 20);
    assert_eq!(client.metric("loom_tokens_reused_total"), 0);
    assert_eq!(client.complete(&long, 20), first);
    assert!(client.metric("loom_tokens_reused_total") > 0);
}

/// One client has all rows, and a long prompt waits: another client comes in between, and both get the same results as alone.
#[test]
fn what_makes_place_goes_on_with_the_same_bits() {
    let folder = model();
    let limits = ServerLimits { api_keys: vec!["many".into(), "few".into()], ..ServerLimits::default() };
    let (_running, client) = start(&folder, Choices { rows: 2, context: 512, limits, ..Choices::default() });
    let post = move |key: &str, path: &str, body: &Json| {
        let headers = format!("Authorization: Bearer {key}\r\n");
        let answer = read(&mut client.send("POST", path, &headers, &body.to_string()));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let long: Vec<i32> = (0..480).map(|i| 30 + i * 7 % 200).collect();
    let several = json!({ "model": "tiny", "prompt": ["the cat", "the mat", "Zoë", "x", long], "max_tokens": 400, "temperature": 0, "ignore_eos": true });
    let texts = json!({ "model": "tiny", "input": [long, long[..300], long[..470]] });
    let short =
        json!({ "model": "tiny", "prompt": "the cat sat", "max_tokens": 5, "temperature": 0, "ignore_eos": true });
    let alone = [
        post("many", "/v1/completions", &several)["choices"].clone(),
        post("many", "/v1/embeddings", &texts)["data"].clone(),
        post("few", "/v1/completions", &short)["choices"].clone(),
    ];
    let done = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let busy: Vec<_> = [(several, "/v1/completions", "choices", 0), (texts, "/v1/embeddings", "data", 1)]
        .into_iter()
        .map(|(body, path, what, n)| {
            let (expected, done) = (alone[n].clone(), done.clone());
            std::thread::spawn(move || {
                for _ in 0..3 {
                    assert_eq!(post("many", path, &body)[what], expected);
                }
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            })
        })
        .collect();
    client.wait_for("loom_rows_running", 2);
    let mut between = 0;
    while done.load(std::sync::atomic::Ordering::Relaxed) < 2 {
        assert_eq!(post("few", "/v1/completions", &short)["choices"], alone[2]);
        between += 1;
    }
    busy.into_iter().for_each(|thread| thread.join().expect("a client failed"));
    assert!(between >= 5, "{between} answers came in between");
}

/// The requests of one client can't fill the queue, and a request larger than the queue is rejected.
#[test]
fn one_client_does_not_fill_the_queue() {
    let folder = model();
    let limits = ServerLimits { api_keys: vec!["greedy".into(), "other".into()], ..ServerLimits::default() };
    let (_running, client) = start(&folder, Choices { rows: 1, queue: 64, context: 512, limits, ..Choices::default() });
    let status = |key: &str, n: usize, prompts: usize| {
        let body = json!({ "model": "tiny", "prompt": vec!["x"; prompts], "n": n, "max_tokens": 1 });
        read(&mut client.send(
            "POST",
            "/v1/completions",
            &format!("Authorization: Bearer {key}\r\n"),
            &body.to_string(),
        ))
    };
    let never = status("greedy", 16, 64);
    assert!(never.status == 400 && never.body.contains("1024") && never.body.contains("32"), "{}", never.body);
    let body = json!({ "model": "tiny", "prompt": vec!["x"; 30], "max_tokens": 300, "ignore_eos": true }).to_string();
    let waiting = client.send("POST", "/v1/completions", "Authorization: Bearer greedy\r\n", &body);
    client.wait_for("loom_rows_running", 1);
    assert_eq!(status("greedy", 4, 4).status, 429);
    assert_eq!(status("other", 1, 4).status, 200);
    drop(waiting);
    client.wait_for("loom_rows_running", 0);
    client.wait_for("loom_requests_waiting", 0);
}

/// Idle connections don't keep others out.
#[test]
fn idle_connections_make_place() {
    let folder = model();
    let limits = ServerLimits { max_connections: 16, read_timeout: Duration::from_secs(60), ..ServerLimits::default() };
    let (_running, client) = start(&folder, Choices { limits, ..Choices::default() });
    let idle: Vec<_> = (0..16).map(|_| client.connect()).collect();
    let begun = Instant::now();
    for _ in 0..5 {
        assert_eq!(client.get("/health").status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(idle);
}
