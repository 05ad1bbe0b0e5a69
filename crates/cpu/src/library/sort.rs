//! Sort and top-k: the keys of each line are converted to integers with the same order and packed with their positions, so that
//! an unstable in-place sort is stable. Long lines use radix sort; short lines are sorted in SIMD lanes
//! ([`sorting_network`]) or by insertion. Top-k keeps the elements that pass a bound, which rises as larger elements are found.

use super::along::{AxisLines, arg_reduce};
use super::element::{Element, by_dtype};
use super::radix::{self, MIN_RADIX, MIN_RADIX_F64, SortLineFn, SortShortLineFn};
use super::sorting_network::{self, MAX_NETWORK, Network, SIDE_BY_SIDE};
use super::{CpuContext, OpRoutine, Pointers, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::Result;
use ir::ops::{ArgReduce, Sort, TopK};
use ir::{DType, Type};
use smallvec::SmallVec;
use std::ops::Range;

/// Reads the sort key of an element.
type Key = unsafe fn(*const u8, usize) -> u64;

fn key(ty: &Type) -> Option<Key> {
    /// # Safety
    /// The address is valid for element `i`.
    unsafe fn read<T: Element>(p: *const u8, i: usize) -> u64 {
        // SAFETY: the address is valid for element `i`.
        unsafe { *p.cast::<T>().add(i) }.key()
    }
    by_dtype!(ty.dtype, T => read::<T> as Key)
}

/// A key and a position along the line.
type Entry = (u64, u32);

/// The minimum number of elements of a line for radix sort.
const LONG: usize = 2048;
/// The minimum number of bytes of a line for counting sort.
const MANY_BYTES: usize = 512;
/// The maximum number of elements of a line for insertion sort.
const FEW: usize = 20;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("sort.long", LONG, "elements of a line: from here keys are sorted byte by byte"),
    Threshold::new(
        "sort.share",
        SHARE,
        "elements of a line for each of the largest that is wanted: from here in one pass",
    ),
    Threshold::new(
        "sort.inserted",
        INSERTED,
        "the largest of a short line that are wanted: up to here kept in their order",
    ),
    Threshold::new("sort.bounded", BOUNDED, "elements of a line: from here the best of its lanes bound the largest"),
    Threshold::new("sort.bytes", MANY_BYTES, "bytes of a line: from here they are counted"),
    Threshold::new("sort.few", FEW, "elements of a line: up to here it is sorted by insertion"),
];

/// A key of at most four bytes in the high bits, and a position in the low bits.
type Packed = u64;

/// Reads the packed keys of a line. Arguments: operand, lines, line index, whether to sort in descending order, destination.
type Pack = unsafe fn(*const u8, &AxisLines, usize, bool, *mut Packed);

fn pack(ty: &Type) -> Option<Pack> {
    /// # Safety
    /// The operand is valid for the line, and there is room for its entries.
    unsafe fn read<T: Element>(p: *const u8, l: &AxisLines, line: usize, descending: bool, to: *mut Packed) {
        let p = p.cast::<T>().wrapping_add(line / l.inner * l.inner * l.n + line % l.inner);
        let flip = if descending { u32::MAX as u64 } else { 0 };
        for k in 0..l.n {
            // SAFETY: the operand is valid for the line, and there is room for its entries.
            unsafe { to.add(k).write((((*p.add(k * l.inner)).key() ^ flip) << 32) | k as u64) };
        }
    }
    if ty.dtype.size() > 4 {
        return None;
    }
    by_dtype!(ty.dtype, T => read::<T> as Pack)
}

/// Sorts packed keys by the given number of key bytes; `spare` has the same length.
fn packed_by_bytes<'a>(keys: &'a mut [Packed], spare: &'a mut [Packed], bytes: usize) -> &'a mut [Packed] {
    let differ = keys.iter().fold(0, |differ, k| differ | (k ^ keys[0])) >> 32;
    let (mut from, mut to) = (keys, spare);
    // A byte that all keys share needs no pass.
    for b in (0..bytes).filter(|b| (differ >> (8 * b)) & 255 != 0) {
        let digit = |k: Packed| (k >> (32 + 8 * b)) as usize & 255;
        let mut places = [0u32; 256];
        from.iter().for_each(|&k| places[digit(k)] += 1);
        let mut at = 0;
        for place in places.iter_mut() {
            (at, *place) = (at + *place, at);
        }
        for &k in from.iter() {
            let place = &mut places[digit(k)];
            to[*place as usize] = k;
            *place += 1;
        }
        (from, to) = (to, from);
    }
    from
}

/// Sorts entries by keys with the given number of bytes; `spare` has the same length.
/// The sort is stable, so positions are not compared.
fn by_bytes(entries: &mut [Entry], spare: &mut [Entry], bytes: usize) {
    let mut counts = [[0u32; 256]; 8];
    for e in entries.iter() {
        for (b, counts) in counts.iter_mut().enumerate().take(bytes) {
            counts[(e.0 >> (8 * b)) as usize & 255] += 1;
        }
    }
    let (mut from, mut to, mut moved) = (entries, spare, 0);
    for (b, counts) in counts.iter_mut().enumerate().take(bytes) {
        // A byte that all keys share needs no pass.
        if counts.iter().any(|&c| c as usize == from.len()) {
            continue;
        }
        let mut at = 0;
        for c in counts.iter_mut() {
            (at, *c) = (at + *c, at);
        }
        for e in from.iter() {
            let place = &mut counts[(e.0 >> (8 * b)) as usize & 255];
            to[*place as usize] = *e;
            *place += 1;
        }
        (from, to) = (to, from);
        moved += 1;
    }
    if moved % 2 == 1 {
        to.copy_from_slice(from);
    }
}

fn by_insertion(entries: &mut [Entry]) {
    for i in 1..entries.len() {
        let e = entries[i];
        let mut j = i;
        while j > 0 && entries[j - 1].0 > e.0 {
            entries[j] = entries[j - 1];
            j -= 1;
        }
        entries[j] = e;
    }
}

/// Sorts a line of bytes by counting.
///
/// # Safety
/// Operand and result are valid for the line; its elements are integers of one byte.
unsafe fn count_bytes(l: &AxisLines, base: usize, key: Key, descending: bool, from: *const u8, to: *mut u8) {
    let mut counts = [0u32; 256];
    // SAFETY: `from` is valid for the line of bytes that begins at `base`.
    (0..l.n).for_each(|k| counts[unsafe { *from.add(base + k * l.inner) } as usize] += 1);
    let all: [u8; 256] = std::array::from_fn(|i| i as u8);
    let mut order = all;
    // SAFETY: a byte is an element, and there are 256.
    order.sort_unstable_by_key(|&b| unsafe { key(all.as_ptr(), b as usize) });
    if descending {
        order.reverse();
    }
    let mut at = 0;
    for b in order {
        for _ in 0..counts[b as usize] {
            // SAFETY: there are as many as the line has.
            unsafe { *to.add(base + at * l.inner) = b };
            at += 1;
        }
    }
}

struct SortRoutine {
    lines: AxisLines,
    /// Whether elements are one-byte integers without other operands.
    bytes: bool,
    keys: SmallVec<[Key; 2]>,
    /// The element size of each operand.
    sizes: SmallVec<[usize; 4]>,
    descending: bool,
    /// The sorting network for short lines with one key.
    network: Option<Network>,
    /// The radix sort for longer lines without other operands, and the one for shorter lines.
    alone: Option<SortLineFn>,
    short: Option<SortShortLineFn>,
    /// The packing function for a single key of few bytes.
    pack: Option<Pack>,
    threads: usize,
}

pub(super) fn sort(op: &Sort, args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let lines = AxisLines::new(&args[0], op.axis);
    let keys = args[..op.num_keys].iter().map(key).collect::<Option<SmallVec<_>>>()?;
    if lines.n > u32::MAX as usize || keys.is_empty() {
        return None;
    }
    let sizes = args.iter().map(|t| t.dtype.size()).collect();
    let bytes = args.len() == 1 && matches!(args[0].dtype, DType::U8 | DType::I8);
    let network = if keys.len() == 1 { sorting_network::network(lines.n, args[0].dtype, machine.isa) } else { None };
    let least = if args[0].dtype == DType::F64 { MIN_RADIX_F64 } else { MIN_RADIX };
    let alone = if args.len() == 1 && lines.n >= least { radix::sort_line_fn(args[0].dtype) } else { None };
    let short = if args.len() == 1 { radix::sort_short_line_fn(args[0].dtype) } else { None };
    let pack = if keys.len() == 1 { pack(&args[0]) } else { None };
    let (descending, threads) = (op.descending, machine.threads);
    Some(Box::new(SortRoutine { lines, bytes, keys, sizes, descending, network, alone, short, pack, threads }))
}

/// The bytes of the entries of a line.
fn entries(n: usize) -> usize {
    (n * size_of::<Entry>()).next_multiple_of(64)
}

/// Returns the entries of a line in scratch.
///
/// # Safety
/// `scratch` is valid for [`entries`] and `p` for the line.
unsafe fn fill<'a>(
    scratch: *mut u8,
    lines: &AxisLines,
    line: usize,
    key: Key,
    p: *const u8,
    descending: bool,
) -> &'a mut [Entry] {
    let base = line / lines.inner * lines.inner * lines.n + line % lines.inner;
    // SAFETY: `scratch` is valid for the entries of a line and `p` for the line; every entry is written before the
    // slice is made.
    unsafe {
        let at = scratch.cast::<Entry>();
        let flip = if descending { u64::MAX } else { 0 };
        for k in 0..lines.n {
            let bits = key(p, base + k * lines.inner);
            at.add(k).write((bits ^ flip, k as u32));
        }
        std::slice::from_raw_parts_mut(at, lines.n)
    }
}

/// Copies an element.
///
/// # Safety
/// Element `i` is inside of `from`, element `j` inside of `to`, and both have `size` bytes.
#[inline(always)]
unsafe fn copy(size: usize, from: *const u8, i: usize, to: *mut u8, j: usize) {
    // SAFETY: both elements are inside of the operand.
    unsafe {
        match size {
            1 => *to.add(j) = *from.add(i),
            2 => *to.cast::<u16>().add(j) = *from.cast::<u16>().add(i),
            4 => *to.cast::<u32>().add(j) = *from.cast::<u32>().add(i),
            _ => *to.cast::<u64>().add(j) = *from.cast::<u64>().add(i),
        }
    }
}

impl SortRoutine {
    /// Sorts short lines.
    ///
    /// # Safety
    /// As for [`Routine::run`]; nothing else writes these lines.
    unsafe fn side_by_side(&self, network: &Network, lines: Range<usize>, args: &[*const u8], outs: &[*mut u8]) {
        let l = &self.lines;
        let mut room = [[0; SIDE_BY_SIDE]; MAX_NETWORK];
        for line in lines.clone().step_by(SIDE_BY_SIDE) {
            let count = SIDE_BY_SIDE.min(lines.end - line);
            // SAFETY: operand and results are valid for their types, nothing else accesses these lines, and places are
            // inside their line.
            unsafe {
                network.sort(args[0], l, line, count, self.descending, &mut room);
                for (i, &size) in self.sizes.iter().enumerate() {
                    for lane in 0..count {
                        let line = line + lane;
                        let base = line / l.inner * l.inner * l.n + line % l.inner;
                        for (k, entry) in room.iter().enumerate().take(l.n) {
                            let from = entry[lane] as u32 as usize;
                            copy(size, args[i], base + from * l.inner, outs[i], base + k * l.inner);
                        }
                    }
                }
            }
        }
    }
}

impl OpRoutine for SortRoutine {
    fn scratch_bytes(&self) -> usize {
        2 * entries(self.lines.n) * self.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let l = self.lines;
        let (args, outs, scratch) = (Pointers(args), Pointers(outs), SharedPtr(scratch));
        let work = l.outer * l.inner * l.n * 16;
        in_ranges(pool, l.outer * l.inner, work, &|range: Range<usize>, worker| {
            let (args, outs) = (args.get(), outs.get());
            if let Some(network) = &self.network {
                // SAFETY: lines are inside the operands and the range's own.
                return unsafe { self.side_by_side(network, range, args, outs) };
            }
            for line in range {
                let base = line / l.inner * l.inner * l.n + line % l.inner;
                // SAFETY: each worker has its own scratch; lines are inside the operands and the range's own.
                unsafe {
                    if self.bytes && l.n >= MANY_BYTES {
                        count_bytes(&l, base, self.keys[0], self.descending, args[0], outs[0]);
                        continue;
                    }
                    let at = scratch.at(2 * worker * entries(l.n));
                    if let Some(sort) = self.alone {
                        sort(args[0], outs[0], &l, line, self.descending, at);
                        continue;
                    }
                    if let Some(sort) = self.short
                        && sort(args[0], outs[0], &l, line, self.descending, at)
                    {
                        continue;
                    }
                    if let Some(pack) = self.pack {
                        let (keys, spare) = (at.cast::<Packed>(), at.add(entries(l.n)).cast::<Packed>());
                        pack(args[0], &l, line, self.descending, keys);
                        let mut order = std::slice::from_raw_parts_mut(keys, l.n);
                        if l.n >= LONG {
                            spare.write_bytes(0, l.n);
                            order = packed_by_bytes(order, std::slice::from_raw_parts_mut(spare, l.n), self.sizes[0]);
                        } else {
                            order.sort_unstable();
                        }
                        for (i, &size) in self.sizes.iter().enumerate() {
                            for (k, e) in order.iter().enumerate() {
                                copy(size, args[i], base + *e as u32 as usize * l.inner, outs[i], base + k * l.inner);
                            }
                        }
                        continue;
                    }
                    let order = fill(at, &l, line, self.keys[0], args[0], self.descending);
                    if self.keys.len() == 1 {
                        match l.n {
                            LONG.. => {
                                let spare = at.add(entries(l.n)).cast::<Entry>();
                                spare.write_bytes(0, l.n);
                                by_bytes(order, std::slice::from_raw_parts_mut(spare, l.n), self.sizes[0]);
                            }
                            ..=FEW => by_insertion(order),
                            _ => order.sort_unstable(),
                        }
                    } else {
                        order.sort_unstable_by(|a, b| {
                            let further = || {
                                self.keys.iter().zip(args).skip(1).map(|(key, p)| {
                                    let of = |e: &Entry| key(*p, base + e.1 as usize * l.inner);
                                    if self.descending { of(b).cmp(&of(a)) } else { of(a).cmp(&of(b)) }
                                })
                            };
                            let by_keys = std::iter::once(a.0.cmp(&b.0)).chain(further()).find(|o| o.is_ne());
                            by_keys.unwrap_or(a.1.cmp(&b.1))
                        });
                    }
                    for (i, &size) in self.sizes.iter().enumerate() {
                        for (k, e) in order.iter().enumerate() {
                            copy(size, args[i], base + e.1 as usize * l.inner, outs[i], base + k * l.inner);
                        }
                    }
                }
            }
        });
        Ok(())
    }
}

/// Writes the k largest elements of a line, unordered, to the beginning of the entries and returns their number. Arguments:
/// operand, offset of the line, lines, k, entries.
type Select = unsafe fn(*const u8, usize, &AxisLines, usize, *mut Entry) -> usize;

/// The number of adjacent elements that are compared with the bound at a time.
const CHUNK: usize = 32;

/// The number of lanes whose maxima give a first bound: the k-th largest lane maximum is a lower bound of the k-th largest element.
const PER_LANE: usize = 64;
/// The minimum number of elements of a line for which that pass is worth its cost.
const BOUNDED: usize = 4 * PER_LANE;

/// Returns the k-th largest lane maximum, with its key.
///
/// # Safety
/// `x` is valid for `n ≥ PER_LANE` elements; there are more lanes than `k`.
#[inline(always)]
unsafe fn best_of_lanes<T: Element>(x: *const T, n: usize, k: usize) -> (u64, T) {
    // SAFETY: elements `i..i + PER_LANE` are inside of the `n` for which `x` is valid.
    let chunk = |i: usize| unsafe { &*x.add(i).cast::<[T; PER_LANE]>() };
    let mut best = *chunk(0);
    for i in (PER_LANE..=n - PER_LANE).step_by(PER_LANE) {
        for (best, &e) in best.iter_mut().zip(chunk(i)) {
            *best = if e.beats(*best, true) { e } else { *best };
        }
    }
    let mut entries: [Entry; PER_LANE] = std::array::from_fn(|i| (!best[i].key(), i as u32));
    let (_, last, _) = entries.select_nth_unstable(k - 1);
    (last.0, best[last.1 as usize])
}

/// Returns whether an element of a chunk passes the bound, or equals it if `equals`. All elements are compared, which is faster
/// than an early exit. WebAssembly uses the early exit, because LLVM cannot compile the other loop for 16-bit numbers there.
#[inline(always)]
fn any_beats<T: Element>(chunk: &[T; CHUNK], best: T, equals: bool) -> bool {
    let passes = |e: &T| e.beats(best, true) | (equals & !best.beats(*e, true));
    match cfg!(target_arch = "wasm32") {
        true => chunk.iter().any(passes),
        false => chunk.iter().fold(false, |any, e| any | passes(e)),
    }
}

/// Finds the few largest elements of a line, in order, by inserting each one that is larger than the last of them.
///
/// # Safety
/// `x` is valid for a line of at least `k > 0` elements, `room` for `k` entries.
#[inline(always)]
unsafe fn insert<T: Element>(x: *const T, l: &AxisLines, k: usize, room: *mut Entry) {
    // SAFETY: `x` is valid for a line of at least `k` elements, and `room` for `k` entries.
    unsafe {
        let mut bound = u64::MAX;
        for i in 0..l.n {
            let key = !(*x.add(i * l.inner)).key();
            // Equal keys come in order of their positions, so a later one never replaces an earlier one.
            if i >= k && key >= bound {
                continue;
            }
            let mut at = i.min(k - 1);
            while at > 0 && (*room.add(at - 1)).0 > key {
                *room.add(at) = *room.add(at - 1);
                at -= 1;
            }
            room.add(at).write((key, i as u32));
            bound = (*room.add(i.min(k - 1))).0;
        }
    }
}

/// Collects candidates that pass the bound, and reduces them to the k best whenever there are twice as many: few elements pass.
///
/// # Safety
/// `p` is valid for the operand; `room` for entries of a line of `n ≥ 4 k` elements, or of `k` where they are inserted.
#[inline(always)]
unsafe fn select<T: Element>(p: *const u8, base: usize, l: &AxisLines, k: usize, room: *mut Entry) -> usize {
    if k == 0 {
        return 0;
    }
    let most = 2 * k + 16;
    let (mut count, mut bound) = (0, None);
    let x = p.cast::<T>().wrapping_add(base);
    // The first bound, which equal elements pass.
    let mut equals = l.inner == 1 && l.n >= BOUNDED && k <= PER_LANE / 2;
    if equals {
        // SAFETY: elements of a line are adjacent.
        bound = Some(unsafe { best_of_lanes(x, l.n, k) });
    }
    if !equals && k <= INSERTED {
        // SAFETY: `x` is the line at `base`, for which `p` is valid, and `room` has room for `k` entries.
        unsafe { insert(x, l, k, room) };
        return k;
    }
    let mut i = 0;
    while i < l.n {
        // SAFETY: inside the line; never more than `most` entries, which the room holds.
        unsafe {
            // Skip whole chunks in which no element passes.
            if l.inner == 1
                && i % CHUNK == 0
                && i + CHUNK <= l.n
                && let Some((_, best)) = bound
                && !any_beats(&*x.add(i).cast::<[T; CHUNK]>(), best, equals)
            {
                i += CHUNK;
                continue;
            }
            // Equal keys come in order of their positions, so a later one never replaces an earlier one.
            let key = !(*x.add(i * l.inner)).key();
            if bound.is_none_or(|(b, _)| key < b || equals && key == b) {
                room.add(count).write((key, i as u32));
                count += 1;
                if count == most {
                    let all = std::slice::from_raw_parts_mut(room, count);
                    all.select_nth_unstable(k - 1);
                    (count, bound) = (k, Some((all[k - 1].0, *x.add(all[k - 1].1 as usize * l.inner))));
                    equals = false;
                }
            }
        }
        i += 1;
    }
    // SAFETY: as above.
    let all = unsafe { std::slice::from_raw_parts_mut(room, count) };
    if count > k {
        all.select_nth_unstable(k - 1);
    }
    k.min(count)
}

/// Returns [`select`] compiled for the machine's instruction set.
fn select_vectorized<T: Element>(isa: Isa) -> Select {
    unsafe fn plain<T: Element>(p: *const u8, base: usize, l: &AxisLines, k: usize, room: *mut Entry) -> usize {
        // SAFETY: `select` has the contract of this function, and gets its arguments unchanged.
        unsafe { select::<T>(p, base, l, k, room) }
    }
    #[cfg(target_arch = "x86_64")]
    {
        /// # Safety
        /// As for `select`, and the machine has the target features.
        #[target_feature(enable = "avx2")]
        unsafe fn wide<T: Element>(p: *const u8, base: usize, l: &AxisLines, k: usize, room: *mut Entry) -> usize {
            // SAFETY: `select` has the contract of this function, and gets its arguments unchanged.
            unsafe { select::<T>(p, base, l, k, room) }
        }
        if isa != Isa::Portable {
            return wide::<T>;
        }
    }
    let _ = isa;
    plain::<T>
}

/// The maximum k for which elements are kept in order by insertion.
const INSERTED: usize = 8;

/// The ratio of line length to k from which the line is scanned once with a bound.
const SHARE: usize = 24;

/// The routine that finds the largest element of each line: its position, then its value.
struct ArgMaxOutput {
    lines: AxisLines,
    size: usize,
    place: Box<dyn OpRoutine>,
}

impl OpRoutine for ArgMaxOutput {
    fn scratch_bytes(&self) -> usize {
        self.place.scratch_bytes()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let l = self.lines;
        // SAFETY: `Routine::run` requires operand and results to be valid for their types, and scratch for
        // `scratch_bytes`; every line has an element, and places are inside their line.
        unsafe { self.place.run(pool, args, &outs[1..], scratch)? };
        let (lines, args, outs) = (l.outer * l.inner, Pointers(args), Pointers(outs));
        in_ranges(pool, lines, lines * 16, &|range: Range<usize>, _| {
            let (x, outs) = (args.get()[0], outs.get());
            for line in range {
                // SAFETY: as above; these lines' results are this range's own.
                unsafe {
                    let place = *outs[1].cast::<i32>().add(line) as usize;
                    copy(self.size, x, (line / l.inner * l.n + place) * l.inner + line % l.inner, outs[0], line);
                }
            }
        });
        Ok(())
    }
}

struct Largest {
    lines: AxisLines,
    k: usize,
    key: Key,
    select: Select,
    /// The sorting network for short lines.
    network: Option<Network>,
    size: usize,
    threads: usize,
}

pub(super) fn top_k(op: &TopK, args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let lines = AxisLines::new(&args[0], op.axis);
    if lines.n > i32::MAX as usize {
        return None;
    }
    let (key, size) = (key(&args[0])?, args[0].dtype.size());
    if op.k == 1 {
        let place = ArgReduce { axis: op.axis, max: true, index: DType::I32 };
        return Some(Box::new(ArgMaxOutput { lines, size, place: arg_reduce(&place, args, machine)? }));
    }
    let select = by_dtype!(args[0].dtype, T => select_vectorized::<T>(machine.isa))?;
    let network = sorting_network::network(lines.n, args[0].dtype, machine.isa);
    Some(Box::new(Largest { lines, k: op.k, key, select, network, size, threads: machine.threads }))
}

impl Largest {
    /// Processes short lines.
    ///
    /// # Safety
    /// As for [`Routine::run`]; nothing else writes these lines.
    unsafe fn side_by_side(&self, network: &Network, lines: Range<usize>, x: *const u8, outs: &[*mut u8]) {
        let (l, k) = (&self.lines, self.k);
        let mut room = [[0; SIDE_BY_SIDE]; MAX_NETWORK];
        for line in lines.clone().step_by(SIDE_BY_SIDE) {
            let count = SIDE_BY_SIDE.min(lines.end - line);
            // SAFETY: operand and results are valid for their types, nothing else accesses these lines, and places are
            // inside their line.
            unsafe {
                network.sort(x, l, line, count, true, &mut room);
                for lane in 0..count {
                    let (outer, within) = ((line + lane) / l.inner, (line + lane) % l.inner);
                    for (i, entry) in room.iter().enumerate().take(k) {
                        let place = entry[lane] as u32 as usize;
                        let to = (outer * k + i) * l.inner + within;
                        copy(self.size, x, (outer * l.n + place) * l.inner + within, outs[0], to);
                        *outs[1].cast::<i32>().add(to) = place as i32;
                    }
                }
            }
        }
    }
}

impl OpRoutine for Largest {
    fn scratch_bytes(&self) -> usize {
        entries(self.lines.n) * self.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (l, k) = (self.lines, self.k);
        let (args, outs, scratch) = (Pointers(args), Pointers(outs), SharedPtr(scratch));
        in_ranges(pool, l.outer * l.inner, l.outer * l.inner * l.n * 4, &|range: Range<usize>, worker| {
            let (args, outs) = (args.get(), outs.get());
            if let Some(network) = &self.network {
                // SAFETY: lines are inside the operand and the range's own.
                return unsafe { self.side_by_side(network, range, args[0], outs) };
            }
            for line in range {
                let (outer, within) = (line / l.inner, line % l.inner);
                // SAFETY: each worker has its own scratch; lines are inside the operand and the range's own.
                unsafe {
                    let room = scratch.at(worker * entries(l.n));
                    let best: &mut [Entry] = match k * SHARE <= l.n || k <= INSERTED {
                        true => {
                            let room = room.cast::<Entry>();
                            let count = (self.select)(args[0], outer * l.n * l.inner + within, &l, k, room);
                            std::slice::from_raw_parts_mut(room, count)
                        }
                        false => {
                            let order = fill(room, &l, line, self.key, args[0], true);
                            if 0 < k && k < l.n {
                                order.select_nth_unstable(k - 1);
                            }
                            &mut order[..k]
                        }
                    };
                    best.sort_unstable();
                    for (i, e) in best.iter().enumerate() {
                        let from = (outer * l.n + e.1 as usize) * l.inner + within;
                        let to = (outer * k + i) * l.inner + within;
                        copy(self.size, args[0], from, outs[0], to);
                        *outs[1].cast::<i32>().add(to) = e.1 as i32;
                    }
                }
            }
        });
        Ok(())
    }
}
