//! Embedding.

use super::check::*;
use ir::composites::embedding::*;
use ir::{DType, Literal, Type, interp};

#[test]
fn rows_are_read_and_ids_outside_give_nan() {
    let table = Literal::new(&[3, 2], &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let ids = Literal::new(&[2, 2], &[2i32, -5, 1, 7]);
    let nan = f64::NAN;
    let expected = [20.0, 21.0, nan, nan, 10.0, 11.0, nan, nan];
    for padding in [None, Some(2)] {
        let c = embedding(table.ty(), ids.ty(), padding).unwrap();
        let found = run(&c, &[table.clone(), ids.clone()])[0].to_vec::<f64>();
        let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
        assert!(found.iter().zip(&expected).all(same), "{found:?}");
    }
}

#[test]
fn derivatives_batching_text_and_bf16() {
    let table = Numbers::new(30).fill(&[4, 3]);
    let ids = Literal::new(&[2, 3], &[2i64, 0, 2, 3, 1, 2]);
    check_all(&embedding(table.ty(), ids.ty(), None).unwrap(), &[table.clone(), ids], &[0]);
    let one = Literal::new(&[], &[3u8]);
    check_all(&embedding(table.ty(), one.ty(), None).unwrap(), &[table, one], &[0]);
}

#[test]
fn the_padding_row_has_no_gradient() {
    let table = Numbers::new(31).fill(&[3, 1]);
    let ids = Literal::new(&[5], &[0i32, 2, 1, 9, 0]);
    for (padding, expected) in [(None, [5.0, 3.0, 2.0]), (Some(2), [5.0, 3.0, 0.0]), (Some(0), [0.0, 3.0, 2.0])] {
        let c = embedding(table.ty(), ids.ty(), padding).unwrap();
        check_vmap(&c, &[table.clone(), ids.clone()], &[0]);
        let g = tensorloom_transform::vjp(&graph_of(&c), &[0]).unwrap();
        let ct = Literal::new(&[5, 1], &[1.0, 2.0, 3.0, 4.0, 4.0]);
        let outs = interp::run(&g, &[table.clone(), ids.clone(), ct]).unwrap();
        close_to(&outs[1], &expected, 0.0);
    }
    // A row index outside the range of the index dtype is never padding.
    let c = embedding(&Type::new(F, &[300, 1]), &Type::new(DType::U8, &[2]), Some(299)).unwrap();
    let table = Numbers::new(32).fill(&[300, 1]);
    let ids = Literal::new(&[2], &[255u8, 43]);
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0]).unwrap();
    let outs = interp::run(&g, &[table, ids, Literal::new(&[2, 1], &[1.0, 2.0])]).unwrap();
    let dt = outs[1].to_vec::<f64>();
    assert_eq!((dt[255], dt[43], dt.iter().sum::<f64>()), (1.0, 2.0, 3.0));
}

#[test]
fn a_bf16_gradient_is_summed_in_f32() {
    let (table, ids) = (Type::new(DType::BF16, &[1, 1]), Type::new(DType::I32, &[1000]));
    let c = embedding(&table, &ids, None).unwrap();
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0]).unwrap();
    let one = ir::Scalar::one(DType::BF16);
    let args = [Literal::full(&[1, 1], one), Literal::zeros(ids), Literal::full(&[1000, 1], one)];
    close_to(&interp::run(&g, &args).unwrap()[1], &[1000.0], 0.0);
}

#[test]
fn misfits_name_what_was_found() {
    let (t, ids) = (Type::new(F, &[3, 2]), Type::new(DType::I32, &[2]));
    let text = |r: ir::Result<_>| r.map(|_: ir::ops::Composite| ()).unwrap_err().to_string();
    assert_eq!(text(embedding(&t, &ids, Some(3))), "embedding(f64[3,2], i32[2]): has no row 3 for padding");
    assert!(text(embedding(&t, &Type::new(F, &[2]), None)).contains("integer ids"));
    assert!(text(embedding(&Type::new(F, &[3]), &ids, None)).contains("[V, D]"));
    assert!(text(embedding(&Type::new(F, &[0, 2]), &ids, None)).contains("with a row"));
}
