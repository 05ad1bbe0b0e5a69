//! Validated, immutable programs with their graph (§3.2).
//!
//! # What validation guarantees
//!
//! 1. Nodes are in topological order; there is no cycle.
//! 2. Every ID names a value, and every value has exactly one source.
//! 3. Dtypes are f32, f64, f16 or bf16, and the same where an op requires it.
//! 4. Connected values have the same model; convolution requires model A, the Kronecker product model B.
//! 5. No value has rank 0.
//! 6. Every shape is known and is the inferred one.
//! 7. Capacity is at least the shape on every axis.
//! 8. No product of sizes overflows, neither for shapes nor for capacities.

use crate::describe::{NodeDesc, ProgramDescription, ValueDesc, ValueId, ValueTag};
use crate::error::{Error, ProgramFault, Result};
use crate::infer::{ValueSignature, infer};
use crate::lower::{Numerics, ProgramLowering};
use crate::op::Op;
use crate::shape::{check_dtype, check_size, default_capacity};
use ir::ops::Name;
use ir::{Builder, DType, Graph, GraphBuilder};
use std::fmt;

/// A validated value.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The name in reports and messages.
    pub name: String,
    /// Dtype, logical shape, model.
    pub signature: ValueSignature,
    /// Physical sizes before planning, at least the shape.
    pub capacity: Vec<usize>,
    /// The role of the value in the program.
    pub tag: ValueTag,
    /// Whether the value is saved for backward.
    pub checkpoint: bool,
}

/// A validated node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The op that the node computes.
    pub op: Op,
    /// The operands.
    pub inputs: Vec<ValueId>,
    /// The results.
    pub outputs: Vec<ValueId>,
}

/// A validated, immutable program.
#[derive(Clone, Debug)]
pub struct Program {
    values: Vec<Value>,
    nodes: Vec<Node>,
    params: Vec<ValueId>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    numerics: Numerics,
    graph: Graph,
}

impl Program {
    /// Validates a description and lowers it to a graph.
    pub fn build(d: &ProgramDescription) -> Result<Program> {
        let order = topological(d)?;
        let mut signatures: Vec<Option<ValueSignature>> = Vec::with_capacity(d.values.len());
        for (i, v) in d.values.iter().enumerate() {
            signatures.push(declared(i, v)?);
        }
        let mut nodes = Vec::with_capacity(d.nodes.len());
        for &k in &order {
            nodes.push(node(&d.nodes[k], &d.values, &mut signatures)?);
        }
        let mut values = Vec::with_capacity(d.values.len());
        for (i, (v, s)) in d.values.iter().zip(signatures).enumerate() {
            values.push(value(i, v, s.ok_or(ProgramFault::NoProducer { id: i as u32 })?)?);
        }
        if d.outputs.is_empty() {
            return Err(ProgramFault::NoOutputs.into());
        }
        let outputs: Vec<ValueId> = d.outputs.iter().map(|&v| ValueId(v)).collect();
        let with_tag = |tag: ValueTag| -> Vec<ValueId> {
            let ids = (0..values.len()).filter(|&i| d.values[i].tag == tag);
            ids.map(|i| ValueId(i as u32)).collect()
        };
        let (params, inputs) = (with_tag(ValueTag::Param), with_tag(ValueTag::Input));
        let mut program = Program { values, nodes, params, inputs, outputs, numerics: d.numerics, graph: Graph::new() };
        for v in program.outputs.clone() {
            let tag = &mut program.values[v.0 as usize].tag;
            if *tag == ValueTag::Temp {
                *tag = ValueTag::Output;
            }
        }
        program.graph = program.lower()?;
        Ok(program)
    }

    /// Lowers the program. The inputs of the graph are the inputs, the parameters, and the seed if a random op needs one.
    fn lower(&self) -> Result<Graph> {
        let mut l = ProgramLowering { builder: Builder::new(), numerics: self.numerics, seed: None, draws: 0 };
        let mut at: Vec<Option<ir::Value>> = vec![None; self.values.len()];
        for v in self.inputs.iter().chain(&self.params) {
            let ty = self.signature(*v).ty();
            at[v.0 as usize] = Some(l.builder.graph.input(ty));
        }
        if self.is_random() {
            l.seed = Some(l.builder.input(DType::U32, &[2]));
        }
        let missing = || Error::Unknown("a node before its operands".into());
        for n in &self.nodes {
            let args: Option<Vec<ir::Value>> = n.inputs.iter().map(|v| at[v.0 as usize]).collect();
            let outs: Vec<ValueSignature> = n.outputs.iter().map(|v| self.signature(*v).clone()).collect();
            let results = l.op(&n.op, &args.ok_or_else(missing)?, &outs)?;
            for (v, mut r) in n.outputs.iter().zip(results) {
                if self.values[v.0 as usize].checkpoint {
                    r = l.builder.one(Name::new(checkpoint_name(*v)).into(), &[r])?;
                }
                at[v.0 as usize] = Some(r);
            }
        }
        let outs: Option<Vec<ir::Value>> = self.outputs.iter().map(|v| at[v.0 as usize]).collect();
        Ok(l.builder.finish(&outs.ok_or_else(missing)?))
    }

    /// Whether the program has random ops, and therefore a seed.
    pub fn is_random(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.op, Op::Dropout { .. }))
    }

    /// Returns the values, indexed by ID.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the nodes in execution order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the inputs in the order they were declared.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// Returns the parameters in the order they were declared.
    pub fn params(&self) -> &[ValueId] {
        &self.params
    }

    /// Returns the outputs in order.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// Returns a value.
    pub fn value(&self, v: ValueId) -> Result<&Value> {
        let found = self.values.get(v.0 as usize);
        found.ok_or_else(|| Error::invalid_arg(format!("there is no value {} in this program", v.0)))
    }

    /// Returns the dtype, shape and model of a value of this program. Panics for a value of another program.
    pub fn signature(&self, v: ValueId) -> &ValueSignature {
        &self.values[v.0 as usize].signature
    }

    /// Returns the value with the given name.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.values.iter().position(|v| v.name == name).map(|i| ValueId(i as u32))
    }

    /// Returns the graph that maps inputs, parameters and seed to outputs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the names of checkpointed values in the graph.
    pub(crate) fn checkpoints(&self) -> Vec<String> {
        let marked = (0..self.values.len()).filter(|&i| self.values[i].checkpoint);
        marked.map(|i| checkpoint_name(ValueId(i as u32))).collect()
    }
}

fn checkpoint_name(v: ValueId) -> String {
    format!("vsla.{}", v.0)
}

/// Returns the nodes in topological order, or an error with the nodes of a cycle.
fn topological(d: &ProgramDescription) -> Result<Vec<usize>> {
    let count = d.values.len();
    let check = |place: &dyn Fn() -> String, id: u32| -> Result<()> {
        if (id as usize) < count {
            return Ok(());
        }
        let place = place();
        Err(ProgramFault::MissingValue { place, id, count }.into())
    };
    let given = |id: u32| matches!(d.values[id as usize].tag, ValueTag::Param | ValueTag::Input);
    let mut source: Vec<Option<usize>> = vec![None; count];
    for (k, n) in d.nodes.iter().enumerate() {
        for &id in n.inputs.iter().chain(&n.outputs) {
            check(&|| format!("node {k} ({})", n.op.name()), id)?;
        }
        for &id in &n.outputs {
            if given(id) || source[id as usize].replace(k).is_some() {
                return Err(ProgramFault::MultipleProducers { id }.into());
            }
        }
    }
    for &id in &d.outputs {
        check(&|| "the list of outputs".to_string(), id)?;
    }
    let mut waits: Vec<usize> = Vec::with_capacity(d.nodes.len());
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); d.nodes.len()];
    for (k, n) in d.nodes.iter().enumerate() {
        let mut count = 0;
        for &id in &n.inputs {
            match source[id as usize] {
                Some(s) => {
                    readers[s].push(k);
                    count += 1;
                }
                None if given(id) => {}
                None => return Err(ProgramFault::NoProducer { id }.into()),
            }
        }
        waits.push(count);
    }
    // Ready nodes are taken by ascending index, so a description that is already in order stays in order.
    let mut ready: std::collections::BTreeSet<usize> = (0..waits.len()).filter(|&k| waits[k] == 0).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(k) = ready.pop_first() {
        order.push(k);
        for &r in &readers[k] {
            waits[r] -= 1;
            if waits[r] == 0 {
                ready.insert(r);
            }
        }
    }
    if order.len() < waits.len() {
        let nodes = (0..waits.len()).filter(|&k| waits[k] > 0).collect();
        return Err(ProgramFault::Cycle { nodes }.into());
    }
    Ok(order)
}

/// Returns the signature of an input or parameter; for a computed value, `None`.
fn declared(id: usize, v: &ValueDesc) -> Result<Option<ValueSignature>> {
    if !matches!(v.tag, ValueTag::Param | ValueTag::Input) {
        return Ok(None);
    }
    let place = place(id, v);
    let (Some(dtype), Some(shape)) = (v.dtype, &v.shape) else {
        return Err(Error::invalid_arg(format!("{place} needs a dtype and a shape, since nothing computes it")));
    };
    check_dtype(&place, dtype)?;
    check_size(&place, shape)?;
    Ok(Some(ValueSignature { dtype, shape: shape.clone(), model: v.model }))
}

fn place(id: usize, v: &ValueDesc) -> String {
    match v.name.as_str() {
        "" => format!("value {id}"),
        name => format!("value {id} ({name})"),
    }
}

fn node(n: &NodeDesc, values: &[ValueDesc], signatures: &mut [Option<ValueSignature>]) -> Result<Node> {
    let known = |&id: &u32| signatures[id as usize].clone().ok_or(ProgramFault::NoProducer { id });
    let args = n.inputs.iter().map(known).collect::<std::result::Result<Vec<_>, _>>()?;
    let outs = infer(&n.op, &args)?;
    if outs.len() != n.outputs.len() {
        return Err(ProgramFault::Arity {
            op: n.op.name(),
            expected: format!("{} results", outs.len()),
            got: n.outputs.len(),
        }
        .into());
    }
    for (&id, s) in n.outputs.iter().zip(outs) {
        let v = &values[id as usize];
        if let Some(dtype) = v.dtype {
            check_dtype(&place(id as usize, v), dtype)?;
        }
        if v.shape.as_ref().is_some_and(|d| d.is_empty()) {
            let place = place(id as usize, v);
            return Err(ProgramFault::RankZero { place }.into());
        }
        let (dtype, shape) = (v.dtype.unwrap_or(s.dtype), v.shape.as_ref().unwrap_or(&s.shape));
        if dtype != s.dtype || *shape != s.shape {
            return Err(ProgramFault::DeclarationMismatch {
                id,
                op: n.op.name(),
                declared: ValueSignature::new(dtype, shape).to_string(),
                inferred: s.to_string(),
            }
            .into());
        }
        signatures[id as usize] = Some(s);
    }
    let ids = |list: &[u32]| list.iter().map(|&v| ValueId(v)).collect();
    Ok(Node { op: n.op.clone(), inputs: ids(&n.inputs), outputs: ids(&n.outputs) })
}

fn value(id: usize, v: &ValueDesc, signature: ValueSignature) -> Result<Value> {
    let capacity = match &v.capacity {
        Some(c) => {
            let enough = c.len() == signature.shape.len() && c.iter().zip(&signature.shape).all(|(c, s)| c >= s);
            if !enough {
                return Err(
                    ProgramFault::Capacity { id: id as u32, capacity: c.clone(), shape: signature.shape }.into()
                );
            }
            check_size(&place(id, v), c)?;
            c.clone()
        }
        None => default_capacity(&signature.shape),
    };
    Ok(Value { name: v.name.clone(), signature, capacity, tag: v.tag, checkpoint: v.checkpoint })
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for v in self.inputs.iter().chain(&self.params) {
            let value = &self.values[v.0 as usize];
            let kind = if value.tag == ValueTag::Param { "param" } else { "input" };
            writeln!(f, "{kind} v{} {} \"{}\"", v.0, value.signature, value.name)?;
        }
        for n in &self.nodes {
            let list = |ids: &[ValueId]| ids.iter().map(|v| format!("v{}", v.0)).collect::<Vec<_>>().join(", ");
            let types: Vec<String> = n.outputs.iter().map(|v| self.signature(*v).to_string()).collect();
            writeln!(f, "{} = {}({}) : {}", list(&n.outputs), n.op.name(), list(&n.inputs), types.join(", "))?;
        }
        let outs: Vec<String> = self.outputs.iter().map(|v| format!("v{}", v.0)).collect();
        writeln!(f, "output {}", outs.join(", "))
    }
}
