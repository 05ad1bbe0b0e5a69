//! Adam moments in 8 bits, as in bitsandbytes: blocks of 256 numbers. Each number is divided by the block's largest magnitude and
//! stored as an index into a table of 256 numbers that is dense near zero ("dynamic" quantization: a power of ten and a
//! fraction). The update itself is computed in f32 from the moments before they are rounded. Tensors of fewer than 4096 elements
//! keep f32 moments, and so do embedding tables, as is usual with bitsandbytes: a block holds rows of frequent and of rare
//! tokens, whose squared gradients are too different for one scale.

use ir::ops::ReduceKind;
use ir::ops::gather::GatherMode;
use ir::{Binary, Builder, Compare, DType, Graph, GraphBuilder, Literal, Op, Result, Scalar, Type, Unary, Value};

/// Number of elements that share a scale.
pub const QUANT_BLOCK_SIZE: usize = 256;

/// Tensors with fewer elements keep f32 moments.
const MIN_QUANTIZED_ELEMENTS: usize = 4096;

/// The types in which a moment is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct MomentTypes {
    /// The f32 values, or the codes `[blocks, 256]`.
    pub codes: Type,
    /// The largest magnitude of each block.
    pub scales: Option<Type>,
}

impl MomentTypes {
    /// Returns the types for a tensor of this type.
    pub fn for_param(ty: &Type, eight_bits: bool) -> MomentTypes {
        if !eight_bits || ty.numel() < MIN_QUANTIZED_ELEMENTS {
            return MomentTypes { codes: ty.clone(), scales: None };
        }
        let blocks = ty.numel().div_ceil(QUANT_BLOCK_SIZE);
        MomentTypes {
            codes: Type::new(DType::U8, &[blocks, QUANT_BLOCK_SIZE]),
            scales: Some(Type::new(DType::F32, &[blocks])),
        }
    }
}

/// Whether a value is an embedding table, also inside called subgraphs.
pub fn is_embedding_table(graph: &Graph, value: Value) -> bool {
    graph.nodes().iter().filter(|node| node.args.contains(&value)).any(|node| match &node.op {
        Op::Composite(c) if c.name == "embedding" => node.args[0] == value,
        Op::Cast(_) | Op::Name(_) => is_embedding_table(graph, node.outs[0]),
        op => {
            let body = match op {
                Op::Composite(c) => &c.body,
                Op::Call(call) => &call.body,
                Op::Remat(remat) => &remat.body,
                _ => return false,
            };
            node.args.iter().zip(body.inputs()).any(|(arg, input)| *arg == value && is_embedding_table(body, *input))
        }
    })
}

/// Whether the table has negative numbers: true for first moments, false for second moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed(pub bool);

/// The quantization table in ascending order: for each of seven powers of ten, the midpoints of equal intervals of 0.1 to 1;
/// their number doubles with each power.
pub fn quantization_table(signed: Signed) -> Vec<f32> {
    let mut all = vec![0.0f32, 1.0];
    for i in 0..7 {
        let parts = 1usize << if signed.0 { i } else { i + 1 };
        let power = 10f64.powi(i - 6) as f32;
        // The bounds are f32, as in the published table.
        let bound = |j: usize| table_bound(j, parts);
        for j in 0..parts {
            let middle = (bound(j) + bound(j + 1)) / 2.0;
            let x = power * middle;
            all.push(x);
            if signed.0 {
                all.push(-x);
            }
        }
    }
    all.sort_by(f32::total_cmp);
    all
}

/// Interpolates between 0.1 and 1, starting at the nearer end, so that both ends are exact; rounded
/// once, as PyTorch's vectorized `linspace` does.
fn table_bound(j: usize, parts: usize) -> f32 {
    let step = (1.0f32 - 0.1f32) / parts as f32;
    match j < (parts + 1) / 2 {
        true => step.mul_add(j as f32, 0.1),
        false => (-step).mul_add((parts - j) as f32, 1.0),
    }
}

fn constant(b: &mut Builder, values: &[f32]) -> Result<Value> {
    let ty = Type::new(DType::F32, &[values.len()]);
    b.constant(Literal::from_fn(ty, |i| Scalar::from_f64(DType::F32, f64::from(values[i]))))
}

/// Returns a moment in f32, with the shape of its tensor.
pub fn dequantize(
    b: &mut Builder,
    kept: Value,
    scales: Option<Value>,
    signed: Signed,
    shape: &[usize],
) -> Result<Value> {
    let Some(scales) = scales else { return Ok(kept) };
    let codes = b.cast(kept, DType::I32)?;
    let table = constant(b, &quantization_table(signed))?;
    let numbers = b.take(table, codes, 0, GatherMode::Clip)?;
    let blocks = b.ty(kept).shape;
    let scales = b.broadcast(scales, &blocks, &[0])?;
    let all = b.mul(numbers, scales)?;
    let (n, count) = (shape.iter().product(), blocks.iter().product::<usize>());
    let flat = b.reshape(all, &[count])?;
    let own = if n == count { flat } else { b.slice_axis(flat, 0, 0, n)? };
    b.reshape(own, shape)
}

/// Returns a moment's codes and scales.
pub fn quantize(b: &mut Builder, moment: Value, signed: Signed) -> Result<(Value, Option<Value>)> {
    let n = b.ty(moment).numel();
    let blocks = n.div_ceil(QUANT_BLOCK_SIZE);
    let flat = b.reshape(moment, &[n])?;
    let flat = match blocks * QUANT_BLOCK_SIZE - n {
        0 => flat,
        more => {
            let zero = b.scalar(DType::F32, 0.0)?;
            b.pad(flat, zero, &[0], &[more as i64], &[0])?
        }
    };
    let rows = b.reshape(flat, &[blocks, QUANT_BLOCK_SIZE])?;
    let size = b.unary(Unary::Abs, rows)?;
    let most = b.reduce(ReduceKind::Max, size, &[1])?;
    let wide = b.broadcast(most, &[blocks, QUANT_BLOCK_SIZE], &[0])?;
    let zero = b.full_like(wide, 0.0)?;
    let quotient = b.div(rows, wide)?;
    let nothing = b.compare(Compare::Eq, wide, zero)?;
    let x = b.select(nothing, zero, quotient)?;
    let all = quantization_table(signed);
    let middles: Vec<f32> = all.windows(2).map(|w| (w[0] + w[1]) * 0.5).collect();
    let middles = constant(b, &middles)?;
    // Counts the midpoints below each value by binary search.
    let ty = Type::new(DType::I32, &[blocks, QUANT_BLOCK_SIZE]);
    let mut code = b.zeros(&ty)?;
    for step in (0..8).rev().map(|bit| 1i32 << bit) {
        let next = b.offset(code, f64::from(step))?;
        let at = b.offset(next, -1.0)?;
        let middle = b.take(middles, at, 0, GatherMode::Clip)?;
        let above = b.compare(Compare::Gt, x, middle)?;
        code = b.select(above, next, code)?;
    }
    if signed.0 {
        // Negative values stay negative, so that the sign is preserved.
        let none = all.iter().position(|x| *x == 0.0).unwrap_or(0);
        let none = b.full_like(code, none as f64)?;
        let (below, lost) = (b.compare(Compare::Lt, x, zero)?, b.compare(Compare::Eq, code, none)?);
        let lost = b.binary(Binary::And, below, lost)?;
        let less = b.offset(code, -1.0)?;
        code = b.select(lost, less, code)?;
    }
    Ok((b.cast(code, DType::U8)?, Some(most)))
}
