//! Vector-matrix products. The matrix is not reused, so the goal is to stream it once at full bandwidth.

#![expect(clippy::needless_range_loop, reason = "indices name registers, several arrays at a time")]
//!
//! There are two loop orders, chosen by the matrix's unit stride:
//! - along the results: `y += x[d]·matrix[d, ..]` for several `d` at a time.
//!   `y` stays in L1; for long k there is an additional sum in f64.
//! - along k: one dot product per result, with four vectors of partial sums and a fixed reduction tree. Long products are split into
//!   blocks whose sums are added in f64. Rows of large matrices are read one after another.

use half::{bf16, f16};
use ir::DType;

#[cfg(target_arch = "x86_64")]
use super::bf16_gemv;
use super::epilogue::{FinishedTile, write_tile};
use super::kernel::HasKernels;
use super::pack::upcast;
use super::problem::{GemmOperand, GemmProblem, OperandSource, OutputKind};
use super::run::GemmRun;
use super::vector::{Float, Isa, Load, Plain32, Plain64, PlainI32, Vector};
use crate::pool::{ThreadPool, contiguous_share};
use crate::thresholds::Threshold;
use std::ops::Range;

/// The number of results that stay in L1 while the loop over k runs.
const CHUNK: usize = 2048;
/// The number of rows of the matrix that are read side by side.
const STREAMS: usize = 8;
/// The number of vectors of partial sums of a dot product.
const SUMS: usize = 4;
/// The number of products in a block. If k is longer than two blocks, the sums of the blocks are added in f64.
pub(super) const ALONG: usize = 2048;
/// The number of elements of an i8 vector that are processed at a time.
const BYTES: usize = 2048;
/// The number of products in a block where each result is one chain of additions.
pub(super) const CHAIN: usize = 64;
/// The software prefetch distance in bytes. The hardware prefetcher stops at the end of each page.
const AHEAD: usize = 6 << 10;
/// The size in bytes of a part of a matrix above which its rows are read one after another: memory is up to twice as fast for one
/// stream as for two alternating streams.
/// Reading two rows at a time shares the vector loads, which pays where the rows are in cache.
const STREAMED: usize = 1 << 18;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("gemv.chunk", CHUNK, "results: beyond, they are computed in chunks"),
    Threshold::new("gemv.streams", STREAMS, "depth: from here several rows of the matrix are read side by side"),
    Threshold::new("gemv.sums", SUMS * 16, "depth: from here a dot product has several vectors of sums"),
    Threshold::new("gemv.along", 2 * ALONG, "depth of dot products: beyond, blocks are added up in f64"),
    Threshold::new("gemv.bytes", BYTES, "depth of a product of i8: beyond, the vector is taken in parts"),
    Threshold::new(
        "gemv.streamed",
        STREAMED / 4,
        "elements of a part of a matrix in f32: beyond, rows are read one by one",
    ),
    Threshold::new("gemv.chain", 2 * CHAIN, "depth of combinations of rows: beyond, blocks are added up in f64"),
];

/// `y[j] = Σ x[d]·matrix[d·along_k + j·along_y]`, where the matrix has elements of type `S`.
pub(crate) struct Product<T> {
    pub(super) x: *const T,
    pub(super) matrix: *const u8,
    pub(super) along_k: isize,
    pub(super) along_y: isize,
    pub(super) y: *mut T,
    pub(super) k: usize,
    pub(super) n: usize,
}

/// Computes a vector-matrix (m = 1) or matrix-vector (n = 1) product on one thread, in the scratch of `part`.
///
/// # Safety
/// As for [`super::Plan::run`]; the plan's path is `Gemv`.
pub(crate) unsafe fn run<T: HasKernels>(run: &GemmRun<T>, batch: usize, part: usize) {
    // SAFETY: `Plan::run` requires operands, result and scratch to be valid for the problem; part `part` of the scratch
    // is used by this call alone.
    unsafe {
        let y = results(run, part);
        let all = compute(run, batch, (0, 1), part, y);
        hand_on(run, batch, all, y);
    }
}

/// Computes the same product with several threads, each in the scratch of its part. An epilogue over whole rows needs the complete
/// row, so the parts store their columns side by side and the caller runs the epilogue.
///
/// # Safety
/// As for [`run`].
pub(crate) unsafe fn run_split<T: HasKernels>(run: &GemmRun<T>, pool: &ThreadPool, batch: usize, team: usize) {
    let whole_rows = matches!(run.plan.problem.c, OutputKind::Epilogue { whole_rows: true });
    let together = whole_rows && vector_left(&run.plan.problem);
    // SAFETY: `Plan::run` requires operands, result and scratch to be valid for the problem; parts write disjoint
    // results, and all have written theirs when the pool returns.
    unsafe {
        pool.run(team, &|part, _| {
            let y = results(run, if together { 0 } else { part });
            let own = compute(run, batch, (part, team), part, y);
            if !together && !own.is_empty() {
                hand_on(run, batch, own, y);
            }
        });
        if together {
            hand_on(run, batch, 0..run.plan.problem.n, results(run, 0));
        }
    }
}

/// The address of a part's results. There is space for all results.
unsafe fn results<T: HasKernels>(run: &GemmRun<T>, part: usize) -> *mut T {
    // SAFETY: scratch has `Plan::scratch_bytes`, of which this part is inside.
    unsafe { run.part(part).add(run.plan.scratch.tile).cast() }
}

/// Returns whether the left operand is the vector; otherwise the right operand is.
fn vector_left(problem: &GemmProblem) -> bool {
    matches!(problem.b, OperandSource::Memory(b) if problem.m == 1 && (b.row == 1 || b.col == 1))
}

/// Computes share `index` of `team` shares of the results, each at its own offset in `y`.
///
/// # Safety
/// Operands and scratch are valid for the problem (`Plan::run`), `y` for all results, and nothing else uses this part's
/// scratch.
unsafe fn compute<T: HasKernels>(
    run: &GemmRun<T>,
    batch: usize,
    (index, team): (usize, usize),
    part: usize,
    y: *mut T,
) -> Range<usize> {
    let problem = &run.plan.problem;
    let GemmProblem { m, k, .. } = *problem;
    let (OperandSource::Memory(a), OperandSource::Memory(b)) = (problem.a, problem.b) else {
        unreachable!("gemv is planned for operands in memory")
    };
    let (GemmOperand::Memory(a_at), GemmOperand::Memory(b_at)) = (run.a.operand, run.b.operand) else {
        unreachable!("checked by Plan::run")
    };
    let size = problem.dtype.size() as isize;
    // SAFETY: operands and scratch are valid for the problem (`Plan::run`), and offsets are inside them.
    unsafe {
        let a_at = a_at.offset(problem.batch_offset(&a, batch) * size);
        let b_at = b_at.offset(problem.batch_offset(&b, batch) * size);
        let (x, x_step, matrix, along_k, along_y, n) = if vector_left(problem) {
            (a_at, a.col, b_at, b.row, b.col, problem.n)
        } else {
            (b_at, b.row, a_at, a.col, a.row, m)
        };
        let chunks = contiguous_share(n.div_ceil(16), team, index);
        let (start, end) = (n.min(chunks.start * 16), n.min(chunks.end * 16));
        if start >= end {
            return start..start;
        }
        let wide = run.part(part).add(run.plan.scratch.b).cast::<T>();
        let x = if x_step == 1 && problem.dtype == T::DTYPE {
            x.cast::<T>()
        } else {
            upcast(problem.dtype, x, x_step, wide, k);
            T::arrange(run.plan.isa, problem.dtype, along_y, wide, k);
            wide.cast_const()
        };
        let (matrix, n, y) = (matrix.offset(start as isize * along_y * size), end - start, y.add(start));
        T::gemv(run.plan.isa, problem.dtype, &Product { x, matrix, along_k, along_y, y, k, n });
        if run.alpha != T::ONE {
            (0..n).for_each(|j| *y.add(j) = (*y.add(j)).mul(run.alpha));
        }
        start..end
    }
}

/// Passes finished results to the epilogue or stores them.
unsafe fn hand_on<T: HasKernels>(run: &GemmRun<T>, batch: usize, done: Range<usize>, y: *mut T) {
    let n = done.len();
    // SAFETY: `y` is valid for the results `done`, and the output for the problem (`Plan::run`).
    unsafe {
        let acc = y.add(done.start);
        let tile = if vector_left(&run.plan.problem) {
            FinishedTile { batch, row0: 0, col0: done.start, rows: 1, cols: n, acc, row_stride: n }
        } else {
            FinishedTile { batch, row0: done.start, col0: 0, rows: n, cols: 1, acc, row_stride: 1 }
        };
        write_tile(run.plan, run.out, &tile);
    }
}

/// Element types with matrix-vector kernels.
pub(crate) trait HasGemv: Float {
    /// Puts an upcast vector into the order that [`HasGemv::gemv`] expects for such a matrix.
    ///
    /// # Safety
    /// `x` is valid for `k` elements, and the machine has `isa`.
    unsafe fn arrange(_isa: Isa, _dtype: DType, _along_y: isize, _x: *mut Self, _k: usize) {}

    /// # Safety
    /// The product's pointers are valid for its sizes, one of its strides is 1, its vector is arranged if it was
    /// widened, and the machine has `isa`.
    unsafe fn gemv(isa: Isa, dtype: DType, product: &Product<Self>);
}

/// # Safety
/// Matrix, vector and results of `p` are valid for `p.k` and `p.n` elements at their strides, and the machine has the
/// vectors.
#[inline(always)]
unsafe fn product<V: Load<S>, S: Copy + Default>(p: &Product<V::Elem>) {
    // SAFETY: matrix, vector and results of `p` are valid for `p.k` and `p.n` elements at their strides, and the chunks
    // below stay inside them.
    unsafe {
        if p.along_y == 1 {
            for start in (0..p.n).step_by(CHUNK) {
                let n = CHUNK.min(p.n - start);
                let matrix = p.matrix.cast::<S>().add(start);
                let y = p.y.add(start);
                if p.k <= 2 * CHAIN {
                    combine::<V, S>(p.x, matrix, p.along_k, y, p.k, n);
                    continue;
                }
                let mut totals = [0f64; CHUNK];
                for d in (0..p.k).step_by(CHAIN) {
                    let matrix = matrix.offset(d as isize * p.along_k);
                    combine::<V, S>(p.x.add(d), matrix, p.along_k, y, CHAIN.min(p.k - d), n);
                    for (j, total) in totals[..n].iter_mut().enumerate() {
                        *total += (*y.add(j)).to_f64();
                    }
                }
                totals[..n].iter().enumerate().for_each(|(j, &total)| *y.add(j) = V::Elem::from_f64(total));
            }
        } else {
            let row = |j: usize| p.matrix.cast::<S>().offset(j as isize * p.along_y);
            let streamed = p.n.saturating_mul(p.k).saturating_mul(size_of::<S>()) > STREAMED;
            let pairs = if streamed { 0 } else { p.n / 2 * 2 };
            for j in (0..pairs).step_by(2) {
                let [y0, y1] = long_dots::<V, S, 2>(p.x, [row(j), row(j + 1)], p.k);
                *p.y.add(j) = y0;
                *p.y.add(j + 1) = y1;
            }
            for j in pairs..p.n {
                [*p.y.add(j)] = long_dots::<V, S, 1>(p.x, [row(j)], p.k);
            }
        }
    }
}

/// Computes [`dots`] for any length, in blocks whose sums are added in f64.
///
/// # Safety
/// `x` and each row are valid for `k` elements.
///
/// # Safety
/// The matrix is valid for `k` rows of `n` elements, `x` for `k` and `y` for `n`.
#[inline(always)]
unsafe fn long_dots<V: Load<S>, S: Copy + Default, const C: usize>(
    x: *const V::Elem,
    rows: [*const S; C],
    k: usize,
) -> [V::Elem; C] {
    // SAFETY: `x` and each row are valid for `k` elements.
    unsafe {
        if k <= 2 * ALONG {
            return dots::<V, S, C>(x, rows, k);
        }
        let mut totals = [0f64; C];
        for d in (0..k).step_by(ALONG) {
            let block = dots::<V, S, C>(x.add(d), rows.map(|r| r.add(d)), ALONG.min(k - d));
            (0..C).for_each(|c| totals[c] += block[c].to_f64());
        }
        totals.map(V::Elem::from_f64)
    }
}

/// Computes `y = Σ x[d]·matrix[d, ..]`.
/// Each result is one chain of multiply-adds in the order of k, for any number of streams.
#[inline(always)]
unsafe fn combine<V: Load<S>, S: Copy + Default>(
    x: *const V::Elem,
    matrix: *const S,
    stride: isize,
    y: *mut V::Elem,
    k: usize,
    n: usize,
) {
    // SAFETY: the matrix is valid for `k` rows of `n` elements, `x` for `k` and `y` for `n`.
    unsafe {
        let whole = k / STREAMS * STREAMS;
        for d in (0..whole).step_by(STREAMS) {
            add_rows::<V, S, STREAMS>(x.add(d), matrix.offset(d as isize * stride), stride, y, n, d == 0);
        }
        for d in whole..k {
            add_rows::<V, S, 1>(x.add(d), matrix.offset(d as isize * stride), stride, y, n, d == 0);
        }
    }
}

/// # Safety
/// `matrix` is valid for `R` rows of `n` elements, `stride` apart, `x` for `R`, and `y` for `n`.
///
/// # Safety
/// `x` and each row are valid for `k` elements.
#[inline(always)]
unsafe fn add_rows<V: Load<S>, S: Copy + Default, const R: usize>(
    x: *const V::Elem,
    matrix: *const S,
    stride: isize,
    y: *mut V::Elem,
    n: usize,
    first: bool,
) {
    // SAFETY: as for `combine`.
    unsafe {
        let zero = V::splat(V::Elem::from_f64(0.0));
        let mut xs = [zero; R];
        (0..R).for_each(|i| xs[i] = V::splat(*x.add(i)));
        let whole = n / V::LANES * V::LANES;
        for j in (0..whole).step_by(V::LANES) {
            let mut acc = if first { zero } else { V::load(y.add(j)) };
            for i in 0..R {
                acc = xs[i].mul_add(V::load_from(matrix.offset(i as isize * stride).add(j)), acc);
            }
            acc.store(y.add(j));
        }
        if whole < n {
            let rest = n - whole;
            let mut acc = if first { zero } else { V::load_first(y.add(whole), rest) };
            for i in 0..R {
                acc = xs[i].mul_add(V::load_first_from(matrix.offset(i as isize * stride).add(whole), rest), acc);
            }
            acc.store_first(y.add(whole), rest);
        }
    }
}

/// Computes `C` dot products with the same `x`. Each result has the same bits as if it were computed alone.
#[inline(always)]
unsafe fn dots<V: Load<S>, S: Copy + Default, const C: usize>(
    x: *const V::Elem,
    rows: [*const S; C],
    k: usize,
) -> [V::Elem; C] {
    // SAFETY: `x` and each row are valid for `k` elements.
    unsafe {
        let mut acc = [[V::splat(V::Elem::from_f64(0.0)); SUMS]; C];
        let step = SUMS * V::LANES;
        let whole = k / step * step;
        for d in (0..whole).step_by(step) {
            for c in 0..if C > 1 { C } else { 0 } {
                let next = rows[c].add(d).cast::<u8>().wrapping_add(AHEAD);
                for line in (0..step * size_of::<S>()).step_by(64) {
                    V::prefetch(next.wrapping_add(line).cast());
                }
            }
            for s in 0..SUMS {
                let at = d + s * V::LANES;
                let xv = V::load(x.add(at));
                for c in 0..C {
                    acc[c][s] = xv.mul_add(V::load_from(rows[c].add(at)), acc[c][s]);
                }
            }
        }
        let mut at = whole;
        while at < k {
            let n = V::LANES.min(k - at);
            let xv = V::load_first(x.add(at), n);
            let s = (at - whole) / V::LANES;
            for c in 0..C {
                acc[c][s] = xv.mul_add(V::load_first_from(rows[c].add(at), n), acc[c][s]);
            }
            at += n;
        }
        let mut out = [V::Elem::default(); C];
        for c in 0..C {
            let [a0, a1, a2, a3] = acc[c];
            out[c] = a0.add(a1).add(a2.add(a3)).sum();
        }
        out
    }
}

macro_rules! products {
    ($name:ident, $v:ty $(, $feature:literal)?) => {
        /// # Safety
        /// As for `product`, and the machine has the target features.
        $(#[target_feature(enable = $feature)])?
        unsafe fn $name<S: Copy + Default>(p: &Product<<$v as Vector>::Elem>)
        where
            $v: Load<S>,
        {
            // SAFETY: `product` has the contract of this function, and gets its arguments unchanged.
            unsafe { product::<$v, S>(p) }
        }
    };
}
products!(portable_f32, Plain32);
products!(portable_f64, Plain64);
products!(portable_i32, PlainI32);
#[cfg(target_arch = "x86_64")]
products!(avx2_f32, std::arch::x86_64::__m256, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
products!(avx2_f64, std::arch::x86_64::__m256d, "avx2,fma");
#[cfg(target_arch = "x86_64")]
products!(avx2_i32, std::arch::x86_64::__m256i, "avx2");
#[cfg(target_arch = "x86_64")]
products!(avx512_i32, std::arch::x86_64::__m512i, "avx512f,avx512vl,avx512dq,avx512bw");
#[cfg(target_arch = "x86_64")]
products!(avx512_f32, std::arch::x86_64::__m512, "avx512f,avx512vl,avx512dq,avx512bw");
#[cfg(target_arch = "x86_64")]
products!(avx512_f64, std::arch::x86_64::__m512d, "avx512f,avx512vl,avx512dq,avx512bw");

impl HasGemv for f32 {
    unsafe fn arrange(isa: Isa, dtype: DType, along_y: isize, x: *mut f32, k: usize) {
        #[cfg(target_arch = "x86_64")]
        if (isa, dtype) == (Isa::Avx512, DType::BF16) && along_y != 1 {
            // SAFETY: `x` is valid for `k` elements, and the machine has AVX-512.
            unsafe { bf16_gemv::deinterleave(x, k) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (isa, dtype, along_y, x, k);
    }

    unsafe fn gemv(isa: Isa, dtype: DType, p: &Product<f32>) {
        // SAFETY: the matrix of `p` is of `dtype`, its operands and results are valid for its sizes, and the machine
        // has `isa`.
        unsafe {
            match (isa, dtype) {
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, DType::BF16) if p.along_y != 1 => bf16_gemv::bf16_gemv(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, DType::BF16) => avx512_f32::<bf16>(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, DType::F16) => avx512_f32::<f16>(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, _) => avx512_f32::<f32>(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx2, DType::BF16) => avx2_f32::<bf16>(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx2, DType::F16) => avx2_f32::<f16>(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx2, _) => avx2_f32::<f32>(p),
                (_, DType::BF16) => portable_f32::<bf16>(p),
                (_, DType::F16) => portable_f32::<f16>(p),
                _ => portable_f32::<f32>(p),
            }
        }
    }
}

impl HasGemv for f64 {
    unsafe fn gemv(isa: Isa, _: DType, p: &Product<f64>) {
        // SAFETY: the operands and results of `p` are valid for its sizes, and the machine has `isa`.
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512_f64::<f64>(p),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2_f64::<f64>(p),
                _ => portable_f64::<f64>(p),
            }
        }
    }
}

impl HasGemv for i32 {
    unsafe fn gemv(isa: Isa, dtype: DType, p: &Product<i32>) {
        // SAFETY: the matrix of `p` is of `dtype`, its operands and results are valid for its sizes, and the machine
        // has `isa`.
        unsafe {
            match (isa, dtype) {
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, DType::I8) if std::is_x86_feature_detected!("avx512vnni") => bytes::product(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, DType::I8) => avx512_i32::<i8>(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, _) => avx512_i32::<i32>(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx2, DType::I8) => avx2_i32::<i8>(p),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx2, _) => avx2_i32::<i32>(p),
                (_, DType::I8) => portable_i32::<i8>(p),
                _ => portable_i32::<i32>(p),
            }
        }
    }
}

/// Products of i8 with the instruction that sums four products. It takes unsigned elements on one side: 128 is added to the elements
/// of the matrix, and 128 times the sum of the vector is subtracted from the result.
#[cfg(target_arch = "x86_64")]
mod bytes {
    use super::{BYTES as PART, Product};
    use std::arch::x86_64::*;

    /// # Safety
    /// As for [`super::HasGemv::gemv`], for a matrix of i8.
    ///
    /// # Safety
    /// `matrix` is valid for `k` rows of `p.n` elements, `p.y` for `p.n` results, and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")]
    pub(super) unsafe fn product(p: &Product<i32>) {
        let mut x = [0i8; PART];
        // SAFETY: vector, matrix and results are valid for `p.k` and `p.n` elements.
        unsafe {
            (0..p.n).for_each(|j| *p.y.add(j) = 0);
            for first in (0..p.k).step_by(PART) {
                let k = PART.min(p.k - first);
                x.fill(0);
                (0..k).for_each(|d| x[d] = *p.x.add(first + d) as i8);
                let raised = x[..k].iter().map(|&x| x as i32).sum::<i32>().wrapping_mul(128);
                let matrix = p.matrix.cast::<i8>().offset(first as isize * p.along_k);
                if p.along_y == 1 {
                    gemv_columns(p, matrix, &x, k, raised);
                } else {
                    gemv_rows(p, matrix, &x, k, raised);
                }
            }
        }
    }

    /// The matrix is contiguous along the results: four rows of the matrix are interleaved into groups.
    ///
    /// # Safety
    /// `matrix` is valid for `p.n` rows of `k` elements, `p.y` for `p.n` results, and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")]
    unsafe fn gemv_columns(p: &Product<i32>, matrix: *const i8, x: &[i8; PART], k: usize, raised: i32) {
        let up = _mm512_set1_epi8(-128);
        for first in (0..p.n).step_by(64) {
            let count = (p.n - first).min(64);
            let mask = u64::MAX >> (64 - count);
            let mut sums = [_mm512_setzero_si512(); 4];
            for d in (0..k).step_by(4) {
                let row = |i: usize| {
                    // SAFETY: rows below `k` and columns below `n` are there; others are not read.
                    let row = match d + i < k {
                        true => unsafe {
                            _mm512_maskz_loadu_epi8(mask, matrix.offset((d + i) as isize * p.along_k).add(first))
                        },
                        false => _mm512_setzero_si512(),
                    };
                    _mm512_xor_si512(row, up)
                };
                let (r0, r1, r2, r3) = (row(0), row(1), row(2), row(3));
                let (a, b) = (_mm512_unpacklo_epi8(r0, r1), _mm512_unpackhi_epi8(r0, r1));
                let (c, e) = (_mm512_unpacklo_epi8(r2, r3), _mm512_unpackhi_epi8(r2, r3));
                let four = _mm512_set1_epi32(i32::from_le_bytes([x[d], x[d + 1], x[d + 2], x[d + 3]].map(|x| x as u8)));
                let groups = [
                    _mm512_unpacklo_epi16(a, c),
                    _mm512_unpackhi_epi16(a, c),
                    _mm512_unpacklo_epi16(b, e),
                    _mm512_unpackhi_epi16(b, e),
                ];
                for (sum, group) in sums.iter_mut().zip(groups) {
                    *sum = _mm512_dpbusd_epi32(*sum, group, four);
                }
            }
            let mut lanes = [[0i32; 16]; 4];
            for (lanes, sum) in lanes.iter_mut().zip(sums) {
                // SAFETY: an array has room for a vector.
                unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), sum) };
            }
            for j in 0..count {
                // The groups were interleaved within each 128-bit quarter of the vectors.
                let sum = lanes[j / 4 % 4][j / 16 * 4 + j % 4].wrapping_sub(raised);
                // SAFETY: the result is this product's.
                unsafe { *p.y.add(first + j) = (*p.y.add(first + j)).wrapping_add(sum) };
            }
        }
    }

    /// The matrix is contiguous along k.
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")]
    unsafe fn gemv_rows(p: &Product<i32>, matrix: *const i8, x: &[i8; PART], k: usize, raised: i32) {
        let up = _mm512_set1_epi8(-128);
        for j in 0..p.n {
            let row = matrix.wrapping_offset(j as isize * p.along_y);
            let mut sum = _mm512_setzero_si512();
            for d in (0..k).step_by(64) {
                let mask = u64::MAX >> (64 - (k - d).min(64));
                // SAFETY: elements from `k` on are not read, and zero in `x`.
                unsafe {
                    let bytes = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, row.add(d)), up);
                    sum = _mm512_dpbusd_epi32(sum, bytes, _mm512_loadu_si512(x.as_ptr().add(d).cast()));
                }
            }
            let sum = _mm512_reduce_add_epi32(sum).wrapping_sub(raised);
            // SAFETY: the result is this product's.
            unsafe { *p.y.add(j) = (*p.y.add(j)).wrapping_add(sum) };
        }
    }
}
