//! Compiled regions (§8): staged at every call, compiled once per variant.

use crate::autograd::BackwardOptions;
use crate::context;
use crate::engine::{Engine, EngineShared};
use crate::error::{Error, Result};
use crate::intern::Ty;
use crate::kernels::InPlacePairs;
use crate::lru::hash_of;
use crate::node::{Args, Node, NodeKind, ValueRef};
use crate::profile::Phase;
use crate::record::LazyBuild;
use crate::state::CallKeys;
use crate::state_cell::LocRole;
use crate::tensor::{Tensor, TensorKind};
use crate::trace::{Trace, TraceInput, TraceMode, TraceState};
use crate::transfer::common_device;
use crate::tree::Tree;
use compiler::{Executable, Options};
use ir::{DType, Graph, Literal, Loc, Type, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// A compiled graph and its program.
pub(crate) struct CompiledGraph {
    pub(crate) graph: Arc<Graph>,
    pub(crate) exe: Arc<dyn Executable>,
    pub(crate) types: SmallVec<[Ty; 1]>,
    /// The device that the program runs on.
    pub(crate) device: usize,
}

/// The cache key of a compiled graph.
pub(crate) struct CompiledGraphKey {
    graph: Arc<Graph>,
    donate: InPlacePairs,
    how: CompileMode,
}

/// The compile options of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CompileMode {
    pub(crate) fuse_composites: bool,
    pub(crate) device: usize,
}

impl CompileMode {
    /// The default mode on a device.
    pub(crate) fn on(device: usize) -> CompileMode {
        CompileMode { fuse_composites: true, device }
    }
}

/// A cached program of a compiled region (§8.2), for display and tools.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantKey {
    /// A hash of the normalised graph, the donated inputs, the options and the device.
    pub hash: u64,
    /// Types of the inputs: arguments, state, numbers of the program text.
    pub inputs: Vec<Type>,
    /// Types of the outputs: results, state, gradients.
    pub outputs: Vec<Type>,
    /// Pairs of a donated input and the output that may reuse its memory.
    pub donated: Vec<(usize, usize)>,
    /// The device of the program.
    pub device: usize,
    /// The number of ops in the graph.
    pub ops: usize,
    /// The number of steps in the program.
    pub steps: usize,
    /// The number of bytes that a run needs besides inputs and outputs.
    pub arena: usize,
}

/// Options of a compiled region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// The name shown in profiles.
    pub name: Option<String>,
    /// The dtype of matrix products, as inside [`crate::autocast`].
    pub autocast: Option<DType>,
    /// Whether the device may run whole composites (attention, norms, ..) with its own fused kernels.
    pub fuse_composites: bool,
    /// Whether new state may overwrite the old state; otherwise both exist until the call completes.
    pub in_place: bool,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions { name: None, autocast: None, fuse_composites: true, in_place: true }
    }
}

/// A function whose calls are staged, compiled to one program each, and recorded lazily.
///
/// Every call runs the function on placeholders, so host control flow may differ between calls. A program is compiled
/// only for a Graph that is not in the cache. Number literals in the function are inputs of the program.
pub struct Compiled<A, R, F> {
    engine: Engine,
    f: F,
    options: CompileOptions,
    /// Hashes of the programs that its calls have used.
    used: Mutex<BTreeSet<u64>>,
    types: PhantomData<fn(A) -> R>,
}

impl Engine {
    /// Compiles a function of tensors to a region. Captured tensors are state: in-place writes to them, and
    /// gradients, are stored when the results of the call are computed.
    pub fn compile<A: Tree, R: Tree, F: Fn(A) -> R>(&self, f: F) -> Compiled<A, R, F> {
        self.compile_with(CompileOptions::default(), f)
    }

    /// `compile` with options.
    pub fn compile_with<A: Tree, R: Tree, F: Fn(A) -> R>(&self, options: CompileOptions, f: F) -> Compiled<A, R, F> {
        Compiled { engine: self.clone(), f, options, used: Mutex::default(), types: PhantomData }
    }

    /// The cached programs of compiled graphs, the least recently used first.
    pub fn variant_keys(&self) -> Vec<VariantKey> {
        let all = self.shared.variants.lock().unwrap_or_else(|e| e.into_inner());
        let key = |(id, v, _): (&CompiledGraphKey, &Arc<CompiledGraph>, usize)| VariantKey {
            hash: id.hash(),
            inputs: id.graph.input_types(),
            outputs: id.graph.output_types(),
            donated: id.donate.to_vec(),
            device: id.how.device,
            ops: id.graph.nodes().len(),
            steps: v.exe.program().steps.len(),
            arena: v.exe.arena_bytes(),
        };
        all.entries().into_iter().map(key).collect()
    }
}

impl CompiledGraphKey {
    fn hash(&self) -> u64 {
        hash_of(&(self.graph.structural_hash(), &self.donate[..], self.how))
    }
}

impl EngineShared {
    /// The numbers of cached programs, of cache hits and of compilations.
    pub(crate) fn variants(&self) -> (usize, u64, u64) {
        let v = self.variants.lock().unwrap_or_else(|e| e.into_inner());
        (v.len(), v.hits, v.misses)
    }

    /// Returns the program of a graph; compiles it if it is not cached. `donate` lists inputs (changed state) to replace.
    pub(crate) fn variant(
        &self,
        graph: Graph,
        donate: &[(usize, usize)],
        how: CompileMode,
    ) -> Result<Arc<CompiledGraph>> {
        let hash = hash_of(&(graph.structural_hash(), donate, how));
        let find = |id: &CompiledGraphKey| id.how == how && *id.graph == graph && id.donate[..] == *donate;
        if let Some(v) = self.variants.lock().unwrap_or_else(|e| e.into_inner()).get(hash, find) {
            return Ok(v);
        }
        let variant = Arc::new(self.compile(graph, donate.to_vec(), how)?);
        let key = CompiledGraphKey { graph: variant.graph.clone(), donate: donate.into(), how };
        self.variants.lock().unwrap_or_else(|e| e.into_inner()).insert(hash, key, variant.clone());
        Ok(variant)
    }

    /// Compiles a graph; `donate` lists pairs of an input and the output that may overwrite it.
    pub(crate) fn compile(&self, graph: Graph, donate: Vec<(usize, usize)>, how: CompileMode) -> Result<CompiledGraph> {
        let backend = &self.devices[how.device].pool.backend;
        let program = compiler::compile(
            &graph,
            &**backend,
            &Options { donate, fuse_composites: how.fuse_composites, ..Options::default() },
        )?;
        let types = graph.output_types().into_iter().map(Arc::new).collect();
        Ok(CompiledGraph { exe: backend.load(program)?, graph: Arc::new(graph), types, device: how.device })
    }
}

/// One result of a staged call.
enum StagedOutput {
    /// A value of the program.
    Value(usize),
    /// A tensor from outside the region, or a view of one.
    Outside(Tensor),
}

impl<A: Tree, R: Tree, F: Fn(A) -> R> Compiled<A, R, F> {
    /// Stages the function and records the call. Nothing is executed.
    #[track_caller]
    pub fn call(&self, args: A) -> Result<R> {
        let at = Loc::caller();
        let run = || match self.options.autocast {
            Some(dtype) => context::with_autocast(Some(dtype), || self.stage_call(args, &at)),
            None => self.stage_call(args, &at),
        };
        match &self.options.name {
            Some(name) => crate::profile::module(name, run),
            None => run(),
        }
    }

    /// Hashes of the programs that its calls have used; see [`Engine::variant_keys`].
    pub fn keys(&self) -> Vec<u64> {
        self.used.lock().unwrap_or_else(|e| e.into_inner()).iter().copied().collect()
    }

    fn stage_call(&self, args: A, at: &Loc) -> Result<R> {
        let at = at.clone();
        // A region inside a trace becomes a part of that trace.
        if context::trace().is_some() {
            let result = (self.f)(args);
            for t in result.leaves() {
                t.check_at(&at).map_err(|e| match e {
                    Error::CheckpointImpureRegion { at, .. } => Error::CheckpointCompiledNotPure { at },
                    e => e,
                })?;
            }
            return Ok(result);
        }
        let entered = self.engine.shared.enter("a compiled call")?;
        let trace = Trace::new(TraceMode::Region(self.engine.clone()));
        let result = context::with_trace(trace.clone(), || {
            for t in args.leaves() {
                t.check_at(&at)?;
            }
            // Arguments are treated as captured bases, so two arguments that alias share one cell (§8.3).
            let result = (self.f)(args);
            let mut s = trace.state();
            let mut outputs = Vec::new();
            let mut values = Vec::new();
            for t in result.leaves() {
                t.check_at(&at)?;
                outputs.push(self.output(&trace, &mut s, &t, &mut values)?);
            }
            drop(s);
            Ok::<_, Error>((result, outputs, values))
        });
        let (result, outputs, values) = result?;
        let tensors = self.emit(&trace, outputs, values, &at)?;
        drop(entered);
        let mut tensors = tensors.into_iter();
        Ok(result.rebuild(&mut || tensors.next().expect("one for each result")))
    }

    fn output(
        &self,
        trace: &Arc<Trace>,
        s: &mut TraceState,
        t: &Tensor,
        values: &mut Vec<Value>,
    ) -> Result<StagedOutput> {
        let cell = trace.cell_of(s, t)?;
        if let Some(root) = &s.cells[cell].outer_base {
            // The region returns a captured tensor or an argument: the result is another handle on the same base.
            let view = t.0.view().cloned();
            let leaf = t.0.leaf.get().cloned();
            return Ok(StagedOutput::Outside(match (&t.0.kind, leaf) {
                (TensorKind::Lazy(_), _) => t.clone(),
                _ => root.alias_with(t.ty().clone(), view, |_| {}),
            }));
        }
        values.push(trace.read(s, t)?);
        Ok(StagedOutput::Value(values.len() - 1))
    }

    /// Compiles the staged graph and records loads, the call, stores and commits, in this order (§8.6.0, §8.11).
    fn emit(
        &self,
        trace: &Arc<Trace>,
        outputs: Vec<StagedOutput>,
        mut values: Vec<Value>,
        at: &Loc,
    ) -> Result<Vec<Tensor>> {
        let engine = &self.engine;
        let shared = &engine.shared;
        let mut s = trace.state();
        let results = values.len();
        let mut written = Vec::new();
        for c in s.cells.iter().filter(|c| c.mutations > 0) {
            if let Some(root) = &c.outer_base {
                written.push((root.clone(), c.mutations));
                values.push(c.value);
            }
        }
        let stores = values.len();
        let grads = std::mem::take(&mut s.grads);
        let ran_backward = s.ran_backward;
        let draws = std::mem::take(&mut s.draws);
        let mut new_grads = Vec::new();
        for (leaf, grad) in &grads {
            if let Some(g) = grad
                && g.0.lazy().is_none()
            {
                values.push(trace.read(&mut s, g)?);
                new_grads.push(leaf.clone());
            }
        }
        let kept = values.len();
        let mut ends = Vec::new();
        for (cell, grad) in std::mem::take(&mut s.outer_gradients) {
            values.push(trace.read(&mut s, &grad)?);
            ends.extend(s.cells[cell].outer_base.clone());
        }
        let mut graph = std::mem::take(&mut s.b.graph);
        graph.set_outputs(values);
        let (graph, used) = graph.without_dead_inputs();
        let inputs = std::mem::take(&mut s.inputs);
        let live = inputs.iter().zip(&used).filter(|(_, u)| **u).map(|(input, _)| input);
        let mut donate = InPlacePairs::new();
        for (i, input) in live.enumerate() {
            let TraceInput::Capture(t) = input else { continue };
            let written = written.iter().position(|(root, _)| root.base_id() == t.base_id());
            donate.extend(written.map(|k| (i, results + k)));
        }
        if !self.options.in_place {
            donate.clear();
        }
        drop(s);
        let captured = inputs.iter().zip(&used).filter_map(|(i, used)| match i {
            TraceInput::Capture(t) if *used => Some(t),
            _ => None,
        });
        let device = common_device(captured, at)?;
        let how = CompileMode { fuse_composites: self.options.fuse_composites, device };
        let key = hash_of(&(graph.structural_hash(), &donate[..], how));
        let variant = shared.variant(graph, &donate, how)?;
        self.used.lock().unwrap_or_else(|e| e.into_inner()).insert(key);

        let mut state = shared.state();
        let instance = state.next_instance();
        let hash = hash_of(&variant.graph.structural_hash());
        state.schedule = Some(CallKeys { instance, graph: hash, position: 0 });
        let mut b = LazyBuild::new(&mut state, at.clone());
        let mut args = Args::new();
        // Equal numbers, such as an optimizer's options for each parameter, are copied to the device once.
        let mut numbers: FxHashMap<&Literal, Value> = FxHashMap::default();
        for (input, _) in inputs.iter().zip(&used).filter(|(_, u)| **u) {
            let v = match input {
                TraceInput::Capture(t) => b.load(&t.0),
                TraceInput::Number(l) => match numbers.get(l) {
                    Some(v) => Ok(*v),
                    None => ir::GraphBuilder::constant(&mut b, l.clone()).map_err(Error::from),
                },
                TraceInput::Arg => Err(Error::call("a compiled call", "an argument was lost", at)),
            };
            let v = match v {
                Ok(v) => v,
                Err(e) => {
                    state.schedule = None;
                    return Err(e);
                }
            };
            if let TraceInput::Number(l) = input {
                numbers.insert(l, v);
            }
            args.push(b.get(v).clone());
        }
        // The captured tensors through which backward continues outside, also those that the program reads only for their type.
        let mut beyond = Vec::new();
        for root in &ends {
            match b.load(&root.0) {
                Ok(v) => beyond.push(b.get(v).clone()),
                Err(e) => {
                    state.schedule = None;
                    return Err(e);
                }
            }
        }
        state.record_draws(&draws, at);
        // If the region ran backward, the gradient history of its captures is used up.
        let tracked = context::is_grad_enabled()
            && !ran_backward
            && args.iter().any(|a| a.node.tracked)
            && variant.types.iter().any(|t| t.dtype.is_float());
        let key = state.node_key();
        let mut node = Node::new(key, NodeKind::Call(variant), args, at.clone()).tracked(tracked);
        node.device = device as u8;
        let node = Arc::new(node);
        let out = |i: usize| ValueRef { node: node.clone(), out: i as u32 };
        let mut done = Ok(());
        for (k, (root, mutations)) in written.iter().enumerate() {
            let base = root.0.lazy().expect("roots are of the engine").base;
            let value = out(results + k);
            let value = if root.0.view_leaf.is_some() { state.alias(value, None, at) } else { value };
            done = done.and_then(|()| state.base_write(base, value, LocRole::TensorState, false, at));
            if done.is_ok() {
                (0..*mutations).for_each(|_| state.commit(base, at));
            }
        }
        let mut made = Vec::new();
        for (k, leaf) in new_grads.iter().enumerate() {
            let value = state.alias(out(stores + k), None, at);
            made.push((leaf.clone(), engine.state_tensor(&mut state, value, LocRole::GradState, at)));
        }
        state.schedule = None;
        let from: Vec<(ValueRef, ValueRef)> = beyond.into_iter().enumerate().map(|(k, r)| (r, out(kept + k))).collect();
        let tensors = outputs
            .into_iter()
            .map(|o| match o {
                StagedOutput::Value(i) => Tensor::fresh(engine, &mut state, out(i)),
                StagedOutput::Outside(t) => t,
            })
            .collect();
        drop(state);
        done?;
        for (leaf, grad) in grads {
            if grad.is_none() {
                leaf.clear_grad();
            }
        }
        for (leaf, grad) in made {
            leaf.clear_grad();
            leaf.set_grad(Some(grad));
        }
        if !from.is_empty() {
            let run = || engine.backward_from(&mut shared.state(), from, BackwardOptions::default(), at);
            drop(context::no_grad(|| crate::profile::phase(Phase::Backward, run))?);
        }
        Ok(tensors)
    }
}
