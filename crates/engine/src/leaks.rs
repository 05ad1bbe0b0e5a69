//! What is still there: for tests that nothing should be.

use crate::base::BaseBinding;
use crate::engine::Engine;
use ir::{Loc, Type};

/// A value that is still held.
#[derive(Clone, Debug, PartialEq)]
pub struct Leak {
    /// Its type.
    pub ty: Type,
    /// Handles on it.
    pub handles: usize,
    /// Where it was recorded, if it is a value that was; state has no such place.
    pub at: Loc,
}

impl Engine {
    /// All that is still held, after cleaning up what was dropped: tensors by where they were made, and state that nobody
    /// holds a handle on but that something pending refers to.
    pub fn check_leaks(&self) -> Vec<Leak> {
        self.shared.drain_finalize_queue();
        let state = self.shared.state();
        let mut leaks = Vec::new();
        let mut held = Vec::new();
        for (_, base) in state.bases.iter() {
            held.extend(base.loc());
            let at = match &base.binding {
                BaseBinding::Ssa(r) | BaseBinding::PendingLoc { seed: r, .. } => r.node.at.clone(),
                BaseBinding::Loc(_) => Loc::Unknown,
            };
            leaks.push(Leak { ty: base.ty.clone(), handles: base.pins, at });
        }
        for (id, loc) in state.locs.iter() {
            if loc.storage.is_some() && !held.contains(&id) {
                leaks.push(Leak { ty: loc.ty.clone(), handles: 0, at: Loc::Unknown });
            }
        }
        leaks
    }
}
