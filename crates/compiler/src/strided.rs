//! Strided views: resolves a chain of views of a value in memory to an offset and strides.

use ir::ops::View;
use ir::{Graph, Semantics, Value};
use smallvec::SmallVec;

/// Element offset and strides into a dense value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Strided {
    pub(crate) base: Value,
    pub(crate) offset: i64,
    pub(crate) strides: SmallVec<[i64; 6]>,
}

impl Strided {
    /// The layout of a value in its own memory, row-major.
    pub(crate) fn dense(graph: &Graph, v: Value) -> Strided {
        Strided { base: v, offset: 0, strides: graph.ty(v).strides().iter().map(|&s| s as i64).collect() }
    }

    /// Whether elements of this shape are contiguous, in row-major order.
    pub(crate) fn is_dense(&self, shape: &[usize]) -> bool {
        let mut run = 1;
        shape.iter().zip(&self.strides).rev().all(|(&n, &s)| {
            let fits = n == 1 || s == run;
            run *= n as i64;
            fits
        }) && run > 0
    }
}

/// Resolves views as far as strides can express them.
pub(crate) fn resolve_views(graph: &Graph, v: Value) -> Strided {
    let own = || Strided::dense(graph, v);
    let Some(node) = graph.node_of(v) else { return own() };
    let Semantics::View(view) = node.op.semantics() else {
        return own();
    };
    let inner = resolve_views(graph, node.args[0]);
    let from = &graph.ty(node.args[0]).shape;
    let to = &graph.ty(v).shape;
    let strides = match &view {
        View::Permute(perm) => Some(perm.iter().map(|&p| inner.strides[p]).collect()),
        View::Broadcast(dims) => {
            let mut s: SmallVec<[i64; 6]> = SmallVec::from_elem(0, to.len());
            for (a, &d) in dims.iter().enumerate() {
                s[d] = if from[a] == 1 { 0 } else { inner.strides[a] };
            }
            Some(s)
        }
        View::Slice(start, stride) => {
            let offset = inner.offset + start.iter().zip(&inner.strides).map(|(&s, k)| s as i64 * k).sum::<i64>();
            let strides = stride.iter().zip(&inner.strides).map(|(&s, k)| s as i64 * k).collect();
            return Strided { base: inner.base, offset, strides };
        }
        View::Reshape => reshape_strides(&inner.strides, from, to),
        View::Pad(..) | View::Flip(_) => None,
    };
    match strides {
        Some(strides) => Strided { base: inner.base, offset: inner.offset, strides },
        None => own(),
    }
}

/// The strides of the same memory under another shape, if they exist.
fn reshape_strides(strides: &[i64], from: &[usize], to: &[usize]) -> Option<SmallVec<[i64; 6]>> {
    let mut out: SmallVec<[i64; 6]> = SmallVec::from_elem(0, to.len());
    let mut i = from.len();
    let mut j = to.len();
    // From the innermost axes outwards: groups of axes with equal products must be contiguous.
    while j > 0 {
        if to[j - 1] == 1 {
            j -= 1;
            continue;
        }
        while i > 0 && from[i - 1] == 1 {
            i -= 1;
        }
        if i == 0 {
            return None;
        }
        let inner = strides[i - 1];
        let (mut a, mut b) = (from[i - 1], to[j - 1]);
        let mut last = i - 1;
        out[j - 1] = inner;
        i -= 1;
        j -= 1;
        let mut run = b as i64;
        while a != b {
            if a < b {
                while i > 0 && from[i - 1] == 1 {
                    i -= 1;
                }
                if i == 0 || strides[i - 1] != strides[last] * from[last] as i64 {
                    return None;
                }
                last = i - 1;
                a *= from[i - 1];
                i -= 1;
            } else {
                while j > 0 && to[j - 1] == 1 {
                    j -= 1;
                }
                if j == 0 {
                    return None;
                }
                out[j - 1] = inner * run;
                run *= to[j - 1] as i64;
                b *= to[j - 1];
                j -= 1;
            }
        }
    }
    Some(out)
}

/// The common stride of several axes, if they can be merged into one axis. Axes of size 1 are ignored.
pub(crate) fn merge_strides(sizes: &[usize], strides: &[i64]) -> Option<(usize, i64)> {
    let mut result: Option<(usize, i64)> = None;
    for (&n, &s) in sizes.iter().zip(strides).rev() {
        if n == 1 {
            continue;
        }
        result = match result {
            None => Some((n, s)),
            Some((total, inner)) if s == inner * total as i64 => Some((total * n, inner)),
            Some(_) => return None,
        };
    }
    Some(result.unwrap_or((1, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_keep_strides_where_they_can() {
        let s = |x: &[i64]| -> SmallVec<[i64; 6]> { x.into() };
        assert_eq!(reshape_strides(&[12, 4, 1], &[2, 3, 4], &[6, 4]), Some(s(&[4, 1])));
        assert_eq!(reshape_strides(&[4, 1], &[6, 4], &[2, 3, 4]), Some(s(&[12, 4, 1])));
        assert_eq!(reshape_strides(&[1, 2], &[2, 3], &[6]), None);
        assert_eq!(reshape_strides(&[3, 1], &[2, 3], &[2, 1, 3]), Some(s(&[3, 0, 1])));
        assert_eq!(merge_strides(&[2, 3], &[3, 1]), Some((6, 1)));
        assert_eq!(merge_strides(&[2, 1, 3], &[3, 77, 1]), Some((6, 1)));
        assert_eq!(merge_strides(&[2, 3], &[1, 2]), None);
    }
}
