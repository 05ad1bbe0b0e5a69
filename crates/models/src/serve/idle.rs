//! What a server does when it has nothing to do: it gives freed memory back to the system.
//!
//! The allocator keeps what large requests had, in case of more. It would stay the process's for as long as it runs.

use crate::serve::metrics::Metrics;
use std::sync::Arc;
use std::time::Duration;

/// A server is idle after no answer ended, and no step was run, for this long.
const IDLE: Duration = Duration::from_millis(500);

/// Gives freed memory back whenever the server becomes idle. Ends with the runtime.
pub(crate) async fn give_back(metrics: Arc<Metrics>) {
    let (mut last, mut given) = (0, 0);
    loop {
        tokio::time::sleep(IDLE).await;
        let now = metrics.events();
        if now == last && now != given {
            cpu::give_back_freed();
            given = now;
        }
        last = now;
    }
}
