//! The explanation of a compiled program: for each step, what was fused into it, and what was not and why.

use crate::fuse::{Group, Unfused};
use ir::{Graph, Loc, Node, Value};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::fmt;

/// The explanation of one step of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepExplanation {
    /// The number of the step, after the numbers of the enclosing loops and branches.
    pub step: String,
    /// A description of the step.
    pub description: String,
    /// The results that it computes, one line each: the fused ops, and the source lines that they come from.
    pub fused: Vec<String>,
    /// Ops that could have been fused into it, and the reasons why they were not.
    pub unfused: Vec<String>,
}

/// The explanation of all steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The steps, in order.
    pub steps: Vec<StepExplanation>,
    /// The numbers of the loops and branches around the step that is being lowered.
    pub(crate) path: Vec<String>,
}

impl Explanation {
    fn add(&mut self, step: usize, what: String, fused: Vec<String>, unfused: Vec<String>) {
        let mut path = self.path.clone();
        path.push(step.to_string());
        self.steps.push(StepExplanation { step: path.join("."), description: what, fused, unfused });
    }

    /// Adds a note on a fused kernel.
    pub(crate) fn group(&mut self, graph: &Graph, group: &Group, in_memory: &[bool], unfused: &[Unfused], step: usize) {
        let what = format!(
            "kernel over {:?}{}",
            &group.domain[..],
            match &group.reduced_axes[..] {
                [] => String::new(),
                axes => format!(", reduced over {axes:?}"),
            }
        );
        let mut fused = Vec::new();
        let mut reasons = Vec::new();
        for r in &group.roots {
            let Some(node) = graph.node_of(r.value) else { continue };
            let mut ops = BTreeMap::new();
            let mut stack = vec![node];
            let mut seen = FxHashSet::default();
            while let Some(n) = stack.pop() {
                if !seen.insert(n.outs[0]) {
                    continue;
                }
                *ops.entry(n.op.name()).or_insert(0usize) += 1;
                let ends = |v: Value| in_memory[v.0 as usize] || group.roots.iter().any(|r| r.value == v);
                stack.extend(n.args.iter().filter(|a| !ends(**a)).filter_map(|a| graph.node_of(*a)));
            }
            let list: Vec<String> =
                (ops.iter()).map(|(name, n)| if *n == 1 { name.to_string() } else { format!("{name} ×{n}") }).collect();
            let kept = if r.stored { "" } else { ", not stored" };
            let at = if node.loc == Loc::Unknown { String::new() } else { format!(" at {}", node.loc) };
            fused.push(format!("%{} {}{kept} = {}{at}", r.value.0, graph.ty(r.value), list.join(", ")));
            for a in unfused.iter().filter(|a| a.value == r.value) {
                if !group.roots.iter().any(|r| r.value == a.other) {
                    reasons.push(format!("%{} from %{}: {}", a.value.0, a.other.0, a.reason));
                }
            }
        }
        self.add(step, what, fused, reasons);
    }

    /// Adds a note on an op that is a separate step; `unfused` is the reason why its consumer was not fused.
    pub(crate) fn explain_standalone(&mut self, graph: &Graph, node: &Node, unfused: Option<String>, step: usize) {
        let types: Vec<String> = node.args.iter().map(|a| graph.ty(*a).to_string()).collect();
        let name = crate::program::library_name(&node.op);
        let at = if node.loc == Loc::Unknown { String::new() } else { format!(" at {}", node.loc) };
        self.add(step, format!("{name} {}{at}", types.join(", ")), Vec::new(), unfused.into_iter().collect());
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for n in &self.steps {
            writeln!(f, "{}: {}", n.step, n.description)?;
            n.fused.iter().try_for_each(|l| writeln!(f, "    {l}"))?;
            n.unfused.iter().try_for_each(|l| writeln!(f, "    unfused: {l}"))?;
        }
        Ok(())
    }
}
