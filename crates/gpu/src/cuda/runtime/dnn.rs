//! cuDNN, if it is installed: attention with its graph API, for the shapes where it was faster than the own templates on an H200
//! ([`is_faster`]). Without it, or if it has no plan for a shape, the templates run. `TENSORLOOM_CUDNN=off` disables it.
//!
//! An attention is a graph of small operations, which cuDNN matches as a whole: `q·kᵀ`, a factor, the causal mask from row and
//! column indices, the softmax as maximum, exponential, sum and quotient, and the product with `v`. Its patterns require this
//! order and these intermediate types. Backward is the deterministic variant: it stores scores in memory, where the other one
//! accumulates with atomics. It does not support a cotangent of the log-sum-exp, which must therefore be known to be zero.

use super::context::{Context, DriverHandle};
use super::dynlib;
use crate::attention::AttentionCall;
use compiler::program::BufferSlice;
use compiler::{Error, Result};
use ir::DType;
use libloading::Library;
use rustc_hash::FxHashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

/// The first version without known bugs in attention.
const OLDEST: usize = 91_002;
/// The maximum workspace in bytes; larger problems use the templates.
const WORKSPACE: usize = 3 << 30;

type Descriptor = *mut c_void;
type Status = c_int;

/// Kinds of descriptors (`cudnnBackendDescriptorType_t`).
mod kind {
    pub(super) const POINTWISE: i32 = 0;
    pub(super) const CONFIG: i32 = 3;
    pub(super) const HEURISTIC: i32 = 4;
    pub(super) const PLAN: i32 = 5;
    pub(super) const POINTWISE_OP: i32 = 13;
    pub(super) const GRAPH: i32 = 15;
    pub(super) const PACK: i32 = 16;
    pub(super) const TENSOR: i32 = 17;
    pub(super) const MATMUL: i32 = 18;
    pub(super) const MATMUL_OP: i32 = 19;
    pub(super) const REDUCTION: i32 = 21;
    pub(super) const REDUCTION_OP: i32 = 22;
    pub(super) const RESHAPE_OP: i32 = 31;
}

/// Types of attributes (`cudnnBackendAttributeType_t`).
mod of {
    pub(super) const HANDLE: i32 = 0;
    pub(super) const DATA_TYPE: i32 = 1;
    pub(super) const BOOLEAN: i32 = 2;
    pub(super) const INT64: i32 = 3;
    pub(super) const POINTER: i32 = 6;
    pub(super) const HEURISTIC_MODE: i32 = 8;
    pub(super) const POINTWISE_MODE: i32 = 14;
    pub(super) const DESCRIPTOR: i32 = 15;
    pub(super) const REDUCTION_OPERATOR: i32 = 18;
}

/// Data types (`cudnnDataType_t`).
mod data {
    pub(super) const FLOAT: i32 = 0;
    pub(super) const HALF: i32 = 2;
    pub(super) const INT32: i32 = 4;
    pub(super) const BFLOAT16: i32 = 9;
    pub(super) const BOOLEAN: i32 = 11;
}

/// Pointwise modes (`cudnnPointwiseMode_t`).
mod mode {
    pub(super) const ADD: i32 = 0;
    pub(super) const MUL: i32 = 1;
    pub(super) const DIV: i32 = 6;
    pub(super) const SUB: i32 = 9;
    pub(super) const EXP: i32 = 13;
    pub(super) const LOG: i32 = 15;
    pub(super) const GREATER_OR_EQUAL: i32 = 303;
    pub(super) const INDEX: i32 = 501;
    pub(super) const SELECT: i32 = 601;
}

/// The functions of the library.
struct Calls {
    create: unsafe extern "C" fn(*mut *mut c_void) -> Status,
    set_stream: unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status,
    error: unsafe extern "C" fn(Status) -> *const c_char,
    new: unsafe extern "C" fn(i32, *mut Descriptor) -> Status,
    destroy: unsafe extern "C" fn(Descriptor) -> Status,
    set: unsafe extern "C" fn(Descriptor, i32, i32, i64, *const c_void) -> Status,
    get: unsafe extern "C" fn(Descriptor, i32, i32, i64, *mut i64, *mut c_void) -> Status,
    finalize: unsafe extern "C" fn(Descriptor) -> Status,
    execute: unsafe extern "C" fn(*mut c_void, Descriptor, Descriptor) -> Status,
}

impl Calls {
    fn check(&self, what: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: texts are static.
        let text = unsafe { CStr::from_ptr((self.error)(status)) };
        Err(Error::Backend(format!("cuDNN, {what}: {}", text.to_string_lossy())))
    }
}

/// cuDNN on a device.
pub(crate) struct Cudnn {
    calls: Arc<Calls>,
    /// The handle, locked because a call sets its stream first.
    handle: Mutex<DriverHandle<*mut c_void>>,
    /// The plans by call: creating one takes most of a second, and layers are often equal.
    plans: Mutex<FxHashMap<String, Option<Arc<CudnnPlan>>>>,
}

impl Cudnn {
    /// None if it is not installed, too old, or disabled.
    pub(crate) fn open(context: &Context) -> Option<Cudnn> {
        if std::env::var("TENSORLOOM_CUDNN").is_ok_and(|v| v == "off") {
            return None;
        }
        let library = dynlib::dnn()?;
        context.enter().ok()?;
        // SAFETY: names and types are those of cudnn_graph.h.
        let (calls, version) = unsafe {
            let version: unsafe extern "C" fn() -> usize = *library.get(b"cudnnGetVersion\0").ok()?;
            let calls = Calls {
                create: *library.get(b"cudnnCreate\0").ok()?,
                set_stream: *library.get(b"cudnnSetStream\0").ok()?,
                error: *library.get(b"cudnnGetErrorString\0").ok()?,
                new: *library.get(b"cudnnBackendCreateDescriptor\0").ok()?,
                destroy: *library.get(b"cudnnBackendDestroyDescriptor\0").ok()?,
                set: *library.get(b"cudnnBackendSetAttribute\0").ok()?,
                get: *library.get(b"cudnnBackendGetAttribute\0").ok()?,
                finalize: *library.get(b"cudnnBackendFinalize\0").ok()?,
                execute: *library.get(b"cudnnBackendExecute\0").ok()?,
            };
            (calls, version())
        };
        // The library stays open, because it must not be unloaded while descriptors exist.
        std::mem::forget::<Library>(library);
        if version < OLDEST {
            return None;
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is good for one handle.
        calls.check("cudnnCreate", unsafe { (calls.create)(&mut handle) }).ok()?;
        Some(Cudnn { calls: Arc::new(calls), handle: Mutex::new(DriverHandle(handle)), plans: Mutex::default() })
    }

    /// A plan for an attention or its backward; none if cuDNN does not support it.
    pub(crate) fn plan(&self, a: &AttentionCall) -> Option<Arc<CudnnPlan>> {
        let mut plans = self.plans.lock().unwrap_or_else(|e| e.into_inner());
        let make = || {
            let handle = self.handle.lock().unwrap_or_else(|e| e.into_inner());
            let graph = Graph { calls: &self.calls, owned: Vec::new(), ops: Vec::new(), uid: 0, numbers: Vec::new() };
            graph.attention(a, handle.0).ok().flatten().map(Arc::new)
        };
        plans.entry(format!("{a:?}")).or_insert_with(make).clone()
    }

    /// Enqueues an attention: addresses of the plan's tensors (see [`LoadedCudnnAttention`]), and of its workspace.
    ///
    /// # Safety
    /// The addresses are those of the tensors of the plan's call, and of as much workspace as it needs.
    pub(crate) unsafe fn run(
        &self,
        plan: &CudnnPlan,
        tensors: &[u64],
        workspace: u64,
        stream: *mut c_void,
    ) -> Result<()> {
        let handle = self.handle.lock().unwrap_or_else(|e| e.into_inner());
        let c = &*self.calls;
        // SAFETY: both are alive.
        c.check("cudnnSetStream", unsafe { (c.set_stream)(handle.0, stream) })?;
        let pack = Owned::new(&self.calls, kind::PACK)?;
        let numbers = plan.numbers.iter().map(|(_, bytes)| (&raw const *bytes) as u64);
        // The row sums of backward are at the end of the workspace.
        let own = (plan.rows > 0).then_some(workspace + (plan.workspace - plan.rows) as u64);
        let pointers: Vec<u64> = tensors.iter().copied().chain(own).chain(numbers).collect();
        pack.set(1000, of::INT64, &plan.uids)?;
        pack.set(1001, of::POINTER, &pointers)?;
        pack.set(1003, of::POINTER, &[workspace])?;
        pack.finalize()?;
        // SAFETY: the addresses are those of tensors of the plan's call and of as much workspace as it needs, and the
        // pack names every tensor of the plan.
        c.check("cudnnBackendExecute", unsafe { (c.execute)(handle.0, plan.raw(), pack.raw) })
    }
}

/// Whether cuDNN was faster than the templates for such an attention, and computes the same: every query sees a key, and
/// there are no other masks. With heads of 64 and 96 elements it was slower, and its plans take half a second to create.
pub(crate) fn is_faster(a: &AttentionCall) -> bool {
    let plain = a.cap.is_none() && a.window.is_none() && a.offset.is_none() && a.lengths.is_none();
    let wide = a.d.min(a.dv) > 96;
    // The scores of backward, in memory.
    let fits = !a.backward || a.batch * a.heads * a.tq * a.tk * 2 <= WORKSPACE;
    plain && wide && fits && a.tq <= a.tk && a.tq >= 128
}

/// An attention with its plan and tensors: queries, keys, values, result and log-sum-exp; in backward queries, keys, values,
/// result, its cotangent, log-sum-exp, and the cotangents of queries, keys, values.
pub(crate) struct LoadedCudnnAttention {
    pub(crate) plan: Arc<CudnnPlan>,
    pub(crate) tensors: Vec<BufferSlice>,
}

/// The execution plan of an attention.
pub(crate) struct CudnnPlan {
    /// The descriptors; the plan is the last, and depends on the others.
    owned: Vec<Owned>,
    uids: Vec<i64>,
    /// Scalars that are passed by value, on the host.
    numbers: Box<[(i64, [u8; 4])]>,
    pub(crate) workspace: usize,
    /// The last bytes of the workspace that are a tensor of the graph.
    rows: usize,
}

impl CudnnPlan {
    fn raw(&self) -> Descriptor {
        self.owned.last().map_or(std::ptr::null_mut(), |o| o.raw)
    }
}

// SAFETY: descriptors are plain memory that is not changed once it is finalized.
unsafe impl Send for CudnnPlan {}
// SAFETY: as above.
unsafe impl Sync for CudnnPlan {}

struct Owned {
    calls: Arc<Calls>,
    raw: Descriptor,
}

impl Owned {
    fn new(calls: &Arc<Calls>, kind: i32) -> Result<Owned> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is good for one descriptor.
        calls.check("cudnnBackendCreateDescriptor", unsafe { (calls.new)(kind, &mut raw) })?;
        Ok(Owned { calls: calls.clone(), raw })
    }

    fn set<T>(&self, attribute: i32, ty: i32, values: &[T]) -> Result<()> {
        // SAFETY: as many values as said, of the type that is said.
        let status = unsafe { (self.calls.set)(self.raw, attribute, ty, values.len() as i64, values.as_ptr().cast()) };
        self.calls.check(&format!("attribute {attribute}"), status)
    }

    fn finalize(&self) -> Result<()> {
        // SAFETY: it is alive.
        self.calls.check("cudnnBackendFinalize", unsafe { (self.calls.finalize)(self.raw) })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created once.
        unsafe { (self.calls.destroy)(self.raw) };
    }
}

/// A tensor of a graph.
#[derive(Clone, Copy)]
struct Tensor {
    raw: Descriptor,
    uid: i64,
    dims: [i64; 4],
    data: i32,
}

struct Graph<'a> {
    calls: &'a Arc<Calls>,
    owned: Vec<Owned>,
    ops: Vec<Descriptor>,
    uid: i64,
    numbers: Vec<(i64, [u8; 4])>,
}

/// The strides of a dense tensor.
fn dense(d: [i64; 4]) -> [i64; 4] {
    [d[1] * d[2] * d[3], d[2] * d[3], d[3], 1]
}

impl Graph<'_> {
    fn keep(&mut self, o: Owned) -> Result<Descriptor> {
        o.finalize()?;
        let raw = o.raw;
        self.owned.push(o);
        Ok(raw)
    }

    fn tensor(&mut self, dims: [i64; 4], strides: [i64; 4], data: i32, within: bool) -> Result<Tensor> {
        self.uid += 1;
        let t = Owned::new(self.calls, kind::TENSOR)?;
        t.set(906, of::INT64, &[self.uid])?;
        t.set(901, of::DATA_TYPE, &[data])?;
        t.set(900, of::INT64, &[16i64])?;
        t.set(902, of::INT64, &dims)?;
        t.set(903, of::INT64, &strides)?;
        if within {
            t.set(907, of::BOOLEAN, &[true])?;
        }
        Ok(Tensor { raw: self.keep(t)?, uid: self.uid, dims, data })
    }

    /// A scalar that is passed by value.
    fn number(&mut self, data: i32, bytes: [u8; 4]) -> Result<Tensor> {
        self.uid += 1;
        let t = Owned::new(self.calls, kind::TENSOR)?;
        t.set(906, of::INT64, &[self.uid])?;
        t.set(901, of::DATA_TYPE, &[data])?;
        t.set(900, of::INT64, &[16i64])?;
        t.set(902, of::INT64, &[1i64; 4])?;
        t.set(903, of::INT64, &[1i64; 4])?;
        t.set(908, of::BOOLEAN, &[true])?;
        self.numbers.push((self.uid, bytes));
        Ok(Tensor { raw: self.keep(t)?, uid: self.uid, dims: [1; 4], data })
    }

    /// `y = mode(x, b)`, or a selection by `t`; `how` is the computation dtype, and an axis for row and column indices.
    fn pointwise(&mut self, mode: i32, how: (i32, Option<i64>), xs: [Option<Tensor>; 3], y: Tensor) -> Result<Tensor> {
        let p = Owned::new(self.calls, kind::POINTWISE)?;
        p.set(0, of::POINTWISE_MODE, &[mode])?;
        p.set(1, of::DATA_TYPE, &[how.0])?;
        if let Some(axis) = how.1 {
            p.set(9, of::INT64, &[axis])?;
        }
        let p = self.keep(p)?;
        let op = Owned::new(self.calls, kind::POINTWISE_OP)?;
        op.set(750, of::DESCRIPTOR, &[p])?;
        for (x, attribute) in xs.into_iter().zip([751, 752, 758]) {
            if let Some(x) = x {
                op.set(attribute, of::DESCRIPTOR, &[x.raw])?;
            }
        }
        op.set(753, of::DESCRIPTOR, &[y.raw])?;
        let op = self.keep(op)?;
        self.ops.push(op);
        Ok(y)
    }

    /// Like `pointwise`, with an intermediate tensor as the result.
    fn map(&mut self, mode: i32, data: i32, x: Tensor, b: Option<Tensor>) -> Result<Tensor> {
        let y = self.tensor(x.dims, dense(x.dims), data, true)?;
        let computes = if data == data::INT32 || data == data::BOOLEAN { data } else { data::FLOAT };
        self.pointwise(mode, (computes, None), [Some(x), b, None], y)
    }

    fn matmul(&mut self, a: Tensor, b: Tensor, c: Tensor) -> Result<()> {
        let m = Owned::new(self.calls, kind::MATMUL)?;
        m.set(1500, of::DATA_TYPE, &[data::FLOAT])?;
        let m = self.keep(m)?;
        let op = Owned::new(self.calls, kind::MATMUL_OP)?;
        for (attribute, t) in [(1520, a.raw), (1521, b.raw), (1522, c.raw), (1523, m)] {
            op.set(attribute, of::DESCRIPTOR, &[t])?;
        }
        let op = self.keep(op)?;
        self.ops.push(op);
        Ok(())
    }

    fn reduction(&mut self, operator: i32, x: Tensor, y: Tensor) -> Result<Tensor> {
        let r = Owned::new(self.calls, kind::REDUCTION)?;
        r.set(1600, of::REDUCTION_OPERATOR, &[operator])?;
        r.set(1601, of::DATA_TYPE, &[data::FLOAT])?;
        let r = self.keep(r)?;
        let op = Owned::new(self.calls, kind::REDUCTION_OP)?;
        for (attribute, t) in [(1610, x.raw), (1611, y.raw), (1612, r)] {
            op.set(attribute, of::DESCRIPTOR, &[t])?;
        }
        let op = self.keep(op)?;
        self.ops.push(op);
        Ok(y)
    }

    /// The scores with masked elements set to −∞.
    fn masked(&mut self, a: &AttentionCall, s: Tensor) -> Result<Tensor> {
        let all = s.dims;
        let places = |g: &mut Self, axis: i64| {
            let y = g.tensor(all, dense(all), data::INT32, true)?;
            g.pointwise(mode::INDEX, (data::FLOAT, Some(axis)), [Some(s), None, None], y)
        };
        let (mut row, column) = (places(self, 2)?, places(self, 3)?);
        if a.tq != a.tk {
            let (more, less) = (a.tk as i32, a.tq as i32);
            let more = self.number(data::INT32, more.to_le_bytes())?;
            row = self.map(mode::ADD, data::INT32, row, Some(more))?;
            let less = self.number(data::INT32, less.to_le_bytes())?;
            row = self.map(mode::SUB, data::INT32, row, Some(less))?;
        }
        let seen = self.map(mode::GREATER_OR_EQUAL, data::BOOLEAN, row, Some(column))?;
        let lowest = self.number(data::FLOAT, f32::NEG_INFINITY.to_le_bytes())?;
        let y = self.tensor(all, dense(all), data::FLOAT, true)?;
        self.pointwise(mode::SELECT, (data::FLOAT, None), [Some(s), Some(lowest), Some(seen)], y)
    }

    fn reshape(&mut self, x: Tensor, y: Tensor) -> Result<Tensor> {
        let op = Owned::new(self.calls, kind::RESHAPE_OP)?;
        op.set(2200, of::DESCRIPTOR, &[x.raw])?;
        op.set(2201, of::DESCRIPTOR, &[y.raw])?;
        let op = self.keep(op)?;
        self.ops.push(op);
        Ok(y)
    }

    fn backward(mut self, a: &AttentionCall, element: i32, handle: *mut c_void) -> Result<Option<CudnnPlan>> {
        let n = |x: usize| x as i64;
        let (batch, heads, kv) = (n(a.batch), n(a.heads), n(a.heads / a.group));
        let (tq, tk, d, dv) = (n(a.tq), n(a.tk), n(a.d), n(a.dv));
        let across = |[b, h, t, d]: [i64; 4]| ([b, h, d, t], [h * t * d, t * d, 1, d]);
        let (of_q, of_k) = ([batch, heads, tq, d], [batch, kv, tk, d]);
        let (of_v, of_out) = ([batch, kv, tk, dv], [batch, heads, tq, dv]);
        let outside = |g: &mut Self, dims: [i64; 4]| g.tensor(dims, dense(dims), element, false);
        let q = outside(&mut self, of_q)?;
        let k = self.tensor(across(of_k).0, across(of_k).1, element, false)?;
        let v = self.tensor(across(of_v).0, across(of_v).1, element, false)?;
        let (out, dout) = (outside(&mut self, of_out)?, outside(&mut self, of_out)?);
        let (rows, row_strides) = ([batch, heads, tq, 1], [heads * tq, tq, 1, 1]);
        let lse = self.tensor(rows, row_strides, data::FLOAT, false)?;
        let (dq, dk, dv_) = (outside(&mut self, of_q)?, outside(&mut self, of_k)?, outside(&mut self, of_v)?);
        // The row sums of backward: Σ dout·out.
        let both = self.tensor(of_out, [heads * tq * dv, tq * dv, heads * dv, 1], data::FLOAT, true)?;
        self.pointwise(mode::MUL, (data::FLOAT, None), [Some(dout), Some(out), None], both)?;
        let sum = self.tensor(rows, row_strides, data::FLOAT, true)?;
        self.reduction(0, both, sum)?;
        let one = self.number(data::FLOAT, 1f32.to_le_bytes())?;
        let less = self.tensor(rows, row_strides, data::FLOAT, false)?;
        self.pointwise(mode::MUL, (data::FLOAT, None), [Some(sum), Some(one), None], less)?;
        // The probabilities, and the cotangents of values.
        let all = [batch, heads, tq, tk];
        let scale = self.number(data::FLOAT, a.scale.to_le_bytes())?;
        let product = self.tensor(all, dense(all), data::FLOAT, true)?;
        self.matmul(q, k, product)?;
        let s = self.map(mode::MUL, data::FLOAT, product, Some(scale))?;
        let mut s = self.map(mode::SUB, data::FLOAT, s, Some(lse))?;
        if a.causal {
            s = self.masked(a, s)?;
        }
        let weights = self.map(mode::EXP, data::FLOAT, s, None)?;
        let turned = |g: &mut Self| g.tensor([batch, heads, tk, tq], [heads * tq * tk, tq * tk, 1, tk], element, true);
        let to = turned(&mut self)?;
        let weights_t = self.reshape(weights, to)?;
        self.by_heads(weights_t, dout, dv_)?;
        // The cotangents of scores, keys and queries.
        let product = self.tensor(all, dense(all), data::FLOAT, true)?;
        self.matmul(dout, v, product)?;
        let ds = self.map(mode::SUB, data::FLOAT, product, Some(less))?;
        let ds = self.map(mode::MUL, data::FLOAT, ds, Some(weights))?;
        let ds = self.map(mode::MUL, data::FLOAT, ds, Some(scale))?;
        let to = turned(&mut self)?;
        let ds_t = self.reshape(ds, to)?;
        self.by_heads(ds_t, q, dk)?;
        let to = self.tensor(of_k, dense(of_k), element, true)?;
        let keys = self.reshape(k, to)?;
        self.matmul(ds, keys, dq)?;
        let tensors = [q, k, v, out, dout, lse, dq, dk, dv_, less];
        let uids = tensors.iter().map(|t| t.uid).chain(self.numbers.iter().map(|(uid, _)| *uid)).collect();
        self.planned(uids, handle, a.batch * a.heads * a.tq * 4)
    }

    /// `a·b`, summed over the heads that share a key head.
    fn by_heads(&mut self, a: Tensor, b: Tensor, to: Tensor) -> Result<()> {
        let (mut dims, heads) = (to.dims, a.dims[1]);
        if dims[1] == heads {
            return self.matmul(a, b, to);
        }
        dims[1] = heads;
        // Its dtype is that of the result, which its consumers have too.
        let all = self.tensor(dims, dense(dims), to.data, true)?;
        self.matmul(a, b, all)?;
        self.reduction(0, all, to).map(|_| ())
    }

    fn attention(mut self, a: &AttentionCall, handle: *mut c_void) -> Result<Option<CudnnPlan>> {
        let element = match a.dtype {
            DType::BF16 => data::BFLOAT16,
            DType::F16 => data::HALF,
            _ => return Ok(None),
        };
        if a.backward {
            return self.backward(a, element, handle);
        }
        let n = |x: usize| x as i64;
        let (batch, heads, kv) = (n(a.batch), n(a.heads), n(a.heads / a.group));
        let (tq, tk, d, dv) = (n(a.tq), n(a.tk), n(a.d), n(a.dv));
        let outside = |g: &mut Self, dims: [i64; 4]| g.tensor(dims, dense(dims), element, false);
        let q = outside(&mut self, [batch, heads, tq, d])?;
        let k = self.tensor([batch, kv, d, tk], [kv * tk * d, tk * d, 1, d], element, false)?;
        let v = outside(&mut self, [batch, kv, tk, dv])?;
        let out = outside(&mut self, [batch, heads, tq, dv])?;
        let (rows, row_strides) = ([batch, heads, tq, 1], [heads * tq, tq, 1, 1]);
        let lse = self.tensor(rows, row_strides, data::FLOAT, false)?;
        let all = [batch, heads, tq, tk];
        let product = self.tensor(all, dense(all), data::FLOAT, true)?;
        self.matmul(q, k, product)?;
        let scale = self.number(data::FLOAT, a.scale.to_le_bytes())?;
        let mut s = self.map(mode::MUL, data::FLOAT, product, Some(scale))?;
        if a.causal {
            s = self.masked(a, s)?;
        }
        let row = |g: &mut Self| g.tensor(rows, row_strides, data::FLOAT, true);
        let (most, sum, log) = (row(&mut self)?, row(&mut self)?, row(&mut self)?);
        // CUDNN_REDUCE_TENSOR_MAX is 3, _ADD is 0.
        self.reduction(3, s, most)?;
        let below = self.map(mode::SUB, data::FLOAT, s, Some(most))?;
        let powers = self.map(mode::EXP, data::FLOAT, below, None)?;
        self.reduction(0, powers, sum)?;
        self.pointwise(mode::LOG, (data::FLOAT, None), [Some(sum), None, None], log)?;
        self.pointwise(mode::ADD, (data::FLOAT, None), [Some(most), Some(log), None], lse)?;
        let weights = self.map(mode::DIV, element, powers, Some(sum))?;
        self.matmul(weights, v, out)?;
        let uids: Vec<i64> =
            [q, k, v, out, lse].iter().map(|t| t.uid).chain(self.numbers.iter().map(|(uid, _)| *uid)).collect();
        self.planned(uids, handle, 0)
    }

    /// The first configuration that cuDNN proposes for which a plan can be created; `rows` additional bytes are a tensor of the
    /// graph.
    fn planned(mut self, uids: Vec<i64>, handle: *mut c_void, rows: usize) -> Result<Option<CudnnPlan>> {
        let graph = Owned::new(self.calls, kind::GRAPH)?;
        graph.set(801, of::DESCRIPTOR, &self.ops)?;
        graph.set(800, of::HANDLE, &[handle])?;
        let graph = self.keep(graph)?;
        let heuristic = Owned::new(self.calls, kind::HEURISTIC)?;
        heuristic.set(201, of::DESCRIPTOR, &[graph])?;
        // CUDNN_HEUR_MODE_A is 3.
        heuristic.set(200, of::HEURISTIC_MODE, &[3i32])?;
        let heuristic = self.keep(heuristic)?;
        let c = self.calls.clone();
        let mut count = 0i64;
        // SAFETY: with no room for results only their number is given.
        let status = unsafe { (c.get)(heuristic, 202, of::DESCRIPTOR, 0, &mut count, std::ptr::null_mut()) };
        c.check("the number of configurations", status)?;
        let configs: Vec<Owned> = (0..count).map(|_| Owned::new(&c, kind::CONFIG)).collect::<Result<_>>()?;
        let mut raw: Vec<Descriptor> = configs.iter().map(|o| o.raw).collect();
        let mut given = 0i64;
        // SAFETY: there is room for as many as said.
        let status = unsafe { (c.get)(heuristic, 202, of::DESCRIPTOR, count, &mut given, raw.as_mut_ptr().cast()) };
        c.check("configurations", status)?;
        raw.truncate(given.clamp(0, count) as usize);
        self.owned.extend(configs);
        for config in raw {
            let plan = Owned::new(&c, kind::PLAN)?;
            plan.set(401, of::DESCRIPTOR, &[config])?;
            plan.set(400, of::HANDLE, &[handle])?;
            if plan.finalize().is_err() {
                continue;
            }
            let (mut bytes, mut one) = (0i64, 0i64);
            // SAFETY: there is room for one number.
            let status = unsafe { (c.get)(plan.raw, 402, of::INT64, 1, &mut one, (&raw mut bytes).cast()) };
            if status != 0 || bytes < 0 || bytes as usize > WORKSPACE {
                continue;
            }
            self.owned.push(plan);
            let numbers = self.numbers.into_boxed_slice();
            let workspace = (bytes as usize).next_multiple_of(256) + rows;
            return Ok(Some(CudnnPlan { owned: self.owned, uids, numbers, workspace, rows }));
        }
        Ok(None)
    }
}
