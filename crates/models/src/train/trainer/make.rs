//! Making a trainer: what is trained and what is not, divided among ranks if there are several, and the step compiled.

use super::{StepSizes, Trainer};
use crate::adapter::Adapter;
use crate::budget;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::placing::About;
use crate::random::Random;
use crate::session::{Buffer, needs, upload};
use crate::train::aim::Aim;
use crate::train::division::{Division, arranged, groups};
use crate::train::objective::{How, Target, objective};
use crate::train::pipeline::{self, Pipeline};
use crate::weight::Weight;
use compiler::Backend;
use ir::{DType, Type};
use std::time::Instant;
use train::named_tensor::to_bytes;
use train::{AdamW, Layout, Sums, step};

/// Random streams of heads, which no parameter has.
const HEAD_STREAM: u64 = 1 << 40;

impl Trainer {
    /// Compiles the step and puts the state in place; moments are zero. With a communicator in `how` this is one of several ranks, and
    /// `sizes` are those of all of them together: all ranks call the same methods in the same order.
    pub fn new(
        model: Model,
        adapter: Option<Adapter>,
        sizes: StepSizes,
        adam: AdamW,
        how: &How<'_>,
        backend: &dyn Backend,
    ) -> Result<Trainer> {
        let comm = how.comm.cloned();
        let started = Instant::now();
        if let Some(most) = model.max_sequence().filter(|most| sizes.seq > *most) {
            return Err(Error::Input(format!(
                "sequences of {} ids: the model takes at most {most}; give a smaller `--seq`",
                sizes.seq
            )));
        }
        if how.aim != Aim::Next && comm.as_ref().is_some_and(|comm| pipeline::axis(comm.mesh()).is_some()) {
            return Err(Error::Input(format!("`{}` can't be trained as a pipeline: leave out `pp`", how.aim.kind())));
        }
        // Ranks that don't share tokens sort each their own.
        let how = &How { groups: comm.as_ref().map_or(1, |comm| groups(comm.mesh())), ..*how };
        let Target { objective: mut target, heads: own_heads, summing } =
            objective(&model, adapter.as_ref(), how, sizes)?;
        let second = how.second(&model, adapter.is_some())?;
        let alone = comm.as_ref().is_none_or(|comm| comm.mesh().ranks() == 1);
        if !alone && !target.states.is_empty() {
            return Err(Error::Input(
                "delayed scaling keeps its history in one process: leave out `--mesh`, or write `scaling_strategy: dynamic`"
                    .into(),
            ));
        }
        if !alone && how.eight_bits {
            return Err(Error::Input(
                "moments in 8 bits are kept in one process: leave out `--mesh`, or `--optimizer-bits 8`".into(),
            ));
        }
        let heads = own_heads.len();
        let about = || -> Vec<About> {
            let whole = |_| About { shard: None, stacked: false };
            let adapted = adapter.iter().flat_map(|a| a.tensors()).map(|_| whole(()));
            let (own, rest): (Vec<_>, Vec<_>) =
                model.params.iter().partition(|param| adapter.is_none() && param.trainable);
            let own = adapted.chain(own.into_iter().map(About::of)).chain((0..heads).map(|_| whole(())));
            let theirs = second.iter().flat_map(|second| &second.params);
            own.chain(rest.into_iter().chain(theirs).map(About::of)).collect()
        };
        let comm = comm.filter(|comm| comm.mesh().ranks() > 1);
        let mut stages = None;
        // The trained tensors that this rank has, of all.
        let mut held: Vec<usize> = (0..target.trained.len()).collect();
        let mut division = match comm {
            None => None,
            Some(comm) if pipeline::axis(comm.mesh()).is_some() => {
                if adapter.is_some() {
                    return Err(Error::Input("an adapter can't be trained as a pipeline: leave out `pp`".into()));
                }
                let paths: Vec<String> = model.params.iter().map(|param| param.path.clone()).collect();
                let divided = pipeline::Divided::of(&target, &about(), &paths, comm, how.chunks.max(1))?;
                held = divided.held(divided.at());
                let types = divided.param_types(&target, &held);
                let division = divided.division.clone();
                stages = Some((divided, types));
                Some(division)
            }
            Some(comm) => Some(Division::of(&mut target, &about(), comm)?),
        };
        if let Some(division) = &mut division {
            division.sums.bucket = how.bucket.or(summing.bucket);
        }
        let n = held.len();
        let none = Sums::default();
        let sums = division.as_ref().map_or(&none, |d| &d.sums);
        let moments = step::moments(&target, how.eight_bits);
        let mut layout = Layout::of(&target, &moments, sizes.accumulate);
        let graph = match (&stages, &division) {
            (Some((divided, types)), _) => {
                let trained: Vec<_> = held.iter().map(|&i| target.trained[i]).collect();
                // Scalars follow what is fixed; gradients come from the stages.
                let moments = held.iter().map(|&i| moments[i].clone()).collect();
                layout = Layout { trained: n, moments, batch: 0, keyed: false, asserts: 0, ..layout };
                step::update_graph(types, &trained, &adam, &sums.of(&held), divided.ends())?
            }
            (None, Some(_)) => {
                let graph = step::graph(&target, &adam, sizes.accumulate, sums, &moments)?;
                arranged(&graph, summing.waits)?
            }
            (None, None) => step::graph(&target, &adam, sizes.accumulate, sums, &moments)?,
        };
        let program = train::Trainer::compile(&graph, &layout, backend)?;
        budget::fits("a step of training", needs(&program), "give a smaller `--batch` or `--seq`")?;
        let all = model.params.iter().enumerate();
        let (masters, fixed): (Vec<_>, Vec<_>) = all.partition(|(_, param)| adapter.is_none() && param.trainable);
        let part = |at: usize, ty: &Type, whole: Buffer| -> Result<Buffer> {
            let Some(division) = &division else { return Ok(whole) };
            let mut bytes = vec![0; ty.bytes()];
            whole.read(0, &mut bytes)?;
            Ok(upload(backend, &[division.part(&division.params[at], ty, &bytes)])?.remove(0))
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
                // Masters are what was read or drawn, not what it is rounded to where it is computed with.
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
            // As a fresh model's matrices.
            let mut random = Random::new(0, HEAD_STREAM + k as u64);
            let values: Vec<f32> = (0..ty.numel()).map(|_| 0.02 * random.normal() as f32).collect();
            let whole = upload(backend, &[to_bytes(&values, DType::F32)])?.remove(0);
            trained.push(part(names.len(), ty, whole)?);
            names.push((name.clone(), ty.clone()));
        }
        let fixed: Vec<_> = fixed.iter().map(|(i, _)| *i).collect();
        let mut kept: Vec<Buffer> = Vec::new();
        let theirs = |second: &Model| (0..second.params.len()).any(|i| second.parts_of(i) != 1);
        let packed = fixed.iter().any(|i| model.parts_of(*i) != 1) || second.is_some_and(theirs);
        match &division {
            None => kept.extend(model.upload_some(&fixed, backend)?),
            Some(_) if packed => {
                return Err(Error::Input(
                    "weights of few bits can't be divided among ranks: train in one process".into(),
                ));
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
        let core = train::Trainer::load(program, layout, target.plain.clone(), adam, values, backend)?;
        let pipeline = match &stages {
            Some((divided, _)) => {
                let first = core.inputs().len() - n;
                let gradients = &core.inputs()[first..];
                let types = &core.program().inputs[first..];
                Some(Pipeline::new(divided, sizes.accumulate, gradients, types, backend)?)
            }
            None => None,
        };
        // What is packed stays at hand for a merge; the rest is in the buffers.
        let keep = |i: usize| model.packed(i).map_or(Weight::Stored, |packed| Weight::Packed(packed.clone()));
        let weights = (0..model.params.len()).map(keep).collect();
        let model = Model { weights, checkpoint: None, ..model };
        Ok(Trainer {
            model,
            adapter,
            sizes,
            held: (0..names.len()).map(|i| held.iter().position(|h| *h == i)).collect(),
            names,
            core,
            pipeline,
            asserts: target.asserts,
            aim: how.aim,
            end: how.end,
            heads,
            keyed: target.keyed,
            division,
            compiled_in: started.elapsed(),
        })
    }
}
