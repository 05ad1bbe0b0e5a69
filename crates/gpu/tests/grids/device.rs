//! A device that programs are compiled for and never run on.

use compiler::target::{KernelLimits, Partials, Products, Schedule, Target};
use compiler::{Backend, DeviceBuffer, Error, Executable, Program, Result};
use ir::Type;
use ir::ops::Composite;
use std::sync::Arc;
use testing::Rng;

pub(crate) struct Device(Target);

impl Device {
    /// One that runs rows in parallel.
    pub(crate) fn grid() -> Device {
        let mut target = cpu::Cpu::with_target(1, None).target().clone();
        target.schedule = Schedule::Grid;
        target.products = Products { prologues: None, epilogues: None, ..target.products };
        Device(target)
    }

    /// One that runs rows in parallel as a GPU does, or one that chunks them for workers as a CPU does.
    pub(crate) fn random(rng: &mut Rng) -> Device {
        let mut target = cpu::Cpu::with_target(1, None).target().clone();
        if rng.chance(0.75) {
            let cuts = *rng.pick(&[0, 16]);
            let row_scratch = *rng.pick(&[0, 4 << 10, 128 << 10]);
            target.kernel = KernelLimits { cuts, row_scratch, ..target.kernel };
            if rng.chance(0.5) {
                target.partials = Partials { least: 16, few: 3, each: 4, lone: 0, blocks: 4, block: (2, 8), stages: 3 };
            }
            target.schedule = Schedule::Grid;
            target.products = Products { prologues: None, epilogues: None, ..target.products };
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

    fn claims(&self, _: &Composite, _: &[Type]) -> bool {
        false
    }

    fn alloc(&self, _: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Err(Error::Backend("nothing runs here".into()))
    }

    fn load(&self, _: Program) -> Result<Arc<dyn Executable>> {
        Err(Error::Backend("nothing runs here".into()))
    }
}
