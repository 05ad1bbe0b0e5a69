//! The graph verifier. It runs between passes in tests and debug builds.
//!
//! # Invariants
//!
//! 1. Every operand is a value of this graph, defined before its use.
//! 2. Every value has exactly one definition: it is in the list of inputs or in the outputs of one node.
//! 3. A node's output types equal those that its op infers from its operands' types.
//! 4. Outputs are values of this graph.
//! 5. Sub-graphs satisfy these invariants.
//! 6. Private outputs of a composite are read only by `custom_linear` and other derivative graphs, never as graph
//!    outputs of a user's function. (Guaranteed by the front ends, not checked here.)

use crate::attr::Attr;
use crate::error::{Error, Result};
use crate::graph::{Def, Graph};
use crate::types::Type;

/// Checks every invariant.
pub fn verify(graph: &Graph) -> Result<()> {
    let n = graph.num_values();
    let mut defined = vec![false; n];
    let bad = |text: String| Err(Error::Invalid(text));
    for (i, &v) in graph.inputs().iter().enumerate() {
        if v.0 as usize >= n {
            return bad(format!("input {i} is %{}, which does not exist", v.0));
        }
        if graph.def(v) != Def::Input(i as u32) || defined[v.0 as usize] {
            return bad(format!("%{} is listed as input {i}, but has another definition", v.0));
        }
        defined[v.0 as usize] = true;
    }
    for (k, node) in graph.nodes().iter().enumerate() {
        let name = node.op.name();
        for a in &node.args {
            if a.0 as usize >= n || !defined[a.0 as usize] {
                return bad(format!("node {k} ({name}) uses %{}, which is not defined before it", a.0));
            }
        }
        let types: Vec<Type> = node.args.iter().map(|&a| graph.ty(a).clone()).collect();
        let inferred = match node.op.infer(&types) {
            Ok(t) => t,
            Err(p) => return bad(format!("node {k} ({name}): {p}")),
        };
        if inferred.len() != node.outs.len() {
            return bad(format!(
                "node {k} ({name}) has {} outputs, but its op has {}",
                node.outs.len(),
                inferred.len()
            ));
        }
        for (j, (&v, ty)) in node.outs.iter().zip(&inferred).enumerate() {
            if v.0 as usize >= n || graph.def(v) != Def::Node(k as u32, j as u32) || defined[v.0 as usize] {
                return bad(format!("output {j} of node {k} ({name}) is %{}, which has another definition", v.0));
            }
            if graph.ty(v) != ty {
                return bad(format!("%{} is declared {}, but {name} returns {ty}", v.0, graph.ty(v)));
            }
            defined[v.0 as usize] = true;
        }
        for (attr, value) in node.op.attrs() {
            verify_attr(&value).map_err(|e| Error::Invalid(format!("in `{attr}` of node {k} ({name}): {e}")))?;
        }
    }
    if let Some(v) = graph.outputs().iter().find(|v| v.0 as usize >= n || !defined[v.0 as usize]) {
        return bad(format!("output %{} is not defined", v.0));
    }
    match defined.iter().position(|d| !d) {
        Some(i) => bad(format!("%{i} has no definition")),
        None => Ok(()),
    }
}

fn verify_attr(attr: &Attr) -> Result<()> {
    match attr {
        Attr::Graph(g) => verify(g),
        Attr::List(items) => items.iter().try_for_each(verify_attr),
        _ => Ok(()),
    }
}
