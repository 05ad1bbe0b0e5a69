//! Placeholder.
use crate::error::Result;
/// Names of a graph's inputs and outputs.
#[derive(Default)]
pub struct Names;
/// Exports.
pub fn export(_: &ir::Graph, _: &Names) -> Result<Vec<u8>> { Ok(Vec::new()) }
/// Exports.
pub fn export_model() {}
