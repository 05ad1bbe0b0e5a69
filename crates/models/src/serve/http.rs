//! Connections, routes and limits.

use crate::serve::access_control::{self, AccessDecision};
use crate::serve::api::{ApiError, ApiResult};
use crate::serve::body::{self, Answer, Response, Unread};
use crate::serve::connections::{Connection, Connections};
use crate::serve::handlers::{self, CompletionKind, error_response, json_response};
use crate::serve::idle;
use crate::serve::metrics::{decrement, increment};
use crate::serve::model_registry::{ModelEngine, ModelRegistry, ServedModel};
use crate::serve::quota::{ClientId, ClientQuota, QuotaGuard};
use crate::serve::workers::WorkerPool;
use crate::serve::{Error, Result};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::{Value as Json, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Memory for request bodies, in multiples of the largest body. One client gets at most as much as it leaves to the others.
const MAX_CONCURRENT_BODIES: usize = 16;
/// By how much the priority of threads for large requests is lower: if cores are scarce, they get a tenth of an engine's share.
const NICE_INCREMENT: u8 = 10;
/// Maximum size in bytes of a request that is handled by the fast threads.
const SMALL_BODY_BYTES: usize = 16 << 10;

/// Limits for clients.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Maximum size of a request's body in bytes.
    pub max_body_bytes: usize,
    /// How long a client may take to send its headers or its body, or to read a chunk of a response.
    pub read_timeout: Duration,
    /// Maximum number of open connections. Beyond it, an idle one is closed for the new one.
    pub max_connections: usize,
    /// How long requests may continue after the server was asked to stop.
    pub shutdown_timeout: Duration,
    /// API keys, of which clients must send one as `Authorization: Bearer ..`. Clients are identified
    /// by their keys, or, without keys, by their addresses.
    pub api_keys: Vec<String>,
    /// Whether `/metrics` requires a key too.
    pub key_for_metrics: bool,
    /// Allowed host names of the server, besides addresses and `localhost`; `*` allows any. By default, a server that listens on
    /// the loopback interface allows no others, and any other server allows all.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may send requests, such as `https://app.example`, besides the server's own; `*` allows any.
    pub allowed_origins: Vec<String>,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            max_body_bytes: 4 << 20,
            read_timeout: Duration::from_secs(20),
            max_connections: 1024,
            shutdown_timeout: Duration::from_secs(30),
            api_keys: Vec::new(),
            key_for_metrics: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
        }
    }
}

/// State that all requests share.
pub(crate) struct AppState {
    pub(crate) served: ModelRegistry,
    pub(crate) limits: ServerLimits,
    /// Threads for small requests, which take little time each; and for all others.
    pub(crate) small_request_workers: WorkerPool,
    pub(crate) workers: WorkerPool,
    /// The memory budget of request bodies.
    bodies: Arc<ClientQuota>,
    connections: Arc<Connections>,
    /// Whether the server listens on the loopback interface only.
    local: bool,
    started: u64,
}

/// The client of a request, and its connection.
pub(crate) struct RequestContext {
    pub(crate) client: ClientId,
    pub(crate) connection: Arc<Connection>,
}

impl AppState {
    /// Finds a model by name.
    pub(crate) fn find_model(&self, name: &str) -> ApiResult<(&ServedModel, &ModelEngine)> {
        let found = self.served.entries.iter().find(|entry| entry.name == name);
        let entry = found.ok_or_else(|| {
            let names: Vec<&str> = self.served.names().collect();
            ApiError {
                param: Some("model".into()),
                ..ApiError::new(404, format!("the model `{name}` does not exist: the server has {}", names.join(", ")))
            }
        })?;
        Ok((entry, &self.served.engines[entry.engine]))
    }
}

/// A server that is bound to an address.
pub struct Server {
    listener: std::net::TcpListener,
    app: Arc<AppState>,
}

/// A running server, with its own threads.
pub struct RunningServer {
    /// The address on which it listens.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Binds the address.
    pub fn bind(host: &str, port: u16, served: ModelRegistry, limits: ServerLimits) -> Result<Server> {
        let fault = |e: std::io::Error| Error::Address { address: format!("{host}:{port}"), reason: e.to_string() };
        let listener = std::net::TcpListener::bind((host, port)).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let workers = |count, lower| {
            WorkerPool::new(count, lower).map_err(|e| Error::Setup(format!("cannot start the request threads: {e}")))
        };
        // Memory of large requests is returned to the system as they end, and the rest when the server is idle.
        cpu::limit_allocator_cache();
        // Most cores are reserved for the engines.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (light, workers) = (workers(1, 0)?, workers((cores / 4).clamp(1, 4), NICE_INCREMENT)?);
        let bodies = ClientQuota::new(limits.max_body_bytes.saturating_mul(MAX_CONCURRENT_BODIES));
        let connections = Connections::new(limits.max_connections.max(1));
        Ok(Server {
            listener,
            app: Arc::new(AppState {
                served,
                limits,
                small_request_workers: light,
                workers,
                bodies,
                connections,
                local,
                started,
            }),
        })
    }

    /// Serves requests until the server is stopped.
    pub fn start(self) -> Result<RunningServer> {
        let fault = |e: std::io::Error| Error::Setup(format!("cannot start the server: {e}"));
        let address = self.listener.local_addr().map_err(fault)?;
        // Network I/O needs little time; the engines and workers need the cores.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(fault)?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new().name("http".into()).spawn(move || {
            let app = self.app.clone();
            let listener = self.listener;
            runtime.block_on(async {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    serve(listener, app, stopped).await;
                }
            });
            // Requests that exceed the shutdown timeout are dropped here, then the engines stop.
            runtime.shutdown_timeout(Duration::from_secs(1));
            drop(self.app);
        });
        Ok(RunningServer { address, stop, thread: Some(thread.map_err(fault)?) })
    }
}

impl RunningServer {
    /// Stops accepting requests, and waits for those in progress up to the shutdown timeout.
    pub fn stop(mut self) {
        self.end();
    }

    /// Waits until the server has stopped by itself.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn end(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// A request as it comes in.
type Request = hyper::Request<Incoming>;

/// The answer to a request, by its path.
async fn route(app: &Arc<AppState>, connection: Arc<Connection>, request: Request) -> Response {
    match request.uri().path() {
        "/v1/completions" => {
            return finish_response(app, complete(app, connection, request, CompletionKind::Text).await);
        }
        "/v1/chat/completions" => {
            return finish_response(app, complete(app, connection, request, CompletionKind::Chat).await);
        }
        "/v1/embeddings" => return finish_response(app, embed(app, connection, request).await),
        _ => {}
    }
    let get: fn(&AppState, &Request) -> Response = match request.uri().path() {
        "/" => page,
        "/health" => |_, _| json_response(200, &json!({ "status": "ok" })),
        "/metrics" => metrics,
        "/v1/models" => models,
        path if model_name(path).is_some() => model,
        _ => return nothing(app, &request),
    };
    // For HEAD, hyper writes the headers alone.
    match *request.method() {
        Method::GET | Method::HEAD => get(app, &request),
        _ => other_method(app, &request),
    }
}

/// The name of a model in a path `/v1/models/NAME`, as it is written there.
fn model_name(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/models/").filter(|name| !name.is_empty() && !name.contains('/'))
}

/// Text with each `%XX` replaced by its byte; `None` where that is not UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |i: usize| after.get(i).and_then(|d| (*d as char).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

async fn serve(listener: TcpListener, app: Arc<AppState>, mut stopped: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    let waiting = ClientQuota::new(app.limits.max_connections.max(1).saturating_mul(2));
    let mut builder = hyper::server::conn::http1::Builder::new();
    tokio::spawn(idle::trim_memory_when_idle(app.served.metrics.clone()));
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(app.limits.read_timeout)
        .max_headers(64)
        .max_buf_size(64 << 10);
    loop {
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(_) => {
                    // Transient errors, such as too many open files.
                    app.connections.close_most_idle();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            _ = stopped.changed() => break,
        };
        let client = ClientId::of(address.ip());
        let place = app.connections.admit(client);
        let waits = if place.is_some() { None } else { waiting.acquire(client, 1) };
        if place.is_none() && waits.is_none() {
            increment(&app.served.metrics.rejected, 1);
            continue;
        }
        let _ = stream.set_nodelay(true);
        let (app, builder, watcher) = (app.clone(), builder.clone(), graceful.watcher());
        tokio::spawn(async move {
            let place = if place.is_some() { place } else { acquire_connection(&app, client).await };
            drop(waits);
            let Some(connection) = place else { return };
            let close = connection.close.clone();
            let own = app.clone();
            let service = hyper::service::service_fn(move |request: Request| {
                let (connection, app) = (connection.clone(), own.clone());
                async move {
                    let origin = match access_control::check(&app.limits, app.local, &request) {
                        Ok(AccessDecision::Allow(origin)) => origin,
                        Ok(AccessDecision::Preflight(response)) => return Ok::<Response, Infallible>(*response),
                        Err(fault) => return Ok(finish_response(&app, Err(fault))),
                    };
                    let mut response = route(&app, connection, request).await;
                    access_control::add_cors_headers(&mut response, origin);
                    Ok(response)
                }
            });
            increment(&app.served.metrics.connections, 1);
            tokio::select! {
                _ = watcher.watch(builder.serve_connection(TokioIo::new(stream), service)) => {}
                () = close.notified() => {}
            }
            decrement(&app.served.metrics.connections, 1);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(app.limits.shutdown_timeout) => {}
    }
    app.served.engines.iter().for_each(|engine| engine.handle.stop());
}

/// Waits until a connection is admitted.
async fn acquire_connection(app: &AppState, client: ClientId) -> Option<Arc<Connection>> {
    let begun = Instant::now();
    loop {
        if let Some(connection) = app.connections.admit(client) {
            return Some(connection);
        }
        if begun.elapsed() > app.limits.read_timeout {
            increment(&app.served.metrics.rejected, 1);
            return None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn page(app: &AppState, _: &Request) -> Response {
    app.served.metrics.count_response(200);
    let mut response = Response::new(Answer::from(include_str!("page.html")));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

fn metrics(app: &AppState, request: &Request) -> Response {
    if app.limits.key_for_metrics
        && let Err(fault) = access_control::authenticate(&app.limits.api_keys, request.headers())
    {
        return finish_response(app, Err(fault));
    }
    let mut response = Response::new(Answer::from(app.served.metrics.render_prometheus()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn model_json(app: &AppState, entry: &ServedModel) -> Json {
    let context = app.served.engines[entry.engine].max_seq_len;
    json!({ "id": entry.name, "object": "model", "created": app.started, "owned_by": "loom", "max_model_len": context })
}

fn models(app: &AppState, request: &Request) -> Response {
    finish_response(
        app,
        access_control::authenticate(&app.limits.api_keys, request.headers()).map(|_| {
            let data: Vec<Json> = app.served.entries.iter().map(|entry| model_json(&app, entry)).collect();
            json_response(200, &json!({ "object": "list", "data": data }))
        }),
    )
}

fn model(app: &AppState, request: &Request) -> Response {
    let name = model_name(request.uri().path()).and_then(percent_decoded);
    let name = name.ok_or_else(|| ApiError::new(400, "the name of the model is not UTF-8"));
    let found =
        access_control::authenticate(&app.limits.api_keys, request.headers()).and_then(|_| app.find_model(&name?));
    finish_response(app, found.map(|(entry, _)| json_response(200, &model_json(app, entry))))
}

async fn complete(
    app: &Arc<AppState>,
    connection: Arc<Connection>,
    request: Request,
    kind: CompletionKind,
) -> ApiResult<Response> {
    let (caller, bytes, share) = read(app, connection, request).await?;
    let _working = caller.connection.begin_request();
    let workers = if bytes.len() <= SMALL_BODY_BYTES { &app.small_request_workers } else { &app.workers };
    let own = app.clone();
    let work = move || {
        let asked = handlers::parse_request(&own, &bytes, kind);
        drop((bytes, share));
        asked
    };
    let mut asked = workers.run(caller.client, work).await??;
    if asked.is_constrained() {
        let own = app.clone();
        asked = app.workers.run(caller.client, move || handlers::build_constraint(&own, asked)).await??;
    }
    handlers::complete(app, asked, kind, &caller).await
}

async fn embed(app: &Arc<AppState>, connection: Arc<Connection>, request: Request) -> ApiResult<Response> {
    let (caller, bytes, share) = read(app, connection, request).await?;
    let _working = caller.connection.begin_request();
    let workers = if bytes.len() <= SMALL_BODY_BYTES { &app.small_request_workers } else { &app.workers };
    let own = app.clone();
    let work = move || {
        let asked = handlers::parse_embedding_request(&own, &bytes);
        drop((bytes, share));
        asked
    };
    let asked = workers.run(caller.client, work).await??;
    handlers::embed(app, asked, &caller).await
}

fn nothing(app: &AppState, request: &Request) -> Response {
    let what = format!("{} {}: not found; `/v1/models` lists the models", request.method(), request.uri().path());
    finish_response(app, Err(ApiError::new(404, what)))
}

fn other_method(app: &AppState, request: &Request) -> Response {
    let what = format!("{} {}: method not allowed, use GET", request.method(), request.uri().path());
    let mut response = finish_response(app, Err(ApiError::new(405, what)));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD"));
    response
}

fn finish_response(app: &AppState, found: ApiResult<Response>) -> Response {
    let response = found.unwrap_or_else(|fault| error_response(&fault));
    app.served.metrics.count_response(response.status().as_u16());
    response
}

/// The body of a request, as long as it is small enough and comes in time, and who sends it. The share is kept as long as the body.
async fn read(
    app: &AppState,
    connection: Arc<Connection>,
    request: Request,
) -> ApiResult<(RequestContext, Bytes, QuotaGuard)> {
    if request.method() != Method::POST {
        return Err(ApiError::new(405, format!("method {} not allowed: use POST", request.method())));
    }
    let key = access_control::authenticate(&app.limits.api_keys, request.headers())?;
    let caller = RequestContext { client: key.map_or(connection.client, ClientId::Key), connection };
    let announced =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let large = || ApiError::new(413, format!("the request body is larger than {} bytes", app.limits.max_body_bytes));
    if announced.is_some_and(|length| length > app.limits.max_body_bytes as u64) {
        return Err(large());
    }
    let length = announced.map_or(app.limits.max_body_bytes, |length| length as usize);
    let Some(share) = app.bodies.acquire(caller.client, length) else {
        increment(&app.served.metrics.rejected, 1);
        return Err(ApiError {
            retry_after: Some(1),
            ..ApiError::new(429, "too many of your requests are being received: try again later")
        });
    };
    let read = body::read(request.into_body(), app.limits.max_body_bytes);
    match tokio::time::timeout(app.limits.read_timeout, read).await {
        Ok(Ok(bytes)) => Ok((caller, bytes, share)),
        Ok(Err(Unread::Large)) => Err(large()),
        Ok(Err(Unread::Broken)) => Err(ApiError::new(400, "the body could not be read")),
        Err(_) => {
            increment(&app.served.metrics.slow_clients, 1);
            let seconds = app.limits.read_timeout.as_secs_f64();
            Err(ApiError::new(
                StatusCode::REQUEST_TIMEOUT.as_u16(),
                format!("the request body was not received within {seconds} s"),
            ))
        }
    }
}
