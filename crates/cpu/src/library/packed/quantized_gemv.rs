//! Products of a quantized matrix and a few vectors: each row is read once and decoded in registers.
//!
//! Each result is one fixed sequence of operations on its row, so the bits do not depend on the number of threads.

use super::scales::Scales;
use super::{Packed, RUN, bf16_codes, int4, int8, k_quants, widen};
use crate::gemm::Isa;
use crate::library::{CpuContext, OpRoutine, SharedPtr};
use crate::pool::{ThreadPool, contiguous_share};
use compiler::Result;
use ir::DType;
use ir::composites::quantized::QuantFormat;
use ir::composites::quantized::format::{FP4, NF4};
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The bytes of codes that a thread takes at a time.
const BLOCK: usize = 64 << 10;

/// The maximum number of threads of a product; fewer already saturate the memory bandwidth.
const TEAM: usize = 64;

/// The arguments of a kernel.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 read them"))]
pub(super) struct View {
    pub(super) data: *const u8,
    pub(super) scales: *const u8,
    /// The vectors in the layout that the kernel needs.
    pub(super) xs: *const u8,
    /// The vectors in their original dtype.
    pub(super) given: *const u8,
    /// The vectors in f32, in their original order.
    pub(super) plain: *const f32,
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    /// The number of elements of a row in whole chunks.
    pub(super) whole: usize,
    pub(super) group: usize,
    pub(super) scale: Scales,
    pub(super) table: [f32; 16],
    pub(super) y: *mut f32,
}

/// The kernel that computes the part of the results that comes from whole chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// 4-bit codes through a lookup table, in f32.
    Int4,
    /// 8-bit codes, in f32.
    Int8,
    /// Codes converted to bf16, times bf16 vectors.
    Bf16Codes,
    /// Blocks of 256 codes with two levels of scales, converted to bf16, times bf16 vectors.
    KQuants,
    /// Rows are decoded to f32, a run at a time.
    Decoded,
}

/// The routine of the product.
pub(super) struct QuantizedGemv {
    layout: Packed,
    x: DType,
    m: usize,
    kernel: Kernel,
    isa: Isa,
    scale: Scales,
    whole: usize,
    table: [f32; 16],
}

/// The values of 4-bit codes.
fn table(format: QuantFormat) -> Option<[f32; 16]> {
    match format {
        QuantFormat::Int4 => Some(std::array::from_fn(|i| ((i as i32 ^ 8) - 8) as f32)),
        QuantFormat::Fp4E2M1 => Some(FP4),
        QuantFormat::Nf4 => Some(NF4),
        _ => None,
    }
}

impl QuantizedGemv {
    pub(super) fn new(layout: Packed, x: DType, m: usize, machine: CpuContext) -> QuantizedGemv {
        let (format, group, isa) = (layout.packing.format, layout.packing.group, machine.isa);
        let scale = layout.scale;
        let halves = x == DType::BF16 && isa == Isa::Avx512 && bf16_codes::available();
        let nibbles = table(format);
        let chosen = match (nibbles, format) {
            (Some(_), _) if halves => Some((Kernel::Bf16Codes, 128, 8)),
            (None, QuantFormat::Int8) if halves => Some((Kernel::Bf16Codes, 64, 4)),
            (Some(_), _) if isa != Isa::Portable => Some((Kernel::Int4, int4::chunk(isa), 8)),
            (None, QuantFormat::Int8) if isa != Isa::Portable => Some((Kernel::Int8, 32, 16)),
            _ => None,
        };
        if halves && k_quants::has(format) {
            let scale = Scales { dtype: scale, groups: 1, chunks: 1 };
            return QuantizedGemv {
                whole: layout.k,
                kernel: Kernel::KQuants,
                layout,
                x,
                m,
                isa,
                scale,
                table: [0.0; 16],
            };
        }
        let found = chosen.and_then(|(kernel, chunk, least)| {
            let scale = Scales::new(scale, group, chunk, least)?;
            Some((kernel, chunk, scale))
        });
        let (kernel, chunk, scale) =
            found.unwrap_or((Kernel::Decoded, 1, Scales { dtype: scale, groups: 1, chunks: 1 }));
        let whole = if kernel == Kernel::Decoded { 0 } else { layout.k / chunk * chunk };
        QuantizedGemv { layout, x, m, kernel, isa, scale, whole, table: nibbles.unwrap_or([0.0; 16]) }
    }

    /// The number of elements of the vectors.
    fn elements(&self) -> usize {
        self.m * self.layout.k
    }
}

impl OpRoutine for QuantizedGemv {
    fn scratch_bytes(&self) -> usize {
        2 * (self.elements() * 4).next_multiple_of(64)
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let Packed { k, rows: n, .. } = self.layout;
        // SAFETY: operands and results are valid for their types, and scratch for `scratch_bytes`.
        unsafe {
            let plain = scratch.cast::<f32>();
            if self.kernel != Kernel::Bf16Codes || self.whole < k {
                widen(self.x, args[0], plain, self.elements());
            }
            let xs = scratch.add((self.elements() * 4).next_multiple_of(64));
            let view = View {
                data: args[1],
                scales: args.get(2).copied().unwrap_or(std::ptr::null()),
                xs: if self.kernel == Kernel::Int8 { plain.cast() } else { xs },
                given: args[0],
                plain,
                m: self.m,
                k,
                n,
                whole: self.whole,
                group: self.layout.packing.group,
                scale: self.scale,
                table: self.table,
                y: outs[0].cast(),
            };
            let high_first = self.layout.packing.format == QuantFormat::Nf4;
            match self.kernel {
                Kernel::Int4 => int4::arrange_vectors(self.isa, &view, xs.cast(), high_first),
                Kernel::Bf16Codes if self.layout.packing.format == QuantFormat::Int8 => {
                    bf16_codes::arrange(&view, xs.cast(), 2, false)
                }
                Kernel::Bf16Codes => bf16_codes::arrange(&view, xs.cast(), 4, high_first),
                Kernel::KQuants => k_quants::arrange(&view, xs.cast()),
                Kernel::Int8 | Kernel::Decoded => {}
            }
            let rows = self.layout.at(&args[1..]);
            let shared = SharedPtr((&raw const view).cast_mut());
            // Rows are split into blocks of at least 16, so that no two threads write to one cache line. Each thread has a
            // contiguous range, which it reads in order.
            // A thread that finishes takes blocks of others, since memory bandwidth differs between cores.
            let team = pool.threads().min(n.div_ceil(16)).min((n * k / super::super::PARALLEL_WORK).max(1)).min(TEAM);
            let each = match team {
                1 => n,
                _ => (BLOCK / (self.layout.bytes[0] / n.max(1)).max(1))
                    .next_multiple_of(16)
                    .clamp(16, n.div_ceil(team).next_multiple_of(16)),
            };
            let taken: [AtomicUsize; TEAM] = std::array::from_fn(|_| AtomicUsize::new(0));
            let take = |whose: usize| {
                let blocks = contiguous_share(n.div_ceil(each), team, whose);
                let block = blocks.start + taken[whose].fetch_add(1, Relaxed);
                (block < blocks.end).then(|| block * each..(block * each + each).min(n))
            };
            pool.run(team, &|own, _| {
                for own in (own..team).chain(0..own).flat_map(|whose| std::iter::from_fn(move || take(whose))) {
                    let view = &*shared.at(0);
                    self.rows(view, own.clone());
                    // The remainder after the whole chunks, and formats without a kernel.
                    if self.whole < k {
                        let mut run = [0f32; RUN];
                        for row in own {
                            for from in (self.whole..k).step_by(RUN) {
                                let len = RUN.min(k - from);
                                rows.decode(row, from, &mut run[..len]);
                                for m in 0..self.m {
                                    let x = std::slice::from_raw_parts(view.plain.add(m * k + from), len);
                                    let y = view.y.add(m * n + row);
                                    let sum = dot(&run[..len], x);
                                    *y = if from == 0 { sum } else { *y + sum };
                                }
                            }
                        }
                    }
                }
            });
        }
        Ok(())
    }
}

impl QuantizedGemv {
    /// # Safety
    /// The view's matrix, vectors and results are valid for its sizes, and the machine has the instruction set.
    unsafe fn rows(&self, view: &View, rows: Range<usize>) {
        if self.whole == 0 {
            return;
        }
        // SAFETY: the view's matrix, vectors and results are valid for its sizes, and the machine has the instruction
        // set.
        unsafe {
            match self.kernel {
                Kernel::Int4 => int4::rows(self.isa, view, rows),
                Kernel::Int8 => int8::rows(self.isa, view, rows),
                Kernel::Bf16Codes if self.layout.packing.format == QuantFormat::Int8 => bf16_codes::bytes(view, rows),
                Kernel::Bf16Codes => bf16_codes::nibbles(view, rows),
                Kernel::KQuants => k_quants::rows(self.layout.packing.format, view, rows),
                Kernel::Decoded => {}
            }
        }
    }
}

/// Computes a dot product with sixteen partial sums that are added as a tree.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 16];
    let (whole, rest) = (a.chunks_exact(16), a.chunks_exact(16).remainder());
    for (a, b) in whole.zip(b.chunks_exact(16)) {
        (0..16).for_each(|i| sums[i] += a[i] * b[i]);
    }
    let at = a.len() - rest.len();
    rest.iter().zip(&b[at..]).enumerate().for_each(|(i, (a, b))| sums[i] += a * b);
    for half in [8, 4, 2, 1] {
        (0..half).for_each(|i| sums[i] += sums[i + half]);
    }
    sums[0]
}
