//! Graph → graph passes of the compiler, one per file.

pub mod canonicalize_dot;
pub mod cse;
pub mod fp8_matmul;
pub mod inline;
pub mod quantized_matmul;
pub mod rematerialize_cheap;
pub mod simplify;
pub mod split_reduction;
mod transpose_folding;
pub(crate) mod update_to_scatter;

use crate::target::Target;
use inline::CompositePredicate;
use ir::{Builder, Graph, Node, Op, Value, Values};
use std::sync::Arc;

type Result<T> = ir::Result<T>;

/// A compiler pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Inlines composites that the backend does not support; rematerialized bodies are not inlined.
    Inline,
    /// Applies algebraic equations that hold for all values.
    Simplify,
    /// Merges equal nodes.
    Cse,
    /// Inlines rematerialized bodies; no later pass merges nodes.
    OpenRemat,
    /// Forms matrix products with quantized weights, if the backend supports them.
    QuantizedMatmul,
    /// Forms fp8 matrix products, if the backend supports them.
    Fp8Matmul,
    /// Puts the axes of contractions in canonical order.
    CanonicalizeDot,
    /// Splits long reductions into partial results.
    SplitReduction,
    /// Rematerializes cheap values for distant consumers.
    RematerializeCheap,
}

impl Pass {
    /// All passes, in the order they run.
    pub const PIPELINE: [Pass; 11] = [
        Pass::Inline,
        Pass::Simplify,
        Pass::Cse,
        Pass::OpenRemat,
        Pass::QuantizedMatmul,
        Pass::Fp8Matmul,
        Pass::Simplify,
        Pass::CanonicalizeDot,
        Pass::Simplify,
        Pass::SplitReduction,
        Pass::RematerializeCheap,
    ];

    /// The pass with this name.
    pub fn from_name(name: &str) -> Option<Pass> {
        Pass::PIPELINE.into_iter().find(|p| p.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Inline => "inline",
            Pass::Simplify => "simplify",
            Pass::Cse => "cse",
            Pass::OpenRemat => "open-remat",
            Pass::QuantizedMatmul => "packed",
            Pass::Fp8Matmul => "narrow",
            Pass::CanonicalizeDot => "dots",
            Pass::SplitReduction => "partials",
            Pass::RematerializeCheap => "recompute",
        }
    }

    /// Runs the pass.
    pub fn run(self, graph: &Graph, claims: CompositePredicate<'_>, target: &Target) -> Result<Graph> {
        match self {
            Pass::Inline => inline::inline(graph, claims, false),
            Pass::Simplify => simplify::simplify(graph, target.max_concat_operands()),
            Pass::Cse => cse::cse(graph),
            Pass::OpenRemat => inline::inline(graph, claims, true),
            Pass::QuantizedMatmul => quantized_matmul::form_quantized_matmuls(graph, claims),
            Pass::Fp8Matmul => fp8_matmul::form_fp8_matmuls(graph, claims),
            Pass::CanonicalizeDot => canonicalize_dot::canonicalize_dots(graph, &target.matmul),
            Pass::SplitReduction => split_reduction::split_reductions(graph, &target.split_reduction),
            Pass::RematerializeCheap => Ok(crate::matmul_operands::recompute(graph, target)),
        }
    }
}

/// Rebuilds a graph: `rule` creates the replacement of each node from its new operands; value types do not change.
pub(crate) fn rewrite_graph(
    graph: &Graph,
    mut rule: impl FnMut(&mut Builder, &Node, &[Value]) -> Result<Values>,
) -> Result<Graph> {
    let (into, args) = graph.with_inputs_of();
    let mut b = Builder { graph: into, ..Builder::new() };
    let outs = graph.inline_with(&args, |node, operands| {
        b.loc = node.loc.clone();
        rule(&mut b, node, operands)
    })?;
    Ok(b.finish(&outs))
}

/// Copies a node of `from`, with `f` applied to its sub-graphs.
pub(crate) fn copy_node(
    b: &mut Builder,
    from: &Graph,
    node: &Node,
    args: &[Value],
    f: &mut dyn FnMut(&Graph) -> Result<Graph>,
) -> Result<Values> {
    let op = map_bodies(&node.op, f)?;
    let loc = b.loc.clone();
    Ok(b.graph.push_like(from, node, op, args, loc))
}

/// Applies `f` to every sub-graph of an op that is executed directly.
fn map_bodies(op: &Op, f: &mut dyn FnMut(&Graph) -> Result<Graph>) -> Result<Op> {
    Ok(match op {
        Op::Scan(s) => {
            let mut s = s.clone();
            s.body = Arc::new(f(&s.body)?);
            s.into()
        }
        Op::While(w) => {
            let mut w = w.clone();
            w.cond = Arc::new(f(&w.cond)?);
            w.body = Arc::new(f(&w.body)?);
            w.into()
        }
        Op::Cond(c) => {
            let mut c = c.clone();
            for b in &mut c.branches {
                *b = Arc::new(f(b)?);
            }
            c.into()
        }
        Op::Remat(r) => {
            let mut r = r.clone();
            r.body = Arc::new(f(&r.body)?);
            r.into()
        }
        other => other.clone(),
    })
}
