//! The cache of pipelines by source: each is compiled once, and kept up to a limit.

use super::super::binding::{Layout, layout};
use super::device::Device;
use super::host;
use crate::wgpu::ShaderSource;
use compiler::{Error, Result};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The maximum number of cached pipelines, besides those in use.
const KEPT: usize = 2048;

/// A compiled kernel.
pub(in super::super) struct Pipeline {
    pub(super) number: u32,
    pub(super) layout: Layout,
    pub(super) source: String,
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        host::gpu_forget(self.number);
    }
}

/// The cache of a device's pipelines.
#[derive(Default)]
pub(in super::super) struct Pipelines(Mutex<FxHashMap<ShaderSource, Arc<Pipeline>>>);

impl Pipelines {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<ShaderSource, Arc<Pipeline>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The number of cached pipelines.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The pipelines with these sources, compiled if necessary. The browser reports compilation errors later, as a fault.
    pub(in super::super) fn get(&self, device: &Device, texts: &[ShaderSource]) -> Result<Vec<Arc<Pipeline>>> {
        device.check()?;
        let mut known = self.lock();
        if known.len() + texts.len() > KEPT {
            known.retain(|_, p| Arc::strong_count(p) > 1);
        }
        let mut found = Vec::with_capacity(texts.len());
        for text in texts {
            if let Some(p) = known.get(text) {
                found.push(p.clone());
                continue;
            }
            let layout = layout(&text.bindings);
            let written =
                u32::try_from(layout.1).map_err(|_| Error::Internal("a kernel of over 32 bindings".into()))?;
            let source = text.source.clone();
            let number = host::gpu_pipeline(source.as_ptr(), source.len(), layout.0 as u32, written);
            let made = Arc::new(Pipeline { number, layout, source });
            known.insert(text.clone(), made.clone());
            found.push(made);
        }
        Ok(found)
    }
}
