//! `sort` and `top_k`: sorts lines with a sorting network.
//!
//! The network sorts keys with each element's index, which breaks ties: so no two elements are equal, the result is stable
//! for every network, and other operands are gathered by index at the end. All comparisons of the network put the smaller element
//! first (each merge starts with a comparison against the mirrored half), so elements after the end of the line count as larger
//! than all others and need no memory. Chunks are sorted, and finished after each merge, in shared memory.

use super::op_expansion::affine;
use super::{DeviceCaps, KernelWriter, OpExpansion, OpValue};
use compiler::loops::{Buf, Extent, LoopKind, Reg, Size};
use ir::ops::{Sort, TopK};
use ir::{Binary, Compare, DType, DTypeKind, Scalar, Type};

/// The maximum number of elements of a chunk.
const CHUNK: usize = 4096;

/// Lines along an axis.
#[derive(Clone, Copy)]
pub(super) struct AxisLines {
    pub(super) count: usize,
    pub(super) length: usize,
    /// The distance between adjacent elements of a line.
    pub(super) stride: usize,
}

impl AxisLines {
    pub(super) fn of(shape: &[usize], axis: usize) -> AxisLines {
        let stride = shape[axis + 1..].iter().product();
        AxisLines { count: shape[..axis].iter().product::<usize>() * stride, length: shape[axis], stride }
    }

    /// The first element of a line with this index.
    pub(super) fn start(&self, w: &mut KernelWriter, line: Reg, length: usize) -> Reg {
        let (outer, inner) = w.split(line, self.stride);
        match self.stride {
            1 => w.sum(&[(line, length as i64)], 0),
            s => w.sum(&[(outer, (length * s) as i64), (inner, 1)], 0),
        }
    }
}

pub(super) fn sort(parts: &mut OpExpansion, op: &Sort, args: &[Type], means: &DeviceCaps) -> Option<()> {
    let lines = AxisLines::of(&args[0].shape, op.axis);
    if lines.count * lines.length == 0 {
        return Some(());
    }
    let keys: Vec<(OpValue, DType)> = (0..op.num_keys).map(|i| (OpValue::Arg(i), args[i].dtype)).collect();
    let order = argsort_lines(parts, &keys, lines, op.descending, means)?;
    for (i, t) in args.iter().enumerate() {
        fetch(parts, (OpValue::Arg(i), OpValue::Out(i)), t.dtype, order, lines, lines.length);
    }
    Some(())
}

pub(super) fn top_k(parts: &mut OpExpansion, op: &TopK, args: &[Type], means: &DeviceCaps) -> Option<()> {
    let lines = AxisLines::of(&args[0].shape, op.axis);
    if lines.count * op.k == 0 {
        return Some(());
    }
    let order = argsort_lines(parts, &[(OpValue::Arg(0), args[0].dtype)], lines, true, means)?;
    fetch(parts, (OpValue::Arg(0), OpValue::Out(0)), args[0].dtype, order, lines, op.k);
    parts.rows("places", lines.count, |w, line| {
        let (from, to) = (w.read(order, DType::I32), w.write(OpValue::Out(1), DType::I32));
        let line = w.var_value(line);
        let start = lines.start(w, line, op.k);
        w.for_loop(LoopKind::Vector, Size::Const(op.k as i64), |b, t| {
            let v = b.load(from, affine(&[(line, lines.length as i64)], 0).add_var(t, 1));
            b.store(to, affine(&[(start, 1)], 0).add_var(t, lines.stride as i64), v);
        });
    });
    Some(())
}

/// Gathers the first `take` elements of each line, in order.
fn fetch(
    parts: &mut OpExpansion,
    (from, to): (OpValue, OpValue),
    dtype: DType,
    order: OpValue,
    lines: AxisLines,
    take: usize,
) {
    parts.rows("fetch in order", lines.count, |w, line| {
        let (order, x, y) = (w.read(order, DType::I32), w.read(from, dtype), w.write(to, dtype));
        let line = w.var_value(line);
        let (first, start) = (lines.start(w, line, lines.length), lines.start(w, line, take));
        let t = w.var();
        w.begin();
        let p = w.load(order, affine(&[(line, lines.length as i64)], 0).add_var(t, 1));
        let p = w.clamped(p, lines.length);
        let v = w.load(x, affine(&[(first, 1), (p, lines.stride as i64)], 0));
        w.store(y, affine(&[(start, 1)], 0).add_var(t, lines.stride as i64), v);
        close(w, t, LoopKind::Vector, take);
    });
}

/// Ends the block of a loop without carried values.
pub(super) fn close(w: &mut KernelWriter, var: compiler::loops::Var, kind: LoopKind, n: usize) {
    let body = w.end();
    let extent = Extent::Exact(Size::Const(n as i64));
    w.push(compiler::loops::Stmt::Loop(compiler::loops::Loop { var, extent, kind, carried: Vec::new(), body }));
}

/// The dtype in which keys are compared: whole words, which any thread can store.
fn compared(d: DType) -> DType {
    match d.kind() {
        _ if d.size() == 8 => d,
        DTypeKind::Float => DType::F32,
        DTypeKind::Signed => DType::I32,
        DTypeKind::Bool | DTypeKind::Unsigned => DType::U32,
    }
}

/// The indices of each line's elements in sorted order, line by line.
pub(super) fn argsort_lines(
    parts: &mut OpExpansion,
    keys: &[(OpValue, DType)],
    lines: AxisLines,
    descending: bool,
    means: &DeviceCaps,
) -> Option<OpValue> {
    let types: Vec<DType> = keys.iter().map(|(_, d)| compared(*d)).collect();
    let each: usize = types.iter().map(|d| d.size()).sum::<usize>() + 4;
    let chunk = match means.limits.max_shared_bytes * 3 / 4 / each {
        0 => 1,
        n => (1usize << n.ilog2()).min(CHUNK),
    };
    let n = lines.length;
    let by = SortOrder { types: &types, descending };
    let elements = lines.count.checked_mul(n)?;
    let order = parts.temp(DType::I32, elements);
    if n <= chunk {
        sort_chunks(parts, keys, &by, lines, n.next_power_of_two(), (order, &[]));
        return Some(order);
    }
    // Chunks that are too small would need too many launches.
    if chunk < 64 {
        return None;
    }
    let kept: Vec<OpValue> = types.iter().map(|d| parts.temp(*d, elements)).collect();
    sort_chunks(parts, keys, &by, lines, chunk, (order, &kept));
    let mut merged = 2 * chunk;
    while merged / 2 < n {
        let mut distance = merged / 2;
        while distance >= chunk {
            compare_distant(parts, &by, lines, (merged, distance), order, &kept);
            distance /= 2;
        }
        finish_chunks(parts, &by, lines, chunk, order, &kept);
        merged *= 2;
    }
    Some(order)
}

/// The sort order.
struct SortOrder<'a> {
    types: &'a [DType],
    descending: bool,
}

/// An element in registers: its keys and its index.
struct Element {
    keys: Vec<Reg>,
    place: Reg,
}

impl SortOrder<'_> {
    fn buffers(&self, w: &mut KernelWriter, elements: usize) -> (Vec<Buf>, Buf) {
        let keys = self.types.iter().map(|d| w.scratch(*d, elements)).collect();
        (keys, w.scratch(DType::I32, elements))
    }

    /// Whether `b` comes before `a`.
    fn comes_before(&self, w: &mut KernelWriter, a: &Element, b: &Element) -> Reg {
        let mut swap = w.compare(Compare::Lt, b.place, a.place);
        for (&x, &y) in a.keys.iter().zip(&b.keys).rev() {
            let (first, second) = if self.descending { (x, y) } else { (y, x) };
            let mut before = w.compare(Compare::Lt, first, second);
            let mut after = w.compare(Compare::Lt, second, first);
            if let (Some(f), Some(s)) = (w.nan(first), w.nan(second)) {
                let (not_f, not_s) = (w.not(f), w.not(s));
                let less = w.both(not_f, s);
                before = w.either(before, less);
                let more = w.both(f, not_s);
                after = w.either(after, more);
            }
            let not_after = w.not(after);
            let equal = w.both(not_after, swap);
            swap = w.either(before, equal);
        }
        swap
    }

    /// Compares two elements in memory and swaps them if they are out of order; `there` states whether the second one exists.
    fn compare_exchange(&self, w: &mut KernelWriter, (keys, places): (&[Buf], Buf), [i, j]: [Reg; 2], there: Reg) {
        let element = |w: &mut KernelWriter, at: Reg| {
            let none = |d: DType| Scalar::from_i64(d, 0);
            let keys = keys.iter().zip(self.types).map(|(k, d)| w.load_masked(*k, at, there, none(*d)));
            let keys = keys.collect();
            Element { keys, place: w.load_masked(places, at, there, none(DType::I32)) }
        };
        let (a, b) = (element(w, i), element(w, j));
        let swap = self.comes_before(w, &a, &b);
        let swap = w.both(swap, there);
        for (n, k) in keys.iter().enumerate() {
            w.store_masked(*k, i, b.keys[n], swap);
            w.store_masked(*k, j, a.keys[n], swap);
        }
        w.store_masked(places, i, b.place, swap);
        w.store_masked(places, j, a.place, swap);
    }

    /// Emits the comparisons inside a chunk whose first `limit` (i32) elements exist: from merges of `merged` elements,
    /// initially at distance `distance`, for this many rounds.
    fn sorting_network(
        &self,
        w: &mut KernelWriter,
        memory: (&[Buf], Buf),
        chunk: usize,
        limit: Reg,
        (merged, distance, rounds): (usize, usize, u32),
    ) {
        if rounds == 0 {
            return;
        }
        let i32_ = DType::I32;
        let init = [w.int(i32_, merged as i64), w.int(i32_, distance as i64)];
        let round = w.var();
        let phis = [w.reg(i32_), w.reg(i32_)];
        let [merged, distance] = phis;
        w.begin();
        let (one, two) = (w.int(i32_, 1), w.int(i32_, 2));
        let below = w.binary(Binary::Sub, distance, one);
        let twice = w.binary(Binary::Add, distance, distance);
        let mirrored = w.compare(Compare::Eq, twice, merged);
        let pair = w.var();
        w.begin();
        let t = w.var_value(pair);
        let t = w.cast(i32_, t);
        // Pairs are (2t - r, 2t - r + distance), or mirrored (2t - r, 2t - 3r + 2 distance - 1), where r is t modulo `distance`.
        let r = w.binary(Binary::And, t, below);
        let t2 = w.binary(Binary::Add, t, t);
        let i = w.binary(Binary::Sub, t2, r);
        let plain = w.binary(Binary::Add, i, distance);
        let r2 = w.binary(Binary::Add, r, r);
        let start = w.binary(Binary::Sub, i, r2);
        let end = w.binary(Binary::Sub, twice, one);
        let mirror = w.binary(Binary::Add, start, end);
        let j = w.select(mirrored, mirror, plain);
        let there = w.compare(Compare::Lt, j, limit);
        let (i, j) = (w.clamped(i, chunk), w.clamped(j, chunk));
        self.compare_exchange(w, memory, [i, j], there);
        close(w, pair, LoopKind::Vector, chunk / 2);
        let more = w.compare(Compare::Gt, distance, one);
        let half = w.binary(Binary::Div, distance, two);
        let doubled = w.binary(Binary::Add, merged, merged);
        let next = [w.select(more, merged, doubled), w.select(more, half, merged)];
        let body = w.end();
        let carried = (0..2).map(|k| compiler::loops::Carried {
            init: init[k],
            phi: phis[k],
            next: next[k],
            out: w.reg(i32_),
            combine: None,
        });
        let carried = carried.collect();
        let extent = Extent::Exact(Size::Const(rounds as i64));
        w.push(compiler::loops::Stmt::Loop(compiler::loops::Loop {
            var: round,
            extent,
            kind: LoopKind::Serial,
            carried,
            body,
        }));
    }
}

/// A chunk of a line, in a kernel over all chunks of all lines.
struct Chunk {
    line: Reg,
    /// Its start in the line.
    at: Reg,
    /// The number of its elements that exist, as an i32.
    limit: Reg,
}

impl Chunk {
    fn of(w: &mut KernelWriter, number: compiler::loops::Var, lines: AxisLines, chunk: usize) -> Chunk {
        let number = w.var_value(number);
        let (line, part) = w.split(number, lines.length.div_ceil(chunk));
        let at = w.sum(&[(part, chunk as i64)], 0);
        let left = w.sum(&[(part, -(chunk as i64))], lines.length as i64);
        let limit = w.cast(DType::I32, left);
        Chunk { line, at, limit }
    }

    /// A loop over the elements that exist.
    fn each(
        &self,
        w: &mut KernelWriter,
        lines: AxisLines,
        chunk: usize,
        body: impl FnOnce(&mut KernelWriter, compiler::loops::Var, Option<Reg>),
    ) {
        let t = w.var();
        w.begin();
        let whole = lines.length % chunk == 0;
        let there = (!whole).then(|| {
            let place = w.index(affine(&[(self.at, 1)], 0).add_var(t, 1));
            w.compare_to(Compare::Lt, place, lines.length as i64)
        });
        body(w, t, there);
        close(w, t, LoopKind::Vector, chunk);
    }
}

fn load(w: &mut KernelWriter, buf: Buf, index: compiler::loops::Index, there: Option<Reg>, d: DType) -> Reg {
    match there {
        Some(mask) => w.load_masked(buf, index, mask, Scalar::from_i64(d, 0)),
        None => w.load(buf, index),
    }
}

fn store(w: &mut KernelWriter, buf: Buf, index: compiler::loops::Index, value: Reg, there: Option<Reg>) {
    match there {
        Some(mask) => w.store_masked(buf, index, value, mask),
        None => w.store(buf, index, value),
    }
}

/// Sorts each chunk of each line. Sorted keys are stored if there is memory for them.
fn sort_chunks(
    parts: &mut OpExpansion,
    keys: &[(OpValue, DType)],
    by: &SortOrder<'_>,
    lines: AxisLines,
    chunk: usize,
    (order, kept): (OpValue, &[OpValue]),
) {
    let rounds = chunk.ilog2();
    parts.rows("sort chunks", lines.count * lines.length.div_ceil(chunk), |w, number| {
        let sources: Vec<Buf> = keys.iter().map(|(m, d)| w.read(*m, *d)).collect();
        let to = w.write(order, DType::I32);
        let kept: Vec<Buf> = kept.iter().zip(by.types).map(|(m, d)| w.write(*m, *d)).collect();
        let (scratch, places) = by.buffers(w, chunk);
        let own = Chunk::of(w, number, lines, chunk);
        let start = lines.start(w, own.line, lines.length);
        own.each(w, lines, chunk, |w, t, there| {
            for (k, source) in sources.iter().enumerate() {
                let s = lines.stride as i64;
                let index = affine(&[(start, 1), (own.at, s)], 0).add_var(t, s);
                let v = load(w, *source, index, there, keys[k].1);
                let v = w.to(by.types[k], v);
                w.store(scratch[k], t, v);
            }
            let place = w.index(affine(&[(own.at, 1)], 0).add_var(t, 1));
            let place = w.cast(DType::I32, place);
            w.store(places, t, place);
        });
        by.sorting_network(w, (&scratch, places), chunk, own.limit, (2, 1, rounds * (rounds + 1) / 2));
        own.each(w, lines, chunk, |w, t, there| {
            let index = || affine(&[(own.line, lines.length as i64), (own.at, 1)], 0).add_var(t, 1);
            for (k, to) in kept.iter().enumerate() {
                let v = w.load(scratch[k], t);
                store(w, *to, index(), v, there);
            }
            let v = w.load(places, t);
            store(w, to, index(), v, there);
        });
    });
}

/// Compares elements at a distance of at least a chunk.
fn compare_distant(
    parts: &mut OpExpansion,
    by: &SortOrder<'_>,
    lines: AxisLines,
    (merged, distance): (usize, usize),
    order: OpValue,
    kept: &[OpValue],
) {
    let pairs = lines.length.next_power_of_two() / 2;
    parts.rows("compare far elements", lines.count, |w, line| {
        let places = w.change(order, DType::I32);
        let keys: Vec<Buf> = kept.iter().zip(by.types).map(|(m, d)| w.change(*m, *d)).collect();
        let line = w.var_value(line);
        let start = w.sum(&[(line, lines.length as i64)], 0);
        let below = w.int(DType::I64, distance as i64 - 1);
        let pair = w.var();
        w.begin();
        let t = w.var_value(pair);
        let r = w.binary(Binary::And, t, below);
        let i = w.sum(&[(t, 2), (r, -1)], 0);
        let j = match merged == 2 * distance {
            true => w.sum(&[(t, 2), (r, -3)], merged as i64 - 1),
            false => w.sum(&[(i, 1)], distance as i64),
        };
        let there = w.compare_to(Compare::Lt, j, lines.length as i64);
        let (i, j) = (w.clamped(i, lines.length), w.clamped(j, lines.length));
        let (i, j) = (w.sum(&[(start, 1), (i, 1)], 0), w.sum(&[(start, 1), (j, 1)], 0));
        by.compare_exchange(w, (&keys, places), [i, j], there);
        close(w, pair, LoopKind::Vector, pairs);
    });
}

/// Compares elements at distances below a chunk, down to adjacent ones.
fn finish_chunks(
    parts: &mut OpExpansion,
    by: &SortOrder<'_>,
    lines: AxisLines,
    chunk: usize,
    order: OpValue,
    kept: &[OpValue],
) {
    parts.rows("merge chunks", lines.count * lines.length.div_ceil(chunk), |w, number| {
        let places = w.change(order, DType::I32);
        let keys: Vec<Buf> = kept.iter().zip(by.types).map(|(m, d)| w.change(*m, *d)).collect();
        let (scratch, own_places) = by.buffers(w, chunk);
        let own = Chunk::of(w, number, lines, chunk);
        let index = |t| affine(&[(own.line, lines.length as i64), (own.at, 1)], 0).add_var(t, 1);
        own.each(w, lines, chunk, |w, t, there| {
            for (k, d) in by.types.iter().enumerate() {
                let v = load(w, keys[k], index(t), there, *d);
                w.store(scratch[k], t, v);
            }
            let v = load(w, places, index(t), there, DType::I32);
            w.store(own_places, t, v);
        });
        // No merge here starts with a mirrored half: `merged` is never twice `distance`.
        by.sorting_network(w, (&scratch, own_places), chunk, own.limit, (4 * chunk, chunk / 2, chunk.ilog2()));
        own.each(w, lines, chunk, |w, t, there| {
            for (k, to) in keys.iter().enumerate() {
                let v = w.load(scratch[k], t);
                store(w, *to, index(t), v, there);
            }
            let v = w.load(own_places, t);
            store(w, places, index(t), v, there);
        });
    });
}
