//! The annotations of §7 as data: where each may stand, and which arguments of which kind it takes.
//!
//! What the table lets through has an effect, or a finding says that this machine can't give it one (L102).

use crate::ast::DTYPE_NAMES;
use crate::lower::{POLICIES, STRATEGIES};

/// Where an annotation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind the destination of a statement.
    Output,
    /// Behind one name of a destination in parentheses.
    Item,
    /// Behind an operation in the middle of a statement.
    Step,
    /// Behind the destination of a statement of a backward graph.
    Backward,
    /// Behind an entry of `params:`.
    Parameter,
    /// Behind a tensor of `in:`.
    Input,
    /// Behind a tensor of `out:`.
    Result,
    /// Behind a `d_..:` of a backward pass.
    Gradient,
    /// Behind an entry of `constants:`.
    Constant,
    /// On a line of its own, at the head of a declaration.
    Declaration,
}

impl Place {
    /// All of them.
    pub const ALL: &'static [Place] = &[
        Place::Output,
        Place::Item,
        Place::Step,
        Place::Backward,
        Place::Parameter,
        Place::Input,
        Place::Result,
        Place::Gradient,
        Place::Constant,
        Place::Declaration,
    ];

    /// In words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Place::Output => "a result",
            Place::Item => "one of several results",
            Place::Step => "an operation in the middle of a statement",
            Place::Backward => "a result of a backward graph",
            Place::Parameter => "a parameter",
            Place::Input => "an input",
            Place::Result => "an output",
            Place::Gradient => "the declaration of a gradient",
            Place::Constant => "a constant",
            Place::Declaration => "a declaration",
        }
    }
}

/// What an argument may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// One of these words.
    Word(&'static [&'static str]),
    /// A dtype of the language.
    Dtype,
    /// A whole number of at least this.
    Int(i64),
    /// A number of at least this; `true`: and not equal to it.
    Number(f64, bool),
    /// Any finite number.
    Finite,
    /// A share from 0 to below 1.
    Share,
    /// `true` or `false`.
    Flag,
    /// Words in quotes.
    Text,
    /// A name, or words in quotes.
    Label,
    /// A list of names.
    Names,
    /// A truth about tensors and constants.
    Condition,
    /// Two sizes.
    Pair,
}

/// One annotation.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Where it may stand.
    pub places: &'static [Place],
    /// The argument that may come first without its name; `!` in front says that it must be there.
    pub first: &'static str,
    /// Its arguments.
    pub args: &'static [(&'static str, Kind)],
    /// Whether it may be given several times.
    pub repeats: bool,
}

impl Row {
    /// The key of an argument that comes first without its name.
    pub fn positional(&self) -> Option<&'static str> {
        Some(self.first.trim_start_matches('!')).filter(|key| !key.is_empty())
    }

    /// The argument that must be there.
    pub fn required(&self) -> Option<&'static str> {
        self.first.strip_prefix('!')
    }

    /// Keys of all arguments.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.args.iter().map(|(key, _)| *key)
    }

    /// What an argument may be.
    pub fn kind(&self, key: &str) -> Option<Kind> {
        self.args.iter().find(|(known, _)| *known == key).map(|(_, kind)| *kind)
    }
}

use Kind::{Condition, Dtype, Finite, Flag, Int, Label, Names, Number, Pair, Share, Text, Word};
use Place::{Backward, Declaration, Input, Item, Output, Parameter, Result, Step};

/// The fusions of §7.5.1.
pub(super) const FUSION_PATTERNS: &[&str] =
    &["residual_norm", "norm_linear", "gated_mlp", "attention_softmax", "bias_activation", "linear_bias_act"];

/// The groups of devices of §7.6.0.
const GROUPS: &[&str] = &["default", "dp", "tp", "pp", "ep"];

const FUSE: &[(&str, Kind)] = &[("pattern", Label), ("ops", Names), ("scope", Word(&["local", "global"]))];

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row { name: "memory", places: &[Output, Item, Parameter], first: "!mode", repeats: false, args: &[
        ("mode", Word(&["save", "recompute", "temporary", "pin", "offload", "stream"])), ("priority", Int(i64::MIN)), ("prefetch", Flag), ("async", Flag)] },
    Row { name: "checkpoint", places: &[Output, Declaration], first: "granularity", repeats: false, args: &[
        ("granularity", Word(&["full", "selective", "none"])), ("preserve", Names)] },
    Row { name: "lifetime", places: &[Output, Item], first: "scope", repeats: false, args: &[
        ("scope", Word(&["operation", "sublayer", "block", "layer", "global"])), ("start", Label), ("end", Label)] },
    Row { name: "hook", places: &[Output, Item, Backward], first: "!point", repeats: true, args: &[
        ("point", Label), ("mode", Word(&["observe", "modify", "replace"])), ("priority", Int(i64::MIN))] },
    Row { name: "adapter", places: &[Output, Item], first: "!type", repeats: false, args: &[
        ("type", Word(&["lora", "ia3", "prefix", "prompt", "adapter"])), ("rank", Int(1)), ("alpha", Finite), ("dropout", Share), ("targets", Names),
        ("length", Int(1)), ("hidden_dim", Int(1)), ("bottleneck_dim", Int(1)), ("activation", Word(&["relu", "gelu", "silu"]))] },
    Row { name: "probe", places: &[Output, Item], first: "name", repeats: true, args: &[
        ("name", Label), ("capture", Word(&["stats", "histogram", "sample", "full", "grad_stats", "grad_full"])), ("condition", Condition), ("frequency", Int(1))] },
    Row { name: "dtype", places: &[Output, Item, Step, Backward, Parameter, Input, Result], first: "!type", repeats: false, args: &[("type", Dtype)] },
    Row { name: "precision", places: &[Output, Step, Backward, Parameter], first: "policy", repeats: false, args: &[
        ("policy", Word(POLICIES)), ("compute", Dtype), ("accumulate", Dtype), ("output", Dtype), ("storage", Dtype)] },
    Row { name: "scaling", places: &[Output, Item, Step, Backward, Parameter, Input], first: "!strategy", repeats: false, args: &[
        ("strategy", Word(STRATEGIES)), ("history_len", Int(1)), ("update_interval", Int(1)),
        ("block_size", Pair), ("margin", Number(0.0, false))] },
    Row { name: "fuse", places: &[Output], first: "pattern", repeats: false, args: FUSE },
    Row { name: "fuse_required", places: &[Output], first: "pattern", repeats: false, args: FUSE },
    Row { name: "nofuse", places: &[Output, Item, Step, Backward], first: "", repeats: false, args: &[("reason", Text)] },
    Row { name: "kernel", places: &[Output, Step, Backward], first: "!name", repeats: false, args: &[
        ("name", Label), ("autotune", Flag), ("workspace", Int(0)), ("fallback", Flag)] },
    Row { name: "shard", places: &[Output, Item, Step, Backward, Parameter], first: "!strategy", repeats: false, args: &[
        ("strategy", Word(&["column", "row", "replicated", "expert", "sequence", "batch", "head"])), ("tp_size", Int(1)), ("ep_size", Int(1)), ("pp_size", Int(1)),
        ("async_comm", Flag), ("reduce_scatter", Flag)] },
    Row { name: "partition", places: &[Output, Step, Declaration], first: "!stage", repeats: false, args: &[
        ("stage", Int(0)), ("micro_batch", Flag), ("recompute", Flag)] },
    Row { name: "comm", places: &[Output, Item, Step, Backward], first: "!op", repeats: false, args: &[
        ("op", Word(&["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "broadcast"])), ("group", Word(GROUPS)), ("async", Flag), ("bucket_size", Int(1))] },
    Row { name: "assert", places: &[Output, Item], first: "!condition", repeats: true, args: &[
        ("condition", Condition), ("message", Text), ("enabled", Flag)] },
    Row { name: "profile", places: &[Output, Backward, Declaration], first: "!name", repeats: false, args: &[
        ("name", Label), ("memory", Flag), ("cuda_events", Flag), ("nvtx", Flag)] },
    Row { name: "trace", places: &[Output, Backward, Declaration], first: "level", repeats: false, args: &[("level", Word(&["ops", "tensors", "values"]))] },
    Row { name: "frozen", places: &[Parameter], first: "", repeats: false, args: &[] },
    Row { name: "trainable", places: &[Parameter], first: "", repeats: false, args: &[
        ("lr_scale", Number(0.0, false)), ("wd_scale", Number(0.0, false)), ("grad_clip", Number(0.0, true))] },
    Row { name: "gradient", places: &[Output, Item, Step, Backward, Parameter, Input, Result], first: "mode", repeats: false, args: &[
        ("mode", Word(&["compute", "skip", "accumulate", "checkpoint"])), ("scale", Finite), ("clip", Number(0.0, true))] },
    Row { name: "alias", places: &[Output], first: "", repeats: false, args: &[] },
    Row { name: "noalias", places: &[Output], first: "", repeats: false, args: &[] },
    Row { name: "barrier", places: &[Output, Item, Step, Backward], first: "", repeats: false, args: &[] },
    Row { name: "recipe", places: &[Declaration], first: "!name", repeats: false, args: &[("name", Label)] },
];

/// Every annotation.
pub fn rows() -> &'static [Row] {
    TABLE
}

/// The annotation with this name.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

/// The settings of a recipe; from `update_interval` on they go beyond the specification's example.
pub(super) const RECIPE: &[(&str, Kind)] = &[
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

/// Whether a word is a dtype.
pub(super) fn is_dtype(word: &str) -> bool {
    DTYPE_NAMES.contains(&word)
}
