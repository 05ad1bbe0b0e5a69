//! Laws of the lexer, parser and formatter over the files of `tests/modules`.

mod corpus;
mod formatting;
mod fuzz;
mod grammar;
mod random;
mod syntax_errors;
