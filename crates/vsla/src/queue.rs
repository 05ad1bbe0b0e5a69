//! Queues and events (§7.4): a thread that runs tasks in order, and events that other threads wait for.

use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

/// A task that a queue runs.
pub trait QueueTask: Send + 'static {
    /// Runs the task.
    fn run(self) -> Result<()>;
}

/// The maximum number of waiting entries; submitting to a full queue waits. The capacity is fixed, so submitting does not
/// allocate.
const MAX_QUEUED: usize = 64;

enum QueueEntry<T> {
    Task(T),
    Signal(Event, u64),
    Wait(Event, u64),
}

struct QueueState<T> {
    waiting: VecDeque<QueueEntry<T>>,
    busy: bool,
    closed: bool,
    /// The first error since the last `synchronize`; tasks after it are skipped.
    failed: Option<Error>,
}

struct QueueShared<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

/// A thread that runs tasks one after another. Dropping the queue waits for them.
pub struct TaskQueue<T: QueueTask> {
    shared: Arc<QueueShared<T>>,
    worker: Option<JoinHandle<()>>,
    id: ThreadId,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a, T>(c: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    c.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

impl<T: QueueTask> TaskQueue<T> {
    /// Creates an empty queue and starts its thread.
    pub fn new() -> Result<TaskQueue<T>> {
        let state =
            QueueState { waiting: VecDeque::with_capacity(MAX_QUEUED), busy: false, closed: false, failed: None };
        let shared = Arc::new(QueueShared { state: Mutex::new(state), changed: Condvar::new() });
        let inner = shared.clone();
        let worker = thread::Builder::new().name("vsla-stream".into()).spawn(move || inner.worker_loop());
        let worker = worker.map_err(|e| Error::Backend(format!("cannot start a thread for a stream: {e}")))?;
        let id = worker.thread().id();
        Ok(TaskQueue { shared, worker: Some(worker), id })
    }

    /// Returns an error if a task of this queue calls this, since it would wait for itself.
    fn check_thread(&self) -> Result<()> {
        if thread::current().id() == self.id {
            return Err(Error::invalid_arg("a task of a stream cannot wait for its own stream"));
        }
        Ok(())
    }

    fn push(&self, entry: QueueEntry<T>) -> Result<()> {
        self.check_thread()?;
        let mut state = lock(&self.shared.state);
        while state.waiting.len() >= MAX_QUEUED {
            state = wait(&self.shared.changed, state);
        }
        state.waiting.push_back(entry);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Adds a task and returns before it has run. Waits only if the queue is full.
    pub fn submit(&self, task: T) -> Result<()> {
        self.push(QueueEntry::Task(task))
    }

    /// Records an event, which completes when all tasks submitted before have completed.
    pub fn signal(&self, event: &Event) -> Result<()> {
        self.check_thread()?;
        let n = event.record(self.id)?;
        self.push(QueueEntry::Signal(event.clone(), n))
    }

    /// Makes tasks that are submitted after this call wait for the last record of an event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let n = lock(&event.0.state).recorded;
        self.push(QueueEntry::Wait(event.clone(), n))
    }

    /// Waits until all tasks have completed. Returns the first error.
    pub fn synchronize(&self) -> Result<()> {
        self.check_thread()?;
        let mut state = lock(&self.shared.state);
        while state.busy || !state.waiting.is_empty() {
            state = wait(&self.shared.changed, state);
        }
        state.failed.take().map_or(Ok(()), Err)
    }
}

impl<T: QueueTask> QueueShared<T> {
    fn worker_loop(&self) {
        loop {
            let mut state = lock(&self.state);
            let entry = loop {
                if let Some(entry) = state.waiting.pop_front() {
                    break entry;
                }
                if state.closed {
                    return;
                }
                state = wait(&self.changed, state);
            };
            state.busy = true;
            let skip = state.failed.is_some();
            self.changed.notify_all();
            drop(state);
            let done = match entry {
                QueueEntry::Task(_) if skip => Ok(()),
                QueueEntry::Task(t) => catch_unwind(AssertUnwindSafe(|| t.run()))
                    .unwrap_or_else(|_| Err(Error::Unknown("a task of a stream panicked".into()))),
                QueueEntry::Signal(e, n) => {
                    e.complete(n);
                    Ok(())
                }
                QueueEntry::Wait(e, n) => {
                    e.wait_for(n);
                    Ok(())
                }
            };
            let mut state = lock(&self.state);
            state.busy = false;
            if let Err(e) = done {
                state.failed.get_or_insert(e);
            }
            self.changed.notify_all();
        }
    }
}

impl<T: QueueTask> Drop for TaskQueue<T> {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.changed.notify_all();
        if let Some(worker) = self.worker.take()
            && thread::current().id() != self.id
        {
            // The panics of tasks are caught, so the thread ends normally.
            let _ = worker.join();
        }
    }
}

/// An event of a stream that other streams and the host can wait for. An event that was never recorded counts as completed.
#[derive(Clone, Default)]
pub struct Event(Arc<EventProgress>);

#[derive(Default)]
struct EventProgress {
    state: Mutex<EventMarks>,
    changed: Condvar,
}

#[derive(Default)]
struct EventMarks {
    recorded: u64,
    completed: u64,
    by: Option<ThreadId>,
}

impl Event {
    /// Creates an event that has not been recorded.
    pub fn new() -> Event {
        Event::default()
    }

    fn record(&self, by: ThreadId) -> Result<u64> {
        let mut marks = lock(&self.0.state);
        if marks.recorded > marks.completed && marks.by != Some(by) {
            return Err(Error::invalid_arg("the event still waits for another stream; take an event for each"));
        }
        marks.by = Some(by);
        marks.recorded += 1;
        Ok(marks.recorded)
    }

    fn complete(&self, n: u64) {
        let mut marks = lock(&self.0.state);
        marks.completed = marks.completed.max(n);
        self.0.changed.notify_all();
    }

    fn wait_for(&self, n: u64) {
        let mut marks = lock(&self.0.state);
        while marks.completed < n {
            marks = wait(&self.0.changed, marks);
        }
    }

    /// Whether all work before the last record of the event has completed.
    pub fn has_happened(&self) -> bool {
        let marks = lock(&self.0.state);
        marks.completed >= marks.recorded
    }

    /// Waits until all work before the last record of the event has completed.
    pub fn synchronize(&self) -> Result<()> {
        let marks = lock(&self.0.state);
        if marks.by == Some(thread::current().id()) && marks.completed < marks.recorded {
            return Err(Error::invalid_arg("a task of a stream cannot wait for its own stream"));
        }
        let n = marks.recorded;
        drop(marks);
        self.wait_for(n);
        Ok(())
    }
}
