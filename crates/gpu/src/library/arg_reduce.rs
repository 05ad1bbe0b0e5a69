//! `argmax` and `argmin`. Contiguous lines are read by teams: first the extremum, then the first index of it, while the lanes
//! still hold the values. Other lines have one lane each, so that adjacent lanes read adjacent elements. If there are few lines,
//! they are split into pieces, whose extrema are then reduced.

use super::cumulative::carry;
use super::op_expansion::affine;
use super::sort::AxisLines;
use super::{DeviceCaps, KernelWriter, OpExpansion, OpValue};
use compiler::loops::{Reg, Var};
use ir::ops::ArgReduce;
use ir::{Binary, Compare, DType, Scalar, Type};

/// The minimum number of elements of a piece.
const LEAST: usize = 256;

pub(super) fn arg_reduce(parts: &mut OpExpansion, op: &ArgReduce, x: &Type, means: &DeviceCaps) -> Option<()> {
    if x.numel() == 0 {
        return Some(());
    }
    let lines = AxisLines::of(&x.shape, op.axis);
    let own = Search { max: op.max, index: op.index, lines };
    // Enough lanes for the whole device, if each has enough work.
    let lanes = if lines.stride == 1 { lines.count.saturating_mul(32) } else { lines.count };
    let pieces = (means.limits.saturating_threads as usize / lanes.max(1)).min(lines.length / LEAST).max(1);
    let from = ArgExtremum { value: (OpValue::Arg(0), x.dtype), at: None };
    let key = key(x.dtype);
    let Some(each) = (pieces > 1).then(|| lines.length.div_ceil(pieces)) else {
        own.run(parts, from, lines.length, 1, None, OpValue::Out(0));
        return Some(());
    };
    let pieces = lines.length.div_ceil(each);
    let values = parts.temp(key, lines.count * pieces);
    let places = parts.temp(op.index, lines.count * pieces);
    own.run(parts, from, each, pieces, Some(values), places);
    let few = AxisLines { length: pieces, ..lines };
    let from = ArgExtremum { value: (values, key), at: Some(places) };
    Search { lines: few, ..own }.run(parts, from, pieces, 1, None, OpValue::Out(0));
    Some(())
}

/// The dtype in which values are compared: the same order, in a dtype that every device supports.
fn key(d: DType) -> DType {
    match d {
        DType::F64 | DType::I64 | DType::U64 | DType::U32 => d,
        d if d.is_float() => DType::F32,
        _ => DType::I32,
    }
}

/// Values, and their indices if they are not positions.
#[derive(Clone, Copy)]
struct ArgExtremum {
    value: (OpValue, DType),
    at: Option<OpValue>,
}

#[derive(Clone, Copy)]
struct Search {
    max: bool,
    index: DType,
    lines: AxisLines,
}

impl Search {
    /// Finds the extremum of each piece of each line: its index, and its value if requested.
    fn run(
        &self,
        parts: &mut OpExpansion,
        from: ArgExtremum,
        each: usize,
        pieces: usize,
        value: Option<OpValue>,
        place: OpValue,
    ) {
        match self.lines.stride {
            1 => self.teams(parts, from, each, pieces, value, place),
            _ => self.lanes(parts, from, each, pieces, value, place),
        }
    }

    fn name(&self) -> &'static str {
        if self.max { "argmax" } else { "argmin" }
    }

    /// The identity: less than every number for a maximum, more for a minimum.
    fn reduction_identity(&self, d: DType) -> Scalar {
        if self.max { Scalar::lowest(d) } else { Scalar::highest(d) }
    }

    /// Uses a team for each piece of a line.
    fn teams(
        &self,
        parts: &mut OpExpansion,
        from: ArgExtremum,
        each: usize,
        pieces: usize,
        value: Option<OpValue>,
        place: OpValue,
    ) {
        let (n, d, key) = (self.lines.length, from.value.1, key(from.value.1));
        let even = each * pieces == n;
        parts.rows(self.name(), self.lines.count * pieces, |w, row| {
            let x = w.read(from.value.0, d);
            let places = from.at.map(|m| w.read(m, self.index));
            let values = value.map(|m| w.write(m, key));
            let out = w.write(place, self.index);
            let number = w.var_value(row);
            let (line, piece) = w.split(number, pieces);
            let first = w.sum(&[(piece, each as i64)], 0);
            let start = w.sum(&[(line, n as i64), (first, 1)], 0);
            let there = |w: &mut KernelWriter, k: Var| {
                let step = w.index(affine(&[(first, 1)], 0).add_var(k, 1));
                (step, (!even).then(|| w.compare_to(Compare::Lt, step, n as i64)))
            };
            let load = |w: &mut KernelWriter, k: Var, there: Option<Reg>| {
                let at = affine(&[(start, 1)], 0).add_var(k, 1);
                let v = match there {
                    Some(there) => w.load_masked(x, at, there, self.reduction_identity(d)),
                    None => w.load(x, at),
                };
                w.to(key, v)
            };
            let combine = if self.max { Binary::Max } else { Binary::Min };
            let worst = w.constant(self.reduction_identity(key));
            let best = w.joined(each, worst, combine, |w, k| {
                let (_, there) = there(w, k);
                load(w, k, there)
            });
            let last = w.constant(Scalar::highest(self.index));
            let at = w.joined(each, last, Binary::Min, |w, k| {
                let (step, there) = there(w, k);
                let v = load(w, k, there);
                // With a NaN, the best value is NaN, which is not equal to anything.
                let mut same = w.compare(Compare::Eq, v, best);
                if let Some(nan) = w.nan(v) {
                    same = w.either(same, nan);
                }
                if let Some(there) = there {
                    same = w.both(same, there);
                }
                let own = match places {
                    Some(p) => w.load(p, affine(&[(start, 1)], 0).add_var(k, 1)),
                    None => w.to(self.index, step),
                };
                w.select(same, own, last)
            });
            w.store(out, affine(&[(number, 1)], 0), at);
            if let Some(values) = values {
                w.store(values, affine(&[(number, 1)], 0), best);
            }
        });
    }

    /// Uses a lane for each piece of a line, with adjacent lines on adjacent lanes.
    fn lanes(
        &self,
        parts: &mut OpExpansion,
        from: ArgExtremum,
        each: usize,
        pieces: usize,
        value: Option<OpValue>,
        place: OpValue,
    ) {
        let (n, d, key, inner) = (self.lines.length, from.value.1, key(from.value.1), self.lines.stride);
        let even = each * pieces == n;
        let outer = self.lines.count / inner;
        parts.rows(self.name(), outer * pieces, |w, row| {
            let x = w.read(from.value.0, d);
            let places = from.at.map(|m| w.read(m, self.index));
            let values = value.map(|m| w.write(m, key));
            let out = w.write(place, self.index);
            let number = w.var_value(row);
            let (block, piece) = w.split(number, pieces);
            let first = w.sum(&[(piece, each as i64)], 0);
            let start = w.sum(&[(block, (n * inner) as i64), (first, inner as i64)], 0);
            w.each_lane(inner, |w, var| {
                let (worst, none) = (w.constant(self.reduction_identity(key)), w.constant(Scalar::highest(self.index)));
                let found = carry(w, each, &[worst, none], |w, k, phi| {
                    let (best, at) = (phi[0], phi[1]);
                    let step = w.index(affine(&[(first, 1)], 0).add_var(k, 1));
                    let there = (!even).then(|| w.compare_to(Compare::Lt, step, n as i64));
                    let from = affine(&[(start, 1)], 0).add_var(k, inner as i64).add_var(var, 1);
                    let v = match there {
                        Some(there) => w.load_masked(x, from.clone(), there, self.reduction_identity(d)),
                        None => w.load(x, from.clone()),
                    };
                    let v = w.to(key, v);
                    // The first extremum wins, so an equal value is taken only if nothing was found yet.
                    let order = if self.max { Compare::Gt } else { Compare::Lt };
                    let better = w.compare(order, v, best);
                    let untouched = w.compare(Compare::Eq, at, none);
                    let mut wins = w.either(better, untouched);
                    if let (Some(new), Some(old)) = (w.nan(v), w.nan(best)) {
                        let number = w.not(old);
                        let beats = w.either(wins, new);
                        wins = w.both(number, beats);
                    }
                    if let Some(there) = there {
                        wins = w.both(wins, there);
                    }
                    let own = match places {
                        Some(p) => w.load(p, from),
                        None => w.to(self.index, step),
                    };
                    vec![w.select(wins, v, best), w.select(wins, own, at)]
                });
                let to = affine(&[(number, inner as i64)], 0).add_var(var, 1);
                w.store(out, to.clone(), found[1]);
                if let Some(values) = values {
                    w.store(values, to, found[0]);
                }
            });
        });
    }
}
