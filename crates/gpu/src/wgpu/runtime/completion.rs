//! What ends later: points in the queue that can be waited for, or awaited.
//!
//! Natively somebody must poll the device for its callbacks to run: whoever waits does, and a thread of its own for those who
//! await. (In a page callbacks come by themselves, and nobody may wait: `page/later.rs`.)

use super::device::Device;
use compiler::{Completion, Error, Fence, Result};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use wgpu::SubmissionIndex;

/// Something that a callback says is done.
pub(super) struct Signal {
    device: Weak<Device>,
    /// Up to where the queue has to come.
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

    /// Says that it is done, and how it went.
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

    /// A fence that passes here.
    pub(super) fn fence(self: Arc<Self>) -> Fence {
        Fence::from_completion(Arc::new(Mark(self)))
    }
}

/// A signal, for those who wait or poll.
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
            // Nobody is left who could do the work.
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
            // The callbacks may be running in another thread.
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

/// A thread that waits so that no one else has to; started when it is first needed.
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
        // Without the thread the poller asks again and again.
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
