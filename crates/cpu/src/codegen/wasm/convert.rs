//! Casts. Casts that are not here call the helper.

use super::body::L;
use super::kernel::{KernelWriter, Parts};
use ir::{DType, DTypeKind};
use wasm_encoder::{Instruction as I, ValType};

/// Returns whether this is an integer type that is stored in 32 bits.
fn word(d: DType) -> bool {
    d.is_int() && d.size() <= 4
}

impl KernelWriter<'_> {
    pub(crate) fn scalar_cast(&mut self, from: DType, to: DType, x: L) -> Option<L> {
        use DType::*;
        let signed = from.kind() == DTypeKind::Signed;
        Some(match (from, to) {
            (a, b) if a == b => x,
            (F32 | BF16, F32 | BF16) => x,
            (F32 | BF16, F64) => self.b.value(ValType::F64, I::F64PromoteF32, &[x]),
            (F64, F32) => self.b.value(ValType::F32, I::F32DemoteF64, &[x]),
            (F32 | BF16, Bool) => {
                let zero = self.b.const_f32(0);
                self.b.i32(I::F32Ne, &[x, zero])
            }
            (F64, Bool) => {
                let zero = self.b.const_f64(0);
                self.b.i32(I::F64Ne, &[x, zero])
            }
            (I64 | U64, Bool) => {
                let zero = self.b.const_i64(0);
                self.b.i32(I::I64Ne, &[x, zero])
            }
            (d, Bool) if word(d) => {
                let zero = self.b.const_i32(0);
                self.b.i32(I::I32Ne, &[x, zero])
            }
            (F32 | BF16, I32) => self.b.i32(I::I32TruncSatF32S, &[x]),
            (F32 | BF16, U32) => self.b.i32(I::I32TruncSatF32U, &[x]),
            (F64, I32) => self.b.i32(I::I32TruncSatF64S, &[x]),
            (F64, U32) => self.b.i32(I::I32TruncSatF64U, &[x]),
            (F32 | BF16, I64) => self.b.i64(I::I64TruncSatF32S, &[x]),
            (F32 | BF16, U64) => self.b.i64(I::I64TruncSatF32U, &[x]),
            (F64, I64) => self.b.i64(I::I64TruncSatF64S, &[x]),
            (F64, U64) => self.b.i64(I::I64TruncSatF64U, &[x]),
            (U32, F32) => self.b.value(ValType::F32, I::F32ConvertI32U, &[x]),
            (U32, F64) => self.b.value(ValType::F64, I::F64ConvertI32U, &[x]),
            (Bool, F32 | BF16) => self.b.value(ValType::F32, I::F32ConvertI32S, &[x]),
            (Bool, F64) => self.b.value(ValType::F64, I::F64ConvertI32S, &[x]),
            (d, F32) if word(d) => self.b.value(ValType::F32, I::F32ConvertI32S, &[x]),
            (d, F64) if word(d) => self.b.value(ValType::F64, I::F64ConvertI32S, &[x]),
            (I64, F32) => self.b.value(ValType::F32, I::F32ConvertI64S, &[x]),
            (I64, F64) => self.b.value(ValType::F64, I::F64ConvertI64S, &[x]),
            (U64, F32) => self.b.value(ValType::F32, I::F32ConvertI64U, &[x]),
            (U64, F64) => self.b.value(ValType::F64, I::F64ConvertI64U, &[x]),
            // Narrow results are wrapped to their range afterwards.
            (d, t) if (word(d) || d == Bool) && word(t) => x,
            (d, I64 | U64) if word(d) || d == Bool => {
                self.b.i64(if signed { I::I64ExtendI32S } else { I::I64ExtendI32U }, &[x])
            }
            (I64 | U64, t) if word(t) => self.b.i32(I::I32WrapI64, &[x]),
            (I64 | U64, I64 | U64) => x,
            _ => return None,
        })
    }

    pub(crate) fn vector_cast(&mut self, from: DType, to: DType, x: &[L]) -> Option<Parts> {
        use DType::*;
        let signed = from.kind() == DTypeKind::Signed;
        let each = |w: &mut Self, i: I<'static>| -> Parts { x.iter().map(|&v| w.b.v128(i.clone(), &[v])).collect() };
        let with =
            |w: &mut Self, i: I<'static>, c: L| -> Parts { x.iter().map(|&v| w.b.v128(i.clone(), &[v, c])).collect() };
        Some(match (from, to) {
            (a, b) if a == b => x.to_vec(),
            (F32 | BF16, F32 | BF16) => x.to_vec(),
            (F32 | BF16, F64) => self.halves(x, I::F64x2PromoteLowF32x4),
            (F64, F32) => {
                let low: Parts = each(self, I::F32x4DemoteF64x2Zero);
                self.joined_halves(&low)
            }
            (F32 | BF16, Bool) => {
                let zero = self.b.splat32(0);
                with(self, I::F32x4Ne, zero)
            }
            (d, Bool) if word(d) => {
                let zero = self.b.splat32(0);
                with(self, I::I32x4Ne, zero)
            }
            (I64 | U64, Bool) => {
                let zero = self.b.splat64(0);
                let masks = with(self, I::I64x2Ne, zero);
                self.pack_low_halves(&masks)
            }
            (F64, Bool) => {
                let zero = self.b.splat64(0);
                let masks = with(self, I::F64x2Ne, zero);
                self.pack_low_halves(&masks)
            }
            (F32 | BF16, I32) => each(self, I::I32x4TruncSatF32x4S),
            (F32 | BF16, U32) => each(self, I::I32x4TruncSatF32x4U),
            (F64, I32) => {
                let low: Parts = each(self, I::I32x4TruncSatF64x2SZero);
                self.joined_halves(&low)
            }
            (Bool, F32 | BF16) => {
                let one = self.b.splat32(1f32.to_bits());
                with(self, I::V128And, one)
            }
            (Bool, t) if word(t) => {
                let one = self.b.splat32(1);
                with(self, I::V128And, one)
            }
            (Bool, F64) => {
                let (masks, one) = (self.mask32_to_mask64(x), self.b.splat64(1f64.to_bits()));
                masks.into_iter().map(|m| self.b.v128(I::V128And, &[m, one])).collect()
            }
            (Bool, I64 | U64) => {
                let (masks, one) = (self.mask32_to_mask64(x), self.b.splat64(1));
                masks.into_iter().map(|m| self.b.v128(I::V128And, &[m, one])).collect()
            }
            (U32, F32) => each(self, I::F32x4ConvertI32x4U),
            (d, F32) if word(d) => each(self, I::F32x4ConvertI32x4S),
            (U32, F64) => self.halves(x, I::F64x2ConvertLowI32x4U),
            (d, F64) if word(d) => self.halves(x, I::F64x2ConvertLowI32x4S),
            (d, t) if word(d) && word(t) => x.to_vec(),
            (d, I64 | U64) if word(d) => {
                let (low, high) = match signed {
                    true => (I::I64x2ExtendLowI32x4S, I::I64x2ExtendHighI32x4S),
                    false => (I::I64x2ExtendLowI32x4U, I::I64x2ExtendHighI32x4U),
                };
                x.iter().flat_map(|&v| [self.b.v128(low.clone(), &[v]), self.b.v128(high.clone(), &[v])]).collect()
            }
            (I64 | U64, t) if word(t) => self.pack_low_halves(x),
            (I64 | U64, I64 | U64) => x.to_vec(),
            // These are converted lane by lane.
            (I64 | U64, F32 | F64) | (F32 | F64, I64 | U64) => {
                let n = self.count(Bool) * super::kernel::LANES;
                let mut lanes = Vec::with_capacity(n);
                for lane in 0..n {
                    let v = self.extract(from, x, lane);
                    lanes.push(self.scalar_cast(from, to, v)?);
                }
                self.from_lanes(to, &lanes)
            }
            _ => return None,
        })
    }

    /// Applies an instruction that converts the low two lanes to all four lanes.
    fn halves(&mut self, x: &[L], i: I<'static>) -> Parts {
        let mut all = Parts::new();
        for &v in x {
            all.push(self.b.v128(i.clone(), &[v]));
            let high = self.b.v128(I::I8x16Shuffle([8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0]), &[v, v]);
            all.push(self.b.v128(i.clone(), &[high]));
        }
        all
    }

    /// Joins the low two lanes of pairs of vectors.
    pub(crate) fn joined_halves(&mut self, x: &[L]) -> Parts {
        let join = I::I8x16Shuffle([0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23]);
        x.chunks(2).map(|p| self.b.v128(join.clone(), p)).collect()
    }
}
