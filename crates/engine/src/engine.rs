//! `Engine`: owns the state tables, the devices and the caches.

use crate::context;
use crate::error::{Error, Result};
use crate::intern::Ty;
use crate::kernels::KernelCache;
use crate::lock::{ExecGuard, ExecLock};
use crate::lru::LruCache;
use crate::node::{Node, NodePool};
use crate::operand::Number;
use crate::plan::PlanRoots;
use crate::pool::{Pool, PoolLimits, SizeStats};
use crate::profile::Profiling;
use crate::record::{Recorder, number_like, record};
use crate::region::{CompiledGraph, CompiledGraphKey};
use crate::state::EngineState;
use crate::storage::StoredValue;
use crate::storage_base::{BaseBinding, BaseId};
use crate::tensor::Tensor;
use crate::tree::Tree;
use crate::x64;
use compiler::Backend;
use ir::{DType, Element, Graph, Literal, Loc, Type, Values};

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Return an error to other threads while the engine executes, instead of making them wait (§6.8).
    pub strict: bool,
    /// The limit of cached free bytes on each device; `None` sets it to the program's recent peak
    /// of bytes in use.
    pub pool_bytes: Option<usize>,
    /// The limit of bytes that tensors use on each device; a computation that needs more fails with
    /// [`Error::MemoryLimit`] and changes nothing.
    pub memory_limit: Option<usize>,
    /// The maximum number of cached programs of compiled regions.
    pub max_variants: usize,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { strict: false, pool_bytes: None, memory_limit: None, max_variants: 256 }
    }
}

/// A backend with its buffer pool and kernel cache.
pub(crate) struct EngineDevice {
    pub(crate) pool: Arc<Pool>,
    pub(crate) kernels: KernelCache,
}

/// The engine state that all handles share.
pub(crate) struct EngineShared {
    state: Mutex<EngineState>,
    pub(crate) exec: ExecLock,
    pub(crate) devices: Vec<EngineDevice>,
    /// Bases of dropped handles that the engine has not cleaned up yet (§1.4).
    dropped: Mutex<Vec<BaseId>>,
    pub(crate) variants: Mutex<LruCache<CompiledGraphKey, Arc<CompiledGraph>>>,
    pub(crate) vjps: Mutex<LruCache<(Graph, usize, bool), Arc<Graph>>>,
    handles: AtomicU64,
    pub(crate) profiling: Profiling,
    /// The number of bytes copied between devices.
    pub(crate) transferred: AtomicU64,
}

/// The lazy, stateful runtime. A clone refers to the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<EngineShared>,
}

impl EngineShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn handle_id(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn flush_pools(&self) {
        self.devices.iter().for_each(|d| d.pool.flush());
    }

    /// Cleans up the bases of dropped handles; never plans or runs anything (§6.8.7).
    pub(crate) fn drain_finalize_queue(&self) {
        let (mut batch, mut dead, mut spare) = (Vec::new(), Vec::new(), NodePool::default());
        // Dropping a base's value may drop handles inside it, which adds to the queue, so repeat until the queue is empty.
        loop {
            mem::swap(&mut batch, &mut *self.dropped());
            if batch.is_empty() {
                return;
            }
            let mut state = self.state();
            for base in batch.drain(..) {
                if let Some(entry) = state.unpin(base) {
                    dead.push(entry);
                }
            }
            drop(state);
            for entry in dead.drain(..) {
                if let BaseBinding::Ssa(value) = entry.binding {
                    spare.drop(value);
                }
            }
            self.state().spare.add(&mut spare);
        }
    }

    fn dropped(&self) -> MutexGuard<'_, Vec<BaseId>> {
        self.dropped.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Queues the base of a dropped handle for cleanup; does nothing else.
    pub(crate) fn finalize(&self, base: BaseId) {
        self.dropped().push(base);
    }

    /// Starts a call that may execute: takes the lock, drains the finalizer queue, and checks that the engine is not poisoned.
    pub(crate) fn enter(&self, what: &'static str) -> Result<EntryGuard<'_>> {
        let guard = self.exec.acquire(what)?;
        self.drain_finalize_queue();
        let entered = EntryGuard { shared: self, guard };
        let poisoned = self.state().poisoned.clone();
        match poisoned {
            Some(cause) => Err(Error::Poisoned(cause)),
            None => Ok(entered),
        }
    }
}

/// A guard for a call that may execute; dropping it drains the finalizer queue again.
pub(crate) struct EntryGuard<'a> {
    shared: &'a EngineShared,
    pub(crate) guard: ExecGuard<'a>,
}

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        self.shared.drain_finalize_queue();
    }
}

impl Engine {
    /// Creates an engine with one device.
    pub fn new(backend: Arc<dyn Backend>) -> Engine {
        Engine::with_backends(vec![backend], &EngineOptions::default())
    }

    /// Creates an engine with several devices; new tensors are created on the first one.
    pub fn with_backends(backends: Vec<Arc<dyn Backend>>, options: &EngineOptions) -> Engine {
        let device = |(i, backend)| EngineDevice {
            pool: Arc::new(Pool::new(backend, i, PoolLimits { free: options.pool_bytes, live: options.memory_limit })),
            kernels: KernelCache::new(),
        };
        let shared = EngineShared {
            state: Mutex::default(),
            exec: ExecLock::new(options.strict),
            devices: backends.into_iter().enumerate().map(device).collect(),
            dropped: Mutex::default(),
            variants: Mutex::new(LruCache::new(options.max_variants)),
            vjps: Mutex::new(LruCache::new(256)),
            handles: AtomicU64::new(0),
            profiling: Profiling::default(),
            transferred: AtomicU64::new(0),
        };
        Engine { shared: Arc::new(shared) }
    }

    pub(crate) fn same(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Creates a tensor from data in row-major order.
    #[track_caller]
    pub fn tensor<T: Element>(&self, data: &[T], shape: &[usize]) -> Tensor {
        let at = context::resolve_loc(&Loc::caller());
        let n = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if n != Some(data.len()) {
            let reason = format!("{} elements don't fill shape {shape:?}", data.len());
            return Tensor::with_error(Error::call("tensor", reason, &at), Some(self));
        }
        self.literal_at(&Literal::new(shape, data), &at)
    }

    /// Creates a tensor from a literal.
    #[track_caller]
    pub fn literal(&self, literal: &Literal) -> Tensor {
        self.literal_at(literal, &Loc::caller())
    }

    pub(crate) fn literal_at(&self, literal: &Literal, at: &Loc) -> Tensor {
        let narrow = x64::literal(literal);
        let literal = narrow.as_ref().unwrap_or(literal);
        let at = &context::resolve_loc(at);
        if context::trace().is_some() {
            let f = |b: &mut dyn Recorder, _: &[ir::Value]| Ok(Values::from_elem(b.constant(literal.clone())?, 1));
            return record(at, 1, Some(self), &[], f).swap_remove(0);
        }
        let device = match self.creation_device(at) {
            Ok(d) => d,
            Err(e) => return Tensor::with_error(e, Some(self)),
        };
        let ty = self.shared.state().signatures.intern_type(literal.ty());
        match self.upload(literal, ty, device) {
            Ok(value) => {
                let mut state = self.shared.state();
                let key = state.node_key();
                let mut node = Node::data(key, value, at.clone());
                node.device = device as u8;
                Tensor::fresh(self, &mut state, crate::node::ValueRef { node: Arc::new(node), out: 0 })
            }
            Err(e) => Tensor::with_error(self.shared.memory_error("tensor", at, e.into()), Some(self)),
        }
    }

    fn upload(&self, literal: &Literal, ty: Ty, device: usize) -> compiler::Result<StoredValue> {
        let storage = self.shared.devices[device].pool.acquire(literal.bytes().len())?;
        storage.buffer().write(0, literal.bytes())?;
        Ok(StoredValue::dense(storage, ty))
    }

    /// Creates a tensor of rank 0.
    #[track_caller]
    pub fn full(&self, dtype: DType, shape: &[usize], x: impl Into<Number>) -> Tensor {
        let (at, x) = (Loc::caller(), x.into());
        let checked = Type::checked(dtype, shape);
        let f = |b: &mut dyn Recorder, _: &[ir::Value]| {
            checked.map_err(|p| ir::Error::Invalid(p.to_string()))?;
            let v = number_like(b, dtype, x)?;
            let v = b.cast(v, dtype)?;
            Ok(Values::from_elem(b.splat(v, shape)?, 1))
        };
        self.record_new_tensor(&at, f)
    }

    /// Records a new tensor on the current default device.
    pub(crate) fn record_new_tensor(
        &self,
        at: &Loc,
        f: impl FnOnce(&mut dyn Recorder, &[ir::Value]) -> ir::Result<Values>,
    ) -> Tensor {
        match self.creation_device(at) {
            Ok(device) => context::with_home_device(device, || record(at, 1, Some(self), &[], f).swap_remove(0)),
            Err(e) => Tensor::with_error(e, Some(self)),
        }
    }

    /// The current default device for new tensors.
    pub(crate) fn creation_device(&self, at: &Loc) -> Result<usize> {
        let (device, n) = (context::default_device(), self.shared.devices.len());
        if device < n {
            return Ok(device);
        }
        if n == 0 {
            let reason = "there is no device: this program was built without the feature `cpu` of `tensorloom`; enable it, or `cuda` or `wgpu`";
            return Err(Error::call("a new tensor", reason, at));
        }
        let reason = format!("the default device is {device}, but the engine has {n}; see devices()");
        Err(Error::call("a new tensor", reason, at))
    }

    /// A tensor of zeros.
    #[track_caller]
    pub fn zeros(&self, dtype: DType, shape: &[usize]) -> Tensor {
        self.full(dtype, shape, 0)
    }

    /// A tensor of ones.
    #[track_caller]
    pub fn ones(&self, dtype: DType, shape: &[usize]) -> Tensor {
        self.full(dtype, shape, 1)
    }

    /// `0, 1, .., n - 1`.
    #[track_caller]
    pub fn arange(&self, dtype: DType, n: usize) -> Tensor {
        let at = Loc::caller();
        self.record_new_tensor(&at, |b, _| Ok(Values::from_elem(b.iota(dtype, &[n], 0)?, 1)))
    }

    /// Computes the values of tensors without reading them.
    #[track_caller]
    pub fn force(&self, tree: &impl Tree) -> Result<()> {
        let at = Loc::caller();
        let tensors = tree.leaves();
        let entered = self.shared.enter("force")?;
        let mut roots = PlanRoots::default();
        for t in &tensors {
            t.check_at(&at)?;
            roots.values.push(t.current_value(&at)?);
        }
        self.shared.force(&entered.guard, &roots)
    }

    /// Runs `f`; tensors created inside are disposed of unless they are returned or kept (§1.4).
    pub fn tidy<R: Tree>(&self, f: impl FnOnce() -> R) -> R {
        let (result, made) = context::tidy_scope(f);
        result.visit(&mut |t| t.0.set_escapes());
        for handle in made.iter().filter_map(|h| h.upgrade()) {
            if handle.escapes() {
                context::track_handle(&handle);
            } else {
                handle.dispose();
            }
        }
        self.shared.drain_finalize_queue();
        result
    }

    /// The allocation counts of each buffer size on a device, in ascending order of size.
    pub fn allocation_histogram(&self, device: usize) -> Vec<SizeStats> {
        self.shared.devices.get(device).map_or(Vec::new(), |d| d.pool.sizes())
    }

    /// Clears the cached programs, gradient graphs and free buffers. Tensors are not affected; programs that are needed again are
    /// compiled again.
    pub fn clear_caches(&self) {
        let shared = &self.shared;
        shared.drain_finalize_queue();
        shared.variants.lock().unwrap_or_else(|e| e.into_inner()).clear();
        shared.vjps.lock().unwrap_or_else(|e| e.into_inner()).clear();
        {
            let mut state = shared.state();
            state.signatures = Default::default();
            state.ops = Default::default();
        }
        for d in &shared.devices {
            d.kernels.clear();
        }
        if let Some(_guard) = shared.exec.try_acquire("clear_caches") {
            shared.devices.iter().for_each(|d| d.pool.release_all());
        }
    }

    /// Excludes a tensor from the cleanup of all tidy scopes (§1.4).
    pub fn keep(&self, t: &Tensor) {
        t.0.set_escapes();
    }

    /// Disposes of a tensor; a later use is an error. Works at any time, also on a busy or poisoned engine.
    pub fn dispose(&self, t: &Tensor) {
        t.dispose();
    }
}

/// Copies a result's bytes to the host.
pub(crate) fn download(value: &StoredValue) -> compiler::Result<Literal> {
    let mut bytes = vec![0; value.ty.bytes()];
    value.storage.buffer().read(0, &mut bytes)?;
    Literal::from_bytes((*value.ty).clone(), &bytes)
        .ok_or_else(|| compiler::Error::Internal("a buffer of another size than its type".into()))
}

/// Two handles are equal if they refer to the same engine.
impl PartialEq for Engine {
    fn eq(&self, other: &Engine) -> bool {
        self.same(other)
    }
}

impl Eq for Engine {}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.shared.devices.iter().map(|d| d.pool.backend.name()).collect();
        write!(f, "Engine({})", names.join(", "))
    }
}
