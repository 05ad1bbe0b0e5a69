//! Realised values: a buffer, and views that have not been applied.

use crate::intern::Ty;
use crate::pool::Pool;
use compiler::DeviceBuffer;
use ir::Op;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of a value. It goes back to its pool when the last reference is dropped.
pub(crate) struct Storage {
    pub(crate) id: u64,
    buffer: Option<Arc<dyn DeviceBuffer>>,
    pool: Arc<Pool>,
    /// Counts committed stores that changed the buffer in place (§5.3).
    version: AtomicU64,
    /// Memory of someone else: never written, never used again for other values.
    external: bool,
}

impl Storage {
    pub(crate) fn new(id: u64, buffer: Arc<dyn DeviceBuffer>, pool: Arc<Pool>) -> Storage {
        Storage { id, buffer: Some(buffer), pool, version: AtomicU64::new(0), external: false }
    }

    /// Memory of someone else, on the device of a pool.
    pub(crate) fn external(id: u64, buffer: Arc<dyn DeviceBuffer>, pool: Arc<Pool>) -> Storage {
        Storage { id, buffer: Some(buffer), pool, version: AtomicU64::new(0), external: true }
    }

    /// Whether it may be written over once nobody else refers to it.
    pub(crate) fn is_owned(&self) -> bool {
        !self.external
    }

    pub(crate) fn buffer(&self) -> &Arc<dyn DeviceBuffer> {
        self.buffer.as_ref().expect("only drop takes the buffer")
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// A committed store has changed the buffer in place.
    pub(crate) fn increment_version(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take().filter(|_| !self.external) {
            self.pool.release(buffer);
        }
    }
}

/// Views over a dense buffer, innermost first.
pub(crate) type Views = Vec<Arc<Op>>;

/// Results of a node: mostly one.
pub(crate) type Values = SmallVec<[StoredValue; 1]>;

/// A value: dense memory of type `ty`, seen through views.
#[derive(Clone)]
pub(crate) struct StoredValue {
    pub(crate) storage: Arc<Storage>,
    pub(crate) ty: Ty,
    pub(crate) views: Views,
}

impl StoredValue {
    pub(crate) fn dense(storage: Arc<Storage>, ty: Ty) -> StoredValue {
        StoredValue { storage, ty, views: Views::new() }
    }

    /// One view more, which gives a value of type `ty`.
    pub(crate) fn viewed(mut self, op: &Arc<Op>, ty: &Ty) -> StoredValue {
        // A dense value under another shape is a dense value of another type.
        if self.views.is_empty() && matches!(**op, Op::Reshape(_)) {
            self.ty = ty.clone();
        } else {
            self.views.push(op.clone());
        }
        self
    }
}
