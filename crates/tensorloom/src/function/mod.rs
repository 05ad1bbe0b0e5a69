//! Functions of tensors and what is made of them: `jit`, `grad`, `vmap` and the others.
//!
//! Every transform takes a [`Function`]: a closure from one [`Tree`] to another, or the result of another transform; so
//! they nest in any order. A transform traces its function into a Graph, rewrites the Graph, and records the result
//! wherever it was called: on eager tensors, or inside another trace.
//!
//! ```
//! use tensorloom::{Tensor, grad, tensor_of, vmap};
//!
//! let f = |x: Tensor| x.sin() * &x;
//! let slope = vmap(grad(f)).call(tensor_of::<f64>(&[0.0, 1.0], 2));
//! let expected = 1f64.sin() + 1f64.cos();
//! assert_eq!(slope.to_vec::<f64>()?, [0.0, expected]);
//! # Ok::<(), tensorloom::Error>(())
//! ```

mod checkpoint;
mod custom;
mod forward;
mod gradient;
mod graph;
mod jacobian;
mod jit;
mod reverse;
mod select;
mod trace;
mod vmap;

pub use checkpoint::{Checkpointed, checkpoint};
pub use custom::{CustomJvp, CustomVjp, custom_jvp, custom_vjp};
pub use forward::{LinearMap, jvp, linearize};
pub use gradient::{Grad, NoAux, ValueAndGrad, WithAux, grad, value_and_grad};
pub use graph::{eval_shape, make_graph};
pub use jacobian::{JacFwd, JacRev, hessian, jacfwd, jacrev};
pub use jit::{Jit, JitStats, Signature, jit};
pub use reverse::{Vjp, vjp};
pub use select::{All, Arg, Select};
pub(crate) use trace::{Staged, call_error, fail_like, inline, placeholders, recorded};
pub use vmap::{Axes, Vmap, vmap};

/// A function of a tree: a closure, or what a transform made of one.
///
/// It takes one argument; several are a tuple:
///
/// ```
/// use tensorloom::prelude::*;
///
/// let f = jit(|(x, y): (Tensor, Tensor)| x * y);
/// assert_eq!(f.call((ones(2), full(2, 3))).to_vec::<f32>()?, [3.0, 3.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// use tensorloom::prelude::*;
///
/// let f = jit(|x: Tensor, y: Tensor| x * y); // "a function takes one argument .."
/// f.call((ones(2), ones(2)));
/// ```
#[diagnostic::on_unimplemented(
    message = "this is not a function of `{A}`",
    label = "a function takes one argument",
    note = "several arguments are one tuple: `|(x, y): (Tensor, Tensor)| ..`, called with `.call((x, y))`",
    note = "arguments are passed by value, not by reference: `|x: Tensor| ..`"
)]
pub trait Function<A> {
    /// What it gives.
    type Out;

    /// Calls it.
    fn apply(&self, args: A) -> Self::Out;
}

#[diagnostic::do_not_recommend]
impl<A, R, F: Fn(A) -> R> Function<A> for F {
    type Out = R;

    fn apply(&self, args: A) -> R {
        let _user = engine::enter_user_code();
        self(args)
    }
}
