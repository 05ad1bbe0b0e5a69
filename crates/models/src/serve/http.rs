//! Connections, routes and limits.

use crate::serve::answer::{self, Kind, json_response, refusal};
use crate::serve::api::{Fault, Parsed};
use crate::serve::connections::{Connection, Connections};
use crate::serve::gate::{self, Passed};
use crate::serve::idle;
use crate::serve::metrics::{count, uncount};
use crate::serve::served::{Engine, Entry, Served};
use crate::serve::shares::{Client, Share, Shares};
use crate::serve::workers::Workers;
use crate::serve::{Error, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{any, get};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value as Json, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Bodies that are read at once, as so many of the largest. One client has no more of this than it leaves to others.
const BODIES: usize = 16;
/// By how much the priority of threads for large requests is lower: where cores are few, they get a tenth of what an engine gets.
const LOWER: u8 = 10;
/// Bytes of a body that is read quickly.
const SMALL: usize = 16 << 10;

/// What clients may do.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// How long a client may take to send its headers, or its body, or to read a piece of an answer.
    pub patience: Duration,
    /// Open connections. Beyond it, one that does nothing is closed for the new one.
    pub connections: usize,
    /// How long requests may go on after the server was asked to stop.
    pub grace: Duration,
    /// One of them is what clients must send as `Authorization: Bearer ..`. Clients are told apart by their keys, or, without keys, by
    /// their addresses.
    pub keys: Vec<String>,
    /// Whether `/metrics` asks for a key too.
    pub key_for_metrics: bool,
    /// Names by which the server may be called, beside addresses and `localhost`; `*` for any. A server that listens on the local machine
    /// alone has no others, one that listens elsewhere takes any where none is given.
    pub hosts: Vec<String>,
    /// Origins of pages that may ask the server, as `https://app.example`, beside its own; `*` for any.
    pub origins: Vec<String>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 4 << 20,
            patience: Duration::from_secs(20),
            connections: 1024,
            grace: Duration::from_secs(30),
            keys: Vec::new(),
            key_for_metrics: false,
            hosts: Vec::new(),
            origins: Vec::new(),
        }
    }
}

/// What every request sees.
pub(crate) struct App {
    pub(crate) served: Served,
    pub(crate) limits: Limits,
    /// For small requests, of which each takes little; and for everything else.
    pub(crate) light: Workers,
    pub(crate) workers: Workers,
    /// Bytes of bodies.
    bodies: Arc<Shares>,
    connections: Arc<Connections>,
    /// Whether it listens on the local machine alone.
    local: bool,
    started: u64,
}

/// Who asks, and on which connection.
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) connection: Arc<Connection>,
}

impl App {
    /// The model of this name.
    pub(crate) fn find(&self, name: &str) -> Parsed<(&Entry, &Engine)> {
        let found = self.served.entries.iter().find(|entry| entry.name == name);
        let entry = found.ok_or_else(|| {
            let names: Vec<&str> = self.served.names().collect();
            Fault {
                param: Some("model".into()),
                ..Fault::new(404, format!("no model `{name}`: there are {}", names.join(", ")))
            }
        })?;
        Ok((entry, &self.served.engines[entry.engine]))
    }
}

/// A server that is bound to its address.
pub struct Server {
    listener: std::net::TcpListener,
    app: Arc<App>,
}

/// A server that runs in threads of its own.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Takes the address.
    pub fn bind(host: &str, port: u16, served: Served, limits: Limits) -> Result<Server> {
        let fault = |e: std::io::Error| Error::Address { address: format!("{host}:{port}"), reason: e.to_string() };
        let listener = std::net::TcpListener::bind((host, port)).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let workers = |count, lower| {
            Workers::new(count, lower).map_err(|e| Error::Setup(format!("no threads for requests: {e}")))
        };
        // What large requests had is given back as they end, and the rest when the server is idle.
        cpu::keep_little_freed();
        // Most cores are for the engines.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (light, workers) = (workers(1, 0)?, workers((cores / 4).clamp(1, 4), LOWER)?);
        let bodies = Shares::new(limits.body.saturating_mul(BODIES));
        let connections = Connections::new(limits.connections.max(1));
        Ok(Server {
            listener,
            app: Arc::new(App { served, limits, light, workers, bodies, connections, local, started }),
        })
    }

    /// Serves until it is stopped.
    pub fn start(self) -> Result<Running> {
        let fault = |e: std::io::Error| Error::Setup(format!("the server could not start: {e}"));
        let address = self.listener.local_addr().map_err(fault)?;
        // Reading and writing is little work; the engines and workers need the cores.
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
            // What was cut off at the end of the grace is dropped here, then the engines end.
            runtime.shutdown_timeout(Duration::from_secs(1));
            drop(self.app);
        });
        Ok(Running { address, stop, thread: Some(thread.map_err(fault)?) })
    }
}

impl Running {
    /// Takes no more requests, and waits for those that are under way as long as the grace is.
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

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/health", get(async || json_response(200, &json!({ "status": "ok" }))))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/v1/completions", any(completions))
        .route("/v1/chat/completions", any(chat))
        .route("/v1/embeddings", any(embeddings))
        .fallback(nothing)
        .method_not_allowed_fallback(other_method)
        .with_state(app)
}

async fn serve(listener: TcpListener, app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let (routes, graceful) = (router(app.clone()), GracefulShutdown::new());
    let waiting = Shares::new(app.limits.connections.max(1).saturating_mul(2));
    let mut builder = hyper::server::conn::http1::Builder::new();
    tokio::spawn(idle::give_back(app.served.metrics.clone()));
    builder.timer(TokioTimer::new()).header_read_timeout(app.limits.patience).max_headers(64).max_buf_size(64 << 10);
    loop {
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(_) => {
                    // Too many open files, and the like: it passes.
                    app.connections.make_room();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            _ = stopped.changed() => break,
        };
        let client = Client::of(address.ip());
        let place = app.connections.admit(client);
        let waits = if place.is_some() { None } else { waiting.take(client, 1) };
        if place.is_none() && waits.is_none() {
            count(&app.served.metrics.refused, 1);
            continue;
        }
        let _ = stream.set_nodelay(true);
        let (routes, app, builder, watcher) = (routes.clone(), app.clone(), builder.clone(), graceful.watcher());
        tokio::spawn(async move {
            let place = if place.is_some() { place } else { admitted(&app, client).await };
            drop(waits);
            let Some(connection) = place else { return };
            let close = connection.close.clone();
            let (inner, own) = (TowerToHyperService::new(routes), app.clone());
            let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
                request.extensions_mut().insert(connection.clone());
                let (inner, app) = (inner.clone(), own.clone());
                async move {
                    let origin = match gate::check(&app.limits, app.local, &request) {
                        Ok(Passed::On(origin)) => origin,
                        Ok(Passed::Preflight(response)) => return Ok::<Response, Infallible>(*response),
                        Err(fault) => return Ok(answered(&app, Err(fault))),
                    };
                    let mut response = inner.call(request).await?;
                    gate::mark(&mut response, origin);
                    Ok(response)
                }
            });
            count(&app.served.metrics.connections, 1);
            tokio::select! {
                _ = watcher.watch(builder.serve_connection(TokioIo::new(stream), service)) => {}
                () = close.notified() => {}
            }
            uncount(&app.served.metrics.connections, 1);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(app.limits.grace) => {}
    }
    app.served.engines.iter().for_each(|engine| engine.handle.stop());
}

/// A connection's place, as soon as there is one.
async fn admitted(app: &App, client: Client) -> Option<Arc<Connection>> {
    let begun = Instant::now();
    loop {
        if let Some(connection) = app.connections.admit(client) {
            return Some(connection);
        }
        if begun.elapsed() > app.limits.patience {
            count(&app.served.metrics.refused, 1);
            return None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn page(State(app): State<Arc<App>>) -> Response {
    app.served.metrics.answered(200);
    let mut response = Response::new(Body::from(include_str!("page.html")));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

async fn metrics(State(app): State<Arc<App>>, request: Request) -> Response {
    if app.limits.key_for_metrics
        && let Err(fault) = gate::key(&app.limits.keys, request.headers())
    {
        return answered(&app, Err(fault));
    }
    let mut response = Response::new(Body::from(app.served.metrics.text()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn described(app: &App, entry: &Entry) -> Json {
    let context = app.served.engines[entry.engine].context;
    json!({ "id": entry.name, "object": "model", "created": app.started, "owned_by": "loom", "max_model_len": context })
}

async fn models(State(app): State<Arc<App>>, request: Request) -> Response {
    answered(
        &app,
        gate::key(&app.limits.keys, request.headers()).map(|_| {
            let data: Vec<Json> = app.served.entries.iter().map(|entry| described(&app, entry)).collect();
            json_response(200, &json!({ "object": "list", "data": data }))
        }),
    )
}

async fn model(
    State(app): State<Arc<App>>,
    axum::extract::Path(name): axum::extract::Path<String>,
    request: Request,
) -> Response {
    let found = gate::key(&app.limits.keys, request.headers()).and_then(|_| app.find(&name));
    answered(&app, found.map(|(entry, _)| json_response(200, &described(&app, entry))))
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Response {
    let found = complete(&app, request, Kind::Text).await;
    answered(&app, found)
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    let found = complete(&app, request, Kind::Chat).await;
    answered(&app, found)
}

async fn complete(app: &Arc<App>, request: Request, kind: Kind) -> Parsed<Response> {
    let (caller, bytes, share) = body(app, request).await?;
    let _working = caller.connection.work();
    let workers = if bytes.len() <= SMALL { &app.light } else { &app.workers };
    let own = app.clone();
    let work = move || {
        let asked = answer::prepare(&own, &bytes, kind);
        drop((bytes, share));
        asked
    };
    let mut asked = workers.run(caller.client, work).await??;
    if asked.has_form() {
        let own = app.clone();
        asked = app.workers.run(caller.client, move || answer::form(&own, asked)).await??;
    }
    answer::complete(app, asked, kind, &caller).await
}

async fn embeddings(State(app): State<Arc<App>>, request: Request) -> Response {
    let found = embed(&app, request).await;
    answered(&app, found)
}

async fn embed(app: &Arc<App>, request: Request) -> Parsed<Response> {
    let (caller, bytes, share) = body(app, request).await?;
    let _working = caller.connection.work();
    let workers = if bytes.len() <= SMALL { &app.light } else { &app.workers };
    let own = app.clone();
    let work = move || {
        let asked = answer::prepare_texts(&own, &bytes);
        drop((bytes, share));
        asked
    };
    let asked = workers.run(caller.client, work).await??;
    answer::embed(app, asked, &caller).await
}

async fn nothing(State(app): State<Arc<App>>, request: Request) -> Response {
    let what = format!(
        "{} {}: there is nothing here; `/v1/models` lists what is served",
        request.method(),
        request.uri().path()
    );
    answered(&app, Err(Fault::new(404, what)))
}

async fn other_method(State(app): State<Arc<App>>, request: Request) -> Response {
    let what = format!("{} {}: only GET is answered here", request.method(), request.uri().path());
    answered(&app, Err(Fault::new(405, what)))
}

fn answered(app: &App, found: Parsed<Response>) -> Response {
    let response = found.unwrap_or_else(|fault| refusal(&fault));
    app.served.metrics.answered(response.status().as_u16());
    response
}

/// The body of a request, as long as it is small enough and comes in time, and who sends it. The share is kept as long as the body.
async fn body(app: &App, request: Request) -> Parsed<(Caller, Bytes, Share)> {
    if request.method() != Method::POST {
        return Err(Fault::new(405, format!("{} is not for this address: use POST", request.method())));
    }
    let key = gate::key(&app.limits.keys, request.headers())?;
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let connection = connection.ok_or_else(|| Fault::new(500, "the request has no connection"))?;
    let caller = Caller { client: key.map_or(connection.client, Client::Key), connection };
    let announced =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let large = || Fault::new(413, format!("the body is larger than {} bytes", app.limits.body));
    if announced.is_some_and(|length| length > app.limits.body as u64) {
        return Err(large());
    }
    let length = announced.map_or(app.limits.body, |length| length as usize);
    let Some(share) = app.bodies.take(caller.client, length) else {
        count(&app.served.metrics.refused, 1);
        return Err(Fault {
            later: Some(1),
            ..Fault::new(429, "too many of your requests are being read: try again later")
        });
    };
    let read = axum::body::to_bytes(request.into_body(), app.limits.body);
    match tokio::time::timeout(app.limits.patience, read).await {
        Ok(Ok(bytes)) => Ok((caller, bytes, share)),
        Ok(Err(_)) => Err(large()),
        Err(_) => {
            count(&app.served.metrics.slow, 1);
            let seconds = app.limits.patience.as_secs_f64();
            Err(Fault::new(StatusCode::REQUEST_TIMEOUT.as_u16(), format!("the body did not come within {seconds} s")))
        }
    }
}
