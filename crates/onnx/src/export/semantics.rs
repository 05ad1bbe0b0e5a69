//! Exports ops by their semantics: an op whose semantics are data needs no separate rule.

use super::writer::{ExportedValue, ModelWriter};
use super::{NO_COUNTERPART, export_error};
use crate::error::Result;
use ir::ops::{Indexing, View};
use ir::{Expr, Op, Semantics, Type};

impl ModelWriter {
    pub(super) fn by_semantics(
        &mut self,
        op: &Op,
        args: &[ExportedValue],
        types: &[Type],
    ) -> Result<Vec<ExportedValue>> {
        let out = types.first().cloned().unwrap_or_else(|| Type::scalar(ir::DType::F32));
        let one = match op.semantics() {
            Semantics::Elementwise(e) => self.expression(&e, args, &out)?,
            Semantics::Reduce(kind, axes) => self.reduce(kind, &args[0], &axes),
            Semantics::View(view) => self.view(&view, args, &out),
            Semantics::DotGeneral(d) => self.dot(&d, &args[0], &args[1], &out),
            Semantics::Index(index) => match index {
                Indexing::Iota(axis) => self.iota(out.dtype, &out.shape, axis),
                Indexing::Concat(axis) => self.concat(args, axis),
                Indexing::Gather(g) => self.gather(&g, &args[0], &args[1], &out)?,
                Indexing::Slice(sizes) => self.dynamic_slice(&args[0], &args[1..], &sizes),
                Indexing::Update => self.dynamic_update(&args[0], &args[1], &args[2..]),
                Indexing::Threefry => return Ok(self.threefry(args)),
            },
            Semantics::Inline(body) => return self.graph(&body, args),
            Semantics::Constant | Semantics::Opaque => return Err(export_error(op.name(), NO_COUNTERPART)),
        };
        Ok(vec![one])
    }

    fn view(&mut self, view: &View, args: &[ExportedValue], out: &Type) -> ExportedValue {
        let x = &args[0];
        match view {
            View::Reshape => self.reshape(x, &out.shape),
            View::Permute(perm) => self.permute(x, perm),
            View::Broadcast(dims) => self.broadcast(x, &out.shape, dims),
            View::Slice(start, stride) => {
                let end = |a: usize| start[a] + out.shape[a].saturating_sub(1) * stride[a] + out.shape[a].min(1);
                let limit: Vec<usize> = (0..start.len()).map(end).collect();
                self.slice(x, start, &limit, stride)
            }
            View::Pad(low, interior) => {
                let spread = |a: usize| x.ty.shape[a] + x.ty.shape[a].saturating_sub(1) * interior[a];
                let high: Vec<i64> = (0..low.len()).map(|a| out.shape[a] as i64 - low[a] - spread(a) as i64).collect();
                self.pad(x, &args[1], low, &high, interior)
            }
            View::Flip(axes) => self.flip(x, axes),
        }
    }

    /// Writes a scalar expression for each element of a result.
    fn expression(&mut self, e: &Expr, args: &[ExportedValue], out: &Type) -> Result<ExportedValue> {
        let mut of = |e: &Expr| self.expression(e, args, out);
        Ok(match e {
            Expr::Arg(n) => args[*n].clone(),
            Expr::Const(s) => {
                let v = self.scalar(*s);
                self.expand(&v, &out.shape)
            }
            Expr::Unary(f, x) => {
                let x = of(x)?;
                self.unary(*f, &x)?
            }
            Expr::Binary(f, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                self.binary_op(*f, &a, &b)?
            }
            Expr::Compare(f, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                self.compare(*f, &a, &b)
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (of(c)?, of(a)?, of(b)?);
                self.node("Where", &[&c, &a, &b], &a.ty)
            }
            Expr::Fma(a, b, c) => {
                let (a, b, c) = (of(a)?, of(b)?, of(c)?);
                // Ours is rounded once, and overflows only with the sum: the product of narrower floats is exact in f64.
                let d = a.ty.dtype;
                let wide = if d.is_float() { ir::DType::F64 } else { d };
                let (a, b, c) = (self.cast(&a, wide), self.cast(&b, wide), self.cast(&c, wide));
                let p = self.node("Mul", &[&a, &b], &a.ty);
                let s = self.node("Add", &[&p, &c], &a.ty);
                self.cast(&s, d)
            }
            Expr::Cast(to, x) => {
                let x = of(x)?;
                self.cast_op(&x, *to)
            }
            Expr::Quantize(to, x) => {
                let x = of(x)?;
                self.quantize(&x, *to)
            }
            Expr::Bitcast(to, x) => {
                let x = of(x)?;
                self.bitcast(&x, *to)?
            }
        })
    }
}
