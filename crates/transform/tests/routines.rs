//! Sorting and Fourier transforms: values from JAX, derivatives against finite differences, batches against a loop.

mod checks;

use checks::*;
use ir::ops::{Fft, FftKind, PutAlong, Sort, TakeAlong, TopK};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Type};

/// A graph of one op over operands of these types.
fn op(op: impl Into<Op>, like: &[&Literal]) -> Graph {
    graph(like, |b, x| Ok(b.emit(op.into(), x)?.to_vec()))
}

fn sort(axis: usize, num_keys: usize, descending: bool) -> Sort {
    Sort { axis, num_keys, descending }
}

/// Whether an op returns an error for these operands, without a panic.
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
    gives(&order, &[table()], &[ints(&[2, 6], &[2, 0, 1, 5, 3, 4, 3, 0, 1, 5, 2, 4])]);
}

#[test]
fn top_k_takes_the_first_of_equals() {
    gives(
        &op(TopK { k: 4, axis: 1 }, &[&table()]),
        &[table()],
        &[floats(&[2, 4], &[NAN, 3., 1., 1., INF, 2., 2., 2.]), ints(&[2, 4], &[2, 0, 1, 5, 3, 0, 1, 5])],
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
    gives(&op(TakeAlong { axis: 0 }, &[&x, &i]), &[x, i.clone()], &[floats(&[4], &[3., 0., 0., 3.])]);
    let u = floats(&[4], &[1., 2., 4., 8.]);
    gives(&op(PutAlong { axis: 0, size: 3 }, &[&u, &i]), &[u, i], &[floats(&[3], &[0., 0., 9.])]);
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
        assert_eq!(run(&op(sort(0, 1, false), &[&x]), std::slice::from_ref(&x))[0].ty(), x.ty());
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
    assert!(refused(PutAlong { axis: 0, size: usize::MAX }, &[&x, &i]));
    assert!(refused(PutAlong { axis: 0, size: 1 }, &[&x, &ints(&[1, 3], &[0; 3])]));
    let mut b = Builder::new();
    assert!(sort(0, 1, false).permutation(&mut b, &[]).is_err());
}

fn fft(kind: FftKind, axes: &[usize]) -> Fft {
    Fft { kind, axes: axes.iter().copied().collect() }
}

#[test]
fn transforms_equal_numpys() {
    let re = floats(&[5], &[1., 2., -1., 0.5, 3.]);
    let im = floats(&[5], &[0., -1., 2., 1., 0.25]);
    let half = [floats(&[4], &[1., -1., 2., 3.]), floats(&[4], &[2., 0.5, -1., 4.])];
    let m = floats(&[2, 3], &[1., 2., 3., -1., 0.5, 4.]);
    let pair = [floats(&[2, 2], &[1., 2., 0., 3.]), floats(&[2, 2], &[1., -1., 0.5, 2.])];
    let real = |length| FftKind::InverseReal { length };
    let rows: Vec<(Fft, Vec<Literal>, Vec<Literal>)> = vec![
        (
            fft(FftKind::Forward, &[0]),
            vec![re.clone(), im.clone()],
            vec![
                floats(&[5], &[5.5, 2.3485580759857423, -4.885381550722956, -1.513805387401466, 3.5506288621386797]),
                floats(&[5], &[2.25, -0.8260793341721899, 0.6950142067557958, 2.3726132510563103, -4.491548123639916]),
            ],
        ),
        (
            fft(FftKind::Inverse, &[0]),
            vec![re.clone(), im],
            vec![
                floats(&[5], &[1.1, 0.710125772427736, -0.30276107748029324, -0.9770763101445912, 0.4697116151971485]),
                floats(
                    &[5],
                    &[0.45, -0.8983096247279833, 0.47452265021126205, 0.13900284135115917, -0.165215866834438],
                ),
            ],
        ),
        (
            fft(FftKind::Real, &[0]),
            vec![re],
            vec![
                floats(&[3], &[5.5, 2.949593469062211, -3.199593469062211]),
                floats(&[3], &[0.0, 1.8327343947338632, -0.8387995221502571]),
            ],
        ),
        (
            fft(real(6), &[0]),
            half.to_vec(),
            vec![floats(
                &[6],
                &[
                    1.0,
                    -0.6889957660359269,
                    0.06698729810778066,
                    0.6666666666666665,
                    0.9330127018922193,
                    -0.9776709006307396,
                ],
            )],
        ),
        (
            fft(real(7), &[0]),
            half.to_vec(),
            vec![floats(
                &[7],
                &[
                    1.2857142857142856,
                    -1.2637031597145836,
                    0.8562945252546645,
                    -0.833742666000903,
                    1.965391620144299,
                    -0.4042644659817064,
                    -0.6056901394160559,
                ],
            )],
        ),
        (
            fft(FftKind::Real, &[0, 1]),
            vec![m.clone()],
            vec![
                floats(&[2, 2], &[9.5, -4.75, 2.5, 1.75]),
                floats(&[2, 2], &[0.0, 3.897114317029974, 0.0, -2.1650635094610964]),
            ],
        ),
        (
            fft(FftKind::Real, &[1, 0]),
            vec![m],
            vec![
                floats(&[2, 3], &[9.5, -4.75, -4.75, 2.5, 1.75, 1.75]),
                floats(
                    &[2, 3],
                    &[0.0, 3.8971143170299736, -3.8971143170299736, 0.0, -2.1650635094610964, 2.1650635094610964],
                ),
            ],
        ),
        (
            fft(real(3), &[0, 1]),
            pair.to_vec(),
            vec![floats(
                &[2, 3],
                &[
                    1.8333333333333333,
                    -0.9553418012614794,
                    -0.37799153207185376,
                    -0.16666666666666666,
                    1.1993587371177719,
                    -0.5326920704511053,
                ],
            )],
        ),
    ];
    for (o, x, expected) in rows {
        gives(&op(o, &x.iter().collect::<Vec<_>>()), &x, &expected);
    }
}

#[test]
fn transforms_are_linear_and_batch() {
    let (a, b) = (random(&[3, 4], 1), random(&[3, 4], 2));
    let real = |length| FftKind::InverseReal { length };
    let pair = [&a, &b];
    let rows: Vec<(Graph, Vec<Literal>)> = vec![
        (op(fft(FftKind::Forward, &[1]), &pair), vec![a.clone(), b.clone()]),
        (op(fft(FftKind::Inverse, &[1, 0]), &pair), vec![a.clone(), b.clone()]),
        (op(fft(FftKind::Forward, &[]), &pair), vec![a.clone(), b.clone()]),
        (op(fft(FftKind::Real, &[1]), &pair[..1]), vec![a.clone()]),
        (op(fft(FftKind::Real, &[1, 0]), &pair[..1]), vec![a.clone()]),
        (op(fft(real(6), &[0, 1]), &pair), vec![a.clone(), b.clone()]),
        (op(fft(real(7), &[1]), &pair), vec![a.clone(), b.clone()]),
        (op(fft(real(5), &[1, 0]), &pair), vec![a.clone(), b.clone()]),
    ];
    for (g, x) in rows {
        let all: Vec<usize> = (0..x.len()).collect();
        check_grads(&g, &x, &all, 1e-7);
        check_grads(&g, &x, &[0], 1e-7);
        let other = |k: u64| -> Vec<Literal> { (0..x.len()).map(|i| random(&[3, 4], 20 * k + i as u64)).collect() };
        check_vmap(&g, &[x.clone(), other(1), other(2)]);
    }
}

#[test]
fn bad_transforms_are_problems() {
    let (x, i, empty) = (random(&[3, 4], 1), ints(&[2], &[0; 2]), random(&[2, 0], 1));
    let real = |length| FftKind::InverseReal { length };
    assert!(refused(fft(FftKind::Forward, &[0]), &[&x]));
    assert!(refused(fft(FftKind::Forward, &[2]), &[&x, &x]));
    assert!(refused(fft(FftKind::Forward, &[0, 0]), &[&x, &x]));
    assert!(refused(fft(FftKind::Forward, &[0]), &[&x, &empty]));
    assert!(refused(fft(FftKind::Forward, &[0]), &[&i, &i]));
    assert!(refused(fft(FftKind::Real, &[]), &[&x]));
    assert!(refused(fft(FftKind::Real, &[1]), &[&empty]));
    assert!(refused(fft(real(8), &[1]), &[&x, &x]));
    assert!(refused(fft(real(0), &[1]), &[&x, &x]));
    assert!(refused(fft(real(usize::MAX), &[1]), &[&x, &x]));
    let g = op(fft(FftKind::Forward, &[1, 0]), &[&empty, &empty]);
    assert_eq!(run(&g, &[empty.clone(), empty])[0].ty().shape.as_slice(), [2, 0]);
}
