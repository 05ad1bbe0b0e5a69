//! Matrix products and sums of products.

use super::{Outs, one};
use crate::error::{Error, Result};
use crate::node::{Cx, broadcast_shapes};
use ir::ops::{Dot, Lu, ReduceKind};
use ir::types::Shape;
use ir::{Build, Compare, DType, Value};

pub(super) fn matmul(cx: &mut Cx) -> Result<Outs> {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    one(matmul_of(cx, a, b)?)
}

/// NumPy's `matmul`.
pub(super) fn matmul_of(cx: &mut Cx, a: Value, b: Value) -> Result<Value> {
    let (mut sa, mut sb) = (cx.shape(a), cx.shape(b));
    let (ra, rb) = (sa.len(), sb.len());
    if ra == 0 || rb == 0 {
        return Err(Error::here("its inputs must have at least one axis"));
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

pub(super) fn gemm(cx: &mut Cx) -> Result<Outs> {
    let (a, b) = (cx.x(0)?, cx.x(1)?);
    if cx.rank(a) != 2 || cx.rank(b) != 2 {
        return Err(Error::here("its inputs must be matrices"));
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

pub(super) fn det(cx: &mut Cx) -> Result<Outs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let rank = shape.len();
    let outs = cx.emit(Lu.into(), &[x])?;
    let (i, j) = (cx.iota(DType::I32, &shape, rank - 2)?, cx.iota(DType::I32, &shape, rank - 1)?);
    let on = cx.compare(Compare::Eq, i, j)?;
    let one_ = cx.full_like(outs[0], 1.0)?;
    let kept = cx.select(on, outs[0], one_)?;
    let product = cx.reduce(ReduceKind::Prod, kept, &[rank - 2, rank - 1])?;
    // Each row exchanged turns the sign.
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

/// An axis of an einsum: a letter, or one of those that `...` stands for, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Dots(usize),
    Letter(char),
}

fn labels(text: &str, rank: Option<usize>, dots: usize) -> Result<Vec<Label>> {
    let clean: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (front, back, has) = match clean.split_once("...") {
        Some((f, b)) => (f.to_string(), b.to_string(), true),
        None => (clean.clone(), String::new(), false),
    };
    if let Some(c) = front.chars().chain(back.chars()).find(|c| !c.is_alphabetic()) {
        return Err(Error::here(format!("`{c}` in its equation is not a letter")));
    }
    let letters = front.chars().count() + back.chars().count();
    let n = match (rank, has) {
        (_, false) => 0,
        (Some(rank), true) => {
            rank.checked_sub(letters).ok_or_else(|| Error::here("its equation has too many letters"))?
        }
        (None, true) => dots,
    };
    let list: Vec<Label> = (front.chars().map(Label::Letter))
        .chain((0..n).rev().map(Label::Dots))
        .chain(back.chars().map(Label::Letter))
        .collect();
    match rank {
        Some(rank) if rank != list.len() => {
            Err(Error::here(format!("`{clean}` of its equation doesn't fit an input of rank {rank}")))
        }
        _ => Ok(list),
    }
}

pub(super) fn einsum(cx: &mut Cx) -> Result<Outs> {
    let equation = cx.string("equation", "");
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l.to_string(), Some(r.to_string())),
        None => (equation.clone(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != cx.args.len() {
        return Err(Error::here(format!(
            "its equation `{equation}` has {} terms for {} inputs",
            terms.len(),
            cx.args.len()
        )));
    }
    let mut operands: Vec<(Value, Vec<Label>)> = Vec::new();
    for (i, term) in terms.iter().enumerate() {
        let x = cx.x(i)?;
        let list = labels(term, Some(cx.rank(x)), 0)?;
        operands.push((x, list));
    }
    let all: Vec<Label> = operands.iter().flat_map(|(_, l)| l.clone()).collect();
    let dots = all.iter().filter_map(|l| if let Label::Dots(n) = l { Some(n + 1) } else { None }).max().unwrap_or(0);
    let output = match right {
        Some(r) => labels(&r, None, dots)?,
        None => {
            let mut once: Vec<Label> =
                all.iter().copied().filter(|l| all.iter().filter(|m| *m == l).count() == 1).collect();
            once.retain(|l| matches!(l, Label::Letter(_)));
            once.sort();
            (0..dots).rev().map(Label::Dots).chain(once).collect()
        }
    };
    // One size for each label; axes of 1 are repeated.
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for (x, list) in &operands {
        for (&l, &d) in list.iter().zip(&cx.shape(*x)) {
            match sizes.iter_mut().find(|(m, _)| *m == l) {
                Some((_, s)) if *s == 1 => *s = d,
                Some((_, s)) if *s == d || d == 1 => {}
                Some((_, s)) => return Err(Error::here(format!("{l:?} is {s} and {d} in its equation `{equation}`"))),
                None => sizes.push((l, d)),
            }
        }
    }
    let size = |l: &Label| sizes.iter().find(|(m, _)| m == l).map_or(1, |(_, s)| *s);
    if let Some(l) = output.iter().find(|l| !sizes.iter().any(|(m, _)| m == *l)) {
        return Err(Error::here(format!("{l:?} of its result occurs in no input")));
    }
    let mut ready = Vec::new();
    for (x, list) in operands {
        let shape: Vec<usize> = list.iter().map(size).collect();
        let x = cx.broadcast_to(x, &shape)?;
        ready.push(diagonal(cx, x, list)?);
    }
    let mut rest = ready.into_iter();
    let (mut acc, mut have) = rest.next().ok_or_else(|| Error::here("it has no inputs"))?;
    let rest: Vec<(Value, Vec<Label>)> = rest.collect();
    for (i, (x, list)) in rest.iter().enumerate() {
        let later = |l: &Label| output.contains(l) || rest[i + 1..].iter().any(|(_, m)| m.contains(l));
        (acc, have) = sum_out(cx, acc, have, &|l| later(l) || list.contains(l))?;
        let (x, list) = sum_out(cx, *x, list.clone(), &|l| later(l) || have.contains(l))?;
        let common: Vec<Label> = have.iter().copied().filter(|l| list.contains(l)).collect();
        let (batch, contract): (Vec<Label>, Vec<Label>) = common.into_iter().partition(|l| later(l));
        let at = |list: &[Label], of: &[Label]| -> Shape {
            of.iter().filter_map(|l| list.iter().position(|m| m == l)).collect()
        };
        let dot = Dot {
            lhs_batch: at(&have, &batch),
            rhs_batch: at(&list, &batch),
            lhs_contract: at(&have, &contract),
            rhs_contract: at(&list, &contract),
            ..Dot::matmul(cx.dtype(acc))
        };
        let free = |from: &[Label]| -> Vec<Label> {
            from.iter().copied().filter(|l| !batch.contains(l) && !contract.contains(l)).collect()
        };
        let next: Vec<Label> = batch.iter().copied().chain(free(&have)).chain(free(&list)).collect();
        acc = cx.one(dot.into(), &[acc, x])?;
        have = next;
    }
    let (acc, have) = sum_out(cx, acc, have, &|l| output.contains(l))?;
    let perm: Option<Vec<usize>> = output.iter().map(|l| have.iter().position(|m| m == l)).collect();
    let perm = perm.ok_or_else(|| Error::here("its result names an axis twice"))?;
    one(cx.permute(acc, &perm)?)
}

/// Sums over the axes that nobody needs.
fn sum_out(cx: &mut Cx, x: Value, list: Vec<Label>, needed: &dyn Fn(&Label) -> bool) -> Result<(Value, Vec<Label>)> {
    let gone: Vec<usize> = (0..list.len()).filter(|&i| !needed(&list[i])).collect();
    let y = cx.sum(x, &gone)?;
    Ok((y, list.into_iter().filter(|l| needed(l)).collect()))
}

/// Axes with the same label become one.
fn diagonal(cx: &mut Cx, mut x: Value, mut list: Vec<Label>) -> Result<(Value, Vec<Label>)> {
    loop {
        let pair = (0..list.len()).find_map(|i| (i + 1..list.len()).find(|&j| list[i] == list[j]).map(|j| (i, j)));
        let Some((i, j)) = pair else { return Ok((x, list)) };
        let shape = cx.shape(x);
        let (a, b) = (cx.iota(DType::I32, &shape, i)?, cx.iota(DType::I32, &shape, j)?);
        let on = cx.compare(Compare::Eq, a, b)?;
        let kept = cx.keep_where(on, x)?;
        x = cx.sum(kept, &[j])?;
        list.remove(j);
    }
}
