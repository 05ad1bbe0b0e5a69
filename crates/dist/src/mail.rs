//! A rank's mailbox: what came from each other rank and waits to be taken.

use crate::error::{Error, Result};
use crate::transport::Tag;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a rank is waited for: TENSORLOOM_COMM_TIMEOUT in seconds, 600 if it is not set.
pub(crate) fn patience() -> Duration {
    let set = std::env::var("TENSORLOOM_COMM_TIMEOUT").ok().and_then(|s| s.parse::<f64>().ok());
    Duration::from_secs_f64(set.filter(|s| *s > 0.0 && *s < 1e9).unwrap_or(600.0))
}

#[derive(Default)]
struct State {
    /// By sender and group.
    queues: BTreeMap<(usize, u32), VecDeque<(Tag, Vec<u8>)>>,
    /// The first rank that is known to be gone.
    gone: Option<(usize, String)>,
    /// Who has said goodbye.
    finished: Vec<bool>,
}

/// Messages by sender.
pub(crate) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
    pub(crate) patience: Duration,
}

impl Mailbox {
    pub(crate) fn new(world: usize) -> Mailbox {
        let state = State { queues: BTreeMap::new(), gone: None, finished: vec![false; world] };
        Mailbox { state: Mutex::new(state), changed: Condvar::new(), patience: patience() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, from: usize, tag: Tag, bytes: Vec<u8>) {
        self.lock().queues.entry((from, tag.group)).or_default().push_back((tag, bytes));
        self.changed.notify_all();
    }

    /// A rank is gone; the first that is said to be stays the one that is named.
    pub(crate) fn gone(&self, rank: usize, reason: &str) {
        self.lock().gone.get_or_insert_with(|| (rank, reason.to_string()));
        self.changed.notify_all();
    }

    pub(crate) fn finished(&self, rank: usize) {
        self.lock().finished[rank] = true;
        self.changed.notify_all();
    }

    pub(crate) fn has_finished(&self, rank: usize) -> bool {
        self.lock().finished[rank]
    }

    /// The next message of a rank in a group, which must be of this exchange.
    pub(crate) fn take(&self, from: usize, tag: Tag, to: &mut [u8]) -> Result<()> {
        let started = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some((found, bytes)) = state.queues.get_mut(&(from, tag.group)).and_then(VecDeque::pop_front) {
                drop(state);
                if found != tag || bytes.len() != to.len() {
                    return Err(Error::Differs {
                        rank: from,
                        reason: format!(
                            "its message {} (kind {:08x}, {} bytes) does not match the expected {} ({:08x}, {} \
                             bytes); all ranks must run the same programs in the same order",
                            found.number,
                            found.what,
                            bytes.len(),
                            tag.number,
                            tag.what,
                            to.len()
                        ),
                    });
                }
                to.copy_from_slice(&bytes);
                return Ok(());
            }
            if let Some((rank, reason)) = state.gone.clone() {
                return Err(Error::Gone { rank, reason });
            }
            if state.finished[from] {
                return Err(Error::Gone { rank: from, reason: "it has exited, but this rank still needs it".into() });
            }
            let waited = started.elapsed();
            let Some(left) = self.patience.checked_sub(waited) else {
                return Err(Error::Slow { rank: from, waited });
            };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Fails if a rank is known to be gone.
    pub(crate) fn check(&self) -> Result<()> {
        match self.lock().gone.clone() {
            Some((rank, reason)) => Err(Error::Gone { rank, reason }),
            None => Ok(()),
        }
    }
}
