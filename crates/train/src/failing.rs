//! For tests: a layer over the file system that lets operations fail.

use crate::files::{Layer, Operation};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Lets one operation fail, or that one and all behind it, as a full disk does.
pub(crate) struct Failing {
    at: usize,
    for_good: bool,
    seen: Cell<usize>,
}

impl Failing {
    pub(crate) fn new(at: usize, for_good: bool) -> Rc<Failing> {
        Rc::new(Failing { at, for_good, seen: Cell::new(0) })
    }

    /// How many operations there were.
    pub(crate) fn seen(&self) -> usize {
        self.seen.get()
    }
}

impl Layer for Failing {
    fn before(&self, _: Operation, _: &Path) -> io::Result<()> {
        let n = self.seen.replace(self.seen.get() + 1);
        match n == self.at || self.for_good && n > self.at {
            true => Err(io::Error::new(io::ErrorKind::StorageFull, "on purpose")),
            false => Ok(()),
        }
    }
}
