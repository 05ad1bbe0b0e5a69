//! Composites with a corresponding ONNX op; the others are inlined.

use super::writer::{ExportedValue, ModelWriter, float, int, string};
use crate::error::Result;
use ir::attr::Attr;
use ir::ops::Composite;
use ir::{DType, Type};

impl ModelWriter {
    pub(super) fn composite(
        &mut self,
        c: &Composite,
        args: &[ExportedValue],
        types: &[Type],
    ) -> Result<Vec<ExportedValue>> {
        let number = |name: &str| match c.param(name) {
            Some(Attr::Scalar(s)) => Some(s.to_f64()),
            _ => None,
        };
        let word = |name: &str| match c.param(name) {
            Some(Attr::Word(w) | Attr::Str(w)) => Some(w.as_str()),
            _ => None,
        };
        let x = args.first();
        let float_x = x.filter(|x| matches!(x.ty.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64));
        let last = vec![int("axis", -1)];
        // Residual results exist for derivatives; without them, ONNX's op is sufficient.
        let one = types.len() == 1;
        Ok(match (c.name.as_str(), float_x) {
            ("relu", Some(x)) if one => vec![self.node("Relu", &[x], &types[0])],
            ("gelu", Some(x)) if one => {
                let form = if word("form").is_some_and(|f| f == "tanh") || word("approximate") == Some("tanh") {
                    "tanh"
                } else {
                    "none"
                };
                vec![self.node_with_attributes("Gelu", &[x], vec![string("approximate", form)], &types[0])]
            }
            ("softmax", Some(x)) if one => vec![self.node_with_attributes("Softmax", &[x], last, &types[0])],
            ("log_softmax", Some(x)) if one => vec![self.node_with_attributes("LogSoftmax", &[x], last, &types[0])],
            ("layernorm", Some(x)) if args.len() > 1 && types.len() == 3 && number("eps").is_some() => {
                let eps = number("eps").unwrap_or(1e-5);
                let operands: Vec<&ExportedValue> = std::iter::once(x).chain(&args[1..]).collect();
                let acc = types[1].dtype;
                if acc != DType::F32 {
                    return self.graph(&c.body, args);
                }
                let kept: Vec<usize> = types[1].shape.iter().copied().chain([1]).collect();
                let stats = types[1].with_shape(&kept);
                let attributes = vec![int("axis", -1), float("epsilon", eps)];
                let outs = self.node_with_outputs(
                    "LayerNormalization",
                    &operands,
                    attributes,
                    &[types[0].clone(), stats.clone(), stats],
                );
                let (m, r) = (self.reshape(&outs[1], &types[1].shape), self.reshape(&outs[2], &types[2].shape));
                vec![outs[0].clone(), m, r]
            }
            _ => self.graph(&c.body, args)?,
        })
    }
}
