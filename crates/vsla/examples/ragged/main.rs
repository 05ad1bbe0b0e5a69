//! Runs a ragged batch of 64 sequences of 1 to 512 tokens through a transformer encoder, without padding.
//!
//! Run it with `cargo run --release -p tensorloom-vsla --example ragged`. `cargo xtask bench vsla --peers` compares it with
//! PyTorch.

#[allow(dead_code, unreachable_pub, reason = "shared with another example, the benchmark and a test")]
mod encoder;

use encoder::{MEASURED, encoder, flop, lengths, values};
use std::sync::Arc;
use std::time::Instant;
use tensorloom_vsla::{Backend, Plan, Stream, Tensor};

fn main() -> tensorloom_vsla::Result<()> {
    let lengths = lengths();
    let program = Arc::new(encoder(&MEASURED, &lengths)?);
    let backend = Backend::global();
    let plan = Plan::new(&program, backend)?;
    let mut bindings = plan.bind()?;
    for (k, v) in program.inputs().iter().chain(program.params()).enumerate() {
        let shape = &program.signature(*v).shape;
        bindings.write(*v, &Tensor::from_slice(shape, &values(k, shape))?)?;
    }
    let stream = Stream::new(backend);
    plan.execute(&mut bindings, &stream)?;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        plan.execute(&mut bindings, &stream)?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    let (real, padded) = flop(&MEASURED, &lengths);
    let (tokens, longest) = (lengths.iter().sum::<usize>(), lengths.iter().max().copied().unwrap_or(0));
    println!("{}", backend.name());
    println!(
        "{} sequences, {tokens} tokens; padded to {longest} there would be {}",
        lengths.len(),
        lengths.len() * longest
    );
    println!("work {:.1} GFLOP, padded {:.1} GFLOP, {:.2} times as much", real / 1e9, padded / 1e9, padded / real);
    println!("{:.1} ms, {:.0} GFLOP/s; activations {} KiB", best * 1e3, real / best / 1e9, plan.arena_sizes()[1] >> 10);
    Ok(())
}
