//! Shapes and tensor types.

use crate::dtype::DType;
use crate::error::InferError;
use smallvec::SmallVec;
use std::fmt;

/// Axis sizes, outermost first.
pub type Shape = SmallVec<[usize; 6]>;

/// Dtype and shape of a value.
#[derive(Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Type {
    /// Element type.
    pub dtype: DType,
    /// Axis sizes.
    pub shape: Shape,
}

/// Types are cloned for every recorded op; copying the slice is several times faster than `SmallVec::clone`.
impl Clone for Type {
    fn clone(&self) -> Type {
        Type { dtype: self.dtype, shape: Shape::from_slice(&self.shape) }
    }
}

impl Type {
    /// A type; use [`Type::checked`] for untrusted sizes.
    pub fn new(dtype: DType, shape: &[usize]) -> Type {
        Type { dtype, shape: Shape::from_slice(shape) }
    }

    /// A type whose size in bytes fits an `isize`, also when zero axes are ignored.
    pub fn checked(dtype: DType, shape: &[usize]) -> Result<Type, InferError> {
        let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d.max(1)));
        match bytes {
            Some(n) if n <= isize::MAX as usize => Ok(Type::new(dtype, shape)),
            _ => Err(InferError::TooLarge { dtype, shape: Shape::from_slice(shape) }),
        }
    }

    /// A rank-0 type.
    pub fn scalar(dtype: DType) -> Type {
        Type::new(dtype, &[])
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in bytes of the dense form.
    pub fn bytes(&self) -> usize {
        self.numel() * self.dtype.size()
    }

    /// The same shape with another dtype.
    pub fn with_dtype(&self, dtype: DType) -> Type {
        Type { dtype, shape: self.shape.clone() }
    }

    /// The same dtype with another shape.
    pub fn with_shape(&self, shape: &[usize]) -> Type {
        Type::new(self.dtype, shape)
    }

    /// The type with an additional leading axis of `size`.
    pub fn batched(&self, size: usize) -> Type {
        let mut shape = self.shape.clone();
        shape.insert(0, size);
        Type { dtype: self.dtype, shape }
    }

    /// The type without its first axis.
    pub fn unbatched(&self) -> Type {
        Type::new(self.dtype, &self.shape[1..])
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[usize; 6]> {
        row_major(&self.shape)
    }
}

/// Row-major strides in elements.
pub fn row_major(shape: &[usize]) -> SmallVec<[usize; 6]> {
    let mut strides: SmallVec<[usize; 6]> = SmallVec::from_elem(1, shape.len());
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// Calls `f` with every multi-index of `shape`, in row-major order.
pub fn for_each_index(shape: &[usize], mut f: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, shape.len());
    loop {
        f(&index);
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// The dot product of an index and strides.
pub fn offset(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, s)| i * s).sum()
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.shape.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}
