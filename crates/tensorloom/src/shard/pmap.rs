//! `pmap`: a function on as many ranks as the first axis of its arguments is long.

use super::{Mesh, Spec, shard_map};
use crate::function::{Function, call_error, fail_like};
use crate::{Tree, record};

/// A function on several ranks. Made by [`pmap`].
pub struct Pmap<F> {
    f: F,
    axis: String,
}

/// Maps a function over the first axis of its arguments, one rank for each element; ranks talk along the axis `ranks`, or as
/// [`Pmap::axis_name`] says. Results have the ranks in front.
///
/// ```
/// use tensorloom::{Tensor, arange, pmap, shard::psum};
///
/// let share = pmap(|x: Tensor| &x * 1.0 / psum(&(&x * 1.0), "ranks"));
/// assert_eq!(share.call(arange(4)).to_vec::<f32>()?[3], 0.5);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn pmap<F>(f: F) -> Pmap<F> {
    Pmap { f, axis: "ranks".to_string() }
}

impl<F> Pmap<F> {
    /// Another name for the axis along which ranks lie.
    pub fn axis_name(mut self, name: &str) -> Pmap<F> {
        self.axis = name.to_string();
        self
    }

    /// Calls the function on every rank.
    #[track_caller]
    pub fn call<A: Tree>(&self, args: A) -> F::Out
    where
        F: Function<A>,
        F::Out: Tree,
    {
        let _here = record::here();
        let at = record::place();
        let leaves = args.leaves();
        let sizes: Vec<Option<usize>> = leaves.iter().map(|t| t.shape().first().copied()).collect();
        let n = match &sizes[..] {
            [Some(n), rest @ ..] if *n > 0 && rest.iter().all(|m| *m == Some(*n)) => *n,
            _ => {
                let types: Vec<String> = leaves.iter().map(|t| t.ty().to_string()).collect();
                let text = format!("({}) must have the same first axis, with one element per rank", types.join(", "));
                let e = leaves.iter().find_map(|t| t.error()).unwrap_or_else(|| call_error("pmap", text, &at));
                return fail_like(&self.f.apply(fail_like(&args, e.clone())), e);
            }
        };
        let mesh = match Mesh::new(&[(&self.axis, n)]) {
            Ok(mesh) => mesh,
            Err(p) => {
                let e = call_error("pmap", p.to_string(), &at);
                return fail_like(&self.f.apply(fail_like(&args, e.clone())), e);
            }
        };
        let one = |args: A| {
            let own = args.map(|t| t.squeeze(0));
            self.f.apply(own).map(|t| t.unsqueeze(0))
        };
        let along = Spec::shard_dim(0, &self.axis);
        shard_map(&mesh, one).in_specs(along.clone()).out_specs(along).call(args)
    }
}

impl<A: Tree, F: Function<A>> Function<A> for Pmap<F>
where
    F::Out: Tree,
{
    type Out = F::Out;

    #[track_caller]
    fn apply(&self, args: A) -> F::Out {
        self.call(args)
    }
}
