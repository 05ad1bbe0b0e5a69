//! Symbolic sizes: integer polynomials over named dimensions.
//!
//! A module is checked once for all sizes, so sizes are compared as polynomials: `2·d_ff` equals `d_ff + d_ff`, and
//! `B·T` differs from `d_model` even though some numbers make them equal. `a // b` stays an atom unless the division
//! is exact; [`Dim::equal`] returns the divisions that must be exact for two sizes to agree.

mod divide;
mod poly;
mod print;
mod unify;

pub use poly::{Atom, Dim, Symbol};
pub use unify::{SizeMismatch, Unifier};

/// A division that must leave no remainder, `(dividend, divisor)`.
pub type ExactDivision = (Dim, Dim);
