//! Plans, bindings, profiles and links (§5, §6, §10, §16).

#[path = "../examples/ragged/encoder.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with examples and the benchmark")]
mod encoder;
mod support;

use std::sync::Arc;
use support::Rng;
use tensorloom_vsla::{
    ArenaClass, Backend, DType, Error, ErrorCode, Link, Memory, Model, Plan, Profile, Program, ProgramBuilder, Router,
    SharedArena, StageLink, Stream, Tensor, ValueId,
};

/// A block of attention and feed-forward over `[seq, width]`.
fn block(seq: usize, width: usize) -> tensorloom_vsla::Result<Program> {
    let mut b = ProgramBuilder::new();
    let d = DType::F32;
    let x = b.input("x", d, &[seq, width])?;
    let mut w = |name: &str, shape: &[usize]| b.param(name, d, shape);
    let (wq, wk, wv) = (w("wq", &[width, width])?, w("wk", &[width, width])?, w("wv", &[width, width])?);
    let (up, down) = (w("up", &[width, 4 * width])?, w("down", &[4 * width, width])?);
    let gain = w("gain", &[width])?;
    let n = b.rmsnorm(x, gain, 1e-6)?;
    let (q, k, v) = (b.matmul(n, wq)?, b.matmul(n, wk)?, b.matmul(n, wv)?);
    let kt = b.transpose(k, &[1, 0])?;
    let scores = b.matmul(q, kt)?;
    let scores = b.mul_scalar(scores, 1.0 / (width as f64).sqrt())?;
    let p = b.softmax(scores)?;
    let a = b.matmul(p, v)?;
    let h = b.add(x, a)?;
    let u = b.matmul(h, up)?;
    let u = b.gelu(u)?;
    let o = b.matmul(u, down)?;
    let y = b.add(h, o)?;
    b.output(y)?;
    b.build()
}

fn fill(plan: &Plan, bindings: &mut tensorloom_vsla::Bindings, seed: u64) {
    let mut rng = Rng(seed);
    let p = plan.program().clone();
    for v in p.inputs().iter().chain(p.params()) {
        let s = p.signature(*v);
        let t = rng.tensor(s.dtype, &s.shape).in_model(s.model);
        bindings.write(*v, &t).unwrap();
    }
}

#[test]
fn s16_no_overlap_aligned_and_stable() {
    let program = Arc::new(block(24, 16).unwrap());
    let backend = Backend::cpu(2);
    let plan = Plan::new(&program, &backend).unwrap();
    assert!(plan.overlap().is_none());
    assert!(plan.intervals().iter().all(|i| i.offset.is_multiple_of(64)));
    for i in plan.intervals() {
        assert!(i.offset + i.bytes <= plan.arena_sizes()[i.class as usize], "{i:?}");
    }
    let again = Plan::new(&program, &backend).unwrap();
    assert_eq!(plan.arena_sizes(), again.arena_sizes());
    assert_eq!(plan.intervals(), again.intervals());
    assert_eq!(plan.segments(), again.segments());
    let params: usize = program.params().iter().map(|v| program.signature(*v).bytes()).sum();
    assert!(plan.arena_sizes()[ArenaClass::Params as usize] >= params);
}

#[test]
fn s5_activations_share_memory_by_liveness() {
    let mut b = ProgramBuilder::new();
    b.numerics(tensorloom_vsla::Numerics { reduced_precision_products: true, ..Default::default() });
    let mut x = b.input("x", DType::F32, &[32, 32]).unwrap();
    for i in 0..10 {
        let w = b.param(&format!("w{i}"), DType::F32, &[32, 32]).unwrap();
        x = b.matmul(x, w).unwrap();
    }
    b.output(x).unwrap();
    let plan = Plan::new(&Arc::new(b.build().unwrap()), &Backend::cpu(1)).unwrap();
    let inner: Vec<_> = plan.intervals().iter().filter(|i| i.class == ArenaClass::Activations).collect();
    assert_eq!(inner.len(), 9);
    assert_eq!(plan.arena_sizes()[ArenaClass::Activations as usize], 2 * 32 * 32 * 4);
}

#[test]
fn s7_3_elementwise_chains_fuse_and_promotion_is_a_view() {
    let mut b = ProgramBuilder::new();
    let x = b.input("x", DType::F32, &[1000]).unwrap();
    let y = b.input("y", DType::F32, &[700]).unwrap();
    let s = b.add(x, y).unwrap();
    let s = b.mul_scalar(s, 3.0).unwrap();
    let s = b.relu(s).unwrap();
    let m = b.mask(s, y).unwrap();
    let e = b.exp(m).unwrap();
    b.output(e).unwrap();
    let plan = Plan::new(&Arc::new(b.build().unwrap()), &Backend::cpu(2)).unwrap();
    // One kernel, or one for each range between the sizes; no value in between, so no zero was written for `y`.
    assert!(plan.segments().iter().all(|s| s.fused) && plan.segments().len() <= 2, "{plan}");
    assert_eq!(plan.arena_sizes()[ArenaClass::Activations as usize], 0, "{plan}");
    // The addresses of the values are all that a run needs.
    assert_eq!(plan.arena_sizes()[ArenaClass::Workspace as usize], 64, "{plan}");
}

#[test]
fn s14_1_the_memory_report_names_every_arena() {
    let plan = Plan::new(&Arc::new(block(24, 16).unwrap()), &Backend::cpu(1)).unwrap();
    let text = plan.to_string();
    for class in ArenaClass::ALL {
        assert!(text.contains(class.name()), "{text}");
    }
    assert!(text.contains("schedule of") && text.contains("matmul") && text.contains("in one block"), "{text}");
}

#[test]
fn s16_identical_runs_are_equal_bit_for_bit_at_any_thread_count() {
    let program = Arc::new(block(40, 32).unwrap());
    let out = program.outputs()[0];
    let mut first: Option<Vec<u8>> = None;
    for threads in [1, 2, 3] {
        let plan = Plan::new(&program, &Backend::cpu(threads)).unwrap();
        let mut bindings = plan.bind().unwrap();
        fill(&plan, &mut bindings, 8);
        for _ in 0..5 {
            plan.execute(&mut bindings, &Stream::default()).unwrap();
            let bytes = bindings.read(out).unwrap().to_bytes();
            assert_eq!(*first.get_or_insert_with(|| bytes.clone()), bytes);
        }
    }
}

#[test]
fn bindings_refuse_what_does_not_fit() {
    let program = Arc::new(block(8, 4).unwrap());
    let plan = Plan::new(&program, Backend::global()).unwrap();
    let mut b = plan.bind().unwrap();
    let x = program.inputs()[0];
    let code = |r: tensorloom_vsla::Result<()>| r.unwrap_err().code();
    let zeros = |d: DType, s: &[usize]| Tensor::zeros(d, s).unwrap();
    assert_eq!(code(b.write(x, &zeros(DType::F64, &[8, 4]))), ErrorCode::InvalidArg);
    assert_eq!(code(b.write(x, &zeros(DType::F32, &[9, 4]))), ErrorCode::InvalidShape);
    assert_eq!(code(b.write(x, &zeros(DType::F32, &[8]))), ErrorCode::InvalidShape);
    assert_eq!(code(b.write(x, &zeros(DType::F32, &[8, 4]).in_model(Model::B))), ErrorCode::InvalidArg);
    assert_eq!(code(b.write(ValueId(999), &zeros(DType::F32, &[1]))), ErrorCode::InvalidArg);
    assert_eq!(code(b.write_bytes(x, &[0; 5])), ErrorCode::InvalidArg);
    assert_eq!(code(b.read_bytes(x, &mut [0; 5])), ErrorCode::InvalidArg);
    assert_eq!(code(b.seed(1)), ErrorCode::InvalidArg);
    let temp = program.nodes()[0].outputs[0];
    assert!(b.read(temp).is_err());
    // Bindings of an equal program are still not this plan's.
    let other = Plan::new(&Arc::new(block(8, 4).unwrap()), Backend::global()).unwrap();
    assert_eq!(code(other.execute(&mut b, &Stream::default())), ErrorCode::InvalidArg);
    // A smaller tensor is promoted, and leaves nothing of what was there before.
    b.write(x, &Tensor::from_slice(&[8, 4], &[1.0f32; 32]).unwrap()).unwrap();
    b.write(x, &Tensor::from_slice(&[1, 2], &[5.0f32, 6.0]).unwrap()).unwrap();
    assert_eq!(b.read(x).unwrap(), Tensor::from_slice(&[1, 2], &[5.0f32, 6.0]).unwrap());
}

#[test]
fn s6_3_the_smallest_profile_is_chosen_and_parameters_are_shared() {
    let build = |n: usize| {
        let mut b = ProgramBuilder::new();
        let x = b.input("x", DType::F64, &[n])?;
        let w = b.param("w", DType::F64, &[3])?;
        let y = b.conv1d(x, w)?;
        b.output(y)?;
        b.build()
    };
    let mut router = Router::compile(&[64, 8, 512], Backend::global(), build).unwrap();
    let kernel = Tensor::vector(&[1.0f64, -2.0, 1.0]);
    let w = router.profiles()[0].plan().program().params()[0];
    router.profile_mut(0).unwrap().bindings_mut().write(w, &kernel).unwrap();
    let mut rng = Rng(2);
    for (length, bucket) in [(1, 0), (8, 0), (9, 1), (64, 1), (65, 2), (512, 2), (0, 0)] {
        let x = Tensor::vector(&rng.floats(length));
        assert_eq!(router.route(&[&x]).unwrap(), bucket, "{length}");
        let profile = router.run(&[&x], &Stream::default()).unwrap();
        let y = profile.bindings().read(profile.plan().program().outputs()[0]).unwrap();
        let mut expected = x.conv1d(&kernel).unwrap();
        expected.resize(y.shape()).unwrap();
        support::assert_close(&y, &expected);
    }
    let long = Tensor::vector(&rng.floats(513));
    assert!(matches!(router.route(&[&long]), Err(Error::InvalidShape { .. })));
    assert!(router.run(&[&long, &long], &Stream::default()).is_err());
    assert!(Router::compile(&[], Backend::global(), build).is_err());
    let other = Profile::compile(&Arc::new(block(4, 4).unwrap()), Backend::global()).unwrap();
    let program = Arc::new(build(8).unwrap());
    assert!(Profile::compile_sharing(&program, Backend::global(), &other).is_err());
}

fn stage(n: usize, gain: f64) -> Arc<Program> {
    let mut b = ProgramBuilder::new();
    let x = b.input("x", DType::F64, &[n]).unwrap();
    let y = b.mul_scalar(x, gain).unwrap();
    b.output(y).unwrap();
    Arc::new(b.build().unwrap())
}

#[test]
fn s10_1_a_link_hands_memory_over() {
    let (a, b) = (stage(5, 2.0), stage(5, 10.0));
    let (pa, pb) = (Plan::new(&a, Backend::global()).unwrap(), Plan::new(&b, Backend::global()).unwrap());
    let (mut ba, mut bb) = (pa.bind().unwrap(), pb.bind().unwrap());
    let link = Link { source: a.outputs()[0], destination: b.inputs()[0] };
    link.connect(&ba, &mut bb).unwrap();
    for i in 0..3 {
        ba.write(a.inputs()[0], &Tensor::vector(&[i as f64, 1.0])).unwrap();
        pa.execute(&mut ba, &Stream::default()).unwrap();
        pb.execute(&mut bb, &Stream::default()).unwrap();
        assert_eq!(bb.read(b.outputs()[0]).unwrap(), Tensor::vector(&[20.0 * i as f64, 20.0]));
    }
    let small = stage(4, 1.0);
    let mut bs = Plan::new(&small, Backend::global()).unwrap().bind().unwrap();
    let to = |d: &Arc<Program>| Link { source: a.outputs()[0], destination: d.inputs()[0] };
    assert!(matches!(to(&small).connect(&ba, &mut bs), Err(Error::InvalidShape { .. })));
    let backwards = Link { source: a.inputs()[0], destination: b.inputs()[0] };
    assert!(backwards.connect(&ba, &mut bb).is_err());
    let onto_output = Link { source: a.outputs()[0], destination: b.outputs()[0] };
    assert!(onto_output.connect(&ba, &mut bb).is_err());
}

fn chain(programs: &[Arc<Program>]) -> Vec<StageLink> {
    (1..programs.len())
        .map(|k| StageLink {
            from: k - 1,
            to: k,
            link: Link { source: programs[k - 1].outputs()[0], destination: programs[k].inputs()[0] },
        })
        .collect()
}

#[track_caller]
fn check_arena(arena: &SharedArena) {
    for (i, a) in arena.placed().iter().enumerate() {
        assert!(a.offset.is_multiple_of(64) && a.offset + a.bytes <= arena.bytes(), "{a:?}");
        for b in &arena.placed()[i + 1..] {
            let together = a.lifetime.0 <= b.lifetime.1 && b.lifetime.0 <= a.lifetime.1;
            assert!(!together || a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset, "{a:?} {b:?}");
        }
    }
}

#[test]
fn s10_2_one_arena_holds_a_chain_of_programs() {
    let programs: Vec<Arc<Program>> = (0..6).map(|i| stage(100, 1.0 + i as f64)).collect();
    let plans: Vec<Plan> = programs.iter().map(|p| Plan::new(p, Backend::global()).unwrap()).collect();
    let stages: Vec<&Plan> = plans.iter().collect();
    let links = chain(&programs);
    let arena = SharedArena::plan(&stages, &links).unwrap();
    // Seven values, of which at most two live together, and the addresses of one run.
    assert_eq!(arena.placed().len(), 7 + 6);
    assert_eq!(arena.bytes(), 2 * 832 + 64);
    check_arena(&arena);
    let mut bound = arena.bind(Backend::global()).unwrap();
    let x = Tensor::vector(&Rng(1).floats(100));
    bound[0].write(programs[0].inputs()[0], &x).unwrap();
    for (p, b) in plans.iter().zip(&mut bound) {
        p.execute(b, &Stream::default()).unwrap();
    }
    let y = bound[5].read(programs[5].outputs()[0]).unwrap();
    support::assert_close(&y, &x.mul_scalar(720.0).unwrap());
    let bad = StageLink { from: 3, to: 3, ..links[0] };
    assert!(SharedArena::plan(&stages, &[bad]).is_err());
    // An input with two sources, one of them two stages back.
    let twice = StageLink { from: 0, to: 2, link: Link { source: links[0].link.source, ..links[1].link } };
    assert!(SharedArena::plan(&stages, &[links[1], twice]).is_err());
    assert!(arena.bind_in(Memory::new(arena.bytes() - 1, Backend::global()).unwrap()).is_err());
}

/// Activations and workspace of linked programs lie in one arena: the size is that of the largest stage, not of all.
#[test]
fn s10_2_linked_programs_share_what_they_compute_in() {
    let backend = Backend::cpu(2);
    let programs: Vec<Arc<Program>> = (0..5).map(|_| Arc::new(block(96, 32).unwrap())).collect();
    let plans: Vec<Plan> = programs.iter().map(|p| Plan::new(p, &backend).unwrap()).collect();
    let stages: Vec<&Plan> = plans.iter().collect();
    let arena = SharedArena::plan(&stages, &chain(&programs)).unwrap();
    check_arena(&arena);
    let [params, activations, workspace, _, external] = plans[0].arena_sizes();
    assert!(activations > 0 && workspace > 0 && external == 2 * 96 * 32 * 4);
    // All parameters, one run, and the two values around it.
    let largest = 5 * params + activations + workspace + external;
    assert_eq!(arena.live_bytes(), largest);
    assert_eq!(arena.bytes(), largest);
    let alone: usize = plans.iter().map(|p| p.memory_bytes(false).unwrap()).sum();
    assert!(arena.bytes() + 4 * (activations + workspace) <= alone, "{} of {alone}", arena.bytes());

    // The same results as programs that have memory of their own, round after round.
    let mut bound = arena.bind(&backend).unwrap();
    let mut own: Vec<_> = plans.iter().map(|p| p.bind().unwrap()).collect();
    for k in 0..5 {
        fill(&plans[k], &mut own[k], 40 + k as u64);
        for v in programs[k].params() {
            bound[k].write(*v, &own[k].read(*v).unwrap()).unwrap();
        }
    }
    for round in 0..3 {
        let x = Rng(round).tensor(DType::F32, &[96, 32]);
        bound[0].write(programs[0].inputs()[0], &x).unwrap();
        let mut want = x;
        for k in 0..5 {
            plans[k].execute(&mut bound[k], &Stream::default()).unwrap();
            own[k].write(programs[k].inputs()[0], &want).unwrap();
            plans[k].execute(&mut own[k], &Stream::default()).unwrap();
            want = own[k].read(programs[k].outputs()[0]).unwrap();
        }
        assert_eq!(bound[4].read(programs[4].outputs()[0]).unwrap().to_bytes(), want.to_bytes());
    }
}

/// Sizes that no machine has are refused when they are planned, or planned without being taken.
#[test]
fn plans_of_absurd_sizes_do_not_panic() {
    let side = 1usize << 22;
    for count in [1, 2, 3, 7, 8, 9, 20] {
        let mut b = ProgramBuilder::new();
        let x = b.input("x", DType::F64, &[side, side]).unwrap();
        let mut all = None;
        for i in 0..count {
            let w = b.param(&format!("w{i}"), DType::F64, &[side, 2]).unwrap();
            let t = b.matmul(x, w).unwrap();
            let u = b.param(&format!("u{i}"), DType::F64, &[2, side]).unwrap();
            let y = b.matmul(t, u).unwrap();
            let y = if i == 0 { b.matmul(y, x).unwrap() } else { y };
            let y = b.softmax(y).unwrap();
            all = Some(match all {
                None => y,
                Some(a) => b.add(a, y).unwrap(),
            });
        }
        b.output(all.unwrap()).unwrap();
        match Plan::new(&Arc::new(b.build().unwrap()), Backend::global()) {
            Ok(plan) => {
                assert!(plan.bind().is_err());
                let _ = (plan.memory_bytes(false), plan.to_string());
            }
            Err(e) => assert!(matches!(e.code(), ErrorCode::PlanningFailed | ErrorCode::OutOfMemory), "{e}"),
        }
    }
    // What f16 could hold, but not the f64 that sums are in.
    assert!(ProgramBuilder::new().input("x", DType::F16, &[side, 2 * side]).is_err());
    let mut b = ProgramBuilder::new();
    let x = b.input("x", DType::F16, &[1 << 40]).unwrap();
    let y = b.input("y", DType::F16, &[1 << 40]).unwrap();
    let z = b.conv1d(x, y).unwrap();
    b.output(z).unwrap();
    let e = Plan::new(&Arc::new(b.build().unwrap()), Backend::global()).err().unwrap();
    assert_eq!(e.code(), ErrorCode::OutOfMemory, "{e}");
}

/// §14.1: PARAMS is what the formula says, for every bucket the same; activations stay far below their sum.
#[test]
fn s14_1_a_transformers_memory_by_the_formulas() {
    let sizes = encoder::Sizes { width: 64, heads: 4, hidden: 256, layers: 3 };
    let backend = Backend::cpu(1);
    let (d, h) = (sizes.width, sizes.hidden);
    let layer = d * 3 * d + d * d + 2 * d * h + 2 * 2 * d + (3 * d + d + h + d);
    assert_eq!(encoder::parameters(&sizes), layer * sizes.layers);
    let mut before = 0;
    for s in [16, 64, 128] {
        let plan = Plan::new(&Arc::new(encoder::encoder(&sizes, &[s, s]).unwrap()), &backend).unwrap();
        let [params, activations, ..] = plan.arena_sizes();
        assert_eq!(params, 4 * layer * sizes.layers);
        let all = 4 * sizes.layers * (2 * s * (7 * d + h) + 2 * 2 * sizes.heads * s * s);
        assert!(activations > before && activations * 2 < all, "{activations} of {all}");
        before = activations;
    }
}
