//! Arithmetic on values in registers; ops without a short inline form call the lane helper.

use super::super::enc;
use super::super::helper;
use super::super::inst::{Inst, Mem, Rm, V};
use super::super::math;
use super::Lower;
use compiler::loops::{Op, Reg};
use ir::{Binary, Compare, DType, DTypeKind, Unary};

/// The representation of lanes of a dtype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LaneRepr {
    Mask,
    F32,
    F64,
    I32,
    I64,
}

pub(crate) fn lane_repr(d: DType) -> LaneRepr {
    match (d.kind(), d.size()) {
        (DTypeKind::Bool, _) => LaneRepr::Mask,
        (DTypeKind::Float, 8) => LaneRepr::F64,
        (DTypeKind::Float, _) => LaneRepr::F32,
        (_, 8) => LaneRepr::I64,
        _ => LaneRepr::I32,
    }
}

impl Lower<'_> {
    pub(super) fn op(&mut self, dst: Reg, op: &Op, u: usize) -> V {
        match *op {
            Op::Const(s) => self.scalar_const(s),
            Op::Index(ref i) => self.index_value(dst, i, u),
            Op::Load { buf, ref index, mask } => self.load(buf, index, mask, u),
            Op::Unary(f, x) => {
                let d = self.dtype(x);
                let v = self.get(x, u);
                self.unary(f, d, v)
            }
            Op::Binary(f, a, b) => {
                let d = self.dtype(a);
                if lane_repr(d) == LaneRepr::I64 && self.l == 1 && matches!(f, Binary::Div | Binary::Rem) {
                    return self.divide_scalar(dst, d, a, b, f == Binary::Rem);
                }
                // Put a constant second where the order does not matter.
                let swap = matches!(f, Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor)
                    && self.consts[a.0 as usize].is_some();
                let (a, b) = if swap { (b, a) } else { (a, b) };
                let (x, y) = (self.get(a, u), self.get_rm(b, u));
                if let (DType::I64, Binary::Div | Binary::Rem, Some(c)) = (d, f, self.consts[b.0 as usize])
                    && let Some(v) = self.divide64_const(f == Binary::Rem, x, c.to_i64())
                {
                    return v;
                }
                self.binary(f, d, x, y)
            }
            Op::Compare(f, a, b) => {
                let d = self.dtype(a);
                let (x, y) = (self.get(a, u), self.get_rm(b, u));
                self.compare(f, d, x, y)
            }
            Op::Select(c, a, b) => {
                let d = self.dtype(a);
                let (c, x, y) = (self.get(c, u), self.get_rm(a, u), self.get(b, u));
                self.select(d, c, x, y)
            }
            Op::Fma(a, b, c) => {
                let d = self.dtype(a);
                let swap = self.consts[a.0 as usize].is_some();
                let (a, b) = if swap { (b, a) } else { (a, b) };
                let (x, y, z) = (self.get(a, u), self.get_rm(b, u), self.get_rm(c, u));
                if lane_repr(d) == LaneRepr::I32 || lane_repr(d) == LaneRepr::I64 {
                    let p = self.binary(Binary::Mul, d, x, y);
                    return self.binary(Binary::Add, d, p, z);
                }
                let v = self.fma(lane_repr(d) == LaneRepr::F64, x, y, z);
                self.round_to(d, v)
            }
            Op::Cast(to, x) => {
                let (d, v) = (self.dtype(x), self.get(x, u));
                self.cast(to, d, v)
            }
            Op::Quantize(to, x) => {
                let (d, v) = (self.dtype(x), self.get(x, u));
                self.quantize(to, d, v)
            }
            Op::Bitcast(to, x) => {
                let (d, v) = (self.dtype(x), self.get(x, u));
                self.bitcast(to, d, v)
            }
        }
    }

    fn divide_scalar(&mut self, dst: Reg, d: DType, a: Reg, b: Reg, rem: bool) -> V {
        let (a, b) = (self.gpr_of(a), self.gpr_of(b));
        let g = self.gpr();
        self.emit(Inst::DivRem { dst: g, a, b, signed: d == DType::I64, rem });
        self.note_gpr(dst, g);
        self.v2(&enc::MOVQ_FROM, super::W::X, g)
    }

    pub(crate) fn binary(&mut self, op: Binary, d: DType, a: V, b: Rm) -> V {
        let w = self.w(d);
        match lane_repr(d) {
            LaneRepr::Mask => {
                let Rm::R(b) = b else { return a };
                self.mask_logic(op, a, b)
            }
            LaneRepr::F32 | LaneRepr::F64 => {
                let pick = |s, x| if lane_repr(d) == LaneRepr::F64 { x } else { s };
                let enc = match op {
                    Binary::Add => pick(&enc::ADDPS, &enc::ADDPD),
                    Binary::Sub => pick(&enc::SUBPS, &enc::SUBPD),
                    Binary::Mul => pick(&enc::MULPS, &enc::MULPD),
                    Binary::Div => pick(&enc::DIVPS, &enc::DIVPD),
                    Binary::Max | Binary::Min => {
                        // Select `a` where it is NaN; the instruction gives `b` where either is.
                        let max = op == Binary::Max;
                        let enc = if max { pick(&enc::MAXPS, &enc::MAXPD) } else { pick(&enc::MINPS, &enc::MINPD) };
                        let r = self.v3(enc, w, a, b);
                        let nan = self.cmp_float(lane_repr(d) == LaneRepr::F64, 3, a, a);
                        return self.select(d, nan, a, r);
                    }
                    Binary::Pow | Binary::Rem | Binary::Atan2 => {
                        let wide = lane_repr(d) == LaneRepr::F64;
                        let b = self.rm_reg(b, wide);
                        let v = match op {
                            Binary::Pow => math::pow(self, wide, a, b),
                            Binary::Rem => math::rem(self, wide, a, b),
                            _ => math::atan2(self, wide, a, b),
                        };
                        return self.round_to(d, v);
                    }
                    Binary::Zeta if lane_repr(d) == LaneRepr::F32 => {
                        let b = self.rm_reg(b, false);
                        let v = math::zeta(self, a, b);
                        return self.round_to(d, v);
                    }
                    _ => {
                        let b = self.rm_reg(b, d.size() == 8);
                        return self.call(&Op::Binary(op, Reg(0), Reg(0)), d, d, &[a, b]);
                    }
                };
                let v = self.v3(enc, w, a, b);
                self.round_to(d, v)
            }
            LaneRepr::I32 => self.binary32(op, d, a, b),
            LaneRepr::I64 => self.binary64(op, d, a, b),
        }
    }

    pub(crate) fn unary(&mut self, op: Unary, d: DType, v: V) -> V {
        let whole = Op::Unary(op, Reg(0));
        match lane_repr(d) {
            LaneRepr::Mask => self.mask_not(v),
            LaneRepr::F32 | LaneRepr::F64 => match self.unary_float(op, d, v) {
                Some(r) => r,
                None => self.call(&whole, d, op.result(d), &[v]),
            },
            LaneRepr::I32 => self.unary32(op, d, v),
            LaneRepr::I64 => self.unary64(op, d, v),
        }
    }

    fn unary_float(&mut self, op: Unary, d: DType, v: V) -> Option<V> {
        let wide = lane_repr(d) == LaneRepr::F64;
        let w = self.w(d);
        let pick = |s, x| if wide { x } else { s };
        let (sign, magnitude) =
            if wide { (self.c64(1 << 63), self.c64(!(1 << 63))) } else { (self.c32(1 << 31), self.c32(!(1 << 31))) };
        let rounding = match op {
            Unary::Round => 8,
            Unary::Floor => 9,
            Unary::Ceil => 10,
            _ => 11,
        };
        Some(match op {
            Unary::Neg => self.v3(pick(&enc::PXORD, &enc::PXORQ), w, v, sign),
            Unary::Abs => self.v3(pick(&enc::PANDD, &enc::PANDQ), w, v, magnitude),
            Unary::Sign => {
                let s = self.v3(pick(&enc::PANDD, &enc::PANDQ), w, v, sign);
                let one = if wide { self.c64(1f64.to_bits()) } else { self.c32(1f32.to_bits()) };
                let s = self.v3(pick(&enc::PORD, &enc::PORQ), w, s, one);
                let zero = if wide { self.c64(0) } else { self.c32(0) };
                // Equal to zero, or NaN.
                let m = self.cmp_float(wide, 8, v, zero);
                self.select(d, m, v, s)
            }
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => {
                let enc = match (wide, self.wide_target()) {
                    (false, false) => &enc::ROUNDPS,
                    (true, false) => &enc::ROUNDPD,
                    (false, true) => &enc::RNDSCALEPS,
                    (true, true) => &enc::RNDSCALEPD,
                };
                self.v2i(enc, w, v, rounding)
            }
            Unary::IsFinite => {
                let a = self.v3(pick(&enc::PANDD, &enc::PANDQ), w, v, magnitude);
                let inf = if wide { self.c64(f64::INFINITY.to_bits()) } else { self.c32(f32::INFINITY.to_bits()) };
                self.cmp_float(wide, 0x11, a, inf)
            }
            Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal => {
                let x = if op == Unary::Reciprocal { v } else { self.v2(pick(&enc::SQRTPS, &enc::SQRTPD), w, v) };
                let r = if op == Unary::Sqrt {
                    x
                } else {
                    let one = if wide { self.r64(1f64.to_bits()) } else { self.r32(1f32.to_bits()) };
                    self.v3(pick(&enc::DIVPS, &enc::DIVPD), w, one, x)
                };
                self.round_to(d, r)
            }
            _ => {
                let r = if wide { math::unary_f64(self, op, v)? } else { math::unary_f32(self, op, v)? };
                self.round_to(d, r)
            }
        })
    }

    pub(crate) fn compare(&mut self, op: Compare, d: DType, a: V, b: Rm) -> V {
        match lane_repr(d) {
            LaneRepr::F32 | LaneRepr::F64 => {
                let predicate = match op {
                    Compare::Eq => 0x00,
                    Compare::Ne => 0x04,
                    Compare::Lt => 0x11,
                    Compare::Le => 0x12,
                    Compare::Ge => 0x1d,
                    Compare::Gt => 0x1e,
                };
                self.cmp_float(lane_repr(d) == LaneRepr::F64, predicate, a, b)
            }
            LaneRepr::I32 => self.cmp_int(false, d == DType::U32, op, a, b),
            LaneRepr::I64 => self.cmp_int(true, d == DType::U64, op, a, b),
            LaneRepr::Mask => {
                let Rm::R(b) = b else { return a };
                let (na, nb) = (self.mask_not(a), self.mask_not(b));
                match op {
                    Compare::Eq => self.mask_logic(Binary::Xor, na, b),
                    Compare::Ne => self.mask_logic(Binary::Xor, a, b),
                    Compare::Lt => self.mask_logic(Binary::And, na, b),
                    Compare::Le => self.mask_logic(Binary::Or, na, b),
                    Compare::Gt => self.mask_logic(Binary::And, a, nb),
                    Compare::Ge => self.mask_logic(Binary::Or, a, nb),
                }
            }
        }
    }

    /// Evaluates an op lane by lane in the helper.
    pub(crate) fn call(&mut self, op: &Op, from: DType, to: DType, args: &[V]) -> V {
        let store = |lo: &mut Self, v: V, d: DType, at: usize| {
            let v = if d == DType::Bool { lo.mask_to_lanes(v) } else { v };
            let (w, mem) = (lo.w(d), Mem::frame(at as i32));
            lo.store_vec(&enc::MOVUPS_ST, w, v, mem);
        };
        for (i, &v) in args.iter().enumerate() {
            store(self, v, from, 64 * i);
        }
        if let Some(code) = helper::op_code(op, from, self.l) {
            self.emit(Inst::Call { code });
        }
        let out = self.v2(&enc::MOVUPS, self.w(to), Rm::M(Mem::frame(helper::OUT as i32)));
        if to == DType::Bool { self.lanes_to_mask(out) } else { out }
    }
}
