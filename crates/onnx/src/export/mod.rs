//! Exports a Graph as an ONNX model in opset 22. Functions and composites are inlined, or exported as ONNX's own op where there
//! is one; loops and branches become Scan, Loop and If.

mod composites;
mod control;
mod elementwise;
mod gather_scatter;
mod matmul;
mod semantics;
mod shape_ops;
mod windows;
mod writer;

use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::proto::{
    Dimension, DimensionValue, GraphProto, ModelProto, OperatorSetId, ShapeProto, TensorType, TypeProto, TypeValue,
    ValueInfo,
};
use crate::tensor;
use ir::{Graph, Literal, Node, Op, Semantics, Type};
use prost::Message;
use std::collections::BTreeMap;
use writer::{ExportedValue, ModelWriter};

/// The opset of exported models.
pub(crate) const OPSET: i64 = 22;

/// The names of a graph's inputs and outputs; those without a name are `input_0`, `output_0`, ….
#[derive(Clone, Debug, Default)]
pub struct ExportNames {
    /// Names of inputs, in order.
    pub inputs: Vec<String>,
    /// Names of outputs, in order.
    pub outputs: Vec<String>,
    /// Inputs, by index, that are exported as initializers with their values.
    pub parameters: BTreeMap<usize, Literal>,
}

/// Exports a graph as the bytes of an ONNX model.
pub fn export(graph: &Graph, names: &ExportNames) -> Result<Vec<u8>> {
    Ok(export_model(graph, names)?.encode_to_vec())
}

/// Exports a graph as an ONNX model.
pub fn export_model(graph: &Graph, names: &ExportNames) -> Result<ModelProto> {
    let mut taken = std::collections::BTreeSet::new();
    let mut name = |list: &[String], i: usize, what: &str| -> Result<String> {
        let name = list.get(i).filter(|n| !n.is_empty()).cloned().unwrap_or_else(|| format!("{what}_{i}"));
        match taken.insert(name.clone()) {
            true => Ok(name),
            false => {
                Err(Error::Model(format!("two inputs or outputs have the name `{name}`; give them different names")))
            }
        }
    };
    let mut w = ModelWriter::default();
    let (mut args, mut inputs) = (Vec::new(), Vec::new());
    for (i, ty) in graph.input_types().into_iter().enumerate() {
        let name = name(&names.inputs, i, "input")?;
        match names.parameters.get(&i) {
            Some(x) if x.ty() == &ty => w.initializers.push(tensor::proto(&name, x)),
            Some(x) => {
                return Err(Error::Model(format!("the parameter `{name}` is {}, but the graph expects {ty}", x.ty())));
            }
            None => inputs.push(info(&name, &ty)),
        }
        args.push(ExportedValue { name, ty });
    }
    let outs = w.graph(graph, &args)?;
    let mut outputs = Vec::new();
    for (i, out) in outs.iter().enumerate() {
        let name = name(&names.outputs, i, "output")?;
        w.node_named("Identity", &[out], &name);
        outputs.push(info(&name, &out.ty));
    }
    let graph = GraphProto {
        node: w.nodes,
        name: Some("graph".into()),
        initializer: w.initializers,
        input: inputs,
        output: outputs,
        ..GraphProto::default()
    };
    Ok(ModelProto {
        ir_version: Some(10),
        producer_name: Some("tensorloom".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        graph: Some(graph),
        opset_import: vec![OperatorSetId { domain: Some(String::new()), version: Some(OPSET) }],
        functions: Vec::new(),
    })
}

/// The declared type of an input or output.
pub(crate) fn info(name: &str, ty: &Type) -> ValueInfo {
    let dim = |&d: &usize| Dimension { value: Some(DimensionValue::Size(d as i64)) };
    let shape = ShapeProto { dim: ty.shape.iter().map(dim).collect() };
    let tensor = TensorType { elem_type: Some(Elem::from_dtype(ty.dtype).number()), shape: Some(shape) };
    ValueInfo { name: Some(name.to_string()), r#type: Some(TypeProto { value: Some(TypeValue::Tensor(tensor)) }) }
}

impl ModelWriter {
    /// Writes a graph's nodes; returns its outputs.
    pub(crate) fn graph(&mut self, graph: &Graph, args: &[ExportedValue]) -> Result<Vec<ExportedValue>> {
        let live = graph.live_values();
        let mut values: Vec<Option<ExportedValue>> = vec![None; graph.num_values()];
        for (v, a) in graph.inputs().iter().zip(args) {
            values[v.0 as usize] = Some(a.clone());
        }
        for node in graph.nodes() {
            if !node.outs.iter().any(|v| live[v.0 as usize]) {
                continue;
            }
            let args: Vec<ExportedValue> = node.args.iter().filter_map(|a| values[a.0 as usize].clone()).collect();
            let types: Vec<Type> = node.outs.iter().map(|&o| graph.ty(o).clone()).collect();
            let outs = self.node_of(node, &args, &types)?;
            for (&v, out) in node.outs.iter().zip(outs) {
                values[v.0 as usize] = Some(out);
            }
        }
        let missing = || Error::Model("the graph's outputs are not defined".into());
        graph.outputs().iter().map(|v| values[v.0 as usize].clone().ok_or_else(missing)).collect()
    }

    fn node_of(&mut self, node: &Node, args: &[ExportedValue], types: &[Type]) -> Result<Vec<ExportedValue>> {
        // 8-bit floats are computed in f32, which represents each of them.
        let small = |t: &Type| t.dtype.is_float() && t.dtype.size() == 1;
        let converts = matches!(node.op, Op::Cast(_) | Op::Quantize(_) | Op::Const(_) | Op::Bitcast(_));
        if !converts && node.op.semantics().is_plain() && args.iter().map(|a| &a.ty).chain(types).any(small) {
            let wide = |t: &Type| if small(t) { t.with_dtype(ir::DType::F32) } else { t.clone() };
            let lifted: Vec<ExportedValue> = args.iter().map(|a| self.cast(a, wide(&a.ty).dtype)).collect();
            let outs: Vec<Type> = types.iter().map(wide).collect();
            let outs = self.op(&widen_fp8(&node.op), &lifted, &outs)?;
            return Ok(outs.iter().zip(types).map(|(o, t)| self.cast(o, t.dtype)).collect());
        }
        self.op(&node.op, args, types)
    }

    fn op(&mut self, op: &Op, args: &[ExportedValue], types: &[Type]) -> Result<Vec<ExportedValue>> {
        let out = types.first().cloned().unwrap_or_else(|| Type::scalar(ir::DType::F32));
        let one = |v: ExportedValue| Ok(vec![v]);
        match op {
            Op::Const(c) => one(self.literal(&c.0)),
            Op::Cumulative(c) => one(self.cumulative(c.kind, &args[0], c.axis, c.reverse)?),
            Op::ArgReduce(a) => one(self.arg_reduce(a.max, &args[0], a.axis, a.index)),
            Op::ReduceWindow(r) => one(self.reduce_window(r, &args[0])?),
            Op::Conv(c) => one(self.conv(c, &args[0], &args[1], &out)?),
            Op::RaggedDot(d) => one(self.ragged_dot(d, &args[0], &args[1], &args[2], &out)?),
            Op::Scatter(s) => one(self.scatter(s, &args[0], &args[1], &args[2])?),
            Op::TakeAlong(t) => one(self.take_along(&args[0], &args[1], t.axis)),
            Op::PutAlong(p) => one(self.put_along(&args[0], &args[1], p.axis, &out)),
            Op::Sort(s) => self.sort(s, args),
            Op::TopK(t) => self.top_k(&args[0], t.k, t.axis),
            Op::Fft(f) => self.fft(f, args, types),
            Op::Scan(s) => self.scan(s, args, types),
            Op::Cond(c) => self.cond(c, args, types),
            Op::While(w) => self.while_loop(w, args),
            Op::Composite(c) => self.composite(c, args, types),
            Op::Collective(_) => Err(export_error(op.name(), "it belongs inside a shard_map; export the shard_map")),
            // Other ops are exported by their semantics; an op without semantics as data has no counterpart.
            other => self.by_semantics(other, args, types),
        }
    }
}

const NO_COUNTERPART: &str = "ONNX has no such op; export the part of the model before or after it";

pub(crate) fn export_error(op: &str, problem: &str) -> Error {
    Error::Export { op: op.to_string(), problem: problem.to_string() }
}

/// The op with f32 results in place of 8-bit floats.
fn widen_fp8(op: &Op) -> Op {
    use ir::DType::F32;
    let wide = |d: ir::DType| if d.is_float() && d.size() == 1 { F32 } else { d };
    match op.clone() {
        Op::Dot(mut d) => {
            (d.acc, d.out) = (wide(d.acc), wide(d.out));
            Op::Dot(d)
        }
        Op::Conv(mut c) => {
            (c.acc, c.out) = (wide(c.acc), wide(c.out));
            Op::Conv(c)
        }
        Op::Iota(mut i) => {
            i.dtype = wide(i.dtype);
            Op::Iota(i)
        }
        Op::Gather(mut g) => {
            if let ir::ops::GatherMode::Fill(s) = g.mode {
                g.mode = ir::ops::GatherMode::Fill(s.cast(wide(s.dtype())));
            }
            Op::Gather(g)
        }
        other => other,
    }
}

trait HasNoBody {
    fn is_plain(&self) -> bool;
}

impl HasNoBody for Semantics {
    /// Whether the op has no body graph, whose types would have to change.
    fn is_plain(&self) -> bool {
        !matches!(self, Semantics::Inline(_))
    }
}
