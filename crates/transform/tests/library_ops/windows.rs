//! Pooling, cumulative reductions and argmax/argmin.

use crate::check::{check, close, random, value};
use ir::ops::{ReduceKind, WindowConfig};
use ir::{DType, GraphBuilder, Literal};

use ReduceKind::{Max, Min, Prod, Sum};

const KINDS: [ReduceKind; 4] = [Sum, Prod, Max, Min];

fn ramp(shape: &[usize]) -> Literal {
    let n: usize = shape.iter().product();
    Literal::new(shape, &(0..n).map(|i| (i * 7 % 11) as f64 - 5.0).collect::<Vec<_>>())
}

fn windows(strides: &[usize], padding: &[(i64, i64)], base: &[usize], dilation: &[usize]) -> WindowConfig {
    WindowConfig {
        strides: strides.into(),
        low: padding.iter().map(|p| p.0).collect(),
        high: padding.iter().map(|p| p.1).collect(),
        base_dilation: base.into(),
        window_dilation: dilation.into(),
    }
}

/// Shape, window, geometry and result shape, with the values of `lax.reduce_window` for sum, product, maximum and minimum.
type Case = (&'static [usize], &'static [usize], WindowConfig, &'static [usize], [&'static [f64]; 4]);

fn cases() -> Vec<Case> {
    vec![
        (
            &[6],
            &[3],
            windows(&[1], &[(1, 1)], &[1], &[1]),
            &[6],
            [
                &[-3., -5., 5., 4., 3., -2.],
                &[-10., 20., -20., -10., -15., -3.],
                &[2., 2., 5., 5., 5., 1.],
                &[-5., -5., -2., -2., -3., -3.],
            ],
        ),
        (
            &[3, 4],
            &[2, 2],
            windows(&[1, 2], &[(0, 1), (1, 0)], &[1, 1], &[1, 1]),
            &[3, 2],
            [
                &[-4., 1., -3., 3., -4., 2.],
                &[-5., 48., -4., 36., -4., -3.],
                &[1., 4., 1., 4., -4., 3.],
                &[-5., -3., -4., -3., -4., -1.],
            ],
        ),
        (
            &[4, 3],
            &[2, 2],
            windows(&[2, 1], &[(1, -1), (0, 2)], &[2, 1], &[1, 2]),
            &[3, 3],
            [
                &[-7., 2., -2., 2., 1., -3., 0., 0., -4.],
                &[10., 2., -2., -15., 1., -3., -16., 0., -4.],
                &[-2., 2., -2., 5., 1., -3., 4., 0., -4.],
                &[-5., 2., -2., -3., 1., -3., -4., 0., -4.],
            ],
        ),
    ]
}

#[test]
fn windows_reduce_as_in_jax_and_keep_every_law() {
    for (shape, window, w, out, values) in cases() {
        for (kind, expected) in KINDS.into_iter().zip(values) {
            let what = format!("{kind:?} {shape:?}");
            let y = value(&[ramp(shape)], |b, v| b.reduce_window(kind, v[0], window, w.clone()));
            close(&what, &y, &Literal::new(out, expected), 0.0);
            check(&what, &[random(shape, 3)], |b, v| b.reduce_window(kind, v[0], window, w.clone()));
        }
    }
    let rows: [(&[usize], &[usize], WindowConfig); 5] = [
        (&[], &[], WindowConfig::unit_stride(0)),
        (&[0, 2], &[2, 1], WindowConfig::strided(&[1, 1], &[2, 0])),
        (&[2], &[5], WindowConfig::unit_stride(1)),
        (&[3], &[0], WindowConfig::unit_stride(1)),
        (&[2, 3, 2], &[1, 2, 2], WindowConfig::strided(&[1, 2, 1], &[0, 1, 1])),
    ];
    for (shape, window, w) in rows {
        for kind in KINDS {
            // A window of only padding is infinite, and an infinite loss has no finite differences.
            let infinite = matches!(kind, Max | Min) && (shape.contains(&0) || window.contains(&0));
            if !infinite {
                check(&format!("{kind:?} {shape:?}"), &[random(shape, 4)], |b, v| {
                    b.reduce_window(kind, v[0], window, w.clone())
                });
            }
        }
    }
}

/// The gradient of Σ cᵢ·yᵢ with c = 1, 2, ..
fn weighted_grad(x: &Literal, f: impl FnOnce(&mut ir::Builder, ir::Value) -> ir::Result<ir::Value>) -> Vec<f64> {
    let g = crate::check::graph(std::slice::from_ref(x), |b, v| {
        let y = f(b, v[0])?;
        let shape = b.ty(y).shape;
        let n: usize = shape.iter().product();
        let weights: Vec<f64> = (1..=n).map(|i| i as f64).collect();
        let c = b.constant(Literal::new(&shape, &weights))?;
        let p = b.mul(y, c)?;
        b.sum_all(p)
    });
    crate::check::run(&tensorloom_transform::grad(&g, &[0]).unwrap(), std::slice::from_ref(x))[0].to_vec()
}

#[test]
fn ties_go_where_jax_and_pytorch_send_them() {
    let x = Literal::new(&[6], &[1.0f64, 3.0, 3.0, 2.0, 2.0, 2.0]);
    let pooled = weighted_grad(&x, |b, v| b.reduce_window(Max, v, &[3], WindowConfig::unit_stride(1)));
    assert_eq!(pooled, [0.0, 3.0, 3.0, 4.0, 0.0, 0.0]);
    // As in torch.cummax and torch.cummin, the gradient goes to the later of equal elements.
    let running = weighted_grad(&x, |b, v| b.cumulative(Max, v, 0, false));
    assert_eq!(running, [1.0, 2.0, 18.0, 0.0, 0.0, 0.0]);
    let running = weighted_grad(&x, |b, v| b.cumulative(Min, v, 0, true));
    assert_eq!(running, [1.0, 0.0, 0.0, 9.0, 5.0, 6.0]);
}

#[test]
fn zeros_do_not_hide_the_slope_of_products() {
    let x = Literal::new(&[4], &[2.0f64, 0.0, 3.0, 0.0]);
    let running = weighted_grad(&x, |b, v| b.cumulative(Prod, v, 0, false));
    assert_eq!(running, [1.0, 22.0, 0.0, 0.0]);
    let pooled = weighted_grad(&x, |b, v| b.reduce_window(Prod, v, &[2], WindowConfig::unit_stride(1)));
    assert_eq!(pooled, [0.0, 8.0, 0.0, 9.0]);
}

#[test]
fn running_reductions_give_numpys_values_and_keep_every_law() {
    let x = Literal::new(&[2, 3], &[2.0f64, -1.0, 3.0, 4.0, 0.5, -2.0]);
    let rows: [(ReduceKind, usize, bool, [f64; 6]); 6] = [
        (Sum, 1, false, [2.0, 1.0, 4.0, 4.0, 4.5, 2.5]),
        (Sum, 1, true, [4.0, 2.0, 3.0, 2.5, -1.5, -2.0]),
        (Prod, 0, false, [2.0, -1.0, 3.0, 8.0, -0.5, -6.0]),
        (Prod, 1, true, [-6.0, -3.0, 3.0, -4.0, -1.0, -2.0]),
        (Max, 1, false, [2.0, 2.0, 3.0, 4.0, 4.0, 4.0]),
        (Min, 1, true, [-1.0, -1.0, 3.0, -2.0, -2.0, -2.0]),
    ];
    for (kind, axis, reverse, expected) in rows {
        let y = value(std::slice::from_ref(&x), |b, v| b.cumulative(kind, v[0], axis, reverse));
        close(&format!("{kind:?}"), &y, &Literal::new(&[2, 3], &expected), 0.0);
    }
    for kind in KINDS {
        for reverse in [false, true] {
            for (shape, axis) in [(&[3, 4][..], 1), (&[3, 2, 2], 0), (&[3], 0), (&[2, 0], 1), (&[0, 2], 1)] {
                let what = format!("{kind:?} {shape:?} {axis} {reverse}");
                check(&what, &[random(shape, 6)], |b, v| b.cumulative(kind, v[0], axis, reverse));
            }
        }
    }
    let nan = Literal::new(&[3], &[1.0f64, f64::NAN, 2.0]);
    let running = value(std::slice::from_ref(&nan), |b, v| b.cumulative(Max, v[0], 0, false)).to_vec::<f64>();
    assert!(running[0] == 1.0 && running[1].is_nan() && running[2].is_nan());
    assert_eq!(weighted_grad(&nan, |b, v| b.cumulative(Max, v, 0, false)), [1.0, 5.0, 0.0]);
}

#[test]
fn extrema_are_found_where_numpy_finds_them() {
    let x = Literal::new(&[2, 4], &[3.0f64, 7.0, 7.0, 3.0, 1.0, f64::NAN, 9.0, f64::NAN]);
    for (max, expected) in [(true, [1i64, 1]), (false, [0, 1])] {
        let y = check("arg", std::slice::from_ref(&x), |b, v| match max {
            true => b.argmax(v[0], 1, DType::I64),
            false => b.argmin(v[0], 1, DType::I64),
        });
        assert_eq!(y[0].to_vec::<i64>(), expected);
    }
    let y = check("first axis", &[Literal::new(&[2, 2], &[5u8, 1, 5, 200])], |b, v| b.argmax(v[0], 0, DType::I32));
    assert_eq!(y[0].to_vec::<i32>(), [0, 1]);
    check("no rows", &[random(&[0, 3], 1)], |b, v| b.argmin(v[0], 1, DType::I32));
    let mut b = ir::Builder::new();
    let x = b.input(DType::F32, &[3, 0]);
    assert!(b.argmax(x, 1, DType::I32).is_err());
    assert!(b.argmax(x, 0, DType::F32).is_err());
}
