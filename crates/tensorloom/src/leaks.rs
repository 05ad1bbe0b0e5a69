//! Which tensors a piece of a program leaves behind.

use crate::{Engine, engine};
use std::collections::HashSet;
use std::fmt;

/// Tensors that were made and are still referred to.
#[derive(Clone, Debug, PartialEq)]
pub struct LeakReport {
    /// How many buffers.
    pub leaked: usize,
    /// What each is and where it was made.
    pub details: Vec<String>,
}

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.leaked {
            0 => write!(f, "nothing is left"),
            n => write!(f, "{n} left:\n  {}\ndrop them, or return only what is needed", self.details.join("\n  ")),
        }
    }
}

/// A watch over an engine's tensors. Made by [`LeakCheck::start`].
pub struct LeakCheck {
    engine: Engine,
    before: HashSet<String>,
}

impl LeakCheck {
    /// Notes which tensors there are.
    pub fn start() -> LeakCheck {
        LeakCheck::of(engine())
    }

    /// The same for an engine of your own.
    pub fn of(engine: &Engine) -> LeakCheck {
        let before = engine.live_tensors().into_iter().map(|l| l.base.to_string()).collect();
        LeakCheck { engine: engine.clone(), before }
    }

    /// What was made since and is still there, by any thread.
    pub fn stop(self) -> LeakReport {
        let new = self.engine.live_tensors().into_iter().filter(|l| !self.before.contains(&l.base.to_string()));
        let mut details: Vec<String> =
            new.map(|l| format!("{} made at {} ({} handles)", l.ty, l.created_at, l.num_handles)).collect();
        details.sort();
        LeakReport { leaked: details.len(), details }
    }
}

/// Runs `f`, drops what it gives, and reports what is left of the tensors it made.
///
/// ```
/// use tensorloom::{Tensor, check_leaks, lax, ones, tensor};
///
/// // A constant made inside a loop's body belongs to the loop.
/// let body = |(c, x): (Tensor, Tensor)| (c + x * tensor(&[2.0f32, 3.0], &[2]), ());
/// let report = check_leaks(|| lax::scan(body, ones(&[2]), ones(&[5, 2])).0.to_vec::<f32>());
/// assert_eq!(report.leaked, 0, "{report}");
///
/// let mut kept = Vec::new();
/// let report = check_leaks(|| kept.push(ones(&[3])));
/// assert!(report.details[0].starts_with("f32[3] made at "));
/// ```
pub fn check_leaks<R>(f: impl FnOnce() -> R) -> LeakReport {
    let watch = LeakCheck::start();
    drop(f());
    watch.stop()
}
