//! Arithmetic on vectors of lanes.
//!
//! Bool is a mask of 32 bits per lane. Lanes of 64 bits take two vectors; their comparisons are converted to one mask.

use super::kernel::{LANES, Parts, Writer};
use super::{int_predicate, ordered_float, register_type};
use crate::codegen::helper;
use compiler::loops::{Atom, Index, Op, Size};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{ConstantData, Endianness, InstBuilder, MemFlagsData, Type, Value, types};
use ir::{Binary, DType, DTypeKind, Scalar, Unary};

/// Shuffles of the bytes of two vectors: the low halves of all 64-bit lanes;
/// the low halves of 32-bit lanes, and their high halves; even bytes.
pub(super) const LOW_WORDS: u128 = 0x1b1a1918_13121110_0b0a0908_03020100;
pub(super) const EVEN_HALVES: u128 = 0x1d1c1918_15141110_0d0c0908_05040100;
pub(super) const HIGH_HALVES: u128 = 0x1f1e1b1a_17161312_0f0e0b0a_07060302;
pub(super) const EVEN_BYTES: u128 = 0x1e1c1a18_16141210_0e0c0a08_06040200;
/// Shuffles of two vectors: the low half of each, and the high half of the first.
pub(super) const LOW_LOW: u128 = 0x17161514_13121110_07060504_03020100;
pub(super) const HIGH_FIRST: u128 = 0x17161514_13121110_0f0e0d0c_0b0a0908;

/// Returns the vector type of a dtype's lanes.
pub(super) fn lane_type(d: DType) -> Type {
    match register_type(d) {
        types::F32 => types::F32X4,
        types::F64 => types::F64X2,
        types::I64 => types::I64X2,
        _ => types::I32X4,
    }
}

impl Writer<'_> {
    /// Reinterprets the bits as another vector type.
    pub(super) fn like(&mut self, t: Type, v: Value) -> Value {
        if self.b.func.dfg.value_type(v) == t {
            return v;
        }
        self.b.ins().bitcast(t, MemFlagsData::new().with_endianness(Endianness::Little), v)
    }

    pub(super) fn shuffle(&mut self, a: Value, b: Value, bytes: u128) -> Value {
        let t = self.b.func.dfg.value_type(a);
        let (a, b) = (self.like(types::I8X16, a), self.like(types::I8X16, b));
        let bytes = self.b.func.dfg.immediates.push(ConstantData::from(bytes.to_le_bytes().as_slice()));
        let v = self.b.ins().shuffle(a, b, bytes);
        self.like(t, v)
    }

    /// Broadcasts a number to four 32-bit lanes.
    pub(super) fn words(&mut self, n: u32) -> Value {
        let n = self.b.ins().iconst(types::I32, n as i64);
        self.b.ins().splat(types::I32X4, n)
    }

    pub(super) fn shl(&mut self, v: Value, n: i64) -> Value {
        let n = self.b.ins().iconst(types::I32, n);
        self.b.ins().ishl(v, n)
    }

    /// Returns a mask of the lanes that are not zero.
    pub(super) fn nonzero_lanes(&mut self, v: Value) -> Value {
        let zero = self.words(0);
        self.b.ins().icmp(IntCC::NotEqual, v, zero)
    }

    pub(super) fn constant_parts(&mut self, s: Scalar) -> Parts {
        let (d, v) = (s.dtype(), self.constant(s));
        let v = self.splat_of(d, v);
        vec![v; self.count(d)]
    }

    /// Broadcasts a number to all lanes of a vector.
    pub(super) fn splat_of(&mut self, d: DType, v: Value) -> Value {
        let v = if d == DType::Bool { self.b.ins().ineg(v) } else { v };
        self.b.ins().splat(lane_type(d), v)
    }

    /// Extracts one lane as a number.
    pub(super) fn extract(&mut self, d: DType, parts: &[Value], lane: usize) -> Value {
        let each = if d.size() == 8 { 2 } else { LANES };
        let v = self.b.ins().extractlane(parts[lane / each], (lane % each) as u8);
        if d == DType::Bool { self.b.ins().band_imm_s(v, 1) } else { v }
    }

    /// Inserts a number into a lane of a vector.
    pub(super) fn replace(&mut self, d: DType, part: Value, lane: usize, v: Value) -> Value {
        let v = if d == DType::Bool { self.b.ins().ineg(v) } else { v };
        self.b.ins().insertlane(part, v, lane as u8)
    }

    /// Makes a vector from numbers.
    pub(super) fn from_lanes(&mut self, d: DType, lanes: &[Value]) -> Parts {
        let each = if d.size() == 8 { 2 } else { LANES };
        lanes
            .chunks(each)
            .map(|c| {
                let first = self.splat_of(d, c[0]);
                c.iter().enumerate().skip(1).fold(first, |v, (i, &x)| self.replace(d, v, i, x))
            })
            .collect()
    }

    /// Evaluates an op on each lane as a scalar.
    pub(super) fn lane_by_lane(
        &mut self,
        (from, to): (DType, DType),
        x: &[Value],
        mut f: impl FnMut(&mut Self, Value) -> Value,
    ) -> Parts {
        let mut lanes = Vec::new();
        for lane in 0..self.copies() * LANES {
            let v = self.extract(from, x, lane);
            lanes.push(f(self, v));
        }
        self.from_lanes(to, &lanes)
    }

    pub(super) fn vector_let(&mut self, op: &Op, out: DType) -> Parts {
        match op {
            Op::Index(i) => self.index_lanes(i),
            Op::Load { buf, index, mask } => self.vector_load(*buf, index, *mask),
            _ => {
                let from = self.dtype(op.operands().next().expect("arithmetic has operands"));
                let from = if let Op::Select(_, a, _) = op { self.dtype(*a) } else { from };
                let args: Vec<Parts> = op.operands().map(|r| self.lanes(r)).collect();
                if let Op::Binary(kind, _, b) = op
                    && let Some(by) = self.constants[b.0 as usize]
                    && let Some(v) = self.by_constant(*kind, from, &args[0], by)
                {
                    return v;
                }
                self.vector_op(op, from, out, &args)
            }
        }
    }

    /// Emits ops that are simpler with a constant second operand: shifts and divisions.
    fn by_constant(&mut self, kind: Binary, d: DType, x: &[Value], by: Scalar) -> Option<Parts> {
        let n = by.to_i64();
        if self.shifts(kind, d, by) {
            return Some(self.each(x, |w, v| w.shifted(kind, d, v, n)));
        }
        if !self.divides(kind, d, by) {
            return None;
        }
        if d == DType::I64 && n > 0 && n.count_ones() == 1 {
            return Some(self.each(x, |w, v| w.by_power(kind, v, n)));
        }
        let by = self.constant(by);
        Some(self.lane_by_lane((d, d), x, |w, v| w.divided(kind, d, v, by)))
    }

    /// Computes `v / n` or `v % n`, rounded towards zero, for a power of two.
    fn by_power(&mut self, kind: Binary, v: Value, n: i64) -> Value {
        let all = |w: &mut Self, n: i64| {
            let n = w.b.ins().iconst(types::I64, n);
            w.b.ins().splat(types::I64X2, n)
        };
        let (sign, bits) =
            (self.b.ins().iconst(types::I32, 63), self.b.ins().iconst(types::I32, n.trailing_zeros() as i64));
        let low = all(self, n - 1);
        let negative = self.b.ins().sshr(v, sign);
        let up = self.b.ins().band(negative, low);
        let moved = self.b.ins().iadd(v, up);
        if kind == Binary::Div {
            return self.b.ins().sshr(moved, bits);
        }
        let high = all(self, !(n - 1));
        let whole = self.b.ins().band(moved, high);
        self.b.ins().isub(v, whole)
    }

    fn index_lanes(&mut self, index: &Index) -> Parts {
        let var = self.vectors.expect("inside of a vector loop").var;
        let n = self.count(DType::I64);
        // First the uniform part, as one number.
        let start = self.index(index);
        let start = self.b.ins().splat(types::I64X2, start);
        let mut all = vec![start; n];
        for &(atom, stride) in &index.terms {
            let parts: Parts = match atom {
                Atom::Var(v) if v == var => (0..n as i64)
                    .map(|i| {
                        let first = self.b.ins().iconst(types::I64, 2 * i);
                        let second = self.b.ins().iconst(types::I64, 2 * i + 1);
                        let v = self.b.ins().splat(types::I64X2, first);
                        self.b.ins().insertlane(v, second, 1)
                    })
                    .collect(),
                Atom::Reg(r) if self.in_lanes(r) => self.lanes(r),
                _ => continue,
            };
            let by = self.size(stride);
            let by = self.b.ins().splat(types::I64X2, by);
            for (a, p) in all.iter_mut().zip(parts) {
                let term = if stride == Size::Const(1) { p } else { self.b.ins().imul(p, by) };
                *a = self.b.ins().iadd(*a, term);
            }
        }
        all
    }

    /// Emits an op on lanes, inline or through the helper. `from` is the type of its operands (for a selection, of the values).
    pub(super) fn vector_op(&mut self, op: &Op, from: DType, out: DType, x: &[Parts]) -> Parts {
        if let Some(v) = self.vector_inline(op, from, x) {
            return match out {
                DType::BF16 if super::scalar::needs_bf16_rounding(op) => self.each(&v, Self::rounded_lanes),
                _ => self.wrapped_lanes(out, op, v),
            };
        }
        let args: Vec<&[Value]> = x.iter().map(Vec::as_slice).collect();
        self.call_helper_lanes(op, from, out, &args, self.copies())
    }

    pub(super) fn each(&mut self, x: &[Value], mut f: impl FnMut(&mut Self, Value) -> Value) -> Parts {
        x.iter().map(|&v| f(self, v)).collect()
    }

    pub(super) fn both(
        &mut self,
        x: &[Value],
        y: &[Value],
        mut f: impl FnMut(&mut Self, Value, Value) -> Value,
    ) -> Parts {
        x.iter().zip(y).map(|(&a, &b)| f(self, a, b)).collect()
    }

    /// Returns `a` where the mask is on, otherwise `b`.
    pub(super) fn choose(&mut self, mask: Value, a: Value, b: Value) -> Value {
        let t = self.b.func.dfg.value_type(a);
        let mask = self.like(t, mask);
        self.b.ins().bitselect(mask, a, b)
    }

    fn vector_inline(&mut self, op: &Op, from: DType, x: &[Parts]) -> Option<Parts> {
        let single = matches!(from, DType::F32 | DType::BF16);
        let float = single || from == DType::F64;
        let wide = from.size() == 8;
        let signed = from.kind() == DTypeKind::Signed;
        if from.is_float() && !float && matches!(op, Op::Unary(..) | Op::Binary(..) | Op::Fma(..)) {
            return None;
        }
        Some(match *op {
            Op::Select(..) => {
                let masks = if wide { self.mask32_to_mask64(&x[0]) } else { x[0].clone() };
                (0..masks.len()).map(|i| self.choose(masks[i], x[1][i], x[2][i])).collect()
            }
            Op::Unary(f, _) if float => return self.float_unary(f, from, &x[0]),
            Op::Unary(Unary::Not, _) => self.each(&x[0], |w, v| w.b.ins().bnot(v)),
            Op::Unary(Unary::Neg, _) if from.is_int() => self.each(&x[0], |w, v| w.b.ins().ineg(v)),
            Op::Unary(Unary::Abs, _) if signed => self.each(&x[0], |w, v| w.b.ins().iabs(v)),
            Op::Fma(..) if float => (0..x[0].len()).map(|i| self.b.ins().fma(x[0][i], x[1][i], x[2][i])).collect(),
            Op::Binary(kind, ..) => {
                let [a, b] = [&x[0], &x[1]];
                match kind {
                    Binary::Add if float => self.both(a, b, |w, a, b| w.b.ins().fadd(a, b)),
                    Binary::Sub if float => self.both(a, b, |w, a, b| w.b.ins().fsub(a, b)),
                    Binary::Mul if float => self.both(a, b, |w, a, b| w.b.ins().fmul(a, b)),
                    Binary::Div if float => self.both(a, b, |w, a, b| w.b.ins().fdiv(a, b)),
                    Binary::Max | Binary::Min if float => {
                        let cc = if kind == Binary::Max { FloatCC::GreaterThan } else { FloatCC::LessThan };
                        // The first operand where it is NaN or wins, otherwise the second.
                        self.both(a, b, |w, a, b| {
                            let (wins, nan) = (w.b.ins().fcmp(cc, a, b), w.b.ins().fcmp(FloatCC::NotEqual, a, a));
                            let first = w.b.ins().bor(wins, nan);
                            w.choose(first, a, b)
                        })
                    }
                    _ if float => return None,
                    Binary::And => self.both(a, b, |w, a, b| w.b.ins().band(a, b)),
                    Binary::Or => self.both(a, b, |w, a, b| w.b.ins().bor(a, b)),
                    Binary::Xor => self.both(a, b, |w, a, b| w.b.ins().bxor(a, b)),
                    Binary::Min | Binary::Mul if from == DType::Bool => self.both(a, b, |w, a, b| w.b.ins().band(a, b)),
                    Binary::Max | Binary::Add if from == DType::Bool => self.both(a, b, |w, a, b| w.b.ins().bor(a, b)),
                    _ if from == DType::Bool => return None,
                    Binary::Add => self.both(a, b, |w, a, b| w.b.ins().iadd(a, b)),
                    Binary::Sub => self.both(a, b, |w, a, b| w.b.ins().isub(a, b)),
                    Binary::Mul => self.both(a, b, |w, a, b| w.b.ins().imul(a, b)),
                    Binary::Max | Binary::Min => {
                        let cc = if kind == Binary::Max { ir::Compare::Gt } else { ir::Compare::Lt };
                        self.both(a, b, |w, a, b| {
                            let wins = w.compared(cc, from, a, b);
                            w.choose(wins, a, b)
                        })
                    }
                    _ => return None,
                }
            }
            Op::Compare(c, ..) => {
                let masks = self.both(&x[0], &x[1], |w, a, b| w.compared(c, from, a, b));
                if wide { self.pack_low_halves(&masks) } else { masks }
            }
            Op::Cast(to, _) => return self.vector_cast(from, to, &x[0]),
            Op::Bitcast(to, _) if from.size() >= 4 => self.each(&x[0], |w, v| w.like(lane_type(to), v)),
            _ => return None,
        })
    }

    fn compared(&mut self, c: ir::Compare, d: DType, a: Value, b: Value) -> Value {
        if d.is_float() {
            return self.b.ins().fcmp(ordered_float(c), a, b);
        }
        let cc = int_predicate(c);
        match (d.kind() == DTypeKind::Signed, d.size() == 8) {
            (true, _) => self.b.ins().icmp(cc, a, b),
            (false, false) => self.b.ins().icmp(cc.unsigned(), a, b),
            // Not every machine has unsigned comparisons: flip the sign bits and compare as signed.
            (false, true) => {
                let low = self.b.ins().iconst(types::I64, i64::MIN);
                let low = self.b.ins().splat(types::I64X2, low);
                let (a, b) = (self.b.ins().bxor(a, low), self.b.ins().bxor(b, low));
                self.b.ins().icmp(cc, a, b)
            }
        }
    }

    fn float_unary(&mut self, f: Unary, d: DType, x: &[Value]) -> Option<Parts> {
        let t = lane_type(d);
        let number = |w: &mut Self, x: f64| match t {
            types::F64X2 => {
                let v = w.b.ins().f64const(x);
                w.b.ins().splat(t, v)
            }
            _ => {
                let v = w.b.ins().f32const(x as f32);
                w.b.ins().splat(t, v)
            }
        };
        Some(match f {
            Unary::Neg => self.each(x, |w, v| w.b.ins().fneg(v)),
            Unary::Abs => self.each(x, |w, v| w.b.ins().fabs(v)),
            Unary::Sqrt => self.each(x, |w, v| w.b.ins().sqrt(v)),
            Unary::Floor => self.each(x, |w, v| w.b.ins().floor(v)),
            Unary::Ceil => self.each(x, |w, v| w.b.ins().ceil(v)),
            Unary::Trunc => self.each(x, |w, v| w.b.ins().trunc(v)),
            Unary::Round => self.each(x, |w, v| w.b.ins().nearest(v)),
            Unary::Reciprocal => {
                let one = number(self, 1.0);
                self.each(x, |w, v| w.b.ins().fdiv(one, v))
            }
            Unary::Rsqrt => {
                let one = number(self, 1.0);
                self.each(x, |w, v| {
                    let root = w.b.ins().sqrt(v);
                    w.b.ins().fdiv(one, root)
                })
            }
            Unary::Sign => {
                let (one, minus, zero) = (number(self, 1.0), number(self, -1.0), number(self, 0.0));
                self.each(x, |w, v| {
                    let (less, more) =
                        (w.b.ins().fcmp(FloatCC::LessThan, v, zero), w.b.ins().fcmp(FloatCC::GreaterThan, v, zero));
                    let up = w.choose(more, one, v);
                    w.choose(less, minus, up)
                })
            }
            Unary::IsFinite => {
                let inf = number(self, f64::INFINITY);
                let masks = self.each(x, |w, v| {
                    let a = w.b.ins().fabs(v);
                    w.b.ins().fcmp(FloatCC::LessThan, a, inf)
                });
                if d.size() == 8 { self.pack_low_halves(&masks) } else { masks }
            }
            _ => return self.functions(f, d, x),
        })
    }

    /// Expands 32-bit masks to 64-bit masks.
    pub(super) fn mask32_to_mask64(&mut self, masks: &[Value]) -> Parts {
        masks.iter().flat_map(|&m| [self.b.ins().swiden_low(m), self.b.ins().swiden_high(m)]).collect()
    }

    /// Packs the low halves of 64-bit lanes into 32-bit lanes.
    pub(super) fn pack_low_halves(&mut self, parts: &[Value]) -> Parts {
        parts
            .chunks(2)
            .map(|p| {
                let (a, b) = (self.like(types::I32X4, p[0]), self.like(types::I32X4, p[1]));
                self.shuffle(a, b, LOW_WORDS)
            })
            .collect()
    }

    fn wrapped_lanes(&mut self, d: DType, op: &Op, v: Parts) -> Parts {
        if !matches!(op, Op::Unary(..) | Op::Binary(..) | Op::Cast(..)) {
            return v;
        }
        match d {
            DType::U8 | DType::U16 => {
                let mask = self.words(if d == DType::U8 { 0xff } else { 0xffff });
                self.each(&v, |w, v| w.b.ins().band(v, mask))
            }
            DType::I8 | DType::I16 => {
                let n = self.b.ins().iconst(types::I32, if d == DType::I8 { 24 } else { 16 });
                self.each(&v, |w, v| {
                    let up = w.b.ins().ishl(v, n);
                    w.b.ins().sshr(up, n)
                })
            }
            _ => v,
        }
    }

    /// Rounds f32 lanes to bf16, ties to even; NaN stays NaN.
    fn rounded_lanes(&mut self, v: Value) -> Value {
        let bits = self.like(types::I32X4, v);
        let (sixteen, one, half) = (self.b.ins().iconst(types::I32, 16), self.words(1), self.words(0x7fff));
        let odd = self.b.ins().ushr(bits, sixteen);
        let odd = self.b.ins().band(odd, one);
        let up = self.b.ins().iadd(bits, half);
        let up = self.b.ins().iadd(up, odd);
        let nan = self.b.ins().fcmp(FloatCC::NotEqual, v, v);
        let quiet = self.words(0x40_0000);
        let quiet = self.b.ins().bor(bits, quiet);
        let bits = self.b.ins().bitselect(nan, quiet, up);
        let mask = self.words(0xffff_0000);
        let bits = self.b.ins().band(bits, mask);
        self.like(types::F32X4, bits)
    }

    /// Evaluates the op by the helper, with as many lanes per call as it supports.
    pub(super) fn call_helper_lanes(
        &mut self,
        op: &Op,
        from: DType,
        out: DType,
        args: &[&[Value]],
        copies: usize,
    ) -> Parts {
        let at_once = if from.size() == 8 || out.size() == 8 { 2 } else { 4 };
        let each = if out.size() == 8 { 2 } else { 1 };
        let mut all = Parts::new();
        for c in (0..copies).step_by(at_once) {
            let n = at_once.min(copies - c);
            for (i, parts) in args.iter().enumerate() {
                let own = parts.len() / copies;
                for (j, &v) in parts[c * own..(c + n) * own].iter().enumerate() {
                    self.b.ins().stack_store(self.pointer, v, self.area, (64 * i + 16 * j) as i32);
                }
            }
            self.call_helper(helper::op_code(op, from, n * LANES).expect("an arithmetic op"));
            let t = lane_type(out);
            for j in 0..n * each {
                all.push(self.b.ins().stack_load(self.pointer, t, self.area, (helper::OUT + 16 * j) as i32));
            }
        }
        all
    }
}
