//! Sharding constraints in the graph: `@shard` and `@comm` of results (§7.6.1, §7.6.3). A constraint is a
//! named value, `shard sequence` or `comm all_gather tp wait`; it changes the communication between ranks, but no values.
//!
//! | constraint | axis of the mesh | axis of the tensor |
//! | --- | --- | --- |
//! | `shard batch` | all axes that shard batches | first |
//! | `shard sequence` | `sp`, or `tp` if there is none | second |
//! | `shard column`, `shard head` | `tp` | last; heads of four axes: second |
//! | `shard expert` | `ep`, or `tp` if there is none | first |
//! | `shard row` | replicated along `tp` | |
//! | `shard replicated` | replicated along `tp`, `sp` and `ep` | |
//! | `comm all_reduce`, `all_gather`, `broadcast` | replicated along the group | |
//! | `comm reduce_scatter` | the group | second, or the first axis whose size it divides |
//! | `comm all_to_all` | the group | from the second to the last, or back |
//!
//! The group `default` is `tp`. If the mesh lacks the axis, or a size is not divisible, the sharding does not change.

use super::Partitioner;
use super::layout::{DimSharding, ShardedValue};
use ir::ops::Name;
use ir::{GraphBuilder, Result};

/// Whether a name is a constraint.
pub(super) fn is_constraint(name: &str) -> bool {
    name.starts_with("shard ") || name.starts_with("comm ")
}

impl Partitioner<'_> {
    /// Reshards a value according to a constraint.
    pub(super) fn apply_constraint(&mut self, mark: &str, x: &ShardedValue) -> Result<ShardedValue> {
        let words: Vec<&str> = mark.split(' ').collect();
        let rank = x.ty.rank();
        let axes = |names: &[&str]| -> Vec<usize> {
            let all = self.mesh.axes().iter();
            let named = |name: &&str| all.clone().position(|a| a.name == **name && a.size > 1);
            names.iter().filter_map(named).collect()
        };
        let one_of = |names: &[&str]| axes(names).into_iter().take(1).collect::<Vec<usize>>();
        let last = rank.saturating_sub(1);
        let mut want = x.spec.clone();
        // The tensor axis to shard, and the mesh axes; without a tensor axis the value is replicated along the mesh axes.
        let (place, by) = match words[..] {
            ["shard", "batch", ..] => (Some(0), axes(&["dp", "fsdp", "ep"])),
            ["shard", "sequence", ..] => (Some(1), one_of(&["sp", "tp"])),
            ["shard", "column", ..] => (Some(last), axes(&["tp"])),
            ["shard", "head", ..] => (Some(if rank == 4 { 1 } else { last }), axes(&["tp"])),
            ["shard", "expert", ..] => (Some(0), one_of(&["ep", "tp"])),
            ["shard", "row", ..] => (None, axes(&["tp"])),
            ["shard", ..] => (None, axes(&["tp", "sp", "ep"])),
            ["comm", op, group, ..] => {
                let by = axes(&[if group == "default" { "tp" } else { group }]);
                let parts: usize = by.iter().map(|&a| self.mesh.axes()[a].size).product();
                let free = |d: &usize| {
                    let cut = &x.spec[*d];
                    let own = if by.iter().all(|a| cut.axes.contains(a)) { 1 } else { parts };
                    cut.segments.is_empty() && x.ty.shape[*d].is_multiple_of(cut.num_shards(self.mesh) * own)
                };
                let now = (0..rank).find(|&d| by.iter().any(|a| x.spec[d].axes.contains(a)));
                match (op, now) {
                    ("reduce_scatter", _) => ([1, 0].into_iter().chain(2..rank).filter(|d| *d < rank).find(free), by),
                    ("all_to_all", Some(1)) => (Some(last), by),
                    ("all_to_all", Some(_)) => (Some(1), by),
                    ("all_to_all", None) => return Ok(x.clone()),
                    _ => (None, by),
                }
            }
            _ => return Ok(x.clone()),
        };
        let mut x = x.clone();
        if !by.is_empty() && place.is_none_or(|d| d < rank) {
            for cut in &mut want {
                if cut.axes.iter().any(|a| by.contains(a)) {
                    *cut = DimSharding::over_axes(cut.axes.iter().copied().filter(|a| !by.contains(a)).collect());
                }
            }
            if let Some(d) = place {
                let own = DimSharding::over_axes(want[d].axes.iter().chain(&by).copied().collect());
                if want[d].segments.is_empty() && own.divides(self.mesh, x.ty.shape[d]) {
                    want[d] = own;
                } else {
                    want = x.spec.clone();
                }
            }
            // A rematerialized value would be treated as equal on all ranks.
            let made = self.rematerializable.remove_entry(&x.value);
            x = self.reshard(&x, &want)?;
            self.rematerializable.extend(made);
        }
        // `wait` makes the collective synchronous.
        if words.last() == Some(&"wait") {
            x.value = self.b.one(Name::nofuse().into(), &[x.value])?;
        }
        Ok(x)
    }
}
