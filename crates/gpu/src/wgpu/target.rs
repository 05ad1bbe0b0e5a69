//! The compiler target for WebGPU.

use compiler::target::{KernelLimits, LoopSchedule, MatmulTarget, RecomputePolicy, SplitReduction, Target};
use ir::DType;

/// The dtypes, without f64 and 64-bit integers, which WGSL lacks.
const DTYPES: &[DType] = &[
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F16,
    DType::BF16,
    DType::F32,
];

/// The target for an adapter whose kernels can have this many storage buffers of this many bytes each.
pub fn target(buffers: usize, binding: usize) -> Target {
    let buffers = buffers.clamp(8, 24);
    Target {
        name: "wgpu",
        dtypes: DTYPES,
        index: DType::I32,
        host_memory: false,
        kernel: KernelLimits {
            buffers,
            max_operands: buffers - 1,
            max_results: buffers,
            max_binding_bytes: binding,
            // Each part would be a dispatch.
            max_space_splits: 0,
            min_launch_elements: 1 << 16,
            // A row that the threads of a workgroup can keep in shared memory.
            row_scratch_bytes: 8 << 10,
        },
        recompute: RecomputePolicy { max_duplicate_cost: 24, max_recompute_cost: 64, min_distance: 6 },
        split_reduction: SplitReduction {
            min_elements: 1 << 14,
            saturating_results: 1 << 10,
            min_elements_per_share: 1 << 13,
            min_parallel_results: 0,
            blocks: 1 << 10,
            block: (1 << 12, 1 << 17),
            max_stages: 3,
        },
        schedule: LoopSchedule::Grid,
        matmul: MatmulTarget { dtypes: &[DType::F32, DType::F16, DType::BF16], prologues: None, epilogues: None },
    }
}
