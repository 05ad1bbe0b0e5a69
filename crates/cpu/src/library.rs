//! Steps that are no kernels: claimed composites and routines.

use compiler::{Error, Result};
use ir::ops::Composite;
use ir::{Literal, Op, Type};

/// Whether this backend runs a composite whole.
pub(crate) fn claims(_composite: &Composite, _args: &[Type]) -> bool {
    false
}

/// Runs an op on dense operands through the reference interpreter.
///
/// # Safety
/// Every pointer is good for the bytes of its type, and results don't overlap operands.
pub(crate) unsafe fn interpret(op: &Op, args: &[(*mut u8, &Type)], outs: &[(*mut u8, &Type)]) -> Result<()> {
    let mut inputs = Vec::with_capacity(args.len());
    for (p, ty) in args {
        // SAFETY: good for the type's bytes by the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(*p, ty.bytes()) };
        inputs.push(Literal::from_bytes((*ty).clone(), bytes).expect("the slice has the type's size"));
    }
    let types: Vec<Type> = outs.iter().map(|(_, t)| (*t).clone()).collect();
    let results = ir::interp::eval(op, &inputs, &types).map_err(Error::Graph)?;
    for ((p, _), r) in outs.iter().zip(&results) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(r.bytes().as_ptr(), *p, r.bytes().len()) };
    }
    Ok(())
}
