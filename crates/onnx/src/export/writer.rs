//! Builds nodes, with helpers for common ONNX ops.

use crate::elem::Elem;
use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use crate::tensor;
use ir::{DType, Literal, Scalar, Type};

/// A value by its name in the model, with its type.
#[derive(Clone, Debug)]
pub(crate) struct ExportedValue {
    pub(crate) name: String,
    pub(crate) ty: Type,
}

#[derive(Default)]
pub(crate) struct ModelWriter {
    pub(crate) nodes: Vec<NodeProto>,
    pub(crate) initializers: Vec<TensorProto>,
    next: usize,
}

/// Constants of more elements are stored with the model's weights.
const MAX_INLINE_ELEMENTS: usize = 64;

pub(crate) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: Some(name.into()), i: Some(i), r#type: Some(2), ..AttributeProto::default() }
}

pub(crate) fn ints(name: &str, list: &[i64]) -> AttributeProto {
    AttributeProto { name: Some(name.into()), ints: list.to_vec(), r#type: Some(7), ..AttributeProto::default() }
}

pub(crate) fn float(name: &str, f: f64) -> AttributeProto {
    AttributeProto { name: Some(name.into()), f: Some(f as f32), r#type: Some(1), ..AttributeProto::default() }
}

pub(crate) fn string(name: &str, s: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        s: Some(bytes::Bytes::copy_from_slice(s.as_bytes())),
        r#type: Some(3),
        ..AttributeProto::default()
    }
}

pub(crate) fn subgraph(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto { name: Some(name.into()), g: Some(g), r#type: Some(5), ..AttributeProto::default() }
}

pub(crate) fn signed(list: &[usize]) -> Vec<i64> {
    list.iter().map(|&x| x as i64).collect()
}

impl ModelWriter {
    /// A fresh name.
    pub(crate) fn fresh_name(&mut self) -> String {
        self.next += 1;
        format!("v{}", self.next)
    }

    /// Adds a node with one output.
    pub(crate) fn node(&mut self, op: &str, args: &[&ExportedValue], ty: &Type) -> ExportedValue {
        self.node_with_attributes(op, args, Vec::new(), ty)
    }

    /// Adds a node with attributes and one output.
    pub(crate) fn node_with_attributes(
        &mut self,
        op: &str,
        args: &[&ExportedValue],
        attributes: Vec<AttributeProto>,
        ty: &Type,
    ) -> ExportedValue {
        let mut outs = self.node_with_outputs(op, args, attributes, std::slice::from_ref(ty));
        outs.remove(0)
    }

    /// Adds a node with several outputs.
    pub(crate) fn node_with_outputs(
        &mut self,
        op: &str,
        args: &[&ExportedValue],
        attribute: Vec<AttributeProto>,
        types: &[Type],
    ) -> Vec<ExportedValue> {
        let outs: Vec<ExportedValue> =
            types.iter().map(|ty| ExportedValue { name: self.fresh_name(), ty: ty.clone() }).collect();
        self.nodes.push(NodeProto {
            input: args.iter().map(|v| v.name.clone()).collect(),
            output: outs.iter().map(|v| v.name.clone()).collect(),
            name: Some(format!("{op}_{}", self.next)),
            op_type: Some(op.into()),
            attribute,
            ..NodeProto::default()
        });
        outs
    }

    /// Adds a node whose output has a given name.
    pub(crate) fn node_named(&mut self, op: &str, args: &[&ExportedValue], name: &str) {
        let node = NodeProto {
            input: args.iter().map(|v| v.name.clone()).collect(),
            output: vec![name.to_string()],
            name: Some(format!("{op}_{name}")),
            op_type: Some(op.into()),
            ..NodeProto::default()
        };
        self.nodes.push(node);
    }

    /// An omitted operand.
    pub(crate) fn omitted_operand(&self) -> ExportedValue {
        ExportedValue { name: String::new(), ty: Type::scalar(DType::F32) }
    }

    pub(crate) fn literal(&mut self, x: &Literal) -> ExportedValue {
        if x.ty().numel() > MAX_INLINE_ELEMENTS {
            let name = format!("constant_{}", self.fresh_name());
            self.initializers.push(tensor::proto(&name, x));
            return ExportedValue { name, ty: x.ty().clone() };
        }
        let value = AttributeProto {
            name: Some("value".into()),
            t: Some(tensor::proto("value", x)),
            r#type: Some(4),
            ..AttributeProto::default()
        };
        self.node_with_attributes("Constant", &[], vec![value], x.ty())
    }

    /// A constant vector of i64.
    pub(crate) fn numbers(&mut self, list: &[i64]) -> ExportedValue {
        self.literal(&Literal::new(&[list.len()], list))
    }

    pub(crate) fn sizes(&mut self, list: &[usize]) -> ExportedValue {
        self.numbers(&signed(list))
    }

    /// A constant of rank 0, which broadcasts.
    pub(crate) fn scalar(&mut self, s: Scalar) -> ExportedValue {
        self.literal(&Literal::scalar(s))
    }

    pub(crate) fn number(&mut self, dtype: DType, x: f64) -> ExportedValue {
        self.scalar(Scalar::from_f64(dtype, x))
    }

    pub(crate) fn cast(&mut self, x: &ExportedValue, dtype: DType) -> ExportedValue {
        if x.ty.dtype == dtype {
            return x.clone();
        }
        let mut attributes = vec![int("to", Elem::from_dtype(dtype).number().into())];
        if dtype.is_float() && dtype.size() == 1 {
            // Ours gives NaN or infinity out of range.
            attributes.push(int("saturate", 0));
        }
        self.node_with_attributes("Cast", &[x], attributes, &x.ty.with_dtype(dtype))
    }

    pub(crate) fn reshape(&mut self, x: &ExportedValue, shape: &[usize]) -> ExportedValue {
        if x.ty.shape.as_slice() == shape {
            return x.clone();
        }
        let s = self.sizes(shape);
        let attributes = if shape.contains(&0) { vec![int("allowzero", 1)] } else { Vec::new() };
        self.node_with_attributes("Reshape", &[x, &s], attributes, &x.ty.with_shape(shape))
    }

    pub(crate) fn permute(&mut self, x: &ExportedValue, perm: &[usize]) -> ExportedValue {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return x.clone();
        }
        let shape: Vec<usize> = perm.iter().map(|&p| x.ty.shape[p]).collect();
        self.node_with_attributes("Transpose", &[x], vec![ints("perm", &signed(perm))], &x.ty.with_shape(&shape))
    }

    pub(crate) fn expand(&mut self, x: &ExportedValue, shape: &[usize]) -> ExportedValue {
        if x.ty.shape.as_slice() == shape {
            return x.clone();
        }
        let s = self.sizes(shape);
        self.node("Expand", &[x, &s], &x.ty.with_shape(shape))
    }

    pub(crate) fn broadcast(&mut self, x: &ExportedValue, shape: &[usize], dims: &[usize]) -> ExportedValue {
        let mut placed = vec![1; shape.len()];
        for (&d, &s) in dims.iter().zip(&x.ty.shape) {
            placed[d] = s;
        }
        let order = dims.windows(2).all(|w| w[0] < w[1]);
        let x = if order {
            x.clone()
        } else {
            // Reshape keeps the order of axes, so they are sorted first.
            let mut perm: Vec<usize> = (0..dims.len()).collect();
            perm.sort_by_key(|&i| dims[i]);
            self.permute(x, &perm)
        };
        let x = self.reshape(&x, &placed);
        self.expand(&x, shape)
    }

    /// `op(a, b)` with operands of the same dtype, either of which may be broadcast.
    pub(crate) fn arith(&mut self, op: &str, a: &ExportedValue, b: &ExportedValue) -> ExportedValue {
        let ty = if a.ty.rank() >= b.ty.rank() { a.ty.clone() } else { b.ty.clone() };
        self.node(op, &[a, b], &ty)
    }

    pub(crate) fn concat(&mut self, xs: &[ExportedValue], axis: usize) -> ExportedValue {
        let mut ty = xs[0].ty.clone();
        ty.shape[axis] = xs.iter().map(|x| x.ty.shape[axis]).sum();
        let args: Vec<&ExportedValue> = xs.iter().collect();
        self.node_with_attributes("Concat", &args, vec![int("axis", axis as i64)], &ty)
    }
}
