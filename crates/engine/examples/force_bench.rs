//! What forcing a chain of small ops costs: nanoseconds for one op recorded, forced and dropped, and for its parts.

use ir::DType;
use std::sync::Arc;
use std::time::Instant;
use tensorloom_engine::{Engine, Tensor};

fn main() {
    let engine = Engine::new(Arc::new(cpu::Cpu::new(1)));
    let x = engine.ones(DType::F32, &[16]);
    let y = engine.full(DType::F32, &[16], 0.5);
    engine.force(&(x.clone(), y.clone())).expect("ones can be made");
    let n = 500;
    let mut best = [f64::MAX; 3];
    for _ in 0..2_000 {
        let start = Instant::now();
        let mut z: Tensor = x.clone();
        for _ in 0..n {
            z = &(&z * &y) + &x;
        }
        let recorded = start.elapsed();
        engine.force(&z).expect("nothing fails");
        let forced = start.elapsed();
        drop(z);
        engine.mark_step().expect("nothing fails");
        let dropped = start.elapsed();
        let parts = [recorded, forced - recorded, dropped - forced];
        for (b, p) in best.iter_mut().zip(parts) {
            *b = b.min(p.as_nanos() as f64 / (2 * n) as f64);
        }
    }
    println!("record {:.1} ns, force {:.1} ns, drop {:.1} ns", best[0], best[1], best[2]);
}
