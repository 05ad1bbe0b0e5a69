//! Cumulative sums, products and extrema: one thread per line for short or many lines; few long lines are split into blocks,
//! whose totals are scanned first. The running value of a block is combined with the prefix of the block, so the error of a sum
//! grows with the length of a block and with the number of blocks, not with the length of the line.

use super::op_expansion::affine;
use super::sort::AxisLines;
use super::{DeviceCaps, KernelWriter, OpExpansion, OpValue};
use compiler::loops::{Carried, Extent, Loop, LoopKind, Reg, Size, Stmt, Var};
use ir::ops::{Cumulative, ReduceKind};
use ir::{Binary, Compare, DType, Scalar, Type};

/// The number of elements of a block.
const BLOCK: usize = 32;
/// The number of lines that saturates a device, with one thread each.
const MANY: usize = 1 << 14;

pub(super) fn cumulative(parts: &mut OpExpansion, op: &Cumulative, x: &Type, means: &DeviceCaps) -> Option<()> {
    let lines = AxisLines::of(&x.shape, op.axis);
    if x.numel() == 0 {
        return Some(());
    }
    let acc = accumulator(x.dtype, op.kind.combine(), means)?;
    // Products of floats are not reassociated: a partial product may overflow even if the whole does not.
    let whole = x.dtype.is_float() && op.kind == ReduceKind::Prod;
    let run = Run { kind: op.kind, acc, reverse: op.reverse, whole };
    run.over(parts, (OpValue::Arg(0), x.dtype), (OpValue::Out(0), x.dtype), lines);
    Some(())
}

/// The accumulator dtype of sums and products: rounded once if the device supports it. None for products that need f64 to avoid
/// intermediate overflow.
pub(super) fn accumulator(d: DType, f: Binary, means: &DeviceCaps) -> Option<DType> {
    match (f, means.limits.has_f64) {
        (Binary::Add | Binary::Mul, true) if d.is_float() => Some(DType::F64),
        (Binary::Mul, false) if d.is_float() => None,
        (Binary::Add, false) if d.is_float() => Some(DType::F32),
        _ => Some(d),
    }
}

struct Run {
    kind: ReduceKind,
    acc: DType,
    reverse: bool,
    whole: bool,
}

impl Run {
    fn identity(&self) -> Scalar {
        self.kind.identity(self.acc)
    }

    /// Emits a serial loop of `n` iterations with one carried value.
    fn carry_loop(
        &self,
        w: &mut KernelWriter,
        n: usize,
        init: Reg,
        body: impl FnOnce(&mut KernelWriter, Var, Reg) -> Reg,
    ) -> Reg {
        carry(w, n, &[init], |w, v, phi| vec![body(w, v, phi[0])])[0]
    }

    /// The offset of a step along a line, in elements from its start.
    fn place(&self, w: &mut KernelWriter, step: Reg, lines: AxisLines) -> Reg {
        let s = lines.stride as i64;
        match self.reverse {
            false => w.sum(&[(step, s)], 0),
            true => w.sum(&[(step, -s)], (lines.length as i64 - 1) * s),
        }
    }

    fn over(&self, parts: &mut OpExpansion, from: (OpValue, DType), to: (OpValue, DType), lines: AxisLines) {
        let n = lines.length;
        if self.whole || n <= 4 * BLOCK || lines.count >= MANY {
            return self.serial_scan(parts, from, to, lines);
        }
        let blocks = n.div_ceil(BLOCK);
        let totals = parts.temp(self.acc, lines.count * blocks);
        let before = parts.temp(self.acc, lines.count * blocks);
        self.blocks(parts, from, (totals, self.acc), None, lines);
        let inner = AxisLines { count: lines.count, length: blocks, stride: 1 };
        Run { reverse: false, ..*self }.over(parts, (totals, self.acc), (before, self.acc), inner);
        self.blocks(parts, from, to, Some(before), lines);
    }

    /// One thread per line, block by block.
    fn serial_scan(&self, parts: &mut OpExpansion, from: (OpValue, DType), to: (OpValue, DType), lines: AxisLines) {
        let n = lines.length;
        parts.rows(self.kind.name(), lines.count, |w, line| {
            let (x, y) = (w.read(from.0, from.1), w.write(to.0, to.1));
            let line = w.var_value(line);
            let start = lines.start(w, line, n);
            let none = w.constant(self.identity());
            // Products of floats are one block.
            let block = if self.whole { n } else { BLOCK };
            self.carry_loop(w, n.div_ceil(block), none, |w, b, before| {
                let b = w.var_value(b);
                let all = self.carry_loop(w, block, none, |w, t, sum| {
                    let step = w.index(affine(&[(b, block as i64)], 0).add_var(t, 1));
                    let there = w.compare_to(Compare::Lt, step, n as i64);
                    let place = self.place(w, step, lines);
                    let at = affine(&[(start, 1), (place, 1)], 0);
                    let v = w.load_masked(x, at.clone(), there, self.kind.identity(from.1));
                    let v = w.to(self.acc, v);
                    let sum = w.binary(self.kind.combine(), sum, v);
                    let out = w.binary(self.kind.combine(), before, sum);
                    let out = w.to(to.1, out);
                    w.store_masked(y, at, out, there);
                    sum
                });
                w.binary(self.kind.combine(), before, all)
            });
        });
    }

    /// One thread per block: computes its total, or from the prefix of each block its running values.
    fn blocks(
        &self,
        parts: &mut OpExpansion,
        from: (OpValue, DType),
        to: (OpValue, DType),
        before: Option<OpValue>,
        lines: AxisLines,
    ) {
        let (n, blocks) = (lines.length, lines.length.div_ceil(BLOCK));
        let name = format!("{} of blocks", self.kind.name());
        parts.rows(&name, lines.count * blocks, |w, number| {
            let (x, y) = (w.read(from.0, from.1), w.write(to.0, to.1));
            let earlier = before.map(|m| w.read(m, self.acc));
            let number = w.var_value(number);
            let (line, b) = w.split(number, blocks);
            let start = lines.start(w, line, n);
            let none = w.constant(self.identity());
            let left = earlier.map(|e| {
                let later = w.compare_to(Compare::Gt, b, 0);
                let at = affine(&[(number, 1)], -1);
                w.load_masked(e, at, later, self.identity())
            });
            let all = self.carry_loop(w, BLOCK, none, |w, t, sum| {
                let step = w.index(affine(&[(b, BLOCK as i64)], 0).add_var(t, 1));
                let there = w.compare_to(Compare::Lt, step, n as i64);
                let place = self.place(w, step, lines);
                let at = affine(&[(start, 1), (place, 1)], 0);
                let v = w.load_masked(x, at.clone(), there, self.kind.identity(from.1));
                let v = w.to(self.acc, v);
                let sum = w.binary(self.kind.combine(), sum, v);
                if let Some(left) = left {
                    let out = w.binary(self.kind.combine(), left, sum);
                    let out = w.to(to.1, out);
                    w.store_masked(y, at, out, there);
                }
                sum
            });
            if before.is_none() {
                w.store(y, affine(&[(number, 1)], 0), all);
            }
        });
    }
}

/// Emits a serial loop with carried values, and returns their final values.
pub(super) fn carry(
    w: &mut KernelWriter,
    n: usize,
    init: &[Reg],
    body: impl FnOnce(&mut KernelWriter, Var, &[Reg]) -> Vec<Reg>,
) -> Vec<Reg> {
    carry_bounded(w, Extent::Exact(Size::Const(n as i64)), init, body)
}

/// The same with a dynamic trip count.
pub(super) fn carry_bounded(
    w: &mut KernelWriter,
    extent: Extent,
    init: &[Reg],
    body: impl FnOnce(&mut KernelWriter, Var, &[Reg]) -> Vec<Reg>,
) -> Vec<Reg> {
    let var = w.var();
    let phis: Vec<Reg> = init.iter().map(|r| w.dtype(*r)).collect::<Vec<_>>().into_iter().map(|d| w.reg(d)).collect();
    w.begin();
    let next = body(w, var, &phis);
    let block = w.end();
    let mut carried = Vec::new();
    let mut outs = Vec::new();
    for ((&init, &phi), next) in init.iter().zip(&phis).zip(next) {
        let d = w.dtype(init);
        let out = w.reg(d);
        outs.push(out);
        carried.push(Carried { init, phi, next, out, combine: None });
    }
    w.push(Stmt::Loop(Loop { var, extent, kind: LoopKind::Serial, carried, body: block }));
    outs
}
