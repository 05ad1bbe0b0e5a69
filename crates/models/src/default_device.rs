//! The device of calls that name none.

use compiler::Backend;
use cpu::Cpu;
use std::sync::OnceLock;

/// The CPU with all its cores; made once.
pub(crate) fn default_device() -> &'static dyn Backend {
    static DEVICE: OnceLock<Cpu> = OnceLock::new();
    DEVICE.get_or_init(Cpu::for_machine)
}
