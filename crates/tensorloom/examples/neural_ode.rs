//! A neural ODE: the right-hand side of a spiral's equation is learnt from points along it.

mod plot;

use tensorloom::{DType, Tensor, Tree, jit, lax, np, optim, random, tensor, value_and_grad};

const POINTS: usize = 120;
const DT: f64 = 0.04;
/// Points that each piece of training looks ahead.
const AHEAD: usize = 10;
const STEPS: usize = 2000;

#[derive(Tree)]
struct Net {
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
}

impl Net {
    fn new(hidden: usize) -> Net {
        let keys = random::split(&random::key(0), 2);
        let weights = |k: isize, shape: &[usize]| random::normal(&keys.index(0, k), shape, DType::F64) * 0.4;
        Net { w1: weights(0, &[2, hidden]), b1: np::zeros(&[hidden], DType::F64), w2: weights(1, &[hidden, 2]) * 0.5 }
    }

    /// The velocity at a point; cubes make the spiral's equation easy to see.
    fn velocity(&self, x: &Tensor) -> Tensor {
        ((x * x * x).matmul(&self.w1) + &self.b1).tanh().matmul(&self.w2)
    }
}

/// One step along a solution, by Runge and Kutta's fourth-order rule.
fn step(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Tensor {
    let k1 = f(x);
    let k2 = f(&(x + &k1 * (DT / 2.0)));
    let k3 = f(&(x + &k2 * (DT / 2.0)));
    let k4 = f(&(x + &k3 * DT));
    x + (k1 + (k2 + k3) * 2.0 + k4) * (DT / 6.0)
}

/// Points along a solution.
fn solve(f: impl Fn(&Tensor) -> Tensor, start: Tensor) -> Tensor {
    lax::Scan::new().length(POINTS).run(|(x, ()): (Tensor, ())| (step(&f, &x), x), start, ()).1
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = tensor(&[2.0, 0.0], &[2]);
    let truth = tensor(&[-0.1, 2.0, -2.0, -0.1], &[2, 2]);
    let data = solve(|x| (x * x * x).matmul(&truth), start.clone());

    let optimizer = optim::adam(optim::cosine_decay_schedule(0.02, STEPS, 0.01));
    let mut net = Net::new(48);
    let mut state = optimizer.init(&net);
    let train = jit(|(net, state): (Net, optim::OptState)| {
        // Short pieces from every point: each is easy to follow, and all of them say the same.
        let loss = |net: Net| {
            let follow = |(x, ()): (Tensor, ())| {
                let x = step(|x| net.velocity(x), &x);
                (x.clone(), x)
            };
            let (_, path) = lax::Scan::new().length(AHEAD).run(follow, data.narrow(0, 0, POINTS - AHEAD), ());
            let later: Vec<Tensor> = (1..=AHEAD).map(|k| data.narrow(0, k, POINTS - AHEAD)).collect();
            (path - np::stack(&later.iter().collect::<Vec<_>>(), 0)).square().mean()
        };
        let (loss, g) = value_and_grad(loss).call(net.map(|t| t.clone()));
        let (updates, state) = optimizer.update(&g, &state, &net);
        (optim::apply_updates(&net, &updates), state, loss)
    });
    let mut loss = tensor(&[0.0], &[]);
    for i in 0..STEPS {
        (net, state, loss) = train.call((net, state));
        if i % 500 == 0 {
            println!("step {i}: loss {:.7}", loss.item::<f64>()?);
        }
    }
    let found = solve(|x| net.velocity(x), start);
    let off = (&found - &data).square().mean().sqrt();
    println!("loss {:.7}; root mean square distance of the whole path {:.4}", loss.item::<f64>()?, off.item::<f64>()?);

    let mut picture = plot::Canvas::new(700, 700, [-2.4, 2.4, -2.4, 2.4]);
    let pairs = |t: &Tensor| -> tensorloom::Result<Vec<(f64, f64)>> {
        Ok(t.to_vec::<f64>()?.chunks(2).map(|p| (p[0], p[1])).collect())
    };
    picture.line(&pairs(&found)?, 1.5, plot::BLUE);
    pairs(&data)?.iter().for_each(|p| picture.dot(p.0, p.1, 3.5, plot::RED));
    picture.save("neural_ode")
}
