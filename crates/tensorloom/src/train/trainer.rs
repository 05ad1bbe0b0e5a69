//! A module, its loss, and a run of both.

use super::objective::{Traced, objective};
use super::settings::Settings;
use super::task::{Fault, Steps, bytes_of};
use crate::nn::Module;
use crate::{Error, Result, Tensor, Tree, engine_of, no_grad, record};
use compiler::Backend;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use train::checkpoint::{self, Checkpoint, CheckpointMeta};
use train::report::RunMetadata;
use train::{DirLock, NoProgress, RunLog, TrainObserver, TrainRun, files};

/// A module with the loss that it is trained by.
///
/// The loss is a function of the module and a batch; it is recorded once and compiled with gradients, clipping and the optimiser
/// as one program. Layers that draw (`Dropout`) draw by a key of seed and step; running means change as they do in a loop of one's own.
pub struct Trainer<M, B, F> {
    module: M,
    loss: F,
    batch: PhantomData<fn(B)>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Steps done.
    pub step: usize,
    /// Whether all steps were done.
    pub complete: bool,
    /// The loss of the last step that this call took; NaN if it took none.
    pub loss: f32,
    /// The last loss of the held-out batches.
    pub valid: Option<f32>,
    /// Time of training, over all its parts.
    pub seconds: f64,
    /// The files that were written.
    pub files: Vec<PathBuf>,
}

impl<M: Module + Tree, B: Tree, F: Fn(&M, B) -> Tensor> Trainer<M, B, F> {
    /// A module and its loss on a batch, a float of rank 0.
    pub fn new(module: M, loss: F) -> Trainer<M, B, F> {
        Trainer { module, loss, batch: PhantomData }
    }

    /// The module, with what training has made of its tensors.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// The module alone.
    pub fn into_module(self) -> M {
        self.module
    }

    /// Trains on batches by their numbers, counted from 0, and writes what comes of it into the module's tensors and into the
    /// folder of the settings. `held_out` are batches that are never trained on.
    ///
    /// A batch must be a function of its number alone ([`crate::DataLoader::at`]): a run that goes on asks for those that are left.
    #[track_caller]
    pub fn run(&self, settings: &Settings, batches: impl Fn(u64) -> Result<B>, held_out: &[B]) -> Result<Finished> {
        let _here = record::here();
        self.run_with(settings, batches, held_out, &mut NoProgress)
    }

    /// The same with somebody who watches, and may stop it.
    #[track_caller]
    pub fn run_with(
        &self,
        settings: &Settings,
        batches: impl Fn(u64) -> Result<B>,
        held_out: &[B],
        observer: &mut dyn TrainObserver,
    ) -> Result<Finished> {
        let _here = record::here();
        let began = Instant::now();
        settings.check()?;
        let first = batches(0)?;
        let Traced { objective, params, buffers, fixed, batch: types } =
            objective(&self.module, &first, settings.accumulate, &self.loss)?;
        let data = fingerprint(&bytes_of(&first, &types, 0)?);
        let base = fingerprint(&[objective.loss.to_string().into_bytes()]);

        let fault = |e: train::Error| Fault::from(e).0;
        let checkpoints = settings.out.join("checkpoints");
        if settings.resume && !settings.out.is_dir() {
            let out = settings.out.display();
            return Err(record::error("Trainer", format!("{out}: no run to resume: the folder does not exist")));
        }
        files::create_dir_all(&settings.out).map_err(fault)?;
        let _lock = DirLock::acquire(&settings.out).map_err(fault)?;
        let start = self.start(settings, observer)?;
        checkpoint::remove_incomplete(&checkpoints);

        let owner = engine_of(&params[0].1);
        let backend = owner.backend(params[0].1.device());
        let upload = |tensors: &mut dyn Iterator<Item = &Tensor>| -> Result<Vec<train::Buffer>> {
            tensors.map(|t| upload(&backend, t)).collect()
        };
        let values = [
            upload(&mut params.iter().map(|(_, t)| t))?,
            upload(&mut buffers.iter().map(|(_, t)| t))?,
            upload(&mut fixed.iter())?,
        ];
        let core = train::TrainStep::new(&objective, settings.optimizer, settings.accumulate, values, &*backend);
        let core = core.map_err(fault)?.with_seed(settings.seed);
        let names = |list: &[(String, Tensor)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let (param_names, buffer_names) = (names(&params), names(&buffers));

        let lasting = settings.lasting();
        let map = lasting.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let mut at = CheckpointMeta {
            data_fingerprint: data,
            base_fingerprint: base,
            settings: map,
            ..CheckpointMeta::default()
        };
        let resumed = start.is_some();
        if let Some(checkpoint) = start {
            fits(&checkpoint.saved, &at)?;
            core.resume(&param_names, &buffer_names, &checkpoint).map_err(fault)?;
            at = checkpoint.saved;
            observer.on_message(&format!("resumed at step {} of {}", at.step, settings.steps));
        }
        let trained: usize = params.iter().map(|(_, t)| t.numel()).sum();
        let rows = types[0].shape.first().copied().unwrap_or(1);
        let program = core.program();
        let facts = RunMetadata {
            model: settings.name.clone(),
            parameters: trained + fixed.iter().chain(buffers.iter().map(|(_, t)| t)).map(Tensor::numel).sum::<usize>(),
            trainable_parameters: trained,
            backend: backend.name(),
            train_count: rows * settings.accumulate * settings.steps,
            valid_count: rows * held_out.len(),
            count_unit: "examples",
            speed_unit: "examples",
            learning_rate_name: "`rate`",
            planned_bytes: program.arena_bytes + program.inputs.iter().map(ir::Type::bytes).sum::<usize>(),
            settings: lasting.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
        };
        let held_out = held_out.iter().enumerate().map(|(i, batch)| bytes_of(batch, &types, i as u64));
        let held_out = held_out.collect::<Result<Vec<_>>>()?;
        let log = RunLog::resume(&settings.out, at.step, "examples").map_err(fault)?;
        let size = (settings.accumulate, (rows * settings.accumulate) as f64);
        let rate = settings.rate.clone();
        let mut run = TrainRun::new(settings.out.clone(), log, at, settings.cadence(), rate, size, facts, began);
        if let Some(port) = settings.live {
            run.serve_live_report(Some(port), observer).map_err(fault)?;
        }
        if settings.tensorboard {
            run.write_events().map_err(fault)?;
        }
        let mut steps = Steps {
            core,
            params: param_names,
            buffers: buffer_names,
            types,
            accumulate: settings.accumulate,
            backend: &*backend,
            batches: &batches,
            held_out,
        };
        let room = 3 * params.iter().map(|(_, t)| t.ty().bytes()).sum::<usize>();
        run.check_can_save(&steps, room, resumed, "free disk space, or give another folder `out`").map_err(fault)?;
        run.train(&mut steps, observer).map_err(|Fault(e)| e)?;
        let unsaved = run.save(&steps, observer);
        run.write_report(&steps, observer);
        run.update_live_report(true, true);

        let values = steps.values()?;
        no_grad(|| {
            params
                .iter()
                .chain(&buffers)
                .zip(&values)
                .try_for_each(|((_, t), value)| t.copy_(&engine_of(t).literal(value)).check())
        })?;
        let path = settings.out.join("model.safetensors");
        self.module.save(&path)?;
        if let Some(Fault(e)) = unsaved {
            return Err(e);
        }
        let mut written = vec![path];
        written.extend(["index.html", "log.jsonl"].map(|name| settings.out.join(name)));
        written.extend(checkpoint::list_checkpoints(&checkpoints).pop());
        let (step, complete, valid, seconds) = (run.at.step, run.is_complete(), run.valid_loss, run.at.seconds);
        Ok(Finished { step, complete, loss: run.loss, valid, seconds, files: written })
    }

    /// The checkpoint that a run goes on from; none where it begins, in a folder that holds no other.
    fn start(&self, settings: &Settings, observer: &mut dyn TrainObserver) -> Result<Option<Checkpoint>> {
        let fail = |reason: String| -> Error { record::error("Trainer", reason) };
        let (folder, out) = (settings.out.join("checkpoints"), settings.out.display());
        if !settings.resume {
            return match checkpoint::list_checkpoints(&folder).is_empty() {
                true => Ok(None),
                false => {
                    Err(fail(format!("{out} already contains a run: set `resume` to resume it, or give another `out`")))
                }
            };
        }
        let (found, faults) = checkpoint::latest(&folder);
        for fault in &faults {
            observer.on_message(&format!("warning: {}", fault.error()));
        }
        match (found, &faults[..]) {
            (Some(found), _) => Ok(Some(found)),
            (None, []) => Err(fail(format!("{out}: no run to resume: there is no checkpoint; remove `resume`"))),
            (None, faults) => {
                let all: Vec<String> = faults.iter().map(|fault| fault.error().to_string()).collect();
                Err(fail(format!("{out}: none of its checkpoints is usable ({})", all.join("; "))))
            }
        }
    }
}

/// Whether a run can go on from a checkpoint.
fn fits(saved: &CheckpointMeta, own: &CheckpointMeta) -> Result<()> {
    let fail = |reason: String| Err(record::error("Trainer", reason));
    if saved.base_fingerprint != own.base_fingerprint {
        return fail(
            "the module or its loss does not match the checkpoint: restore it, or start a new run with another `out`"
                .into(),
        );
    }
    if saved.data_fingerprint != own.data_fingerprint {
        return fail(
            "the first batch does not match the checkpoint: restore the data, or start a new run with another `out`"
                .into(),
        );
    }
    for (name, value) in &own.settings {
        if let Some(before) = saved.settings.get(name).filter(|before| *before != value) {
            return fail(format!(
                "`{name}` is {value}, but the run was started with {before}: restore it, or give another `out`"
            ));
        }
    }
    Ok(())
}

/// FNV-1a: enough to see that something has changed.
fn fingerprint(parts: &[Vec<u8>]) -> u32 {
    let all = parts.iter().flatten();
    all.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn upload(backend: &Arc<dyn Backend>, t: &Tensor) -> Result<train::Buffer> {
    let value = t.to_literal()?;
    let run = |e: compiler::Error| record::error("Trainer", e.to_string());
    let buffer = backend.alloc(value.bytes().len()).map_err(run)?;
    buffer.write(0, value.bytes()).map_err(run)?;
    Ok(buffer)
}
