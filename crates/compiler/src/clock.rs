//! Time measurement.
//!
//! `wasm32-unknown-unknown` has no clock: the host provides one with `set`; without one, all durations are zero.

#[cfg(not(target_arch = "wasm32"))]
pub use std::time::Instant;

#[cfg(target_arch = "wasm32")]
pub use page::{Instant, set};

#[cfg(target_arch = "wasm32")]
mod page {
    use std::sync::OnceLock;
    use std::time::Duration;

    static NOW: OnceLock<fn() -> f64> = OnceLock::new();

    /// Sets the clock, which returns milliseconds. Only the first call has an effect.
    pub fn set(now: fn() -> f64) {
        let _ = NOW.set(now);
    }

    /// A point in time, like `std::time::Instant`.
    #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
    pub struct Instant(f64);

    impl Instant {
        /// The current time.
        pub fn now() -> Instant {
            Instant(NOW.get().map_or(0.0, |now| now()))
        }

        /// The time since this point.
        pub fn elapsed(&self) -> Duration {
            Instant::now().duration_since(*self)
        }

        /// The time since an earlier point; zero if that point is later.
        pub fn duration_since(&self, earlier: Instant) -> Duration {
            Duration::from_secs_f64((self.0 - earlier.0).max(0.0) / 1e3)
        }
    }
}
