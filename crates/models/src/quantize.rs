//! Quantising a model: which parameters, and into what.

use crate::calibrate::{self, Calibration};
use crate::error::{Error, Result};
use crate::inject::{chooses, is_expert_product, is_product};
use crate::model::Model;
use crate::packed::PackedWeight;
use crate::weight::Weight;
use ir::composites::quantized::{Format, Packing};
use ir::{DType, Op};
use std::str::FromStr;
use std::sync::Arc;

/// How a model's matrices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// The format.
    pub format: Format,
    /// Elements that share a scale; `None` for a scale for each row.
    pub group: Option<usize>,
    /// The dtype of scales, where it is free.
    pub scale: DType,
}

impl FromStr for Scheme {
    type Err = String;

    /// `q8`, `q4`, `nf4`, `fp8`, or the name of a format that graphs can write.
    fn from_str(text: &str) -> std::result::Result<Scheme, String> {
        let scheme = |format, group, scale| Scheme { format, group, scale };
        Ok(match text {
            "q8" => scheme(Format::Q8_0, Some(32), DType::F16),
            "q4" => scheme(Format::Q4_0, Some(32), DType::F16),
            "nf4" => scheme(Format::Nf4, Some(64), DType::F32),
            "fp8" => scheme(Format::Fp8E4M3, None, DType::F32),
            other => match other.parse::<Format>() {
                Ok(format) if format.has_quantizer() && format != Format::Nvfp4 => {
                    scheme(format, format.fixed_group().or(Some(64)), DType::F16)
                }
                Ok(format) => {
                    return Err(format!("cannot be written ({format} can only be read): use q8, q4, nf4 or fp8"));
                }
                Err(()) => return Err("is not a format: use q8, q4, nf4, fp8, or a format of docs/ir.md".into()),
            },
        })
    }
}

impl Model {
    /// Packs every matrix that products alone read, and those of experts. A table that ids are looked up in as well is stored in 8 bits: it is read
    /// row by row, and its errors go through the whole model. A matrix that chooses experts stays as it is: a small error would send
    /// a token elsewhere. Says which matrices stay as they are, since their rows don't
    /// divide into groups.
    pub fn quantize(&mut self, scheme: &Scheme) -> Result<Vec<String>> {
        self.quantize_by(scheme, None)
    }

    /// The same with scales that fit what a text showed of the matrices' inputs.
    pub fn quantize_by(&mut self, scheme: &Scheme, calibration: Option<&Calibration>) -> Result<Vec<String>> {
        let graph = self.architecture.lower(1, 1, self.dtype, None)?.graph;
        let mut left = Vec::new();
        for i in 0..self.params.len() {
            let param = &self.params[i];
            let value = graph.inputs()[i];
            let experts = param.ty.rank() == 3 && is_expert_product(&graph, value);
            let fits = experts || (param.ty.rank() == 2 && !chooses(&graph, value));
            if !fits || !param.ty.dtype.is_float() || param.adapter || self.stored_packed(i).is_some() {
                continue;
            }
            let reads = graph.nodes().iter().filter(|node| node.args.contains(&value));
            let looked_up = reads.clone().any(|n| matches!(&n.op, Op::Composite(c) if c.name == "embedding"));
            let multiplied = reads.clone().any(|n| !matches!(&n.op, Op::Composite(c) if c.name == "embedding"));
            let scheme = match (experts || is_product(&graph, value), looked_up && multiplied) {
                (true, _) => *scheme,
                (false, true) => Scheme { format: Format::Q8_0, group: Some(32), scale: DType::F16 },
                (false, false) => continue,
            };
            let k = param.ty.shape[param.ty.rank() - 1];
            let packing = Packing::new(scheme.format, Some(scheme.group.unwrap_or(k)))
                .map_err(|e| Error::Input(format!("`{}`: {e}", param.path)))?;
            if !k.is_multiple_of(packing.group) {
                left.push(param.path.clone());
                continue;
            }
            let values = self.values(i)?;
            if let Some(x) = values.iter().find(|x| !x.is_finite()) {
                return Err(Error::Input(format!("`{}` has the value {x}, which cannot be quantized", param.path)));
            }
            let packed = match calibration.and_then(|c| c.of(i)).filter(|squares| squares.len() == k) {
                Some(squares) => calibrate::pack(packing, &param.ty.shape, &values, scheme.scale, squares),
                None => PackedWeight::pack(packing, &param.ty.shape, &values, scheme.scale),
            };
            let packed = packed.map_err(|e| Error::Input(format!("`{}`: {e}", param.path)))?;
            self.weights[i] = Weight::Packed(Arc::new(packed.with_separate_scales()));
        }
        Ok(left)
    }
}
