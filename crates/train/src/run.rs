//! The training loop: steps, log, validation, checkpoints and report, independent of the model that is trained.

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

/// Maximum number of consecutive steps with a non-finite gradient.
const MAX_NONFINITE_STEPS: usize = 5;

/// The number of steps and the intervals between periodic events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intervals {
    /// Total number of steps.
    pub steps: usize,
    /// Steps between log entries.
    pub log_every: usize,
    /// Steps between validations.
    pub eval_every: usize,
    /// Steps between samples.
    pub sample_every: usize,
    /// Steps between checkpoints.
    pub checkpoint_every: usize,
    /// Number of checkpoints to keep.
    pub save_total_limit: usize,
}

/// The model-specific part of a training run.
pub trait TrainLoop {
    /// Its error type.
    type Error: From<Error> + Display;

    /// Runs one step on the batch at the run's position; with `timed`, each kernel is timed.
    fn step(
        &mut self,
        at: &CheckpointMeta,
        rate: f64,
        timed: bool,
    ) -> std::result::Result<(StepResult, Vec<Timing>), Self::Error>;

    /// Returns the validation loss, if there is a validation set.
    fn validate(&mut self) -> std::result::Result<Option<f32>, Self::Error>;

    /// Copies the initial parameters, so that the first step need not wait for a validation. Returns whether it did.
    fn snapshot_initial(&mut self) -> std::result::Result<bool, Self::Error> {
        Ok(false)
    }

    /// Returns the validation loss of the copied initial parameters.
    fn validate_initial(&mut self) -> std::result::Result<Option<f32>, Self::Error> {
        Ok(None)
    }

    /// Returns the norms of gradients and weights by layer.
    fn norms(&mut self) -> std::result::Result<Vec<(String, f32, f32)>, Self::Error>;

    /// Returns a sample of the model's output, for people.
    fn sample(&mut self, _step: usize) -> std::result::Result<Option<String>, Self::Error> {
        Ok(None)
    }

    /// Writes a checkpoint into a folder and keeps the newest `keep`.
    fn save(
        &self,
        folder: &std::path::Path,
        state: &CheckpointMeta,
        keep: usize,
    ) -> std::result::Result<PathBuf, Self::Error>;

    /// Receives the kernel times of a step.
    fn on_step_timings(&self, _timings: &[Timing], _watch: &mut dyn TrainObserver) {}

    /// Returns whether any rank wants to stop.
    fn any_rank_stops(&self, wanted: bool) -> std::result::Result<bool, Self::Error> {
        Ok(wanted)
    }

    /// Whether this process writes logs and reports.
    fn is_main_process(&self) -> bool {
        true
    }
}

/// The state of a training run.
pub struct TrainRun {
    /// The folder of the run's files.
    pub out: PathBuf,
    /// The intervals between periodic events.
    pub cadence: Intervals,
    /// The learning rate.
    pub schedule: Schedule,
    /// Number of sequences per step, by which the position advances.
    pub rows_per_step: usize,
    /// Tokens or examples per step, for the speed.
    pub counted_per_step: f64,
    /// The current position.
    pub at: CheckpointMeta,
    /// The latest validation loss.
    pub valid_loss: Option<f32>,
    /// The loss of the last step of this process.
    pub loss: f32,
    log: RunLog,
    timings: Vec<Timing>,
    metadata: RunMetadata,
    /// The server of the live report.
    live_server: Option<LiveServer>,
    last_shown: Instant,
    events: Option<TensorBoardWriter>,
    /// Start time of this process's part of the run.
    started_at: Instant,
    /// The step of the latest checkpoint.
    last_saved_step: usize,
}

impl TrainRun {
    /// Starts or resumes a run at a position; `log` holds its log.
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

    /// Serves the live report on a port, or on a free one.
    pub fn serve_live_report(&mut self, port: Option<u16>, watch: &mut dyn TrainObserver) -> Result<()> {
        let live = LiveServer::start(port.filter(|port| *port > 0))?;
        watch.on_message(&format!("dashboard: http://{}/", live.address()));
        self.live_server = Some(live);
        Ok(())
    }

    /// Also writes TensorBoard event files.
    pub fn write_events(&mut self) -> Result<()> {
        self.events = Some(TensorBoardWriter::create(&self.out, self.metadata.speed_unit)?);
        Ok(())
    }

    /// The folder of the checkpoints.
    pub fn checkpoint_dir(&self) -> PathBuf {
        self.out.join("checkpoints")
    }

    /// Whether all steps are completed.
    pub fn is_complete(&self) -> bool {
        self.at.step >= self.cadence.steps
    }

    /// The step of the latest checkpoint.
    pub fn last_saved_step(&self) -> usize {
        self.last_saved_step
    }

    /// Checks at the start whether a checkpoint of this size can be written. A new run writes its first checkpoint here, so that
    /// it can be resumed from then on.
    pub fn check_can_save<T: TrainLoop>(&self, task: &T, bytes: usize, resumed: bool, remedy: &str) -> Result<()> {
        match resumed {
            true if !task.is_main_process() => Ok(()),
            true => checkpoint::check_disk_space(&self.checkpoint_dir(), bytes).map_err(|e| {
                let step = self.at.step;
                Error::Input(format!("checkpoint not written, keeping the one of step {step}: {e}; {remedy}"))
            }),
            false => {
                let written = task.save(&self.checkpoint_dir(), &self.at, self.cadence.save_total_limit);
                written.map(|_| ()).map_err(|e| Error::Input(format!("cannot write a checkpoint: {e}; {remedy}")))
            }
        }
    }

    /// Runs all remaining steps, or until the observer stops the run.
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
            // One step per run is timed kernel by kernel, after a few warm-up steps.
            let timed = ran == 4 || self.timings.is_empty() && index + 1 == cadence.steps;
            let (result, timings) = task.step(&self.at, rate, timed)?;
            if timed {
                self.timings = timings;
                task.on_step_timings(&self.timings, watch);
            }
            bad = if result.grad_norm.is_finite() { 0 } else { bad + 1 };
            if bad >= MAX_NONFINITE_STEPS {
                return Err(T::Error::from(Error::Input(format!(
                    "the loss is {} at step {index}, after {MAX_NONFINITE_STEPS} such steps in a row: resume from the last \
                     checkpoint with a smaller {}",
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

    /// Writes a log entry to all logs.
    pub fn log_entry(&mut self, entry: LogEntry) {
        if let Some(events) = &self.events {
            events.write_entry(&entry);
        }
        self.log.add(entry);
    }

    /// Updates the live report, at a limited rate.
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
                0 => "the model's weights or sizes are not usable".to_string(),
                _ => format!("resume from the last checkpoint with a smaller {}", self.metadata.learning_rate_name),
            };
            return Err(Error::Input(format!("the validation loss is {loss} at step {step}: {remedy}")));
        }
        Ok(())
    }

    /// Writes a checkpoint; if that fails, the previous one is kept and training continues.
    pub fn save<T: TrainLoop>(&mut self, task: &T, watch: &mut dyn TrainObserver) -> Option<T::Error> {
        match task.save(&self.checkpoint_dir(), &self.at, self.cadence.save_total_limit) {
            Ok(_) => {
                self.last_saved_step = self.at.step;
                None
            }
            Err(fault) => {
                let step = self.last_saved_step;
                watch.on_message(&format!("warning: checkpoint not written, keeping the one of step {step}: {fault}"));
                Some(fault)
            }
        }
    }

    /// Writes the report of the run so far.
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
