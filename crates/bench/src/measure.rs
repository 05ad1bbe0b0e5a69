//! Times compiled programs.

use compiler::{Backend, Bindings, Error, Executable, Result};
use ir::{DType, Graph, Literal, Scalar, Type};
use std::sync::Arc;
use std::time::Instant;

/// A compiled program with its inputs.
pub(crate) struct PreparedProgram {
    pub(crate) exe: Arc<dyn Executable>,
    pub(crate) bindings: Bindings,
    pub(crate) compile_s: f64,
}

/// Compiles a graph and fills the inputs with pseudo-random numbers: approximately normal floats times `scale`, integers below
/// `classes`.
pub(crate) fn prepare(
    device: &dyn Backend,
    graph: &Graph,
    (scale, classes): (f64, i64),
    donate: Vec<(usize, usize)>,
) -> Result<PreparedProgram> {
    let start = Instant::now();
    let program = compiler::compile(graph, device, &compiler::Options { donate, ..Default::default() })?;
    let exe = device.load(program)?;
    let compile_s = start.elapsed().as_secs_f64();
    let bindings = Bindings::for_program(exe.program(), device)?;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut drawn = RandomData::new();
    for (b, ty) in bindings.inputs.iter().zip(&exe.program().inputs) {
        b.write(0, &random(ty, (scale, classes), &mut state, &mut drawn))?;
    }
    Ok(PreparedProgram { exe, bindings, compile_s })
}

/// The number of random elements per dtype. Each input starts at a different element, and a long input repeats them.
const RANDOM_ELEMENTS: usize = 1 << 20;

/// The random elements by dtype.
type RandomData = Vec<(DType, Vec<u8>)>;

fn random(ty: &Type, (scale, classes): (f64, i64), state: &mut u64, drawn: &mut RandomData) -> Vec<u8> {
    let mut next = || {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as f64 / (1u64 << 31) as f64
    };
    let known = drawn.iter().position(|(d, _)| *d == ty.dtype).unwrap_or_else(|| {
        let all = Literal::from_fn(Type::new(ty.dtype, &[RANDOM_ELEMENTS]), |_| match ty.dtype {
            DType::I32 | DType::I64 => Scalar::from_i64(ty.dtype, (next() * classes as f64) as i64),
            // A sum of uniform numbers is approximately normal.
            d => Scalar::from_f64(d, (next() + next() + next() + next() - 2.0) * 1.7 * scale),
        });
        drawn.push((ty.dtype, all.bytes().to_vec()));
        drawn.len() - 1
    });
    let table = &drawn[known].1;
    let mut at = (next() * RANDOM_ELEMENTS as f64) as usize * ty.dtype.size();
    let mut all = Vec::with_capacity(ty.bytes());
    while all.len() < ty.bytes() {
        let more = (ty.bytes() - all.len()).min(table.len() - at);
        all.extend_from_slice(&table[at..at + more]);
        at = 0;
    }
    all
}

impl PreparedProgram {
    pub(crate) fn run(&mut self) -> Result<()> {
        self.exe.run(&mut self.bindings)
    }

    /// Returns the median seconds per run over `reps` timings of `inner` runs each.
    pub(crate) fn median(&mut self, reps: usize, inner: usize) -> Result<f64> {
        let warm = Instant::now();
        for i in 0.. {
            self.run()?;
            if i > 0 && warm.elapsed().as_millis() >= 20 {
                break;
            }
        }
        let mut times = Vec::with_capacity(reps);
        for _ in 0..reps {
            let start = Instant::now();
            for _ in 0..inner {
                self.run()?;
            }
            times.push(start.elapsed().as_secs_f64() / inner as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[reps / 2])
    }
}

/// Returns the peak resident memory of this process, in MiB.
pub(crate) fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Returns the error of a case that could not run.
pub(crate) fn fail(text: &str) -> Error {
    Error::Backend(text.to_string())
}
