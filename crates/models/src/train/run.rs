//! A run from settings to a saved model.

use super::classifier;
use super::events::Events;
use super::live::Live;
use super::log::{Entry, Log};
use super::profile::Profile;
use super::report::{self, Facts};
use super::saved::{self, Saved};
use super::settings::{NAMES, Settings};
use super::setup;
use super::source::Source;
use super::{Aim, Batch, How, Lock, StepSizes, Trainer};
use crate::adapter::Adapter;
use crate::chat::ChatTemplate;
use crate::disk::load_program;
use crate::error::{Error, Result};
use crate::files;
use crate::model::Model;
use crate::sample::Sampling;
use crate::tokenizer::Tokenizer;
use compiler::{Backend, Timing};
use dist::Comm;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a person who watches is told.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Steps of the run.
    pub steps: usize,
    /// Mean loss since the last line.
    pub loss: f64,
    /// The newest loss of the held-out part.
    pub valid: Option<f32>,
    /// Tokens a second.
    pub speed: f64,
    /// Memory of the process, in bytes.
    pub memory: u64,
    /// Time left.
    pub left: Duration,
    /// Whether a line of the log is due.
    pub line: bool,
}

/// Who watches a run.
pub trait Observer {
    /// Something worth a line.
    fn note(&mut self, text: &str);
    /// The data is being read: so many bytes of so many.
    fn reading(&mut self, _done: u64, _all: u64) {}
    /// Training begins.
    fn begin(&mut self, done: usize, steps: usize);
    /// A step is done.
    fn step(&mut self, progress: &Progress);
    /// A sample of the model so far.
    fn sample(&mut self, step: usize, text: &str);
    /// Whether to save and stop.
    fn stop(&self) -> bool;
}

/// Watches nothing and never stops.
pub struct Silent;

impl Observer for Silent {
    fn note(&mut self, _: &str) {}
    fn begin(&mut self, _: usize, _: usize) {}
    fn step(&mut self, _: &Progress) {}
    fn sample(&mut self, _: usize, _: &str) {}
    fn stop(&self) -> bool {
        false
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Steps done.
    pub step: usize,
    /// Whether all steps were done.
    pub complete: bool,
    /// The last loss of the held-out part.
    pub valid: Option<f32>,
    /// A text that the model wrote.
    pub story: String,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// Time of training, over all its parts.
    pub seconds: f64,
}

/// Steps in a row whose gradient may be infinite or no number.
const BAD_STEPS: usize = 5;

/// Trains as the settings say. With `resume`, goes on from the newest good checkpoint in the folder; `given` are the
/// names that were set on purpose, which must not contradict it.
pub fn run(
    settings: &Settings,
    resume: bool,
    given: &[String],
    backend: &dyn Backend,
    watch: &mut dyn Observer,
) -> Result<Finished> {
    run_on(settings, resume, given, backend, watch, None)
}

/// [`run`] as one of several ranks, which share the work as the mesh of `comm` says and see one folder. Rank 0 writes all
/// but its data; the backend must talk through `comm`.
pub fn run_on(
    settings: &Settings,
    resume: bool,
    given: &[String],
    backend: &dyn Backend,
    watch: &mut dyn Observer,
    comm: Option<Arc<Comm>>,
) -> Result<Finished> {
    settings.check()?;
    let mut settings = settings.clone();
    let checkpoints = settings.out.join("checkpoints");
    let leads = comm.as_ref().is_none_or(|comm| comm.rank() == 0);
    // A name that was mistyped must not become a folder.
    if resume && !settings.out.is_dir() {
        return Err(no_run(&settings.out));
    }
    if !resume {
        setup::possible(&settings)?;
    }
    files::make_folder(&settings.out)?;
    let _lock = if leads { Some(Lock::take(&settings.out)?) } else { None };
    if let Some(comm) = &comm {
        let alike: Vec<_> = settings.to_map().into_iter().filter(|(name, _)| name != "threads").collect();
        comm.agree(&format!("{alike:?} {resume} {given:?}")).map_err(|e| Error::Input(e.to_string()))?;
    }
    let mut start = None;
    if resume {
        if let Some(comm) = &comm {
            let names: Vec<_> =
                saved::list(&checkpoints).iter().filter_map(|p| Some(p.file_name()?.to_owned())).collect();
            comm.agree(&format!("{names:?}")).map_err(|e| {
                Error::Input(format!("{e}; all ranks must see the same checkpoints in {}", checkpoints.display()))
            })?;
        }
        let share = comm.as_ref().map_or((0, 1), |comm| (comm.rank(), comm.mesh().ranks()));
        let any = |bad: bool| match &comm {
            Some(comm) => comm.any(bad).map_err(|e| Error::Input(e.to_string())),
            None => Ok(bad),
        };
        let (found, faults) = saved::newest_shared(&checkpoints, share, &any)?;
        let Some(found) = found else {
            return Err(match faults.is_empty() {
                true => no_run(&settings.out),
                false => nothing_usable(&settings.out, &faults),
            });
        };
        for fault in &faults {
            watch.note(&format!("warning: {}", fault.error()));
        }
        if !faults.is_empty() {
            watch.note(&format!("going on from the last good checkpoint, step {}", found.saved.step));
        }
        settings = adopt(&settings, &found.saved, given)?;
        settings.check()?;
        start = Some(found);
    } else if leads && !saved::list(&checkpoints).is_empty() {
        return Err(Error::Input(format!(
            "{} already holds a run: add `--resume` to go on with it, or choose another `--out`",
            settings.out.display()
        )));
    } else if let Some(file) = WEIGHTS.iter().find(|name| leads && settings.out.join(name).exists()) {
        return Err(Error::Input(format!(
            "{} already holds a model ({file}), which a run would write over: choose another `--out`",
            settings.out.display()
        )));
    }
    if leads {
        saved::clean(&checkpoints);
    }
    Run::prepare(settings, start, backend, watch, comm)?.train(watch)
}

/// What a folder with a model in it has.
const WEIGHTS: &[&str] = &["model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"];

/// There is nothing to resume: what is there instead, and where a run is.
fn no_run(out: &Path) -> Error {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names.retain(|name| !name.starts_with('.'));
        names
    };
    let found = match out.is_dir() {
        false => "there is no such folder".to_string(),
        true => match &names(out)[..] {
            [] => "the folder is empty".to_string(),
            names => format!("no checkpoint among {}", names[..names.len().min(8)].join(", ")),
        },
    };
    // A name beside it that was meant, perhaps.
    let beside = out.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let runs: Vec<String> = names(beside)
        .into_iter()
        .filter(|name| !saved::list(&beside.join(name).join("checkpoints")).is_empty())
        .collect();
    let own = out.file_name().unwrap_or_default().to_string_lossy();
    let close = lang::suggest::closest(&own, runs.iter().map(String::as_str));
    let remedy = match (close, runs.last()) {
        (Some(name), _) => format!("did you mean {}?", beside.join(name).display()),
        (None, Some(name)) => format!("there is a run in {}", beside.join(name).display()),
        (None, None) => "leave out `--resume` to start one".to_string(),
    };
    Error::Input(format!("{}: no run to resume: {found}; {remedy}", out.display()))
}

/// There are checkpoints, and none of them is good.
fn nothing_usable(out: &Path, faults: &[saved::Fault]) -> Error {
    let faults: Vec<String> = faults.iter().map(|fault| fault.error().to_string()).collect();
    Error::Input(format!(
        "{}: none of its {} checkpoints can be used ({}); put a good one back, or start anew with another `--out`",
        out.display(),
        faults.len(),
        faults.join("; ")
    ))
}

/// The settings of a checkpoint, with those given anew that may change.
fn adopt(settings: &Settings, saved: &Saved, given: &[String]) -> Result<Settings> {
    let mut merged = settings.clone();
    for (name, may_change, _) in NAMES {
        let Some(before) = saved.settings.get(*name) else { continue };
        let is_given = given.iter().any(|g| g == name);
        if is_given && !may_change && settings.get(name) != *before {
            return Err(Error::Input(format!(
                "`--{name} {}` differs from the run's `{before}`: leave it out, or start anew with another `--out`",
                settings.get(name)
            )));
        }
        // The folder may have been moved, and machines differ in threads.
        if !is_given && !matches!(*name, "out" | "threads") {
            if *name == "set" {
                merged.set.clear();
            }
            merged.set(name, before)?;
        }
    }
    Ok(merged)
}

struct Run<'a> {
    settings: Settings,
    backend: &'a dyn Backend,
    tokenizer: Tokenizer,
    source: Source,
    trainer: Trainer,
    held_out: Vec<Batch>,
    log: Log,
    at: Saved,
    valid: Option<f32>,
    timings: Vec<Timing>,
    facts: Facts,
    /// The report while the run goes on.
    live: Option<Live>,
    shown: Instant,
    events: Option<Events>,
    /// Whether the model began with the run.
    fresh: bool,
    /// When the command was given.
    began: Instant,
}

impl<'a> Run<'a> {
    fn prepare(
        settings: Settings,
        start: Option<saved::Checkpoint>,
        backend: &'a dyn Backend,
        watch: &mut dyn Observer,
        comm: Option<Arc<Comm>>,
    ) -> Result<Run<'a>> {
        let began = Instant::now();
        let out = &settings.out.clone();
        // Each rank prepares its own data: all get the same.
        let rank = comm.as_ref().map_or(0, |comm| comm.rank());
        let own = out.join("ranks").join(rank.to_string());
        if rank > 0 {
            files::make_folder(&out.join("ranks"))?;
            files::make_folder(&own)?;
        }
        let folder = if rank == 0 { out.join("data") } else { own.join("data") };
        let texts = setup::texts(&settings, &folder, watch)?;
        let based_on = setup::based_on(&settings);
        let options = settings.adapter()?;
        let tokenizer = setup::tokenizer(&settings, based_on.as_deref(), &texts, start.is_some(), rank == 0, watch)?;
        let template = match &based_on {
            Some(dir) if dir.is_dir() => ChatTemplate::of_dir(dir)?,
            _ => ChatTemplate::plain(),
        };
        let model = match &based_on {
            Some(dir) => {
                let module = settings.module.as_deref().map(load_program).transpose()?;
                Model::load_by(dir, settings.dtype, module)?
            }
            None if settings.module.is_some() => {
                return Err(Error::Input("`--module` is for a HuggingFace directory: give that as `--model`".into()));
            }
            None => Model::fresh(setup::architecture(&settings, tokenizer.size())?, settings.dtype, settings.seed)?,
        };
        model.takes_ids().map_err(|e| Error::Input(format!("{e}; training is for models of ids")))?;
        if !matches!(settings.objective, Aim::Classify { .. } | Aim::Contrast { .. }) {
            model.scores_ids()?;
        }
        if let Some(known) = model.vocabulary().filter(|known| tokenizer.size() > *known) {
            return Err(Error::Input(format!(
                "the tokenizer has {} ids, but the model knows {known}: use the model's own tokenizer",
                tokenizer.size()
            )));
        }
        let vocabulary = model.vocabulary().unwrap_or(tokenizer.size());
        setup::takes(model.max_sequence(), settings.seq)?;
        let base = {
            // Every byte of a large model is looked at while the rest is made ready.
            let (dir, program) = (based_on.clone(), model.architecture.program.clone());
            std::thread::spawn(move || setup::base_fingerprint(dir.as_deref(), &program))
        };
        let source =
            Source::prepare(&settings, &texts, (&tokenizer, &template), vocabulary, &folder, &mut |done, all| {
                watch.reading(done, all);
                !watch.stop()
            })?;
        if source.left_out() > 0 {
            let left = thousands(source.left_out() as usize);
            watch.note(&format!("{left} examples have no answer within {} ids and are left out", settings.seq));
        }
        let mut settings = settings;
        if let Aim::Classify { classes: 0 } = settings.objective {
            settings.objective = Aim::Classify { classes: source.classes().len().max(2) };
        }
        let end = tokenizer.end();
        let held_out = source.held_out(settings.batch, settings.eval_batches)?;
        let adapter = match options {
            Some(options) => Some(Adapter::fresh(&model, &settings.model, options, settings.seed)?),
            None => None,
        };
        let sizes = StepSizes { rows: settings.batch, seq: settings.seq, accumulate: settings.grad_accum };
        let (name, parameters) = (model.architecture.name.clone(), model.parameter_count());
        if settings.isolate && end.is_none() {
            return Err(Error::Input("`--isolate` needs a tokenizer with a token that ends a text".into()));
        }
        let apart = end.filter(|_| settings.isolate);
        let recipe = crate::recipe::recipe(&settings.recipe)?;
        if recipe.is_some_and(|recipe| recipe.few.is_some()) {
            let how = match settings.device.starts_with("cuda") {
                true => "those of fp8 with one scale for each tensor are computed in it, others emulated",
                false => "that is emulated here, and no faster",
            };
            watch.note(&format!("products are rounded as `{}` says; {how}", settings.recipe));
        }
        let bits = settings.optimizer_bits.or(recipe.and_then(|recipe| recipe.optimizer_bits));
        let teacher = match &settings.teacher {
            Some(dir) => Some(Model::load(dir, settings.dtype)?),
            None => None,
        };
        let how = How {
            end: apart,
            recipe: recipe.as_ref(),
            eight_bits: bits == Some(8),
            chunks: settings.chunks,
            aim: settings.objective,
            second: teacher.as_ref(),
            ..How::default()
        };
        let trainer = Trainer::on(model, adapter, sizes, settings.adam(), &how, backend, comm.clone())?;
        let mut trainer = trainer.with_seed(settings.seed);
        let base = base.join().unwrap_or_else(|_| Err(Error::Input("the model could not be read".into())))?;
        let mut at = Saved { settings: settings.to_map(), data: source.fingerprint(), base, ..Saved::default() };
        let resumed = start.is_some();
        if let Some(comm) = &comm {
            let step = start.as_ref().map(|start| start.saved.step);
            comm.agree(&format!("{:?} {:?} {step:?}", at.data, at.base)).map_err(|e| Error::Input(e.to_string()))?;
        }
        if let Some(checkpoint) = start {
            let saved = &checkpoint.saved;
            if saved.base != at.base {
                return Err(Error::Input(format!(
                    "the model in {} is not the one that the run began with: put it back, or start anew with another `--out`",
                    settings.model
                )));
            }
            if saved.data != at.data {
                return Err(Error::Input(
                    "the data or the tokenizer is not the one of the checkpoint: put it back, or start anew with another `--out`"
                        .into(),
                ));
            }
            trainer.resume(&checkpoint)?;
            at = Saved { settings: settings.to_map(), ..checkpoint.saved };
            watch.note(&format!("resumed at step {} of {}", at.step, settings.steps));
        }
        let [train, valid] = source.counts();
        let trained = trainer.trained_count();
        watch.note(&format!(
            "model {name}: {} parameters{}, vocabulary {vocabulary}",
            thousands(parameters),
            if trained == parameters { String::new() } else { format!(", {} trained", thousands(trained)) },
        ));
        watch.note(&format!(
            "data: {} {} to train on, {} held out; a step takes {} tokens",
            thousands(train),
            source.unit(),
            thousands(valid),
            thousands(sizes.rows * sizes.seq * sizes.accumulate),
        ));
        let (in_place, state) = trainer.in_place();
        watch.note(&format!(
            "compiled in {:.2} s for {}: {:.1} MB planned, {in_place} of {state} state tensors updated in place",
            trainer.compiled_in.as_secs_f64(),
            backend.name(),
            trainer.planned_bytes() as f64 / 1e6,
        ));
        let log = Log::resume(if rank == 0 { out } else { &own }, at.step)?;
        if rank == 0 {
            files::write(&out.join("run.toml"), settings.to_toml().as_bytes())?;
        }
        let facts = Facts {
            model: name,
            parameters,
            trained,
            backend: backend.name(),
            train_tokens: train,
            valid_tokens: valid,
            unit: source.unit(),
            planned: trainer.planned_bytes(),
        };
        let live =
            settings.live.filter(|_| rank == 0).map(|port| Live::start(port.filter(|port| *port > 0))).transpose()?;
        if let Some(live) = &live {
            watch.note(&format!("the report, while the run goes on: http://{}/", live.address()));
        }
        let events = (settings.tensorboard && rank == 0).then(|| Events::begin(&settings.out)).transpose()?;
        let run = Run {
            settings,
            backend,
            tokenizer,
            source,
            trainer,
            held_out,
            log,
            at,
            valid: None,
            timings: Vec::new(),
            facts,
            live,
            shown: began,
            events,
            fresh: based_on.is_none(),
            began,
        };
        run.try_saving(resumed)?;
        Ok(run)
    }

    /// Finds out now, not after hours, whether a checkpoint can be written. A new run has its first one, so that it can be
    /// resumed from then on.
    fn try_saving(&self, resumed: bool) -> Result<()> {
        let folder = self.checkpoints();
        let remedy = "make room or give another `--out`";
        match resumed {
            true if !self.trainer.leads() => Ok(()),
            true => saved::try_room(&folder, 12 * self.trainer.trained_count()).map_err(|e| {
                let step = self.at.step;
                Error::Input(format!("checkpoint not written, the one of step {step} is kept: {e}; {remedy}"))
            }),
            false => {
                let written = self.trainer.save(&folder, &self.at, self.settings.keep);
                written.map(|_| ()).map_err(|e| Error::Input(format!("no checkpoint could be written: {e}; {remedy}")))
            }
        }
    }

    fn checkpoints(&self) -> PathBuf {
        self.settings.out.join("checkpoints")
    }

    fn train(mut self, watch: &mut dyn Observer) -> Result<Finished> {
        let settings = self.settings.clone();
        let rows = settings.batch * settings.grad_accum;
        let tokens_per_step = (rows * settings.seq) as f64;
        let (schedule, mut batch) = (settings.schedule(), Batch::default());
        let (started, before) = (Instant::now(), self.at.seconds);
        let (mut bad, mut line_at, mut line_steps) = (0, Instant::now(), 0);
        let (mut speed, mut ran) = (0.0, 0);
        let mut saved_at = self.at.step;
        watch.begin(self.at.step, settings.steps);
        self.show(true, false);
        // What an adapter starts from is little and kept aside, so that its first step need not wait for the validation.
        let mut before_first = None;
        if self.at.step == 0 && self.trainer.adapts() && !self.held_out.is_empty() {
            before_first = Some(self.trainer.trained_now(self.backend)?);
        } else if self.at.step == 0 {
            self.validate()?;
        } else {
            let entries = self.log.entries().iter().rev();
            self.valid =
                entries.filter_map(|e| if let Entry::Valid { loss, .. } = e { Some(*loss) } else { None }).next();
        }
        while self.at.step < settings.steps && !self.trainer.any(watch.stop())? {
            self.source.fill(self.at.position, rows, &mut batch)?;
            let (index, rate) = (self.at.step, schedule.rate(self.at.step));
            ran += 1;
            // One step of each run is timed kernel by kernel, after the first ones have warmed everything up.
            let result = if ran == 4 || self.timings.is_empty() && index + 1 == settings.steps {
                let (result, timings) = self.trainer.timed_step(&batch, rate, index)?;
                self.timings = timings;
                self.profile(watch);
                result
            } else {
                self.trainer.step(&batch, rate, index)?
            };
            bad = if result.norm.is_finite() { 0 } else { bad + 1 };
            if bad >= BAD_STEPS {
                return Err(Error::Input(format!(
                    "the loss is {} at step {index}, {BAD_STEPS} steps in a row: resume from the last checkpoint with a smaller `--lr`",
                    result.loss
                )));
            }
            self.at.step += 1;
            self.at.position += rows as u64;
            self.at.since.0 += f64::from(result.loss);
            self.at.since.1 += 1;
            line_steps += 1;
            let step = self.at.step;
            let due = |every: usize| step.is_multiple_of(every) || step == settings.steps;
            let first = step == 1;
            let loss = self.at.since.0 / self.at.since.1 as f64;
            let line = due(settings.log_every) || first;
            if line {
                speed = line_steps as f64 * tokens_per_step / line_at.elapsed().as_secs_f64().max(1e-9);
                let (last, norm, memory) = (result.loss, result.norm, memory());
                self.note(Entry::Train { step, loss, last, norm, rate, speed, memory });
                let norms = self.trainer.norms(self.backend)?;
                if !norms.is_empty() {
                    self.note(Entry::Layers { step, norms });
                }
                self.at.since = (0.0, 0);
            }
            if let Some(trained) = before_first.take() {
                watch.note(&format!(
                    "first step after {:.1} s, loss {:.4}",
                    self.began.elapsed().as_secs_f64(),
                    result.loss
                ));
                let loss = self.trainer.validate_with(&trained, &self.held_out, self.backend)?;
                self.validated(0, loss)?;
            }
            if due(settings.eval_every) {
                self.validate()?;
            }
            let left = (settings.steps - step) as f64 * tokens_per_step / f64::max(speed, 1e-9);
            let left = Duration::from_secs_f64(if speed > 0.0 { left } else { 0.0 });
            let progress =
                Progress { step, steps: settings.steps, loss, valid: self.valid, speed, memory: memory(), left, line };
            watch.step(&progress);
            if step.is_multiple_of(settings.sample_every) && step < settings.steps {
                let text = self.write_text(80, step as u64)?;
                watch.sample(step, &text);
                self.note(Entry::Sample { step, text });
            }
            self.at.seconds = before + started.elapsed().as_secs_f64();
            self.show(false, false);
            if step.is_multiple_of(settings.checkpoint_every) && step < settings.steps {
                self.save(watch, &mut saved_at);
                self.report(watch);
            }
            if line {
                (line_at, line_steps) = (Instant::now(), 0);
            }
        }
        self.finish(watch, &mut saved_at)
    }

    /// A line of the log, for everyone who reads it.
    fn note(&mut self, entry: Entry) {
        if let Some(events) = &self.events {
            events.add(&entry);
        }
        self.log.add(entry);
    }

    /// Shows the report as it stands to those who watch; not more often than they could see.
    fn show(&mut self, now: bool, over: bool) {
        let Some(live) = &self.live else { return };
        if now || self.shown.elapsed() > Duration::from_millis(500) {
            let (page, numbers) =
                report::live(&self.facts, &self.settings, self.log.entries(), &self.timings, self.at.seconds, over);
            live.show(page, numbers);
            self.shown = Instant::now();
        }
    }

    fn validate(&mut self) -> Result<()> {
        if self.held_out.is_empty() {
            return Ok(());
        }
        let loss = self.trainer.validate(&self.held_out, self.backend)?;
        self.validated(self.at.step, loss)
    }

    fn validated(&mut self, step: usize, loss: f32) -> Result<()> {
        self.valid = Some(loss);
        self.note(Entry::Valid { step, loss });
        if !loss.is_finite() {
            let remedy = match step {
                0 => "the model's weights, or the sizes given, are not usable",
                _ => "resume from the last checkpoint with a smaller `--lr`",
            };
            return Err(Error::Input(format!("the validation loss is {loss} at step {step}: {remedy}")));
        }
        Ok(())
    }

    /// Saves; if that fails, the older checkpoint is still there and training goes on.
    fn save(&self, watch: &mut dyn Observer, saved_at: &mut usize) -> Option<Error> {
        let keep = self.settings.keep;
        match self.trainer.save(&self.checkpoints(), &self.at, keep) {
            Ok(_) => {
                *saved_at = self.at.step;
                None
            }
            Err(fault) => {
                watch.note(&format!("warning: checkpoint not written, the one of step {saved_at} is kept: {fault}"));
                Some(fault)
            }
        }
    }

    /// Where the time of a step goes, if that is asked for.
    fn profile(&self, watch: &mut dyn Observer) {
        if !self.settings.profile || !self.trainer.leads() {
            return;
        }
        let profile = Profile::new(self.trainer.program(), &self.timings, self.backend);
        for (name, text) in [("profile.txt", profile.table()), ("profile.json", profile.trace())] {
            let path = self.settings.out.join(name);
            match files::write(&path, text.as_bytes()) {
                Ok(()) => watch.note(&format!("{} says where the time of a step goes", path.display())),
                Err(fault) => watch.note(&format!("warning: {fault}")),
            }
        }
    }

    fn report(&self, watch: &mut dyn Observer) {
        if !self.trainer.leads() {
            return;
        }
        let path = self.settings.out.join("index.html");
        let html = report::html(&self.facts, &self.settings, self.log.entries(), &self.timings, self.at.seconds);
        if let Err(fault) = files::write(&path, html.as_bytes()) {
            watch.note(&format!("warning: {fault}"));
        }
    }

    fn write_text(&self, most: usize, seed: u64) -> Result<String> {
        if !self.trainer.leads() {
            self.trainer.give_model()?;
            return Ok(String::new());
        }
        // Of several ranks one puts the parts together.
        let whole = if self.trainer.is_divided() { Some(self.trainer.model()?) } else { None };
        let mut prompt = self.tokenizer.encode(&self.settings.prompt)?;
        if prompt.is_empty() {
            prompt.push(self.tokenizer.end().unwrap_or(0));
        }
        let room = self.trainer.max_sequence().unwrap_or(usize::MAX).saturating_sub(prompt.len());
        if room == 0 {
            return Ok(self.settings.prompt.clone());
        }
        let sampling = Sampling { temperature: 0.7, top_p: 0.95, seed, ..Sampling::GREEDY };
        let end = self.tokenizer.end();
        let (most, mut goes_on) = (most.min(room), |id| Some(id) != end);
        let found = match &whole {
            Some(model) => model.generate_with(&prompt, most, &sampling, self.backend, &mut goes_on)?,
            None => self.trainer.write(&prompt, most, &sampling, self.backend, &mut goes_on)?,
        };
        let ids: Vec<i32> = prompt.into_iter().chain(found.ids.into_iter().filter(|id| Some(*id) != end)).collect();
        self.tokenizer.decode(&ids)
    }

    fn finish(mut self, watch: &mut dyn Observer, saved_at: &mut usize) -> Result<Finished> {
        let complete = self.at.step >= self.settings.steps;
        let unsaved = self.save(watch, saved_at);
        // A model that somebody else has trained is no storyteller, and may be large.
        let story = self.write_text(if self.fresh { 400 } else { 80 }, self.settings.seed)?;
        if complete {
            self.note(Entry::Sample { step: self.at.step, text: story.clone() });
        }
        self.report(watch);
        self.show(true, true);
        let out = self.settings.out.clone();
        let mut files = Vec::new();
        if !self.trainer.leads() {
            self.trainer.heads()?;
            match self.trainer.adapter()? {
                Some(_) => {}
                None => self.trainer.give_model()?,
            }
            let (step, valid, seconds) = (self.at.step, self.valid, self.at.seconds);
            return Ok(Finished { step, complete, valid, story, files, seconds });
        }
        let (heads, mut classes) = (self.trainer.heads()?, self.source.classes());
        if let Aim::Classify { classes: count } = self.settings.objective {
            (classes.len()..count).for_each(|i| classes.push(i.to_string()));
        }
        match self.trainer.adapter()? {
            Some(adapter) => {
                adapter.write(&out)?;
                if !heads.is_empty() {
                    classifier::beside_adapter(&heads, &classes, &out)?;
                    files.push(out.join("classes.json"));
                }
                files.extend([out.join("adapter_config.json"), out.join("adapter_model.safetensors")]);
            }
            None => {
                let mut model = self.trainer.model()?;
                model.set_end(self.tokenizer.end());
                match heads.is_empty() {
                    true => model.export(&out)?,
                    false => classifier::export(&model, &heads, &classes, self.tokenizer.end(), &out)?,
                }
                files.extend([out.join("config.json"), out.join("model.safetensors")]);
            }
        }
        files.extend(self.tokenizer.write(&out)?);
        files.extend(["index.html", "log.jsonl", "run.toml"].map(|name| out.join(name)));
        files.extend(saved::list(&out.join("checkpoints")).pop());
        let (step, valid, seconds) = (self.at.step, self.valid, self.at.seconds);
        if let Some(fault) = unsaved {
            return Err(Error::Input(format!(
                "the model of step {step} is in {}, but its checkpoint could not be written, so the run would resume at step {saved_at}: {fault}",
                out.display()
            )));
        }
        Ok(Finished { step, complete, valid, story, files, seconds })
    }
}

/// Memory of this process, in bytes, where the system tells.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A number with commas.
pub fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}
