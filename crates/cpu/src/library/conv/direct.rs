//! Direct convolution of f32, and of bf16 in pairs of features, which reads windows in place.
//!
//! A part computes some lines of an image's results. It copies the input lines that they use once, with padding and, for strided
//! windows, split into phases ([`PaddedPlanes`]). Then each window element of adjacent positions is a contiguous run,
//! and a vector of positions is multiplied in place. Compared with im2col that is one copy of the input
//! instead of one copy per window element.
//!
//! Vectors run along one line of results, or half a vector along each of two lines, or along the whole plane; in the last case
//! the padding between lines is computed too and discarded.

use super::super::{CpuContext, OpRoutine, Pointers, SharedPtr};
use super::Geometry;
use super::im2col_gemm::{DEPTH, POSITIONS};
use super::micro::{Windowed, Windows};
use super::padded_input::{Line, PaddedPlanes, STEPS};
use crate::gemm::Isa;
use crate::gemm::kernel::{HasKernels, Kernels};
use crate::pool::ThreadPool;
use compiler::Result;
use half::bf16;
use ir::DType;

/// The maximum input bytes of a part, so that they stay in the L2 cache.
pub(super) const SEEN_BYTES: usize = 320 << 10;
/// The maximum ratio of the window length to the usual k-block for windows that are multiplied in bf16 pairs: a panel of the
/// kernel stays in the L2 cache.
const LONG: usize = 16;
/// The number of parts per thread if there is one image.
const PARTS: usize = 2;

/// How vectors are placed over positions.
#[derive(Clone, Copy, PartialEq, Debug)]
enum VectorPlacement {
    Lines,
    Halves,
    Plane,
}

/// A vector of positions: the offsets of both halves in the planes, and the range of its runs in the results.
#[derive(Debug)]
struct Place {
    from: [u32; 2],
    runs: std::ops::Range<usize>,
}

/// A run of lanes of a vector that are adjacent results.
#[derive(Clone, Copy, Debug)]
struct LaneRun {
    lane: usize,
    count: usize,
    to: usize,
}

/// The vectors of a block of lines and columns.
#[derive(Debug)]
struct Places {
    all: Vec<Place>,
    runs: Vec<LaneRun>,
}

pub(super) struct Direct {
    g: Geometry,
    kernels: &'static Kernels<f32>,
    micros: &'static Windows,
    planes: PaddedPlanes,
    /// Whether windows are read in the input itself.
    in_place: bool,
    offsets: Vec<u32>,
    /// The number of elements of a window over all features of a group, and the number per pass.
    depth: usize,
    step: usize,
    /// The number of rows of a panel of the kernel, and of panels per group.
    rows: usize,
    panels: usize,
    halves: bool,
    /// The lines and columns of the results, of a part, and the number of parts along each.
    size: [usize; 2],
    part: [usize; 2],
    parts: [usize; 2],
    /// The vectors of a regular part, and of a part in the last lines or columns.
    places: [Places; 2],
    /// Whether an element of the planes and the kernel is a pair of bf16 of adjacent features.
    pairs: bool,
    threads: usize,
}

/// Returns the vectors of positions of `lines` by `cols` results.
/// Planes have lines of `width` elements, results have lines of `row`.
fn places(along: VectorPlacement, [lines, cols]: [usize; 2], width: usize, row: usize, lanes: usize) -> Places {
    let (mut all, mut runs) = (Vec::new(), Vec::<LaneRun>::new());
    match along {
        VectorPlacement::Lines | VectorPlacement::Halves => {
            // Runs of lines; a vector is one run, or two halves.
            let wide = if along == VectorPlacement::Lines { lanes } else { lanes / 2 };
            let pieces: Vec<[usize; 3]> = (0..lines)
                .flat_map(|l| (0..cols).step_by(wide).map(move |c| [l * width + c, wide.min(cols - c), l * row + c]))
                .collect();
            for own in pieces.chunks(lanes / wide) {
                let first = runs.len();
                for (i, &[_, count, to]) in own.iter().enumerate() {
                    match runs.last_mut() {
                        Some(last) if i > 0 && last.lane + last.count == i * wide && last.to + last.count == to => {
                            last.count += count;
                        }
                        _ => runs.push(LaneRun { lane: i * wide, count, to }),
                    }
                }
                let high = match along {
                    VectorPlacement::Lines => own[0][0] + lanes / 2,
                    _ => own[own.len() - 1][0],
                };
                all.push(Place { from: [own[0][0] as u32, high as u32], runs: first..runs.len() });
            }
        }
        VectorPlacement::Plane => {
            let end = (lines - 1) * width + cols;
            for at in (0..end).step_by(lanes) {
                let first = runs.len();
                for line in at / width..=((at + lanes - 1) / width).min(lines - 1) {
                    let begin = at.max(line * width);
                    let stop = (at + lanes).min(line * width + cols);
                    if begin < stop {
                        let to = line * row + begin - line * width;
                        runs.push(LaneRun { lane: begin - at, count: stop - begin, to });
                    }
                }
                all.push(Place { from: [at as u32, (at + lanes / 2) as u32], runs: first..runs.len() });
            }
        }
    }
    Places { all, runs }
}

/// Returns whether elements are multiplied in bf16 pairs: where the machine can do that without AMX. Not where windows are so
/// long that the results would have to be accumulated over several passes.
fn uses_bf16_pairs(g: &Geometry, isa: Isa) -> bool {
    let kernels = f32::kernels(isa, DType::BF16);
    let by_vectors = kernels.tiles.is_none() && kernels.groups.is_some_and(|g| g.per == 2);
    let short = g.features.div_ceil(2) * g.window <= LONG * DEPTH;
    g.dtype == DType::BF16 && matches!(g.out, DType::BF16 | DType::F32) && by_vectors && short
}

/// Rounds results to bf16, half to even.
///
/// # Safety
/// Both are valid for `n`, and the machine has AVX-512, unless it is not an x86-64.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512vl,avx512bw"))]
unsafe fn round_to_bf16(from: *const f32, to: *mut bf16, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for i in (0..n).step_by(16) {
        use std::arch::x86_64::*;
        let mask = if n - i >= 16 { !0 } else { (1u16 << (n - i)) - 1 };
        // SAFETY: lanes that are masked off are neither read nor written.
        unsafe {
            let x = _mm512_maskz_loadu_ps(mask, from.add(i));
            let bits = _mm512_castps_si512(x);
            let high = _mm512_srli_epi32::<16>(bits);
            let odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
            let up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let rounded = _mm512_srli_epi32::<16>(up);
            // NaN stays NaN.
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
            let all = _mm512_mask_mov_epi32(rounded, nan, quiet);
            _mm256_mask_storeu_epi16(to.add(i).cast(), mask, _mm512_cvtepi32_epi16(all));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    for i in 0..n {
        // SAFETY: `from` and `to` are valid for `n` elements.
        unsafe { *to.add(i) = bf16::from_f32(*from.add(i)) };
    }
}

/// The cost of im2col for long lines, in output features that could be computed in the same time:
/// every element is copied once per window element.
const WRITTEN: usize = 8;
/// The cost of im2col for a line of one element. Copies work line by line, and the overhead of a line is shared by its elements.
/// Measured with lines of 7 to 28 elements, where the overhead dominates.
const PER_LINE: usize = 224;

/// Returns whether vectors waste little: the wasted lanes cost less than im2col would. A few wasted lanes are always accepted.
fn is_worthwhile(vectors: usize, lanes: usize, positions: usize, outs: usize, line: usize) -> bool {
    vectors * lanes * outs <= positions * (outs + outs / 16 + (PER_LINE / line.max(1)).max(WRITTEN))
}

/// Returns whether [`prepare`] suits this number of lines and columns of results with this window width.
pub(super) fn is_applicable([lines, cols]: [usize; 2], window: usize, outs: usize, isa: Isa) -> bool {
    let lanes = Windows::of(isa).lanes;
    // Without padding, all lines form one line.
    let (lines, cols) = if window == 1 { (1, lines * cols) } else { (lines, cols) };
    let width = cols + window - 1;
    let count = |along| places(along, [lines, cols], width, cols, lanes).all.len();
    let ways = [VectorPlacement::Lines, VectorPlacement::Halves, VectorPlacement::Plane];
    let least = ways.into_iter().map(count).min().unwrap_or(0);
    lines * cols >= POSITIONS && outs > 0 && is_worthwhile(least, lanes, lines * cols, outs, cols)
}

/// Returns the routine if windows are narrower than the results and vectors of positions waste little.
pub(super) fn prepare(g: &Geometry, machine: CpuContext) -> Option<Direct> {
    let spatial = &g.axes[..g.rank];
    let pairs = uses_bf16_pairs(g, machine.isa);
    let dtypes = pairs || (g.dtype == DType::F32 && g.out == DType::F32);
    let plain = dtypes && g.rank <= 2 && g.positions >= POSITIONS && g.outs > 0;
    let usual = |a: &super::Axis| a.base_dilation == 1 && a.base > 0 && a.stride <= STEPS as i64;
    if !plain || g.features * g.window == 0 || !spatial.iter().all(usual) {
        return None;
    }
    let mut lines = [Line::UNIT; 2];
    for (line, a) in lines[2 - g.rank..].iter_mut().zip(spatial) {
        let (step, hop) = (usize::try_from(a.stride).ok()?, usize::try_from(a.window_dilation).ok()?);
        *line = Line { base: a.base, low: a.low, step, hop, along: a.count, across: a.window };
    }
    let [down, across] = lines;
    let kernels = f32::kernels(machine.isa, DType::F32);
    let micros = match pairs {
        #[cfg(target_arch = "x86_64")]
        true => Windows::pairs(),
        _ => Windows::of(machine.isa),
    };
    let lanes = micros.lanes;
    let features = if pairs { g.features.div_ceil(2) } else { g.features };
    let in_place = !pairs
        && lines.iter().all(|l| l.step == 1 && l.is_unpadded())
        && across.along.is_multiple_of(lanes)
        && g.plane < 1 << 24;
    let planes = PaddedPlanes::new(down, across, machine.isa);
    let width = if in_place { across.base } else { planes.width };
    // Choose the placement with the fewest vectors, preferring whole lines.
    let size = [down.along, across.along];
    let count = |along| places(along, size, width, across.along, lanes).all.len();
    let ways = if in_place {
        &[VectorPlacement::Lines][..]
    } else {
        &[VectorPlacement::Lines, VectorPlacement::Halves, VectorPlacement::Plane]
    };
    let (vectors, along) = ways.iter().map(|&a| (count(a), a)).min_by_key(|w| w.0)?;
    // Twice as many lanes may be wasted with pairs: all other algorithms multiply single elements.
    if !is_worthwhile(vectors, lanes, g.positions * if pairs { 2 } else { 1 }, g.outs, across.along) {
        return None;
    }
    // Split into parts that fit in cache, and into enough parts for the threads.
    let axis = usize::from(size[0] == 1);
    let unit = if axis == 1 { 2 * lanes } else { 1 };
    let seen = |n: usize| {
        let of = |l: Line| Line { along: n.min(l.along), ..l };
        let own = if axis == 0 {
            PaddedPlanes::new(of(down), across, machine.isa)
        } else {
            PaddedPlanes::new(down, of(across), machine.isa)
        };
        4 * features * own.plane
    };
    let units = size[axis].div_ceil(unit);
    let fit = (1..=units).rev().find(|&n| seen(n * unit) <= SEEN_BYTES).unwrap_or(1);
    let matrices = (g.images * g.groups).max(1);
    let wanted = if machine.threads > 1 { (PARTS * machine.threads).div_ceil(matrices) } else { 1 };
    let parts = units.div_ceil(fit).max(wanted.min(units));
    let each = units.div_ceil(parts) * unit;
    let mut part = size;
    part[axis] = each.min(size[axis]);
    let mut lines = lines;
    lines[axis].along = part[axis];
    let planes = PaddedPlanes::new(lines[0], lines[1], machine.isa);
    let width = if in_place { across.base } else { planes.width };
    let plane = if in_place { g.plane } else { planes.plane };
    let mut parts = [1; 2];
    parts[axis] = size[axis].div_ceil(part[axis]);
    let mut last = part;
    last[axis] = size[axis] - (parts[axis] - 1) * part[axis];
    let places = [part, last].map(|size| places(along, size, width, across.along, lanes));
    let tap = |i: usize, j: usize| match in_place {
        true => i * down.hop * across.base + j * across.hop,
        false => planes.tap(i, j),
    };
    let depth = features * g.window;
    let mut offsets = Vec::with_capacity(depth);
    for f in 0..features {
        for i in 0..down.across {
            for j in 0..across.across {
                offsets.push(u32::try_from(f * plane + tap(i, j)).ok()?);
            }
        }
    }
    let panels = g.outs.div_ceil(micros.rows);
    Some(Direct {
        g: g.clone(),
        kernels,
        micros,
        planes,
        in_place,
        offsets,
        depth,
        // Results of two bytes cannot be accumulated.
        step: if pairs { depth } else { depth.div_ceil(depth.div_ceil(DEPTH)) },
        rows: g.outs.div_ceil(panels),
        panels,
        halves: along == VectorPlacement::Halves,
        size,
        part,
        parts,
        places,
        pairs,
        threads: machine.threads,
    })
}

impl Direct {
    /// The number of f32 of the packed kernel.
    fn packed(&self) -> usize {
        (self.g.groups * self.panels * self.kernels.mr * self.depth).next_multiple_of(16)
    }

    /// The number of f32 of the planes of a worker, with an additional vector after the last.
    fn scratch_elements(&self) -> usize {
        let features = if self.pairs { self.g.features.div_ceil(2) } else { self.g.features };
        if self.in_place { 0 } else { (features * self.planes.plane + 32).next_multiple_of(16) }
    }

    /// Computes all output features of some positions of an image and group.
    unsafe fn run_part(&self, x: *const u8, y: *mut u8, unit: usize, packed: *const f32, room: *mut f32) {
        let g = &self.g;
        let parts = self.parts[0] * self.parts[1];
        let (matrix, part) = (unit / parts, unit % parts);
        let (image, group) = (matrix / g.groups, matrix % g.groups);
        let axis = usize::from(self.parts[1] > 1);
        let places = &self.places[usize::from(part + 1 == parts)];
        let mut first = [0; 2];
        first[axis] = part * self.part[axis];
        // SAFETY: the operands are valid for their sizes; only this part writes these positions of the result, and only
        // this worker uses the room.
        unsafe {
            let at = image * g.image + group * g.group;
            let seen = match self.in_place {
                true => x.cast::<f32>().add(at + first[0] * g.axes[g.rank - 1].base + first[1]),
                false => {
                    self.write(x, at, (first[0], first[1]), room);
                    room.cast_const()
                }
            };
            let y = y.add((matrix * g.outs * g.positions + first[0] * self.size[1] + first[1]) * g.out.size());
            for k in (0..self.depth).step_by(self.step) {
                for i in 0..self.panels {
                    let rows = self.rows.min(g.outs - i * self.rows);
                    let a = packed.add(((group * self.panels + i) * self.depth + k) * self.kernels.mr);
                    let y = y.add(i * self.rows * g.positions * g.out.size());
                    for pair in places.all.chunks(2) {
                        self.tile(rows, k, a, seen, y, pair, &places.runs);
                    }
                }
            }
        }
    }

    /// Packs some rows of the kernel as pairs of adjacent features.
    ///
    /// # Safety
    /// The kernel is valid for its size, and there is room for a panel.
    unsafe fn pack_pairs(&self, kernel: *const u16, first: usize, rows: usize, to: *mut u32) {
        let g = &self.g;
        for i in 0..rows {
            for (k, f, t) in (0..self.depth).map(|k| (k, k / g.window * 2, k % g.window)) {
                // SAFETY: the kernel is valid for its size, and there is room for a panel.
                unsafe {
                    let at = |f: usize| *kernel.add(((first + i) * g.features + f) * g.window + t) as u32;
                    let high = if f + 1 < g.features { at(f + 1) } else { 0 };
                    *to.add(k * self.kernels.mr + i) = at(f) | high << 16;
                }
            }
        }
    }

    /// Writes the planes of all features from `at` on.
    ///
    /// # Safety
    /// The input is valid for its size, and there is room for its planes; pairs are used only where the machine has
    /// AVX-512.
    unsafe fn write(&self, x: *const u8, at: usize, first: (usize, usize), room: *mut f32) {
        let g = &self.g;
        // SAFETY: the input is valid for its size, and there is room for its planes; pairs are used only where the
        // machine has AVX-512.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if self.pairs {
                let plane = |f: usize| (f < g.features).then(|| x.cast::<u16>().add(at + f * g.plane));
                for f in 0..g.features.div_ceil(2) {
                    let both = [plane(2 * f), plane(2 * f + 1)];
                    self.planes.write_pairs(both, first, room.add(f * self.planes.plane));
                }
                return;
            }
            for f in 0..g.features {
                self.planes.write(x.cast::<f32>().add(at + f * g.plane), first, room.add(f * self.planes.plane));
            }
        }
    }

    /// Computes some features of up to two vectors of positions.
    ///
    /// # Safety
    /// The operands are valid for their sizes, and offsets and positions are inside the planes.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a tile of three operands, each with a place")]
    unsafe fn tile(
        &self,
        rows: usize,
        k: usize,
        a: *const f32,
        seen: *const f32,
        y: *mut u8,
        pair: &[Place],
        runs: &[LaneRun],
    ) {
        const AREA: usize = 12 * 2 * 16;
        let (g, lanes) = (&self.g, self.micros.lanes);
        let micro = self.micros.micro(rows, pair.len(), self.halves);
        let place = |j: usize| &pair[j.min(pair.len() - 1)];
        // SAFETY: the operands are valid for their sizes, and offsets and positions are inside the planes.
        unsafe {
            let at = |j: usize, half: usize| seen.add(place(j).from[half] as usize);
            let mut call = Windowed {
                k: self.step.min(self.depth - k),
                a,
                a_k: self.kernels.mr,
                offsets: self.offsets.as_ptr().add(k),
                b: [at(0, 0), at(0, 1), at(1, 0), at(1, 1)],
                c: [y.cast(); 2],
                lanes: [lanes; 2],
                c_row: g.positions,
                add: k > 0,
            };
            let one = |p: &Place| p.runs.len() == 1 && runs[p.runs.start].lane == 0;
            let narrow = g.out == DType::BF16;
            let (halves, y) = (y.cast::<bf16>(), y.cast::<f32>());
            if !narrow && pair.iter().all(one) {
                for j in 0..pair.len() {
                    let run = runs[pair[j].runs.start];
                    (call.c[j], call.lanes[j]) = (y.add(run.to), run.count);
                }
                return micro(&call);
            }
            // Results that are not adjacent are stored from a temporary tile.
            let mut own = std::mem::MaybeUninit::<[f32; AREA]>::uninit();
            let own = own.as_mut_ptr().cast::<f32>();
            (call.c, call.c_row, call.add) = ([own, own.add(lanes)], 2 * lanes, false);
            micro(&call);
            for (j, p) in pair.iter().enumerate() {
                for run in &runs[p.runs.clone()] {
                    for i in 0..rows {
                        let from = own.add(i * 2 * lanes + j * lanes + run.lane);
                        if narrow {
                            let to = halves.add(i * g.positions + run.to);
                            round_to_bf16(from, to, run.count);
                            continue;
                        }
                        let to = y.add(i * g.positions + run.to);
                        match k > 0 {
                            true => (0..run.count).for_each(|n| *to.add(n) += *from.add(n)),
                            false => super::super::memcpy::copy(from.cast_const(), to, run.count),
                        }
                    }
                }
            }
        }
    }
}

impl OpRoutine for Direct {
    fn scratch_bytes(&self) -> usize {
        4 * (self.packed() + self.scratch_elements() * self.threads)
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let (g, mr) = (&self.g, self.kernels.mr);
        let packed = SharedPtr(scratch.cast::<f32>());
        let room = SharedPtr(packed.at(self.packed()));
        let (args, y) = (Pointers(args), SharedPtr(outs[0]));
        pool.run(g.groups * self.panels, &|part, _| {
            let (group, row) = (part / self.panels, part % self.panels * self.rows);
            // SAFETY: the rows are the kernel's, and panels are disjoint.
            unsafe {
                let from = args.get()[1].cast::<f32>().add((group * g.outs + row) * self.depth);
                let to = packed.at(part * mr * self.depth);
                if self.pairs {
                    let rows = self.rows.min(g.outs - row);
                    return self.pack_pairs(args.get()[1].cast(), group * g.outs + row, rows, to.cast());
                }
                let strides = (self.depth as isize, 1);
                (self.kernels.pack)(to, mr, from, strides, self.rows.min(g.outs - row), self.depth);
            }
        });
        pool.run(g.images * g.groups * self.parts[0] * self.parts[1], &|unit, worker| {
            let room = room.at(worker * self.scratch_elements());
            // SAFETY: parts have disjoint results, workers their own room.
            unsafe { self.run_part(args.get()[0], y.at(0), unit, packed.at(0), room) };
        });
        Ok(())
    }
}
