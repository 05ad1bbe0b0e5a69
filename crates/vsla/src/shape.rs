//! Shapes as data: ambient shapes, capacities, sizes that can't overflow.

use crate::error::{Error, ProgramFault, Result};
use ir::DType;

/// The element types of variable-shape tensors.
pub const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// Checks that tensors may have this dtype.
pub(crate) fn check_dtype(place: &str, dtype: DType) -> Result<()> {
    if DTYPES.contains(&dtype) {
        return Ok(());
    }
    let place = place.to_string();
    Err(ProgramFault::DType { place, dtype }.into())
}

/// The bytes that a process can address: 47 bits on x86-64 and on 64-bit ARM.
pub(crate) const MAX_ADDRESSABLE_BYTES: usize = if usize::BITS > 47 { 1 << 47 } else { isize::MAX as usize };

/// Checks that a tensor has an axis and that its bytes can be addressed. They must be so in f64, whatever its dtype: that is
/// what ops compute in.
pub(crate) fn check_size(place: &str, shape: &[usize]) -> Result<()> {
    if shape.is_empty() {
        let place = place.to_string();
        return Err(ProgramFault::RankZero { place }.into());
    }
    // An empty axis doesn't excuse the others: a later stack or product would multiply them.
    let bytes = (shape.iter()).try_fold(DType::F64.size(), |n, &d| n.checked_mul(d.max(1)));
    match bytes {
        Some(n) if n <= MAX_ADDRESSABLE_BYTES => Ok(()),
        _ => Err(ProgramFault::Overflow { place: place.to_string(), shape: shape.to_vec() }.into()),
    }
}

/// The elementwise maximum of shapes of one rank (§4.1).
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

/// The elementwise minimum of two shapes of one rank.
pub(crate) fn common(a: &[usize], b: &[usize]) -> Vec<usize> {
    a.iter().zip(b).map(|(a, b)| *a.min(b)).collect()
}

/// The smallest power of two at least as large on every axis; 0 stays 0.
pub fn next_pow2(shape: &[usize]) -> Option<Vec<usize>> {
    shape.iter().map(|&d| if d == 0 { Some(0) } else { d.checked_next_power_of_two() }).collect()
}

/// The capacity that a shape gets when nobody says otherwise: powers of two where they can be had, else the shape.
pub(crate) fn default_capacity(shape: &[usize]) -> Vec<usize> {
    next_pow2(shape).filter(|c| check_size("capacity", c).is_ok()).unwrap_or_else(|| shape.to_vec())
}

/// The axis a signed number names; negative ones count from the back.
pub(crate) fn axis(op: &str, axis: i64, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    if (0..rank as i64).contains(&at) {
        Ok(at as usize)
    } else {
        Err(Error::shape(op, format!("axis {axis} of a tensor of rank {rank}; axes are -{rank}..{rank}")))
    }
}

/// Whether a shape lies inside another of the same rank.
pub(crate) fn fits_inside(small: &[usize], large: &[usize]) -> bool {
    small.len() == large.len() && small.iter().zip(large).all(|(a, b)| a <= b)
}
