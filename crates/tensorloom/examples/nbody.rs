//! Gravity: forces are the gradient of the potential energy, steps are leapfrog inside one compiled loop.

mod plot;

use tensorloom::{DType, Tensor, grad, jit, lax, np, random};

const BODIES: usize = 12;
const STEPS: usize = 4000;
const DT: f64 = 0.002;

/// The potential energy of all pairs, softened so that close encounters stay finite.
fn potential(mass: &Tensor, x: &Tensor) -> Tensor {
    let d = x.unsqueeze(0) - x.unsqueeze(1);
    let distance = (d.square().sum_axes(&[-1], false) + 0.01).sqrt();
    let pairs = np::triu(&(mass.unsqueeze(0) * mass.unsqueeze(1) / distance), 1);
    -pairs.sum()
}

fn energy(mass: &Tensor, x: &Tensor, v: &Tensor) -> Tensor {
    (mass.unsqueeze(-1) * v.square()).sum() * 0.5 + potential(mass, x)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A heavy body in the middle, light ones on circles around it.
    let keys = random::split(&random::key(1), 2);
    let n = BODIES - 1;
    let mass = np::concatenate(&[&np::full(&[1], 1.0, DType::F64), &np::full(&[n], 0.004, DType::F64)], 0);
    let angle = random::uniform(&keys.index(0, 0), &[n], DType::F64, 0.0, 2.0 * std::f64::consts::PI);
    let radius = np::linspace(0.45, 1.9, n, true, DType::F64);
    let (c, s) = (angle.cos(), angle.sin());
    let ring = np::stack(&[&(&radius * &c), &(&radius * &s)], 1);
    let speed = radius.rsqrt();
    let around = np::stack(&[&(-(&speed * &s)), &(&speed * &c)], 1);
    let still = np::zeros(&[1, 2], DType::F64);
    let x = np::concatenate(&[&still, &ring], 0);
    let v = np::concatenate(&[&still, &around], 0);

    let simulate = jit(|(x, v): (Tensor, Tensor)| {
        let pull = |x: &Tensor| -grad(|x: Tensor| potential(&mass, &x)).call(x.clone()) / mass.unsqueeze(-1);
        let step = |((x, v), ()): ((Tensor, Tensor), ())| {
            let v = v + pull(&x) * (DT / 2.0);
            let x = x + &v * DT;
            let v = v + pull(&x) * (DT / 2.0);
            ((x.clone(), v), x)
        };
        lax::Scan::new().length(STEPS).run(step, (x, v), ())
    });
    let before = energy(&mass, &x, &v).item::<f64>()?;
    let ((x1, v1), path) = simulate.call((x, v));
    let after = energy(&mass, &x1, &v1).item::<f64>()?;
    println!("energy {before:.6} before, {after:.6} after {STEPS} steps");

    let path = path.to_vec::<f64>()?;
    let mut picture = plot::Canvas::new(800, 800, [-2.3, 2.3, -2.3, 2.3]);
    for body in 0..BODIES {
        let at = |t: usize| (path[(t * BODIES + body) * 2], path[(t * BODIES + body) * 2 + 1]);
        let line: Vec<(f64, f64)> = (0..STEPS).step_by(4).map(at).collect();
        let k = body as f64 / BODIES as f64;
        let colour = [(60.0 + 170.0 * k) as u8, 90, (220.0 - 150.0 * k) as u8];
        picture.line(&line, 0.9, colour);
        let (x, y) = at(STEPS - 1);
        picture.dot(x, y, if body == 0 { 8.0 } else { 4.0 }, plot::INK);
    }
    picture.save("nbody")
}
