//! A fair queue of work for an engine, with one queue per client.
//!
//! The client that was served least comes next. A client that was inactive gets no credit for that time: it starts at the level
//! of the least served other client. Rows are shared by number: a client takes one from another that has at least two more.
//! Tokens are shared too: a client that is far ahead of another pauses until that one has caught up ([`FairQueue::paused`]).

use crate::serve::quota::{ClientId, max_per_client, within_fair_share};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The number of tokens by which a client may be ahead of the least served one before its rows pause.
const MAX_TOKENS_AHEAD: u64 = 16;

/// Why work was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// The queue is full at the moment.
    QueueFull,
    /// The request can never fit: the queue holds at most this many entries.
    TooLarge(usize),
    Stopped,
}

/// The resources that work needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkRequirements {
    /// Whether it needs a row.
    pub(crate) needs_row: bool,
    /// Number of tokens of a prompt or text to prefill first; 0 for a row that is resumed.
    pub(crate) prompt_tokens: usize,
}

/// Queued work of one client.
struct QueueEntry<W> {
    work: W,
    needs: WorkRequirements,
    /// Whether it was never started.
    is_new: bool,
}

struct ClientQueue<W> {
    entries: VecDeque<QueueEntry<W>>,
    /// Number of entries that were never started.
    num_new: usize,
    /// Number of tokens that the client was served.
    tokens_served: u64,
    /// Number of its rows.
    rows: usize,
    /// Whether work was taken for it and is not finished.
    in_progress: bool,
    /// Whether its rows are paused.
    paused: bool,
}

impl<W> Default for ClientQueue<W> {
    fn default() -> ClientQueue<W> {
        ClientQueue {
            entries: VecDeque::new(),
            num_new: 0,
            tokens_served: 0,
            rows: 0,
            in_progress: false,
            paused: false,
        }
    }
}

impl<W> ClientQueue<W> {
    fn is_active(&self) -> bool {
        !self.entries.is_empty() || self.rows > 0 || self.in_progress
    }
}

struct QueueState<W> {
    clients: BTreeMap<ClientId, ClientQueue<W>>,
    /// Number of entries that were never started.
    num_new: usize,
    stopped: bool,
}

/// The next work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextWork {
    pub(crate) client: ClientId,
    pub(crate) served: u64,
    /// Number of prompt tokens to prefill.
    pub(crate) prompt: usize,
    /// The client that gives up a row for it.
    pub(crate) victim: Option<ClientId>,
}

pub(crate) struct FairQueue<W> {
    capacity: usize,
    state: Mutex<QueueState<W>>,
    ready: Condvar,
}

impl<W> FairQueue<W> {
    pub(crate) fn new(most: usize) -> FairQueue<W> {
        let state = QueueState { clients: BTreeMap::new(), num_new: 0, stopped: false };
        FairQueue { capacity: most.max(1), state: Mutex::new(state), ready: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<W>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Adds all of a request's work, or nothing. `gone` returns whether nobody waits for an entry any
    /// more. Returns by how many entries the queue has grown.
    pub(crate) fn submit(
        &self,
        client: ClientId,
        works: Vec<(W, WorkRequirements)>,
        gone: impl Fn(&W) -> bool,
    ) -> (isize, Option<Rejected>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.stopped {
            return (0, Some(Rejected::Stopped));
        }
        if works.len() > max_per_client(self.capacity) {
            return (0, Some(Rejected::TooLarge(max_per_client(self.capacity))));
        }
        let own = |state: &QueueState<W>| state.clients.get(&client).map_or(0, |line| line.num_new);
        let before = state.num_new;
        if !within_fair_share(self.capacity, state.num_new, own(state), works.len()) {
            for line in state.clients.values_mut() {
                line.entries.retain(|entry| !entry.is_new || !gone(&entry.work));
                line.num_new = line.entries.iter().filter(|entry| entry.is_new).count();
            }
            state.num_new = state.clients.values().map(|line| line.num_new).sum();
            if !within_fair_share(self.capacity, state.num_new, own(state), works.len()) {
                return (state.num_new as isize - before as isize, Some(Rejected::QueueFull));
            }
        }
        let least = state.clients.values().filter(|line| line.is_active()).map(|line| line.tokens_served).min();
        match least {
            // A client that was served less than those that wait now gets no credit for it.
            Some(least) => state.clients.retain(|_, line| line.is_active() || line.tokens_served > least),
            None => state.clients.clear(),
        }
        state.num_new += works.len();
        let line = state.clients.entry(client).or_default();
        if !line.is_active() {
            line.tokens_served = line.tokens_served.max(least.unwrap_or(0));
        }
        line.num_new += works.len();
        line.entries.extend(works.into_iter().map(|(work, needs)| QueueEntry { work, needs, is_new: true }));
        let more = state.num_new as isize - before as isize;
        drop(guard);
        self.ready.notify_one();
        (more, None)
    }

    /// Waits until there is work, or until a timeout.
    pub(crate) fn wait(&self, time: Duration) {
        let state = self.lock();
        if state.clients.values().all(|line| line.entries.is_empty()) && !state.stopped {
            let _ = self.ready.wait_timeout(state, time);
        }
    }

    /// Selects the next work. Without `room` for a row, only work that needs no row, or that takes one from another client.
    pub(crate) fn next(&self, room: bool) -> Option<NextWork> {
        let state = self.lock();
        let most = state.clients.iter().max_by_key(|(_, line)| line.rows).map(|(client, line)| (*client, line.rows));
        let able = state.clients.iter().filter_map(|(client, line)| {
            let entry = line.entries.front()?;
            let next = NextWork {
                client: *client,
                served: line.tokens_served,
                prompt: entry.needs.prompt_tokens,
                victim: None,
            };
            match entry.needs.needs_row && !room {
                false => Some(next),
                true => {
                    let (victim, rows) = most.filter(|(_, rows)| *rows >= line.rows + 2)?;
                    debug_assert!(rows > 0 && victim != *client);
                    Some(NextWork { victim: Some(victim), ..next })
                }
            }
        });
        // Of two clients that were served equally, the one with the shorter prompt comes first.
        able.min_by_key(|next| (next.served, next.prompt))
    }

    /// Takes the first entry of a client, and whether it was never started. The client counts
    /// as being served until [`FairQueue::release`].
    pub(crate) fn take(&self, client: ClientId) -> Option<(W, bool)> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let line = state.clients.get_mut(&client)?;
        let entry = line.entries.pop_front()?;
        line.num_new -= usize::from(entry.is_new);
        line.in_progress = true;
        state.num_new -= usize::from(entry.is_new);
        Some((entry.work, entry.is_new))
    }

    /// Marks work that was taken as finished, put back, or assigned to a row.
    pub(crate) fn release(&self, client: ClientId) {
        if let Some(line) = self.lock().clients.get_mut(&client) {
            line.in_progress = false;
        }
    }

    /// Puts started work back as the client's next.
    pub(crate) fn requeue(&self, client: ClientId, work: W, needs: WorkRequirements) {
        self.lock().clients.entry(client).or_default().entries.push_front(QueueEntry { work, needs, is_new: false });
    }

    /// Records that a client was served `tokens`.
    pub(crate) fn charge(&self, client: ClientId, tokens: usize) {
        if let Some(line) = self.lock().clients.get_mut(&client) {
            line.tokens_served += tokens as u64;
        }
    }

    /// The number of tokens that a client was served.
    pub(crate) fn tokens_served(&self, client: ClientId) -> u64 {
        self.lock().clients.get(&client).map_or(0, |line| line.tokens_served)
    }

    /// The number of tokens of the least served client with rows, without this one.
    pub(crate) fn min_served_of_others(&self, client: ClientId) -> Option<u64> {
        let state = self.lock();
        let others = state.clients.iter().filter(|(own, line)| **own != client && line.rows > 0);
        others.map(|(_, line)| line.tokens_served).min()
    }

    /// The clients whose rows pause: a client pauses when it is more than `MAX_TOKENS_AHEAD` tokens ahead of the least served one
    /// that has rows, until that one has caught up.
    pub(crate) fn paused(&self) -> Vec<ClientId> {
        let mut state = self.lock();
        let least =
            state.clients.values().filter(|line| line.rows > 0).map(|line| line.tokens_served).min().unwrap_or(0);
        for line in state.clients.values_mut() {
            let most = if line.paused { least } else { least + MAX_TOKENS_AHEAD };
            line.paused = line.rows > 0 && line.tokens_served > most;
        }
        state.clients.iter().filter(|(_, line)| line.paused).map(|(client, _)| *client).collect()
    }

    /// Records that a client has one row more, or one less.
    pub(crate) fn update_row_count(&self, client: ClientId, more: bool) {
        let mut state = self.lock();
        let line = state.clients.entry(client).or_default();
        line.rows = if more { line.rows + 1 } else { line.rows.saturating_sub(1) };
    }

    /// Closes the queue, and returns the waiting work, each with whether it was never started.
    pub(crate) fn close_and_drain(&self) -> Vec<(W, bool)> {
        let mut state = self.lock();
        state.stopped = true;
        state.num_new = 0;
        let lines = std::mem::take(&mut state.clients);
        lines.into_values().flat_map(|line| line.entries).map(|entry| (entry.work, entry.is_new)).collect()
    }

    /// Closes the queue.
    pub(crate) fn close(&self) {
        self.lock().stopped = true;
        self.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(queue: &FairQueue<usize>, client: usize, works: &[usize]) -> Option<Rejected> {
        let needs = WorkRequirements { needs_row: true, prompt_tokens: 1 };
        let works = works.iter().map(|work| (*work, needs)).collect();
        queue.submit(ClientId::Key(client), works, |work| *work == 99).1
    }

    #[test]
    fn a_full_line_leaves_room_for_others() {
        let queue = FairQueue::new(16);
        assert_eq!(submit(&queue, 0, &[1; 9]), Some(Rejected::TooLarge(8)));
        assert_eq!(submit(&queue, 0, &[1; 8]), None);
        assert_eq!(submit(&queue, 0, &[1]), Some(Rejected::QueueFull));
        assert_eq!(submit(&queue, 1, &[1; 4]), None);
        assert_eq!(submit(&queue, 1, &[1; 2]), Some(Rejected::QueueFull));
        assert_eq!(submit(&queue, 2, &[1]), None);
        // Abandoned entries make room.
        let queue = FairQueue::new(16);
        assert_eq!(submit(&queue, 0, &[99; 8]), None);
        assert_eq!(submit(&queue, 0, &[1; 8]), None);
        // An unlimited capacity reserves no memory.
        assert_eq!(submit(&FairQueue::new(usize::MAX), 0, &[1; 100]), None);
    }

    #[test]
    fn the_least_served_comes_next() {
        let queue = FairQueue::new(64);
        submit(&queue, 0, &[1; 8]);
        for _ in 0..3 {
            let next = queue.next(true).expect("work");
            assert!(queue.take(next.client).is_some());
            queue.charge(next.client, 100);
        }
        submit(&queue, 1, &[2; 8]);
        // A new client starts at the level of the others, and both alternate.
        let mut turns = Vec::new();
        for _ in 0..8 {
            let next = queue.next(true).expect("work");
            queue.take(next.client);
            queue.charge(next.client, 10);
            turns.push(next.client);
        }
        assert_eq!(turns.iter().filter(|client| **client == ClientId::Key(1)).count(), 4, "{turns:?}");
    }

    /// Tests which client is next, by the tokens that clients were served and the length of their prompts.
    #[test]
    fn the_shorter_of_two_that_were_served_alike_comes_next() {
        let cases: [(&[(usize, usize)], usize); 5] = [
            (&[(0, 300), (0, 5)], 1),
            (&[(0, 5), (0, 300)], 0),
            (&[(7, 300), (8, 5)], 0),
            (&[(8, 5), (7, 300)], 1),
            // A resumed row has no prompt.
            (&[(0, 5), (0, 300), (0, 0)], 2),
        ];
        for (clients, expected) in cases {
            let queue = FairQueue::new(64);
            for (client, (_, prompt)) in clients.iter().enumerate() {
                let needs = WorkRequirements { needs_row: true, prompt_tokens: *prompt };
                assert_eq!(queue.submit(ClientId::Key(client), vec![(1, needs)], |_| false).1, None);
            }
            clients.iter().enumerate().for_each(|(client, (served, _))| queue.charge(ClientId::Key(client), *served));
            assert_eq!(queue.next(true).map(|next| next.client), Some(ClientId::Key(expected)), "{clients:?}");
        }
    }

    /// A client that arrives while another, which was served more, has much work, is the next one.
    #[test]
    fn a_newcomer_is_next() {
        let queue = FairQueue::new(64);
        submit(&queue, 0, &[1; 8]);
        for tokens in [0, 1, 1000] {
            queue.charge(ClientId::Key(0), tokens);
            submit(&queue, 1, &[2]);
            // Even a single token served since then counts.
            queue.charge(ClientId::Key(0), 1);
            let next = queue.next(true).expect("work");
            assert_eq!(next.client, ClientId::Key(1));
            queue.take(next.client);
            queue.charge(next.client, 1);
            queue.release(next.client);
        }
    }

    /// Tests which clients pause while each row that is decoded gets a token.
    #[test]
    fn who_is_far_ahead_pauses_until_others_have_caught_up() {
        // The rows of each client; in how many of 320 steps each takes part. Each gets as many tokens as the one with the fewest rows.
        let cases: [(&[usize], &[usize]); 5] = [
            (&[3], &[320]),
            (&[1, 1, 1], &[320, 320, 320]),
            (&[7, 1], &[50, 320]),
            (&[2, 1], &[170, 320]),
            (&[4, 2, 1], &[86, 172, 320]),
        ];
        for (rows, expected) in cases {
            let queue: FairQueue<usize> = FairQueue::new(64);
            for (client, rows) in rows.iter().enumerate() {
                (0..*rows).for_each(|_| queue.update_row_count(ClientId::Key(client), true));
            }
            let mut steps = vec![0usize; rows.len()];
            for _ in 0..320 {
                let paused = queue.paused();
                for (client, rows) in rows.iter().enumerate().filter(|(n, _)| !paused.contains(&ClientId::Key(*n))) {
                    queue.charge(ClientId::Key(client), *rows);
                    steps[client] += 1;
                }
                let got = (0..rows.len()).map(|client| queue.tokens_served(ClientId::Key(client)));
                let (least, most) = (got.clone().min().expect("one"), got.max().expect("one"));
                assert!(most - least <= MAX_TOKENS_AHEAD + rows[0] as u64, "{rows:?}: {least} {most}");
            }
            let near = steps.iter().zip(expected).all(|(steps, expected)| steps.abs_diff(*expected) <= 8);
            assert!(near, "{rows:?}: {steps:?}");
        }
    }

    #[test]
    fn rows_are_taken_from_who_has_more() {
        let queue = FairQueue::new(64);
        (0..4).for_each(|_| queue.update_row_count(ClientId::Key(0), true));
        submit(&queue, 0, &[1]);
        assert_eq!(queue.next(false), None);
        submit(&queue, 1, &[2]);
        let next = queue.next(false).expect("takes a row");
        assert_eq!((next.client, next.victim), (ClientId::Key(1), Some(ClientId::Key(0))));
        for (client, more) in [(0, false), (1, true), (0, false), (1, true)] {
            queue.update_row_count(ClientId::Key(client), more);
        }
        // Two rows each: neither takes from the other.
        assert_eq!(queue.next(false), None);
        assert!(queue.next(true).is_some());
    }
}
