//! Shadow memory: records which threads accessed each byte of a region.

use std::ops::Range;

/// A thread in the interval between two barriers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ThreadEpoch {
    pub(super) block: u32,
    pub(super) thread: u32,
    /// The number of block barriers before it.
    pub(super) epoch: u32,
    /// The number of subgroup barriers before it.
    pub(super) passed: u32,
}

impl ThreadEpoch {
    /// Whether this access is ordered before `next` by a barrier.
    fn before(self, next: ThreadEpoch, subgroup: u32) -> bool {
        let same_group = self.thread / subgroup == next.thread / subgroup;
        self.block == next.block
            && (self.thread == next.thread || self.epoch != next.epoch || same_group && self.passed != next.passed)
    }
}

#[derive(Clone, Default)]
struct Cell {
    writer: Option<ThreadEpoch>,
    /// Two readers are sufficient: from two subgroups, so that every later writer races with one of them; otherwise the two latest.
    readers: [Option<ThreadEpoch>; 2],
    /// A block that read it, and whether another one did.
    read_by: Option<ThreadEpoch>,
    read_by_others: Option<ThreadEpoch>,
}

impl Cell {
    fn read(&mut self, who: ThreadEpoch, subgroup: u32) -> Result<bool, (ThreadEpoch, bool)> {
        if let Some(w) = self.writer
            && !w.before(who, subgroup)
        {
            return Err((w, true));
        }
        match self.read_by {
            None => self.read_by = Some(who),
            Some(r) if r.block != who.block => self.read_by_others = Some(who),
            Some(_) => {}
        }
        let fresh = |r: &Option<ThreadEpoch>| r.is_some_and(|r| r.block == who.block && r.epoch == who.epoch);
        let group = |r: &Option<ThreadEpoch>| r.map(|r| r.thread / subgroup);
        let own = Some(who.thread / subgroup);
        // Reuse the thread's own slot, an outdated one, one of its subgroup from before the last barrier, or one of two slots of
        // the same other subgroup.
        let slot = self.readers.iter().position(|r| r.is_some_and(|r| r.thread == who.thread)).or_else(|| {
            self.readers.iter().position(|r| !fresh(r)).or_else(|| {
                let old = |r: &Option<ThreadEpoch>| group(r) == own && r.is_some_and(|r| r.passed < who.passed);
                self.readers.iter().position(old).or_else(|| {
                    let alike = group(&self.readers[0]) == group(&self.readers[1]);
                    (alike && group(&self.readers[0]) != own).then_some(0)
                })
            })
        });
        if let Some(s) = slot {
            self.readers[s] = Some(who);
        }
        Ok(self.writer.is_some())
    }

    fn write(&mut self, who: ThreadEpoch, subgroup: u32) -> Result<bool, (ThreadEpoch, bool)> {
        if let Some(w) = self.writer
            && !w.before(who, subgroup)
        {
            return Err((w, true));
        }
        for r in self.readers.iter().flatten() {
            if !r.before(who, subgroup) {
                return Err((*r, false));
            }
        }
        for r in [self.read_by, self.read_by_others].into_iter().flatten() {
            if r.block != who.block {
                return Err((r, false));
            }
        }
        self.writer = Some(who);
        self.readers = [None, None];
        Ok(true)
    }
}

/// The shadow memory of a region.
pub(super) struct Shadow {
    unit: usize,
    cells: Vec<Cell>,
}

impl Shadow {
    /// Shadow memory for this many bytes, which are accessed in multiples of `unit`.
    pub(super) fn new(bytes: usize, unit: usize) -> Shadow {
        Shadow { unit, cells: vec![Cell::default(); bytes.div_ceil(unit)] }
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill(Cell::default());
    }

    /// Records an access. Returns whether all of it was written before, or the racing access and whether that was a write.
    pub(super) fn touch(
        &mut self,
        at: Range<usize>,
        who: ThreadEpoch,
        write: bool,
        group: u32,
    ) -> Result<bool, (ThreadEpoch, bool)> {
        let mut known = true;
        for cell in &mut self.cells[at.start / self.unit..at.end.div_ceil(self.unit)] {
            known &= if write { cell.write(who, group)? } else { cell.read(who, group)? };
        }
        Ok(known)
    }
}
