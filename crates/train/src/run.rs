//! A run: steps one after another, with its log, validations, checkpoints and report, whatever is trained.

use crate::error::{Error, Result};
use crate::events::Events;
use crate::files;
use crate::live::Live;
use crate::log::{Entry, Log};
use crate::observer::{Observer, Progress, memory};
use crate::report::{self, Facts};
use crate::saved::{self, Saved};
use crate::schedule::Schedule;
use crate::trainer::StepResult;
use compiler::Timing;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Steps in a row whose gradient may be infinite or no number.
const BAD_STEPS: usize = 5;

/// How many steps there are, and what happens every so many of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cadence {
    /// Steps of the run.
    pub steps: usize,
    /// Steps between lines of the log.
    pub log_every: usize,
    /// Steps between validations.
    pub eval_every: usize,
    /// Steps between samples.
    pub sample_every: usize,
    /// Steps between checkpoints.
    pub checkpoint_every: usize,
    /// Checkpoints that are kept.
    pub keep: usize,
}

/// What a run trains.
pub trait Task {
    /// What goes wrong in it.
    type Error: From<Error> + Display;

    /// One step on the batch at the run's position, with kernels timed one by one if asked for.
    fn step(
        &mut self,
        at: &Saved,
        rate: f64,
        timed: bool,
    ) -> std::result::Result<(StepResult, Vec<Timing>), Self::Error>;

    /// The loss of the held-out part, if there is one.
    fn validate(&mut self) -> std::result::Result<Option<f32>, Self::Error>;

    /// Keeps what it starts from aside, so that the first step need not wait for a validation. Says whether it did.
    fn keep_start(&mut self) -> std::result::Result<bool, Self::Error> {
        Ok(false)
    }

    /// The loss of the held-out part with what was kept aside.
    fn validate_start(&mut self) -> std::result::Result<Option<f32>, Self::Error> {
        Ok(None)
    }

    /// Lengths of gradients and weights, layer by layer.
    fn norms(&mut self) -> std::result::Result<Vec<(String, f32, f32)>, Self::Error>;

    /// Something that shows what was learned, for people.
    fn sample(&mut self, _step: usize) -> std::result::Result<Option<String>, Self::Error> {
        Ok(None)
    }

    /// Writes a checkpoint into a folder, of which the newest `keep` stay.
    fn save(&self, folder: &std::path::Path, at: &Saved, keep: usize) -> std::result::Result<PathBuf, Self::Error>;

    /// Told where the time of a step goes.
    fn timed(&self, _timings: &[Timing], _watch: &mut dyn Observer) {}

    /// Whether all stop, of which one may want to.
    fn stops(&self, wanted: bool) -> std::result::Result<bool, Self::Error> {
        Ok(wanted)
    }

    /// Whether it is this process that writes for people.
    fn leads(&self) -> bool {
        true
    }
}

/// A run and where it stands.
pub struct Run {
    /// The folder of its files.
    pub out: PathBuf,
    /// How often what happens.
    pub cadence: Cadence,
    /// The learning rate.
    pub schedule: Schedule,
    /// Rows of a step, by which the position moves.
    pub rows: usize,
    /// What speed counts: tokens or examples of a step.
    pub counted: f64,
    /// Where it stands.
    pub at: Saved,
    /// The newest loss of the held-out part.
    pub valid: Option<f32>,
    /// The loss of the last step that was taken here.
    pub loss: f32,
    log: Log,
    timings: Vec<Timing>,
    facts: Facts,
    /// The report while the run goes on.
    live: Option<Live>,
    shown: Instant,
    events: Option<Events>,
    /// When it was asked for.
    began: Instant,
    /// The step of the newest checkpoint.
    saved_at: usize,
}

impl Run {
    /// A run at the place where it begins or goes on; its log is in `log`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of a run that its maker has in a form of its own")]
    pub fn new(
        out: PathBuf,
        log: Log,
        at: Saved,
        cadence: Cadence,
        schedule: Schedule,
        (rows, counted): (usize, f64),
        facts: Facts,
        began: Instant,
    ) -> Run {
        let saved_at = at.step;
        Run {
            out,
            cadence,
            schedule,
            rows,
            counted,
            at,
            valid: None,
            loss: f32::NAN,
            log,
            timings: Vec::new(),
            facts,
            live: None,
            shown: began,
            events: None,
            began,
            saved_at,
        }
    }

    /// Serves the report while the run goes on, on a port or a free one.
    pub fn serve(&mut self, port: Option<u16>, watch: &mut dyn Observer) -> Result<()> {
        let live = Live::start(port.filter(|port| *port > 0))?;
        watch.note(&format!("the report, while the run goes on: http://{}/", live.address()));
        self.live = Some(live);
        Ok(())
    }

    /// Writes TensorBoard's files too.
    pub fn write_events(&mut self) -> Result<()> {
        self.events = Some(Events::begin(&self.out, self.facts.speed)?);
        Ok(())
    }

    /// The folder of its checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.out.join("checkpoints")
    }

    /// Whether all steps were done.
    pub fn is_complete(&self) -> bool {
        self.at.step >= self.cadence.steps
    }

    /// The step of the newest checkpoint.
    pub fn saved_at(&self) -> usize {
        self.saved_at
    }

    /// Finds out now, not after hours, whether a checkpoint of so many bytes can be written. A new run has its first one, so that it
    /// can be resumed from then on.
    pub fn try_saving<T: Task>(&self, task: &T, bytes: usize, resumed: bool, remedy: &str) -> Result<()> {
        match resumed {
            true if !task.leads() => Ok(()),
            true => saved::try_room(&self.checkpoints(), bytes).map_err(|e| {
                let step = self.at.step;
                Error::Input(format!("checkpoint not written, the one of step {step} is kept: {e}; {remedy}"))
            }),
            false => {
                let written = task.save(&self.checkpoints(), &self.at, self.cadence.keep);
                written.map(|_| ()).map_err(|e| Error::Input(format!("no checkpoint could be written: {e}; {remedy}")))
            }
        }
    }

    /// Takes all steps that are left, or as many as there are until the observer stops it.
    pub fn train<T: Task>(&mut self, task: &mut T, watch: &mut dyn Observer) -> std::result::Result<(), T::Error> {
        let cadence = self.cadence;
        let (started, before) = (Instant::now(), self.at.seconds);
        let (mut bad, mut line_at, mut line_steps) = (0, Instant::now(), 0);
        let (mut speed, mut ran) = (0.0, 0);
        watch.begin(self.at.step, cadence.steps);
        self.show(true, false);
        let mut start_kept = false;
        if self.at.step > 0 {
            let entries = self.log.entries().iter().rev();
            self.valid =
                entries.filter_map(|e| if let Entry::Valid { loss, .. } = e { Some(*loss) } else { None }).next();
        } else {
            start_kept = task.keep_start()?;
            if !start_kept {
                let loss = task.validate()?;
                self.validated(0, loss)?;
            }
        }
        while self.at.step < cadence.steps && !task.stops(watch.stop())? {
            let (index, rate) = (self.at.step, self.schedule.rate(self.at.step));
            ran += 1;
            // One step of each run is timed kernel by kernel, after the first ones have warmed everything up.
            let timed = ran == 4 || self.timings.is_empty() && index + 1 == cadence.steps;
            let (result, timings) = task.step(&self.at, rate, timed)?;
            if timed {
                self.timings = timings;
                task.timed(&self.timings, watch);
            }
            bad = if result.norm.is_finite() { 0 } else { bad + 1 };
            if bad >= BAD_STEPS {
                return Err(T::Error::from(Error::Input(format!(
                    "the loss is {} at step {index}, {BAD_STEPS} steps in a row: resume from the last checkpoint with a smaller {}",
                    result.loss, self.facts.rate
                ))));
            }
            self.loss = result.loss;
            self.at.step += 1;
            self.at.position += self.rows as u64;
            self.at.since.0 += f64::from(result.loss);
            self.at.since.1 += 1;
            line_steps += 1;
            let step = self.at.step;
            let due = |every: usize| step.is_multiple_of(every) || step == cadence.steps;
            let loss = self.at.since.0 / self.at.since.1 as f64;
            let line = due(cadence.log_every) || step == 1;
            if line {
                speed = line_steps as f64 * self.counted / line_at.elapsed().as_secs_f64().max(1e-9);
                let (last, norm, memory) = (result.loss, result.norm, memory());
                self.note(Entry::Train { step, loss, last, norm, rate, speed, memory });
                let norms = task.norms()?;
                if !norms.is_empty() {
                    self.note(Entry::Layers { step, norms });
                }
                self.at.since = (0.0, 0);
            }
            if std::mem::take(&mut start_kept) {
                let seconds = self.began.elapsed().as_secs_f64();
                watch.note(&format!("first step after {seconds:.1} s, loss {:.4}", result.loss));
                let loss = task.validate_start()?;
                self.validated(0, loss)?;
            }
            if due(cadence.eval_every) {
                let loss = task.validate()?;
                self.validated(step, loss)?;
            }
            let left = (cadence.steps - step) as f64 * self.counted / f64::max(speed, 1e-9);
            let left = Duration::from_secs_f64(if speed > 0.0 { left } else { 0.0 });
            let (steps, valid) = (cadence.steps, self.valid);
            watch.step(&Progress { step, steps, loss, valid, speed, memory: memory(), left, line });
            if step.is_multiple_of(cadence.sample_every)
                && step < cadence.steps
                && let Some(text) = task.sample(step)?
            {
                watch.sample(step, &text);
                self.note(Entry::Sample { step, text });
            }
            self.at.seconds = before + started.elapsed().as_secs_f64();
            self.show(false, false);
            if step.is_multiple_of(cadence.checkpoint_every) && step < cadence.steps {
                self.save(task, watch);
                self.report(task, watch);
            }
            if line {
                (line_at, line_steps) = (Instant::now(), 0);
            }
        }
        Ok(())
    }

    /// A line of the log, for everyone who reads it.
    pub fn note(&mut self, entry: Entry) {
        if let Some(events) = &self.events {
            events.add(&entry);
        }
        self.log.add(entry);
    }

    /// Shows the report as it stands to those who watch; not more often than they could see.
    pub fn show(&mut self, now: bool, over: bool) {
        let Some(live) = &self.live else { return };
        if now || self.shown.elapsed() > Duration::from_millis(500) {
            let (page, numbers) =
                report::live(&self.facts, self.cadence.steps, self.log.entries(), &self.timings, self.at.seconds, over);
            live.show(page, numbers);
            self.shown = Instant::now();
        }
    }

    fn validated(&mut self, step: usize, loss: Option<f32>) -> Result<()> {
        let Some(loss) = loss else { return Ok(()) };
        self.valid = Some(loss);
        self.note(Entry::Valid { step, loss });
        if !loss.is_finite() {
            let remedy = match step {
                0 => "the model's weights, or the sizes given, are not usable".to_string(),
                _ => format!("resume from the last checkpoint with a smaller {}", self.facts.rate),
            };
            return Err(Error::Input(format!("the validation loss is {loss} at step {step}: {remedy}")));
        }
        Ok(())
    }

    /// Saves; if that fails, the older checkpoint is still there and training goes on.
    pub fn save<T: Task>(&mut self, task: &T, watch: &mut dyn Observer) -> Option<T::Error> {
        match task.save(&self.checkpoints(), &self.at, self.cadence.keep) {
            Ok(_) => {
                self.saved_at = self.at.step;
                None
            }
            Err(fault) => {
                let step = self.saved_at;
                watch.note(&format!("warning: checkpoint not written, the one of step {step} is kept: {fault}"));
                Some(fault)
            }
        }
    }

    /// Writes the report as it stands.
    pub fn report<T: Task>(&self, task: &T, watch: &mut dyn Observer) {
        if !task.leads() {
            return;
        }
        let path = self.out.join("index.html");
        let html = report::html(&self.facts, self.cadence.steps, self.log.entries(), &self.timings, self.at.seconds);
        if let Err(fault) = files::write(&path, html.as_bytes()) {
            watch.note(&format!("warning: {fault}"));
        }
    }
}
