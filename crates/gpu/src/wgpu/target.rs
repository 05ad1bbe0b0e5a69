//! What programs for WebGPU look like.

use compiler::target::{KernelLimits, Products, RecomputePolicy, Schedule, SplitReduction, Target};
use ir::DType;

/// Types without an f64 or 64-bit integers: WGSL has neither.
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

/// Programs for an adapter whose kernels can have so many storage buffers, of so many bytes each.
pub fn target(buffers: usize, binding: usize) -> Target {
    let buffers = buffers.clamp(8, 24);
    Target {
        name: "wgpu",
        dtypes: DTYPES,
        index: DType::I32,
        host_memory: false,
        kernel: KernelLimits {
            buffers,
            reads: buffers - 1,
            results: buffers,
            binding,
            // Each piece would be a dispatch.
            max_space_splits: 0,
            min_launch_elements: 1 << 16,
            // A row that the threads of a workgroup can share.
            row_scratch: 8 << 10,
        },
        keep: RecomputePolicy { costly: 24, cheap: 64, distant: 6 },
        partials: SplitReduction {
            least: 1 << 14,
            few: 1 << 10,
            each: 1 << 13,
            min_parallel_results: 0,
            blocks: 1 << 10,
            block: (1 << 12, 1 << 17),
            stages: 3,
        },
        schedule: Schedule::Grid,
        products: Products { dtypes: &[DType::F32, DType::F16, DType::BF16], prologues: None, epilogues: None },
    }
}
