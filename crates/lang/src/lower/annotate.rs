//! Lowers annotations of a result (§7): precision, adapters, hooks, gradients, probes, asserts, fusion, traces.

use super::adapter::DeclaredAdapter;
use super::annotations::{AnnotationArgs, find};
use super::assertion::ConditionResult;
use super::frame::{FrameEntry, ModuleFrame};
use super::graph::LoweredOperand;
use super::hooks::{LayerIndex, Observation, ObservationKind, capture};
use super::{Fusion, GradReductionOptions, Lowerer, Result, fail, op_error, unsupported};
use crate::ast::{Annotation, Flow, StepKind};
use crate::check::{AnnotationTarget, check_annotations};
use crate::consteval::{ConstValue as Const, NameResolver, Ternary};
use crate::diagnostic::Code;
use crate::resolve::{Entity, ModuleView};
use crate::span::Span;
use ir::attr::Attr;
use ir::ops::{Composite, Derivative, Name};
use ir::{Builder, GraphBuilder, Value};
use std::sync::Arc;
use transform::LowPrecision;

/// Resolves constants; any other name may be a tensor.
pub(super) struct FrameNames<'a>(pub(super) &'a ModuleFrame);

impl NameResolver for FrameNames<'_> {
    fn value(&self, name: &str) -> Option<Const> {
        self.0.value(name)
    }

    fn is_tensor(&self, _name: &str) -> bool {
        true
    }

    fn assumed_truth(&self, _condition: &str) -> Option<bool> {
        None
    }
}

impl Lowerer<'_> {
    /// Checks annotations whose arguments depend on parameters again, with the parameters' values.
    pub(super) fn recheck_annotations(
        &self,
        notes: &[Annotation],
        place: AnnotationTarget,
        frame: &ModuleFrame,
    ) -> Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let mut found = Vec::new();
        check_annotations(notes, place, &FrameNames(frame), &mut found);
        match found.into_iter().find(crate::diagnostic::Diagnostic::is_error) {
            Some(found) => Err(Box::new(found)),
            None => Ok(()),
        }
    }

    /// `@dtype(x)` converts; to a low-precision type with the `@scaling` beside it.
    pub(super) fn convert_dtype(&mut self, value: Value, notes: &[&Annotation], frame: &ModuleFrame) -> Result<Value> {
        let Some(note) = find(notes, "dtype") else { return Ok(value) };
        let Some(name) = note.word("type") else { return Ok(value) };
        let span = note.name.span;
        // Integers without a scale are an ordinary conversion.
        let plain = name == "int8" && find(notes, "scaling").is_none();
        if let Some(few) = LowPrecision::from_name(&name).filter(|_| !plain) {
            let how = self.rounding(few, notes, &FrameNames(frame), span)?;
            self.note_emulated(span, &format!("rounded to {}, kept in f32", how.describe()));
            return self.quantize_value(value, &how, span);
        }
        let dtype = super::declare::parse_dtype(&name, span)?;
        (self.b.cast(value, dtype)).map_err(|e| op_error(&e, span, "@dtype"))
    }

    /// Applies all annotations of one result of a flow.
    pub(super) fn apply_annotations(
        &mut self,
        name: &str,
        value: Value,
        notes: &[&Annotation],
        source: Option<Value>,
        frame: &ModuleFrame,
    ) -> Result<Value> {
        let mut value = self.convert_dtype(value, notes, frame)?;
        if let Some(note) = find(notes, "adapter") {
            value = self.apply_adapters(note, name, source, value, frame)?;
        }
        let mut hooks: Vec<&Annotation> = notes.iter().copied().filter(|note| note.name.name == "hook").collect();
        let priority = |note: &&Annotation| {
            note.argument("priority").and_then(|expr| frame.constant(expr).ok()?.as_int()).unwrap_or(0)
        };
        hooks.sort_by_key(priority);
        for note in hooks {
            if let Some(point) = note.word("point") {
                self.points.insert(point);
            }
            value = self.call_hooks(note, name, value)?;
        }
        for note in notes.iter().filter(|note| note.name.name == "probe" && self.options.probes) {
            value = self.probe_gradient(note, name, value, frame)?;
        }
        if let Some(note) = find(notes, "gradient") {
            value = self.gradient(note, value, frame)?;
        }
        value = self.mark_partition(notes, value, frame)?;
        value = self.mark_sharding(notes, value, frame)?;
        value = self.barrier(notes, value)?;
        self.mark_saved(name, notes, value, frame)
    }

    /// `@partition(n)`: a marker for the pipeline stage.
    fn mark_partition(&mut self, notes: &[&Annotation], value: Value, frame: &ModuleFrame) -> Result<Value> {
        let Some(note) = find(notes, "partition").filter(|_| self.options.decode.is_none()) else { return Ok(value) };
        let stage = note.argument("stage").and_then(|expr| frame.constant(expr).ok()?.as_int());
        let Some(stage) = stage.and_then(|n| usize::try_from(n).ok()) else { return Ok(value) };
        self.b
            .one(Name::new(format!("stage {stage}")).into(), &[value])
            .map_err(|e| op_error(&e, note.span, "@partition"))
    }

    /// `@shard` and `@comm` of a result: markers for the partitioner. On gradients of an explicit
    /// backward graph, `@comm` specifies their reduction.
    pub(super) fn mark_sharding(&mut self, notes: &[&Annotation], value: Value, frame: &ModuleFrame) -> Result<Value> {
        let mut value = value;
        let flag = |note: &Annotation, key: &str| {
            let given = note.argument(key).and_then(|expr| frame.constant(expr).ok());
            !matches!(given, Some(Const::Bool(Ternary::Known(false))))
        };
        for note in notes {
            let mark = match note.name.name.as_str() {
                "shard" if !self.in_backward => note.word("strategy").map(|strategy| format!("shard {strategy}")),
                "comm" if self.in_backward => {
                    let size = note.argument("bucket_size").map(|expr| frame.size(expr)).transpose()?;
                    let GradReductionOptions { bucket_bytes: bucket, synchronous: waits } = self.summing;
                    let bucket = [bucket, size].into_iter().flatten().min();
                    self.summing =
                        GradReductionOptions { bucket_bytes: bucket, synchronous: waits || !flag(note, "async") };
                    None
                }
                "comm" => note.word("op").filter(|op| op != "send" && op != "recv").map(|op| {
                    let group = note.word("group").unwrap_or_else(|| "default".to_string());
                    format!("comm {op} {group}{}", if flag(note, "async") { "" } else { " wait" })
                }),
                _ => None,
            };
            if let Some(mark) = mark {
                let marked = self.b.one(Name::new(mark).into(), &[value]);
                value = marked.map_err(|e| op_error(&e, note.span, &note.name.name))?;
            }
        }
        Ok(value)
    }

    /// `@nofuse` and `@barrier`: the value is materialized.
    pub(super) fn barrier(&mut self, notes: &[&Annotation], value: Value) -> Result<Value> {
        match find(notes, "nofuse").or_else(|| find(notes, "barrier")) {
            Some(note) => self.b.one(Name::nofuse().into(), &[value]).map_err(|e| op_error(&e, note.span, "@nofuse")),
            None => Ok(value),
        }
    }

    /// Applies annotations that only observe a named result.
    pub(super) fn record_observers(
        &mut self,
        name: &str,
        value: Value,
        notes: &[&Annotation],
        frame: &ModuleFrame,
    ) -> Result<()> {
        for note in notes {
            match note.name.name.as_str() {
                "probe" if self.options.probes => self.record_probe(note, name, value, frame)?,
                "assert" if self.options.asserts => self.record_assert(note, name, frame)?,
                _ => {}
            }
        }
        let own = find(notes, "trace").map(|note| note.word("level").unwrap_or_else(|| "ops".to_string()));
        let level = own.or_else(|| self.trace_level.clone());
        if self.options.probes && !self.in_backward && level.as_deref() == Some("values") {
            self.add_observation(ObservationKind::Trace, name, value);
        }
        Ok(())
    }

    /// The kind of value that a probe captures, and its external name.
    fn probe(note: &Annotation, name: &str, frame: &ModuleFrame) -> Result<(String, ObservationKind)> {
        let what = note.word("capture").unwrap_or_else(|| "stats".to_string());
        let frequency = match note.argument("frequency") {
            Some(expr) => frame.size(expr)?.max(1),
            None => 1,
        };
        let name = note.word("name").unwrap_or_else(|| name.to_string());
        let conditional = note.argument("condition").is_some();
        Ok((what.clone(), ObservationKind::Probe { name, capture: what, frequency, conditional }))
    }

    /// Adds a zero input to a tensor whose gradient is probed: the gradient of that input is the tensor's.
    fn probe_gradient(&mut self, note: &Annotation, name: &str, value: Value, frame: &ModuleFrame) -> Result<Value> {
        let (what, shown) = Self::probe(note, name, frame)?;
        if !what.starts_with("grad_") {
            return Ok(value);
        }
        let Some(owner) = frame.path.clone() else {
            return unsupported(note.span, "a probe of gradients inside a module that is called with its weights");
        };
        if let Some(condition) = note.argument("condition") {
            return unsupported(condition.span, "a condition on a probe of gradients");
        }
        if self.in_backward {
            return unsupported(note.span, "a probe of gradients in a backward graph, where a plain one shows them,");
        }
        let ty = self.b.graph.ty(value).clone();
        if !ty.dtype.is_float() {
            return fail(
                Code::E015,
                note.span,
                format!("`{name}` has no gradient"),
                format!("its elements are {}", ty.dtype),
            );
        }
        let entry = format!("{name}.gradient");
        if self.adapters.is_none() {
            let site = self.site("", name);
            let layer = match site.layer {
                Some(LayerIndex::Number(layer)) => Some(layer),
                _ => None,
            };
            let tap = Observation { kind: shown, path: site.path, layer, ty };
            self.adapters_found.push(DeclaredAdapter {
                owner,
                params: Vec::new(),
                key: None,
                gradient_probe: Some((entry, tap)),
            });
            return Ok(value);
        }
        let Some(FrameEntry::Tensor(tap)) = frame.entries.get(&entry) else { return Ok(value) };
        self.changed += 1;
        self.b.add(value, *tap).map_err(|e| op_error(&e, note.span, "@probe"))
    }

    fn record_probe(&mut self, note: &Annotation, name: &str, value: Value, frame: &ModuleFrame) -> Result<()> {
        let (what, mut shown) = Self::probe(note, name, frame)?;
        if what.starts_with("grad_") {
            return Ok(());
        }
        if let Some(condition) = note.argument("condition") {
            match self.quoted_condition(condition, frame)? {
                ConditionResult::Known(false) => return Ok(()),
                ConditionResult::Known(true) => {
                    if let ObservationKind::Probe { conditional, .. } = &mut shown {
                        *conditional = false;
                    }
                }
                ConditionResult::Computed(holds) => self.add_observation(ObservationKind::Condition, name, holds),
            }
        }
        let captured = capture(&mut self.b, value, &what).map_err(|e| op_error(&e, note.span, "@probe"))?;
        let Some(captured) = captured else {
            return unsupported(note.span, format!("capturing `{what}`"));
        };
        self.add_observation(shown, name, captured);
        Ok(())
    }

    fn record_assert(&mut self, note: &Annotation, name: &str, frame: &ModuleFrame) -> Result<()> {
        let Some(expr) = note.argument("condition") else { return Ok(()) };
        if let Some(enabled) = note.argument("enabled")
            && !frame.condition(enabled)?
        {
            return Ok(());
        }
        let message = note.word("message").unwrap_or_else(|| self.program.sources.slice(expr.span).to_string());
        if let Some(holds) = self.condition(expr, &message, frame)? {
            self.add_observation(ObservationKind::Assert { message }, name, holds);
        }
        Ok(())
    }

    /// `@gradient(skip)`, `scale=` and `clip=`: the value is unchanged, its cotangent is modified.
    pub(super) fn gradient(&mut self, note: &Annotation, value: Value, frame: &ModuleFrame) -> Result<Value> {
        let ty = self.b.graph.ty(value).clone();
        if !ty.dtype.is_float() {
            // Integers have no gradient, so skipping has no effect.
            if note.argument("scale").is_none() && note.argument("clip").is_none() {
                return Ok(value);
            }
            let label = format!("its elements are {}", ty.dtype);
            return fail(Code::E015, note.span, "a tensor without a gradient", label);
        }
        let number = |key: &str| -> Result<Option<f64>> {
            let Some(expr) = note.argument(key) else { return Ok(None) };
            match frame.constant(expr)? {
                Const::Float(Some(x)) => Ok(Some(x)),
                Const::None => Ok(None),
                other => match other.as_int() {
                    Some(n) => Ok(Some(n as f64)),
                    None => fail(Code::E008, expr.span, "expected a number", format!("this is {other}")),
                },
            }
        };
        let skip = note.word("mode").as_deref() == Some("skip");
        let scale = if skip { Some(0.0) } else { number("scale")? };
        let clip = number("clip")?;
        if scale.is_none() && clip.is_none() {
            return Ok(value);
        }
        if self.in_backward {
            // The value is itself a gradient.
            let fault = |e: ir::Error| op_error(&e, note.span, "@gradient");
            let scaled = self.b.scale(value, scale.unwrap_or(1.0)).map_err(fault)?;
            return clip_cotangent(&mut self.b, scaled, clip).map_err(fault);
        }
        self.changed += 1;
        let made = (|| {
            if skip {
                return self.b.one(ir::ops::StopGradient.into(), &[value]);
            }
            let mut body = Builder::new();
            let x = body.graph.input(ty.clone());
            let mut vjp = Builder::new();
            vjp.graph.input(ty.clone());
            vjp.graph.input(ty.clone());
            let mut ct = vjp.graph.input(ty.clone());
            if let Some(scale) = scale {
                ct = vjp.scale(ct, scale)?;
            }
            ct = clip_cotangent(&mut vjp, ct, clip)?;
            let composite = Composite {
                name: "gradient".to_string(),
                params: vec![("of".to_string(), Attr::Word("identity".to_string()))],
                body: Arc::new(body.finish(&[x])),
                num_public_outputs: 1,
                derivative: Derivative::Vjp(Arc::new(vjp.finish(&[ct]))),
            };
            self.b.one(composite.into(), &[value])
        })();
        made.map_err(|e| op_error(&e, note.span, "@gradient"))
    }

    /// Records annotations that this machine does not support.
    pub(super) fn record_ignored(&mut self, notes: &[&Annotation]) {
        for note in notes {
            let why = match (note.name.name.as_str(), note.word("mode").as_deref()) {
                ("kernel", _) => "the compiler generates its own kernels",
                ("memory", Some("offload" | "stream")) => "the device has one memory",
                _ => continue,
            };
            let file = self.program.sources.file(note.span.file);
            let place = file.line_column(note.span.start);
            let text = self.program.sources.slice(note.span);
            let line = format!("{}:{}: {text}: {why}", file.name(), place.line);
            if !self.ignored.contains(&line) {
                self.ignored.push(line);
            }
        }
    }

    /// Applies annotations of a declaration to its whole body: `@recipe`, `@profile`, `@trace`.
    pub(super) fn apply_declaration_annotations(&mut self, view: &ModuleView<'_>, frame: &ModuleFrame) -> Result<()> {
        for &(note, file) in &view.annotations {
            match note.name.name.as_str() {
                "profile" => {
                    self.profile = note.word("name").or(self.profile.take());
                    self.record_profile_name(note, frame);
                }
                "trace" => self.trace_level = Some(note.word("level").unwrap_or_else(|| "ops".to_string())),
                "recipe" => self.recipe(note, file)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Applies a recipe to a declaration. A recipe of the whole model does not affect the output projection.
    fn recipe(&mut self, note: &Annotation, file: usize) -> Result<()> {
        if self.options.recipe.is_some() {
            return Ok(());
        }
        let path = note.args.iter().flatten().next().and_then(|arg| arg.value.as_path());
        let Some(Entity::Item(item)) = path.and_then(|path| self.program.lookup(file, &path)) else { return Ok(()) };
        let Some(declared) = self.program.recipe(item) else { return Ok(()) };
        let recipe = super::PrecisionRecipe::from_decl(declared)?;
        self.apply_recipe(&recipe, note.span, self.depth == 1);
        Ok(())
    }

    /// Applies a recipe to everything that follows.
    pub(super) fn apply_recipe(&mut self, recipe: &super::PrecisionRecipe, span: Span, whole: bool) {
        if let Some(few) = recipe.operand_rounding {
            self.note_emulated_products(span, &few);
            match whole {
                true => self.whole = Some(few),
                false => self.few = Some(few),
            }
            self.compute = None;
        } else if recipe.compute.is_some() {
            // A module that is computed in full precision inside a low-precision model.
            self.own_precision |= self.whole.is_some();
            self.few = None;
        }
        if recipe.compute.is_some() || recipe.output.is_some() {
            self.compute = recipe.compute.or(self.compute);
            self.output = Some(recipe.output.and_then(super::TensorFormat::native_dtype).unwrap_or(self.options.dtype));
        }
    }

    /// Records metadata of the result: traces, and statements to be fused into one kernel.
    pub(super) fn record_trace(
        &mut self,
        flow: &Flow,
        before: &[LoweredOperand],
        after: &[LoweredOperand],
        frame: &ModuleFrame,
    ) {
        let view = frame.item.and_then(|item| ModuleView::new(self.program, item));
        let whole = view.and_then(|view| view.forward.graph).map(|graph| graph.span);
        let notes: Vec<&Annotation> =
            flow.annotations.iter().chain(flow.steps.iter().flat_map(|s| &s.annotations)).collect();
        self.record_ignored(&notes);
        let level = find(&notes, "trace").map(|note| note.word("level").unwrap_or_default());
        if let Some(level) = level.or_else(|| self.trace_level.clone()) {
            let shapes = |operands: &[LoweredOperand]| {
                let shown = operands.iter().filter_map(|operand| match operand {
                    LoweredOperand::Tensor(value) => Some(self.b.graph.ty(*value).to_string()),
                    _ => None,
                });
                shown.collect::<Vec<_>>().join(", ")
            };
            let ops = flow.steps.iter().filter_map(|step| match &step.kind {
                StepKind::Call(call) => Some(call.callee.path.to_string()),
                StepKind::Shape(_) => None,
            });
            let ops = ops.collect::<Vec<_>>().join(", ");
            let place = self.site(
                "",
                &flow.dest.items.first().and_then(|i| i.name.as_ref()).map_or(String::new(), ToString::to_string),
            );
            let line = match level.as_str() {
                "tensors" | "values" => format!("{}: {ops}: {} -> {}", place.path, shapes(before), shapes(after)),
                _ => format!("{}: {ops}", place.path),
            };
            self.trace.push(line);
        }
        for (name, required) in [("fuse_required", true), ("fuse", false)] {
            if let Some(note) = find(&notes, name) {
                let file = self.program.sources.file(flow.span.file);
                // The scope is the statement, or its graph.
                let span = match note.word("scope").as_deref() {
                    Some("global") => whole.unwrap_or(flow.span),
                    _ => flow.span,
                };
                let (first, last) = (file.line_column(span.start), file.line_column(span.end));
                let fusion = Fusion {
                    file: file.name().to_string(),
                    first: first.line,
                    last: last.line,
                    required,
                    span: note.span,
                };
                if !self.fusions.contains(&fusion) {
                    self.fusions.push(fusion);
                }
            }
        }
        if let Some(note) = find(&notes, "profile") {
            self.record_profile_name(note, frame);
        }
    }

    /// Records a name of `@profile`, and whether its memory is measured.
    fn record_profile_name(&mut self, note: &Annotation, frame: &ModuleFrame) {
        let Some(name) = note.word("name") else { return };
        if note.argument("memory").is_some_and(|expr| frame.condition(expr).is_ok_and(|memory| memory)) {
            self.profiled_memory.insert(name.clone());
        }
        if !self.profiled.contains(&name) {
            self.profiled.push(name);
        }
    }
}

fn clip_cotangent(b: &mut Builder, ct: Value, clip: Option<f64>) -> ir::Result<Value> {
    let Some(clip) = clip else { return Ok(ct) };
    let (low, high) = (b.full_like(ct, -clip)?, b.full_like(ct, clip)?);
    let ct = b.binary(ir::Binary::Max, ct, low)?;
    b.binary(ir::Binary::Min, ct, high)
}
