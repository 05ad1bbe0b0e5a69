//! Returns freed memory to the system while the server is idle.
//!
//! The allocator keeps the memory of large requests for reuse. Without this, the process would keep it until it ends.

use crate::serve::metrics::Metrics;
use std::sync::Arc;
use std::time::Duration;

/// A server is idle if no response ended, and no step was run, for this long.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// Returns freed memory to the system whenever the server becomes idle. Ends with the runtime.
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
