//! Normalizations. Expected values are `torch.nn.functional`'s in f64.

use super::check::*;
use ir::composites::norm::*;
use ir::{DType, Type};
use std::slice::from_ref;

const EPS: f64 = 1e-5;
const RMSNORM: [f64; 8] = [
    0.5084148482184033,
    1.4859576005917445,
    1.805749859596577,
    0.8338001508164951,
    -0.27665664359696,
    -1.3133902711997059,
    -2.053854907717447,
    -1.570225641621745,
];
const RMSNORM_PLAIN: [f64; 8] = [
    0.8602031887468138,
    1.3158393767804095,
    1.1526157453567594,
    0.44729891877399997,
    -0.4680841400364936,
    -1.163028228555551,
    -1.3109819683675696,
    -0.842360403798001,
];
const LAYERNORM: [f64; 8] = [
    1.6323402417110802,
    2.889584250364874,
    0.6750211502294022,
    -4.709073657253791,
    2.6548808409574844,
    0.8605625984900291,
    -2.0806584288832903,
    -1.3059727704262623,
];
const LAYERNORM_PLAIN: [f64; 8] = [
    -0.2539157645212618,
    1.1269002091482434,
    0.6322472305891705,
    -1.5052316752161525,
    1.4761530703625336,
    -0.6698311274751882,
    -1.1267116059093583,
    0.3203896630220132,
];
const RESIDUAL_NORM: [f64; 8] = [
    0.4156224150319693,
    1.2953197428018006,
    1.866244781923041,
    1.6365691820892523,
    0.9408142046947845,
    0.22150164161318012,
    0.01523204653162062,
    2.227181031426451,
];

#[test]
fn forward_equals_pytorch() {
    let (x, w, c, r) = (wave(&[2, 4], 0.7), wave(&[4], 0.3), wave(&[4], 1.1), wave(&[2, 4], 0.2));
    let (tx, tw) = (x.ty(), w.ty());
    let first = |c: ir::Result<_>, args: &[_]| run(&c.unwrap(), args).remove(0);
    close_to(&first(rmsnorm(tx, tw, EPS), &[x.clone(), w.clone()]), &RMSNORM, 1e-12);
    close_to(&first(rmsnorm_plain(tx, EPS), from_ref(&x)), &RMSNORM_PLAIN, 1e-12);
    let full = layernorm(tx, Some(tw), Some(tw), EPS);
    close_to(&first(full, &[x.clone(), w.clone(), c]), &LAYERNORM, 1e-12);
    close_to(&first(layernorm(tx, None, None, EPS), from_ref(&x)), &LAYERNORM_PLAIN, 1e-12);
    let fused = fused_residual_rmsnorm(tx, tx, tw, EPS).unwrap();
    let outs = run(&fused, &[r.clone(), x.clone(), w.clone()]);
    let sum: Vec<f64> = x.scalars().zip(r.scalars()).map(|(a, b)| a.to_f64() + b.to_f64()).collect();
    close_to(&outs[0], &sum, 0.0);
    close_to(&outs[1], &RESIDUAL_NORM, 1e-12);
    let both = qk_norm(tx, tx, tw, tw, EPS).unwrap();
    let outs = run(&both, &[x.clone(), x, w.clone(), w]);
    close_to(&outs[0], &RMSNORM, 1e-12);
    close_to(&outs[1], &RMSNORM, 1e-12);
}

#[test]
fn derivatives_batching_text_and_bf16() {
    let mut n = Numbers::new(4);
    let (x, r, w, c) = (n.fill(&[2, 2, 3]), n.fill(&[2, 2, 3]), n.fill(&[3]), n.fill(&[3]));
    let (tx, tw) = (x.ty(), w.ty());
    check_all(&rmsnorm(tx, tw, EPS).unwrap(), &[x.clone(), w.clone()], &[1]);
    check_all(&rmsnorm_plain(tx, EPS).unwrap(), from_ref(&x), &[]);
    check_all(&layernorm(tx, None, None, EPS).unwrap(), from_ref(&x), &[]);
    check_all(&layernorm(tx, Some(tw), None, EPS).unwrap(), &[x.clone(), w.clone()], &[1]);
    let full = layernorm(tx, Some(tw), Some(tw), EPS).unwrap();
    check_all(&full, &[x.clone(), w.clone(), c.clone()], &[1, 2]);
    let fused = fused_residual_rmsnorm(tx, tx, tw, EPS).unwrap();
    check_all(&fused, &[r, x.clone(), w.clone()], &[2]);
    let k = n.fill(&[1, 3]);
    let both = qk_norm(tx, k.ty(), tw, tw, EPS).unwrap();
    check_all(&both, &[x, k, w, c], &[2, 3]);
}

#[test]
fn misfits_name_what_was_found() {
    let (x, w) = (Type::new(F, &[2, 4]), Type::new(F, &[3]));
    assert_eq!(
        rmsnorm(&x, &w, EPS).unwrap_err().to_string(),
        "rmsnorm(f64[2,4], f64[3]): needs a weight of f64[4], got f64[3]"
    );
    assert!(layernorm(&x, None, Some(&w), EPS).unwrap_err().to_string().contains("together with a weight"));
    assert!(rmsnorm_plain(&Type::scalar(F), EPS).unwrap_err().to_string().contains("last axis"));
    assert!(rmsnorm_plain(&Type::new(DType::I32, &[2]), EPS).is_err());
    assert!(fused_residual_rmsnorm(&w, &x, &Type::new(F, &[4]), EPS).is_err());
    assert!(qk_norm(&x, &x, &w, &w, EPS).is_err());
}

#[test]
fn backward_keeps_no_result_but_the_statistics() {
    let (x, w) = (Type::new(F, &[2, 4]), Type::new(F, &[4]));
    assert_eq!(kept(&rmsnorm(&x, &w, EPS).unwrap()), ["f64[2,4]", "f64[4]", "f64[2]"]);
    let c = layernorm(&x, Some(&w), Some(&w), EPS).unwrap();
    assert_eq!(kept(&c), ["f64[2,4]", "f64[4]", "f64[2]", "f64[2]"]);
}
