//! Ranks as processes that talk over TCP.
//!
//! `rendezvous` makes one connection between each two ranks: a thread reads it into the mailbox, another writes what is sent,
//! so nobody waits to send. A connection that ends without goodbye means that its rank is gone: whoever sees it tells the rest.

use crate::error::{Error, Result};
use crate::launch::Place;
use crate::mail::Mailbox;
pub use crate::rendezvous::VERSION;
use crate::rendezvous::{self, get_exact, get_text, put_text};
use crate::transport::{Tag, Transport};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The longest message.
const LONGEST: u64 = 1 << 36;

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

impl Tcp {
    /// Finds the other ranks; `about` is what all must agree on besides versions and numbers: the mesh.
    pub fn join(place: &Place, about: &str) -> Result<Tcp> {
        let streams = rendezvous::join(place, about)?;
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
            let fault = |e: std::io::Error| Error::Start(format!("the connection to rank {other}: {e}"));
            stream.set_nodelay(true).map_err(fault)?;
            stream.set_read_timeout(None).and_then(|()| stream.set_write_timeout(None)).map_err(fault)?;
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
                // Memory is taken as bytes come.
                if (&mut stream).take(n).read_to_end(&mut bytes)? < n as usize {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
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
                    ErrorKind::UnexpectedEof => "its process exited without closing the connection".to_string(),
                    _ => format!("its connection failed: {e}"),
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
