//! Open connections. A new client is always admitted: at the limit, the connection that has been idle for longest is closed, and
//! if none is idle, the new one waits.

use crate::serve::quota::{ClientId, within_fair_share};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A connection that was opened or answered more recently than this is not evicted: its request or answer may be in transit.
const MIN_IDLE_TIME: Duration = Duration::from_millis(250);

struct OpenConnection {
    client: ClientId,
    /// The number of its requests in progress, and when that number changed.
    active_requests: usize,
    idle_since: Instant,
    close: Arc<Notify>,
}

pub(crate) struct Connections {
    max_connections: usize,
    open: Mutex<(u64, BTreeMap<u64, OpenConnection>)>,
}

/// An open connection.
pub(crate) struct Connection {
    all: Arc<Connections>,
    id: u64,
    pub(crate) client: ClientId,
    /// Notified when the connection is evicted.
    pub(crate) close: Arc<Notify>,
}

/// Marks a connection as busy: a complete request is not answered yet, so the connection is not evicted.
pub(crate) struct ActiveRequest(Arc<Connection>);

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Connections> {
        Arc::new(Connections { max_connections: most, open: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, OpenConnection>)> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Admits a connection of this client, if there is room or an idle connection can be evicted.
    pub(crate) fn admit(self: &Arc<Self>, client: ClientId) -> Option<Arc<Connection>> {
        let mut state = self.lock();
        let (next, open) = &mut *state;
        loop {
            let own = open.values().filter(|open| open.client == client).count();
            if within_fair_share(self.max_connections, open.len(), own, 1) {
                break;
            }
            // A client at its limit loses a connection of its own; at the total limit, any client loses one.
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

    /// Closes the connection that has been idle for longest; returns whether there was one.
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

/// Evicts the connection that has been idle for longest, of one client or of all.
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
    /// Marks the connection as busy with a complete request.
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
        // New connections are not evicted: they may have a request in transit.
        assert!(all.admit(client(0)).is_none());
        settle();
        let kept: Vec<_> = (0..4).map(|_| all.admit(client(0)).expect("its own oldest goes")).collect();
        assert!(all.lock().1.len() == 4 && first.iter().all(|old| !all.lock().1.contains_key(&old.id)));
        // Busy connections stay, and a client with too many of them gets no more.
        let working: Vec<_> = kept.iter().map(Connection::begin_request).collect();
        settle();
        assert!(all.admit(client(0)).is_none());
        let others: Vec<_> = (1..5).map(|n| all.admit(client(n)).expect("room")).collect();
        assert_eq!(all.lock().1.len(), 8);
        settle();
        // All are taken: the one that has been idle for longest is evicted.
        let last = all.admit(client(9)).expect("room is made");
        assert!(!all.lock().1.contains_key(&others[0].id) && all.lock().1.contains_key(&last.id));
        drop(working);
        assert!(all.close_most_idle());
        drop((first, kept, others, last));
        assert!(all.lock().1.is_empty() && !all.close_most_idle());
    }
}
