//! The thread that runs a model: takes prompts from a bounded queue, lets rows grow, hands tokens out.
//!
//! Between two steps of the batch prompts are run for about as long as a step takes, so that neither waits for the other for
//! long.

use crate::metrics::{Metrics, count, uncount};
use models::{Constraint, History, Random, Sampling, Slots, log_probabilities};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// What an engine may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Prompts that wait for a row, at most.
    pub queue: usize,
}

/// A sequence that is asked for.
pub(crate) struct Job {
    pub(crate) prompt: Vec<i32>,
    pub(crate) adapter: usize,
    /// New ids at most.
    pub(crate) most: usize,
    pub(crate) sampling: Sampling,
    /// Added to logits.
    pub(crate) bias: Vec<(i32, f32)>,
    /// Ids that end the text.
    pub(crate) ends: Vec<i32>,
    /// How many of the most probable tokens are told, where probabilities are.
    pub(crate) logprobs: Option<usize>,
    pub(crate) constraint: Option<Constraint>,
    pub(crate) events: mpsc::Sender<Event>,
    /// Set by who listens before it hears no more because it has all that it wants.
    pub(crate) enough: Arc<AtomicBool>,
    pub(crate) arrived: Instant,
}

/// What happens to a sequence.
#[derive(Debug)]
pub(crate) enum Event {
    Token { id: i32, logprob: Option<Told> },
    End(Finish),
    Failed(String),
}

/// The logarithm of a token's probability, and the most probable ones.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) own: f64,
    pub(crate) top: Vec<(i32, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
}

pub(crate) enum Task {
    Generate(Box<Job>),
    Embed { ids: Vec<i32>, adapter: usize, reply: oneshot::Sender<std::result::Result<Vec<f32>, String>> },
}

/// Why a task was not taken.
pub(crate) enum Refused {
    Full,
    Stopped,
}

/// How tasks get to an engine.
#[derive(Clone)]
pub(crate) struct Handle {
    tasks: SyncSender<Task>,
    stop: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl Handle {
    pub(crate) fn submit(&self, task: Task) -> std::result::Result<(), Refused> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Refused::Stopped);
        }
        count(&self.metrics.waiting, 1);
        self.tasks.try_send(task).map_err(|refused| {
            uncount(&self.metrics.waiting, 1);
            match refused {
                std::sync::mpsc::TrySendError::Full(_) => Refused::Full,
                std::sync::mpsc::TrySendError::Disconnected(_) => Refused::Stopped,
            }
        })
    }

    /// Ends everything at the next step.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Starts the thread of a model.
pub(crate) fn start(
    slots: Slots,
    options: EngineOptions,
    metrics: Arc<Metrics>,
) -> std::io::Result<(Handle, std::thread::JoinHandle<()>)> {
    let (tasks, queue) = sync_channel(options.queue.max(1));
    let stop = Arc::new(AtomicBool::new(false));
    let handle = Handle { tasks, stop: stop.clone(), metrics: metrics.clone() };
    let mut engine = Engine { slots, queue, stop, metrics, rows: Vec::new(), prompt: None, last_step: Duration::ZERO };
    let thread = std::thread::Builder::new().name("engine".into()).spawn(move || engine.run())?;
    Ok((handle, thread))
}

/// A sequence with what it needs to go on.
struct Growing {
    job: Job,
    random: Random,
    history: History,
    new: usize,
    next: i32,
}

struct Engine {
    slots: Slots,
    queue: Receiver<Task>,
    stop: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    /// By row.
    rows: Vec<Growing>,
    /// The prompt that is being run.
    prompt: Option<Job>,
    last_step: Duration,
}

impl Engine {
    fn run(&mut self) {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return self.end_all();
            }
            let idle = self.rows.is_empty() && self.prompt.is_none();
            if idle {
                // Nothing to do until somebody asks; looks up now and then, whether to stop.
                match self.queue.recv_timeout(Duration::from_millis(100)) {
                    Ok(task) => self.take(task),
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => continue,
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                }
            }
            let started = Instant::now();
            loop {
                self.fetch();
                if self.prompt.is_none() {
                    break;
                }
                self.advance();
                if !self.rows.is_empty() && started.elapsed() >= self.last_step {
                    break;
                }
            }
            self.step();
        }
    }

    /// Takes tasks until there is a prompt to run.
    fn fetch(&mut self) {
        while self.prompt.is_none() && self.slots.has_room() {
            match self.queue.try_recv() {
                Ok(task) => self.take(task),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    fn take(&mut self, task: Task) {
        uncount(&self.metrics.waiting, 1);
        match task {
            Task::Embed { ids, adapter, reply } => {
                if !reply.is_closed() {
                    count(&self.metrics.prompt_tokens, ids.len() as u64);
                    let _ = reply.send(self.slots.embed(&ids, adapter).map_err(|e| e.to_string()));
                }
            }
            Task::Generate(job) if job.events.is_closed() => {
                self.gone(&job);
                drop(job);
            }
            Task::Generate(job) => match self.slots.begin(&job.prompt, job.adapter) {
                Ok(known) => {
                    count(&self.metrics.prompt_tokens, job.prompt.len() as u64);
                    count(&self.metrics.reused_tokens, known as u64);
                    self.prompt = Some(*job);
                }
                Err(e) => fail(&job, e.to_string()),
            },
        }
    }

    /// Runs a part of the prompt at hand.
    fn advance(&mut self) {
        let Some(job) = self.prompt.take() else { return };
        if job.events.is_closed() {
            self.gone(&job);
            return self.slots.cancel();
        }
        let joined = match self.slots.advance() {
            Ok(None) => {
                self.prompt = Some(job);
                return;
            }
            Ok(Some(logits)) => self.slots.join().map(|_| logits),
            Err(e) => Err(e),
        };
        match joined {
            Ok(logits) => {
                self.metrics.first_token.add(job.arrived.elapsed());
                let random = job.sampling.random();
                let history = History::of(&job.prompt);
                self.rows.push(Growing { job, random, history, new: 0, next: 0 });
                count(&self.metrics.running, 1);
                let row = self.rows.len() - 1;
                if self.hear(row, logits) {
                    self.leave(row);
                }
            }
            Err(e) => {
                self.slots.cancel();
                fail(&job, e.to_string());
            }
        }
    }

    /// One more id for each row.
    fn step(&mut self) {
        // Nobody computes for those who left.
        for row in (0..self.rows.len()).rev() {
            if self.rows[row].job.events.is_closed() {
                self.gone(&self.rows[row].job);
                self.leave(row);
            }
        }
        if self.rows.is_empty() {
            return;
        }
        let started = Instant::now();
        let next: Vec<i32> = self.rows.iter().map(|row| row.next).collect();
        match self.slots.step(&next) {
            Ok((logits, width)) => {
                let rows: Vec<Vec<f32>> = logits.chunks_exact(width).map(<[f32]>::to_vec).collect();
                for (row, logits) in rows.into_iter().enumerate().rev() {
                    if self.hear(row, logits) {
                        self.leave(row);
                    }
                }
            }
            Err(e) => {
                let reason = e.to_string();
                for row in (0..self.rows.len()).rev() {
                    fail(&self.rows[row].job, reason.clone());
                    self.leave(row);
                }
            }
        }
        self.last_step = started.elapsed();
        self.metrics.step.add(self.last_step);
        count(&self.metrics.steps, 1);
    }

    /// Chooses a row's next id from its logits; says whether the row is done.
    fn hear(&mut self, row: usize, mut logits: Vec<f32>) -> bool {
        let length = self.slots.length(row);
        let context = self.slots.sizes().context;
        let growing = &mut self.rows[row];
        let job = &mut growing.job;
        let raw = job.logprobs.map(|_| logits.clone());
        for &(id, by) in &job.bias {
            if let Some(x) = usize::try_from(id).ok().and_then(|i| logits.get_mut(i)) {
                *x += by;
            }
        }
        job.sampling.penalise(&mut logits, &growing.history);
        if let Some(constraint) = &job.constraint {
            constraint.mask(&mut logits, &job.ends);
        }
        let id = job.sampling.choose(&logits, &mut growing.random) as i32;
        count(&self.metrics.new_tokens, 1);
        if job.ends.contains(&id) {
            let _ = job.events.try_send(Event::End(Finish::Stop));
            return true;
        }
        let logprob = raw.zip(job.logprobs).map(|(raw, top)| {
            let (own, top) = log_probabilities(&raw, id, top);
            Told { own, top }
        });
        if let Some(constraint) = &mut job.constraint {
            constraint.push(id);
        }
        growing.history.push(id);
        growing.new += 1;
        growing.next = id;
        // A channel that is full or closed belongs to a client that no longer listens.
        if job.events.try_send(Event::Token { id, logprob }).is_err() {
            self.gone(&self.rows[row].job);
            return true;
        }
        if job.constraint.as_ref().is_some_and(Constraint::is_over) {
            let _ = job.events.try_send(Event::End(Finish::Stop));
            return true;
        }
        if growing.new >= job.most || length + 1 >= context {
            let _ = job.events.try_send(Event::End(Finish::Length));
            return true;
        }
        false
    }

    /// Nobody listens any more: a client left, or found what it wanted.
    fn gone(&self, job: &Job) {
        if !job.enough.load(Ordering::Acquire) {
            count(&self.metrics.abandoned, 1);
        }
    }

    fn leave(&mut self, row: usize) {
        self.rows.swap_remove(row);
        uncount(&self.metrics.running, 1);
        if let Err(e) = self.slots.leave(row) {
            debug_assert!(false, "{e}");
        }
    }

    fn end_all(&mut self) {
        const REASON: &str = "the server is shutting down";
        for row in (0..self.rows.len()).rev() {
            fail(&self.rows[row].job, REASON.into());
            self.leave(row);
        }
        if let Some(job) = self.prompt.take() {
            fail(&job, REASON.into());
        }
        while let Ok(task) = self.queue.try_recv() {
            uncount(&self.metrics.waiting, 1);
            match task {
                Task::Generate(job) => fail(&job, REASON.into()),
                Task::Embed { reply, .. } => {
                    let _ = reply.send(Err(REASON.into()));
                }
            }
        }
    }
}

fn fail(job: &Job, reason: String) {
    let _ = job.events.try_send(Event::Failed(reason));
}
