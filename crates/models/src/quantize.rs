//! Post-training quantization: selects parameters and their formats.

use crate::calibrate::{self, Calibration};
use crate::error::{Error, Result};
use crate::insert_adapter::{is_expert_product, is_product, is_router};
use crate::model::Model;
use crate::quantized_weight::QuantizedWeight;
use crate::weight::Weight;
use ir::composites::quantized::{QuantFormat, QuantScheme};
use ir::{DType, Op};
use std::str::FromStr;
use std::sync::Arc;

/// A quantization format of a model's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizationConfig {
    /// The format.
    pub format: QuantFormat,
    /// Elements that share a scale; `None` for one scale per row.
    pub group_size: Option<usize>,
    /// The dtype of scales, if the format allows a choice.
    pub scale_dtype: DType,
}

impl FromStr for QuantizationConfig {
    type Err = String;

    /// Parses `q8`, `q4`, `nf4`, `fp8`, or the name of another format.
    fn from_str(text: &str) -> std::result::Result<QuantizationConfig, String> {
        let scheme = |format, group, scale| QuantizationConfig { format, group_size: group, scale_dtype: scale };
        Ok(match text {
            "q8" => scheme(QuantFormat::Q8_0, Some(32), DType::F16),
            "q4" => scheme(QuantFormat::Q4_0, Some(32), DType::F16),
            "nf4" => scheme(QuantFormat::Nf4, Some(64), DType::F32),
            "fp8" => scheme(QuantFormat::Fp8E4M3, None, DType::F32),
            other => match other.parse::<QuantFormat>() {
                Ok(format) if format.has_quantizer() && format != QuantFormat::Nvfp4 => {
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
    /// Quantizes every matrix that only products read, and those of experts. A table that is also used for embedding lookups is
    /// stored in 8 bits: it is read row by row, and its errors propagate through the whole model. An expert router is not
    /// quantized: a small error would route a token to another expert. Returns the matrices that are not quantized because their
    /// rows don't divide into groups.
    pub fn quantize(&mut self, scheme: &QuantizationConfig) -> Result<Vec<String>> {
        self.quantize_with_calibration(scheme, None)
    }

    /// [`quantize`](Self::quantize) with scales that minimize the error on calibration data.
    pub fn quantize_with_calibration(
        &mut self,
        scheme: &QuantizationConfig,
        calibration: Option<&Calibration>,
    ) -> Result<Vec<String>> {
        let graph = self.architecture.lower(1, 1, self.dtype, None)?.graph;
        let mut left = Vec::new();
        for i in 0..self.params.len() {
            let param = &self.params[i];
            let value = graph.inputs()[i];
            let experts = param.ty.rank() == 3 && is_expert_product(&graph, value);
            let fits = experts || (param.ty.rank() == 2 && !is_router(&graph, value));
            if !fits || !param.ty.dtype.is_float() || param.adapter || self.stored_packed(i).is_some() {
                continue;
            }
            let reads = graph.nodes().iter().filter(|node| node.args.contains(&value));
            let looked_up = reads.clone().any(|n| matches!(&n.op, Op::Composite(c) if c.name == "embedding"));
            let multiplied = reads.clone().any(|n| !matches!(&n.op, Op::Composite(c) if c.name == "embedding"));
            let scheme = match (experts || is_product(&graph, value), looked_up && multiplied) {
                (true, _) => *scheme,
                (false, true) => {
                    QuantizationConfig { format: QuantFormat::Q8_0, group_size: Some(32), scale_dtype: DType::F16 }
                }
                (false, false) => continue,
            };
            let k = param.ty.shape[param.ty.rank() - 1];
            let packing = QuantScheme::new(scheme.format, Some(scheme.group_size.unwrap_or(k)))
                .map_err(|e| Error::Input(format!("`{}`: {e}", param.path)))?;
            if !k.is_multiple_of(packing.group) {
                left.push(param.path.clone());
                continue;
            }
            let values = self.values(i)?;
            if let Some(x) = values.iter().find(|x| !x.is_finite()) {
                return Err(Error::Input(format!("`{}` has the value {x}, which cannot be quantized", param.path)));
            }
            let packed = match calibration.and_then(|c| c.for_param(i)).filter(|squares| squares.len() == k) {
                Some(squares) => {
                    calibrate::quantize_calibrated(packing, &param.ty.shape, &values, scheme.scale_dtype, squares)
                }
                None => QuantizedWeight::pack(packing, &param.ty.shape, &values, scheme.scale_dtype),
            };
            let packed = packed.map_err(|e| Error::Input(format!("`{}`: {e}", param.path)))?;
            self.weights[i] = Weight::Packed(Arc::new(packed.with_separate_scales()));
        }
        Ok(left)
    }
}
