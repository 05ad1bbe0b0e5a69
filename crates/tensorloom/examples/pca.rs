//! The directions in which data varies most, by a singular value decomposition.
//!
//! ```text
//! cargo run --release -p tensorloom --example pca
//! ```

use tensorloom::Result;
use tensorloom::prelude::*;

/// What [`pca`] finds.
pub struct Components {
    /// The share of the variance that each direction explains.
    pub ratio: Tensor,
    /// The first directions as rows.
    pub directions: Tensor,
    /// The data, as far as the first directions tell it.
    pub restored: Tensor,
}

/// The first `k` principal components of rows.
pub fn pca(x: &Tensor, k: usize) -> Components {
    let mean = x.mean_axes(0, true);
    let centered = x - &mean;
    let (_, s, vt) = linalg::svd(&centered);
    let power = s.square();
    let directions = vt.i(..k);
    Components {
        ratio: &power / power.sum(),
        restored: centered.matmul(&directions.t()).matmul(&directions) + mean,
        directions,
    }
}

fn main() -> Result<()> {
    manual_seed(7);
    let x = randn((200, 3)).matmul(&randn((3, 8))) + 0.05 * randn((200, 8));
    let found = pca(&x, 3);
    found.ratio.show();
    println!("off by {:.4}", (&found.restored - &x).square().mean().sqrt().item::<f32>()?);
    found.directions.show();
    Ok(())
}
