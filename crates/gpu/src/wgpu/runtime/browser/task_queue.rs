//! What waits for its turn: see the law of order in `mod.rs`.

use super::device::Device;
use compiler::Result;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Something to do in its turn.
struct Task(Pin<Box<dyn Future<Output = Result<()>>>>);

// SAFETY: a page's program has one thread; with more (`atomics`) this doesn't compile.
#[cfg(not(target_feature = "atomics"))]
unsafe impl Send for Task {}

#[derive(Default)]
pub(in super::super) struct TaskQueue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Task>,
    /// Somebody is at work on the first one.
    working: bool,
}

impl TaskQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether whatever comes now has to wait.
    pub(in super::super) fn is_busy(&self) -> bool {
        let s = self.state();
        s.working || !s.waiting.is_empty()
    }

    /// Does something in its turn: at once if nothing waits, and then an error is the caller's. One that shows up later is told to who
    /// reads next.
    pub(in super::super) fn give(
        &self,
        device: &Device,
        task: impl Future<Output = Result<()>> + 'static,
    ) -> Result<()> {
        let mut task = Task(Box::pin(task));
        if !self.is_busy() {
            self.state().working = true;
            let polled = poll(&mut task);
            self.state().working = false;
            match polled {
                Poll::Ready(how) => return how,
                Poll::Pending => {
                    self.state().waiting.push_front(task);
                    // What it waits for may have come while it was polled.
                    self.advance(device);
                }
            }
            return Ok(());
        }
        self.state().waiting.push_back(task);
        Ok(())
    }

    /// Goes on with the first, and with those behind it as far as nothing stops them.
    pub(super) fn advance(&self, device: &Device) {
        loop {
            let mut s = self.state();
            if s.working {
                return;
            }
            let Some(mut first) = s.waiting.pop_front() else { return };
            s.working = true;
            drop(s);
            let polled = poll(&mut first);
            self.state().working = false;
            match polled {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => device.fail(false, &e.to_string()),
                Poll::Pending => {
                    self.state().waiting.push_front(first);
                    return;
                }
            }
        }
    }
}

/// Every signal lets the line advance, so nobody needs to be woken.
fn poll(task: &mut Task) -> Poll<Result<()>> {
    task.0.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
