//! `loom export --onnx` writes a graph or a model as an ONNX file.

use crate::ExitStatus;
use crate::command::UsageError;
use crate::import::{self, NamedGraph};
use crate::output::outln;
use crate::run::{self, Export, usage_error};
use ir::{Literal, Type};
use models::files;
use std::path::Path;

/// Returns a HuggingFace model as a graph with its parameters, and the indices of the parameters among the inputs.
fn model(args: &Export) -> Result<(NamedGraph, Vec<usize>), UsageError> {
    let model = run::load(&args.source)?;
    let (graph, values, inputs) = model.named_graph(args.batch_size, args.seq_len).map_err(usage_error)?;
    let mut parameters = Vec::new();
    for v in values {
        let ty = Type::new(v.dtype, &v.shape);
        let x = Literal::from_bytes(ty, &v.bytes)
            .ok_or_else(|| UsageError(format!("the parameter {} is truncated", v.name)))?;
        parameters.push((v.name, x));
    }
    // The parameters are the first inputs of this graph.
    let places = (0..parameters.len()).collect();
    Ok((NamedGraph { graph, inputs: Some(inputs), parameters, outputs: vec!["logits".into()] }, places))
}

pub(crate) fn export(args: &Export, file: &str) -> Result<ExitStatus, UsageError> {
    let path = &args.source.dir;
    let place = Path::new(path);
    let weights = place.join("config.json").is_file() || place.join("adapter_config.json").is_file();
    let (source, places) = if weights || models::gguf::is_gguf(place) {
        model(args)?
    } else {
        let source = import::load(path, &args.open)?;
        let first = source.inputs.as_ref().map_or(0, Vec::len);
        let places = (first..first + source.parameters.len()).collect();
        (source, places)
    };
    let count = source.graph.inputs().len();
    let mut names = onnx::ExportNames { inputs: vec![String::new(); count], ..onnx::ExportNames::default() };
    for (&at, (name, x)) in places.iter().zip(&source.parameters) {
        names.inputs[at] = name.clone();
        names.parameters.insert(at, x.clone());
    }
    let mut given = source.inputs.iter().flatten();
    for i in 0..count {
        if !names.parameters.contains_key(&i)
            && let Some(name) = given.next()
        {
            names.inputs[i] = name.clone();
        }
    }
    if source.inputs.is_some() {
        // Names must be unique, so an output that is also an input gets another name.
        let taken = |n: &String| names.inputs.contains(n);
        names.outputs = source.outputs.iter().map(|n| if taken(n) { format!("{n}_out") } else { n.clone() }).collect();
    }
    let bytes = onnx::export(&source.graph, &names).map_err(|e| UsageError(format!("{path}: {e}")))?;
    // Protobuf messages are limited to 2 GiB.
    if bytes.len() >= 1 << 31 {
        return Err(UsageError(format!(
            "{path}: the model has {} bytes, but an ONNX file is limited to 2 GiB; export it in bf16",
            bytes.len()
        )));
    }
    files::write(Path::new(file), &bytes).map_err(usage_error)?;
    outln!("{file}: {} bytes, {} inputs, {} outputs", bytes.len(), count - places.len(), source.graph.outputs().len());
    Ok(ExitStatus::Success)
}
