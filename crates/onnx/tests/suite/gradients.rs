//! Derivatives of ONNX's node tests against finite differences, in f64.

use super::support;
use ir::{DType, Literal, Scalar};
use onnx::Options;
use oracle::Rng;
use oracle::check::{Verdict, grads};

/// A little beside the tests' own numbers, many of which lie exactly where a function bends: at 0, at whole places, at ties.
fn beside(x: &Literal, rng: &mut Rng) -> Literal {
    let ty = x.ty().clone();
    match ty.dtype {
        DType::F64 => {
            Literal::from_fn(ty, |i| Scalar::from_f64(DType::F64, x.get(i).to_f64() + rng.between(0.01, 0.04)))
        }
        _ => x.clone(),
    }
}

#[test]
fn gradients_of_node_tests_agree_with_differences() {
    let cases = support::read(&support::golden("nodes.bin.zz"));
    let mut rng = Rng::new(0x0a11);
    let (mut agree, mut open, mut wrong) = (0, 0, Vec::new());
    for case in &cases {
        let options = Options { float: Some(DType::F64), ..Options::default() };
        let Ok(ready) = support::import(case, options) else { continue };
        let graph = &ready.model.graph;
        let smooth = graph.output_types().iter().all(|t| t.dtype == DType::F64);
        let small = ready.inputs.iter().map(|x| x.ty().numel()).sum::<usize>() <= 512;
        let empty = ready.inputs.iter().any(|x| x.ty().numel() == 0);
        if !smooth || !small || empty || !ready.inputs.iter().any(|x| x.ty().dtype == DType::F64) {
            continue;
        }
        let inputs: Vec<Literal> = ready.inputs.iter().map(|x| beside(x, &mut rng)).collect();
        match grads(graph, &support::arguments(&ready.model, &inputs), &mut rng) {
            Ok(Verdict::Agrees) => agree += 1,
            Ok(Verdict::Inconclusive) => open += 1,
            Err(e) => wrong.push(format!("{}: {}", case.name, e.lines().next().unwrap_or_default())),
        }
    }
    println!("{agree} agree, {open} lie on kinks");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(agree >= 100, "{agree} agree");
}
