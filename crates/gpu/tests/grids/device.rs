//! A device that programs are compiled for but never run on.

use compiler::target::{KernelLimits, LoopSchedule, MatmulTarget, SplitReduction, Target};
use compiler::{Backend, DeviceBuffer, Error, Executable, Program, Result};
use ir::Type;
use ir::ops::Composite;
use std::sync::Arc;
use testing::Rng;

pub(crate) struct Device(Target);

impl Device {
    /// A device that runs rows in parallel.
    pub(crate) fn grid() -> Device {
        let mut target = cpu::Cpu::with_target(1, None).target().clone();
        target.schedule = LoopSchedule::Grid;
        target.matmul = MatmulTarget { prologues: None, epilogues: None, ..target.matmul };
        Device(target)
    }

    /// A device that runs rows in parallel as a GPU does, or one that splits them into chunks for workers as a CPU does.
    pub(crate) fn random(rng: &mut Rng) -> Device {
        let mut target = cpu::Cpu::with_target(1, None).target().clone();
        if rng.bernoulli(0.75) {
            let cuts = *rng.pick(&[0, 16]);
            let row_scratch = *rng.pick(&[0, 4 << 10, 128 << 10]);
            target.kernel = KernelLimits { max_space_splits: cuts, row_scratch_bytes: row_scratch, ..target.kernel };
            if rng.bernoulli(0.5) {
                target.split_reduction = SplitReduction {
                    min_elements: 16,
                    saturating_results: 3,
                    min_elements_per_share: 4,
                    min_parallel_results: 0,
                    blocks: 4,
                    block: (2, 8),
                    max_stages: 3,
                };
            }
            target.schedule = LoopSchedule::Grid;
            target.matmul = MatmulTarget { prologues: None, epilogues: None, ..target.matmul };
        }
        Device(target)
    }
}

impl Backend for Device {
    fn name(&self) -> String {
        "a device for tests".into()
    }

    fn target(&self) -> &Target {
        &self.0
    }

    fn supports_composite(&self, _: &Composite, _: &[Type]) -> bool {
        false
    }

    fn alloc(&self, _: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Err(Error::Backend("nothing runs here".into()))
    }

    fn load(&self, _: Program) -> Result<Arc<dyn Executable>> {
        Err(Error::Backend("nothing runs here".into()))
    }
}
