//! Interpolated sampling at computed coordinates: GridSample, AffineGrid, RoiAlign, DeformConv.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::{NodeContext, checked_numel};
use ir::ops::{Clamp, GatherMode, ReduceKind};
use ir::{Binary, Compare, DType, GraphBuilder, Literal, Scalar, Type, Unary, Value};

/// The values outside of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PaddingMode {
    Zeros,
    Border,
    Reflection,
}

/// The elements of `x` `[N, C, dims..]` at integer coordinates: one `[N, P]` of i64 per axis. Returns `[N, C, P]`.
fn pixels(cx: &mut NodeContext, x: Value, at: &[Value], inside: Option<Value>) -> Result<Value> {
    let shape = cx.shape(x);
    let (n, c, dims) = (shape[0], shape[1], &shape[2..]);
    let mut flat: Option<Value> = None;
    for (&v, &d) in at.iter().zip(dims) {
        let (lo, hi) = (cx.full_like(v, 0.0)?, cx.full_like(v, d as f64 - 1.0)?);
        let v = cx.one(Clamp.into(), &[v, lo, hi])?;
        flat = Some(match flat {
            None => v,
            Some(f) => {
                let f = cx.scale(f, d as f64)?;
                cx.add(f, v)?
            }
        });
    }
    let flat = flat.ok_or_else(|| Error::node_error("there are no spatial axes"))?;
    let p = cx.shape(flat)[1];
    let x = cx.reshape(x, &[n, c, dims.iter().product()])?;
    let i = cx.broadcast(flat, &[n, c, p], &[0, 2])?;
    let y = cx.take_along_axis(x, i, 2, GatherMode::Clip)?;
    match inside {
        None => Ok(y),
        Some(m) => {
            let m = cx.broadcast(m, &[n, c, p], &[0, 2])?;
            Ok(cx.zero_unless(m, y)?)
        }
    }
}

/// Which integer coordinates are in bounds.
fn in_bounds(cx: &mut NodeContext, at: &[Value], dims: &[usize]) -> Result<Value> {
    let mut all: Option<Value> = None;
    for (&v, &d) in at.iter().zip(dims) {
        let (lo, hi) = (cx.full_like(v, 0.0)?, cx.full_like(v, d as f64)?);
        let (above, below) = (cx.compare(Compare::Ge, v, lo)?, cx.compare(Compare::Lt, v, hi)?);
        let both = cx.binary(Binary::And, above, below)?;
        all = Some(match all {
            None => both,
            Some(a) => cx.binary(Binary::And, a, both)?,
        });
    }
    all.ok_or_else(|| Error::node_error("there are no spatial axes"))
}

/// Reflects at both ends until the coordinate is in bounds.
fn reflect(cx: &mut NodeContext, x: Value, lo: f64, hi: f64) -> Result<Value> {
    let range = hi - lo;
    if range <= 0.0 {
        return Ok(cx.full_like(x, lo)?);
    }
    let d = cx.offset(x, -lo)?;
    let d = cx.unary(Unary::Abs, d)?;
    let period = cx.full_like(d, 2.0 * range)?;
    let r = cx.binary(Binary::Rem, d, period)?;
    let edge = cx.full_like(r, range)?;
    let over = cx.compare(Compare::Gt, r, edge)?;
    let back = cx.sub(period, r)?;
    let r = cx.select(over, back, r)?;
    Ok(cx.offset(r, lo)?)
}

pub(super) fn grid_sample(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, grid) = (cx.x(0)?, cx.x(1)?);
    let (shape, gs) = (cx.shape(x), cx.shape(grid));
    let nd = shape.len().saturating_sub(2);
    if nd == 0 || nd > 3 || gs.len() != shape.len() || gs[gs.len() - 1] != nd || gs[0] != shape[0] {
        return Err(Error::node_error(format!("a grid {gs:?} doesn't fit {shape:?}")));
    }
    let padding = match cx.string("padding_mode", "zeros").as_str() {
        "zeros" => PaddingMode::Zeros,
        "border" => PaddingMode::Border,
        "reflection" => PaddingMode::Reflection,
        other => return Err(Error::node_error(format!("unknown padding_mode `{other}`"))),
    };
    let corners = cx.flag("align_corners");
    let mode = cx.string("mode", "linear");
    let p: usize = gs[1..gs.len() - 1].iter().product();
    let flat = cx.reshape(grid, &[gs[0], p, nd])?;
    let dims = shape[2..].to_vec();
    let dtype = cx.dtype(x);
    let mut coords = Vec::new();
    for (a, &d) in dims.iter().enumerate() {
        // The grid stores the last axis first.
        let g = cx.slice_axis(flat, 2, nd - 1 - a, nd - a)?;
        let g = cx.reshape(g, &[gs[0], p])?;
        let g = cx.cast(g, if dtype == DType::F64 { DType::F64 } else { DType::F32 })?;
        let g = cx.offset(g, 1.0)?;
        let mut v = if corners {
            cx.scale(g, (d as f64 - 1.0) / 2.0)?
        } else {
            let g = cx.scale(g, d as f64)?;
            let g = cx.offset(g, -1.0)?;
            cx.scale(g, 0.5)?
        };
        if mode == "nearest" {
            v = cx.unary(Unary::Round, v)?;
        }
        v = match padding {
            PaddingMode::Zeros => v,
            PaddingMode::Border => {
                // For cubic interpolation each tap is clamped separately, and taps reach further outside.
                let reach = if matches!(mode.as_str(), "cubic" | "bicubic") { 3.0 } else { 0.0 };
                let (lo, hi) = (cx.full_like(v, -reach)?, cx.full_like(v, d as f64 - 1.0 + reach)?);
                cx.one(Clamp.into(), &[v, lo, hi])?
            }
            PaddingMode::Reflection => {
                let (lo, hi) = if corners { (0.0, d as f64 - 1.0) } else { (-0.5, d as f64 - 0.5) };
                let v = reflect(cx, v, lo, hi)?;
                // Nearest neighbours are clamped to the centers of the border elements.
                if mode == "nearest" {
                    let (lo, hi) = (cx.full_like(v, 0.0)?, cx.full_like(v, d as f64 - 1.0)?);
                    cx.one(Clamp.into(), &[v, lo, hi])?
                } else {
                    v
                }
            }
        };
        coords.push(v);
    }
    let taps: Vec<i64> = match mode.as_str() {
        "nearest" => vec![0],
        "linear" | "bilinear" => vec![0, 1],
        "cubic" | "bicubic" => vec![-1, 0, 1, 2],
        other => return Err(Error::node_error(format!("unknown mode `{other}`"))),
    };
    // For each axis and tap: the integer coordinate and its weight.
    let mut axes: Vec<Vec<(Value, Option<Value>)>> = Vec::new();
    for (&v, &d) in coords.iter().zip(&dims) {
        let base = cx.unary(Unary::Floor, v)?;
        let t = cx.sub(v, base)?;
        let whole = cx.cast(base, DType::I64)?;
        let mut list = Vec::new();
        for &k in &taps {
            let mut at = cx.offset(whole, k as f64)?;
            if padding == PaddingMode::Reflection && taps.len() > 1 {
                let (lo, hi) = if corners { (0.0, d as f64 - 1.0) } else { (-0.5, d as f64 - 0.5) };
                let f = cx.cast(at, DType::F32)?;
                let f = reflect(cx, f, lo, hi)?;
                let f = cx.unary(Unary::Trunc, f)?;
                at = cx.cast(f, DType::I64)?;
            }
            let w = match taps.len() {
                1 => None,
                2 if k == 0 => {
                    let m = cx.neg(t)?;
                    Some(cx.offset(m, 1.0)?)
                }
                2 => Some(t),
                _ => Some(cubic_weight(cx, t, k)?),
            };
            list.push((at, w));
        }
        axes.push(list);
    }
    let mut sum: Option<Value> = None;
    let count = taps.len().pow(nd as u32);
    for mut combination in 0..count {
        let (mut at, mut weight) = (Vec::new(), None);
        for list in &axes {
            let (v, w) = list[combination % taps.len()];
            combination /= taps.len();
            at.push(v);
            weight = match (weight, w) {
                (Some(a), Some(b)) => Some(cx.mul(a, b)?),
                (a, b) => a.or(b),
            };
        }
        let inside = if padding == PaddingMode::Zeros { Some(in_bounds(cx, &at, &dims)?) } else { None };
        let mut y = pixels(cx, x, &at, inside)?;
        if let Some(w) = weight {
            let s = cx.shape(y);
            let w = cx.cast(w, dtype)?;
            let w = cx.broadcast(w, &s, &[0, 2])?;
            y = cx.mul(y, w)?;
        }
        sum = Some(match sum {
            Some(s) => cx.add(s, y)?,
            None => y,
        });
    }
    let y = sum.ok_or_else(|| Error::node_error("the input to sample is empty"))?;
    let out: Vec<usize> = shape[..2].iter().chain(&gs[1..gs.len() - 1]).copied().collect();
    one(cx.reshape(y, &out)?)
}

/// Keys' cubic kernel with a = -0.75 for the tap `k` of -1, 0, 1, 2 at a fraction `t`.
fn cubic_weight(cx: &mut NodeContext, t: Value, k: i64) -> Result<Value> {
    let a = -0.75;
    let x = match k {
        -1 => cx.offset(t, 1.0)?,
        0 => t,
        1 => {
            let m = cx.neg(t)?;
            cx.offset(m, 1.0)?
        }
        _ => {
            let m = cx.neg(t)?;
            cx.offset(m, 2.0)?
        }
    };
    if k == 0 || k == 1 {
        let y = cx.scale(x, a + 2.0)?;
        let y = cx.offset(y, -(a + 3.0))?;
        let y = cx.mul(y, x)?;
        let y = cx.mul(y, x)?;
        return Ok(cx.offset(y, 1.0)?);
    }
    let y = cx.scale(x, a)?;
    let y = cx.offset(y, -5.0 * a)?;
    let y = cx.mul(y, x)?;
    let y = cx.offset(y, 8.0 * a)?;
    let y = cx.mul(y, x)?;
    Ok(cx.offset(y, -4.0 * a)?)
}

pub(super) fn affine_grid(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let theta = cx.x(0)?;
    let size = cx.static_amounts(1, "size")?;
    let size: Option<Vec<usize>> = size.iter().map(|&d| usize::try_from(d).ok().filter(|&d| d > 0)).collect();
    let size = size
        .filter(|s| s.len() == 4 || s.len() == 5)
        .ok_or_else(|| Error::node_error("its size must be [N, C, (D,) H, W]"))?;
    let dims = &size[2..];
    let nd = dims.len();
    if cx.shape(theta) != [size[0], nd, nd + 1] {
        return Err(Error::node_error("its theta does not match its size"));
    }
    // The coordinates along an axis are constants.
    if checked_numel(dims)? > 1 << 32 || dims.iter().any(|&d| d > 1 << 24) {
        return Err(Error::node_error(format!("a grid of {dims:?} places is too large")));
    }
    let corners = cx.flag("align_corners");
    let dtype = cx.dtype(theta);
    let mut column = dims.to_vec();
    column.push(1);
    let mut parts = Vec::new();
    for a in (0..nd).rev() {
        let d = dims[a];
        let at = |i: usize| match corners {
            true if d == 1 => -1.0,
            true => -1.0 + 2.0 * i as f64 / (d as f64 - 1.0),
            false => -1.0 + (2.0 * i as f64 + 1.0) / d as f64,
        };
        let v = cx.constant(Literal::from_fn(Type::new(dtype, &[d]), |i| Scalar::from_f64(dtype, at(i))))?;
        parts.push(cx.broadcast(v, &column, &[a])?);
    }
    parts.push(cx.full(&Type::new(dtype, &column), Scalar::one(dtype))?);
    let grid = cx.concat(&parts, nd)?;
    let p: usize = dims.iter().product();
    let grid = cx.reshape(grid, &[p, nd + 1])?;
    let turned = cx.permute(theta, &[0, 2, 1])?;
    let y = super::matmul::matmul_of(cx, grid, turned)?;
    let out: Vec<usize> = std::iter::once(size[0]).chain(dims.iter().copied()).chain([nd]).collect();
    one(cx.reshape(y, &out)?)
}

/// Bilinear sampling of `[N, C, H, W]` at `[N, P]` rows and columns. More than `beyond` outside the image, the value is 0.
fn bilinear(cx: &mut NodeContext, x: Value, y: Value, w: Value) -> Result<Vec<(Value, Value)>> {
    let mut out = Vec::new();
    let shape = cx.shape(x);
    let split = |cx: &mut NodeContext, v: Value| -> Result<(Value, Value)> {
        let base = cx.unary(Unary::Floor, v)?;
        Ok((cx.cast(base, DType::I64)?, cx.sub(v, base)?))
    };
    let ((y0, ty), (x0, tx)) = (split(cx, y)?, split(cx, w)?);
    for (dy, dx) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
        let (at_y, at_x) = (cx.offset(y0, dy)?, cx.offset(x0, dx)?);
        let side = |cx: &mut NodeContext, t: Value, d: f64| -> Result<Value> {
            if d == 1.0 {
                return Ok(t);
            }
            let m = cx.neg(t)?;
            Ok(cx.offset(m, 1.0)?)
        };
        let (wy, wx) = (side(cx, ty, dy)?, side(cx, tx, dx)?);
        let weight = cx.mul(wy, wx)?;
        let inside = in_bounds(cx, &[at_y, at_x], &shape[2..])?;
        let p = pixels(cx, x, &[at_y, at_x], Some(inside))?;
        let s = cx.shape(p);
        let weight = cx.broadcast(weight, &s, &[0, 2])?;
        out.push((p, weight));
    }
    Ok(out)
}

fn weighted_sum(cx: &mut NodeContext, parts: &[(Value, Value)]) -> Result<Value> {
    let mut sum: Option<Value> = None;
    for &(p, w) in parts {
        let t = cx.mul(p, w)?;
        sum = Some(match sum {
            Some(s) => cx.add(s, t)?,
            None => t,
        });
    }
    sum.ok_or_else(|| Error::node_error("the input is empty"))
}

pub(super) fn roi_align(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, rois, batch) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let shape = cx.shape(x);
    let r = cx.shape(rois).first().copied().unwrap_or(0);
    if shape.len() != 4 || cx.shape(rois) != [r, 4] || cx.shape(batch) != [r] {
        return Err(Error::node_error("its inputs must be [N, C, H, W], [R, 4] and [R]"));
    }
    let small = |name: &str, default: i64| -> Result<usize> {
        let n = cx.int(name, default);
        usize::try_from(n).ok().filter(|n| *n <= 4096).ok_or_else(|| Error::node_error(format!("{name} is {n}")))
    };
    let (oh, ow, ratio) = (small("output_height", 1)?, small("output_width", 1)?, small("sampling_ratio", 0)?);
    let scale = cx.float("spatial_scale", 1.0);
    let half = cx
        .string("coordinate_transformation_mode", if cx.version < 16 { "output_half_pixel" } else { "half_pixel" })
        == "half_pixel";
    let max = cx.string("mode", "avg") == "max";
    if ratio == 0 {
        return Err(Error::node_error(
            "with sampling_ratio 0, the number of samples depends on data, but shapes are static here; set it",
        ));
    }
    let dtype = cx.dtype(x);
    let column = |cx: &mut NodeContext, k: usize| -> Result<Value> {
        let v = cx.slice_axis(rois, 1, k, k + 1)?;
        let v = cx.reshape(v, &[r])?;
        let v = cx.scale(v, scale)?;
        Ok(if half { cx.offset(v, -0.5)? } else { v })
    };
    let (x1, y1, x2, y2) = (column(cx, 0)?, column(cx, 1)?, column(cx, 2)?, column(cx, 3)?);
    let extent = |cx: &mut NodeContext, a: Value, b: Value| -> Result<Value> {
        let d = cx.sub(b, a)?;
        if half {
            return Ok(d);
        }
        let least = cx.full_like(d, 1.0)?;
        Ok(cx.binary(Binary::Max, d, least)?)
    };
    let (h, w) = (extent(cx, y1, y2)?, extent(cx, x1, x2)?);
    // The samples of all regions along one axis: `[R, bins · ratio]`.
    let samples = |cx: &mut NodeContext, start: Value, size: Value, bins: usize| -> Result<Value> {
        let n = bins * ratio;
        let at: Vec<f64> = (0..n).map(|i| (i as f64 + 0.5) / n as f64).collect();
        let v = cx.constant(Literal::from_fn(Type::new(dtype, &[n]), |i| Scalar::from_f64(dtype, at[i])))?;
        let v = cx.broadcast_along(v, &[r, n], 1)?;
        let size = cx.broadcast_along(size, &[r, n], 0)?;
        let start = cx.broadcast_along(start, &[r, n], 0)?;
        let v = cx.mul(v, size)?;
        Ok(cx.add(v, start)?)
    };
    let (ys, xs) = (samples(cx, y1, h, oh)?, samples(cx, x1, w, ow)?);
    // Up to one step outside, coordinates are clamped to the edge; further away the value is 0.
    let bounded = |cx: &mut NodeContext, v: Value, d: usize| -> Result<(Value, Value)> {
        let (lo, hi) = (cx.full_like(v, -1.0)?, cx.full_like(v, d as f64)?);
        let (a, b) = (cx.compare(Compare::Ge, v, lo)?, cx.compare(Compare::Le, v, hi)?);
        let near = cx.binary(Binary::And, a, b)?;
        let (zero, last) = (cx.full_like(v, 0.0)?, cx.full_like(v, d as f64 - 1.0)?);
        Ok((cx.one(Clamp.into(), &[v, zero, last])?, near))
    };
    let ((ys, ny), (xs, nx)) = (bounded(cx, ys, shape[2])?, bounded(cx, xs, shape[3])?);
    let (nh, nw) = (oh * ratio, ow * ratio);
    let grid = |cx: &mut NodeContext, v: Value, axis: usize| -> Result<Value> {
        let v = cx.broadcast(v, &[r, nh, nw], &[0, axis])?;
        Ok(cx.reshape(v, &[r, nh * nw])?)
    };
    let (ys, xs, ny, nx) = (grid(cx, ys, 1)?, grid(cx, xs, 2)?, grid(cx, ny, 1)?, grid(cx, nx, 2)?);
    let near = cx.binary(Binary::And, ny, nx)?;
    let images = cx.take(x, batch, 0, GatherMode::Clip)?;
    let parts = bilinear(cx, images, ys, xs)?;
    let y = if max {
        // The maximum of the weighted corners.
        let mut best: Option<Value> = None;
        for &(p, w) in &parts {
            let t = cx.mul(p, w)?;
            best = Some(match best {
                Some(b) => cx.binary(Binary::Max, b, t)?,
                None => t,
            });
        }
        best.ok_or_else(|| Error::node_error("the input is empty"))?
    } else {
        weighted_sum(cx, &parts)?
    };
    let s = cx.shape(y);
    let near = cx.broadcast(near, &s, &[0, 2])?;
    let y = cx.zero_unless(near, y)?;
    let y = cx.reshape(y, &[r, shape[1], oh, ratio, ow, ratio])?;
    one(if max { cx.reduce(ReduceKind::Max, y, &[3, 5])? } else { cx.mean(y, &[3, 5])? })
}

/// A deformable convolution: the kernel samples at coordinates shifted by offsets.
pub(super) fn deform_conv(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, w, offset) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let (bias, mask) = (cx.opt(3)?, cx.opt(4)?);
    let (shape, ws, os) = (cx.shape(x), cx.shape(w), cx.shape(offset));
    if shape.len() != 4 || ws.len() != 4 || os.len() != 4 {
        return Err(Error::node_error("only images, [N, C, H, W], are supported"));
    }
    let slide = super::conv::WindowParams::of(cx, &shape[2..], &ws[2..])?;
    let (groups, og) = (cx.count("group", 1)?, cx.count("offset_group", 1)?);
    let (n, c, kernel) = (shape[0], shape[1], ws[2].saturating_mul(ws[3]));
    let (oh, ow) = (os[2], os[3]);
    if kernel > 4096
        || os[1] != og * kernel * 2
        || c % og != 0
        || c % groups != 0
        || ws[0] % groups != 0
        || ws[1] != c / groups
    {
        return Err(Error::node_error("the shapes of its offsets or weights do not match"));
    }
    let dtype = cx.dtype(x);
    let offsets = cx.reshape(offset, &[n, og, ws[2], ws[3], 2, oh, ow])?;
    let part = |cx: &mut NodeContext, k: usize| -> Result<Value> {
        let v = cx.slice_axis(offsets, 4, k, k + 1)?;
        Ok(cx.reshape(v, &[n, og, ws[2], ws[3], oh, ow])?)
    };
    let (dy, dx) = (part(cx, 0)?, part(cx, 1)?);
    let all = [n, og, ws[2], ws[3], oh, ow];
    let place = |cx: &mut NodeContext, d: Value, k: usize, axis: usize| -> Result<Value> {
        let (at, tap) = (cx.iota(dtype, &all, 4 + axis)?, cx.iota(dtype, &all, 2 + axis)?);
        let at = cx.scale(at, slide.strides[k] as f64)?;
        let at = cx.offset(at, -(slide.low[k] as f64))?;
        let tap = cx.scale(tap, slide.dilations[k] as f64)?;
        let at = cx.add(at, tap)?;
        let at = cx.add(at, d)?;
        Ok(cx.reshape(at, &[n * og, kernel * oh * ow])?)
    };
    let (ys, xs) = (place(cx, dy, 0, 0)?, place(cx, dx, 1, 1)?);
    let images = cx.reshape(x, &[n * og, c / og, shape[2], shape[3]])?;
    let parts = bilinear(cx, images, ys, xs)?;
    let mut cols = weighted_sum(cx, &parts)?;
    cols = cx.reshape(cols, &[n, og, c / og, kernel, oh, ow])?;
    if let Some(m) = mask {
        let m = cx.reshape(m, &[n, og, kernel, oh, ow])?;
        let m = cx.broadcast(m, &[n, og, c / og, kernel, oh, ow], &[0, 1, 3, 4, 5])?;
        cols = cx.mul(cols, m)?;
    }
    let cols = cx.reshape(cols, &[n, groups, c / groups * kernel, oh * ow])?;
    let w = cx.reshape(w, &[groups, ws[0] / groups, c / groups * kernel])?;
    let y = super::matmul::matmul_of(cx, w, cols)?;
    let y = cx.reshape(y, &[n, ws[0], oh, ow])?;
    one(super::conv::add_bias(cx, y, bias)?)
}
