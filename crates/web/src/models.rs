//! One model in a page. Messages are texts: `bytes` says where JavaScript puts them, `text` where answers are. A call gives -1 if it
//! failed, and then the text says why.
//!
//! Imports: WASI's, for files (`js/files.js`), and `loom` for kernels and the clock (see `cpu/codegen/page.rs`).

use ir::DType;
use models::{
    BatchEngine, BatchOptions, ChatTemplate, Model, SamplingOptions, SplitMix64, TextStream, TokenHistory, Tokenizer,
};
use serde_json::{Map, Value as Json, json};
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    safe fn now() -> f64;
    /// This program is about to stop for good; the text says why.
    safe fn panicked(text: *const u8, bytes: usize);
}

/// A model, and a text that it writes.
struct ChatState {
    engine: BatchEngine,
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    eos_ids: Vec<i32>,
    writing: Option<GenerationState>,
}

/// A text under way.
struct GenerationState {
    stream: TextStream<Arc<Tokenizer>>,
    sampling: SamplingOptions,
    random: SplitMix64,
    history: TokenHistory,
    /// Of the id that comes next; none before the prompt was run.
    logits: Option<Vec<f32>>,
    left: usize,
}

thread_local! {
    static CHAT: RefCell<Option<ChatState>> = const { RefCell::new(None) };
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

type ReplyResult = Result<(i32, String), String>;

fn fault(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn answer(said: ReplyResult) -> i32 {
    let (code, text) = said.unwrap_or_else(|e| (-1, e));
    TEXT.with_borrow_mut(|t| *t = text);
    code
}

fn message() -> Result<Json, String> {
    BYTES.with_borrow(|b| serde_json::from_slice(b)).map_err(|e| format!("the message is not valid JSON: {e}"))
}

fn with_chat(f: impl FnOnce(&mut ChatState) -> ReplyResult) -> ReplyResult {
    CHAT.with_borrow_mut(|c| match c {
        Some(chat) => f(chat),
        None => Err("no model is open: open one first".into()),
    })
}

/// Must be called first.
#[unsafe(no_mangle)]
pub extern "C" fn start() {
    compiler::clock::set(|| now());
    std::panic::set_hook(Box::new(|e| {
        let text = e.to_string();
        panicked(text.as_ptr(), text.len());
    }));
}

/// The address of a message of so many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn bytes(n: u32) -> *mut u8 {
    BYTES.with_borrow_mut(|b| {
        b.clear();
        b.resize(n as usize, 0);
        b.as_mut_ptr()
    })
}

/// The address of the last answer.
#[unsafe(no_mangle)]
pub extern "C" fn text() -> *const u8 {
    TEXT.with_borrow(|t| t.as_ptr())
}

/// Its length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn text_bytes() -> u32 {
    TEXT.with_borrow(|t| t.len() as u32)
}

/// Opens the model of the message: `path` (a directory or a GGUF file), `module` (a `.module` file), `dtype`, `context`.
#[unsafe(no_mangle)]
pub extern "C" fn open_model() -> i32 {
    answer(opened())
}

fn opened() -> ReplyResult {
    let asked = message()?;
    if CHAT.with_borrow(Option::is_some) {
        return Err("a worker can open only one model: open another model in a new worker".into());
    }
    let name = |key: &str| asked.get(key).and_then(Json::as_str);
    let path = name("path").ok_or("the path of the model is missing")?;
    let dir = Path::new(path);
    let dtype = match name("dtype").unwrap_or("float32") {
        "float32" => DType::F32,
        "bfloat16" => DType::BF16,
        "float16" => DType::F16,
        other => return Err(format!("the dtype must be float32, bfloat16 or float16, got {other}")),
    };
    let model = match name("module") {
        Some(module) => Model::load_with_module(dir, dtype, Some(models::load_program(module).map_err(fault)?)),
        None => Model::load(dir, dtype),
    };
    let model = model.map_err(fault)?;
    let tokenizer = Arc::new(Tokenizer::from_dir(dir).map_err(fault)?);
    let own = ChatTemplate::from_dir(dir).map_err(fault)?;
    let template = match dir.is_dir() || own.is_from_model() {
        true => own,
        false => ChatTemplate::from_source("{% for m in messages %}{{ m.content }}\n{% endfor %}").map_err(fault)?,
    };
    let eos_ids = models::eos_ids(dir, Some(&tokenizer)).map_err(fault)?;
    let most = asked.get("context").and_then(Json::as_u64).unwrap_or(1024) as usize;
    let context = model.max_sequence().filter(|_| !model.can_extrapolate()).map_or(most, |longest| longest.min(most));
    let about = json!({
        "architecture": architecture(dir),
        "parameters": model.parameter_count(),
        "vocabulary": model.vocabulary(),
        "dtype": dtype.name(),
        "context": context,
        "template": template.is_from_model(),
    });
    let sizes = BatchOptions { max_batch: 2, max_seq_len: context, prefill_chunk: 32, prefix_cache_bytes: 64 << 20 };
    let backend = Arc::new(cpu::Cpu::new(1));
    let engine = BatchEngine::new(Arc::new(model), &[], sizes, backend).map_err(fault)?;
    CHAT.with_borrow_mut(|c| *c = Some(ChatState { engine, tokenizer, template, eos_ids, writing: None }));
    Ok((0, about.to_string()))
}

/// What a model calls itself.
fn architecture(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("config.json")).ok()?;
    let config: Json = serde_json::from_str(&text).ok()?;
    config.pointer("/architectures/0").and_then(Json::as_str).map(String::from)
}

/// Begins a text: after `messages` (objects with `role` and `content`) by the chat template, or after `prompt`. Settings: `maxTokens`,
/// `temperature`, `topK`, `topP`, `minP`, `repetition`, `seed`.
#[unsafe(no_mangle)]
pub extern "C" fn begin() -> i32 {
    answer(message().and_then(|asked| with_chat(|chat| chat.begin(&asked))))
}

/// Goes on: 2 while the prompt is run, 1 with a piece of text, 0 at the end.
#[unsafe(no_mangle)]
pub extern "C" fn next() -> i32 {
    answer(with_chat(ChatState::next))
}

/// Stops writing.
#[unsafe(no_mangle)]
pub extern "C" fn stop() -> i32 {
    answer(with_chat(|chat| chat.stop().map(|()| (0, String::new()))))
}

/// The ids of a text, as a list.
#[unsafe(no_mangle)]
pub extern "C" fn encode() -> i32 {
    answer(message().and_then(|asked| {
        let text = asked.as_str().ok_or("expected a string")?.to_string();
        with_chat(|chat| Ok((0, json!(chat.tokenizer.encode(&text).map_err(fault)?).to_string())))
    }))
}

/// The text of a list of ids.
#[unsafe(no_mangle)]
pub extern "C" fn decode() -> i32 {
    answer(message().and_then(|asked| {
        let ids: Option<Vec<i32>> =
            asked.as_array().and_then(|l| l.iter().map(|x| x.as_i64().and_then(|x| i32::try_from(x).ok())).collect());
        let ids = ids.ok_or("expected a list of token IDs")?;
        with_chat(|chat| Ok((0, chat.tokenizer.decode(&ids).map_err(fault)?)))
    }))
}

fn sampling(asked: &Json) -> Result<SamplingOptions, String> {
    let number = |key: &str, usual: f64, least: f64, most: f64| match asked.get(key) {
        None | Some(Json::Null) => Ok(usual),
        Some(x) => match x.as_f64() {
            Some(x) if (least..=most).contains(&x) => Ok(x),
            _ => Err(format!("{key} is {x}, but it must be from {least} to {most}")),
        },
    };
    Ok(SamplingOptions {
        temperature: number("temperature", 0.7, 0.0, 100.0)?,
        top_k: number("topK", 0.0, 0.0, 1e9)? as usize,
        top_p: number("topP", 0.95, 0.0, 1.0)?,
        min_p: number("minP", 0.0, 0.0, 1.0)?,
        repetition_penalty: number("repetition", 1.0, 0.01, 100.0)?,
        seed: number("seed", 0.0, 0.0, 9e15)? as u64,
        ..SamplingOptions::GREEDY
    })
}

impl ChatState {
    fn stop(&mut self) -> Result<(), String> {
        if self.writing.take().is_some() {
            self.engine.cancel_prompt();
            if !self.engine.is_empty() {
                self.engine.evict(0).map_err(fault)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, asked: &Json) -> ReplyResult {
        self.stop()?;
        let sampling = sampling(asked)?;
        let ids = match (asked.get("messages").and_then(Json::as_array), asked.get("prompt").and_then(Json::as_str)) {
            (Some(messages), _) => {
                let text = self.template.render(messages, true, &Map::new()).map_err(fault)?;
                self.tokenizer.encode(&text).map_err(fault)?
            }
            (None, Some(prompt)) => self.tokenizer.encode_prompt(prompt).map_err(fault)?,
            (None, None) => return Err("`messages` or `prompt` is missing".into()),
        };
        let context = self.engine.sizes().max_seq_len;
        if ids.len() + 1 >= context {
            let n = ids.len();
            return Err(format!(
                "the conversation has {n} tokens, but the maximum sequence length is {context}: start a new one"
            ));
        }
        let known = self.engine.start_prefill(&ids, 0).map_err(fault)?;
        let most = asked.get("maxTokens").and_then(Json::as_u64).unwrap_or(256) as usize;
        self.writing = Some(GenerationState {
            stream: TextStream::new(self.tokenizer.clone()),
            sampling,
            random: sampling.generator(),
            history: TokenHistory::from_prompt(&ids),
            logits: None,
            left: most.min(context - ids.len() - 1),
        });
        Ok((0, json!({ "prompt": ids.len(), "known": known }).to_string()))
    }

    fn next(&mut self) -> ReplyResult {
        let Some(w) = &mut self.writing else { return Ok((0, String::new())) };
        let Some(logits) = &mut w.logits else {
            if let Some(logits) = self.engine.prefill_chunk().map_err(fault)? {
                self.engine.admit().map_err(fault)?;
                w.logits = Some(logits);
            }
            return Ok((2, String::new()));
        };
        w.sampling.apply_penalties(logits, &w.history);
        let id = w.sampling.sample(logits, &mut w.random) as i32;
        if w.left == 0 || self.eos_ids.contains(&id) {
            let rest = w.stream.flush().map_err(fault)?;
            self.stop()?;
            return Ok((0, rest));
        }
        w.left -= 1;
        w.history.push(id);
        let piece = w.stream.push(id).map_err(fault)?;
        w.logits = Some(self.engine.step(&[id]).map_err(fault)?.0);
        Ok((1, piece))
    }
}
