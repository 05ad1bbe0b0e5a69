//! Processes short rows side by side, one per SIMD lane.
//!
//! A vector along a short row wastes more work on unused lanes and on loop ends than on the row itself, so each row gets a
//! lane. Lanes that are a row apart in memory load slowly; therefore a block of rows is first transposed column by column into
//! scratch, everything is computed there, and results are transposed back. The transposes are emitted as plain copy loops,
//! which a code generator may recognize and optimize.
//!
//! Float sums and products have one order, whichever layout is used: the order of a vector along the row. There, lane `k` has
//! elements
//! `k`, `k + lanes`, .., and lanes are combined by halving. Programs compute the same sum in several kernels, and differences of
//! such sums are either zero or rounding noise.

use super::{Bind, Emitter, Scope};
use crate::fuse::expr::{ExprId, KernelExpr};
use crate::fuse::generate::Generator;
use crate::fuse::index::{AffineIndex, AtomKind};
use crate::fuse::lower::{Group, Lowered, Param, ValueRole, kernel_name};
use crate::loops::{self, AccessMode, Buf, Extent, LoopKind, Reg, Size, Stmt, Var};
use crate::target::CpuSchedule;
use ir::ops::ReduceKind;
use ir::{Binary, DType, Scalar, Value};

/// The rows of a block are a multiple of this number.
const ROW_MULTIPLE: i64 = 64;

/// The maximum number of operands and results of a kernel.
const MAX_BUFFERS: usize = 10;

/// Rows that are processed side by side.
#[derive(Clone, Copy, Debug)]
pub(in crate::fuse) struct InterleavedRows {
    /// The number of rows of a block.
    pub(in crate::fuse) rows: i64,
    /// The number of lanes of the vector that would run along a row.
    lanes: i64,
}

/// The number of lanes of a vector across the rows: half as many as soon as one value has eight bytes.
fn lanes(g: &Generator<'_>, column: usize, w: CpuSchedule) -> i64 {
    let wide = |e: usize| {
        let info = g.exprs.info(e as ExprId);
        info.dtype.size() == 8 && info.vars >> column & 1 == 1
    };
    if (0..g.exprs.iter().count()).any(wide) { w.vector_width / 2 } else { w.vector_width }
}

/// How an access varies with rows and columns.
#[derive(PartialEq)]
enum AccessPattern {
    /// Contiguous, row after row.
    Dense,
    /// Varies only with the columns, or is constant.
    Columns,
    /// One element per row, contiguous.
    Rows,
    Irregular,
}

fn access_pattern(
    g: &Generator<'_>,
    form: &AffineIndex,
    (row, column): (usize, usize),
    extents: &[i64],
) -> AccessPattern {
    let (mut of_row, mut of_column) = (0, 0);
    for &(a, k) in &form.terms {
        let atom = g.atoms.get(a);
        match atom.kind {
            AtomKind::Var(v) if v == row => of_row = k,
            AtomKind::Var(v) if v == column => of_column = k,
            AtomKind::Var(_) => {}
            _ if atom.vars == 0 => {}
            _ => return AccessPattern::Irregular,
        }
    }
    match (of_row, of_column) {
        (0, _) => AccessPattern::Columns,
        (1, 0) => AccessPattern::Rows,
        (k, 1) if k == extents[column] => AccessPattern::Dense,
        _ => AccessPattern::Irregular,
    }
}

/// Decides whether rows are processed side by side: they must be short, many and in a supported layout. The arguments include
/// the number of dependent reductions and the number of results.
pub(in crate::fuse) fn plan_interleaving(
    g: &Generator<'_>,
    forms: &[&AffineIndex],
    (row, column): (usize, usize),
    extents: &[i64],
    (levels, results): (u32, usize),
    w: CpuSchedule,
) -> Option<InterleavedRows> {
    let (n, lanes) = (extents[column], lanes(g, column, w));
    let loads = || g.exprs.iter().filter(|e| matches!(e, KernelExpr::Load { .. }));
    let function = |e: usize| {
        let costs = match g.exprs.get(e as ExprId) {
            KernelExpr::Unary(op, _) => op.cost(),
            KernelExpr::Binary(op, ..) => op.cost(),
            _ => 0,
        };
        costs > 6 && g.exprs.info(e as ExprId).vars >> column & 1 == 1
    };
    // Elementwise functions are computed for unused lanes too; sums waste less, and rows that fill a vector almost nothing.
    // Longer rows run through several vectors, whose number and order the code generator chooses.
    let sums = || n <= lanes * levels as i64 - lanes / 2 && n != lanes;
    let wasteful = || (0..g.exprs.iter().count()).any(function) || sums();
    let pays = (2..2 * lanes).contains(&n)
        && wasteful()
        && extents[row] >= w.interleaved_rows.0
        // Each of them needs its own scratch buffer.
        && loads().count() + results <= MAX_BUFFERS
        && forms.iter().all(|l| access_pattern(g, l, (row, column), extents) != AccessPattern::Irregular)
        && g.exprs.iter().all(|e| !matches!(e, KernelExpr::Load { mask: Some(_), .. }));
    pays.then(|| InterleavedRows {
        rows: (w.interleaved_rows.1 / n / ROW_MULTIPLE * ROW_MULTIPLE).max(ROW_MULTIPLE),
        lanes,
    })
}

/// Adds a number of elements to an index.
fn offset_by(index: loops::Index, elements: i64) -> loops::Index {
    loops::Index { offset: index.offset + elements, ..index }
}

impl Emitter<'_> {
    /// Emits the kernel that processes rows side by side, in parallel blocks of `rows`; the last block may be smaller.
    pub(super) fn lower_interleaved(mut self, group: &Group, InterleavedRows { rows, .. }: InterleavedRows) -> Lowered {
        let (Some(v), &[column]) = (self.shape.vector, &self.shape.cols[..]) else {
            unreachable!("rows have one variable and their elements another")
        };
        let (all, elements) = (self.shape.extents[v], self.shape.extents[column]);
        let blocks = (all + rows - 1) / rows;
        let count = self.scratch(DType::I32, 1);
        let var = self.b.var();
        self.b.begin();
        self.scopes.push(Scope::default());
        let start = self.b.index(loops::Index::default().add_var(var, rows));
        let (end, most) = (self.number(all), self.number(rows));
        let left = self.b.binary(Binary::Sub, end, start);
        let here = self.b.binary(Binary::Min, left, most);
        let here = self.b.cast(DType::I32, here);
        self.b.store(count, 0, here);
        self.block_start = Some(start);
        self.hoist_all();
        let here = Extent::Bounded { bound: Size::Const(rows), buf: count, index: loops::Index::default() };

        for e in self.dense_loads(v, column) {
            let KernelExpr::Load { from, at, .. } = self.g.exprs.get(e).clone() else { continue };
            let dtype = self.g.exprs.info(e).dtype;
            let (buf, kept) = (self.buffer(from, dtype, AccessMode::Read), self.scratch(dtype, elements * rows));
            self.transpose_block(&here, &at, |b, outside, inside| {
                let x = b.load(buf, outside);
                b.store(kept, inside, x);
            });
            self.cached.insert(e, kept);
            self.written.push(e);
        }
        let results: Vec<(Value, AffineIndex)> =
            self.stores.iter().filter(|s| s.1 == ValueRole::Full).map(|s| (s.0, s.3.clone())).collect();
        for (value, _) in &results {
            let kept = self.scratch(self.g.graph.ty(*value).dtype, elements * rows);
            self.kept.insert(*value, kept);
        }
        self.looped(v, &here, LoopKind::Vector, Some(start), |e, _| e.emit_row());
        for (value, at) in &results {
            let (kept, dtype) = (self.kept[value], self.g.graph.ty(*value).dtype);
            let buf = self.buffer(*value, dtype, AccessMode::Write);
            self.transpose_block(&here, at, |b, outside, inside| {
                let x = b.load(kept, inside);
                b.store(buf, outside, x);
            });
        }
        self.scopes.pop();
        let body = self.b.end();
        let (extent, kind) = (Extent::Exact(Size::Const(blocks)), LoopKind::Parallel);
        self.b.push(Stmt::Loop(loops::Loop { var, extent, kind, carried: Vec::new(), body }));
        let mut kernel = self.b.finish();
        kernel.name = kernel_name(group);
        Lowered { kernel, params: self.params, parallel: Some(blocks), work: self.shape.work, run: self.shape.run() }
    }

    fn number(&mut self, n: i64) -> Reg {
        self.b.constant(Scalar::from_i64(DType::I64, n))
    }

    fn scratch(&mut self, dtype: DType, elements: i64) -> Buf {
        self.params.push(Param::Scratch(elements as usize * dtype.size()));
        self.b.buffer(dtype, AccessMode::Scratch(elements as usize))
    }

    /// Emits a loop over a variable, from `start` on.
    fn looped(
        &mut self,
        v: usize,
        extent: &Extent,
        kind: LoopKind,
        start: Option<Reg>,
        body: impl FnOnce(&mut Self, Var),
    ) {
        let var = self.b.var();
        self.b.begin();
        self.scopes.push(Scope::default());
        let before = self.bound;
        self.set_bound(v, start.map_or(Bind::Var(var), |s| Bind::Block(s, var)));
        body(self, var);
        self.unbind(v, before);
        self.scopes.pop();
        let body = self.b.end();
        self.b.push(Stmt::Loop(loops::Loop { var, extent: extent.clone(), kind, carried: Vec::new(), body }));
    }

    /// Copies the elements of a block between memory and scratch, given the index in each.
    fn transpose_block(
        &mut self,
        here: &Extent,
        at: &AffineIndex,
        copy: impl FnOnce(&mut loops::KernelBuilder, loops::Index, loops::Index),
    ) {
        let (Some(v), column) = (self.shape.vector, self.shape.cols[0]) else { return };
        let columns = Extent::Exact(Size::Const(self.shape.extents[column]));
        self.looped(v, here, LoopKind::Vector, self.block_start, |e, _| {
            e.looped(column, &columns, LoopKind::Serial, None, |e, _| {
                let (outside, inside) = (e.index(at), e.column());
                copy(&mut e.b, outside, inside.expect("both variables are bound"));
            });
        });
    }

    /// Whether the result of a reduction depends on the order of its elements.
    pub(super) fn depends_on_order(&self, reduction: usize) -> bool {
        let r = &self.reductions[reduction];
        r.acc.is_float() && matches!(r.kind, ReduceKind::Sum | ReduceKind::Prod)
    }

    /// Emits reductions of rows side by side, in the order of a vector along each row: partial results, one for each lane of
    /// that vector, are kept in scratch and combined by halving. Reductions that do not depend on the order use carried values.
    pub(super) fn reduce_in_order(
        &mut self,
        InterleavedRows { rows, lanes }: InterleavedRows,
        accs: &[(Reg, Binary)],
        here: &[usize],
    ) -> Vec<Reg> {
        let column = self.shape.cols[0];
        let n = self.shape.extents[column];
        let first = n.min(lanes);
        let mut partial: Vec<Option<Buf>> = Vec::with_capacity(here.len());
        for &k in here {
            let acc = self.reductions[k].acc;
            partial.push(self.depends_on_order(k).then(|| self.scratch(acc, first * rows)));
        }
        let mut outs: Vec<Reg> = accs.iter().map(|a| a.0).collect();
        let written = self.written.clone();
        for (start, count) in [(0, first), (first, n - first)].into_iter().filter(|p| p.1 > 0) {
            // Each range recomputes the values that later loops need.
            self.written.clone_from(&written);
            let range = (count < n).then(|| (self.number(start), count));
            let carried = outs.iter().zip(&partial).filter(|(_, p)| p.is_none()).map(|(&r, _)| (r, None));
            let carried: Vec<(Reg, Option<Binary>)> = carried.collect();
            let nexts = self.over_range(column, range, LoopKind::Serial, &carried, &mut |e, phis| {
                let (mut phis, mut next) = (phis.iter(), Vec::with_capacity(phis.len()));
                for ((&k, &(_, op)), partial) in here.iter().zip(accs).zip(&partial) {
                    let (operand, dtype) = (e.reductions[k].operand, e.reductions[k].acc);
                    let x = e.reg(operand);
                    let mut x = if e.b.dtype(x) == dtype { x } else { e.b.cast(dtype, x) };
                    match (partial, e.lane()) {
                        (&Some(buf), Some((row, var))) => {
                            let at = loops::Index::from(row).add_var(var, rows);
                            if start > 0 {
                                let before = e.b.load(buf, at.clone());
                                x = e.b.binary(op, before, x);
                            }
                            e.b.store(buf, at, x);
                        }
                        _ => next.extend(phis.next().map(|&phi| e.b.binary(op, phi, x))),
                    }
                }
                e.write_cache(here);
                next
            });
            let unordered = outs.iter_mut().zip(&partial).filter(|(_, p)| p.is_none());
            unordered.zip(nexts).for_each(|((out, _), next)| *out = next);
        }
        let Some(Bind::Block(_, row)) = self.shape.vector.map(|v| self.bind[v]) else { return outs };
        let joined: Vec<(Buf, Binary)> =
            partial.iter().zip(accs).filter_map(|(p, a)| p.map(|buf| (buf, a.1))).collect();
        let mut half = lanes / 2;
        while half > 1 {
            // Lanes beyond the end of the row contribute nothing; the loop is emitted anyway, so that rows of all lengths have
            // the same structure.
            let count = (first - half).clamp(0, half);
            let var = self.b.var();
            self.b.begin();
            for &(buf, op) in &joined {
                let at = loops::Index::from(row).add_var(var, rows);
                let (low, high) = (self.b.load(buf, at.clone()), self.b.load(buf, offset_by(at.clone(), half * rows)));
                let x = self.b.binary(op, low, high);
                self.b.store(buf, at, x);
            }
            let (extent, kind) = (Extent::Exact(Size::Const(count)), LoopKind::Serial);
            let body = self.b.end();
            self.b.push(Stmt::Loop(loops::Loop { var, extent, kind, carried: Vec::new(), body }));
            half /= 2;
        }
        for ((out, partial), &(init, op)) in outs.iter_mut().zip(&partial).zip(accs) {
            if let Some(buf) = *partial {
                let at = loops::Index::from(row);
                let (low, high) = (self.b.load(buf, at.clone()), self.b.load(buf, offset_by(at, rows)));
                let x = self.b.binary(op, low, high);
                *out = self.b.binary(op, init, x);
            }
        }
        outs
    }

    /// The variables of the row in its block and of the column in its range, if both are bound.
    fn lane(&self) -> Option<(Var, Var)> {
        let Bind::Block(_, row) = self.bind[self.shape.vector?] else { return None };
        match self.bind[self.shape.cols[0]] {
            Bind::Var(var) | Bind::Block(_, var) => Some((row, var)),
            Bind::Unbound | Bind::Reg(_) => None,
        }
    }

    /// The loads that are contiguous over rows.
    fn dense_loads(&self, row: usize, column: usize) -> Vec<ExprId> {
        let mut stack: Vec<ExprId> = self.reductions.iter().map(|r| r.operand).collect();
        stack.extend(self.stores.iter().map(|s| s.2));
        let (mut seen, mut found) = (rustc_hash::FxHashSet::default(), Vec::new());
        while let Some(e) = stack.pop() {
            if !seen.insert(e) {
                continue;
            }
            if let KernelExpr::Load { at, .. } = self.g.exprs.get(e)
                && access_pattern(&self.g, at, (row, column), &self.shape.extents) == AccessPattern::Dense
            {
                found.push(e);
            }
            stack.extend(self.g.exprs.get(e).children());
        }
        found.sort_unstable();
        found
    }
}
