//! `loom run`: a Graph in its text form, transformed, compiled and run.
//!
//! Inputs are tensors named `0`, `1`, … in order; outputs are written under such names. With `--transform jvp` a tangent
//! for each float input follows the inputs, and a tangent for each float output the outputs; with `vjp` a cotangent for
//! each float output follows the inputs, and the gradient of each float input the outputs. `vmap:AXIS` maps over that
//! axis of every input and stacks results along axis 0.

use crate::Outcome;
use crate::command::{self, Usage};
use crate::device::{self, cores};
use crate::output::{out, outln};
use crate::run::usage;
use compiler::loops::Kernel;
use compiler::program::{Step, Trip};
use compiler::{Backend, Bindings, Options};
use cpu::Cpu;
use ir::{DType, Graph, Literal, Type};
use models::{NamedTensor, files};
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Options of `loom run`.
#[derive(clap::Args)]
pub(crate) struct Run {
    /// A graph in its text form
    file: String,
    /// A safetensors file with inputs named 0, 1, ..
    #[arg(long = "in", value_name = "FILE")]
    input: Option<String>,
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

const DTYPES: [(DType, Dtype); 15] = [
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

pub(crate) fn run(args: &Run) -> Result<Outcome, Usage> {
    let file = &args.file;
    let source = files::read_text(Path::new(file), files::TEXT).map_err(usage)?;
    let graph = ir::text::parse(&source).map_err(|e| Usage(format!("{file}: {}", one_line(&e))))?;
    let input = args.input.as_deref();
    let given = input.map(|path| files::read(Path::new(path), u64::MAX - 1).map_err(usage)).transpose()?;
    let given = match (&given, input) {
        (Some(bytes), Some(path)) => {
            Some(SafeTensors::deserialize(bytes).map_err(|e| Usage(format!("{path}: not a safetensors file: {e}")))?)
        }
        _ => None,
    };
    let graph = transformed(args, &graph, given.as_ref()).map_err(|e| Usage(format!("{file}: {}", one_line(&e))))?;
    // The interpreter is no device of programs: it runs graphs as they are.
    let interpreted = args.machine.device == "interp";
    let device = match interpreted {
        true => device::open("cpu", args.machine.threads)?,
        false => args.machine.open().map_err(|Usage(text)| Usage(format!("{text}; here it is interp or cpu")))?,
    };
    if let Some(what) = args.emit {
        emit(what, &graph, &*device)?;
        if input.is_none() {
            return Ok(Outcome::Clean);
        }
    }
    let Some(given) = given else {
        return Err(Usage("`--in` is missing: a safetensors file with inputs named 0, 1, …".into()));
    };
    let inputs = inputs(args, &graph, &given)?;
    let outputs = match interpreted {
        true => interpret(args, &graph, &inputs)?,
        false => compiled(args, &graph, &inputs, &*device)?,
    };
    match args.out.as_deref() {
        Some(path) => write(path, &outputs)?,
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

fn transformed(args: &Run, graph: &Graph, given: Option<&SafeTensors<'_>>) -> ir::Result<Graph> {
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
            let first = given.and_then(|g| g.tensor("0").ok());
            let size = first.as_ref().and_then(|t| t.shape().get(axis).copied());
            let size = size.ok_or_else(|| {
                invalid(format!("vmap:{axis} takes its size from axis {axis} of input 0, which `--in` doesn't have"))
            })?;
            let (ins, outs) = (graph.input_types().len(), graph.output_types().len());
            transform::vmap_axes(graph, &vec![Some(axis); ins], &vec![0; outs], size)
        }
    }
}

fn inputs(args: &Run, graph: &Graph, given: &SafeTensors<'_>) -> Result<Vec<Literal>, Usage> {
    let path = args.input.as_deref().unwrap_or_default();
    let types = graph.input_types();
    let mut found = Vec::with_capacity(types.len());
    for (i, ty) in types.iter().enumerate() {
        let fault = |what: String| Usage(format!("{path}: input {i} is {ty}, {what}"));
        let t = given.tensor(&i.to_string()).map_err(|_| fault(format!("and there is no tensor `{i}`")))?;
        let dtype = DTYPES.iter().find(|(_, d)| *d == t.dtype()).map(|(d, _)| *d);
        if dtype != Some(ty.dtype) || t.shape() != &ty.shape[..] {
            let name = dtype.map_or_else(|| format!("{:?}", t.dtype()), |d| d.to_string());
            return Err(fault(format!("found {name}{:?}", t.shape())));
        }
        found.push(Literal::from_bytes(ty.clone(), t.data()).ok_or_else(|| fault("and its data is cut".into()))?);
    }
    if given.len() > types.len() {
        return Err(Usage(format!("{path}: {} tensors for {} inputs", given.len(), types.len())));
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

fn write(path: &str, outputs: &[Literal]) -> Result<(), Usage> {
    let named = outputs.iter().enumerate().map(|(i, literal)| NamedTensor {
        name: i.to_string(),
        shape: literal.ty().shape.to_vec(),
        dtype: literal.ty().dtype,
        bytes: literal.bytes().to_vec(),
    });
    models::write_tensors(Path::new(path), &named.collect::<Vec<_>>()).map_err(usage)
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
                    outln!("{}:", kernel.name);
                    disassemble(&cpu.machine_code(kernel).map_err(fault)?);
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
fn disassemble(code: &[u8]) {
    use iced_x86::{Decoder, DecoderOptions, Formatter, Mnemonic, NasmFormatter};
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
}
