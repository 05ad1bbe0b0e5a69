//! Tests of a server through HTTP.

mod client;
mod fields;
mod requests;
