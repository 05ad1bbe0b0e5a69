//! Memory planning: lifetimes and arena offsets of buffers.

use crate::donate::can_run_in_place;
use crate::program::{BufferId, BufferKind, BufferRef, ProgramParts, Step};
use std::collections::BTreeMap;

/// The alignment of every buffer.
pub const ALIGN: usize = 64;

/// Assigns an arena offset to every activation such that buffers with overlapping lifetimes do not overlap.
pub(crate) fn plan(program: &mut ProgramParts) {
    for (i, step) in program.steps.iter().enumerate() {
        step.for_each_slice(&mut |p, _| {
            for b in p.buffers() {
                let live = &mut program.buffers[b.0 as usize].lifetime;
                *live = Some(live.map_or((i, i), |(a, _)| (a, i)));
            }
        });
    }
    let mut life = Lifetimes { spans: vec![None; program.buffers.len()], clock: 0, kernels: Vec::new() };
    life.walk(&program.steps);
    let reused = in_place_operands(program, &life);
    let spans = life.spans;
    let mut order: Vec<usize> = (0..program.buffers.len())
        .filter(|&i| program.buffers[i].kind == BufferKind::Activation && spans[i].is_some())
        .collect();
    order.sort_by_key(|&i| (spans[i], i));
    let mut heap = FreeList::default();
    // Buffers by the end of their lifetime.
    let mut ends: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for i in order {
        let (start, end) = spans[i].expect("filtered");
        while let Some(entry) = ends.first_entry() {
            if *entry.key() >= start {
                break;
            }
            for (offset, size) in entry.remove() {
                heap.release(offset, size);
            }
        }
        let size = program.buffers[i].ty.bytes().next_multiple_of(ALIGN).max(ALIGN);
        let taken = reused.get(&i).and_then(|&from| {
            let ending = ends.get_mut(&start)?;
            let at = ending.iter().position(|&(offset, _)| offset == program.buffers[from].offset)?;
            Some(ending.swap_remove(at).0)
        });
        let offset = taken.unwrap_or_else(|| heap.allocate(size));
        program.buffers[i].offset = offset;
        ends.entry(end).or_default().push((offset, size));
    }
    program.arena_bytes = heap.top;
}

/// Buffers that a step may write over an operand without later uses: result → operand.
fn in_place_operands(program: &ProgramParts, life: &Lifetimes) -> BTreeMap<usize, usize> {
    let mut reused = BTreeMap::new();
    for (at, step) in &life.kernels {
        let (mut read, mut written, mut given) = (Vec::new(), Vec::new(), Vec::new());
        step.for_each_slice(&mut |p, write| {
            if let BufferRef::Fixed(id) = p.buffer
                && program.buffers[id.0 as usize].kind == BufferKind::Activation
            {
                if write { written.push(id) } else { read.push(id) }
            }
        });
        for to in written {
            let new = &program.buffers[to.0 as usize].ty;
            if life.spans[to.0 as usize].is_none_or(|(start, _)| start != *at) {
                continue;
            }
            let from = read.iter().find(|from| {
                let old = &program.buffers[from.0 as usize].ty;
                let ends = life.spans[from.0 as usize].is_some_and(|(start, end)| end == *at && start < end);
                let fits = old.numel() == new.numel() && old.dtype.size() == new.dtype.size();
                ends && fits && !given.contains(*from) && can_run_in_place(step, **from, to, new.numel())
            });
            if let Some(from) = from {
                given.push(*from);
                reused.insert(to.0 as usize, from.0 as usize);
            }
        }
    }
    reused
}

struct Lifetimes<'a> {
    /// The first and the last use of each buffer.
    spans: Vec<Option<(usize, usize)>>,
    clock: usize,
    /// Kernels, and matrix products with an epilogue, and their positions.
    kernels: Vec<(usize, &'a Step)>,
}

impl<'a> Lifetimes<'a> {
    fn touch(&mut self, b: BufferId, at: usize) {
        let s = &mut self.spans[b.0 as usize];
        *s = Some(s.map_or((at, at), |(a, z)| (a.min(at), z.max(at))));
    }

    fn walk(&mut self, steps: &'a [Step]) {
        for step in steps {
            if let Step::Loop(l) = step {
                let start = self.clock;
                let known: Vec<Option<(usize, usize)>> = self.spans.clone();
                if let crate::program::TripCount::While { test, .. } = &l.trip_count {
                    self.walk(test);
                }
                self.walk(&l.body);
                let end = self.clock;
                // Buffers that the loop shares with its outside, or carries, are live during all iterations.
                step.for_each_slice(&mut |p, _| {
                    let carried =
                        matches!(p.buffer, crate::program::BufferRef::DoubleBuffered(..)) || !p.strides.is_empty();
                    for b in p.buffers() {
                        if carried || known[b.0 as usize].is_some() {
                            self.touch(b, start);
                            self.touch(b, end);
                        }
                    }
                });
                for (from, to, _) in &l.copies_after {
                    for b in from.buffers().chain(to.buffers()) {
                        self.touch(b, start);
                        self.touch(b, end);
                    }
                }
                self.clock += 1;
            } else if let Step::Branch { index, branches } = step {
                let at = self.clock;
                index.buffers().for_each(|b| self.touch(b, at));
                branches.iter().for_each(|b| self.walk(b));
                self.clock += 1;
            } else {
                let at = self.clock;
                if matches!(step, Step::Kernel { .. } | Step::Matmul { epilogue: Some(_), .. }) {
                    self.kernels.push((at, step));
                }
                step.for_each_slice(&mut |p, _| p.buffers().for_each(|b| self.touch(b, at)));
                self.clock += 1;
            }
        }
    }
}

/// Free ranges of the arena; adjacent ranges are merged.
#[derive(Default)]
struct FreeList {
    free: BTreeMap<usize, usize>,
    top: usize,
}

impl FreeList {
    /// Allocates the smallest free range that fits, or new memory at the top.
    fn allocate(&mut self, size: usize) -> usize {
        let best = self.free.iter().filter(|(_, s)| **s >= size).min_by_key(|(o, s)| (**s, **o)).map(|(o, s)| (*o, *s));
        if let Some((offset, found)) = best {
            self.free.remove(&offset);
            if found > size {
                self.free.insert(offset + size, found - size);
            }
            return offset;
        }
        // A free range at the top is extended.
        if let Some((&offset, &found)) = self.free.last_key_value()
            && offset + found == self.top
        {
            self.free.remove(&offset);
            self.top = offset + size;
            return offset;
        }
        let offset = self.top;
        self.top += size;
        offset
    }

    fn release(&mut self, mut offset: usize, mut size: usize) {
        if let Some((&o, &s)) = self.free.range(..offset).next_back()
            && o + s == offset
        {
            self.free.remove(&o);
            offset = o;
            size += s;
        }
        if let Some(s) = self.free.remove(&(offset + size)) {
            size += s;
        }
        self.free.insert(offset, size);
    }
}
