//! Decoding of each format with plain ops. Numbers are f32, and each step is rounded as in the references.

use super::format::{FP4, NF4, QuantFormat, QuantScheme};
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::Value;
use crate::literal::Literal;
use crate::ops::gather::GatherMode;
use crate::ops::{Bitcast, Concat};
use crate::scalar::{Binary, Compare, Scalar};
use crate::types::{Shape, Type};

/// Decodes parts to numbers in f32.
pub(super) fn unpack(b: &mut Builder, packing: &QuantScheme, parts: &[Value]) -> Result<Value> {
    let codes = match packing.format {
        QuantFormat::Int8 | QuantFormat::Fp8E4M3 | QuantFormat::Fp8E5M2 => b.cast(parts[0], DType::F32)?,
        QuantFormat::Int4 => {
            let codes = nibbles(b, parts[0], false)?;
            // Two's complement in four bits: (code ^ 8) - 8.
            let codes = bits(b, Binary::Xor, codes, 8)?;
            let codes = b.cast(codes, DType::F32)?;
            b.offset(codes, -8.0)?
        }
        QuantFormat::U4 => {
            let codes = nibbles(b, parts[0], false)?;
            let codes = b.cast(codes, DType::F32)?;
            let shape = b.ty(codes).shape;
            let zero = b.cast(parts[2], DType::F32)?;
            let zero = per_group(b, zero, &shape)?;
            b.sub(codes, zero)?
        }
        QuantFormat::Fp4E2M1 | QuantFormat::Mxfp4 | QuantFormat::Nvfp4 => {
            let codes = nibbles(b, parts[0], false)?;
            look_up(b, &FP4, codes)?
        }
        QuantFormat::Nf4 => {
            let codes = nibbles(b, parts[0], true)?;
            look_up(b, &NF4, codes)?
        }
        _ => return blocks(b, packing, parts[0]),
    };
    let scale = scales(b, packing, parts)?;
    let shape = b.ty(codes).shape;
    let scale = per_group(b, scale, &shape)?;
    b.mul(codes, scale)
}

/// The scale of each group in f32, for formats whose scales are tensors.
pub(super) fn scales(b: &mut Builder, packing: &QuantScheme, parts: &[Value]) -> Result<Value> {
    match packing.format {
        QuantFormat::Mxfp4 => power_of_two(b, parts[1]),
        QuantFormat::Nvfp4 => {
            let own = b.cast(parts[1], DType::F32)?;
            let shape = b.ty(own).shape;
            let dims: Vec<usize> = (0..b.ty(parts[2]).rank()).collect();
            let all = b.broadcast(parts[2], &shape, &dims)?;
            b.mul(own, all)
        }
        _ => b.cast(parts[1], DType::F32),
    }
}

/// `2^(e - 127)`; 255 is NaN.
fn power_of_two(b: &mut Builder, e: Value) -> Result<Value> {
    let wide = b.cast(e, DType::U32)?;
    let shifted = bits(b, Binary::Shl, wide, 23)?;
    let normal = b.one(Bitcast(DType::F32).into(), &[shifted])?;
    let ty = b.ty(normal);
    let least = b.full(&ty, Scalar::from_bits(DType::F32, 0x0040_0000))?;
    let nan = b.full(&ty, Scalar::from_f64(DType::F32, f64::NAN))?;
    let is = |b: &mut Builder, code: u64| -> Result<Value> {
        let ty = b.ty(e);
        let code = b.full(&ty, Scalar::from_bits(DType::U8, code))?;
        b.compare(Compare::Eq, e, code)
    };
    let (zero, last) = (is(b, 0)?, is(b, 255)?);
    let y = b.select(zero, least, normal)?;
    b.select(last, nan, y)
}

/// Broadcasts one number per group over its elements.
pub(super) fn per_group(b: &mut Builder, scale: Value, shape: &[usize]) -> Result<Value> {
    let own = b.ty(scale).shape;
    let groups = own[own.len() - 1];
    let k = shape[shape.len() - 1];
    let mut wide = own.clone();
    wide.push(if groups == 0 { 1 } else { k / groups });
    let dims: Vec<usize> = (0..own.len()).collect();
    let repeated = b.broadcast(scale, &wide, &dims)?;
    b.reshape(repeated, shape)
}

/// `x op c` for an integer constant.
pub(super) fn bits(b: &mut Builder, op: Binary, x: Value, c: u64) -> Result<Value> {
    let ty = b.ty(x);
    let c = b.full(&ty, Scalar::from_bits(ty.dtype, c))?;
    b.binary(op, x, c)
}

/// The two codes of each byte, on a new axis.
fn nibbles(b: &mut Builder, data: Value, high_first: bool) -> Result<Value> {
    let mut shape = b.ty(data).shape;
    let axis = shape.len();
    let last = shape[axis - 1];
    shape.push(1);
    let wide = b.reshape(data, &shape)?;
    let shifts: &[u8] = if high_first { &[4, 0] } else { &[0, 4] };
    let codes = shifted(b, wide, axis, shifts)?;
    let codes = bits(b, Binary::And, codes, 15)?;
    shape.truncate(axis);
    shape[axis - 1] = 2 * last;
    b.reshape(codes, &shape)
}

/// `x >> shift` for several shifts, along an axis of `x` of size 1.
fn shifted(b: &mut Builder, x: Value, axis: usize, shifts: &[u8]) -> Result<Value> {
    let ty = b.ty(x);
    let mut shape = ty.shape.clone();
    shape[axis] = shifts.len();
    let wide = b.broadcast_to(x, &shape)?;
    let list =
        Literal::from_fn(Type::new(ty.dtype, &[shifts.len()]), |i| Scalar::from_bits(ty.dtype, shifts[i] as u64));
    let list = b.constant(list)?;
    let list = b.broadcast(list, &shape, &[axis])?;
    b.binary(Binary::Shr, wide, list)
}

/// Looks up each code in a table.
fn look_up(b: &mut Builder, table: &[f32; 16], codes: Value) -> Result<Value> {
    let table =
        Literal::from_fn(Type::new(DType::F32, &[16]), |i| Scalar::from_bits(DType::F32, table[i].to_bits() as u64));
    let table = b.constant(table)?;
    let index = b.cast(codes, DType::I32)?;
    b.take(table, index, 0, GatherMode::Clip)
}

/// GGUF blocks `[.., n, bytes]`, with accessors for their fields.
struct Blocks<'a> {
    b: &'a mut Builder,
    data: Value,
    /// The row axes and the number of blocks per row.
    lead: Shape,
}

impl Blocks<'_> {
    /// A range of bytes of each block, reshaped.
    fn bytes(&mut self, from: usize, to: usize, shape: &[usize]) -> Result<Value> {
        let part = self.b.slice_axis(self.data, self.lead.len(), from, to)?;
        self.reshape(part, shape)
    }

    fn reshape(&mut self, x: Value, shape: &[usize]) -> Result<Value> {
        let full: Vec<usize> = self.lead.iter().chain(shape).copied().collect();
        self.b.reshape(x, &full)
    }

    /// Broadcasts along axes of size 1.
    fn broadcast_unit_axes(&mut self, x: Value, shape: &[usize]) -> Result<Value> {
        let full: Vec<usize> = self.lead.iter().chain(shape).copied().collect();
        self.b.broadcast_to(x, &full)
    }

    /// `(x >> shifts) & mask` along an axis of size 1.
    fn shifted(&mut self, x: Value, axis: usize, shifts: &[u8], mask: u64) -> Result<Value> {
        let y = shifted(self.b, x, self.lead.len() + axis, shifts)?;
        bits(self.b, Binary::And, y, mask)
    }

    /// An f16 at a byte offset, as f32 `[.., n, 1]`.
    fn read_f16(&mut self, at: usize) -> Result<Value> {
        let low = self.bytes(at, at + 1, &[1])?;
        let high = self.bytes(at + 1, at + 2, &[1])?;
        let (low, high) = (self.b.cast(low, DType::U16)?, self.b.cast(high, DType::U16)?);
        let high = bits(self.b, Binary::Shl, high, 8)?;
        let both = self.b.binary(Binary::Or, low, high)?;
        let half = self.b.one(Bitcast(DType::F16).into(), &[both])?;
        self.b.cast(half, DType::F32)
    }

    fn float(&mut self, x: Value) -> Result<Value> {
        self.b.cast(x, DType::F32)
    }

    /// `x - less`, with `x` as i8, as f32.
    fn centred(&mut self, x: Value, less: f64) -> Result<Value> {
        let x = self.float(x)?;
        self.b.offset(x, -less)
    }

    /// Multiplies each sub-block of `[.., n, count, size]` by a number.
    fn times(&mut self, x: Value, factor: Value, count: usize, size: usize) -> Result<Value> {
        let factor = self.reshape(factor, &[count, 1])?;
        let factor = self.broadcast_unit_axes(factor, &[count, size])?;
        self.b.mul(factor, x)
    }

    fn less(&mut self, x: Value, offset: Value, count: usize, size: usize) -> Result<Value> {
        let offset = self.reshape(offset, &[count, 1])?;
        let offset = self.broadcast_unit_axes(offset, &[count, size])?;
        self.b.sub(x, offset)
    }

    /// The 4-bit codes of 32 elements in 16 bytes: first the low nibbles, then the high ones.
    fn halves(&mut self, at: usize) -> Result<Value> {
        let qs = self.bytes(at, at + 16, &[1, 16])?;
        let qs = self.shifted(qs, 0, &[0, 4], 15)?;
        self.reshape(qs, &[1, 32])
    }

    /// The fifth bits of 32 elements in four bytes, as 0 or 16.
    fn fifth(&mut self, at: usize) -> Result<Value> {
        let qh = self.bytes(at, at + 4, &[4, 1])?;
        let qh = self.shifted(qh, 1, &[0, 1, 2, 3, 4, 5, 6, 7], 1)?;
        let qh = bits(self.b, Binary::Shl, qh, 4)?;
        self.reshape(qh, &[1, 32])
    }

    /// `(d·scale, dmin·min)` of the eight sub-blocks of Q4_K and Q5_K, each `[.., n, 8]`.
    fn scales_and_minima(&mut self) -> Result<(Value, Value)> {
        let (d, dmin) = (self.read_f16(0)?, self.read_f16(2)?);
        let [a, m, rest] = [(4, 8), (8, 12), (12, 16)].map(|(from, to)| self.bytes(from, to, &[4]));
        let (a, m, rest) = (a?, m?, rest?);
        let low = bits(self.b, Binary::And, rest, 15)?;
        let high = bits(self.b, Binary::Shr, rest, 4)?;
        let mut eight = |own: Value, others: Value| -> Result<Value> {
            let first = bits(self.b, Binary::And, own, 63)?;
            let top = bits(self.b, Binary::Shr, own, 2)?;
            let top = bits(self.b, Binary::And, top, 48)?;
            let second = self.b.binary(Binary::Or, others, top)?;
            self.b.one(Concat { axis: self.lead.len() }.into(), &[first, second])
        };
        let (sc, min) = (eight(a, low)?, eight(m, high)?);
        let mut product = |d: Value, x: Value| -> Result<Value> {
            let x = self.float(x)?;
            let d = self.broadcast_unit_axes(d, &[8])?;
            self.b.mul(d, x)
        };
        Ok((product(d, sc)?, product(dmin, min)?))
    }
}

/// Decodes GGUF blocks.
fn blocks(b: &mut Builder, packing: &QuantScheme, data: Value) -> Result<Value> {
    let bytes = packing.format.block_bytes().unwrap_or(1);
    let mut lead = b.ty(data).shape;
    let rank = lead.len();
    let n = lead[rank - 1] / bytes;
    lead[rank - 1] = n;
    let mut cut = lead.clone();
    cut.push(bytes);
    let data = b.reshape(data, &cut)?;
    let mut full = lead.clone();
    full[rank - 1] = n * packing.group;
    let mut x = Blocks { b, data, lead };
    let y = match packing.format {
        QuantFormat::Q8_0 => {
            let d = x.read_f16(0)?;
            let qs = x.bytes(2, 34, &[1, 32])?;
            let qs = x.b.one(Bitcast(DType::I8).into(), &[qs])?;
            let qs = x.float(qs)?;
            x.times(qs, d, 1, 32)?
        }
        QuantFormat::Q4_0 => {
            let d = x.read_f16(0)?;
            let qs = x.halves(2)?;
            let qs = x.centred(qs, 8.0)?;
            x.times(qs, d, 1, 32)?
        }
        QuantFormat::Q4_1 => {
            let (d, m) = (x.read_f16(0)?, x.read_f16(2)?);
            let qs = x.halves(4)?;
            let qs = x.float(qs)?;
            let y = x.times(qs, d, 1, 32)?;
            let m = x.b.neg(m)?;
            x.less(y, m, 1, 32)?
        }
        QuantFormat::Q5_0 => {
            let d = x.read_f16(0)?;
            let (low, high) = (x.halves(6)?, x.fifth(2)?);
            let qs = x.b.binary(Binary::Or, low, high)?;
            let qs = x.centred(qs, 16.0)?;
            x.times(qs, d, 1, 32)?
        }
        QuantFormat::Q5_1 => {
            let (d, m) = (x.read_f16(0)?, x.read_f16(2)?);
            let (low, high) = (x.halves(8)?, x.fifth(4)?);
            let qs = x.b.binary(Binary::Or, low, high)?;
            let qs = x.float(qs)?;
            let y = x.times(qs, d, 1, 32)?;
            let m = x.b.neg(m)?;
            x.less(y, m, 1, 32)?
        }
        QuantFormat::Q2K => {
            let (d, dmin) = (x.read_f16(80)?, x.read_f16(82)?);
            let scales = x.bytes(0, 16, &[16])?;
            let low = bits(x.b, Binary::And, scales, 15)?;
            let high = bits(x.b, Binary::Shr, scales, 4)?;
            let (low, high) = (x.float(low)?, x.float(high)?);
            let (d, dmin) = (x.broadcast_unit_axes(d, &[16])?, x.broadcast_unit_axes(dmin, &[16])?);
            let (dl, ml) = (x.b.mul(d, low)?, x.b.mul(dmin, high)?);
            let qs = x.bytes(16, 80, &[2, 1, 32])?;
            let qs = x.shifted(qs, 1, &[0, 2, 4, 6], 3)?;
            let qs = x.reshape(qs, &[16, 16])?;
            let qs = x.float(qs)?;
            let y = x.times(qs, dl, 16, 16)?;
            x.less(y, ml, 16, 16)?
        }
        QuantFormat::Q3K => {
            let d = x.read_f16(108)?;
            let low = x.bytes(96, 104, &[1, 8])?;
            let low = x.shifted(low, 0, &[0, 4], 15)?;
            let low = x.reshape(low, &[16])?;
            let high = x.bytes(104, 108, &[1, 4])?;
            let high = x.shifted(high, 0, &[0, 2, 4, 6], 3)?;
            let high = x.reshape(high, &[16])?;
            let high = bits(x.b, Binary::Shl, high, 4)?;
            let scales = x.b.binary(Binary::Or, low, high)?;
            let scales = x.centred(scales, 32.0)?;
            let d = x.broadcast_unit_axes(d, &[16])?;
            let dl = x.b.mul(d, scales)?;
            let ql = x.bytes(32, 96, &[2, 1, 32])?;
            let ql = x.shifted(ql, 1, &[0, 2, 4, 6], 3)?;
            let ql = x.reshape(ql, &[16, 16])?;
            let qh = x.bytes(0, 32, &[1, 32])?;
            let qh = x.shifted(qh, 0, &[0, 1, 2, 3, 4, 5, 6, 7], 1)?;
            // A set bit subtracts 0, a clear bit subtracts 4.
            let qh = bits(x.b, Binary::Shl, qh, 2)?;
            let qh = x.reshape(qh, &[16, 16])?;
            let q = x.b.binary(Binary::Or, ql, qh)?;
            let q = x.centred(q, 4.0)?;
            x.times(q, dl, 16, 16)?
        }
        QuantFormat::Q4K => {
            let (d, dm) = x.scales_and_minima()?;
            let qs = x.bytes(16, 144, &[4, 1, 32])?;
            let qs = x.shifted(qs, 1, &[0, 4], 15)?;
            let qs = x.reshape(qs, &[8, 32])?;
            let qs = x.float(qs)?;
            let y = x.times(qs, d, 8, 32)?;
            x.less(y, dm, 8, 32)?
        }
        QuantFormat::Q5K => {
            let (d, dm) = x.scales_and_minima()?;
            let qh = x.bytes(16, 48, &[1, 32])?;
            let qh = x.shifted(qh, 0, &[0, 1, 2, 3, 4, 5, 6, 7], 1)?;
            let qh = bits(x.b, Binary::Shl, qh, 4)?;
            let ql = x.bytes(48, 176, &[4, 1, 32])?;
            let ql = x.shifted(ql, 1, &[0, 4], 15)?;
            let ql = x.reshape(ql, &[8, 32])?;
            let q = x.b.binary(Binary::Or, ql, qh)?;
            let q = x.float(q)?;
            let y = x.times(q, d, 8, 32)?;
            x.less(y, dm, 8, 32)?
        }
        _ => {
            // Q6_K.
            let d = x.read_f16(208)?;
            let scales = x.bytes(192, 208, &[16])?;
            let scales = x.b.one(Bitcast(DType::I8).into(), &[scales])?;
            let scales = x.float(scales)?;
            let d = x.broadcast_unit_axes(d, &[16])?;
            let d = x.b.mul(d, scales)?;
            let ql = x.bytes(0, 128, &[2, 1, 64])?;
            let ql = x.shifted(ql, 1, &[0, 4], 15)?;
            let ql = x.reshape(ql, &[16, 16])?;
            let qh = x.bytes(128, 192, &[2, 1, 32])?;
            let qh = x.shifted(qh, 1, &[0, 2, 4, 6], 3)?;
            let qh = bits(x.b, Binary::Shl, qh, 4)?;
            let qh = x.reshape(qh, &[16, 16])?;
            let q = x.b.binary(Binary::Or, ql, qh)?;
            let q = x.centred(q, 32.0)?;
            x.times(q, d, 16, 16)?
        }
    };
    b.reshape(y, &full)
}
