use super::*;
use std::sync::atomic::AtomicU32;

fn counts(pool: &ThreadPool, parts: usize) -> Vec<u32> {
    let counts: Vec<AtomicU32> = (0..parts).map(|_| AtomicU32::new(0)).collect();
    pool.run(parts, &|part, worker| {
        assert!(worker < pool.threads());
        counts[part].fetch_add(1, Relaxed);
    });
    counts.into_iter().map(AtomicU32::into_inner).collect()
}

#[test]
fn shares_are_contiguous_and_cover() {
    for parts in 0..20 {
        for team in 1..6 {
            let all: Vec<usize> = (0..team).flat_map(|i| contiguous_share(parts, team, i)).collect();
            assert_eq!(all, (0..parts).collect::<Vec<_>>());
        }
    }
}

#[test]
fn every_part_runs_once() {
    for threads in [1, 2, 3, 8] {
        let pool = ThreadPool::new(threads);
        assert_eq!(pool.threads(), threads);
        for parts in [0, 1, 2, 3, 7, 64, 1000] {
            assert_eq!(counts(&pool, parts), vec![1; parts]);
        }
    }
}

#[test]
fn a_late_thread_is_helped() {
    let pool = ThreadPool::new(4);
    let parts = pool.parts(1000);
    assert_eq!(parts, 16);
    let left = AtomicUsize::new(parts - 1);
    let who: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(usize::MAX)).collect();
    pool.run(parts, &|part, worker| {
        who[part].store(worker, Relaxed);
        if part == 4 {
            // Ends when all others have run, including those of the same share.
            while left.load(Relaxed) > 0 {
                thread::yield_now();
            }
        } else {
            left.fetch_sub(1, Relaxed);
        }
    });
    let who: Vec<usize> = who.into_iter().map(AtomicUsize::into_inner).collect();
    assert!((5..8).all(|part| who[part] != who[4] && who[part] < 4), "{who:?}");
}

#[test]
fn few_threads_keep_to_their_shares() {
    let pool = ThreadPool::new(3);
    assert_eq!((pool.parts(1000), pool.parts(2), pool.parts(0)), (3, 2, 1));
}

#[test]
fn many_short_jobs() {
    let pool = ThreadPool::new(3);
    let sum = AtomicUsize::new(0);
    for _ in 0..20_000 {
        pool.run(3, &|part, _| {
            sum.fetch_add(part + 1, Relaxed);
        });
    }
    assert_eq!(sum.into_inner(), 120_000);
}

#[test]
fn sleeping_workers_wake() {
    let pool = ThreadPool::new(4);
    let all_asleep = || pool.workers.iter().all(|w| w.flags.asleep.load(SeqCst));
    for _ in 0..20 {
        while !all_asleep() {
            thread::yield_now();
        }
        assert_eq!(counts(&pool, 9), vec![1; 9]);
    }
}

#[test]
fn concurrent_callers_and_reentrant_parts() {
    let pool = ThreadPool::new(3);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert_eq!(counts(&pool, 5), vec![1; 5]);
                    pool.run(3, &|_, _| assert_eq!(counts(&pool, 4), vec![1; 4]));
                }
            });
        }
    });
}

#[test]
fn busy_callers_run_in_order_as_worker_zero() {
    let pool = ThreadPool::new(2);
    pool.run(2, &|_, _| {
        let order = Mutex::new(Vec::new());
        pool.run(4, &|part, worker| lock(&order).push((part, worker)));
        assert_eq!(*lock(&order), [(0, 0), (1, 0), (2, 0), (3, 0)]);
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = ThreadPool::new(3);
    for bad in [0, 1, 2, 5] {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(6, &|part, _| {
                if part == bad {
                    resume_unwind(Box::new(part));
                }
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<usize>(), Some(&bad));
        assert_eq!(counts(&pool, 6), vec![1; 6]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn workers_that_were_kept_from_a_core_may_run_on_all_again() {
    let cores = |thread| {
        // SAFETY: a set without cores is all zeros, and the call writes one set.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), &raw mut set), 0);
            libc::CPU_COUNT(&set)
        }
    };
    let pool = ThreadPool::new(2);
    let all_asleep = || pool.workers.iter().all(|w| w.flags.asleep.load(SeqCst));
    let (mut began, mut tries) = (0, 0);
    while began < 20 && tries < 2000 {
        tries += 1;
        while !all_asleep() {
            thread::yield_now();
        }
        // A worker that is late is still excluded from a core; it is in time if a part takes long.
        let others = AtomicUsize::new(0);
        pool.run(2, &|_, worker| {
            if worker == 1 {
                assert_eq!(cores(0), cores(std::process::id() as i32));
                others.fetch_add(1, Relaxed);
            } else {
                thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        began += others.into_inner();
    }
    assert!(began > 0, "a worker never began in {tries} jobs");
}
