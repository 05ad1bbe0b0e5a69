//! Compares derivatives of ONNX's node tests with finite differences and with PyTorch, in f64.

use super::support;
use cpu::Cpu;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar};
use std::collections::BTreeMap;
use tensorloom_onnx::ImportOptions;
use testing::Rng;
use testing::check::{GradOutcome, check_grads};

/// Perturbs the tests' numbers, many of which are at points where a function is not differentiable: 0, integers, ties.
fn beside(x: &Literal, rng: &mut Rng) -> Literal {
    let ty = x.ty().clone();
    match ty.dtype {
        DType::F64 => {
            Literal::from_fn(ty, |i| Scalar::from_f64(DType::F64, x.get(i).to_f64() + rng.uniform(0.01, 0.04)))
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
        let options = ImportOptions { float_dtype: Some(DType::F64), ..ImportOptions::default() };
        let Ok(ready) = support::import(case, options) else { continue };
        let graph = &ready.model.graph;
        let smooth = graph.output_types().iter().all(|t| t.dtype == DType::F64);
        let small = ready.inputs.iter().map(|x| x.ty().numel()).sum::<usize>() <= 512;
        let empty = ready.inputs.iter().any(|x| x.ty().numel() == 0);
        if !smooth || !small || empty || !ready.inputs.iter().any(|x| x.ty().dtype == DType::F64) {
            continue;
        }
        let inputs: Vec<Literal> = ready.inputs.iter().map(|x| beside(x, &mut rng)).collect();
        match check_grads(graph, &support::arguments(&ready.model, &inputs), &mut rng) {
            Ok(GradOutcome::Agrees) => agree += 1,
            Ok(GradOutcome::Inconclusive) => open += 1,
            Err(e) => wrong.push(format!("{}: {}", case.name, e.lines().next().unwrap_or_default())),
        }
    }
    println!("{agree} agree, {open} lie on kinks");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(agree >= 100, "{agree} agree");
}

/// The same shift as in `golden/onnx/gradients.py`.
fn shifted(x: &Literal) -> Literal {
    let ty = x.ty().clone();
    let by = |i: usize| 0.01 + 0.03 * ((i as f64 + 1.0) * 0.618_033_988_749_894_9).fract();
    match ty.dtype {
        DType::F64 => Literal::from_fn(ty, |i| Scalar::from_f64(DType::F64, x.get(i).to_f64() + by(i))),
        _ => x.clone(),
    }
}

/// The sum of all float outputs, weighted by cosines.
fn weighted(graph: &Graph) -> ir::Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<_> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.inline(graph, &args)?;
    let mut sum = None;
    for (k, out) in outs.into_iter().enumerate() {
        let ty = b.ty(out);
        if ty.dtype != DType::F64 {
            continue;
        }
        let weight = |i: usize| Scalar::from_f64(DType::F64, (i as f64 * 0.7 + k as f64).cos());
        let c = b.constant(Literal::from_fn(ty, weight))?;
        let p = b.mul(out, c)?;
        let total = b.sum_all(p)?;
        sum = b.add_optional(sum, Some(total))?;
    }
    Ok(b.finish(sum.as_slice()))
}

#[test]
fn gradients_of_node_tests_are_those_of_torch() {
    let text = std::fs::read_to_string(support::golden("gradients.txt")).expect("golden");
    let mut wanted: BTreeMap<&str, Vec<(&str, Vec<f64>)>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (case, input) = (words.next().expect("a case"), words.next().expect("an input"));
        let values = words.map(|w| w.parse().expect("a number")).collect();
        wanted.entry(case).or_default().push((input, values));
    }
    let (cpu, mut compared, mut wrong) = (Cpu::new(2), 0, Vec::new());
    for case in support::read(&support::golden("nodes.bin.zz")).iter() {
        let Some(wanted) = wanted.get(case.name.as_str()) else { continue };
        let mut check = || -> Result<(), String> {
            let options = ImportOptions { float_dtype: Some(DType::F64), ..ImportOptions::default() };
            let ready = support::import(case, options)?;
            let place = |name: &str| ready.model.inputs.iter().position(|port| port.name == name);
            // Inputs that were given by value during import have no gradient.
            let found: Vec<(usize, &Vec<f64>)> = wanted.iter().filter_map(|(n, g)| Some((place(n)?, g))).collect();
            let wrt: Vec<usize> = found.iter().map(|(i, _)| *i).collect();
            let graph =
                weighted(&ready.model.graph).and_then(|g| transform::grad(&g, &wrt)).map_err(|e| e.to_string())?;
            let inputs: Vec<Literal> = ready.inputs.iter().map(shifted).collect();
            let got = support::run(&graph, &support::arguments(&ready.model, &inputs), &cpu)?;
            for ((i, want), got) in found.iter().zip(&got) {
                let want = Literal::from_fn(got.ty().clone(), |k| Scalar::from_f64(DType::F64, want[k]));
                support::close(got, &want, 1e-5, 1e-7).map_err(|e| format!("input {i}: {e}"))?;
            }
            compared += usize::from(!found.is_empty());
            Ok(())
        };
        if let Err(e) = check() {
            wrong.push(format!("{}: {e}", case.name));
        }
    }
    println!("{compared} cases agree");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 150, "{compared} agree");
}
