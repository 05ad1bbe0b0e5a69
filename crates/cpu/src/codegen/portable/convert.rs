//! Casts of lanes. Casts that are not here call the helper.

use super::kernel::{Parts, Writer};
use super::vector::{HIGH_FIRST, LOW_LOW, lane_type};
use super::word;
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ir::{DType, DTypeKind};

impl Writer<'_> {
    pub(super) fn vector_cast(&mut self, from: DType, to: DType, x: &[Value]) -> Option<Parts> {
        use DType::*;
        let signed = from.kind() == DTypeKind::Signed;
        Some(match (from, to) {
            (a, b) if a == b => x.to_vec(),
            (F32 | BF16, F32 | BF16) => x.to_vec(),
            (F32 | BF16, F64) => self.halves(x, |w, v| w.b.ins().fvpromote_low(v)),
            (F64, F32) => {
                let low = self.each(x, |w, v| w.b.ins().fvdemote(v));
                low.chunks(2).map(|p| self.shuffle(p[0], p[1], LOW_LOW)).collect()
            }
            (F32 | BF16, Bool) => {
                let zero = self.b.ins().f32const(0.0);
                let zero = self.b.ins().splat(types::F32X4, zero);
                self.each(x, |w, v| w.b.ins().fcmp(FloatCC::NotEqual, v, zero))
            }
            (d, Bool) if word(d) => self.each(x, Self::nonzero_lanes),
            (F32 | BF16, I32) => self.each(x, |w, v| w.b.ins().fcvt_to_sint_sat(types::I32X4, v)),
            (F32 | BF16, U32) => self.each(x, |w, v| w.b.ins().fcvt_to_uint_sat(types::I32X4, v)),
            (Bool, F32 | BF16) => {
                let one = self.words(1f32.to_bits());
                self.each(x, |w, v| {
                    let v = w.b.ins().band(v, one);
                    w.like(types::F32X4, v)
                })
            }
            (Bool, t) if word(t) => {
                let one = self.words(1);
                self.each(x, |w, v| w.b.ins().band(v, one))
            }
            (Bool, I64 | U64) => {
                let masks = self.mask32_to_mask64(x);
                self.each(&masks, |w, v| w.b.ins().ineg(v))
            }
            (U32, F32) => self.each(x, |w, v| w.b.ins().fcvt_from_uint(types::F32X4, v)),
            (d, F32) if word(d) => self.each(x, |w, v| w.b.ins().fcvt_from_sint(types::F32X4, v)),
            (d, F64) if word(d) && d != U32 => self.halves(x, |w, v| {
                let v = w.b.ins().swiden_low(v);
                w.b.ins().fcvt_from_sint(types::F64X2, v)
            }),
            (d, t) if word(d) && word(t) => x.to_vec(),
            (d, I64 | U64) if word(d) => match signed {
                true => self.mask32_to_mask64(x),
                false => x.iter().flat_map(|&v| [self.b.ins().uwiden_low(v), self.b.ins().uwiden_high(v)]).collect(),
            },
            (I64 | U64, t) if word(t) => self.pack_low_halves(x),
            (I64 | U64, I64 | U64) => x.to_vec(),
            // These are converted lane by lane.
            (I64 | U64, F32 | F64 | Bool) | (F32 | BF16, I64 | U64) | (F64, I32 | U32 | I64 | U64) | (U32, F64) => {
                let cast = |w: &mut Self, v| w.scalar_cast(from, to, v).expect("a cast of numbers");
                self.lane_by_lane((from, to), x, cast)
            }
            _ => return None,
        })
        .map(|v| self.each(&v, |w, v| w.like(lane_type(to), v)))
    }

    /// Applies an instruction that converts the low two lanes to all four lanes.
    fn halves(&mut self, x: &[Value], mut f: impl FnMut(&mut Self, Value) -> Value) -> Parts {
        let mut all = Parts::new();
        for &v in x {
            all.push(f(self, v));
            let high = self.shuffle(v, v, HIGH_FIRST);
            all.push(f(self, high));
        }
        all
    }
}
