//! What is trained: every parameter of a model, or an adapter beside it.

use super::aim::Aim;
use super::both_sides::both_sides;
use super::isolate;
use super::losses::{self, Parts};
use super::row_groups;
use super::trainer::StepSizes;
use crate::adapter::Adapter;
use crate::asserts;
use crate::error::{Error, Result};
use crate::inject::adapted;
use crate::last_row::before_head;
use crate::model::Model;
use dist::Comm;
use ir::{Build, Builder, DType, Graph, Type, Value};
use lang::lower::{Options, Recipe, Summing};
use std::sync::Arc;
use train::step::key_type;
use train::{Objective, Trained};

/// What is special about a run: its objective, and who it is shared with.
#[derive(Clone, Copy, Default)]
pub struct How<'a> {
    /// The token that divides documents which don't see each other.
    pub end: Option<i32>,
    /// What is computed in which precision; products in few bits.
    pub recipe: Option<&'a Recipe>,
    /// Moments of large tensors have 8 bits each.
    pub eight_bits: bool,
    /// Groups of rows whose tokens are sorted to experts each by themselves, so that they can be computed apart; 0 and 1 are one.
    pub groups: usize,
    /// Chunks of layers at each rank of a pipeline; 0 and 1 are one.
    pub chunks: usize,
    /// Bytes of gradients that ranks sum at once; none says the usual, 0 one after another.
    pub bucket: Option<usize>,
    /// Layers as a loop over stacked parameters, for who wants a small graph.
    pub scan: bool,
    /// What the model is trained for.
    pub aim: Aim,
    /// A second model that is asked: a teacher, or the reference of preferences. Without one an adapter's own base is the
    /// reference, and otherwise the model as it begins.
    pub second: Option<&'a Model>,
    /// The ranks that share the work as their mesh says; the backend must talk through the same communicator.
    pub comm: Option<&'a Arc<Comm>>,
}

impl<'a> How<'a> {
    /// The model whose parameters follow those that are not trained, if one is asked that is not the adapter's base.
    pub(crate) fn second(&self, model: &'a Model, adapts: bool) -> Result<Option<&'a Model>> {
        let second = match (self.aim, self.second) {
            (aim, Some(second)) if aim.asks_second() => second,
            (Aim::Dpo { .. }, None) if !adapts => model,
            (Aim::Distill { .. }, None) => {
                return Err(Error::Input("`distill` needs a model to learn from: give `--teacher DIR`".into()));
            }
            (_, None) => return Ok(None),
            (_, Some(_)) => return Err(Error::Input("`--teacher` is for `distill` and `dpo`".into())),
        };
        if second.vocabulary() != model.vocabulary() {
            return Err(Error::Input(format!(
                "the teacher knows {} ids, the model {}: they must have one vocabulary",
                second.vocabulary().unwrap_or(0),
                model.vocabulary().unwrap_or(0)
            )));
        }
        Ok(Some(second))
    }
}

/// What a model is trained for, and what stands beside its loss.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) objective: Objective,
    /// Matrices that are trained beside the model, the last of the trained.
    pub(crate) heads: Vec<(String, Type)>,
    /// How ranks sum gradients, as the model says.
    pub(crate) summing: Summing,
}

/// The objective of a model, or of an adapter beside it. Of several micro-batches, the loss takes a further input: what its terms are
/// divided by, `[terms]` (`Aim::counts` of the whole step).
pub(crate) fn objective(model: &Model, adapter: Option<&Adapter>, how: &How<'_>, sizes: StepSizes) -> Result<Target> {
    let StepSizes { rows, seq, accumulate } = sizes;
    if rows % how.aim.rows_each() != 0 {
        return Err(Error::Input(format!("`{}` takes rows in pairs: give an even `--batch`", how.aim)));
    }
    let second = how.second(model, adapter.is_some())?;
    let (mut asserted, mut summing) = (Vec::new(), Summing::default());
    let mut graphs = |training: bool| -> Result<(Graph, bool, Vec<Type>)> {
        // Training looks at what is asserted in every step; validation sees nothing else.
        // States stand before a product that must not be hidden in a module with a backward of its own.
        let written_backward = !how.aim.reads_states();
        let (dtype, asserts, scan) = (model.dtype, training, how.scan);
        let recipe = how.recipe.copied();
        let options = Options { dtype, training, asserts, scan, written_backward, recipe, ..Options::default() };
        let mut lowered = model.architecture.lower_with(rows, seq, &options)?;
        let groups = match how.groups > 1 && rows.is_multiple_of(how.groups) {
            true if adapter.is_none() && row_groups::sorts(&lowered) => how.groups,
            _ => 1,
        };
        if groups > 1 {
            lowered = model.architecture.lower_with(rows / groups, seq, &options)?;
        }
        if let Some(end) = how.end {
            isolate::check(model, &lowered.graph)?;
            lowered.graph = isolate::isolated(&lowered.graph, model.params.len(), end)?;
        }
        if matches!(how.aim, Aim::Masked { .. }) {
            lowered.graph = both_sides(&lowered.graph)?;
        }
        // The adapter's own base is the reference of preferences, unless another is given.
        let base = match (how.aim, adapter, how.second) {
            (Aim::Dpo { .. }, Some(adapter), None) => {
                let plain = Options { training: false, asserts: false, ..options.clone() };
                let graph = model.architecture.lower_with(rows, seq, &plain)?.graph;
                Some((model.read_packed(&graph, 0)?, adapter.values.len()))
            }
            _ => None,
        };
        let second = match second {
            Some(second) => {
                let options = Options { dtype: second.dtype, ..Options::default() };
                Some(second.lower_with(rows, seq, &options)?.graph)
            }
            None => None,
        };
        if how.aim.reads_states() {
            let hidden = before_head(&lowered.graph).ok_or_else(|| {
                Error::Input(format!(
                    "`{}` needs states that a head scores, and this model's result is no product of them",
                    how.aim
                ))
            })?;
            let rest = lowered.graph.outputs()[1..].iter().copied();
            let outs: Vec<Value> = std::iter::once(hidden).chain(rest).collect();
            lowered.graph.set_outputs(outs);
            lowered.graph = lowered.graph.without_dead_nodes();
        }
        if groups > 1 {
            lowered.graph = row_groups::grouped(&lowered.graph, model.params.len(), groups)?;
        }
        let totals = training && accumulate > 1;
        let asked = Asked { aim: how.aim, end: how.end, base, second, totals };
        asserted.extend(asserts::of(&lowered.observed));
        if training {
            summing = lowered.summing;
        }
        let shown = lowered.outputs.len()..lowered.outputs.len() + lowered.observed.len();
        let Some(adapter) = adapter else {
            let trained: Vec<bool> = model.params.iter().map(|param| param.trainable).collect();
            if model.is_quantized() {
                let text =
                    "a quantised model is trained by an adapter beside it: give `--lora`, or train the wide model";
                return Err(Error::Input(text.into()));
            }
            let further = Further { keyed: lowered.keyed, states: &lowered.states };
            let graph = loss(&lowered.graph, &trained, further, (rows, seq), shown, &asked)?;
            return Ok((graph, lowered.keyed, lowered.states));
        };
        let graph = adapted(&lowered.graph, lowered.keyed, adapter, training)?;
        let graph = model.read_packed(&graph, adapter.values.len())?;
        let keyed = graph.inputs().len() > adapter.values.len() + model.param_inputs() + 1 + lowered.states.len();
        let mut trained = vec![true; adapter.values.len()];
        trained.resize(adapter.values.len() + model.param_inputs(), false);
        let further = Further { keyed, states: &lowered.states };
        Ok((loss(&graph, &trained, further, (rows, seq), shown, &asked)?, keyed, lowered.states))
    };
    let ((loss, keyed, states), (plain, ..)) = (graphs(true)?, graphs(false)?);
    let mut trained: Vec<Trained> = match adapter {
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
    let mut heads = Vec::new();
    if matches!(how.aim, Aim::Classify { .. }) {
        heads.push(("score.weight".to_string(), loss.input_types()[trained.len()].clone()));
        trained.push(Trained::new(true));
    }
    let batch = 2 + usize::from(accumulate > 1);
    let objective = Objective { loss, plain, batch, keyed, states, buffers: 0, trained, asserts: asserted };
    Ok(Target { objective, heads, summing })
}

/// What is asked of a forward graph.
struct Asked {
    aim: Aim,
    end: Option<i32>,
    /// The graph of the adapter's base, whose parameters are the inputs of the forward graph from this one on.
    base: Option<(Graph, usize)>,
    /// The graph of the second model, whose parameters follow those that are not trained.
    second: Option<Graph>,
    /// Whether what the terms of the loss are divided by is an input.
    totals: bool,
}

/// What a forward graph takes behind its ids.
#[derive(Clone, Copy)]
struct Further<'a> {
    /// Histories of delayed scaling.
    states: &'a [Type],
    /// A key, behind them.
    keyed: bool,
}

/// The mean loss, from (trained as f32.., states.., fixed.., ids, labels), totals if asked, and a key if the forward graph ends with one. `trained`
/// marks the parameters, which are the first inputs of the forward graph. Behind the loss comes how often each of the
/// assertions among the outputs `shown` is broken, if there are any.
fn loss(
    forward: &Graph,
    trained: &[bool],
    further: Further<'_>,
    (rows, seq): (usize, usize),
    shown: std::ops::Range<usize>,
    asked: &Asked,
) -> ir::Result<Graph> {
    let types = forward.input_types();
    let mut b = Builder::new();
    let mut inputs: Vec<Option<Value>> = vec![None; trained.len()];
    for (i, _) in trained.iter().enumerate().filter(|(_, trained)| **trained) {
        let master = b.graph.input(types[i].with_dtype(DType::F32));
        inputs[i] = Some(b.cast(master, types[i].dtype)?);
    }
    let head = match asked.aim {
        Aim::Classify { classes } => Some(b.graph.input(losses::head_type(&forward.output_types()[0], classes))),
        _ => None,
    };
    let states: Vec<Value> = further.states.iter().map(|ty| b.graph.input(ty.clone())).collect();
    for (i, _) in trained.iter().enumerate().filter(|(_, trained)| !**trained) {
        inputs[i] = Some(b.graph.input(types[i].clone()));
    }
    let theirs: Vec<Value> = match &asked.second {
        // All but the ids.
        Some(graph) => {
            let types = graph.input_types();
            types[..types.len() - 1].iter().map(|ty| b.graph.input(ty.clone())).collect()
        }
        None => Vec::new(),
    };
    let ids = b.graph.input(Type::new(DType::I32, &[rows, seq]));
    let labels = b.graph.input(Type::new(DType::I32, &[rows, seq]));
    let totals = asked.totals.then(|| b.graph.input(Type::new(DType::F32, &[asked.aim.terms()])));
    let key = further.keyed.then(|| b.graph.input(key_type()));
    let args: Vec<Value> = inputs.into_iter().flatten().chain([ids]).chain(states).chain(key).collect();
    let outs = b.inline(forward, &args)?;
    let second = match (&asked.second, &asked.base) {
        (Some(graph), _) => Some(b.inline(graph, &[&theirs[..], &[ids]].concat())?[0]),
        (None, Some((graph, first))) => {
            let last = first + graph.inputs().len() - 1;
            Some(b.inline(graph, &[&args[*first..last], &[ids]].concat())?[0])
        }
        (None, None) => None,
    };
    let labels = match asked.end {
        Some(end) => isolate::labels(&mut b, ids, labels, end)?,
        None => labels,
    };
    let parts = Parts { given: outs[0], second, head, ids, labels, totals };
    let loss = losses::loss(&mut b, &asked.aim, &parts)?;
    if shown.is_empty() {
        return Ok(b.finish(&[loss]));
    }
    let broken = asserts::counted(&mut b, &outs[shown])?;
    Ok(b.finish(&[loss, broken]))
}
