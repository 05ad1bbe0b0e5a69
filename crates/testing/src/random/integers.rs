//! Expressions of a few integers (at the limits of each type and around zero), compared bit for bit. They detect compiler bugs
//! with bounds, comparisons with the same bounds, and widths.

use super::Sample;
use crate::Rng;
use ir::{Binary, Builder, Compare, DType, GraphBuilder, Literal, Result, Scalar, Type, Unary, Value};

const NUMBERS: [i64; 12] = [0, 1, 2, -1, -2, 7, 127, 128, 254, 255, 65_535, i32::MAX as i64];
const TYPES: [DType; 7] = [DType::I32, DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I64];

/// The number of elements of each input: every pair of numbers.
const COUNT: usize = NUMBERS.len() * NUMBERS.len();

/// Some dozen expressions over the same two inputs: integers, or floats that are converted to integers.
pub fn integer_expressions(seed: u64) -> Sample {
    let mut rng = Rng::new(seed);
    let dtype = *rng.pick(&TYPES);
    let source = if rng.bernoulli(0.5) { DType::F32 } else { dtype };
    let mut b = Builder::new();
    let inputs = [b.input(source, &[COUNT]), b.input(source, &[COUNT])];
    let made = expressions(&mut b, &mut rng, dtype, inputs);
    let graph = b.finish(&made.expect("expressions type-check"));
    let of = |pick: fn(usize) -> usize| {
        let number = |k: usize| match source {
            // Includes halves, which are truncated.
            DType::F32 => Scalar::from_f64(source, NUMBERS[pick(k)] as f64 + 0.5 * (k % 2) as f64),
            _ => Scalar::from_i64(source, NUMBERS[pick(k)]),
        };
        Literal::from_fn(Type::new(source, &[COUNT]), number)
    };
    Sample { seed, graph, inputs: vec![of(|k| k / NUMBERS.len()), of(|k| k % NUMBERS.len())] }
}

fn expressions(b: &mut Builder, rng: &mut Rng, dtype: DType, inputs: [Value; 2]) -> Result<Vec<Value>> {
    let ty = Type::new(dtype, &[COUNT]);
    let mut pool = Vec::new();
    for x in inputs {
        pool.push(b.cast(x, dtype)?);
    }
    for _ in 0..3 {
        let c = *rng.pick(&NUMBERS);
        pool.push(b.full(&ty, Scalar::from_i64(dtype, c))?);
    }
    let mut outputs = Vec::new();
    for _ in 0..18 {
        let made = expression(b, rng, &pool)?;
        pool.push(made);
        // Only some are outputs: the others can be fused with their consumers.
        if rng.bernoulli(0.6) {
            outputs.push(made);
        }
    }
    outputs.push(pool[pool.len() - 1]);
    Ok(outputs)
}

fn expression(b: &mut Builder, rng: &mut Rng, pool: &[Value]) -> Result<Value> {
    let (x, y, z) = (*rng.pick(pool), *rng.pick(pool), *rng.pick(pool));
    let dtype = b.ty(x).dtype;
    let compared = |b: &mut Builder, rng: &mut Rng, x: Value, y: Value| b.compare(*rng.pick(Compare::ALL), x, y);
    match rng.below(13) {
        0 => {
            // Clamped between two bounds, then compared with one of them.
            let most = bound(b, rng, Binary::Min, x, y)?;
            let within = bound(b, rng, Binary::Max, most, z)?;
            let limit = *rng.pick(&[y, z]);
            let c = compared(b, rng, within, limit)?;
            b.cast(c, dtype)
        }
        1 => {
            let least = bound(b, rng, Binary::Max, x, y)?;
            bound(b, rng, Binary::Min, least, z)
        }
        12 => {
            // A bound that determines the result, as zero often does.
            let op = *rng.pick(&[Binary::Max, Binary::Min]);
            let most = bound(b, rng, op, x, y)?;
            let zero = b.full(&Type::new(dtype, &[COUNT]), Scalar::from_i64(dtype, 0))?;
            let c = compared(b, rng, most, zero)?;
            b.select(c, y, z)
        }
        2 => {
            let c = compared(b, rng, x, y)?;
            b.select(c, y, z)
        }
        3 => {
            let c = compared(b, rng, x, y)?;
            b.cast(c, dtype)
        }
        4 => {
            // A conversion to another width and back.
            let other = b.cast(x, *rng.pick(&TYPES))?;
            b.cast(other, dtype)
        }
        5 => {
            let real = b.cast(x, DType::F32)?;
            b.cast(real, dtype)
        }
        6 => b.unary(*rng.pick(&[Unary::Not, Unary::Neg, Unary::Abs, Unary::Sign]), x).or_else(|_| b.add(x, y)),
        7 => b.binary(*rng.pick(&[Binary::And, Binary::Or, Binary::Xor]), x, y),
        8 => b.binary(*rng.pick(&[Binary::Shl, Binary::Shr]), x, y),
        9 => b.binary(*rng.pick(&[Binary::Div, Binary::Rem]), x, y),
        10 => b.binary(*rng.pick(&[Binary::Max, Binary::Min]), x, y),
        _ => b.binary(*rng.pick(&[Binary::Add, Binary::Sub, Binary::Mul]), x, y),
    }
}

/// The maximum or the minimum of two numbers, as an op or as a comparison and a selection.
fn bound(b: &mut Builder, rng: &mut Rng, op: Binary, x: Value, y: Value) -> Result<Value> {
    if rng.bernoulli(0.6) {
        return b.binary(op, x, y);
    }
    let order = if op == Binary::Max { [Compare::Gt, Compare::Ge] } else { [Compare::Lt, Compare::Le] };
    let first = b.compare(*rng.pick(&order), x, y)?;
    b.select(first, x, y)
}
