//! Quantized weights: parameters that are stored in low precision, and graphs that read them in this form.
//!
//! A quantized parameter is several inputs of a graph, its parts. Products read it through `dequantize` in f32, so that a backend
//! can decode it during the multiplication; an embedding looks up quantized rows; other ops read the dequantized tensor.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::quantized_params::matches_rounding;
use crate::weight::Weight;
use ir::composites::quantized::rows::{QuantizedRows, encode};
use ir::composites::quantized::{QuantFormat, QuantScheme, dequantize};
use ir::ops::gather::GatherMode;
use ir::ops::{Call, Dot, Remat};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Scalar, Type, Value, Values};
use lang::lower::{LowerOptions, Lowered};
use std::collections::BTreeMap;
use std::sync::Arc;
use transform::Rounding;

/// A quantized parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuantizedWeight {
    pub(crate) packing: QuantScheme,
    /// The shape of the dequantized tensor.
    pub(crate) shape: Vec<usize>,
    pub(crate) types: Vec<Type>,
    pub(crate) parts: Vec<Vec<u8>>,
}

impl QuantizedWeight {
    /// Creates a weight from parts with matching shapes and dtypes.
    pub(crate) fn new(
        packing: QuantScheme,
        types: Vec<Type>,
        parts: Vec<Vec<u8>>,
    ) -> std::result::Result<QuantizedWeight, String> {
        let shape = packing.unpacked_shape(&types)?;
        match types.iter().zip(&parts).find(|(ty, bytes)| ty.bytes() != bytes.len()) {
            Some((ty, bytes)) => Err(format!("{} bytes for {ty}", bytes.len())),
            None => Ok(QuantizedWeight { packing, shape, types, parts }),
        }
    }

    /// Quantizes rows of numbers.
    pub(crate) fn pack(
        packing: QuantScheme,
        shape: &[usize],
        values: &[f32],
        scale: DType,
    ) -> std::result::Result<QuantizedWeight, String> {
        let types = packing.part_types(shape, scale)?;
        let encoded =
            encode(&packing, values, scale).ok_or_else(|| format!("{} cannot be written here", packing.format))?;
        QuantizedWeight::new(packing, types, encoded.parts)
    }

    fn rows(&self) -> QuantizedRows<'_> {
        let part = |i: usize| self.parts.get(i).map_or(&[][..], |p| &p[..]);
        let k = self.shape.last().copied().unwrap_or(1);
        let scale = self.types.get(1).map_or(DType::F32, |t| t.dtype);
        QuantizedRows { packing: self.packing, k, scale, data: part(0), scales: part(1), extra_scales: part(2) }
    }

    /// The dequantized numbers.
    pub(crate) fn values(&self) -> Vec<f32> {
        let k = self.shape.last().copied().unwrap_or(1);
        let mut all = vec![0f32; self.shape.iter().product()];
        let rows = self.rows();
        all.chunks_exact_mut(k.max(1)).enumerate().for_each(|(i, row)| rows.decode(i, 0, row));
        all
    }

    /// Converts to the layout that products read fastest: for GGUF's Q8_0 and Q4_0, scales are stored separately.
    pub(crate) fn with_separate_scales(self) -> QuantizedWeight {
        let (format, block) = match self.packing.format {
            QuantFormat::Q8_0 => (QuantFormat::Int8, 34),
            QuantFormat::Q4_0 => (QuantFormat::Int4, 18),
            _ => return self,
        };
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        for b in self.parts[0].chunks_exact(block) {
            scales.extend(&b[..2]);
            if format == QuantFormat::Int8 {
                codes.extend(&b[2..]);
            } else {
                // Low nibbles are the first 16 elements; codes have an offset of 8.
                let code = |j: usize| ((b[2 + j % 16] >> (4 * (j / 16))) & 15) ^ 8;
                codes.extend((0..16).map(|i| code(2 * i) | code(2 * i + 1) << 4));
            }
        }
        let packing = QuantScheme { format, group: 32 };
        match packing.part_types(&self.shape, DType::F16) {
            Ok(types) => QuantizedWeight { packing, types, parts: vec![codes, scales], shape: self.shape },
            Err(_) => self,
        }
    }

    /// The inverse of [`QuantizedWeight::with_separate_scales`].
    pub(crate) fn with_interleaved_scales(self) -> QuantizedWeight {
        let half = self.types.get(1).is_some_and(|t| t.dtype == DType::F16);
        let format = match (self.packing.format, self.packing.group, half) {
            (QuantFormat::Int8, 32, true) => QuantFormat::Q8_0,
            (QuantFormat::Int4, 32, true) => QuantFormat::Q4_0,
            _ => return self,
        };
        let mut bytes = Vec::new();
        let codes = self.parts[0].chunks_exact(if format == QuantFormat::Q8_0 { 32 } else { 16 });
        for (codes, scale) in codes.zip(self.parts[1].chunks_exact(2)) {
            bytes.extend(scale);
            if format == QuantFormat::Q8_0 {
                bytes.extend(codes);
            } else {
                let code = |j: usize| ((codes[j / 2] >> (4 * (j % 2))) & 15) ^ 8;
                bytes.extend((0..16).map(|j| code(j) | code(j + 16) << 4));
            }
        }
        let packing = QuantScheme { format, group: 32 };
        match packing.part_types(&self.shape, DType::F16) {
            Ok(types) => QuantizedWeight { packing, types, parts: vec![bytes], shape: self.shape },
            Err(_) => self,
        }
    }

    /// Selects rows, in any order.
    pub(crate) fn take_rows(&self, rows: impl Iterator<Item = usize> + Clone) -> QuantizedWeight {
        let count = rows.clone().count();
        let all = self.shape[..self.shape.len() - 1].iter().product::<usize>().max(1);
        let k = self.shape.last().copied().unwrap_or(1);
        let mut types = self.types.clone();
        let mut parts = Vec::new();
        for (ty, part) in types.iter_mut().zip(&self.parts) {
            if ty.rank() == 0 {
                parts.push(part.clone());
                continue;
            }
            let size = part.len() / all;
            parts.push(rows.clone().flat_map(|r| part[r * size..(r + 1) * size].iter().copied()).collect());
            let last = ty.shape[ty.rank() - 1];
            *ty = ty.with_shape(&[count, last]);
        }
        QuantizedWeight { packing: self.packing, shape: vec![count, k], types, parts }
    }

    /// Returns the same rows with another shape.
    pub(crate) fn reshape(mut self, shape: &[usize]) -> Option<QuantizedWeight> {
        self.types = self.packing.part_types(shape, self.types.get(1).map_or(DType::F16, |t| t.dtype)).ok()?;
        self.shape = shape.to_vec();
        self.types.iter().zip(&self.parts).all(|(ty, bytes)| ty.bytes() == bytes.len()).then_some(self)
    }

    /// Concatenates the rows of several weights; none if their formats differ.
    pub(crate) fn concat(all: &[QuantizedWeight]) -> Option<QuantizedWeight> {
        let (first, rest) = all.split_first()?;
        let mut joined = first.clone();
        for other in rest {
            let alike = other.packing == joined.packing
                && other.shape.len() == 2
                && joined.shape.len() == 2
                && other.shape[1] == joined.shape[1]
                && other
                    .types
                    .iter()
                    .zip(&joined.types)
                    .all(|(a, b)| a.dtype == b.dtype && a.rank() == 2 && b.rank() == 2);
            if !alike {
                return None;
            }
            joined.shape[0] += other.shape[0];
            for i in 0..joined.parts.len() {
                joined.parts[i].extend(&other.parts[i]);
                let ty = &mut joined.types[i];
                *ty = ty.with_shape(&[ty.shape[0] + other.types[i].shape[0], ty.shape[1]]);
            }
        }
        Some(joined)
    }
}

impl Model {
    /// The quantized form that graphs read, if the parameter is a quantized matrix. Experts are quantized only in files, since a
    /// step that needs two of them should not decode all.
    pub(crate) fn packed(&self, param: usize) -> Option<&Arc<QuantizedWeight>> {
        self.stored_packed(param).filter(|packed| packed.shape.len() == 2)
    }

    /// The quantized form in files, if the parameter is quantized.
    pub(crate) fn stored_packed(&self, param: usize) -> Option<&Arc<QuantizedWeight>> {
        match self.weights.get(param) {
            Some(Weight::Packed(packed)) => Some(packed),
            _ => None,
        }
    }

    /// Whether any parameter is quantized.
    pub fn is_quantized(&self) -> bool {
        (0..self.params.len()).any(|i| self.stored_packed(i).is_some())
    }

    /// The storage formats of the parameters, with the number of elements of each.
    pub fn storage_formats(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for (i, param) in self.params.iter().enumerate() {
            let name = match self.stored_packed(i) {
                Some(packed) => packed.packing.format.to_string(),
                None => param.ty.dtype.to_string(),
            };
            *all.entry(name).or_default() += param.ty.numel();
        }
        all
    }

    /// The number of graph inputs of a parameter.
    pub(crate) fn inputs_of(&self, param: usize) -> usize {
        self.packed(param).map_or(1, |packed| packed.parts.len())
    }

    /// The number of graph inputs of all parameters.
    pub(crate) fn param_inputs(&self) -> usize {
        (0..self.params.len()).map(|i| self.inputs_of(i)).sum()
    }

    /// Lowers the model's graph with parameters in their storage formats.
    pub(crate) fn lower_with(&self, batch: usize, steps: usize, options: &LowerOptions) -> Result<Lowered> {
        let mut lowered = self.architecture.lower_with(batch, steps, options)?;
        lowered.graph = self.read_packed(&lowered.graph, 0)?;
        Ok(lowered)
    }

    /// Converts a graph whose inputs from `first` on are the parameters to one that reads them in their storage formats.
    pub(crate) fn read_packed(&self, graph: &Graph, first: usize) -> Result<Graph> {
        if !self.is_quantized() {
            return Ok(graph.clone());
        }
        let mut b = Builder::new();
        let mut reader = QuantizedReader { values: BTreeMap::new() };
        let mut args = Vec::new();
        for (i, ty) in graph.input_types().into_iter().enumerate() {
            let packed = i.checked_sub(first).and_then(|param| self.packed(param));
            let Some(packed) = packed else {
                args.push(b.graph.input(ty));
                continue;
            };
            if packed.shape[..] != ty.shape[..] {
                let text = format!("the quantized parameter has shape {:?}, expected {:?}", packed.shape, ty.shape);
                return Err(Error::Input(text));
            }
            let parts: Vec<Value> = packed.types.iter().map(|ty| b.graph.input(ty.clone())).collect();
            args.push(parts[0]);
            // The module's own rounding to low precision has been applied already.
            let few = i.checked_sub(first).and_then(|param| self.params[param].rounding);
            let few = few.filter(|how| matches_rounding(how, packed));
            let dtype = if few.is_some() { DType::F32 } else { ty.dtype };
            reader.values.insert(parts[0], StoredQuantized { packing: packed.packing, parts, dtype, rounding: few });
        }
        let outs = reader.inline(&mut b, graph, &args)?;
        Ok(b.finish(&outs))
    }
}

/// A quantized value of the current graph, identified by its first part.
#[derive(Clone)]
struct StoredQuantized {
    packing: QuantScheme,
    parts: Vec<Value>,
    /// Its dtype in the original graph.
    dtype: DType,
    /// The graph's rounding that has been applied already.
    rounding: Option<Rounding>,
}

impl StoredQuantized {
    fn dequantize(&self, b: &mut Builder, dtype: DType) -> ir::Result<Value> {
        let types: Vec<Type> = self.parts.iter().map(|p| b.ty(*p)).collect();
        let composite = dequantize(&self.packing, &types, dtype)?;
        b.one(composite.into(), &self.parts)
    }

    /// Looks up embedding rows; NaN for invalid indices.
    fn look_up(&self, b: &mut Builder, ids: Value) -> ir::Result<Value> {
        let count = b.ty(self.parts[0]).shape[0];
        let mut parts = Vec::new();
        for part in &self.parts {
            let ty = b.ty(*part);
            parts.push(if ty.rank() == 0 { *part } else { b.take(*part, ids, 0, GatherMode::Clip)? });
        }
        let rows = StoredQuantized { parts, ..self.clone() }.dequantize(b, self.dtype)?;
        let ones = Literal::from_fn(Type::new(self.dtype, &[count]), |_| Scalar::from_f64(self.dtype, 1.0));
        let ones = b.constant(ones)?;
        let known = b.take(ones, ids, 0, GatherMode::fill(self.dtype))?;
        let shape = b.ty(rows).shape;
        let dims: Vec<usize> = (0..shape.len() - 1).collect();
        let known = b.broadcast(known, &shape, &dims)?;
        b.mul(rows, known)
    }
}

/// The quantized values of the current graph.
struct QuantizedReader {
    values: BTreeMap<Value, StoredQuantized>,
}

impl QuantizedReader {
    fn inline(&self, b: &mut Builder, graph: &Graph, args: &[Value]) -> ir::Result<Vec<Value>> {
        let outs = graph.inline_with(args, |node, operands| {
            let here = std::mem::replace(&mut b.loc, node.loc.clone());
            let outs = self.node(b, &node.op, operands);
            b.loc = here;
            outs
        })?;
        // A parameter that is a result is dequantized.
        let mut wide = Vec::new();
        for v in outs {
            wide.push(match self.values.get(&v) {
                Some(stored) => stored.dequantize(b, stored.dtype)?,
                None => v,
            });
        }
        Ok(wide)
    }

    fn node(&self, b: &mut Builder, op: &Op, operands: &[Value]) -> ir::Result<Values> {
        if !operands.iter().any(|operand| self.values.contains_key(operand)) {
            return b.emit(op.clone(), operands);
        }
        let stored = operands.first().and_then(|operand| self.values.get(operand));
        match op {
            Op::Composite(c)
                if stored.is_some_and(|s| s.rounding.is_some() && transform::rounding_of(c) == s.rounding) =>
            {
                Ok(operands.iter().copied().collect())
            }
            Op::Name(_) if stored.is_some_and(|s| s.rounding.is_some()) => Ok(operands.iter().copied().collect()),
            Op::Dot(dot) => {
                let mut wide = Vec::new();
                for operand in operands {
                    wide.push(match self.values.get(operand) {
                        Some(stored) => stored.dequantize(b, DType::F32)?,
                        None => b.cast(*operand, DType::F32)?,
                    });
                }
                let y = b.one(Dot { acc: DType::F32, out: DType::F32, ..dot.clone() }.into(), &wide)?;
                Ok([b.cast(y, dot.out)?].into_iter().collect())
            }
            Op::Composite(c) if c.name == "embedding" && self.values.contains_key(&operands[0]) => {
                let stored = &self.values[&operands[0]];
                Ok([stored.look_up(b, operands[1])?].into_iter().collect())
            }
            // The composite is inlined, because its custom derivative does not support quantized operands.
            Op::Composite(composite) => self.inline(b, &composite.body, operands).map(Values::from_vec),
            Op::Call(call) => {
                let (inner, args) = self.inline_body(b, &call.body, operands)?;
                b.emit(Call::new(inner).into(), &args)
            }
            Op::Remat(remat) => {
                let (inner, args) = self.inline_body(b, &remat.body, operands)?;
                b.emit(Remat::with_policy(inner, remat.policy.clone()).into(), &args)
            }
            _ => {
                let mut wide = Vec::new();
                for operand in operands {
                    wide.push(match self.values.get(operand) {
                        Some(stored) => stored.dequantize(b, stored.dtype)?,
                        None => *operand,
                    });
                }
                b.emit(op.clone(), &wide)
            }
        }
    }

    /// The body of a call that reads quantized operands, and its operands.
    fn inline_body(&self, b: &Builder, body: &Graph, operands: &[Value]) -> ir::Result<(Graph, Vec<Value>)> {
        let mut inner = Builder::new();
        let mut reader = QuantizedReader { values: BTreeMap::new() };
        let (mut args, mut outside) = (Vec::new(), Vec::new());
        for operand in operands {
            let Some(stored) = self.values.get(operand) else {
                args.push(inner.graph.input(b.ty(*operand)));
                outside.push(*operand);
                continue;
            };
            let parts: Vec<Value> = stored.parts.iter().map(|p| inner.graph.input(b.ty(*p))).collect();
            outside.extend(&stored.parts);
            args.push(parts[0]);
            reader.values.insert(parts[0], StoredQuantized { parts, ..stored.clone() });
        }
        let outs = reader.inline(&mut inner, body, &args)?;
        Ok((inner.finish(&outs), outside))
    }
}
