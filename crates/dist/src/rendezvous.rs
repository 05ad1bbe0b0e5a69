//! How ranks find each other over TCP.
//!
//! Rank 0 listens at an address that all know. Every other rank greets it with its version, its rank, how many ranks and which
//! mesh it was started for, and where it listens itself; rank 0 refuses all if one differs, else gives everyone the list. Then
//! each connects to those before it.
//!
//! Who accepts a connection sends a random challenge first; the greeting comes back with a proof of the shared secret over it, and
//! the answer carries one over the greeting's own challenge. Connections without a proof are dropped and change nothing: they are
//! read side by side, each for a short time, and only so many of them.

use crate::error::{Error, Result};
use crate::launch::Place;
use crate::mail::patience;
use crate::secret::{Key, Mac, Nonce};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// What a process must be to take part: this version of the code and of what goes over the wire.
pub const VERSION: &str = concat!("tensorloom ", env!("CARGO_PKG_VERSION"), " wire 3");

/// The longest greeting or answer.
const LONGEST: usize = 1 << 20;
/// How long a connection may take to greet.
const GREETING: Duration = Duration::from_secs(2);
/// Connections that may be greeting at a time; the oldest makes room.
const GREETERS: usize = 256;
/// How often a rank greets again when it is not answered.
const TRIES: usize = 3;

const MAGIC: &[u8; 4] = b"LOOM";

fn start(text: String) -> Error {
    Error::Start(text)
}

/// How long ranks have to find each other.
fn start_patience() -> Duration {
    patience().min(Duration::from_secs(120))
}

/// Greeting of a rank: what it is, and where it listens.
#[derive(Clone, Debug)]
struct Hello {
    version: String,
    rank: usize,
    world: usize,
    about: String,
    port: u16,
    /// What the answer proves the secret over.
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

impl Hello {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.version);
        out.extend((self.rank as u32).to_le_bytes());
        out.extend((self.world as u32).to_le_bytes());
        put_text(&mut out, &self.about);
        out.extend(self.port.to_le_bytes());
        out.extend(self.challenge);
        out
    }

    fn from_bytes(mut from: &[u8]) -> std::io::Result<Hello> {
        Ok(Hello {
            version: get_text(&mut from)?,
            rank: u32::from_le_bytes(get_exact(&mut from)?) as usize,
            world: u32::from_le_bytes(get_exact(&mut from)?) as usize,
            about: get_text(&mut from)?,
            port: u16::from_le_bytes(get_exact(&mut from)?),
            challenge: get_exact(&mut from)?,
        })
    }
}

/// A message with its proof: length, bytes, proof.
fn framed(key: &Key, role: &str, challenge: &Nonce, message: &[u8]) -> Vec<u8> {
    let mut out = (message.len() as u32).to_le_bytes().to_vec();
    out.extend(message);
    out.extend(key.prove(role, challenge, message));
    out
}

/// A connection that has not proved anything yet.
struct Greeter {
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
    challenge: Nonce,
    came: Vec<u8>,
}

impl Greeter {
    /// What has come of its greeting: all of it, nothing more to wait for, or not enough yet.
    fn read(&mut self, key: &Key) -> Option<std::result::Result<Hello, ()>> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Some(Err(())),
                Ok(n) => self.came.extend(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Some(Err(())),
            }
            if self.came.len() > LONGEST + 36 {
                return Some(Err(()));
            }
        }
        let length = u32::from_le_bytes(*self.came.first_chunk()?) as usize;
        if length > LONGEST {
            return Some(Err(()));
        }
        let rest = &self.came[4..];
        if rest.len() < length + 32 {
            return (self.since.elapsed() > GREETING).then_some(Err(()));
        }
        let (message, proof) = rest.split_at(length);
        let proof: Option<&Mac> = proof.first_chunk().filter(|_| proof.len() == 32);
        let proved = proof.is_some_and(|proof| key.accepts("hello", &self.challenge, message, proof));
        Some(Hello::from_bytes(message).map_err(drop).and_then(|hello| if proved { Ok(hello) } else { Err(()) }))
    }
}

/// A rank that has proved that it belongs to this start.
struct Arrival {
    stream: TcpStream,
    from: SocketAddr,
    hello: Hello,
}

impl Arrival {
    fn answer(&mut self, key: &Key, message: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(&framed(key, "answer", &self.hello.challenge, message))
    }

    fn refuse(&mut self, key: &Key, reason: &str) {
        let mut message = vec![0];
        put_text(&mut message, reason);
        let _ = self.answer(key, &message);
    }
}

/// Connections that come to a listener.
struct Arrivals<'a> {
    listener: TcpListener,
    key: &'a Key,
    greeters: Vec<Greeter>,
    dropped: usize,
}

impl<'a> Arrivals<'a> {
    fn new(listener: TcpListener, key: &'a Key) -> Result<Arrivals<'a>> {
        listener.set_nonblocking(true).map_err(|e| start(format!("cannot accept connections: {e}")))?;
        Ok(Arrivals { listener, key, greeters: Vec::new(), dropped: 0 })
    }

    /// The next rank that proves itself before time is over.
    fn next(&mut self, until: Instant, missing: &dyn Fn() -> String) -> Result<Arrival> {
        loop {
            self.accept()?;
            let mut i = 0;
            while i < self.greeters.len() {
                let Some(read) = self.greeters[i].read(self.key) else {
                    if self.greeters[i].since.elapsed() > GREETING {
                        self.greeters.remove(i);
                        self.dropped += 1;
                    } else {
                        i += 1;
                    }
                    continue;
                };
                let Greeter { stream, from, .. } = self.greeters.remove(i);
                match read {
                    Ok(hello) => {
                        let ready = stream.set_nonblocking(false);
                        // A rank that does not read its answer blocks the others for five seconds at most.
                        let ready = ready.and_then(|()| stream.set_write_timeout(Some(Duration::from_secs(5))));
                        ready.map_err(|e| start(format!("cannot accept connections: {e}")))?;
                        return Ok(Arrival { stream, from, hello });
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

    /// Takes the connections that wait, and challenges them.
    fn accept(&mut self) -> Result<()> {
        for _ in 0..GREETERS {
            let (mut stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The other side has gone, or the process has too many open files at this moment.
                Err(_) => return Ok(()),
            };
            let challenge = Key::challenge()?;
            let hail = [&MAGIC[..], &challenge].concat();
            // A fresh connection takes so few bytes at once.
            if stream.set_nonblocking(true).and_then(|()| stream.write_all(&hail)).is_err() {
                self.dropped += 1;
                continue;
            }
            if self.greeters.len() == GREETERS {
                self.greeters.remove(0);
                self.dropped += 1;
            }
            self.greeters.push(Greeter { stream, from, since: Instant::now(), challenge, came: Vec::new() });
        }
        Ok(())
    }
}

fn resolve(address: &str) -> Result<SocketAddr> {
    let fault = |e: String| start(format!("`{address}` is not a valid address of rank 0: {e}; write host:port"));
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
                    "cannot connect to {whom} at {address}: {e}; check that it was started and that the address is \
                     correct"
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Where a rank can be reached.
type Addresses = Vec<(IpAddr, u16)>;

/// The connections of a rank to each other one; `about` is what all must agree on besides versions and numbers: the mesh.
pub(crate) fn join(place: &Place, about: &str) -> Result<Vec<Option<TcpStream>>> {
    if place.world == 1 {
        return Ok(vec![None]);
    }
    let (until, key) = (Instant::now() + start_patience(), place.secret.key()?);
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

/// Why a rank that has proved itself does not fit, if it does not.
fn misfit(hello: &Hello, about: &str, world: usize, here: &[Option<Arrival>]) -> Option<String> {
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
    if hello.about != about {
        return Some(format!(
            "rank {} has the mesh {}, but rank 0 has {about}: give all ranks the same",
            hello.rank, hello.about
        ));
    }
    if hello.rank == 0 || hello.rank >= world || here[hello.rank].is_some() {
        return Some(format!("two processes have the rank {}", hello.rank));
    }
    None
}

/// Rank 0: waits for all, looks whether they fit, and tells them where the others are.
fn gather(place: &Place, about: &str, key: &Key, until: Instant) -> Result<Vec<Option<TcpStream>>> {
    let world = place.world;
    let mut here: Vec<Option<Arrival>> = (0..world).map(|_| None).collect();
    let mut arrivals = Arrivals::new(listen(resolve(&place.address)?, "rank 0")?, key)?;
    while here[1..].iter().any(Option::is_none) {
        let missing = || {
            let ranks: Vec<String> = (1..world).filter(|&r| here[r].is_none()).map(|r| r.to_string()).collect();
            format!("rank {}", ranks.join(", "))
        };
        let mut arrival = arrivals.next(until, &missing)?;
        if let Some(reason) = misfit(&arrival.hello, about, world, &here) {
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
            arrival.answer(key, &list).map_err(|e| Error::Gone { rank, reason: e.to_string() })?;
        }
    }
    Ok(here.into_iter().map(|arrival| arrival.map(|arrival| arrival.stream)).collect())
}

/// Greets who listens at an address, and gives the answer that it proves to be its own.
fn greet_at(stream: &mut TcpStream, key: &Key, hello: &mut Hello, patience: Duration) -> std::io::Result<Vec<u8>> {
    let invalid = |what: &str| std::io::Error::new(ErrorKind::InvalidData, what.to_string());
    stream.set_read_timeout(Some(GREETING))?;
    if &get_exact::<4>(stream)? != MAGIC {
        return Err(invalid("it does not use the protocol of a rank"));
    }
    let theirs: Nonce = get_exact(stream)?;
    hello.challenge = Key::challenge().map_err(|e| invalid(&e.to_string()))?;
    stream.write_all(&framed(key, "hello", &theirs, &hello.to_bytes()))?;
    stream.set_read_timeout(Some(patience))?;
    let n = u32::from_le_bytes(get_exact(stream)?) as usize;
    if n > LONGEST {
        return Err(invalid("a response that is too long"));
    }
    let mut message = Vec::new();
    stream.take(n as u64).read_to_end(&mut message)?;
    let proof: Mac = get_exact(stream)?;
    match key.accepts("answer", &hello.challenge, &message, &proof) {
        true => Ok(message),
        false => Err(invalid("its secret is wrong")),
    }
}

/// Any other rank: greets rank 0, then connects to those before it and waits for those behind it.
fn greet(place: &Place, about: &str, key: &Key, until: Instant) -> Result<Vec<Option<TcpStream>>> {
    let root = resolve(&place.address)?;
    let left = || until.saturating_duration_since(Instant::now()) + Duration::from_secs(5);
    let fault = |e: std::io::Error| start(e.to_string());
    let mut stream = connect(root, until, "rank 0")?;
    let local = stream.local_addr().map_err(fault)?;
    let listener = listen(SocketAddr::new(local.ip(), 0), "this rank")?;
    let port = listener.local_addr().map_err(fault)?.port();
    let mut hello = Hello {
        version: VERSION.to_string(),
        rank: place.rank,
        world: place.world,
        about: about.to_string(),
        port,
        challenge: [0; 32],
    };
    // The listener may have dropped this connection to make room for others.
    let mut attempt = |stream: &mut TcpStream, address: SocketAddr, whom: &str| -> Result<Vec<u8>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match greet_at(stream, key, &mut hello, left()) {
                Ok(answer) => return Ok(answer),
                Err(e) if tries == TRIES || Instant::now() >= until => {
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
    for _ in 1..place.world {
        let ip = get_text(&mut answer).map_err(lost)?;
        let ip = ip.parse().map_err(|_| start(format!("rank 0 sent the invalid address `{ip}`")))?;
        addresses.push((ip, u16::from_le_bytes(get_exact(&mut answer).map_err(lost)?)));
    }
    let mut streams: Vec<Option<TcpStream>> = (0..place.world).map(|_| None).collect();
    streams[0] = Some(stream);
    // Those behind this rank are answered while it waits for those before it.
    let (before, behind) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| -> Result<Vec<Arrival>> {
            let mut arrivals = Arrivals::new(listener, key)?;
            let mut here: Vec<Arrival> = Vec::new();
            while here.len() < place.world - 1 - place.rank {
                let mut arrival = arrivals.next(until, &|| "a later rank".to_string())?;
                let rank = arrival.hello.rank;
                let fits = rank > place.rank && rank < place.world && here.iter().all(|other| other.hello.rank != rank);
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
