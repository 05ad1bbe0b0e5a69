//! Devices (§13): lazy transfers, and the placement of ops whose operands are on several devices.
//!
//! An op runs on the device of its first operand of rank 1 or more (of its first operand if all are scalars); other
//! operands are copied there through the host.

use crate::engine::EngineShared;
use crate::error::{Error, Result};
use crate::node::{Args, Node, NodeKind, ValueRef};
use crate::record::{LazyBuild, RecordTarget, recording_target};
use crate::storage::StoredValue;
use crate::tensor::{Tensor, TensorKind};
use ir::Loc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The device of constants and of values computed from constants only: they are available on every device.
pub(crate) const ANY_DEVICE: u8 = u8::MAX;

/// The device of an op on these operands.
#[inline]
pub(crate) fn device_of(args: &[ValueRef]) -> u8 {
    let mut somewhere = args.iter().filter(|a| a.node.device != ANY_DEVICE);
    let wide = somewhere.clone().find(|a| a.ty().rank() > 0);
    wide.or(somewhere.next()).map_or(ANY_DEVICE, |a| a.node.device)
}

/// The device number that a node runs on; `ANY_DEVICE` becomes the first device.
pub(crate) fn resolve_device(device: u8) -> usize {
    if device == ANY_DEVICE { 0 } else { device as usize }
}

/// The common device of the arguments of a compiled call, which runs there. Scalars and constants are copied to it.
pub(crate) fn common_device<'a>(tensors: impl Iterator<Item = &'a Tensor>, at: &Loc) -> Result<usize> {
    let mut found: Option<(usize, &Tensor)> = None;
    let mut scalar = None;
    for t in tensors {
        let Some(device) = t.fixed_device() else { continue };
        if t.rank() == 0 {
            scalar = scalar.or(Some(device));
            continue;
        }
        match found {
            Some((first, other)) if first != device => {
                let reason = format!(
                    "it was given {} on device {first} and {} on device {device}; a compiled call runs on one device: move \
                     one of them with to({first}) or to({device})",
                    other.ty(),
                    t.ty()
                );
                return Err(Error::call("a compiled call", reason, at));
            }
            Some(_) => {}
            None => found = Some((device, t)),
        }
    }
    Ok(found.map(|(d, _)| d).or(scalar).unwrap_or(0))
}

impl EngineShared {
    /// Copies a value to a device.
    pub(crate) fn copy_to_device(&self, value: &StoredValue, device: usize) -> compiler::Result<StoredValue> {
        if value.storage.pool().device == device {
            return Ok(value.clone());
        }
        let dense = self.dense(value)?;
        let mut bytes = vec![0; dense.ty.bytes()];
        dense.storage.buffer().read(0, &mut bytes)?;
        let storage = self.devices[device].pool.acquire(bytes.len())?;
        storage.buffer().write(0, &bytes)?;
        self.transferred.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(StoredValue::dense(storage, dense.ty))
    }
}

impl Tensor {
    /// The same tensor on another device, copied when it is needed; returns the tensor itself if it is there already.
    #[track_caller]
    pub fn to(&self, device: usize) -> Tensor {
        let at = Loc::caller();
        let engine = match recording_target(&[self], None, &at) {
            Ok(RecordTarget::Lazy(engine)) => engine,
            // A trace has no devices: its ops run on the device of the call.
            Ok(RecordTarget::Trace(_)) => return self.clone(),
            Err(_) if self.invalid().is_some() => return self.clone(),
            Err(e) => return Tensor::with_error(e, self.engine()),
        };
        if device >= engine.shared.devices.len() {
            let reason = format!("there is no device {device}, the engine has {}", engine.shared.devices.len());
            return Tensor::with_error(Error::call("to", reason, &at), Some(engine));
        }
        if self.device() == device {
            return self.clone();
        }
        let mut state = engine.shared.state();
        let mut b = LazyBuild::new(&mut state, at.clone());
        let value = match b.load(&self.0) {
            Ok(v) => b.get(v).clone(),
            Err(e) => {
                drop(state);
                return Tensor::with_error(e, Some(engine));
            }
        };
        let tracked = b.grad && value.node.tracked;
        let work = NodeKind::Transfer(value.ty().clone());
        let key = state.node_key();
        let mut node = Node::new(key, work, Args::from_iter([value]), at).tracked(tracked);
        node.device = device as u8;
        Tensor::fresh(engine, &mut state, ValueRef { node: Arc::new(node), out: 0 })
    }

    /// The tensor's device; `None` if it is available on every device.
    pub(crate) fn fixed_device(&self) -> Option<usize> {
        let lazy = self.0.lazy()?;
        let device = lazy.engine.shared.state().bases.get(lazy.base)?.device;
        (device != ANY_DEVICE).then_some(device as usize)
    }

    /// The device number of the tensor.
    pub fn device(&self) -> usize {
        match &self.0.kind {
            TensorKind::Lazy(l) => l.engine.shared.state().bases.get(l.base).map_or(0, |b| resolve_device(b.device)),
            _ => 0,
        }
    }
}
