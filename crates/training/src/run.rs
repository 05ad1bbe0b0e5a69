//! A run: steps one after another, with its log, validations, checkpoints and report, whatever is trained.

use crate::checkpoint::{self, CheckpointMeta};
use crate::error::{Error, Result};
use crate::files;
use crate::live_server::LiveServer;
use crate::log::{LogEntry, RunLog};
use crate::observer::{StepProgress, TrainObserver, resident_memory_bytes};
use crate::report::{self, RunMetadata};
use crate::schedule::Schedule;
use crate::tensorboard::TensorBoardWriter;
use crate::trainer::StepResult;
use compiler::Timing;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Steps in a row whose gradient may be infinite or no number.
const MAX_NONFINITE_STEPS: usize = 5;

/// How many steps there are, and what happens every so many of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intervals {
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
    pub save_total_limit: usize,
}

/// What a run trains.
pub trait TrainLoop {
    /// What goes wrong in it.
    type Error: From<Error> + Display;

    /// One step on the batch at the run's position, with kernels timed one by one if asked for.
    fn step(
        &mut self,
        at: &CheckpointMeta,
        rate: f64,
        timed: bool,
    ) -> std::result::Result<(StepResult, Vec<Timing>), Self::Error>;

    /// The loss of the held-out part, if there is one.
    fn validate(&mut self) -> std::result::Result<Option<f32>, Self::Error>;

    /// Keeps what it starts from aside, so that the first step need not wait for a validation. Says whether it did.
    fn snapshot_initial(&mut self) -> std::result::Result<bool, Self::Error> {
        Ok(false)
    }

    /// The loss of the held-out part with what was kept aside.
    fn validate_initial(&mut self) -> std::result::Result<Option<f32>, Self::Error> {
        Ok(None)
    }

    /// Lengths of gradients and weights, layer by layer.
    fn norms(&mut self) -> std::result::Result<Vec<(String, f32, f32)>, Self::Error>;

    /// Something that shows what was learned, for people.
    fn sample(&mut self, _step: usize) -> std::result::Result<Option<String>, Self::Error> {
        Ok(None)
    }

    /// Writes a checkpoint into a folder, of which the newest `keep` stay.
    fn save(
        &self,
        folder: &std::path::Path,
        state: &CheckpointMeta,
        keep: usize,
    ) -> std::result::Result<PathBuf, Self::Error>;

    /// Told where the time of a step goes.
    fn on_step_timings(&self, _timings: &[Timing], _watch: &mut dyn TrainObserver) {}

    /// Whether all stop, of which one may want to.
    fn any_rank_stops(&self, wanted: bool) -> std::result::Result<bool, Self::Error> {
        Ok(wanted)
    }

    /// Whether it is this process that writes for people.
    fn is_main_process(&self) -> bool {
        true
    }
}

/// A run and where it stands.
pub struct TrainRun {
    /// The folder of its files.
    pub out: PathBuf,
    /// How often what happens.
    pub cadence: Intervals,
    /// The learning rate.
    pub schedule: Schedule,
    /// Rows of a step, by which the position moves.
    pub rows_per_step: usize,
    /// What speed counts: tokens or examples of a step.
    pub counted_per_step: f64,
    /// Where it stands.
    pub at: CheckpointMeta,
    /// The newest loss of the held-out part.
    pub valid_loss: Option<f32>,
    /// The loss of the last step that was taken here.
    pub loss: f32,
    log: RunLog,
    timings: Vec<Timing>,
    metadata: RunMetadata,
    /// The report while the run goes on.
    live_server: Option<LiveServer>,
    last_shown: Instant,
    events: Option<TensorBoardWriter>,
    /// When it was asked for.
    started_at: Instant,
    /// The step of the newest checkpoint.
    last_saved_step: usize,
}

impl TrainRun {
    /// A run at the place where it begins or goes on; its log is in `log`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of a run that its maker has in a form of its own")]
    pub fn new(
        out: PathBuf,
        log: RunLog,
        at: CheckpointMeta,
        cadence: Intervals,
        schedule: Schedule,
        (rows, counted): (usize, f64),
        facts: RunMetadata,
        began: Instant,
    ) -> TrainRun {
        let saved_at = at.step;
        TrainRun {
            out,
            cadence,
            schedule,
            rows_per_step: rows,
            counted_per_step: counted,
            at,
            valid_loss: None,
            loss: f32::NAN,
            log,
            timings: Vec::new(),
            metadata: facts,
            live_server: None,
            last_shown: began,
            events: None,
            started_at: began,
            last_saved_step: saved_at,
        }
    }

    /// Serves the report while the run goes on, on a port or a free one.
    pub fn serve_live_report(&mut self, port: Option<u16>, watch: &mut dyn TrainObserver) -> Result<()> {
        let live = LiveServer::start(port.filter(|port| *port > 0))?;
        watch.on_message(&format!("the report, while the run goes on: http://{}/", live.address()));
        self.live_server = Some(live);
        Ok(())
    }

    /// Writes TensorBoard's files too.
    pub fn write_events(&mut self) -> Result<()> {
        self.events = Some(TensorBoardWriter::create(&self.out, self.metadata.speed_unit)?);
        Ok(())
    }

    /// The folder of its checkpoints.
    pub fn checkpoint_dir(&self) -> PathBuf {
        self.out.join("checkpoints")
    }

    /// Whether all steps were done.
    pub fn is_complete(&self) -> bool {
        self.at.step >= self.cadence.steps
    }

    /// The step of the newest checkpoint.
    pub fn last_saved_step(&self) -> usize {
        self.last_saved_step
    }

    /// Finds out now, not after hours, whether a checkpoint of so many bytes can be written. A new run has its first one, so that it
    /// can be resumed from then on.
    pub fn check_can_save<T: TrainLoop>(&self, task: &T, bytes: usize, resumed: bool, remedy: &str) -> Result<()> {
        match resumed {
            true if !task.is_main_process() => Ok(()),
            true => checkpoint::check_disk_space(&self.checkpoint_dir(), bytes).map_err(|e| {
                let step = self.at.step;
                Error::Input(format!("checkpoint not written, the one of step {step} is kept: {e}; {remedy}"))
            }),
            false => {
                let written = task.save(&self.checkpoint_dir(), &self.at, self.cadence.save_total_limit);
                written.map(|_| ()).map_err(|e| Error::Input(format!("no checkpoint could be written: {e}; {remedy}")))
            }
        }
    }

    /// Takes all steps that are left, or as many as there are until the observer stops it.
    pub fn train<T: TrainLoop>(
        &mut self,
        task: &mut T,
        watch: &mut dyn TrainObserver,
    ) -> std::result::Result<(), T::Error> {
        let cadence = self.cadence;
        let (started, before) = (Instant::now(), self.at.seconds);
        let (mut bad, mut line_at, mut line_steps) = (0, Instant::now(), 0);
        let (mut speed, mut ran) = (0.0, 0);
        watch.on_train_begin(self.at.step, cadence.steps);
        self.update_live_report(true, false);
        let mut start_kept = false;
        if self.at.step > 0 {
            let entries = self.log.entries().iter().rev();
            self.valid_loss =
                entries.filter_map(|e| if let LogEntry::Valid { loss, .. } = e { Some(*loss) } else { None }).next();
        } else {
            start_kept = task.snapshot_initial()?;
            if !start_kept {
                let loss = task.validate()?;
                self.record_validation(0, loss)?;
            }
        }
        while self.at.step < cadence.steps && !task.any_rank_stops(watch.should_stop())? {
            let (index, rate) = (self.at.step, self.schedule.value_at(self.at.step));
            ran += 1;
            // One step of each run is timed kernel by kernel, after the first ones have warmed everything up.
            let timed = ran == 4 || self.timings.is_empty() && index + 1 == cadence.steps;
            let (result, timings) = task.step(&self.at, rate, timed)?;
            if timed {
                self.timings = timings;
                task.on_step_timings(&self.timings, watch);
            }
            bad = if result.grad_norm.is_finite() { 0 } else { bad + 1 };
            if bad >= MAX_NONFINITE_STEPS {
                return Err(T::Error::from(Error::Input(format!(
                    "the loss is {} at step {index}, {MAX_NONFINITE_STEPS} steps in a row: resume from the last checkpoint with a smaller {}",
                    result.loss, self.metadata.learning_rate_name
                ))));
            }
            self.loss = result.loss;
            self.at.step += 1;
            self.at.sequences_seen += self.rows_per_step as u64;
            self.at.loss_since_log.0 += f64::from(result.loss);
            self.at.loss_since_log.1 += 1;
            line_steps += 1;
            let step = self.at.step;
            let due = |every: usize| step.is_multiple_of(every) || step == cadence.steps;
            let loss = self.at.loss_since_log.0 / self.at.loss_since_log.1 as f64;
            let line = due(cadence.log_every) || step == 1;
            if line {
                speed = line_steps as f64 * self.counted_per_step / line_at.elapsed().as_secs_f64().max(1e-9);
                let (last, norm, memory) = (result.loss, result.grad_norm, resident_memory_bytes());
                self.log_entry(LogEntry::Train { step, loss, last, norm, rate, speed, memory });
                let norms = task.norms()?;
                if !norms.is_empty() {
                    self.log_entry(LogEntry::Layers { step, norms });
                }
                self.at.loss_since_log = (0.0, 0);
            }
            if std::mem::take(&mut start_kept) {
                let seconds = self.started_at.elapsed().as_secs_f64();
                watch.on_message(&format!("first step after {seconds:.1} s, loss {:.4}", result.loss));
                let loss = task.validate_initial()?;
                self.record_validation(0, loss)?;
            }
            if due(cadence.eval_every) {
                let loss = task.validate()?;
                self.record_validation(step, loss)?;
            }
            let left = (cadence.steps - step) as f64 * self.counted_per_step / f64::max(speed, 1e-9);
            let left = Duration::from_secs_f64(if speed > 0.0 { left } else { 0.0 });
            let (steps, valid) = (cadence.steps, self.valid_loss);
            watch.on_step_end(&StepProgress {
                step,
                steps,
                loss,
                valid_loss: valid,
                speed,
                memory: resident_memory_bytes(),
                remaining: left,
                log_due: line,
            });
            if step.is_multiple_of(cadence.sample_every)
                && step < cadence.steps
                && let Some(text) = task.sample(step)?
            {
                watch.on_sample(step, &text);
                self.log_entry(LogEntry::Sample { step, text });
            }
            self.at.seconds = before + started.elapsed().as_secs_f64();
            self.update_live_report(false, false);
            if step.is_multiple_of(cadence.checkpoint_every) && step < cadence.steps {
                self.save(task, watch);
                self.write_report(task, watch);
            }
            if line {
                (line_at, line_steps) = (Instant::now(), 0);
            }
        }
        Ok(())
    }

    /// A line of the log, for everyone who reads it.
    pub fn log_entry(&mut self, entry: LogEntry) {
        if let Some(events) = &self.events {
            events.write_entry(&entry);
        }
        self.log.add(entry);
    }

    /// Shows the report as it stands to those who watch; not more often than they could see.
    pub fn update_live_report(&mut self, now: bool, over: bool) {
        let Some(live) = &self.live_server else { return };
        if now || self.last_shown.elapsed() > Duration::from_millis(500) {
            let (page, numbers) = report::render_live(
                &self.metadata,
                self.cadence.steps,
                self.log.entries(),
                &self.timings,
                self.at.seconds,
                over,
            );
            live.update(page, numbers);
            self.last_shown = Instant::now();
        }
    }

    fn record_validation(&mut self, step: usize, loss: Option<f32>) -> Result<()> {
        let Some(loss) = loss else { return Ok(()) };
        self.valid_loss = Some(loss);
        self.log_entry(LogEntry::Valid { step, loss });
        if !loss.is_finite() {
            let remedy = match step {
                0 => "the model's weights, or the sizes given, are not usable".to_string(),
                _ => format!("resume from the last checkpoint with a smaller {}", self.metadata.learning_rate_name),
            };
            return Err(Error::Input(format!("the validation loss is {loss} at step {step}: {remedy}")));
        }
        Ok(())
    }

    /// Saves; if that fails, the older checkpoint is still there and training goes on.
    pub fn save<T: TrainLoop>(&mut self, task: &T, watch: &mut dyn TrainObserver) -> Option<T::Error> {
        match task.save(&self.checkpoint_dir(), &self.at, self.cadence.save_total_limit) {
            Ok(_) => {
                self.last_saved_step = self.at.step;
                None
            }
            Err(fault) => {
                let step = self.last_saved_step;
                watch.on_message(&format!("warning: checkpoint not written, the one of step {step} is kept: {fault}"));
                Some(fault)
            }
        }
    }

    /// Writes the report as it stands.
    pub fn write_report<T: TrainLoop>(&self, task: &T, watch: &mut dyn TrainObserver) {
        if !task.is_main_process() {
            return;
        }
        let path = self.out.join("index.html");
        let html =
            report::render_html(&self.metadata, self.cadence.steps, self.log.entries(), &self.timings, self.at.seconds);
        if let Err(fault) = files::write(&path, html.as_bytes()) {
            watch.on_message(&format!("warning: {fault}"));
        }
    }
}
