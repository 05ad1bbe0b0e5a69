//! Clusters by k-means: a loop whose end depends on data, as one compiled program.
//!
//! ```text
//! cargo run --release -p tensorloom --example kmeans
//! ```

use tensorloom::Result;
use tensorloom::prelude::*;

/// The cluster of each point, `[n]`.
pub fn assign(x: &Tensor, centers: &Tensor) -> Tensor {
    let apart = x.unsqueeze(1) - centers.unsqueeze(0);
    apart.square().sum_axes(-1, false).argmin(-1)
}

/// Centres after they have come to rest, and the rounds that took.
pub fn kmeans(x: &Tensor, start: &Tensor) -> (Tensor, Tensor) {
    let k = start.shape()[0];
    let run = jit(move |(x, start): (Tensor, Tensor)| {
        let begin = (start, full((), 1.0), tensor(&[0], ()));
        let moving = |(_, change, n): (Tensor, Tensor, Tensor)| change.gt(1e-4) & n.lt(50);
        let body = |(centers, _, n): (Tensor, Tensor, Tensor)| {
            let member = nn::one_hot(&assign(&x, &centers), k, -1, DType::F32);
            let counts = member.sum_axes(0, false).maximum(1);
            let next = member.t().matmul(&x) / counts.unsqueeze(-1);
            let change = (&next - centers).abs().max();
            (next, change, n + 1)
        };
        let (centers, _, rounds) = lax::while_loop(moving, body, begin);
        (centers, rounds)
    });
    run.call((x.clone(), start.clone()))
}

fn main() -> Result<()> {
    manual_seed(6);
    let centers = tensor(&[[0.0, 0.0], [4.0, 4.0], [0.0, 5.0], [5.0, 0.0]], (4, 2));
    let x = (centers.unsqueeze(1) + randn((4, 50, 2))).reshape((200, 2));
    let (found, rounds) = kmeans(&x, &x.i(step(.., 50)));
    println!("after {} rounds", rounds.item::<i32>()?);
    found.show();
    Ok(())
}
