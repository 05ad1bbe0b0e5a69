//! Lowering: converts a checked declaration with given sizes to an `ir::Graph`.
//!
//! The graph's inputs are the parameters in the order of their declaration, depth first, then the tensors of `in:`.
//! Modules are inlined, `StackedBlocks` is unrolled or becomes a scan ([`LowerOptions::scan`]). A module with an explicit
//! backward graph becomes a composite with that graph as its custom derivative, which `transform` uses.
//!
//! With [`LowerOptions::decode`] the graph is one decode step: attention and state-space primitives keep past values in caches,
//! which are additional inputs and outputs, and positions are offset by an i32 input. Axis 1 of every input is the sequence. If a
//! model mixes positions in other ways, [`SequenceLimits::not_incremental`] gives the reason why a step is not sufficient.

mod adapter;
mod annotate;
mod annotations;
mod assertion;
mod backward;
mod call;
mod checkpoint;
mod declare;
mod dropout;
mod frame;
mod graph;
mod hooks;
mod paths;
mod primitives;
mod quantized_types;
mod recipe;
mod rope_table;
mod sequence;
mod sizes;
mod stack;

use crate::ast::{Expr, LetItem, Param, WeightPath, WeightSpec};
use crate::consteval::ConstValue as Const;
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::{ItemRef, ModuleProgram, ModuleView};
use crate::span::Span;
use checkpoint::RecomputeRegion;
use frame::ModuleFrame;
use ir::{Builder, DType, Graph, GraphBuilder, Loc, Type, Value};
use rope_table::RopeTable;
use sequence::{SequenceAnalysis, SequenceDependence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Options of a lowering.
#[derive(Clone, Debug)]
pub struct LowerOptions {
    /// The dtype of parameters and activations without a declared dtype.
    pub dtype: DType,
    /// Lowers one decode step, with caches for this many positions.
    pub decode: Option<usize>,
    /// Uses explicit backward graphs; otherwise all derivatives are derived.
    pub custom_backward: bool,
    /// Stacks the parameters of block arrays along a first axis, and lowers the arrays to scans.
    pub scan: bool,
    /// The registered hooks.
    pub hooks: HookRegistry,
    /// Makes probes and value traces outputs.
    pub probes: bool,
    /// Makes assertions outputs.
    pub asserts: bool,
    /// Lowers for training: adapters apply their `dropout`.
    pub training: bool,
    /// Paths of optional parameters, and names of optional inputs, that are `None`.
    pub absent: BTreeSet<String>,
    /// A recipe that replaces the model's own; annotations of operations take precedence over it.
    pub recipe: Option<PrecisionRecipe>,
}

impl Default for LowerOptions {
    fn default() -> LowerOptions {
        LowerOptions {
            dtype: DType::F32,
            decode: None,
            custom_backward: true,
            scan: false,
            hooks: HookRegistry::new(),
            probes: false,
            asserts: false,
            training: false,
            absent: BTreeSet::new(),
            recipe: None,
        }
    }
}

/// A parameter of a lowered declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its path, such as `blocks[3].attention.qkv_weight`.
    pub path: String,
    /// Its type.
    pub ty: Type,
    /// Whether it is trained: not `@frozen`.
    pub trainable: bool,
    /// Learning rate multiplier.
    pub lr_scale: f64,
    /// Weight decay multiplier.
    pub wd_scale: f64,
    /// Maximum norm of its gradient.
    pub grad_clip: Option<f64>,
    /// Its initial values.
    pub init: ParamInit,
    /// Whether it belongs to an `@adapter`: a checkpoint of the base model does not contain it.
    pub adapter: bool,
    /// Its sharding over devices.
    pub shard: Option<Shard>,
    /// Whether it is a stack of the parameters of several blocks, along a first axis.
    pub stacked: bool,
    /// The low-precision format in which it is stored: the graph rounds it where it is read.
    pub rounding: Option<transform::Rounding>,
}

/// A sharding strategy of `@shard` (§7.6.1) for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shard {
    /// Along its output dimension, the first.
    Column,
    /// Along its input dimension, the last.
    Row,
    /// Replicated on all devices.
    Replicated,
    /// Experts, the first dimension.
    Expert,
    /// Heads, the first dimension.
    Head,
}

impl Shard {
    /// The strategy with this name; `sequence` and `batch` apply only to activations.
    pub fn from_name(name: &str) -> Option<Shard> {
        match name {
            "column" => Some(Shard::Column),
            "row" => Some(Shard::Row),
            "replicated" => Some(Shard::Replicated),
            "expert" => Some(Shard::Expert),
            "head" => Some(Shard::Head),
            _ => None,
        }
    }
}

impl Parameter {
    /// A trainable parameter with default attributes.
    pub fn new(path: String, ty: Type) -> Parameter {
        Parameter {
            path,
            ty,
            trainable: true,
            lr_scale: 1.0,
            wd_scale: 1.0,
            grad_clip: None,
            init: ParamInit::Default,
            adapter: false,
            shard: None,
            stacked: false,
            rounding: None,
        }
    }
}

/// The initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamInit {
    /// By its name and shape.
    Default,
    /// Zeros: the second matrix of an adapter, which starts without effect.
    Zeros,
    /// Ones: scaling factors that start without effect.
    Ones,
}

/// A statement that should be compiled to a single step.
#[derive(Clone, Debug, PartialEq)]
pub struct Fusion {
    /// The file of the statement.
    pub file: String,
    /// Its first line.
    pub first: usize,
    /// Its last line.
    pub last: usize,
    /// Whether it is `@fuse_required`, not only `@fuse`.
    pub required: bool,
    /// The annotation.
    pub span: Span,
}

/// A lowered declaration.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// From parameters, inputs (in decoding: position and caches too) to outputs (and caches).
    pub graph: Graph,
    /// The parameters, which are the first inputs of the graph.
    pub params: Vec<Parameter>,
    /// Tied parameters: alias, target, such as `lm_head`, `embedding`.
    pub tied: Vec<(String, String)>,
    /// Names of the inputs after the parameters.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Types of the caches of a decode step: inputs after the position, and outputs after the others.
    pub caches: Vec<Type>,
    /// Outputs for observation, after all others.
    pub observations: Vec<Observation>,
    /// Gradient probes: zero inputs after all others; their gradients are those of the probed tensors.
    pub gradient_probes: Vec<Observation>,
    /// Amax histories of delayed scaling, inputs after those, initially zero; only for training. Their gradients are their next values.
    pub amax_histories: Vec<Type>,
    /// Whether the last input is a random key, `u32[2]`, which should differ in every run.
    pub needs_rng: bool,
    /// The hook points in the graph.
    pub hook_points: Vec<String>,
    /// Lines of `@trace`, in the order of the graph.
    pub trace: Vec<String>,
    /// Statements with `@fuse` or `@fuse_required`.
    pub fusions: Vec<Fusion>,
    /// Names of `@profile`; the labels of their ops start with `[name]`.
    pub profiled: Vec<String>,
    /// Those of them with `memory=true`, whose written bytes are reported too.
    pub profiled_memory: BTreeSet<String>,
    /// Annotations without effect on this machine, each with its location and the reason.
    pub ignored: Vec<String>,
    /// Formats without hardware support, each with its location and how it is emulated.
    pub emulated: Vec<String>,
    /// Options of the gradient reduction over ranks, from `@comm` in backward graphs.
    pub grad_reduction: GradReductionOptions,
}

/// Options of the gradient reduction over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GradReductionOptions {
    /// Bytes per bucket: the smallest `bucket_size`.
    pub bucket_bytes: Option<usize>,
    /// Whether ranks wait for each reduction (`async=false`) and do not overlap it with computation.
    pub synchronous: bool,
}

pub(crate) use declare::accepts_word;
pub use dropout::dropout;
pub use hooks::{HookRegistry, HookSite, LayerIndex, Observation, ObservationKind, RewriteFn};
pub use primitives::mean_cross_entropy;
pub(crate) use quantized_types::is_low_precision_dtype;
pub(crate) use recipe::{NoNames, STRATEGIES};
pub use recipe::{POLICIES, PrecisionRecipe, TensorFormat};
pub use sizes::{check_given, constant, input_types};

/// The limits on sequences that a model's graph implies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceLimits {
    /// Why the model does not support incremental decoding; none if it does.
    pub not_incremental: Option<String>,
    /// The vocabulary size: the smallest number of rows of a table that is indexed by token IDs.
    pub vocabulary: Option<usize>,
    /// The maximum sequence length: the smallest number of rows of a table that is indexed by position.
    pub max_positions: Option<usize>,
    /// The number of classes: the last size of the first result.
    pub classes: Option<usize>,
}

/// The result of lowering; an error is one diagnostic.
pub type Result<T> = std::result::Result<T, Box<Diagnostic>>;

/// Lowers a declaration for the given parameters and input types.
pub fn lower(
    program: &ModuleProgram,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
    inputs: &[Type],
    options: &LowerOptions,
) -> Result<Lowered> {
    let view = view(program, item)?;
    let time = match options.decode {
        Some(_) => Some(trace_decode_step(&view, program, given, inputs, options)?.0.replay()),
        None => None,
    };
    let mut lowerer = Lowerer { time: time.clone(), ..Lowerer::new(program, options) };
    let lowered = lowerer.run(&view, given, inputs)?;
    if lowerer.adapters_found.is_empty() {
        return Ok(lowered);
    }
    let adapters = std::mem::take(&mut lowerer.adapters_found);
    Lowerer { adapters: Some(adapters), time, ..Lowerer::new(program, options) }.run(&view, given, inputs)
}

/// Returns the limits on sequences that a declaration's graph implies.
pub fn limits(
    program: &ModuleProgram,
    item: ItemRef,
    given: &BTreeMap<String, Const>,
    inputs: &[Type],
    options: &LowerOptions,
) -> Result<SequenceLimits> {
    Ok(trace_decode_step(&view(program, item)?, program, given, inputs, options)?.1)
}

fn view(program: &ModuleProgram, item: ItemRef) -> Result<ModuleView<'_>> {
    ModuleView::new(program, item).ok_or_else(|| {
        let span = Span::new(program.files[0].id, 0, 0);
        Box::new(Diagnostic::new(Code::E002, span, "nothing to lower: not a module or model"))
    })
}

/// Lowers a decode step with a number of positions that differs from all other sizes.
fn trace_decode_step(
    view: &ModuleView<'_>,
    program: &ModuleProgram,
    given: &BTreeMap<String, Const>,
    inputs: &[Type],
    options: &LowerOptions,
) -> Result<(SequenceAnalysis, SequenceLimits)> {
    let mut tried = sequence::TRIALS.iter().map(|&steps| trial_of(steps, view, program, given, inputs, options));
    let first = tried.next().unwrap_or_else(|| Ok(Default::default()));
    first.or_else(|found| tried.find_map(Result::ok).ok_or(found))
}

fn trial_of(
    steps: usize,
    view: &ModuleView<'_>,
    program: &ModuleProgram,
    given: &BTreeMap<String, Const>,
    inputs: &[Type],
    options: &LowerOptions,
) -> Result<(SequenceAnalysis, SequenceLimits)> {
    let mut inputs = inputs.to_vec();
    inputs.iter_mut().filter_map(|ty| ty.shape.get_mut(1)).for_each(|size| *size = steps);
    let options = LowerOptions { decode: Some(steps), ..options.clone() };
    let mut lowerer = Lowerer { time: Some(SequenceAnalysis::new_trial()), ..Lowerer::new(program, &options) };
    let mut lowered = lowerer.run(view, given, &inputs)?;
    if !lowerer.adapters_found.is_empty() {
        let adapters = std::mem::take(&mut lowerer.adapters_found);
        let time = Some(SequenceAnalysis::new_trial());
        lowerer = Lowerer { adapters: Some(adapters), time, ..Lowerer::new(program, &options) };
        lowered = lowerer.run(view, given, &inputs)?;
    }
    let time = lowerer.time.take().unwrap_or_default();
    let classes = lowered.graph.outputs().first().and_then(|out| lowered.graph.ty(*out).shape.last().copied());
    let limits = SequenceLimits {
        not_incremental: time.cross_position_reason().map(String::from),
        vocabulary: lowerer.vocabulary,
        max_positions: lowerer.max_positions,
        classes,
    };
    Ok((time, limits))
}

/// The maximum nesting depth of modules; more is treated as infinite recursion.
const MAX_DEPTH: usize = 64;

/// The maximum number of modules of a model (L008).
pub const MAX_MODULES: usize = 100_000;

/// The maximum number of statements of a model (L008).
pub const MAX_STATEMENTS: usize = 500_000;

fn too_large<T>(span: Span, message: String, label: &str) -> Result<T> {
    fail(Code::L008, span, message, label)
}

/// A table, its number of positions, and its cosines and sines.
type TableRows = (RopeTable, usize, (Value, Value));

struct Lowerer<'a> {
    program: &'a ModuleProgram,
    options: &'a LowerOptions,
    b: Builder,
    params: Vec<Parameter>,
    tied: Vec<(String, String)>,
    /// Values of parameters as they are stored, by path.
    made: BTreeMap<String, (Value, Type)>,
    /// Parameters that `hf_mapping` ties to others.
    ties: Vec<(WeightPath, WeightPath)>,
    /// Number of declared modules, and of lowered statements.
    modules: usize,
    statements: usize,
    /// Tables that exist in the current builder.
    tables: Vec<TableRows>,
    /// Caches of decoding: inputs and outputs.
    caches: Vec<(Value, Value)>,
    position: Option<Value>,
    /// The dependence of values on the sequence, in decoding.
    time: Option<SequenceAnalysis>,
    /// Values of `positions`, and the limits from position tables.
    counted: Vec<Value>,
    ids: Vec<Value>,
    max_positions: Option<usize>,
    vocabulary: Option<usize>,
    depth: usize,
    /// Whether the backward pass recomputes each block of the next stack.
    checkpoint_blocks: Option<RecomputeRegion>,
    /// The region around the current statement.
    region: Option<RecomputeRegion>,
    /// The path of the current instance.
    path: String,
    layer: Option<LayerIndex>,
    /// The compute dtype of primitives.
    compute: Option<DType>,
    /// The low-precision format of products.
    few: Option<transform::MatmulRounding>,
    /// Whether the current statement has its own precision, which takes precedence over recipes.
    own_precision: bool,
    /// The low-precision format of the model's recipe.
    whole: Option<transform::MatmulRounding>,
    /// Whether there are quantized tensors, and the number of roundings.
    quantizes: bool,
    rounded: usize,
    /// The `@scaling` for the `quantize` of the current statement.
    quantizing: Option<recipe::ScalingStrategy>,
    emulated: Vec<String>,
    /// The dtype of statements' results.
    output: Option<DType>,
    /// The current trace level.
    trace_level: Option<String>,
    /// The current profile.
    profile: Option<String>,
    /// Whether an explicit backward graph is being lowered.
    in_backward: bool,
    /// The number of modifications of the forward graph that explicit backward graphs don't know.
    changed: usize,
    observed: hooks::ObservedValues,
    points: BTreeSet<String>,
    trace: Vec<String>,
    fusions: Vec<Fusion>,
    profiled: Vec<String>,
    profiled_memory: BTreeSet<String>,
    ignored: Vec<String>,
    summing: GradReductionOptions,
    /// Adapters to declare, and adapters found before they were declared.
    adapters: Option<Vec<adapter::DeclaredAdapter>>,
    adapters_found: Vec<adapter::DeclaredAdapter>,
    /// Inputs that follow all others.
    taps: hooks::ObservedValues,
    key: Option<Value>,
}

impl<'a> Lowerer<'a> {
    fn new(program: &'a ModuleProgram, options: &'a LowerOptions) -> Lowerer<'a> {
        Lowerer {
            program,
            options,
            b: Builder::new(),
            params: Vec::new(),
            tied: Vec::new(),
            made: BTreeMap::new(),
            ties: Vec::new(),
            modules: 0,
            statements: 0,
            tables: Vec::new(),
            caches: Vec::new(),
            position: None,
            time: None,
            counted: Vec::new(),
            ids: Vec::new(),
            max_positions: None,
            vocabulary: None,
            depth: 0,
            checkpoint_blocks: None,
            region: None,
            path: String::new(),
            layer: None,
            compute: None,
            few: None,
            own_precision: false,
            whole: None,
            quantizes: false,
            rounded: 0,
            quantizing: None,
            emulated: Vec::new(),
            output: None,
            trace_level: None,
            profile: None,
            in_backward: false,
            changed: 0,
            observed: Vec::new(),
            points: BTreeSet::new(),
            trace: Vec::new(),
            fusions: Vec::new(),
            profiled: Vec::new(),
            profiled_memory: BTreeSet::new(),
            ignored: Vec::new(),
            summing: GradReductionOptions::default(),
            adapters: None,
            adapters_found: Vec::new(),
            taps: Vec::new(),
            key: None,
        }
    }
}

impl Lowerer<'_> {
    fn run(&mut self, view: &ModuleView<'_>, given: &BTreeMap<String, Const>, inputs: &[Type]) -> Result<Lowered> {
        self.ties = ties(view);
        let mut frame = ModuleFrame::new(view.item.file, given.clone());
        frame.defaults(view, view.decl.name.span)?;
        frame.eval_lets(view, false)?;
        let instance = self.declare(view, &frame, "", &declare::ParameterDefaults::default())?;
        let values: Vec<Value> = inputs.iter().map(|ty| self.b.graph.input(ty.clone())).collect();
        let all = view.forward.inputs.iter().map(|t| frame::io_name(t, "in"));
        let (mut names, mut there): (Vec<String>, Vec<bool>) = (Vec::new(), Vec::new());
        for name in all {
            there.push(!self.options.absent.contains(&name));
            names.extend(Some(name).filter(|_| there.last() == Some(&true)));
        }
        let mut results: Vec<String> = view.forward.outputs.iter().map(|t| frame::io_name(t, "out")).collect();
        // A residual pattern has one implicit input and output.
        if view.pattern.is_some() && view.forward.graph.is_none() && names.is_empty() {
            names.push("in".to_string());
            results.push("out".to_string());
        }
        if self.options.decode.is_some() {
            let position = self.b.graph.input(Type::new(DType::I32, &[]));
            self.position = Some(position);
            values.iter().for_each(|value| self.set_dependence(*value, SequenceDependence::rows(1)));
            self.set_cross_position(&[position], "the position");
        }
        self.ids = values.clone();
        // Absent optional inputs keep their places.
        let mut values = values.into_iter();
        let mut given: Vec<Option<Value>> =
            there.into_iter().map(|there| if there { values.next() } else { None }).collect();
        given.extend(values.map(Some));
        while given.last() == Some(&None) {
            given.pop();
        }
        let mut outputs = self.run_instance(&instance, given, view.decl.name.span)?;
        self.check_outputs(&outputs);
        let caches: Vec<Type> = self.caches.iter().map(|(v, _)| self.b.graph.ty(*v).clone()).collect();
        outputs.extend(self.caches.iter().map(|(_, out)| *out));
        let (observed, values): (Vec<_>, Vec<_>) = std::mem::take(&mut self.observed).into_iter().unzip();
        outputs.extend(values);
        self.unknown_point(view.decl.name.span)?;
        let graph = std::mem::take(&mut self.b).finish(&outputs);
        let (tapped, taps): (Vec<_>, Vec<_>) = std::mem::take(&mut self.taps).into_iter().unzip();
        let keyed = self.key.is_some();
        let last: Vec<Value> = taps.into_iter().chain(self.key.take()).collect();
        let at = view.decl.name.span;
        let fault = |e: ir::Error| op_error(&e, at, &view.decl.name.name);
        let mut graph = move_inputs_last(graph, &last).map_err(fault)?;
        if let Some(few) = &self.whole {
            graph = transform::round_matmuls(&graph, few).map_err(fault)?;
        }
        let (mut states, mut keyed) = (Vec::new(), keyed);
        if self.options.training {
            let key = keyed.then(|| graph.inputs().len() - 1);
            let made = transform::with_state(&graph, key).map_err(fault)?;
            (graph, states, keyed) = (made.graph, made.amax_histories, made.needs_rng);
        }
        Ok(Lowered {
            graph,
            gradient_probes: tapped,
            amax_histories: states,
            needs_rng: keyed,
            params: std::mem::take(&mut self.params),
            tied: std::mem::take(&mut self.tied),
            inputs: names,
            outputs: results,
            caches,
            observations: observed,
            hook_points: std::mem::take(&mut self.points).into_iter().collect(),
            trace: std::mem::take(&mut self.trace),
            fusions: std::mem::take(&mut self.fusions),
            profiled: std::mem::take(&mut self.profiled),
            profiled_memory: std::mem::take(&mut self.profiled_memory),
            ignored: std::mem::take(&mut self.ignored),
            grad_reduction: self.summing,
            emulated: std::mem::take(&mut self.emulated),
        })
    }

    /// Sets the source location of the following nodes.
    fn at(&mut self, span: Span) {
        let file = self.program.sources.file(span.file);
        let place = file.line_column(span.start);
        let name = match &self.profile {
            Some(profile) => format!("[{profile}] {}", file.name()),
            None => file.name().to_string(),
        };
        self.b.loc = Loc::File(Arc::new((name, place.line as u32, place.column as u32)));
    }

    fn enter(&mut self, span: Span) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return fail(Code::E007, span, "a module contains itself", "nested too deeply");
        }
        Ok(())
    }
}

/// The ties of `hf_mapping`.
fn ties(view: &ModuleView<'_>) -> Vec<(WeightPath, WeightPath)> {
    let tied = view.mappings.iter().filter_map(|mapping| match &mapping.spec {
        WeightSpec::TiedTo { target, .. } => Some((mapping.path.clone(), target.clone())),
        _ => None,
    });
    tied.collect()
}

/// Moves some inputs of a graph to the end.
fn move_inputs_last(graph: Graph, last: &[Value]) -> ir::Result<Graph> {
    if last.is_empty() {
        return Ok(graph);
    }
    let others = graph.inputs().iter().copied().filter(|input| !last.contains(input));
    let order: Vec<Value> = others.chain(last.iter().copied()).collect();
    let mut b = Builder::new();
    let made: BTreeMap<Value, Value> =
        order.iter().map(|input| (*input, b.graph.input(graph.ty(*input).clone()))).collect();
    let args: Vec<Value> = graph.inputs().iter().map(|input| made[input]).collect();
    let outputs = b.inline(&graph, &args)?;
    Ok(b.finish(&outputs))
}

/// The name of a header parameter.
fn param_name(param: &Param) -> Option<&str> {
    match param {
        Param::Named { name, .. } => Some(&name.name),
        Param::Elided(_) => None,
    }
}

/// Returns an error diagnostic.
fn fail<T>(code: Code, span: Span, message: impl Into<String>, label: impl Into<String>) -> Result<T> {
    Err(Box::new(Diagnostic::new(code, span, message).with_label(label)))
}

/// The error of a graph op whose shapes or dtypes do not match.
fn op_error(error: &ir::Error, span: Span, what: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(Code::E004, span, format!("`{what}` does not fit")).with_label(error.to_string()))
}

fn unsupported<T>(span: Span, what: impl std::fmt::Display) -> Result<T> {
    fail(Code::L001, span, format!("{what} is not supported yet"), "cannot be lowered")
}

/// The conditions of `constraint:` blocks, with their messages.
fn constraints<'a>(view: &ModuleView<'a>) -> impl Iterator<Item = (&'a Expr, &'a str)> {
    let lists = view.lets.clone().into_iter().filter_map(|item| match item {
        LetItem::Constraints(list, _) => Some(list),
        _ => None,
    });
    lists.flatten().map(|c| (&c.condition, c.message.value.as_str()))
}
