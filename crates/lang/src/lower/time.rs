//! Which values of a decoding step can be computed position by position.
//!
//! One step of decoding sees new positions only, the past stands in caches. That gives what the whole sequence would give
//! exactly where every value is of one of these kinds: it has nothing to do with the sequence, or each row along one axis
//! belongs to one position. The primitives that look back (attention, the convolution and the scan of Mamba, rotations,
//! `positions`, `table[0:T]`) keep or shift what they need and say so by [`Lowerer::tag`]; for all other ops the kind of
//! a result follows from its [`Meaning`]. What is neither is *mixed*, and a model whose result is mixed has to run its whole
//! sequence for each new token.
//!
//! Kinds can't be told where the axis of positions has size 1, so a lowering for decoding comes after a trial with
//! more of them ([`TRIALS`]), whose choices it repeats.

use super::frame::Frame;
use super::{Lowerer, fail};
use crate::ast::{BinaryOp, DimExpr, Expr, ExprKind, IndexItem, TypeExpr, TypeKind};
use crate::diagnostic::Code;
use crate::span::Span;
use ir::ops::{Meaning, Op, RaggedMode, View};
use ir::{Graph, Loc, Type, Value};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Positions of a trial: the first number that the model takes. Large primes are no usual sizes of a model.
pub(super) const TRIALS: [usize; 5] = [61, 13, 5, 3, 2];

/// How a value depends on the sequence.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Not at all; along the axes marked here all elements are equal.
    Fixed(Vec<bool>),
    /// Row `t` along the axis belongs to position `t`; or, after `moe_permute` by these choices, to some position.
    Rows(usize, Option<Value>),
    /// Where the rows of each expert begin, after `moe_permute` by these choices.
    Offsets(Value),
    /// On several positions at once, or on how many there are, for this reason.
    Mixed(Rc<str>),
}

impl Kind {
    pub(super) fn rows(axis: usize) -> Kind {
        Kind::Rows(axis, None)
    }

    fn fixed(ty: &Type) -> Kind {
        Kind::Fixed(vec![false; ty.rank()])
    }
}

/// What a trial finds out and a lowering repeats.
#[derive(Clone, Debug, Default)]
pub(super) struct Time {
    trial: bool,
    kinds: Vec<Option<Kind>>,
    /// Nodes whose results have kinds.
    seen: usize,
    /// Whether to count from the position, each time that was a question.
    shifts: VecDeque<bool>,
    /// Why decoding step by step is not the same.
    mixed: Option<Rc<str>>,
}

impl Time {
    pub(super) fn trial() -> Time {
        Time { trial: true, ..Time::default() }
    }

    /// The choices of a trial, to be repeated.
    pub(super) fn repeated(self) -> Time {
        Time { shifts: self.shifts, mixed: self.mixed, ..Time::default() }
    }

    pub(super) fn why_mixed(&self) -> Option<&str> {
        self.mixed.as_deref()
    }
}

impl Lowerer<'_> {
    fn in_trial(&self) -> bool {
        self.time.as_ref().is_some_and(|time| time.trial)
    }

    /// Says what a value is, whatever its op suggests.
    pub(super) fn tag(&mut self, value: Value, kind: Kind) {
        if !self.in_trial() {
            return;
        }
        self.kind(value);
        if let Some(time) = &mut self.time {
            time.kinds[value.0 as usize] = Some(kind);
        }
    }

    /// Says that values depend on more than one position.
    pub(super) fn tag_mixed(&mut self, values: &[Value], what: &str) {
        let reason = self.reason(what);
        values.iter().for_each(|value| self.tag(*value, Kind::Mixed(reason.clone())));
    }

    /// The kind of a value, in a trial.
    pub(super) fn kind(&mut self, value: Value) -> Option<Kind> {
        let time = self.time.as_mut().filter(|time| time.trial)?;
        let graph = &self.b.graph;
        time.kinds.resize(graph.num_values(), None);
        classify(graph, &mut time.kinds, time.seen);
        time.seen = graph.nodes().len();
        time.kinds[value.0 as usize].clone()
    }

    /// Whether each value has its rows along the axis; the first reason why not, where it is one.
    pub(super) fn all_rows(&mut self, values: &[(Value, usize)], what: &str) -> Kind {
        for (value, axis) in values {
            match self.kind(*value) {
                Some(Kind::Rows(found, None)) if found == *axis => {}
                Some(Kind::Mixed(why)) => return Kind::Mixed(why),
                _ => return self.mixed(what),
            }
        }
        Kind::rows(values.first().map_or(0, |(_, axis)| *axis))
    }

    /// Whether something counts positions: decided by a trial, then repeated.
    pub(super) fn shifted(&mut self, decide: impl FnOnce(&mut Self) -> bool) -> bool {
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

    /// Everything depends on the length of the sequence.
    pub(super) fn mix(&mut self, what: &str) {
        let reason = self.reason(what);
        if let Some(time) = self.time.as_mut().filter(|time| time.trial) {
            time.mixed.get_or_insert(reason);
        }
    }

    /// Concludes a trial: the first result is read row by row.
    pub(super) fn conclude(&mut self, outputs: &[Value]) {
        let Some(&first) = outputs.first() else { return };
        let rank = self.b.graph.ty(first).rank();
        let reason = match self.kind(first) {
            Some(Kind::Rows(axis, None)) if axis + 2 == rank => return,
            Some(Kind::Mixed(why)) => why,
            Some(_) => "its first result does not have one row per position".into(),
            None => return,
        };
        if let Some(time) = &mut self.time {
            time.mixed.get_or_insert(reason);
        }
    }

    /// A kind that mixes positions for this reason.
    pub(super) fn mixed(&self, what: &str) -> Kind {
        Kind::Mixed(self.reason(what))
    }

    fn reason(&self, what: &str) -> Rc<str> {
        reason(what, &self.b.loc)
    }

    /// Which names of a type's sizes are numbers of positions.
    pub(super) fn learn_time(&mut self, frame: &mut Frame, ty: &TypeExpr, value: Value) {
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
                Kind::Rows(own, order) if *own == axis => Some(order.is_none()),
                Kind::Mixed(_) => Some(false),
                _ => None,
            };
            if let Some(exact) = counts {
                frame.timed.entry(name.to_string()).and_modify(|old| *old &= exact).or_insert(exact);
            }
        }
    }

    /// The axis of a shape that has a row for each position; none where no size has to do with them.
    pub(super) fn time_axis(&mut self, shape: &Expr, frame: &Frame) -> TimeAxis {
        if !self.in_trial() || !frame.mentions_time(shape) {
            return TimeAxis::None;
        }
        let ExprKind::List(items) = &shape.peel().kind else { return TimeAxis::Unclear };
        let mut axes = (0..items.len()).filter(|&i| frame.mentions_time(&items[i]));
        match (axes.next(), axes.next()) {
            (Some(axis), None) if frame.counts_positions(&items[axis]) => TimeAxis::At(axis),
            _ => TimeAxis::Unclear,
        }
    }

    /// `table[0:T]` on a table that has nothing to do with the sequence, and nothing else chosen.
    pub(super) fn is_row_slice(&mut self, base: Value, items: &[IndexItem], frame: &Frame) -> Option<usize> {
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
        found.filter(|_| matches!(self.kind(base), Some(Kind::Fixed(_))))
    }

    /// A condition that depends on the length of the sequence makes everything depend on it.
    pub(super) fn guard(&mut self, expr: &Expr, frame: &Frame) -> super::Result<bool> {
        if frame.mentions_time(expr) {
            self.at(expr.span);
            self.mix("a condition on the sequence length");
        }
        frame.condition(expr)
    }

    /// Notes that a table is read by position, and so bounds the length of a sequence.
    pub(super) fn bound(&mut self, rows: usize, positions: usize, span: Span) -> super::Result<()> {
        self.longest = Some(self.longest.map_or(rows, |old| old.min(rows)));
        if positions > rows {
            let label = format!("{positions} positions, but the table has {rows} rows");
            return fail(Code::E004, span, "a sequence longer than the table of positions", label);
        }
        Ok(())
    }
}

/// Where a shape has its positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeAxis {
    /// Nowhere.
    None,
    /// Along this axis, and they are all of it.
    At(usize),
    /// In some other way.
    Unclear,
}

impl Frame {
    /// Whether an expression reads a size that follows from the number of positions.
    pub(super) fn mentions_time(&self, expr: &Expr) -> bool {
        if self.timed.is_empty() {
            return false;
        }
        let any = |list: &[Expr]| list.iter().any(|e| self.mentions_time(e));
        match &expr.kind {
            ExprKind::Name(name) => self.timed.contains_key(name),
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

    /// Whether an expression is the number of positions at any length: `T`, `B * T` where `B` is 1.
    pub(super) fn counts_positions(&self, expr: &Expr) -> bool {
        match &expr.peel().kind {
            ExprKind::Name(name) => self.timed.get(name) == Some(&true),
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                let one = |e: &Expr| !self.mentions_time(e) && self.constant(e).is_ok_and(|v| v.as_int() == Some(1));
                (self.counts_positions(a) && one(b)) || (one(a) && self.counts_positions(b))
            }
            _ => false,
        }
    }

    /// A constant that got this expression's value has to do with positions if the expression has.
    pub(super) fn pass_time(&self, expr: &Expr, to: &str, inner: &mut BTreeMap<String, bool>) {
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

/// Gives kinds to the results of all nodes from `from` on that have none.
fn classify(graph: &Graph, kinds: &mut [Option<Kind>], from: usize) {
    for &input in graph.inputs() {
        kinds[input.0 as usize].get_or_insert_with(|| Kind::fixed(graph.ty(input)));
    }
    for node in &graph.nodes()[from..] {
        let args: Vec<(Kind, &Type)> = node
            .args
            .iter()
            .map(|arg| (kinds[arg.0 as usize].clone().unwrap_or(Kind::fixed(graph.ty(*arg))), graph.ty(*arg)))
            .collect();
        let outs: Vec<&Type> = node.outs.iter().map(|out| graph.ty(*out)).collect();
        let found = results(&node.op, &args, &outs).unwrap_or_else(|| {
            let why = Kind::Mixed(reason(&format!("`{}` over several positions", node.op.name()), &node.loc));
            vec![why; outs.len()]
        });
        for (out, kind) in node.outs.iter().zip(found) {
            kinds[out.0 as usize].get_or_insert(kind);
        }
    }
}

/// Kinds of an op's results; none where it mixes rows.
fn results(op: &Op, args: &[(Kind, &Type)], outs: &[&Type]) -> Option<Vec<Kind>> {
    if let Some((mixed, _)) = args.iter().find(|(kind, _)| matches!(kind, Kind::Mixed(_))) {
        return Some(vec![mixed.clone(); outs.len()]);
    }
    let meaning = op.meaning();
    if let Meaning::Inline(body) = &meaning {
        let mut kinds = vec![None; body.num_values()];
        for (&input, (kind, _)) in body.inputs().iter().zip(args) {
            kinds[input.0 as usize] = Some(kind.clone());
        }
        classify(body, &mut kinds, 0);
        return body.outputs().iter().map(|out| kinds[out.0 as usize].clone()).collect();
    }
    if args.iter().all(|(kind, _)| matches!(kind, Kind::Fixed(_))) {
        return Some(outs.iter().map(|out| Kind::Fixed(uniform(op, &meaning, args, out))).collect());
    }
    if let Op::RaggedDot(dot) = op {
        return match args {
            [(Kind::Rows(0, Some(order)), _), (Kind::Fixed(_), _), (Kind::Offsets(own), _)]
                if order == own && dot.mode == RaggedMode::Rows && dot.batch == 0 =>
            {
                Some(vec![Kind::Rows(0, Some(*order))])
            }
            _ => None,
        };
    }
    let rows = args.iter().find_map(|(kind, _)| match kind {
        Kind::Rows(axis, order) => Some((*axis, *order)),
        _ => None,
    });
    let (axis, order) = rows?;
    let same = |at: usize| {
        args.iter().all(|(kind, ty)| match kind {
            Kind::Rows(axis, own) => (*axis, *own) == (at, order),
            Kind::Fixed(uniform) => ty.rank() == 0 || uniform.get(at) == Some(&true),
            _ => false,
        })
    };
    let at = |axis: usize| Some(vec![Kind::Rows(axis, order); outs.len()]);
    let (ty, out) = (args.first()?.1, outs.first()?);
    let first_only = matches!(&args[0].0, Kind::Rows(..)) && args[1..].iter().all(|(k, _)| matches!(k, Kind::Fixed(_)));
    let less = |gone: &[usize]| axis - gone.iter().filter(|&&g| g < axis).count();
    match (&meaning, op) {
        (Meaning::Map(_), _) => {
            if same(axis) {
                at(axis)
            } else {
                None
            }
        }
        (Meaning::Reduce(_, axes), _) => {
            if axes.contains(&axis) {
                None
            } else {
                at(less(axes))
            }
        }
        (Meaning::View(view), _) if first_only => {
            let whole = |to: usize| out.shape.get(to) == Some(&ty.shape[axis]);
            let to = match view {
                View::Reshape => place_of(axis, ty, out)?,
                View::Permute(perm) => perm.iter().position(|&from| from == axis)?,
                View::Broadcast(dims) => dims[axis],
                View::Slice(start, stride) if start[axis] == 0 && stride[axis] == 1 => axis,
                View::Pad(low, interior) if low[axis] == 0 && interior[axis] == 0 => axis,
                View::Flip(axes) if !axes.contains(&axis) => axis,
                _ => return None,
            };
            if whole(to) { at(to) } else { None }
        }
        (Meaning::Contract(dot), _) => {
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
                if let Kind::Rows(axis, own) = &args[side].0 {
                    let place = place(side, *axis)?;
                    if *own != order || found.is_some_and(|other| other != place) {
                        return None;
                    }
                    found = Some(place);
                }
            }
            let to = found?;
            // Rows along a batch axis meet the same row of the other side, which has to have it, or be alike in all.
            let other_fits = |side: usize| match &args[side].0 {
                Kind::Fixed(uniform) => sides[side].0.get(to).is_none_or(|&axis| uniform[axis]),
                Kind::Rows(..) => true,
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
            // A table read by row: the batch of the indices is what is not inside a slice.
            let [(Kind::Fixed(_), _), (Kind::Rows(..), indices)] = args else { return None };
            if axis + 1 >= indices.rank() {
                return None;
            }
            at((0..out.rank()).filter(|a| !gather.dims.offset.contains(a)).nth(axis)?)
        }
        _ => None,
    }
}

/// Where an axis is after a reshape: as many elements before it, as many along it.
fn place_of(axis: usize, from: &Type, to: &Type) -> Option<usize> {
    let before = |ty: &Type, axis: usize| ty.shape[..axis].iter().product::<usize>();
    let wanted = (before(from, axis), from.shape[axis]);
    (0..to.rank()).find(|&a| (before(to, a), to.shape[a]) == wanted)
}

/// Along which axes all elements of a fixed result are equal.
fn uniform(op: &Op, meaning: &Meaning, args: &[(Kind, &Type)], out: &Type) -> Vec<bool> {
    let of = |i: usize| match args.get(i) {
        Some((Kind::Fixed(axes), ty)) => (axes.as_slice(), ty.shape.as_slice()),
        _ => (&[][..], &[][..]),
    };
    let none = vec![false; out.rank()];
    match (meaning, op) {
        (Meaning::Leaf, Op::Iota(iota)) => (0..out.rank()).map(|axis| axis != iota.axis).collect(),
        (Meaning::Map(_), _) => (0..out.rank())
            .map(|axis| (0..args.len()).all(|i| of(i).1.is_empty() || of(i).0.get(axis) == Some(&true)))
            .collect(),
        (Meaning::View(View::Broadcast(dims)), _) => {
            let (axes, shape) = of(0);
            let stays = |axis: usize| dims.iter().position(|&d| d == axis);
            (0..out.rank()).map(|axis| stays(axis).is_none_or(|from| axes[from] || shape[from] == 1)).collect()
        }
        (Meaning::View(View::Permute(perm)), _) => perm.iter().map(|&from| of(0).0[from]).collect(),
        (Meaning::View(View::Reshape), _) => {
            let (axes, shape) = of(0);
            let from = Type::new(out.dtype, shape);
            let mut found = none;
            for axis in (0..shape.len()).filter(|&a| axes[a] && shape[a] > 1) {
                if let Some(to) = place_of(axis, &from, out) {
                    found[to] = true;
                }
            }
            found
        }
        (Meaning::View(View::Slice(..) | View::Flip(_)), _) => of(0).0.to_vec(),
        _ => none,
    }
}
