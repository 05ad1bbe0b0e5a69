//! The cache of bind groups and their layouts.

use super::binding::{Bound, Layout};
use super::device::RECORD;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard};
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry,
    BindingResource, BindingType, BufferBinding, BufferBindingType, BufferSize, PipelineLayout,
    PipelineLayoutDescriptor, ShaderStages,
};

/// The maximum number of cached groups; beyond this all are dropped and created again on demand.
const KEPT: usize = 8192;

/// A group's layout, and the id, offset and size of each of its buffers.
type Key = (Layout, SmallVec<[(u64, usize, usize); 8]>);

/// The cache of a device.
pub(super) struct Groups {
    params: BindGroupLayout,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    layouts: FxHashMap<Layout, (BindGroupLayout, PipelineLayout)>,
    groups: FxHashMap<Key, BindGroup>,
}

fn entry(binding: u32, ty: BufferBindingType, dynamic: bool, size: Option<u64>) -> BindGroupLayoutEntry {
    let ty = BindingType::Buffer { ty, has_dynamic_offset: dynamic, min_binding_size: size.and_then(BufferSize::new) };
    BindGroupLayoutEntry { binding, visibility: ShaderStages::COMPUTE, ty, count: None }
}

impl Groups {
    pub(super) fn new(device: &wgpu::Device) -> Groups {
        let entries = [entry(0, BufferBindingType::Uniform, true, Some(RECORD as u64))];
        let desc = BindGroupLayoutDescriptor { label: None, entries: &entries };
        Groups { params: device.create_bind_group_layout(&desc), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Drops all groups, and their references to buffers.
    pub(super) fn clear(&self) {
        self.lock().groups.clear();
    }

    /// The group of a buffer of parameters.
    pub(super) fn params(&self, device: &wgpu::Device, buffer: &wgpu::Buffer) -> BindGroup {
        let resource =
            BindingResource::Buffer(BufferBinding { buffer, offset: 0, size: BufferSize::new(RECORD as u64) });
        let entries = [BindGroupEntry { binding: 0, resource }];
        device.create_bind_group(&BindGroupDescriptor { label: None, layout: &self.params, entries: &entries })
    }

    fn layouts<'s>(&self, s: &'s mut State, device: &wgpu::Device, l: Layout) -> &'s (BindGroupLayout, PipelineLayout) {
        s.layouts.entry(l).or_insert_with(|| {
            let entries: Vec<BindGroupLayoutEntry> = (0..l.0 as u32)
                .map(|i| {
                    let ty = BufferBindingType::Storage { read_only: l.1 >> i & 1 == 0 };
                    entry(i, ty, false, None)
                })
                .collect();
            let own = device.create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
            let groups = [Some(&own), Some(&self.params)];
            let desc = PipelineLayoutDescriptor { label: None, bind_group_layouts: &groups, immediate_size: 0 };
            let pipeline = device.create_pipeline_layout(&desc);
            (own, pipeline)
        })
    }

    /// The layout of pipelines with these bindings.
    pub(super) fn pipeline(&self, device: &wgpu::Device, l: Layout) -> PipelineLayout {
        self.layouts(&mut self.lock(), device, l).1.clone()
    }

    /// The group of these buffers.
    pub(super) fn group(&self, device: &wgpu::Device, l: Layout, bound: &[Bound<'_>]) -> BindGroup {
        let key: Key = (l, bound.iter().map(|b| (b.block.id, b.start, b.bytes.unwrap_or(0))).collect());
        let mut s = self.lock();
        if let Some(g) = s.groups.get(&key) {
            return g.clone();
        }
        if s.groups.len() >= KEPT {
            s.groups.clear();
        }
        let (layout, _) = self.layouts(&mut s, device, l).clone();
        let entries: Vec<BindGroupEntry<'_>> = bound
            .iter()
            .enumerate()
            .map(|(i, b)| {
                let size = b.bytes.and_then(|n| BufferSize::new(n as u64));
                let part = BufferBinding { buffer: &b.block.buffer, offset: b.start as u64, size };
                BindGroupEntry { binding: i as u32, resource: BindingResource::Buffer(part) }
            })
            .collect();
        let g = device.create_bind_group(&BindGroupDescriptor { label: None, layout: &layout, entries: &entries });
        s.groups.insert(key, g.clone());
        g
    }
}
