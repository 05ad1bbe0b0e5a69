//! Derivatives against finite differences in f64.

use super::{Transforms, check_verifier, run};
use crate::Rng;
use crate::compare::compare_all;
use ir::{DType, Graph, Literal, Scalar};

/// The outcome of a comparison with finite differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradOutcome {
    /// They agree with the derivative.
    Agrees,
    /// They do not converge: the point is at a kink, or there is nothing to differentiate.
    Inconclusive,
}

type Judged = Result<GradOutcome, String>;

/// First derivatives of all f64 inputs: forward mode against differences, reverse mode against forward mode.
pub fn check_grads(graph: &Graph, inputs: &[Literal], rng: &mut Rng) -> Judged {
    check_grads_with(&Transforms::default(), graph, inputs, rng)
}

/// Compares only forward mode with differences.
pub fn check_jvp(graph: &Graph, inputs: &[Literal], rng: &mut Rng) -> Judged {
    let wrt = f64_inputs(inputs);
    let direction: Vec<Literal> = wrt.iter().map(|&i| random(&inputs[i], rng)).collect();
    Ok(forward(&Transforms::default(), graph, inputs, &wrt, &direction)?.1)
}

fn f64_inputs(inputs: &[Literal]) -> Vec<usize> {
    (0..inputs.len()).filter(|&i| inputs[i].ty().dtype == DType::F64).collect()
}

/// Numbers of magnitude 0.2 to 1, of either sign.
fn random(like: &Literal, rng: &mut Rng) -> Literal {
    Literal::from_fn(like.ty().clone(), |_| {
        let x = rng.uniform(0.2, 1.0);
        Scalar::from_f64(like.ty().dtype, if rng.bernoulli(0.5) { x } else { -x })
    })
}

/// Like [`check_grads`], for given transforms.
pub fn check_grads_with(t: &Transforms, graph: &Graph, inputs: &[Literal], rng: &mut Rng) -> Judged {
    let wrt = f64_inputs(inputs);
    if wrt.is_empty() {
        return Ok(GradOutcome::Inconclusive);
    }
    let mut verdict = GradOutcome::Agrees;
    for _ in 0..2 {
        if along_random_line(t, graph, inputs, &wrt, rng)? == GradOutcome::Inconclusive {
            verdict = GradOutcome::Inconclusive;
        }
    }
    Ok(verdict)
}

/// Compares the tangents of all outputs along `direction` with differences.
fn forward(
    t: &Transforms,
    graph: &Graph,
    inputs: &[Literal],
    wrt: &[usize],
    direction: &[Literal],
) -> Result<(Vec<Literal>, GradOutcome), String> {
    let base = run(graph, inputs)?;
    let active: Vec<bool> = (0..inputs.len()).map(|i| wrt.contains(&i)).collect();
    let (forward, has) = (t.jvp)(graph, &active).map_err(|e| format!("jvp: {e}\n{graph}"))?;
    check_verifier(&forward).map_err(|e| format!("jvp gives an {e}\nof\n{graph}"))?;
    let args: Vec<Literal> = inputs.iter().chain(direction).cloned().collect();
    let outs = run(&forward, &args)?;
    compare_all(&outs[..base.len()], &base, 1.0).map_err(|m| format!("jvp changes the values: {m}\n{graph}"))?;
    let mut given = outs[base.len()..].iter();
    let tangents: Vec<Literal> = base
        .iter()
        .zip(&has)
        .map(|(y, &h)| {
            let given = h.then(|| given.next().expect("one tangent for each flag").clone());
            given.unwrap_or_else(|| Literal::zeros(y.ty().clone()))
        })
        .collect();

    let mut verdict = GradOutcome::Agrees;
    for (k, y) in base.iter().enumerate().filter(|(_, y)| y.ty().dtype == DType::F64) {
        let Some(slopes) = differences(graph, inputs, wrt, direction, k) else {
            verdict = GradOutcome::Inconclusive;
            continue;
        };
        for (i, (slope, doubt)) in slopes.into_iter().enumerate() {
            let got = tangents[k].get(i).to_f64();
            // A NaN is never close.
            let close = (got - slope).abs() <= 1e-7 * (1.0 + slope.abs()) + doubt;
            if !close {
                return Err(format!(
                    "jvp of output {k} ({}), element {i}: got {got}, finite differences give {slope} ± {doubt:e}\n{}",
                    y.ty(),
                    context(graph, inputs, &forward)
                ));
            }
        }
    }
    Ok((tangents, verdict))
}

fn along_random_line(t: &Transforms, graph: &Graph, inputs: &[Literal], wrt: &[usize], rng: &mut Rng) -> Judged {
    let direction: Vec<Literal> = wrt.iter().map(|&i| random(&inputs[i], rng)).collect();
    let (tangents, verdict) = forward(t, graph, inputs, wrt, &direction)?;
    let base = run(graph, inputs)?;
    let backward = (t.vjp)(graph, wrt).map_err(|e| format!("vjp: {e}\n{graph}"))?;
    check_verifier(&backward).map_err(|e| format!("vjp gives an {e}\nof\n{graph}"))?;
    let cotangents: Vec<Literal> = base
        .iter()
        .filter(|y| y.ty().dtype.is_float())
        .map(|y| match y.ty().dtype {
            DType::F64 => random(y, rng),
            _ => Literal::zeros(y.ty().clone()),
        })
        .collect();
    let args: Vec<Literal> = inputs.iter().chain(&cotangents).cloned().collect();
    let outs = run(&backward, &args)?;
    compare_all(&outs[..base.len()], &base, 1.0).map_err(|m| format!("vjp changes the values: {m}\n{graph}"))?;
    let float_tangents = tangents.iter().filter(|y| y.ty().dtype.is_float());
    let (left, size_left) = inner(float_tangents, &cotangents);
    let (right, size_right) = inner(outs[base.len()..].iter(), &direction);
    // NaN on both sides is accepted; on one side only it is an error.
    let close = (left - right).abs() <= 1e-9 * (1.0 + size_left + size_right) || (left.is_nan() && right.is_nan());
    if !close {
        return Err(format!(
            "⟨cotangent, jvp⟩ = {left}, but ⟨vjp, tangent⟩ = {right}\n{}",
            context(graph, inputs, &backward)
        ));
    }
    Ok(verdict)
}

fn context(graph: &Graph, inputs: &[Literal], derived: &Graph) -> String {
    let inputs: Vec<String> = inputs.iter().map(|x| format!("{x:?}")).collect();
    format!("of {graph}at {}\nthe derived graph is {derived}", inputs.join("\n   "))
}

/// `Σ a·b`, and the sum of magnitudes.
fn inner<'a>(a: impl Iterator<Item = &'a Literal>, b: &[Literal]) -> (f64, f64) {
    let (mut sum, mut size) = (0.0, 0.0);
    for (x, y) in a.zip(b) {
        for (p, q) in x.scalars().zip(y.scalars()) {
            let term = p.to_f64() * q.to_f64();
            sum += term;
            size += term.abs();
        }
    }
    (sum, size)
}

/// The derivative of each element of output `k` along `direction` by the five-point stencil, with its uncertainty: the distance
/// from the three-point stencil. `None` if the two do not converge at any step size, as at a kink.
fn differences(
    graph: &Graph,
    inputs: &[Literal],
    wrt: &[usize],
    direction: &[Literal],
    k: usize,
) -> Option<Vec<(f64, f64)>> {
    let at = |step: f64| -> Option<Vec<f64>> {
        let mut x = inputs.to_vec();
        for (&i, d) in wrt.iter().zip(direction) {
            x[i] = Literal::from_fn(d.ty().clone(), |j| {
                Scalar::from_f64(DType::F64, inputs[i].get(j).to_f64() + step * d.get(j).to_f64())
            });
        }
        let outs = ir::interp::run(graph, &x).ok()?;
        Some(outs[k].to_vec::<f64>())
    };
    'step: for h in [1e-3, 1e-4] {
        let (p1, m1, p2, m2) = (at(h)?, at(-h)?, at(2.0 * h)?, at(-2.0 * h)?);
        let mut slopes = Vec::with_capacity(p1.len());
        for i in 0..p1.len() {
            // An output that stays infinite (the maximum of no elements) has derivative 0.
            if p1[i].is_infinite() && [m1[i], p2[i], m2[i]] == [p1[i]; 3] {
                slopes.push((0.0, 0.0));
                continue;
            }
            let three = (p1[i] - m1[i]) / (2.0 * h);
            let five = (8.0 * (p1[i] - m1[i]) - (p2[i] - m2[i])) / (12.0 * h);
            let size = p1[i].abs().max(m1[i].abs());
            let doubt = (five - three).abs() + 1e-15 * size / h;
            if doubt.is_nan() || doubt > 1e-3 * (1.0 + five.abs()) {
                continue 'step;
            }
            slopes.push((five, doubt));
        }
        return Some(slopes);
    }
    None
}

/// Second derivatives: the gradient graph, a function of the same inputs, is itself checked by [`check_grads`].
pub fn check_second_order(graph: &Graph, inputs: &[Literal], rng: &mut Rng) -> Judged {
    check_second_order_with(&Transforms::default(), graph, inputs, rng)
}

/// Like [`check_second_order`], for given transforms.
pub fn check_second_order_with(t: &Transforms, graph: &Graph, inputs: &[Literal], rng: &mut Rng) -> Judged {
    let wrt = f64_inputs(inputs);
    let backward = (t.vjp)(graph, &wrt).map_err(|e| format!("vjp: {e}\n{graph}"))?;
    let mut args = inputs.to_vec();
    for ty in graph.output_types().iter().filter(|t| t.dtype.is_float()) {
        args.push(Literal::from_fn(ty.clone(), |_| Scalar::from_f64(ty.dtype, rng.uniform(0.3, 1.0))));
    }
    let mut gradients = backward.clone();
    gradients.set_outputs(backward.outputs()[graph.outputs().len()..].to_vec());
    check_grads_with(t, &gradients.without_dead_nodes(), &args, rng)
        .map_err(|e| format!("second order: {e}\nfrom {graph}"))
}
