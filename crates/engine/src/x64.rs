//! Replaces 64-bit types by 32-bit types, for devices without 64-bit types: the default of JAX unless `jax_enable_x64` is set.
//!
//! While it is on, every recorded op and every new tensor is 32-bit. Existing 64-bit tensors stay 64-bit.

use ir::ops::{ArgReduce, Cast, Const, Conv, Dot, Iota, Quantize, RaggedDot};
use ir::{DType, Literal, Op, Type};
use std::sync::atomic::{AtomicBool, Ordering};

static NARROW: AtomicBool = AtomicBool::new(false);

/// Replaces 64-bit types by 32-bit types in everything that is recorded from now on.
pub fn disable_x64(on: bool) {
    NARROW.store(on, Ordering::Relaxed);
}

fn narrowed_dtype(d: DType) -> DType {
    match d {
        DType::F64 => DType::F32,
        DType::I64 => DType::I32,
        DType::U64 => DType::U32,
        d => d,
    }
}

/// The op to record: 64-bit types are replaced if the mode is on.
#[inline]
pub(crate) fn narrow_op(op: Op) -> Op {
    if NARROW.load(Ordering::Relaxed) { rewrite_op(op) } else { op }
}

/// The literal with 32-bit elements; `None` if it does not change.
pub(crate) fn literal(l: &Literal) -> Option<Literal> {
    NARROW.load(Ordering::Relaxed).then(|| narrow_literal(l)).flatten()
}

fn narrow_literal(l: &Literal) -> Option<Literal> {
    let wide = l.ty().dtype;
    let d = narrowed_dtype(wide);
    (d != wide).then(|| Literal::from_fn(Type::new(d, &l.ty().shape), |i| l.get(i).cast(d)))
}

fn rewrite_op(op: Op) -> Op {
    match op {
        Op::Cast(Cast(d)) => Op::Cast(Cast(narrowed_dtype(d))),
        Op::Quantize(Quantize(d)) => Op::Quantize(Quantize(narrowed_dtype(d))),
        Op::Const(Const(l)) => Op::Const(Const(narrow_literal(&l).unwrap_or(l))),
        Op::Iota(i) => Op::Iota(Iota { dtype: narrowed_dtype(i.dtype), ..i }),
        Op::ArgReduce(a) => Op::ArgReduce(ArgReduce { index: narrowed_dtype(a.index), ..a }),
        Op::Dot(d) => Op::Dot(Dot { acc: narrowed_dtype(d.acc), out: narrowed_dtype(d.out), ..d }),
        Op::RaggedDot(d) => Op::RaggedDot(RaggedDot { acc: narrowed_dtype(d.acc), out: narrowed_dtype(d.out), ..d }),
        Op::Conv(c) => Op::Conv(Conv { acc: narrowed_dtype(c.acc), out: narrowed_dtype(c.out), ..c }),
        op => op,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_names_a_wide_type_names_a_narrow_one() {
        let check = |given: Op, want: Op| assert_eq!(rewrite_op(given), want);
        check(Cast(DType::F64).into(), Cast(DType::F32).into());
        check(Cast(DType::BF16).into(), Cast(DType::BF16).into());
        check(Dot::matmul(DType::F64).into(), Dot::matmul(DType::F32).into());
        let iota = |dtype| Iota { dtype, shape: [3].into_iter().collect(), axis: 0 };
        check(iota(DType::I64).into(), iota(DType::I32).into());
        check(Const(Literal::new(&[2], &[1.5f64, -2.0])).into(), Const(Literal::new(&[2], &[1.5f32, -2.0])).into());
        check(Const(Literal::new(&[1], &[7i64])).into(), Const(Literal::new(&[1], &[7i32])).into());
        // Types are unchanged while the mode is off.
        assert_eq!(narrow_op(Cast(DType::F64).into()), Cast(DType::F64).into());
    }
}
