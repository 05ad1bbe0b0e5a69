//! Convolutions of f32 where every output feature sees one input feature, and their kernel's gradient: too little work for
//! products, so the elements are multiplied where they lie.
//!
//! A plane of the input is written once with its padding, every row divided into as many parts as windows have steps, so
//! that neighbouring results read neighbouring elements. Zeros of the padding are multiplied like any others.

use super::super::{Machine, Raw, Routine, in_ranges};
use super::Geometry;
use crate::gemm::Isa;
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
    let gradient = g.outs == 1 && g.images == 1 && small(&|a| g.axes[a].count) && g.window >= 64;
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
    Some(Depthwise { g: g.clone(), rows, cols, gradient: !forward, threads: machine.threads, isa: machine.isa })
}

impl Depthwise {
    /// f32 of a padded plane.
    fn plane(&self) -> usize {
        self.rows.padded() * self.cols.step * self.cols.part()
    }

    /// Writes a plane of the input with its padding, rows in parts.
    unsafe fn pad(&self, x: *const f32, to: *mut f32) {
        let (rows, cols) = (self.rows, self.cols);
        let (step, part) = (cols.step, cols.part());
        for r in 0..rows.padded() {
            let line = to.wrapping_add(r * step * part);
            let at = r as i64 - rows.low;
            // SAFETY: the caller vouches for the plane and for room; what is copied is inside both.
            unsafe {
                std::ptr::write_bytes(line, 0, step * part);
                if !(0..rows.base as i64).contains(&at) {
                    continue;
                }
                let from = x.add(at as usize * cols.base);
                let first = cols.low.max(0) as usize;
                let end = (cols.base as i64 + cols.low).clamp(0, cols.padded() as i64) as usize;
                if step == 1 && first < end {
                    let source = from.wrapping_offset(first as isize - cols.low as isize);
                    std::ptr::copy_nonoverlapping(source, line.add(first), end - first);
                    continue;
                }
                for c in first..end {
                    let source = from.wrapping_offset(c as isize - cols.low as isize);
                    *line.add(c % step * part + c / step) = *source;
                }
            }
        }
    }

    /// The results of one plane under one window.
    #[inline(always)]
    unsafe fn forward(&self, plane: *const f32, kernel: *const f32, y: *mut f32) {
        let (rows, cols) = (self.rows, self.cols);
        let (step, part) = (cols.step, cols.part());
        for o in 0..rows.along {
            for c in (0..cols.along).step_by(RESULTS) {
                let mut acc = [0f32; RESULTS];
                for i in 0..rows.across {
                    let line = plane.wrapping_add((o * rows.step + i * rows.hop) * step * part);
                    for j in 0..cols.across {
                        let at = j * cols.hop;
                        // SAFETY: parts have room for a whole chunk.
                        unsafe {
                            let w = *kernel.add(i * cols.across + j);
                            let from = &*line.add(at % step * part + at / step + c).cast::<[f32; RESULTS]>();
                            for (a, v) in acc.iter_mut().zip(from) {
                                *a = w.mul_add(*v, *a);
                            }
                        }
                    }
                }
                let n = RESULTS.min(cols.along - c);
                // SAFETY: inside the result's row.
                unsafe { std::ptr::copy_nonoverlapping(acc.as_ptr(), y.add(o * cols.along + c), n) };
            }
        }
    }

    /// Adds a plane's part of the kernel's gradient.
    #[inline(always)]
    unsafe fn gradient(&self, plane: *const f32, ct: *const f32, sums: &mut [[f64; NARROW]; NARROW]) {
        let (rows, cols) = (self.rows, self.cols);
        let (step, part) = (cols.step, cols.part());
        for (i, sums) in sums.iter_mut().enumerate().take(rows.across) {
            let mut acc = [[0f32; LANES]; NARROW];
            for o in 0..rows.along {
                let line = plane.wrapping_add((o * rows.step + i * rows.hop) * step * part);
                let row = ct.wrapping_add(o * cols.along);
                let whole = cols.along / LANES * LANES;
                for c in (0..whole).step_by(LANES) {
                    for (j, acc) in acc.iter_mut().enumerate().take(cols.across) {
                        let at = j * cols.hop;
                        // SAFETY: inside the cotangent's row and the padded one.
                        unsafe {
                            let w = &*row.add(c).cast::<[f32; LANES]>();
                            let v = &*line.add(at % step * part + at / step + c).cast::<[f32; LANES]>();
                            for l in 0..LANES {
                                acc[l] = w[l].mul_add(v[l], acc[l]);
                            }
                        }
                    }
                }
                for c in whole..cols.along {
                    for (j, sum) in sums.iter_mut().enumerate().take(cols.across) {
                        let at = j * cols.hop;
                        // SAFETY: as above.
                        *sum += unsafe { *row.add(c) * *line.add(at % step * part + at / step + c) } as f64;
                    }
                }
                // Chains of sums stay short.
                if o % 64 == 63 || o + 1 == rows.along {
                    for (sum, acc) in sums.iter_mut().zip(&mut acc).take(cols.across) {
                        *sum += acc.iter().map(|&a| a as f64).sum::<f64>();
                        *acc = [0.0; LANES];
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn unit(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        let g = &self.g;
        let (image, group) = (unit / g.groups, unit % g.groups);
        // SAFETY: the caller vouches for all operands and for room for a padded plane.
        unsafe {
            let from = x.add(image * g.image + group * g.group);
            if self.gradient {
                let mut sums = [[0f64; NARROW]; NARROW];
                for f in 0..g.features {
                    self.pad(from.add(f * g.plane), room);
                    self.gradient(room, kernel.add((group * g.features + f) * g.window), &mut sums);
                }
                for i in 0..self.rows.across {
                    for j in 0..self.cols.across {
                        *y.add(group * g.positions + i * self.cols.across + j) = sums[i][j] as f32;
                    }
                }
                return;
            }
            self.pad(from, room);
            for o in 0..g.outs {
                let feature = group * g.outs + o;
                let to = y.add((image * g.groups * g.outs + feature) * g.positions);
                self.forward(room, kernel.add(feature * g.window), to);
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn unit_avx2(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.unit(unit, x, kernel, y, room) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
    unsafe fn unit_avx512(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.unit(unit, x, kernel, y, room) }
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
        let units = if self.gradient { g.groups } else { g.images * g.groups };
        let work = units * g.window * g.positions * if self.gradient { g.features } else { g.outs };
        in_ranges(pool, units, work, &|range: Range<usize>, worker| {
            let room = scratch.at(worker * (self.plane() * 4).next_multiple_of(64)).cast::<f32>();
            for unit in range {
                // SAFETY: operands are those the routine was prepared for; room is this worker's, results this unit's.
                unsafe {
                    match self.isa {
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx512 => self.unit_avx512(unit, x.at(0), kernel.at(0), y.at(0), room),
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx2 => self.unit_avx2(unit, x.at(0), kernel.at(0), y.at(0), room),
                        _ => self.unit(unit, x.at(0), kernel.at(0), y.at(0), room),
                    }
                }
            }
        });
        Ok(())
    }
}
