//! Compares every inline function with the f64 reference on every f32 input: `cargo run --release --example ulp_sweep [name]`.

use ir::special::unary_f64;
use tensorloom_cpu::codegen::ulp::{FUNCTIONS, kernel, ulp_error};
use tensorloom_cpu::codegen::{Target, compile};

fn main() {
    let only = std::env::args().nth(1);
    let Some(target) = Target::detect() else {
        return println!("no code generator for this machine");
    };
    for &(op, bound) in FUNCTIONS {
        if only.as_deref().is_some_and(|n| n != op.name()) {
            continue;
        }
        let code = compile(&kernel(op, ir::DType::F32), target).expect("a kernel");
        let chunk = 1u64 << 16;
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64;
        let worst = std::thread::scope(|s| {
            let workers: Vec<_> = (0..threads)
                .map(|t| {
                    let code = &code;
                    s.spawn(move || {
                        let mut worst = (0.0f64, 0.0f32);
                        let mut y = vec![0f32; chunk as usize];
                        for c in (t..(1 << 32) / chunk).step_by(threads as usize) {
                            let x: Vec<f32> = (0..chunk).map(|i| f32::from_bits((c * chunk + i) as u32)).collect();
                            let bufs = [x.as_ptr() as *mut u8, y.as_mut_ptr() as *mut u8];
                            // SAFETY: both buffers hold `chunk` elements.
                            unsafe { code.run(&bufs, &[chunk as i64], 0, 1) };
                            for (&x, &y) in x.iter().zip(&y) {
                                let d = ulp_error(y, unary_f64(op, x as f64));
                                if d > worst.0 {
                                    worst = (d, x);
                                }
                            }
                        }
                        worst
                    })
                })
                .collect();
            workers
                .into_iter()
                .map(|w| w.join().expect("a worker"))
                .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
        });
        println!("{:12} {:.4} ulp at {:e} (bound {bound})", op.name(), worst.0, worst.1);
    }
}
