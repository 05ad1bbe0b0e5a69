//! A small HTTP client, and a small model for it.

use cpu::Cpu;
use ir::DType;
use lang::consteval::ConstValue;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tensorloom_models::serve::{ModelRegistry, RunningServer, ServeEngineOptions, Server, ServerLimits};
use tensorloom_models::{Adapter, Architecture, BatchOptions, LoraOptions, Model, SplitMix64, Tokenizer};

/// A directory that is removed when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates directories of a small random model called `tiny`, and of an adapter of it called `tuned`.
pub(crate) fn model() -> Folder {
    model_of(32, 2)
}

/// [`model`] with another width and depth.
pub(crate) fn model_of(width: i64, layers: i64) -> Folder {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let root = std::env::temp_dir().join(format!("tensorloom-serve-{}-{n}", std::process::id()));
    let dir = root.join("tiny");
    std::fs::create_dir_all(&dir).expect("made");
    let text = "the cat sat on the mat — {\"a\": [1, 2]} and Zoë sang: user assistant\n";
    let tokenizer = Tokenizer::train([text].into_iter().cycle().take(30), 300).expect("trains");
    let sizes = [
        ("vocab_size", 300),
        ("d_model", width),
        ("n_layers", layers),
        ("heads", 4),
        ("kv_heads", 2),
        ("d_ff", width * 3 / 2),
        ("max_seq", 512),
    ];
    let given = sizes.iter().map(|(k, v)| (k.to_string(), ConstValue::int(*v))).collect();
    let architecture = Architecture::from_library("llama", given).unwrap_or_else(|e| panic!("{e}"));
    let model = Model::new_random(architecture, DType::F32, 2).unwrap_or_else(|e| panic!("{e}"));
    model.export(&dir).unwrap_or_else(|e| panic!("{e}"));
    tokenizer.write(&dir).expect("written");
    let options = LoraOptions::parse("rank=4,alpha=32,targets=q,v,up").expect("valid");
    let mut adapter = Adapter::new_untrained(&model, &dir.to_string_lossy(), &options, 3).expect("fits");
    let mut random = SplitMix64::new(8, 9);
    adapter.fill(|_| (random.uniform() - 0.5) as f32);
    adapter.write(&root.join("tuned")).expect("written");
    Folder(root)
}

/// The options of a test server.
pub(crate) struct Choices {
    pub(crate) rows: usize,
    pub(crate) queue: usize,
    pub(crate) context: usize,
    pub(crate) limits: ServerLimits,
    pub(crate) adapter: bool,
}

impl Default for Choices {
    fn default() -> Choices {
        let limits = ServerLimits {
            read_timeout: Duration::from_secs(2),
            shutdown_timeout: Duration::from_secs(10),
            ..ServerLimits::default()
        };
        Choices { rows: 4, queue: 64, context: 200, limits, adapter: false }
    }
}

pub(crate) fn start(folder: &Folder, choices: Choices) -> (RunningServer, Client) {
    let mut dirs = vec![folder.0.join("tiny")];
    dirs.extend(choices.adapter.then(|| folder.0.join("tuned")));
    let sizes = BatchOptions {
        max_batch: choices.rows,
        max_seq_len: choices.context,
        prefill_chunk: 16,
        prefix_cache_bytes: 8 << 20,
    };
    let backend: Arc<dyn compiler::Backend> = Arc::new(Cpu::new(2));
    let options = ServeEngineOptions { max_queued: choices.queue };
    let served = ModelRegistry::load(&dirs, None, DType::F32, sizes, options, &backend, &mut |_| {})
        .unwrap_or_else(|e| panic!("{e}"));
    let server = Server::bind("127.0.0.1", 0, served, choices.limits).unwrap_or_else(|e| panic!("{e}"));
    let running = server.start().unwrap_or_else(|e| panic!("{e}"));
    let client = Client { address: running.address };
    (running, client)
}

/// A client of a server.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| &**value)
    }
}

impl Client {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        stream
    }

    /// Sends a request and leaves the response to be read.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("sent");
        BufReader::new(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        read(&mut self.send("GET", path, "", ""))
    }

    pub(crate) fn post(&self, path: &str, body: &Json) -> Answer {
        read(&mut self.send("POST", path, "Content-Type: application/json\r\n", &body.to_string()))
    }

    /// Returns the text of a greedy completion.
    pub(crate) fn complete(&self, prompt: &str, most: usize) -> String {
        let body =
            json!({ "model": "tiny", "prompt": prompt, "max_tokens": most, "temperature": 0, "ignore_eos": true });
        let answer = self.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["choices"][0]["text"].as_str().expect("a text").to_string()
    }

    /// Returns the events of a stream.
    pub(crate) fn events(&self, path: &str, body: &Json) -> Vec<Json> {
        let answer = self.post(path, body);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")), "{}", answer.body);
        let lines: Vec<&str> = answer.body.split("\n\n").filter(|event| !event.is_empty()).collect();
        let (last, events) = lines.split_last().expect("events");
        assert_eq!(*last, "data: [DONE]");
        let data = |event: &&str| serde_json::from_str(event.strip_prefix("data: ").expect("data")).expect("JSON");
        events.iter().map(data).collect()
    }

    /// Returns a value of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    }

    /// Waits until a value of `/metrics` is `value`.
    pub(crate) fn wait_for(&self, name: &str, value: u64) {
        for _ in 0..400 {
            if self.metric(name) == value {
                return;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("{name} is {} and not {value}", self.metric(name));
    }
}

/// Reads a response to its end.
pub(crate) fn read(from: &mut BufReader<TcpStream>) -> Answer {
    let mut line = String::new();
    from.read_line(&mut line).expect("a status");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_string()));
    }
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let mut bytes = Vec::new();
    if chunked {
        loop {
            let mut line = String::new();
            from.read_line(&mut line).expect("a size");
            let size = usize::from_str_radix(line.trim(), 16).unwrap_or_else(|e| panic!("{e}: {line:?}"));
            let mut chunk = vec![0; size + 2];
            from.read_exact(&mut chunk).expect("a chunk");
            if size == 0 {
                break;
            }
            bytes.extend(&chunk[..size]);
        }
    } else {
        let _ = from.read_to_end(&mut bytes);
    }
    Answer { status, headers, body: String::from_utf8(bytes).expect("text") }
}
