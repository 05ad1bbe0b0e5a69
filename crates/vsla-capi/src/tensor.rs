//! Tensors and operations on them, one by one (§18).

use crate::error::{Code, guard};
use crate::handles::{Object, get, put, want};
use crate::pointers::{dtype, model, set, sizes, slice, slice_mut, writable};
use std::ffi::c_void;
use std::sync::Arc;
use vsla::{Error, Result, Signature, Tensor};

/// An array up to trailing zeros. It doesn't change once it is made.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_tensor_t;

/// A tensor from dense row-major data; null data is all zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_create(
    dtype_: u32,
    model_: u32,
    rank: usize,
    shape: *const u64,
    data: *const c_void,
    bytes: usize,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    guard(|| {
        writable(out)?;
        let signature = Signature {
            dtype: dtype(dtype_)?,
            // SAFETY: the caller's promise.
            shape: unsafe { sizes(shape, rank, "the shape")? },
            model: model(model_)?,
        };
        let t = if data.is_null() && bytes == 0 {
            Tensor::of(signature)?
        } else {
            // SAFETY: as above.
            Tensor::from_bytes(signature, unsafe { slice(data.cast::<u8>(), bytes, "data")? })?
        };
        // SAFETY: as above.
        unsafe { set(out, put(Object::Tensor(t))) }
    })
}

/// Writes the rank of a tensor and, where there is room for it, its logical shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_shape(
    tensor: *const vsla_tensor_t,
    rank: *mut usize,
    shape: *mut u64,
    room: usize,
) -> Code {
    guard(|| {
        want!(tensor, Tensor, tensor);
        let found = tensor.shape();
        // SAFETY: the caller's promise.
        unsafe { set(rank, found.len())? };
        if room >= found.len() {
            // SAFETY: as above.
            let to = unsafe { slice_mut(shape, found.len(), "shape")? };
            to.iter_mut().zip(found).for_each(|(t, d)| *t = *d as u64);
        }
        Ok(())
    })
}

/// Copies the elements, dense in row-major order; `bytes` must be exactly their size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_read(tensor: *const vsla_tensor_t, data: *mut c_void, bytes: usize) -> Code {
    guard(|| {
        want!(tensor, Tensor, tensor);
        let found = tensor.to_bytes();
        if found.len() != bytes {
            return Err(Error::InvalidArg(format!("room for {bytes} bytes, the tensor has {}", found.len())));
        }
        // SAFETY: the caller's promise.
        unsafe { slice_mut(data.cast::<u8>(), bytes, "data")? }.copy_from_slice(&found);
        Ok(())
    })
}

/// Whether two tensors are of one class: writes 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_equal(a: *const vsla_tensor_t, b: *const vsla_tensor_t, equal: *mut u32) -> Code {
    guard(|| {
        want!(a, Tensor, a);
        want!(b, Tensor, b);
        // SAFETY: the caller's promise.
        unsafe { set(equal, u32::from(a == b)) }
    })
}

unsafe fn give(out: *mut *mut vsla_tensor_t, make: impl FnOnce() -> Result<Tensor>) -> Result<()> {
    writable(out)?;
    let t = make()?;
    // SAFETY: the caller's promise.
    unsafe { set(out, put(Object::Tensor(t))) }
}

/// The functions of two tensors; written out one by one below, since the header's generator doesn't expand macros.
unsafe fn two(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
    f: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
) -> Code {
    guard(|| {
        want!(a, Tensor, a);
        want!(b, Tensor, b);
        // SAFETY: the caller's promise.
        unsafe { give(out, || f(a, b)) }
    })
}

/// a + b in the ambient shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_add(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { two(a, b, out, Tensor::add) }
}

/// a - b in the ambient shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_sub(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { two(a, b, out, Tensor::sub) }
}

/// a * b, elementwise, in the ambient shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_hadamard(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { two(a, b, out, Tensor::hadamard) }
}

/// Convolution along the last axis; model A.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_conv(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { two(a, b, out, Tensor::conv1d) }
}

/// Kronecker product; model B.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_kron(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { two(a, b, out, Tensor::kronecker) }
}

/// Product over the last two axes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_matmul(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { two(a, b, out, Tensor::matmul) }
}

/// Tensors of one rank along a new first axis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_stack(
    parts: *const *const vsla_tensor_t,
    count: usize,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    guard(|| {
        // SAFETY: the caller's promise.
        let parts = unsafe { slice(parts, count, "parts")? };
        let objects: Vec<Arc<Object>> = parts.iter().map(|p| get(*p, "tensor")).collect::<Result<_>>()?;
        let tensors: Vec<&Tensor> = (objects.iter())
            .map(|o| match &**o {
                Object::Tensor(t) => Ok(t),
                _ => Err(Error::InvalidArg("a part is a handle of another kind".into())),
            })
            .collect::<Result<_>>()?;
        // SAFETY: as above.
        unsafe { give(out, || Tensor::stack(&tensors)) }
    })
}

/// The minimal representative. Nothing else shrinks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_shrink(tensor: *const vsla_tensor_t, out: *mut *mut vsla_tensor_t) -> Code {
    guard(|| {
        want!(tensor, Tensor, tensor);
        // SAFETY: the caller's promise.
        unsafe { give(out, || Ok(tensor.shrink())) }
    })
}
