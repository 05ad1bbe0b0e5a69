//! Gradients (§9, §12.3).

use crate::vsla::backend::vsla_backend_t;
use crate::vsla::error::{Code, guard};
use crate::vsla::graph::vsla_program_t;
use crate::vsla::handles::{Object, insert, lock, want};
use crate::vsla::plan::{IoList, vsla_bindings_t, vsla_io_t, write_text};
use crate::vsla::pointers::{check_writable, memory, write_out};
use crate::vsla::stream::{StreamJob, retain_handle, vsla_stream_t};
use std::ffi::{c_char, c_void};
use std::sync::Mutex;
use vsla::autograd::{self, BackwardOptions};

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
        check_writable(out)?;
        want!(program, Program, program);
        let backward = autograd::build_backward(program, &BackwardOptions { inputs: inputs != 0 })?;
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Backward(backward))) }
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
        check_writable(out)?;
        want!(backward, Backward, backward);
        want!(backend, Backend, backend);
        let plan = autograd::plan_backward(backward, backend)?;
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::BackwardPlan(plan))) }
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
        check_writable(out)?;
        want!(plan, BackwardPlan, plan);
        let bound = if params.is_null() {
            plan.bind()?
        } else {
            want!(params, Bindings, params);
            plan.bind_sharing(&lock(params))?
        };
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::AdBindings(Mutex::new(bound)))) }
    })
}

/// The bytes of one block for all that forward and backward touch, gradients too. With `sharing`, the parameters are those
/// of other bindings and not counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_autograd_memory_bytes(
    plan: *const vsla_backward_plan_t,
    sharing: u32,
    bytes: *mut usize,
) -> Code {
    guard(|| {
        want!(plan, BackwardPlan, plan);
        // SAFETY: the header requires `bytes` to be valid for a write; null is refused.
        unsafe { write_out(bytes, plan.memory_bytes(sharing != 0)?) }
    })
}

/// Binds a backward plan in one block of the caller's, as `vsla_program_bind_in` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_autograd_bind_in(
    plan: *const vsla_backward_plan_t,
    params: *const vsla_bindings_t,
    block: *mut c_void,
    bytes: usize,
    out: *mut *mut vsla_ad_bindings_t,
) -> Code {
    guard(|| {
        check_writable(out)?;
        want!(plan, BackwardPlan, plan);
        let needed = plan.memory_bytes(!params.is_null())?;
        // SAFETY: the header requires the block to be valid for `bytes` bytes for as long as the bindings exist;
        // `memory` checks address and size.
        let block = unsafe { memory(block, bytes, needed)? };
        let bound = if params.is_null() {
            plan.bind_in(block, None)?
        } else {
            want!(params, Bindings, params);
            plan.bind_in(block, Some(&lock(params)))?
        };
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::AdBindings(Mutex::new(bound)))) }
    })
}

/// Seeds the random operations of the next runs: forward and backward of one run have the same masks.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_ad_bindings_seed(bindings: *const vsla_ad_bindings_t, seed: u64) -> Code {
    guard(|| {
        want!(bindings, AdBindings, bindings);
        lock(bindings).values_mut().seed(seed)
    })
}

/// Writes the memory report of forward and backward, as `vsla_plan_report` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_autograd_report(
    plan: *const vsla_backward_plan_t,
    text: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Code {
    guard(|| {
        want!(plan, BackwardPlan, plan);
        // SAFETY: the header requires the text to be valid for writes of `room` bytes and `needed` for a write; null is
        // refused.
        unsafe { write_text(&plan.to_string(), text, room, needed) }
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
        want!(stream, Stream, stream);
        // SAFETY: the header requires `inputs` and `outputs` to be null or to point to valid lists.
        let (inputs, outputs) = unsafe { (IoList::at(inputs)?, IoList::at(outputs)?) };
        // SAFETY: as above.
        let (cotangents, gradients) = unsafe { (IoList::at(loss_grads)?, IoList::at(param_grads)?) };
        stream.start(StreamJob::Training {
            plan: retain_handle(plan, "plan", |o| matches!(o, Object::BackwardPlan(_)))?,
            bindings: retain_handle(bindings, "bindings", |o| matches!(o, Object::AdBindings(_)))?,
            inputs,
            outputs,
            cotangents,
            gradients,
        })
    })
}
