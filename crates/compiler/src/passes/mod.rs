//! Graph → Graph passes of the compiler, each in its own file.

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

/// A pass, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Composites that the backend doesn't claim become their meaning; rematerialised bodies stay closed.
    Inline,
    /// Equations that hold for every number.
    Simplify,
    /// Equal nodes become one.
    Cse,
    /// Rematerialised bodies are opened: from here on nothing is merged.
    OpenRemat,
    /// Products with packed weights become one op, where the backend has it.
    QuantizedMatmul,
    /// Products of numbers rounded to 8 bits become one op, where the backend has it.
    Fp8Matmul,
    /// Contractions get their axes in order.
    CanonicalizeDot,
    /// Long reductions go through partial results.
    SplitReduction,
    /// Distant readers of cheap values get copies of their own.
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

    /// The pass of a name.
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

    /// Runs it.
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

/// The graph as `rule` writes its nodes, given their operands; each value has the type that it had.
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

/// A node of `from` as it is, but for its sub-graphs, of which `f` makes others.
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

/// The op with every sub-graph that runs as such replaced by `f` of it.
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
