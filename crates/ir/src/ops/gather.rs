//! `gather(operand, indices)`: reads a slice of the operand for every index vector. Its transpose is a scatter-add.
//!
//! An index is out of bounds if its slice is not completely inside the operand; negative indices are out of bounds too (front ends
//! with Python-style indices add the size first).

use super::*;
use crate::dtype::{DType, DTypeKind};
use crate::scalar::Scalar;

/// The result of a slice that is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GatherMode {
    /// The nearest slice that is inside (clamped indices).
    Clip,
    /// This fill value.
    Fill(Scalar),
}

impl GatherMode {
    /// JAX's fill value: NaN for floats, the smallest signed integer, the largest unsigned one, true.
    pub fn fill(dtype: DType) -> GatherMode {
        GatherMode::Fill(match dtype.kind() {
            DTypeKind::Float => Scalar::from_f64(dtype, f64::NAN),
            DTypeKind::Signed => Scalar::lowest(dtype),
            DTypeKind::Unsigned | DTypeKind::Bool => Scalar::highest(dtype),
        })
    }

    /// Fills with zero where the index is out of bounds.
    pub fn zero(dtype: DType) -> GatherMode {
        GatherMode::Fill(Scalar::zero(dtype))
    }
}

/// `gather(x, indices)`: slices at dynamic indices, with XLA's dimension numbers; out-of-bounds slices are clamped or filled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// The dimension numbers that relate operand, indices and result.
    pub dims: SliceDims,
    /// The size of a slice along each operand axis.
    pub slice_sizes: Shape,
    /// The result of a slice that is out of bounds.
    pub mode: GatherMode,
}

impl Gather {
    /// NumPy's `take` along an axis; the last axis of the indices contains vectors of one component.
    pub fn take(operand: &Type, axis: usize, index_rank: usize, mode: GatherMode) -> Gather {
        let mut slice_sizes = operand.shape.clone();
        if let Some(size) = slice_sizes.get_mut(axis) {
            *size = 1;
        }
        Gather { dims: SliceDims::take(operand.rank(), axis, index_rank), slice_sizes, mode }
    }

    /// NumPy's `take_along_axis`; the last axis of the indices contains vectors of one component.
    pub fn along_axis(rank: usize, axis: usize, mode: GatherMode) -> Gather {
        Gather { dims: SliceDims::along_axis(rank, axis), slice_sizes: SmallVec::from_elem(1, rank), mode }
    }

    /// The linear map of tangents: fill values have zero tangents.
    fn tangent_gather(&self) -> Gather {
        Gather {
            mode: match self.mode {
                GatherMode::Clip => GatherMode::Clip,
                GatherMode::Fill(s) => GatherMode::zero(s.dtype()),
            },
            ..self.clone()
        }
    }
}

impl Rules for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn attrs(&self) -> Attrs {
        let mut attrs = self.dims.attrs();
        attrs.push(("slice_sizes", self.slice_sizes.as_slice().into()));
        match self.mode {
            GatherMode::Clip => attrs.push(("mode", "clip".into())),
            GatherMode::Fill(s) => attrs.extend([("mode", "fill".into()), ("fill", s.into())]),
        }
        attrs
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        let x = &args[0];
        let inside = match self.mode {
            GatherMode::Fill(s) if s.dtype() != x.dtype => return Err(InferError::DTypes(x.dtype, s.dtype())),
            GatherMode::Fill(_) => false,
            GatherMode::Clip => true,
        };
        let shape = self.dims.check(x, &args[1], &self.slice_sizes, inside)?;
        Ok(vec![Type::checked(x.dtype, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else { return Ok(vec![None]) };
        Ok(vec![Some(cx.one(self.tangent_gather().into(), &[d, x[1]])?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        let (TransposeArg::Linear(ty), TransposeArg::Known(indices)) = (&args[0], &args[1]) else {
            return not_linear(self);
        };
        let zeros = cx.zeros(ty)?;
        let scatter = Scatter {
            kind: ScatterKind::Add,
            dims: self.dims.clone(),
            mode: match self.mode {
                GatherMode::Clip => ScatterMode::Clip,
                GatherMode::Fill(_) => ScatterMode::Drop,
            },
        };
        Ok(vec![Some(cx.one(scatter.into(), &[zeros, *indices, c])?), None])
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let mut wide = self.clone();
        match (batched[0], batched[1]) {
            (true, true) => {
                wide.dims = self.dims.batch_all();
                wide.slice_sizes.insert(0, 1);
            }
            (true, false) => {
                wide.dims = self.dims.batch_operand();
                wide.slice_sizes.insert(0, size);
            }
            _ => wide.dims = self.dims.batch_indices(),
        }
        Ok(vec![(cx.one(wide.into(), x)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[1])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::Index(Indexing::Gather(self.clone()))
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let (x, indices) = (&args[0], &args[1]);
        let ty = eval_types(self, args)?.remove(0);
        let (clip, fill) = match self.mode {
            GatherMode::Clip => (true, Scalar::zero(ty.dtype)),
            GatherMode::Fill(s) => (false, s),
        };
        let mut items = Vec::with_capacity(ty.numel());
        self.dims.walk(x.ty(), indices, &self.slice_sizes, &ty.shape, clip, |from| {
            items.push(from.map_or(fill, |i| x.get(i)));
        });
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Gather>> {
        (name == "gather").then(|| {
            Ok(Gather {
                dims: SliceDims::parse(attrs)?,
                slice_sizes: attrs.usizes("slice_sizes")?,
                mode: match attrs.word("mode", |w| Some(w == "fill").filter(|f| *f || w == "clip"))? {
                    true => GatherMode::Fill(attrs.scalar("fill")?),
                    false => GatherMode::Clip,
                },
            })
        })
    }
}
