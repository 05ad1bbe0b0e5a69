//! Random attributes and operands: type inference never panics, and ops that it accepts run, batch and differentiate.

mod checks;

use checks::*;
use ir::ops::*;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Shape, Type, Value, verify};

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    /// A size that is usually small, and sometimes very large.
    fn size(&mut self, wild: bool) -> usize {
        match wild {
            true => self.pick(&[0, 1, 2, 3, 1 << 31, 1 << 62, usize::MAX >> 1, usize::MAX]),
            false => self.below(4),
        }
    }

    fn sizes(&mut self, wild: bool) -> Shape {
        (0..self.below(4)).map(|_| self.size(wild)).collect()
    }

    fn ty(&mut self, wild: bool) -> Type {
        let dtype = match wild {
            true => self.pick(&DType::ALL),
            false => self.pick(&[F, F, F, DType::I32]),
        };
        let shape = self.sizes(wild);
        Type::checked(dtype, &shape).unwrap_or(Type::scalar(dtype))
    }

    fn op(&mut self, wild: bool, args: &[Type]) -> Op {
        let axis = self.size(wild);
        match self.below(14) {
            0 => Sort { axis, num_keys: self.size(wild), descending: self.flag() }.into(),
            1 => TopK { k: self.size(wild), axis }.into(),
            2 => TakeAlong { axis }.into(),
            3 => PutAlong { axis, size: self.size(wild) }.into(),
            4 => {
                let length = self.size(wild);
                let inverse = FftKind::InverseReal { length };
                Fft {
                    kind: self.pick(&[FftKind::Forward, FftKind::Inverse, FftKind::Real, inverse]),
                    axes: self.sizes(wild),
                }
                .into()
            }
            5 => Cholesky.into(),
            6 => TriangularSolve { left: self.flag(), lower: self.flag(), transpose: self.flag(), unit: self.flag() }
                .into(),
            7 => Lu.into(),
            8 => Qr { full: self.flag() }.into(),
            9 => Eigh.into(),
            10 => Svd { vectors: self.flag() }.into(),
            11 => Name::new("n").into(),
            12 => Cond::new((0..self.below(3)).map(|_| self.body(args.get(1..).unwrap_or_default()))).into(),
            _ => {
                let (cond_consts, body_consts) = (self.size(wild), self.size(wild));
                While::new(cond_consts, body_consts, self.body(args), self.body(args)).into()
            }
        }
    }

    /// A graph over these types that returns some of its inputs.
    fn body(&mut self, types: &[Type]) -> Graph {
        let mut b = Builder::new();
        let ins: Vec<Value> = types.iter().map(|t| b.graph.input(t.clone())).collect();
        let outs: Vec<Value> = ins.iter().copied().filter(|_| self.flag()).collect();
        b.finish(&outs)
    }
}

fn fill(t: &Type, seed: u64) -> Literal {
    let noise = random(&t.shape, seed);
    Literal::from_fn(t.clone(), |i| Scalar::from_f64(t.dtype, noise.get(i).to_f64() * 3.0))
}

#[test]
fn inference_answers_whatever_it_is_asked() {
    let mut rng = Rng(7);
    for _ in 0..40_000 {
        let like = rng.ty(true);
        let args: Vec<Type> = (0..rng.below(4)).map(|_| if rng.flag() { like.clone() } else { rng.ty(true) }).collect();
        let op = rng.op(true, &args);
        if let Ok(outs) = op.infer(&args) {
            for t in outs {
                assert!(Type::checked(t.dtype, &t.shape).is_ok(), "{} gave {t}", op.name());
            }
        }
    }
}

#[test]
fn what_is_accepted_runs_batches_and_differentiates() {
    let mut rng = Rng(11);
    let mut accepted = std::collections::BTreeMap::new();
    for round in 0..200_000u64 {
        let like = rng.ty(false);
        let mut args: Vec<Type> =
            (0..rng.below(4)).map(|_| if rng.below(4) > 0 { like.clone() } else { rng.ty(false) }).collect();
        if rng.below(4) == 0 {
            args.insert(0, Type::scalar(DType::I32));
        }
        let op = rng.op(false, &args);
        // A random loop may not terminate.
        if op.infer(&args).is_err() || matches!(op, Op::While(_)) {
            continue;
        }
        *accepted.entry(op.name()).or_insert(0) += 1;
        if accepted[op.name()] > 60 {
            continue;
        }
        let x: Vec<Literal> = args.iter().enumerate().map(|(i, t)| fill(t, round + i as u64)).collect();
        let g = graph(&x.iter().collect::<Vec<_>>(), |b, v| Ok(b.emit(op.clone(), v)?.to_vec()));
        run(&g, &x);
        check_text(&g);
        let wrt: Vec<usize> = (0..x.len()).filter(|&i| args[i].dtype == F).collect();
        let back = tensorloom_transform::grad(&loss(&g), &wrt).unwrap();
        verify::verify(&back).unwrap();
        run(&back, &x);
        let rows: Vec<Vec<Literal>> = (0..2)
            .map(|k| args.iter().enumerate().map(|(i, t)| fill(t, round + 50 * k + i as u64)).collect())
            .collect();
        check_vmap(&g, &rows);
    }
    for name in ["sort", "top_k", "take_along", "put_along", "fft", "ifft", "rfft", "irfft", "cond", "triangular_solve"]
    {
        assert!(accepted.get(name).is_some_and(|n| *n >= 5), "{name}: {accepted:?}");
    }
    assert!(accepted.len() >= 16, "{accepted:?}");
}
