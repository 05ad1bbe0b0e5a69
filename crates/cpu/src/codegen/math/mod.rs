//! Elementary functions as vector code.

use super::inst::V;
use super::lower::Lower;
use ir::{DType, Unary};

/// About how many instructions a function takes.
pub(crate) fn weight(op: Unary, _d: DType) -> usize {
    match op {
        Unary::Neg | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::Not => 1,
        Unary::Sqrt | Unary::Reciprocal | Unary::Rsqrt | Unary::Sign | Unary::IsFinite => 3,
        _ => 20,
    }
}

/// A function of f32 lanes, if it has an inline form.
pub(crate) fn unary_f32(_lo: &mut Lower<'_>, _op: Unary, _x: V) -> Option<V> {
    None
}

/// A function of f64 lanes, if it has an inline form.
pub(crate) fn unary_f64(_lo: &mut Lower<'_>, _op: Unary, _x: V) -> Option<V> {
    None
}
