//! Ragged batches: attention over packed sequences, and an encoder against PyTorch padded and masked.

#[path = "../examples/ragged/encoder.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with an example and the benchmark")]
mod encoder;
mod support;

use encoder::{Sizes, encoder, values};
use serde_json::Value;
use std::sync::Arc;
use support::{Rng, close};
use tensorloom_vsla::autograd::{self, BackwardOptions};
use tensorloom_vsla::{Backend, Bindings, DType, Numerics, Plan, Program, ProgramBuilder, Stream, Tensor};

fn fill(program: &Program, bindings: &mut Bindings) {
    for (k, v) in program.inputs().iter().chain(program.params()).enumerate() {
        let shape = &program.signature(*v).shape;
        bindings.write(*v, &Tensor::from_slice(shape, &values(k, shape)).unwrap()).unwrap();
    }
}

#[test]
fn an_encoder_without_padding_equals_pytorch_padded_and_masked() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/vsla/ragged.json");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let size = |key: &str| golden[key].as_u64().unwrap() as usize;
    let sizes = Sizes { width: size("width"), heads: size("heads"), hidden: size("hidden"), layers: size("layers") };
    let lengths: Vec<usize> =
        golden["lengths"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    let program = Arc::new(encoder(&sizes, &lengths).unwrap());
    let plan = Plan::new(&program, &Backend::cpu(2)).unwrap();
    let mut bindings = plan.bind().unwrap();
    fill(&program, &mut bindings);
    plan.execute(&mut bindings, &Stream::default()).unwrap();
    let out = bindings.read(program.outputs()[0]).unwrap().to_vec::<f64>();
    let expected = golden["out"].as_array().unwrap();
    assert_eq!(out.len(), expected.len());
    for (i, (x, y)) in out.iter().zip(expected).enumerate() {
        assert!(close(*x, y.as_f64().unwrap(), 2e-5, 2e-5), "element {i}: {x} {y}");
    }
}

/// Long enough that blocks of queries lie inside sequences, across them, and at the end.
const LENGTHS: [usize; 12] = [3, 150, 1, 1, 0, 70, 16, 200, 5, 64, 33, 2];

#[test]
fn packed_attention_equals_each_sequence_alone() {
    let mut rng = Rng::fresh("packed");
    let (tokens, width): (usize, usize) = (LENGTHS.iter().sum(), 24);
    for dtype in [DType::F32, DType::BF16, DType::F64] {
        let [q, k, v] = [(); 3].map(|()| rng.tensor(dtype, &[tokens, width]));
        let packed = q.attention(&k, &v, 3, &LENGTHS).unwrap();
        let mut at = 0;
        for n in LENGTHS {
            let part = |t: &Tensor| t.slice(&[at, 0], &[at + n, width]).unwrap();
            let alone = part(&q).attention(&part(&k), &part(&v), 3, &[n]).unwrap();
            let eps = if dtype == DType::BF16 { 2e-2 } else { 1e-5 };
            for (x, y) in part(&packed).to_vec::<f64>().into_iter().zip(alone.to_vec::<f64>()) {
                assert!(close(x, y, eps, eps), "{dtype}, sequence of {n} at {at}: {x} {y}");
            }
            at += n;
        }
    }
}

/// The claimed form in f32, forward and backward, against the inlined one in f64.
#[test]
fn gradients_of_packed_attention_equal_those_in_f64() {
    let (tokens, width): (usize, usize) = (LENGTHS.iter().sum(), 8);
    let gradients = |wide: bool| -> Vec<Vec<f64>> {
        let mut b = ProgramBuilder::new();
        b.numerics(Numerics { reduced_precision_products: !wide, ..Numerics::default() });
        let p: Vec<_> = ["q", "k", "v"].iter().map(|n| b.param(n, DType::F32, &[tokens, width]).unwrap()).collect();
        let y = b.attention(p[0], p[1], p[2], 2, &LENGTHS).unwrap();
        b.output(y).unwrap();
        let program = Arc::new(b.build().unwrap());
        let back = autograd::build_backward(&program, &BackwardOptions::default()).unwrap();
        let plan = autograd::plan_backward(&back, &Backend::cpu(2)).unwrap();
        let mut bound = plan.bind().unwrap();
        let mut rng = Rng(5);
        let shape = [tokens, width];
        p.iter().for_each(|v| bound.values_mut().write(*v, &rng.tensor(DType::F32, &shape)).unwrap());
        bound.write_cotangent(y, &rng.tensor(DType::F32, &shape)).unwrap();
        autograd::execute_backward_plan(&plan, &mut bound, &Stream::default()).unwrap();
        p.iter().map(|v| bound.read_gradient(*v).unwrap().to_vec::<f64>()).collect()
    };
    for (i, (a, b)) in gradients(false).iter().zip(gradients(true)).enumerate() {
        assert_eq!(a.len(), b.len());
        assert!(b.iter().any(|x| x.abs() > 1e-3), "gradient {i} is nothing");
        for (x, y) in a.iter().zip(&b) {
            assert!(close(*x, *y, 2e-5, 2e-5), "gradient {i}: {x} {y}");
        }
    }
}

#[test]
fn attention_says_what_does_not_fit() {
    let t = |s: &[usize]| Tensor::zeros(DType::F32, s).unwrap();
    let x = t(&[5, 6]);
    for (k, heads, lengths) in [
        (t(&[5, 6]), 0, &[5][..]),
        (t(&[5, 6]), 4, &[5]),
        (t(&[5, 6]), 2, &[4]),
        (t(&[5, 6]), 2, &[usize::MAX, 6]),
        (t(&[4, 6]), 2, &[5]),
        (t(&[5]), 1, &[5]),
    ] {
        let e = x.attention(&k, &x, heads, lengths).unwrap_err();
        assert_eq!(e.code(), tensorloom_vsla::ErrorCode::InvalidShape, "{e}");
    }
    assert_eq!(t(&[0, 6]).attention(&t(&[0, 6]), &t(&[0, 6]), 2, &[]).unwrap().shape(), [0, 6]);
}
