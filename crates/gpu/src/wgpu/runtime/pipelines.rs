//! The cache of pipelines by source: each is compiled once, and kept up to a limit.

use super::binding::{Layout, layout};
use super::device::Device;
use crate::wgpu::ShaderSource;
use compiler::{Error, Result};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use wgpu::{
    ComputePipelineDescriptor, ErrorFilter, PipelineCache, PipelineCacheDescriptor, PipelineCompilationOptions,
    ShaderModuleDescriptor, ShaderRuntimeChecks,
};

/// The maximum number of cached pipelines, besides those in use.
const KEPT: usize = 4096;
/// The number of new pipelines after which the driver's cache is written to disk; it is also written when the device is closed.
const SAVED: usize = 64;

/// A compiled kernel.
pub(super) struct Pipeline {
    pub(super) raw: wgpu::ComputePipeline,
    pub(super) layout: Layout,
}

/// The cache of a device's pipelines.
pub(super) struct Pipelines {
    state: Mutex<State>,
    disk: Option<(PipelineCache, PathBuf)>,
}

#[derive(Default)]
struct State {
    known: FxHashMap<ShaderSource, Arc<Pipeline>>,
    unsaved: usize,
}

/// The folder of the disk cache: `TENSORLOOM_CACHE`, else the user's cache; empty disables it.
pub(super) fn folder() -> Option<PathBuf> {
    let own = match std::env::var_os("TENSORLOOM_CACHE") {
        Some(f) if f.is_empty() => return None,
        Some(f) => PathBuf::from(f),
        None => match std::env::var_os("XDG_CACHE_HOME") {
            Some(f) if !f.is_empty() => PathBuf::from(f).join("tensorloom"),
            _ => PathBuf::from(std::env::var_os("HOME").filter(|f| !f.is_empty())?).join(".cache").join("tensorloom"),
        },
    };
    Some(own.join("wgpu"))
}

impl Pipelines {
    pub(super) fn new(raw: &wgpu::Device, info: &wgpu::AdapterInfo, features: wgpu::Features) -> Pipelines {
        let disk = features.contains(wgpu::Features::PIPELINE_CACHE).then(|| {
            let key = wgpu::util::pipeline_cache_key(info)?;
            let path = folder()?.join(key);
            let data = std::fs::read(&path).ok();
            // A damaged file is ignored: the data contains its key, and the driver checks it.
            let desc = PipelineCacheDescriptor { label: None, data: data.as_deref(), fallback: true };
            // SAFETY: the data came from `get_data`, under the key of this adapter and driver.
            let cache = unsafe { raw.create_pipeline_cache(&desc) };
            Some((cache, path))
        });
        Pipelines { state: Mutex::default(), disk: disk.flatten() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The number of cached pipelines.
    pub(super) fn len(&self) -> usize {
        self.lock().known.len()
    }

    /// The pipelines with these sources, compiled on all cores if necessary.
    pub(super) fn get(&self, device: &Device, texts: &[ShaderSource]) -> Result<Vec<Arc<Pipeline>>> {
        let mut missing: Vec<&ShaderSource> = Vec::new();
        {
            let mut s = self.lock();
            if s.known.len() + texts.len() > KEPT {
                s.known.retain(|_, p| Arc::strong_count(p) > 1);
            }
            for t in texts {
                if !s.known.contains_key(t) && !missing.contains(&t) {
                    missing.push(t);
                }
            }
        }
        let made = self.compile_all(device, &missing)?;
        let mut s = self.lock();
        s.unsaved += made.len();
        for (t, p) in missing.into_iter().zip(made) {
            s.known.entry(t.clone()).or_insert(p);
        }
        let found = texts.iter().map(|t| s.known.get(t).cloned()).collect::<Option<Vec<_>>>();
        let save = s.unsaved >= SAVED;
        drop(s);
        if save {
            self.save();
        }
        found.ok_or_else(|| Error::Internal("a pipeline that was just compiled".into()))
    }

    fn compile_all(&self, device: &Device, texts: &[&ShaderSource]) -> Result<Vec<Arc<Pipeline>>> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(texts.len().div_ceil(4));
        if workers <= 1 {
            return texts.iter().map(|t| self.compile(device, t)).collect();
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        let slots: Vec<Mutex<Option<Result<Arc<Pipeline>>>>> = texts.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            loop {
                let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(t) = texts.get(i) else { return };
                *slots[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(self.compile(device, t));
            }
        };
        std::thread::scope(|s| {
            for _ in 0..workers {
                // Parsers need a larger stack than the default of threads.
                let spawned = std::thread::Builder::new().stack_size(16 << 20).spawn_scoped(s, work);
                if spawned.is_err() {
                    work();
                }
            }
        });
        let taken = |m: Mutex<Option<Result<Arc<Pipeline>>>>| {
            let made = m.into_inner().unwrap_or_else(|e| e.into_inner());
            made.unwrap_or_else(|| Err(Error::Internal("a kernel that nobody compiled".into())))
        };
        slots.into_iter().map(taken).collect()
    }

    fn compile(&self, device: &Device, text: &ShaderSource) -> Result<Arc<Pipeline>> {
        let scope = device.raw.push_error_scope(ErrorFilter::Validation);
        let desc =
            ShaderModuleDescriptor { label: None, source: wgpu::ShaderSource::Wgsl(Cow::Borrowed(&text.source)) };
        // SAFETY: grids stay inside of their memory, which `grid::eval` watches in tests; loops end; divisors are guarded.
        let module = unsafe { device.raw.create_shader_module_trusted(desc, ShaderRuntimeChecks::unchecked()) };
        let layout = layout(&text.bindings);
        let pipeline_layout = device.groups.pipeline(&device.raw, layout);
        let raw = device.raw.create_compute_pipeline(&ComputePipelineDescriptor {
            label: None,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            // Kernels write shared memory before they read it.
            compilation_options: PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..PipelineCompilationOptions::default()
            },
            cache: self.disk.as_ref().map(|d| &d.0),
        });
        match super::adapter::now(scope.pop()) {
            Some(Some(e)) => Err(Error::Internal(format!("the driver rejected a kernel: {e}\n{}", text.source))),
            _ => device.check().map(|()| Arc::new(Pipeline { raw, layout })),
        }
    }

    /// Writes the driver's cache to disk; a failure only costs time in the next process.
    fn save(&self) {
        let Some((cache, path)) = &self.disk else { return };
        let count = std::mem::take(&mut self.lock().unsaved);
        let (Some(data), Some(folder)) = (cache.get_data().filter(|_| count > 0), path.parent()) else { return };
        let own = path.with_extension(format!("{}.new", std::process::id()));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&own, data));
        let moved = written.and_then(|()| std::fs::rename(&own, path));
        if moved.is_err() {
            let _ = std::fs::remove_file(&own);
        }
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        self.save();
    }
}
