//! The memory of a transformer by the formulas of §14.1 and by the memory plan, for several sequence lengths.
//!
//! Run it with `cargo run --release -p tensorloom-vsla --example memory`. It executes no program; plans give the sizes.

#[path = "ragged/encoder.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with another example, the benchmark and tests")]
mod encoder;

use encoder::{Sizes, checkpointed, encoder, parameters};
use std::sync::Arc;
use tensorloom_vsla::autograd::{self, BackwardOptions};
use tensorloom_vsla::{Backend, Plan};

/// The layer sizes of the smallest GPT-2, without its vocabulary.
const SIZES: Sizes = Sizes { width: 768, heads: 12, hidden: 3072, layers: 12 };
const BATCH: usize = 4;

fn main() -> tensorloom_vsla::Result<()> {
    let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
    let backend = Backend::cpu(2);
    println!("{SIZES:?}, batch of {BATCH}, f32, MiB");
    println!("PARAMS by the formula {:.1}", mib(4 * parameters(&SIZES)));
    println!(
        "{:>6} {:>8} {:>12} {:>12} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "S", "PARAMS", "ACT by sum", "ACT planned", "WORKSPACE", "kept", "GRADS", "kept, marks", "GRADS, marks"
    );
    for s in [512, 1024, 2048, 4096] {
        let lengths = [s; BATCH];
        let program = Arc::new(encoder(&SIZES, &lengths)?);
        let plan = Plan::new(&program, &backend)?;
        let [params, activations, workspace, ..] = plan.arena_sizes();
        // The upper bound of §14.1.2: all intermediate values of every layer at once, with dense attention scores.
        let tokens = BATCH * s;
        let layer = tokens * (7 * SIZES.width + SIZES.hidden) + 2 * BATCH * SIZES.heads * s * s;
        let mut backward = Vec::new();
        for program in [&program, &Arc::new(checkpointed(&SIZES, &lengths)?)] {
            let back = autograd::build_backward(program, &BackwardOptions::default())?;
            let kept = back.kept_bytes();
            let plan = autograd::plan_backward(&back, &backend)?;
            backward.extend([mib(kept), mib(plan.arena_sizes()[1][3])]);
        }
        println!(
            "{s:>6} {:>8.1} {:>12.1} {:>12.1} {:>10.2} {:>10.1} {:>10.1} {:>12.1} {:>12.1}",
            mib(params),
            mib(4 * layer * SIZES.layers),
            mib(activations),
            mib(workspace),
            backward[0],
            backward[1],
            backward[2],
            backward[3]
        );
    }
    Ok(())
}
