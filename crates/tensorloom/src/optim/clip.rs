//! Clipping.

use super::{GradientTransformation, each, stateless};
use crate::np::{self, axes};
use crate::record::rounded;
use crate::{Tensor, Tree, engine};

/// The root of the sum of squares of all elements of a tree.
#[track_caller]
pub fn global_norm<T: Tree>(tree: &T) -> Tensor {
    let _here = crate::record::here();
    norm(&tree.leaves())
}

fn norm(leaves: &[Tensor]) -> Tensor {
    let squares = leaves.iter().map(|t| t.cast(t.dtype().accumulator()).square().sum());
    squares.reduce(|a, b| a + b).unwrap_or_else(|| engine().zeros(crate::DType::F32, &[])).sqrt()
}

/// Moves every element into `−limit..=limit`.
pub fn clip(limit: f64) -> GradientTransformation {
    each(move |g, _| g.clamp(-limit, limit))
}

/// Scales all updates so that their common norm is at most `limit`.
pub fn clip_by_global_norm(limit: f64) -> GradientTransformation {
    stateless(move |updates, _| {
        let n = norm(&updates);
        let small = np::less(&n, limit);
        let scale = |g: &Tensor| np::where_(&small, g, &(g / &n * limit).cast(g.dtype()));
        updates.iter().map(scale).collect()
    })
}

/// Scales each update so that the root of its mean square is at most `limit`.
pub fn clip_by_block_rms(limit: f64) -> GradientTransformation {
    each(move |g, _| rounded([g], |[g]| &g / np::maximum(&(g.square().mean().sqrt() / limit), 1.0)))
}

/// Norms of what feeds each output unit: a vector's is the whole, a matrix's its columns, a kernel's all but its last axis.
fn unit_norms(x: &Tensor) -> Tensor {
    let squares = x.square();
    let sum = match x.rank() {
        0 | 1 => np::sum(&squares, axes(()).keep()),
        n => {
            let axes: Vec<isize> = (0..n.max(2) as isize - 1).collect();
            squares.sum_axes(&axes, true)
        }
    };
    sum.sqrt()
}

/// Scales updates so that each unit's norm is at most `clipping` times that of its parameters.
pub fn adaptive_grad_clip(clipping: f64, eps: f64) -> GradientTransformation {
    each(move |g, p| {
        rounded([g, p], |[g, p]| {
            let (gn, pn) = (unit_norms(&g), unit_norms(&p));
            let most = np::maximum(&pn, eps) * clipping;
            let scaled = &g * (&most / np::maximum(&gn, 1e-6));
            np::where_(&np::less(&gn, &most), &g, &scaled)
        })
    })
}
