//! Functions of one number at zeros, poles, branch points, tiny and huge numbers, compared with 60-digit values
//! (`golden/special.py`); also for the interpreter.

mod harness;

use harness::run;
use ir::{Binary, Builder, DType, GraphBuilder, Literal, Scalar, Type, Unary, interp};
use std::collections::BTreeMap;
use tensorloom_cpu::Cpu;

/// The arguments and results by function and dtype.
fn table() -> BTreeMap<(String, DType), Vec<(Scalar, f64)>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/data/special.txt");
    let text = std::fs::read_to_string(path).expect("golden data is in the repository");
    let mut found: BTreeMap<(String, DType), Vec<(Scalar, f64)>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [op, dtype, x, y] = words[..] else { panic!("{line}") };
        let bits = |s: &str| u64::from_str_radix(s, 16).expect("bits");
        let dtype: DType = dtype.parse().expect("a dtype");
        let x = Scalar::from_bits(dtype, bits(x));
        found.entry((op.to_string(), dtype)).or_default().push((x, f64::from_bits(bits(y))));
    }
    found
}

/// Returns whether a result is correct: special values exactly, other numbers within some units in the last place.
fn right(dtype: DType, got: f64, want: f64, ulps: f64, around: f64) -> bool {
    if want.is_nan() {
        return got.is_nan();
    }
    let (unit, least, most) = match dtype {
        DType::F32 => (2f64.powi(-24), 2f64.powi(-149), f32::MAX as f64),
        _ => (2f64.powi(-53), 5e-324, f64::MAX),
    };
    // A result that rounds above the largest number is infinite.
    if want.abs() > most {
        return got == f64::INFINITY.copysign(want);
    }
    if want == 0.0 {
        return got == 0.0 && got.is_sign_negative() == want.is_sign_negative();
    }
    // Of the smallest denormal results only the sign and the order of magnitude are checked.
    let slack = (2.0 * ulps * unit * (want.abs() + around)).max(least * 1.5);
    (got - want).abs() <= slack || (got.is_infinite() && want.abs() >= most * (1.0 - 4.0 * unit * ulps))
}

#[test]
fn functions_hold_where_they_are_awkward() {
    let cpu = Cpu::new(1);
    let mut wrong = Vec::new();
    let mut count = 0;
    for ((op, dtype), rows) in table() {
        let mut b = Builder::new();
        let x = b.input(dtype, &[rows.len()]);
        let y = match op.strip_prefix("zeta") {
            Some(s) => {
                let s = b.full_like(x, s.parse().expect("a number")).unwrap();
                b.binary(Binary::Zeta, s, x).unwrap()
            }
            None => b.unary(Unary::from_name(&op).expect("a function"), x).unwrap(),
        };
        let g = b.finish(&[y]);
        let x = Literal::from_fn(Type::new(dtype, &[rows.len()]), |i| rows[i].0);
        let by_interp = interp::run(&g, std::slice::from_ref(&x)).unwrap();
        let by_cpu = run(&cpu, &g, &[x], true);
        for (i, &(x, want)) in rows.iter().enumerate() {
            count += 1;
            // Near a root, the error of a sum is relative to its large terms.
            let around = if matches!(op.as_str(), "lgamma" | "digamma") { 4.0 } else { 0.0 };
            for (who, got, ulps) in [("interp", &by_interp[0], 8.0), ("cpu", &by_cpu[0], 8.0)] {
                let got = got.get(i).to_f64();
                if !right(dtype, got, want, ulps, around) {
                    wrong.push(format!("{who}: {op}({x:?}) is {got:e}, not {want:e}"));
                }
            }
        }
    }
    println!("{count} values");
    assert!(wrong.is_empty(), "{} of {count}\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 7000);
}

/// Conversions round once: numbers around every midpoint between two small floats, from every wider dtype.
#[test]
fn conversions_to_small_floats_round_once() {
    let cpu = Cpu::new(1);
    for to in [DType::BF16, DType::F16, DType::F8E4M3, DType::F8E5M2] {
        let mut values: Vec<f64> = Vec::new();
        for bits in (0..1u64 << (to.bits() - 1)).step_by(if to.bits() == 16 { 331 } else { 1 }) {
            let (a, b) = (Scalar::from_bits(to, bits).to_f64(), Scalar::from_bits(to, bits + 1).to_f64());
            if a.is_finite() && b.is_finite() {
                let middle = (a + b) / 2.0;
                let above = f64::from_bits(middle.to_bits() + 1);
                let f32_above = f32::from_bits((middle as f32).to_bits() + 1) as f64;
                values.extend([a, middle, above, f32_above, -above, -f32_above, middle * (1.0 - 1e-14)]);
            }
        }
        for from in [DType::F64, DType::F32] {
            let x = Literal::from_fn(Type::new(from, &[values.len()]), |i| Scalar::from_f64(from, values[i]));
            check_conversion(&cpu, to, x, |s| s.to_f64());
        }
        // Integers just above, on and below a midpoint.
        let mut ints = Vec::new();
        for shift in 1..62 {
            for middle in [0x101i64, 0x103, 0x401 << 1 | 1, 0x9, 0x13] {
                let m = middle.checked_shl(shift).filter(|m| m >> shift == middle).unwrap_or(middle);
                ints.extend([m, m + 1, m - 1, -m, -m - 1]);
            }
        }
        for from in [DType::I64, DType::I32, DType::U64, DType::U32] {
            let x = Literal::from_fn(Type::new(from, &[ints.len()]), |i| Scalar::from_i64(from, ints[i]));
            check_conversion(
                &cpu,
                to,
                x,
                |s| if s.dtype() == DType::U64 { s.bits() as f64 } else { s.to_i64() as f64 },
            );
        }
    }
}

/// Compares a conversion with the nearest among the neighbours of the result of a plain conversion.
fn check_conversion(cpu: &Cpu, to: DType, x: Literal, value: impl Fn(Scalar) -> f64) {
    let mut b = Builder::new();
    let v = b.input(x.ty().dtype, &x.ty().shape);
    let y = b.cast(v, to).unwrap();
    let g = b.finish(&[y]);
    let by_interp = interp::run(&g, std::slice::from_ref(&x)).unwrap();
    let by_cpu = run(cpu, &g, std::slice::from_ref(&x), true);
    for i in 0..x.ty().numel() {
        let (own, got) = (x.get(i), by_interp[0].get(i));
        assert_eq!(got, by_cpu[0].get(i), "{own:?} to {to}");
        if !got.to_f64().is_finite() || own.to_f64() == 0.0 {
            continue;
        }
        let exact = if own.dtype() == DType::U64 { own.bits() as i128 } else { own.to_i64() as i128 };
        // Compare as 128-bit integers where the numbers are integers.
        let closer = |a: Scalar, b: Scalar| -> std::cmp::Ordering {
            let whole = |s: Scalar| own.dtype().is_int() && s.to_f64().fract() == 0.0;
            if whole(a) && whole(b) {
                let distance = |s: Scalar| (s.to_f64() as i128 - exact).unsigned_abs();
                return distance(a).cmp(&distance(b));
            }
            (a.to_f64() - value(own)).abs().total_cmp(&(b.to_f64() - value(own)).abs())
        };
        for other in [got.bits().wrapping_add(1), got.bits().wrapping_sub(1)] {
            let other = Scalar::from_bits(to, other);
            if other.to_f64().is_nan() || other.to_f64().is_infinite() {
                continue;
            }
            let fits = match closer(got, other) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => got.bits() & 1 == 0,
                std::cmp::Ordering::Greater => false,
            };
            assert!(fits, "{own:?} to {to}: {got:?}, but {other:?} is nearer");
        }
    }
}

#[test]
fn derivatives_where_they_are_awkward() {
    let inf = f64::INFINITY;
    let slope = |x: f64, f: &dyn Fn(&mut Builder, ir::Value) -> ir::Value| -> f64 {
        let mut b = Builder::new();
        let v = b.input(DType::F64, &[]);
        let y = f(&mut b, v);
        let g = transform::vjp(&b.finish(&[y]), &[0]).unwrap();
        let one = Literal::new(&[], &[1.0f64]);
        let inputs = [Literal::new(&[], &[x]), one];
        let (a, b) = (interp::run(&g, &inputs).unwrap(), run(&Cpu::new(1), &g, &inputs, true));
        let (a, b) = (a[1].get(0).to_f64(), b[1].get(0).to_f64());
        assert!(a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * a.abs(), "{x}: {a} {b}");
        a
    };
    let unary = |op: Unary| move |b: &mut Builder, v: ir::Value| b.unary(op, v).unwrap();
    let power = |e: f64| {
        move |b: &mut Builder, v: ir::Value| {
            let e = b.full_like(v, e).unwrap();
            b.binary(Binary::Pow, v, e).unwrap()
        }
    };
    // x⁰ is 1 everywhere, so its derivative is 0.
    for x in [inf, -inf, 0.0, -0.0, 2.0, f64::NAN] {
        assert_eq!(slope(x, &power(0.0)), 0.0, "{x}");
    }
    assert_eq!(slope(0.0, &power(1.0)), 1.0);
    assert_eq!(slope(inf, &power(1.0)), 1.0);
    assert_eq!(slope(inf, &power(2.0)), inf);
    // ψ' approaches 0 at infinity, is undefined at -inf, and is accurate for large negative numbers.
    assert_eq!(slope(inf, &unary(Unary::Digamma)), 0.0);
    assert!(slope(-inf, &unary(Unary::Digamma)).is_nan());
    let far = slope(-123_456.25, &unary(Unary::Digamma));
    assert!((far / (2.0 * std::f64::consts::PI.powi(2)) - 1.0).abs() < 1e-5, "{far}");
    let near = slope(-1e-12, &unary(Unary::Digamma));
    assert!((near * 1e-24 - 1.0).abs() < 1e-9, "{near}");
}

#[test]
fn bits_of_bools_are_zero_or_one() {
    let x = Literal::new(&[5], &[true, false, true, true, false]);
    for to in [DType::U8, DType::I8, DType::F8E5M2] {
        let mut b = Builder::new();
        let v = b.input(DType::Bool, &[5]);
        let y = b.one(ir::ops::Bitcast(to).into(), &[v]).unwrap();
        let g = b.finish(&[y]);
        let got = run(&Cpu::new(1), &g, std::slice::from_ref(&x), true);
        harness::same("bits", &got, &interp::run(&g, std::slice::from_ref(&x)).unwrap());
        assert_eq!(got[0].bytes(), [1, 0, 1, 1, 0]);
    }
    let mut b = Builder::new();
    let v = b.input(DType::U8, &[5]);
    let e = b.one(ir::ops::Bitcast(DType::Bool).into(), &[v]).unwrap_err().to_string();
    assert!(e.contains("compare with 0"), "{e}");
}
