//! Compares every algorithm with a triple loop in f64, for every instruction set of the machine.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use half::{bf16, f16};
use ir::DType;

use super::*;
use crate::pool::ThreadPool;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    /// Returns a multiple of 1/8 that bf16 represents exactly.
    fn value(&mut self) -> f64 {
        (self.below(65) as f64 - 32.0) / 8.0
    }
}

/// Memory of one dtype, read and written as f64.
#[derive(Clone)]
struct Memory {
    dtype: DType,
    bytes: Vec<u64>,
}

impl Memory {
    fn new(dtype: DType, len: usize) -> Memory {
        Memory { dtype, bytes: vec![0; len + 1] }
    }
    fn random(dtype: DType, len: usize, rng: &mut Rng) -> Memory {
        let mut memory = Memory::new(dtype, len);
        // Integers over the whole range of i8.
        let scale = if dtype.is_float() { 1.0 } else { 32.0 };
        (0..len).for_each(|i| memory.set(i, (rng.value() * scale).clamp(-128.0, 127.0)));
        memory
    }
    fn at(&self) -> *const u8 {
        self.bytes.as_ptr().cast()
    }
    fn at_mut(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().cast()
    }
    fn get(&self, i: usize) -> f64 {
        // SAFETY: `bytes` has 8 bytes for each element.
        unsafe {
            match self.dtype {
                DType::F32 => *self.at().cast::<f32>().add(i) as f64,
                DType::F64 => *self.at().cast::<f64>().add(i),
                DType::BF16 => (*self.at().cast::<bf16>().add(i)).to_f64(),
                DType::I32 => *self.at().cast::<i32>().add(i) as f64,
                DType::I8 => *self.at().cast::<i8>().add(i) as f64,
                _ => (*self.at().cast::<f16>().add(i)).to_f64(),
            }
        }
    }
    fn set(&mut self, i: usize, x: f64) {
        // SAFETY: as in `get`.
        unsafe { write(self.dtype, self.at_mut(), i, x) }
    }
}

unsafe fn write(dtype: DType, at: *mut u8, i: usize, x: f64) {
    // SAFETY: the address is valid for element `i`.
    unsafe {
        match dtype {
            DType::F32 => *at.cast::<f32>().add(i) = x as f32,
            DType::F64 => *at.cast::<f64>().add(i) = x,
            DType::BF16 => *at.cast::<bf16>().add(i) = bf16::from_f64(x),
            DType::I32 => *at.cast::<i32>().add(i) = x as i32,
            DType::I8 => *at.cast::<i8>().add(i) = x as i8,
            _ => *at.cast::<f16>().add(i) = f16::from_f64(x),
        }
    }
}

#[derive(Clone, Copy)]
#[repr(align(64))]
#[expect(dead_code, reason = "read through pointers")]
struct Line([u64; 8]);

struct Scratch(Vec<Line>);

impl Scratch {
    /// Filled with NaN, so that a read of unwritten memory shows in the result.
    fn new(bytes: usize) -> Scratch {
        Scratch(vec![Line([u64::MAX; 8]); bytes.div_ceil(64) + 1])
    }
    fn at(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    Memory,
    Generated,
    Packed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum To {
    Memory,
    Epilogue { whole_rows: bool },
}

#[derive(Clone, Copy, Debug)]
struct Case {
    shape: [usize; 3],
    batch: [usize; 3],
    dtype: DType,
    out: DType,
    a: From,
    b: From,
    c: To,
    /// 0: row-major, 1: transposed, 2: strided rows and columns.
    layouts: [usize; 3],
    broadcast: [bool; 2],
    accumulate: bool,
    alpha: f64,
    isa: Isa,
}

impl Case {
    fn f32(m: usize, k: usize, n: usize) -> Case {
        Case {
            shape: [m, k, n],
            batch: [1; 3],
            dtype: DType::F32,
            out: DType::F32,
            a: From::Memory,
            b: From::Memory,
            c: To::Memory,
            layouts: [0; 3],
            broadcast: [false; 2],
            accumulate: false,
            alpha: 1.0,
            isa: Isa::detect(),
        }
    }
}

fn layout(kind: usize, rows: usize, cols: usize, batch: [usize; 3], broadcast: bool) -> (MatrixLayout, usize) {
    let (row, col, len) = match kind {
        0 => (cols, 1, rows * cols),
        1 => (1, rows, rows * cols),
        _ => (3 * cols + 1, 3, rows * (3 * cols + 1)),
    };
    let strides = if broadcast { [0; 3] } else { [batch[1] * batch[2] * len, batch[2] * len, len] };
    let batches: usize = if broadcast { 1 } else { batch.iter().product() };
    let layout = MatrixLayout { row: row as isize, col: col as isize, batch: strides.map(|s| s as isize) };
    (layout, (batches * len).max(1))
}

fn index(layout: &MatrixLayout, problem: &GemmProblem, batch: usize, row: usize, col: usize) -> usize {
    (problem.batch_offset(layout, batch) + row as isize * layout.row + col as isize * layout.col) as usize
}

/// The data that the prologues and epilogues of the tests read.
struct Context {
    problem: GemmProblem,
    memory: Memory,
    layout: MatrixLayout,
    counts: Vec<AtomicU32>,
    whole_rows: bool,
}

unsafe extern "C" fn generate(
    ctx: *const c_void,
    batch: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    dst: *mut u8,
    stride: usize,
) {
    // SAFETY: the test passes a `Context`, which outlives the run.
    let ctx = unsafe { &*ctx.cast::<Context>() };
    for i in 0..rows {
        for j in 0..cols {
            let x = ctx.memory.get(index(&ctx.layout, &ctx.problem, batch, row0 + i, col0 + j));
            // SAFETY: the block has these elements.
            unsafe { write(ctx.memory.dtype, dst, i * stride + j, x) };
        }
    }
}

unsafe extern "C" fn epilogue(
    ctx: *const c_void,
    batch: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    acc: *mut u8,
    stride: usize,
) {
    // SAFETY: the test passes a `Context`; elements are written once, by one thread.
    let ctx = unsafe { &*ctx.cast::<Context>() };
    assert!(!ctx.whole_rows || (col0 == 0 && cols == ctx.problem.n));
    for i in 0..rows {
        for j in 0..cols {
            let at = index(&ctx.layout, &ctx.problem, batch, row0 + i, col0 + j);
            ctx.counts[at].fetch_add(1, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe {
                let x = match ctx.problem.accumulator() {
                    DType::F64 => *acc.cast::<f64>().add(i * stride + j),
                    DType::I32 => *acc.cast::<i32>().add(i * stride + j) as f64,
                    _ => *acc.cast::<f32>().add(i * stride + j) as f64,
                };
                write(ctx.memory.dtype, ctx.memory.at().cast_mut(), at, x);
            }
        }
    }
}

/// Runs a case with `threads` threads; returns C's memory, and its layout and problem.
fn compute(case: &Case, a: &Memory, b: &Memory, c: &Memory, threads: usize, pool: &ThreadPool) -> Memory {
    let [m, k, n] = case.shape;
    let batch = case.batch;
    let (la, _) = layout(case.layouts[0], m, k, batch, case.broadcast[0]);
    let (lb, _) = layout(case.layouts[1], k, n, batch, case.broadcast[1]);
    let (lc, _) = layout(case.layouts[2], m, n, batch, false);
    let source = |from, layout: MatrixLayout| match from {
        From::Memory => OperandSource::Memory(layout),
        From::Generated => OperandSource::Generated { batched: layout.batch != [0; 3] },
        From::Packed => OperandSource::Packed,
    };
    let target = match case.c {
        To::Memory => OutputKind::Memory { dtype: case.out, layout: lc, accumulate: case.accumulate },
        To::Epilogue { whole_rows } => OutputKind::Epilogue { whole_rows },
    };
    let (sa, sb) = (source(case.a, la), source(case.b, lb));
    let problem = GemmProblem { m, n, k, batch, dtype: case.dtype, a: sa, b: sb, c: target, alpha: case.alpha };
    let plan = GemmPlan::with_isa(&problem, threads, case.isa).unwrap();
    let mut packed = Scratch::new(plan.packed_b_bytes());
    let context = |memory: &Memory, layout: MatrixLayout, whole_rows: bool| Context {
        problem,
        memory: memory.clone(),
        layout,
        counts: memory.bytes.iter().map(|_| AtomicU32::new(0)).collect(),
        whole_rows,
    };
    let whole_rows = case.c == To::Epilogue { whole_rows: true };
    let mut contexts = [context(a, la, false), context(b, lb, false), context(c, lc, whole_rows)];
    let mut scratch = Scratch::new(plan.scratch_bytes());
    // SAFETY: memories are as large as their layouts ask for.
    unsafe {
        if case.b == From::Packed {
            plan.prepack_b(pool, b.at(), &lb, packed.at());
        }
        let operand = |from, memory: &Memory, context: &Context, packed: *mut u8| match from {
            From::Memory => GemmOperand::Memory(memory.at()),
            From::Generated => GemmOperand::Generated { f: generate, ctx: (&raw const *context).cast() },
            From::Packed => GemmOperand::Packed(packed),
        };
        let oa = operand(case.a, a, &contexts[0], std::ptr::null_mut());
        let ob = operand(case.b, b, &contexts[1], packed.at());
        let oc = match case.c {
            To::Memory => GemmOutput::Memory(contexts[2].memory.at_mut()),
            To::Epilogue { .. } => GemmOutput::Epilogue { f: epilogue, ctx: (&raw const contexts[2]).cast() },
        };
        plan.run(pool, oa, ob, oc, scratch.at());
    }
    if let To::Epilogue { .. } = case.c {
        for batch in 0..problem.batches() {
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let at = index(&lc, &problem, batch, i, j);
                assert_eq!(contexts[2].counts[at].load(Ordering::Relaxed), 1, "{case:?} at {batch} {i} {j}");
            }
        }
    }
    let [.., c] = contexts;
    c.memory
}

fn check(case: &Case, pools: &[ThreadPool]) {
    let [m, k, n] = case.shape;
    let mut rng = Rng(0x9e3779b97f4a7c15 ^ (m * 31 + k * 7 + n) as u64);
    let (la, na) = layout(case.layouts[0], m, k, case.batch, case.broadcast[0]);
    let (lb, nb) = layout(case.layouts[1], k, n, case.batch, case.broadcast[1]);
    let (lc, nc) = layout(case.layouts[2], m, n, case.batch, false);
    let out = if case.c == To::Memory { case.out } else { DType::F64 };
    let a = Memory::random(case.dtype, na, &mut rng);
    let b = Memory::random(case.dtype, nb, &mut rng);
    let c = Memory::random(out, nc, &mut rng);
    let results: Vec<Memory> = pools.iter().map(|pool| compute(case, &a, &b, &c, pool.threads(), pool)).collect();
    for result in &results[1..] {
        assert_eq!(result.bytes, results[0].bytes, "bits differ between thread counts: {case:?}");
    }

    let problem = GemmProblem { batch: case.batch, ..GemmProblem::new(m, k, n, case.dtype) };
    let mut expected = c.clone();
    let tolerance = match out {
        DType::BF16 => 1.0 / 128.0,
        DType::F16 => 1.0 / 1024.0,
        DType::I32 => 0.0,
        _ => 1e-6,
    };
    let mut untouched = results[0].clone();
    for batch in 0..problem.batches() {
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let at = index(&lc, &problem, batch, i, j);
            let products = (0..k).map(|d| {
                let (a, b) = (index(&la, &problem, batch, i, d), index(&lb, &problem, batch, d, j));
                (a, b)
            });
            let sum: f64 = products.map(|(x, y)| a.get(x) * b.get(y)).sum();
            let start = if case.accumulate { c.get(at) } else { 0.0 };
            expected.set(at, start + case.alpha * sum);
            let (got, want) = (results[0].get(at), expected.get(at));
            let close = (got - want).abs() <= tolerance * (want.abs() + (k as f64).sqrt());
            assert!(close, "{case:?}: C[{batch}, {i}, {j}] = {got}, not {want}");
            untouched.set(at, c.get(at));
        }
    }
    assert_eq!(untouched.bytes, c.bytes, "wrote outside C: {case:?}");
}

fn pools() -> Vec<ThreadPool> {
    vec![ThreadPool::new(1), ThreadPool::new(2), ThreadPool::new(3), ThreadPool::new(5)]
}

#[test]
fn random_problems() {
    use DType::*;
    let pools = pools();
    let mut rng = Rng(20260101);
    let mut sizes: Vec<usize> = (0..40).collect();
    sizes.extend([48, 64, 65, 97, 130]);
    for _ in 0..1500 {
        let dtype = rng.pick(&[F32, F32, F32, F64, BF16, BF16, F16, I8, I8, I32]);
        let accumulator = GemmProblem::new(1, 1, 1, dtype).accumulator();
        let c = match rng.below(5) {
            0 => To::Epilogue { whole_rows: false },
            1 => To::Epilogue { whole_rows: true },
            _ => To::Memory,
        };
        let b = rng.pick(&[From::Memory, From::Memory, From::Memory, From::Generated, From::Packed]);
        check(
            &Case {
                shape: [rng.pick(&sizes), rng.pick(&sizes), rng.pick(&sizes)],
                batch: if rng.below(4) == 0 { [rng.below(3), rng.below(3) + 1, rng.below(4) + 1] } else { [1; 3] },
                dtype,
                out: if dtype == I8 { accumulator } else { rng.pick(&[dtype, accumulator]) },
                a: rng.pick(&[From::Memory, From::Memory, From::Memory, From::Generated]),
                b,
                c,
                layouts: [rng.below(3), rng.below(3), rng.below(3)],
                broadcast: [rng.below(3) == 0, b == From::Packed || rng.below(3) == 0],
                accumulate: c == To::Memory && rng.below(3) == 0,
                alpha: rng.pick(&[1.0, 1.0, if dtype.is_float() { -0.5 } else { -3.0 }]),
                isa: rng.pick(Isa::available()),
            },
            &pools,
        );
    }
}

#[test]
fn problems_of_several_blocks() {
    let pools = pools();
    for (m, k, n) in [(400, 130, 600), (30, 900, 40), (200, 770, 100), (500, 40, 33), (7, 1000, 530)] {
        for layouts in [[0, 0, 0], [1, 1, 0], [2, 2, 1]] {
            check(&Case { layouts, ..Case::f32(m, k, n) }, &pools);
        }
        let c = To::Epilogue { whole_rows: false };
        check(&Case { a: From::Generated, b: From::Generated, c, ..Case::f32(m, k, n) }, &pools);
        let c = To::Epilogue { whole_rows: true };
        check(&Case { b: From::Packed, broadcast: [false, true], c, ..Case::f32(m, k, n) }, &pools);
        check(&Case { dtype: DType::BF16, accumulate: true, ..Case::f32(m, k, n) }, &pools);
        for (dtype, out) in [(DType::BF16, DType::BF16), (DType::F16, DType::F32), (DType::I8, DType::I32)] {
            for (a, b) in
                [(From::Memory, From::Memory), (From::Generated, From::Generated), (From::Memory, From::Packed)]
            {
                let broadcast = [false, b == From::Packed];
                check(&Case { dtype, out, a, b, broadcast, ..Case::f32(m, 2 * k + 3, n) }, &pools);
            }
        }
    }
}

#[test]
fn rows_that_wait_for_all_columns() {
    let pools = pools();
    for (dtype, layout, shape) in
        [(DType::F32, 1, [5, 1100, 1000]), (DType::F32, 0, [27, 1303, 821]), (DType::BF16, 1, [14, 2100, 1001])]
    {
        let c = To::Epilogue { whole_rows: true };
        check(&Case { dtype, layouts: [0, layout, 0], c, ..Case::f32(shape[0], shape[1], shape[2]) }, &pools);
    }
}

#[test]
fn vectors() {
    let pools = pools();
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I8, DType::I32] {
        for isa in Isa::available() {
            let out = if dtype == DType::I8 { DType::I32 } else { dtype };
            for (m, k, n) in [(1, 300, 5000), (1, 5000, 70), (5000, 300, 1), (70, 2100, 1), (1, 7, 1), (1, 1, 1)] {
                for layouts in [[0, 0, 0], [1, 1, 0], [2, 1, 2], [1, 2, 0]] {
                    check(&Case { dtype, out, layouts, isa: *isa, ..Case::f32(m, k, n) }, &pools);
                }
            }
        }
    }
}

#[test]
fn batches() {
    let pools = pools();
    for batch in [[1, 1, 2], [1, 3, 1], [2, 2, 2], [1, 1, 12]] {
        for broadcast in [[false, false], [true, false], [false, true]] {
            check(&Case { batch, broadcast, ..Case::f32(70, 40, 50) }, &pools);
            check(&Case { batch, broadcast, a: From::Generated, b: From::Generated, ..Case::f32(70, 40, 50) }, &pools);
        }
    }
}

#[test]
fn infinities_and_nans_propagate() {
    let pool = ThreadPool::new(2);
    for (m, k, n) in [(1, 20, 40), (5, 20, 40), (40, 20, 1), (64, 400, 64)] {
        for isa in Isa::available() {
            let case = Case { isa: *isa, ..Case::f32(m, k, n) };
            let mut a = Memory::new(DType::F32, m * k);
            let mut b = Memory::new(DType::F32, k * n);
            (0..k * n).for_each(|i| b.set(i, 1.0));
            b.set(3 * n, f64::INFINITY);
            (0..m * k).for_each(|i| a.set(i, if i < k { 0.0 } else { 1.0 }));
            a.set((m - 1) * k + 7, if m > 1 { f64::NAN } else { 0.0 });
            let c = compute(&case, &a, &b, &Memory::new(DType::F32, m * n), 2, &pool);
            assert!(c.get(0).is_nan(), "0·∞ is NaN: {case:?}");
            assert!(n == 1 || c.get(1) == 0.0, "{case:?}");
            if m > 2 {
                assert_eq!(c.get(n), f64::INFINITY, "{case:?}");
            }
            assert!(m == 1 || (0..n).all(|j| c.get((m - 1) * n + j).is_nan()), "{case:?}");
        }
    }
}

#[test]
fn what_cannot_be_planned() {
    let error = |problem: GemmProblem| GemmPlan::new(&problem, 1).unwrap_err().to_string();
    let f32 = GemmProblem::new(2, 2, 2, DType::F32);
    let target = OutputKind::Memory { dtype: DType::F16, layout: MatrixLayout::row_major(2), accumulate: false };
    assert_eq!(
        error(GemmProblem::new(2, 2, 2, DType::I64)),
        "matmul supports f32, f64, bf16, f16, i32 or i8 operands, not i64"
    );
    assert_eq!(error(GemmProblem { c: target, ..f32 }), "matmul of f32 operands cannot store f16");
    assert_eq!(
        error(GemmProblem { a: OperandSource::Packed, ..f32 }),
        "only the right operand of a matmul can be packed ahead"
    );
}
