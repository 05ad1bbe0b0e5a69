//! The pure Graph behind every front end of Tensorloom: types, ops with their rules, text form, verifier and interpreter.
//!
//! ```
//! use tensorloom_ir::{Builder, DType, GraphBuilder, Literal, interp};
//!
//! let mut b = Builder::new();
//! let x = b.input(DType::F32, &[3]);
//! let y = b.mul(x, x)?;
//! let square = b.finish(&[y]);
//! let out = interp::run(&square, &[Literal::new(&[3], &[1f32, 2.0, 3.0])])?;
//! assert_eq!(out[0].to_vec::<f32>(), [1.0, 4.0, 9.0]);
//! assert_eq!(tensorloom_ir::text::parse(&square.to_string())?, square);
//! # Ok::<(), tensorloom_ir::Error>(())
//! ```

pub mod attr;
pub mod build;
pub mod composites;
pub mod dtype;
pub mod elements;
pub mod error;
pub mod expr;
pub mod graph;
pub mod interp;
pub mod literal;
pub mod mesh;
pub mod ops;
pub mod round;
pub mod scalar;
pub mod special;
pub mod text;
pub mod types;
pub mod varying_axes;
pub mod verify;

pub use build::{Builder, GraphBuilder, GraphTransforms, PartialEvalGraphs};
pub use dtype::{DType, DTypeKind};
pub use error::{Error, InferError, Result, TypeError};
pub use expr::Expr;
pub use graph::{Def, Graph, Loc, Node, Value, Values};
pub use literal::{Element, Literal};
pub use mesh::{AxisSet, Mesh, MeshAxis, Spec};
pub use ops::{Op, Rules, Semantics};
pub use scalar::{Binary, Compare, DTypeDomain, Scalar, Unary};
pub use types::{Shape, Type};
