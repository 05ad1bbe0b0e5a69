//! Grouped matrix products (`ragged_dot`).

use crate::check::{check, close, random, value};
use ir::ops::{RaggedDot, RaggedMode};
use ir::{DType, GraphBuilder, Literal};

fn ramp(shape: &[usize], from: f64) -> Literal {
    let n: usize = shape.iter().product();
    Literal::new(shape, &(0..n).map(|i| i as f64 + from).collect::<Vec<_>>())
}

#[test]
fn rows_meet_their_groups_matrix() {
    let (lhs, rhs) = (ramp(&[5, 2], -3.0), ramp(&[3, 2, 2], -4.0));
    // The results of `lax.ragged_dot` with group sizes 2, 0, 2.
    let all = [16.0, 11.0, 4.0, 3.0, 16.0, 19.0, 36.0, 43.0];
    let rows: [([i32; 4], usize, usize); 4] = [
        ([0, 2, 2, 4], 0, 4),
        // Rows before the first offset and after the last are in no group.
        ([1, 2, 2, 3], 1, 3),
        ([-7, 2, 1, 4], 0, 4),
        ([i32::MIN, 2, 2, 4], 0, 4),
    ];
    for (offsets, from, to) in rows {
        let inputs = [lhs.clone(), rhs.clone(), Literal::new(&[4], &offsets)];
        let y = value(&inputs, |b, v| b.ragged_dot(v[0], v[1], v[2]));
        let expected: Vec<f64> = (0..10).map(|i| if (from..to).contains(&(i / 2)) { all[i] } else { 0.0 }).collect();
        close(&format!("{offsets:?}"), &y, &Literal::new(&[5, 2], &expected), 0.0);
    }
    let far = [lhs, rhs, Literal::new(&[4], &[0i32, i32::MAX, 2, 4])];
    let y = value(&far, |b, v| b.ragged_dot(v[0], v[1], v[2])).to_vec::<f64>();
    // All rows are in the first group: the last is (5, 6) times ((-4, -3), (-2, -1)).
    assert_eq!(y[8..], [-32.0, -21.0]);
}

#[test]
fn rows_in_no_group_are_not_read() {
    let inputs = [
        Literal::new(&[3, 1], &[1.0, 2.0, f64::NAN]),
        Literal::new(&[1, 1, 1], &[3.0f64]),
        Literal::new(&[2], &[0i32, 2]),
    ];
    let g = crate::check::graph(&inputs, |b, v| {
        let y = b.ragged_dot(v[0], v[1], v[2])?;
        b.sum_all(y)
    });
    let both = crate::check::run(&tensorloom_transform::value_and_grad(&g, &[0, 1]).unwrap(), &inputs);
    assert_eq!(both[0].to_vec::<f64>(), [9.0]);
    assert_eq!(both[1].to_vec::<f64>(), [3.0, 3.0, 0.0]);
    assert_eq!(both[2].to_vec::<f64>(), [3.0]);
}

#[test]
fn every_law_holds() {
    for offsets in [[0i64, 2, 2, 4], [1, 3, 4, 4], [3, 0, 9, 2]] {
        let offsets = Literal::new(&[4], &offsets);
        let inputs = [random(&[5, 2], 1), random(&[3, 2, 3], 2), offsets.clone()];
        check("rows", &inputs, |b, v| b.ragged_dot(v[0], v[1], v[2]));
        let contract = RaggedDot { mode: RaggedMode::Contract, ..RaggedDot::rows(DType::F64) };
        let inputs = [random(&[5, 2], 1), random(&[5, 3], 2), offsets];
        check("contract", &inputs, |b, v| b.one(contract.into(), v));
    }
    let none = Literal::new(&[1], &[3i32]);
    for (m, k, n) in [(0, 2, 3), (4, 0, 3), (4, 2, 0)] {
        let inputs = [random(&[m, k], 1), random(&[0, k, n], 2), none.clone()];
        check("no groups", &inputs, |b, v| b.ragged_dot(v[0], v[1], v[2]));
        let inputs = [random(&[m, k], 1), random(&[2, k, n], 2), Literal::new(&[3], &[0i32, 1, 3])];
        check("empty", &inputs, |b, v| b.ragged_dot(v[0], v[1], v[2]));
    }
    let mut b = ir::Builder::new();
    let (x, w, o) = (b.input(DType::F32, &[4, 2]), b.input(DType::F32, &[3, 2, 1]), b.input(DType::I32, &[3]));
    assert!(b.ragged_dot(x, w, o).is_err());
}
