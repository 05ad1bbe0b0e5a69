//! Load test: many concurrent clients, no errors, no memory growth; prints the throughput.
//!
//! Short by default; `LOOM_LOAD_SECONDS=120 LOOM_LOAD_STREAMS=64 cargo test --release -p tensorloom-models --features serve --test load -- --nocapture`
//! is the run whose figures are in `docs/bench/serve.md`. `LOOM_LOAD_WIDTH` and `LOOM_LOAD_LAYERS` make the model larger.
//!
//! This test has its own process, because it measures the process's memory.

#[allow(dead_code)]
#[path = "server/client.rs"]
mod client;

use client::{Choices, Client, model_of, start};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn given(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Runs one stream; returns the time to its first token, and the number of tokens.
fn stream(client: &Client, prompt: &str, most: u64) -> (Duration, u64) {
    let body = json!({ "model": "tiny", "prompt": prompt, "max_tokens": most, "stream": true, "ignore_eos": true, "seed": most });
    let begun = Instant::now();
    let mut answer: BufReader<_> = client.send("POST", "/v1/completions", "", &body.to_string());
    let (mut first, mut tokens, mut line) = (None, 0, String::new());
    let mut done = false;
    loop {
        line.clear();
        if answer.read_line(&mut line).expect("read") == 0 {
            break;
        }
        assert!(!line.contains("\"error\""), "{line}");
        if line.starts_with("data: [DONE]") {
            done = true;
        } else if line.starts_with("data: ") {
            first.get_or_insert_with(|| begun.elapsed());
            tokens = most;
        }
    }
    assert!(done, "a stream ended early");
    (first.unwrap_or_default(), tokens)
}

/// Runs clients that send requests repeatedly; returns tokens per second, and times to the first token.
fn run(client: Client, streams: u64, time: Duration, most: u64) -> (f64, Vec<Duration>) {
    let (stop, tokens) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let begun = Instant::now();
    let threads: Vec<_> = (0..streams)
        .map(|i| {
            let (stop, tokens) = (stop.clone(), tokens.clone());
            std::thread::spawn(move || {
                let mut firsts = Vec::new();
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    let prompt = format!("the cat {i} sat on the mat {n} and sang");
                    let (first, count) = stream(&client, &prompt, most);
                    firsts.push(first);
                    tokens.fetch_add(count, Ordering::Relaxed);
                    n += 1;
                }
                firsts
            })
        })
        .collect();
    std::thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    let firsts: Vec<Duration> =
        threads.into_iter().flat_map(|thread| thread.join().expect("a stream failed")).collect();
    (tokens.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64(), firsts)
}

#[test]
fn many_streams_for_a_while() {
    let (seconds, streams) = (given("LOOM_LOAD_SECONDS", 2), given("LOOM_LOAD_STREAMS", 12));
    let most = given("LOOM_LOAD_TOKENS", 32);
    let folder = model_of(given("LOOM_LOAD_WIDTH", 32) as i64, given("LOOM_LOAD_LAYERS", 2) as i64);
    let rows = streams as usize;
    let (_running, client) = start(&folder, Choices { rows, queue: 2 * rows, context: 256, ..Choices::default() });
    let (one, _) = run(client, 1, Duration::from_secs((seconds / 6).max(1)), most);
    // Programs are compiled and memory is mapped; from here on it should not grow.
    run(client, streams, Duration::from_millis(500), most);
    // A leak grows in every round; caches and the allocator grow only until they are full.
    let (mut all, mut firsts, mut grown) = (0.0_f64, Vec::new(), Vec::new());
    let mut leaks = true;
    while leaks && grown.len() < 5 {
        let before = client.metric("loom_memory_bytes");
        let (tokens, times) = run(client, streams, Duration::from_secs(seconds), most);
        let after = client.metric("loom_memory_bytes");
        println!("memory {:.1} MB before, {:.1} MB after", before as f64 / 1e6, after as f64 / 1e6);
        all = all.max(tokens);
        firsts.extend(times);
        grown.push(after.saturating_sub(before));
        leaks = after > before + before / 10 + (4 << 20);
    }
    firsts.sort_unstable();
    let at = |share: f64| firsts[((firsts.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("one stream {one:.0} tokens/s; {streams} streams {all:.0} tokens/s, {:.1} times as many", all / one);
    println!("first token: median {:.1} ms, 95 % within {:.1} ms, {} requests", at(0.5), at(0.95), firsts.len());
    client.wait_for("loom_rows_running", 0);
    assert_eq!(client.metric("loom_requests_abandoned_total"), 0);
    assert!(!leaks, "memory grew each time, by {grown:?} bytes");
}
