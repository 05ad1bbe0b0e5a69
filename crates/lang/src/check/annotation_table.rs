//! The annotations of §7 as data: where each is allowed, and the kinds of its arguments.
//!
//! Every annotation that the table accepts has an effect, or a warning says that this machine does not support it (L102).

use crate::ast::DTYPE_NAMES;
use crate::lower::{POLICIES, STRATEGIES};

/// The target of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationTarget {
    /// The destination of a statement.
    Output,
    /// One name of a destination in parentheses.
    Item,
    /// An operation in the middle of a statement.
    Step,
    /// The destination of a statement of a backward graph.
    Backward,
    /// An entry of `params:`.
    Parameter,
    /// A tensor of `in:`.
    Input,
    /// A tensor of `out:`.
    Result,
    /// A `d_..:` of a backward pass.
    Gradient,
    /// An entry of `constants:`.
    Constant,
    /// A declaration: the annotation is on a separate line at its head.
    Declaration,
}

impl AnnotationTarget {
    /// All targets.
    pub const ALL: &'static [AnnotationTarget] = &[
        AnnotationTarget::Output,
        AnnotationTarget::Item,
        AnnotationTarget::Step,
        AnnotationTarget::Backward,
        AnnotationTarget::Parameter,
        AnnotationTarget::Input,
        AnnotationTarget::Result,
        AnnotationTarget::Gradient,
        AnnotationTarget::Constant,
        AnnotationTarget::Declaration,
    ];

    /// A description for messages.
    pub(super) fn words(self) -> &'static str {
        match self {
            AnnotationTarget::Output => "a result",
            AnnotationTarget::Item => "one of several results",
            AnnotationTarget::Step => "an operation in the middle of a statement",
            AnnotationTarget::Backward => "a result of a backward graph",
            AnnotationTarget::Parameter => "a parameter",
            AnnotationTarget::Input => "an input",
            AnnotationTarget::Result => "an output",
            AnnotationTarget::Gradient => "the declaration of a gradient",
            AnnotationTarget::Constant => "a constant",
            AnnotationTarget::Declaration => "a declaration",
        }
    }
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgumentKind {
    /// One of these identifiers.
    Word(&'static [&'static str]),
    /// A dtype of the language.
    Dtype,
    /// An integer of at least this value.
    Int(i64),
    /// A number of at least this value; `true` excludes the value itself.
    Number(f64, bool),
    /// Any finite number.
    Finite,
    /// A fraction from 0 to below 1.
    Fraction,
    /// `true` or `false`.
    Flag,
    /// A quoted string.
    Text,
    /// An identifier or a quoted string.
    Label,
    /// A list of names.
    Names,
    /// A boolean condition on tensors and constants.
    Condition,
    /// Two sizes.
    Pair,
}

/// One annotation.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationRow {
    /// Its name.
    pub name: &'static str,
    /// The allowed targets.
    pub targets: &'static [AnnotationTarget],
    /// The argument that may be positional; a leading `!` means that it is required.
    pub positional: &'static str,
    /// Its arguments with their kinds.
    pub args: &'static [(&'static str, ArgumentKind)],
    /// Whether it may be repeated.
    pub repeatable: bool,
}

impl AnnotationRow {
    /// The key of the positional argument.
    pub fn positional(&self) -> Option<&'static str> {
        Some(self.positional.trim_start_matches('!')).filter(|key| !key.is_empty())
    }

    /// The key of the required argument.
    pub fn required(&self) -> Option<&'static str> {
        self.positional.strip_prefix('!')
    }

    /// Keys of all arguments.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.args.iter().map(|(key, _)| *key)
    }

    /// The kind of an argument.
    pub fn kind(&self, key: &str) -> Option<ArgumentKind> {
        self.args.iter().find(|(known, _)| *known == key).map(|(_, kind)| *kind)
    }
}

use AnnotationTarget::{Backward, Declaration, Input, Item, Output, Parameter, Result, Step};
use ArgumentKind::{Condition, Dtype, Finite, Flag, Fraction, Int, Label, Names, Number, Pair, Text, Word};

/// The fusion patterns of §7.5.1.
pub(super) const FUSION_PATTERNS: &[&str] =
    &["residual_norm", "norm_linear", "gated_mlp", "attention_softmax", "bias_activation", "linear_bias_act"];

/// The device groups of §7.6.0.
const GROUPS: &[&str] = &["default", "dp", "tp", "pp", "ep"];

const FUSE: &[(&str, ArgumentKind)] = &[("pattern", Label), ("ops", Names), ("scope", Word(&["local", "global"]))];

#[rustfmt::skip]
const TABLE: &[AnnotationRow] = &[
    AnnotationRow { name: "memory", targets: &[Output, Item, Parameter], positional: "!mode", repeatable: false, args: &[
        ("mode", Word(&["save", "recompute", "temporary", "pin", "offload", "stream"])), ("priority", Int(i64::MIN)), ("prefetch", Flag), ("async", Flag)] },
    AnnotationRow { name: "checkpoint", targets: &[Output, Declaration], positional: "granularity", repeatable: false, args: &[
        ("granularity", Word(&["full", "selective", "none"])), ("preserve", Names)] },
    AnnotationRow { name: "lifetime", targets: &[Output, Item], positional: "scope", repeatable: false, args: &[
        ("scope", Word(&["operation", "sublayer", "block", "layer", "global"])), ("start", Label), ("end", Label)] },
    AnnotationRow { name: "hook", targets: &[Output, Item, Backward], positional: "!point", repeatable: true, args: &[
        ("point", Label), ("mode", Word(&["observe", "modify", "replace"])), ("priority", Int(i64::MIN))] },
    AnnotationRow { name: "adapter", targets: &[Output, Item], positional: "!type", repeatable: false, args: &[
        ("type", Word(&["lora", "ia3", "prefix", "prompt", "adapter"])), ("rank", Int(1)), ("alpha", Finite), ("dropout", Fraction), ("targets", Names),
        ("length", Int(1)), ("hidden_dim", Int(1)), ("bottleneck_dim", Int(1)), ("activation", Word(&["relu", "gelu", "silu"]))] },
    AnnotationRow { name: "probe", targets: &[Output, Item], positional: "name", repeatable: true, args: &[
        ("name", Label), ("capture", Word(&["stats", "histogram", "sample", "full", "grad_stats", "grad_full"])), ("condition", Condition), ("frequency", Int(1))] },
    AnnotationRow { name: "dtype", targets: &[Output, Item, Step, Backward, Parameter, Input, Result], positional: "!type", repeatable: false, args: &[("type", Dtype)] },
    AnnotationRow { name: "precision", targets: &[Output, Step, Backward, Parameter], positional: "policy", repeatable: false, args: &[
        ("policy", Word(POLICIES)), ("compute", Dtype), ("accumulate", Dtype), ("output", Dtype), ("storage", Dtype)] },
    AnnotationRow { name: "scaling", targets: &[Output, Item, Step, Backward, Parameter, Input], positional: "!strategy", repeatable: false, args: &[
        ("strategy", Word(STRATEGIES)), ("history_len", Int(1)), ("update_interval", Int(1)),
        ("block_size", Pair), ("margin", Number(0.0, false))] },
    AnnotationRow { name: "fuse", targets: &[Output], positional: "pattern", repeatable: false, args: FUSE },
    AnnotationRow { name: "fuse_required", targets: &[Output], positional: "pattern", repeatable: false, args: FUSE },
    AnnotationRow { name: "nofuse", targets: &[Output, Item, Step, Backward], positional: "", repeatable: false, args: &[("reason", Text)] },
    AnnotationRow { name: "kernel", targets: &[Output, Step, Backward], positional: "!name", repeatable: false, args: &[
        ("name", Label), ("autotune", Flag), ("workspace", Int(0)), ("fallback", Flag)] },
    AnnotationRow { name: "shard", targets: &[Output, Item, Step, Backward, Parameter], positional: "!strategy", repeatable: false, args: &[
        ("strategy", Word(&["column", "row", "replicated", "expert", "sequence", "batch", "head"])), ("tp_size", Int(1)), ("ep_size", Int(1)), ("pp_size", Int(1)),
        ("async_comm", Flag), ("reduce_scatter", Flag)] },
    AnnotationRow { name: "partition", targets: &[Output, Step, Declaration], positional: "!stage", repeatable: false, args: &[
        ("stage", Int(0)), ("micro_batch", Flag), ("recompute", Flag)] },
    AnnotationRow { name: "comm", targets: &[Output, Item, Step, Backward], positional: "!op", repeatable: false, args: &[
        ("op", Word(&["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "broadcast"])), ("group", Word(GROUPS)), ("async", Flag), ("bucket_size", Int(1))] },
    AnnotationRow { name: "assert", targets: &[Output, Item], positional: "!condition", repeatable: true, args: &[
        ("condition", Condition), ("message", Text), ("enabled", Flag)] },
    AnnotationRow { name: "profile", targets: &[Output, Backward, Declaration], positional: "!name", repeatable: false, args: &[
        ("name", Label), ("memory", Flag), ("cuda_events", Flag), ("nvtx", Flag)] },
    AnnotationRow { name: "trace", targets: &[Output, Backward, Declaration], positional: "level", repeatable: false, args: &[("level", Word(&["ops", "tensors", "values"]))] },
    AnnotationRow { name: "frozen", targets: &[Parameter], positional: "", repeatable: false, args: &[] },
    AnnotationRow { name: "trainable", targets: &[Parameter], positional: "", repeatable: false, args: &[
        ("lr_scale", Number(0.0, false)), ("wd_scale", Number(0.0, false)), ("grad_clip", Number(0.0, true))] },
    AnnotationRow { name: "gradient", targets: &[Output, Item, Step, Backward, Parameter, Input, Result], positional: "mode", repeatable: false, args: &[
        ("mode", Word(&["compute", "skip", "accumulate", "checkpoint"])), ("scale", Finite), ("clip", Number(0.0, true))] },
    AnnotationRow { name: "alias", targets: &[Output], positional: "", repeatable: false, args: &[] },
    AnnotationRow { name: "noalias", targets: &[Output], positional: "", repeatable: false, args: &[] },
    AnnotationRow { name: "barrier", targets: &[Output, Item, Step, Backward], positional: "", repeatable: false, args: &[] },
    AnnotationRow { name: "recipe", targets: &[Declaration], positional: "!name", repeatable: false, args: &[("name", Label)] },
];

/// Every annotation.
pub fn annotation_rows() -> &'static [AnnotationRow] {
    TABLE
}

/// Finds an annotation by name.
pub(super) fn find(name: &str) -> Option<&'static AnnotationRow> {
    TABLE.iter().find(|row| row.name == name)
}

/// The settings of a recipe; those from `update_interval` on extend the specification's example.
pub(super) const RECIPE: &[(&str, ArgumentKind)] = &[
    ("forward_activation_dtype", Dtype),
    ("backward_gradient_dtype", Dtype),
    ("accumulation_dtype", Dtype),
    ("output_dtype", Dtype),
    ("weight_storage_dtype", Dtype),
    ("scaling_strategy", Word(STRATEGIES)),
    ("amax_history_len", Int(1)),
    ("update_interval", Int(1)),
    ("block_size", Pair),
    ("margin", Number(0.0, false)),
    ("stochastic_rounding", Flag),
    ("optimizer_bits", Int(8)),
];

/// Whether an identifier is a dtype.
pub(super) fn is_dtype(word: &str) -> bool {
    DTYPE_NAMES.contains(&word)
}
