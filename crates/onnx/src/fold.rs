//! A builder with constant folding: ops on small constants become constants, so that shape arithmetic is evaluated during import.

use ir::graph::{Def, Value, Values};
use ir::ops::Const;
use ir::{Builder, GraphBuilder, Literal, Op, Result, Type, interp};
use std::collections::HashMap;

/// Constants of more elements are not folded.
const MAX_FOLDED_ELEMENTS: usize = 1024;
/// Values of more elements are not computed during import.
const MAX_COMPUTED_ELEMENTS: usize = 1 << 22;
/// Maximum number of elements computed per request.
const MAX_FOLD_WORK: usize = 1 << 26;

/// A graph under construction with the known values.
#[derive(Default)]
pub(crate) struct FoldingBuilder {
    pub(crate) b: Builder,
    /// Values of constants, and values computed from them.
    known: HashMap<Value, Literal>,
    /// Values of parameters: used where a shape depends on them; otherwise they stay inputs.
    pub(crate) parameters: HashMap<Value, Literal>,
}

/// Why a value is unknown.
pub(crate) enum NotConstant {
    /// It depends on these inputs of the graph.
    Inputs(Vec<Value>),
    /// Its computation exceeds the limits.
    TooLarge,
}

impl FoldingBuilder {
    /// The value of a constant.
    pub(crate) fn constant_of(&self, v: Value) -> Option<&Literal> {
        self.known.get(&v)
    }

    /// The value of anything that depends only on constants and parameters; `outer` resolves inputs.
    pub(crate) fn value_of(
        &mut self,
        v: Value,
        outer: &mut dyn FnMut(Value) -> Option<Literal>,
    ) -> std::result::Result<Literal, NotConstant> {
        if let Some(x) = self.known.get(&v) {
            return Ok(x.clone());
        }
        let graph = &self.b.graph;
        let (mut todo, mut nodes, mut unknown) = (vec![v], Vec::new(), Vec::new());
        let mut seen = std::collections::HashSet::new();
        let mut values: HashMap<Value, Literal> = HashMap::new();
        while let Some(v) = todo.pop() {
            if !seen.insert(v) {
                continue;
            }
            if let Some(x) = self.known.get(&v).or_else(|| self.parameters.get(&v)) {
                values.insert(v, x.clone());
                continue;
            }
            match graph.def(v) {
                Def::Input(_) => match outer(v) {
                    Some(x) => drop(values.insert(v, x)),
                    None => unknown.push(v),
                },
                Def::Node(n, _) => {
                    nodes.push(n);
                    todo.extend(graph.nodes()[n as usize].args.iter().copied());
                }
            }
        }
        if !unknown.is_empty() {
            return Err(NotConstant::Inputs(unknown));
        }
        nodes.sort_unstable();
        nodes.dedup();
        let mut effort = 0usize;
        for n in nodes {
            let node = &graph.nodes()[n as usize];
            let types: Vec<Type> = node.outs.iter().map(|&o| graph.ty(o).clone()).collect();
            effort = types.iter().fold(effort, |sum, t| sum.saturating_add(t.numel()));
            if types.iter().any(|t| t.numel() > MAX_COMPUTED_ELEMENTS) || effort > MAX_FOLD_WORK {
                return Err(NotConstant::TooLarge);
            }
            let args: Vec<Literal> = node.args.iter().filter_map(|a| values.get(a).cloned()).collect();
            if args.len() != node.args.len() {
                return Err(NotConstant::TooLarge);
            }
            let outs = interp::eval(&node.op, &args, &types).map_err(|_| NotConstant::TooLarge)?;
            values.extend(node.outs.iter().copied().zip(outs));
        }
        let found = values.remove(&v).ok_or(NotConstant::TooLarge)?;
        self.known.insert(v, found.clone());
        Ok(found)
    }

    /// The results of an op on constants, if it is small enough to be folded.
    fn fold(&self, op: &Op, args: &[Value]) -> Option<Vec<Literal>> {
        // A broadcast of a float is more compact than many equal floats; bodies may run for long.
        let computed = match op {
            Op::Broadcast(_) => args.iter().all(|&a| !self.b.graph.ty(a).dtype.is_float()),
            Op::Iota(i) => i.dtype.is_int(),
            Op::Const(_) | Op::Scan(_) | Op::While(_) | Op::Cond(_) | Op::Call(_) => false,
            Op::Composite(_) | Op::CustomLinear(_) | Op::Remat(_) => false,
            _ => true,
        };
        if !computed {
            return None;
        }
        let args: Vec<Literal> = args.iter().map(|a| self.known.get(a).cloned()).collect::<Option<_>>()?;
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let outs = op.infer(&types).ok()?;
        if types.iter().chain(&outs).any(|t| t.numel() > MAX_FOLDED_ELEMENTS) {
            return None;
        }
        interp::eval(op, &args, &outs).ok()
    }
}

impl GraphBuilder for FoldingBuilder {
    fn emit(&mut self, op: Op, args: &[Value]) -> Result<Values> {
        if let Some(found) = self.fold(&op, args) {
            let constant = |x: Literal| self.emit(Const(x).into(), &[]).map(|v| v[0]);
            return found.into_iter().map(constant).collect();
        }
        let literal = if let Op::Const(c) = &op { Some(c.0.clone()) } else { None };
        let outs = self.b.emit(op, args)?;
        if let Some(x) = literal {
            self.known.insert(outs[0], x);
        }
        Ok(outs)
    }

    fn ty(&self, v: Value) -> Type {
        self.b.ty(v)
    }
}
