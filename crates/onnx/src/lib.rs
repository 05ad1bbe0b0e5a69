//! ONNX models to Graphs and back.
//!
//! An imported model is a Graph like any other: it runs, is differentiated, compiled and printed.
//!
//! ```
//! use ir::{Build, Builder, DType, Literal};
//!
//! // A graph, written as an ONNX model ..
//! let mut b = Builder::new();
//! let x = b.input(DType::F32, &[2, 2]);
//! let y = b.mul(x, x)?;
//! let square = b.finish(&[y]);
//! let bytes = tensorloom_onnx::export(&square, &tensorloom_onnx::Names::default())?;
//!
//! // .. and read again.
//! let model = tensorloom_onnx::import(&bytes, &tensorloom_onnx::Options::default())?;
//! let out = ir::interp::run(&model.graph, &[Literal::new(&[2, 2], &[1f32, 2.0, 3.0, 4.0])])?;
//! assert_eq!(out[0].to_vec::<f32>(), [1.0, 4.0, 9.0, 16.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod elem;
mod error;
mod export;
mod fold;
mod folder;
mod import;
mod item;
mod node;
mod ops;
mod options;
pub mod proto;
pub mod tensor;
mod weight;

pub use elem::{Elem, SmallFloat};
pub use error::{Error, Result};
pub use export::{Names, export, export_model};
pub use import::{Form, Imported, Port, import, import_file, import_model, import_with};
pub use options::{Given, Options};
