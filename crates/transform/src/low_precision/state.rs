//! Makes the state of roundings explicit: the histories of delayed scaling and the key of stochastic rounding become inputs.
//!
//! The gradient of a history is its next value, not a derivative: the caller that differentiates a step replaces the old history
//! with it. So the histories of forward and of backward tensors are outputs of one differentiation, through calls,
//! rematerialized bodies and scans, in which each iteration has its own history.

use super::rounding::{ExtraOperand, ROUNDED, ROUNDED_GRADIENT, Rounding, cotangent, operand};
use super::{is_library, subgraphs};
use ir::ops::{Call, Composite, Remat, Scan};
use ir::{Binary, Builder, DType, Graph, GraphBuilder, Node, Op, Result, Type, Value, Values};
use std::sync::Arc;

/// A graph with explicit rounding state.
#[derive(Clone, Debug)]
pub struct Stateful {
    /// The graph of the inputs, the histories, and the key if there is one.
    pub graph: Graph,
    /// The types of the histories: `[scale, steps since the last update, largest magnitudes..]`, initially zero; in a scan one
    /// per iteration.
    pub amax_histories: Vec<Type>,
    /// Whether the last input is a key, `u32[2]`, which should differ in every run.
    pub needs_rng: bool,
}

/// Adds histories and a key to the roundings that need them. `key` is an input that already is a key; it becomes the last input.
pub fn with_state(graph: &Graph, key: Option<usize>) -> Result<Stateful> {
    if !needs_state(graph) {
        return Ok(Stateful { graph: graph.clone(), amax_histories: Vec::new(), needs_rng: key.is_some() });
    }
    let mut b = Builder::new();
    let args: Vec<Value> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let mut streams = 0;
    let mut more = AddedInputs { key: key.and_then(|i| args.get(i).copied()), ..AddedInputs::default() };
    let outs = inline(&mut b, graph, &args, &mut more, &mut streams)?;
    let made = b.finish(&outs);
    let last: Vec<Value> = more.states.iter().map(|(v, _)| *v).chain(more.key).collect();
    let others = made.inputs().iter().copied().filter(|v| !last.contains(v));
    let order: Vec<Value> = others.chain(last.iter().copied()).collect();
    let mut b = Builder::new();
    let fresh: Vec<(Value, Value)> = order.iter().map(|v| (*v, b.graph.input(made.ty(*v).clone()))).collect();
    let args: Vec<Value> =
        made.inputs().iter().filter_map(|v| fresh.iter().find(|(old, _)| old == v).map(|(_, new)| *new)).collect();
    let outs = b.inline(&made, &args)?;
    let states = more.states.into_iter().map(|(_, ty)| ty).collect();
    Ok(Stateful { graph: b.finish(&outs), amax_histories: states, needs_rng: more.key.is_some() })
}

/// Whether a graph contains a rounding that needs state.
fn needs_state(graph: &Graph) -> bool {
    graph
        .nodes()
        .iter()
        .any(|node| stateful_rounding(&node.op).is_some() || subgraphs(&node.op).into_iter().any(needs_state))
}

/// The rounding of a composite that needs state, and whether it rounds the cotangent.
fn stateful_rounding(op: &Op) -> Option<(Rounding, bool)> {
    let Op::Composite(c) = op else { return None };
    let of_cotangent = c.name == ROUNDED_GRADIENT;
    let how = Some(c).filter(|c| c.name == ROUNDED || of_cotangent).and_then(|c| Rounding::of(c))?;
    let has = c.body.inputs().len() > 1;
    (!has && (how.delayed_scaling.is_some() || how.stochastic)).then_some((how, of_cotangent))
}

/// The inputs that were added to the current graph.
#[derive(Default)]
struct AddedInputs {
    states: Vec<(Value, Type)>,
    key: Option<Value>,
}

impl AddedInputs {
    fn state(&mut self, b: &mut Builder, ty: Type) -> Value {
        let value = b.graph.input(ty.clone());
        self.states.push((value, ty));
        value
    }

    fn key(&mut self, b: &mut Builder) -> Value {
        *self.key.get_or_insert_with(|| b.graph.input(ExtraOperand::Key(0).ty()))
    }
}

fn inline(
    b: &mut Builder,
    graph: &Graph,
    args: &[Value],
    more: &mut AddedInputs,
    streams: &mut u32,
) -> Result<Vec<Value>> {
    graph.inline_with(args, |node, operands| {
        b.loc = node.loc.clone();
        node_into(b, node, operands, more, streams)
    })
}

fn node_into(
    b: &mut Builder,
    node: &Node,
    args: &[Value],
    more: &mut AddedInputs,
    streams: &mut u32,
) -> Result<Values> {
    if let Some((how, of_cotangent)) = stateful_rounding(&node.op) {
        let (mut further, mut operands) = (Vec::new(), args.to_vec());
        if let Some(delay) = how.delayed_scaling {
            let kind = ExtraOperand::State(delay.history);
            further.push(kind);
            operands.push(more.state(b, kind.ty()));
        }
        if how.stochastic {
            further.push(ExtraOperand::Key(*streams));
            *streams += 1;
            operands.push(more.key(b));
        }
        let ty = b.ty(args[0]);
        let make: fn(&Type, &Rounding, &[ExtraOperand]) -> Result<Composite> =
            if of_cotangent { cotangent } else { operand };
        return b.emit(make(&ty, &how, &further)?.into(), &operands);
    }
    if !subgraphs(&node.op).into_iter().any(needs_state) {
        return b.emit(node.op.clone(), args);
    }
    match &node.op {
        // The composite's own derivative would ignore the state.
        Op::Composite(c) if !is_library(c) => Ok(Values::from_vec(inline(b, &c.body, args, more, streams)?)),
        Op::Call(c) => {
            let (body, further) = inside(b, &c.body, more, streams)?;
            b.emit(Call::new(body).into(), &[args, &further].concat())
        }
        Op::Remat(r) => {
            let (body, further) = inside(b, &r.body, more, streams)?;
            b.emit(Remat::with_policy(body, r.policy.clone()).into(), &[args, &further].concat())
        }
        Op::Scan(s) => scan(b, s, args, more, streams),
        op => b.emit(op.clone(), args),
    }
}

/// Rewrites a body: its states and key become additional inputs, states first; returns the operands for them.
fn inside(b: &mut Builder, body: &Graph, more: &mut AddedInputs, streams: &mut u32) -> Result<(Graph, Vec<Value>)> {
    let (graph, states, keyed) = opened(body, streams)?;
    let mut further: Vec<Value> = states.into_iter().map(|ty| more.state(b, ty)).collect();
    if keyed {
        further.push(more.key(b));
    }
    Ok((graph, further))
}

fn opened(body: &Graph, streams: &mut u32) -> Result<(Graph, Vec<Type>, bool)> {
    // The key must follow the states, whose number is not yet known: one pass finds them, then `with_state` orders the inputs.
    let mut b = Builder::new();
    let args: Vec<Value> = body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let mut more = AddedInputs::default();
    let outs = inline(&mut b, body, &args, &mut more, streams)?;
    let made = b.finish(&outs);
    let order: Vec<Value> = args.iter().copied().chain(more.states.iter().map(|(v, _)| *v)).chain(more.key).collect();
    let mut b = Builder::new();
    let fresh: Vec<(Value, Value)> = order.iter().map(|v| (*v, b.graph.input(made.ty(*v).clone()))).collect();
    let given: Vec<Value> =
        made.inputs().iter().filter_map(|v| fresh.iter().find(|(old, _)| old == v).map(|(_, new)| *new)).collect();
    let outs = b.inline(&made, &given)?;
    Ok((b.finish(&outs), more.states.into_iter().map(|(_, ty)| ty).collect(), more.key.is_some()))
}

/// Each iteration has its own states and key: slices of the operands.
fn scan(b: &mut Builder, s: &Scan, args: &[Value], more: &mut AddedInputs, streams: &mut u32) -> Result<Values> {
    let (body, states, keyed) = opened(&s.body, streams)?;
    let mut operands = args.to_vec();
    operands.extend(states.into_iter().map(|ty| more.state(b, ty.batched(s.length))));
    if keyed {
        let key = more.key(b);
        let rows = b.broadcast(key, &[s.length, 2], &[1])?;
        let (count, second) = (b.iota(DType::U32, &[s.length, 2], 0)?, b.iota(DType::U32, &[s.length, 2], 1)?);
        let count = b.offset(count, 1.0)?;
        let count = b.mul(count, second)?;
        operands.push(b.binary(Binary::Add, rows, count)?);
    }
    b.emit(Scan { body: Arc::new(body), ..s.clone() }.into(), &operands)
}
