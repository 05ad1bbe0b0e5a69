//! The TCP transport between processes.
//!
//! `rendezvous` creates one connection between each two ranks: one thread reads it into the message queue, another writes sent
//! messages, so sending never blocks. A connection that ends without a shutdown message means that its rank is lost: the rank
//! that detects it tells the others.

use crate::error::{Error, Result};
use crate::launch::ProcessInfo;
use crate::message_queue::MessageQueue;
pub use crate::rendezvous::VERSION;
use crate::rendezvous::{self, get_exact, get_text, put_text};
use crate::transport::{Tag, Transport};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The maximum size of a message in bytes.
const MAX_MESSAGE: u64 = 1 << 36;

const DATA: u8 = 1;
const BYE: u8 = 2;
const ABORT: u8 = 3;

/// The TCP transport of a rank.
pub struct TcpTransport {
    rank: usize,
    world: usize,
    queue: Arc<MessageQueue>,
    /// The channels to the writer threads of the other ranks.
    peers: Vec<Option<Sender<Vec<u8>>>>,
    streams: Vec<Option<TcpStream>>,
    writers: Mutex<Vec<JoinHandle<()>>>,
}

impl TcpTransport {
    /// Connects to the other ranks; `about` is the configuration that all must agree on besides versions and numbers: the mesh.
    pub fn join(place: &ProcessInfo, about: &str) -> Result<TcpTransport> {
        let streams = rendezvous::join(place, about)?;
        TcpTransport::from_streams(place.rank, streams)
    }

    /// Creates the transport from connections to every other rank.
    fn from_streams(rank: usize, streams: Vec<Option<TcpStream>>) -> Result<TcpTransport> {
        let world = streams.len();
        let mail = Arc::new(MessageQueue::new(world));
        let (mut peers, mut writers) = (Vec::new(), Vec::new());
        for (other, stream) in streams.iter().enumerate() {
            let Some(stream) = stream else {
                peers.push(None);
                continue;
            };
            let fault = |e: std::io::Error| Error::Rendezvous(format!("the connection to rank {other}: {e}"));
            stream.set_nodelay(true).map_err(fault)?;
            stream.set_read_timeout(None).and_then(|()| stream.set_write_timeout(None)).map_err(fault)?;
            let (to_read, to_write) = (stream.try_clone().map_err(fault)?, stream.try_clone().map_err(fault)?);
            let own = mail.clone();
            std::thread::spawn(move || read_all(to_read, other, &own));
            let (sender, receiver) = channel();
            writers.push(std::thread::spawn(move || write_all(to_write, &receiver)));
            peers.push(Some(sender));
        }
        Ok(TcpTransport { rank, world, queue: mail, peers, streams, writers: Mutex::new(writers) })
    }

    fn send(&self, to: usize, message: Vec<u8>) {
        // If the writer has ended, the connection is lost, which the reader has detected.
        if let Some(Some(peer)) = self.peers.get(to) {
            let _ = peer.send(message);
        }
    }
}

/// Reads messages of a rank until it shuts down, or is lost.
fn read_all(mut stream: TcpStream, from: usize, mail: &MessageQueue) {
    let mut next = || -> std::io::Result<bool> {
        match get_exact::<1>(&mut stream)?[0] {
            DATA => {
                let tag = Tag::from_bytes(get_exact(&mut stream)?);
                let n = u64::from_le_bytes(get_exact(&mut stream)?);
                if n > MAX_MESSAGE {
                    return Err(std::io::Error::new(ErrorKind::InvalidData, "a message that is too long"));
                }
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(n as usize).map_err(|_| ErrorKind::OutOfMemory)?;
                // Memory is allocated as bytes arrive.
                if (&mut stream).take(n).read_to_end(&mut bytes)? < n as usize {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                mail.push_message(from, tag, bytes);
                Ok(true)
            }
            BYE => {
                mail.mark_finished(from);
                Ok(false)
            }
            ABORT => {
                let rank = u32::from_le_bytes(get_exact(&mut stream)?) as usize;
                mail.mark_lost(rank, &get_text(&mut stream)?);
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
                return mail.mark_lost(from, &reason);
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

impl Transport for TcpTransport {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world
    }

    fn send_recv(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        self.queue.check()?;
        for (to, bytes) in sends {
            let mut message = Vec::with_capacity(21 + bytes.len());
            message.push(DATA);
            message.extend(tag.to_bytes());
            message.extend((bytes.len() as u64).to_le_bytes());
            message.extend_from_slice(bytes);
            self.send(*to, message);
        }
        receives.iter_mut().try_for_each(|(from, to)| self.queue.take_message(*from, tag, to))
    }

    fn lost_rank(&self) -> Option<Error> {
        self.queue.check().err()
    }

    fn abort(&self, rank: usize, reason: &str) {
        let mut message = vec![ABORT];
        message.extend((rank as u32).to_le_bytes());
        put_text(&mut message, &reason.chars().take(2000).collect::<String>());
        (0..self.world).for_each(|to| self.send(to, message.clone()));
    }

    fn shutdown(&self) {
        (0..self.world).for_each(|to| self.send(to, vec![BYE]));
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        // Pending messages must be sent before the process ends.
        self.peers.clear();
        let writers = std::mem::take(&mut *self.writers.lock().unwrap_or_else(PoisonError::into_inner));
        for writer in writers {
            let _ = writer.join();
        }
        self.streams.clear();
    }
}
