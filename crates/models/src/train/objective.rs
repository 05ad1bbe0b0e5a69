//! What is trained: every parameter of a model, or an adapter beside it.

use super::apart;
use super::isolate;
use super::step::{Objective, Trained};
use crate::adapter::Adapter;
use crate::asserts;
use crate::beside::{adapted, key_type};
use crate::error::{Error, Result};
use crate::model::Model;
use ir::{Build, Builder, DType, Graph, Type, Value};
use lang::lower::{Options, mean_cross_entropy};
use transform::{FewBits, few_bits};

/// What is special about an objective.
#[derive(Clone, Copy, Default)]
pub struct How<'a> {
    /// The token that divides documents which don't see each other.
    pub end: Option<i32>,
    /// Products in few bits.
    pub recipe: Option<&'a FewBits>,
    /// Groups of rows whose tokens are sorted to experts each by themselves, so that they can be computed apart; 0 and 1 are one.
    pub groups: usize,
    /// Chunks of layers at each rank of a pipeline; 0 and 1 are one.
    pub chunks: usize,
    /// Layers as a loop over stacked parameters, for who wants a small graph.
    pub scan: bool,
}

/// The objective of a model, or of an adapter beside it, for micro-batches of `rows` sequences.
pub(crate) fn objective(
    model: &Model,
    adapter: Option<&Adapter>,
    how: &How<'_>,
    rows: usize,
    seq: usize,
) -> Result<Objective> {
    let mut asserted = Vec::new();
    let mut graphs = |training: bool| -> Result<(Graph, bool)> {
        // Training looks at what is asserted in every step; validation sees nothing else.
        let options = Options { dtype: model.dtype, training, asserts: training, scan: how.scan, ..Options::default() };
        let mut lowered = model.architecture.lower_with(rows, seq, &options)?;
        let groups = match how.groups > 1 && rows.is_multiple_of(how.groups) {
            true if adapter.is_none() && apart::sorts(&lowered) => how.groups,
            _ => 1,
        };
        if groups > 1 {
            lowered = model.architecture.lower_with(rows / groups, seq, &options)?;
        }
        if let Some(end) = how.end {
            isolate::check(model, &lowered.graph)?;
            lowered.graph = isolate::isolated(&lowered.graph, model.params.len(), end)?;
        }
        if let Some(recipe) = how.recipe {
            lowered.graph = few_bits(&lowered.graph, recipe)?;
        }
        if groups > 1 {
            lowered.graph = apart::apart(&lowered.graph, model.params.len(), groups)?;
        }
        asserted.extend(asserts::of(&lowered.observed));
        let shown = lowered.outputs.len()..lowered.outputs.len() + lowered.observed.len();
        let Some(adapter) = adapter else {
            let trained: Vec<bool> = model.params.iter().map(|param| param.trainable).collect();
            if model.is_quantized() {
                let text =
                    "a quantised model is trained by an adapter beside it: give `--lora`, or train the wide model";
                return Err(Error::Input(text.into()));
            }
            return Ok((loss(&lowered.graph, &trained, lowered.keyed, (rows, seq), shown, how.end)?, lowered.keyed));
        };
        let graph = adapted(&lowered.graph, lowered.keyed, adapter, training)?;
        let graph = model.read_packed(&graph, adapter.values.len())?;
        let keyed = graph.inputs().len() > adapter.values.len() + model.param_inputs() + 1;
        let mut trained = vec![true; adapter.values.len()];
        trained.resize(adapter.values.len() + model.param_inputs(), false);
        Ok((loss(&graph, &trained, keyed, (rows, seq), shown, how.end)?, keyed))
    };
    let ((loss, keyed), (plain, _)) = (graphs(true)?, graphs(false)?);
    let trained = match adapter {
        // Factors, like biases, are left alone by weight decay.
        Some(adapter) => {
            let all = adapter.tensors().into_iter();
            all.map(|(_, ty)| Trained::new(ty.shape.iter().all(|n| *n > 1))).collect()
        }
        None => {
            let chosen = model.params.iter().filter(|param| param.trainable);
            // Norms and biases are left alone by weight decay.
            let trained = chosen.map(|param| {
                let decays = if param.ty.rank() >= 2 { param.wd_scale } else { 0.0 };
                Trained { rate: param.lr_scale, decay: decays, clip: param.grad_clip }
            });
            trained.collect()
        }
    };
    Ok(Objective { loss, plain, keyed, trained, asserts: asserted })
}

/// The mean loss, from (trained as f32.., fixed.., ids, labels), and a key if the forward graph ends with one. `trained`
/// marks the parameters, which are the first inputs of the forward graph. Behind the loss comes how often each of the
/// assertions among the outputs `shown` is broken, if there are any.
fn loss(
    forward: &Graph,
    trained: &[bool],
    keyed: bool,
    (rows, seq): (usize, usize),
    shown: std::ops::Range<usize>,
    end: Option<i32>,
) -> ir::Result<Graph> {
    let types = forward.input_types();
    let mut b = Builder::new();
    let mut inputs: Vec<Option<Value>> = vec![None; trained.len()];
    for (i, _) in trained.iter().enumerate().filter(|(_, trained)| **trained) {
        let master = b.graph.input(types[i].with_dtype(DType::F32));
        inputs[i] = Some(b.cast(master, types[i].dtype)?);
    }
    for (i, _) in trained.iter().enumerate().filter(|(_, trained)| !**trained) {
        inputs[i] = Some(b.graph.input(types[i].clone()));
    }
    let ids = b.graph.input(Type::new(DType::I32, &[rows, seq]));
    let labels = b.graph.input(Type::new(DType::I32, &[rows, seq]));
    let key = keyed.then(|| b.graph.input(key_type()));
    let args: Vec<Value> = inputs.into_iter().flatten().chain([ids]).chain(key).collect();
    let outs = b.inline(forward, &args)?;
    let logits = outs[0];
    let dtype = b.ty(logits).dtype.accumulator();
    let logits = b.cast(logits, dtype)?;
    let labels = match end {
        Some(end) => isolate::labels(&mut b, ids, labels, end)?,
        None => labels,
    };
    let loss = mean_cross_entropy(&mut b, logits, labels)?;
    if shown.is_empty() {
        return Ok(b.finish(&[loss]));
    }
    let broken = asserts::counted(&mut b, &outs[shown])?;
    Ok(b.finish(&[loss, broken]))
}
