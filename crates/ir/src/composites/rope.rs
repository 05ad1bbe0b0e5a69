//! Rotary position embedding.

use super::rows::last_axis;
use super::{BatchRole, CompositeBuilder, Params, arity_mismatch, composite, operand_mismatch};
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder};
use crate::error::{Error, Result};
use crate::graph::Value;
use crate::ops::Composite;
use crate::types::Type;

pub(super) const ROPE: CompositeBuilder = CompositeBuilder {
    name: "rope",
    roles: |_| vec![BatchRole::Rows, BatchRole::Prefix(2)],
    build: |p, types| match types {
        [x, cos, sin] => rope(x, cos, sin, RopeOptions::of(p)?),
        _ => Err(arity_mismatch("rope", types, "x, cos and sin")),
    },
    saves: (&[1, 2], &[]),
};

/// The pairs of elements of a head that are rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RopeLayout {
    /// `i` with `i + R/2`, as in HuggingFace's Llama and GPT-NeoX.
    #[default]
    Halves,
    /// `2i` with `2i + 1`, as in GPT-J and Meta's Llama.
    Interleaved,
}

/// Parameters of [`rope`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RopeOptions {
    /// The layout of pairs.
    pub layout: RopeLayout,
    /// Whether there is a head axis between positions and features: `[.., T, H, D]` instead of `[.., T, D]`.
    pub has_head_axis: bool,
}

impl RopeOptions {
    fn of(p: &Params<'_>) -> Result<RopeOptions> {
        let pairs = match p.word("pairs") {
            Some("halves") => RopeLayout::Halves,
            Some("interleaved") => RopeLayout::Interleaved,
            other => {
                return Err(Error::Invalid(format!(
                    "rope needs the parameter `pairs` to be halves or interleaved, got {}",
                    other.unwrap_or("none")
                )));
            }
        };
        Ok(RopeOptions { layout: pairs, has_head_axis: p.flag("heads_inside") })
    }
}

/// Rotates pairs of features by the angles of their position: `(a, b)` becomes `(a·cos - b·sin, b·cos + a·sin)`.
///
/// `x` is `[.., T, D]`, or `[.., T, H, D]` with `has_head_axis`. `cos` and `sin` are `[T, R/2]`, or also have the first of
/// `x`'s leading axes if positions differ between sequences (decoding). The first `R ≤ D` features are
/// rotated, the others are unchanged. The tables may have a wider dtype than `x`; arithmetic is in the wider of the two and in
/// f32 at least. Backward is the inverse rotation: the same composite with `-sin`.
pub fn rope(x: &Type, cos: &Type, sin: &Type, options: RopeOptions) -> Result<Composite> {
    let shape = Layout::new(x, cos, sin, options)?;
    let mut b = Builder::new();
    let v = [x, cos, sin].map(|t| b.graph.input(t.clone()));
    let y = shape.rotate(&mut b, v[0], v[1], v[2])?;
    let body = b.finish(&[y]);

    // dcos = Σ (a·ga + b·gb), dsin = Σ (a·gb - b·ga) over the axes that the tables lack.
    let mut b = Builder::new();
    let v = [x, cos, sin, x, x].map(|t| b.graph.input(t.clone()));
    let (xv, g) = (v[0], v[4]);
    let back = b.neg(v[2])?;
    // The inverse rotation, as a composite that a backend may support; it has no reverse rule, so the recursion ends here.
    let inverse = composite("rope", shape.params(), body.clone(), 1, None);
    let dx = b.one(inverse.into(), &[g, v[1], back])?;
    let (xa, ga) = (shape.wide(&mut b, xv)?, shape.wide(&mut b, g)?);
    let ((x1, x2), (g1, g2)) = (shape.split(&mut b, xa)?, shape.split(&mut b, ga)?);
    let (p, q) = (b.mul(x1, g1)?, b.mul(x2, g2)?);
    let dc = b.add(p, q)?;
    let (p, q) = (b.mul(x1, g2)?, b.mul(x2, g1)?);
    let ds = b.sub(p, q)?;
    let mut grads = vec![dx];
    for (d, ty) in [(dc, cos), (ds, sin)] {
        let d = b.sum(d, &shape.missing(ty))?;
        grads.push(b.cast(d, ty.dtype)?);
    }
    let vjp = b.finish(&grads);
    Ok(composite("rope", shape.params(), body, 1, Some(vjp)))
}

/// The axes and sizes of a rotation.
struct Layout<'a> {
    x: &'a Type,
    cos: &'a Type,
    options: RopeOptions,
    /// The number of rotated features.
    rotated: usize,
}

impl<'a> Layout<'a> {
    fn new(x: &'a Type, cos: &'a Type, sin: &Type, options: RopeOptions) -> Result<Layout<'a>> {
        let bad = |text: String| Err(operand_mismatch("rope", &[x, cos, sin], text));
        let axis = last_axis("rope", x)?;
        let inner = if options.has_head_axis { 3 } else { 2 };
        if x.rank() < inner {
            return bad(format!("needs x of rank {inner} or more"));
        }
        if cos.dtype != sin.dtype || !cos.dtype.is_float() {
            return bad("needs cos and sin of one float dtype".into());
        }
        let positions = x.shape[x.rank() - inner];
        let leading = &x.shape[..x.rank() - inner];
        let pairs = cos.shape.last().copied().unwrap_or(0);
        for table in [cos, sin] {
            let lead = table.rank().saturating_sub(2);
            if table.shape[lead..] != [positions, pairs] || !leading.starts_with(&table.shape[..lead]) {
                return bad(format!(
                    "needs cos and sin of [{positions}, R/2], with the first of the axes {leading:?} in front or none"
                ));
            }
        }
        match pairs.checked_mul(2) {
            Some(rotated) if rotated <= x.shape[axis] => Ok(Layout { x, cos, options, rotated }),
            _ => bad(format!("rotates 2·{} of {} features", pairs, x.shape[axis])),
        }
    }

    fn params(&self) -> Vec<(String, Attr)> {
        let word = match self.options.layout {
            RopeLayout::Halves => "halves",
            RopeLayout::Interleaved => "interleaved",
        };
        vec![("pairs".into(), Attr::Word(word.into())), ("heads_inside".into(), Attr::Bool(self.options.has_head_axis))]
    }

    /// Casts to the dtype of the arithmetic.
    fn wide(&self, b: &mut Builder, v: Value) -> Result<Value> {
        let (a, c) = (self.x.dtype.accumulator(), self.cos.dtype.accumulator());
        b.cast(v, if a.size() >= c.size() { a } else { c })
    }

    /// The axes of `x` that correspond to those of a table.
    fn table_axes(&self, table: &Type) -> Vec<usize> {
        let rank = self.x.rank();
        let position = rank - if self.options.has_head_axis { 3 } else { 2 };
        (0..table.rank() - 2).chain([position, rank - 1]).collect()
    }

    /// The axes of `x` that a table lacks.
    fn missing(&self, table: &Type) -> Vec<usize> {
        let has = self.table_axes(table);
        (0..self.x.rank()).filter(|a| !has.contains(a)).collect()
    }

    /// The two elements of every pair.
    fn split(&self, b: &mut Builder, x: Value) -> Result<(Value, Value)> {
        let axis = self.x.rank() - 1;
        let (r, h) = (self.rotated, self.rotated / 2);
        match self.options.layout {
            RopeLayout::Halves => Ok((b.slice_axis(x, axis, 0, h)?, b.slice_axis(x, axis, h, r)?)),
            RopeLayout::Interleaved => {
                let mut limit = self.x.shape.clone();
                limit[axis] = r;
                let mut step: Vec<usize> = vec![1; axis + 1];
                step[axis] = 2;
                let mut start = vec![0; axis + 1];
                let even = b.slice(x, &start, &limit, &step)?;
                start[axis] = usize::from(r > 0);
                Ok((even, b.slice(x, &start, &limit, &step)?))
            }
        }
    }

    /// The inverse of `split`.
    fn join(&self, b: &mut Builder, first: Value, second: Value) -> Result<Value> {
        let axis = self.x.rank() - 1;
        match self.options.layout {
            RopeLayout::Halves => b.concat(&[first, second], axis),
            RopeLayout::Interleaved => {
                let mut shape = b.ty(first).shape;
                shape.push(1);
                let (f, s) = (b.reshape(first, &shape)?, b.reshape(second, &shape)?);
                let both = b.concat(&[f, s], axis + 1)?;
                shape.pop();
                shape[axis] = self.rotated;
                b.reshape(both, &shape)
            }
        }
    }

    fn rotate(&self, b: &mut Builder, x: Value, cos: Value, sin: Value) -> Result<Value> {
        let xa = self.wide(b, x)?;
        let (x1, x2) = self.split(b, xa)?;
        let shape = b.ty(x1).shape;
        let mut spread = |v: Value| -> Result<Value> {
            let axes = self.table_axes(&b.ty(v));
            let wide = self.wide(b, v)?;
            b.broadcast(wide, &shape, &axes)
        };
        let (c, s) = (spread(cos)?, spread(sin)?);
        let (ac, bs) = (b.mul(x1, c)?, b.mul(x2, s)?);
        let first = b.sub(ac, bs)?;
        let (bc, as_) = (b.mul(x2, c)?, b.mul(x1, s)?);
        let second = b.add(bc, as_)?;
        let turned = self.join(b, first, second)?;
        let turned = b.cast(turned, self.x.dtype)?;
        let axis = self.x.rank() - 1;
        let features = self.x.shape[axis];
        if self.rotated == features {
            return Ok(turned);
        }
        let rest = b.slice_axis(x, axis, self.rotated, features)?;
        b.concat(&[turned, rest], axis)
    }
}
