//! Open connections. There is always room for one more client: where the limit is reached, the connection that did nothing for longest
//! is closed, and where all are at work a new one waits.

use crate::serve::shares::{Client, fits};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A connection that is younger, or was answered less long ago, is not closed to make place: its request or answer may be under way.
const SETTLED: Duration = Duration::from_millis(250);

struct Open {
    client: Client,
    /// How many of its requests are being answered; and when that changed.
    working: usize,
    since: Instant,
    close: Arc<Notify>,
}

pub(crate) struct Connections {
    most: usize,
    open: Mutex<(u64, BTreeMap<u64, Open>)>,
}

/// One of them.
pub(crate) struct Connection {
    all: Arc<Connections>,
    id: u64,
    pub(crate) client: Client,
    /// Told when the connection has to make place.
    pub(crate) close: Arc<Notify>,
}

/// A request that came whole and is not answered yet: its connection is not closed to make place.
pub(crate) struct Working(Arc<Connection>);

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Connections> {
        Arc::new(Connections { most, open: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Open>)> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A connection of this client, if there is room or can be made.
    pub(crate) fn admit(self: &Arc<Self>, client: Client) -> Option<Arc<Connection>> {
        let mut state = self.lock();
        let (next, open) = &mut *state;
        loop {
            let own = open.values().filter(|open| open.client == client).count();
            if fits(self.most, open.len(), own, 1) {
                break;
            }
            // Whoever has too many loses one of its own; where all are taken, anybody does.
            let full = open.len() >= self.most;
            evict(open, (!full).then_some(client), SETTLED)?;
        }
        *next += 1;
        let close = Arc::new(Notify::new());
        open.insert(*next, Open { client, working: 0, since: Instant::now(), close: close.clone() });
        Some(Arc::new(Connection { all: self.clone(), id: *next, client, close }))
    }

    /// Closes the connection that did nothing for longest; says whether there was one.
    pub(crate) fn make_room(&self) -> bool {
        evict(&mut self.lock().1, None, Duration::ZERO).is_some()
    }

    fn working(&self, id: u64, more: bool) {
        if let Some(open) = self.lock().1.get_mut(&id) {
            open.working = if more { open.working + 1 } else { open.working.saturating_sub(1) };
            open.since = Instant::now();
        }
    }
}

/// Takes out the connection that is idle for longest, of one client or of all.
fn evict(open: &mut BTreeMap<u64, Open>, of: Option<Client>, settled: Duration) -> Option<()> {
    let idle = open.iter().filter(|(_, open)| {
        open.working == 0 && open.since.elapsed() >= settled && of.is_none_or(|client| client == open.client)
    });
    let oldest = idle.map(|(id, open)| (open.since, *id)).min()?;
    open.remove(&oldest.1)?.close.notify_one();
    Some(())
}

impl Connection {
    /// A request came whole.
    pub(crate) fn work(self: &Arc<Self>) -> Working {
        self.all.working(self.id, true);
        Working(self.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.lock().1.remove(&self.id);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.all.working(self.0.id, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_make_place() {
        let all = Connections::new(8);
        let client = Client::Key;
        let settle = || std::thread::sleep(SETTLED);
        let first: Vec<_> = (0..4).map(|_| all.admit(client(0)).expect("room")).collect();
        // What is new may have something to say.
        assert!(all.admit(client(0)).is_none());
        settle();
        let kept: Vec<_> = (0..4).map(|_| all.admit(client(0)).expect("its own oldest goes")).collect();
        assert!(all.lock().1.len() == 4 && first.iter().all(|old| !all.lock().1.contains_key(&old.id)));
        // Those that are at work stay, and who has too many of them gets no more.
        let working: Vec<_> = kept.iter().map(Connection::work).collect();
        settle();
        assert!(all.admit(client(0)).is_none());
        let others: Vec<_> = (1..5).map(|n| all.admit(client(n)).expect("room")).collect();
        assert_eq!(all.lock().1.len(), 8);
        settle();
        // All are taken: the one that is idle for longest goes.
        let last = all.admit(client(9)).expect("room is made");
        assert!(!all.lock().1.contains_key(&others[0].id) && all.lock().1.contains_key(&last.id));
        drop(working);
        assert!(all.make_room());
        drop((first, kept, others, last));
        assert!(all.lock().1.is_empty() && !all.make_room());
    }
}
