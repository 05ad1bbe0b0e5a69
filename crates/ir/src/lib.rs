//! The pure Graph under every face of Tensorloom.

pub mod dtype;
pub mod scalar;
pub mod special;

pub use dtype::{Class, DType};
pub use scalar::{Binary, Compare, Domain, Scalar, Unary};
