//! Debugging: NaN checks, and a list of the live tensors.

use crate::engine::{Engine, EngineDevice, download};
use crate::error::Error;
use crate::intern::Ty;
use crate::kernels::{self, KernelKind};
use crate::node::{Node, NodeKind};
use crate::storage::StoredValue;
use crate::{BaseId, engine::EngineShared};
use compiler::Bindings;
use ir::{DType, Graph, Literal, Loc, Op, Type};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static NANS: AtomicBool = AtomicBool::new(false);

/// Enables a check of every computed float. The first op that produces NaN from operands without NaN is an error that names its
/// source line, also inside compiled functions. The check costs time, so it is off by default.
pub fn set_debug_nans(on: bool) {
    NANS.store(on, Ordering::Relaxed);
}

/// Whether values are checked; if so, execution takes the path with checks.
pub(crate) fn is_debug_active() -> bool {
    NANS.load(Ordering::Relaxed)
}

fn has_nan(literal: &Literal) -> bool {
    literal.ty().dtype.is_float() && literal.scalars().any(|s| s.to_f64().is_nan())
}

impl EngineShared {
    fn literals(&self, values: &[StoredValue]) -> Option<Vec<Literal>> {
        values.iter().map(|v| download(&self.dense(v).ok()?).ok()).collect()
    }

    /// The error of a node that produced NaN from operands without NaN, if checks are enabled.
    pub(crate) fn check_nan(&self, node: &Node, args: &[StoredValue], outs: &[StoredValue]) -> Option<Error> {
        let is_float = |t: &Ty| t.dtype.is_float() && t.dtype != DType::F8E4M3;
        if !NANS.load(Ordering::Relaxed) || !node.types().iter().any(is_float) {
            return None;
        }
        let outs = self.literals(outs)?;
        let args = if outs.iter().any(has_nan) { self.literals(args)? } else { return None };
        if args.iter().any(has_nan) {
            return None;
        }
        let (op, at) = match &node.work {
            NodeKind::Call(variant) => {
                first_nan_op(&variant.graph, &args).unwrap_or_else(|| ("a compiled call".into(), Loc::Unknown))
            }
            _ => (node.name().to_string(), node.at.clone()),
        };
        let at = if at == Loc::Unknown { node.at.clone() } else { at };
        Some(Error::NanProduced { op, at })
    }
}

impl EngineShared {
    /// Finds the first op of a failed region that also fails when it runs alone on operands computed by the interpreter.
    pub(crate) fn find_failing_op(&self, graph: &Graph, args: &[StoredValue], device: usize) -> Option<(String, Loc)> {
        self.failing(graph, &self.literals(args)?, device)
    }

    fn failing(&self, graph: &Graph, inputs: &[Literal], device: usize) -> Option<(String, Loc)> {
        let mut values: Vec<Option<Literal>> = vec![None; graph.num_values()];
        for (&v, x) in graph.inputs().iter().zip(inputs) {
            values[v.0 as usize] = Some(x.clone());
        }
        for node in graph.nodes() {
            let args: Vec<Literal> = node.args.iter().map(|a| values[a.0 as usize].clone()).collect::<Option<_>>()?;
            let types: Vec<Type> = node.outs.iter().map(|&v| graph.ty(v).clone()).collect();
            let outs = ir::interp::eval(&node.op, &args, &types).ok().filter(|_| self.runs(&node.op, &args, device));
            let Some(outs) = outs else {
                let inside = match &node.op {
                    Op::Call(call) => self.failing(&call.body, &args, device),
                    Op::Remat(r) => self.failing(&r.body, &args, device),
                    _ => None,
                };
                return inside.or_else(|| Some((node.op.name().to_string(), node.loc.clone())));
            };
            for (&v, out) in node.outs.iter().zip(outs) {
                values[v.0 as usize] = Some(out);
            }
        }
        None
    }

    /// Whether a device runs an op without an error.
    fn runs(&self, op: &Op, args: &[Literal], device: usize) -> bool {
        let EngineDevice { pool, kernels } = &self.devices[device];
        let run = || {
            let mut stored = Vec::new();
            for a in args {
                let storage = pool.acquire(a.bytes().len())?;
                storage.buffer().write(0, a.bytes())?;
                stored.push(StoredValue::dense(storage, Arc::new(a.ty().clone())));
            }
            let kernel = kernels.program(pool, &KernelKind::Op(Arc::new(op.clone())), &stored)?;
            let mut bindings = Bindings { inputs: Vec::new(), outputs: Vec::new() };
            kernels::launch(&*kernel.exe, pool, &kernel.types, &stored, &[], &mut bindings)
        };
        run().is_ok()
    }
}

/// The first op of a graph that produces NaN from operands without NaN, according to the interpreter.
fn first_nan_op(graph: &Graph, inputs: &[Literal]) -> Option<(String, Loc)> {
    let mut values: Vec<Option<Literal>> = vec![None; graph.num_values()];
    for (&v, x) in graph.inputs().iter().zip(inputs) {
        values[v.0 as usize] = Some(x.clone());
    }
    for node in graph.nodes() {
        let args: Vec<Literal> = node.args.iter().map(|a| values[a.0 as usize].clone()).collect::<Option<_>>()?;
        let types: Vec<Type> = node.outs.iter().map(|&v| graph.ty(v).clone()).collect();
        let outs = ir::interp::eval(&node.op, &args, &types).ok()?;
        if outs.iter().any(has_nan) && !args.iter().any(has_nan) {
            let inside = match &node.op {
                Op::Call(call) => first_nan_op(&call.body, &args),
                Op::Remat(r) => first_nan_op(&r.body, &args),
                _ => None,
            };
            return inside.or_else(|| Some((node.op.name().to_string(), node.loc.clone())));
        }
        for (&v, out) in node.outs.iter().zip(outs) {
            values[v.0 as usize] = Some(out);
        }
    }
    None
}

/// A live tensor's memory, allocated or still to be computed.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveTensor {
    /// The base: tensors that share memory have the same base.
    pub base: BaseId,
    /// The dtype and shape.
    pub ty: Type,
    /// The source line that created it.
    pub created_at: Loc,
    /// The number of tensors that refer to it.
    pub num_handles: usize,
}

impl Engine {
    /// Every base that a tensor refers to.
    pub fn live_tensors(&self) -> Vec<LiveTensor> {
        self.shared.drain_finalize_queue();
        let state = self.shared.state();
        let live = |(base, b): (BaseId, &crate::BaseEntry)| LiveTensor {
            base,
            ty: (*b.ty).clone(),
            created_at: b.created_at.clone(),
            num_handles: b.pins,
        };
        state.bases.iter().map(live).collect()
    }

    /// A device's backend by its number; the first device if the number is out of range.
    pub fn backend(&self, device: usize) -> Arc<dyn compiler::Backend> {
        let devices = &self.shared.devices;
        devices.get(device).unwrap_or(&devices[0]).pool.backend.clone()
    }

    /// The names of the devices, by device number.
    pub fn devices(&self) -> Vec<String> {
        self.shared.devices.iter().map(|d| d.pool.backend.name()).collect()
    }
}
