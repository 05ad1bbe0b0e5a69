//! Imports and exports ONNX models.
//!
//! An imported model is an ordinary Graph: it can be run, differentiated, compiled and printed.
//!
//! ```
//! use ir::{Builder, DType, GraphBuilder, Literal};
//!
//! // A graph, written as an ONNX model ..
//! let mut b = Builder::new();
//! let x = b.input(DType::F32, &[2, 2]);
//! let y = b.mul(x, x)?;
//! let square = b.finish(&[y]);
//! let bytes = tensorloom_onnx::export(&square, &tensorloom_onnx::ExportNames::default())?;
//!
//! // .. and read again.
//! let model = tensorloom_onnx::import(&bytes, &tensorloom_onnx::ImportOptions::default())?;
//! let out = ir::interp::run(&model.graph, &[Literal::new(&[2, 2], &[1f32, 2.0, 3.0, 4.0])])?;
//! assert_eq!(out[0].to_vec::<f32>(), [1.0, 4.0, 9.0, 16.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod directory_data;
mod elem;
mod error;
mod export;
mod fold;
mod function_sizes;
mod import;
mod item;
mod node;
mod ops;
mod options;
pub mod proto;
pub mod tensor;

pub use elem::{Elem, SmallFloat};
pub use error::{Error, Result};
pub use export::{ExportNames, export, export_model};
pub use import::{ImportedModel, OutputForm, TensorPort, import, import_file, import_model, import_with};
pub use options::{ImportOptions, InputInfo};
