//! Einstein sums.

use crate::{Tensor, lax, record};

/// Sums of products over repeated letters, like `"ij,jk->ik"`; an ellipsis stands for leading axes that broadcast.
///
/// ```
/// use tensorloom::{np, ones};
///
/// let (a, b) = (ones(&[5, 2, 3]), ones(&[5, 3, 4]));
/// assert_eq!(np::einsum("bij,bjk->bik", &[&a, &b]).shape(), [5, 2, 4]);
/// assert_eq!(np::einsum("...ij->...ji", &[&a]).shape(), [5, 3, 2]);
/// assert_eq!(np::einsum("bij->", &[&a]).item::<f32>()?, 30.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn einsum(spec: &str, xs: &[&Tensor]) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = xs.iter().find_map(|x| x.error()) {
        return Tensor::from_error(e);
    }
    match parse(spec, xs) {
        Ok((terms, out)) => contract(terms, xs, &out),
        Err(why) => record::invalid("einsum", format!("{spec:?}: {why}")),
    }
}

type Labels = Vec<char>;

/// The letters of each operand and of the result; an ellipsis becomes capital digits that no one can write.
fn parse(spec: &str, xs: &[&Tensor]) -> Result<(Vec<Labels>, Labels), String> {
    let spec: String = spec.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match spec.split_once("->") {
        Some((l, r)) => (l.to_string(), Some(r.to_string())),
        None => (spec, None),
    };
    let parts: Vec<&str> = left.split(',').collect();
    if parts.len() != xs.len() {
        return Err(format!("{} terms for {} operands", parts.len(), xs.len()));
    }
    let hidden = |n: usize| (0..n).rev().map(|i| char::from_u32(0xE000 + i as u32).unwrap_or('?'));
    let mut most = 0;
    let mut terms = Vec::new();
    for (p, x) in parts.iter().zip(xs) {
        let letters = p.replace("...", "");
        if let Some(c) = letters.chars().find(|c| !c.is_ascii_alphabetic()) {
            return Err(format!("{c:?} is not a letter"));
        }
        let own = letters.len();
        let extra = x.rank().checked_sub(own).ok_or(format!("{p:?} has more letters than {} axes", x.ty()))?;
        if extra > 0 && !p.contains("...") {
            return Err(format!("{p:?} has fewer letters than {} axes", x.ty()));
        }
        most = most.max(extra);
        let mut labels = Labels::new();
        let (before, after) = p.split_once("...").unwrap_or((p, ""));
        labels.extend(before.chars());
        labels.extend(hidden(extra));
        labels.extend(after.chars());
        terms.push(labels);
    }
    let out = match right {
        Some(r) => {
            let (before, after) = r.split_once("...").map_or((r.as_str(), None), |(b, a)| (b, Some(a)));
            let mut out: Labels = before.chars().collect();
            if let Some(after) = after {
                out.extend(hidden(most));
                out.extend(after.chars());
            }
            out
        }
        None => {
            let all: Vec<char> = terms.iter().flatten().copied().collect();
            let mut once: Vec<char> = all.iter().filter(|c| c.is_ascii_alphabetic()).copied().collect();
            once.sort();
            once.retain(|c| all.iter().filter(|d| *d == c).count() == 1);
            once.dedup();
            hidden(most).chain(once).collect()
        }
    };
    for (i, c) in out.iter().enumerate() {
        if out[..i].contains(c) {
            return Err(format!("{c:?} occurs twice in the result"));
        }
        if !terms.iter().any(|t| t.contains(c)) {
            return Err(format!("{c:?} occurs only in the result"));
        }
    }
    for c in terms.iter().flatten() {
        let sizes = terms
            .iter()
            .zip(xs)
            .flat_map(|(t, x)| t.iter().enumerate().filter(move |(_, d)| *d == c).map(|(i, _)| x.shape()[i]));
        let mut sizes: Vec<usize> = sizes.filter(|&n| n != 1).collect();
        sizes.dedup();
        if sizes.len() > 1 {
            return Err(format!("{c:?} has sizes {sizes:?}"));
        }
    }
    Ok((terms, out))
}

/// One operand with each letter once, and letters summed that nobody else has.
#[track_caller]
fn tidy(x: &Tensor, labels: &Labels, keep: impl Fn(char) -> bool) -> (Tensor, Labels) {
    let (mut x, mut labels) = (x.clone(), labels.clone());
    while let Some((i, j)) = (0..labels.len())
        .flat_map(|i| (i + 1..labels.len()).map(move |j| (i, j)))
        .find(|&(i, j)| labels[i] == labels[j])
    {
        x = super::diagonal(&x, 0, i as isize, j as isize);
        let c = labels[i];
        labels.remove(j);
        labels.remove(i);
        labels.push(c);
    }
    let gone: Vec<isize> = (0..labels.len()).filter(|&i| !keep(labels[i])).map(|i| i as isize).collect();
    if !gone.is_empty() {
        x = x.sum_axes(&gone, false);
        labels.retain(|c| keep(*c));
    }
    (x, labels)
}

#[track_caller]
fn contract(terms: Vec<Labels>, xs: &[&Tensor], out: &Labels) -> Tensor {
    let mut operands: Vec<(Tensor, Labels)> = xs.iter().map(|x| (*x).clone()).zip(terms).collect();
    let needed = |rest: &[(Tensor, Labels)], c: char| out.contains(&c) || rest.iter().any(|(_, l)| l.contains(&c));
    let (mut x, mut labels) = operands.remove(0);
    (x, labels) = tidy(&x, &labels, |c| needed(&operands, c));
    while !operands.is_empty() {
        let (y, more) = operands.remove(0);
        let (y, more) = tidy(&y, &more, |c| needed(&operands, c) || labels.contains(&c));
        (x, labels) = product(&x, &labels, &y, &more, |c| needed(&operands, c));
    }
    let perm: Vec<isize> = out.iter().filter_map(|c| labels.iter().position(|d| d == c)).map(|i| i as isize).collect();
    x.permute(&perm)
}

/// A product of two operands as one contraction; letters of size 1 in one of them broadcast.
#[track_caller]
fn product(x: &Tensor, lx: &Labels, y: &Tensor, ly: &Labels, keep: impl Fn(char) -> bool) -> (Tensor, Labels) {
    let size = |t: &Tensor, l: &Labels, c: char| l.iter().position(|d| *d == c).map(|i| t.shape()[i]);
    let odd = |c: &char| size(x, lx, *c).zip(size(y, ly, *c)).is_some_and(|(m, n)| m != n);
    if lx.iter().any(odd) {
        // Sizes differ where one is 1: an elementwise product, then a sum.
        let all: Labels = lx.iter().chain(ly.iter().filter(|c| !lx.contains(c))).copied().collect();
        let spread = |t: &Tensor, l: &Labels| {
            let order: Vec<isize> =
                all.iter().filter_map(|c| l.iter().position(|d| d == c)).map(|i| i as isize).collect();
            let shape: Vec<isize> = all.iter().map(|c| size(t, l, *c).map_or(1, |n| n as isize)).collect();
            t.permute(&order).reshape(&shape)
        };
        return tidy(&(spread(x, lx) * spread(y, ly)), &all, keep);
    }
    let place = |l: &Labels, c: &char| l.iter().position(|d| d == c).unwrap_or(0);
    let shared: Labels = lx.iter().filter(|c| ly.contains(c)).copied().collect();
    let (batch, summed): (Labels, Labels) = shared.into_iter().partition(|c| keep(*c));
    let places = |l: &Labels, of: &Labels| of.iter().map(|c| place(l, c)).collect::<Vec<_>>();
    let contract = (places(lx, &summed), places(ly, &summed));
    let batches = (places(lx, &batch), places(ly, &batch));
    let z = lax::dot_general(x, y, (&contract.0, &contract.1), (&batches.0, &batches.1));
    let free = |l: &Labels| l.iter().filter(|c| !batch.contains(c) && !summed.contains(c)).copied().collect::<Labels>();
    let labels = [batch.clone(), free(lx), free(ly)].concat();
    (z, labels)
}

/// Sums of products over pairs of axes.
#[track_caller]
pub fn tensordot(a: &Tensor, b: &Tensor, axes: (&[usize], &[usize])) -> Tensor {
    let _here = crate::record::here();
    lax::dot_general(a, b, axes, (&[], &[]))
}
