//! The dimension numbers of `gather` and `scatter`, as in XLA.

use super::*;
use crate::scalar::Scalar;
use crate::types::{for_each_index, offset, row_major};

/// The axes that relate an operand, its indices and a tensor of slices (gather's result, scatter's updates).
///
/// The last axis of the indices contains one index vector; their other axes are the batch of slices. Axes of the slices
/// tensor that are not in `offset` are that batch, in order; those in `offset` index into a slice, along the operand
/// axes that are neither in `collapsed` nor in `operand_batch`, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct SliceDims {
    /// Axes of the slices tensor that index into a slice, increasing.
    pub offset: Shape,
    /// Operand axes with slice size 1 that the slices tensor does not have.
    pub collapsed: Shape,
    /// Operand axes that correspond to a batch axis of the indices.
    pub operand_batch: Shape,
    /// The batch axes of the indices that correspond to them, in the same order.
    pub index_batch: Shape,
    /// The operand axis of each component of an index vector.
    pub index_map: Shape,
}

impl SliceDims {
    /// NumPy's `take` along an axis of an operand, with indices of `index_rank` batch axes.
    pub fn take(rank: usize, axis: usize, index_rank: usize) -> SliceDims {
        let inner = axis.saturating_add(index_rank)..rank.saturating_add(index_rank).saturating_sub(1);
        SliceDims {
            offset: (0..axis.min(rank)).chain(inner).collect(),
            collapsed: [axis].into_iter().collect(),
            index_map: [axis].into_iter().collect(),
            ..SliceDims::default()
        }
    }

    /// NumPy's `take_along_axis`: one index for each element; all other axes are batch axes.
    pub fn along_axis(rank: usize, axis: usize) -> SliceDims {
        let others: Shape = (0..rank).filter(|&a| a != axis).collect();
        SliceDims {
            collapsed: [axis].into_iter().collect(),
            operand_batch: others.clone(),
            index_batch: others,
            index_map: [axis].into_iter().collect(),
            ..SliceDims::default()
        }
    }

    /// NumPy's `x[i, j, ..]` with index tensors for the first `indexed` axes, stacked along a last axis.
    pub fn leading(rank: usize, indexed: usize, index_rank: usize) -> SliceDims {
        let inner = rank.saturating_sub(indexed);
        SliceDims {
            offset: (index_rank..index_rank.saturating_add(inner)).collect(),
            collapsed: (0..indexed).collect(),
            index_map: (0..indexed).collect(),
            ..SliceDims::default()
        }
    }

    /// Whether the slices tensor has an axis for this operand axis.
    fn is_window(&self, axis: usize) -> bool {
        !self.collapsed.contains(&axis) && !self.operand_batch.contains(&axis)
    }

    /// The slice sizes that follow from the shape of a tensor of slices.
    pub fn slice_sizes(&self, rank: usize, slices: &[usize]) -> Shape {
        let mut window = self.offset.iter();
        (0..rank)
            .map(|a| match self.is_window(a) {
                true => window.next().and_then(|&d| slices.get(d)).copied().unwrap_or(1),
                false => 1,
            })
            .collect()
    }

    /// Checks everything and returns the shape of the slices tensor. If `inside` is set, slices must fit the operand.
    pub(crate) fn check(
        &self,
        operand: &Type,
        indices: &Type,
        sizes: &[usize],
        inside: bool,
    ) -> std::result::Result<Shape, InferError> {
        let rank = operand.rank();
        if !indices.dtype.is_int() {
            return Err(InferError::DType { operand: 1, expected: "an integer dtype", got: indices.dtype });
        }
        let Some((&components, batch)) = indices.shape.split_last() else {
            return Err(InferError::other("indices need a last axis that holds index vectors"));
        };
        if components != self.index_map.len() {
            return Err(InferError::other(format!(
                "index vectors of {components} components, but {:?} operand axes are indexed",
                self.index_map.as_slice()
            )));
        }
        let absent: Shape = self.collapsed.iter().chain(&self.operand_batch).copied().collect();
        let moved: Shape = self.index_map.iter().chain(&self.operand_batch).copied().collect();
        check_axes(&absent, rank)?;
        check_axes(&moved, rank)?;
        check_axes(&self.index_batch, batch.len())?;
        if self.operand_batch.len() != self.index_batch.len() {
            return Err(InferError::other("operand and indices must name as many batch axes"));
        }
        for (&a, &i) in self.operand_batch.iter().zip(&self.index_batch) {
            if operand.shape[a] != batch[i] {
                return Err(InferError::other(format!(
                    "axis {a} of {operand} goes along with axis {i} of the indices {indices}; their sizes differ"
                )));
            }
        }
        if sizes.len() != rank || self.offset.len() + absent.len() != rank {
            return Err(InferError::other(format!(
                "slices need a size for each of the {rank} axes of {operand}, of which {} walk and {} don't",
                self.offset.len(),
                absent.len()
            )));
        }
        if let Some(&a) = absent.iter().find(|&&a| sizes[a] != 1) {
            return Err(InferError::other(format!(
                "axis {a} is absent from the slices, so its slice size is 1, not {}",
                sizes[a]
            )));
        }
        let slices_rank = batch.len() + self.offset.len();
        if !self.offset.windows(2).all(|w| w[0] < w[1]) {
            return Err(InferError::other(format!("slice axes {:?} must increase", self.offset.as_slice())));
        }
        check_axes(&self.offset, slices_rank)?;
        let mut window = (0..rank).filter(|&a| self.is_window(a)).map(|a| sizes[a]);
        let mut outer = batch.iter().copied();
        let shape: Shape = (0..slices_rank)
            .filter_map(|d| match self.offset.contains(&d) {
                true => window.next(),
                false => outer.next(),
            })
            .collect();
        if inside
            && !shape.contains(&0)
            && let Some(a) = (0..rank).find(|&a| sizes[a] > operand.shape[a])
        {
            return Err(InferError::other(format!("a slice of {} does not fit axis {a} of {operand}", sizes[a])));
        }
        Ok(shape)
    }

    /// Calls `f` for every index of the slices tensor, in row-major order, with the operand's element there, or `None`
    /// if its slice is not completely inside. With `clip`, slices are moved inside first.
    pub(crate) fn walk(
        &self,
        operand: &Type,
        indices: &Literal,
        sizes: &[usize],
        slices: &[usize],
        clip: bool,
        mut f: impl FnMut(Option<usize>),
    ) {
        let index_strides = row_major(&indices.ty().shape);
        let strides = operand.strides();
        let window: Shape = (0..operand.rank()).filter(|&a| self.is_window(a)).collect();
        let fits = (0..operand.rank()).all(|a| sizes[a] <= operand.shape[a]);
        for_each_index(slices, |at| {
            if !fits {
                return f(None);
            }
            let outer: Shape = (0..at.len()).filter(|d| !self.offset.contains(d)).map(|d| at[d]).collect();
            let vector = offset(&outer, &index_strides);
            let mut place: Shape = operand.shape.iter().map(|_| 0).collect();
            for (k, &a) in self.index_map.iter().enumerate() {
                let room = (operand.shape[a] - sizes[a]) as i64;
                let start = index_value(indices.get(vector + k));
                if !clip && !(0..=room).contains(&start) {
                    return f(None);
                }
                place[a] = start.clamp(0, room) as usize;
            }
            for (&a, &i) in self.operand_batch.iter().zip(&self.index_batch) {
                place[a] = outer[i];
            }
            for (&a, &d) in window.iter().zip(&self.offset) {
                place[a] += at[d];
            }
            f(Some(offset(&place, &strides)))
        });
    }

    /// The dimension numbers after operand and slices get a leading batch axis, and the indices do not.
    pub(crate) fn batch_operand(&self) -> SliceDims {
        SliceDims {
            offset: std::iter::once(0).chain(up(&self.offset)).collect(),
            collapsed: up(&self.collapsed).collect(),
            operand_batch: up(&self.operand_batch).collect(),
            index_batch: self.index_batch.clone(),
            index_map: up(&self.index_map).collect(),
        }
    }

    /// The dimension numbers after indices and slices get a leading batch axis, and the operand does not.
    pub(crate) fn batch_indices(&self) -> SliceDims {
        SliceDims { offset: up(&self.offset).collect(), index_batch: up(&self.index_batch).collect(), ..self.clone() }
    }

    /// The dimension numbers after all three get a leading batch axis.
    pub(crate) fn batch_all(&self) -> SliceDims {
        SliceDims {
            offset: up(&self.offset).collect(),
            collapsed: up(&self.collapsed).collect(),
            operand_batch: std::iter::once(0).chain(up(&self.operand_batch)).collect(),
            index_batch: std::iter::once(0).chain(up(&self.index_batch)).collect(),
            index_map: up(&self.index_map).collect(),
        }
    }

    pub(crate) fn attrs(&self) -> Attrs {
        vec![
            ("offset", self.offset.as_slice().into()),
            ("collapsed", self.collapsed.as_slice().into()),
            ("operand_batch", self.operand_batch.as_slice().into()),
            ("index_batch", self.index_batch.as_slice().into()),
            ("index_map", self.index_map.as_slice().into()),
        ]
    }

    pub(crate) fn parse(attrs: &mut AttrReader) -> AttrResult<SliceDims> {
        Ok(SliceDims {
            offset: attrs.usizes("offset")?,
            collapsed: attrs.usizes("collapsed")?,
            operand_batch: attrs.usizes("operand_batch")?,
            index_batch: attrs.usizes("index_batch")?,
            index_map: attrs.usizes("index_map")?,
        })
    }
}

fn up(axes: &Shape) -> impl Iterator<Item = usize> + '_ {
    axes.iter().map(|a| a + 1)
}

/// An index of any integer dtype; a u64 beyond i64 is out of bounds for every axis, not negative.
pub(crate) fn index_value(s: Scalar) -> i64 {
    if s.dtype() == crate::dtype::DType::U64 { i64::try_from(s.bits()).unwrap_or(i64::MAX) } else { s.to_i64() }
}
