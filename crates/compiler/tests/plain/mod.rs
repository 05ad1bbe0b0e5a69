//! The backend of the compiler's own tests: it compiles for the CPU but runs nothing.

use ir::ops::Composite;
use ir::{DType, Type};
use std::sync::Arc;
use tensorloom_compiler::program::Program;
use tensorloom_compiler::target::{
    CpuSchedule, EpilogueLimits, KernelLimits, LoopSchedule, MatmulTarget, PrologueLimits, RecomputePolicy,
    SplitReduction, Target,
};
use tensorloom_compiler::{Backend, DeviceBuffer, Error, Executable, Result};

/// The limits of the CPU backend, so that test files show the output that users get, except for `interleaved_rows`: test files
/// have few rows, which would all be processed side by side.
pub(crate) const TARGET: Target = Target {
    name: "plain",
    dtypes: &DType::ALL,
    index: DType::I64,
    host_memory: true,
    kernel: KernelLimits {
        buffers: 40,
        max_operands: 24,
        max_results: 24,
        max_binding_bytes: isize::MAX as usize,
        max_space_splits: 16,
        min_launch_elements: 1,
        row_scratch_bytes: 128 << 10,
    },
    recompute: RecomputePolicy { max_duplicate_cost: 12, max_recompute_cost: 48, min_distance: 6 },
    split_reduction: SplitReduction {
        min_elements: 1 << 18,
        saturating_results: 32,
        min_elements_per_share: 1 << 18,
        min_parallel_results: 8,
        blocks: 128,
        block: (1 << 13, 1 << 16),
        max_stages: 2,
    },
    schedule: LoopSchedule::Workers(CpuSchedule {
        parallel_work: 40_000,
        target_chunks: 64,
        chunk_elements: 256,
        min_parallel_rows: 8,
        block: (512, 8192),
        reduction_block: 64,
        vector_width: 16,
        interleaved_rows: (32, 2048),
        max_concat_operands: 64,
        max_register_scan_lanes: 512,
        scan_block_lanes: 1024,
        max_single_block_scan_lanes: 8192,
    }),
    matmul: MatmulTarget {
        dtypes: &[DType::F32, DType::F64, DType::F16, DType::BF16],
        prologues: Some(PrologueLimits { min_elements: 4096, max_element_cost: 12 }),
        epilogues: Some(EpilogueLimits { max_row_columns: 1024 }),
    },
};

/// A backend without its own kernels, except for attention and matrix products with packed weights.
pub(crate) struct Plain(pub(crate) Target);

impl Backend for Plain {
    fn name(&self) -> String {
        "plain".into()
    }

    fn target(&self) -> &Target {
        &self.0
    }

    fn supports_composite(&self, composite: &Composite, _: &[Type]) -> bool {
        matches!(composite.name.as_str(), "attention" | "packed_dot" | "dequantize" | "fp8_dot")
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Err(Error::OutOfMemory { bytes, hint: "" })
    }

    fn load(&self, _: Program) -> Result<Arc<dyn Executable>> {
        Err(Error::Backend("nothing runs here".into()))
    }
}
