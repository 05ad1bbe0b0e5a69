//! `scan`: a loop with carries and stacked outputs, differentiable in both modes.
//!
//! Operands are `[count,] consts.., carries.., xs..`; the body maps `consts.., carries.., x..` to `carries.., y..`; results
//! are `carries.., ys..`. Each `xs` and each `ys` has a leading axis of `length`.
//!
//! A *bounded* scan has an additional first operand, an i32 `count`: it runs `clamp(count, 0, length)` iterations, over
//! `xs[0..count]`, and the remaining `ys` are zero. So one compiled program is valid for every length up to its bound.

use super::*;
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::scalar::Compare;

/// The carries that reverse mode stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanCheckpoint {
    /// All residuals of the backward pass, for every iteration.
    All,
    /// The carries of every n-th iteration; the iterations in between are recomputed.
    EveryN(usize),
}

impl ScanCheckpoint {
    /// About √n stored carries for n iterations.
    pub fn sqrt(length: usize) -> ScanCheckpoint {
        ScanCheckpoint::EveryN(((length as f64).sqrt().ceil() as usize).max(1))
    }
}

/// `scan([count,] consts.., carries.., xs..)`: a loop over a leading axis. With `bounded` it runs `count` iterations; with
/// `checkpoint` n, backward stores the carries of every n-th iteration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// The body, one iteration.
    pub body: Arc<Graph>,
    /// The number of operands that are constant for all iterations.
    pub consts: usize,
    /// The number of carries.
    pub carries: usize,
    /// The number of iterations, or its bound.
    pub length: usize,
    /// Whether it runs from the last index to the first.
    pub reverse: bool,
    /// Whether the first operand is the number of iterations.
    pub bounded: bool,
    /// What reverse mode stores.
    pub checkpoint: ScanCheckpoint,
}

impl Scan {
    /// A forward scan that stores all residuals for backward.
    pub fn over(consts: usize, carries: usize, length: usize, body: Graph) -> Scan {
        Scan {
            body: Arc::new(body),
            consts,
            carries,
            length,
            reverse: false,
            bounded: false,
            checkpoint: ScanCheckpoint::All,
        }
    }

    /// The position of the first constant among the operands.
    fn first(&self) -> usize {
        self.bounded as usize
    }

    /// The body's input types for these operands.
    fn body_types(&self, args: &[Type]) -> std::result::Result<Vec<Type>, InferError> {
        let carried = self.consts + self.carries;
        let mut types = Vec::with_capacity(args.len());
        for (i, t) in args.iter().enumerate() {
            if i < carried {
                types.push(t.clone());
            } else if t.shape.first() == Some(&self.length) {
                types.push(t.unbatched());
            } else {
                return Err(InferError::other(format!(
                    "scanned operand {i} is {t}, but needs a first axis of {}",
                    self.length
                )));
            }
        }
        Ok(types)
    }

    fn with_body(&self, consts: usize, carries: usize, body: Graph) -> Scan {
        Scan { body: Arc::new(body), consts, carries, checkpoint: ScanCheckpoint::All, ..self.clone() }
    }

    /// The same loop as an outer loop over chunks of `every` iterations that are recomputed in backward.
    fn chunked(&self, cx: &mut Builder, every: usize, x: &[Value]) -> Result<Vec<Value>> {
        let every = every.clamp(1, self.length.max(1));
        let chunks = self.length / every;
        let tail = self.length % every;
        let first = self.first();
        let (consts, rest) = x[first..].split_at(self.consts);
        let (init, xs) = rest.split_at(self.carries);
        let ys = self.body.outputs().len() - self.carries;
        let count = self.bounded.then(|| x[0]);
        let main_len = chunks * every;

        let run_tail = |cx: &mut Builder, carry: Vec<Value>| -> Result<Vec<Value>> {
            let mut args = Vec::new();
            if let Some(n) = count {
                args.push(offset_count(cx, n, main_len)?);
            }
            args.extend_from_slice(consts);
            args.extend(carry);
            for &v in xs {
                args.push(cx.slice_axis(v, 0, main_len, self.length)?);
            }
            let inner = Scan { length: tail, checkpoint: ScanCheckpoint::All, ..self.clone() };
            remat_of(cx, inner.into(), &args)
        };
        let run_main = |cx: &mut Builder, carry: Vec<Value>| -> Result<Vec<Value>> {
            let mut b = Builder::new();
            let mut args = Vec::new();
            let mut inner_args = Vec::new();
            if let Some(n) = count {
                args.push(n);
                inner_args.push(b.input(DType::I32, &[]));
            }
            for &v in consts.iter().chain(&carry) {
                args.push(v);
                let t = cx.ty(v);
                inner_args.push(b.graph.input(t));
            }
            let index = self.bounded.then(|| b.input(DType::I32, &[]));
            if self.bounded {
                args.push(cx.iota(DType::I32, &[chunks], 0)?);
            }
            for &v in xs {
                let t = cx.ty(v);
                let main = cx.slice_axis(v, 0, 0, main_len)?;
                let shape: Shape = [chunks, every].into_iter().chain(t.shape[1..].iter().copied()).collect();
                args.push(cx.reshape(main, &shape)?);
                inner_args.push(b.input(t.dtype, &shape[1..]));
            }
            if let Some(i) = index {
                let step = b.scale(i, every as f64)?;
                inner_args[0] = b.sub(inner_args[0], step)?;
            }
            let inner = Scan { length: every, checkpoint: ScanCheckpoint::All, ..self.clone() };
            let outs = remat_of(&mut b, inner.into(), &inner_args)?;
            let body = b.finish(&outs);
            let outer = Scan {
                body: Arc::new(body),
                consts: self.consts + first,
                carries: self.carries,
                length: chunks,
                reverse: self.reverse,
                bounded: false,
                checkpoint: ScanCheckpoint::All,
            };
            let mut outs = cx.emit(outer.into(), &args)?.to_vec();
            for v in &mut outs[self.carries..] {
                let t = cx.ty(*v);
                let shape: Shape = std::iter::once(main_len).chain(t.shape[2..].iter().copied()).collect();
                *v = cx.reshape(*v, &shape)?;
            }
            Ok(outs)
        };

        if tail == 0 {
            return run_main(cx, init.to_vec());
        }
        let (main, last) = if self.reverse {
            let last = run_tail(cx, init.to_vec())?;
            (run_main(cx, last[..self.carries].to_vec())?, last)
        } else {
            let main = run_main(cx, init.to_vec())?;
            let last = run_tail(cx, main[..self.carries].to_vec())?;
            (main, last)
        };
        let mut outs = if self.reverse { main[..self.carries].to_vec() } else { last[..self.carries].to_vec() };
        for k in self.carries..self.carries + ys {
            outs.push(cx.concat(&[main[k], last[k]], 0)?);
        }
        Ok(outs)
    }

    /// Computes values and tangents with one op.
    fn value_and_jvp(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<(Vec<Value>, Tangents)> {
        let first = self.first();
        let (nc, nk) = (self.consts, self.carries);
        let count_operand = self.bounded.then(|| x[0]);
        let (x, dx) = (&x[first..], &dx[first..]);
        let mut active: Vec<bool> = dx.iter().map(Option::is_some).collect();
        // A carry that has a tangent in some iteration has one in every iteration.
        let (body, out_active) = loop {
            let mut want = vec![false; self.body.outputs().len()];
            want[..nk].copy_from_slice(&active[nc..nc + nk]);
            let (body, out) = cx.jvp_of(&self.body, &active, &want)?;
            let grown = (0..nk).any(|i| out[i] && !active[nc + i]);
            if !grown {
                break (body, out);
            }
            for i in 0..nk {
                active[nc + i] |= out[i];
            }
        };
        // The inputs of the jvp are primals, then tangents; a scan needs consts, carries, xs.
        let n = self.body.inputs().len();
        let tangent_at: Vec<Option<usize>> = {
            let mut at = n;
            active
                .iter()
                .map(|&a| {
                    a.then(|| {
                        at += 1;
                        at - 1
                    })
                })
                .collect()
        };
        let groups = [0..nc, nc..nc + nk, nc + nk..n];
        let mut order = Vec::new();
        let mut args: Vec<Value> = Vec::new();
        for group in &groups {
            order.extend(group.clone());
            args.extend_from_slice(&x[group.clone()]);
            for i in group.clone().filter(|&i| active[i]) {
                order.extend(tangent_at[i]);
                args.push(match dx[i] {
                    Some(d) => d,
                    None => cx.full_like(x[i], 0.0)?,
                });
            }
        }
        let no = self.body.outputs().len();
        let out_at: Vec<Option<usize>> = {
            let mut at = no;
            out_active
                .iter()
                .map(|&a| {
                    a.then(|| {
                        at += 1;
                        at - 1
                    })
                })
                .collect()
        };
        let mut outs = Vec::new();
        for group in [0..nk, nk..no] {
            outs.extend(group.clone());
            outs.extend(group.filter_map(|i| out_at[i]));
        }
        let body = permute_interface(&body, &order, &outs)?;
        let count = |r: std::ops::Range<usize>| r.filter(|&i| active[i]).count();
        let scan = self.with_body(nc + count(0..nc), nk + count(nc..nc + nk), body);
        if let Some(n) = count_operand {
            args.insert(0, n);
        }
        let results = cx.emit(scan.into(), &args)?;
        let mut values = vec![Value(u32::MAX); no];
        let mut tangents = vec![None; no];
        for (place, &i) in outs.iter().enumerate() {
            if i < no {
                values[i] = results[place];
            } else {
                let k = out_at.iter().position(|&a| a == Some(i)).expect("each tangent output has its primal");
                tangents[k] = Some(results[place]);
            }
        }
        Ok((values, tangents))
    }
}

/// `count - done`, the number of iterations of a later chunk; the loop itself clamps it.
fn offset_count<B: GraphBuilder + ?Sized>(cx: &mut B, count: Value, done: usize) -> Result<Value> {
    cx.offset(count, -(done as f64))
}

/// Wraps `op` in a `Remat`.
fn remat_of<B: GraphBuilder + ?Sized>(cx: &mut B, op: Op, args: &[Value]) -> Result<Vec<Value>> {
    let mut b = Builder::new();
    let inputs: Vec<Value> = args.iter().map(|&v| b.graph.input(cx.ty(v))).collect();
    let outs = b.emit(op, &inputs)?;
    let body = b.finish(&outs);
    Ok(cx.emit(Remat::new(body).into(), args)?.to_vec())
}

/// Batches loops with separate counts: all run for the largest count, and a finished loop keeps its carries.
fn batch_counts(
    scan: &Scan,
    cx: &mut dyn GraphTransforms,
    x: &[Value],
    batched: &[bool],
    size: usize,
) -> Result<Vec<(Value, bool)>> {
    let (nc, nk) = (scan.consts, scan.carries);
    let mut b = Builder::new();
    let types = scan.body.input_types();
    let count = b.input(DType::I32, &[]);
    let mut inner: Vec<Value> = types[..nc + nk].iter().map(|t| b.graph.input(t.clone())).collect();
    let index = b.input(DType::I32, &[]);
    inner.extend(types[nc + nk..].iter().map(|t| b.graph.input(t.clone())));
    let running = b.compare(Compare::Lt, index, count)?;
    let outs = b.inline(&scan.body, &inner)?;
    let mut kept = Vec::with_capacity(outs.len());
    for (i, &new) in outs.iter().enumerate() {
        let ty = b.ty(new);
        let old = if i < nk { inner[nc + i] } else { b.zeros(&ty)? };
        let mask = b.splat(running, &ty.shape)?;
        kept.push(b.select(mask, new, old)?);
    }
    let masked = Scan { consts: nc + 1, ..scan.with_body(nc + 1, nk, b.finish(&kept)) };
    let longest = cx.reduce(ReduceKind::Max, x[0], &[0])?;
    let steps = cx.iota(DType::I32, &[scan.length], 0)?;
    let (mut args, mut flags) = (vec![longest, x[0]], vec![false, true]);
    args.extend_from_slice(&x[1..1 + nc + nk]);
    flags.extend_from_slice(&batched[1..1 + nc + nk]);
    args.push(steps);
    flags.push(false);
    args.extend_from_slice(&x[1 + nc + nk..]);
    flags.extend_from_slice(&batched[1 + nc + nk..]);
    masked.batch(cx, &args, &flags, size)
}

/// Rewrites a graph's interface: `order[i]` is the old position of the new i-th input, `outs` are the outputs that remain.
pub(crate) fn permute_interface(graph: &Graph, order: &[usize], outs: &[usize]) -> Result<Graph> {
    let mut g = Graph::new();
    let mut args = vec![Value(u32::MAX); graph.inputs().len()];
    for &i in order {
        args[i] = g.input(graph.ty(graph.inputs()[i]).clone());
    }
    let all = graph.inline(&mut g, &args)?;
    let picked: Vec<Value> = outs.iter().map(|&i| all[i]).collect();
    g.set_outputs(picked);
    Ok(g)
}

pub(crate) fn true_indices(flags: &[bool]) -> impl Iterator<Item = usize> + '_ {
    flags.iter().enumerate().filter(|(_, f)| **f).map(|(i, _)| i)
}

impl Rules for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn attrs(&self) -> Attrs {
        let checkpoint = match self.checkpoint {
            ScanCheckpoint::All => 0,
            ScanCheckpoint::EveryN(n) => n,
        };
        vec![
            ("consts", self.consts.into()),
            ("carries", self.carries.into()),
            ("length", self.length.into()),
            ("reverse", self.reverse.into()),
            ("bounded", self.bounded.into()),
            ("checkpoint", checkpoint.into()),
            ("body", (&self.body).into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        if self.bounded && args.first() != Some(&Type::scalar(DType::I32)) {
            return Err(InferError::other("a bounded scan needs its count, an i32 of rank 0, as its first operand"));
        }
        let args = args.get(self.first()..).unwrap_or_default();
        let (ins, outs) = (self.body.input_types(), self.body.output_types());
        let carried = self.consts.saturating_add(self.carries);
        if args.len() != ins.len() || carried > ins.len() || self.carries > outs.len() {
            return Err(InferError::Arity { expected: format!("{} after any count", ins.len()), got: args.len() });
        }
        if self.checkpoint == ScanCheckpoint::EveryN(0) {
            return Err(InferError::other("checkpoint every 0 iterations"));
        }
        for (i, (have, need)) in self.body_types(args)?.iter().zip(&ins).enumerate() {
            if have != need {
                return Err(InferError::other(format!("operand {i} gives the body {have}, but it expects {need}")));
            }
        }
        for i in 0..self.carries {
            let (init, next) = (&ins[self.consts + i], &outs[i]);
            if init != next {
                return Err(InferError::other(format!(
                    "carry {i} enters as {init} and is returned as {next}; a carry must keep its type"
                )));
            }
        }
        let mut types = outs[..self.carries].to_vec();
        for t in &outs[self.carries..] {
            types.push(Type::checked(t.dtype, &t.batched(self.length).shape)?);
        }
        Ok(types)
    }

    jvp_of_body!();

    fn differentiate_as(&self, args: &[Type]) -> Result<Option<Graph>> {
        let ScanCheckpoint::EveryN(n) = self.checkpoint else {
            return Ok(None);
        };
        let mut b = Builder::new();
        let x: Vec<Value> = args.iter().map(|t| b.graph.input(t.clone())).collect();
        let outs = self.chunked(&mut b, n, &x)?;
        Ok(Some(b.finish(&outs)))
    }

    fn partial_eval(&self, cx: &mut dyn GraphTransforms, args: &[Type], known: &[bool]) -> Result<PartialEval> {
        let first = self.first();
        if self.bounded && !known[0] {
            return Ok(PartialEval::Atomic);
        }
        let (nc, nk) = (self.consts, self.carries);
        let mut known_in: Vec<bool> = known[first..].to_vec();
        let split = loop {
            let s = cx.partial_eval_of(&self.body, &known_in)?;
            let lost: Vec<usize> = (0..nk).filter(|&i| known_in[nc + i] && !s.known_outs[i]).collect();
            if lost.is_empty() {
                break s;
            }
            for i in lost {
                known_in[nc + i] = false;
            }
        };
        // A carry with an unknown initial value is unknown, even if its next value is known: the unknown part gets that value.
        let restarted: Vec<usize> = (0..nk).filter(|&i| !known_in[nc + i]).collect();
        let split = split.with_outputs_unknown(&restarted)?;
        let known_carry: Vec<bool> = (0..nk).map(|i| known_in[nc + i]).collect();
        let n_in = known_in.len();
        debug_assert_eq!(args.len(), n_in + first);

        // Known part: known consts, carries, xs; outputs are known carries, known ys, residuals.
        let known_inputs: Vec<usize> = true_indices(&known_in).collect();
        let place_in_known = |i: usize| known_inputs.iter().position(|&k| k == i);
        let known_out_list: Vec<usize> = true_indices(&split.known_outs).collect();
        let mut known_outs = Vec::new();
        let mut known_out_index = vec![None; self.body.outputs().len()];
        for (at, &i) in known_out_list.iter().enumerate() {
            known_out_index[i] = Some(known_outs.len());
            known_outs.push(at);
        }
        let n_known_outs = known_outs.len();
        // Residuals: constants of the loop are forwarded as constants, scanned inputs as scanned inputs, others are stacked.
        enum From {
            Const(usize),
            Xs(usize),
            Stacked(usize),
        }
        let mut from = Vec::new();
        for r in 0..split.residuals {
            match split.forwarded[r].map(|f| known_inputs[f]) {
                Some(i) if i < nc => from.push(From::Const(i)),
                Some(i) if i >= nc + nk => from.push(From::Xs(i)),
                _ => {
                    from.push(From::Stacked(known_outs.len()));
                    known_outs.push(known_out_list.len() + r);
                }
            }
        }
        let order: Vec<usize> = (0..known_inputs.len()).collect();
        let body = permute_interface(&split.known, &order, &known_outs)?;
        let count = |lo: usize, hi: usize| (lo..hi).filter(|&i| known_in[i]).count();
        debug_assert!(known_inputs.iter().all(|&i| place_in_known(i).is_some()));
        let known_scan = self.with_body(count(0, nc), count(nc, nc + nk), body);
        let mut known_args: Vec<usize> = known_inputs.iter().map(|i| i + first).collect();
        if self.bounded {
            known_args.insert(0, 0);
        }

        // Unknown part: constants (forwarded, then unknown), unknown carries, xs (residuals, then unknown).
        let unknown: Vec<usize> = (0..n_in).filter(|&i| !known_in[i]).collect();
        let mut rest_order = Vec::new();
        let mut rest_args = Vec::new();
        if self.bounded {
            rest_args.push(ResidualArg::Arg(0));
        }
        let mut consts = 0;
        for (r, f) in from.iter().enumerate() {
            if let From::Const(i) = f {
                rest_order.push(r);
                rest_args.push(ResidualArg::Arg(i + first));
                consts += 1;
            }
        }
        for (u, &i) in unknown.iter().enumerate() {
            if i < nc {
                rest_order.push(split.residuals + u);
                rest_args.push(ResidualArg::Arg(i + first));
                consts += 1;
            }
        }
        let mut carries = 0;
        for (u, &i) in unknown.iter().enumerate() {
            if (nc..nc + nk).contains(&i) {
                rest_order.push(split.residuals + u);
                rest_args.push(ResidualArg::Arg(i + first));
                carries += 1;
            }
        }
        for (r, f) in from.iter().enumerate() {
            match f {
                From::Const(_) => {}
                From::Xs(i) => {
                    rest_order.push(r);
                    rest_args.push(ResidualArg::Arg(i + first));
                }
                From::Stacked(k) => {
                    rest_order.push(r);
                    rest_args.push(ResidualArg::Residual(*k));
                }
            }
        }
        for (u, &i) in unknown.iter().enumerate() {
            if i >= nc + nk {
                rest_order.push(split.residuals + u);
                rest_args.push(ResidualArg::Arg(i + first));
            }
        }
        let unknown_outs: Vec<usize> = (0..split.known_outs.len()).filter(|&i| !split.known_outs[i]).collect();
        debug_assert_eq!(carries, (0..nk).filter(|&i| !known_carry[i]).count());
        let outs_all: Vec<usize> = (0..unknown_outs.len()).collect();
        let rest_body = permute_interface(&split.unknown, &rest_order, &outs_all)?;
        let rest_scan = self.with_body(consts, carries, rest_body);
        let outs = (0..split.known_outs.len())
            .map(|i| match known_out_index[i] {
                Some(k) => OutputSource::Known(k),
                None => {
                    OutputSource::Unknown(unknown_outs.iter().position(|&u| u == i).expect("an output is known or not"))
                }
            })
            .collect();
        debug_assert!(n_known_outs <= known_outs.len());
        Ok(PartialEval::Parts(SplitOp {
            known: Some((known_scan.into(), known_args)),
            unknown: (!unknown_outs.is_empty()).then(|| (rest_scan.into(), rest_args)),
            outs,
        }))
    }

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let first = self.first();
        let (nc, nk) = (self.consts, self.carries);
        if ct.iter().all(Option::is_none) {
            return Ok(vec![None; args.len()]);
        }
        let operands = &args[first..];
        let n = operands.len();
        // The body is linear in all carries, including one that starts from a known value (a zero tangent).
        let linear: Vec<bool> = (0..n).map(|i| operands[i].is_linear() || (nc..nc + nk).contains(&i)).collect();
        let no = self.body.outputs().len();
        let ct_in: Vec<bool> = (0..no).map(|i| i < nk || ct[i].is_some()).collect();
        let (back, gives) = cx.transpose_of(&self.body, &linear, &ct_in)?;
        let linear_list: Vec<usize> = true_indices(&linear).collect();
        let known_list: Vec<usize> = (0..n).filter(|&i| !linear[i]).collect();

        // The new body: consts are known consts; carries are cotangents of linear consts (summed) and of carries; xs are known
        // xs and ct of ys.
        let ct_consts: Vec<usize> = linear_list.iter().copied().filter(|&i| i < nc).collect();
        let ct_xs: Vec<usize> = linear_list.iter().copied().filter(|&i| i >= nc + nk).collect();
        let body_ty = |i: usize| self.body.ty(self.body.inputs()[i]).clone();
        let mut b = Builder::new();
        let known_consts: Vec<Value> =
            known_list.iter().filter(|&&i| i < nc).map(|&i| b.graph.input(body_ty(i))).collect();
        let sums: Vec<Value> = ct_consts.iter().map(|&i| b.graph.input(body_ty(i))).collect();
        let carry_cts: Vec<Value> = (0..nk).map(|i| b.graph.input(body_ty(nc + i))).collect();
        let known_xs: Vec<Value> =
            known_list.iter().filter(|&&i| i >= nc + nk).map(|&i| b.graph.input(body_ty(i))).collect();
        let y_cts: Vec<Value> = (nk..no)
            .filter(|&i| ct_in[i])
            .map(|i| b.graph.input(self.body.ty(self.body.outputs()[i]).clone()))
            .collect();
        let inner: Vec<Value> = [&known_consts[..], &known_xs, &carry_cts, &y_cts].concat();
        let outs = b.inline(&back, &inner)?;
        let mut given = vec![None; n];
        for (at, k) in true_indices(&gives).enumerate() {
            given[linear_list[k]] = Some(outs[at]);
        }
        let mut results = Vec::new();
        for (&i, &s) in ct_consts.iter().zip(&sums) {
            results.push(match given[i] {
                Some(g) => b.add(s, g)?,
                None => s,
            });
        }
        for g in &given[nc..nc + nk] {
            let ty = body_ty(nc + results.len() - ct_consts.len());
            results.push(match g {
                Some(g) => *g,
                None => b.zeros(&ty)?,
            });
        }
        for &i in &ct_xs {
            results.push(match given[i] {
                Some(g) => g,
                None => b.zeros(&body_ty(i))?,
            });
        }
        let body = b.finish(&results);

        let mut outer = Vec::new();
        if self.bounded {
            outer.push(args[0].known().ok_or_else(|| Error::Invalid("a scan's count is not linear".into()))?);
        }
        let known_value = |i: usize| operands[i].known().expect("not linear, so known");
        outer.extend(known_list.iter().filter(|&&i| i < nc).map(|&i| known_value(i)));
        for &i in &ct_consts {
            outer.push(cx.zeros(&body_ty(i))?);
        }
        for i in 0..nk {
            outer.push(match ct[i] {
                Some(c) => c,
                None => cx.zeros(&body_ty(nc + i))?,
            });
        }
        outer.extend(known_list.iter().filter(|&&i| i >= nc + nk).map(|&i| known_value(i)));
        outer.extend(ct[nk..].iter().flatten());
        let mut back_scan = self.with_body(known_consts.len(), ct_consts.len() + nk, body);
        back_scan.reverse = !self.reverse;
        let outs = cx.emit(back_scan.into(), &outer)?;
        let mut result = vec![None; args.len()];
        for (at, &i) in ct_consts.iter().enumerate() {
            result[first + i] = Some(outs[at]);
        }
        for i in 0..nk {
            if operands[nc + i].is_linear() {
                result[first + nc + i] = Some(outs[ct_consts.len() + i]);
            }
        }
        for (at, &i) in ct_xs.iter().enumerate() {
            result[first + i] = Some(outs[ct_consts.len() + nk + at]);
        }
        Ok(result)
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        if self.bounded && batched[0] {
            return batch_counts(self, cx, x, batched, size);
        }
        let first = self.first();
        let (nc, nk) = (self.consts, self.carries);
        let mut flags = batched[first..].to_vec();
        let (body, outs) = loop {
            let mut want = vec![false; self.body.outputs().len()];
            want[..nk].copy_from_slice(&flags[nc..nc + nk]);
            let (body, outs) = cx.vmap_of(&self.body, &flags, &want, size)?;
            if (0..nk).all(|i| flags[nc + i] || !outs[i]) {
                break (body, outs);
            }
            for i in 0..nk {
                flags[nc + i] |= outs[i];
            }
        };
        let mut args: Vec<Value> = x[..first].to_vec();
        for (i, &v) in x[first..].iter().enumerate() {
            args.push(if i >= nc + nk && flags[i] {
                cx.move_axis(v, 0, 1)?
            } else if flags[i] && !batched[first + i] {
                cx.broadcast_leading(v, size)?
            } else {
                v
            });
        }
        let scan = Scan { body: Arc::new(body), ..self.clone() };
        let results = cx.emit(scan.into(), &args)?;
        let mut out = Vec::with_capacity(results.len());
        for (i, &v) in results.iter().enumerate() {
            out.push((if i >= nk && outs[i] { cx.move_axis(v, 1, 0)? } else { v }, outs[i]));
        }
        Ok(out)
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let first = self.first();
        let count = match self.bounded {
            true => args[0].get(0).to_i64().clamp(0, self.length as i64) as usize,
            false => self.length,
        };
        let (consts, rest) = args[first..].split_at(self.consts);
        let (init, xs) = rest.split_at(self.carries);
        let mut carry = init.to_vec();
        let y_types = &self.body.output_types()[self.carries..];
        let mut ys: Vec<Vec<u8>> = y_types.iter().map(|t| vec![0; t.bytes() * self.length]).collect();
        for step in 0..count {
            let t = if self.reverse { count - 1 - step } else { step };
            let mut inputs = consts.to_vec();
            inputs.append(&mut carry);
            for x in xs {
                let ty = x.ty().unbatched();
                let n = ty.bytes();
                inputs
                    .push(Literal::from_bytes(ty, &x.bytes()[t * n..(t + 1) * n]).expect("a slice of the first axis"));
            }
            let mut outs = crate::interp::run(&self.body, &inputs)?;
            for (stack, y) in ys.iter_mut().zip(outs.drain(self.carries..)) {
                let n = y.bytes().len();
                stack[t * n..(t + 1) * n].copy_from_slice(y.bytes());
            }
            carry = outs;
        }
        for (t, bytes) in y_types.iter().zip(&ys) {
            carry.push(Literal::from_bytes(t.batched(self.length), bytes).expect("stacked outputs fill their type"));
        }
        Ok(carry)
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Scan>> {
        (name == "scan").then(|| {
            Ok(Scan {
                consts: attrs.usize("consts")?,
                carries: attrs.usize("carries")?,
                length: attrs.usize("length")?,
                reverse: attrs.bool("reverse")?,
                bounded: attrs.bool("bounded")?,
                checkpoint: match attrs.usize("checkpoint")? {
                    0 => ScanCheckpoint::All,
                    n => ScanCheckpoint::EveryN(n),
                },
                body: attrs.graph("body")?,
            })
        })
    }
}
