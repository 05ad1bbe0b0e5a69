//! A module and its loss as a graph that can be trained: parameters and buffers are inputs, by name.

use crate::nn::Module;
use crate::{DType, Error, Result, Tensor, Tree, Type, record, trace};
use ir::{Builder, Graph, GraphBuilder, Value};
use train::step::key_type;
use train::{LossGraph, ParamOptions};

/// What a step needs of a module.
pub(super) struct Traced {
    pub(super) objective: LossGraph,
    /// Parameters with their names, in the order of inputs.
    pub(super) params: Vec<(String, Tensor)>,
    /// Tensors that a step changes without a gradient, such as running means.
    pub(super) buffers: Vec<(String, Tensor)>,
    /// What is only read.
    pub(super) fixed: Vec<Tensor>,
    /// Types of a batch's tensors.
    pub(super) batch: Vec<Type>,
}

/// Whether two handles are one tensor.
fn same(a: &Tensor, b: &Tensor) -> bool {
    a.is_same(b) || a.base_id().is_some() && a.base_id() == b.base_id() && a.ty() == b.ty()
}

/// A recorded loss: inputs are parameters, buffers, the batch, a key, then what was captured; outputs are the loss and all buffers.
struct Recorded {
    graph: Graph,
    captures: Vec<Tensor>,
}

fn record<M: Module + Tree, B: Tree>(
    module: &M,
    own: &[Tensor],
    buffers: usize,
    batch: &B,
    training: bool,
    loss: &impl Fn(&M, B) -> Tensor,
) -> Result<Recorded> {
    let given = batch.leaves();
    let types = own.iter().chain(&given).map(|t| t.ty().clone()).chain([key_type()]);
    let types: Vec<Type> = types.collect();
    let traced = trace::trace(&types, |inputs| {
        let (own_inputs, rest) = inputs.split_at(own.len());
        let (batch_inputs, key) = rest.split_at(given.len());
        let inside = module.map(|leaf| {
            let at = own.iter().position(|t| same(t, leaf));
            at.map_or_else(|| leaf.clone(), |at| own_inputs[at].clone())
        });
        if !training {
            inside.train(false);
        }
        let mut next = batch_inputs.iter();
        let batch = batch.rebuild(&mut || next.next().expect("one for each leaf").clone());
        let value = match training {
            true => ::engine::extension::with_recorded_arguments(|| {
                ::engine::with_rng_key(&key[0], || loss(&inside, batch))
            }),
            false => loss(&inside, batch),
        };
        // Buffers may have been written to: what they hold now is what they are after the step.
        [value].into_iter().chain(own_inputs[own.len() - buffers..].iter().cloned()).collect()
    })?;
    Ok(Recorded { graph: traced.graph, captures: traced.captures })
}

/// The objective of a module's loss on batches of these types; the loss of a step is the mean over its micro-batches.
pub(super) fn objective<M: Module + Tree, B: Tree>(
    module: &M,
    batch: &B,
    accumulate: usize,
    loss: &impl Fn(&M, B) -> Tensor,
) -> Result<Traced> {
    let fail = |reason: String| -> Error { record::error("Trainer", reason) };
    let mut named: Vec<(String, Tensor)> = Vec::new();
    for (name, t) in module.named_tensors() {
        t.check()?;
        // A tensor that is held twice is trained once, under its first name.
        if !named.iter().any(|(_, known)| same(known, &t)) {
            named.push((name, t));
        }
    }
    let (params, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|(_, t)| t.requires_grad());
    if params.is_empty() {
        let reason = "the module has no parameters: a tensor is one if it requires gradients (`requires_grad_`)";
        return Err(fail(reason.into()));
    }
    if let Some((name, t)) = params.iter().find(|(_, t)| !matches!(t.dtype(), DType::F32 | DType::F64)) {
        return Err(fail(format!(
            "parameter `{name}` is {}, in which small updates would be lost: keep it in f32 and compute under \
             `autocast`",
            t.ty()
        )));
    }
    let leaves = batch.leaves();
    if leaves.is_empty() {
        return Err(fail("a batch has no tensors".into()));
    }
    leaves.iter().try_for_each(Tensor::check)?;
    let own: Vec<Tensor> = params.iter().chain(&others).map(|(_, t)| t.clone()).collect();
    let (n, k) = (params.len(), leaves.len());
    let step = record(module, &own, others.len(), batch, true, loss)?;
    let plain = record(module, &own, others.len(), batch, false, loss)?;
    for recorded in [&step, &plain] {
        let ty = recorded.graph.ty(recorded.graph.outputs()[0]);
        if ty.rank() != 0 || !ty.dtype.is_float() {
            return Err(fail(format!("the loss is {ty}, not a float of rank 0: take its mean or its sum")));
        }
    }
    let graph = &step.graph;
    if let Some((i, (name, _))) =
        others.iter().enumerate().find(|(i, _)| graph.ty(graph.outputs()[1 + i]) != graph.ty(graph.inputs()[n + i]))
    {
        let (old, new) = (graph.ty(graph.inputs()[n + i]), graph.ty(graph.outputs()[1 + i]));
        return Err(fail(format!("buffer `{name}` is {old} before a step and {new} after it")));
    }
    let changes: Vec<bool> = (0..others.len()).map(|i| graph.outputs()[1 + i] != graph.inputs()[n + i]).collect();
    // What both only read: buffers that stay, then what either captured.
    let stays = others.iter().zip(&changes).filter(|(_, changes)| !**changes).map(|((_, t), _)| t.clone());
    let mut fixed: Vec<Tensor> = stays.collect();
    for t in step.captures.iter().chain(&plain.captures) {
        if !fixed.iter().any(|known| known.is_same(t)) {
            fixed.push(t.clone());
        }
    }
    // Inputs in the order of a step: parameters, buffers that change, what is only read, the batch, and a key.
    let ordered = |recorded: &Recorded, training: bool| -> Result<Graph> {
        let mut b = Builder::new();
        let types = recorded.graph.input_types();
        let at: Vec<Value> = types[..n].iter().map(|t| b.graph.input(t.clone())).collect();
        let mut moving = Vec::new();
        for (i, _) in changes.iter().enumerate().filter(|(_, changes)| **changes) {
            moving.push(b.graph.input(types[n + i].clone()));
        }
        let read: Vec<Value> = fixed.iter().map(|t| b.graph.input(t.ty().clone())).collect();
        let first = n + others.len();
        let batch: Vec<Value> = types[first..first + k].iter().map(|t| b.graph.input(t.clone())).collect();
        let key = match training {
            true => b.graph.input(key_type()),
            false => b.zeros(&key_type()).map_err(ir_fault)?,
        };
        let (mut moves, mut stays) = (moving.iter(), read.iter());
        let buffers = changes.iter().map(|changes| if *changes { moves.next() } else { stays.next() });
        let buffers: Option<Vec<Value>> = buffers.map(|v| v.copied()).collect();
        let captured = recorded.captures.iter().map(|t| {
            let at = fixed.iter().position(|known| known.is_same(t));
            at.map(|at| read[at])
        });
        let captured: Option<Vec<Value>> = captured.collect();
        let (buffers, captured) = (buffers.expect("one for each"), captured.expect("all are kept"));
        let args = [&at[..], &buffers, &batch, &[key], &captured].concat();
        let outs = b.inline(&recorded.graph, &args).map_err(ir_fault)?;
        let next = changes.iter().enumerate().filter(|(_, changes)| **changes && training);
        let share = match training && accumulate > 1 {
            true => b.scale(outs[0], 1.0 / accumulate as f64).map_err(ir_fault)?,
            false => outs[0],
        };
        let results: Vec<Value> = [share].into_iter().chain(next.map(|(i, _)| outs[1 + i])).collect();
        Ok(b.finish(&results))
    };
    let buffers: Vec<_> = others.iter().zip(&changes).filter(|(_, c)| **c).map(|(named, _)| named.clone()).collect();
    let objective = LossGraph {
        loss: ordered(&step, true)?,
        eval_loss: ordered(&plain, false)?,
        num_batch_inputs: k,
        needs_rng: true,
        amax_histories: Vec::new(),
        num_buffers: buffers.len(),
        trained: params.iter().map(|(_, t)| ParamOptions::new(t.rank() > 1)).collect(),
        asserts: Vec::new(),
    };
    let batch = leaves.iter().map(|t| t.ty().clone()).collect();
    Ok(Traced { objective, params, buffers, fixed, batch })
}

fn ir_fault(e: ir::Error) -> Error {
    record::error("Trainer", e.to_string())
}
