//! Dropout.

use super::check::*;
use ir::composites::dropout::*;
use ir::{DType, Literal, Type};

#[test]
fn bits_below_the_rate_are_dropped_and_the_rest_scaled() {
    let x = Literal::new(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let quarter = 1u32 << 30;
    let bits = Literal::new(&[4], &[0u32, quarter - 1, quarter, u32::MAX]);
    for (rate, expected) in [(0.0, [1.0, 2.0, 3.0, 4.0]), (0.25, [0.0, 0.0, 4.0, 16.0 / 3.0]), (1.0, [0.0; 4])] {
        let c = dropout(x.ty(), bits.ty(), rate).unwrap();
        close_to(&run(&c, &[x.clone(), bits.clone()])[0], &expected, 1e-15);
    }
    let mask = Literal::new(&[4], &[true, false, false, true]);
    let c = dropout(x.ty(), mask.ty(), 0.5).unwrap();
    close_to(&run(&c, &[x, mask])[0], &[2.0, 0.0, 0.0, 8.0], 0.0);
}

#[test]
fn derivatives_batching_text_and_bf16() {
    let x = Numbers::new(12).fill(&[2, 3]);
    let bits = Literal::new(&[2, 3], &[0u32, 1 << 31, u32::MAX, 7 << 28, 9 << 28, 3]);
    let c = dropout(x.ty(), bits.ty(), 0.5).unwrap();
    check_all(&c, &[x.clone(), bits], &[]);
    let mask = Literal::new(&[2, 3], &[true, false, true, true, false, false]);
    check_all(&dropout(x.ty(), mask.ty(), 0.1).unwrap(), &[x, mask], &[]);
}

#[test]
fn misfits_name_what_was_found() {
    let x = Type::new(F, &[2]);
    assert!(dropout(&x, &Type::new(DType::U32, &[3]), 0.5).is_err());
    assert!(dropout(&x, &Type::new(DType::U64, &[2]), 0.5).is_err());
    for rate in [-0.1, 1.1, f64::NAN] {
        let e = dropout(&x, &Type::new(DType::U32, &[2]), rate).unwrap_err();
        assert!(e.to_string().contains("rate between 0 and 1"));
    }
}

#[test]
fn backward_keeps_the_bits_alone() {
    let c = dropout(&Type::new(F, &[2]), &Type::new(DType::U32, &[2]), 0.5).unwrap();
    assert_eq!(kept(&c), ["u32[2]"]);
}
