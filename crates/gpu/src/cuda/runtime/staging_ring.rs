//! A ring buffer of staging memory: parts are allocated and freed in order.

use std::collections::VecDeque;

/// The alignment of parts.
const ALIGN: usize = 64;

/// The used ranges of a ring buffer, each with a ticket that tells when it may be reused.
pub(crate) struct StagingRing<T> {
    capacity: usize,
    /// The start of the next part.
    head: usize,
    /// The parts in order, as (start, end, ticket).
    parts: VecDeque<(usize, usize, T)>,
}

impl<T> StagingRing<T> {
    pub(crate) fn new(capacity: usize) -> StagingRing<T> {
        StagingRing { capacity, head: 0, parts: VecDeque::new() }
    }

    /// The start of a new part of this size; none if older parts occupy the space.
    pub(crate) fn find_space(&self, bytes: usize) -> Option<usize> {
        debug_assert!(bytes <= self.capacity);
        let Some(&(tail, ..)) = self.parts.front() else { return Some(0) };
        // After the last part, up to the ring's end or to the oldest part; else from the ring's start.
        let wrapped = self.head <= tail;
        let end = if wrapped { tail } else { self.capacity };
        if self.head + bytes <= end {
            return Some(self.head);
        }
        (!wrapped && bytes <= tail).then_some(0)
    }

    /// Marks the part that [`StagingRing::find_space`] returned as used.
    pub(crate) fn reserve(&mut self, start: usize, bytes: usize, ticket: T) {
        let end = (start + bytes).next_multiple_of(ALIGN).min(self.capacity);
        // An empty ring has its head at its tail; a part that fills the ring must be distinguishable from that.
        self.head = end;
        self.parts.push_back((start, end, ticket));
    }

    /// The oldest ticket.
    pub(crate) fn oldest(&self) -> Option<&T> {
        self.parts.front().map(|p| &p.2)
    }

    /// Frees the oldest part.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let part = self.parts.pop_front();
        if self.parts.is_empty() {
            self.head = 0;
        }
        part.map(|p| p.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_use_never_overlap() {
        let mut ring: StagingRing<(usize, usize)> = StagingRing::new(4096);
        let mut x = 9u64;
        let mut full = 0;
        for _ in 0..100_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bytes = 1 + (x >> 33) as usize % if x >> 60 == 0 { 4096 } else { 900 };
            match ring.find_space(bytes) {
                Some(start) => {
                    assert!(start + bytes <= 4096);
                    let disjoint =
                        |p: &(usize, usize, (usize, usize))| start >= p.2.0 + p.2.1 || start + bytes <= p.2.0;
                    assert!(ring.parts.iter().all(disjoint), "{start} {bytes} {:?}", ring.parts);
                    ring.reserve(start, bytes, (start, bytes));
                }
                None => {
                    full += 1;
                    assert!(ring.oldest().is_some(), "an empty ring takes anything");
                    ring.pop();
                }
            }
            if x >> 62 == 0 {
                ring.pop();
            }
        }
        assert!(full > 1000);
    }
}
