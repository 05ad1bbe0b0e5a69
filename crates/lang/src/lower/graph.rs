//! Lowers the graph of a module: statements in the order of their data flow, operands, indices, results.

use super::annotate::FrameNames;
use super::annotations::{AnnotationArgs, find};
use super::checkpoint::{SaveLists, requested_region};
use super::declare::declared_dtype;
use super::frame::{FrameEntry, LoweredInstance, ModuleFrame, io_name};
use super::quantized_types::{check_scaling_alone, is_low_precision_dtype};
use super::recipe::{PrecisionRecipe, TensorFormat};
use super::rope_table::RopeTable;
use super::sequence::SequenceDependence;
use super::{Lowerer, MAX_STATEMENTS, Result, fail, op_error, too_large, unsupported};
use crate::ast::{
    Annotation, Call, Expr, ExprKind, Flow, FlowSource, FlowStep, IndexItem, IoTensor, Path, Pattern, Statement,
    StepKind,
};
use crate::check::{AnnotationTarget, graph_uses};
use crate::diagnostic::{Code, Diagnostic};
use crate::resolve::ModuleView;
use crate::span::Span;
use ir::{GraphBuilder, Value};
use std::collections::BTreeSet;
use std::rc::Rc;
use transform::LowPrecision;

/// The precision outside of a statement, and the number of preceding roundings.
type OuterPrecision = (Option<transform::MatmulRounding>, bool, usize);

/// An operand of an operation.
#[derive(Clone, Debug)]
pub(super) enum LoweredOperand {
    Tensor(Value),
    Table(Rc<RopeTable>),
    /// Gradients of a module's parameters, which are accumulated implicitly.
    Gradients,
    /// An array of modules, the operand of `moe_experts`.
    Experts(Vec<Rc<LoweredInstance>>),
    /// An absent optional tensor, by its name.
    Absent(String),
}

impl LoweredOperand {
    pub(super) fn tensor(&self, span: Span) -> Result<Value> {
        match self {
            LoweredOperand::Tensor(value) => Ok(*value),
            LoweredOperand::Table(_) => unsupported(span, "a table of rotations outside of `rope`"),
            LoweredOperand::Gradients => unsupported(span, "reading the gradients of a module's parameters"),
            LoweredOperand::Absent(name) => {
                fail(Code::E003, span, format!("`{name}` is None here"), "a tensor is needed")
            }
            LoweredOperand::Experts(_) => {
                fail(Code::E003, span, "an array of modules is not a tensor", "call one, or a stack")
            }
        }
    }
}

impl Lowerer<'_> {
    /// Lowers an instance with its inputs; an optional input may be absent.
    pub(super) fn run_instance(
        &mut self,
        instance: &LoweredInstance,
        inputs: Vec<Option<Value>>,
        at: Span,
    ) -> Result<Vec<Value>> {
        let Some(view) = ModuleView::new(self.program, instance.item) else {
            return fail(Code::E002, at, "not a module", "");
        };
        let mut frame = ModuleFrame::new(instance.item.file, instance.given.clone());
        frame.entries = instance.entries.clone();
        frame.path = Some(instance.path.clone());
        let path = std::mem::replace(&mut self.path, instance.path.clone());
        let outputs = self.run_module(&view, frame, inputs, at);
        self.path = path;
        outputs
    }

    /// Lowers a module: as a composite if it has an explicit backward graph, else inline.
    pub(super) fn run_module(
        &mut self,
        view: &ModuleView<'_>,
        mut frame: ModuleFrame,
        mut inputs: Vec<Option<Value>>,
        at: Span,
    ) -> Result<Vec<Value>> {
        self.enter(at)?;
        (frame.lists, frame.item) = (SaveLists::of(view), Some(view.item));
        self.bind_inputs(view, &mut frame, &mut inputs, at)?;
        let outer = (self.compute, self.output, self.profile.clone(), self.trace_level.clone());
        let outer_few = (self.few, self.own_precision);
        let notes: Vec<Annotation> = view.annotations.iter().map(|(note, _)| (*note).clone()).collect();
        self.recheck_annotations(&notes, AnnotationTarget::Declaration, &frame)?;
        if let (Some(recipe), 1) = (self.options.recipe, self.depth) {
            self.apply_recipe(&recipe, view.decl.name.span, true);
        }
        self.apply_declaration_annotations(view, &frame)?;
        // An explicit backward graph would compute its products in full precision.
        let written = self.options.custom_backward && self.options.decode.is_none() && self.few.is_none();
        let outputs = if written && view.backward.is_some() {
            self.with_custom_backward(view, &frame, &inputs, at)
        } else {
            self.run_body(view, &mut frame)
        };
        (self.compute, self.output, self.profile, self.trace_level) = outer;
        (self.few, self.own_precision) = outer_few;
        self.depth -= 1;
        outputs
    }

    fn bind_inputs(
        &mut self,
        view: &ModuleView<'_>,
        frame: &mut ModuleFrame,
        inputs: &mut [Option<Value>],
        at: Span,
    ) -> Result<()> {
        if view.pattern.is_some() && view.forward.inputs.is_empty() {
            if let [Some(x)] = &*inputs {
                frame.entries.insert("in".to_string(), FrameEntry::Tensor(*x));
            }
            return frame.eval_lets(view, true);
        }
        let optional = |i: usize| {
            let slot = view.forward.inputs[i];
            slot.optional || matches!(slot.ty.as_ref().map(|t| &t.kind), Some(crate::ast::TypeKind::Optional(_)))
        };
        let needed = (0..view.forward.inputs.len()).filter(|&i| !optional(i)).count();
        if inputs.len() > view.forward.inputs.len() || inputs.len() < needed {
            let name = &view.decl.name.name;
            let (want, got) = (view.forward.inputs.len(), inputs.len());
            let label = format!("takes {want} tensors, got {got}");
            return fail(Code::E003, at, format!("wrong number of inputs for `{name}`"), label);
        }
        for (index, slot) in view.forward.inputs.iter().enumerate() {
            let mut value = inputs.get(index).copied().flatten();
            if let Some(given) = value {
                value = Some(self.cast_to_declared(slot, given, frame)?);
                inputs[index] = value;
            }
            if let (Some(value), Some(ty)) = (value, &slot.ty) {
                frame.infer_sizes(ty, &self.b.graph.ty(value).shape);
                self.learn_time(frame, ty, value);
            }
            let entry = value.map_or(FrameEntry::Absent, FrameEntry::Tensor);
            frame.entries.insert(io_name(slot, "in"), entry);
        }
        frame.defaults(view, at)?;
        for slot in &view.forward.inputs {
            self.recheck_annotations(&slot.annotations, AnnotationTarget::Input, frame)?;
        }
        let skipped = view.forward.inputs.iter().filter_map(|slot| {
            let note = slot.annotations.iter().find(|note| note.name.name == "gradient")?;
            Some((io_name(slot, "in"), note))
        });
        for (name, note) in skipped {
            if let (Some(FrameEntry::Tensor(value)), None) = (frame.entries.get(&name).cloned(), &view.backward) {
                let value = self.gradient(note, value, frame)?;
                frame.entries.insert(name, FrameEntry::Tensor(value));
            }
        }
        frame.eval_lets(view, true)?;
        for (slot, value) in view.forward.inputs.iter().zip(&*inputs) {
            if let (Some(ty), Some(value)) = (&slot.ty, value) {
                frame.check_shape(&io_name(slot, "in"), ty, &self.b.graph.ty(*value).shape, at)?;
            }
        }
        Ok(())
    }

    /// Converts a tensor to the dtype of its declaration: `[B, T, bf16]`, or `@dtype(bf16)` after it.
    fn cast_to_declared(&mut self, slot: &IoTensor, value: Value, frame: &ModuleFrame) -> Result<Value> {
        let notes: Vec<&Annotation> = slot.annotations.iter().collect();
        if let Some(note) = find(&notes, "dtype") {
            check_scaling_alone(
                &notes,
                note.word("type").is_some_and(|name| LowPrecision::from_name(&name).is_some()),
            )?;
            return self.convert_dtype(value, &notes, frame);
        }
        let name = slot.ty.as_ref().and_then(declared_dtype);
        let few = name
            .filter(|name| is_low_precision_dtype(&name.name))
            .and_then(|name| Some((LowPrecision::from_name(&name.name)?, name)));
        check_scaling_alone(&notes, few.is_some())?;
        if let Some((few, name)) = few {
            if self.format_of(value) == Some(few) || !self.b.graph.ty(value).dtype.is_float() {
                return Ok(value);
            }
            if find(&notes, "scaling").is_none() {
                let found = Diagnostic::new(
                    Code::E015,
                    name.span,
                    format!("tensors are not converted to {} implicitly", few.name()),
                )
                .with_label("the given tensor is not quantized")
                .with_hint("write `@scaling(per_tensor)` after it, or `quantize` it first");
                return Err(Box::new(found));
            }
            let how = self.rounding(few, &notes, &FrameNames(frame), name.span)?;
            self.note_emulated(name.span, &format!("rounded to {}, kept in f32", how.describe()));
            return self.quantize_value(value, &how, name.span);
        }
        let Some(name) = name else { return Ok(value) };
        let want = super::declare::parse_dtype(&name.name, name.span)?;
        let have = self.b.graph.ty(value).dtype;
        match have == want || !have.is_float() || !want.is_float() {
            true => Ok(value),
            false => (self.b.cast(value, want)).map_err(|e| op_error(&e, name.span, "the declared dtype")),
        }
    }

    /// Lowers the forward graph, in a separate region if its memory annotations request one.
    fn run_body(&mut self, view: &ModuleView<'_>, frame: &mut ModuleFrame) -> Result<Vec<Value>> {
        let Some(region) = self.body_region(view) else {
            return self.run_plain_body(view, frame);
        };
        let at = view.decl.name.span;
        let values = self.recomputed(frame, &[], region, at, |l, frame, _| {
            let values = l.run_plain_body(view, frame)?;
            Ok(values.into_iter().map(LoweredOperand::Tensor).collect())
        })?;
        values.iter().map(|value| value.tensor(at)).collect()
    }

    /// Lowers the forward graph into the current builder; its names stay in the frame.
    pub(super) fn run_plain_body(&mut self, view: &ModuleView<'_>, frame: &mut ModuleFrame) -> Result<Vec<Value>> {
        if let Some(pattern) = view.pattern
            && view.forward.graph.is_none()
        {
            return self.residual_pattern(pattern, frame);
        }
        let Some(graph) = view.forward.graph else {
            let name = &view.decl.name.name;
            return fail(Code::L007, view.decl.name.span, format!("`{name}` has no graph to run"), "");
        };
        self.statements(&graph.statements, frame)?;
        let mut outputs = Vec::new();
        for slot in &view.forward.outputs {
            let name = io_name(slot, "out");
            match frame.entries.get(&name) {
                Some(FrameEntry::Tensor(value)) => {
                    let mut value = self.cast_to_declared(slot, *value, frame)?;
                    self.recheck_annotations(&slot.annotations, AnnotationTarget::Result, frame)?;
                    if let Some(note) = slot.annotations.iter().find(|note| note.name.name == "gradient") {
                        value = self.gradient(note, value, frame)?;
                    }
                    outputs.push(value);
                }
                _ => return fail(Code::E002, slot.span, format!("output `{name}` is never computed"), ""),
            }
        }
        Ok(outputs)
    }

    /// Lowers each statement as soon as its operands are defined.
    pub(super) fn statements(&mut self, statements: &[Statement], frame: &mut ModuleFrame) -> Result<()> {
        let mut flows = Vec::new();
        self.flatten(statements, frame, &mut flows)?;
        let names = |flow: &Flow| -> Vec<String> {
            let items = flow.dest.items.iter();
            items.filter_map(|item| item.name.as_ref()).map(Path::to_string).collect()
        };
        // A gradient may be assigned several times; its uses wait for all contributions.
        let mut pending: Vec<&Flow> = flows;
        while !pending.is_empty() {
            let before = pending.len();
            let mut index = 0;
            while index < pending.len() {
                let made: BTreeSet<String> = pending.iter().flat_map(|flow| names(flow)).collect();
                let own = names(pending[index]);
                let ready =
                    graph_uses(pending[index]).iter().all(|(name, _)| !made.contains(name) || own.contains(name));
                if ready {
                    let flow = pending.remove(index);
                    self.flow(flow, frame)?;
                } else {
                    index += 1;
                }
            }
            if pending.len() == before {
                return fail(Code::E007, pending[0].span, "statements depend on one another in a cycle", "");
            }
        }
        Ok(())
    }

    fn flow(&mut self, flow: &Flow, frame: &mut ModuleFrame) -> Result<()> {
        self.at(flow.span);
        self.statements += 1;
        if self.statements > MAX_STATEMENTS {
            let message = format!("more than {MAX_STATEMENTS} statements in one model");
            return too_large(flow.span, message, "one of them");
        }
        let place = if self.in_backward { AnnotationTarget::Backward } else { AnnotationTarget::Output };
        self.recheck_annotations(&flow.annotations, place, frame)?;
        let operands = match &flow.source {
            FlowSource::Tensors { items, .. } => {
                let read = items.iter().map(|item| self.operand(item, frame));
                read.collect::<Result<Vec<_>>>()?
            }
            FlowSource::Call(call) => self.call_operands(call, Vec::new(), frame)?,
            FlowSource::Elided(span) => return unsupported(*span, "a source left out with `...`"),
        };
        let notes: Vec<&Annotation> = flow.annotations.iter().collect();
        let source = operands.first().cloned();
        let scales = Self::scales_products(flow, &notes);
        let own = self.precision(&notes, &FrameNames(frame), scales)?;
        let outer = (self.compute, self.profile.clone());
        let outer_few = self.enter_precision(&own, flow.span);
        self.quantizing = match scales {
            true => None,
            false => self.scale(&notes, &FrameNames(frame))?.map(|(_, scale)| scale),
        };
        self.profile = (find(&notes, "profile").and_then(|note| note.word("name"))).or(self.profile.take());
        self.at(flow.span);
        let before = operands.clone();
        let results = match requested_region(&notes).filter(|_| self.options.decode.is_none() && self.region.is_none())
        {
            Some(region) if is_stack(flow) => {
                self.checkpoint_blocks = Some(region);
                let results = self.steps(flow, operands, frame);
                self.checkpoint_blocks = None;
                results
            }
            _ => self.in_region(flow, operands, frame, |l, frame, operands| l.steps(flow, operands, frame)),
        };
        (self.compute, self.profile) = outer;
        self.quantizing = None;
        self.restore_precision(outer_few);
        let mut operands = results?;
        self.check_precision_used(&own, outer_few, &notes, flow.span)?;
        let computes = own.compute.is_some() || own.operand_rounding.is_some();
        let format =
            own.output.or_else(|| computes.then(|| self.dtype_of(source.as_ref())).flatten().map(TensorFormat::Native));
        if let Some(format) = format.or(self.output.map(TensorFormat::Native)) {
            for operand in &mut operands {
                self.given_format(operand, format, own.output.is_some(), flow.span)?;
            }
        }
        self.record_trace(flow, &before, &operands, frame);
        let source = match source {
            Some(LoweredOperand::Tensor(value)) => Some(value),
            _ => None,
        };
        let accumulates = flow.steps.last().is_some_and(accumulates);
        for (index, item) in flow.dest.items.iter().enumerate() {
            let Some(path) = &item.name else { continue };
            let Some(operand) = operands.get(index) else {
                return fail(Code::E003, item.span, "more names than results", "there is no result for this name");
            };
            self.recheck_annotations(
                &item.annotations,
                if self.in_backward { AnnotationTarget::Backward } else { AnnotationTarget::Item },
                frame,
            )?;
            let own: Vec<&Annotation> = item.annotations.iter().collect();
            let said = find(&own, "dtype").and_then(|note| note.word("type"));
            check_scaling_alone(&own, said.is_some_and(|name| LowPrecision::from_name(&name).is_some()))?;
            if let (Some(note), false) = (item.annotations.first(), matches!(operand, LoweredOperand::Tensor(_))) {
                let message = format!("`@{}` on something that is not a tensor", note.name.name);
                return fail(Code::E008, note.span, message, "has no effect");
            }
            let entry = match operand {
                LoweredOperand::Table(table) => FrameEntry::Table(table.clone()),
                LoweredOperand::Gradients | LoweredOperand::Absent(_) => FrameEntry::Absent,
                LoweredOperand::Experts(all) => FrameEntry::Array(all.clone()),
                LoweredOperand::Tensor(value) => {
                    let notes: Vec<&Annotation> = item.annotations.iter().chain(&flow.annotations).collect();
                    let mut value = self.apply_annotations(&path.to_string(), *value, &notes, source, frame)?;
                    if accumulates && let Some(FrameEntry::Tensor(sum)) = frame.entries.get(&path.to_string()) {
                        value = (self.b.add(*sum, value)).map_err(|e| op_error(&e, item.span, "accumulate"))?;
                    }
                    FrameEntry::Tensor(value)
                }
            };
            frame.entries.insert(path.to_string(), entry);
        }
        for item in &flow.dest.items {
            let Some(name) = item.name.as_ref().map(Path::to_string) else { continue };
            if let Some(FrameEntry::Tensor(value)) = frame.entries.get(&name) {
                let notes: Vec<&Annotation> = item.annotations.iter().chain(&flow.annotations).collect();
                self.record_observers(&name, *value, &notes, frame)?;
            }
        }
        Ok(())
    }

    /// Sets the precision of a statement; returns the previous one, and the number of roundings so far.
    fn enter_precision(&mut self, own: &PrecisionRecipe, span: Span) -> OuterPrecision {
        let outer = (self.few, self.own_precision, self.rounded);
        if own.compute.is_some() {
            (self.compute, self.few, self.own_precision) = (own.compute, None, true);
        }
        if let Some(few) = own.operand_rounding {
            (self.compute, self.few, self.own_precision) = (None, Some(few), true);
            self.note_emulated_products(span, &few);
        }
        outer
    }

    fn restore_precision(&mut self, (few, own, _): OuterPrecision) {
        (self.few, self.own_precision) = (few, own);
    }

    /// Checks that a low-precision statement contains an operation that supports it.
    fn check_precision_used(
        &self,
        own: &PrecisionRecipe,
        (.., before): OuterPrecision,
        notes: &[&Annotation],
        span: Span,
    ) -> Result<()> {
        if own.operand_rounding.is_none() || self.rounded > before {
            return Ok(());
        }
        let note = find(notes, "precision").or_else(|| find(notes, "scaling"));
        let found =
            Diagnostic::new(Code::E008, note.map_or(span, |note| note.span), "nothing here computes in low precision")
                .with_label("only matrix products, sums and norms do")
                .with_hint("write `@dtype(fp8_e4m3)` to round a result, or remove it");
        Err(Box::new(found))
    }

    /// Converts a result to a format; a recipe's format does not affect quantized tensors.
    fn given_format(
        &mut self,
        operand: &mut LoweredOperand,
        format: TensorFormat,
        said: bool,
        span: Span,
    ) -> Result<()> {
        let LoweredOperand::Tensor(value) = operand else { return Ok(()) };
        if !self.b.graph.ty(*value).dtype.is_float() || !said && self.format_of(*value).is_some() {
            return Ok(());
        }
        match format {
            TensorFormat::Native(dtype) => {
                *value = self.b.cast(*value, dtype).map_err(|e| op_error(&e, span, "@precision"))?;
            }
            TensorFormat::LowPrecision(how) => *value = self.quantize_value(*value, &how, span)?,
        }
        Ok(())
    }

    fn dtype_of(&self, operand: Option<&LoweredOperand>) -> Option<ir::DType> {
        match operand {
            Some(LoweredOperand::Tensor(value)) if self.format_of(*value).is_some() => Some(self.options.dtype),
            Some(LoweredOperand::Tensor(value)) => Some(self.b.graph.ty(*value).dtype).filter(|dtype| dtype.is_float()),
            _ => None,
        }
    }

    /// Lowers the steps of a flow, each applied to the results of the previous one.
    fn steps(
        &mut self,
        flow: &Flow,
        mut operands: Vec<LoweredOperand>,
        frame: &mut ModuleFrame,
    ) -> Result<Vec<LoweredOperand>> {
        for (index, step) in flow.steps.iter().enumerate() {
            let concat = matches!(&step.kind, StepKind::Call(call) if call.callee.path.to_string() == "concat");
            if index > 0 && !concat {
                operands.truncate(1);
            }
            operands = self.step(step, operands, frame)?;
        }
        Ok(operands)
    }

    fn step(
        &mut self,
        step: &FlowStep,
        operands: Vec<LoweredOperand>,
        frame: &mut ModuleFrame,
    ) -> Result<Vec<LoweredOperand>> {
        if step.annotations.is_empty() {
            return self.step_in_precision(step, operands, frame);
        }
        self.recheck_annotations(&step.annotations, AnnotationTarget::Step, frame)?;
        let notes: Vec<&Annotation> = step.annotations.iter().collect();
        let quantizes = matches!(&step.kind, StepKind::Call(call) if call.callee.path.to_string() == "quantize");
        let few = find(&notes, "dtype")
            .and_then(|note| note.word("type"))
            .is_some_and(|name| LowPrecision::from_name(&name).is_some());
        let scales = !quantizes && !few;
        let own = self.precision(&notes, &FrameNames(frame), scales)?;
        let computes = own.compute.is_some() || own.operand_rounding.is_some();
        let source = computes.then(|| self.dtype_of(operands.first())).flatten();
        let outer = (self.compute, self.quantizing);
        let scale = self.scale(&notes, &FrameNames(frame))?.map(|(_, scale)| scale);
        let outer_few = self.enter_precision(&own, step.span);
        self.quantizing = scale.filter(|_| !scales).or(outer.1);
        let results = self.step_in_precision(step, operands, frame);
        (self.compute, self.quantizing) = outer;
        self.restore_precision(outer_few);
        let mut results = results?;
        self.check_precision_used(&own, outer_few, &notes, step.span)?;
        for operand in &mut results {
            if let Some(format) = own.output.or(source.map(TensorFormat::Native)) {
                self.given_format(operand, format, own.output.is_some(), step.span)?;
            }
            let LoweredOperand::Tensor(value) = operand else { continue };
            *value = self.convert_dtype(*value, &notes, frame)?;
            if let Some(note) = find(&notes, "gradient") {
                *value = self.gradient(note, *value, frame)?;
            }
            *value = self.mark_sharding(&notes, *value, frame)?;
            *value = self.barrier(&notes, *value)?;
        }
        Ok(results)
    }

    fn step_in_precision(
        &mut self,
        step: &FlowStep,
        operands: Vec<LoweredOperand>,
        frame: &mut ModuleFrame,
    ) -> Result<Vec<LoweredOperand>> {
        let results = match &step.kind {
            StepKind::Call(call) => self.call_operands(call, operands, frame)?,
            StepKind::Shape(dims) => {
                let want = dims.iter().map(|dim| frame.size(dim)).collect::<Result<Vec<_>>>()?;
                if let Some(LoweredOperand::Tensor(value)) = operands.first() {
                    let found = self.b.graph.ty(*value).shape.to_vec();
                    if found != want {
                        let label = format!("the tensor here is {found:?}");
                        return fail(Code::E004, step.span, format!("the shape is not {want:?} as stated"), label);
                    }
                }
                operands
            }
        };
        Ok(results)
    }

    fn call_operands(
        &mut self,
        call: &Call,
        operands: Vec<LoweredOperand>,
        frame: &mut ModuleFrame,
    ) -> Result<Vec<LoweredOperand>> {
        if let Some(results) = self.backward_call(call, &operands, frame)? {
            return Ok(results);
        }
        let values = self.call(call, operands, frame)?;
        Ok(values.into_iter().map(LoweredOperand::Tensor).collect())
    }

    /// Lowers a tensor operand: a name, a member of an instance, an index.
    pub(super) fn operand(&mut self, expr: &Expr, frame: &ModuleFrame) -> Result<LoweredOperand> {
        if let ExprKind::Index(base, items) = &expr.kind {
            let base = self.operand(base, frame)?.tensor(expr.span)?;
            return self.indexed(base, items, frame, expr.span).map(LoweredOperand::Tensor);
        }
        let Some(path) = expr.peel().as_path() else {
            return unsupported(expr.span, "this operand");
        };
        match self.entry(&path, frame) {
            Some(FrameEntry::Tensor(value)) => Ok(LoweredOperand::Tensor(value)),
            Some(FrameEntry::Table(table)) => Ok(LoweredOperand::Table(table)),
            Some(FrameEntry::Absent) => Ok(LoweredOperand::Absent(path.to_string())),
            // `(d_y, saved.x, mlp) -> mlp.backward()` repeats the module as an operand.
            Some(FrameEntry::Instance(_)) if self.in_backward => Ok(LoweredOperand::Gradients),
            Some(FrameEntry::Array(experts)) => Ok(LoweredOperand::Experts(experts)),
            Some(FrameEntry::Instance(_) | FrameEntry::Stack(..)) => {
                unsupported(expr.span, "a module given as a tensor")
            }
            None => fail(Code::E002, expr.span, format!("no tensor named `{path}`"), "not defined here"),
        }
    }

    /// The entry of a dotted name.
    pub(super) fn entry(&self, path: &Path, frame: &ModuleFrame) -> Option<FrameEntry> {
        if let Some(entry) = frame.entries.get(&path.to_string()) {
            return Some(entry.clone());
        }
        let mut parts = path.parts.iter();
        let mut entry = frame.entries.get(&parts.next()?.name)?.clone();
        for part in parts {
            entry = match entry {
                FrameEntry::Instance(instance) => instance.entries.get(&part.name)?.clone(),
                _ => return None,
            };
        }
        Some(entry)
    }

    /// Lowers an index or slice. `table[0:T]` selects the rows of the current positions, in decoding too.
    fn indexed(&mut self, base: Value, items: &[IndexItem], frame: &ModuleFrame, span: Span) -> Result<Value> {
        let value = self.static_index(base, items, frame, span)?;
        let timed = items.iter().any(|item| match item {
            IndexItem::At(e) => frame.mentions_time(e),
            IndexItem::Slice { start, end, .. } => start.iter().chain(end).any(|e| frame.mentions_time(e)),
        });
        // A trial run determines whether the index is the number of positions; the actual lowering repeats its decisions in order.
        let mut axis = None;
        let by_position = |l: &mut Self| {
            axis = l.is_row_slice(base, items, frame);
            axis.is_some()
        };
        if !self.counts_from_position(by_position) {
            if timed {
                self.set_cross_position(&[value], "a slice that depends on the sequence length");
            }
            return Ok(value);
        }
        // Otherwise it is the axis that the slice shortens.
        let (whole, part) = (self.b.graph.ty(base).shape.clone(), self.b.graph.ty(value).shape.clone());
        let axis = axis.or_else(|| (0..whole.len()).find(|&a| sliced_to_end(items, a))).unwrap_or(0);
        self.limit_positions(whole[axis], part[axis], span)?;
        let Some(position) = self.position else { return Ok(value) };
        let fault = |e: ir::Error| op_error(&e, span, "index");
        let zero = self.b.scalar(ir::DType::I32, 0.0).map_err(fault)?;
        let starts: Vec<Value> = (0..whole.len()).map(|a| if a == axis { position } else { zero }).collect();
        let rows = self.b.dynamic_slice(base, &starts, &part).map_err(fault)?;
        self.set_dependence(rows, SequenceDependence::rows(axis));
        Ok(rows)
    }

    fn static_index(&mut self, base: Value, items: &[IndexItem], frame: &ModuleFrame, span: Span) -> Result<Value> {
        let shape = self.b.graph.ty(base).shape.to_vec();
        let (mut start, mut limit) = (vec![0; shape.len()], shape.clone());
        let is_ellipsis = |item: &IndexItem| matches!(item, IndexItem::At(e) if e.kind == ExprKind::Ellipsis);
        let named = items.iter().filter(|item| !is_ellipsis(item)).count();
        if named > shape.len() {
            return fail(Code::E004, span, "more indices than dimensions", format!("the tensor is {shape:?}"));
        }
        let place = |expr: &Expr, size: usize| -> Result<usize> {
            let index = frame.constant(expr)?.as_int().unwrap_or(i64::MAX);
            let index = if index < 0 { index + size as i64 } else { index };
            match usize::try_from(index) {
                Ok(index) if index <= size => Ok(index),
                _ => fail(Code::E004, expr.span, "index out of range", format!("the axis has {size}")),
            }
        };
        let (mut axis, mut dropped) = (0, Vec::new());
        for item in items {
            match item {
                item if is_ellipsis(item) => axis += shape.len() - named,
                IndexItem::At(expr) => {
                    start[axis] = place(expr, shape[axis])?;
                    limit[axis] = start[axis] + 1;
                    if limit[axis] > shape[axis] {
                        let label = format!("the axis has {}", shape[axis]);
                        return fail(Code::E004, expr.span, "index out of range", label);
                    }
                    dropped.push(axis);
                    axis += 1;
                }
                IndexItem::Slice { start: from, end, .. } => {
                    if let Some(from) = from {
                        start[axis] = place(from, shape[axis])?;
                    }
                    if let Some(end) = end {
                        limit[axis] = place(end, shape[axis])?;
                    }
                    axis += 1;
                }
            }
        }
        let kept: Vec<usize> = (0..shape.len())
            .filter(|axis| !dropped.contains(axis))
            .map(|axis| limit[axis].saturating_sub(start[axis]))
            .collect();
        (self.b.slice(base, &start, &limit, &vec![1; shape.len()]))
            .and_then(|v| self.b.reshape(v, &kept))
            .map_err(|e| op_error(&e, span, "index"))
    }

    /// Sublayers `x + f(norm(x))` in sequence, or all applied to the same `x`.
    fn residual_pattern(&mut self, pattern: &Pattern, frame: &ModuleFrame) -> Result<Vec<Value>> {
        let span = pattern.kind.span;
        let Some(FrameEntry::Tensor(mut x)) = frame.entries.get("in").cloned() else {
            return fail(Code::E003, span, "a residual pattern takes one tensor", "");
        };
        let parallel = pattern.kind.name == "parallel_residual";
        let first = x;
        for sublayer in &pattern.sublayers {
            let mut y = if parallel { first } else { x };
            for path in sublayer {
                let Some(FrameEntry::Instance(instance)) = self.entry(path, frame) else {
                    return fail(Code::E002, path.span(), format!("`{path}` is not a module here"), "");
                };
                let results = self.run_instance(&instance, vec![Some(y)], path.span())?;
                match results.first() {
                    Some(result) => y = *result,
                    None => return fail(Code::E003, path.span(), format!("`{path}` has no result"), ""),
                }
            }
            x = (self.b.add(x, y)).map_err(|e| op_error(&e, span, "residual addition"))?;
        }
        Ok(vec![x])
    }

    fn flatten<'s>(
        &mut self,
        statements: &'s [Statement],
        frame: &ModuleFrame,
        flows: &mut Vec<&'s Flow>,
    ) -> Result<()> {
        for statement in statements {
            match statement {
                Statement::Flow(flow) => flows.push(flow),
                Statement::If(branch) => {
                    if self.guard(&branch.guard, frame)? {
                        self.flatten(&branch.then, frame, flows)?;
                    } else if let Some(otherwise) = &branch.otherwise {
                        self.flatten(otherwise, frame, flows)?;
                    }
                }
                Statement::Recompute { body, .. } => self.flatten(body, frame, flows)?,
                Statement::Elided(span) => return unsupported(*span, "a part left out with `...`"),
                Statement::Empty(_) => {}
            }
        }
        Ok(())
    }
}

/// Whether a slice extends to the end of the axis.
fn sliced_to_end(items: &[IndexItem], axis: usize) -> bool {
    matches!(items.get(axis), Some(IndexItem::Slice { end: Some(_), .. }))
}

/// Whether a flow is only a stack of blocks: a checkpoint there applies to each block.
fn is_stack(flow: &Flow) -> bool {
    matches!(&flow.steps[..], [FlowStep { kind: StepKind::Call(call), .. }] if call.callee.path.to_string() == "StackedBlocks")
}

/// Whether a step accumulates into its destination.
fn accumulates(step: &FlowStep) -> bool {
    let StepKind::Call(Call { args: Some(args), .. }) = &step.kind else {
        return false;
    };
    args.iter().any(|arg| {
        arg.name.as_ref().is_some_and(|name| name.name == "accumulate")
            && matches!(arg.value.peel().kind, ExprKind::Bool(true))
    })
}
