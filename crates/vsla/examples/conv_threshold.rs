//! Times both convolution paths over a grid of lengths, and says how much the model of their costs loses by its choices.
//!
//! `cargo run --release -p tensorloom-vsla --example conv_threshold`

use std::sync::Arc;
use std::time::Instant;
use vsla::{Backend, DType, Numerics, Path, Plan, ProgramBuilder, Stream, conv_path};

/// Microseconds of one convolution: the best of several rounds.
fn time(backend: &Backend, m: usize, n: usize, path: Path) -> vsla::Result<f64> {
    let mut b = ProgramBuilder::new();
    b.numerics(Numerics { conv: Some(path), ..Numerics::default() });
    let (x, y) = (b.input("x", DType::F64, &[m])?, b.input("y", DType::F64, &[n])?);
    let z = b.conv1d(x, y)?;
    b.output(z)?;
    let plan = Plan::new(&Arc::new(b.build()?), backend)?;
    let mut bindings = plan.bind()?;
    let stream = Stream::new(backend);
    let mut best = f64::MAX;
    for _ in 0..30 {
        let start = Instant::now();
        plan.execute(&mut bindings, &stream)?;
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(best)
}

fn main() -> vsla::Result<()> {
    let backend = Backend::shared();
    println!("{}", backend.name());
    println!("{:>6} {:>6} {:>12} {:>12}   chosen  loses", "m", "n", "direct µs", "fft µs");
    let mut worst = 1.0f64;
    for (m, n) in [
        (16, 16),
        (64, 64),
        (64, 1000),
        (100, 100),
        (128, 128),
        (128, 1000),
        (200, 200),
        (256, 256),
        (256, 1000),
        (256, 10000),
        (400, 400),
        (512, 512),
        (512, 4096),
        (1000, 1000),
        (1000, 10000),
        (2000, 2000),
        (4096, 4096),
        (10000, 10000),
    ] {
        let (direct, fft) = (time(backend, m, n, Path::Direct)?, time(backend, m, n, Path::Fft)?);
        let path = conv_path(m, n);
        let taken = if path == Path::Direct { direct } else { fft };
        let loss = taken / direct.min(fft);
        worst = worst.max(loss);
        println!("{m:>6} {n:>6} {direct:>12.1} {fft:>12.1}   {path:?}  {loss:.2}");
    }
    println!("worst choice: {worst:.2} times the better path");
    Ok(())
}
