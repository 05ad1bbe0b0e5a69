//! Integer arithmetic on 32- and 64-bit lanes.

use super::super::enc;
use super::super::inst::{Rm, V};
use super::Lower;
use compiler::loops::{Op, Reg};
use ir::{Binary, Class, Compare, DType, Unary};

impl Lower<'_> {
    pub(super) fn binary32(&mut self, op: Binary, d: DType, a: V, b: Rm) -> V {
        let w = self.w32();
        let unsigned = d.class() == Class::Unsigned;
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
                // (x >>> n) with the sign bit moved along and spread: (y ^ m) - m.
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
                return self.divide64_by_lane(!unsigned, op == Binary::Rem, a, b);
            }
            _ => {
                let b = self.rm_reg(b, true);
                return self.call(&Op::Binary(op, Reg(0), Reg(0)), d, d, &[a, b]);
            }
        };
        self.v3(enc, w, a, b)
    }

    /// The low 64 bits of a product.
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

    /// A 32-bit result brought back into a narrow integer's range.
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
        let unsigned = d.class() == Class::Unsigned;
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
            _ => self.call(&whole, d, d, &[v]),
        }
    }
}
