//! Queues and events (§7.4): a thread that does what it is given in order, and marks that others wait for.

use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

/// Work that a queue does.
pub trait Task: Send + 'static {
    /// Does it.
    fn run(self) -> Result<()>;
}

/// Entries that wait at most; who submits another waits for room. So submitting allocates nothing.
const ROOM: usize = 64;

enum Entry<T> {
    Task(T),
    Signal(Event, u64),
    Wait(Event, u64),
}

struct State<T> {
    waiting: VecDeque<Entry<T>>,
    busy: bool,
    closed: bool,
    /// The first failure since the last `synchronize`; tasks after it are left out.
    failed: Option<Error>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

/// A thread of its own that runs tasks one after another. Dropping it waits for them.
pub struct Queue<T: Task> {
    shared: Arc<Shared<T>>,
    worker: Option<JoinHandle<()>>,
    id: ThreadId,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a, T>(c: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    c.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

impl<T: Task> Queue<T> {
    /// An empty queue with its thread.
    pub fn new() -> Result<Queue<T>> {
        let state = State { waiting: VecDeque::with_capacity(ROOM), busy: false, closed: false, failed: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let inner = shared.clone();
        let worker = thread::Builder::new().name("vsla-stream".into()).spawn(move || inner.work());
        let worker = worker.map_err(|e| Error::Backend(format!("cannot start a thread for a stream: {e}")))?;
        let id = worker.thread().id();
        Ok(Queue { shared, worker: Some(worker), id })
    }

    /// Whether this is called by a task of this very queue, which would wait for itself.
    fn check_thread(&self) -> Result<()> {
        if thread::current().id() == self.id {
            return Err(Error::arg("a task of a stream cannot wait for its own stream"));
        }
        Ok(())
    }

    fn push(&self, entry: Entry<T>) -> Result<()> {
        self.check_thread()?;
        let mut state = lock(&self.shared.state);
        while state.waiting.len() >= ROOM {
            state = wait(&self.shared.changed, state);
        }
        state.waiting.push_back(entry);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Adds a task, and returns before it is done. Waits only if many are in front of it.
    pub fn submit(&self, task: T) -> Result<()> {
        self.push(Entry::Task(task))
    }

    /// Marks this place: the event has happened when all before it is done.
    pub fn signal(&self, event: &Event) -> Result<()> {
        self.check_thread()?;
        let n = event.record(self.id)?;
        self.push(Entry::Signal(event.clone(), n))
    }

    /// What is submitted from now on waits for the last mark of an event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let n = lock(&event.0.state).recorded;
        self.push(Entry::Wait(event.clone(), n))
    }

    /// Returns when everything is done: with the first failure, if there was one.
    pub fn synchronize(&self) -> Result<()> {
        self.check_thread()?;
        let mut state = lock(&self.shared.state);
        while state.busy || !state.waiting.is_empty() {
            state = wait(&self.shared.changed, state);
        }
        state.failed.take().map_or(Ok(()), Err)
    }
}

impl<T: Task> Shared<T> {
    fn work(&self) {
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
                Entry::Task(_) if skip => Ok(()),
                Entry::Task(t) => catch_unwind(AssertUnwindSafe(|| t.run()))
                    .unwrap_or_else(|_| Err(Error::Unknown("a task of a stream panicked".into()))),
                Entry::Signal(e, n) => {
                    e.happen(n);
                    Ok(())
                }
                Entry::Wait(e, n) => {
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

impl<T: Task> Drop for Queue<T> {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.changed.notify_all();
        if let Some(worker) = self.worker.take()
            && thread::current().id() != self.id
        {
            // Tasks' panics are caught, so the thread ends normally.
            let _ = worker.join();
        }
    }
}

/// A mark in a stream that other streams and the host can wait for. Before it is recorded it has happened.
#[derive(Clone, Default)]
pub struct Event(Arc<Progress>);

#[derive(Default)]
struct Progress {
    state: Mutex<Marks>,
    changed: Condvar,
}

#[derive(Default)]
struct Marks {
    recorded: u64,
    happened: u64,
    by: Option<ThreadId>,
}

impl Event {
    /// An event that has not been recorded.
    pub fn new() -> Event {
        Event::default()
    }

    fn record(&self, by: ThreadId) -> Result<u64> {
        let mut marks = lock(&self.0.state);
        if marks.recorded > marks.happened && marks.by != Some(by) {
            return Err(Error::arg("the event still waits for another stream; take an event for each"));
        }
        marks.by = Some(by);
        marks.recorded += 1;
        Ok(marks.recorded)
    }

    fn happen(&self, n: u64) {
        let mut marks = lock(&self.0.state);
        marks.happened = marks.happened.max(n);
        self.0.changed.notify_all();
    }

    fn wait_for(&self, n: u64) {
        let mut marks = lock(&self.0.state);
        while marks.happened < n {
            marks = wait(&self.0.changed, marks);
        }
    }

    /// Whether all before its last mark is done.
    pub fn has_happened(&self) -> bool {
        let marks = lock(&self.0.state);
        marks.happened >= marks.recorded
    }

    /// Returns when all before its last mark is done.
    pub fn synchronize(&self) -> Result<()> {
        let marks = lock(&self.0.state);
        if marks.by == Some(thread::current().id()) && marks.happened < marks.recorded {
            return Err(Error::arg("a task of a stream cannot wait for its own stream"));
        }
        let n = marks.recorded;
        drop(marks);
        self.wait_for(n);
        Ok(())
    }
}
