//! Mixed precision: rewrites an f32 graph so that contractions compute in a low-precision float. It runs before differentiation,
//! so that the backward pass uses the same precision and parameters get f32 gradients.
//!
//! It works as PyTorch's autocast does. Contractions have low-precision operands, accumulate in f32 and return a low-precision
//! result. Ops that move, select, add or multiply elements promote: they compute in low precision if all operands have it,
//! ignoring constants of the graph. Everything else (reductions, norms, softmax, exp, log, divisions, comparisons) computes in
//! f32. Inputs, outputs and the operands and results of sub-graphs keep their types, except for rematerialized sub-graphs, which
//! compute as if they were inlined.

use ir::composites;
use ir::ops::{AutocastRule, Call, Composite, Cond, Remat, Scan, While};
use ir::{Builder, DType, Error, Graph, GraphBuilder, Loc, Node, Op, Result, Type, Value};
use std::sync::Arc;

/// The precision of each kind of op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutocastPolicy {
    /// The low-precision float: bf16 or f16.
    pub compute: DType,
    /// Composites that always compute in it.
    pub low_precision: Vec<String>,
    /// Composites that compute in it if all their operands have it.
    pub promote: Vec<String>,
    /// Composites whose results are rounded to it, in whatever precision they compute, so that later ops can use it. With
    /// `embedding`, the residual stream of a language model is in low precision.
    pub rounded_outputs: Vec<String>,
}

impl AutocastPolicy {
    /// The default policy for a low-precision float.
    pub fn new(compute: DType) -> AutocastPolicy {
        let list = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
        AutocastPolicy {
            compute,
            low_precision: list(&["attention"]),
            promote: list(&["relu", "relu2", "gelu", "silu", "swiglu", "geglu", "dropout", "rope"]),
            rounded_outputs: Vec::new(),
        }
    }
}

/// The rule of an op: the policy decides for composites; other ops have their own rule.
fn autocast_rule(op: &Op, policy: &AutocastPolicy) -> AutocastRule {
    match op {
        Op::Composite(c) if policy.low_precision.contains(&c.name) => AutocastRule::LowPrecision,
        Op::Composite(c) if policy.promote.contains(&c.name) => AutocastRule::Promote,
        op => op.precision(),
    }
}

/// Rewrites a graph to compute in mixed precision; inputs and outputs keep their types.
pub fn autocast(graph: &Graph, policy: &AutocastPolicy) -> Result<Graph> {
    if !matches!(policy.compute, DType::F16 | DType::BF16) {
        return Err(Error::Invalid(format!("mixed precision computes in bf16 or f16, not in {}", policy.compute)));
    }
    let mut r = rewritten(graph, policy, &graph.input_types())?;
    let mut outputs = Vec::new();
    for &v in graph.outputs() {
        outputs.push(r.as_dtype(v, graph.ty(v).dtype)?);
    }
    Ok(r.b.finish(&outputs).without_dead_nodes())
}

/// Rewrites all nodes of a graph whose inputs have these new types.
fn rewritten<'a>(graph: &Graph, policy: &'a AutocastPolicy, inputs: &[Type]) -> Result<Rewriter<'a>> {
    let mut r = Rewriter { b: Builder::new(), policy, slots: vec![None; graph.num_values()] };
    for (&v, t) in graph.inputs().iter().zip(inputs) {
        let own = r.b.graph.input(t.clone());
        r.set(v, own, false);
    }
    let live = graph.live_values();
    for node in graph.nodes() {
        if node.outs.iter().any(|v| live[v.0 as usize]) {
            r.b.loc = node.loc.clone();
            r.node(graph, node)?;
        }
    }
    r.b.loc = Loc::Unknown;
    Ok(r)
}

/// A value of the old graph in the new one: as it was computed, and converted at most once.
#[derive(Clone, Copy)]
struct CastValue {
    computed: Value,
    converted: Option<Value>,
    /// Whether it is a constant of the graph, which takes the precision of the other operand.
    weak: bool,
}

struct Rewriter<'a> {
    b: Builder,
    policy: &'a AutocastPolicy,
    slots: Vec<Option<CastValue>>,
}

impl Rewriter<'_> {
    fn set(&mut self, old: Value, own: Value, weak: bool) {
        let slot = CastValue { computed: own, converted: None, weak };
        self.slots[old.0 as usize] = Some(slot);
    }

    fn slot(&self, old: Value) -> CastValue {
        self.slots[old.0 as usize].expect("operands come first")
    }

    fn is_low_precision(&self, old: Value) -> bool {
        self.b.ty(self.slot(old).computed).dtype == self.policy.compute
    }

    /// The value in a dtype; each value is converted at most once.
    fn as_dtype(&mut self, old: Value, dtype: DType) -> Result<Value> {
        let slot = self.slot(old);
        if self.b.ty(slot.computed).dtype == dtype {
            return Ok(slot.computed);
        }
        if let Some(other) = slot.converted {
            return Ok(other);
        }
        let other = self.b.cast(slot.computed, dtype)?;
        self.slots[old.0 as usize] = Some(CastValue { converted: Some(other), ..slot });
        Ok(other)
    }

    fn node(&mut self, graph: &Graph, node: &Node) -> Result<()> {
        if let Op::Remat(remat) = &node.op {
            let args: Vec<Value> = node.args.iter().map(|&v| self.slot(v).computed).collect();
            let types: Vec<Type> = args.iter().map(|&v| self.b.ty(v)).collect();
            let inner = rewritten(&remat.body, self.policy, &types)?;
            let outputs: Vec<Value> = remat.body.outputs().iter().map(|&v| inner.slot(v).computed).collect();
            let body = inner.b.finish(&outputs).without_dead_nodes();
            let outs = self.b.emit(Remat::with_policy(body, remat.policy.clone()).into(), &args)?;
            for (&old, new) in node.outs.iter().zip(outs) {
                self.set(old, new, false);
            }
            return Ok(());
        }
        let types: Vec<Type> = node.args.iter().map(|&v| graph.ty(v).clone()).collect();
        let wide: Vec<Value> =
            (0..types.len()).filter(|&i| types[i].dtype == DType::F32).map(|i| node.args[i]).collect();
        let strong: Vec<Value> = wide.iter().copied().filter(|&v| !self.slot(v).weak).collect();
        let narrow = match autocast_rule(&node.op, self.policy) {
            AutocastRule::LowPrecision => !wide.is_empty(),
            AutocastRule::Promote => !strong.is_empty() && strong.iter().all(|&v| self.is_low_precision(v)),
            AutocastRule::Fp32 => false,
        };
        let weak = match &node.op {
            Op::Const(c) => c.0.ty().rank() == 0,
            op => !wide.is_empty() && strong.is_empty() && autocast_rule(op, self.policy) == AutocastRule::Promote,
        };
        let target = if narrow { self.policy.compute } else { DType::F32 };
        let narrowed = |t: &Type| t.with_dtype(if t.dtype == DType::F32 { target } else { t.dtype });
        let op = match narrow {
            true => low_precision_op(&node.op, target, &types.iter().map(narrowed).collect::<Vec<_>>()),
            false => Some(self.rewrite_subgraphs(&node.op)?),
        };
        // A composite that cannot be built from low-precision operands is not changed.
        let (op, target) = match op {
            Some(op) => (op, target),
            None => (node.op.clone(), DType::F32),
        };
        let mut args = Vec::new();
        for (&v, t) in node.args.iter().zip(&types) {
            let dtype = if t.dtype == DType::F32 { target } else { t.dtype };
            args.push(self.as_dtype(v, dtype)?);
        }
        let outs = self.b.emit(op, &args)?;
        let rounded = matches!(&node.op, Op::Composite(c) if self.policy.rounded_outputs.contains(&c.name));
        for (&old, new) in node.outs.iter().zip(outs) {
            let wide = self.b.ty(new).dtype == DType::F32;
            let new = if rounded && wide { self.b.cast(new, self.policy.compute)? } else { new };
            self.set(old, new, weak);
        }
        Ok(())
    }

    /// The op with its sub-graphs rewritten.
    fn rewrite_subgraphs(&self, op: &Op) -> Result<Op> {
        let go = |g: &Arc<Graph>| -> Result<Arc<Graph>> { autocast(g, self.policy).map(Arc::new) };
        Ok(match op {
            Op::Scan(s) => Scan { body: go(&s.body)?, ..s.clone() }.into(),
            Op::Cond(c) => Cond { branches: c.branches.iter().map(go).collect::<Result<_>>()? }.into(),
            // The predicate stays in f32: the trip count must not depend on the precision of products.
            Op::While(w) => While { body: go(&w.body)?, ..w.clone() }.into(),
            Op::Call(c) => Call { body: go(&c.body)? }.into(),
            other => other.clone(),
        })
    }
}

/// The op with low-precision operands: contractions still accumulate in f32, and return a low-precision result.
fn low_precision_op(op: &Op, compute: DType, types: &[Type]) -> Option<Op> {
    let narrowed = |out: DType| if out == DType::F32 { compute } else { out };
    let op = match op {
        Op::Dot(d) => {
            let mut d = d.clone();
            d.out = narrowed(d.out);
            d.into()
        }
        Op::RaggedDot(d) => {
            let mut d = d.clone();
            d.out = narrowed(d.out);
            d.into()
        }
        Op::Conv(c) => {
            let mut c = c.clone();
            c.out = narrowed(c.out);
            c.into()
        }
        Op::Composite(c) => {
            let built: Composite = composites::build(&c.name, &c.params, types).ok()?;
            built.into()
        }
        other => other.clone(),
    };
    op.infer(types).is_ok().then_some(op)
}
