//! The thread pool: a fixed set of workers that run the parts of one job at a time.
//!
//! Invariants:
//! - Parts are shared out in contiguous ranges that follow from `parts` and `threads` alone. A worker
//!   runs its own share, or the caller does if the worker has not begun when the caller is through
//!   with its own: a sleeping or descheduled worker delays nobody.
//! - From four threads on (`HELPERS`), who is through with its share takes parts of others' that nobody has begun: of many cores
//!   one is always late.
//! - [`Pool::run`] allocates nothing (unless a part panics) and returns only when no worker can
//!   touch the job any more.
//! - A busy pool is never waited for: a second caller, or a part that calls `run` itself, runs its
//!   parts alone, in order. So the pool can't deadlock.
//! - An idle worker spins for some tens of microseconds, looks on for about a millisecond more while it lets others have
//!   the core, then sleeps. Who sleeps between short jobs is woken late: then the caller does everything alone. Where threads don't help
//!   each other, the caller sees to it that such a worker isn't on its own core (`placement.rs`).

mod denormals;
mod placement;

pub use denormals::Denormals;

use placement::Placement;
use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Turns of the spin loop before a thread sleeps; a `pause` takes 10 to 50 ns on x86-64.
const SPINS: usize = 2000;
/// Turns of yielding after that; one takes from 0.3 µs on.
const YIELDS: usize = 2000;

/// Threads from which on they help each other. Fewer keep to their shares, and to what their caches hold.
pub(crate) const HELPERS: usize = 4;
/// Parts for each thread that is to be helped.
const PIECES: usize = 4;

/// A job: called once for each part, with the part and the index of the worker that runs it.
///
/// The worker index is below [`Pool::threads`] and no two parts of one call run at the same time
/// with the same index, so scratch *that belongs to the call* may be indexed by it. Scratch that
/// outlives the call may not: a caller that finds the pool busy runs all its parts as worker 0.
pub type Job<'a> = &'a (dyn Fn(usize, usize) + Sync + 'a);

/// A set of threads that run the parts of a job together with the caller.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let pool = tensorloom_cpu::pool::Pool::new(2);
/// let sum = AtomicUsize::new(0);
/// pool.run(10, &|part, _worker| {
///     sum.fetch_add(part, Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 45);
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
}

struct Worker {
    flags: Arc<Flags>,
    handle: Option<JoinHandle<()>>,
}

/// What a worker and the callers tell each other.
#[derive(Default)]
#[repr(align(128))]
struct Flags {
    asleep: AtomicBool,
    /// Whether the caller ran its last share.
    late: AtomicBool,
    placement: Placement,
    /// The last generation whose share for this worker was begun, by the worker or the caller. Only
    /// who moves it forward may run that share, and reads `job` before the share is counted off.
    begun: AtomicU64,
}

/// How many parts of each thread's share are taken, the caller's first. Set by the holder of `busy` while no share is
/// running, and counted up only by who holds one.
type Taken = Box<[Line<AtomicUsize>]>;

impl Flags {
    fn begin(&self, generation: u64) -> bool {
        let last = self.begun.load(Relaxed);
        last < generation && self.begun.compare_exchange(last, generation, AcqRel, Relaxed).is_ok()
    }
}

/// Keeps what workers poll away from what they count down.
#[repr(align(128))]
struct Line<T>(T);

struct Shared {
    denormals: Denormals,
    /// `generation << 16 | workers with a share`. A change publishes `job`.
    ticket: Line<AtomicU64>,
    /// Shares of the current job that are not finished, the caller's own apart.
    running: Line<AtomicUsize>,
    /// Held by the caller whose job is in `job`.
    busy: AtomicBool,
    stop: AtomicBool,
    /// Whether the caller sleeps on `done`.
    waiting: AtomicBool,
    done: Condvar,
    lock: Mutex<()>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    taken: Taken,
    /// Workers that have begun to live.
    alive: AtomicUsize,
    job: UnsafeCell<Option<Published>>,
}

/// The current job with its lifetime erased: `run` does not return before every reader is done.
#[derive(Clone, Copy)]
struct Published {
    f: *const (dyn Fn(usize, usize) + Sync),
    parts: usize,
    /// Threads that share the parts, the caller among them.
    team: usize,
}

// SAFETY: `job` is written only by the holder of `busy` while `running` is zero, and read only by
// workers that have begun a share of it, before they count that off `running`.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is to a `Sync` closure.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of `threads` threads, the caller of [`Pool::run`] being one of them.
    ///
    /// Where the system refuses a thread (wasm has none) the pool has fewer.
    pub fn new(threads: usize) -> Pool {
        Pool::with_denormals(threads, Denormals::Keep)
    }

    /// A pool whose threads treat denormal numbers in a given way. The caller's own is set while a program runs.
    pub fn with_denormals(threads: usize, denormals: Denormals) -> Pool {
        let threads = threads.clamp(1, 1 << 15);
        let shared = Arc::new(Shared {
            denormals,
            taken: (0..threads).map(|_| Line(AtomicUsize::new(0))).collect(),
            ticket: Line(AtomicU64::new(0)),
            running: Line(AtomicUsize::new(0)),
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
        // What a thread allocates as it begins belongs to the pool, not to the first program that runs.
        while shared.alive.load(Acquire) < workers.len() {
            thread::yield_now();
        }
        Pool { shared, workers }
    }

    /// A pool with a thread for each core that this process may use.
    pub fn for_machine() -> Pool {
        Pool::new(thread::available_parallelism().map_or(1, |n| n.get()))
    }

    /// The number of threads that run a job, the caller among them.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Into how many parts a loop of `n` turns is cut: one for each thread, or several where threads help each other.
    pub fn parts(&self, n: usize) -> usize {
        let threads = self.threads();
        (if threads < HELPERS { threads } else { threads * PIECES }).min(n).max(1)
    }

    /// How its threads treat denormal numbers.
    pub fn denormals(&self) -> Denormals {
        self.shared.denormals
    }

    /// Runs `job(part, worker)` for every part in `0..parts` and returns when all are done.
    ///
    /// # Panics
    /// When a part panics, with that part's payload, after the other threads have finished theirs.
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
        unsafe { *shared.job.get() = Some(Published { f, parts, team }) };
        shared.running.0.store(team - 1, Relaxed);
        if helping(parts, team) {
            shared.taken[..team].iter().for_each(|t| t.0.store(0, Relaxed));
        }
        let generation = (shared.ticket.0.load(Relaxed) >> 16) + 1;
        // SeqCst pairs with the worker that says it sleeps and then looks at the ticket again: one
        // of the two sees the other.
        shared.ticket.0.store(generation << 16 | (team - 1) as u64, SeqCst);
        for worker in &self.workers[..team - 1] {
            let asleep = worker.flags.asleep.load(SeqCst);
            if self.threads() < HELPERS && (asleep || worker.flags.late.load(Relaxed)) {
                worker.flags.late.store(false, Relaxed);
                worker.flags.placement.elsewhere();
            }
            if asleep && let Some(handle) = &worker.handle {
                handle.thread().unpark();
            }
        }

        let published = Published { f, parts, team };
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

impl Drop for Pool {
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
    /// The life of worker `index` (the caller is worker 0).
    fn work(&self, index: usize, flags: &Flags) {
        let _denormals = self.denormals.here();
        flags.placement.here();
        self.alive.fetch_add(1, Release);
        let mut seen = 0;
        while let Some(ticket) = self.next_ticket(seen, flags) {
            seen = ticket;
            flags.placement.anywhere();
            if index as u64 > ticket & 0xffff || !flags.begin(ticket >> 16) {
                continue;
            }
            // SAFETY: this worker has begun its share, so the caller has written `job` before and
            // waits until the share is counted off below.
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

    /// Runs a worker's share, then parts of others' where threads help each other. A panic ends that and is kept for the
    /// caller.
    fn run_share(&self, job: Job, of: &Published, worker: usize) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            if !helping(of.parts, of.team) {
                return share(of.parts, of.team, worker).for_each(|part| job(part, worker));
            }
            for whose in (worker..of.team).chain(0..worker) {
                let parts = share(of.parts, of.team, whose);
                let taken = &self.taken[whose].0;
                // Looking before counting keeps lines that are used up shared among all who look.
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
    team >= HELPERS && parts > team
}

/// The `index`-th of `team` contiguous ranges over `0..parts` whose lengths differ by at most one.
pub fn share(parts: usize, team: usize, index: usize) -> std::ops::Range<usize> {
    let (each, extra) = (parts / team, parts % team);
    let start = index * each + index.min(extra);
    start..start + each + usize::from(index < extra)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
