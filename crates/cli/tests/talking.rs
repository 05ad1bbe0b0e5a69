//! Generation, chats and the server from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn good(args: &[&str]) -> Output {
    let output = command(args).output().expect("loom runs");
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    output
}

fn refused(args: &[&str], words: &[&str]) {
    let output = command(args).output().expect("loom runs");
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(words.iter().all(|word| error.contains(word)), "{args:?}: {error}");
}

/// A folder with a model that was trained for a few steps.
struct Trained(PathBuf);

impl Trained {
    fn new(name: &str) -> Trained {
        let out = std::env::temp_dir().join(format!("tensorloom-talking-{}-{name}", std::process::id()));
        let set = "d_model=32,n_layers=1,heads=2,kv_heads=2,d_ff=48";
        let args = ["train", "--model", "llama", "--set", set, "--out", &out.to_string_lossy(), "--steps", "2"];
        let small = [
            "--micro-batch-size",
            "2",
            "--seq-len",
            "16",
            "--synthetic-bytes",
            "20000",
            "--vocab-size",
            "300",
            "--sample-every",
            "9",
        ];
        good(&[&args[..], &small].concat());
        Trained(out)
    }

    fn dir(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for Trained {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn generation_has_many_ways() {
    let trained = Trained::new("ways");
    let dir = &trained.dir()[..];
    let plain = text(&good(&["generate", dir, "--prompt", "Once", "--greedy", "--max-new-tokens", "12"]).stdout);
    // A guesser changes nothing.
    let guessed = good(&[
        "generate",
        dir,
        "--prompt",
        "Once",
        "--greedy",
        "--max-new-tokens",
        "12",
        "--draft-model",
        dir,
        "--num-speculative-tokens",
        "3",
    ]);
    assert_eq!(text(&guessed.stdout), plain);
    assert!(text(&guessed.stderr).contains("draft tokens accepted"), "{}", text(&guessed.stderr));
    let one = text(&good(&["generate", dir, "--prompt", "Once", "--num-beams", "1", "--max-new-tokens", "12"]).stdout);
    assert_eq!(one, plain);
    let formed = text(
        &good(&["generate", dir, "--prompt", "Once", "--regex", " (dog|cat){2}", "--max-new-tokens", "40"]).stdout,
    );
    assert!(["dogdog", "dogcat", "catdog", "catcat"].contains(&formed.trim().trim_start_matches("Once ")), "{formed}");
    let schema = trained.0.join("schema.json");
    std::fs::write(&schema, r#"{"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2}"#)
        .expect("written");
    let file = schema.to_string_lossy().into_owned();
    let formed =
        text(&good(&["generate", dir, "--prompt", "x", "--json-schema-file", &file, "--max-new-tokens", "40"]).stdout);
    assert!(
        serde_json::from_str::<Vec<u8>>(formed.trim().trim_start_matches('x')).is_ok_and(|list| list.len() == 2),
        "{formed}"
    );
    let penalised = [
        "--repetition-penalty",
        "1.5",
        "--presence-penalty",
        "1",
        "--frequency-penalty",
        "0.5",
        "--min-p",
        "0.05",
        "--typical-p",
        "0.9",
    ];
    good(&[&["generate", dir, "--prompt", "Once", "--max-new-tokens", "8"], &penalised[..]].concat());
    // Nothing to continue is a text from its beginning, alone and among others.
    let file = trained.0.join("prompts.jsonl").to_string_lossy().into_owned();
    std::fs::write(&file, "{\"prompt\": \"\"}\n{\"prompt\": \"Once\"}\n").expect("written");
    let all = text(&good(&["generate", dir, "--prompts", &file, "--greedy", "--max-new-tokens", "12"]).stdout);
    let all: Vec<serde_json::Value> = all.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let begun = text(&good(&["generate", dir, "--prompt", "", "--greedy", "--max-new-tokens", "12"]).stdout);
    // A terminal waits for the rest of a character that the last token has only begun; a file tells of it.
    let whole = |t: &str| t.trim_end_matches('\u{fffd}').trim_end().to_string();
    let text_of = |line: &serde_json::Value| line["text"].as_str().map(whole);
    assert_eq!(text_of(&all[0]), Some(whole(&begun)));
    assert_eq!(text_of(&all[1]).map(|t| format!("Once{t}")), Some(whole(&plain)));
    refused(&["generate", dir, "--prompt", "x", "--regex", "("], &["expression"]);
    for option in [
        "--temperature",
        "--top-p",
        "--min-p",
        "--typical-p",
        "--repetition-penalty",
        "--presence-penalty",
        "--frequency-penalty",
    ] {
        refused(&["generate", dir, "--prompt", "x", "--num-beams", "2", option, "0.5"], &["--num-beams"]);
    }
    refused(&["generate", dir, "--prompt", "x", "--num-beams", "2", "--top-k", "5"], &["--num-beams"]);
    let empty = trained.0.join("checkpoints").to_string_lossy().into_owned();
    refused(&["generate", &empty, "--prompt", "x"], &["config.json"]);
    refused(&["generate", dir, "--prompt", "x", "--draft-model", &empty], &["config.json"]);
    refused(&["generate", dir, "--prompt", "x", "--draft-model", "nowhere"], &["nowhere", "not a directory"]);
    refused(&["generate", dir, "--token-ids", "1", "--regex", "a"], &["--prompt"]);
    refused(&["generate", dir, "--prompt", "x", "--out", "y"], &["--prompts"]);
    refused(&["generate", dir, "--prompt", "x", "--module", "nowhere.module"], &["nowhere"]);
}

/// Every command that reads a model reads a GGUF file, and one that was quantised for a text.
#[test]
fn gguf_files_are_models_everywhere() {
    let trained = Trained::new("gguf");
    let dir = &trained.dir()[..];
    let at = |name: &str| trained.0.join(name).to_string_lossy().into_owned();
    let (wide, packed, stories) = (at("wide.gguf"), at("packed.gguf"), at("data/stories.txt"));
    good(&["quantize", dir, "--dtype", "f32", "--out", &wide]);
    let fitted = ["--calibration-data", &stories, "--calibration-tokens", "600"];
    good(&[&["quantize", dir, "--format", "q4", "--out", &packed], &fitted[..]].concat());
    let plain = text(&good(&["generate", dir, "--prompt", "Once", "--greedy", "--max-new-tokens", "12"]).stdout);
    let again = text(&good(&["generate", &wide, "--prompt", "Once", "--greedy", "--max-new-tokens", "12"]).stdout);
    assert_eq!(plain, again);
    for file in [&wide, &packed] {
        good(&["generate", file, "--token-ids", "1,2,3", "--max-new-tokens", "3", "--dtype", "bf16"]);
        good(&["logits", file, "--token-ids", "1,2,3", "--out", &at("y.safetensors")]);
        good(&["perplexity", file, "--formats", "f32", "--max-tokens", "64", "--seq-len", "16"]);
        good(&["quantize", file, "--out", &at("again")]);
        refused(&["quantize", file, "--out", &at("again")], &["already contains a model", "--out"]);
        std::fs::remove_dir_all(at("again")).expect("removed");
    }
    refused(&["generate", &wide, "--prompt", "x", "--module", "crates/lang/std/models/llama.module"], &["GGUF"]);
    refused(&["quantize", dir, "--out", &packed, "--calibration-data", &stories], &["--format"]);
    refused(&["quantize", dir, "--format", "q4", "--out", &packed, "--calibration-data", "nowhere"], &["nowhere"]);
}

#[test]
fn prompts_of_a_file_are_continued_in_order() {
    let trained = Trained::new("file");
    let dir = &trained.dir()[..];
    let (prompts, out) = (trained.0.join("prompts.jsonl"), trained.0.join("texts.jsonl"));
    let lines = [
        "{\"prompt\": \"Once\"}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}",
        "{\"prompt\": \"The cat\"}",
    ];
    std::fs::write(&prompts, lines.join("\n")).expect("written");
    let (from, to) = (prompts.to_string_lossy().into_owned(), out.to_string_lossy().into_owned());
    good(&["generate", dir, "--prompts", &from, "--out", &to, "--greedy", "--max-new-tokens", "9", "--max-batch", "2"]);
    let found = std::fs::read_to_string(&out).expect("written");
    let texts: Vec<serde_json::Value> = found.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(texts.iter().map(|t| t["index"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    let alone = text(&good(&["generate", dir, "--prompt", "The cat", "--greedy", "--max-new-tokens", "9"]).stdout);
    assert_eq!(format!("The cat{}", texts[2]["text"].as_str().expect("text")), alone.trim_end_matches('\n'));
    std::fs::write(&prompts, "{\"x\": 1}").expect("written");
    refused(&["generate", dir, "--prompts", &from], &["line 1", "prompt"]);
}

#[test]
fn a_chat_goes_on_until_its_end() {
    let trained = Trained::new("chat");
    let mut child =
        command(&["chat", &trained.dir(), "--max-new-tokens", "6", "--greedy", "--system-prompt", "Be brief."])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("loom runs");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"Hello\n\n\xff\xfe\nAnd you?\n/new\n/halp\nHello\n/quit\nnobody hears\n")
        .expect("written");
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("plain one"));
    assert!(text(&output.stderr).contains("not UTF-8"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no command `/halp`: use /new"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).lines().count() >= 3, "{}", text(&output.stdout));
}

#[test]
fn a_server_starts_answers_and_stops() {
    let trained = Trained::new("server");
    let mut child = command(&["serve", &trained.dir(), "--port", "0", "--max-batch", "2", "--max-seq-len", "64"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("loom runs");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("a line");
    let address = first.trim().rsplit("http://").next().expect("an address").to_string();
    let mut stream = std::net::TcpStream::connect(&address).unwrap_or_else(|e| panic!("{e}: {first}"));
    stream.write_all(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"object\":\"model\""), "{answer}");
    let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(stopped.success());
    assert!(child.wait().expect("ends").success());
    refused(&["serve", "nowhere"], &["nowhere", "directory"]);
    refused(&["serve", &trained.dir(), "--api-key-env", "NO_SUCH_VARIABLE_HERE"], &["NO_SUCH_VARIABLE_HERE"]);
    refused(&["serve", &trained.dir(), "--host", "256.1.1.1"], &["--host"]);
}
