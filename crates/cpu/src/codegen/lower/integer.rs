//! Integer arithmetic on 32- and 64-bit lanes.

use super::super::asm::Cc;
use super::super::enc;
use super::super::inst::{Inst, Rm, V};
use super::Lower;
use compiler::loops::{Op, Reg};
use ir::{Binary, Compare, DType, DTypeKind, Unary};

impl Lower<'_> {
    pub(super) fn binary32(&mut self, op: Binary, d: DType, a: V, b: Rm) -> V {
        let w = self.w32();
        let unsigned = d.kind() == DTypeKind::Unsigned;
        let (enc, wraps) = match op {
            Binary::Add => (&enc::PADDD, true),
            Binary::Sub => (&enc::PSUBD, true),
            Binary::Mul => (&enc::PMULLD, true),
            Binary::Max if unsigned => (&enc::PMAXUD, false),
            Binary::Max => (&enc::PMAXSD, false),
            Binary::Min if unsigned => (&enc::PMINUD, false),
            Binary::Min => (&enc::PMINSD, false),
            Binary::And => (&enc::PANDD, false),
            Binary::Or => (&enc::PORD, false),
            Binary::Xor => (&enc::PXORD, false),
            Binary::Shl => (&enc::PSLLVD, true),
            Binary::Shr if unsigned => (&enc::PSRLVD, false),
            Binary::Shr => (&enc::PSRAVD, false),
            Binary::Div | Binary::Rem => {
                let b = self.rm_reg(b, false);
                return match self.divide32(d, op == Binary::Rem, a, b) {
                    Some(v) => v,
                    None => self.call(&Op::Binary(op, Reg(0), Reg(0)), d, d, &[a, b]),
                };
            }
            Binary::Pow => {
                let b = self.rm_reg(b, false);
                return self.integer_pow(d, a, b);
            }
            _ => {
                let b = self.rm_reg(b, false);
                return self.call(&Op::Binary(op, Reg(0), Reg(0)), d, d, &[a, b]);
            }
        };
        let v = self.v3(enc, w, a, b);
        if wraps { self.wrap(d, v) } else { v }
    }

    pub(super) fn binary64(&mut self, op: Binary, d: DType, a: V, b: Rm) -> V {
        let w = self.w64();
        let unsigned = d == DType::U64;
        let enc = match op {
            Binary::Add => &enc::PADDQ,
            Binary::Sub => &enc::PSUBQ,
            Binary::And => &enc::PANDQ,
            Binary::Or => &enc::PORQ,
            Binary::Xor => &enc::PXORQ,
            Binary::Shl => &enc::PSLLVQ,
            Binary::Shr if unsigned => &enc::PSRLVQ,
            Binary::Mul => return self.mul64(a, b),
            Binary::Max | Binary::Min if !self.wide_target() => {
                let b = self.rm_reg(b, true);
                let order = if op == Binary::Max { Compare::Gt } else { Compare::Lt };
                let m = self.cmp_int(true, unsigned, order, a, b.into());
                return self.select(d, m, a, b);
            }
            Binary::Max if unsigned => &enc::PMAXUQ,
            Binary::Max => &enc::PMAXSQ,
            Binary::Min if unsigned => &enc::PMINUQ,
            Binary::Min => &enc::PMINSQ,
            Binary::Shr if self.wide_target() => &enc::PSRAVQ,
            Binary::Shr => {
                // Arithmetic shift: (x >>> n) with the sign bit shifted along and extended, (y ^ m) - m.
                let b = self.rm_reg(b, true);
                let most = self.r64(63);
                let over = self.cmp_int(true, true, Compare::Gt, b, most.into());
                let n = self.select(d, over, most, b);
                let sign = self.r64(1 << 63);
                let m = self.v3(&enc::PSRLVQ, w, sign, n);
                let y = self.v3(&enc::PSRLVQ, w, a, n);
                let y = self.v3(&enc::PXORQ, w, y, m);
                return self.v3(&enc::PSUBQ, w, y, m);
            }
            Binary::Div | Binary::Rem => {
                let b = self.rm_reg(b, true);
                return self.divide64(!unsigned, op == Binary::Rem, a, b);
            }
            Binary::Pow => {
                let b = self.rm_reg(b, true);
                return self.integer_pow(d, a, b);
            }
            _ => {
                let b = self.rm_reg(b, true);
                return self.call(&Op::Binary(op, Reg(0), Reg(0)), d, d, &[a, b]);
            }
        };
        self.v3(enc, w, a, b)
    }

    /// Returns the low 64 bits of a product.
    pub(crate) fn mul64(&mut self, a: V, b: Rm) -> V {
        let w = self.w64();
        if self.wide_target() {
            return self.v3(&enc::PMULLQ, w, a, b);
        }
        let b = self.rm_reg(b, true);
        let low = self.v3(&enc::PMULUDQ, w, a, b);
        let a_high = self.v2i(&enc::PSRLQ_I, w, a, 32);
        let b_high = self.v2i(&enc::PSRLQ_I, w, b, 32);
        let x = self.v3(&enc::PMULUDQ, w, a_high, b);
        let y = self.v3(&enc::PMULUDQ, w, b_high, a);
        let cross = self.v3(&enc::PADDQ, w, x, y);
        let cross = self.v2i(&enc::PSLLQ_I, w, cross, 32);
        self.v3(&enc::PADDQ, w, low, cross)
    }

    /// Computes powers by squaring, until no lane has a bit of its exponent left.
    fn integer_pow(&mut self, d: DType, a: V, b: V) -> V {
        let wide = d.size() == 8;
        let held = if wide { DType::I64 } else { DType::I32 };
        let w = self.w(d);
        let pick = |s, x| if wide { x } else { s };
        let one = if wide { self.r64(1) } else { self.r32(1) };
        let zero = if wide { self.r64(0) } else { self.r32(0) };
        let (result, base, rest) = (self.vec(), self.vec(), self.vec());
        self.mov(result, one);
        self.mov(base, a);
        self.mov(rest, b);
        let begin = self.label();
        self.emit(Inst::LoopBegin { label: begin });
        let bit = self.v3(pick(&enc::PANDD, &enc::PANDQ), w, rest, one);
        let on = self.cmp_int(wide, false, Compare::Ne, bit, zero.into());
        let times = |lo: &mut Self, x: V, y: V| {
            if wide { lo.mul64(x, y.into()) } else { lo.v3(&enc::PMULLD, w, x, y) }
        };
        let more = times(self, result, base);
        let next = self.select(held, on, more, result);
        self.mov(result, next);
        let square = times(self, base, base);
        self.mov(base, square);
        let shifted = self.v2i(pick(&enc::PSRLD_I, &enc::PSRLQ_I), w, rest, 1);
        self.mov(rest, shifted);
        let left = self.cmp_int(wide, false, Compare::Ne, rest, zero.into());
        let any = self.any(left);
        self.test(any);
        self.branch(Cc::Ne, begin);
        self.emit(Inst::LoopEnd);
        if d.kind() == DTypeKind::Unsigned {
            return if wide { result } else { self.wrap(d, result) };
        }
        // Negative powers of all numbers but 1 and -1 are 0; those two only depend on the exponent's last bit.
        let minus = if wide { self.c64(u64::MAX) } else { self.c32(u32::MAX) };
        let negative = self.cmp_int(wide, false, Compare::Lt, b, zero.into());
        let plus_one = self.cmp_int(wide, false, Compare::Ne, a, one.into());
        let minus_one = self.cmp_int(wide, false, Compare::Ne, a, minus);
        let other = self.mask_logic(Binary::And, plus_one, minus_one);
        let gone = self.mask_logic(Binary::And, other, negative);
        let r = self.select(held, gone, zero, result);
        if wide { r } else { self.wrap(d, r) }
    }

    /// Counts the bits that are on: sums of pairs, nibbles, bytes, then the sum of the bytes.
    fn count_bits(&mut self, d: DType, v: V) -> V {
        let wide = d.size() == 8;
        let w = self.w(d);
        let pick = |s, x| if wide { x } else { s };
        let c = |lo: &mut Self, byte: u64| {
            let all = byte * 0x0101_0101_0101_0101;
            if wide { lo.c64(all) } else { lo.c32(all as u32) }
        };
        let (shift, and) = (pick(&enc::PSRLD_I, &enc::PSRLQ_I), pick(&enc::PANDD, &enc::PANDQ));
        let (add, sub) = (pick(&enc::PADDD, &enc::PADDQ), pick(&enc::PSUBD, &enc::PSUBQ));
        // Narrow integers are stored sign-extended.
        let v = match d.size() {
            1 | 2 => {
                let m = self.c32((1 << d.bits()) - 1);
                self.v3(and, w, v, m)
            }
            _ => v,
        };
        let half = self.v2i(shift, w, v, 1);
        let m = c(self, 0x55);
        let half = self.v3(and, w, half, m);
        let v = self.v3(sub, w, v, half);
        let m = c(self, 0x33);
        let high = self.v2i(shift, w, v, 2);
        let (high, low) = (self.v3(and, w, high, m), self.v3(and, w, v, m));
        let v = self.v3(add, w, high, low);
        let high = self.v2i(shift, w, v, 4);
        let v = self.v3(add, w, v, high);
        let m = c(self, 0x0f);
        let mut v = self.v3(and, w, v, m);
        for n in if wide { &[8, 16, 32][..] } else { &[8, 16] } {
            let high = self.v2i(shift, w, v, *n);
            v = self.v3(add, w, v, high);
        }
        let m = if wide { self.c64(0x7f) } else { self.c32(0x3f) };
        self.v3(and, w, v, m)
    }

    /// Wraps a 32-bit result to a narrow integer's range.
    pub(crate) fn wrap(&mut self, d: DType, v: V) -> V {
        let w = self.w32();
        match d {
            DType::I8 | DType::I16 => {
                let n = 32 - d.bits() as u8;
                let v = self.v2i(&enc::PSLLD_I, w, v, n);
                self.v2i(&enc::PSRAD_I, w, v, n)
            }
            DType::U8 | DType::U16 => {
                let m = self.c32(d.int_max() as u32);
                self.v3(&enc::PANDD, w, v, m)
            }
            _ => v,
        }
    }

    pub(super) fn unary32(&mut self, op: Unary, d: DType, v: V) -> V {
        let whole = Op::Unary(op, Reg(0));
        let w = self.w32();
        let unsigned = d.kind() == DTypeKind::Unsigned;
        let r = match op {
            Unary::Neg => {
                let zero = self.r32(0);
                self.v3(&enc::PSUBD, w, zero, v)
            }
            Unary::Abs if unsigned => return v,
            Unary::Abs => self.v2(&enc::PABSD, w, v),
            Unary::Sign => {
                let (one, minus) = (self.c32(1), self.c32(u32::MAX));
                let r = self.v3(if unsigned { &enc::PMINUD } else { &enc::PMINSD }, w, v, one);
                return if unsigned { r } else { self.v3(&enc::PMAXSD, w, r, minus) };
            }
            Unary::Not => {
                let ones = self.c32(u32::MAX);
                self.v3(&enc::PXORD, w, v, ones)
            }
            Unary::PopulationCount => return self.count_bits(d, v),
            _ => return self.call(&whole, d, d, &[v]),
        };
        self.wrap(d, r)
    }

    pub(super) fn unary64(&mut self, op: Unary, d: DType, v: V) -> V {
        let whole = Op::Unary(op, Reg(0));
        let w = self.w64();
        match op {
            Unary::Neg => {
                let zero = self.r64(0);
                self.v3(&enc::PSUBQ, w, zero, v)
            }
            Unary::Not => {
                let ones = self.c64(u64::MAX);
                self.v3(&enc::PXORQ, w, v, ones)
            }
            Unary::Abs if d == DType::U64 => v,
            Unary::Abs => {
                let zero = self.r64(0);
                let minus = self.v3(&enc::PSUBQ, w, zero, v);
                let negative = self.cmp_int(true, false, Compare::Lt, v, zero.into());
                self.select(d, negative, minus, v)
            }
            Unary::Sign => {
                let (zero, one) = (self.r64(0), self.c64(1));
                let some = self.cmp_int(true, false, Compare::Ne, v, zero.into());
                let s = self.select(d, some, one, zero);
                if d == DType::U64 {
                    return s;
                }
                let negative = self.cmp_int(true, false, Compare::Lt, v, zero.into());
                let minus = self.c64(u64::MAX);
                self.select(d, negative, minus, s)
            }
            Unary::PopulationCount => self.count_bits(d, v),
            _ => self.call(&whole, d, d, &[v]),
        }
    }
}
