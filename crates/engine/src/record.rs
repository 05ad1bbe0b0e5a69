//! Recording of ops: every op goes into the engine's lazy graph or into the active trace.

use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::intern::{self, OpSignature};
use crate::node::{Args, BackwardInfo, Node, NodeKind, NodeState, SavedVersion, ValueRef};
use crate::operand::Number;
use crate::state::EngineState;
use crate::storage_base::{BaseBinding, BaseId};
use crate::tensor::{Tensor, TensorHandle, TensorKind};
use crate::transfer::{ANY_DEVICE, device_of};
use crate::x64;
use ir::error::TypeError;
use ir::ops::{Call, SavePolicy};
use ir::{Binary, Builder, DType, Graph, GraphBuilder, Literal, Loc, Op, Scalar, Type, Unary, Value, Values};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// A graph builder with methods for recording on tensors.
pub(crate) trait Recorder: GraphBuilder {
    /// A rank-0 constant from the program text. In a compiled region it becomes an input, so that another value needs no
    /// recompilation; elsewhere it is a constant.
    fn scalar_constant(&mut self, s: Scalar) -> ir::Result<Value> {
        self.constant(Literal::scalar(s))
    }

    /// Declares that backward through `y` needs these values unchanged, and `y` too if `result`: for functions that are one
    /// op in PyTorch and several ops here (§9.3).
    fn save_for_backward(&mut self, _y: Value, _values: &[Value], _result: bool) {}

    /// Records `f` applied to a value; op-by-op execution runs it as one op, so the intermediate values need no memory.
    fn record_fused(
        &mut self,
        x: Value,
        f: &dyn Fn(&mut dyn GraphBuilder, Value) -> ir::Result<Value>,
    ) -> ir::Result<Value>;

    /// Whether two values have the same type.
    fn same_type(&self, x: Value, y: Value) -> bool {
        self.ty(x) == self.ty(y)
    }
}

/// The number of recorded handles between two cleanups of the finalizer queue.
const DRAIN_EVERY: u64 = 1024;

/// The result tensors of one recording.
pub(crate) type Tensors = SmallVec<[Tensor; 1]>;

/// A builder that records into the engine's lazy graph.
pub(crate) struct LazyBuild<'a> {
    pub(crate) state: &'a mut EngineState,
    pub(crate) at: Loc,
    pub(crate) grad: bool,
    /// The device for ops without operands.
    home: Option<u8>,
    /// The values, each with the base that it is read from or is a view of, for the checks of in-place changes.
    values: SmallVec<[(ValueRef, Option<BaseId>); 8]>,
}

impl<'a> LazyBuild<'a> {
    pub(crate) fn new(state: &'a mut EngineState, at: Loc) -> LazyBuild<'a> {
        let grad = context::is_grad_enabled();
        LazyBuild { state, at, grad, home: context::home_device(), values: SmallVec::new() }
    }

    /// Adds a recorded value to the builder.
    #[inline]
    pub(crate) fn import_value(&mut self, r: ValueRef, base: Option<BaseId>) -> Value {
        self.values.push((r, base));
        Value(self.values.len() as u32 - 1)
    }

    /// Reads the current value of a tensor.
    pub(crate) fn load(&mut self, t: &TensorHandle) -> Result<Value> {
        let lazy = t.lazy().expect("only tensors of the engine come here");
        let r = self.state.base_load(lazy.base, t.reads_leaf(), t.detached, &self.at)?;
        let v = self.import_value(r, Some(lazy.base));
        let Some(view) = &lazy.view else { return Ok(v) };
        let v = view.get(self, v)?;
        // A view is recorded again at every use; a retained gradient must include all its uses.
        if let Some(leaf) = t.retained.get() {
            let r = self.get(v).clone();
            r.node.slot().kept().retained.push((r.out, Arc::downgrade(leaf)));
        }
        Ok(v)
    }

    #[inline]
    pub(crate) fn get(&self, v: Value) -> &ValueRef {
        &self.values[v.0 as usize].0
    }

    /// The base that a value is read from, directly or through a view.
    pub(crate) fn base(&self, v: Value) -> Option<BaseId> {
        self.values[v.0 as usize].1
    }

    /// The operands that PyTorch would save, with their current versions (§9.3).
    fn saved(&self, sig: &OpSignature, args: &[Value]) -> SmallVec<[SavedVersion; 2]> {
        let all: SmallVec<[usize; 4]>;
        let kept = match sig.saved_for_backward.when {
            SavePolicy::Recompute => {
                all = (0..args.len()).collect();
                &all
            }
            SavePolicy::Kept | SavePolicy::Bilinear | SavePolicy::Quotient => &sig.saved_for_backward.inputs,
        };
        let tracked = |i: usize| args.get(i).is_some_and(|v| self.get(*v).node.tracked);
        let needed = |i: usize| match sig.saved_for_backward.when {
            SavePolicy::Bilinear => (0..args.len()).any(|k| k != i && tracked(k)),
            SavePolicy::Quotient => i == 1 || tracked(1),
            SavePolicy::Kept | SavePolicy::Recompute => true,
        };
        let bases = kept.iter().filter(|&&i| needed(i)).filter_map(|&i| self.base(*args.get(i)?));
        bases
            .filter_map(|base| Some(SavedVersion { base, version: self.state.bases.get(base)?.scheduled_commits }))
            .collect()
    }

    fn push(&mut self, op: &Arc<Op>, args: &[Value]) -> ir::Result<Values> {
        let mut refs = Args::new();
        args.iter().for_each(|v| refs.push(self.get(*v).clone()));
        let sig = self.state.signatures.get(op, &refs).map_err(|problem| {
            let (op, loc) = (op.name().to_string(), self.at.clone());
            let operands = refs.iter().map(|r| (**r.ty()).clone()).collect();
            ir::Error::Type(Box::new(TypeError { op, operands, problem, loc }))
        })?;
        let device = match (device_of(&refs), self.home) {
            (ANY_DEVICE, Some(home)) => home,
            (device, _) => device,
        };
        let tracked = self.grad && sig.differentiable && refs.iter().any(|r| r.node.tracked);
        let base = if sig.view { self.base(args[0]) } else { None };
        let mut kept = None;
        if tracked {
            let saved = self.saved(&sig, args);
            if !saved.is_empty() {
                kept = Some(Box::new(BackwardInfo { saved, ..BackwardInfo::default() }));
            }
        }
        let key = self.state.node_key();
        let outs = sig.types.len() as u32;
        let node = self.state.spare.fill(Node {
            instance: key.instance,
            position: key.position,
            work: NodeKind::Op(sig),
            at: self.at.clone(),
            leaf: None,
            tracked,
            straight_through: false,
            device,
            label: context::label(),
            slot: Mutex::new(NodeState { args: refs, backward_info: kept, ..NodeState::default() }),
        });
        if outs == 1 {
            return Ok(Values::from_elem(self.import_value(ValueRef { node, out: 0 }, base), 1));
        }
        Ok((0..outs).map(|out| self.import_value(ValueRef { node: node.clone(), out }, base)).collect())
    }
}

impl GraphBuilder for LazyBuild<'_> {
    fn emit(&mut self, op: Op, args: &[Value]) -> ir::Result<Values> {
        let op = self.state.ops.get(x64::narrow_op(op));
        self.push(&op, args)
    }

    // Fast path: unary and binary ops are interned already, and most recorded ops are of these kinds.
    fn unary(&mut self, op: Unary, x: Value) -> ir::Result<Value> {
        Ok(self.push(intern::unary(op), &[x])?[0])
    }

    fn binary(&mut self, op: Binary, a: Value, b: Value) -> ir::Result<Value> {
        Ok(self.push(intern::binary(op), &[a, b])?[0])
    }

    fn ty(&self, v: Value) -> Type {
        (**self.get(v).ty()).clone()
    }

    /// Inlined ops keep their source lines.
    fn inline(&mut self, graph: &Graph, args: &[Value]) -> ir::Result<Vec<Value>> {
        let call = self.at.clone();
        let outs = graph.inline_with(args, |node, operands| {
            self.at = if node.loc == Loc::Unknown { call.clone() } else { node.loc.clone() };
            self.emit(node.op.clone(), operands)
        });
        self.at = call;
        outs
    }
}

impl Recorder for LazyBuild<'_> {
    fn record_fused(
        &mut self,
        x: Value,
        f: &dyn Fn(&mut dyn GraphBuilder, Value) -> ir::Result<Value>,
    ) -> ir::Result<Value> {
        // Backward differentiates the single ops.
        if self.grad && self.get(x).node.tracked {
            return f(self, x);
        }
        let mut body = Builder::new();
        let input = body.graph.input(self.ty(x));
        let out = f(&mut body, input)?;
        self.one(Call { body: Arc::new(body.finish(&[out])) }.into(), &[x])
    }

    fn same_type(&self, x: Value, y: Value) -> bool {
        let (x, y) = (self.get(x).ty(), self.get(y).ty());
        Arc::ptr_eq(x, y) || x == y
    }

    fn save_for_backward(&mut self, y: Value, values: &[Value], result: bool) {
        let bases = values.iter().filter_map(|v| self.base(*v));
        let saved: Vec<SavedVersion> = bases
            .filter_map(|base| Some(SavedVersion { base, version: self.state.bases.get(base)?.scheduled_commits }))
            .collect();
        let r = self.get(y);
        if r.node.tracked {
            let mut slot = r.node.slot();
            let kept = slot.kept();
            kept.saved.extend(saved);
            kept.result |= result;
        }
    }
}

/// The destination of a recording.
pub(crate) enum RecordTarget<'a> {
    Trace(Arc<crate::trace::Trace>),
    Lazy(&'a Engine),
}

/// Selects the destination of an op on these tensors: the innermost trace, else the tensors' engine.
pub(crate) fn recording_target<'a>(
    args: &[&'a Tensor],
    engine: Option<&'a Engine>,
    at: &Loc,
) -> Result<RecordTarget<'a>> {
    for t in args {
        match &t.0.kind {
            TensorKind::Invalid(i) => return Err(i.error.clone()),
            TensorKind::Traced(tr) if !context::is_active(&tr.trace) => {
                return Err(Error::InvalidTraceTensorEscape { at: at.clone() });
            }
            _ => {}
        }
        t.check_alive(at)?;
    }
    if let Some(trace) = context::trace() {
        return Ok(RecordTarget::Trace(trace));
    }
    let mut engines = args.iter().filter_map(|t| t.0.lazy()).map(|l| &l.engine).chain(engine);
    let Some(first) = engines.next() else {
        return Err(Error::call("an op", "it has no operands and no engine", at));
    };
    if engines.any(|e| !e.same(first)) {
        return Err(Error::call(
            "an op",
            "its operands belong to two engines; read one and create it in the other",
            at,
        ));
    }
    Ok(RecordTarget::Lazy(first))
}

/// Records an op with `n` results. After an error it returns `n` invalid tensors that share the error.
pub(crate) fn record(
    at: &Loc,
    n: usize,
    engine: Option<&Engine>,
    args: &[&Tensor],
    f: impl FnOnce(&mut dyn Recorder, &[Value]) -> ir::Result<Values>,
) -> Tensors {
    let at = &context::resolve_loc(at);
    match try_record(at, engine, args, f) {
        Ok(ts) => ts,
        Err(e) => {
            let invalid = args.iter().find_map(|t| t.invalid()).cloned().unwrap_or_else(|| {
                let engine = engine.or_else(|| args.iter().find_map(|t| t.0.lazy()).map(|l| &l.engine));
                Tensor::with_error(e.with_loc(at), engine)
            });
            (0..n.max(1)).map(|_| invalid.clone()).collect()
        }
    }
}

fn try_record(
    at: &Loc,
    engine: Option<&Engine>,
    args: &[&Tensor],
    f: impl FnOnce(&mut dyn Recorder, &[Value]) -> ir::Result<Values>,
) -> Result<Tensors> {
    match recording_target(args, engine, at)? {
        RecordTarget::Trace(trace) => trace.record(at, args, f),
        RecordTarget::Lazy(engine) => {
            let mut state = engine.shared.state();
            let mut b = LazyBuild::new(&mut state, at.clone());
            let mut values: Values = Values::new();
            for t in args {
                values.push(b.load(&t.0)?);
            }
            let outs = f(&mut b, &values)?;
            let mut recorded = b.values;
            let mut tensors = Tensors::new();
            let mut push = |(r, base): (ValueRef, Option<BaseId>)| {
                let make = if base.is_some() { Tensor::copied } else { Tensor::fresh };
                tensors.push(make(engine, &mut state, r));
            };
            match outs.as_slice() {
                // In most cases the result is the tensor recorded last.
                [v] => push(recorded.swap_remove(v.0 as usize)),
                _ => outs.iter().for_each(|v| push(recorded[v.0 as usize].clone())),
            }
            drop(state);
            tensors.iter().for_each(|t| drain_periodically(engine, t));
            Ok(tensors)
        }
    }
}

/// Drains the finalizer queue unless an execution is running, so that memory does not grow in a program that never reads a value.
#[inline]
fn drain_periodically(engine: &Engine, made: &Tensor) {
    if made.0.id.is_multiple_of(DRAIN_EVERY) && engine.shared.exec.state().is_none() {
        engine.shared.drain_finalize_queue();
    }
}

/// Records an elementwise op on whole tensors of one type that are pure values without gradient history: the most frequent case,
/// for which a builder would double the cost. `None` if the operands need the builder.
pub(crate) fn record_elementwise<const N: usize>(at: &Loc, op: &Arc<Op>, args: [&Tensor; N]) -> Option<Tensor> {
    let whole = |t: &Tensor| match &t.0.kind {
        TensorKind::Lazy(l) if l.view.is_none() && t.0.reads_leaf().is_none() => t.check_alive(at).is_ok(),
        _ => false,
    };
    if context::trace().is_some() || context::autocast().is_some() || !args.iter().all(|t| whole(t)) {
        return None;
    }
    let engine = args[0].engine()?;
    let mut state = engine.shared.state();
    let mut refs = Args::new();
    for t in args {
        let lazy = t.0.lazy().filter(|l| l.engine.same(engine))?;
        match &state.bases.get(lazy.base)?.binding {
            BaseBinding::Ssa(r) if !r.node.tracked => refs.push(r.clone()),
            _ => return None,
        }
    }
    if refs.iter().any(|r| !Arc::ptr_eq(r.ty(), refs[0].ty())) {
        return None;
    }
    let sig = state.signatures.get(op, &refs).ok()?;
    let (key, device) = (state.node_key(), device_of(&refs));
    let mut node = Node::new(key, NodeKind::Op(sig), refs, context::resolve_loc(at));
    node.device = device;
    let node = state.spare.fill(node);
    let made = Tensor::fresh(engine, &mut state, ValueRef { node, out: 0 });
    drop(state);
    drain_periodically(engine, &made);
    Some(made)
}

/// Records an op with one result.
pub(crate) fn one(
    at: &Loc,
    args: &[&Tensor],
    f: impl FnOnce(&mut dyn Recorder, &[Value]) -> ir::Result<Value>,
) -> Tensor {
    record(at, 1, None, args, |b, v| Ok(Values::from_elem(f(b, v)?, 1))).swap_remove(0)
}

/// Casts two operands to their common dtype and broadcasts them to their common shape, as NumPy does.
pub(crate) fn promote_and_broadcast(b: &mut dyn Recorder, x: Value, y: Value) -> ir::Result<(Value, Value)> {
    if b.same_type(x, y) {
        return Ok((x, y));
    }
    let (tx, ty) = (b.ty(x), b.ty(y));
    let (mut x, mut y) = (x, y);
    if tx.dtype != ty.dtype {
        let Some(common) = tx.dtype.promote(ty.dtype) else {
            return Ok((x, y));
        };
        (x, y) = (b.cast(x, common)?, b.cast(y, common)?);
    }
    if tx.shape != ty.shape
        && let Some(shape) = broadcast_shapes(&tx.shape, &ty.shape)
    {
        (x, y) = (b.broadcast_to(x, &shape)?, b.broadcast_to(y, &shape)?);
    }
    Ok((x, y))
}

/// The shape that two shapes broadcast to.
pub(crate) fn broadcast_shapes(a: &[usize], b: &[usize]) -> Option<ir::Shape> {
    let rank = a.len().max(b.len());
    let size = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |k| s[k]);
    (0..rank)
        .map(|i| match (size(a, i), size(b, i)) {
            (m, n) if m == n => Some(m),
            (1, n) => Some(n),
            (m, 1) => Some(m),
            _ => None,
        })
        .collect()
}

/// A number as a value next to one of dtype `like`: it gets that dtype, or a wider one that can represent the number.
pub(crate) fn number_like(b: &mut dyn Recorder, like: DType, n: Number) -> ir::Result<Value> {
    let dtype = n.promote_with(like);
    let s = n.to_scalar(dtype).ok_or_else(|| {
        let why = format!("{n} is not representable in {dtype}; cast the tensor to a dtype that can represent it");
        ir::Error::Type(Box::new(TypeError {
            op: "an op with a number".into(),
            operands: Vec::new(),
            problem: ir::InferError::other(why),
            loc: Loc::Unknown,
        }))
    })?;
    b.scalar_constant(s)
}
