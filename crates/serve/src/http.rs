//! Connections, routes and limits.

use crate::answer::{self, Kind, json_response, refusal};
use crate::api::{self, Fault, Parsed};
use crate::metrics::{count, uncount};
use crate::served::{Engine, Entry, Served};
use crate::{Error, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{any, get};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// What clients may do.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// How long a client may take to send its headers, or its body, or to read a piece of an answer.
    pub patience: Duration,
    /// Open connections.
    pub connections: usize,
    /// How long requests may go on after the server was asked to stop.
    pub grace: Duration,
    /// What clients must send as `Authorization: Bearer ..`.
    pub key: Option<String>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 4 << 20,
            patience: Duration::from_secs(20),
            connections: 1024,
            grace: Duration::from_secs(30),
            key: None,
        }
    }
}

/// What every request sees.
pub(crate) struct App {
    pub(crate) served: Served,
    pub(crate) limits: Limits,
    started: u64,
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
        Ok(Server { listener, app: Arc::new(App { served, limits, started }) })
    }

    /// Serves until it is stopped.
    pub fn start(self) -> Result<Running> {
        let fault = |e: std::io::Error| Error::Setup(format!("the server could not start: {e}"));
        let address = self.listener.local_addr().map_err(fault)?;
        // Parsing and writing is little work; the engines need the cores.
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
    let patience = app.limits.patience;
    let room = Arc::new(Semaphore::new(app.limits.connections));
    let (routes, graceful) = (router(app.clone()), GracefulShutdown::new());
    loop {
        // A connection beyond the limit waits in the system's queue.
        let Ok(place) = room.clone().acquire_owned().await else { break };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => {
                    // Too many open files, and the like: it passes.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            _ = stopped.changed() => break,
        };
        let connection = connect(stream, routes.clone(), patience);
        let connection = graceful.watch(connection);
        let app = app.clone();
        count(&app.served.metrics.connections, 1);
        tokio::spawn(async move {
            let _ = connection.await;
            uncount(&app.served.metrics.connections, 1);
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(app.limits.grace) => {}
    }
    app.served.engines.iter().for_each(|engine| engine.handle.stop());
}

type Connection = hyper::server::conn::http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>>;

fn connect(stream: TcpStream, routes: Router, patience: Duration) -> Connection {
    let _ = stream.set_nodelay(true);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(patience).max_headers(64).max_buf_size(64 << 10);
    builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
}

async fn page(State(app): State<Arc<App>>) -> Response {
    app.served.metrics.answered(200);
    let mut response = Response::new(Body::from(include_str!("page.html")));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
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
        allowed(&app, &request).map(|()| {
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
    let found = allowed(&app, &request).and_then(|()| app.find(&name));
    answered(&app, found.map(|(entry, _)| json_response(200, &described(&app, entry))))
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Response {
    let found = match body(&app, request).await {
        Ok(body) => answer::complete(&app, &body, Kind::Text).await,
        Err(fault) => Err(fault),
    };
    answered(&app, found)
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    let found = match body(&app, request).await {
        Ok(body) => answer::complete(&app, &body, Kind::Chat).await,
        Err(fault) => Err(fault),
    };
    answered(&app, found)
}

async fn embeddings(State(app): State<Arc<App>>, request: Request) -> Response {
    let found = match body(&app, request).await {
        Ok(body) => answer::embed(&app, &body).await,
        Err(fault) => Err(fault),
    };
    answered(&app, found)
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

/// Whether the client has the key.
fn allowed(app: &App, request: &Request) -> Parsed<()> {
    let Some(key) = &app.limits.key else { return Ok(()) };
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let sent = sent.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or("");
    // Every byte is compared, whether or not one before it differs.
    let differs = sent.bytes().zip(key.bytes()).fold(sent.len() ^ key.len(), |all, (a, b)| all | usize::from(a ^ b));
    match differs {
        0 => Ok(()),
        _ => Err(Fault::new(401, "a key is needed: send `Authorization: Bearer KEY`")),
    }
}

/// The fields of a request, as long as it is small enough and comes in time.
async fn body(app: &App, request: Request) -> Parsed<serde_json::Map<String, Json>> {
    if request.method() != Method::POST {
        return Err(Fault::new(405, format!("{} is not for this address: use POST", request.method())));
    }
    allowed(app, &request)?;
    let announced =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let large = || Fault::new(413, format!("the body is larger than {} bytes", app.limits.body));
    if announced.is_some_and(|length| length > app.limits.body as u64) {
        return Err(large());
    }
    let read = axum::body::to_bytes(request.into_body(), app.limits.body);
    match tokio::time::timeout(app.limits.patience, read).await {
        Ok(Ok(bytes)) => api::object(&bytes),
        Ok(Err(_)) => Err(large()),
        Err(_) => {
            count(&app.served.metrics.slow, 1);
            let seconds = app.limits.patience.as_secs_f64();
            Err(Fault::new(StatusCode::REQUEST_TIMEOUT.as_u16(), format!("the body did not come within {seconds} s")))
        }
    }
}
