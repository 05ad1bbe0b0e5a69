//! The vector loops of attention over transposed scores, for each instruction set.
//!
//! A block of scores has one row per key, with `width` queries side by side.

use super::super::simd::{Wide, exp, tanh};
use crate::gemm::Isa;
use crate::gemm::vector::{Load, Plain32};
use half::{bf16, f16};

/// The maximum number of queries in a block.
pub(super) const MAX_WIDTH: usize = 64;

/// One number per query of a block.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct PerLane(pub(super) [f32; MAX_WIDTH]);

impl PerLane {
    pub(super) fn new(x: f32) -> PerLane {
        PerLane([x; MAX_WIDTH])
    }
}

/// A block of transposed scores.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    pub(super) at: *mut f32,
    pub(super) keys: usize,
    pub(super) width: usize,
    /// The position of the first key.
    pub(super) first: usize,
}

/// The state of the online softmax of each query.
#[derive(Clone, Copy)]
pub(super) struct SoftmaxState {
    pub(super) max: PerLane,
    pub(super) sum: PerLane,
    /// The factor for the sums before the last block.
    pub(super) correction: PerLane,
    /// Whether any factor is not 1.
    pub(super) corrects: bool,
}

/// The kernels of one instruction set. Safety: pointers are valid for the sizes, and the machine has the instructions.
pub(super) struct AttentionKernels {
    /// Writes -inf where the key is not in `[lo, hi)` of the query.
    pub(super) hide: unsafe fn(Scores, &PerLane, &PerLane),
    /// Computes `c·tanh(s / c)`, and writes `tanh(s / c)` to another block unless that is null.
    pub(super) cap: unsafe fn(Scores, f32, *mut f32),
    /// Adds `-slope·|position - key|`.
    pub(super) alibi: unsafe fn(Scores, &PerLane, &PerLane),
    /// Converts scores to weights `exp(s - max)` and updates the state.
    pub(super) softmax: unsafe fn(Scores, &mut SoftmaxState),
    /// Multiplies rows by one number per lane.
    pub(super) scale: unsafe fn(Scores, &PerLane),
    /// Computes `p = exp(s - lse)`, then `dp = p·(dp + row)`, multiplied by `1 - t²` if `t` is given.
    pub(super) gradient: unsafe fn(Scores, *mut f32, &PerLane, &PerLane, *const f32),
    /// Returns the dot product of two rows.
    pub(super) dot: unsafe fn(*const f32, *const f32, usize) -> f32,
    /// Computes `dst[d·dst_width + i] = src[i·src_width + d]` for a number of rows `i` and columns `d`.
    pub(super) transpose: unsafe fn(*mut f32, usize, *const f32, usize, usize, usize),
    /// Upcasts adjacent elements.
    pub(super) from_bf16: unsafe fn(*const bf16, *mut f32, usize),
    pub(super) from_f16: unsafe fn(*const f16, *mut f32, usize),
}

/// # Safety
/// `s` is valid for its size, and the machine has the target features.
#[inline(always)]
unsafe fn hide<V: Wide>(s: Scores, lo: &PerLane, hi: &PerLane) {
    // SAFETY: the block of scores is valid for its size, and the machine has the target features.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        for w in (0..s.width).step_by(V::LANES) {
            let (lo, hi) = (V::load(lo.0.as_ptr().add(w)), V::load(hi.0.as_ptr().add(w)));
            for k in 0..s.keys {
                let (p, key) = (s.at.add(k * s.width + w), V::splat((s.first + k) as f32));
                let x = V::select_lt(key, hi, V::load(p), none);
                V::select_lt(key, lo, none, x).store(p);
            }
        }
    }
}

/// # Safety
/// `s` is valid for its size, `keep` for as many elements or null, and the machine has the target features.
#[inline(always)]
unsafe fn cap<V: Wide>(s: Scores, c: f32, keep: *mut f32) {
    // SAFETY: as above.
    unsafe {
        let (c, inverse) = (V::splat(c), V::splat(1.0 / c));
        for i in (0..s.keys * s.width).step_by(V::LANES) {
            let t = tanh(V::load(s.at.add(i)).mul(inverse));
            if !keep.is_null() {
                t.store(keep.add(i));
            }
            t.mul(c).store(s.at.add(i));
        }
    }
}

/// # Safety
/// `s` is valid for its size, and the machine has the target features.
#[inline(always)]
unsafe fn alibi<V: Wide>(s: Scores, slopes: &PerLane, positions: &PerLane) {
    // SAFETY: as above.
    unsafe {
        for w in (0..s.width).step_by(V::LANES) {
            let slope = V::load(slopes.0.as_ptr().add(w));
            let position = V::load(positions.0.as_ptr().add(w));
            for k in 0..s.keys {
                let (p, key) = (s.at.add(k * s.width + w), V::splat((s.first + k) as f32));
                let ahead = position.sub(key).max(key.sub(position));
                ahead.mul(slope).mul_add(V::splat(-1.0), V::load(p)).store(p);
            }
        }
    }
}

/// Processes two vectors of queries at a time, so that their dependency chains overlap.
///
/// # Safety
/// `s` is valid for its size, and the machine has the target features.
#[inline(always)]
unsafe fn softmax<V: Wide>(s: Scores, state: &mut SoftmaxState) {
    // SAFETY: as above; a block's width is a whole number of pairs of vectors.
    unsafe {
        state.corrects = false;
        for w in (0..s.width).step_by(2 * V::LANES) {
            let lanes = |x: &PerLane, j: usize| V::load(x.0.as_ptr().add(w + j * V::LANES));
            let none = V::splat(f32::NEG_INFINITY);
            let mut top = [[none; 2]; 2];
            let mut k = 0;
            while k + 2 <= s.keys {
                for (i, top) in top.iter_mut().enumerate() {
                    for (j, top) in top.iter_mut().enumerate() {
                        *top = V::load(s.at.add((k + i) * s.width + w + j * V::LANES)).max(*top);
                    }
                }
                k += 2;
            }
            if k < s.keys {
                for (j, top) in top[0].iter_mut().enumerate() {
                    *top = V::load(s.at.add(k * s.width + w + j * V::LANES)).max(*top);
                }
            }
            let mut base = [none; 2];
            let mut sum = [V::splat(0.0); 2];
            for j in 0..2 {
                let before = lanes(&state.max, j);
                let max = top[0][j].max(top[1][j]).max(before);
                // Where no key was seen yet, the weights are exp(-inf - 0) = 0.
                let finite = V::select_lt(none, max, max, V::splat(0.0));
                let correction = exp(before.sub(finite));
                max.store(state.max.0.as_mut_ptr().add(w + j * V::LANES));
                correction.store(state.correction.0.as_mut_ptr().add(w + j * V::LANES));
                sum[j] = lanes(&state.sum, j).mul(correction);
                base[j] = finite;
            }
            for k in 0..s.keys {
                for j in 0..2 {
                    let p = s.at.add(k * s.width + w + j * V::LANES);
                    let e = exp(V::load(p).sub(base[j]));
                    sum[j] = sum[j].add(e);
                    e.store(p);
                }
            }
            (0..2).for_each(|j| sum[j].store(state.sum.0.as_mut_ptr().add(w + j * V::LANES)));
        }
        state.corrects = state.correction.0[..s.width].iter().any(|&c| c != 1.0);
    }
}

/// # Safety
/// `s` is valid for its size, and the machine has the target features.
#[inline(always)]
unsafe fn scale<V: Wide>(s: Scores, by: &PerLane) {
    // SAFETY: as above.
    unsafe {
        for w in (0..s.width).step_by(V::LANES) {
            let by = V::load(by.0.as_ptr().add(w));
            for k in 0..s.keys {
                let p = s.at.add(k * s.width + w);
                V::load(p).mul(by).store(p);
            }
        }
    }
}

/// # Safety
/// `s` and `dp` are valid for the size of `s`, and the machine has the target features.
#[inline(always)]
unsafe fn gradient<V: Wide>(s: Scores, dp: *mut f32, lse: &PerLane, row: &PerLane, tanh: *const f32) {
    // SAFETY: as above.
    unsafe {
        for w in (0..s.width).step_by(V::LANES) {
            let (lse, row) = (V::load(lse.0.as_ptr().add(w)), V::load(row.0.as_ptr().add(w)));
            for k in 0..s.keys {
                let i = k * s.width + w;
                let p = exp(V::load(s.at.add(i)).sub(lse));
                p.store(s.at.add(i));
                let mut ds = p.mul(V::load(dp.add(i)).add(row));
                if !tanh.is_null() {
                    let t = V::load(tanh.add(i));
                    ds = ds.mul(V::splat(1.0).sub(t.mul(t)));
                }
                ds.store(dp.add(i));
            }
        }
    }
}

/// # Safety
/// `a` and `b` are valid for `n` elements, and the machine has the target features.
#[inline(always)]
unsafe fn dot<V: Wide>(a: *const f32, b: *const f32, n: usize) -> f32 {
    // SAFETY: as above.
    unsafe {
        let mut sum = V::splat(0.0);
        let whole = n / V::LANES * V::LANES;
        for i in (0..whole).step_by(V::LANES) {
            sum = V::load(a.add(i)).mul_add(V::load(b.add(i)), sum);
        }
        if whole < n {
            sum = V::load_first(a.add(whole), n - whole).mul_add(V::load_first(b.add(whole), n - whole), sum);
        }
        sum.sum()
    }
}

/// # Safety
/// `src` is valid for `lines` lines of `depth` elements, `src_width` apart, `dst` for their columns, `dst_width` apart,
/// and the machine has the target features.
#[inline(always)]
unsafe fn transpose<V: Wide>(
    dst: *mut f32,
    dst_width: usize,
    src: *const f32,
    src_width: usize,
    lines: usize,
    depth: usize,
) {
    // SAFETY: as above.
    unsafe {
        let quads = lines / 4 * 4;
        for i in (0..quads).step_by(4) {
            V::transpose_4(dst.add(i), dst_width, src.add(i * src_width), src_width as isize, depth);
        }
        for i in quads..lines {
            (0..depth).for_each(|d| *dst.add(d * dst_width + i) = *src.add(i * src_width + d));
        }
    }
}

/// # Safety
/// `src` and `dst` are valid for `n` elements, and the machine has the target features.
#[inline(always)]
unsafe fn widen<S: Copy + Default, V: Wide + Load<S>>(src: *const S, dst: *mut f32, n: usize) {
    // SAFETY: as above.
    unsafe {
        let whole = n / V::LANES * V::LANES;
        for i in (0..whole).step_by(V::LANES) {
            <V as Load<S>>::load_from(src.add(i)).store(dst.add(i));
        }
        if whole < n {
            <V as Load<S>>::load_first_from(src.add(whole), n - whole).store_first(dst.add(whole), n - whole);
        }
    }
}

/// Wraps every loop in a function that has the target features.
macro_rules! loops {
    ($name:ident, $v:ty $(, $feature:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// `s` is valid for its size, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn hide(s: Scores, lo: &PerLane, hi: &PerLane) {
                // SAFETY: `hide` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::hide::<$v>(s, lo, hi) }
            }

            /// # Safety
            /// `s` is valid for its size, `keep` for as many elements or null, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn cap(s: Scores, c: f32, keep: *mut f32) {
                // SAFETY: `cap` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::cap::<$v>(s, c, keep) }
            }

            /// # Safety
            /// `s` is valid for its size, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn alibi(s: Scores, slopes: &PerLane, positions: &PerLane) {
                // SAFETY: `alibi` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::alibi::<$v>(s, slopes, positions) }
            }

            /// # Safety
            /// `s` is valid for its size, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn softmax(s: Scores, state: &mut SoftmaxState) {
                // SAFETY: `softmax` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::softmax::<$v>(s, state) }
            }

            /// # Safety
            /// `s` is valid for its size, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn scale(s: Scores, by: &PerLane) {
                // SAFETY: `scale` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::scale::<$v>(s, by) }
            }

            /// # Safety
            /// `s` and `dp` are valid for the size of `s`, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn gradient(s: Scores, dp: *mut f32, lse: &PerLane, row: &PerLane, t: *const f32) {
                // SAFETY: `gradient` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::gradient::<$v>(s, dp, lse, row, t) }
            }

            /// # Safety
            /// `a` and `b` are valid for `n` elements, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn dot(a: *const f32, b: *const f32, n: usize) -> f32 {
                // SAFETY: `dot` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::dot::<$v>(a, b, n) }
            }

            /// # Safety
            /// `src` is valid for `lines` lines of `depth` elements, `src_width` apart, `dst` for their columns,
            /// `dst_width` apart, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn transpose(dst: *mut f32, dst_width: usize, src: *const f32, src_width: usize, lines: usize, depth: usize) {
                // SAFETY: `transpose` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::transpose::<$v>(dst, dst_width, src, src_width, lines, depth) }
            }

            /// # Safety
            /// As for `widen`, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn from_bf16(src: *const bf16, dst: *mut f32, n: usize) {
                // SAFETY: `widen` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::widen::<bf16, $v>(src, dst, n) }
            }

            /// # Safety
            /// As for `widen`, and the machine has the target features.
            $(#[target_feature(enable = $feature)])?
            unsafe fn from_f16(src: *const f16, dst: *mut f32, n: usize) {
                // SAFETY: `widen` has the contract of this function, and gets its arguments unchanged.
                unsafe { super::widen::<f16, $v>(src, dst, n) }
            }

            pub(super) static LOOPS: AttentionKernels =
                AttentionKernels { hide, cap, alibi, softmax, scale, gradient, dot, transpose, from_bf16, from_f16 };
        }
    };
}

loops!(portable, Plain32);
#[cfg(target_arch = "x86_64")]
loops!(avx2, std::arch::x86_64::__m256, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
loops!(avx512, std::arch::x86_64::__m512, "avx512f,avx512vl,avx512dq,avx512bw");

/// Returns the kernels of an instruction set.
pub(super) fn kernels(isa: Isa) -> &'static AttentionKernels {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &avx2::LOOPS,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &avx512::LOOPS,
        _ => &portable::LOOPS,
    }
}
