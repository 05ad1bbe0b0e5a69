//! Ranks as processes that talk over TCP.
//!
//! Rank 0 listens at an address that all know. Every other rank greets it with its version, its rank, how many ranks and
//! which mesh it was started for, and where it listens itself; rank 0 refuses all if one differs, else gives everyone the
//! list. Then each connects to those before it. Between two ranks there is one connection: a thread reads it into the
//! mailbox, another writes what is to be sent, so nobody waits to send. A connection that ends without goodbye means that its
//! rank is gone: whoever sees it tells the rest.

use crate::error::{Error, Result};
use crate::launch::Place;
use crate::mail::{Mailbox, patience};
use crate::transport::{Tag, Transport};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a process must be to take part: this version of the code and of what goes over the wire.
pub const VERSION: &str = concat!("tensorloom ", env!("CARGO_PKG_VERSION"), " wire 2");

/// The longest message that is believed.
const LONGEST: u64 = 1 << 40;

const DATA: u8 = 1;
const BYE: u8 = 2;
const ABORT: u8 = 3;

/// A rank over TCP.
pub struct Tcp {
    rank: usize,
    world: usize,
    mail: Arc<Mailbox>,
    /// To each other rank's writer.
    peers: Vec<Option<Sender<Vec<u8>>>>,
    streams: Vec<Option<TcpStream>>,
    writers: Mutex<Vec<JoinHandle<()>>>,
}

fn start(text: String) -> Error {
    Error::Start(text)
}

/// How long ranks have to find each other.
fn start_patience() -> Duration {
    patience().min(Duration::from_secs(120))
}

/// Greeting of a rank: what it is, and where it listens.
#[derive(Debug)]
struct Hello {
    version: String,
    token: u64,
    rank: usize,
    world: usize,
    about: String,
    port: u16,
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

fn get_exact<const N: usize>(from: &mut impl Read) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn get_text(from: &mut impl Read) -> std::io::Result<String> {
    let n = u32::from_le_bytes(get_exact(from)?) as usize;
    if n > 1 << 16 {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "a text that is too long"));
    }
    let mut bytes = vec![0; n];
    from.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| std::io::Error::new(ErrorKind::InvalidData, "a text that is none"))
}

impl Hello {
    fn send(&self, to: &mut impl Write) -> std::io::Result<()> {
        let mut out = b"LOOM".to_vec();
        put_text(&mut out, &self.version);
        out.extend(self.token.to_le_bytes());
        out.extend((self.rank as u32).to_le_bytes());
        out.extend((self.world as u32).to_le_bytes());
        put_text(&mut out, &self.about);
        out.extend(self.port.to_le_bytes());
        to.write_all(&out)
    }

    fn receive(from: &mut impl Read) -> std::io::Result<Hello> {
        if &get_exact::<4>(from)? != b"LOOM" {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "a stranger"));
        }
        Ok(Hello {
            version: get_text(from)?,
            token: u64::from_le_bytes(get_exact(from)?),
            rank: u32::from_le_bytes(get_exact(from)?) as usize,
            world: u32::from_le_bytes(get_exact(from)?) as usize,
            about: get_text(from)?,
            port: u16::from_le_bytes(get_exact(from)?),
        })
    }
}

fn resolve(address: &str) -> Result<SocketAddr> {
    let fault = |e: String| start(format!("`{address}` is no address of rank 0: {e}; write host:port"));
    let mut all = address.to_socket_addrs().map_err(|e| fault(e.to_string()))?;
    all.next().ok_or_else(|| fault("no such host".into()))
}

/// Connects to an address where someone will listen soon.
fn connect(address: SocketAddr, until: Instant, whom: &str) -> Result<TcpStream> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let step = left.clamp(Duration::from_millis(10), Duration::from_secs(5));
        match TcpStream::connect_timeout(&address, step) {
            Ok(stream) => return Ok(stream),
            Err(e) if left.is_zero() => {
                return Err(start(format!(
                    "{whom} can't be reached at {address}: {e}; was it started, and is the address right?"
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Accepts a connection before time is over.
fn accept(listener: &TcpListener, until: Instant, missing: &dyn Fn() -> String) -> Result<(TcpStream, SocketAddr)> {
    let fault = |e: std::io::Error| start(format!("connections can't be accepted: {e}"));
    listener.set_nonblocking(true).map_err(fault)?;
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false).map_err(fault)?;
                return Ok((stream, from));
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if Instant::now() >= until {
                    return Err(start(format!("{} did not come; were all ranks started?", missing())));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(fault(e)),
        }
    }
}

/// Where a rank can be reached.
type Addresses = Vec<(IpAddr, u16)>;

impl Tcp {
    /// Finds the other ranks; `about` is what all must agree on besides versions and numbers: the mesh.
    pub fn join(place: &Place, about: &str) -> Result<Tcp> {
        let until = Instant::now() + start_patience();
        let streams = match place.rank {
            0 => gather(place, about, until)?,
            _ => greet(place, about, until)?,
        };
        Tcp::over(place.rank, streams)
    }

    /// Over connections that stand, one to each other rank.
    fn over(rank: usize, streams: Vec<Option<TcpStream>>) -> Result<Tcp> {
        let world = streams.len();
        let mail = Arc::new(Mailbox::new(world));
        let (mut peers, mut writers) = (Vec::new(), Vec::new());
        for (other, stream) in streams.iter().enumerate() {
            let Some(stream) = stream else {
                peers.push(None);
                continue;
            };
            let fault = |e: std::io::Error| start(format!("the connection to rank {other}: {e}"));
            stream.set_nodelay(true).map_err(fault)?;
            stream.set_read_timeout(None).map_err(fault)?;
            let (to_read, to_write) = (stream.try_clone().map_err(fault)?, stream.try_clone().map_err(fault)?);
            let own = mail.clone();
            std::thread::spawn(move || read_all(to_read, other, &own));
            let (sender, receiver) = channel();
            writers.push(std::thread::spawn(move || write_all(to_write, &receiver)));
            peers.push(Some(sender));
        }
        Ok(Tcp { rank, world, mail, peers, streams, writers: Mutex::new(writers) })
    }

    fn send(&self, to: usize, message: Vec<u8>) {
        // A writer that is gone means a connection that is gone, which the reader has seen.
        if let Some(Some(peer)) = self.peers.get(to) {
            let _ = peer.send(message);
        }
    }
}

fn listen(address: SocketAddr, whose: &str) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|e| {
        let remedy = match e.kind() {
            ErrorKind::AddrInUse => {
                "the port is in use: choose another (LOOM_ADDRESS=host:port, `loom launch --port`), or wait \
                                     until the other run has ended"
            }
            ErrorKind::AddrNotAvailable => {
                "the address is not this machine's: rank 0 must run where LOOM_ADDRESS points"
            }
            _ => "choose another address",
        };
        start(format!("{whose} can't listen at {address}: {e}; {remedy}"))
    })
}

/// Rank 0: waits for all, looks whether they fit, and tells them where the others are.
fn gather(place: &Place, about: &str, until: Instant) -> Result<Vec<Option<TcpStream>>> {
    let world = place.world;
    let mut streams: Vec<Option<TcpStream>> = (0..world).map(|_| None).collect();
    let mut addresses: Addresses = vec![(IpAddr::from([0, 0, 0, 0]), 0); world];
    if world == 1 {
        return Ok(streams);
    }
    let address = resolve(&place.address)?;
    let listener = listen(address, "rank 0")?;
    let mut wrong: Option<String> = None;
    while wrong.is_none() && streams[1..].iter().any(Option::is_none) {
        let missing = || {
            let ranks: Vec<String> = (1..world).filter(|&r| streams[r].is_none()).map(|r| r.to_string()).collect();
            format!("rank {}", ranks.join(", "))
        };
        let (mut stream, from) = accept(&listener, until, &missing)?;
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        // Strangers are not answered.
        let Ok(hello) = Hello::receive(&mut stream) else { continue };
        if hello.token != place.token {
            wrong = Some(format!("a process from {from} belongs to another start; choose another port"));
        } else if hello.version != VERSION {
            wrong = Some(format!(
                "rank {} runs `{}` and rank 0 runs `{VERSION}`: install one version everywhere",
                hello.rank, hello.version
            ));
        } else if hello.world != world {
            wrong =
                Some(format!("rank {} was started as one of {}, rank 0 as one of {world}", hello.rank, hello.world));
        } else if hello.about != about {
            wrong = Some(format!(
                "rank {} has the mesh {}, rank 0 has {about}: give all the same",
                hello.rank, hello.about
            ));
        } else if hello.rank == 0 || hello.rank >= world || streams[hello.rank].is_some() {
            wrong = Some(format!("two processes say that they are rank {}", hello.rank));
        }
        let at = if hello.rank < world && streams[hello.rank].is_none() { hello.rank } else { 0 };
        if at == 0 {
            let _ = refuse(&mut stream, wrong.as_deref().unwrap_or("not expected"));
            continue;
        }
        addresses[at] = (from.ip(), hello.port);
        streams[at] = Some(stream);
    }
    if let Some(reason) = wrong {
        streams.iter_mut().flatten().for_each(|s| {
            let _ = refuse(s, &reason);
        });
        return Err(start(reason));
    }
    let mut list = vec![1];
    for (ip, port) in &addresses[1..] {
        put_text(&mut list, &ip.to_string());
        list.extend(port.to_le_bytes());
    }
    for (rank, stream) in streams.iter_mut().enumerate() {
        if let Some(stream) = stream {
            stream.write_all(&list).map_err(|e| Error::Gone { rank, reason: e.to_string() })?;
        }
    }
    Ok(streams)
}

fn refuse(stream: &mut TcpStream, reason: &str) -> std::io::Result<()> {
    let mut out = vec![0];
    put_text(&mut out, reason);
    stream.write_all(&out)
}

/// Any other rank: greets rank 0, then connects to those before it and waits for those behind it.
fn greet(place: &Place, about: &str, until: Instant) -> Result<Vec<Option<TcpStream>>> {
    let root = resolve(&place.address)?;
    let mut stream = connect(root, until, "rank 0")?;
    let local = stream.local_addr().map_err(|e| start(e.to_string()))?;
    let listener = listen(SocketAddr::new(local.ip(), 0), "this rank")?;
    let port = listener.local_addr().map_err(|e| start(e.to_string()))?.port();
    let hello = |rank| Hello {
        version: VERSION.to_string(),
        token: place.token,
        rank,
        world: place.world,
        about: about.to_string(),
        port,
    };
    let lost = |e: std::io::Error| start(format!("rank 0 ended the conversation: {e}; its own message says why"));
    hello(place.rank).send(&mut stream).map_err(lost)?;
    let left = until.saturating_duration_since(Instant::now()) + Duration::from_secs(5);
    stream.set_read_timeout(Some(left)).map_err(lost)?;
    if get_exact::<1>(&mut stream).map_err(lost)? == [0] {
        return Err(start(get_text(&mut stream).map_err(lost)?));
    }
    let mut addresses: Addresses = vec![(root.ip(), root.port())];
    for _ in 1..place.world {
        let ip = get_text(&mut stream).map_err(lost)?;
        let ip = ip.parse().map_err(|_| start(format!("rank 0 gave `{ip}` as an address")))?;
        addresses.push((ip, u16::from_le_bytes(get_exact(&mut stream).map_err(lost)?)));
    }
    let mut streams: Vec<Option<TcpStream>> = (0..place.world).map(|_| None).collect();
    streams[0] = Some(stream);
    for rank in 1..place.rank {
        let (ip, port) = addresses[rank];
        let mut stream = connect(SocketAddr::new(ip, port), until, &format!("rank {rank}"))?;
        hello(place.rank).send(&mut stream).map_err(|e| Error::Gone { rank, reason: e.to_string() })?;
        streams[rank] = Some(stream);
    }
    while streams[place.rank + 1..].iter().any(Option::is_none) {
        let missing = || "a rank behind this one".to_string();
        let (mut stream, _) = accept(&listener, until, &missing)?;
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let Ok(hello) = Hello::receive(&mut stream) else { continue };
        if hello.token == place.token && hello.rank > place.rank && hello.rank < place.world {
            streams[hello.rank] = Some(stream);
        }
    }
    Ok(streams)
}

/// Reads messages of a rank until it says goodbye, or is gone.
fn read_all(mut stream: TcpStream, from: usize, mail: &Mailbox) {
    let mut next = || -> std::io::Result<bool> {
        match get_exact::<1>(&mut stream)?[0] {
            DATA => {
                let tag = Tag::from_bytes(get_exact(&mut stream)?);
                let n = u64::from_le_bytes(get_exact(&mut stream)?);
                if n > LONGEST {
                    return Err(std::io::Error::new(ErrorKind::InvalidData, "a message that is too long"));
                }
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(n as usize).map_err(|_| ErrorKind::OutOfMemory)?;
                bytes.resize(n as usize, 0);
                stream.read_exact(&mut bytes)?;
                mail.put(from, tag, bytes);
                Ok(true)
            }
            BYE => {
                mail.finished(from);
                Ok(false)
            }
            ABORT => {
                let rank = u32::from_le_bytes(get_exact(&mut stream)?) as usize;
                mail.gone(rank, &get_text(&mut stream)?);
                Ok(false)
            }
            other => Err(std::io::Error::new(ErrorKind::InvalidData, format!("a message of kind {other}"))),
        }
    };
    loop {
        match next() {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) if mail.has_finished(from) => return,
            Err(e) => {
                let reason = match e.kind() {
                    ErrorKind::UnexpectedEof => "its process ended without goodbye".to_string(),
                    _ => format!("its connection broke: {e}"),
                };
                return mail.gone(from, &reason);
            }
        }
    }
}

fn write_all(mut stream: TcpStream, messages: &Receiver<Vec<u8>>) {
    for message in messages {
        if stream.write_all(&message).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn exchange(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        self.mail.check()?;
        for (to, bytes) in sends {
            let mut message = Vec::with_capacity(21 + bytes.len());
            message.push(DATA);
            message.extend(tag.to_bytes());
            message.extend((bytes.len() as u64).to_le_bytes());
            message.extend_from_slice(bytes);
            self.send(*to, message);
        }
        receives.iter_mut().try_for_each(|(from, to)| self.mail.take(*from, tag, to))
    }

    fn gone(&self) -> Option<Error> {
        self.mail.check().err()
    }

    fn abort(&self, rank: usize, reason: &str) {
        let mut message = vec![ABORT];
        message.extend((rank as u32).to_le_bytes());
        put_text(&mut message, &reason.chars().take(2000).collect::<String>());
        (0..self.world).for_each(|to| self.send(to, message.clone()));
    }

    fn finish(&self) {
        (0..self.world).for_each(|to| self.send(to, vec![BYE]));
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // What was sent must reach the others before the process ends.
        self.peers.clear();
        let writers = std::mem::take(&mut *self.writers.lock().unwrap_or_else(PoisonError::into_inner));
        for writer in writers {
            let _ = writer.join();
        }
        self.streams.clear();
    }
}
