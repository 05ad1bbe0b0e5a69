//! Random graphs: every op and dtype that type-checks, views of views, axes of size zero, loops with random bodies,
//! composites.
//!
//! The generator evaluates each op when it adds it. So it knows the data of all values, and in [`SampleOptions::smooth`] mode
//! it avoids kinks, poles and overflow: finite differences can then check the derivatives. An op that
//! does not fit is not added, and another one is tried.

mod array;
mod control;
mod domain;
mod elementwise;
mod exact;
mod indexing;
mod integers;
mod routines;
pub mod sharded;
mod shrink;

pub use exact::exact_expressions;
pub use integers::integer_expressions;
pub use shrink::shrink;

use crate::{FillKind, Rng};
use ir::ops::ReduceKind;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Scalar, Type, Unary, Value, interp};

/// The options of a random graph.
#[derive(Clone, Copy, Debug)]
pub struct SampleOptions {
    /// The number of ops to try.
    pub steps: usize,
    /// Generates differentiable functions of f64, at points where they are smooth.
    pub smooth: bool,
    /// The maximum number of elements of a value.
    pub max_numel: usize,
    /// The maximum nesting of sub-graphs.
    pub depth: usize,
}

impl SampleOptions {
    /// All ops, all dtypes.
    pub const ANY: SampleOptions = SampleOptions { steps: 10, smooth: false, max_numel: 48, depth: 2 };
    /// The options for finite differences.
    pub const SMOOTH: SampleOptions = SampleOptions { steps: 9, smooth: true, max_numel: 24, depth: 2 };
}

/// A random graph with inputs.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The seed that it was generated from.
    pub seed: u64,
    /// The graph.
    pub graph: Graph,
    /// Suitable inputs.
    pub inputs: Vec<Literal>,
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {} gives {}", self.seed, self.graph)
    }
}

/// The graph for a seed.
pub fn sample(seed: u64, options: &SampleOptions) -> Sample {
    let mut rng = Rng::new(seed);
    let count = 1 + rng.below(3);
    let inputs: Vec<Literal> = (0..count)
        .map(|i| {
            let ty = Type::new(input_dtype(&mut rng, options, i), &random_shape(&mut rng, options));
            let fill = match rng.below(4) {
                _ if options.smooth => FillKind::Smooth,
                0 => FillKind::Special,
                1 => FillKind::Duplicates,
                _ => FillKind::Smooth,
            };
            fill.random_tensor(&ty, &mut rng)
        })
        .collect();
    let mut g = GraphGenerator::new(inputs.clone(), rng, options, options.depth);
    g.grow(options.steps);
    let outs = g.outputs();
    Sample { seed, graph: g.b.finish(&outs), inputs }
}

fn input_dtype(rng: &mut Rng, options: &SampleOptions, index: usize) -> DType {
    match options.smooth {
        true if index > 0 && rng.bernoulli(0.15) => *rng.pick(&[DType::I32, DType::Bool]),
        true => DType::F64,
        false if rng.bernoulli(0.4) => *rng.pick(&[DType::F32, DType::F64, DType::I32]),
        false => *rng.pick(&DType::ALL),
    }
}

fn random_shape(rng: &mut Rng, options: &SampleOptions) -> Vec<usize> {
    let rank = *rng.pick(&[0, 1, 1, 2, 2, 2, 3]);
    let mut shape: Vec<usize> = (0..rank)
        .map(|_| *rng.pick(if options.smooth { &[1, 2, 2, 3, 3] } else { &[0, 1, 1, 2, 2, 3, 3, 4] }))
        .collect();
    if options.smooth && rng.bernoulli(0.02) && rank > 0 {
        shape[0] = 0;
    }
    shape
}

/// A generator of an op: its weight, whether it is for smooth graphs too, and the function that tries it.
type Move = (u32, bool, fn(&mut GraphGenerator) -> Option<()>);

/// A graph under construction, with the data of each of its values.
struct GraphGenerator<'a> {
    b: Builder,
    data: Vec<Literal>,
    /// Private results of composites, which no op may read.
    private: Vec<Value>,
    rng: Rng,
    options: &'a SampleOptions,
    /// The remaining nesting of sub-graphs.
    depth: usize,
    /// Whether it is inside a body, which runs on other data than the sample, so that only globally smooth ops are allowed.
    inner: bool,
}

impl<'a> GraphGenerator<'a> {
    fn new(inputs: Vec<Literal>, rng: Rng, options: &'a SampleOptions, depth: usize) -> GraphGenerator<'a> {
        let mut b = Builder::new();
        for x in &inputs {
            b.graph.input(x.ty().clone());
        }
        GraphGenerator { b, data: inputs, private: Vec::new(), rng, options, depth, inner: depth < options.depth }
    }

    fn grow(&mut self, steps: usize) {
        let moves: Vec<Move> = [elementwise::MOVES, array::MOVES, indexing::MOVES, routines::MOVES, control::MOVES]
            .concat()
            .into_iter()
            .filter(|m| m.1 || !self.options.smooth)
            .collect();
        let total: u32 = moves.iter().map(|m| m.0).sum();
        for _ in 0..steps {
            let mut at = self.rng.below(total as usize) as u32;
            let mut chosen = moves[0].2;
            for (weight, _, f) in &moves {
                if at < *weight {
                    chosen = *f;
                    break;
                }
                at -= weight;
            }
            chosen(self);
        }
    }

    fn smooth(&self) -> bool {
        self.options.smooth
    }

    fn ty(&self, v: Value) -> Type {
        self.data[v.0 as usize].ty().clone()
    }

    fn lit(&self, v: Value) -> &Literal {
        &self.data[v.0 as usize]
    }

    /// Adds an op if it fits, is small enough, and (in smooth mode) is smooth here.
    fn emit(&mut self, op: impl Into<Op>, args: &[Value]) -> Option<Vec<Value>> {
        let op = op.into();
        let types: Vec<Type> = args.iter().map(|&a| self.ty(a)).collect();
        let outs = op.infer(&types).ok()?;
        if outs.iter().any(|t| t.numel() > self.options.max_numel || t.rank() > 5) {
            return None;
        }
        let operands: Vec<Literal> = args.iter().map(|&a| self.lit(a).clone()).collect();
        let results = interp::eval(&op, &operands, &outs).unwrap_or_else(|e| {
            panic!("{} typed {types:?} -> {outs:?}, but it does not run: {e}", op.name());
        });
        if self.smooth() && !(domain::tame(&results) && domain::away_from_kinks(&op, &operands, &results, self.inner)) {
            return None;
        }
        let public = match &op {
            Op::Composite(c) => c.num_public_outputs,
            _ => results.len(),
        };
        let values = self.b.emit(op, args).expect("inference passed");
        self.data.extend(results);
        self.private.extend(&values[public..]);
        Some(values[..public].to_vec())
    }

    fn one(&mut self, op: impl Into<Op>, args: &[Value]) -> Option<Value> {
        self.emit(op, args).map(|v| v[0])
    }

    /// A constant.
    fn constant(&mut self, literal: Literal) -> Option<Value> {
        self.one(ir::ops::Const(literal), &[])
    }

    /// A random value that satisfies a condition, recent ones with higher probability.
    fn pick(&mut self, ok: impl Fn(&Type) -> bool) -> Option<Value> {
        let fitting: Vec<Value> = (0..self.data.len())
            .map(|i| Value(i as u32))
            .filter(|v| ok(self.lit(*v).ty()) && !self.private.contains(v))
            .collect();
        if fitting.is_empty() {
            return None;
        }
        let last = fitting.len() - 1;
        let back = self.rng.below(fitting.len()).min(self.rng.below(fitting.len()));
        Some(fitting[last - back])
    }

    /// A random value, of f64 in smooth mode.
    fn any(&mut self) -> Option<Value> {
        let smooth = self.smooth();
        self.pick(|t| !smooth || t.dtype == DType::F64)
    }

    /// A value of this type: an existing one, one that is converted, or a constant.
    fn like(&mut self, ty: &Type) -> Option<Value> {
        if self.rng.bernoulli(0.6)
            && let Some(v) = self.pick(|t| t == ty)
        {
            return Some(v);
        }
        if self.rng.bernoulli(0.7)
            && let Some(v) = self.any()
            && let Some(v) = self.coerce(v, ty)
        {
            return Some(v);
        }
        let fill = if self.smooth() {
            FillKind::Smooth
        } else {
            *self.rng.pick(&[FillKind::Smooth, FillKind::Special, FillKind::Duplicates])
        };
        let literal = fill.random_tensor(ty, &mut self.rng);
        self.constant(literal)
    }

    /// Converts a value to a type by a cast and views.
    fn coerce(&mut self, v: Value, ty: &Type) -> Option<Value> {
        let mut v = v;
        if self.ty(v).dtype != ty.dtype {
            // In smooth mode a cast from f64 would remove the derivative.
            if self.smooth() && self.ty(v).dtype == DType::F64 {
                return None;
            }
            v = self.one(ir::ops::Cast(ty.dtype), &[v])?;
        }
        let have = self.ty(v);
        if have.shape == ty.shape {
            return Some(v);
        }
        if have.numel() == ty.numel() {
            return self.one(ir::ops::Reshape { shape: ty.shape.clone() }, &[v]);
        }
        let shift = ty.rank().checked_sub(have.rank());
        let fits = shift.is_some_and(|s| {
            let pairs = have.shape.iter().zip(&ty.shape[s..]);
            pairs.clone().all(|(a, b)| a == b || *a == 1)
        });
        if fits {
            let s = shift?;
            let dims = (s..ty.rank()).collect();
            return self.one(ir::ops::Broadcast { shape: ty.shape.clone(), dims }, &[v]);
        }
        if have.dtype == DType::Bool {
            return None;
        }
        let axes = (0..have.rank()).collect();
        let total = self.one(ir::ops::Reduce { kind: ReduceKind::Sum, axes }, &[v])?;
        self.one(ir::ops::Broadcast { shape: ty.shape.clone(), dims: Default::default() }, &[total])
    }

    /// Selects the outputs: the latest suitable values.
    fn outputs(&mut self) -> Vec<Value> {
        let n = 1 + self.rng.below(3);
        let smooth = self.smooth();
        let mut outs: Vec<Value> = (0..self.data.len() as u32)
            .rev()
            .map(Value)
            .filter(|&v| (!smooth || self.ty(v).dtype == DType::F64) && !self.private.contains(&v))
            .take(n)
            .collect();
        if self.rng.bernoulli(0.1) {
            outs.extend(self.pick(|_| true));
        }
        outs
    }

    /// A body from inputs of these samples to outputs of these types. In smooth mode floats are bounded, because a body may
    /// run many times on its own results.
    fn body(&mut self, inputs: Vec<Literal>, outs: &[Type]) -> Option<Graph> {
        let depth = self.depth.checked_sub(1)?;
        let steps = 2 + self.rng.below(4);
        let fork = Rng::new(self.rng.bits());
        let mut g = GraphGenerator::new(inputs, fork, self.options, depth);
        g.grow(steps);
        let mut values = Vec::with_capacity(outs.len());
        for ty in outs {
            let mut v = g.like(ty)?;
            if self.smooth() && ty.dtype == DType::F64 && g.rng.bernoulli(0.9) {
                v = g.one(Unary::Tanh, &[v])?;
            }
            values.push(v);
        }
        Some(g.b.finish(&values))
    }

    fn axis(&mut self, rank: usize) -> Option<usize> {
        (rank > 0).then(|| self.rng.below(rank))
    }

    /// A random subset of the axes, in increasing order.
    fn some_axes(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|_| self.rng.bernoulli(0.5)).collect()
    }

    fn full(&mut self, like: Value, x: f64) -> Option<Value> {
        let ty = self.ty(like);
        let c = self.constant(Literal::scalar(Scalar::from_f64(ty.dtype, x)))?;
        self.one(ir::ops::Broadcast { shape: ty.shape, dims: Default::default() }, &[c])
    }
}
