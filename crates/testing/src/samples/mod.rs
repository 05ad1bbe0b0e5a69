//! The table of ops: sample graphs for every op and composite, with inputs that cover edge cases: broadcasting, axes of size
//! zero, rank 0, ties, special values, reversed axes, all dtypes.
//!
//! There is one file per family of ops. A test checks that every op of the text form and every composite of
//! the library has a sample.

mod composites;
mod control;
mod elementwise;
mod indexing;
mod linear;
mod routines;
mod sharded;
mod view;
mod windows;

use crate::{FillKind, Rng};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Type, Value};

/// A sample: a graph with inputs.
#[derive(Clone, Debug)]
pub struct OpSample {
    /// `op/variant`.
    pub name: String,
    /// The graph.
    pub graph: Graph,
    /// Suitable inputs.
    pub inputs: Vec<Literal>,
    /// Whether the function is smooth near the f64 inputs, so that finite differences give its derivative.
    pub smooth: bool,
    /// Whether only forward mode is supported: a `while` has no reverse mode.
    pub forward_only: bool,
}

impl OpSample {
    /// The op or composite that this sample tests.
    pub fn op(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }
}

/// All samples.
pub fn all_samples() -> Vec<OpSample> {
    seeded_samples(0x07ac1e)
}

/// All samples, with random inputs for a seed.
pub fn seeded_samples(seed: u64) -> Vec<OpSample> {
    let mut table = SampleTable { rows: Vec::new(), rng: Rng::new(seed) };
    elementwise::rows(&mut table);
    view::rows(&mut table);
    linear::rows(&mut table);
    windows::rows(&mut table);
    indexing::rows(&mut table);
    routines::rows(&mut table);
    control::rows(&mut table);
    composites::rows(&mut table);
    sharded::rows(&mut table);
    // All samples use one generator; a sample at the end does not change the numbers of the others.
    elementwise::unary(&mut table, ir::Unary::Log10);
    table.rows
}

/// The table under construction.
pub struct SampleTable {
    rows: Vec<OpSample>,
    rng: Rng,
}

impl SampleTable {
    /// Adds a sample whose graph `build` creates; the last fill repeats for further inputs.
    fn graph(
        &mut self,
        name: &str,
        types: &[&str],
        fills: &[FillKind],
        smooth: bool,
        build: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Vec<Value>>,
    ) {
        let types: Vec<Type> = types.iter().map(|t| parse_type(t)).collect();
        let inputs = types
            .iter()
            .enumerate()
            .map(|(i, t)| fills[i.min(fills.len() - 1)].random_tensor(t, &mut self.rng))
            .collect();
        let mut b = Builder::new();
        let args: Vec<Value> = types.into_iter().map(|t| b.graph.input(t)).collect();
        let outs = build(&mut b, &args).unwrap_or_else(|e| panic!("row {name}: {e}"));
        self.rows.push(OpSample {
            name: name.to_string(),
            graph: b.finish(&outs),
            inputs,
            smooth,
            forward_only: false,
        });
    }

    /// Marks the last sample as forward mode only.
    fn forward_only(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.forward_only = true;
        }
    }

    /// Adds a sample of one op that finite differences can check.
    fn smooth(&mut self, name: &str, op: impl Into<Op>, types: &[&str], fill: FillKind) {
        let op = op.into();
        self.graph(name, types, &[fill], true, |b, x| Ok(b.emit(op, x)?.to_vec()));
    }

    /// Adds a sample of one op.
    fn plain(&mut self, name: &str, op: impl Into<Op>, types: &[&str], fills: &[FillKind]) {
        let op = op.into();
        self.graph(name, types, fills, false, |b, x| Ok(b.emit(op, x)?.to_vec()));
    }

    /// Adds a sample with given inputs.
    fn with(&mut self, name: &str, op: impl Into<Op>, inputs: Vec<Literal>) {
        let mut b = Builder::new();
        let args: Vec<Value> = inputs.iter().map(|x| b.graph.input(x.ty().clone())).collect();
        let outs = b.emit(op.into(), &args).unwrap_or_else(|e| panic!("row {name}: {e}"));
        self.rows.push(OpSample {
            name: name.to_string(),
            graph: b.finish(&outs),
            inputs,
            smooth: false,
            forward_only: false,
        });
    }
}

/// Parses `f32[2,3]`.
fn parse_type(text: &str) -> Type {
    let (dtype, shape) = text.trim_end_matches(']').split_once('[').expect("a type is dtype[sizes]");
    let shape: Vec<usize> = shape.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().expect("a size")).collect();
    Type::new(dtype.parse().expect("a dtype"), &shape)
}

const FLOATS: [DType; 6] = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2];
const INTS: [DType; 8] = [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];
