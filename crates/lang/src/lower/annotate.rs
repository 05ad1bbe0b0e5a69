//! What annotations do to a result (§7): precision, adapters, hooks, gradients, probes, asserts, fusion, traces.

use super::adapter::Declared;
use super::assertion::Held;
use super::frame::{Entry, Frame};
use super::graph::Operand;
use super::hooks::{Layer, Observation, Shown, capture};
use super::notes::{Notes, find};
use super::{Fusion, Lowerer, Result, Summing, fail, misfit, unsupported};
use crate::ast::{Annotation, Flow, StepKind};
use crate::check::{Place, check_annotations};
use crate::consteval::{Names, Truth, Value as Const};
use crate::diagnostic::Code;
use crate::resolve::{Entity, ModuleView};
use crate::span::Span;
use ir::attr::Attr;
use ir::ops::{Composite, Derivative, Name};
use ir::{Build, Builder, Value};
use std::sync::Arc;
use transform::Few;

/// Constants with their values; any other name may be a tensor.
pub(super) struct Known<'a>(pub(super) &'a Frame);

impl Names for Known<'_> {
    fn value(&self, name: &str) -> Option<Const> {
        self.0.value(name)
    }

    fn is_tensor(&self, _name: &str) -> bool {
        true
    }

    fn assumed(&self, _condition: &str) -> Option<bool> {
        None
    }
}

impl Lowerer<'_> {
    /// Annotations whose arguments depend on parameters are checked again, now that those have values.
    pub(super) fn valid(&self, notes: &[Annotation], place: Place, frame: &Frame) -> Result<()> {
        if notes.is_empty() {
            return Ok(());
        }
        let mut found = Vec::new();
        check_annotations(notes, place, &Known(frame), &mut found);
        match found.into_iter().find(crate::diagnostic::Diagnostic::is_error) {
            Some(found) => Err(Box::new(found)),
            None => Ok(()),
        }
    }

    /// `@dtype(x)` converts; to few bits with what `@scaling` says beside it.
    pub(super) fn converted(&mut self, value: Value, notes: &[&Annotation], frame: &Frame) -> Result<Value> {
        let Some(note) = find(notes, "dtype") else { return Ok(value) };
        let Some(name) = note.word("type") else { return Ok(value) };
        let span = note.name.span;
        // Whole numbers without a scale are a conversion as any other.
        let plain = name == "int8" && find(notes, "scaling").is_none();
        if let Some(few) = Few::named(&name).filter(|_| !plain) {
            let how = self.rounding(few, notes, &Known(frame), span)?;
            self.emulates(span, &format!("rounded to {}, kept in f32", how.words()));
            return self.quantized(value, &how, span);
        }
        let dtype = super::declare::dtype_named(&name, span)?;
        (self.b.cast(value, dtype)).map_err(|e| misfit(&e, span, "@dtype"))
    }

    /// Everything that annotations do to one result of a flow.
    pub(super) fn annotated(
        &mut self,
        name: &str,
        value: Value,
        notes: &[&Annotation],
        source: Option<Value>,
        frame: &Frame,
    ) -> Result<Value> {
        let mut value = self.converted(value, notes, frame)?;
        if let Some(note) = find(notes, "adapter") {
            value = self.adapted(note, name, source, value, frame)?;
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
            value = self.hooked(note, name, value)?;
        }
        for note in notes.iter().filter(|note| note.name.name == "probe" && self.options.probes) {
            value = self.tapped(note, name, value, frame)?;
        }
        if let Some(note) = find(notes, "gradient") {
            value = self.gradient(note, value, frame)?;
        }
        value = self.staged(notes, value, frame)?;
        value = self.divided(notes, value, frame)?;
        value = self.barrier(notes, value)?;
        self.kept(name, notes, value, frame)
    }

    /// `@partition(n)`: a mark for those who cut the graph into stages of a pipeline.
    fn staged(&mut self, notes: &[&Annotation], value: Value, frame: &Frame) -> Result<Value> {
        let Some(note) = find(notes, "partition").filter(|_| self.options.decode.is_none()) else { return Ok(value) };
        let stage = note.argument("stage").and_then(|expr| frame.constant(expr).ok()?.as_int());
        let Some(stage) = stage.and_then(|n| usize::try_from(n).ok()) else { return Ok(value) };
        self.b
            .one(Name::new(format!("stage {stage}")).into(), &[value])
            .map_err(|e| misfit(&e, note.span, "@partition"))
    }

    /// `@shard` and `@comm` of a result: marks for those who divide the graph over a mesh. On gradients of a written backward
    /// graph, `@comm` says how they are summed.
    pub(super) fn divided(&mut self, notes: &[&Annotation], value: Value, frame: &Frame) -> Result<Value> {
        let mut value = value;
        let flag = |note: &Annotation, key: &str| {
            let given = note.argument(key).and_then(|expr| frame.constant(expr).ok());
            !matches!(given, Some(Const::Bool(Truth::Known(false))))
        };
        for note in notes {
            let mark = match note.name.name.as_str() {
                "shard" if !self.in_backward => note.word("strategy").map(|strategy| format!("shard {strategy}")),
                "comm" if self.in_backward => {
                    let size = note.argument("bucket_size").map(|expr| frame.size(expr)).transpose()?;
                    let Summing { bucket, waits } = self.summing;
                    let bucket = [bucket, size].into_iter().flatten().min();
                    self.summing = Summing { bucket, waits: waits || !flag(note, "async") };
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
                value = marked.map_err(|e| misfit(&e, note.span, &note.name.name))?;
            }
        }
        Ok(value)
    }

    /// `@nofuse` and `@barrier`: the value is stored.
    pub(super) fn barrier(&mut self, notes: &[&Annotation], value: Value) -> Result<Value> {
        match find(notes, "nofuse").or_else(|| find(notes, "barrier")) {
            Some(note) => self.b.one(Name::nofuse().into(), &[value]).map_err(|e| misfit(&e, note.span, "@nofuse")),
            None => Ok(value),
        }
    }

    /// What only looks at a result: it must have its name by then.
    pub(super) fn watched(&mut self, name: &str, value: Value, notes: &[&Annotation], frame: &Frame) -> Result<()> {
        for note in notes {
            match note.name.name.as_str() {
                "probe" if self.options.probes => self.probed(note, name, value, frame)?,
                "assert" if self.options.asserts => self.asserted(note, name, frame)?,
                _ => {}
            }
        }
        let own = find(notes, "trace").map(|note| note.word("level").unwrap_or_else(|| "ops".to_string()));
        let level = own.or_else(|| self.trace_level.clone());
        if self.options.probes && !self.in_backward && level.as_deref() == Some("values") {
            self.show(Shown::Trace, name, value);
        }
        Ok(())
    }

    /// What a probe captures, and how it goes by outside.
    fn probe(note: &Annotation, name: &str, frame: &Frame) -> Result<(String, Shown)> {
        let what = note.word("capture").unwrap_or_else(|| "stats".to_string());
        let frequency = match note.argument("frequency") {
            Some(expr) => frame.size(expr)?.max(1),
            None => 1,
        };
        let name = note.word("name").unwrap_or_else(|| name.to_string());
        let conditional = note.argument("condition").is_some();
        Ok((what.clone(), Shown::Probe { name, capture: what, frequency, conditional }))
    }

    /// A tensor whose gradient is probed, plus an input that is zero: the gradient of that input is the tensor's.
    fn tapped(&mut self, note: &Annotation, name: &str, value: Value, frame: &Frame) -> Result<Value> {
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
                Some(Layer::Number(layer)) => Some(layer),
                _ => None,
            };
            let tap = Observation { shown, path: site.path, layer, ty };
            self.adapters_found.push(Declared { owner, params: Vec::new(), key: None, tap: Some((entry, tap)) });
            return Ok(value);
        }
        let Some(Entry::Tensor(tap)) = frame.entries.get(&entry) else { return Ok(value) };
        self.changed += 1;
        self.b.add(value, *tap).map_err(|e| misfit(&e, note.span, "@probe"))
    }

    fn probed(&mut self, note: &Annotation, name: &str, value: Value, frame: &Frame) -> Result<()> {
        let (what, mut shown) = Self::probe(note, name, frame)?;
        if what.starts_with("grad_") {
            return Ok(());
        }
        if let Some(condition) = note.argument("condition") {
            match self.quoted_condition(condition, frame)? {
                Held::Known(false) => return Ok(()),
                Held::Known(true) => {
                    if let Shown::Probe { conditional, .. } = &mut shown {
                        *conditional = false;
                    }
                }
                Held::Computed(holds) => self.show(Shown::Condition, name, holds),
            }
        }
        let captured = capture(&mut self.b, value, &what).map_err(|e| misfit(&e, note.span, "@probe"))?;
        let Some(captured) = captured else {
            return unsupported(note.span, format!("capturing `{what}`"));
        };
        self.show(shown, name, captured);
        Ok(())
    }

    fn asserted(&mut self, note: &Annotation, name: &str, frame: &Frame) -> Result<()> {
        let Some(expr) = note.argument("condition") else { return Ok(()) };
        if let Some(enabled) = note.argument("enabled")
            && !frame.condition(enabled)?
        {
            return Ok(());
        }
        let message = note.word("message").unwrap_or_else(|| self.program.sources.slice(expr.span).to_string());
        if let Some(holds) = self.condition(expr, &message, frame)? {
            self.show(Shown::Assert { message }, name, holds);
        }
        Ok(())
    }

    /// `@gradient(skip)`, `scale=` and `clip=`: the value as it is, with another cotangent.
    pub(super) fn gradient(&mut self, note: &Annotation, value: Value, frame: &Frame) -> Result<Value> {
        let ty = self.b.graph.ty(value).clone();
        if !ty.dtype.is_float() {
            // Whole numbers have no gradient, so skipping it is what happens anyway.
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
            // The value is a gradient itself.
            let fault = |e: ir::Error| misfit(&e, note.span, "@gradient");
            let scaled = self.b.scale(value, scale.unwrap_or(1.0)).map_err(fault)?;
            return clipped(&mut self.b, scaled, clip).map_err(fault);
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
            ct = clipped(&mut vjp, ct, clip)?;
            let composite = Composite {
                name: "gradient".to_string(),
                params: vec![("of".to_string(), Attr::Word("identity".to_string()))],
                body: Arc::new(body.finish(&[x])),
                public: 1,
                derivative: Derivative::Vjp(Arc::new(vjp.finish(&[ct]))),
            };
            self.b.one(composite.into(), &[value])
        })();
        made.map_err(|e| misfit(&e, note.span, "@gradient"))
    }

    /// Annotations that only another machine could honour, for whoever asks.
    pub(super) fn unheeded(&mut self, notes: &[&Annotation]) {
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

    /// What annotations of a declaration mean for everything in it: `@recipe`, `@profile`, `@trace`.
    pub(super) fn declared(&mut self, view: &ModuleView<'_>, frame: &Frame) -> Result<()> {
        for &(note, file) in &view.notes {
            match note.name.name.as_str() {
                "profile" => {
                    self.profile = note.word("name").or(self.profile.take());
                    self.profiles(note, frame);
                }
                "trace" => self.trace_level = Some(note.word("level").unwrap_or_else(|| "ops".to_string())),
                "recipe" => self.recipe(note, file)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// What a recipe means for everything in a declaration. That of the whole model leaves the product that gives its result alone.
    fn recipe(&mut self, note: &Annotation, file: usize) -> Result<()> {
        if self.options.recipe.is_some() {
            return Ok(());
        }
        let path = note.args.iter().flatten().next().and_then(|arg| arg.value.as_path());
        let Some(Entity::Item(item)) = path.and_then(|path| self.program.lookup(file, &path)) else { return Ok(()) };
        let Some(declared) = self.program.recipe(item) else { return Ok(()) };
        let recipe = super::Recipe::of(declared)?;
        self.follow(&recipe, note.span, self.depth == 1);
        Ok(())
    }

    /// Everything from here on is computed as a recipe says.
    pub(super) fn follow(&mut self, recipe: &super::Recipe, span: Span, whole: bool) {
        if let Some(few) = recipe.few {
            self.emulates_products(span, &few);
            match whole {
                true => self.whole = Some(few),
                false => self.few = Some(few),
            }
            self.compute = None;
        } else if recipe.compute.is_some() {
            // A module of a model in few bits that is to be wide.
            self.own_precision |= self.whole.is_some();
            self.few = None;
        }
        if recipe.compute.is_some() || recipe.output.is_some() {
            self.compute = recipe.compute.or(self.compute);
            self.output = Some(recipe.output.and_then(super::Format::wide).unwrap_or(self.options.dtype));
        }
    }

    /// Notes for whoever reads the result: traces, and which statements are to be one kernel.
    pub(super) fn noted(&mut self, flow: &Flow, before: &[Operand], after: &[Operand], frame: &Frame) {
        let view = frame.item.and_then(|item| ModuleView::new(self.program, item));
        let whole = view.and_then(|view| view.forward.graph).map(|graph| graph.span);
        let notes: Vec<&Annotation> =
            flow.annotations.iter().chain(flow.steps.iter().flat_map(|s| &s.annotations)).collect();
        self.unheeded(&notes);
        let level = find(&notes, "trace").map(|note| note.word("level").unwrap_or_default());
        if let Some(level) = level.or_else(|| self.trace_level.clone()) {
            let shapes = |operands: &[Operand]| {
                let shown = operands.iter().filter_map(|operand| match operand {
                    Operand::Tensor(value) => Some(self.b.graph.ty(*value).to_string()),
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
                // The scope is the statement, or the graph that it stands in.
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
            self.profiles(note, frame);
        }
    }

    /// A name of `@profile`, and whether its memory counts.
    fn profiles(&mut self, note: &Annotation, frame: &Frame) {
        let Some(name) = note.word("name") else { return };
        if note.argument("memory").is_some_and(|expr| frame.condition(expr).is_ok_and(|memory| memory)) {
            self.profiled_memory.insert(name.clone());
        }
        if !self.profiled.contains(&name) {
            self.profiled.push(name);
        }
    }
}

fn clipped(b: &mut Builder, ct: Value, clip: Option<f64>) -> ir::Result<Value> {
    let Some(clip) = clip else { return Ok(ct) };
    let (low, high) = (b.full_like(ct, -clip)?, b.full_like(ct, clip)?);
    let ct = b.binary(ir::Binary::Max, ct, low)?;
    b.binary(ir::Binary::Min, ct, high)
}
