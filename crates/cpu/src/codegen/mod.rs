//! Compiles kernels of the `loops` IR to x86-64 machine code at run time.
//!
//! `loops::lanes` finds the values that vary by lane, `loops::hoist` moves invariants out of loops, `lower` makes instructions
//! over virtual registers, `regalloc` assigns physical ones, `emit` encodes bytes and `exec` makes them executable.
//!
//! A compiled kernel is `extern "C" fn(bufs, sizes, begin, end)`: `begin..end` is the range of the top-level parallel
//! loop (ignored if there is none; call it with `0..1`).
//!
//! To add an instruction: add one line to `enc` (the tests disassemble every entry), then use it through `v2`/`v3` in
//! `lower`. To inline an op: add one arm to `lower/arith.rs` or a function in `math`; without it the op is evaluated lane
//! by lane in `helper`, which is slow but correct for every op and dtype.
//!
//! On other machines kernels are compiled by Cranelift, with 128-bit vectors (`portable`); also on x86-64 without AVX2 and FMA,
//! if the feature `cranelift` is on. If there is neither, [`compile`] returns [`CodegenError::Unsupported`]. In the browser kernels
//! are WebAssembly modules (`wasm_host`, `wasm`).

#[cfg(all(unix, target_arch = "x86_64"))]
mod asm;
mod cache;
#[cfg(all(unix, target_arch = "x86_64"))]
mod emit;
#[cfg(all(unix, target_arch = "x86_64"))]
mod enc;
#[cfg(all(unix, target_arch = "x86_64"))]
mod exec;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "wasm32", feature = "cranelift"))]
mod helper;
#[cfg(all(unix, target_arch = "x86_64"))]
mod inst;
#[cfg(all(unix, target_arch = "x86_64"))]
mod lower;
#[cfg(all(unix, target_arch = "x86_64"))]
mod math;
#[cfg(all(unix, target_arch = "x86_64"))]
mod pool;
#[cfg(target_arch = "wasm32")]
mod wasm_host;
// The same condition as in `Cargo.toml`: always on where the x86-64 code generator is not available.
#[cfg(any(feature = "cranelift", target_arch = "aarch64", all(windows, target_arch = "x86_64")))]
mod portable;
#[cfg(not(any(
    feature = "cranelift",
    target_arch = "aarch64",
    target_arch = "wasm32",
    all(windows, target_arch = "x86_64")
)))]
#[path = "no_codegen.rs"]
mod portable;
#[cfg(all(unix, target_arch = "x86_64"))]
mod regalloc;
#[cfg(all(test, unix))]
mod tests;
// Tests on other machines run its modules by node.
#[cfg(any(target_arch = "wasm32", test))]
mod wasm;

pub mod ulp;

pub use cache::KernelCache;

use crate::thresholds::Threshold;
use compiler::loops::{Kernel, KernelError};
use thiserror::Error;

/// The number of 4-byte lanes of the widest vector, and the number of unrolled copies in one iteration.
const LANES: usize = 16;
const COPIES: usize = 4;

/// The maximum stride in elements at which lanes are permuted from full vectors.
const NEAR: i64 = 8;

pub(crate) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("codegen.near", NEAR as usize, "elements between lanes: beyond, they are gathered"),
    Threshold::new("codegen.lanes", LANES, "elements of a vector loop: below a whole vector, lanes are masked off"),
    Threshold::new(
        "codegen.copies",
        LANES * COPIES,
        "elements of a vector loop: from here several vectors run side by side",
    ),
];

/// The instruction sets for which kernels are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// AVX2, FMA, F16C, BMI2: 256-bit vectors.
    Avx2,
    /// AVX-512 F, BW, DQ, VL: 512-bit vectors and mask registers.
    Avx512,
    /// Any machine that Cranelift supports: vectors of 128 bits, or one lane at a time.
    Portable,
    /// WebAssembly with SIMD, with one module per kernel.
    #[cfg(target_arch = "wasm32")]
    Wasm,
}

impl Target {
    /// Returns the best target of this machine, if any.
    pub fn detect() -> Option<Target> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("fma") && has!("f16c") && has!("bmi2");
            let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            match (avx2, avx512) {
                (true, true) => Some(Target::Avx512),
                (true, false) => Some(Target::Avx2),
                _ => Target::fallback_target(),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Target::fallback_target()
    }

    /// Returns the target for machines without an instruction set that the x86-64 code generator supports.
    fn fallback_target() -> Option<Target> {
        #[cfg(target_arch = "wasm32")]
        return Some(Target::Wasm);
        #[cfg(not(target_arch = "wasm32"))]
        portable::AVAILABLE.then_some(Target::Portable)
    }

    /// Returns all targets of this machine, the best last.
    pub fn available() -> Vec<Target> {
        let best = Target::detect();
        let lesser = (best == Some(Target::Avx512)).then_some(Target::Avx2);
        let other = Target::fallback_target().filter(|&t| best != Some(t));
        other.into_iter().chain(lesser).chain(best).collect()
    }
}

/// The reason why a kernel was not compiled.
#[derive(Debug, Error)]
pub enum CodegenError {
    /// This machine has no code generator.
    #[error(
        "the code generator does not support this machine: it needs aarch64, or x86-64 with AVX2, FMA, F16C and BMI2"
    )]
    Unsupported,
    /// The kernel is malformed.
    #[error("malformed kernel: {0}")]
    Kernel(#[from] KernelError),
    /// The kernel exceeds the limits of the target; the reference evaluator can run it.
    #[error("{0}")]
    Refused(String),
    /// The system provided no executable memory.
    #[error("cannot allocate executable memory: {0}")]
    Memory(#[from] std::io::Error),
}

/// The signature of a compiled kernel.
pub type Entry = unsafe extern "C" fn(bufs: *const *mut u8, sizes: *const i64, begin: i64, end: i64);

/// A kernel as machine code.
pub struct CompiledKernel {
    /// Keeps the mapping alive.
    #[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "it is held, not read"))]
    code: Mapping,
    entry: Entry,
    size: usize,
}

#[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "held, not read"))]
enum Mapping {
    #[cfg(all(unix, target_arch = "x86_64"))]
    Own(exec::Code),
    #[cfg(not(target_arch = "wasm32"))]
    Portable(portable::Code),
    #[cfg(target_arch = "wasm32")]
    Wasm(wasm_host::Code),
}

impl CompiledKernel {
    /// The number of bytes of code and constants.
    pub fn code_size(&self) -> usize {
        self.size
    }

    /// Returns the code, followed by its constants; in the browser, the module.
    pub fn bytes(&self) -> &[u8] {
        #[cfg(target_arch = "wasm32")]
        return match &self.code {
            Mapping::Wasm(code) => code.bytes(),
        };
        #[cfg(not(target_arch = "wasm32"))]
        // SAFETY: the mapping holds so many bytes from its entry on, is readable, and is not written again.
        unsafe {
            std::slice::from_raw_parts(self.entry as *const u8, self.size)
        }
    }

    /// The code as text for people: the size, then machine code, or in the browser the bytes of a WebAssembly module.
    pub(crate) fn text(&self) -> String {
        let bytes = self.bytes();
        let text = match cfg!(target_arch = "wasm32") {
            true => compiler::debug::hexadecimal(bytes),
            false => compiler::debug::machine_code(bytes),
        };
        format!("{} bytes\n{text}", bytes.len())
    }

    #[cfg(any(feature = "cranelift", target_arch = "aarch64", all(windows, target_arch = "x86_64")))]
    fn portable(code: portable::Code, entry: Entry, size: usize) -> CompiledKernel {
        CompiledKernel { code: Mapping::Portable(code), entry, size }
    }

    /// The address of the entry point.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Runs the iterations `begin..end` of the parallel loop.
    ///
    /// # Safety
    /// `bufs` holds one pointer per buffer of the kernel, each valid for every element that the kernel touches in this
    /// range and not written by others meanwhile; `sizes` holds its size arguments.
    pub unsafe fn run(&self, bufs: &[*mut u8], sizes: &[i64], begin: i64, end: i64) {
        // SAFETY: `bufs` and `sizes` are what the kernel was compiled for, and the buffers are valid for the iterations
        // `begin..end`.
        unsafe { (self.entry)(bufs.as_ptr(), sizes.as_ptr(), begin, end) }
    }
}

impl std::fmt::Debug for CompiledKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CompiledKernel({} bytes)", self.size)
    }
}

/// Compiles a kernel for a target that this machine has.
#[cfg(all(unix, target_arch = "x86_64"))]
pub fn compile(kernel: &Kernel, target: Target) -> Result<CompiledKernel, CodegenError> {
    match (Target::detect(), target) {
        (_, Target::Portable) => return portable::compile(kernel),
        (Some(Target::Avx512), _) | (Some(Target::Avx2), Target::Avx2) => {}
        _ => return Err(CodegenError::Unsupported),
    }
    let bytes = assemble(kernel, target)?;
    let code = exec::Code::new(&bytes)?;
    // SAFETY: the code was made for this signature.
    let entry = unsafe { std::mem::transmute::<*const u8, Entry>(code.start()) };
    Ok(CompiledKernel { code: Mapping::Own(code), entry, size: bytes.len() })
}

/// Returns the bytes of a kernel's position-independent code.
#[cfg(all(unix, target_arch = "x86_64"))]
fn assemble(kernel: &Kernel, target: Target) -> Result<Vec<u8>, CodegenError> {
    #[cfg(debug_assertions)]
    compiler::loops::verify(kernel)?;
    let hoisted = compiler::loops::hoist(kernel);
    let kernel = hoisted.as_ref().unwrap_or(kernel);
    let code = lower::lower(kernel, target);
    let alloc = regalloc::allocate(&code.insts, &code.classes, &emit::files(target));
    Ok(emit::emit(&code.insts, &code.classes, &alloc, &code.pool, target, code.labels))
}

/// Compiles a kernel for this machine.
#[cfg(not(any(all(unix, target_arch = "x86_64"), target_arch = "wasm32")))]
pub fn compile(kernel: &Kernel, _target: Target) -> Result<CompiledKernel, CodegenError> {
    portable::compile(kernel)
}

/// Compiles a kernel to a WebAssembly module for the browser.
#[cfg(target_arch = "wasm32")]
pub fn compile(kernel: &Kernel, _target: Target) -> Result<CompiledKernel, CodegenError> {
    #[cfg(debug_assertions)]
    compiler::loops::verify(kernel)?;
    let code = wasm_host::Code::new(kernel)?;
    let (entry, size) = (code.entry(), code.bytes().len());
    Ok(CompiledKernel { code: Mapping::Wasm(code), entry, size })
}
