//! What brings bytes from rank to rank.

use crate::error::{Error, Result};

/// What an exchange belongs to: ranks that are not in the same one are found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Of the ranks that take part. What one set of ranks says does not wait for what another does.
    pub group: u32,
    /// How many exchanges came before, between the ranks that take part.
    pub sequence_number: u32,
    /// Of the collective and its operand.
    pub fingerprint: u32,
}

impl Tag {
    /// As bytes on a wire.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut all = [0; 12];
        for (place, part) in all.chunks_exact_mut(4).zip([self.group, self.sequence_number, self.fingerprint]) {
            place.copy_from_slice(&part.to_le_bytes());
        }
        all
    }

    /// From bytes on a wire.
    pub fn from_bytes(bytes: [u8; 12]) -> Tag {
        let part = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        Tag { group: part(0), sequence_number: part(4), fingerprint: part(8) }
    }
}

/// One rank's way to all others. Messages from one rank to another stay in order within a group.
pub trait Transport: Send + Sync {
    /// For people: `tcp`.
    fn name(&self) -> &'static str;

    /// This rank.
    fn rank(&self) -> usize;

    /// How many there are.
    fn world_size(&self) -> usize;

    /// Sends to some ranks and receives from some, all at once: no order of sends and receives can make ranks wait for each
    /// other in a circle.
    fn send_recv(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()>;

    /// Whether exchanges of different groups may run at once, from several threads.
    fn supports_concurrent(&self) -> bool {
        true
    }

    /// The rank that is known to be gone, as an error; for those who wait for something else than an exchange.
    fn lost_rank(&self) -> Option<Error> {
        None
    }

    /// Tells all others that a rank is gone, and why; they fail with that.
    fn abort(&self, rank: usize, reason: &str);

    /// Says goodbye: this rank has done its part.
    fn shutdown(&self);
}
