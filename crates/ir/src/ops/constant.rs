//! Ops without operands: constants and iota.

use super::*;
use crate::dtype::DType;
use crate::literal::Literal;
use crate::scalar::Scalar;

/// The rules that all ops without operands share: there is nothing to differentiate, transpose or batch.
macro_rules! leaf_rules {
    () => {
        no_tangent!();
        split_whole!();

        fn transpose(&self, _: &mut dyn GraphTransforms, _: &[TransposeArg], _: &[Option<Value>]) -> Result<Tangents> {
            Ok(Vec::new())
        }

        fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
            Ok(vec![(cx.one(self.clone().into(), x)?, false)])
        }

        fn saved_for_backward(&self) -> SavedForBackward {
            SavedForBackward::none()
        }

        fn autocast_rule(&self) -> AutocastRule {
            AutocastRule::Fp32
        }
    };
}

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Const(pub Literal);

impl Rules for Const {
    fn name(&self) -> &'static str {
        "const"
    }

    fn attrs(&self) -> Attrs {
        vec![("value", crate::attr::Attr::Literal(self.0.clone()))]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 0)?;
        Ok(vec![self.0.ty().clone()])
    }

    leaf_rules!();

    fn semantics(&self) -> Semantics {
        Semantics::Constant
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Const>> {
        (name == "const").then(|| Ok(Const(attrs.literal("value")?)))
    }
}

/// The index along one axis, of any number dtype.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Iota {
    /// The element type.
    pub dtype: DType,
    /// The result shape.
    pub shape: Shape,
    /// The axis along which the index increases.
    pub axis: usize,
}

impl Rules for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }

    fn attrs(&self) -> Attrs {
        vec![("dtype", self.dtype.into()), ("shape", self.shape.as_slice().into()), ("axis", self.axis.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 0)?;
        check_axis(self.axis, self.shape.len())?;
        if self.dtype == DType::Bool {
            return Err(InferError::other("iota needs a number dtype, got bool"));
        }
        Ok(vec![Type::checked(self.dtype, &self.shape)?])
    }

    leaf_rules!();

    fn semantics(&self) -> Semantics {
        Semantics::Index(Indexing::Iota(self.axis))
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let ty = eval_types(self, args)?.remove(0);
        let inner: usize = ty.shape[self.axis + 1..].iter().product();
        let size = ty.shape[self.axis];
        let index = |i: usize| Scalar::from_i64(ty.dtype, (i / inner.max(1) % size.max(1)) as i64);
        Ok(vec![Literal::from_fn(ty.clone(), index)])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Iota>> {
        (name == "iota").then(|| {
            Ok(Iota { dtype: attrs.dtype("dtype")?, shape: attrs.usizes("shape")?, axis: attrs.usize("axis")? })
        })
    }
}
