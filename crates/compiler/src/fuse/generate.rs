//! Translates graph values to scalar expressions: views become index arithmetic, elementwise ops become operations, materialized
//! values become loads.

use super::expr::{ExprId, ExprTable, KernelExpr};
use super::index::{AffineIndex, AtomKind, Atoms, SpaceRefinement, reshape};
use ir::ops::gather::{Gather, GatherMode};
use ir::ops::{Indexing, View};
use ir::{Binary, Compare, DType, Graph, Op, Scalar, Semantics, Type, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The origin of a value inside a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueSource {
    /// Computed inline from its operands.
    Inline,
    /// In memory, dense; `shift` is added to its element index (the current slice of a scanned operand).
    Memory { shift: Option<AffineIndex> },
    /// The result of this kernel's n-th reduction.
    Reduced(usize),
    /// A result of this kernel, which is only available at the current element.
    Result,
    /// The n-th carried value of the enclosing loop, elementwise.
    Carry(usize),
}

/// Why a value cannot be lowered to an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LowerFailure {
    /// Possible after this change of the iteration space.
    Refine(SpaceRefinement),
    /// A value of this kernel is needed at another element than the current one.
    Mismatch,
    /// An op that is not a scalar expression.
    NotScalar,
}

impl From<SpaceRefinement> for LowerFailure {
    fn from(r: SpaceRefinement) -> LowerFailure {
        LowerFailure::Refine(r)
    }
}

/// An index: one form per axis.
pub(crate) type Index = SmallVec<[AffineIndex; 4]>;

#[cfg(test)]
thread_local! {
    /// The number of elements that generators of this thread have generated, without cache hits.
    pub(crate) static WRITTEN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Generates expressions for one kernel over one iteration space.
pub(crate) struct Generator<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) sources: &'a dyn Fn(Value) -> ValueSource,
    pub(crate) atoms: Atoms,
    pub(crate) exprs: ExprTable,
    /// The current element as an index over all axes, and over the axes that the group's reductions keep.
    pub(crate) full: Index,
    pub(crate) row: Index,
    /// The current element as an index under other shapes.
    pub(crate) regrouped: Vec<Index>,
    /// The levels of the group's reductions.
    pub(crate) levels: Vec<u32>,
    /// Variables that must not be split, because a reduction runs over them in one loop.
    pub(crate) uncut: u64,
    memo: FxHashMap<(Value, Index, Option<ExprId>), ExprId>,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(graph: &'a Graph, sources: &'a dyn Fn(Value) -> ValueSource) -> Generator<'a> {
        Generator {
            graph,
            sources,
            atoms: Atoms::default(),
            exprs: ExprTable::default(),
            full: Index::new(),
            row: Index::new(),
            regrouped: Vec::new(),
            levels: Vec::new(),
            uncut: 0,
            memo: FxHashMap::default(),
        }
    }

    /// The value's element at an index, computed in this kernel regardless of its source.
    pub(crate) fn compute(&mut self, v: Value, index: &Index) -> Result<ExprId, LowerFailure> {
        self.node(v, index, None)
    }

    /// The value's element at an index; where the mask is false, memory is not accessed.
    pub(crate) fn value(&mut self, v: Value, index: &Index, mask: Option<ExprId>) -> Result<ExprId, LowerFailure> {
        let source = (self.sources)(v);
        // A result is always computed at its element, so one expression serves all consumers, with any mask.
        let mask = if source == ValueSource::Result { None } else { mask };
        let key = (v, index.clone(), mask);
        if let Some(e) = self.memo.get(&key) {
            return Ok(*e);
        }
        #[cfg(test)]
        WRITTEN.set(WRITTEN.get() + 1);
        let ty = self.graph.ty(v);
        let e = match source {
            ValueSource::Memory { shift } => self.load(v, ty, index, shift, mask),
            ValueSource::Reduced(k) => {
                if *index != self.row {
                    return Err(LowerFailure::Mismatch);
                }
                let vars = self.row.iter().fold(0, |m, l| m | self.atoms.vars(l));
                self.exprs.add(KernelExpr::Reduced(k), ty.dtype, vars, self.levels[k])
            }
            ValueSource::Carry(k) => {
                if *index != self.full && !index.is_empty() {
                    return Err(LowerFailure::Mismatch);
                }
                let vars = index.iter().fold(0, |m, l| m | self.atoms.vars(l));
                self.exprs.add(KernelExpr::Carry(k), ty.dtype, vars, 0)
            }
            ValueSource::Result => {
                if *index != self.full && *index != self.row && !self.regrouped.contains(index) {
                    return Err(LowerFailure::Mismatch);
                }
                self.node(v, index, mask)?
            }
            ValueSource::Inline => self.node(v, index, mask)?,
        };
        self.memo.insert(key, e);
        Ok(e)
    }

    fn load(&mut self, v: Value, ty: &Type, index: &Index, shift: Option<AffineIndex>, mask: Option<ExprId>) -> ExprId {
        let mut at = shift.unwrap_or_default();
        for (i, s) in index.iter().zip(ty.strides()) {
            at = at.add(&i.scale(s as i64));
        }
        let at = self.atoms.recombine_div_rem(at);
        let vars = self.atoms.vars(&at);
        let level = self.level_of(&at);
        let mask = mask.map(|m| (m, Scalar::zero(ty.dtype)));
        self.exprs.add(KernelExpr::Load { from: v, at, mask }, ty.dtype, vars, level)
    }

    /// The number of dependent reductions that must have run before an index is known.
    fn level_of(&self, lin: &AffineIndex) -> u32 {
        let of = |a: &(u32, i64)| match &self.atoms.get(a.0).kind {
            AtomKind::Var(_) => 0,
            AtomKind::Div(l, _) | AtomKind::Mod(l, _) => self.level_of(l),
            AtomKind::Computed(e) => self.exprs.info(*e).level,
        };
        lin.terms.iter().map(of).max().unwrap_or(0)
    }

    fn node(&mut self, v: Value, index: &Index, mask: Option<ExprId>) -> Result<ExprId, LowerFailure> {
        let node = self.graph.node_of(v).ok_or(LowerFailure::NotScalar)?;
        match node.op.semantics() {
            Semantics::Elementwise(expr) => {
                let mut args: SmallVec<[ExprId; 3]> = SmallVec::new();
                for &a in &node.args {
                    args.push(self.value(a, index, mask)?);
                }
                Ok(self.exprs.apply(&expr, &args))
            }
            Semantics::View(view) => self.view(&view, &node.args, v, index, mask),
            Semantics::Index(Indexing::Concat(axis)) => self.concat(axis, &node.args, index, mask),
            Semantics::Index(Indexing::Iota(axis)) => {
                let i = self.exprs.index(&self.atoms, index[axis].clone());
                Ok(self.exprs.cast(self.graph.ty(v).dtype, i))
            }
            Semantics::Constant => match &node.op {
                Op::Const(c) => uniform(&c.0).map(|s| self.exprs.constant(s)).ok_or(LowerFailure::NotScalar),
                _ => Err(LowerFailure::NotScalar),
            },
            Semantics::Index(Indexing::Gather(g)) => self.gather(&g, &node.args, index, mask),
            Semantics::Index(Indexing::Slice(sizes)) => {
                let mut inner = Index::new();
                for (a, i) in index.iter().enumerate() {
                    let room = self.graph.ty(node.args[0]).shape[a] - sizes[a];
                    inner.push(i.add(&self.start(node.args[1 + a], &Index::new(), room, mask)?));
                }
                self.value(node.args[0], &inner, mask)
            }
            Semantics::Index(Indexing::Update) => self.update_slice(&node.args, index, mask),
            Semantics::Index(Indexing::Threefry) => {
                let second = node.outs[0] != v;
                let mut words = [0; 4];
                for (w, &a) in words.iter_mut().zip(&node.args) {
                    *w = self.value(a, index, mask)?;
                }
                Ok(super::threefry::threefry(&mut self.exprs, words)[second as usize])
            }
            Semantics::Reduce(..) | Semantics::DotGeneral(_) | Semantics::Inline(_) | Semantics::Opaque => {
                Err(LowerFailure::NotScalar)
            }
        }
    }

    /// A start index, loaded from memory or computed, clamped to `0..=room`.
    fn start(
        &mut self,
        from: Value,
        at: &Index,
        room: usize,
        mask: Option<ExprId>,
    ) -> Result<AffineIndex, LowerFailure> {
        let raw = self.value(from, at, mask)?;
        let raw = self.exprs.cast(DType::I64, raw);
        let (lo, hi) = (
            self.exprs.constant(Scalar::zero(DType::I64)),
            self.exprs.constant(Scalar::from_i64(DType::I64, room as i64)),
        );
        let low = self.exprs.binary(Binary::Max, raw, lo);
        let e = self.exprs.binary(Binary::Min, low, hi);
        let info = self.exprs.info(e).clone();
        if info.carried {
            return Err(LowerFailure::NotScalar);
        }
        Ok(AffineIndex::atom(self.atoms.computed(e, 0, room as i64, info.vars)))
    }

    fn gather(
        &mut self,
        g: &Gather,
        args: &[Value],
        index: &Index,
        mask: Option<ExprId>,
    ) -> Result<ExprId, LowerFailure> {
        let operand = self.graph.ty(args[0]).clone();
        let dims = &g.dims;
        let (mut batch, mut window) = (Index::new(), Index::new());
        for (a, i) in index.iter().enumerate() {
            if dims.offset.contains(&a) { &mut window } else { &mut batch }.push(i.clone());
        }
        let mut window = window.into_iter();
        let mut inside: Option<ExprId> = None;
        let mut inner = Index::new();
        for a in 0..operand.rank() {
            let mut at = AffineIndex::default();
            if let Some(k) = dims.operand_batch.iter().position(|&x| x == a) {
                at = at.add(&batch[dims.index_batch[k]]);
            } else if !dims.collapsed.contains(&a) {
                at = at.add(&window.next().ok_or(LowerFailure::NotScalar)?);
            }
            if let Some(k) = dims.index_map.iter().position(|&x| x == a) {
                let mut place = batch.clone();
                place.push(AffineIndex::constant(k as i64));
                let Some(room) = operand.shape[a].checked_sub(g.slice_sizes[a]) else {
                    // No slice fits into the operand: all are outside or have no elements.
                    let fill = match g.mode {
                        GatherMode::Fill(fill) => fill,
                        GatherMode::Clip => Scalar::zero(operand.dtype),
                    };
                    return Ok(self.exprs.constant(fill));
                };
                if let GatherMode::Fill(_) = g.mode {
                    let raw = self.value(args[1], &place, mask)?;
                    let raw = self.exprs.cast(DType::I64, raw);
                    let zero = self.exprs.constant(Scalar::zero(DType::I64));
                    let end = self.exprs.constant(Scalar::from_i64(DType::I64, room as i64));
                    for (op, bound) in [(Compare::Ge, zero), (Compare::Le, end)] {
                        let c = self.exprs.compare(op, raw, bound);
                        inside = Some(self.and(inside, c));
                    }
                }
                at = at.add(&self.start(args[1], &place, room, mask)?);
            }
            inner.push(at);
        }
        match (g.mode.clone(), inside) {
            (GatherMode::Fill(fill), Some(inside)) => {
                let both = self.and(mask, inside);
                let x = self.value(args[0], &inner, Some(both))?;
                let fill = self.exprs.constant(fill);
                Ok(self.exprs.select(inside, x, fill))
            }
            _ => self.value(args[0], &inner, mask),
        }
    }

    fn update_slice(&mut self, args: &[Value], index: &Index, mask: Option<ExprId>) -> Result<ExprId, LowerFailure> {
        let (x, update) = (self.graph.ty(args[0]).clone(), self.graph.ty(args[1]).clone());
        let mut inside: Option<ExprId> = None;
        let mut inner = Index::new();
        for (a, i) in index.iter().enumerate() {
            let size = update.shape[a];
            let s = self.start(args[2 + a], &Index::new(), x.shape[a] - size, mask)?;
            let at = i.add(&s.scale(-1));
            if size < x.shape[a] {
                let ix = self.exprs.index(&self.atoms, at.clone());
                let zero = self.exprs.constant(Scalar::zero(DType::I64));
                let end = self.exprs.constant(Scalar::from_i64(DType::I64, size as i64));
                for (op, bound) in [(Compare::Ge, zero), (Compare::Lt, end)] {
                    let c = self.exprs.compare(op, ix, bound);
                    inside = Some(self.and(inside, c));
                }
            }
            inner.push(at);
        }
        let Some(inside) = inside else {
            return self.value(args[1], &inner, mask);
        };
        let both = self.and(mask, inside);
        let new = self.value(args[1], &inner, Some(both))?;
        let old = self.value(args[0], index, mask)?;
        Ok(self.exprs.select(inside, new, old))
    }

    fn view(
        &mut self,
        view: &View,
        args: &[Value],
        out: Value,
        index: &Index,
        mask: Option<ExprId>,
    ) -> Result<ExprId, LowerFailure> {
        let operand = self.graph.ty(args[0]).clone();
        let inner: Index = match view {
            View::Reshape => {
                let from = self.graph.ty(out).shape.clone();
                reshape(&mut self.atoms, index, &from, &operand.shape)?.into()
            }
            View::Permute(perm) => {
                let mut inner: Index = index.clone();
                for (i, &p) in perm.iter().enumerate() {
                    inner[p] = index[i].clone();
                }
                inner
            }
            View::Broadcast(dims) => (dims.iter().enumerate())
                .map(|(a, &d)| if operand.shape[a] == 1 { AffineIndex::default() } else { index[d].clone() })
                .collect(),
            View::Slice(start, stride) => {
                (index.iter().enumerate()).map(|(a, i)| i.scale(stride[a] as i64).plus(start[a] as i64)).collect()
            }
            View::Flip(axes) => (index.iter().enumerate())
                .map(|(a, i)| if axes.contains(&a) { i.scale(-1).plus(operand.shape[a] as i64 - 1) } else { i.clone() })
                .collect(),
            View::Pad(low, interior) => return self.pad(low, interior, args, &operand, index, mask),
        };
        self.value(args[0], &inner, mask)
    }

    fn pad(
        &mut self,
        low: &[i64],
        interior: &[usize],
        args: &[Value],
        operand: &Type,
        index: &Index,
        mask: Option<ExprId>,
    ) -> Result<ExprId, LowerFailure> {
        let mut inner = Index::new();
        let mut inside: Option<ExprId> = None;
        for a in 0..index.len() {
            let size = operand.shape[a] as i64;
            let step = interior[a] as i64 + 1;
            let mut i = index[a].plus(-low[a]);
            if step > 1 {
                // Add a multiple of the step so that the dividend is not negative.
                let (lo, _) = self.atoms.range(&i);
                let lift = if lo < 0 { (-lo + step - 1) / step } else { 0 };
                let (q, r) = self.atoms.div_rem(&i.plus(lift * step), step)?;
                i = q.plus(-lift);
                match (r.terms.is_empty(), r.c) {
                    (true, 0) => {}
                    (true, _) => return self.value(args[1], &Index::new(), mask),
                    _ => {
                        let r = self.exprs.index(&self.atoms, r);
                        let zero = self.exprs.constant(Scalar::zero(DType::I64));
                        let hit = self.exprs.compare(Compare::Eq, r, zero);
                        inside = Some(self.and(inside, hit));
                    }
                }
            }
            let (lo, hi) = self.atoms.range(&i);
            if hi < 0 || lo >= size {
                return self.value(args[1], &Index::new(), mask);
            }
            if lo < 0 || hi >= size {
                if let Some(cut) = self.cut(&i, &[0, size]) {
                    return Err(cut.into());
                }
                let ix = self.exprs.index(&self.atoms, i.clone());
                if lo < 0 {
                    let zero = self.exprs.constant(Scalar::zero(DType::I64));
                    let c = self.exprs.compare(Compare::Ge, ix, zero);
                    inside = Some(self.and(inside, c));
                }
                if hi >= size {
                    let end = self.exprs.constant(Scalar::from_i64(DType::I64, size));
                    let c = self.exprs.compare(Compare::Lt, ix, end);
                    inside = Some(self.and(inside, c));
                }
            }
            inner.push(i);
        }
        let Some(inside) = inside else {
            return self.value(args[0], &inner, mask);
        };
        let both = self.and(mask, inside);
        let x = self.value(args[0], &inner, Some(both))?;
        let fill = self.value(args[1], &Index::new(), mask)?;
        Ok(self.exprs.select(inside, x, fill))
    }

    fn concat(
        &mut self,
        axis: usize,
        args: &[Value],
        index: &Index,
        mask: Option<ExprId>,
    ) -> Result<ExprId, LowerFailure> {
        let (lo, hi) = self.atoms.range(&index[axis]);
        let mut bounds = Vec::with_capacity(args.len() + 1);
        let mut at = 0i64;
        for &a in args {
            bounds.push(at);
            at += self.graph.ty(a).shape[axis] as i64;
        }
        bounds.push(at);
        let inner = |k: usize| -> Index {
            let mut i = index.clone();
            i[axis] = i[axis].plus(-bounds[k]);
            i
        };
        if let Some(k) = (0..args.len()).find(|&k| lo >= bounds[k] && hi < bounds[k + 1]) {
            return self.value(args[k], &inner(k), mask);
        }
        if let Some(cut) = self.cut(&index[axis], &bounds[1..args.len()]) {
            return Err(cut.into());
        }
        let ix = self.exprs.index(&self.atoms, index[axis].clone());
        let mut result: Option<ExprId> = None;
        for k in (0..args.len()).rev() {
            if self.graph.ty(args[k]).shape[axis] == 0 {
                continue;
            }
            let start = self.exprs.constant(Scalar::from_i64(DType::I64, bounds[k]));
            let end = self.exprs.constant(Scalar::from_i64(DType::I64, bounds[k + 1]));
            let ge = self.exprs.compare(Compare::Ge, ix, start);
            let lt = self.exprs.compare(Compare::Lt, ix, end);
            let here = self.exprs.binary(Binary::And, ge, lt);
            let both = self.and(mask, here);
            let x = self.value(args[k], &inner(k), Some(both))?;
            result = Some(match result {
                None => x,
                Some(rest) => self.exprs.select(here, x, rest),
            });
        }
        result.ok_or(LowerFailure::NotScalar)
    }

    /// Splits the single variable of a form at the first of `bounds` inside its range.
    fn cut(&self, lin: &AffineIndex, bounds: &[i64]) -> Option<SpaceRefinement> {
        let (var, sign) = self.atoms.single_var(lin)?;
        if self.uncut >> var & 1 == 1 {
            return None;
        }
        let extent = self.atoms.get(lin.terms[0].0).hi + 1;
        bounds.iter().find_map(|&b| {
            // v + c >= b from v = b - c on; c - v < b from v = c - b + 1 on.
            let at = if sign == 1 { b - lin.c } else { lin.c - b + 1 };
            (at > 0 && at < extent).then_some(SpaceRefinement::SplitRange { var, at })
        })
    }

    fn and(&mut self, a: Option<ExprId>, b: ExprId) -> ExprId {
        match a {
            Some(a) if a != b => self.exprs.binary(Binary::And, a, b),
            _ => b,
        }
    }
}

/// The scalar value of a literal whose elements are all equal.
pub(crate) fn uniform(l: &ir::Literal) -> Option<Scalar> {
    let mut items = l.scalars();
    let first = items.next()?;
    items.all(|s| s == first).then_some(first)
}
