//! Finds where the threads of a team need barriers.
//!
//! Between two barriers no lane may access an element that another one writes. The analysis walks over the statements of a team and
//! records the accesses since the last barrier; a conflicting access needs a barrier before it.

use super::shape::same_size;
use compiler::loops::index_analysis::{IndexAnalysis, IndexVar, Linear};
use compiler::loops::{Buf, Extent, Loop, Op, Stmt, Var};

/// A memory access of a team.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemoryEffect {
    /// The alias class of the memory.
    pub(super) class: usize,
    pub(super) write: bool,
    pub(super) who: LaneAccess,
}

/// Which lane accesses which element.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LaneAccess {
    /// Any lane, any element.
    All,
    /// Lane 0.
    Leader,
    /// The lane that runs an iteration accesses that iteration's element.
    Lane(LaneElement),
}

/// The element of an iteration. Equal elements of two loops are processed by the same lane if these values are equal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaneElement {
    stride: i64,
    rest: Linear,
    bytes: usize,
    /// The trip count, on which the order of lanes with several elements depends.
    trips: Option<i64>,
}

impl MemoryEffect {
    fn clashes(&self, other: &MemoryEffect) -> bool {
        let same_thread = match (&self.who, &other.who) {
            (LaneAccess::Leader, LaneAccess::Leader) => true,
            (LaneAccess::Lane(a), LaneAccess::Lane(b)) => a == b,
            _ => false,
        };
        self.class == other.class && (self.write || other.write) && !same_thread
    }

    /// The access as seen by later iterations of a loop, or by the next row of a team: elements that depend on the iteration
    /// become any element.
    fn seen_later(mut self, facts: &IndexAnalysis<'_>, of: Option<Var>) -> MemoryEffect {
        if let LaneAccess::Lane(own) = &self.who
            && own.rest.terms.keys().any(|r| of.is_none_or(|v| facts.inside(*r, v)))
        {
            self.who = LaneAccess::All;
        }
        self
    }
}

/// The accesses since the last barrier.
#[derive(Clone, Default)]
pub(super) struct PendingEffects(Vec<MemoryEffect>);

impl PendingEffects {
    /// Whether these accesses need a barrier before them; if so, only they are pending afterwards.
    pub(super) fn needs_barrier(&mut self, next: &[MemoryEffect]) -> bool {
        let clash = next.iter().any(|n| self.0.iter().any(|p| p.clashes(n)));
        if clash {
            self.0.clear();
        }
        for n in next {
            if !self.0.contains(n) {
                self.0.push(n.clone());
            }
        }
        clash
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the accesses at the end of a loop's body, which the next iteration sees.
    pub(super) fn with_back_edge(
        &self,
        end: &PendingEffects,
        facts: &IndexAnalysis<'_>,
        of: Option<Var>,
    ) -> PendingEffects {
        let mut all = self.clone();
        for t in &end.0 {
            let t = t.clone().seen_later(facts, of);
            if !all.0.contains(&t) {
                all.0.push(t);
            }
        }
        all
    }

    /// Removes the accesses of all other classes of memory.
    pub(super) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        self.0.retain(|t| keep(t.class));
    }
}

/// The accesses of one statement outside loops, or of a whole vector loop.
pub(super) fn touches(facts: &IndexAnalysis<'_>, s: &Stmt, width: usize) -> Vec<MemoryEffect> {
    let mut out = Vec::new();
    let read =
        |buf: Buf| MemoryEffect { class: facts.alias_classes[buf.0 as usize], write: false, who: LaneAccess::All };
    match s {
        Stmt::Let { op: Op::Load { buf, .. }, .. } => out.push(read(*buf)),
        Stmt::Let { .. } => {}
        Stmt::Store { buf, .. } => {
            out.push(MemoryEffect { class: facts.alias_classes[buf.0 as usize], write: true, who: LaneAccess::Leader });
        }
        Stmt::Loop(l) => {
            if let Extent::Bounded { buf, .. } = &l.extent {
                out.push(read(*buf));
            }
            in_vector(facts, l, width, &mut out);
        }
    }
    out.retain(|t| facts.accesses.iter().any(|s| s.store && facts.alias_classes[s.buf.0 as usize] == t.class));
    out
}

fn in_vector(facts: &IndexAnalysis<'_>, l: &Loop, width: usize, out: &mut Vec<MemoryEffect>) {
    for site in facts.accesses.iter().filter(|s| s.loops.contains(&l.var)) {
        let class = facts.alias_classes[site.buf.0 as usize];
        let one_size = facts
            .kernel
            .buffers
            .iter()
            .enumerate()
            .all(|(i, _)| facts.alias_classes[i] != class || same_size(facts, Buf(i as u32), site.buf));
        let own = site.form.as_ref().filter(|_| one_size).and_then(|f| {
            let stride = *f.terms.get(&IndexVar::Var(l.var))?;
            let mut rest = f.clone();
            rest.terms.remove(&IndexVar::Var(l.var));
            let steady = rest.terms.keys().all(|r| !facts.inside(*r, l.var));
            let trips = if width > 1 { facts.vars[l.var.0 as usize].trip_count } else { None };
            let bytes = facts.kernel.buffers[site.buf.0 as usize].dtype.size();
            steady.then_some(LaneElement { stride, rest, bytes, trips })
        });
        let touch = MemoryEffect { class, write: site.store, who: own.map_or(LaneAccess::All, LaneAccess::Lane) };
        if !out.contains(&touch) {
            out.push(touch);
        }
    }
}
