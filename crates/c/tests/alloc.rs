//! Running through the C functions allocates nothing: forward, backward, profiles (§12).

use std::ptr::{null, null_mut};
use tensorloom_c::vsla::autograd::*;
use tensorloom_c::vsla::backend::*;
use tensorloom_c::vsla::error::Code;
use tensorloom_c::vsla::graph::*;
use tensorloom_c::vsla::handles::vsla_destroy;
use tensorloom_c::vsla::plan::*;
use tensorloom_c::vsla::stream::*;
use testing::counting_allocator::{CountingAllocator, calls};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[track_caller]
fn ok(code: Code) {
    assert_eq!(code, Code::VslaErrOk);
}

#[track_caller]
fn quiet(mut f: impl FnMut()) {
    f();
    let before = calls();
    for _ in 0..20 {
        f();
    }
    assert_eq!(calls() - before, 0);
}

fn s12_execute_never_allocates() {
    let before = calls();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(calls() - before, 2, "the allocator counts");

    let (mut graph, mut program, mut backend, mut stream) = (null_mut(), null_mut(), null_mut(), null_mut());
    let (mut plan, mut bound, mut profile) = (null_mut(), null_mut(), null_mut());
    let (mut back, mut back_plan, mut ad) = (null_mut(), null_mut(), null_mut());
    let (mut x, mut w, mut y, mut s) = (0, 0, 0, 0);
    let (n, taps) = (300u64, 200u64);
    let mut data = vec![1.0f64; 300];
    let (mut value, mut one, mut grad) = (0.0f64, 1.0f64, vec![0.0f64; 200]);
    // SAFETY: every pointer is to a live local of the right type and count.
    unsafe {
        ok(vsla_graph_create(&mut graph));
        ok(vsla_graph_value(graph, 1, 1, 0, 1, &n, null(), c"x".as_ptr(), &mut x));
        ok(vsla_graph_value(graph, 0, 1, 0, 1, &taps, null(), c"w".as_ptr(), &mut w));
        ok(vsla_graph_node(graph, OpKind::VslaOpConv1d as u32, [x, w].as_ptr(), 2, null(), &mut y, 1));
        ok(vsla_graph_node(graph, OpKind::VslaOpSum as u32, &y, 1, null(), &mut s, 1));
        ok(vsla_graph_output(graph, s));
        ok(vsla_program_build(graph, &mut program));
        ok(vsla_backend_create_cpu(2, &mut backend));
        ok(vsla_backend_create_stream(backend, &mut stream));
        ok(vsla_program_plan(program, backend, &mut plan));
        ok(vsla_program_bind(plan, null(), &mut bound));
        ok(vsla_profile_compile(program, backend, null(), &mut profile));
        ok(vsla_autograd_build_backward(program, 0, &mut back));
        ok(vsla_autograd_plan_backward(back, backend, &mut back_plan));
        ok(vsla_autograd_bind(back_plan, bound, &mut ad));
    }
    let (in_data, out_data) = ([data.as_mut_ptr().cast()], [(&raw mut value).cast()]);
    let (one_data, grad_data) = ([(&raw mut one).cast()], [grad.as_mut_ptr().cast()]);
    let io = |values: &u32, data: &[*mut std::ffi::c_void; 1], bytes: &usize| vsla_io_t {
        count: 1,
        values,
        data: data.as_ptr(),
        bytes,
    };
    let (b_in, b_one, b_grad) = (2400, 8, 1600);
    let (inputs, outputs) = (io(&x, &in_data, &b_in), io(&s, &out_data, &b_one));
    let (cotangents, grads) = (io(&s, &one_data, &b_one), io(&w, &grad_data, &b_grad));
    quiet(|| {
        // SAFETY: as above.
        unsafe {
            ok(vsla_program_execute(plan, bound, &inputs, &outputs, stream));
            ok(vsla_profile_run(profile, &inputs, &outputs, stream));
            let (mut at, some) = (9, 200u64);
            ok(vsla_profile_route([profile.cast_const()].as_ptr(), 1, x, 1, &some, &mut at));
            ok(vsla_profile_write(profile, x, 1, &some, in_data[0].cast_const(), 1600));
            ok(vsla_profile_run(profile, null(), &outputs, stream));
            ok(vsla_autograd_execute(back_plan, ad, &inputs, &outputs, &cotangents, &grads, stream));
        }
        ok(vsla_backend_synchronize(stream));
    });
    // The same in blocks of the caller's, on a stream with a thread of its own.
    let (mut later, mut bytes, mut ad_bytes) = (null_mut(), 0, 0);
    let (mut block_bound, mut block_ad) = (null_mut(), null_mut());
    // SAFETY: as above.
    unsafe {
        ok(vsla_backend_create_async_stream(backend, &mut later));
        ok(vsla_plan_memory_bytes(plan, 0, &mut bytes));
        ok(vsla_autograd_memory_bytes(back_plan, 0, &mut ad_bytes));
    }
    let mut memory = vec![0u8; bytes + ad_bytes + 128];
    let at = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(64));
    // SAFETY: the vector has room for both blocks and lives until all is destroyed.
    unsafe {
        ok(vsla_program_bind_in(plan, null(), at.cast(), bytes, &mut block_bound));
        ok(vsla_autograd_bind_in(back_plan, null(), at.add(bytes).cast(), ad_bytes, &mut block_ad));
        ok(vsla_bindings_write(block_bound, w, grad_data[0].cast_const(), 1600));
    }
    quiet(|| {
        // SAFETY: as above; the data stays until the stream is synchronised.
        unsafe {
            ok(vsla_program_execute(plan, block_bound, &inputs, &outputs, later));
            ok(vsla_profile_run(profile, &inputs, &outputs, later));
            ok(vsla_autograd_execute(back_plan, block_ad, &inputs, &outputs, &cotangents, &grads, later));
        }
        ok(vsla_backend_synchronize(later));
    });
    for h in [later.cast(), block_bound.cast(), block_ad.cast()] {
        ok(vsla_destroy(h));
    }
    drop(memory);
    // The gradient of a sum of a convolution is the sum of the signal, for every tap.
    // SAFETY: the runs have ended; the vector is read where it was written.
    let grad = unsafe { std::slice::from_raw_parts(grad_data[0].cast::<f64>(), 200) };
    assert!(grad.iter().all(|g| (g - 300.0).abs() < 1e-9), "{grad:?}");
    for h in [graph.cast(), program.cast(), backend.cast(), stream.cast(), plan.cast(), bound.cast()] {
        ok(vsla_destroy(h));
    }
    for h in [profile.cast(), back.cast(), back_plan.cast(), ad.cast()] {
        ok(vsla_destroy(h));
    }
}

/// No test harness: its threads allocate when they like, and the count is of the whole process.
fn main() {
    s12_execute_never_allocates();
    println!("1 passed, 0 failed");
}
