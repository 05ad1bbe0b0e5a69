//! Convolution over three or more axes as a convolution over all axes but the first:
//! the input planes under a window's first axis become additional features.
//!
//! Result `z` along the first axis uses some planes of the input. For all results, these planes are copied, with zeros where the
//! window exceeds the input, as images that have the features of all planes; the kernel already has this layout. With an input
//! dilation of `d` along the axis, results `d·q + r` use only the planes under every `d`-th element of the window: each phase `r`
//! has a part of the kernel, and no hole is multiplied. Holes are zeros, and an infinite weight times zero is NaN, so a kernel
//! that is not finite uses the general algorithm.

use super::super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use super::sub_pixel::Taps;
use crate::pool::ThreadPool;
use compiler::Result;
use half::{bf16, f16};
use ir::ops::Conv;
use ir::{DType, Type};
use std::ops::Range;

/// The maximum number of elements of copied planes; larger inputs are processed in groups of images.
pub(super) const PLANES: usize = 1 << 20;

/// The results of one phase.
struct Phase {
    /// The number of results along the axis.
    count: usize,
    /// The kernel elements of the phase along the axis.
    taps: Taps,
    /// `None` where no element of the window overlaps the input.
    routine: Option<Box<dyn OpRoutine>>,
}

struct Conv3dAs2d {
    phases: Vec<Phase>,
    /// The general routine; `None` without dilation.
    plain: Option<Box<dyn OpRoutine>>,
    spread: usize,
    /// The number of planes from one result to the next.
    stride: i64,
    /// The number of images of the input and of the result, the number per pass, and the features of both.
    images: [usize; 2],
    chunk: usize,
    features: [usize; 2],
    /// The size of the axis in the input, the result and the window.
    depth: [usize; 2],
    window: usize,
    /// The number of elements of a plane of the input, the result and the kernel; the number of rows of the kernel.
    plane: [usize; 3],
    rows: usize,
    dtype: DType,
    /// The bytes of an element of the operands and of the result.
    size: [usize; 2],
}

/// Returns the routine of a convolution with at least three axes that is not depthwise.
pub(super) fn prepare(conv: &Conv, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let (x, k, y, w) = (&args[0], &args[1], &outs[0], &conv.windows);
    let floats = matches!(x.dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16);
    let whole = [x, k, y].iter().all(|t| t.numel() > 0);
    let spread = *w.base_dilation.first()?;
    let usual = spread == 1 || (w.strides[0] == 1 && spread <= 8);
    // Depthwise convolutions, and kernel gradients with few features, are computed in `depthwise`.
    let groups = conv.groups * conv.batch_groups;
    let alone = k.shape[0] == groups && (groups > 1 || k.shape.last() > y.shape.last());
    if x.rank() < 5 || !floats || !whole || !usual || alone {
        return None;
    }
    let (depth, window) = ([x.shape[2], y.shape[2]], k.shape[2]);
    let product = |t: &Type| t.shape[3..].iter().product::<usize>();
    let stride = i64::try_from(w.strides[0]).ok()?;
    let mut windows = w.clone();
    windows.strides.remove(0);
    windows.low.remove(0);
    windows.high.remove(0);
    windows.base_dilation.remove(0);
    windows.window_dilation.remove(0);
    let sub = Conv { windows, ..conv.clone() };
    // Split the images into equal groups; convolutions with batch groups need all images at once.
    let most = depth[1] * x.shape[1] * window.div_ceil(spread) * product(x);
    let fits = |n: &usize| y.shape[0].is_multiple_of(*n) && n * most <= PLANES;
    let chunk = match conv.batch_groups {
        1 => (1..=y.shape[0]).rev().find(fits).unwrap_or(1),
        _ => y.shape[0],
    };
    let mut phases = vec![];
    for r in 0..spread {
        let taps = Taps::of(r, window, spread, w.window_dilation[0], w.low[0]);
        let count = depth[1].saturating_sub(r).div_ceil(spread);
        let of = |t: &Type, images: usize, features: usize| {
            Type::new(t.dtype, &[&[images, features][..], &t.shape[3..]].concat())
        };
        let routine = if taps.count * count == 0 {
            None
        } else {
            let planes = of(x, x.shape[0] / y.shape[0] * chunk * count, x.shape[1] * taps.count);
            let (kernel, result) = (of(k, k.shape[0], k.shape[1] * taps.count), of(y, chunk * count, y.shape[1]));
            Some(super::prepare(&sub, &[planes, kernel], &[result], machine)?)
        };
        phases.push(Phase { count, taps, routine });
    }
    Some(Box::new(Conv3dAs2d {
        phases,
        plain: if spread > 1 { Some(super::prepare_direct(conv, args, outs, machine)?) } else { None },
        spread,
        stride,
        images: [x.shape[0], y.shape[0]],
        chunk,
        features: [x.shape[1], y.shape[1]],
        depth,
        window,
        plane: [product(x), product(y), product(k)],
        rows: k.shape[0] * k.shape[1],
        dtype: x.dtype,
        size: [x.dtype.size(), y.dtype.size()],
    }))
}

/// Returns whether all elements are finite.
///
/// # Safety
/// `p` is valid for `n` elements of `dtype`.
unsafe fn all_finite(dtype: DType, p: *const u8, n: usize) -> bool {
    // SAFETY: `p` is valid for `n` elements of `dtype`.
    unsafe {
        match dtype {
            DType::F64 => std::slice::from_raw_parts(p.cast::<f64>(), n).iter().all(|w| w.is_finite()),
            DType::F32 => std::slice::from_raw_parts(p.cast::<f32>(), n).iter().all(|w| w.is_finite()),
            DType::BF16 => std::slice::from_raw_parts(p.cast::<bf16>(), n).iter().all(|w| w.is_finite()),
            _ => std::slice::from_raw_parts(p.cast::<f16>(), n).iter().all(|w| w.is_finite()),
        }
    }
}

impl Conv3dAs2d {
    /// The bytes of the copied planes, of a phase's part of the kernel, and of its results.
    fn sizes(&self) -> [usize; 3] {
        let most = |f: &dyn Fn(&Phase) -> usize| self.phases.iter().map(f).max().unwrap_or(0);
        let images = self.images[0] / self.images[1] * self.chunk;
        let planes = most(&|p| images * p.count * self.features[0] * p.taps.count * self.plane[0] * self.size[0]);
        let kernel = most(&|p| self.rows * p.taps.count * self.plane[2] * self.size[0]);
        let results = most(&|p| self.chunk * p.count * self.features[1] * self.plane[1] * self.size[1]);
        [planes, if self.spread > 1 { kernel } else { 0 }, results].map(|n| n.next_multiple_of(64))
    }

    /// Copies the planes that a phase's results use, for some images.
    unsafe fn copy_planes(
        &self,
        pool: &ThreadPool,
        phase: &Phase,
        images: Range<usize>,
        x: SharedPtr<u8>,
        to: SharedPtr<u8>,
    ) {
        let (bytes, features) = (self.plane[0] * self.size[0], self.features[0] * phase.taps.count);
        let all = images.len() * phase.count * features;
        in_ranges(pool, all, all * bytes / 8, &|range: Range<usize>, _| {
            for i in range {
                let (image, feature) = (i / features, i % features);
                let (image, q) = (images.start + image / phase.count, image % phase.count);
                let (feature, t) = (feature / phase.taps.count, feature % phase.taps.count);
                let z = phase.taps.at + q as i64 * self.stride + (t * phase.taps.dilation) as i64;
                // SAFETY: planes of the input, and of the copy that are this range's.
                unsafe {
                    match usize::try_from(z).ok().filter(|&z| z < self.depth[0]) {
                        Some(z) => {
                            let from = x.at(((image * self.features[0] + feature) * self.depth[0] + z) * bytes);
                            std::ptr::copy_nonoverlapping(from, to.at(i * bytes), bytes);
                        }
                        None => to.at(i * bytes).write_bytes(0, bytes),
                    }
                }
            }
        });
    }

    /// Copies a phase's results to their positions; zeros where there are none.
    unsafe fn copy_results(
        &self,
        pool: &ThreadPool,
        phase: &Phase,
        r: usize,
        first: usize,
        from: SharedPtr<u8>,
        y: SharedPtr<u8>,
    ) {
        let (bytes, outs) = (self.plane[1] * self.size[1], self.features[1]);
        let all = self.chunk * phase.count * outs;
        in_ranges(pool, all, all * bytes / 8, &|range: Range<usize>, _| {
            for i in range {
                let (image, o) = (i / outs, i % outs);
                let (image, q) = (first + image / phase.count, image % phase.count);
                let to = y.at(((image * outs + o) * self.depth[1] + r + q * self.spread) * bytes);
                // SAFETY: planes of the phase's results, each of which has one place.
                unsafe {
                    match phase.routine {
                        Some(_) => std::ptr::copy_nonoverlapping(from.at(i * bytes), to, bytes),
                        None => to.write_bytes(0, bytes),
                    }
                }
            }
        });
    }

    /// Copies a phase's part of the kernel.
    unsafe fn select_phase_kernel(&self, phase: &Phase, kernel: *const u8, to: *mut u8) {
        let bytes = self.plane[2] * self.size[0];
        let taps = phase.taps;
        for i in 0..self.rows * taps.count {
            let (row, t) = (i / taps.count, i % taps.count);
            let from = (row * self.window + taps.first + t * taps.step) * bytes;
            // SAFETY: both sides are valid for the window, inside which picked elements are.
            unsafe { std::ptr::copy_nonoverlapping(kernel.add(from), to.add(i * bytes), bytes) };
        }
    }
}

impl OpRoutine for Conv3dAs2d {
    fn scratch_bytes(&self) -> usize {
        let own: usize = self.sizes().iter().sum();
        let most = self.phases.iter().filter_map(|p| Some(p.routine.as_ref()?.scratch_bytes())).max().unwrap_or(0);
        (own + most).max(self.plain.as_ref().map_or(0, |p| p.scratch_bytes()))
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        // SAFETY: `Routine::run` requires operands and result to be valid for their types, and scratch for
        // `scratch_bytes`, of which the parts are disjoint and as large as what they hold.
        unsafe {
            if let Some(plain) = &self.plain
                && !all_finite(self.dtype, args[1], self.rows * self.window * self.plane[2])
            {
                return plain.run(pool, args, outs, scratch);
            }
            let [planes, kernel, results] = self.sizes();
            let copied = SharedPtr(scratch);
            let picked = copied.at(planes);
            let result = SharedPtr(picked.wrapping_add(kernel));
            let rest = result.at(results);
            let (x, y) = (SharedPtr(args[0].cast_mut()), SharedPtr(outs[0]));
            let each = self.images[0] / self.images[1];
            for first in (0..self.images[1]).step_by(self.chunk) {
                for (r, phase) in self.phases.iter().enumerate() {
                    if let Some(routine) = &phase.routine {
                        self.copy_planes(pool, phase, first * each..(first + self.chunk) * each, x, copied);
                        let mut kernel = args[1];
                        if self.spread > 1 {
                            self.select_phase_kernel(phase, args[1], picked);
                            kernel = picked;
                        }
                        routine.run(pool, &[copied.at(0).cast_const(), kernel], &[result.at(0)], rest)?;
                    }
                    self.copy_results(pool, phase, r, first, result, y);
                }
            }
        }
        Ok(())
    }
}
