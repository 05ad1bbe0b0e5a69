//! Which adapters there are, and what they can do.

use super::units::Squares;
use compiler::{Error, Result};
use std::task::{Context, Poll, Waker};
use wgpu::{
    Adapter, Backends, CooperativeScalarType, DeviceType, Features, Instance, InstanceDescriptor, InstanceFlags, Limits,
};

/// Which adapter to open, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Its number among [`adapters`].
    pub number: usize,
    /// Whether to ask for no more than every page gets: default limits, no features, a browser's rules.
    pub strict: bool,
}

/// The adapters of this machine by name, those that are likely fastest first: `wgpu:0`, `wgpu:1`, ..
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
    // The order of equals is the driver's.
    all.sort_by_key(|a| match a.get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    });
    all
}

/// What a future gives that natively is ready at once.
pub(super) fn now<T>(f: impl Future<Output = T>) -> Option<T> {
    let mut f = std::pin::pin!(f);
    match f.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(x) => Some(x),
        Poll::Pending => None,
    }
}

pub(super) fn choose(choice: Choice) -> Result<Adapter> {
    let instance = instance(choice.strict);
    let all = list(&instance);
    let count = all.len();
    all.into_iter().nth(choice.number).ok_or_else(|| {
        Error::Backend(match count {
            0 => {
                "no GPU with WebGPU support was found: install a Vulkan driver (on Linux `mesa-vulkan-drivers` or the \
                 vendor's, and `libvulkan1`)"
                    .into()
            }
            n => format!("no adapter wgpu:{}; this machine has {n}, from wgpu:0 on", choice.number),
        })
    })
}

/// Features and limits to ask for.
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

/// What products on matrix units need.
const ON_UNITS: Features = Features::SHADER_F16.union(Features::EXPERIMENTAL_COOPERATIVE_MATRIX);

/// What matrix units multiply of f16 with sums in f32, on an adapter with these features whose subgroups are all of one size.
pub(super) fn squares(adapter: &Adapter, features: Features) -> Option<Squares> {
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
    [16, 8].into_iter().find(|side| has(*side)).map(|side| Squares { side: side as usize, lanes })
}
