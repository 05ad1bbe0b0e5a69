//! Turns a checked request into its response, as a whole or streamed.

use crate::serve::api::{self, ApiError, ApiResult, CompletionRequest, Prompt, PromptEncoding, ResponseFormat};
use crate::serve::batch_scheduler::{
    EmbeddingTask, EngineTask, FinishReason, SequenceEvent, SequenceRequest, TokenLogprobs,
};
use crate::serve::body::{Answer, Response};
use crate::serve::connections::ActiveRequest;
use crate::serve::fields::{self, Endpoint};
use crate::serve::http::{AppState, RequestContext};
use crate::serve::metrics::increment;
use crate::serve::model_registry::{ModelEngine, ServedModel};
use crate::serve::queue::Rejected;
use crate::serve::quota::ClientId;
use crate::serve::sse::{self, SseWriter, WriteError};
use crate::serve::stop_matcher::StopMatcher;
use crate::{Constraint, SamplingOptions};
use hyper::{StatusCode, header};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Which of the two endpoints a request was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionKind {
    Text,
    Chat,
}

impl CompletionKind {
    fn prefix(self) -> &'static str {
        if self == CompletionKind::Chat { "chatcmpl" } else { "cmpl" }
    }
}

pub(crate) fn json_response(status: u16, body: &Json) -> Response {
    let mut response = Response::new(Answer::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

pub(crate) fn error_response(fault: &ApiError) -> Response {
    let mut response = json_response(fault.status, &fault.json());
    if let Some(seconds) = fault.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    response
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn new_response_id(kind: CompletionKind) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{:x}{n:08x}", kind.prefix(), now())
}

/// A request after validation and tokenization.
pub(crate) struct PreparedRequest {
    ask: CompletionRequest,
    entry: ServedModel,
    prompts: Vec<Arc<[i32]>>,
    /// The text that is returned before each answer.
    echoes: Vec<String>,
    constraint: Option<Constraint>,
    allowed_token_ids: Option<Arc<[i32]>>,
}

/// Parses and checks the body of a completion request.
pub(crate) fn parse_request(app: &AppState, body: &[u8], kind: CompletionKind) -> ApiResult<PreparedRequest> {
    let body = &api::parse_object(body)?;
    fields::check(body, if kind == CompletionKind::Chat { Endpoint::Chat } else { Endpoint::Text })?;
    let ask = api::parse_completion(body, kind == CompletionKind::Chat)?;
    let (entry, engine) = app.find_model(&ask.model)?;
    let (prompts, echo) = match kind {
        CompletionKind::Text => (api::parse_prompts(body, "prompt")?, None),
        CompletionKind::Chat => {
            let chat = api::parse_chat(body)?;
            let last = chat.messages.last().filter(|last| ask.echo && last["role"] == "assistant");
            let echo = last.and_then(|last| last["content"].as_str()).unwrap_or("").to_string();
            (vec![Prompt::Text(render_prompt(engine, &chat, ask.encoding.max_tokens.is_none())?)], Some(echo))
        }
    };
    let (mut encoded, mut echoes) = (Vec::new(), Vec::new());
    for prompt in prompts {
        echoes.push(match (&prompt, &echo) {
            _ if !ask.echo => String::new(),
            (_, Some(echo)) => echo.clone(),
            (Prompt::Ids(ids), _) => engine.tokenizer.decode(ids).map_err(bad_request)?,
            (Prompt::Text(text), _) => text.clone(),
        });
        encoded.push(tokenize_prompt(prompt, engine, &ask.encoding)?);
    }
    let known = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < engine.vocabulary);
    for (name, ids) in
        [("allowed_token_ids", ask.allowed_token_ids.as_deref()), ("stop_token_ids", Some(&ask.stop_token_ids[..]))]
    {
        if let Some(id) = ids.into_iter().flatten().find(|id| !known(id)) {
            return Err(ApiError::for_param(
                name,
                format!("`{name}`: token ID {id} is outside the vocabulary of {}", engine.vocabulary),
            ));
        }
    }
    let allowed = ask.allowed_token_ids.as_deref().map(Arc::from);
    Ok(PreparedRequest {
        entry: entry.clone(),
        prompts: encoded,
        echoes,
        constraint: None,
        allowed_token_ids: allowed,
        ask,
    })
}

impl PreparedRequest {
    /// Whether the output is constrained to a format.
    pub(crate) fn is_constrained(&self) -> bool {
        !matches!(self.ask.format, ResponseFormat::Any)
    }
}

/// Builds the constraint for the requested output format.
pub(crate) fn build_constraint(app: &AppState, asked: PreparedRequest) -> ApiResult<PreparedRequest> {
    let maker = &app.served.engines[asked.entry.engine].constrainer;
    let made = match &asked.ask.format {
        ResponseFormat::Any => None,
        ResponseFormat::Object => Some(maker.json_object()),
        ResponseFormat::Schema(schema) => Some(maker.json_schema(schema)),
        ResponseFormat::Regex(pattern) => Some(maker.regex(pattern)),
        ResponseFormat::Choice(texts) => Some(maker.choice(texts)),
    };
    Ok(PreparedRequest { constraint: made.transpose().map_err(bad_request)?, ..asked })
}

/// Renders messages with the chat template.
fn render_prompt(engine: &ModelEngine, chat: &api::ChatRequest, bounded: bool) -> ApiResult<String> {
    if bounded {
        let content = chat.messages.iter().filter_map(|message| message["content"].as_str());
        check_text_length(content.map(str::len).sum(), engine)?;
    }
    let render = |messages: &[Json]| {
        engine.template.render(messages, chat.add_generation_prompt, &chat.template_kwargs).map_err(bad_request)
    };
    if !chat.continue_final_message {
        return render(&chat.messages);
    }
    // As transformers does: a mark is appended to the last message; the rendered text is cut at the mark, and the answer continues there.
    const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
    let mut messages = chat.messages.clone();
    if let Some(last) = messages.last_mut() {
        let content = last["content"].as_str().unwrap_or("").to_string();
        last["content"] = (content + MARK).into();
    }
    let text = render(&messages)?;
    let at = text.rfind(MARK.trim_end()).ok_or_else(|| {
        let what = "`continue_final_message`: the chat template does not include the last message";
        ApiError::for_param("continue_final_message", what)
    })?;
    // Where the template strips whitespace, the text before the mark is stripped too.
    Ok(if text[at..].starts_with(MARK) { text[..at].to_string() } else { text[..at].trim_end().to_string() })
}

/// Rejects a text that has more bytes than the tokens of a full context could have.
fn check_text_length(bytes: usize, engine: &ModelEngine) -> ApiResult<()> {
    let most = engine.max_seq_len.saturating_mul(engine.max_token_bytes);
    match bytes > most {
        false => Ok(()),
        true => Err(ApiError::new(
            400,
            format!(
                "the prompt has {bytes} bytes, but at most {most} fit into the maximum sequence length of {} tokens: \
                 shorten it, or set `truncate_prompt_tokens`",
                engine.max_seq_len
            ),
        )),
    }
}

/// The token IDs of a prompt, truncated as requested.
fn tokenize_prompt(prompt: Prompt, engine: &ModelEngine, encoding: &PromptEncoding) -> ApiResult<Arc<[i32]>> {
    let (mut ids, mut front) = match prompt {
        Prompt::Ids(ids) => (ids, 0),
        Prompt::Text(text) => {
            if encoding.max_tokens.is_none() {
                check_text_length(text.len(), engine)?;
            }
            match encoding.add_special_tokens {
                false => (engine.tokenizer.encode(&text).map_err(bad_request)?, 0),
                true => {
                    let ids = match encoding.add_trailing_tokens {
                        true => engine.tokenizer.encode_with_special_tokens(&text).map_err(bad_request)?,
                        false => engine.tokenizer.encode_prompt(&text).map_err(bad_request)?,
                    };
                    // Special tokens that the tokenizer puts in front are not truncated.
                    let plain = match encoding.max_tokens {
                        Some(_) => engine.tokenizer.encode(&text).map_err(bad_request)?.len(),
                        None => ids.len(),
                    };
                    let front = ids.len().saturating_sub(plain);
                    (ids, front)
                }
            }
        }
    };
    if let Some(most) = encoding.max_tokens.map(|most| most.unwrap_or(engine.max_seq_len - 1))
        && ids.len() > most
    {
        front = front.min(most);
        match encoding.truncate_left {
            true => drop(ids.drain(front..front + ids.len() - most)),
            false => ids.truncate(most),
        }
    }
    // An empty prompt is replaced by the end-of-text token.
    let ids = if ids.is_empty() { engine.eos_ids.first().copied().into_iter().collect() } else { ids };
    Ok(check_token_ids(ids, engine)?.into())
}

/// The response to a prepared request.
pub(crate) async fn complete(
    app: &Arc<AppState>,
    asked: PreparedRequest,
    kind: CompletionKind,
    caller: &RequestContext,
) -> ApiResult<Response> {
    let PreparedRequest { ask, entry, prompts, echoes, constraint, allowed_token_ids: allowed } = asked;
    let engine = &app.served.engines[entry.engine];
    let (mut streams, mut tasks) = (Vec::new(), Vec::new());
    let arrived = Instant::now();
    for (p, prompt) in prompts.iter().enumerate() {
        for choice in 0..ask.n {
            let room = engine.max_seq_len - prompt.len();
            let usual = if kind == CompletionKind::Chat { room } else { 16 };
            let most = ask.max_tokens.unwrap_or(usual).min(room);
            // The last token may be followed by an end event.
            let (events, heard) = mpsc::channel(most + 2);
            let enough = Arc::new(AtomicBool::new(false));
            let seed = ask.sampling.seed.wrapping_add((p * ask.n + choice) as u64);
            tasks.push(EngineTask::Generate(Box::new(SequenceRequest {
                prompt: prompt.clone(),
                adapter: entry.adapter,
                max_new_tokens: most,
                sampling: SamplingOptions { seed, ..ask.sampling },
                logit_bias: ask.logit_bias.clone(),
                eos_ids: if ask.ignore_eos { Vec::new() } else { engine.eos_ids.clone() },
                stop_token_ids: ask.stop_token_ids.clone(),
                min_tokens: ask.min_tokens,
                allowed_token_ids: allowed.clone(),
                logprobs: ask.logprobs,
                constraint: constraint.clone(),
                events,
                client_done: enough.clone(),
                arrived,
            })));
            streams.push(ChoiceStream::new(app, &entry, (heard, enough), echoes[p].clone(), &ask));
        }
    }
    submit(app, engine, caller.client, tasks)?;
    let about = ResponseInfo {
        kind,
        id: ask.request_id.as_ref().map_or_else(|| new_response_id(kind), |name| format!("{}-{name}", kind.prefix())),
        created: now(),
        model: ask.model.clone(),
        prompt_tokens: prompts.iter().map(|prompt| prompt.len()).sum(),
    };
    if ask.stream {
        return Ok(stream_response(app, about, &ask, streams, caller.connection.begin_request()));
    }
    let mut choices = Vec::new();
    let mut new = 0;
    for (index, mut choice) in streams.into_iter().enumerate() {
        let mut text = String::new();
        let mut told = Vec::new();
        let finish = loop {
            let piece = choice.next().await.map_err(|reason| ApiError::new(500, reason))?;
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

fn bad_request(error: crate::Error) -> ApiError {
    ApiError::new(400, error.to_string())
}

/// Checks that the token IDs are in the vocabulary and leave room for one new token.
fn check_token_ids(ids: Vec<i32>, engine: &ModelEngine) -> ApiResult<Vec<i32>> {
    if ids.is_empty() {
        return Err(ApiError::new(400, "empty prompt, and the model has no end-of-text token"));
    }
    if ids.len() >= engine.max_seq_len {
        return Err(ApiError::new(
            400,
            format!(
                "the prompt has {} tokens, but the maximum sequence length is {} and at least one token must be \
                 generated",
                ids.len(),
                engine.max_seq_len
            ),
        ));
    }
    if let Some(id) = ids.iter().find(|id| !usize::try_from(**id).is_ok_and(|id| id < engine.vocabulary)) {
        return Err(ApiError::new(400, format!("token ID {id} is outside the vocabulary of {}", engine.vocabulary)));
    }
    Ok(ids)
}

fn submit(app: &AppState, engine: &ModelEngine, client: ClientId, tasks: Vec<EngineTask>) -> ApiResult<()> {
    let wanted = tasks.len();
    engine.handle.submit(client, tasks).map_err(|refused| match refused {
        Rejected::QueueFull => {
            increment(&app.served.metrics.rejected, 1);
            ApiError { retry_after: Some(1), ..ApiError::new(429, "too many of your requests are queued: try again later") }
        }
        Rejected::TooLarge(most) => ApiError::new(
            400,
            format!("the request asks for {wanted} sequences, but at most {most} may be queued (half of the server's `--max-queued`)"),
        ),
        Rejected::Stopped => ApiError::new(503, "the server is shutting down"),
    })
}

/// Inputs of an embedding request.
pub(crate) struct EmbeddingRequest {
    entry: ServedModel,
    texts: Vec<Arc<[i32]>>,
    base64: bool,
    dimensions: Option<usize>,
}

/// Parses and checks the body of `/v1/embeddings`.
pub(crate) fn parse_embedding_request(app: &AppState, body: &[u8]) -> ApiResult<EmbeddingRequest> {
    let body = &api::parse_object(body)?;
    fields::check(body, Endpoint::Embed)?;
    let (entry, engine) = app.find_model(&api::string_field(body, "model")?)?;
    let (coded, dimensions) = (api::wants_base64(body)?, api::dimensions(body)?);
    if let Some(wanted) = dimensions
        && !engine.dimensions.supports(wanted)
    {
        let what = format!("`dimensions`: {wanted} is not supported: {}", engine.dimensions.describe());
        return Err(ApiError::for_param("dimensions", what));
    }
    let encoding = PromptEncoding { add_trailing_tokens: true, ..api::parse_encoding(body, true, false)? };
    let prompts = api::parse_prompts(body, "input")?;
    let texts =
        prompts.into_iter().map(|prompt| tokenize_prompt(prompt, engine, &encoding)).collect::<ApiResult<_>>()?;
    Ok(EmbeddingRequest { entry: entry.clone(), texts, base64: coded, dimensions })
}

/// The response of `/v1/embeddings`.
pub(crate) async fn embed(
    app: &Arc<AppState>,
    asked: EmbeddingRequest,
    caller: &RequestContext,
) -> ApiResult<Response> {
    let engine = &app.served.engines[asked.entry.engine];
    let (mut tasks, mut replies) = (Vec::new(), Vec::new());
    for ids in &asked.texts {
        let (reply, found) = oneshot::channel();
        tasks.push(EngineTask::Embed(EmbeddingTask { ids: ids.clone(), adapter: asked.entry.adapter, reply }));
        replies.push(found);
    }
    submit(app, engine, caller.client, tasks)?;
    let mut vectors = Vec::new();
    for found in replies {
        vectors.push(match found.await {
            Ok(Ok(vector)) => vector,
            Ok(Err(reason)) => return Err(ApiError::new(400, reason)),
            Err(_) => return Err(ApiError::new(503, "the server is shutting down")),
        });
    }
    app.workers.run(caller.client, move || embedding_response(&asked, vectors)).await
}

fn embedding_response(asked: &EmbeddingRequest, vectors: Vec<Vec<f32>>) -> Response {
    let mut data = Vec::new();
    for (index, mut vector) in vectors.into_iter().enumerate() {
        if let Some(dimensions) = asked.dimensions.filter(|n| *n < vector.len()) {
            vector.truncate(dimensions);
            let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
        let embedding: Json = match asked.base64 {
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

/// Fields that all chunks of a response share.
struct ResponseInfo {
    kind: CompletionKind,
    id: String,
    created: u64,
    model: String,
    prompt_tokens: usize,
}

impl ResponseInfo {
    fn object(&self, chunk: bool) -> &'static str {
        match (self.kind, chunk) {
            (CompletionKind::Text, _) => "text_completion",
            (CompletionKind::Chat, false) => "chat.completion",
            (CompletionKind::Chat, true) => "chat.completion.chunk",
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
        told: Option<Vec<TokenOutput>>,
        finish: Option<FinishReason>,
        choice: &ChoiceStream,
        whole: bool,
    ) -> Json {
        let reason = finish.map(|finish| if finish == FinishReason::Stop { "stop" } else { "length" });
        let by = finish.and(choice.stopped_by.clone());
        let logprobs = told.map(|told| match self.kind {
            CompletionKind::Chat => choice.chat_logprobs(&told),
            CompletionKind::Text => choice.text_logprobs(&told),
        });
        match (self.kind, whole) {
            (CompletionKind::Text, _) => {
                json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": reason, "stop_reason": by })
            }
            (CompletionKind::Chat, true) => {
                let message = json!({ "role": "assistant", "content": text, "refusal": null });
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": reason, "stop_reason": by })
            }
            (CompletionKind::Chat, false) => {
                let delta = if text.is_empty() && reason.is_some() { json!({}) } else { json!({ "content": text }) };
                json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason, "stop_reason": by })
            }
        }
    }

    fn chunk(&self, choices: Vec<Json>) -> Json {
        json!({ "id": self.id, "object": self.object(true), "created": self.created, "model": self.model, "choices": choices })
    }
}

/// A token with the details that the response reports about it.
struct TokenOutput {
    id: i32,
    logprobs: Option<TokenLogprobs>,
    /// Number of characters of text before it.
    offset: usize,
}

/// The text and tokens that one event adds to a choice.
struct ChoiceDelta {
    text: String,
    told: Vec<TokenOutput>,
    finish: Option<FinishReason>,
}

/// One generated sequence as its client sees it.
struct ChoiceStream {
    app: Arc<AppState>,
    engine: usize,
    events: mpsc::Receiver<SequenceEvent>,
    enough: Arc<AtomicBool>,
    /// The text that is returned before the generated text.
    echo: String,
    ids: crate::TextStream<Arc<crate::Tokenizer>>,
    stops: StopMatcher,
    /// Tokens whose text is not sent yet.
    held_tokens: Vec<TokenOutput>,
    tokens: usize,
    shown: usize,
    /// The stop string or token that ended the text.
    stopped_by: Option<Json>,
    include_stop: bool,
    /// Number of tokens before stop strings are checked.
    min_tokens: usize,
    tokens_as_ids: bool,
}

impl ChoiceStream {
    fn new(
        app: &Arc<AppState>,
        entry: &ServedModel,
        (events, enough): (mpsc::Receiver<SequenceEvent>, Arc<AtomicBool>),
        echo: String,
        ask: &CompletionRequest,
    ) -> ChoiceStream {
        let tokenizer = app.served.engines[entry.engine].tokenizer.clone();
        let ids = match ask.keep_special_tokens {
            true => crate::TextStream::with_special(tokenizer),
            false => crate::TextStream::new(tokenizer),
        };
        ChoiceStream {
            app: app.clone(),
            engine: entry.engine,
            events,
            enough,
            echo,
            ids,
            stops: StopMatcher::new(ask.stop.clone()),
            held_tokens: Vec::new(),
            tokens: 0,
            shown: 0,
            stopped_by: None,
            include_stop: ask.include_stop,
            min_tokens: ask.min_tokens,
            tokens_as_ids: ask.tokens_as_ids,
        }
    }

    /// Waits for the next piece. A piece with a finish reason is the last one.
    async fn next(&mut self) -> std::result::Result<ChoiceDelta, String> {
        if !self.echo.is_empty() {
            let text = std::mem::take(&mut self.echo);
            self.shown += text.chars().count();
            return Ok(ChoiceDelta { text, told: Vec::new(), finish: None });
        }
        match self.events.recv().await {
            None => Err("the model is no longer loaded".into()),
            Some(SequenceEvent::Failed(reason)) => Err(reason),
            Some(SequenceEvent::Stopped(id)) => {
                let shown =
                    if self.include_stop { self.ids.push(id).map_err(|e| e.to_string())? } else { String::new() };
                self.stopped_by = Some(id.into());
                self.finish(shown, FinishReason::Stop)
            }
            Some(SequenceEvent::End(finish)) => self.finish(String::new(), finish),
            Some(SequenceEvent::Token { id, logprob }) => {
                self.tokens += 1;
                self.held_tokens.push(TokenOutput { id, logprobs: logprob, offset: self.shown });
                let new = self.ids.push(id).map_err(|e| e.to_string())?;
                // Stop strings are not searched in the minimum number of tokens.
                let (text, stopped) =
                    if self.tokens <= self.min_tokens { (new, false) } else { self.scan_for_stop(&new) };
                self.shown += text.chars().count();
                let told = if text.is_empty() && !stopped { Vec::new() } else { std::mem::take(&mut self.held_tokens) };
                if stopped {
                    // The engine sees this flag at the next token and stops computing for this choice.
                    self.enough.store(true, Ordering::Release);
                    self.events.close();
                }
                Ok(ChoiceDelta { text, told, finish: stopped.then_some(FinishReason::Stop) })
            }
        }
    }

    /// Returns the part of a text that can be sent, and whether a stop string ends it.
    fn scan_for_stop(&mut self, new: &str) -> (String, bool) {
        let (mut text, word) = self.stops.push(new);
        let stopped = word.is_some();
        if let Some(word) = word {
            if self.include_stop {
                text += &word;
            }
            self.stopped_by = Some(word.into());
        }
        (text, stopped)
    }

    /// The last piece: the text that was held back, then `more`.
    fn finish(&mut self, more: String, finish: FinishReason) -> std::result::Result<ChoiceDelta, String> {
        let rest = more + &self.ids.flush().map_err(|e| e.to_string())?;
        let (mut text, stopped) = self.scan_for_stop(&rest);
        if !stopped {
            text += &self.stops.flush();
        }
        let told = std::mem::take(&mut self.held_tokens);
        Ok(ChoiceDelta { text, told, finish: Some(if stopped { FinishReason::Stop } else { finish }) })
    }

    fn token_text(&self, id: i32) -> (String, Vec<u8>) {
        let bytes = self.app.served.engines[self.engine].constrainer.bytes(id);
        let bytes = bytes.unwrap_or_else(|| {
            self.app.served.engines[self.engine].tokenizer.token(id).unwrap_or_default().into_bytes()
        });
        if self.tokens_as_ids {
            return (format!("token_id:{id}"), bytes);
        }
        // A part of a character is written as its bytes, as other servers do.
        let text = String::from_utf8(bytes.clone()).unwrap_or_else(|_| {
            let parts: Vec<String> = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("bytes:{}", parts.concat())
        });
        (text, bytes)
    }

    fn chat_logprobs(&self, told: &[TokenOutput]) -> Json {
        let one = |id: i32, logprob: f64| {
            let (token, bytes) = self.token_text(id);
            json!({ "token": token, "logprob": finite(logprob), "bytes": bytes })
        };
        let entries = told.iter().filter_map(|token| Some((token.id, token.logprobs.as_ref()?)));
        let content: Vec<Json> = entries
            .map(|(id, told)| {
                let mut entry = one(id, told.logprob);
                entry["top_logprobs"] = told.top.iter().map(|(id, x)| one(*id, *x)).collect();
                entry
            })
            .collect();
        json!({ "content": content, "refusal": null })
    }

    fn text_logprobs(&self, told: &[TokenOutput]) -> Json {
        let known = || told.iter().filter_map(|token| Some((token, token.logprobs.as_ref()?)));
        let tokens: Vec<String> = known().map(|(token, _)| self.token_text(token.id).0).collect();
        let own: Vec<f64> = known().map(|(_, told)| finite(told.logprob)).collect();
        let offsets: Vec<usize> = known().map(|(token, _)| token.offset).collect();
        let top: Vec<Json> = known()
            .map(|(_, told)| {
                let pairs = told.top.iter().map(|(id, x)| (self.token_text(*id).0, Json::from(finite(*x))));
                Json::Object(pairs.collect())
            })
            .collect();
        json!({ "tokens": tokens, "token_logprobs": own, "top_logprobs": top, "text_offset": offsets })
    }
}

/// Makes a number finite: JSON has no infinities.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { -9999.0 }
}

/// A response as server-sent events.
fn stream_response(
    app: &Arc<AppState>,
    about: ResponseInfo,
    ask: &CompletionRequest,
    choices: Vec<ChoiceStream>,
    working: ActiveRequest,
) -> Response {
    let (writer, body) = sse::channel(app.limits.read_timeout);
    let (usage, logprobs, app) = ((ask.include_usage, ask.continuous_usage), ask.logprobs.is_some(), app.clone());
    tokio::spawn(async move {
        let _working = working;
        if forward_events(&writer, &about, choices, usage, logprobs).await == Err(WriteError::TimedOut) {
            increment(&app.served.metrics.slow_clients, 1);
        }
    });
    let mut response = Response::new(Answer::Streamed(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache"));
    response
}

async fn forward_events(
    writer: &SseWriter,
    about: &ResponseInfo,
    choices: Vec<ChoiceStream>,
    (usage, always): (bool, bool),
    logprobs: bool,
) -> std::result::Result<(), WriteError> {
    if about.kind == CompletionKind::Chat {
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
    // The chunks of all choices are interleaved as their tokens arrive.
    let (to, mut from) = mpsc::channel::<(Json, Option<String>, usize)>(8);
    let mut speaking = tokio::task::JoinSet::new();
    let shared = Arc::new(ResponseInfo {
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
            () = writer.closed() => return Err(WriteError::Disconnected),
        };
        let Some((choice, failed, tokens)) = next else { break };
        new += tokens;
        if let Some(reason) = failed {
            writer.event(&ApiError::new(500, reason).json()).await?;
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
