//! Worker threads for slow preprocessing: parsing bodies, templates, tokenization, regular expressions. Connections don't wait
//! for it, and neither do clients for each other: they take turns, and each uses at most one thread. Threads for large requests
//! have a lower priority than the engines, which work for all clients.

use crate::serve::api::{ApiError, ApiResult};
use crate::serve::quota::ClientId;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

type BoxedTask = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct PoolState {
    /// Queues of clients that wait for a thread or use one.
    queues: BTreeMap<ClientId, VecDeque<BoxedTask>>,
    /// Clients that have work and no thread, in order.
    ready_clients: VecDeque<ClientId>,
    stopped: bool,
}

#[derive(Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    ready: Condvar,
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn worker_loop(&self) {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return;
            }
            let Some(client) = state.ready_clients.pop_front() else {
                state = self.ready.wait(state).unwrap_or_else(|e| e.into_inner());
                continue;
            };
            let work = state.queues.get_mut(&client).and_then(VecDeque::pop_front);
            drop(state);
            if let Some(work) = work {
                // If the work panics, its receiver sees a closed channel.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
            state = self.lock();
            match state.queues.get(&client).is_some_and(|line| !line.is_empty()) {
                true => state.ready_clients.push_back(client),
                false => drop(state.queues.remove(&client)),
            }
        }
    }
}

pub(crate) struct WorkerPool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkerPool {
    /// Starts this many threads, with a priority lowered by `lower`.
    pub(crate) fn new(threads: usize, lower: u8) -> std::io::Result<WorkerPool> {
        let mut workers = WorkerPool { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..threads {
            let shared = workers.shared.clone();
            let thread = std::thread::Builder::new().name("worker".into());
            workers.threads.push(thread.spawn(move || {
                cpu::lower_priority(lower);
                shared.worker_loop();
            })?);
        }
        Ok(workers)
    }

    /// Runs `work` when it is the client's turn and returns its result. Work whose result nobody waits for any more is not started.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: ClientId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> ApiResult<T> {
        let (reply, found) = oneshot::channel();
        self.submit(
            client,
            Box::new(move || {
                if !reply.is_closed() {
                    let _ = reply.send(work());
                }
            }),
        );
        found.await.map_err(|_| ApiError::new(500, "the request could not be prepared"))
    }

    fn submit(&self, client: ClientId, work: BoxedTask) {
        let mut state = self.shared.lock();
        let known = state.queues.contains_key(&client);
        state.queues.entry(client).or_default().push_back(work);
        if !known {
            state.ready_clients.push_back(client);
        }
        drop(state);
        self.shared.ready.notify_one();
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        state.queues.clear();
        drop(state);
        self.shared.ready.notify_all();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// The work of one client does not block another's, and a panic ends only the work itself.
    #[test]
    fn clients_take_turns() {
        let workers = WorkerPool::new(2, 0).expect("threads");
        let (to, from) = channel();
        let (open, closed) = channel::<()>();
        let closed = Arc::new(Mutex::new(closed));
        workers.submit(ClientId::Key(0), Box::new(|| panic!("on purpose")));
        for _ in 0..8 {
            let closed = closed.clone();
            workers.submit(ClientId::Key(0), Box::new(move || assert!(closed.lock().expect("fine").recv().is_err())));
        }
        for n in 0..8 {
            let to = to.clone();
            workers.submit(ClientId::Key(1), Box::new(move || to.send(n).expect("heard")));
        }
        let heard: Vec<i32> = (0..8).map(|_| from.recv_timeout(Duration::from_secs(20)).expect("done")).collect();
        assert_eq!(heard, (0..8).collect::<Vec<_>>());
        drop(open);
    }
}
