//! Moments in 8 bits, as bitsandbytes keeps them: blocks of 256 numbers, each as the place of its quotient by the block's largest
//! magnitude in a table of 256 numbers that is dense near zero ("dynamic": a power of ten and a fraction). The update itself is
//! computed in f32 from the moments before they are rounded. Tensors of fewer than 4096 elements keep theirs in f32, and so do tables
//! that ids are looked up in, as trainers with bitsandbytes have it: a block holds rows of frequent and of rare ids, whose squares
//! are too far apart for one scale.

use ir::ops::ReduceKind;
use ir::ops::gather::GatherMode;
use ir::{Binary, Build, Builder, Compare, DType, Graph, Literal, Op, Result, Scalar, Type, Unary, Value};

/// Numbers that share a scale.
pub const BLOCK: usize = 256;

/// Smaller tensors keep f32.
const LEAST: usize = 4096;

/// How a moment of a tensor is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// Its numbers, or their codes `[blocks, 256]`.
    pub codes: Type,
    /// The largest magnitude of each block.
    pub scales: Option<Type>,
}

impl Moment {
    /// Those of a tensor of this type.
    pub fn of(ty: &Type, eight_bits: bool) -> Moment {
        if !eight_bits || ty.numel() < LEAST {
            return Moment { codes: ty.clone(), scales: None };
        }
        let blocks = ty.numel().div_ceil(BLOCK);
        Moment { codes: Type::new(DType::U8, &[blocks, BLOCK]), scales: Some(Type::new(DType::F32, &[blocks])) }
    }
}

/// Whether ids are looked up in a value, inside what the graph calls too.
pub fn is_table(graph: &Graph, value: Value) -> bool {
    graph.nodes().iter().filter(|node| node.args.contains(&value)).any(|node| match &node.op {
        Op::Composite(c) if c.name == "embedding" => node.args[0] == value,
        Op::Cast(_) | Op::Name(_) => is_table(graph, node.outs[0]),
        op => {
            let body = match op {
                Op::Composite(c) => &c.body,
                Op::Call(call) => &call.body,
                Op::Remat(remat) => &remat.body,
                _ => return false,
            };
            node.args.iter().zip(body.inputs()).any(|(arg, input)| *arg == value && is_table(body, *input))
        }
    })
}

/// Whether the table has negative numbers: that of first moments has, that of squares has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed(pub bool);

/// The table, in order: for each of seven powers of ten the middles of equal parts of 0.1 to 1, twice as many from one to the next.
pub fn table(signed: Signed) -> Vec<f32> {
    let mut all = vec![0.0f32, 1.0];
    for i in 0..7 {
        let parts = 1usize << if signed.0 { i } else { i + 1 };
        let power = 10f64.powi(i - 6) as f32;
        // Bounds are f32, as the published table has them.
        let bound = |j: usize| bound(j, parts);
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

/// A point of the line from 0.1 to 1: from the nearer end, so that both ends are exact, and rounded once, as PyTorch's vectors do it.
fn bound(j: usize, parts: usize) -> f32 {
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

/// A moment in f32, of the shape of its tensor.
pub fn wide(b: &mut Builder, kept: Value, scales: Option<Value>, signed: Signed, shape: &[usize]) -> Result<Value> {
    let Some(scales) = scales else { return Ok(kept) };
    let codes = b.cast(kept, DType::I32)?;
    let table = constant(b, &table(signed))?;
    let numbers = b.take(table, codes, 0, GatherMode::Clip)?;
    let blocks = b.ty(kept).shape;
    let scales = b.broadcast(scales, &blocks, &[0])?;
    let all = b.mul(numbers, scales)?;
    let (n, count) = (shape.iter().product(), blocks.iter().product::<usize>());
    let flat = b.reshape(all, &[count])?;
    let own = if n == count { flat } else { b.slice_axis(flat, 0, 0, n)? };
    b.reshape(own, shape)
}

/// A moment's codes and scales.
pub fn packed(b: &mut Builder, moment: Value, signed: Signed) -> Result<(Value, Option<Value>)> {
    let n = b.ty(moment).numel();
    let blocks = n.div_ceil(BLOCK);
    let flat = b.reshape(moment, &[n])?;
    let flat = match blocks * BLOCK - n {
        0 => flat,
        more => {
            let zero = b.scalar(DType::F32, 0.0)?;
            b.pad(flat, zero, &[0], &[more as i64], &[0])?
        }
    };
    let rows = b.reshape(flat, &[blocks, BLOCK])?;
    let size = b.unary(Unary::Abs, rows)?;
    let most = b.reduce(ReduceKind::Max, size, &[1])?;
    let wide = b.broadcast(most, &[blocks, BLOCK], &[0])?;
    let zero = b.full_like(wide, 0.0)?;
    let quotient = b.div(rows, wide)?;
    let nothing = b.compare(Compare::Eq, wide, zero)?;
    let x = b.select(nothing, zero, quotient)?;
    let all = table(signed);
    let middles: Vec<f32> = all.windows(2).map(|w| (w[0] + w[1]) * 0.5).collect();
    let middles = constant(b, &middles)?;
    // How many middles lie below: a search by halves.
    let ty = Type::new(DType::I32, &[blocks, BLOCK]);
    let mut code = b.zeros(&ty)?;
    for step in (0..8).rev().map(|bit| 1i32 << bit) {
        let next = b.offset(code, f64::from(step))?;
        let at = b.offset(next, -1.0)?;
        let middle = b.take(middles, at, 0, GatherMode::Clip)?;
        let above = b.compare(Compare::Gt, x, middle)?;
        code = b.select(above, next, code)?;
    }
    if signed.0 {
        // What is below zero stays there, so that no sign gets lost.
        let none = all.iter().position(|x| *x == 0.0).unwrap_or(0);
        let none = b.full_like(code, none as f64)?;
        let (below, lost) = (b.compare(Compare::Lt, x, zero)?, b.compare(Compare::Eq, code, none)?);
        let lost = b.binary(Binary::And, below, lost)?;
        let less = b.offset(code, -1.0)?;
        code = b.select(lost, less, code)?;
    }
    Ok((b.cast(code, DType::U8)?, Some(most)))
}
