//! `loom import` converts an ONNX model to a directory that `loom run` and `loom export` accept: `graph.ir` is the text of the
//! graph, `parameters.safetensors` has its weights, and `model.json` has the names of its inputs and outputs.

use crate::ExitStatus;
use crate::command::{self, UsageError};
use crate::npy;
use crate::output::outln;
use crate::run::usage_error;
use ir::{DType, Graph, Literal, Type};
use models::{NamedTensor, files};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Options of `loom import`.
#[derive(clap::Args)]
pub(crate) struct Import {
    /// An ONNX model file
    file: String,
    /// The output directory
    #[arg(long, value_name = "DIR", value_parser = command::non_empty_name)]
    out: String,
    #[command(flatten)]
    open: OnnxArgs,
}

/// What an ONNX model leaves open.
#[derive(clap::Args)]
pub(crate) struct OnnxArgs {
    /// Value of a symbolic dimension: --dim batch=4
    #[arg(long, value_name = "NAME=SIZE", help_heading = "ONNX models")]
    dim: Vec<String>,
    /// Shape of an input: --shape x=2,3
    #[arg(long, value_name = "NAME=SIZES", help_heading = "ONNX models")]
    shape: Vec<String>,
    /// Value of an input that shapes depend on: --value axes=axes.npy
    #[arg(long, value_name = "NAME=FILE", help_heading = "ONNX models")]
    value: Vec<String>,
}

/// A graph with the names and values of its inputs.
pub(crate) struct NamedGraph {
    pub(crate) graph: Graph,
    /// Names of the inputs that are not parameters, which are the first inputs of the graph. `None` for a graph in text form,
    /// whose inputs and outputs are named by their index.
    pub(crate) inputs: Option<Vec<String>>,
    /// Names and values of the parameters, which are the inputs after those.
    pub(crate) parameters: Vec<(String, Literal)>,
    /// Names of the outputs.
    pub(crate) outputs: Vec<String>,
}

pub(crate) const DTYPES: [(DType, Dtype); 15] = [
    (DType::Bool, Dtype::BOOL),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::F8E4M3, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
];

fn one_line(e: &dyn std::fmt::Display) -> String {
    e.to_string().lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Parses `NAME=REST`.
fn pair<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), UsageError> {
    text.split_once('=').ok_or_else(|| UsageError(format!("`{option} {text}` must have the form NAME=VALUE")))
}

impl OnnxArgs {
    fn options(&self) -> Result<onnx::ImportOptions, UsageError> {
        let mut options = onnx::ImportOptions::default();
        let size = |text: &str| {
            text.trim()
                .parse::<usize>()
                .map_err(|_| UsageError(format!("`{text}` is not a valid dimension size: give a non-negative integer")))
        };
        for text in &self.dim {
            let (name, n) = pair("--dim", text)?;
            options = options.dim(name, size(n)?);
        }
        for text in &self.shape {
            let (name, list) = pair("--shape", text)?;
            let sizes = list.split(',').filter(|s| !s.is_empty()).map(size).collect::<Result<Vec<_>, _>>()?;
            options = options.shape(name, &sizes);
        }
        for text in &self.value {
            let (name, path) = pair("--value", text)?;
            options = options.value(name, array(path)?);
        }
        Ok(options)
    }
}

/// Reads the array of a `.npy` file.
pub(crate) fn array(path: &str) -> Result<Literal, UsageError> {
    let bytes = files::read(Path::new(path), u64::MAX - 1).map_err(usage_error)?;
    npy::read(&bytes).map_err(|e| UsageError(format!("{path}: {e}")))
}

/// Reads all tensors of a safetensors file.
pub(crate) fn tensors(path: &str) -> Result<BTreeMap<String, Literal>, UsageError> {
    let bytes = files::read(Path::new(path), u64::MAX - 1).map_err(usage_error)?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| UsageError(format!("{path}: not a safetensors file: {e}")))?;
    let mut found = BTreeMap::new();
    for (name, t) in file.tensors() {
        let fault = |what: String| UsageError(format!("{path}: tensor `{name}` {what}"));
        let dtype = DTYPES.iter().find(|(_, d)| *d == t.dtype()).map(|(d, _)| *d);
        let dtype = dtype.ok_or_else(|| fault(format!("has the unsupported dtype {:?}", t.dtype())))?;
        let ty = Type::checked(dtype, t.shape()).map_err(|e| fault(e.to_string()))?;
        let x = Literal::from_bytes(ty, t.data()).ok_or_else(|| fault("is truncated".into()))?;
        found.insert(name, x);
    }
    Ok(found)
}

/// Reads a graph in text form, an imported directory or an ONNX model.
pub(crate) fn load(path: &str, open: &OnnxArgs) -> Result<NamedGraph, UsageError> {
    let place = Path::new(path);
    if place.is_dir() {
        return directory(path);
    }
    if place.extension().is_some_and(|e| e == "onnx") {
        let model =
            onnx::import_file(place, &open.options()?).map_err(|e| UsageError(format!("{path}: {}", one_line(&e))))?;
        return Ok(NamedGraph {
            graph: model.graph,
            inputs: Some(model.inputs.into_iter().map(|p| p.name).collect()),
            parameters: model.parameters,
            outputs: model.outputs.into_iter().map(|p| p.name).collect(),
        });
    }
    let source = files::read_text(place, files::MAX_TEXT_BYTES).map_err(usage_error)?;
    let graph = ir::text::parse(&source).map_err(|e| UsageError(format!("{path}: {}", one_line(&e))))?;
    let outputs = (0..graph.outputs().len()).map(|i| i.to_string()).collect();
    Ok(NamedGraph { graph, inputs: None, parameters: Vec::new(), outputs })
}

fn directory(path: &str) -> Result<NamedGraph, UsageError> {
    let place = Path::new(path);
    if !place.join("model.json").is_file() {
        return Err(UsageError(format!(
            "{path}: no model.json found; create it with `loom import MODEL.onnx --out {path}`"
        )));
    }
    let name = |file: &str| place.join(file).to_string_lossy().into_owned();
    let text = files::read_text(&place.join("model.json"), files::MAX_TEXT_BYTES).map_err(usage_error)?;
    let wrong = |what: &str| UsageError(format!("{}: {what}", name("model.json")));
    let json: Json = serde_json::from_str(&text).map_err(|e| wrong(&e.to_string()))?;
    if json["format"] != "loom-graph" || json["version"] != 1 {
        return Err(wrong("unsupported format or version: import the model again"));
    }
    let list = |key: &str| -> Result<Vec<String>, UsageError> {
        let found = json[key].as_array().ok_or_else(|| wrong(&format!("the list `{key}` is missing")))?;
        found
            .iter()
            .map(|v| v.as_str().map(String::from).ok_or_else(|| wrong(&format!("`{key}` must be a list of strings"))))
            .collect()
    };
    let (inputs, parameters, outputs) = (list("inputs")?, list("parameters")?, list("outputs")?);
    let source = files::read_text(&place.join("graph.ir"), u64::MAX - 1).map_err(usage_error)?;
    let graph = ir::text::parse(&source).map_err(|e| UsageError(format!("{}: {}", name("graph.ir"), one_line(&e))))?;
    let mut held = tensors(&name("parameters.safetensors"))?;
    let types = graph.input_types();
    if types.len() != inputs.len() + parameters.len() || graph.outputs().len() != outputs.len() {
        return Err(wrong("its names do not match the inputs and outputs of graph.ir"));
    }
    let mut values = Vec::new();
    for (p, ty) in parameters.into_iter().zip(&types[inputs.len()..]) {
        let x = held.remove(&p).filter(|x| x.ty() == ty);
        let x = x.ok_or_else(|| wrong(&format!("parameters.safetensors has no tensor `{p}` of type {ty}")))?;
        values.push((p, x));
    }
    Ok(NamedGraph { graph, inputs: Some(inputs), parameters: values, outputs })
}

pub(crate) fn named(name: &str, x: &Literal) -> NamedTensor {
    NamedTensor { name: name.to_string(), shape: x.ty().shape.to_vec(), dtype: x.ty().dtype, bytes: x.bytes().to_vec() }
}

pub(crate) fn import(args: &Import) -> Result<ExitStatus, UsageError> {
    if Path::new(&args.file).extension().is_none_or(|e| e != "onnx") {
        return Err(UsageError(format!(
            "{}: not an .onnx file; HuggingFace models need no import, give their directory to the other commands",
            args.file
        )));
    }
    let source = load(&args.file, &args.open)?;
    let out = Path::new(&args.out);
    files::create_dir_all(out).map_err(usage_error)?;
    let names: Vec<&String> = source.parameters.iter().map(|(n, _)| n).collect();
    let inputs = source.inputs.clone().unwrap_or_default();
    let json = json!({
        "format": "loom-graph",
        "version": 1,
        "inputs": inputs,
        "parameters": names,
        "outputs": source.outputs,
    });
    let text = serde_json::to_string_pretty(&json).map_err(|e| UsageError(e.to_string()))?;
    let tensors: Vec<NamedTensor> = source.parameters.iter().map(|(n, x)| named(n, x)).collect();
    files::write(&out.join("graph.ir"), source.graph.to_string().as_bytes()).map_err(usage_error)?;
    models::write_tensors(&out.join("parameters.safetensors"), &tensors).map_err(usage_error)?;
    files::write(&out.join("model.json"), text.as_bytes()).map_err(usage_error)?;
    let types = source.graph.input_types();
    for (name, ty) in inputs.iter().zip(&types) {
        outln!("input {name}: {ty}");
    }
    for (name, ty) in source.outputs.iter().zip(source.graph.output_types()) {
        outln!("output {name}: {ty}");
    }
    let count: usize = source.parameters.iter().map(|(_, x)| x.ty().numel()).sum();
    outln!("{}: {} nodes, {count} parameters", args.out, source.graph.nodes().len());
    Ok(ExitStatus::Success)
}
