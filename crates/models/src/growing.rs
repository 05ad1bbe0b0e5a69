//! Converts a causal graph over whole sequences to a decode step that adds one row.
//!
//! Of everything that depends on the token IDs, only the new row is computed. Causal attention among rows keeps keys and values
//! in KV caches, with as many rows as the graph; cross-attention and all values that are independent of the token IDs are
//! unchanged: of those that have a row for each position (position tables, distances to keys) the current row is taken.
//!
//! The results must not depend on the number of rows: the same model lowered for two rows shows which sizes and constants depend
//! on it. Sizes may, if no reduction covers them; a constant that depends on it is known only at the end of the sequence.

use crate::error::Result;
use ir::attr::Attr;
use ir::ops::{Composite, Op, Semantics, View};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Node, Shape, Type, Value, composites};
use std::collections::BTreeMap;

/// A decode step. Its inputs are those of the graph, including the token IDs, then the position, then the caches; its outputs are
/// the row of the graph's first result, then the caches.
pub(crate) struct Growing {
    pub(crate) graph: Graph,
    pub(crate) caches: usize,
}

/// The counterpart in the step of a value of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tracked {
    /// The unchanged value: it is independent of the token IDs.
    Whole(Value),
    /// The new row of the value along this axis.
    Row(Value, usize),
}

/// Converts a graph whose input `ids` is `[1, rows]`, where `short`'s is `[1, 2]`; returns none if a row depends on later rows,
/// on the number of rows, or if the dependence is unknown.
pub(crate) fn growing(graph: &Graph, short: &Graph, ids: usize) -> Result<Option<Growing>> {
    let mut b = Builder::new();
    let rows = |graph: &Graph| graph.ty(graph.inputs()[ids]).shape[1];
    let (rows, few) = (rows(graph), rows(short));
    if rows <= few {
        return Ok(None);
    }
    let mut have = BTreeMap::new();
    for (i, &input) in graph.inputs().iter().enumerate() {
        let mut ty = graph.ty(input).clone();
        let found = if i == ids {
            ty.shape[1] = 1;
            Tracked::Row(b.graph.input(ty), 1)
        } else {
            Tracked::Whole(b.graph.input(ty))
        };
        have.insert(input, found);
    }
    let position = b.graph.input(Type::new(DType::I32, &[]));
    let mut step = Step { b, rows, few, position, caches: Vec::new() };
    if step.walk(graph, short, &mut have)?.is_none() {
        return Ok(None);
    }
    let first = graph.outputs().first().and_then(|out| have.get(out));
    let Some(&Tracked::Row(row, 1)) = first else { return Ok(None) };
    let outs: Vec<Value> = std::iter::once(row).chain(step.caches.iter().copied()).collect();
    Ok(Some(Growing { graph: step.b.finish(&outs).without_dead_nodes(), caches: step.caches.len() }))
}

struct Step {
    b: Builder,
    rows: usize,
    /// The number of rows of the other graph.
    few: usize,
    position: Value,
    /// Caches after the new row was written.
    caches: Vec<Value>,
}

impl Step {
    /// Computes the counterpart of every live value of a graph; none if there is none.
    fn walk(&mut self, graph: &Graph, short: &Graph, have: &mut BTreeMap<Value, Tracked>) -> Result<Option<()>> {
        let live = graph.live_values();
        if graph.nodes().len() != short.nodes().len() {
            return Ok(None);
        }
        for (node, other) in graph.nodes().iter().zip(short.nodes()) {
            if !node.outs.iter().any(|out| live[out.0 as usize]) {
                continue;
            }
            if node.args != other.args || node.outs != other.outs || !self.alike(&node.op, &other.op) {
                return Ok(None);
            }
            let Some(args) = node.args.iter().map(|arg| have.get(arg).copied()).collect::<Option<Vec<Tracked>>>()
            else {
                return Ok(None);
            };
            self.b.loc = node.loc.clone();
            let outs = if args.iter().all(|arg| matches!(arg, Tracked::Whole(_))) {
                let long = node.args.iter().chain(&node.outs).any(|v| graph.ty(*v) != short.ty(*v));
                self.whole(node, other, &args, long)?
            } else {
                self.node(graph, node, other, &args)?
            };
            let Some(outs) = outs else { return Ok(None) };
            have.extend(node.outs.iter().copied().zip(outs));
        }
        Ok(Some(()))
    }

    /// An op that is independent of the token IDs; `long` if a size depends on the number of rows.
    fn whole(&mut self, node: &Node, other: &Node, args: &[Tracked], long: bool) -> Result<Option<Vec<Tracked>>> {
        let row_by_row = match node.op.semantics() {
            Semantics::Elementwise(_) | Semantics::Constant => true,
            Semantics::View(view) => !matches!(view, View::Flip(_) | View::Pad(..)),
            Semantics::Inline(_) if long => return self.inside(node, other, args),
            _ => matches!(node.op, Op::Iota(_) | Op::Gather(_) | Op::Concat(_)),
        };
        if long && !row_by_row {
            return Ok(None);
        }
        let args: Vec<Value> = args.iter().map(|(Tracked::Whole(x) | Tracked::Row(x, _))| *x).collect();
        Ok(Some(self.b.emit(node.op.clone(), &args)?.iter().map(|out| Tracked::Whole(*out)).collect()))
    }

    /// An op with a body graph.
    fn inside(&mut self, node: &Node, other: &Node, args: &[Tracked]) -> Result<Option<Vec<Tracked>>> {
        let (Semantics::Inline(body), Semantics::Inline(short)) = (node.op.semantics(), other.op.semantics()) else {
            return Ok(None);
        };
        let mut inner: BTreeMap<Value, Tracked> = body.inputs().iter().copied().zip(args.iter().copied()).collect();
        if self.walk(&body, &short, &mut inner)?.is_none() {
            return Ok(None);
        }
        Ok(body.outputs().iter().map(|out| inner.get(out).copied()).collect())
    }

    /// Whether two ops differ only in sizes that are numbers of rows.
    fn alike(&self, op: &Op, other: &Op) -> bool {
        if op == other {
            return true;
        }
        match (op, other) {
            (Op::Const(a), Op::Const(b)) => begin_alike(&a.0, &b.0),
            (Op::Composite(a), Op::Composite(b)) => a.name == b.name && a.params == b.params,
            _ if matches!(op.semantics(), Semantics::Inline(_)) => op.name() == other.name(),
            _ => {
                let (a, b) = (format!("{op:?}"), format!("{other:?}"));
                let (a, b) = (pieces(&a), pieces(&b));
                let rows = |text: &str, rows: usize| text.parse::<usize>().ok() == Some(rows);
                a.len() == b.len() && a.iter().zip(&b).all(|(x, y)| x == y || rows(x, self.rows) && rows(y, self.few))
            }
        }
    }

    fn node(&mut self, graph: &Graph, node: &Node, other: &Node, args: &[Tracked]) -> Result<Option<Vec<Tracked>>> {
        if let Op::Composite(composite) = &node.op
            && composite.name == "attention"
        {
            return self.attention(composite, args);
        }
        let meaning = node.op.semantics();
        if let Semantics::Inline(_) = &meaning {
            return self.inside(node, other, args);
        }
        let Some(axis) = args.iter().find_map(|arg| if let Tracked::Row(_, axis) = arg { Some(*axis) } else { None })
        else {
            return Ok(None);
        };
        let types: Vec<&Type> = node.args.iter().map(|arg| graph.ty(*arg)).collect();
        let out = graph.ty(node.outs[0]);
        let mut shape = out.shape.clone();
        let found = match (&meaning, &node.op) {
            (Semantics::Elementwise(_), op) => {
                let Some(args) = self.aligned(args, &types, axis)? else { return Ok(None) };
                (self.b.one(op.clone(), &args)?, axis)
            }
            (Semantics::Reduce(_, axes), op) if !axes.contains(&axis) => {
                let Tracked::Row(x, _) = args[0] else { return Ok(None) };
                (self.b.one(op.clone(), &[x])?, axis - axes.iter().filter(|gone| **gone < axis).count())
            }
            (Semantics::View(view), op) => {
                let Tracked::Row(x, _) = args[0] else { return Ok(None) };
                let to = match view {
                    View::Reshape => place_of(axis, types[0], out),
                    View::Permute(perm) => perm.iter().position(|from| *from == axis),
                    View::Broadcast(dims) => Some(dims[axis]),
                    View::Slice(..) | View::Flip(_) => Some(axis),
                    View::Pad(..) => None,
                };
                let Some(to) = to.filter(|to| shape[*to] == self.rows) else { return Ok(None) };
                shape[to] = 1;
                let x = match (view, op) {
                    (View::Reshape, _) => self.b.reshape(x, &shape)?,
                    (View::Broadcast(dims), _) => self.b.broadcast(x, &shape, dims)?,
                    (View::Slice(start, stride), Op::Slice(slice)) if start[axis] == 0 && stride[axis] == 1 => {
                        let mut limit = slice.limit.clone();
                        limit[axis] = 1;
                        self.b.slice(x, start, &limit, stride)?
                    }
                    (View::Permute(_), op) => self.b.one(op.clone(), &[x])?,
                    (View::Flip(axes), op) if !axes.contains(&axis) => self.b.one(op.clone(), &[x])?,
                    _ => return Ok(None),
                };
                (x, to)
            }
            (Semantics::DotGeneral(dot), op) => {
                // A free axis of one operand.
                let (side, x) = match args {
                    [Tracked::Row(x, _), Tracked::Whole(w)] => (0, [*x, *w]),
                    [Tracked::Whole(w), Tracked::Row(x, _)] => (1, [*w, *x]),
                    _ => return Ok(None),
                };
                let sides = [(&dot.lhs_batch, &dot.lhs_contract), (&dot.rhs_batch, &dot.rhs_contract)];
                let free = |side: usize| -> Vec<usize> {
                    let (batch, contract) = sides[side];
                    (0..types[side].rank()).filter(|a| !batch.contains(a) && !contract.contains(a)).collect()
                };
                let Some(at) = free(side).iter().position(|a| *a == axis) else { return Ok(None) };
                let before = dot.lhs_batch.len() + if side == 1 { free(0).len() } else { 0 };
                (self.b.one(op.clone(), &x)?, before + at)
            }
            (_, Op::Concat(concat)) if concat.axis != axis => {
                let Some(args) = self.aligned(args, &types, axis)? else { return Ok(None) };
                (self.b.one(node.op.clone(), &args)?, axis)
            }
            (_, Op::Gather(gather)) => {
                // An embedding lookup.
                let [Tracked::Whole(table), Tracked::Row(indices, _)] = *args else { return Ok(None) };
                let mut free = (0..out.rank()).filter(|a| !gather.dims.offset.contains(a));
                let Some(to) = free.nth(axis).filter(|_| axis + 1 < types[1].rank()) else { return Ok(None) };
                (self.b.one(node.op.clone(), &[table, indices])?, to)
            }
            _ => return Ok(None),
        };
        let (value, axis) = found;
        let expected = out.shape.iter().enumerate().map(|(i, n)| if i == axis { 1 } else { *n }).collect::<Shape>();
        let fits = node.outs.len() == 1 && self.b.ty(value).shape == expected && out.shape[axis] == self.rows;
        Ok(fits.then(|| vec![Tracked::Row(value, axis)]))
    }

    /// The new row of every operand: that of tracked rows along this axis, or a row sliced from an unchanged operand.
    fn aligned(&mut self, args: &[Tracked], types: &[&Type], axis: usize) -> Result<Option<Vec<Value>>> {
        let mut found = Vec::new();
        for (arg, ty) in args.iter().zip(types) {
            found.push(match *arg {
                Tracked::Row(x, own) if own == axis => x,
                Tracked::Whole(x) if ty.rank() == 0 => x,
                Tracked::Whole(x) if ty.shape.get(axis) == Some(&self.rows) => self.chosen(x, axis)?,
                _ => return Ok(None),
            });
        }
        Ok(Some(found))
    }

    /// Slices an unchanged value at the position.
    fn chosen(&mut self, x: Value, axis: usize) -> Result<Value> {
        let mut sizes = self.b.ty(x).shape;
        sizes[axis] = 1;
        let zero = self.b.scalar(DType::I32, 0.0)?;
        let starts: Vec<Value> = (0..sizes.len()).map(|a| if a == axis { self.position } else { zero }).collect();
        Ok(self.b.dynamic_slice(x, &starts, &sizes)?)
    }

    /// Attention of the new row: causal attention to cached rows, or cross-attention.
    fn attention(&mut self, composite: &Composite, args: &[Tracked]) -> Result<Option<Vec<Tracked>>> {
        let (qkv, further) = args.split_at(3);
        let mut params = composite.params.clone();
        if ["q_offset", "lengths", "segments"].iter().any(|name| composite.flag(name)) {
            return Ok(None);
        }
        let mut operands = match *qkv {
            [Tracked::Row(q, 2), Tracked::Row(k, 2), Tracked::Row(v, 2)] if composite.flag("causal") => {
                let (k, v) = (self.append(k)?, self.append(v)?);
                params.extend(["q_offset", "lengths"].map(|name| (name.to_string(), Attr::Bool(true))));
                vec![q, k, v, self.position, self.b.offset(self.position, 1.0)?]
            }
            [Tracked::Row(q, 2), Tracked::Whole(k), Tracked::Whole(v)]
                if !composite.flag("causal") && composite.param("window").is_none() && !composite.flag("slopes") =>
            {
                vec![q, k, v]
            }
            _ => return Ok(None),
        };
        for (i, operand) in further.iter().enumerate() {
            let Tracked::Whole(mut x) = *operand else { return Ok(None) };
            // The mask comes last, with an axis of queries before that of keys.
            if i + 1 == further.len() && composite.param("mask").is_some() {
                let ty = self.b.ty(x);
                let queries = ty.rank() - 2;
                if ty.shape[queries] != 1 {
                    x = self.chosen(x, queries)?;
                }
            }
            operands.push(x);
        }
        let types: Vec<Type> = operands.iter().map(|x| self.b.ty(*x)).collect();
        let built = composites::build("attention", &params, &types)?;
        Ok(Some(self.b.emit(built.into(), &operands)?.iter().map(|out| Tracked::Row(*out, 2)).collect()))
    }

    /// A cache of `[B, H, rows, D]` into which the new row is written at the position.
    fn append(&mut self, x: Value) -> Result<Value> {
        let mut ty = self.b.ty(x);
        ty.shape[2] = self.rows;
        let cache = self.b.graph.input(ty);
        let zero = self.b.scalar(DType::I32, 0.0)?;
        let filled = self.b.dynamic_update_slice(cache, x, &[zero, zero, self.position, zero])?;
        self.caches.push(filled);
        Ok(filled)
    }
}

/// The position of an axis after a reshape: with as many elements before it and as many along it.
fn place_of(axis: usize, from: &Type, to: &Type) -> Option<usize> {
    let before = |ty: &Type, axis: usize| ty.shape[..axis].iter().product::<usize>();
    let wanted = (before(from, axis), from.shape[axis]);
    (0..to.rank()).find(|a| (before(to, *a), to.shape[*a]) == wanted)
}

/// Splits a text into numbers and the parts between them.
fn pieces(text: &str) -> Vec<&str> {
    let number = |c: char| c.is_ascii_digit() || c == '.';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| number(c) != number(first)).unwrap_or(rest.len());
        found.push(&rest[..end]);
        rest = &rest[end..];
    }
    found
}

/// Whether two constants are equal in their common prefix.
fn begin_alike(a: &Literal, b: &Literal) -> bool {
    let (x, y) = (&a.ty().shape, &b.ty().shape);
    if a.ty().dtype != b.ty().dtype || x.len() != y.len() {
        return false;
    }
    let common: Vec<usize> = x.iter().zip(y).map(|(m, n)| *m.min(n)).collect();
    let place = |shape: &[usize], mut i: usize| {
        let (mut at, mut stride) = (0, 1);
        for (size, n) in shape.iter().zip(&common).rev() {
            at += i % n * stride;
            (i, stride) = (i / n, stride * size);
        }
        at
    };
    (0..common.iter().product()).all(|i| a.get(place(x, i)) == b.get(place(y, i)))
}
