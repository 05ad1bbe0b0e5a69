//! Quantizes weights that a module or a recipe stores in low precision, bitwise equal to the rounding in the graph.
//!
//! Training keeps full-precision weights, and the graph rounds them; inference reads the quantized ones, and does not round
//! again. The scale of a block of several rows is repeated for each of them.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::quantized_weight::QuantizedWeight;
use crate::weight::Weight;
use ir::composites::quantized::{QuantFormat, QuantScheme};
use ir::{DType, Scalar};
use std::sync::Arc;
use transform::{LowPrecision, Rounding, Scaling};

impl Model {
    /// Returns the model with its low-precision weights quantized; those whose rows don't divide into groups are not.
    pub fn with_quantized_params(mut self) -> Result<Model> {
        for i in 0..self.params.len() {
            let (Some(how), None) = (self.params[i].rounding, self.stored_packed(i)) else { continue };
            let shape = self.params[i].ty.shape.to_vec();
            let Some(packing) = packing_of(&how, &shape) else { continue };
            let values = self.rounded(i)?;
            let packed = pack(packing, &how, &shape, &values).map_err(Error::Input)?;
            self.weights[i] = Weight::Packed(Arc::new(packed));
        }
        Ok(self)
    }
}

/// Whether a quantized weight equals the result of a rounding, so that a graph need not round it again.
pub(crate) fn matches_rounding(how: &Rounding, packed: &QuantizedWeight) -> bool {
    packing_of(how, &packed.shape) == Some(packed.packing)
}

/// The storage format of a rounding's result, if rows divide into its groups.
fn packing_of(how: &Rounding, shape: &[usize]) -> Option<QuantScheme> {
    let k = shape.last().copied().filter(|k| *k > 0 && shape.len() == 2)?;
    let group = match how.scaling {
        Scaling::PerTensor | Scaling::PerRow => k,
        Scaling::PerBlock(_, columns) => columns,
    };
    let format = match (how.format, group) {
        (LowPrecision::E4M3, _) => QuantFormat::Fp8E4M3,
        (LowPrecision::E5M2, _) => QuantFormat::Fp8E5M2,
        (LowPrecision::Int8, _) => QuantFormat::Int8,
        (LowPrecision::Int4, _) => QuantFormat::Int4,
        (LowPrecision::E2M1, 16) => QuantFormat::Nvfp4,
        (LowPrecision::E2M1, 32) => QuantFormat::Mxfp4,
        (LowPrecision::E2M1, _) => return None,
    };
    let packing = QuantScheme::new(format, Some(group)).ok()?;
    packing.part_types(shape, DType::F32).ok().map(|_| packing)
}

/// Codes and scales of a matrix.
fn pack(
    packing: QuantScheme,
    how: &Rounding,
    shape: &[usize],
    values: &[f32],
) -> std::result::Result<QuantizedWeight, String> {
    let (n, k) = (shape[0], shape[1]);
    let types = packing.part_types(shape, DType::F32)?;
    let rows = match how.scaling {
        Scaling::PerTensor => n,
        Scaling::PerRow => 1,
        Scaling::PerBlock(rows, _) => rows,
    };
    let (groups, top) = (k / packing.group, how.format.max_finite());
    // The maximum magnitude of each block.
    let mut most = vec![0f32; n.div_ceil(rows) * groups];
    for (i, x) in values.iter().enumerate() {
        let block = i / k / rows * groups + i % k / packing.group;
        most[block] = most[block].max(x.abs());
    }
    let all = most.iter().fold(0f32, |m, x| m.max(*x)) * ((1.0 + how.margin) / (448.0 * 6.0)) as f32;
    let all = if all == 0.0 { 1.0 } else { all };
    let tensor = most.iter().fold(0f32, |m, x| m.max(*x));
    let mut parts: Vec<Vec<u8>> = types.iter().map(|_| Vec::new()).collect();
    let mut codes: Vec<u8> = Vec::with_capacity(values.len());
    for row in 0..n {
        for group in 0..groups {
            let own = match how.scaling {
                Scaling::PerTensor => tensor,
                _ => most[row / rows * groups + group],
            };
            let scale = match packing.format {
                QuantFormat::Nvfp4 => {
                    let code = Scalar::from_f64(DType::F8E4M3, f64::from((own / 6.0 / all).clamp(-448.0, 448.0)));
                    parts[1].push(code.bits() as u8);
                    code.to_f64() as f32 * all
                }
                QuantFormat::Mxfp4 => {
                    let e = ((own.to_bits() >> 23) & 255).max(3) - 2;
                    parts[1].push(e as u8);
                    f32::from_bits(e << 23)
                }
                _ => {
                    let scale = own * ((1.0 + how.margin) / top) as f32;
                    parts[1].extend(scale.to_le_bytes());
                    scale
                }
            };
            let scale = if scale == 0.0 { 1.0 } else { scale };
            let from = row * k + group * packing.group;
            codes.extend(values[from..from + packing.group].iter().map(|x| code(how.format, x / scale)));
        }
    }
    if packing.format == QuantFormat::Nvfp4 {
        parts[2] = all.to_le_bytes().to_vec();
    }
    parts[0] = match how.format {
        LowPrecision::E2M1 | LowPrecision::Int4 => codes.chunks_exact(2).map(|c| c[0] | c[1] << 4).collect(),
        _ => codes,
    };
    QuantizedWeight::new(packing, types, parts)
}

/// The code of the nearest number, with ties to even.
fn code(format: LowPrecision, y: f32) -> u8 {
    let most = format.max_finite() as f32;
    let y = if y.is_nan() { 0.0 } else { y.clamp(-most, most) };
    match format {
        LowPrecision::E4M3 => Scalar::from_f64(DType::F8E4M3, f64::from(y)).bits() as u8,
        LowPrecision::E5M2 => Scalar::from_f64(DType::F8E5M2, f64::from(y)).bits() as u8,
        LowPrecision::Int8 => y.round_ties_even() as i8 as u8,
        LowPrecision::Int4 => y.round_ties_even() as i8 as u8 & 15,
        LowPrecision::E2M1 => {
            let size = y.abs();
            let step = if size < 2.0 {
                0.5
            } else if size < 4.0 {
                1.0
            } else {
                2.0
            };
            let near = (size / step).round_ties_even() * step;
            let codes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
            let code = codes.iter().position(|c| *c == near.min(6.0)).unwrap_or(7) as u8;
            code | if y.is_sign_negative() { 8 } else { 0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{Builder, Literal, Type, interp};

    /// Dequantized weights equal the numbers that the graph rounds to, bit for bit.
    #[test]
    fn packed_weights_are_what_graphs_round_to() {
        let (n, k) = (48, 64);
        let ty = Type::new(DType::F32, &[n, k]);
        let x = Literal::from_fn(ty.clone(), |i| {
            let size = if i < 200 { 0.0 } else { 10f64.powi((i / 64 % 5) as i32 - 2) };
            Scalar::from_f64(DType::F32, ((i as f64 * 0.618_034).fract() - 0.5) * size)
        });
        let values = x.to_vec::<f32>();
        for format in LowPrecision::ALL {
            let blocks: &[Scaling] = match format {
                LowPrecision::E2M1 => &[
                    Scaling::PerBlock(1, 16),
                    Scaling::PerBlock(16, 16),
                    Scaling::PerBlock(32, 32),
                    Scaling::PerBlock(1, 32),
                ],
                _ => &[
                    Scaling::PerTensor,
                    Scaling::PerRow,
                    Scaling::PerBlock(1, 32),
                    Scaling::PerBlock(32, 32),
                    Scaling::PerBlock(7, 8),
                ],
            };
            for scaling in blocks {
                for margin in [0.0, 0.125] {
                    let how = Rounding { margin, ..Rounding::new(format).with_scaling(*scaling) };
                    let mut b = Builder::new();
                    let v = b.graph.input(ty.clone());
                    let y = transform::round_operand(&mut b, v, 1, &how).expect("fits");
                    let want = interp::run(&b.finish(&[y]), std::slice::from_ref(&x)).expect("runs")[0].to_vec::<f32>();
                    let packing = packing_of(&how, &[n, k]).expect("divides");
                    let packed = pack(packing, &how, &[n, k], &values).expect("fits");
                    assert!(matches_rounding(&how, &packed));
                    for (i, (a, b)) in packed.values().iter().zip(&want).enumerate() {
                        assert_eq!(a, b, "{format:?} {scaling:?} {margin} at {i}");
                    }
                }
            }
        }
    }
}
