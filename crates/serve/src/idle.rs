//! What a server does when it has nothing to do: it gives freed memory back to the system.
//!
//! The allocator keeps what large requests had, in case of more. It would stay the process's for as long as it runs.

use crate::metrics::Metrics;
use std::sync::Arc;
use std::time::Duration;

/// A server is idle after no answer ended, and no step was run, for this long.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// Gives freed memory back whenever the server becomes idle. Ends with the runtime.
pub(crate) async fn trim_memory_when_idle(metrics: Arc<Metrics>) {
    let (mut last, mut given) = (0, 0);
    loop {
        tokio::time::sleep(IDLE_AFTER).await;
        let now = metrics.events();
        if now == last && now != given {
            cpu::trim_heap();
            given = now;
        }
        last = now;
    }
}
