//! Every row of the VJP table (§9.4) against finite differences, checkpoints, sharing, planned gradients.

#[path = "../examples/ragged/encoder.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with examples and the benchmark")]
mod encoder;
mod support;

use std::sync::Arc;
use support::{Rng, close};
use tensorloom_vsla::autograd::{self, BackwardOptions};
use tensorloom_vsla::{
    Backend, ConvAlgorithm, DType, GeluForm, Model, Numerics, Op, Program, ProgramBuilder, Stream, Tensor, ValueId,
};

type Build = fn(&mut ProgramBuilder, &[ValueId]) -> tensorloom_vsla::Result<ValueId>;

/// A function of parameters of these shapes, in f64.
fn program(model: Model, numerics: Numerics, shapes: &[&[usize]], build: Build) -> (Arc<Program>, ValueId) {
    let mut b = ProgramBuilder::new();
    b.model(model).numerics(numerics);
    let args: Vec<ValueId> =
        (shapes.iter().enumerate()).map(|(i, s)| b.param(&format!("p{i}"), DType::F64, s).unwrap()).collect();
    let y = build(&mut b, &args).unwrap();
    b.output(y).unwrap();
    (Arc::new(b.build().unwrap()), y)
}

/// Compares gradients of `<ct, f(params)>` with central differences.
fn check(name: &str, program: &Arc<Program>, y: ValueId, rng: &mut Rng, positive: bool, skip: &[usize]) {
    let backend = Backend::global();
    let stream = Stream::default();
    let backward = autograd::build_backward(program, &BackwardOptions::default()).unwrap();
    let plan = autograd::plan_backward(&backward, backend).unwrap();
    assert!(plan.overlap().is_none(), "{name}: {:?}", plan.overlap());
    let mut bound = plan.bind().unwrap();
    let params: Vec<ValueId> = program.params().to_vec();
    let mut data: Vec<Vec<f64>> = Vec::new();
    for p in &params {
        let n = program.signature(*p).shape.iter().product();
        let x = rng.floats(n).into_iter().map(|x| if positive { 1.5 + x } else { x + 0.07f64.copysign(x) });
        data.push(x.collect());
    }
    let sig = |v: ValueId| program.signature(v).clone();
    let tensor = |v: ValueId, x: &[f64]| {
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        Tensor::from_bytes(sig(v), &bytes).unwrap()
    };
    let ct = rng.floats(sig(y).shape.iter().product());
    let random = program.is_random();
    for (p, x) in params.iter().zip(&data) {
        bound.values_mut().write(*p, &tensor(*p, x)).unwrap();
    }
    if random {
        bound.values_mut().seed(11).unwrap();
    }
    bound.write_cotangent(y, &tensor(y, &ct)).unwrap();
    autograd::execute_backward_plan(&plan, &mut bound, &stream).unwrap();

    let forward = tensorloom_vsla::Plan::new(program, backend).unwrap();
    let mut values = forward.bind().unwrap();
    if random {
        values.seed(11).unwrap();
    }
    let mut run = |data: &[Vec<f64>]| -> Vec<f64> {
        for (p, x) in params.iter().zip(data) {
            values.write(*p, &tensor(*p, x)).unwrap();
        }
        forward.execute(&mut values, &stream).unwrap();
        values.read(y).unwrap().to_vec()
    };
    let kept = bound.values().read(y).unwrap().to_vec::<f64>();
    assert_eq!(kept, run(&data), "{name}: the forward half gives the program's values");
    let mut loss = |data: &[Vec<f64>]| -> f64 { run(data).iter().zip(&ct).map(|(a, b)| a * b).sum() };
    for (i, p) in params.iter().enumerate() {
        let got = bound.read_gradient(*p).unwrap().to_vec::<f64>();
        for j in 0..data[i].len() {
            let at = data[i][j];
            let h = 1e-5;
            data[i][j] = at + h;
            let up = loss(&data);
            data[i][j] = at - h;
            let down = loss(&data);
            data[i][j] = at;
            let expected = if skip.contains(&i) { 0.0 } else { (up - down) / (2.0 * h) };
            assert!(close(got[j], expected, 1e-7, 1e-6), "{name} p{i}[{j}]: {} {expected}", got[j]);
        }
    }
}

const V: &[usize] = &[5];
const W: &[usize] = &[3];
const M: &[usize] = &[2, 3];

#[test]
fn s9_4_every_row_of_the_vjp_table() {
    let mut rng = Rng::fresh("vjp");
    let rows: Vec<(&str, Vec<&[usize]>, Build)> = vec![
        ("add", vec![V, W], |b, p| b.add(p[0], p[1])),
        ("sub", vec![W, V], |b, p| b.sub(p[0], p[1])),
        ("hadamard", vec![V, W], |b, p| b.hadamard(p[0], p[1])),
        ("hadamard of one", vec![V], |b, p| b.hadamard(p[0], p[0])),
        ("mul_scalar", vec![V], |b, p| b.mul_scalar(p[0], -2.5)),
        ("scale_by", vec![M, &[1]], |b, p| b.scale_by(p[0], p[1])),
        ("exp", vec![V], |b, p| b.exp(p[0])),
        ("relu", vec![&[9]], |b, p| b.relu(p[0])),
        ("sigmoid", vec![V], |b, p| b.sigmoid(p[0])),
        ("tanh", vec![V], |b, p| b.tanh(p[0])),
        ("gelu", vec![V], |b, p| b.gelu(p[0])),
        ("gelu tanh", vec![V], |b, p| Ok(b.op(Op::Gelu(GeluForm::Tanh), p)?[0])),
        ("dropout", vec![&[40]], |b, p| b.dropout(p[0], 0.4)),
        ("sum", vec![&[2, 3, 2]], |b, p| b.sum(p[0], 1)),
        ("sum of a vector", vec![V], |b, p| b.sum(p[0], 0)),
        ("mean", vec![M], |b, p| b.mean(p[0], -1)),
        ("layernorm", vec![M, W, W], |b, p| b.layernorm(p[0], p[1], p[2], 1e-3)),
        ("rmsnorm", vec![M, W], |b, p| b.rmsnorm(p[0], p[1], 1e-3)),
        ("matmul", vec![M, &[3, 4]], |b, p| b.matmul(p[0], p[1])),
        ("matmul of other sizes", vec![M, &[2, 4]], |b, p| b.matmul(p[0], p[1])),
        ("matmul of batches", vec![&[2, 2, 3], &[1, 3, 2]], |b, p| b.matmul(p[0], p[1])),
        ("matmul by one matrix", vec![&[2, 2, 3], &[3, 2]], |b, p| b.matmul(p[0], p[1])),
        ("attention", vec![&[5, 4], &[5, 4], &[5, 4]], |b, p| b.attention(p[0], p[1], p[2], 2, &[2, 0, 3])),
        ("attention of one", vec![&[4, 3]], |b, p| b.attention(p[0], p[0], p[0], 1, &[1, 3])),
        ("softmax", vec![M], |b, p| b.softmax(p[0])),
        ("conv1d", vec![V, W], |b, p| b.conv1d(p[0], p[1])),
        ("conv1d of batches", vec![&[2, 6], &[3, 7]], |b, p| b.conv1d(p[0], p[1])),
        ("conv1d of one", vec![V], |b, p| b.conv1d(p[0], p[0])),
        ("stack", vec![V, W, V], |b, p| b.stack(p)),
        ("window", vec![V, W, V, W], |b, p| {
            let w = b.window(p, 2, 1)?;
            let first = b.add(w[0], w[1])?;
            b.hadamard(first, w[2])
        }),
        ("repeat", vec![V], |b, p| b.repeat(p[0], 3)),
        ("reshape", vec![M], |b, p| b.reshape(p[0], &[3, 2])),
        ("transpose", vec![M], |b, p| b.transpose(p[0], &[1, 0])),
        ("slice", vec![M], |b, p| b.slice(p[0], &[1, 0], &[3, 2])),
        ("gather", vec![M], |b, p| b.gather(p[0], &[1, 0, 1, 1, 7])),
        ("scatter", vec![M], |b, p| b.scatter(p[0], &[2, 2], 4)),
    ];
    for (name, shapes, build) in rows {
        let (p, y) = program(Model::A, Numerics::default(), &shapes, build);
        check(name, &p, y, &mut rng, false, &[]);
    }
    let (p, y) = program(Model::A, Numerics::default(), &[V], |b, p| b.log(p[0]));
    check("log", &p, y, &mut rng, true, &[]);
    let (p, y) = program(Model::A, Numerics::default(), &[V, W], |b, p| b.mask(p[0], p[1]));
    check("mask", &p, y, &mut rng, false, &[1]);
    for shapes in [vec![W, V], vec![M, &[2usize, 2][..]]] {
        let (p, y) = program(Model::B, Numerics::default(), &shapes, |b, p| b.kronecker(p[0], p[1]));
        check("kronecker", &p, y, &mut rng, false, &[]);
    }
    for path in [ConvAlgorithm::Direct, ConvAlgorithm::Fft] {
        for shapes in [[&[9usize][..], &[12]], [&[1], &[1]], [&[70], &[5]]] {
            let numerics = Numerics { conv: Some(path), ..Numerics::default() };
            let (p, y) = program(Model::A, numerics, &shapes, |b, p| b.conv1d(p[0], p[1]));
            check("conv1d by path", &p, y, &mut rng, false, &[]);
        }
    }
}

/// A random expression of all elementwise and structural ops over a few parameters.
fn random(rng: &mut Rng, checkpoints: bool) -> (Arc<Program>, ValueId) {
    let mut b = ProgramBuilder::new();
    let mut pool: Vec<ValueId> =
        (0..3).map(|i| b.param(&format!("p{i}"), DType::F64, &[1 + rng.below(3), 1 + rng.below(4)]).unwrap()).collect();
    for _ in 0..6 {
        let (x, y) = (pool[rng.below(pool.len())], pool[rng.below(pool.len())]);
        let v = match rng.below(13) {
            0 => b.add(x, y),
            1 => b.sub(x, y),
            2 => b.hadamard(x, y),
            3 => b.conv1d(x, y),
            4 => b.matmul(x, y),
            5 => b.tanh(x),
            6 => b.sigmoid(x),
            7 => b.softmax(x),
            8 => b.mul_scalar(x, 0.7),
            9 => b.transpose(x, &[1, 0]),
            10 => b.gather(x, &[1, 0, 1]),
            11 => b.gelu(x),
            _ => {
                let s = b.sum(x, 0).unwrap();
                b.repeat(s, 2)
            }
        };
        let v = v.unwrap();
        if checkpoints && rng.below(2) == 0 {
            b.checkpoint(v).unwrap();
        }
        pool.push(v);
    }
    let last = *pool.last().unwrap();
    let y = b.add(last, pool[rng.below(pool.len())]).unwrap();
    b.output(y).unwrap();
    (Arc::new(b.build().unwrap()), y)
}

#[test]
fn s16_finite_differences_on_random_graphs() {
    let mut rng = Rng::fresh("random gradients");
    for i in 0..120 {
        let (p, y) = random(&mut rng, i % 2 == 1);
        check(&format!("graph {i}\n{p}"), &p, y, &mut rng, false, &[]);
    }
}

/// A deep chain whose values are all needed by backward.
fn chain(marks: &[usize]) -> Arc<Program> {
    let mut b = ProgramBuilder::new();
    b.numerics(Numerics { reduced_precision_products: true, ..Numerics::default() });
    let x = b.input("x", DType::F32, &[64, 64]).unwrap();
    let mut h = x;
    for i in 0..8 {
        let w = b.param(&format!("w{i}"), DType::F32, &[64, 64]).unwrap();
        let z = b.matmul(h, w).unwrap();
        h = b.tanh(z).unwrap();
        if marks.contains(&i) {
            b.checkpoint(h).unwrap();
        }
    }
    let s = b.sum(h, 0).unwrap();
    let s = b.sum(s, 0).unwrap();
    b.output(s).unwrap();
    Arc::new(b.build().unwrap())
}

#[test]
fn s9_2_checkpoints_keep_less_and_give_the_same_gradients() {
    let run = |p: &Arc<Program>| {
        let back = autograd::build_backward(p, &BackwardOptions { inputs: true }).unwrap();
        let plan = autograd::plan_backward(&back, Backend::global()).unwrap();
        let mut bound = plan.bind().unwrap();
        let mut rng = Rng(9);
        for v in p.inputs().iter().chain(p.params()) {
            let t = rng.tensor(DType::F32, &[64, 64]).mul_scalar(0.2).unwrap();
            bound.values_mut().write(*v, &t).unwrap();
        }
        bound.write_cotangent(p.outputs()[0], &Tensor::vector(&[1.0f32])).unwrap();
        autograd::execute_backward_plan(&plan, &mut bound, &Stream::default()).unwrap();
        let grads: Vec<Tensor> = back.wrt().iter().map(|v| bound.read_gradient(*v).unwrap()).collect();
        (back.kept_bytes(), grads)
    };
    let (all, g_all) = run(&chain(&[]));
    let (some, g_some) = run(&chain(&[3]));
    assert!(some < all / 4, "{some} of {all}");
    assert!(some >= 64 * 64 * 4, "the marked value is kept");
    for (a, b) in g_all.iter().zip(&g_some) {
        for (x, y) in a.to_vec::<f64>().into_iter().zip(b.to_vec::<f64>()) {
            assert!(close(x, y, 1e-6, 1e-3), "{x} {y}");
        }
    }
}

#[test]
fn gradients_are_planned_by_liveness() {
    let p = chain(&[]);
    let back = autograd::build_backward(&p, &BackwardOptions::default()).unwrap();
    let plan = autograd::plan_backward(&back, Backend::global()).unwrap();
    let inner: Vec<_> = plan.intervals().iter().filter(|i| i.name.starts_with('t')).collect();
    let without_reuse: usize = inner.iter().map(|i| i.bytes).sum();
    let grads = plan.arena_sizes()[1][tensorloom_vsla::ArenaClass::Grads as usize];
    let params = 8 * 64 * 64 * 4;
    // A cotangent between each two of the eight layers.
    assert!(inner.len() >= 7, "{plan}");
    assert!(grads - params <= 3 * 64 * 64 * 4 && grads - params < without_reuse, "{grads} {without_reuse}\n{plan}");
}

#[test]
fn s9_3_the_backward_plan_shares_parameters_with_the_forward_plan() {
    let p = chain(&[]);
    let forward = tensorloom_vsla::Plan::new(&p, Backend::global()).unwrap();
    let mut values = forward.bind().unwrap();
    let back = autograd::build_backward(&p, &BackwardOptions::default()).unwrap();
    let plan = autograd::plan_backward(&back, Backend::global()).unwrap();
    let bound = plan.bind_sharing(&values).unwrap();
    let t = Rng(4).tensor(DType::F32, &[64, 64]);
    values.write(p.params()[5], &t).unwrap();
    assert_eq!(bound.values().read(p.params()[5]).unwrap(), t);
}

#[test]
fn misuse_of_gradients_is_refused() {
    let p = chain(&[]);
    let back = autograd::build_backward(&p, &BackwardOptions::default()).unwrap();
    let plan = autograd::plan_backward(&back, Backend::global()).unwrap();
    let other = autograd::plan_backward(&back, Backend::global()).unwrap();
    let mut bound = plan.bind().unwrap();
    assert!(bound.read_gradient(p.inputs()[0]).is_err());
    assert!(bound.write_cotangent(p.params()[0], &Tensor::vector(&[1.0f32])).is_err());
    assert!(bound.write_cotangent(p.outputs()[0], &Tensor::vector(&[1.0f32, 2.0])).is_err());
    assert!(other.forward(&mut bound, &Stream::default()).is_err());
    let mut b = ProgramBuilder::new();
    let x = b.input("x", DType::F32, &[1]).unwrap();
    b.output(x).unwrap();
    let p = Arc::new(b.build().unwrap());
    assert!(autograd::build_backward(&p, &BackwardOptions::default()).is_err());
    assert!(autograd::build_backward(&p, &BackwardOptions { inputs: true }).is_ok());
}

/// §9.2 on a transformer: a mark after each layer, and backward computes a layer again when it comes to it. Had it all
/// layers at once, marks would save nothing.
#[test]
fn s9_2_checkpoints_between_layers_save_memory_in_backward_too() {
    let sizes = encoder::Sizes { width: 32, heads: 2, hidden: 64, layers: 8 };
    let backend = Backend::cpu(1);
    let bytes = |program: Program| {
        let back = autograd::build_backward(&Arc::new(program), &BackwardOptions::default()).unwrap();
        let plan = autograd::plan_backward(&back, &backend).unwrap();
        (back.kept_bytes(), plan.arena_sizes()[1][3])
    };
    let (kept, grads) = bytes(encoder::encoder(&sizes, &[256]).unwrap());
    let (marked, again) = bytes(encoder::checkpointed(&sizes, &[256]).unwrap());
    assert!(marked * 4 < kept, "{marked} of {kept}");
    assert!((marked + again) * 2 < kept + grads, "{marked} + {again}, without marks {kept} + {grads}");
}
