//! The unit cases of §16 with their figures.

mod support;

use support::{Rng, assert_close};
use tensorloom_vsla::{ConvAlgorithm, DType, Error, Model, ProgramFault, Pyramid, Tensor, Window};

fn v(x: &[f64]) -> Tensor {
    Tensor::vector(x)
}

fn b(x: &[f64]) -> Tensor {
    Tensor::vector(x).in_model(Model::B)
}

#[test]
fn s16_addition_and_subtraction_promote() {
    let sum = v(&[1., 2., 3.]).add(&v(&[4., 5.])).unwrap();
    assert_eq!(sum.to_vec::<f64>(), [5., 7., 3.]);
    let gap = v(&[1., 2., 3.]).sub(&v(&[0., 2., 3.])).unwrap();
    // Nothing shrinks by itself (§6.4); the class, and what `shrink` gives, is that of [1].
    assert_eq!(gap.shape(), [3]);
    assert_eq!(gap, v(&[1.]));
    assert_eq!(gap.shrink().shape(), [1]);
    assert_eq!(gap.shrink().capacity(), [1]);
}

#[test]
fn s16_hadamard() {
    let y = v(&[1., 2., 3.]).hadamard(&v(&[4., 5.])).unwrap();
    assert_eq!(y.to_vec::<f64>(), [4., 10., 0.]);
}

#[test]
fn s16_kronecker_does_not_commute() {
    let (x, y) = (b(&[1., 2.]), b(&[0., 1.]));
    assert_eq!(x.kronecker(&y).unwrap().to_vec::<f64>(), [0., 1., 0., 2.]);
    assert_eq!(y.kronecker(&x).unwrap().to_vec::<f64>(), [0., 0., 1., 2.]);
}

#[test]
fn s16_convolution_of_short_vectors_and_empty_operands() {
    assert_eq!(v(&[1., 2.]).conv1d(&v(&[3., 4., 5.])).unwrap().to_vec::<f64>(), [3., 10., 13., 10.]);
    for path in [ConvAlgorithm::Direct, ConvAlgorithm::Fft] {
        for (m, n) in [(0, 0), (0, 3), (3, 0)] {
            let y = v(&vec![1.; m]).conv1d_by(&v(&vec![1.; n]), path).unwrap();
            assert_eq!(y.shape(), [0]);
        }
        // L = 1, 2 and 4.
        assert_eq!(v(&[3.]).conv1d_by(&v(&[4.]), path).unwrap().to_vec::<f64>(), [12.]);
        assert_close(&v(&[3., 1.]).conv1d_by(&v(&[4.]), path).unwrap(), &v(&[12., 4.]));
        assert_close(&v(&[3., 1.]).conv1d_by(&v(&[4., 1.]), path).unwrap(), &v(&[12., 7., 1.]));
    }
    // Trailing zeros of operands are trailing zeros of the result.
    let y = v(&[1., 2., 0.]).conv1d(&v(&[3., 0.])).unwrap();
    assert_eq!(y.shape(), [4]);
    assert_eq!(y.shrink().to_vec::<f64>(), [3., 6.]);
}

#[test]
fn s16_stack_promotes_heterogeneous_shapes() {
    let y = Tensor::stack(&[&v(&[1.]), &v(&[2., 3., 4.]), &v(&[])]).unwrap();
    assert_eq!(y.shape(), [3, 3]);
    assert_eq!(y.to_vec::<f64>(), [1., 0., 0., 2., 3., 4., 0., 0., 0.]);
    let m = Tensor::from_slice(&[1, 2], &[1., 2.]).unwrap();
    let n = Tensor::from_slice(&[2, 1], &[3., 4.]).unwrap();
    let y = Tensor::stack(&[&m, &n]).unwrap();
    assert_eq!(y.to_vec::<f64>(), [1., 2., 0., 0., 3., 0., 4., 0.]);
}

#[test]
fn s16_window_pyramid_of_a_power_of_two() {
    let mut rng = Rng(3);
    for height in 1..=5usize {
        let stream: Vec<Tensor> = (0..1 << height).map(|_| rng.vector(4)).collect();
        let levels = Pyramid::stack_levels(&vec![2; height], &stream).unwrap();
        for (k, level) in levels.iter().enumerate() {
            assert_eq!(level.len(), 1 << (height - k));
            assert!(level.iter().all(|t| t.shape().len() == k + 1));
        }
        // The top holds the whole stream: walking its axes gives each element back.
        let top = &levels[height][0];
        for (i, t) in stream.iter().enumerate() {
            let bits: Vec<usize> = (0..height).rev().map(|k| i >> k & 1).collect();
            for (j, x) in t.to_vec::<f64>().into_iter().enumerate() {
                assert_eq!(top.get(&[&bits[..], &[j]].concat()), x);
            }
        }
    }
}

#[test]
fn s14_2_a_window_of_4_over_100_tensors_gives_25() {
    let stream: Vec<Tensor> = (0..100).map(|i| Tensor::from_slice(&[1, 2], &[i as f64, 1.]).unwrap()).collect();
    let levels = Pyramid::stack_levels(&[4], &stream).unwrap();
    assert_eq!(levels[1].len(), 25);
    assert_eq!(levels[1][24].shape(), [4, 1, 2]);
    assert_eq!(levels[1][24].get(&[3, 0, 0]), 99.);
    let mut overlapping = Window::new(3, 1).unwrap();
    let full: Vec<bool> = stream[..5].iter().map(|t| overlapping.push(t.clone()).unwrap().is_some()).collect();
    assert_eq!(full, [false, false, true, true, true]);
    let mut sparse = Window::new(2, 3).unwrap();
    let full: Vec<bool> = stream[..8].iter().map(|t| sparse.push(t.clone()).unwrap().is_some()).collect();
    assert_eq!(full, [false, true, false, false, true, false, false, true]);
}

#[test]
fn a_window_refuses_what_does_not_stack_and_goes_on() {
    let mut window = Window::new(2, 2).unwrap();
    assert!(window.push(v(&[1.])).unwrap().is_none());
    assert!(window.push(Tensor::vector(&[1.0f32])).is_err());
    assert!(window.push(b(&[1.])).is_err());
    assert!(window.push(Tensor::from_slice(&[1, 1], &[1.0f64]).unwrap()).is_err());
    assert_eq!(window.push(v(&[2., 3.])).unwrap().unwrap().shape(), [2, 2]);
    assert!(Window::new(usize::MAX, 1).unwrap().push(v(&[1.])).unwrap().is_none());
    assert!(Window::new(0, 1).is_err() && Window::new(1, 0).is_err());
}

#[test]
fn s15_empty_operands_are_handled_by_every_op() {
    let e = v(&[]);
    let x = v(&[1., 2.]);
    assert_eq!(e.add(&x).unwrap(), x);
    assert_eq!(x.sub(&e).unwrap(), x);
    assert_eq!(e.hadamard(&x).unwrap(), e);
    assert_eq!(e.add(&e).unwrap().shape(), [0]);
    for y in [e.relu(), e.gelu(), e.sigmoid(), e.tanh(), e.exp(), e.log(), e.softmax(), e.mul_scalar(3.)] {
        assert_eq!(y.unwrap().shape(), [0]);
    }
    assert_eq!(e.sum(0).unwrap().to_vec::<f64>(), [0.]);
    assert_eq!(e.mean(0).unwrap().to_vec::<f64>(), [0.]);
    assert_eq!(e.layernorm(&e, &e, 1e-5).unwrap().shape(), [0]);
    assert_eq!(e.rmsnorm(&e, 1e-5).unwrap().shape(), [0]);
    assert_eq!(e.dropout(0.5, 1).unwrap().shape(), [0]);
    assert_eq!(e.mask(&x).unwrap(), e);
    let eb = b(&[]);
    assert_eq!(eb.kronecker(&b(&[1., 2.])).unwrap().shape(), [0]);
    assert_eq!(Tensor::stack(&[&e, &e]).unwrap().shape(), [2, 0]);
    assert_eq!(e.repeat(3).unwrap().shape(), [3, 0]);
    assert_eq!(e.reshape(&[0, 4]).unwrap().shape(), [0, 4]);
    assert_eq!(e.transpose(&[0]).unwrap().shape(), [0]);
    assert_eq!(e.slice(&[0], &[2]).unwrap().to_vec::<f64>(), [0., 0.]);
    assert_eq!(e.gather(&[0, 1]).unwrap().to_vec::<f64>(), [0., 0.]);
    assert_eq!(e.scatter(&[], 2).unwrap().to_vec::<f64>(), [0., 0.]);
    let (m, n) = (Tensor::zeros(DType::F64, &[2, 0]).unwrap(), Tensor::zeros(DType::F64, &[3, 2]).unwrap());
    assert_eq!(m.matmul(&n).unwrap().to_vec::<f64>(), [0.; 4]);
    assert_eq!(m.sum(1).unwrap().to_vec::<f64>(), [0.; 2]);
    assert_eq!(m.sum(0).unwrap().shape(), [0]);
}

#[test]
fn s4_3_higher_ranks() {
    let x = Tensor::from_slice(&[2, 2], &[1., 2., 3., 4.]).unwrap();
    let k = Tensor::from_slice(&[1, 2], &[1., 1.]).unwrap();
    // A batch row that one operand lacks is convolved with zero.
    assert_eq!(x.conv1d(&k).unwrap().to_vec::<f64>(), [1., 3., 2., 0., 0., 0.]);
    let wide = Tensor::from_slice(&[2, 3], &[1., 0., 9., 0., 1., 9.]).unwrap();
    // Columns that the right operand has no rows for add no terms.
    assert_eq!(wide.matmul(&x).unwrap().to_vec::<f64>(), [1., 2., 3., 4.]);
    let batch = Tensor::from_slice(&[2, 1, 2], &[1., 0., 0., 1.]).unwrap();
    assert_eq!(batch.matmul(&x).unwrap().to_vec::<f64>(), [1., 2., 3., 4.]);
    let single = Tensor::from_slice(&[1, 2, 2], &[1., 2., 3., 4.]).unwrap();
    let y = batch.matmul(&single).unwrap();
    assert_eq!((y.shape(), y.to_vec::<f64>()), (&[2usize, 1, 2][..], vec![1., 2., 0., 0.]));
    let t = Tensor::from_slice(&[2, 1, 2], &[1., 2., 3., 4.]).unwrap();
    assert_eq!(t.sum(-1).unwrap().to_vec::<f64>(), [3., 7.]);
    assert_eq!(t.mean(0).unwrap().to_vec::<f64>(), [2., 3.]);
    assert_eq!(t.transpose(&[2, 0, 1]).unwrap().to_vec::<f64>(), [1., 3., 2., 4.]);
    assert_eq!(x.slice(&[1, 0], &[3, 1]).unwrap().to_vec::<f64>(), [3., 0.]);
    assert_eq!(x.gather(&[1, 1, 5, 0]).unwrap().to_vec::<f64>(), [3., 4., 3., 4., 0., 0., 1., 2.]);
    assert_eq!(x.scatter(&[2, 2], 3).unwrap().to_vec::<f64>(), [0., 0., 0., 0., 4., 6.]);
}

#[test]
fn mixing_models_is_an_error() {
    let mixed = |r: tensorloom_vsla::Result<Tensor>| match r {
        Err(Error::InvalidProgram(ProgramFault::MixedModels { .. })) => {}
        other => panic!("{other:?}"),
    };
    mixed(v(&[1.]).add(&b(&[1.])));
    mixed(v(&[1.]).kronecker(&v(&[1.])));
    mixed(b(&[1.]).conv1d(&b(&[1.])));
    mixed(Tensor::stack(&[&v(&[1.]), &b(&[1.])]));
    assert_ne!(v(&[1.]), b(&[1.]));
}

#[test]
fn a_tensor_grows_inside_its_capacity_and_doubles_beyond() {
    let mut t = Tensor::zeros(DType::F32, &[0, 3]).unwrap();
    let mut moved = 0;
    for i in 0..100 {
        let before = t.capacity().to_vec();
        t.push(&Tensor::vector(&[i as f32, 1., 2.])).unwrap();
        moved += usize::from(before != t.capacity());
    }
    assert_eq!(t.shape(), [100, 3]);
    assert_eq!(t.capacity(), [128, 4]);
    assert_eq!(moved, 8);
    assert_eq!(t.get(&[99, 0]), 99.);
    // Cut and grown again: what was cut is gone.
    t.resize(&[2, 1]).unwrap();
    t.resize(&[3, 2]).unwrap();
    assert_eq!(t.to_vec::<f32>(), [0., 0., 1., 0., 0., 0.]);
}

#[test]
fn dropout_keeps_scaled_elements_and_repeats_by_seed() {
    let x = Tensor::vector(&vec![1.0f32; 1000]);
    let y = x.dropout(0.25, 7).unwrap();
    let kept = y.to_vec::<f32>().iter().filter(|x| **x != 0.).count();
    assert!((650..850).contains(&kept), "{kept}");
    assert!(y.to_vec::<f32>().iter().all(|x| *x == 0. || (*x - 4. / 3.).abs() < 1e-6));
    assert_eq!(y, x.dropout(0.25, 7).unwrap());
    assert_ne!(y, x.dropout(0.25, 8).unwrap());
    assert_eq!(x.dropout(0., 1).unwrap(), x);
}

#[test]
fn s15_reductions_accumulate_in_f64() {
    // In f32, 2²⁴ + 1 = 2²⁴: a sum in f32 would lose every one.
    let mut data = vec![1.0f32; 65];
    data[0] = 16777216.0;
    assert_eq!(Tensor::vector(&data).sum(0).unwrap().to_vec::<f32>(), [16777280.0]);
    let ones = Tensor::vector(&vec![half::f16::from_f32(1.0); 4096]);
    assert_eq!(ones.sum(0).unwrap().to_vec::<f32>(), [4096.0]);
    assert_eq!(ones.mean(0).unwrap().to_vec::<f32>(), [1.0]);
}

#[test]
fn tensors_survive_saving() {
    let dir = std::env::temp_dir().join(format!("vsla-{}.safetensors", std::process::id()));
    let mut rng = Rng(5);
    let mut kept = Vec::new();
    for dtype in tensorloom_vsla::shape::DTYPES {
        let mut t = rng.tensor(dtype, &[2, 3]);
        t.resize(&[4, 5]).unwrap();
        kept.push((format!("{dtype}"), t));
    }
    kept.push(("b".into(), b(&[1., 0.])));
    kept.push(("empty".into(), Tensor::zeros(DType::F64, &[3, 0]).unwrap()));
    let list: Vec<(&str, &Tensor)> = kept.iter().map(|(n, t)| (n.as_str(), t)).collect();
    tensorloom_vsla::io::save(&dir, &list).unwrap();
    let found = tensorloom_vsla::io::load(&dir).unwrap();
    std::fs::remove_file(&dir).unwrap();
    assert_eq!(found.len(), kept.len());
    for (name, t) in &kept {
        let (_, f) = found.iter().find(|(n, _)| n == name).unwrap();
        assert_eq!((f, f.shape(), f.model()), (t, t.shape(), t.model()), "{name}");
    }
    // Any prefix of a file, and any file with one byte changed, is read or refused; nothing panics.
    let bytes = tensorloom_vsla::io::to_safetensors(&list).unwrap();
    for n in 0..bytes.len() {
        let _ = tensorloom_vsla::io::from_safetensors(&bytes[..n]);
        let mut bad = bytes.clone();
        bad[n] ^= 1 << (n % 8);
        let _ = tensorloom_vsla::io::from_safetensors(&bad);
    }
}
