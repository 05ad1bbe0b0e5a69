//! Simplified chains of view ops: a view of a view is as cheap as a view.
//!
//! Adjacent ops of one kind are merged, ops without effect are removed, and slices are moved before permutations, where
//! they merge with other slices. Chains share their prefixes, so appending an op allocates one link.

use ir::ops::{Permute, Reshape, Slice};
use ir::{Op, Shape};
use std::sync::Arc;

/// The last op of a chain, with the chain before it.
pub(crate) struct ViewLink {
    op: Arc<Op>,
    /// The input shape of the op.
    from: Shape,
    parent: ViewChain,
}

/// The ops from a base to a view; `None` is the base itself.
pub(crate) type ViewChain = Option<Arc<ViewLink>>;

/// Appends an op to the chain of a view with shape `from`.
pub(crate) fn append(chain: &ViewChain, op: &Arc<Op>, from: &Shape) -> ViewChain {
    if is_identity(op, from) {
        return chain.clone();
    }
    let Some(last) = chain else { return push(chain, op, from) };
    let joined: Op = match (&*last.op, &**op) {
        (Op::Reshape(_), Op::Reshape(b)) => Reshape { shape: b.shape.clone() }.into(),
        (Op::Permute(a), Op::Permute(b)) => Permute { perm: b.perm.iter().map(|&i| a.perm[i]).collect() }.into(),
        (Op::Slice(a), Op::Slice(b)) => slice_of_slice(a, b).into(),
        (Op::Permute(p), Op::Slice(s)) => {
            let unpermuted = |of: &Shape| {
                let mut out = of.clone();
                p.perm.iter().zip(of).for_each(|(&axis, &x)| out[axis] = x);
                out
            };
            let first =
                Slice { start: unpermuted(&s.start), limit: unpermuted(&s.limit), stride: unpermuted(&s.stride) };
            let shape = (0..first.start.len()).map(|i| count(&first, i)).collect();
            let sliced = append(&last.parent, &Arc::new(first.into()), &last.from);
            return append(&sliced, &last.op, &shape);
        }
        _ => return push(chain, op, from),
    };
    append(&last.parent, &Arc::new(joined), &last.from)
}

fn push(before: &ViewChain, op: &Arc<Op>, from: &Shape) -> ViewChain {
    Some(Arc::new(ViewLink { op: op.clone(), from: from.clone(), parent: before.clone() }))
}

/// The ops of a chain, first to last.
pub(crate) fn ops(chain: &ViewChain) -> Vec<Arc<Op>> {
    let mut all = Vec::new();
    let mut next = chain;
    while let Some(link) = next {
        all.push(link.op.clone());
        next = &link.parent;
    }
    all.reverse();
    all
}

fn count(s: &Slice, axis: usize) -> usize {
    (s.limit[axis] - s.start[axis]).div_ceil(s.stride[axis])
}

fn is_identity(op: &Op, from: &Shape) -> bool {
    match op {
        Op::Permute(p) => p.perm.iter().enumerate().all(|(i, &a)| i == a),
        Op::Reshape(r) => r.shape == *from,
        Op::Slice(s) => (0..from.len()).all(|i| count(s, i) == from[i]),
        Op::Broadcast(b) => b.shape == *from && b.dims.iter().enumerate().all(|(i, &d)| i == d),
        _ => false,
    }
}

fn slice_of_slice(a: &Slice, b: &Slice) -> Slice {
    let mut s = a.clone();
    for i in 0..s.start.len() {
        s.start[i] = a.start[i] + b.start[i] * a.stride[i];
        s.stride[i] = a.stride[i] * b.stride[i];
        s.limit[i] = match count(b, i) {
            0 => s.start[i],
            n => s.start[i] + (n - 1) * s.stride[i] + 1,
        };
        // An empty slice may start after the end of its input.
        s.start[i] = s.start[i].min(a.limit[i]);
        s.limit[i] = s.limit[i].clamp(s.start[i], a.limit[i]);
    }
    s
}

/// Drops long chains in a loop: recursion would overflow the stack.
impl Drop for ViewLink {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut link) = next.and_then(Arc::into_inner) {
            next = link.parent.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::Type;

    /// The chain after many repetitions of some views.
    fn repeated(shape: &[usize], views: &[Op]) -> Vec<Arc<Op>> {
        let mut ty = Type::new(ir::DType::F32, shape);
        let mut chain: ViewChain = None;
        for _ in 0..20_000 {
            for op in views {
                let next = op.infer(std::slice::from_ref(&ty)).unwrap().swap_remove(0);
                chain = append(&chain, &Arc::new(op.clone()), &ty.shape);
                ty = next;
            }
        }
        ops(&chain)
    }

    fn slice(start: &[usize], limit: &[usize]) -> Op {
        let shape = |s: &[usize]| s.iter().copied().collect::<Shape>();
        Slice { start: shape(start), limit: shape(limit), stride: start.iter().map(|_| 1).collect() }.into()
    }

    fn permute(perm: &[usize]) -> Op {
        Permute { perm: perm.iter().copied().collect() }.into()
    }

    fn reshape(shape: &[usize]) -> Op {
        Reshape { shape: shape.iter().copied().collect() }.into()
    }

    #[test]
    fn repeated_views_stay_short() {
        let t = permute(&[1, 0]);
        assert_eq!(repeated(&[2, 3], std::slice::from_ref(&t)).len(), 0, "twice is nothing");
        assert_eq!(repeated(&[2, 3], &[t.clone(), slice(&[0, 0], &[3, 2]), t]).len(), 0, "the whole is nothing");
        assert_eq!(repeated(&[2, 3], &[reshape(&[6]), reshape(&[2, 3])]).len(), 0);
        assert_eq!(repeated(&[2, 3], &[reshape(&[1, 2, 3]), slice(&[0, 0, 0], &[1, 2, 3]), reshape(&[2, 3])]).len(), 0);
        assert_eq!(repeated(&[2, 3, 4], &[permute(&[1, 2, 0])]).len(), 1);
    }

    #[test]
    fn slices_meet_across_permutations() {
        let mut ty = Type::new(ir::DType::F32, &[9, 8]);
        let mut chain: ViewChain = None;
        for _ in 0..4 {
            let limit: Vec<usize> = ty.shape.to_vec();
            for op in [slice(&[1, 0], &limit), permute(&[1, 0])] {
                let next = op.infer(std::slice::from_ref(&ty)).unwrap().swap_remove(0);
                chain = append(&chain, &Arc::new(op), &ty.shape);
                ty = next;
            }
        }
        let all = ops(&chain);
        assert_eq!(all.len(), 1, "{all:?}");
        let Op::Slice(s) = &*all[0] else { panic!("{all:?}") };
        assert_eq!((s.start.as_slice(), s.limit.as_slice()), (&[2, 2][..], &[9, 8][..]));
    }
}
