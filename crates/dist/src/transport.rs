//! What brings bytes from rank to rank.

use crate::error::Result;

/// What an exchange belongs to: ranks that are not in the same one are found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// How many exchanges came before, between the ranks that take part.
    pub number: u32,
    /// Of the collective and its operand.
    pub what: u32,
}

impl Tag {
    /// As bytes on a wire.
    pub fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.number) << 32 | u64::from(self.what)).to_le_bytes()
    }

    /// From bytes on a wire.
    pub fn from_bytes(bytes: [u8; 8]) -> Tag {
        let all = u64::from_le_bytes(bytes);
        Tag { number: (all >> 32) as u32, what: all as u32 }
    }
}

/// One rank's way to all others. Messages from one rank to another stay in order.
pub trait Transport: Send + Sync {
    /// For people: `tcp`.
    fn name(&self) -> &'static str;

    /// This rank.
    fn rank(&self) -> usize;

    /// How many there are.
    fn world(&self) -> usize;

    /// Sends to some ranks and receives from some, all at once: no order of sends and receives can make ranks wait for each
    /// other in a circle.
    fn exchange(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()>;

    /// Tells all others that a rank is gone, and why; they fail with that.
    fn abort(&self, rank: usize, reason: &str);

    /// Says goodbye: this rank has done its part.
    fn finish(&self);
}
