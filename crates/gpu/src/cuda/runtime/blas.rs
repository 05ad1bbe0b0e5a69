//! cuBLASLt: matrix products.
//!
//! f32 does not use TF32 (`CUBLAS_COMPUTE_32F`); f16 and bf16 are accumulated in f32. Split-k sums are combined in the
//! accumulator dtype, never by atomics, so equal calls give equal bits.

use super::context::{Context, DriverHandle};
use super::device::Device;
use super::dynlib;
use super::gemm::{GemmCall, Matrix};
use super::memory::CudaBuffer;
use compiler::{DeviceBuffer, Error, Result};
use cudarc::cublaslt::sys as lt;
use cudarc::cublaslt::sys::cublasStatus_t as Status;
use cudarc::driver::sys as cu;
use ir::DType;
use rustc_hash::FxHashMap;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

/// The workspace size in bytes, which NVIDIA recommends for Hopper.
const WORKSPACE: usize = 32 << 20;
/// The maximum number of cached heuristic results.
const KEPT: usize = 8192;

/// The parameters that determine how a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GemmKey {
    pub(crate) gemm: GemmCall,
    pub(crate) dtype: DType,
    /// The dtype of the second matrix: the first one's, except for fp8.
    pub(crate) second: DType,
    pub(crate) out: DType,
    /// The alignments in bytes of the addresses of first, second and out.
    pub(crate) aligned: [u32; 3],
}

/// cuBLASLt on a device.
pub(crate) struct CublasLt {
    context: Arc<Context>,
    handle: DriverHandle<lt::cublasLtHandle_t>,
    /// The workspace. All calls share it, so the kernels of one call are enqueued together.
    workspace: Mutex<CudaBuffer>,
    chosen: Mutex<FxHashMap<GemmKey, Option<Choice>>>,
}

#[derive(Clone, Copy)]
struct Choice {
    algo: lt::cublasLtMatmulAlgo_t,
    workspace: usize,
}

impl CublasLt {
    /// None if the library is not installed.
    pub(crate) fn open(device: &Arc<Device>) -> Result<Option<CublasLt>> {
        if !dynlib::blas() {
            return Ok(None);
        }
        device.context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is good for one handle.
        check("cublasLtCreate", unsafe { lt::cublasLtCreate(&mut handle) })?;
        let workspace = Mutex::new(CudaBuffer::new(device, WORKSPACE)?);
        let context = device.context.clone();
        Ok(Some(CublasLt { context, handle: DriverHandle(handle), workspace, chosen: Mutex::default() }))
    }

    pub(crate) fn version() -> usize {
        // SAFETY: needs nothing.
        unsafe { lt::cublasLtGetVersion() }
    }

    /// Prepares a product; none if cuBLASLt does not support it.
    pub(crate) fn plan(&self, call: &GemmKey) -> Result<Option<CublasLtPlan>> {
        self.context.enter()?;
        let plan = CublasLtPlan::new(call)?;
        let known = self.chosen.lock().unwrap_or_else(|e| e.into_inner()).get(call).copied();
        let choice = match known {
            Some(c) => c,
            None => {
                let c = self.query_heuristic(call, &plan)?;
                let mut chosen = self.chosen.lock().unwrap_or_else(|e| e.into_inner());
                if chosen.len() >= KEPT {
                    chosen.clear();
                }
                chosen.insert(*call, c);
                c
            }
        };
        Ok(choice.map(|choice| CublasLtPlan { choice: Some(choice), ..plan }))
    }

    /// Locks the workspace; the lock is held until all kernels of a product are enqueued on the device's stream.
    pub(crate) fn workspace(&self) -> MutexGuard<'_, CudaBuffer> {
        self.workspace.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The best algorithm according to the library's heuristic.
    fn query_heuristic(&self, call: &GemmKey, plan: &CublasLtPlan) -> Result<Option<Choice>> {
        use lt::cublasLtMatmulPreferenceAttributes_t::*;
        let preference = Preference::new()?;
        preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
        let schemes = lt::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes)?;
        let [first, second, out] = call.aligned;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first)?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second)?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out)?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out)?;
        let mut count = 0;
        // SAFETY: plain data that the call fills in; every bit pattern is one of its values but for the status, 0.
        let mut result: lt::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let (a, b, c) = (plan.first.0.0, plan.second.0.0, plan.out.0.0);
        // SAFETY: all descriptors are alive; there is room for one result.
        let status = unsafe {
            lt::cublasLtMatmulAlgoGetHeuristic(
                self.handle.0,
                plan.desc.0.0,
                a,
                b,
                c,
                c,
                preference.0,
                1,
                &mut result,
                &mut count,
            )
        };
        match status {
            Status::CUBLAS_STATUS_SUCCESS if count > 0 && result.state == Status::CUBLAS_STATUS_SUCCESS => {
                Ok(Some(Choice { algo: result.algo, workspace: result.workspaceSize }))
            }
            Status::CUBLAS_STATUS_SUCCESS
            | Status::CUBLAS_STATUS_NOT_SUPPORTED
            | Status::CUBLAS_STATUS_INVALID_VALUE => Ok(None),
            _ => check(&format!("cublasLtMatmulAlgoGetHeuristic of {call:?}"), status).map(|()| None),
        }
    }

    /// Enqueues a product on a stream.
    ///
    /// # Safety
    /// The addresses are those of matrices with the plan's sizes, on the device.
    pub(crate) unsafe fn run(
        &self,
        plan: &CublasLtPlan,
        first: u64,
        second: u64,
        out: u64,
        stream: cu::CUstream,
    ) -> Result<()> {
        // SAFETY: the addresses are those of matrices with the plan's sizes, which is what `scaled` requires; there are
        // no scales.
        unsafe { self.scaled(plan, first, second, None, out, stream) }
    }

    /// Like `run`; `scales` are the addresses of two f32 factors, for all elements of `first` and of `second`.
    ///
    /// # Safety
    /// As for `run`.
    pub(crate) unsafe fn scaled(
        &self,
        plan: &CublasLtPlan,
        first: u64,
        second: u64,
        scales: Option<[u64; 2]>,
        out: u64,
        stream: cu::CUstream,
    ) -> Result<()> {
        let choice = plan.choice.as_ref().ok_or_else(|| Error::Internal("a product without a plan".into()))?;
        let workspace = self.workspace();
        // The lock on the workspace also protects this plan.
        if let Some([of_first, of_second]) = scales {
            use lt::cublasLtMatmulDescAttributes_t::*;
            plan.desc.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_first)?;
            plan.desc.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of_second)?;
        }
        let (one, zero) = (1.0f32, 0.0f32);
        let (one_wide, zero_wide) = (1.0f64, 0.0f64);
        let (alpha, beta): (*const c_void, *const c_void) = match plan.wide {
            true => ((&raw const one_wide).cast(), (&raw const zero_wide).cast()),
            false => ((&raw const one).cast(), (&raw const zero).cast()),
        };
        let c = plan.out.0.0;
        // SAFETY: the addresses are those of matrices with the plan's sizes, and the workspace has the size that the
        // heuristic was given.
        let status = unsafe {
            lt::cublasLtMatmul(
                self.handle.0,
                plan.desc.0.0,
                alpha,
                first as *const c_void,
                plan.first.0.0,
                second as *const c_void,
                plan.second.0.0,
                beta,
                out as *const c_void,
                c,
                out as *mut c_void,
                c,
                &choice.algo,
                workspace.address() as *mut c_void,
                choice.workspace.min(workspace.bytes()),
                stream.cast::<lt::CUstream_st>(),
            )
        };
        drop(workspace);
        if status != Status::CUBLAS_STATUS_SUCCESS {
            // An asynchronous error of earlier work is reported here without its name; query the stream for it.
            // SAFETY: the stream is alive.
            let code = unsafe { cu::cuStreamQuery(stream) };
            if code != cu::CUresult::CUDA_ERROR_NOT_READY {
                self.context.check(code, || "cublasLtMatmul".into())?;
            }
        }
        check(&format!("cublasLtMatmul of {}", plan.label), status)
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        if self.context.enter_for_drop() {
            // SAFETY: created once; no call uses it any more.
            unsafe { lt::cublasLtDestroy(self.handle.0) };
        }
    }
}

/// A product that is prepared to run.
pub(crate) struct CublasLtPlan {
    desc: Desc,
    first: Layout,
    second: Layout,
    out: Layout,
    choice: Option<Choice>,
    /// Whether the scalar factors are f64.
    wide: bool,
    label: String,
}

impl CublasLtPlan {
    fn new(call: &GemmKey) -> Result<CublasLtPlan> {
        use lt::cublasComputeType_t::*;
        let wide = call.dtype == DType::F64;
        let compute = if wide { CUBLAS_COMPUTE_64F } else { CUBLAS_COMPUTE_32F };
        let desc = Desc::new(compute, data_type(if wide { DType::F64 } else { DType::F32 })?)?;
        use lt::cublasLtMatmulDescAttributes_t::*;
        // CUBLAS_OP_N is 0, CUBLAS_OP_T is 1.
        let operation = |m: &Matrix| m.transposed as i32;
        let g = &call.gemm;
        desc.set(CUBLASLT_MATMUL_DESC_TRANSA, &operation(&g.first))?;
        desc.set(CUBLASLT_MATMUL_DESC_TRANSB, &operation(&g.second))?;
        let layout = |m: &Matrix, d: DType| Layout::new(m, g.count, data_type(d)?);
        let (first, second) = (layout(&g.first, call.dtype)?, layout(&g.second, call.second)?);
        let out = layout(&g.out, call.out)?;
        let label = format!("{} to {}, {g:?}", call.dtype, call.out);
        Ok(CublasLtPlan { desc, first, second, out, choice: None, wide, label })
    }
}

fn data_type(d: DType) -> Result<lt::cudaDataType> {
    use lt::cudaDataType_t::*;
    Ok(match d {
        DType::F32 => CUDA_R_32F,
        DType::F64 => CUDA_R_64F,
        DType::F16 => CUDA_R_16F,
        DType::BF16 => CUDA_R_16BF,
        DType::F8E4M3 => CUDA_R_8F_E4M3,
        DType::F8E5M2 => CUDA_R_8F_E5M2,
        _ => return Err(Error::Internal(format!("a product of {d}"))),
    })
}

struct Desc(DriverHandle<lt::cublasLtMatmulDesc_t>);

impl Desc {
    fn new(compute: lt::cublasComputeType_t, scale: lt::cudaDataType) -> Result<Desc> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is good for one handle.
        check("cublasLtMatmulDescCreate", unsafe { lt::cublasLtMatmulDescCreate(&mut raw, compute, scale) })?;
        Ok(Desc(DriverHandle(raw)))
    }

    fn set<T>(&self, attribute: lt::cublasLtMatmulDescAttributes_t, value: &T) -> Result<()> {
        let p = (&raw const *value).cast::<c_void>();
        // SAFETY: the value has the size that is said.
        let status = unsafe { lt::cublasLtMatmulDescSetAttribute(self.0.0, attribute, p, size_of::<T>()) };
        check("cublasLtMatmulDescSetAttribute", status)
    }
}

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: created once; it lives on the host.
        unsafe { lt::cublasLtMatmulDescDestroy(self.0.0) };
    }
}

struct Layout(DriverHandle<lt::cublasLtMatrixLayout_t>);

impl Layout {
    fn new(m: &Matrix, count: usize, dtype: lt::cudaDataType) -> Result<Layout> {
        use lt::cublasLtMatrixLayoutAttribute_t::*;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is good for one handle.
        let status = unsafe { lt::cublasLtMatrixLayoutCreate(&mut raw, dtype, m.rows, m.cols, m.ld) };
        check(&format!("cublasLtMatrixLayoutCreate of {m:?}"), status)?;
        let layout = Layout(DriverHandle(raw));
        if count != 1 {
            let matrices = i32::try_from(count)
                .map_err(|_| Error::Backend(format!("a product of {count} matrices; at most 2³¹−1 are possible")))?;
            layout.set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrices)?;
            layout.set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch)?;
        }
        Ok(layout)
    }

    fn set<T>(&self, attribute: lt::cublasLtMatrixLayoutAttribute_t, value: &T) -> Result<()> {
        let p = (&raw const *value).cast::<c_void>();
        // SAFETY: the value has the size that is said.
        let status = unsafe { lt::cublasLtMatrixLayoutSetAttribute(self.0.0, attribute, p, size_of::<T>()) };
        check("cublasLtMatrixLayoutSetAttribute", status)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: created once; it lives on the host.
        unsafe { lt::cublasLtMatrixLayoutDestroy(self.0.0) };
    }
}

struct Preference(lt::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Result<Preference> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is good for one handle.
        check("cublasLtMatmulPreferenceCreate", unsafe { lt::cublasLtMatmulPreferenceCreate(&mut raw) })?;
        Ok(Preference(raw))
    }

    fn set<T>(&self, attribute: lt::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<()> {
        let p = (&raw const *value).cast::<c_void>();
        // SAFETY: the value has the size that is said.
        let status = unsafe { lt::cublasLtMatmulPreferenceSetAttribute(self.0, attribute, p, size_of::<T>()) };
        check(&format!("cublasLtMatmulPreferenceSetAttribute {attribute:?}"), status)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created once; it lives on the host.
        unsafe { lt::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}

fn check(call: &str, status: Status) -> Result<()> {
    if status == Status::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    // SAFETY: the texts are static.
    let text = unsafe { lt::cublasLtGetStatusString(status) };
    let text = match text.is_null() {
        true => String::new(),
        // SAFETY: as above.
        false => format!(" ({})", unsafe { CStr::from_ptr(text) }.to_string_lossy()),
    };
    Err(Error::Backend(format!("{call}: {status:?}{text}")))
}
