//! `loom run`: a Graph in its text form, or an ONNX model, transformed, compiled and run.
//!
//! Inputs are tensors named `0`, `1`, … in order, or by the model's names; outputs are written under such names. With `--transform jvp` a tangent
//! for each float input follows the inputs, and a tangent for each float output the outputs; with `vjp` a cotangent for
//! each float output follows the inputs, and the gradient of each float input the outputs. `vmap:AXIS` maps over that
//! axis of every input and stacks results along axis 0.

use crate::Outcome;
use crate::command::{self, Usage};
use crate::device::{self, cores};
use crate::import::{self, Open, Source};
use crate::output::{out, outln};
use crate::run::usage;
use compiler::loops::Kernel;
use compiler::program::{Step, Trip};
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
pub(crate) struct Run {
    /// A graph in its text form, an ONNX model, or what `loom import` wrote
    file: String,
    /// A safetensors file with inputs named 0, 1, .. or as the model names them; or one input: x=FILE.npy
    #[arg(long = "in", value_name = "FILE")]
    input: Vec<String>,
    /// Where the outputs go, under such names
    #[arg(long, value_name = "FILE", value_parser = command::name)]
    out: Option<String>,
    /// Transform it first: jvp, vjp or vmap:AXIS
    #[arg(long, value_name = "NAME")]
    transform: Option<String>,
    /// Print a form of it instead, or besides
    #[arg(long, value_name = "FORM")]
    emit: Option<Emit>,
    /// Run it so many times more, and say how long that takes
    #[arg(long, value_name = "N", value_parser = command::positive)]
    bench: Option<usize>,
    #[command(flatten)]
    machine: device::Machine,
    #[command(flatten)]
    open: Open,
}

/// Forms of a graph.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Emit {
    Graph,
    Explain,
    Program,
    Loops,
    Asm,
}

/// Tensors for inputs, and where they are from.
struct Given {
    tensors: BTreeMap<String, Literal>,
    path: String,
}

/// Reads all that `--in` names.
fn given(args: &Run, source: &Source) -> Result<Option<Given>, Usage> {
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
                return Err(Usage(format!("input `{name}` is given twice")));
            }
        }
    }
    Ok(Some(Given { tensors, path: args.input.join(", ") }))
}

impl Source {
    /// The name of the i-th input that is no parameter.
    fn input_name(&self, i: usize) -> String {
        self.inputs.as_ref().and_then(|names| names.get(i).cloned()).unwrap_or_else(|| i.to_string())
    }

    /// Where the parameters are among the inputs.
    fn parameter(&self, i: usize) -> Option<&Literal> {
        let first = self.inputs.as_ref().map_or(0, Vec::len);
        i.checked_sub(first).and_then(|k| self.parameters.get(k)).map(|(_, x)| x)
    }
}

pub(crate) fn run(args: &Run) -> Result<Outcome, Usage> {
    let file = &args.file;
    let source = import::load(file, &args.open)?;
    let given = given(args, &source)?;
    let graph = transformed(args, &source, given.as_ref()).map_err(|e| Usage(format!("{file}: {}", one_line(&e))))?;
    // The interpreter is no device of programs: it runs graphs as they are.
    let interpreted = args.machine.device == "interp";
    let device = match interpreted {
        true => device::open("cpu", args.machine.threads)?,
        false => args.machine.open().map_err(|Usage(text)| Usage(format!("{text}; here it is interp or cpu")))?,
    };
    if let Some(what) = args.emit {
        emit(what, &graph, &*device)?;
        if given.is_none() {
            return Ok(Outcome::Clean);
        }
    }
    let bare = source.inputs.as_ref().is_some_and(Vec::is_empty) && args.transform.is_none();
    let given = match given {
        Some(given) => given,
        None if bare => Given { tensors: BTreeMap::new(), path: file.clone() },
        None => {
            let names = (source.inputs.as_ref()).map_or("0, 1, …".to_string(), |names| names.join(", "));
            return Err(Usage(format!(
                "`--in` is missing: a safetensors file with inputs named {names}, or NAME=FILE.npy"
            )));
        }
    };
    let inputs = inputs(&source, &graph, &given)?;
    let outputs = match interpreted {
        true => interpret(args, &graph, &inputs)?,
        false => compiled(args, &graph, &inputs, &*device)?,
    };
    match args.out.as_deref() {
        Some(path) => write(path, &source, &outputs)?,
        None if args.bench.is_some() => {}
        None => return Err(Usage("`--out` is missing: where the outputs go".into())),
    }
    Ok(Outcome::Clean)
}

fn one_line(e: &dyn std::fmt::Display) -> String {
    e.to_string().lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
}

fn floats(types: &[Type]) -> Vec<bool> {
    types.iter().map(|t| t.dtype.is_float()).collect()
}

fn transformed(args: &Run, source: &Source, given: Option<&Given>) -> ir::Result<Graph> {
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
                return Err(invalid(format!("`--transform {other}` is not known: jvp, vjp or vmap:AXIS")));
            };
            let first = given.and_then(|g| g.tensors.get(&source.input_name(0)));
            let size = first.and_then(|t| t.ty().shape.get(axis).copied());
            let size = size.ok_or_else(|| {
                invalid(format!("vmap:{axis} takes its size from axis {axis} of input 0, which `--in` doesn't have"))
            })?;
            let (ins, outs) = (graph.input_types().len(), graph.output_types().len());
            let axes: Vec<Option<usize>> = (0..ins).map(|i| source.parameter(i).is_none().then_some(axis)).collect();
            transform::vmap_axes(graph, &axes, &vec![0; outs], size)
        }
    }
}

fn inputs(source: &Source, graph: &Graph, given: &Given) -> Result<Vec<Literal>, Usage> {
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
        let fault = |what: String| Usage(format!("{path}: input {name} is {ty}, {what}"));
        let x = given.tensors.get(&name).ok_or_else(|| fault(format!("and there is no tensor `{name}`")))?;
        if x.ty() != ty {
            return Err(fault(format!("found {}", x.ty())));
        }
        taken += 1;
        found.push(x.clone());
    }
    if given.tensors.len() > taken {
        return Err(Usage(format!("{path}: {} tensors for {taken} inputs", given.tensors.len())));
    }
    Ok(found)
}

fn interpret(args: &Run, graph: &Graph, inputs: &[Literal]) -> Result<Vec<Literal>, Usage> {
    let fault = |e: ir::Error| Usage(one_line(&e));
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

fn compiled(args: &Run, graph: &Graph, inputs: &[Literal], cpu: &dyn Backend) -> Result<Vec<Literal>, Usage> {
    let fault = |e: compiler::Error| Usage(one_line(&e));
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
        outputs.push(Literal::from_bytes(ty.clone(), &bytes).ok_or_else(|| Usage("an output of another size".into()))?);
    }
    Ok(outputs)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Results under their names; those that a transform added go by their numbers.
fn write(path: &str, source: &Source, outputs: &[Literal]) -> Result<(), Usage> {
    let name = |i: usize| source.outputs.get(i).cloned().unwrap_or_else(|| i.to_string());
    let named: Vec<NamedTensor> = outputs.iter().enumerate().map(|(i, x)| import::named(&name(i), x)).collect();
    models::write_tensors(Path::new(path), &named).map_err(usage)
}

fn emit(what: Emit, graph: &Graph, device: &dyn Backend) -> Result<(), Usage> {
    let fault = |e: compiler::Error| Usage(one_line(&e));
    if what == Emit::Graph {
        out!("{graph}");
        return Ok(());
    }
    let (program, explanation) = compiler::explain(graph, device, &Options::default()).map_err(fault)?;
    match what {
        Emit::Explain => out!("{explanation}"),
        Emit::Program => out!("{program}"),
        _ => {
            let mut list = Vec::new();
            kernels(&program.steps, &mut list);
            // Machine code is the CPU's, whatever else there is.
            let cpu = Cpu::new(cores());
            for kernel in list {
                if what == Emit::Loops {
                    outln!("{kernel}");
                } else {
                    disassemble(&kernel.name, &cpu.machine_code(kernel).map_err(fault)?)?;
                }
            }
        }
    }
    Ok(())
}

fn kernels<'a>(steps: &'a [Step], list: &mut Vec<&'a Kernel>) {
    for step in steps {
        match step {
            Step::Kernel { kernel, .. } => list.push(kernel),
            Step::Matmul { epilogue: Some(e), .. } => list.push(&e.kernel),
            Step::Loop(l) => {
                if let Trip::While { test, .. } = &l.trip {
                    kernels(test, list);
                }
                kernels(&l.body, list);
            }
            Step::Branch { branches, .. } => branches.iter().for_each(|b| kernels(b, list)),
            _ => {}
        }
    }
}

/// Prints instructions up to the return; constants follow it.
#[cfg(feature = "disassembler")]
fn disassemble(name: &str, code: &[u8]) -> Result<(), Usage> {
    use iced_x86::{Decoder, DecoderOptions, Formatter, Mnemonic, NasmFormatter};
    outln!("{name}:");
    let mut formatter = NasmFormatter::new();
    let mut text = String::new();
    for instruction in &mut Decoder::with_ip(64, code, 0, DecoderOptions::NONE) {
        text.clear();
        formatter.format(&instruction, &mut text);
        outln!("  {:5x}  {text}", instruction.ip());
        if instruction.mnemonic() == Mnemonic::Ret {
            break;
        }
    }
    Ok(())
}

#[cfg(not(feature = "disassembler"))]
fn disassemble(_: &str, _: &[u8]) -> Result<(), Usage> {
    Err(crate::command::not_built("--emit asm", "disassembler"))
}
