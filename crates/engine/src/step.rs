//! `mark_step`: the end of a step (§6).

use crate::engine::Engine;
use crate::error::Result;
use crate::plan::PlanRoots;
use crate::storage_base::BaseBinding;

impl Engine {
    /// Runs everything that is pending, cleans up the tables, and begins a new step. Returns the first error of an invalid tensor
    /// that was not read.
    pub fn mark_step(&self) -> Result<()> {
        let shared = &self.shared;
        let entered = shared.enter("mark_step")?;
        // Step 0: run all pending effects.
        let tokens = shared.state().tok_global.into_iter().collect();
        shared.force(&entered.guard, &PlanRoots { values: Vec::new(), tokens })?;
        {
            let mut state = shared.state();
            let state = &mut *state;
            for (_, base) in state.bases.iter_mut() {
                // Step 2: a pending loc that has a value becomes a loc.
                if let BaseBinding::PendingLoc { loc, .. } = &base.binding
                    && state.locs.get(*loc).is_some_and(|l| l.has_value)
                {
                    let loc = *loc;
                    base.rebind(BaseBinding::Loc(loc));
                }
                base.mutated_since_step = false;
            }
        }
        // Step 4: finalizers and fences.
        shared.drain_finalize_queue();
        shared.flush_pools();
        shared.devices.iter().for_each(|d| d.pool.end_step());
        // Step 5: restart the token chain.
        let mut state = shared.state();
        state.tok_global = None;
        for (_, loc) in state.locs.iter_mut() {
            loc.token = None;
        }
        state.epoch += 1;
        match state.first_unread() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }
}
