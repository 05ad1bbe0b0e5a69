//! Quantized weights: matrix products that decode them in registers, and dequantization alone.
//!
//! A product with few rows (a decoding step) streams the quantized matrix once and is limited by memory bandwidth
//! (`quantized_gemv.rs`, with the kernels in `int4.rs`, `int8.rs`, `bf16_codes.rs` and `k_quants.rs`). A product with many rows
//! decodes blocks of the matrix while they are packed for the blocked product,
//! so the full-precision weights are never in memory as a whole.

mod bf16_codes;
mod int4;
mod int8;
mod k_quants;
mod quantized_gemv;
mod scales;
#[cfg(test)]
mod tests;

use super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use crate::gemm::{GemmOperand, GemmOutput, GemmPlan, GemmProblem, MatrixLayout, OperandSource};
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::Result;
use half::{bf16, f16};
use ir::composites::quantized::rows::QuantizedRows;
use ir::composites::quantized::{QuantFormat, QuantScheme};
use ir::ops::Composite;
use ir::{DType, Type};
use std::ffi::c_void;

/// The maximum number of rows for which the quantized matrix is streamed; for more rows, blocks are decoded for a blocked product.
const FEW: usize = 8;
/// The number of elements that are decoded at once.
const RUN: usize = 512;

pub(super) const THRESHOLDS: &[Threshold] = &[
    Threshold::new("packed.few", FEW, "rows: up to here the packed matrix is streamed, beyond blocks are decoded"),
    Threshold::new("packed.run", RUN, "elements of a row: beyond, several runs are decoded one after the other"),
];

fn floats(d: DType) -> bool {
    matches!(d, DType::F32 | DType::BF16 | DType::F16)
}

/// Returns whether these parts can be decoded here.
fn decodable(packing: &QuantScheme, parts: &[Type]) -> bool {
    let free = packing.format.fixed_group().is_none();
    parts.iter().all(|p| p.numel() > 0)
        && (!free || parts.get(1).is_some_and(|s| floats(s.dtype)))
        && (packing.format != QuantFormat::Nvfp4 || parts.get(2).is_some_and(|all| all.rank() == 0))
}

pub(super) fn claims(c: &Composite, args: &[Type]) -> bool {
    let Some(packing) = QuantScheme::from_composite(c) else { return false };
    match (c.name.as_str(), args) {
        ("dequantize", parts) => decodable(&packing, parts) && floats(c.body.output_types()[0].dtype),
        ("packed_dot", [x, parts @ ..]) => {
            x.numel() > 0 && floats(x.dtype) && parts[0].rank() == 2 && decodable(&packing, parts)
        }
        _ => false,
    }
}

pub(super) fn prepare(c: &Composite, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let packing = QuantScheme::from_composite(c)?;
    if c.name == "dequantize" {
        let k = *outs[0].shape.last()?;
        let rows = outs[0].numel() / k.max(1);
        let layout = Packed::new(packing, k, rows, args);
        return Some(Box::new(Dequantize { layout, out: outs[0].dtype }));
    }
    let (x, parts) = args.split_first()?;
    let shape = packing.unpacked_shape(parts).ok()?;
    let layout = Packed::new(packing, shape[1], shape[0], parts);
    let depth = *x.shape.last()?;
    let m = x.numel() / depth.max(1);
    if !c.flag("transposed") && m <= FEW {
        return Some(Box::new(quantized_gemv::QuantizedGemv::new(layout, x.dtype, m, machine)));
    }
    let n = *outs[0].shape.last()?;
    let transposed = c.flag("transposed");
    let problem = GemmProblem {
        a: OperandSource::Memory(MatrixLayout::row_major(depth)),
        b: OperandSource::Generated { batched: false },
        ..GemmProblem::new(m, depth, n, DType::F32)
    };
    let plan = GemmPlan::with_isa(&problem, machine.threads, machine.isa).ok()?;
    Some(Box::new(Blocked { layout, plan, transposed, x: x.dtype, elements: m * depth }))
}

/// The layout of the parts of a quantized matrix, without its bytes.
#[derive(Clone, Debug)]
struct Packed {
    packing: QuantScheme,
    k: usize,
    rows: usize,
    scale: DType,
    /// The bytes of each part.
    bytes: Vec<usize>,
}

impl Packed {
    fn new(packing: QuantScheme, k: usize, rows: usize, parts: &[Type]) -> Packed {
        let scale = parts.get(1).map_or(DType::F32, |p| p.dtype);
        Packed { packing, k, rows, scale, bytes: parts.iter().map(Type::bytes).collect() }
    }

    /// Returns the rows at the given pointers.
    ///
    /// # Safety
    /// The pointers are valid for the bytes of the parts.
    unsafe fn at<'a>(&self, parts: &[*const u8]) -> QuantizedRows<'a> {
        let part = |i: usize| -> &'a [u8] {
            match self.bytes.get(i) {
                // SAFETY: `parts[i]` is valid for the bytes of part `i`.
                Some(n) => unsafe { std::slice::from_raw_parts(parts[i], *n) },
                None => &[],
            }
        };
        QuantizedRows {
            packing: self.packing,
            k: self.k,
            scale: self.scale,
            data: part(0),
            scales: part(1),
            extra_scales: part(2),
        }
    }
}

/// Returns rows of a float dtype as f32.
///
/// # Safety
/// `from` is valid for `n` elements of `dtype`, `to` for `n` of f32.
unsafe fn widen(dtype: DType, from: *const u8, to: *mut f32, n: usize) {
    // SAFETY: `from` is valid for `n` elements of `dtype`, `to` for `n` of f32.
    unsafe {
        match dtype {
            DType::BF16 => (0..n).for_each(|i| *to.add(i) = (*from.cast::<bf16>().add(i)).to_f32()),
            DType::F16 => (0..n).for_each(|i| *to.add(i) = (*from.cast::<f16>().add(i)).to_f32()),
            _ => std::ptr::copy_nonoverlapping(from.cast::<f32>(), to, n),
        }
    }
}

/// The routine that only dequantizes.
struct Dequantize {
    layout: Packed,
    out: DType,
}

impl OpRoutine for Dequantize {
    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], _: *mut u8) -> Result<()> {
        // SAFETY: `Routine::run` requires the operands to be valid for the bytes of their types, which are those of the
        // layout's parts.
        let rows = unsafe { self.layout.at(args) };
        let (k, out, dtype) = (self.layout.k, SharedPtr(outs[0]), self.out);
        in_ranges(pool, self.layout.rows, self.layout.rows * k, &|range, _| {
            let mut run = [0f32; RUN];
            for row in range {
                for from in (0..k).step_by(RUN) {
                    let n = RUN.min(k - from);
                    rows.decode(row, from, &mut run[..n]);
                    // SAFETY: ranges are disjoint rows of the result.
                    unsafe {
                        let to = out.at((row * k + from) * dtype.size());
                        match dtype {
                            DType::BF16 => (0..n).for_each(|i| *to.cast::<bf16>().add(i) = bf16::from_f32(run[i])),
                            DType::F16 => (0..n).for_each(|i| *to.cast::<f16>().add(i) = f16::from_f32(run[i])),
                            _ => std::ptr::copy_nonoverlapping(run.as_ptr(), to.cast::<f32>(), n),
                        }
                    }
                }
            }
        });
        Ok(())
    }
}

/// A product with many rows: blocks of the matrix are decoded while the blocked product packs them.
struct Blocked {
    layout: Packed,
    plan: GemmPlan,
    transposed: bool,
    x: DType,
    elements: usize,
}

impl Blocked {
    fn widened(&self) -> usize {
        if self.x == DType::F32 { 0 } else { (self.elements * 4).next_multiple_of(64) }
    }
}

/// The context argument of the generator.
struct Decoding<'a> {
    rows: QuantizedRows<'a>,
    transposed: bool,
}

/// Writes a block of the right operand: element (i, j) is `w[j, i]`, or `w[i, j]` if the matrix is not transposed.
///
/// # Safety
/// `ctx` is a [`Decoding`], the block is inside the matrix, and `dst` is valid for `rows` rows of f32 that are `stride` elements apart.
unsafe extern "C" fn generate(
    ctx: *const c_void,
    _: usize,
    row0: usize,
    col0: usize,
    rows: usize,
    cols: usize,
    dst: *mut u8,
    stride: usize,
) {
    // SAFETY: the context is the one that `Blocked::run` gives, and the block is inside the matrix; `dst` is the product's.
    unsafe {
        let decoding = &*ctx.cast::<Decoding<'_>>();
        let dst = dst.cast::<f32>();
        let mut run = [0f32; RUN];
        if decoding.transposed {
            for i in 0..rows {
                let to = std::slice::from_raw_parts_mut(dst.add(i * stride), cols);
                decode(&decoding.rows, row0 + i, col0, to, &mut run);
            }
            return;
        }
        for j in 0..cols {
            for from in (0..rows).step_by(RUN) {
                let n = RUN.min(rows - from);
                let mut part = [0f32; RUN];
                decode(&decoding.rows, col0 + j, row0 + from, &mut part[..n], &mut run);
                (0..n).for_each(|i| *dst.add((from + i) * stride + j) = part[i]);
            }
        }
    }
}

/// Decodes elements of a row from any position on.
fn decode(rows: &QuantizedRows<'_>, row: usize, from: usize, to: &mut [f32], run: &mut [f32; RUN]) {
    let unit = rows.block_elements();
    let skip = from % unit;
    if skip == 0 && (unit > 2 || to.len().is_multiple_of(unit)) {
        return rows.decode(row, from, to);
    }
    // The range starts inside of a byte or block.
    let (mut at, mut done) = (from - skip, 0);
    let mut skip = skip;
    while done < to.len() {
        let n = (RUN / unit * unit).min(rows.k - at);
        rows.decode(row, at, &mut run[..n]);
        let taken = (n - skip).min(to.len() - done);
        to[done..done + taken].copy_from_slice(&run[skip..skip + taken]);
        (at, done, skip) = (at + n, done + taken, 0);
    }
}

impl OpRoutine for Blocked {
    fn scratch_bytes(&self) -> usize {
        self.widened() + self.plan.scratch_bytes()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        // SAFETY: operands and result are valid for their types, and scratch for `scratch_bytes`; its first part holds
        // the widened rows.
        unsafe {
            let decoding = Decoding { rows: self.layout.at(&args[1..]), transposed: self.transposed };
            let x = if self.x == DType::F32 {
                args[0]
            } else {
                widen(self.x, args[0], scratch.cast(), self.elements);
                scratch.cast_const()
            };
            let b = GemmOperand::Generated { f: generate, ctx: (&raw const decoding).cast() };
            let out = GemmOutput::Memory(outs[0]);
            self.plan.run(pool, GemmOperand::Memory(x), b, out, scratch.add(self.widened()));
        }
        Ok(())
    }
}
