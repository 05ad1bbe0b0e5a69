//! Training on several ranks, each a thread of this process: losses compared with one process, bitwise reproducibility, traffic
//! compared with theory, memory, checkpoints that are restored on another mesh.

mod accumulate;
mod aims;
mod experts;
mod nested;
mod times;

use cpu::Cpu;
use dist::{Comm, thread_transport};
use ir::{DType, Mesh};
use lang::consteval::ConstValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use tensorloom_models::train::{AdamW, Batch, LanguageModelTrainer, ObjectiveOptions, StepSizes};
use tensorloom_models::{Architecture, Model, NamedTensor, SplitMix64};

const ADAM: AdamW = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };

fn llama(pairs: &[(&str, i64)]) -> Model {
    model("llama", pairs)
}

fn mixtral() -> Model {
    model("mixtral", &[("experts", 4), ("top_k", 2)])
}

fn model(name: &str, pairs: &[(&str, i64)]) -> Model {
    let mut given: BTreeMap<String, ConstValue> = BTreeMap::new();
    let usual = [
        ("vocab_size", 48),
        ("d_model", 32),
        ("n_layers", 2),
        ("heads", 4),
        ("kv_heads", 2),
        ("d_ff", 48),
        ("max_seq", 32),
    ];
    for (name, n) in usual.iter().chain(pairs) {
        given.insert(name.to_string(), ConstValue::int(*n));
    }
    let architecture = Architecture::from_library(name, given).unwrap_or_else(|e| panic!("{e}"));
    Model::new_random(architecture, DType::F32, 5).unwrap_or_else(|e| panic!("{e}"))
}

fn batch(rows: usize, seq: usize, seed: u64) -> Batch {
    let mut random = SplitMix64::new(seed, 9);
    let mut draw = || (0..rows * seq).map(|_| random.below(48) as i32).collect::<Vec<i32>>();
    let (ids, mut labels) = (draw(), draw());
    // Ranks have different numbers of labels.
    labels[..seq / 2].fill(-100);
    Batch { ids, labels }
}

/// The result of a run of a few steps.
#[derive(Clone, Debug, PartialEq)]
struct Ran {
    losses: Vec<(f32, f32)>,
    valid: f32,
    state: Vec<NamedTensor>,
    sent: usize,
    calls: usize,
    bytes: usize,
}

fn steps(
    mut trainer: LanguageModelTrainer,
    sizes: StepSizes,
    (backend, comm): (&Cpu, Option<Arc<Comm>>),
    range: std::ops::Range<usize>,
) -> Ran {
    let (first, last) = (range.start, range.end);
    let mut losses = Vec::new();
    let traffic = || comm.as_ref().map_or((0, 0), |c| (c.traffic().bytes(), c.traffic().calls()));
    let before = traffic();
    for step in first..last {
        let batch = batch(sizes.micro_batch_size * sizes.gradient_accumulation_steps, sizes.seq_len, step as u64);
        let found = trainer.step(&batch, 1e-2, step).unwrap_or_else(|e| panic!("{e}"));
        losses.push((found.loss, found.grad_norm));
    }
    let (count, after) = ((last - first).max(1), traffic());
    let (sent, calls) = ((after.0 - before.0) / count, (after.1 - before.1) / count);
    let valid = trainer.validate(&[batch(sizes.micro_batch_size, sizes.seq_len, 99)], backend).unwrap();
    let bytes = trainer.planned_bytes();
    Ran { losses, valid, state: trainer.state().unwrap(), sent, calls, bytes }
}

fn alone(model: Model, sizes: StepSizes, count: usize) -> Ran {
    let cpu = Cpu::new(1);
    steps(
        LanguageModelTrainer::new(model, None, sizes, ADAM, &ObjectiveOptions::default(), &cpu).unwrap(),
        sizes,
        (&cpu, None),
        0..count,
    )
}

fn on_mesh(
    mesh: &str,
    model: &(dyn Fn() -> Model + Sync),
    sizes: StepSizes,
    from: Option<&[NamedTensor]>,
    range: std::ops::Range<usize>,
) -> Vec<Ran> {
    in_chunks(mesh, 1, model, sizes, from, range)
}

/// Like `run`, with special options.
fn run_how(
    mesh: &str,
    how: &ObjectiveOptions<'_>,
    overlaps: bool,
    model: &(dyn Fn() -> Model + Sync),
    sizes: StepSizes,
    count: usize,
) -> Vec<Ran> {
    let mesh = Mesh::parse(mesh).unwrap();
    let transports =
        std::sync::Mutex::new(thread_transport::transports(mesh.ranks()).into_iter().map(Some).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let one = |rank: usize| {
            let (mesh, transports) = (&mesh, &transports);
            scope.spawn(move || {
                let own = transports.lock().unwrap()[rank].take().unwrap();
                let comm = Arc::new(Comm::new(Arc::new(own), mesh.clone()).unwrap().with_overlap(overlaps));
                let backend = Cpu::new(1).with_communicator(comm.clone());
                let how = ObjectiveOptions { comm: Some(&comm), ..*how };
                let made = LanguageModelTrainer::new(model(), None, sizes, ADAM, &how, &backend);
                steps(made.unwrap_or_else(|e| panic!("{mesh}: {e}")), sizes, (&backend, Some(comm)), 0..count)
            })
        };
        let all: Vec<_> = (0..mesh.ranks()).map(one).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Gradients are sent in few messages; neither the buckets nor the overlap with computation changes a bit.
#[test]
fn gradients_go_together_and_bits_stay() {
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 8, gradient_accumulation_steps: 1 };
    let model = || llama(&[("n_layers", 4)]);
    let tensors = model().params.len();
    for mesh in ["dp=2", "dp=2,tp=2", "fsdp=2", "dp=2,pp=2"] {
        let run = |bucket: Option<usize>, overlaps: bool| {
            run_how(
                mesh,
                &ObjectiveOptions { bucket_bytes: bucket, ..ObjectiveOptions::default() },
                overlaps,
                &model,
                sizes,
                2,
            )
        };
        let (usual, single, waiting) = (run(None, true), run(Some(0), true), run(None, false));
        println!("{mesh}: {} calls a step, one by one {}", usual[0].calls, single[0].calls);
        assert_eq!(usual, waiting, "{mesh}: computing meanwhile changes something");
        for (a, b) in usual.iter().zip(&single) {
            assert!(a.losses == b.losses && a.state == b.state && a.valid == b.valid, "{mesh}: buckets change bits");
        }
        match mesh {
            // Losses with their counts, and all gradients at once.
            "dp=2" => assert_eq!((usual[0].calls, single[0].calls), (2 + tensors.div_ceil(32), 2 + tensors)),
            "fsdp=2" => assert!(usual[0].calls <= single[0].calls),
            _ => assert!(usual[0].calls + tensors / 4 < single[0].calls, "{mesh}"),
        }
    }
}

/// Like `run_how`, with several virtual stages per rank of a pipeline.
fn in_chunks(
    mesh: &str,
    chunks: usize,
    model: &(dyn Fn() -> Model + Sync),
    sizes: StepSizes,
    from: Option<&[NamedTensor]>,
    range: std::ops::Range<usize>,
) -> Vec<Ran> {
    let mesh = Mesh::parse(mesh).unwrap();
    let ran = thread_transport::spawn(&mesh, |comm| {
        let backend = Cpu::new(1).with_communicator(comm.clone());
        let how = ObjectiveOptions { chunks, comm: Some(&comm), ..ObjectiveOptions::default() };
        let mut trainer = LanguageModelTrainer::new(model(), None, sizes, ADAM, &how, &backend)
            .map_err(|e| dist::Error::InvalidCall(e.to_string()))?;
        if let Some(state) = from {
            trainer.restore(state).map_err(|e| dist::Error::InvalidCall(e.to_string()))?;
        }
        Ok(steps(trainer, sizes, (&backend, Some(comm)), range.clone()))
    });
    ran.unwrap_or_else(|e| panic!("{mesh}: {e}"))
}

fn close(a: f32, b: f32, what: &str) {
    assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{what}: {a} {b}");
}

fn same_numbers(mesh: &str, ran: &[Ran], want: &Ran) {
    for (rank, ran) in ran.iter().enumerate() {
        for (step, (got, want)) in ran.losses.iter().zip(&want.losses).enumerate() {
            close(got.0, want.0, &format!("{mesh} rank {rank} step {step} loss"));
            assert!((got.1 - want.1).abs() <= 1e-4 * want.1, "{mesh} norm {} {}", got.1, want.1);
        }
        close(ran.valid, want.valid, &format!("{mesh} rank {rank} validation"));
        assert_eq!(ran.state.is_empty(), rank != 0);
    }
    for (got, want) in ran[0].state.iter().zip(&want.state) {
        assert_eq!((&got.name, &got.shape), (&want.name, &want.shape));
        if !got.name.starts_with("param") {
            continue;
        }
        let floats = |t: &NamedTensor| -> Vec<f32> {
            t.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        // Adam's first steps have the same size for any gradient, so noise in tiny gradients becomes visible.
        let worst = floats(got).iter().zip(floats(want)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 5e-3, "{mesh}: {} differs by {worst}", got.name);
    }
}

#[test]
fn losses_on_meshes_equal_those_of_one_process() {
    for (mesh, accumulate) in
        [("dp=2", 1), ("tp=2", 1), ("dp=2,tp=2", 2), ("fsdp=4", 1), ("dp=2,fsdp=2", 2), ("fsdp=2,tp=2", 1)]
    {
        let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: accumulate };
        let want = alone(llama(&[]), sizes, 4);
        let ran = on_mesh(mesh, &|| llama(&[]), sizes, None, 0..4);
        same_numbers(mesh, &ran, &want);
        let again = on_mesh(mesh, &|| llama(&[]), sizes, None, 0..4);
        assert_eq!(ran, again, "{mesh}: other bits the second time");
    }
}

/// Sequence and expert parallelism; both combined with other axes.
#[test]
fn sequences_and_experts_are_divided_with_the_same_losses() {
    for (mesh, experts, accumulate) in [
        ("sp=2", false, 1),
        ("dp=2,sp=2", false, 2),
        ("sp=2,tp=2", false, 1),
        ("ep=2", true, 1),
        ("dp=2,ep=2", true, 2),
        ("dp=2", true, 1),
        ("fsdp=2,ep=2", true, 1),
        ("sp=2,ep=2", true, 1),
        ("tp=2", true, 1),
    ] {
        let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: accumulate };
        let model = || if experts { mixtral() } else { llama(&[]) };
        let want = alone(model(), sizes, 3);
        let ran = on_mesh(mesh, &model, sizes, None, 0..3);
        same_numbers(mesh, &ran, &want);
        if mesh.len() == 4 {
            let again = on_mesh(mesh, &model, sizes, None, 0..3);
            assert_eq!(ran, again, "{mesh}: other bits the second time");
        }
    }
}

/// Pipelines with as many micro-batches as stages, more and fewer; virtual stages; combined with other axes.
#[test]
fn pipelines_give_the_same_losses() {
    let deep = [("n_layers", 4)];
    for (mesh, chunks, accumulate, experts) in [
        ("pp=2", 1, 4, false),
        ("pp=2", 1, 1, false),
        ("pp=4", 1, 3, false),
        ("pp=2", 2, 4, false),
        ("dp=2,pp=2", 2, 2, false),
        ("pp=2,tp=2", 1, 2, false),
        ("fsdp=2,pp=2", 1, 2, false),
        ("pp=2,sp=2", 1, 2, false),
        ("ep=2,pp=2", 1, 2, true),
    ] {
        let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: accumulate };
        let model = || if experts { mixtral() } else { llama(&deep) };
        let want = alone(model(), sizes, 3);
        let ran = in_chunks(mesh, chunks, &model, sizes, None, 0..3);
        same_numbers(&format!("{mesh} in {chunks} chunks"), &ran, &want);
        if mesh == "pp=2" {
            let again = in_chunks(mesh, chunks, &model, sizes, None, 0..3);
            assert_eq!(ran, again, "{mesh}: other bits the second time");
            // Another mesh continues from the state.
            let rest = on_mesh("dp=2", &model, sizes, Some(&ran[0].state), 3..4);
            let straight = alone(model(), sizes, 4);
            close(rest[0].losses[0].0, straight.losses[3].0, "after a pipeline");
        }
    }
}

/// Sharded generation gives the same tokens as one process.
#[test]
fn generation_on_several_ranks_gives_the_same_tokens() {
    use tensorloom_models::GenerateOptions;
    for (mesh, model) in [("tp=2", llama(&[])), ("tp=2", llama(&[("kv_heads", 1)])), ("ep=2,tp=2", mixtral())] {
        let prompt = [3, 1, 4, 1, 5];
        let alone = model.generate_greedy(&prompt, 12, &Cpu::new(1)).unwrap();
        let mesh = Mesh::parse(mesh).unwrap();
        let ran = thread_transport::spawn(&mesh, |comm| {
            let backend = Cpu::new(1).with_communicator(comm.clone());
            let writing = GenerateOptions { max_new_tokens: 12, ranks: Some(comm), ..GenerateOptions::default() };
            model
                .generate_with_options(&prompt, &writing, &backend, &mut |_| true)
                .map_err(|e| dist::Error::InvalidCall(e.to_string()))
        });
        for found in ran.unwrap_or_else(|e| panic!("{mesh}: {e}")) {
            assert_eq!(found.ids, alone.ids, "{mesh}");
        }
    }
}

#[test]
fn heads_that_tp_can_not_divide_are_gathered_and_right() {
    // One key head for two ranks; a width that three ranks can't share.
    let sizes = StepSizes { micro_batch_size: 2, seq_len: 16, gradient_accumulation_steps: 1 };
    for (mesh, pairs) in [("tp=2", [("kv_heads", 1), ("d_ff", 48)]), ("tp=3", [("kv_heads", 2), ("d_ff", 40)])] {
        let want = alone(llama(&pairs), sizes, 2);
        same_numbers(mesh, &on_mesh(mesh, &|| llama(&pairs), sizes, None, 0..2), &want);
    }
}

#[test]
fn a_state_goes_on_upon_another_mesh() {
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: 1 };
    let whole = alone(llama(&[]), sizes, 4);
    let first = on_mesh("fsdp=2,tp=2", &|| llama(&[]), sizes, None, 0..2);
    for mesh in ["fsdp=2,tp=2", "dp=2", "fsdp=4"] {
        let rest = on_mesh(mesh, &|| llama(&[]), sizes, Some(&first[0].state), 2..4);
        for (got, want) in rest[0].losses.iter().zip(&whole.losses[2..]) {
            close(got.0, want.0, mesh);
        }
        if mesh == "fsdp=2,tp=2" {
            let straight = on_mesh(mesh, &|| llama(&[]), sizes, None, 0..4);
            assert_eq!(rest[0].state, straight[0].state, "resuming changes bits");
        }
    }
}

#[test]
fn traffic_and_memory_are_what_theory_says() {
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 8, gradient_accumulation_steps: 1 };
    let large = [("vocab_size", 64), ("d_model", 128), ("n_layers", 6), ("d_ff", 256)];
    let model = || llama(&large);
    let want = alone(model(), sizes, 1);
    let parameters = 4 * model().parameter_count();
    let table = 4 * 64 * 128;
    let within = |got: usize, theory: usize, what: &str| {
        let off = (got as f64 - theory as f64).abs() / theory as f64;
        println!("{what}: {got} bytes a rank and step, theory {theory}");
        assert!(off < 0.01, "{what}: {got} bytes a rank and step, theory says {theory}");
    };
    // Gradients are all-reduced: each rank sends all but its shard, twice.
    for n in [2, 4] {
        let ran = on_mesh(&format!("dp={n}"), &model, sizes, None, 0..1);
        within(ran[0].sent, 2 * parameters * (n - 1) / n, &format!("dp={n}"));
    }
    // Parameters are gathered for forward and for backward (which does not use the embedding table), gradients are reduce-scattered.
    let ran = on_mesh("fsdp=4", &model, sizes, None, 0..1);
    within(ran[0].sent, (3 * parameters - table) * 3 / 4, "fsdp=4");
    println!("memory of a rank: {} of {}", ran[0].bytes, want.bytes);
    assert!((ran[0].bytes as f64) < 0.35 * want.bytes as f64, "{} of {}", ran[0].bytes, want.bytes);
}

#[test]
fn meshes_that_do_not_fit_are_refused_with_a_remedy() {
    let sizes = StepSizes { micro_batch_size: 3, seq_len: 8, gradient_accumulation_steps: 1 };
    for (mesh, said) in [
        ("dp=2", "give a multiple of 2"),
        ("pp=3", "2 layers cannot be split into 3 pipeline stages"),
        ("zz=2", "use dp, fsdp, tp, ep, sp, pp"),
    ] {
        let parsed = Mesh::parse(mesh).unwrap();
        let e = thread_transport::spawn(&parsed, |comm| {
            let backend = Cpu::new(1).with_communicator(comm.clone());
            let how = ObjectiveOptions { comm: Some(&comm), ..ObjectiveOptions::default() };
            let made = LanguageModelTrainer::new(llama(&[]), None, sizes, ADAM, &how, &backend);
            Ok(made.err().map_or(String::new(), |e| e.to_string()))
        });
        for text in e.unwrap() {
            assert!(text.contains(said), "{text}");
        }
    }
}

/// The planned memory and traffic equal those of a run, on ten meshes.
#[test]
fn plans_say_what_ranks_hold_and_send() {
    use tensorloom_models::plan::{DEVICES, TrainJob, cost};
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: 1 };
    let pairs = [("d_model", 64), ("n_layers", 2), ("d_ff", 128)];
    let meshes = [
        "dp=2",
        "dp=4",
        "tp=2",
        "fsdp=2",
        "fsdp=4",
        "sp=2",
        "dp=2,tp=2",
        "fsdp=2,tp=2",
        "dp=2,fsdp=2",
        "dp=2,sp=2",
        "pp=2",
        "dp=2,pp=2",
    ];
    for mesh in meshes {
        let sizes = StepSizes { gradient_accumulation_steps: if mesh.contains("pp") { 4 } else { 1 }, ..sizes };
        let ran = on_mesh(mesh, &|| llama(&pairs), sizes, None, 0..1);
        let held = ran.iter().map(|r| r.bytes).max().unwrap();
        let job = TrainJob { architecture: llama(&pairs).architecture, dtype: DType::F32, sizes, chunks: 1 };
        let planned = cost(&job, &Mesh::parse(mesh).unwrap(), &DEVICES[0], true);
        let planned = planned.unwrap_or_else(|e| panic!("{mesh}: {e}"));
        let off = |got: f64, want: f64| (got - want).abs() / want;
        let memory = off(planned.memory() as f64, held as f64);
        let sent = off(planned.counts.bytes_sent(), ran[0].sent as f64);
        println!(
            "{mesh}: memory {} of {}, sent {} of {}",
            planned.memory(),
            held,
            planned.counts.bytes_sent(),
            ran[0].sent
        );
        assert!(memory < 0.05, "{mesh}: {} bytes planned, {held} held", planned.memory());
        // The traffic between stages differs from rank to rank.
        assert!(
            mesh.contains("pp") || sent < 0.01,
            "{mesh}: {} planned, {} sent",
            planned.counts.bytes_sent(),
            ran[0].sent
        );
    }
}
