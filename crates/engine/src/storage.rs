//! Computed values: a buffer, and views that have not been applied yet.

use crate::intern::Ty;
use crate::pool::Pool;
use compiler::DeviceBuffer;
use ir::Op;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of a value. It returns to its pool when the last reference is dropped.
pub(crate) struct Storage {
    pub(crate) id: u64,
    buffer: Option<Arc<dyn DeviceBuffer>>,
    pool: Arc<Pool>,
    /// The number of committed stores that changed the buffer in place (§5.3).
    version: AtomicU64,
    /// Whether the memory is external: never written, and never reused for other values.
    external: bool,
}

impl Storage {
    pub(crate) fn new(id: u64, buffer: Arc<dyn DeviceBuffer>, pool: Arc<Pool>) -> Storage {
        Storage { id, buffer: Some(buffer), pool, version: AtomicU64::new(0), external: false }
    }

    /// Wraps external memory on the device of a pool.
    pub(crate) fn external(id: u64, buffer: Arc<dyn DeviceBuffer>, pool: Arc<Pool>) -> Storage {
        Storage { id, buffer: Some(buffer), pool, version: AtomicU64::new(0), external: true }
    }

    /// Whether the memory may be overwritten when nothing else refers to it.
    pub(crate) fn is_owned(&self) -> bool {
        !self.external
    }

    pub(crate) fn buffer(&self) -> &Arc<dyn DeviceBuffer> {
        self.buffer.as_ref().expect("only drop takes the buffer")
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Increments the version after a committed store changed the buffer in place.
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

/// View ops over a dense buffer, innermost first.
pub(crate) type Views = Vec<Arc<Op>>;

/// The results of a node; most nodes have one.
pub(crate) type Values = SmallVec<[StoredValue; 1]>;

/// A value: dense memory of type `ty`, read through views.
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

    /// Appends a view that gives a value of type `ty`.
    pub(crate) fn viewed(mut self, op: &Arc<Op>, ty: &Ty) -> StoredValue {
        // A reshape of a dense value only changes the type.
        if self.views.is_empty() && matches!(**op, Op::Reshape(_)) {
            self.ty = ty.clone();
        } else {
            self.views.push(op.clone());
        }
        self
    }
}
