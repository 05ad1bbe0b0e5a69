//! `ragged_dot`: first computes the start and the number of rows of each group; then uses a team for each row of the result, and
//! a lane for each of its elements.

use super::cumulative::{carry, carry_bounded};
use super::op_expansion::affine;
use super::{DeviceCaps, KernelWriter, OpExpansion, OpValue};
use compiler::loops::{Extent, Reg, Size};
use ir::ops::{RaggedDot, RaggedMode};
use ir::{Binary, Compare, DType, Scalar, Type};

pub(super) fn ragged_dot(parts: &mut OpExpansion, op: &RaggedDot, args: &[Type], means: &DeviceCaps) -> Option<()> {
    let [a, b, offsets] = args else { return None };
    if op.acc == DType::F64 && !means.limits.has_f64 {
        return None;
    }
    let n = op.batch;
    let of = |t: &Type, axis: usize| t.shape[n + axis];
    let batch: usize = a.shape[..n].iter().product();
    let sizes = Sizes {
        op,
        from: a.dtype,
        batch,
        rows: of(a, 0),
        groups: of(offsets, 0) - 1,
        // The rows of the result in a batch, and their width.
        inner: of(a, 1),
        width: of(b, b.rank() - n - 1),
    };
    let (starts, counts) = (parts.temp(DType::I32, batch * sizes.groups), parts.temp(DType::I32, batch * sizes.groups));
    if batch * sizes.groups > 0 {
        sizes.places(parts, offsets.dtype, starts, counts);
    }
    match op.mode {
        RaggedMode::Rows => sizes.by_rows(parts, starts, counts),
        RaggedMode::Contract => sizes.by_groups(parts, starts, counts),
    }
    Some(())
}

struct Sizes<'a> {
    op: &'a RaggedDot,
    from: DType,
    batch: usize,
    rows: usize,
    groups: usize,
    inner: usize,
    width: usize,
}

impl Sizes<'_> {
    /// Computes the start and the length of each group from ascending offsets within the rows.
    fn places(&self, parts: &mut OpExpansion, d: DType, starts: OpValue, counts: OpValue) {
        parts.rows("where groups are", self.batch, |w, batch| {
            let from = w.read(OpValue::Arg(2), d);
            let (starts, counts) = (w.write(starts, DType::I32), w.write(counts, DType::I32));
            let batch = w.var_value(batch);
            let (bounds, most) = (self.groups as i64 + 1, self.rows as i64);
            let place = |w: &mut KernelWriter, at: Reg, last: Reg| {
                let o = w.load(from, affine(&[(batch, bounds), (at, 1)], 0));
                // Clamped in the offsets' own dtype first, because a large one must not wrap.
                let (low, high) = (w.int(d, 0), w.int(d, most));
                let o = w.binary(Binary::Max, o, low);
                let o = w.binary(Binary::Min, o, high);
                let o = w.to(DType::I32, o);
                w.binary(Binary::Max, o, last)
            };
            let (zero, first) = (w.int(DType::I32, 0), w.int(DType::I64, 0));
            let first = place(w, first, zero);
            carry(w, self.groups, &[first], |w, g, phi| {
                let g = w.var_value(g);
                let next = w.sum(&[(g, 1)], 1);
                let end = place(w, next, phi[0]);
                let to = affine(&[(batch, self.groups as i64), (g, 1)], 0);
                let count = w.binary(Binary::Sub, end, phi[0]);
                w.store(starts, to.clone(), phi[0]);
                w.store(counts, to, count);
                vec![end]
            });
        });
    }

    /// Multiplies each row by its group's matrix; rows in no group are 0.
    fn by_rows(&self, parts: &mut OpExpansion, starts: OpValue, counts: OpValue) {
        let (m, k, n, groups) = (self.rows as i64, self.inner as i64, self.width as i64, self.groups as i64);
        parts.rows("ragged_dot", self.batch * self.rows, |w, number| {
            let (a, b) = (w.read(OpValue::Arg(0), self.from), w.read(OpValue::Arg(1), self.from));
            let (starts, counts) = (w.read(starts, DType::I32), w.read(counts, DType::I32));
            let out = w.write(OpValue::Out(0), self.op.out);
            let number = w.var_value(number);
            let (batch, row) = w.split(number, m as usize);
            let none = w.int(DType::I32, -1);
            let own = w.cast(DType::I32, row);
            let group = carry(w, self.groups, &[none], |w, g, phi| {
                let g = w.var_value(g);
                let at = affine(&[(batch, groups), (g, 1)], 0);
                let (start, count) = (w.load(starts, at.clone()), w.load(counts, at));
                let within = w.binary(Binary::Sub, own, start);
                let (low, high) = (w.compare_to(Compare::Ge, within, 0), w.compare(Compare::Lt, within, count));
                let inside = w.both(low, high);
                let g = w.cast(DType::I32, g);
                vec![w.select(inside, g, phi[0])]
            })[0];
            let there = w.compare_to(Compare::Ge, group, 0);
            let group = w.clamped(group, self.groups);
            let left = w.sum(&[(batch, m * k), (row, k)], 0);
            let right = w.sum(&[(batch, groups * k * n), (group, k * n)], 0);
            w.each_lane(self.width, |w, j| {
                let zero = w.constant(Scalar::zero(self.op.acc));
                let sum = carry(w, self.inner, &[zero], |w, at, sum| {
                    let x = w.load(a, affine(&[(left, 1)], 0).add_var(at, 1));
                    let y = w.load_masked(
                        b,
                        affine(&[(right, 1)], 0).add_var(at, n).add_var(j, 1),
                        there,
                        Scalar::zero(self.from),
                    );
                    vec![self.add(w, sum[0], x, y)]
                })[0];
                // Rows in no group are not read, so that NaNs there have no effect.
                let sum = w.select(there, sum, zero);
                let sum = w.to(self.op.out, sum);
                w.store(out, affine(&[(number, n)], 0).add_var(j, 1), sum);
            });
        });
    }

    /// Sums over the rows of each group.
    fn by_groups(&self, parts: &mut OpExpansion, starts: OpValue, counts: OpValue) {
        let (rows, m, n) = (self.rows as i64, self.inner as i64, self.width as i64);
        parts.rows("ragged_dot", self.batch * self.groups * self.inner, |w, number| {
            let (a, b) = (w.read(OpValue::Arg(0), self.from), w.read(OpValue::Arg(1), self.from));
            let (starts, counts) = (w.read(starts, DType::I32), w.read(counts, DType::I32));
            let out = w.write(OpValue::Out(0), self.op.out);
            let number = w.var_value(number);
            let (place, column) = w.split(number, m as usize);
            let (batch, _) = w.split(place, self.groups);
            let start = w.load(starts, affine(&[(place, 1)], 0));
            let start = w.clamped(start, self.rows + 1);
            w.each_lane(self.width, |w, j| {
                let zero = w.constant(Scalar::zero(self.op.acc));
                let extent = Extent::Bounded { bound: Size::Const(rows), buf: counts, index: affine(&[(place, 1)], 0) };
                let sum = carry_bounded(w, extent, &[zero], |w, at, sum| {
                    let row = w.index(affine(&[(start, 1)], 0).add_var(at, 1));
                    let row = w.clamped(row, self.rows);
                    let x = w.load(a, affine(&[(batch, rows * m), (row, m), (column, 1)], 0));
                    let y = w.load(b, affine(&[(batch, rows * n), (row, n)], 0).add_var(j, 1));
                    vec![self.add(w, sum[0], x, y)]
                })[0];
                let sum = w.to(self.op.out, sum);
                w.store(out, affine(&[(number, n)], 0).add_var(j, 1), sum);
            });
        });
    }

    fn add(&self, w: &mut KernelWriter, sum: Reg, x: Reg, y: Reg) -> Reg {
        let (x, y) = (w.to(self.op.acc, x), w.to(self.op.acc, y));
        w.fma(x, y, sum)
    }
}
