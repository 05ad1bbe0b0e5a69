//! Convolution with a dilated input (a transposed convolution, or the input gradient of a strided one) as several convolutions
//! without holes (sub-pixel convolution).
//!
//! With a dilation of `d`, result `d·q + r` along an axis uses input elements only under every `d`-th element of the window (or
//! another step, if the window is dilated), starting with one that depends on `r`. So the results of each phase `r` are a plain
//! convolution of the input with a part of the kernel, and the phases together multiply no hole. Holes are zeros, and an infinite
//! weight times zero is NaN, so a kernel that is not finite uses the general algorithm.

use super::super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::gemm::Isa;
use crate::pool::ThreadPool;
use compiler::Result;
use half::bf16;
use ir::ops::Conv;
use ir::{DType, Type};
use std::ops::Range;

/// The maximum number of spatial axes.
const AXES: usize = 3;

/// The window elements under which results `spread·q + r` use input elements.
#[derive(Clone, Copy)]
pub(super) struct Taps {
    /// The first window element, their number, and the step from one to the next.
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) step: usize,
    /// The input element under the first window element for the first result, and the step between input elements.
    pub(super) at: i64,
    pub(super) dilation: usize,
}

impl Taps {
    pub(super) const ONE: Taps = Taps { first: 0, count: 1, step: 1, at: 0, dilation: 1 };

    /// Returns the window elements of phase `r`, for windows whose elements are `dilation` apart.
    pub(super) fn of(r: usize, window: usize, spread: usize, dilation: usize, low: i64) -> Taps {
        let place = |t: usize| (r + t * dilation) as i64 - low;
        // Of `step` consecutive window elements, at most one overlaps an input element.
        let step = (1..=spread).find(|s| (s * dilation).is_multiple_of(spread)).unwrap_or(spread);
        let first = (0..step).find(|&t| place(t).rem_euclid(spread as i64) == 0).unwrap_or(window);
        Taps {
            first,
            count: window.saturating_sub(first).div_ceil(step),
            step,
            at: place(first).div_euclid(spread as i64),
            dilation: step * dilation / spread,
        }
    }
}

/// The results of one phase.
struct Phase {
    /// The window elements along each axis.
    taps: [Taps; AXES],
    /// `None` where no element of the window overlaps the input.
    routine: Option<Box<dyn OpRoutine>>,
}

pub(super) struct SubPixelConv {
    phases: Vec<Phase>,
    plain: Box<dyn OpRoutine>,
    spread: [usize; AXES],
    /// The kernel: the product of output features and features of a group, and the window sizes.
    rows: usize,
    window: [usize; AXES],
    /// The results: the product of images and features, the sizes, and the sizes of a phase.
    planes: usize,
    count: [usize; AXES],
    part: [usize; AXES],
    dtype: DType,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 ask"))]
    isa: Isa,
}

/// Interleaves `n` elements of a line from two phases.
///
/// # Safety
/// `to` is valid for `n` elements, and each phase for those that it has among them.
#[inline(always)]
unsafe fn interleave_two_phases<T: Copy>(even: *const T, odd: *const T, to: *mut T, n: usize) {
    const LANES: usize = 8;
    let (both, rest) = (n / 2, n % 2);
    let whole = both / LANES * LANES;
    // SAFETY: `to` is valid for `n` elements, `even` for `n.div_ceil(2)`, and `odd` for `n / 2`.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            let (a, b) = (even.add(i).cast::<[T; LANES]>().read(), odd.add(i).cast::<[T; LANES]>().read());
            to.add(2 * i).cast::<[[T; 2]; LANES]>().write(std::array::from_fn(|k| [a[k], b[k]]));
        }
        (whole..both).for_each(|i| to.add(2 * i).cast::<[T; 2]>().write([*even.add(i), *odd.add(i)]));
        if rest == 1 {
            *to.add(n - 1) = *even.add(both);
        }
    }
}

/// Splits `n` elements of a line between the phases; zeros where a phase has none.
///
/// # Safety
/// As for [`paired`].
#[inline(always)]
unsafe fn split_phases<T: Copy + Default, const D: usize>(phases: [Option<*const T>; D], to: *mut T, n: usize) {
    for (r, phase) in phases.into_iter().enumerate() {
        let own = n / D + usize::from(r < n % D);
        // SAFETY: `to` is valid for `n` elements, and phase `r` for the `own` elements of it that are `r` modulo `D`.
        unsafe {
            match phase {
                Some(p) => (0..own).for_each(|q| *to.add(D * q + r) = *p.add(q)),
                None => (0..own).for_each(|q| *to.add(D * q + r) = T::default()),
            }
        }
    }
}

/// Returns the routine if the input is dilated and the other parameters are simple.
pub(super) fn prepare(
    conv: &Conv,
    args: &[Type],
    outs: &[Type],
    plain: impl Fn(&Conv, &[Type], &[Type]) -> Option<Box<dyn OpRoutine>>,
    machine: CpuContext,
) -> Option<Box<dyn OpRoutine>> {
    let (x, k, y, w) = (&args[0], &args[1], &outs[0], &conv.windows);
    let rank = x.rank() - 2;
    let spread_at = |a: usize| w.base_dilation[a] > 1;
    let usual = |a: usize| w.strides[a] == 1;
    let dtype = y.dtype;
    let suits = (1..=AXES).contains(&rank)
        && (0..rank).any(spread_at)
        && (0..rank).all(|a| usual(a) && w.base_dilation[a] <= 8)
        && matches!(dtype, DType::F32 | DType::F64 | DType::BF16)
        && x.dtype == dtype
        && x.numel() > 0
        && y.numel() > 0
        && k.numel() > 0;
    if !suits {
        return None;
    }
    // Use three axes; a missing one has size 1.
    let at = |f: &dyn Fn(usize) -> usize, otherwise: usize| -> [usize; AXES] {
        std::array::from_fn(|i| if i + rank >= AXES { f(i + rank - AXES) } else { otherwise })
    };
    let spread = at(&|a| w.base_dilation[a], 1);
    let window = at(&|a| k.shape[2 + a], 1);
    let count = at(&|a| y.shape[2 + a], 1);
    let part: [usize; AXES] = std::array::from_fn(|i| count[i].div_ceil(spread[i]));
    let mut phases = vec![];
    let all: usize = spread.iter().product();
    for phase in 0..all {
        let phase = [phase / (spread[1] * spread[2]), phase / spread[2] % spread[1], phase % spread[2]];
        let mut taps = [Taps::ONE; AXES];
        let mut sub = Conv { windows: w.clone(), ..conv.clone() };
        let (mut kernel, mut result) = (k.shape.clone(), y.shape.clone());
        for (i, r) in phase.into_iter().enumerate() {
            let Some(a) = (i + rank).checked_sub(AXES) else { continue };
            let own = Taps::of(r, window[i], spread[i], w.window_dilation[a], w.low[a]);
            taps[i] = own;
            let seen = (own.count as i64 - 1) * own.dilation as i64;
            sub.windows.base_dilation[a] = 1;
            sub.windows.window_dilation[a] = own.dilation;
            sub.windows.low[a] = -own.at;
            sub.windows.high[a] = part[i] as i64 - x.shape[2 + a] as i64 + own.at + seen;
            (kernel[2 + a], result[2 + a]) = (own.count, part[i]);
        }
        let routine = match taps.iter().any(|t| t.count == 0) {
            true => None,
            false => {
                let args = [x.clone(), Type::new(k.dtype, &kernel)];
                Some(plain(&sub, &args, &[Type::new(dtype, &result)])?)
            }
        };
        phases.push(Phase { taps, routine });
    }
    Some(Box::new(SubPixelConv {
        phases,
        plain: plain(conv, args, outs)?,
        spread,
        rows: k.shape[0] * k.shape[1],
        window,
        planes: y.shape[0] * y.shape[1],
        count,
        part,
        dtype,
        isa: machine.isa,
    }))
}

impl SubPixelConv {
    /// The bytes of one phase's results.
    fn result(&self) -> usize {
        (self.planes * self.part.iter().product::<usize>() * self.dtype.size()).next_multiple_of(64)
    }

    fn kernel(&self) -> usize {
        (self.rows * self.window.iter().product::<usize>() * self.dtype.size()).next_multiple_of(64)
    }

    /// # Safety
    /// As for [`Routine::run`].
    unsafe fn run_as<T: Copy + Default + 'static>(
        &self,
        pool: &ThreadPool,
        args: &[*const u8],
        outs: &[*mut u8],
        scratch: *mut u8,
    ) -> Result<()> {
        let results = scratch;
        let kernel = results.wrapping_add(self.phases.len() * self.result());
        let rest = kernel.wrapping_add(self.kernel());
        for (i, phase) in self.phases.iter().enumerate() {
            let to = results.wrapping_add(i * self.result());
            let Some(routine) = &phase.routine else { continue };
            // SAFETY: scratch has room for the results of each phase, a kernel, and what the phase needs.
            unsafe {
                self.select_phase_kernel::<T>(args[1].cast(), kernel.cast(), phase.taps);
                routine.run(pool, &[args[0], kernel.cast_const()], &[to], rest)?;
            }
        }
        let (y, from) = (SharedPtr(outs[0].cast::<T>()), SharedPtr(results));
        let [depth, rows, cols] = self.count;
        let lines = self.planes * depth * rows;
        in_ranges(pool, lines, lines * cols, &|range: Range<usize>, _| {
            #[cfg(target_arch = "x86_64")]
            {
                /// # Safety
                /// As for `lines`, and the machine has the target features.
                #[target_feature(enable = "avx2")]
                unsafe fn wide<T: Copy + Default>(p: &SubPixelConv, from: *const u8, y: *mut T, range: Range<usize>) {
                    // SAFETY: `lines` has the contract of this function, and gets its arguments unchanged.
                    unsafe { p.assemble_lines(from, y, range) }
                }
                if self.isa != Isa::Portable {
                    // SAFETY: results of all phases are there; lines are this range's own, and the machine has AVX2.
                    return unsafe { wide(self, from.at(0), y.at(0), range) };
                }
            }
            // SAFETY: as above.
            unsafe { self.assemble_lines(from.at(0), y.at(0), range) }
        });
        Ok(())
    }

    /// Assembles some lines of the result from the lines of the phases.
    ///
    /// # Safety
    /// `from` is valid for the results of all phases, `y` for the whole result, and only this call writes these lines.
    #[inline(always)]
    unsafe fn assemble_lines<T: Copy + Default>(&self, from: *const u8, y: *mut T, range: Range<usize>) {
        let [depth, rows, cols] = self.count;
        let [d, d0, d1] = self.spread;
        let each = self.result();
        let (mut plane, mut row) = (range.start / rows, range.start % rows);
        for line in range {
            let (image, z) = (plane / depth, plane % depth);
            let phases = (z % d * d0 + row % d0) * d1;
            let place = ((image * self.part[0] + z / d) * self.part[1] + row / d0) * self.part[2];
            let there = |r: usize| self.phases[phases + r].routine.is_some();
            let phase = |r: usize| from.wrapping_add((phases + r) * each).cast::<T>().wrapping_add(place);
            // SAFETY: inside the phases' results; the line is this range's own.
            unsafe {
                let to = y.add(line * cols);
                let whole = |r: usize| there(r).then(|| phase(r));
                match d1 {
                    _ if !(0..d1).any(there) => std::slice::from_raw_parts_mut(to, cols).fill(T::default()),
                    1 => std::ptr::copy_nonoverlapping(phase(0), to, cols),
                    2 if there(0) && there(1) => interleave_two_phases(phase(0), phase(1), to, cols),
                    2 => split_phases([0, 1].map(whole), to, cols),
                    3 => split_phases([0, 1, 2].map(whole), to, cols),
                    4 => split_phases([0, 1, 2, 3].map(whole), to, cols),
                    _ => {
                        for r in 0..d1 {
                            let n = (cols - r.min(cols)).div_ceil(d1);
                            for q in 0..n {
                                *to.add(r + q * d1) = if there(r) { *phase(r).add(q) } else { T::default() };
                            }
                        }
                    }
                }
            }
            row += 1;
            if row == rows {
                (plane, row) = (plane + 1, 0);
            }
        }
    }

    /// Copies a phase's part of the kernel.
    unsafe fn select_phase_kernel<T: Copy>(&self, from: *const T, to: *mut T, [deep, down, across]: [Taps; AXES]) {
        let [w, w0, w1] = self.window;
        let mut at = 0;
        for i in 0..self.rows * deep.count {
            let row = i / deep.count * w + deep.first + i % deep.count * deep.step;
            for i in 0..down.count {
                for j in 0..across.count {
                    let (i, j) = (down.first + i * down.step, across.first + j * across.step);
                    // SAFETY: both sides are valid for the window, inside which picked elements are.
                    unsafe { *to.add(at) = *from.add((row * w0 + i) * w1 + j) };
                    at += 1;
                }
            }
        }
    }
}

impl OpRoutine for SubPixelConv {
    fn scratch_bytes(&self) -> usize {
        let most = self.phases.iter().filter_map(|p| Some(p.routine.as_ref()?.scratch_bytes())).max().unwrap_or(0);
        (self.phases.len() * self.result() + self.kernel() + most).max(self.plain.scratch_bytes())
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let n = self.rows * self.window.iter().product::<usize>();
        // SAFETY: `Routine::run` requires operands and result to be valid for their types, and scratch for
        // `scratch_bytes`; the kernel has `n` elements.
        unsafe {
            let finite = match self.dtype {
                DType::F64 => std::slice::from_raw_parts(args[1].cast::<f64>(), n).iter().all(|w| w.is_finite()),
                DType::BF16 => std::slice::from_raw_parts(args[1].cast::<bf16>(), n).iter().all(|w| w.is_finite()),
                _ => std::slice::from_raw_parts(args[1].cast::<f32>(), n).iter().all(|w| w.is_finite()),
            };
            match (finite, self.dtype) {
                (false, _) => self.plain.run(pool, args, outs, scratch),
                (_, DType::F64) => self.run_as::<f64>(pool, args, outs, scratch),
                (_, DType::BF16) => self.run_as::<u16>(pool, args, outs, scratch),
                _ => self.run_as::<f32>(pool, args, outs, scratch),
            }
        }
    }
}
