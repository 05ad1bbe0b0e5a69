//! The WGSL form of register values: types, constants, casts.
//!
//! Drivers optimize known values as if there were no NaN, no infinity and only one zero: they replace `x · 0` by 0, `x - x` by 0,
//! `x · b` of a bool by a selection, `(x + c) - c` by x. So no value that permits this is known to them: constants, numbers
//! derived from bools and integers, and signs pass through `hidden` and `negated`, with a 0 (`nothing`) that is a launch parameter.

use crate::grid::Reg;
use ir::{Compare, DType, DTypeKind, Scalar};

/// The type of a register.
pub(super) fn ty(d: DType) -> &'static str {
    match d.kind() {
        DTypeKind::Bool => "bool",
        DTypeKind::Signed => "i32",
        DTypeKind::Unsigned => "u32",
        DTypeKind::Float => "f32",
    }
}

/// Whether values are stored as f32 numbers of a narrower format.
pub(super) fn narrow(d: DType) -> bool {
    d.is_float() && d != DType::F32
}

/// Rounds a number to a dtype.
pub(super) fn rounded(d: DType, x: String) -> String {
    if narrow(d) { format!("round_{}({x})", d.name()) } else { x }
}

/// Truncates a number to the bits of an integer type.
pub(super) fn wrapped(d: DType, x: String) -> String {
    match d {
        DType::I8 => format!("wrap_i8({x})"),
        DType::I16 => format!("wrap_i16({x})"),
        DType::U8 => format!("(({x}) & 0xffu)"),
        DType::U16 => format!("(({x}) & 0xffffu)"),
        _ => x,
    }
}

/// The bits of a value, as a word whose upper bits are zero.
pub(super) fn encoded(d: DType, x: &str) -> String {
    match d {
        DType::Bool => format!("select(0u, 1u, {x})"),
        DType::F32 => format!("bitcast<u32>({x})"),
        DType::U32 | DType::U8 | DType::U16 => x.to_string(),
        DType::I32 => format!("bitcast<u32>({x})"),
        DType::I8 => format!("(bitcast<u32>({x}) & 0xffu)"),
        DType::I16 => format!("(bitcast<u32>({x}) & 0xffffu)"),
        _ => format!("f32_{}({x})", d.name()),
    }
}

/// A value from its bits; the upper bits of the word are zero.
pub(super) fn decoded(d: DType, w: &str) -> String {
    match d {
        DType::Bool => format!("(({w}) & 1u) != 0u"),
        DType::F32 => format!("bitcast<f32>({w})"),
        DType::U32 | DType::U8 | DType::U16 => w.to_string(),
        DType::I32 => format!("bitcast<i32>({w})"),
        DType::I8 => format!("wrap_i8(bitcast<i32>({w}))"),
        DType::I16 => format!("wrap_i16(bitcast<i32>({w}))"),
        _ => format!("{}_f32({w})", d.name()),
    }
}

pub(super) fn ones(bytes: usize) -> &'static str {
    if bytes == 1 { "0xffu" } else { "0xffffu" }
}

pub(super) fn compare(op: Compare) -> &'static str {
    match op {
        Compare::Eq => "==",
        Compare::Ne => "!=",
        Compare::Lt => "<",
        Compare::Le => "<=",
        Compare::Gt => ">",
        Compare::Ge => ">=",
    }
}

pub(super) fn bools(op: Compare, a: &str, b: &str) -> String {
    match op {
        Compare::Eq => format!("{a} == {b}"),
        Compare::Ne => format!("{a} != {b}"),
        Compare::Lt => format!("!{a} && {b}"),
        Compare::Le => format!("!{a} || {b}"),
        Compare::Gt => format!("{a} && !{b}"),
        Compare::Ge => format!("{a} || !{b}"),
    }
}

pub(super) fn cast(from: DType, to: DType, r: &str, dst: Reg) -> String {
    let none = nothing(dst);
    if from == to {
        return r.to_string();
    }
    match (from.kind(), to.kind()) {
        (DTypeKind::Float, DTypeKind::Bool) => format!("(bits({r}) & 0x7fffffffu) != 0u"),
        (DTypeKind::Signed, DTypeKind::Bool) => format!("{r} != 0"),
        (_, DTypeKind::Bool) => format!("{r} != 0u"),
        (DTypeKind::Bool, DTypeKind::Float) => format!("hidden(select(0.0f, 1.0f, {r}), {none})"),
        (DTypeKind::Bool, DTypeKind::Signed) => format!("select(0, 1, {r})"),
        (DTypeKind::Bool, DTypeKind::Unsigned) => format!("select(0u, 1u, {r})"),
        // A value that the target represents exactly is rounded to itself.
        (DTypeKind::Float, DTypeKind::Float) => rounded(to, r.to_string()),
        (DTypeKind::Float, _) => format!("to_{}({r})", to.name()),
        (_, DTypeKind::Float) if to == DType::F32 => format!("hidden(f32({r}), {none})"),
        // f32 represents all values of up to 16 bits; other types are also rounded once.
        (_, DTypeKind::Float) if from.size() <= 2 => rounded(to, format!("hidden(f32({r}), {none})")),
        (_, DTypeKind::Float) => rounded(to, format!("hidden(odd_{}({r}), {none})", ty(from))),
        (_, _) if ty(from) == ty(to) => wrapped(to, r.to_string()),
        (_, _) => wrapped(to, format!("{}({r})", ty(to))),
    }
}

pub(super) fn bitcast(from: DType, to: DType, r: &str, dst: Reg) -> String {
    let text = || decoded(to, &encoded(from, r));
    match to {
        _ if from == to => r.to_string(),
        to if to.is_float() => format!("hidden({}, {})", text(), nothing(dst)),
        _ => text(),
    }
}

pub(super) fn integer(n: i64) -> String {
    match n {
        n if n == i32::MIN as i64 => "i32(-2147483648)".into(),
        n if n < 0 => format!("({n})"),
        n => format!("{n}"),
    }
}

/// The zero of a register: a selection between two constants must not become a selection between known numbers plus a common zero.
fn nothing(dst: Reg) -> String {
    format!("nothing * {}u", u64::from(dst.0) + 2)
}

/// A constant; floats are hidden from the compiler.
pub(super) fn opaque_constant(s: Scalar, dst: Reg) -> String {
    let text = constant(s);
    if s.dtype().is_float() { format!("hidden({text}, {})", nothing(dst)) } else { text }
}

pub(super) fn constant(s: Scalar) -> String {
    let d = s.dtype();
    match d.kind() {
        DTypeKind::Bool => s.to_bool().to_string(),
        DTypeKind::Signed => integer(s.to_i64()),
        DTypeKind::Unsigned => format!("{}u", s.bits()),
        DTypeKind::Float => {
            let x = s.to_f64() as f32;
            if x.is_finite() && (x == 0.0 || x.is_normal()) {
                match x {
                    // Not a negated constant, because the sign of zero must be preserved.
                    x if x == 0.0 && x.is_sign_negative() => "real(0x80000000u)".into(),
                    // Its shortest decimal exceeds it, which browsers reject.
                    x if x.abs() == f32::MAX => format!("({:e}f)", x as f64),
                    x if x < 0.0 => format!("({x:?}f)"),
                    x => format!("{x:?}f"),
                }
            } else {
                format!("real(0x{:x}u)", x.to_bits())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_numbers_that_the_type_has() {
        for x in [f32::MAX, f32::MIN, f32::MIN_POSITIVE, 0.1, -2.5, 1e38, 16_777_217.0, 3.402_823e38] {
            let text = constant(Scalar::from_f64(DType::F32, x as f64));
            let read: f64 = text.trim_matches(['(', ')', 'f']).parse().expect("a number");
            assert!(read.abs() <= f32::MAX as f64 && read as f32 == x, "{text} for {x}");
        }
    }
}
