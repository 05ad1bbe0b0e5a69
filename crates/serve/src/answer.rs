//! From a checked request to its answer, whole or in pieces.

use crate::api::{self, Ask, Fault, Format, Parsed, Prompt};
use crate::chunks::{self, Lost, Writer};
use crate::engine::{Event, Finish, Job, Refused, Task, Told};
use crate::http::App;
use crate::metrics::count;
use crate::served::{Engine, Entry};
use crate::text::Stops;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::Response;
use models::Sampling;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Which of the two interfaces is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Chat,
}

pub(crate) fn json_response(status: u16, body: &Json) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

pub(crate) fn refusal(fault: &Fault) -> Response {
    let mut response = json_response(fault.status, &fault.json());
    if let Some(seconds) = fault.later {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn fresh_id(kind: Kind) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
    format!("{prefix}-{:x}{n:08x}", now())
}

/// `/v1/completions` and `/v1/chat/completions`.
pub(crate) async fn complete(app: &Arc<App>, body: &Map<String, Json>, kind: Kind) -> Parsed<Response> {
    let ask = api::ask(body, kind == Kind::Chat)?;
    let (entry, engine) = app.find(&ask.model)?;
    let prompts = match kind {
        Kind::Text => api::prompts(body, "prompt")?,
        Kind::Chat => {
            let messages = api::messages(body)?;
            let further = body.get("chat_template_kwargs").and_then(Json::as_object).cloned().unwrap_or_default();
            let text = engine.template.render(&messages, true, &further).map_err(|e| Fault::new(400, e.to_string()))?;
            vec![Prompt::Text(text)]
        }
    };
    let (mut encoded, mut echoes) = (Vec::new(), Vec::new());
    for prompt in prompts {
        echoes.push(match &prompt {
            _ if !ask.echo => String::new(),
            Prompt::Ids(ids) => engine.tokenizer.decode(ids).map_err(bad)?,
            Prompt::Text(text) => text.clone(),
        });
        let ids = match prompt {
            Prompt::Ids(ids) => ids,
            Prompt::Text(text) if kind == Kind::Chat => engine.tokenizer.encode(&text).map_err(bad)?,
            Prompt::Text(text) => engine.tokenizer.prompt(&text).map_err(bad)?,
        };
        // Nothing is the end of a text.
        let ids = if ids.is_empty() { engine.ends.first().copied().into_iter().collect() } else { ids };
        encoded.push(checked(ids, engine)?);
    }
    // Large expressions take a while; other connections don't wait for it.
    let made = tokio::task::block_in_place(|| match &ask.format {
        Format::Any => None,
        Format::Object => Some(engine.constrainer.json_object()),
        Format::Schema(schema) => Some(engine.constrainer.json_schema(schema)),
        Format::Regex(pattern) => Some(engine.constrainer.regex(pattern)),
    });
    let constraint = made.transpose().map_err(bad)?;
    let mut streams = Vec::new();
    let arrived = Instant::now();
    for (p, prompt) in encoded.iter().enumerate() {
        for choice in 0..ask.choices {
            let room = engine.context - prompt.len();
            let usual = if kind == Kind::Chat { room } else { 16 };
            let most = ask.most.unwrap_or(usual).min(room);
            // The last token may be followed by an end.
            let (events, heard) = mpsc::channel(most + 2);
            let enough = Arc::new(AtomicBool::new(false));
            let seed = ask.sampling.seed.wrapping_add((p * ask.choices + choice) as u64);
            let job = Job {
                prompt: prompt.clone(),
                adapter: entry.adapter,
                most,
                sampling: Sampling { seed, ..ask.sampling },
                bias: ask.bias.clone(),
                ends: if ask.ignore_end { Vec::new() } else { engine.ends.clone() },
                logprobs: ask.logprobs,
                constraint: constraint.clone(),
                events,
                enough: enough.clone(),
                arrived,
            };
            submit(app, engine, Task::Generate(Box::new(job)))?;
            streams.push(Choice::new(app, entry, (heard, enough), echoes[p].clone(), &ask));
        }
    }
    let about = About {
        kind,
        id: fresh_id(kind),
        created: now(),
        model: ask.model.clone(),
        prompt_tokens: encoded.iter().map(Vec::len).sum(),
    };
    if ask.stream {
        return Ok(streamed(app, about, &ask, streams));
    }
    let mut choices = Vec::new();
    let mut new = 0;
    for (index, mut choice) in streams.into_iter().enumerate() {
        let mut text = String::new();
        let mut told = Vec::new();
        let finish = loop {
            let piece = choice.next().await.map_err(|reason| Fault::new(500, reason))?;
            text += &piece.text;
            told.extend(piece.told);
            if let Some(finish) = piece.finish {
                break finish;
            }
        };
        new += choice.tokens;
        choices.push(about.choice(index, &text, ask.logprobs.map(|_| told), Some(finish), &choice, true));
    }
    let answer = json!({
        "id": about.id, "object": about.object(false), "created": about.created, "model": about.model,
        "choices": choices, "usage": about.usage(new),
    });
    Ok(json_response(200, &answer))
}

fn bad(error: models::Error) -> Fault {
    Fault::new(400, error.to_string())
}

/// Ids that the model knows, and that leave room for one more.
fn checked(ids: Vec<i32>, engine: &Engine) -> Parsed<Vec<i32>> {
    if ids.is_empty() {
        return Err(Fault::new(400, "the prompt has no ids, and the model has none that ends a text"));
    }
    if ids.len() >= engine.context {
        return Err(Fault::new(
            400,
            format!(
                "the prompt has {} tokens: the context is {}, and one at least is to be new",
                ids.len(),
                engine.context
            ),
        ));
    }
    if let Some(id) = ids.iter().find(|id| !usize::try_from(**id).is_ok_and(|id| id < engine.vocabulary)) {
        return Err(Fault::new(400, format!("id {id} is not in the vocabulary of {}", engine.vocabulary)));
    }
    Ok(ids)
}

fn submit(app: &App, engine: &Engine, task: Task) -> Parsed<()> {
    engine.handle.submit(task).map_err(|refused| match refused {
        Refused::Full => {
            count(&app.served.metrics.refused, 1);
            Fault { later: Some(1), ..Fault::new(429, "too many requests wait already: try again later") }
        }
        Refused::Stopped => Fault::new(503, "the server is shutting down"),
    })
}

/// `/v1/embeddings`.
pub(crate) async fn embed(app: &Arc<App>, body: &Map<String, Json>) -> Parsed<Response> {
    let (entry, engine) = app.find(&api::text(body, "model")?)?;
    let coded = match body.get("encoding_format").and_then(Json::as_str) {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => return Err(Fault::new(400, format!("`encoding_format` {other}: float or base64"))),
    };
    let mut data = Vec::new();
    let mut tokens = 0;
    for (index, prompt) in api::prompts(body, "input")?.into_iter().enumerate() {
        let ids = match prompt {
            Prompt::Ids(ids) => ids,
            Prompt::Text(text) => engine.tokenizer.whole(&text).map_err(bad)?,
        };
        let ids = checked(ids, engine)?;
        tokens += ids.len();
        let (reply, found) = oneshot::channel();
        submit(app, engine, Task::Embed { ids, adapter: entry.adapter, reply })?;
        let vector = match found.await {
            Ok(Ok(vector)) => vector,
            Ok(Err(reason)) => return Err(Fault::new(400, reason)),
            Err(_) => return Err(Fault::new(503, "the server is shutting down")),
        };
        let embedding: Json = match coded {
            true => base64(&vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).into(),
            false => vector.into(),
        };
        data.push(json!({ "object": "embedding", "index": index, "embedding": embedding }));
    }
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Ok(json_response(200, &json!({ "object": "list", "data": data, "model": entry.name, "usage": usage })))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for i in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * i)) as usize & 63] as char;
            text.push(if i <= three.len() { letter } else { '=' });
        }
    }
    text
}

/// What all parts of an answer say.
struct About {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
    prompt_tokens: usize,
}

impl About {
    fn object(&self, chunk: bool) -> &'static str {
        match (self.kind, chunk) {
            (Kind::Text, _) => "text_completion",
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
        }
    }

    fn usage(&self, new: usize) -> Json {
        let prompt = self.prompt_tokens;
        json!({ "prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new })
    }

    fn choice(
        &self,
        index: usize,
        text: &str,
        told: Option<Vec<Token>>,
        finish: Option<Finish>,
        choice: &Choice,
        whole: bool,
    ) -> Json {
        let reason = finish.map(|finish| if finish == Finish::Stop { "stop" } else { "length" });
        let logprobs = told.map(|told| match self.kind {
            Kind::Chat => choice.chat_logprobs(&told),
            Kind::Text => choice.text_logprobs(&told),
        });
        match (self.kind, whole) {
            (Kind::Text, _) => json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": reason }),
            (Kind::Chat, true) => {
                let message = json!({ "role": "assistant", "content": text, "refusal": null });
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": reason })
            }
            (Kind::Chat, false) => {
                let delta = if text.is_empty() && reason.is_some() { json!({}) } else { json!({ "content": text }) };
                json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason })
            }
        }
    }

    fn chunk(&self, choices: Vec<Json>) -> Json {
        json!({ "id": self.id, "object": self.object(true), "created": self.created, "model": self.model, "choices": choices })
    }
}

/// A token with what is told about it.
struct Token {
    id: i32,
    told: Option<Told>,
    /// Characters of text before it.
    offset: usize,
}

/// What one event adds to a choice.
struct Piece {
    text: String,
    told: Vec<Token>,
    finish: Option<Finish>,
}

/// One sequence as its client sees it.
struct Choice {
    app: Arc<App>,
    engine: usize,
    events: mpsc::Receiver<Event>,
    enough: Arc<AtomicBool>,
    /// What is shown before everything else.
    echo: String,
    ids: models::TextStream<Arc<models::Tokenizer>>,
    stops: Stops,
    /// Tokens whose text is not shown yet.
    held: Vec<Token>,
    tokens: usize,
    shown: usize,
}

impl Choice {
    fn new(
        app: &Arc<App>,
        entry: &Entry,
        (events, enough): (mpsc::Receiver<Event>, Arc<AtomicBool>),
        echo: String,
        ask: &Ask,
    ) -> Choice {
        let tokenizer = app.served.engines[entry.engine].tokenizer.clone();
        let ids = models::TextStream::new(tokenizer);
        let (stops, held) = (Stops::new(ask.stop.clone()), Vec::new());
        Choice { app: app.clone(), engine: entry.engine, events, enough, echo, ids, stops, held, tokens: 0, shown: 0 }
    }

    /// Waits for what comes next. After a piece with an end nothing comes.
    async fn next(&mut self) -> std::result::Result<Piece, String> {
        if !self.echo.is_empty() {
            let text = std::mem::take(&mut self.echo);
            self.shown += text.chars().count();
            return Ok(Piece { text, told: Vec::new(), finish: None });
        }
        match self.events.recv().await {
            None => Err("the model is gone".into()),
            Some(Event::Failed(reason)) => Err(reason),
            Some(Event::End(finish)) => {
                let text = self.ids.rest().map_err(|e| e.to_string())?;
                let (mut text, stopped) = self.stops.push(&text);
                if !stopped {
                    text += &self.stops.rest();
                }
                let told = std::mem::take(&mut self.held);
                Ok(Piece { text, told, finish: Some(if stopped { Finish::Stop } else { finish }) })
            }
            Some(Event::Token { id, logprob }) => {
                self.tokens += 1;
                self.held.push(Token { id, told: logprob, offset: self.shown });
                let new = self.ids.push(id).map_err(|e| e.to_string())?;
                let (text, stopped) = self.stops.push(&new);
                self.shown += text.chars().count();
                let told = if text.is_empty() && !stopped { Vec::new() } else { std::mem::take(&mut self.held) };
                if stopped {
                    // Whoever computes for this choice finds out at the next token.
                    self.enough.store(true, Ordering::Release);
                    self.events.close();
                }
                Ok(Piece { text, told, finish: stopped.then_some(Finish::Stop) })
            }
        }
    }

    fn word(&self, id: i32) -> (String, Vec<u8>) {
        let bytes = self.app.served.engines[self.engine].constrainer.bytes(id);
        let bytes = bytes.unwrap_or_else(|| {
            self.app.served.engines[self.engine].tokenizer.token(id).unwrap_or_default().into_bytes()
        });
        // A part of a character is written as its bytes, as others do.
        let text = String::from_utf8(bytes.clone()).unwrap_or_else(|_| {
            let parts: Vec<String> = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("bytes:{}", parts.concat())
        });
        (text, bytes)
    }

    fn chat_logprobs(&self, told: &[Token]) -> Json {
        let one = |id: i32, logprob: f64| {
            let (token, bytes) = self.word(id);
            json!({ "token": token, "logprob": finite(logprob), "bytes": bytes })
        };
        let entries = told.iter().filter_map(|token| Some((token.id, token.told.as_ref()?)));
        let content: Vec<Json> = entries
            .map(|(id, told)| {
                let mut entry = one(id, told.own);
                entry["top_logprobs"] = told.top.iter().map(|(id, x)| one(*id, *x)).collect();
                entry
            })
            .collect();
        json!({ "content": content, "refusal": null })
    }

    fn text_logprobs(&self, told: &[Token]) -> Json {
        let known = || told.iter().filter_map(|token| Some((token, token.told.as_ref()?)));
        let tokens: Vec<String> = known().map(|(token, _)| self.word(token.id).0).collect();
        let own: Vec<f64> = known().map(|(_, told)| finite(told.own)).collect();
        let offsets: Vec<usize> = known().map(|(token, _)| token.offset).collect();
        let top: Vec<Json> = known()
            .map(|(_, told)| {
                let pairs = told.top.iter().map(|(id, x)| (self.word(*id).0, Json::from(finite(*x))));
                Json::Object(pairs.collect())
            })
            .collect();
        json!({ "tokens": tokens, "token_logprobs": own, "top_logprobs": top, "text_offset": offsets })
    }
}

/// JSON has no infinities.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { -9999.0 }
}

/// An answer in server-sent events.
fn streamed(app: &Arc<App>, about: About, ask: &Ask, choices: Vec<Choice>) -> Response {
    let (writer, body) = chunks::pair(app.limits.patience);
    let (usage, logprobs, app) = (ask.usage, ask.logprobs.is_some(), app.clone());
    tokio::spawn(async move {
        if pump(&writer, &about, choices, usage, logprobs).await == Err(Lost::Slow) {
            count(&app.served.metrics.slow, 1);
        }
    });
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache"));
    response
}

async fn pump(
    writer: &Writer,
    about: &About,
    choices: Vec<Choice>,
    usage: bool,
    logprobs: bool,
) -> std::result::Result<(), Lost> {
    if about.kind == Kind::Chat {
        for index in 0..choices.len() {
            let delta = json!({ "role": "assistant", "content": "" });
            let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
            writer.event(&about.chunk(vec![choice])).await?;
        }
    }
    // All choices speak as their tokens come.
    let (to, mut from) = mpsc::channel::<(Json, Option<String>, usize)>(8);
    let mut speaking = tokio::task::JoinSet::new();
    let shared = Arc::new(About {
        kind: about.kind,
        id: about.id.clone(),
        created: about.created,
        model: about.model.clone(),
        prompt_tokens: about.prompt_tokens,
    });
    for (index, mut choice) in choices.into_iter().enumerate() {
        let (to, about) = (to.clone(), shared.clone());
        speaking.spawn(async move {
            loop {
                let (json, failed, over) = match choice.next().await {
                    Err(reason) => (Json::Null, Some(reason), true),
                    Ok(piece) if piece.text.is_empty() && piece.finish.is_none() => continue,
                    Ok(piece) => {
                        let told = logprobs.then_some(piece.told);
                        let over = piece.finish.is_some();
                        (about.choice(index, &piece.text, told, piece.finish, &choice, false), None, over)
                    }
                };
                let tokens = if over { choice.tokens } else { 0 };
                if to.send((json, failed, tokens)).await.is_err() || over {
                    return;
                }
            }
        });
    }
    drop(to);
    let mut new = 0;
    loop {
        let next = tokio::select! {
            next = from.recv() => next,
            () = writer.gone() => return Err(Lost::Gone),
        };
        let Some((choice, failed, tokens)) = next else { break };
        new += tokens;
        if let Some(reason) = failed {
            writer.event(&Fault::new(500, reason).json()).await?;
            return Ok(());
        }
        let mut chunk = about.chunk(vec![choice]);
        if usage {
            chunk["usage"] = Json::Null;
        }
        writer.event(&chunk).await?;
    }
    if usage {
        let mut last = about.chunk(Vec::new());
        last["usage"] = about.usage(new);
        writer.event(&last).await?;
    }
    writer.done().await
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }
}
