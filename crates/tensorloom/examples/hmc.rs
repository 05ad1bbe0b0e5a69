//! Hamiltonian Monte Carlo on a curved ridge: one chain is a scan, many chains are a vmap of it.

mod plot;

use tensorloom::{DType, Tensor, grad, jit, lax, np, random, tensor_of, vmap};

const CHAINS: usize = 64;
const SAMPLES: usize = 500;
const LEAPS: usize = 16;
const STEP: f64 = 0.12;

/// Minus the logarithm of the density: a banana along x₁ = x₀²/2.
fn energy(x: Tensor) -> Tensor {
    let (a, b) = (x.index(0, 0), x.index(0, 1));
    let bend = &b - a.square() * 0.5;
    a.square() * 0.25 + bend.square() * 4.0
}

/// One chain from a point: its samples and how often it moved.
fn chain((key, start): (Tensor, Tensor)) -> (Tensor, Tensor) {
    let force = |x: &Tensor| -grad(energy).call(x.clone());
    let step = |(x, key): (Tensor, Tensor)| {
        let keys = random::split(&key, 2);
        let p = random::normal(&keys.index(0, 0), &[2], DType::F64);
        let leap = |((x, p), ()): ((Tensor, Tensor), ())| {
            let p = p + force(&x) * (STEP / 2.0);
            let x = x + &p * STEP;
            let p = p + force(&x) * (STEP / 2.0);
            ((x, p), ())
        };
        let ((y, q), ()) = lax::Scan::new().length(LEAPS).run(leap, (x.clone(), p.clone()), ());
        let total = |x: &Tensor, p: &Tensor| energy(x.clone()) + p.square().sum() * 0.5;
        let rise = total(&y, &q) - total(&x, &p);
        let accept = random::uniform(&keys.index(0, 1), &[], DType::F64, 0.0, 1.0).lt(&(-rise).exp());
        let next = accept.select(&y, &x);
        (next.clone(), (next, accept.cast(DType::F64)))
    };
    let (_, (samples, moved)) = lax::scan(step, start, random::split(&key, SAMPLES));
    (samples, moved.mean())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys = random::split(&random::key(7), CHAINS);
    let starts = random::normal(&random::key(8), &[CHAINS, 2], DType::F64);
    let sample = jit(|a: (Tensor, Tensor)| vmap(chain).call(a));
    let (samples, moved) = sample.call((keys, starts));

    // The density is that of x₀ ~ N(0, 2) and x₁ | x₀ ~ N(x₀²/2, 1/8).
    let kept = samples.slice(1, 100, SAMPLES as isize, 1);
    let (x0, x1) = (kept.index(-1, 0), kept.index(-1, 1));
    println!("moved {:.0} % of the time", 100.0 * moved.mean().item::<f64>()?);
    println!("variance of x0: {:.3} (2 expected)", np::var(&x0, (), 0).item::<f64>()?);
    println!("mean of x1: {:.3} (1 expected)", x1.mean().item::<f64>()?);
    // Chains agree if the variance between them is that within them.
    let means = np::mean(&x0, 1);
    let within = np::var(&x0, 1, 1).mean();
    let n = tensor_of(&[(SAMPLES - 100) as f64], &[]);
    let between = np::var(&means, (), 1) * &n;
    let scale = ((&within * (&n - 1.0) / &n + between / &n) / &within).sqrt();
    println!("R-hat: {:.4}", scale.item::<f64>()?);

    let mut picture = plot::Canvas::new(800, 700, [-5.0, 5.0, -2.0, 9.0]);
    let points = kept.to_vec::<f64>()?;
    points.chunks(2).for_each(|p| picture.dot(p[0], p[1], 0.8, plot::BLUE));
    let one: Vec<(f64, f64)> = points.chunks(2).take(40).map(|p| (p[0], p[1])).collect();
    picture.line(&one, 0.6, plot::RED);
    one.iter().for_each(|p| picture.dot(p.0, p.1, 3.0, plot::RED));
    picture.save("hmc")
}
