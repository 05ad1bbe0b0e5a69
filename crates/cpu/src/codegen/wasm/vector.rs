//! Arithmetic on vectors of lanes.
//!
//! Bool is a mask of 32 bits per lane. Lanes of 64 bits take two vectors; their comparisons are converted to one mask.

use super::body::L;
use super::kernel::{KernelWriter, LANES, Parts, register_type};
use super::scalar::needs_bf16_rounding;
use compiler::loops::{Atom, Index, Op, Size};
use ir::{Binary, Compare, DType, DTypeKind, Scalar, Unary};
use wasm_encoder::{Instruction as I, ValType};

/// The low halves of four 64-bit lanes.
pub(crate) const LOW_HALVES: I<'static> = I::I8x16Shuffle([0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27]);

impl KernelWriter<'_> {
    pub(crate) fn constant_parts(&mut self, s: Scalar) -> Parts {
        let d = s.dtype();
        let l = match register_type(d) {
            _ if d == DType::Bool => self.b.splat32(0u32.wrapping_sub(s.to_bool() as u32)),
            ValType::F64 | ValType::I64 => self.b.splat64(s.bits()),
            ValType::F32 if d == DType::F32 => self.b.splat32(s.bits() as u32),
            ValType::F32 => self.b.splat32((s.to_f64() as f32).to_bits()),
            _ => self.b.splat32(s.to_i64() as i32 as u32),
        };
        vec![l; self.count(d)]
    }

    /// Broadcasts a number to all lanes of a vector.
    pub(crate) fn splat_of(&mut self, d: DType, v: L) -> L {
        match register_type(d) {
            ValType::F32 => self.b.v128(I::F32x4Splat, &[v]),
            ValType::F64 => self.b.v128(I::F64x2Splat, &[v]),
            ValType::I64 => self.b.v128(I::I64x2Splat, &[v]),
            _ => {
                let v = self.b.v128(I::I32x4Splat, &[v]);
                if d == DType::Bool { self.b.v128(I::I32x4Neg, &[v]) } else { v }
            }
        }
    }

    /// Extracts one lane as a number.
    pub(crate) fn extract(&mut self, d: DType, parts: &[L], lane: usize) -> L {
        if d.size() == 8 {
            let (part, lane) = (parts[lane / 2], (lane % 2) as u8);
            return match register_type(d) {
                ValType::F64 => self.b.value(ValType::F64, I::F64x2ExtractLane(lane), &[part]),
                _ => self.b.i64(I::I64x2ExtractLane(lane), &[part]),
            };
        }
        let (part, lane) = (parts[lane / LANES], (lane % LANES) as u8);
        match register_type(d) {
            ValType::F32 => self.b.value(ValType::F32, I::F32x4ExtractLane(lane), &[part]),
            _ => {
                let v = self.b.i32(I::I32x4ExtractLane(lane), &[part]);
                let one = self.b.const_i32(1);
                if d == DType::Bool { self.b.i32(I::I32And, &[v, one]) } else { v }
            }
        }
    }

    /// Inserts a number into a lane.
    pub(crate) fn replace(&mut self, d: DType, parts: &[L], lane: usize, v: L) {
        let (part, i) = match register_type(d) {
            ValType::F64 => (parts[lane / 2], I::F64x2ReplaceLane((lane % 2) as u8)),
            ValType::I64 => (parts[lane / 2], I::I64x2ReplaceLane((lane % 2) as u8)),
            ValType::F32 => (parts[lane / LANES], I::F32x4ReplaceLane((lane % LANES) as u8)),
            _ => (parts[lane / LANES], I::I32x4ReplaceLane((lane % LANES) as u8)),
        };
        self.b.get(part);
        self.b.get(v);
        if d == DType::Bool {
            // Convert 0 or 1 to a mask.
            self.b.push(I::I32Const(31));
            self.b.push(I::I32Shl);
            self.b.push(I::I32Const(31));
            self.b.push(I::I32ShrS);
        }
        self.b.push(i);
        self.b.set(part);
    }

    /// Makes a vector from numbers.
    pub(crate) fn from_lanes(&mut self, d: DType, lanes: &[L]) -> Parts {
        let each = if d.size() == 8 { 2 } else { LANES };
        let parts: Parts = lanes
            .chunks(each)
            .map(|c| {
                let v = self.splat_of(d, c[0]);
                let own = self.b.local(ValType::V128);
                self.b.get(v);
                self.b.set(own);
                own
            })
            .collect();
        for (i, &v) in lanes.iter().enumerate().filter(|(i, _)| i % each != 0) {
            self.replace(d, &parts, i, v);
        }
        parts
    }

    pub(crate) fn vector_let(&mut self, op: &Op, out: DType) -> Parts {
        match op {
            Op::Index(i) => self.index_lanes(i),
            Op::Load { buf, index, mask } => self.vector_load(*buf, index, *mask),
            _ => {
                let from = self.dtype(op.operands().next().expect("arithmetic has operands"));
                let from = if let Op::Select(_, a, _) = op { self.dtype(*a) } else { from };
                let args: Vec<Parts> = op.operands().map(|r| self.lanes(r)).collect();
                if let Op::Binary(kind, _, b) = op
                    && let Some(by) = self.constants[b.0 as usize]
                {
                    if let Some(v) = self.lower_by_constant(*kind, from, &args[0], by) {
                        return v;
                    }
                    if let Some(i) = self.divides(*kind, from, by) {
                        let by = self.constant(by);
                        let lanes: Vec<L> = (0..self.count(DType::I32) * LANES)
                            .map(|lane| {
                                let x = self.extract(from, &args[0], lane);
                                self.b.value(register_type(from), i.clone(), &[x, by])
                            })
                            .collect();
                        return self.from_lanes(from, &lanes);
                    }
                }
                self.vector_op(op, from, out, &args)
            }
        }
    }

    /// Emits ops that are simpler with a constant second operand: shifts, and divisions by powers of two.
    fn lower_by_constant(&mut self, kind: Binary, d: DType, x: &[L], by: Scalar) -> Option<Parts> {
        let n = by.to_i64();
        let i = match (kind, d) {
            (Binary::Shl, DType::I32 | DType::U32) if (0..32).contains(&n) => I::I32x4Shl,
            (Binary::Shr, DType::U32) if (0..32).contains(&n) => I::I32x4ShrU,
            (Binary::Shr, DType::I32) if (0..32).contains(&n) => I::I32x4ShrS,
            (Binary::Shl, DType::I64 | DType::U64) if (0..64).contains(&n) => I::I64x2Shl,
            (Binary::Shr, DType::U64) if (0..64).contains(&n) => I::I64x2ShrU,
            (Binary::Shr, DType::I64) if (0..64).contains(&n) => I::I64x2ShrS,
            (Binary::Div | Binary::Rem, DType::I64) if n > 0 && n.count_ones() == 1 => {
                return Some(x.iter().map(|&v| self.divide_by_power_of_two(kind, v, n)).collect());
            }
            _ => return None,
        };
        let n = self.b.const_i32(n as i32);
        Some(x.iter().map(|&v| self.b.v128(i.clone(), &[v, n])).collect())
    }

    /// Computes `v / n` or `v % n`, rounded towards zero, for a power of two.
    fn divide_by_power_of_two(&mut self, kind: Binary, v: L, n: i64) -> L {
        let (sign, bits) = (self.b.const_i32(63), self.b.const_i32(n.trailing_zeros() as i32));
        let low = self.b.splat64(n as u64 - 1);
        let negative = self.b.v128(I::I64x2ShrS, &[v, sign]);
        let up = self.b.v128(I::V128And, &[negative, low]);
        let moved = self.b.v128(I::I64x2Add, &[v, up]);
        if kind == Binary::Div {
            return self.b.v128(I::I64x2ShrS, &[moved, bits]);
        }
        let high = self.b.splat64(!(n as u64 - 1));
        let whole = self.b.v128(I::V128And, &[moved, high]);
        self.b.v128(I::I64x2Sub, &[v, whole])
    }

    fn index_lanes(&mut self, index: &Index) -> Parts {
        let vectors = self.vectors.expect("inside of a vector loop");
        let n = self.count(DType::I64);
        // First the uniform part, as one number.
        let mut at = self.b.const_i64(index.offset);
        for &a in &index.offset_args {
            let s = self.sizes[a as usize];
            at = self.b.i64(I::I64Add, &[at, s]);
        }
        let mut moving: Vec<(Parts, Size)> = Vec::new();
        for &(atom, stride) in &index.terms {
            let v = match atom {
                Atom::Var(v) => {
                    if v == vectors.var {
                        let count = (0..n).map(|i| {
                            let i = 2 * i as u128;
                            self.b.const_v128(i | (i + 1) << 64)
                        });
                        let count = count.collect();
                        moving.push((count, stride));
                    }
                    let v = self.vars[v.0 as usize].expect("loop variables are used inside their loops");
                    self.b.i64(I::I64ExtendI32S, &[v])
                }
                Atom::Reg(r) if self.varying[r.0 as usize] => {
                    let v = self.lanes(r);
                    moving.push((v, stride));
                    continue;
                }
                Atom::Reg(r) => self.scalar(r),
            };
            let by = self.size64(stride);
            let part = self.b.i64(I::I64Mul, &[v, by]);
            at = self.b.i64(I::I64Add, &[at, part]);
        }
        let start = self.b.v128(I::I64x2Splat, &[at]);
        let mut all = vec![start; n];
        for (parts, stride) in moving {
            let by = self.size64(stride);
            let by = self.b.v128(I::I64x2Splat, &[by]);
            for (a, p) in all.iter_mut().zip(parts) {
                let term = if stride == Size::Const(1) { p } else { self.b.v128(I::I64x2Mul, &[p, by]) };
                *a = self.b.v128(I::I64x2Add, &[*a, term]);
            }
        }
        all
    }

    fn size64(&mut self, s: Size) -> L {
        match s {
            Size::Const(n) => self.b.const_i64(n),
            Size::Arg(n) => self.sizes[n as usize],
        }
    }

    /// Emits an op on lanes, inline or through the helper. `from` is the type of its operands (for a selection, of the values).
    pub(crate) fn vector_op(&mut self, op: &Op, from: DType, out: DType, x: &[Parts]) -> Parts {
        if let Some(v) = self.vector_inline(op, from, x) {
            return match out {
                DType::BF16 if needs_bf16_rounding(op) => v.into_iter().map(|l| self.rounded_lanes(l)).collect(),
                _ => self.wrapped_lanes(out, op, v),
            };
        }
        let copies = self.vectors.map_or(1, |v| v.copies);
        (0..copies)
            .flat_map(|c| {
                let args: Vec<&[L]> = x.iter().map(|p| &p[c * p.len() / copies..(c + 1) * p.len() / copies]).collect();
                self.call_helper_vector(op, from, out, &args)
            })
            .collect()
    }

    fn per_lane(&mut self, i: I<'static>, x: &[Parts]) -> Parts {
        (0..x[0].len())
            .map(|p| {
                let args: Vec<L> = x.iter().map(|x| x[p]).collect();
                self.b.v128(i.clone(), &args)
            })
            .collect()
    }

    fn vector_inline(&mut self, op: &Op, from: DType, x: &[Parts]) -> Option<Parts> {
        let single = matches!(from, DType::F32 | DType::BF16);
        let float = single || from == DType::F64;
        let wide = from.size() == 8;
        let pick = |s: I<'static>, d: I<'static>| if wide { d } else { s };
        if from.is_float() && !float && matches!(op, Op::Unary(..) | Op::Binary(..)) {
            return None;
        }
        Some(match *op {
            Op::Select(..) => {
                let masks = if wide { self.mask32_to_mask64(&x[0]) } else { x[0].clone() };
                self.per_lane(I::V128Bitselect, &[x[1].clone(), x[2].clone(), masks])
            }
            Op::Unary(f, _) if float => {
                let i = match f {
                    Unary::Neg => pick(I::F32x4Neg, I::F64x2Neg),
                    Unary::Abs => pick(I::F32x4Abs, I::F64x2Abs),
                    Unary::Sqrt => pick(I::F32x4Sqrt, I::F64x2Sqrt),
                    Unary::Floor => pick(I::F32x4Floor, I::F64x2Floor),
                    Unary::Ceil => pick(I::F32x4Ceil, I::F64x2Ceil),
                    Unary::Trunc => pick(I::F32x4Trunc, I::F64x2Trunc),
                    Unary::Round => pick(I::F32x4Nearest, I::F64x2Nearest),
                    Unary::Reciprocal if wide => {
                        let one = vec![self.b.splat64(1f64.to_bits()); x[0].len()];
                        return Some(self.per_lane(I::F64x2Div, &[one, x[0].clone()]));
                    }
                    _ if single => return x[0].iter().map(|&v| self.function(f, v)).collect(),
                    _ => return None,
                };
                self.per_lane(i, x)
            }
            Op::Unary(Unary::Not, _) => self.per_lane(I::V128Not, x),
            Op::Unary(Unary::Neg, _) => self.per_lane(pick(I::I32x4Neg, I::I64x2Neg), x),
            Op::Unary(Unary::Abs, _) if from.kind() == DTypeKind::Signed => {
                self.per_lane(pick(I::I32x4Abs, I::I64x2Abs), x)
            }
            Op::Binary(kind, ..) if float => {
                let i = match kind {
                    Binary::Add => pick(I::F32x4Add, I::F64x2Add),
                    Binary::Sub => pick(I::F32x4Sub, I::F64x2Sub),
                    Binary::Mul => pick(I::F32x4Mul, I::F64x2Mul),
                    Binary::Div => pick(I::F32x4Div, I::F64x2Div),
                    Binary::Max | Binary::Min => {
                        // pmax(b, a) is a if b < a, else b; NaN in a is missing.
                        let i = match kind {
                            Binary::Max => pick(I::F32x4PMax, I::F64x2PMax),
                            _ => pick(I::F32x4PMin, I::F64x2PMin),
                        };
                        let (a, b) = (x[0].clone(), x[1].clone());
                        let best = self.per_lane(i, &[b, a.clone()]);
                        let nan = self.per_lane(pick(I::F32x4Ne, I::F64x2Ne), &[a.clone(), a.clone()]);
                        return Some(self.per_lane(I::V128Bitselect, &[a, best, nan]));
                    }
                    _ => return None,
                };
                self.per_lane(i, x)
            }
            Op::Binary(kind, ..) if from == DType::Bool => {
                let i = match kind {
                    Binary::And | Binary::Min | Binary::Mul => I::V128And,
                    Binary::Xor => I::V128Xor,
                    Binary::Or | Binary::Max | Binary::Add => I::V128Or,
                    _ => return None,
                };
                self.per_lane(i, x)
            }
            Op::Binary(kind, ..) => {
                let signed = from.kind() == DTypeKind::Signed;
                let i = match kind {
                    Binary::Add => pick(I::I32x4Add, I::I64x2Add),
                    Binary::Sub => pick(I::I32x4Sub, I::I64x2Sub),
                    Binary::Mul => pick(I::I32x4Mul, I::I64x2Mul),
                    Binary::And => I::V128And,
                    Binary::Or => I::V128Or,
                    Binary::Xor => I::V128Xor,
                    Binary::Max if !wide => {
                        if signed {
                            I::I32x4MaxS
                        } else {
                            I::I32x4MaxU
                        }
                    }
                    Binary::Min if !wide => {
                        if signed {
                            I::I32x4MinS
                        } else {
                            I::I32x4MinU
                        }
                    }
                    Binary::Max | Binary::Min if signed => {
                        let i = if kind == Binary::Max { I::I64x2GtS } else { I::I64x2LtS };
                        let wins = self.per_lane(i, x);
                        return Some(self.per_lane(I::V128Bitselect, &[x[0].clone(), x[1].clone(), wins]));
                    }
                    _ => return None,
                };
                self.per_lane(i, x)
            }
            Op::Compare(kind, ..) => {
                let i = compare(kind, from)?;
                let masks = self.per_lane(i, x);
                if wide { self.pack_low_halves(&masks) } else { masks }
            }
            Op::Cast(to, _) => return self.vector_cast(from, to, &x[0]),
            Op::Bitcast(to, _) if from.size() >= 4 && from != DType::Bool && to != DType::Bool => x[0].clone(),
            _ => return None,
        })
    }

    /// Expands 32-bit masks to 64-bit masks.
    pub(crate) fn mask32_to_mask64(&mut self, masks: &[L]) -> Parts {
        let mut all = Parts::new();
        for &m in masks {
            all.push(self.b.v128(I::I64x2ExtendLowI32x4S, &[m]));
            all.push(self.b.v128(I::I64x2ExtendHighI32x4S, &[m]));
        }
        all
    }

    /// Packs the low halves of 64-bit lanes into 32-bit lanes.
    pub(crate) fn pack_low_halves(&mut self, parts: &[L]) -> Parts {
        parts.chunks(2).map(|p| self.b.v128(LOW_HALVES, p)).collect()
    }

    fn wrapped_lanes(&mut self, d: DType, op: &Op, v: Parts) -> Parts {
        if !matches!(op, Op::Unary(..) | Op::Binary(..) | Op::Cast(..)) {
            return v;
        }
        match d {
            DType::U8 | DType::U16 => {
                let mask = self.b.splat32(if d == DType::U8 { 0xff } else { 0xffff });
                v.into_iter().map(|l| self.b.v128(I::V128And, &[l, mask])).collect()
            }
            DType::I8 | DType::I16 => {
                let n = self.b.const_i32(if d == DType::I8 { 24 } else { 16 });
                let up: Parts = v.into_iter().map(|l| self.b.v128(I::I32x4Shl, &[l, n])).collect();
                up.into_iter().map(|l| self.b.v128(I::I32x4ShrS, &[l, n])).collect()
            }
            _ => v,
        }
    }

    /// Rounds f32 lanes to bf16, ties to even; NaN stays NaN.
    pub(crate) fn rounded_lanes(&mut self, v: L) -> L {
        let (sixteen, one) = (self.b.const_i32(16), self.b.splat32(1));
        let odd = self.b.v128(I::I32x4ShrU, &[v, sixteen]);
        let odd = self.b.v128(I::V128And, &[odd, one]);
        let half = self.b.splat32(0x7fff);
        let up = self.b.v128(I::I32x4Add, &[v, half]);
        let up = self.b.v128(I::I32x4Add, &[up, odd]);
        let nan = self.b.v128(I::F32x4Ne, &[v, v]);
        let quiet = self.b.splat32(0x40_0000);
        let quiet = self.b.v128(I::V128Or, &[v, quiet]);
        let v = self.b.v128(I::V128Bitselect, &[quiet, up, nan]);
        let mask = self.b.splat32(0xffff_0000);
        self.b.v128(I::V128And, &[v, mask])
    }
}

fn compare(kind: Compare, d: DType) -> Option<I<'static>> {
    use Compare::*;
    Some(match (kind, register_type(d), d.kind() == DTypeKind::Signed) {
        (Eq, ValType::F32, _) => I::F32x4Eq,
        (Ne, ValType::F32, _) => I::F32x4Ne,
        (Lt, ValType::F32, _) => I::F32x4Lt,
        (Le, ValType::F32, _) => I::F32x4Le,
        (Gt, ValType::F32, _) => I::F32x4Gt,
        (Ge, ValType::F32, _) => I::F32x4Ge,
        (Eq, ValType::F64, _) => I::F64x2Eq,
        (Ne, ValType::F64, _) => I::F64x2Ne,
        (Lt, ValType::F64, _) => I::F64x2Lt,
        (Le, ValType::F64, _) => I::F64x2Le,
        (Gt, ValType::F64, _) => I::F64x2Gt,
        (Ge, ValType::F64, _) => I::F64x2Ge,
        (Eq, ValType::I32, _) => I::I32x4Eq,
        (Ne, ValType::I32, _) => I::I32x4Ne,
        // Comparisons of masks have the opposite order.
        _ if d == DType::Bool => return None,
        (Lt, ValType::I32, true) => I::I32x4LtS,
        (Le, ValType::I32, true) => I::I32x4LeS,
        (Gt, ValType::I32, true) => I::I32x4GtS,
        (Ge, ValType::I32, true) => I::I32x4GeS,
        (Lt, ValType::I32, false) => I::I32x4LtU,
        (Le, ValType::I32, false) => I::I32x4LeU,
        (Gt, ValType::I32, false) => I::I32x4GtU,
        (Ge, ValType::I32, false) => I::I32x4GeU,
        (Eq, ValType::I64, _) => I::I64x2Eq,
        (Ne, ValType::I64, _) => I::I64x2Ne,
        (Lt, ValType::I64, true) => I::I64x2LtS,
        (Le, ValType::I64, true) => I::I64x2LeS,
        (Gt, ValType::I64, true) => I::I64x2GtS,
        (Ge, ValType::I64, true) => I::I64x2GeS,
        _ => return None,
    })
}
