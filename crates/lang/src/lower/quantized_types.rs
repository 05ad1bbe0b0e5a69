//! Low-precision tensors and products (§7.4), emulated. A quantized tensor holds its dequantized numbers in f32, under a name
//! with its format; each use dequantizes it, so no scale gets lost.

use super::annotations::{AnnotationArgs, find};
use super::graph::LoweredOperand;
use super::primitives::PrimitiveCall;
use super::recipe::{OperandRole, PrecisionRecipe, ScalingStrategy, TensorFormat, parse_format, stored};
use super::{Lowerer, Result, fail, op_error, unsupported};
use crate::ast::{Annotation, Flow, Ident, StepKind};
use crate::consteval::NameResolver;
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use ir::ops::{Dot, Name, RaggedDot};
use ir::{DType, GraphBuilder, Op, Type, Value};
use transform::{KEEP_PRECISION, LowPrecision, MatmulRounding, Rounding, Scaling};

/// The name prefix of quantized values.
const QUANTIZED_PREFIX: &str = "quantized ";
/// The name prefix of weights stored in low precision.
const STORED_PREFIX: &str = "stored ";

/// Products, which use quantized operands exactly.
const PRODUCTS: &[&str] = &["matmul", "batched_matmul", "weight_grad", "grouped_gemm"];

/// Reductions and norms, whose operand is rounded on request of their statement.
const SUMS: &[&str] = &[
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "rmsnorm",
    "fused_residual_rmsnorm",
    "layernorm",
    "group_rmsnorm",
    "qk_norm",
    "softmax",
];

impl Lowerer<'_> {
    /// The precision from annotations of a statement or an operation. `scales` tells whether `@scaling` applies to products.
    pub(super) fn precision(
        &self,
        notes: &[&Annotation],
        names: &dyn NameResolver,
        scales: bool,
    ) -> Result<PrecisionRecipe> {
        let mut own = PrecisionRecipe::default();
        if let Some(note) = find(notes, "precision") {
            let format = |key: &str| -> Result<Option<TensorFormat>> {
                match note.argument(key).and_then(|expr| Some((super::annotations::text(expr)?, expr.span))) {
                    None => Ok(None),
                    Some((name, span)) => parse_format(&name, span).map(Some),
                }
            };
            if note.argument("accumulate").is_some() && format("accumulate")? != Some(TensorFormat::Native(DType::F32))
            {
                return unsupported(note.span, "a sum in another format than fp32");
            }
            own = match note.word("policy") {
                Some(policy) => match PrecisionRecipe::policy(&policy) {
                    Some(policy) => policy,
                    None => return unsupported(note.span, format!("the precision policy `{policy}`")),
                },
                None => {
                    let compute = format("compute")?;
                    if let Some(TensorFormat::Native(dtype)) = compute
                        && !dtype.is_float()
                    {
                        return fail(
                            Code::E008,
                            note.span,
                            "operations compute in floats, or in a low-precision format with scales",
                            "",
                        );
                    }
                    let few = compute.and_then(TensorFormat::rounding).map(MatmulRounding::new);
                    PrecisionRecipe {
                        compute: compute.and_then(TensorFormat::native_dtype),
                        operand_rounding: few,
                        output: format("output")?,
                        ..own
                    }
                }
            };
        }
        let Some((note, scale)) = self.scale(notes, names)?.filter(|_| scales) else { return Ok(own) };
        if own.compute.is_some() {
            let label = "the compute dtype needs no scaling";
            return fail(Code::E008, note.span, "`@scaling` of a tensor that is not quantized", label);
        }
        let usual = if self.in_backward { LowPrecision::E5M2 } else { LowPrecision::E4M3 };
        let few = own.operand_rounding.or(self.few).or(self.whole).unwrap_or(MatmulRounding::new(Rounding::new(usual)));
        let on = |how: Rounding, role: OperandRole| {
            ScalingStrategy::rounding_with_scales(
                Some(&scale),
                Rounding { delayed_scaling: None, ..how },
                role,
                note.span,
            )
        };
        own.operand_rounding = Some(MatmulRounding {
            lhs: on(few.lhs, OperandRole::Activation)?,
            rhs: on(few.rhs, OperandRole::Weight)?,
            cotangent: few.cotangent.map(|how| on(how, OperandRole::Activation)).transpose()?,
            ..few
        });
        Ok(own)
    }

    /// The `@scaling` among annotations.
    pub(super) fn scale<'n>(
        &self,
        notes: &[&'n Annotation],
        names: &dyn NameResolver,
    ) -> Result<Option<(&'n Annotation, ScalingStrategy)>> {
        let Some(note) = find(notes, "scaling") else { return Ok(None) };
        let strategy = note.word("strategy").unwrap_or_default();
        let scale = ScalingStrategy::read(&strategy, note.span, names, |key| note.argument(key))?;
        if self.in_backward && matches!(scale, ScalingStrategy::Delayed { .. }) {
            let found =
                Diagnostic::new(Code::L001, note.span, "delayed scaling in a written backward is not supported yet")
                    .with_label("the amax history would be lost")
                    .with_hint(
                        "write `dynamic`, or remove the backward section: the policy fp8_hybrid rounds gradients \
                         itself",
                    );
            return Err(Box::new(found));
        }
        Ok(Some((note, scale)))
    }

    /// Whether the `@scaling` of a flow applies to its products, and not to a conversion in it.
    pub(super) fn scales_products(flow: &Flow, notes: &[&Annotation]) -> bool {
        let quantizes = flow.steps.iter().any(|step| match &step.kind {
            StepKind::Call(call) => call.callee.path.to_string() == "quantize",
            StepKind::Shape(_) => false,
        });
        let converts = find(notes, "dtype")
            .and_then(|note| note.word("type"))
            .is_some_and(|name| LowPrecision::from_name(&name).is_some());
        !quantizes && !converts
    }

    /// The rounding for a low-precision dtype and its `@scaling`.
    pub(super) fn rounding(
        &self,
        few: LowPrecision,
        notes: &[&Annotation],
        names: &dyn NameResolver,
        span: Span,
    ) -> Result<Rounding> {
        let scale = self.scale(notes, names)?;
        ScalingStrategy::rounding_with_scales(
            scale.as_ref().map(|(_, scale)| scale),
            Rounding::new(few),
            OperandRole::Standalone,
            span,
        )
    }

    /// The storage format of a parameter by its annotations.
    pub(super) fn storage(
        &self,
        notes: &[&Annotation],
        declared: Option<&Ident>,
        names: &dyn NameResolver,
    ) -> Result<Option<TensorFormat>> {
        let said = match find(notes, "dtype") {
            Some(note) => note.word("type").map(|name| (name, note.span)),
            None => find(notes, "precision").and_then(|note| Some((note.word("storage")?, note.span))),
        };
        let said = said.or_else(|| {
            declared.filter(|name| is_low_precision_dtype(&name.name)).map(|name| (name.name.clone(), name.span))
        });
        let scale = self.scale(notes, names)?;
        let Some((name, span)) = said else {
            return match scale {
                Some((note, _)) => not_quantized(note),
                None => Ok(None),
            };
        };
        Ok(Some(match (parse_format(&name, span)?, scale) {
            (TensorFormat::LowPrecision(plain), scale) => {
                TensorFormat::LowPrecision(stored(plain, scale.as_ref().map(|(_, scale)| scale), span)?)
            }
            (TensorFormat::Native(_), Some((note, _))) => return not_quantized(note),
            (wide, None) => wide,
        }))
    }

    /// Rounds a tensor to low precision; the result is the dequantized value in f32.
    pub(super) fn quantize_value(&mut self, value: Value, how: &Rounding, span: Span) -> Result<Value> {
        if self.format_of(value) == Some(how.format) {
            return Ok(value);
        }
        self.rounded_under(value, how, QUANTIZED_PREFIX, span)
    }

    fn rounded_under(&mut self, value: Value, how: &Rounding, under: &str, span: Span) -> Result<Value> {
        let ty = self.b.graph.ty(value).clone();
        if !ty.dtype.is_float() {
            let label = format!("its elements are {}", ty.dtype);
            return fail(Code::E015, span, format!("only floats can be quantized to {}", how.format.name()), label);
        }
        let axis = ty.rank().saturating_sub(1);
        let name = Name::new(format!("{under}{}", how.format.name()));
        let made = transform::round_operand(&mut self.b, value, axis, how).and_then(|y| self.b.one(name.into(), &[y]));
        self.quantizes = true;
        self.mark_state_changed(how);
        made.map_err(|e| op_error(&e, span, "quantize"))
    }

    /// An amax history is state that explicit backward graphs don't pass on.
    fn mark_state_changed(&mut self, how: &Rounding) {
        self.rounded += 1;
        if how.delayed_scaling.is_some() {
            self.changed += 1;
        }
    }

    /// The value of a parameter stored in low precision: rounded to its format, and converted to its original dtype for other
    /// uses than products. Stacked parameters are rounded separately.
    pub(super) fn read_stored(&mut self, value: Value, how: &Rounding, stacked: bool, span: Span) -> Result<Value> {
        let shape = self.b.graph.ty(value).shape.to_vec();
        if !(stacked && how.scaling == Scaling::PerTensor) {
            return self.rounded_under(value, how, STORED_PREFIX, span);
        }
        let rest: usize = shape[1..].iter().product();
        let fault = |e: ir::Error| op_error(&e, span, "@dtype");
        let rows = self.b.reshape(value, &[shape[0], rest]).map_err(fault)?;
        let rows = transform::round_operand(&mut self.b, rows, 1, &how.with_scaling(Scaling::PerRow)).map_err(fault)?;
        let whole = self.b.reshape(rows, &shape).map_err(fault)?;
        self.quantizes = true;
        self.rounded += 1;
        let name = Name::new(format!("{STORED_PREFIX}{}", how.format.name()));
        self.b.one(name.into(), &[whole]).map_err(fault)
    }

    /// The format of a quantized value, if it is one.
    pub(super) fn format_of(&self, value: Value) -> Option<LowPrecision> {
        self.quantized_format(value).map(|(few, _)| few)
    }

    /// The format of a quantized value, and whether it is a stored weight.
    fn quantized_format(&self, value: Value) -> Option<(LowPrecision, bool)> {
        if !self.quantizes {
            return None;
        }
        let Op::Name(name) = &self.b.graph.node_of(value)?.op else { return None };
        match name.name.strip_prefix(QUANTIZED_PREFIX) {
            Some(format) => Some((LowPrecision::from_name(format)?, false)),
            None => Some((LowPrecision::from_name(name.name.strip_prefix(STORED_PREFIX)?)?, true)),
        }
    }

    /// Dequantizes operands: to the widest dtype of the others, or the model's dtype. Products use
    /// them in f32; the dtype of their result is returned.
    pub(super) fn dequantized(&mut self, p: &mut PrimitiveCall) -> Result<Option<DType>> {
        if !self.quantizes || matches!(p.name, "quantize" | "dequantize") {
            return Ok(None);
        }
        let (mut widest, mut any): (Option<DType>, bool) = (None, false);
        for operand in p.operands.iter().flatten().chain(p.named.values()) {
            let LoweredOperand::Tensor(value) = operand else { continue };
            let dtype = self.b.graph.ty(*value).dtype;
            match self.quantized_format(*value) {
                Some((few @ (LowPrecision::Int8 | LowPrecision::Int4), false)) => {
                    let found =
                        Diagnostic::new(Code::E015, p.span, format!("`{}` cannot take {} here", p.name, few.name()))
                            .with_label("integers are not dequantized implicitly")
                            .with_hint("write `x -> dequantize() -> y`, and use `y`");
                    return Err(Box::new(found));
                }
                Some(_) => any = true,
                None if dtype.is_float() => widest = Some(widest.map_or(dtype, |w| super::call::wider_dtype(w, dtype))),
                None => {}
            }
        }
        if !any {
            return Ok(None);
        }
        let target = widest.unwrap_or(self.options.dtype);
        let product = PRODUCTS.contains(&p.name);
        for operand in p.operands.iter_mut().flatten().chain(p.named.values_mut()) {
            let LoweredOperand::Tensor(value) = operand else { continue };
            let quantized = self.quantized_format(*value).is_some();
            let dtype = match product {
                true if self.b.graph.ty(*value).dtype.is_float() => DType::F32,
                false if quantized => target,
                _ => continue,
            };
            // A conversion to the same dtype would remove the name that products need.
            if self.b.graph.ty(*value).dtype != dtype {
                *value = self.b.cast(*value, dtype).map_err(|e| op_error(&e, p.span, "dequantize"))?;
            }
        }
        Ok(product.then_some(target))
    }

    /// Rounds the operand of a reduction or a norm in a low-precision statement.
    pub(super) fn round_sum_operand(&mut self, p: &mut PrimitiveCall) -> Result<()> {
        let Some(few) = self.few.filter(|_| self.own_precision && SUMS.contains(&p.name)) else { return Ok(()) };
        let Some(Some(LoweredOperand::Tensor(value))) = p.operands.first_mut() else { return Ok(()) };
        let ty: Type = self.b.graph.ty(*value).clone();
        if !ty.dtype.is_float() || ty.rank() == 0 {
            return Ok(());
        }
        let fault = |e: ir::Error| op_error(&e, p.span, "@precision");
        let rounded = transform::round_operand(&mut self.b, *value, ty.rank() - 1, &few.lhs).map_err(fault)?;
        *value = self.b.cast(rounded, ty.dtype).map_err(fault)?;
        self.mark_state_changed(&few.lhs);
        Ok(())
    }

    /// Lowers a product with the precision of the current statement.
    pub(super) fn matmul(&mut self, dot: Dot, x: Value, w: Value) -> ir::Result<Value> {
        let Some(few) = self.few else {
            let y = self.b.one(dot.into(), &[x, w])?;
            return match self.own_precision && self.whole.is_some() {
                true => self.b.one(Name::new(KEEP_PRECISION).into(), &[y]),
                false => Ok(y),
            };
        };
        let axis = |contract: &[usize], rank: usize| contract.first().copied().unwrap_or(rank.saturating_sub(1));
        let (left, right) =
            (axis(&dot.lhs_contract, self.b.ty(x).rank()), axis(&dot.rhs_contract, self.b.ty(w).rank()));
        let x = self.round_operand(x, left, &few.lhs)?;
        let w = self.round_operand(w, right, &few.rhs)?;
        self.rounded += 1;
        let y = transform::rounded_product(&mut self.b, &dot, x, w, &few)?;
        // A conversion determines the dtype of the result; inside a module it is that of its operands.
        match self.own_precision {
            true => Ok(y),
            false => self.b.cast(y, dot.out),
        }
    }

    /// A grouped product with matrices `[groups, in, out]`, or `[groups, out, in]` with `turned`, in the same precision.
    pub(super) fn grouped_matmul(&mut self, x: Value, w: Value, offsets: Value, turned: bool) -> ir::Result<Value> {
        let matrices = |l: &mut Self, w: Value| if turned { l.b.permute(w, &[0, 2, 1]) } else { Ok(w) };
        let dot = RaggedDot::rows(self.b.ty(x).dtype);
        let Some(few) = self.few else {
            let w = matrices(self, w)?;
            let y = self.b.one(dot.into(), &[x, w, offsets])?;
            return match self.own_precision && self.whole.is_some() {
                true => self.b.one(Name::new(KEEP_PRECISION).into(), &[y]),
                false => Ok(y),
            };
        };
        let last = self.b.ty(x).rank().saturating_sub(1);
        let x = self.round_operand(x, last, &few.lhs)?;
        let w = self.round_operand(w, if turned { 2 } else { 1 }, &few.rhs)?;
        let w = matrices(self, w)?;
        self.rounded += 1;
        let y = transform::rounded_groups(&mut self.b, &dot, [x, w, offsets], &few)?;
        match self.own_precision {
            true => Ok(y),
            false => self.b.cast(y, dot.out),
        }
    }

    fn round_operand(&mut self, value: Value, axis: usize, how: &Rounding) -> ir::Result<Value> {
        match self.format_of(value) {
            // The value is dequantized already.
            Some(format) if format == how.format => Ok(value),
            _ => {
                self.mark_state_changed(how);
                transform::round_operand(&mut self.b, value, axis, how)
            }
        }
    }

    /// Adds a line for `explain`: an operation that is emulated.
    pub(super) fn note_emulated(&mut self, span: Span, what: &str) {
        let file = self.program.sources.file(span.file);
        let place = file.line_column(span.start);
        let line = format!("{}:{}: {what}", file.name(), place.line);
        if !self.emulated.contains(&line) {
            self.emulated.push(line);
        }
    }

    /// Adds the line for low-precision products.
    pub(super) fn note_emulated_products(&mut self, span: Span, few: &MatmulRounding) {
        let mut what = format!("operands of matrix products are rounded to {}", few.lhs.describe());
        if few.lhs != few.rhs {
            what = format!("{what}, weights to {}", few.rhs.describe());
        }
        if let Some(backward) = &few.cotangent {
            what = format!("{what}, gradients to {}", backward.describe());
        }
        self.note_emulated(span, &format!("{what}, multiplied in f32"));
    }
}

/// Whether a declared dtype is a low-precision one; int8 is an ordinary dtype there.
pub(crate) fn is_low_precision_dtype(name: &str) -> bool {
    name != "int8" && LowPrecision::from_name(name).is_some()
}

fn not_quantized<T>(note: &Annotation) -> Result<T> {
    let found = Diagnostic::new(Code::E008, note.span, "`@scaling` of a tensor that is not quantized")
        .with_label("no low-precision dtype is given with it")
        .with_hint("write `@dtype(fp8_e4m3) @scaling(...)`, or remove it");
    Err(Box::new(found))
}

/// Rejects `@scaling` without a conversion that could use it.
pub(super) fn check_scaling_alone(notes: &[&Annotation], few: bool) -> Result<()> {
    match find(notes, "scaling") {
        Some(note) if !few => not_quantized(note),
        _ => Ok(()),
    }
}

impl Lowerer<'_> {
    /// Lowers `quantize()` with the `@scaling` of its statement.
    pub(super) fn quantize(&mut self, p: &PrimitiveCall, x: Value) -> Result<Vec<Value>> {
        let name = p.text("dtype").unwrap_or("fp8_e4m3");
        match parse_format(name, p.span)? {
            TensorFormat::Native(dtype) => {
                self.b.cast(x, dtype).map(|y| vec![y]).map_err(|e| op_error(&e, p.span, "quantize"))
            }
            TensorFormat::LowPrecision(plain) => {
                let how = ScalingStrategy::rounding_with_scales(
                    self.quantizing.as_ref(),
                    plain,
                    OperandRole::Standalone,
                    p.span,
                )?;
                self.note_emulated(p.span, &format!("rounded to {}, kept in f32", how.describe()));
                Ok(vec![self.quantize_value(x, &how, p.span)?])
            }
        }
    }
}
