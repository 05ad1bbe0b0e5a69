//! In-place ops (§4.3): pure ops whose result is stored into the destination's base.

use super::{Kind, Lazy, Tensor, Traced};
use crate::context;
use crate::error::{Error, Result};
use crate::loc::LocRole;
use crate::record::{LazyBuild, Number, Record, Target, broadcast_shapes, number_like, target};
use crate::view;
use ir::{Binary, Loc, Type, Value};

/// Computes the new elements from the old ones (if asked for) and the operands.
type Update<'a> = &'a dyn Fn(&mut dyn Record, Option<Value>, &[Value]) -> ir::Result<Value>;

impl Tensor {
    /// Replaces this tensor's elements. Gives the tensor itself, or an invalid one if nothing was changed.
    fn mutate(&self, op: &'static str, reads: bool, others: &[&Tensor], at: &Loc, f: Update<'_>) -> Tensor {
        match self.try_mutate(op, reads, others, at, f) {
            Ok(()) => self.clone(),
            Err(e) => match self.invalid().or_else(|| others.iter().find_map(|t| t.invalid())) {
                Some(t) => t.clone(),
                None => Tensor::failed(e.at(at), self.engine()),
            },
        }
    }

    fn try_mutate(&self, op: &'static str, reads: bool, others: &[&Tensor], at: &Loc, f: Update<'_>) -> Result<()> {
        let mut all = vec![self];
        all.extend(others);
        let target = target(&all, None, at)?;
        self.check_writable(op, at)?;
        match (target, &self.0.kind) {
            (Target::Trace(trace), _) => {
                trace.mutate(at, self, others, reads, |b, old, v| self.updated(op, b, old, v, f))
            }
            (Target::Lazy(engine), Kind::Lazy(Lazy { base, .. })) => {
                let mut state = engine.shared.state();
                let mut b = LazyBuild::new(&mut state, at.clone());
                let mut values = Vec::with_capacity(others.len());
                for t in others {
                    values.push(b.load(&t.0)?);
                }
                let old = if reads || self.0.view().is_some() {
                    let r = b.state.base_load(*base, self.0.reads_leaf(), self.0.detached, at)?;
                    Some(b.import(r, Some(*base)))
                } else {
                    None
                };
                let new = self.updated(op, &mut b, old, &values, f)?;
                let new = b.get(new).clone();
                let unrecorded = self.0.detached || !context::is_grad_enabled();
                state.base_store(*base, new, LocRole::TensorState, unrecorded, at)
            }
            _ => unreachable!("a tensor of a trace has an active trace"),
        }
    }

    /// The base with this tensor's elements replaced.
    fn updated(
        &self,
        op: &'static str,
        b: &mut dyn Record,
        base: Option<Value>,
        v: &[Value],
        f: Update<'_>,
    ) -> Result<Value> {
        let ops = self.0.view().map(|v| v.ops.as_slice()).unwrap_or_default();
        let old = match base {
            Some(base) => Some(view::get(b, base, ops)?),
            None => None,
        };
        let new = f(b, old, v)?;
        let got = b.ty(new);
        if got.dtype != self.dtype() {
            let reason = format!("the result is {got}, which {} can't hold; cast the operand", self.ty());
            return Err(Error::call(op, reason, &Loc::Unknown));
        }
        if got.shape.as_slice() != self.shape() {
            let reason = format!("the result is {got}, but the destination is {}", self.ty());
            return Err(Error::call(op, reason, &Loc::Unknown));
        }
        match base {
            Some(base) => Ok(view::put(b, base, ops, new)?),
            None => Ok(new),
        }
    }

    fn check_writable(&self, op: &'static str, at: &Loc) -> Result<()> {
        let no = |reason: &str| Err(Error::InPlace { op, reason: reason.to_string(), at: at.clone() });
        if self.0.view().is_some_and(|v| v.overlaps()) {
            return no("the destination is expanded, several of its elements are one in memory; copy() it first");
        }
        if context::is_grad_enabled() && self.0.reads_leaf().is_some() {
            return no(
                "a leaf that requires gradients can't be changed in place while they are recorded; use no_grad(..)",
            );
        }
        if let Kind::Traced(Traced { trace, cell, .. }) = &self.0.kind {
            trace.check_writable(*cell, op, at)?;
        }
        Ok(())
    }

    fn binary_(&self, name: &'static str, op: Binary, other: &Tensor, at: Loc) -> Tensor {
        self.mutate(name, true, &[other], &at, &|b, old, v| {
            let old = old.expect("it was asked for");
            let new = like(b, v[0], self.ty())?;
            b.binary(op, old, new)
        })
    }

    fn number_(&self, name: &'static str, op: Binary, n: Number, at: Loc) -> Tensor {
        self.mutate(name, true, &[], &at, &|b, old, _| {
            let n = number_like(b, self.dtype(), n)?;
            let n = like(b, n, self.ty())?;
            b.binary(op, old.expect("it was asked for"), n)
        })
    }

    /// `self += other`, in place. The operand is a tensor, broadcast to this one's shape.
    #[track_caller]
    pub fn add_(&self, other: &Tensor) -> Tensor {
        self.binary_("add_", Binary::Add, other, Loc::caller())
    }

    /// `self -= other`, in place.
    #[track_caller]
    pub fn sub_(&self, other: &Tensor) -> Tensor {
        self.binary_("sub_", Binary::Sub, other, Loc::caller())
    }

    /// `self *= other`, in place.
    #[track_caller]
    pub fn mul_(&self, other: &Tensor) -> Tensor {
        self.binary_("mul_", Binary::Mul, other, Loc::caller())
    }

    /// `self /= other`, in place.
    #[track_caller]
    pub fn div_(&self, other: &Tensor) -> Tensor {
        self.binary_("div_", Binary::Div, other, Loc::caller())
    }

    /// Adds a number in place.
    #[track_caller]
    pub fn add_scalar_(&self, n: impl Into<Number>) -> Tensor {
        self.number_("add_", Binary::Add, n.into(), Loc::caller())
    }

    /// Multiplies by a number in place.
    #[track_caller]
    pub fn mul_scalar_(&self, n: impl Into<Number>) -> Tensor {
        self.number_("mul_", Binary::Mul, n.into(), Loc::caller())
    }

    /// Copies the elements of `other`, broadcast and converted.
    #[track_caller]
    pub fn copy_(&self, other: &Tensor) -> Tensor {
        let at = Loc::caller();
        self.mutate("copy_", false, &[other], &at, &|b, _, v| {
            let v = b.cast(v[0], self.dtype())?;
            like(b, v, self.ty())
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

/// Broadcasts a value to a shape and converts it if that loses no class of numbers; otherwise it stays, and the op
/// reports what does not fit.
fn like(b: &mut dyn Record, v: Value, ty: &Type) -> ir::Result<Value> {
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
