//! KV caches and recurrent states of sequences: for each cache of a step, a buffer with one entry per row.

use crate::error::Result;
use crate::session::Buffer;
use ir::Type;
use std::ops::Range;

/// The layout of one cache of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CacheLayout {
    /// Bytes per sequence.
    pub(super) bytes: usize,
    /// For keys and values: the number of contiguous runs, and the bytes of a position in a run. Recurrent states have none.
    pub(super) positions: Option<(usize, usize)>,
}

impl CacheLayout {
    /// Derives layouts from the types of caches at two capacities: those that differ are indexed by position.
    pub(super) fn of(types: &[Type], longer: &[Type]) -> Vec<CacheLayout> {
        let pairs = types.iter().zip(longer);
        pairs
            .map(|(ty, long)| {
                let axis = (0..ty.rank()).find(|&a| ty.shape[a] != long.shape[a]);
                let positions = axis.map(|axis| {
                    let outer = ty.shape[..axis].iter().product();
                    (outer, ty.shape[axis + 1..].iter().product::<usize>() * ty.dtype.size())
                });
                CacheLayout { bytes: ty.bytes(), positions }
            })
            .collect()
    }

    /// Byte ranges of some positions in a sequence's cache; for a state, all of it.
    fn byte_ranges(&self, positions: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (outer, each, length) = match self.positions {
            Some((outer, inner)) => {
                (outer, self.bytes / outer.max(1), (positions.start * inner)..(positions.end * inner))
            }
            None => (1, self.bytes, 0..self.bytes),
        };
        (0..outer).map(move |o| o * each + length.start..o * each + length.end)
    }

    /// Bytes of this many positions; for a state, all of it.
    pub(super) fn size(&self, positions: usize) -> usize {
        self.positions.map_or(self.bytes, |(outer, inner)| outer * inner * positions)
    }

    /// Reads positions of an entry.
    pub(super) fn read(&self, from: &Buffer, row: usize, positions: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.size(positions.len())];
        self.read_to(from, row, positions, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads positions into memory of [`CacheLayout::size`] bytes.
    pub(super) fn read_to(&self, from: &Buffer, row: usize, positions: Range<usize>, mut to: &mut [u8]) -> Result<()> {
        for run in self.byte_ranges(&positions) {
            let (here, rest) = to.split_at_mut(run.len());
            from.read(row * self.bytes + run.start, here)?;
            to = rest;
        }
        Ok(())
    }

    /// Writes the bytes that [`CacheLayout::read`] returned.
    pub(super) fn write(&self, to: &Buffer, row: usize, positions: Range<usize>, mut bytes: &[u8]) -> Result<()> {
        for run in self.byte_ranges(&positions) {
            let (here, rest) = bytes.split_at(run.len().min(bytes.len()));
            to.write(row * self.bytes + run.start, here)?;
            bytes = rest;
        }
        Ok(())
    }
}

/// Copies the first positions of one entry to another.
pub(super) fn copy(
    layouts: &[CacheLayout],
    from: (&[Buffer], usize),
    to: (&[Buffer], usize),
    length: usize,
) -> Result<()> {
    for (i, layout) in layouts.iter().enumerate() {
        let bytes = layout.read(&from.0[i], from.1, 0..length)?;
        layout.write(&to.0[i], to.1, 0..length, &bytes)?;
    }
    Ok(())
}

/// Reads the first positions of an entry, for each cache.
pub(super) fn read(layouts: &[CacheLayout], from: &[Buffer], row: usize, length: usize) -> Result<Vec<Vec<u8>>> {
    layouts.iter().zip(from).map(|(layout, cache)| layout.read(cache, row, 0..length)).collect()
}

/// Writes the bytes that [`read`] returned.
pub(super) fn write(
    layouts: &[CacheLayout],
    to: &[Buffer],
    row: usize,
    length: usize,
    bytes: &[Vec<u8>],
) -> Result<()> {
    for ((layout, cache), bytes) in layouts.iter().zip(to).zip(bytes) {
        layout.write(cache, row, 0..length, bytes)?;
    }
    Ok(())
}
