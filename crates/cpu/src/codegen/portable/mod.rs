//! Compiles kernels with Cranelift, for machines that this crate's x86-64 code generator does not support.
//!
//! A `Vector` loop uses 128-bit vectors where the machine has them ([`has_vectors`]), otherwise one lane at a time.
//! `kernel` emits statements and loops, `memory` addresses, loads and stores, `scalar` and `vector` arithmetic, `convert`
//! casts of lanes, `functions` calls of elementary functions. All other ops and dtypes call [`super::helper`].
//!
//! Registers have the helper's representation: 8 bytes for 64-bit dtypes and 4 for all others, small floats as f32, small
//! integers extended to 32 bits, bool as 0 or 1, or in lanes as all zeros or all ones.

mod convert;
mod functions;
mod kernel;
mod memory;
mod scalar;
mod vector;

use super::{CodegenError, CompiledKernel, Entry};
use compiler::loops::Kernel;
use cranelift_codegen::Context;
use cranelift_codegen::ir::{
    AbiParam, Function, MemFlagsData, Signature, StackSlotData, StackSlotKind, Type, UserFuncName, types,
};
use cranelift_codegen::ir::{InstBuilder, condcodes};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};
use ir::DType;
use kernel::Writer;

/// Whether there is a portable code generator in this build.
pub(super) const AVAILABLE: bool = true;

/// Code in its own executable memory.
pub(crate) struct Code(Option<JITModule>);

// SAFETY: after it is finished the module is only kept, and given back.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            // SAFETY: the kernel that held the entry goes with this.
            unsafe { module.free_memory() };
        }
    }
}

fn fault(e: impl std::fmt::Display) -> CodegenError {
    CodegenError::Memory(std::io::Error::other(e.to_string()))
}

/// Returns whether the machine supports every vector instruction that this module emits.
fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("sse4.2") && std::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    cfg!(target_arch = "aarch64")
}

pub(super) fn compile(kernel: &Kernel) -> Result<CompiledKernel, CodegenError> {
    #[cfg(debug_assertions)]
    compiler::loops::verify(kernel)?;
    let hoisted = compiler::loops::hoist(kernel);
    let kernel = hoisted.as_ref().unwrap_or(kernel);
    let verifier = if cfg!(debug_assertions) { "true" } else { "false" };
    let mut flags = settings::builder();
    for (name, value) in [
        ("use_colocated_libcalls", "false"),
        ("is_pic", "false"),
        ("opt_level", "speed"),
        ("enable_verifier", verifier),
    ] {
        flags.set(name, value).map_err(fault)?;
    }
    let isa = cranelift_native::builder().map_err(|_| CodegenError::Unsupported)?;
    let isa = isa.finish(settings::Flags::new(flags)).map_err(fault)?;
    let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
    let pointer = module.target_config().pointer_type();
    let mut signature = module.make_signature();
    signature.params = [pointer, pointer, types::I64, types::I64].map(AbiParam::new).to_vec();
    let id = module.declare_function("kernel", Linkage::Local, &signature).map_err(fault)?;
    let mut context = Context::new();
    context.func = Function::with_name_signature(UserFuncName::user(0, id.as_u32()), signature);
    let mut shared = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut context.func, &mut shared);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let params = b.block_params(entry).to_vec();
    let mut call = module.make_signature();
    call.params = [pointer, types::I64].map(AbiParam::new).to_vec();
    let one = |t: Type| -> Signature {
        let mut s = module.make_signature();
        s.params.push(AbiParam::new(t));
        s.returns.push(AbiParam::new(t));
        s
    };
    let (f32s, f64s) = (one(types::F32), one(types::F64));
    let flags = MemFlagsData::trusted();
    let bufs = (0..kernel.buffers.len() as i32)
        .map(|i| b.ins().load(pointer, flags, params[0], i * pointer.bytes() as i32))
        .collect();
    let sizes = (0..kernel.sizes as i32).map(|i| b.ins().load(types::I64, flags, params[1], i * 8)).collect();
    let area = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 256, 4));
    let signatures = [call, f32s, f64s].map(|s| b.import_signature(s));
    let mut w = Writer::new(kernel, b, pointer, bufs, sizes, (params[2], params[3]), area, signatures, has_vectors());
    w.block(&kernel.body);
    w.b.ins().return_(&[]);
    w.b.seal_all_blocks();
    let config = module.target_config();
    w.b.finalize(config);
    module.define_function(id, &mut context).map_err(fault)?;
    let size = context.compiled_code().map_or(0, |c| c.code_buffer().len());
    module.clear_context(&mut context);
    module.finalize_definitions().map_err(fault)?;
    // SAFETY: the function was declared with this signature in the C calling convention of this machine.
    let entry = unsafe { std::mem::transmute::<*const u8, Entry>(module.get_finalized_function(id)) };
    Ok(CompiledKernel::portable(Code(Some(module)), entry, size))
}

/// Returns the Cranelift type of a register of a dtype.
fn register_type(d: DType) -> Type {
    match d {
        DType::F64 => types::F64,
        d if d.is_float() => types::F32,
        d if d.size() == 8 => types::I64,
        _ => types::I32,
    }
}

/// Returns whether this is an integer of up to 32 bits.
fn word(d: DType) -> bool {
    d.is_int() && d.size() < 8
}

/// Returns the condition code of a comparison of signed integers.
fn int_predicate(c: ir::Compare) -> condcodes::IntCC {
    use condcodes::IntCC;
    match c {
        ir::Compare::Eq => IntCC::Equal,
        ir::Compare::Ne => IntCC::NotEqual,
        ir::Compare::Lt => IntCC::SignedLessThan,
        ir::Compare::Le => IntCC::SignedLessThanOrEqual,
        ir::Compare::Gt => IntCC::SignedGreaterThan,
        ir::Compare::Ge => IntCC::SignedGreaterThanOrEqual,
    }
}

/// Returns the condition code of a comparison of floats.
fn ordered_float(c: ir::Compare) -> condcodes::FloatCC {
    use condcodes::FloatCC;
    match c {
        ir::Compare::Eq => FloatCC::Equal,
        ir::Compare::Ne => FloatCC::NotEqual,
        ir::Compare::Lt => FloatCC::LessThan,
        ir::Compare::Le => FloatCC::LessThanOrEqual,
        ir::Compare::Gt => FloatCC::GreaterThan,
        ir::Compare::Ge => FloatCC::GreaterThanOrEqual,
    }
}
