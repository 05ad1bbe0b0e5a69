//! Sliding windows over sequences of tensors, and pyramids of windows (§14.2).

use crate::error::{Error, Result};
use crate::infer::infer;
use crate::op::Op;
use crate::tensor::Tensor;
use std::collections::VecDeque;

/// Stacks consecutive tensors of a sequence: `size` tensors give one of the next higher rank, and windows start every `stride`
/// tensors.
///
/// ```
/// use tensorloom_vsla::{Tensor, Window};
///
/// let mut window = Window::new(2, 2)?;
/// assert!(window.push(Tensor::vector(&[1.0f64]))?.is_none());
/// let pair = window.push(Tensor::vector(&[2.0f64, 3.0]))?.expect("two make a window");
/// assert_eq!(pair.shape(), [2, 2]);
/// # Ok::<(), tensorloom_vsla::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Window {
    size: usize,
    stride: usize,
    /// The last tensors, at most `size`.
    held: VecDeque<Tensor>,
    /// The number of tensors to skip before the next window starts.
    skip: usize,
}

impl Window {
    /// Creates a window of `size` tensors that advances by `stride`.
    pub fn new(size: usize, stride: usize) -> Result<Window> {
        if size == 0 || stride == 0 {
            return Err(Error::invalid_arg("a window needs a size and a stride of at least 1"));
        }
        Ok(Window { size, stride, held: VecDeque::new(), skip: 0 })
    }

    /// Takes the next tensor and returns a stack when the window is full. A tensor that cannot be stacked with the others is
    /// rejected.
    pub fn push(&mut self, t: Tensor) -> Result<Option<Tensor>> {
        if let Some(held) = self.held.front() {
            infer(&Op::Stack, &[held.signature().clone(), t.signature().clone()])?;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(None);
        }
        self.held.push_back(t);
        if self.held.len() < self.size {
            return Ok(None);
        }
        let parts: Vec<&Tensor> = self.held.iter().collect();
        let stack = Tensor::stack(&parts)?;
        let drop = self.stride.min(self.size);
        self.held.drain(..drop);
        self.skip = self.stride - drop;
        Ok(Some(stack))
    }
}

/// Windows over windows: level `k` stacks the results of level `k - 1`, so each level has a higher rank and fewer tensors.
#[derive(Clone, Debug)]
pub struct Pyramid {
    levels: Vec<Window>,
}

impl Pyramid {
    /// Creates a pyramid with non-overlapping windows at each level.
    pub fn new(sizes: &[usize]) -> Result<Pyramid> {
        let levels = sizes.iter().map(|&w| Window::new(w, w)).collect::<Result<_>>()?;
        Ok(Pyramid { levels })
    }

    /// Returns the number of levels above the input sequence.
    pub fn height(&self) -> usize {
        self.levels.len()
    }

    /// Takes the next tensor and returns the stacks that it completed, in the order of the levels.
    pub fn push(&mut self, t: Tensor) -> Result<Vec<Tensor>> {
        let mut given = Vec::new();
        let mut next = Some(t);
        for level in &mut self.levels {
            let Some(t) = next.take() else { break };
            next = level.push(t)?;
            given.extend(next.clone());
        }
        Ok(given)
    }

    /// Returns every level of a finished sequence; level 0 is the sequence itself.
    pub fn stack_levels(sizes: &[usize], stream: &[Tensor]) -> Result<Vec<Vec<Tensor>>> {
        let mut pyramid = Pyramid::new(sizes)?;
        let mut levels = vec![Vec::new(); sizes.len() + 1];
        for t in stream {
            levels[0].push(t.clone());
            for (k, t) in pyramid.push(t.clone())?.into_iter().enumerate() {
                levels[k + 1].push(t);
            }
        }
        Ok(levels)
    }
}
