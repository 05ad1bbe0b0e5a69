//! Reads ONNX's node tests from `golden/onnx/nodes.py`, and runs models on the CPU.

use bytes::Bytes;
use compiler::{Backend, Bindings};
use ir::{Graph, Literal};
use prost::Message;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use tensorloom_onnx::proto::{ModelProto, OptionalProto, SequenceProto, TensorProto, TypeValue, ValueInfo};
use tensorloom_onnx::tensor::NoExternalData;
use tensorloom_onnx::{Error, ImportOptions, ImportedModel, InputInfo, OutputForm};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cases {
    #[prost(message, repeated, tag = "1")]
    pub(crate) case: Vec<Case>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Case {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) model: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(crate) inputs: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(crate) outputs: Vec<Bytes>,
    #[prost(double, tag = "5")]
    pub(crate) rtol: f64,
    #[prost(double, tag = "6")]
    pub(crate) atol: f64,
    /// Gradients of the float inputs, if there are any.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub(crate) grads: Vec<Bytes>,
}

pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/onnx/data").join(name)
}

pub(crate) fn read(path: &Path) -> Vec<Case> {
    let packed = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("a zlib stream");
    Cases::decode(&bytes[..]).expect("a message").case
}

/// A value of a case: a tensor, a sequence, or an optional value.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Tensor(Literal),
    Sequence(Vec<Data>),
    Optional(Option<Box<Data>>),
}

fn tensor(t: &TensorProto) -> Result<Data, String> {
    tensorloom_onnx::tensor::literal(t, &NoExternalData).map(|(x, _)| Data::Tensor(x)).map_err(|e| e.to_string())
}

fn sequence(s: &SequenceProto) -> Result<Data, String> {
    let items = s.tensor_values.iter().map(tensor).chain(s.sequence_values.iter().map(sequence));
    items.collect::<Result<_, _>>().map(Data::Sequence)
}

/// Reads a value with the type of an input or output.
pub(crate) fn data(bytes: &Bytes, info: &ValueInfo) -> Result<Data, String> {
    let fault = |e: prost::DecodeError| e.to_string();
    match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(TypeValue::Sequence(_)) => sequence(&SequenceProto::decode(bytes.clone()).map_err(fault)?),
        Some(TypeValue::Optional(_)) => {
            let o = OptionalProto::decode(bytes.clone()).map_err(fault)?;
            Ok(Data::Optional(match (&o.tensor_value, &o.sequence_value) {
                (Some(t), _) => Some(Box::new(tensor(t)?)),
                (_, Some(s)) => Some(Box::new(sequence(s)?)),
                _ => None,
            }))
        }
        _ => tensor(&TensorProto::decode(bytes.clone()).map_err(fault)?),
    }
}

/// The import option for an input: its shape, or its value if that is needed.
fn given(name: &str, x: &Data, asked: &[String]) -> InputInfo {
    match x {
        Data::Tensor(x) if asked.iter().any(|a| a == name) => InputInfo::Value(x.clone()),
        Data::Tensor(x) => InputInfo::Shape(x.ty().shape.to_vec()),
        Data::Sequence(items) => InputInfo::Sequence(
            items.iter().enumerate().map(|(i, x)| given(&format!("{name}.{i}"), x, asked)).collect(),
        ),
        Data::Optional(None) => InputInfo::Absent,
        Data::Optional(Some(x)) => InputInfo::Present(Box::new(given(name, x, asked))),
    }
}

/// Collects the tensors that remain inputs of the graph.
fn inputs(name: &str, x: &Data, asked: &[String], into: &mut Vec<Literal>) {
    match x {
        Data::Tensor(_) if asked.iter().any(|a| a == name) => {}
        Data::Tensor(x) => into.push(x.clone()),
        Data::Sequence(items) => {
            items.iter().enumerate().for_each(|(i, x)| inputs(&format!("{name}.{i}"), x, asked, into));
        }
        Data::Optional(x) => x.iter().for_each(|x| inputs(name, x, asked, into)),
    }
}

/// An imported case with its inputs.
pub(crate) struct Ready {
    pub(crate) model: ImportedModel,
    pub(crate) inputs: Vec<Literal>,
    pub(crate) expected: Vec<Data>,
    /// The number of inputs whose values were needed for the import.
    pub(crate) bound: usize,
    pub(crate) given: usize,
}

/// Imports a case; inputs that determine shapes are given by value.
pub(crate) fn import(case: &Case, mut options: ImportOptions) -> Result<Ready, String> {
    let model = ModelProto::decode(case.model.clone()).map_err(|e| e.to_string())?;
    let graph = model.graph.as_ref().ok_or("no graph")?;
    let named: Vec<(String, Data)> = (graph.input.iter().zip(&case.inputs))
        .map(|(info, bytes)| Ok((info.name.clone().unwrap_or_default(), data(bytes, info)?)))
        .collect::<Result<_, String>>()?;
    let expected = graph.output.iter().zip(&case.outputs).map(|(info, bytes)| data(bytes, info));
    let expected = expected.collect::<Result<_, String>>()?;
    let mut asked: Vec<String> = Vec::new();
    let model = loop {
        options.inputs = named.iter().map(|(n, x)| (n.clone(), given(n, x, &asked))).collect::<BTreeMap<_, _>>();
        match tensorloom_onnx::import(&case.model, &options) {
            Ok(model) => break model,
            Err(Error::NeedsValue { inputs, .. }) if inputs.iter().any(|i| !asked.contains(i)) => asked.extend(inputs),
            Err(e) => return Err(e.to_string()),
        }
    };
    let mut list = Vec::new();
    named.iter().for_each(|(n, x)| inputs(n, x, &asked, &mut list));
    let list = list.into_iter().zip(&model.inputs).map(|(x, port)| cast(x, &port.ty)).collect();
    Ok(Ready { inputs: list, expected, bound: asked.len(), given: named.len(), model })
}

fn cast(x: Literal, ty: &ir::Type) -> Literal {
    if x.ty() == ty { x } else { Literal::from_fn(ty.clone(), |i| x.get(i).cast(ty.dtype)) }
}

/// Runs a graph on the CPU.
pub(crate) fn run(graph: &Graph, inputs: &[Literal], cpu: &dyn Backend) -> Result<Vec<Literal>, String> {
    let fault = |e: compiler::Error| e.to_string();
    let program = compiler::compile(graph, cpu, &compiler::Options::default()).map_err(fault)?;
    let exe = cpu.load(program).map_err(fault)?;
    let mut bindings = Bindings::for_program(exe.program(), cpu).map_err(fault)?;
    for (buffer, x) in bindings.inputs.iter().zip(inputs) {
        buffer.write(0, x.bytes()).map_err(fault)?;
    }
    exe.run(&mut bindings).map_err(fault)?;
    let mut outputs = Vec::new();
    for (buffer, ty) in bindings.outputs.iter().zip(&exe.program().outputs) {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).map_err(fault)?;
        outputs.push(Literal::from_bytes(ty.clone(), &bytes).ok_or("an output of another size")?);
    }
    Ok(outputs)
}

/// All inputs of a model: its own, then its parameters.
pub(crate) fn arguments(model: &ImportedModel, inputs: &[Literal]) -> Vec<Literal> {
    inputs.iter().cloned().chain(model.parameters.iter().map(|(_, x)| x.clone())).collect()
}

pub(crate) fn close(got: &Literal, want: &Literal, rtol: f64, atol: f64) -> Result<(), String> {
    if got.ty() != want.ty() {
        return Err(format!("gives {}, expected {}", got.ty(), want.ty()));
    }
    for i in 0..got.ty().numel() {
        let (a, b) = (got.get(i).to_f64(), want.get(i).to_f64());
        let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs();
        if !same {
            return Err(format!("element {i} is {a}, expected {b}"));
        }
    }
    Ok(())
}

fn matches(form: &OutputForm, got: &[Literal], want: &Data, case: &Case) -> Result<(), String> {
    match (form, want) {
        (OutputForm::Tensor(i), Data::Tensor(want)) => close(&got[*i], want, case.rtol, case.atol),
        (OutputForm::Sequence(forms), Data::Sequence(want)) if forms.len() == want.len() => {
            forms.iter().zip(want).try_for_each(|(f, w)| matches(f, got, w, case))
        }
        (OutputForm::Optional(None), Data::Optional(None)) => Ok(()),
        (OutputForm::Optional(Some(f)), Data::Optional(Some(w))) => matches(f, got, w, case),
        (f, Data::Optional(Some(w))) => matches(f, got, w, case),
        _ => Err("gives another kind of thing".into()),
    }
}

/// Imports, compiles, runs and compares a case. Returns the number of inputs given by value, and of all inputs.
pub(crate) fn check(case: &Case, cpu: &dyn Backend) -> Result<(usize, usize), String> {
    let ready = import(case, ImportOptions::default())?;
    ir::verify::verify(&ready.model.graph).map_err(|e| e.to_string())?;
    let got = run(&ready.model.graph, &arguments(&ready.model, &ready.inputs), cpu)?;
    if ready.model.forms.len() != ready.expected.len() {
        return Err("gives another number of outputs".into());
    }
    for ((name, form), want) in ready.model.forms.iter().zip(&ready.expected) {
        matches(form, &got, want, case).map_err(|e| format!("output {name} {e}"))?;
    }
    Ok((ready.bound, ready.given))
}
