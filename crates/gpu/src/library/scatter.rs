//! `scatter`: sorts updates stably by their destination; then one thread per destination applies
//! its updates one after another, like the reference.
//!
//! The sorted entries are whole slices if no two of them partially overlap, and single elements otherwise.

use super::cumulative::{accumulator, carry, carry_bounded};
use super::op_expansion::affine;
use super::sort::{AxisLines, argsort_lines};
use super::window::strides;
use super::{DeviceCaps, KernelWriter, OpExpansion, OpValue};
use compiler::loops::{Extent, Reg, Size};
use ir::ops::Scatter;
use ir::ops::scatter::ScatterMode;
use ir::{Binary, Compare, DType, Scalar, Type};

/// The operands of a scatter; without a table it starts from zeros, and sums are rounded once.
#[derive(Clone, Copy)]
pub(super) struct Sources {
    pub(super) table: Option<OpValue>,
    pub(super) ids: OpValue,
    pub(super) news: OpValue,
}

struct Sizes<'a> {
    op: &'a Scatter,
    from: Sources,
    /// The dtype in which values are combined.
    acc: DType,
    operand: &'a Type,
    indices: &'a Type,
    /// The axes of the updates that index slices, and their sizes.
    batch_axes: Vec<usize>,
    batch: Vec<usize>,
    /// The axes of the operand that slices extend along, and a slice's sizes there.
    walked: Vec<usize>,
    slice: Vec<usize>,
    /// The slice size along each axis of the operand.
    sizes: Vec<usize>,
    updates: Vec<i64>,
}

pub(super) fn scatter(parts: &mut OpExpansion, op: &Scatter, args: &[Type], means: &DeviceCaps) -> Option<()> {
    let from = Sources { table: Some(OpValue::Arg(0)), ids: OpValue::Arg(1), news: OpValue::Arg(2) };
    scatter_from(parts, op, args, from, means)
}

pub(super) fn scatter_from(
    parts: &mut OpExpansion,
    op: &Scatter,
    args: &[Type],
    from: Sources,
    means: &DeviceCaps,
) -> Option<()> {
    let [operand, indices, updates] = args else { return None };
    // Unsigned numbers from 2³¹ on would become negative indices.
    let ids = match indices.dtype {
        DType::U64 => return None,
        DType::U32 | DType::I64 if !means.limits.has_int64 => return None,
        DType::U32 | DType::I64 => DType::I64,
        _ => DType::I32,
    };
    if operand.numel() == 0 {
        return Some(());
    }
    let acc = match (from.table, op.kind.combine()) {
        (None, Some(f)) => accumulator(operand.dtype, f, means)?,
        _ => operand.dtype,
    };
    match from.table {
        Some(table) => parts.copy(table, OpValue::Out(0), operand.bytes()),
        None => zeros(parts, operand),
    }
    if updates.numel() == 0 {
        return Some(());
    }
    let rank = operand.rank();
    let sizes = op.dims.slice_sizes(rank, &updates.shape).to_vec();
    if (0..rank).any(|a| sizes[a] > operand.shape[a]) {
        // No slice fits in the operand.
        return Some(());
    }
    let absent = |a: &usize| op.dims.collapsed.contains(a) || op.dims.operand_batch.contains(a);
    let batch_axes: Vec<usize> = (0..updates.rank()).filter(|d| !op.dims.offset.contains(d)).collect();
    let walked: Vec<usize> = (0..rank).filter(|a| !absent(a)).collect();
    let s = Sizes {
        op,
        from,
        acc,
        operand,
        indices,
        batch: batch_axes.iter().map(|&d| updates.shape[d]).collect(),
        batch_axes,
        slice: walked.iter().map(|&a| sizes[a]).collect(),
        walked,
        sizes,
        updates: strides(&updates.shape),
    };
    // Slices are equal or disjoint if their starts differ only along axes where they have one element.
    let disjoint = op.dims.index_map.iter().all(|&a| s.sizes[a] == 1);
    let entries = if disjoint { s.batch.iter().product() } else { updates.numel() };
    let width = updates.numel() / entries;
    let targets = parts.temp(DType::I32, entries);
    s.targets(parts, targets, entries, disjoint, updates, ids);
    let alone = s.batch.iter().product::<usize>() == 1;
    let lines = AxisLines { count: 1, length: entries, stride: 1 };
    let order = if alone { None } else { Some(argsort_lines(parts, &[(targets, DType::I32)], lines, false, means)?) };
    let counts = order.map(|order| s.counts(parts, targets, order, entries));
    s.apply(parts, targets, order.zip(counts), (entries, width), disjoint, updates);
    Some(())
}

/// Fills a result with zeros.
fn zeros(parts: &mut OpExpansion, ty: &Type) {
    parts.rows("zeros", ty.numel(), |w, flat| {
        let to = w.write(OpValue::Out(0), ty.dtype);
        let zero = w.constant(Scalar::zero(ty.dtype));
        w.store(to, flat, zero);
    });
}

impl Sizes<'_> {
    /// The element of the operand where the slice with these batch coordinates starts, and whether the slice is inside.
    fn start(
        &self,
        w: &mut KernelWriter,
        ids: compiler::loops::Buf,
        batch: &[Reg],
        wide: DType,
    ) -> (Vec<(Reg, i64)>, Option<Reg>) {
        let strides_of = strides(&self.operand.shape);
        let index_strides = strides(&self.indices.shape);
        let mut terms = Vec::new();
        let mut inside: Option<Reg> = None;
        for (component, &a) in self.op.dims.index_map.iter().enumerate() {
            let at: Vec<(Reg, i64)> = batch.iter().zip(&index_strides).map(|(r, s)| (*r, *s)).collect();
            let id = w.load(ids, affine(&at, component as i64));
            let id = w.to(wide, id);
            let room = self.operand.shape[a] as i64 - self.sizes[a] as i64;
            if self.op.mode == ScatterMode::Drop {
                let (low, high) = (w.compare_to(Compare::Ge, id, 0), w.compare_to(Compare::Le, id, room));
                let own = w.both(low, high);
                inside = Some(match inside {
                    Some(before) => w.both(before, own),
                    None => own,
                });
            }
            let id = w.clamped(id, (room.max(0) + 1) as usize);
            terms.push((id, strides_of[a]));
        }
        for (&a, &i) in self.op.dims.operand_batch.iter().zip(&self.op.dims.index_batch) {
            terms.push((batch[i], strides_of[a]));
        }
        (terms, inside)
    }

    /// The destination of each slice, or each element; -1 for dropped ones.
    fn targets(
        &self,
        parts: &mut OpExpansion,
        to: OpValue,
        entries: usize,
        disjoint: bool,
        updates: &Type,
        wide: DType,
    ) {
        parts.rows("where updates go", entries, |w, flat| {
            let ids = w.read(self.from.ids, self.indices.dtype);
            let to = w.write(to, DType::I32);
            let (batch, mut inside_slice) = match disjoint {
                true => (w.coordinates(flat, &self.batch), Vec::new()),
                false => {
                    let at = w.coordinates(flat, &updates.shape);
                    let batch = self.batch_axes.iter().map(|&d| at[d]).collect();
                    let steps = strides(&self.operand.shape);
                    let walked = self.walked.iter().zip(&self.op.dims.offset);
                    (batch, walked.map(|(&a, &d)| (at[d], steps[a])).collect())
                }
            };
            let (mut terms, inside) = self.start(w, ids, &batch, wide);
            terms.append(&mut inside_slice);
            let at = w.sum(&terms, 0);
            let at = w.cast(DType::I32, at);
            let at = match inside {
                Some(inside) => {
                    let nowhere = w.int(DType::I32, -1);
                    w.select(inside, at, nowhere)
                }
                None => at,
            };
            w.store(to, flat, at);
        });
    }

    /// For each entry in sorted order: the number of entries with the same destination, if it is the first of them, else 0.
    fn counts(&self, parts: &mut OpExpansion, targets: OpValue, order: OpValue, entries: usize) -> OpValue {
        let counts = parts.temp(DType::I32, entries);
        parts.rows("how many go there", entries, |w, flat| {
            let (own, order) = (w.read(targets, DType::I32), w.read(order, DType::I32));
            let to = w.write(counts, DType::I32);
            let at = |w: &mut KernelWriter, place: Reg| {
                let p = w.load(order, affine(&[(place, 1)], 0));
                let p = w.clamped(p, entries);
                w.load(own, affine(&[(p, 1)], 0))
            };
            let place = w.var_value(flat);
            let target = at(w, place);
            let start = w.compare_to(Compare::Eq, place, 0);
            let before = w.sum(&[(place, 1)], -1);
            let before = w.clamped(before, entries);
            let earlier = at(w, before);
            let new = w.compare(Compare::Ne, earlier, target);
            let first = w.either(start, new);
            let somewhere = w.compare_to(Compare::Ge, target, 0);
            let first = w.both(first, somewhere);
            // The first entry after this one with another destination is in (low, high].
            let low = w.cast(DType::I32, place);
            let high = w.int(DType::I32, entries as i64);
            let rounds = entries.ilog2() as usize + 1;
            let found = carry(w, rounds, &[low, high], |w, _, phi| {
                let (one, two) = (w.int(DType::I32, 1), w.int(DType::I32, 2));
                let gap = w.binary(Binary::Sub, phi[1], phi[0]);
                let more = w.compare(Compare::Gt, gap, one);
                let half = w.binary(Binary::Div, gap, two);
                let middle = w.binary(Binary::Add, phi[0], half);
                let inside = w.clamped(middle, entries);
                let there = at(w, inside);
                let same = w.compare(Compare::Eq, there, target);
                let (up, not) = (w.both(more, same), w.not(same));
                let down = w.both(more, not);
                vec![w.select(up, middle, phi[0]), w.select(down, middle, phi[1])]
            });
            let low = w.cast(DType::I32, place);
            let count = w.binary(Binary::Sub, found[1], low);
            let none = w.int(DType::I32, 0);
            let count = w.select(first, count, none);
            w.store(to, flat, count);
        });
        counts
    }

    /// The element of the updates that is element `within` of an entry.
    fn update(&self, w: &mut KernelWriter, entry: Reg, within: &[Reg], disjoint: bool) -> Reg {
        if !disjoint {
            return entry;
        }
        let mut terms = Vec::new();
        let mut left = entry;
        for (k, &d) in self.batch_axes.iter().enumerate().rev() {
            let n = self.batch[k];
            match k {
                0 => terms.push((left, self.updates[d])),
                _ if n == 1 => {}
                _ => {
                    let (rest, own) = w.split(left, n);
                    terms.push((own, self.updates[d]));
                    left = rest;
                }
            }
        }
        terms.extend(within.iter().zip(&self.op.dims.offset).map(|(r, &d)| (*r, self.updates[d])));
        w.sum(&terms, 0)
    }

    fn apply(
        &self,
        parts: &mut OpExpansion,
        targets: OpValue,
        ordered: Option<(OpValue, OpValue)>,
        (entries, width): (usize, usize),
        disjoint: bool,
        updates: &Type,
    ) {
        let d = self.operand.dtype;
        let size = updates.numel();
        parts.rows("apply updates", entries * width, |w, flat| {
            let own = w.read(targets, DType::I32);
            let (table, news) = (self.from.table.map(|m| w.read(m, d)), w.read(self.from.news, d));
            let to = w.change(OpValue::Out(0), d);
            let lists = ordered.map(|(order, counts)| (w.read(order, DType::I32), w.read(counts, DType::I32)));
            let mut shape = vec![entries];
            if disjoint {
                shape.extend(&self.slice);
            }
            let at = w.coordinates(flat, &shape);
            let (place, within) = (at[0], at[1..].to_vec());
            let steps = strides(&self.operand.shape);
            let entry = |w: &mut KernelWriter, place: Reg| match lists {
                Some((order, _)) => {
                    let p = w.load(order, affine(&[(place, 1)], 0));
                    w.clamped(p, entries)
                }
                None => place,
            };
            let first = entry(w, place);
            let target = w.load(own, affine(&[(first, 1)], 0));
            let mut goes = w.compare_to(Compare::Ge, target, 0);
            let base = w.clamped(target, self.operand.numel());
            let mut terms = vec![(base, 1)];
            if disjoint {
                terms.extend(within.iter().zip(&self.walked).map(|(r, &a)| (*r, steps[a])));
            }
            let there = w.sum(&terms, 0);
            let there = w.clamped(there, self.operand.numel());
            let new = |w: &mut KernelWriter, e: Reg| {
                let u = self.update(w, e, &within, disjoint);
                let u = w.clamped(u, size);
                let v = w.load(news, affine(&[(u, 1)], 0));
                w.to(self.acc, v)
            };
            let old = match table {
                Some(table) => {
                    let v = w.load_masked(table, affine(&[(there, 1)], 0), goes, Scalar::zero(d));
                    w.to(self.acc, v)
                }
                None => w.constant(Scalar::zero(self.acc)),
            };
            let value = match (self.op.kind.combine(), lists) {
                (None, None) => new(w, first),
                (Some(f), None) => {
                    let v = new(w, first);
                    w.binary(f, old, v)
                }
                (f, Some((_, counts))) => {
                    let many = w.load(counts, affine(&[(place, 1)], 0));
                    let any = w.compare_to(Compare::Gt, many, 0);
                    goes = w.both(goes, any);
                    match f {
                        // The last update determines the value.
                        None => {
                            let many = w.clamped(many, entries + 1);
                            let last = w.sum(&[(place, 1), (many, 1)], -1);
                            let last = w.clamped(last, entries);
                            let e = entry(w, last);
                            new(w, e)
                        }
                        Some(f) => {
                            let extent = Extent::Bounded {
                                bound: Size::Const(entries as i64),
                                buf: counts,
                                index: affine(&[(place, 1)], 0),
                            };
                            carry_bounded(w, extent, &[old], |w, j, sum| {
                                let next = w.index(affine(&[(place, 1)], 0).add_var(j, 1));
                                let next = w.clamped(next, entries);
                                let e = entry(w, next);
                                let v = new(w, e);
                                vec![w.binary(f, sum[0], v)]
                            })[0]
                        }
                    }
                }
            };
            let value = w.to(d, value);
            w.store_masked(to, affine(&[(there, 1)], 0), value, goes);
        });
    }
}
