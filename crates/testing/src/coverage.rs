//! Coverage of a set of graphs: ops with dtypes, and pairs of producers and consumers.

use ir::attr::Attr;
use ir::{DType, Graph, Node, Op};
use std::collections::BTreeMap;
use std::fmt;

/// Counters of the contents of graphs, including sub-graphs.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// The number of graphs.
    pub graphs: usize,
    /// The number of nodes by op and dtype of the first result (or first operand).
    pub ops: BTreeMap<(String, DType), usize>,
    /// The number of edges by producer and consumer.
    pub pairs: BTreeMap<(String, String), usize>,
}

/// The name under which an op is counted: the name of a composite instead of `composite`.
pub fn op_name(op: &Op) -> String {
    match op {
        Op::Composite(c) => c.name.clone(),
        other => other.name().to_string(),
    }
}

/// Calls `f` with a graph and all its sub-graphs.
pub fn each_graph(graph: &Graph, f: &mut dyn FnMut(&Graph)) {
    fn within(attr: &Attr, f: &mut dyn FnMut(&Graph)) {
        match attr {
            Attr::Graph(g) => each_graph(g, f),
            Attr::List(items) => items.iter().for_each(|a| within(a, f)),
            _ => {}
        }
    }
    f(graph);
    for node in graph.nodes() {
        node.op.attrs().iter().for_each(|(_, attr)| within(attr, f));
    }
}

/// Calls `f` with the nodes of a graph and of all its sub-graphs.
pub fn each_node(graph: &Graph, f: &mut dyn FnMut(&Node)) {
    each_graph(graph, &mut |g| g.nodes().iter().for_each(&mut *f));
}

impl Coverage {
    /// Counts a graph.
    pub fn add(&mut self, graph: &Graph) {
        self.graphs += 1;
        each_graph(graph, &mut |graph| self.nodes(graph));
    }

    fn nodes(&mut self, graph: &Graph) {
        for node in graph.nodes() {
            let name = op_name(&node.op);
            if let Some(v) = node.outs.first().or(node.args.first()) {
                *self.ops.entry((name.clone(), graph.ty(*v).dtype)).or_default() += 1;
            }
            for a in &node.args {
                if let Some(producer) = graph.node_of(*a) {
                    *self.pairs.entry((op_name(&producer.op), name.clone())).or_default() += 1;
                }
            }
        }
    }

    /// The names of the counted ops.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.ops.keys().map(|(n, _)| n.as_str()).collect();
        names.dedup();
        names
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: usize = self.ops.values().sum();
        writeln!(
            f,
            "{} graphs, {nodes} nodes, {} ops, {} op × dtype, {} producer → consumer pairs",
            self.graphs,
            self.names().len(),
            self.ops.len(),
            self.pairs.len()
        )?;
        for name in self.names() {
            write!(f, "  {name:<18}")?;
            for ((_, d), count) in self.ops.iter().filter(|((n, _), _)| n == name) {
                write!(f, " {d}:{count}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
