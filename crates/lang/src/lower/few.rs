//! Tensors and products in few bits (§7.4): emulated. A quantised tensor holds the numbers that its codes stand for, in f32, under a
//! name that says what it is; who reads it dequantises it, so no scale gets lost.

use super::graph::Operand;
use super::notes::{Notes, find};
use super::primitives::Primitive;
use super::recipe::{Format, Recipe, Role, Scale, named, stored};
use super::{Lowerer, Result, fail, misfit, unsupported};
use crate::ast::{Annotation, Flow, Ident, StepKind};
use crate::consteval::Names;
use crate::diagnostic::{Code, Diagnostic};
use crate::span::Span;
use ir::ops::{Dot, Name, RaggedDot};
use ir::{Build, DType, Op, Type, Value};
use transform::{AS_WRITTEN, Few, FewBits, Rounding, Scaling};

/// Names of quantised values begin so.
const QUANTIZED: &str = "quantized ";
/// Those of weights that are stored in few bits.
const STORED: &str = "stored ";

/// Products, which compute with quantised operands exactly.
const PRODUCTS: &[&str] = &["matmul", "batched_matmul", "weight_grad", "grouped_gemm"];

/// Sums and norms, whose operand is rounded where one statement asks for it.
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
    /// What annotations of a statement or an operation say of its precision. `scales` says whether `@scaling` is about products.
    pub(super) fn precision(&self, notes: &[&Annotation], names: &dyn Names, scales: bool) -> Result<Recipe> {
        let mut own = Recipe::default();
        if let Some(note) = find(notes, "precision") {
            let format = |key: &str| -> Result<Option<Format>> {
                match note.argument(key).and_then(|expr| Some((super::notes::text(expr)?, expr.span))) {
                    None => Ok(None),
                    Some((name, span)) => named(&name, span).map(Some),
                }
            };
            if note.argument("accumulate").is_some() && format("accumulate")? != Some(Format::Wide(DType::F32)) {
                return unsupported(note.span, "a sum in another format than fp32");
            }
            own = match note.word("policy") {
                Some(policy) => match Recipe::policy(&policy) {
                    Some(policy) => policy,
                    None => return unsupported(note.span, format!("the precision policy `{policy}`")),
                },
                None => {
                    let compute = format("compute")?;
                    if let Some(Format::Wide(dtype)) = compute
                        && !dtype.is_float()
                    {
                        return fail(
                            Code::E008,
                            note.span,
                            "operations compute in floats, or in a low-precision format with scales",
                            "",
                        );
                    }
                    let few = compute.and_then(Format::few).map(FewBits::new);
                    Recipe { compute: compute.and_then(Format::wide), few, output: format("output")?, ..own }
                }
            };
        }
        let Some((note, scale)) = self.scale(notes, names)?.filter(|_| scales) else { return Ok(own) };
        if own.compute.is_some() {
            let label = "the compute dtype needs no scaling";
            return fail(Code::E008, note.span, "`@scaling` of a tensor that is not quantized", label);
        }
        let usual = if self.in_backward { Few::E5M2 } else { Few::E4M3 };
        let few = own.few.or(self.few).or(self.whole).unwrap_or(FewBits::new(Rounding::new(usual)));
        let on = |how: Rounding, role: Role| Scale::on(Some(&scale), Rounding { delay: None, ..how }, role, note.span);
        own.few = Some(FewBits {
            left: on(few.left, Role::Activation)?,
            right: on(few.right, Role::Weight)?,
            backward: few.backward.map(|how| on(how, Role::Activation)).transpose()?,
            ..few
        });
        Ok(own)
    }

    /// What `@scaling` among annotations says.
    pub(super) fn scale<'n>(
        &self,
        notes: &[&'n Annotation],
        names: &dyn Names,
    ) -> Result<Option<(&'n Annotation, Scale)>> {
        let Some(note) = find(notes, "scaling") else { return Ok(None) };
        let strategy = note.word("strategy").unwrap_or_default();
        let scale = Scale::read(&strategy, note.span, names, |key| note.argument(key))?;
        if self.in_backward && matches!(scale, Scale::Delayed { .. }) {
            let found =
                Diagnostic::new(Code::L001, note.span, "delayed scaling in a written backward is not supported yet")
                    .label("the amax history would be lost")
                    .hint(
                        "write `dynamic`, or remove the backward section: the policy fp8_hybrid rounds gradients \
                         itself",
                    );
            return Err(Box::new(found));
        }
        Ok(Some((note, scale)))
    }

    /// Whether `@scaling` on a flow is about its products, and not about a conversion that stands there too.
    pub(super) fn scales_products(flow: &Flow, notes: &[&Annotation]) -> bool {
        let quantizes = flow.steps.iter().any(|step| match &step.kind {
            StepKind::Call(call) => call.callee.path.to_string() == "quantize",
            StepKind::Shape(_) => false,
        });
        let converts =
            find(notes, "dtype").and_then(|note| note.word("type")).is_some_and(|name| Few::named(&name).is_some());
        !quantizes && !converts
    }

    /// The rounding that a few-bit dtype and `@scaling` beside it ask for.
    pub(super) fn rounding(&self, few: Few, notes: &[&Annotation], names: &dyn Names, span: Span) -> Result<Rounding> {
        let scale = self.scale(notes, names)?;
        Scale::on(scale.as_ref().map(|(_, scale)| scale), Rounding::new(few), Role::Alone, span)
    }

    /// How a parameter is stored, where annotations say so.
    pub(super) fn storage(
        &self,
        notes: &[&Annotation],
        declared: Option<&Ident>,
        names: &dyn Names,
    ) -> Result<Option<Format>> {
        let said = match find(notes, "dtype") {
            Some(note) => note.word("type").map(|name| (name, note.span)),
            None => find(notes, "precision").and_then(|note| Some((note.word("storage")?, note.span))),
        };
        let said =
            said.or_else(|| declared.filter(|name| is_few(&name.name)).map(|name| (name.name.clone(), name.span)));
        let scale = self.scale(notes, names)?;
        let Some((name, span)) = said else {
            return match scale {
                Some((note, _)) => not_quantized(note),
                None => Ok(None),
            };
        };
        Ok(Some(match (named(&name, span)?, scale) {
            (Format::Few(plain), scale) => Format::Few(stored(plain, scale.as_ref().map(|(_, scale)| scale), span)?),
            (Format::Wide(_), Some((note, _))) => return not_quantized(note),
            (wide, None) => wide,
        }))
    }

    /// A tensor in few bits: what its codes stand for, in f32.
    pub(super) fn quantized(&mut self, value: Value, how: &Rounding, span: Span) -> Result<Value> {
        if self.format_of(value) == Some(how.format) {
            return Ok(value);
        }
        self.rounded_under(value, how, QUANTIZED, span)
    }

    fn rounded_under(&mut self, value: Value, how: &Rounding, under: &str, span: Span) -> Result<Value> {
        let ty = self.b.graph.ty(value).clone();
        if !ty.dtype.is_float() {
            let label = format!("its elements are {}", ty.dtype);
            return fail(Code::E015, span, format!("only floats can be quantized to {}", how.format.name()), label);
        }
        let axis = ty.rank().saturating_sub(1);
        let name = Name::new(format!("{under}{}", how.format.name()));
        let made = transform::rounded(&mut self.b, value, axis, how).and_then(|y| self.b.one(name.into(), &[y]));
        self.quantizes = true;
        self.changed_by_few(how);
        made.map_err(|e| misfit(&e, span, "quantize"))
    }

    /// A history is state that no written backward hands on.
    fn changed_by_few(&mut self, how: &Rounding) {
        self.rounded += 1;
        if how.delay.is_some() {
            self.changed += 1;
        }
    }

    /// A parameter as it is read: rounded to what it is stored in, with the dtype that it would have had otherwise where
    /// something else than a product reads it. Of stacked ones, each is by itself.
    pub(super) fn read_stored(&mut self, value: Value, how: &Rounding, stacked: bool, span: Span) -> Result<Value> {
        let shape = self.b.graph.ty(value).shape.to_vec();
        if !(stacked && how.scaling == Scaling::Tensor) {
            return self.rounded_under(value, how, STORED, span);
        }
        let rest: usize = shape[1..].iter().product();
        let fault = |e: ir::Error| misfit(&e, span, "@dtype");
        let rows = self.b.reshape(value, &[shape[0], rest]).map_err(fault)?;
        let rows = transform::rounded(&mut self.b, rows, 1, &how.scaled(Scaling::Rows)).map_err(fault)?;
        let whole = self.b.reshape(rows, &shape).map_err(fault)?;
        self.quantizes = true;
        self.rounded += 1;
        let name = Name::new(format!("{STORED}{}", how.format.name()));
        self.b.one(name.into(), &[whole]).map_err(fault)
    }

    /// What a value is quantised to, if it is.
    pub(super) fn format_of(&self, value: Value) -> Option<Few> {
        self.marked(value).map(|(few, _)| few)
    }

    /// The format of a quantised value, and whether it is a stored weight.
    fn marked(&self, value: Value) -> Option<(Few, bool)> {
        if !self.quantizes {
            return None;
        }
        let Op::Name(name) = &self.b.graph.node_of(value)?.op else { return None };
        match name.name.strip_prefix(QUANTIZED) {
            Some(format) => Some((Few::named(format)?, false)),
            None => Some((Few::named(name.name.strip_prefix(STORED)?)?, true)),
        }
    }

    /// Dequantises operands: to the widest of the others, or the model's dtype. Products take them as they are, in f32; the dtype
    /// that their result is to have is returned.
    pub(super) fn dequantized(&mut self, p: &mut Primitive) -> Result<Option<DType>> {
        if !self.quantizes || matches!(p.name, "quantize" | "dequantize") {
            return Ok(None);
        }
        let (mut widest, mut any): (Option<DType>, bool) = (None, false);
        for operand in p.slots.iter().flatten().chain(p.named.values()) {
            let Operand::Tensor(value) = operand else { continue };
            let dtype = self.b.graph.ty(*value).dtype;
            match self.marked(*value) {
                Some((few @ (Few::Int8 | Few::Int4), false)) => {
                    let found =
                        Diagnostic::new(Code::E015, p.span, format!("`{}` cannot take {} here", p.name, few.name()))
                            .label("integers are not dequantized implicitly")
                            .hint("write `x -> dequantize() -> y`, and use `y`");
                    return Err(Box::new(found));
                }
                Some(_) => any = true,
                None if dtype.is_float() => widest = Some(widest.map_or(dtype, |w| super::call::wider(w, dtype))),
                None => {}
            }
        }
        if !any {
            return Ok(None);
        }
        let target = widest.unwrap_or(self.options.dtype);
        let product = PRODUCTS.contains(&p.name);
        for operand in p.slots.iter_mut().flatten().chain(p.named.values_mut()) {
            let Operand::Tensor(value) = operand else { continue };
            let quantized = self.marked(*value).is_some();
            let dtype = match product {
                true if self.b.graph.ty(*value).dtype.is_float() => DType::F32,
                false if quantized => target,
                _ => continue,
            };
            // A conversion to the dtype at hand leaves no trace of what a product has to know.
            if self.b.graph.ty(*value).dtype != dtype {
                *value = self.b.cast(*value, dtype).map_err(|e| misfit(&e, p.span, "dequantize"))?;
            }
        }
        Ok(product.then_some(target))
    }

    /// Rounds the operand of a sum or a norm in a statement that computes in few bits.
    pub(super) fn rounded_sum(&mut self, p: &mut Primitive) -> Result<()> {
        let Some(few) = self.few.filter(|_| self.own_precision && SUMS.contains(&p.name)) else { return Ok(()) };
        let Some(Some(Operand::Tensor(value))) = p.slots.first_mut() else { return Ok(()) };
        let ty: Type = self.b.graph.ty(*value).clone();
        if !ty.dtype.is_float() || ty.rank() == 0 {
            return Ok(());
        }
        let fault = |e: ir::Error| misfit(&e, p.span, "@precision");
        let rounded = transform::rounded(&mut self.b, *value, ty.rank() - 1, &few.left).map_err(fault)?;
        *value = self.b.cast(rounded, ty.dtype).map_err(fault)?;
        self.changed_by_few(&few.left);
        Ok(())
    }

    /// A product as the statement at hand computes it.
    pub(super) fn product(&mut self, dot: Dot, x: Value, w: Value) -> ir::Result<Value> {
        let Some(few) = self.few else {
            let y = self.b.one(dot.into(), &[x, w])?;
            return match self.own_precision && self.whole.is_some() {
                true => self.b.one(Name::new(AS_WRITTEN).into(), &[y]),
                false => Ok(y),
            };
        };
        let axis = |contract: &[usize], rank: usize| contract.first().copied().unwrap_or(rank.saturating_sub(1));
        let (left, right) =
            (axis(&dot.lhs_contract, self.b.ty(x).rank()), axis(&dot.rhs_contract, self.b.ty(w).rank()));
        let x = self.rounded_operand(x, left, &few.left)?;
        let w = self.rounded_operand(w, right, &few.right)?;
        self.rounded += 1;
        let y = transform::rounded_product(&mut self.b, &dot, x, w, &few)?;
        // What follows decides the dtype of the result; inside a module it is that of its operands.
        match self.own_precision {
            true => Ok(y),
            false => self.b.cast(y, dot.out),
        }
    }

    /// A product of rows in groups with matrices `[groups, in, out]`, or `[groups, out, in]` that are to be turned, likewise.
    pub(super) fn grouped(&mut self, x: Value, w: Value, offsets: Value, turned: bool) -> ir::Result<Value> {
        let matrices = |l: &mut Self, w: Value| if turned { l.b.permute(w, &[0, 2, 1]) } else { Ok(w) };
        let dot = RaggedDot::rows(self.b.ty(x).dtype);
        let Some(few) = self.few else {
            let w = matrices(self, w)?;
            let y = self.b.one(dot.into(), &[x, w, offsets])?;
            return match self.own_precision && self.whole.is_some() {
                true => self.b.one(Name::new(AS_WRITTEN).into(), &[y]),
                false => Ok(y),
            };
        };
        let last = self.b.ty(x).rank().saturating_sub(1);
        let x = self.rounded_operand(x, last, &few.left)?;
        let w = self.rounded_operand(w, if turned { 2 } else { 1 }, &few.right)?;
        let w = matrices(self, w)?;
        self.rounded += 1;
        let y = transform::rounded_groups(&mut self.b, &dot, [x, w, offsets], &few)?;
        match self.own_precision {
            true => Ok(y),
            false => self.b.cast(y, dot.out),
        }
    }

    fn rounded_operand(&mut self, value: Value, axis: usize, how: &Rounding) -> ir::Result<Value> {
        match self.format_of(value) {
            // It is what its codes stand for already.
            Some(format) if format == how.format => Ok(value),
            _ => {
                self.changed_by_few(how);
                transform::rounded(&mut self.b, value, axis, how)
            }
        }
    }

    /// A line for `explain`: what is computed in another way than it is written.
    pub(super) fn emulates(&mut self, span: Span, what: &str) {
        let file = self.program.sources.file(span.file);
        let place = file.line_column(span.start);
        let line = format!("{}:{}: {what}", file.name(), place.line);
        if !self.emulated.contains(&line) {
            self.emulated.push(line);
        }
    }

    /// The line for products in few bits.
    pub(super) fn emulates_products(&mut self, span: Span, few: &FewBits) {
        let mut what = format!("operands of matrix products are rounded to {}", few.left.words());
        if few.left != few.right {
            what = format!("{what}, weights to {}", few.right.words());
        }
        if let Some(backward) = &few.backward {
            what = format!("{what}, gradients to {}", backward.words());
        }
        self.emulates(span, &format!("{what}, multiplied in f32"));
    }
}

/// Whether a dtype of a declaration is one of few bits; whole numbers of 8 bits stand for themselves there.
pub(crate) fn is_few(name: &str) -> bool {
    name != "int8" && Few::named(name).is_some()
}

fn not_quantized<T>(note: &Annotation) -> Result<T> {
    let found = Diagnostic::new(Code::E008, note.span, "`@scaling` of a tensor that is not quantized")
        .label("no low-precision dtype is given with it")
        .hint("write `@dtype(fp8_e4m3) @scaling(...)`, or remove it");
    Err(Box::new(found))
}

/// `@scaling` where only a conversion could use it.
pub(super) fn check_scaling_alone(notes: &[&Annotation], few: bool) -> Result<()> {
    match find(notes, "scaling") {
        Some(note) if !few => not_quantized(note),
        _ => Ok(()),
    }
}

impl Lowerer<'_> {
    /// `quantize()`: with what `@scaling` of its statement says.
    pub(super) fn quantize(&mut self, p: &Primitive, x: Value) -> Result<Vec<Value>> {
        let name = p.text("dtype").unwrap_or("fp8_e4m3");
        match named(name, p.span)? {
            Format::Wide(dtype) => self.b.cast(x, dtype).map(|y| vec![y]).map_err(|e| misfit(&e, p.span, "quantize")),
            Format::Few(plain) => {
                let how = Scale::on(self.quantizing.as_ref(), plain, Role::Alone, p.span)?;
                self.emulates(p.span, &format!("rounded to {}, kept in f32", how.words()));
                Ok(vec![self.quantized(x, &how, p.span)?])
            }
        }
    }
}
