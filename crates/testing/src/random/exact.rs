//! Expressions of a few numbers (zeros of both signs, ±1, 2, infinities, NaN) whose results are exact in every implementation, so
//! that every bit can be compared. They detect compilers that ignore NaN and simplify `x · 0`, `x - x` or `x / x` to constants.

use super::Sample;
use crate::Rng;
use ir::ops::Fma;
use ir::{Binary, Builder, Compare, DType, GraphBuilder, Literal, Result, Scalar, Type, Unary, Value};

const NUMBERS: [f64; 9] = [0.0, -0.0, 1.0, -1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.5];

/// The number of elements of each input: every pair of numbers.
const COUNT: usize = NUMBERS.len() * NUMBERS.len();

/// Some dozen expressions over the same two inputs.
pub fn exact_expressions(seed: u64) -> Sample {
    let mut rng = Rng::new(seed);
    let dtype = *rng.pick(&[DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16]);
    let ty = Type::new(dtype, &[COUNT]);
    let mut b = Builder::new();
    let inputs = [b.input(dtype, &[COUNT]), b.input(dtype, &[COUNT])];
    let made = expressions(&mut b, &mut rng, &ty, inputs);
    let graph = b.finish(&made.expect("expressions type-check"));
    let of = |pick: fn(usize) -> usize| Literal::from_fn(ty.clone(), |k| Scalar::from_f64(dtype, NUMBERS[pick(k)]));
    Sample { seed, graph, inputs: vec![of(|k| k / NUMBERS.len()), of(|k| k % NUMBERS.len())] }
}

fn expressions(b: &mut Builder, rng: &mut Rng, ty: &Type, inputs: [Value; 2]) -> Result<Vec<Value>> {
    let mut leaves = inputs.to_vec();
    for _ in 0..3 {
        let c = *rng.pick(&NUMBERS);
        leaves.push(b.full(ty, Scalar::from_f64(ty.dtype, c))?);
    }
    // Numbers that compilers can derive: from bools, from integers, from an axis with one index.
    let c = b.compare(*rng.pick(Compare::ALL), leaves[0], *rng.pick(&leaves))?;
    leaves.push(b.cast(c, ty.dtype)?);
    let index = b.iota(DType::I32, &[1], 0)?;
    let index = b.cast(index, ty.dtype)?;
    leaves.push(b.broadcast_to(index, &ty.shape)?);
    let (mut pool, mut outputs) = (leaves.clone(), Vec::new());
    // Each level is computed from lower ones: numbers stay so short that nothing is rounded.
    for (level, count) in [(1, 8), (2, 6), (3, 4)] {
        let below = pool.clone();
        for _ in 0..count {
            let made = expression(b, rng, ty, &leaves, &below, level)?;
            pool.push(made);
            outputs.push(made);
        }
    }
    Ok(outputs)
}

fn expression(
    b: &mut Builder,
    rng: &mut Rng,
    ty: &Type,
    leaves: &[Value],
    below: &[Value],
    level: usize,
) -> Result<Value> {
    let (x, y, z) = (*rng.pick(below), *rng.pick(below), *rng.pick(below));
    let leaf = *rng.pick(leaves);
    // Only short numbers are multiplied.
    let short = if level < 3 { y } else { leaf };
    match rng.below(16) {
        0 => b.add(x, y),
        1 => b.sub(x, y),
        2 => b.sub(x, x),
        3 => b.mul(x, short),
        4 => b.one(Fma.into(), &[x, short, z]),
        5 => b.one(Fma.into(), &[x, leaf, leaf]),
        6 => b.div(x, leaf),
        7 => b.div(leaf, leaf),
        8 => {
            let turned = b.neg(x)?;
            b.add(x, turned)
        }
        9 => {
            let over = b.unary(Unary::Reciprocal, leaf)?;
            b.mul(over, leaf)
        }
        10 => {
            // The square of a square root, which is NaN for negative numbers.
            let square = b.mul(leaf, leaf)?;
            let square = if rng.bernoulli(0.5) { b.neg(square)? } else { square };
            let root = b.unary(Unary::Sqrt, square)?;
            if rng.bernoulli(0.5) { b.mul(root, root) } else { Ok(root) }
        }
        11 => {
            // The larger of two zeros is not specified: adding a zero removes the sign.
            let most = b.binary(*rng.pick(&[Binary::Max, Binary::Min]), x, y)?;
            let zero = b.full(ty, Scalar::from_f64(ty.dtype, 0.0))?;
            b.add(most, zero)
        }
        12 => {
            let c = b.compare(*rng.pick(Compare::ALL), x, y)?;
            let (p, q) = (*rng.pick(&[x, leaf]), *rng.pick(&[y, leaf]));
            b.select(c, p, q)
        }
        13 => {
            let c = b.compare(*rng.pick(Compare::ALL), x, leaf)?;
            let c = b.cast(c, ty.dtype)?;
            b.mul(c, short)
        }
        14 => {
            let c = b.cast(x, DType::Bool)?;
            b.cast(c, ty.dtype)
        }
        _ => b.unary(*rng.pick(&[Unary::Sign, Unary::Abs, Unary::Floor, Unary::Neg]), x),
    }
}
