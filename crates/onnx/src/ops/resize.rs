//! Resize and Upsample: one axis after the other, each result is a weighted sum of a few elements.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::{NodeContext, axis};
use ir::ops::{Dot, GatherMode};
use ir::types::Shape;
use ir::{DType, GraphBuilder, Literal, Scalar, Type, Value};

/// The parameters of resizing one axis.
struct ResizeAxis {
    size: usize,
    out: usize,
    scale: f64,
    roi: (f64, f64),
}

/// For each result along an axis: source indices, their weights (both `[out][taps]`), and whether it is outside.
struct Taps {
    places: Vec<Vec<i64>>,
    weights: Vec<Vec<f64>>,
    outside: Vec<bool>,
}

pub(super) fn resize(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let rank = shape.len();
    // Version 10 has scales as its second operand, and neither roi nor sizes.
    let (roi_at, scales_at, sizes_at) = if cx.version < 11 { (99, 1, 99) } else { (1, 2, 3) };
    let axes = match cx.ints("axes") {
        Some(list) => list.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).collect(),
    };
    let floats = |cx: &mut NodeContext, i: usize, what: &str| -> Result<Vec<f64>> {
        match cx.item(i) {
            Some(_) => Ok(cx.static_operand(i, what)?.scalars().map(Scalar::to_f64).collect()),
            None => Ok(Vec::new()),
        }
    };
    let mode = cx.string("coordinate_transformation_mode", if cx.version < 11 { "asymmetric" } else { "half_pixel" });
    let roi = if mode == "tf_crop_and_resize" { floats(cx, roi_at, "roi")? } else { Vec::new() };
    let scales = floats(cx, scales_at, "scales")?;
    let sizes = if cx.item(sizes_at).is_some() { cx.static_amounts(sizes_at, "sizes")? } else { Vec::new() };
    let n = axes.len();
    if !(roi.is_empty() || roi.len() == 2 * n) {
        return Err(Error::node_error(format!("a roi of {} numbers for {n} axes", roi.len())));
    }
    let mut plan: Vec<(usize, ResizeAxis)> = Vec::new();
    if !sizes.is_empty() {
        if sizes.len() != n || sizes.iter().any(|&s| s < 0) {
            return Err(Error::node_error(format!("sizes {sizes:?} for {n} axes")));
        }
        let ratio = |i: usize| sizes[i] as f64 / shape[axes[i]] as f64;
        let policy = cx.string("keep_aspect_ratio_policy", "stretch");
        let common = match policy.as_str() {
            "stretch" => None,
            "not_larger" => Some((0..n).map(ratio).fold(f64::INFINITY, f64::min)),
            "not_smaller" => Some((0..n).map(ratio).fold(0.0, f64::max)),
            other => return Err(Error::node_error(format!("unknown policy `{other}`"))),
        };
        for (i, &a) in axes.iter().enumerate() {
            let scale = common.unwrap_or_else(|| ratio(i));
            let out = match common {
                Some(s) => (s * shape[a] as f64 + 0.5).floor() as usize,
                None => sizes[i] as usize,
            };
            plan.push((a, ResizeAxis { size: shape[a], out, scale, roi: (0.0, 1.0) }));
        }
    } else if scales.len() == n && n > 0 {
        for (i, &a) in axes.iter().enumerate() {
            if !(scales[i] > 0.0 && scales[i] < 1e6) {
                return Err(Error::node_error(format!("a scale of {}", scales[i])));
            }
            let out = (scales[i] * shape[a] as f64).floor() as usize;
            plan.push((a, ResizeAxis { size: shape[a], out, scale: scales[i], roi: (0.0, 1.0) }));
        }
    } else {
        return Err(Error::node_error("neither scales nor sizes are given for every axis"));
    }
    if mode == "tf_crop_and_resize" {
        if roi.is_empty() {
            return Err(Error::node_error("tf_crop_and_resize needs a roi"));
        }
        for (i, (_, p)) in plan.iter_mut().enumerate() {
            p.roi = (roi[i], roi[n + i]);
        }
    }
    let how = ResizeOptions {
        mode,
        kind: cx.string("mode", "nearest"),
        nearest: cx.string("nearest_mode", if cx.version < 11 { "floor" } else { "round_prefer_floor" }),
        cubic: cx.float("cubic_coeff_a", -0.75),
        antialias: cx.flag("antialias"),
        exclude: cx.flag("exclude_outside"),
    };
    let fill = cx.float("extrapolation_value", 0.0);
    one(resized(cx, x, &plan, &how, fill)?)
}

pub(super) fn upsample(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    let scales: Vec<f64> = match cx.item(1) {
        Some(_) => cx.static_operand(1, "scales")?.scalars().map(Scalar::to_f64).collect(),
        None => cx.floats("scales").unwrap_or_default(),
    };
    if scales.len() != shape.len() || scales.iter().any(|&s| !(s > 0.0 && s < 1e6)) {
        return Err(Error::node_error("it needs a positive scale for each axis"));
    }
    let one_axis = |a: usize| ResizeAxis {
        size: shape[a],
        out: (scales[a] * shape[a] as f64).floor() as usize,
        scale: scales[a],
        roi: (0.0, 1.0),
    };
    let plan: Vec<(usize, ResizeAxis)> = (0..shape.len()).map(|a| (a, one_axis(a))).collect();
    let how = ResizeOptions {
        mode: "asymmetric".into(),
        kind: cx.string("mode", "nearest"),
        nearest: "floor".into(),
        cubic: -0.75,
        antialias: false,
        exclude: false,
    };
    one(resized(cx, x, &plan, &how, 0.0)?)
}

struct ResizeOptions {
    mode: String,
    kind: String,
    nearest: String,
    cubic: f64,
    antialias: bool,
    exclude: bool,
}

fn resized(
    cx: &mut NodeContext,
    x: Value,
    plan: &[(usize, ResizeAxis)],
    how: &ResizeOptions,
    fill: f64,
) -> Result<Value> {
    let dtype = cx.dtype(x);
    // Weighted sums are computed in floats; nearest neighbours keep their dtype.
    let sums = how.kind != "nearest";
    let mut y = if sums && !dtype.is_float() { cx.cast(x, DType::F32)? } else { x };
    for (a, p) in plan {
        let same = p.out == p.size && p.scale == 1.0 && p.roi == (0.0, 1.0);
        if same && how.mode != "tf_crop_and_resize" {
            continue;
        }
        if p.out > 1 << 24 || p.size == 0 {
            return Err(Error::node_error(format!("axis {a} of {} cannot be resized to {}", p.size, p.out)));
        }
        let taps = taps(p, how)?;
        y = apply(cx, y, *a, p, &taps)?;
        if taps.outside.contains(&true) {
            let shape = cx.shape(y);
            let mask = cx.constant(Literal::new(&[p.out], &taps.outside))?;
            let mask = cx.broadcast_along(mask, &shape, *a)?;
            let filled = cx.full_like(y, fill)?;
            y = cx.select(mask, filled, y)?;
        }
    }
    // The reference truncates to integers.
    Ok(cx.cast(y, dtype)?)
}

fn taps(p: &ResizeAxis, how: &ResizeOptions) -> Result<Taps> {
    let (size, full) = (p.size as f64, p.scale * p.size as f64);
    let mut t = Taps { places: Vec::new(), weights: Vec::new(), outside: Vec::new() };
    for i in 0..p.out {
        let y = i as f64;
        let at = match how.mode.as_str() {
            "align_corners" if full == 1.0 => 0.0,
            "align_corners" => y * (size - 1.0) / (full - 1.0),
            "asymmetric" => y / p.scale,
            "tf_crop_and_resize" => {
                let (s, e) = p.roi;
                let inside =
                    if full == 1.0 { (e - s) * (size - 1.0) / 2.0 } else { y * (e - s) * (size - 1.0) / (full - 1.0) };
                inside + s * (size - 1.0)
            }
            "pytorch_half_pixel" if full == 1.0 => -0.5,
            "pytorch_half_pixel" | "half_pixel" => (y + 0.5) / p.scale - 0.5,
            "half_pixel_symmetric" => {
                let offset = size / 2.0 * (1.0 - p.out as f64 / full);
                offset + (y + 0.5) / p.scale - 0.5
            }
            "tf_half_pixel_for_nn" => (y + 0.5) / p.scale,
            other => return Err(Error::node_error(format!("unknown coordinate transformation `{other}`"))),
        };
        t.outside.push(how.mode == "tf_crop_and_resize" && (at < 0.0 || at > size - 1.0));
        // A coordinate between two elements; one exactly on an element belongs to the interval before it.
        let whole = at.floor() == at;
        let ratio = if whole { 1.0 } else { at - at.floor() };
        let mut weights = coefficients(ratio, p.scale, whole, how)?;
        let n = weights.len() as i64;
        let base = at.floor() as i64;
        let first = if n % 2 == 0 {
            base + if whole { -(n / 2) } else { -(n / 2) + 1 }
        } else {
            base - (n - 1) / 2 + i64::from(at - at.floor() > 0.5)
        };
        let places: Vec<i64> = (first..first + n).collect();
        if how.exclude {
            for (w, &k) in weights.iter_mut().zip(&places) {
                if k < 0 || k >= p.size as i64 {
                    *w = 0.0;
                }
            }
            let sum: f64 = weights.iter().sum();
            if sum != 0.0 {
                weights.iter_mut().for_each(|w| *w /= sum);
            }
        }
        t.places.push(places.iter().map(|&k| k.clamp(0, p.size as i64 - 1)).collect());
        t.weights.push(weights);
    }
    Ok(t)
}

fn coefficients(ratio: f64, scale: f64, whole: bool, how: &ResizeOptions) -> Result<Vec<f64>> {
    let a = how.cubic;
    let shrink = scale.min(1.0);
    if how.antialias && shrink < 1e-4 {
        return Err(Error::node_error("antialiasing by more than 10000"));
    }
    Ok(match (how.kind.as_str(), how.antialias) {
        ("nearest", _) => {
            let second = whole
                || match how.nearest.as_str() {
                    "round_prefer_floor" => ratio > 0.5,
                    "round_prefer_ceil" => ratio >= 0.5,
                    "floor" => false,
                    "ceil" => true,
                    other => return Err(Error::node_error(format!("unknown nearest_mode `{other}`"))),
                };
            vec![f64::from(u8::from(!second)), f64::from(u8::from(second))]
        }
        ("linear", false) => vec![1.0 - ratio, ratio],
        ("linear", true) => {
            let start = (-1.0 / shrink).floor() as i64 + 1;
            let list: Vec<f64> = (start..start + 2 - 2 * start)
                .map(|i| (1.0 - ((i as f64 - ratio) * shrink).abs()).clamp(0.0, 1.0))
                .collect();
            let sum: f64 = list.iter().sum();
            list.iter().map(|w| w / sum).collect()
        }
        ("cubic", false) => {
            let near = |x: f64| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
            let far = |x: f64| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
            vec![far(ratio + 1.0), near(ratio), near(1.0 - ratio), far(2.0 - ratio)]
        }
        ("cubic", true) => {
            let curve = |x: f64| {
                let x = x.abs();
                if x <= 1.0 {
                    ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
                } else {
                    0.0
                }
            };
            let start = (-2.0 / shrink).floor() as i64 + 1;
            let list: Vec<f64> = (start..2 - start).map(|i| curve(shrink * (i as f64 - ratio))).collect();
            let sum: f64 = list.iter().sum();
            list.iter().map(|w| w / sum).collect()
        }
        (other, _) => return Err(Error::node_error(format!("unknown mode `{other}`: use nearest, linear or cubic"))),
    })
}

fn apply(cx: &mut NodeContext, x: Value, a: usize, p: &ResizeAxis, taps: &Taps) -> Result<Value> {
    let n = taps.weights.first().map_or(0, Vec::len);
    let single = taps.weights.iter().all(|w| w.iter().all(|&w| w == 0.0 || w == 1.0));
    if single {
        let at: Vec<i64> = (taps.weights.iter().zip(&taps.places))
            .map(|(w, k)| w.iter().position(|&w| w == 1.0).map_or(k[0], |i| k[i]))
            .collect();
        let at = cx.indices(&at)?;
        return Ok(cx.take(x, at, a, GatherMode::Clip)?);
    }
    let dtype = cx.dtype(x);
    let vector =
        |list: Vec<f64>| Literal::from_fn(Type::new(dtype, &[list.len()]), |i| Scalar::from_f64(dtype, list[i]));
    if n > 8 {
        // With many elements per result, the weights are a matrix.
        let mut matrix = vec![0.0; p.out * p.size];
        for (i, (w, k)) in taps.weights.iter().zip(&taps.places).enumerate() {
            w.iter().zip(k).for_each(|(w, &k)| matrix[i * p.size + k as usize] += w);
        }
        let m = vector(matrix).reshaped(&[p.out, p.size]);
        let m = cx.constant(m)?;
        let dot =
            Dot { lhs_contract: Shape::from_slice(&[a]), rhs_contract: Shape::from_slice(&[1]), ..Dot::matmul(dtype) };
        let y = cx.one(dot.into(), &[x, m])?;
        let rank = cx.rank(y);
        return Ok(cx.move_axis(y, rank - 1, a)?);
    }
    let mut sum: Option<Value> = None;
    for k in 0..n {
        let at: Vec<i64> = taps.places.iter().map(|p| p[k]).collect();
        let at = cx.indices(&at)?;
        let part = cx.take(x, at, a, GatherMode::Clip)?;
        let w = cx.constant(vector(taps.weights.iter().map(|w| w[k]).collect()))?;
        let shape = cx.shape(part);
        let w = cx.broadcast_along(w, &shape, a)?;
        let part = cx.mul(part, w)?;
        sum = Some(match sum {
            Some(s) => cx.add(s, part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| Error::node_error("an axis without results"))
}
