//! Packed weights: parameters that are stored in few bits, and graphs that read them so.
//!
//! A packed parameter is several inputs of a graph, its parts. Products read it through `dequantize` in f32, so that a backend
//! can decode it as it multiplies; an embedding looks up packed rows; whatever else reads it gets the wide tensor.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::stored::is_rounded;
use crate::weight::Weight;
use ir::composites::quantized::rows::{Rows, encode};
use ir::composites::quantized::{Format, Packing, dequantize};
use ir::ops::gather::GatherMode;
use ir::ops::{Call, Dot, Remat};
use ir::{Build, Builder, DType, Graph, Literal, Op, Scalar, Type, Value, Values};
use lang::lower::{Lowered, Options};
use std::collections::BTreeMap;
use std::sync::Arc;
use transform::Rounding;

/// A parameter in few bits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PackedWeight {
    pub(crate) packing: Packing,
    /// The shape that it stands for.
    pub(crate) shape: Vec<usize>,
    pub(crate) types: Vec<Type>,
    pub(crate) parts: Vec<Vec<u8>>,
}

impl PackedWeight {
    /// Parts that fit their packing.
    pub(crate) fn new(
        packing: Packing,
        types: Vec<Type>,
        parts: Vec<Vec<u8>>,
    ) -> std::result::Result<PackedWeight, String> {
        let shape = packing.unpacked(&types)?;
        match types.iter().zip(&parts).find(|(ty, bytes)| ty.bytes() != bytes.len()) {
            Some((ty, bytes)) => Err(format!("{} bytes for {ty}", bytes.len())),
            None => Ok(PackedWeight { packing, shape, types, parts }),
        }
    }

    /// Packs rows of numbers.
    pub(crate) fn pack(
        packing: Packing,
        shape: &[usize],
        values: &[f32],
        scale: DType,
    ) -> std::result::Result<PackedWeight, String> {
        let types = packing.parts(shape, scale)?;
        let encoded =
            encode(&packing, values, scale).ok_or_else(|| format!("{} cannot be written here", packing.format))?;
        PackedWeight::new(packing, types, encoded.parts)
    }

    fn rows(&self) -> Rows<'_> {
        let part = |i: usize| self.parts.get(i).map_or(&[][..], |p| &p[..]);
        let k = self.shape.last().copied().unwrap_or(1);
        let scale = self.types.get(1).map_or(DType::F32, |t| t.dtype);
        Rows { packing: self.packing, k, scale, data: part(0), scales: part(1), more: part(2) }
    }

    /// The numbers that it stands for.
    pub(crate) fn values(&self) -> Vec<f32> {
        let k = self.shape.last().copied().unwrap_or(1);
        let mut all = vec![0f32; self.shape.iter().product()];
        let rows = self.rows();
        all.chunks_exact_mut(k.max(1)).enumerate().for_each(|(i, row)| rows.decode(i, 0, row));
        all
    }

    /// The same numbers in the layout that products read fastest: GGUF's Q8_0 and Q4_0 with their scales apart.
    pub(crate) fn with_separate_scales(self) -> PackedWeight {
        let (format, block) = match self.packing.format {
            Format::Q8_0 => (Format::Int8, 34),
            Format::Q4_0 => (Format::Int4, 18),
            _ => return self,
        };
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        for b in self.parts[0].chunks_exact(block) {
            scales.extend(&b[..2]);
            if format == Format::Int8 {
                codes.extend(&b[2..]);
            } else {
                // Low halves are the first 16 elements; codes count from 8, not from 0.
                let code = |j: usize| ((b[2 + j % 16] >> (4 * (j / 16))) & 15) ^ 8;
                codes.extend((0..16).map(|i| code(2 * i) | code(2 * i + 1) << 4));
            }
        }
        let packing = Packing { format, group: 32 };
        match packing.parts(&self.shape, DType::F16) {
            Ok(types) => PackedWeight { packing, types, parts: vec![codes, scales], shape: self.shape },
            Err(_) => self,
        }
    }

    /// The reverse of [`PackedWeight::with_separate_scales`].
    pub(crate) fn together(self) -> PackedWeight {
        let half = self.types.get(1).is_some_and(|t| t.dtype == DType::F16);
        let format = match (self.packing.format, self.packing.group, half) {
            (Format::Int8, 32, true) => Format::Q8_0,
            (Format::Int4, 32, true) => Format::Q4_0,
            _ => return self,
        };
        let mut bytes = Vec::new();
        let codes = self.parts[0].chunks_exact(if format == Format::Q8_0 { 32 } else { 16 });
        for (codes, scale) in codes.zip(self.parts[1].chunks_exact(2)) {
            bytes.extend(scale);
            if format == Format::Q8_0 {
                bytes.extend(codes);
            } else {
                let code = |j: usize| ((codes[j / 2] >> (4 * (j % 2))) & 15) ^ 8;
                bytes.extend((0..16).map(|j| code(j) | code(j + 16) << 4));
            }
        }
        let packing = Packing { format, group: 32 };
        match packing.parts(&self.shape, DType::F16) {
            Ok(types) => PackedWeight { packing, types, parts: vec![bytes], shape: self.shape },
            Err(_) => self,
        }
    }

    /// Some of its rows, in any order.
    pub(crate) fn take_rows(&self, rows: impl Iterator<Item = usize> + Clone) -> PackedWeight {
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
        PackedWeight { packing: self.packing, shape: vec![count, k], types, parts }
    }

    /// The same rows under another shape.
    pub(crate) fn shaped(mut self, shape: &[usize]) -> Option<PackedWeight> {
        self.types = self.packing.parts(shape, self.types.get(1).map_or(DType::F16, |t| t.dtype)).ok()?;
        self.shape = shape.to_vec();
        self.types.iter().zip(&self.parts).all(|(ty, bytes)| ty.bytes() == bytes.len()).then_some(self)
    }

    /// Rows of several, one after the other; none if they are not packed alike.
    pub(crate) fn join(all: &[PackedWeight]) -> Option<PackedWeight> {
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
    /// How a parameter is packed where graphs read it so: matrices are. Experts are packed in files alone, since a step that
    /// needs two of them should not decode all.
    pub(crate) fn packed(&self, param: usize) -> Option<&Arc<PackedWeight>> {
        self.stored_packed(param).filter(|packed| packed.shape.len() == 2)
    }

    /// How a parameter is packed in files, if it is.
    pub(crate) fn stored_packed(&self, param: usize) -> Option<&Arc<PackedWeight>> {
        match self.weights.get(param) {
            Some(Weight::Packed(packed)) => Some(packed),
            _ => None,
        }
    }

    /// Whether any parameter is packed.
    pub fn is_quantized(&self) -> bool {
        (0..self.params.len()).any(|i| self.stored_packed(i).is_some())
    }

    /// The formats that parameters are stored in, with how many elements each has.
    pub fn storage(&self) -> BTreeMap<String, usize> {
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

    /// How many inputs of a graph each parameter is.
    pub(crate) fn parts_of(&self, param: usize) -> usize {
        self.packed(param).map_or(1, |packed| packed.parts.len())
    }

    /// How many inputs of a graph all parameters are.
    pub(crate) fn param_inputs(&self) -> usize {
        (0..self.params.len()).map(|i| self.parts_of(i)).sum()
    }

    /// The model's graph, reading parameters as they are stored.
    pub(crate) fn lower_with(&self, batch: usize, steps: usize, options: &Options) -> Result<Lowered> {
        let mut lowered = self.architecture.lower_with(batch, steps, options)?;
        lowered.graph = self.read_packed(&lowered.graph, 0)?;
        Ok(lowered)
    }

    /// A graph whose inputs from `first` on are the parameters, reading them as they are stored.
    pub(crate) fn read_packed(&self, graph: &Graph, first: usize) -> Result<Graph> {
        if !self.is_quantized() {
            return Ok(graph.clone());
        }
        let mut b = Builder::new();
        let mut reader = Reader { of: BTreeMap::new() };
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
            // What its text stores in few bits is rounded already.
            let few = i.checked_sub(first).and_then(|param| self.params[param].few);
            let few = few.filter(|how| is_rounded(how, packed));
            let dtype = if few.is_some() { DType::F32 } else { ty.dtype };
            reader.of.insert(parts[0], Stored { packing: packed.packing, parts, dtype, few });
        }
        let outs = reader.inline(&mut b, graph, &args)?;
        Ok(b.finish(&outs))
    }
}

/// A packed value of the graph at hand, known by its first part.
#[derive(Clone)]
struct Stored {
    packing: Packing,
    parts: Vec<Value>,
    /// The dtype that the graph thinks it has.
    dtype: DType,
    /// The rounding of the graph that it has behind it.
    few: Option<Rounding>,
}

impl Stored {
    fn wide(&self, b: &mut Builder, dtype: DType) -> ir::Result<Value> {
        let types: Vec<Type> = self.parts.iter().map(|p| b.ty(*p)).collect();
        let composite = dequantize(&self.packing, &types, dtype)?;
        b.one(composite.into(), &self.parts)
    }

    /// The rows of some ids; NaN where there is none.
    fn look_up(&self, b: &mut Builder, ids: Value) -> ir::Result<Value> {
        let count = b.ty(self.parts[0]).shape[0];
        let mut parts = Vec::new();
        for part in &self.parts {
            let ty = b.ty(*part);
            parts.push(if ty.rank() == 0 { *part } else { b.take(*part, ids, 0, GatherMode::Clip)? });
        }
        let rows = Stored { parts, ..self.clone() }.wide(b, self.dtype)?;
        let ones = Literal::from_fn(Type::new(self.dtype, &[count]), |_| Scalar::from_f64(self.dtype, 1.0));
        let ones = b.constant(ones)?;
        let known = b.take(ones, ids, 0, GatherMode::fill(self.dtype))?;
        let shape = b.ty(rows).shape;
        let dims: Vec<usize> = (0..shape.len() - 1).collect();
        let known = b.broadcast(known, &shape, &dims)?;
        b.mul(rows, known)
    }
}

/// Packed values of the graph at hand.
struct Reader {
    of: BTreeMap<Value, Stored>,
}

impl Reader {
    fn inline(&self, b: &mut Builder, graph: &Graph, args: &[Value]) -> ir::Result<Vec<Value>> {
        let outs = graph.inline_with(args, |node, operands| {
            let here = std::mem::replace(&mut b.loc, node.loc.clone());
            let outs = self.node(b, &node.op, operands);
            b.loc = here;
            outs
        })?;
        // A parameter that is a result goes out wide.
        let mut wide = Vec::new();
        for v in outs {
            wide.push(match self.of.get(&v) {
                Some(stored) => stored.wide(b, stored.dtype)?,
                None => v,
            });
        }
        Ok(wide)
    }

    fn node(&self, b: &mut Builder, op: &Op, operands: &[Value]) -> ir::Result<Values> {
        if !operands.iter().any(|operand| self.of.contains_key(operand)) {
            return b.emit(op.clone(), operands);
        }
        let stored = operands.first().and_then(|operand| self.of.get(operand));
        match op {
            Op::Composite(c) if stored.is_some_and(|s| s.few.is_some() && transform::rounding_of(c) == s.few) => {
                Ok(operands.iter().copied().collect())
            }
            Op::Name(_) if stored.is_some_and(|s| s.few.is_some()) => Ok(operands.iter().copied().collect()),
            Op::Dot(dot) => {
                let mut wide = Vec::new();
                for operand in operands {
                    wide.push(match self.of.get(operand) {
                        Some(stored) => stored.wide(b, DType::F32)?,
                        None => b.cast(*operand, DType::F32)?,
                    });
                }
                let y = b.one(Dot { acc: DType::F32, out: DType::F32, ..dot.clone() }.into(), &wide)?;
                Ok([b.cast(y, dot.out)?].into_iter().collect())
            }
            Op::Composite(c) if c.name == "embedding" && self.of.contains_key(&operands[0]) => {
                let stored = &self.of[&operands[0]];
                Ok([stored.look_up(b, operands[1])?].into_iter().collect())
            }
            // What it computes is differentiated instead of its own rule, which knows nothing of packing.
            Op::Composite(composite) => self.inline(b, &composite.body, operands).map(Values::from_vec),
            Op::Call(call) => {
                let (inner, args) = self.inside(b, &call.body, operands)?;
                b.emit(Call::new(inner).into(), &args)
            }
            Op::Remat(remat) => {
                let (inner, args) = self.inside(b, &remat.body, operands)?;
                b.emit(Remat::with(inner, remat.policy.clone()).into(), &args)
            }
            _ => {
                let mut wide = Vec::new();
                for operand in operands {
                    wide.push(match self.of.get(operand) {
                        Some(stored) => stored.wide(b, stored.dtype)?,
                        None => *operand,
                    });
                }
                b.emit(op.clone(), &wide)
            }
        }
    }

    /// The body of a call that reads packed operands, and its operands.
    fn inside(&self, b: &Builder, body: &Graph, operands: &[Value]) -> ir::Result<(Graph, Vec<Value>)> {
        let mut inner = Builder::new();
        let mut reader = Reader { of: BTreeMap::new() };
        let (mut args, mut outside) = (Vec::new(), Vec::new());
        for operand in operands {
            let Some(stored) = self.of.get(operand) else {
                args.push(inner.graph.input(b.ty(*operand)));
                outside.push(*operand);
                continue;
            };
            let parts: Vec<Value> = stored.parts.iter().map(|p| inner.graph.input(b.ty(*p))).collect();
            outside.extend(&stored.parts);
            args.push(parts[0]);
            reader.of.insert(parts[0], Stored { parts, ..stored.clone() });
        }
        let outs = reader.inline(&mut inner, body, &args)?;
        Ok((inner.finish(&outs), outside))
    }
}
