//! Tests of the lexer, parser and formatter on the files of `tests/modules`.

mod corpus;
mod formatting;
mod fuzz;
mod grammar;
mod random;
mod syntax_errors;
