//! Unrolls loops so that the loads of several iterations are issued before the first one is used: all iterations load, then all
//! compute, in order. Sums have the same bits as without unrolling.

use super::emit::{Copies, Emit};
use super::rows::At;
use super::{Carried, Loop, Stmt};
use compiler::loops::index_analysis::IndexAnalysis;
use compiler::loops::{self, Atom, Extent, Op, Reg, Size};
use ir::{Binary, DType};
use smallvec::smallvec;

/// The unroll factor of a vector loop.
pub(super) const TOGETHER: i64 = 4;
/// The number of elements whose loads are in flight together, if a row is unrolled.
pub(super) const ELEMENTS: i64 = 16;

/// One iteration: the loop's variable, the registers of its elements, and the mask of active lanes.
pub(super) struct UnrolledIteration {
    pub(super) own: Copies,
    pub(super) at: Option<At>,
    pub(super) mask: Option<Reg>,
}

/// The number of a loop's first statements that may move before those of earlier iterations: loads and their operands, without
/// carried values.
fn num_hoistable_loads(facts: &IndexAnalysis<'_>, l: &loops::Loop, ordered: bool) -> usize {
    let mut carried: Vec<Reg> = l.carried.iter().map(|c| c.phi).collect();
    let stored = |buf: &loops::Buf| facts.written(*buf);
    let (mut upto, mut known) = (0, 0);
    for (i, s) in l.body.iter().enumerate() {
        let loops::Stmt::Let { dst, op } = s else { break };
        let mut reads: Vec<Reg> = op.operands().collect();
        if let Op::Load { index, .. } | Op::Index(index) = op {
            reads.extend(index.terms.iter().filter_map(|(a, _)| match a {
                Atom::Reg(r) => Some(*r),
                Atom::Var(_) => None,
            }));
        }
        if let Op::Load { buf, mask, .. } = op {
            reads.extend(mask.map(|m| m.0));
            // Values that earlier iterations write must be read in order.
            if ordered && stored(buf) {
                break;
            }
        }
        if reads.iter().any(|r| carried.contains(r)) {
            carried.push(*dst);
            break;
        }
        known = i + 1;
        if matches!(op, Op::Load { .. }) {
            upto = known;
        }
    }
    upto.min(known)
}

fn flat(l: &loops::Loop) -> bool {
    l.body.iter().all(|s| !matches!(s, loops::Stmt::Loop(_)))
}

impl Emit<'_, '_> {
    /// The unroll factor of a vector loop of this length.
    pub(super) fn elements_per_iteration(&self, l: &loops::Loop, n: i64, each: i64) -> i64 {
        let loads = flat(l) && num_hoistable_loads(self.facts, l, false) > 0;
        if loads && n >= TOGETHER * each { TOGETHER } else { 1 }
    }

    /// The unroll factor of a loop that a lane runs alone.
    fn together_alone(&self, l: &loops::Loop) -> i64 {
        let Extent::Exact(Size::Const(n)) = l.extent else { return 1 };
        if !flat(l) || num_hoistable_loads(self.facts, l, true) == 0 {
            return 1;
        }
        let fits = |k: &i64| n >= 2 * k && n % k == 0;
        let most = if self.turn_copies() > 4 { 4 } else { 8 };
        [8, 4, 5, 2].into_iter().filter(|k| *k <= most).find(fits).unwrap_or(1)
    }

    /// Emits iterations in order; maps carried values to their next values.
    pub(super) fn unrolled_iterations(
        &mut self,
        l: &loops::Loop,
        turns: &[UnrolledIteration],
        ordered: bool,
        accs: Vec<Copies>,
    ) -> Vec<Copies> {
        let first = if turns.len() > 1 { num_hoistable_loads(self.facts, l, ordered) } else { 0 };
        let (early, late) = l.body.split_at(first);
        let mut loaded: Vec<Vec<Copies>> = Vec::new();
        let defined = |s: &loops::Stmt| match s {
            loops::Stmt::Let { dst, .. } => *dst,
            _ => unreachable!("loads and what they need are values"),
        };
        if first > 0 {
            for t in turns {
                self.begin_turn(l, t);
                self.lane_block(early);
                loaded.push(early.iter().map(|s| self.copies_of(defined(s))).collect());
            }
        }
        let mut accs = accs;
        for (i, t) in turns.iter().enumerate() {
            self.begin_turn(l, t);
            if let Some(values) = loaded.get(i) {
                for (s, v) in early.iter().zip(values) {
                    self.set_copies(defined(s), v.clone());
                }
            }
            accs = self.emit_iteration(l, late, accs, t.mask);
        }
        self.held.at = None;
        accs
    }

    /// Emits a loop that a lane runs alone.
    pub(super) fn lane_serial(&mut self, l: &loops::Loop) {
        let times = self.together_alone(l);
        let (Extent::Exact(Size::Const(n)), true) = (&l.extent, times > 1) else {
            return self.serial(l, Self::lane_block);
        };
        let int = self.loop_int(l.var);
        let (from, to, step) = (self.int(int, 0), self.int(int, *n), self.int(int, times));
        let var = self.reg(int);
        let copies = self.turn_copies();
        let (mut inits, mut phis): (Vec<Copies>, Vec<Copies>) = (Vec::new(), Vec::new());
        for c in &l.carried {
            let d = self.dtype_of(c.phi);
            inits.push((0..copies).map(|j| self.value_as(c.init, j, d)).collect());
            phis.push((0..copies).map(|_| self.reg(d)).collect());
        }
        self.open_block();
        let turns: Vec<UnrolledIteration> = (0..times)
            .map(|u| UnrolledIteration { own: smallvec![self.plus(var, int, u)], at: None, mask: None })
            .collect();
        let nexts = self.unrolled_iterations(l, &turns, true, phis.clone());
        let body = self.close_block();
        let mut carried = Vec::new();
        for (k, c) in l.carried.iter().enumerate() {
            let d = self.dtype_of(c.phi);
            let out: Copies = (0..copies).map(|_| self.reg(d)).collect();
            for j in 0..copies {
                carried.push(Carried { init: inits[k][j], phi: phis[k][j], next: nexts[k][j], out: out[j] });
            }
            self.set_copies(c.out, out);
        }
        self.push(Stmt::Loop(Loop { var, from, to, step, carried, body }));
    }

    /// `r + by`.
    pub(super) fn plus(&mut self, r: Reg, int: DType, by: i64) -> Reg {
        if by == 0 {
            return r;
        }
        let by = self.int(int, by);
        self.binary(Binary::Add, r, by)
    }
}
