//! The job queue, which runs jobs in any order that their memory dependencies allow.

use super::{InjectedFault, run};
use crate::Rng;
use compiler::{Completion, Error, Fence, Program, Result};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

/// Device memory.
pub(super) type Memory = Arc<Mutex<Vec<u8>>>;

pub(super) fn memory(bytes: Vec<u8>) -> Memory {
    Arc::new(Mutex::new(bytes))
}

pub(super) fn lock(m: &Memory) -> MutexGuard<'_, Vec<u8>> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// The operation of a job.
pub(super) enum Work {
    Write { to: Memory, offset: usize, bytes: Vec<u8> },
    Read { from: Memory, offset: usize, bytes: usize, into: Memory },
    Copy { from: Memory, to: Memory, bytes: usize },
    Run { program: Arc<Program>, inputs: Vec<Memory>, outputs: Vec<Memory>, fault: InjectedFault },
}

impl Work {
    fn reads(&self) -> Vec<&Memory> {
        match self {
            Work::Write { .. } => vec![],
            Work::Read { from, .. } | Work::Copy { from, .. } => vec![from],
            Work::Run { inputs, .. } => inputs.iter().collect(),
        }
    }

    fn writes(&self) -> Vec<&Memory> {
        match self {
            Work::Read { .. } => vec![],
            Work::Write { to, .. } | Work::Copy { to, .. } => vec![to],
            Work::Run { outputs, .. } => outputs.iter().collect(),
        }
    }
}

/// An operation and its result.
pub(super) struct Job {
    work: Work,
    end: Arc<End>,
}

#[derive(Default)]
struct End(Mutex<Option<Result<()>>>);

impl End {
    fn get(&self) -> Option<Result<()>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Job {
    pub(super) fn new(work: Work) -> Job {
        Job { work, end: Arc::default() }
    }
}

/// The jobs of a device, oldest first.
pub(super) struct Queue {
    state: Mutex<(Vec<Job>, Rng)>,
    fault: InjectedFault,
}

impl Queue {
    pub(super) fn new(seed: u64, fault: InjectedFault) -> Queue {
        Queue { state: Mutex::new((Vec::new(), Rng::new(seed))), fault }
    }

    fn state(&self) -> MutexGuard<'_, (Vec<Job>, Rng)> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn waiting(&self) -> usize {
        self.state().0.len()
    }

    pub(super) fn push(self: &Arc<Queue>, job: Job) -> Fence {
        let end = job.end.clone();
        self.state().0.push(job);
        Fence::from_completion(Arc::new(Waits { queue: self.clone(), end }))
    }

    /// Runs one job that is ready; returns whether there was one.
    fn step(&self) -> bool {
        let mut state = self.state();
        let (jobs, rng) = &mut *state;
        let ready: Vec<usize> = (0..jobs.len()).filter(|&k| self.may_run(jobs, k)).collect();
        if ready.is_empty() {
            return false;
        }
        let job = jobs.remove(*rng.pick(&ready));
        let result = run_job(&job.work, rng);
        *job.end.0.lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
        true
    }

    /// Whether no earlier queued job accesses the memory of job `k`, unless both only read it.
    fn may_run(&self, jobs: &[Job], k: usize) -> bool {
        let meets = |a: Vec<&Memory>, b: &[&Memory]| a.iter().any(|x| b.iter().any(|y| Arc::ptr_eq(x, y)));
        let own = &jobs[k].work;
        let (reads, writes) = (own.reads(), own.writes());
        jobs[..k].iter().all(|earlier| {
            let after_read = meets(earlier.work.reads(), &writes) && self.fault != InjectedFault::MissingReadFence;
            let after_write = meets(earlier.work.writes(), &writes);
            let is_read = matches!(own, Work::Read { .. }) && self.fault == InjectedFault::MissingWriteFence;
            let of_write = meets(earlier.work.writes(), &reads) && !is_read;
            !(after_read || after_write || of_write)
        })
    }

    /// Runs all jobs.
    pub(super) fn drain(&self) {
        while self.step() {}
    }
}

struct Waits {
    queue: Arc<Queue>,
    end: Arc<End>,
}

impl Completion for Waits {
    /// Each poll lets the device make progress.
    fn is_done(&self) -> bool {
        if self.end.get().is_none() {
            self.queue.step();
        }
        self.end.get().is_some()
    }

    fn wait(&self) -> Result<()> {
        loop {
            if let Some(result) = self.end.get() {
                return result;
            }
            // Another thread may be running the job: then the queue is locked until it is complete.
            if !self.queue.step() && self.end.get().is_none() {
                return Err(Error::Internal("a job that can never run".into()));
            }
        }
    }

    /// Nothing happens on this device without polling.
    fn wake(&self, waker: &Waker) {
        waker.wake_by_ref();
    }
}

fn run_job(work: &Work, rng: &mut Rng) -> Result<()> {
    match work {
        Work::Write { to, offset, bytes } => lock(to)[*offset..offset + bytes.len()].copy_from_slice(bytes),
        Work::Read { from, offset, bytes, into } => {
            let part = lock(from)[*offset..offset + bytes].to_vec();
            *lock(into) = part;
        }
        Work::Copy { from, to, bytes } => {
            let part = lock(from)[..*bytes].to_vec();
            lock(to)[..*bytes].copy_from_slice(&part);
        }
        Work::Run { program, inputs, outputs, fault } => return run::run(program, inputs, outputs, *fault, rng),
    }
    Ok(())
}
