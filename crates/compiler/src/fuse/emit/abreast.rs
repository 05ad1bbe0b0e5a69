//! Short rows side by side.
//!
//! A vector that runs along a short row computes more for the lanes it leaves empty, and for the end of each loop, than for
//! the row. So each row gets a lane. Lanes that are a row apart in memory load slowly; a block of rows is therefore turned
//! column by column into scratch first, everything is computed there, and results are turned back. The turning is written as
//! plain loops that only copy, which a code generator may know and do better.

use super::{Bind, Emitter, Scope};
use crate::fuse::expr::{Ex, ExId};
use crate::fuse::generate::Generator;
use crate::fuse::index::{AtomKind, Lin};
use crate::fuse::lower::{Group, Lowered, Param, Role, kernel_name};
use crate::loops::{self, Buf, Extent, LoopKind, Mode, Size, Stmt, Var};
use crate::target::Workers;
use ir::{Binary, DType, Scalar, Value};

/// Rows of a block are a multiple of this.
const GRAIN: i64 = 64;

/// Operands and results of a kernel, at most.
const MOST: usize = 10;

/// How many rows of so many elements are a block.
pub(in crate::fuse) fn block(elements: i64, w: Workers) -> i64 {
    (w.abreast.1 / elements / GRAIN * GRAIN).max(GRAIN)
}

/// How a form runs over rows and columns.
#[derive(PartialEq)]
enum Runs {
    /// Row after row without gaps.
    Dense,
    /// With the columns alone, or with neither.
    Columns,
    /// One element a row, one after the other.
    Rows,
    Otherwise,
}

fn runs(g: &Generator<'_>, form: &Lin, (row, column): (usize, usize), extents: &[i64]) -> Runs {
    let (mut of_row, mut of_column) = (0, 0);
    for &(a, k) in &form.terms {
        let atom = g.atoms.get(a);
        match atom.kind {
            AtomKind::Var(v) if v == row => of_row = k,
            AtomKind::Var(v) if v == column => of_column = k,
            AtomKind::Var(_) => {}
            _ if atom.vars == 0 => {}
            _ => return Runs::Otherwise,
        }
    }
    match (of_row, of_column) {
        (0, _) => Runs::Columns,
        (1, 0) => Runs::Rows,
        (k, 1) if k == extents[column] => Runs::Dense,
        _ => Runs::Otherwise,
    }
}

/// Whether rows are short, many, and lie as they must to run side by side; they are reduced so many times one after the
/// other, and give so many results.
pub(in crate::fuse) fn pays(
    g: &Generator<'_>,
    forms: &[&Lin],
    (row, column): (usize, usize),
    extents: &[i64],
    (levels, results): (u32, usize),
    w: Workers,
) -> bool {
    let n = extents[column];
    let loads = || g.exprs.iter().enumerate().filter(|(_, e)| matches!(e, Ex::Load { .. }));
    let widest = loads().map(|(e, _)| g.exprs.info(e as ExId).dtype.size()).max().unwrap_or(4).max(4) as i64;
    let function = |e: usize| {
        let costs = match g.exprs.get(e as ExId) {
            Ex::Unary(op, _) => op.cost(),
            Ex::Binary(op, ..) => op.cost(),
            _ => 0,
        };
        costs > 6 && g.exprs.info(e as ExId).vars >> column & 1 == 1
    };
    // Functions of elements are computed for empty lanes too; sums lose less, and rows that fill vectors hardly anything.
    let fills = n % w.row_vector == 0;
    let wasteful = || match (0..g.exprs.iter().count()).any(function) {
        true => n <= 2 * w.row_vector || !fills,
        false => n < w.row_vector * levels as i64 && !fills,
    };
    (2..=w.short_row * 4 / widest).contains(&n)
        && wasteful()
        && extents[row] >= w.abreast.0
        // Each has scratch of its own.
        && loads().count() + results <= MOST
        && forms.iter().all(|l| runs(g, l, (row, column), extents) != Runs::Otherwise)
        && g.exprs.iter().all(|e| !matches!(e, Ex::Load { mask: Some(_), .. }))
}

impl Emitter<'_> {
    /// The kernel of rows that run side by side: in parallel blocks of so many, the last of which may have fewer.
    pub(super) fn side_by_side(mut self, group: &Group, rows: i64) -> Lowered {
        let (Some(v), &[column]) = (self.shape.vector, &self.shape.cols[..]) else {
            unreachable!("rows have one variable and their elements another")
        };
        let (all, elements) = (self.shape.extents[v], self.shape.extents[column]);
        let blocks = (all + rows - 1) / rows;
        let count = self.scratch(DType::I32, 1);
        let var = self.b.var();
        self.b.begin();
        self.scopes.push(Scope::default());
        let start = self.b.index(loops::Index::default().plus(var, rows));
        let (end, most) = (self.number(all), self.number(rows));
        let left = self.b.binary(Binary::Sub, end, start);
        let here = self.b.binary(Binary::Min, left, most);
        let here = self.b.cast(DType::I32, here);
        self.b.store(count, 0, here);
        self.block_start = Some(start);
        self.hoist_all();
        let here = Extent::Bounded { bound: Size::Const(rows), buf: count, index: loops::Index::default() };

        for e in self.dense_loads(v, column) {
            let Ex::Load { from, at, .. } = self.g.exprs.get(e).clone() else { continue };
            let dtype = self.g.exprs.info(e).dtype;
            let (buf, kept) = (self.buffer(from, dtype, Mode::Read), self.scratch(dtype, elements * rows));
            self.turn(&here, &at, |b, outside, inside| {
                let x = b.load(buf, outside);
                b.store(kept, inside, x);
            });
            self.cached.insert(e, kept);
            self.written.push(e);
        }
        let results: Vec<(Value, Lin)> =
            self.stores.iter().filter(|s| s.1 == Role::Full).map(|s| (s.0, s.3.clone())).collect();
        for (value, _) in &results {
            let kept = self.scratch(self.g.graph.ty(*value).dtype, elements * rows);
            self.kept.insert(*value, kept);
        }
        self.looped(v, &here, LoopKind::Vector, Some(start), |e, _| e.row());
        for (value, at) in &results {
            let (kept, dtype) = (self.kept[value], self.g.graph.ty(*value).dtype);
            let buf = self.buffer(*value, dtype, Mode::Write);
            self.turn(&here, at, |b, outside, inside| {
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
        Lowered { kernel, params: self.params, parallel: Some(blocks), work: self.shape.work }
    }

    fn number(&mut self, n: i64) -> loops::Reg {
        self.b.constant(Scalar::from_i64(DType::I64, n))
    }

    fn scratch(&mut self, dtype: DType, elements: i64) -> Buf {
        self.params.push(Param::Scratch(elements as usize * dtype.size()));
        self.b.buffer(dtype, Mode::Scratch(elements as usize))
    }

    /// A loop over a variable, from `start` on.
    fn looped(
        &mut self,
        v: usize,
        extent: &Extent,
        kind: LoopKind,
        start: Option<loops::Reg>,
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

    /// Copies the elements of a block, given where each is outside and in scratch.
    fn turn(&mut self, here: &Extent, at: &Lin, copy: impl FnOnce(&mut loops::Builder, loops::Index, loops::Index)) {
        let (Some(v), column) = (self.shape.vector, self.shape.cols[0]) else { return };
        let columns = Extent::Exact(Size::Const(self.shape.extents[column]));
        self.looped(v, here, LoopKind::Vector, self.block_start, |e, _| {
            e.looped(column, &columns, LoopKind::Serial, None, |e, _| {
                let (outside, inside) = (e.index(at), e.column());
                copy(&mut e.b, outside, inside.expect("both variables are bound"));
            });
        });
    }

    /// Loads that run over rows without gaps.
    fn dense_loads(&self, row: usize, column: usize) -> Vec<ExId> {
        let mut stack: Vec<ExId> = self.reductions.iter().map(|r| r.operand).collect();
        stack.extend(self.stores.iter().map(|s| s.2));
        let (mut seen, mut found) = (rustc_hash::FxHashSet::default(), Vec::new());
        while let Some(e) = stack.pop() {
            if !seen.insert(e) {
                continue;
            }
            if let Ex::Load { at, .. } = self.g.exprs.get(e)
                && runs(&self.g, at, (row, column), &self.shape.extents) == Runs::Dense
            {
                found.push(e);
            }
            stack.extend(self.g.exprs.get(e).children());
        }
        found.sort_unstable();
        found
    }
}
