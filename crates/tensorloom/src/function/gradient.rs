//! `grad` and `value_and_grad`.

use super::trace::{Failed, call_error};
use super::{All, Function, Select, fail_like, recorded};
use crate::{Result, Tensor, Tree, Type};
use ir::Loc;
use std::marker::PhantomData;

/// The function gives the scalar alone.
#[derive(Debug)]
pub struct NoAux;

/// The function gives the scalar and further results.
#[derive(Debug)]
pub struct WithAux;

/// The gradient of a function. Made by [`grad`].
pub struct Grad<F, S = All, X = NoAux> {
    f: F,
    select: S,
    aux: PhantomData<X>,
}

/// The value and the gradient of a function. Made by [`value_and_grad`].
pub struct ValueAndGrad<F, S = All, X = NoAux> {
    f: F,
    select: S,
    aux: PhantomData<X>,
}

/// The gradient of a function that gives a float of rank 0, with respect to all its arguments.
///
/// ```
/// use tensorloom::{Tensor, grad, tensor};
///
/// let x = tensor(&[1.0f32, 2.0, 3.0], &[3]);
/// let g = grad(|x: Tensor| (&x * &x * &x).sum()).call(x);
/// assert_eq!(g.to_vec::<f32>()?, [3.0, 12.0, 27.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
///
/// Outside of traces the function runs on real tensors, so it may read them:
///
/// ```
/// use tensorloom::{Tensor, full, grad};
///
/// let halve_until_small = |x: Tensor| {
///     let mut y = x;
///     while y.item::<f32>().unwrap() > 1.0 {
///         y = y * 0.5;
///     }
///     y
/// };
/// assert_eq!(grad(halve_until_small).call(full(&[], 6.0)).item::<f32>()?, 0.125);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn grad<F>(f: F) -> Grad<F> {
    Grad { f, select: All, aux: PhantomData }
}

/// The value of a function that gives a float of rank 0, and its gradient.
///
/// ```
/// use tensorloom::{Tensor, tensor, value_and_grad};
///
/// let (y, g) = value_and_grad(|x: Tensor| x.square().sum()).call(tensor(&[3.0f32], &[1]));
/// assert_eq!((y.item::<f32>()?, g.to_vec::<f32>()?), (9.0, vec![6.0]));
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn value_and_grad<F>(f: F) -> ValueAndGrad<F> {
    ValueAndGrad { f, select: All, aux: PhantomData }
}

macro_rules! options {
    ($name:ident) => {
        impl<F, S, X> $name<F, S, X> {
            /// Differentiates with respect to these arguments only: `Arg::<0>`, `(Arg::<0>, Arg::<2>)`.
            pub fn argnums<T>(self, select: T) -> $name<F, T, X> {
                $name { f: self.f, select, aux: PhantomData }
            }

            /// The function gives `(scalar, aux)`; `aux` is handed on without a derivative.
            pub fn has_aux(self) -> $name<F, S, WithAux> {
                $name { f: self.f, select: self.select, aux: PhantomData }
            }
        }
    };
}
options!(Grad);
options!(ValueAndGrad);

/// The results and the gradient of the first of them.
#[track_caller]
fn both<A: Tree, S: Select<A>, F: Function<A>>(f: &F, select: &S, args: &A, op: &'static str) -> (F::Out, S::Out)
where
    F::Out: Tree,
{
    let at = crate::record::place();
    let picked = select.pick(args);
    let wrt = select.positions(args);
    let bad = |e: Failed<F::Out>| (e.result, fail_like(&picked, e.error));
    let leaves = args.leaves();
    if let Some(t) = wrt.iter().map(|&i| &leaves[i]).find(|t| t.error().is_none() && !t.dtype().is_float()) {
        let text = format!("an argument is {}, and only floats have gradients; choose others with argnums", t.ty());
        let error = call_error(op, text, &at);
        let result = fail_like(&f.apply(fail_like(args, error.clone())), error.clone());
        return bad(Failed { error, result });
    }
    let (staged, wrt) = match recorded(f, args, &wrt) {
        Ok(s) => s,
        Err(e) => return bad(e),
    };
    match differentiate(&staged.graph, &wrt, op, &at) {
        Ok(graph) => {
            let outs = super::inline(&graph, &staged.args());
            let n = staged.graph.outputs().len();
            let mut values = outs.iter();
            let result = (staged.result).rebuild(&mut || values.next().expect("one for each result").clone());
            let mut grads = outs[n.min(outs.len())..].iter();
            let grads = picked.rebuild(&mut || grads.next().expect("one for each argument").clone());
            (result, grads)
        }
        Err(error) => {
            let result = fail_like(&staged.result, error.clone());
            bad(Failed { error, result })
        }
    }
}

fn differentiate(graph: &ir::Graph, wrt: &[usize], op: &'static str, at: &Loc) -> Result<ir::Graph> {
    let scalar = |t: &Type| t.rank() == 0 && t.dtype.is_float();
    match graph.output_types().first() {
        Some(t) if scalar(t) => {}
        Some(t) => {
            let text = format!("the function returns {t}, but grad needs a float of rank 0; sum it, or use vjp");
            return Err(call_error(op, text, at));
        }
        None => return Err(call_error(op, "the function returns nothing", at)),
    }
    Ok(transform::value_and_grad(graph, wrt)?)
}

impl<F, S> Grad<F, S, NoAux> {
    /// The gradient at a point.
    #[track_caller]
    pub fn call<A: Tree>(&self, args: A) -> S::Out
    where
        F: Function<A, Out = Tensor>,
        S: Select<A>,
    {
        let _here = crate::record::here();
        both(&self.f, &self.select, &args, "grad").1
    }
}

impl<F, S> Grad<F, S, WithAux> {
    /// The gradient at a point, and what else the function gives there.
    #[track_caller]
    pub fn call<A: Tree, X: Tree>(&self, args: A) -> (S::Out, X)
    where
        F: Function<A, Out = (Tensor, X)>,
        S: Select<A>,
    {
        let _here = crate::record::here();
        let ((_, aux), grad) = both(&self.f, &self.select, &args, "grad");
        (grad, aux)
    }
}

impl<F, S> ValueAndGrad<F, S, NoAux> {
    /// Value and gradient at a point.
    #[track_caller]
    pub fn call<A: Tree>(&self, args: A) -> (Tensor, S::Out)
    where
        F: Function<A, Out = Tensor>,
        S: Select<A>,
    {
        let _here = crate::record::here();
        both(&self.f, &self.select, &args, "value_and_grad")
    }
}

impl<F, S> ValueAndGrad<F, S, WithAux> {
    /// Value with what else the function gives, and the gradient.
    #[track_caller]
    pub fn call<A: Tree, X: Tree>(&self, args: A) -> ((Tensor, X), S::Out)
    where
        F: Function<A, Out = (Tensor, X)>,
        S: Select<A>,
    {
        let _here = crate::record::here();
        both(&self.f, &self.select, &args, "value_and_grad")
    }
}

impl<A: Tree, F: Function<A, Out = Tensor>, S: Select<A>> Function<A> for Grad<F, S, NoAux> {
    type Out = S::Out;

    #[track_caller]
    fn apply(&self, args: A) -> S::Out {
        self.call(args)
    }
}

impl<A: Tree, X: Tree, F: Function<A, Out = (Tensor, X)>, S: Select<A>> Function<A> for Grad<F, S, WithAux> {
    type Out = (S::Out, X);

    #[track_caller]
    fn apply(&self, args: A) -> (S::Out, X) {
        self.call(args)
    }
}

impl<A: Tree, F: Function<A, Out = Tensor>, S: Select<A>> Function<A> for ValueAndGrad<F, S, NoAux> {
    type Out = (Tensor, S::Out);

    #[track_caller]
    fn apply(&self, args: A) -> (Tensor, S::Out) {
        self.call(args)
    }
}

impl<A: Tree, X: Tree, F: Function<A, Out = (Tensor, X)>, S: Select<A>> Function<A> for ValueAndGrad<F, S, WithAux> {
    type Out = ((Tensor, X), S::Out);

    #[track_caller]
    fn apply(&self, args: A) -> ((Tensor, X), S::Out) {
        self.call(args)
    }
}
