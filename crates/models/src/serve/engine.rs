//! The thread that runs a model: takes prompts from a bounded queue, lets rows grow, hands tokens out.
//!
//! Between two steps of the batch prompts and texts to embed are run part by part, for a share of the time (`pace.rs`), so that neither
//! waits for the other for long. The client that was served least comes next (`queue.rs`): a long prompt is put aside between two of its
//! parts, and a row of a client that has many is put aside for the first one of another. What is put aside goes on with the same bits.
//! Rows of a client that is far ahead of another are left out of steps, where that makes steps shorter.

use crate::serve::metrics::{Metrics, count, uncount};
use crate::serve::pace::{Pace, ordered};
use crate::serve::queue::{Needs, Queue, Refused};
use crate::serve::shares::Client;
use crate::{Aside, Constraint, History, Random, Sampling, Slots, log_probabilities};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// What an engine may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Sequences and texts that wait, at most. One client has no more of them than it leaves to others.
    pub queue: usize,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { queue: 512 }
    }
}

/// A sequence that is asked for.
pub(crate) struct Job {
    pub(crate) prompt: Arc<[i32]>,
    pub(crate) adapter: usize,
    /// New ids at most.
    pub(crate) most: usize,
    pub(crate) sampling: Sampling,
    /// Added to logits.
    pub(crate) bias: Vec<(i32, f32)>,
    /// Ids that end the text.
    pub(crate) ends: Vec<i32>,
    /// Further ids that end it, and are told as the reason.
    pub(crate) stops: Vec<i32>,
    /// New ids before one of these may come.
    pub(crate) least: usize,
    /// The only ids that may come.
    pub(crate) allowed: Option<Arc<[i32]>>,
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
    Token {
        id: i32,
        logprob: Option<Told>,
    },
    End(Finish),
    /// An id that the client named ended the text.
    Stopped(i32),
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

/// A text whose vector is asked for.
pub(crate) struct Embedding {
    pub(crate) ids: Arc<[i32]>,
    pub(crate) adapter: usize,
    pub(crate) reply: oneshot::Sender<std::result::Result<Vec<f32>, String>>,
}

pub(crate) enum Task {
    Generate(Box<Job>),
    Embed(Embedding),
}

impl Task {
    /// Whether nobody waits for it any more.
    fn is_gone(&self) -> bool {
        match self {
            Task::Generate(job) => job.events.is_closed(),
            Task::Embed(embedding) => embedding.reply.is_closed(),
        }
    }

    fn needs(&self) -> Needs {
        match self {
            Task::Generate(job) => Needs { row: true, prompt: job.prompt.len().max(1) },
            Task::Embed(embedding) => Needs { row: false, prompt: embedding.ids.len().max(1) },
        }
    }

    fn fail(self, reason: String) {
        match self {
            Task::Generate(job) => fail(&job, reason),
            Task::Embed(embedding) => drop(embedding.reply.send(Err(reason))),
        }
    }
}

/// What waits for its turn.
enum Work {
    New(Task),
    /// A prompt, or a text to embed, that was put aside.
    Prompt(Task, Aside),
    /// A row that was put aside.
    Row(Box<Growing>, Aside),
}

/// How tasks get to an engine.
#[derive(Clone)]
pub(crate) struct Handle {
    queue: Arc<Queue<Work>>,
    stop: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl Handle {
    /// Takes all tasks of a request, or none.
    pub(crate) fn submit(&self, client: Client, tasks: Vec<Task>) -> std::result::Result<(), Refused> {
        let works = tasks.into_iter().map(|task| {
            let needs = task.needs();
            (Work::New(task), needs)
        });
        let (more, refused) =
            self.queue.submit(client, works.collect(), |work| matches!(work, Work::New(task) if task.is_gone()));
        match more {
            0.. => count(&self.metrics.waiting, more.unsigned_abs() as u64),
            _ => uncount(&self.metrics.waiting, more.unsigned_abs() as u64),
        }
        refused.map_or(Ok(()), Err)
    }

    /// Ends everything at the next step.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.queue.stop();
    }
}

/// Starts the thread of a model.
pub(crate) fn start(
    slots: Slots,
    options: EngineOptions,
    metrics: Arc<Metrics>,
) -> std::io::Result<(Handle, std::thread::JoinHandle<()>)> {
    let queue = Arc::new(Queue::new(options.queue));
    let stop = Arc::new(AtomicBool::new(false));
    let handle = Handle { queue: queue.clone(), stop: stop.clone(), metrics: metrics.clone() };
    let mut engine =
        Engine { slots, queue, stop, metrics, rows: Vec::new(), prompt: None, pace: Pace::default(), begun: 0 };
    let thread = std::thread::Builder::new().name("engine".into()).spawn(move || engine.run())?;
    Ok((handle, thread))
}

/// A sequence with what it needs to go on.
struct Growing {
    client: Client,
    job: Job,
    random: Random,
    history: History,
    new: usize,
    next: i32,
    /// Later ones have larger numbers.
    number: u64,
}

struct Engine {
    slots: Slots,
    queue: Arc<Queue<Work>>,
    stop: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    /// By row.
    rows: Vec<Growing>,
    /// What is being run, and whose it is.
    prompt: Option<(Client, Task)>,
    pace: Pace,
    /// Rows so far.
    begun: u64,
}

impl Engine {
    fn run(&mut self) {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return self.end_all();
            }
            if self.rows.is_empty() && self.prompt.is_none() {
                // Nothing to do until somebody asks; looks up now and then, whether to stop.
                self.queue.wait(Duration::from_millis(100));
            }
            while self.choose() && self.advance() {}
            self.step();
        }
    }

    /// Sees to it that the prompt whose turn it is is at hand; says whether there is one.
    fn choose(&mut self) -> bool {
        // Each turn brings one of the rows or what is at hand into its place.
        for _ in 0..2 * self.slots.sizes().rows + 2 {
            // What is at hand keeps the row that it is going to have.
            let kept = usize::from(matches!(self.prompt, Some((_, Task::Generate(_)))));
            let room = self.slots.len() + kept < self.slots.sizes().rows;
            let Some(next) = self.queue.next(room) else { break };
            if let Some((client, _)) = &self.prompt
                && next.prompt > 0
            {
                // Going from one to the other costs a copy of what the caches have of both. A short one is worth it: it is over soon.
                let part = self.slots.sizes().part;
                let slack = if next.prompt <= part { 0 } else { 2 * part as u64 };
                if next.served + slack >= self.queue.served(*client) {
                    return true;
                }
                self.put_aside();
            }
            if let Some(victim) = next.victim
                && !self.make_room(victim)
            {
                break;
            }
            if let Some((work, fresh)) = self.queue.take(next.client) {
                if fresh {
                    uncount(&self.metrics.waiting, 1);
                }
                self.take(next.client, work);
                if self.prompt.as_ref().is_none_or(|(client, _)| *client != next.client) {
                    self.queue.release(next.client);
                }
            }
        }
        self.prompt.is_some()
    }

    /// Puts what is being run aside.
    fn put_aside(&mut self) {
        let Some((client, task)) = self.prompt.take() else { return };
        let done = self.slots.done();
        match self.slots.set_aside() {
            Ok(aside) => {
                let needs = task.needs();
                let needs = Needs { prompt: needs.prompt.saturating_sub(done).max(1), ..needs };
                self.queue.put_back(client, Work::Prompt(task, aside), needs);
            }
            Err(e) => task.fail(e.to_string()),
        }
        self.queue.release(client);
    }

    /// Puts the latest row of a client aside.
    fn make_room(&mut self, victim: Client) -> bool {
        let own = self.rows.iter().enumerate().filter(|(_, row)| row.client == victim);
        let Some((row, _)) = own.max_by_key(|(_, row)| row.number) else { return false };
        let aside = self.slots.suspend(row);
        let growing = self.remove(row);
        match aside {
            Ok(aside) => {
                let needs = Needs { row: true, prompt: 0 };
                self.queue.put_back(victim, Work::Row(Box::new(growing), aside), needs);
            }
            Err(e) => fail(&growing.job, e.to_string()),
        }
        true
    }

    fn take(&mut self, client: Client, work: Work) {
        match work {
            Work::New(task) | Work::Prompt(task, _) if task.is_gone() => {
                if let Task::Generate(job) = &task {
                    self.gone(job);
                }
            }
            Work::New(task) => {
                let begun = match &task {
                    Task::Generate(job) => self.slots.begin(&job.prompt, job.adapter).inspect(|known| {
                        count(&self.metrics.prompt_tokens, job.prompt.len() as u64);
                        count(&self.metrics.reused_tokens, *known as u64);
                    }),
                    Task::Embed(embedding) => {
                        count(&self.metrics.prompt_tokens, embedding.ids.len() as u64);
                        self.slots.begin_embedding(&embedding.ids, embedding.adapter).map(|()| 0)
                    }
                };
                match begun {
                    Ok(_) => self.prompt = Some((client, task)),
                    Err(e) => task.fail(e.to_string()),
                }
            }
            Work::Prompt(task, aside) => match self.slots.resume(aside) {
                Ok(()) => self.prompt = Some((client, task)),
                Err(e) => task.fail(e.to_string()),
            },
            Work::Row(growing, _) if growing.job.events.is_closed() => self.gone(&growing.job),
            Work::Row(growing, aside) => match self.slots.resume(aside) {
                Ok(()) => self.add(*growing),
                Err(e) => fail(&growing.job, e.to_string()),
            },
        }
    }

    /// Runs a part of what is at hand, unless rows come first; says whether it did.
    fn advance(&mut self) -> bool {
        let Some((client, task)) = self.prompt.take() else { return false };
        let ahead = self.queue.least_of_others(client).is_some_and(|least| least < self.queue.served(client));
        if !self.rows.is_empty() && !self.pace.allows_part(ahead) {
            self.prompt = Some((client, task));
            return false;
        }
        let started = Instant::now();
        self.advance_for(client, task);
        self.pace.part_took(started.elapsed(), ahead);
        if self.prompt.is_none() {
            self.queue.release(client);
        }
        true
    }

    fn advance_for(&mut self, client: Client, task: Task) {
        if task.is_gone() {
            if let Task::Generate(job) = &task {
                self.gone(job);
            }
            return self.slots.cancel();
        }
        let before = self.slots.done();
        let found = self.slots.advance();
        let after = match (&found, &task) {
            (Ok(Some(_)), Task::Embed(embedding)) => embedding.ids.len(),
            _ => self.slots.done(),
        };
        // A part takes its time however few tokens are in it.
        let least = self.slots.sizes().part / 2;
        self.queue.charge(client, after.saturating_sub(before).max(least).max(1));
        match (found, task) {
            (Ok(None), task) => self.prompt = Some((client, task)),
            (Ok(Some(vector)), Task::Embed(embedding)) => drop(embedding.reply.send(Ok(vector))),
            (Ok(Some(mut logits)), Task::Generate(job)) => match self.slots.join() {
                Ok(_) => {
                    self.metrics.first_token.add(job.arrived.elapsed());
                    let (random, history) = (job.sampling.random(), History::of(&job.prompt));
                    self.begun += 1;
                    let number = self.begun;
                    self.add(Growing { client, job: *job, random, history, new: 0, next: 0, number });
                    let row = self.rows.len() - 1;
                    if self.sample(row, &mut logits) {
                        self.leave(row);
                    }
                }
                Err(e) => {
                    self.slots.cancel();
                    fail(&job, e.to_string());
                }
            },
            (Err(e), task) => {
                self.slots.cancel();
                task.fail(e.to_string());
            }
        }
    }

    /// A row more, which the batch has already.
    fn add(&mut self, growing: Growing) {
        self.queue.rows(growing.client, true);
        self.rows.push(growing);
        count(&self.metrics.running, 1);
    }

    /// A row less, which the batch has no more.
    fn remove(&mut self, row: usize) -> Growing {
        let growing = self.rows.swap_remove(row);
        self.queue.rows(growing.client, false);
        uncount(&self.metrics.running, 1);
        growing
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
            return self.pace.no_rows();
        }
        let started = Instant::now();
        let (stepped, result) = match self.in_front() {
            Ok(stepped) => {
                let next: Vec<i32> = self.rows[..stepped].iter().map(|row| row.next).collect();
                (stepped, self.slots.step(&next))
            }
            Err(e) => (0, Err(e)),
        };
        match result {
            Ok((mut logits, width)) => {
                for (row, logits) in logits.chunks_exact_mut(width).enumerate().rev() {
                    self.queue.charge(self.rows[row].client, 1);
                    if self.sample(row, logits) {
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
        let took = started.elapsed();
        self.pace.step_took(stepped, took);
        self.metrics.step.add(took);
        count(&self.metrics.steps, 1);
    }

    /// How many of the rows are stepped next. Those of clients that are not far ahead of others are among them.
    fn in_front(&mut self) -> crate::Result<usize> {
        let all = self.rows.len();
        let paused = self.queue.paused();
        let wanted: Vec<bool> = self.rows.iter().map(|row| !paused.contains(&row.client)).collect();
        let few = self.slots.stepped(wanted.iter().filter(|wanted| **wanted).count());
        if self.pace.steps_all(few, all) {
            return Ok(all);
        }
        let order = ordered(&wanted, few);
        if order.iter().enumerate().any(|(to, from)| to != *from) {
            self.slots.rearrange(&order)?;
            let mut rows: Vec<Option<Growing>> = self.rows.drain(..).map(Some).collect();
            self.rows = order.iter().filter_map(|from| rows[*from].take()).collect();
        }
        Ok(few)
    }

    /// Chooses a row's next id from its logits; says whether the row is done.
    fn sample(&mut self, row: usize, logits: &mut [f32]) -> bool {
        let length = self.slots.length(row);
        let context = self.slots.sizes().context;
        let growing = &mut self.rows[row];
        let job = &mut growing.job;
        let raw = job.logprobs.map(|_| logits.to_vec());
        for &(id, by) in &job.bias {
            if let Some(x) = usize::try_from(id).ok().and_then(|i| logits.get_mut(i)) {
                *x += by;
            }
        }
        job.sampling.penalise(logits, &growing.history);
        if let Some(allowed) = &job.allowed {
            keep(logits, allowed);
        }
        let early = growing.new < job.least;
        if let Some(constraint) = &job.constraint {
            let ends: &[i32] = if early { &[] } else { &job.ends };
            constraint.mask(logits, ends);
        }
        if early {
            for id in job.ends.iter().chain(&job.stops) {
                if let Some(x) = usize::try_from(*id).ok().and_then(|i| logits.get_mut(i)) {
                    *x = f32::NEG_INFINITY;
                }
            }
        }
        if logits.iter().all(|x| *x == f32::NEG_INFINITY) {
            // Everything that may come is excluded.
            let _ = job.events.try_send(Event::End(Finish::Stop));
            return true;
        }
        let id = job.sampling.choose(logits, &mut growing.random) as i32;
        count(&self.metrics.new_tokens, 1);
        if job.ends.contains(&id) {
            let _ = job.events.try_send(Event::End(Finish::Stop));
            return true;
        }
        if job.stops.contains(&id) {
            let _ = job.events.try_send(Event::Stopped(id));
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
        self.remove(row);
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
        if let Some((_, task)) = self.prompt.take() {
            task.fail(REASON.into());
        }
        for (work, fresh) in self.queue.end() {
            if fresh {
                uncount(&self.metrics.waiting, 1);
            }
            match work {
                Work::New(task) | Work::Prompt(task, _) => task.fail(REASON.into()),
                Work::Row(growing, _) => fail(&growing.job, REASON.into()),
            }
        }
    }
}

/// Leaves only these ids to be chosen.
fn keep(logits: &mut [f32], allowed: &[i32]) {
    let at = |id: &i32| usize::try_from(*id).ok();
    let kept: Vec<(usize, f32)> = allowed.iter().filter_map(at).filter_map(|i| Some((i, *logits.get(i)?))).collect();
    logits.fill(f32::NEG_INFINITY);
    kept.into_iter().for_each(|(i, x)| logits[i] = x);
}

fn fail(job: &Job, reason: String) {
    let _ = job.events.try_send(Event::Failed(reason));
}
