//! Quantized storage: `dequantize` decodes quantized weights, `quantize_blocks` encodes them, `fake_quantize` does both and has a
//! derivative. The formats are defined in [`mod@format`].
//!
//! All three are composites: their bodies define every bit with plain ops, so they are batched, fused and run on any backend;
//! a backend that supports quantized matrix products never writes the dequantized weights to memory. Numbers are decoded in f32 and
//! rounded once to the result's dtype. Scales are operands, so they may be computed, trained or constant.

pub mod format;
mod pack;
pub mod rows;
mod unpack;

use super::{BatchRole, CompositeBuilder, ParamList, Params, arity_mismatch, composite, operand_mismatch};
use crate::attr::Attr;
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Value;
use crate::ops::{Composite, Derivative, Dot};
use crate::scalar::{Compare, Unary};
use crate::types::Type;
pub use format::{QuantFormat, QuantScheme};
use std::sync::Arc;

pub(super) const DEQUANTIZE: CompositeBuilder = CompositeBuilder {
    name: "dequantize",
    roles: |p| roles(p),
    build: |p, types| dequantize(&packing("dequantize", p)?, types, dtype("dequantize", p, "dtype", DType::F32)?),
    saves: (&[0], &[]),
};

pub(super) const QUANTIZE_BLOCKS: CompositeBuilder = CompositeBuilder {
    name: "quantize_blocks",
    roles: |_| vec![BatchRole::Rows],
    build: |p, types| {
        const NAME: &str = "quantize_blocks";
        quantize_blocks(&packing(NAME, p)?, types, dtype(NAME, p, "scales", DType::F32)?)
    },
    saves: (&[], &[]),
};

pub(super) const FAKE_QUANTIZE: CompositeBuilder = CompositeBuilder {
    name: "fake_quantize",
    roles: |_| vec![BatchRole::Rows, BatchRole::Prefix(0)],
    build: |p, types| {
        const NAME: &str = "fake_quantize";
        fake_quantize(&packing(NAME, p)?, types, dtype(NAME, p, "scales", DType::F32)?, p.flag("clipped"))
    },
    saves: (&[0], &[]),
};

fn roles(p: &Params<'_>) -> Vec<BatchRole> {
    match p.word("format").and_then(|w| w.parse().ok()) {
        Some(QuantFormat::Nvfp4) => vec![BatchRole::Rows, BatchRole::Rows, BatchRole::Prefix(0)],
        _ => vec![BatchRole::Rows],
    }
}

/// The quantization scheme in a composite's parameters.
fn packing(name: &str, p: &Params<'_>) -> Result<QuantScheme> {
    let word = p.word("format").ok_or_else(|| Error::Invalid(format!("{name} needs the attribute `format`")))?;
    let known = || QuantFormat::ALL.map(QuantFormat::name).join(", ");
    let format: QuantFormat = word
        .parse()
        .map_err(|()| Error::Invalid(format!("{name}: unknown format `{word}`; use one of {}", known())))?;
    let group = p.int("group").map(|g| usize::try_from(g).unwrap_or(0));
    QuantScheme::new(format, group).map_err(|e| Error::Invalid(format!("{name}: {e}")))
}

fn dtype(name: &str, p: &Params<'_>, key: &str, usual: DType) -> Result<DType> {
    let Some(word) = p.word(key) else { return Ok(usual) };
    let found = word.parse().ok().filter(|d: &DType| d.is_float());
    found.ok_or_else(|| Error::Invalid(format!("{name}: `{key}` must be a float dtype, not `{word}`")))
}

impl QuantScheme {
    /// The quantization scheme of a composite of this module.
    pub fn from_composite(c: &Composite) -> Option<QuantScheme> {
        let Some(Attr::Word(word)) = c.param("format") else { return None };
        let group = c.int("group").and_then(|g| usize::try_from(g).ok());
        QuantScheme::new(word.parse().ok()?, group).ok()
    }

    fn params(&self) -> ParamList {
        vec![
            ("format".into(), Attr::Word(self.format.name().into())),
            ("group".into(), Attr::Int(i64::try_from(self.group).unwrap_or(i64::MAX))),
        ]
    }
}

fn dtype_param(name: &str, dtype: DType) -> (String, Attr) {
    (name.into(), Attr::Word(dtype.name().into()))
}

/// Decodes the parts of a weight to the numbers `[.., K]`, in `dtype`.
///
/// Differentiable with respect to scales and 8-bit float codes.
pub fn dequantize(packing: &QuantScheme, parts: &[Type], dtype: DType) -> Result<Composite> {
    const NAME: &str = "dequantize";
    let fits = packing.unpacked_shape(parts);
    fits.map_err(|e| operand_mismatch(NAME, &parts.iter().collect::<Vec<_>>(), e))?;
    let mut b = Builder::new();
    let values: Vec<Value> = parts.iter().map(|ty| b.graph.input(ty.clone())).collect();
    let wide = unpack::unpack(&mut b, packing, &values)?;
    let y = b.cast(wide, dtype)?;
    let mut params = packing.params();
    params.push(dtype_param("dtype", dtype));
    Ok(composite(NAME, params, b.finish(&[y]), 1, None))
}

/// Checks the operands of a quantization: the tensor and, for `Nvfp4`, the per-tensor scale.
fn check_operands(name: &str, packing: &QuantScheme, types: &[Type], scales: DType) -> Result<Vec<Type>> {
    let (x, all) = match types {
        [x] => (x, None),
        [x, all] => (x, Some(all)),
        _ => return Err(arity_mismatch(name, types, "a tensor and, for nvfp4, the scale of all")),
    };
    let operands: Vec<&Type> = types.iter().collect();
    let wrong = |text: String| operand_mismatch(name, &operands, text);
    if !x.dtype.is_float() {
        return Err(wrong("needs a float operand".into()));
    }
    if !packing.format.has_quantizer() {
        return Err(wrong(format!("graphs can read {} but not write it", packing.format)));
    }
    let mut parts = packing.part_types(&x.shape, scales).map_err(wrong)?;
    match (packing.format, all) {
        (QuantFormat::Nvfp4, Some(all)) => {
            if all.dtype != DType::F32 || all.rank() >= x.rank() || !x.shape.starts_with(&all.shape) {
                return Err(wrong("needs one f32 scale of all as its second operand".into()));
            }
            parts[2] = all.clone();
        }
        (QuantFormat::Nvfp4, None) => return Err(wrong("nvfp4 needs the scale of all as its second operand".into())),
        (_, Some(_)) => return Err(wrong(format!("{} takes one operand", packing.format))),
        _ => {}
    }
    Ok(parts)
}

/// Encodes a float tensor `[.., K]` as parts; scales without a fixed dtype have the dtype `scales`. `Nvfp4` takes the per-tensor
/// scale as a second operand and returns it as its last part. Results have no derivative; use [`fake_quantize`] for one.
pub fn quantize_blocks(packing: &QuantScheme, types: &[Type], scales: DType) -> Result<Composite> {
    const NAME: &str = "quantize_blocks";
    let parts = check_operands(NAME, packing, types, scales)?;
    let mut b = Builder::new();
    let args: Vec<Value> = types.iter().map(|ty| b.graph.input(ty.clone())).collect();
    let fixed = b.one(crate::ops::StopGradient.into(), &[args[0]])?;
    let outs = pack::pack(&mut b, packing, fixed, args.get(1).copied(), &parts)?;
    let mut params = packing.params();
    params.push(dtype_param("scales", scales));
    let public = outs.len();
    Ok(composite(NAME, params, b.finish(&outs), public, None))
}

/// Rounds a tensor to the values of a quantization scheme. The derivative is the identity (straight-through); with `clipped` it
/// is 0 where the number exceeds the range of its group's codes.
pub fn fake_quantize(packing: &QuantScheme, types: &[Type], scales: DType, clipped: bool) -> Result<Composite> {
    const NAME: &str = "fake_quantize";
    let parts = check_operands(NAME, packing, types, scales)?;
    let x = &types[0];
    if clipped && packing.format.code_range().is_none() {
        let text = format!("{} has no range to clip the derivative to; use the straight one", packing.format);
        return Err(operand_mismatch(NAME, &types.iter().collect::<Vec<_>>(), text));
    }
    let mut b = Builder::new();
    let args: Vec<Value> = types.iter().map(|ty| b.graph.input(ty.clone())).collect();
    let stored = pack::pack(&mut b, packing, args[0], args.get(1).copied(), &parts)?;
    let wide = unpack::unpack(&mut b, packing, &stored)?;
    let y = b.cast(wide, x.dtype)?;
    let body = b.finish(&[y]);

    let mut b = Builder::new();
    let args: Vec<Value> = types.iter().map(|ty| b.graph.input(ty.clone())).collect();
    let tangents: Vec<Value> = types.iter().map(|ty| b.graph.input(ty.clone())).collect();
    let mut dy = tangents[0];
    if let (true, Some((above, _))) = (clipped, packing.format.code_range()) {
        let stored = pack::pack(&mut b, packing, args[0], args.get(1).copied(), &parts)?;
        let scale = unpack::scales(&mut b, packing, &stored)?;
        let limit = b.scale(scale, above)?;
        let limit = unpack::per_group(&mut b, limit, &x.shape)?;
        let wide = b.cast(args[0], DType::F32)?;
        let size = b.unary(Unary::Abs, wide)?;
        let inside = b.compare(Compare::Le, size, limit)?;
        dy = b.zero_unless(inside, dy)?;
    }
    let jvp = b.finish(&[dy]);
    let mut params = packing.params();
    params.push(dtype_param("scales", scales));
    params.push(("clipped".into(), Attr::Bool(clipped)));
    let derivative = Derivative::Jvp(Arc::new(jvp));
    Ok(Composite { derivative, ..composite(NAME, params, body, 1, None) })
}

/// `x · wᵀ` of rows `[.., K]` and a quantized matrix `w: [N, K]`, or `x · w` of rows `[.., N]` (`transposed`), summed in f32.
/// The compiler rewrites a product with a `dequantize` to it, for backends that decode while they multiply.
pub fn packed_dot(packing: &QuantScheme, x: &Type, parts: &[Type], transposed: bool) -> Result<Composite> {
    const NAME: &str = "packed_dot";
    let wide = dequantize(packing, parts, DType::F32)?;
    let mut b = Builder::new();
    let xv = b.graph.input(x.clone());
    let values: Vec<Value> = parts.iter().map(|ty| b.graph.input(ty.clone())).collect();
    let w = b.one(wide.into(), &values)?;
    let xv = b.cast(xv, DType::F32)?;
    let dot = Dot::last_axes(DType::F32, x.rank(), b.ty(w).rank());
    let rows = [0].into_iter().collect();
    let dot = if transposed { Dot { rhs_contract: rows, ..dot } } else { dot };
    let y = b.one(dot.into(), &[xv, w])?;
    let mut params = packing.params();
    params.push(("transposed".into(), Attr::Bool(transposed)));
    Ok(composite(NAME, params, b.finish(&[y]), 1, None))
}
