//! Scalar arithmetic, and calls of the helper for all other ops.

use super::kernel::Writer;
use super::{int_predicate, ordered_float, register_type, word};
use crate::codegen::helper;
use compiler::loops::Op;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};
use ir::{Binary, DType, DTypeKind, Scalar, Unary};

impl Writer<'_> {
    pub(super) fn truth(&mut self, v: Value) -> Value {
        let c = self.b.ins().icmp_imm_s(IntCC::NotEqual, v, 0);
        self.b.ins().uextend(types::I32, c)
    }

    pub(super) fn constant(&mut self, s: Scalar) -> Value {
        let d = s.dtype();
        match register_type(d) {
            types::F64 => {
                let bits = self.b.ins().iconst(types::I64, s.bits() as i64);
                self.b.ins().bitcast(types::F64, MemFlagsData::new(), bits)
            }
            types::F32 if d == DType::F32 => {
                let bits = self.b.ins().iconst(types::I32, s.bits() as i64);
                self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
            }
            types::F32 => self.b.ins().f32const(s.to_f64() as f32),
            types::I64 => self.b.ins().iconst(types::I64, s.bits() as i64),
            _ if d == DType::Bool => self.b.ins().iconst(types::I32, s.to_bool() as i64),
            _ => self.b.ins().iconst(types::I32, (s.to_i64() as u32) as i64),
        }
    }

    pub(super) fn scalar_let(&mut self, op: &Op, out: DType) -> Value {
        match op {
            Op::Const(s) => self.constant(*s),
            Op::Index(i) => self.index(i),
            Op::Load { buf, index, mask: None } => self.scalar_load(*buf, index),
            Op::Load { buf, index, mask: Some((m, other)) } => self.masked_load(*buf, index, *m, *other),
            Op::Select(c, x, y) => {
                let (c, x, y) = (self.scalar(*c), self.scalar(*x), self.scalar(*y));
                self.b.ins().select(c, x, y)
            }
            _ => {
                let from = self.dtype(op.operands().next().expect("arithmetic has operands"));
                let args: Vec<Value> = op.operands().map(|r| self.scalar(r)).collect();
                if let Op::Binary(kind, _, b) = op
                    && let Some(by) = self.constants[b.0 as usize]
                {
                    if self.divides(*kind, from, by) {
                        return self.divided(*kind, from, args[0], args[1]);
                    }
                    if self.shifts(*kind, from, by) {
                        return self.shifted(*kind, from, args[0], by.to_i64());
                    }
                }
                self.scalar_op(op, from, out, &args)
            }
        }
    }

    /// Returns whether dividing by this constant is one instruction.
    pub(super) fn divides(&self, kind: Binary, d: DType, by: Scalar) -> bool {
        let whole = matches!(d, DType::I32 | DType::U32 | DType::I64 | DType::U64);
        matches!(kind, Binary::Div | Binary::Rem) && whole && by.to_i64() != 0 && by.to_i64() != -1
    }

    pub(super) fn divided(&mut self, kind: Binary, d: DType, a: Value, b: Value) -> Value {
        match (kind, d.kind() == DTypeKind::Signed) {
            (Binary::Div, true) => self.b.ins().sdiv(a, b),
            (Binary::Div, false) => self.b.ins().udiv(a, b),
            (_, true) => self.b.ins().srem(a, b),
            (_, false) => self.b.ins().urem(a, b),
        }
    }

    /// Returns whether a shift by this constant is one instruction.
    pub(super) fn shifts(&self, kind: Binary, d: DType, by: Scalar) -> bool {
        let inside = (0..8 * d.size() as i64).contains(&by.to_i64());
        matches!(kind, Binary::Shl | Binary::Shr) && d.is_int() && d.size() >= 4 && inside
    }

    /// Shifts a number or its lanes.
    pub(super) fn shifted(&mut self, kind: Binary, d: DType, v: Value, n: i64) -> Value {
        let n = self.b.ins().iconst(types::I32, n);
        match (kind, d.kind() == DTypeKind::Signed) {
            (Binary::Shl, _) => self.b.ins().ishl(v, n),
            (_, true) => self.b.ins().sshr(v, n),
            (_, false) => self.b.ins().ushr(v, n),
        }
    }

    pub(super) fn scalar_op(&mut self, op: &Op, from: DType, out: DType, x: &[Value]) -> Value {
        match self.scalar_inline(op, from, out, x) {
            Some(v) if out == DType::BF16 && needs_bf16_rounding(op) => self.rounded(v),
            Some(v) => self.wrapped(out, op, v),
            None => self.call_helper_scalar(op, from, out, x),
        }
    }

    /// Emits the op inline, if that is short.
    fn scalar_inline(&mut self, op: &Op, from: DType, out: DType, x: &[Value]) -> Option<Value> {
        let float = matches!(from, DType::F32 | DType::F64 | DType::BF16);
        let signed = from.kind() == DTypeKind::Signed;
        if from.is_float() && !float && matches!(op, Op::Unary(..) | Op::Binary(..) | Op::Fma(..)) {
            return None;
        }
        let ins = self.b.ins();
        Some(match *op {
            Op::Unary(Unary::Neg, _) if float => ins.fneg(x[0]),
            Op::Unary(Unary::Abs, _) if float => ins.fabs(x[0]),
            Op::Unary(Unary::Sqrt, _) if float => ins.sqrt(x[0]),
            Op::Unary(Unary::Floor, _) if float => ins.floor(x[0]),
            Op::Unary(Unary::Ceil, _) if float => ins.ceil(x[0]),
            Op::Unary(Unary::Trunc, _) if float => ins.trunc(x[0]),
            Op::Unary(Unary::Round, _) if float => ins.nearest(x[0]),
            Op::Unary(Unary::Reciprocal | Unary::Rsqrt, _) if float => {
                let root = matches!(op, Op::Unary(Unary::Rsqrt, _));
                let v = if root { ins.sqrt(x[0]) } else { x[0] };
                let one = match register_type(from) {
                    types::F64 => self.b.ins().f64const(1.0),
                    _ => self.b.ins().f32const(1.0),
                };
                self.b.ins().fdiv(one, v)
            }
            Op::Unary(f, _) if float => return self.function(f, from, x[0]),
            Op::Unary(Unary::Not, _) if from == DType::Bool => ins.bxor_imm_s(x[0], 1),
            Op::Unary(Unary::Not, _) => ins.bnot(x[0]),
            Op::Unary(Unary::Neg, _) if from.is_int() => ins.ineg(x[0]),
            Op::Unary(Unary::Abs, _) if signed => ins.iabs(x[0]),
            Op::Fma(..) if float => ins.fma(x[0], x[1], x[2]),
            Op::Binary(kind, ..) if float => match kind {
                Binary::Add => ins.fadd(x[0], x[1]),
                Binary::Sub => ins.fsub(x[0], x[1]),
                Binary::Mul => ins.fmul(x[0], x[1]),
                Binary::Div => ins.fdiv(x[0], x[1]),
                Binary::Max | Binary::Min => {
                    let cc = if kind == Binary::Max { FloatCC::GreaterThan } else { FloatCC::LessThan };
                    // The first operand where it is NaN or wins, otherwise the second.
                    let wins = ins.fcmp(cc, x[0], x[1]);
                    let nan = self.b.ins().fcmp(FloatCC::Unordered, x[0], x[0]);
                    let first = self.b.ins().bor(wins, nan);
                    self.b.ins().select(first, x[0], x[1])
                }
                _ => return None,
            },
            Op::Binary(kind, ..) => match kind {
                Binary::And => ins.band(x[0], x[1]),
                Binary::Or => ins.bor(x[0], x[1]),
                Binary::Xor => ins.bxor(x[0], x[1]),
                Binary::Min | Binary::Mul if from == DType::Bool => ins.band(x[0], x[1]),
                Binary::Max | Binary::Add if from == DType::Bool => ins.bor(x[0], x[1]),
                _ if from == DType::Bool => return None,
                Binary::Add => ins.iadd(x[0], x[1]),
                Binary::Sub => ins.isub(x[0], x[1]),
                Binary::Mul => ins.imul(x[0], x[1]),
                Binary::Max if signed => ins.smax(x[0], x[1]),
                Binary::Max => ins.umax(x[0], x[1]),
                Binary::Min if signed => ins.smin(x[0], x[1]),
                Binary::Min => ins.umin(x[0], x[1]),
                _ => return None,
            },
            Op::Compare(c, ..) => {
                let c = match (from.is_float(), signed) {
                    (true, _) => ins.fcmp(ordered_float(c), x[0], x[1]),
                    (false, true) => ins.icmp(int_predicate(c), x[0], x[1]),
                    (false, false) => ins.icmp(int_predicate(c).unsigned(), x[0], x[1]),
                };
                self.b.ins().uextend(types::I32, c)
            }
            Op::Cast(to, _) => return self.scalar_cast(from, to, x[0]),
            Op::Bitcast(to, _) if from.size() >= 4 => match register_type(from) == register_type(to) {
                true => x[0],
                false => ins.bitcast(register_type(out), MemFlagsData::new(), x[0]),
            },
            _ => return None,
        })
    }

    pub(super) fn scalar_cast(&mut self, from: DType, to: DType, x: Value) -> Option<Value> {
        use DType::*;
        let signed = from.kind() == DTypeKind::Signed;
        let ins = self.b.ins();
        Some(match (from, to) {
            (a, b) if a == b => x,
            (F32 | BF16, F32 | BF16) => x,
            (F32 | BF16, F64) => ins.fpromote(types::F64, x),
            (F64, F32) => ins.fdemote(types::F32, x),
            (F32 | BF16 | F64, I32) => ins.fcvt_to_sint_sat(types::I32, x),
            (F32 | BF16 | F64, U32) => ins.fcvt_to_uint_sat(types::I32, x),
            (F32 | BF16 | F64, I64) => ins.fcvt_to_sint_sat(types::I64, x),
            (F32 | BF16 | F64, U64) => ins.fcvt_to_uint_sat(types::I64, x),
            (Bool, F32 | BF16) => ins.fcvt_from_uint(types::F32, x),
            (d, F32 | F64) if d.is_int() || d == Bool => match signed {
                true => ins.fcvt_from_sint(register_type(to), x),
                false => ins.fcvt_from_uint(register_type(to), x),
            },
            (d, Bool) if d.is_int() => {
                let c = ins.icmp_imm_s(IntCC::NotEqual, x, 0);
                self.b.ins().uextend(types::I32, c)
            }
            // Narrow results are wrapped to their range afterwards.
            (d, t) if (word(d) || d == Bool) && word(t) => x,
            (d, I64 | U64) if word(d) || d == Bool => match signed {
                true => ins.sextend(types::I64, x),
                false => ins.uextend(types::I64, x),
            },
            (I64 | U64, t) if word(t) => ins.ireduce(types::I32, x),
            (I64 | U64, I64 | U64) => x,
            _ => return None,
        })
    }

    /// Wraps a narrow integer to its range.
    fn wrapped(&mut self, d: DType, op: &Op, v: Value) -> Value {
        let moves = matches!(op, Op::Unary(..) | Op::Binary(..) | Op::Cast(..));
        match d {
            _ if !moves => v,
            DType::I8 | DType::I16 => {
                let v = self.b.ins().ireduce(if d == DType::I8 { types::I8 } else { types::I16 }, v);
                self.b.ins().sextend(types::I32, v)
            }
            DType::U8 | DType::U16 => self.b.ins().band_imm_s(v, if d == DType::U8 { 0xff } else { 0xffff }),
            _ => v,
        }
    }

    /// Rounds an f32 to bf16, ties to even; NaN stays NaN.
    fn rounded(&mut self, v: Value) -> Value {
        let bits = self.b.ins().bitcast(types::I32, MemFlagsData::new(), v);
        let odd = self.b.ins().ushr_imm_s(bits, 16);
        let odd = self.b.ins().band_imm_s(odd, 1);
        let up = self.b.ins().iadd_imm_s(bits, 0x7fff);
        let up = self.b.ins().iadd(up, odd);
        let nan = self.b.ins().fcmp(FloatCC::Unordered, v, v);
        let quiet = self.b.ins().bor_imm_s(bits, 0x40_0000);
        let bits = self.b.ins().select(nan, quiet, up);
        let bits = self.b.ins().band_imm_s(bits, !0xffff);
        self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
    }

    /// Evaluates the op by the helper.
    pub(super) fn call_helper_scalar(&mut self, op: &Op, from: DType, out: DType, args: &[Value]) -> Value {
        for (i, v) in args.iter().enumerate() {
            self.b.ins().stack_store(self.pointer, *v, self.area, 64 * i as i32);
        }
        self.call_helper(helper::op_code(op, from, 1).expect("an arithmetic op"));
        let v = self.b.ins().stack_load(self.pointer, register_type(out), self.area, helper::OUT as i32);
        if out == DType::Bool { self.truth(v) } else { v }
    }

    /// Calls the helper with an op's code, on the operands in the transfer area.
    pub(super) fn call_helper(&mut self, code: u32) {
        let lanes: unsafe extern "C" fn(*mut [u8; 256], u64) = helper::lanes;
        let code = self.b.ins().iconst(types::I64, code as i64);
        self.call_area(lanes as *const (), code);
    }

    /// Calls a function with the transfer area and a number.
    pub(super) fn call_area(&mut self, function: *const (), n: Value) {
        let area = self.b.ins().stack_addr(self.pointer, self.area, 0);
        let function = self.b.ins().iconst(self.pointer, function as i64);
        self.b.ins().call_indirect(self.signatures[0], function, &[area, n]);
    }
}

/// Returns whether a bf16 result of an op has to be rounded; selections and bitcasts are exact.
pub(super) fn needs_bf16_rounding(op: &Op) -> bool {
    !matches!(op, Op::Select(..) | Op::Bitcast(..))
}
