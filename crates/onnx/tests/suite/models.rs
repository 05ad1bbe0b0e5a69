//! Small models exported by PyTorch (`golden/onnx/models.py`): equal results, differentiable,
//! trainable, and the same after our own export.

use super::support::{self, Case};
use cpu::Cpu;
use ir::{Builder, Graph, GraphBuilder, Literal, Scalar};
use prost::Message;
use std::collections::BTreeMap;
use tensorloom_onnx::proto::TensorProto;
use tensorloom_onnx::{ExportNames, ImportOptions};

fn cases() -> Vec<Case> {
    support::read(&support::golden("models.bin.zz"))
}

fn failures(cases: &[Case], check: impl Fn(&Case) -> Result<(), String>) {
    assert!(cases.len() >= 15, "{} models", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(|c| check(c).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn models_give_what_torch_gives() {
    let cpu = Cpu::new(2);
    failures(&cases(), |case| support::check(case, &cpu).map(|_| ()));
}

/// `Σ first output · cos(0), cos(1), …`.
fn weighted(graph: &Graph) -> ir::Result<Graph> {
    let mut b = Builder::new();
    let args: Vec<_> = graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.inline(graph, &args)?;
    let ty = b.ty(outs[0]);
    let c = b.constant(Literal::from_fn(ty.clone(), |i| Scalar::from_f64(ty.dtype, (i as f64).cos())))?;
    let p = b.mul(outs[0], c)?;
    let sum = b.sum_all(p)?;
    Ok(b.finish(&[sum]))
}

#[test]
fn gradients_of_models_are_those_of_torch() {
    let cpu = Cpu::new(2);
    let mut compared = 0;
    for case in cases().iter().filter(|c| !c.grads.is_empty()) {
        let ready = support::import(case, ImportOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let loss = weighted(&ready.model.graph).expect("a loss");
        let wrt: Vec<usize> = (0..ready.inputs.len()).filter(|&i| ready.inputs[i].ty().dtype.is_float()).collect();
        let graph = transform::grad(&loss, &wrt).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let got = support::run(&graph, &support::arguments(&ready.model, &ready.inputs), &cpu);
        let got = got.unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for (got, bytes) in got.iter().zip(&case.grads) {
            let want = TensorProto::decode(bytes.clone()).expect("a tensor");
            let (want, _) =
                tensorloom_onnx::tensor::literal(&want, &tensorloom_onnx::tensor::NoExternalData).expect("its data");
            support::close(got, &want, 1e-3, 1e-4).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            compared += 1;
        }
    }
    assert!(compared >= 8, "{compared} gradients");
}

#[test]
fn an_imported_model_trains() {
    let cpu = Cpu::new(2);
    let all = cases();
    let case = all.iter().find(|c| c.name == "encoder_dynamo").expect("the encoder");
    let ready = support::import(case, ImportOptions::default()).expect("imports");
    // Half the mean square of the outputs decreases with a gradient step of the parameters.
    let mut b = Builder::new();
    let args: Vec<_> = ready.model.graph.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.inline(&ready.model.graph, &args).expect("inlines");
    let s = b.mul(outs[0], outs[0]).expect("squares");
    let sum = b.sum_all(s).expect("sums");
    let loss = b.finish(&[sum]);
    let n = ready.inputs.len();
    let wrt: Vec<usize> = (0..ready.model.parameters.len())
        .filter(|&i| ready.model.parameters[i].1.ty().dtype.is_float())
        .map(|i| n + i)
        .collect();
    assert!(wrt.len() > 10, "{} parameters", wrt.len());
    let step = transform::value_and_grad(&loss, &wrt).expect("differentiates");
    let mut values = support::arguments(&ready.model, &ready.inputs);
    let mut losses = Vec::new();
    for _ in 0..4 {
        let outs = support::run(&step, &values, &cpu).expect("runs");
        losses.push(outs[0].get(0).to_f64());
        for (&i, g) in wrt.iter().zip(&outs[1..]) {
            let x = values[i].clone();
            values[i] = Literal::from_fn(x.ty().clone(), |k| {
                Scalar::from_f64(x.ty().dtype, x.get(k).to_f64() - 1e-3 * g.get(k).to_f64())
            });
        }
    }
    assert!(losses.windows(2).all(|w| w[1] < w[0]), "{losses:?}");
}

#[test]
fn models_print_and_go_out_again() {
    let cpu = Cpu::new(2);
    failures(&cases(), |case| {
        let ready = support::import(case, ImportOptions::default())?;
        testing::check::check_text_roundtrip(&ready.model.graph)?;
        let n = ready.inputs.len();
        let parameters: BTreeMap<usize, Literal> =
            ready.model.parameters.iter().enumerate().map(|(i, (_, x))| (n + i, x.clone())).collect();
        let names = ExportNames {
            inputs: (ready.model.inputs.iter().map(|p| &p.name))
                .chain(ready.model.parameters.iter().map(|(name, _)| name))
                .cloned()
                .collect(),
            outputs: ready.model.outputs.iter().map(|p| format!("{}_out", p.name)).collect(),
            parameters,
        };
        let bytes = tensorloom_onnx::export(&ready.model.graph, &names).map_err(|e| e.to_string())?;
        let again = tensorloom_onnx::import(&bytes, &ImportOptions::default()).map_err(|e| e.to_string())?;
        let want = support::run(&ready.model.graph, &support::arguments(&ready.model, &ready.inputs), &cpu)?;
        let got = support::run(&again.graph, &support::arguments(&again, &ready.inputs), &cpu)?;
        got.iter().zip(&want).try_for_each(|(got, want)| support::close(got, want, 1e-5, 1e-6))
    });
}
