//! `loom compile`, `loom explain` and `loom verify-backward`: a model for given sizes, looked at from several sides.

use crate::Outcome;
use crate::args::{Args, Flag, Usage};
use crate::check::{draw, findings};
use crate::run::{load_program, threads};
use ir::{DType, Literal, Scalar, Type};
use lang::Diagnostic;
use lang::ast::{DeclKind, TypeKind};
use lang::consteval::Value;
use lang::lower::{Lowered, Options, lower};
use lang::resolve::{ItemRef, ModuleView, Program};
use serde_json::json;
use std::collections::BTreeMap;

pub(crate) const COMPILE: &[Flag] =
    &[("emit", true), ("model", true), ("set", true), ("batch", true), ("seq", true), ("dtype", true), ("json", false)];
pub(crate) const EXPLAIN: &[Flag] = &[("model", true), ("set", true), ("batch", true), ("seq", true), ("dtype", true)];

/// A checked declaration with the sizes of the command line.
struct Target {
    program: Program,
    item: ItemRef,
    given: BTreeMap<String, Value>,
    inputs: Vec<Type>,
}

pub(crate) fn dtype(args: &Args) -> Result<DType, Usage> {
    match args.value("dtype") {
        None | Some("f32") => Ok(DType::F32),
        Some("bf16") => Ok(DType::BF16),
        Some(other) => Err(Usage(format!("`--dtype {other}` is not known: f32 or bf16"))),
    }
}

/// The declaration to work on, or `None` after its mistakes were drawn.
fn target(args: &Args) -> Result<Option<Target>, Usage> {
    let program = load_program(args.word("a file")?)?;
    let found = findings(&program);
    if found.iter().any(Diagnostic::is_error) {
        draw(&program, &found);
        return Ok(None);
    }
    let items = 0..program.files[0].ast.items.len();
    let items: Vec<ItemRef> = items.map(|item| ItemRef { file: 0, item }).collect();
    let named = |item: &ItemRef| program.decl(*item).map(|decl| (decl.name.name.as_str(), decl.kind));
    let item = match args.value("model") {
        Some(name) => items.iter().find(|item| named(item).is_some_and(|(n, _)| n == name)),
        None => (items.iter().find(|item| named(item).is_some_and(|(_, kind)| kind == DeclKind::Model)))
            .or_else(|| items.iter().rev().find(|item| named(item).is_some())),
    };
    let Some(&item) = item else {
        let names: Vec<&str> = items.iter().filter_map(named).map(|(name, _)| name).collect();
        return Err(Usage(format!("no such declaration: `--model` may be {}", names.join(", "))));
    };
    let mut given = BTreeMap::new();
    for setting in args.values("set") {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(Usage(format!("`--set {setting}` needs name=value")));
        };
        given.insert(name.trim().to_string(), value_of(value.trim()));
    }
    let inputs = input_types(args, &program, item, &given)?;
    Ok(Some(Target { program, item, given, inputs }))
}

fn value_of(text: &str) -> Value {
    match (text, text.parse::<i64>(), text.parse::<f64>()) {
        ("true" | "false", ..) => Value::bool(text == "true"),
        (_, Ok(n), _) => Value::int(n),
        (_, _, Ok(x)) => Value::Float(Some(x)),
        _ => Value::Str(text.to_string()),
    }
}

/// Types of the inputs: `B` is the batch, `T` the length, other sizes are given or defaults.
fn input_types(
    args: &Args,
    program: &Program,
    item: ItemRef,
    given: &BTreeMap<String, Value>,
) -> Result<Vec<Type>, Usage> {
    let Some(view) = ModuleView::new(program, item) else {
        return Err(Usage("not a module or model".into()));
    };
    let (batch, steps) = (args.number("batch", 1)?, args.number("seq", 16)?);
    let defaults: BTreeMap<&str, i64> = view
        .header
        .iter()
        .filter_map(|param| match param {
            lang::ast::Param::Named { name, default: Some(default), .. } => match default.kind {
                lang::ast::ExprKind::Int(n) => Some((name.name.as_str(), n)),
                _ => None,
            },
            _ => None,
        })
        .collect();
    let size = |name: &str| -> Option<usize> {
        let value = given.get(name).and_then(Value::as_int).or_else(|| defaults.get(name).copied());
        match (name, value) {
            (_, Some(n)) => usize::try_from(n).ok(),
            ("B", None) => Some(batch),
            ("T", None) => Some(steps),
            _ => None,
        }
    };
    let mut types = Vec::new();
    for input in &view.forward.inputs {
        let Some(TypeKind::Tensor { dims, dtype: own, .. }) = input.ty.as_ref().map(|ty| &ty.kind) else {
            return Err(Usage("an input without a tensor type".into()));
        };
        let mut shape = Vec::new();
        for dim in dims {
            match dim {
                lang::ast::DimExpr::Variadic(_) => shape.extend([batch, steps]),
                lang::ast::DimExpr::Size(expr) => match (expr.as_name().and_then(size), &expr.kind) {
                    (Some(n), _) => shape.push(n),
                    (None, lang::ast::ExprKind::Int(n)) => shape.push(usize::try_from(*n).unwrap_or(0)),
                    (None, _) => {
                        let text = program.sources.slice(expr.span);
                        return Err(Usage(format!("the size `{text}` is not known: give it with `--set {text}=..`")));
                    }
                },
                lang::ast::DimExpr::Elided(_) => return Err(Usage("an input whose shape is left out".into())),
            }
        }
        let dtype = match own.as_ref().map(|name| name.name.as_str()) {
            Some("int32") => DType::I32,
            _ => dtype(args)?,
        };
        types.push(Type::new(dtype, &shape));
    }
    Ok(types)
}

impl Target {
    fn lower(&self, dtype: DType, written_backward: bool) -> Option<Lowered> {
        let options = Options { dtype, written_backward, ..Options::default() };
        match lower(&self.program, self.item, &self.given, &self.inputs, &options) {
            Ok(lowered) => Some(lowered),
            Err(found) => {
                draw(&self.program, &[*found]);
                None
            }
        }
    }
}

pub(crate) fn compile(args: &Args) -> Result<Outcome, Usage> {
    let emit = args.required("emit")?.to_string();
    let Some(target) = target(args)? else {
        return Ok(Outcome::Mistakes);
    };
    let Some(lowered) = target.lower(dtype(args)?, true) else {
        return Ok(Outcome::Mistakes);
    };
    match emit.as_str() {
        "graph" if args.has("json") => {
            let nodes = lowered.graph.to_string();
            println!(
                "{}",
                json!({ "params": schema(&lowered), "inputs": lowered.inputs, "outputs": lowered.outputs, "graph": nodes })
            );
        }
        "graph" => println!("{}", lowered.graph),
        "schema" => println!("{:#}", json!(schema(&lowered))),
        "program" => {
            let cpu = cpu::Cpu::new(threads());
            let program = compiler::compile(&lowered.graph, &cpu, &compiler::Options::default());
            println!("{}", program.map_err(|e| Usage(e.to_string()))?);
        }
        other => return Err(Usage(format!("`--emit {other}` is not known: graph, schema or program"))),
    }
    Ok(Outcome::Clean)
}

fn schema(lowered: &Lowered) -> Vec<serde_json::Value> {
    let params = lowered.params.iter();
    params
        .map(|p| {
            json!({
                "name": p.path, "shape": p.ty.shape.to_vec(), "dtype": p.ty.dtype.to_string(), "trainable": p.trainable,
            })
        })
        .collect()
}

pub(crate) fn explain(args: &Args) -> Result<Outcome, Usage> {
    let Some(target) = target(args)? else {
        return Ok(Outcome::Mistakes);
    };
    let Some(lowered) = target.lower(dtype(args)?, true) else {
        return Ok(Outcome::Mistakes);
    };
    let name = target.program.decl(target.item).map_or("", |decl| &decl.name.name);
    let elements: usize = lowered.params.iter().map(|p| p.ty.numel()).sum();
    let bytes: usize = lowered.params.iter().map(|p| p.ty.bytes()).sum();
    println!("{name}");
    println!("  parameters   {} tensors, {elements} elements, {bytes} bytes", lowered.params.len());
    for (name, ty) in lowered.inputs.iter().zip(&target.inputs) {
        println!("  input        {name}: {ty}");
    }
    for (name, ty) in lowered.outputs.iter().zip(lowered.graph.output_types()) {
        println!("  output       {name}: {ty}");
    }
    let cpu = cpu::Cpu::new(threads());
    let plan = |graph: &ir::Graph| compiler::compile(graph, &cpu, &compiler::Options::default());
    let forward = plan(&lowered.graph).map_err(|e| Usage(e.to_string()))?;
    println!("  forward      {} steps, {} bytes of activations and workspace", forward.steps.len(), forward.arena);
    let wrt: Vec<usize> = (0..lowered.params.len()).filter(|&i| lowered.params[i].trainable).collect();
    if !wrt.is_empty() {
        let back = transform_vjp(&lowered.graph, &wrt).map_err(|e| Usage(e.to_string()))?;
        let back = plan(&back).map_err(|e| Usage(e.to_string()))?;
        println!("  and backward {} steps, {} bytes of activations and workspace", back.steps.len(), back.arena);
    }
    Ok(Outcome::Clean)
}

fn transform_vjp(graph: &ir::Graph, wrt: &[usize]) -> ir::Result<ir::Graph> {
    transform::vjp(graph, wrt)
}

/// Gradients by the written backward graphs and by derivation, in f64, on fixed pseudo-random operands.
pub(crate) fn verify_backward(args: &Args) -> Result<Outcome, Usage> {
    let Some(mut target) = target(args)? else {
        return Ok(Outcome::Mistakes);
    };
    for ty in target.inputs.iter_mut().filter(|ty| ty.dtype.is_float()) {
        *ty = ty.with_dtype(DType::F64);
    }
    let mut results: Vec<Vec<Literal>> = Vec::new();
    let mut names = Vec::new();
    for written in [true, false] {
        let Some(lowered) = target.lower(DType::F64, written) else {
            return Ok(Outcome::Mistakes);
        };
        let floats: Vec<usize> = (0..lowered.graph.input_types().len())
            .filter(|&i| lowered.graph.input_types()[i].dtype.is_float())
            .collect();
        let all = lowered.params.iter().map(|p| &p.path).chain(&lowered.inputs);
        let all: Vec<String> = all.cloned().collect();
        names = floats.iter().map(|&i| all[i].clone()).collect();
        let back = transform_vjp(&lowered.graph, &floats).map_err(|e| Usage(e.to_string()))?;
        let inputs: Vec<Literal> = back.input_types().iter().enumerate().map(|(i, ty)| sample(ty, i)).collect();
        let outputs = ir::interp::run(&back, &inputs).map_err(|e| Usage(e.to_string()))?;
        results.push(outputs[lowered.graph.outputs().len()..].to_vec());
    }
    let skipped = skipped(&target);
    let mut outcome = Outcome::Clean;
    for (name, (written, derived)) in names.iter().zip(results[0].iter().zip(&results[1])) {
        if skipped.contains(name) {
            println!("{:8} d_{name}: asked not to be computed", "skipped");
            continue;
        }
        let (a, b) = (written.to_vec::<f64>(), derived.to_vec::<f64>());
        let size = b.iter().fold(1e-12f64, |m, x| m.max(x.abs()));
        let worst = a.iter().zip(&b).fold(0f64, |m, (x, y)| m.max((x - y).abs())) / size;
        let good = worst < 1e-8;
        if !good {
            outcome = Outcome::Mistakes;
        }
        let verdict = if good { "ok" } else { "DIFFERS" };
        println!("{verdict:8} d_{name}: {worst:.1e} of the largest element");
    }
    Ok(outcome)
}

/// Inputs with `@gradient(skip)` and parameters with `@frozen`.
fn skipped(target: &Target) -> Vec<String> {
    let Some(view) = ModuleView::new(&target.program, target.item) else {
        return Vec::new();
    };
    let marked = |notes: &[lang::ast::Annotation], name: &str| notes.iter().any(|note| note.name.name == name);
    let inputs = view.forward.inputs.iter().filter(|t| marked(&t.annotations, "gradient"));
    let inputs = inputs.map(|t| t.name.as_ref().map_or("in".to_string(), |n| n.name.clone()));
    let params = view.params.iter().filter(|p| marked(&p.annotations, "frozen"));
    let params = params.filter_map(|p| p.path.as_name()).map(|n| n.name.clone());
    inputs.chain(params).collect()
}

/// Numbers between -0.5 and 0.5 that look random; ids stay small.
fn sample(ty: &Type, seed: usize) -> Literal {
    Literal::from_fn(ty.clone(), |i| {
        let mixed =
            (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (seed as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
        let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40;
        match ty.dtype.is_int() {
            true => Scalar::from_i64(ty.dtype, (mixed % 7) as i64),
            false => Scalar::from_f64(ty.dtype, mixed as f64 / (1u64 << 24) as f64 - 0.5),
        }
    })
}
