//! The attention templates, compiled by the host's C++ compiler with headers that emulate CUDA and Hopper: compared with the
//! interpreter within the precision of their types. Skipped if there is no C++ compiler.

mod host;

use host::{Run, compiler, host, single};
use ir::composites::attention::{AttentionOptions, attention, attention_backward};
use ir::ops::Composite;
use ir::{DType, Literal, Scalar, Type};
use tensorloom_gpu::cuda::CudaAttention as Template;
use testing::{Rng, rng::run_seed};

#[derive(Debug)]
struct Case {
    batch: usize,
    heads: (usize, usize),
    t: (usize, usize),
    d: (usize, usize),
    dtype: DType,
    options: AttentionOptions,
    backward: bool,
}

impl Case {
    fn composites(&self) -> (Composite, Composite) {
        let ty = |own: &[usize]| Type::new(self.dtype, &[&[self.batch], own].concat());
        let (q, k) = (ty(&[self.heads.0, self.t.0, self.d.0]), ty(&[self.heads.1, self.t.1, self.d.0]));
        let v = ty(&[self.heads.1, self.t.1, self.d.1]);
        (attention(&q, &k, &v, &self.options).unwrap(), attention_backward(&q, &k, &v, &self.options).unwrap())
    }

    fn inputs(&self, types: &[Type], rng: &mut Rng) -> Vec<Literal> {
        let literal = |t: &Type, rng: &mut Rng| match t.dtype {
            DType::I32 => {
                Literal::from_fn(t.clone(), |_| Scalar::from_i64(DType::I32, rng.range(-2, self.t.1 as i64 + 3)))
            }
            d => Literal::from_fn(t.clone(), |_| Scalar::from_f64(d, rng.uniform(-1.5, 1.5))),
        };
        types.iter().map(|t| literal(t, rng)).collect()
    }
}

fn cases(rng: &mut Rng) -> Vec<Case> {
    let case = |heads, t, d| Case {
        batch: 2,
        heads,
        t,
        d,
        dtype: DType::BF16,
        options: AttentionOptions { causal: true, ..AttentionOptions::default() },
        backward: true,
    };
    let mut all = vec![
        case((1, 1), (130, 130), (64, 64)),
        Case { dtype: DType::F16, options: AttentionOptions::default(), ..case((2, 1), (40, 70), (40, 72)) },
        Case {
            options: AttentionOptions {
                causal: true,
                window: Some(20),
                softcap: Some(2.0),
                ..AttentionOptions::default()
            },
            ..case((2, 2), (100, 100), (32, 32))
        },
        Case { backward: false, ..case((1, 1), (70, 70), (200, 256)) },
        // Few queries.
        Case {
            backward: false,
            options: AttentionOptions {
                causal: true,
                q_offset: Some(Type::new(DType::I32, &[])),
                kv_lengths: Some(Type::new(DType::I32, &[])),
                ..AttentionOptions::default()
            },
            ..case((8, 2), (1, 200), (64, 64))
        },
        Case {
            backward: false,
            dtype: DType::F16,
            options: AttentionOptions {
                causal: true,
                window: Some(50),
                softcap: Some(3.0),
                ..AttentionOptions::default()
            },
            ..case((6, 3), (3, 75), (128, 40))
        },
        Case { backward: false, options: AttentionOptions::default(), ..case((7, 1), (1, 40), (256, 256)) },
        Case {
            options: AttentionOptions {
                window: Some(30),
                q_offset: Some(Type::new(DType::I32, &[2])),
                kv_lengths: Some(Type::new(DType::I32, &[])),
                ..AttentionOptions::default()
            },
            ..case((4, 2), (70, 90), (128, 128))
        },
    ];
    for _ in 0..3 {
        let (kv, wide) = (1 + rng.below(3), 8 * (1 + rng.below(32)));
        let (group, queries) = *rng.pick(&[(1, 1), (1, 8), (2, 1), (2, 3), (5, 1), (8, 1)]);
        all.push(Case {
            batch: 1 + rng.below(3),
            backward: false,
            dtype: *rng.pick(&[DType::BF16, DType::F16]),
            options: AttentionOptions {
                causal: rng.bernoulli(0.5),
                window: rng.bernoulli(0.3).then(|| 1 + rng.below(80)),
                kv_lengths: rng.bernoulli(0.5).then(|| Type::new(DType::I32, &[])),
                q_offset: rng.bernoulli(0.5).then(|| Type::new(DType::I32, &[])),
                ..AttentionOptions::default()
            },
            ..case((kv * group, kv), (queries, 1 + rng.below(150)), (wide, wide))
        });
    }
    for _ in 0..3 {
        let kv = 1 + rng.below(2);
        let wide = [8, 16, 64, 80, 96][rng.below(5)];
        all.push(Case {
            batch: 1 + rng.below(2),
            dtype: *rng.pick(&[DType::BF16, DType::F16]),
            options: AttentionOptions {
                causal: rng.bernoulli(0.5),
                window: rng.bernoulli(0.3).then(|| 1 + rng.below(80)),
                kv_lengths: rng.bernoulli(0.3).then(|| Type::new(DType::I32, &[])),
                q_offset: rng.bernoulli(0.3).then(|| Type::new(DType::I32, &[])),
                ..AttentionOptions::default()
            },
            ..case((kv * (1 + rng.below(3)), kv), (16 + rng.below(150), 1 + rng.below(150)), (wide, wide))
        });
    }
    all
}

fn close(what: &str, got: &[Literal], want: &[Literal], dtype: DType) {
    let tolerance = if dtype == DType::F16 { 4e-3 } else { 3e-2 };
    for (n, (g, w)) in got.iter().zip(want).enumerate() {
        // The error of a sum with many terms is relative to its largest elements.
        let largest =
            (0..w.ty().numel()).map(|i| w.get(i).to_f64()).filter(|x| x.is_finite()).fold(0.5, |a, x| x.abs().max(a));
        for i in 0..w.ty().numel() {
            let (a, b) = (g.get(i).to_f64(), w.get(i).to_f64());
            let same = a == b || (a - b).abs() <= tolerance * largest.max(b.abs()) * 0.5 + tolerance * b.abs() * 0.5;
            assert!(same, "{what}: result {n}, element {i} is {a}, expected {b}");
        }
    }
}

#[test]
fn templates_compute_attention_and_its_backward() {
    let Some(cxx) = compiler() else { return };
    let seed = run_seed();
    let mut rng = Rng::new(seed);
    let cases = cases(&mut rng);
    let (mut runs, mut expected) = (Vec::new(), Vec::new());
    for case in &cases {
        let (forward, backward) = case.composites();
        let types = forward.body.input_types();
        let inputs = case.inputs(&types, &mut rng);
        let template = Template::of(&forward, &types).unwrap_or_else(|| panic!("{case:?}"));
        let results = ir::interp::run(&single(&forward.clone().into(), &types), &inputs).unwrap();
        let of = |all: &[Literal]| all.iter().map(|l| l.ty().clone()).collect::<Vec<_>>();
        runs.push(Run { routine: template.routine(), operands: inputs.clone(), results: of(&results) });
        expected.push((case, results.clone()));
        let types = backward.body.input_types();
        let template = Template::of(&backward, &types);
        assert_eq!(template.is_some(), case.backward, "{case:?}");
        if let Some(template) = template {
            let cotangents = case.inputs(&of(&results), &mut rng);
            let operands = [inputs, results, cotangents].concat();
            let grads = ir::interp::run(&single(&backward.clone().into(), &types), &operands).unwrap();
            runs.push(Run { routine: template.routine(), operands, results: of(&grads) });
            expected.push((case, grads));
        }
    }
    for (got, (case, want)) in host(&cxx, "attention", &runs).iter().zip(&expected) {
        close(&format!("TENSORLOOM_SEED={seed} {case:?}"), got, want, case.dtype);
    }
}

#[test]
fn what_the_template_lacks_is_left_to_the_compiler() {
    let claimed = |c: Case| {
        let (forward, _) = c.composites();
        Template::of(&forward, &forward.body.input_types()).is_some()
    };
    let case = |options: AttentionOptions| Case {
        batch: 1,
        heads: (2, 1),
        t: (32, 32),
        d: (64, 64),
        dtype: DType::BF16,
        options,
        backward: true,
    };
    let plain = AttentionOptions::default;
    assert!(claimed(case(plain())));
    assert!(!claimed(case(AttentionOptions { mask: Some(Type::new(DType::Bool, &[1, 32, 32])), ..plain() })));
    assert!(!claimed(case(AttentionOptions { alibi_slopes: Some(Type::new(DType::F32, &[2])), ..plain() })));
    let ids = Type::new(DType::I32, &[32]);
    assert!(!claimed(case(AttentionOptions { segment_ids: Some((ids.clone(), ids)), ..plain() })));
    assert!(!claimed(case(AttentionOptions { scale: Some(-1.0), ..plain() })));
    assert!(!claimed(Case { d: (60, 64), ..case(plain()) }));
    assert!(!claimed(Case { d: (264, 64), ..case(plain()) }));
    assert!(claimed(Case { t: (4, 32), ..case(plain()) }));
    assert!(!claimed(Case { t: (5, 32), ..case(plain()) }));
    assert!(!claimed(Case { dtype: DType::F32, ..case(plain()) }));
}
