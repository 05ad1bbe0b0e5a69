//! Ambient shapes, capacities, and products of sizes that are checked for overflow.

use crate::error::{Error, ProgramFault, Result};
use ir::DType;

/// The element types of variable-shape tensors.
pub const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// Checks that variable-shape tensors support a dtype.
pub(crate) fn check_dtype(place: &str, dtype: DType) -> Result<()> {
    if DTYPES.contains(&dtype) {
        return Ok(());
    }
    let place = place.to_string();
    Err(ProgramFault::DType { place, dtype }.into())
}

/// The number of bytes that a process can address: 47 bits on x86-64 and on 64-bit ARM.
pub(crate) const MAX_ADDRESSABLE_BYTES: usize = if usize::BITS > 47 { 1 << 47 } else { isize::MAX as usize };

/// Checks that a tensor has an axis and that its bytes can be addressed. The size is computed in f64 for every dtype, because ops
/// compute in f64.
pub(crate) fn check_size(place: &str, shape: &[usize]) -> Result<()> {
    if shape.is_empty() {
        let place = place.to_string();
        return Err(ProgramFault::RankZero { place }.into());
    }
    // Empty axes count as 1, because a later stack or product could still multiply the other sizes.
    let bytes = (shape.iter()).try_fold(DType::F64.size(), |n, &d| n.checked_mul(d.max(1)));
    match bytes {
        Some(n) if n <= MAX_ADDRESSABLE_BYTES => Ok(()),
        _ => Err(ProgramFault::Overflow { place: place.to_string(), shape: shape.to_vec() }.into()),
    }
}

/// Returns the elementwise maximum of shapes of one rank (§4.1).
pub fn ambient(op: &str, shapes: &[&[usize]]) -> Result<Vec<usize>> {
    let Some((first, others)) = shapes.split_first() else {
        return Err(Error::shape(op, "needs at least one operand"));
    };
    let mut out = first.to_vec();
    for s in others {
        if s.len() != out.len() {
            return Err(Error::shape(
                op,
                format!(
                    "operands have ranks {} and {} (shapes {first:?} and {s:?}); reshape one, since only sizes are promoted",
                    out.len(),
                    s.len()
                ),
            ));
        }
        for (a, &b) in out.iter_mut().zip(*s) {
            *a = (*a).max(b);
        }
    }
    Ok(out)
}

/// Returns the elementwise minimum of two shapes of one rank.
pub(crate) fn common(a: &[usize], b: &[usize]) -> Vec<usize> {
    a.iter().zip(b).map(|(a, b)| *a.min(b)).collect()
}

/// Rounds each size up to a power of two; 0 stays 0.
pub fn next_pow2(shape: &[usize]) -> Option<Vec<usize>> {
    shape.iter().map(|&d| if d == 0 { Some(0) } else { d.checked_next_power_of_two() }).collect()
}

/// Returns the default capacity of a shape: powers of two if they don't overflow, else the shape.
pub(crate) fn default_capacity(shape: &[usize]) -> Vec<usize> {
    next_pow2(shape).filter(|c| check_size("capacity", c).is_ok()).unwrap_or_else(|| shape.to_vec())
}

/// Returns the axis for a signed number; negative numbers count from the last axis.
pub(crate) fn axis(op: &str, axis: i64, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    if (0..rank as i64).contains(&at) {
        Ok(at as usize)
    } else {
        Err(Error::shape(op, format!("axis {axis} of a tensor of rank {rank}; axes are -{rank}..{rank}")))
    }
}

/// Whether a shape is at most as large as another of the same rank on every axis.
pub(crate) fn fits_inside(small: &[usize], large: &[usize]) -> bool {
    small.len() == large.len() && small.iter().zip(large).all(|(a, b)| a <= b)
}
