//! Convolutions and their derivatives against the interpreter.

mod harness;

use harness::{Random, close, run, same};
use ir::ops::{Conv, WindowConfig};
use ir::{Builder, DType, Graph, GraphBuilder};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

fn graph(conv: &Conv, x: &[usize], k: &[usize], dtype: DType) -> Graph {
    let mut b = Builder::new();
    let (x, k) = (b.input(dtype, x), b.input(dtype, k));
    let y = b.one(conv.clone().into(), &[x, k]).unwrap();
    b.finish(&[y])
}

fn check(conv: &Conv, x: &[usize], k: &[usize], dtype: DType) {
    let what = format!("{conv:?} of {x:?} and {k:?} in {dtype}");
    let tolerance = match dtype {
        DType::F64 => 1e-13,
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        _ => 1e-5,
    };
    let forward = graph(conv, x, k, dtype);
    let both = if dtype.is_float() { Some(transform::vjp(&forward, &[0, 1]).unwrap()) } else { None };
    for graph in std::iter::once(forward).chain(both) {
        let mut random = Random(5);
        let inputs: Vec<_> = graph.input_types().iter().map(|t| random.literal(t)).collect();
        let (one, want) = (run(&Cpu::new(1), &graph, &inputs, true), ir::interp::run(&graph, &inputs).unwrap());
        close(&what, &one, &want, tolerance);
        if Target::available().contains(&Target::Avx2) {
            close(&what, &run(&Cpu::with_target(1, Some(Target::Avx2)), &graph, &inputs, true), &want, tolerance);
        }
        for threads in [2, 3] {
            same(&what, &run(&Cpu::new(threads), &graph, &inputs, true), &one);
        }
    }
}

#[test]
fn two_axes() {
    let plain = Conv::new(DType::F32, WindowConfig::strided(&[1, 1], &[1, 1]));
    check(&plain, &[2, 3, 8, 8], &[5, 3, 3, 3], DType::F32);
    check(&plain, &[3, 4, 7, 9], &[2, 4, 3, 2], DType::F32);
    check(&Conv::new(DType::F32, WindowConfig::unit_stride(2)), &[1, 2, 6, 5], &[3, 2, 1, 1], DType::F32);
    let strided = Conv::new(DType::F32, WindowConfig::strided(&[2, 3], &[2, 0]));
    check(&strided, &[2, 3, 9, 11], &[4, 3, 3, 3], DType::F32);
    let mut dilated = strided;
    dilated.windows.window_dilation = [2, 1][..].into();
    dilated.windows.base_dilation = [1, 2][..].into();
    dilated.windows.low = [-1, 3][..].into();
    check(&dilated, &[2, 3, 9, 7], &[4, 3, 3, 3], DType::F32);
}

#[test]
fn groups() {
    let grouped = |groups| Conv { groups, ..Conv::new(DType::F32, WindowConfig::strided(&[1, 1], &[1, 1])) };
    check(&grouped(2), &[2, 4, 5, 6], &[6, 2, 3, 3], DType::F32);
    check(&grouped(4), &[3, 4, 6, 6], &[4, 1, 3, 3], DType::F32);
    let batched = Conv { batch_groups: 2, ..Conv::new(DType::F32, WindowConfig::unit_stride(2)) };
    check(&batched, &[4, 3, 5, 5], &[6, 3, 2, 2], DType::F32);
}

#[test]
fn ranks_and_dtypes() {
    check(&Conv::new(DType::F32, WindowConfig::strided(&[2], &[1])), &[2, 3, 17], &[4, 3, 5], DType::F32);
    check(&Conv::new(DType::F32, WindowConfig::unit_stride(0)), &[3, 4], &[5, 4], DType::F32);
    let three = WindowConfig::strided(&[1, 2, 1], &[1, 0, 1]);
    check(&Conv::new(DType::F32, three), &[2, 2, 4, 5, 6], &[3, 2, 2, 3, 2], DType::F32);
    for dtype in [DType::F64, DType::BF16, DType::F16, DType::I32] {
        check(&Conv::new(dtype, WindowConfig::strided(&[1, 1], &[1, 1])), &[2, 3, 6, 6], &[4, 3, 3, 3], dtype);
    }
}

/// Random widths on both sides of full and half vectors, with random strides, dilation, padding and groups, for all ways to read
/// windows and to sum their gradients.
#[test]
fn shapes_by_lot() {
    let mut r = Random(11);
    for round in 0..48 {
        let rank = 1 + r.below(4).min(1);
        let groups = [1, 1, 2, 3][r.below(4)];
        let (features, outs) = (groups * (1 + r.below(5)), groups * [2, 5, 8, 13, 18, 33][r.below(6)]);
        let mut w = WindowConfig::unit_stride(rank);
        let (mut x, mut k) = (vec![1 + r.below(3), features], vec![outs, features / groups]);
        for a in 0..rank {
            let window = [1, 2, 3, 3, 5][r.below(5)];
            (w.strides[a], w.window_dilation[a]) = ([1, 1, 2, 3][r.below(4)], [1, 1, 1, 2][r.below(4)]);
            (w.low[a], w.high[a]) = (r.below(4) as i64 - 1, r.below(4) as i64 - 1);
            let count = if a + 1 == rank { [4, 7, 8, 14, 16, 17, 24, 28, 32, 33][r.below(10)] } else { 2 + r.below(7) };
            let seen = (count - 1) * w.strides[a] + (window - 1) * w.window_dilation[a] + 1;
            x.push((seen as i64 - w.low[a] - w.high[a]).max(1) as usize);
            k.push(window);
        }
        let dtype = if round % 6 == 5 { DType::BF16 } else { DType::F32 };
        check(&Conv { groups, ..Conv::new(dtype, w) }, &x, &k, dtype);
    }
}

/// Random depthwise convolutions with strides and dilation, whose gradients have dilated inputs.
#[test]
fn features_alone_by_lot() {
    let mut r = Random(37);
    for round in 0..64 {
        let (groups, outs, rank) = (1 + r.below(3), 1 + r.below(3), if round < 40 { 1 + r.below(4).min(1) } else { 3 });
        let mut w = WindowConfig::unit_stride(rank);
        let (mut x, mut k) = (vec![1 + r.below(3), groups], vec![groups * outs, 1]);
        for a in 0..rank {
            (w.strides[a], w.window_dilation[a]) = (1 + r.below(4), 1 + r.below(4) / 3);
            (w.low[a], w.high[a]) = (r.below(4) as i64 - 1, r.below(4) as i64 - 1);
            let window = 1 + r.below(if rank == 3 { 4 } else { 7 });
            let seen = r.below(if a + 1 == rank { 40 } else { 8 }) * w.strides[a] + (window - 1) * w.window_dilation[a];
            x.push((seen as i64 + 1 - w.low[a] - w.high[a]).max(1) as usize);
            k.push(window);
        }
        check(&Conv { groups, ..Conv::new(DType::F32, w) }, &x, &k, DType::F32);
    }
}

/// Random convolutions with three or more axes: strides, dilation of windows and inputs, padding, groups, and all their
/// gradients; also 16-bit floats.
#[test]
fn volumes_by_lot() {
    let mut r = Random(29);
    for round in 0..40 {
        let rank = if round % 10 == 9 { 4 } else { 3 };
        let groups = [1, 1, 2, 3][r.below(4)];
        let (features, outs) = (groups * (1 + r.below(3)), groups * [1, 2, 3, 5][r.below(4)]);
        let mut w = WindowConfig::unit_stride(rank);
        let (mut x, mut k) = (vec![1 + r.below(3), features], vec![outs, features / groups]);
        for a in 0..rank {
            let window = 1 + r.below(3);
            (w.strides[a], w.window_dilation[a]) = ([1, 1, 2, 3][r.below(4)], [1, 1, 1, 2][r.below(4)]);
            if w.strides[a] == 1 && round % 3 == 0 {
                w.base_dilation[a] = 1 + r.below(3);
            }
            (w.low[a], w.high[a]) = (r.below(4) as i64 - 1, r.below(4) as i64 - 1);
            let seen = r.below(3) * w.strides[a] + (window - 1) * w.window_dilation[a] + 1;
            let base = (seen as i64 - w.low[a] - w.high[a]).max(1) as usize;
            x.push((base - 1).div_ceil(w.base_dilation[a]) + 1);
            k.push(window);
        }
        let dtype = [DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16][round % 5];
        check(&Conv { groups, ..Conv::new(dtype, w) }, &x, &k, dtype);
    }
    let batched = Conv { batch_groups: 2, ..Conv::new(DType::F32, WindowConfig::unit_stride(3)) };
    check(&batched, &[4, 3, 5, 4, 5], &[6, 3, 2, 2, 3], DType::F32);
}

/// One output feature and many input features: too few for matmul, but not for vectors of positions.
#[test]
fn one_output_feature() {
    for (x, k, stride) in [
        (&[2usize, 9, 7, 21][..], &[1usize, 9, 3, 3][..], 1),
        (&[3, 5, 48, 8], &[1, 5, 7, 7], 1),
        (&[2, 7, 11, 19], &[1, 7, 4, 2], 3),
        (&[2, 6, 130], &[1, 6, 5], 2),
        (&[1, 40, 16, 16], &[1, 40, 5, 5], 1),
        (&[2, 3, 6, 7, 18], &[1, 3, 3, 2, 3], 1),
        (&[2, 4, 5, 9, 8], &[1, 4, 2, 3, 3], 2),
    ] {
        let rank = x.len() - 2;
        let windows = WindowConfig::strided(&vec![stride; rank], &vec![1; rank]);
        check(&Conv::new(DType::F32, windows.clone()), x, k, DType::F32);
        check(&Conv::new(DType::BF16, windows), x, k, DType::BF16);
    }
}

/// Depthwise 3 × 3 windows, with few and many rows, narrow and wide.
#[test]
fn three_by_three_alone() {
    for (rows, cols) in [(1usize, 9usize), (2, 16), (3, 33), (4, 8), (5, 17), (7, 32), (12, 19), (9, 50), (6, 5)] {
        for (stride, hop) in [(1usize, 1usize), (2, 1), (1, 2)] {
            let mut windows = WindowConfig::strided(&[1, stride], &[1, 1]);
            windows.window_dilation[1] = hop;
            let conv = Conv { groups: 3, ..Conv::new(DType::F32, windows) };
            check(&conv, &[2, 3, rows, cols], &[6, 1, 3, 3], DType::F32);
        }
    }
}

/// 16-bit floats with windows that are wider than the results, or that have very many elements; planes of all widths, with strides.
#[test]
fn sixteen_bits_under_large_windows() {
    for (x, k, stride, hop) in [
        (&[2usize, 6, 39, 11][..], &[4usize, 6, 7, 7][..], 2usize, 1usize),
        (&[2, 5, 15, 15], &[9, 5, 5, 5], 3, 2),
        (&[1, 130, 12, 9], &[3, 130, 6, 6], 1, 1),
        (&[3, 7, 20, 20], &[5, 7, 7, 7], 2, 1),
        (&[2, 4, 9, 40], &[3, 4, 3, 5], 1, 1),
        (&[2, 3, 9, 70], &[3, 3, 3, 5], 2, 1),
        (&[1, 3, 5, 300], &[3, 3, 2, 3], 2, 2),
        (&[2, 5, 6, 18, 6], &[3, 5, 2, 2, 2], 2, 1),
    ] {
        let rank = x.len() - 2;
        let pad = k[2] as i64 / 2;
        let mut windows = WindowConfig::strided(&vec![stride; rank], &vec![pad; rank]);
        windows.window_dilation = vec![hop; rank][..].into();
        check(&Conv::new(DType::BF16, windows), x, k, DType::BF16);
    }
    for (kernel, spread) in [(4usize, 3usize), (5, 2), (2, 3)] {
        let windows =
            WindowConfig { base_dilation: [spread][..].into(), ..WindowConfig::strided(&[1], &[kernel as i64 - 1]) };
        check(&Conv::new(DType::BF16, windows), &[2, 6, 33], &[5, 6, kernel], DType::BF16);
    }
}

/// Inputs dilated by more than the window's extent: some results, and whole lines of them, use no input.
#[test]
fn spread_beyond_windows() {
    for (kernel, spread) in [(1usize, 2usize), (1, 3), (2, 3), (1, 4), (3, 4), (2, 5)] {
        for x in [&[2usize, 3, 5, 9][..], &[1, 2, 4, 3, 17], &[2, 3, 40]] {
            let rank = x.len() - 2;
            let edge = vec![kernel as i64 - 1; rank];
            let windows = WindowConfig {
                base_dilation: vec![spread; rank][..].into(),
                ..WindowConfig::strided(&vec![1; rank], &edge)
            };
            let k = [&[4, x[1]][..], &vec![kernel; rank]].concat();
            check(&Conv::new(DType::F32, windows), x, &k, DType::F32);
        }
    }
}

/// 16-bit floats with windows of all kinds: depthwise, with strides, with dilation.
#[test]
fn sixteen_bits_by_lot() {
    let mut r = Random(31);
    for round in 0..24 {
        let features = 1 + r.below(4);
        let groups = [1, features][r.below(2)];
        let outs = groups * (1 + r.below(4));
        let mut w = WindowConfig::strided(&[1 + r.below(4), 1 + r.below(4)], &[1, r.below(3) as i64]);
        w.window_dilation[1] = 1 + r.below(2);
        let window = [1 + r.below(3), 1 + r.below(5)];
        let size = [6 + r.below(9), 9 + r.below(30)];
        let dtype = [DType::BF16, DType::F16][round % 2];
        let conv = Conv { groups, ..Conv::new(dtype, w) };
        check(&conv, &[2, features, size[0], size[1]], &[outs, features / groups, window[0], window[1]], dtype);
    }
}

/// Transposed convolutions with fewer output features than images and input features,
/// whose kernel gradient has a window as large as the input.
#[test]
fn transposed_to_few_features() {
    for (images, features, outs, kernel, spread) in [(8, 6, 3, 4, 2), (5, 9, 2, 3, 3), (7, 4, 1, 5, 2), (3, 8, 3, 2, 2)]
    {
        let edge = vec![kernel as i64 - 1; 2];
        let windows = WindowConfig { base_dilation: [spread; 2][..].into(), ..WindowConfig::strided(&[1, 1], &edge) };
        let x = [images, features, 6, 9];
        check(&Conv::new(DType::F32, windows), &x, &[outs, features, kernel, kernel], DType::F32);
    }
}

/// Padding zeros are multiplied like other elements: an infinite weight gives NaN.
#[test]
fn infinite_weights_meet_the_padding() {
    let image: (&[usize], &[usize]) = (&[2, 3, 16, 32], &[8, 3, 3, 3]);
    let volume: (&[usize], &[usize]) = (&[2, 2, 4, 6, 9], &[4, 2, 3, 3, 3]);
    let alone: (&[usize], &[usize]) = (&[2, 3, 9, 20], &[6, 1, 3, 3]);
    for (stride, (x, k)) in [(1, image), (2, image), (1, volume), (2, volume), (2, alone), (3, alone)] {
        let rank = x.len() - 2;
        let windows = WindowConfig::strided(&vec![stride; rank], &vec![1; rank]);
        let conv = Conv { groups: x[1] / k[1], ..Conv::new(DType::F32, windows) };
        let graph = graph(&conv, x, k, DType::F32);
        let both = transform::vjp(&graph, &[0, 1]).unwrap();
        for graph in [graph, both] {
            let mut random = Random(7);
            let mut inputs: Vec<_> = graph.input_types().iter().map(|t| random.literal(t)).collect();
            let weight = inputs[1].clone();
            let infinite =
                |i: usize| if i % 50 == 0 { ir::Scalar::from_f64(DType::F32, f64::INFINITY) } else { weight.get(i) };
            inputs[1] = ir::Literal::from_fn(weight.ty().clone(), infinite);
            let (got, want) = (run(&Cpu::new(2), &graph, &inputs, true), ir::interp::run(&graph, &inputs).unwrap());
            for (got, want) in got.iter().zip(&want) {
                for i in 0..want.ty().numel() {
                    let (got, want) = (got.get(i).to_f64(), want.get(i).to_f64());
                    assert!(
                        got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() < 1e-3,
                        "{got} {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn nothing_at_all() {
    let plain = Conv::new(DType::F32, WindowConfig::strided(&[1, 1], &[1, 1]));
    check(&plain, &[0, 3, 8, 8], &[5, 3, 3, 3], DType::F32);
    check(&plain, &[2, 0, 8, 8], &[5, 0, 3, 3], DType::F32);
    check(&plain, &[2, 3, 8, 8], &[0, 3, 3, 3], DType::F32);
    check(&plain, &[1, 2, 1, 1], &[2, 2, 4, 4], DType::F32);
}

#[test]
fn pieces_of_an_image() {
    // Large enough that the windows of an image do not fit in cache.
    let plain = Conv::new(DType::F32, WindowConfig::strided(&[1, 1], &[1, 1]));
    check(&plain, &[2, 40, 24, 24], &[7, 40, 3, 3], DType::F32);
}
