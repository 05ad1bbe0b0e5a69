//! What recording an op costs, in nanoseconds; an argument chooses one case.

use ir::DType;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use tensorloom_engine::{Engine, Tensor};

fn main() {
    let engine = Engine::new(Arc::new(cpu::Cpu::new(1)));
    let x = engine.ones(DType::F32, &[4, 4]);
    let y = engine.ones(DType::F32, &[4, 4]);
    engine.force(&(x.clone(), y.clone())).expect("ones can be made");
    let only = std::env::args().nth(1);
    let n = 2_000;
    let measure = |name: &str, f: &dyn Fn() -> Tensor| {
        if only.as_deref().is_some_and(|only| only != name) {
            return;
        }
        let mut best = f64::MAX;
        for _ in 0..200 {
            let start = Instant::now();
            let kept: Vec<Tensor> = (0..n).map(|_| f()).collect();
            let recorded = start.elapsed();
            drop(kept);
            engine.mark_step().expect("nothing fails");
            best = best.min(recorded.as_nanos() as f64 / n as f64);
        }
        println!("{name:<24} {best:>7.1} ns");
    };
    measure("tanh", &|| black_box(&x).tanh());
    measure("add", &|| black_box(&x) + black_box(&y));
    measure("add a number", &|| black_box(&x) + 2.0);
    measure("transpose (view)", &|| black_box(&x).t());
    let w = engine.ones(DType::F32, &[4, 4]).requires_grad_();
    measure("mul, tracked", &|| black_box(&x) * black_box(&w));
    let s = engine.ones(DType::F32, &[4, 4]);
    s.add_(&x);
    engine.mark_step().expect("nothing fails");
    measure("tanh of state", &|| black_box(&s).tanh());
}
