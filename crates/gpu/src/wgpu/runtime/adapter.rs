//! Lists adapters and their capabilities.

use super::coop_matrix::CoopMatrixSize;
use compiler::{Error, Result};
use std::task::{Context, Poll, Waker};
use wgpu::{
    Adapter, Backends, CooperativeScalarType, DeviceType, Features, Instance, InstanceDescriptor, InstanceFlags, Limits,
};

/// The adapter to open, and the options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WgpuOptions {
    /// Its index in [`adapters`].
    pub index: usize,
    /// Whether to use only what every browser guarantees: default limits, no features, the rules of browsers.
    pub default_limits_only: bool,
}

/// The names of this machine's adapters, probably fastest first: `wgpu:0`, `wgpu:1`, ..
pub fn adapters() -> Vec<String> {
    let instance = instance(false);
    list(&instance).iter().map(name).collect()
}

pub(super) fn name(a: &Adapter) -> String {
    let i = a.get_info();
    let kind = match i.device_type {
        DeviceType::Cpu => ", on the CPU",
        DeviceType::IntegratedGpu => ", integrated",
        _ => "",
    };
    format!("{} ({:?}{kind})", i.name, i.backend)
}

pub(super) fn instance(strict: bool) -> Instance {
    let mut flags = InstanceFlags::empty();
    flags.set(InstanceFlags::STRICT_WEBGPU_COMPLIANCE, strict);
    Instance::new(InstanceDescriptor {
        backends: Backends::PRIMARY,
        flags,
        ..InstanceDescriptor::new_without_display_handle()
    })
}

fn list(instance: &Instance) -> Vec<Adapter> {
    let mut all = now(instance.enumerate_adapters(Backends::PRIMARY)).unwrap_or_default();
    // Adapters of the same type keep the driver's order.
    all.sort_by_key(|a| match a.get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    });
    all
}

/// The result of a future that is immediately ready on native targets.
pub(super) fn now<T>(f: impl Future<Output = T>) -> Option<T> {
    let mut f = std::pin::pin!(f);
    match f.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(x) => Some(x),
        Poll::Pending => None,
    }
}

pub(super) fn choose(choice: WgpuOptions) -> Result<Adapter> {
    let instance = instance(choice.default_limits_only);
    let all = list(&instance);
    let count = all.len();
    all.into_iter().nth(choice.index).ok_or_else(|| {
        Error::Backend(match count {
            0 => {
                "no GPU with WebGPU support was found: install a Vulkan driver (on Linux `mesa-vulkan-drivers` or the \
                 vendor's, and `libvulkan1`)"
                    .into()
            }
            n => format!("no adapter wgpu:{}; this machine has {n}, from wgpu:0 on", choice.index),
        })
    })
}

/// The features and limits to request.
pub(super) fn wants(adapter: &Adapter, strict: bool) -> (Features, Limits) {
    if strict {
        return (Features::empty(), Limits::defaults());
    }
    let mut wanted = Features::TIMESTAMP_QUERY | Features::PIPELINE_CACHE;
    if squares(adapter, adapter.features()).is_some() {
        wanted |= ON_UNITS;
    }
    (adapter.features() & wanted, adapter.limits())
}

/// The features that products with cooperative matrices need.
const ON_UNITS: Features = Features::SHADER_F16.union(Features::EXPERIMENTAL_COOPERATIVE_MATRIX);

/// The cooperative matrix size for f16 with f32 sums, on an adapter with these features and a fixed subgroup size.
pub(super) fn squares(adapter: &Adapter, features: Features) -> Option<CoopMatrixSize> {
    let info = adapter.get_info();
    let lanes = info.subgroup_min_size as usize;
    let limits = adapter.limits();
    // A workgroup has up to eight subgroups.
    let fits = 8 * lanes <= limits.max_compute_invocations_per_workgroup as usize
        && limits.max_compute_workgroup_storage_size >= 32 << 10;
    if !features.contains(ON_UNITS) || info.subgroup_max_size as usize != lanes || lanes < 8 || !fits {
        return None;
    }
    let all = adapter.cooperative_matrix_properties();
    let has = |side: u32| {
        all.iter().any(|p| {
            [p.m_size, p.n_size, p.k_size] == [side; 3]
                && (p.ab_type, p.cr_type) == (CooperativeScalarType::F16, CooperativeScalarType::F32)
        })
    };
    [16, 8].into_iter().find(|side| has(*side)).map(|side| CoopMatrixSize { size: side as usize, lanes })
}
