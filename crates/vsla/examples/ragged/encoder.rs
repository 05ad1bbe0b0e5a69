//! A ragged batch in a transformer encoder: the tokens of all sequences are concatenated, without padding.

use tensorloom_vsla::{DType, Numerics, Program, ProgramBuilder, Result, ValueId};

/// Lengths of 64 sequences from a long-tailed distribution (`exp` of a normal).
const LENGTHS: &str = include_str!("../../../../bench/ragged.json");

/// Returns the number of tokens of each sequence.
pub fn lengths() -> Vec<usize> {
    LENGTHS.trim().trim_matches(['[', ']']).split(',').filter_map(|n| n.trim().parse().ok()).collect()
}

/// Sizes of an encoder.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The number of features of a token.
    pub width: usize,
    /// The number of attention heads that the features are split into.
    pub heads: usize,
    /// The number of hidden features of the feed-forward network.
    pub hidden: usize,
    /// The number of layers.
    pub layers: usize,
}

/// The sizes that the benchmark measures.
pub const MEASURED: Sizes = Sizes { width: 256, heads: 4, hidden: 1024, layers: 4 };

/// Returns the shapes of a layer's parameters, in order.
fn shapes(sizes: &Sizes) -> [Vec<usize>; 12] {
    let (d, h) = (sizes.width, sizes.hidden);
    [
        vec![d, 3 * d],
        vec![3 * d],
        vec![d, d],
        vec![d],
        vec![d],
        vec![d],
        vec![d, h],
        vec![h],
        vec![h, d],
        vec![d],
        vec![d],
        vec![d],
    ]
}

/// Returns the number of elements of all parameters (§14.1.1, with biases, without a vocabulary).
pub fn parameters(sizes: &Sizes) -> usize {
    shapes(sizes).iter().map(|s| s.iter().product::<usize>()).sum::<usize>() * sizes.layers
}

/// Builds the encoder: post-norm layers with gelu, as in PyTorch's `TransformerEncoderLayer`.
pub fn encoder(sizes: &Sizes, lengths: &[usize]) -> Result<Program> {
    build(sizes, lengths, false)
}

/// Builds the encoder with a checkpoint after each layer, so that backward recomputes the values between checkpoints.
pub fn checkpointed(sizes: &Sizes, lengths: &[usize]) -> Result<Program> {
    build(sizes, lengths, true)
}

fn build(sizes: &Sizes, lengths: &[usize], marks: bool) -> Result<Program> {
    let (width, tokens) = (sizes.width, lengths.iter().sum());
    let mut b = ProgramBuilder::new();
    // Matrix products accumulate in f32, as in the peers.
    b.numerics(Numerics { reduced_precision_products: true, ..Numerics::default() });
    let mut x = b.input("x", DType::F32, &[tokens, width])?;
    for layer in 0..sizes.layers {
        let mut p = Vec::new();
        for (i, s) in shapes(sizes).iter().enumerate() {
            p.push(b.param(&format!("{layer}.{i}"), DType::F32, s)?);
        }
        let affine = |b: &mut ProgramBuilder, x: ValueId, w: ValueId, bias: ValueId| {
            let y = b.matmul(x, w)?;
            let bias = b.repeat(bias, tokens)?;
            b.add(y, bias)
        };
        let qkv = affine(&mut b, x, p[0], p[1])?;
        let part = |b: &mut ProgramBuilder, i: usize| b.slice(qkv, &[0, i * width], &[tokens, (i + 1) * width]);
        let (q, k, v) = (part(&mut b, 0)?, part(&mut b, 1)?, part(&mut b, 2)?);
        let a = b.attention(q, k, v, sizes.heads, lengths)?;
        let a = affine(&mut b, a, p[2], p[3])?;
        let r = b.add(x, a)?;
        x = b.layernorm(r, p[4], p[5], 1e-5)?;
        let up = affine(&mut b, x, p[6], p[7])?;
        let up = b.gelu(up)?;
        let down = affine(&mut b, up, p[8], p[9])?;
        let r = b.add(x, down)?;
        x = b.layernorm(r, p[10], p[11], 1e-5)?;
        if marks && layer + 1 < sizes.layers {
            b.checkpoint(x)?;
        }
    }
    b.output(x)?;
    b.build()
}

/// Returns element `i` of the pseudo-random tensor `seed`, in [-1, 1). The peers compute the same numbers.
fn number(seed: u32, i: usize) -> f32 {
    let mut h = (i as u32).wrapping_mul(0x9e37_79b1).wrapping_add(seed.wrapping_mul(0x85eb_ca6b));
    h = (h ^ (h >> 15)).wrapping_mul(0x2c1b_3c6d);
    h = (h ^ (h >> 12)).wrapping_mul(0x297a_2d39);
    h ^= h >> 15;
    (h >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// Returns the values of an input (`k` = 0) or of the `k`-th parameter (from 1). Matrices are scaled by their width, and norm
/// weights are near 1.
pub fn values(k: usize, shape: &[usize]) -> Vec<f32> {
    let place = if k == 0 { 0 } else { (k - 1) % 12 };
    let (scale, offset) = match (k, place) {
        (0, _) => (1.0, 0.0),
        (_, 4 | 10) => (0.1, 1.0),
        _ if shape.len() == 2 => ((shape[0] as f32).powf(-0.5), 0.0),
        _ => (0.1, 0.0),
    };
    (0..shape.iter().product()).map(|i| number(k as u32, i) * scale + offset).collect()
}

/// Returns the floating-point operations of the matrix products: for the real tokens, and for tokens with padding.
pub fn flop(sizes: &Sizes, lengths: &[usize]) -> (f64, f64) {
    let (d, layers) = (sizes.width, sizes.layers);
    let linear = 2.0 * (4 * d * d + 2 * d * sizes.hidden) as f64;
    let sequence = |n: usize| (n as f64) * linear + 4.0 * (n * n * d) as f64;
    let real: f64 = lengths.iter().map(|&n| sequence(n)).sum();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    (real * layers as f64, sequence(longest) * (lengths.len() * layers) as f64)
}
