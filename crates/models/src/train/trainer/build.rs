//! Builds a training step: selects trainable and frozen parameters, shards them among ranks, and compiles the step.

use super::{LanguageModelTrainer, StepSizes};
use crate::adapter::Adapter;
use crate::budget;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::param_sharding::ParamInfo;
use crate::random::SplitMix64;
use crate::session::{Buffer, required_bytes, upload};
use crate::train::objective::{ObjectiveOptions, TrainTarget, objective};
use crate::train::objective_kind::Objective;
use crate::train::pipeline::{self, Pipeline};
use crate::train::sharding::{ShardingPlan, arrange_collectives, num_row_groups};
use crate::weight::Weight;
use compiler::Backend;
use ir::{DType, Type};
use std::time::Instant;
use train::named_tensor::to_bytes;
use train::{AdamW, GradReduction, StepInputLayout, step};

/// The first random stream of heads; no parameter has one of these.
const HEAD_STREAM: u64 = 1 << 40;

impl LanguageModelTrainer {
    /// Compiles the step and uploads the state; moments are zero. With a communicator in `how` this is one of several ranks, and
    /// `sizes` are those of all ranks together: all ranks call the same methods in the same order.
    pub fn new(
        model: Model,
        adapter: Option<Adapter>,
        sizes: StepSizes,
        adam: AdamW,
        how: &ObjectiveOptions<'_>,
        backend: &dyn Backend,
    ) -> Result<LanguageModelTrainer> {
        let comm = how.comm.cloned();
        let started = Instant::now();
        if let Some(most) = model.max_sequence().filter(|most| sizes.seq_len > *most) {
            return Err(Error::Input(format!(
                "the sequence length {} exceeds the model's maximum of {most}: give a smaller `--seq-len`",
                sizes.seq_len
            )));
        }
        if how.aim != Objective::CausalLm
            && comm.as_ref().is_some_and(|comm| pipeline::pipeline_axis(comm.mesh()).is_some())
        {
            return Err(Error::Input(format!(
                "the objective `{}` does not support pipeline parallelism: remove `pp` from `--mesh`",
                how.aim
            )));
        }
        // Ranks that don't share tokens sort their own tokens to experts.
        let how = &ObjectiveOptions { row_groups: comm.as_ref().map_or(1, |comm| num_row_groups(comm.mesh())), ..*how };
        let TrainTarget { objective: mut target, heads: own_heads, grad_reduction: summing } =
            objective(&model, adapter.as_ref(), how, sizes)?;
        let second = how.second(&model, adapter.is_some())?;
        let alone = comm.as_ref().is_none_or(|comm| comm.mesh().ranks() == 1);
        if !alone && !target.amax_histories.is_empty() {
            return Err(Error::Input(
                "delayed scaling does not support several ranks: remove `--mesh`, or use `scaling_strategy: dynamic`"
                    .into(),
            ));
        }
        if !alone && how.eight_bit_moments {
            return Err(Error::Input(
                "8-bit optimizer states do not support several ranks: remove `--mesh` or `--optimizer-bits 8`".into(),
            ));
        }
        let heads = own_heads.len();
        let about = || -> Vec<ParamInfo> {
            let whole = |_| ParamInfo { shard: None, stacked: false };
            let adapted = adapter.iter().flat_map(|a| a.tensors()).map(|_| whole(()));
            let (own, rest): (Vec<_>, Vec<_>) =
                model.params.iter().partition(|param| adapter.is_none() && param.trainable);
            let own = adapted.chain(own.into_iter().map(ParamInfo::of)).chain((0..heads).map(|_| whole(())));
            let theirs = second.iter().flat_map(|second| &second.params);
            own.chain(rest.into_iter().chain(theirs).map(ParamInfo::of)).collect()
        };
        let comm = comm.filter(|comm| comm.mesh().ranks() > 1);
        let mut stages = None;
        // The indices of this rank's trainable tensors.
        let mut held: Vec<usize> = (0..target.trained.len()).collect();
        let mut division = match comm {
            None => None,
            Some(comm) if pipeline::pipeline_axis(comm.mesh()).is_some() => {
                if adapter.is_some() {
                    return Err(Error::Input("pipeline parallelism does not support adapters: remove `pp`".into()));
                }
                let paths: Vec<String> = model.params.iter().map(|param| param.path.clone()).collect();
                let divided = pipeline::PipelinedLoss::of(&target, &about(), &paths, comm, how.chunks.max(1))?;
                held = divided.local_parameters(divided.at());
                let types = divided.param_types(&target, &held);
                let division = divided.division.clone();
                stages = Some((divided, types));
                Some(division)
            }
            Some(comm) => Some(ShardingPlan::of(&mut target, &about(), comm)?),
        };
        if let Some(division) = &mut division {
            division.sums.bucket_bytes = how.bucket_bytes.or(summing.bucket_bytes);
        }
        let n = held.len();
        let none = GradReduction::default();
        let sums = division.as_ref().map_or(&none, |d| &d.sums);
        let moments = step::moments(&target, how.eight_bit_moments);
        let mut layout = StepInputLayout::of(&target, &moments, sizes.gradient_accumulation_steps);
        let graph = match (&stages, &division) {
            (Some((divided, types)), _) => {
                let trained: Vec<_> = held.iter().map(|&i| target.trained[i]).collect();
                // Scalars follow the frozen parameters; gradients come from the stages.
                let moments = held.iter().map(|&i| moments[i].clone()).collect();
                layout = StepInputLayout {
                    num_trained: n,
                    moments,
                    num_batch_inputs: 0,
                    needs_rng: false,
                    num_assertions: 0,
                    ..layout
                };
                step::update_graph(types, &trained, &adam, &sums.select(&held), divided.loss_axes())?
            }
            (None, Some(_)) => {
                let graph = step::step_graph(&target, &adam, sizes.gradient_accumulation_steps, sums, &moments)?;
                arrange_collectives(&graph, summing.synchronous)?
            }
            (None, None) => step::step_graph(&target, &adam, sizes.gradient_accumulation_steps, sums, &moments)?,
        };
        let program = train::TrainStep::compile(&graph, &layout, backend)?;
        budget::check_fits("a training step", required_bytes(&program), "reduce `--micro-batch-size` or `--seq-len`")?;
        let all = model.params.iter().enumerate();
        let (masters, fixed): (Vec<_>, Vec<_>) = all.partition(|(_, param)| adapter.is_none() && param.trainable);
        let part = |at: usize, ty: &Type, whole: Buffer| -> Result<Buffer> {
            let Some(division) = &division else { return Ok(whole) };
            let mut bytes = vec![0; ty.bytes()];
            whole.read(0, &mut bytes)?;
            Ok(upload(backend, &[division.local_part(&division.params[at], ty, &bytes)])?.remove(0))
        };
        let (mut names, mut trained): (Vec<(String, Type)>, Vec<Buffer>) = match &adapter {
            Some(adapter) => {
                let values = adapter.values.iter().map(|values| to_bytes(values, DType::F32)).collect::<Vec<_>>();
                let mut all = Vec::new();
                for (at, (buffer, (_, ty))) in upload(backend, &values)?.into_iter().zip(adapter.tensors()).enumerate()
                {
                    all.push(part(at, &ty, buffer)?);
                }
                (adapter.tensors(), all)
            }
            None => {
                // Master weights keep the original values, not those rounded to the compute dtype.
                let names = masters.iter().map(|(_, param)| (param.path.clone(), param.ty.with_dtype(DType::F32)));
                let wide: Vec<_> = masters.iter().map(|(i, _)| (*i, DType::F32)).collect();
                let all = match &division {
                    None => model.upload_as(&wide, backend)?,
                    // One after another: a rank never holds the whole model.
                    Some(_) => {
                        let one = |(at, (i, param)): (usize, &(usize, &lang::lower::Parameter))| {
                            let whole = model.upload_as(&[(*i, DType::F32)], backend)?.remove(0);
                            part(at, &param.ty.with_dtype(DType::F32), whole)
                        };
                        let here = masters.iter().enumerate().filter(|(at, _)| held.contains(at));
                        here.map(one).collect::<Result<_>>()?
                    }
                };
                (names.collect(), all)
            }
        };
        for (k, (name, ty)) in own_heads.iter().enumerate() {
            // Initialized like the matrices of a new model.
            let mut random = SplitMix64::new(0, HEAD_STREAM + k as u64);
            let values: Vec<f32> = (0..ty.numel()).map(|_| 0.02 * random.normal() as f32).collect();
            let whole = upload(backend, &[to_bytes(&values, DType::F32)])?.remove(0);
            trained.push(part(names.len(), ty, whole)?);
            names.push((name.clone(), ty.clone()));
        }
        let fixed: Vec<_> = fixed.iter().map(|(i, _)| *i).collect();
        let mut kept: Vec<Buffer> = Vec::new();
        let theirs = |second: &Model| (0..second.params.len()).any(|i| second.inputs_of(i) != 1);
        let packed = fixed.iter().any(|i| model.inputs_of(*i) != 1) || second.is_some_and(theirs);
        match &division {
            None => kept.extend(model.upload_some(&fixed, backend)?),
            Some(_) if packed => {
                return Err(Error::Input("quantized weights cannot be sharded: train in one process".into()));
            }
            Some(_) => {
                for (at, i) in fixed.iter().enumerate() {
                    let whole = model.upload_some(&[*i], backend)?.remove(0);
                    kept.push(part(n + at, &model.params[*i].ty, whole)?);
                }
            }
        }
        if let Some(second) = second {
            let all = second.upload(backend)?;
            match &division {
                None => kept.extend(all),
                Some(_) => {
                    for (k, (whole, param)) in all.into_iter().zip(&second.params).enumerate() {
                        kept.push(part(n + fixed.len() + k, &param.ty, whole)?);
                    }
                }
            }
        }
        let values = [trained, Vec::new(), kept];
        let core = train::TrainStep::load(program, layout, target.eval_loss.clone(), adam, values, backend)?;
        let pipeline = match &stages {
            Some((divided, _)) => {
                let first = core.inputs().len() - n;
                let gradients = &core.inputs()[first..];
                let types = &core.program().inputs[first..];
                Some(Pipeline::new(divided, sizes.gradient_accumulation_steps, gradients, types, backend)?)
            }
            None => None,
        };
        // Quantized weights are kept for a merge; the others are in the buffers.
        let keep = |i: usize| model.packed(i).map_or(Weight::Stored, |packed| Weight::Packed(packed.clone()));
        let weights = (0..model.params.len()).map(keep).collect();
        let model = Model { weights, checkpoint: None, ..model };
        Ok(LanguageModelTrainer {
            model,
            adapter,
            sizes,
            local_index: (0..names.len()).map(|i| held.iter().position(|h| *h == i)).collect(),
            names,
            train_step: core,
            pipeline,
            asserts: target.asserts,
            aim: how.aim,
            end_id: how.end_id,
            num_heads_trained: heads,
            needs_rng: target.needs_rng,
            sharding: division,
            compile_time: started.elapsed(),
        })
    }
}
