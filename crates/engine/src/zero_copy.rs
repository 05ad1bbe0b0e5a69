//! Memory shared with others: a tensor's, lent to another library; and another library's, adopted as a tensor.
//!
//! Both ways follow from the first law of the README: a buffer never changes while somebody else refers to it. What is lent is
//! referred to by who holds it; what is adopted is never written, and never used again for other values.

use crate::context;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::node::{Node, ValueRef};
use crate::storage::StoredValue;
use crate::tensor::Tensor;
use compiler::DeviceBuffer;
use ir::{Literal, Loc, Type};
use std::sync::Arc;

/// The memory of a tensor's elements, dense in row-major order. As long as it lives, nothing changes them.
#[derive(Clone)]
pub struct SharedMemory(StoredValue);

impl SharedMemory {
    /// What lies there.
    pub fn ty(&self) -> &Type {
        &self.0.ty
    }

    /// Where it lies. It may be longer than the elements; it must not be written.
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
    /// Computes what is needed, and lends the memory where the elements lie; no copy is made of a tensor without views.
    #[track_caller]
    pub fn export_memory(&self) -> Result<SharedMemory> {
        self.materialize("lend", &Loc::caller()).map(SharedMemory)
    }
}

impl Engine {
    /// A tensor of elements that lie in memory of someone else, on the device where tensors are made now. The memory is read
    /// when what is recorded with the tensor runs, so nobody may change it while the tensor or what depends on it lives.
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
