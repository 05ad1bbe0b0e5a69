//! Precision recipes and policies (§7.4.2, §7.4.4), for a whole model or for one operation.

use super::{Result, fail};
use crate::ast::{Expr, ExprKind, RecipeDecl as Declared};
use crate::consteval::{ConstValue as Const, NameResolver, Ternary, eval};
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use crate::suggest::closest;
use ir::DType;
use transform::{DelayedScaling, LowPrecision, MatmulRounding, Rounding, Scaling};

/// The policies of `@precision`.
pub const POLICIES: &[&str] = &["fp32", "bf16", "fp16", "fp8_hybrid", "fp8_pure", "fp4"];

/// The strategies of `@scaling`.
pub(crate) const STRATEGIES: &[&str] = &["per_tensor", "per_channel", "per_token", "per_block", "delayed", "dynamic"];

/// Block sizes that hardware supports for 4-bit floats: rows, then columns.
const FP4_BLOCKS: (&[usize], &[usize]) = (&[1, 16, 32], &[16, 32]);

/// A dtype of the language: a native one, or a low-precision one with its scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TensorFormat {
    /// A dtype of the graph.
    Native(DType),
    /// A low-precision format.
    LowPrecision(Rounding),
}

impl TensorFormat {
    pub(super) fn native_dtype(self) -> Option<DType> {
        match self {
            TensorFormat::Native(dtype) => Some(dtype),
            TensorFormat::LowPrecision(_) => None,
        }
    }

    pub(super) fn rounding(self) -> Option<Rounding> {
        match self {
            TensorFormat::LowPrecision(how) => Some(how),
            TensorFormat::Native(_) => None,
        }
    }
}

/// The precision of operations: from a recipe, from a policy, or from one annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrecisionRecipe {
    /// The compute dtype of primitives.
    pub compute: Option<DType>,
    /// The low-precision format of products' operands and cotangents.
    pub operand_rounding: Option<MatmulRounding>,
    /// The format of results.
    pub output: Option<TensorFormat>,
    /// The storage format of weights.
    pub stored: Option<TensorFormat>,
    /// Bits of each of the optimizer's moments: 8 or 32.
    pub optimizer_bits: Option<u32>,
}

impl PrecisionRecipe {
    /// The policy with this name; for a single operation, its results have the dtype of §7.4.2.
    pub fn policy(name: &str) -> Option<PrecisionRecipe> {
        let (e4m3, e5m2) = (Rounding::new(LowPrecision::E4M3), Rounding::new(LowPrecision::E5M2));
        let wide = |dtype| PrecisionRecipe {
            compute: Some(dtype),
            output: Some(TensorFormat::Native(dtype)),
            ..PrecisionRecipe::default()
        };
        let few = |few, output| PrecisionRecipe {
            operand_rounding: Some(few),
            output: Some(output),
            ..PrecisionRecipe::default()
        };
        let bf16 = TensorFormat::Native(DType::BF16);
        Some(match name {
            "fp32" => wide(DType::F32),
            "bf16" => wide(DType::BF16),
            "fp16" => wide(DType::F16),
            "fp8_hybrid" => few(MatmulRounding::new(e4m3).with_cotangent_rounding(e5m2), bf16),
            "fp8_pure" => {
                few(MatmulRounding::new(e4m3).with_cotangent_rounding(e4m3), TensorFormat::LowPrecision(e4m3))
            }
            "fp4" => few(MatmulRounding::new(Rounding::new(LowPrecision::E2M1)), bf16),
            _ => return None,
        })
    }

    /// The policy for a whole model: it applies to products, and results keep the model's dtype.
    pub fn model_policy(name: &str) -> Option<PrecisionRecipe> {
        let policy = PrecisionRecipe::policy(name)?;
        Some(match (policy.operand_rounding, policy.output) {
            (Some(few), Some(TensorFormat::LowPrecision(output))) => PrecisionRecipe {
                operand_rounding: Some(MatmulRounding { output: Some(output), ..few }),
                output: None,
                ..policy
            },
            (Some(_), _) => PrecisionRecipe { output: None, ..policy },
            (None, _) => policy,
        })
    }

    /// Parses a recipe declaration, whose settings have been checked.
    pub fn from_decl(recipe: &Declared) -> Result<PrecisionRecipe> {
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
                Some(ScalingStrategy::read(&strategy, value.span, &NoNames, get)?)
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
        let mut made = PrecisionRecipe::default();
        let forward = format("forward_activation_dtype")?;
        let backward = format("backward_gradient_dtype")?;
        match forward {
            Some((word, at)) => match parse_format(word, at)? {
                TensorFormat::Native(dtype) => {
                    made.compute = Some(dtype);
                    if let Some((other, at)) = backward.filter(|(other, _)| *other != word) {
                        let what = if LowPrecision::from_name(other).is_some() {
                            "low-precision gradients need low-precision activations"
                        } else {
                            "a recipe whose gradients have another dtype than its activations is not supported yet"
                        };
                        return fail(Code::L001, at, what, format!("activations are {word}"));
                    }
                }
                TensorFormat::LowPrecision(plain) => {
                    let scaled = |plain: Rounding, role: OperandRole| {
                        ScalingStrategy::rounding_with_scales(scale.as_ref(), plain, role, at)
                    };
                    let both = MatmulRounding::new(plain);
                    let mut few = MatmulRounding {
                        lhs: scaled(both.lhs, OperandRole::Activation)?,
                        rhs: scaled(both.rhs, OperandRole::Weight)?,
                        ..both
                    };
                    if let Some((word, at)) = backward {
                        few.cotangent = match parse_format(word, at)? {
                            TensorFormat::LowPrecision(plain) => Some(ScalingStrategy::rounding_with_scales(
                                scale.as_ref(),
                                plain,
                                OperandRole::Activation,
                                at,
                            )?),
                            TensorFormat::Native(_) => None,
                        };
                    }
                    made.operand_rounding = Some(few);
                }
            },
            None => {
                if let Some((word, at)) = backward.filter(|(word, _)| LowPrecision::from_name(word).is_some()) {
                    let label = "give `forward_activation_dtype` too";
                    return fail(Code::E008, at, format!("gradients in {word} need low-precision activations"), label);
                }
            }
        }
        if let Some((word, at)) = format("output_dtype")? {
            match (parse_format(word, at)?, &mut made.operand_rounding) {
                (TensorFormat::LowPrecision(plain), Some(few)) => {
                    few.output =
                        Some(ScalingStrategy::rounding_with_scales(scale.as_ref(), plain, OperandRole::Activation, at)?)
                }
                (TensorFormat::Native(dtype), Some(few)) => few.output_dtype = Some(dtype),
                (format @ TensorFormat::Native(_), None) => made.output = Some(format),
                (TensorFormat::LowPrecision(_), None) => {
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
            made.stored = Some(match parse_format(word, at)? {
                TensorFormat::LowPrecision(plain) => TensorFormat::LowPrecision(stored(plain, None, at)?),
                wide => wide,
            });
        }
        if let (Some((name, _)), None) = (find("scaling_strategy"), made.operand_rounding) {
            let label = "nothing here has low precision";
            return fail(Code::E008, name.span, "`scaling_strategy` has no meaning here", label);
        }
        if let Some((name, value)) = find("stochastic_rounding")
            && matches!(eval(value, &NoNames), Ok(Const::Bool(Ternary::Known(true))))
        {
            match made.operand_rounding.as_mut().and_then(|few| few.cotangent.as_mut()) {
                Some(backward) => backward.stochastic = true,
                None => {
                    let label = "give a low-precision `backward_gradient_dtype`";
                    return fail(Code::E008, name.span, "`stochastic_rounding` rounds gradients", label);
                }
            }
        }
        if let Some((_, value)) = find("optimizer_bits") {
            match eval(value, &NoNames).ok().and_then(|v| v.as_int()) {
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

/// An empty scope: settings are literals.
pub(crate) struct NoNames;

impl NameResolver for NoNames {
    fn value(&self, _name: &str) -> Option<Const> {
        None
    }

    fn is_tensor(&self, _name: &str) -> bool {
        false
    }

    fn assumed_truth(&self, _condition: &str) -> Option<bool> {
        None
    }
}

/// The format with this name in the language; low-precision formats scale dynamically per tensor.
pub(super) fn parse_format(name: &str, span: Span) -> Result<TensorFormat> {
    Ok(match name {
        "fp32" => TensorFormat::Native(DType::F32),
        "bf16" => TensorFormat::Native(DType::BF16),
        "fp16" => TensorFormat::Native(DType::F16),
        "int32" => TensorFormat::Native(DType::I32),
        _ => match LowPrecision::from_name(name) {
            Some(few) => TensorFormat::LowPrecision(Rounding::new(few)),
            None => {
                let mut unknown = Diagnostic::new(Code::E015, span, format!("no dtype named `{name}`"))
                    .with_label(format!("known are {}", crate::ast::DTYPE_NAMES.join(", ")));
                if let Some(close) = closest(name, crate::ast::DTYPE_NAMES.iter().copied()) {
                    unknown = unknown.with_hint(format!("did you mean `{close}`?"));
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

/// The role of a tensor in its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandRole {
    Activation,
    Weight,
    /// Neither: a standalone tensor.
    Standalone,
}

/// The parameters of `@scaling`, or the equivalent settings of a recipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ScalingStrategy {
    PerTensor { margin: f64, dynamic: bool },
    PerChannel { margin: f64 },
    PerToken { margin: f64 },
    PerBlock { margin: f64, rows: usize, columns: usize },
    Delayed { margin: f64, delay: DelayedScaling },
}

impl ScalingStrategy {
    /// Parses a strategy with its arguments, which have been checked where they are constants.
    pub(super) fn read<'e>(
        strategy: &str,
        span: Span,
        names: &dyn NameResolver,
        get: impl Fn(&str) -> Option<&'e Expr>,
    ) -> Result<ScalingStrategy> {
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
            "per_channel" => ScalingStrategy::PerChannel { margin },
            "per_token" => ScalingStrategy::PerToken { margin },
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
                ScalingStrategy::PerBlock { margin, rows, columns }
            }
            "delayed" => {
                let history = get("history_len").map_or(Ok(16), |expr| size(expr, "a history"))?;
                let interval = get("update_interval").map_or(Ok(1), |expr| size(expr, "an interval"))?;
                ScalingStrategy::Delayed { margin, delay: DelayedScaling { history, interval } }
            }
            "per_tensor" | "dynamic" => ScalingStrategy::PerTensor { margin, dynamic: strategy == "dynamic" },
            other => {
                let mut unknown = Diagnostic::new(Code::E008, span, format!("no scaling strategy `{other}`"))
                    .with_label(format!("expected one of {}", STRATEGIES.join(", ")));
                if let Some(close) = closest(other, STRATEGIES.iter().copied()) {
                    unknown = unknown.with_hint(format!("did you mean `{close}`?"));
                }
                return Err(Box::new(unknown));
            }
        })
    }

    fn strategy(&self) -> &'static str {
        match self {
            ScalingStrategy::PerTensor { dynamic: true, .. } => "dynamic",
            ScalingStrategy::PerTensor { .. } => "per_tensor",
            ScalingStrategy::PerChannel { .. } => "per_channel",
            ScalingStrategy::PerToken { .. } => "per_token",
            ScalingStrategy::PerBlock { .. } => "per_block",
            ScalingStrategy::Delayed { .. } => "delayed",
        }
    }

    /// The rounding with these scales: per-channel scales apply to weights, per-token scales to activations.
    pub(super) fn rounding_with_scales(
        scale: Option<&ScalingStrategy>,
        plain: Rounding,
        role: OperandRole,
        span: Span,
    ) -> Result<Rounding> {
        let Some(scale) = scale else { return Ok(plain) };
        let few = plain.format;
        let blocks_only = |what: &str| {
            let found = Diagnostic::new(Code::E008, span, format!("{} has scales of blocks, not {what}", few.name()))
                .with_label("with one scale for many 4-bit values, the small ones become 0")
                .with_hint("write `per_block`, with `block_size=(1, 16)`, `(16, 16)` or `(32, 32)`");
            Err(Box::new(found))
        };
        let fp4 = few == LowPrecision::E2M1;
        Ok(match *scale {
            // Per-tensor dynamic scaling, in the blocks that the format requires.
            ScalingStrategy::PerTensor { margin, dynamic: true } if fp4 => Rounding { margin, ..plain },
            _ if fp4 && !matches!(scale, ScalingStrategy::PerBlock { .. }) => return blocks_only(scale.strategy()),
            ScalingStrategy::PerTensor { margin, .. } => Rounding { scaling: Scaling::PerTensor, margin, ..plain },
            ScalingStrategy::PerChannel { margin } => {
                let scaling = if role == OperandRole::Activation { Scaling::PerTensor } else { Scaling::PerRow };
                Rounding { scaling, margin, ..plain }
            }
            ScalingStrategy::PerToken { margin } => {
                let scaling = if role == OperandRole::Weight { Scaling::PerTensor } else { Scaling::PerRow };
                Rounding { scaling, margin, ..plain }
            }
            ScalingStrategy::PerBlock { margin, rows, columns } => {
                if fp4 && !(FP4_BLOCKS.0.contains(&rows) && FP4_BLOCKS.1.contains(&columns)) {
                    let found = Diagnostic::new(
                        Code::E008,
                        span,
                        format!("{} does not support blocks of {rows} by {columns}", few.name()),
                    )
                    .with_label("supported are 1, 16 or 32 rows and 16 or 32 columns")
                    .with_hint("write `block_size=(32, 32)`, `(16, 16)`, `(1, 16)` or `(1, 32)`");
                    return Err(Box::new(found));
                }
                Rounding { scaling: Scaling::PerBlock(rows, columns), margin, ..plain }
            }
            ScalingStrategy::Delayed { margin, delay } => {
                Rounding { scaling: Scaling::PerTensor, margin, delayed_scaling: Some(delay), ..plain }
            }
        })
    }
}

/// The storage rounding of a weight: by default with one scale per row, for 4-bit formats with one per group.
pub(super) fn stored(plain: Rounding, scale: Option<&ScalingStrategy>, span: Span) -> Result<Rounding> {
    if let Some(ScalingStrategy::Delayed { .. }) = scale {
        return fail(
            Code::E008,
            span,
            "weights are scaled by their current values, not by a history",
            "write `per_channel`",
        );
    }
    let usual = match plain.format {
        LowPrecision::E2M1 => Scaling::PerBlock(1, 16),
        LowPrecision::Int4 => Scaling::PerBlock(1, 32),
        _ => Scaling::PerRow,
    };
    match scale {
        None => Ok(plain.with_scaling(usual)),
        some => ScalingStrategy::rounding_with_scales(some, plain, OperandRole::Weight, span),
    }
}
