//! Transposes a block of short rows for generated code.

use super::Axis;
use super::lines;
use super::tiles::{self, Transpose};
use crate::gemm::Isa;

/// A transpose of a block that generated code requests.
pub(crate) struct TransposeRoutine {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The stride from row to row.
    pub(crate) outside: isize,
    /// The stride from column to column.
    pub(crate) inside: isize,
    /// Whether columns are transposed back to rows.
    pub(crate) back: bool,
    pub(crate) isa: Isa,
}

impl TransposeRoutine {
    /// Transposes the block. `bytes` is the element size.
    ///
    /// # Safety
    /// Both ends are valid for the block, and the machine has the instruction set.
    pub(crate) unsafe fn run(&self, bytes: usize, from: *const u8, to: *mut u8) {
        // SAFETY: both ends are valid for the block of elements of `bytes` bytes, and the machine has the instruction
        // set.
        unsafe {
            match bytes {
                1 => self.run_as::<u8>(from, to),
                2 => self.run_as::<u16>(from.cast(), to.cast()),
                4 => self.run_as::<u32>(from.cast(), to.cast()),
                _ => self.run_as::<u64>(from.cast(), to.cast()),
            }
        }
    }

    /// # Safety
    /// As for [`Turn::run`].
    unsafe fn run_as<T: Transpose>(&self, from: *const T, to: *mut T) {
        let dense = self.outside == self.columns as isize;
        let short = dense && (2..=lines::SHORT).contains(&self.columns) && self.columns < T::TILE;
        let row = |from, to| Axis { size: self.rows, from, to };
        let column = |from, to| Axis { size: self.columns, from, to };
        // SAFETY: both ends are valid for the block, and the machine has the instruction set.
        unsafe {
            match (self.back, short) {
                (false, true) => lines::collect(from, to, column(1, self.inside), row(self.outside, 1), 0..self.rows),
                (true, true) => lines::deal(from, to, column(self.inside, 1), row(1, self.outside), 0..self.rows),
                (false, false) => {
                    let (d, s) = (row(self.outside, 1), column(1, self.inside));
                    tiles::transpose(from, to, d, s, 0..self.columns, self.isa)
                }
                (true, false) => {
                    let (d, s) = (column(self.inside, 1), row(1, self.outside));
                    tiles::transpose(from, to, d, s, 0..self.rows, self.isa)
                }
            }
        }
    }
}
