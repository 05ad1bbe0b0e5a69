//! Sorting and transforms of Fourier: values from JAX, derivatives from finite differences, batches from a loop.

mod checks;

use checks::*;
use ir::ops::{PutAlong, Sort, TakeAlong, TopK};
use ir::{Build, Builder, DType, Graph, Literal, Op, Type};

/// One op over operands like these.
fn op(op: impl Into<Op>, like: &[&Literal]) -> Graph {
    graph(like, |b, x| Ok(b.emit(op.into(), x)?.to_vec()))
}

fn sort(axis: usize, num_keys: usize, descending: bool) -> Sort {
    Sort {
        axis,
        num_keys,
        descending,
    }
}

/// Operands that must be refused, and none of them panics.
fn refused(op: impl Into<Op>, like: &[&Literal]) -> bool {
    let types: Vec<Type> = like.iter().map(|l| l.ty().clone()).collect();
    op.into().infer(&types).is_err()
}

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn table() -> Literal {
    floats(&[2, 6], &[3., 1., NAN, -0., 0., 1., 2., 2., -1., INF, -INF, 2.])
}

#[test]
fn sort_orders_as_jax_does() {
    let x = table();
    let i = ints(&[2, 6], &[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]);
    let key = ints(&[2, 6], &[1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1]);
    gives(
        &op(sort(1, 1, false), &[&x, &i]),
        &[x.clone(), i.clone()],
        &[
            floats(&[2, 6], &[-0., 0., 1., 1., 3., NAN, -INF, -1., 2., 2., 2., INF]),
            ints(&[2, 6], &[3, 4, 1, 5, 0, 2, 4, 2, 0, 1, 5, 3]),
        ],
    );
    gives(
        &op(sort(1, 1, true), &[&x, &i]),
        &[x.clone(), i.clone()],
        &[
            floats(&[2, 6], &[NAN, 3., 1., 1., 0., -0., INF, 2., 2., 2., -1., -INF]),
            ints(&[2, 6], &[2, 0, 1, 5, 3, 4, 3, 0, 1, 5, 2, 4]),
        ],
    );
    gives(
        &op(sort(1, 2, false), &[&key, &x, &i]),
        &[key, x.clone(), i],
        &[
            ints(&[2, 6], &[0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]),
            floats(&[2, 6], &[1., 1., NAN, -0., 0., 3., -INF, -1., 2., 2., 2., INF]),
            ints(&[2, 6], &[1, 5, 2, 3, 4, 0, 4, 2, 1, 0, 5, 3]),
        ],
    );
    gives(
        &op(sort(0, 1, false), &[&x]),
        &[x],
        &[floats(&[2, 6], &[2., 1., -1., -0., -INF, 1., 3., 2., NAN, INF, 0., 2.])],
    );
    let order = graph(&[&table()], |b, x| Ok(vec![sort(1, 1, true).permutation(b, x)?]));
    gives(
        &order,
        &[table()],
        &[ints(&[2, 6], &[2, 0, 1, 5, 3, 4, 3, 0, 1, 5, 2, 4])],
    );
}

#[test]
fn top_k_takes_the_first_of_equals() {
    gives(
        &op(TopK { k: 4, axis: 1 }, &[&table()]),
        &[table()],
        &[
            floats(&[2, 4], &[NAN, 3., 1., 1., INF, 2., 2., 2.]),
            ints(&[2, 4], &[2, 0, 1, 5, 3, 0, 1, 5]),
        ],
    );
    let columns = floats(&[3, 2], &[1., 5., 3., 4., 2., 6.]);
    gives(
        &op(TopK { k: 2, axis: 0 }, &[&columns]),
        &[columns],
        &[floats(&[2, 2], &[3., 6., 2., 5.]), ints(&[2, 2], &[1, 2, 2, 0])],
    );
}

#[test]
fn places_outside_the_axis_read_zero_and_drop() {
    let x = floats(&[3], &[1., 2., 3.]);
    let i = ints(&[4], &[2, -1, 3, 2]);
    gives(
        &op(TakeAlong { axis: 0 }, &[&x, &i]),
        &[x, i.clone()],
        &[floats(&[4], &[3., 0., 0., 3.])],
    );
    let u = floats(&[4], &[1., 2., 4., 8.]);
    gives(
        &op(PutAlong { axis: 0, size: 3 }, &[&u, &i]),
        &[u, i],
        &[floats(&[3], &[0., 0., 9.])],
    );
}

#[test]
fn sorting_is_differentiable_and_batches() {
    let (x, y) = (random(&[2, 4], 1), random(&[2, 4], 2));
    let i = ints(&[2, 3], &[3, 0, 0, 1, 7, 2]);
    let u = random(&[2, 3], 3);
    let rows: Vec<(Graph, Vec<Literal>, Vec<usize>)> = vec![
        (op(sort(1, 1, false), &[&x, &y]), vec![x.clone(), y.clone()], vec![0, 1]),
        (op(sort(0, 1, true), &[&x, &y]), vec![x.clone(), y.clone()], vec![1]),
        (op(sort(1, 2, true), &[&x, &y]), vec![x.clone(), y.clone()], vec![0]),
        (op(TopK { k: 2, axis: 1 }, &[&x]), vec![x.clone()], vec![0]),
        (op(TopK { k: 0, axis: 0 }, &[&x]), vec![x.clone()], vec![0]),
        (op(TakeAlong { axis: 1 }, &[&x, &i]), vec![x, i.clone()], vec![0]),
        (op(PutAlong { axis: 1, size: 4 }, &[&u, &i]), vec![u, i], vec![0]),
    ];
    for (g, x, wrt) in rows {
        check_grads(&g, &x, &wrt, 1e-8);
        let other = |k: u64| -> Vec<Literal> {
            x.iter()
                .map(|l| match l.ty().dtype {
                    F => random(&l.ty().shape, 40 + k),
                    _ => ints(&[2, 3], &[0, 1, 2, 3, k as i32, -1]),
                })
                .collect()
        };
        check_vmap(&g, &[x.clone(), other(1), other(2)]);
    }
}

#[test]
fn sorting_takes_empty_axes_and_every_dtype() {
    for shape in [&[0usize, 3][..], &[3, 0], &[0]] {
        let x = random(shape, 1);
        assert_eq!(
            run(&op(sort(0, 1, false), &[&x]), std::slice::from_ref(&x))[0].ty(),
            x.ty()
        );
        assert_eq!(run(&op(TopK { k: 0, axis: 0 }, &[&x]), &[x])[0].ty().shape[0], 0);
    }
    for dtype in DType::ALL {
        let x = Literal::from_fn(Type::new(dtype, &[4]), |i| ir::Scalar::from_i64(dtype, [1, 0, 2, 1][i]));
        let got = run(&op(sort(0, 1, false), &[&x]), &[x])[0].to_vec::<f64>();
        assert!(got.windows(2).all(|w| w[0] <= w[1]), "{dtype} {got:?}");
    }
}

#[test]
fn bad_sorts_are_problems() {
    let (x, i, s) = (random(&[2, 3], 1), ints(&[2, 3], &[0; 6]), random(&[], 1));
    assert!(refused(sort(0, 1, false), &[]));
    assert!(refused(sort(2, 1, false), &[&x]));
    assert!(refused(sort(0, 0, false), &[&x]));
    assert!(refused(sort(0, 2, false), &[&x]));
    assert!(refused(sort(0, 1, false), &[&x, &s]));
    assert!(refused(sort(0, 1, false), &[&s]));
    assert!(refused(TopK { k: 4, axis: 1 }, &[&x]));
    assert!(refused(TopK { k: 1, axis: 0 }, &[&s]));
    assert!(refused(TakeAlong { axis: 0 }, &[&x, &x]));
    assert!(refused(TakeAlong { axis: 0 }, &[&x, &ints(&[2, 4], &[0; 8])]));
    assert!(refused(TakeAlong { axis: 2 }, &[&x, &i]));
    assert!(refused(
        PutAlong {
            axis: 0,
            size: usize::MAX
        },
        &[&x, &i]
    ));
    assert!(refused(PutAlong { axis: 0, size: 1 }, &[&x, &ints(&[1, 3], &[0; 3])]));
    let mut b = Builder::new();
    assert!(sort(0, 1, false).permutation(&mut b, &[]).is_err());
}
