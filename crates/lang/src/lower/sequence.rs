//! Determines which values of a decode step can be computed per position.
//!
//! A decode step computes only new positions; past ones are in caches. The results equal those of the whole sequence if every
//! value either does not depend on the sequence, or has an axis whose rows belong to one position each. Primitives that use past
//! positions (attention, the convolution and the scan of Mamba, rotary embeddings, `positions`, `table[0:T]`) cache or shift them
//! and set the dependence of their results by `set_dependence`; for all other ops the dependence of a result follows from the
//! op's `Semantics`. All other values are *cross-position*, and a model whose result is cross-position has to recompute the whole
//! sequence for each new token.
//!
//! Axes can't be identified if the number of positions is 1, so a lowering for decoding follows a trial run with more positions
//! ([`TRIALS`]), and repeats its decisions.

use super::frame::ModuleFrame;
use super::{Lowerer, fail};
use crate::ast::{BinaryOp, DimExpr, Expr, ExprKind, IndexItem, TypeExpr, TypeKind};
use crate::diagnostic::Code;
use crate::span::Span;
use ir::ops::{Op, RaggedMode, Semantics, View};
use ir::{Graph, Loc, Type, Value};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Numbers of positions for a trial: the first that the model accepts is used. Large primes are unlikely to equal other sizes.
pub(super) const TRIALS: [usize; 5] = [61, 13, 5, 3, 2];

/// The dependence of a value on the sequence.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SequenceDependence {
    /// Independent; along the marked axes all elements are equal.
    Invariant(Vec<bool>),
    /// Row `t` along the axis belongs to position `t`; or, after `moe_permute` by these choices, to some position.
    PerPosition(usize, Option<Value>),
    /// The start of each expert's rows, after `moe_permute` by these choices.
    Offsets(Value),
    /// Depends on several positions, or on their number, for this reason.
    CrossPosition(Rc<str>),
}

impl SequenceDependence {
    pub(super) fn rows(axis: usize) -> SequenceDependence {
        SequenceDependence::PerPosition(axis, None)
    }

    fn fixed(ty: &Type) -> SequenceDependence {
        SequenceDependence::Invariant(vec![false; ty.rank()])
    }
}

/// The state of a trial run, and its decisions for the actual lowering.
#[derive(Clone, Debug, Default)]
pub(super) struct SequenceAnalysis {
    trial: bool,
    kinds: Vec<Option<SequenceDependence>>,
    /// The number of nodes whose results have been analysed.
    seen: usize,
    /// Whether to offset by the position, for each decision in order.
    shifts: VecDeque<bool>,
    /// Why incremental decoding is not equivalent.
    mixed: Option<Rc<str>>,
}

impl SequenceAnalysis {
    pub(super) fn new_trial() -> SequenceAnalysis {
        SequenceAnalysis { trial: true, ..SequenceAnalysis::default() }
    }

    /// Reuses the decisions of a trial run.
    pub(super) fn replay(self) -> SequenceAnalysis {
        SequenceAnalysis { shifts: self.shifts, mixed: self.mixed, ..SequenceAnalysis::default() }
    }

    pub(super) fn cross_position_reason(&self) -> Option<&str> {
        self.mixed.as_deref()
    }
}

impl Lowerer<'_> {
    fn in_trial(&self) -> bool {
        self.time.as_ref().is_some_and(|time| time.trial)
    }

    /// Sets the dependence of a value, overriding that of its op.
    pub(super) fn set_dependence(&mut self, value: Value, kind: SequenceDependence) {
        if !self.in_trial() {
            return;
        }
        self.kind(value);
        if let Some(time) = &mut self.time {
            time.kinds[value.0 as usize] = Some(kind);
        }
    }

    /// Marks values as dependent on more than one position.
    pub(super) fn set_cross_position(&mut self, values: &[Value], what: &str) {
        let reason = self.reason(what);
        values.iter().for_each(|value| self.set_dependence(*value, SequenceDependence::CrossPosition(reason.clone())));
    }

    /// The dependence of a value, in a trial run.
    pub(super) fn kind(&mut self, value: Value) -> Option<SequenceDependence> {
        let time = self.time.as_mut().filter(|time| time.trial)?;
        let graph = &self.b.graph;
        time.kinds.resize(graph.num_values(), None);
        classify(graph, &mut time.kinds, time.seen);
        time.seen = graph.nodes().len();
        time.kinds[value.0 as usize].clone()
    }

    /// Whether all values have their rows along the given axes; otherwise the first reason why not.
    pub(super) fn all_rows(&mut self, values: &[(Value, usize)], what: &str) -> SequenceDependence {
        for (value, axis) in values {
            match self.kind(*value) {
                Some(SequenceDependence::PerPosition(found, None)) if found == *axis => {}
                Some(SequenceDependence::CrossPosition(why)) => return SequenceDependence::CrossPosition(why),
                _ => return self.mixed(what),
            }
        }
        SequenceDependence::rows(values.first().map_or(0, |(_, axis)| *axis))
    }

    /// Whether an index is offset by the position: decided in a trial run, then repeated.
    pub(super) fn counts_from_position(&mut self, decide: impl FnOnce(&mut Self) -> bool) -> bool {
        if self.position.is_none() || self.time.is_none() {
            return false;
        }
        if self.in_trial() {
            let shift = decide(self);
            self.time.iter_mut().for_each(|time| time.shifts.push_back(shift));
            return shift;
        }
        self.time.as_mut().and_then(|time| time.shifts.pop_front()).unwrap_or(false)
    }

    /// Marks everything as dependent on the sequence length.
    pub(super) fn mark_all_cross_position(&mut self, what: &str) {
        let reason = self.reason(what);
        if let Some(time) = self.time.as_mut().filter(|time| time.trial) {
            time.mixed.get_or_insert(reason);
        }
    }

    /// Finishes a trial run: checks that the first result can be computed per position.
    pub(super) fn check_outputs(&mut self, outputs: &[Value]) {
        let Some(&first) = outputs.first() else { return };
        let rank = self.b.graph.ty(first).rank();
        let reason = match self.kind(first) {
            Some(SequenceDependence::PerPosition(axis, None)) if axis + 2 == rank => return,
            Some(SequenceDependence::CrossPosition(why)) => why,
            Some(_) => "its first result does not have one row per position".into(),
            None => return,
        };
        if let Some(time) = &mut self.time {
            time.mixed.get_or_insert(reason);
        }
    }

    /// A cross-position dependence with this reason.
    pub(super) fn mixed(&self, what: &str) -> SequenceDependence {
        SequenceDependence::CrossPosition(self.reason(what))
    }

    fn reason(&self, what: &str) -> Rc<str> {
        reason(what, &self.b.loc)
    }

    /// Records which sizes in a type are numbers of positions.
    pub(super) fn learn_time(&mut self, frame: &mut ModuleFrame, ty: &TypeExpr, value: Value) {
        if !self.in_trial() {
            return;
        }
        let dims = match &ty.kind {
            TypeKind::Tensor { dims, .. } => dims,
            TypeKind::Optional(inner) => return self.learn_time(frame, inner, value),
            _ => return,
        };
        let rank = self.b.graph.ty(value).rank();
        let Some(kind) = self.kind(value) else { return };
        let (first, dims) = match dims.first() {
            Some(DimExpr::Variadic(_)) => ((rank + 1).saturating_sub(dims.len()), &dims[1..]),
            _ => (0, &dims[..]),
        };
        for (axis, dim) in (first..).zip(dims) {
            let DimExpr::Size(expr) = dim else { continue };
            let Some(name) = expr.as_name() else { continue };
            let counts = match &kind {
                SequenceDependence::PerPosition(own, order) if *own == axis => Some(order.is_none()),
                SequenceDependence::CrossPosition(_) => Some(false),
                _ => None,
            };
            if let Some(exact) = counts {
                frame.position_dependent.entry(name.to_string()).and_modify(|old| *old &= exact).or_insert(exact);
            }
        }
    }

    /// The position axis of a shape; none if no size depends on the number of positions.
    pub(super) fn time_axis(&mut self, shape: &Expr, frame: &ModuleFrame) -> PositionAxis {
        if !self.in_trial() || !frame.mentions_time(shape) {
            return PositionAxis::None;
        }
        let ExprKind::List(items) = &shape.peel().kind else { return PositionAxis::Unknown };
        let mut axes = (0..items.len()).filter(|&i| frame.mentions_time(&items[i]));
        match (axes.next(), axes.next()) {
            (Some(axis), None) if frame.counts_positions(&items[axis]) => PositionAxis::At(axis),
            _ => PositionAxis::Unknown,
        }
    }

    /// The table axis of `table[0:T]`, for a table that is independent of the sequence and no other index.
    pub(super) fn is_row_slice(&mut self, base: Value, items: &[IndexItem], frame: &ModuleFrame) -> Option<usize> {
        let mut found = None;
        for (axis, item) in items.iter().enumerate() {
            let IndexItem::Slice { start, end, .. } = item else { return None };
            let from_zero = start.as_ref().is_none_or(|e| matches!(e.peel().kind, ExprKind::Int(0)));
            match end {
                None if start.is_none() => {}
                Some(end) if from_zero && frame.counts_positions(end) && found.is_none() => found = Some(axis),
                _ => return None,
            }
        }
        found.filter(|_| matches!(self.kind(base), Some(SequenceDependence::Invariant(_))))
    }

    /// A condition that depends on the sequence length makes everything depend on it.
    pub(super) fn guard(&mut self, expr: &Expr, frame: &ModuleFrame) -> super::Result<bool> {
        if frame.mentions_time(expr) {
            self.at(expr.span);
            self.mark_all_cross_position("a condition on the sequence length");
        }
        frame.condition(expr)
    }

    /// Records that a table is indexed by position, which limits the sequence length.
    pub(super) fn limit_positions(&mut self, rows: usize, positions: usize, span: Span) -> super::Result<()> {
        self.max_positions = Some(self.max_positions.map_or(rows, |old| old.min(rows)));
        if positions > rows {
            let label = format!("{positions} positions, but the table has {rows} rows");
            return fail(Code::E004, span, "a sequence longer than the table of positions", label);
        }
        Ok(())
    }
}

/// The position axis of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PositionAxis {
    /// None.
    None,
    /// This axis, which consists of exactly the positions.
    At(usize),
    /// The positions are combined with other sizes.
    Unknown,
}

impl ModuleFrame {
    /// Whether an expression depends on the number of positions.
    pub(super) fn mentions_time(&self, expr: &Expr) -> bool {
        if self.position_dependent.is_empty() {
            return false;
        }
        let any = |list: &[Expr]| list.iter().any(|e| self.mentions_time(e));
        match &expr.kind {
            ExprKind::Name(name) => self.position_dependent.contains_key(name),
            ExprKind::Attr(base, _) | ExprKind::Unary(_, base) | ExprKind::Paren(base) | ExprKind::Spread(base) => {
                self.mentions_time(base)
            }
            ExprKind::Index(base, items) => {
                self.mentions_time(base)
                    || items.iter().any(|item| match item {
                        IndexItem::At(e) => self.mentions_time(e),
                        IndexItem::Slice { start, end, .. } => start.iter().chain(end).any(|e| self.mentions_time(e)),
                    })
            }
            ExprKind::Call(callee, args) => {
                self.mentions_time(callee) || args.iter().any(|arg| self.mentions_time(&arg.value))
            }
            ExprKind::Binary(_, a, b) => self.mentions_time(a) || self.mentions_time(b),
            ExprKind::Compare(first, rest) => {
                self.mentions_time(first) || rest.iter().any(|(_, e)| self.mentions_time(e))
            }
            ExprKind::IfElse { then, condition, otherwise } => {
                [then, condition, otherwise].into_iter().any(|e| self.mentions_time(e))
            }
            ExprKind::Tuple(list) | ExprKind::List(list) => any(list),
            ExprKind::Dict(pairs) => pairs.iter().any(|(a, b)| self.mentions_time(a) || self.mentions_time(b)),
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Str(_)
            | ExprKind::Bool(_)
            | ExprKind::None
            | ExprKind::Placeholder(_)
            | ExprKind::Ellipsis
            | ExprKind::Star => false,
        }
    }

    /// Whether an expression equals the number of positions at any length: `T`, or `B * T` where `B` is 1.
    pub(super) fn counts_positions(&self, expr: &Expr) -> bool {
        match &expr.peel().kind {
            ExprKind::Name(name) => self.position_dependent.get(name) == Some(&true),
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                let one = |e: &Expr| !self.mentions_time(e) && self.constant(e).is_ok_and(|v| v.as_int() == Some(1));
                (self.counts_positions(a) && one(b)) || (one(a) && self.counts_positions(b))
            }
            _ => false,
        }
    }

    /// Records that a constant bound to this expression depends on positions if the expression does.
    pub(super) fn propagate_position_dependence(&self, expr: &Expr, to: &str, inner: &mut BTreeMap<String, bool>) {
        if self.mentions_time(expr) {
            inner.insert(to.to_string(), self.counts_positions(expr));
        }
    }
}

fn reason(what: &str, loc: &Loc) -> Rc<str> {
    match loc {
        Loc::File(place) => format!("{what} ({}:{}:{})", place.0, place.1, place.2).into(),
        _ => what.into(),
    }
}

/// Computes the dependence of the results of all nodes from `from` on that have none yet.
fn classify(graph: &Graph, kinds: &mut [Option<SequenceDependence>], from: usize) {
    for &input in graph.inputs() {
        kinds[input.0 as usize].get_or_insert_with(|| SequenceDependence::fixed(graph.ty(input)));
    }
    for node in &graph.nodes()[from..] {
        let args: Vec<(SequenceDependence, &Type)> = node
            .args
            .iter()
            .map(|arg| {
                (kinds[arg.0 as usize].clone().unwrap_or(SequenceDependence::fixed(graph.ty(*arg))), graph.ty(*arg))
            })
            .collect();
        let outs: Vec<&Type> = node.outs.iter().map(|out| graph.ty(*out)).collect();
        let found = results(&node.op, &args, &outs).unwrap_or_else(|| {
            let why = SequenceDependence::CrossPosition(reason(
                &format!("`{}` over several positions", node.op.name()),
                &node.loc,
            ));
            vec![why; outs.len()]
        });
        for (out, kind) in node.outs.iter().zip(found) {
            kinds[out.0 as usize].get_or_insert(kind);
        }
    }
}

/// The dependence of an op's results; none if it combines rows.
fn results(op: &Op, args: &[(SequenceDependence, &Type)], outs: &[&Type]) -> Option<Vec<SequenceDependence>> {
    if let Some((mixed, _)) = args.iter().find(|(kind, _)| matches!(kind, SequenceDependence::CrossPosition(_))) {
        return Some(vec![mixed.clone(); outs.len()]);
    }
    let meaning = op.semantics();
    if let Semantics::Inline(body) = &meaning {
        let mut kinds = vec![None; body.num_values()];
        for (&input, (kind, _)) in body.inputs().iter().zip(args) {
            kinds[input.0 as usize] = Some(kind.clone());
        }
        classify(body, &mut kinds, 0);
        return body.outputs().iter().map(|out| kinds[out.0 as usize].clone()).collect();
    }
    if args.iter().all(|(kind, _)| matches!(kind, SequenceDependence::Invariant(_))) {
        return Some(outs.iter().map(|out| SequenceDependence::Invariant(uniform(op, &meaning, args, out))).collect());
    }
    if let Op::RaggedDot(dot) = op {
        return match args {
            [
                (SequenceDependence::PerPosition(0, Some(order)), _),
                (SequenceDependence::Invariant(_), _),
                (SequenceDependence::Offsets(own), _),
            ] if order == own && dot.mode == RaggedMode::Rows && dot.batch == 0 => {
                Some(vec![SequenceDependence::PerPosition(0, Some(*order))])
            }
            _ => None,
        };
    }
    let rows = args.iter().find_map(|(kind, _)| match kind {
        SequenceDependence::PerPosition(axis, order) => Some((*axis, *order)),
        _ => None,
    });
    let (axis, order) = rows?;
    let same = |at: usize| {
        args.iter().all(|(kind, ty)| match kind {
            SequenceDependence::PerPosition(axis, own) => (*axis, *own) == (at, order),
            SequenceDependence::Invariant(uniform) => ty.rank() == 0 || uniform.get(at) == Some(&true),
            _ => false,
        })
    };
    let at = |axis: usize| Some(vec![SequenceDependence::PerPosition(axis, order); outs.len()]);
    let (ty, out) = (args.first()?.1, outs.first()?);
    let first_only = matches!(&args[0].0, SequenceDependence::PerPosition(..))
        && args[1..].iter().all(|(k, _)| matches!(k, SequenceDependence::Invariant(_)));
    let less = |gone: &[usize]| axis - gone.iter().filter(|&&g| g < axis).count();
    match (&meaning, op) {
        (Semantics::Elementwise(_), _) => {
            if same(axis) {
                at(axis)
            } else {
                None
            }
        }
        (Semantics::Reduce(_, axes), _) => {
            if axes.contains(&axis) {
                None
            } else {
                at(less(axes))
            }
        }
        (Semantics::View(view), _) if first_only => {
            let whole = |to: usize| out.shape.get(to) == Some(&ty.shape[axis]);
            let to = match view {
                View::Reshape => axis_after_reshape(axis, ty, out)?,
                View::Permute(perm) => perm.iter().position(|&from| from == axis)?,
                View::Broadcast(dims) => dims[axis],
                View::Slice(start, stride) if start[axis] == 0 && stride[axis] == 1 => axis,
                View::Pad(low, interior) if low[axis] == 0 && interior[axis] == 0 => axis,
                View::Flip(axes) if !axes.contains(&axis) => axis,
                _ => return None,
            };
            if whole(to) { at(to) } else { None }
        }
        (Semantics::DotGeneral(dot), _) => {
            let sides = [(&dot.lhs_batch, &dot.lhs_contract), (&dot.rhs_batch, &dot.rhs_contract)];
            let place = |side: usize, axis: usize| -> Option<usize> {
                let (batch, contract) = sides[side];
                if let Some(i) = batch.iter().position(|&b| b == axis) {
                    return Some(i);
                }
                if contract.contains(&axis) {
                    return None;
                }
                let free = |side: usize| {
                    let (batch, contract) = sides[side];
                    let rank = args[side].1.rank();
                    (0..rank).filter(|a| !batch.contains(a) && !contract.contains(a)).collect::<Vec<_>>()
                };
                let before = if side == 0 { batch.len() } else { batch.len() + free(0).len() };
                Some(before + free(side).iter().position(|&a| a == axis)?)
            };
            let mut found = None;
            for side in 0..2 {
                if let SequenceDependence::PerPosition(axis, own) = &args[side].0 {
                    let place = place(side, *axis)?;
                    if *own != order || found.is_some_and(|other| other != place) {
                        return None;
                    }
                    found = Some(place);
                }
            }
            let to = found?;
            // Rows along a batch axis are multiplied with the same row of the other operand, which
            // must have that axis or be constant along it.
            let other_fits = |side: usize| match &args[side].0 {
                SequenceDependence::Invariant(uniform) => sides[side].0.get(to).is_none_or(|&axis| uniform[axis]),
                SequenceDependence::PerPosition(..) => true,
                _ => false,
            };
            if other_fits(0) && other_fits(1) { at(to) } else { None }
        }
        (_, Op::Concat(concat)) => {
            if concat.axis != axis && same(axis) {
                at(axis)
            } else {
                None
            }
        }
        (_, Op::TopK(top)) => {
            if top.axis != axis && same(axis) {
                at(axis)
            } else {
                None
            }
        }
        (_, Op::Sort(sort)) => {
            if sort.axis != axis && same(axis) {
                at(axis)
            } else {
                None
            }
        }
        (_, Op::Cumulative(sum)) => {
            if sum.axis != axis && same(axis) {
                at(axis)
            } else {
                None
            }
        }
        (_, Op::ArgReduce(arg)) => {
            if arg.axis != axis && same(axis) {
                at(less(&[arg.axis]))
            } else {
                None
            }
        }
        (_, Op::TakeAlong(take)) => {
            if take.axis != axis && same(axis) {
                at(axis)
            } else {
                None
            }
        }
        (_, Op::Gather(gather)) => {
            // A lookup by row: the batch axes of the indices are those outside of slices.
            let [(SequenceDependence::Invariant(_), _), (SequenceDependence::PerPosition(..), indices)] = args else {
                return None;
            };
            if axis + 1 >= indices.rank() {
                return None;
            }
            at((0..out.rank()).filter(|a| !gather.dims.offset.contains(a)).nth(axis)?)
        }
        _ => None,
    }
}

/// The position of an axis after a reshape: with as many elements before it and as many along it.
fn axis_after_reshape(axis: usize, from: &Type, to: &Type) -> Option<usize> {
    let before = |ty: &Type, axis: usize| ty.shape[..axis].iter().product::<usize>();
    let wanted = (before(from, axis), from.shape[axis]);
    (0..to.rank()).find(|&a| (before(to, a), to.shape[a]) == wanted)
}

/// The axes along which all elements of an independent result are equal.
fn uniform(op: &Op, meaning: &Semantics, args: &[(SequenceDependence, &Type)], out: &Type) -> Vec<bool> {
    let of = |i: usize| match args.get(i) {
        Some((SequenceDependence::Invariant(axes), ty)) => (axes.as_slice(), ty.shape.as_slice()),
        _ => (&[][..], &[][..]),
    };
    let none = vec![false; out.rank()];
    match (meaning, op) {
        (Semantics::Constant, Op::Iota(iota)) => (0..out.rank()).map(|axis| axis != iota.axis).collect(),
        (Semantics::Elementwise(_), _) => (0..out.rank())
            .map(|axis| (0..args.len()).all(|i| of(i).1.is_empty() || of(i).0.get(axis) == Some(&true)))
            .collect(),
        (Semantics::View(View::Broadcast(dims)), _) => {
            let (axes, shape) = of(0);
            let stays = |axis: usize| dims.iter().position(|&d| d == axis);
            (0..out.rank()).map(|axis| stays(axis).is_none_or(|from| axes[from] || shape[from] == 1)).collect()
        }
        (Semantics::View(View::Permute(perm)), _) => perm.iter().map(|&from| of(0).0[from]).collect(),
        (Semantics::View(View::Reshape), _) => {
            let (axes, shape) = of(0);
            let from = Type::new(out.dtype, shape);
            let mut found = none;
            for axis in (0..shape.len()).filter(|&a| axes[a] && shape[a] > 1) {
                if let Some(to) = axis_after_reshape(axis, &from, out) {
                    found[to] = true;
                }
            }
            found
        }
        (Semantics::View(View::Slice(..) | View::Flip(_)), _) => of(0).0.to_vec(),
        _ => none,
    }
}
