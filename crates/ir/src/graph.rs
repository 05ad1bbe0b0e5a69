//! The Graph: typed SSA, pure, append-only, several outputs per node.

use crate::error::{Error, Result, TypeError};
use crate::ops::Op;
use crate::types::Type;
use smallvec::SmallVec;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::Arc;

/// A value of a Graph: an input, or one output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// Short lists of values.
pub type Values = SmallVec<[Value; 4]>;

/// The source location of an op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Loc {
    /// Unknown.
    #[default]
    Unknown,
    /// A line of Rust.
    Rust(&'static Location<'static>),
    /// A line of another file: a `.module` file or an imported model.
    File(Arc<(String, u32, u32)>),
}

impl Loc {
    /// The caller's line.
    #[track_caller]
    pub fn caller() -> Loc {
        Loc::Rust(Location::caller())
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loc::Unknown => f.write_str("an unknown place"),
            Loc::Rust(l) => write!(f, "{}:{}:{}", l.file(), l.line(), l.column()),
            Loc::File(l) => write!(f, "{}:{}:{}", l.0, l.1, l.2),
        }
    }
}

/// The definition of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Def {
    /// The n-th input.
    Input(u32),
    /// The k-th output of a node.
    Node(u32, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ValueData {
    ty: Type,
    def: Def,
}

/// An op applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// Its operands, all defined earlier.
    pub args: Values,
    /// Its outputs, consecutive values.
    pub outs: Values,
    /// The source location; not part of equality.
    pub loc: Loc,
}

/// A pure function from inputs to outputs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    values: Vec<ValueData>,
    nodes: Vec<Node>,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Adds an input.
    pub fn input(&mut self, ty: Type) -> Value {
        let v = Value(self.values.len() as u32);
        self.values.push(ValueData { ty, def: Def::Input(self.inputs.len() as u32) });
        self.inputs.push(v);
        v
    }

    /// Adds a node after checking its operands.
    pub fn push(&mut self, op: Op, args: &[Value], loc: Loc) -> Result<Values> {
        if let Some(bad) = args.iter().find(|v| v.0 as usize >= self.values.len()) {
            return Err(Error::Invalid(format!("{} uses %{}, which is not defined", op.name(), bad.0)));
        }
        let types: SmallVec<[Type; 4]> = args.iter().map(|&v| self.ty(v).clone()).collect();
        let outs = op.infer(&types).map_err(|problem| {
            Error::Type(Box::new(TypeError {
                op: op.name().to_string(),
                operands: types.to_vec(),
                problem,
                loc: loc.clone(),
            }))
        })?;
        Ok(self.append(op, args, outs, loc))
    }

    /// Adds `op`, with operands and results of the types that a node of another graph has: no type inference is needed.
    pub fn push_like(&mut self, from: &Graph, node: &Node, op: Op, args: &[Value], loc: Loc) -> Values {
        debug_assert!(
            args.iter().zip(&node.args).all(|(&a, &b)| self.ty(a) == from.ty(b)),
            "{}: other operands",
            op.name()
        );
        self.append(op, args, node.outs.iter().map(|&v| from.ty(v).clone()), loc)
    }

    fn append(&mut self, op: Op, args: &[Value], types: impl IntoIterator<Item = Type>, loc: Loc) -> Values {
        let (node, first) = (self.nodes.len() as u32, self.values.len() as u32);
        for (k, ty) in types.into_iter().enumerate() {
            self.values.push(ValueData { ty, def: Def::Node(node, k as u32) });
        }
        let outs: Values = (first..self.values.len() as u32).map(Value).collect();
        self.nodes.push(Node { op, args: Values::from_slice(args), outs: Values::from_slice(&outs), loc });
        outs
    }

    /// An empty graph with inputs of the same types, and capacity for as many nodes.
    pub fn with_inputs_of(&self) -> (Graph, Vec<Value>) {
        let mut g = Graph {
            values: Vec::with_capacity(self.values.len()),
            nodes: Vec::with_capacity(self.nodes.len()),
            ..Graph::default()
        };
        let inputs = self.inputs.iter().map(|&v| g.input(self.ty(v).clone())).collect();
        (g, inputs)
    }

    /// A graph from its parts, unchecked: for tests of the verifier.
    #[doc(hidden)]
    pub fn from_raw(
        values: impl IntoIterator<Item = (Type, Def)>,
        nodes: Vec<Node>,
        inputs: Vec<Value>,
        outputs: Vec<Value>,
    ) -> Graph {
        Graph { values: values.into_iter().map(|(ty, def)| ValueData { ty, def }).collect(), nodes, inputs, outputs }
    }

    /// Sets the outputs.
    pub fn set_outputs(&mut self, outputs: impl Into<Vec<Value>>) {
        self.outputs = outputs.into();
        debug_assert!(self.outputs.iter().all(|v| (v.0 as usize) < self.values.len()));
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        &self.values[v.0 as usize].ty
    }

    /// The definition of a value.
    pub fn def(&self, v: Value) -> Def {
        self.values[v.0 as usize].def
    }

    /// The node that defines a value, unless it is an input.
    pub fn node_of(&self, v: Value) -> Option<&Node> {
        match self.def(v) {
            Def::Input(_) => None,
            Def::Node(n, _) => Some(&self.nodes[n as usize]),
        }
    }

    /// Inputs in order.
    pub fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    /// Outputs in order.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The nodes; every operand is defined before its use.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of values.
    pub fn num_values(&self) -> usize {
        self.values.len()
    }

    /// Types of the inputs.
    pub fn input_types(&self) -> Vec<Type> {
        self.inputs.iter().map(|&v| self.ty(v).clone()).collect()
    }

    /// Types of the outputs.
    pub fn output_types(&self) -> Vec<Type> {
        self.outputs.iter().map(|&v| self.ty(v).clone()).collect()
    }

    /// Marks the values that the outputs depend on.
    pub fn live_values(&self) -> Vec<bool> {
        let mut live = vec![false; self.values.len()];
        for v in &self.outputs {
            live[v.0 as usize] = true;
        }
        for node in self.nodes.iter().rev() {
            if node.outs.iter().any(|v| live[v.0 as usize]) {
                for a in &node.args {
                    live[a.0 as usize] = true;
                }
            }
        }
        live
    }

    /// For each input, whether an output depends on it.
    pub fn used_inputs(&self) -> Vec<bool> {
        let live = self.live_values();
        self.inputs.iter().map(|v| live[v.0 as usize]).collect()
    }

    /// Copies this graph's live nodes into `into`, with `args` for the inputs, and returns the outputs.
    pub fn inline(&self, into: &mut Graph, args: &[Value]) -> Result<Vec<Value>> {
        // The argument of a dead input may be invalid.
        let same = |(&v, &a): (&Value, &Value)| into.values.get(a.0 as usize).is_none_or(|x| x.ty == *self.ty(v));
        if args.len() == self.inputs.len() && self.inputs.iter().zip(args).all(same) {
            return self.inline_with(args, |node, operands| {
                Ok(into.push_like(self, node, node.op.clone(), operands, node.loc.clone()))
            });
        }
        self.inline_with(args, |node, operands| into.push(node.op.clone(), operands, node.loc.clone()))
    }

    /// Calls `emit` for every live node with its operands mapped, and returns the mapped outputs.
    pub fn inline_with(
        &self,
        args: &[Value],
        mut emit: impl FnMut(&Node, &[Value]) -> Result<Values>,
    ) -> Result<Vec<Value>> {
        if args.len() != self.inputs.len() {
            return Err(Error::Invalid(format!(
                "the graph has {} inputs, but {} arguments were given",
                self.inputs.len(),
                args.len()
            )));
        }
        let live = self.live_values();
        let mut map = vec![Value(u32::MAX); self.values.len()];
        for (v, a) in self.inputs.iter().zip(args) {
            map[v.0 as usize] = *a;
        }
        for node in &self.nodes {
            if !node.outs.iter().any(|v| live[v.0 as usize]) {
                continue;
            }
            let operands: Values = node.args.iter().map(|a| map[a.0 as usize]).collect();
            let outs = emit(node, &operands)?;
            for (v, o) in node.outs.iter().zip(outs) {
                map[v.0 as usize] = o;
            }
        }
        Ok(self.outputs.iter().map(|v| map[v.0 as usize]).collect())
    }

    /// Removes nodes that no output depends on; inputs are kept.
    pub fn without_dead_nodes(&self) -> Graph {
        let (mut g, inputs) = self.with_inputs_of();
        g.outputs = self.inline(&mut g, &inputs).expect("a valid graph stays valid");
        g
    }

    /// Like [`Graph::without_dead_nodes`], but without a copy if there are none.
    pub fn pruned(self) -> Graph {
        let live = self.live_values();
        let used = |node: &Node| node.outs.iter().any(|v| live[v.0 as usize]);
        if self.nodes.iter().all(used) { self } else { self.without_dead_nodes() }
    }

    /// The same function without unused inputs, and flags for the inputs that remain.
    pub fn without_dead_inputs(&self) -> (Graph, Vec<bool>) {
        let used = self.used_inputs();
        let mut g = Graph::new();
        // `inline` does not read dead inputs, so any value may replace them.
        let args: Vec<Value> = (self.inputs.iter().zip(&used))
            .map(|(&v, &u)| if u { g.input(self.ty(v).clone()) } else { Value(u32::MAX) })
            .collect();
        let outs = self.inline(&mut g, &args).expect("a valid graph stays valid");
        g.set_outputs(outs);
        (g, used)
    }

    /// A hash of the function that the graph computes, independent of the numbering of values and the order of nodes.
    pub fn structural_hash(&self) -> u64 {
        let live = self.live_values();
        let mut hashes = vec![0u64; self.values.len()];
        for (i, v) in self.inputs.iter().enumerate() {
            hashes[v.0 as usize] = hash_of(&(0u8, i, self.ty(*v)));
        }
        for node in &self.nodes {
            if !node.outs.iter().any(|v| live[v.0 as usize]) {
                continue;
            }
            let args: Vec<u64> = node.args.iter().map(|a| hashes[a.0 as usize]).collect();
            let base = hash_of(&(1u8, &node.op, args));
            for (k, v) in node.outs.iter().enumerate() {
                hashes[v.0 as usize] = hash_of(&(2u8, base, k));
            }
        }
        let outs: Vec<u64> = self.outputs.iter().map(|v| hashes[v.0 as usize]).collect();
        hash_of(&(3u8, self.input_types(), outs))
    }
}

fn hash_of(x: &impl Hash) -> u64 {
    let mut h = rustc_hash::FxHasher::default();
    x.hash(&mut h);
    h.finish()
}

/// Two graphs are equal if they have the same nodes in the same order; source locations are ignored.
impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.inputs == other.inputs
            && self.outputs == other.outputs
            && self.values == other.values
            && self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(|(a, b)| a.args == b.args && a.outs == b.outs && a.op == b.op)
    }
}

impl Eq for Graph {}

impl Hash for Graph {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.structural_hash().hash(state);
    }
}
