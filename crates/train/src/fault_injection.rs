//! For tests: a file system layer that lets operations fail.

use crate::files::{FileOperation, FileSystemLayer};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Lets one operation fail, or that one and all later ones, as a full disk does.
pub(crate) struct FaultInjector {
    fail_at: usize,
    persistent: bool,
    operation_count: Cell<usize>,
}

impl FaultInjector {
    pub(crate) fn new(at: usize, for_good: bool) -> Rc<FaultInjector> {
        Rc::new(FaultInjector { fail_at: at, persistent: for_good, operation_count: Cell::new(0) })
    }

    /// The number of operations so far.
    pub(crate) fn operation_count(&self) -> usize {
        self.operation_count.get()
    }
}

impl FileSystemLayer for FaultInjector {
    fn before(&self, _: FileOperation, _: &Path) -> io::Result<()> {
        let n = self.operation_count.replace(self.operation_count.get() + 1);
        match n == self.fail_at || self.persistent && n > self.fail_at {
            true => Err(io::Error::new(io::ErrorKind::StorageFull, "on purpose")),
            false => Ok(()),
        }
    }
}
