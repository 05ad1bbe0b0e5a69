//! `Tx`: the builder that rules write into, with the transforms at hand for sub-graphs.

use ir::{Build, Builder, Cx, Graph, Loc, Op, Result, SplitGraph, Type, Value, Values};

/// A graph under construction by a transform.
#[derive(Default)]
pub struct Tx {
    b: Builder,
}

impl Tx {
    /// An empty graph.
    pub fn new() -> Tx {
        Tx::default()
    }

    /// Adds an input.
    pub fn input(&mut self, ty: Type) -> Value {
        self.b.graph.input(ty)
    }

    /// New nodes are written at this place.
    pub fn at(&mut self, loc: &Loc) {
        self.b.loc = loc.clone();
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.b.graph
    }

    /// Ends with these outputs; nodes that nobody needs are dropped.
    pub fn finish(self, outputs: &[Value]) -> Graph {
        self.b.finish(outputs).without_dead_nodes()
    }
}

impl Build for Tx {
    fn emit(&mut self, op: Op, args: &[Value]) -> Result<Values> {
        self.b.emit(op, args)
    }

    fn ty(&self, v: Value) -> Type {
        self.b.ty(v)
    }

    fn inline(&mut self, graph: &Graph, args: &[Value]) -> Result<Vec<Value>> {
        self.b.inline(graph, args)
    }
}

impl Cx for Tx {
    fn jvp_of(&self, graph: &Graph, active: &[bool], want: &[bool]) -> Result<(Graph, Vec<bool>)> {
        crate::jvp::jvp(graph, active, want)
    }

    fn split_of(&self, graph: &Graph, known: &[bool]) -> Result<SplitGraph> {
        crate::split::split(graph, known)
    }

    fn transpose_of(&self, graph: &Graph, linear: &[bool], ct: &[bool]) -> Result<(Graph, Vec<bool>)> {
        crate::transpose::transpose(graph, linear, ct)
    }

    fn vmap_of(&self, graph: &Graph, batched: &[bool], want: &[bool], size: usize) -> Result<(Graph, Vec<bool>)> {
        crate::vmap::vmap(graph, batched, want, size)
    }
}
