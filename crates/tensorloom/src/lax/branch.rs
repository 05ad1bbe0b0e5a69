//! Branches.

use crate::function::{Function, fail_like};
use crate::{DType, Error, Result, Tensor, Tree, Type, record, trace};
use ir::Loc;
use ir::ops::Cond;

/// `on_true(operands)` if the predicate holds, else `on_false(operands)`; only one of them runs.
///
/// ```
/// use tensorloom::{Tensor, full, grad, lax};
///
/// let f = |x: Tensor| lax::cond(&x.gt(&full(&[], 0.0)), |x: Tensor| x.square(), |x: Tensor| -x, x.clone());
/// assert_eq!(grad(f).call(full(&[], 3.0)).item::<f32>()?, 6.0);
/// assert_eq!(grad(f).call(full(&[], -3.0)).item::<f32>()?, -1.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn cond<A: Tree, R: Tree>(pred: &Tensor, on_true: impl Fn(A) -> R, on_false: impl Fn(A) -> R, operands: A) -> R {
    let _here = crate::record::here();
    choose("cond", pred, &[&on_false, &on_true], &operands, &crate::record::place())
}

/// The branch that an integer names, moved inside the list.
///
/// ```
/// use tensorloom::{Tensor, full, lax, tensor};
///
/// let y = lax::switch(&tensor(&[1i32], &[]), [&|x: Tensor| x.exp(), &|x: Tensor| x * 2.0], full(&[], 4.0));
/// assert_eq!(y.item::<f32>()?, 8.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn switch<A: Tree, R: Tree, const N: usize>(index: &Tensor, branches: [&dyn Fn(A) -> R; N], operands: A) -> R {
    const { assert!(N > 0, "switch needs at least one branch") };
    choose("switch", index, &branches, &operands, &crate::record::place())
}

#[track_caller]
fn choose<A: Tree, R: Tree>(
    op: &'static str,
    index: &Tensor,
    branches: &[&dyn Fn(A) -> R],
    operands: &A,
    at: &Loc,
) -> R {
    let mut structure = None;
    let made = emit(op, index, branches, operands, &mut structure, at);
    match made {
        Ok(outs) => {
            let mut outs = outs.into_iter();
            let r = structure.expect("a branch was traced");
            r.rebuild(&mut || outs.next().expect("one for each result"))
        }
        Err(e) => {
            let r = structure.unwrap_or_else(|| branches[0].apply(fail_like(operands, e.clone())));
            fail_like(&r, e)
        }
    }
}

#[track_caller]
fn emit<A: Tree, R: Tree>(
    op: &'static str,
    index: &Tensor,
    branches: &[&dyn Fn(A) -> R],
    operands: &A,
    structure: &mut Option<R>,
    at: &Loc,
) -> Result<Vec<Tensor>> {
    let bad = |reason: String| Error::Call { op, reason, at: at.clone() };
    let args = operands.leaves();
    if let Some(e) = args.iter().chain([index]).find_map(|t| t.error()) {
        return Err(e);
    }
    if index.rank() != 0 || index.dtype().is_float() {
        let what = if op == "cond" { "a bool" } else { "an integer" };
        return Err(bad(format!("the choice is {}, not {what} of rank 0", index.ty())));
    }
    let types: Vec<Type> = args.iter().map(|t| t.ty().clone()).collect();
    let mut traced = Vec::new();
    for f in branches {
        traced.push(trace::trace(&types, |t| {
            let mut t = t.iter();
            let r = f.apply(operands.rebuild(&mut || t.next().expect("one for each").clone()));
            let outs = r.leaves();
            structure.get_or_insert(r);
            outs
        })?);
    }
    let first = traced[0].graph.output_types();
    for (i, t) in traced.iter().enumerate() {
        let types = t.graph.output_types();
        if types != first {
            let show = |t: &[Type]| t.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
            return Err(bad(format!("branch 0 returns ({}), but branch {i} returns ({})", show(&first), show(&types))));
        }
    }
    // Every branch sees the operands and what any of them captures.
    let captures: Vec<Tensor> = traced.iter().flat_map(|t| t.captures.iter().cloned()).collect();
    let mut seen = 0;
    let mut graphs = Vec::new();
    for t in &traced {
        let mut g = ir::Graph::new();
        let all = types.iter().cloned().chain(captures.iter().map(|c| c.ty().clone()));
        let inputs: Vec<_> = all.map(|t| g.input(t)).collect();
        let mut own = inputs[..types.len()].to_vec();
        let at = types.len() + seen;
        own.extend(&inputs[at..at + t.captures.len()]);
        seen += t.captures.len();
        let outs = t.graph.inline(&mut g, &own)?;
        g.set_outputs(outs);
        graphs.push(g);
    }
    let index = index.cast(DType::I32);
    let operands: Vec<&Tensor> = [&index].into_iter().chain(&args).chain(&captures).collect();
    let mut outs = record::many(first.len(), &operands, |b, v| b.emit(Cond::new(graphs).into(), v));
    outs.truncate(first.len());
    Ok(outs)
}
