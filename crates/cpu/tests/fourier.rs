//! Fourier transforms of many lines, with the vectors of each instruction set, on several thread counts: near the
//! interpreter's, and the same bits.

mod harness;

use cpu::Cpu;
use cpu::codegen::Target;
use harness::{Random, close, run, same};
use ir::ops::{Fft, FftKind};
use ir::{Build, Builder, DType, Graph, Literal, Scalar, Type, interp};

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
    // Powers of two, other small factors, odd lengths, lengths that go another way; rows, columns, both.
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
        // Other prime factors, up to the largest that lines are divided by, and beyond; lines shorter than a tile.
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
        // Long lines, as matrices: alone, few, of factors that fill vectors and of others, of two axes.
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

#[test]
fn lines_do_not_meet() {
    let g = graph(FftKind::Real, &[1], DType::F32, &[32, 20]);
    let ty = Type::new(DType::F32, &[32, 20]);
    let x = Literal::from_fn(ty, |i| {
        let odd = [f64::NAN, f64::INFINITY, 1e30][i / 20 % 3];
        Scalar::from_f64(DType::F32, if i / 20 % 2 == 1 { odd } else { (i % 7) as f64 })
    });
    for cpu in backends().iter().flatten() {
        let y = run(cpu, &g, std::slice::from_ref(&x), true);
        let row = |i: usize| (0..11).map(|k| y[0].get(i * 11 + k).to_f64()).collect::<Vec<_>>();
        for i in (0..32).step_by(2) {
            assert!(row(i).iter().all(|v| v.abs() < 200.0), "row {i}: {:?}", row(i));
            assert!(!row(i + 1).iter().all(|v| v.abs() < 200.0), "row {}: {:?}", i + 1, row(i + 1));
        }
    }
}
