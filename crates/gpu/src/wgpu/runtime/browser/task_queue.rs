//! The queue of tasks that must run in order; see `mod.rs`.

use super::device::Device;
use compiler::Result;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// A task of the queue.
struct Task(Pin<Box<dyn Future<Output = Result<()>>>>);

// SAFETY: a page's program has one thread; with more (`atomics`) this doesn't compile.
#[cfg(not(target_feature = "atomics"))]
unsafe impl Send for Task {}

#[derive(Default)]
pub(in super::super) struct TaskQueue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Task>,
    /// Whether the first task is being polled.
    working: bool,
}

impl TaskQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether new tasks have to wait.
    pub(in super::super) fn is_busy(&self) -> bool {
        let s = self.state();
        s.working || !s.waiting.is_empty()
    }

    /// Runs a task in order: immediately if the queue is empty, and then it returns errors to the caller. Later errors are
    /// returned by the next read.
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
                    // The awaited event may have arrived during the poll.
                    self.advance(device);
                }
            }
            return Ok(());
        }
        self.state().waiting.push_back(task);
        Ok(())
    }

    /// Runs tasks from the front of the queue until one is not ready.
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

/// Polls a task. Every signal advances the queue, so the waker does nothing.
fn poll(task: &mut Task) -> Poll<Result<()>> {
    task.0.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
