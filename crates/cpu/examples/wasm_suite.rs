//! The backend test suite as a WebAssembly program that `node/suite.mjs` runs:
//! the program itself generates the modules of its kernels.

#![cfg(target_arch = "wasm32")]

use testing::backend::{BackendSuite, run_suite};

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    safe fn print(text: *const u8, bytes: usize);
}

fn say(text: &str) {
    print(text.as_ptr(), text.len());
}

/// Runs the op table (every `every`-th row), random graphs and property tests; returns the number of failures.
#[unsafe(no_mangle)]
pub extern "C" fn run(seed: u32, graphs: u32, every: u32) -> u32 {
    std::panic::set_hook(Box::new(|e| say(&format!("panic: {e}"))));
    let cpu = tensorloom_cpu::Cpu::new(1);
    let report = run_suite(&cpu, &BackendSuite { seed: seed as u64, graphs: graphs as u64, every: every as usize });
    say(&format!("{report}\n{} kernels are held", compiler::Backend::kernels(&cpu)));
    report.failures.iter().take(5).for_each(|f| say(f));
    report.failures.len() as u32
}
