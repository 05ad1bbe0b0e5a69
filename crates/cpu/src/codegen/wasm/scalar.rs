//! Scalar arithmetic, and calls of the helper for all other ops.

use super::body::{L, offset_memarg};
use super::kernel::{KernelWriter, LANES, register_type};
use compiler::loops::{Atom, Index, Op, Size};
use ir::{Binary, Compare, DType, DTypeKind, Scalar, Unary};
use wasm_encoder::{Instruction as I, ValType};

/// The offsets of the helper's operands and its result.
const OPERAND: u64 = 64;
const RESULT: u64 = 192;

impl KernelWriter<'_> {
    pub(crate) fn constant(&mut self, s: Scalar) -> L {
        let d = s.dtype();
        match register_type(d) {
            ValType::F64 => self.b.const_f64(s.bits()),
            ValType::F32 if d == DType::F32 => self.b.const_f32(s.bits() as u32),
            ValType::F32 => self.b.const_f32((s.to_f64() as f32).to_bits()),
            ValType::I64 => self.b.const_i64(s.bits() as i64),
            _ if d == DType::Bool => self.b.const_i32(s.to_bool() as i32),
            _ => self.b.const_i32(s.to_i64() as i32),
        }
    }

    pub(crate) fn scalar_let(&mut self, op: &Op, out: DType) -> L {
        match op {
            Op::Const(c) => self.constant(*c),
            Op::Index(i) => self.index_value(i),
            Op::Load { buf, index, mask: None } => self.scalar_load(*buf, index),
            Op::Load { buf, index, mask: Some((m, other)) } => self.masked_load(*buf, index, *m, *other),
            _ => {
                let from = self.dtype(op.operands().next().expect("arithmetic has operands"));
                if let Some(v) = self.divide(op, from) {
                    return v;
                }
                let args: Vec<L> = op.operands().map(|r| self.scalar(r)).collect();
                self.scalar_op(op, from, out, &args)
            }
        }
    }

    /// Computes an index as an i64.
    fn index_value(&mut self, index: &Index) -> L {
        let mut at = self.b.const_i64(index.offset);
        for &a in &index.offset_args {
            let s = self.sizes[a as usize];
            at = self.b.i64(I::I64Add, &[at, s]);
        }
        for &(atom, stride) in &index.terms {
            let v = match atom {
                Atom::Var(v) => {
                    let v = self.vars[v.0 as usize].expect("loop variables are used inside their loops");
                    self.b.i64(I::I64ExtendI32S, &[v])
                }
                Atom::Reg(r) => self.scalar(r),
            };
            let by = match stride {
                Size::Const(n) => self.b.const_i64(n),
                Size::Arg(n) => self.sizes[n as usize],
            };
            let part = self.b.i64(I::I64Mul, &[v, by]);
            at = self.b.i64(I::I64Add, &[at, part]);
        }
        at
    }

    /// Emits a division by a constant, as used in index computations.
    pub(crate) fn divide(&mut self, op: &Op, d: DType) -> Option<L> {
        let Op::Binary(kind @ (Binary::Div | Binary::Rem), a, b) = op else { return None };
        let by = self.constants[b.0 as usize]?;
        self.divides(*kind, d, by).map(|i| {
            let args = [self.scalar(*a), self.scalar(*b)];
            self.b.value(register_type(d), i, &args)
        })
    }

    /// Returns the instruction that divides by a constant, unless 0 or -1 needs special handling.
    pub(crate) fn divides(&self, kind: Binary, d: DType, by: Scalar) -> Option<I<'static>> {
        let safe = by.to_i64() != 0 && by.to_i64() != -1;
        safe.then_some(match (kind, d) {
            (Binary::Div, DType::I64) => I::I64DivS,
            (Binary::Rem, DType::I64) => I::I64RemS,
            (Binary::Div, DType::I32) => I::I32DivS,
            (Binary::Rem, DType::I32) => I::I32RemS,
            (Binary::Div, DType::U32) => I::I32DivU,
            (Binary::Rem, DType::U32) => I::I32RemU,
            (Binary::Div, DType::U64) => I::I64DivU,
            (Binary::Rem, DType::U64) => I::I64RemU,
            _ => return None,
        })
    }

    pub(crate) fn scalar_op(&mut self, op: &Op, from: DType, out: DType, x: &[L]) -> L {
        match self.scalar_inline(op, from, out, x) {
            Some(v) if out == DType::BF16 && needs_bf16_rounding(op) => self.rounded(v),
            Some(v) => self.wrapped(out, op, v),
            None => self.call_helper_scalar(op, from, out, x),
        }
    }

    fn scalar_inline(&mut self, op: &Op, from: DType, out: DType, x: &[L]) -> Option<L> {
        let t = register_type(out);
        let single = matches!(from, DType::F32 | DType::BF16);
        let float = single || from == DType::F64;
        let wide = from.size() == 8;
        let signed = from.kind() == DTypeKind::Signed;
        let pick = |s: I<'static>, d: I<'static>| if single { s } else { d };
        if from.is_float() && !float && matches!(op, Op::Unary(..) | Op::Binary(..)) {
            return None;
        }
        Some(match *op {
            Op::Select(..) => {
                [x[1], x[2], x[0]].iter().for_each(|&l| self.b.get(l));
                self.b.push(I::TypedSelect(t));
                self.b.take(t)
            }
            Op::Unary(f, _) if float => {
                let i = match f {
                    Unary::Neg => pick(I::F32Neg, I::F64Neg),
                    Unary::Abs => pick(I::F32Abs, I::F64Abs),
                    Unary::Sqrt => pick(I::F32Sqrt, I::F64Sqrt),
                    Unary::Floor => pick(I::F32Floor, I::F64Floor),
                    Unary::Ceil => pick(I::F32Ceil, I::F64Ceil),
                    Unary::Trunc => pick(I::F32Trunc, I::F64Trunc),
                    Unary::Round => pick(I::F32Nearest, I::F64Nearest),
                    _ if single => {
                        // Use the function of four lanes, so that the remainder of a loop has the same bits as its vectors.
                        let v = self.b.v128(I::F32x4Splat, &[x[0]]);
                        let y = self.function(f, v)?;
                        if f == Unary::IsFinite {
                            let y = self.b.i32(I::I32x4ExtractLane(0), &[y]);
                            let one = self.b.const_i32(1);
                            return Some(self.b.i32(I::I32And, &[y, one]));
                        }
                        return Some(self.b.value(ValType::F32, I::F32x4ExtractLane(0), &[y]));
                    }
                    _ => return None,
                };
                self.b.value(t, i, x)
            }
            Op::Unary(Unary::Not, _) if from == DType::Bool => self.b.i32(I::I32Eqz, x),
            Op::Unary(Unary::Not, _) if wide => {
                let ones = self.b.const_i64(-1);
                self.b.i64(I::I64Xor, &[x[0], ones])
            }
            Op::Unary(Unary::Not, _) => {
                let ones = self.b.const_i32(-1);
                self.b.i32(I::I32Xor, &[x[0], ones])
            }
            Op::Unary(Unary::Neg, _) if wide => {
                let zero = self.b.const_i64(0);
                self.b.i64(I::I64Sub, &[zero, x[0]])
            }
            Op::Unary(Unary::Neg, _) => {
                let zero = self.b.const_i32(0);
                self.b.i32(I::I32Sub, &[zero, x[0]])
            }
            Op::Binary(kind, ..) if float => {
                let i = match kind {
                    Binary::Add => pick(I::F32Add, I::F64Add),
                    Binary::Sub => pick(I::F32Sub, I::F64Sub),
                    Binary::Mul => pick(I::F32Mul, I::F64Mul),
                    Binary::Div => pick(I::F32Div, I::F64Div),
                    Binary::Max | Binary::Min => {
                        // The first operand where it is NaN or wins, otherwise the second.
                        let i = match kind {
                            Binary::Max => pick(I::F32Gt, I::F64Gt),
                            _ => pick(I::F32Lt, I::F64Lt),
                        };
                        let wins = self.b.i32(i, x);
                        let nan = self.b.i32(pick(I::F32Ne, I::F64Ne), &[x[0], x[0]]);
                        let first = self.b.i32(I::I32Or, &[wins, nan]);
                        [x[0], x[1], first].iter().for_each(|&l| self.b.get(l));
                        self.b.push(I::TypedSelect(t));
                        return Some(self.b.take(t));
                    }
                    _ => return None,
                };
                self.b.value(t, i, x)
            }
            Op::Binary(kind, ..) if from == DType::Bool => {
                let i = match kind {
                    Binary::And | Binary::Min | Binary::Mul => I::I32And,
                    Binary::Xor => I::I32Xor,
                    Binary::Or | Binary::Max | Binary::Add => I::I32Or,
                    _ => return None,
                };
                self.b.i32(i, x)
            }
            Op::Binary(kind, ..) => {
                let pick = |w: I<'static>, n: I<'static>| if wide { w } else { n };
                let i = match kind {
                    Binary::Add => pick(I::I64Add, I::I32Add),
                    Binary::Sub => pick(I::I64Sub, I::I32Sub),
                    Binary::Mul => pick(I::I64Mul, I::I32Mul),
                    Binary::And => pick(I::I64And, I::I32And),
                    Binary::Or => pick(I::I64Or, I::I32Or),
                    Binary::Xor => pick(I::I64Xor, I::I32Xor),
                    Binary::Max | Binary::Min => {
                        let i = match (kind == Binary::Max, wide, signed) {
                            (true, true, true) => I::I64GtS,
                            (true, true, false) => I::I64GtU,
                            (true, false, true) => I::I32GtS,
                            (true, false, false) => I::I32GtU,
                            (false, true, true) => I::I64LtS,
                            (false, true, false) => I::I64LtU,
                            (false, false, true) => I::I32LtS,
                            (false, false, false) => I::I32LtU,
                        };
                        let wins = self.b.i32(i, x);
                        [x[0], x[1], wins].iter().for_each(|&l| self.b.get(l));
                        self.b.push(I::TypedSelect(t));
                        return Some(self.b.take(t));
                    }
                    Binary::Shl | Binary::Shr if matches!(from, DType::U32 | DType::I32) => {
                        return Some(self.shift(kind, signed, x));
                    }
                    _ => return None,
                };
                self.b.value(t, i, x)
            }
            Op::Compare(kind, ..) => {
                let i = compare(kind, from, from.is_float())?;
                self.b.i32(i, x)
            }
            Op::Cast(to, _) => return self.scalar_cast(from, to, x[0]),
            Op::Bitcast(to, _) => match (register_type(from), register_type(to)) {
                _ if from.size() < 4 => return None,
                (a, b) if a == b => x[0],
                (ValType::F32, ValType::I32) => self.b.i32(I::I32ReinterpretF32, x),
                (ValType::I32, ValType::F32) => self.b.value(t, I::F32ReinterpretI32, x),
                (ValType::F64, ValType::I64) => self.b.i64(I::I64ReinterpretF64, x),
                (ValType::I64, ValType::F64) => self.b.value(t, I::F64ReinterpretI64, x),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Emits a 32-bit shift; a shift by 32 or more gives 0, or the sign.
    fn shift(&mut self, kind: Binary, signed: bool, x: &[L]) -> L {
        let limit = self.b.const_i32(32);
        let inside = self.b.i32(I::I32LtU, &[x[1], limit]);
        let (v, beyond) = match (kind, signed) {
            (Binary::Shl, _) => (self.b.i32(I::I32Shl, x), self.b.const_i32(0)),
            (_, false) => (self.b.i32(I::I32ShrU, x), self.b.const_i32(0)),
            (_, true) => {
                let n = self.b.const_i32(31);
                (self.b.i32(I::I32ShrS, x), self.b.i32(I::I32ShrS, &[x[0], n]))
            }
        };
        [v, beyond, inside].iter().for_each(|&l| self.b.get(l));
        self.b.push(I::Select);
        self.b.take(ValType::I32)
    }

    /// Wraps a narrow integer to its range.
    fn wrapped(&mut self, d: DType, op: &Op, v: L) -> L {
        let moves = matches!(op, Op::Unary(..) | Op::Binary(..) | Op::Cast(..));
        match d {
            _ if !moves => v,
            DType::I8 => self.b.i32(I::I32Extend8S, &[v]),
            DType::I16 => self.b.i32(I::I32Extend16S, &[v]),
            DType::U8 | DType::U16 => {
                let mask = self.b.const_i32(if d == DType::U8 { 0xff } else { 0xffff });
                self.b.i32(I::I32And, &[v, mask])
            }
            _ => v,
        }
    }

    /// Rounds an f32 to bf16, ties to even; NaN stays NaN.
    pub(crate) fn rounded(&mut self, v: L) -> L {
        let v = self.b.v128(I::F32x4Splat, &[v]);
        let v = self.rounded_lanes(v);
        self.b.value(ValType::F32, I::F32x4ExtractLane(0), &[v])
    }

    /// Evaluates the op on one lane by the helper.
    pub(crate) fn call_helper_scalar(&mut self, op: &Op, from: DType, out: DType, args: &[L]) -> L {
        let area = self.b.const_i32(self.helper.scratch_address as i32);
        for (i, &v) in args.iter().enumerate() {
            let m = offset_memarg(OPERAND * i as u64);
            self.b.get(area);
            self.b.get(v);
            self.b.push(match register_type(from) {
                ValType::F32 => I::F32Store(m),
                ValType::F64 => I::F64Store(m),
                ValType::I64 => I::I64Store(m),
                _ => I::I32Store(m),
            });
        }
        self.call(op, from, 1);
        let m = offset_memarg(RESULT);
        match register_type(out) {
            ValType::F32 => self.b.value(ValType::F32, I::F32Load(m), &[area]),
            ValType::F64 => self.b.value(ValType::F64, I::F64Load(m), &[area]),
            ValType::I64 => self.b.i64(I::I64Load(m), &[area]),
            _ => {
                let v = self.b.i32(I::I32Load(m), &[area]);
                if out != DType::Bool {
                    return v;
                }
                let zero = self.b.const_i32(0);
                self.b.i32(I::I32Ne, &[v, zero])
            }
        }
    }

    /// Evaluates the op on four lanes by the helper.
    pub(crate) fn call_helper_vector(&mut self, op: &Op, from: DType, out: DType, args: &[&[L]]) -> Vec<L> {
        let area = self.b.const_i32(self.helper.scratch_address as i32);
        for (i, parts) in args.iter().enumerate() {
            for (j, &v) in parts.iter().enumerate() {
                self.b.get(area);
                self.b.get(v);
                self.b.push(I::V128Store(offset_memarg(OPERAND * i as u64 + 16 * j as u64)));
            }
        }
        self.call(op, from, LANES);
        let n = if out.size() == 8 { 2 } else { 1 };
        (0..n).map(|j| self.b.v128(I::V128Load(offset_memarg(RESULT + 16 * j)), &[area])).collect()
    }

    fn call(&mut self, op: &Op, from: DType, lanes: usize) {
        let code = (self.helper.code)(op, from, lanes).expect("an arithmetic op");
        let area = self.b.const_i32(self.helper.scratch_address as i32);
        self.b.get(area);
        self.b.push(I::I64Const(code as i64));
        self.b.push(I::I32Const(self.helper.index as i32));
        self.b.push(I::CallIndirect { type_index: 1, table_index: 0 });
    }
}

/// Returns whether a bf16 result of an op has to be rounded; selections and bitcasts are exact.
pub(crate) fn needs_bf16_rounding(op: &Op) -> bool {
    !matches!(op, Op::Select(..) | Op::Bitcast(..))
}

fn compare(kind: Compare, d: DType, float: bool) -> Option<I<'static>> {
    use Compare::*;
    Some(match (kind, register_type(d), d.kind() == DTypeKind::Signed) {
        (Eq, ValType::F32, _) if float => I::F32Eq,
        (Ne, ValType::F32, _) if float => I::F32Ne,
        (Lt, ValType::F32, _) if float => I::F32Lt,
        (Le, ValType::F32, _) if float => I::F32Le,
        (Gt, ValType::F32, _) if float => I::F32Gt,
        (Ge, ValType::F32, _) if float => I::F32Ge,
        (Eq, ValType::F64, _) => I::F64Eq,
        (Ne, ValType::F64, _) => I::F64Ne,
        (Lt, ValType::F64, _) => I::F64Lt,
        (Le, ValType::F64, _) => I::F64Le,
        (Gt, ValType::F64, _) => I::F64Gt,
        (Ge, ValType::F64, _) => I::F64Ge,
        (Eq, ValType::I32, _) => I::I32Eq,
        (Ne, ValType::I32, _) => I::I32Ne,
        (Lt, ValType::I32, true) => I::I32LtS,
        (Le, ValType::I32, true) => I::I32LeS,
        (Gt, ValType::I32, true) => I::I32GtS,
        (Ge, ValType::I32, true) => I::I32GeS,
        (Lt, ValType::I32, false) => I::I32LtU,
        (Le, ValType::I32, false) => I::I32LeU,
        (Gt, ValType::I32, false) => I::I32GtU,
        (Ge, ValType::I32, false) => I::I32GeU,
        (Eq, ValType::I64, _) => I::I64Eq,
        (Ne, ValType::I64, _) => I::I64Ne,
        (Lt, ValType::I64, true) => I::I64LtS,
        (Le, ValType::I64, true) => I::I64LeS,
        (Gt, ValType::I64, true) => I::I64GtS,
        (Ge, ValType::I64, true) => I::I64GeS,
        (Lt, ValType::I64, false) => I::I64LtU,
        (Le, ValType::I64, false) => I::I64LeU,
        (Gt, ValType::I64, false) => I::I64GtU,
        (Ge, ValType::I64, false) => I::I64GeU,
        _ => return None,
    })
}
