//! Lowering: a checked declaration with its sizes given becomes an `ir::Graph`.
//!
//! The graph's inputs are the parameters in the order of their declaration, depth first, then the tensors of `in:`.
//! Modules are inlined, `StackedBlocks` is unrolled or a scan ([`Options::scan`]). A module whose backward is written becomes a composite that brings
//! that graph as its derivative, so the written backward runs wherever `transform` differentiates.
//!
//! With [`Options::decode`] the graph is one step of decoding: attention and state-space primitives keep their past in
//! caches, which are further inputs and outputs, and positions count from an i32 input. Axis 1 of every input is time.
//! Where time mixes in other ways, [`Limits::whole`] says that a step is not enough.

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

/// What may be chosen about a lowering.
#[derive(Clone, Debug)]
pub struct LowerOptions {
    /// The dtype of parameters and activations that declare none.
    pub dtype: DType,
    /// Lower one step of decoding, with caches for this many positions.
    pub decode: Option<usize>,
    /// Use backward graphs as they are written; otherwise all are derived.
    pub custom_backward: bool,
    /// Make arrays of blocks one parameter per tensor, stacked along a first axis, and run them by a scan.
    pub scan: bool,
    /// What is registered at the points of `@hook`.
    pub hooks: HookRegistry,
    /// Probes, and traces of values, become outputs.
    pub probes: bool,
    /// Asserts become outputs.
    pub asserts: bool,
    /// Lower for training: adapters leave out what their `dropout` says.
    pub training: bool,
    /// Paths of optional parameters, and names of optional inputs, that are `None`.
    pub absent: BTreeSet<String>,
    /// A recipe in the place of the model's own; annotations of operations beat it.
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
    /// Factor of its learning rate.
    pub lr_scale: f64,
    /// Factor of its weight decay.
    pub wd_scale: f64,
    /// The largest norm of its gradient.
    pub grad_clip: Option<f64>,
    /// What it starts as.
    pub init: ParamInit,
    /// Whether an `@adapter` brought it: a checkpoint of the base model does not have it.
    pub adapter: bool,
    /// How `@shard` divides it over devices.
    pub shard: Option<Shard>,
    /// Whether it is a stack of those of several blocks, along a first axis.
    pub stacked: bool,
    /// The few bits that it is stored in: what the graph rounds it to where it reads it.
    pub rounding: Option<transform::Rounding>,
}

/// A strategy of `@shard` (§7.6.1) for a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shard {
    /// Along its output dimension, the first.
    Column,
    /// Along its input dimension, the last.
    Row,
    /// Whole on each device.
    Replicated,
    /// Experts, the first dimension.
    Expert,
    /// Heads, the first dimension.
    Head,
}

impl Shard {
    /// The strategy of a name; `sequence` and `batch` are of activations.
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
    /// A parameter that is trained like any other.
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

/// First values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamInit {
    /// As its name and shape suggest.
    Default,
    /// An adapter's second half, so that it starts without effect.
    Zeros,
    /// Factors that start without effect.
    Ones,
}

/// A statement that should be one step of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Fusion {
    /// The file it stands in.
    pub file: String,
    /// Its first line.
    pub first: usize,
    /// Its last line.
    pub last: usize,
    /// `@fuse_required`, not only `@fuse`.
    pub required: bool,
    /// The annotation.
    pub span: Span,
}

/// A declaration as a graph.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// From parameters, inputs (in decoding: position and caches too) to outputs (and caches).
    pub graph: Graph,
    /// The first inputs of the graph.
    pub params: Vec<Parameter>,
    /// Paths that stand for another parameter: `lm_head`, `embedding`.
    pub tied: Vec<(String, String)>,
    /// Names of the inputs after the parameters.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Types of the caches of a decoding step: inputs behind the position, and outputs behind the others.
    pub caches: Vec<Type>,
    /// Outputs for onlookers, behind all others.
    pub observations: Vec<Observation>,
    /// Probes of gradients: inputs behind all others that are to be zero, and whose gradients are the tensors'.
    pub gradient_probes: Vec<Observation>,
    /// Histories of delayed scaling, inputs behind those, zero at first; only for training. Their gradients are their next values.
    pub amax_histories: Vec<Type>,
    /// Whether the very last input is a key of what is random, `u32[2]`, which every run should change.
    pub needs_rng: bool,
    /// Points of `@hook` that the graph has.
    pub hook_points: Vec<String>,
    /// Lines of `@trace`, in the order of the graph.
    pub trace: Vec<String>,
    /// Statements with `@fuse` or `@fuse_required`.
    pub fusions: Vec<Fusion>,
    /// Names of `@profile`; what they cover has `[name]` in front of its place.
    pub profiled: Vec<String>,
    /// Those of them with `memory=true`: what they write is told, too.
    pub profiled_memory: BTreeSet<String>,
    /// Annotations that have no effect on the machine at hand, each with its place and why.
    pub ignored: Vec<String>,
    /// Formats that no device here computes in, each with its place and how it is emulated.
    pub emulated: Vec<String>,
    /// How ranks sum gradients, as `@comm` in backward graphs says.
    pub grad_reduction: GradReductionOptions,
}

/// How ranks sum gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GradReductionOptions {
    /// Bytes that go together: the smallest `bucket_size`.
    pub bucket_bytes: Option<usize>,
    /// Whether ranks wait for each sum (`async=false`) instead of computing meanwhile.
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

/// What a model's graph says about the sequences that it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceLimits {
    /// Why each new token needs the whole sequence again; none where a step of decoding gives the same.
    pub not_incremental: Option<String>,
    /// The smallest table that is read by the ids given: ids are below it.
    pub vocabulary: Option<usize>,
    /// The smallest table that is read by position: sequences are no longer.
    pub max_positions: Option<usize>,
    /// The last size of the first result: labels are below it.
    pub classes: Option<usize>,
}

/// What lowering returns; a failure is one finding.
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

/// What the graph of a declaration says about the sequences that it takes.
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

/// Lowers a step of decoding with a number of positions that can be told from other sizes.
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

/// Deeper nesting of modules than this is taken for a module that contains itself.
const MAX_DEPTH: usize = 64;

/// More modules than this in one model are not lowered (L008).
pub const MAX_MODULES: usize = 100_000;

/// More statements than this in one model are not lowered (L008).
pub const MAX_STATEMENTS: usize = 500_000;

fn too_large<T>(span: Span, message: String, label: &str) -> Result<T> {
    fail(Code::L008, span, message, label)
}

/// A table, how many positions of it, and its cosines and sines.
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
    /// How many modules were declared, and statements lowered.
    modules: usize,
    statements: usize,
    /// Tables that the current builder already holds.
    tables: Vec<TableRows>,
    /// Caches of decoding: what comes in, what goes out.
    caches: Vec<(Value, Value)>,
    position: Option<Value>,
    /// How values depend on the sequence, in decoding.
    time: Option<SequenceAnalysis>,
    /// What `positions` gave, and the bounds that tables set.
    counted: Vec<Value>,
    ids: Vec<Value>,
    max_positions: Option<usize>,
    vocabulary: Option<usize>,
    depth: usize,
    /// The next stack computes each block again in backward.
    checkpoint_blocks: Option<RecomputeRegion>,
    /// What surrounds the statement at hand.
    region: Option<RecomputeRegion>,
    /// The instance at hand.
    path: String,
    layer: Option<LayerIndex>,
    /// Primitives compute in this dtype.
    compute: Option<DType>,
    /// Products compute in few bits.
    few: Option<transform::MatmulRounding>,
    /// The statement at hand has a precision of its own, which no recipe changes.
    own_precision: bool,
    /// What the recipe of the whole model does to products.
    whole: Option<transform::MatmulRounding>,
    /// Whether there are quantised tensors, and how many roundings there are.
    quantizes: bool,
    rounded: usize,
    /// What `@scaling` says to the `quantize` of the statement at hand.
    quantizing: Option<recipe::ScalingStrategy>,
    emulated: Vec<String>,
    /// Results of statements get this dtype.
    output: Option<DType>,
    /// Statements are traced at this level.
    trace_level: Option<String>,
    /// The statement at hand belongs to this profile.
    profile: Option<String>,
    /// Inside a written backward graph.
    in_backward: bool,
    /// How often something changed the forward graph in a way that no written backward knows.
    changed: usize,
    observed: hooks::ObservedValues,
    points: BTreeSet<String>,
    trace: Vec<String>,
    fusions: Vec<Fusion>,
    profiled: Vec<String>,
    profiled_memory: BTreeSet<String>,
    ignored: Vec<String>,
    summing: GradReductionOptions,
    /// Adapters to declare, and adapters met before they were declared.
    adapters: Option<Vec<adapter::DeclaredAdapter>>,
    adapters_found: Vec<adapter::DeclaredAdapter>,
    /// Inputs that go behind all others.
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
        // A residual pattern takes and gives one tensor without saying so.
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
        // Optional inputs that are not given keep their places.
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

    /// Later nodes belong to this place.
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

/// What `hf_mapping` ties to what.
fn ties(view: &ModuleView<'_>) -> Vec<(WeightPath, WeightPath)> {
    let tied = view.mappings.iter().filter_map(|mapping| match &mapping.spec {
        WeightSpec::TiedTo { target, .. } => Some((mapping.path.clone(), target.clone())),
        _ => None,
    });
    tied.collect()
}

/// The graph with some of its inputs behind the others.
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

/// The name of a parameter of a header.
fn param_name(param: &Param) -> Option<&str> {
    match param {
        Param::Named { name, .. } => Some(&name.name),
        Param::Elided(_) => None,
    }
}

/// A finding as a failure.
fn fail<T>(code: Code, span: Span, message: impl Into<String>, label: impl Into<String>) -> Result<T> {
    Err(Box::new(Diagnostic::new(code, span, message).with_label(label)))
}

/// The failure of an op of the graph: shapes or dtypes that do not fit.
fn op_error(error: &ir::Error, span: Span, what: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(Code::E004, span, format!("`{what}` does not fit")).with_label(error.to_string()))
}

fn unsupported<T>(span: Span, what: impl std::fmt::Display) -> Result<T> {
    fail(Code::L001, span, format!("{what} is not supported yet"), "cannot be lowered")
}

/// The conditions of `constraint:` blocks, with what to say when they fail.
fn constraints<'a>(view: &ModuleView<'a>) -> impl Iterator<Item = (&'a Expr, &'a str)> {
    let lists = view.lets.clone().into_iter().filter_map(|item| match item {
        LetItem::Constraints(list, _) => Some(list),
        _ => None,
    });
    lists.flatten().map(|c| (&c.condition, c.message.value.as_str()))
}
