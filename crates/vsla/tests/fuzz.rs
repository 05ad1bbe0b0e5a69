//! Random DAGs of every op, with random shapes (empty ones too) and dtypes, against definitions (§16): 10,000 a run, of
//! fresh seeds. `VSLA_CASES` sets another number, `VSLA_SEED` repeats a run.

#[path = "support/poison.rs"]
mod poison;
#[path = "support/reference.rs"]
mod reference;
mod support;

use reference::{Array, eval, rounded};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::Rng;
use tensorloom_vsla::{
    Backend, ConvAlgorithm, DType, GeluForm, Model, Numerics, Op, Plan, ProgramBuilder, Stream, Tensor, ValueId,
};

struct Case {
    builder: ProgramBuilder,
    values: Vec<(ValueId, Array)>,
    dtype: DType,
    text: Vec<String>,
}

fn shape(rng: &mut Rng, rank: usize) -> Vec<usize> {
    (0..rank).map(|_| if rng.below(12) == 0 { 0 } else { 1 + rng.below(5) }).collect()
}

impl Case {
    fn new(rng: &mut Rng) -> Case {
        let dtype = tensorloom_vsla::shape::DTYPES[rng.below(4)];
        let mut builder = ProgramBuilder::new();
        builder.model(if rng.below(4) == 0 { Model::B } else { Model::A });
        let conv = [None, Some(ConvAlgorithm::Direct), Some(ConvAlgorithm::Fft)][rng.below(3)];
        builder.numerics(Numerics { conv, reduced_precision_products: rng.below(2) == 0 });
        Case { builder, values: Vec::new(), dtype, text: Vec::new() }
    }

    fn given(&mut self, rng: &mut Rng, shape: &[usize]) -> usize {
        let name = format!("x{}", self.values.len());
        let v = match rng.below(2) {
            0 => self.builder.input(&name, self.dtype, shape),
            _ => self.builder.param(&name, self.dtype, shape),
        };
        let data = Array::from_fn(shape, |_| rounded(rng.float(), self.dtype));
        self.values.push((v.unwrap(), data));
        self.values.len() - 1
    }

    fn add(&mut self, op: Op, args: &[usize]) -> bool {
        let ids: Vec<ValueId> = args.iter().map(|&a| self.values[a].0).collect();
        let Ok(outs) = self.builder.op(op.clone(), &ids) else { return false };
        let arrays: Vec<&Array> = args.iter().map(|&a| &self.values[a].1).collect();
        let results = eval(&op, &arrays, self.dtype);
        assert_eq!(outs.len(), results.len());
        // Values that grow large or break are not followed further.
        if results.iter().any(|r| r.data.len() > 4000 || r.data.iter().any(|x| x.is_nan() || x.abs() >= 50.0)) {
            return false;
        }
        self.text.push(format!("{op:?} {args:?}"));
        for (v, r) in outs.into_iter().zip(results) {
            assert_eq!(self.builder.signature(v).unwrap().shape, r.shape, "{op:?}");
            self.values.push((v, r));
        }
        true
    }
}

fn random_op(rng: &mut Rng, case: &mut Case) -> Option<&'static str> {
    let pick = |rng: &mut Rng| rng.below(case.values.len());
    let (x, y, z) = (pick(rng), pick(rng), pick(rng));
    let xs = case.values[x].1.shape.clone();
    let width = *xs.last().unwrap();
    let op = match rng.below(31) {
        0 | 1 => (Op::Add, vec![x, y]),
        2 => (Op::Sub, vec![x, y]),
        3 => (Op::Hadamard, vec![x, y]),
        4..=6 => (Op::Conv1d, vec![x, y]),
        7..=9 => (Op::Kronecker, vec![x, y]),
        10 | 11 => (Op::Matmul, vec![x, y]),
        12 => (Op::Softmax, vec![x]),
        13 => {
            let (g, h) = (case.given(rng, &[width]), case.given(rng, &[width]));
            (Op::LayerNorm { eps: 0.1 }, vec![x, g, h])
        }
        14 => {
            let g = case.given(rng, &[width]);
            (Op::RmsNorm { eps: 0.1 }, vec![x, g])
        }
        15 => (Op::Relu, vec![x]),
        16 => (Op::Gelu([GeluForm::Erf, GeluForm::Tanh][rng.below(2)]), vec![x]),
        17 => (Op::Sigmoid, vec![x]),
        18 => (Op::Tanh, vec![x]),
        19 => (Op::Sum { axis: rng.below(xs.len()) as i64 }, vec![x]),
        20 => (Op::Mean { axis: -1 - rng.below(xs.len()) as i64 }, vec![x]),
        21 => (Op::Stack, vec![x, y, z]),
        22 => (Op::Window { size: 1 + rng.below(2), stride: 1 + rng.below(2) }, vec![x, y, z]),
        23 => (Op::Repeat { count: rng.below(4) }, vec![x]),
        24 => {
            let mut s = xs.clone();
            s.reverse();
            (Op::Reshape { shape: s }, vec![x])
        }
        25 => {
            let mut p: Vec<usize> = (0..xs.len()).collect();
            p.rotate_left(rng.below(xs.len()));
            (Op::Transpose { permutation: p }, vec![x])
        }
        26 => {
            let start: Vec<usize> = xs.iter().map(|_| rng.below(3)).collect();
            let limit = start.iter().map(|s| s + rng.below(5)).collect();
            (Op::Slice { start, limit }, vec![x])
        }
        27 => (Op::Gather { indices: (0..rng.below(5)).map(|_| rng.below(6)).collect() }, vec![x]),
        28 => (Op::Scatter { indices: (0..xs[0]).map(|_| rng.below(4)).collect(), size: 4 }, vec![x]),
        29 => {
            let sizes = [2 + rng.below(5), 2 * (1 + rng.below(3))];
            let (q, k, v) = (case.given(rng, &sizes), case.given(rng, &sizes), case.given(rng, &sizes));
            let cut = rng.below(sizes[0] + 1);
            (Op::Attention { heads: 1 + rng.below(2), lengths: vec![cut, sizes[0] - cut] }, vec![q, k, v])
        }
        _ => match rng.below(4) {
            0 => (Op::Mask, vec![x, y]),
            1 => (Op::Exp, vec![x]),
            2 => (Op::MulScalar { value: Some(rng.float()) }, vec![x]),
            _ => {
                let s = case.given(rng, &[1]);
                (Op::MulScalar { value: None }, vec![x, s])
            }
        },
    };
    let name = op.0.name();
    case.add(op.0, &op.1).then_some(name)
}

fn run(rng: &mut Rng, backend: &Backend, seen: &mut BTreeMap<String, usize>) {
    let mut case = Case::new(rng);
    let rank = 1 + rng.below(3);
    for _ in 0..1 + rng.below(3) {
        let s = shape(rng, rank);
        case.given(rng, &s);
    }
    for _ in 0..1 + rng.below(5) {
        if let Some(name) = random_op(rng, &mut case) {
            *seen.entry(format!("{name} {}", case.dtype)).or_default() += 1;
        }
    }
    let Case { mut builder, values, dtype, text } = case;
    values.iter().for_each(|(v, _)| builder.output(*v).unwrap());
    let program = Arc::new(builder.build().unwrap());
    let plan = Plan::new(&program, backend).unwrap_or_else(|e| panic!("{e}\n{text:#?}\n{program}"));
    assert!(plan.overlap().is_none(), "{program}");
    let mut bindings = plan.bind().unwrap();
    for v in program.inputs().iter().chain(program.params()) {
        let a = &values.iter().find(|(id, _)| id == v).unwrap().1;
        let t = Tensor::from_slice(&a.shape, &a.data).unwrap().in_model(program.signature(*v).model);
        bindings.write(*v, &support::cast(&t, dtype)).unwrap();
    }
    plan.execute(&mut bindings, &Stream::default()).unwrap();
    // The program rounds as the definitions do, but for the last bit; what follows an op may magnify that.
    let eps = match dtype {
        DType::F64 => 1e-13,
        DType::F32 => 5e-6,
        DType::F16 => 1e-2,
        _ => 8e-2,
    };
    for (v, expected) in &values {
        let got = bindings.read(*v).unwrap();
        assert_eq!(got.shape(), expected.shape);
        let size = expected.data.iter().fold(1.0f64, |m, x| m.max(x.abs()));
        for (x, y) in got.to_vec::<f64>().into_iter().zip(&expected.data) {
            assert!((x - y).abs() <= eps * size, "value {}: {x} {y} ({dtype})\n{text:#?}\n{program}", v.0);
        }
    }
}

#[test]
fn s16_ten_thousand_random_dags() {
    let cases = std::env::var("VSLA_CASES").map_or(10_000, |s| s.parse().unwrap());
    let mut rng = Rng::fresh("fuzz");
    // Every other one in memory that is full of NaN at first.
    let backend = Backend::cpu(2);
    let backends = [poison::poisoned(&backend), backend];
    let mut seen = BTreeMap::new();
    for i in 0..cases {
        run(&mut rng, &backends[i % 2], &mut seen);
    }
    // 27 of the 29 ops in every dtype: dropout is random, and log wants positive operands; both have their own tests.
    let least = seen.iter().min_by_key(|(_, n)| **n);
    eprintln!("{} pairs of op and dtype, least {least:?}", seen.len());
    if cases >= 10_000 {
        assert_eq!(seen.len(), 27 * 4, "{seen:#?}");
    }
}
