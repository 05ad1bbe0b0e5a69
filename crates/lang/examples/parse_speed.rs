//! Measures how fast the front end parses and formats a large file. Prints the times; asserts nothing.
//!
//! `cargo run --release -p tensorloom-lang --example parse_speed [LINES]`

use std::time::Instant;

const PIECE: &str = r#"
module Projection(in_dim: int, out_dim: int, use_bias: bool = true):
  """Affine map of the last axis."""

  let:
    width = max(in_dim, out_dim)
    constraint:
      in_dim > 0, "in_dim must be positive"

  params:
    weight: [out_dim, in_dim] @dtype(bf16)
    bias: [out_dim] if use_bias

  forward:
    in: x: [*, in_dim]
    out: y: [*, out_dim]
    graph:
      x -> matmul(weight, transpose=NT) -> flat  # the product
      if use_bias:
        (flat, bias) -> add() -> y
      else:
        flat -> y
    save: [x]
"#;

fn best_of(runs: usize, mut work: impl FnMut()) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e3
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    let lines: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let text = PIECE.repeat(lines / PIECE.lines().count());
    let file = tensorloom_lang::FileId::default();
    println!("{} lines, {} KiB", text.lines().count(), text.len() / 1024);
    println!("lex    {:7.2} ms", best_of(5, || drop(tensorloom_lang::lexer::lex(file, &text))));
    println!("parse  {:7.2} ms", best_of(5, || drop(tensorloom_lang::parser::parse(file, &text))));
    println!("format {:7.2} ms", best_of(5, || drop(tensorloom_lang::fmt::format(&text))));
}
