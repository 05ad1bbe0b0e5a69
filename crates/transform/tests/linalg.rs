//! Factorizations: values from NumPy and JAX, derivatives against finite differences, batches against a loop.

mod checks;

use checks::*;
use ir::ops::{Cholesky, Eigh, Lu, Qr, Svd, TriangularSolve};
use ir::{DType, Graph, GraphBuilder, Literal, Op, Scalar, Type};

fn op(op: impl Into<Op>, like: &[&Literal]) -> Graph {
    graph(like, |b, x| Ok(b.emit(op.into(), x)?.to_vec()))
}

/// The op on `(x·xᵀ + xᵀ·x)/2 + I`: symmetric, and positive definite for these sizes.
fn of_definite(op: impl Into<Op>, x: &Literal) -> Graph {
    let n = x.ty().shape[0];
    graph(&[x], |b, v| {
        let t = b.permute(v[0], &[1, 0])?;
        let (p, q) = (b.matmul(v[0], t)?, b.matmul(t, v[0])?);
        let sum = b.add(p, q)?;
        let half = b.scale(sum, 0.5)?;
        let one = b.constant(Literal::from_fn(Type::new(F, &[n, n]), |i| {
            Scalar::from_f64(F, (i % (n + 1) == 0) as u8 as f64)
        }))?;
        let s = b.add(half, one)?;
        Ok(b.emit(op.into(), &[s])?.to_vec())
    })
}

const A: [f64; 9] = [4., 1., -2., 2., 5., 0.5, -1., 3., 6.];
const S: [f64; 9] = [21., 12., -13., 12., 29.25, 16., -13., 16., 46.];
const TALL: [f64; 6] = [4., 1., 2., 5., -1., 3.];

/// Checks equality up to the sign of each vector along an axis of the other's length.
#[track_caller]
fn close_up_to_sign(a: &Literal, shape: &[usize; 2], b: &[f64], rows: bool) {
    let (x, n) = (a.to_vec::<f64>(), shape[1]);
    assert_eq!(a.ty().shape.as_slice(), shape);
    let vectors = if rows { shape[0] } else { shape[1] };
    for k in 0..vectors {
        let mine = (0..x.len()).filter(|i| if rows { i / n == k } else { i % n == k });
        let dot: f64 = mine.clone().map(|i| x[i] * b[i]).sum();
        for i in mine {
            assert!((x[i] * dot.signum() - b[i]).abs() < 1e-10, "{} {}", x[i], b[i]);
        }
    }
}

#[test]
fn cholesky_equals_numpys_and_gives_nan_where_there_is_none() {
    let l = [
        4.58257569495584,
        0.0,
        0.0,
        2.618614682831909,
        4.732109164300539,
        0.0,
        -2.836832573067901,
        4.950978647178873,
        3.6660866584901957,
    ];
    let mut upper_ignored = S;
    upper_ignored[1] = 99.0;
    let x = floats(&[3, 3], &upper_ignored);
    gives(&op(Cholesky, &[&x]), &[x], &[floats(&[3, 3], &l)]);
    let nan = f64::NAN;
    let two = floats(&[2, 2, 2], &[1., 0., 2., 1., 4., 0., 2., 2.]);
    let expected = floats(&[2, 2, 2], &[nan, 0., nan, nan, 2., 0., 1., 1.]);
    gives(&op(Cholesky, &[&two]), &[two], &[expected]);
}

#[test]
fn lu_equals_jaxs() {
    let (first, second) = (ints(&[2], &[0, 1]), ints(&[3], &[0, 1, 2]));
    let rows = [
        (
            floats(&[3, 3], &[2., 5., 0.5, -1., 3., 6., 4., 1., -2.]),
            vec![4., 1., -2., 0.5, 4.5, 1.5, -0.25, 0.7222222222222222, 4.416666666666667],
            ints(&[3], &[2, 2, 2]),
            ints(&[3], &[2, 0, 1]),
        ),
        (floats(&[3, 2], &TALL), vec![4., 1., 0.5, 4.5, -0.25, 0.7222222222222222], first.clone(), second),
        (floats(&[2, 3], &A[..6]), vec![4., 1., -2., 0.5, 4.5, 1.5], first.clone(), first),
    ];
    for (x, packed, pivots, permutation) in rows {
        let packed = floats(&x.ty().shape, &packed);
        gives(&op(Lu, &[&x]), &[x], &[packed, pivots, permutation]);
    }
}

#[test]
fn qr_equals_numpys() {
    let full = [
        -0.8728715609439694,
        0.20255081877505032,
        0.443923871749194,
        -0.4364357804719848,
        -0.7309442590577905,
        -0.5246373029763202,
        0.2182178902359924,
        -0.6516852430153797,
        0.7264208810441354,
    ];
    let thin: Vec<f64> = full.iter().enumerate().filter(|(i, _)| i % 3 < 2).map(|(_, x)| *x).collect();
    let r = [-4.58257569495584, -2.400396792595916, 0.0, -5.407226205560041, 0.0, 0.0];
    let x = floats(&[3, 2], &TALL);
    let expected = [floats(&[3, 3], &full), floats(&[3, 2], &r)];
    gives(&op(Qr { full: true }, &[&x]), std::slice::from_ref(&x), &expected);
    let expected = [floats(&[3, 2], &thin), floats(&[2, 2], &r[..4])];
    gives(&op(Qr { full: false }, &[&x]), &[x], &expected);
    let wide = floats(&[2, 3], &A[..6]);
    let (c, s) = (-0.8944271909999157, -0.4472135954999579);
    let r = [-4.47213595499958, -3.1304951684997055, 1.5652475842498523, 0.0, 4.024922359499621, 1.3416407864998736];
    gives(&op(Qr { full: false }, &[&wide]), &[wide], &[floats(&[2, 2], &[c, s, s, -c]), floats(&[2, 3], &r)]);
}

#[test]
fn eigh_and_svd_equal_numpys_up_to_signs() {
    let s = floats(&[3, 3], &S);
    let got = run(&op(Eigh, &[&s]), &[s]);
    close(&got[0], &floats(&[3], &[3.0495301999958944, 36.64787135940089, 56.55259844060322]), 1e-12);
    let v = [
        0.6954120229919546,
        0.6973146424850275,
        -0.17365024518904532,
        -0.5786862590962915,
        0.6866779849286957,
        0.43999495286583257,
        0.42605672370164216,
        -0.20548876949907596,
        0.8810505285160315,
    ];
    close_up_to_sign(&got[1], &[3, 3], &v, false);

    let tall = floats(&[3, 2], &TALL);
    let got = run(&op(Svd { vectors: true }, &[&tall]), &[tall]);
    let u = [
        -0.4373070395820973,
        0.7821087834969935,
        -0.8344279102038726,
        -0.1687772585348238,
        -0.3353991887359598,
        -0.5998500544122024,
    ];
    close_up_to_sign(&got[0], &[3, 2], &u, false);
    close(&got[1], &floats(&[2], &[6.406122447347171, 3.8680221288915475]), 1e-12);
    let (c, s) = (-0.481209158166613, -0.8766058099833582);
    close_up_to_sign(&got[2], &[2, 2], &[c, s, -s, c], true);

    let wide = floats(&[2, 3], &A[..6]);
    let got = run(&op(Svd { vectors: false }, &[&wide]), &[wide]);
    close(&got[0], &floats(&[2], &[6.1493246163108415, 3.5264439260015927]), 1e-12);
}

/// `U·diag(s)·Vᵀ` and similar products reconstruct the matrix, also if it is singular, and the factors are orthogonal.
#[test]
fn factors_of_singular_matrices_are_orthogonal_and_multiply_back() {
    for (m, n) in [(3, 3), (4, 2), (2, 4), (1, 3), (3, 1)] {
        for rank in [0usize, 1] {
            let x = Literal::from_fn(Type::new(F, &[m, n]), |i| {
                Scalar::from_f64(F, rank as f64 * (1.0 + (i / n) as f64) * (0.5 + (i % n) as f64))
            });
            let g = graph(&[&x], |b, v| {
                let q = b.emit(Qr { full: true }.into(), v)?;
                let q_back = b.matmul(q[0], q[1])?;
                let d = b.emit(Svd { vectors: true }.into(), v)?;
                let k = m.min(n);
                let s = b.broadcast(d[1], &[m, k], &[1])?;
                let us = b.mul(d[0], s)?;
                let back = b.matmul(us, d[2])?;
                let (ut, v) = (b.permute(d[0], &[1, 0])?, b.permute(d[2], &[1, 0])?);
                let (uu, vv) = (b.matmul(ut, d[0])?, b.matmul(d[2], v)?);
                Ok(vec![back, uu, vv, q_back])
            });
            let got = run(&g, std::slice::from_ref(&x));
            close(&got[0], &x, 1e-12);
            close(&got[3], &x, 1e-12);
            let k = m.min(n);
            let one = Literal::from_fn(Type::new(F, &[k, k]), |i| Scalar::from_f64(F, (i % (k + 1) == 0) as u8 as f64));
            close(&got[1], &one, 1e-12);
            close(&got[2], &one, 1e-12);
        }
    }
}

#[test]
fn factorisations_are_differentiable_twice() {
    let (x, tall, wide) = (random(&[3, 3], 3), random(&[4, 2], 5), random(&[2, 4], 7));
    let rows: Vec<(Graph, &Literal, f64)> = vec![
        (of_definite(Cholesky, &x), &x, 1e-7),
        (of_definite(Eigh, &x), &x, 1e-6),
        (op(Lu, &[&x]), &x, 1e-6),
        (op(Lu, &[&tall]), &tall, 1e-6),
        (op(Lu, &[&wide]), &wide, 1e-6),
        (op(Qr { full: false }, &[&x]), &x, 1e-6),
        (op(Qr { full: false }, &[&tall]), &tall, 1e-6),
        (op(Qr { full: true }, &[&tall]), &tall, 1e-6),
        (op(Qr { full: true }, &[&wide]), &wide, 1e-6),
        (op(Svd { vectors: true }, &[&x]), &x, 1e-6),
        (op(Svd { vectors: true }, &[&tall]), &tall, 1e-6),
        (op(Svd { vectors: true }, &[&wide]), &wide, 1e-6),
        (op(Svd { vectors: false }, &[&wide]), &wide, 1e-6),
    ];
    for (g, x, tol) in rows {
        check_grads(&g, std::slice::from_ref(x), &[0], tol);
    }
}

fn solves() -> impl Iterator<Item = TriangularSolve> {
    (0..16).map(|k| TriangularSolve { left: k & 1 != 0, lower: k & 2 != 0, transpose: k & 4 != 0, unit: k & 8 != 0 })
}

/// A well-conditioned triangular matrix whose other triangle is noise.
fn triangular(seed: u64) -> Literal {
    let noise = random(&[3, 3], seed).to_vec::<f64>();
    Literal::from_fn(Type::new(F, &[3, 3]), |i| Scalar::from_f64(F, noise[i] + if i % 4 == 0 { 2.0 } else { 0.0 }))
}

#[test]
fn triangular_solve_solves_and_is_differentiable() {
    for solve in solves() {
        let a = triangular(3);
        let b = random(if solve.left { &[3, 2] } else { &[2, 3] }, 4);
        let g = op(solve, &[&a, &b]);
        let x = run(&g, &[a.clone(), b.clone()]).remove(0);
        // Multiply with the triangle that is read.
        let full = a.to_vec::<f64>();
        let read = Literal::from_fn(a.ty().clone(), |i| {
            let (r, c) = if solve.transpose { (i % 3, i / 3) } else { (i / 3, i % 3) };
            let inside = if solve.lower { r > c } else { r < c };
            Scalar::from_f64(
                F,
                match r == c {
                    true if solve.unit => 1.0,
                    true => full[r * 3 + c],
                    false if inside => full[r * 3 + c],
                    false => 0.0,
                },
            )
        });
        let order = if solve.left { [read, x] } else { [x, read] };
        let product = graph(&[&order[0], &order[1]], |b, v| Ok(vec![b.matmul(v[0], v[1])?]));
        close(&run(&product, &order)[0], &b, 1e-12);
        check_grads(&g, &[a, b], &[0, 1], 1e-6);
    }
}

#[test]
fn batches_are_leading_axes() {
    let (x, tall) = (random(&[3, 3], 3), random(&[4, 2], 5));
    let seeds = [11, 12, 13];
    let rows = |shape: &[usize]| -> Vec<Vec<Literal>> { seeds.iter().map(|&s| vec![random(shape, s)]).collect() };
    for g in [of_definite(Cholesky, &x), of_definite(Eigh, &x), op(Lu, &[&x]), op(Svd { vectors: true }, &[&x])] {
        check_vmap(&g, &rows(&[3, 3]));
        check_vmap(&tensorloom_transform::grad(&loss(&g), &[0]).unwrap(), &rows(&[3, 3]));
    }
    for g in [op(Qr { full: false }, &[&tall]), op(Qr { full: true }, &[&tall]), op(Svd { vectors: false }, &[&tall])] {
        check_vmap(&g, &rows(&[4, 2]));
        check_vmap(&tensorloom_transform::grad(&loss(&g), &[0]).unwrap(), &rows(&[4, 2]));
    }
    for solve in solves().take(4) {
        let shape: &[usize] = if solve.left { &[3, 2] } else { &[2, 3] };
        let rows: Vec<Vec<Literal>> = seeds.iter().map(|&s| vec![triangular(s), random(shape, s + 9)]).collect();
        let g = op(solve, &[&rows[0][0], &rows[0][1]]);
        check_vmap(&g, &rows);
        check_vmap(&tensorloom_transform::grad(&loss(&g), &[0, 1]).unwrap(), &rows);
    }
}

#[test]
fn empty_matrices_and_bad_operands() {
    let ops: [Op; 6] = [
        Cholesky.into(),
        Eigh.into(),
        Lu.into(),
        Qr { full: true }.into(),
        Svd { vectors: true }.into(),
        Svd { vectors: false }.into(),
    ];
    for o in ops {
        for shape in [&[0usize, 0][..], &[2, 0, 0], &[0, 2, 2]] {
            let x = random(shape, 1);
            let g = op(o.clone(), &[&x]);
            assert_eq!(run(&g, std::slice::from_ref(&x)).len(), g.outputs().len());
            let back = tensorloom_transform::grad(&loss(&g), &[0]).unwrap();
            assert_eq!(run(&back, std::slice::from_ref(&x))[0].ty(), x.ty(), "{}", o.name());
        }
        for bad in
            [Type::new(F, &[3]), Type::new(F, &[]), Type::new(DType::I32, &[2, 2]), Type::new(DType::BF16, &[2, 2])]
        {
            assert!(o.infer(std::slice::from_ref(&bad)).is_err(), "{} of {bad}", o.name());
        }
        assert!(o.infer(&[]).is_err());
    }
    for o in [Op::from(Qr { full: false }), Svd { vectors: true }.into(), Lu.into()] {
        for shape in [&[0usize, 2][..], &[2, 0]] {
            let x = random(shape, 1);
            run(&op(o.clone(), &[&x]), &[x]);
        }
    }
    let square = Type::new(F, &[3, 3]);
    for solve in solves() {
        let o = Op::from(solve);
        let fits = Type::new(F, if solve.left { &[3, 0] } else { &[0, 3] });
        assert!(o.infer(&[square.clone(), fits]).is_ok());
        for bad in [Type::new(F, &[2, 2]), Type::new(F, &[1, 3, 3]), Type::new(DType::F32, &[3, 3])] {
            assert!(o.infer(&[square.clone(), bad]).is_err());
        }
    }
}

/// Singular values and their tangents need only one factorization.
#[test]
fn singular_values_and_their_tangents_are_one_factorisation() {
    let draw = |from: usize| {
        Literal::from_fn(Type::new(DType::F64, &[2, 4, 3]), |i| {
            Scalar::from_f64(DType::F64, ((7 * i + from) % 11) as f64)
        })
    };
    let values = op(Svd { vectors: false }, &[&draw(3)]);
    let (both, _) = tensorloom_transform::jvp(&values, &[true], &[true]).unwrap();
    let both = both.without_dead_nodes();
    let found = both.nodes().iter().filter(|n| matches!(n.op, Op::Svd(_))).count();
    assert_eq!(found, 1, "{both}");
    let want = ir::interp::run(&values, &[draw(3)]).unwrap();
    let got = ir::interp::run(&both, &[draw(3), draw(5)]).unwrap();
    for i in 0..want[0].ty().numel() {
        assert!((want[0].get(i).to_f64() - got[0].get(i).to_f64()).abs() < 1e-12);
    }
}
