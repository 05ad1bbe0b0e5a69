//! Zero-copy exchange: a tensor's memory is exported to another library, or another library's memory is imported as a tensor.
//!
//! Both directions rely on law 1 of the README: a buffer never changes while something else refers to it. The importer of
//! exported memory holds a reference to it; imported memory is never written and never reused for other values.

use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::node::{Node, ValueRef};
use crate::storage::StoredValue;
use crate::tensor::Tensor;
use compiler::DeviceBuffer;
use ir::{Literal, Loc, Type};
use std::sync::Arc;

/// The memory of a tensor's elements, dense in row-major order. Nothing changes the elements while it exists.
#[derive(Clone)]
pub struct SharedMemory(StoredValue);

impl SharedMemory {
    /// The dtype and shape of the elements.
    pub fn ty(&self) -> &Type {
        &self.0.ty
    }

    /// The buffer of the elements. It may be longer than the elements, and must not be written.
    pub fn buffer(&self) -> &Arc<dyn DeviceBuffer> {
        self.0.storage.buffer()
    }
}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lent({})", self.ty())
    }
}

impl Tensor {
    /// Computes the tensor and exports its memory; a tensor without views is not copied.
    #[track_caller]
    pub fn export_memory(&self) -> Result<SharedMemory> {
        self.materialize("lend", &Loc::caller()).map(SharedMemory)
    }
}

impl Engine {
    /// Creates a tensor on external memory, on the current default device. The memory is read
    /// when ops recorded with the tensor run, so it must not change while the tensor or a value computed from it exists.
    /// Inside a trace the elements are copied.
    #[track_caller]
    pub fn import_memory(&self, ty: &Type, buffer: Arc<dyn DeviceBuffer>) -> Tensor {
        let at = context::resolve_loc(&Loc::caller());
        let size = ty.bytes();
        if buffer.bytes() < size {
            let reason = format!("{ty} needs {size} bytes, the memory has {}", buffer.bytes());
            return Tensor::with_error(Error::call("adopt", reason, &at), Some(self));
        }
        if context::trace().is_some() {
            let mut bytes = vec![0; size];
            let read = buffer.read(0, &mut bytes).ok().and_then(|()| Literal::from_bytes(ty.clone(), &bytes));
            return match read {
                Some(literal) => self.literal_at(&literal, &at),
                None => Tensor::with_error(Error::call("adopt", "the memory could not be read", &at), Some(self)),
            };
        }
        let device = match self.creation_device(&at) {
            Ok(device) => device,
            Err(e) => return Tensor::with_error(e, Some(self)),
        };
        let storage = self.shared.devices[device].pool.adopt(buffer);
        let mut state = self.shared.state();
        let ty = state.signatures.intern_type(ty);
        let mut node = Node::data(state.node_key(), StoredValue::dense(storage, ty), at);
        node.device = device as u8;
        Tensor::fresh(self, &mut state, ValueRef { node: Arc::new(node), out: 0 })
    }
}
