//! The rendezvous: how ranks connect to each other over TCP.
//!
//! Rank 0 listens at an address that all ranks know. Every other rank sends it a greeting with its version, its rank, the number
//! of ranks, its mesh, and the address where it listens itself. Rank 0 rejects all ranks if one differs, otherwise it sends
//! everyone the list of addresses. Then each rank connects to the lower ranks.
//!
//! The side that accepts a connection first sends a random challenge; the greeting contains a proof of the shared secret for it,
//! and the answer contains one for the greeting's challenge. Connections without a proof are dropped without effect: they are
//! read concurrently, each with a short timeout, and their number is limited.

use crate::error::{Error, Result};
use crate::launch::ProcessInfo;
use crate::message_queue::comm_timeout;
use crate::secret::{Mac, MacKey, Nonce};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The version of the code and of the protocol, which must be equal on all ranks.
pub const VERSION: &str = concat!("tensorloom ", env!("CARGO_PKG_VERSION"), " wire 3");

/// The maximum size of a greeting or answer.
const MAX_GREETING: usize = 1 << 20;
/// The timeout for the greeting of a connection.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of connections without a complete greeting; beyond this the oldest is dropped.
const MAX_GREETERS: usize = 256;
/// The number of retries if a greeting is not answered.
const MAX_RETRIES: usize = 3;

const MAGIC: &[u8; 4] = b"LOOM";

fn start(text: String) -> Error {
    Error::Rendezvous(text)
}

/// The timeout of the rendezvous.
fn rendezvous_timeout() -> Duration {
    comm_timeout().min(Duration::from_secs(120))
}

/// The greeting of a rank: its configuration and the address where it listens.
#[derive(Clone, Debug)]
struct Greeting {
    version: String,
    rank: usize,
    world: usize,
    config_fingerprint: String,
    port: u16,
    /// The challenge for the proof in the answer.
    challenge: Nonce,
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

pub(crate) fn get_exact<const N: usize>(from: &mut impl Read) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn get_text(from: &mut impl Read) -> std::io::Result<String> {
    let n = u32::from_le_bytes(get_exact(from)?) as usize;
    if n > 1 << 16 {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "a string that is too long"));
    }
    let mut bytes = vec![0; n];
    from.read_exact(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| std::io::Error::new(ErrorKind::InvalidData, "a string that is not UTF-8"))
}

impl Greeting {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.version);
        out.extend((self.rank as u32).to_le_bytes());
        out.extend((self.world as u32).to_le_bytes());
        put_text(&mut out, &self.config_fingerprint);
        out.extend(self.port.to_le_bytes());
        out.extend(self.challenge);
        out
    }

    fn from_bytes(mut from: &[u8]) -> std::io::Result<Greeting> {
        Ok(Greeting {
            version: get_text(&mut from)?,
            rank: u32::from_le_bytes(get_exact(&mut from)?) as usize,
            world: u32::from_le_bytes(get_exact(&mut from)?) as usize,
            config_fingerprint: get_text(&mut from)?,
            port: u16::from_le_bytes(get_exact(&mut from)?),
            challenge: get_exact(&mut from)?,
        })
    }
}

/// A message with its proof: length, bytes, proof.
fn framed(key: &MacKey, role: &str, challenge: &Nonce, message: &[u8]) -> Vec<u8> {
    let mut out = (message.len() as u32).to_le_bytes().to_vec();
    out.extend(message);
    out.extend(key.prove(role, challenge, message));
    out
}

/// A connection that is not authenticated yet.
struct UnauthenticatedPeer {
    stream: TcpStream,
    from: SocketAddr,
    connected_at: Instant,
    challenge: Nonce,
    received: Vec<u8>,
}

impl UnauthenticatedPeer {
    /// Reads the greeting: returns it when complete, an error if it is invalid, or none if it is incomplete.
    fn read(&mut self, key: &MacKey) -> Option<std::result::Result<Greeting, ()>> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Some(Err(())),
                Ok(n) => self.received.extend(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Some(Err(())),
            }
            if self.received.len() > MAX_GREETING + 36 {
                return Some(Err(()));
            }
        }
        let length = u32::from_le_bytes(*self.received.first_chunk()?) as usize;
        if length > MAX_GREETING {
            return Some(Err(()));
        }
        let rest = &self.received[4..];
        if rest.len() < length + 32 {
            return (self.connected_at.elapsed() > GREETING_TIMEOUT).then_some(Err(()));
        }
        let (message, proof) = rest.split_at(length);
        let proof: Option<&Mac> = proof.first_chunk().filter(|_| proof.len() == 32);
        let proved = proof.is_some_and(|proof| key.verify("hello", &self.challenge, message, proof));
        Some(Greeting::from_bytes(message).map_err(drop).and_then(|hello| if proved { Ok(hello) } else { Err(()) }))
    }
}

/// An authenticated rank of this launch.
struct AuthenticatedPeer {
    stream: TcpStream,
    from: SocketAddr,
    hello: Greeting,
}

impl AuthenticatedPeer {
    fn answer(&mut self, key: &MacKey, message: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(&framed(key, "answer", &self.hello.challenge, message))
    }

    fn refuse(&mut self, key: &MacKey, reason: &str) {
        let mut message = vec![0];
        put_text(&mut message, reason);
        let _ = self.answer(key, &message);
    }
}

/// The connections that a listener accepts.
struct AcceptQueue<'a> {
    listener: TcpListener,
    key: &'a MacKey,
    greeters: Vec<UnauthenticatedPeer>,
    dropped: usize,
}

impl<'a> AcceptQueue<'a> {
    fn new(listener: TcpListener, key: &'a MacKey) -> Result<AcceptQueue<'a>> {
        listener.set_nonblocking(true).map_err(|e| start(format!("cannot accept connections: {e}")))?;
        Ok(AcceptQueue { listener, key, greeters: Vec::new(), dropped: 0 })
    }

    /// The next rank that authenticates before the deadline.
    fn next(&mut self, until: Instant, missing: &dyn Fn() -> String) -> Result<AuthenticatedPeer> {
        loop {
            self.accept()?;
            let mut i = 0;
            while i < self.greeters.len() {
                let Some(read) = self.greeters[i].read(self.key) else {
                    if self.greeters[i].connected_at.elapsed() > GREETING_TIMEOUT {
                        self.greeters.remove(i);
                        self.dropped += 1;
                    } else {
                        i += 1;
                    }
                    continue;
                };
                let UnauthenticatedPeer { stream, from, .. } = self.greeters.remove(i);
                match read {
                    Ok(hello) => {
                        let ready = stream.set_nonblocking(false);
                        // A rank that does not read its answer blocks the others for at most five seconds.
                        let ready = ready.and_then(|()| stream.set_write_timeout(Some(Duration::from_secs(5))));
                        ready.map_err(|e| start(format!("cannot accept connections: {e}")))?;
                        return Ok(AuthenticatedPeer { stream, from, hello });
                    }
                    Err(()) => self.dropped += 1,
                }
            }
            if Instant::now() >= until {
                let strangers = match self.dropped {
                    0 => String::new(),
                    n => format!(
                        "; {n} connections without this start's secret were dropped: give all ranks the same LOOM_TOKEN or \
                         LOOM_TOKEN_FILE"
                    ),
                };
                return Err(start(format!("{} did not connect; were all ranks started?{strangers}", missing())));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Accepts pending connections, and sends them challenges.
    fn accept(&mut self) -> Result<()> {
        for _ in 0..MAX_GREETERS {
            let (mut stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The peer has disconnected, or the process has too many open files.
                Err(_) => return Ok(()),
            };
            let challenge = MacKey::challenge()?;
            let hail = [&MAGIC[..], &challenge].concat();
            // The send buffer of a new connection has space for the challenge.
            if stream.set_nonblocking(true).and_then(|()| stream.write_all(&hail)).is_err() {
                self.dropped += 1;
                continue;
            }
            if self.greeters.len() == MAX_GREETERS {
                self.greeters.remove(0);
                self.dropped += 1;
            }
            self.greeters.push(UnauthenticatedPeer {
                stream,
                from,
                connected_at: Instant::now(),
                challenge,
                received: Vec::new(),
            });
        }
        Ok(())
    }
}

fn resolve(address: &str) -> Result<SocketAddr> {
    let fault = |e: String| start(format!("`{address}` is not a valid address of rank 0: {e}; write host:port"));
    let mut all = address.to_socket_addrs().map_err(|e| fault(e.to_string()))?;
    all.next().ok_or_else(|| fault("no such host".into()))
}

/// Connects to an address where a rank will listen soon.
fn connect(address: SocketAddr, until: Instant, whom: &str) -> Result<TcpStream> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let step = left.clamp(Duration::from_millis(10), Duration::from_secs(5));
        match TcpStream::connect_timeout(&address, step) {
            Ok(stream) => return Ok(stream),
            Err(e) if left.is_zero() => {
                return Err(start(format!(
                    "cannot connect to {whom} at {address}: {e}; check that it was started and that the address is \
                     correct"
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The addresses of a rank.
type Addresses = Vec<(IpAddr, u16)>;

/// Connects to every other rank; `about` is the configuration that all must agree on besides versions and numbers: the mesh.
pub(crate) fn join(place: &ProcessInfo, about: &str) -> Result<Vec<Option<TcpStream>>> {
    if place.world_size == 1 {
        return Ok(vec![None]);
    }
    let (until, key) = (Instant::now() + rendezvous_timeout(), place.secret.key()?);
    match place.rank {
        0 => gather(place, about, &key, until),
        _ => greet(place, about, &key, until),
    }
}

fn listen(address: SocketAddr, whose: &str) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|e| {
        let remedy = match e.kind() {
            ErrorKind::AddrInUse => {
                "the port is in use: choose another (LOOM_ADDRESS=host:port, `loom launch --port`), or wait until the \
                 other run has finished"
            }
            ErrorKind::AddrNotAvailable => {
                "the address does not belong to this machine: rank 0 must run on the machine in LOOM_ADDRESS"
            }
            _ => "choose another address",
        };
        start(format!("{whose} cannot listen on {address}: {e}; {remedy}"))
    })
}

/// The reason why an authenticated rank is incompatible, if it is.
fn incompatibility(hello: &Greeting, about: &str, world: usize, here: &[Option<AuthenticatedPeer>]) -> Option<String> {
    if hello.version != VERSION {
        return Some(format!(
            "rank {} runs `{}`, but rank 0 runs `{VERSION}`: install the same version everywhere",
            hello.rank, hello.version
        ));
    }
    if hello.world != world {
        return Some(format!(
            "rank {} was started with world size {}, but rank 0 with {world}",
            hello.rank, hello.world
        ));
    }
    if hello.config_fingerprint != about {
        return Some(format!(
            "rank {} has the mesh {}, but rank 0 has {about}: give all ranks the same",
            hello.rank, hello.config_fingerprint
        ));
    }
    if hello.rank == 0 || hello.rank >= world || here[hello.rank].is_some() {
        return Some(format!("two processes have the rank {}", hello.rank));
    }
    None
}

/// Rank 0: waits for all ranks, checks their compatibility, and sends them the addresses of the others.
fn gather(place: &ProcessInfo, about: &str, key: &MacKey, until: Instant) -> Result<Vec<Option<TcpStream>>> {
    let world = place.world_size;
    let mut here: Vec<Option<AuthenticatedPeer>> = (0..world).map(|_| None).collect();
    let mut arrivals = AcceptQueue::new(listen(resolve(&place.master_addr)?, "rank 0")?, key)?;
    while here[1..].iter().any(Option::is_none) {
        let missing = || {
            let ranks: Vec<String> = (1..world).filter(|&r| here[r].is_none()).map(|r| r.to_string()).collect();
            format!("rank {}", ranks.join(", "))
        };
        let mut arrival = arrivals.next(until, &missing)?;
        if let Some(reason) = incompatibility(&arrival.hello, about, world, &here) {
            here.iter_mut().flatten().chain([&mut arrival]).for_each(|rank| rank.refuse(key, &reason));
            return Err(start(reason));
        }
        let rank = arrival.hello.rank;
        here[rank] = Some(arrival);
    }
    let mut list = vec![1];
    for arrival in here.iter().flatten() {
        put_text(&mut list, &arrival.from.ip().to_string());
        list.extend(arrival.hello.port.to_le_bytes());
    }
    for (rank, arrival) in here.iter_mut().enumerate() {
        if let Some(arrival) = arrival {
            arrival.answer(key, &list).map_err(|e| Error::RankLost { rank, reason: e.to_string() })?;
        }
    }
    Ok(here.into_iter().map(|arrival| arrival.map(|arrival| arrival.stream)).collect())
}

/// Sends a greeting to a listener, and returns its authenticated answer.
fn greet_at(
    stream: &mut TcpStream,
    key: &MacKey,
    hello: &mut Greeting,
    patience: Duration,
) -> std::io::Result<Vec<u8>> {
    let invalid = |what: &str| std::io::Error::new(ErrorKind::InvalidData, what.to_string());
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    if &get_exact::<4>(stream)? != MAGIC {
        return Err(invalid("it does not use the protocol of a rank"));
    }
    let theirs: Nonce = get_exact(stream)?;
    hello.challenge = MacKey::challenge().map_err(|e| invalid(&e.to_string()))?;
    stream.write_all(&framed(key, "hello", &theirs, &hello.to_bytes()))?;
    stream.set_read_timeout(Some(patience))?;
    let n = u32::from_le_bytes(get_exact(stream)?) as usize;
    if n > MAX_GREETING {
        return Err(invalid("a response that is too long"));
    }
    let mut message = Vec::new();
    stream.take(n as u64).read_to_end(&mut message)?;
    let proof: Mac = get_exact(stream)?;
    match key.verify("answer", &hello.challenge, &message, &proof) {
        true => Ok(message),
        false => Err(invalid("its secret is wrong")),
    }
}

/// Other ranks: greet rank 0, then connect to the lower ranks and wait for the higher ones.
fn greet(place: &ProcessInfo, about: &str, key: &MacKey, until: Instant) -> Result<Vec<Option<TcpStream>>> {
    let root = resolve(&place.master_addr)?;
    let left = || until.saturating_duration_since(Instant::now()) + Duration::from_secs(5);
    let fault = |e: std::io::Error| start(e.to_string());
    let mut stream = connect(root, until, "rank 0")?;
    let local = stream.local_addr().map_err(fault)?;
    let listener = listen(SocketAddr::new(local.ip(), 0), "this rank")?;
    let port = listener.local_addr().map_err(fault)?.port();
    let mut hello = Greeting {
        version: VERSION.to_string(),
        rank: place.rank,
        world: place.world_size,
        config_fingerprint: about.to_string(),
        port,
        challenge: [0; 32],
    };
    // The listener may have dropped this connection because it had too many.
    let mut attempt = |stream: &mut TcpStream, address: SocketAddr, whom: &str| -> Result<Vec<u8>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match greet_at(stream, key, &mut hello, left()) {
                Ok(answer) => return Ok(answer),
                Err(e) if tries == MAX_RETRIES || Instant::now() >= until => {
                    return Err(start(format!(
                        "the handshake with {whom} at {address} failed: {e}; see its own error message, or give all \
                         ranks the same LOOM_TOKEN or LOOM_TOKEN_FILE"
                    )));
                }
                Err(_) => *stream = connect(address, until, whom)?,
            }
        }
    };
    let answer = attempt(&mut stream, root, "rank 0")?;
    let mut answer = &answer[..];
    let lost = |e: std::io::Error| start(format!("cannot read the response of rank 0: {e}"));
    if get_exact::<1>(&mut answer).map_err(lost)? == [0] {
        return Err(start(get_text(&mut answer).map_err(lost)?));
    }
    let mut addresses: Addresses = vec![(root.ip(), root.port())];
    for _ in 1..place.world_size {
        let ip = get_text(&mut answer).map_err(lost)?;
        let ip = ip.parse().map_err(|_| start(format!("rank 0 sent the invalid address `{ip}`")))?;
        addresses.push((ip, u16::from_le_bytes(get_exact(&mut answer).map_err(lost)?)));
    }
    let mut streams: Vec<Option<TcpStream>> = (0..place.world_size).map(|_| None).collect();
    streams[0] = Some(stream);
    // Higher ranks are answered while this rank waits for the lower ones.
    let (before, behind) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| -> Result<Vec<AuthenticatedPeer>> {
            let mut arrivals = AcceptQueue::new(listener, key)?;
            let mut here: Vec<AuthenticatedPeer> = Vec::new();
            while here.len() < place.world_size - 1 - place.rank {
                let mut arrival = arrivals.next(until, &|| "a later rank".to_string())?;
                let rank = arrival.hello.rank;
                let fits =
                    rank > place.rank && rank < place.world_size && here.iter().all(|other| other.hello.rank != rank);
                if fits && arrival.answer(key, &[1]).is_ok() {
                    here.push(arrival);
                }
            }
            Ok(here)
        });
        let mut before = Vec::new();
        for (rank, (ip, port)) in addresses.iter().enumerate().take(place.rank).skip(1) {
            let (address, whom) = (SocketAddr::new(*ip, *port), format!("rank {rank}"));
            let connected = connect(address, until, &whom).and_then(|mut stream| {
                attempt(&mut stream, address, &whom)?;
                Ok(stream)
            });
            before.push((rank, connected));
        }
        (before, waiting.join())
    });
    for (rank, stream) in before {
        streams[rank] = Some(stream?);
    }
    for arrival in behind.unwrap_or_else(|_| Err(start("waiting for other ranks failed".into())))? {
        streams[arrival.hello.rank] = Some(arrival.stream);
    }
    Ok(streams)
}
