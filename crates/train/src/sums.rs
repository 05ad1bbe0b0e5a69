//! What ranks sum of a step.

use crate::buckets::{BUCKET, summed};
use ir::{Build, MeshAxis, Value};

/// Sums that a step needs besides those inside of the loss.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Over which ranks each gradient is summed.
    pub gradients: Vec<Vec<MeshAxis>>,
    /// Over which ranks the squares of each are.
    pub squares: Vec<Vec<MeshAxis>>,
    /// Over which ranks the sum of all squares is, for each: that of its own, and of stages that don't have it.
    pub groups: Vec<Vec<MeshAxis>>,
    /// All of these that there are, on any rank: ranks sum in one order.
    pub all: Vec<Vec<MeshAxis>>,
    /// Bytes of gradients that are summed at once; none says the usual.
    pub bucket: Option<usize>,
}

impl Sums {
    /// Those of some tensors.
    pub fn of(&self, chosen: &[usize]) -> Sums {
        let pick = |all: &Vec<Vec<MeshAxis>>| chosen.iter().filter_map(|&i| all.get(i).cloned()).collect();
        Sums {
            gradients: pick(&self.gradients),
            squares: pick(&self.squares),
            groups: pick(&self.groups),
            all: self.all.clone(),
            bucket: self.bucket,
        }
    }

    /// Gradients summed over the ranks that have parts of the sums.
    pub fn gradients(&self, b: &mut ir::Builder, gradients: &mut [Value]) -> ir::Result<()> {
        summed(b, gradients, &self.gradients, self.bucket.unwrap_or(BUCKET))
    }

    /// A sum of squares over the ranks that have parts of the tensor.
    pub fn squares(&self, b: &mut ir::Builder, i: usize, sum: Value) -> ir::Result<Value> {
        match self.squares.get(i) {
            Some(axes) if !axes.is_empty() => b.psum(sum, axes),
            _ => Ok(sum),
        }
    }
}
