//! Work that waits for an engine, a line for each client.
//!
//! The client that was served least comes next, and a client that was away is not owed the time: it begins where the least served of
//! the others is. Rows are shared by number: a client takes one from another that has at least two more. So are their tokens: a
//! client that is far ahead of another pauses until that one has caught up ([`Queue::paused`]).

use crate::serve::shares::{Client, fits, largest};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Tokens that a client may be ahead of the least served one before its rows pause.
const AHEAD: u64 = 16;

/// Why work was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Not now.
    Full,
    /// Never: at most so many at once.
    Large(usize),
    Stopped,
}

/// What the queue knows of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Whether it needs a row.
    pub(crate) row: bool,
    /// Tokens of a prompt or text that are to be run first. A row that goes on has none.
    pub(crate) prompt: usize,
}

/// Work of one client.
struct Entry<W> {
    work: W,
    needs: Needs,
    /// Whether it was never begun.
    fresh: bool,
}

struct Line<W> {
    entries: VecDeque<Entry<W>>,
    /// Entries that were never begun.
    fresh: usize,
    /// What the client got, in tokens.
    served: u64,
    /// Rows that it has.
    rows: usize,
    /// Whether work of it was taken and is not done.
    held: bool,
    /// Whether its rows pause.
    paused: bool,
}

impl<W> Default for Line<W> {
    fn default() -> Line<W> {
        Line { entries: VecDeque::new(), fresh: 0, served: 0, rows: 0, held: false, paused: false }
    }
}

impl<W> Line<W> {
    fn is_active(&self) -> bool {
        !self.entries.is_empty() || self.rows > 0 || self.held
    }
}

struct State<W> {
    lines: BTreeMap<Client, Line<W>>,
    /// Entries that were never begun.
    fresh: usize,
    stopped: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) client: Client,
    pub(crate) served: u64,
    /// Tokens of its prompt that are to be run.
    pub(crate) prompt: usize,
    /// Who gives up a row for it.
    pub(crate) victim: Option<Client>,
}

pub(crate) struct Queue<W> {
    most: usize,
    state: Mutex<State<W>>,
    ready: Condvar,
}

impl<W> Queue<W> {
    pub(crate) fn new(most: usize) -> Queue<W> {
        let state = State { lines: BTreeMap::new(), fresh: 0, stopped: false };
        Queue { most: most.max(1), state: Mutex::new(state), ready: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes all of a request's work, or nothing. `gone` says of waiting work that nobody wants it any more. Gives how many entries
    /// there are more.
    pub(crate) fn submit(
        &self,
        client: Client,
        works: Vec<(W, Needs)>,
        gone: impl Fn(&W) -> bool,
    ) -> (isize, Option<Refused>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.stopped {
            return (0, Some(Refused::Stopped));
        }
        if works.len() > largest(self.most) {
            return (0, Some(Refused::Large(largest(self.most))));
        }
        let own = |state: &State<W>| state.lines.get(&client).map_or(0, |line| line.fresh);
        let before = state.fresh;
        if !fits(self.most, state.fresh, own(state), works.len()) {
            for line in state.lines.values_mut() {
                line.entries.retain(|entry| !entry.fresh || !gone(&entry.work));
                line.fresh = line.entries.iter().filter(|entry| entry.fresh).count();
            }
            state.fresh = state.lines.values().map(|line| line.fresh).sum();
            if !fits(self.most, state.fresh, own(state), works.len()) {
                return (state.fresh as isize - before as isize, Some(Refused::Full));
            }
        }
        let least = state.lines.values().filter(|line| line.is_active()).map(|line| line.served).min();
        match least {
            // Who was served less than those who wait now has no advantage of it.
            Some(least) => state.lines.retain(|_, line| line.is_active() || line.served > least),
            None => state.lines.clear(),
        }
        state.fresh += works.len();
        let line = state.lines.entry(client).or_default();
        if !line.is_active() {
            line.served = line.served.max(least.unwrap_or(0));
        }
        line.fresh += works.len();
        line.entries.extend(works.into_iter().map(|(work, needs)| Entry { work, needs, fresh: true }));
        let more = state.fresh as isize - before as isize;
        drop(guard);
        self.ready.notify_one();
        (more, None)
    }

    /// Waits until there is work, or for this long.
    pub(crate) fn wait(&self, time: Duration) {
        let state = self.lock();
        if state.lines.values().all(|line| line.entries.is_empty()) && !state.stopped {
            let _ = self.ready.wait_timeout(state, time);
        }
    }

    /// Whose work comes next. Where there is no `room` for a row, only what needs none, or what takes one from another client.
    pub(crate) fn next(&self, room: bool) -> Option<Next> {
        let state = self.lock();
        let most = state.lines.iter().max_by_key(|(_, line)| line.rows).map(|(client, line)| (*client, line.rows));
        let able = state.lines.iter().filter_map(|(client, line)| {
            let entry = line.entries.front()?;
            let next = Next { client: *client, served: line.served, prompt: entry.needs.prompt, victim: None };
            match entry.needs.row && !room {
                false => Some(next),
                true => {
                    let (victim, rows) = most.filter(|(_, rows)| *rows >= line.rows + 2)?;
                    debug_assert!(rows > 0 && victim != *client);
                    Some(Next { victim: Some(victim), ..next })
                }
            }
        });
        // Of two that were served alike, the one that takes less time comes first.
        able.min_by_key(|next| (next.served, next.prompt))
    }

    /// The first entry of a client, and whether it was never begun. The client is known as served until [`Queue::release`].
    pub(crate) fn take(&self, client: Client) -> Option<(W, bool)> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let line = state.lines.get_mut(&client)?;
        let entry = line.entries.pop_front()?;
        line.fresh -= usize::from(entry.fresh);
        line.held = true;
        state.fresh -= usize::from(entry.fresh);
        Some((entry.work, entry.fresh))
    }

    /// Work that was taken is done, or put back, or has its row.
    pub(crate) fn release(&self, client: Client) {
        if let Some(line) = self.lock().lines.get_mut(&client) {
            line.held = false;
        }
    }

    /// Work that was begun goes on as the client's next.
    pub(crate) fn put_back(&self, client: Client, work: W, needs: Needs) {
        self.lock().lines.entry(client).or_default().entries.push_front(Entry { work, needs, fresh: false });
    }

    /// A client got so many tokens.
    pub(crate) fn charge(&self, client: Client, tokens: usize) {
        if let Some(line) = self.lock().lines.get_mut(&client) {
            line.served += tokens as u64;
        }
    }

    /// What a client got.
    pub(crate) fn served(&self, client: Client) -> u64 {
        self.lock().lines.get(&client).map_or(0, |line| line.served)
    }

    /// What the least served of the clients with rows got, without this one.
    pub(crate) fn least_of_others(&self, client: Client) -> Option<u64> {
        let state = self.lock();
        let others = state.lines.iter().filter(|(own, line)| **own != client && line.rows > 0);
        others.map(|(_, line)| line.served).min()
    }

    /// Clients whose rows pause: from where one is more than [`AHEAD`] tokens ahead of the least served one that has rows, until that
    /// one has caught up.
    pub(crate) fn paused(&self) -> Vec<Client> {
        let mut state = self.lock();
        let least = state.lines.values().filter(|line| line.rows > 0).map(|line| line.served).min().unwrap_or(0);
        for line in state.lines.values_mut() {
            let most = if line.paused { least } else { least + AHEAD };
            line.paused = line.rows > 0 && line.served > most;
        }
        state.lines.iter().filter(|(_, line)| line.paused).map(|(client, _)| *client).collect()
    }

    /// A client has a row more, or one less.
    pub(crate) fn rows(&self, client: Client, more: bool) {
        let mut state = self.lock();
        let line = state.lines.entry(client).or_default();
        line.rows = if more { line.rows + 1 } else { line.rows.saturating_sub(1) };
    }

    /// Takes nothing more, and gives what waits with whether it was never begun.
    pub(crate) fn end(&self) -> Vec<(W, bool)> {
        let mut state = self.lock();
        state.stopped = true;
        state.fresh = 0;
        let lines = std::mem::take(&mut state.lines);
        lines.into_values().flat_map(|line| line.entries).map(|entry| (entry.work, entry.fresh)).collect()
    }

    /// Takes nothing more.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(queue: &Queue<usize>, client: usize, works: &[usize]) -> Option<Refused> {
        let needs = Needs { row: true, prompt: 1 };
        let works = works.iter().map(|work| (*work, needs)).collect();
        queue.submit(Client::Key(client), works, |work| *work == 99).1
    }

    #[test]
    fn a_full_line_leaves_room_for_others() {
        let queue = Queue::new(16);
        assert_eq!(submit(&queue, 0, &[1; 9]), Some(Refused::Large(8)));
        assert_eq!(submit(&queue, 0, &[1; 8]), None);
        assert_eq!(submit(&queue, 0, &[1]), Some(Refused::Full));
        assert_eq!(submit(&queue, 1, &[1; 4]), None);
        assert_eq!(submit(&queue, 1, &[1; 2]), Some(Refused::Full));
        assert_eq!(submit(&queue, 2, &[1]), None);
        // What nobody wants any more makes place.
        let queue = Queue::new(16);
        assert_eq!(submit(&queue, 0, &[99; 8]), None);
        assert_eq!(submit(&queue, 0, &[1; 8]), None);
        // A length that nobody could have is no reason to reserve it.
        assert_eq!(submit(&Queue::new(usize::MAX), 0, &[1; 100]), None);
    }

    #[test]
    fn the_least_served_comes_next() {
        let queue = Queue::new(64);
        submit(&queue, 0, &[1; 8]);
        for _ in 0..3 {
            let next = queue.next(true).expect("work");
            assert!(queue.take(next.client).is_some());
            queue.charge(next.client, 100);
        }
        submit(&queue, 1, &[2; 8]);
        // The newcomer begins where the others are, and both go on in turns.
        let mut turns = Vec::new();
        for _ in 0..8 {
            let next = queue.next(true).expect("work");
            queue.take(next.client);
            queue.charge(next.client, 10);
            turns.push(next.client);
        }
        assert_eq!(turns.iter().filter(|client| **client == Client::Key(1)).count(), 4, "{turns:?}");
    }

    /// Who comes next, by what clients were served, and the length of their prompts.
    #[test]
    fn the_shorter_of_two_that_were_served_alike_comes_next() {
        let cases: [(&[(usize, usize)], usize); 5] = [
            (&[(0, 300), (0, 5)], 1),
            (&[(0, 5), (0, 300)], 0),
            (&[(7, 300), (8, 5)], 0),
            (&[(8, 5), (7, 300)], 1),
            // A row that goes on has no prompt.
            (&[(0, 5), (0, 300), (0, 0)], 2),
        ];
        for (clients, expected) in cases {
            let queue = Queue::new(64);
            for (client, (_, prompt)) in clients.iter().enumerate() {
                let needs = Needs { row: true, prompt: *prompt };
                assert_eq!(queue.submit(Client::Key(client), vec![(1, needs)], |_| false).1, None);
            }
            clients.iter().enumerate().for_each(|(client, (served, _))| queue.charge(Client::Key(client), *served));
            assert_eq!(queue.next(true).map(|next| next.client), Some(Client::Key(expected)), "{clients:?}");
        }
    }

    /// A client that comes while another has much to do, and was served more, is the next one.
    #[test]
    fn a_newcomer_is_next() {
        let queue = Queue::new(64);
        submit(&queue, 0, &[1; 8]);
        for tokens in [0, 1, 1000] {
            queue.charge(Client::Key(0), tokens);
            submit(&queue, 1, &[2]);
            // What the other one has done since, and be it one token, counts.
            queue.charge(Client::Key(0), 1);
            let next = queue.next(true).expect("work");
            assert_eq!(next.client, Client::Key(1));
            queue.take(next.client);
            queue.charge(next.client, 1);
            queue.release(next.client);
        }
    }

    /// Which clients pause while each row that is stepped gets a token.
    #[test]
    fn who_is_far_ahead_pauses_until_others_have_caught_up() {
        // Rows of each client; how many of 320 steps each takes part in. Each gets as many tokens as the one with the fewest rows.
        let cases: [(&[usize], &[usize]); 5] = [
            (&[3], &[320]),
            (&[1, 1, 1], &[320, 320, 320]),
            (&[7, 1], &[50, 320]),
            (&[2, 1], &[170, 320]),
            (&[4, 2, 1], &[86, 172, 320]),
        ];
        for (rows, expected) in cases {
            let queue: Queue<usize> = Queue::new(64);
            for (client, rows) in rows.iter().enumerate() {
                (0..*rows).for_each(|_| queue.rows(Client::Key(client), true));
            }
            let mut steps = vec![0usize; rows.len()];
            for _ in 0..320 {
                let paused = queue.paused();
                for (client, rows) in rows.iter().enumerate().filter(|(n, _)| !paused.contains(&Client::Key(*n))) {
                    queue.charge(Client::Key(client), *rows);
                    steps[client] += 1;
                }
                let got = (0..rows.len()).map(|client| queue.served(Client::Key(client)));
                let (least, most) = (got.clone().min().expect("one"), got.max().expect("one"));
                assert!(most - least <= AHEAD + rows[0] as u64, "{rows:?}: {least} {most}");
            }
            let near = steps.iter().zip(expected).all(|(steps, expected)| steps.abs_diff(*expected) <= 8);
            assert!(near, "{rows:?}: {steps:?}");
        }
    }

    #[test]
    fn rows_are_taken_from_who_has_more() {
        let queue = Queue::new(64);
        (0..4).for_each(|_| queue.rows(Client::Key(0), true));
        submit(&queue, 0, &[1]);
        assert_eq!(queue.next(false), None);
        submit(&queue, 1, &[2]);
        let next = queue.next(false).expect("takes a row");
        assert_eq!((next.client, next.victim), (Client::Key(1), Some(Client::Key(0))));
        for (client, more) in [(0, false), (1, true), (0, false), (1, true)] {
            queue.rows(Client::Key(client), more);
        }
        // Two each: nobody takes from the other.
        assert_eq!(queue.next(false), None);
        assert!(queue.next(true).is_some());
    }
}
