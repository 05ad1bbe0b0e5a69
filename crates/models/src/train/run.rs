//! A run from settings to a saved model.

use super::classifier;
use super::profile::Profile;
use super::settings::{NAMES, Settings};
use super::setup;
use super::source::Source;
use super::{Aim, Batch, How, Lock, StepSizes, Trainer};
use crate::adapter::Adapter;
use crate::chat::ChatTemplate;
use crate::companions::{self, Part, ensure_no_model};
use crate::disk::load_program;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::sample::Sampling;
use crate::session::Buffer;
use crate::tokenizer::Tokenizer;
use compiler::{Backend, Timing};
use dist::Comm;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use train::report::Facts;
use train::saved::{self, Saved};
use train::{Cadence, Entry, Log, Observer, StepResult, Task, files, thousands};

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
            Some(comm) => comm.any(bad).map_err(|e| train::Error::Input(e.to_string())),
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
    } else if leads {
        ensure_no_model(&settings.out)?;
    }
    if leads {
        saved::clean(&checkpoints);
    }
    let (mut texts, mut run) = Texts::prepare(settings, start, backend, watch, comm)?;
    run.train(&mut texts, watch)?;
    texts.finish(run, watch)
}

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
    let parent = out.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let runs: Vec<String> = names(parent)
        .into_iter()
        .filter(|name| !saved::list(&parent.join(name).join("checkpoints")).is_empty())
        .collect();
    let own = out.file_name().unwrap_or_default().to_string_lossy();
    let close = lang::suggest::closest(&own, runs.iter().map(String::as_str));
    let remedy = match (close, runs.last()) {
        (Some(name), _) => format!("did you mean {}?", parent.join(name).display()),
        (None, Some(name)) => format!("there is a run in {}", parent.join(name).display()),
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

/// A model that is trained on texts.
struct Texts<'a> {
    settings: Settings,
    backend: &'a dyn Backend,
    tokenizer: Tokenizer,
    source: Source,
    trainer: Trainer,
    held_out: Vec<Batch>,
    batch: Batch,
    /// What an adapter starts from, until its first step is done.
    start: Option<Vec<Buffer>>,
    /// Whether the model began with the run.
    fresh: bool,
}

impl<'a> Texts<'a> {
    fn prepare(
        settings: Settings,
        start: Option<saved::Checkpoint>,
        backend: &'a dyn Backend,
        watch: &mut dyn Observer,
        comm: Option<Arc<Comm>>,
    ) -> Result<(Texts<'a>, train::Run)> {
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
            Some(dir) => ChatTemplate::of_dir(dir)?,
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
        // A token that another file adds may be beyond the model's table; the ids of the data are looked at when they are encoded.
        if let Some(known) = model.vocabulary().filter(|known| tokenizer.own_size() > *known) {
            return Err(Error::Input(format!(
                "the tokenizer has {} ids, but the model knows {known}: use the model's own tokenizer",
                tokenizer.own_size()
            )));
        }
        if tokenizer.end().is_none() {
            watch.note(
                "the tokenizer names no token that ends a text: documents and answers get none; name it as `eos_token` in the \
                 tokenizer_config.json beside tokenizer.json",
            );
        }
        let vocabulary = model.vocabulary().unwrap_or(tokenizer.size());
        setup::takes(model.max_sequence(), settings.seq)?;
        let base = {
            // Every byte of a large model is looked at while the rest is made ready.
            let (dir, program) = (based_on.clone(), model.architecture.program.clone());
            std::thread::spawn(move || setup::base_fingerprint(dir.as_deref(), &program))
        };
        let source = Source::prepare(
            &settings,
            &texts,
            (&tokenizer, &template),
            (vocabulary, model.pooling.mode),
            &folder,
            &mut |done, all| {
                watch.reading(done, all);
                !watch.stop()
            },
        )?;
        if source.left_out() > 0 {
            let left = thousands(source.left_out() as usize);
            watch.note(&format!("{left} examples have no answer within {} ids and are left out", settings.seq));
        }
        if source.crossed() > 0 {
            let count = thousands(source.crossed() as usize);
            watch.note(&format!(
                "in {count} examples the prompt and the answer together don't begin with the tokens of the prompt alone; the answer is \
                 learned from where they differ. End prompts where a token ends: with the space in front of the answer"
            ));
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
        let separator = end.filter(|_| settings.isolate);
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
            end: separator,
            recipe: recipe.as_ref(),
            eight_bits: bits == Some(8),
            chunks: settings.chunks,
            aim: settings.objective,
            second: teacher.as_ref(),
            comm: comm.as_ref(),
            ..How::default()
        };
        let trainer = Trainer::new(model, adapter, sizes, settings.adam(), &how, backend)?;
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
        let log = Log::resume(if rank == 0 { out } else { &own }, at.step, "tokens")?;
        if rank == 0 {
            files::write(&out.join("run.toml"), settings.to_toml().as_bytes())?;
        }
        let facts = Facts {
            model: name,
            parameters,
            trained,
            backend: backend.name(),
            train,
            valid,
            unit: source.unit(),
            speed: "tokens",
            rate: "`--lr`",
            planned: trainer.planned_bytes(),
            settings: NAMES.iter().map(|(name, ..)| (name.to_string(), settings.get(name))).collect(),
        };
        let cadence = Cadence {
            steps: settings.steps,
            log_every: settings.log_every,
            eval_every: settings.eval_every,
            sample_every: settings.sample_every,
            checkpoint_every: settings.checkpoint_every,
            keep: settings.keep,
        };
        let rows = settings.batch * settings.grad_accum;
        let size = (rows, (rows * settings.seq) as f64);
        let mut run = train::Run::new(out.clone(), log, at, cadence, settings.schedule(), size, facts, began);
        if let Some(port) = settings.live.filter(|_| rank == 0) {
            run.serve(port, watch)?;
        }
        if settings.tensorboard && rank == 0 {
            run.write_events()?;
        }
        let (batch, start, fresh) = (Batch::default(), None, based_on.is_none());
        let texts = Texts { settings, backend, tokenizer, source, trainer, held_out, batch, start, fresh };
        run.try_saving(&texts, 12 * texts.trainer.trained_count(), resumed, "make room or give another `--out`")?;
        Ok((texts, run))
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
            let special = self.tokenizer.special_tokens();
            prompt.push(special.start.or(special.eos).unwrap_or(0));
        }
        let room = self.trainer.max_sequence().unwrap_or(usize::MAX).saturating_sub(prompt.len());
        if room == 0 {
            return Ok(self.settings.prompt.clone());
        }
        let sampling = Sampling { temperature: 0.7, top_p: 0.95, seed, ..Sampling::GREEDY };
        let stops = &self.tokenizer.special_tokens().stops;
        let (most, mut goes_on) = (most.min(room), |id| !stops.contains(&id));
        let found = match &whole {
            Some(model) => model.generate_with(&prompt, most, &sampling, self.backend, &mut goes_on)?,
            None => self.trainer.write(&prompt, most, &sampling, self.backend, &mut goes_on)?,
        };
        let ids: Vec<i32> = prompt.into_iter().chain(found.ids.into_iter().filter(|id| !stops.contains(id))).collect();
        self.tokenizer.decode(&ids)
    }

    /// What lies beside the weights of the model that the run began with, except its tokenizer, and the ids of special tokens.
    fn companions(&self, model: &mut Model, out: &Path, watch: &mut dyn Observer) -> Result<Vec<PathBuf>> {
        let special = self.tokenizer.special_tokens();
        let Some(base) = setup::based_on(&self.settings) else {
            model.set_special_tokens(special);
            return Ok(Vec::new());
        };
        if crate::gguf::is_gguf(&base) {
            return crate::gguf::Gguf::open(&base)?.write_companions(out);
        }
        let mut written = companions::copy(&base, out, Part::Others)?;
        let theirs = Tokenizer::of_dir(&base).ok();
        let named = |tokenizer: &Tokenizer| tokenizer.special_tokens().named.clone();
        let changed = match (&self.settings.tokenizer, &theirs) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(_), Some(theirs)) => {
                theirs.fingerprint()? != self.tokenizer.fingerprint()? || named(theirs) != named(&self.tokenizer)
            }
        };
        if changed {
            watch.note("the tokenizer is not the model's: its special tokens are written to config.json, and generation_config.json is left out");
            model.set_special_tokens(special);
            let path = out.join("generation_config.json");
            if path.is_file() {
                std::fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
            }
            written.retain(|file| *file != path);
        }
        Ok(written)
    }

    fn finish(self, mut run: train::Run, watch: &mut dyn Observer) -> Result<Finished> {
        let complete = run.is_complete();
        let unsaved = run.save(&self, watch);
        // A model that somebody else has trained is no storyteller, and may be large.
        let story = self.write_text(if self.fresh { 400 } else { 80 }, self.settings.seed)?;
        if complete {
            run.note(Entry::Sample { step: run.at.step, text: story.clone() });
        }
        run.report(&self, watch);
        run.show(true, true);
        let (step, valid, seconds) = (run.at.step, run.valid, run.at.seconds);
        let out = self.settings.out.clone();
        let mut files = Vec::new();
        if !self.trainer.leads() {
            self.trainer.heads()?;
            match self.trainer.adapter()? {
                Some(_) => {}
                None => self.trainer.give_model()?,
            }
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
                    classifier::write_with_adapter(&heads, &classes, &out)?;
                    files.push(out.join("classes.json"));
                }
                files.extend([out.join("adapter_config.json"), out.join("adapter_model.safetensors")]);
            }
            None => {
                let mut model = self.trainer.model()?;
                files.extend(self.companions(&mut model, &out, watch)?);
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
        files.extend(saved::list(&out.join("checkpoints")).pop());
        if let Some(fault) = unsaved {
            return Err(Error::Input(format!(
                "the model of step {step} is in {}, but its checkpoint could not be written, so the run would resume at step {}: {fault}",
                out.display(),
                run.saved_at()
            )));
        }
        Ok(Finished { step, complete, valid, story, files, seconds })
    }
}

impl Task for Texts<'_> {
    type Error = Error;

    fn step(&mut self, at: &Saved, rate: f64, timed: bool) -> Result<(StepResult, Vec<Timing>)> {
        let rows = self.settings.batch * self.settings.grad_accum;
        self.source.fill(at.position, rows, &mut self.batch)?;
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

    /// What an adapter starts from is little.
    fn keep_start(&mut self) -> Result<bool> {
        if self.trainer.adapts() && !self.held_out.is_empty() {
            self.start = Some(self.trainer.trained_now(self.backend)?);
        }
        Ok(self.start.is_some())
    }

    fn validate_start(&mut self) -> Result<Option<f32>> {
        let Some(start) = self.start.take() else { return Ok(None) };
        self.trainer.validate_with(&start, &self.held_out, self.backend).map(Some)
    }

    fn norms(&mut self) -> Result<Vec<(String, f32, f32)>> {
        self.trainer.norms(self.backend)
    }

    fn sample(&mut self, step: usize) -> Result<Option<String>> {
        self.write_text(80, step as u64).map(Some)
    }

    fn save(&self, folder: &Path, at: &Saved, keep: usize) -> Result<PathBuf> {
        self.trainer.save(folder, at, keep)
    }

    /// Where the time of a step goes, if that is asked for.
    fn timed(&self, timings: &[Timing], watch: &mut dyn Observer) {
        if !self.settings.profile || !self.trainer.leads() {
            return;
        }
        let profile = Profile::new(self.trainer.program(), timings, self.backend);
        for (name, text) in [("profile.txt", profile.table()), ("profile.json", profile.trace())] {
            let path = self.settings.out.join(name);
            match files::write(&path, text.as_bytes()) {
                Ok(()) => watch.note(&format!("{} says where the time of a step goes", path.display())),
                Err(fault) => watch.note(&format!("warning: {fault}")),
            }
        }
    }

    fn stops(&self, wanted: bool) -> Result<bool> {
        self.trainer.any(wanted)
    }

    fn leads(&self) -> bool {
        self.trainer.leads()
    }
}
