//! In-place ops (§4.3): pure ops whose result is stored into the destination's base.

use super::{Lazy, Tensor, TensorKind, Traced};
use crate::context;
use crate::error::{Error, Result};
use crate::node::SavedVersion;
use crate::operand::{Number, OperandRef, TensorOrScalar};
use crate::record::{LazyBuild, RecordTarget, Recorder, broadcast_shapes, number_like, recording_target};
use crate::state_cell::LocRole;
use ir::ops::Clamp;
use ir::{Binary, DType, GraphBuilder, Loc, Scalar, Type, Unary, Value};

/// Computes the new elements from the old ones (if requested) and the operands.
pub(super) type UpdateFn<'a> = &'a dyn Fn(&mut dyn Recorder, Option<Value>, &[Value]) -> ir::Result<Value>;

/// The error message for a gradient through a detached destination.
pub(crate) const DETACHED_MESSAGE: &str = "the destination is detached, so the operand's gradient would be lost; use no_grad(..) if this is intended, or \
     write to a copy()";

impl Tensor {
    /// Replaces this tensor's elements. Returns the tensor itself, or an invalid one if nothing was changed.
    pub(super) fn mutate(
        &self,
        op: &'static str,
        reads: bool,
        others: &[&Tensor],
        at: &Loc,
        f: UpdateFn<'_>,
    ) -> Tensor {
        let at = &context::resolve_loc(at);
        match self.try_mutate(op, reads, others, at, f) {
            Ok(()) => self.clone(),
            Err(e) => {
                let invalid = self.invalid().or_else(|| others.iter().find_map(|t| t.invalid()));
                // Most callers read the destination and ignore the result. So a function that is being recorded fails as a
                // whole, unless it read the error; outside a function the engine keeps the error.
                let error = invalid.and_then(Tensor::error).unwrap_or_else(|| e.with_loc(at));
                match context::record_write_failure(&error) {
                    Some(failed) => failed,
                    None => invalid.cloned().unwrap_or_else(|| Tensor::with_error(error, self.engine())),
                }
            }
        }
    }

    fn try_mutate(&self, op: &'static str, reads: bool, others: &[&Tensor], at: &Loc, f: UpdateFn<'_>) -> Result<()> {
        let mut all = vec![self];
        all.extend(others);
        let target = recording_target(&all, None, at)?;
        self.check_writable(op, at)?;
        match (target, &self.0.kind) {
            (RecordTarget::Trace(trace), _) => {
                trace.mutate(at, self, others, reads, |b, old, v| Ok(self.updated(op, b, old, v, f)?.0))
            }
            (RecordTarget::Lazy(engine), TensorKind::Lazy(Lazy { base, .. })) => {
                let mut state = engine.shared.state();
                let mut b = LazyBuild::new(&mut state, at.clone());
                let mut values = Vec::with_capacity(others.len());
                for t in others {
                    values.push(b.load(&t.0)?);
                }
                let unrecorded = self.0.detached || !context::is_grad_enabled();
                let whole = !reads && self.0.view().is_none();
                // If a whole base is overwritten, its gradient history continues with zero gradients, as in PyTorch.
                let all = !reads && self.0.ty.numel() >= b.state.base_mut(*base).ty.numel();
                let covers = all && !unrecorded && b.state.is_tracked(*base);
                let old = if !whole || covers {
                    // PyTorch copies the old value that an in-place op needs, so later changes of it are allowed (§9.3).
                    let r = b.state.base_load(*base, self.0.reads_leaf(), self.0.detached, at)?;
                    Some(b.import_value(r, None))
                } else {
                    None
                };
                let (mut new, part) = self.updated(op, &mut b, old.filter(|_| !whole), &values, f)?;
                if let (true, Some(old)) = (covers, old) {
                    let no = b.ty(old).with_dtype(DType::Bool);
                    let no = b.full(&no, Scalar::bool(false))?;
                    new = b.select(no, old, new)?;
                }
                // A value that is a copy of another base belongs to that base, and backward needs nothing of this one.
                let made = b.base(part).is_none();
                let (mut new, part) = (b.get(new).clone(), b.get(part).clone());
                // A copy may be the operand itself, which has a gradient history although recording is off.
                if !context::is_grad_enabled() && new.node.tracked {
                    new = state.alias(new, None, at);
                }
                state.base_store(*base, new, LocRole::TensorState, unrecorded, at)?;
                let version = state.base_mut(*base).scheduled_commits;
                if made {
                    part.node.publish(part.out, SavedVersion { base: *base, version });
                }
                Ok(())
            }
            _ => unreachable!("a tensor of a trace has an active trace"),
        }
    }

    /// The base with this tensor's elements replaced, and the new elements.
    fn updated(
        &self,
        op: &'static str,
        b: &mut dyn Recorder,
        base: Option<Value>,
        v: &[Value],
        f: UpdateFn<'_>,
    ) -> Result<(Value, Value)> {
        let view = self.0.view();
        let old = match (base, view) {
            (Some(base), Some(view)) => Some(view.get(b, base)?),
            (base, _) => base,
        };
        let new = f(b, old, v)?;
        let got = b.ty(new);
        if got.dtype != self.dtype() {
            let remedy = match op {
                "div_" | "div_scalar_" => "use floor_divide_, or x / y, which returns a new tensor",
                _ => "cast the operand",
            };
            let reason = format!("the result is {got}, which {} can't hold; {remedy}", self.ty());
            return Err(Error::call(op, reason, &Loc::Unknown));
        }
        if got.shape.as_slice() != self.shape() {
            let reason = format!("the result is {got}, but the destination is {}", self.ty());
            return Err(Error::call(op, reason, &Loc::Unknown));
        }
        match (base, view) {
            (Some(base), Some(view)) => Ok((view.put(b, base, new)?, new)),
            _ => Ok((new, new)),
        }
    }

    fn check_writable(&self, op: &'static str, at: &Loc) -> Result<()> {
        let no = |reason: &str| Err(Error::InPlace { op, reason: reason.to_string(), at: at.clone() });
        // Filling with one number is well defined even if elements share memory.
        if self.0.view().is_some_and(|v| v.overlaps()) && !matches!(op, "zero_" | "fill_") {
            return no(
                "the destination is expanded: several of its elements share one memory location; write to a copy() of \
                 it",
            );
        }
        if context::is_grad_enabled() && self.0.reads_leaf().is_some() {
            return no("a leaf that requires gradients cannot be modified in place while gradients are recorded; use \
                 no_grad(..)");
        }
        if let TensorKind::Traced(Traced { trace, cell, .. }) = &self.0.kind {
            trace.check_writable(*cell, op, at)?;
        }
        Ok(())
    }

    /// `self = f(self, other)`, where `other` is a number, or a tensor that is broadcast to this tensor's shape.
    fn update_(
        &self,
        name: &'static str,
        other: OperandRef<'_>,
        at: Loc,
        f: &dyn Fn(&mut dyn Recorder, Value, Value) -> ir::Result<Value>,
    ) -> Tensor {
        match other {
            OperandRef::Tensor(other) => self.mutate(name, true, &[other], &at, &|b, old, v| {
                let new = broadcast_and_cast(b, v[0], self.ty())?;
                f(b, old.expect("it was asked for"), new)
            }),
            OperandRef::Number(n) => self.mutate(name, true, &[], &at, &|b, old, _| {
                let n = number_like(b, self.dtype(), n)?;
                let n = broadcast_and_cast(b, n, self.ty())?;
                f(b, old.expect("it was asked for"), n)
            }),
        }
    }

    fn scalar_op_(&self, name: &'static str, op: Binary, n: Number, at: Loc) -> Tensor {
        self.update_(name, OperandRef::Number(n), at, &|b, x, y| b.binary(op, x, y))
    }

    /// Adds a number in place.
    #[track_caller]
    pub fn add_scalar_(&self, n: impl Into<Number>) -> Tensor {
        self.scalar_op_("add_", Binary::Add, n.into(), Loc::caller())
    }

    /// Multiplies by a number in place.
    #[track_caller]
    pub fn mul_scalar_(&self, n: impl Into<Number>) -> Tensor {
        self.scalar_op_("mul_", Binary::Mul, n.into(), Loc::caller())
    }

    /// Subtracts a number in place.
    #[track_caller]
    pub fn sub_scalar_(&self, n: impl Into<Number>) -> Tensor {
        self.scalar_op_("sub_", Binary::Sub, n.into(), Loc::caller())
    }

    /// Divides by a number in place.
    #[track_caller]
    pub fn div_scalar_(&self, n: impl Into<Number>) -> Tensor {
        self.update_("div_", OperandRef::Number(n.into()), Loc::caller(), &super::arith::true_divide)
    }

    /// Raises to a power `n`, a number, in place.
    #[track_caller]
    pub fn powf_(&self, n: impl Into<Number>) -> Tensor {
        self.scalar_op_("pow_", Binary::Pow, n.into(), Loc::caller())
    }

    /// Clamps every element to `low..=high`, in place.
    #[track_caller]
    pub fn clamp_(&self, low: impl Into<Number>, high: impl Into<Number>) -> Tensor {
        let (at, low, high) = (Loc::caller(), low.into(), high.into());
        self.mutate("clamp_", true, &[], &at, &|b, old, _| {
            let mut args = vec![old.expect("it was asked for")];
            for n in [low, high] {
                let n = number_like(b, self.dtype(), n)?;
                args.push(broadcast_and_cast(b, n, self.ty())?);
            }
            b.one(Clamp.into(), &args)
        })
    }

    /// The rectified linear unit `max(x, 0)` in place.
    #[track_caller]
    pub fn relu_(&self) -> Tensor {
        self.mutate("relu_", true, &[], &Loc::caller(), &|b, old, _| {
            super::arith::relu(b, old.expect("it was asked for"))
        })
    }

    /// Squares in place: `x·x`.
    #[track_caller]
    pub fn square_(&self) -> Tensor {
        self.mutate("square_", true, &[], &Loc::caller(), &|b, old, _| {
            let x = old.expect("it was asked for");
            b.mul(x, x)
        })
    }

    fn scaled_op_(&self, name: &'static str, op: Binary, [x, y]: [&Tensor; 2], n: Number, at: Loc) -> Tensor {
        self.mutate(name, true, &[x, y], &at, &|b, old, v| {
            let (x, y) = (broadcast_and_cast(b, v[0], self.ty())?, broadcast_and_cast(b, v[1], self.ty())?);
            let z = b.binary(op, x, y)?;
            let n = number_like(b, self.dtype(), n)?;
            let n = broadcast_and_cast(b, n, self.ty())?;
            let z = b.mul(z, n)?;
            b.add(old.expect("it was asked for"), z)
        })
    }

    /// `self += n·x·y` in place.
    #[track_caller]
    pub fn addcmul_(&self, x: &Tensor, y: &Tensor, n: impl Into<Number>) -> Tensor {
        self.scaled_op_("addcmul_", Binary::Mul, [x, y], n.into(), Loc::caller())
    }

    /// `self += n·x/y` in place.
    #[track_caller]
    pub fn addcdiv_(&self, x: &Tensor, y: &Tensor, n: impl Into<Number>) -> Tensor {
        self.scaled_op_("addcdiv_", Binary::Div, [x, y], n.into(), Loc::caller())
    }

    /// `self += n·(other − self)` in place.
    #[track_caller]
    pub fn lerp_(&self, other: &Tensor, n: impl Into<Number>) -> Tensor {
        let (at, n) = (Loc::caller(), n.into());
        self.mutate("lerp_", true, &[other], &at, &|b, old, v| {
            let old = old.expect("it was asked for");
            let x = broadcast_and_cast(b, v[0], self.ty())?;
            let d = b.sub(x, old)?;
            let n = number_like(b, self.dtype(), n)?;
            let n = broadcast_and_cast(b, n, self.ty())?;
            let d = b.mul(d, n)?;
            b.add(old, d)
        })
    }

    /// Copies the elements of `other`, broadcast to this shape and converted to this dtype.
    #[track_caller]
    pub fn copy_(&self, other: &Tensor) -> Tensor {
        let at = Loc::caller();
        self.mutate("copy_", false, &[other], &at, &|b, _, v| {
            let v = b.cast(v[0], self.dtype())?;
            broadcast_and_cast(b, v, self.ty())
        })
    }

    /// Sets all elements to a number.
    #[track_caller]
    pub fn fill_(&self, n: impl Into<Number>) -> Tensor {
        let (at, n) = (Loc::caller(), n.into());
        self.mutate("fill_", false, &[], &at, &|b, _, _| {
            let v = number_like(b, self.dtype(), n)?;
            let v = b.cast(v, self.dtype())?;
            b.splat(v, self.shape())
        })
    }

    /// Sets all elements to zero.
    #[track_caller]
    pub fn zero_(&self) -> Tensor {
        let at = Loc::caller();
        self.mutate("zero_", false, &[], &at, &|b, _, _| b.zeros(self.ty()))
    }
}

macro_rules! binaries_ {
    ($($(#[$doc:meta])* $name:ident => $f:expr),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl TensorOrScalar) -> Tensor {
                self.update_(stringify!($name), other.term(), Loc::caller(), &$f)
            }
        )* }
    };
}

binaries_! {
    /// `self += other`, in place. The operand is a number, or a tensor that is broadcast to this one's shape.
    add_ => |b, x, y| b.binary(Binary::Add, x, y),
    /// `self -= other`, in place.
    sub_ => |b, x, y| b.binary(Binary::Sub, x, y),
    /// `self *= other`, in place.
    mul_ => |b, x, y| b.binary(Binary::Mul, x, y),
    /// `self /= other`, in place. An error for integers, because their quotients are floats: see `floor_divide_`.
    div_ => super::arith::true_divide,
    /// `self = ⌊self / other⌋`, in place.
    floor_divide_ => super::arith::floor_div,
    /// `self %= other`, in place; the remainder has the sign of the divisor.
    remainder_ => super::arith::modulo,
    /// Raises to the powers `other`, in place.
    pow_ => |b, x, y| b.binary(Binary::Pow, x, y),
    /// `self &= other`, in place.
    and_ => |b, x, y| b.binary(Binary::And, x, y),
    /// `self |= other`, in place.
    or_ => |b, x, y| b.binary(Binary::Or, x, y),
    /// `self ^= other`, in place.
    xor_ => |b, x, y| b.binary(Binary::Xor, x, y),
    /// `self <<= other`, in place.
    shl_ => |b, x, y| b.binary(Binary::Shl, x, y),
    /// `self >>= other`, in place.
    shr_ => |b, x, y| b.binary(Binary::Shr, x, y),
}

macro_rules! unaries_ {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                self.mutate(stringify!($name), true, &[], &Loc::caller(), &|b, old, _| {
                    b.unary(Unary::$op, old.expect("it was asked for"))
                })
            }
        )* }
    };
}

unaries_! {
    /// Negates in place: `−x`.
    neg_ => Neg,
    /// The absolute value in place.
    abs_ => Abs,
    /// The sign (−1, 0 or 1) in place.
    sign_ => Sign,
    /// Rounds down to an integer in place.
    floor_ => Floor,
    /// Rounds up to an integer in place.
    ceil_ => Ceil,
    /// Rounds to the nearest integer, ties to even, in place.
    round_ => Round,
    /// `eˣ` in place.
    exp_ => Exp,
    /// `eˣ − 1` in place.
    expm1_ => Expm1,
    /// Natural logarithm in place.
    log_ => Log,
    /// `log(1 + x)` in place.
    log1p_ => Log1p,
    /// Square root in place.
    sqrt_ => Sqrt,
    /// The reciprocal square root `1/√x` in place.
    rsqrt_ => Rsqrt,
    /// The reciprocal `1/x` in place.
    reciprocal_ => Reciprocal,
    /// Sine in place.
    sin_ => Sin,
    /// Cosine in place.
    cos_ => Cos,
    /// Hyperbolic tangent in place.
    tanh_ => Tanh,
    /// The logistic function `1/(1 + e⁻ˣ)` in place.
    sigmoid_ => Logistic,
}

/// Broadcasts a value to a shape and converts it if the conversion is allowed (not from float to integer, for example); otherwise
/// the value is unchanged, and the op reports the error.
fn broadcast_and_cast(b: &mut dyn Recorder, v: Value, ty: &Type) -> ir::Result<Value> {
    let have = b.ty(v);
    let v = if have.dtype.promote(ty.dtype) == Some(ty.dtype) || have.dtype.is_float() == ty.dtype.is_float() {
        b.cast(v, ty.dtype)?
    } else {
        v
    };
    match broadcast_shapes(&have.shape, &ty.shape) {
        Some(s) if s == ty.shape => b.broadcast_to(v, &s),
        _ => Ok(v),
    }
}
