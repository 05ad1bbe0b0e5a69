//! Running a plan allocates nothing, with any algorithm, with spinning or sleeping workers.

use ir::DType;
use tensorloom_cpu::gemm::{GemmOperand, GemmOutput, GemmPlan, GemmProblem, MatrixLayout, OperandSource};
use tensorloom_cpu::pool::ThreadPool;
use testing::counting_allocator::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn runs_do_not_allocate() {
    let pool = ThreadPool::new(2);
    let matrix = vec![0u64; 300 * 300];
    let mut out = vec![0u64; 300 * 300];
    let mut scratch = vec![0u8; 32 << 20];
    let aligned = scratch.as_mut_ptr().wrapping_add(scratch.as_ptr().align_offset(64));
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for (m, k, n) in [(1, 300, 300), (300, 300, 1), (8, 8, 8), (300, 300, 300), (40, 300, 200)] {
            for b in [MatrixLayout::row_major(n), MatrixLayout::col_major(k)] {
                let problem = GemmProblem { b: OperandSource::Memory(b), ..GemmProblem::new(m, k, n, dtype) };
                let plan = GemmPlan::new(&problem, 2).unwrap();
                assert!(plan.scratch_bytes() <= 31 << 20);
                let operand = GemmOperand::Memory(matrix.as_ptr().cast());
                let mut run = || {
                    let out = GemmOutput::Memory(out.as_mut_ptr().cast());
                    // SAFETY: the buffers are large enough for every shape above.
                    unsafe { plan.run(&pool, operand, operand, out, aligned) };
                };
                // Threads allocate thread-local state when they first run.
                (0..50).for_each(|_| run());
                let before = allocations();
                run();
                assert_eq!(allocations(), before, "{problem:?}");
            }
        }
    }
}

/// No test harness: its threads may allocate at any time, and the count covers the whole process.
fn main() {
    runs_do_not_allocate();
    println!("1 passed, 0 failed");
}
