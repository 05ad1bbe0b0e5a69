//! The laws of the two models, on random tensors of different shapes. Elements are small whole numbers, so f64 is exact
//! and laws hold to the bit; transforms are compared within §15's tolerance.

mod support;

use support::{Rng, assert_close};
use tensorloom_vsla::{ConvAlgorithm, DType, Model, Tensor};

const CASES: usize = 150;

fn zero() -> Tensor {
    Tensor::vector::<f64>(&[])
}

fn one() -> Tensor {
    Tensor::vector(&[1.0f64])
}

fn each(name: &str, mut law: impl FnMut(&mut Rng)) {
    let mut rng = Rng::fresh(name);
    for _ in 0..CASES {
        law(&mut rng);
    }
}

/// Trailing zeros of a vector.
fn zeros(t: &Tensor) -> usize {
    t.to_vec::<f64>().iter().rev().take_while(|x| **x == 0.).count()
}

#[test]
fn addition_is_a_commutative_monoid() {
    each("addition", |r| {
        let (a, b, c) = (r.vector(8), r.vector(8), r.vector(8));
        assert_eq!(a.add(&b).unwrap(), b.add(&a).unwrap());
        assert_eq!(a.add(&b).unwrap().add(&c).unwrap(), a.add(&b.add(&c).unwrap()).unwrap());
        assert_eq!(a.add(&zero()).unwrap(), a);
        assert_eq!(a.sub(&a).unwrap(), zero());
    });
}

#[test]
fn model_a_is_a_commutative_semiring() {
    each("model A", |r| {
        let (a, b, c) = (r.vector(9), r.vector(9), r.vector(9));
        let conv = |x: &Tensor, y: &Tensor| x.conv1d(y).unwrap();
        assert_eq!(conv(&a, &b), conv(&b, &a));
        assert_eq!(conv(&conv(&a, &b), &c), conv(&a, &conv(&b, &c)));
        assert_eq!(conv(&a, &b.add(&c).unwrap()), conv(&a, &b).add(&conv(&a, &c)).unwrap());
        assert_eq!(conv(&a, &one()), a);
        assert_eq!(conv(&a, &zero()), zero());
    });
}

#[test]
fn model_a_by_transforms_keeps_the_laws_within_tolerance() {
    each("transforms", |r| {
        let (a, b, c) = (r.whole(&[1 + r.0 as usize % 40]), r.vector(30), r.whole(&[3]));
        let conv = |x: &Tensor, y: &Tensor| x.conv1d_by(y, ConvAlgorithm::Fft).unwrap();
        let near = |x: Tensor, y: Tensor| {
            let ambient = tensorloom_vsla::shape::ambient("", &[x.shape(), y.shape()]).unwrap();
            let wide = |mut t: Tensor| {
                t.resize(&ambient).unwrap();
                t
            };
            let (x, y) = (wide(x), wide(y));
            for (x, y) in x.to_vec::<f64>().into_iter().zip(y.to_vec::<f64>()) {
                assert!((x - y).abs() < 1e-9, "{x} {y}");
            }
        };
        near(conv(&a, &b), a.conv1d(&b).unwrap());
        near(conv(&conv(&a, &b), &c), conv(&a, &conv(&b, &c)));
        near(conv(&a, &one()), a.clone());
    });
}

#[test]
fn model_b_is_a_monoid_that_distributes_from_the_left() {
    each("model B", |r| {
        let (a, b, c) = (r.vector(5), r.vector(5), r.vector(5));
        let [a, b, c] = [a, b, c].map(|t| t.in_model(Model::B));
        let kron = |x: &Tensor, y: &Tensor| x.kronecker(y).unwrap();
        assert_eq!(kron(&kron(&a, &b), &c), kron(&a, &kron(&b, &c)));
        let one = one().in_model(Model::B);
        assert_eq!(kron(&a, &one), a);
        assert_eq!(kron(&one, &a), a);
        assert_eq!(kron(&a, &zero().in_model(Model::B)), zero().in_model(Model::B));
        assert_eq!(kron(&a.add(&b).unwrap(), &c), kron(&a, &c).add(&kron(&b, &c)).unwrap());
        // From the right it distributes over tensors of one shape: the right factor's size is the stride of the result.
        let mut d = c.clone();
        d.resize(b.shape()).unwrap();
        assert_eq!(kron(&a, &b.add(&d).unwrap()), kron(&a, &b).add(&kron(&a, &d)).unwrap());
    });
}

#[test]
fn model_b_depends_on_the_right_factors_representative() {
    let b = |x: &[f64]| Tensor::vector(x).in_model(Model::B);
    let (x, y, same) = (b(&[1., 2.]), b(&[1.]), b(&[1., 0.]));
    assert_eq!(y, same);
    assert_eq!(x.kronecker(&y).unwrap().to_vec::<f64>(), [1., 2.]);
    assert_eq!(x.kronecker(&same).unwrap().to_vec::<f64>(), [1., 0., 2., 0.]);
    assert!(!tensorloom_vsla::Op::Kronecker.is_class_invariant());
    // So it distributes from the right over equal shapes alone.
    let (c, long) = (b(&[1., 1.]), b(&[1., 1.]));
    let left = c.kronecker(&y.add(&long).unwrap()).unwrap();
    let right = c.kronecker(&y).unwrap().add(&c.kronecker(&long).unwrap()).unwrap();
    assert_ne!(left, right);
}

#[test]
fn hadamard_is_commutative_associative_and_distributes() {
    each("hadamard", |r| {
        let (a, b, c) = (r.vector(8), r.vector(8), r.vector(8));
        let mul = |x: &Tensor, y: &Tensor| x.hadamard(y).unwrap();
        assert_eq!(mul(&a, &b), mul(&b, &a));
        assert_eq!(mul(&mul(&a, &b), &c), mul(&a, &mul(&b, &c)));
        assert_eq!(mul(&a, &b.add(&c).unwrap()), mul(&a, &b).add(&mul(&a, &c)).unwrap());
    });
}

#[test]
fn s16_shrink_is_idempotent_and_keeps_the_class() {
    each("shrink", |r| {
        let shape: Vec<usize> = (0..1 + r.below(3)).map(|_| r.below(5)).collect();
        let mut t = r.whole(&shape);
        let more: Vec<usize> = shape.iter().map(|d| d + r.below(3)).collect();
        t.resize(&more).unwrap();
        let s = t.shrink();
        assert_eq!(s, t);
        assert_eq!(s.shrink().shape(), s.shape());
        assert_eq!(s.shape(), t.minimal_shape());
        assert_eq!(s.shape(), s.capacity());
        assert!(t.capacity().iter().zip(t.shape()).all(|(c, s)| c >= s));
    });
}

#[test]
fn s16_adding_a_zero_tensor_changes_nothing() {
    each("zero", |r| {
        let t = r.vector(8);
        let z = Tensor::zeros(DType::F64, &[r.below(t.shape()[0] + 1)]).unwrap();
        let sum = t.add(&z).unwrap();
        assert_eq!(sum, t);
        assert_eq!(sum.shape(), t.shape());
        assert_eq!(sum.shape().len(), t.shape().len());
        assert_eq!(zeros(&sum), zeros(&t));
    });
}

/// Ops that respect classes give equal results for equal operands, whatever zeros trail them.
#[test]
fn equivalence_is_a_congruence() {
    each("congruence", |r| {
        let (a, b) = (r.vector(7), r.vector(7));
        let (mut c, mut d) = (a.clone(), b.clone());
        c.resize(&[a.shape()[0] + r.below(4)]).unwrap();
        d.resize(&[b.shape()[0] + r.below(4)]).unwrap();
        assert_eq!((&a, &b), (&c, &d));
        assert_eq!(a.add(&b).unwrap(), c.add(&d).unwrap());
        assert_eq!(a.sub(&b).unwrap(), c.sub(&d).unwrap());
        assert_eq!(a.hadamard(&b).unwrap(), c.hadamard(&d).unwrap());
        assert_eq!(a.conv1d(&b).unwrap(), c.conv1d(&d).unwrap());
        assert_eq!(a.sum(0).unwrap(), c.sum(0).unwrap());
        assert_eq!(a.relu().unwrap(), c.relu().unwrap());
        assert_eq!(a.mul_scalar(2.).unwrap(), c.mul_scalar(2.).unwrap());
        assert_eq!(a.gather(&[2, 0]).unwrap(), c.gather(&[2, 0]).unwrap());
        assert_eq!(Tensor::stack(&[&a, &b]).unwrap(), Tensor::stack(&[&c, &d]).unwrap());
        assert_close(&a.shrink().tanh().unwrap(), &c.shrink().tanh().unwrap());
    });
}

#[test]
fn matrices_of_any_shape_multiply_associatively() {
    each("matmul", |r| {
        let mut m = || {
            let shape = [1 + r.below(4), 1 + r.below(4)];
            r.whole(&shape)
        };
        let (a, b, c) = (m(), m(), m());
        let mul = |x: &Tensor, y: &Tensor| x.matmul(y).unwrap();
        assert_eq!(mul(&mul(&a, &b), &c), mul(&a, &mul(&b, &c)));
    });
}
