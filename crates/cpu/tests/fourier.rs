//! Fourier transforms of many lines, with the vectors of each instruction set, on several thread counts: close to the
//! interpreter's or to the definition of the DFT, with the same bits for all thread counts.

mod harness;

use harness::{Random, close, run, same};
use ir::ops::{Fft, FftKind};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, interp};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

fn graph(kind: FftKind, axes: &[usize], dtype: DType, shape: &[usize]) -> Graph {
    let mut b = Builder::new();
    let mut own = shape.to_vec();
    if let FftKind::InverseReal { length } = kind {
        own[*axes.last().unwrap()] = length / 2 + 1;
    }
    let parts = if kind == FftKind::Real { 1 } else { 2 };
    let args: Vec<_> = (0..parts).map(|_| b.input(dtype, &own)).collect();
    let outs = b.emit(Fft { kind, axes: axes.into() }.into(), &args).unwrap();
    b.finish(&outs)
}

fn backends() -> Vec<Vec<Cpu>> {
    Target::available().into_iter().map(|t| [1, 2, 3, 16].map(|n| Cpu::with_target(n, Some(t))).into()).collect()
}

#[test]
fn lines_of_all_kinds() {
    let (all, mut r) = (backends(), Random(8));
    // Powers of two, other small factors, odd lengths, lengths for other algorithms; rows, columns, both.
    let cases: &[(&[usize], &[usize])] = &[
        (&[40, 64], &[1]),
        (&[64, 40], &[0]),
        (&[17, 100], &[1]),
        (&[9, 45], &[1]),
        (&[45, 9], &[0]),
        (&[3, 30, 19], &[1]),
        (&[16, 2], &[1]),
        (&[8, 3], &[1]),
        (&[33, 14], &[1]),
        (&[7, 16], &[1]),
        (&[32, 60], &[0, 1]),
        (&[24, 15], &[0, 1]),
        (&[10, 12, 16], &[0, 2]),
        (&[12, 10, 20], &[2, 0, 1]),
        (&[300, 8], &[0]),
        // Other prime factors, up to the largest direct radix, and larger ones; lines shorter than a tile.
        (&[20, 7], &[1]),
        (&[26, 9], &[0]),
        (&[9, 77], &[1]),
        (&[17, 127], &[1]),
        (&[254, 9], &[0]),
        (&[9, 131], &[1]),
        (&[22, 14], &[0, 1]),
        (&[40, 3], &[1]),
        (&[33, 5], &[1]),
        (&[24, 6], &[1]),
        // Fewer adjacent lines than lanes, with many and few outer indices.
        (&[50, 20, 3], &[1]),
        (&[17, 21, 5], &[1]),
        (&[33, 23, 2], &[1]),
        (&[3, 12, 7], &[1]),
        (&[20, 9, 2], &[0, 1]),
        // Long lines with strided elements.
        (&[1500, 2], &[0]),
        // Long lines as matrices: a single line, few lines, factors that fill vectors and others, two axes.
        (&[256], &[0]),
        (&[3, 512], &[1]),
        (&[20, 1024], &[1]),
        (&[1, 1200], &[1]),
        (&[1, 2500], &[1]),
        (&[16, 320], &[0, 1]),
        (&[4, 2048], &[1]),
    ];
    for (shape, axes) in cases {
        let length = shape[*axes.last().unwrap()];
        for kind in [FftKind::Forward, FftKind::Inverse, FftKind::Real, FftKind::InverseReal { length }] {
            for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-13)] {
                let what = format!("{kind:?} of {dtype} {shape:?} along {axes:?}");
                let g = graph(kind, axes, dtype, shape);
                let x: Vec<_> = g.input_types().iter().map(|t| r.literal(t)).collect();
                let want = interp::run(&g, &x).unwrap();
                for backends in &all {
                    let got = run(&backends[0], &g, &x, true);
                    close(&what, &got, &want, tolerance);
                    backends[1..].iter().for_each(|cpu| same(&what, &run(cpu, &g, &x, true), &got));
                }
            }
        }
    }
}

/// Computes the definition of the transform of a complex line in f64, with roots of unity from a table.
fn defined(re: &[f64], im: &[f64], inverse: bool) -> (Vec<f64>, Vec<f64>) {
    let n = re.len();
    let roots: Vec<(f64, f64)> = (0..n).map(|k| (std::f64::consts::TAU * k as f64 / n as f64).sin_cos()).collect();
    let sign = if inverse { 1.0 } else { -1.0 };
    let over = if inverse { 1.0 / n as f64 } else { 1.0 };
    let element = |k: usize| {
        let (mut a, mut b, mut at) = (0.0, 0.0, 0);
        for j in 0..n {
            let (sin, cos) = (sign * roots[at].0, roots[at].1);
            a += re[j] * cos - im[j] * sin;
            b += re[j] * sin + im[j] * cos;
            at += k;
            at -= if at >= n { n } else { 0 };
        }
        (a * over, b * over)
    };
    (0..n).map(element).unzip()
}

/// Returns the error of the results relative to the norm of the expected ones.
fn error(got: &[f64], want: &[f64]) -> f64 {
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>().sqrt();
    norm(&mut got.iter().zip(want).map(|(a, b)| a - b)) / norm(&mut want.iter().copied()).max(1e-300)
}

/// Every short length and some long ones: powers, products and primes, which use butterflies, the definition of the DFT,
/// convolutions, matrices, and chirps. Errors grow at most with the logarithm of the length.
#[test]
fn any_length() {
    let (all, mut r) = (backends(), Random(9));
    let (last, every) = if cfg!(debug_assertions) { (40, 97) } else { (110, 37) };
    let mut lengths: Vec<usize> = (1..=last).chain((last..600).step_by(every)).collect();
    // Primes, including one with p - 1 twice a prime; multiples of them; long lines with and without small factors.
    lengths.extend([173, 227, 347, 383, 541, 719, 1123, 1581, 1651, 1984, 2003]);
    for n in lengths {
        for (dtype, unit) in [(DType::F32, 6e-8), (DType::F64, 4e-16)] {
            let bound = unit * (3.0 + (n as f64).log2());
            // Many lines, one line, and columns; the first and the last line are checked.
            for (shape, axis) in [(vec![18, n], 1), (vec![1, n], 1), (vec![n, 3], 0)] {
                if n > 600 && shape[0] == 18 && cfg!(debug_assertions) {
                    continue;
                }
                let mut at = vec![0, shape[1 - axis] - 1];
                at.dedup();
                for kind in [FftKind::Forward, FftKind::Inverse, FftKind::Real, FftKind::InverseReal { length: n }] {
                    let what = format!("{kind:?} of {dtype} {shape:?} along {axis}");
                    let g = graph(kind, &[axis], dtype, &shape);
                    let x: Vec<_> = g.input_types().iter().map(|t| r.literal(t)).collect();
                    let own = g.input_types()[0].shape[axis];
                    let line = |t: &Literal, own: usize, i: usize| -> Vec<f64> {
                        let place = |k: usize| if axis == 1 { i * own + k } else { k * shape[1] + i };
                        (0..own).map(|k| t.get(place(k)).to_f64()).collect()
                    };
                    let wants: Vec<Vec<f64>> = at
                        .iter()
                        .map(|&i| {
                            let mut re = line(&x[0], own, i);
                            let mut im = x.get(1).map_or(vec![0.0; n], |x| line(x, own, i));
                            if let FftKind::InverseReal { .. } = kind {
                                // The other half, without imaginary parts that a real signal's spectrum cannot have.
                                im[0] = 0.0;
                                if n.is_multiple_of(2) {
                                    im[n / 2] = 0.0;
                                }
                                for k in own..n {
                                    re.push(re[n - k]);
                                    im.push(-im[n - k]);
                                }
                                return defined(&re, &im, true).0;
                            }
                            let (mut re, mut im) = defined(&re, &im, kind == FftKind::Inverse);
                            let keep = if kind == FftKind::Real { n / 2 + 1 } else { n };
                            re.truncate(keep);
                            im.truncate(keep);
                            [re, im].concat()
                        })
                        .collect();
                    for backends in &all {
                        let got = run(&backends[0], &g, &x, true);
                        let side = g.output_types()[0].shape[axis];
                        for (&i, want) in at.iter().zip(&wants) {
                            let got: Vec<f64> = got.iter().flat_map(|t| line(t, side, i)).collect();
                            let e = error(&got, want);
                            assert!(e <= bound, "{what}, line {i}: {e:e} is more than {bound:e}");
                            // The sum of real numbers is real.
                            assert!(kind != FftKind::Real || got[side] == 0.0, "{what}, line {i}: {}", got[side]);
                        }
                        let others = if n % 7 == 0 || n > 600 { &backends[1..] } else { &backends[2..3] };
                        others.iter().for_each(|cpu| same(&what, &run(cpu, &g, &x, true), &got));
                    }
                }
            }
        }
    }
}

#[test]
fn lines_do_not_meet() {
    // Even length, definition of the DFT, convolution, and decomposition into shorter lines.
    for n in [20, 3, 21, 23, 97] {
        let g = graph(FftKind::Real, &[1], DType::F32, &[32, n]);
        let ty = Type::new(DType::F32, &[32, n]);
        let x = Literal::from_fn(ty, |i| {
            let odd = [f64::NAN, f64::INFINITY, 1e30][i / n % 3];
            Scalar::from_f64(DType::F32, if i / n % 2 == 1 { odd } else { (i % 7) as f64 })
        });
        let half = n / 2 + 1;
        for cpu in backends().iter().flatten() {
            let y = run(cpu, &g, std::slice::from_ref(&x), true);
            let row = |i: usize| (0..half).map(|k| y[0].get(i * half + k).to_f64()).collect::<Vec<_>>();
            for i in (0..32).step_by(2) {
                assert!(row(i).iter().all(|v| v.abs() < 700.0), "row {i} of {n}: {:?}", row(i));
                assert!(!row(i + 1).iter().all(|v| v.abs() < 700.0), "row {} of {n}: {:?}", i + 1, row(i + 1));
            }
        }
    }
}
