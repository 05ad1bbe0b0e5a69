//! Prefix combinations in logarithmic depth.

use crate::function::{Function, fail_like};
use crate::{Error, Tensor, Tree, Type, record};

/// All prefixes of `elems` along an axis combined with an associative `f`, in about log₂ n steps.
///
/// ```
/// use tensorloom::{Tensor, lax, tensor};
///
/// let x = tensor(&[1.0f32, 2.0, 3.0, 4.0, 5.0], &[5]);
/// let product = lax::associative_scan(|(a, b): (Tensor, Tensor)| a * b, x, false, 0);
/// assert_eq!(product.to_vec::<f32>()?, [1.0, 2.0, 6.0, 24.0, 120.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn associative_scan<T: Tree>(f: impl Function<(T, T), Out = T>, elems: T, reverse: bool, axis: isize) -> T {
    let _here = crate::record::here();
    let leaves = elems.leaves();
    let size = |t: &Tensor| {
        let a = if axis < 0 { axis + t.rank() as isize } else { axis };
        usize::try_from(a).ok().and_then(|a| t.shape().get(a).copied())
    };
    let sizes: Option<Vec<usize>> = leaves.iter().map(size).collect();
    let n = match sizes.as_deref() {
        Some([n, rest @ ..]) if rest.iter().all(|m| m == n) => *n,
        Some([]) => return elems,
        _ => {
            let types: Vec<String> = leaves.iter().map(|t| t.ty().to_string()).collect();
            let text = format!("({}) don't share a size along axis {axis}", types.join(", "));
            let e = leaves.iter().find_map(|t| t.error());
            return fail_like(&elems, e.unwrap_or_else(|| record::error("associative_scan", text)));
        }
    };
    if !reverse {
        return prefixes(&f, &elems, n, axis).unwrap_or_else(|e| fail_like(&elems, e));
    }
    let turned = elems.map(|t| t.flip(&[axis]));
    match prefixes(&f, &turned, n, axis) {
        Ok(all) => all.map(|t| t.flip(&[axis])),
        Err(e) => fail_like(&elems, e),
    }
}

/// `f` of two trees, which must give a third like them: prefixes are combined again and woven together.
#[track_caller]
fn combine<T: Tree>(f: &impl Function<(T, T), Out = T>, a: T, b: T) -> Result<T, Error> {
    let types = |t: &T| t.leaves().iter().map(|t| t.ty().clone()).collect::<Vec<_>>();
    let want = types(&a);
    let out = f.apply((a, b));
    if let Some(e) = out.leaves().iter().find_map(|t| t.error()) {
        return Err(e);
    }
    let got = types(&out);
    if got == want {
        return Ok(out);
    }
    let text = |types: &[Type]| types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
    let reason = format!(
        "the function takes two of ({}) and returns ({}); it must return one of the same types",
        text(&want),
        text(&got)
    );
    Err(record::error("associative_scan", reason))
}

#[track_caller]
fn prefixes<T: Tree>(f: &impl Function<(T, T), Out = T>, x: &T, n: usize, axis: isize) -> Result<T, Error> {
    let cut =
        |x: &T, start: usize, end: usize, step: usize| x.map(|t| t.slice(axis, start as isize, end as isize, step));
    if n < 2 {
        return Ok(cut(x, 0, n, 1));
    }
    // Pairs are combined, their prefixes found, and the places between filled in.
    let pairs = combine(f, cut(x, 0, n - 1, 2), cut(x, 1, n, 2))?;
    let odd = prefixes(f, &pairs, n / 2, axis)?;
    let first = cut(x, 0, 1, 1);
    let even = if n > 2 {
        let before = if n.is_multiple_of(2) { cut(&odd, 0, n / 2 - 1, 1) } else { odd.map(|t| t.clone()) };
        let rest = combine(f, before, cut(x, 2, n, 2))?;
        join(&first, &rest, |a, b| Tensor::concat(&[a, b], axis))
    } else {
        first
    };
    Ok(join(&even, &odd, |e, o| weave(e, o, axis)))
}

fn join<T: Tree>(a: &T, b: &T, mut f: impl FnMut(&Tensor, &Tensor) -> Tensor) -> T {
    let (a_leaves, b_leaves) = (a.leaves(), b.leaves());
    let mut pairs = a_leaves.iter().zip(&b_leaves).map(|(x, y)| f(x, y));
    a.rebuild(&mut || pairs.next().expect("trees of one structure"))
}

/// `e₀ o₀ e₁ o₁ ..`, where there may be one more of `e`.
#[track_caller]
fn weave(e: &Tensor, o: &Tensor, axis: isize) -> Tensor {
    let a = if axis < 0 { axis + e.rank() as isize } else { axis };
    let m = o.size(a);
    let head = e.slice(a, 0, m as isize, 1);
    let mut shape: Vec<isize> = o.shape().iter().map(|&n| n as isize).collect();
    shape[a as usize] *= 2;
    let woven = Tensor::stack(&[&head, o], a + 1).reshape(&shape);
    if e.size(a) == m {
        return woven;
    }
    Tensor::concat(&[&woven, &e.slice(a, m as isize, isize::MAX, 1)], a)
}
