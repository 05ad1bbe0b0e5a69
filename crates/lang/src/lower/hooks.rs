//! `@hook` (§7.3.1): code registered from Rust at the named points of a model, and outputs for observation.
//!
//! A hook that modifies or replaces a tensor is traced into the graph, so it is differentiated and fused like the rest. An
//! observer costs one additional output of the graph. A point without a hook costs nothing.

use super::annotations::{AnnotationArgs, text};
use super::{Lowerer, Result, op_error};
use crate::ast::Annotation;
use crate::span::Span;
use ir::{Builder, GraphBuilder, Type, Value};
use std::sync::Arc;

/// The layer of a hook inside a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerIndex {
    /// A constant index.
    Number(usize),
    /// A traced index: an i32 scalar of the graph, if the stack is a scan.
    Traced(Value),
}

/// The call site of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSite {
    /// The name of the hook point, such as `AfterQKVProjection`.
    pub point: String,
    /// The path of the module and the tensor, such as `blocks[3].attention.qkv`.
    pub path: String,
    /// The layer, inside a stack of blocks.
    pub layer: Option<LayerIndex>,
}

/// A function that replaces a tensor; the result must have the tensor's type.
pub type RewriteFn = dyn Fn(&mut Builder, Value, &HookSite) -> ir::Result<Value> + Send + Sync;

/// The action at a hook point.
#[derive(Clone)]
enum HookAction {
    Observe,
    Rewrite(Arc<RewriteFn>),
}

#[derive(Clone)]
struct RegisteredHook {
    point: String,
    priority: i64,
    action: HookAction,
}

/// All registered hooks in the order of priority: smaller numbers first, equal ones in order of registration.
#[derive(Clone, Default)]
pub struct HookRegistry {
    list: Vec<RegisteredHook>,
}

impl std::fmt::Debug for HookRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let points = self.list.iter().map(|hook| (&hook.point, hook.priority));
        f.debug_list().entries(points).finish()
    }
}

impl HookRegistry {
    /// Creates an empty registry.
    pub fn new() -> HookRegistry {
        HookRegistry::default()
    }

    /// Makes the tensor at a hook point an output of the graph.
    pub fn observe(self, point: &str) -> HookRegistry {
        self.with(point, 0, HookAction::Observe)
    }

    /// Replaces the tensor at a hook point by the result of `rewrite`. The point must be declared with `mode=modify` or
    /// `mode=replace`.
    pub fn rewrite<F>(self, point: &str, priority: i64, rewrite: F) -> HookRegistry
    where
        F: Fn(&mut Builder, Value, &HookSite) -> ir::Result<Value> + Send + Sync + 'static,
    {
        self.with(point, priority, HookAction::Rewrite(Arc::new(rewrite)))
    }

    fn with(mut self, point: &str, priority: i64, action: HookAction) -> HookRegistry {
        let at = self.list.partition_point(|hook| hook.priority <= priority);
        self.list.insert(at, RegisteredHook { point: point.to_string(), priority, action });
        self
    }

    pub(super) fn points(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|hook| hook.point.as_str())
    }
}

/// The kind of an additional output.
#[derive(Clone, Debug, PartialEq)]
pub enum ObservationKind {
    /// The tensor at an observed hook point.
    Hook(String),
    /// The value captured by a `@probe`: `stats` are mean, deviation, minimum, maximum and norm; `histogram` is the minimum, the
    /// maximum and 16 counts between them; `sample` is 16 elements; `full` is the tensor. `grad_stats`
    /// and `grad_full` are the same of its gradient.
    Probe {
        /// The probe's name.
        name: String,
        /// The kind of capture.
        capture: String,
        /// The probe is evaluated once in this many runs.
        frequency: usize,
        /// The probe is evaluated only if the [`ObservationKind::Condition`] just before it is true.
        conditional: bool,
    },
    /// The condition of the probe that follows.
    Condition,
    /// The condition of an `@assert`.
    Assert {
        /// The message if it is false.
        message: String,
    },
    /// The values of a `@trace(level=values)`.
    Trace,
}

/// An additional output of a lowered graph, after its results and caches.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Its kind.
    pub kind: ObservationKind,
    /// The path of the module and the tensor.
    pub path: String,
    /// The layer, inside a stack of blocks that is not a scan; with a scan, all layers are stacked along the first axis.
    pub layer: Option<usize>,
    /// Its type.
    pub ty: Type,
}

impl Lowerer<'_> {
    pub(super) fn site(&self, point: &str, name: &str) -> HookSite {
        let path = match self.path.as_str() {
            "" => name.to_string(),
            path => format!("{path}.{name}"),
        };
        HookSite { point: point.to_string(), path, layer: self.layer }
    }

    /// Adds an output for observation.
    pub(super) fn add_observation(&mut self, shown: ObservationKind, name: &str, value: Value) {
        let site = self.site("", name);
        let layer = match site.layer {
            Some(LayerIndex::Number(layer)) => Some(layer),
            _ => None,
        };
        let ty = self.b.graph.ty(value).clone();
        self.observed.push((Observation { kind: shown, path: site.path, layer, ty }, value));
    }

    /// Applies the hooks of a point.
    pub(super) fn call_hooks(&mut self, note: &Annotation, name: &str, value: Value) -> Result<Value> {
        let Some(point) = note.argument("point").and_then(text) else { return Ok(value) };
        let may_change = matches!(note.word("mode").as_deref(), Some("modify" | "replace"));
        let mut value = value;
        for hook in self.options.hooks.list.iter().filter(|hook| hook.point == point) {
            match &hook.action {
                HookAction::Observe => self.add_observation(ObservationKind::Hook(point.clone()), name, value),
                HookAction::Rewrite(_) if !may_change => {
                    let message = format!("a hook at `{point}` modifies a tensor that is declared as observed");
                    let label = "declared without `mode=modify`";
                    let hint = format!("declare it as `@hook({point}, mode=modify)`");
                    let found =
                        super::Diagnostic::new(super::Code::E008, note.span, message).with_label(label).with_hint(hint);
                    return Err(Box::new(found));
                }
                HookAction::Rewrite(rewrite) => {
                    let site = self.site(&point, name);
                    let before = self.b.graph.ty(value).clone();
                    value = rewrite(&mut self.b, value, &site).map_err(|e| op_error(&e, note.span, &point))?;
                    self.changed += 1;
                    let after = self.b.graph.ty(value).clone();
                    if after != before {
                        let label = format!("it returned {after} for {before}");
                        let message = format!("a hook at `{point}` changed the tensor's type");
                        return super::fail(super::Code::E004, note.span, message, label);
                    }
                }
            }
        }
        Ok(value)
    }

    /// Builds an inner graph whose observed values become additional outputs; afterwards they are values of the outer graph.
    pub(super) fn with_observed<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, ObservedValues)> {
        let outer = std::mem::take(&mut self.observed);
        let result = part(self);
        let seen = std::mem::replace(&mut self.observed, outer);
        Ok((result?, seen))
    }

    /// Maps the observations of an inner graph to values of the outer graph.
    pub(super) fn import_observations(&mut self, seen: ObservedValues, values: &[Value]) {
        let outside = seen.into_iter().zip(values);
        self.observed.extend(outside.map(|((observation, _), value)| {
            let ty = self.b.graph.ty(*value).clone();
            (Observation { ty, ..observation }, *value)
        }));
    }

    /// Reports registered hooks whose point no `@hook` names.
    pub(super) fn unknown_point(&self, at: Span) -> Result<()> {
        let Some(point) = self.options.hooks.points().find(|point| !self.points.contains(*point)) else {
            return Ok(());
        };
        let mut found = super::Diagnostic::new(super::Code::E002, at, format!("unknown hook point `{point}`"));
        found = match crate::suggest::closest(point, self.points.iter().map(String::as_str)) {
            Some(close) => found.with_hint(format!("did you mean `{close}`?")),
            None => found.with_label("nothing declares it with `@hook`"),
        };
        Err(Box::new(found))
    }
}

/// Observations with their values in the graph.
pub(super) type ObservedValues = Vec<(Observation, Value)>;

impl Observation {
    /// Captures a value from the gradient of a gradient probe's input.
    pub fn capture_gradient(&self, b: &mut Builder, gradient: Value) -> ir::Result<Value> {
        match &self.kind {
            ObservationKind::Probe { capture: what, .. } if what == "grad_stats" => {
                Ok(capture(b, gradient, "stats")?.unwrap_or(gradient))
            }
            _ => Ok(gradient),
        }
    }
}

/// Computes the captured value of a tensor.
pub(super) fn capture(b: &mut Builder, value: Value, what: &str) -> ir::Result<Option<Value>> {
    use ir::ops::ReduceKind::{Max, Min};
    let ty = b.ty(value);
    let n = ty.numel().max(1);
    let flat = b.reshape(value, &[n])?;
    let flat = b.cast(flat, ir::DType::F32)?;
    let ends =
        |b: &mut Builder| -> ir::Result<[Value; 2]> { Ok([b.reduce(Min, flat, &[0])?, b.reduce(Max, flat, &[0])?]) };
    Ok(Some(match what {
        "full" => value,
        "sample" => {
            let count = n.min(16);
            let stride = n / count;
            b.slice(flat, &[0], &[(count - 1) * stride + 1], &[stride])?
        }
        "stats" => {
            let sum = b.sum(flat, &[0])?;
            let mean = b.scale(sum, 1.0 / n as f64)?;
            let spread = b.splat(mean, &[n])?;
            let centred = b.sub(flat, spread)?;
            let squares = b.mul(centred, centred)?;
            let squares = b.sum(squares, &[0])?;
            let variance = b.scale(squares, 1.0 / n as f64)?;
            let deviation = b.unary(ir::Unary::Sqrt, variance)?;
            let own = b.mul(flat, flat)?;
            let own = b.sum(own, &[0])?;
            let norm = b.unary(ir::Unary::Sqrt, own)?;
            let [least, most] = ends(b)?;
            scalars(b, &[mean, deviation, least, most, norm])?
        }
        "histogram" => {
            const BINS: usize = 16;
            let [least, most] = ends(b)?;
            let width = b.sub(most, least)?;
            let width = b.scale(width, 1.0 / BINS as f64)?;
            let one = b.scalar(ir::DType::F32, 1.0)?;
            let zero = b.scalar(ir::DType::F32, 0.0)?;
            let none = b.compare(ir::Compare::Eq, width, zero)?;
            let width = b.select(none, one, width)?;
            let (low, width) = (b.splat(least, &[n])?, b.splat(width, &[n])?);
            let place = b.sub(flat, low)?;
            let place = b.div(place, width)?;
            let place = b.unary(ir::Unary::Floor, place)?;
            let last = b.scalar(ir::DType::F32, (BINS - 1) as f64)?;
            let last = b.splat(last, &[n])?;
            let place = b.binary(ir::Binary::Min, place, last)?;
            let place = b.broadcast(place, &[BINS, n], &[1])?;
            let bins = b.iota(ir::DType::F32, &[BINS, n], 0)?;
            let inside = b.compare(ir::Compare::Eq, place, bins)?;
            let inside = b.cast(inside, ir::DType::F32)?;
            let counts = b.sum(inside, &[1])?;
            let ends = scalars(b, &[least, most])?;
            b.concat(&[ends, counts], 0)?
        }
        _ => return Ok(None),
    }))
}

fn scalars(b: &mut Builder, values: &[Value]) -> ir::Result<Value> {
    let mut rows = Vec::new();
    for value in values {
        rows.push(b.reshape(*value, &[1])?);
    }
    b.concat(&rows, 0)
}
