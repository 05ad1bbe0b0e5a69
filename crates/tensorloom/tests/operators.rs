//! Operators and methods on tensors and numbers of every type, against Rust's own arithmetic.

use tensorloom::prelude::*;
use tensorloom::{Number, Operand, step};

fn ints(x: &[i64]) -> Tensor {
    tensor(x, x.len())
}

fn floats(x: &[f64]) -> Tensor {
    tensor(x, x.len())
}

#[track_caller]
fn same(t: &Tensor, expected: &[f64]) {
    let got = t.to_vec::<f64>().unwrap();
    let close = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-6 * b.abs();
    assert!(
        got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| close(*a, *b)),
        "{got:?} {expected:?}"
    );
}

/// Division of integers is true in every face, and gives f32, as in PyTorch and JAX.
#[test]
fn slash_is_true_division_of_every_dtype() {
    let all = [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];
    for dtype in all {
        let x = ints(&[7, 1, 6]).cast(dtype);
        let y = ints(&[2, 4, 3]).cast(dtype);
        let expected = [3.5, 0.25, 2.0];
        let faces = [&x / &y, x.clone() / y.clone(), np::divide(&x, &y), np::true_divide(&x, &y)];
        for q in faces.iter().chain([&jit(|(x, y): (Tensor, Tensor)| x / y).call((x.clone(), y.clone()))]) {
            assert_eq!(q.dtype(), DType::F32, "{dtype}");
            same(q, &expected);
        }
        same(&(&x / 2), &[3.5, 0.5, 3.0]);
        same(&(7 / &y), &[3.5, 1.75, 7.0 / 3.0]);
        same(&x.floor_divide(&y), &[3.0, 0.0, 2.0]);
        assert_eq!(x.floor_divide(2).dtype(), dtype);
        // An integer has no place for a quotient.
        let error = x.div_(&y).error().unwrap().to_string();
        assert!(error.contains("floor_divide_") && error.contains("operators.rs"), "{error}");
        same(&x, &[7.0, 1.0, 6.0]);
        same(&x.floor_divide_(2), &[3.0, 0.0, 3.0]);
    }
    same(&(ints(&[1, 0]).bool() / ints(&[4, 4])), &[0.25, 0.0]);
    // Wider and narrower floats keep their dtype.
    for dtype in [DType::F64, DType::BF16, DType::F16] {
        assert_eq!((floats(&[1.0]).cast(dtype) / ints(&[2])).dtype(), dtype);
    }
}

#[test]
fn floor_divide_and_remainder_are_python_s() {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for x in [-7i64, -6, -1, 0, 1, 5, 7, i64::MIN, i64::MAX] {
        for y in [-3i64, -1, 1, 2, 3, i64::MAX] {
            if x != i64::MIN || y != -1 {
                (a.push(x), b.push(y));
            }
        }
    }
    let (x, y) = (ints(&a), ints(&b));
    let floor = |x: &i64, y: &i64| {
        let (x, y) = (i128::from(*x), i128::from(*y));
        (x / y - i128::from(x % y != 0 && (x < 0) != (y < 0))) as i64
    };
    let floor: Vec<i64> = a.iter().zip(&b).map(|(x, y)| floor(x, y)).collect();
    let rest = |x: &i64, y: &i64, q: &i64| (i128::from(*x) - i128::from(*y) * i128::from(*q)) as i64;
    let rest: Vec<i64> = a.iter().zip(&b).zip(&floor).map(|((x, y), q)| rest(x, y, q)).collect();
    assert_eq!(x.floor_divide(&y).to_vec::<i64>().unwrap(), floor);
    assert_eq!(np::floor_divide(&x, &y).to_vec::<i64>().unwrap(), floor);
    assert_eq!((&x % &y).to_vec::<i64>().unwrap(), rest);
    assert_eq!(x.remainder(&y).to_vec::<i64>().unwrap(), rest);
    same(&(floats(&[-7.5, 7.5]) % 2.0), &[0.5, 1.5]);
    same(&(floats(&[-7.5, 7.5]) % -2), &[-1.5, -0.5]);
    same(&(-7 % ints(&[2, -2])), &[1.0, -1.0]);
    same(&floats(&[-7.5]).fmod(2.0), &[-1.5]);
}

/// Every number type at the right of every operator.
#[test]
fn numbers_of_every_type_stand_beside_tensors() {
    let x = floats(&[1.5, -4.0]);
    let i = ints(&[6, 13]);
    macro_rules! check {
        ($($t:ty),*) => { $({
            let n = <$t>::try_from(3u8).ok().unwrap();
            same(&(&x + n), &[4.5, -1.0]);
            same(&(&x - n), &[-1.5, -7.0]);
            same(&(&x * n), &[4.5, -12.0]);
            same(&(&x / n), &[0.5, -4.0 / 3.0]);
            same(&(&x % n), &[1.5, 2.0]);
            same(&(x.clone() + &n), &[4.5, -1.0]);
            same(&(Number::from(n) - &x), &[1.5, 7.0]);
            same(&x.maximum(n), &[3.0, 3.0]);
            same(&x.minimum(n), &[1.5, -4.0]);
            same(&x.pow(n), &[3.375, -64.0]);
            same(&x.gt(n), &[0.0, 0.0]);
            same(&x.le(n), &[1.0, 1.0]);
            same(&np::maximum(&x, n), &[3.0, 3.0]);
            same(&x.gt(0.0).select(&x, n), &[1.5, 3.0]);
            let y = x.copy();
            same(&y.add_(n), &[4.5, -1.0]);
        })* };
    }
    check!(u8, u16, u32, u64, usize, i16, i32, i64, isize, f32, f64);
    same(&(&x + 3i8), &[4.5, -1.0]);
    macro_rules! bits {
        ($($t:ty),*) => { $({
            let n = 3 as $t;
            same(&(&i & n), &[2.0, 1.0]);
            same(&(&i | n), &[7.0, 15.0]);
            same(&(&i ^ n), &[5.0, 14.0]);
            same(&(&i << n), &[48.0, 104.0]);
            same(&(&i >> n), &[0.0, 1.0]);
            same(&(&i % n), &[0.0, 1.0]);
            assert_eq!((&i & n).dtype(), DType::I64);
        })* };
    }
    bits!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);
    // Literals have one meaning, also where a method follows.
    same(&(2.0 * &x - 1).sum(), &[-7.0]);
    same(&(1.0 - (2 * &x)).sum(), &[7.0]);
    same(&(1 / floats(&[4.0])), &[0.25]);
    same(&(1 << ints(&[3])), &[8.0]);
    same(&(6 & ints(&[3])), &[2.0]);
    // Bools.
    let (t, f) = (x.gt(0), x.lt(0));
    same(&(&t | &f), &[1.0, 1.0]);
    same(&(&t & &f), &[0.0, 0.0]);
    same(&(&t ^ !&f), &[0.0, 0.0]);
    // Operands in a variable.
    for o in [Operand::from(2), Operand::from(&floats(&[2.0, 2.0]))] {
        same(&(&x * o), &[3.0, -8.0]);
    }
}

#[test]
fn a_number_never_wraps_round() {
    let bytes = ints(&[1, 2]).cast(DType::U8);
    for bad in [&bytes + 300, &bytes * -1, bytes.maximum(256), np::add(&bytes, 300)] {
        let error = bad.to_vec::<i64>().unwrap_err().to_string();
        assert!(
            error.contains("is not representable in u8") && error.contains("cast") && error.contains("operators.rs"),
            "{error}"
        );
    }
    same(&bytes.lt(300), &[1.0, 1.0]);
    same(&bytes.gt(-1), &[1.0, 1.0]);
    same(&bytes.eq(257), &[0.0, 0.0]);
    // Above i64, as floats and as themselves.
    same(&(floats(&[0.0]) + u64::MAX), &[u64::MAX as f64]);
    let big = tensor(&[0u64], 1) + u64::MAX;
    assert_eq!(big.to_vec::<u64>().unwrap(), [u64::MAX]);
    assert!((ints(&[0]) + u64::MAX).error().is_some());
}

#[test]
fn assignment_is_in_place_and_seen_by_views() {
    let base = floats(&[1.0, 2.0, 3.0, 4.0]).reshape((2, 2));
    let mut row = base.i(0);
    row += 1;
    row -= &floats(&[0.5, 0.5]);
    row *= 2.0f32;
    row /= floats(&[1.0, 2.0]);
    same(&base, &[3.0, 2.5, 3.0, 4.0]);
    row %= 2;
    same(&base, &[1.0, 0.5, 3.0, 4.0]);
    let mut bits = ints(&[12, 5]);
    bits &= 6;
    bits |= 1;
    bits ^= 2;
    bits <<= 2;
    bits >>= 1;
    same(&bits, &[(((12 & 6) | 1) ^ 2) as f64 * 2.0, (((5 & 6) | 1) ^ 2) as f64 * 2.0]);
    // What doesn't fit is an error from there on.
    let mut x = floats(&[1.0, 2.0]);
    x += floats(&[1.0, 2.0, 3.0]);
    let error = x.sum().item::<f64>().unwrap_err().to_string();
    assert!(error.contains("add") && error.contains("operators.rs"), "{error}");
}

/// `i` against an index computed by hand, for many indices of each kind.
#[test]
fn indexing_is_numpy_s() {
    let data: Vec<i64> = (0..2 * 3 * 4).collect();
    let x = ints(&data).reshape((2, 3, 4));
    assert_eq!(x.i((0, 1..3, ..)).shape(), [2, 4]);
    assert_eq!(x.i((0, 1..3, ..)).to_vec::<i64>().unwrap(), [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(x.i(1).shape(), [3, 4]);
    assert_eq!(x.i((.., .., -1)).to_vec::<i64>().unwrap(), [3, 7, 11, 15, 19, 23]);
    assert_eq!(x.i((Ellipsis, 0)).to_vec::<i64>().unwrap(), [0, 4, 8, 12, 16, 20]);
    assert_eq!(x.i((NewAxis, 0, NewAxis, ..2)).shape(), [1, 1, 2, 4]);
    assert_eq!(x.i((0usize, 1i64, 2u32)).item::<i64>().unwrap(), 6);
    assert_eq!(x.i((.., &ints(&[2, 0]))).to_vec::<i64>().unwrap()[..8], [8, 9, 10, 11, 0, 1, 2, 3]);
    let line = ints(&(0..10).collect::<Vec<i64>>());
    let python = |start: Option<i64>, end: Option<i64>, step: i64| -> Vec<i64> {
        let n = 10;
        let clip = |i: i64, low, high| (if i < 0 { i + n } else { i }).clamp(low, high);
        let (mut at, end) = match step > 0 {
            true => (start.map_or(0, |i| clip(i, 0, n)), end.map_or(n, |i| clip(i, 0, n))),
            false => (start.map_or(n - 1, |i| clip(i, -1, n - 1)), end.map_or(-1, |i| clip(i, -1, n - 1))),
        };
        let mut all = Vec::new();
        while (step > 0 && at < end) || (step < 0 && at > end) {
            all.push(at);
            at += step;
        }
        all
    };
    for by in [1, 2, 3, -1, -2, -3] {
        let take = |p: Tensor| p.to_vec::<i64>().unwrap();
        assert_eq!(take(line.i(step(.., by as isize))), python(None, None, by));
        for a in [-12i64, -10, -3, -1, 0, 1, 4, 9, 10, 13] {
            assert_eq!(take(line.i(step(a.., by as isize))), python(Some(a), None, by), "{a}.. by {by}");
            assert_eq!(take(line.i(step(..a, by as isize))), python(None, Some(a), by), "..{a} by {by}");
            for b in [-11i64, -4, -1, 0, 2, 8, 12] {
                assert_eq!(take(line.i(step(a..b, by as isize))), python(Some(a), Some(b), by), "{a}..{b} by {by}");
            }
        }
    }
    assert_eq!(line.i(2..=-1).to_vec::<i64>().unwrap(), python(Some(2), None, 1));
    assert_eq!(line.i(..=3).to_vec::<i64>().unwrap(), [0, 1, 2, 3]);
    // A view: writes go through.
    x.i((1, .., 0)).fill_(-1);
    assert_eq!(x.to_vec::<i64>().unwrap().iter().filter(|v| **v == -1).count(), 3);
    for (bad, says) in [
        (x.i((2, 0)), "index 2 is outside an axis of 2"),
        (x.i((0, 0, 0, 0)), "4 indices for 3 axes"),
        (x.i((Ellipsis, Ellipsis)), "only one Ellipsis"),
        (x.i(step(.., 0)), "step must not be 0"),
        (x.i(&x.gt(3)), "mask"),
    ] {
        let error = bad.to_vec::<i64>().unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("operators.rs"), "{error}");
    }
}

/// Shapes and axes are given in one way: any integers, as list, array, tuple or one number.
#[test]
fn shapes_and_axes_take_any_integers() {
    let n = 2usize;
    let x = zeros((n, 3));
    for y in [zeros(&[2, 3]), zeros([n, 3]), zeros(vec![2usize, 3]), zeros(x.shape()), x.reshape(x.shape())] {
        assert_eq!(y.shape(), [2, 3]);
    }
    assert_eq!(x.reshape((n, -1)).shape(), [2, 3]);
    assert_eq!(x.reshape(-1).shape(), [6]);
    assert_eq!(x.i(0).i(0).reshape(&[]).shape(), [0usize; 0]);
    assert_eq!((zeros(&[]).shape(), zeros(()).shape(), zeros(4).shape()), (&[][..], &[][..], &[4][..]));
    let error = zeros((2, -3)).to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("-3 is not a valid size") && error.contains("operators.rs"), "{error}");
    let y = ints(&(0..24).collect::<Vec<i64>>()).reshape((2, 3, 4)).float();
    let all = vec![1usize, 2];
    for s in
        [y.sum_axes([1, 2], false), y.sum_axes(&[-1, 1], false), y.sum_axes(&all, false), np::sum(&y, [-1isize, 1])]
    {
        same(&s, &[66.0, 210.0]);
    }
    same(&np::sum(&y, ()), &[276.0]);
    same(&y.sum_axes((), false), &[276.0]);
    assert_eq!(y.max_axes(-1, true).shape(), [2, 3, 1]);
    assert_eq!(y.mean_axes(axes(0).keep(), false).shape(), [1, 3, 4]);
    assert_eq!(np::cumsum(&y, 1).shape(), [2, 3, 4]);
    assert_eq!(np::argmax(&y, ()).item::<i64>().unwrap(), 23);
    assert_eq!(np::sort(&y, -1).shape(), [2, 3, 4]);
    assert_eq!(np::transpose(&y, ()).shape(), [4, 3, 2]);
    assert_eq!(np::transpose(&y, [0, 2, 1]).shape(), [2, 4, 3]);
    let error = np::cumsum(&y, [0, 1]).to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("one axis"), "{error}");
}

#[test]
fn literals_without_a_suffix_are_f32_and_i32() {
    assert_eq!(tensor(&[1.0, 2.0], &[2]).dtype(), DType::F32);
    assert_eq!(tensor(&[[1.0, 2.0], [3.0, 4.0]], (2, 2)).dtype(), DType::F32);
    assert_eq!(tensor(&[1, 2], &[2]).dtype(), DType::I32);
    assert_eq!(tensor(&[true, false], 2).dtype(), DType::Bool);
    assert_eq!(tensor(&vec![1.0f64, 2.0], 2).dtype(), DType::F64);
    assert_eq!(tensor_of::<f64>(&[0.1], 1).to_vec::<f64>().unwrap(), [0.1]);
    assert_eq!(np::array(&[1.0], 1).dtype(), DType::F32);
}

/// Functions of real numbers take integers, as in NumPy and PyTorch.
#[test]
fn real_functions_of_integers() {
    let i = ints(&[1, 4]);
    same(&i.sqrt(), &[1.0, 2.0]);
    same(&i.exp(), &[1f32.exp() as f64, 4f32.exp() as f64]);
    same(&i.floor(), &[1.0, 4.0]);
    assert_eq!((i.floor().dtype(), i.sqrt().dtype()), (DType::I64, DType::F32));
    same(&i.is_finite(), &[1.0, 1.0]);
    same(&i.atan2(0), &[std::f64::consts::FRAC_PI_2; 2]);
    same(&i.pow(0.5), &[1.0, 2.0]);
    same(&i.mean(), &[2.5]);
}

/// One import brings everything, and further globs don't clash with it.
mod globs {
    use tensorloom::lax::*;
    use tensorloom::nn::*;
    use tensorloom::optim::*;
    use tensorloom::optimizer::*;
    use tensorloom::prelude::*;
    use tensorloom::*;

    #[test]
    fn layers_optimisers_and_schedules_have_their_own_names() {
        let model = Linear::new(2, 1);
        let optimizer = Adam::new(model.parameters(), 0.1);
        let mut scheduler = Scheduler::new(&optimizer, LinearLr { start: 0.1, end: 1.0, steps: 10 });
        let loss = mse_loss(&model.forward(&ones((3, 2))), &zeros((3, 1)));
        loss.backward().unwrap();
        optimizer.step().unwrap();
        scheduler.step(&optimizer);
        let _: (Checkpoint, Checkpointed<fn(Tensor) -> Tensor>) = (Checkpoint::All, checkpoint(|x| x));
        let chain = adam(0.1);
        let state = chain.init(&vec![zeros(2)]);
        assert_eq!(chain.update(&vec![ones(2)], &state, &vec![zeros(2)]).0.len(), 1);
    }
}
