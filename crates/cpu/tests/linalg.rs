//! Factorizations, transforms and grouped products compared with the interpreter, with the same bits for any number of threads.

mod harness;

use harness::{Random, close, run, same};
use ir::ops::*;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Scalar, Type};
use tensorloom_cpu::Cpu;

fn graph(op: Op, types: &[Type]) -> Graph {
    let mut b = Builder::new();
    let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(op, &args).unwrap();
    b.finish(&outs)
}

/// Returns the results of the CPU and of the interpreter.
fn both(op: impl Into<Op>, inputs: &[Literal]) -> (String, Vec<Literal>, Vec<Literal>) {
    let op = op.into();
    let types: Vec<Type> = inputs.iter().map(|x| x.ty().clone()).collect();
    let what = format!("{} of {types:?}", op.name());
    let graph = graph(op, &types);
    let one = run(&Cpu::new(1), &graph, inputs, true);
    for threads in [2, 3] {
        same(&what, &run(&Cpu::new(threads), &graph, inputs, true), &one);
    }
    (what, one, ir::interp::run(&graph, inputs).unwrap())
}

fn check(op: impl Into<Op>, inputs: &[Literal], tolerance: f64) {
    let (what, got, want) = both(op, inputs);
    close(&what, &got, &want, tolerance);
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-5,
        DType::F16 => 2e-3,
        _ => 2e-2,
    }
}

/// `A·Aᵀ + I` for every matrix of a batch.
fn positive(random: &mut Random, dtype: DType, batch: usize, n: usize) -> Literal {
    let x: Vec<f64> = (0..batch * n * n).map(|_| random.unit()).collect();
    Literal::from_fn(Type::new(dtype, &[batch, n, n]), |at| {
        let (b, i, j) = (at / (n * n), at / n % n, at % n);
        let row = |i: usize| &x[(b * n + i) * n..(b * n + i + 1) * n];
        let sum: f64 = row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum();
        Scalar::from_f64(dtype, sum + if i == j { 1.0 } else { 0.0 })
    })
}

#[test]
fn cholesky_lu_and_qr() {
    let mut random = Random(21);
    for dtype in [DType::F32, DType::F64] {
        for (batch, n) in [(3, 1), (2, 5), (1, 40), (0, 3), (2, 0), (40, 12)] {
            check(Cholesky, &[positive(&mut random, dtype, batch, n)], tolerance(dtype));
        }
        let indefinite =
            Literal::from_fn(Type::new(dtype, &[2, 2]), |i| Scalar::from_f64(dtype, [1.0, 0.0, 3.0, 2.0][i]));
        check(Cholesky, &[indefinite], 0.0);
        for (m, n) in [(1, 1), (5, 5), (7, 4), (4, 7), (30, 31), (0, 3), (3, 0)] {
            let a = random.literal(&Type::new(dtype, &[2, m, n]));
            check(Lu, &[a.clone()], 10.0 * tolerance(dtype));
            for full in [false, true] {
                check(Qr { full }, &[a.clone()], tolerance(dtype));
            }
        }
        check(Lu, &[Literal::zeros(Type::new(dtype, &[3, 3]))], 0.0);
        check(Qr { full: true }, &[Literal::zeros(Type::new(dtype, &[3, 2]))], 0.0);
    }
}

/// Many small matrices, some of which have no factors: row exchanges, zero columns, tiny and huge pivots, infinities and NaN.
#[test]
fn many_small_matrices() {
    let mut random = Random(23);
    for dtype in [DType::F32, DType::F64] {
        for (batch, n) in [(16, 1), (8, 2), (40, 3), (17, 5), (33, 8), (13, 11), (31, 16), (16, 33), (8, 64), (8, 65)] {
            let a = positive(&mut random, dtype, batch, n);
            check(Cholesky, &[a.clone()], tolerance(dtype));
            // One of them has a diagonal that is not positive.
            let worse = Literal::from_fn(a.ty().clone(), |i| {
                let there = i / (n * n) == batch / 2 && i % (n * n) == (n / 2) * (n + 1);
                if there { Scalar::from_f64(dtype, -1.0) } else { a.get(i) }
            });
            check(Cholesky, &[worse], tolerance(dtype));
            for (m, n) in [(n, n), (n + 3, n), (n, n + 2)] {
                let a = random.literal(&Type::new(dtype, &[batch, m, n]));
                check(Lu, &[a.clone()], 100.0 * tolerance(dtype));
                let odd = Literal::from_fn(a.ty().clone(), |i| {
                    let (matrix, col) = (i / (m * n), i % n);
                    let x = a.get(i).to_f64();
                    let x = match matrix % 6 {
                        1 if col == n / 2 => 0.0,
                        2 => x * 1e-33,
                        3 => x * 1e31,
                        4 if i % (m * n) == 0 => 0.0,
                        _ => x,
                    };
                    Scalar::from_f64(dtype, x)
                });
                check(Lu, &[odd], 100.0 * tolerance(dtype));
            }
        }
    }
}

#[test]
fn triangular_solves() {
    let mut random = Random(22);
    for dtype in [DType::F32, DType::F64] {
        for (n, other) in [(1, 1), (6, 4), (25, 9), (3, 0), (0, 2)] {
            let a = positive(&mut random, dtype, 2, n);
            for bits in 0..16 {
                let [left, lower, transpose, unit] = [1, 2, 4, 8].map(|b| bits & b != 0);
                let shape = if left { [2, n, other] } else { [2, other, n] };
                let b = random.literal(&Type::new(dtype, &shape));
                // A unit diagonal with large elements beside it would be badly conditioned, so scale them down.
                let scaled = Literal::from_fn(a.ty().clone(), |i| {
                    Scalar::from_f64(dtype, a.get(i).to_f64() * if unit { 0.02 } else { 1.0 })
                });
                check(TriangularSolve { left, lower, transpose, unit }, &[scaled, b], 20.0 * tolerance(dtype));
            }
        }
    }
}

/// Matrices that are factored in blocks, with a partial last block.
#[test]
fn large_matrices() {
    let mut random = Random(24);
    let dtype = DType::F64;
    for (batch, n) in [(1, 130), (2, 96)] {
        check(Cholesky, &[positive(&mut random, dtype, batch, n)], 1e-10);
    }
    let mut indefinite = positive(&mut random, dtype, 1, 120).scalars().collect::<Vec<_>>();
    indefinite[100 * 121] = Scalar::from_f64(dtype, -1.0);
    check(Cholesky, &[Literal::from_fn(Type::new(dtype, &[120, 120]), |i| indefinite[i])], 0.0);
    for (m, n) in [(130, 130), (150, 100), (100, 150)] {
        let a = random.literal(&Type::new(dtype, &[m, n]));
        check(Lu, &[a.clone()], 1e-9);
        for full in [false, true] {
            check(Qr { full }, &[a.clone()], 1e-10);
        }
    }
    // A zero column has no reflection and no pivot.
    let a = random.literal(&Type::new(dtype, &[120, 100]));
    let a = Literal::from_fn(a.ty().clone(), |i| if i % 100 == 40 { Scalar::from_f64(dtype, 0.0) } else { a.get(i) });
    check(Qr { full: false }, &[a.clone()], 1e-10);
    check(Lu, &[a], 1e-9);
    let n = 110;
    let a = random.literal(&Type::new(dtype, &[n, n]));
    let a = Literal::from_fn(a.ty().clone(), |i| {
        Scalar::from_f64(dtype, a.get(i).to_f64() * 0.05 + if i % (n + 1) == 0 { 2.0 } else { 0.0 })
    });
    for bits in 0..16 {
        let [left, lower, transpose, unit] = [1, 2, 4, 8].map(|b| bits & b != 0);
        let b = random.literal(&Type::new(dtype, &if left { [n, 20] } else { [20, n] }));
        check(TriangularSolve { left, lower, transpose, unit }, &[a.clone(), b], 1e-10);
    }
}

/// Returns `U·diag(s)·W`, and the deviation of `Uᵀ·U` and `W·Wᵀ` from the identity.
fn recomposed(u: &[f64], s: &[f64], w: &[f64], m: usize, n: usize) -> (Vec<f64>, f64) {
    let k = s.len();
    let a = (0..m * n).map(|at| (0..k).map(|l| u[at / n * k + l] * s[l] * w[l * n + at % n]).sum()).collect();
    let mut off = 0f64;
    for (i, j) in (0..k).flat_map(|i| (0..k).map(move |j| (i, j))) {
        let one = if i == j { 1.0 } else { 0.0 };
        let left: f64 = (0..m).map(|r| u[r * k + i] * u[r * k + j]).sum();
        let right: f64 = (0..n).map(|c| w[i * n + c] * w[j * n + c]).sum();
        off = off.max((left - one).abs()).max((right - one).abs());
    }
    (a, off)
}

#[test]
fn eigenvalues_and_singular_values() {
    let mut random = Random(23);
    for dtype in [DType::F32, DType::F64] {
        let tolerance = 10.0 * tolerance(dtype);
        for n in [1, 2, 7, 33] {
            let x = random.literal(&Type::new(dtype, &[2, n, n]));
            let (what, got, want) = both(Eigh, &[x.clone()]);
            close(&what, &got[..1], &want[..1], tolerance);
            for b in 0..2 {
                let at = |i: usize, j: usize| x.get(b * n * n + i.max(j) * n + i.min(j)).to_f64();
                let v: Vec<f64> = (0..n * n).map(|i| got[1].get(b * n * n + i).to_f64()).collect();
                let vt: Vec<f64> = (0..n * n).map(|i| v[i % n * n + i / n]).collect();
                let w: Vec<f64> = (0..n).map(|i| got[0].get(b * n + i).to_f64()).collect();
                let (a, off) = recomposed(&v, &w, &vt, n, n);
                assert!(off < tolerance, "{what}: {off}");
                (0..n * n).for_each(|i| assert!((a[i] - at(i / n, i % n)).abs() < tolerance, "{what}"));
            }
        }
        for (m, n) in [(1, 1), (6, 4), (4, 6), (20, 20), (30, 9)] {
            for rank_one in [false, true] {
                let x = random.literal(&Type::new(dtype, &[m, n]));
                let x = Literal::from_fn(x.ty().clone(), |i| if rank_one { x.get(i / n) } else { x.get(i) });
                let (what, got, want) = both(Svd { vectors: true }, &[x.clone()]);
                close(&what, &got[1..2], &want[1..2], tolerance);
                close(&what, &both(Svd { vectors: false }, &[x.clone()]).1, &want[1..2], tolerance);
                let list = |k: usize| -> Vec<f64> { got[k].scalars().map(Scalar::to_f64).collect() };
                let (a, off) = recomposed(&list(0), &list(1), &list(2), m, n);
                assert!(off < tolerance, "{what}: {off}");
                (0..m * n).for_each(|i| assert!((a[i] - x.get(i).to_f64()).abs() < tolerance, "{what}"));
            }
        }
        for op in [Op::from(Eigh), Svd { vectors: true }.into()] {
            let nan = Literal::full(&[3, 3], Scalar::from_f64(dtype, f64::NAN));
            let outs = both(op.clone(), &[nan]).1;
            assert!(outs.iter().all(|o| o.scalars().all(|x| x.to_f64().is_nan())), "{}", op.name());
            both(op, &[Literal::zeros(Type::new(dtype, &[0, 3, 3]))]);
        }
    }
}

#[test]
fn fourier() {
    let mut random = Random(24);
    for dtype in [DType::F32, DType::F64] {
        for (shape, axes) in [
            (&[8][..], &[0][..]),
            (&[3, 15], &[1]),
            (&[7, 4], &[0]),
            (&[4, 6, 10], &[0, 2]),
            (&[4, 6, 9], &[2, 1]),
            (&[5, 1], &[1]),
            (&[40, 128], &[1]),
            (&[0, 4], &[1]),
            (&[97], &[0]),
        ] {
            let axes: ir::Shape = axes.into();
            let ty = Type::new(dtype, shape);
            let (re, im) = (random.literal(&ty), random.literal(&ty));
            let tolerance = 2.0 * tolerance(dtype);
            let op = |kind| Fft { kind, axes: axes.clone() };
            check(op(FftKind::Forward), &[re.clone(), im.clone()], tolerance);
            check(op(FftKind::Inverse), &[re.clone(), im.clone()], tolerance);
            check(op(FftKind::Real), &[re], tolerance);
            let last = axes[axes.len() - 1];
            for length in [2 * shape[last].max(1) - 2, 2 * shape[last].max(1) - 1] {
                if length > 0 {
                    let half = random.literal(&ty);
                    check(op(FftKind::InverseReal { length }), &[half, im.clone()], tolerance);
                }
            }
        }
    }
}

#[test]
fn grouped_products() {
    let mut random = Random(25);
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for (batch, rows, k, n, offsets) in [
            (1, 10, 4, 5, &[0, 3, 3, 10][..]),
            (1, 200, 33, 40, &[5, 70, 71, 150]),
            (1, 700, 120, 20, &[0, 600, 700]),
            (2, 6, 3, 2, &[0, 9, 4, -3, 6]),
            (1, 0, 3, 2, &[0, 0]),
            (1, 5, 0, 2, &[0, 5]),
            (1, 5, 3, 2, &[1]),
        ] {
            let groups = offsets.len() - 1;
            let ty = |own: &[usize]| Type::new(dtype, &[&[batch], own].concat());
            let o = Literal::from_fn(Type::new(DType::I32, &[batch, groups + 1]), |i| {
                Scalar::from_i64(DType::I32, offsets[i % (groups + 1)])
            });
            let a = random.literal(&ty(&[rows, k]));
            let by_rows = RaggedDot { batch: 1, ..RaggedDot::rows(dtype) };
            check(by_rows.clone(), &[a.clone(), random.literal(&ty(&[groups, k, n])), o.clone()], tolerance(dtype));
            let contract = RaggedDot { mode: RaggedMode::Contract, ..by_rows };
            let other = random.literal(&ty(&[rows, n]));
            check(contract.clone(), &[a.clone(), other.clone(), o.clone()], tolerance(dtype));
            check(RaggedDot { out: dtype.accumulator(), ..contract }, &[a, other, o], tolerance(dtype));
        }
    }
}

/// The factors of matrices whose squared elements overflow or underflow are those of the matrix scaled to be near 1.
#[test]
fn badly_scaled_matrices_are_factored_like_others() {
    let mut random = Random(77);
    let one = |a: &Literal, op: Op| -> [Vec<Literal>; 2] {
        let (_, got, want) = both(op, std::slice::from_ref(a));
        [got, want]
    };
    let value = |l: &Literal| -> Vec<f64> { l.scalars().map(Scalar::to_f64).collect() };
    for (m, n) in [(2usize, 2usize), (5, 3), (3, 5), (20, 20), (120, 100)] {
        let data: Vec<f64> = match (m, n) {
            (2, 2) => vec![1.0, 2.0, 3.0, 4.0],
            _ => (0..m * n).map(|_| random.unit()).collect(),
        };
        for exponent in [0i32, 300, -300, 900, -900, 1020, -1000] {
            let scale = 2f64.powi(exponent.max(-1000)) * 2f64.powi(exponent.min(-1000) + 1000);
            let a = Literal::from_fn(Type::new(DType::F64, &[m, n]), |i| Scalar::from_f64(DType::F64, data[i] * scale));
            for [q, r] in one(&a, Qr { full: false }.into()).map(|x| [value(&x[0]), value(&x[1])]) {
                let k = m.min(n);
                orthogonal(&q, m, k);
                for i in 0..m {
                    for j in 0..n {
                        let back: f64 = (0..k).map(|l| q[i * k + l] * (r[l * n + j] / scale)).sum();
                        assert!((back - data[i * n + j]).abs() < 1e-12, "qr of {m}x{n} times 2^{exponent}");
                    }
                }
            }
            for [u, s, v] in one(&a, Svd { vectors: true }.into()).map(|x| [value(&x[0]), value(&x[1]), value(&x[2])]) {
                let k = m.min(n);
                orthogonal(&u, m, k);
                for i in 0..m {
                    for j in 0..n {
                        let back: f64 = (0..k).map(|l| u[i * k + l] * (s[l] / scale) * v[l * n + j]).sum();
                        assert!((back - data[i * n + j]).abs() < 1e-12, "svd of {m}x{n} times 2^{exponent}");
                    }
                }
            }
            if m == n && m <= 20 {
                let both = |i: usize| data[i / n * n + i % n] + data[i % n * n + i / n];
                let a = Literal::from_fn(Type::new(DType::F64, &[n, n]), |i| {
                    Scalar::from_f64(DType::F64, both(i) * scale / 2.0)
                });
                for [w, v] in one(&a, Eigh.into()).map(|x| [value(&x[0]), value(&x[1])]) {
                    orthogonal(&v, n, n);
                    for i in 0..n {
                        for j in 0..n {
                            let back: f64 = (0..n).map(|l| v[i * n + l] * (w[l] / scale) * v[j * n + l]).sum();
                            let want = both(i * n + j) / 2.0;
                            assert!((back - want).abs() < 1e-12, "eigh of {n} times 2^{exponent}: {back} {want}");
                        }
                    }
                }
            }
        }
    }
}

fn orthogonal(q: &[f64], m: usize, k: usize) {
    for a in 0..k {
        for b in 0..k {
            let dot: f64 = (0..m).map(|i| q[i * k + a] * q[i * k + b]).sum();
            let want = (a == b) as u8 as f64;
            assert!((dot - want).abs() < 1e-12, "columns {a} and {b}: {dot}");
        }
    }
}

/// Columns of very different magnitude: each is computed to full precision.
#[test]
fn badly_scaled_columns_have_exact_factors() {
    let scales = [1.0, 1e-200, 1e200, 1e-290];
    let data =
        [1.0, 2.0, -1.0, 0.5, 0.25, 1.0, 3.0, -2.0, 2.0, 0.5, 1.0, 1.0, -1.0, 1.0, 0.5, 2.0, 3.0, 0.5, -0.5, 1.0];
    let a = Literal::from_fn(Type::new(DType::F64, &[5, 4]), |i| Scalar::from_f64(DType::F64, data[i] * scales[i % 4]));
    let (_, got, want) = both(Qr { full: false }, &[a]);
    for result in [got, want] {
        let value = |l: &Literal| -> Vec<f64> { l.scalars().map(Scalar::to_f64).collect() };
        let (q, r) = (value(&result[0]), value(&result[1]));
        orthogonal(&q, 5, 4);
        for (i, x) in data.iter().enumerate() {
            let back: f64 = (0..4).map(|l| q[i / 4 * 4 + l] * (r[l * 4 + i % 4] / scales[i % 4])).sum();
            assert!((back - x).abs() < 1e-12, "{back} {x}");
        }
    }
}
