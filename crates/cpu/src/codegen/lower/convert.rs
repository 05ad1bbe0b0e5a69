//! Conversions between dtypes and rounding to narrow floats.

use super::super::asm::W;
use super::super::enc;
use super::super::inst::{Inst, Rm, V};
use super::Lower;
use super::arith::{LaneRepr, lane_repr};
use compiler::loops::{Op, Reg};
use ir::{Compare, DType, DTypeKind, scalar::finite_max};

impl Lower<'_> {
    /// Rounds an f32 result to a number that a narrow float can represent.
    pub(crate) fn round_to(&mut self, d: DType, v: V) -> V {
        let w = self.w32();
        match d {
            DType::F16 => {
                let half = self.v2i(&enc::CVTPS2PH, w, v, 0);
                self.v2(&enc::CVTPH2PS, w, half)
            }
            DType::BF16 => {
                // Half an ulp, and one bit less if the kept part is even.
                let odd = self.v2i(&enc::PSRLD_I, w, v, 16);
                let (one, half, high) = (self.c32(1), self.c32(0x7fff), self.c32(0xffff_0000));
                let odd = self.v3(&enc::PANDD, w, odd, one);
                let r = self.v3(&enc::PADDD, w, v, half);
                let r = self.v3(&enc::PADDD, w, r, odd);
                let r = self.v3(&enc::PANDD, w, r, high);
                let quiet = self.r32(0x7fc0_0000);
                let nan = self.cmp_float(false, 3, v, v);
                self.select(DType::F32, nan, quiet, r)
            }
            DType::F8E4M3 | DType::F8E5M2 => self.round_fp8(d, v),
            _ => v,
        }
    }

    pub(super) fn cast(&mut self, to: DType, from: DType, v: V) -> V {
        if to == from {
            return v;
        }
        let helper = |lo: &mut Self| lo.call(&Op::Cast(to, Reg(0)), from, to, &[v]);
        let unsigned = from.kind() == DTypeKind::Unsigned;
        match (lane_repr(from), lane_repr(to)) {
            (h, LaneRepr::Mask) => match h {
                LaneRepr::F32 | LaneRepr::F64 => {
                    let zero = if h == LaneRepr::F64 { self.c64(0) } else { self.c32(0) };
                    self.cmp_float(h == LaneRepr::F64, 4, v, zero)
                }
                _ => {
                    let zero = if h == LaneRepr::I64 { self.c64(0) } else { self.c32(0) };
                    self.cmp_int(h == LaneRepr::I64, false, Compare::Ne, v, zero)
                }
            },
            (LaneRepr::Mask, _) => self.mask_to_number(to, v),
            (LaneRepr::F32, LaneRepr::F32) => self.round_to(to, v),
            (LaneRepr::F32, LaneRepr::F64) => self.v2(&enc::CVTPS2PD, self.w64(), v),
            (LaneRepr::F64, LaneRepr::F32) if to == DType::F32 => self.v2(&enc::CVTPD2PS, self.w64(), v),
            (LaneRepr::F64, LaneRepr::F32) => {
                let odd = self.double_to_odd(to, v);
                self.round_to(to, odd)
            }
            (LaneRepr::I32, LaneRepr::F32) if from == DType::U32 => {
                if self.wide_target() && to == DType::F32 {
                    self.v2(&enc::CVTUDQ2PS, self.w32(), v)
                } else {
                    helper(self)
                }
            }
            (LaneRepr::I32, LaneRepr::F32) => {
                // A 32-bit integer would be rounded twice in the conversion to a narrow float.
                let v = if from == DType::I32 && to != DType::F32 { self.int_to_odd(v) } else { v };
                let f = self.v2(&enc::CVTDQ2PS, self.w32(), v);
                self.round_to(to, f)
            }
            (LaneRepr::I32, LaneRepr::F64) if from != DType::U32 => self.v2(&enc::CVTDQ2PD, self.w64(), v),
            (LaneRepr::I32, LaneRepr::F64) if self.wide_target() => self.v2(&enc::CVTUDQ2PD, self.w64(), v),
            (LaneRepr::F32, LaneRepr::I32) => self.float_to_int(to, v),
            (LaneRepr::F64, LaneRepr::I32) if to != DType::U32 => self.double_to_int(to, v),
            (LaneRepr::I32, LaneRepr::I32) => self.wrap(to, v),
            (LaneRepr::I32, LaneRepr::I64) => {
                self.v2(if unsigned { &enc::PMOVZXDQ } else { &enc::PMOVSXDQ }, self.w64(), v)
            }
            (LaneRepr::I64, LaneRepr::I32) => {
                let low = self.low_halves(v);
                self.wrap(to, low)
            }
            (LaneRepr::I64, LaneRepr::I64) => v,
            (LaneRepr::I64, LaneRepr::F64) if self.wide_target() => {
                self.v2(if unsigned { &enc::CVTUQQ2PD } else { &enc::CVTQQ2PD }, self.w64(), v)
            }
            (LaneRepr::I64, LaneRepr::F32) if self.wide_target() && to == DType::F32 => {
                self.v2(if unsigned { &enc::CVTUQQ2PS } else { &enc::CVTQQ2PS }, self.w64(), v)
            }
            (LaneRepr::F32 | LaneRepr::F64, LaneRepr::I64) if self.wide_target() && to == DType::I64 => {
                // Outside of the range the instruction gives the smallest integer.
                let wide = lane_repr(from) == LaneRepr::F64;
                let enc = if wide { &enc::CVTTPD2QQ } else { &enc::CVTTPS2QQ };
                let t = self.v2(enc, self.w64(), v);
                let limit = if wide { self.c64(2f64.powi(63).to_bits()) } else { self.c32(2f32.powi(63).to_bits()) };
                let over = self.cmp_float(wide, 0x1d, v, limit);
                let max = self.c64(i64::MAX as u64);
                let t = self.select(to, over, max, t);
                let nan = self.cmp_float(wide, 3, v, v);
                let zero = self.c64(0);
                self.select(to, nan, zero, t)
            }
            (LaneRepr::F32 | LaneRepr::F64, LaneRepr::I64) if to == DType::I64 => {
                let v = if lane_repr(from) == LaneRepr::F32 { self.v2(&enc::CVTPS2PD, self.w64(), v) } else { v };
                self.double_to_long(v)
            }
            (LaneRepr::I64, LaneRepr::F64) => self.long_to_double(unsigned, v),
            (LaneRepr::I64, LaneRepr::F32) if !unsigned => {
                let odd = self.long_to_odd(v);
                let f = self.long_to_double(false, odd);
                if to == DType::F32 {
                    return self.v2(&enc::CVTPD2PS, self.w64(), f);
                }
                let odd = self.double_to_odd(to, f);
                self.round_to(to, odd)
            }
            _ => helper(self),
        }
    }

    // Rounding twice is correct if the first rounding is to odd: exact results stay, and of the two neighbours of
    // any other number the one whose last bit is set is taken, so the second rounding knows on which side of a tie the number was.

    /// Combines the low bits `last` of each 64-bit or 32-bit lane: sets the bit above them if any of them is set, and clears them.
    fn odd_bits(&mut self, wide: bool, last: u32, v: V) -> V {
        let w = if wide { self.w64() } else { self.w32() };
        let (and, add, or) = match wide {
            true => (&enc::PANDQ, &enc::PADDQ, &enc::PORQ),
            false => (&enc::PANDD, &enc::PADDD, &enc::PORD),
        };
        let mut constant = |x: u64| if wide { self.c64(x) } else { self.c32(x as u32) };
        let (low, also, high) = (constant(last as u64), constant(last as u64), constant(!(last as u64)));
        let t = self.v3(and, w, v, low);
        let t = self.v3(add, w, t, also);
        let t = self.v3(or, w, t, v);
        self.v3(and, w, t, high)
    }

    /// Converts f64 to f32 on the way to a narrow float, rounded to odd: the last 29 bits are combined into one.
    fn double_to_odd(&mut self, to: DType, v: V) -> V {
        let w = self.w64();
        let t = self.odd_bits(true, 0x1fff_ffff, v);
        // A denormal f32 has fewer bits, so the conversion would round too.
        // That only matters where it is a denormal of the narrow float.
        let t = if to == DType::BF16 { self.or_denormal(v, t) } else { t };
        self.v2(&enc::CVTPD2PS, w, t)
    }

    /// Returns f64 rounded to bf16 where that is denormal, and `t` elsewhere:
    /// adding a number with the same unit in the last place rounds once.
    fn or_denormal(&mut self, v: V, t: V) -> V {
        let w = self.w64();
        let (sum, also) = (self.c64((1.5 * 2f64.powi(-81)).to_bits()), self.c64((1.5 * 2f64.powi(-81)).to_bits()));
        let r = self.v3(&enc::ADDPD, w, v, sum);
        let r = self.v3(&enc::SUBPD, w, r, also);
        let (magnitude, sign) = (self.c64(i64::MAX as u64), self.c64(1 << 63));
        let (size, sign) = (self.v3(&enc::PANDQ, w, v, magnitude), self.v3(&enc::PANDQ, w, v, sign));
        let r = self.v3(&enc::PORQ, w, r, sign);
        let normal = self.c64((f32::MIN_POSITIVE as f64).to_bits());
        let below = self.cmp_float(true, 0x11, size, normal);
        self.select(DType::F64, below, r, t)
    }

    /// Rounds i32 to odd, to numbers that are exact in f32: from 2^24 on, the last 8 bits are combined into one.
    fn int_to_odd(&mut self, v: V) -> V {
        let w = self.w32();
        let t = self.odd_bits(false, 0xff, v);
        let (offset, limit) = (self.c32(1 << 24), self.c32(1 << 25));
        let shifted = self.v3(&enc::PADDD, w, v, offset);
        let large = self.cmp_int(false, true, Compare::Gt, shifted, limit);
        self.select(DType::I32, large, t, v)
    }

    /// Rounds i64 to odd, to numbers that are exact in f64: from 2^53 on, the last 11 bits are combined into one.
    fn long_to_odd(&mut self, v: V) -> V {
        let w = self.w64();
        let t = self.odd_bits(true, 0x7ff, v);
        let (offset, limit) = (self.c64(1 << 53), self.c64(1 << 54));
        let shifted = self.v3(&enc::PADDQ, w, v, offset);
        let large = self.cmp_int(true, true, Compare::Gt, shifted, limit);
        self.select(DType::I64, large, t, v)
    }

    /// Converts 64-bit integers to f64: each half is exact as the low bits of a power of two, and only their sum rounds.
    fn long_to_double(&mut self, unsigned: bool, v: V) -> V {
        let w = self.w64();
        // 2^84, whose last bit has the value 2^32; a signed half counts from -2^31.
        let (power, total) = match unsigned {
            true => (0x4530_0000_0000_0000, 0x4530_0000_0010_0000),
            false => (0x4530_0000_8000_0000, 0x4530_0000_8010_0000),
        };
        let (power, total) = (self.c64(power), self.c64(total));
        let high = self.v2i(&enc::PSRLQ_I, w, v, 32);
        let high = self.v3(&enc::PXORQ, w, high, power);
        let high = self.v3(&enc::SUBPD, w, high, total);
        let (half, power) = (self.c64(u32::MAX as u64), self.c64(2f64.powi(52).to_bits()));
        let low = self.v3(&enc::PANDQ, w, v, half);
        let low = self.v3(&enc::PORQ, w, low, power);
        self.v3(&enc::ADDPD, w, high, low)
    }

    /// Converts f64 to i64 with AVX2, by halves: truncates and saturates; NaN gives 0.
    fn double_to_long(&mut self, v: V) -> V {
        let w = self.w64();
        let (least, down, up) = (self.c64((-2f64.powi(63)).to_bits()), 2f64.powi(-32), 2f64.powi(32));
        let (down, up) = (self.c64(down.to_bits()), self.c64(up.to_bits()));
        let x = self.v3(&enc::MAXPD, w, v, least);
        let t = self.v2i(&enc::ROUNDPD, w, x, 0x0b);
        let high = self.v3(&enc::MULPD, w, t, down);
        let high = self.v2i(&enc::ROUNDPD, w, high, 0x09);
        let taken = self.v3(&enc::MULPD, w, high, up);
        let low = self.v3(&enc::SUBPD, w, t, taken);
        let high = self.v2(&enc::CVTTPD2DQ, w, high);
        let high = self.v2(&enc::PMOVSXDQ, w, high);
        let high = self.v2i(&enc::PSLLQ_I, w, high, 32);
        // Adding 2^52 leaves a half's integer in the low bits.
        let (power, half) = (self.c64(2f64.powi(52).to_bits()), self.c64(u32::MAX as u64));
        let low = self.v3(&enc::ADDPD, w, low, power);
        let low = self.v3(&enc::PANDQ, w, low, half);
        let t = self.v3(&enc::PORQ, w, high, low);
        let limit = self.c64(2f64.powi(63).to_bits());
        let over = self.cmp_float(true, 0x1d, v, limit);
        let max = self.c64(i64::MAX as u64);
        let t = self.select(DType::I64, over, max, t);
        let nan = self.cmp_float(true, 3, v, v);
        let zero = self.c64(0);
        self.select(DType::I64, nan, zero, t)
    }

    /// Returns the low 32 bits of 64-bit lanes.
    fn low_halves(&mut self, v: V) -> V {
        if self.wide_target() {
            return self.v2(&enc::PMOVQD, self.w64(), v);
        }
        if self.w64() == W::X {
            return self.v2i(&enc::PSHUFD, W::X, v, 0x08);
        }
        let high = self.v2i(&enc::EXTRACTF128, W::Y, v, 1);
        self.v3i(&enc::SHUFPS, W::X, v, high, 0x88)
    }

    /// Returns 1 where the mask is on, otherwise 0.
    fn mask_to_number(&mut self, to: DType, m: V) -> V {
        let wide = to.size() == 8;
        let w = self.w(to);
        let one = match (to.is_float(), wide) {
            (true, true) => self.r64(1f64.to_bits()),
            (true, false) => self.r32(1f32.to_bits()),
            (false, true) => self.r64(1),
            (false, false) => self.r32(1),
        };
        if self.wide_target() {
            let dst = self.vec();
            let enc = if wide { &enc::MOVUPD } else { &enc::MOVUPS };
            self.emit(Inst::Vec { enc, w, dst, a: V::NONE, b: Rm::R(one), imm: None, mask: m });
            return dst;
        }
        let lanes = if wide { self.widen_mask(m) } else { m };
        self.v3(&enc::PANDD, w, lanes, one)
    }

    /// Converts to integers: truncates and saturates; NaN gives 0.
    fn float_to_int(&mut self, to: DType, v: V) -> V {
        let w = self.w32();
        match to {
            DType::I32 => {
                let t = self.v2(&enc::CVTTPS2DQ, w, v);
                let limit = self.c32(2147483648f32.to_bits());
                let over = self.cmp_float(false, 0x1d, v, limit);
                let max = self.c32(i32::MAX as u32);
                let t = self.select(to, over, max, t);
                self.zero_if_nan(v, t)
            }
            DType::U32 if self.wide_target() => {
                // NaN and negative numbers: the second operand, zero.
                let zero = self.c32(0);
                let x = self.v3(&enc::MAXPS, w, v, zero);
                self.v2(&enc::CVTTPS2UDQ, w, x)
            }
            DType::U32 => self.call(&Op::Cast(to, Reg(0)), DType::F32, to, &[v]),
            _ => {
                let low = self.c32((to.int_min() as f32).to_bits());
                let high = self.c32((to.int_max() as f32).to_bits());
                let x = self.v3(&enc::MAXPS, w, v, low);
                let x = self.v3(&enc::MINPS, w, x, high);
                let t = self.v2(&enc::CVTTPS2DQ, w, x);
                self.zero_if_nan(v, t)
            }
        }
    }

    fn zero_if_nan(&mut self, float: V, int: V) -> V {
        let ordered = self.cmp_float(false, 7, float, float);
        let zero = self.r32(0);
        self.select(DType::I32, ordered, int, zero)
    }

    fn double_to_int(&mut self, to: DType, v: V) -> V {
        let w = self.w64();
        let low = self.c64((to.int_min() as f64).to_bits());
        let high = self.c64((to.int_max() as f64).to_bits());
        let x = self.v3(&enc::MAXPD, w, v, low);
        let x = self.v3(&enc::MINPD, w, x, high);
        let t = self.v2(&enc::CVTTPD2DQ, w, x);
        let ordered = self.cmp_float(true, 7, v, v);
        let zero = self.r32(0);
        self.select(DType::I32, ordered, t, zero)
    }

    pub(super) fn quantize(&mut self, to: DType, from: DType, v: V) -> V {
        if !to.is_float() || !from.is_float() {
            return self.cast(to, from, v);
        }
        let inline = lane_repr(to) == LaneRepr::F32 && lane_repr(from) == LaneRepr::F32;
        if !inline {
            return self.call(&Op::Quantize(to, Reg(0)), from, to, &[v]);
        }
        // The bound is the first operand: these instructions give the second operand if either is NaN.
        let max = finite_max(to) as f32;
        let (low, high) = (self.r32((-max).to_bits()), self.r32(max.to_bits()));
        let x = self.v3(&enc::MAXPS, self.w32(), low, v);
        let x = self.v3(&enc::MINPS, self.w32(), high, x);
        self.round_to(to, x)
    }

    pub(super) fn bitcast(&mut self, to: DType, from: DType, v: V) -> V {
        let w = self.w32();
        match (from, to) {
            _ if from.size() >= 4 || from == to => v,
            // The bits of a bool are those of 0 or 1.
            (DType::Bool, _) => {
                let number = self.mask_to_number(DType::U8, v);
                self.bitcast(to, DType::U8, number)
            }
            (DType::BF16, _) if to.is_int() => {
                let v = self.v2i(&enc::PSRLD_I, w, v, 16);
                self.wrap(to, v)
            }
            (_, DType::BF16) if from.is_int() => self.v2i(&enc::PSLLD_I, w, v, 16),
            _ if from.is_int() && to.is_int() => self.wrap(to, v),
            (DType::F8E4M3 | DType::F8E5M2, _) if to.is_int() => {
                let v = self.f32_to_fp8(from, v);
                self.wrap(to, v)
            }
            (_, DType::F8E4M3 | DType::F8E5M2) if from.is_int() => {
                let low = self.wrap(DType::U8, v);
                self.fp8_to_f32(to, low)
            }
            _ => self.call(&Op::Bitcast(to, Reg(0)), from, to, &[v]),
        }
    }
}
