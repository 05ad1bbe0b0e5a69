//! Loops of other kinds.

use super::scan::{Scan, check_carries};
use crate::function::{Function, fail_like};
use crate::{DType, Error, Result, Tensor, Tree, Type, record, trace};
use ir::Loc;
use ir::ops::While;

/// Repeats `body` as long as `cond` holds. The number of iterations is not known before, so only forward mode goes
/// through; for reverse mode use a scan with a bounded `count`.
///
/// ```
/// use tensorloom::{Tensor, full, lax};
///
/// let x = lax::while_loop(|x: Tensor| x.lt(&full(&[], 100.0)), |x: Tensor| x * 3.0, full(&[], 1.0));
/// assert_eq!(x.item::<f32>()?, 243.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn while_loop<C: Tree>(cond: impl Function<C, Out = Tensor>, body: impl Function<C, Out = C>, init: C) -> C {
    let _here = crate::record::here();
    let at = crate::record::place();
    match looped(&cond, &body, &init, &at) {
        Ok(c) => c,
        Err(e) => fail_like(&init, e),
    }
}

#[track_caller]
fn looped<C: Tree>(
    cond: &impl Function<C, Out = Tensor>,
    body: &impl Function<C, Out = C>,
    init: &C,
    at: &Loc,
) -> Result<C> {
    let carries = init.leaves();
    if let Some(e) = carries.iter().find_map(|t| t.error()) {
        return Err(e);
    }
    let types: Vec<Type> = carries.iter().map(|t| t.ty().clone()).collect();
    let of = |t: &[Tensor]| {
        let mut t = t.iter();
        init.rebuild(&mut || t.next().expect("one for each").clone())
    };
    let test = trace::trace(&types, |t| vec![cond.apply(of(t))])?;
    let tested = test.graph.output_types();
    if tested != [Type::scalar(DType::Bool)] {
        let reason = format!("the condition gives {}, not a bool of rank 0", tested[0]);
        return Err(Error::Call { op: "while_loop", reason, at: at.clone() });
    }
    let mut after = None;
    let step = trace::trace(&types, |t| {
        let c = body.apply(of(t));
        let outs = c.leaves();
        after = Some(c);
        outs
    })?;
    check_carries(&carries, &after.expect("the body was traced"), at)?;
    let consts_first = |graph: &ir::Graph| -> Result<ir::Graph> {
        let mut g = ir::Graph::new();
        let all = graph.input_types();
        let consts: Vec<_> = all[types.len()..].iter().map(|t| g.input(t.clone())).collect();
        let mut args: Vec<_> = all[..types.len()].iter().map(|t| g.input(t.clone())).collect();
        args.extend(consts);
        let outs = graph.inline(&mut g, &args)?;
        g.set_outputs(outs);
        Ok(g)
    };
    let op =
        While::new(test.captures.len(), step.captures.len(), consts_first(&test.graph)?, consts_first(&step.graph)?);
    let operands: Vec<&Tensor> = test.captures.iter().chain(&step.captures).chain(&carries).collect();
    let outs = record::many(carries.len(), &operands, |b, v| b.emit(op.into(), v));
    Ok(of(&outs))
}

/// Runs `body(i, carry)` for `i` in `lower..upper`; `i` is an i32 of rank 0. Differentiable in both modes.
///
/// ```
/// use tensorloom::{DType, Tensor, full, lax};
///
/// let sum = lax::fori_loop(0, 5, |(i, c): (Tensor, Tensor)| c + i.cast(DType::F32), full(&[], 0.0));
/// assert_eq!(sum.item::<f32>()?, 10.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn fori_loop<C: Tree>(lower: i32, upper: i32, body: impl Function<(Tensor, C), Out = C>, init: C) -> C {
    let _here = crate::record::here();
    let n = (i64::from(upper) - i64::from(lower)).max(0) as usize;
    let engine = init.leaves().iter().find_map(|t| t.engine().cloned());
    // The number is carried: all of them at once would be memory that grows with the loop.
    let first = engine.as_ref().unwrap_or(crate::engine()).full(DType::I32, &[], i64::from(lower));
    let step = |((c, i), ()): ((C, Tensor), ())| {
        let next = &i + 1;
        ((body.apply((i, c)), next), ())
    };
    Scan::new().length(n).run(step, (init, first), ()).0.0
}

/// Applies `f` to each slice of `xs` along the first axis, one after another, and stacks the results: `vmap` with the
/// memory of one slice.
///
/// ```
/// use tensorloom::{Tensor, lax, tensor};
///
/// let y = lax::map(|x: Tensor| x.square(), tensor(&[1.0f32, 2.0], &[2]));
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn map<X: Tree, Y: Tree>(f: impl Function<X, Out = Y>, xs: X) -> Y {
    let _here = crate::record::here();
    Scan::new().run(|((), x): ((), X)| ((), f.apply(x)), (), xs).1
}
