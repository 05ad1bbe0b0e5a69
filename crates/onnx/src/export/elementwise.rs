//! Exports elementwise ops.

use super::export_error;
use super::writer::{ExportedValue, ModelWriter, int, string};
use crate::error::Result;
use ir::{Binary, Compare, DType, DTypeKind, Scalar, Unary};

impl ModelWriter {
    pub(super) fn unary(&mut self, f: Unary, x: &ExportedValue) -> Result<ExportedValue> {
        let ty = x.ty.clone();
        let d = ty.dtype;
        let named = match f {
            Unary::Neg if d.kind() == DTypeKind::Unsigned => {
                let zero = self.number(d, 0.0);
                return Ok(self.node("Sub", &[&zero, x], &ty));
            }
            Unary::Neg => "Neg",
            Unary::Abs => "Abs",
            Unary::Sign => "Sign",
            Unary::Floor => "Floor",
            Unary::Ceil => "Ceil",
            Unary::Round => "Round",
            Unary::Exp => "Exp",
            Unary::Log => "Log",
            Unary::Sqrt => "Sqrt",
            Unary::Reciprocal => "Reciprocal",
            Unary::Sin => "Sin",
            Unary::Cos => "Cos",
            Unary::Tan => "Tan",
            Unary::Asin => "Asin",
            Unary::Acos => "Acos",
            Unary::Atan => "Atan",
            Unary::Sinh => "Sinh",
            Unary::Cosh => "Cosh",
            Unary::Tanh => "Tanh",
            Unary::Asinh => "Asinh",
            Unary::Acosh => "Acosh",
            Unary::Atanh => "Atanh",
            Unary::Erf => "Erf",
            Unary::Logistic => "Sigmoid",
            Unary::Not if d == DType::Bool => "Not",
            Unary::Not => "BitwiseNot",
            Unary::Trunc => {
                let (up, down) = (self.node("Ceil", &[x], &ty), self.node("Floor", &[x], &ty));
                let zero = self.number(d, 0.0);
                let below = self.node("Less", &[x, &zero], &ty.with_dtype(DType::Bool));
                return Ok(self.node("Where", &[&below, &up, &down], &ty));
            }
            // Exact at integers, like ours.
            Unary::Exp2 => {
                let two = self.number(d, 2.0);
                return Ok(self.node("Pow", &[&two, x], &ty));
            }
            // Exact at powers of the base, like ours.
            Unary::Log2 | Unary::Log10 => {
                let base = if f == Unary::Log2 { 2.0f64 } else { 10.0 };
                let l = self.node("Log", &[x], &ty);
                let by = self.number(d, base.ln());
                let r = self.node("Div", &[&l, &by], &ty);
                let whole = self.node("Round", &[&r], &ty);
                let base = self.number(d, base);
                let power = self.node("Pow", &[&base, &whole], &ty);
                let hit = self.node("Equal", &[&power, x], &ty.with_dtype(DType::Bool));
                return Ok(self.node("Where", &[&hit, &whole, &r], &ty));
            }
            Unary::Expm1 => return Ok(self.expm1(x)),
            Unary::Log1p => return Ok(self.log1p(x)),
            Unary::Rsqrt => {
                let r = self.node("Sqrt", &[x], &ty);
                return Ok(self.node("Reciprocal", &[&r], &ty));
            }
            Unary::Erfc => {
                let e = self.node("Erf", &[x], &ty);
                let one = self.number(d, 1.0);
                return Ok(self.node("Sub", &[&one, &e], &ty));
            }
            Unary::IsFinite => {
                let bools = ty.with_dtype(DType::Bool);
                let (inf, nan) = (self.node("IsInf", &[x], &bools), self.node("IsNaN", &[x], &bools));
                let either = self.node("Or", &[&inf, &nan], &bools);
                return Ok(self.node("Not", &[&either], &bools));
            }
            Unary::ErfInv | Unary::Lgamma | Unary::Digamma | Unary::PopulationCount => {
                return Err(export_error(
                    f.name(),
                    "ONNX has no such function; export the part of the model before or after it",
                ));
            }
        };
        Ok(self.node(named, &[x], &ty))
    }

    /// `exp(x) - 1` without cancellation near 0: `2·tanh(x/2) / (1 - tanh(x/2))`.
    fn expm1(&mut self, x: &ExportedValue) -> ExportedValue {
        let ty = x.ty.clone();
        let (half, one, two) = (self.number(ty.dtype, 0.5), self.number(ty.dtype, 1.0), self.number(ty.dtype, 2.0));
        let h = self.node("Mul", &[x, &half], &ty);
        let t = self.node("Tanh", &[&h], &ty);
        let (n, d) = (self.node("Mul", &[&t, &two], &ty), self.node("Sub", &[&one, &t], &ty));
        let near = self.node("Div", &[&n, &d], &ty);
        let e = self.node("Exp", &[x], &ty);
        let far = self.node("Sub", &[&e, &one], &ty);
        let a = self.node("Abs", &[x], &ty);
        let small = self.node("Less", &[&a, &one], &ty.with_dtype(DType::Bool));
        self.node("Where", &[&small, &near, &far], &ty)
    }

    /// `log(1 + x)` without cancellation near 0: `2·atanh(x / (2 + x))`.
    fn log1p(&mut self, x: &ExportedValue) -> ExportedValue {
        let ty = x.ty.clone();
        let (half, one, two) = (self.number(ty.dtype, 0.5), self.number(ty.dtype, 1.0), self.number(ty.dtype, 2.0));
        let a = self.node("Abs", &[x], &ty);
        let small = self.node("Less", &[&a, &half], &ty.with_dtype(DType::Bool));
        let zero = self.number(ty.dtype, 0.0);
        let safe = self.node("Where", &[&small, x, &zero], &ty);
        let d = self.node("Add", &[&safe, &two], &ty);
        let q = self.node("Div", &[&safe, &d], &ty);
        let t = self.node("Atanh", &[&q], &ty);
        let near = self.node("Mul", &[&t, &two], &ty);
        let s = self.node("Add", &[x, &one], &ty);
        let far = self.node("Log", &[&s], &ty);
        self.node("Where", &[&small, &near, &far], &ty)
    }

    /// `Max` or `Min`, also of booleans.
    pub(super) fn extremum(&mut self, op: &str, a: &ExportedValue, b: &ExportedValue) -> ExportedValue {
        let ty = a.ty.clone();
        let op = match (ty.dtype, op) {
            (DType::Bool, "Max") => "Or",
            (DType::Bool, _) => "And",
            (_, op) => op,
        };
        self.node(op, &[a, b], &ty)
    }

    pub(super) fn binary_op(&mut self, f: Binary, a: &ExportedValue, b: &ExportedValue) -> Result<ExportedValue> {
        let ty = a.ty.clone();
        let (d, bool) = (ty.dtype, ty.dtype == DType::Bool);
        let op = match f {
            Binary::Add => "Add",
            Binary::Sub => "Sub",
            Binary::Mul => "Mul",
            Binary::Div => "Div",
            Binary::Max => return Ok(self.extremum("Max", a, b)),
            Binary::Min => return Ok(self.extremum("Min", a, b)),
            Binary::And if bool => "And",
            Binary::Or if bool => "Or",
            Binary::Xor if bool => "Xor",
            Binary::And => "BitwiseAnd",
            Binary::Or => "BitwiseOr",
            Binary::Xor => "BitwiseXor",
            Binary::Rem => return Ok(self.node_with_attributes("Mod", &[a, b], vec![int("fmod", 1)], &ty)),
            Binary::Pow if d.is_float() || matches!(d, DType::I32 | DType::I64) => "Pow",
            Binary::Pow => {
                let (wa, mut wb) = (self.cast(a, DType::I64), self.cast(b, DType::I64));
                if d == DType::U64 {
                    // Exponents from 2⁶³ on are negative in i64. Modulo 2⁶⁴ powers of odd numbers repeat after 2⁶² exponents, and
                    // those of even ones are 0 from 64 on: 2⁶² with the lower bits gives the same.
                    let number = |w: &mut ModelWriter, n: i64| w.scalar(Scalar::from_i64(DType::I64, n));
                    let (zero, low, high) = (number(self, 0), number(self, (1 << 62) - 1), number(self, 1 << 62));
                    let rest = self.node("BitwiseAnd", &[&wb, &low], &wb.ty.clone());
                    let same = self.node("BitwiseOr", &[&rest, &high], &wb.ty.clone());
                    let negative = self.node("Less", &[&wb, &zero], &wb.ty.with_dtype(DType::Bool));
                    wb = self.node("Where", &[&negative, &same, &wb], &wb.ty.clone());
                }
                let p = self.node("Pow", &[&wa, &wb], &wa.ty);
                return Ok(self.cast(&p, d));
            }
            Binary::Shl | Binary::Shr if d.kind() == DTypeKind::Unsigned => {
                let direction = if f == Binary::Shl { "LEFT" } else { "RIGHT" };
                let width = self.scalar(Scalar::from_i64(d, i64::from(d.bits())));
                let far = self.node("GreaterOrEqual", &[b, &width], &ty.with_dtype(DType::Bool));
                let zero = self.scalar(Scalar::zero(d));
                let near = self.node("Where", &[&far, &zero, b], &ty);
                let s = self.node_with_attributes("BitShift", &[a, &near], vec![string("direction", direction)], &ty);
                return Ok(self.node("Where", &[&far, &zero, &s], &ty));
            }
            Binary::Atan2 => return Ok(self.atan2(a, b)),
            Binary::Shl | Binary::Shr | Binary::Zeta => {
                return Err(export_error(
                    f.name(),
                    "ONNX has no such function of these types; cast to unsigned integers for shifts",
                ));
            }
        };
        Ok(self.node(op, &[a, b], &ty))
    }

    /// By quadrants: the angle of `|y| / |x|`, rotated.
    fn atan2(&mut self, y: &ExportedValue, x: &ExportedValue) -> ExportedValue {
        let (ty, d) = (y.ty.clone(), y.ty.dtype);
        let bools = ty.with_dtype(DType::Bool);
        let (ay, ax) = (self.node("Abs", &[y], &ty), self.node("Abs", &[x], &ty));
        // The smaller over the larger, so that nothing overflows; 0 over 0 is replaced by 0.
        let steep = self.node("Greater", &[&ay, &ax], &bools);
        let (top, bottom) = (self.node("Min", &[&ay, &ax], &ty), self.node("Max", &[&ay, &ax], &ty));
        let (zero, one) = (self.number(d, 0.0), self.number(d, 1.0));
        let origin = self.node("Equal", &[&bottom, &zero], &bools);
        let same = self.node("Equal", &[&top, &bottom], &bools);
        let safe = self.node("Where", &[&origin, &one, &bottom], &ty);
        let q = self.node("Div", &[&top, &safe], &ty);
        // Also for two infinities, whose quotient is NaN.
        let whole = self.node("Where", &[&origin, &zero, &one], &ty);
        let q = self.node("Where", &[&same, &whole, &q], &ty);
        let a = self.node("Atan", &[&q], &ty);
        let quarter = self.number(d, std::f64::consts::FRAC_PI_2);
        let turned = self.node("Sub", &[&quarter, &a], &ty);
        let a = self.node("Where", &[&steep, &turned, &a], &ty);
        let negative = |w: &mut ModelWriter, v: &ExportedValue| -> ExportedValue {
            // The sign bit, which 1/v reveals for zeros.
            let r = w.node("Reciprocal", &[v], &ty);
            let (below, is_zero) = (w.node("Less", &[v, &zero], &bools), w.node("Equal", &[v, &zero], &bools));
            let flipped = w.node("Less", &[&r, &zero], &bools);
            let minus = w.node("And", &[&is_zero, &flipped], &bools);
            w.node("Or", &[&below, &minus], &bools)
        };
        let (left, down) = (negative(self, x), negative(self, y));
        let half = self.number(d, std::f64::consts::PI);
        let turned = self.node("Sub", &[&half, &a], &ty);
        let a = self.node("Where", &[&left, &turned, &a], &ty);
        let minus = self.node("Neg", &[&a], &ty);
        let a = self.node("Where", &[&down, &minus, &a], &ty);
        // NaN if an operand is NaN.
        let sum = self.node("Add", &[y, x], &ty);
        let (ny, nx) = (self.node("IsNaN", &[y], &bools), self.node("IsNaN", &[x], &bools));
        let nan = self.node("Or", &[&ny, &nx], &bools);
        self.node("Where", &[&nan, &sum, &a], &ty)
    }

    pub(super) fn compare(&mut self, f: Compare, a: &ExportedValue, b: &ExportedValue) -> ExportedValue {
        let bools = a.ty.with_dtype(DType::Bool);
        let (a, b) = match (f, a.ty.dtype) {
            (Compare::Eq | Compare::Ne, _) => (a.clone(), b.clone()),
            (_, DType::Bool) => (self.cast(a, DType::U8), self.cast(b, DType::U8)),
            _ => (a.clone(), b.clone()),
        };
        let op = match f {
            Compare::Eq => "Equal",
            Compare::Ne => {
                let e = self.node("Equal", &[&a, &b], &bools);
                return self.node("Not", &[&e], &bools);
            }
            Compare::Lt => "Less",
            Compare::Le => "LessOrEqual",
            Compare::Gt => "Greater",
            Compare::Ge => "GreaterOrEqual",
        };
        self.node(op, &[&a, &b], &bools)
    }

    /// Conversions from floats to integers saturate, and NaN becomes 0; ONNX leaves both undefined.
    pub(super) fn cast_op(&mut self, x: &ExportedValue, to: DType) -> ExportedValue {
        let from = x.ty.dtype;
        if !(from.is_float() && to.is_int()) {
            return self.cast(x, to);
        }
        let wide = self.cast(x, DType::F64);
        let bools = wide.ty.with_dtype(DType::Bool);
        let nan = self.node("IsNaN", &[&wide], &bools);
        let zero = self.number(DType::F64, 0.0);
        let y = self.node("Where", &[&nan, &zero, &wide], &wide.ty);
        let (low, high) = (to.int_min() as f64, to.int_max() as f64);
        let (lo, hi) = (self.number(DType::F64, low), self.number(DType::F64, high));
        if to.size() < 8 {
            let y = self.node("Max", &[&y, &lo], &wide.ty);
            let y = self.node("Min", &[&y, &hi], &wide.ty);
            return self.cast(&y, to);
        }
        // The largest 64-bit integers are not floats: values that reach them are replaced afterwards.
        let (above, below) =
            (self.node("GreaterOrEqual", &[&y, &hi], &bools), self.node("LessOrEqual", &[&y, &lo], &bools));
        let y = self.node("Where", &[&above, &zero, &y], &wide.ty);
        let y = self.node("Where", &[&below, &zero, &y], &wide.ty);
        let y = self.cast(&y, to);
        let (most, least) = (self.scalar(Scalar::highest(to)), self.scalar(Scalar::lowest(to)));
        let y = self.node("Where", &[&above, &most, &y], &y.ty.clone());
        self.node("Where", &[&below, &least, &y], &y.ty.clone())
    }

    pub(super) fn quantize(&mut self, x: &ExportedValue, to: DType) -> ExportedValue {
        if !to.is_float() || !x.ty.dtype.is_float() {
            return self.cast_op(x, to);
        }
        let max = ir::scalar::finite_max(to);
        let wide = self.cast(x, DType::F64);
        let (lo, hi) = (self.number(DType::F64, -max), self.number(DType::F64, max));
        let y = self.node("Max", &[&wide, &lo], &wide.ty);
        let y = self.node("Min", &[&y, &hi], &wide.ty);
        self.cast(&y, to)
    }

    pub(super) fn bitcast(&mut self, x: &ExportedValue, to: DType) -> Result<ExportedValue> {
        let from = x.ty.dtype;
        match from.is_int() && to.is_int() {
            true => Ok(self.cast(x, to)),
            false => Err(export_error(
                "bitcast",
                "the bits of floats have no op before opset 26; export the part of the model before or after it",
            )),
        }
    }
}
