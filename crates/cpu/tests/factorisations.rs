//! Large factorizations reproduce their matrix, in f32 and f64, for any spectrum, with the same bits for any number of threads.

mod harness;

use harness::{Random, run, same};
use ir::ops::*;
use ir::{Builder, DType, GraphBuilder, Literal, Op, Scalar, Type};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

/// Returns the results in f64, after checking that 1, 2, 3 and 16 threads give the same bits.
fn results(op: impl Into<Op>, inputs: &[Literal]) -> Vec<Vec<f64>> {
    results_on(&Cpu::new, op, inputs)
}

/// The widest vectors of the machine, and 256-bit vectors.
fn machines() -> Vec<Box<dyn Fn(usize) -> Cpu>> {
    let mut all: Vec<Box<dyn Fn(usize) -> Cpu>> = vec![Box::new(Cpu::new)];
    if Target::available().contains(&Target::Avx2) {
        all.push(Box::new(|threads| Cpu::with_target(threads, Some(Target::Avx2))));
    }
    all
}

/// Returns the same for a given constructor of the backend.
fn results_on(cpu: &dyn Fn(usize) -> Cpu, op: impl Into<Op>, inputs: &[Literal]) -> Vec<Vec<f64>> {
    let mut b = Builder::new();
    let args: Vec<_> = inputs.iter().map(|x| b.graph.input(x.ty().clone())).collect();
    let op = op.into();
    let what = format!("{} of {:?}", op.name(), inputs[0].ty());
    let outs = b.emit(op, &args).unwrap();
    let g = b.finish(&outs);
    let one = run(&cpu(1), &g, inputs, true);
    for threads in [2, 3, 16] {
        same(&format!("{what}, {threads} threads"), &run(&cpu(threads), &g, inputs, true), &one);
    }
    one.iter().map(|l| l.scalars().map(Scalar::to_f64).collect()).collect()
}

fn literal(dtype: DType, m: usize, n: usize, f: impl Fn(usize, usize) -> f64) -> (Literal, Vec<f64>) {
    let l = Literal::from_fn(Type::new(dtype, &[m, n]), |i| Scalar::from_f64(dtype, f(i / n, i % n)));
    let rounded = l.scalars().map(Scalar::to_f64).collect();
    (l, rounded)
}

/// Returns `a·b` for an `[m, k]` and a `[k, n]` matrix.
fn times(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for l in 0..k {
            let f = a[i * k + l];
            (0..n).for_each(|j| c[i * n + j] += f * b[l * n + j]);
        }
    }
    c
}

fn turned(a: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|i| a[i % m * n + i / m]).collect()
}

/// The maximum error of `got`, relative to the largest element of `want`.
fn off(got: &[f64], want: &[f64]) -> f64 {
    let size = want.iter().fold(f64::MIN_POSITIVE, |m: f64, x| m.max(x.abs()));
    assert!(got.iter().all(|x| x.is_finite()), "not a number");
    got.iter().zip(want).fold(0f64, |m, (a, b)| m.max((a - b).abs())) / size
}

/// The deviation of the columns of an `[m, k]` matrix from orthonormal ones.
fn skew(q: &[f64], m: usize, k: usize) -> f64 {
    let product = times(&turned(q, m, k), q, k, m, k);
    let unit: Vec<f64> = (0..k * k).map(|i| (i / k == i % k) as u8 as f64).collect();
    off(&product, &unit)
}

/// The expected rounding error for matrices of this order: LAPACK's tests allow thirty times as much.
fn bound(dtype: DType, n: usize) -> f64 {
    n as f64 * if dtype == DType::F32 { f32::EPSILON as f64 } else { f64::EPSILON }
}

fn below(what: &str, x: f64, most: f64) {
    assert!(x <= most, "{what}: {x:e} is above {most:e}");
}

const DTYPES: [DType; 2] = [DType::F32, DType::F64];

#[test]
fn triangular_factors_give_back_their_matrix() {
    let mut r = Random(31);
    for dtype in DTYPES {
        for n in [20usize, 31, 33, 64, 95, 96, 131, 200] {
            let what = format!("{dtype} {n}");
            let x: Vec<f64> = (0..n * n).map(|_| r.unit()).collect();
            let product = times(&x, &turned(&x, n, n), n, n, n);
            let (a, exact) = literal(dtype, n, n, |i, j| product[i * n + j] + if i == j { 1.0 } else { 0.0 });
            let l = results(Cholesky, &[a])[0].clone();
            below(&format!("cholesky {what}"), off(&times(&l, &turned(&l, n, n), n, n, n), &exact), bound(dtype, n));
            for (m, n) in [(n, n), (n + 40, n), (n, n + 70), (613, n)] {
                let data: Vec<f64> = (0..m * n).map(|_| r.unit()).collect();
                let (a, exact) = literal(dtype, m, n, |i, j| data[i * n + j]);
                let out = results(Lu, &[a]);
                let k = m.min(n);
                let lower: Vec<f64> = (0..m * k)
                    .map(|at| match (at / k, at % k) {
                        (i, j) if i == j => 1.0,
                        (i, j) if i > j => out[0][i * n + j],
                        _ => 0.0,
                    })
                    .collect();
                let upper: Vec<f64> = (0..k * n).map(|at| if at / n <= at % n { out[0][at] } else { 0.0 }).collect();
                let rows: Vec<f64> = (0..m * n).map(|at| exact[out[2][at / n] as usize * n + at % n]).collect();
                // Elements grow during the elimination.
                below(&format!("lu {what}"), off(&times(&lower, &upper, m, k, n), &rows), 10.0 * bound(dtype, n));
            }
            let others = 23;
            for bits in 0..16 {
                let [left, lower, transpose, unit] = [1, 2, 4, 8].map(|b| bits & b != 0);
                let x: Vec<f64> = (0..n * n).map(|_| r.unit()).collect();
                let (a, a64) = literal(dtype, n, n, |i, j| match i == j {
                    true => 2.0 + 0.5 * x[i * n + j],
                    false => x[i * n + j] * 3.0 / n as f64,
                });
                let (rows, cols) = if left { (n, others) } else { (others, n) };
                let y: Vec<f64> = (0..rows * cols).map(|_| r.unit()).collect();
                let (b, b64) = literal(dtype, rows, cols, |i, j| y[i * cols + j]);
                let got = results(TriangularSolve { left, lower, transpose, unit }, &[a, b])[0].clone();
                let own: Vec<f64> = (0..n * n)
                    .map(|at| match (at / n, at % n) {
                        (i, j) if i == j => {
                            if unit {
                                1.0
                            } else {
                                a64[at]
                            }
                        }
                        (i, j) if (i > j) == lower => a64[at],
                        _ => 0.0,
                    })
                    .collect();
                let own = if transpose { turned(&own, n, n) } else { own };
                let back = if left { times(&own, &got, n, n, others) } else { times(&got, &own, others, n, n) };
                below(&format!("solve {what} {bits}"), off(&back, &b64), 10.0 * bound(dtype, n));
            }
        }
    }
}

#[test]
fn reflections_give_back_their_matrix() {
    let mut r = Random(32);
    for dtype in DTYPES {
        // Square, tall and wide matrices, on both sides of the minimum size for blocks.
        for (m, n) in [
            (20, 20),
            (33, 33),
            (64, 64),
            (95, 95),
            (41, 10),
            (30, 41),
            (300, 30),
            (96, 96),
            (130, 130),
            (200, 100),
            (100, 200),
            (700, 40),
            (1024, 64),
            (300, 31),
            (40, 700),
            (250, 33),
        ] {
            let data: Vec<f64> = (0..m * n).map(|_| r.unit()).collect();
            let (a, exact) = literal(dtype, m, n, |i, j| data[i * n + j]);
            for full in [false, true] {
                let out = results(Qr { full }, &[a.clone()]);
                let k = if full { m } else { m.min(n) };
                let what = format!("qr {dtype} {m}x{n} {full}");
                below(&what, off(&times(&out[0], &out[1], m, k, n), &exact), bound(dtype, m.max(n)));
                below(&what, skew(&out[0], m, k), bound(dtype, m.max(n)));
            }
        }
        // Linearly dependent columns, and zero columns.
        let (a, exact) =
            literal(dtype, 150, 110, |i, j| if j % 7 == 3 { 0.0 } else { ((i * (j / 2 + 1)) % 11) as f64 });
        let out = results(Qr { full: false }, &[a]);
        below("dependent columns", off(&times(&out[0], &out[1], 150, 110, 110), &exact), bound(dtype, 150));
        below("dependent columns", skew(&out[0], 150, 110), bound(dtype, 150));
    }
}

/// Spectra of symmetric matrices for divide and conquer: fully deflated, all equal, pairs, clusters, far apart, glued.
fn spectra(n: usize, r: &mut Random) -> Vec<(&'static str, Vec<f64>)> {
    let random: Vec<f64> = (0..n * n).map(|_| r.unit()).collect();
    let symmetric = |f: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
        (0..n * n).map(|at| f((at / n).max(at % n), (at / n).min(at % n))).collect()
    };
    // Q·diag(λ)·Qᵀ with Q a product of reflections.
    let v: Vec<f64> = (0..n).map(|_| r.unit()).collect();
    let length: f64 = v.iter().map(|x| x * x).sum();
    let with = |value: &dyn Fn(usize) -> f64| -> Vec<f64> {
        let h = |i: usize, j: usize| (i == j) as u8 as f64 - 2.0 * v[i] * v[j] / length;
        symmetric(&|i, j| (0..n).map(|k| h(i, k) * value(k) * h(j, k)).sum())
    };
    vec![
        ("random", symmetric(&|i, j| random[i * n + j])),
        ("zero", vec![0.0; n * n]),
        ("unit", symmetric(&|i, j| (i == j) as u8 as f64)),
        ("ones", vec![1.0; n * n]),
        ("diagonal", symmetric(&|i, j| if i == j { (i * 37 % n) as f64 - 20.0 } else { 0.0 })),
        (
            "three diagonals",
            symmetric(&|i, j| {
                if i == j {
                    2.0
                } else if i == j + 1 {
                    -1.0
                } else {
                    0.0
                }
            }),
        ),
        (
            "wilkinson",
            symmetric(&|i, j| match i - j {
                0 => (i as f64 - n as f64 / 2.0).abs(),
                1 => 1.0,
                _ => 0.0,
            }),
        ),
        (
            "glued",
            symmetric(&|i, j| match i - j {
                0 => (i % 21) as f64,
                1 => {
                    if i % 21 == 0 {
                        1e-9
                    } else {
                        1.0
                    }
                }
                _ => 0.0,
            }),
        ),
        ("two values", with(&|k| if k % 2 == 0 { 1.0 } else { -3.0 })),
        ("clusters", with(&|k| (k % 5) as f64 + 1e-12 * k as f64)),
        ("decaying", with(&|k| 0.8f64.powi(k as i32))),
        ("one large", with(&|k| if k == 3 { 1e6 } else { 1.0 / (k + 1) as f64 })),
    ]
}

#[test]
fn eigenvectors_give_back_their_matrix() {
    let mut r = Random(33);
    for dtype in DTYPES {
        for n in [96usize, 129, 161] {
            for (name, data) in spectra(n, &mut r) {
                let scales = if n == 96 { &[1.0, 1e-30, 1e30][..] } else { &[1.0] };
                for &scale in scales {
                    let (a, exact) = literal(dtype, n, n, |i, j| data[i * n + j] * scale);
                    let out = results(Eigh, &[a]);
                    let what = format!("eigh {dtype} {n} {name} {scale:e}");
                    assert!(out[0].windows(2).all(|w| w[0] <= w[1]), "{what}: not in order");
                    let scaled: Vec<f64> = (0..n * n).map(|at| out[1][at] * out[0][at % n]).collect();
                    let back = times(&scaled, &turned(&out[1], n, n), n, n, n);
                    let most = out[0].iter().fold(0f64, |m, x| m.max(x.abs()));
                    let size = exact.iter().fold(0f64, |m, x| m.max(x.abs()));
                    // Errors are relative to the largest eigenvalue.
                    let room = (most / size.max(f64::MIN_POSITIVE)).max(1.0);
                    below(&what, off(&back, &exact), room * bound(dtype, n));
                    below(&what, skew(&out[1], n, n), bound(dtype, n));
                }
            }
        }
    }
}

/// Checks singular values and vectors of a matrix, and the values without vectors; returns the values.
fn check_singular(cpu: &dyn Fn(usize) -> Cpu, what: &str, dtype: DType, [m, n]: [usize; 2], data: &[f64]) -> Vec<f64> {
    let (a, exact) = literal(dtype, m, n, |i, j| data[i * n + j]);
    let out = results_on(cpu, Svd { vectors: true }, &[a.clone()]);
    let what = format!("svd {dtype} {m}x{n} {what}");
    let k = m.min(n);
    assert!(out[1].windows(2).all(|w| w[0] >= w[1]), "{what}: not in order");
    let scaled: Vec<f64> = (0..m * k).map(|at| out[0][at] * out[1][at % k]).collect();
    let size = exact.iter().fold(0f64, |m, x| m.max(x.abs()));
    let room = (out[1][0] / size.max(f64::MIN_POSITIVE)).max(1.0);
    below(&what, off(&times(&scaled, &out[2], m, k, n), &exact), 2.0 * room * bound(dtype, k));
    below(&what, skew(&out[0], m, k), 2.0 * bound(dtype, k));
    below(&what, skew(&turned(&out[2], k, n), n, k), 2.0 * bound(dtype, k));
    let values = results_on(cpu, Svd { vectors: false }, &[a]);
    below(&what, off(&values[0], &out[1]), 2.0 * bound(dtype, k));
    out[1].clone()
}

#[test]
fn singular_vectors_give_back_their_matrix() {
    let mut r = Random(34);
    for dtype in DTYPES {
        for (m, n) in [(96usize, 96usize), (150, 100), (100, 150)] {
            let data: Vec<f64> = (0..m * n).map(|_| r.unit()).collect();
            check_singular(&Cpu::new, "random", dtype, [m, n], &data);
        }
        for (name, data) in spectra(98, &mut r) {
            check_singular(&Cpu::new, name, dtype, [98, 98], &data);
        }
    }
}

/// Matrices whose bidiagonal form splits into blocks,
/// or whose halves have equal or zero values, with several levels of divide and conquer.
#[test]
fn divided_singular_vectors_give_back_their_matrix() {
    let mut r = Random(36);
    let (m, n) = (236usize, 201usize);
    let random: Vec<f64> = (0..m * n).map(|_| r.unit()).collect();
    let (u, v): (Vec<f64>, Vec<f64>) = ((0..m * 5).map(|_| r.unit()).collect(), (0..5 * n).map(|_| r.unit()).collect());
    let of = |f: &dyn Fn(usize, usize) -> f64| -> Vec<f64> { (0..m * n).map(|at| f(at / n, at % n)).collect() };
    let two = |own: &dyn Fn(usize) -> f64, above: &dyn Fn(usize) -> f64| -> Vec<f64> {
        of(&|i, j| {
            if i == j {
                own(i)
            } else if i + 1 == j {
                above(j)
            } else {
                0.0
            }
        })
    };
    let cases = [
        ("random", random.clone()),
        ("of rank 5", times(&u, &v, m, 5, n)),
        ("graded columns", of(&|i, j| random[i * n + j] * 0.85f64.powi(j as i32))),
        ("graded rows", of(&|i, j| random[i * n + j] * 0.7f64.powi(i as i32))),
        ("two diagonals of ones", two(&|_| 1.0, &|_| 1.0)),
        ("holes in the diagonal", two(&|i| if i % 13 == 5 { 0.0 } else { 1.0 + i as f64 }, &|j| (j % 3) as f64)),
        ("holes above it", two(&|i| 1.0 + (i % 4) as f64, &|j| if j % 10 == 0 { 0.0 } else { 1e-9 })),
        ("nothing but what is above it", two(&|_| 0.0, &|j| 1.0 + j as f64)),
        ("one value", two(&|_| 3.0, &|_| 0.0)),
        ("a corner", two(&|i| if i > 190 { 1.0 } else { 0.0 }, &|_| 0.0)),
        ("huge and tiny", two(&|i| if i % 2 == 0 { 1e12 } else { 1e-12 }, &|j| if j % 2 == 0 { 1e-6 } else { 1.0 })),
    ];
    for cpu in machines() {
        for dtype in DTYPES {
            for (name, data) in &cases {
                let values = check_singular(&*cpu, name, dtype, [m, n], data);
                if *name == "of rank 5" {
                    below(name, values[5], bound(dtype, m) * values[0]);
                }
            }
        }
    }
}

/// Values computed without vectors equal those with vectors, for small and medium matrices, square or not, with any spectrum.
#[test]
fn singular_values_alone_are_those_with_vectors() {
    let mut r = Random(35);
    for dtype in DTYPES {
        for (m, n) in [
            (1usize, 1usize),
            (2, 2),
            (3, 3),
            (2, 5),
            (5, 2),
            (7, 4),
            (11, 11),
            (40, 10),
            (16, 33),
            (64, 64),
            (90, 30),
            (20, 400),
            (95, 47),
        ] {
            let k = m.min(n);
            let mut cases = vec![("by lot", (0..m * n).map(|_| r.unit()).collect::<Vec<f64>>())];
            cases.push(("of ones", vec![1.0; m * n]));
            cases.push(("of nothing", vec![0.0; m * n]));
            cases.push(("graded", (0..m * n).map(|i| r.unit() * 0.1f64.powi((i % n) as i32 % 20)).collect()));
            cases.push(("of a diagonal", (0..m * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect()));
            cases.push(("tiny", (0..m * n).map(|_| r.unit() * 1e-30).collect()));
            for (name, data) in cases {
                let (a, _) = literal(dtype, m, n, |i, j| data[i * n + j]);
                let (with, alone) =
                    (results(Svd { vectors: true }, &[a.clone()]), results(Svd { vectors: false }, &[a]));
                let what = format!("values of svd {dtype} {m}x{n} {name}");
                assert!(alone[0].windows(2).all(|w| w[0] >= w[1]), "{what}: not in order");
                below(&what, off(&alone[0], &with[1]), 4.0 * bound(dtype, k.max(4)));
            }
        }
    }
}
