//! A plane of the input with its padding, stored so that the windows of adjacent positions are adjacent.
//!
//! Along an axis, position `a` under window element `b` uses element `a·step + b·hop` of the padded line. Elements are split into
//! `step` phases by their remainder, so element `b` of the windows of all positions is a run:
//! from `b·hop / step` on in phase `b·hop % step`.

use super::super::memcpy::copy;
use super::im2col::{fill, spread_copy};
use crate::gemm::Isa;

/// The maximum number of elements of a line for which all masks are kept.
#[cfg(target_arch = "x86_64")]
const MASKED: usize = 256;
/// The maximum number of phases of a line.
pub(super) const STEPS: usize = 8;
/// The maximum number of phases that are separated by shuffles, and the number of lanes of a vector.
#[cfg(target_arch = "x86_64")]
const SHUFFLED: usize = 4;
#[cfg(target_arch = "x86_64")]
const LANES: usize = 16;

/// One axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) base: usize,
    pub(super) low: i64,
    /// The number of elements of the padded line from one position to the next, and from one window element to the next.
    pub(super) step: usize,
    pub(super) hop: usize,
    /// The number of positions, and of window elements.
    pub(super) along: usize,
    pub(super) across: usize,
}

impl Line {
    /// An axis of size one, for missing axes.
    pub(super) const UNIT: Line = Line { base: 1, low: 0, step: 1, hop: 1, along: 1, across: 1 };

    /// The number of elements of the padded line.
    pub(super) fn padded(&self) -> usize {
        (self.along - 1) * self.step + (self.across - 1) * self.hop + 1
    }

    /// The number of elements of each of its phases.
    fn part(&self) -> usize {
        self.padded().div_ceil(self.step)
    }

    /// Returns whether some window element uses a phase.
    fn is_used(&self, part: usize) -> bool {
        (0..self.across).any(|b| b * self.hop % self.step == part)
    }

    /// Returns whether nothing is padded, so that windows can be read from the input in place.
    pub(super) fn is_unpadded(&self) -> bool {
        self.low == 0 && self.padded() <= self.base
    }
}

/// A row of the padded plane that windows use, its phase, and its line in the phase.
#[derive(Clone, Copy, Debug)]
struct Row {
    at: usize,
    part: usize,
    line: usize,
}

/// The planes of all features that are read together, for some positions.
#[derive(Clone, Debug)]
pub(super) struct PaddedPlanes {
    rows: Line,
    cols: Line,
    /// The number of written elements of a line of a phase; the line stride, the phase stride, and the feature stride.
    filled: usize,
    pub(super) width: usize,
    part: usize,
    pub(super) plane: usize,
    /// The phases of a line that windows use, and the rows that they use. They are precomputed because a division per row would
    /// take longer than a short row.
    met: Vec<bool>,
    written: Vec<Row>,
    /// For each of three or four phases: the lanes selected from the first two vectors, then from those and the next.
    #[cfg(target_arch = "x86_64")]
    lanes: Vec<[[i32; LANES]; SHUFFLED - 1]>,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 ask"))]
    isa: Isa,
}

/// Returns the shuffle indices for a phase. Lane `k` of its vector is element `part + k·step` of the concatenated vectors: its
/// index within the first two, then a selection between the previous result and the next vector.
#[cfg(target_arch = "x86_64")]
fn shuffle_indices(part: usize, step: usize) -> [[i32; LANES]; SHUFFLED - 1] {
    let lane = |i: usize, k: usize| {
        let (at, next) = (part + k * step, (i + 1) * LANES);
        match i {
            0 => at % (2 * LANES),
            _ if at >= next => LANES + (at - next) % LANES,
            _ => k,
        }
    };
    std::array::from_fn(|i| std::array::from_fn(|k| lane(i, k) as i32))
}

impl PaddedPlanes {
    pub(super) fn new(rows: Line, cols: Line, isa: Isa) -> PaddedPlanes {
        PaddedPlanes::spaced(rows, cols, cols.part(), isa)
    }

    /// Returns planes whose lines are aligned to cache lines, so that fewer vectors cross two of them.
    pub(super) fn aligned(rows: Line, cols: Line, isa: Isa) -> PaddedPlanes {
        PaddedPlanes::spaced(rows, cols, cols.part().next_multiple_of(16), isa)
    }

    fn spaced(rows: Line, cols: Line, width: usize, isa: Isa) -> PaddedPlanes {
        let height = rows.part();
        let part = width * height;
        let plane = rows.step * cols.step * part;
        // Planes with a power-of-two stride would map to few sets of the cache.
        let plane = if plane.is_multiple_of(256) { plane + 16 } else { plane };
        let met = (0..cols.step).map(|p| cols.is_used(p)).collect();
        let row = |at: usize| Row { at, part: at % rows.step * cols.step * part, line: at / rows.step * width };
        let written = (0..rows.padded()).filter(|r| rows.is_used(r % rows.step)).map(row).collect();
        #[cfg(target_arch = "x86_64")]
        let lanes = match cols.step {
            3..=SHUFFLED => (0..cols.step).map(|p| shuffle_indices(p, cols.step)).collect(),
            _ => vec![],
        };
        PaddedPlanes {
            rows,
            cols,
            filled: cols.part(),
            width,
            part,
            plane,
            met,
            written,
            #[cfg(target_arch = "x86_64")]
            lanes,
            isa,
        }
    }

    /// Returns the offset of a window element from the first element of the first phase.
    pub(super) fn tap(&self, i: usize, j: usize) -> usize {
        let (i, j) = (i * self.rows.hop, j * self.cols.hop);
        let part = i % self.rows.step * self.cols.step + j % self.cols.step;
        part * self.part + i / self.rows.step * self.width + j / self.cols.step
    }

    /// Writes a plane whose first position is `at`.
    ///
    /// # Safety
    /// `x` is a plane of the input, and `to` has room for one.
    pub(super) unsafe fn write(&self, x: *const f32, at: (usize, usize), to: *mut f32) {
        /// # Safety
        /// `x` is a plane of the input, and `to` has room for a padded one.
        #[inline(always)]
        unsafe fn all(planes: &PaddedPlanes, x: *const f32, at: (usize, usize), to: *mut f32) {
            // SAFETY: `x` is a plane of the input and `to` has room for a padded one; `lines` gives places that are
            // inside both. A step that is known when this is compiled makes vectors of the copy.
            unsafe {
                planes.lines(at, to, |from, to, n| match planes.cols.step {
                    1 => copy(x.wrapping_offset(from), to, n),
                    2 => spread_copy(x.wrapping_offset(from), 2, to, n),
                    step => spread_copy(x.wrapping_offset(from), step, to, n),
                });
            }
        }
        #[cfg(target_arch = "x86_64")]
        {
            /// # Safety
            /// As for `all`, and the machine has the target features.
            #[target_feature(enable = "avx2")]
            unsafe fn wide(planes: &PaddedPlanes, x: *const f32, at: (usize, usize), to: *mut f32) {
                // SAFETY: `all` has the contract of this function, and gets its arguments unchanged.
                unsafe { all(planes, x, at, to) }
            }
            // SAFETY: `x` is a plane of the input, `to` has room for a padded one, and the machine has the instruction
            // set.
            unsafe {
                if self.isa == Isa::Avx512 && self.cols.step <= 2 && self.filled <= MASKED {
                    return self.write_masked(x, at, to);
                }
                if self.isa == Isa::Avx512 && self.filled <= MASKED && !self.lanes.is_empty() {
                    return self.write_shuffled(x, at, to);
                }
                if self.isa != Isa::Portable && self.cols.step == 1 && self.filled <= MASKED {
                    return self.write_vectors(x, at, to);
                }
                if self.isa != Isa::Portable {
                    return wide(self, x, at, to);
                }
            }
        }
        // SAFETY: `x` is a plane of the input, and `to` has room for a padded one.
        unsafe { all(self, x, at, to) }
    }

    /// Writes a plane with masked vectors;
    /// the masks of lanes outside of the input are the same for all lines. For steps of one or two.
    ///
    /// # Safety
    /// As for [`Planes::write`]; the machine has AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
    unsafe fn write_masked(&self, x: *const f32, (row, col): (usize, usize), to: *mut f32) {
        use std::arch::x86_64::*;
        let (rows, cols) = (&self.rows, &self.cols);
        let (down, step) = (rows.step, cols.step);
        let first = (row * down) as i64 - rows.low;
        let left = (col * step) as i64 - cols.low;
        // The lanes of a vector starting at `place` of the line that have an element of the input.
        let inside = |place: i64| -> __mmask16 {
            let begin = (-place).clamp(0, LANES as i64) as u32;
            let end = (cols.base as i64 - place).clamp(begin as i64, LANES as i64) as u32;
            (((1u32 << end) - 1) & !((1u32 << begin) - 1)) as __mmask16
        };
        let vectors = self.filled.div_ceil(LANES);
        let mut reads = [[0; 2]; MASKED / LANES];
        let mut writes = [0; MASKED / LANES];
        for v in 0..vectors {
            let place = left + (v * LANES * step) as i64;
            reads[v] = [inside(place), inside(place + LANES as i64)];
            writes[v] = (((1u32 << (self.filled - v * LANES).min(LANES)) - 1) & 0xffff) as __mmask16;
        }
        let parts = [self.met[0], step == 2 && self.met[step - 1]];
        // SAFETY: lanes outside of the input are not read, and lanes beyond a line are not written; `x` is a plane of
        // the input, and `to` has room for a padded one.
        unsafe {
            let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            for &Row { at: r, part, line } in &self.written {
                let source = first + r as i64;
                let there = (0..rows.base as i64).contains(&source);
                let line = to.wrapping_add(part + line);
                let from = x.wrapping_offset((source * cols.base as i64 + left) as isize);
                for v in 0..vectors {
                    let masks = if there { reads[v] } else { [0; 2] };
                    let at = from.wrapping_add(v * LANES * step);
                    let low = _mm512_maskz_loadu_ps(masks[0], at);
                    if step == 1 {
                        _mm512_mask_storeu_ps(line.add(v * LANES), writes[v], low);
                        continue;
                    }
                    let high = _mm512_maskz_loadu_ps(masks[1], at.wrapping_add(LANES));
                    if parts[0] {
                        let own = _mm512_permutex2var_ps(low, even, high);
                        _mm512_mask_storeu_ps(line.add(v * LANES), writes[v], own);
                    }
                    if parts[1] {
                        let own = _mm512_permutex2var_ps(low, odd, high);
                        _mm512_mask_storeu_ps(line.add(self.part + v * LANES), writes[v], own);
                    }
                }
            }
        }
    }

    /// Writes a plane for steps of three and four: each output vector combines lanes of that many input vectors.
    ///
    /// # Safety
    /// As for [`Planes::write`]; the machine has AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
    unsafe fn write_shuffled(&self, x: *const f32, (row, col): (usize, usize), to: *mut f32) {
        use std::arch::x86_64::*;
        let (rows, cols) = (&self.rows, &self.cols);
        let (down, step) = (rows.step, cols.step);
        let first = (row * down) as i64 - rows.low;
        let left = (col * step) as i64 - cols.low;
        let inside = |place: i64| -> __mmask16 {
            let begin = (-place).clamp(0, LANES as i64) as u32;
            let end = (cols.base as i64 - place).clamp(begin as i64, LANES as i64) as u32;
            (((1u32 << end) - 1) & !((1u32 << begin) - 1)) as __mmask16
        };
        // SAFETY: lanes outside of the input are not read, and lanes beyond a line are not written; `x` is a plane of
        // the input, and `to` has room for a padded one.
        unsafe {
            for v in 0..self.filled.div_ceil(LANES) {
                let place = left + (v * LANES * step) as i64;
                let reads: [_; SHUFFLED] =
                    std::array::from_fn(|i| if i < step { inside(place + (i * LANES) as i64) } else { 0 });
                let write = (((1u32 << (self.filled - v * LANES).min(LANES)) - 1) & 0xffff) as __mmask16;
                for &Row { at: r, part, line } in &self.written {
                    let source = first + r as i64;
                    let there = (0..rows.base as i64).contains(&source);
                    let line = to.wrapping_add(part + line);
                    let from = x.wrapping_offset((source * cols.base as i64 + place) as isize);
                    let vector = |i: usize| {
                        let mask = if there { reads[i] } else { 0 };
                        _mm512_maskz_loadu_ps(mask, from.wrapping_add(i * LANES))
                    };
                    let (a, b, c, d) = (vector(0), vector(1), vector(2), vector(3));
                    for (p, lanes) in self.lanes.iter().enumerate().filter(|(p, _)| self.met[*p]) {
                        let lane = |i: usize| _mm512_loadu_si512(lanes[i].as_ptr().cast());
                        let mut own = _mm512_permutex2var_ps(a, lane(0), b);
                        own = _mm512_permutex2var_ps(own, lane(1), c);
                        if step == SHUFFLED {
                            own = _mm512_permutex2var_ps(own, lane(2), d);
                        }
                        _mm512_mask_storeu_ps(line.add(p * self.part + v * LANES), write, own);
                    }
                }
            }
        }
    }

    /// Writes a plane for machines with slow masked stores: a vector writes past the end of its line, and the next line
    /// overwrites that. For steps of one.
    ///
    /// # Safety
    /// As for [`Planes::write`]; the machine has AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn write_vectors(&self, x: *const f32, (row, col): (usize, usize), to: *mut f32) {
        use std::arch::x86_64::*;
        const LANES: usize = 8;
        let (rows, cols) = (&self.rows, &self.cols);
        let down = rows.step;
        let first = (row * down) as i64 - rows.low;
        let left = col as i64 - cols.low;
        let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let lanes = |begin: i64, end: i64| {
            let [begin, end] = [begin, end].map(|x| _mm256_set1_epi32(x.clamp(0, LANES as i64) as i32));
            _mm256_andnot_si256(_mm256_cmpgt_epi32(begin, lane), _mm256_cmpgt_epi32(end, lane))
        };
        let vectors = self.filled.div_ceil(LANES);
        let mut reads = [_mm256_setzero_si256(); MASKED / LANES];
        for (v, read) in reads.iter_mut().enumerate().take(vectors) {
            let place = left + (v * LANES) as i64;
            *read = lanes(-place, cols.base as i64 - place);
        }
        for &Row { at: r, part, line } in &self.written {
            let source = first + r as i64;
            let there = (0..rows.base as i64).contains(&source);
            let part = to.wrapping_add(part);
            let from = x.wrapping_offset((source * cols.base as i64 + left) as isize);
            for (v, &read) in reads[..vectors].iter().enumerate() {
                let at = line + v * LANES;
                // SAFETY: lanes outside of the input are not read, and lanes beyond a part are not written; `x` is a
                // plane of the input, and `to` has room for a padded one.
                unsafe {
                    let own = match there {
                        true => _mm256_maskload_ps(from.wrapping_add(v * LANES), read),
                        false => _mm256_setzero_ps(),
                    };
                    if at + LANES <= self.part {
                        _mm256_storeu_ps(part.add(at), own);
                    } else {
                        _mm256_maskstore_ps(part.add(at), lanes(0, (self.filled - v * LANES) as i64), own);
                    }
                }
            }
        }
    }

    /// Writes two planes of two-byte elements as interleaved pairs, or one plane interleaved with zeros.
    ///
    /// # Safety
    /// As for [`Planes::write`], and the machine has AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw")]
    pub(super) unsafe fn write_pairs(&self, [x, y]: [Option<*const u16>; 2], at: (usize, usize), to: *mut f32) {
        /// # Safety
        /// `x` and `y` are valid for `n` elements that are `step` apart, `to` for `n`.
        #[inline(always)]
        unsafe fn pairs(x: *const u16, y: *const u16, high: u32, step: usize, to: *mut u32, n: usize) {
            // SAFETY: `x` and `y` are valid for `n` elements that are `step` apart, `to` for `n`.
            unsafe {
                for i in 0..n {
                    *to.add(i) = *x.add(i * step) as u32 | ((*y.add(i * step) as u32) << 16 & high);
                }
            }
        }
        let Some(x) = x else { return };
        // A missing plane is read from the other one's address and masked out.
        let (y, high) = y.map_or((x, 0), |y| (y, u32::MAX));
        if self.cols.step <= 2 && self.filled <= MASKED {
            // SAFETY: `x` and `y` are planes of the input, `to` has room for a padded one, and the machine has AVX-512.
            return unsafe { self.write_pairs_masked(x, y, high, at, to) };
        }
        // SAFETY: `lines` gives places that are inside both planes of the input and inside of `to`.
        unsafe {
            self.lines(at, to, |from, to, n| {
                let (x, y) = (x.wrapping_offset(from), y.wrapping_offset(from));
                match self.cols.step {
                    1 => pairs(x, y, high, 1, to.cast(), n),
                    2 => pairs(x, y, high, 2, to.cast(), n),
                    step => pairs(x, y, high, step, to.cast(), n),
                }
            });
        }
    }

    /// Writes interleaved pairs with masked vectors; of the second plane only the bits in `high` are used. For steps of one or two.
    ///
    /// # Safety
    /// As for [`Planes::write_pairs`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw")]
    unsafe fn write_pairs_masked(
        &self,
        x: *const u16,
        y: *const u16,
        high: u32,
        (row, col): (usize, usize),
        to: *mut f32,
    ) {
        use std::arch::x86_64::*;
        let (rows, cols) = (&self.rows, &self.cols);
        let (down, step, filled) = (rows.step, cols.step, self.filled);
        let first = (row * down) as i64 - rows.low;
        let left = (col * step) as i64 - cols.low;
        // The lanes of a vector of `lanes` lanes starting at `place` of the line that have an element of the input.
        let inside = |place: i64, lanes: i64| -> __mmask32 {
            let begin = (-place).clamp(0, lanes) as u32;
            let end = (cols.base as i64 - place).clamp(begin as i64, lanes) as u32;
            (((1u64 << end) - 1) & !((1u64 << begin) - 1)) as __mmask32
        };
        let parts = [self.met[0], step == 2 && self.met[step - 1]];
        let base = self.rows.base as i64;
        let (low, high) = (_mm512_set1_epi32(0xffff), _mm512_set1_epi32((high & 0xffff_0000) as i32));
        for v in 0..filled.div_ceil(LANES) {
            let place = left + (v * LANES * step) as i64;
            let mask = inside(place, (LANES * step) as i64);
            let write = (((1u32 << (filled - v * LANES).min(LANES)) - 1) & 0xffff) as __mmask16;
            for &Row { at: r, part, line } in &self.written {
                let source = first + r as i64;
                let mask = if (0..base).contains(&source) { mask } else { 0 };
                let line = to.wrapping_add(part + line + v * LANES);
                let from = (source * cols.base as i64 + place) as isize;
                let (x, y) = (x.wrapping_offset(from), y.wrapping_offset(from));
                // SAFETY: lanes outside of the input are not read, and lanes beyond a line are not written; both planes
                // are of the input, and `to` has room for a padded one.
                unsafe {
                    if step == 1 {
                        let [x, y] = [x, y]
                            .map(|p| _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask as __mmask16, p.cast())));
                        let both = _mm512_or_si512(x, _mm512_and_si512(_mm512_slli_epi32::<16>(y), high));
                        _mm512_mask_storeu_epi32(line.cast(), write, both);
                        continue;
                    }
                    let (x, y) = (_mm512_maskz_loadu_epi16(mask, x.cast()), _mm512_maskz_loadu_epi16(mask, y.cast()));
                    if parts[0] {
                        let y = _mm512_and_si512(_mm512_slli_epi32::<16>(y), high);
                        let both = _mm512_or_si512(_mm512_and_si512(x, low), y);
                        _mm512_mask_storeu_epi32(line.cast(), write, both);
                    }
                    if parts[1] {
                        let both = _mm512_or_si512(_mm512_srli_epi32::<16>(x), _mm512_and_si512(y, high));
                        _mm512_mask_storeu_epi32(line.wrapping_add(self.part).cast(), write, both);
                    }
                }
            }
        }
    }

    /// Calls `put` for each run of elements inside the input, with its offset there, its destination and its length;
    /// writes zeros around the runs.
    ///
    /// # Safety
    /// `to` has room for a plane.
    #[inline(always)]
    unsafe fn lines(&self, (row, col): (usize, usize), to: *mut f32, put: impl Fn(isize, *mut f32, usize)) {
        let (rows, cols) = (&self.rows, &self.cols);
        let (down, step) = (rows.step, cols.step);
        let first = (row * down) as i64 - rows.low;
        let left = (col * step) as i64 - cols.low;
        // The range of elements of a phase of a line that are inside the input.
        let inside = |part: usize| {
            let steps =
                |far: i64| (far + step as i64 - 1).div_euclid(step as i64).clamp(0, self.filled as i64) as usize;
            let place = left + part as i64;
            let begin = steps(-place);
            (place, begin, steps(cols.base as i64 - place).max(begin))
        };
        let spans: [_; STEPS] = std::array::from_fn(|part| if part < step { inside(part) } else { (0, 0, 0) });
        for &Row { at: r, part, line } in &self.written {
            let source = first + r as i64;
            let line = to.wrapping_add(part + line);
            let there = (0..rows.base as i64).contains(&source);
            for part in (0..step).filter(|&p| self.met[p]) {
                let (place, begin, end) = spans[part];
                // SAFETY: `to` has room for a padded plane.
                unsafe {
                    let line = line.add(part * self.part);
                    if !there || begin == end {
                        fill(line, self.filled);
                        continue;
                    }
                    fill(line, begin);
                    let from = source * cols.base as i64 + place + (begin * step) as i64;
                    put(from as isize, line.add(begin), end - begin);
                    fill(line.add(end), self.filled - end);
                }
            }
        }
    }
}
