//! `loom run` transforms, compiles and runs a graph in text form or an ONNX model.
//!
//! Inputs are tensors named `0`, `1`, … in order, or by the model's names; outputs are named in the same way. With `--transform
//! jvp`, tangents of the float inputs follow the inputs, and tangents of the float outputs follow the outputs. With `vjp`,
//! cotangents of the float outputs follow the inputs, and gradients of the float inputs follow the outputs. `vmap:AXIS` maps over
//! that axis of every input and stacks the results along axis 0.

use crate::ExitStatus;
use crate::command::not_built;
use crate::command::{self, UsageError};
use crate::device::{self, cores};
use crate::import::{self, NamedGraph, OnnxArgs};
use crate::output::{out, outln};
use crate::run::usage_error;
use compiler::{Backend, Bindings, Options};
use cpu::Cpu;
use ir::{Graph, Literal, Type};
use models::NamedTensor;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Options of `loom run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// A graph in text form, an ONNX model, or a directory written by `loom import`
    file: String,
    /// A safetensors file with inputs named 0, 1, .. or by their names in the model; or one input: x=FILE.npy
    #[arg(long = "in", value_name = "FILE")]
    input: Vec<String>,
    /// The safetensors file to write the outputs to
    #[arg(long, value_name = "FILE", value_parser = command::non_empty_name)]
    out: Option<String>,
    /// Transform the graph first: jvp, vjp or vmap:AXIS
    #[arg(long, value_name = "NAME")]
    transform: Option<String>,
    /// Print the graph or its compiled form; without inputs, the graph is not run
    #[arg(long, value_name = "FORM")]
    emit: Option<GraphEmit>,
    /// Run N more times and print the median time
    #[arg(long, value_name = "N", value_parser = command::positive)]
    bench: Option<usize>,
    #[command(flatten)]
    machine: device::DeviceArgs,
    #[command(flatten)]
    open: OnnxArgs,
}

/// Forms of a graph.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum GraphEmit {
    Graph,
    Explain,
    Program,
    Loops,
    Asm,
}

/// The input tensors, and the files that they were read from.
struct InputTensors {
    tensors: BTreeMap<String, Literal>,
    path: String,
}

/// Reads all files given by `--in`.
fn read_inputs(args: &RunArgs, source: &NamedGraph) -> Result<Option<InputTensors>, UsageError> {
    if args.input.is_empty() {
        return Ok(None);
    }
    let mut tensors = BTreeMap::new();
    for (i, text) in args.input.iter().enumerate() {
        let more = match text.split_once('=') {
            Some((name, path)) if path.ends_with(".npy") => BTreeMap::from([(name.to_string(), import::array(path)?)]),
            _ if text.ends_with(".npy") => BTreeMap::from([(source.input_name(i), import::array(text)?)]),
            _ => import::tensors(text)?,
        };
        for (name, x) in more {
            if tensors.insert(name.clone(), x).is_some() {
                return Err(UsageError(format!("input `{name}` is given twice")));
            }
        }
    }
    Ok(Some(InputTensors { tensors, path: args.input.join(", ") }))
}

impl NamedGraph {
    /// Returns the name of the i-th input that is not a parameter.
    fn input_name(&self, i: usize) -> String {
        self.inputs.as_ref().and_then(|names| names.get(i).cloned()).unwrap_or_else(|| i.to_string())
    }

    /// Returns the value of the i-th input of the graph if it is a parameter.
    fn parameter(&self, i: usize) -> Option<&Literal> {
        let first = self.inputs.as_ref().map_or(0, Vec::len);
        i.checked_sub(first).and_then(|k| self.parameters.get(k)).map(|(_, x)| x)
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitStatus, UsageError> {
    let file = &args.file;
    let source = import::load(file, &args.open)?;
    let given = read_inputs(args, &source)?;
    let graph =
        apply_transform(args, &source, given.as_ref()).map_err(|e| UsageError(format!("{file}: {}", one_line(&e))))?;
    // The interpreter is not a backend: it runs graphs without compiling them.
    let interpreted = args.machine.device == "interp";
    let device = match interpreted {
        true => device::open("cpu", args.machine.threads)?,
        false => args
            .machine
            .open()
            .map_err(|UsageError(text)| UsageError(format!("{text}; `loom run` also accepts interp")))?,
    };
    if let Some(what) = args.emit {
        emit(what, &graph, &*device)?;
        if given.is_none() {
            return Ok(ExitStatus::Success);
        }
    }
    let bare = source.inputs.as_ref().is_some_and(Vec::is_empty) && args.transform.is_none();
    let given = match given {
        Some(given) => given,
        None if bare => InputTensors { tensors: BTreeMap::new(), path: file.clone() },
        None => {
            let names = (source.inputs.as_ref()).map_or("0, 1, …".to_string(), |names| names.join(", "));
            return Err(UsageError(format!(
                "`--in` is missing: give a safetensors file with the inputs {names}, or NAME=FILE.npy"
            )));
        }
    };
    let inputs = inputs(&source, &graph, &given)?;
    let outputs = match interpreted {
        true => interpret(args, &graph, &inputs)?,
        false => run_compiled(args, &graph, &inputs, &*device)?,
    };
    match args.out.as_deref() {
        Some(path) => write(path, &source, &outputs)?,
        None if args.bench.is_some() => {}
        None => return Err(UsageError("`--out` is missing: give the safetensors file to write".into())),
    }
    Ok(ExitStatus::Success)
}

fn one_line(e: &dyn std::fmt::Display) -> String {
    e.to_string().lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}

fn floats(types: &[Type]) -> Vec<bool> {
    types.iter().map(|t| t.dtype.is_float()).collect()
}

fn apply_transform(args: &RunArgs, source: &NamedGraph, given: Option<&InputTensors>) -> ir::Result<Graph> {
    let graph = &source.graph;
    let Some(name) = args.transform.as_deref() else { return Ok(graph.clone()) };
    let invalid = |text: String| ir::Error::Invalid(text);
    match name {
        "jvp" => Ok(transform::jvp(graph, &floats(&graph.input_types()), &floats(&graph.output_types()))?.0),
        "vjp" => {
            let active = floats(&graph.input_types());
            let wrt: Vec<usize> = (0..active.len()).filter(|&i| active[i]).collect();
            transform::vjp(graph, &wrt)
        }
        other => {
            let Some(axis) = other.strip_prefix("vmap:").and_then(|a| a.parse::<usize>().ok()) else {
                return Err(invalid(format!("unknown transform `--transform {other}`: use jvp, vjp or vmap:AXIS")));
            };
            let first = given.and_then(|g| g.tensors.get(&source.input_name(0)));
            let size = first.and_then(|t| t.ty().shape.get(axis).copied());
            let size = size.ok_or_else(|| {
                invalid(format!(
                    "vmap:{axis} takes its size from axis {axis} of input 0, which is not in `--in`: give input 0 \
                     with that axis"
                ))
            })?;
            let (ins, outs) = (graph.input_types().len(), graph.output_types().len());
            let axes: Vec<Option<usize>> = (0..ins).map(|i| source.parameter(i).is_none().then_some(axis)).collect();
            transform::vmap_axes(graph, &axes, &vec![0; outs], size)
        }
    }
}

fn inputs(source: &NamedGraph, graph: &Graph, given: &InputTensors) -> Result<Vec<Literal>, UsageError> {
    let path = &given.path;
    let types = graph.input_types();
    let mut found = Vec::with_capacity(types.len());
    let mut taken = 0;
    for (i, ty) in types.iter().enumerate() {
        if let Some(x) = source.parameter(i) {
            found.push(x.clone());
            continue;
        }
        let name = source.input_name(i);
        let fault = |what: String| UsageError(format!("{path}: input {name} must be {ty}, {what}"));
        let x = given.tensors.get(&name).ok_or_else(|| fault(format!("but there is no tensor `{name}`")))?;
        if x.ty() != ty {
            return Err(fault(format!("got {}", x.ty())));
        }
        taken += 1;
        found.push(x.clone());
    }
    if given.tensors.len() > taken {
        return Err(UsageError(format!(
            "{path}: expected {taken} tensors, got {}: remove those that are no inputs",
            given.tensors.len()
        )));
    }
    Ok(found)
}

fn interpret(args: &RunArgs, graph: &Graph, inputs: &[Literal]) -> Result<Vec<Literal>, UsageError> {
    let fault = |e: ir::Error| UsageError(one_line(&e));
    let outputs = ir::interp::run(graph, inputs).map_err(fault)?;
    if let Some(count) = args.bench {
        let mut times = Vec::new();
        for _ in 0..count {
            let start = Instant::now();
            ir::interp::run(graph, inputs).map_err(fault)?;
            times.push(start.elapsed().as_secs_f64());
        }
        outln!("{}", json!({"median_s": median(times), "compile_s": 0.0}));
    }
    Ok(outputs)
}

fn run_compiled(
    args: &RunArgs,
    graph: &Graph,
    inputs: &[Literal],
    cpu: &dyn Backend,
) -> Result<Vec<Literal>, UsageError> {
    let fault = |e: compiler::Error| UsageError(one_line(&e));
    let start = Instant::now();
    let program = compiler::compile(graph, cpu, &Options::default()).map_err(fault)?;
    let exe = cpu.load(program).map_err(fault)?;
    let compile_s = start.elapsed().as_secs_f64();
    let mut bindings = Bindings::for_program(exe.program(), cpu).map_err(fault)?;
    for (buffer, x) in bindings.inputs.iter().zip(inputs) {
        buffer.write(0, x.bytes()).map_err(fault)?;
    }
    exe.run(&mut bindings).map_err(fault)?;
    if let Some(count) = args.bench {
        let mut times = Vec::new();
        for _ in 0..count {
            let start = Instant::now();
            exe.run(&mut bindings).map_err(fault)?;
            times.push(start.elapsed().as_secs_f64());
        }
        outln!("{}", json!({"median_s": median(times), "compile_s": compile_s}));
    }
    let mut outputs = Vec::new();
    for (buffer, ty) in bindings.outputs.iter().zip(&exe.program().outputs) {
        let mut bytes = vec![0; ty.bytes()];
        buffer.read(0, &mut bytes).map_err(fault)?;
        outputs.push(
            Literal::from_bytes(ty.clone(), &bytes)
                .ok_or_else(|| UsageError("the size of an output does not match its type".into()))?,
        );
    }
    Ok(outputs)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Writes the outputs under their names. Outputs that a transform added are named by their index.
fn write(path: &str, source: &NamedGraph, outputs: &[Literal]) -> Result<(), UsageError> {
    let name = |i: usize| source.outputs.get(i).cloned().unwrap_or_else(|| i.to_string());
    let named: Vec<NamedTensor> = outputs.iter().enumerate().map(|(i, x)| import::named(&name(i), x)).collect();
    models::write_tensors(Path::new(path), &named).map_err(usage_error)
}

fn emit(what: GraphEmit, graph: &Graph, device: &dyn Backend) -> Result<(), UsageError> {
    let fault = |e: compiler::Error| UsageError(one_line(&e));
    if what == GraphEmit::Graph {
        out!("{graph}");
        return Ok(());
    }
    let (program, explanation) = compiler::explain(graph, device, &Options::default()).map_err(fault)?;
    match what {
        GraphEmit::Explain => out!("{explanation}"),
        GraphEmit::Program => out!("{program}"),
        GraphEmit::Asm if cfg!(not(feature = "disassembler")) => {
            return Err(not_built("--emit asm", "disassembler"));
        }
        _ => {
            let mut list = Vec::new();
            program.steps.iter().for_each(|s| s.kernels(&mut |k| list.push(k)));
            // The listing is always machine code of the CPU, whichever device is selected.
            let cpu = Cpu::new(cores());
            for kernel in list {
                if what == GraphEmit::Loops {
                    outln!("{kernel}");
                } else {
                    outln!("{}:", kernel.name);
                    out!("{}", compiler::debug::machine_code(&cpu.machine_code(kernel).map_err(fault)?));
                }
            }
        }
    }
    Ok(())
}

/// Returns the instructions up to the return; constants follow it.
#[cfg(all(target_arch = "x86_64", feature = "disassembler"))]
pub(crate) fn disassembly(code: &[u8]) -> String {
    use iced_x86::{Decoder, DecoderOptions, Formatter, Mnemonic, NasmFormatter};
    let mut formatter = NasmFormatter::new();
    let mut text = String::new();
    for instruction in &mut Decoder::with_ip(64, code, 0, DecoderOptions::NONE) {
        text += &format!("  {:5x}  ", instruction.ip());
        formatter.format(&instruction, &mut text);
        text.push('\n');
        if instruction.mnemonic() == Mnemonic::Ret {
            break;
        }
    }
    text
}
