//! Functions of trees of tensors.

use crate::function::fail_like;
use crate::{Tensor, Tree, np, record};
use std::hash::{Hash, Hasher};

/// An argument that is no tensor: it is part of a compiled function, which is compiled anew for another value.
///
/// ```
/// use tensorloom::{Static, Tensor, full, jit};
///
/// let power = jit(|(x, Static(n)): (Tensor, Static<u32>)| (0..n).fold(full(&[], 1.0), |y, _| y * &x));
/// assert_eq!(power.call((full(&[], 2.0), Static(10))).item::<f32>()?, 1024.0);
/// assert_eq!(power.call((full(&[], 3.0), Static(2))).item::<f32>()?, 9.0);
/// assert_eq!(power.call((full(&[], 4.0), Static(2))).item::<f32>()?, 16.0);
/// assert_eq!((power.stats().hits, power.stats().misses), (1, 2));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Static<T>(pub T);

impl<T: Clone + Hash> Tree for Static<T> {
    fn visit(&self, _: &mut dyn FnMut(&Tensor)) {}

    fn rebuild(&self, _: &mut dyn FnMut() -> Tensor) -> Static<T> {
        self.clone()
    }

    fn structure(&self, mut into: &mut dyn Hasher) {
        self.0.hash(&mut into);
    }
}

/// All tensors of a tree in order.
pub fn leaves<T: Tree>(tree: &T) -> Vec<Tensor> {
    tree.leaves()
}

/// The same tree with a function of every tensor.
pub fn map<T: Tree>(f: impl FnMut(&Tensor) -> Tensor, tree: &T) -> T {
    tree.map(f)
}

/// A function of the tensors of two trees of one structure.
///
/// ```
/// use tensorloom::{full, tree};
///
/// let (a, b) = ((full(&[], 1.0), full(&[], 2.0)), (full(&[], 10.0), full(&[], 20.0)));
/// let sum = tree::map2(|x, y| x + y, &a, &b);
/// assert_eq!(sum.1.item::<f32>()?, 22.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn map2<T: Tree>(mut f: impl FnMut(&Tensor, &Tensor) -> Tensor, a: &T, b: &T) -> T {
    let _here = crate::record::here();
    let others = b.leaves();
    if others.len() != a.leaves().len() {
        let text = format!("one tree has {} tensors, the other has {}", a.leaves().len(), others.len());
        return fail_like(a, record::error("tree::map2", text));
    }
    let mut next = others.iter();
    a.map(|x| f(x, next.next().expect("as many as the first has")))
}

/// Combines all tensors of a tree.
pub fn reduce<T: Tree, R>(mut f: impl FnMut(R, &Tensor) -> R, tree: &T, init: R) -> R {
    let mut value = Some(init);
    tree.visit(&mut |t| value = value.take().map(|v| f(v, t)));
    value.expect("it is put back each time")
}

/// The number of elements of all tensors.
pub fn size<T: Tree>(tree: &T) -> usize {
    reduce(|n, t| n + t.numel(), tree, 0)
}

/// Zeros of the same types.
#[track_caller]
pub fn zeros_like<T: Tree>(tree: &T) -> T {
    let _here = crate::record::here();
    tree.map(np::zeros_like)
}

/// Ones of the same types.
#[track_caller]
pub fn ones_like<T: Tree>(tree: &T) -> T {
    let _here = crate::record::here();
    tree.map(np::ones_like)
}

/// The sum of two trees.
#[track_caller]
pub fn add<T: Tree>(a: &T, b: &T) -> T {
    let _here = crate::record::here();
    map2(|x, y| x + y, a, b)
}

/// A tree times a number.
#[track_caller]
pub fn scale<T: Tree>(tree: &T, by: f64) -> T {
    let _here = crate::record::here();
    tree.map(|t| t * by)
}

/// The sum of products of all elements of two trees.
#[track_caller]
pub fn vdot<T: Tree>(a: &T, b: &T) -> Tensor {
    let _here = crate::record::here();
    let products = a.leaves().iter().zip(&b.leaves()).map(|(x, y)| (x * y).sum()).reduce(|s, p| s + p);
    products.unwrap_or_else(|| crate::zeros(&[]))
}

/// Trees stacked along a new first axis.
///
/// ```
/// use tensorloom::{full, tree};
///
/// let both = tree::stack(&[(full(&[2], 1.0),), (full(&[2], 2.0),)]);
/// assert_eq!(both.0.shape(), [2, 2]);
/// assert_eq!(tree::unstack(&both)[1].0.to_vec::<f32>()?, [2.0, 2.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
///
/// # Panics
///
/// If there are no trees: their structure is not known then.
#[track_caller]
pub fn stack<T: Tree>(trees: &[T]) -> T {
    let _here = crate::record::here();
    let first = trees.first().expect("at least one tree to stack");
    let all: Vec<Vec<Tensor>> = trees.iter().map(Tree::leaves).collect();
    let mut i = 0;
    first.map(|_| {
        i += 1;
        let column: Option<Vec<&Tensor>> = all.iter().map(|l| l.get(i - 1)).collect();
        column.map_or_else(|| record::invalid("tree::stack", "the trees differ"), |c| Tensor::stack(&c, 0))
    })
}

/// The slices of a tree along the first axis.
#[track_caller]
pub fn unstack<T: Tree>(tree: &T) -> Vec<T> {
    let _here = crate::record::here();
    let n = tree.leaves().first().and_then(|t| t.shape().first().copied()).unwrap_or(0);
    (0..n as isize).map(|i| tree.map(|t| t.index(0, i))).collect()
}

/// All elements of a tree in one vector, and how to put such a vector back into the tree.
///
/// ```
/// use tensorloom::{full, ones, tree};
///
/// let params = (ones(&[2, 2]), full(&[3], 5.0));
/// let (flat, unravel) = tree::ravel(&params);
/// assert_eq!(flat.shape(), [7]);
/// assert_eq!(unravel(&(flat * 2.0)).1.to_vec::<f32>()?, [10.0, 10.0, 10.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn ravel<T: Tree>(tree: &T) -> (Tensor, impl Fn(&Tensor) -> T) {
    let _here = crate::record::here();
    let leaves = tree.leaves();
    let flat: Vec<Tensor> = leaves.iter().map(np::ravel).collect();
    let all = match flat.len() {
        0 => crate::zeros(&[0]),
        _ => np::concatenate(&flat.iter().collect::<Vec<_>>(), 0),
    };
    let like = tree.map(|t| t.clone());
    let unravel = move |flat: &Tensor| {
        let mut at = 0;
        like.map(|t| {
            let n = t.numel();
            at += n;
            flat.narrow(0, at - n, n).reshape(&np::signed(t.shape())).cast(t.dtype())
        })
    };
    (all, unravel)
}
