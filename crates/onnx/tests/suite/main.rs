//! ONNX in and out: ONNX's own node tests, models of other frameworks, gradients, files that are wrong.

mod export;
mod faults;
mod fuzz;
mod gradients;
mod hostile;
mod models;
mod nodes;
mod support;
