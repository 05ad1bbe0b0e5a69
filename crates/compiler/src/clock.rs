//! Points in time, for those who measure.
//!
//! `wasm32-unknown-unknown` has no clock of its own: there the host lends one with `set`; without it no time passes.

#[cfg(not(target_arch = "wasm32"))]
pub use std::time::Instant;

#[cfg(target_arch = "wasm32")]
pub use page::{Instant, set};

#[cfg(target_arch = "wasm32")]
mod page {
    use std::sync::OnceLock;
    use std::time::Duration;

    static NOW: OnceLock<fn() -> f64> = OnceLock::new();

    /// Lends a clock that counts milliseconds. The first one stays.
    pub fn set(now: fn() -> f64) {
        let _ = NOW.set(now);
    }

    /// As `std::time::Instant`.
    #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
    pub struct Instant(f64);

    impl Instant {
        /// This point in time.
        pub fn now() -> Instant {
            Instant(NOW.get().map_or(0.0, |now| now()))
        }

        /// The time since then.
        pub fn elapsed(&self) -> Duration {
            Instant::now().duration_since(*self)
        }

        /// The time since an earlier point; none if it is later.
        pub fn duration_since(&self, earlier: Instant) -> Duration {
            Duration::from_secs_f64((self.0 - earlier.0).max(0.0) / 1e3)
        }
    }
}
