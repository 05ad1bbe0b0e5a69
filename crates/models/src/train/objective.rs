//! What is trained: every parameter of a model, or an adapter beside it.

use super::step::Objective;
use crate::error::Result;
use crate::lora::{Adapter, adapted};
use crate::model::Model;
use ir::{Build, Builder, DType, Graph, Type, Value};
use lang::lower::mean_cross_entropy;

/// The objective of a model, or of an adapter beside it, for micro-batches of `rows` sequences.
pub(crate) fn objective(model: &Model, adapter: Option<&Adapter>, rows: usize, seq: usize) -> Result<Objective> {
    let forward = model.architecture.lower(rows, seq, model.dtype, None)?.graph;
    Ok(match adapter {
        Some(adapter) => {
            let trained = adapter.tensors().len();
            let loss = loss(&adapted(&forward, adapter)?, &vec![true; trained], model.params.len(), rows, seq)?;
            Objective { loss, trained, decays: vec![true; trained] }
        }
        None => {
            let trained: Vec<bool> = model.params.iter().map(|param| param.trainable).collect();
            let loss = loss(&forward, &trained, 0, rows, seq)?;
            let chosen = model.params.iter().filter(|param| param.trainable);
            // Norms and biases are left alone by weight decay.
            let decays: Vec<bool> = chosen.map(|param| param.ty.rank() >= 2).collect();
            Objective { loss, trained: decays.len(), decays }
        }
    })
}

/// The mean loss, from (trained as f32.., fixed.., ids, labels). `trained` marks the first inputs of the forward graph;
/// `further` ones that are fixed follow them.
fn loss(forward: &Graph, trained: &[bool], further: usize, rows: usize, seq: usize) -> ir::Result<Graph> {
    let types = forward.input_types();
    let marks: Vec<bool> = trained.iter().copied().chain(std::iter::repeat_n(false, further)).collect();
    let mut b = Builder::new();
    let mut inputs: Vec<Option<Value>> = vec![None; marks.len()];
    for (i, _) in marks.iter().enumerate().filter(|(_, trained)| **trained) {
        let master = b.graph.input(types[i].with_dtype(DType::F32));
        inputs[i] = Some(b.cast(master, types[i].dtype)?);
    }
    for (i, _) in marks.iter().enumerate().filter(|(_, trained)| !**trained) {
        inputs[i] = Some(b.graph.input(types[i].clone()));
    }
    let ids = b.graph.input(Type::new(DType::I32, &[rows, seq]));
    let labels = b.graph.input(Type::new(DType::I32, &[rows, seq]));
    let args: Vec<Value> = inputs.into_iter().flatten().chain([ids]).collect();
    let logits = b.inline(forward, &args)?[0];
    let dtype = b.ty(logits).dtype.accumulator();
    let logits = b.cast(logits, dtype)?;
    let loss = mean_cross_entropy(&mut b, logits, labels)?;
    Ok(b.finish(&[loss]))
}
