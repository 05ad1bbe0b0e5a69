//! Threads for what takes long before a model sees it: reading bodies, templates, tokens, expressions. Connections don't wait for it,
//! and neither do clients for each other: they take turns, and each has one thread at most. Threads for large requests have a lower
//! priority than the engines, which work for all clients.

use crate::serve::api::{Fault, Parsed};
use crate::serve::shares::Client;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Of clients that are in turn or at work.
    lines: BTreeMap<Client, VecDeque<Work>>,
    /// Clients whose work waits, and who have no thread.
    turns: VecDeque<Client>,
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return;
            }
            let Some(client) = state.turns.pop_front() else {
                state = self.ready.wait(state).unwrap_or_else(|e| e.into_inner());
                continue;
            };
            let work = state.lines.get_mut(&client).and_then(VecDeque::pop_front);
            drop(state);
            if let Some(work) = work {
                // Whoever waits for it hears that it gave nothing.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
            state = self.lock();
            match state.lines.get(&client).is_some_and(|line| !line.is_empty()) {
                true => state.turns.push_back(client),
                false => drop(state.lines.remove(&client)),
            }
        }
    }
}

pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// So many threads, whose priority is lower by so much.
    pub(crate) fn new(threads: usize, lower: u8) -> std::io::Result<Workers> {
        let mut workers = Workers { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..threads {
            let shared = workers.shared.clone();
            let thread = std::thread::Builder::new().name("worker".into());
            workers.threads.push(thread.spawn(move || {
                cpu::lower_priority(lower);
                shared.work();
            })?);
        }
        Ok(workers)
    }

    /// What `work` gives, when it is the client's turn. It is not begun where nobody waits for it any more.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: Client,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Parsed<T> {
        let (reply, found) = oneshot::channel();
        self.submit(
            client,
            Box::new(move || {
                if !reply.is_closed() {
                    let _ = reply.send(work());
                }
            }),
        );
        found.await.map_err(|_| Fault::new(500, "the request could not be prepared"))
    }

    fn submit(&self, client: Client, work: Work) {
        let mut state = self.shared.lock();
        let known = state.lines.contains_key(&client);
        state.lines.entry(client).or_default().push_back(work);
        if !known {
            state.turns.push_back(client);
        }
        drop(state);
        self.shared.ready.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        state.lines.clear();
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

    /// One client's work does not hold up another's, and a panic ends nothing but itself.
    #[test]
    fn clients_take_turns() {
        let workers = Workers::new(2, 0).expect("threads");
        let (to, from) = channel();
        let (open, closed) = channel::<()>();
        let closed = Arc::new(Mutex::new(closed));
        workers.submit(Client::Key(0), Box::new(|| panic!("on purpose")));
        for _ in 0..8 {
            let closed = closed.clone();
            workers.submit(Client::Key(0), Box::new(move || assert!(closed.lock().expect("fine").recv().is_err())));
        }
        for n in 0..8 {
            let to = to.clone();
            workers.submit(Client::Key(1), Box::new(move || to.send(n).expect("heard")));
        }
        let heard: Vec<i32> = (0..8).map(|_| from.recv_timeout(Duration::from_secs(20)).expect("done")).collect();
        assert_eq!(heard, (0..8).collect::<Vec<_>>());
        drop(open);
    }
}
