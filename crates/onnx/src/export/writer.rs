//! Nodes under construction, and the ONNX ops that most of ours are made of.

use crate::elem::Elem;
use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use crate::tensor;
use ir::{DType, Literal, Scalar, Type};

/// A value by its name in the model.
#[derive(Clone, Debug)]
pub(crate) struct V {
    pub(crate) name: String,
    pub(crate) ty: Type,
}

#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) nodes: Vec<NodeProto>,
    pub(crate) initializers: Vec<TensorProto>,
    next: usize,
}

/// Constants of more elements are kept with the model's weights.
const SMALL: usize = 64;

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

impl Writer {
    /// A name that nothing has yet.
    pub(crate) fn fresh(&mut self) -> String {
        self.next += 1;
        format!("v{}", self.next)
    }

    /// A node with one output.
    pub(crate) fn node(&mut self, op: &str, args: &[&V], ty: &Type) -> V {
        self.with(op, args, Vec::new(), ty)
    }

    /// A node with attributes and one output.
    pub(crate) fn with(&mut self, op: &str, args: &[&V], attributes: Vec<AttributeProto>, ty: &Type) -> V {
        let mut outs = self.many(op, args, attributes, std::slice::from_ref(ty));
        outs.remove(0)
    }

    /// A node with several outputs.
    pub(crate) fn many(&mut self, op: &str, args: &[&V], attribute: Vec<AttributeProto>, types: &[Type]) -> Vec<V> {
        let outs: Vec<V> = types.iter().map(|ty| V { name: self.fresh(), ty: ty.clone() }).collect();
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

    /// A node whose output has a given name.
    pub(crate) fn named(&mut self, op: &str, args: &[&V], name: &str) {
        let node = NodeProto {
            input: args.iter().map(|v| v.name.clone()).collect(),
            output: vec![name.to_string()],
            name: Some(format!("{op}_{name}")),
            op_type: Some(op.into()),
            ..NodeProto::default()
        };
        self.nodes.push(node);
    }

    /// An operand that is left out.
    pub(crate) fn absent(&self) -> V {
        V { name: String::new(), ty: Type::scalar(DType::F32) }
    }

    pub(crate) fn literal(&mut self, x: &Literal) -> V {
        if x.ty().numel() > SMALL {
            let name = format!("constant_{}", self.fresh());
            self.initializers.push(tensor::proto(&name, x));
            return V { name, ty: x.ty().clone() };
        }
        let value = AttributeProto {
            name: Some("value".into()),
            t: Some(tensor::proto("value", x)),
            r#type: Some(4),
            ..AttributeProto::default()
        };
        self.with("Constant", &[], vec![value], x.ty())
    }

    /// A vector of i64.
    pub(crate) fn numbers(&mut self, list: &[i64]) -> V {
        self.literal(&Literal::new(&[list.len()], list))
    }

    pub(crate) fn sizes(&mut self, list: &[usize]) -> V {
        self.numbers(&signed(list))
    }

    /// One number of a dtype, of rank 0, which broadcasts.
    pub(crate) fn scalar(&mut self, s: Scalar) -> V {
        self.literal(&Literal::scalar(s))
    }

    pub(crate) fn number(&mut self, dtype: DType, x: f64) -> V {
        self.scalar(Scalar::from_f64(dtype, x))
    }

    pub(crate) fn cast(&mut self, x: &V, dtype: DType) -> V {
        if x.ty.dtype == dtype {
            return x.clone();
        }
        let mut attributes = vec![int("to", Elem::of(dtype).number().into())];
        if dtype.is_float() && dtype.size() == 1 {
            // Ours gives NaN or infinity beyond the range.
            attributes.push(int("saturate", 0));
        }
        self.with("Cast", &[x], attributes, &x.ty.with_dtype(dtype))
    }

    pub(crate) fn reshape(&mut self, x: &V, shape: &[usize]) -> V {
        if x.ty.shape.as_slice() == shape {
            return x.clone();
        }
        let s = self.sizes(shape);
        let attributes = if shape.contains(&0) { vec![int("allowzero", 1)] } else { Vec::new() };
        self.with("Reshape", &[x, &s], attributes, &x.ty.with_shape(shape))
    }

    pub(crate) fn permute(&mut self, x: &V, perm: &[usize]) -> V {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return x.clone();
        }
        let shape: Vec<usize> = perm.iter().map(|&p| x.ty.shape[p]).collect();
        self.with("Transpose", &[x], vec![ints("perm", &signed(perm))], &x.ty.with_shape(&shape))
    }

    pub(crate) fn expand(&mut self, x: &V, shape: &[usize]) -> V {
        if x.ty.shape.as_slice() == shape {
            return x.clone();
        }
        let s = self.sizes(shape);
        self.node("Expand", &[x, &s], &x.ty.with_shape(shape))
    }

    pub(crate) fn broadcast(&mut self, x: &V, shape: &[usize], dims: &[usize]) -> V {
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

    /// `op(a, b)` of one type, either of which may broadcast.
    pub(crate) fn arith(&mut self, op: &str, a: &V, b: &V) -> V {
        let ty = if a.ty.rank() >= b.ty.rank() { a.ty.clone() } else { b.ty.clone() };
        self.node(op, &[a, b], &ty)
    }

    pub(crate) fn concat(&mut self, xs: &[V], axis: usize) -> V {
        let mut ty = xs[0].ty.clone();
        ty.shape[axis] = xs.iter().map(|x| x.ty.shape[axis]).sum();
        let args: Vec<&V> = xs.iter().collect();
        self.with("Concat", &args, vec![int("axis", axis as i64)], &ty)
    }
}
