//! Gradients (§9, §12.3).

use crate::backend::{vsla_backend_t, vsla_stream_t};
use crate::error::{Code, guard};
use crate::graph::vsla_program_t;
use crate::handles::{Object, lock, put, want};
use crate::plan::{each, read_all, vsla_bindings_t, vsla_io_t, write_all};
use crate::pointers::{set, slice, slice_mut, writable};
use std::sync::Mutex;
use vsla::autograd::{self, AdOptions};

/// A backward program.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_backward_t;

/// A planned backward program.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_backward_plan_t;

/// Memory that runs of a backward plan read and write.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_ad_bindings_t;

/// Differentiates a program with respect to its parameters and, if `inputs` isn't 0, its inputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_autograd_build_backward(
    program: *const vsla_program_t,
    inputs: u32,
    out: *mut *mut vsla_backward_t,
) -> Code {
    guard(|| {
        writable(out)?;
        want!(program, Program, program);
        let backward = autograd::build_backward(program, &AdOptions { inputs: inputs != 0 })?;
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::Backward(backward))) }
    })
}

/// Plans a backward program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_autograd_plan_backward(
    backward: *const vsla_backward_t,
    backend: *const vsla_backend_t,
    out: *mut *mut vsla_backward_plan_t,
) -> Code {
    guard(|| {
        writable(out)?;
        want!(backward, Backward, backward);
        want!(backend, Backend, backend);
        let plan = autograd::plan_backward(backward, backend)?;
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::BackwardPlan(plan))) }
    })
}

/// Memory for forward, backward and gradients. With `params`, parameters are those of the forward program's bindings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_autograd_bind(
    plan: *const vsla_backward_plan_t,
    params: *const vsla_bindings_t,
    out: *mut *mut vsla_ad_bindings_t,
) -> Code {
    guard(|| {
        writable(out)?;
        want!(plan, BackwardPlan, plan);
        let bound = if params.is_null() {
            plan.bind()?
        } else {
            want!(params, Bindings, params);
            plan.bind_sharing(&lock(params))?
        };
        // SAFETY: the caller's promise.
        unsafe { set(out, put(Object::AdBindings(Mutex::new(bound)))) }
    })
}

/// Sets inputs and parameters, runs forward, copies outputs, sets the outputs' cotangents, runs backward, copies the
/// gradients of the values listed. Any list may be null: what was set before stays. Allocates nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_autograd_execute(
    plan: *const vsla_backward_plan_t,
    bindings: *const vsla_ad_bindings_t,
    inputs: *const vsla_io_t,
    outputs: *const vsla_io_t,
    loss_grads: *const vsla_io_t,
    param_grads: *const vsla_io_t,
    stream: *const vsla_stream_t,
) -> Code {
    guard(|| {
        want!(plan, BackwardPlan, plan);
        want!(bindings, AdBindings, bindings);
        want!(stream, Stream, stream);
        let mut b = lock(bindings);
        // SAFETY: the caller's promise, here and below.
        unsafe { write_all(inputs, b.values_mut())? };
        plan.forward(&mut b, stream)?;
        // SAFETY: as above.
        unsafe {
            read_all(outputs, b.values())?;
            each(loss_grads, |v, at, n| b.write_cotangent_bytes(v, slice(at, n, "data")?))?;
        }
        plan.backward(&mut b, stream)?;
        // SAFETY: as above.
        unsafe { each(param_grads, |v, at, n| b.read_gradient_bytes(v, slice_mut(at, n, "data")?)) }
    })
}
