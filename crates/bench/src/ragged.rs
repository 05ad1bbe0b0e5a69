//! A ragged batch through a transformer encoder: tokens of all sequences lie one after the other, and none is padding.

use vsla::{DType, Program, ProgramBuilder, Result, ValueId};

/// Lengths of the sequences, from a long-tailed distribution (`exp` of a normal); the peers read the same file.
const LENGTHS: &str = include_str!("../../../bench/ragged.json");

pub(crate) const WIDTH: usize = 256;
const HEADS: usize = 4;
const HIDDEN: usize = 1024;
const LAYERS: usize = 4;

/// Tokens of each sequence.
pub(crate) fn lengths() -> Vec<usize> {
    LENGTHS.trim().trim_matches(['[', ']']).split(',').filter_map(|n| n.trim().parse().ok()).collect()
}

/// Shapes of a layer's parameters, in order.
fn shapes() -> [Vec<usize>; 12] {
    let (d, h) = (WIDTH, HIDDEN);
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

/// The encoder: post-norm layers with gelu, as PyTorch's `TransformerEncoderLayer`.
pub(crate) fn encoder(lengths: &[usize]) -> Result<Program> {
    let tokens = lengths.iter().sum();
    let mut b = ProgramBuilder::new();
    let mut x = b.input("x", DType::F32, &[tokens, WIDTH])?;
    for layer in 0..LAYERS {
        let mut p = Vec::new();
        for (i, s) in shapes().iter().enumerate() {
            p.push(b.param(&format!("{layer}.{i}"), DType::F32, s)?);
        }
        let affine = |b: &mut ProgramBuilder, x: ValueId, w: ValueId, bias: ValueId| {
            let y = b.matmul(x, w)?;
            let bias = b.repeat(bias, tokens)?;
            b.add(y, bias)
        };
        let qkv = affine(&mut b, x, p[0], p[1])?;
        let part = |b: &mut ProgramBuilder, i: usize| b.slice(qkv, &[0, i * WIDTH], &[tokens, (i + 1) * WIDTH]);
        let (q, k, v) = (part(&mut b, 0)?, part(&mut b, 1)?, part(&mut b, 2)?);
        let a = b.attention(q, k, v, HEADS, lengths)?;
        let a = affine(&mut b, a, p[2], p[3])?;
        let r = b.add(x, a)?;
        x = b.layernorm(r, p[4], p[5], 1e-5)?;
        let up = affine(&mut b, x, p[6], p[7])?;
        let up = b.gelu(up)?;
        let down = affine(&mut b, up, p[8], p[9])?;
        let r = b.add(x, down)?;
        x = b.layernorm(r, p[10], p[11], 1e-5)?;
    }
    b.output(x)?;
    b.build()
}

/// Numbers that the peers can make too: element `i` of tensor `seed`, in [-1, 1).
fn number(seed: u32, i: usize) -> f32 {
    let mut h = (i as u32).wrapping_mul(0x9e37_79b1).wrapping_add(seed.wrapping_mul(0x85eb_ca6b));
    h = (h ^ (h >> 15)).wrapping_mul(0x2c1b_3c6d);
    h = (h ^ (h >> 12)).wrapping_mul(0x297a_2d39);
    h ^= h >> 15;
    (h >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// The values of an input (seed 0) or of the `k`-th parameter (from 1): matrices are scaled by their width, norms lie
/// around 1.
pub(crate) fn values(k: usize, shape: &[usize]) -> Vec<f32> {
    let place = if k == 0 { 0 } else { (k - 1) % 12 };
    let (scale, offset) = match (k, place) {
        (0, _) => (1.0, 0.0),
        (_, 4 | 10) => (0.1, 1.0),
        _ if shape.len() == 2 => ((shape[0] as f32).powf(-0.5), 0.0),
        _ => (0.1, 0.0),
    };
    (0..shape.iter().product()).map(|i| number(k as u32, i) * scale + offset).collect()
}

/// Floating-point operations of the products: over the tokens that there are, and over padded ones.
pub(crate) fn flop(lengths: &[usize]) -> (f64, f64) {
    let linear = 2.0 * (4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN) as f64;
    let sequence = |n: usize| (n as f64) * linear + 4.0 * (n * n * WIDTH) as f64;
    let real: f64 = lengths.iter().map(|&n| sequence(n)).sum();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    (real * LAYERS as f64, sequence(longest) * (lengths.len() * LAYERS) as f64)
}
