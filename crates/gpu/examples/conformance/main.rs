//! Compares the results of a GPU with those of the interpreter and the CPU. Needs a GPU.
//!
//! ```text
//! conformance [--out FOLDER] [--random N] [--seed S] [--jobs J] [--only PART,PART] [--stall SECONDS] [--device cuda|wgpu|wgpu-strict|cpu|offline]
//! ```
//!
//! Each part runs in separate processes, so that a kernel that hangs or breaks the device fails only one check. Failures are
//! written to `FOLDER/failures.txt`, with the graph, the program and the source of its kernels; the output ends with a table.
//! The exit status is 0 if all checks passed. `--device cpu` runs the same checks on the CPU, to test the checks. `--device
//! offline` compiles the kernels of `ops`, `random`, `exact`, `sizes`, `products` and `attention` for Hopper, if NVRTC is
//! installed; it needs no GPU. WebGPU needs the feature `wgpu`; `wgpu-strict` uses default limits and the rules of browsers.

mod attention;
mod device;
mod faults;
mod graphs;
mod queue;
mod report;
mod sizes;
mod supervise;
#[cfg(feature = "wgpu")]
mod webgpu;

use device::Device;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// The command-line arguments.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) out: PathBuf,
    pub(crate) random: u64,
    pub(crate) seed: u64,
    pub(crate) jobs: usize,
    pub(crate) only: Vec<String>,
    pub(crate) stall: u64,
    pub(crate) device: String,
    /// In a process of a part: the part, and the slice of its checks (every `n`-th from `i` on, from number `from`).
    pub(crate) part: Option<(String, Slice)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) i: u64,
    pub(crate) n: u64,
    pub(crate) from: u64,
}

impl Slice {
    pub(crate) fn has(self, k: u64) -> bool {
        k % self.n == self.i && k >= self.from
    }
}

/// The parts, and whether their checks can be distributed over processes.
pub(crate) const PARTS: &[(&str, bool)] = &[
    ("open", false),
    ("ops", true),
    ("random", true),
    ("exact", true),
    ("sizes", true),
    ("products", true),
    ("attention", true),
    ("queue", false),
    ("replay", false),
    ("cache", false),
    ("memory", false),
    ("webgpu", false),
    ("faults", false),
    ("faults-own", false),
];

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(a) => a,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    let Some((part, slice)) = arguments.part.clone() else {
        return match supervise::all(&arguments) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        };
    };
    let mut report = Report::new(&arguments, &part, slice);
    match Device::open(&arguments.device) {
        Ok(device) => run(&part, slice, device, &arguments, &mut report),
        Err(e) => report.failed("open the device", &e, String::new()),
    }
    report.end();
    ExitCode::SUCCESS
}

/// Parts that work without a device.
const COMPILED: &[&str] = &["open", "ops", "random", "exact", "sizes", "products", "attention"];

fn run(part: &str, slice: Slice, device: Device, arguments: &Arguments, report: &mut Report) {
    if device.offline.is_some() && !COMPILED.contains(&part) {
        return;
    }
    match part {
        "open" => report.check("name", || Ok(println!("name {}", device.backend().name())), String::new),
        "ops" => graphs::ops(device, slice, report),
        "random" => graphs::random(device, slice, arguments, report),
        "exact" => graphs::exacts(device, slice, arguments, report),
        "sizes" => sizes::sizes(device, slice, report),
        "products" => sizes::products(device, slice, report),
        "attention" => attention::attentions(device, slice, report),
        "queue" => queue::queue(device, report),
        "replay" => queue::replay(device, report),
        "cache" => faults::cache(device, report),
        "memory" => faults::memory(device, report),
        #[cfg(feature = "wgpu")]
        "webgpu" => webgpu::all(device, arguments, report),
        #[cfg(not(feature = "wgpu"))]
        "webgpu" => {}
        "faults" | "faults-own" => faults::faults(device, report),
        _ => report.failed(part, "there is no such part", String::new()),
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut a = Arguments {
        out: std::env::temp_dir().join("conformance"),
        random: 1000,
        seed: testing::rng::run_seed(),
        jobs: std::thread::available_parallelism().map_or(4, |n| n.get()).min(12),
        only: Vec::new(),
        stall: 60,
        device: "cuda".into(),
        part: None,
    };
    let mut words = std::env::args().skip(1);
    let (mut part, mut slice) = (None, Slice { i: 0, n: 1, from: 0 });
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{word} {value}: {e}"));
        match word.as_str() {
            "--out" => a.out = PathBuf::from(value),
            "--random" => a.random = number()?,
            "--seed" => a.seed = number()?,
            "--jobs" => a.jobs = number()?.max(1) as usize,
            "--only" => a.only = value.split(',').map(str::to_string).collect(),
            "--stall" => a.stall = number()?,
            "--device" => a.device = value,
            "--part" => part = Some(value),
            "--slice" => {
                let all: Vec<u64> = value.split('/').filter_map(|x| x.parse().ok()).collect();
                let [i, n, from] = all[..] else { return Err(format!("--slice {value}")) };
                slice = Slice { i, n: n.max(1), from };
            }
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    a.part = part.map(|p| (p, slice));
    Ok(a)
}
