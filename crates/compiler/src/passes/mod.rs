//! Graph → Graph passes of the compiler, each in its own file.

pub mod cse;
pub mod dots;
pub mod inline;
pub mod simplify;
