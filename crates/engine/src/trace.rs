//! Traces: the ops of a function, recorded into an `ir::Graph`.
//!
//! While a trace is the innermost one of its thread, every op is recorded into it. Tensors from outside become inputs at
//! their first use. A tensor of a trace refers to a *cell*; an in-place op assigns a new value to the cell, so the Graph
//! stays pure (§8.10).
//!
//! ```ignore
//! let traced = tensorloom_engine::trace::trace(&[Type::new(DType::F32, &[3])], |x| vec![x[0].tanh()])?;
//! let y = tensorloom_engine::trace::inline(&traced.graph, &[&x]);
//! ```

use crate::autograd::Leaf;
use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::record::{LazyBuild, Recorder, Tensors, record};
use crate::storage_base::BaseId;
use crate::tensor::{DETACHED_MESSAGE, Invalid, Tensor, TensorHandle, TensorKind, Traced};
use crate::x64;
use ir::ops::StopGradient;
use ir::{Builder, Graph, GraphBuilder, Literal, Loc, Op, Scalar, Type, Value, Values};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The kind of function that a trace records.
pub(crate) enum TraceMode {
    /// A pure function: its captured tensors can't be changed in place.
    Function,
    /// A compiled region of an engine: its captured tensors are state that it may change (§8).
    Region(Engine),
    /// A checkpointed function: pure, but it may draw random numbers (§10).
    Checkpoint(Engine),
}

/// The source of an input of the traced Graph.
#[derive(Clone)]
pub(crate) enum TraceInput {
    Arg,
    /// A captured tensor from outside.
    Capture(Tensor),
    /// A number literal of the program text.
    Number(Literal),
}

/// A mutable variable of a trace, which holds a value of the Graph.
pub(crate) struct TraceCell {
    pub(crate) value: Value,
    /// The number of in-place ops so far.
    pub(crate) mutations: u64,
    /// A tensor on the captured base that the cell stands for.
    pub(crate) outer_base: Option<Tensor>,
    /// The leaf that the cell's value belongs to; gradients are taken with respect to its value.
    pub(crate) leaf: Option<Arc<Leaf>>,
    /// Whether in-place ops are refused, because the value is not the function's own.
    captured: bool,
    /// The initial value.
    pub(crate) first: Value,
}

#[derive(Default)]
pub(crate) struct TraceState {
    pub(crate) b: Builder,
    pub(crate) cells: Vec<TraceCell>,
    pub(crate) inputs: Vec<TraceInput>,
    pub(crate) grads: Vec<(Arc<Leaf>, Option<Tensor>)>,
    pub(crate) ran_backward: bool,
    /// Gradients of captured tensors that have a gradient history outside: the cell and the gradient.
    pub(crate) outer_gradients: Vec<(usize, Tensor)>,
    /// The leaves of such histories; their gradients are complete only after the call is recorded.
    pub(crate) reached: Vec<Arc<Leaf>>,
    /// The nonces of random draws.
    pub(crate) draws: Vec<u64>,
    /// In-place ops that failed; the values after them are not the values that the program describes.
    failed: Vec<Arc<Invalid>>,
    /// The engine of the captured tensors.
    engine: Option<Engine>,
    outer: FxHashMap<CaptureKey, usize>,
    bases: FxHashMap<BaseId, usize>,
}

/// The lookup key of a captured tensor.
#[derive(PartialEq, Eq, Hash)]
enum CaptureKey {
    /// A handle: two handles on one base may differ in the destination of gradients.
    Handle(u64),
    /// A view of a cell of an outer trace: it is captured once, and not in every iteration of a loop. Its detached aliases
    /// read the same input.
    Cell(u64, usize, Vec<Arc<Op>>),
}

/// A Graph that is being recorded.
pub struct Trace {
    pub(crate) id: u64,
    pub(crate) mode: TraceMode,
    state: Mutex<TraceState>,
}

const TWO_ENGINES: &str = "it uses tensors of two engines; read one and create it in the other";

static TRACES: AtomicU64 = AtomicU64::new(0);

/// A builder that records into a trace.
struct TraceBuild<'a> {
    state: &'a mut TraceState,
    lift: bool,
}

impl GraphBuilder for TraceBuild<'_> {
    fn emit(&mut self, op: Op, args: &[Value]) -> ir::Result<Values> {
        self.state.b.emit(x64::narrow_op(op), args)
    }

    fn ty(&self, v: Value) -> Type {
        self.state.b.ty(v)
    }

    /// Inlined ops keep their source lines.
    fn inline(&mut self, graph: &Graph, args: &[Value]) -> ir::Result<Vec<Value>> {
        let call = self.state.b.loc.clone();
        let outs = graph.inline_with(args, |node, operands| {
            self.state.b.loc = if node.loc == Loc::Unknown { call.clone() } else { node.loc.clone() };
            self.state.b.emit(x64::narrow_op(node.op.clone()), operands)
        });
        self.state.b.loc = call;
        outs
    }
}

impl Recorder for TraceBuild<'_> {
    fn record_fused(
        &mut self,
        x: Value,
        f: &dyn Fn(&mut dyn GraphBuilder, Value) -> ir::Result<Value>,
    ) -> ir::Result<Value> {
        f(self, x)
    }

    fn scalar_constant(&mut self, s: Scalar) -> ir::Result<Value> {
        if !self.lift {
            return self.constant(Literal::scalar(s));
        }
        self.state.inputs.push(TraceInput::Number(Literal::scalar(s)));
        Ok(self.state.b.graph.input(Type::scalar(s.dtype())))
    }
}

impl Trace {
    pub(crate) fn new(mode: TraceMode) -> Arc<Trace> {
        let id = TRACES.fetch_add(1, Ordering::Relaxed);
        Arc::new(Trace { id, mode, state: Mutex::default() })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn is_region(&self) -> bool {
        matches!(self.mode, TraceMode::Region(_))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Creates a tensor that refers to a cell.
    pub(crate) fn tensor(self: &Arc<Trace>, cell: usize, ty: Type) -> Tensor {
        let traced = Traced { trace: self.clone(), cell, view: None };
        Tensor::from_handle(TensorHandle::new(u64::MAX, ty, TensorKind::Traced(traced)))
    }

    /// Creates a cell with a value and a tensor that refers to it.
    pub(crate) fn new_tensor(self: &Arc<Trace>, s: &mut TraceState, value: Value) -> Tensor {
        let ty = s.b.ty(value);
        let cell = s.cell(value, None);
        self.tensor(cell, ty)
    }

    /// Adds an input for an argument.
    pub(crate) fn placeholder(self: &Arc<Trace>, ty: Type) -> Tensor {
        let mut s = self.state();
        s.inputs.push(TraceInput::Arg);
        let v = s.b.graph.input(ty.clone());
        let cell = s.cell(v, None);
        // The arguments of a function are its own values; a checkpointed function's belong to the surrounding program (§10).
        s.cells[cell].captured = matches!(self.mode, TraceMode::Checkpoint(_));
        self.tensor(cell, ty)
    }

    /// The cell that a tensor refers to in this trace; a tensor from outside gets a new cell at its first use.
    pub(crate) fn cell_of(&self, s: &mut TraceState, t: &Tensor) -> Result<usize> {
        match (&t.0.kind, &self.mode) {
            (TensorKind::Traced(tr), _) if std::ptr::eq(&*tr.trace, self) => Ok(tr.cell),
            (TensorKind::Lazy(l), TraceMode::Region(engine)) if l.engine.same(engine) => {
                if let Some(&cell) = s.bases.get(&l.base) {
                    if let Some(leaf) = t.0.reads_leaf()
                        && s.cells[cell].leaf.is_none()
                    {
                        s.cells[cell].leaf = Some(leaf.clone());
                        s.recapture(cell, t.root(&mut l.engine.shared.state()));
                    }
                    return Ok(cell);
                }
                let root = t.root(&mut l.engine.shared.state()).expect("it is a tensor of the engine");
                let cell = s.capture(root.clone());
                s.cells[cell].leaf = t.0.reads_leaf().cloned();
                s.cells[cell].outer_base = Some(root);
                s.bases.insert(l.base, cell);
                Ok(cell)
            }
            (TensorKind::Traced(tr), _) => {
                let key = CaptureKey::Cell(tr.trace.id, tr.cell, tr.view.as_ref().map_or(Vec::new(), |v| v.ops()));
                if let Some(&cell) = s.outer.get(&key) {
                    return Ok(cell);
                }
                let seen = Traced { trace: tr.trace.clone(), cell: tr.cell, view: tr.view.clone() };
                Ok(s.captured(
                    key,
                    Tensor::from_handle(TensorHandle::new(u64::MAX, t.0.ty.clone(), TensorKind::Traced(seen))),
                ))
            }
            (TensorKind::Lazy(l), mode) => {
                let ours = match mode {
                    TraceMode::Region(engine) | TraceMode::Checkpoint(engine) => engine.clone(),
                    TraceMode::Function => s.engine.get_or_insert_with(|| l.engine.clone()).clone(),
                };
                if !ours.same(&l.engine) {
                    return Err(Error::call("a traced function", TWO_ENGINES, &s.b.loc));
                }
                let key = CaptureKey::Handle(t.0.id);
                match s.outer.get(&key) {
                    Some(&cell) => Ok(cell),
                    None => Ok(s.captured(key, t.clone())),
                }
            }
            (TensorKind::Invalid(i), _) => Err(i.error.clone()),
        }
    }

    /// The current value of a tensor in this trace.
    pub(crate) fn read(&self, s: &mut TraceState, t: &Tensor) -> Result<Value> {
        let cell = self.cell_of(s, t)?;
        let mut v = s.cells[cell].value;
        // A cell holds a whole base, except for captures of a function: they are captured as views.
        let ours = matches!(&t.0.kind, TensorKind::Traced(tr) if std::ptr::eq(&*tr.trace, self));
        let whole = s.cells[cell].outer_base.is_some() || ours;
        if let (true, Some(view)) = (whole, t.0.view()) {
            v = view.get(&mut s.b, v)?;
        }
        // Backward in a region stops at a detached tensor that was made a leaf.
        if t.0.detached && !(self.is_region() && t.0.leaf.get().is_some()) {
            v = s.b.one(StopGradient.into(), &[v])?;
        }
        Ok(v)
    }

    /// Records an op.
    pub(crate) fn record(
        self: &Arc<Trace>,
        at: &Loc,
        args: &[&Tensor],
        f: impl FnOnce(&mut dyn Recorder, &[Value]) -> ir::Result<Values>,
    ) -> Result<Tensors> {
        let mut s = self.state();
        s.b.loc = at.clone();
        let mut values = Values::new();
        for t in args {
            values.push(self.read(&mut s, t)?);
        }
        let outs = f(&mut TraceBuild { state: &mut s, lift: self.is_region() }, &values)?;
        let grad = context::is_grad_enabled();
        let mut tensors = Tensors::new();
        for mut v in outs {
            if !grad && s.b.ty(v).dtype.is_float() {
                v = s.b.one(StopGradient.into(), &[v])?;
            }
            tensors.push(self.new_tensor(&mut s, v));
        }
        Ok(tensors)
    }

    fn captured(&self, op: &'static str, at: &Loc) -> Error {
        if let TraceMode::Checkpoint(_) = self.mode {
            let what = "it changes a tensor from outside in place".into();
            return Error::CheckpointImpureRegion { what, at: at.clone() };
        }
        let reason = "a traced function can't change a tensor from outside; pass it in and return the new value".into();
        Error::InPlace { op, reason, at: at.clone() }
    }

    /// Records that an in-place op failed.
    pub(crate) fn fail(&self, failed: Arc<Invalid>) {
        self.state().failed.push(failed);
    }

    /// Returns an error if an in-place op may not change a cell.
    pub(crate) fn check_writable(&self, cell: usize, op: &'static str, at: &Loc) -> Result<()> {
        if self.state().cells.get(cell).is_some_and(|c| c.captured) {
            return Err(self.captured(op, at));
        }
        Ok(())
    }

    /// Records an in-place op: assigns a new value to the cell.
    pub(crate) fn mutate(
        self: &Arc<Trace>,
        at: &Loc,
        destination: &Tensor,
        others: &[&Tensor],
        reads: bool,
        f: impl FnOnce(&mut dyn Recorder, Option<Value>, &[Value]) -> Result<Value>,
    ) -> Result<()> {
        let mut s = self.state();
        s.b.loc = at.clone();
        let mut values = Values::new();
        for t in others {
            values.push(self.read(&mut s, t)?);
        }
        let cell = self.cell_of(&mut s, destination)?;
        if s.cells[cell].captured {
            return Err(self.captured("an in-place op", at));
        }
        if destination.0.detached && context::is_grad_enabled() && values.iter().any(|v| s.takes_gradients(*v)) {
            return Err(Error::InPlace { op: "an in-place op", reason: DETACHED_MESSAGE.into(), at: at.clone() });
        }
        let before = s.cells[cell].value;
        let old = (reads || destination.0.view().is_some()).then_some(before);
        let mut new = f(&mut TraceBuild { state: &mut s, lift: self.is_region() }, old, &values)?;
        let unrecorded = destination.0.detached || !context::is_grad_enabled();
        if unrecorded && s.b.ty(new).dtype.is_float() {
            new = s.b.one(StopGradient.into(), &[new])?;
            if s.has_history(cell) {
                // The value changes but the gradient flows as before: x + 0, where 0 is `before − before`.
                let still = s.b.one(StopGradient.into(), &[before])?;
                let nothing = s.b.sub(before, still)?;
                new = s.b.add(new, nothing)?;
            }
        }
        s.cells[cell].value = new;
        s.cells[cell].mutations += 1;
        Ok(())
    }
}

impl TraceState {
    fn cell(&mut self, value: Value, outside: Option<Tensor>) -> usize {
        self.cells.push(TraceCell {
            value,
            mutations: 0,
            outer_base: outside,
            leaf: None,
            captured: false,
            first: value,
        });
        self.cells.len() - 1
    }

    /// Captures a tensor from outside as a read-only input.
    fn captured(&mut self, key: CaptureKey, t: Tensor) -> usize {
        let cell = self.capture(t);
        self.cells[cell].captured = true;
        self.outer.insert(key, cell);
        cell
    }

    /// Whether gradients may be requested through a value: it depends on a function's input, or on a captured tensor of a region
    /// that requires gradients.
    fn takes_gradients(&self, v: Value) -> bool {
        let region = self.cells.iter().any(|c| c.outer_base.is_some());
        let wanted = |i: usize| match &self.inputs[i] {
            TraceInput::Arg => true,
            TraceInput::Capture(t) => !region || t.requires_grad(),
            TraceInput::Number(_) => false,
        };
        let mut stack = vec![v];
        let mut seen = vec![false; self.b.graph.num_values()];
        while let Some(v) = stack.pop() {
            if std::mem::replace(&mut seen[v.0 as usize], true) || !self.b.graph.ty(v).dtype.is_float() {
                continue;
            }
            match self.b.graph.node_of(v) {
                Some(n) if matches!(n.op, Op::StopGradient(_)) => {}
                Some(n) => stack.extend(&n.args),
                None if self.b.graph.inputs().iter().position(|x| *x == v).is_some_and(wanted) => return true,
                None => {}
            }
        }
        false
    }

    /// Replaces the captured tensor of a region's cell by one that carries the leaf.
    fn recapture(&mut self, cell: usize, root: Option<Tensor>) {
        let Some((root, old)) = root.zip(self.cells[cell].outer_base.clone()) else { return };
        for input in &mut self.inputs {
            if matches!(input, TraceInput::Capture(t) if Arc::ptr_eq(&t.0, &old.0)) {
                *input = TraceInput::Capture(root.clone());
            }
        }
        self.cells[cell].outer_base = Some(root);
    }

    /// Whether gradients may flow through a cell's value, so that an in-place op not recorded for backward must propagate them.
    fn has_history(&self, cell: usize) -> bool {
        let c = &self.cells[cell];
        if c.leaf.is_some() || c.outer_base.as_ref().is_some_and(|t| !t.requires_grad()) {
            return false;
        }
        let made = self.b.graph.node_of(c.value);
        !matches!(made.map(|n| &n.op), Some(Op::StopGradient(_) | Op::Const(_)))
    }

    /// Returns the error of an in-place op that failed, if the error was not read.
    pub(crate) fn failure(&self) -> Result<()> {
        first_unread_error(&self.failed)
    }

    fn capture(&mut self, t: Tensor) -> usize {
        let ty = t.ty().clone();
        self.inputs.push(TraceInput::Capture(t));
        let v = self.b.graph.input(ty);
        self.cell(v, None)
    }
}

/// Returns the first error that was not read.
fn first_unread_error(failed: &[Arc<Invalid>]) -> Result<()> {
    match failed.iter().find(|i| !i.read.swap(true, Ordering::Relaxed)) {
        Some(i) => Err(i.error.clone()),
        None => Ok(()),
    }
}

/// Runs a function on real tensors, for recording by observing its effects on them. Returns an error if an in-place op
/// failed and the error was not read, because the results are then wrong.
pub fn run_eagerly<R>(f: impl FnOnce() -> R) -> (R, Result<()>) {
    let (result, failed) = context::watch_write_failures(f);
    let done = first_unread_error(&failed);
    (result, done)
}

/// A recorded function.
pub struct TracedFn {
    /// Inputs are the arguments, then the captured tensors; outputs are the results.
    pub graph: Graph,
    /// The tensors from outside that the function uses.
    pub captures: Vec<Tensor>,
}

/// Records the ops of `f` on arguments of these types. An invalid result is an error; so is a host read inside.
#[track_caller]
pub fn trace(types: &[Type], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<TracedFn> {
    let at = Loc::caller();
    let trace = Trace::new(TraceMode::Function);
    let args: Vec<Tensor> = types.iter().map(|t| trace.placeholder(t.clone())).collect();
    record_into(&trace, &at, || f(&args))
}

/// Records the ops of `f` into a trace, and ends the trace.
pub(crate) fn record_into(trace: &Arc<Trace>, at: &Loc, f: impl FnOnce() -> Vec<Tensor>) -> Result<TracedFn> {
    let outs = context::with_trace(trace.clone(), || {
        let outs = f();
        trace.state().failure()?;
        outs.iter().try_for_each(|t| t.check_at(at))?;
        let mut s = trace.state();
        outs.iter().map(|t| trace.read(&mut s, t)).collect::<Result<Vec<Value>>>()
    })?;
    let mut s = trace.state();
    let mut graph = std::mem::take(&mut s.b.graph);
    graph.set_outputs(outs);
    // Arguments are added before the function runs, so the captures follow them.
    let captures = s.inputs.iter().filter_map(|i| match i {
        TraceInput::Capture(t) => Some(t.clone()),
        _ => None,
    });
    Ok(TracedFn { graph, captures: captures.collect() })
}

/// Runs `f` outside the traces of this thread: tensors that it creates belong to the engine and outlive a region. For state
/// that is created at its first use.
pub fn without_trace<R>(f: impl FnOnce() -> R) -> R {
    context::without_traces(f)
}

/// The recorded Graph that computes `outs` from `wrt`, from the lazy graph or the active trace. Only values that require
/// gradients are part of it, so make `wrt` leaves before computing `outs`; other values are captured.
#[track_caller]
pub fn recorded_graph(outs: &[&Tensor], wrt: &[&Tensor]) -> Result<TracedFn> {
    let at = Loc::caller();
    outs.iter().chain(wrt).try_for_each(|t| t.check_at(&at))?;
    let types: Vec<Type> = wrt.iter().map(|t| t.ty().clone()).collect();
    if let Some(trace) = context::trace() {
        let mut s = trace.state();
        let from: Vec<Value> = wrt.iter().map(|t| trace.read(&mut s, t)).collect::<Result<_>>()?;
        let to: Vec<Value> = outs.iter().map(|t| trace.read(&mut s, t)).collect::<Result<_>>()?;
        let part = crate::subgraph::subgraph_between(&s.b.graph, &from, &to)?;
        let captures = part.captured.iter().map(|&v| trace.new_tensor(&mut s, v)).collect();
        return Ok(TracedFn { graph: part.graph, captures });
    }
    let Some(engine) = outs.iter().chain(wrt).find_map(|t| t.engine()) else {
        return Err(Error::call("recorded", "there are no tensors", &at));
    };
    let mut state = engine.shared.state();
    let mut b = LazyBuild::new(&mut state, at.clone());
    let mut from: FxHashMap<_, usize> = FxHashMap::default();
    let mut leaves = Vec::new();
    for (i, t) in wrt.iter().enumerate() {
        let v = b.load(&t.0)?;
        from.insert(b.get(v).id(), i);
        // A leaf in a loc gets a new node at every read.
        if let Some(leaf) = t.0.leaf.get() {
            leaves.push((leaf.clone(), i));
        }
    }
    let mut to = Vec::new();
    for t in outs {
        let v = b.load(&t.0)?;
        to.push(b.get(v).clone());
    }
    let (graph, captured) = crate::autograd::tape::graph_between(&to, &from, &leaves, &types)?;
    let captures = captured.into_iter().map(|r| Tensor::fresh(engine, &mut state, r)).collect();
    Ok(TracedFn { graph, captures })
}

/// Records a graph's ops on tensors, into the active trace or else lazily. Returns one tensor for each output of the graph.
#[track_caller]
pub fn inline(graph: &Graph, args: &[&Tensor]) -> Vec<Tensor> {
    let n = graph.outputs().len();
    record(&Loc::caller(), n, None, args, |b, v| Ok(Values::from_vec(b.inline(graph, v)?))).into_vec()
}
