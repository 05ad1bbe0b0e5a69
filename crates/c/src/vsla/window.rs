//! Windows over streams of tensors, and pyramids of windows (§14.2).

use crate::vsla::error::{Code, guard};
use crate::vsla::handles::{Object, insert, lock, want};
use crate::vsla::pointers::{check_writable, sizes, slice_mut, write_out};
use crate::vsla::tensor::vsla_tensor_t;
use std::sync::Mutex;
use vsla::{Error, Pyramid, Window};

/// A window over a stream of tensors.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_window_t;

/// Windows over windows.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_pyramid_t;

/// A window of `size` tensors that moves on by `stride`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_window_create(size: usize, stride: usize, out: *mut *mut vsla_window_t) -> Code {
    guard(|| {
        check_writable(out)?;
        let window = Window::new(size, stride)?;
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Window(Mutex::new(window)))) }
    })
}

/// Gives a window the next tensor of its stream. `out` gets the stack if the window is full, else null. A tensor that doesn't
/// stack with those before is refused, and the window is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_window_push(
    window: *const vsla_window_t,
    tensor: *const vsla_tensor_t,
    out: *mut *mut vsla_tensor_t,
) -> Code {
    guard(|| {
        check_writable(out)?;
        want!(window, Window, window);
        want!(tensor, Tensor, tensor);
        let stack = lock(window).push(tensor.clone())?;
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, stack.map_or(std::ptr::null_mut(), |t| insert(Object::Tensor(t)))) }
    })
}

/// A pyramid with so many levels, each a window without overlap of the size given for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_pyramid_create(
    window_sizes: *const u64,
    levels: usize,
    out: *mut *mut vsla_pyramid_t,
) -> Code {
    guard(|| {
        check_writable(out)?;
        // SAFETY: the header requires `window_sizes` to be valid for reads of that many elements; null is refused.
        let pyramid = Pyramid::new(&unsafe { sizes(window_sizes, levels, "the sizes of windows")? })?;
        // SAFETY: as above.
        unsafe { write_out(out, insert(Object::Pyramid(Mutex::new(pyramid)))) }
    })
}

/// Gives a pyramid the next tensor of its stream. `outs` needs room for a tensor of each level; the first `count` of them get
/// what the levels from the lowest on completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_pyramid_push(
    pyramid: *const vsla_pyramid_t,
    tensor: *const vsla_tensor_t,
    outs: *mut *mut vsla_tensor_t,
    room: usize,
    count: *mut usize,
) -> Code {
    guard(|| {
        check_writable(count)?;
        want!(pyramid, Pyramid, pyramid);
        want!(tensor, Tensor, tensor);
        let mut pyramid = lock(pyramid);
        if room < pyramid.height() {
            return Err(Error::InvalidArg(format!(
                "there is room for {room} tensors, but the pyramid has {} levels",
                pyramid.height()
            )));
        }
        // SAFETY: the header requires `outs` to be valid for writes of that many elements; null is refused.
        let outs = unsafe { slice_mut(outs, room, "the results")? };
        let given = pyramid.push(tensor.clone())?;
        let n = given.len();
        outs.iter_mut().zip(given).for_each(|(to, t)| *to = insert(Object::Tensor(t)));
        // SAFETY: as above.
        unsafe { write_out(count, n) }
    })
}
