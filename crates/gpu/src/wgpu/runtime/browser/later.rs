//! Asynchronous completion: signals that JavaScript sets.

use super::{device, host};
use compiler::{Completion, Error, Fence, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

/// A completion that JavaScript will signal.
pub(super) struct Signal {
    pub(super) number: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    done: Option<std::result::Result<(), String>>,
    bytes: Vec<u8>,
    wakers: Vec<Waker>,
}

/// The open signals, by number.
struct Open {
    next: u32,
    all: BTreeMap<u32, Arc<Signal>>,
}

static OPEN: Mutex<Open> = Mutex::new(Open { next: 1, all: BTreeMap::new() });

fn open() -> MutexGuard<'static, Open> {
    OPEN.lock().unwrap_or_else(|e| e.into_inner())
}

impl Signal {
    pub(super) fn new() -> Arc<Signal> {
        let mut o = open();
        let signal = Arc::new(Signal { number: o.next, state: Mutex::default() });
        o.next = o.next.wrapping_add(1).max(1);
        o.all.insert(signal.number, signal.clone());
        signal
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Marks it as complete, with its result.
    pub(super) fn set(&self, how: std::result::Result<(), String>) {
        open().all.remove(&self.number);
        let mut s = self.state();
        s.done.get_or_insert(how);
        let wakers = std::mem::take(&mut s.wakers);
        drop(s);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The bytes that it received.
    pub(super) fn bytes(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().bytes)
    }

    /// Stores the received bytes.
    pub(super) fn bring(&self, bytes: Vec<u8>) {
        self.state().bytes = bytes;
    }

    /// A fence that completes with the signal.
    pub(super) fn fence(self: &Arc<Self>) -> Fence {
        self.fence_then(|| Ok(()))
    }

    /// A fence that completes with the signal, and then returns the result of `check`.
    pub(super) fn fence_then(self: &Arc<Self>, check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Fence {
        Fence::from_completion(Arc::new(Mark(self.clone(), check)))
    }
}

struct Mark<F>(Arc<Signal>, F);

impl<F: Fn() -> Result<()> + Send + Sync> Completion for Mark<F> {
    fn is_done(&self) -> bool {
        self.0.state().done.is_some()
    }

    fn wait(&self) -> Result<()> {
        loop {
            if let Some(how) = self.0.state().done.clone() {
                return how.map_err(Error::Backend).and_then(|()| (self.1)());
            }
            if host::gpu_wait() == 0 {
                return Err(unawaited());
            }
        }
    }

    fn wake(&self, waker: &Waker) {
        let mut s = self.0.state();
        if s.done.is_some() {
            drop(s);
            return waker.wake_by_ref();
        }
        s.wakers.push(waker.clone());
    }
}

/// The error for a blocking wait, which is not possible in the browser.
fn unawaited() -> Error {
    Error::Bindings(
        "data on webgpu cannot be read synchronously in the browser: await it (`await x.data()`), or move it first \
         (`await x.to(\"wasm\")`)"
            .into(),
    )
}

/// Allocates memory for the bytes of a signal.
pub fn place(signal: u32, bytes: usize) -> *mut u8 {
    let found = open().all.get(&signal).cloned();
    match found {
        Some(s) => {
            let mut state = s.state();
            state.bytes = vec![0; bytes];
            state.bytes.as_mut_ptr()
        }
        None => std::ptr::null_mut(),
    }
}

/// Marks a signal as complete, and continues the tasks that wait for it.
pub fn done(signal: u32, how: std::result::Result<(), String>) {
    let found = open().all.get(&signal).cloned();
    if let Some(s) = found {
        s.set(how);
    }
    if let Some(device) = device::current() {
        device.tasks.advance(&device);
    }
}
