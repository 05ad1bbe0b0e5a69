//! The reductions over ranks in a training step.

use crate::buckets::{DEFAULT_BUCKET_BYTES, all_reduce_gradients};
use ir::{GraphBuilder, MeshAxis, Value};

/// The reductions that a step needs besides those inside the loss.
#[derive(Clone, Debug, Default)]
pub struct GradReduction {
    /// The mesh axes over which each gradient is summed.
    pub gradient_axes: Vec<Vec<MeshAxis>>,
    /// The mesh axes over which the sum of squares of each gradient is summed.
    pub square_axes: Vec<Vec<MeshAxis>>,
    /// For each gradient, the mesh axes over which the sum of all squares is summed: its own axes,
    /// and those of pipeline stages that don't have it.
    pub norm_groups: Vec<Vec<MeshAxis>>,
    /// All such sets of axes on any rank: every rank must reduce in the same order.
    pub all_groups: Vec<Vec<MeshAxis>>,
    /// Bucket size in bytes; none selects the default.
    pub bucket_bytes: Option<usize>,
}

impl GradReduction {
    /// The reductions of some of the tensors.
    pub fn select(&self, chosen: &[usize]) -> GradReduction {
        let pick = |all: &Vec<Vec<MeshAxis>>| chosen.iter().filter_map(|&i| all.get(i).cloned()).collect();
        GradReduction {
            gradient_axes: pick(&self.gradient_axes),
            square_axes: pick(&self.square_axes),
            norm_groups: pick(&self.norm_groups),
            all_groups: self.all_groups.clone(),
            bucket_bytes: self.bucket_bytes,
        }
    }

    /// Sums gradients over the ranks that have partial sums.
    pub fn reduce_gradients(&self, b: &mut ir::Builder, gradients: &mut [Value]) -> ir::Result<()> {
        all_reduce_gradients(b, gradients, &self.gradient_axes, self.bucket_bytes.unwrap_or(DEFAULT_BUCKET_BYTES))
    }

    /// Sums a sum of squares over the ranks that have shards of the tensor.
    pub fn reduce_squares(&self, b: &mut ir::Builder, i: usize, sum: Value) -> ir::Result<Value> {
        match self.square_axes.get(i) {
            Some(axes) if !axes.is_empty() => b.psum(sum, axes),
            _ => Ok(sum),
        }
    }
}
