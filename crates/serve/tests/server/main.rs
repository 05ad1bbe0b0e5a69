//! A server, asked by a small client.

mod client;
mod requests;
