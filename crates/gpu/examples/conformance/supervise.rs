//! Runs all parts in processes, many at a time; terminates and reports those that hang.

use crate::{Arguments, PARTS, Slice};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Row {
    checks: usize,
    failures: usize,
    seconds: f64,
    first: Vec<String>,
}

type Table = Arc<Mutex<BTreeMap<usize, Row>>>;

/// Runs everything; returns whether all checks passed.
pub(crate) fn all(arguments: &Arguments) -> bool {
    if let Err(e) = std::fs::create_dir_all(&arguments.out) {
        eprintln!("{}: {e}", arguments.out.display());
        return false;
    }
    println!("seed {} ({} random graphs), failures in {}", arguments.seed, arguments.random, arguments.out.display());
    let started = Instant::now();
    let table: Table = Arc::default();
    let wanted = |p: &str| arguments.only.is_empty() || arguments.only.iter().any(|o| o == p);
    // Parts that break the device or use all of its memory run alone, at the end.
    let alone = |p: &str| ["memory", "webgpu", "faults", "faults-own"].contains(&p);
    for together in [true, false] {
        let mut jobs: Vec<(usize, Slice)> = Vec::new();
        for (k, (part, shared)) in PARTS.iter().enumerate() {
            if wanted(part) && alone(part) != together {
                let n = if *shared { arguments.jobs as u64 } else { 1 };
                jobs.extend((0..n).map(|i| (k, Slice { i, n, from: 0 })));
            }
        }
        let next = AtomicUsize::new(0);
        let workers = if together { arguments.jobs } else { 1 };
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some((k, slice)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        job(arguments, *k, *slice, &table);
                    }
                });
            }
        });
    }
    collect(arguments);
    print(&table, started)
}

/// Runs one slice of a part, in as many processes as are needed to complete it.
fn job(arguments: &Arguments, k: usize, mut slice: Slice, table: &Table) {
    let part = PARTS[k].0;
    let started = Instant::now();
    loop {
        let outcome = process(arguments, part, slice);
        let mut t = table.lock().unwrap_or_else(|e| e.into_inner());
        let row = t.entry(k).or_default();
        row.checks += outcome.checks;
        row.failures += outcome.failures;
        row.seconds = row.seconds.max(started.elapsed().as_secs_f64());
        row.first.extend(outcome.first);
        match outcome.go_on {
            Some(from) if row.failures < 200 => slice.from = from,
            _ => return,
        }
    }
}

#[derive(Default)]
struct Outcome {
    checks: usize,
    failures: usize,
    first: Vec<String>,
    /// The number of the next check, if the process ended early.
    go_on: Option<u64>,
}

fn process(arguments: &Arguments, part: &str, slice: Slice) -> Outcome {
    let mut outcome = Outcome::default();
    let program = match std::env::current_exe() {
        Ok(p) => p,
        Err(e) => return Outcome { failures: 1, first: vec![format!("{part}: {e}")], ..outcome },
    };
    let mut command = Command::new(program);
    command.args(["--part", part, "--slice", &format!("{}/{}/{}", slice.i, slice.n, slice.from)]);
    command.args(["--out".as_ref(), arguments.out.as_os_str()]);
    command.args(["--random", &arguments.random.to_string(), "--seed", &arguments.seed.to_string()]);
    command.args(["--device", &arguments.device]);
    // The kernel cache is in the output folder, not in the user's cache.
    let cache = arguments.out.join("cache");
    command.env("TENSORLOOM_CACHE", if part == "cache" { cache.as_os_str() } else { "".as_ref() });
    if part == "faults-own" {
        command.env("TENSORLOOM_CUDA_CONTEXT", "own");
    }
    let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(c) => c,
        Err(e) => return Outcome { failures: 1, first: vec![format!("{part}: {e}")], ..outcome },
    };
    let errors = child.stderr.take().map(|e| {
        std::thread::spawn(move || {
            let lines: Vec<String> = BufReader::new(e).lines().map_while(Result::ok).collect();
            lines[lines.len().saturating_sub(12)..].join(" | ")
        })
    });
    let (to, lines) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|l| to.send(l)));
    }
    let (mut number, mut name, mut done) = (u64::MAX, String::from("its start"), false);
    // The first response takes longer, because many processes create contexts at once.
    let mut patience = Duration::from_secs(arguments.stall.max(120));
    loop {
        let line = match lines.recv_timeout(patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                outcome.failures += 1;
                outcome.first.push(format!("{part}: hangs at {name}"));
                break;
            }
        };
        patience = Duration::from_secs(arguments.stall);
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "at" => {
                outcome.checks += 1;
                let (n, what) = rest.split_once(' ').unwrap_or((rest, ""));
                (number, name) = (n.parse().unwrap_or(u64::MAX), what.to_string());
            }
            "bad" => {
                outcome.failures += 1;
                outcome.first.push(format!("{part}: {rest}"));
            }
            "done" => done = true,
            _ => println!("{line}"),
        }
    }
    let status = child.wait();
    let said = errors.and_then(|e| e.join().ok()).unwrap_or_default();
    if !done {
        if !status.as_ref().is_ok_and(|s| s.code() == Some(3)) && !outcome.first.iter().any(|f| f.contains("hangs at"))
        {
            outcome.failures += 1;
            let status = status.map_or_else(|e| e.to_string(), |s| s.to_string());
            outcome.first.push(format!("{part}: ended at {name} with {status}: {said}"));
        }
        outcome.go_on = number.checked_add(1).filter(|n| *n < u64::MAX);
    }
    outcome
}

/// Collects all details in one file.
fn collect(arguments: &Arguments) {
    let Ok(entries) = std::fs::read_dir(&arguments.out) else { return };
    let mut parts: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    parts.retain(|p| p.extension().is_some_and(|e| e == "part"));
    parts.sort();
    let mut all = String::new();
    for p in parts {
        all.push_str(&std::fs::read_to_string(&p).unwrap_or_default());
        let _ = std::fs::remove_file(&p);
    }
    let all: String = all.chars().take(12_000_000).collect();
    let _ = std::fs::write(arguments.out.join("failures.txt"), all);
    let _ = std::fs::remove_dir_all(arguments.out.join("cache"));
}

fn print(table: &Table, started: Instant) -> bool {
    let table = table.lock().unwrap_or_else(|e| e.into_inner());
    let mut bad = 0;
    for row in table.values() {
        for f in row.first.iter().take(25) {
            println!("  {f}");
        }
    }
    println!("{:<10} {:>8} {:>9} {:>8}", "part", "checks", "failures", "seconds");
    for (k, row) in table.iter() {
        bad += row.failures;
        println!("{:<10} {:>8} {:>9} {:>8.1}", PARTS[*k].0, row.checks, row.failures, row.seconds);
    }
    println!("{} failures in {:.0} s", bad, started.elapsed().as_secs_f64());
    bad == 0
}
