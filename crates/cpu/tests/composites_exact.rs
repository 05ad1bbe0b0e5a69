//! The precision of composites in f32 over their whole range, compared with the same composite in f64.

mod harness;

use harness::run;
use ir::composites::activation::{self, Gelu};
use ir::composites::loss::{CrossEntropyOptions, cross_entropy};
use ir::composites::softmax;
use ir::ops::Composite;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, Unary, interp};
use tensorloom_cpu::Cpu;

/// Points from where the functions underflow to where they are linear, densely, and more densely around 0 and ±4.2.
fn points() -> Vec<f64> {
    let mut xs: Vec<f64> = (-3200..=3200).map(|i| i as f64 / 160.0).collect();
    xs.extend((-400..=400).map(|i| i as f64 / 4000.0));
    xs.extend((0..400).flat_map(|i| [4.0, -4.0].map(|s| s * (1.0 + i as f64 / 4000.0))));
    xs.extend([1e-30, -1e-30, 1e-8, -1e-8, 1e4, -1e4, 1e9, -1e9]);
    xs.iter().map(|&x| x as f32 as f64).collect()
}

fn literal(dtype: DType, xs: &[f64]) -> Literal {
    Literal::from_fn(Type::new(dtype, &[xs.len()]), |i| Scalar::from_f64(dtype, xs[i]))
}

/// Evaluates a function and its derivative at many points: in f32 on the CPU, and in f64 by the interpreter.
fn curves(graph: impl Fn(DType, usize) -> Graph) -> [Vec<(f64, f64)>; 2] {
    let xs = points();
    let both = |dtype: DType| {
        let g = transform::vjp(&graph(dtype, xs.len()), &[0]).unwrap();
        let ones = vec![1.0; xs.len()];
        let inputs = [literal(dtype, &xs), literal(dtype, &ones)];
        let outs = match dtype {
            DType::F32 => run(&Cpu::new(2), &g, &inputs, true),
            _ => interp::run(&g, &inputs).unwrap(),
        };
        outs[0].scalars().zip(outs[1].scalars()).map(|(y, d)| (y.to_f64(), d.to_f64())).collect()
    };
    [both(DType::F32), both(DType::F64)]
}

fn check(name: &str, bound: f64, graph: impl Fn(DType, usize) -> Graph) {
    let [got, want] = curves(graph);
    let (mut worst, mut worst_slope) = ((0.0, 0.0), (0.0, 0.0));
    for ((x, (y, d)), (exact, slope)) in points().into_iter().zip(got).zip(want) {
        // Below f32's normal numbers there are fewer significant bits.
        let tiny = |v: f64| v.abs() < 1.2e-38;
        let error = if tiny(exact) { (y - exact).abs() / 1.2e-38 * 1e-7 } else { ((y - exact) / exact).abs() };
        if error > worst.0 || error.is_nan() {
            worst = (error, x);
        }
        // The error of a derivative that crosses 0 is relative to its terms.
        let size = if tiny(slope) { 1.2e-30 } else { slope.abs().max(((exact / x).abs() * 0.2).min(0.2)) };
        let error = (d - slope).abs() / size;
        if error > worst_slope.0 || error.is_nan() {
            worst_slope = (error, x);
        }
    }
    println!("{name}: {:.1e} at {}, slope {:.1e} at {}", worst.0, worst.1, worst_slope.0, worst_slope.1);
    assert!(worst.0 <= bound, "{name}: relative error {:e} at {}", worst.0, worst.1);
    assert!(
        worst_slope.0 <= 10.0 * bound,
        "{name}: relative error of the slope {:e} at {}",
        worst_slope.0,
        worst_slope.1
    );
}

fn of(make: impl Fn(&Type) -> ir::Result<Composite>) -> impl Fn(DType, usize) -> Graph {
    move |dtype, n| {
        let mut b = Builder::new();
        let x = b.input(dtype, &[n]);
        let c = make(&Type::new(dtype, &[n])).unwrap();
        let y = b.emit(c.into(), &[x]).unwrap()[0];
        b.finish(&[y])
    }
}

#[test]
fn activations_keep_their_digits() {
    // The error of an exponent up to 88 is multiplied by that number in units in the last place.
    check("gelu", 3e-5, of(|t| activation::gelu(t, Gelu::Erf)));
    check("gelu_tanh", 3e-5, of(|t| activation::gelu(t, Gelu::Tanh)));
    check("silu", 3e-6, of(activation::silu));
    check("relu", 1e-9, of(activation::relu));
    check("relu2", 3e-7, of(activation::relu2));
    let written = |f: fn(&mut Builder, ir::Value) -> ir::Result<ir::Value>| {
        move |dtype: DType, n: usize| {
            let mut b = Builder::new();
            let x = b.input(dtype, &[n]);
            let y = f(&mut b, x).unwrap();
            b.finish(&[y])
        }
    };
    // As in `nn`: max(x, 0) + log1p(exp(-|x|)), and functions based on it.
    fn softplus(b: &mut Builder, x: ir::Value) -> ir::Result<ir::Value> {
        let zero = b.full_like(x, 0.0)?;
        let most = b.binary(ir::Binary::Max, x, zero)?;
        let size = b.unary(Unary::Abs, x)?;
        let n = b.neg(size)?;
        let e = b.unary(Unary::Exp, n)?;
        let l = b.unary(Unary::Log1p, e)?;
        b.add(most, l)
    }
    fn forward(name: &str, bound: f64, f: impl Fn(DType, usize) -> Graph) {
        let xs = points();
        let got = run(&Cpu::new(1), &f(DType::F32, xs.len()), &[literal(DType::F32, &xs)], true);
        let want = interp::run(&f(DType::F64, xs.len()), &[literal(DType::F64, &xs)]).unwrap();
        for (i, x) in xs.iter().enumerate() {
            let (y, exact) = (got[0].get(i).to_f64(), want[0].get(i).to_f64());
            if exact.abs() > f32::MAX as f64 {
                assert_eq!(y, f64::INFINITY.copysign(exact), "{name} at {x}");
                continue;
            }
            let error = (y - exact).abs() / exact.abs().max(1.2e-38);
            assert!(error <= bound || (exact == 0.0 && y == 0.0), "{name}: {y:e} instead of {exact:e} at {x}");
        }
    }
    forward("softplus", 3e-6, written(softplus));
    forward(
        "log_sigmoid",
        3e-6,
        written(|b, x| {
            let n = b.neg(x)?;
            let s = softplus(b, n)?;
            b.neg(s)
        }),
    );
    forward(
        "mish",
        3e-6,
        written(|b, x| {
            let s = softplus(b, x)?;
            let t = b.unary(Unary::Tanh, s)?;
            b.mul(x, t)
        }),
    );
    for op in [Unary::Erf, Unary::Erfc, Unary::Expm1, Unary::Tanh, Unary::Logistic, Unary::Asinh, Unary::Atan] {
        forward(op.name(), 1e-6, move |dtype, n| {
            let mut b = Builder::new();
            let x = b.input(dtype, &[n]);
            let y = b.unary(op, x).unwrap();
            b.finish(&[y])
        });
    }
}

/// Logits far from 0 have the same loss and gradient as the same logits near 0, up to the precision of the logits.
#[test]
fn losses_keep_their_digits_far_from_zero() {
    let near: Vec<f64> = (0..24).map(|i| ((i * 7 % 13) as f64 - 6.0) * 0.25).collect();
    for (label_smoothing, z_loss) in [(0.0, 0.0), (0.1, 0.0)] {
        for offset in [0.0, 1e4, 1e6, -1e6] {
            for dtype in [DType::F32, DType::F64] {
                let (lt, it) = (Type::new(dtype, &[4, 6]), Type::new(DType::I32, &[4]));
                let options = CrossEntropyOptions { label_smoothing, z_loss, ..CrossEntropyOptions::default() };
                let c = cross_entropy(&lt, &it, options).unwrap();
                let mut b = Builder::new();
                let (x, l) = (b.input(dtype, &[4, 6]), b.input(DType::I32, &[4]));
                let y = b.emit(c.into(), &[x, l]).unwrap()[0];
                let g = transform::vjp(&b.finish(&[y]), &[0]).unwrap();
                let labels = Literal::new(&[4], &[0i32, 3, 5, 2]);
                let ones = Literal::from_fn(Type::new(dtype, &[4]), |_| Scalar::one(dtype));
                let at = |o: f64| {
                    let x = Literal::from_fn(lt.clone(), |i| Scalar::from_f64(dtype, near[i] + o));
                    run(&Cpu::new(1), &g, &[x, labels.clone(), ones.clone()], true)
                };
                // Quarters are exact in f32 up to 2²².
                let (got, want) = (at(offset), at(0.0));
                for (a, b) in got.iter().zip(&want) {
                    for (a, b) in a.scalars().zip(b.scalars()) {
                        assert!((a.to_f64() - b.to_f64()).abs() <= 1e-6, "{offset} {dtype}: {a:?} {b:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn logsumexp_keeps_its_digits_and_its_derivatives() {
    let inf = f64::INFINITY;
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let t = Type::new(dtype, &[3, 4]);
        let mut b = Builder::new();
        let x = b.input(dtype, &[3, 4]);
        let y = b.emit(softmax::logsumexp(&t).unwrap().into(), &[x]).unwrap()[0];
        let g = b.finish(&[y]);
        let offset = if dtype == DType::BF16 { 128.0 } else { 1e6 };
        let data = [0.5, 1.0, -0.5, 0.0, -inf, -inf, -inf, -inf, offset, offset + 1.0, offset - 1.0, offset];
        let x = Literal::from_fn(t.clone(), |i| Scalar::from_f64(dtype, data[i]));
        let ones = |shape: &[usize]| Literal::from_fn(Type::new(dtype, shape), |_| Scalar::one(dtype));
        let back = transform::vjp(&g, &[0]).unwrap();
        let got = run(&Cpu::new(1), &back, &[x.clone(), ones(&[3])], true);
        let e = std::f64::consts::E;
        let total = 2.0 + e + 1.0 / e;
        let want = [0.0, 0.0, 0.0, 0.0, 1.0 / total, e / total, 1.0 / e / total, 1.0 / total];
        for (i, w) in want.iter().enumerate() {
            let tolerance = if dtype == DType::BF16 { 4e-3 } else { 1e-6 };
            let g = got[1].get(4 + i).to_f64();
            assert!((g - w).abs() <= tolerance, "{dtype} {i}: {g} instead of {w}");
        }
        // Forward: a row that is all -inf stays unchanged.
        let forth = transform::jvp(&g, &[true], &[true]).unwrap().0;
        for outs in [
            run(&Cpu::new(1), &forth, &[x.clone(), ones(&[3, 4])], true),
            interp::run(&forth, &[x.clone(), ones(&[3, 4])]).unwrap(),
        ] {
            assert_eq!(outs[0].get(1).to_f64(), -inf);
            assert_eq!(outs[1].get(1).to_f64(), 0.0, "{dtype}");
            assert!((outs[1].get(0).to_f64() - 1.0).abs() < 1e-2);
        }
    }
}

/// `relu` of NaN is NaN, and its derivative there is 1, as in PyTorch; forward and reverse mode agree.
#[test]
fn relu_at_nan_and_zero() {
    for dtype in [DType::F32, DType::F64] {
        let t = Type::new(dtype, &[4]);
        let mut b = Builder::new();
        let x = b.input(dtype, &[4]);
        let y = b.emit(activation::relu(&t).unwrap().into(), &[x]).unwrap()[0];
        let g = b.finish(&[y]);
        let x = literal(dtype, &[f64::NAN, 0.0, -0.0, -1.0]);
        let ones = literal(dtype, &[1.0; 4]);
        for g in [transform::vjp(&g, &[0]).unwrap(), transform::jvp(&g, &[true], &[true]).unwrap().0] {
            for outs in [
                run(&Cpu::new(1), &g, &[x.clone(), ones.clone()], true),
                interp::run(&g, &[x.clone(), ones.clone()]).unwrap(),
            ] {
                assert!(outs[0].get(0).to_f64().is_nan());
                let slopes: Vec<f64> = outs[1].scalars().map(Scalar::to_f64).collect();
                assert_eq!(slopes, [1.0, 0.0, 0.0, 0.0]);
            }
        }
    }
}
