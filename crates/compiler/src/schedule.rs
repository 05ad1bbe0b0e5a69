//! Lowers a graph to steps: fusion units become kernels, matrix products, library calls and loops over shared buffers.

use crate::backend::OpPlacement;
use crate::explain::Explanation;
use crate::fuse::{self, FusionPlan, FusionUnit, Group, Lowered, Param, ScanParam};
use crate::matmul_operands::{FusedOperands, matmul, memory_operand, prologues, read, readers};
use crate::program::*;
use crate::target::Target;
use crate::{Error, Result};
use ir::ops::{Dot, Scan, While};
use ir::{Graph, Literal, Node, Op, Type, Value};
use smallvec::SmallVec;
use std::sync::Arc;

/// Collects the buffers and steps of one program.
pub(crate) struct Lowering<'t> {
    pub(crate) target: &'t Target,
    /// Where library ops run.
    pub(crate) placement: &'t dyn Fn(&Op, &[Type]) -> OpPlacement,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) levels: usize,
    /// Inputs and the outputs that are written over them; only for the outermost graph.
    pub(crate) donated_pairs: Vec<(Value, Value)>,
    pub(crate) computed_operands: Option<usize>,
    /// Notes on fusion decisions, if they were requested.
    pub(crate) explanation: Option<Explanation>,
}

impl Lowering<'_> {
    pub(crate) fn buffer(&mut self, ty: Type, class: BufferKind) -> BufferId {
        self.buffers.push(Buffer { ty, kind: class, offset: 0, lifetime: None });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Appends the steps that compute a graph from `inputs`. `dests` states where the outputs are written.
    pub(crate) fn graph(
        &mut self,
        graph: &Graph,
        inputs: &[BufferSlice],
        dests: &[BufferSlice],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let computed = prologues(graph, self.target, self.computed_operands);
        let base = |node: &Node, i: usize| memory_operand(graph, &computed, node, i);
        let replaced = std::mem::take(&mut self.donated_pairs);
        let FusionPlan { order, in_memory, unfused } = fuse::plan_fusion(graph, &base, &replaced, self.target);
        let readers = readers(graph, &order, &in_memory, &base);
        let mut places: Vec<Option<BufferSlice>> = vec![None; graph.num_values()];
        for (v, p) in graph.inputs().iter().zip(inputs) {
            places[v.0 as usize] = Some(p.clone());
        }
        for node in graph.nodes() {
            if let Op::Const(c) = &node.op
                && in_memory[node.outs[0].0 as usize]
                && fuse::uniform(&c.0).is_none()
            {
                places[node.outs[0].0 as usize] = Some(BufferSlice::of(self.constant(&c.0)));
            }
        }
        for (v, d) in graph.outputs().iter().zip(dests) {
            let slot = &mut places[v.0 as usize];
            if slot.is_none() {
                *slot = Some(d.clone());
            }
        }
        let mut k = 0;
        while k < order.len() {
            match &order[k] {
                FusionUnit::Group(g) => {
                    if let Some(e) = &mut self.explanation {
                        e.group(graph, g, &in_memory, &unfused, steps.len());
                    }
                    self.group(graph, g, &in_memory, &mut places, steps)?;
                }
                FusionUnit::Standalone(n) => {
                    let node = &graph.nodes()[*n];
                    // A matrix product whose only consumer is the next unit runs that unit as an epilogue on tiles in cache.
                    let mut why = None;
                    if let Op::Dot(dot) = &node.op {
                        let read_by = readers.get(&node.outs[0]).map_or(&[][..], |r| r);
                        why = match order.get(k + 1) {
                            _ if graph.outputs().contains(&node.outs[0]) => {
                                Some("its result is a result of the program")
                            }
                            _ if read_by.len() > 1 => Some("several steps read its result"),
                            Some(FusionUnit::Group(g)) if read_by == [k + 1] => {
                                let at = steps.len();
                                let fused = FusedOperands { computed: &computed, in_memory: &in_memory };
                                if self.dot_with_epilogue(graph, dot, node, g, fused, &mut places, steps)? {
                                    if let Some(e) = &mut self.explanation {
                                        e.explain_standalone(graph, node, None, at);
                                        e.group(graph, g, &in_memory, &unfused, at);
                                    }
                                    k += 2;
                                    continue;
                                }
                                Some("what reads its result needs more than a tile of it")
                            }
                            _ => Some("what reads its result runs later, or takes it whole"),
                        };
                    }
                    if let Some(e) = &mut self.explanation {
                        let library = !matches!(node.op, Op::Dot(_) | Op::Scan(_) | Op::While(_) | Op::Cond(_));
                        let types: Vec<Type> = node.args.iter().map(|a| graph.ty(*a).clone()).collect();
                        let on_host = library && (self.placement)(&node.op, &types) == OpPlacement::HostFallback;
                        let on_host = on_host.then(|| "the device, which lacks it: it runs on the host".to_string());
                        let unfused = why.map(|w| format!("what follows: {w}")).or(on_host);
                        e.explain_standalone(graph, node, unfused, steps.len());
                        e.path.push(steps.len().to_string());
                    }
                    let fused = FusedOperands { computed: &computed, in_memory: &in_memory };
                    self.lower_standalone(graph, node, fused, &mut places, level, steps)?;
                    if let Some(e) = &mut self.explanation {
                        e.path.pop();
                    }
                }
            }
            k += 1;
        }
        for (v, d) in graph.outputs().iter().zip(dests) {
            let from = buffer_slice_of(&places, *v)?;
            if from != *d {
                steps.push(Step::Copy { from, to: d.clone(), bytes: graph.ty(*v).bytes() });
            }
        }
        Ok(())
    }

    fn constant(&mut self, l: &Literal) -> BufferId {
        let same = |b: &Buffer| matches!(&b.kind, BufferKind::Constant(c) if c == l);
        match self.buffers.iter().position(same) {
            Some(i) => BufferId(i as u32),
            None => self.buffer(l.ty().clone(), BufferKind::Constant(l.clone())),
        }
    }

    /// The buffer slice of a value, allocated now if there is none.
    fn materialize(&mut self, graph: &Graph, v: Value, places: &mut [Option<BufferSlice>]) -> BufferSlice {
        match &places[v.0 as usize] {
            Some(p) => p.clone(),
            None => {
                let p = BufferSlice::of(self.buffer(graph.ty(v).clone(), BufferKind::Activation));
                places[v.0 as usize] = Some(p.clone());
                p
            }
        }
    }

    fn group(
        &mut self,
        graph: &Graph,
        group: &Group,
        in_memory: &[bool],
        places: &mut [Option<BufferSlice>],
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let lowered = fuse::lower(graph, group, &|v| fuse::source(in_memory, group, v), self.target)
            .map_err(|e| Error::Internal(format!("a fused group can't be written as a kernel: {e:?}")))?;
        // A value without elements needs a buffer, though no kernel writes it.
        for r in group.roots.iter().filter(|r| r.stored) {
            self.materialize(graph, r.value, places);
        }
        for Lowered { kernel, params, parallel, .. } in lowered {
            let args = self.kernel_args(graph, &params, places)?;
            steps.push(Step::Kernel { kernel: Arc::new(kernel), args, parallel });
        }
        Ok(())
    }

    fn kernel_args(
        &mut self,
        graph: &Graph,
        params: &[Param],
        places: &mut [Option<BufferSlice>],
    ) -> Result<Vec<KernelArg>> {
        Ok(params
            .iter()
            .map(|p| match p {
                Param::Value(v) => KernelArg::Place(self.materialize(graph, *v, places)),
                Param::Scratch(n) => KernelArg::Scratch(*n),
            })
            .collect())
    }

    fn lower_standalone(
        &mut self,
        graph: &Graph,
        node: &Node,
        fused: FusedOperands<'_>,
        places: &mut [Option<BufferSlice>],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        match &node.op {
            Op::Dot(dot) => {
                let (shape, a, b) = matmul(graph, dot, node, fused, places, self.target)?;
                let c = self.materialize(graph, node.outs[0], places);
                steps.push(Step::Matmul { shape: Box::new(shape), a, b, c: Some(c), epilogue: None });
                Ok(())
            }
            Op::Scan(scan) => self.scan(graph, scan, node, places, level, steps),
            Op::While(w) => self.while_loop(graph, w, node, places, level, steps),
            Op::Cond(c) => {
                let index = read(graph, node, 0, places)?;
                let inputs: Vec<BufferSlice> =
                    (1..node.args.len()).map(|i| read(graph, node, i, places)).collect::<Result<_>>()?;
                let dests: Vec<BufferSlice> = node.outs.iter().map(|&v| self.materialize(graph, v, places)).collect();
                let mut branches = Vec::with_capacity(c.branches.len());
                for b in &c.branches {
                    let mut steps = Vec::new();
                    self.graph(b, &inputs, &dests, level, &mut steps)?;
                    branches.push(steps);
                }
                steps.push(Step::Branch { index, branches });
                Ok(())
            }
            op => {
                let mut args = Vec::with_capacity(node.args.len());
                for (i, &a) in node.args.iter().enumerate() {
                    args.push((read(graph, node, i, places)?, graph.ty(a).clone()));
                }
                let outs =
                    node.outs.iter().map(|&v| (self.materialize(graph, v, places), graph.ty(v).clone())).collect();
                steps.push(Step::Library { op: Box::new(op.clone()), args, outs });
                Ok(())
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call site, which has all of it at hand")]
    fn dot_with_epilogue(
        &mut self,
        graph: &Graph,
        dot: &Dot,
        node: &Node,
        group: &Group,
        fused: FusedOperands<'_>,
        places: &mut [Option<BufferSlice>],
        steps: &mut Vec<Step>,
    ) -> Result<bool> {
        let in_memory = fused.in_memory;
        let rank = (dot.lhs_batch.len(), dot.lhs_free(graph.ty(node.args[0]).rank()).len());
        let Ok(lowered) =
            fuse::lower_epilogue(graph, group, node.outs[0], rank, &|v| fuse::source(in_memory, group, v), self.target)
        else {
            return Ok(false);
        };
        let (shape, a, b) = matmul(graph, dot, node, fused, places, self.target)?;
        let mut args = Vec::with_capacity(lowered.params.len());
        for p in &lowered.params[1..] {
            match p {
                Param::Value(v) => args.push(self.materialize(graph, *v, places)),
                Param::Scratch(_) => return Ok(false),
            }
        }
        let epilogue =
            Some(Epilogue { kernel: Arc::new(lowered.kernel), args, needs_full_rows: !group.reduced_axes.is_empty() });
        steps.push(Step::Matmul { shape: Box::new(shape), a, b, c: None, epilogue });
        Ok(true)
    }

    fn scan(
        &mut self,
        graph: &Graph,
        scan: &Scan,
        node: &Node,
        places: &mut [Option<BufferSlice>],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        if self.scan_kernel(graph, scan, node, places, steps)? {
            return Ok(());
        }
        let first = scan.bounded as usize;
        let operands = &node.args[first..];
        let (nc, nk) = (scan.consts, scan.carries);
        let mut inputs = Vec::with_capacity(operands.len());
        for i in 0..nc {
            inputs.push(read(graph, node, first + i, places)?);
        }
        let carried = self.double_buffers(graph, node, first + nc, &node.outs[..nk], places, level, steps)?;
        inputs.extend(carried.current);
        let mut dests = carried.next;
        for (i, &v) in operands.iter().enumerate().skip(nc + nk) {
            let mut p = read(graph, node, first + i, places)?;
            p.strides.push((level, graph.ty(v).unbatched().bytes() as i64));
            inputs.push(p);
        }
        let trip = match scan.bounded {
            true => TripCount::Bounded { bound: scan.length, count: read(graph, node, 0, places)? },
            false => TripCount::Exact(scan.length),
        };
        for &v in &node.outs[nk..] {
            let p = self.materialize(graph, v, places);
            if scan.bounded {
                steps.push(Step::Zero { to: p.clone(), bytes: graph.ty(v).bytes() });
            }
            let mut slice = p;
            slice.strides.push((level, graph.ty(v).unbatched().bytes() as i64));
            dests.push(slice);
        }
        self.levels = self.levels.max(level + 1);
        let mut body = Vec::new();
        self.graph(&scan.body, &inputs, &dests, level + 1, &mut body)?;
        steps.push(Step::Loop(Box::new(LoopStep {
            depth: level,
            trip_count: trip,
            reverse: scan.reverse,
            body,
            copies_after: carried.copies_after,
        })));
        Ok(())
    }
}

impl Lowering<'_> {
    fn while_loop(
        &mut self,
        graph: &Graph,
        w: &While,
        node: &Node,
        places: &mut [Option<BufferSlice>],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let (nc, nb) = (w.cond_consts, w.body_consts);
        let consts: Vec<BufferSlice> = (0..nc + nb).map(|i| read(graph, node, i, places)).collect::<Result<_>>()?;
        let carried = self.double_buffers(graph, node, nc + nb, &node.outs, places, level, steps)?;
        self.levels = self.levels.max(level + 1);
        let flag = BufferSlice::of(self.buffer(Type::scalar(ir::DType::Bool), BufferKind::Activation));
        let mut test = Vec::new();
        let inputs: Vec<BufferSlice> = consts[..nc].iter().chain(&carried.current).cloned().collect();
        self.graph(&w.cond, &inputs, std::slice::from_ref(&flag), level + 1, &mut test)?;
        let mut body = Vec::new();
        let inputs: Vec<BufferSlice> = consts[nc..].iter().chain(&carried.current).cloned().collect();
        self.graph(&w.body, &inputs, &carried.next, level + 1, &mut body)?;
        let trip = TripCount::While { test, flag };
        steps.push(Step::Loop(Box::new(LoopStep {
            depth: level,
            trip_count: trip,
            reverse: false,
            body,
            copies_after: carried.copies_after,
        })));
        Ok(())
    }

    /// Allocates two buffers for each carried value, which swap roles in each iteration. The initial values are the operands
    /// from `init` on.
    #[expect(clippy::too_many_arguments, reason = "what a loop is, at its two call sites")]
    fn double_buffers(
        &mut self,
        graph: &Graph,
        node: &Node,
        init: usize,
        outs: &[Value],
        places: &mut [Option<BufferSlice>],
        level: usize,
        steps: &mut Vec<Step>,
    ) -> Result<Carries> {
        let mut c = Carries { current: Vec::new(), next: Vec::new(), copies_after: Vec::new() };
        for (i, &out) in outs.iter().enumerate() {
            let ty = graph.ty(node.args[init + i]).clone();
            let (even, odd) =
                (self.buffer(ty.clone(), BufferKind::Activation), self.buffer(ty.clone(), BufferKind::Activation));
            let from = read(graph, node, init + i, places)?;
            steps.push(Step::Copy { from, to: BufferSlice::of(even), bytes: ty.bytes() });
            let alternating = |a, b| BufferSlice {
                buffer: BufferRef::DoubleBuffered(level, a, b),
                offset: 0,
                strides: SmallVec::new(),
            };
            c.current.push(alternating(even, odd));
            c.next.push(alternating(odd, even));
            c.copies_after.push((alternating(even, odd), self.materialize(graph, out, places), ty.bytes()));
        }
        Ok(c)
    }
}

impl Lowering<'_> {
    /// A scan as one kernel, if its body is elementwise.
    fn scan_kernel(
        &mut self,
        graph: &Graph,
        scan: &Scan,
        node: &Node,
        places: &mut [Option<BufferSlice>],
        steps: &mut Vec<Step>,
    ) -> Result<bool> {
        let Ok((lowered, params)) = fuse::lower_scan(scan, self.target) else { return Ok(false) };
        let first = scan.bounded as usize;
        let mut args = Vec::with_capacity(params.len());
        for p in params {
            args.push(match p {
                ScanParam::Count => KernelArg::Place(read(graph, node, 0, places)?),
                ScanParam::Operand(i) => KernelArg::Place(read(graph, node, first + i, places)?),
                ScanParam::Init(k) => KernelArg::Place(read(graph, node, first + scan.consts + k, places)?),
                ScanParam::Result(k) => KernelArg::Place(self.materialize(graph, node.outs[k], places)),
                ScanParam::Scratch(n) => KernelArg::Scratch(n),
            });
        }
        if scan.bounded {
            for &v in &node.outs[scan.carries..] {
                let to = self.materialize(graph, v, places);
                steps.push(Step::Zero { to, bytes: graph.ty(v).bytes() });
            }
        }
        steps.push(Step::Kernel { kernel: Arc::new(lowered.kernel), args, parallel: lowered.parallel });
        Ok(true)
    }
}

/// The buffers of a loop's carried values and of their next values, and the copies of the final values.
struct Carries {
    current: Vec<BufferSlice>,
    next: Vec<BufferSlice>,
    copies_after: Vec<(BufferSlice, BufferSlice, usize)>,
}

pub(crate) fn buffer_slice_of(places: &[Option<BufferSlice>], v: Value) -> Result<BufferSlice> {
    places[v.0 as usize].clone().ok_or_else(|| Error::Internal(format!("%{} is read before it is computed", v.0)))
}
