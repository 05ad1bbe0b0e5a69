//! The Tensorloom part of `cargo xtask bench ops`: every op and routine, with generated cases.
//!
//! `--list` prints the cases, one per line (`list.rs`); `--lot SEED` prints as many with random shapes (`lot.rs`). Otherwise
//! cases are read from standard input, and the result of each is one JSON object with the median seconds of a run and the compile
//! time. `bench/ops.py` processes the same lines with PyTorch and JAX.
//! `--avx2` limits vectors to 256 bits on machines with wider ones.

mod case;
mod graph;
mod list;
mod lot;

use case::Case;
use compiler::{Backend, Bindings, Executable, Options};
use ir::{DType, Literal, Scalar, Type};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

/// The wall-clock time, or with `LOOM_CPU_TIME` set the CPU time, which other processes disturb less.
fn now() -> Duration {
    static START: std::sync::OnceLock<(Instant, bool)> = std::sync::OnceLock::new();
    let (start, passes) = START.get_or_init(|| (Instant::now(), std::env::var_os("LOOM_CPU_TIME").is_none()));
    if *passes {
        return start.elapsed();
    }
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a time of this function.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

struct Ready {
    exe: Arc<dyn Executable>,
    bindings: Bindings,
    compile_s: f64,
    inner: usize,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|w| w == "--list") {
        return list::cases().iter().for_each(|c| println!("{c}"));
    }
    let given = |name: &str| {
        let at = words.iter().position(|w| w == name);
        at.and_then(|i| words.get(i + 1)?.parse::<usize>().ok())
    };
    if let Some(seed) = given("--lot") {
        let mut lot = lot::Lot::new(seed as u64);
        return list::cases().iter().for_each(|c| println!("{}", lot.redraw(c)));
    }
    let number = |name: &str, otherwise: usize| given(name).unwrap_or(otherwise);
    let (reps, threads) = (number("--reps", 5usize).max(1), number("--threads", 2usize).max(1));
    let cpu = match words.iter().any(|w| w == "--avx2") {
        true => Cpu::with_target(threads, Some(Target::Avx2)),
        false => Cpu::with_flush_denormals(threads),
    };
    let mut known = BTreeMap::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let line = line.trim();
        match answer(&cpu, line, reps, &mut known) {
            Ok(text) => println!("{text}"),
            Err(e) => println!("{{\"case\": {line:?}, \"error\": {e:?}}}"),
        }
        if std::io::stdout().flush().is_err() {
            break;
        }
    }
}

fn answer(cpu: &Cpu, line: &str, reps: usize, known: &mut BTreeMap<String, Ready>) -> Result<String, String> {
    if !known.contains_key(line) {
        // Keep one program at a time: large cases would fill memory.
        known.clear();
        known.insert(line.into(), prepare(cpu, line)?);
    }
    let r = known.get_mut(line).expect("just made");
    let mut times = Vec::with_capacity(reps);
    for _ in 0..reps {
        let start = now();
        for _ in 0..r.inner {
            r.exe.run(&mut r.bindings).map_err(|e| e.to_string())?;
        }
        times.push((now() - start).as_secs_f64() / r.inner as f64);
    }
    times.sort_by(f64::total_cmp);
    if std::env::var_os("LOOM_TIMES").is_some() {
        for t in r.exe.run_timed(&mut r.bindings).map_err(|e| e.to_string())? {
            eprintln!("{:9.1} µs {:5} × {}", t.time.as_secs_f64() * 1e6, t.calls, t.label);
        }
    }
    let (median, least) = (times[reps / 2], times[0]);
    Ok(format!("{{\"case\": {line:?}, \"s\": {median:e}, \"min_s\": {least:e}, \"compile_s\": {:.5}}}", r.compile_s))
}

fn prepare(cpu: &Cpu, line: &str) -> Result<Ready, String> {
    let case = Case::parse(line)?;
    let graph = graph::build(&case).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let program = compiler::compile(&graph, cpu, &Options::default()).map_err(|e| e.to_string())?;
    let exe = cpu.load(program).map_err(|e| e.to_string())?;
    let compile_s = start.elapsed().as_secs_f64();
    let mut bindings = Bindings::for_program(exe.program(), cpu).map_err(|e| e.to_string())?;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for (b, ty) in bindings.inputs.iter().zip(&exe.program().inputs) {
        b.write(0, fill(&case, ty, &mut state).bytes()).map_err(|e| e.to_string())?;
    }
    for _ in 0..2 {
        exe.run(&mut bindings).map_err(|e| e.to_string())?;
    }
    let start = now();
    exe.run(&mut bindings).map_err(|e| e.to_string())?;
    let inner = (0.004 / (now() - start).as_secs_f64().max(1e-7)).clamp(1.0, 2000.0) as usize;
    Ok(Ready { exe, bindings, compile_s, inner })
}

/// Fills an input with numbers inside the domain of the case's function.
fn fill(case: &Case, ty: &Type, state: &mut u64) -> Literal {
    let mut next = || {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as f64 / (1u64 << 31) as f64
    };
    let (low, high) = case.range(ty.dtype);
    let spd = case.is_definite() && ty.rank() >= 2;
    Literal::from_fn(ty.clone(), |i| {
        let x = low + (high - low) * next();
        match ty.dtype {
            DType::Bool => Scalar::bool(x > 0.5),
            d if d.is_float() => {
                // Make the diagonal dominant: symmetric factorizations read one triangle.
                let n = ty.shape.last().copied().unwrap_or(1);
                let diagonal = spd && (i / n) % n == i % n;
                Scalar::from_f64(d, if diagonal { x + 4.0 * n as f64 } else { x })
            }
            d => Scalar::from_i64(d, x as i64),
        }
    })
}
