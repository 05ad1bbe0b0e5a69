//! The cache of kernels by source: each is compiled once, and kept up to a limit.

use super::context::{Context, DriverHandle};
use super::cubins::CubinCache;
use super::nvrtc::Compiler;
use super::strided_copy::KernelSource;
use compiler::{Error, Result};
use cudarc::driver::sys as cu;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The maximum number of kernels in a source; one thread compiles a source.
const PER_SOURCE: usize = 24;
/// The maximum number of compiling threads.
const COMPILING: usize = 16;
/// The maximum number of cached kernels, besides those in use.
const KEPT: usize = 4096;

/// A kernel on the device.
pub(crate) struct CudaFunction {
    pub(crate) raw: DriverHandle<cu::CUfunction>,
    pub(crate) entry: String,
    /// Keeps the module loaded.
    _module: Arc<CudaModule>,
}

impl CudaFunction {
    /// Allows launches with more shared memory than the default limit.
    pub(crate) fn allow_shared(&self, context: &Context, bytes: u32) -> Result<()> {
        let attribute = cu::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        let code = unsafe { cu::cuFuncSetAttribute(self.raw.0, attribute, bytes as i32) };
        context.check(code, || format!("{bytes} bytes of shared memory for {}", self.entry))
    }
}

/// A loaded module.
struct CudaModule {
    context: Arc<Context>,
    raw: DriverHandle<cu::CUmodule>,
}

impl CudaModule {
    fn load(context: &Arc<Context>, cubin: &[u8]) -> Result<Arc<CudaModule>> {
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a cubin says itself how long it is; ours is whole.
        let code = unsafe { cu::cuModuleLoadData(&mut raw, cubin.as_ptr().cast::<c_void>()) };
        context.check(code, || format!("cuModuleLoadData of {} bytes", cubin.len()))?;
        Ok(Arc::new(CudaModule { context: context.clone(), raw: DriverHandle(raw) }))
    }

    fn function(self: &Arc<CudaModule>, entry: &str) -> Result<Arc<CudaFunction>> {
        let name = CString::new(entry).map_err(|_| Error::Internal("a kernel's name with a NUL".into()))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with a NUL.
        let code = unsafe { cu::cuModuleGetFunction(&mut raw, self.raw.0, name.as_ptr()) };
        self.context.check(code, || format!("cuModuleGetFunction of {entry}"))?;
        Ok(Arc::new(CudaFunction { raw: DriverHandle(raw), entry: entry.to_string(), _module: self.clone() }))
    }
}

impl Drop for CudaModule {
    fn drop(&mut self) {
        if !self.context.enter_for_drop() {
            return;
        }
        // SAFETY: nothing launches its kernels any more; those that still run are waited for.
        unsafe {
            cu::cuCtxSynchronize();
            cu::cuModuleUnload(self.raw.0);
        }
    }
}

/// The cache of a device's kernels.
pub(crate) struct Kernels {
    context: Arc<Context>,
    pub(crate) compiler: Compiler,
    /// The source text before the kernels of every source.
    prelude: &'static str,
    disk: CubinCache,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: FxHashMap<String, Arc<CudaFunction>>,
    /// Cubins that were read from disk, as long as kernels use them.
    modules: FxHashMap<String, Weak<CudaModule>>,
    compiled: usize,
}

impl Kernels {
    pub(crate) fn new(context: &Arc<Context>, prelude: &'static str) -> Result<Kernels> {
        let compiler = Compiler::open(context.capability)?;
        let (major, minor) = compiler.version;
        // The hash of a kernel includes the prelude.
        let before = super::cubins::fnv(prelude.as_bytes(), 2);
        let world = format!("nvrtc {major}.{minor} {} {before:016x}", compiler.options().join(" "));
        let disk = CubinCache::new(CubinCache::folder(), world);
        Ok(Kernels { context: context.clone(), compiler, prelude, disk, state: Mutex::default() })
    }

    /// The number of cached kernels.
    pub(crate) fn len(&self) -> usize {
        self.lock().known.len()
    }

    /// The number of kernels that were compiled, not loaded from disk.
    pub(crate) fn compiled(&self) -> usize {
        self.lock().compiled
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The kernels with these sources, compiled if necessary. Equal sources are one kernel.
    pub(crate) fn get(&self, texts: &[KernelSource]) -> Result<Vec<Arc<CudaFunction>>> {
        let mut s = self.lock();
        self.evict_unused(&mut s, texts);
        let mut missing: Vec<&KernelSource> = Vec::new();
        let mut seen = FxHashSet::default();
        for t in texts {
            if s.known.contains_key(&t.text) || !seen.insert(&t.text) {
                continue;
            }
            match self.on_disk(&mut s, t) {
                Some(f) => drop(s.known.insert(t.text.clone(), f)),
                None => missing.push(t),
            }
        }
        let parts = partition_for_compile(&missing, std::thread::available_parallelism().map_or(1, |n| n.get()));
        for (part, compiled) in parts.iter().zip(self.compile(&parts)) {
            let (source, cubin) = compiled?;
            s.compiled += part.len();
            let module = CudaModule::load(&self.context, &cubin)?;
            for t in part {
                s.known.insert(t.text.clone(), module.function(&t.entry)?);
            }
            let names: Vec<(&str, &str)> = part.iter().map(|t| (t.text.as_str(), t.entry.as_str())).collect();
            let name = self.disk.store(&source, &cubin, &names);
            s.modules.insert(name, Arc::downgrade(&module));
        }
        let found = texts.iter().map(|t| s.known.get(&t.text).cloned());
        found.collect::<Option<Vec<_>>>().ok_or_else(|| Error::Internal("a kernel that was just compiled".into()))
    }

    /// Compiles these groups of kernels in parallel; returns names and cubins.
    fn compile(&self, parts: &[Vec<&KernelSource>]) -> Vec<Result<(String, Vec<u8>)>> {
        let one = |part: &Vec<&KernelSource>| {
            let mut source = self.prelude.to_string();
            for t in part {
                source.push('\n');
                source.push_str(&t.text);
            }
            let cubin = self.compiler.compile(&source)?;
            Ok((source, cubin))
        };
        if let [part] = parts {
            return vec![one(part)];
        }
        let next = AtomicUsize::new(0);
        let done: Vec<Mutex<Option<Result<(String, Vec<u8>)>>>> = parts.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..parts.len().min(COMPILING) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(part) = parts.get(at) else { break };
                        *done[at].lock().unwrap_or_else(|e| e.into_inner()) = Some(one(part));
                    }
                });
            }
        });
        let lost = || Err(Error::Internal("a kernel that nobody compiled".into()));
        done.into_iter().map(|d| d.into_inner().unwrap_or_else(|e| e.into_inner()).unwrap_or_else(lost)).collect()
    }

    fn on_disk(&self, s: &mut State, t: &KernelSource) -> Option<Arc<CudaFunction>> {
        let (name, entry) = self.disk.kernel(&t.text)?;
        let module = match s.modules.get(&name).and_then(Weak::upgrade) {
            Some(m) => m,
            None => {
                let module = CudaModule::load(&self.context, &self.disk.cubin(&name)?).ok()?;
                s.modules.insert(name, Arc::downgrade(&module));
                module
            }
        };
        module.function(&entry).ok()
    }

    /// Evicts kernels that no program uses, if there are too many.
    fn evict_unused(&self, s: &mut State, texts: &[KernelSource]) {
        if s.known.len() + texts.len() <= KEPT {
            return;
        }
        s.known.retain(|_, f| Arc::strong_count(f) > 1);
        s.modules.retain(|_, m| m.strong_count() > 0);
    }
}

/// Distributes kernels over sources: one for each compiling thread, of similar length, with a limited number of kernels.
fn partition_for_compile<'a>(texts: &[&'a KernelSource], threads: usize) -> Vec<Vec<&'a KernelSource>> {
    let count = threads.clamp(1, COMPILING).max(texts.len().div_ceil(PER_SOURCE)).min(texts.len());
    let mut parts: Vec<(usize, Vec<&KernelSource>)> = vec![(0, Vec::new()); count];
    let mut order: Vec<&KernelSource> = texts.to_vec();
    order.sort_by_key(|t| std::cmp::Reverse(t.text.len()));
    for t in order {
        // Longest first, each to the shortest source.
        let room = parts.iter_mut().filter(|(_, p)| p.len() < PER_SOURCE);
        if let Some((length, part)) = room.min_by_key(|(length, _)| *length) {
            *length += t.text.len();
            part.push(t);
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_in_one_source() {
        for (n, threads) in [(0, 4), (1, 4), (3, 16), (44, 16), (44, 1), (200, 2), (500, 64)] {
            let all: Vec<KernelSource> =
                (0..n).map(|i| KernelSource { entry: format!("k{i}"), text: "x".repeat(i * 37 % 101 + 1) }).collect();
            let parts = partition_for_compile(&all.iter().collect::<Vec<_>>(), threads);
            let mut names: Vec<&str> = parts.iter().flatten().map(|t| t.entry.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), n, "{n} kernels, {threads} threads");
            assert!(parts.iter().all(|p| !p.is_empty() && p.len() <= PER_SOURCE));
            assert!(parts.len() >= n.min(threads.min(COMPILING)));
        }
    }

    #[test]
    fn long_kernels_are_compiled_separately() {
        let all: Vec<KernelSource> = [900, 800, 10, 10, 10]
            .iter()
            .enumerate()
            .map(|(i, n)| KernelSource { entry: format!("k{i}"), text: "x".repeat(*n) })
            .collect();
        let parts = partition_for_compile(&all.iter().collect::<Vec<_>>(), 3);
        let lengths: Vec<usize> = parts.iter().map(|p| p.iter().map(|t| t.text.len()).sum()).collect();
        assert_eq!(lengths, [900, 800, 30]);
    }
}
