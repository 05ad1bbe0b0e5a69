//! `@hook` (§7.3.1): code registered from Rust at the named points of a model, and what leaves the graph for onlookers.
//!
//! A hook that modifies or replaces is traced into the graph, so it is differentiated and fused like the rest. An
//! observer costs one more output of the graph. A point where nobody is registered costs nothing.

use super::notes::{Notes, text};
use super::{Lowerer, Result, misfit};
use crate::ast::Annotation;
use crate::span::Span;
use ir::{Build, Builder, Type, Value};
use std::sync::Arc;

/// Which layer of a stack a hook stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// This one.
    Number(usize),
    /// Whichever runs: an i32 scalar of the graph, where the stack is a scan.
    Traced(Value),
}

/// Where a hook is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The name of the point, such as `AfterQKVProjection`.
    pub point: String,
    /// The module and the tensor, such as `blocks[3].attention.qkv`.
    pub path: String,
    /// The layer, inside a stack of blocks.
    pub layer: Option<Layer>,
}

/// Writes a tensor anew; the result must have the tensor's type.
pub type Rewrite = dyn Fn(&mut Builder, Value, &Site) -> ir::Result<Value> + Send + Sync;

/// What is registered at a point.
#[derive(Clone)]
enum Action {
    Observe,
    Rewrite(Arc<Rewrite>),
}

#[derive(Clone)]
struct Hook {
    point: String,
    priority: i64,
    action: Action,
}

/// Everything registered, in the order of priority: smaller numbers first, equal ones as registered.
#[derive(Clone, Default)]
pub struct Hooks {
    list: Vec<Hook>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let points = self.list.iter().map(|hook| (&hook.point, hook.priority));
        f.debug_list().entries(points).finish()
    }
}

impl Hooks {
    /// Nothing registered.
    pub fn new() -> Hooks {
        Hooks::default()
    }

    /// The tensor at a point becomes an output of the graph.
    pub fn observe(self, point: &str) -> Hooks {
        self.with(point, 0, Action::Observe)
    }

    /// The tensor at a point is replaced by what `rewrite` makes of it. The point must be declared with `mode=modify` or
    /// `mode=replace`.
    pub fn rewrite<F>(self, point: &str, priority: i64, rewrite: F) -> Hooks
    where
        F: Fn(&mut Builder, Value, &Site) -> ir::Result<Value> + Send + Sync + 'static,
    {
        self.with(point, priority, Action::Rewrite(Arc::new(rewrite)))
    }

    fn with(mut self, point: &str, priority: i64, action: Action) -> Hooks {
        let at = self.list.partition_point(|hook| hook.priority <= priority);
        self.list.insert(at, Hook { point: point.to_string(), priority, action });
        self
    }

    pub(super) fn points(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|hook| hook.point.as_str())
    }
}

/// What a further output of a lowered graph shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// The tensor at an observed point.
    Hook(String),
    /// What `@probe` captures: `stats` are mean, deviation, smallest, largest and norm; `histogram` is the smallest, the
    /// largest and 16 counts between them; `sample` is 16 elements; `full` is the tensor. `grad_stats` and `grad_full`
    /// are the same of its gradient, see [`super::Lowered::tapped`].
    Probe {
        /// The probe's name.
        name: String,
        /// What it captures.
        capture: String,
        /// Look at every so many runs.
        frequency: usize,
        /// Look only where the [`Shown::Condition`] just before it is true.
        conditional: bool,
    },
    /// Whether the condition of the probe behind it holds.
    Condition,
    /// Whether an `@assert` holds.
    Assert {
        /// What to say when it doesn't.
        message: String,
    },
    /// The values of a `@trace(level=values)`.
    Trace,
}

/// A further output of a lowered graph, behind its results and caches.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// What it shows.
    pub shown: Shown,
    /// The module and the tensor.
    pub path: String,
    /// The layer, inside a stack of blocks that is not a scan; with a scan, all layers are stacked along the first axis.
    pub layer: Option<usize>,
    /// Its type.
    pub ty: Type,
}

impl Lowerer<'_> {
    pub(super) fn site(&self, point: &str, name: &str) -> Site {
        let path = match self.path.as_str() {
            "" => name.to_string(),
            path => format!("{path}.{name}"),
        };
        Site { point: point.to_string(), path, layer: self.layer }
    }

    /// Adds an output for onlookers.
    pub(super) fn show(&mut self, shown: Shown, name: &str, value: Value) {
        let site = self.site("", name);
        let layer = match site.layer {
            Some(Layer::Number(layer)) => Some(layer),
            _ => None,
        };
        let ty = self.b.graph.ty(value).clone();
        self.observed.push((Observation { shown, path: site.path, layer, ty }, value));
    }

    /// Calls whatever is registered at a point.
    pub(super) fn hooked(&mut self, note: &Annotation, name: &str, value: Value) -> Result<Value> {
        let Some(point) = note.argument("point").and_then(text) else { return Ok(value) };
        let may_change = matches!(note.word("mode").as_deref(), Some("modify" | "replace"));
        let mut value = value;
        for hook in self.options.hooks.list.iter().filter(|hook| hook.point == point) {
            match &hook.action {
                Action::Observe => self.show(Shown::Hook(point.clone()), name, value),
                Action::Rewrite(_) if !may_change => {
                    let message = format!("a hook at `{point}` modifies a tensor that is declared as observed");
                    let label = "declared without `mode=modify`";
                    let hint = format!("declare it as `@hook({point}, mode=modify)`");
                    let found = super::Diagnostic::new(super::Code::E008, note.span, message).label(label).hint(hint);
                    return Err(Box::new(found));
                }
                Action::Rewrite(rewrite) => {
                    let site = self.site(&point, name);
                    let before = self.b.graph.ty(value).clone();
                    value = rewrite(&mut self.b, value, &site).map_err(|e| misfit(&e, note.span, &point))?;
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

    /// A graph's outputs for onlookers, added to its others while it is made; afterwards they are values outside.
    pub(super) fn with_observed<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, Seen)> {
        let outer = std::mem::take(&mut self.observed);
        let result = part(self);
        let seen = std::mem::replace(&mut self.observed, outer);
        Ok((result?, seen))
    }

    /// Observations of an inner graph, by the values that stand for them outside.
    pub(super) fn seen_outside(&mut self, seen: Seen, values: &[Value]) {
        let outside = seen.into_iter().zip(values);
        self.observed.extend(outside.map(|((observation, _), value)| {
            let ty = self.b.graph.ty(*value).clone();
            (Observation { ty, ..observation }, *value)
        }));
    }

    /// Points of registered hooks that no `@hook` names.
    pub(super) fn unknown_point(&self, at: Span) -> Result<()> {
        let Some(point) = self.options.hooks.points().find(|point| !self.points.contains(*point)) else {
            return Ok(());
        };
        let mut found = super::Diagnostic::new(super::Code::E002, at, format!("unknown hook point `{point}`"));
        found = match crate::suggest::closest(point, self.points.iter().map(String::as_str)) {
            Some(close) => found.hint(format!("did you mean `{close}`?")),
            None => found.label("nothing declares it with `@hook`"),
        };
        Err(Box::new(found))
    }
}

/// Observations with the values of the graph they were made in.
pub(super) type Seen = Vec<(Observation, Value)>;

impl Observation {
    /// What a probe of gradients captures, out of the gradient of its input.
    pub fn of_gradient(&self, b: &mut Builder, gradient: Value) -> ir::Result<Value> {
        match &self.shown {
            Shown::Probe { capture: what, .. } if what == "grad_stats" => {
                Ok(capture(b, gradient, "stats")?.unwrap_or(gradient))
            }
            _ => Ok(gradient),
        }
    }
}

/// A scalar or small tensor out of `value`, as a probe captures it.
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
