//! Matrix products and einsum.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::{NodeContext, broadcast_shapes};
use ir::ops::{Dot, Lu, ReduceKind};
use ir::types::Shape;
use ir::{Compare, DType, GraphBuilder, Value};

pub(super) fn matmul(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    one(matmul_of(cx, a, b)?)
}

/// NumPy's `matmul`.
pub(super) fn matmul_of(cx: &mut NodeContext, a: Value, b: Value) -> Result<Value> {
    let (mut sa, mut sb) = (cx.shape(a), cx.shape(b));
    let (ra, rb) = (sa.len(), sb.len());
    if ra == 0 || rb == 0 {
        return Err(Error::node_error("its inputs must have at least one axis"));
    }
    let dtype = cx.dtype(a);
    if ra == 1 {
        sa.insert(0, 1);
    }
    if rb == 1 {
        sb.push(1);
    }
    let (a, b) = (cx.reshape(a, &sa)?, cx.reshape(b, &sb)?);
    let (m, n) = (sa[sa.len() - 2], sb[sb.len() - 1]);
    let batch = broadcast_shapes(&[sa[..sa.len() - 2].to_vec(), sb[..sb.len() - 2].to_vec()])?;
    let y = if sb.len() == 2 {
        let dot = Dot {
            lhs_contract: Shape::from_slice(&[sa.len() - 1]),
            rhs_contract: Shape::from_slice(&[0]),
            ..Dot::matmul(dtype)
        };
        cx.one(dot.into(), &[a, b])?
    } else {
        let (mut wa, mut wb) = (batch.clone(), batch.clone());
        wa.extend(&sa[sa.len() - 2..]);
        wb.extend(&sb[sb.len() - 2..]);
        let (a, b) = (cx.broadcast_to(a, &wa)?, cx.broadcast_to(b, &wb)?);
        cx.one(Dot::batched_matmul(dtype, batch.len()).into(), &[a, b])?
    };
    let mut out = batch;
    if ra > 1 {
        out.push(m);
    }
    if rb > 1 {
        out.push(n);
    }
    Ok(cx.reshape(y, &out)?)
}

pub(super) fn gemm(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    if cx.rank(a) != 2 || cx.rank(b) != 2 {
        return Err(Error::node_error("its inputs must be matrices"));
    }
    let a = if cx.flag("transA") { cx.permute(a, &[1, 0])? } else { a };
    let b = if cx.flag("transB") { cx.permute(b, &[1, 0])? } else { b };
    let mut y = cx.matmul(a, b)?;
    let (alpha, beta) = (cx.float("alpha", 1.0), cx.float("beta", 1.0));
    if alpha != 1.0 {
        y = cx.scale(y, alpha)?;
    }
    if let Some(mut c) = cx.opt(2)? {
        if beta != 1.0 {
            c = cx.scale(c, beta)?;
        }
        let shape = cx.shape(y);
        let c = cx.broadcast_to(c, &shape)?;
        y = cx.add(y, c)?;
    }
    one(y)
}

pub(super) fn det(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let rank = shape.len();
    let outs = cx.emit(Lu.into(), &[x])?;
    let (i, j) = (cx.iota(DType::I32, &shape, rank - 2)?, cx.iota(DType::I32, &shape, rank - 1)?);
    let on = cx.compare(Compare::Eq, i, j)?;
    let one_ = cx.full_like(outs[0], 1.0)?;
    let kept = cx.select(on, outs[0], one_)?;
    let product = cx.reduce(ReduceKind::Prod, kept, &[rank - 2, rank - 1])?;
    // Each row exchange flips the sign.
    let pivots = cx.shape(outs[1]);
    let own = cx.iota(DType::I32, &pivots, pivots.len() - 1)?;
    let turned = cx.compare(Compare::Ne, outs[1], own)?;
    let like = cx.ty(outs[1]).with_dtype(cx.dtype(x));
    let (minus, plus) =
        (cx.full(&like, ir::Scalar::from_f64(like.dtype, -1.0))?, cx.full(&like, ir::Scalar::one(like.dtype))?);
    let signs = cx.select(turned, minus, plus)?;
    let sign = cx.reduce(ReduceKind::Prod, signs, &[pivots.len() - 1])?;
    one(cx.mul(product, sign)?)
}

/// An axis of an einsum: a letter, or one of the axes of `...`, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EinsumLabel {
    Dots(usize),
    Letter(char),
}

fn labels(text: &str, rank: Option<usize>, dots: usize) -> Result<Vec<EinsumLabel>> {
    let clean: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (front, back, has) = match clean.split_once("...") {
        Some((f, b)) => (f.to_string(), b.to_string(), true),
        None => (clean.clone(), String::new(), false),
    };
    if let Some(c) = front.chars().chain(back.chars()).find(|c| !c.is_alphabetic()) {
        return Err(Error::node_error(format!("`{c}` in its equation is not a letter")));
    }
    let letters = front.chars().count() + back.chars().count();
    let n = match (rank, has) {
        (_, false) => 0,
        (Some(rank), true) => {
            rank.checked_sub(letters).ok_or_else(|| Error::node_error("its equation has too many letters"))?
        }
        (None, true) => dots,
    };
    let list: Vec<EinsumLabel> = (front.chars().map(EinsumLabel::Letter))
        .chain((0..n).rev().map(EinsumLabel::Dots))
        .chain(back.chars().map(EinsumLabel::Letter))
        .collect();
    match rank {
        Some(rank) if rank != list.len() => {
            Err(Error::node_error(format!("`{clean}` of its equation doesn't fit an input of rank {rank}")))
        }
        _ => Ok(list),
    }
}

pub(super) fn einsum(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let equation = cx.string("equation", "");
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l.to_string(), Some(r.to_string())),
        None => (equation.clone(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != cx.args.len() {
        return Err(Error::node_error(format!(
            "its equation `{equation}` has {} terms for {} inputs",
            terms.len(),
            cx.args.len()
        )));
    }
    let mut operands: Vec<(Value, Vec<EinsumLabel>)> = Vec::new();
    for (i, term) in terms.iter().enumerate() {
        let x = cx.x(i)?;
        let list = labels(term, Some(cx.rank(x)), 0)?;
        operands.push((x, list));
    }
    let all: Vec<EinsumLabel> = operands.iter().flat_map(|(_, l)| l.clone()).collect();
    let dots =
        all.iter().filter_map(|l| if let EinsumLabel::Dots(n) = l { Some(n + 1) } else { None }).max().unwrap_or(0);
    let output = match right {
        Some(r) => labels(&r, None, dots)?,
        None => {
            let mut once: Vec<EinsumLabel> =
                all.iter().copied().filter(|l| all.iter().filter(|m| *m == l).count() == 1).collect();
            once.retain(|l| matches!(l, EinsumLabel::Letter(_)));
            once.sort();
            (0..dots).rev().map(EinsumLabel::Dots).chain(once).collect()
        }
    };
    // One size per label; axes of size 1 are broadcast.
    let mut sizes: Vec<(EinsumLabel, usize)> = Vec::new();
    for (x, list) in &operands {
        for (&l, &d) in list.iter().zip(&cx.shape(*x)) {
            match sizes.iter_mut().find(|(m, _)| *m == l) {
                Some((_, s)) if *s == 1 => *s = d,
                Some((_, s)) if *s == d || d == 1 => {}
                Some((_, s)) => {
                    return Err(Error::node_error(format!("{l:?} is {s} and {d} in its equation `{equation}`")));
                }
                None => sizes.push((l, d)),
            }
        }
    }
    let size = |l: &EinsumLabel| sizes.iter().find(|(m, _)| m == l).map_or(1, |(_, s)| *s);
    if let Some(l) = output.iter().find(|l| !sizes.iter().any(|(m, _)| m == *l)) {
        return Err(Error::node_error(format!("{l:?} of its result occurs in no input")));
    }
    let mut ready = Vec::new();
    for (x, list) in operands {
        let shape: Vec<usize> = list.iter().map(size).collect();
        let x = cx.broadcast_to(x, &shape)?;
        ready.push(diagonal(cx, x, list)?);
    }
    let mut rest = ready.into_iter();
    let (mut acc, mut have) = rest.next().ok_or_else(|| Error::node_error("it has no inputs"))?;
    let rest: Vec<(Value, Vec<EinsumLabel>)> = rest.collect();
    for (i, (x, list)) in rest.iter().enumerate() {
        let later = |l: &EinsumLabel| output.contains(l) || rest[i + 1..].iter().any(|(_, m)| m.contains(l));
        (acc, have) = sum_out(cx, acc, have, &|l| later(l) || list.contains(l))?;
        let (x, list) = sum_out(cx, *x, list.clone(), &|l| later(l) || have.contains(l))?;
        let common: Vec<EinsumLabel> = have.iter().copied().filter(|l| list.contains(l)).collect();
        let (batch, contract): (Vec<EinsumLabel>, Vec<EinsumLabel>) = common.into_iter().partition(|l| later(l));
        let at = |list: &[EinsumLabel], of: &[EinsumLabel]| -> Shape {
            of.iter().filter_map(|l| list.iter().position(|m| m == l)).collect()
        };
        let dot = Dot {
            lhs_batch: at(&have, &batch),
            rhs_batch: at(&list, &batch),
            lhs_contract: at(&have, &contract),
            rhs_contract: at(&list, &contract),
            ..Dot::matmul(cx.dtype(acc))
        };
        let free = |from: &[EinsumLabel]| -> Vec<EinsumLabel> {
            from.iter().copied().filter(|l| !batch.contains(l) && !contract.contains(l)).collect()
        };
        let next: Vec<EinsumLabel> = batch.iter().copied().chain(free(&have)).chain(free(&list)).collect();
        acc = cx.one(dot.into(), &[acc, x])?;
        have = next;
    }
    let (acc, have) = sum_out(cx, acc, have, &|l| output.contains(l))?;
    let perm: Option<Vec<usize>> = output.iter().map(|l| have.iter().position(|m| m == l)).collect();
    let perm = perm.ok_or_else(|| Error::node_error("its result names an axis twice"))?;
    one(cx.permute(acc, &perm)?)
}

/// Sums over the axes that are not needed further.
fn sum_out(
    cx: &mut NodeContext,
    x: Value,
    list: Vec<EinsumLabel>,
    needed: &dyn Fn(&EinsumLabel) -> bool,
) -> Result<(Value, Vec<EinsumLabel>)> {
    let gone: Vec<usize> = (0..list.len()).filter(|&i| !needed(&list[i])).collect();
    let y = cx.sum(x, &gone)?;
    Ok((y, list.into_iter().filter(|l| needed(l)).collect()))
}

/// Takes the diagonal of axes with the same label.
fn diagonal(cx: &mut NodeContext, mut x: Value, mut list: Vec<EinsumLabel>) -> Result<(Value, Vec<EinsumLabel>)> {
    loop {
        let pair = (0..list.len()).find_map(|i| (i + 1..list.len()).find(|&j| list[i] == list[j]).map(|j| (i, j)));
        let Some((i, j)) = pair else { return Ok((x, list)) };
        let shape = cx.shape(x);
        let (a, b) = (cx.iota(DType::I32, &shape, i)?, cx.iota(DType::I32, &shape, j)?);
        let on = cx.compare(Compare::Eq, a, b)?;
        let kept = cx.zero_unless(on, x)?;
        x = cx.sum(kept, &[j])?;
        list.remove(j);
    }
}
