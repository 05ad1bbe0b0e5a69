//! Integers: divisors, bits, neighbours of floats.

use super::binary::pair;
use crate::Operand;
use crate::record;
use crate::{DType, Tensor, lax};
use ir::{Binary, Compare, GraphBuilder, Unary, Value};

/// Greatest common divisor.
#[track_caller]
pub fn gcd(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (x, y) = pair(x.into(), y.into());
    if let Some(e) = not_integers("gcd", &x, &y) {
        return e;
    }
    // In the common dtype first: the size of the least i8 is no i8.
    let d = super::result_type(&[&x, &y]).unwrap_or(x.dtype());
    let all = super::broadcast_arrays(&[&x.cast(d).abs(), &y.cast(d).abs()]);
    let start = (all[0].clone(), all[1].clone());
    // Euclid's algorithm on all pairs at once, until none has a remainder.
    let more = |(_, b): (Tensor, Tensor)| super::any(&b, ());
    let step = |(a, b): (Tensor, Tensor)| {
        let on = super::not_equal(&b, 0);
        let rest = super::fmod(&a, super::where_(&on, &b, 1));
        (super::where_(&on, &b, &a), super::where_(&on, &rest, 0))
    };
    lax::while_loop(more, step, start).0
}

/// Least common multiple.
#[track_caller]
pub fn lcm(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (x, y) = pair(x.into(), y.into());
    let d = gcd(&x, &y);
    let safe = super::where_(&super::equal(&d, 0), 1, &d);
    // Sizes are divided: quotients of negative numbers may be rounded down.
    super::abs(&x.cast(d.dtype())) * super::floor_divide(super::abs(&y.cast(d.dtype())), &safe)
}

fn not_integers(op: &'static str, x: &Tensor, y: &Tensor) -> Option<Tensor> {
    if let Some(e) = x.error().or_else(|| y.error()) {
        return Some(Tensor::from_error(e));
    }
    let ok = x.dtype().is_int() && y.dtype().is_int();
    (!ok).then(|| record::invalid(op, format!("{} and {} are not both integers", x.ty(), y.ty())))
}

/// The number of ones among the bits of `|x|`, as u8.
#[track_caller]
pub fn bitwise_count(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x], |b, v| {
        let ty = b.ty(v[0]);
        if ty.dtype == DType::Bool {
            return b.cast(v[0], DType::U8);
        }
        if !ty.dtype.is_int() {
            return Err(record::misfit("bitwise_count", &[ty], "only integers have bits to count"));
        }
        let size = if ty.dtype.kind() == ir::DTypeKind::Signed { b.unary(Unary::Abs, v[0])? } else { v[0] };
        let x = b.cast(size, DType::U64)?;
        let ty = b.ty(x);
        let number = |b: &mut dyn GraphBuilder, n: u64| b.full(&ty, ir::Scalar::from_bits(DType::U64, n));
        // Sums of neighbouring fields of 1, 2, 4, .. bits.
        let fields = [
            (1, 0x5555_5555_5555_5555),
            (2, 0x3333_3333_3333_3333),
            (4, 0x0f0f_0f0f_0f0f_0f0f),
            (8, 0x00ff_00ff_00ff_00ff),
            (16, 0x0000_ffff_0000_ffff),
            (32, 0x0000_0000_ffff_ffff),
        ];
        let mut x = x;
        for (by, mask) in fields {
            let (by, mask) = (number(b, by)?, number(b, mask)?);
            let low = b.binary(Binary::And, x, mask)?;
            let high = b.binary(Binary::Shr, x, by)?;
            let high = b.binary(Binary::And, high, mask)?;
            x = b.add(low, high)?;
        }
        b.cast(x, DType::U8)
    })
}

/// The next float after `x` towards `y`.
#[track_caller]
pub fn nextafter(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    let (x, y) = pair(x.into(), y.into());
    record::one(&[&x, &y], |b, v| {
        let (x, y) = record::align(b, "nextafter", v[0], v[1])?;
        let d = record::float_of(b.ty(x).dtype);
        let (x, y) = (b.cast(x, d)?, b.cast(y, d)?);
        neighbour(b, x, y)
    })
}

fn neighbour(b: &mut dyn GraphBuilder, x: Value, y: Value) -> ir::Result<Value> {
    let d = b.ty(x).dtype;
    let bits = match d {
        DType::F64 => DType::I64,
        DType::F32 => DType::I32,
        DType::F16 | DType::BF16 => DType::I16,
        _ => return Err(record::misfit("nextafter", &[b.ty(x)], "only floats have neighbours")),
    };
    let raw = b.one(ir::ops::Bitcast(bits).into(), &[x])?;
    let zero = b.full_like(x, 0.0)?;
    // Away from zero the bits count up, for either sign.
    let (up, plus) = (b.compare(Compare::Gt, y, x)?, b.compare(Compare::Gt, x, zero)?);
    let away = b.compare(Compare::Eq, up, plus)?;
    let (more, less) = (b.offset(raw, 1.0)?, b.offset(raw, -1.0)?);
    let moved = b.select(away, more, less)?;
    let moved = b.one(ir::ops::Bitcast(d).into(), &[moved])?;
    let ty = b.ty(raw);
    let one = b.full(&ty, ir::Scalar::from_i64(bits, 1))?;
    let least = b.one(ir::ops::Bitcast(d).into(), &[one])?;
    let minus = b.neg(least)?;
    let least = b.select(up, least, minus)?;
    let at_zero = b.compare(Compare::Eq, x, zero)?;
    let moved = b.select(at_zero, least, moved)?;
    let same = b.compare(Compare::Eq, x, y)?;
    let moved = b.select(same, y, moved)?;
    let sum = b.add(x, y)?;
    let nan = b.compare(Compare::Ne, sum, sum)?;
    let (x_nan, y_nan) = (b.compare(Compare::Ne, x, x)?, b.compare(Compare::Ne, y, y)?);
    let either = b.binary(Binary::Or, x_nan, y_nan)?;
    let nan = b.binary(Binary::And, nan, either)?;
    b.select(nan, sum, moved)
}

/// The distance to the next float away from zero.
#[track_caller]
pub fn spacing(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let end = super::copysign(f64::INFINITY, x);
    nextafter(x, &end) - x
}
