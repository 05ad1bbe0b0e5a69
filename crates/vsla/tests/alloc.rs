//! Nothing is allocated while programs run: forward, backward, or through the router (§2, §16).

use std::sync::{Arc, Mutex};
use tensorloom_vsla::autograd::{self, BackwardOptions};
use tensorloom_vsla::{
    Backend, ConvAlgorithm, DType, Device, Event, Memory, Model, Numerics, Plan, ProgramBuilder, Router, Stream, Tensor,
};
use testing::counting_allocator::{CountingAllocator, calls};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[track_caller]
fn quiet(what: &str, mut f: impl FnMut()) {
    f();
    let before = calls();
    for _ in 0..20 {
        f();
    }
    assert_eq!(calls() - before, 0, "{what} allocated or freed");
}

/// Every op of the crate in one program of model A.
fn everything(dtype: DType, path: ConvAlgorithm) -> tensorloom_vsla::Result<tensorloom_vsla::Program> {
    let mut b = ProgramBuilder::new();
    b.numerics(Numerics { conv: Some(path), ..Numerics::default() });
    let x = b.input("x", dtype, &[6, 90])?;
    let y = b.input("y", dtype, &[4, 100])?;
    let w = b.param("w", dtype, &[100, 100])?;
    let (g, h) = (b.param("g", dtype, &[100])?, b.param("h", dtype, &[100])?);
    let s = b.param("s", dtype, &[1])?;
    let c = b.conv1d(x, y)?;
    let c = b.slice(c, &[0, 0], &[6, 100])?;
    let n = b.layernorm(c, g, h, 1e-3)?;
    let n = b.rmsnorm(n, g, 1e-3)?;
    let m = b.matmul(n, w)?;
    let parts = [b.relu(m)?, b.gelu(m)?, b.sigmoid(m)?, b.tanh(m)?, b.softmax(m)?];
    let stack = b.stack(&parts)?;
    let windows = b.window(&parts, 2, 2)?;
    let both = b.add(windows[0], windows[1])?;
    let wide = b.add(stack, both)?;
    let wide = b.dropout(wide, 0.3)?;
    let wide = b.mul_scalar(wide, 0.1)?;
    let wide = b.scale_by(wide, s)?;
    let e = b.exp(wide)?;
    let l = b.log(e)?;
    let t = b.transpose(l, &[1, 0, 2])?;
    let t = b.reshape(t, &[30, 100])?;
    let t = b.gather(t, &[3, 3, 29, 0, 50])?;
    let t = b.scatter(t, &[1, 0, 1, 6, 2], 8)?;
    let t = b.sub(t, x)?;
    let t = b.mask(t, y)?;
    let t = b.hadamard(t, x)?;
    let t = b.mean(t, 0)?;
    let t = b.repeat(t, 2)?;
    let t = b.sum(t, 1)?;
    let t = b.sum(t, 0)?;
    b.output(t)?;
    b.build()
}

fn s2_execute_never_allocates() {
    let before = calls();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(calls() - before, 2, "the allocator counts");
    let backend = Backend::cpu(2);
    let stream = Stream::new(&backend);
    for dtype in tensorloom_vsla::shape::DTYPES {
        for path in [ConvAlgorithm::Direct, ConvAlgorithm::Fft] {
            let program = Arc::new(everything(dtype, path).unwrap());
            let plan = Plan::new(&program, &backend).unwrap();
            let mut bindings = plan.bind().unwrap();
            let x = Tensor::zeros(dtype, &[5, 80]).unwrap();
            let mut out = vec![0; dtype.size()];
            quiet(&format!("forward {dtype} {path:?}\n{plan}"), || {
                bindings.write(program.inputs()[0], &x).unwrap();
                bindings.seed(3).unwrap();
                plan.execute(&mut bindings, &stream).unwrap();
                bindings.read_bytes(program.outputs()[0], &mut out).unwrap();
            });
            let back = autograd::build_backward(&program, &BackwardOptions { inputs: true }).unwrap();
            let plan = autograd::plan_backward(&back, &backend).unwrap();
            let mut bound = plan.bind().unwrap();
            let one = Tensor::zeros(dtype, &[1]).unwrap();
            let mut grad = vec![0; 100 * 100 * dtype.size()];
            quiet(&format!("backward {dtype} {path:?}\n{plan}"), || {
                bound.values_mut().write(program.inputs()[0], &x).unwrap();
                bound.write_cotangent(program.outputs()[0], &one).unwrap();
                autograd::execute_backward_plan(&plan, &mut bound, &stream).unwrap();
                bound.read_gradient_bytes(program.params()[0], &mut grad).unwrap();
            });
        }
    }
    kronecker(&backend);
    profiles(&backend);
    placed(&backend);
}

/// In a block of the caller's, on a stream with a thread of its own, and through a device: neither runs nor what is around
/// them allocate.
fn placed(backend: &Backend) {
    struct Plain;
    impl Device for Plain {}
    let program = Arc::new(everything(DType::F32, ConvAlgorithm::Fft).unwrap());
    for backend in [backend.clone(), backend.with_device(Arc::new(Plain))] {
        let plan = Plan::new(&program, &backend).unwrap();
        let memory = Memory::new(plan.memory_bytes(false).unwrap(), &backend).unwrap();
        let bound = Arc::new(Mutex::new(plan.bind_in(memory, None).unwrap()));
        let stream = Stream::asynchronous(&backend).unwrap();
        quiet("a block and a stream", || {
            stream.submit(&plan, &bound).unwrap();
            stream.submit(&plan, &bound).unwrap();
            stream.synchronize().unwrap();
        });
        let back = autograd::build_backward(&program, &BackwardOptions { inputs: true }).unwrap();
        let plan = autograd::plan_backward(&back, &backend).unwrap();
        let memory = Memory::new(plan.memory_bytes(false).unwrap(), &backend).unwrap();
        let bound = Arc::new(Mutex::new(plan.bind_in(memory, None).unwrap()));
        let event = Event::new();
        quiet("backward in a block", || {
            stream.submit_backward(&plan, &bound).unwrap();
            stream.record(&event).unwrap();
            event.synchronize().unwrap();
        });
    }
    // The first run allocates as little as the others: nothing is left for it to take.
    let plan = Plan::new(&Arc::new(everything(DType::F32, ConvAlgorithm::Direct).unwrap()), &Backend::cpu(1)).unwrap();
    let mut bound = plan.bind().unwrap();
    let before = calls();
    plan.execute(&mut bound, &Stream::default()).unwrap();
    assert_eq!(calls() - before, 0, "the first run allocated");
}

fn kronecker(backend: &Backend) {
    let mut b = ProgramBuilder::new();
    b.model(Model::B);
    let x = b.param("x", DType::F64, &[3, 4]).unwrap();
    let y = b.param("y", DType::F64, &[5, 2]).unwrap();
    let k = b.kronecker(x, y).unwrap();
    b.output(k).unwrap();
    let program = Arc::new(b.build().unwrap());
    let back = autograd::build_backward(&program, &BackwardOptions::default()).unwrap();
    let plan = autograd::plan_backward(&back, backend).unwrap();
    let mut bound = plan.bind().unwrap();
    quiet("kronecker", || autograd::execute_backward_plan(&plan, &mut bound, &Stream::default()).unwrap());
}

/// §16: choosing another bucket plans and allocates nothing.
fn profiles(backend: &Backend) {
    let mut router = Router::compile(&[16, 64, 256], backend, |n| {
        let mut b = ProgramBuilder::new();
        let x = b.input("x", DType::F32, &[n, 8])?;
        let w = b.param("w", DType::F32, &[8, 8])?;
        let y = b.matmul(x, w)?;
        let y = b.softmax(y)?;
        b.output(y)?;
        b.build()
    })
    .unwrap();
    let inputs: Vec<Tensor> =
        [3, 64, 200, 16, 17].iter().map(|n| Tensor::zeros(DType::F32, &[*n, 8]).unwrap()).collect();
    quiet("routing", || {
        for t in &inputs {
            router.run(&[t], &Stream::default()).unwrap();
        }
    });
}

/// No test harness: its threads allocate when they like, and the count is of the whole process.
fn main() {
    s2_execute_never_allocates();
    println!("1 passed, 0 failed");
}
