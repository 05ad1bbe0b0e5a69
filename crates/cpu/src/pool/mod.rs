//! The thread pool: a fixed set of workers that run the parts of one job at a time.
//!
//! Invariants:
//! - Parts are assigned in contiguous ranges that follow from `parts` and `threads` alone. A worker
//!   runs its own share; if it has not started when the caller has finished its own share, the caller
//!   runs it instead. So a sleeping or descheduled worker delays nothing.
//! - From `MIN_STEALING_THREADS` threads on, a thread that has finished its share takes parts of other shares that have not
//!   started: with many cores, one is always late.
//! - [`ThreadPool::run`] allocates nothing (unless a part panics) and returns only when no worker can
//!   access the job any more.
//! - Callers never wait for a busy pool: a second caller, or a part that calls `run` itself, runs its
//!   parts alone, in order. So the pool cannot deadlock.
//! - An idle worker spins for some tens of microseconds, polls for about a millisecond more while it yields the core, then
//!   sleeps. A worker that sleeps between short jobs wakes up late, and the caller then does all the work. Where threads do not
//!   steal parts, the caller makes sure that such a worker is not on the caller's core (`affinity.rs`).

mod affinity;
mod denormals;

pub use denormals::Denormals;

use affinity::ThreadAffinity;
use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The number of spin iterations before a thread yields; a `pause` takes 10 to 50 ns on x86-64.
const SPINS: usize = 2000;
/// The number of yields before it sleeps; a yield takes at least 0.3 µs.
const YIELDS: usize = 2000;

/// The minimum number of threads for which threads steal parts.
/// With fewer threads, each keeps its share, and the contents of its caches.
pub(crate) const MIN_STEALING_THREADS: usize = 4;
/// The number of parts per thread where threads steal parts.
const PIECES: usize = 4;

/// A job: it is called once for each part, with the part and the index of the worker that runs it.
///
/// The worker index is below [`ThreadPool::threads`] and no two parts of one call run at the same time
/// with the same index, so scratch *that belongs to the call* may be indexed by it. Scratch that
/// outlives the call may not: a caller that finds the pool busy runs all its parts as worker 0.
pub type Job<'a> = &'a (dyn Fn(usize, usize) + Sync + 'a);

/// A set of threads that run the parts of a job together with the caller.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let pool = tensorloom_cpu::pool::ThreadPool::new(2);
/// let sum = AtomicUsize::new(0);
/// pool.run(10, &|part, _worker| {
///     sum.fetch_add(part, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 45);
/// ```
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
}

struct Worker {
    flags: Arc<Flags>,
    handle: Option<JoinHandle<()>>,
}

/// The state that a worker and the callers share.
#[derive(Default)]
#[repr(align(128))]
struct Flags {
    asleep: AtomicBool,
    /// Whether the caller ran this worker's last share.
    late: AtomicBool,
    placement: ThreadAffinity,
    /// The last generation whose share for this worker was started, by the worker or the caller. Only
    /// the thread that advances it may run that share, and it reads `job` before it decrements `running`.
    begun: AtomicU64,
}

/// The number of parts taken from each thread's share, the caller's first. Reset by the holder of `busy` while no share is
/// running, and incremented only by threads that run a share.
type Taken = Box<[CachePadded<AtomicUsize>]>;

impl Flags {
    fn begin(&self, generation: u64) -> bool {
        let last = self.begun.load(Relaxed);
        last < generation && self.begun.compare_exchange(last, generation, AcqRel, Relaxed).is_ok()
    }
}

/// Keeps the data that workers poll on other cache lines than the data that they update.
#[repr(align(128))]
struct CachePadded<T>(T);

struct Shared {
    denormals: Denormals,
    /// `generation << 16 | workers with a share`. A change publishes `job`.
    ticket: CachePadded<AtomicU64>,
    /// The number of shares of the current job that are not finished, not counting the caller's own.
    running: CachePadded<AtomicUsize>,
    /// Held by the caller whose job is in `job`.
    busy: AtomicBool,
    stop: AtomicBool,
    /// Whether the caller sleeps on `done`.
    waiting: AtomicBool,
    done: Condvar,
    lock: Mutex<()>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    taken: Taken,
    /// The number of workers that have started.
    alive: AtomicUsize,
    job: UnsafeCell<Option<PublishedJob>>,
}

/// The current job with its lifetime erased: `run` does not return before every reader is done.
#[derive(Clone, Copy)]
struct PublishedJob {
    f: *const (dyn Fn(usize, usize) + Sync),
    parts: usize,
    /// The number of threads that share the parts, including the caller.
    team: usize,
}

// SAFETY: `job` is written only by the holder of `busy` while `running` is zero, and read only by
// workers that have begun a share of it, before they count that off `running`.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is to a `Sync` closure.
unsafe impl Send for Shared {}

impl ThreadPool {
    /// Makes a pool of `threads` threads; the caller of [`ThreadPool::run`] is one of them.
    ///
    /// If the system refuses to create a thread (as on WebAssembly), the pool has fewer.
    pub fn new(threads: usize) -> ThreadPool {
        ThreadPool::with_denormals(threads, Denormals::Keep)
    }

    /// Makes a pool whose threads treat denormal numbers in the given way. The caller's own setting changes while a program runs.
    pub fn with_denormals(threads: usize, denormals: Denormals) -> ThreadPool {
        let threads = threads.clamp(1, 1 << 15);
        let shared = Arc::new(Shared {
            denormals,
            taken: (0..threads).map(|_| CachePadded(AtomicUsize::new(0))).collect(),
            ticket: CachePadded(AtomicU64::new(0)),
            running: CachePadded(AtomicUsize::new(0)),
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            done: Condvar::new(),
            lock: Mutex::new(()),
            panic: Mutex::new(None),
            alive: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
        });
        let mut workers = Vec::new();
        for index in 1..threads {
            let flags = Arc::new(Flags::default());
            let (inner, own) = (shared.clone(), flags.clone());
            let spawned =
                thread::Builder::new().name(format!("tensorloom-{index}")).spawn(move || inner.work(index, &own));
            match spawned {
                Ok(handle) => workers.push(Worker { flags, handle: Some(handle) }),
                Err(_) => break,
            }
        }
        // Allocations of starting threads are attributed to the pool, not to the first program that runs.
        while shared.alive.load(Acquire) < workers.len() {
            thread::yield_now();
        }
        ThreadPool { shared, workers }
    }

    /// Makes a pool with one thread for each core that this process may use.
    pub fn for_machine() -> ThreadPool {
        ThreadPool::new(thread::available_parallelism().map_or(1, |n| n.get()))
    }

    /// The number of threads that run a job, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The number of parts of a loop with `n` iterations: one per thread, or several where threads steal parts.
    pub fn parts(&self, n: usize) -> usize {
        let threads = self.threads();
        (if threads < MIN_STEALING_THREADS { threads } else { threads * PIECES }).min(n).max(1)
    }

    /// How the pool's threads treat denormal numbers.
    pub fn denormals(&self) -> Denormals {
        self.shared.denormals
    }

    /// Runs `job(part, worker)` for every part in `0..parts` and returns when all are done.
    ///
    /// # Panics
    /// Panics if a part panics, with that part's payload, after the other threads have finished their parts.
    pub fn run(&self, parts: usize, job: Job) {
        let team = self.threads().min(parts);
        if team <= 1 || self.shared.busy.swap(true, Acquire) {
            return (0..parts).for_each(|part| job(part, 0));
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes; the pointer is dropped from `job`'s readers before
        // this function returns or unwinds.
        let f = unsafe { std::mem::transmute::<Job, Job<'static>>(job) };
        // SAFETY: this thread holds `busy` and the previous job's shares are all counted off.
        unsafe { *shared.job.get() = Some(PublishedJob { f, parts, team }) };
        shared.running.0.store(team - 1, Relaxed);
        if helping(parts, team) {
            shared.taken[..team].iter().for_each(|t| t.0.store(0, Relaxed));
        }
        let generation = (shared.ticket.0.load(Relaxed) >> 16) + 1;
        // SeqCst pairs with the worker, which announces that it sleeps and then checks the ticket again: at least
        // one of the two sees the other's store.
        shared.ticket.0.store(generation << 16 | (team - 1) as u64, SeqCst);
        for worker in &self.workers[..team - 1] {
            let asleep = worker.flags.asleep.load(SeqCst);
            if self.threads() < MIN_STEALING_THREADS && (asleep || worker.flags.late.load(Relaxed)) {
                worker.flags.late.store(false, Relaxed);
                worker.flags.placement.avoid_core();
            }
            if asleep && let Some(handle) = &worker.handle {
                handle.thread().unpark();
            }
        }

        let published = PublishedJob { f, parts, team };
        shared.run_share(job, &published, 0);
        for (i, worker) in self.workers[..team - 1].iter().enumerate() {
            if worker.flags.begin(generation) {
                worker.flags.late.store(true, Relaxed);
                shared.run_share(job, &published, i + 1);
                shared.running.0.fetch_sub(1, Release);
            }
        }
        shared.wait_for_workers();

        let panic = lock(&shared.panic).take();
        shared.busy.store(false, Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        for worker in &mut self.workers {
            if let Some(handle) = worker.handle.take() {
                handle.thread().unpark();
                // A worker catches the panics of its parts, so it ends normally.
                let _ = handle.join();
            }
        }
    }
}

impl Shared {
    /// The main loop of worker `index` (the caller is worker 0).
    fn work(&self, index: usize, flags: &Flags) {
        let _denormals = self.denormals.here();
        flags.placement.register_current_thread();
        self.alive.fetch_add(1, Release);
        let mut seen = 0;
        while let Some(ticket) = self.next_ticket(seen, flags) {
            seen = ticket;
            flags.placement.allow_all_cores();
            if index as u64 > ticket & 0xffff || !flags.begin(ticket >> 16) {
                continue;
            }
            // SAFETY: this worker has begun its share, so `job` was written before, and stays valid until the share is
            // counted off below.
            if let Some(job) = unsafe { *self.job.get() } {
                // SAFETY: as above: the closure lives at least until then.
                self.run_share(unsafe { &*job.f }, &job, index);
            }
            if self.running.0.fetch_sub(1, SeqCst) == 1 && self.waiting.load(SeqCst) {
                drop(lock(&self.lock));
                self.done.notify_one();
            }
        }
    }

    /// Waits for a ticket other than `seen`; `None` when the pool is dropped.
    fn next_ticket(&self, seen: u64, flags: &Flags) -> Option<u64> {
        loop {
            for _ in 0..SPINS {
                let ticket = self.ticket.0.load(Acquire);
                if ticket != seen {
                    return Some(ticket);
                }
                spin_loop();
            }
            for _ in 0..YIELDS {
                let ticket = self.ticket.0.load(Acquire);
                if ticket != seen {
                    return Some(ticket);
                }
                if self.stop.load(Relaxed) {
                    break;
                }
                thread::yield_now();
            }
            flags.asleep.store(true, SeqCst);
            while self.ticket.0.load(SeqCst) == seen {
                if self.stop.load(SeqCst) {
                    return None;
                }
                thread::park();
            }
            flags.asleep.store(false, SeqCst);
        }
    }

    fn wait_for_workers(&self) {
        for _ in 0..SPINS {
            if self.running.0.load(Acquire) == 0 {
                return;
            }
            spin_loop();
        }
        self.waiting.store(true, SeqCst);
        let mut guard = lock(&self.lock);
        while self.running.0.load(SeqCst) != 0 {
            guard = self.done.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.store(false, SeqCst);
    }

    /// Runs a worker's share, then parts of other shares where threads steal parts. A panic ends that and is stored for the
    /// caller.
    fn run_share(&self, job: Job, of: &PublishedJob, worker: usize) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            if !helping(of.parts, of.team) {
                return contiguous_share(of.parts, of.team, worker).for_each(|part| job(part, worker));
            }
            for whose in (worker..of.team).chain(0..worker) {
                let parts = contiguous_share(of.parts, of.team, whose);
                let taken = &self.taken[whose].0;
                // Checking before incrementing keeps the cache lines of finished shares in the shared state.
                while taken.load(Relaxed) < parts.len() {
                    let next = parts.start + taken.fetch_add(1, Relaxed);
                    if next < parts.end {
                        job(next, worker);
                    }
                }
            }
        }));
        if let Err(payload) = result {
            lock(&self.panic).get_or_insert(payload);
        }
    }
}

fn helping(parts: usize, team: usize) -> bool {
    team >= MIN_STEALING_THREADS && parts > team
}

/// Returns range `index` of `team` contiguous ranges over `0..parts` whose lengths differ by at most one.
pub fn contiguous_share(parts: usize, team: usize, index: usize) -> std::ops::Range<usize> {
    let (each, extra) = (parts / team, parts % team);
    let start = index * each + index.min(extra);
    start..start + each + usize::from(index < extra)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
