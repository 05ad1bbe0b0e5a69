//! Softmax, its logarithm, log-sum-exp. Expected values are `torch`'s in f64.

use super::check::*;
use ir::composites::softmax::*;
use ir::{Literal, Type, interp};
use std::slice::from_ref;

const SOFTMAX: [f64; 6] = [
    0.33846420887360495,
    0.4954467073810591,
    0.1660890837453359,
    0.537749762418918,
    0.18444917985573364,
    0.2778010577253483,
];
const LOG_SOFTMAX: [f64; 6] = [
    -1.0833369267146131,
    -0.7022954842131897,
    -1.7952309855019204,
    -0.6203619526402194,
    -1.6903813013807087,
    -1.2808500411624888,
];
const LOGSUMEXP: [f64; 2] = [2.64999074596958, -0.2646789339494855];

#[test]
fn forward_equals_pytorch() {
    let x = wave(&[2, 3], 0.9);
    for (c, expected) in
        [(softmax(x.ty()), &SOFTMAX[..]), (log_softmax(x.ty()), &LOG_SOFTMAX), (logsumexp(x.ty()), &LOGSUMEXP)]
    {
        close_to(&run(&c.unwrap(), from_ref(&x))[0], expected, 1e-12);
    }
}

#[test]
fn derivatives_batching_text_and_bf16() {
    let x = Numbers::new(5).fill(&[3, 4]);
    for c in [softmax(x.ty()), log_softmax(x.ty()), logsumexp(x.ty())] {
        check_all(&c.unwrap(), from_ref(&x), &[]);
    }
}

#[test]
fn infinities_and_large_numbers_as_in_pytorch() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let x = Literal::new(&[4, 2], &[-inf, -inf, -inf, 1.0, 1000.0, 1000.0, inf, 0.0]);
    let half = 0.5f64.ln();
    let c = softmax(x.ty()).unwrap();
    close_to(&run(&c, from_ref(&x))[0], &[nan, nan, 0.0, 1.0, 0.5, 0.5, nan, nan], 0.0);
    let c = log_softmax(x.ty()).unwrap();
    close_to(&run(&c, from_ref(&x))[0], &[nan, nan, -inf, 0.0, half, half, nan, nan], 1e-15);
    let c = logsumexp(x.ty()).unwrap();
    close_to(&run(&c, from_ref(&x))[0], &[-inf, 1.0, 1000.0 - half, inf], 1e-15);
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0]).unwrap();
    let ones = Literal::new(&[4], &[1.0f64; 4]);
    let dx = &interp::run(&g, &[x, ones]).unwrap()[1];
    close_to(dx, &[0.0, 0.0, 0.0, 1.0, 0.5, 0.5, nan, 0.0], 1e-12);
}

#[test]
fn misfits_name_what_was_found() {
    let e = softmax(&Type::scalar(F)).unwrap_err().to_string();
    assert_eq!(e, "softmax(f64[]): works along the last axis and needs one");
    assert!(logsumexp(&Type::new(ir::DType::I32, &[2])).is_err());
}

#[test]
fn backward_keeps_what_it_reads() {
    // The operand is also saved, for forward mode through the body.
    let x = Type::new(F, &[2, 4]);
    assert_eq!(kept(&softmax(&x).unwrap()), ["f64[2,4]", "f64[2,4]"]);
    assert_eq!(kept(&logsumexp(&x).unwrap()), ["f64[2,4]", "f64[2]", "f64[2]"]);
}
