//! Executes a training run from its settings to a saved model.

use super::classifier;
use super::profile::TrainStepProfile;
use super::settings::{SETTING_DESCRIPTIONS, TrainSettings, current_name, current_setting};
use super::setup;
use super::source::TrainData;
use super::{Batch, DirLock, LanguageModelTrainer, Objective, ObjectiveOptions, StepSizes};
use crate::adapter::Adapter;
use crate::chat::ChatTemplate;
use crate::companions::{self, FileSelection, ensure_no_model};
use crate::disk::load_program;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::SamplingOptions;
use crate::session::Buffer;
use crate::tokenizer::Tokenizer;
use compiler::{Backend, Timing};
use dist::Comm;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use train::checkpoint::{self, CheckpointMeta};
use train::report::RunMetadata;
use train::{Intervals, LogEntry, RunLog, StepResult, TrainLoop, TrainObserver, files, format_with_commas};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct TrainResult {
    /// Number of completed steps.
    pub step: usize,
    /// Whether all steps are completed.
    pub complete: bool,
    /// The last validation loss.
    pub valid_loss: Option<f32>,
    /// A sample of generated text.
    pub sample_text: String,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// Training time in seconds, including earlier parts of a resumed run.
    pub seconds: f64,
}

/// Trains as the settings specify. With `resume`, continues from the latest valid checkpoint in the folder; `given` are the names
/// of explicitly set options, which must not contradict it.
pub fn run(
    settings: &TrainSettings,
    resume: bool,
    given: &[String],
    backend: &dyn Backend,
    watch: &mut dyn TrainObserver,
) -> Result<TrainResult> {
    run_on_ranks(settings, resume, given, backend, watch, None)
}

/// [`run`] as one of several ranks, which share the work by the mesh of `comm` and see the same folder. Rank 0 writes all files
/// except the other ranks' data; the backend must use `comm` for collectives.
pub fn run_on_ranks(
    settings: &TrainSettings,
    resume: bool,
    given: &[String],
    backend: &dyn Backend,
    watch: &mut dyn TrainObserver,
    comm: Option<Arc<Comm>>,
) -> Result<TrainResult> {
    settings.check()?;
    let mut settings = settings.clone();
    let checkpoints = settings.out.join("checkpoints");
    let leads = comm.as_ref().is_none_or(|comm| comm.rank() == 0);
    // A mistyped name must not create a folder.
    if resume && !settings.out.is_dir() {
        return Err(no_run_error(&settings.out));
    }
    if !resume {
        setup::check_model_sizes(&settings)?;
    }
    files::create_dir_all(&settings.out)?;
    let _lock = if leads { Some(DirLock::acquire(&settings.out)?) } else { None };
    if let Some(comm) = &comm {
        let alike: Vec<_> = settings.to_map().into_iter().filter(|(name, _)| name != "threads").collect();
        comm.assert_same_on_all_ranks(&format!("{alike:?} {resume} {given:?}"))
            .map_err(|e| Error::Input(e.to_string()))?;
    }
    let mut start = None;
    if resume {
        if let Some(comm) = &comm {
            let names: Vec<_> = checkpoint::list_checkpoints(&checkpoints)
                .iter()
                .filter_map(|p| Some(p.file_name()?.to_owned()))
                .collect();
            comm.assert_same_on_all_ranks(&format!("{names:?}")).map_err(|e| {
                Error::Input(format!("{e}; all ranks must see the same checkpoints in {}", checkpoints.display()))
            })?;
        }
        let share = comm.as_ref().map_or((0, 1), |comm| (comm.rank(), comm.mesh().ranks()));
        let any = |bad: bool| match &comm {
            Some(comm) => comm.all_reduce_any(bad).map_err(|e| train::Error::Input(e.to_string())),
            None => Ok(bad),
        };
        let (found, faults) = checkpoint::latest_distributed(&checkpoints, share, &any)?;
        let Some(found) = found else {
            return Err(match faults.is_empty() {
                true => no_run_error(&settings.out),
                false => no_checkpoint_error(&settings.out, &faults),
            });
        };
        for fault in &faults {
            watch.on_message(&format!("warning: {}", fault.error()));
        }
        if !faults.is_empty() {
            watch.on_message(&format!("resuming from the last valid checkpoint, step {}", found.saved.step));
        }
        settings = merge_settings(&settings, &found.saved, given)?;
        settings.check()?;
        start = Some(found);
    } else if leads && !checkpoint::list_checkpoints(&checkpoints).is_empty() {
        return Err(Error::Input(format!(
            "{} already contains a run: add `--resume` to resume it, or choose another `--out`",
            settings.out.display()
        )));
    } else if leads {
        ensure_no_model(&settings.out)?;
    }
    if leads {
        checkpoint::remove_incomplete(&checkpoints);
    }
    let (mut texts, mut run) = LanguageModelTask::prepare(settings, start, backend, watch, comm)?;
    run.train(&mut texts, watch)?;
    texts.finish(run, watch)
}

/// The error if there is nothing to resume: what the folder contains, and where runs are.
fn no_run_error(out: &Path) -> Error {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names.retain(|name| !name.starts_with('.'));
        names
    };
    let found = match out.is_dir() {
        false => "the folder does not exist".to_string(),
        true => match &names(out)[..] {
            [] => "the folder is empty".to_string(),
            names => format!("no checkpoint among {}", names[..names.len().min(8)].join(", ")),
        },
    };
    // A similar name in the same folder may have been intended.
    let parent = out.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let runs: Vec<String> = names(parent)
        .into_iter()
        .filter(|name| !checkpoint::list_checkpoints(&parent.join(name).join("checkpoints")).is_empty())
        .collect();
    let own = out.file_name().unwrap_or_default().to_string_lossy();
    let close = lang::suggest::closest(&own, runs.iter().map(String::as_str));
    let remedy = match (close, runs.last()) {
        (Some(name), _) => format!("did you mean {}?", parent.join(name).display()),
        (None, Some(name)) => format!("there is a run in {}", parent.join(name).display()),
        (None, None) => "remove `--resume` to start one".to_string(),
    };
    Error::Input(format!("{}: no run to resume: {found}; {remedy}", out.display()))
}

/// The error if there are checkpoints and none of them is valid.
fn no_checkpoint_error(out: &Path, faults: &[checkpoint::CheckpointFault]) -> Error {
    let faults: Vec<String> = faults.iter().map(|fault| fault.error().to_string()).collect();
    Error::Input(format!(
        "{}: none of its {} checkpoints is usable ({}); restore a valid one, or start a new run with another `--out`",
        out.display(),
        faults.len(),
        faults.join("; ")
    ))
}

/// The settings of a checkpoint, with the explicitly given ones that may change.
fn merge_settings(settings: &TrainSettings, saved: &CheckpointMeta, given: &[String]) -> Result<TrainSettings> {
    let mut merged = settings.clone();
    let found: BTreeMap<String, String> = saved.settings.iter().map(|(k, v)| current_setting(k, v)).collect();
    for (name, may_change, _) in SETTING_DESCRIPTIONS {
        let Some(before) = found.get(*name) else { continue };
        let is_given = given.iter().any(|g| current_name(g) == *name);
        if is_given && !may_change && settings.get(name) != *before {
            return Err(Error::Input(format!(
                "`--{name} {}` differs from the run's `{before}`: remove it, or start a new run with another `--out`",
                settings.get(name)
            )));
        }
        // The folder may have been moved, and the number of threads may differ between machines.
        if !is_given && !matches!(*name, "out" | "threads") {
            if *name == "set" {
                merged.set.clear();
            }
            merged.set(name, before)?;
        }
    }
    Ok(merged)
}

/// A model that is trained on text.
struct LanguageModelTask<'a> {
    settings: TrainSettings,
    backend: &'a dyn Backend,
    tokenizer: Tokenizer,
    source: TrainData,
    trainer: LanguageModelTrainer,
    held_out: Vec<Batch>,
    batch: Batch,
    /// The initial adapter, until the first step is completed.
    start: Option<Vec<Buffer>>,
    /// Whether the model was newly initialized by this run.
    fresh: bool,
}

impl<'a> LanguageModelTask<'a> {
    fn prepare(
        settings: TrainSettings,
        start: Option<checkpoint::Checkpoint>,
        backend: &'a dyn Backend,
        watch: &mut dyn TrainObserver,
        comm: Option<Arc<Comm>>,
    ) -> Result<(LanguageModelTask<'a>, train::TrainRun)> {
        let began = Instant::now();
        let out = &settings.out.clone();
        // Each rank prepares its own data: all prepare the same.
        let rank = comm.as_ref().map_or(0, |comm| comm.rank());
        let own = out.join("ranks").join(rank.to_string());
        if rank > 0 {
            files::create_dir_all(&out.join("ranks"))?;
            files::create_dir_all(&own)?;
        }
        let folder = if rank == 0 { out.join("data") } else { own.join("data") };
        let texts = setup::open_documents(&settings, &folder, watch)?;
        let based_on = setup::base_model_path(&settings);
        let options = settings.adapter()?;
        let tokenizer =
            setup::prepare_tokenizer(&settings, based_on.as_deref(), &texts, start.is_some(), rank == 0, watch)?;
        let template = match &based_on {
            Some(dir) => ChatTemplate::from_dir(dir)?,
            _ => ChatTemplate::default_template(),
        };
        let model = match &based_on {
            Some(dir) => {
                let module = settings.module.as_deref().map(load_program).transpose()?;
                Model::load_with_module(dir, settings.dtype, module)?
            }
            None if settings.module.is_some() => {
                return Err(Error::Input("`--module` needs a HuggingFace directory as `--model`".into()));
            }
            None => {
                Model::new_random(setup::architecture(&settings, tokenizer.size())?, settings.dtype, settings.seed)?
            }
        };
        model
            .check_takes_token_ids()
            .map_err(|e| Error::Input(format!("{e}; training needs a model with token inputs")))?;
        if !matches!(settings.objective, Objective::Classify { .. } | Objective::Contrastive { .. }) {
            model.check_has_lm_head()?;
        }
        // A token that another file adds may exceed the model's embedding table; the tokens of the data are checked during tokenization.
        if let Some(known) = model.vocabulary().filter(|known| tokenizer.own_size() > *known) {
            return Err(Error::Input(format!(
                "the tokenizer has {} tokens, but the model's vocabulary has {known}: use the model's own tokenizer",
                tokenizer.own_size()
            )));
        }
        if tokenizer.eos_id().is_none() {
            watch.on_message(
                "warning: the tokenizer has no end-of-text token, so documents and completions have no end: set \
                 `eos_token` in the tokenizer_config.json next to tokenizer.json",
            );
        }
        let vocabulary = model.vocabulary().unwrap_or(tokenizer.size());
        setup::check_seq_len(model.max_sequence(), settings.seq)?;
        let base = {
            // The weights of a large model are verified in the background.
            let (dir, program) = (based_on.clone(), model.architecture.program.clone());
            std::thread::spawn(move || setup::base_fingerprint(dir.as_deref(), &program))
        };
        let source = TrainData::prepare(
            &settings,
            &texts,
            (&tokenizer, &template),
            (vocabulary, model.pooling.mode),
            &folder,
            &mut |done, all| {
                watch.on_data_progress(done, all);
                !watch.should_stop()
            },
        )?;
        if source.num_skipped() > 0 {
            let left = format_with_commas(source.num_skipped() as usize);
            watch.on_message(&format!(
                "{left} examples have no completion within {} tokens and are skipped",
                settings.seq
            ));
        }
        if source.num_misaligned() > 0 {
            let count = format_with_commas(source.num_misaligned() as usize);
            watch.on_message(&format!(
                "warning: in {count} examples, the tokens of prompt and completion together do not begin with the \
                 tokens of the prompt; training starts where they differ. End prompts at a token boundary, with the \
                 space before the completion"
            ));
        }
        let mut settings = settings;
        if let Objective::Classify { classes: 0 } = settings.objective {
            settings.objective = Objective::Classify { classes: source.classes().len().max(2) };
        }
        let end = tokenizer.eos_id();
        let held_out = source.validation_batches(settings.batch, settings.eval_batches)?;
        let adapter = match options {
            Some(options) => Some(Adapter::new_untrained(&model, &settings.model, options, settings.seed)?),
            None => None,
        };
        let sizes = StepSizes {
            micro_batch_size: settings.batch,
            seq_len: settings.seq,
            gradient_accumulation_steps: settings.grad_accum,
        };
        let (name, parameters) = (model.architecture.name.clone(), model.parameter_count());
        if settings.isolate && end.is_none() {
            return Err(Error::Input("`--document-mask` needs a tokenizer with an end-of-text token".into()));
        }
        let separator = end.filter(|_| settings.isolate);
        let recipe = crate::recipe::parse_recipe(&settings.recipe)?;
        if recipe.is_some_and(|recipe| recipe.operand_rounding.is_some()) {
            let how = match settings.device.starts_with("cuda") {
                true => "fp8 with one scale per tensor runs natively, other formats are emulated",
                false => "this is emulated on this device, without a speedup",
            };
            watch.on_message(&format!("matrix products use the precision of recipe `{}`; {how}", settings.recipe));
        }
        let bits = settings.optimizer_bits.or(recipe.and_then(|recipe| recipe.optimizer_bits));
        let teacher = match &settings.teacher {
            Some(dir) => Some(Model::load(dir, settings.dtype)?),
            None => None,
        };
        let how = ObjectiveOptions {
            end_id: separator,
            recipe: recipe.as_ref(),
            eight_bit_moments: bits == Some(8),
            chunks: settings.chunks,
            aim: settings.objective,
            second_model: teacher.as_ref(),
            comm: comm.as_ref(),
            ..ObjectiveOptions::default()
        };
        let trainer = LanguageModelTrainer::new(model, adapter, sizes, settings.adam(), &how, backend)?;
        let mut trainer = trainer.with_seed(settings.seed);
        let base = base.join().unwrap_or_else(|_| Err(Error::Input("the model could not be read".into())))?;
        let mut at = CheckpointMeta {
            settings: settings.to_map(),
            data_fingerprint: source.fingerprint(),
            base_fingerprint: base,
            ..CheckpointMeta::default()
        };
        let resumed = start.is_some();
        if let Some(comm) = &comm {
            let step = start.as_ref().map(|start| start.saved.step);
            comm.assert_same_on_all_ranks(&format!("{:?} {:?} {step:?}", at.data_fingerprint, at.base_fingerprint))
                .map_err(|e| Error::Input(e.to_string()))?;
        }
        if let Some(checkpoint) = start {
            let saved = &checkpoint.saved;
            if saved.base_fingerprint != at.base_fingerprint {
                return Err(Error::Input(format!(
                    "the model in {} does not match the checkpoint: restore it, or start a new run with another \
                     `--out`",
                    settings.model
                )));
            }
            if saved.data_fingerprint != at.data_fingerprint {
                return Err(Error::Input(
                    "the data or the tokenizer does not match the checkpoint: restore it, or start a new run with \
                     another `--out`"
                        .into(),
                ));
            }
            trainer.resume(&checkpoint)?;
            at = CheckpointMeta { settings: settings.to_map(), ..checkpoint.saved };
            watch.on_message(&format!("resumed at step {} of {}", at.step, settings.steps));
        }
        let [train, valid] = source.counts();
        let trained = trainer.trained_count();
        watch.on_message(&format!(
            "model {name}: {} parameters{}, vocabulary {vocabulary}",
            format_with_commas(parameters),
            if trained == parameters { String::new() } else { format!(", {} trained", format_with_commas(trained)) },
        ));
        watch.on_message(&format!(
            "data: {} training {}, {} for validation; {} tokens per step",
            format_with_commas(train),
            source.unit(),
            format_with_commas(valid),
            format_with_commas(sizes.micro_batch_size * sizes.seq_len * sizes.gradient_accumulation_steps),
        ));
        let (in_place, state) = trainer.in_place();
        watch.on_message(&format!(
            "compiled in {:.2} s for {}: {:.1} MB planned, {in_place} of {state} state tensors updated in place",
            trainer.compile_time.as_secs_f64(),
            backend.name(),
            trainer.planned_bytes() as f64 / 1e6,
        ));
        let log = RunLog::resume(if rank == 0 { out } else { &own }, at.step, "tokens")?;
        if rank == 0 {
            files::write(&out.join("run.toml"), settings.to_toml().as_bytes())?;
        }
        let facts = RunMetadata {
            model: name,
            parameters,
            trainable_parameters: trained,
            backend: backend.name(),
            train_count: train,
            valid_count: valid,
            count_unit: source.unit(),
            speed_unit: "tokens",
            learning_rate_name: "`--lr`",
            planned_bytes: trainer.planned_bytes(),
            settings: SETTING_DESCRIPTIONS.iter().map(|(name, ..)| (name.to_string(), settings.get(name))).collect(),
        };
        let cadence = Intervals {
            steps: settings.steps,
            log_every: settings.log_every,
            eval_every: settings.eval_every,
            sample_every: settings.sample_every,
            checkpoint_every: settings.checkpoint_every,
            save_total_limit: settings.keep,
        };
        let rows = settings.batch * settings.grad_accum;
        let size = (rows, (rows * settings.seq) as f64);
        let mut run = train::TrainRun::new(out.clone(), log, at, cadence, settings.schedule(), size, facts, began);
        if let Some(port) = settings.live.filter(|_| rank == 0) {
            run.serve_live_report(port, watch)?;
        }
        if settings.tensorboard && rank == 0 {
            run.write_events()?;
        }
        let (batch, start, fresh) = (Batch::default(), None, based_on.is_none());
        let texts = LanguageModelTask { settings, backend, tokenizer, source, trainer, held_out, batch, start, fresh };
        run.check_can_save(
            &texts,
            12 * texts.trainer.trained_count(),
            resumed,
            "free disk space or give another `--out`",
        )?;
        Ok((texts, run))
    }

    fn generate_sample(&self, most: usize, seed: u64) -> Result<String> {
        if !self.trainer.is_main_process() {
            self.trainer.join_model_gather()?;
            return Ok(String::new());
        }
        // With several ranks, the main rank gathers the shards.
        let whole = if self.trainer.is_sharded() { Some(self.trainer.model()?) } else { None };
        let mut prompt = self.tokenizer.encode(&self.settings.prompt)?;
        if prompt.is_empty() {
            let special = self.tokenizer.special_tokens();
            prompt.push(special.start.or(special.eos).unwrap_or(0));
        }
        let room = self.trainer.max_sequence().unwrap_or(usize::MAX).saturating_sub(prompt.len());
        if room == 0 {
            return Ok(self.settings.prompt.clone());
        }
        let sampling = SamplingOptions { temperature: 0.7, top_p: 0.95, seed, ..SamplingOptions::GREEDY };
        let stops = &self.tokenizer.special_tokens().eos_ids;
        let (most, mut goes_on) = (most.min(room), |id| !stops.contains(&id));
        let found = match &whole {
            Some(model) => model.generate_with(&prompt, most, &sampling, self.backend, &mut goes_on)?,
            None => self.trainer.generate_sample(&prompt, most, &sampling, self.backend, &mut goes_on)?,
        };
        let ids: Vec<i32> = prompt.into_iter().chain(found.ids.into_iter().filter(|id| !stops.contains(id))).collect();
        self.tokenizer.decode(&ids)
    }

    /// Copies the files beside the initial model's weights, except its tokenizer, and sets the special token IDs.
    fn copy_companion_files(
        &self,
        model: &mut Model,
        out: &Path,
        watch: &mut dyn TrainObserver,
    ) -> Result<Vec<PathBuf>> {
        let special = self.tokenizer.special_tokens();
        let Some(base) = setup::base_model_path(&self.settings) else {
            model.set_special_tokens(special);
            return Ok(Vec::new());
        };
        if crate::gguf::is_gguf(&base) {
            return crate::gguf::GgufFile::open(&base)?.write_companions(out);
        }
        let mut written = companions::copy(&base, out, FileSelection::NonTokenizer)?;
        let theirs = Tokenizer::from_dir(&base).ok();
        let named = |tokenizer: &Tokenizer| tokenizer.special_tokens().named.clone();
        let changed = match (&self.settings.tokenizer, &theirs) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(_), Some(theirs)) => {
                theirs.fingerprint()? != self.tokenizer.fingerprint()? || named(theirs) != named(&self.tokenizer)
            }
        };
        if changed {
            watch.on_message(
                "the tokenizer differs from the model's: its special tokens are written to config.json, and \
                 generation_config.json is not copied",
            );
            model.set_special_tokens(special);
            let path = out.join("generation_config.json");
            if path.is_file() {
                std::fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
            }
            written.retain(|file| *file != path);
        }
        Ok(written)
    }

    fn finish(self, mut run: train::TrainRun, watch: &mut dyn TrainObserver) -> Result<TrainResult> {
        let complete = run.is_complete();
        let unsaved = run.save(&self, watch);
        // For a pretrained model, which may be large and slow, the sample is short.
        let story = self.generate_sample(if self.fresh { 400 } else { 80 }, self.settings.seed)?;
        if complete {
            run.log_entry(LogEntry::Sample { step: run.at.step, text: story.clone() });
        }
        run.write_report(&self, watch);
        run.update_live_report(true, true);
        let (step, valid, seconds) = (run.at.step, run.valid_loss, run.at.seconds);
        let out = self.settings.out.clone();
        let mut files = Vec::new();
        if !self.trainer.is_main_process() {
            self.trainer.heads()?;
            match self.trainer.adapter()? {
                Some(_) => {}
                None => self.trainer.join_model_gather()?,
            }
            return Ok(TrainResult { step, complete, valid_loss: valid, sample_text: story, files, seconds });
        }
        let (heads, mut classes) = (self.trainer.heads()?, self.source.classes());
        if let Objective::Classify { classes: count } = self.settings.objective {
            (classes.len()..count).for_each(|i| classes.push(i.to_string()));
        }
        match self.trainer.adapter()? {
            Some(adapter) => {
                adapter.write(&out)?;
                if !heads.is_empty() {
                    classifier::write_with_adapter(&heads, &classes, &out)?;
                    files.push(out.join("classes.json"));
                }
                files.extend([out.join("adapter_config.json"), out.join("adapter_model.safetensors")]);
            }
            None => {
                let mut model = self.trainer.model()?;
                files.extend(self.copy_companion_files(&mut model, &out, watch)?);
                let special = self.tokenizer.special_tokens();
                match heads.is_empty() {
                    true => model.export(&out)?,
                    false => classifier::export(&model, &heads, &classes, special.pad.or(special.eos), &out)?,
                }
                files.extend([out.join("config.json"), out.join("model.safetensors")]);
            }
        }
        for file in self.tokenizer.write(&out)? {
            if !files.contains(&file) {
                files.push(file);
            }
        }
        files.extend(["index.html", "log.jsonl", "run.toml"].map(|name| out.join(name)));
        files.extend(checkpoint::list_checkpoints(&out.join("checkpoints")).pop());
        if let Some(fault) = unsaved {
            return Err(Error::Input(format!(
                "the model of step {step} was written to {}, but its checkpoint was not, so the run would resume at \
                 step {}: {fault}",
                out.display(),
                run.last_saved_step()
            )));
        }
        Ok(TrainResult { step, complete, valid_loss: valid, sample_text: story, files, seconds })
    }
}

impl TrainLoop for LanguageModelTask<'_> {
    type Error = Error;

    fn step(&mut self, at: &CheckpointMeta, rate: f64, timed: bool) -> Result<(StepResult, Vec<Timing>)> {
        let rows = self.settings.batch * self.settings.grad_accum;
        self.source.fill(at.sequences_seen, rows, &mut self.batch)?;
        match timed {
            true => self.trainer.timed_step(&self.batch, rate, at.step),
            false => Ok((self.trainer.step(&self.batch, rate, at.step)?, Vec::new())),
        }
    }

    fn validate(&mut self) -> Result<Option<f32>> {
        match self.held_out.is_empty() {
            true => Ok(None),
            false => self.trainer.validate(&self.held_out, self.backend).map(Some),
        }
    }

    /// The initial state of an adapter is small.
    fn snapshot_initial(&mut self) -> Result<bool> {
        if self.trainer.trains_adapter() && !self.held_out.is_empty() {
            self.start = Some(self.trainer.snapshot_params(self.backend)?);
        }
        Ok(self.start.is_some())
    }

    fn validate_initial(&mut self) -> Result<Option<f32>> {
        let Some(start) = self.start.take() else { return Ok(None) };
        self.trainer.validate_with(&start, &self.held_out, self.backend).map(Some)
    }

    fn norms(&mut self) -> Result<Vec<(String, f32, f32)>> {
        self.trainer.norms(self.backend)
    }

    fn sample(&mut self, step: usize) -> Result<Option<String>> {
        self.generate_sample(80, step as u64).map(Some)
    }

    fn save(&self, folder: &Path, at: &CheckpointMeta, keep: usize) -> Result<PathBuf> {
        self.trainer.save(folder, at, keep)
    }

    /// Reports the kernel times of a step, if they are requested.
    fn on_step_timings(&self, timings: &[Timing], watch: &mut dyn TrainObserver) {
        if !self.settings.profile || !self.trainer.is_main_process() {
            return;
        }
        let profile = TrainStepProfile::new(self.trainer.program(), timings, self.backend);
        for (name, text) in [("profile.txt", profile.table()), ("profile.json", profile.trace())] {
            let path = self.settings.out.join(name);
            match files::write(&path, text.as_bytes()) {
                Ok(()) => watch.on_message(&format!("wrote the profile of one step to {}", path.display())),
                Err(fault) => watch.on_message(&format!("warning: {fault}")),
            }
        }
    }

    fn any_rank_stops(&self, wanted: bool) -> Result<bool> {
        self.trainer.any_rank(wanted)
    }

    fn is_main_process(&self) -> bool {
        self.trainer.is_main_process()
    }
}
