//! `TransformBuilder`: the graph builder of the transforms. It can also transform sub-graphs.

use ir::ops::{Composite, Derivative};
use ir::{Builder, Graph, GraphBuilder, GraphTransforms, Loc, Op, PartialEvalGraphs, Result, Type, Value, Values};
use std::sync::Arc;

/// A graph under construction by a transform.
#[derive(Default)]
pub struct TransformBuilder {
    b: Builder,
    /// Whether the reverse rules of composites stay composites.
    keep_reverse_rules: bool,
}

impl TransformBuilder {
    /// An empty graph.
    pub fn new() -> TransformBuilder {
        TransformBuilder::default()
    }

    /// An empty graph; `by_rules` states whether the reverse rule of a composite stays one op.
    pub fn with_reverse_rules(by_rules: bool) -> TransformBuilder {
        TransformBuilder { keep_reverse_rules: by_rules, ..TransformBuilder::default() }
    }

    /// Adds an input.
    pub fn input(&mut self, ty: Type) -> Value {
        self.b.graph.input(ty)
    }

    /// Sets the source location of new nodes.
    pub fn set_loc(&mut self, loc: &Loc) {
        self.b.loc = loc.clone();
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.b.graph
    }

    /// Returns the graph with these outputs, without dead nodes.
    pub fn finish(self, outputs: &[Value]) -> Graph {
        self.b.finish(outputs).without_dead_nodes()
    }
}

impl GraphBuilder for TransformBuilder {
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

impl GraphTransforms for TransformBuilder {
    fn jvp_of(&self, graph: &Graph, active: &[bool], want: &[bool]) -> Result<(Graph, Vec<bool>)> {
        crate::jvp::jvp(graph, active, want)
    }

    fn partial_eval_of(&self, graph: &Graph, known: &[bool]) -> Result<PartialEvalGraphs> {
        crate::partial_eval::partial_eval(graph, known)
    }

    fn transpose_of(&self, graph: &Graph, linear: &[bool], ct: &[bool]) -> Result<(Graph, Vec<bool>)> {
        crate::transpose::transpose_with(graph, linear, ct, self.keep_reverse_rules)
    }

    fn vmap_of(&self, graph: &Graph, batched: &[bool], want: &[bool], size: usize) -> Result<(Graph, Vec<bool>)> {
        crate::vmap::vmap(graph, batched, want, size)
    }

    fn rule(&mut self, name: &str, graph: Graph, args: &[Value]) -> Result<Vec<Value>> {
        let graph = graph.without_dead_nodes();
        // A graph with a single op needs no composite.
        if !self.keep_reverse_rules || graph.nodes().len() < 2 {
            return self.inline(&graph, args);
        }
        let rule = Composite {
            name: format!("{name}_vjp"),
            params: Vec::new(),
            num_public_outputs: graph.outputs().len(),
            body: Arc::new(graph),
            derivative: Derivative::Body,
        };
        Ok(self.emit(rule.into(), args)?.into_vec())
    }
}
