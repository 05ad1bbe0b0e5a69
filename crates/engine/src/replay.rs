//! Finding the line that made a NaN: what ran is run again in the interpreter, op by op.

use crate::engine::{Engine, Shared, download};
use crate::error::{Error, Result};
use crate::node::{Node, Work};
use crate::storage::Stored;
use ir::{Def, Graph, Literal, Loc, interp};
use std::sync::atomic::Ordering;

impl Engine {
    /// Whether every result is looked at, and a NaN out of operands without any stops the execution with the line that made
    /// it. Slow: for finding a fault.
    pub fn detect_nan(&self, on: bool) {
        self.shared.detect_nan.store(on, Ordering::Relaxed);
    }
}

fn has_nan(l: &Literal) -> bool {
    l.ty().dtype.is_float() && l.scalars().any(|s| s.to_f64().is_nan())
}

impl Shared {
    pub(crate) fn detects_nan(&self) -> bool {
        self.detect_nan.load(Ordering::Relaxed)
    }

    fn fetch_all(&self, values: &[Stored]) -> compiler::Result<Vec<Literal>> {
        values.iter().map(|v| download(&self.dense(v)?)).collect()
    }

    /// An error if a node made a NaN from numbers.
    pub(crate) fn look_for_nan(&self, node: &Node, args: &[Stored], outs: &[Stored]) -> Result<()> {
        let fail = |cause| Error::KernelExecution { op: node.name().to_string(), at: node.at.clone(), cause };
        if !self.fetch_all(outs).map_err(fail)?.iter().any(has_nan) {
            return Ok(());
        }
        let inputs = self.fetch_all(args).map_err(fail)?;
        if inputs.iter().any(has_nan) {
            return Ok(());
        }
        let (op, at, replayed) = match &node.work {
            Work::Op(op) => {
                let again = interp::eval(op, &inputs, &node.types);
                (node.name().to_string(), node.at.clone(), again.is_ok_and(|outs| outs.iter().any(has_nan)))
            }
            Work::Call(call, _) => match culprit(&call.body, &inputs) {
                Some((op, at)) => (op, at, true),
                None => (node.name().to_string(), node.at.clone(), false),
            },
            _ => (node.name().to_string(), node.at.clone(), false),
        };
        Err(Error::NanProduced { op, at, replayed })
    }
}

/// The first op of a graph that gives a NaN for numbers.
fn culprit(graph: &Graph, inputs: &[Literal]) -> Option<(String, Loc)> {
    let mut values: Vec<Option<Literal>> = vec![None; graph.num_values()];
    for (v, l) in graph.inputs().iter().zip(inputs) {
        values[v.0 as usize] = Some(l.clone());
    }
    for node in graph.nodes() {
        let args: Vec<Literal> = node.args.iter().map(|v| values[v.0 as usize].clone()).collect::<Option<_>>()?;
        let types: Vec<ir::Type> = node.outs.iter().map(|v| graph.ty(*v).clone()).collect();
        let outs = interp::eval(&node.op, &args, &types).ok()?;
        if outs.iter().any(has_nan) && !args.iter().any(has_nan) {
            return Some((node.op.name().to_string(), node.loc.clone()));
        }
        for (v, l) in node.outs.iter().zip(outs) {
            debug_assert!(matches!(graph.def(*v), Def::Node(..)));
            values[v.0 as usize] = Some(l);
        }
    }
    None
}
