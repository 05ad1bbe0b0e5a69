//! The table of ops: sample graphs for every op and composite, with inputs that matter: broadcasting, axes of size
//! zero, rank 0, ties, special values, reversed axes, all dtypes.
//!
//! One file per family holds the rows of its ops. A test holds that every op of the text form and every composite of
//! the library has a row.

mod composites;
mod control;
mod elementwise;
mod indexing;
mod linear;
mod routines;
mod sharded;
mod view;
mod windows;

use crate::{Fill, Rng};
use ir::{Build, Builder, DType, Graph, Literal, Op, Type, Value};

/// A sample: a graph with inputs.
#[derive(Clone, Debug)]
pub struct Row {
    /// `op/variant`.
    pub name: String,
    /// The graph.
    pub graph: Graph,
    /// Inputs that fit it.
    pub inputs: Vec<Literal>,
    /// Whether the function is smooth around the f64 inputs, so that finite differences give its derivative.
    pub smooth: bool,
    /// Forward mode alone: a `while` has no reverse mode.
    pub forward_only: bool,
}

impl Row {
    /// The op or composite that this row is about.
    pub fn op(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }
}

/// Every row.
pub fn all() -> Vec<Row> {
    drawn(0x07ac1e)
}

/// Every row, with the random inputs of a seed.
pub fn drawn(seed: u64) -> Vec<Row> {
    let mut table = Table { rows: Vec::new(), rng: Rng::new(seed) };
    elementwise::rows(&mut table);
    view::rows(&mut table);
    linear::rows(&mut table);
    windows::rows(&mut table);
    indexing::rows(&mut table);
    routines::rows(&mut table);
    control::rows(&mut table);
    composites::rows(&mut table);
    sharded::rows(&mut table);
    // All rows draw from one generator: at the end, the numbers of the others stay.
    elementwise::unary(&mut table, ir::Unary::Log10);
    table.rows
}

/// Rows under construction.
pub struct Table {
    rows: Vec<Row>,
    rng: Rng,
}

impl Table {
    /// A row whose graph `build` writes; the last fill repeats for further inputs.
    fn graph(
        &mut self,
        name: &str,
        types: &[&str],
        fills: &[Fill],
        smooth: bool,
        build: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Vec<Value>>,
    ) {
        let types: Vec<Type> = types.iter().map(|t| parse_type(t)).collect();
        let inputs =
            types.iter().enumerate().map(|(i, t)| fills[i.min(fills.len() - 1)].of(t, &mut self.rng)).collect();
        let mut b = Builder::new();
        let args: Vec<Value> = types.into_iter().map(|t| b.graph.input(t)).collect();
        let outs = build(&mut b, &args).unwrap_or_else(|e| panic!("row {name}: {e}"));
        self.rows.push(Row { name: name.to_string(), graph: b.finish(&outs), inputs, smooth, forward_only: false });
    }

    /// The last row has forward mode alone.
    fn forward_only(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.forward_only = true;
        }
    }

    /// A row of one op that finite differences may judge.
    fn smooth(&mut self, name: &str, op: impl Into<Op>, types: &[&str], fill: Fill) {
        let op = op.into();
        self.graph(name, types, &[fill], true, |b, x| Ok(b.emit(op, x)?.to_vec()));
    }

    /// A row of one op.
    fn plain(&mut self, name: &str, op: impl Into<Op>, types: &[&str], fills: &[Fill]) {
        let op = op.into();
        self.graph(name, types, fills, false, |b, x| Ok(b.emit(op, x)?.to_vec()));
    }

    /// A row with given inputs.
    fn with(&mut self, name: &str, op: impl Into<Op>, inputs: Vec<Literal>) {
        let mut b = Builder::new();
        let args: Vec<Value> = inputs.iter().map(|x| b.graph.input(x.ty().clone())).collect();
        let outs = b.emit(op.into(), &args).unwrap_or_else(|e| panic!("row {name}: {e}"));
        self.rows.push(Row {
            name: name.to_string(),
            graph: b.finish(&outs),
            inputs,
            smooth: false,
            forward_only: false,
        });
    }
}

/// `f32[2,3]`.
fn parse_type(text: &str) -> Type {
    let (dtype, shape) = text.trim_end_matches(']').split_once('[').expect("a type is dtype[sizes]");
    let shape: Vec<usize> = shape.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().expect("a size")).collect();
    Type::new(dtype.parse().expect("a dtype"), &shape)
}

const FLOATS: [DType; 6] = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2];
const INTS: [DType; 8] = [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];
