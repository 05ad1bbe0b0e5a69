//! Convolutions, pooling, and other sliding windows.

use super::{NodeOutputs, one};
use crate::error::{Error, Result};
use crate::node::{NodeContext, checked_numel};
use ir::ops::{Conv, ReduceKind, WindowConfig, WindowGather};
use ir::types::Shape;
use ir::{DType, GraphBuilder, Literal, Scalar, Type, Unary, Value};

/// The parameters of a window that slides over the spatial axes.
#[derive(Clone, Debug)]
pub(super) struct WindowParams {
    pub(super) kernel: Vec<usize>,
    pub(super) strides: Vec<usize>,
    pub(super) dilations: Vec<usize>,
    pub(super) low: Vec<i64>,
    pub(super) high: Vec<i64>,
}

impl WindowParams {
    /// Reads the attributes that convolution and pooling share.
    pub(super) fn of(cx: &NodeContext, spatial: &[usize], kernel: &[usize]) -> Result<WindowParams> {
        let n = spatial.len();
        if kernel.len() != n || kernel.contains(&0) {
            return Err(Error::node_error(format!("a kernel of {kernel:?} doesn't fit {n} spatial axes")));
        }
        let strides = cx.sizes("strides", n, 1, 1)?;
        let dilations = cx.sizes("dilations", n, 1, 1)?;
        let pads = cx.amounts("pads")?.filter(|p| !p.is_empty()).unwrap_or_else(|| vec![0; 2 * n]);
        if pads.len() != 2 * n {
            return Err(Error::node_error(format!(
                "{} pads for {n} axes; each needs one before and one after",
                pads.len()
            )));
        }
        let (mut low, mut high) = (pads[..n].to_vec(), pads[n..].to_vec());
        let auto = cx.string("auto_pad", "NOTSET");
        for a in 0..n {
            match auto.as_str() {
                "NOTSET" | "" => {}
                "VALID" => (low[a], high[a]) = (0, 0),
                "SAME_UPPER" | "SAME_LOWER" => {
                    let count = spatial[a].div_ceil(strides[a]) as i64;
                    let span = ((kernel[a] - 1) as i64).saturating_mul(dilations[a] as i64).saturating_add(1);
                    let total = ((count - 1) * strides[a] as i64).saturating_add(span) - spatial[a] as i64;
                    let (total, half) = (total.max(0), total.max(0) / 2);
                    (low[a], high[a]) = if auto == "SAME_UPPER" { (half, total - half) } else { (total - half, half) };
                }
                other => return Err(Error::node_error(format!("unknown auto_pad `{other}`"))),
            }
        }
        Ok(WindowParams { kernel: kernel.to_vec(), strides, dilations, low, high })
    }

    fn kernel_extent(&self, a: usize) -> i64 {
        ((self.kernel[a] - 1) as i64).saturating_mul(self.dilations[a] as i64).saturating_add(1)
    }

    /// For `ceil_mode`: adds padding at the end for windows that are only partly inside.
    fn round_up(&mut self, spatial: &[usize]) -> Vec<i64> {
        let mut extra = vec![0; spatial.len()];
        for (a, &size) in spatial.iter().enumerate() {
            let (size, stride) = (size as i64, self.strides[a] as i64);
            let room = size.saturating_add(self.low[a] + self.high[a]).saturating_sub(self.kernel_extent(a));
            if room < 0 {
                continue;
            }
            let mut count = (room + stride - 1) / stride + 1;
            if (count - 1) * stride >= size + self.low[a] {
                count -= 1;
            }
            extra[a] = ((count - 1) * stride - room).max(0);
            self.high[a] += extra[a];
        }
        extra
    }

    pub(super) fn windows(&self) -> WindowConfig {
        WindowConfig {
            strides: Shape::from_slice(&self.strides),
            low: self.low.as_slice().into(),
            high: self.high.as_slice().into(),
            base_dilation: self.strides.iter().map(|_| 1).collect(),
            window_dilation: Shape::from_slice(&self.dilations),
        }
    }

    /// The same window over `[N, C, ..]`.
    fn with_batch_dims(&self) -> (Vec<usize>, WindowConfig) {
        let front = |x: usize, list: &[usize]| -> Shape { [x, x].iter().chain(list).copied().collect() };
        let zeros = |list: &[i64]| [0, 0].iter().chain(list).copied().collect();
        let windows = WindowConfig {
            strides: front(1, &self.strides),
            low: zeros(&self.low),
            high: zeros(&self.high),
            base_dilation: front(1, &vec![1; self.strides.len()]),
            window_dilation: front(1, &self.dilations),
        };
        (front(1, &self.kernel).to_vec(), windows)
    }
}

/// The sizes of the spatial axes of `[N, C, ..]`.
fn spatial(cx: &NodeContext, x: Value) -> Result<Vec<usize>> {
    match cx.shape(x).as_slice() {
        [_, _, rest @ ..] => Ok(rest.to_vec()),
        shape => Err(Error::node_error(format!("its input must be [N, C, ..], not {shape:?}"))),
    }
}

fn groups(cx: &NodeContext) -> Result<usize> {
    cx.count("group", 1)
}

/// Adds one number per channel.
pub(super) fn add_bias(cx: &mut NodeContext, y: Value, bias: Option<Value>) -> Result<Value> {
    let Some(b) = bias else { return Ok(y) };
    let shape = cx.shape(y);
    let b = cx.broadcast_along(b, &shape, 1)?;
    Ok(cx.add(y, b)?)
}

pub(super) fn conv(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, w, bias) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    let y = conv_of(cx, x, w)?;
    one(add_bias(cx, y, bias)?)
}

/// A convolution with the node's attributes.
pub(super) fn conv_of(cx: &mut NodeContext, x: Value, w: Value) -> Result<Value> {
    let (size, kernel) = (spatial(cx, x)?, spatial(cx, w)?);
    let slide = WindowParams::of(cx, &size, &kernel)?;
    let groups = groups(cx)?;
    Ok(cx.conv(x, w, slide.windows(), groups)?)
}

pub(super) fn conv_transpose(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, w, bias) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    let (size, kernel) = (spatial(cx, x)?, spatial(cx, w)?);
    let n = size.len();
    let slide = WindowParams::of(cx, &size, &kernel)?;
    let g = groups(cx)?;
    let extra = cx.sizes("output_padding", n, 0, 0)?;
    let auto = cx.string("auto_pad", "NOTSET");
    let asked = cx.sizes("output_shape", n, 1, 0)?;
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for a in 0..n {
        let full = (size[a] as i64 - 1) * slide.strides[a] as i64 + slide.kernel_extent(a) + extra[a] as i64;
        let want = match auto.as_str() {
            _ if asked[a] > 0 => Some(asked[a] as i64),
            "SAME_UPPER" | "SAME_LOWER" => Some(size[a] as i64 * slide.strides[a] as i64),
            _ => None,
        };
        let (before, after) = match want {
            None => (slide.low[a], slide.high[a]),
            Some(want) => {
                let (total, half) = (full - want, (full - want).div_euclid(2));
                if auto == "SAME_UPPER" { (half, total - half) } else { (total - half, half) }
            }
        };
        let reach = slide.kernel_extent(a) - 1;
        low.push(reach - before);
        high.push(reach - after + extra[a] as i64);
    }
    let sw = cx.shape(w);
    let (c, o) = (sw[0], sw[1]);
    if c % g != 0 {
        return Err(Error::node_error(format!("{c} channels are not divisible by {g} groups")));
    }
    let grouped: Vec<usize> = [g, c / g, o].iter().chain(&kernel).copied().collect();
    let w = cx.reshape(w, &grouped)?;
    let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..3 + n).collect();
    let w = cx.permute(w, &order)?;
    let out: Vec<usize> = [g * o, c / g].iter().chain(&kernel).copied().collect();
    let w = cx.reshape(w, &out)?;
    let w = cx.flip(w, &(2..2 + n).collect::<Vec<_>>())?;
    let windows = WindowConfig {
        strides: vec![1; n].into(),
        low: low.into(),
        high: high.into(),
        base_dilation: Shape::from_slice(&slide.strides),
        window_dilation: Shape::from_slice(&slide.dilations),
    };
    let y = cx.conv(x, w, windows, g)?;
    one(add_bias(cx, y, bias)?)
}

/// A convolution of integers in i32, after subtraction of the zero points.
pub(super) fn conv_integer(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (x, w) = (cx.x(0)?, cx.x(1)?);
    let (xz, wz) = (cx.opt(2)?, cx.opt(3)?);
    one(conv_centred(cx, x, w, xz, wz)?)
}

/// `conv(x - xz, w - wz)` in i32.
pub(super) fn conv_centred(
    cx: &mut NodeContext,
    x: Value,
    w: Value,
    xz: Option<Value>,
    wz: Option<Value>,
) -> Result<Value> {
    let centre = |cx: &mut NodeContext, x: Value, z: Option<Value>| -> Result<Value> {
        let x = cx.cast(x, DType::I32)?;
        let Some(z) = z else { return Ok(x) };
        let shape = cx.shape(x);
        let z = cx.cast(z, DType::I32)?;
        let count: usize = cx.shape(z).iter().product();
        let z = match count {
            1 => {
                let z = cx.reshape(z, &[])?;
                cx.splat(z, &shape)?
            }
            _ => {
                let z = cx.reshape(z, &[count])?;
                cx.broadcast_along(z, &shape, 0)?
            }
        };
        Ok(cx.sub(x, z)?)
    };
    let (x, w) = (centre(cx, x, xz)?, centre(cx, w, wz)?);
    let (size, kernel) = (spatial(cx, x)?, spatial(cx, w)?);
    let slide = WindowParams::of(cx, &size, &kernel)?;
    let conv = Conv { groups: groups(cx)?, ..Conv::new(DType::I32, slide.windows()) };
    Ok(cx.one(conv.into(), &[x, w])?)
}

fn pool_slide(cx: &NodeContext, x: Value) -> Result<(Vec<usize>, WindowParams, Vec<i64>)> {
    let size = spatial(cx, x)?;
    let kernel = cx.sizes("kernel_shape", size.len(), 1, 1)?;
    let mut slide = WindowParams::of(cx, &size, &kernel)?;
    let auto = cx.string("auto_pad", "NOTSET");
    let extra = match cx.flag("ceil_mode") && matches!(auto.as_str(), "NOTSET" | "") {
        true => slide.round_up(&size),
        false => vec![0; size.len()],
    };
    Ok((size, slide, extra))
}

pub(super) fn max_pool(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let (_, slide, _) = pool_slide(cx, x)?;
    let (window, windows) = slide.with_batch_dims();
    let y = cx.reduce_window(ReduceKind::Max, x, &window, windows.clone())?;
    if !cx.output_is_used(1) {
        return one(y);
    }
    let shape = cx.shape(x);
    let place = if cx.flag("storage_order") {
        // Columns first: the spatial axes in reverse order.
        let turned: Vec<usize> = shape[..2].iter().chain(shape[2..].iter().rev()).copied().collect();
        let flat = flat_index(cx, &turned)?;
        let order: Vec<usize> = [0, 1].into_iter().chain((2..shape.len()).rev()).collect();
        cx.permute(flat, &order)?
    } else {
        flat_index(cx, &shape)?
    };
    let op = WindowGather { max: true, window: Shape::from_slice(&window), windows };
    let at = cx.one(op.into(), &[x, place])?;
    Ok(vec![y.into(), at.into()])
}

/// The index of each element in row-major order.
fn flat_index(cx: &mut NodeContext, shape: &[usize]) -> Result<Value> {
    let i = cx.iota(DType::I64, &[shape.iter().product()], 0)?;
    Ok(cx.reshape(i, shape)?)
}

/// The number of elements of the input (or of input and padding) in each window, along one axis.
fn window_counts(slide: &WindowParams, a: usize, size: usize, extra: i64, padding: bool) -> Vec<f64> {
    let (low, high) = (slide.low[a], slide.high[a] - extra);
    let (first, end) = if padding { (-low, size as i64 + high) } else { (0, size as i64) };
    let room = size as i64 + low + slide.high[a] - slide.kernel_extent(a);
    let count = if room < 0 { 0 } else { room / slide.strides[a] as i64 + 1 };
    let one = |o: i64| {
        let begin = o * slide.strides[a] as i64 - low;
        let inside = (0..slide.kernel[a] as i64).filter(|k| {
            let at = begin + k * slide.dilations[a] as i64;
            (first..end).contains(&at)
        });
        inside.count() as f64
    };
    (0..count).map(one).collect()
}

pub(super) fn average_pool(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let (size, slide, extra) = pool_slide(cx, x)?;
    let (window, windows) = slide.with_batch_dims();
    // The divisor is computed here for each window.
    let padded = |a: usize| (size[a] as i64).saturating_add(slide.low[a]).saturating_add(slide.high[a]);
    if slide.kernel.iter().any(|&k| k > 1 << 20) || (0..size.len()).any(|a| padded(a) > 1 << 24) {
        return Err(Error::node_error("a window, or an axis with its padding, that is too large"));
    }
    let mut y = cx.reduce_window(ReduceKind::Sum, x, &window, windows)?;
    let ty = cx.ty(y);
    let padding = cx.flag("count_include_pad");
    for (a, &d) in size.iter().enumerate() {
        let counts = window_counts(&slide, a, d, extra[a], padding);
        let n = match counts.first() {
            Some(&c) if counts.iter().all(|&x| x == c) => cx.full_like(y, c)?,
            _ => {
                let vector = Literal::from_fn(Type::new(ty.dtype, &[counts.len()]), |i| {
                    Scalar::from_f64(ty.dtype, counts[i].max(1.0))
                });
                let v = cx.constant(vector)?;
                cx.broadcast_along(v, &ty.shape, 2 + a)?
            }
        };
        y = cx.div(y, n)?;
    }
    one(y)
}

pub(super) fn lp_pool(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let (_, slide, _) = pool_slide(cx, x)?;
    let (window, windows) = slide.with_batch_dims();
    let p = cx.int("p", 2);
    let powers = norm_power(cx, x, p)?;
    let s = cx.reduce_window(ReduceKind::Sum, powers, &window, windows)?;
    one(norm_root(cx, s, p)?)
}

/// `|x|^p`.
pub(super) fn norm_power(cx: &mut NodeContext, x: Value, p: i64) -> Result<Value> {
    Ok(match p {
        1 => cx.unary(Unary::Abs, x)?,
        2 => cx.mul(x, x)?,
        p => {
            let a = cx.unary(Unary::Abs, x)?;
            let p = cx.full_like(x, p as f64)?;
            cx.binary(ir::Binary::Pow, a, p)?
        }
    })
}

/// `s^(1/p)`.
pub(super) fn norm_root(cx: &mut NodeContext, s: Value, p: i64) -> Result<Value> {
    Ok(match p {
        1 => s,
        2 => cx.unary(Unary::Sqrt, s)?,
        p => {
            let r = cx.full_like(s, 1.0 / p as f64)?;
            cx.binary(ir::Binary::Pow, s, r)?
        }
    })
}

/// Pools over all spatial axes, whose sizes become 1.
pub(super) fn global_pool(cx: &mut NodeContext, kind: GlobalPool) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    spatial(cx, x)?;
    let axes: Vec<usize> = (2..shape.len()).collect();
    let y = match kind {
        GlobalPool::Average => cx.mean(x, &axes)?,
        GlobalPool::Max => cx.reduce(ReduceKind::Max, x, &axes)?,
        GlobalPool::Lp => {
            let p = cx.int("p", 2);
            let s = norm_power(cx, x, p)?;
            let s = cx.sum(s, &axes)?;
            norm_root(cx, s, p)?
        }
    };
    let kept: Vec<usize> = shape.iter().enumerate().map(|(a, &d)| if a < 2 { d } else { 1 }).collect();
    one(cx.reshape(y, &kept)?)
}

#[derive(Clone, Copy)]
pub(super) enum GlobalPool {
    Average,
    Max,
    Lp,
}

/// Scatters pooled values to the indices that MaxPool returned.
pub(super) fn max_unpool(cx: &mut NodeContext) -> Result<NodeOutputs> {
    use ir::ops::{Scatter, ScatterKind, ScatterMode, SliceDims};
    let (x, places) = (cx.x(0)?, cx.x(1)?);
    let shape = cx.shape(x);
    let size = spatial(cx, x)?;
    let kernel = cx.sizes("kernel_shape", size.len(), 1, 1)?;
    let slide = WindowParams::of(cx, &size, &kernel)?;
    // Indices refer to the tensor that was pooled, which may be smaller than the requested output.
    let inner: Vec<usize> = (0..size.len())
        .map(|a| (size[a] as i64 - 1) * slide.strides[a] as i64 + kernel[a] as i64 - slide.low[a] - slide.high[a])
        .map(|d| usize::try_from(d).map_err(|_| Error::node_error("pads larger than the result")))
        .collect::<Result<_>>()?;
    let own: Vec<usize> = shape[..2].iter().chain(&inner).copied().collect();
    let asked = match cx.item(2) {
        Some(_) => Some(cx.static_amounts(2, "output_shape")?),
        None => None,
    };
    let n: usize = shape.iter().product();
    let (flat, at) = (cx.reshape(x, &[n])?, cx.reshape(places, &[n, 1])?);
    let dtype = cx.dtype(x);
    let size = Type::checked(dtype, &own)?.numel();
    let zeros = cx.zeros(&Type::new(dtype, &[size]))?;
    let op = Scatter { kind: ScatterKind::Set, dims: SliceDims::take(1, 0, 1), mode: ScatterMode::Drop };
    let y = cx.one(op.into(), &[zeros, at, flat])?;
    let y = cx.reshape(y, &own)?;
    let Some(asked) = asked else { return one(y) };
    if asked.len() != own.len() {
        return Err(Error::node_error("its output_shape is not possible"));
    }
    let high: Vec<i64> = asked.iter().zip(&own).map(|(&a, &o)| a - o as i64).collect();
    let zero = cx.scalar(dtype, 0.0)?;
    one(cx.pad(y, zero, &vec![0; own.len()], &high, &vec![0; own.len()])?)
}

/// Sums columns of blocks into an image: the transpose of im2col.
pub(super) fn col2im(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let sizes = |cx: &mut NodeContext, i: usize, what: &str| -> Result<Vec<usize>> {
        let list = cx.static_amounts(i, what)?;
        let list: Option<Vec<usize>> = list.iter().map(|&d| usize::try_from(d).ok().filter(|&d| d > 0)).collect();
        list.ok_or_else(|| Error::node_error(format!("its {what} must be positive")))
    };
    let (image, block) = (sizes(cx, 1, "image_shape")?, sizes(cx, 2, "block_shape")?);
    let shape = cx.shape(x);
    let slide = WindowParams::of(cx, &image, &block)?;
    let n = image.len();
    let counts: Vec<usize> = (0..n)
        .map(|a| image[a] as i64 + slide.low[a] + slide.high[a] - slide.kernel_extent(a))
        .map(|room| usize::try_from(room).map_err(|_| Error::node_error("blocks larger than the image")))
        .zip(&slide.strides)
        .map(|(room, s)| Ok(room? / s + 1))
        .collect::<Result<_>>()?;
    let (cells, blocks) = (checked_numel(&block)?, checked_numel(&counts)?);
    if shape.len() != 3 || shape[1] % cells != 0 || shape[2] != blocks || cells > 4096 {
        return Err(Error::node_error(format!("{shape:?} doesn't hold {blocks} blocks of {block:?}")));
    }
    let c = shape[1] / cells;
    let wide: Vec<usize> = [shape[0], c, cells].iter().chain(&counts).copied().collect();
    let x = cx.reshape(x, &wide)?;
    let dtype = cx.dtype(x);
    let zero = cx.scalar(dtype, 0.0)?;
    let mut sum: Option<Value> = None;
    for cell in 0..cells {
        let part = cx.slice_axis(x, 2, cell, cell + 1)?;
        let own: Vec<usize> = [shape[0], c].iter().chain(&counts).copied().collect();
        let part = cx.reshape(part, &own)?;
        // Dilated by the strides, shifted to the position of the first block's cell, cropped to the image.
        let (mut low, mut high, mut interior) = (vec![0i64; 2], vec![0i64; 2], vec![0usize; 2]);
        let mut rest = cell;
        let mut offsets = vec![0i64; n];
        for a in (0..n).rev() {
            offsets[a] = (rest % block[a]) as i64 * slide.dilations[a] as i64 - slide.low[a];
            rest /= block[a];
        }
        for a in 0..n {
            let spread = (counts[a] as i64 - 1) * slide.strides[a] as i64 + 1;
            low.push(offsets[a]);
            high.push(image[a] as i64 - offsets[a] - spread);
            interior.push(slide.strides[a] - 1);
        }
        let placed = cx.pad(part, zero, &low, &high, &interior)?;
        sum = Some(match sum {
            Some(s) => cx.add(s, placed)?,
            None => placed,
        });
    }
    one(sum.ok_or_else(|| Error::node_error("blocks without cells"))?)
}

/// Divides each channel by a power of the sum of squares of its neighbouring channels.
pub(super) fn lrn(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let x = cx.x(0)?;
    let shape = cx.shape(x);
    spatial(cx, x)?;
    let size = usize::try_from(cx.int("size", 1)).ok().filter(|s| (1..1 << 20).contains(s));
    let size = size.ok_or_else(|| Error::node_error("its size must be positive"))?;
    let (alpha, beta, bias) = (cx.float("alpha", 1e-4), cx.float("beta", 0.75), cx.float("bias", 1.0));
    let squares = cx.mul(x, x)?;
    let mut window = vec![1; shape.len()];
    window[1] = size;
    let mut windows = WindowConfig::unit_stride(shape.len());
    (windows.low[1], windows.high[1]) = (((size - 1) / 2) as i64, (size / 2) as i64);
    let s = cx.reduce_window(ReduceKind::Sum, squares, &window, windows)?;
    let s = cx.scale(s, alpha / size as f64)?;
    let s = cx.offset(s, bias)?;
    let b = cx.full_like(s, beta)?;
    let d = cx.binary(ir::Binary::Pow, s, b)?;
    one(cx.div(x, d)?)
}
