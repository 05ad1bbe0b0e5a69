//! Asynchronous completion: points in the queue that a caller can wait for or await.
//!
//! On native targets the device must be polled for its callbacks to run: a waiting thread does so, and a helper thread for
//! futures. (In the browser callbacks need no polling, and waiting is not possible: `browser/later.rs`.)

use super::device::Device;
use compiler::{Completion, Error, Fence, Result};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use wgpu::SubmissionIndex;

/// A completion that a callback signals.
pub(super) struct Signal {
    device: Weak<Device>,
    /// The submission that must be complete.
    index: Option<SubmissionIndex>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    done: Option<std::result::Result<(), String>>,
    wakers: Vec<Waker>,
}

impl Signal {
    pub(super) fn new(device: &Arc<Device>, index: Option<SubmissionIndex>) -> Arc<Signal> {
        Arc::new(Signal { device: Arc::downgrade(device), index, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Marks it as complete, with its result.
    pub(super) fn set(&self, how: std::result::Result<(), String>) {
        let mut s = self.state();
        s.done.get_or_insert(how);
        let wakers = std::mem::take(&mut s.wakers);
        drop(s);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn done(&self) -> Option<Result<()>> {
        self.state().done.clone().map(|r| r.map_err(Error::Backend))
    }

    /// A fence that completes with the signal.
    pub(super) fn fence(self: Arc<Self>) -> Fence {
        Fence::from_completion(Arc::new(Mark(self)))
    }
}

/// The completion of a signal, for waiting and polling.
struct Mark(Arc<Signal>);

impl Completion for Mark {
    fn is_done(&self) -> bool {
        if self.0.done().is_some() {
            return true;
        }
        match self.0.device.upgrade() {
            Some(device) => {
                device.poll();
                self.0.done().is_some() || device.lost().is_some()
            }
            // The device no longer exists.
            None => true,
        }
    }

    fn wait(&self) -> Result<()> {
        loop {
            let Some(device) = self.0.device.upgrade() else {
                return self.0.done().unwrap_or_else(|| Err(Error::Backend("the device was closed".into())));
            };
            if let Some(lost) = device.lost() {
                return Err(lost);
            }
            if let Some(how) = self.0.done() {
                return how.and_then(|()| device.check());
            }
            device.wait(self.0.index.clone())?;
            // Another thread may be running the callbacks.
            std::thread::yield_now();
        }
    }

    fn wake(&self, waker: &Waker) {
        let mut s = self.0.state();
        if s.done.is_some() {
            drop(s);
            return waker.wake_by_ref();
        }
        s.wakers.push(waker.clone());
        drop(s);
        match self.0.device.upgrade() {
            Some(device) => device.waiting.push(self.0.clone()),
            None => self.0.set(Err("the device was closed".into())),
        }
    }
}

/// A thread that polls on behalf of futures; started at the first use.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Option<std::sync::mpsc::Sender<Arc<Signal>>>>);

impl Waiting {
    fn push(&self, signal: Arc<Signal>) {
        let mut sender = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if sender.is_none() {
            let (to, from) = std::sync::mpsc::channel::<Arc<Signal>>();
            let wait = move || {
                for signal in from {
                    if let Err(e) = Mark(signal.clone()).wait() {
                        signal.set(Err(e.to_string()));
                    }
                }
            };
            if std::thread::Builder::new().name("wgpu-wait".into()).spawn(wait).is_ok() {
                *sender = Some(to);
            }
        }
        // Without the thread, the waker is called at once, so that the future is polled repeatedly.
        let unsent = match sender.as_ref() {
            Some(to) => to.send(signal).err().map(|e| e.0),
            None => Some(signal),
        };
        if let Some(signal) = unsent {
            let wakers = std::mem::take(&mut signal.state().wakers);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
