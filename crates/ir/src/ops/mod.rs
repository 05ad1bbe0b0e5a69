//! The ops and their rules. Everything about one op stands together in its family's file; the list at the end of this
//! file is the only other place that names it.
//!
//! # Laws of the rules
//!
//! - `infer` is total: any operands give types or a [`Problem`], never a panic.
//! - `jvp` is linear in the tangents, and a missing tangent is a symbolic zero.
//! - `split` of an op that gives values and tangents together finds every value in its known half.
//! - `transpose` is only asked of an op that is linear in its `Linear` operands.
//! - `batch` gets every batched operand with the batch axis in front, and gives results the same way. (A permutation
//!   costs nothing after fusion, so rules need not juggle axes.)
//! - Integer and bool values have no tangents.

use crate::attr::{AttrReader, AttrResult, Attrs};
use crate::build::Cx;
use crate::error::{Error, Problem, Result};
use crate::expr::Expr;
use crate::graph::{Graph, Value};
use crate::literal::Literal;
use crate::types::{Shape, Type};
use smallvec::SmallVec;
use std::sync::Arc;

/// Inferred output types.
pub type Infer = std::result::Result<Vec<Type>, Problem>;

/// Tangents or cotangents; `None` is a symbolic zero.
pub type Tangents = Vec<Option<Value>>;

/// An operand during transposition.
#[derive(Clone, Debug)]
pub enum Arg {
    /// A value that can be used.
    Known(Value),
    /// An operand that the op is linear in; only its type is known.
    Linear(Type),
}

impl Arg {
    /// Whether the op is transposed with respect to this operand.
    pub fn is_linear(&self) -> bool {
        matches!(self, Arg::Linear(_))
    }

    /// The value of a known operand.
    pub fn known(&self) -> Option<Value> {
        match self {
            Arg::Known(v) => Some(*v),
            Arg::Linear(_) => None,
        }
    }
}

/// How an op divides when only some operands are known.
#[derive(Clone, Debug)]
pub enum Split {
    /// It doesn't: with all operands known it runs in the known part, else whole in the rest.
    Whole,
    /// Into two ops.
    Parts(Parts),
}

/// The two halves of a divided op.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Runs now, on these operands (all known).
    pub known: Option<(Op, Vec<usize>)>,
    /// Runs later.
    pub rest: Option<(Op, Vec<RestArg>)>,
    /// Where each output of the undivided op comes from.
    pub outs: Vec<OutFrom>,
}

/// An operand of the later half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestArg {
    /// The n-th operand of the undivided op.
    Arg(usize),
    /// The n-th output of the known half.
    Residual(usize),
}

/// Which half gives an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutFrom {
    /// The n-th output of the known half.
    Known(usize),
    /// The n-th output of the later half.
    Rest(usize),
}

/// What PyTorch would keep for this op's backward: positions of operands and results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saves {
    /// Operands kept.
    pub inputs: SmallVec<[usize; 4]>,
    /// Results kept.
    pub outputs: SmallVec<[usize; 2]>,
    /// Which operands must stay as they are.
    pub when: When,
}

/// Which operands must not change before backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Those that are kept.
    #[default]
    Kept,
    /// Linear in each operand: one is kept for the gradients of the others.
    Bilinear,
    /// A quotient: the divisor is kept, and the dividend for the divisor's gradient.
    Quotient,
    /// All: backward computes the op again.
    Again,
}

impl Saves {
    /// Nothing is kept.
    pub fn nothing() -> Saves {
        Saves::default()
    }

    /// These operands are kept.
    pub fn inputs(inputs: &[usize]) -> Saves {
        Saves { inputs: SmallVec::from_slice(inputs), ..Saves::default() }
    }

    /// These operands are kept, by an op that is linear in each: one for the gradients of the others.
    pub fn bilinear(inputs: &[usize]) -> Saves {
        Saves { when: When::Bilinear, ..Saves::inputs(inputs) }
    }

    /// These results are kept.
    pub fn outputs(outputs: &[usize]) -> Saves {
        Saves { outputs: SmallVec::from_slice(outputs), ..Saves::default() }
    }
}

/// What an op computes, as data for the interpreter and the compiler.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// Every element of the result is this expression of the operands' elements at the same place.
    Map(Expr),
    /// A reduction over axes.
    Reduce(ReduceKind, Shape),
    /// A rearrangement of the first operand's elements.
    View(View),
    /// A tensor contraction.
    Contract(Dot),
    /// A constant.
    Leaf,
    /// Every element is found by its index: read at a place that is computed, or made of the index itself.
    Index(Indexing),
    /// A named function of its operands, given by this graph.
    Inline(Arc<Graph>),
    /// An op that the interpreter and each backend implement as such.
    Library,
}

/// How an element is found by its index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Indexing {
    /// The index itself along an axis, converted to the result's dtype.
    Iota(usize),
    /// Operands side by side along an axis.
    Concat(usize),
    /// Slices of the first operand at places that the second names.
    Gather(Gather),
    /// A part of the first operand of these sizes; the other operands say where it begins, clamped so that it fits.
    Slice(Shape),
    /// The first operand with the second over a part of it; the other operands say where it begins, clamped likewise.
    Update,
    /// Threefry's two words of the operands' four at the same place: two results.
    Threefry,
}

impl Meaning {
    /// A rough count of machine operations for an element that is computed where it is used; 1 for what is not.
    pub fn cost(&self) -> u32 {
        match self {
            Meaning::Map(e) => e.cost(),
            Meaning::Leaf => 0,
            Meaning::Index(Indexing::Threefry) => 120,
            Meaning::Index(
                Indexing::Iota(_) | Indexing::Concat(_) | Indexing::Gather(_) | Indexing::Slice(_) | Indexing::Update,
            ) => 1,
            Meaning::View(_) | Meaning::Reduce(..) | Meaning::Contract(_) | Meaning::Inline(_) | Meaning::Library => 1,
        }
    }
}

/// What an op does in a graph of mixed precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Takes narrow operands, sums in f32, gives a narrow result.
    Narrow,
    /// Moves, selects, adds or multiplies elements: narrow if its operands are.
    Follow,
    /// Computes in f32.
    Wide,
}

/// A rearrangement of elements: where the result's element comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// Same elements in row-major order.
    Reshape,
    /// Result axis `i` is operand axis `perm[i]`.
    Permute(Shape),
    /// Operand axis `i` is result axis `dims[i]`; size-1 axes repeat.
    Broadcast(Shape),
    /// Result index `i` is operand index `start + i · stride`.
    Slice(Shape, Shape),
    /// Result index is `low + i · (interior + 1)`; other places hold the second operand. `low` may be negative.
    Pad(SmallVec<[i64; 6]>, Shape),
    /// These axes run backwards.
    Flip(Shape),
}

impl View {
    /// Whether a reader can look through it without a kernel: it needs no element but the operand's.
    pub fn is_free(&self) -> bool {
        match self {
            View::Reshape | View::Permute(_) | View::Broadcast(_) | View::Slice(..) | View::Flip(_) => true,
            View::Pad(..) => false,
        }
    }
}

/// The rules of one op.
pub trait Rules {
    /// The name in the text form and in messages.
    fn name(&self) -> &'static str;

    /// Static data, in printing order.
    fn attrs(&self) -> Attrs {
        Vec::new()
    }

    /// Types of the results.
    fn infer(&self, args: &[Type]) -> Infer;

    /// Tangents of the results, given operands `x`, their tangents `dx` and results `y`.
    fn jvp(&self, cx: &mut dyn Cx, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents>;

    /// Values and tangents of the results together, where the op and then `jvp` would compute something twice: the body of an op that has
    /// one, or a factorisation.
    fn jvp_with_values(
        &self,
        _cx: &mut dyn Cx,
        _x: &[Value],
        _dx: &[Option<Value>],
    ) -> Result<Option<(Vec<Value>, Tangents)>> {
        Ok(None)
    }

    /// An equivalent graph that is differentiated in this op's place, where there is one.
    fn differentiate_as(&self, _args: &[Type]) -> Result<Option<Graph>> {
        Ok(None)
    }

    /// Partial evaluation: what can be computed from the known operands, what is saved, what remains.
    fn split(&self, cx: &mut dyn Cx, args: &[Type], known: &[bool]) -> Result<Split>;

    /// Cotangents of the linear operands (`None` for known ones), given those of the results.
    fn transpose(&self, cx: &mut dyn Cx, args: &[Arg], ct: &[Option<Value>]) -> Result<Tangents>;

    /// The op over a batch of `size`: operand `i` has the batch axis in front where `batched[i]`.
    fn batch(&self, cx: &mut dyn Cx, x: &[Value], batched: &[bool], size: usize) -> Result<Vec<(Value, bool)>>;

    /// What PyTorch would keep for backward.
    fn saves(&self) -> Saves;

    /// Its part in mixed precision.
    fn precision(&self) -> Precision;

    /// What it computes.
    fn meaning(&self) -> Meaning;

    /// The results for concrete operands, for ops whose meaning is `Library` or `Index`: the reference that backends are compared
    /// with. Other ops are evaluated from their meaning.
    fn eval(&self, _args: &[Literal]) -> Result<Vec<Literal>> {
        Err(Error::Run(format!("{} is evaluated from its meaning", self.name())))
    }

    /// Reads the op from its text form; `None` when the name is another op's.
    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Self>>
    where
        Self: Sized;
}

/// Checks the number of operands.
pub(crate) fn arity(args: &[Type], n: usize) -> std::result::Result<(), Problem> {
    if args.len() == n { Ok(()) } else { Err(Problem::Arity { expected: n.to_string(), got: args.len() }) }
}

/// Checks that an axis exists.
pub(crate) fn check_axis(axis: usize, rank: usize) -> std::result::Result<(), Problem> {
    if axis < rank { Ok(()) } else { Err(Problem::Axis { axis: axis as i64, rank }) }
}

/// Checks that axes exist and are named once.
pub(crate) fn check_axes(axes: &[usize], rank: usize) -> std::result::Result<(), Problem> {
    for (i, &a) in axes.iter().enumerate() {
        check_axis(a, rank)?;
        if axes[..i].contains(&a) {
            return Err(Problem::RepeatedAxis(a));
        }
    }
    Ok(())
}

/// The types of an op's results for concrete operands.
pub(crate) fn eval_types(op: &impl Rules, args: &[Literal]) -> Result<Vec<Type>> {
    let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
    op.infer(&types).map_err(|p| Error::Run(format!("{}: {p}", op.name())))
}

/// The error of an op that is not linear in any operand.
pub(crate) fn not_linear<T>(op: &impl Rules) -> Result<T> {
    Err(Error::no_rule(op.name(), "transpose", "it is not linear in its operands"))
}

/// The usual `split`: all or nothing.
macro_rules! split_whole {
    () => {
        fn split(&self, _: &mut dyn Cx, _: &[Type], _: &[bool]) -> Result<Split> {
            Ok(Split::Whole)
        }
    };
}

/// The `transpose` of an op that is not linear.
macro_rules! never_linear {
    () => {
        fn transpose(&self, _: &mut dyn Cx, _: &[Arg], _: &[Option<Value>]) -> Result<Tangents> {
            not_linear(self)
        }
    };
}

/// The `jvp` of an op whose results carry no derivative.
macro_rules! no_tangent {
    () => {
        fn jvp(&self, _: &mut dyn Cx, _: &[Value], _: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
            Ok(vec![None; y.len()])
        }
    };
}

/// Both jvp rules of an op with a body, from its function `both`.
macro_rules! jvp_of_body {
    () => {
        fn jvp(&self, cx: &mut dyn Cx, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
            Ok(self.both(cx, x, dx)?.1)
        }

        fn jvp_with_values(
            &self,
            cx: &mut dyn Cx,
            x: &[Value],
            dx: &[Option<Value>],
        ) -> Result<Option<(Vec<Value>, Tangents)>> {
            self.both(cx, x, dx).map(Some)
        }
    };
}

pub mod arg_reduce;
pub mod collective;
pub mod composite;
pub mod cond;
pub mod constant;
pub mod control;
pub mod conv;
pub mod cumulative;
pub mod dot;
pub mod dynamic_slice;
pub mod elementwise;
pub mod fft;
pub mod gather;
pub mod linalg;
pub mod name;
pub mod permute_along;
pub mod ragged_dot;
pub mod reduce;
pub mod reduce_window;
pub mod remat;
pub mod scan;
pub mod scatter;
pub mod shard_map;
pub mod slice_dims;
pub mod sort;
pub mod threefry;
pub mod top_k;
pub mod view;
pub mod while_loop;
pub mod window;
pub mod window_gather;

pub use arg_reduce::ArgReduce;
pub use collective::{Collective, CollectiveKind};
pub use composite::{Composite, CustomLinear, Derivative};
pub use cond::Cond;
pub use constant::{Const, Iota};
pub use control::Call;
pub use conv::Conv;
pub use cumulative::Cumulative;
pub use dot::Dot;
pub use dynamic_slice::{DynamicSlice, DynamicUpdateSlice};
pub use elementwise::{Bitcast, Cast, Clamp, Fma, Quantize, Select, StopGradient};
pub use fft::{Fft, FftKind};
pub use gather::{Gather, GatherMode};
pub use linalg::{Cholesky, Eigh, Lu, Qr, Svd, TriangularSolve};
pub use name::Name;
pub use permute_along::{PutAlong, TakeAlong};
pub use ragged_dot::{RaggedDot, RaggedMode};
pub use reduce::{Reduce, ReduceKind};
pub use reduce_window::ReduceWindow;
pub use remat::{Remat, RematPolicy};
pub use scan::{Checkpoint, Scan};
pub use scatter::{Scatter, ScatterKind, ScatterMode};
pub use shard_map::ShardMap;
pub use slice_dims::SliceDims;
pub use sort::Sort;
pub use threefry::Threefry2x32;
pub use top_k::TopK;
pub use view::{Broadcast, Concat, Flip, Pad, Permute, Reshape, Slice};
pub use while_loop::While;
pub use window::Windows;
pub use window_gather::{WindowGather, WindowScatter};

macro_rules! ops {
    ($($variant:ident($ty:ty)),* $(,)?) => {
        /// Every op. The variants are the one list; each holds the struct that carries the op's rules.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each variant's struct is documented")]
        pub enum Op { $($variant($ty)),* }

        impl Op {
            /// Reads an op from its text form.
            pub fn parse(name: &str, attrs: &mut AttrReader) -> AttrResult<Op> {
                $(if let Some(op) = <$ty as Rules>::parse(name, attrs) {
                    return op.map(Op::$variant);
                })*
                Err(format!("unknown op `{name}`"))
            }
        }

        $(impl From<$ty> for Op {
            fn from(op: $ty) -> Op { Op::$variant(op) }
        })*

        macro_rules! rule {
            ($op:expr, $x:ident => $call:expr) => { match $op { $(Op::$variant($x) => $call),* } };
        }
    };
}

ops! {
    Unary(crate::scalar::Unary),
    Binary(crate::scalar::Binary),
    Compare(crate::scalar::Compare),
    Select(Select),
    Clamp(Clamp),
    Fma(Fma),
    Cast(Cast),
    Bitcast(Bitcast),
    Quantize(Quantize),
    StopGradient(StopGradient),
    Name(Name),
    Const(Const),
    Iota(Iota),
    Reshape(Reshape),
    Permute(Permute),
    Broadcast(Broadcast),
    Slice(Slice),
    Pad(Pad),
    Flip(Flip),
    Concat(Concat),
    Reduce(Reduce),
    Cumulative(Cumulative),
    ArgReduce(ArgReduce),
    ReduceWindow(ReduceWindow),
    WindowGather(WindowGather),
    WindowScatter(WindowScatter),
    Dot(Dot),
    RaggedDot(RaggedDot),
    Conv(Conv),
    Gather(Gather),
    Scatter(Scatter),
    DynamicSlice(DynamicSlice),
    DynamicUpdateSlice(DynamicUpdateSlice),
    Threefry2x32(Threefry2x32),
    Scan(Scan),
    Cond(Cond),
    While(While),
    TakeAlong(TakeAlong),
    PutAlong(PutAlong),
    Sort(Sort),
    TopK(TopK),
    Fft(Fft),
    Cholesky(Cholesky),
    TriangularSolve(TriangularSolve),
    Lu(Lu),
    Qr(Qr),
    Eigh(Eigh),
    Svd(Svd),
    Call(Call),
    Remat(Remat),
    Composite(Composite),
    CustomLinear(CustomLinear),
    Collective(Collective),
    ShardMap(ShardMap),
}

/// The rules, each by a match of its own rather than through one table of functions: what never differentiates, as the
/// library for C, has no code for it.
impl Op {
    /// [`Rules::name`].
    pub fn name(&self) -> &'static str {
        rule!(self, op => op.name())
    }

    /// [`Rules::attrs`].
    pub fn attrs(&self) -> Attrs {
        rule!(self, op => op.attrs())
    }

    /// [`Rules::infer`].
    pub fn infer(&self, args: &[Type]) -> Infer {
        rule!(self, op => op.infer(args))
    }

    /// [`Rules::jvp`].
    pub fn jvp(&self, cx: &mut dyn Cx, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        rule!(self, op => op.jvp(cx, x, dx, y))
    }

    /// [`Rules::jvp_with_values`].
    pub fn jvp_with_values(
        &self,
        cx: &mut dyn Cx,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<Option<(Vec<Value>, Tangents)>> {
        rule!(self, op => op.jvp_with_values(cx, x, dx))
    }

    /// [`Rules::differentiate_as`].
    pub fn differentiate_as(&self, args: &[Type]) -> Result<Option<Graph>> {
        rule!(self, op => op.differentiate_as(args))
    }

    /// [`Rules::split`].
    pub fn split(&self, cx: &mut dyn Cx, args: &[Type], known: &[bool]) -> Result<Split> {
        rule!(self, op => op.split(cx, args, known))
    }

    /// [`Rules::transpose`].
    pub fn transpose(&self, cx: &mut dyn Cx, args: &[Arg], ct: &[Option<Value>]) -> Result<Tangents> {
        rule!(self, op => op.transpose(cx, args, ct))
    }

    /// [`Rules::batch`].
    pub fn batch(&self, cx: &mut dyn Cx, x: &[Value], batched: &[bool], size: usize) -> Result<Vec<(Value, bool)>> {
        rule!(self, op => op.batch(cx, x, batched, size))
    }

    /// [`Rules::saves`].
    pub fn saves(&self) -> Saves {
        rule!(self, op => op.saves())
    }

    /// [`Rules::precision`].
    pub fn precision(&self) -> Precision {
        rule!(self, op => op.precision())
    }

    /// [`Rules::meaning`].
    pub fn meaning(&self) -> Meaning {
        rule!(self, op => op.meaning())
    }

    /// [`Rules::eval`].
    pub fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        rule!(self, op => op.eval(args))
    }
}
