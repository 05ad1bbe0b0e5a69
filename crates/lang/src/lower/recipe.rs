//! Recipes and policies (§7.4.2, §7.4.4): what they decide for a whole compilation or for one operation.

use super::{Result, fail};
use crate::ast::{Expr, ExprKind, Recipe as Declared};
use crate::consteval::{Names, Truth, Value as Const, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use crate::suggest::closest;
use ir::DType;
use transform::{Delay, Few, FewBits, Rounding, Scaling};

/// The policies of `@precision`.
pub const POLICIES: &[&str] = &["fp32", "bf16", "fp16", "fp8_hybrid", "fp8_pure", "fp4"];

/// The strategies of `@scaling`.
pub(crate) const STRATEGIES: &[&str] = &["per_tensor", "per_channel", "per_token", "per_block", "delayed", "dynamic"];

/// Sizes of blocks that machines with 4-bit floats have: rows, then columns.
const FP4_BLOCKS: (&[usize], &[usize]) = (&[1, 16, 32], &[16, 32]);

/// A dtype of the language: one that computes, or one of few bits with its scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    /// A dtype of the graph.
    Wide(DType),
    /// Few bits.
    Few(Rounding),
}

impl Format {
    pub(super) fn wide(self) -> Option<DType> {
        match self {
            Format::Wide(dtype) => Some(dtype),
            Format::Few(_) => None,
        }
    }

    pub(super) fn few(self) -> Option<Rounding> {
        match self {
            Format::Few(how) => Some(how),
            Format::Wide(_) => None,
        }
    }
}

/// What is decided about operations: of a recipe, of a policy, or of one annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recipe {
    /// What primitives compute in.
    pub compute: Option<DType>,
    /// What products round their operands and cotangents to.
    pub few: Option<FewBits>,
    /// What results become.
    pub output: Option<Format>,
    /// How weights are stored.
    pub stored: Option<Format>,
    /// Bits of each of the optimiser's moments: 8 or 32.
    pub optimizer_bits: Option<u32>,
}

impl Recipe {
    /// A policy by its name; for one operation its results have the dtype that §7.4.2 says.
    pub fn policy(name: &str) -> Option<Recipe> {
        let (e4m3, e5m2) = (Rounding::new(Few::E4M3), Rounding::new(Few::E5M2));
        let wide = |dtype| Recipe { compute: Some(dtype), output: Some(Format::Wide(dtype)), ..Recipe::default() };
        let few = |few, output| Recipe { few: Some(few), output: Some(output), ..Recipe::default() };
        let bf16 = Format::Wide(DType::BF16);
        Some(match name {
            "fp32" => wide(DType::F32),
            "bf16" => wide(DType::BF16),
            "fp16" => wide(DType::F16),
            "fp8_hybrid" => few(FewBits::new(e4m3).backward(e5m2), bf16),
            "fp8_pure" => few(FewBits::new(e4m3).backward(e4m3), Format::Few(e4m3)),
            "fp4" => few(FewBits::new(Rounding::new(Few::E2M1)), bf16),
            _ => return None,
        })
    }

    /// A policy for a whole model: products compute as it says, and results keep the model's dtype.
    pub fn of_policy(name: &str) -> Option<Recipe> {
        let policy = Recipe::policy(name)?;
        Some(match (policy.few, policy.output) {
            (Some(few), Some(Format::Few(output))) => {
                Recipe { few: Some(FewBits { output: Some(output), ..few }), output: None, ..policy }
            }
            (Some(_), _) => Recipe { output: None, ..policy },
            (None, _) => policy,
        })
    }

    /// What a declaration says. Its settings are known by then, each of its own kind.
    pub fn of(recipe: &Declared) -> Result<Recipe> {
        let find =
            |key: &str| recipe.entries.iter().find(|(name, _)| name.name == key).map(|(name, value)| (name, value));
        let scale = match find("scaling_strategy") {
            Some((_, value)) => {
                let strategy = text(value).unwrap_or_default().to_string();
                let get = |key: &str| {
                    find(match key {
                        "history_len" => "amax_history_len",
                        other => other,
                    })
                    .map(|(_, value)| value)
                };
                Some(Scale::read(&strategy, value.span, &Nothing, get)?)
            }
            None => None,
        };
        let needed = |keys: &[&str], strategy: &str| match keys.iter().find_map(|key| find(key)) {
            Some((name, _)) if scale.is_none_or(|scale| scale.strategy() != strategy) => {
                let label = format!("it belongs to `scaling_strategy: {strategy}`");
                fail(Code::E008, name.span, format!("`{}` has no meaning here", name.name), label)
            }
            _ => Ok(()),
        };
        needed(&["amax_history_len", "update_interval"], "delayed")?;
        needed(&["block_size"], "per_block")?;
        let format = |key: &str| -> Result<Option<(&str, Span)>> {
            Ok(find(key).and_then(|(_, value)| Some((text(value)?, value.span))))
        };
        if let Some((_, at)) = format("accumulation_dtype")?.filter(|(word, _)| *word != "fp32") {
            return fail(
                Code::L001,
                at,
                "a sum in another format than fp32 is not supported yet",
                "sums are accumulated in fp32",
            );
        }
        let mut made = Recipe::default();
        let forward = format("forward_activation_dtype")?;
        let backward = format("backward_gradient_dtype")?;
        match forward {
            Some((word, at)) => match named(word, at)? {
                Format::Wide(dtype) => {
                    made.compute = Some(dtype);
                    if let Some((other, at)) = backward.filter(|(other, _)| *other != word) {
                        let what = if Few::named(other).is_some() {
                            "low-precision gradients need low-precision activations"
                        } else {
                            "a recipe whose gradients have another dtype than its activations is not supported yet"
                        };
                        return fail(Code::L001, at, what, format!("activations are {word}"));
                    }
                }
                Format::Few(plain) => {
                    let scaled = |plain: Rounding, role: Role| Scale::on(scale.as_ref(), plain, role, at);
                    let both = FewBits::new(plain);
                    let mut few = FewBits {
                        left: scaled(both.left, Role::Activation)?,
                        right: scaled(both.right, Role::Weight)?,
                        ..both
                    };
                    if let Some((word, at)) = backward {
                        few.backward = match named(word, at)? {
                            Format::Few(plain) => Some(Scale::on(scale.as_ref(), plain, Role::Activation, at)?),
                            Format::Wide(_) => None,
                        };
                    }
                    made.few = Some(few);
                }
            },
            None => {
                if let Some((word, at)) = backward.filter(|(word, _)| Few::named(word).is_some()) {
                    let label = "give `forward_activation_dtype` too";
                    return fail(Code::E008, at, format!("gradients in {word} need low-precision activations"), label);
                }
            }
        }
        if let Some((word, at)) = format("output_dtype")? {
            match (named(word, at)?, &mut made.few) {
                (Format::Few(plain), Some(few)) => {
                    few.output = Some(Scale::on(scale.as_ref(), plain, Role::Activation, at)?)
                }
                (Format::Wide(dtype), Some(few)) => few.wide = Some(dtype),
                (format @ Format::Wide(_), None) => made.output = Some(format),
                (Format::Few(_), None) => {
                    let label = "give a low-precision `forward_activation_dtype` too";
                    return fail(
                        Code::E008,
                        at,
                        format!("results in {word} need low-precision matrix products"),
                        label,
                    );
                }
            }
        }
        if let Some((word, at)) = format("weight_storage_dtype")? {
            made.stored = Some(match named(word, at)? {
                Format::Few(plain) => Format::Few(stored(plain, None, at)?),
                wide => wide,
            });
        }
        if let (Some((name, _)), None) = (find("scaling_strategy"), made.few) {
            let label = "nothing here has low precision";
            return fail(Code::E008, name.span, "`scaling_strategy` has no meaning here", label);
        }
        if let Some((name, value)) = find("stochastic_rounding")
            && matches!(eval(value, &Nothing), Ok(Const::Bool(Truth::Known(true))))
        {
            match made.few.as_mut().and_then(|few| few.backward.as_mut()) {
                Some(backward) => backward.stochastic = true,
                None => {
                    let label = "give a low-precision `backward_gradient_dtype`";
                    return fail(Code::E008, name.span, "`stochastic_rounding` rounds gradients", label);
                }
            }
        }
        if let Some((_, value)) = find("optimizer_bits") {
            match eval(value, &Nothing).ok().and_then(|v| v.as_int()) {
                Some(bits @ (8 | 32)) => made.optimizer_bits = Some(bits as u32),
                _ => {
                    return fail(
                        Code::E008,
                        value.span,
                        "`optimizer_bits` must be 8 or 32",
                        "the number of bits of each optimizer state",
                    );
                }
            }
        }
        Ok(made)
    }
}

/// No names at all: settings are literals.
pub(crate) struct Nothing;

impl Names for Nothing {
    fn value(&self, _name: &str) -> Option<Const> {
        None
    }

    fn is_tensor(&self, _name: &str) -> bool {
        false
    }

    fn assumed(&self, _condition: &str) -> Option<bool> {
        None
    }
}

/// The format with this name in the language; few bits with scales of the tensor at hand.
pub(super) fn named(name: &str, span: Span) -> Result<Format> {
    Ok(match name {
        "fp32" => Format::Wide(DType::F32),
        "bf16" => Format::Wide(DType::BF16),
        "fp16" => Format::Wide(DType::F16),
        "int32" => Format::Wide(DType::I32),
        _ => match Few::named(name) {
            Some(few) => Format::Few(Rounding::new(few)),
            None => {
                let mut unknown = Diagnostic::new(Code::E015, span, format!("no dtype named `{name}`"))
                    .label(format!("known are {}", crate::ast::DTYPE_NAMES.join(", ")));
                if let Some(close) = closest(name, crate::ast::DTYPE_NAMES.iter().copied()) {
                    unknown = unknown.hint(format!("did you mean `{close}`?"));
                }
                return Err(Box::new(unknown));
            }
        },
    })
}

fn text(value: &Expr) -> Option<&str> {
    match &value.peel().kind {
        ExprKind::Name(word) | ExprKind::Str(word) => Some(word),
        _ => None,
    }
}

/// What a tensor is to its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Activation,
    Weight,
    /// Neither: a tensor by itself.
    Alone,
}

/// `@scaling`, or the settings of a recipe that mean the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    PerTensor { margin: f64, dynamic: bool },
    PerChannel { margin: f64 },
    PerToken { margin: f64 },
    PerBlock { margin: f64, rows: usize, columns: usize },
    Delayed { margin: f64, delay: Delay },
}

impl Scale {
    /// A strategy with its arguments, which have been checked where they are constants.
    pub(super) fn read<'e>(
        strategy: &str,
        span: Span,
        names: &dyn Names,
        get: impl Fn(&str) -> Option<&'e Expr>,
    ) -> Result<Scale> {
        let number = |key: &str| -> Result<Option<f64>> {
            let Some(expr) = get(key) else { return Ok(None) };
            match eval(expr, names) {
                Ok(Const::Float(Some(x))) => Ok(Some(x)),
                Ok(other) if other.as_int().is_some() => Ok(other.as_int().map(|n| n as f64)),
                _ => fail(Code::E008, expr.span, format!("`{key}` must be a number"), "not known here"),
            }
        };
        let size = |expr: &Expr, what: &str| -> Result<usize> {
            let n = eval(expr, names).ok().and_then(|v| v.as_int()).and_then(|n| usize::try_from(n).ok());
            match n.filter(|n| *n > 0 && *n <= 1 << 20) {
                Some(n) => Ok(n),
                None => {
                    fail(Code::E008, expr.span, format!("{what} must be a number from 1 to 1048576"), "out of range")
                }
            }
        };
        let margin = number("margin")?.unwrap_or(0.0);
        Ok(match strategy {
            "per_channel" => Scale::PerChannel { margin },
            "per_token" => Scale::PerToken { margin },
            "per_block" => {
                let (rows, columns) = match get("block_size").map(|expr| (expr, &expr.peel().kind)) {
                    None => (32, 32),
                    Some((_, ExprKind::Tuple(items) | ExprKind::List(items))) if items.len() == 2 => {
                        (size(&items[0], "a size of a block")?, size(&items[1], "a size of a block")?)
                    }
                    Some((expr, _)) => {
                        return fail(Code::E008, expr.span, "`block_size` must be a pair of sizes", "write `(32, 32)`");
                    }
                };
                Scale::PerBlock { margin, rows, columns }
            }
            "delayed" => {
                let history = get("history_len").map_or(Ok(16), |expr| size(expr, "a history"))?;
                let interval = get("update_interval").map_or(Ok(1), |expr| size(expr, "an interval"))?;
                Scale::Delayed { margin, delay: Delay { history, interval } }
            }
            "per_tensor" | "dynamic" => Scale::PerTensor { margin, dynamic: strategy == "dynamic" },
            other => {
                let mut unknown = Diagnostic::new(Code::E008, span, format!("no scaling strategy `{other}`"))
                    .label(format!("expected one of {}", STRATEGIES.join(", ")));
                if let Some(close) = closest(other, STRATEGIES.iter().copied()) {
                    unknown = unknown.hint(format!("did you mean `{close}`?"));
                }
                return Err(Box::new(unknown));
            }
        })
    }

    fn strategy(&self) -> &'static str {
        match self {
            Scale::PerTensor { dynamic: true, .. } => "dynamic",
            Scale::PerTensor { .. } => "per_tensor",
            Scale::PerChannel { .. } => "per_channel",
            Scale::PerToken { .. } => "per_token",
            Scale::PerBlock { .. } => "per_block",
            Scale::Delayed { .. } => "delayed",
        }
    }

    /// A rounding with these scales: those of channels are the weights', those of tokens the activations'.
    pub(super) fn on(scale: Option<&Scale>, plain: Rounding, role: Role, span: Span) -> Result<Rounding> {
        let Some(scale) = scale else { return Ok(plain) };
        let few = plain.format;
        let blocks_only = |what: &str| {
            let found = Diagnostic::new(Code::E008, span, format!("{} has scales of blocks, not {what}", few.name()))
                .label("with one scale for many 4-bit values, the small ones become 0")
                .hint("write `per_block`, with `block_size=(1, 16)`, `(16, 16)` or `(32, 32)`");
            Err(Box::new(found))
        };
        let fp4 = few == Few::E2M1;
        Ok(match *scale {
            // What the tensor at hand asks for, in the blocks that the format needs.
            Scale::PerTensor { margin, dynamic: true } if fp4 => Rounding { margin, ..plain },
            _ if fp4 && !matches!(scale, Scale::PerBlock { .. }) => return blocks_only(scale.strategy()),
            Scale::PerTensor { margin, .. } => Rounding { scaling: Scaling::Tensor, margin, ..plain },
            Scale::PerChannel { margin } => {
                let scaling = if role == Role::Activation { Scaling::Tensor } else { Scaling::Rows };
                Rounding { scaling, margin, ..plain }
            }
            Scale::PerToken { margin } => {
                let scaling = if role == Role::Weight { Scaling::Tensor } else { Scaling::Rows };
                Rounding { scaling, margin, ..plain }
            }
            Scale::PerBlock { margin, rows, columns } => {
                if fp4 && !(FP4_BLOCKS.0.contains(&rows) && FP4_BLOCKS.1.contains(&columns)) {
                    let found = Diagnostic::new(
                        Code::E008,
                        span,
                        format!("{} does not support blocks of {rows} by {columns}", few.name()),
                    )
                    .label("supported are 1, 16 or 32 rows and 16 or 32 columns")
                    .hint("write `block_size=(32, 32)`, `(16, 16)`, `(1, 16)` or `(1, 32)`");
                    return Err(Box::new(found));
                }
                Rounding { scaling: Scaling::Blocks(rows, columns), margin, ..plain }
            }
            Scale::Delayed { margin, delay } => {
                Rounding { scaling: Scaling::Tensor, margin, delay: Some(delay), ..plain }
            }
        })
    }
}

/// How a weight is stored: without a word, with a scale for each row, and for groups where numbers have 4 bits.
pub(super) fn stored(plain: Rounding, scale: Option<&Scale>, span: Span) -> Result<Rounding> {
    if let Some(Scale::Delayed { .. }) = scale {
        return fail(
            Code::E008,
            span,
            "weights are scaled by their current values, not by a history",
            "write `per_channel`",
        );
    }
    let usual = match plain.format {
        Few::E2M1 => Scaling::Blocks(1, 16),
        Few::Int4 => Scaling::Blocks(1, 32),
        _ => Scaling::Rows,
    };
    match scale {
        None => Ok(plain.scaled(usual)),
        some => Scale::on(some, plain, Role::Weight, span),
    }
}
