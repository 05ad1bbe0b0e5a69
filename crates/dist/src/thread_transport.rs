//! The transport between threads of one process.

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::message_queue::MessageQueue;
use crate::transport::{Tag, Transport};
use ir::Mesh;
use std::sync::Arc;

/// The transport of a rank that is a thread.
pub struct ThreadTransport {
    rank: usize,
    queue: Arc<Vec<MessageQueue>>,
}

/// Creates the transports of this many threads.
pub fn transports(world: usize) -> Vec<ThreadTransport> {
    let mail: Arc<Vec<MessageQueue>> = Arc::new((0..world).map(|_| MessageQueue::new(world)).collect());
    (0..world).map(|rank| ThreadTransport { rank, queue: mail.clone() }).collect()
}

impl Transport for ThreadTransport {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.queue.len()
    }

    fn send_recv(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()> {
        self.queue[self.rank].check()?;
        for (to, bytes) in sends {
            self.queue[*to].push_message(self.rank, tag, bytes.to_vec());
        }
        receives.iter_mut().try_for_each(|(from, to)| self.queue[self.rank].take_message(*from, tag, to))
    }

    fn lost_rank(&self) -> Option<Error> {
        self.queue[self.rank].check().err()
    }

    fn abort(&self, rank: usize, reason: &str) {
        self.queue.iter().enumerate().filter(|(r, _)| *r != self.rank).for_each(|(_, m)| m.mark_lost(rank, reason));
    }

    fn shutdown(&self) {
        self.queue.iter().for_each(|m| m.mark_finished(self.rank));
    }
}

/// Runs a function on every rank of a mesh, each on a separate thread; returns all results, or the first error: that of the
/// rank that caused the failure, if it is known.
pub fn spawn<T: Send>(mesh: &Mesh, f: impl Fn(Arc<Comm>) -> Result<T> + Sync) -> Result<Vec<T>> {
    let comms = transports(mesh.ranks()).into_iter().map(|t| Comm::new(Arc::new(t), mesh.clone()));
    let comms = comms.collect::<Result<Vec<_>>>()?;
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let f = &f;
        let run = |comm: Comm| {
            scope.spawn(move || {
                let comm = Arc::new(comm);
                let result = f(comm.clone());
                if let Err(e) = &result {
                    comm.abort(&e.to_string());
                }
                result
            })
        };
        let threads: Vec<_> = comms.into_iter().map(run).collect();
        let join = |(rank, t): (usize, std::thread::ScopedJoinHandle<'_, Result<T>>)| {
            t.join().unwrap_or_else(|_| Err(Error::RankLost { rank, reason: "it panicked".into() }))
        };
        threads.into_iter().enumerate().map(join).collect()
    });
    // The error of the failed rank is more informative than those of the ranks that lost it.
    let blame = results
        .iter()
        .position(|r| matches!(r, Err(e) if !matches!(e, Error::RankLost { .. } | Error::Timeout { .. })));
    match blame {
        Some(i) => Err(results.into_iter().nth(i).and_then(Result::err).expect("found above")),
        None => results.into_iter().collect(),
    }
}
