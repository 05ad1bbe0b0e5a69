//! A server, asked by a small client.

mod client;
mod fields;
mod requests;
