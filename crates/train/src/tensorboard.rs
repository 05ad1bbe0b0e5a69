//! TensorBoard's event files: protocol buffer records, each with checksums.

use crate::error::Result;
use crate::files;
use crate::log::LogEntry;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An event file.
pub(crate) struct TensorBoardWriter {
    path: PathBuf,
    unit: &'static str,
}

impl TensorBoardWriter {
    /// Creates an event file in a folder; `unit` is the unit of the speed (such as tokens).
    pub(crate) fn create(folder: &Path, unit: &'static str) -> Result<TensorBoardWriter> {
        let now = unix_seconds();
        let path = folder.join(format!("events.out.tfevents.{:010}.{}.loom", now as u64, std::process::id()));
        let mut event = Vec::new();
        double(&mut event, 1, now);
        bytes(&mut event, 3, b"brain.Event:2");
        files::write(&path, &record(&event))?;
        Ok(TensorBoardWriter { path, unit })
    }

    /// Writes a log entry. A full disk does not end the run.
    pub(crate) fn write_entry(&self, entry: &LogEntry) {
        let scalars: Vec<(String, f32)> = match entry {
            LogEntry::Train { loss, norm, rate, speed, memory, .. } => vec![
                ("train/loss".into(), *loss as f32),
                ("train/grad_norm".into(), *norm),
                ("train/learning_rate".into(), *rate as f32),
                (format!("speed/{}_per_s", self.unit), *speed as f32),
                ("memory/MB".into(), *memory as f32 / 1e6),
            ],
            LogEntry::Valid { loss, .. } => vec![("eval/loss".into(), *loss)],
            LogEntry::Layers { norms, .. } => norms
                .iter()
                .flat_map(|(name, gradient, weight)| {
                    [(format!("gradients/{name}"), *gradient), (format!("weights/{name}"), *weight)]
                })
                .collect(),
            LogEntry::Sample { .. } => return,
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
        double(&mut event, 1, unix_seconds());
        event.push(2 << 3);
        varint(&mut event, entry.step() as u64);
        bytes(&mut event, 5, &summary);
        let _ = files::append(&self.path, &record(&event));
    }
}

fn unix_seconds() -> f64 {
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

/// Encodes a record: the length, the length's checksum, the data, the data's checksum.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = length.to_vec();
    out.extend(mask_crc(&length).to_le_bytes());
    out.extend(data);
    out.extend(mask_crc(data).to_le_bytes());
    out
}

fn mask_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// CRC-32C, one bit at a time: events are small.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |s, _| if s & 1 == 1 { s >> 1 ^ 0x82F6_3B78 } else { s >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the checksum's published test vectors, and a record that TensorBoard's reader accepts.
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
        assert_eq!(found[8..12], mask_crc(&found[..8]).to_le_bytes());
    }
}
