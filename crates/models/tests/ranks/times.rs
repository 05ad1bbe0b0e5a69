//! Compares predicted and measured step times. Timings need an idle machine: `TENSORLOOM_TIMES=1` enables them.

use super::*;
use std::time::Instant;
use tensorloom_models::plan::{LocalMachine, RankTransport, TrainJob};

/// The median seconds of a step of the slowest rank on a mesh of threads, and the bytes of the rank with the most memory.
fn measured(
    mesh: &str,
    model: &(dyn Fn() -> Model + Sync),
    sizes: StepSizes,
    overlaps: bool,
    count: usize,
) -> (f64, usize) {
    let mesh = Mesh::parse(mesh).unwrap();
    let transports =
        std::sync::Mutex::new(thread_transport::transports(mesh.ranks()).into_iter().map(Some).collect::<Vec<_>>());
    let found: Vec<(f64, usize)> = std::thread::scope(|scope| {
        let one = |rank: usize| {
            let (mesh, transports) = (&mesh, &transports);
            scope.spawn(move || {
                let own = transports.lock().unwrap()[rank].take().unwrap();
                let comm = Arc::new(Comm::new(Arc::new(own), mesh.clone()).unwrap().with_overlap(overlaps));
                let backend = Cpu::new(1).with_communicator(comm.clone());
                let how = ObjectiveOptions { comm: Some(&comm), ..ObjectiveOptions::default() };
                let mut trainer = LanguageModelTrainer::new(model(), None, sizes, ADAM, &how, &backend).unwrap();
                let mut all = Vec::new();
                for step in 0..count {
                    let batch =
                        batch(sizes.micro_batch_size * sizes.gradient_accumulation_steps, sizes.seq_len, step as u64);
                    let begun = Instant::now();
                    trainer.step(&batch, 1e-3, step).unwrap();
                    all.push(begun.elapsed().as_secs_f64());
                }
                all.remove(0);
                all.sort_by(f64::total_cmp);
                (all[all.len() / 2], trainer.planned_bytes())
            })
        };
        let all: Vec<_> = (0..mesh.ranks()).map(one).collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    found.iter().fold((0.0, 0), |(a, b): (f64, usize), (c, d)| (a.max(*c), b.max(*d)))
}

#[test]
fn plans_foretell_the_time_of_a_step() {
    // All meshes, or some by index: `TENSORLOOM_TIMES=0-4`.
    let asked = std::env::var("TENSORLOOM_TIMES").ok();
    let long = asked.is_some();
    let wide = [("vocab_size", 512), ("d_model", 128), ("n_layers", 4), ("d_ff", 384), ("max_seq", 64)];
    let small = [("vocab_size", 48), ("d_model", 32), ("n_layers", 4), ("d_ff", 48), ("max_seq", 64)];
    let pairs = if long { wide } else { small };
    let meshes = [
        ("dp=2", 1),
        ("tp=2", 1),
        ("fsdp=2", 1),
        ("sp=2", 1),
        ("pp=2", 4),
        ("dp=4", 1),
        ("fsdp=4", 1),
        ("dp=2,tp=2", 1),
        ("dp=2,pp=2", 4),
        ("fsdp=2,tp=2", 2),
    ];
    let mut here = LocalMachine::new(RankTransport::Threads);
    let mut worst: f64 = 0.0;
    println!("| mesh | foretold ms | measured ms | ratio | computing | talking | waiting | memory |");
    let range =
        asked.as_deref().and_then(|a| a.split_once('-')).and_then(|(a, b)| Some(a.parse().ok()?..=b.parse().ok()?));
    let chosen = match range {
        Some(range) => &meshes[range],
        None if long => &meshes[..],
        None => &meshes[..1],
    };
    for (mesh, accumulate) in chosen {
        let sizes = StepSizes {
            micro_batch_size: 8,
            seq_len: if long { 64 } else { 16 },
            gradient_accumulation_steps: *accumulate,
        };
        let job = TrainJob { architecture: llama(&pairs).architecture, dtype: DType::F32, sizes, chunks: 1 };
        let parsed = Mesh::parse(mesh).unwrap();
        // Alternately, so that other load affects both.
        let (mut ratios, mut shown, mut held) = (Vec::new(), None, 0.0);
        for _ in 0..if long { 3 } else { 1 } {
            let cost = here.cost(&job, &parsed).unwrap_or_else(|e| panic!("{mesh}: {e}"));
            let (real, bytes) = measured(mesh, &|| llama(&pairs), sizes, true, if long { 13 } else { 3 });
            held = cost.memory() as f64 / bytes as f64;
            assert!((held - 1.0).abs() < 0.05, "{mesh}: {} bytes planned, {bytes} held", cost.memory());
            assert!(cost.seconds() > 0.0 && real > 0.0);
            ratios.push(cost.seconds() / real);
            shown = Some((cost, real));
        }
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ratios.len() / 2];
        let (cost, real) = shown.unwrap();
        println!(
            "| {mesh} | {:.2} | {:.2} | {ratio:.2} | {:.2} | {:.2} | {:.2} | {held:.3} |",
            1e3 * cost.seconds(),
            1e3 * real,
            1e3 * cost.compute,
            1e3 * cost.communication,
            1e3 * cost.pipeline_bubble
        );
        worst = worst.max((ratio - 1.0).abs());
    }
    assert!(!long || worst < 0.25, "off by {worst:.2}");
}

/// A slow network: sending takes time, but no core.
struct Slow {
    inner: thread_transport::ThreadTransport,
    speed: f64,
}

impl dist::Transport for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn world_size(&self) -> usize {
        self.inner.world_size()
    }
    fn send_recv(
        &self,
        tag: dist::Tag,
        sends: &[(usize, &[u8])],
        receives: &mut [(usize, &mut [u8])],
    ) -> dist::Result<()> {
        let bytes: usize = sends.iter().map(|(_, b)| b.len()).sum();
        std::thread::sleep(std::time::Duration::from_secs_f64(50e-6 + bytes as f64 / self.speed));
        self.inner.send_recv(tag, sends, receives)
    }
    fn abort(&self, rank: usize, reason: &str) {
        self.inner.abort(rank, reason)
    }
    fn shutdown(&self) {
        self.inner.shutdown()
    }
}

/// Steps over a slow network: gradients one by one, in buckets, and in buckets with overlap, alternately.
#[test]
fn buckets_and_overlap_save_time_on_a_slow_network() {
    if std::env::var("TENSORLOOM_TIMES").is_err() {
        return;
    }
    let pairs = [("vocab_size", 512), ("d_model", 128), ("n_layers", 4), ("d_ff", 384), ("max_seq", 64)];
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 64, gradient_accumulation_steps: 1 };
    let mesh = Mesh::parse("dp=2").unwrap();
    let run = |bucket: usize, overlaps: bool| -> f64 {
        let times: Vec<f64> = std::thread::scope(|scope| {
            let all: Vec<_> = thread_transport::transports(2)
                .into_iter()
                .map(|inner| {
                    let slow = Slow { inner, speed: 200e6 };
                    let comm = Comm::new(Arc::new(slow), mesh.clone()).unwrap().with_overlap(overlaps);
                    scope.spawn(move || {
                        let comm = Arc::new(comm);
                        let backend = Cpu::new(1).with_communicator(comm.clone());
                        let how = ObjectiveOptions {
                            bucket_bytes: Some(bucket),
                            comm: Some(&comm),
                            ..ObjectiveOptions::default()
                        };
                        let model = llama(&pairs);
                        let mut trainer = LanguageModelTrainer::new(model, None, sizes, ADAM, &how, &backend).unwrap();
                        let mut best = f64::MAX;
                        for step in 0..8 {
                            let batch = batch(sizes.micro_batch_size, sizes.seq_len, step as u64);
                            let begun = Instant::now();
                            trainer.step(&batch, 1e-3, step).unwrap();
                            best = best.min(begun.elapsed().as_secs_f64());
                        }
                        best
                    })
                })
                .collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        times.iter().fold(0.0, |a: f64, b| a.max(*b))
    };
    let ways = [
        ("one by one", 0, false),
        ("one by one, meanwhile", 0, true),
        ("buckets", 1 << 20, false),
        ("buckets, meanwhile", 1 << 20, true),
    ];
    let mut best = [f64::MAX; 4];
    for _ in 0..4 {
        for (best, (_, bucket, overlaps)) in best.iter_mut().zip(&ways) {
            *best = best.min(run(*bucket, *overlaps));
        }
    }
    for (best, (name, ..)) in best.iter().zip(&ways) {
        println!("{name}: {:.2} ms a step", 1e3 * best);
    }
}
