//! Ranks that an MPI launcher started.
//!
//! MPI itself ends all ranks when one dies, and its launcher names it.

use crate::error::{Error, Result};
use crate::transport::{Tag, Transport};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};
use std::sync::{Mutex, PoisonError};

/// A rank of `MPI_COMM_WORLD`.
pub struct Mpi {
    rank: usize,
    world: usize,
    /// Calls are made one at a time; the universe ends MPI when it is dropped.
    inner: Mutex<(SimpleCommunicator, Universe)>,
}

// SAFETY: MPI was started for calls from any thread one at a time (`Serialized`), and the mutex sees to that.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Mpi {
    /// Starts MPI in this process, once.
    pub fn start() -> Result<Mpi> {
        let (universe, level) = mpi::initialize_with_threading(mpi::Threading::Serialized)
            .ok_or_else(|| Error::Start("MPI was started in this process already".into()))?;
        if level < mpi::Threading::Serialized {
            return Err(Error::Start("this MPI can't be called from several threads in turn".into()));
        }
        let world = universe.world();
        Ok(Mpi { rank: world.rank() as usize, world: world.size() as usize, inner: Mutex::new((world, universe)) })
    }
}

impl Transport for Mpi {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn exchange(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let world = &inner.0;
        // A header of each message says what it belongs to.
        let header = tag.to_bytes();
        let mut headers = vec![[0u8; 8]; receives.len()];
        mpi::request::multiple_scope(2 * (sends.len() + receives.len()), |scope, requests| {
            for ((from, to), head) in receives.iter_mut().zip(&mut headers) {
                let source = world.process_at_rank(*from as i32);
                requests.add(source.immediate_receive_into_with_tag(scope, &mut head[..], 1));
                requests.add(source.immediate_receive_into_with_tag(scope, &mut to[..], 2));
            }
            for (to, bytes) in sends {
                let target = world.process_at_rank(*to as i32);
                requests.add(target.immediate_send_with_tag(scope, &header[..], 1));
                requests.add(target.immediate_send_with_tag(scope, *bytes, 2));
            }
            let mut done = Vec::new();
            requests.wait_all(&mut done);
        });
        match headers.iter().zip(receives.iter()).find(|(h, _)| Tag::from_bytes(**h) != tag) {
            Some((h, (from, _))) => Err(Error::Differs {
                rank: *from,
                reason: format!(
                    "its exchange {:?} met our {tag:?}; all ranks must run the same programs in the same order",
                    Tag::from_bytes(*h)
                ),
            }),
            None => Ok(()),
        }
    }

    fn abort(&self, rank: usize, reason: &str) {
        eprintln!("rank {}: rank {rank} is gone: {reason}", self.rank);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0.abort(1)
    }

    fn finish(&self) {}
}
