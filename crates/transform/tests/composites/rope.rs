//! Rotary embedding. Expected values follow HuggingFace's Llama (halves) and GPT-J (interleaved), in f64.

use super::check::*;
use ir::composites::rope::*;
use ir::{DType, Literal, Type, interp};

const COS: [f64; 6] = [1.0, 1.0, 0.5403023058681398, 0.9999500004166653, -0.4161468365471424, 0.9998000066665778];
const SIN: [f64; 6] = [0.0, 0.0, 0.8414709848078965, 0.009999833334166664, 0.9092974268256817, 0.01999866669333308];
const HALVES: [f64; 18] = [
    0.958851077208406,
    1.682941969615793,
    1.994989973208109,
    1.8185948536513634,
    1.196944288207913,
    0.2822400161197344,
    1.2660684880209156,
    -1.4943511451435563,
    -1.6466713693761657,
    -1.932888455337833,
    -1.4110806511407838,
    -0.5588309963978517,
    -1.8848849355292454,
    1.2741387199287522,
    -0.38947534277815743,
    2.0045984751589088,
    1.5969742252469805,
    0.8242369704835132,
];
const INTERLEAVED: [f64; 18] = [
    0.958851077208406,
    1.682941969615793,
    1.994989973208109,
    1.8185948536513634,
    1.196944288207913,
    0.2822400161197344,
    0.894596708502531,
    -1.4081520827194252,
    -1.9357843172795972,
    -1.9373029342094699,
    -1.4110806511407838,
    -0.5588309963978517,
    -1.37383545238951,
    -0.15558968616733804,
    1.8360530744362245,
    2.0158382609271257,
    1.5969742252469805,
    0.8242369704835132,
];

const HALF: RopeOptions = RopeOptions { layout: RopeLayout::Halves, has_head_axis: false };
const INTER: RopeOptions = RopeOptions { layout: RopeLayout::Interleaved, has_head_axis: false };

fn inside(r: RopeOptions) -> RopeOptions {
    RopeOptions { has_head_axis: true, ..r }
}

#[test]
fn forward_equals_the_reference_models() {
    let x = wave(&[3, 6], 0.5);
    let (cos, sin) = (Literal::new(&[3, 2], &COS), Literal::new(&[3, 2], &SIN));
    for (options, expected) in [(HALF, HALVES), (INTER, INTERLEAVED)] {
        let c = rope(x.ty(), cos.ty(), sin.ty(), options).unwrap();
        close_to(&run(&c, &[x.clone(), cos.clone(), sin.clone()])[0], &expected, 1e-12);
        // An axis of heads between positions and features.
        let heads = x.reshaped(&[3, 1, 6]);
        let c = rope(heads.ty(), cos.ty(), sin.ty(), inside(options)).unwrap();
        close_to(&run(&c, &[heads, cos.clone(), sin.clone()])[0], &expected, 1e-12);
    }
}

#[test]
fn derivatives_batching_text_and_bf16() {
    let mut n = Numbers::new(10);
    let (cos, sin) = (n.fill(&[2, 2]), n.fill(&[2, 2]));
    let (flat, heads) = (n.fill(&[2, 2, 5]), n.fill(&[1, 2, 2, 4]));
    for (x, options) in [(&flat, HALF), (&flat, INTER), (&heads, inside(HALF)), (&heads, inside(INTER))] {
        let c = rope(x.ty(), cos.ty(), sin.ty(), options).unwrap();
        check_all(&c, &[x.clone(), cos.clone(), sin.clone()], &[]);
    }
    // Separate positions for each sequence.
    let (cos, sin) = (n.fill(&[2, 2, 2]), n.fill(&[2, 2, 2]));
    let c = rope(flat.ty(), cos.ty(), sin.ty(), HALF).unwrap();
    check_all(&c, &[flat, cos, sin], &[]);
}

#[test]
fn backward_is_the_composite_itself_with_angles_reversed() {
    let (x, t) = (Type::new(F, &[2, 3, 4]), Type::new(F, &[3, 2]));
    let c = rope(&x, &t, &t, HALF).unwrap();
    let g = tensorloom_transform::vjp(&graph_of(&c), &[0]).unwrap();
    assert!(holds(&g, "rope"), "{g}");
    // A rotation preserves lengths, and the rotation by the negative angle inverts it.
    let mut n = Numbers::new(11);
    let (v, angles) = (n.fill(&[2, 3, 4]), n.fill(&[3, 2]));
    let of = |f: fn(f64) -> f64| Literal::from_fn(t.clone(), |i| ir::Scalar::from_f64(F, f(angles.get(i).to_f64())));
    let (cos, sin) = (of(f64::cos), of(f64::sin));
    let y = run(&c, &[v.clone(), cos.clone(), sin.clone()]).remove(0);
    let outs = interp::run(&g, &[v.clone(), cos, sin, y]).unwrap();
    close(&outs[1], &v, 1e-12);
}

#[test]
fn tables_may_be_wider_than_x() {
    let (x, t) = (Type::new(DType::BF16, &[3, 4]), Type::new(DType::F32, &[3, 2]));
    let c = rope(&x, &t, &t, INTER).unwrap();
    assert_eq!(c.body.output_types(), [x]);
}

#[test]
fn misfits_name_what_was_found() {
    let x = Type::new(F, &[2, 3, 4]);
    let bad = |shape: &[usize], o| rope(&x, &Type::new(F, shape), &Type::new(F, shape), o).unwrap_err().to_string();
    assert!(bad(&[3, 3], HALF).contains("rotates 2·3 of 4 features"));
    assert!(bad(&[2, 2], HALF).contains("needs cos and sin of [3, R/2]"));
    assert!(bad(&[3, 3, 2], HALF).contains("axes [2] in front"));
    assert!(bad(&[2], HALF).contains("[3, R/2]"));
    assert!(rope(&Type::new(F, &[4]), &Type::new(F, &[1, 2]), &Type::new(F, &[1, 2]), HALF).is_err());
}

#[test]
fn backward_keeps_the_tables_alone() {
    let (x, t) = (Type::new(F, &[2, 3, 4]), Type::new(F, &[3, 2]));
    assert_eq!(kept(&rope(&x, &t, &t, HALF).unwrap()), ["f64[3,2]", "f64[3,2]"]);
}
