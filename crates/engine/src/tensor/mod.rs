//! `Tensor`: the handle that programs use.

mod arith;
mod basic_index;
mod format;
mod index;
mod inplace;
mod nn;
mod operators;
mod read;
mod reduce;
mod shape;
mod sort;

pub use basic_index::{Ellipsis, Index, NewAxis, OnePick, Picks, step};
pub use index::ScatterReduce;
pub(crate) use inplace::DETACHED_MESSAGE;

use crate::autograd::Leaf;
use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::intern::Ty;
use crate::node::{SavedVersion, ValueRef};
use crate::record::LazyBuild;
use crate::state::EngineState;
use crate::storage_base::{BaseBinding, BaseId};
use crate::trace::{Trace, TraceMode};
use crate::view::{View, ViewMeta};
use ir::{DType, Loc, Shape, Type};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// An array that may not have been computed yet.
///
/// Ops return at once. An op on operands of the wrong shape or dtype returns an *invalid* tensor, which contains the error and
/// the source line; reading it, or [`Tensor::check`], returns that error. A tensor does not convert to a number implicitly:
/// read it with [`Tensor::item`] or [`Tensor::to_vec`].
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<TensorHandle>);

/// The error of an invalid tensor.
pub(crate) struct Invalid {
    pub(crate) error: Error,
    pub(crate) read: AtomicBool,
    /// Whether the user was told that the tensor has no shape.
    reported: AtomicBool,
}

impl Invalid {
    /// Reports to the user, once, that a property of an invalid tensor was read. Reads by the library itself are not reported.
    #[cold]
    fn report_once(&self, what: &str, at: &'static std::panic::Location<'static>) {
        if context::is_user_code(at) && !self.reported.swap(true, Ordering::Relaxed) {
            let (file, line) = (at.file(), at.line());
            compiler::debug::say(0, || format!("{file}:{line}: the {what} of an invalid tensor: {}", self.error));
        }
    }

    pub(crate) fn new(error: Error) -> Invalid {
        Invalid { error, read: AtomicBool::new(false), reported: AtomicBool::new(false) }
    }
}

/// A tensor in the lazy graph of an engine.
pub(crate) struct Lazy {
    pub(crate) engine: Engine,
    pub(crate) base: BaseId,
    pub(crate) view: Option<Arc<View>>,
}

/// A tensor of a trace.
pub(crate) struct Traced {
    pub(crate) trace: Arc<Trace>,
    pub(crate) cell: usize,
    pub(crate) view: Option<Arc<View>>,
}

pub(crate) enum TensorKind {
    Lazy(Lazy),
    Traced(Traced),
    Invalid(Arc<Invalid>),
}

/// The data that clones of a tensor share.
pub(crate) struct TensorHandle {
    pub(crate) id: u64,
    pub(crate) ty: Ty,
    pub(crate) kind: TensorKind,
    /// Set if this tensor is a leaf, or if its gradient is retained.
    pub(crate) leaf: OnceLock<Arc<Leaf>>,
    /// Set if this tensor is not a leaf and its gradient is retained.
    pub(crate) retained: OnceLock<Arc<Leaf>>,
    /// The leaf that this tensor is a view of.
    pub(crate) view_leaf: Option<Arc<Leaf>>,
    /// Whether gradients stop at this tensor.
    pub(crate) detached: bool,
    disposed: AtomicBool,
    escapes: AtomicBool,
    /// Whether the elements were read, so that `Debug` may show them.
    seen: AtomicBool,
}

impl TensorHandle {
    #[inline]
    pub(crate) fn new(id: u64, ty: impl Into<Ty>, kind: TensorKind) -> TensorHandle {
        TensorHandle {
            id,
            ty: ty.into(),
            kind,
            leaf: OnceLock::new(),
            retained: OnceLock::new(),
            view_leaf: None,
            detached: false,
            disposed: AtomicBool::new(false),
            escapes: AtomicBool::new(false),
            seen: AtomicBool::new(false),
        }
    }

    pub(crate) fn lazy(&self) -> Option<&Lazy> {
        match &self.kind {
            TensorKind::Lazy(l) => Some(l),
            _ => None,
        }
    }

    pub(crate) fn view(&self) -> Option<&Arc<View>> {
        match &self.kind {
            TensorKind::Lazy(l) => l.view.as_ref(),
            TensorKind::Traced(t) => t.view.as_ref(),
            TensorKind::Invalid(_) => None,
        }
    }

    /// The leaf whose value this tensor reads.
    pub(crate) fn reads_leaf(&self) -> Option<&Arc<Leaf>> {
        self.leaf.get().or(self.view_leaf.as_ref())
    }

    pub(crate) fn set_escapes(&self) {
        self.escapes.store(true, Ordering::Relaxed);
    }

    pub(crate) fn escapes(&self) -> bool {
        self.escapes.load(Ordering::Relaxed)
    }

    /// Disposal of the handle (§1.4): idempotent, and only a request for cleanup.
    pub(crate) fn dispose(&self) {
        if !self.disposed.swap(true, Ordering::Relaxed) {
            self.enqueue();
        }
    }

    /// Queues the base for cleanup by the engine; does nothing if the engine no longer exists.
    fn enqueue(&self) {
        if let TensorKind::Lazy(l) = &self.kind {
            l.engine.shared.finalize(l.base);
        }
    }
}

impl Drop for TensorHandle {
    fn drop(&mut self) {
        if !*self.disposed.get_mut() {
            self.enqueue();
        }
    }
}

impl Tensor {
    #[inline]
    pub(crate) fn from_handle(handle: TensorHandle) -> Tensor {
        let handle = Arc::new(handle);
        context::track_handle(&handle);
        Tensor(handle)
    }

    /// Creates a tensor with a new base.
    pub(crate) fn fresh(engine: &Engine, state: &mut EngineState, value: ValueRef) -> Tensor {
        let source = value.node.tracked.then(|| value.clone());
        let made = Tensor::copied(engine, state, value);
        if let (Some(r), Some(base)) = (source, made.base_id()) {
            r.node.publish(r.out, SavedVersion { base, version: 0 });
        }
        made
    }

    /// Creates a tensor with a new base for a value that is read from another base, which backward needs unchanged.
    pub(crate) fn copied(engine: &Engine, state: &mut EngineState, value: ValueRef) -> Tensor {
        let ty = value.ty().clone();
        let lazy = Lazy { engine: engine.clone(), base: state.new_base(value), view: None };
        Tensor::from_handle(TensorHandle::new(engine.shared.handle_id(), ty, TensorKind::Lazy(lazy)))
    }

    /// Creates an invalid tensor. The engine keeps the error until it is read.
    pub(crate) fn with_error(error: Error, engine: Option<&Engine>) -> Tensor {
        let invalid = Arc::new(Invalid::new(error));
        let staging = context::trace();
        let region = staging.as_ref().and_then(|t| match &t.mode {
            TraceMode::Region(engine) | TraceMode::Checkpoint(engine) => Some(engine),
            TraceMode::Function => None,
        });
        if let Some(engine) = engine.or(region) {
            engine.shared.state().invalid.push(invalid.clone());
        }
        Tensor::from_invalid(invalid)
    }

    pub(crate) fn from_invalid(invalid: Arc<Invalid>) -> Tensor {
        Tensor::from_handle(TensorHandle::new(u64::MAX, Type::scalar(DType::F32), TensorKind::Invalid(invalid)))
    }

    /// Returns this tensor if it is invalid, else `None`.
    pub(crate) fn invalid(&self) -> Option<&Tensor> {
        matches!(self.0.kind, TensorKind::Invalid(_)).then_some(self)
    }

    pub(crate) fn check_alive(&self, at: &Loc) -> Result<()> {
        if self.0.disposed.load(Ordering::Relaxed) {
            return Err(Error::DisposedTensor { id: self.0.id, at: at.clone() });
        }
        Ok(())
    }

    pub(crate) fn check_at(&self, at: &Loc) -> Result<()> {
        match &self.0.kind {
            TensorKind::Invalid(i) => {
                i.read.store(true, Ordering::Relaxed);
                Err(i.error.clone())
            }
            TensorKind::Traced(t) if !context::is_active(&t.trace) => {
                Err(Error::InvalidTraceTensorEscape { at: at.clone() })
            }
            _ => self.check_alive(at),
        }
    }

    /// Returns the error of an invalid tensor. Nothing is computed.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        self.check_at(&Loc::caller())
    }

    /// The sizes of a tensor of rank `N`; an error for another rank or an invalid tensor.
    ///
    /// ```ignore
    /// let [batch, time, channels] = x.dims()?;
    /// ```
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        let at = Loc::caller();
        self.check_at(&at)?;
        let rank = || Error::Rank { expected: N, got: self.0.ty.shape.clone(), at };
        self.0.ty.shape.as_slice().try_into().map_err(|_| rank())
    }

    /// Reports the read of a property that an invalid tensor does not have, once for the user's line.
    #[inline]
    #[track_caller]
    fn report_invalid_query(&self, what: &str) {
        if let TensorKind::Invalid(i) = &self.0.kind {
            i.report_once(what, std::panic::Location::caller());
        }
    }

    /// The shape, or the error of an invalid tensor.
    #[track_caller]
    pub fn try_shape(&self) -> Result<&[usize]> {
        self.check_at(&Loc::caller())?;
        Ok(&self.0.ty.shape)
    }

    /// The size of an axis, counted from the end if negative; an error for an axis out of range or an invalid tensor.
    #[track_caller]
    pub fn try_size(&self, axis: isize) -> Result<usize> {
        let at = Loc::caller();
        self.check_at(&at)?;
        let axis = axis_of(axis, self.rank())
            .map_err(|p| Error::from(operand_error("size", &[self.ty()], p)).with_loc(&at))?;
        Ok(self.0.ty.shape[axis])
    }

    /// The shape. An invalid tensor has none: the error is written to the debug output, the standard error unless
    /// [`set_output`](compiler::debug::set_output) changes it, and `[]` is returned. [`Tensor::try_shape`] and
    /// [`Tensor::dims`] return the error itself.
    #[track_caller]
    pub fn shape(&self) -> &[usize] {
        self.report_invalid_query("shape");
        &self.0.ty.shape
    }

    /// The number of axes.
    #[track_caller]
    pub fn rank(&self) -> usize {
        self.report_invalid_query("rank");
        self.0.ty.rank()
    }

    /// The number of elements.
    #[track_caller]
    pub fn numel(&self) -> usize {
        self.report_invalid_query("number of elements");
        self.0.ty.numel()
    }

    /// The size of an axis, counted from the end if negative; 1 if there is no such axis. See [`Tensor::try_size`].
    #[track_caller]
    pub fn size(&self, axis: isize) -> usize {
        self.report_invalid_query("size");
        let i = if axis < 0 { axis + self.0.ty.rank() as isize } else { axis };
        usize::try_from(i).ok().and_then(|i| self.0.ty.shape.get(i).copied()).unwrap_or(1)
    }

    /// The element type.
    #[track_caller]
    pub fn dtype(&self) -> DType {
        self.report_invalid_query("dtype");
        self.0.ty.dtype
    }

    /// The dtype and shape.
    pub fn ty(&self) -> &Type {
        &self.0.ty
    }

    /// Whether this is a clone of `other`: the same handle, not only equal elements.
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The engine of the tensor; `None` for a tensor of a trace.
    pub fn engine(&self) -> Option<&Engine> {
        self.0.lazy().map(|l| &l.engine)
    }

    /// The base that the tensor shares with its views; `None` for a tensor of a trace.
    pub fn base_id(&self) -> Option<BaseId> {
        self.0.lazy().map(|l| l.base)
    }

    /// The offset and strides of the view over its base (§2.3).
    pub fn view_meta(&self) -> ViewMeta {
        match self.0.view() {
            Some(v) => v.meta(),
            None => View::identity(&self.0.ty).meta(),
        }
    }

    /// Whether this is an expanded tensor or a view of one: several elements may share a memory location.
    pub fn is_expanded(&self) -> bool {
        self.0.view().is_some_and(|v| v.is_expanded())
    }

    /// Disposes of the tensor and all its clones; using them afterwards is an error (§1.4).
    pub fn dispose(&self) {
        self.0.dispose();
    }

    /// The current value in program order, not yet computed.
    pub(crate) fn current_value(&self, at: &Loc) -> Result<ValueRef> {
        let lazy = self.0.lazy().ok_or_else(|| Error::HostReadInCompile { what: "force", at: at.clone() })?;
        let mut state = lazy.engine.shared.state();
        let mut b = LazyBuild::new(&mut state, at.clone());
        b.grad = false;
        let v = b.load(&self.0)?;
        Ok(b.get(v).clone())
    }

    /// The current value in program order, with its gradient history.
    pub(crate) fn current_value_tracked(&self, at: &Loc) -> Result<ValueRef> {
        self.check_at(at)?;
        let lazy =
            self.0.lazy().ok_or_else(|| Error::HostReadInCompile { what: "a look at history", at: at.clone() })?;
        let mut state = lazy.engine.shared.state();
        match &state.bases.get(lazy.base).expect("a handle keeps its base").binding {
            // Reading the history has no effect: a value in a loc is not loaded.
            BaseBinding::Ssa(_) => state.base_load(lazy.base, None, false, at),
            _ => state.history(lazy.base).ok_or_else(|| {
                let reason = "nothing that this tensor depends on requires gradients".into();
                Error::Autograd { reason, at: at.clone() }
            }),
        }
    }

    /// Creates another handle on the whole base, with its gradient history.
    pub(crate) fn root(&self, state: &mut EngineState) -> Option<Tensor> {
        let lazy = self.0.lazy()?;
        let base = state.base_mut(lazy.base);
        base.pins += 1;
        let ty = base.ty.clone();
        let kind = TensorKind::Lazy(Lazy { engine: lazy.engine.clone(), base: lazy.base, view: None });
        let mut handle = TensorHandle::new(lazy.engine.shared.handle_id(), ty, kind);
        handle.view_leaf = self.0.reads_leaf().cloned();
        Some(Tensor::from_handle(handle))
    }

    /// Creates another handle on the same base.
    pub(crate) fn alias_with(
        &self,
        ty: impl Into<Ty>,
        view: Option<Arc<View>>,
        change: impl FnOnce(&mut TensorHandle),
    ) -> Tensor {
        let (id, kind) = match &self.0.kind {
            TensorKind::Lazy(l) => {
                l.engine.shared.state().base_mut(l.base).pins += 1;
                let lazy = Lazy { engine: l.engine.clone(), base: l.base, view };
                (l.engine.shared.handle_id(), TensorKind::Lazy(lazy))
            }
            TensorKind::Traced(t) => {
                (self.0.id, TensorKind::Traced(Traced { trace: t.trace.clone(), cell: t.cell, view }))
            }
            TensorKind::Invalid(_) => return self.clone(),
        };
        let mut handle = TensorHandle::new(id, ty, kind);
        handle.view_leaf = self.0.reads_leaf().cloned();
        handle.detached = self.0.detached;
        change(&mut handle);
        Tensor::from_handle(handle)
    }
}

/// Converts an axis, counted from the end if negative, to an axis number.
pub(crate) fn axis_of(axis: isize, rank: usize) -> std::result::Result<usize, ir::InferError> {
    let i = if axis < 0 { axis + rank as isize } else { axis };
    usize::try_from(i).ok().filter(|&i| i < rank).ok_or(ir::InferError::Axis { axis: axis as i64, rank })
}

/// Creates an `ir` error about operands.
pub(crate) fn operand_error(op: &str, operands: &[&Type], problem: ir::InferError) -> ir::Error {
    ir::Error::Type(Box::new(ir::TypeError {
        op: op.to_string(),
        operands: operands.iter().map(|t| (*t).clone()).collect(),
        problem,
        loc: Loc::Unknown,
    }))
}

/// Converts a slice of sizes to a shape.
pub(crate) fn shape_of(s: &[usize]) -> Shape {
    Shape::from_slice(s)
}
