//! Cross-entropy. Expected values are `torch.nn.functional.cross_entropy`'s in f64.

use super::check::*;
use ir::composites::loss::*;
use ir::{DType, Literal, Type, interp};

const PLAIN: [f64; 4] = [0.7407072421309854, 1.9085356271530578, 0.0, 0.35725255834252484];
const SMOOTH: [f64; 4] = [0.9048966139154421, 1.9341703012868348, 0.0, 0.5841871491952562];
const Z_LOSS: [f64; 4] = [0.8129823223600645, 1.983216087856991, 0.0, 0.40962799834957475];
const SMOOTH_GRAD: [f64; 20] = [
    0.30570973273481433,
    -0.4432234002452806,
    0.13983028532587116,
    0.008059068811541982,
    -0.010375686626946908,
    -0.006133807182038847,
    0.04726301170132964,
    0.29808492569004535,
    0.4324884794494882,
    -0.7717026096588244,
    0.0,
    0.0,
    0.0,
    0.0,
    0.0,
    -0.22040421333169502,
    0.20422910375825767,
    0.019422755279116962,
    -0.005830990396309722,
    0.0025833446906301273,
];

const PYTORCH: CrossEntropyOptions =
    CrossEntropyOptions { ignore_index: Some(-100), label_smoothing: 0.0, z_loss: 0.0 };

fn smooth(label_smoothing: f64) -> CrossEntropyOptions {
    CrossEntropyOptions { label_smoothing, ..PYTORCH }
}

fn z_loss(z_loss: f64) -> CrossEntropyOptions {
    CrossEntropyOptions { z_loss, ..PYTORCH }
}

#[test]
fn forward_and_gradient_equal_pytorch() {
    let x = wave(&[4, 5], 0.9);
    let labels = Literal::new(&[4], &[1i64, 4, -100, 0]);
    for (options, expected) in [(PYTORCH, PLAIN), (smooth(0.1), SMOOTH), (z_loss(0.01), Z_LOSS)] {
        let c = cross_entropy(x.ty(), labels.ty(), options).unwrap();
        close_to(&run(&c, &[x.clone(), labels.clone()])[0], &expected, 1e-12);
    }
    let c = cross_entropy(x.ty(), labels.ty(), smooth(0.1)).unwrap();
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0]).unwrap();
    let ones = Literal::new(&[4], &[1.0f64; 4]);
    let outs = interp::run(&g, &[x, labels, ones]).unwrap();
    close_to(&outs[1], &SMOOTH_GRAD, 1e-12);
}

#[test]
fn derivatives_batching_text_and_bf16() {
    let x = Numbers::new(6).fill(&[2, 2, 3]);
    let labels = Literal::new(&[2, 2], &[1i32, 2, -100, 0]);
    let none = CrossEntropyOptions::default();
    for options in [PYTORCH, smooth(0.2), z_loss(0.1)] {
        let c = cross_entropy(x.ty(), labels.ty(), options).unwrap();
        check_all(&c, &[x.clone(), labels.clone()], &[]);
    }
    let bytes = Literal::new(&[2, 2], &[1u8, 2, 1, 0]);
    check_all(&cross_entropy(x.ty(), bytes.ty(), none).unwrap(), &[x, bytes], &[]);
}

#[test]
fn backward_keeps_no_one_hot() {
    let t = Type::new(F, &[2, 7]);
    let c = cross_entropy(&t, &Type::new(DType::I32, &[2]), PYTORCH).unwrap();
    let l = tensorloom_transform::linearize(&graph_of(&c), &[true, false]).unwrap();
    let kept: Vec<String> = l.known.output_types()[1..].iter().map(Type::to_string).collect();
    assert_eq!(kept.iter().filter(|t| *t == "f64[2,7]").count(), 1, "{kept:?}");
    assert!(kept.iter().all(|t| t != "bool[2,7]"), "{kept:?}");
}

#[test]
fn a_wrong_label_gives_nan_and_many_classes_fit_a_small_label() {
    let x = Numbers::new(8).fill(&[3, 300]);
    let labels = Literal::new(&[3], &[44u8, 255, 0]);
    let c = cross_entropy(x.ty(), labels.ty(), CrossEntropyOptions::default()).unwrap();
    let got = run(&c, &[x.clone(), labels])[0].to_vec::<f64>();
    let wide = Literal::new(&[3], &[44i64, 255, 300]);
    let c = cross_entropy(x.ty(), wide.ty(), CrossEntropyOptions::default()).unwrap();
    let expected = run(&c, &[x.clone(), wide.clone()])[0].to_vec::<f64>();
    assert_eq!(got[..2], expected[..2]);
    assert!(expected[2].is_nan());
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0]).unwrap();
    let outs = interp::run(&g, &[x, wide, Literal::new(&[3], &[1.0f64; 3])]).unwrap();
    let dx = outs[1].to_vec::<f64>();
    assert!(dx[..600].iter().all(|d| d.is_finite()) && dx[600..].iter().all(|d| d.is_nan()));
}

#[test]
fn misfits_name_what_was_found() {
    let x = Type::new(F, &[2, 3]);
    let e = cross_entropy(&x, &Type::new(DType::I32, &[3]), PYTORCH).unwrap_err();
    assert_eq!(e.to_string(), "cross_entropy(f64[2,3], i32[3]): needs integer labels of shape [2], got i32[3]");
    assert!(cross_entropy(&x, &Type::new(F, &[2]), PYTORCH).is_err());
    assert!(cross_entropy(&x, &Type::new(DType::I32, &[2]), smooth(2.0)).is_err());
}
