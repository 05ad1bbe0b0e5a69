//! Tests how each form of an update rounds, operation by operation: trajectories and resumed runs depend on these bits.

use ir::{Builder, DType, GraphBuilder, Literal, Scalar, Type, Value, interp};
use tensorloom_train::adam::{Adam, AdamUpdate, BiasCorrection, apply_update};
use tensorloom_train::momentum::{lion, momentum, momentum_with_dampening};

const N: usize = 257;

/// Random numbers between −1 and 1, or between 0 and 1, from a seed.
fn draw(seed: u32, positive: bool) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2654435761).max(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32
    };
    (0..N).map(|_| if positive { next() * 1e-3 } else { 2.0 * next() - 1.0 }).collect()
}

fn literal(values: &[f32], shape: &[usize]) -> Literal {
    Literal::from_fn(Type::new(DType::F32, shape), |i| Scalar::from_f64(DType::F32, f64::from(values[i])))
}

/// Runs the graph that `f` builds from tensors and scalars.
fn run(
    tensors: &[&[f32]],
    scalars: &[f32],
    f: impl Fn(&mut Builder, &[Value], &[Value]) -> Vec<Value>,
) -> Vec<Vec<f32>> {
    let mut b = Builder::new();
    let wide: Vec<Value> = tensors.iter().map(|t| b.input(DType::F32, &[t.len()])).collect();
    let own: Vec<Value> = scalars.iter().map(|_| b.input(DType::F32, &[])).collect();
    let outs = f(&mut b, &wide, &own);
    let graph = b.finish(&outs);
    ir::verify::verify(&graph).expect("sound");
    let mut inputs: Vec<Literal> = tensors.iter().map(|t| literal(t, &[t.len()])).collect();
    inputs.extend(scalars.iter().map(|s| literal(&[*s], &[])));
    interp::run(&graph, &inputs).expect("runs").iter().map(|l| l.to_vec::<f32>()).collect()
}

fn same(found: &[f32], what: &str, want: impl Fn(usize) -> f32) {
    for (i, x) in found.iter().enumerate() {
        assert_eq!(x.to_bits(), want(i).to_bits(), "{what} at {i}: {x}, {}", want(i));
    }
}

#[test]
fn adam_rounds_as_its_references_do() {
    let adam = Adam { beta1: 0.9, beta2: 0.95, eps: 1e-8, eps_root: 0.0 };
    let (b1, b2, r1, r2) = (0.9f64 as f32, 0.95f64 as f32, (1.0 - 0.9f64) as f32, (1.0 - 0.95f64) as f32);
    let eps = 1e-8f64 as f32;
    for step in [1, 2, 7, 1000] {
        let (p, g, m, v) = (draw(step, false), draw(step + 10, false), draw(step + 20, false), draw(step + 30, true));
        let (c1, c2) = (1.0 - 0.9f64.powi(step as i32), 1.0 - 0.95f64.powi(step as i32));
        let decay = 0.1f64;
        let tensors = [&p[..], &m, &v, &g];
        let square = |i: usize| v[i] * b2 + g[i] * g[i] * r2;
        let mean = |i: usize| m[i] * b1 + g[i] * r1;

        // The form of the trainer.
        let (k1, k2, rate) = ((1.0 / c1) as f32, (1.0 / c2) as f32, 3e-4f64 as f32);
        let found = run(&tensors, &[k1, k2, rate], |b, t, s| {
            let corrections = BiasCorrection::Multiplied { k1: s[0], k2: s[1] };
            let AdamUpdate { direction, first_moment: mean, second_moment: square } =
                adam.update(b, [t[1], t[2]], t[3], corrections).expect("fits");
            vec![apply_update(b, t[0], direction, decay, s[2]).expect("fits"), mean, square]
        });
        same(&found[0], "a parameter", |i| {
            let direction = mean(i) * k1 / ((square(i) * k2).sqrt() + eps);
            p[i] - (direction + p[i] * decay as f32) * rate
        });
        same(&found[1], "a mean", mean);
        same(&found[2], "a mean square", square);

        // The form of optax, with Nesterov momentum.
        let next = (1.0 - 0.9f64.powi(step as i32 + 1)) as f32;
        for nesterov in [false, true] {
            let found = run(&tensors, &[c1 as f32, c2 as f32, next], |b, t, s| {
                let corrections = BiasCorrection::OptaxOrder { c1: s[0], c2: s[1], ahead: nesterov.then_some(s[2]) };
                vec![adam.update(b, [t[1], t[2]], t[3], corrections).expect("fits").direction]
            });
            same(&found[0], "a direction", |i| {
                let first = match nesterov {
                    false => mean(i) / c1 as f32,
                    true => mean(i) * b1 / next + g[i] * r1 / c1 as f32,
                };
                first / ((square(i) / c2 as f32).sqrt() + eps)
            });
        }

        // The form of PyTorch.
        let (rate, root2) = ((0.01 / c1) as f32, c2.sqrt() as f32);
        let found = run(&tensors, &[rate, root2], |b, t, s| {
            let corrections = BiasCorrection::PyTorchOrder { root2: s[1] };
            let AdamUpdate { direction, first_moment: mean, second_moment: square } =
                adam.update(b, [t[1], t[2]], t[3], corrections).expect("fits");
            vec![apply_update(b, t[0], direction, 0.0, s[0]).expect("fits"), mean, square]
        });
        let lerp = |i: usize| m[i] + (g[i] - m[i]) * r1;
        same(&found[0], "a parameter", |i| p[i] + lerp(i) / (square(i).sqrt() / root2 + eps) * -rate);
        same(&found[1], "a mean", lerp);
        same(&found[2], "a mean square", square);
    }
}

#[test]
fn momentum_and_lion_round_as_their_references_do() {
    let (m, g) = (draw(1, false), draw(2, false));
    let (d, b1, r1) = (0.9f64 as f32, 0.9f64 as f32, (1.0 - 0.9f64) as f32);
    let (b2, r2) = (0.99f64 as f32, (1.0 - 0.99f64) as f32);
    for nesterov in [false, true] {
        let plain = run(&[&m, &g], &[], |b, t, _| momentum(b, t[0], t[1], 0.9, nesterov).expect("fits").to_vec());
        let next = |i: usize| m[i] * d + g[i];
        same(&plain[0], "an update", |i| if nesterov { g[i] + next(i) * d } else { next(i) });
        same(&plain[1], "a momentum", next);
        let part = run(&[&m, &g], &[], |b, t, _| {
            let entering = b.scale(t[1], 0.75).expect("fits");
            momentum_with_dampening(b, t[0], t[1], entering, 0.9, nesterov).expect("fits").to_vec()
        });
        let next = |i: usize| m[i] * d + g[i] * 0.75;
        same(&part[0], "an update", |i| if nesterov { g[i] + next(i) * d } else { next(i) });
    }
    for lerps in [false, true] {
        let found = run(&[&m, &g], &[], |b, t, _| lion(b, t[0], t[1], [0.9, 0.99], lerps).expect("fits").to_vec());
        same(&found[0], "a direction", |i| (m[i] * b1 + g[i] * r1).signum());
        same(&found[1], "a mean", |i| if lerps { m[i] + (g[i] - m[i]) * r2 } else { m[i] * b2 + g[i] * r2 });
    }
}
