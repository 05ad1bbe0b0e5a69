//! `Tensor`: an array in which trailing zeros are insignificant.

use crate::error::{Error, Result};
use crate::infer::ValueSignature;
use crate::op::Model;
use crate::shape::{check_dtype, check_size, default_capacity};
use ir::types::{for_each_index, offset, row_major};
use ir::{DType, Element, Scalar};
use std::fmt;

/// A representative of a class of arrays that differ only in trailing zeros.
///
/// Two tensors are equal if their minimal representatives are equal. No op shrinks its result; call [`Tensor::shrink`] for that.
/// Elements are in row-major order of the *capacity*, so a tensor can grow up to it without moving. Elements outside the logical
/// shape are never read.
///
/// ```
/// use tensorloom_vsla::Tensor;
///
/// let a = Tensor::vector(&[1.0f64, 2.0, 3.0]);
/// let b = Tensor::vector(&[4.0f64, 5.0]);
/// assert_eq!(a.add(&b)?, Tensor::vector(&[5.0f64, 7.0, 3.0]));
/// assert_eq!(Tensor::vector(&[1.0f64, 0.0, 0.0]), Tensor::vector(&[1.0f64]));
/// # Ok::<(), tensorloom_vsla::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    signature: ValueSignature,
    capacity: Vec<usize>,
    data: Vec<u8>,
}

impl Tensor {
    /// Creates a vector of model A.
    pub fn vector<T: Element>(data: &[T]) -> Tensor {
        Tensor::from_slice(&[data.len()], data).expect("a vector's length is its shape")
    }

    /// Creates a tensor of model A from elements in row-major order.
    pub fn from_slice<T: Element>(shape: &[usize], data: &[T]) -> Result<Tensor> {
        let mut t = Tensor::zeros(T::DTYPE, shape)?;
        if shape.iter().product::<usize>() != data.len() {
            return Err(Error::shape("from_slice", format!("{} elements for shape {shape:?}", data.len())));
        }
        let mut next = data.iter();
        t.each_mut(|s| *s = next.next().expect("as many as the shape says").to_scalar());
        Ok(t)
    }

    /// Creates a tensor from little-endian bytes in row-major order.
    pub fn from_bytes(signature: ValueSignature, bytes: &[u8]) -> Result<Tensor> {
        let mut t = Tensor::of(signature)?;
        if bytes.len() != t.signature.bytes() {
            return Err(Error::invalid_arg(format!("{} bytes for {}", bytes.len(), t.signature)));
        }
        let width = t.signature.shape.last().copied().unwrap_or(0) * t.dtype().size();
        let mut rows = bytes.chunks_exact(width.max(1));
        let starts = t.row_starts();
        for start in starts {
            if let Some(row) = rows.next() {
                t.data[start..start + width].copy_from_slice(row);
            }
        }
        Ok(t)
    }

    /// Creates a tensor of zeros of model A, which equals the empty tensor.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor> {
        Tensor::of(ValueSignature::new(dtype, shape))
    }

    /// Creates a tensor of zeros with a signature and a capacity that is a power of two on every axis.
    pub fn of(signature: ValueSignature) -> Result<Tensor> {
        let capacity = default_capacity(&signature.shape);
        Tensor::with_capacity(signature, &capacity)
    }

    /// Creates a tensor of zeros with a signature and a capacity.
    pub fn with_capacity(signature: ValueSignature, capacity: &[usize]) -> Result<Tensor> {
        check_dtype("a tensor", signature.dtype)?;
        check_size("a tensor", &signature.shape)?;
        if capacity.len() != signature.shape.len() || capacity.iter().zip(&signature.shape).any(|(c, s)| c < s) {
            return Err(Error::invalid_arg(format!("capacity {capacity:?} is less than shape {:?}", signature.shape)));
        }
        check_size("a tensor's capacity", capacity)?;
        let bytes = capacity.iter().product::<usize>() * signature.dtype.size();
        Ok(Tensor { signature, capacity: capacity.to_vec(), data: zeros(bytes)? })
    }

    /// Returns the same tensor in another model.
    pub fn in_model(mut self, model: Model) -> Tensor {
        self.signature.model = model;
        self
    }

    /// Returns the dtype, logical shape and model.
    pub fn signature(&self) -> &ValueSignature {
        &self.signature
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.signature.dtype
    }

    /// Returns the logical shape of this representative.
    pub fn shape(&self) -> &[usize] {
        &self.signature.shape
    }

    /// Returns the physical sizes.
    pub fn capacity(&self) -> &[usize] {
        &self.capacity
    }

    /// Returns the semiring.
    pub fn model(&self) -> Model {
        self.signature.model
    }

    /// Returns the element at an index; it is zero beyond the shape.
    pub fn get(&self, index: &[usize]) -> f64 {
        if index.len() != self.shape().len() || index.iter().zip(self.shape()).any(|(i, s)| i >= s) {
            return 0.0;
        }
        self.scalar(offset(index, &row_major(&self.capacity))).to_f64()
    }

    /// Returns the elements in row-major order of the logical shape, converted if the dtype differs.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        let mut out = Vec::with_capacity(self.shape().iter().product());
        self.each(|_, s| out.push(T::from_scalar(s.cast(T::DTYPE))));
        out
    }

    /// Returns the elements as little-endian bytes in row-major order of the logical shape.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.signature.bytes());
        if let Some(all) = self.dense() {
            out.extend_from_slice(all);
            return out;
        }
        let width = self.shape().last().copied().unwrap_or(0) * self.dtype().size();
        for start in self.row_starts() {
            out.extend_from_slice(&self.data[start..start + width]);
        }
        out
    }

    /// Copies the elements as little-endian bytes in row-major order of the logical shape. `to` must have exactly their size.
    pub fn read_into(&self, to: &mut [u8]) -> Result<()> {
        if to.len() != self.signature.bytes() {
            return Err(Error::invalid_arg(format!(
                "the buffer has {} bytes, but the tensor has {}",
                to.len(),
                self.signature.bytes()
            )));
        }
        if let Some(all) = self.dense() {
            to.copy_from_slice(all);
            return Ok(());
        }
        let width = self.shape().last().copied().unwrap_or(0) * self.dtype().size();
        for (start, to) in self.row_starts().into_iter().zip(to.chunks_exact_mut(width.max(1))) {
            to.copy_from_slice(&self.data[start..start + width]);
        }
        Ok(())
    }

    /// Returns the shape of the minimal representative: the smallest size on every axis that includes all nonzero elements.
    pub fn minimal_shape(&self) -> Vec<usize> {
        let mut least = vec![0; self.shape().len()];
        self.each(|index, s| {
            if s.to_f64() != 0.0 {
                for (l, i) in least.iter_mut().zip(index) {
                    *l = (*l).max(i + 1);
                }
            }
        });
        least
    }

    /// Returns the minimal representative, with its shape as capacity (§6.5). This reads every element; use it for serialization
    /// and to free memory, not in inner loops.
    pub fn shrink(&self) -> Tensor {
        let least = self.minimal_shape();
        let mut t = self.resized(&least, &least).expect("it is no larger");
        t.signature.model = self.model();
        t
    }

    /// Changes the logical shape: truncates, or promotes with zeros. The data is copied only if the capacity is exceeded, and the
    /// new capacity is the next power of two.
    pub fn resize(&mut self, shape: &[usize]) -> Result<()> {
        if shape.len() != self.shape().len() {
            return Err(Error::shape("resize", format!("{shape:?} has another rank than {:?}", self.shape())));
        }
        check_size("a tensor", shape)?;
        if shape.iter().zip(&self.capacity).any(|(s, c)| s > c) {
            let wanted = default_capacity(shape);
            let capacity: Vec<usize> = wanted.iter().zip(&self.capacity).map(|(a, b)| *a.max(b)).collect();
            *self = self.resized(shape, &capacity)?;
            return Ok(());
        }
        // Memory outside the logical shape is not initialized to zero, so new elements are set to zero.
        let old = std::mem::replace(&mut self.signature.shape, shape.to_vec());
        let (size, strides) = (self.dtype().size(), row_major(&self.capacity));
        for_each_index(shape, |index| {
            if index.iter().zip(&old).any(|(i, o)| i >= o) {
                let at = offset(index, &strides) * size;
                self.data[at..at + size].fill(0);
            }
        });
        Ok(())
    }

    /// Appends a slice, whose rank is smaller by one, along the first axis, and promotes the slice or this tensor as needed.
    /// Appending `n` slices takes `O(n)` time in total, because the capacity doubles.
    pub fn push(&mut self, slice: &Tensor) -> Result<()> {
        if slice.shape().len() + 1 != self.shape().len() || slice.dtype() != self.dtype() {
            return Err(Error::shape(
                "push",
                format!(
                    "{} into {}; a slice must have one axis less and the same dtype",
                    slice.signature, self.signature
                ),
            ));
        }
        let row = self.shape()[0];
        let inner = crate::shape::ambient("push", &[&self.shape()[1..], slice.shape()])?;
        let more = row.checked_add(1).ok_or_else(|| Error::invalid_arg("too many slices"))?;
        self.resize(&[&[more], &inner[..]].concat())?;
        let (size, strides) = (self.dtype().size(), row_major(&self.capacity));
        let from = row_major(&slice.capacity);
        for_each_index(slice.shape(), |index| {
            let (to, at) = (row * strides[0] + offset(index, &strides[1..]), offset(index, &from));
            self.data[to * size..(to + 1) * size].copy_from_slice(&slice.data[at * size..(at + 1) * size]);
        });
        Ok(())
    }

    fn resized(&self, shape: &[usize], capacity: &[usize]) -> Result<Tensor> {
        let signature = ValueSignature { shape: shape.to_vec(), ..self.signature.clone() };
        let mut t = Tensor::with_capacity(signature, capacity)?;
        let (size, to, from) = (self.dtype().size(), row_major(capacity), row_major(&self.capacity));
        let both = crate::shape::common(shape, self.shape());
        for_each_index(&both, |index| {
            let (to, at) = (offset(index, &to) * size, offset(index, &from) * size);
            t.data[to..to + size].copy_from_slice(&self.data[at..at + size]);
        });
        Ok(t)
    }

    fn scalar(&self, at: usize) -> Scalar {
        let size = self.dtype().size();
        let mut raw = [0; 8];
        raw[..size].copy_from_slice(&self.data[at * size..(at + 1) * size]);
        Scalar::from_bits(self.dtype(), u64::from_le_bytes(raw))
    }

    fn each(&self, mut f: impl FnMut(&[usize], Scalar)) {
        let strides = row_major(&self.capacity);
        for_each_index(self.shape(), |index| f(index, self.scalar(offset(index, &strides))));
    }

    fn each_mut(&mut self, mut f: impl FnMut(&mut Scalar)) {
        let (size, strides) = (self.dtype().size(), row_major(&self.capacity));
        let shape = self.signature.shape.clone();
        for_each_index(&shape, |index| {
            let at = offset(index, &strides);
            let mut s = self.scalar(at);
            f(&mut s);
            self.data[at * size..(at + 1) * size].copy_from_slice(&s.bits().to_le_bytes()[..size]);
        });
    }

    /// Returns the byte offsets of the rows along the last axis.
    fn row_starts(&self) -> Vec<usize> {
        let (size, strides) = (self.dtype().size(), row_major(&self.capacity));
        let mut starts = Vec::new();
        if !self.shape().contains(&0) {
            let rank = self.shape().len();
            for_each_index(&self.shape()[..rank - 1], |index| {
                starts.push(offset(index, &strides[..rank - 1]) * size);
            });
        }
        starts
    }

    /// Returns the elements in place if they are contiguous, that is, if no axis but the first has unused capacity.
    pub(crate) fn dense(&self) -> Option<&[u8]> {
        (self.capacity.get(1..) == self.shape().get(1..)).then(|| &self.data[..self.signature.bytes()])
    }

    /// Returns the contiguous elements as [`Tensor::dense`] does, for writing.
    pub(crate) fn dense_mut(&mut self) -> Option<&mut [u8]> {
        let bytes = self.signature.bytes();
        (self.capacity.get(1..) == self.shape().get(1..)).then(|| &mut self.data[..bytes])
    }

    /// Passes the rows of the tensor, promoted to `shape`, to `sink` as byte offset and bytes. Elements that are not passed are
    /// zero. Allocates nothing.
    pub(crate) fn rows_in(&self, shape: &[usize], mut sink: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        if self.shape().contains(&0) {
            return Ok(());
        }
        let (size, rank) = (self.dtype().size(), shape.len());
        let (from, to) = (row_major(&self.capacity), row_major(shape));
        let width = self.shape()[rank - 1] * size;
        let mut result = Ok(());
        for_each_index(&self.shape()[..rank - 1], |index| {
            if result.is_ok() {
                let at = offset(index, &from[..rank - 1]) * size;
                result = sink(offset(index, &to[..rank - 1]) * size, &self.data[at..at + width]);
            }
        });
        result
    }
}

/// Returns zeroed memory. It comes zeroed from the system where possible, so unused capacity uses no physical memory.
fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let fail = || Error::OutOfMemory { bytes };
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let layout = std::alloc::Layout::array::<u8>(bytes).map_err(|_| fail())?;
    // SAFETY: the size isn't zero; the vector gets what the allocator gave, with its layout, all of it initialised.
    unsafe {
        let at = std::ptr::NonNull::new(std::alloc::alloc_zeroed(layout)).ok_or_else(fail)?;
        Ok(Vec::from_raw_parts(at.as_ptr(), bytes, bytes))
    }
}

/// Compares classes: same dtype, model and rank, and equal minimal representatives. A NaN equals nothing.
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        let (a, b) = (&self.signature, &other.signature);
        if a.dtype != b.dtype || a.model != b.model || a.shape.len() != b.shape.len() {
            return false;
        }
        let mut equal = true;
        self.each(|index, s| equal &= s.to_f64() == other.get(index));
        other.each(|index, s| equal &= s.to_f64() == self.get(index));
        equal
    }
}

/// Prints the shape and dtype, and the elements of small tensors.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.signature)?;
        if self.shape().iter().product::<usize>() <= 64 {
            f.debug_list().entries(self.to_vec::<f64>()).finish()?;
        }
        Ok(())
    }
}
