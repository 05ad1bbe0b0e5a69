//! Generates kernels from expressions: opens loops, and computes loop invariants before a loop opens (`expressions.rs`).

mod expressions;
pub(super) mod interleave;
mod scratch;

use super::expr::ExprId;
use super::generate::Generator;
use super::index::AffineIndex;
use super::iteration_space::IterationSpace;
use super::lower::{Group, LoopShape, Lowered, Param, Reduction, Store, ValueRole, kernel_name};
use crate::loops::{self, AccessMode, Atom, Buf, Carried, Extent, KernelBuilder, LoopKind, Reg, Size, Stmt};
use crate::target::{LoopSchedule, Target};
use ir::ops::ReduceKind;
use ir::{Binary, Compare, DType, Scalar, Value};
use rustc_hash::FxHashMap;

#[derive(Clone, Copy)]
pub(super) enum Bind {
    Unbound,
    Var(loops::Var),
    Reg(Reg),
    /// The start of a block, and the variable within it.
    Block(Reg, loops::Var),
}

pub(super) struct Emitter<'a> {
    /// The maximum bytes of scratch for a row.
    row_scratch: usize,
    /// The number of elements of a float sum that vector lanes accumulate before the total is added to the outer sum.
    vector_block: i64,
    pub(super) g: Generator<'a>,
    pub(super) shape: LoopShape,
    pub(super) reductions: Vec<Reduction>,
    pub(super) stores: Vec<Store>,
    pub(super) b: KernelBuilder,
    pub(super) bind: Vec<Bind>,
    pub(super) bound: u64,
    pub(super) level: u32,
    pub(super) bufs: FxHashMap<Value, Buf>,
    pub(super) params: Vec<Param>,
    pub(super) scopes: Vec<Scope>,
    /// Expensive expressions that are kept in scratch memory between loops of a row, with the index of their element.
    pub(super) cached: FxHashMap<ExprId, Buf>,
    pub(super) written: Vec<ExprId>,
    pub(super) block_start: Option<Reg>,
    /// The buffers of results while short rows are processed side by side.
    pub(super) kept: FxHashMap<Value, Buf>,
    /// The tile that replaces a value: its buffer, its loop variables and its row stride.
    pub(super) tile: Option<(Buf, loops::Var, Option<usize>, Size)>,
    /// The registers of a scan's carried values in the current iteration.
    pub(super) carries: Vec<Reg>,
    /// The buffers of a scan's stacked outputs, in the order of `stores`.
    pub(super) stack_bufs: Vec<Buf>,
}

/// The number of elements of a float sum that vector lanes accumulate before the total is added to the sum of totals: 32 per
/// lane for four vectors of 16 lanes.
pub(crate) const VECTOR_BLOCK: i64 = 2048;
/// The same for the lanes of a grid: a subgroup of at least 32, each with few elements.
pub(crate) const GRID_BLOCK: i64 = 32 * VECTOR_BLOCK;
/// The same if each lane has a separate sum.
pub(crate) const SERIAL_BLOCK: i64 = 32;

/// How sums are split into blocks: the reduced variable that is split, and the number of its values in a block.
struct ReductionBlocks {
    split_var: usize,
    size: i64,
}

/// The columns of a block.
struct Columns {
    /// The variable of the iteration space for the columns, if there is more than one column.
    var: Option<usize>,
    first: Reg,
    count: Size,
}

impl Columns {
    /// Emits the vector loop over the columns.
    fn run(self, e: &mut Emitter<'_>, body: impl FnOnce(&mut Emitter<'_>, loops::Var)) {
        let column = e.b.var();
        e.b.begin();
        e.scopes.push(Scope::default());
        if let Some(v) = self.var {
            e.set_bound(v, Bind::Block(self.first, column));
        }
        body(e, column);
        e.close(column, self.count, LoopKind::Vector);
    }
}

#[derive(Default)]
pub(super) struct Scope {
    regs: FxHashMap<ExprId, Reg>,
    atoms: FxHashMap<u32, Reg>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        g: Generator<'a>,
        space: &IterationSpace,
        shape: LoopShape,
        reductions: Vec<Reduction>,
        stores: Vec<Store>,
        target: &Target,
    ) -> Emitter<'a> {
        Emitter { reductions, ..Emitter::with_vars(g, space.extents.len(), shape, stores, target) }
    }

    /// An emitter for `n` loop variables, without reductions.
    pub(super) fn with_vars(
        g: Generator<'a>,
        vars: usize,
        shape: LoopShape,
        stores: Vec<Store>,
        target: &Target,
    ) -> Emitter<'a> {
        Emitter {
            row_scratch: target.kernel.row_scratch_bytes,
            vector_block: if target.schedule == LoopSchedule::Grid { GRID_BLOCK } else { VECTOR_BLOCK },
            g,
            bind: vec![Bind::Unbound; vars],
            bound: 0,
            level: 0,
            shape,
            reductions: Vec::new(),
            stores,
            b: KernelBuilder::new(""),
            bufs: FxHashMap::default(),
            params: Vec::new(),
            scopes: vec![Scope::default()],
            cached: FxHashMap::default(),
            written: Vec::new(),
            block_start: None,
            kept: FxHashMap::default(),
            tile: None,
            carries: Vec::new(),
            stack_bufs: Vec::new(),
        }
    }

    pub(super) fn run(mut self, group: &Group) -> Lowered {
        if let Some(rows) = self.shape.interleaved_rows {
            return self.lower_interleaved(group, rows);
        }
        let mut parallel: Option<i64> = (!self.shape.parallel.is_empty())
            .then(|| self.shape.parallel.iter().map(|&v| self.shape.extents[v]).product());
        if let (Some(b), Some(v)) = (self.shape.block, self.shape.vector) {
            parallel = Some(parallel.unwrap_or(1) * (self.shape.extents[v] / b));
        }
        match parallel {
            // A parallel loop must be the only loop at the top level: its invariants are computed once by each worker.
            Some(n) => {
                let var = self.b.var();
                self.b.begin();
                self.scopes.push(Scope::default());
                self.bind_parallel(var);
                self.hoist_all();
                self.rows(0);
                self.scopes.pop();
                let body = self.b.end();
                self.b.push(Stmt::Loop(loops::Loop {
                    var,
                    extent: Extent::Exact(Size::Const(n)),
                    kind: LoopKind::Parallel,
                    carried: Vec::new(),
                    body,
                }));
            }
            None => {
                self.hoist_all();
                self.rows(0);
            }
        }
        let mut kernel = self.b.finish();
        kernel.name = kernel_name(group);
        Lowered { kernel, params: self.params, parallel, work: self.shape.work, run: self.shape.run() }
    }

    /// Emits the loops over a tile, whose position and size are arguments; with reductions, a tile has whole rows.
    pub(super) fn tile(mut self, group: &Group, tile: Value, vars: [Option<usize>; 3]) -> Lowered {
        let buf = self.b.buffer(self.g.graph.ty(tile).dtype.accumulator(), AccessMode::Read);
        self.params.push(Param::Value(tile));
        self.over_rows(format!("tile_{}", kernel_name(group)), vars, |e, row, stride, columns| {
            e.tile = Some((buf, row, vars[2], stride));
            if !e.reductions.is_empty() {
                return e.emit_row();
            }
            columns.run(e, |e, _| {
                let stores = e.stores.clone();
                stores.iter().for_each(|(value, _, x, at)| e.store(*value, *x, at));
            });
        })
    }

    /// Emits the loops that write a block of an operand, whose position and size are arguments.
    pub(super) fn emit_prologue(mut self, group: &Group, vars: [Option<usize>; 3]) -> Lowered {
        let (value, _, x, _) = self.stores[0].clone();
        let buf = self.b.buffer(self.g.graph.ty(value).dtype, AccessMode::Write);
        self.params.push(Param::Value(value));
        self.over_rows(format!("fill_{}", kernel_name(group)), vars, |e, row, stride, columns| {
            columns.run(e, |e, column| {
                let r = e.reg(x);
                let terms = vec![(Atom::Var(row), stride), (Atom::Var(column), Size::Const(1))];
                e.b.store(buf, loops::Index { terms, ..loops::Index::default() }, r);
            });
        })
    }

    /// Emits a kernel over a block whose batch entry, first row and column, rows, columns and row stride are arguments. `body`
    /// receives the row variable, the stride, and the loop over columns.
    fn over_rows(
        mut self,
        name: String,
        [batch, row, col]: [Option<usize>; 3],
        body: impl FnOnce(&mut Self, loops::Var, Size, Columns),
    ) -> Lowered {
        let args: Vec<Size> = (0..6).map(|_| self.b.size()).collect();
        let start = |b: &mut KernelBuilder, k: u32| {
            b.let_(DType::I64, loops::Op::Index(loops::Index { offset_args: vec![k], ..loops::Index::default() }))
        };
        let (b0, r0, c0) = (start(&mut self.b, 0), start(&mut self.b, 1), start(&mut self.b, 2));
        if let Some(v) = batch {
            self.set_bound(v, Bind::Reg(b0));
        }
        self.hoist_all();
        let rv = self.b.var();
        self.b.begin();
        self.scopes.push(Scope::default());
        if let Some(v) = row {
            self.set_bound(v, Bind::Block(r0, rv));
        }
        self.hoist_all();
        body(&mut self, rv, args[5], Columns { var: col, first: c0, count: args[4] });
        self.close(rv, args[3], LoopKind::Serial);
        let mut kernel = self.b.finish();
        kernel.name = name;
        Lowered { kernel, params: self.params, parallel: None, work: self.shape.work, run: self.shape.run() }
    }

    /// Ends the innermost scope and makes its statements the body of a loop.
    fn close(&mut self, var: loops::Var, count: Size, kind: LoopKind) {
        self.scopes.pop();
        let body = self.b.end();
        self.b.push(Stmt::Loop(loops::Loop { var, extent: Extent::Exact(count), kind, carried: Vec::new(), body }));
    }

    /// Computes the row variables and the start of the vector's block from the flat parallel variable.
    pub(super) fn bind_parallel(&mut self, var: loops::Var) {
        let vars = self.shape.parallel.clone();
        let blocks = match (self.shape.block, self.shape.vector) {
            (Some(b), Some(v)) => Some((b, self.shape.extents[v] / b)),
            _ => None,
        };
        if let ([v], None) = (&vars[..], blocks) {
            self.set_bound(*v, Bind::Var(var));
            return;
        }
        let mut rest = self.b.index(var);
        let mut peel = |b: &mut KernelBuilder, extent: i64, last: bool| {
            if last {
                return rest;
            }
            let n = b.constant(Scalar::from_i64(DType::I64, extent));
            let r = b.binary(Binary::Rem, rest, n);
            rest = b.binary(Binary::Div, rest, n);
            r
        };
        if let Some((block, count)) = blocks {
            let k = peel(&mut self.b, count, vars.is_empty());
            let size = self.b.constant(Scalar::from_i64(DType::I64, block));
            self.block_start = Some(self.b.binary(Binary::Mul, k, size));
        }
        for (k, &v) in vars.iter().enumerate().rev() {
            let r = peel(&mut self.b, self.shape.extents[v], k == 0);
            self.set_bound(v, Bind::Reg(r));
        }
    }

    pub(super) fn set_bound(&mut self, v: usize, bind: Bind) {
        self.bind[v] = bind;
        self.bound |= 1 << v;
        // The variables merged into this one need no loop.
        for u in (0..v).rev() {
            if self.shape.merged[u].is_some_and(|m| self.bound >> m & 1 == 1) {
                self.bound |= 1 << u;
            }
        }
    }

    pub(super) fn unbind(&mut self, v: usize, before: u64) {
        self.bind[v] = Bind::Unbound;
        self.bound = before;
    }

    /// Runs `body` in a loop over a variable, with carried values.
    pub(super) fn emit_loop(
        &mut self,
        v: usize,
        kind: LoopKind,
        init: &[(Reg, Option<Binary>)],
        body: &mut dyn FnMut(&mut Self, &[Reg]) -> Vec<Reg>,
    ) -> Vec<Reg> {
        self.over_range(v, None, kind, init, body)
    }

    /// Runs `body` in a loop over a variable, or over a range of its values (start and length).
    fn over_range(
        &mut self,
        v: usize,
        range: Option<(Reg, i64)>,
        kind: LoopKind,
        init: &[(Reg, Option<Binary>)],
        body: &mut dyn FnMut(&mut Self, &[Reg]) -> Vec<Reg>,
    ) -> Vec<Reg> {
        let var = self.b.var();
        let phis: Vec<Reg> = init.iter().map(|(r, _)| self.b.reg(self.b.dtype(*r))).collect();
        self.b.begin();
        self.scopes.push(Scope::default());
        let before = self.bound;
        let range = range.or_else(|| {
            let start = self.block_start.filter(|_| self.shape.vector == Some(v))?;
            Some((start, self.shape.block.unwrap_or(self.shape.extents[v])))
        });
        let start = range.map(|r| r.0);
        self.set_bound(v, start.map_or(Bind::Var(var), |s| Bind::Block(s, var)));
        let nexts = body(self, &phis);
        self.unbind(v, before);
        self.scopes.pop();
        let block = self.b.end();
        let mut outs = Vec::with_capacity(init.len());
        let mut carried = Vec::with_capacity(init.len());
        for (((init, combine), phi), next) in init.iter().zip(phis).zip(nexts) {
            let out = self.b.reg(self.b.dtype(*init));
            outs.push(out);
            carried.push(Carried { init: *init, phi, next, out, combine: *combine });
        }
        let count = range.map_or(self.shape.extents[v], |r| r.1);
        let extent = Extent::Exact(Size::Const(count));
        self.b.push(Stmt::Loop(loops::Loop { var, extent, kind, carried, body: block }));
        outs
    }

    pub(super) fn rows(&mut self, k: usize) {
        if k < self.shape.serial.len() {
            let v = self.shape.serial[k];
            self.emit_loop(v, LoopKind::Serial, &[], &mut |e, _| {
                e.hoist_all();
                e.rows(k + 1);
                Vec::new()
            });
            return;
        }
        let vector = self.shape.vector;
        match vector.filter(|v| !self.shape.cols.contains(v)) {
            Some(v) => {
                self.emit_loop(v, LoopKind::Vector, &[], &mut |e, _| {
                    e.emit_row();
                    Vec::new()
                });
            }
            None => self.emit_row(),
        }
    }

    /// Emits one row: reductions level by level, then results.
    pub(super) fn emit_row(&mut self) {
        let levels = self.reductions.iter().map(|r| r.level).max().unwrap_or(0);
        self.plan_cache(levels);
        self.level = 0;
        for level in 1..=levels {
            self.hoist_all();
            let here: Vec<usize> = (0..self.reductions.len()).filter(|&k| self.reductions[k].level == level).collect();
            let outs = self.reduce(&here);
            for (&k, out) in here.iter().zip(outs) {
                let (result, dtype) = (self.reductions[k].result, self.g.exprs.info(self.reductions[k].result).dtype);
                let out = if self.b.dtype(out) == dtype { out } else { self.b.cast(dtype, out) };
                self.scopes.last_mut().expect("a scope is open").regs.insert(result, out);
            }
            self.level = level;
        }
        self.hoist_all();
        let stores = self.stores.clone();
        for (value, _, e, at) in stores.iter().filter(|s| s.1 != ValueRole::Full) {
            self.store(*value, *e, at);
        }
        if stores.iter().any(|s| s.1 == ValueRole::Full) {
            self.store_loops(0);
        }
        self.level = 0;
    }

    pub(super) fn col_kind(&self, v: usize) -> LoopKind {
        if self.shape.vector == Some(v) { LoopKind::Vector } else { LoopKind::Serial }
    }

    /// Emits reductions that do not depend on each other, over all reduced axes.
    fn reduce(&mut self, here: &[usize]) -> Vec<Reg> {
        let mut accs = Vec::with_capacity(here.len());
        for &k in here {
            let r = &self.reductions[k];
            let (identity, op) = (r.kind.identity(r.acc), r.kind.combine());
            accs.push((self.b.constant(identity), op));
        }
        if let Some(rows) = self.shape.interleaved_rows.filter(|_| here.iter().any(|&k| self.depends_on_order(k))) {
            return self.reduce_in_order(rows, &accs, here);
        }
        match self.blocks(here) {
            Some(blocks) => self.reduce_in_blocks(&blocks, &accs, here),
            None => self.reduce_loops(0, &accs, here),
        }
    }

    /// How float sums over many elements are split into blocks, so that their rounding error stays bounded.
    fn blocks(&self, here: &[usize]) -> Option<ReductionBlocks> {
        let float_sum = |&k: &usize| self.reductions[k].kind == ReduceKind::Sum && self.reductions[k].acc.is_float();
        let block = match self.shape.vector.is_some_and(|v| self.shape.cols.contains(&v)) {
            true => self.vector_block,
            false => SERIAL_BLOCK,
        };
        let below = |k: usize| self.shape.cols[k..].iter().fold(1i64, |n, &v| n.saturating_mul(self.shape.extents[v]));
        if !here.iter().any(float_sum) || below(0) <= 2 * block {
            return None;
        }
        let cut = (0..self.shape.cols.len()).find(|&k| below(k + 1) <= block)?;
        Some(ReductionBlocks { split_var: cut, size: block / below(cut + 1).max(1) })
    }

    /// Emits reductions whose float sums are computed in blocks: sequentially within a block; across blocks with compensated
    /// summation, as pairs of a sum and its accumulated rounding error.
    fn reduce_in_blocks(&mut self, blocks: &ReductionBlocks, accs: &[(Reg, Binary)], here: &[usize]) -> Vec<Reg> {
        let exact: Vec<bool> = accs.iter().map(|&(r, op)| op == Binary::Add && self.b.dtype(r).is_float()).collect();
        // The state is the sums and the other reductions, then the rounding errors of the sums.
        let mut init: Vec<Reg> = accs.iter().map(|a| a.0).collect();
        for (&(r, _), _) in accs.iter().zip(&exact).filter(|(_, e)| **e) {
            let zero = self.b.constant(Scalar::zero(self.b.dtype(r)));
            init.push(zero);
        }
        let outs = self.reduce_block_loops(0, blocks, &init, accs, &exact, here);
        let mut lost = outs[accs.len()..].iter();
        let mut results = Vec::with_capacity(accs.len());
        for (&sum, &exact) in outs.iter().zip(&exact) {
            let Some(&lost) = exact.then(|| lost.next()).flatten() else {
                results.push(sum);
                continue;
            };
            // The rounding error of an infinite sum is NaN.
            let finite = self.b.compare(Compare::Eq, lost, lost);
            let total = self.b.binary(Binary::Add, sum, lost);
            results.push(self.b.select(finite, total, sum));
        }
        results
    }

    /// Emits the loops around the blocks, from the `k`-th reduced variable on.
    fn reduce_block_loops(
        &mut self,
        k: usize,
        blocks: &ReductionBlocks,
        state: &[Reg],
        accs: &[(Reg, Binary)],
        exact: &[bool],
        here: &[usize],
    ) -> Vec<Reg> {
        let v = self.shape.cols[k];
        let carried: Vec<(Reg, Option<Binary>)> = state.iter().map(|&r| (r, None)).collect();
        if k < blocks.split_var {
            return self.emit_loop(v, LoopKind::Serial, &carried, &mut |e, phis| {
                e.hoist_all();
                e.reduce_block_loops(k + 1, blocks, phis, accs, exact, here)
            });
        }
        let (whole, rest) = (self.shape.extents[v] / blocks.size, self.shape.extents[v] % blocks.size);
        let written = self.written.clone();
        let ov = self.b.var();
        let phis: Vec<Reg> = state.iter().map(|r| self.b.reg(self.b.dtype(*r))).collect();
        self.b.begin();
        self.scopes.push(Scope::default());
        let start = self.b.index(loops::Index::default().add_var(ov, blocks.size));
        let nexts = self.reduce_block(k, (start, blocks.size), &phis, accs, exact, here);
        self.scopes.pop();
        let body = self.b.end();
        let (mut outs, mut loop_carried) = (Vec::new(), Vec::new());
        for ((&init, phi), next) in state.iter().zip(phis).zip(nexts) {
            let out = self.b.reg(self.b.dtype(init));
            outs.push(out);
            loop_carried.push(Carried { init, phi, next, out, combine: None });
        }
        let extent = Extent::Exact(Size::Const(whole));
        self.b.push(Stmt::Loop(loops::Loop { var: ov, extent, kind: LoopKind::Serial, carried: loop_carried, body }));
        if rest == 0 {
            return outs;
        }
        // The remainder recomputes the values that it keeps for later loops.
        self.written = written;
        let start = self.b.index(whole * blocks.size);
        self.scopes.push(Scope::default());
        let outs = self.reduce_block(k, (start, rest), &outs, accs, exact, here);
        self.scopes.pop();
        outs
    }

    /// Emits one block of `size` values of the `k`-th reduced variable, and adds it to the state.
    fn reduce_block(
        &mut self,
        k: usize,
        (start, size): (Reg, i64),
        state: &[Reg],
        accs: &[(Reg, Binary)],
        exact: &[bool],
        here: &[usize],
    ) -> Vec<Reg> {
        // Sums start at zero in each block; the other reductions continue.
        let mut inner = Vec::with_capacity(accs.len());
        for ((&(acc, op), &exact), &so_far) in accs.iter().zip(exact).zip(state) {
            let zero = exact.then(|| self.b.constant(Scalar::zero(self.b.dtype(acc))));
            inner.push((zero.unwrap_or(so_far), op));
        }
        let parts = self.reduce_range(k, Some((start, size)), &inner, here);
        let mut next = state.to_vec();
        let mut lost = accs.len();
        for (i, &part) in parts.iter().enumerate() {
            if !exact[i] {
                next[i] = part;
                continue;
            }
            (next[i], next[lost]) = self.two_sum(state[i], state[lost], part);
            lost += 1;
        }
        next
    }

    /// `sum + x` with its rounding error (Knuth's two-sum) added to `lost`.
    fn two_sum(&mut self, sum: Reg, lost: Reg, x: Reg) -> (Reg, Reg) {
        let b = &mut self.b;
        let total = b.binary(Binary::Add, sum, x);
        let of_x = b.binary(Binary::Sub, total, sum);
        let of_sum = b.binary(Binary::Sub, total, of_x);
        let (less, left) = (b.binary(Binary::Sub, sum, of_sum), b.binary(Binary::Sub, x, of_x));
        let error = b.binary(Binary::Add, less, left);
        (total, b.binary(Binary::Add, lost, error))
    }

    pub(super) fn reduce_loops(&mut self, k: usize, accs: &[(Reg, Binary)], here: &[usize]) -> Vec<Reg> {
        self.reduce_range(k, None, accs, here)
    }

    /// Emits the loops of a reduction from the `k`-th reduced variable on; the loop over that variable is limited to `range` if
    /// given.
    fn reduce_range(
        &mut self,
        k: usize,
        range: Option<(Reg, i64)>,
        accs: &[(Reg, Binary)],
        here: &[usize],
    ) -> Vec<Reg> {
        let Some(&v) = self.shape.cols.get(k) else {
            let mut next = Vec::with_capacity(here.len());
            for (&r, &(acc, op)) in here.iter().zip(accs) {
                let (operand, dtype) = (self.reductions[r].operand, self.reductions[r].acc);
                let x = self.reg(operand);
                let x = if self.b.dtype(x) == dtype { x } else { self.b.cast(dtype, x) };
                next.push(self.b.binary(op, acc, x));
            }
            self.write_cache(here);
            return next;
        };
        let kind = self.col_kind(v);
        let init: Vec<(Reg, Option<Binary>)> =
            accs.iter().map(|&(r, op)| (r, (kind == LoopKind::Vector).then_some(op))).collect();
        self.over_range(v, range, kind, &init, &mut |e, phis| {
            if k + 1 < e.shape.cols.len() {
                e.hoist_all();
            }
            let inner: Vec<(Reg, Binary)> = phis.iter().zip(accs).map(|(&p, &(_, op))| (p, op)).collect();
            e.reduce_range(k + 1, None, &inner, here)
        })
    }

    pub(super) fn store_loops(&mut self, k: usize) {
        let Some(&v) = self.shape.cols.get(k) else {
            let stores = self.stores.clone();
            for (value, _, e, at) in stores.iter().filter(|s| s.1 == ValueRole::Full) {
                self.store(*value, *e, at);
            }
            return;
        };
        let kind = self.col_kind(v);
        self.emit_loop(v, kind, &[], &mut |e, _| {
            if k + 1 < e.shape.cols.len() {
                e.hoist_all();
            }
            e.store_loops(k + 1);
            Vec::new()
        });
    }

    pub(super) fn store(&mut self, value: Value, e: ExprId, at: &AffineIndex) {
        let r = self.reg(e);
        if let (Some(&buf), Some(at)) = (self.kept.get(&value), self.column()) {
            return self.b.store(buf, at, r);
        }
        let dtype = self.g.graph.ty(value).dtype;
        let buf = self.buffer(value, dtype, AccessMode::Write);
        let index = self.index(at);
        self.b.store(buf, index, r);
    }

    pub(super) fn buffer(&mut self, value: Value, dtype: DType, mode: AccessMode) -> Buf {
        if let Some(b) = self.bufs.get(&value) {
            return *b;
        }
        let b = self.b.buffer(dtype, mode);
        self.params.push(Param::Value(value));
        self.bufs.insert(value, b);
        b
    }
}
