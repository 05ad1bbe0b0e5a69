//! Scalar expressions that define elementwise ops.

use crate::dtype::DType;
use crate::scalar::{Binary, Compare, Scalar, Unary};

/// A scalar expression over numbered arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// The n-th argument.
    Arg(usize),
    /// A constant.
    Const(Scalar),
    /// A unary function.
    Unary(Unary, Box<Expr>),
    /// A binary function of two values of one dtype.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// A comparison.
    Compare(Compare, Box<Expr>, Box<Expr>),
    /// `if c { a } else { b }`.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `a * b + c`, rounded once.
    Fma(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `Scalar::cast`.
    Cast(DType, Box<Expr>),
    /// `Scalar::quantize`.
    Quantize(DType, Box<Expr>),
    /// Reinterprets the bits as another dtype of equal size.
    Bitcast(DType, Box<Expr>),
}

impl Expr {
    /// The n-th argument, boxed.
    pub fn arg(n: usize) -> Box<Expr> {
        Box::new(Expr::Arg(n))
    }

    /// The approximate number of machine operations.
    pub fn cost(&self) -> u32 {
        match self {
            Expr::Arg(_) | Expr::Const(_) => 0,
            Expr::Unary(op, x) => op.cost() + x.cost(),
            Expr::Binary(op, a, b) => op.cost() + a.cost() + b.cost(),
            Expr::Compare(_, a, b) => 1 + a.cost() + b.cost(),
            Expr::Select(a, b, c) | Expr::Fma(a, b, c) => 1 + a.cost() + b.cost() + c.cost(),
            Expr::Cast(_, x) | Expr::Quantize(_, x) | Expr::Bitcast(_, x) => 1 + x.cost(),
        }
    }

    /// The value for concrete arguments.
    pub fn eval(&self, args: &[Scalar]) -> Scalar {
        match self {
            Expr::Arg(n) => args[*n],
            Expr::Const(s) => *s,
            Expr::Unary(op, x) => op.eval(x.eval(args)),
            Expr::Binary(op, a, b) => op.eval(a.eval(args), b.eval(args)),
            Expr::Compare(op, a, b) => Scalar::bool(op.eval(a.eval(args), b.eval(args))),
            Expr::Select(c, a, b) => {
                if c.eval(args).to_bool() {
                    a.eval(args)
                } else {
                    b.eval(args)
                }
            }
            Expr::Fma(a, b, c) => fma(a.eval(args), b.eval(args), c.eval(args)),
            Expr::Cast(d, x) => x.eval(args).cast(*d),
            Expr::Quantize(d, x) => x.eval(args).quantize(*d),
            Expr::Bitcast(d, x) => Scalar::from_bits(*d, x.eval(args).bits()),
        }
    }
}

/// `a * b + c` rounded once; integers wrap.
pub fn fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar {
    match a.dtype() {
        // The product of two f32 is exact in f64, but the sum is not: only a true fused operation rounds once.
        DType::F32 => {
            Scalar::from_f64(DType::F32, (a.to_f64() as f32).mul_add(b.to_f64() as f32, c.to_f64() as f32) as f64)
        }
        d if d.is_float() => Scalar::from_f64(d, a.to_f64().mul_add(b.to_f64(), c.to_f64())),
        _ => Binary::Add.eval(Binary::Mul.eval(a, b), c),
    }
}
