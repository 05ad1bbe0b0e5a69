//! Convolution: im2col and a matrix product; or one thread per result if the groups are small
//! or the device has no matrix products of the dtype.

use super::cumulative::carry;
use super::op_expansion::affine;
use super::window::{Element, Walk, is_empty_walk, load, source, strides};
use super::{DeviceCaps, OpExpansion, OpValue};
use compiler::program::Matmul;
use ir::ops::Conv;
use ir::{Binary, DType, Scalar, Type};

/// The maximum bytes of the im2col matrix.
const WINDOWS: usize = 512 << 20;
/// The maximum number of groups with a separate product each.
const GROUPS: usize = 16;
/// The minimum number of columns for a separate product per image.
const COLUMNS: usize = 64;

struct Sizes<'a> {
    op: &'a Conv,
    x: &'a Type,
    k: &'a Type,
    out: &'a Type,
    /// The images of a group, its features, its input features, and the numbers of window elements and of result positions.
    rows: usize,
    outs: usize,
    ins: usize,
    window: usize,
    places: usize,
}

pub(super) fn conv(parts: &mut OpExpansion, op: &Conv, args: &[Type], out: &Type, means: &DeviceCaps) -> Option<()> {
    let (x, k) = (&args[0], &args[1]);
    is_empty_walk(&[&x.shape, &k.shape, &out.shape])?;
    let groups = op.groups * op.batch_groups;
    let sizes = Sizes {
        op,
        x,
        k,
        out,
        rows: out.shape[0],
        outs: out.shape[1] / groups,
        ins: k.shape[1],
        window: k.shape[2..].iter().product(),
        places: out.shape[2..].iter().product(),
    };
    let wide = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let multiplied = means.matmul_dtypes.contains(&x.dtype) && op.acc == wide && (op.out == x.dtype || op.out == wide);
    let depth = sizes.ins * sizes.window;
    let row = depth * sizes.places * x.dtype.size();
    let most = WINDOWS.min(means.max_temporary_bytes);
    if !multiplied || groups > GROUPS || depth < 4 || row > most {
        sizes.direct(parts);
        return Some(());
    }
    let folded = sizes.places < COLUMNS && sizes.rows > 1;
    let at_once = (most / row).clamp(1, sizes.rows);
    let windows = parts.temp(x.dtype, at_once * depth * sizes.places);
    let result = folded.then(|| parts.temp(op.out, sizes.outs * at_once * sizes.places));
    for group in 0..groups {
        for first in (0..sizes.rows).step_by(at_once) {
            let rows = at_once.min(sizes.rows - first);
            sizes.unfold(parts, windows, group, (first, rows), folded);
            sizes.multiply(parts, (windows, result), group, (first, rows));
        }
    }
    Some(())
}

impl Sizes<'_> {
    /// Computes one result per thread.
    fn direct(&self, parts: &mut OpExpansion) {
        let (op, d) = (self.op, self.x.dtype);
        parts.rows("convolve", self.out.numel(), |w, flat| {
            let (x, k) = (w.read(OpValue::Arg(0), d), w.read(OpValue::Arg(1), d));
            let to = w.write(OpValue::Out(0), op.out);
            let at = w.coordinates(flat, &self.out.shape);
            let (group, _) = w.split(at[1], self.out.shape[1] / op.groups);
            let (batch_group, _) = w.split(at[1], self.out.shape[1] / op.batch_groups);
            let (sx, sk) = (strides(&self.x.shape), strides(&self.k.shape));
            let image = w.sum(&[(batch_group, self.rows as i64 * sx[0]), (at[0], sx[0])], 0);
            let zero = w.constant(Scalar::zero(op.acc));
            let sum = carry(w, self.ins, &[zero], |w, c, sum| {
                let c = w.var_value(c);
                let base = w.sum(&[(image, 1), (group, self.ins as i64 * sx[1]), (c, sx[1])], 0);
                let weights = w.sum(&[(at[1], sk[0]), (c, sk[1])], 0);
                let walk =
                    Walk { windows: &op.windows, window: &self.k.shape[2..], base: &self.x.shape[2..], o: &at[2..] };
                walk.run(w, sum, &mut |w, e, sum| {
                    let place = w.sum(&[(base, 1), (e.at, 1)], 0);
                    // Padding is zeros like any others.
                    let v = load(w, x, &Element { at: place, ..e }, Scalar::zero(d));
                    let u = w.load(k, affine(&[(weights, 1), (e.within, 1)], 0));
                    let (v, u) = (w.to(op.acc, v), w.to(op.acc, u));
                    let product = w.binary(Binary::Mul, v, u);
                    vec![w.binary(Binary::Add, sum[0], product)]
                })
            });
            let v = w.to(op.out, sum[0]);
            w.store(to, flat, v);
        });
    }

    /// The im2col matrix of some images as `[image, feature and window element, position]`, or folded with images after the
    /// features.
    fn unfold(&self, parts: &mut OpExpansion, to: OpValue, group: usize, (first, rows): (usize, usize), folded: bool) {
        let (op, d) = (self.op, self.x.dtype);
        let depth = self.ins * self.window;
        let mut shape = if folded { vec![depth, rows] } else { vec![rows, depth] };
        shape.extend(&self.out.shape[2..]);
        let numel = shape.iter().product();
        let sx = strides(&self.x.shape);
        // The group's first feature or first image.
        let (feature, image) = if op.groups > 1 { (group * self.ins, 0) } else { (0, group * self.rows) };
        parts.rows("windows of images", numel, |w, flat| {
            let (x, to) = (w.read(OpValue::Arg(0), d), w.write(to, d));
            let at = w.coordinates(flat, &shape);
            let (inside, row) = if folded { (at[0], at[1]) } else { (at[1], at[0]) };
            let (c, within) = w.split(inside, self.window);
            let offset = (image + first) as i64 * sx[0] + feature as i64 * sx[1];
            let mut terms = vec![(row, sx[0]), (c, sx[1])];
            let mut there = None;
            let mut left = within;
            for a in (0..op.windows.strides.len()).rev() {
                let (rest, k) = w.split(left, self.k.shape[2 + a]);
                left = rest;
                let (place, own) = source(w, &op.windows, a, self.x.shape[2 + a], at[2 + a], k);
                terms.push((place, sx[2 + a]));
                there = match (there, own) {
                    (Some(p), Some(q)) => Some(w.both(p, q)),
                    (p, q) => p.or(q),
                };
            }
            let place = w.sum(&terms, offset);
            let v = load(w, x, &Element { at: place, there, within }, Scalar::zero(d));
            w.store(to, flat, v);
        });
    }

    fn multiply(
        &self,
        parts: &mut OpExpansion,
        (windows, result): (OpValue, Option<OpValue>),
        group: usize,
        (first, rows): (usize, usize),
    ) {
        let op = self.op;
        let (depth, places, features) = (self.ins * self.window, self.places, self.out.shape[1]);
        let weights = (OpValue::Arg(1), (group * self.outs * depth * self.x.dtype.size()) as i64);
        let shape = |batch: usize, n: usize, b: isize, c: [isize; 3]| Matmul {
            dtype: self.x.dtype,
            acc: op.acc,
            out: op.out,
            batch,
            m: self.outs,
            n,
            k: depth,
            a: [0, depth as isize, 1],
            b: [b, n as isize, 1],
            c,
        };
        let start = (first * features + group * self.outs) * places;
        match result {
            None => {
                let c = [(features * places) as isize, places as isize, 1];
                let to = (OpValue::Out(0), (start * op.out.size()) as i64);
                parts.product(shape(rows, places, (depth * places) as isize, c), [weights, (windows, 0), to]);
            }
            Some(result) => {
                let n = rows * places;
                parts.product(shape(1, n, 0, [0, n as isize, 1]), [weights, (windows, 0), (result, 0)]);
                parts.rows("images one by one", self.outs * n, |w, flat| {
                    let (from, to) = (w.read(result, op.out), w.change(OpValue::Out(0), op.out));
                    // In the order of the result.
                    let at = w.coordinates(flat, &[rows, self.outs, places]);
                    let v = w.load(from, affine(&[(at[1], n as i64), (at[0], places as i64), (at[2], 1)], 0));
                    let terms = [(at[0], (features * places) as i64), (at[1], places as i64), (at[2], 1)];
                    w.store(to, affine(&terms, start as i64), v);
                });
            }
        }
    }
}
