//! Variable-shape cases: convolutions by both algorithms, and a ragged batch.

use crate::ragged::{self, MEASURED};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;
use tensorloom_vsla::{
    Backend, Bindings, ConvAlgorithm, DType, Error, Numerics, Plan, Program, ProgramBuilder, Result, Stream, conv_path,
};

/// Operand lengths of the convolution cases.
const LENGTHS: &[(usize, usize)] = &[
    (64, 64),
    (100, 100),
    (128, 128),
    (200, 200),
    (256, 256),
    (400, 400),
    (512, 512),
    (1000, 1000),
    (1024, 1024),
    (2000, 2000),
    (4096, 4096),
    (5000, 5000),
    (10_000, 10_000),
    (50_000, 50_000),
    (200_000, 200_000),
    (16, 1000),
    (64, 1000),
    (300, 1000),
    (16, 10_000),
    (64, 10_000),
    (256, 10_000),
    (1000, 10_000),
];

/// Operand lengths near the crossover of the two algorithms; the peers don't measure these.
const CROSSOVER_LENGTHS: &[(usize, usize)] = &[
    (4, 4),
    (8, 8),
    (16, 16),
    (24, 24),
    (32, 32),
    (48, 48),
    (24, 64),
    (24, 256),
    (32, 256),
    (64, 256),
    (96, 1000),
    (96, 10_000),
];

/// Returns the names of all cases.
pub(crate) fn names() -> Vec<String> {
    let conv = |dtype: &'static str| LENGTHS.iter().map(move |(m, n)| format!("conv_{dtype}_{m}x{n}"));
    let near = CROSSOVER_LENGTHS.iter().map(|(m, n)| format!("paths_f64_{m}x{n}"));
    conv("f64").chain(conv("f32")).chain(near).chain(["ragged_encoder".to_string()]).collect()
}

/// A planned program with its bindings.
struct PreparedPlan {
    plan: Plan,
    bindings: Bindings,
    stream: Stream,
}

impl PreparedPlan {
    fn new(program: Program, backend: &Backend) -> Result<PreparedPlan> {
        let program = Arc::new(program);
        let plan = Plan::new(&program, backend)?;
        let mut bindings = plan.bind()?;
        for (k, v) in program.inputs().iter().chain(program.params()).enumerate() {
            let s = program.signature(*v);
            let values = ragged::values(k, &s.shape);
            let bytes: Vec<u8> = match s.dtype {
                DType::F64 => values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect(),
                _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            };
            bindings.write_bytes(*v, &bytes)?;
        }
        Ok(PreparedPlan { plan, bindings, stream: Stream::new(backend) })
    }

    /// Returns the median seconds over `reps` timings of about 20 ms each, or of one run each if a run takes longer.
    fn median(&mut self, reps: usize) -> Result<f64> {
        let mut runs = |n: usize| -> Result<f64> {
            let start = Instant::now();
            for _ in 0..n {
                self.plan.execute(&mut self.bindings, &self.stream)?;
            }
            Ok(start.elapsed().as_secs_f64() / n as f64)
        };
        runs(2)?;
        let inner = ((0.02 / runs(3)?) as usize).clamp(1, 20_000);
        let mut times = (0..reps).map(|_| runs(inner)).collect::<Result<Vec<f64>>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[reps / 2])
    }
}

fn convolution(dtype: DType, m: usize, n: usize, path: ConvAlgorithm) -> Result<Program> {
    let mut b = ProgramBuilder::new();
    b.numerics(Numerics { conv: Some(path), ..Numerics::default() });
    let (x, y) = (b.input("x", dtype, &[m])?, b.input("y", dtype, &[n])?);
    let z = b.conv1d(x, y)?;
    b.output(z)?;
    b.build()
}

/// Runs a case and writes the answer.
pub(crate) fn run_case(backend: &Backend, case: &str, reps: usize) -> Result<String> {
    if case == "ragged_encoder" {
        return ragged_encoder(backend, reps);
    }
    let unknown = || Error::InvalidArg(format!("there is no case {case:?}; --list names them"));
    let mut parts = case.split('_').skip(1);
    let dtype = match parts.next() {
        Some("f64") => DType::F64,
        Some("f32") => DType::F32,
        _ => return Err(unknown()),
    };
    let (m, n) = parts.next().and_then(|p| p.split_once('x')).ok_or_else(unknown)?;
    let (m, n): (usize, usize) = (m.parse().map_err(|_| unknown())?, n.parse().map_err(|_| unknown())?);
    let time = |path: ConvAlgorithm| PreparedPlan::new(convolution(dtype, m, n, path)?, backend)?.median(reps);
    let chosen = conv_path(m, n);
    let (direct, fft) = (time(ConvAlgorithm::Direct)?, time(ConvAlgorithm::Fft)?);
    let (s, path) = if chosen == ConvAlgorithm::Direct { (direct, "direct") } else { (fft, "fft") };
    Ok(format!(
        "{{\"case\": {case:?}, \"s\": {s:e}, \"direct_s\": {direct:e}, \"fft_s\": {fft:e}, \"path\": {path:?}}}"
    ))
}

/// Measures the encoder's time and work, and returns two elements of the last token of each sequence for comparison with the
/// peers.
fn ragged_encoder(backend: &Backend, reps: usize) -> Result<String> {
    let lengths = ragged::lengths();
    let mut ready = PreparedPlan::new(ragged::encoder(&MEASURED, &lengths)?, backend)?;
    let s = ready.median(reps)?;
    let out = ready.bindings.read(ready.plan.program().outputs()[0])?.to_vec::<f64>();
    let mut sample = String::new();
    let mut end = 0;
    for n in &lengths {
        end += n;
        let row = &out[(end - 1) * MEASURED.width..end * MEASURED.width];
        let _ = write!(
            sample,
            "{}{:.7}, {:.7}",
            if sample.is_empty() { "" } else { ", " },
            row[0],
            row[MEASURED.width - 1]
        );
    }
    let (real, padded) = ragged::flop(&MEASURED, &lengths);
    let tokens: usize = lengths.iter().sum();
    Ok(format!(
        "{{\"case\": \"ragged_encoder\", \"s\": {s:e}, \"tokens\": {tokens}, \"real_flop\": {real:e}, \"padded_flop\": {padded:e}, \
         \"sample\": [{sample}]}}"
    ))
}
