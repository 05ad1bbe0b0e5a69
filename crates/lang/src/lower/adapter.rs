//! `@adapter` (§7.3.2): LoRA and IA³ beside a projection, with additional parameters.
//!
//! The sizes of these parameters are known only after the projection has been lowered, so a graph with adapters is lowered twice:
//! the first time finds them, the second declares them after the parameters of their module.

use super::annotations::{AnnotationArgs, words};
use super::dropout::dropout;
use super::frame::{FrameEntry, ModuleFrame};
use super::hooks::{LayerIndex, Observation};
use super::{Lowerer, ParamInit, Parameter, Result, fail, op_error, unsupported};
use crate::ast::{Annotation, Flow, FlowSource, Statement, StepKind};
use crate::consteval::ConstValue as Const;
use crate::diagnostic::Code;
use ir::{DType, GraphBuilder, Type, Value};
use train::lora;

/// What an annotation adds to its module, with names derived from the tensor's name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DeclaredAdapter {
    /// The module.
    pub(super) owner: String,
    /// Parameters of an adapter.
    pub(super) params: Vec<(String, Type, ParamInit)>,
    /// The name of a random key, for an adapter with dropout.
    pub(super) key: Option<String>,
    /// A tensor whose gradient is observed.
    pub(super) gradient_probe: Option<(String, Observation)>,
}

/// A part of a projection's results: start and size.
struct OutputSlice {
    name: String,
    start: usize,
    size: usize,
}

impl Lowerer<'_> {
    /// Returns the projection of `x` to `y` with its adapter.
    pub(super) fn apply_adapters(
        &mut self,
        note: &Annotation,
        name: &str,
        x: Option<Value>,
        y: Value,
        frame: &ModuleFrame,
    ) -> Result<Value> {
        let Some(owner) = frame.path.clone() else {
            return unsupported(note.span, "an adapter inside a module that is called with its weights");
        };
        let ty = self.b.graph.ty(y).clone();
        let Some(&width) = ty.shape.last() else {
            return fail(Code::E004, note.span, "an adapter needs a tensor with features", "this is a scalar");
        };
        let parts = self.adapter_targets(note, name, width, frame)?;
        let lora = note.word("type").as_deref() == Some("lora");
        let number = |key: &str, default: f64| -> Result<f64> {
            let Some(expr) = note.argument(key) else { return Ok(default) };
            Ok(match frame.constant(expr)? {
                Const::Float(Some(x)) => x,
                other => other.as_int().map_or(f64::NAN, |n| n as f64),
            })
        };
        let share = number("dropout", 0.0)?;
        if !(0.0..1.0).contains(&share) {
            let label = format!("this is {share}");
            return fail(Code::E008, note.span, "dropout must be at least 0 and less than 1", label);
        }
        let (rank, alpha) = (number("rank", 16.0)?, number("alpha", 32.0)?);
        if lora && !(rank >= 1.0 && rank.fract() == 0.0 && alpha.is_finite()) {
            return fail(Code::E008, note.span, "the rank of an adapter must be positive", format!("this is {rank}"));
        }
        let inner = match x.map(|x| self.b.graph.ty(x).clone()) {
            Some(ty) => ty.shape.last().copied().unwrap_or(1),
            None if lora => return unsupported(note.span, "an adapter of something without an operand"),
            None => 1,
        };
        let dtype = ty.dtype;
        let mut params = Vec::new();
        for part in &parts {
            let stem = if part.name.is_empty() { name.to_string() } else { format!("{name}.{}", part.name) };
            if lora {
                let a = Type::new(dtype, &[rank as usize, inner]);
                let b = Type::new(dtype, &[part.size, rank as usize]);
                params.push((format!("{stem}.lora_A"), a, ParamInit::Default));
                params.push((format!("{stem}.lora_B"), b, ParamInit::Zeros));
            } else {
                params.push((format!("{stem}.ia3"), Type::new(dtype, &[part.size]), ParamInit::Ones));
            }
        }
        let key = (lora && share > 0.0 && self.options.training).then(|| format!("{name}.dropout_key"));
        let declared = DeclaredAdapter { owner, params, key, gradient_probe: None };
        let Some(known) = &self.adapters else {
            self.adapters_found.push(declared);
            return Ok(y);
        };
        let number = known.iter().position(|other| *other == declared).unwrap_or(0);
        let count = known.len();
        let DeclaredAdapter { params, key, .. } = declared;
        let mut values = Vec::new();
        for (name, ..) in &params {
            match frame.entries.get(name) {
                Some(FrameEntry::Tensor(value)) => values.push(*value),
                _ => return fail(Code::E002, note.span, format!("no parameter `{name}`"), ""),
            }
        }
        self.changed += 1;
        let fault = |e: ir::Error| op_error(&e, note.span, "@adapter");
        let scale = alpha / rank;
        let x = match (x, key.as_ref().and_then(|key| frame.entries.get(key))) {
            (Some(x), Some(FrameEntry::Tensor(key))) => {
                Some(self.apply_dropout(x, *key, share, number, count).map_err(fault)?)
            }
            (x, _) => x,
        };
        match (lora, x) {
            (true, Some(x)) => self.lora(x, y, &parts, &values, scale).map_err(fault),
            _ => self.ia3(y, &parts, &values).map_err(fault),
        }
    }

    /// Applies dropout to `x` in a training step; every adapter has its own random numbers, and in a scan every layer too.
    fn apply_dropout(&mut self, x: Value, key: Value, share: f64, number: usize, count: usize) -> ir::Result<Value> {
        let b = &mut self.b;
        let mut stream = b.scalar(DType::U32, number as f64)?;
        if let Some(LayerIndex::Traced(layer)) = self.layer {
            let layer = b.cast(layer, DType::U32)?;
            let apart = b.scale(layer, count as f64)?;
            stream = b.add(stream, apart)?;
        }
        dropout(b, x, key, stream, share)
    }

    fn lora(&mut self, x: Value, y: Value, parts: &[OutputSlice], values: &[Value], scale: f64) -> ir::Result<Value> {
        let b = &mut self.b;
        let ty = b.ty(y);
        let x = b.cast(x, ty.dtype)?;
        let mut y = y;
        for (part, ab) in parts.iter().zip(values.chunks_exact(2)) {
            let update = lora::delta(b, x, [ab[0], ab[1]], scale)?;
            let mut shape = ty.shape.to_vec();
            shape[ty.rank() - 1] = part.size;
            let update = b.reshape(update, &shape)?;
            y = lora::add_delta(b, y, update, part.start)?;
        }
        Ok(y)
    }

    fn ia3(&mut self, y: Value, parts: &[OutputSlice], values: &[Value]) -> ir::Result<Value> {
        let b = &mut self.b;
        let ty = b.ty(y);
        let last = ty.rank() - 1;
        let one = b.scalar(ty.dtype, 1.0)?;
        let mut factor = b.splat(one, &[ty.shape[last]])?;
        for (part, value) in parts.iter().zip(values) {
            let change = b.offset(*value, -1.0)?;
            let zero = b.scalar(ty.dtype, 0.0)?;
            let high = ty.shape[last] - part.start - part.size;
            let change = b.pad(change, zero, &[part.start as i64], &[high as i64], &[0])?;
            factor = b.add(factor, change)?;
        }
        let factor = b.broadcast(factor, &ty.shape, &[last])?;
        b.mul(y, factor)
    }

    /// The parts selected by `targets`: results of the `split` that follows the projection.
    fn adapter_targets(
        &self,
        note: &Annotation,
        name: &str,
        width: usize,
        frame: &ModuleFrame,
    ) -> Result<Vec<OutputSlice>> {
        let targets = note.argument("targets").map(words).unwrap_or_default();
        if targets.is_empty() {
            return Ok(vec![OutputSlice { name: String::new(), start: 0, size: width }]);
        }
        let pieces = self.split_parts(name, frame);
        let mut parts = Vec::new();
        for target in targets {
            let fits = |piece: &&(String, usize, usize)| {
                piece.0 == target || piece.0.split('_').next() == Some(target.as_str())
            };
            match pieces.iter().find(fits) {
                Some((_, start, size)) if start + size <= width => {
                    parts.push(OutputSlice { name: target, start: *start, size: *size });
                }
                _ => {
                    let names: Vec<&str> = pieces.iter().map(|piece| piece.0.as_str()).collect();
                    let label = match names.is_empty() {
                        true => "the tensor is not split".to_string(),
                        false => format!("it is split into {}", names.join(", ")),
                    };
                    return fail(Code::E008, note.span, format!("`{name}` has no part `{target}`"), label);
                }
            }
        }
        Ok(parts)
    }

    /// The names, starts and sizes of the parts into which a tensor is split.
    fn split_parts(&self, name: &str, frame: &ModuleFrame) -> Vec<(String, usize, usize)> {
        fn flows<'s>(statements: &'s [Statement], found: &mut Vec<&'s Flow>) {
            for statement in statements {
                match statement {
                    Statement::Flow(flow) => found.push(flow),
                    Statement::If(branch) => {
                        flows(&branch.then, found);
                        flows(branch.otherwise.as_deref().unwrap_or_default(), found);
                    }
                    _ => {}
                }
            }
        }
        let view = frame.item.and_then(|item| crate::resolve::ModuleView::new(self.program, item));
        let mut found = Vec::new();
        if let Some(graph) = view.as_ref().and_then(|view| view.forward.graph) {
            flows(&graph.statements, &mut found);
        }
        let reads = |flow: &Flow| match &flow.source {
            FlowSource::Tensors { items, .. } => items.len() == 1 && items[0].as_name() == Some(name),
            _ => false,
        };
        for flow in found.into_iter().filter(|flow| reads(flow)) {
            let Some(StepKind::Call(call)) = flow.steps.first().map(|step| &step.kind) else { continue };
            let sizes = call.args.iter().flatten().next().map(|arg| frame.constant(&arg.value));
            if let ("split", Some(Ok(Const::List(sizes)))) = (&*call.callee.path.to_string(), sizes) {
                let mut start = 0;
                let names =
                    flow.dest.items.iter().map(|item| item.name.as_ref().map_or(String::new(), ToString::to_string));
                return names
                    .zip(sizes.iter().map(|size| size.as_int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)))
                    .map(|(name, size)| {
                        start += size;
                        (name, start - size, size)
                    })
                    .collect();
            }
        }
        Vec::new()
    }

    /// Declares the additional parameters of a module's annotations, once they are known.
    pub(super) fn declare_adapters(
        &mut self,
        path: &str,
        frame: &mut ModuleFrame,
        stacked: Option<usize>,
    ) -> Result<()> {
        let own: Vec<_> = self.adapters.iter().flatten().filter(|a| a.owner == path).cloned().collect();
        let wide = |ty: Type| stacked.map_or_else(|| ty.clone(), |count| ty.batched(count));
        for declared in own {
            for (name, ty, init) in declared.params {
                let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let value = self.b.graph.input(wide(ty.clone()));
                self.params.push(Parameter { init, adapter: true, ..Parameter::new(full, wide(ty)) });
                frame.entries.insert(name, FrameEntry::Tensor(value));
            }
            if let Some(name) = declared.key {
                let mut key = match self.key {
                    Some(key) => key,
                    None => self.b.graph.input(Type::new(DType::U32, &[2])),
                };
                self.key = Some(key);
                if let Some(count) = stacked {
                    let at = crate::span::Span::default();
                    key = self.b.broadcast(key, &[count, 2], &[1]).map_err(|e| op_error(&e, at, "@adapter"))?;
                }
                frame.entries.insert(name, FrameEntry::Tensor(key));
            }
            if let Some((name, observation)) = declared.gradient_probe {
                let ty = wide(observation.ty.clone());
                let value = self.b.graph.input(ty.clone());
                self.taps.push((Observation { ty, ..observation }, value));
                frame.entries.insert(name, FrameEntry::Tensor(value));
            }
        }
        Ok(())
    }
}
