//! Open connections. There is always room for one more client: where the limit is reached, the connection that did nothing for longest
//! is closed, and where all are at work a new one waits.

use crate::quota::{ClientId, within_fair_share};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A connection that is younger, or was answered less long ago, is not closed to make place: its request or answer may be under way.
const MIN_IDLE_TIME: Duration = Duration::from_millis(250);

struct OpenConnection {
    client: ClientId,
    /// How many of its requests are being answered; and when that changed.
    active_requests: usize,
    idle_since: Instant,
    close: Arc<Notify>,
}

pub(crate) struct Connections {
    max_connections: usize,
    open: Mutex<(u64, BTreeMap<u64, OpenConnection>)>,
}

/// One of them.
pub(crate) struct Connection {
    all: Arc<Connections>,
    id: u64,
    pub(crate) client: ClientId,
    /// Told when the connection has to make place.
    pub(crate) close: Arc<Notify>,
}

/// A request that came whole and is not answered yet: its connection is not closed to make place.
pub(crate) struct ActiveRequest(Arc<Connection>);

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Connections> {
        Arc::new(Connections { max_connections: most, open: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, OpenConnection>)> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A connection of this client, if there is room or can be made.
    pub(crate) fn admit(self: &Arc<Self>, client: ClientId) -> Option<Arc<Connection>> {
        let mut state = self.lock();
        let (next, open) = &mut *state;
        loop {
            let own = open.values().filter(|open| open.client == client).count();
            if within_fair_share(self.max_connections, open.len(), own, 1) {
                break;
            }
            // Whoever has too many loses one of its own; where all are taken, anybody does.
            let full = open.len() >= self.max_connections;
            evict(open, (!full).then_some(client), MIN_IDLE_TIME)?;
        }
        *next += 1;
        let close = Arc::new(Notify::new());
        open.insert(
            *next,
            OpenConnection { client, active_requests: 0, idle_since: Instant::now(), close: close.clone() },
        );
        Some(Arc::new(Connection { all: self.clone(), id: *next, client, close }))
    }

    /// Closes the connection that did nothing for longest; says whether there was one.
    pub(crate) fn close_most_idle(&self) -> bool {
        evict(&mut self.lock().1, None, Duration::ZERO).is_some()
    }

    fn update_active_requests(&self, id: u64, more: bool) {
        if let Some(open) = self.lock().1.get_mut(&id) {
            open.active_requests = if more { open.active_requests + 1 } else { open.active_requests.saturating_sub(1) };
            open.idle_since = Instant::now();
        }
    }
}

/// Takes out the connection that is idle for longest, of one client or of all.
fn evict(open: &mut BTreeMap<u64, OpenConnection>, of: Option<ClientId>, settled: Duration) -> Option<()> {
    let idle = open.iter().filter(|(_, open)| {
        open.active_requests == 0
            && open.idle_since.elapsed() >= settled
            && of.is_none_or(|client| client == open.client)
    });
    let oldest = idle.map(|(id, open)| (open.idle_since, *id)).min()?;
    open.remove(&oldest.1)?.close.notify_one();
    Some(())
}

impl Connection {
    /// A request came whole.
    pub(crate) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        self.all.update_active_requests(self.id, true);
        ActiveRequest(self.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.lock().1.remove(&self.id);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.all.update_active_requests(self.0.id, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_make_place() {
        let all = Connections::new(8);
        let client = ClientId::Key;
        let settle = || std::thread::sleep(MIN_IDLE_TIME);
        let first: Vec<_> = (0..4).map(|_| all.admit(client(0)).expect("room")).collect();
        // What is new may have something to say.
        assert!(all.admit(client(0)).is_none());
        settle();
        let kept: Vec<_> = (0..4).map(|_| all.admit(client(0)).expect("its own oldest goes")).collect();
        assert!(all.lock().1.len() == 4 && first.iter().all(|old| !all.lock().1.contains_key(&old.id)));
        // Those that are at work stay, and who has too many of them gets no more.
        let working: Vec<_> = kept.iter().map(Connection::begin_request).collect();
        settle();
        assert!(all.admit(client(0)).is_none());
        let others: Vec<_> = (1..5).map(|n| all.admit(client(n)).expect("room")).collect();
        assert_eq!(all.lock().1.len(), 8);
        settle();
        // All are taken: the one that is idle for longest goes.
        let last = all.admit(client(9)).expect("room is made");
        assert!(!all.lock().1.contains_key(&others[0].id) && all.lock().1.contains_key(&last.id));
        drop(working);
        assert!(all.close_most_idle());
        drop((first, kept, others, last));
        assert!(all.lock().1.is_empty() && !all.close_most_idle());
    }
}
