//! Builds the loss graph of a training run: for all parameters of a model, or for an adapter.

use super::bidirectional::remove_causal_masks;
use super::document_mask;
use super::losses::{self, LossInputs};
use super::objective_kind::Objective;
use super::row_groups;
use super::trainer::StepSizes;
use crate::adapter::Adapter;
use crate::asserts;
use crate::error::{Error, Result};
use crate::insert_adapter::insert_adapter;
use crate::last_token::head_input;
use crate::model::Model;
use dist::Comm;
use ir::{Builder, DType, Graph, GraphBuilder, Type, Value};
use lang::lower::{GradReductionOptions, LowerOptions, PrecisionRecipe};
use std::sync::Arc;
use train::step::key_type;
use train::{LossGraph, ParamOptions};

/// Options of a loss graph.
#[derive(Clone, Copy, Default)]
pub struct ObjectiveOptions<'a> {
    /// The end token between documents with masked attention.
    pub end_id: Option<i32>,
    /// The precision recipe, such as low-precision products.
    pub recipe: Option<&'a PrecisionRecipe>,
    /// Whether moments of large tensors are stored in 8 bits.
    pub eight_bit_moments: bool,
    /// The number of row groups with independent expert routing, so that they can be computed separately; 0 and 1 mean one.
    pub row_groups: usize,
    /// The number of virtual pipeline stages per rank; 0 and 1 mean one.
    pub chunks: usize,
    /// Bytes of gradients per bucket; none selects the default, 0 reduces each gradient separately.
    pub bucket_bytes: Option<usize>,
    /// Whether layers are a loop over stacked parameters, for a smaller graph.
    pub scan_layers: bool,
    /// The training objective.
    pub aim: Objective,
    /// A second model: a teacher, or the reference model of preference training. Without one, an adapter's base model is the
    /// reference, or otherwise the initial model.
    pub second_model: Option<&'a Model>,
    /// The communicator of the ranks that share the work by its mesh; the backend must use it too.
    pub comm: Option<&'a Arc<Comm>>,
}

impl<'a> ObjectiveOptions<'a> {
    /// The second model whose parameters follow the frozen ones, if it is needed and is not the adapter's base.
    pub(crate) fn second(&self, model: &'a Model, adapts: bool) -> Result<Option<&'a Model>> {
        let second = match (self.aim, self.second_model) {
            (aim, Some(second)) if aim.needs_second_model() => second,
            (Objective::Dpo { .. }, None) if !adapts => model,
            (Objective::Distill { .. }, None) => {
                return Err(Error::Input("`distillation` needs a teacher model: give `--teacher DIR`".into()));
            }
            (_, None) => return Ok(None),
            (_, Some(_)) => {
                return Err(Error::Input(
                    "`--teacher` can only be used with the objectives `distillation` and `dpo`".into(),
                ));
            }
        };
        if second.vocabulary() != model.vocabulary() {
            return Err(Error::Input(format!(
                "the teacher's vocabulary has {} tokens, the model's has {}: the vocabularies must match",
                second.vocabulary().unwrap_or(0),
                model.vocabulary().unwrap_or(0)
            )));
        }
        Ok(Some(second))
    }
}

/// The loss graph with related properties.
#[derive(Clone, Debug)]
pub(crate) struct TrainTarget {
    pub(crate) objective: LossGraph,
    /// Heads that are trained beside the model, the last trainable parameters.
    pub(crate) heads: Vec<(String, Type)>,
    /// How gradients are reduced over ranks, as the module specifies.
    pub(crate) grad_reduction: GradReductionOptions,
}

/// Builds the loss graph of a model, or of an adapter. With several micro-batches, the loss takes an additional input: the
/// divisors of its terms, `[terms]` (the counts of the whole step).
pub(crate) fn objective(
    model: &Model,
    adapter: Option<&Adapter>,
    how: &ObjectiveOptions<'_>,
    sizes: StepSizes,
) -> Result<TrainTarget> {
    let StepSizes { micro_batch_size: rows, seq_len: seq, gradient_accumulation_steps: accumulate } = sizes;
    if rows % how.aim.rows_per_example() != 0 {
        return Err(Error::Input(format!("`{}` needs pairs of sequences: give an even `--micro-batch-size`", how.aim)));
    }
    let second = how.second(model, adapter.is_some())?;
    let (mut asserted, mut summing) = (Vec::new(), GradReductionOptions::default());
    let mut graphs = |training: bool| -> Result<(Graph, bool, Vec<Type>)> {
        // Training steps evaluate assertions; validation has no other observations.
        // The hidden states are the operand of a product that must not be inside a module with a custom derivative.
        let written_backward = !how.aim.trains_hidden_states();
        let (dtype, asserts, scan) = (model.dtype, training, how.scan_layers);
        let recipe = how.recipe.copied();
        let options = LowerOptions {
            dtype,
            training,
            asserts,
            scan,
            custom_backward: written_backward,
            recipe,
            ..LowerOptions::default()
        };
        let mut lowered = model.architecture.lower_with(rows, seq, &options)?;
        let groups = match how.row_groups > 1 && rows.is_multiple_of(how.row_groups) {
            true if adapter.is_none() && row_groups::needs_row_groups(&lowered) => how.row_groups,
            _ => 1,
        };
        if groups > 1 {
            lowered = model.architecture.lower_with(rows / groups, seq, &options)?;
        }
        if let Some(end) = how.end_id {
            document_mask::check_supported(model, &lowered.graph)?;
            lowered.graph = document_mask::mask_documents(&lowered.graph, model.params.len(), end)?;
        }
        if matches!(how.aim, Objective::MaskedLm { .. }) {
            lowered.graph = remove_causal_masks(&lowered.graph)?;
        }
        // The adapter's base model is the reference of preference training, unless another is given.
        let base = match (how.aim, adapter, how.second_model) {
            (Objective::Dpo { .. }, Some(adapter), None) => {
                let plain = LowerOptions { training: false, asserts: false, ..options.clone() };
                let graph = model.architecture.lower_with(rows, seq, &plain)?.graph;
                Some((model.read_packed(&graph, 0)?, adapter.values.len()))
            }
            _ => None,
        };
        let second = match second {
            Some(second) => {
                let options = LowerOptions { dtype: second.dtype, ..LowerOptions::default() };
                Some(second.lower_with(rows, seq, &options)?.graph)
            }
            None => None,
        };
        if how.aim.trains_hidden_states() {
            let hidden = head_input(&lowered.graph).ok_or_else(|| {
                Error::Input(format!(
                    "`{}` needs hidden states before a language-model head, which this model does not have",
                    how.aim
                ))
            })?;
            let rest = lowered.graph.outputs()[1..].iter().copied();
            let outs: Vec<Value> = std::iter::once(hidden).chain(rest).collect();
            lowered.graph.set_outputs(outs);
            lowered.graph = lowered.graph.without_dead_nodes();
        }
        if groups > 1 {
            lowered.graph = row_groups::split_row_groups(&lowered.graph, model.params.len(), groups)?;
        }
        let totals = training && accumulate > 1;
        let asked = LossRequest { aim: how.aim, end: how.end_id, base, second, totals };
        asserted.extend(asserts::list_assertions(&lowered.observations));
        if training {
            summing = lowered.grad_reduction;
        }
        let shown = lowered.outputs.len()..lowered.outputs.len() + lowered.observations.len();
        let Some(adapter) = adapter else {
            let trained: Vec<bool> = model.params.iter().map(|param| param.trainable).collect();
            if model.is_quantized() {
                let text = "a quantized model can only be trained with an adapter: give `--lora`, or train the unquantized \
                     model";
                return Err(Error::Input(text.into()));
            }
            let further = ExtraInputs { keyed: lowered.needs_rng, states: &lowered.amax_histories };
            let graph = loss(&lowered.graph, &trained, further, (rows, seq), shown, &asked)?;
            return Ok((graph, lowered.needs_rng, lowered.amax_histories));
        };
        let graph = insert_adapter(&lowered.graph, lowered.needs_rng, adapter, training)?;
        let graph = model.read_packed(&graph, adapter.values.len())?;
        let keyed =
            graph.inputs().len() > adapter.values.len() + model.param_inputs() + 1 + lowered.amax_histories.len();
        let mut trained = vec![true; adapter.values.len()];
        trained.resize(adapter.values.len() + model.param_inputs(), false);
        let further = ExtraInputs { keyed, states: &lowered.amax_histories };
        Ok((loss(&graph, &trained, further, (rows, seq), shown, &asked)?, keyed, lowered.amax_histories))
    };
    let ((loss, keyed, states), (plain, ..)) = (graphs(true)?, graphs(false)?);
    let mut trained: Vec<ParamOptions> = match adapter {
        // Scaling factors, like biases, have no weight decay.
        Some(adapter) => {
            let all = adapter.tensors().into_iter();
            all.map(|(_, ty)| ParamOptions::new(ty.shape.iter().all(|n| *n > 1))).collect()
        }
        None => {
            let chosen = model.params.iter().filter(|param| param.trainable);
            // Norms and biases have no weight decay.
            let trained = chosen.map(|param| {
                let decays = if param.ty.rank() >= 2 { param.wd_scale } else { 0.0 };
                ParamOptions { lr_scale: param.lr_scale, wd_scale: decays, max_grad_norm: param.grad_clip }
            });
            trained.collect()
        }
    };
    let mut heads = Vec::new();
    if matches!(how.aim, Objective::Classify { .. }) {
        heads.push(("score.weight".to_string(), loss.input_types()[trained.len()].clone()));
        trained.push(ParamOptions::new(true));
    }
    let batch = 2 + usize::from(accumulate > 1);
    let objective = LossGraph {
        loss,
        eval_loss: plain,
        num_batch_inputs: batch,
        needs_rng: keyed,
        amax_histories: states,
        num_buffers: 0,
        trained,
        asserts: asserted,
    };
    Ok(TrainTarget { objective, heads, grad_reduction: summing })
}

/// Additional inputs and models of a forward graph.
struct LossRequest {
    aim: Objective,
    end: Option<i32>,
    /// The graph of the adapter's base; its parameters are the inputs of the forward graph from this one on.
    base: Option<(Graph, usize)>,
    /// The graph of the second model; its parameters follow the frozen ones.
    second: Option<Graph>,
    /// Whether the divisors of the loss terms are an input.
    totals: bool,
}

/// The inputs of a forward graph after the token IDs.
#[derive(Clone, Copy)]
struct ExtraInputs<'a> {
    /// Amax histories of delayed scaling.
    states: &'a [Type],
    /// Whether a random key follows them.
    keyed: bool,
}

/// Builds the mean loss, from (trainable as f32.., amax histories.., frozen.., token IDs, labels), divisors if requested, and a
/// random key if the forward graph ends with one. `trained` marks the parameters, which are the first inputs of the forward
/// graph. The loss is followed by the number of violations of each of the assertions among the outputs `shown`, if there are any.
fn loss(
    forward: &Graph,
    trained: &[bool],
    further: ExtraInputs<'_>,
    (rows, seq): (usize, usize),
    shown: std::ops::Range<usize>,
    asked: &LossRequest,
) -> ir::Result<Graph> {
    let types = forward.input_types();
    let mut b = Builder::new();
    let mut inputs: Vec<Option<Value>> = vec![None; trained.len()];
    for (i, _) in trained.iter().enumerate().filter(|(_, trained)| **trained) {
        let master = b.graph.input(types[i].with_dtype(DType::F32));
        inputs[i] = Some(b.cast(master, types[i].dtype)?);
    }
    let head = match asked.aim {
        Objective::Classify { classes } => Some(b.graph.input(losses::head_type(&forward.output_types()[0], classes))),
        _ => None,
    };
    let states: Vec<Value> = further.states.iter().map(|ty| b.graph.input(ty.clone())).collect();
    for (i, _) in trained.iter().enumerate().filter(|(_, trained)| !**trained) {
        inputs[i] = Some(b.graph.input(types[i].clone()));
    }
    let theirs: Vec<Value> = match &asked.second {
        // All inputs but the token IDs.
        Some(graph) => {
            let types = graph.input_types();
            types[..types.len() - 1].iter().map(|ty| b.graph.input(ty.clone())).collect()
        }
        None => Vec::new(),
    };
    let ids = b.graph.input(Type::new(DType::I32, &[rows, seq]));
    let labels = b.graph.input(Type::new(DType::I32, &[rows, seq]));
    let totals = asked.totals.then(|| b.graph.input(Type::new(DType::F32, &[asked.aim.num_loss_terms()])));
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
        Some(end) => document_mask::mask_end_labels(&mut b, ids, labels, end)?,
        None => labels,
    };
    let parts = LossInputs { outputs: outs[0], reference_logits: second, head, ids, labels, totals };
    let loss = losses::loss(&mut b, &asked.aim, &parts)?;
    if shown.is_empty() {
        return Ok(b.finish(&[loss]));
    }
    let broken = asserts::count_violations(&mut b, &outs[shown])?;
    Ok(b.finish(&[loss, broken]))
}
