//! Rows that are kept in registers.
//!
//! Several vector loops over a row that fits in the registers of a few lanes are unrolled: values that one of them has loaded,
//! or stored in scratch, stay in registers for the next ones. Lanes process the same elements as in a loop, in the same order,
//! so sums have the same bits.

use super::emit::{Copies, Emit};
use super::shape::GridShape;
use super::unroll::{ELEMENTS, UnrolledIteration};
use super::{AddressSpace, GridKernel, Stmt};
use compiler::loops::index_analysis::{IndexAnalysis, IndexVar, Linear};
use compiler::loops::{self, Buf, Extent, LoopKind, Reg, Size, Var};
use ir::{Binary, Compare, DType};

/// The maximum number of elements of a row in the registers of a lane.
pub(super) const HELD: i64 = 32;

/// An element in a register of a lane.
#[derive(Clone, Debug, PartialEq)]
struct Element {
    buf: Buf,
    /// The stride along the row.
    stride: i64,
    rest: Linear,
    /// The length of the row, and the iteration of the lane; none if the element is the same in all iterations.
    length: i64,
    turn: Option<i64>,
}

/// The elements of the row that the lanes of a team hold in registers.
#[derive(Default)]
pub(super) struct CachedRow {
    known: Vec<(Element, Copies)>,
    /// The current iteration.
    pub(super) at: Option<At>,
}

/// The loop, its length, the iteration, and the mask of active lanes if not all are.
pub(super) type At = (Var, i64, i64, Option<Reg>);

impl CachedRow {
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// The mask of active lanes, if not all are active.
    pub(super) fn taking_part(&self) -> Option<Reg> {
        self.at.and_then(|(.., mask)| mask)
    }

    fn element(&self, facts: &IndexAnalysis<'_>, buf: Buf, index: &loops::Index) -> Option<Element> {
        let (var, length, turn, mask) = self.at?;
        let mut rest = facts.index_form(index)?;
        let stride = rest.terms.remove(&IndexVar::Var(var)).unwrap_or(0);
        if rest.terms.keys().any(|r| facts.inside(*r, var)) || (stride == 0 && mask.is_some()) {
            return None;
        }
        Some(Element { buf, stride, rest, length, turn: (stride != 0).then_some(turn) })
    }

    /// The registers of an element that was loaded before.
    pub(super) fn find(
        &self,
        facts: &IndexAnalysis<'_>,
        buf: Buf,
        index: &loops::Index,
        copies: usize,
    ) -> Option<Copies> {
        let e = self.element(facts, buf, index)?;
        self.known.iter().find(|(k, regs)| *k == e && regs.len() == copies).map(|(_, regs)| regs.clone())
    }

    pub(super) fn keep(&mut self, facts: &IndexAnalysis<'_>, buf: Buf, index: &loops::Index, regs: &Copies) {
        if let Some(e) = self.element(facts, buf, index) {
            self.known.push((e, regs.clone()));
        }
    }

    /// Invalidates the elements that a store may overwrite, except those of other iterations.
    pub(super) fn stored(&mut self, facts: &IndexAnalysis<'_>, buf: Buf, index: &loops::Index) {
        let class = facts.alias_classes[buf.0 as usize];
        let own = self.element(facts, buf, index);
        self.known.retain(|(k, _)| {
            let disjoint = own.as_ref().is_some_and(|e| {
                let alike = k.stride == e.stride && k.rest == e.rest && k.length == e.length && k.turn.is_some();
                alike && k.turn != e.turn && super::shape::same_size(facts, k.buf, e.buf)
            });
            facts.alias_classes[k.buf.0 as usize] != class || disjoint
        });
    }
}

/// Whether a row has several vector loops, none of which is inside another loop.
pub(super) fn several(row: &[loops::Stmt]) -> bool {
    let vectors = row.iter().filter(|s| matches!(s, loops::Stmt::Loop(l) if l.kind == LoopKind::Vector)).count();
    let others = row.iter().any(|s| matches!(s, loops::Stmt::Loop(l) if l.kind != LoopKind::Vector));
    vectors > 1 && !others
}

impl Emit<'_, '_> {
    /// The number of iterations of a lane in a loop that is unrolled.
    pub(super) fn unroll_count(&self, shape: &GridShape<'_>, l: &loops::Loop) -> Option<i64> {
        let Extent::Exact(Size::Const(n)) = l.extent else { return None };
        let (lanes, width) = (shape.lanes as i64, shape.width as i64);
        let flat = l.body.iter().all(|s| !matches!(s, loops::Stmt::Loop(_)));
        let turns = super::pieces(n, lanes * width);
        let fits = n > 0 && n % width == 0 && turns * width <= HELD;
        (several(shape.row) && shape.chunk.is_none() && flat && fits).then_some(turns)
    }

    /// Emits an unrolled vector loop.
    pub(super) fn unroll_loop(
        &mut self,
        l: &loops::Loop,
        (int, width, lanes): (DType, i64, i64),
        (n, turns): (i64, i64),
        mut accs: Vec<Copies>,
    ) -> Vec<Copies> {
        let lane = self.lane_as(int);
        let by = self.int(int, width);
        let first = self.binary(Binary::Mul, lane, by);
        let outer = self.enter(l.var, width as usize);
        let together = (ELEMENTS / width).max(1);
        for group in (0..turns).step_by(together as usize) {
            let mut all = Vec::new();
            for turn in group..turns.min(group + together) {
                let before = turn * lanes * width;
                let mut var = self.plus(first, int, before);
                let mut mask = None;
                if before + lanes * width > n {
                    let end = self.int(int, n);
                    mask = Some(self.compare(Compare::Lt, var, end));
                    // Clamped so that no index leaves its range.
                    let last = self.int(int, n - width);
                    var = self.binary(Binary::Min, var, last);
                }
                let own: Copies = (0..width).map(|j| self.plus(var, int, j)).collect();
                all.push(UnrolledIteration { own, at: Some((l.var, n, turn, mask)), mask });
            }
            accs = self.unrolled_iterations(l, &all, false, accs);
        }
        self.leave(outer);
        accs
    }
}

/// Removes scratch that is never read.
pub(super) fn without_unread(mut kernel: GridKernel, scratch: usize) -> GridKernel {
    let mut read = vec![false; kernel.memory.len()];
    loads(&kernel.body, &mut read);
    let gone: Vec<bool> = (kernel.memory.iter().enumerate())
        .map(|(i, m)| i < scratch && matches!(m.space, AddressSpace::Shared(_)) && !read[i])
        .collect();
    if gone.contains(&true) {
        forget_stores(&mut kernel.body, &gone);
        for (m, _) in kernel.memory.iter_mut().zip(&gone).filter(|(_, gone)| **gone) {
            m.space = AddressSpace::Shared(16 / m.dtype.size());
        }
    }
    kernel
}

fn loads(body: &[Stmt], read: &mut [bool]) {
    for s in body {
        match s {
            Stmt::Load { buf, .. } => read[buf.0 as usize] = true,
            Stmt::Loop(l) => loads(&l.body, read),
            Stmt::If { body, .. } => loads(body, read),
            _ => {}
        }
    }
}

fn forget_stores(body: &mut Vec<Stmt>, gone: &[bool]) {
    body.retain(|s| !matches!(s, Stmt::Store { buf, .. } if gone[buf.0 as usize]));
    for s in body {
        match s {
            Stmt::Loop(l) => forget_stores(&mut l.body, gone),
            Stmt::If { body, .. } => forget_stores(body, gone),
            _ => {}
        }
    }
}
