//! What ranks sum of a step.

use crate::buckets::{DEFAULT_BUCKET_BYTES, all_reduce_gradients};
use ir::{GraphBuilder, MeshAxis, Value};

/// Sums that a step needs besides those inside of the loss.
#[derive(Clone, Debug, Default)]
pub struct GradReduction {
    /// Over which ranks each gradient is summed.
    pub gradient_axes: Vec<Vec<MeshAxis>>,
    /// Over which ranks the squares of each are.
    pub square_axes: Vec<Vec<MeshAxis>>,
    /// Over which ranks the sum of all squares is, for each: that of its own, and of stages that don't have it.
    pub norm_groups: Vec<Vec<MeshAxis>>,
    /// All of these that there are, on any rank: ranks sum in one order.
    pub all_groups: Vec<Vec<MeshAxis>>,
    /// Bytes of gradients that are summed at once; none says the usual.
    pub bucket_bytes: Option<usize>,
}

impl GradReduction {
    /// Those of some tensors.
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

    /// Gradients summed over the ranks that have parts of the sums.
    pub fn reduce_gradients(&self, b: &mut ir::Builder, gradients: &mut [Value]) -> ir::Result<()> {
        all_reduce_gradients(b, gradients, &self.gradient_axes, self.bucket_bytes.unwrap_or(DEFAULT_BUCKET_BYTES))
    }

    /// A sum of squares over the ranks that have parts of the tensor.
    pub fn reduce_squares(&self, b: &mut ir::Builder, i: usize, sum: Value) -> ir::Result<Value> {
        match self.square_axes.get(i) {
            Some(axes) if !axes.is_empty() => b.psum(sum, axes),
            _ => Ok(sum),
        }
    }
}
