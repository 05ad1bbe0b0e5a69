//! Optimisers as chains of gradient transforms, in the style of optax.
//!
//! A transform maps gradients to updates and keeps a state; both are trees, so a training step can be compiled as a whole.
//!
//! ```
//! use tensorloom::{Tensor, jit, optim, tensor, value_and_grad};
//!
//! let optimizer = optim::chain([optim::clip_by_global_norm(1.0), optim::adam(0.1)]);
//! let mut params = tensor(&[5.0f32, -3.0], &[2]);
//! let mut state = optimizer.init(&params);
//! let step = jit(|(params, state): (Tensor, optim::OptState)| {
//!     let (loss, grads) = value_and_grad(|p: Tensor| p.square().sum()).call(params.clone());
//!     let (updates, state) = optimizer.update(&grads, &state, &params);
//!     (optim::apply_updates(&params, &updates), state, loss)
//! });
//! for _ in 0..200 {
//!     (params, state, _) = step.call((params, state));
//! }
//! assert!(params.abs().max().item::<f32>()? < 0.05);
//! # Ok::<(), tensorloom::Error>(())
//! ```

mod alias;
mod clip;
mod factored;
mod moments;
#[cfg(feature = "linalg")]
mod muon;
mod scale;
mod schedule;

pub use alias::*;
pub use clip::{adaptive_grad_clip, clip, clip_by_block_rms, clip_by_global_norm, global_norm};
pub use factored::{adafactor, scale_by_factored_rms};
pub use moments::*;
#[cfg(feature = "linalg")]
pub use muon::{muon, scale_by_muon};
pub use scale::*;
pub use schedule::*;

use crate::function::fail_like;
use crate::{DType, Tensor, Tree, engine_of, np, record};

/// A gradient transform: what a link of a chain does to the leaves of a tree.
pub trait Transform: Send + Sync {
    /// The state before the first step.
    fn init(&self, params: &[Tensor]) -> Vec<Tensor>;

    /// The updates, and the state after this step.
    fn update(&self, updates: Vec<Tensor>, state: &[Tensor], params: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>);
}

/// A chain of transforms.
pub struct GradientTransformation {
    links: Vec<Box<dyn Transform>>,
}

/// The state of a chain: a list of tensors for each link.
#[derive(Clone, Debug, Tree)]
pub struct OptState {
    /// In the order of the links.
    pub parts: Vec<Vec<Tensor>>,
}

/// One transform after another.
pub fn chain(links: impl IntoIterator<Item = GradientTransformation>) -> GradientTransformation {
    GradientTransformation { links: links.into_iter().flat_map(|o| o.links).collect() }
}

impl GradientTransformation {
    /// A chain of one transform of your own.
    pub fn new(transform: impl Transform + 'static) -> GradientTransformation {
        GradientTransformation { links: vec![Box::new(transform)] }
    }

    /// The state before the first step.
    #[track_caller]
    pub fn init<P: Tree>(&self, params: &P) -> OptState {
        let _here = crate::record::here();
        let leaves = params.leaves();
        OptState { parts: self.links.iter().map(|l| l.init(&leaves)).collect() }
    }

    /// Updates for gradients, and the state after this step.
    #[track_caller]
    pub fn update<P: Tree>(&self, grads: &P, state: &OptState, params: &P) -> (P, OptState) {
        let _here = crate::record::here();
        let leaves = params.leaves();
        let mut updates = grads.leaves();
        let fits = updates.len() == leaves.len() && state.parts.len() == self.links.len();
        let same = updates.iter().zip(&leaves).find(|(g, p)| g.ty() != p.ty() && g.error().or(p.error()).is_none());
        if !fits || same.is_some() {
            let text = match same {
                Some((g, p)) => format!("a gradient is {} for a parameter of {}", g.ty(), p.ty()),
                None => "gradients, parameters and state do not belong to one optimizer and one tree".to_string(),
            };
            let e = record::error("optim::update", text);
            return (fail_like(grads, e.clone()), fail_like(state, e));
        }
        let mut parts = Vec::new();
        for (link, part) in self.links.iter().zip(&state.parts) {
            let (u, s) = link.update(updates, part, &leaves);
            updates = u;
            parts.push(s);
        }
        let mut next = updates.into_iter();
        (grads.rebuild(&mut || next.next().expect("one for each leaf")), OptState { parts })
    }
}

/// Parameters with their updates added.
#[track_caller]
pub fn apply_updates<P: Tree>(params: &P, updates: &P) -> P {
    let _here = crate::record::here();
    let updates = updates.leaves();
    let mut next = updates.iter();
    params.map(|p| match next.next() {
        Some(u) => (p + u).cast(p.dtype()),
        None => record::invalid("apply_updates", "there are fewer updates than parameters"),
    })
}

/// How many steps there were.
pub(crate) struct Clock {
    /// Before this step, as f64.
    before: Tensor,
}

impl Clock {
    fn of(count: &Tensor) -> Clock {
        Clock { before: count.cast(DType::F64) }
    }

    /// `1 − bᵗ` after this step (`ahead` steps later), of the dtype of `like`.
    fn correction(&self, b: f64, ahead: f64, like: &Tensor) -> Tensor {
        (1.0 - self.power(b, ahead)).cast(like.dtype())
    }

    fn power(&self, b: f64, ahead: f64) -> Tensor {
        ((&self.before + (1.0 + ahead)) * b.ln()).exp()
    }

    fn is_first(&self) -> Tensor {
        np::equal(&self.before, 0.0)
    }
}

fn counter(params: &[Tensor]) -> Tensor {
    params.first().map_or(crate::engine(), engine_of).zeros(DType::I32, &[])
}

type Step = dyn Fn(&Clock, &Tensor, &Tensor, &[Tensor]) -> (Tensor, Vec<Tensor>) + Send + Sync;

/// A transform of each leaf by itself, with a counter and some tensors of the leaf's shape.
struct PerLeaf {
    /// What those tensors are filled with at first.
    start: Vec<f64>,
    /// Clock, gradient, parameter and state to update and state.
    step: Box<Step>,
}

fn per_leaf(
    start: &[f64],
    step: impl Fn(&Clock, &Tensor, &Tensor, &[Tensor]) -> (Tensor, Vec<Tensor>) + Send + Sync + 'static,
) -> GradientTransformation {
    GradientTransformation::new(PerLeaf { start: start.to_vec(), step: Box::new(step) })
}

impl Transform for PerLeaf {
    fn init(&self, params: &[Tensor]) -> Vec<Tensor> {
        let mut state = vec![counter(params)];
        state.extend(params.iter().flat_map(|p| self.start.iter().map(|&x| np::full_like(p, x))));
        state
    }

    fn update(&self, updates: Vec<Tensor>, state: &[Tensor], params: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
        let clock = Clock::of(&state[0]);
        let mut new = vec![&state[0] + 1];
        let mut out = Vec::new();
        for ((g, p), s) in updates.iter().zip(params).zip(state[1..].chunks(self.start.len())) {
            let (u, s) = (self.step)(&clock, g, p, s);
            out.push(u);
            new.extend(s);
        }
        (out, new)
    }
}

/// A transform without state.
struct Stateless<F>(F);

fn stateless(f: impl Fn(Vec<Tensor>, &[Tensor]) -> Vec<Tensor> + Send + Sync + 'static) -> GradientTransformation {
    GradientTransformation::new(Stateless(f))
}

impl<F: Fn(Vec<Tensor>, &[Tensor]) -> Vec<Tensor> + Send + Sync> Transform for Stateless<F> {
    fn init(&self, _: &[Tensor]) -> Vec<Tensor> {
        Vec::new()
    }

    fn update(&self, updates: Vec<Tensor>, _: &[Tensor], params: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
        ((self.0)(updates, params), Vec::new())
    }
}

/// A transform of each leaf by itself, without state.
fn each(f: impl Fn(&Tensor, &Tensor) -> Tensor + Send + Sync + 'static) -> GradientTransformation {
    stateless(move |updates, params| updates.iter().zip(params).map(|(g, p)| f(g, p)).collect())
}

/// The same, with a counter.
struct Counted<F>(F);

impl<F: Fn(&Tensor, Vec<Tensor>, &[Tensor]) -> Vec<Tensor> + Send + Sync> Transform for Counted<F> {
    fn init(&self, params: &[Tensor]) -> Vec<Tensor> {
        vec![counter(params)]
    }

    fn update(&self, updates: Vec<Tensor>, state: &[Tensor], params: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
        ((self.0)(&state[0], updates, params), vec![&state[0] + 1])
    }
}

/// `decay·m + (1 − decay)·x`.
fn moment(m: &Tensor, x: &Tensor, decay: f64) -> Tensor {
    m * decay + x * (1.0 - decay)
}
