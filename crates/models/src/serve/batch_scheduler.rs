//! The thread that runs a model: takes prompts from a bounded queue, decodes batches of rows, sends out tokens.
//!
//! Between two decode steps, chunks of prompts and of texts to embed are prefilled, for a share of the time (`prefill_pacer.rs`), so that
//! neither waits long for the other. The client that was served least comes next (`queue.rs`): a long prompt is suspended between
//! two of its chunks, and a row of a client with many rows is suspended for the first row of another client. Suspended work
//! resumes bitwise equal. Rows of a client that is far ahead of another are left out of decode steps, where that makes the steps shorter.

use crate::serve::metrics::{Metrics, decrement, increment};
use crate::serve::prefill_pacer::{PrefillPacer, order_rows};
use crate::serve::queue::{FairQueue, Rejected, WorkRequirements};
use crate::serve::quota::ClientId;
use crate::{BatchEngine, Constraint, SamplingOptions, SplitMix64, SuspendedSequence, TokenHistory, top_logprobs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Limits of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeEngineOptions {
    /// Maximum number of waiting sequences and texts. One client gets at most as many as it leaves to the others.
    pub max_queued: usize,
}

impl Default for ServeEngineOptions {
    fn default() -> ServeEngineOptions {
        ServeEngineOptions { max_queued: 512 }
    }
}

/// A generation task.
pub(crate) struct SequenceRequest {
    pub(crate) prompt: Arc<[i32]>,
    pub(crate) adapter: usize,
    /// Maximum number of new tokens.
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: SamplingOptions,
    /// Biases that are added to logits.
    pub(crate) logit_bias: Vec<(i32, f32)>,
    /// Token IDs that end the text.
    pub(crate) eos_ids: Vec<i32>,
    /// Further token IDs that end it and are reported as the reason.
    pub(crate) stop_token_ids: Vec<i32>,
    /// Minimum number of new tokens before one of these may be generated.
    pub(crate) min_tokens: usize,
    /// The only token IDs that may be generated.
    pub(crate) allowed_token_ids: Option<Arc<[i32]>>,
    /// The number of most probable tokens to report, if log probabilities are requested.
    pub(crate) logprobs: Option<usize>,
    pub(crate) constraint: Option<Constraint>,
    pub(crate) events: mpsc::Sender<SequenceEvent>,
    /// Set by the receiver before it closes the channel because it has all tokens that it needs.
    pub(crate) client_done: Arc<AtomicBool>,
    pub(crate) arrived: Instant,
}

/// An event of a sequence.
#[derive(Debug)]
pub(crate) enum SequenceEvent {
    Token {
        id: i32,
        logprob: Option<TokenLogprobs>,
    },
    End(FinishReason),
    /// A stop token that the client named ended the text.
    Stopped(i32),
    Failed(String),
}

/// The log probability of a token, and the most probable tokens with theirs.
#[derive(Clone, Debug)]
pub(crate) struct TokenLogprobs {
    pub(crate) logprob: f64,
    pub(crate) top: Vec<(i32, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    Stop,
    Length,
}

/// An embedding task.
pub(crate) struct EmbeddingTask {
    pub(crate) ids: Arc<[i32]>,
    pub(crate) adapter: usize,
    pub(crate) reply: oneshot::Sender<std::result::Result<Vec<f32>, String>>,
}

pub(crate) enum EngineTask {
    Generate(Box<SequenceRequest>),
    Embed(EmbeddingTask),
}

impl EngineTask {
    /// Whether nobody waits for the result any more.
    fn is_abandoned(&self) -> bool {
        match self {
            EngineTask::Generate(job) => job.events.is_closed(),
            EngineTask::Embed(embedding) => embedding.reply.is_closed(),
        }
    }

    fn requirements(&self) -> WorkRequirements {
        match self {
            EngineTask::Generate(job) => WorkRequirements { needs_row: true, prompt_tokens: job.prompt.len().max(1) },
            EngineTask::Embed(embedding) => {
                WorkRequirements { needs_row: false, prompt_tokens: embedding.ids.len().max(1) }
            }
        }
    }

    fn fail(self, reason: String) {
        match self {
            EngineTask::Generate(job) => fail(&job, reason),
            EngineTask::Embed(embedding) => drop(embedding.reply.send(Err(reason))),
        }
    }
}

/// Work in the queue.
enum QueuedWork {
    New(EngineTask),
    /// A suspended prompt, or a suspended text to embed.
    PausedPrefill(EngineTask, SuspendedSequence),
    /// A suspended row.
    PausedSequence(Box<Sequence>, SuspendedSequence),
}

/// The sending end through which tasks reach an engine.
#[derive(Clone)]
pub(crate) struct EngineHandle {
    queue: Arc<FairQueue<QueuedWork>>,
    stop: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl EngineHandle {
    /// Submits all tasks of a request, or none.
    pub(crate) fn submit(&self, client: ClientId, tasks: Vec<EngineTask>) -> std::result::Result<(), Rejected> {
        let works = tasks.into_iter().map(|task| {
            let needs = task.requirements();
            (QueuedWork::New(task), needs)
        });
        let (more, refused) = self.queue.submit(
            client,
            works.collect(),
            |work| matches!(work, QueuedWork::New(task) if task.is_abandoned()),
        );
        match more {
            0.. => increment(&self.metrics.waiting, more.unsigned_abs() as u64),
            _ => decrement(&self.metrics.waiting, more.unsigned_abs() as u64),
        }
        refused.map_or(Ok(()), Err)
    }

    /// Stops the engine at the next step.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.queue.close();
    }
}

/// Starts the thread of a model.
pub(crate) fn start(
    slots: BatchEngine,
    options: ServeEngineOptions,
    metrics: Arc<Metrics>,
) -> std::io::Result<(EngineHandle, std::thread::JoinHandle<()>)> {
    let queue = Arc::new(FairQueue::new(options.max_queued));
    let stop = Arc::new(AtomicBool::new(false));
    let handle = EngineHandle { queue: queue.clone(), stop: stop.clone(), metrics: metrics.clone() };
    let mut engine = BatchScheduler {
        batch: slots,
        queue,
        stop,
        metrics,
        rows: Vec::new(),
        prompt: None,
        pacer: PrefillPacer::default(),
        sequences_started: 0,
    };
    let thread = std::thread::Builder::new().name("engine".into()).spawn(move || engine.run())?;
    Ok((handle, thread))
}

/// A sequence with the state of its generation.
struct Sequence {
    client: ClientId,
    job: SequenceRequest,
    random: SplitMix64,
    history: TokenHistory,
    num_generated: usize,
    next: i32,
    /// Later sequences have larger numbers.
    number: u64,
}

struct BatchScheduler {
    batch: BatchEngine,
    queue: Arc<FairQueue<QueuedWork>>,
    stop: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    /// The sequences, by row.
    rows: Vec<Sequence>,
    /// The prompt that is being prefilled, and its client.
    prompt: Option<(ClientId, EngineTask)>,
    pacer: PrefillPacer,
    /// Number of rows started so far.
    sequences_started: u64,
}

impl BatchScheduler {
    fn run(&mut self) {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return self.abort_all();
            }
            if self.rows.is_empty() && self.prompt.is_none() {
                // Without work, the thread waits for a task and periodically checks whether to stop.
                self.queue.wait(Duration::from_millis(100));
            }
            while self.schedule_prefill() && self.step_prefill() {}
            self.decode_step();
        }
    }

    /// Makes the prompt of the next client current; returns whether there is one.
    fn schedule_prefill(&mut self) -> bool {
        // Each iteration moves one row or the current prompt.
        for _ in 0..2 * self.batch.sizes().max_batch + 2 {
            // The current prompt keeps the row that is reserved for it.
            let kept = usize::from(matches!(self.prompt, Some((_, EngineTask::Generate(_)))));
            let room = self.batch.len() + kept < self.batch.sizes().max_batch;
            let Some(next) = self.queue.next(room) else { break };
            if let Some((client, _)) = &self.prompt
                && next.prompt > 0
            {
                // Switching from one prompt to the other copies both caches. For a short prompt this is worth it: it is finished soon.
                let part = self.batch.sizes().prefill_chunk;
                let slack = if next.prompt <= part { 0 } else { 2 * part as u64 };
                if next.served + slack >= self.queue.tokens_served(*client) {
                    return true;
                }
                self.preempt_prefill();
            }
            if let Some(victim) = next.victim
                && !self.preempt_latest_row(victim)
            {
                break;
            }
            if let Some((work, fresh)) = self.queue.take(next.client) {
                if fresh {
                    decrement(&self.metrics.waiting, 1);
                }
                self.start_or_resume(next.client, work);
                if self.prompt.as_ref().is_none_or(|(client, _)| *client != next.client) {
                    self.queue.release(next.client);
                }
            }
        }
        self.prompt.is_some()
    }

    /// Suspends the current prompt.
    fn preempt_prefill(&mut self) {
        let Some((client, task)) = self.prompt.take() else { return };
        let done = self.batch.prompt_tokens_done();
        match self.batch.suspend_prompt() {
            Ok(aside) => {
                let needs = task.requirements();
                let needs =
                    WorkRequirements { prompt_tokens: needs.prompt_tokens.saturating_sub(done).max(1), ..needs };
                self.queue.requeue(client, QueuedWork::PausedPrefill(task, aside), needs);
            }
            Err(e) => task.fail(e.to_string()),
        }
        self.queue.release(client);
    }

    /// Suspends the latest row of a client.
    fn preempt_latest_row(&mut self, victim: ClientId) -> bool {
        let own = self.rows.iter().enumerate().filter(|(_, row)| row.client == victim);
        let Some((row, _)) = own.max_by_key(|(_, row)| row.number) else { return false };
        let aside = self.batch.suspend_row(row);
        let growing = self.remove_row(row);
        match aside {
            Ok(aside) => {
                let needs = WorkRequirements { needs_row: true, prompt_tokens: 0 };
                self.queue.requeue(victim, QueuedWork::PausedSequence(Box::new(growing), aside), needs);
            }
            Err(e) => fail(&growing.job, e.to_string()),
        }
        true
    }

    fn start_or_resume(&mut self, client: ClientId, work: QueuedWork) {
        match work {
            QueuedWork::New(task) | QueuedWork::PausedPrefill(task, _) if task.is_abandoned() => {
                if let EngineTask::Generate(job) = &task {
                    self.count_abandoned(job);
                }
            }
            QueuedWork::New(task) => {
                let begun = match &task {
                    EngineTask::Generate(job) => self.batch.start_prefill(&job.prompt, job.adapter).inspect(|known| {
                        increment(&self.metrics.prompt_tokens, job.prompt.len() as u64);
                        increment(&self.metrics.cached_prompt_tokens, *known as u64);
                    }),
                    EngineTask::Embed(embedding) => {
                        increment(&self.metrics.prompt_tokens, embedding.ids.len() as u64);
                        self.batch.start_embedding(&embedding.ids, embedding.adapter).map(|()| 0)
                    }
                };
                match begun {
                    Ok(_) => self.prompt = Some((client, task)),
                    Err(e) => task.fail(e.to_string()),
                }
            }
            QueuedWork::PausedPrefill(task, aside) => match self.batch.resume(aside) {
                Ok(()) => self.prompt = Some((client, task)),
                Err(e) => task.fail(e.to_string()),
            },
            QueuedWork::PausedSequence(growing, _) if growing.job.events.is_closed() => {
                self.count_abandoned(&growing.job)
            }
            QueuedWork::PausedSequence(growing, aside) => match self.batch.resume(aside) {
                Ok(()) => self.add_row(*growing),
                Err(e) => fail(&growing.job, e.to_string()),
            },
        }
    }

    /// Prefills a chunk of the current prompt, unless decode steps come first; returns whether it did.
    fn step_prefill(&mut self) -> bool {
        let Some((client, task)) = self.prompt.take() else { return false };
        let ahead =
            self.queue.min_served_of_others(client).is_some_and(|least| least < self.queue.tokens_served(client));
        if !self.rows.is_empty() && !self.pacer.allows_prefill(ahead) {
            self.prompt = Some((client, task));
            return false;
        }
        let started = Instant::now();
        self.run_prefill(client, task);
        self.pacer.record_prefill(started.elapsed(), ahead);
        if self.prompt.is_none() {
            self.queue.release(client);
        }
        true
    }

    fn run_prefill(&mut self, client: ClientId, task: EngineTask) {
        if task.is_abandoned() {
            if let EngineTask::Generate(job) = &task {
                self.count_abandoned(job);
            }
            return self.batch.cancel_prompt();
        }
        let before = self.batch.prompt_tokens_done();
        let found = self.batch.prefill_chunk();
        let after = match (&found, &task) {
            (Ok(Some(_)), EngineTask::Embed(embedding)) => embedding.ids.len(),
            _ => self.batch.prompt_tokens_done(),
        };
        // A chunk has a minimum cost, however few tokens are in it.
        let least = self.batch.sizes().prefill_chunk / 2;
        self.queue.charge(client, after.saturating_sub(before).max(least).max(1));
        match (found, task) {
            (Ok(None), task) => self.prompt = Some((client, task)),
            (Ok(Some(vector)), EngineTask::Embed(embedding)) => drop(embedding.reply.send(Ok(vector))),
            (Ok(Some(mut logits)), EngineTask::Generate(job)) => match self.batch.admit() {
                Ok(_) => {
                    self.metrics.first_token.observe(job.arrived.elapsed());
                    let (random, history) = (job.sampling.generator(), TokenHistory::from_prompt(&job.prompt));
                    self.sequences_started += 1;
                    let number = self.sequences_started;
                    self.add_row(Sequence { client, job: *job, random, history, num_generated: 0, next: 0, number });
                    let row = self.rows.len() - 1;
                    if self.sample(row, &mut logits) {
                        self.evict_row(row);
                    }
                }
                Err(e) => {
                    self.batch.cancel_prompt();
                    fail(&job, e.to_string());
                }
            },
            (Err(e), task) => {
                self.batch.cancel_prompt();
                task.fail(e.to_string());
            }
        }
    }

    /// Adds a row that the batch contains already.
    fn add_row(&mut self, growing: Sequence) {
        self.queue.update_row_count(growing.client, true);
        self.rows.push(growing);
        increment(&self.metrics.running, 1);
    }

    /// Removes a row that the batch no longer contains.
    fn remove_row(&mut self, row: usize) -> Sequence {
        let growing = self.rows.swap_remove(row);
        self.queue.update_row_count(growing.client, false);
        decrement(&self.metrics.running, 1);
        growing
    }

    /// Decodes one token for each row.
    fn decode_step(&mut self) {
        // Rows of clients that have disconnected are evicted first.
        for row in (0..self.rows.len()).rev() {
            if self.rows[row].job.events.is_closed() {
                self.count_abandoned(&self.rows[row].job);
                self.evict_row(row);
            }
        }
        if self.rows.is_empty() {
            return self.pacer.reset();
        }
        let started = Instant::now();
        let (stepped, result) = match self.rows_to_step() {
            Ok(stepped) => {
                let next: Vec<i32> = self.rows[..stepped].iter().map(|row| row.next).collect();
                (stepped, self.batch.step(&next))
            }
            Err(e) => (0, Err(e)),
        };
        match result {
            Ok((mut logits, width)) => {
                for (row, logits) in logits.chunks_exact_mut(width).enumerate().rev() {
                    self.queue.charge(self.rows[row].client, 1);
                    if self.sample(row, logits) {
                        self.evict_row(row);
                    }
                }
            }
            Err(e) => {
                let reason = e.to_string();
                for row in (0..self.rows.len()).rev() {
                    fail(&self.rows[row].job, reason.clone());
                    self.evict_row(row);
                }
            }
        }
        let took = started.elapsed();
        self.pacer.record_step(stepped, took);
        self.metrics.step.observe(took);
        increment(&self.metrics.steps, 1);
    }

    /// Returns how many of the rows are decoded next; they include those of clients that are not far ahead of others.
    fn rows_to_step(&mut self) -> crate::Result<usize> {
        let all = self.rows.len();
        let paused = self.queue.paused();
        let wanted: Vec<bool> = self.rows.iter().map(|row| !paused.contains(&row.client)).collect();
        let few = self.batch.step_width(wanted.iter().filter(|wanted| **wanted).count());
        if self.pacer.should_step_all(few, all) {
            return Ok(all);
        }
        let order = order_rows(&wanted, few);
        if order.iter().enumerate().any(|(to, from)| to != *from) {
            self.batch.reorder_cache(&order)?;
            let mut rows: Vec<Option<Sequence>> = self.rows.drain(..).map(Some).collect();
            self.rows = order.iter().filter_map(|from| rows[*from].take()).collect();
        }
        Ok(few)
    }

    /// Samples a row's next token from its logits; returns whether the row is finished.
    fn sample(&mut self, row: usize, logits: &mut [f32]) -> bool {
        let length = self.batch.row_length(row);
        let context = self.batch.sizes().max_seq_len;
        let growing = &mut self.rows[row];
        let job = &mut growing.job;
        let raw = job.logprobs.map(|_| logits.to_vec());
        for &(id, by) in &job.logit_bias {
            if let Some(x) = usize::try_from(id).ok().and_then(|i| logits.get_mut(i)) {
                *x += by;
            }
        }
        job.sampling.apply_penalties(logits, &growing.history);
        if let Some(allowed) = &job.allowed_token_ids {
            mask_to_allowed(logits, allowed);
        }
        let early = growing.num_generated < job.min_tokens;
        if let Some(constraint) = &job.constraint {
            let ends: &[i32] = if early { &[] } else { &job.eos_ids };
            constraint.mask(logits, ends);
        }
        if early {
            for id in job.eos_ids.iter().chain(&job.stop_token_ids) {
                if let Some(x) = usize::try_from(*id).ok().and_then(|i| logits.get_mut(i)) {
                    *x = f32::NEG_INFINITY;
                }
            }
        }
        if logits.iter().all(|x| *x == f32::NEG_INFINITY) {
            // Every possible token is excluded.
            let _ = job.events.try_send(SequenceEvent::End(FinishReason::Stop));
            return true;
        }
        let id = job.sampling.sample(logits, &mut growing.random) as i32;
        increment(&self.metrics.generated_tokens, 1);
        if job.eos_ids.contains(&id) {
            let _ = job.events.try_send(SequenceEvent::End(FinishReason::Stop));
            return true;
        }
        if job.stop_token_ids.contains(&id) {
            let _ = job.events.try_send(SequenceEvent::Stopped(id));
            return true;
        }
        let logprob = raw.zip(job.logprobs).map(|(raw, top)| {
            let (own, top) = top_logprobs(&raw, id, top);
            TokenLogprobs { logprob: own, top }
        });
        if let Some(constraint) = &mut job.constraint {
            constraint.push(id);
        }
        growing.history.push(id);
        growing.num_generated += 1;
        growing.next = id;
        // If the channel is full or closed, the client no longer reads it.
        if job.events.try_send(SequenceEvent::Token { id, logprob }).is_err() {
            self.count_abandoned(&self.rows[row].job);
            return true;
        }
        if job.constraint.as_ref().is_some_and(Constraint::is_finished) {
            let _ = job.events.try_send(SequenceEvent::End(FinishReason::Stop));
            return true;
        }
        if growing.num_generated >= job.max_new_tokens || length + 1 >= context {
            let _ = job.events.try_send(SequenceEvent::End(FinishReason::Length));
            return true;
        }
        false
    }

    /// Counts a sequence whose receiver is closed: the client disconnected, or has all tokens that it needs.
    fn count_abandoned(&self, job: &SequenceRequest) {
        if !job.client_done.load(Ordering::Acquire) {
            increment(&self.metrics.abandoned, 1);
        }
    }

    fn evict_row(&mut self, row: usize) {
        self.remove_row(row);
        if let Err(e) = self.batch.evict(row) {
            debug_assert!(false, "{e}");
        }
    }

    fn abort_all(&mut self) {
        const REASON: &str = "the server is shutting down";
        for row in (0..self.rows.len()).rev() {
            fail(&self.rows[row].job, REASON.into());
            self.evict_row(row);
        }
        if let Some((_, task)) = self.prompt.take() {
            task.fail(REASON.into());
        }
        for (work, fresh) in self.queue.close_and_drain() {
            if fresh {
                decrement(&self.metrics.waiting, 1);
            }
            match work {
                QueuedWork::New(task) | QueuedWork::PausedPrefill(task, _) => task.fail(REASON.into()),
                QueuedWork::PausedSequence(growing, _) => fail(&growing.job, REASON.into()),
            }
        }
    }
}

/// Masks the logits of all tokens except these.
fn mask_to_allowed(logits: &mut [f32], allowed: &[i32]) {
    let at = |id: &i32| usize::try_from(*id).ok();
    let kept: Vec<(usize, f32)> = allowed.iter().filter_map(at).filter_map(|i| Some((i, *logits.get(i)?))).collect();
    logits.fill(f32::NEG_INFINITY);
    kept.into_iter().for_each(|(i, x)| logits[i] = x);
}

fn fail(job: &SequenceRequest, reason: String) {
    let _ = job.events.try_send(SequenceEvent::Failed(reason));
}
