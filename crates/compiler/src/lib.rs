//! `compile`: Graph → Program, and the kernel IR that every backend reads.

pub mod loops;
