//! The interface for libraries that build on the engine: recording with builders, compiled graphs, invalid tensors.

use crate::context;
use crate::debug;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kernels::{self, InPlacePairs};
use crate::lock::ExecGuard;
use crate::node::{Args, Node, NodeKind, ValueRef};
use crate::record::{LazyBuild, record};
use crate::region::{CompileMode, CompiledGraph};
use crate::storage::StoredValue;
use crate::tensor::{Tensor, TensorKind};
use crate::transfer::common_device;
use compiler::Bindings;
use ir::ops::Call;
use ir::{DType, Graph, GraphBuilder, Loc, Value, Values};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::{Arc, Mutex};

/// Records the ops that `f` builds from tensors, with the given source line; returns `n` tensors, invalid after an error.
pub fn record_with(
    at: &Loc,
    n: usize,
    engine: &Engine,
    args: &[&Tensor],
    f: impl FnOnce(&mut dyn GraphBuilder, &[Value]) -> ir::Result<Values>,
) -> Vec<Tensor> {
    record(at, n, Some(engine), args, |b, v| f(b, v)).into_vec()
}

/// Whether a function is being traced on this thread.
pub fn is_tracing() -> bool {
    context::trace().is_some()
}

thread_local! {
    /// The trace number of the function whose recorder reads the arguments back after the call.
    static KEPT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether a pure function is being recorded, so that in-place changes to its arguments are lost.
pub fn is_pure() -> bool {
    context::trace().is_some_and(|t| matches!(t.mode, crate::trace::TraceMode::Function) && KEPT.get() != Some(t.id))
}

/// Runs `f`, the body of a function whose recorder reads the arguments back after the call, so in-place changes to the
/// arguments are not lost. Functions recorded inside `f` are still pure.
pub fn with_recorded_arguments<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(Option<u64>);
    impl Drop for Restore {
        fn drop(&mut self) {
            KEPT.set(self.0);
        }
    }
    let _restore = Restore(KEPT.replace(context::trace().map(|t| t.id)));
    f()
}

/// The thread state that a recording depends on besides the arguments: whether gradients are enabled, and the autocast dtype.
pub fn recording_mode() -> (bool, Option<DType>) {
    (context::is_grad_enabled(), context::autocast())
}

impl Tensor {
    /// Creates an invalid tensor, which carries an error; reading it returns the error.
    pub fn from_error(error: Error) -> Tensor {
        Tensor::with_error(error, None)
    }

    /// The error that an invalid tensor carries.
    pub fn error(&self) -> Option<Error> {
        match &self.0.kind {
            TensorKind::Invalid(i) => Some(i.error.clone()),
            _ => None,
        }
    }
}

/// A compiled Graph. It runs on the device of its arguments, and is compiled once for each such device.
#[derive(Clone)]
pub struct CompiledProgram {
    engine: Engine,
    variant: Arc<CompiledGraph>,
    donate: Arc<[(usize, usize)]>,
    /// The same graph compiled for devices other than the first.
    other_devices: Arc<Mutex<Vec<Arc<CompiledGraph>>>>,
}

type Operands = SmallVec<[StoredValue; 4]>;

/// The arguments of a program.
pub type Arguments = SmallVec<[Tensor; 8]>;
type Results = SmallVec<[Tensor; 4]>;

impl Engine {
    /// Compiles a graph, or returns the cached program of an equal graph. Results may reuse the memory of
    /// arguments: `donate` lists pairs of an input and the output that replaces it. An argument is donated only if
    /// nothing else refers to it.
    pub fn program(&self, graph: Graph, donate: &[(usize, usize)]) -> Result<CompiledProgram> {
        let variant = self.shared.variant(graph, donate, CompileMode::on(0))?;
        Ok(CompiledProgram { engine: self.clone(), variant, donate: donate.into(), other_devices: Arc::default() })
    }
}

impl CompiledProgram {
    /// The graph that was compiled.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.variant.graph
    }

    /// Records a call without running it: it runs when a result is read, together with the other pending ops.
    pub fn record(&self, at: &Loc, args: Arguments) -> Results {
        self.called(at, args, false)
    }

    /// Calls the program. If all arguments are computed it runs at once; else the call is recorded and runs when a result is
    /// read. Inside a trace the call is recorded as an op.
    pub fn call(&self, at: &Loc, args: Arguments) -> Results {
        self.called(at, args, true)
    }

    fn called(&self, at: &Loc, args: Arguments, now: bool) -> Results {
        let invalid = args.iter().find_map(|t| t.invalid()).cloned();
        self.try_call(at, args, now).unwrap_or_else(|e| {
            let t = invalid.unwrap_or_else(|| Tensor::with_error(e.with_loc(at), Some(&self.engine)));
            self.variant.types.iter().map(|_| t.clone()).collect()
        })
    }

    /// The program compiled for a device.
    fn for_device(&self, device: usize) -> Result<CompiledProgram> {
        let mut all = self.other_devices.lock().unwrap_or_else(|e| e.into_inner());
        let variant = match all.iter().find(|v| v.device == device) {
            Some(v) => v.clone(),
            None => {
                let graph = (*self.variant.graph).clone();
                let v = self.engine.shared.variant(graph, &self.donate, CompileMode::on(device))?;
                all.push(v.clone());
                v
            }
        };
        Ok(CompiledProgram { variant, other_devices: Arc::default(), ..self.clone() })
    }

    fn try_call(&self, at: &Loc, args: Arguments, now: bool) -> Result<Results> {
        for t in &args {
            t.check_at(at)?;
        }
        let ours = |t: &Tensor| t.engine().is_some_and(|e| e.same(&self.engine));
        if context::trace().is_some() || !args.iter().all(ours) {
            let call = Call { body: self.variant.graph.clone() };
            let f = |b: &mut dyn crate::record::Recorder, v: &[Value]| b.emit(call.into(), v);
            let args: SmallVec<[&Tensor; 8]> = args.iter().collect();
            return Ok(record(at, self.variant.types.len(), Some(&self.engine), &args, f).into_iter().collect());
        }
        self.check_types(&args)?;
        if self.engine.shared.devices.len() > 1 {
            let device = common_device(args.iter(), at)?;
            if device != self.variant.device {
                return self.for_device(device)?.try_call(at, args, now);
            }
        }
        let shared = &self.engine.shared;
        let mut state = shared.state();
        let mut b = LazyBuild::new(&mut state, at.clone());
        let mut refs = Args::new();
        for t in &args {
            let v = b.load(&t.0)?;
            refs.push(b.get(v).clone());
        }
        let tracked = context::is_grad_enabled()
            && refs.iter().any(|a| a.node.tracked)
            && self.variant.types.iter().any(|t| t.dtype.is_float());
        let free =
            now && !tracked && state.poisoned.is_none() && !shared.profiling.is_on() && !debug::is_debug_active();
        let device = self.variant.device;
        let here = |a: &ValueRef| a.value().filter(|v| v.storage.pool().device == device);
        if free && let Some(mut values) = refs.iter().map(here).collect::<Option<Operands>>() {
            drop(state);
            if let Some(guard) = shared.exec.try_acquire("call") {
                for (r, v) in refs.iter().zip(&mut values).filter(|(_, v)| !v.views.is_empty()) {
                    let fail = |cause: compiler::Error| shared.memory_error("a compiled call", at, cause.into());
                    *v = shared.dense(v).map_err(fail)?;
                    // Store the value in its node, so that the next call finds it.
                    r.node.slot().values[r.out as usize] = v.clone();
                }
                drop((refs, args));
                return self.run(at, values, guard);
            }
            state = shared.state();
        }
        let key = state.node_key();
        let work = NodeKind::Call(self.variant.clone());
        let mut node = Node::new(key, work, refs, at.clone()).tracked(tracked);
        node.device = device as u8;
        let node = Arc::new(node);
        let out = |i: usize| ValueRef { node: node.clone(), out: i as u32 };
        Ok((0..self.variant.types.len()).map(|i| Tensor::fresh(&self.engine, &mut state, out(i))).collect())
    }

    /// Runs the program on values.
    fn run(&self, at: &Loc, values: Operands, _guard: ExecGuard<'_>) -> Result<Results> {
        let shared = &self.engine.shared;
        let (exe, pool) = (&*self.variant.exe, &shared.devices[self.variant.device].pool);
        let donated = &exe.program().donated;
        // The memory of dropped handles, including the arguments', becomes reusable.
        shared.drain_finalize_queue();
        pool.flush();
        let mut over = InPlacePairs::new();
        for &(i, o) in donated {
            let free = values[i].storage.is_owned() && Arc::strong_count(&values[i].storage) == 1;
            if free && !over.iter().any(|&(_, taken)| taken == o) {
                over.push((i, o));
            }
        }
        let mut bindings = Bindings { inputs: Vec::new(), outputs: Vec::new() };
        let memory = |cause: compiler::Error| shared.memory_error("a compiled call", at, cause.into());
        let outs = kernels::bind(pool, &self.variant.types, &values, &over, &mut bindings).map_err(memory)?;
        if let Err(cause) = exe.run(&mut bindings) {
            let error = memory(cause.clone());
            if error.is_out_of_memory() && over.is_empty() {
                return Err(error);
            }
            // Nothing else refers to the donated arguments.
            if cause == compiler::Error::Interrupted {
                return Err(Error::CompiledExecution { at: at.clone(), cause, op: None });
            }
            // Donated arguments may be partly overwritten, so the call can't be replayed to find the op that failed.
            let op = over
                .is_empty()
                .then(|| shared.find_failing_op(&self.variant.graph, &values, self.variant.device))
                .flatten();
            let error = Error::CompiledExecution { at: at.clone(), cause, op };
            shared.poison(&error);
            return Err(error);
        }
        let mut state = shared.state();
        let mut tensor = |value: StoredValue| {
            let mut node = Node::data(state.node_key(), value, at.clone());
            node.device = self.variant.device as u8;
            Tensor::fresh(&self.engine, &mut state, ValueRef { node: Arc::new(node), out: 0 })
        };
        Ok(outs.into_iter().map(&mut tensor).collect())
    }

    fn check_types(&self, args: &[Tensor]) -> Result<()> {
        let inputs = self.variant.graph.inputs();
        for (i, (t, v)) in args.iter().zip(inputs).enumerate() {
            if t.ty() != self.variant.graph.ty(*v) {
                let text = format!("argument {i} is {}, not {}", t.ty(), self.variant.graph.ty(*v));
                return Err(Error::InputSignatureMismatch(text));
            }
        }
        if args.len() != inputs.len() {
            let text = format!("{} arguments for {} inputs", args.len(), inputs.len());
            return Err(Error::InputSignatureMismatch(text));
        }
        Ok(())
    }
}
