//! Convolutions of f32 over an input that is spread, where every output feature sees one input feature: the input's gradient of such a convolution with
//! steps.
//!
//! With a spread of `d`, results `d·q + r` of a row meet neighbours in the rows of the input: each phase `r` is a sum of few shifted rows, and phases are dealt
//! out to every `d`-th result. No hole is multiplied; holes are zeros that an infinite weight would make NaN, so a kernel that is not finite takes the
//! plain road.

use super::super::{Machine, Raw, Routine, in_ranges};
use super::depthwise::NARROW;
use super::phased::Taps;
use crate::gemm::Isa;
use crate::gemm::vector::Vector;
use crate::pool::Pool;
use compiler::Result;
use ir::ops::Conv;
use ir::{DType, Type};
use std::ops::Range;

/// The least spread along a row: two phases are quicker as two convolutions.
const LEAST_SPREAD: usize = 3;
/// Output features of a group, at most.
const OUTS: usize = 4;
/// Lanes of the widest vector: rows have room for as many beyond their ends.
const LANES: usize = 16;

/// One axis.
struct Along {
    base: usize,
    window: usize,
    count: usize,
    /// Of each phase.
    taps: Vec<Taps>,
}

impl Along {
    /// Results of a phase.
    fn results(&self, r: usize) -> usize {
        (self.count - r.min(self.count)).div_ceil(self.taps.len())
    }
}

pub(super) struct Alone {
    plain: Box<dyn Routine>,
    images: usize,
    groups: usize,
    /// Output features of a group.
    outs: usize,
    rows: Along,
    cols: Along,
    /// Elements of a padded row, and before its first element.
    width: usize,
    before: usize,
    threads: usize,
    isa: Isa,
}

/// The convolution, where features are alone and nothing but a spread is unusual.
pub(super) fn prepare(
    conv: &Conv,
    args: &[Type],
    outs: &[Type],
    plain: impl Fn(&Conv, &[Type], &[Type]) -> Option<Box<dyn Routine>>,
    machine: Machine,
) -> Option<Box<dyn Routine>> {
    let (x, k, y, w) = (&args[0], &args[1], &outs[0], &conv.windows);
    let rank = x.rank() - 2;
    let floats = x.dtype == DType::F32 && conv.out == DType::F32 && machine.isa != Isa::Portable;
    let suits = (1..=2).contains(&rank)
        && k.shape[1] == 1
        && conv.batch_groups == 1
        && k.shape[0] <= OUTS * conv.groups
        && k.shape[2..].iter().all(|&n| n <= NARROW)
        && (LEAST_SPREAD..=8).contains(&w.base_dilation[rank - 1])
        && w.base_dilation.iter().all(|&d| d <= 8)
        && w.strides.iter().all(|&s| s == 1)
        && [x, k, y].iter().all(|t| t.numel() > 0);
    if !floats || !suits {
        return None;
    }
    let along = |a: usize| {
        let (window, spread) = (k.shape[2 + a], w.base_dilation[a]);
        let taps = (0..spread).map(|r| Taps::of(r, window, spread, w.window_dilation[a], w.low[a])).collect();
        Along { base: x.shape[2 + a], window, count: y.shape[2 + a], taps }
    };
    let cols = along(rank - 1);
    let rows = match rank {
        1 => Along { base: 1, window: 1, count: 1, taps: vec![Taps::ONE] },
        _ => along(0),
    };
    // Elements that phases meet, from the first on.
    let ends = cols.taps.iter().enumerate().filter(|(_, t)| t.count > 0).map(|(r, t)| {
        let last = cols.results(r) as i64 + t.at + ((t.count - 1) * t.dilation) as i64;
        (t.at, last)
    });
    let (least, most) = ends.fold((0, cols.base as i64), |(a, b), (first, last)| (a.min(first), b.max(last)));
    let before = usize::try_from(-least).ok()?;
    let width = (usize::try_from(most).ok()? + before + LANES).next_multiple_of(LANES);
    if width > 1 << 14 {
        return None;
    }
    Some(Box::new(Alone {
        plain: plain(conv, args, outs)?,
        images: x.shape[0],
        groups: conv.groups,
        outs: k.shape[0] / conv.groups,
        rows,
        cols,
        width,
        before,
        threads: machine.threads,
        isa: machine.isa,
    }))
}

impl Alone {
    /// f32 of a padded plane, and of a row of results in phases.
    fn room(&self) -> [usize; 2] {
        [self.rows.base * self.width, self.cols.taps.len() * self.part()]
    }

    fn part(&self) -> usize {
        (self.cols.results(0) + LANES).next_multiple_of(LANES)
    }

    /// The results of one image and group.
    ///
    /// # Safety
    /// Operands are those of the op, the room is as asked for, with zeros where rows are padded, and nobody else has the results.
    #[inline(always)]
    unsafe fn unit<V: Vector<Elem = f32>>(
        &self,
        unit: usize,
        x: *const f32,
        kernel: *const f32,
        y: *mut f32,
        room: *mut f32,
    ) {
        let (rows, cols, group) = (&self.rows, &self.cols, unit % self.groups);
        let (window, part) = (rows.window * cols.window, self.part());
        let phases = room.wrapping_add(self.room()[0]);
        // SAFETY: the caller's promise; rows have room for a vector beyond what phases meet.
        unsafe {
            for r in 0..rows.base {
                let from = x.add((unit * rows.base + r) * cols.base);
                std::ptr::copy_nonoverlapping(from, room.add(r * self.width + self.before), cols.base);
            }
            for o in 0..self.outs {
                let kernel = kernel.add((group * self.outs + o) * window);
                let y = y.add((unit * self.outs + o) * rows.count * cols.count);
                for row in 0..rows.count {
                    let down = rows.taps[row % rows.taps.len()];
                    let place = (row / rows.taps.len()) as i64 + down.at;
                    let there = |t: &usize| (0..rows.base as i64).contains(&(place + (t * down.dilation) as i64));
                    let to = y.add(row * cols.count);
                    for (r, own) in cols.taps.iter().enumerate() {
                        for q in (0..cols.results(r)).step_by(V::LANES) {
                            let mut sum = V::splat(0.0);
                            for t in (0..down.count).filter(there) {
                                let line = (place + (t * down.dilation) as i64) as usize * self.width + self.before + q;
                                let weights = kernel.add((down.first + t * down.step) * cols.window + own.first);
                                for s in 0..own.count {
                                    let at = line as i64 + own.at + (s * own.dilation) as i64;
                                    let w = V::splat(*weights.add(s * own.step));
                                    sum = V::load(room.add(at as usize)).mul_add(w, sum);
                                }
                            }
                            sum.store(phases.add(r * part + q));
                        }
                    }
                    match cols.taps.len() {
                        1 => std::ptr::copy_nonoverlapping(phases, to, cols.count),
                        2 => deal::<2>(phases, part, to, cols.count),
                        3 => deal::<3>(phases, part, to, cols.count),
                        4 => deal::<4>(phases, part, to, cols.count),
                        d => (0..cols.count).for_each(|i| *to.add(i) = *phases.add(i % d * part + i / d)),
                    }
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
    unsafe fn unit_avx512(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.unit::<std::arch::x86_64::__m512>(unit, x, kernel, y, room) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn unit_avx2(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { self.unit::<std::arch::x86_64::__m256>(unit, x, kernel, y, room) }
    }
}

/// Puts the phases of a row together, eight results of each at a time.
///
/// # Safety
/// Phases are `part` apart, and there are `n` results.
#[inline(always)]
unsafe fn deal<const D: usize>(phases: *const f32, part: usize, to: *mut f32, n: usize) {
    const EIGHT: usize = 8;
    let whole = n / D / EIGHT * EIGHT;
    // SAFETY: the caller's promise.
    unsafe {
        for q in (0..whole).step_by(EIGHT) {
            let mut all = [[0.0; D]; EIGHT];
            for r in 0..D {
                let own = phases.add(r * part + q).cast::<[f32; EIGHT]>().read_unaligned();
                for k in 0..EIGHT {
                    all[k][r] = own[k];
                }
            }
            to.add(q * D).cast::<[[f32; D]; EIGHT]>().write_unaligned(all);
        }
        for r in 0..D {
            (whole..(n + D - 1 - r) / D).for_each(|q| *to.add(q * D + r) = *phases.add(r * part + q));
        }
    }
}

impl Routine for Alone {
    fn scratch_bytes(&self) -> usize {
        let own = 4 * self.room().iter().sum::<usize>() * self.threads;
        own.max(self.plain.scratch_bytes())
    }

    unsafe fn run(&self, pool: &Pool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let window = self.rows.window * self.cols.window;
        let weights = self.groups * self.outs * window;
        // SAFETY: the caller's promise.
        unsafe {
            if !std::slice::from_raw_parts(args[1].cast::<f32>(), weights).iter().all(|w| w.is_finite()) {
                return self.plain.run(pool, args, outs, scratch);
            }
        }
        let (x, kernel) = (Raw(args[0].cast_mut().cast::<f32>()), Raw(args[1].cast_mut().cast::<f32>()));
        let (y, scratch) = (Raw(outs[0].cast::<f32>()), Raw(scratch.cast::<f32>()));
        let (units, each) = (self.images * self.groups, self.room().iter().sum::<usize>());
        let work = units * self.outs * self.rows.base * self.cols.base * window;
        in_ranges(pool, units, work, &|range: Range<usize>, worker| {
            let room = scratch.at(worker * each);
            // SAFETY: room is this worker's; what stands around a plane stays as it is from one to the next.
            unsafe { std::ptr::write_bytes(room, 0, each) };
            for unit in range {
                // SAFETY: operands are those the routine was prepared for; room is this worker's, results this unit's.
                unsafe {
                    match self.isa {
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx512 => self.unit_avx512(unit, x.at(0), kernel.at(0), y.at(0), room),
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx2 => self.unit_avx2(unit, x.at(0), kernel.at(0), y.at(0), room),
                        _ => self.unit::<crate::gemm::vector::Plain32>(unit, x.at(0), kernel.at(0), y.at(0), room),
                    }
                }
            }
        });
        Ok(())
    }
}
