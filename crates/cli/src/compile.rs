//! `loom compile`, `loom explain` and `loom verify-backward`, which compile a model for given sizes and inspect it.

use crate::ExitStatus;
use crate::check::{draw, findings};
use crate::command::{self, UsageError};
use crate::device::DeviceArgs;
use crate::output::outln;
use crate::profile::{bytes_written, measure, steps_of};
use crate::run::{load_program, usage_error};
use crate::{graph_json, schedule};
use ir::{DType, Type};
use lang::Diagnostic;
use lang::ast::{ConfigValue, DeclKind, Param};
use lang::consteval::ConstValue;
use lang::lower::{LowerOptions, Lowered, check_given, input_types, lower};
use lang::resolve::{ItemRef, ModuleProgram, ModuleView};
use lang::verify::{GradientCheckError, GradientCheckOptions};
use models::{Architecture, ParamSlice, ParamSources};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A declaration and the sizes to look at it with.
#[derive(clap::Args)]
pub(crate) struct ModelArgs {
    /// A .module file, or a model of the library
    pub(crate) file: String,
    /// Name of the declaration; default: the first model in the file
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Parameter of the model: --set n_layers=2
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Batch size; default: 1
    #[arg(long, alias = "batch", value_name = "N", value_parser = command::size)]
    pub(crate) batch_size: Option<usize>,
    /// Sequence length; default: 16
    #[arg(long, alias = "seq", value_name = "N", value_parser = command::size)]
    pub(crate) seq_len: Option<usize>,
    /// Dtype of computation: f32 or bf16
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype)]
    pub(crate) dtype: DType,
    #[command(flatten)]
    pub(crate) machine: DeviceArgs,
}

/// What is computed in which precision.
#[derive(clap::Args)]
pub(crate) struct PrecisionArgs {
    /// Precision: fp32, bf16, fp16, fp8_hybrid, fp8_pure, fp4, or a .module file with a recipe; default: the recipe of the model
    #[arg(long, value_name = "RECIPE", default_value = "", hide_default_value = true)]
    pub(crate) recipe: String,
}

impl PrecisionArgs {
    pub(crate) fn recipe(&self) -> Result<Option<lang::lower::PrecisionRecipe>, UsageError> {
        models::parse_recipe(&self.recipe).map_err(usage_error)
    }
}

/// What `loom compile` writes.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Emit {
    Graph,
    Schedule,
    Schema,
    Config,
    Metadata,
    Program,
    /// A trained model as a C library
    CLibrary,
}

/// Options of `loom compile`.
#[derive(clap::Args)]
pub(crate) struct Compile {
    #[command(flatten)]
    chosen: ModelArgs,
    /// What to print or write
    #[arg(long, value_name = "WHAT")]
    emit: Emit,
    /// Print the graph as JSON, including the backward graph
    #[arg(long)]
    json: bool,
    /// Show the program of one rank of a device mesh, with its collectives: --mesh dp=2,tp=2
    #[arg(long, value_name = "AXES", default_value = "", hide_default_value = true)]
    mesh: String,
    #[command(flatten)]
    precise: PrecisionArgs,
    #[command(flatten)]
    pub(crate) library: crate::c_library::CLibraryArgs,
}

/// Options of `loom explain`.
#[derive(clap::Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    chosen: ModelArgs,
    /// Run the model and time the regions marked by `@profile`
    #[arg(long)]
    time: bool,
    #[command(flatten)]
    precise: PrecisionArgs,
}

/// Options of `loom verify-backward`.
#[derive(clap::Args)]
pub(crate) struct VerifyBackward {
    #[command(flatten)]
    chosen: ModelArgs,
    /// Step size of the finite differences
    #[arg(long, value_name = "X", value_parser = command::above_zero)]
    epsilon: Option<f64>,
    /// Maximum difference between gradients, relative to the largest element
    #[arg(long, value_name = "X", value_parser = command::above_zero)]
    tolerance: Option<f64>,
}

/// A checked declaration with the parameters and sizes from the command line.
struct CheckedModel {
    program: ModuleProgram,
    item: ItemRef,
    given: BTreeMap<String, ConstValue>,
    inputs: Vec<Type>,
}

/// Parses a dtype of computation.
pub(crate) fn dtype(text: &str) -> Result<DType, String> {
    match text {
        "f32" => Ok(DType::F32),
        "bf16" => Ok(DType::BF16),
        _ => Err("must be f32 or bf16".into()),
    }
}

/// Returns the declaration to compile, or `None` after printing its errors.
fn check_model(args: &ModelArgs) -> Result<Option<CheckedModel>, UsageError> {
    let program = load_program(&args.file)?;
    let found = findings(&program);
    if found.iter().any(Diagnostic::is_error) {
        draw(&program, &found);
        return Ok(None);
    }
    let items = 0..program.files[0].ast.items.len();
    let items: Vec<ItemRef> = items.map(|item| ItemRef { file: 0, item }).collect();
    let named = |item: &ItemRef| program.decl(*item).map(|decl| (decl.name.name.as_str(), decl.kind));
    let item = match args.model.as_deref() {
        Some(name) => items.iter().find(|item| named(item).is_some_and(|(n, _)| n == name)),
        None => (items.iter().find(|item| named(item).is_some_and(|(_, kind)| kind == DeclKind::Model)))
            .or_else(|| items.iter().rev().find(|item| named(item).is_some())),
    };
    let Some(&item) = item else {
        let names: Vec<&str> = items.iter().filter_map(named).map(|(name, _)| name).collect();
        return Err(UsageError(format!("declaration not found: `--model` must be one of {}", names.join(", "))));
    };
    let mut given = BTreeMap::new();
    for setting in &args.set {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(UsageError(format!("`--set {setting}` must have the form NAME=VALUE")));
        };
        let name = name.trim().to_string();
        if given.contains_key(&name) {
            return Err(UsageError(format!("`--set {name}` is given twice")));
        }
        given.insert(name, parse_value(value.trim()));
    }
    let given = check_given(&program, item, &given).map_err(|fault| UsageError(format!("`--set`: {fault}")))?;
    let mut given = given;
    match input_sizes(args, &program, item, &mut given)? {
        Ok(inputs) => Ok(Some(CheckedModel { program, item, given, inputs })),
        Err(found) => {
            draw(&program, &[*found]);
            Ok(None)
        }
    }
}

fn parse_value(text: &str) -> ConstValue {
    match (text, text.parse::<i64>(), text.parse::<f64>()) {
        ("true" | "false", ..) => ConstValue::bool(text == "true"),
        ("None", ..) => ConstValue::None,
        (_, Ok(n), _) => ConstValue::int(n),
        (_, _, Ok(x)) if x.is_finite() => ConstValue::Float(Some(x)),
        _ => ConstValue::Str(text.to_string()),
    }
}

/// Returns the types of the inputs. `B` and the size that `let:` calls `batch_dim` are the batch size; `T` and `seq_dim` are the
/// sequence length. Other sizes are given on the command line, have defaults, or are inferred. A size with a role in `let:` is
/// added to `given`, since it may occur in the inputs only as part of an expression.
fn input_sizes(
    args: &ModelArgs,
    program: &ModuleProgram,
    item: ItemRef,
    given: &mut BTreeMap<String, ConstValue>,
) -> Result<lang::lower::Result<Vec<Type>>, UsageError> {
    let (batch, steps) = (args.batch_size.unwrap_or(1), args.seq_len.unwrap_or(16));
    let told = RefCell::new(BTreeMap::new());
    let types_for = |batch: usize, steps: usize| {
        let free = |name: &str, role: Option<&str>| {
            let size = match (role, name) {
                (Some("batch_dim"), _) | (None, "B") => batch,
                (Some("seq_dim"), _) | (None, "T") => steps,
                _ => return None,
            };
            if role.is_some() {
                told.borrow_mut().insert(name.to_string(), ConstValue::int(size as i64));
            }
            Some(size)
        };
        input_types(program, item, given, &free, &[batch, steps], args.dtype)
    };
    for (option, symbol, chosen, other) in
        [("batch-size", "B", args.batch_size, (batch + 1, steps)), ("seq-len", "T", args.seq_len, (batch, steps + 1))]
    {
        let same = |a: &[Type]| types_for(other.0, other.1).is_ok_and(|b| a == b);
        if chosen.is_some() && types_for(batch, steps).is_ok_and(|types| same(&types)) {
            return Err(UsageError(format!(
                "`--{option}` has no effect: no input has a symbolic dimension `{symbol}`"
            )));
        }
    }
    let types = types_for(batch, steps);
    given.extend(told.into_inner());
    Ok(types)
}

impl CheckedModel {
    fn name(&self) -> &str {
        self.program.decl(self.item).map_or("", |decl| &decl.name.name)
    }

    fn lower(&self, dtype: DType, recipe: Option<lang::lower::PrecisionRecipe>) -> Option<Lowered> {
        // Assertions are compiled into the graph; those that are known to fail are reported here.
        let options = LowerOptions { dtype, recipe, asserts: true, ..LowerOptions::default() };
        match lower(&self.program, self.item, &self.given, &self.inputs, &options) {
            Ok(lowered) => Some(lowered),
            Err(found) => {
                draw(&self.program, &[*found]);
                None
            }
        }
    }
}

pub(crate) fn compile(args: &Compile) -> Result<ExitStatus, UsageError> {
    if let Emit::CLibrary = args.emit {
        return crate::c_library::write(&args.chosen, &args.library);
    }
    let Some(target) = check_model(&args.chosen)? else {
        return Ok(ExitStatus::FindingsReported);
    };
    let Some(mut lowered) = target.lower(args.chosen.dtype, args.precise.recipe()?) else {
        return Ok(ExitStatus::FindingsReported);
    };
    let mesh = ir::Mesh::parse(&args.mesh).map_err(|e| UsageError(e.to_string()))?;
    if mesh.ranks() > 1 {
        if args.json || !matches!(args.emit, Emit::Graph | Emit::Program) {
            return Err(UsageError(
                "`--mesh` can only be used with `--emit graph` or `--emit program`, without `--json`".into(),
            ));
        }
        lowered.graph = models::shard_graph(&lowered.graph, &lowered.params, &mesh).map_err(usage_error)?;
    }
    match args.emit {
        Emit::Graph if args.json => {
            let back = with_backward(&lowered).map_err(|e| UsageError(e.to_string()))?;
            outln!("{}", graph_json::json(&target.program, target.item, &lowered, back.as_ref()));
        }
        Emit::Graph => outln!("{}", lowered.graph),
        Emit::Schema => outln!("{:#}", json!(schema(&target, &lowered)?)),
        Emit::Program => {
            let cpu = args.chosen.machine.open()?;
            let program = compiler::compile(&lowered.graph, &*cpu, &compiler::Options::default());
            outln!("{}", program.map_err(|e| UsageError(e.to_string()))?);
        }
        Emit::Schedule => {
            let cpu = args.chosen.machine.open()?;
            let program = compiler::compile(&lowered.graph, &*cpu, &compiler::Options::default());
            let program = program.map_err(|e| UsageError(e.to_string()))?;
            let mut shown = schedule::schedule_json(target.name(), &lowered, &program);
            if let Some(back) = with_backward(&lowered).map_err(|e| UsageError(e.to_string()))? {
                let both = compiler::compile(&back, &*cpu, &compiler::Options::default());
                shown["training"] =
                    schedule::training_schedule_json(&lowered, &both.map_err(|e| UsageError(e.to_string()))?);
            }
            outln!("{shown:#}");
        }
        // This form needs a trained model and has been written above.
        Emit::CLibrary => {}
        Emit::Config => outln!("{:#}", config(&target)),
        Emit::Metadata => outln!("{:#}", metadata(&target, &lowered)),
    }
    Ok(ExitStatus::Success)
}

/// Describes the parameters, each with the checkpoint tensors that it is converted from and to.
fn schema(target: &CheckedModel, lowered: &Lowered) -> Result<Vec<serde_json::Value>, UsageError> {
    let mapped = ModuleView::new(&target.program, target.item).is_some_and(|view| !view.mappings.is_empty());
    let architecture = Architecture {
        program: target.program.clone(),
        item: target.item,
        name: target.name().to_string(),
        constants: target.given.clone(),
        absent_weights: std::collections::BTreeSet::new(),
        recipe: None,
    };
    let sources = match mapped {
        true => architecture.sources(&lowered.params).map_err(usage_error)?.into_iter().map(Some).collect(),
        false => vec![None; lowered.params.len()],
    };
    let slice = |slice: &ParamSlice| {
        let parts = slice.parts.iter().map(|part| {
            json!({ "name": part.tensor, "transposed": part.transposed, "function": format!("{:?}", part.function) })
        });
        json!({ "along": slice.dim, "optional": slice.optional, "tensors": parts.collect::<Vec<_>>() })
    };
    let params = lowered.params.iter().zip(&sources);
    let params = params.map(|(p, source)| {
        let from = source.as_ref().map(|source| match source {
            ParamSources::Whole(whole) => slice(whole),
            ParamSources::Stacked(slices) => json!({ "stacked": slices.iter().map(slice).collect::<Vec<_>>() }),
        });
        json!({
            "name": p.path, "shape": p.ty.shape.to_vec(), "dtype": p.ty.dtype.to_string(), "trainable": p.trainable,
            "from": from,
        })
    });
    Ok(params.collect())
}

/// Describes which field of `config.json` sets which parameter, and the default of each parameter.
fn config(target: &CheckedModel) -> serde_json::Value {
    let view = ModuleView::new(&target.program, target.item);
    let text = |span: lang::Span| target.program.sources.slice(span).to_string();
    let mut fields = serde_json::Map::new();
    let (mut architecture, mut class) = (serde_json::Value::Null, serde_json::Value::Null);
    for entry in view.iter().flat_map(|view| &view.config) {
        match &entry.value {
            ConfigValue::Expr(expr) if entry.key.name == "architecture" => {
                architecture = text(expr.span).trim_matches('"').into();
            }
            ConfigValue::Expr(expr) if entry.key.name == "config_class" => {
                class = text(expr.span).trim_matches('"').into();
            }
            ConfigValue::Map(pairs) => {
                for pair in pairs {
                    if let ConfigValue::Expr(expr) = &pair.value {
                        fields.insert(pair.key.name.clone(), text(expr.span).into());
                    }
                }
            }
            _ => {}
        }
    }
    let header = view.iter().flat_map(|view| &view.header).filter_map(|param| match param {
        Param::Named { name, ty, default, .. } => Some(json!({
            "name": name.name,
            "type": ty.as_ref().map(|ty| text(ty.span)),
            "default": default.as_ref().map(|default| text(default.span)),
            "field": fields.get(&name.name),
        })),
        Param::Elided(_) => None,
    });
    json!({ "architecture": architecture, "config_class": class, "parameters": header.collect::<Vec<_>>() })
}

/// Returns the shapes, dtypes, hook points and other metadata for a runtime.
fn metadata(target: &CheckedModel, lowered: &Lowered) -> serde_json::Value {
    let tensor =
        |name: &String, ty: &Type| json!({ "name": name, "shape": ty.shape.to_vec(), "dtype": ty.dtype.to_string() });
    let inputs = lowered.inputs.iter().zip(&target.inputs).map(|(name, ty)| tensor(name, ty));
    let outputs = lowered.graph.output_types();
    let outputs = lowered.outputs.iter().zip(&outputs).map(|(name, ty)| tensor(name, ty));
    json!({
        "name": target.name(),
        "inputs": inputs.collect::<Vec<_>>(),
        "outputs": outputs.collect::<Vec<_>>(),
        "parameters": lowered.params.iter().map(|p| p.ty.numel()).sum::<usize>(),
        "tied": lowered.tied,
        "hook_points": lowered.hook_points,
        "profiles": lowered.profiled,
    })
}

pub(crate) fn explain(args: &Explain) -> Result<ExitStatus, UsageError> {
    let Some(target) = check_model(&args.chosen)? else {
        return Ok(ExitStatus::FindingsReported);
    };
    let Some(lowered) = target.lower(args.chosen.dtype, args.precise.recipe()?) else {
        return Ok(ExitStatus::FindingsReported);
    };
    let elements: usize = lowered.params.iter().map(|p| p.ty.numel()).sum();
    let bytes: usize = lowered.params.iter().map(|p| p.ty.bytes()).sum();
    outln!("{}", target.name());
    outln!("  parameters   {} tensors, {elements} elements, {bytes} bytes", lowered.params.len());
    for (name, ty) in lowered.inputs.iter().zip(&target.inputs) {
        outln!("  input        {name}: {ty}");
    }
    for (name, ty) in lowered.outputs.iter().zip(lowered.graph.output_types()) {
        outln!("  output       {name}: {ty}");
    }
    let cpu = args.chosen.machine.open()?;
    let plan = |graph: &ir::Graph| compiler::compile(graph, &*cpu, &compiler::Options::default());
    let forward = plan(&lowered.graph).map_err(|e| UsageError(e.to_string()))?;
    outln!("  forward      {} steps, {} bytes of activations and workspace", forward.steps.len(), forward.arena_bytes);
    let mut outcome = ExitStatus::Success;
    let back = with_backward(&lowered).map_err(|e| UsageError(e.to_string()))?;
    if let Some(back) = &back {
        let back = plan(back).map_err(|e| UsageError(e.to_string()))?;
        outln!("  and backward {} steps, {} bytes of activations and workspace", back.steps.len(), back.arena_bytes);
    }
    for point in &lowered.hook_points {
        outln!("  hook         {point}");
    }
    for line in &lowered.trace {
        outln!("  trace        {line}");
    }
    for line in &lowered.ignored {
        outln!("  no effect    {line}");
    }
    for line in &lowered.emulated {
        outln!("  emulated     {line}");
    }
    if !lowered.fusions.is_empty() || !lowered.profiled.is_empty() {
        let (program, notes) = compiler::explain(&lowered.graph, &*cpu, &compiler::Options::default())
            .map_err(|e| UsageError(e.to_string()))?;
        outcome = report_fusions(&lowered, &notes);
        for name in &lowered.profiled_memory {
            outln!("  memory       {name}: its steps write {} bytes", bytes_written(&program, &steps_of(&notes, name)));
        }
    }
    if args.time {
        if lowered.profiled.is_empty() {
            return Err(UsageError(
                "`--time` measures regions marked by `@profile(\"name\")`, but the model has none: add the annotation"
                    .into(),
            ));
        }
        let passes = [("forward", Some(&lowered.graph)), ("with backward", back.as_ref())];
        for (pass, graph) in passes.into_iter().filter_map(|(pass, graph)| Some((pass, graph?))) {
            for profile in measure(graph, &lowered, &*cpu)? {
                outln!(
                    "  time         {} {pass}: {:.3} ms ({:.0} %), {} steps that write {} bytes",
                    profile.name,
                    profile.time.as_secs_f64() * 1e3,
                    100.0 * profile.share,
                    profile.steps,
                    profile.bytes
                );
            }
        }
    }
    Ok(outcome)
}

/// Prints how many steps each marked statement compiled to. A `@fuse_required` statement with more than one step is an error.
fn report_fusions(lowered: &Lowered, notes: &compiler::Explanation) -> ExitStatus {
    let steps = |inside: &dyn Fn(&str) -> bool| -> usize {
        let hits = notes.steps.iter().filter(|note| {
            let places = note.fused.iter().chain([&note.description]);
            places.filter_map(|line| line.rsplit_once(" at ")).any(|(_, place)| inside(place))
        });
        let numbers: std::collections::BTreeSet<&str> = hits.map(|note| note.step.as_str()).collect();
        numbers.len()
    };
    for name in &lowered.profiled {
        let marker = format!("[{name}] ");
        outln!("  profile      {name}: {} steps", steps(&|place| place.starts_with(&marker)));
    }
    let mut outcome = ExitStatus::Success;
    for fusion in &lowered.fusions {
        let count = steps(&|place| {
            let place = place.split_once("] ").map_or(place, |(_, rest)| rest);
            let rest = place.strip_prefix(&fusion.file).and_then(|rest| rest.strip_prefix(':'));
            let line = rest.and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
            line.is_some_and(|line| (fusion.first..=fusion.last).contains(&line))
        });
        let place = format!("{}:{}", fusion.file, fusion.first);
        if fusion.required && count > 1 {
            outln!("  fusion       {place}: {count} steps, but `@fuse_required` requires one");
            outcome = ExitStatus::FindingsReported;
        } else {
            outln!("  fusion       {place}: {count} step{}", if count == 1 { "" } else { "s" });
        }
    }
    outcome
}

/// Returns forward and backward as one graph, or `None` if no parameter is trainable.
fn with_backward(lowered: &Lowered) -> ir::Result<Option<ir::Graph>> {
    let wrt: Vec<usize> = (0..lowered.params.len()).filter(|&i| lowered.params[i].trainable).collect();
    (!wrt.is_empty()).then(|| transform::vjp(&lowered.graph, &wrt)).transpose()
}

/// Compares the gradients of hand-written backward graphs, of automatic differentiation and of finite differences, in f64, on
/// fixed pseudo-random operands.
pub(crate) fn verify_backward(args: &VerifyBackward) -> Result<ExitStatus, UsageError> {
    let Some(target) = check_model(&args.chosen)? else {
        return Ok(ExitStatus::FindingsReported);
    };
    let settings = GradientCheckOptions { epsilon: args.epsilon, tolerance: args.tolerance };
    let found =
        lang::verify::verify_backward_with(&target.program, target.item, &target.given, &target.inputs, &settings);
    let checks = match found {
        Ok(checks) => checks,
        Err(GradientCheckError::Diagnostic(found)) => {
            draw(&target.program, &[*found]);
            return Ok(ExitStatus::FindingsReported);
        }
        Err(GradientCheckError::Graph(error)) => return Err(UsageError(error.to_string())),
    };
    for check in &checks {
        let verdict = if check.passes() { "ok" } else { "DIFFERS" };
        match check.skipped {
            true => outln!("{:8} d_{}: not computed, as declared", "skipped", check.name),
            false => outln!(
                "{verdict:8} d_{}: relative difference {:.1e} from automatic differentiation, {:.1e} from finite \
                 differences",
                check.name,
                check.derived_error,
                check.finite_difference
            ),
        }
    }
    Ok(if checks.iter().all(lang::verify::GradientCheck::passes) {
        ExitStatus::Success
    } else {
        ExitStatus::FindingsReported
    })
}
