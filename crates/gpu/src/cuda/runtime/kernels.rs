//! Kernels by their text: compiled once, kept while there is room.

use super::context::{Context, Raw};
use super::cubins::Cubins;
use super::nvrtc::Compiler;
use super::strided::Text;
use compiler::{Error, Result};
use cudarc::driver::sys as cu;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, Weak};

/// Kernels of one source at most: a source is compiled by one thread.
const PER_SOURCE: usize = 24;
/// Kernels kept, beside those in use.
const KEPT: usize = 4096;

/// A kernel on the device.
pub(crate) struct Function {
    pub(crate) raw: Raw<cu::CUfunction>,
    pub(crate) entry: String,
    /// Keeps the code there.
    _module: Arc<Module>,
}

impl Function {
    /// Lets launches ask for more shared memory than every kernel gets.
    pub(crate) fn allow_shared(&self, context: &Context, bytes: u32) -> Result<()> {
        let attribute = cu::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded.
        let code = unsafe { cu::cuFuncSetAttribute(self.raw.0, attribute, bytes as i32) };
        context.check(code, || format!("{bytes} bytes of shared memory for {}", self.entry))
    }
}

/// Code on the device.
struct Module {
    context: Arc<Context>,
    raw: Raw<cu::CUmodule>,
}

impl Module {
    fn load(context: &Arc<Context>, cubin: &[u8]) -> Result<Arc<Module>> {
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a cubin says itself how long it is; ours is whole.
        let code = unsafe { cu::cuModuleLoadData(&mut raw, cubin.as_ptr().cast::<c_void>()) };
        context.check(code, || format!("cuModuleLoadData of {} bytes", cubin.len()))?;
        Ok(Arc::new(Module { context: context.clone(), raw: Raw(raw) }))
    }

    fn function(self: &Arc<Module>, entry: &str) -> Result<Arc<Function>> {
        let name = CString::new(entry).map_err(|_| Error::Internal("a kernel's name with a NUL".into()))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with a NUL.
        let code = unsafe { cu::cuModuleGetFunction(&mut raw, self.raw.0, name.as_ptr()) };
        self.context.check(code, || format!("cuModuleGetFunction of {entry}"))?;
        Ok(Arc::new(Function { raw: Raw(raw), entry: entry.to_string(), _module: self.clone() }))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.context.entered() {
            return;
        }
        // SAFETY: nobody launches its kernels any more; those that still run are waited for.
        unsafe {
            cu::cuCtxSynchronize();
            cu::cuModuleUnload(self.raw.0);
        }
    }
}

/// All kernels of a device.
pub(crate) struct Kernels {
    context: Arc<Context>,
    pub(crate) compiler: Compiler,
    /// Stands before the kernels of every source.
    prelude: &'static str,
    disk: Cubins,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: FxHashMap<String, Arc<Function>>,
    /// Cubins that were read from disk, while kernels use them.
    modules: FxHashMap<String, Weak<Module>>,
    compiled: usize,
}

impl Kernels {
    pub(crate) fn new(context: &Arc<Context>, prelude: &'static str) -> Result<Kernels> {
        let compiler = Compiler::open(context.capability)?;
        let (major, minor) = compiler.version;
        // What stands before a kernel is a part of it.
        let before = super::cubins::fnv(prelude.as_bytes(), 2);
        let world = format!("nvrtc {major}.{minor} {} {before:016x}", compiler.options().join(" "));
        let disk = Cubins::new(Cubins::folder(), world);
        Ok(Kernels { context: context.clone(), compiler, prelude, disk, state: Mutex::default() })
    }

    /// How many are kept.
    pub(crate) fn len(&self) -> usize {
        self.lock().known.len()
    }

    /// How many were compiled, rather than found on disk.
    pub(crate) fn compiled(&self) -> usize {
        self.lock().compiled
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The kernels of these texts, compiled if they must be. Equal texts are one kernel.
    pub(crate) fn get(&self, texts: &[Text]) -> Result<Vec<Arc<Function>>> {
        let mut s = self.lock();
        self.make_room(&mut s, texts);
        let mut missing: Vec<&Text> = Vec::new();
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
        for part in missing.chunks(PER_SOURCE) {
            let mut source = self.prelude.to_string();
            for t in part {
                source.push('\n');
                source.push_str(&t.text);
            }
            let cubin = self.compiler.compile(&source)?;
            s.compiled += part.len();
            let module = Module::load(&self.context, &cubin)?;
            for t in part {
                s.known.insert(t.text.clone(), module.function(&t.entry)?);
            }
            let names: Vec<(&str, &str)> = part.iter().map(|t| (t.text.as_str(), t.entry.as_str())).collect();
            let name = self.disk.keep(&source, &cubin, &names);
            s.modules.insert(name, Arc::downgrade(&module));
        }
        let found = texts.iter().map(|t| s.known.get(&t.text).cloned());
        found.collect::<Option<Vec<_>>>().ok_or_else(|| Error::Internal("a kernel that was just compiled".into()))
    }

    fn on_disk(&self, s: &mut State, t: &Text) -> Option<Arc<Function>> {
        let (name, entry) = self.disk.kernel(&t.text)?;
        let module = match s.modules.get(&name).and_then(Weak::upgrade) {
            Some(m) => m,
            None => {
                let module = Module::load(&self.context, &self.disk.cubin(&name)?).ok()?;
                s.modules.insert(name, Arc::downgrade(&module));
                module
            }
        };
        module.function(&entry).ok()
    }

    /// Lets kernels go that no program uses, where there are too many.
    fn make_room(&self, s: &mut State, texts: &[Text]) {
        if s.known.len() + texts.len() <= KEPT {
            return;
        }
        s.known.retain(|_, f| Arc::strong_count(f) > 1);
        s.modules.retain(|_, m| m.strong_count() > 0);
    }
}
