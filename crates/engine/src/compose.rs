//! What libraries above the engine write ops with: builders on tensors, compiled graphs, invalid tensors.

use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::node::{Args, Node, Ref, Work};
use crate::record::{LazyBuild, record};
use crate::region::Variant;
use crate::tensor::{Kind, Tensor};
use ir::ops::Call;
use ir::{Build, Graph, Loc, Value, Values};
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

impl Engine {
    /// Compiles a graph, or finds the program that was compiled from an equal one.
    pub fn program(&self, graph: Graph) -> Result<Program> {
        Ok(Program { engine: self.clone(), variant: self.shared.variant(graph, &[])? })
    }
}

impl Program {
    /// The graph that was compiled.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.variant.graph
    }

    /// Records a call; nothing is executed. Inside a trace the call becomes an op.
    pub fn call(&self, at: &Loc, args: &[&Tensor]) -> SmallVec<[Tensor; 4]> {
        match self.try_call(at, args) {
            Ok(outs) => outs,
            Err(e) => {
                let invalid = args.iter().find_map(|t| t.invalid()).cloned();
                let t = invalid.unwrap_or_else(|| Tensor::failed(e.at(at), Some(&self.engine)));
                self.variant.types.iter().map(|_| t.clone()).collect()
            }
        }
    }

    fn try_call(&self, at: &Loc, args: &[&Tensor]) -> Result<SmallVec<[Tensor; 4]>> {
        for t in args {
            t.check_at(at)?;
        }
        let call = Call { body: self.variant.graph.clone() };
        let ours = |t: &&Tensor| t.engine().is_some_and(|e| e.same(&self.engine));
        if context::trace().is_some() || !args.iter().all(ours) {
            let f = |b: &mut dyn crate::record::Record, v: &[Value]| b.emit(call.into(), v);
            return Ok(record(at, self.variant.types.len(), Some(&self.engine), args, f).into_iter().collect());
        }
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
        let mut state = self.engine.shared.state();
        let mut b = LazyBuild::new(&mut state, at.clone());
        let mut refs = Args::new();
        for t in args {
            let v = b.load(&t.0)?;
            refs.push(b.get(v).clone());
        }
        let tracked = context::is_grad_enabled()
            && refs.iter().any(|a| a.node.tracked)
            && self.variant.types.iter().any(|t| t.dtype.is_float());
        let key = state.node_key();
        let work = Work::Call(self.variant.clone());
        let node = Arc::new(Node::new(key, work, refs, at.clone()).tracked(tracked));
        let out = |i: usize| Ref { node: node.clone(), out: i as u32 };
        Ok((0..self.variant.types.len()).map(|i| Tensor::fresh(&self.engine, &mut state, out(i))).collect())
    }
}
