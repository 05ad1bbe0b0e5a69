//! What libraries above the engine write ops with: builders on tensors, compiled graphs, invalid tensors.

use crate::context;
use crate::debug;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kernels::{self, Over};
use crate::lock::ExecGuard;
use crate::node::{Args, Node, Ref, Work};
use crate::record::{LazyBuild, record};
use crate::region::Variant;
use crate::storage::Stored;
use crate::tensor::{Kind, Tensor};
use compiler::Bindings;
use ir::ops::Call;
use ir::{Build, DType, Graph, Loc, Value, Values};
use smallvec::SmallVec;
use std::sync::Arc;

/// Records what `f` builds from tensors, at a place of the user's program; gives `n` tensors. A failure gives invalid ones.
pub fn build(
    at: &Loc,
    n: usize,
    engine: &Engine,
    args: &[&Tensor],
    f: impl FnOnce(&mut dyn Build, &[Value]) -> ir::Result<Values>,
) -> Vec<Tensor> {
    record(at, n, Some(engine), args, |b, v| f(b, v)).into_vec()
}

/// Whether a function is being traced on this thread.
pub fn is_tracing() -> bool {
    context::trace().is_some()
}

/// What the recording of a function depends on beside its arguments: whether gradients are recorded, and autocast's dtype.
pub fn mode() -> (bool, Option<DType>) {
    (context::is_grad_enabled(), context::autocast())
}

impl Tensor {
    /// A tensor that carries an error; reading it gives the error.
    pub fn from_error(error: Error) -> Tensor {
        Tensor::failed(error, None)
    }

    /// The error that an invalid tensor carries.
    pub fn error(&self) -> Option<Error> {
        match &self.0.kind {
            Kind::Invalid(i) => Some(i.error.clone()),
            _ => None,
        }
    }
}

/// A Graph compiled for an engine's first device.
#[derive(Clone)]
pub struct Program {
    engine: Engine,
    variant: Arc<Variant>,
}

type Operands = SmallVec<[Stored; 4]>;

/// Arguments of a program.
pub type Arguments = SmallVec<[Tensor; 8]>;
type Results = SmallVec<[Tensor; 4]>;

impl Engine {
    /// Compiles a graph, or finds the program that was compiled from an equal one. Results may take the memory of
    /// arguments: `donate` are pairs of an input and the output that is to replace it. An argument is given up only if
    /// nobody else holds it.
    pub fn program(&self, graph: Graph, donate: &[(usize, usize)]) -> Result<Program> {
        Ok(Program { engine: self.clone(), variant: self.shared.variant(graph, donate)? })
    }
}

impl Program {
    /// The graph that was compiled.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.variant.graph
    }

    /// Calls it. If all arguments exist it runs at once; else the call is recorded and runs when a result is read. Inside
    /// a trace the call becomes an op.
    pub fn call(&self, at: &Loc, args: Arguments) -> Results {
        let invalid = args.iter().find_map(|t| t.invalid()).cloned();
        self.try_call(at, args).unwrap_or_else(|e| {
            let t = invalid.unwrap_or_else(|| Tensor::failed(e.at(at), Some(&self.engine)));
            self.variant.types.iter().map(|_| t.clone()).collect()
        })
    }

    fn try_call(&self, at: &Loc, args: Arguments) -> Result<Results> {
        for t in &args {
            t.check_at(at)?;
        }
        let ours = |t: &Tensor| t.engine().is_some_and(|e| e.same(&self.engine));
        if context::trace().is_some() || !args.iter().all(ours) {
            let call = Call { body: self.variant.graph.clone() };
            let f = |b: &mut dyn crate::record::Record, v: &[Value]| b.emit(call.into(), v);
            let args: SmallVec<[&Tensor; 8]> = args.iter().collect();
            return Ok(record(at, self.variant.types.len(), Some(&self.engine), &args, f).into_iter().collect());
        }
        self.check_types(&args)?;
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
        let free = !tracked && state.poisoned.is_none() && !shared.profiling.is_on() && !debug::is_watching();
        let here = |a: &Ref| a.value().filter(|v| v.storage.pool().device == 0);
        if free && let Some(mut values) = refs.iter().map(here).collect::<Option<Operands>>() {
            drop(state);
            if let Some(guard) = shared.exec.try_acquire("call") {
                for (r, v) in refs.iter().zip(&mut values).filter(|(_, v)| !v.views.is_empty()) {
                    let fail = |cause| Error::CompiledExecution { at: at.clone(), cause, op: None };
                    *v = shared.dense(v).map_err(fail)?;
                    // The next call finds it so.
                    r.node.slot().values[r.out as usize] = v.clone();
                }
                drop((refs, args));
                return self.run(at, values, guard);
            }
            state = shared.state();
        }
        let key = state.node_key();
        let work = Work::Call(self.variant.clone());
        let node = Arc::new(Node::new(key, work, refs, at.clone()).tracked(tracked));
        let out = |i: usize| Ref { node: node.clone(), out: i as u32 };
        Ok((0..self.variant.types.len()).map(|i| Tensor::fresh(&self.engine, &mut state, out(i))).collect())
    }

    /// Runs a call on values.
    fn run(&self, at: &Loc, values: Operands, _guard: ExecGuard<'_>) -> Result<Results> {
        let shared = &self.engine.shared;
        let fail = |cause| Error::CompiledExecution { at: at.clone(), cause, op: None };
        let (exe, pool) = (&*self.variant.exe, &shared.devices[0].pool);
        let donated = &exe.program().donated;
        // Memory of handles that were dropped, the arguments' among them, is there to be used again.
        shared.drain_finalize_queue();
        pool.flush();
        let mut over = Over::new();
        for &(i, o) in donated {
            if Arc::strong_count(&values[i].storage) == 1 && !over.iter().any(|&(_, taken)| taken == o) {
                over.push((i, o));
            }
        }
        let mut bindings = Bindings { inputs: Vec::new(), outputs: Vec::new() };
        let outs = kernels::bind(pool, &self.variant.types, &values, &over, &mut bindings).map_err(fail)?;
        if let Err(cause) = exe.run(&mut bindings) {
            // What was given up may be half written, so there is nothing to replay it with.
            let op = over.is_empty().then(|| shared.fails_alone(&self.variant.graph, &values, 0)).flatten();
            let error = Error::CompiledExecution { at: at.clone(), cause, op };
            shared.poison(&error);
            return Err(error);
        }
        let mut state = shared.state();
        let mut tensor = |value: Stored| {
            let node = Arc::new(Node::data(state.node_key(), value, at.clone()));
            Tensor::fresh(&self.engine, &mut state, Ref { node, out: 0 })
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
