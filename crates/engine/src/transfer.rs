//! Devices (§13): lazy transfers, and what happens to ops whose operands live on several.
//!
//! An op runs where its first operand of rank 1 or more lives (where all are scalars, where the first one lives); other
//! operands are copied there through the host.

use crate::engine::Shared;
use crate::error::{Error, Result};
use crate::node::{Args, Node, Ref, Work};
use crate::record::{LazyBuild, Target, target};
use crate::storage::Stored;
use crate::tensor::{Kind, Tensor};
use ir::Loc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Constants and what is made of them alone: at home wherever they are needed.
pub(crate) const ANYWHERE: u8 = u8::MAX;

/// The device of an op on these operands.
#[inline]
pub(crate) fn device_of(args: &[Ref]) -> u8 {
    let mut somewhere = args.iter().filter(|a| a.node.device != ANYWHERE);
    let wide = somewhere.clone().find(|a| a.ty().rank() > 0);
    wide.or(somewhere.next()).map_or(ANYWHERE, |a| a.node.device)
}

/// Where something runs that may run anywhere.
pub(crate) fn place(device: u8) -> usize {
    if device == ANYWHERE { 0 } else { device as usize }
}

/// The one device that tensors of a compiled call live on: it runs there. Scalars and what may live anywhere follow.
pub(crate) fn one_device<'a>(tensors: impl Iterator<Item = &'a Tensor>, at: &Loc) -> Result<usize> {
    let mut found: Option<(usize, &Tensor)> = None;
    let mut scalar = None;
    for t in tensors {
        let Some(device) = t.home() else { continue };
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

impl Shared {
    /// The value on a device.
    pub(crate) fn on_device(&self, value: &Stored, device: usize) -> compiler::Result<Stored> {
        if value.storage.pool().device == device {
            return Ok(value.clone());
        }
        let dense = self.dense(value)?;
        let mut bytes = vec![0; dense.ty.bytes()];
        dense.storage.buffer().read(0, &mut bytes)?;
        let storage = self.devices[device].pool.acquire(bytes.len())?;
        storage.buffer().write(0, &bytes)?;
        self.transferred.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(Stored::dense(storage, dense.ty))
    }
}

impl Tensor {
    /// The same tensor on another device, when it is needed there; itself if it lives there already.
    #[track_caller]
    pub fn to(&self, device: usize) -> Tensor {
        let at = Loc::caller();
        let engine = match target(&[self], None, &at) {
            Ok(Target::Lazy(engine)) => engine,
            // A trace runs on one device, wherever its call will run.
            Ok(Target::Trace(_)) => return self.clone(),
            Err(_) if self.invalid().is_some() => return self.clone(),
            Err(e) => return Tensor::failed(e, self.engine()),
        };
        if device >= engine.shared.devices.len() {
            let reason = format!("there is no device {device}, the engine has {}", engine.shared.devices.len());
            return Tensor::failed(Error::call("to", reason, &at), Some(engine));
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
                return Tensor::failed(e, Some(engine));
            }
        };
        let tracked = b.grad && value.node.tracked;
        let work = Work::Transfer(value.ty().clone());
        let key = state.node_key();
        let mut node = Node::new(key, work, Args::from_iter([value]), at).tracked(tracked);
        node.device = device as u8;
        Tensor::fresh(engine, &mut state, Ref { node: Arc::new(node), out: 0 })
    }

    /// Where the tensor lives, unless that may be anywhere.
    pub(crate) fn home(&self) -> Option<usize> {
        let lazy = self.0.lazy()?;
        let device = lazy.engine.shared.state().bases.get(lazy.base)?.device;
        (device != ANYWHERE).then_some(device as usize)
    }

    /// The number of the device that the tensor lives on.
    pub fn device(&self) -> usize {
        match &self.0.kind {
            Kind::Lazy(l) => l.engine.shared.state().bases.get(l.base).map_or(0, |b| place(b.device)),
            _ => 0,
        }
    }
}
