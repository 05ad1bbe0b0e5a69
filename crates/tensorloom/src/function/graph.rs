//! `make_graph` and `eval_shape`: what a function is, without running it.

use super::{Function, placeholders};
use crate::{Result, Tree, Type};
use ir::Graph;

/// The Graph of a function: inputs are the tensors of `args`, then those it captures; only the types of `args` count.
///
/// ```
/// use tensorloom::{Tensor, make_graph, zeros};
///
/// let g = make_graph(|x: Tensor| x.exp().sum(), zeros(&[3]))?;
/// assert_eq!(g.nodes().len(), 2);
/// assert!(g.to_string().contains("exp"));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn make_graph<A: Tree, F: Function<A>>(f: F, args: A) -> Result<Graph>
where
    F::Out: Tree,
{
    let _here = crate::record::here();
    let types: Vec<Type> = args.leaves().iter().map(|t| t.ty().clone()).collect();
    match placeholders(&f, &args, &types) {
        Ok(s) => Ok(s.graph),
        Err(e) => Err(e.error),
    }
}

/// The types of a function's results, without computing them.
///
/// ```
/// use tensorloom::{Tensor, eval_shape, zeros};
///
/// let types = eval_shape(|x: Tensor| x.matmul(&x.t()), zeros(&[2, 3]))?;
/// assert_eq!(types[0].to_string(), "f32[2,2]");
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn eval_shape<A: Tree, F: Function<A>>(f: F, args: A) -> Result<Vec<Type>>
where
    F::Out: Tree,
{
    let _here = crate::record::here();
    Ok(make_graph(f, args)?.output_types())
}
