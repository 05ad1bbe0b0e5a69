//! The message queue of a rank: received messages of every other rank.

use crate::error::{Error, Result};
use crate::transport::Tag;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The timeout for messages: TENSORLOOM_COMM_TIMEOUT in seconds, 600 by default.
pub(crate) fn comm_timeout() -> Duration {
    let set = std::env::var("TENSORLOOM_COMM_TIMEOUT").ok().and_then(|s| s.parse::<f64>().ok());
    Duration::from_secs_f64(set.filter(|s| *s > 0.0 && *s < 1e9).unwrap_or(600.0))
}

#[derive(Default)]
struct State {
    /// The messages by sender and group.
    queues: BTreeMap<(usize, u32), VecDeque<(Tag, Vec<u8>)>>,
    /// The first rank that is known to be lost.
    lost_rank: Option<(usize, String)>,
    /// The ranks that have shut down.
    finished: Vec<bool>,
}

/// Received messages by sender.
pub(crate) struct MessageQueue {
    state: Mutex<State>,
    condvar: Condvar,
    pub(crate) timeout: Duration,
}

impl MessageQueue {
    pub(crate) fn new(world: usize) -> MessageQueue {
        let state = State { queues: BTreeMap::new(), lost_rank: None, finished: vec![false; world] };
        MessageQueue { state: Mutex::new(state), condvar: Condvar::new(), timeout: comm_timeout() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push_message(&self, from: usize, tag: Tag, bytes: Vec<u8>) {
        self.lock().queues.entry((from, tag.group)).or_default().push_back((tag, bytes));
        self.condvar.notify_all();
    }

    /// Marks a rank as lost; the first lost rank is the one that errors name.
    pub(crate) fn mark_lost(&self, rank: usize, reason: &str) {
        self.lock().lost_rank.get_or_insert_with(|| (rank, reason.to_string()));
        self.condvar.notify_all();
    }

    pub(crate) fn mark_finished(&self, rank: usize) {
        self.lock().finished[rank] = true;
        self.condvar.notify_all();
    }

    pub(crate) fn has_finished(&self, rank: usize) -> bool {
        self.lock().finished[rank]
    }

    /// Takes the next message of a rank in a group, which must belong to this exchange.
    pub(crate) fn take_message(&self, from: usize, tag: Tag, to: &mut [u8]) -> Result<()> {
        let started = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some((found, bytes)) = state.queues.get_mut(&(from, tag.group)).and_then(VecDeque::pop_front) {
                drop(state);
                if found != tag || bytes.len() != to.len() {
                    return Err(Error::Mismatch {
                        rank: from,
                        reason: format!(
                            "its message {} (kind {:08x}, {} bytes) does not match the expected {} ({:08x}, {} \
                             bytes); all ranks must run the same programs in the same order",
                            found.sequence_number,
                            found.fingerprint,
                            bytes.len(),
                            tag.sequence_number,
                            tag.fingerprint,
                            to.len()
                        ),
                    });
                }
                to.copy_from_slice(&bytes);
                return Ok(());
            }
            if let Some((rank, reason)) = state.lost_rank.clone() {
                return Err(Error::RankLost { rank, reason });
            }
            if state.finished[from] {
                return Err(Error::RankLost {
                    rank: from,
                    reason: "it has exited, but this rank still needs it".into(),
                });
            }
            let waited = started.elapsed();
            let Some(left) = self.timeout.checked_sub(waited) else {
                return Err(Error::Timeout { rank: from, waited });
            };
            state = self.condvar.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns an error if a rank is known to be lost.
    pub(crate) fn check(&self) -> Result<()> {
        match self.lock().lost_rank.clone() {
            Some((rank, reason)) => Err(Error::RankLost { rank, reason }),
            None => Ok(()),
        }
    }
}
