//! The ops and their rules. The file of an op's family contains everything about the op; the list at the end of this
//! file is the only other place that names it.
//!
//! # Laws of the rules
//!
//! - `infer` is total: for any operands it returns types or an [`InferError`], and never panics.
//! - `jvp` is linear in the tangents, and a missing tangent is a symbolic zero.
//! - `partial_eval` of an op that computes values and tangents together puts all values in its known part.
//! - `transpose` is only called for an op that is linear in its `Linear` operands.
//! - `batch` gets every batched operand with a leading batch axis, and returns results in the same form. (A permutation
//!   costs nothing after fusion, so rules need not choose axes.)
//! - Integer and bool values have no tangents.

use crate::attr::{AttrReader, AttrResult, Attrs};
use crate::build::GraphTransforms;
use crate::error::{Error, InferError, Result};
use crate::expr::Expr;
use crate::graph::{Graph, Value};
use crate::literal::Literal;
use crate::types::{Shape, Type};
use smallvec::SmallVec;
use std::sync::Arc;

/// Inferred output types.
pub type Infer = std::result::Result<Vec<Type>, InferError>;

/// Tangents or cotangents; `None` is a symbolic zero.
pub type Tangents = Vec<Option<Value>>;

/// An operand during transposition.
#[derive(Clone, Debug)]
pub enum TransposeArg {
    /// A value that may be used.
    Known(Value),
    /// An operand that the op is linear in, of which only the type is known.
    Linear(Type),
}

impl TransposeArg {
    /// Whether the op is transposed with respect to this operand.
    pub fn is_linear(&self) -> bool {
        matches!(self, TransposeArg::Linear(_))
    }

    /// The value of a known operand.
    pub fn known(&self) -> Option<Value> {
        match self {
            TransposeArg::Known(v) => Some(*v),
            TransposeArg::Linear(_) => None,
        }
    }
}

/// The partial evaluation of an op with some known operands.
#[derive(Clone, Debug)]
pub enum PartialEval {
    /// It is not split: it runs in the known part if all operands are known, otherwise completely in the unknown part.
    Atomic,
    /// It is split into two ops.
    Parts(SplitOp),
}

/// The two parts of a split op.
#[derive(Clone, Debug)]
pub struct SplitOp {
    /// The known part, with the positions of its operands (all known).
    pub known: Option<(Op, Vec<usize>)>,
    /// The unknown part, with its operands.
    pub unknown: Option<(Op, Vec<ResidualArg>)>,
    /// The source of each output of the original op.
    pub outs: Vec<OutputSource>,
}

/// An operand of the unknown part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidualArg {
    /// The n-th operand of the original op.
    Arg(usize),
    /// The n-th output of the known part.
    Residual(usize),
}

/// The part that computes an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputSource {
    /// The n-th output of the known part.
    Known(usize),
    /// The n-th output of the unknown part.
    Unknown(usize),
}

/// The operands and results that PyTorch would save for backward, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedForBackward {
    /// The saved operands.
    pub inputs: SmallVec<[usize; 4]>,
    /// The saved results.
    pub outputs: SmallVec<[usize; 2]>,
    /// The operands that must not be modified before backward.
    pub when: SavePolicy,
}

/// Rules for the operands that must not be modified before backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SavePolicy {
    /// The saved operands.
    #[default]
    Kept,
    /// The op is linear in each operand: one is saved for the gradients of the others.
    Bilinear,
    /// A quotient: the divisor is saved, and the dividend for the divisor's gradient.
    Quotient,
    /// All operands, because backward recomputes the op.
    Recompute,
}

impl SavedForBackward {
    /// Saves nothing.
    pub fn none() -> SavedForBackward {
        SavedForBackward::default()
    }

    /// Saves these operands.
    pub fn inputs(inputs: &[usize]) -> SavedForBackward {
        SavedForBackward { inputs: SmallVec::from_slice(inputs), ..SavedForBackward::default() }
    }

    /// Saves these operands of an op that is linear in each: one for the gradients of the others.
    pub fn bilinear(inputs: &[usize]) -> SavedForBackward {
        SavedForBackward { when: SavePolicy::Bilinear, ..SavedForBackward::inputs(inputs) }
    }

    /// Saves these results.
    pub fn outputs(outputs: &[usize]) -> SavedForBackward {
        SavedForBackward { outputs: SmallVec::from_slice(outputs), ..SavedForBackward::default() }
    }
}

/// The semantics of an op, as data for the interpreter and the compiler.
#[derive(Clone, Debug, PartialEq)]
pub enum Semantics {
    /// Every element of the result is this expression of the operands' elements at the same index.
    Elementwise(Expr),
    /// A reduction over axes.
    Reduce(ReduceKind, Shape),
    /// A rearrangement of the first operand's elements.
    View(View),
    /// A tensor contraction.
    DotGeneral(Dot),
    /// A constant.
    Constant,
    /// Every element is computed from its index: it is read at a computed index, or is the index itself.
    Index(Indexing),
    /// A named function that this graph defines.
    Inline(Arc<Graph>),
    /// An op that the interpreter and each backend implement directly.
    Opaque,
}

/// How an element is computed from its index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Indexing {
    /// The index itself along an axis, converted to the result's dtype.
    Iota(usize),
    /// The operands, concatenated along an axis.
    Concat(usize),
    /// Slices of the first operand at the indices in the second.
    Gather(Gather),
    /// A slice of the first operand of these sizes; the other operands are the start indices, clamped so that it fits.
    Slice(Shape),
    /// The first operand with a slice replaced by the second; the other operands are the start indices, clamped likewise.
    Update,
    /// Threefry's two output words of the four operands at the same index: two results.
    Threefry,
}

impl Semantics {
    /// The approximate number of machine operations per element of an inlined op; 1 for other ops.
    pub fn cost(&self) -> u32 {
        match self {
            Semantics::Elementwise(e) => e.cost(),
            Semantics::Constant => 0,
            Semantics::Index(Indexing::Threefry) => 120,
            Semantics::Index(
                Indexing::Iota(_) | Indexing::Concat(_) | Indexing::Gather(_) | Indexing::Slice(_) | Indexing::Update,
            ) => 1,
            Semantics::View(_)
            | Semantics::Reduce(..)
            | Semantics::DotGeneral(_)
            | Semantics::Inline(_)
            | Semantics::Opaque => 1,
        }
    }
}

/// The behaviour of an op in a mixed-precision graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutocastRule {
    /// Takes low-precision operands, accumulates in f32, returns a low-precision result.
    LowPrecision,
    /// Moves, selects, adds or multiplies elements: low precision if all operands have it.
    Promote,
    /// Computes in f32.
    Fp32,
}

/// A rearrangement of elements: the mapping from result elements to operand elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// Same elements in row-major order.
    Reshape,
    /// Result axis `i` is operand axis `perm[i]`.
    Permute(Shape),
    /// Operand axis `i` is result axis `dims[i]`; axes of size 1 are broadcast.
    Broadcast(Shape),
    /// Result index `i` is operand index `start + i · stride`.
    Slice(Shape, Shape),
    /// Operand index `i` is result index `low + i · (interior + 1)`; other elements are the second operand. `low` may be negative.
    Pad(SmallVec<[i64; 6]>, Shape),
    /// These axes are reversed.
    Flip(Shape),
}

impl View {
    /// Whether a consumer can read through it without a kernel: it needs only the operand's elements.
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

    /// The static data, in printing order.
    fn attrs(&self) -> Attrs {
        Vec::new()
    }

    /// The types of the results.
    fn infer(&self, args: &[Type]) -> Infer;

    /// The tangents of the results, given operands `x`, their tangents `dx` and results `y`.
    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents>;

    /// The values and tangents of the results together, for ops where separate computations would repeat work: ops with a body,
    /// and factorizations.
    fn jvp_with_values(
        &self,
        _cx: &mut dyn GraphTransforms,
        _x: &[Value],
        _dx: &[Option<Value>],
    ) -> Result<Option<(Vec<Value>, Tangents)>> {
        Ok(None)
    }

    /// An equivalent graph that is differentiated instead of this op, if there is one.
    fn differentiate_as(&self, _args: &[Type]) -> Result<Option<Graph>> {
        Ok(None)
    }

    /// Partial evaluation: computes the known part, the residuals, and the unknown part.
    fn partial_eval(&self, cx: &mut dyn GraphTransforms, args: &[Type], known: &[bool]) -> Result<PartialEval>;

    /// The cotangents of the linear operands (`None` for known ones), given those of the results.
    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents>;

    /// The op over a batch of `size`: operand `i` has a leading batch axis if `batched[i]`.
    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>>;

    /// The values that PyTorch would save for backward.
    fn saved_for_backward(&self) -> SavedForBackward;

    /// The rule for mixed precision.
    fn autocast_rule(&self) -> AutocastRule;

    /// The semantics of the op.
    fn semantics(&self) -> Semantics;

    /// The results for concrete operands, for ops with `Opaque` or `Index` semantics: the reference that backends are compared
    /// with. Other ops are evaluated from their semantics.
    fn eval(&self, _args: &[Literal]) -> Result<Vec<Literal>> {
        Err(Error::Run(format!("{} is evaluated from its meaning", self.name())))
    }

    /// Parses the op from its text form; `None` if the name belongs to another op.
    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Self>>
    where
        Self: Sized;
}

/// Checks the number of operands.
pub(crate) fn arity(args: &[Type], n: usize) -> std::result::Result<(), InferError> {
    if args.len() == n { Ok(()) } else { Err(InferError::Arity { expected: n.to_string(), got: args.len() }) }
}

/// Checks that an axis exists.
pub(crate) fn check_axis(axis: usize, rank: usize) -> std::result::Result<(), InferError> {
    if axis < rank { Ok(()) } else { Err(InferError::Axis { axis: axis as i64, rank }) }
}

/// Checks that axes exist and occur once.
pub(crate) fn check_axes(axes: &[usize], rank: usize) -> std::result::Result<(), InferError> {
    for (i, &a) in axes.iter().enumerate() {
        check_axis(a, rank)?;
        if axes[..i].contains(&a) {
            return Err(InferError::RepeatedAxis(a));
        }
    }
    Ok(())
}

/// The types of an op's results for concrete operands.
pub(crate) fn eval_types(op: &impl Rules, args: &[Literal]) -> Result<Vec<Type>> {
    let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
    op.infer(&types).map_err(|p| Error::Run(format!("{}: {p}", op.name())))
}

/// The error for an op that is not linear in any operand.
pub(crate) fn not_linear<T>(op: &impl Rules) -> Result<T> {
    Err(Error::no_rule(op.name(), "transpose", "it is not linear in its operands"))
}

/// The usual `partial_eval`: the op is not split.
macro_rules! split_whole {
    () => {
        fn partial_eval(&self, _: &mut dyn GraphTransforms, _: &[Type], _: &[bool]) -> Result<PartialEval> {
            Ok(PartialEval::Atomic)
        }
    };
}

/// The `transpose` rule of an op that is not linear.
macro_rules! never_linear {
    () => {
        fn transpose(&self, _: &mut dyn GraphTransforms, _: &[TransposeArg], _: &[Option<Value>]) -> Result<Tangents> {
            not_linear(self)
        }
    };
}

/// The `jvp` rule of an op whose results have no derivative.
macro_rules! no_tangent {
    () => {
        fn jvp(&self, _: &mut dyn GraphTransforms, _: &[Value], _: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
            Ok(vec![None; y.len()])
        }
    };
}

/// Both jvp rules of an op with a body, from its function `value_and_jvp`.
macro_rules! jvp_of_body {
    () => {
        fn jvp(
            &self,
            cx: &mut dyn GraphTransforms,
            x: &[Value],
            dx: &[Option<Value>],
            _: &[Value],
        ) -> Result<Tangents> {
            Ok(self.value_and_jvp(cx, x, dx)?.1)
        }

        fn jvp_with_values(
            &self,
            cx: &mut dyn GraphTransforms,
            x: &[Value],
            dx: &[Option<Value>],
        ) -> Result<Option<(Vec<Value>, Tangents)>> {
            self.value_and_jvp(cx, x, dx).map(Some)
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
pub use scan::{Scan, ScanCheckpoint};
pub use scatter::{Scatter, ScatterKind, ScatterMode};
pub use shard_map::ShardMap;
pub use slice_dims::SliceDims;
pub use sort::Sort;
pub use threefry::Threefry2x32;
pub use top_k::TopK;
pub use view::{Broadcast, Concat, Flip, Pad, Permute, Reshape, Slice};
pub use while_loop::While;
pub use window::WindowConfig;
pub use window_gather::{WindowGather, WindowScatter};

macro_rules! ops {
    ($($variant:ident($ty:ty)),* $(,)?) => {
        /// Every op. This list of variants is the only list of ops; each variant contains the struct with the op's rules.
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

/// The rules, each by a separate match instead of one table of functions, so that binaries without differentiation, such as the
/// C library, do not contain its code.
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
    pub fn jvp(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
        y: &[Value],
    ) -> Result<Tangents> {
        rule!(self, op => op.jvp(cx, x, dx, y))
    }

    /// [`Rules::jvp_with_values`].
    pub fn jvp_with_values(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<Option<(Vec<Value>, Tangents)>> {
        rule!(self, op => op.jvp_with_values(cx, x, dx))
    }

    /// [`Rules::differentiate_as`].
    pub fn differentiate_as(&self, args: &[Type]) -> Result<Option<Graph>> {
        rule!(self, op => op.differentiate_as(args))
    }

    /// [`Rules::partial_eval`].
    pub fn split(&self, cx: &mut dyn GraphTransforms, args: &[Type], known: &[bool]) -> Result<PartialEval> {
        rule!(self, op => op.partial_eval(cx, args, known))
    }

    /// [`Rules::transpose`].
    pub fn transpose(
        &self,
        cx: &mut dyn GraphTransforms,
        args: &[TransposeArg],
        ct: &[Option<Value>],
    ) -> Result<Tangents> {
        rule!(self, op => op.transpose(cx, args, ct))
    }

    /// [`Rules::batch`].
    pub fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        rule!(self, op => op.batch(cx, x, batched, size))
    }

    /// [`Rules::saved_for_backward`].
    pub fn saves(&self) -> SavedForBackward {
        rule!(self, op => op.saved_for_backward())
    }

    /// [`Rules::autocast_rule`].
    pub fn precision(&self) -> AutocastRule {
        rule!(self, op => op.autocast_rule())
    }

    /// [`Rules::semantics`].
    pub fn semantics(&self) -> Semantics {
        rule!(self, op => op.semantics())
    }

    /// [`Rules::eval`].
    pub fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        rule!(self, op => op.eval(args))
    }
}
