//! Bindings whose memory overlaps are never in use at once. Nothing here can be undefined: the test forbids `unsafe`.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex};
use tensorloom_vsla::autograd::{self, BackwardOptions};
use tensorloom_vsla::{
    Backend, Bindings, DType, Device, DeviceRun, ErrorCode, Link, Plan, Program, ProgramBuilder, Result, SharedArena,
    StageLink, Stream, Tensor,
};

const N: usize = 64;

/// `exp(w x)` with a parameter `w`.
fn program() -> Arc<Program> {
    let mut b = ProgramBuilder::new();
    let x = b.input("x", DType::F64, &[N]).unwrap();
    let w = b.param("w", DType::F64, &[N]).unwrap();
    let y = b.hadamard(w, x).unwrap();
    let y = b.exp(y).unwrap();
    b.output(y).unwrap();
    Arc::new(b.build().unwrap())
}

fn ones() -> Tensor {
    Tensor::vector(&[1.0; N])
}

/// Calls a function in the middle of a run.
#[derive(Default)]
struct Between(Mutex<Option<Box<dyn FnMut() + Send>>>);

impl Device for Between {
    fn launch(&self, index: usize, run: &mut DeviceRun<'_>) -> Result<()> {
        run.segment(index)?;
        if let Some(f) = &mut *self.0.lock().unwrap() {
            f();
        }
        Ok(())
    }
}

/// Two linked programs in one arena, the first one on a device.
fn stages(device: &Arc<Between>) -> (Plan, Plan, Vec<Bindings>) {
    let backend = Backend::cpu(1);
    let (first, second) = (program(), program());
    let plans =
        (Plan::new(&first, &backend.with_device(device.clone())).unwrap(), Plan::new(&second, &backend).unwrap());
    let link = StageLink { from: 0, to: 1, link: Link { source: first.outputs()[0], destination: second.inputs()[0] } };
    let arena = SharedArena::plan(&[&plans.0, &plans.1], &[link]).unwrap();
    let mut bound = arena.bind(&backend).unwrap();
    for (b, p) in bound.iter_mut().zip([&first, &second]) {
        b.write(p.params()[0], &ones()).unwrap();
    }
    bound[0].write(first.inputs()[0], &ones()).unwrap();
    (plans.0, plans.1, bound)
}

#[track_caller]
fn refused<T>(r: Result<T>) {
    let e = r.err().expect("used while another program of the arena runs");
    assert_eq!(e.code(), ErrorCode::InvalidArg);
    assert!(e.to_string().contains("in use"), "{e}");
}

#[test]
fn s10_2_programs_of_one_arena_are_used_one_after_the_other() {
    let device = Arc::new(Between::default());
    let (first, second, mut bound) = stages(&device);
    let own = |b: &Bindings| (b.program().inputs()[0], b.program().params()[0], b.program().outputs()[0]);
    let (last, mut one) = (bound.pop().unwrap(), bound.pop().unwrap());
    let (x, w, y) = own(&last);
    // Bindings that took over a value of the arena use it too.
    let mut linked = second.bind().unwrap();
    linked.import(x, last.export(y).unwrap()).unwrap();
    linked.write(w, &ones()).unwrap();
    let all = Arc::new(Mutex::new((last, linked)));
    let (seen, plan, shared) = (Arc::new(Mutex::new(0)), second.clone(), all.clone());
    let count = seen.clone();
    *device.0.lock().unwrap() = Some(Box::new(move || {
        let (last, linked) = &mut *shared.lock().unwrap();
        refused(plan.execute(last, &Stream::default()));
        refused(plan.execute(linked, &Stream::default()));
        refused(last.read(y));
        refused(last.write(w, &ones()));
        refused(last.write_bytes(w, &[0; 8 * N]));
        refused(last.write_part(w, &[1], &[0; 8]));
        *count.lock().unwrap() += 1;
    }));
    first.execute(&mut one, &Stream::default()).unwrap();
    assert!(*seen.lock().unwrap() > 0);
    // What was refused changed nothing, and nothing stays in use.
    let (last, linked) = &mut *all.lock().unwrap();
    second.execute(last, &Stream::default()).unwrap();
    second.execute(linked, &Stream::default()).unwrap();
    let want = 1f64.exp().exp();
    for (value, want) in [(last.read(y).unwrap(), want), (linked.read(y).unwrap(), want.exp())] {
        assert!(value.to_vec::<f64>().iter().all(|v| (v / want - 1.0).abs() < 1e-9), "{value:?}");
    }
}

/// From several threads: each run is complete or refused.
#[test]
fn s10_2_threads_that_use_one_arena_are_refused_or_alone() {
    let (first, second, mut bound) = stages(&Arc::new(Between::default()));
    let last = bound.pop().unwrap();
    let all = [(first, Mutex::new(bound.pop().unwrap())), (second, Mutex::new(last))];
    std::thread::scope(|s| {
        for (plan, bindings) in &all {
            s.spawn(move || {
                for _ in 0..2000 {
                    let mut b = bindings.lock().unwrap();
                    match plan.execute(&mut b, &Stream::default()) {
                        Ok(()) => (),
                        Err(e) => assert!(e.to_string().contains("in use"), "{e}"),
                    }
                }
            });
        }
    });
    for (plan, bindings) in &all {
        plan.execute(&mut bindings.lock().unwrap(), &Stream::default()).unwrap();
    }
}

/// Backward reads the inputs that forward read, also one that was linked after the bindings were made.
#[test]
fn s14_gradients_of_linked_inputs() {
    let backend = Backend::cpu(1);
    let program = program();
    let (x, w, y) = (program.inputs()[0], program.params()[0], program.outputs()[0]);
    let source_plan = Plan::new(&program, &backend).unwrap();
    let mut source = source_plan.bind().unwrap();
    source.write(x, &ones()).unwrap();
    source.write(w, &ones()).unwrap();
    source_plan.execute(&mut source, &Stream::default()).unwrap();
    let backward = autograd::build_backward(&program, &BackwardOptions::default()).unwrap();
    let plan = autograd::plan_backward(&backward, &backend).unwrap();
    let mut ad = plan.bind().unwrap();
    ad.values_mut().write(x, &ones()).unwrap();
    ad.values_mut().write(w, &ones()).unwrap();
    ad.values_mut().import(x, source.export(y).unwrap()).unwrap();
    ad.write_cotangent(y, &ones()).unwrap();
    plan.forward(&mut ad, &Stream::default()).unwrap();
    plan.backward(&mut ad, &Stream::default()).unwrap();
    // d/dw exp(w x) = x exp(w x) with x = e.
    let want = 1f64.exp() * 1f64.exp().exp();
    let got = ad.read_gradient(w).unwrap().to_vec::<f64>();
    assert!(got.iter().all(|g| (g / want - 1.0).abs() < 1e-9), "{got:?} {want}");
}
