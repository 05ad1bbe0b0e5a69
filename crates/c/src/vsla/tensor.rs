//! Tensors and operations on them, one by one (§18).

use crate::vsla::error::{Code, guard};
use crate::vsla::graph::{op, vsla_attrs_t};
use crate::vsla::handles::{Object, get, insert, want};
use crate::vsla::pointers::{check_writable, dtype, model, sizes, slice, slice_mut, write_out};
use std::ffi::c_void;
use std::sync::Arc;
use vsla::{Error, Numerics, Result, Tensor, ValueSignature};

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
        check_writable(out)?;
        let signature = ValueSignature {
            dtype: dtype(dtype_)?,
            // SAFETY: the header requires `shape` to be valid for reads of that many elements; null is refused.
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
        unsafe { write_out(out, insert(Object::Tensor(t))) }
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
        // SAFETY: the header requires `rank` to be valid for a write; null is refused.
        unsafe { write_out(rank, found.len())? };
        if room >= found.len() {
            // SAFETY: as above.
            let to = unsafe { slice_mut(shape, found.len(), "shape")? };
            to.iter_mut().zip(found).for_each(|(t, d)| *t = *d as u64);
        }
        Ok(())
    })
}

/// Writes the capacity of a tensor where there is room for it: the sizes that it can grow to where it lies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_capacity(tensor: *const vsla_tensor_t, capacity: *mut u64, room: usize) -> Code {
    guard(|| {
        want!(tensor, Tensor, tensor);
        let found = tensor.capacity();
        if room < found.len() {
            return Err(Error::InvalidArg(format!(
                "there is room for {room} sizes, but the tensor has {} axes",
                found.len()
            )));
        }
        // SAFETY: the header requires `capacity` to be valid for writes of that many elements; null is refused.
        let to = unsafe { slice_mut(capacity, found.len(), "capacity")? };
        to.iter_mut().zip(found).for_each(|(t, d)| *t = *d as u64);
        Ok(())
    })
}

/// Writes the `vsla_dtype_t` and the `vsla_model_t` of a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_kind(tensor: *const vsla_tensor_t, dtype_: *mut u32, model_: *mut u32) -> Code {
    guard(|| {
        check_writable(model_)?;
        want!(tensor, Tensor, tensor);
        // SAFETY: the header requires `dtype_` and `model_` to be valid for writes; null and misaligned pointers are
        // refused.
        unsafe { write_kind(tensor.signature(), dtype_, model_) }
    })
}

/// # Safety
/// `dtype_` and `model_` are null or valid for writes.
pub(crate) unsafe fn write_kind(s: &ValueSignature, dtype_: *mut u32, model_: *mut u32) -> Result<()> {
    let dtype = vsla::shape::DTYPES.iter().position(|d| *d == s.dtype);
    let dtype = dtype.ok_or_else(|| Error::Unknown("a value of an unknown dtype".into()))?;
    // SAFETY: `dtype_` and `model_` are valid for writes; `set` refuses null.
    unsafe {
        write_out(dtype_, dtype as u32)?;
        write_out(model_, u32::from(s.model == vsla::Model::B))
    }
}

/// Copies the elements, dense in row-major order; `bytes` must be exactly their size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_read(tensor: *const vsla_tensor_t, data: *mut c_void, bytes: usize) -> Code {
    guard(|| {
        want!(tensor, Tensor, tensor);
        // SAFETY: the header requires `data` to be valid for writes of that many elements; null is refused.
        tensor.read_into(unsafe { slice_mut(data.cast::<u8>(), bytes, "data")? })
    })
}

/// Whether two tensors are of one class: writes 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_equal(a: *const vsla_tensor_t, b: *const vsla_tensor_t, equal: *mut u32) -> Code {
    guard(|| {
        want!(a, Tensor, a);
        want!(b, Tensor, b);
        // SAFETY: the header requires `equal` to be valid for a write; null is refused.
        unsafe { write_out(equal, u32::from(a == b)) }
    })
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn write_tensor_handle(out: *mut *mut vsla_tensor_t, make: impl FnOnce() -> Result<Tensor>) -> Result<()> {
    check_writable(out)?;
    let t = make()?;
    // SAFETY: `out` is valid for a write; `writable` refused null.
    unsafe { write_out(out, insert(Object::Tensor(t))) }
}

/// The functions of two tensors; written out one by one below, since the header's generator doesn't expand macros.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn binary_tensor_op(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
    f: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
) -> Code {
    guard(|| {
        want!(a, Tensor, a);
        want!(b, Tensor, b);
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_tensor_handle(out, || f(a, b)) }
    })
}

/// a + b in the ambient shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_add(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: `two` looks handles up and never dereferences them, and the header requires `out` to be valid for a
    // write; null is refused.
    unsafe { binary_tensor_op(a, b, out, Tensor::add) }
}

/// a - b in the ambient shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_sub(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: `two` looks handles up and never dereferences them, and the header requires `out` to be valid for a
    // write; null is refused.
    unsafe { binary_tensor_op(a, b, out, Tensor::sub) }
}

/// a * b, elementwise, in the ambient shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_hadamard(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: `two` looks handles up and never dereferences them, and the header requires `out` to be valid for a
    // write; null is refused.
    unsafe { binary_tensor_op(a, b, out, Tensor::hadamard) }
}

/// Convolution along the last axis; model A.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_conv(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: `two` looks handles up and never dereferences them, and the header requires `out` to be valid for a
    // write; null is refused.
    unsafe { binary_tensor_op(a, b, out, Tensor::conv1d) }
}

/// Kronecker product; model B.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_kron(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: `two` looks handles up and never dereferences them, and the header requires `out` to be valid for a
    // write; null is refused.
    unsafe { binary_tensor_op(a, b, out, Tensor::kronecker) }
}

/// Product over the last two axes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_matmul(
    a: *const vsla_tensor_t,
    b: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: `two` looks handles up and never dereferences them, and the header requires `out` to be valid for a
    // write; null is refused.
    unsafe { binary_tensor_op(a, b, out, Tensor::matmul) }
}

/// Calls `f` with the tensors of a list of handles.
///
/// # Safety
/// `list` is null or valid for reads of `count` handles.
pub(crate) unsafe fn with_tensors<T>(
    list: *const *const vsla_tensor_t,
    count: usize,
    f: impl FnOnce(&[&Tensor]) -> Result<T>,
) -> Result<T> {
    // SAFETY: `list` is valid for reads of `count` handles; `slice` refuses null.
    let list = unsafe { slice(list, count, "the list of tensors")? };
    let objects: Vec<Arc<Object>> = list.iter().map(|p| get(*p, "tensor")).collect::<Result<_>>()?;
    let tensors: Vec<&Tensor> = (objects.iter())
        .map(|o| match &**o {
            Object::Tensor(t) => Ok(t),
            _ => Err(Error::InvalidArg("a tensor is a handle of another kind".into())),
        })
        .collect::<Result<_>>()?;
    f(&tensors)
}

/// Tensors of one rank along a new first axis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_stack(
    parts: *const *const vsla_tensor_t,
    count: usize,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    // SAFETY: the header requires `parts` to be valid for reads of `count` handles and `out` for a write; null is
    // refused.
    guard(|| unsafe { write_tensor_handle(out, || with_tensors(parts, count, Tensor::stack)) })
}

/// Any operation on tensors, as a program of that operation alone, which is planned once for its shapes and kept. `seed`
/// is for random operations. Writes as many results as the operation has; `noutputs` must be their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_tensor_op(
    kind: u32,
    inputs: *const *const vsla_tensor_t,
    ninputs: usize,
    attrs: *const vsla_attrs_t,
    seed: u64,
    outputs: *mut *mut vsla_tensor_t,
    noutputs: usize,
) -> Code {
    guard(|| {
        // SAFETY: the header requires `attrs` to be null or valid for a read, and both lists of handles to be valid for
        // their counts; null is refused.
        let op = unsafe { op(kind, attrs, ninputs)? };
        // SAFETY: as above.
        let outputs = unsafe { slice_mut(outputs, noutputs, "outputs")? };
        // SAFETY: as above.
        let made = unsafe { with_tensors(inputs, ninputs, |t| vsla::eager::run(&op, t, Numerics::default(), seed))? };
        if made.len() != noutputs {
            return Err(Error::InvalidArg(format!(
                "there is room for {noutputs} results, but there are {}",
                made.len()
            )));
        }
        outputs.iter_mut().zip(made).for_each(|(to, t)| *to = insert(Object::Tensor(t)));
        Ok(())
    })
}

/// Forgets the programs of operations on tensors that are kept, and gives their memory back. What runs goes on.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_ops_clear() -> Code {
    guard(|| {
        vsla::eager::clear_plan_cache();
        Ok(())
    })
}

/// The minimal representative. Nothing else shrinks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_shrink(tensor: *const vsla_tensor_t, out: *mut *mut vsla_tensor_t) -> Code {
    guard(|| {
        want!(tensor, Tensor, tensor);
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_tensor_handle(out, || Ok(tensor.shrink())) }
    })
}
