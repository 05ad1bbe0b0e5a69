//! The backend suite on WebGPU in the browser, as a WebAssembly program that `crates/web/tests/pages/webgpu.mjs` runs in
//! Chromium. The suite blocks on reads, which is possible in the browser only if calls into JavaScript can be suspended (JSPI).

#![cfg(target_arch = "wasm32")]

use std::cell::RefCell;
use std::sync::Arc;
use tensorloom_gpu::wgpu::{Wgpu, browser};
use testing::backend::{BackendSuite, run_suite};

#[link(wasm_import_module = "loom")]
unsafe extern "C" {
    safe fn print(text: *const u8, bytes: usize);
    safe fn now() -> f64;
}

thread_local! {
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn say(text: &str) {
    print(text.as_ptr(), text.len());
}

fn told() -> String {
    BYTES.with_borrow(|b| String::from_utf8_lossy(b).into_owned())
}

/// Allocates this number of bytes and returns the address.
#[unsafe(no_mangle)]
pub extern "C" fn bytes(n: u32) -> *mut u8 {
    BYTES.with_borrow_mut(|b| {
        b.resize(n as usize, 0);
        b.as_mut_ptr()
    })
}

/// See `web::gpu`.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_place(signal: u32, bytes: u32) -> *mut u8 {
    browser::place(signal, bytes as usize)
}

/// See `web::gpu`.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_done(signal: u32, well: u32) {
    browser::done(signal, if well == 1 { Ok(()) } else { Err(told()) });
}

/// See `web::gpu`.
#[unsafe(no_mangle)]
pub extern "C" fn gpu_fault(lost: u32) {
    browser::fault(lost == 1, &told());
}

/// Runs the table of ops (each `every`-th row), random graphs and the backend contract; returns the number of failures.
#[unsafe(no_mangle)]
pub extern "C" fn run(seed: u32, graphs: u32, every: u32) -> u32 {
    std::panic::set_hook(Box::new(|e| say(&format!("panic: {e}"))));
    compiler::clock::set(|| now());
    let device = match Wgpu::open(Arc::new(cpu::Cpu::new(1))) {
        Ok(d) => d,
        Err(e) => {
            say(&e.to_string());
            return 1;
        }
    };
    let report = run_suite(&device, &BackendSuite { seed: seed as u64, graphs: graphs as u64, every: every as usize });
    let (submits, dispatches) = device.work();
    say(&format!(
        "{}: {report}\n{} kernels, {submits} submissions, {dispatches} dispatches, {} bytes in use",
        compiler::Backend::name(&device),
        compiler::Backend::kernels(&device),
        device.usage().live
    ));
    report.failures.iter().take(5).for_each(|f| say(f));
    report.failures.len() as u32
}
