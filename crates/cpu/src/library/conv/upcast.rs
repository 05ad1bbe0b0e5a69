//! Convolution of 16-bit floats in f32, where the machine has no faster method:
//! depthwise convolutions, gradients, dilated inputs.
//!
//! Products of 16-bit floats are exact in f32 and are summed in f32 in any case; results are rounded once.

use super::super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::pool::ThreadPool;
use compiler::Result;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use ir::ops::Conv;
use ir::{DType, Type};
use std::ops::Range;

struct UpcastConv {
    f32: Box<dyn OpRoutine>,
    dtype: DType,
    out: DType,
    /// The number of elements of both operands and of the result.
    counts: [usize; 3],
}

/// Returns a routine that computes a convolution of 16-bit floats in f32.
pub(super) fn prepare(conv: &Conv, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let dtype = args[0].dtype;
    if !matches!(dtype, DType::BF16 | DType::F16) || (conv.out != dtype && conv.out != DType::F32) {
        return None;
    }
    let wide = |t: &Type| Type::new(DType::F32, &t.shape);
    let conv = Conv { out: DType::F32, ..conv.clone() };
    let routine = super::prepare(&conv, &[wide(&args[0]), wide(&args[1])], &[wide(&outs[0])], machine)?;
    let counts = [args[0].numel(), args[1].numel(), outs[0].numel()];
    Some(Box::new(UpcastConv { f32: routine, dtype, out: outs[0].dtype, counts }))
}

/// Converts elements between f32 and 16-bit floats, split over threads.
///
/// # Safety
/// Both are valid for `n`.
unsafe fn convert_parallel(
    pool: &ThreadPool,
    dtype: DType,
    narrow: SharedPtr<u8>,
    wide: SharedPtr<f32>,
    n: usize,
    widen: bool,
) {
    in_ranges(pool, n, n, &|range: Range<usize>, _| {
        // SAFETY: `narrow` and `wide` are valid for `n` elements, of which this range is used by this call alone.
        unsafe {
            let wide = std::slice::from_raw_parts_mut(wide.at(range.start), range.len());
            let narrow = narrow.at(2 * range.start);
            match dtype {
                DType::BF16 => {
                    let narrow = std::slice::from_raw_parts_mut(narrow.cast::<bf16>(), range.len());
                    if widen { narrow.convert_to_f32_slice(wide) } else { narrow.convert_from_f32_slice(wide) }
                }
                _ => {
                    let narrow = std::slice::from_raw_parts_mut(narrow.cast::<f16>(), range.len());
                    if widen { narrow.convert_to_f32_slice(wide) } else { narrow.convert_from_f32_slice(wide) }
                }
            }
        }
    });
}

impl UpcastConv {
    /// The number of f32 elements of both operands, and of the result if it is rounded.
    fn sizes(&self) -> [usize; 3] {
        let [x, k, y] = self.counts;
        [x, k, if self.out == DType::F32 { 0 } else { y }].map(|n| n.next_multiple_of(16))
    }
}

impl OpRoutine for UpcastConv {
    fn scratch_bytes(&self) -> usize {
        4 * self.sizes().iter().sum::<usize>() + self.f32.scratch_bytes()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let ([x, k, y], [in_x, in_k, in_y]) = (self.counts, self.sizes());
        let own = SharedPtr(scratch.cast::<f32>());
        let (kernel, result) = (SharedPtr(own.at(in_x)), SharedPtr(own.at(in_x + in_k)));
        let rest = own.at(in_x + in_k + in_y).cast::<u8>();
        let narrow = self.out != DType::F32;
        // SAFETY: `Routine::run` requires operands and result to be valid for their types, and scratch for
        // `scratch_bytes`, of which the parts are disjoint and as large as what they hold.
        unsafe {
            convert_parallel(pool, self.dtype, SharedPtr(args[0].cast_mut()), own, x, true);
            convert_parallel(pool, self.dtype, SharedPtr(args[1].cast_mut()), kernel, k, true);
            let to = if narrow { result.at(0).cast::<u8>() } else { outs[0] };
            self.f32.run(pool, &[own.at(0).cast(), kernel.at(0).cast()], &[to], rest)?;
            if narrow {
                convert_parallel(pool, self.out, SharedPtr(outs[0]), result, y, false);
            }
        }
        Ok(())
    }
}
