//! Measures GFLOP/s of matmuls: `cargo run --release --example gemm_bench [threads] [dtype] [shape]`.
//!
//! A shape is given as it is printed: `48x256,64,256NT` is a batch of 48 products of 256 × 64 and
//! 64 × 256 matrices, the second one transposed. Without a shape, a list of shapes is run.
//! One line per shape: name, median and best time in µs, GFLOP/s at the median. The shapes are
//! squares, the shapes of transformer training (forward, weight gradients), batches and vectors.

use std::time::Instant;

use compiler::DeviceBuffer;
use ir::DType;
use tensorloom_cpu::HostBuffer;
use tensorloom_cpu::gemm::{GemmOperand, GemmOutput, GemmPlan, GemmProblem, MatrixLayout, OperandSource, OutputKind};
use tensorloom_cpu::pool::ThreadPool;

struct Case {
    name: String,
    problem: GemmProblem,
}

fn case(m: usize, k: usize, n: usize, batch: usize, transpose: &str, dtype: DType) -> Case {
    let stride = |len: usize| if batch > 1 { [0, 0, len as isize] } else { [0; 3] };
    let a = if transpose.starts_with('T') { MatrixLayout::col_major(m) } else { MatrixLayout::row_major(k) };
    let b = if transpose.ends_with('T') { MatrixLayout::col_major(k) } else { MatrixLayout::row_major(n) };
    let c = MatrixLayout::row_major(n).batched(stride(m * n));
    let problem = GemmProblem {
        batch: [1, 1, batch],
        a: OperandSource::Memory(a.batched(stride(m * k))),
        b: OperandSource::Memory(b.batched(stride(k * n))),
        c: OutputKind::Memory { dtype, layout: c, accumulate: false },
        ..GemmProblem::new(m, k, n, dtype)
    };
    Case { name: format!("{batch}x{m},{k},{n}{transpose}"), problem }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|x| x.parse().ok()).unwrap_or(2);
    let dtype = match args.next().as_deref() {
        Some("f64") => DType::F64,
        Some("bf16") => DType::BF16,
        Some("f16") => DType::F16,
        _ => DType::F32,
    };
    let pool = ThreadPool::new(threads);
    if let Some(shape) = args.next() {
        let sizes: Vec<usize> = shape.split(|c: char| !c.is_ascii_digit()).flat_map(str::parse).collect();
        let &[batch, m, k, n] = &sizes[..] else { panic!("a shape is like 1x64,64,64NN, not {shape}") };
        return bench(&case(m, k, n, batch, &shape[shape.len() - 2..], dtype), &pool);
    }
    empty_round_trip(&pool);
    let mut cases: Vec<Case> = [8, 16, 32, 64, 128, 256, 512, 1024, 2048].map(|n| case(n, n, n, 1, "NN", dtype)).into();
    for (m, k, n, t) in [
        (2048, 384, 1152, "NN"),
        (1024, 128, 384, "NN"),
        (2048, 384, 4096, "NN"),
        (2048, 4096, 384, "NN"),
        (2048, 384, 1152, "NT"),
        (2048, 1152, 384, "NT"),
        (384, 2048, 1152, "TN"),
        (128, 1024, 384, "TN"),
        (512, 512, 512, "TT"),
        (1024, 1024, 1024, "TN"),
        (1024, 1024, 1024, "NT"),
        (2048, 2048, 2048, "TN"),
        (2048, 2048, 2048, "NT"),
        (1000, 1000, 1000, "NN"),
        (1, 4096, 4096, "NN"),
        (1, 4096, 4096, "NT"),
        (4, 1024, 1024, "NN"),
        (4, 1024, 1024, "NT"),
    ] {
        cases.push(case(m, k, n, 1, t, dtype));
    }
    cases.push(case(256, 64, 256, 48, "NN", dtype));
    cases.push(case(256, 64, 256, 48, "NT", dtype));
    cases.push(case(256, 256, 64, 48, "NN", dtype));
    cases.iter().for_each(|case| bench(case, &pool));
}

fn empty_round_trip(pool: &ThreadPool) {
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        (0..100).for_each(|_| pool.run(pool.threads(), &|_, _| {}));
        times.push(start.elapsed().as_secs_f64() / 100.0 * 1e6);
    }
    times.sort_by(f64::total_cmp);
    println!("# empty run on {} threads: {:.2} µs", pool.threads(), times[100]);
}

fn bench(case: &Case, pool: &ThreadPool) {
    let GemmProblem { m, n, k, dtype, .. } = case.problem;
    let batches = case.problem.batches();
    let plan = GemmPlan::new(&case.problem, pool.threads()).expect("the shapes above are good");
    let buffer = |len: usize| -> Vec<u64> {
        let values = (0..len).map(|i| ((i * 7919 % 1000) as f32 - 500.0) / 500.0);
        match dtype {
            DType::F64 => values.map(|x| (x as f64).to_bits()).collect(),
            DType::F32 => pack(values.map(|x| x.to_bits() as u64).collect(), 2),
            DType::BF16 => pack(values.map(|x| half::bf16::from_f32(x).to_bits() as u64).collect(), 4),
            _ => pack(values.map(|x| half::f16::from_f32(x).to_bits() as u64).collect(), 4),
        }
    };
    // Allocate with the backend, like programs do: large blocks use huge pages.
    let put = |values: Vec<u64>| {
        let memory = HostBuffer::new(values.len() * 8).expect("memory");
        let bytes: Vec<u8> = values.into_iter().flat_map(u64::to_ne_bytes).collect();
        memory.write(0, &bytes).expect("as large");
        memory
    };
    let [a, b, c] = [batches * m * k, batches * k * n, batches * m * n].map(|len| put(buffer(len)));
    let scratch = HostBuffer::new(plan.scratch_bytes()).expect("memory");
    let run = || {
        // SAFETY: the buffers have the problem's sizes and contiguous layouts.
        unsafe {
            let (a, b) = (GemmOperand::Memory(a.as_ptr()), GemmOperand::Memory(b.as_ptr()));
            plan.run(pool, a, b, GemmOutput::Memory(c.as_ptr()), scratch.as_ptr());
        }
    };
    let flops = 2.0 * (batches * m * n * k) as f64;
    let inner = (1e6 / flops).ceil() as usize;
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < 9 || (start.elapsed().as_secs_f64() < 0.4 && times.len() < 2000) {
        let start = Instant::now();
        (0..inner).for_each(|_| run());
        times.push(start.elapsed().as_secs_f64() / inner as f64);
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!("{} {:.2} {:.2} {:.1}", case.name, median * 1e6, times[0] * 1e6, flops / median / 1e9);
}

/// Packs `per` narrow values into each 64-bit word.
fn pack(values: Vec<u64>, per: usize) -> Vec<u64> {
    let bits = 64 / per;
    values.chunks(per).map(|x| x.iter().enumerate().fold(0, |word, (i, v)| word | v << (i * bits))).collect()
}
