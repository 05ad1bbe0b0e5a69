//! `jacfwd`, `jacrev`, `hessian`: all derivatives at once, over a basis.

use super::reverse::at_point;
use super::{Function, fail_like, recorded};
use crate::{Result, Tensor, Tree, engine_of};
use ir::ops::{Iota, Reshape};
use ir::{Compare, GraphBuilder, Type, Values};

/// A Jacobian by forward mode. Made by [`jacfwd`].
pub struct JacFwd<F> {
    f: F,
}

/// A Jacobian by reverse mode. Made by [`jacrev`].
pub struct JacRev<F> {
    f: F,
}

/// The Jacobian of a function of one tensor, column by column: best when there are few arguments. Each result of shape
/// `s` gives a tensor of shape `s ++ x.shape`.
///
/// ```
/// use tensorloom::{Tensor, jacfwd, tensor};
///
/// let j = jacfwd(|x: Tensor| x.square()).call(tensor(&[1.0f32, 2.0], &[2]));
/// assert_eq!(j.to_vec::<f32>()?, [2.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn jacfwd<F>(f: F) -> JacFwd<F> {
    JacFwd { f }
}

/// The Jacobian of a function of one tensor, row by row: best when there are few results.
///
/// ```
/// use tensorloom::{Tensor, jacrev, tensor};
///
/// let j = jacrev(|x: Tensor| x.sum() * 3.0).call(tensor(&[1.0f32, 2.0], &[2]));
/// assert_eq!(j.to_vec::<f32>()?, [3.0, 3.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn jacrev<F>(f: F) -> JacRev<F> {
    JacRev { f }
}

/// The second derivatives of a function of one tensor.
///
/// ```
/// use tensorloom::{Tensor, hessian, tensor};
///
/// let h = hessian(|x: Tensor| x.index(0, 0) * x.index(0, 1)).call(tensor(&[5.0f32, 7.0], &[2]));
/// assert_eq!(h.to_vec::<f32>()?, [0.0, 1.0, 1.0, 0.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn hessian<F>(f: F) -> JacFwd<JacRev<F>> {
    jacfwd(jacrev(f))
}

/// `[n, shape..]`: the i-th slice is 1 at element i.
#[track_caller]
fn basis(like: &Tensor, ty: &Type) -> Tensor {
    let n = ty.numel();
    let shape: ir::Shape = std::iter::once(n).chain(ty.shape.iter().copied()).collect();
    let dtype = ty.dtype;
    let f = |b: &mut dyn GraphBuilder, _: &[ir::Value]| {
        let index = |axis| Iota { dtype: ir::DType::I32, shape: ir::Shape::from_slice(&[n, n]), axis };
        let (i, j) = (b.one(index(0).into(), &[])?, b.one(index(1).into(), &[])?);
        let eq = b.compare(Compare::Eq, i, j)?;
        let one = b.cast(eq, dtype)?;
        Ok(Values::from_elem(b.one(Reshape { shape }.into(), &[one])?, 1))
    };
    engine::extension::record_with(&crate::record::place(), 1, engine_of(like), &[], f).swap_remove(0)
}

fn shape_of(parts: &[&[usize]]) -> Vec<isize> {
    parts.iter().flat_map(|p| p.iter().map(|&n| n as isize)).collect()
}

impl<F> JacFwd<F> {
    /// The Jacobian at a point.
    #[track_caller]
    pub fn call(&self, x: Tensor) -> F::Out
    where
        F: Function<Tensor>,
        F::Out: Tree,
    {
        let _here = crate::record::here();
        let point = recorded(&self.f, &x, &[0]).and_then(|(s, wrt)| at_point(s, &wrt));
        let p = match point {
            Ok(p) => p,
            Err(e) => return e.result,
        };
        let made = (|| -> Result<F::Out> {
            let mut batched = vec![false; p.residuals.len()];
            batched.push(true);
            let want = vec![true; p.linear.outputs().len()];
            let (graph, _) = transform::vmap(&p.linear, &batched, &want, x.numel())?;
            let dx = basis(&x, x.ty());
            let inputs: Vec<&Tensor> = p.residuals.iter().chain([&dx]).collect();
            let outs = super::inline(&graph, &inputs);
            let mut outs = outs.iter();
            let mut marks = p.tangents.iter();
            Ok(p.result.map(|y| {
                let shape = shape_of(&[y.shape(), x.shape()]);
                if marks.next() != Some(&true) {
                    let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
                    return engine_of(y).zeros(y.dtype(), &shape);
                }
                let d = outs.next().expect("one for each mark");
                let mut perm: Vec<isize> = (1..d.rank() as isize).collect();
                perm.push(0);
                d.permute(&perm).reshape(&shape)
            }))
        })();
        made.unwrap_or_else(|e| fail_like(&p.result, e))
    }
}

impl<F> JacRev<F> {
    /// The Jacobian at a point.
    #[track_caller]
    pub fn call(&self, x: Tensor) -> F::Out
    where
        F: Function<Tensor>,
        F::Out: Tree,
    {
        let _here = crate::record::here();
        let point = recorded(&self.f, &x, &[0]).and_then(|(s, wrt)| at_point(s, &wrt));
        let p = match point {
            Ok(p) => p,
            Err(e) => return e.result,
        };
        let made = (|| -> Result<F::Out> {
            let flags: Vec<bool> = (0..=p.residuals.len()).map(|i| i == p.residuals.len()).collect();
            let mut k = 0;
            let mut rows = Vec::new();
            for (y, &mark) in p.result.leaves().iter().zip(&p.tangents) {
                let shape = shape_of(&[y.shape(), x.shape()]);
                let mut row = None;
                if mark {
                    let n = p.linear.outputs().len();
                    let cts: Vec<bool> = (0..n).map(|i| i == k).collect();
                    let (back, gives) = transform::transpose(&p.linear, &flags, &cts)?;
                    k += 1;
                    if gives == [true] {
                        let mut batched = vec![false; p.residuals.len()];
                        batched.push(true);
                        let (back, _) = transform::vmap(&back, &batched, &[true], y.numel())?;
                        let ct = basis(&x, y.ty());
                        let inputs: Vec<&Tensor> = p.residuals.iter().chain([&ct]).collect();
                        row = Some(super::inline(&back, &inputs).swap_remove(0).reshape(&shape));
                    }
                }
                let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
                rows.push(row.unwrap_or_else(|| engine_of(y).zeros(y.dtype(), &shape)));
            }
            let mut rows = rows.into_iter();
            Ok(p.result.rebuild(&mut || rows.next().expect("one for each result")))
        })();
        made.unwrap_or_else(|e| fail_like(&p.result, e))
    }
}

impl<F: Function<Tensor>> Function<Tensor> for JacFwd<F>
where
    F::Out: Tree,
{
    type Out = F::Out;

    #[track_caller]
    fn apply(&self, x: Tensor) -> F::Out {
        self.call(x)
    }
}

impl<F: Function<Tensor>> Function<Tensor> for JacRev<F>
where
    F::Out: Tree,
{
    type Out = F::Out;

    #[track_caller]
    fn apply(&self, x: Tensor) -> F::Out {
        self.call(x)
    }
}
