//! Transports: the exchange of bytes between ranks.

use crate::error::{Error, Result};

/// The identity of an exchange, by which mismatched exchanges between ranks are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The hash of the participating ranks. Exchanges of one set of ranks do not wait for those of another.
    pub group: u32,
    /// The number of earlier exchanges between the participating ranks.
    pub sequence_number: u32,
    /// The hash of the collective and its operand.
    pub fingerprint: u32,
}

impl Tag {
    /// Serializes it.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut all = [0; 12];
        for (place, part) in all.chunks_exact_mut(4).zip([self.group, self.sequence_number, self.fingerprint]) {
            place.copy_from_slice(&part.to_le_bytes());
        }
        all
    }

    /// Deserializes it.
    pub fn from_bytes(bytes: [u8; 12]) -> Tag {
        let part = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        Tag { group: part(0), sequence_number: part(4), fingerprint: part(8) }
    }
}

/// The connection of one rank to all others. Messages from one rank to another stay in order within a group.
pub trait Transport: Send + Sync {
    /// The name for messages, such as `tcp`.
    fn name(&self) -> &'static str;

    /// The number of this rank.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn world_size(&self) -> usize;

    /// Sends to some ranks and receives from some, all concurrently, so that no order of sends and receives can
    /// deadlock.
    fn send_recv(&self, tag: Tag, sends: &[(usize, &[u8])], receives: &mut [(usize, &mut [u8])]) -> Result<()>;

    /// Whether several threads may run exchanges of different groups concurrently.
    fn supports_concurrent(&self) -> bool {
        true
    }

    /// The error of a rank that is known to be lost, for callers that wait for something other than an exchange.
    fn lost_rank(&self) -> Option<Error> {
        None
    }

    /// Tells all other ranks that a rank is lost, and why; their calls fail with that error.
    fn abort(&self, rank: usize, reason: &str);

    /// Shuts down: this rank will send nothing more.
    fn shutdown(&self);
}
