//! Convolutions of f32 where every output feature sees one input feature, and the kernel's gradient of groups of few: too little work for
//! products, so the elements are multiplied where they lie.
//!
//! A plane of the input is written once with its padding, every row divided into as many parts as windows have steps, so
//! that neighbouring results read neighbouring elements. Zeros of the padding are multiplied like any others; they are the same of
//! every plane, and written once. Short rows have half as many results at a time.

use super::super::copying::copy;
use super::super::{Machine, Raw, Routine, in_ranges};
use super::Geometry;
use crate::gemm::Isa;
use crate::gemm::vector::{Plain32, Vector};
use crate::pool::Pool;
use compiler::Result;
use ir::DType;
use std::ops::Range;

/// Results that are computed at a time.
pub(super) const RESULTS: usize = 32;
/// Elements that are summed at a time in the kernel's gradient.
pub(super) const LANES: usize = 16;
/// Widest window of the forward loops, and the widest kernel whose gradient is taken.
pub(super) const NARROW: usize = 8;

/// Output features of a group whose kernel's gradient is taken.
pub(super) const GRADIENTS: usize = 4;

/// The same in plain vectors.
const PLAIN_ALL: usize = RESULTS / <Plain32 as Vector>::LANES;
const PLAIN_HALF: usize = PLAIN_ALL / 2;

/// One axis: the input's size, the step between neighbouring elements of a row that are read together, and how many are.
#[derive(Clone, Copy)]
struct Line {
    base: usize,
    low: i64,
    /// Elements of the padded line from one result (or window element) to the next, and from one window element (or result)
    /// to the next.
    step: usize,
    hop: usize,
    /// How many of each.
    along: usize,
    across: usize,
}

impl Line {
    /// Elements of the padded line.
    fn padded(&self) -> usize {
        (self.along - 1) * self.step + (self.across - 1) * self.hop + 1
    }

    /// Elements of each of its parts, with room for a chunk beyond.
    fn part(&self) -> usize {
        (self.padded().div_ceil(self.step) + RESULTS).next_multiple_of(16)
    }
}

pub(super) struct Depthwise {
    g: Geometry,
    rows: Line,
    cols: Line,
    /// Elements of a part of a line, and where the window's elements of a row begin in a padded line, in parts: quotients, found once.
    part: usize,
    places: [usize; NARROW],
    /// The kernel's gradient: windows are whole images.
    gradient: bool,
    threads: usize,
    isa: Isa,
}

/// The loops for a convolution that they suit.
pub(super) fn prepare(g: &Geometry, machine: Machine) -> Option<Depthwise> {
    let spatial = &g.axes[..g.rank];
    let plain = g.dtype == DType::F32 && g.out == DType::F32 && g.rank <= 2 && g.positions > 0 && g.window > 0;
    if !plain || spatial.iter().any(|a| a.base_dilation != 1 || a.base == 0) {
        return None;
    }
    let small = |f: &dyn Fn(usize) -> usize| (0..g.rank).all(|a| f(a) <= NARROW);
    let forward = g.features == 1 && g.outs <= 4 && small(&|a| g.axes[a].window);
    let gradient = g.outs <= GRADIENTS && small(&|a| g.axes[a].count) && g.window >= 64;
    if !forward && !gradient {
        return None;
    }
    let unit = Line { base: 1, low: 0, step: 1, hop: 1, along: 1, across: 1 };
    let mut lines = [unit; 2];
    for (line, a) in lines[2 - g.rank..].iter_mut().zip(spatial) {
        let (stride, dilation) = (usize::try_from(a.stride).ok()?, usize::try_from(a.window_dilation).ok()?);
        *line = match forward {
            true => Line { base: a.base, low: a.low, step: stride, hop: dilation, along: a.count, across: a.window },
            false => Line { base: a.base, low: a.low, step: dilation, hop: stride, along: a.window, across: a.count },
        };
    }
    let [rows, cols] = lines;
    if rows.step > 8 || cols.step > 8 || rows.padded() > 1 << 14 || cols.padded() > 1 << 14 {
        return None;
    }
    let (step, part) = (cols.step, cols.part());
    let places = std::array::from_fn(|j| j * cols.hop % step * part + j * cols.hop / step);
    let (threads, isa) = (machine.threads, machine.isa);
    Some(Depthwise { g: g.clone(), rows, cols, part, places, gradient: !forward, threads, isa })
}

impl Depthwise {
    /// f32 of a padded plane.
    fn plane(&self) -> usize {
        self.rows.padded() * self.cols.step * self.part
    }

    /// Writes a plane of the input between its padding, which is there, rows in parts.
    #[inline(always)]
    unsafe fn pad(&self, x: *const f32, to: *mut f32) {
        let (rows, cols) = (self.rows, self.cols);
        let (step, part) = (cols.step, self.part);
        let first = cols.low.max(0) as usize;
        let end = (cols.base as i64 + cols.low).clamp(0, cols.padded() as i64) as usize;
        let inside = |r: &usize| (0..rows.base as i64).contains(&(*r as i64 - rows.low));
        for r in (0..rows.padded()).filter(inside).filter(|_| first < end) {
            let line = to.wrapping_add(r * step * part);
            // SAFETY: the caller vouches for the plane and for room; what is copied is inside both.
            unsafe {
                let from = x.add((r as i64 - rows.low) as usize * cols.base).wrapping_offset(-cols.low as isize);
                if step == 1 {
                    copy(from.wrapping_add(first), line.add(first), end - first);
                    continue;
                }
                if step == 2 {
                    // Both parts at once, so that what is read is adjacent.
                    let (n, source) = (end - first, from.wrapping_add(first));
                    let even = line.add(first % 2 * part + first / 2);
                    let odd = line.add((first + 1) % 2 * part + first.div_ceil(2));
                    let whole = n / 2 / LANES * LANES;
                    for k in (0..whole).step_by(LANES) {
                        let both = source.add(2 * k).cast::<[[f32; 2]; LANES]>().read_unaligned();
                        even.add(k).cast::<[f32; LANES]>().write_unaligned(both.map(|pair| pair[0]));
                        odd.add(k).cast::<[f32; LANES]>().write_unaligned(both.map(|pair| pair[1]));
                    }
                    for k in whole..n / 2 {
                        *even.add(k) = *source.add(2 * k);
                        *odd.add(k) = *source.add(2 * k + 1);
                    }
                    if n % 2 == 1 {
                        *even.add(n / 2) = *source.add(n - 1);
                    }
                    continue;
                }
                for phase in 0..step {
                    // Elements `phase`, `phase + step`, .. of the padded line, of which some in the middle are the input's.
                    let begin = first.saturating_sub(phase).div_ceil(step);
                    let stop = end.saturating_sub(phase).div_ceil(step).max(begin);
                    let own = line.add(phase * part + begin);
                    let source = from.wrapping_add(begin * step + phase);
                    (0..stop - begin).for_each(|k| *own.add(k) = *source.wrapping_add(step * k));
                }
            }
        }
    }

    /// The results of one plane under one window, `N` vectors at a time.
    #[inline(always)]
    unsafe fn forward<V: Vector<Elem = f32>, const N: usize>(
        &self,
        plane: *const f32,
        kernel: *const f32,
        y: *mut f32,
    ) {
        let (rows, cols, places) = (self.rows, self.cols, self.places);
        let line = cols.step * self.part;
        // SAFETY: parts have room for a whole chunk; results are inside their row.
        unsafe {
            for o in 0..rows.along {
                for c in (0..cols.along).step_by(N * V::LANES) {
                    let mut acc = [V::splat(0.0); N];
                    for i in 0..rows.across {
                        let from = plane.add((o * rows.step + i * rows.hop) * line + c);
                        for j in 0..cols.across {
                            let w = V::splat(*kernel.add(i * cols.across + j));
                            let from = from.add(places[j % NARROW]);
                            for (n, acc) in acc.iter_mut().enumerate() {
                                *acc = w.mul_add(V::load(from.add(n * V::LANES)), *acc);
                            }
                        }
                    }
                    let to = y.add(o * cols.along + c);
                    for (n, acc) in acc.iter().enumerate() {
                        match (cols.along - c).saturating_sub(n * V::LANES) {
                            0 => {}
                            left if left < V::LANES => acc.store_first(to.add(n * V::LANES), left),
                            _ => acc.store(to.add(n * V::LANES)),
                        }
                    }
                }
            }
        }
    }

    /// Adds a plane's part of the kernel's gradient, for windows `J` wide.
    #[inline(always)]
    unsafe fn gradient<V: Vector<Elem = f32>, const J: usize>(
        &self,
        plane: *const f32,
        ct: *const f32,
        sums: &mut [[f64; NARROW]; NARROW],
    ) {
        let (rows, cols, places) = (self.rows, self.cols, self.places);
        let line = cols.step * self.part;
        for (i, sums) in sums.iter_mut().enumerate().take(rows.across) {
            // SAFETY: inside the cotangent's rows and the padded ones; lanes beyond a row are zero on both sides, whatever the
            // line has there.
            unsafe {
                // Two chains for each sum.
                let mut acc = [[V::splat(0.0); 2]; J];
                for o in 0..rows.along {
                    let from = plane.add((o * rows.step + i * rows.hop) * line);
                    let row = ct.add(o * cols.along);
                    let mut c = 0;
                    while c + 2 * V::LANES <= cols.along {
                        let (w, x) = (V::load(row.add(c)), V::load(row.add(c + V::LANES)));
                        for j in 0..J {
                            let at = from.add(places[j] + c);
                            acc[j][0] = w.mul_add(V::load(at), acc[j][0]);
                            acc[j][1] = x.mul_add(V::load(at.add(V::LANES)), acc[j][1]);
                        }
                        c += 2 * V::LANES;
                    }
                    while c < cols.along {
                        let n = (cols.along - c).min(V::LANES);
                        let w = V::load_first(row.add(c), n);
                        for j in 0..J {
                            let v = V::load_first(from.add(places[j] + c), n);
                            acc[j][0] = w.mul_add(v, acc[j][0]);
                        }
                        c += n;
                    }
                    // Chains of sums stay short.
                    if o % 64 == 63 || o + 1 == rows.along {
                        for j in 0..J {
                            let mut lanes = [0f32; LANES];
                            acc[j][0].add(acc[j][1]).store(lanes.as_mut_ptr());
                            let mut wide = lanes.map(|a| a as f64);
                            let mut half = LANES / 2;
                            while half > 0 {
                                (0..half).for_each(|i| wide[i] += wide[i + half]);
                                half /= 2;
                            }
                            sums[j] += wide[0];
                            acc[j] = [V::splat(0.0); 2];
                        }
                    }
                }
            }
        }
    }

    /// One unit of work: `ALL` vectors are as many results as are computed at a time, `HALF` those of short rows.
    #[inline(always)]
    unsafe fn unit<V: Vector<Elem = f32>, const ALL: usize, const HALF: usize>(
        &self,
        unit: usize,
        x: *const f32,
        kernel: *const f32,
        y: *mut f32,
        room: *mut f32,
    ) {
        let g = &self.g;
        let (image, group) = (unit / g.groups, unit % g.groups);
        // SAFETY: the caller vouches for all operands and for room for a padded plane.
        unsafe {
            let from = x.add(image * g.image + group * g.group);
            if self.gradient {
                let mut all = [[[0f64; NARROW]; NARROW]; GRADIENTS];
                for f in 0..g.features {
                    self.pad(from.add(f * g.plane), room);
                    for (o, sums) in all.iter_mut().enumerate().take(g.outs) {
                        let ct = kernel.add(((group * g.outs + o) * g.features + f) * g.window);
                        match self.cols.across {
                            1 => self.gradient::<V, 1>(room, ct, sums),
                            2 => self.gradient::<V, 2>(room, ct, sums),
                            3 => self.gradient::<V, 3>(room, ct, sums),
                            4 => self.gradient::<V, 4>(room, ct, sums),
                            5 => self.gradient::<V, 5>(room, ct, sums),
                            6 => self.gradient::<V, 6>(room, ct, sums),
                            7 => self.gradient::<V, 7>(room, ct, sums),
                            _ => self.gradient::<V, NARROW>(room, ct, sums),
                        }
                    }
                }
                let to = y.add(unit * g.outs * g.positions);
                for (o, sums) in all.iter().enumerate().take(g.outs) {
                    for i in 0..self.rows.across {
                        for j in 0..self.cols.across {
                            *to.add(o * g.positions + i * self.cols.across + j) = sums[i][j] as f32;
                        }
                    }
                }
                return;
            }
            self.pad(from, room);
            for o in 0..g.outs {
                let feature = group * g.outs + o;
                let to = y.add((image * g.groups * g.outs + feature) * g.positions);
                let kernel = kernel.add(feature * g.window);
                match self.cols.along {
                    0..=LANES => self.forward::<V, HALF>(room, kernel, to),
                    _ => self.forward::<V, ALL>(room, kernel, to),
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn unit_avx2(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.unit::<std::arch::x86_64::__m256, 4, 2>(unit, x, kernel, y, room) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
    unsafe fn unit_avx512(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.unit::<std::arch::x86_64::__m512, 2, 1>(unit, x, kernel, y, room) }
    }
}

impl Routine for Depthwise {
    fn scratch_bytes(&self) -> usize {
        (self.plane() * 4).next_multiple_of(64) * self.threads
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let g = &self.g;
        let (x, kernel) = (Raw(args[0].cast_mut().cast::<f32>()), Raw(args[1].cast_mut().cast::<f32>()));
        let (y, scratch) = (Raw(outs[0].cast::<f32>()), Raw(scratch));
        let units = g.images * g.groups;
        let work = units * g.window * g.positions * g.outs * if self.gradient { g.features } else { 1 };
        in_ranges(pool, units, work, &|range: Range<usize>, worker| {
            let room = scratch.at(worker * (self.plane() * 4).next_multiple_of(64)).cast::<f32>();
            // SAFETY: room is this worker's. What stands around a plane stays as it is from one to the next.
            unsafe { std::ptr::write_bytes(room, 0, self.plane()) };
            for unit in range {
                // SAFETY: operands are those the routine was prepared for; room is this worker's, results this unit's.
                unsafe {
                    match self.isa {
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx512 => self.unit_avx512(unit, x.at(0), kernel.at(0), y.at(0), room),
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx2 => self.unit_avx2(unit, x.at(0), kernel.at(0), y.at(0), room),
                        _ => self.unit::<Plain32, PLAIN_ALL, PLAIN_HALF>(unit, x.at(0), kernel.at(0), y.at(0), room),
                    }
                }
            }
        });
        Ok(())
    }
}
