//! Attention as a routine, compared with the interpreter and the inlined composite, forward and gradients, with the same bits for
//! any number of threads.

mod harness;

use harness::{Random, close, run, same};
use ir::composites::attention::{AttentionOptions, attention};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

struct Case {
    batch: Vec<usize>,
    heads: (usize, usize),
    t: (usize, usize),
    d: (usize, usize),
    dtype: DType,
    options: AttentionOptions,
}

impl Case {
    fn new(heads: (usize, usize), t: (usize, usize), d: (usize, usize)) -> Case {
        Case { batch: vec![2], heads, t, d, dtype: DType::F32, options: AttentionOptions::default() }
    }

    fn with(mut self, f: impl FnOnce(&mut AttentionOptions)) -> Case {
        f(&mut self.options);
        self
    }

    fn dtype(mut self, dtype: DType) -> Case {
        self.dtype = dtype;
        self
    }

    fn batch(mut self, batch: &[usize]) -> Case {
        self.batch = batch.to_vec();
        self
    }

    /// The outputs and, if requested, the gradients of a weighted sum of both outputs.
    fn graph(&self, gradients: bool) -> Graph {
        let ty = |own: &[usize]| Type::new(self.dtype, &[&self.batch[..], own].concat());
        let (q, k) = (ty(&[self.heads.0, self.t.0, self.d.0]), ty(&[self.heads.1, self.t.1, self.d.0]));
        let v = ty(&[self.heads.1, self.t.1, self.d.1]);
        let c = attention(&q, &k, &v, &self.options).unwrap();
        let backward = ir::composites::attention::attention_backward(&q, &k, &v, &self.options).unwrap();
        let mut b = Builder::new();
        let args: Vec<_> = c.body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
        let outs = b.emit(c.into(), &args).unwrap();
        if !gradients {
            return b.finish(&outs);
        }
        let (dout, dlse) = (b.ty(outs[0]), b.ty(outs[1]));
        let cts = [b.graph.input(dout), b.graph.input(dlse)];
        let all = [&args[..], &outs, &cts].concat();
        let grads = b.emit(backward.into(), &all).unwrap();
        b.finish(&[&outs[..], &grads].concat())
    }

    fn inputs(&self, graph: &Graph) -> Vec<Literal> {
        let mut random = Random(11);
        let tk = self.t.1;
        let mut integers = 0;
        (graph.input_types().iter())
            .map(|t| match t.dtype {
                DType::I32
                    if t.rank() < 2
                        && self.options.kv_lengths.is_some()
                        && (integers > 0 || self.options.q_offset.is_none()) =>
                {
                    integers += 1;
                    Literal::from_fn(t.clone(), |_| Scalar::from_i64(t.dtype, random.below(tk + 3) as i64 - 1))
                }
                DType::I32 if t.rank() < 2 && self.options.q_offset.is_some() => {
                    integers += 1;
                    Literal::from_fn(t.clone(), |_| Scalar::from_i64(t.dtype, random.below(tk) as i64 - 1))
                }
                d if d.is_int() => Literal::from_fn(t.clone(), |i| Scalar::from_i64(d, (i % tk / 5) as i64)),
                _ => random.literal(t),
            })
            .collect()
    }

    fn check(&self, what: &str) {
        let tolerance = match self.dtype {
            DType::F32 => 2e-5,
            DType::F16 => 4e-3,
            _ => 3e-2,
        };
        self.check_of(what, tolerance, &[false, true]);
    }

    fn check_of(&self, what: &str, tolerance: f64, gradients: &[bool]) {
        for &gradients in gradients {
            let graph = self.graph(gradients);
            let inputs = self.inputs(&graph);
            let cpu = Cpu::new(1);
            let one = run(&cpu, &graph, &inputs, true);
            let want = ir::interp::run(&graph, &inputs).unwrap();
            close(what, &one, &want, tolerance);
            for threads in [2, 3, 7] {
                same(what, &run(&Cpu::new(threads), &graph, &inputs, true), &one);
            }
            let portable = Cpu::with_target(2, None);
            close(what, &run(&portable, &graph, &inputs, true), &want, tolerance);
            if Target::detect() == Some(Target::Avx512) {
                let narrow = Cpu::with_target(2, Some(Target::Avx2));
                close(what, &run(&narrow, &graph, &inputs, true), &want, tolerance);
            }
        }
    }
}

fn claimed(graph: &Graph) -> usize {
    let program = compiler::compile(graph, &Cpu::new(1), &compiler::Options::default()).unwrap();
    program.steps.iter().filter(|s| matches!(s, compiler::program::Step::Library { .. })).count()
}

#[test]
fn plain() {
    for (t, d) in [((5, 7), (8, 8)), ((40, 40), (16, 24)), ((33, 70), (5, 3)), ((130, 200), (32, 32)), ((1, 9), (4, 4))]
    {
        Case::new((2, 2), t, d).check(&format!("plain {t:?} {d:?}"));
    }
    assert_eq!(claimed(&Case::new((2, 2), (40, 40), (8, 8)).graph(true)), 2);
}

#[test]
fn causal_windows_and_groups() {
    for t in [(20, 20), (65, 130), (130, 65), (97, 97)] {
        Case::new((2, 1), t, (16, 16)).with(|o| o.causal = true).check(&format!("causal {t:?}"));
        let window = Case::new((3, 3), t, (8, 8)).with(|o| (o.causal, o.window) = (true, Some(9)));
        window.check(&format!("causal window {t:?}"));
        Case::new((2, 2), t, (8, 8)).with(|o| o.window = Some(30)).check(&format!("window {t:?}"));
    }
    Case::new((6, 2), (37, 37), (16, 8)).with(|o| o.causal = true).check("three heads a group");
    Case::new((4, 2), (50, 50), (16, 16)).batch(&[]).check("no batch");
    Case::new((2, 2), (10, 10), (16, 16)).batch(&[2, 3]).check("two batch axes");
}

#[test]
fn scale_cap_slopes_and_masks() {
    let f = |s: &[usize]| Some(Type::new(DType::F32, s));
    let bools = |s: &[usize]| Some(Type::new(DType::Bool, s));
    let new = || Case::new((4, 2), (30, 45), (16, 16));
    new().with(|o| o.scale = Some(0.7)).check("scale");
    new().with(|o| o.softcap = Some(0.8)).check("softcap");
    new().with(|o| o.alibi_slopes = f(&[4])).check("slopes");
    new().with(|o| (o.alibi_slopes, o.causal) = (f(&[2, 4]), true)).check("slopes by batch");
    new().with(|o| o.mask = bools(&[4, 30, 45])).check("bool mask");
    new().with(|o| o.mask = bools(&[2, 1, 30, 45])).check("bool mask of all heads");
    new().with(|o| o.mask = f(&[1, 30, 45])).check("added mask");
    new().with(|o| o.mask = f(&[1, 4, 1, 45])).check("added mask by key");
}

#[test]
fn lengths_offsets_and_segments() {
    let i = |s: &[usize]| Some(Type::new(DType::I32, s));
    let new = || Case::new((2, 2), (30, 45), (16, 16));
    new().with(|o| o.kv_lengths = i(&[2])).check("lengths");
    new().with(|o| o.kv_lengths = i(&[])).check("one length");
    new().with(|o| (o.q_offset, o.causal) = (i(&[2]), true)).check("offset");
    new().with(|o| (o.q_offset, o.kv_lengths, o.causal) = (i(&[]), i(&[2]), true)).check("offset and lengths");
    for d in [DType::I32, DType::U8, DType::I64] {
        let (a, c) = (Type::new(d, &[2, 30]), Type::new(d, &[2, 45]));
        new().with(|o| o.segment_ids = Some((a, c))).check("segments");
    }
}

#[test]
fn narrow_floats() {
    for dtype in [DType::BF16, DType::F16] {
        let new = || Case::new((4, 2), (70, 90), (16, 24)).dtype(dtype);
        new().check("narrow");
        new().with(|o| (o.causal, o.softcap) = (true, Some(5.0))).check("narrow, causal, capped");
        Case::new((4, 2), (1, 1200), (20, 40)).dtype(dtype).check("narrow decoding");
    }
}

#[test]
fn decoding() {
    let i = |s: &[usize]| Some(Type::new(DType::I32, s));
    let f = |s: &[usize]| Some(Type::new(DType::F32, s));
    for tk in [1, 17, 512, 513, 1700] {
        Case::new((2, 2), (1, tk), (64, 64)).check(&format!("decode {tk}"));
        Case::new((4, 2), (2, tk), (20, 70)).with(|o| o.causal = true).check(&format!("decode two {tk}"));
    }
    let new = || Case::new((4, 2), (1, 600), (16, 16));
    new().with(|o| (o.q_offset, o.kv_lengths, o.causal) = (i(&[2]), i(&[2]), true)).check("decode with a cache");
    new().with(|o| (o.alibi_slopes, o.softcap) = (f(&[4]), Some(1.5))).check_of("decode, slopes, cap", 2e-5, &[false]);
    new().with(|o| o.mask = Some(Type::new(DType::Bool, &[4, 1, 600]))).check("decode, mask");
    let (a, c) = (Type::new(DType::I32, &[2, 1]), Type::new(DType::I32, &[2, 600]));
    new().with(|o| (o.segment_ids, o.window) = (Some((a, c)), Some(300))).check("decode, segments, window");
}

#[test]
fn nothing_at_all() {
    for (t, d) in [((0, 5), (4, 4)), ((5, 0), (4, 4)), ((3, 3), (0, 2)), ((9, 9), (2, 0))] {
        Case::new((2, 1), t, d).check(&format!("empty {t:?} {d:?}"));
    }
    Case::new((2, 1), (4, 4), (4, 4)).batch(&[0]).check("empty batch");
}

#[test]
fn not_a_number() {
    let case = Case::new((2, 2), (40, 40), (8, 8)).with(|o| o.causal = true);
    let graph = case.graph(false);
    let mut inputs = case.inputs(&graph);
    inputs[0] = Literal::from_fn(inputs[0].ty().clone(), |i| match i {
        3 => Scalar::from_f64(DType::F32, f64::NAN),
        20 => Scalar::from_f64(DType::F32, f64::INFINITY),
        i => Scalar::from_f64(DType::F32, (i % 5) as f64 * 0.1),
    });
    let cpu = Cpu::new(2);
    close("NaN", &run(&cpu, &graph, &inputs, true), &run(&cpu, &graph, &inputs, false), 1e-5);
}

#[test]
fn gradients_go_through_both_claims() {
    let case = Case::new((4, 2), (40, 40), (16, 16)).with(|o| o.causal = true);
    let mut b = Builder::new();
    let forward = case.graph(false);
    let args: Vec<_> = forward.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.inline(&forward, &args).unwrap();
    let sq = b.mul(outs[0], outs[0]).unwrap();
    let loss = b.sum_all(sq).unwrap();
    let graph = b.finish(&[loss]);
    let grad = transform::grad(&graph, &[0, 1, 2]).unwrap();
    assert_eq!(claimed(&grad), 2);
    let inputs = case.inputs(&grad);
    let cpu = Cpu::new(2);
    close("grad", &run(&cpu, &grad, &inputs, true), &run(&cpu, &grad, &inputs, false), 2e-5);
}
