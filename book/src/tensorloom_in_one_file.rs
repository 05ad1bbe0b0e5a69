//! Tensorloom in one file: a tensor compiler with automatic differentiation, small enough to read from top to bottom.
//!
//! The program has the same parts as the project, under the same names, in the order in which data passes through them:
//!
//! | section | what it does | the real code |
//! | --- | --- | --- |
//! | 1. Ops | types, and the rules of each op | `crates/ir/src/ops/` |
//! | 2. Graph | typed values in SSA form, and a builder | `crates/ir/src/graph.rs`, `crates/ir/src/build.rs` |
//! | 3. Interpreter | the reference result of every graph | `crates/ir/src/interp.rs` |
//! | 4. jvp | forward-mode differentiation | `crates/transform/src/jvp.rs` |
//! | 5. partial_eval | separates known from unknown computation | `crates/transform/src/partial_eval.rs` |
//! | 6. transpose, grad | reverse-mode differentiation | `crates/transform/src/transpose.rs`, `reverse.rs` |
//! | 7. vmap | batching | `crates/transform/src/vmap.rs` |
//! | 8. simplify | algebra, and common subexpressions | `crates/compiler/src/passes/` |
//! | 9. loops | the kernel IR, its printer and evaluator | `crates/compiler/src/loops/` |
//! | 10. fuse | a graph becomes a program of fused kernels | `crates/compiler/src/fuse/` |
//! | 11. Training | a multilayer perceptron | `crates/train/src/` |
//!
//! This program is smaller in size only: it has one dtype and thirteen ops, each node has one result, and an evaluator runs
//! the loops where the project emits machine code (`crates/cpu/src/codegen/`), CUDA or WGSL (`crates/gpu/src/`).
//!
//! Run it with `cargo run --example tensorloom_in_one_file`, or compile the file alone, since it has no dependencies:
//! `rustc --edition 2024 -O tensorloom_in_one_file.rs`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An error is a sentence that names the op, the shapes, and what would fit.
type Result<T> = std::result::Result<T, String>;

fn check(fits: bool, message: impl FnOnce() -> String) -> Result<()> {
    if fits { Ok(()) } else { Err(message()) }
}

// ---- 1. Ops (crates/ir/src/ops/mod.rs) ------------------------------------------------------------------------------
//
// An op is a pure function of tensors. Everything that the rest of the program knows about an op is one of its rules:
//
//   infer      the shape of the result, or an error
//   semantics  what the op computes, as data for the interpreter and the compiler
//   jvp        the tangent of the result, from the tangents of the operands      (section 4)
//   transpose  the cotangents of the operands, from the cotangent of the result  (section 6)
//   batch      the op over a batch of operands                                   (section 7)
//
// Every rule is a `match` over all ops, so an op without a rule does not compile.

/// The size of each axis. Every element is an f64.
type Shape = Vec<usize>;

/// The number of elements.
fn numel(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The distance in elements between neighbours along each axis, in row-major order.
fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|axis| numel(&shape[axis + 1..])).collect()
}

/// The permutation that undoes another.
fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(i, &a)| inverse[a] = i);
    inverse
}

/// A transform takes a flag for each input of a graph.
fn check_flags(graph: &Graph, flags: &[bool]) -> Result<()> {
    check(flags.len() == graph.inputs.len(), || format!("{} flags for {} inputs", flags.len(), graph.inputs.len()))
}

/// The axes that are not in `axes`.
fn others(axes: &[usize], rank: usize) -> Vec<usize> {
    (0..rank).filter(|a| !axes.contains(a)).collect()
}

/// The elements at these positions.
fn pick<T: Clone>(from: &[T], at: &[usize]) -> Vec<T> {
    at.iter().map(|&i| from[i].clone()).collect()
}

/// A function of scalars.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ScalarOp {
    Neg,
    Exp,
    Log,
    Tanh,
    Add,
    Mul,
    /// 1 where the first operand is greater, else 0.
    Greater,
    /// The second operand where the first is not 0, else the third.
    Select,
}

impl ScalarOp {
    fn arity(self) -> usize {
        match self {
            ScalarOp::Neg | ScalarOp::Exp | ScalarOp::Log | ScalarOp::Tanh => 1,
            ScalarOp::Add | ScalarOp::Mul | ScalarOp::Greater => 2,
            ScalarOp::Select => 3,
        }
    }

    /// The value for operands `x`, of which there are `arity`.
    fn eval(self, x: &[f64]) -> f64 {
        match self {
            ScalarOp::Neg => -x[0],
            ScalarOp::Exp => x[0].exp(),
            ScalarOp::Log => x[0].ln(),
            ScalarOp::Tanh => x[0].tanh(),
            ScalarOp::Add => x[0] + x[1],
            ScalarOp::Mul => x[0] * x[1],
            ScalarOp::Greater => f64::from(u8::from(x[0] > x[1])),
            ScalarOp::Select => x[if x[0] != 0.0 { 1 } else { 2 }],
        }
    }
}

/// An op with its attributes. The project has a struct per op; here all are variants of one enum.
#[derive(Clone, Debug, PartialEq)]
enum Op {
    /// A scalar, of rank 0.
    Constant(f64),
    /// A function of scalars, element by element. Operands have equal shapes.
    Scalar(ScalarOp),
    /// The sum over these axes, which disappear from the shape.
    ReduceSum(Vec<usize>),
    /// Operand axis `i` is result axis `dims[i]`; the operand is repeated along the other axes.
    Broadcast { shape: Shape, dims: Vec<usize> },
    /// Result axis `i` is operand axis `perm[i]`.
    Permute(Vec<usize>),
    /// Matrix products `[.., m, k] · [.., k, n] = [.., m, n]` over this many leading batch axes.
    Dot { batch: usize },
}

/// What an op computes, as data. The interpreter and the compiler read this and nothing else.
enum Semantics {
    /// The same value everywhere.
    Constant(f64),
    /// Each element of the result is this function of the operands' elements at the same index.
    Elementwise(ScalarOp),
    /// A sum over axes.
    Reduce(Vec<usize>),
    /// Axis `i` of the operand is axis `dims[i]` of the result; the other axes repeat.
    View(Vec<usize>),
    /// A tensor contraction.
    DotGeneral,
}

/// An operand during transposition: a value, or an operand in which the op is linear and of which only the shape is known.
enum Arg {
    Known(Value),
    Linear(Shape),
}

/// Tangents or cotangents; `None` is a symbolic zero, for which nothing is computed.
type Tangents = Vec<Option<Value>>;

impl Op {
    fn semantics(&self) -> Semantics {
        match self {
            Op::Constant(c) => Semantics::Constant(*c),
            Op::Scalar(op) => Semantics::Elementwise(*op),
            Op::ReduceSum(axes) => Semantics::Reduce(axes.clone()),
            Op::Broadcast { dims, .. } => Semantics::View(dims.clone()),
            Op::Permute(perm) => Semantics::View(inverse(perm)),
            Op::Dot { .. } => Semantics::DotGeneral,
        }
    }

    /// The shape of the result. Any operands give a shape or an error, never a panic.
    fn infer(&self, args: &[Shape]) -> Result<Shape> {
        let arity = match self {
            Op::Constant(_) => 0,
            Op::Scalar(op) => op.arity(),
            Op::ReduceSum(_) | Op::Broadcast { .. } | Op::Permute(_) => 1,
            Op::Dot { .. } => 2,
        };
        check(args.len() == arity, || format!("{self} takes {arity} operands, got {}", args.len()))?;
        let x = args.first().cloned().unwrap_or_default();
        let distinct = |axes: &[usize], rank: usize| {
            let fits = axes.iter().collect::<BTreeSet<_>>().len() == axes.len() && axes.iter().all(|&a| a < rank);
            check(fits, || format!("{self}: axes must be distinct and below {rank}"))
        };
        Ok(match self {
            Op::Constant(_) => vec![],
            Op::Scalar(_) => {
                let other = args.iter().find(|shape| **shape != x).unwrap_or(&x);
                check(*other == x, || format!("{self}: shapes {x:?} and {other:?} differ; broadcast one of them"))?;
                x
            }
            Op::ReduceSum(axes) => {
                distinct(axes, x.len())?;
                pick(&x, &others(axes, x.len()))
            }
            Op::Broadcast { shape, dims } => {
                distinct(dims, shape.len())?;
                let fits = dims.is_sorted() && pick(shape, dims) == x;
                check(fits, || format!("{self}: {x:?} must be the sizes of axes {dims:?}, in order"))?;
                shape.clone()
            }
            Op::Permute(perm) => {
                distinct(perm, x.len())?;
                check(perm.len() == x.len(), || format!("{self}: {x:?} has {} axes; name each once", x.len()))?;
                pick(&x, perm)
            }
            Op::Dot { batch: n } => {
                let (y, n) = (&args[1], *n);
                let fits = x.len() == n + 2 && y.len() == n + 2 && x[..n] == y[..n] && x[n + 1] == y[n];
                check(fits, || format!("{self}: {x:?} · {y:?} needs shapes [.., m, k] and [.., k, n]"))?;
                [&x[..=n], &y[n + 1..]].concat()
            }
        })
    }

    /// The tangent of the result `y`, given operands `x` and their tangents `dx`, at least one of which is not zero.
    /// The tangent is linear in `dx`.
    fn jvp(&self, b: &GraphBuilder, x: &[Value], dx: &[Option<Value>], y: Value) -> Result<Option<Value>> {
        let emit = |x, y| b.emit(self.clone(), &[x, y]);
        // A function of one argument: its derivative, times the tangent.
        let chain = |derivative: Value| dx[0].map(|d| b.mul(d, derivative)).transpose();
        match self {
            Op::Constant(_) | Op::Scalar(ScalarOp::Greater) => Ok(None),
            // Linear functions are their own derivative.
            Op::Scalar(ScalarOp::Neg) | Op::ReduceSum(_) | Op::Broadcast { .. } | Op::Permute(_) => {
                dx[0].map(|d| b.emit(self.clone(), &[d])).transpose()
            }
            Op::Scalar(ScalarOp::Add) => b.add_opt(dx[0], dx[1]),
            // Products: d(x·y) = dx·y + x·dy
            Op::Scalar(ScalarOp::Mul) | Op::Dot { .. } => {
                let left = dx[0].map(|d| emit(d, x[1])).transpose()?;
                b.add_opt(left, dx[1].map(|d| emit(x[0], d)).transpose()?)
            }
            // exp' = exp
            Op::Scalar(ScalarOp::Exp) => chain(y),
            // log'(x) = 1/x = exp(−log x)
            Op::Scalar(ScalarOp::Log) => chain(b.exp(b.neg(y)?)?),
            // tanh' = 1 − tanh²
            Op::Scalar(ScalarOp::Tanh) => chain(b.sub(b.full_like(y, 1.0)?, b.mul(y, y)?)?),
            Op::Scalar(ScalarOp::Select) if dx[1].or(dx[2]).is_none() => Ok(None),
            Op::Scalar(ScalarOp::Select) => {
                let zero = b.full_like(y, 0.0)?;
                b.select(x[0], dx[1].unwrap_or(zero), dx[2].unwrap_or(zero)).map(Some)
            }
        }
    }

    /// The cotangents of the linear operands, given the cotangent `ct` of the result.
    fn transpose(&self, b: &GraphBuilder, args: &[Arg], ct: Value) -> Result<Tangents> {
        let emit = |x, y| b.emit(self.clone(), &[x, y]);
        Ok(match (self, args) {
            (Op::Scalar(ScalarOp::Neg), [Arg::Linear(_)]) => vec![Some(b.neg(ct)?)],
            (Op::Scalar(ScalarOp::Add), args) => {
                args.iter().map(|a| matches!(a, Arg::Linear(_)).then_some(ct)).collect()
            }
            (Op::Scalar(ScalarOp::Mul), [Arg::Linear(_), Arg::Known(x)]) => vec![Some(b.mul(ct, *x)?), None],
            (Op::Scalar(ScalarOp::Mul), [Arg::Known(x), Arg::Linear(_)]) => vec![None, Some(b.mul(*x, ct)?)],
            (Op::Scalar(ScalarOp::Select), [Arg::Known(c), on_true, on_false]) => {
                let zero = b.full_like(ct, 0.0)?;
                let first = matches!(on_true, Arg::Linear(_)).then(|| b.select(*c, ct, zero)).transpose()?;
                let second = matches!(on_false, Arg::Linear(_)).then(|| b.select(*c, zero, ct)).transpose()?;
                vec![None, first, second]
            }
            // A sum repeats its cotangent, and a repetition sums its cotangents.
            (Op::ReduceSum(axes), [Arg::Linear(shape)]) => {
                vec![Some(b.broadcast(ct, shape, &others(axes, shape.len()))?)]
            }
            (Op::Broadcast { shape, dims }, [Arg::Linear(_)]) => {
                vec![Some(b.reduce_sum(ct, &others(dims, shape.len()))?)]
            }
            (Op::Permute(perm), [Arg::Linear(_)]) => vec![Some(b.permute(ct, &inverse(perm))?)],
            // For C = A·B: dA = dC·Bᵀ and dB = Aᵀ·dC.
            (Op::Dot { .. }, [Arg::Linear(_), Arg::Known(y)]) => vec![Some(emit(ct, b.transpose_matrix(*y)?)?), None],
            (Op::Dot { .. }, [Arg::Known(x), Arg::Linear(_)]) => vec![None, Some(emit(b.transpose_matrix(*x)?, ct)?)],
            _ => return Err(format!("{self} is not linear in the operands that it is transposed for")),
        })
    }

    /// The op over a batch of `size`. Operands marked in `batched` (one at least) have the batch axis in front, and so
    /// has the result.
    fn batch(&self, b: &GraphBuilder, x: &[Value], batched: &[bool], size: usize) -> Result<Value> {
        // Operands that are shared by the batch are repeated. This costs nothing: fusion looks through a broadcast.
        let mut args = Vec::new();
        for (&v, &has_batch) in x.iter().zip(batched) {
            args.push(if has_batch { v } else { b.repeat_front(v, size)? });
        }
        let shifted = |axes: &[usize]| axes.iter().map(|a| a + 1).collect::<Vec<_>>();
        let front = |first: usize, rest: &[usize]| [&[first], rest].concat();
        let op = match self {
            Op::Constant(_) | Op::Scalar(_) => self.clone(),
            Op::ReduceSum(axes) => Op::ReduceSum(shifted(axes)),
            Op::Broadcast { shape, dims } => {
                Op::Broadcast { shape: front(size, shape), dims: front(0, &shifted(dims)) }
            }
            Op::Permute(perm) => Op::Permute(front(0, &shifted(perm))),
            Op::Dot { batch } => Op::Dot { batch: batch + 1 },
        };
        b.emit(op, &args)
    }
}

// ---- 2. Graph (crates/ir/src/graph.rs, crates/ir/src/build.rs, crates/ir/src/text/print.rs) -------------------------
//
// A graph is a pure function of tensors in static single assignment form: each value is defined once, by an input or a
// node, and before it is used. Graphs are only ever appended to, so a transform is a function from graph to graph.

/// A value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Value(usize);

/// One op applied to values.
#[derive(Clone, Debug)]
struct Node {
    op: Op,
    args: Vec<Value>,
    out: Value,
}

/// A function of tensors.
#[derive(Clone, Debug, Default)]
struct Graph {
    /// The shape of each value.
    shapes: Vec<Shape>,
    inputs: Vec<Value>,
    /// In an order in which every operand is defined before its use.
    nodes: Vec<Node>,
    outputs: Vec<Value>,
}

impl Graph {
    fn shape(&self, v: Value) -> &Shape {
        &self.shapes[v.0]
    }

    fn input_shapes(&self) -> Vec<Shape> {
        self.inputs.iter().map(|&v| self.shape(v).clone()).collect()
    }

    fn node_of(&self, v: Value) -> Option<&Node> {
        self.nodes.iter().find(|node| node.out == v)
    }

    /// The nodes that the outputs depend on, in order. Every transform runs over these.
    fn live_nodes(&self) -> impl DoubleEndedIterator<Item = &Node> {
        let mut live = vec![false; self.shapes.len()];
        self.outputs.iter().for_each(|v| live[v.0] = true);
        for node in self.nodes.iter().rev() {
            let needed = live[node.out.0];
            node.args.iter().for_each(|a| live[a.0] |= needed);
        }
        self.nodes.iter().filter(move |node| live[node.out.0])
    }
}

/// Writes a graph, node by node. The graph is in a `RefCell` so that calls can be nested: `b.add(b.mul(x, y)?, z)?`.
#[derive(Default)]
struct GraphBuilder {
    graph: RefCell<Graph>,
}

impl GraphBuilder {
    fn define(&self, shape: Shape) -> Value {
        let shapes = &mut self.graph.borrow_mut().shapes;
        shapes.push(shape);
        Value(shapes.len() - 1)
    }

    fn input(&self, shape: &[usize]) -> Value {
        let v = self.define(shape.to_vec());
        self.graph.borrow_mut().inputs.push(v);
        v
    }

    fn shape(&self, v: Value) -> Shape {
        self.graph.borrow().shape(v).clone()
    }

    /// Appends a node after its operands' shapes have been checked.
    fn emit(&self, op: Op, args: &[Value]) -> Result<Value> {
        let shapes: Option<Vec<Shape>> = args.iter().map(|a| self.graph.borrow().shapes.get(a.0).cloned()).collect();
        let Some(shapes) = shapes else { return Err(format!("{op}: an operand is a value of another graph")) };
        let out = self.define(op.infer(&shapes)?);
        self.graph.borrow_mut().nodes.push(Node { op, args: args.to_vec(), out });
        Ok(out)
    }

    /// Writes another graph's nodes here, on these operands, and returns its outputs.
    fn inline(&self, graph: &Graph, args: &[Value]) -> Result<Vec<Value>> {
        let mut values = substitution(graph, args)?;
        for node in graph.live_nodes() {
            values[node.out.0] = self.emit(node.op.clone(), &all(&node.args, &values))?;
        }
        Ok(all(&graph.outputs, &values))
    }

    fn finish(self, outputs: &[Value]) -> Graph {
        Graph { outputs: outputs.to_vec(), ..self.graph.into_inner() }
    }

    fn sub(&self, x: Value, y: Value) -> Result<Value> {
        self.add(x, self.neg(y)?)
    }
    fn max(&self, x: Value, y: Value) -> Result<Value> {
        self.select(self.greater(x, y)?, x, y)
    }
    fn reduce_sum(&self, x: Value, axes: &[usize]) -> Result<Value> {
        self.emit(Op::ReduceSum(axes.to_vec()), &[x])
    }
    fn broadcast(&self, x: Value, shape: &[usize], dims: &[usize]) -> Result<Value> {
        self.emit(Op::Broadcast { shape: shape.to_vec(), dims: dims.to_vec() }, &[x])
    }
    fn permute(&self, x: Value, perm: &[usize]) -> Result<Value> {
        self.emit(Op::Permute(perm.to_vec()), &[x])
    }
    fn dot(&self, x: Value, y: Value) -> Result<Value> {
        self.emit(Op::Dot { batch: 0 }, &[x, y])
    }
    /// The last two axes exchanged.
    fn transpose_matrix(&self, x: Value) -> Result<Value> {
        let rank = self.shape(x).len();
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 2, rank - 1);
        self.permute(x, &perm)
    }
    fn full(&self, shape: &[usize], value: f64) -> Result<Value> {
        self.broadcast(self.emit(Op::Constant(value), &[])?, shape, &[])
    }
    fn full_like(&self, like: Value, value: f64) -> Result<Value> {
        self.full(&self.shape(like), value)
    }
    fn repeat_front(&self, x: Value, size: usize) -> Result<Value> {
        let shape = self.shape(x);
        let dims: Vec<usize> = (1..=shape.len()).collect();
        self.broadcast(x, &[&[size], &shape[..]].concat(), &dims)
    }

    /// The sum of two tangents, either of which may be a symbolic zero.
    fn add_opt(&self, x: Option<Value>, y: Option<Value>) -> Result<Option<Value>> {
        match (x, y) {
            (Some(x), Some(y)) => self.add(x, y).map(Some),
            (one, other) => Ok(one.or(other)),
        }
    }
}

/// A method of the builder for each scalar op.
macro_rules! scalar_ops {
    ($($name:ident($($arg:ident),*) = $op:ident;)*) => {
        impl GraphBuilder {
            $(fn $name(&self, $($arg: Value),*) -> Result<Value> {
                self.emit(Op::Scalar(ScalarOp::$op), &[$($arg),*])
            })*
        }
    };
}

scalar_ops! {
    neg(x) = Neg; exp(x) = Exp; log(x) = Log; tanh(x) = Tanh;
    add(x, y) = Add; mul(x, y) = Mul; greater(x, y) = Greater; select(condition, x, y) = Select;
}

/// What each value of a graph is in another, while a transform runs over its nodes: at first the inputs are known.
fn substitution(graph: &Graph, inputs: &[Value]) -> Result<Vec<Value>> {
    let (n, given) = (graph.inputs.len(), inputs.len());
    check(given == n, || format!("the graph has {n} inputs, got {given} operands"))?;
    let mut values = vec![Value(usize::MAX); graph.shapes.len()];
    graph.inputs.iter().zip(inputs).for_each(|(v, x)| values[v.0] = *x);
    Ok(values)
}

fn all<T: Clone>(of: &[Value], values: &[T]) -> Vec<T> {
    of.iter().map(|v| values[v.0].clone()).collect()
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Constant(c) => write!(f, "constant {c:?}"),
            Op::Scalar(op) => f.write_str(&format!("{op:?}").to_lowercase()),
            Op::ReduceSum(axes) => write!(f, "reduce_sum axes={axes:?}"),
            Op::Broadcast { shape, dims } => write!(f, "broadcast shape={shape:?}, dims={dims:?}"),
            Op::Permute(perm) => write!(f, "permute perm={perm:?}"),
            Op::Dot { batch } => write!(f, "dot batch={batch}"),
        }
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |values: &[Value]| values.iter().map(|v| format!("%{}", v.0)).collect::<Vec<_>>().join(", ");
        let inputs: Vec<String> = self.inputs.iter().map(|&v| format!("%{}: f64{:?}", v.0, self.shape(v))).collect();
        writeln!(f, "graph ({}) {{", inputs.join(", "))?;
        for node in &self.nodes {
            let (text, args, shape) = (node.op.to_string(), names(&node.args), self.shape(node.out));
            let (name, attrs) = text.split_once(' ').unwrap_or((&text, ""));
            let attrs = if attrs.is_empty() { String::new() } else { format!(" {{{attrs}}}") };
            writeln!(f, "  %{} = {name}({args}){attrs} : f64{shape:?}", node.out.0)?;
        }
        write!(f, "  return {}\n}}", names(&self.outputs))
    }
}

// ---- 3. Interpreter (crates/ir/src/interp.rs) -----------------------------------------------------------------------
//
// The interpreter computes every value of a graph in full, one node after the other, from the semantics of its op. It is
// slow, and simple enough to be trusted: the compiler's results are compared with it.

/// A concrete tensor, elements in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Literal {
    shape: Shape,
    data: Vec<f64>,
}

impl Literal {
    fn from_fn(shape: &[usize], element: impl FnMut(usize) -> f64) -> Literal {
        Literal { shape: shape.to_vec(), data: (0..numel(shape)).map(element).collect() }
    }
}

/// Every multi-index of a shape, in row-major order.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let (shape, strides) = (shape.to_vec(), strides(shape));
    (0..numel(&shape)).map(move |flat| strides.iter().zip(&shape).map(|(stride, size)| flat / stride % size).collect())
}

fn flat(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, stride)| i * stride).sum()
}

fn check_inputs(graph: &Graph, inputs: &[Literal]) -> Result<()> {
    let given: Vec<&Shape> = inputs.iter().map(|x| &x.shape).collect();
    let wanted: Vec<&Shape> = graph.inputs.iter().map(|&v| graph.shape(v)).collect();
    check(given == wanted, || format!("inputs must have shapes {wanted:?}, got {given:?}"))
}

fn interpret(graph: &Graph, inputs: &[Literal]) -> Result<Vec<Literal>> {
    check_inputs(graph, inputs)?;
    let mut values: Vec<Option<Literal>> = vec![None; graph.shapes.len()];
    graph.inputs.iter().zip(inputs).for_each(|(v, x)| values[v.0] = Some(x.clone()));
    for node in graph.live_nodes() {
        let args: Vec<&Literal> = node.args.iter().filter_map(|a| values[a.0].as_ref()).collect();
        let result = eval_node(&node.op, &args, graph.shape(node.out));
        values[node.out.0] = Some(result);
    }
    Ok(graph.outputs.iter().filter_map(|v| values[v.0].clone()).collect())
}

fn eval_node(op: &Op, args: &[&Literal], shape: &Shape) -> Literal {
    let strided: Vec<Vec<usize>> = args.iter().map(|a| strides(&a.shape)).collect();
    match op.semantics() {
        Semantics::Constant(c) => Literal::from_fn(shape, |_| c),
        Semantics::Elementwise(f) => {
            let at = |i: usize| args.iter().map(|a| a.data[i]).collect::<Vec<f64>>();
            Literal::from_fn(shape, |i| f.eval(&at(i)))
        }
        Semantics::Reduce(axes) => {
            let mut out = Literal::from_fn(shape, |_| 0.0);
            let (out_strides, kept) = (strides(shape), others(&axes, args[0].shape.len()));
            for (flat_in, index) in indices(&args[0].shape).enumerate() {
                out.data[flat(&pick(&index, &kept), &out_strides)] += args[0].data[flat_in];
            }
            out
        }
        Semantics::View(dims) => {
            let from = |index: Vec<usize>| flat(&pick(&index, &dims), &strided[0]);
            let mut all = indices(shape);
            Literal::from_fn(shape, |_| args[0].data[all.next().map_or(0, from)])
        }
        Semantics::DotGeneral => {
            let (rank, k) = (shape.len(), args[0].shape[shape.len() - 1]);
            let mut all = indices(shape);
            Literal::from_fn(shape, |_| {
                let index = all.next().unwrap_or_default();
                let (batch, m, n) = (&index[..rank - 2], index[rank - 2], index[rank - 1]);
                let at = |x: usize, i: usize, j: usize| args[x].data[flat(&[batch, &[i, j]].concat(), &strided[x])];
                (0..k).fold(0.0, |sum, k| sum + at(0, m, k) * at(1, k, n))
            })
        }
    }
}

// ---- 4. jvp (crates/transform/src/jvp.rs) ---------------------------------------------------------------------------
//
// Forward mode: a graph becomes one that computes, next to every value, its tangent, the directional derivative. Each
// node adds what its op's `jvp` rule says. Where all operands have a zero tangent, nothing is written.

/// Inputs are the primals, then the tangents of the inputs marked in `active`. Outputs are the primal outputs, then the
/// tangents of the outputs marked in the result; the other tangents are zero.
fn jvp(graph: &Graph, active: &[bool]) -> Result<(Graph, Vec<bool>)> {
    check_flags(graph, active)?;
    let b = GraphBuilder::default();
    let x: Vec<Value> = graph.input_shapes().iter().map(|s| b.input(s)).collect();
    let mut values = substitution(graph, &x)?;
    let mut tangents: Tangents = vec![None; graph.shapes.len()];
    for (&v, _) in graph.inputs.iter().zip(active).filter(|(_, active)| **active) {
        tangents[v.0] = Some(b.input(graph.shape(v)));
    }
    for node in graph.live_nodes() {
        let args = all(&node.args, &values);
        let dargs = all(&node.args, &tangents);
        let out = b.emit(node.op.clone(), &args)?;
        values[node.out.0] = out;
        if dargs.iter().any(Option::is_some) {
            tangents[node.out.0] = node.op.jvp(&b, &args, &dargs, out)?;
        }
    }
    let dy = all(&graph.outputs, &tangents);
    let outputs: Vec<Value> = all(&graph.outputs, &values).into_iter().chain(dy.iter().copied().flatten()).collect();
    Ok((b.finish(&outputs), dy.iter().map(Option::is_some).collect()))
}

// ---- 5. partial_eval (crates/transform/src/partial_eval.rs) ---------------------------------------------------------
//
// Some inputs are known now, the others later. A node with known operands alone is known; the others go to the rest.
// Known values that the rest reads are its residuals: the known half returns them, and the rest takes them as inputs.
// All ops here are `PartialEval::Atomic`. In the project an op with a body, such as a scan, is divided itself.

/// A graph in two halves.
struct SplitGraph {
    /// From the known inputs to the known outputs, then the residuals.
    known: Graph,
    /// From the residuals, then the unknown inputs, to the unknown outputs.
    rest: Graph,
    /// How many residuals there are.
    residuals: usize,
}

fn partial_eval(graph: &Graph, known: &[bool]) -> Result<SplitGraph> {
    check_flags(graph, known)?;
    // First, which values are known, and which known values become residuals.
    let mut is_known = vec![true; graph.shapes.len()];
    graph.inputs.iter().zip(known).for_each(|(v, k)| is_known[v.0] = *k);
    let mut residuals = BTreeSet::new();
    for node in graph.live_nodes() {
        is_known[node.out.0] = node.args.iter().all(|a| is_known[a.0]);
        if !is_known[node.out.0] {
            residuals.extend(node.args.iter().filter(|a| is_known[a.0]));
        }
    }
    // Then the two graphs. In the rest, a residual is an input.
    let (first, second) = (GraphBuilder::default(), GraphBuilder::default());
    let half_of = |v: Value| if is_known[v.0] { &first } else { &second };
    let stand_in: BTreeMap<Value, Value> = residuals.iter().map(|&v| (v, second.input(graph.shape(v)))).collect();
    let inputs: Vec<Value> = graph.inputs.iter().map(|&v| half_of(v).input(graph.shape(v))).collect();
    let mut values = substitution(graph, &inputs)?;
    for node in graph.live_nodes() {
        let crosses = |a: &Value| is_known[a.0] && !is_known[node.out.0];
        let args = node.args.iter().map(|a| if crosses(a) { stand_in[a] } else { values[a.0] });
        values[node.out.0] = half_of(node.out).emit(node.op.clone(), &args.collect::<Vec<_>>())?;
    }
    let (known, rest): (Vec<Value>, Vec<Value>) = graph.outputs.iter().partition(|v| is_known[v.0]);
    let known: Vec<Value> = known.into_iter().chain(residuals.iter().copied()).collect();
    let (known, rest) = (first.finish(&all(&known, &values)), second.finish(&all(&rest, &values)));
    Ok(SplitGraph { known, rest, residuals: residuals.len() })
}

// ---- 6. transpose, vjp, grad (crates/transform/src/transpose.rs, crates/transform/src/reverse.rs) -------------------
//
// Reverse mode is derived in three steps:
//
//   jvp           (x, dx) -> (y, dy)     values and tangents
//   partial_eval  x -> (y, residuals)    what does not depend on the tangents
//                 (residuals, dx) -> dy  the rest, which is linear in dx
//   transpose     (residuals, ct of y) -> ct of x
//
// A linear function is a matrix, dy = M·dx, and its transpose maps cotangents backwards, ct of x = Mᵀ·(ct of y). Nothing
// is stored in matrices: each node is transposed by its op's rule, in reverse order, and a value that is read in several
// places sums the cotangents of all of them.

/// Transposes a graph that is linear in the inputs marked in `linear`. Inputs of the result are the other inputs, then
/// the cotangents of all outputs; its outputs are the cotangents of the linear inputs.
fn transpose(graph: &Graph, linear: &[bool]) -> Result<Graph> {
    check_flags(graph, linear)?;
    let b = GraphBuilder::default();
    let mut known: Vec<Option<Value>> = vec![None; graph.shapes.len()];
    for (&v, _) in graph.inputs.iter().zip(linear).filter(|(_, linear)| !**linear) {
        known[v.0] = Some(b.input(graph.shape(v)));
    }
    let mut cts: Tangents = vec![None; graph.shapes.len()];
    for &v in &graph.outputs {
        let ct = b.input(graph.shape(v));
        cts[v.0] = b.add_opt(cts[v.0], Some(ct))?;
    }
    // Forward: what does not depend on a linear input.
    for node in graph.live_nodes() {
        if let Some(args) = node.args.iter().map(|a| known[a.0]).collect::<Option<Vec<Value>>>() {
            known[node.out.0] = Some(b.emit(node.op.clone(), &args)?);
        }
    }
    // Backward: the linear nodes.
    for node in graph.live_nodes().rev().filter(|node| known[node.out.0].is_none()) {
        let Some(ct) = cts[node.out.0] else { continue };
        let arg = |a: &Value| known[a.0].map_or_else(|| Arg::Linear(graph.shape(*a).clone()), Arg::Known);
        let args: Vec<Arg> = node.args.iter().map(arg).collect();
        for (a, ct) in node.args.iter().zip(node.op.transpose(&b, &args, ct)?) {
            cts[a.0] = b.add_opt(cts[a.0], ct)?;
        }
    }
    let mut outputs = Vec::new();
    for (&v, _) in graph.inputs.iter().zip(linear).filter(|(_, linear)| **linear) {
        outputs.push(cts[v.0].map_or_else(|| b.full(graph.shape(v), 0.0), Ok)?);
    }
    Ok(b.finish(&outputs))
}

/// Reverse mode. Inputs are the function's inputs, then a cotangent for every output; outputs are the function's
/// outputs, then the cotangent of every input in `wrt`, which is in increasing order.
fn vjp(graph: &Graph, wrt: &[usize]) -> Result<Graph> {
    let n = graph.inputs.len();
    let fits = wrt.is_sorted_by(|a, b| a < b) && wrt.iter().all(|&i| i < n);
    check(fits, || format!("vjp: inputs {wrt:?} must be in increasing order and below {n}"))?;
    let active: Vec<bool> = (0..n).map(|i| wrt.contains(&i)).collect();
    let (both, has_tangent) = jvp(graph, &active)?;
    let is_primal: Vec<bool> = (0..both.inputs.len()).map(|i| i < n).collect();
    let split = partial_eval(&both, &is_primal)?;
    let is_linear: Vec<bool> = (0..split.rest.inputs.len()).map(|i| i >= split.residuals).collect();
    let back = transpose(&split.rest, &is_linear)?;

    let b = GraphBuilder::default();
    let x: Vec<Value> = graph.input_shapes().iter().map(|s| b.input(s)).collect();
    let cts: Vec<Value> = graph.outputs.iter().map(|&v| b.input(graph.shape(v))).collect();
    let mut outputs = b.inline(&split.known, &x)?;
    let residuals = outputs.split_off(graph.outputs.len());
    let useful = cts.iter().zip(&has_tangent).filter(|(_, has)| **has).map(|(ct, _)| *ct);
    outputs.extend(b.inline(&back, &residuals.into_iter().chain(useful).collect::<Vec<_>>())?);
    Ok(b.finish(&outputs))
}

/// The outputs, then the gradients of the first output, a scalar, with respect to the inputs in `wrt`.
fn value_and_grad(graph: &Graph, wrt: &[usize]) -> Result<Graph> {
    let shape = graph.outputs.first().map(|&v| graph.shape(v));
    let is_scalar = shape.is_some_and(Vec::is_empty);
    check(is_scalar, || format!("grad: the first output must be a scalar, got {shape:?}; sum it, or use vjp"))?;
    let back = vjp(graph, wrt)?;
    let b = GraphBuilder::default();
    let mut args: Vec<Value> = graph.input_shapes().iter().map(|s| b.input(s)).collect();
    for (i, &v) in graph.outputs.iter().enumerate() {
        args.push(b.full(graph.shape(v), if i == 0 { 1.0 } else { 0.0 })?);
    }
    let outputs = b.inline(&back, &args)?;
    Ok(b.finish(&outputs))
}

/// The gradients alone.
fn grad(graph: &Graph, wrt: &[usize]) -> Result<Graph> {
    let mut both = value_and_grad(graph, wrt)?;
    both.outputs.drain(..graph.outputs.len());
    Ok(both)
}

// ---- 7. vmap (crates/transform/src/vmap.rs) -------------------------------------------------------------------------
//
// A function of one example becomes a function of a batch of them. Each node whose operands have a batch axis is replaced
// by what its op's `batch` rule says; the others are copied. Since every transform gives an ordinary graph, transforms
// compose: `vmap(grad(loss))` gives the gradient of each example, `jvp(grad(loss))` a product with the Hessian.

/// Inputs marked in `batched`, and all outputs, have an axis of `size` in front.
fn vmap(graph: &Graph, batched: &[bool], size: usize) -> Result<Graph> {
    check_flags(graph, batched)?;
    let b = GraphBuilder::default();
    let mut has_batch = vec![false; graph.shapes.len()];
    let mut x = Vec::new();
    for (&v, &batched) in graph.inputs.iter().zip(batched) {
        has_batch[v.0] = batched;
        let shape = graph.shape(v);
        x.push(if batched { b.input(&[&[size], &shape[..]].concat()) } else { b.input(shape) });
    }
    let mut values = substitution(graph, &x)?;
    for node in graph.live_nodes() {
        let args = all(&node.args, &values);
        let flags = all(&node.args, &has_batch);
        has_batch[node.out.0] = flags.contains(&true);
        let batched = has_batch[node.out.0];
        let out = if batched { node.op.batch(&b, &args, &flags, size) } else { b.emit(node.op.clone(), &args) };
        values[node.out.0] = out?;
    }
    let mut outputs = Vec::new();
    for (v, y) in graph.outputs.iter().zip(all(&graph.outputs, &values)) {
        outputs.push(if has_batch[v.0] { y } else { b.repeat_front(y, size)? });
    }
    Ok(b.finish(&outputs))
}

// ---- 8. simplify (crates/compiler/src/passes/simplify.rs, crates/compiler/src/passes/cse.rs) ------------------------
//
// The compiler begins with algebra. Each rule is one equation that holds for every value, NaN, infinities and −0 included:
// x + (−0) = x, but not x + 0 = x, since −0 + 0 = 0. Equal nodes are merged, and nodes that no output needs are dropped.

fn simplify(graph: &Graph) -> Result<Graph> {
    let b = GraphBuilder::default();
    let inputs: Vec<Value> = graph.input_shapes().iter().map(|s| b.input(s)).collect();
    let mut values = substitution(graph, &inputs)?;
    // Nodes by their text. It distinguishes 0 from −0, which are equal as numbers.
    let mut written: BTreeMap<String, Value> = BTreeMap::new();
    for node in graph.live_nodes() {
        let args = all(&node.args, &values);
        let out = match rewrite(&b, &node.op, &args)? {
            Some(simpler) => simpler,
            None => b.emit(node.op.clone(), &args)?,
        };
        let text = b.graph.borrow().node_of(out).map(|node| format!("{} {:?}", node.op, node.args));
        values[node.out.0] = text.map_or(out, |text| *written.entry(text).or_insert(out));
    }
    let simple = b.finish(&all(&graph.outputs, &values));
    // Copying the live nodes drops the others.
    let b = GraphBuilder::default();
    let inputs: Vec<Value> = simple.input_shapes().iter().map(|s| b.input(s)).collect();
    let outputs = b.inline(&simple, &inputs)?;
    Ok(b.finish(&outputs))
}

/// The simpler value, where a rule applies. Operands are already simple.
fn rewrite(b: &GraphBuilder, op: &Op, args: &[Value]) -> Result<Option<Value>> {
    let def = |v: Value| b.graph.borrow().node_of(v).map(|node| (node.op.clone(), node.args.clone()));
    let is = |v: Value, c: f64| uniform(b, v).is_some_and(|u| u.to_bits() == c.to_bits());
    let negated = |v: Value| def(v).and_then(|(op, args)| (op == Op::Scalar(ScalarOp::Neg)).then(|| args[0]));
    Ok(match (op, args) {
        // f(c₁, c₂, ..) = c
        (Op::Scalar(f), args) if args.iter().all(|&a| uniform(b, a).is_some()) => {
            let constants: Vec<f64> = args.iter().filter_map(|&a| uniform(b, a)).collect();
            Some(b.full_like(args[0], f.eval(&constants))?)
        }
        // x·1 = x
        (Op::Scalar(ScalarOp::Mul), &[x, y]) if is(y, 1.0) => Some(x),
        (Op::Scalar(ScalarOp::Mul), &[x, y]) if is(x, 1.0) => Some(y),
        // x + (−0) = x
        (Op::Scalar(ScalarOp::Add), &[x, y]) if is(y, -0.0) => Some(x),
        (Op::Scalar(ScalarOp::Add), &[x, y]) if is(x, -0.0) => Some(y),
        // −(−x) = x
        (Op::Scalar(ScalarOp::Neg), &[x]) => negated(x),
        // A sum over no axes, and views that move nothing.
        (Op::ReduceSum(axes), &[x]) if axes.is_empty() => Some(x),
        (Op::Broadcast { shape, .. }, &[x]) if b.shape(x) == *shape => Some(x),
        (Op::Permute(perm), &[x]) if perm.is_sorted() => Some(x),
        // view(view(x)) = view(x), for views of the same kind
        (op, &[x]) => match (op, def(x)) {
            (Op::Permute(p), Some((Op::Permute(q), inner))) => Some(b.permute(inner[0], &pick(&q, p))?),
            (Op::Broadcast { shape, dims: outer }, Some((Op::Broadcast { dims, .. }, inner))) => {
                Some(b.broadcast(inner[0], shape, &pick(outer, &dims))?)
            }
            _ => None,
        },
        _ => None,
    })
}

/// The one number that a value repeats, where it is a constant behind views.
fn uniform(b: &GraphBuilder, v: Value) -> Option<f64> {
    let graph = b.graph.borrow();
    let mut node = graph.node_of(v)?;
    while matches!(node.op.semantics(), Semantics::View(_)) {
        node = graph.node_of(node.args[0])?;
    }
    if let Op::Constant(c) = node.op { Some(c) } else { None }
}

// ---- 9. loops (crates/compiler/src/loops/mod.rs, print.rs, eval.rs; crates/compiler/src/fuse/index.rs) --------------
//
// The kernel IR: nested loops over scalars, with explicit loads and stores. Code generators turn it into machine code;
// here an evaluator runs it. A register is assigned once per iteration, but for the accumulators of sums (in the project
// a loop carries them as values, and loops say whether they are parallel, vector or serial).

/// A scalar register.
type Reg = usize;

/// An index along an axis: a loop variable, or none where the axis has size 1.
type AxisIndex = Option<usize>;

/// `Σ stride · variable`: where an element lies in memory, as loop variables and strides.
#[derive(Clone, Debug)]
struct Index(Vec<(usize, usize)>);

impl Index {
    /// The position in row-major order of an element of a tensor.
    fn flat(index: &[AxisIndex], shape: &[usize]) -> Index {
        Index(index.iter().zip(strides(shape)).filter_map(|(var, stride)| Some(((*var)?, stride))).collect())
    }

    fn eval(&self, vars: &[usize]) -> usize {
        self.0.iter().map(|&(var, stride)| vars[var] * stride).sum()
    }
}

/// A statement. Memory is named by the value of the graph that lies there.
#[derive(Clone, Debug)]
enum Stmt {
    Const { dst: Reg, value: f64 },
    Load { dst: Reg, from: Value, index: Index },
    Compute { dst: Reg, op: ScalarOp, args: Vec<Reg> },
    Accumulate { sum: Reg, term: Reg },
    Store { to: Value, index: Index, value: Reg },
    Loop { var: usize, extent: usize, body: Vec<Stmt> },
}

/// Runs statements on memory that has an entry for each value of the graph.
fn run_block(block: &[Stmt], vars: &mut [usize], regs: &mut [f64], memory: &mut [Vec<f64>]) {
    for stmt in block {
        match stmt {
            Stmt::Const { dst, value } => regs[*dst] = *value,
            Stmt::Load { dst, from, index } => regs[*dst] = memory[from.0][index.eval(vars)],
            Stmt::Compute { dst, op, args } => {
                let mut x = [0.0; 3];
                args.iter().zip(&mut x).for_each(|(arg, x)| *x = regs[*arg]);
                regs[*dst] = op.eval(&x);
            }
            Stmt::Accumulate { sum, term } => regs[*sum] += regs[*term],
            Stmt::Store { to, index, value } => memory[to.0][index.eval(vars)] = regs[*value],
            Stmt::Loop { var, extent, body } => {
                for i in 0..*extent {
                    vars[*var] = i;
                    run_block(body, vars, regs, memory);
                }
            }
        }
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = |&(var, by): &(usize, usize)| if by == 1 { format!("v{var}") } else { format!("v{var}*{by}") };
        let terms: Vec<String> = self.0.iter().map(term).collect();
        if terms.is_empty() { f.write_str("0") } else { f.write_str(&terms.join(" + ")) }
    }
}

fn print_block(f: &mut fmt::Formatter<'_>, block: &[Stmt], depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    for stmt in block {
        match stmt {
            Stmt::Const { dst, value } => writeln!(f, "{pad}r{dst} = {value:?}")?,
            Stmt::Load { dst, from, index } => writeln!(f, "{pad}r{dst} = %{}[{index}]", from.0)?,
            Stmt::Compute { dst, op, args } => {
                let args: Vec<String> = args.iter().map(|r| format!("r{r}")).collect();
                writeln!(f, "{pad}r{dst} = {} {}", Op::Scalar(*op), args.join(", "))?;
            }
            Stmt::Accumulate { sum, term } => writeln!(f, "{pad}r{sum} += r{term}")?,
            Stmt::Store { to, index, value } => writeln!(f, "{pad}%{}[{index}] = r{value}", to.0)?,
            Stmt::Loop { var, extent, body } => {
                writeln!(f, "{pad}for v{var} < {extent} {{")?;
                print_block(f, body, depth + 1)?;
                writeln!(f, "{pad}}}")?;
            }
        }
    }
    Ok(())
}

// ---- 10. fuse, compile (crates/compiler/src/fuse/grouping.rs, generate.rs, lower.rs; crates/compiler/src/lib.rs) ----
//
// Most values need not exist in memory: an elementwise op can be computed where its result is read, and a view is only
// arithmetic on indices. `plan` decides which values are in memory. Each becomes a fusion unit, one kernel that computes
// the value and everything that it reads up to the next values in memory. In the project a unit may have several results,
// matrix products run in tuned kernels with the unit that follows as an epilogue, and values share one arena
// (crates/compiler/src/plan.rs).

/// A value in memory, and the kernel that computes it.
struct FusionUnit {
    root: Value,
    body: Vec<Stmt>,
    /// How many registers and loop variables the body has.
    regs: usize,
    vars: usize,
}

/// A compiled graph.
struct Program {
    graph: Graph,
    units: Vec<FusionUnit>,
}

/// The values of a graph that must exist in memory:
///
/// - outputs, and the results of reductions and products;
/// - elementwise results that several units read, or that one unit would compute repeatedly, since it reads them through
///   a broadcast or as an operand of a product.
fn plan(graph: &Graph) -> BTreeSet<Value> {
    let mut in_memory: BTreeSet<Value> = graph.outputs.iter().copied().collect();
    // For each value, the roots of the units that read it, and whether one reads an element of it more than once.
    let mut readers: Vec<(BTreeSet<Value>, bool)> = vec![Default::default(); graph.shapes.len()];
    for node in graph.nodes.iter().rev() {
        let (units, repeated) = readers[node.out.0].clone();
        // A broadcast repeats, and a view that is not stored passes on what its reader does.
        let (needed, repeats) = match node.op.semantics() {
            Semantics::Reduce(_) => (true, false),
            Semantics::DotGeneral => (true, true),
            Semantics::Elementwise(_) => (units.len() > 1 || repeated, false),
            Semantics::View(_) => (false, repeated || matches!(node.op, Op::Broadcast { .. })),
            Semantics::Constant(_) => (false, false),
        };
        in_memory.extend(needed.then_some(node.out));
        let units = if in_memory.contains(&node.out) { [node.out].into() } else { units };
        for a in &node.args {
            readers[a.0].0.extend(&units);
            readers[a.0].1 |= repeats;
        }
    }
    in_memory
}

/// Writes the kernel of one fusion unit.
struct Lower<'a> {
    graph: &'a Graph,
    in_memory: &'a BTreeSet<Value>,
    regs: usize,
    vars: usize,
    /// The statements of the innermost loop.
    block: Vec<Stmt>,
    /// Elements that the block has computed: what is read twice at the same index is computed once.
    computed: BTreeMap<(Value, Vec<AxisIndex>), Reg>,
}

impl Lower<'_> {
    /// Appends a statement that defines a new register.
    fn push(&mut self, stmt: impl FnOnce(Reg) -> Stmt) -> Reg {
        let dst = self.regs;
        self.regs += 1;
        self.block.push(stmt(dst));
        dst
    }

    /// An index with a new loop variable for each axis.
    fn loops(&mut self, shape: &[usize]) -> Vec<AxisIndex> {
        let first = self.vars;
        self.vars += shape.len();
        shape.iter().enumerate().map(|(i, &extent)| (extent != 1).then_some(first + i)).collect()
    }

    /// A register with the element of a value at an index. This is where fusion happens: a value in memory is loaded, any
    /// other is computed here from the elements that it is made of.
    fn element(&mut self, v: Value, index: Vec<AxisIndex>) -> Reg {
        let key = (v, index);
        if let Some(&known) = self.computed.get(&key) {
            return known;
        }
        let (graph, index) = (self.graph, key.1.clone());
        let dst = match graph.node_of(v).filter(|_| !self.in_memory.contains(&v)) {
            Some(node) => self.compute(node, index),
            None => self.push(|dst| Stmt::Load { dst, from: v, index: Index::flat(&index, graph.shape(v)) }),
        };
        self.computed.insert(key, dst);
        dst
    }

    fn compute(&mut self, node: &Node, index: Vec<AxisIndex>) -> Reg {
        match node.op.semantics() {
            Semantics::Elementwise(op) => {
                let args: Vec<Reg> = node.args.iter().map(|&a| self.element(a, index.clone())).collect();
                self.push(|dst| Stmt::Compute { dst, op, args })
            }
            Semantics::Constant(value) => self.push(|dst| Stmt::Const { dst, value }),
            // A view costs nothing: its element is an element of the operand, at another index.
            Semantics::View(dims) => self.element(node.args[0], pick(&index, &dims)),
            // A sum has loops of its own, so `unit` begins with it; elsewhere its result is loaded.
            Semantics::Reduce(_) | Semantics::DotGeneral => unreachable!("{} is in memory", node.op),
        }
    }

    /// The kernel of the unit that computes `node`.
    fn unit(mut self, node: &Node) -> FusionUnit {
        let shape = self.graph.shape(node.out).clone();
        let outer = self.loops(&shape);
        // The loops around the block: all axes of the result, and for a sum those that are summed over.
        let (summed, value) = match node.op.semantics() {
            Semantics::Reduce(axes) => {
                // In row-major order, as the interpreter sums, so that results agree to the bit.
                let axes: BTreeSet<usize> = axes.into_iter().collect();
                let of = self.graph.shape(node.args[0]).clone();
                let summed: Shape = axes.iter().map(|&a| of[a]).collect();
                let (mut kept, mut inner) = (outer.iter(), self.loops(&summed).into_iter());
                let next = |a| if axes.contains(&a) { inner.next() } else { kept.next().copied() };
                let index: Vec<AxisIndex> = (0..of.len()).filter_map(next).collect();
                (Some(summed), self.element(node.args[0], index))
            }
            Semantics::DotGeneral => {
                let (rank, k) = (shape.len(), self.graph.shape(node.args[0])[shape.len() - 1]);
                let inner = self.loops(&[k]);
                let (batch, m, n) = (&outer[..rank - 2], &outer[rank - 2..rank - 1], &outer[rank - 1..]);
                let left = self.element(node.args[0], [batch, m, &inner].concat());
                let right = self.element(node.args[1], [batch, &inner, n].concat());
                let (op, args) = (ScalarOp::Mul, vec![left, right]);
                (Some(vec![k]), self.push(|dst| Stmt::Compute { dst, op, args }))
            }
            _ => (None, self.compute(node, outer.clone())),
        };
        let (mut body, mut result) = (self.block, value);
        if let Some(summed) = summed {
            result = self.regs;
            self.regs += 1;
            body.push(Stmt::Accumulate { sum: result, term: value });
            body = nest(body, shape.len(), &summed);
            body.insert(0, Stmt::Const { dst: result, value: 0.0 });
        }
        body.push(Stmt::Store { to: node.out, index: Index::flat(&outer, &shape), value: result });
        FusionUnit { root: node.out, body: nest(body, 0, &shape), regs: self.regs, vars: self.vars }
    }
}

/// Loops around a block: variable `first + i` runs over `extents[i]`, the last innermost.
fn nest(mut body: Vec<Stmt>, first: usize, extents: &[usize]) -> Vec<Stmt> {
    for (i, &extent) in extents.iter().enumerate().rev().filter(|(_, extent)| **extent != 1) {
        body = vec![Stmt::Loop { var: first + i, extent, body }];
    }
    body
}

/// A graph becomes a program: simplify, plan, lower each unit.
fn compile(graph: &Graph) -> Result<Program> {
    let graph = simplify(graph)?;
    let in_memory = plan(&graph);
    let mut units = Vec::new();
    for node in graph.nodes.iter().filter(|node| in_memory.contains(&node.out)) {
        let (block, computed) = (Vec::new(), BTreeMap::new());
        let lower = Lower { graph: &graph, in_memory: &in_memory, regs: 0, vars: 0, block, computed };
        units.push(lower.unit(node));
    }
    Ok(Program { graph, units })
}

impl Program {
    fn run(&self, inputs: &[Literal]) -> Result<Vec<Literal>> {
        check_inputs(&self.graph, inputs)?;
        let mut memory = vec![Vec::new(); self.graph.shapes.len()];
        self.graph.inputs.iter().zip(inputs).for_each(|(v, x)| memory[v.0] = x.data.clone());
        for unit in &self.units {
            memory[unit.root.0] = vec![0.0; numel(self.graph.shape(unit.root))];
            run_block(&unit.body, &mut vec![0; unit.vars], &mut vec![0.0; unit.regs], &mut memory);
        }
        let literal = |&v: &Value| Literal { shape: self.graph.shape(v).clone(), data: memory[v.0].clone() };
        Ok(self.graph.outputs.iter().map(literal).collect())
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for unit in &self.units {
            let shape = self.graph.shape(unit.root);
            writeln!(f, "kernel %{} : f64{shape:?}", unit.root.0)?;
            print_block(f, &unit.body, 1)?;
        }
        Ok(())
    }
}

// ---- 11. Training (crates/train/src/) -------------------------------------------------------------------------------
//
// A multilayer perceptron that learns to separate two interleaved half circles, which no straight line can. One graph
// is the whole training step: it takes the parameters and the data, and returns the loss and the new parameters.

/// Uniform random numbers in [-1, 1): a 64-bit linear congruential generator, high bits.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn literal(&mut self, shape: &[usize], scale: f64) -> Literal {
        Literal::from_fn(shape, |_| self.next() * scale)
    }
}

/// Points `[n, 2]` and labels `[n, 1]`, alternately 1 and −1.
fn two_moons(n: usize, rng: &mut Rng) -> [Literal; 2] {
    let mut points = Vec::new();
    for i in 0..n {
        let angle = std::f64::consts::PI * (rng.next() + 1.0) / 2.0;
        let (x, y) = (angle.cos(), angle.sin());
        let (x, y) = if i % 2 == 0 { (x - 0.5, y - 0.25) } else { (0.5 - x, 0.25 - y) };
        points.extend([x + 0.08 * rng.next(), y + 0.08 * rng.next()]);
    }
    [Literal { shape: vec![n, 2], data: points }, Literal::from_fn(&[n, 1], |i| 1.0 - 2.0 * (i % 2) as f64)]
}

const HIDDEN: usize = 12;
const PARAMS: [&[usize]; 4] = [&[2, HIDDEN], &[HIDDEN], &[HIDDEN, 1], &[1]];

/// A multilayer perceptron and its loss: from parameters, points and labels to the mean of log(1 + exp(−label·score)),
/// and the scores, tanh(x·w₁ + b₁)·w₂ + b₂ for each row of x.
fn mlp(n: usize) -> Result<Graph> {
    let b = GraphBuilder::default();
    let params: Vec<Value> = PARAMS.iter().map(|s| b.input(s)).collect();
    let (x, label) = (b.input(&[n, 2]), b.input(&[n, 1]));
    let linear = |x: Value, w: Value, bias: Value| {
        let product = b.dot(x, w)?;
        b.add(product, b.broadcast(bias, &b.shape(product), &[1])?)
    };
    let scores = linear(b.tanh(linear(x, params[0], params[1])?)?, params[2], params[3])?;
    let u = b.neg(b.mul(label, scores)?)?;
    // log(1 + exp(u)) = max(u, 0) + log(1 + exp(−|u|)), which does not overflow.
    let minus_abs = b.neg(b.max(u, b.neg(u)?)?)?;
    let small = b.log(b.add(b.full_like(u, 1.0)?, b.exp(minus_abs)?)?)?;
    let each = b.add(b.max(u, b.full_like(u, 0.0)?)?, small)?;
    let loss = b.mul(b.reduce_sum(each, &[0, 1])?, b.full(&[], 1.0 / n as f64)?)?;
    Ok(b.finish(&[loss, scores]))
}

/// One step of gradient descent: from parameters, points and labels to the loss, then the new parameters.
fn train_step(n: usize, learning_rate: f64) -> Result<Graph> {
    let loss = mlp(n)?;
    let with_grads = value_and_grad(&loss, &[0, 1, 2, 3])?;
    let b = GraphBuilder::default();
    let args: Vec<Value> = loss.input_shapes().iter().map(|s| b.input(s)).collect();
    let results = b.inline(&with_grads, &args)?;
    let mut outputs = vec![results[0]];
    for (&param, &gradient) in args.iter().zip(&results[2..]) {
        outputs.push(b.sub(param, b.mul(gradient, b.full_like(gradient, learning_rate)?)?)?);
    }
    Ok(b.finish(&outputs))
}

/// Runs a compiled step repeatedly. Gives the trained parameters, and the loss before each step.
fn train(step: &Program, data: &[Literal], steps: usize, rng: &mut Rng) -> Result<(Vec<Literal>, Vec<f64>)> {
    let scale = |shape: &[usize]| if shape.len() == 2 { 1.0 } else { 0.0 };
    let mut params: Vec<Literal> = PARAMS.iter().map(|shape| rng.literal(shape, scale(shape))).collect();
    let mut losses = Vec::new();
    for _ in 0..steps {
        let mut results = step.run(&[&params, data].concat())?;
        params = results.split_off(1);
        losses.push(results[0].data[0]);
    }
    Ok((params, losses))
}

/// The fraction of points whose score has the sign of its label.
fn accuracy(params: &[Literal], data: &[Literal]) -> Result<f64> {
    let labels = &data[1].data;
    let results = compile(&mlp(labels.len())?)?.run(&[params, data].concat())?;
    let right = results[1].data.iter().zip(labels).filter(|(score, label)| *score * *label > 0.0).count();
    Ok(right as f64 / labels.len() as f64)
}

// ---- A tour: every stage, printed. ----------------------------------------------------------------------------------

fn main() -> Result<()> {
    // sum(tanh(x·w)), for x of shape [3] and w of shape [3, 2].
    let b = GraphBuilder::default();
    let (x, w) = (b.input(&[3]), b.input(&[3, 2]));
    let y = b.tanh(b.dot(b.broadcast(x, &[1, 3], &[1])?, w)?)?;
    let sum = b.reduce_sum(y, &[0, 1])?;
    let graph = b.finish(&[sum]);
    println!("A function:\n\n{graph}\n");
    let (both, _) = jvp(&graph, &[false, true])?;
    println!("Its jvp, with tangents for the second input, %2:\n\n{both}\n");
    let split = partial_eval(&both, &[true, true, false])?;
    println!("partial_eval, what the inputs suffice for ({} residuals):\n\n{}\n", split.residuals, split.known);
    println!("and the rest, which is linear in the tangent, its last input:\n\n{}\n", split.rest);
    let is_linear: Vec<bool> = (0..split.rest.inputs.len()).map(|i| i >= split.residuals).collect();
    println!("The rest transposed:\n\n{}\n", transpose(&split.rest, &is_linear)?);
    let gradient = grad(&graph, &[1])?;
    println!("All together, the gradient, simplified:\n\n{}\n", simplify(&gradient)?);
    let batched = vmap(&gradient, &[true, false], 4)?;
    println!("A gradient for each of 4 examples, by vmap:\n\n{}\n", simplify(&batched)?);
    let program = compile(&batched)?;
    let (nodes, kernels) = (program.graph.nodes.len(), program.units.len());
    println!("The program of that, {nodes} nodes in {kernels} kernels:\n\n{program}");

    let mut rng = Rng(7);
    let inputs = [rng.literal(&[4, 3], 1.0), rng.literal(&[3, 2], 1.0)];
    assert_eq!(program.run(&inputs)?, interpret(&batched, &inputs)?);
    println!("The interpreter gives the same bits.\n");

    println!("Training a multilayer perceptron on two interleaved half circles:\n");
    let data = two_moons(64, &mut rng);
    let step = compile(&train_step(64, 1.0)?)?;
    println!("one step is {} nodes in {} kernels", step.graph.nodes.len(), step.units.len());
    let (params, losses) = train(&step, &data, 300, &mut rng)?;
    for (i, loss) in losses.iter().enumerate().filter(|(i, _)| i % 50 == 0) {
        println!("step {i:3}: loss {loss:.4}");
    }
    let reached = accuracy(&params, &two_moons(200, &mut rng))?;
    println!("accuracy on points that it was not trained on: {:.1} %", 100.0 * reached);
    assert!(losses[299] < 0.2 * losses[0] && reached >= 0.97);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: u64 = 200;

    fn below(n: usize, rng: &mut Rng) -> usize {
        ((rng.next() + 1.0) / 2.0 * n as f64) as usize
    }

    /// A random function of inputs of shapes [2, 3], [3] and [3, 2], with a scalar as its only output. Every op occurs;
    /// operands of `exp` and `log` are bounded, so that derivatives are of moderate size.
    fn random_graph(rng: &mut Rng) -> Result<Graph> {
        let b = GraphBuilder::default();
        let mut values = vec![b.input(&[2, 3]), b.input(&[3]), b.input(&[3, 2])];
        for _ in 0..10 {
            let x = values[below(values.len(), rng)];
            let shape = b.shape(x);
            // An operand of the same shape where there is one, else `x` again.
            let same: Vec<Value> = values.iter().copied().filter(|&v| b.shape(v) == shape).collect();
            let y = same[below(same.len(), rng)];
            let rank = shape.len();
            values.push(match below(12, rng) {
                0 => b.neg(x)?,
                1 => b.exp(b.tanh(x)?)?,
                2 => b.log(b.add(b.full_like(x, 2.0)?, b.tanh(x)?)?)?,
                3 => b.tanh(x)?,
                4 => b.add(x, y)?,
                5 => b.mul(b.tanh(x)?, y)?,
                6 => b.max(x, y)?,
                7 => b.select(b.greater(x, y)?, b.neg(y)?, b.tanh(x)?)?,
                8 if rank > 0 => b.reduce_sum(x, &[below(rank, rng)])?,
                9 if rank < 3 => b.repeat_front(x, 1 + below(3, rng))?,
                10 if rank > 1 => b.permute(x, &(0..rank).rev().collect::<Vec<_>>())?,
                11 if rank == 2 => b.dot(x, b.transpose_matrix(y)?)?,
                _ => b.broadcast(x, &[&shape[..], &[2]].concat(), &(0..rank).collect::<Vec<_>>())?,
            });
        }
        let mut sum = b.full(&[], 0.0)?;
        for v in values {
            let axes: Vec<usize> = (0..b.shape(v).len()).collect();
            sum = b.add(sum, b.reduce_sum(b.tanh(v)?, &axes)?)?;
        }
        Ok(b.finish(&[sum]))
    }

    fn random_inputs(graph: &Graph, rng: &mut Rng) -> Vec<Literal> {
        graph.input_shapes().iter().map(|s| rng.literal(s, 1.0)).collect()
    }

    /// The central difference of a function in a direction.
    fn difference(graph: &Graph, x: &[Literal], direction: &[Literal]) -> f64 {
        let sum = |h: f64, x: &Literal, d: &Literal| Literal::from_fn(&x.shape, |i| x.data[i] + h * d.data[i]);
        let moved = |h: f64| x.iter().zip(direction).map(|(x, d)| sum(h, x, d)).collect::<Vec<_>>();
        let at = |h: f64| interpret(graph, &moved(h)).unwrap()[0].data[0];
        (at(1e-5) - at(-1e-5)) / 2e-5
    }

    fn assert_close(a: f64, b: f64, what: &str) {
        assert!((a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs())), "{what}: {a} and {b}");
    }

    fn assert_same_bits(a: &[Literal], b: &[Literal], what: &str) {
        let bits = |x: &Literal| (x.shape.clone(), x.data.iter().map(|e| e.to_bits()).collect::<Vec<u64>>());
        assert!(a.iter().map(bits).eq(b.iter().map(bits)), "{what}: {a:?} and {b:?}");
    }

    #[test]
    fn jvp_equals_finite_differences() {
        for seed in 0..CASES {
            let rng = &mut Rng(seed);
            let graph = random_graph(rng).unwrap();
            let (x, dx) = (random_inputs(&graph, rng), random_inputs(&graph, rng));
            let (both, has_tangent) = jvp(&graph, &[true; 3]).unwrap();
            assert_eq!(has_tangent, [true]);
            let out = interpret(&both, &[x.clone(), dx.clone()].concat()).unwrap();
            assert_eq!(out[0], interpret(&graph, &x).unwrap()[0]);
            assert_close(out[1].data[0], difference(&graph, &x, &dx), &format!("seed {seed}\n{graph}"));
        }
    }

    #[test]
    fn grad_equals_finite_differences() {
        for seed in 0..CASES {
            let rng = &mut Rng(seed);
            let graph = random_graph(rng).unwrap();
            let x = random_inputs(&graph, rng);
            let grads = interpret(&grad(&graph, &[0, 1, 2]).unwrap(), &x).unwrap();
            for (i, element) in (0..3).flat_map(|i| (0..x[i].data.len()).map(move |element| (i, element))) {
                let unit = |j: usize| Literal::from_fn(&x[j].shape, |e| f64::from(u8::from((i, element) == (j, e))));
                let expected = difference(&graph, &x, &[unit(0), unit(1), unit(2)]);
                assert_close(grads[i].data[element], expected, &format!("seed {seed}, input {i}\n{graph}"));
            }
        }
    }

    /// jvp of grad, twice in exchanged directions: the Hessian is symmetric.
    #[test]
    fn transforms_compose_to_a_symmetric_hessian() {
        for seed in 0..CASES / 4 {
            let rng = &mut Rng(seed);
            let graph = random_graph(rng).unwrap();
            let x = random_inputs(&graph, rng);
            let (u, v) = (rng.literal(&[2, 3], 1.0), rng.literal(&[2, 3], 1.0));
            let (product, _) = jvp(&grad(&graph, &[0]).unwrap(), &[true, false, false]).unwrap();
            let times = |d: &Literal, e: &Literal| -> f64 {
                let out = interpret(&product, &[x.clone(), vec![d.clone()]].concat()).unwrap();
                // Without a second output the Hessian is zero.
                out.get(1).map_or(0.0, |hd| hd.data.iter().zip(&e.data).map(|(a, b)| a * b).sum())
            };
            assert_close(times(&u, &v), times(&v, &u), &format!("seed {seed}\n{graph}"));
        }
    }

    #[test]
    fn vmap_equals_a_loop() {
        for seed in 0..CASES {
            let rng = &mut Rng(seed);
            let graph = grad(&random_graph(rng).unwrap(), &[0, 1, 2]).unwrap();
            let flags: Vec<bool> = (0..3).map(|_| below(3, rng) > 0).collect();
            let batched = vmap(&graph, &flags, 3).unwrap();
            let x = random_inputs(&batched, rng);
            let all = interpret(&batched, &x).unwrap();
            for i in 0..3 {
                let row = |x: &Literal| Literal::from_fn(&x.shape[1..], |e| x.data[x.data.len() / 3 * i + e]);
                let one: Vec<Literal> =
                    x.iter().zip(&flags).map(|(x, &batched)| if batched { row(x) } else { x.clone() }).collect();
                let results: Vec<Literal> = all.iter().map(row).collect();
                assert_same_bits(&results, &interpret(&graph, &one).unwrap(), &format!("seed {seed}\n{graph}"));
            }
        }
    }

    #[test]
    fn simplified_and_fused_programs_equal_the_interpreter_to_the_bit() {
        let (mut nodes, mut kernels) = (0, 0);
        for seed in 0..CASES {
            let rng = &mut Rng(seed);
            let with_grads = value_and_grad(&random_graph(rng).unwrap(), &[0, 1, 2]).unwrap();
            let graph = vmap(&with_grads, &[true, false, true], 2).unwrap();
            let x = random_inputs(&graph, rng);
            let expected = interpret(&graph, &x).unwrap();
            let program = compile(&graph).unwrap();
            assert_same_bits(&interpret(&program.graph, &x).unwrap(), &expected, "simplified");
            assert_same_bits(&program.run(&x).unwrap(), &expected, &format!("seed {seed}\n{program}"));
            assert!(program.graph.nodes.len() < graph.nodes.len());
            nodes += program.graph.nodes.len();
            kernels += program.units.len();
        }
        assert!(kernels * 2 < nodes, "{kernels} kernels for {nodes} nodes");
    }

    #[test]
    fn an_elementwise_chain_and_its_sum_are_one_kernel() {
        let b = GraphBuilder::default();
        let (x, bias) = (b.input(&[6, 4]), b.input(&[4]));
        let t =
            b.tanh(b.add(b.permute(x, &[1, 0]).unwrap(), b.broadcast(bias, &[4, 6], &[0]).unwrap()).unwrap()).unwrap();
        let sum = b.reduce_sum(b.mul(t, t).unwrap(), &[1]).unwrap();
        let expected = "\
kernel %7 : f64[4]
  for v0 < 4 {
    r5 = 0.0
    for v1 < 6 {
      r0 = %0[v1*4 + v0]
      r1 = %1[v0]
      r2 = add r0, r1
      r3 = tanh r2
      r4 = mul r3, r3
      r5 += r4
    }
    %7[v0] = r5
  }
";
        assert_eq!(compile(&b.finish(&[sum])).unwrap().to_string(), expected);
        // What a product reads repeatedly is computed once, in a kernel of its own.
        let b = GraphBuilder::default();
        let x = b.input(&[4, 4]);
        let product = b.tanh(x).and_then(|y| b.dot(y, x)).unwrap();
        assert_eq!(compile(&b.finish(&[product])).unwrap().units.len(), 2);
    }

    #[test]
    fn rules_keep_the_sign_of_zero() {
        let check = |build: &dyn Fn(&GraphBuilder, Value) -> Result<Value>, expected: usize| {
            let b = GraphBuilder::default();
            let x = b.input(&[2]);
            let y = build(&b, x).unwrap();
            assert_eq!(simplify(&b.finish(&[y])).unwrap().nodes.len(), expected);
        };
        check(&|b, x| b.mul(x, b.full_like(x, 1.0)?), 0);
        check(&|b, x| b.add(b.full_like(x, -0.0)?, x), 0);
        check(&|b, x| b.add(x, b.full_like(x, 0.0)?), 3);
        check(&|b, x| b.neg(b.neg(x)?), 0);
        check(&|b, x| b.mul(x, b.full_like(x, 0.0)?), 3);
        check(&|b, x| b.mul(b.exp(x)?, b.exp(x)?), 2);
    }

    #[test]
    fn wrong_use_gives_errors() {
        let b = GraphBuilder::default();
        let (x, y) = (b.input(&[2, 3]), b.input(&[3]));
        let message = |r: Result<Value>| r.unwrap_err().to_string();
        assert_eq!(message(b.add(x, y)), "add: shapes [2, 3] and [3] differ; broadcast one of them");
        assert_eq!(message(b.dot(x, x)), "dot batch=0: [2, 3] · [2, 3] needs shapes [.., m, k] and [.., k, n]");
        assert_eq!(message(b.reduce_sum(x, &[2])), "reduce_sum axes=[2]: axes must be distinct and below 2");
        assert!(b.permute(x, &[0, 0]).is_err() && b.permute(x, &[0]).is_err());
        assert!(b.broadcast(y, &[3, 2], &[1]).is_err() && b.neg(Value(99)).is_err());
        let graph = b.finish(&[x]);
        assert!(grad(&graph, &[0]).is_err() && vjp(&graph, &[5]).is_err() && jvp(&graph, &[true]).is_err());
        assert!(interpret(&graph, &[]).is_err() && vmap(&graph, &[], 2).is_err());
    }

    /// `main` asserts that the loss falls to less than a fifth, and that 97 % of points outside of the training set are
    /// classified correctly.
    #[test]
    fn the_tour_runs_and_its_mlp_learns() {
        main().unwrap();
    }
}
