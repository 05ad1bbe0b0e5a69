//! Attention of few queries over many keys, as in decoding: each query is processed by itself, the keys are split into spans of a
//! fixed size that threads share, and the softmaxes of the spans are merged in order (Flash-Decoding).

use super::super::simd::{Wide, exp, largest};
use super::super::{CpuContext, OpRoutine, Pointers, SharedPtr};
use super::block::{BlockPlan, KEYS, ScratchLayout};
use super::problem::{AttentionProblem, float, integer};
use crate::gemm::Isa;
use crate::gemm::vector::{Load, Plain32};
use crate::pool::ThreadPool;
use compiler::Result;
use half::{bf16, f16};
use ir::DType;

/// The number of keys in a span: a multiple of the vector length of every instruction set.
pub(super) const SPAN: usize = 512;

/// Computes the scores of one query with the keys from `k` on. Arguments: query, keys, row size, number of keys, scale, results.
type Dots = unsafe fn(*const f32, *const u8, usize, usize, f32, *mut f32);
/// Converts scores (a multiple of the vector length) to weights; returns their maximum and sum.
type Weights = unsafe fn(*mut f32, usize) -> (f32, f32);
/// Computes the weighted sum of values. Arguments: weights, values, number, row size, results.
type Mix = unsafe fn(*const f32, *const u8, usize, usize, *mut f32);

/// The forward routine of attention for few rows.
pub(super) struct Decode {
    blocks: BlockPlan,
    threads: usize,
    spans: usize,
    /// The number of f32 of scratch per worker: a query and its scores.
    each: usize,
    scores: usize,
    /// The number of f32 of a span's result: maximum, sum, weighted values.
    partial: usize,
    code: (Dots, Weights, Mix),
}

impl Decode {
    pub(super) fn new(problem: AttentionProblem, machine: CpuContext) -> Decode {
        let mut pieces = ScratchLayout::default();
        pieces.take(problem.d);
        let scores = pieces.take(SPAN);
        let code = code(problem.dtype, machine.isa);
        Decode {
            spans: problem.tk.div_ceil(SPAN).max(1),
            each: pieces.floats(),
            scores,
            partial: (problem.dv + 2).next_multiple_of(16),
            blocks: BlockPlan::new(problem, 1, KEYS, machine.isa),
            threads: machine.threads,
            code,
        }
    }

    /// Computes one row over one span into `partial`.
    unsafe fn attend_span(
        &self,
        args: &[*const u8],
        head: usize,
        row: usize,
        span: usize,
        scratch: *mut f32,
        to: *mut f32,
    ) {
        let p = &self.blocks.problem;
        let batch = head / p.kv_heads;
        let size = p.dtype.size();
        // SAFETY: the operands are those of the problem, the scratch is this worker's.
        unsafe {
            let position = p.first_position(args, batch) + (row % p.tq) as i64;
            let (lo, hi) = p.interval(position, p.length(args, batch));
            let (lo, hi) = ((lo as usize).max(span * SPAN), (hi as usize).min((span + 1) * SPAN));
            if lo >= hi {
                (*to, *to.add(1)) = (f32::NEG_INFINITY, 0.0);
                return;
            }
            let (n, s) = (hi - lo, scratch.add(self.scores));
            let q = self.blocks.upcast_rows(args[0], (head * p.rows() + row) * p.d, p.d, scratch);
            let (dots, weights, mix) = self.code;
            dots(q, args[1].add((head * p.tk + lo) * p.d * size), p.d, n, p.scale, s);
            self.adjust_scores(args, head, row, position, lo, std::slice::from_raw_parts_mut(s, n));
            let padded = n.next_multiple_of(16);
            (n..padded).for_each(|i| *s.add(i) = f32::NEG_INFINITY);
            (*to, *to.add(1)) = weights(s, padded);
            mix(s, args[2].add((head * p.tk + lo) * p.dv * size), n, p.dv, to.add(2));
        }
    }

    /// Applies soft cap, slopes, mask and segments to one query's scores.
    unsafe fn adjust_scores(
        &self,
        args: &[*const u8],
        head: usize,
        row: usize,
        position: i64,
        lo: usize,
        s: &mut [f32],
    ) {
        let p = &self.blocks.problem;
        let (batch, kv) = (head / p.kv_heads, head % p.kv_heads);
        let (q_head, t) = (kv * p.group + row / p.tq, row % p.tq);
        if let Some(c) = p.softcap {
            s.iter_mut().for_each(|x| *x = c * (*x / c).tanh());
        }
        // SAFETY: the operands are those of the problem.
        unsafe {
            if let Some(of) = &p.slopes {
                let slope = float(args[of.arg], of.dtype, of.entry(batch) * p.kv_heads * p.group + q_head);
                for (i, x) in s.iter_mut().enumerate() {
                    *x -= slope * (position - (lo + i) as i64).abs() as f32;
                }
            }
            if let Some(m) = &p.mask {
                let line = m.batch_offset(batch) + q_head * m.head + t * m.query;
                for (i, x) in s.iter_mut().enumerate() {
                    let from = line + (lo + i) * m.key;
                    match m.dtype {
                        DType::Bool if *args[m.arg].add(from) != 0 => {}
                        DType::Bool => *x = f32::NEG_INFINITY,
                        _ => *x += float(args[m.arg], m.dtype, from),
                    }
                }
            }
            if let Some((a, c)) = &p.segments {
                let own = integer(args[a.arg], a.dtype, a.entry(batch) * p.tq + t);
                let base = c.entry(batch) * p.tk + lo;
                for (i, x) in s.iter_mut().enumerate() {
                    if integer(args[c.arg], c.dtype, base + i) != own {
                        *x = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }

    /// Merges the spans of one row.
    unsafe fn merge_spans(&self, outs: &[*mut u8], row: usize, partials: *mut f32) {
        let p = &self.blocks.problem;
        // SAFETY: the partial results of the row are there, and nothing else uses them now.
        unsafe {
            let spans = || (0..self.spans).map(|i| partials.add((row * self.spans + i) * self.partial));
            let max = spans().fold(f32::NEG_INFINITY, |m, s| m.max(*s));
            let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let (mut sum, mut first) = (0f32, None);
            for s in spans().filter(|s| *s.add(1) != 0.0) {
                let factor = (*s - base).exp();
                sum += *s.add(1) * factor;
                let acc = *first.get_or_insert(s.add(2));
                for i in 0..p.dv {
                    let x = *s.add(2 + i) * factor;
                    *acc.add(i) = if acc == s.add(2) { x } else { *acc.add(i) + x };
                }
            }
            let lse = outs[1].cast::<f32>().add(row);
            *lse = if sum != 0.0 { max + sum.ln() } else { f32::NEG_INFINITY };
            let acc = match first {
                Some(acc) => {
                    (0..p.dv).for_each(|i| *acc.add(i) /= sum);
                    acc
                }
                None => {
                    std::ptr::write_bytes(partials.add(row * self.spans * self.partial), 0, p.dv);
                    partials.add(row * self.spans * self.partial)
                }
            };
            self.blocks.store_rounded(acc, outs[0], row * p.dv, p.dv);
        }
    }
}

impl OpRoutine for Decode {
    fn scratch_bytes(&self) -> usize {
        let p = &self.blocks.problem;
        4 * (self.each * self.threads + p.heads() * p.rows() * self.spans * self.partial)
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let p = &self.blocks.problem;
        let scratch = SharedPtr(scratch.cast::<f32>());
        let partials = SharedPtr(scratch.at(self.each * self.threads));
        let (args, outs) = (Pointers(args), Pointers(outs));
        pool.run(p.heads() * self.spans, &|part, worker| {
            let (head, span) = (part / self.spans, part % self.spans);
            for row in 0..p.rows() {
                let to = partials.at(((head * p.rows() + row) * self.spans + span) * self.partial);
                // SAFETY: each part has its own partial results and each worker its own scratch.
                unsafe { self.attend_span(args.get(), head, row, span, scratch.at(worker * self.each), to) }
            }
        });
        // SAFETY: each row has its own partial results and its own result.
        pool.run(p.heads() * p.rows(), &|row, _| unsafe { self.merge_spans(outs.get(), row, partials.at(0)) });
        Ok(())
    }
}

/// Processes four keys at a time, with independent accumulators.
///
/// # Safety
/// `q` is valid for `d` elements, `k` for `n` rows of `d`, `to` for `n`, and the machine has the target features.
#[inline(always)]
unsafe fn dots<S: Copy + Default, V: Wide + Load<S>>(
    q: *const f32,
    k: *const u8,
    d: usize,
    n: usize,
    scale: f32,
    to: *mut f32,
) {
    // SAFETY: the operands are valid for their sizes, and the machine has the target features.
    unsafe {
        let k = k.cast::<S>();
        let (whole, rest) = (d / V::LANES * V::LANES, d % V::LANES);
        let mut i = 0;
        while i < n {
            let m = (n - i).min(4);
            // Rows after the last repeat the last one.
            let rows: [*const S; 4] = std::array::from_fn(|j| k.add((i + j.min(m - 1)) * d));
            let mut sums = [V::splat(0.0); 4];
            for c in (0..whole).step_by(V::LANES) {
                let x = V::load(q.add(c));
                for j in 0..4 {
                    sums[j] = <V as Load<S>>::load_from(rows[j].add(c)).mul_add(x, sums[j]);
                }
            }
            if rest > 0 {
                let x = V::load_first(q.add(whole), rest);
                for j in 0..4 {
                    sums[j] = <V as Load<S>>::load_first_from(rows[j].add(whole), rest).mul_add(x, sums[j]);
                }
            }
            (0..m).for_each(|j| *to.add(i + j) = sums[j].sum() * scale);
            i += m;
        }
    }
}

/// # Safety
/// `s` is valid for `n` elements, and the machine has the target features.
///
/// # Safety
/// `w` is valid for `n` elements, `v` for `n` rows of `dv`, `to` for `dv`, and the machine has the target features.
#[inline(always)]
unsafe fn weights<V: Wide>(s: *mut f32, n: usize) -> (f32, f32) {
    // SAFETY: as above.
    unsafe {
        let mut top = V::splat(f32::NEG_INFINITY);
        for i in (0..n).step_by(V::LANES) {
            top = V::load(s.add(i)).max(top);
        }
        let max = largest(top);
        let base = V::splat(if max == f32::NEG_INFINITY { 0.0 } else { max });
        let mut sum = V::splat(0.0);
        for i in (0..n).step_by(V::LANES) {
            let e = exp(V::load(s.add(i)).sub(base));
            sum = sum.add(e);
            e.store(s.add(i));
        }
        (max, sum.sum())
    }
}

/// Keeps four vectors of results in registers.
#[inline(always)]
unsafe fn mix<S: Copy + Default, V: Wide + Load<S>>(w: *const f32, v: *const u8, n: usize, dv: usize, to: *mut f32) {
    // SAFETY: as above.
    unsafe {
        let v = v.cast::<S>();
        let wide = 4 * V::LANES;
        let whole = dv / wide * wide;
        for c in (0..whole).step_by(wide) {
            let mut sums = [V::splat(0.0); 4];
            for i in 0..n {
                let x = V::splat(*w.add(i));
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = <V as Load<S>>::load_from(v.add(i * dv + c + j * V::LANES)).mul_add(x, *sum);
                }
            }
            (0..4).for_each(|j| sums[j].store(to.add(c + j * V::LANES)));
        }
        for c in (whole..dv).step_by(V::LANES) {
            let m = (dv - c).min(V::LANES);
            let mut sum = V::splat(0.0);
            for i in 0..n {
                sum = <V as Load<S>>::load_first_from(v.add(i * dv + c), m).mul_add(V::splat(*w.add(i)), sum);
            }
            sum.store_first(to.add(c), m);
        }
    }
}

/// Wraps the loops in functions that have the target features.
macro_rules! code {
    ($v:ty, $s:ty $(, $feature:literal)?) => {{
        /// # Safety
        /// `q` is valid for `d` elements, `k` for `n` rows of `d`, `to` for `n`, and the machine has the target
        /// features.
        $(#[target_feature(enable = $feature)])?
        unsafe fn dots(q: *const f32, k: *const u8, d: usize, n: usize, scale: f32, to: *mut f32) {
            // SAFETY: `dots` has the contract of this function, and gets its arguments unchanged.
            unsafe { super::dots::<$s, $v>(q, k, d, n, scale, to) }
        }
        /// # Safety
        /// `s` is valid for `n` elements, and the machine has the target features.
        $(#[target_feature(enable = $feature)])?
        unsafe fn weights(s: *mut f32, n: usize) -> (f32, f32) {
            // SAFETY: `weights` has the contract of this function, and gets its arguments unchanged.
            unsafe { super::weights::<$v>(s, n) }
        }
        /// # Safety
        /// `w` is valid for `n` elements, `v` for `n` rows of `dv`, `to` for `dv`, and the machine has the target
        /// features.
        $(#[target_feature(enable = $feature)])?
        unsafe fn mix(w: *const f32, v: *const u8, n: usize, dv: usize, to: *mut f32) {
            // SAFETY: `mix` has the contract of this function, and gets its arguments unchanged.
            unsafe { super::mix::<$s, $v>(w, v, n, dv, to) }
        }
        (dots as Dots, weights as Weights, mix as Mix)
    }};
}

mod wrapped {
    use super::*;
    macro_rules! of {
        ($dtype:expr, $v:ty $(, $feature:literal)?) => {
            match $dtype {
                DType::BF16 => code!($v, bf16 $(, $feature)?),
                DType::F16 => code!($v, f16 $(, $feature)?),
                _ => code!($v, f32 $(, $feature)?),
            }
        };
    }

    pub(super) fn code(dtype: DType, isa: Isa) -> (Dots, Weights, Mix) {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => of!(dtype, std::arch::x86_64::__m512, "avx512f,avx512vl,avx512dq,avx512bw"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => of!(dtype, std::arch::x86_64::__m256, "avx2,fma,f16c"),
            _ => of!(dtype, Plain32),
        }
    }
}
use wrapped::code;
