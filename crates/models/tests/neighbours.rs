//! Tests an ordinary client beside one that is greedy, one with huge requests, one that is slow and one that is malicious: it is
//! never rejected, it waits little longer, and memory is returned.
//!
//! The four others stand for remote machines, but their threads run on the server's cores: on Linux they have the lowest
//! priority, so that the server is measured and not they. The server and the ordinary client have the normal priority.
//!
//! Short by default; `LOOM_NEIGHBOURS_SECONDS=60 cargo test --release -p tensorloom-models --features serve --test neighbours -- --nocapture` is
//! the longer run, which also limits the ordinary client's 95th percentile to three times its
//! value alone, and memory to a fifth more than before.
//!
//! The server is a separate process, whose memory is measured. Clients have their own addresses and their own API keys.

#[allow(dead_code)]
#[path = "server/client.rs"]
mod client;

use client::{Answer, Choices, Client, model_of, read, start};
use serde_json::{Value as Json, json};
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tensorloom_models::serve::ServerLimits;

const CONNECTIONS: usize = 64;
const CONTEXT: usize = 400;

/// The variable that makes this test run as the server, until its standard input is closed.
const SERVER: &str = "LOOM_NEIGHBOURS_SERVER";
const KEYS: [&str; 5] = ["greedy", "huge", "slow", "malicious", "ordinary"];

/// The main function of the server process.
fn serve_until_told(width: i64) {
    let folder = model_of(width, 2);
    let limits = ServerLimits {
        api_keys: KEYS.map(String::from).to_vec(),
        max_connections: CONNECTIONS,
        read_timeout: Duration::from_secs(2),
        ..ServerLimits::default()
    };
    let choices = Choices { rows: 8, queue: 256, context: CONTEXT, limits, ..Choices::default() };
    let (running, _) = start(&folder, choices);
    eprintln!("listens at {}", running.address);
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    running.stop();
}

/// A server in a separate process.
struct Process {
    child: std::process::Child,
    client: Client,
}

impl Process {
    fn new() -> Process {
        let mut command = std::process::Command::new(std::env::current_exe().expect("known"));
        command.args(["--nocapture", "--exact", "an_ordinary_client_is_not_held_up"]).env(SERVER, "1");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("started");
        let lines = std::io::BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut lines = lines.map_while(std::result::Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("listens at ")?.parse().ok()).expect("an address");
        std::thread::spawn(move || lines.for_each(|line| eprintln!("server: {line}")));
        Process { child, client: Client { address } }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A client with its API key.
#[derive(Clone, Copy)]
struct Own {
    client: Client,
    key: &'static str,
    /// The last component of its address.
    host: u8,
}

impl Own {
    /// Connects from the client's own address, which the standard library can't select.
    fn connect(&self) -> std::io::Result<TcpStream> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4()?;
            if cfg!(target_os = "linux") {
                socket.bind(std::net::SocketAddr::from(([127, 0, 0, self.host], 0)))?;
            }
            socket.connect(self.client.address).await?.into_std()
        })?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    fn send(&self, path: &str, body: &str) -> std::io::Result<std::io::BufReader<TcpStream>> {
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: bearer {}\r\nContent-Length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        Ok(std::io::BufReader::new(stream))
    }

    fn post(&self, path: &str, body: &Json) -> Answer {
        read(&mut self.send(path, &body.to_string()).expect("sent"))
    }

    /// Returns the status, if there is one; a connection that was evicted gives none.
    fn try_post(&self, path: &str, body: &Json) -> Option<u16> {
        let mut bytes = Vec::new();
        let _ = self.send(path, &body.to_string()).ok()?.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).split(' ').nth(1)?.parse().ok()
    }
}

/// Sends many requests at once, repeatedly.
fn greedy(own: Own, round: u64) {
    let prompts: Vec<String> = (0..64).map(|i| format!("the cat {i} {round}")).collect();
    let all = json!({ "model": "tiny", "prompt": prompts, "n": 16, "max_tokens": 300, "ignore_eos": true });
    let status = own.try_post("/v1/completions", &all);
    assert!(status.is_none_or(|status| status == 400), "{status:?}");
    let some = json!({ "model": "tiny", "prompt": prompts[..4], "n": 16, "max_tokens": 60, "ignore_eos": true });
    let status = own.try_post("/v1/completions", &some);
    assert!(status.is_none_or(|status| [200, 429].contains(&status)), "{status:?}");
}

/// Sends long prompts, long texts to embed, and invalid bodies.
fn huge(own: Own, round: u64) {
    let long: Vec<u64> = (0..CONTEXT as u64 - 8).map(|i| 30 + (i * 7 + round) % 200).collect();
    let body = match round % 4 {
        0 => json!({ "model": "tiny", "prompt": long, "max_tokens": 4 }),
        1 => json!({ "model": "tiny", "prompt": "the cat sat ".repeat(300_000) }),
        2 => {
            json!({ "model": "tiny", "prompt": "the cat sat ".repeat(60_000), "truncate_prompt_tokens": 100, "max_tokens": 2 })
        }
        _ => {
            let body = json!({ "model": "tiny", "input": vec![long; 16] });
            own.try_post("/v1/embeddings", &body);
            return;
        }
    };
    own.try_post("/v1/completions", &body);
}

/// Opens idle connections, sends requests that never end, requests responses that are never read.
fn slow(own: Own, _round: u64) {
    let idle: Vec<_> = (0..CONNECTIONS + 20).filter_map(|_| own.connect().ok()).collect();
    let mut half = Vec::new();
    for _ in 0..8 {
        if let Ok(mut stream) = own.connect() {
            let _ = stream.write_all(
                format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 900000\r\n\r\n{{", own.key)
                    .as_bytes(),
            );
            half.push(stream);
        }
    }
    let body =
        json!({ "model": "tiny", "prompt": "the cat", "max_tokens": 350, "n": 8, "stream": true, "ignore_eos": true })
            .to_string();
    let unread: Vec<_> = (0..3).filter_map(|_| own.send("/v1/completions", &body).ok()).collect();
    std::thread::sleep(Duration::from_millis(300));
    drop((idle, half, unread));
}

/// Sends requests that are expensive to parse.
fn malicious(own: Own, round: u64) {
    let properties: Json =
        (0..200).map(|i| (format!("p{i} {round}"), json!({ "type": ["string", "number", "null"] }))).collect();
    let bodies = [
        json!({ "guided_json": { "type": "object", "properties": properties } }),
        json!({ "guided_regex": format!("(a|b)*a(a|b){{{}}}", 20 + round % 7) }),
        json!({ "guided_regex": format!("{}x{{{}}}", "(\\w|\\s)?".repeat(400), 1 + round % 900) }),
        json!({ "stop": (0..16).map(|i| format!("{}{i}{round}", "the cat ".repeat(500))).collect::<Vec<_>>(), "max_tokens": 40 }),
        json!({ "prompt": "x".repeat(3_000_000) }),
        json!({ "prompt": vec![65; 700_000] }),
        json!({ "no such field": "y".repeat(1_000_000) }),
        json!({ "stop": ["z".repeat(1_000_000)] }),
    ];
    for more in &bodies {
        let mut body = json!({ "model": "tiny", "prompt": "the cat", "max_tokens": 4 });
        more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
        own.try_post("/v1/completions", &body);
    }
    let chat = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "the cat sat on the mat ".repeat(100_000) }] });
    own.try_post("/v1/chat/completions", &chat);
    let deep = format!("{{\"model\": \"tiny\", \"prompt\": {}", "[".repeat(900_000));
    if let Ok(mut answer) = own.send("/v1/completions", &deep) {
        let _ = answer.read_to_end(&mut Vec::new());
    }
}

/// Sends the requests of an ordinary client one after the other; returns how long each took.
fn ordinary(own: Own, expected: Option<&str>, time: Duration, least: usize) -> (Vec<Duration>, Vec<Duration>, String) {
    let body =
        json!({ "model": "tiny", "prompt": "the mat sat", "max_tokens": 16, "temperature": 0, "ignore_eos": true });
    let (begun, mut times, mut healths, mut text) = (Instant::now(), Vec::new(), Vec::new(), String::new());
    while begun.elapsed() < time || times.len() < least {
        let one = Instant::now();
        let answer = own.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "the ordinary client was refused: {}", answer.body);
        times.push(one.elapsed());
        text = answer.json()["choices"][0]["text"].as_str().expect("a text").to_string();
        assert!(expected.is_none_or(|expected| expected == text), "another text than alone");
        if times.len() % 4 == 0 {
            let one = Instant::now();
            let mut stream = own.connect().expect("connects");
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
            assert_eq!(read(&mut std::io::BufReader::new(stream)).status, 200);
            healths.push(one.elapsed());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    times.sort_unstable();
    healths.sort_unstable();
    (times, healths, text)
}

fn at(times: &[Duration], share: f64) -> f64 {
    times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
}

#[test]
fn an_ordinary_client_is_not_held_up() {
    let given: Option<u64> = std::env::var("LOOM_NEIGHBOURS_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(given.unwrap_or(2));
    let width = if given.is_some() { 256 } else { 32 };
    if std::env::var_os(SERVER).is_some() {
        return serve_until_told(width);
    }
    let server = Process::new();
    let client = server.client;
    let own = |host: u8| Own { client, key: KEYS[host as usize - 2], host };
    every_kind(own(6));
    let (alone, _, text) = ordinary(own(6), None, time / 3, 30);
    let (mut beside, mut healths, mut memory) = (Vec::new(), Vec::new(), vec![at_rest(client)]);
    for _ in 0..2 {
        let (times, own_healths) = attacked(own, &text, time);
        beside.extend(times);
        healths.extend(own_healths);
        memory.push(at_rest(client));
    }
    beside.sort_unstable();
    healths.sort_unstable();

    // The smaller server of the short run uses so little memory that the part that the allocator can't return counts.
    let most = 1.2 * memory[0] as f64 + if given.is_some() { 0.0 } else { 8e6 };
    let grows = memory.iter().any(|bytes| *bytes as f64 > most);
    let memory: Vec<u64> = memory.into_iter().map(|bytes| bytes >> 20).collect();
    println!(
        "alone: median {:.1} ms, 95 % within {:.1} ms, {} requests",
        at(&alone, 0.5),
        at(&alone, 0.95),
        alone.len()
    );
    println!(
        "beside: median {:.1} ms, 95 % within {:.1} ms, {} requests",
        at(&beside, 0.5),
        at(&beside, 0.95),
        beside.len()
    );
    println!("health: median {:.1} ms, at most {:.1} ms", at(&healths, 0.5), at(&healths, 1.0));
    println!("MB of memory before, and after each round: {memory:?}");
    // If other tests run on the same cores, the latency is noisy: the longer run checks it.
    let bound = if given.is_some() { 3.0 * at(&alone, 0.95) } else { 3.0 * at(&alone, 0.95) + 1000.0 };
    assert!(
        at(&beside, 0.95) <= bound,
        "{:.1} ms alone, {:.1} ms beside the others",
        at(&alone, 0.95),
        at(&beside, 0.95)
    );
    assert!(!grows, "memory grew by more than a fifth: {memory:?} MB");
}

/// Sends an ordinary request of every kind, so that memory is compared with that of a server which has served requests before.
fn every_kind(own: Own) {
    let object =
        json!({ "type": "object", "properties": { "name": { "type": "string" }, "age": { "type": "integer" } } });
    for (path, more) in [
        (
            "/v1/completions",
            json!({ "prompt": "the cat sat on the mat ".repeat(15), "max_tokens": 8, "stop": ["mat"] }),
        ),
        (
            "/v1/completions",
            json!({ "prompt": "the cat", "max_tokens": 8, "n": 8, "stream": true, "ignore_eos": true }),
        ),
        ("/v1/completions", json!({ "prompt": "the cat", "max_tokens": 8, "guided_json": object })),
        ("/v1/completions", json!({ "prompt": "the cat", "max_tokens": 8, "guided_regex": "(a|b)+c" })),
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "the cat" }], "max_tokens": 8 })),
        ("/v1/embeddings", json!({ "input": ["the cat", "the mat"] })),
    ] {
        let mut body = json!({ "model": "tiny" });
        more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
        let answer = own.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
}

/// Bytes of memory after all requests are finished and the server was idle for a while.
fn at_rest(client: Client) -> u64 {
    client.wait_for("loom_rows_running", 0);
    client.wait_for("loom_requests_waiting", 0);
    std::thread::sleep(Duration::from_secs(2));
    client.metric("loom_memory_bytes")
}

/// Measures the latency of an ordinary client during an attack, for completions and for `/health`.
fn attacked(own: impl Fn(u8) -> Own, text: &str, time: Duration) -> (Vec<Duration>, Vec<Duration>) {
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new([const { AtomicU64::new(0) }; 4]);
    type Act = fn(Own, u64);
    let acts: [(Act, usize); 4] = [(greedy, 4), (huge, 3), (slow, 1), (malicious, 2)];
    let mut threads = Vec::new();
    for (n, (act, count)) in acts.into_iter().enumerate() {
        for _ in 0..count {
            let (stop, rounds, own) = (stop.clone(), rounds.clone(), own(n as u8 + 2));
            threads.push(std::thread::spawn(move || {
                cpu::lower_priority(19);
                while !stop.load(Ordering::Relaxed) {
                    act(own, rounds[n].fetch_add(1, Ordering::Relaxed));
                }
            }));
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    let (times, healths, _) = ordinary(own(6), Some(text), time, 30);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("a client failed"));
    assert!(rounds.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{rounds:?}");
    (times, healths)
}
