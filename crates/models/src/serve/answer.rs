//! From a checked request to its answer, whole or in pieces.

use crate::serve::api::{self, Ask, Encoding, Fault, Format, Parsed, Prompt};
use crate::serve::chunks::{self, Lost, Writer};
use crate::serve::connections::Working;
use crate::serve::engine::{Embedding, Event, Finish, Job, Task, Told};
use crate::serve::fields::{self, Endpoint};
use crate::serve::http::{App, Caller};
use crate::serve::metrics::count;
use crate::serve::queue::Refused;
use crate::serve::served::{Engine, Entry};
use crate::serve::shares::Client;
use crate::serve::text::Stops;
use crate::{Constraint, Sampling};
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde_json::{Value as Json, json};
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

impl Kind {
    fn prefix(self) -> &'static str {
        if self == Kind::Chat { "chatcmpl" } else { "cmpl" }
    }
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
    format!("{}-{:x}{n:08x}", kind.prefix(), now())
}

/// What a request says, checked and in ids.
pub(crate) struct Prepared {
    ask: Ask,
    entry: Entry,
    prompts: Vec<Arc<[i32]>>,
    /// What is shown before each answer.
    echoes: Vec<String>,
    constraint: Option<Constraint>,
    allowed: Option<Arc<[i32]>>,
}

/// Reads the body of a completion.
pub(crate) fn prepare(app: &App, body: &[u8], kind: Kind) -> Parsed<Prepared> {
    let body = &api::object(body)?;
    fields::check(body, if kind == Kind::Chat { Endpoint::Chat } else { Endpoint::Text })?;
    let ask = api::ask(body, kind == Kind::Chat)?;
    let (entry, engine) = app.find(&ask.model)?;
    let (prompts, echo) = match kind {
        Kind::Text => (api::prompts(body, "prompt")?, None),
        Kind::Chat => {
            let chat = api::chat(body)?;
            let last = chat.messages.last().filter(|last| ask.echo && last["role"] == "assistant");
            let echo = last.and_then(|last| last["content"].as_str()).unwrap_or("").to_string();
            (vec![Prompt::Text(rendered(engine, &chat, ask.encoding.cut.is_none())?)], Some(echo))
        }
    };
    let (mut encoded, mut echoes) = (Vec::new(), Vec::new());
    for prompt in prompts {
        echoes.push(match (&prompt, &echo) {
            _ if !ask.echo => String::new(),
            (_, Some(echo)) => echo.clone(),
            (Prompt::Ids(ids), _) => engine.tokenizer.decode(ids).map_err(bad)?,
            (Prompt::Text(text), _) => text.clone(),
        });
        encoded.push(ids_of(prompt, engine, &ask.encoding)?);
    }
    let known = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < engine.vocabulary);
    for (name, ids) in [("allowed_token_ids", ask.allowed.as_deref()), ("stop_token_ids", Some(&ask.stop_ids[..]))] {
        if let Some(id) = ids.into_iter().flatten().find(|id| !known(id)) {
            return Err(Fault::of(
                name,
                format!("`{name}`: id {id} is not in the vocabulary of {}", engine.vocabulary),
            ));
        }
    }
    let allowed = ask.allowed.as_deref().map(Arc::from);
    Ok(Prepared { entry: entry.clone(), prompts: encoded, echoes, constraint: None, allowed, ask })
}

impl Prepared {
    /// Whether the text must have a form.
    pub(crate) fn has_form(&self) -> bool {
        !matches!(self.ask.format, Format::Any)
    }
}

/// Makes what holds the text to its form.
pub(crate) fn form(app: &App, asked: Prepared) -> Parsed<Prepared> {
    let maker = &app.served.engines[asked.entry.engine].constrainer;
    let made = match &asked.ask.format {
        Format::Any => None,
        Format::Object => Some(maker.json_object()),
        Format::Schema(schema) => Some(maker.json_schema(schema)),
        Format::Regex(pattern) => Some(maker.regex(pattern)),
        Format::Choice(texts) => Some(maker.choice(texts)),
    };
    Ok(Prepared { constraint: made.transpose().map_err(bad)?, ..asked })
}

/// What the template makes of messages.
fn rendered(engine: &Engine, chat: &api::Chat, bounded: bool) -> Parsed<String> {
    if bounded {
        let content = chat.messages.iter().filter_map(|message| message["content"].as_str());
        short_enough(content.map(str::len).sum(), engine)?;
    }
    let render = |messages: &[Json]| engine.template.render(messages, chat.open, &chat.variables).map_err(bad);
    if !chat.goes_on {
        return render(&chat.messages);
    }
    // As transformers does: where a mark behind the last message stands in the text, the answer goes on.
    const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
    let mut messages = chat.messages.clone();
    if let Some(last) = messages.last_mut() {
        let content = last["content"].as_str().unwrap_or("").to_string();
        last["content"] = (content + MARK).into();
    }
    let text = render(&messages)?;
    let at = text.rfind(MARK.trim_end()).ok_or_else(|| {
        let what = "`continue_final_message`: the template does not show the last message";
        Fault::of("continue_final_message", what)
    })?;
    // Where the template takes spaces off, so must what stands before the mark.
    Ok(if text[at..].starts_with(MARK) { text[..at].to_string() } else { text[..at].trim_end().to_string() })
}

/// A text that has more bytes than all tokens of a context is not worth reading.
fn short_enough(bytes: usize, engine: &Engine) -> Parsed<()> {
    let most = engine.context.saturating_mul(engine.longest);
    match bytes > most {
        false => Ok(()),
        true => Err(Fault::new(
            400,
            format!(
                "the prompt has {bytes} bytes: the context of {} tokens holds {most} at most; shorten it, or set `truncate_prompt_tokens`",
                engine.context
            ),
        )),
    }
}

/// The ids of a prompt, as many of them as are asked for.
fn ids_of(prompt: Prompt, engine: &Engine, encoding: &Encoding) -> Parsed<Arc<[i32]>> {
    let (mut ids, mut front) = match prompt {
        Prompt::Ids(ids) => (ids, 0),
        Prompt::Text(text) => {
            if encoding.cut.is_none() {
                short_enough(text.len(), engine)?;
            }
            match encoding.special {
                false => (engine.tokenizer.encode(&text).map_err(bad)?, 0),
                true => {
                    let ids = match encoding.framed {
                        true => engine.tokenizer.whole(&text).map_err(bad)?,
                        false => engine.tokenizer.prompt(&text).map_err(bad)?,
                    };
                    // What the tokenizer puts in front is not cut off.
                    let plain = match encoding.cut {
                        Some(_) => engine.tokenizer.encode(&text).map_err(bad)?.len(),
                        None => ids.len(),
                    };
                    let front = ids.len().saturating_sub(plain);
                    (ids, front)
                }
            }
        }
    };
    if let Some(most) = encoding.cut.map(|most| most.unwrap_or(engine.context - 1))
        && ids.len() > most
    {
        front = front.min(most);
        match encoding.left {
            true => drop(ids.drain(front..front + ids.len() - most)),
            false => ids.truncate(most),
        }
    }
    // Nothing is the end of a text.
    let ids = if ids.is_empty() { engine.ends.first().copied().into_iter().collect() } else { ids };
    Ok(checked(ids, engine)?.into())
}

/// The answer to a prepared request.
pub(crate) async fn complete(app: &Arc<App>, asked: Prepared, kind: Kind, caller: &Caller) -> Parsed<Response> {
    let Prepared { ask, entry, prompts, echoes, constraint, allowed } = asked;
    let engine = &app.served.engines[entry.engine];
    let (mut streams, mut tasks) = (Vec::new(), Vec::new());
    let arrived = Instant::now();
    for (p, prompt) in prompts.iter().enumerate() {
        for choice in 0..ask.choices {
            let room = engine.context - prompt.len();
            let usual = if kind == Kind::Chat { room } else { 16 };
            let most = ask.most.unwrap_or(usual).min(room);
            // The last token may be followed by an end.
            let (events, heard) = mpsc::channel(most + 2);
            let enough = Arc::new(AtomicBool::new(false));
            let seed = ask.sampling.seed.wrapping_add((p * ask.choices + choice) as u64);
            tasks.push(Task::Generate(Box::new(Job {
                prompt: prompt.clone(),
                adapter: entry.adapter,
                most,
                sampling: Sampling { seed, ..ask.sampling },
                bias: ask.bias.clone(),
                ends: if ask.ignore_end { Vec::new() } else { engine.ends.clone() },
                stops: ask.stop_ids.clone(),
                least: ask.least,
                allowed: allowed.clone(),
                logprobs: ask.logprobs,
                constraint: constraint.clone(),
                events,
                enough: enough.clone(),
                arrived,
            })));
            streams.push(Choice::new(app, &entry, (heard, enough), echoes[p].clone(), &ask));
        }
    }
    submit(app, engine, caller.client, tasks)?;
    let about = About {
        kind,
        id: ask.request.as_ref().map_or_else(|| fresh_id(kind), |name| format!("{}-{name}", kind.prefix())),
        created: now(),
        model: ask.model.clone(),
        prompt_tokens: prompts.iter().map(|prompt| prompt.len()).sum(),
    };
    if ask.stream {
        return Ok(streamed(app, about, &ask, streams, caller.connection.work()));
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

fn bad(error: crate::Error) -> Fault {
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

fn submit(app: &App, engine: &Engine, client: Client, tasks: Vec<Task>) -> Parsed<()> {
    let wanted = tasks.len();
    engine.handle.submit(client, tasks).map_err(|refused| match refused {
        Refused::Full => {
            count(&app.served.metrics.refused, 1);
            Fault { later: Some(1), ..Fault::new(429, "too many of your requests wait already: try again later") }
        }
        Refused::Large(most) => Fault::new(
            400,
            format!("the request asks for {wanted} sequences at once: at most {most} can wait (half of the server's `--queue`)"),
        ),
        Refused::Stopped => Fault::new(503, "the server is shutting down"),
    })
}

/// Texts whose vectors are asked for.
pub(crate) struct Texts {
    entry: Entry,
    texts: Vec<Arc<[i32]>>,
    coded: bool,
    dimensions: Option<usize>,
}

/// Reads the body of `/v1/embeddings`.
pub(crate) fn prepare_texts(app: &App, body: &[u8]) -> Parsed<Texts> {
    let body = &api::object(body)?;
    fields::check(body, Endpoint::Embed)?;
    let (entry, engine) = app.find(&api::text(body, "model")?)?;
    let (coded, dimensions) = (api::coded(body)?, api::dimensions(body)?);
    if let Some(wanted) = dimensions
        && !engine.dimensions.allow(wanted)
    {
        let what = format!("`dimensions`: {wanted} is not supported: {}", engine.dimensions.shown());
        return Err(Fault::of("dimensions", what));
    }
    let encoding = Encoding { framed: true, ..api::encoding(body, true, false)? };
    let prompts = api::prompts(body, "input")?;
    let texts = prompts.into_iter().map(|prompt| ids_of(prompt, engine, &encoding)).collect::<Parsed<_>>()?;
    Ok(Texts { entry: entry.clone(), texts, coded, dimensions })
}

/// The answer of `/v1/embeddings`.
pub(crate) async fn embed(app: &Arc<App>, asked: Texts, caller: &Caller) -> Parsed<Response> {
    let engine = &app.served.engines[asked.entry.engine];
    let (mut tasks, mut replies) = (Vec::new(), Vec::new());
    for ids in &asked.texts {
        let (reply, found) = oneshot::channel();
        tasks.push(Task::Embed(Embedding { ids: ids.clone(), adapter: asked.entry.adapter, reply }));
        replies.push(found);
    }
    submit(app, engine, caller.client, tasks)?;
    let mut vectors = Vec::new();
    for found in replies {
        vectors.push(match found.await {
            Ok(Ok(vector)) => vector,
            Ok(Err(reason)) => return Err(Fault::new(400, reason)),
            Err(_) => return Err(Fault::new(503, "the server is shutting down")),
        });
    }
    app.workers.run(caller.client, move || embedded(&asked, vectors)).await
}

fn embedded(asked: &Texts, vectors: Vec<Vec<f32>>) -> Response {
    let mut data = Vec::new();
    for (index, mut vector) in vectors.into_iter().enumerate() {
        if let Some(dimensions) = asked.dimensions.filter(|n| *n < vector.len()) {
            vector.truncate(dimensions);
            let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
        let embedding: Json = match asked.coded {
            true => base64(&vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).into(),
            false => vector.into(),
        };
        data.push(json!({ "object": "embedding", "index": index, "embedding": embedding }));
    }
    let tokens: usize = asked.texts.iter().map(|ids| ids.len()).sum();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    json_response(200, &json!({ "object": "list", "data": data, "model": asked.entry.name, "usage": usage }))
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
        let by = finish.and(choice.stopped_by.clone());
        let logprobs = told.map(|told| match self.kind {
            Kind::Chat => choice.chat_logprobs(&told),
            Kind::Text => choice.text_logprobs(&told),
        });
        match (self.kind, whole) {
            (Kind::Text, _) => {
                json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": reason, "stop_reason": by })
            }
            (Kind::Chat, true) => {
                let message = json!({ "role": "assistant", "content": text, "refusal": null });
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": reason, "stop_reason": by })
            }
            (Kind::Chat, false) => {
                let delta = if text.is_empty() && reason.is_some() { json!({}) } else { json!({ "content": text }) };
                json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason, "stop_reason": by })
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
    ids: crate::TextStream<Arc<crate::Tokenizer>>,
    stops: Stops,
    /// Tokens whose text is not shown yet.
    held: Vec<Token>,
    tokens: usize,
    shown: usize,
    /// The stop word or id that ended the text.
    stopped_by: Option<Json>,
    show_stop: bool,
    /// Tokens before stop words count.
    least: usize,
    by_id: bool,
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
        let ids = match ask.show_special {
            true => crate::TextStream::with_special(tokenizer),
            false => crate::TextStream::new(tokenizer),
        };
        Choice {
            app: app.clone(),
            engine: entry.engine,
            events,
            enough,
            echo,
            ids,
            stops: Stops::new(ask.stop.clone()),
            held: Vec::new(),
            tokens: 0,
            shown: 0,
            stopped_by: None,
            show_stop: ask.show_stop,
            least: ask.least,
            by_id: ask.by_id,
        }
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
            Some(Event::Stopped(id)) => {
                let shown = if self.show_stop { self.ids.push(id).map_err(|e| e.to_string())? } else { String::new() };
                self.stopped_by = Some(id.into());
                self.end(shown, Finish::Stop)
            }
            Some(Event::End(finish)) => self.end(String::new(), finish),
            Some(Event::Token { id, logprob }) => {
                self.tokens += 1;
                self.held.push(Token { id, told: logprob, offset: self.shown });
                let new = self.ids.push(id).map_err(|e| e.to_string())?;
                // Stop words begin behind the tokens that are to come in any case.
                let (text, stopped) = if self.tokens <= self.least { (new, false) } else { self.scan(&new) };
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

    /// What of a text can be shown, and whether a stop word ends it.
    fn scan(&mut self, new: &str) -> (String, bool) {
        let (mut text, word) = self.stops.push(new);
        let stopped = word.is_some();
        if let Some(word) = word {
            if self.show_stop {
                text += &word;
            }
            self.stopped_by = Some(word.into());
        }
        (text, stopped)
    }

    /// The last piece: what was held back, and more.
    fn end(&mut self, more: String, finish: Finish) -> std::result::Result<Piece, String> {
        let rest = more + &self.ids.rest().map_err(|e| e.to_string())?;
        let (mut text, stopped) = self.scan(&rest);
        if !stopped {
            text += &self.stops.rest();
        }
        let told = std::mem::take(&mut self.held);
        Ok(Piece { text, told, finish: Some(if stopped { Finish::Stop } else { finish }) })
    }

    fn word(&self, id: i32) -> (String, Vec<u8>) {
        let bytes = self.app.served.engines[self.engine].constrainer.bytes(id);
        let bytes = bytes.unwrap_or_else(|| {
            self.app.served.engines[self.engine].tokenizer.token(id).unwrap_or_default().into_bytes()
        });
        if self.by_id {
            return (format!("token_id:{id}"), bytes);
        }
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
fn streamed(app: &Arc<App>, about: About, ask: &Ask, choices: Vec<Choice>, working: Working) -> Response {
    let (writer, body) = chunks::pair(app.limits.patience);
    let (usage, logprobs, app) = ((ask.usage, ask.usage_always), ask.logprobs.is_some(), app.clone());
    tokio::spawn(async move {
        let _working = working;
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
    (usage, always): (bool, bool),
    logprobs: bool,
) -> std::result::Result<(), Lost> {
    if about.kind == Kind::Chat {
        for index in 0..choices.len() {
            let delta = json!({ "role": "assistant", "content": "" });
            let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
            let mut chunk = about.chunk(vec![choice]);
            if usage {
                chunk["usage"] = if always { about.usage(0) } else { Json::Null };
            }
            writer.event(&chunk).await?;
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
            let mut told_of = 0;
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
                let tokens = choice.tokens - told_of;
                told_of = choice.tokens;
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
            chunk["usage"] = if always { about.usage(new) } else { Json::Null };
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
