//! The report of a running training: a page and its data over HTTP, for this machine alone.

use crate::error::{Error, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The default port.
const DEFAULT_PORT: u16 = 6868;
/// Read timeout of a connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_CONNECTIONS: usize = 16;
/// Maximum size of a request in bytes.
const MAX_REQUEST_BYTES: usize = 8 << 10;

/// The current page and its data.
#[derive(Default)]
struct ReportSnapshot {
    page: String,
    numbers: String,
}

/// An HTTP server of the report.
pub(crate) struct LiveServer {
    address: SocketAddr,
    snapshot: Arc<Mutex<ReportSnapshot>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveServer {
    /// Serves on the given port, or on a free one near the default.
    pub(crate) fn start(port: Option<u16>) -> Result<LiveServer> {
        let local = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = match port {
            Some(port) => local(port),
            None => (DEFAULT_PORT..DEFAULT_PORT + 20).find_map(|port| local(port).ok()).map_or_else(|| local(0), Ok),
        };
        let fault = |e: std::io::Error| {
            Error::Input(format!("cannot serve the dashboard: {e}; give another port with `--dashboard=PORT`"))
        };
        let listener = listener.map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let (shown, over) = (Arc::new(Mutex::new(ReportSnapshot::default())), Arc::new(AtomicBool::new(false)));
        let (inside, ended) = (shown.clone(), over.clone());
        let thread = std::thread::spawn(move || serve(&listener, &inside, &ended));
        Ok(LiveServer { address, snapshot: shown, stopped: over, thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the page and its data.
    pub(crate) fn update(&self, page: String, numbers: String) {
        *self.snapshot.lock().unwrap_or_else(|e| e.into_inner()) = ReportSnapshot { page, numbers };
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, shown: &Arc<Mutex<ReportSnapshot>>, over: &AtomicBool) {
    let busy = Arc::new(AtomicUsize::new(0));
    while !over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) if busy.load(Ordering::Relaxed) < MAX_CONNECTIONS => {
                let (shown, busy) = (shown.clone(), busy.clone());
                busy.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let _ = handle_connection(stream, &shown);
                    busy.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(40)),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn handle_connection(mut stream: TcpStream, shown: &Mutex<ReportSnapshot>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let (mut request, mut block) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut block)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&block[..n]),
        }
        if request.len() > MAX_REQUEST_BYTES {
            break;
        }
    }
    let line = String::from_utf8_lossy(&request);
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let (status, kind, body) = {
        let shown = shown.lock().unwrap_or_else(|e| e.into_inner());
        match (method, path) {
            ("GET" | "HEAD", "/") => ("200 OK", "text/html; charset=utf-8", shown.page.clone()),
            ("GET" | "HEAD", "/data.json") => ("200 OK", "application/json", shown.numbers.clone()),
            ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "not found: use / or /data.json\n".to_string()),
            _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_string()),
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if method != "HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut found = String::new();
        let _ = stream.read_to_string(&mut found);
        found
    }

    #[test]
    fn what_is_shown_is_served_and_nothing_else() {
        let live = LiveServer::start(None).expect("a port");
        live.update("<p>page</p>".into(), "{\"a\":1}".into());
        let get = |path: &str| ask(live.address(), &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(get("/").ends_with("<p>page</p>") && get("/").starts_with("HTTP/1.1 200"));
        assert!(get("/data.json?x=1").ends_with("{\"a\":1}"));
        live.update(String::new(), "{\"a\":2}".into());
        assert!(get("/data.json").ends_with("{\"a\":2}"));
        assert!(get("/etc/passwd").starts_with("HTTP/1.1 404"));
        assert!(ask(live.address(), "DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        // A request that never ends is closed, and others are answered meanwhile.
        let _slow = TcpStream::connect(live.address()).expect("it listens");
        assert!(get("/data.json").ends_with("{\"a\":2}"));
        let (taken, address) = (live.address().port(), live.address());
        assert!(LiveServer::start(Some(taken)).is_err());
        drop(live);
        assert!(TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_err());
    }
}
