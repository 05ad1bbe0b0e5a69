//! The backend of the compiler's own tests: it compiles for the CPU, and runs nothing.

use ir::ops::Composite;
use ir::{DType, Type};
use std::sync::Arc;
use tensorloom_compiler::program::Program;
use tensorloom_compiler::target::{
    Epilogues, Keep, KernelLimits, Partials, Products, Prologues, Schedule, Target, Workers,
};
use tensorloom_compiler::{Backend, DeviceBuffer, Error, Executable, Result};

/// The limits of the CPU backend, so that test files show what users get, except for `abreast`: test files have few rows, which would all
/// be processed side by side.
pub(crate) const TARGET: Target = Target {
    name: "plain",
    dtypes: &DType::ALL,
    index: DType::I64,
    host_memory: true,
    kernel: KernelLimits {
        buffers: 40,
        reads: 24,
        results: 24,
        binding: isize::MAX as usize,
        cuts: 16,
        piece: 1,
        row_scratch: 128 << 10,
    },
    keep: Keep { costly: 12, cheap: 48, distant: 6 },
    partials: Partials {
        least: 1 << 18,
        few: 32,
        each: 1 << 18,
        lone: 8,
        blocks: 128,
        block: (1 << 13, 1 << 16),
        stages: 2,
    },
    schedule: Schedule::Workers(Workers {
        parallel_work: 40_000,
        chunks: 64,
        chunk_elements: 256,
        few_rows: 8,
        block: (512, 8192),
        block_of_sums: 64,
        row_vector: 16,
        abreast: (32, 2048),
        parts: 64,
        scan_lanes: 512,
        scan_block: 1024,
        scan_whole: 8192,
    }),
    products: Products {
        dtypes: &[DType::F32, DType::F64, DType::F16, DType::BF16],
        prologues: Some(Prologues { elements: 4096, cost: 12 }),
        epilogues: Some(Epilogues { whole_row: 1024 }),
    },
};

/// A backend that has no kernels of its own, but for attention and products of packed weights.
pub(crate) struct Plain(pub(crate) Target);

impl Backend for Plain {
    fn name(&self) -> String {
        "plain".into()
    }

    fn target(&self) -> &Target {
        &self.0
    }

    fn claims(&self, composite: &Composite, _: &[Type]) -> bool {
        matches!(composite.name.as_str(), "attention" | "packed_dot" | "dequantize" | "fp8_dot")
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Err(Error::OutOfMemory { bytes, hint: "" })
    }

    fn load(&self, _: Program) -> Result<Arc<dyn Executable>> {
        Err(Error::Backend("nothing runs here".into()))
    }
}
