//! Convolutions over one or two axes.

use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError};
use ir::ops::WindowConfig;
use ir::{GraphBuilder, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let (x, w) = (p.tensor(0)?, p.tensor(1)?);
    let axes = if p.name == "conv1d" { 1 } else { 2 };
    let (input, kernel) = (l.b.ty(x).shape, l.b.ty(w).shape);
    if input.len() != axes + 2 || kernel.len() != axes + 2 {
        let sizes = if axes == 1 { "[B, C, T] and [N, C, K]" } else { "[B, C, H, W] and [N, C, KH, KW]" };
        return Err(PrimitiveError::InvalidArgument(format!("needs x and weight of {sizes}")));
    }
    let number = |name: &str, least: i64| -> LowerResult<usize> {
        let n = p.int(name).unwrap_or(least);
        usize::try_from(n)
            .ok()
            .filter(|_| n >= least)
            .ok_or_else(|| PrimitiveError::InvalidArgument(format!("cannot take {name}={n}")))
    };
    let (stride, padding, groups) = (number("stride", 1)?, number("padding", 0)?, number("groups", 1)?);
    if kernel[1] * groups != input[1] {
        let words = format!("has {} channels, its weight takes {} in {groups} groups", input[1], kernel[1] * groups);
        return Err(PrimitiveError::InvalidArgument(words));
    }
    if (0..axes).any(|a| input[a + 2] + 2 * padding < kernel[a + 2]) {
        return Err(PrimitiveError::InvalidArgument(format!(
            "has a kernel {:?} larger than its input {:?}",
            &kernel[2..],
            &input[2..]
        )));
    }
    let windows = WindowConfig::strided(&vec![stride; axes], &vec![padding as i64; axes]);
    let mut y = l.b.conv(x, w, windows, groups)?;
    if let Some(bias) = p.optional(2)? {
        let shape = l.b.ty(y).shape;
        let bias = l.b.broadcast(bias, &shape, &[1])?;
        y = l.b.add(y, bias)?;
    }
    Ok(vec![y])
}
