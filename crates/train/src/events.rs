//! TensorBoard's event files: records of protocol buffers, each with checksums.

use crate::error::Result;
use crate::files;
use crate::log::Entry;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file of events.
pub(crate) struct Events {
    path: PathBuf,
    unit: &'static str,
}

impl Events {
    /// Begins a file in a folder; `unit` is what speed counts.
    pub(crate) fn begin(folder: &Path, unit: &'static str) -> Result<Events> {
        let now = seconds();
        let path = folder.join(format!("events.out.tfevents.{:010}.{}.loom", now as u64, std::process::id()));
        let mut event = Vec::new();
        double(&mut event, 1, now);
        bytes(&mut event, 3, b"brain.Event:2");
        files::write(&path, &record(&event))?;
        Ok(Events { path, unit })
    }

    /// Adds what a line of the log says. A disk that is full does not end the run.
    pub(crate) fn add(&self, entry: &Entry) {
        let scalars: Vec<(String, f32)> = match entry {
            Entry::Train { loss, norm, rate, speed, memory, .. } => vec![
                ("loss/train".into(), *loss as f32),
                ("gradient/norm".into(), *norm),
                ("rate".into(), *rate as f32),
                (format!("speed/{}_per_s", self.unit), *speed as f32),
                ("memory/MB".into(), *memory as f32 / 1e6),
            ],
            Entry::Valid { loss, .. } => vec![("loss/held_out".into(), *loss)],
            Entry::Layers { norms, .. } => norms
                .iter()
                .flat_map(|(name, gradient, weight)| {
                    [(format!("gradients/{name}"), *gradient), (format!("weights/{name}"), *weight)]
                })
                .collect(),
            Entry::Sample { .. } => return,
        };
        let mut summary = Vec::new();
        for (tag, x) in scalars {
            let mut value = Vec::new();
            bytes(&mut value, 1, tag.as_bytes());
            value.push(2 << 3 | 5);
            value.extend(x.to_le_bytes());
            bytes(&mut summary, 1, &value);
        }
        let mut event = Vec::new();
        double(&mut event, 1, seconds());
        event.push(2 << 3);
        varint(&mut event, entry.step() as u64);
        bytes(&mut event, 5, &summary);
        let _ = files::append(&self.path, &record(&event));
    }
}

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n > 127 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn double(out: &mut Vec<u8>, field: u8, x: f64) {
    out.push(field << 3 | 1);
    out.extend(x.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, data: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, data.len() as u64);
    out.extend(data);
}

/// A record: its length, the length's checksum, the data, its checksum.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = length.to_vec();
    out.extend(masked(&length).to_le_bytes());
    out.extend(data);
    out.extend(masked(data).to_le_bytes());
    out
}

fn masked(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// CRC-32C, bit by bit: events are small.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |s, _| if s & 1 == 1 { s >> 1 ^ 0x82F6_3B78 } else { s >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum's own test vectors, and a record that TensorBoard's reader accepts.
    #[test]
    fn records_are_those_of_tensorboard() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        let mut event = Vec::new();
        event.push(2 << 3);
        varint(&mut event, 300);
        assert_eq!(event, [16, 0xAC, 2]);
        let found = record(&event);
        assert_eq!(found.len(), 8 + 4 + 3 + 4);
        assert_eq!(found[..8], 3u64.to_le_bytes());
        assert_eq!(found[8..12], masked(&found[..8]).to_le_bytes());
    }
}
