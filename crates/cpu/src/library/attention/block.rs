//! A block of queries and a block of keys: which keys the queries see, their scores, and the products with the scores.

use super::lanes::{self, AttentionKernels, MAX_WIDTH, PerLane, Scores};
use super::problem::{AttentionProblem, Mask, float, integer};
use crate::gemm::Isa;
use crate::gemm::kernel::{HasKernels, Kernels, Tile};
use ir::DType;
use std::ops::{Range, RangeInclusive};

/// The maximum number of keys in a block.
pub(super) const KEYS: usize = 128;

/// How a problem is split into blocks, and the kernels for them.
pub(super) struct BlockPlan {
    pub(super) problem: AttentionProblem,
    pub(super) loops: &'static AttentionKernels,
    kernels: &'static Kernels<f32>,
    /// The number of queries in a block.
    pub(super) width: usize,
    /// The number of keys in a block.
    pub(super) keys: usize,
}

/// A block of queries: consecutive rows of one key head, which may belong to several query heads.
pub(super) struct QueryBlock {
    pub(super) batch: usize,
    /// The combined index of batch and key head.
    pub(super) head: usize,
    pub(super) row0: usize,
    pub(super) rows: usize,
    /// The range of keys that each query may see.
    lo: PerLane,
    hi: PerLane,
    position: PerLane,
    slope: PerLane,
    segment: [i64; MAX_WIDTH],
    /// The segment of all queries, if they have one in common.
    common: Option<i64>,
    /// The keys that at least one query sees.
    pub(super) keys: Range<usize>,
    /// The keys that all queries see.
    all: Range<usize>,
}

impl BlockPlan {
    pub(super) fn new(problem: AttentionProblem, panels: usize, keys: usize, isa: Isa) -> BlockPlan {
        let kernels = f32::kernels(isa, ir::DType::F32);
        let needed = problem.rows().div_ceil(kernels.nr).max(1);
        let width = (panels.min(needed) * kernels.nr).min(MAX_WIDTH);
        BlockPlan { problem, loops: lanes::kernels(isa), kernels, width, keys }
    }

    /// The number of query blocks of a key head.
    pub(super) fn query_blocks(&self) -> usize {
        self.problem.rows().div_ceil(self.width)
    }

    /// Returns the blocks of keys that overlap a range.
    pub(super) fn key_blocks(&self, keys: &Range<usize>) -> Range<usize> {
        if keys.is_empty() { 0..0 } else { keys.start / self.keys..keys.end.div_ceil(self.keys) }
    }

    /// Returns a block of queries.
    ///
    /// # Safety
    /// The operands are those of the problem.
    pub(super) unsafe fn queries(&self, args: &[*const u8], head: usize, block: usize) -> QueryBlock {
        let p = &self.problem;
        let (batch, kv) = (head / p.kv_heads, head % p.kv_heads);
        let row0 = block * self.width;
        let rows = (p.rows() - row0).min(self.width);
        // SAFETY: `args` are the operands of the problem, so each is valid for its type, and `batch` is below the batch
        // size.
        let (first, length) = unsafe { (p.first_position(args, batch), p.length(args, batch)) };
        let mut x = QueryBlock {
            batch,
            head,
            row0,
            rows,
            lo: PerLane::new(0.0),
            hi: PerLane::new(0.0),
            position: PerLane::new(0.0),
            slope: PerLane::new(0.0),
            segment: [0; MAX_WIDTH],
            common: None,
            keys: 0..0,
            all: 0..p.tk,
        };
        let (mut start, mut end) = (p.tk, 0);
        for i in 0..rows {
            let t = (row0 + i) % p.tq;
            let position = first + t as i64;
            let (lo, hi) = p.interval(position, length);
            let (lo, hi) = (lo as usize, hi as usize);
            (x.lo.0[i], x.hi.0[i], x.position.0[i]) = (lo as f32, hi as f32, position as f32);
            if lo < hi {
                (start, end) = (start.min(lo), end.max(hi));
            }
            x.all = x.all.start.max(lo)..x.all.end.min(hi);
            // SAFETY: `args` are the operands of the problem, so each is valid for its type; batch, head and row are
            // inside its shape.
            unsafe {
                if let Some(s) = &p.slopes {
                    let q_heads = p.kv_heads * p.group;
                    let q_head = kv * p.group + (row0 + i) / p.tq;
                    x.slope.0[i] = float(args[s.arg], s.dtype, s.entry(batch) * q_heads + q_head);
                }
                if let Some((s, _)) = &p.segments {
                    x.segment[i] = integer(args[s.arg], s.dtype, s.entry(batch) * p.tq + t);
                }
            }
        }
        if start < end {
            x.keys = start..end;
        }
        if let Some((_, of)) = &p.segments {
            let own = &x.segment[..rows];
            let (least, most) = own.iter().fold((i64::MAX, i64::MIN), |(a, b), &s| (a.min(s), b.max(s)));
            x.common = (least == most).then_some(least);
            // SAFETY: segments are an operand of the problem, valid for `tk` integers for each entry of the batch.
            x.keys =
                unsafe { trim_keys_by_segment(args[of.arg], of.dtype, of.entry(batch) * p.tk, x.keys, least..=most) };
        }
        // Lanes after the last row see no keys.
        if rows < self.width {
            x.all = 0..0;
        }
        x
    }

    /// Returns elements of a row-major operand as f32: in place, or upcast into `buffer`.
    ///
    /// # Safety
    /// `base` is valid for elements `first..first + n`, and `buffer` for `n` f32 if the problem's dtype is narrower.
    pub(super) unsafe fn upcast_rows(&self, base: *const u8, first: usize, n: usize, buffer: *mut f32) -> *const f32 {
        // SAFETY: `base` is valid for elements `first..first + n` of the problem's dtype, and `buffer` for `n` f32
        // where that is not f32.
        unsafe {
            match self.problem.dtype {
                DType::BF16 => (self.loops.from_bf16)(base.cast::<half::bf16>().add(first), buffer, n),
                DType::F16 => (self.loops.from_f16)(base.cast::<half::f16>().add(first), buffer, n),
                _ => return base.cast::<f32>().add(first),
            }
        }
        buffer
    }

    /// Stores f32 elements in the problem's dtype.
    ///
    /// # Safety
    /// `from` is valid for `n` elements, and `base` for elements `first..first + n` of the problem's dtype.
    pub(super) unsafe fn store_rounded(&self, from: *const f32, base: *mut u8, first: usize, n: usize) {
        use half::slice::HalfFloatSliceExt;
        // SAFETY: `from` is valid for `n` elements, and `base` for elements `first..first + n` of the problem's dtype.
        unsafe {
            let from = std::slice::from_raw_parts(from, n);
            match self.problem.dtype {
                DType::BF16 => {
                    let to = std::slice::from_raw_parts_mut(base.cast::<half::bf16>().add(first), n);
                    to.convert_from_f32_slice(from);
                }
                DType::F16 => {
                    let to = std::slice::from_raw_parts_mut(base.cast::<half::f16>().add(first), n);
                    to.convert_from_f32_slice(from);
                }
                _ => std::ptr::copy_nonoverlapping(from.as_ptr(), base.cast::<f32>().add(first), n),
            }
        }
    }

    /// Returns whether results are written directly, without rounding.
    pub(super) fn is_f32(&self) -> bool {
        self.problem.dtype == DType::F32
    }

    /// Transposes rows of queries to `[d, width]`, with zeros after the last.
    ///
    /// # Safety
    /// `src` is valid for `rows · d` elements, `dst` for `width · d`.
    pub(super) unsafe fn transposed(&self, src: *const f32, rows: usize, d: usize, dst: *mut f32) {
        // SAFETY: `src` is valid for `rows · d` elements, `dst` for `width · d`.
        unsafe {
            if rows < self.width {
                std::ptr::write_bytes(dst, 0, self.width * d);
            }
            (self.loops.transpose)(dst, self.width, src, d, rows, d);
        }
    }

    /// Computes `s[k, q] = alpha · Σ_d a[k, d]·b[d, q]`, the scores of keys and queries.
    ///
    /// # Safety
    /// `a` is valid for `s.keys · d` elements, `b` for `d · width`, `s` for its size.
    pub(super) unsafe fn dot_block(&self, a: *const f32, b: *const f32, d: usize, s: Scores, alpha: f32) {
        let Kernels { mr, nr, .. } = *self.kernels;
        // SAFETY: the tiles stay inside the operands.
        unsafe {
            for w in (0..s.width).step_by(nr) {
                for k in (0..s.keys).step_by(mr) {
                    let rows = mr.min(s.keys - k);
                    self.kernels.get(rows, nr, false)(&Tile {
                        k: d,
                        a: a.add(k * d),
                        a_row: d as isize,
                        a_k: 1,
                        b: b.add(w),
                        b_k: s.width as isize,
                        b_padded: true,
                        ahead: a.add(k * d),
                        c: s.at.add(k * s.width + w),
                        c_row: s.width as isize,
                        cols: nr,
                        alpha,
                        ..Tile::EMPTY
                    });
                }
            }
        }
    }

    /// Computes `out[d, q] (+)= alpha · Σ_k a[k, d]·s[k, q]`, the weighted sums over keys for each query.
    ///
    /// # Safety
    /// As for [`Blocks::meet`], with `out` valid for `d · width`.
    pub(super) unsafe fn gather(&self, a: *const f32, d: usize, s: Scores, out: *mut f32, alpha: f32, add: bool) {
        let Kernels { mr, nr, .. } = *self.kernels;
        // SAFETY: the tiles stay inside the operands.
        unsafe {
            for w in (0..s.width).step_by(nr) {
                for i in (0..d).step_by(mr) {
                    let rows = mr.min(d - i);
                    self.kernels.get(rows, nr, true)(&Tile {
                        k: s.keys,
                        a: a.add(i),
                        a_k: d as isize,
                        b: s.at.add(w),
                        b_k: s.width as isize,
                        b_padded: true,
                        ahead: a.add(i),
                        c: out.add(i * s.width + w),
                        c_row: s.width as isize,
                        cols: nr,
                        alpha,
                        add,
                        ..Tile::EMPTY
                    });
                }
            }
        }
    }

    /// Computes `out[k, d] += alpha · Σ_q s[k, q]·x[q, d]` over the first `rows` queries, the sums over queries for each key.
    ///
    /// # Safety
    /// As for [`Blocks::meet`], with `x` valid for `rows · d` and `out` for `s.keys · d`.
    pub(super) unsafe fn accumulate_block(
        &self,
        s: Scores,
        rows: usize,
        x: *const f32,
        d: usize,
        out: *mut f32,
        alpha: f32,
    ) {
        let Kernels { mr, nr, .. } = *self.kernels;
        // SAFETY: the tiles stay inside the operands.
        unsafe {
            for j in (0..d).step_by(nr) {
                for k in (0..s.keys).step_by(mr) {
                    let (tile_rows, cols) = (mr.min(s.keys - k), nr.min(d - j));
                    self.kernels.get(tile_rows, cols, false)(&Tile {
                        k: rows,
                        a: s.at.add(k * s.width),
                        a_row: s.width as isize,
                        a_k: 1,
                        b: x.add(j),
                        b_k: d as isize,
                        ahead: x.add(j),
                        c: out.add(k * d + j),
                        c_row: d as isize,
                        cols,
                        alpha,
                        add: true,
                        ..Tile::EMPTY
                    });
                }
            }
        }
    }

    /// Computes scores with soft cap, slopes and masks. `keep` receives the soft cap's `tanh` unless it is null.
    ///
    /// # Safety
    /// As for [`Blocks::meet`]; the operands are those of the problem.
    pub(super) unsafe fn scores(
        &self,
        args: &[*const u8],
        q: &QueryBlock,
        (k, qt): (*const f32, *const f32),
        s: Scores,
        keep: *mut f32,
    ) {
        let p = &self.problem;
        // SAFETY: `k` and `qt` are valid for `s.keys · d` and `d · width` elements, `s` for its size, `keep` for the
        // same or null, and `args` are the operands of the problem.
        unsafe {
            self.dot_block(k, qt, p.d, s, p.scale);
            if let Some(c) = p.softcap {
                (self.loops.cap)(s, c, keep);
            }
            if p.slopes.is_some() {
                (self.loops.alibi)(s, &q.slope, &q.position);
            }
            if let Some(m) = &p.mask {
                self.mask(args[m.arg], m, q, s);
            }
            if let Some((_, of)) = &p.segments {
                let base = of.entry(q.batch) * p.tk;
                let at = |i: usize| integer(args[of.arg], of.dtype, base + s.first + i);
                let hides = q.common.is_none_or(|c| (0..s.keys).any(|i| at(i) != c));
                for i in 0..if hides { s.keys } else { 0 } {
                    let segment = at(i);
                    for (j, x) in std::slice::from_raw_parts_mut(s.at.add(i * s.width), s.width).iter_mut().enumerate()
                    {
                        *x = if q.segment[j] == segment { *x } else { f32::NEG_INFINITY };
                    }
                }
            }
            if s.first < q.all.start || s.first + s.keys > q.all.end {
                (self.loops.hide)(s, &q.lo, &q.hi);
            }
        }
    }

    /// # Safety
    /// The mask at `at` is an operand of the problem, and `s` is valid for its size.
    unsafe fn mask(&self, at: *const u8, m: &Mask, q: &QueryBlock, s: Scores) {
        let p = &self.problem;
        let base = m.batch_offset(q.batch);
        for i in 0..q.rows {
            let row = q.row0 + i;
            let head = q.head % p.kv_heads * p.group + row / p.tq;
            let line = base + head * m.head + row % p.tq * m.query;
            for k in 0..s.keys {
                let from = line + (s.first + k) * m.key;
                // SAFETY: the element is inside the mask and the block.
                unsafe {
                    let x = s.at.add(k * s.width + i);
                    if m.dtype == DType::Bool {
                        *x = if *at.add(from) != 0 { *x } else { f32::NEG_INFINITY };
                    } else {
                        *x += float(at, m.dtype, from);
                    }
                }
            }
        }
    }
}

/// Removes keys at both ends whose segments are outside a range,
/// so that blocks of packed sequences only process their own keys.
///
/// # Safety
/// `segments` is valid for elements of an integer `dtype` at `base + keys`.
unsafe fn trim_keys_by_segment(
    segments: *const u8,
    dtype: DType,
    base: usize,
    keys: Range<usize>,
    wanted: RangeInclusive<i64>,
) -> Range<usize> {
    // SAFETY: `segments` is valid for integers of `dtype` at `base + keys`.
    let met = |k: &usize| wanted.contains(&unsafe { integer(segments, dtype, base + k) });
    match keys.clone().find(met) {
        Some(first) => first..keys.rev().find(met).map_or(first, |last| last + 1),
        None => 0..0,
    }
}

/// Allocates offsets in scratch: pieces of f32, each at a multiple of 64 bytes.
#[derive(Default)]
pub(super) struct ScratchLayout(usize);

impl ScratchLayout {
    /// Returns the offset of a new piece of `n` f32.
    pub(super) fn take(&mut self, n: usize) -> usize {
        let at = self.0;
        self.0 += n.next_multiple_of(16);
        at
    }

    /// Returns the total size.
    pub(super) fn floats(&self) -> usize {
        self.0
    }
}

/// Returns the `i`-th block of `n` in an order that balances the work when early blocks are cheaper than late ones.
pub(super) fn balanced_block(i: usize, n: usize) -> usize {
    if i.is_multiple_of(2) { i / 2 } else { n - 1 - i / 2 }
}
