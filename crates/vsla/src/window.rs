//! Windows over streams of tensors, and pyramids of windows (§14.2).

use crate::error::{Error, Result};
use crate::infer::infer;
use crate::op::Op;
use crate::tensor::Tensor;
use std::collections::VecDeque;

/// Stacks neighbours of a stream: every `size` tensors give one of a rank more, one every `stride`.
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
    /// Tensors still to pass over before the next window starts.
    skip: usize,
}

impl Window {
    /// A window of so many tensors that moves on by `stride`.
    pub fn new(size: usize, stride: usize) -> Result<Window> {
        if size == 0 || stride == 0 {
            return Err(Error::invalid_arg("a window needs a size and a stride of at least 1"));
        }
        Ok(Window { size, stride, held: VecDeque::new(), skip: 0 })
    }

    /// Takes the next tensor; gives a stack when a window is full. One that doesn't stack with those held is not taken.
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

/// Windows over windows: level `k` stacks what level `k - 1` gives, so ranks rise and streams thin out.
#[derive(Clone, Debug)]
pub struct Pyramid {
    levels: Vec<Window>,
}

impl Pyramid {
    /// A pyramid with a window without overlap at each level.
    pub fn new(sizes: &[usize]) -> Result<Pyramid> {
        let levels = sizes.iter().map(|&w| Window::new(w, w)).collect::<Result<_>>()?;
        Ok(Pyramid { levels })
    }

    /// How many levels stand above the stream.
    pub fn height(&self) -> usize {
        self.levels.len()
    }

    /// Takes the next tensor; gives what each level, from the first, completed with it.
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

    /// Every level of a finished stream; level 0 is the stream itself.
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
