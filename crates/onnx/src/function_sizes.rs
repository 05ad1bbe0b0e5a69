//! Counts the nodes of a model with all functions inlined, without inlining them: a few functions
//! that call each other twice are billions of nodes.

use crate::proto::{FunctionProto, NodeProto};
use std::collections::HashMap;

/// The domain, name and overload of an op.
pub(crate) type OpKey<'m> = (&'m str, &'m str, &'m str);

/// The key of a node's op.
pub(crate) fn key(node: &NodeProto) -> OpKey<'_> {
    let domain = node.domain.as_deref().unwrap_or("");
    let domain = if domain == "ai.onnx" { "" } else { domain };
    (domain, node.op_type.as_deref().unwrap_or(""), node.overload.as_deref().unwrap_or(""))
}

/// The functions of a model, with their known sizes.
pub(crate) struct FunctionSizes<'a, 'm> {
    pub(crate) functions: &'a HashMap<OpKey<'m>, &'m FunctionProto>,
    pub(crate) known: HashMap<OpKey<'m>, usize>,
    /// Maximum nesting depth of functions; more is treated as infinite recursion.
    pub(crate) deepest: usize,
}

impl<'m> FunctionSizes<'_, 'm> {
    /// The number of nodes in a list, including those of bodies and called functions.
    pub(crate) fn of(&mut self, nodes: &'m [NodeProto], depth: usize) -> usize {
        nodes.iter().fold(0, |n, node| n.saturating_add(self.node(node, depth)))
    }

    fn node(&mut self, node: &'m NodeProto, depth: usize) -> usize {
        let bodies = node.attribute.iter().filter_map(|a| a.g.as_ref());
        let own = bodies.fold(1, |n: usize, g| n.saturating_add(self.of(&g.node, depth)));
        let key = key(node);
        let Some(f) = self.functions.get(&key).copied() else { return own };
        if depth >= self.deepest {
            return usize::MAX;
        }
        let called = match self.known.get(&key) {
            Some(&n) => n,
            None => {
                let n = self.of(&f.node, depth + 1);
                self.known.insert(key, n);
                n
            }
        };
        own.saturating_add(called)
    }
}
