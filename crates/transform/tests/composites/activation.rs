//! Activations. Expected values are `torch.nn.functional`'s in f64.

use super::check::*;
use ir::composites::activation::*;
use ir::{DType, Literal, Type};
use std::slice::from_ref;

const RELU: [f64; 6] = [1.288435374475382, 1.9708994599769203, 1.7264187332977479, 0.6699763003118102, 0.0, 0.0];
const RELU2: [f64; 6] = [1.6600657141995179, 3.884444681337316, 2.9805216426814, 0.4488682429795009, 0.0, 0.0];
const GELU_ERF: [f64; 6] = [
    1.1611415339228857,
    1.9228731959491896,
    1.6536742603500887,
    0.5015198383627804,
    -0.1694106115313497,
    -0.07086533935806268,
];
const GELU_TANH: [f64; 6] = [
    1.1609124363315262,
    1.9229459792961399,
    1.6535577433038655,
    0.5014719496524916,
    -0.16946632345025103,
    -0.07097099383146643,
];
const SILU: [f64; 6] = [
    1.0099816104508181,
    1.729873614656434,
    1.4656496810883286,
    0.4431878838325588,
    -0.23254473639646106,
    -0.25957805156594765,
];
const SWIGLU: [f64; 6] = [
    0.7866107290079577,
    2.481870747920334,
    2.7320855782194453,
    0.8859978197337016,
    -0.422904660854317,
    -0.35067083262401133,
];
const GEGLU: [f64; 6] = [
    0.9043396226519477,
    2.7587695982831657,
    3.082578092208452,
    1.0026119836581553,
    -0.3080892662848429,
    -0.09573385502726735,
];

#[test]
fn forward_equals_pytorch() {
    let (x, up) = (wave(&[6], 0.7), wave(&[6], 0.4));
    let t = x.ty();
    let rows: [(_, &[Literal], &[f64]); 7] = [
        (relu(t), from_ref(&x), &RELU),
        (relu2(t), from_ref(&x), &RELU2),
        (gelu(t, Gelu::Erf), from_ref(&x), &GELU_ERF),
        (gelu(t, Gelu::Tanh), from_ref(&x), &GELU_TANH),
        (silu(t), from_ref(&x), &SILU),
        (swiglu(t, t), &[x.clone(), up.clone()], &SWIGLU),
        (geglu(t, t, Gelu::Erf), &[x.clone(), up.clone()], &GEGLU),
    ];
    for (c, args, expected) in rows {
        close_to(&run(&c.unwrap(), args)[0], expected, 1e-12);
    }
}

#[test]
fn fused_halves_equal_two_operands() {
    let x = Numbers::new(1).fill(&[3, 8]);
    let t = Type::new(F, &[3, 4]);
    let half = |k: usize| Literal::from_fn(t.clone(), |i| x.get(i / 4 * 8 + i % 4 + 4 * k));
    for (one, two) in
        [(swiglu_fused(x.ty()), swiglu(&t, &t)), (geglu_fused(x.ty(), Gelu::Tanh), geglu(&t, &t, Gelu::Tanh))]
    {
        let expected = run(&two.unwrap(), &[half(0), half(1)]);
        close(&run(&one.unwrap(), from_ref(&x))[0], &expected[0], 0.0);
    }
}

#[test]
fn derivatives_batching_text_and_bf16() {
    let mut numbers = Numbers::new(2);
    let (x, y) = (numbers.fill(&[2, 6]), numbers.fill(&[2, 6]));
    let t = x.ty();
    for c in [relu(t), relu2(t), gelu(t, Gelu::Erf), gelu(t, Gelu::Tanh), silu(t)] {
        check_all(&c.unwrap(), from_ref(&x), &[]);
    }
    for c in [swiglu(t, t), geglu(t, t, Gelu::Tanh), geglu(t, t, Gelu::Erf)] {
        check_all(&c.unwrap(), &[x.clone(), y.clone()], &[]);
    }
    for c in [swiglu_fused(t), geglu_fused(t, Gelu::Erf)] {
        check_all(&c.unwrap(), from_ref(&x), &[]);
    }
}

#[test]
fn relu_keeps_nan_and_has_slope_zero_at_zero() {
    let x = Literal::new(&[3], &[f64::NAN, 0.0, -0.0]);
    let c = relu(x.ty()).unwrap();
    close_to(&run(&c, from_ref(&x))[0], &[f64::NAN, 0.0, 0.0], 0.0);
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0]).unwrap();
    let one = Literal::new(&[3], &[1.0f64; 3]);
    let outs = ir::interp::run(&g, &[Literal::new(&[3], &[1.0, 0.0, -1.0]), one]).unwrap();
    close_to(&outs[1], &[1.0, 0.0, 0.0], 0.0);
}

#[test]
fn misfits_name_what_was_found() {
    let (i, f) = (Type::new(DType::I32, &[3]), Type::new(F, &[3]));
    assert_eq!(relu(&i).unwrap_err().to_string(), "relu(i32[3]): needs a float operand");
    assert_eq!(
        swiglu(&f, &Type::new(F, &[4])).unwrap_err().to_string(),
        "swiglu(f64[3], f64[4]): needs gate and up of one float type"
    );
    assert!(swiglu_fused(&f).unwrap_err().to_string().contains("equal parts"));
    assert!(geglu_fused(&Type::scalar(F), Gelu::Erf).is_err());
}

#[test]
fn backward_keeps_the_inputs_alone() {
    let t = Type::new(F, &[3]);
    assert_eq!(kept(&silu(&t).unwrap()), ["f64[3]"]);
    assert_eq!(kept(&swiglu(&t, &t).unwrap()), ["f64[3]", "f64[3]"]);
}
