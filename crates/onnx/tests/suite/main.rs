//! Import and export of ONNX: ONNX's own node tests, models of other frameworks, gradients, invalid files.

mod export;
mod faults;
mod fuzz;
mod gradients;
mod hostile;
mod models;
mod nodes;
mod support;
