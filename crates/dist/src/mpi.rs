//! The MPI transport, for ranks that an MPI launcher started.
//!
//! MPI itself terminates all ranks when one dies, and its launcher reports it. Messages are copied and sent while the
//! rank computes, so that sending never blocks.

use crate::error::{Error, Result};
use crate::transport::{Tag, Transport};
use mpi::datatype::Equivalence;
use mpi::environment::Universe;
use mpi::request::{Request, StaticScope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};
use std::sync::{Mutex, PoisonError};

/// MPI counts bytes in 32 bits, so longer messages are sent in pieces.
const PIECE: usize = 1 << 30;

/// The MPI tag of headers: the tag of a message is sent before it, as a separate message.
const HEADER: i32 = 1;
const DATA: i32 = 2;

/// A message that is being sent.
struct Pending {
    request: Request<'static, [u8], StaticScope>,
    /// Its bytes, freed when the request is complete.
    bytes: *mut [u8],
}

struct Inner {
    pending: Vec<Pending>,
    world: SimpleCommunicator,
    /// Finalizes MPI when it is dropped.
    _universe: Universe,
}

/// A rank of `MPI_COMM_WORLD`.
pub struct Mpi {
    rank: usize,
    world: usize,
    /// The MPI state; one thread at a time makes calls.
    inner: Mutex<Inner>,
}

// SAFETY: MPI was started for calls from any thread one at a time (`Serialized`), and the mutex sees to that; the bytes of
// messages belong to nobody else.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Inner {
    fn post(&mut self, to: usize, bytes: &[u8], tag: i32) {
        let bytes: *mut [u8] = Box::into_raw(bytes.to_vec().into_boxed_slice());
        // SAFETY: the bytes stay where they are until the request is complete, and only then are they freed.
        let lent: &'static [u8] = unsafe { &*bytes };
        let request = self.world.process_at_rank(to as i32).immediate_send_with_tag(StaticScope, lent, tag);
        self.pending.push(Pending { request, bytes });
    }

    /// Frees the messages whose requests are complete; with `wait`, waits for all.
    fn reap(&mut self, wait: bool) {
        for Pending { request, bytes } in std::mem::take(&mut self.pending) {
            let left = match wait {
                true => {
                    request.wait_without_status();
                    None
                }
                false => request.test().err(),
            };
            match left {
                Some(request) => self.pending.push(Pending { request, bytes }),
                // SAFETY: it came from a box, and MPI is done with it.
                None => drop(unsafe { Box::from_raw(bytes) }),
            }
        }
    }

    fn receive(&self, from: usize, to: &mut [u8], tag: i32) -> Result<()> {
        for piece in to.chunks_mut(PIECE) {
            let status = self.world.process_at_rank(from as i32).receive_into_with_tag(piece, tag);
            let came = status.count(u8::equivalent_datatype()) as usize;
            if came != piece.len() {
                return Err(Error::Mismatch {
                    rank: from,
                    reason: format!("it sent {came} bytes, expected {}", piece.len()),
                });
            }
        }
        Ok(())
    }
}

impl Mpi {
    /// Initializes MPI in this process, once.
    pub fn start() -> Result<Mpi> {
        let (universe, level) = mpi::initialize_with_threading(mpi::Threading::Serialized)
            .ok_or_else(|| Error::Rendezvous("MPI is already initialized in this process".into()))?;
        if level < mpi::Threading::Serialized {
            return Err(Error::Rendezvous(
                "this MPI library does not support calls from several threads (MPI_THREAD_SERIALIZED)".into(),
            ));
        }
        let world = universe.world();
        let (rank, count) = (world.rank() as usize, world.size() as usize);
        Ok(Mpi { rank, world: count, inner: Mutex::new(Inner { pending: Vec::new(), world, _universe: universe }) })
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Mpi {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.world
    }

    fn send_recv(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        let mut inner = self.inner();
        inner.reap(false);
        for (to, bytes) in sends {
            inner.post(*to, &tag.to_bytes(), HEADER);
            bytes.chunks(PIECE).for_each(|piece| inner.post(*to, piece, DATA));
        }
        for (from, to) in receives {
            let mut header = [0; 12];
            inner.receive(*from, &mut header, HEADER)?;
            let found = Tag::from_bytes(header);
            if found != tag {
                return Err(Error::Mismatch {
                    rank: *from,
                    reason: format!(
                        "its message {found:?} does not match the expected {tag:?}; all ranks must run the same \
                         programs in the same order"
                    ),
                });
            }
            inner.receive(*from, to, DATA)?;
        }
        Ok(())
    }

    /// A receive blocks inside MPI, which only one thread at a time may call.
    fn supports_concurrent(&self) -> bool {
        false
    }

    fn abort(&self, rank: usize, reason: &str) {
        eprintln!("rank {}: lost the connection to rank {rank}: {reason}", self.rank);
        self.inner().world.abort(1)
    }

    fn shutdown(&self) {
        self.inner().reap(true);
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        self.inner().reap(true);
    }
}
