//! Nested meshes, sizes that don't divide evenly, and combinations with other training features: each gives the numbers of one
//! process, or an error with a remedy.

use super::*;
use tensorloom_models::{Adapter, AdapterOptions, LoraOptions};

#[test]
fn nested_meshes_give_the_losses_of_one_process() {
    for (mesh, accumulate, experts) in [
        ("dp=2,tp=2,pp=2", 2, false),
        ("dp=2,fsdp=2,tp=2", 1, false),
        ("fsdp=2,tp=2,pp=2", 3, false),
        ("dp=2,sp=2,tp=2", 2, false),
        ("pp=2,sp=2,tp=2", 2, false),
        ("dp=2,ep=2,tp=2", 1, true),
        ("fsdp=2,ep=2,pp=2", 2, true),
        ("tp=2,dp=2", 1, false),
        ("dp=3", 3, false),
        ("tp=4", 1, false),
    ] {
        let rows = if mesh == "dp=3" { 3 } else { 4 };
        let sizes = StepSizes { micro_batch_size: rows, seq_len: 16, gradient_accumulation_steps: accumulate };
        let model = || if experts { mixtral() } else { llama(&[]) };
        let want = alone(model(), sizes, 2);
        same_numbers(mesh, &on_mesh(mesh, &model, sizes, None, 0..2), &want);
    }
}

/// Vocabularies, widths and numbers of heads that can't be split evenly.
#[test]
fn sizes_that_do_not_divide_are_kept_whole_and_right() {
    let odd = [("vocab_size", 49), ("d_ff", 45), ("heads", 3), ("kv_heads", 1), ("d_model", 24)];
    let wide = [("vocab_size", 53), ("d_ff", 51), ("heads", 4), ("kv_heads", 4), ("n_layers", 3)];
    for (mesh, pairs, accumulate) in [
        ("tp=2", odd, 1),
        ("fsdp=2,tp=2", odd, 1),
        ("fsdp=4", wide, 1),
        ("tp=2,pp=2", wide, 3),
        ("dp=2,pp=2", wide, 1),
        ("sp=2,tp=2", odd, 1),
    ] {
        let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: accumulate };
        let want = alone(llama(&pairs), sizes, 2);
        same_numbers(mesh, &on_mesh(mesh, &|| llama(&pairs), sizes, None, 0..2), &want);
    }
}

/// A tied embedding table is on every stage that uses it, with one gradient.
#[test]
fn tied_embeddings_stay_tied() {
    for name in ["gpt2", "gemma"] {
        for mesh in ["tp=2", "pp=2", "fsdp=2", "dp=2,pp=2", "tp=2,pp=2"] {
            let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: 2 };
            let tied = || tied(name);
            let want = alone(tied(), sizes, 2);
            same_numbers(&format!("{name} {mesh}"), &on_mesh(mesh, &tied, sizes, None, 0..2), &want);
        }
    }
}

fn tied(name: &str) -> Model {
    let pairs: &[(&str, i64)] = match name {
        "gpt2" => &[("vocab_size", 48), ("d_model", 32), ("n_layers", 2), ("heads", 4), ("max_seq", 32)],
        _ => &[
            ("vocab_size", 48),
            ("d_model", 32),
            ("n_layers", 2),
            ("heads", 4),
            ("kv_heads", 2),
            ("head_dim", 8),
            ("d_ff", 48),
            ("max_seq", 32),
        ],
    };
    let given = pairs.iter().map(|(name, n)| (name.to_string(), ConstValue::int(*n))).collect();
    let architecture = Architecture::from_library(name, given).unwrap_or_else(|e| panic!("{e}"));
    let model = Model::new_random(architecture, DType::F32, 5).unwrap_or_else(|e| panic!("{e}"));
    assert!(!model.params.iter().any(|p| p.path.contains("lm_head")), "{name} has a head of its own");
    model
}

/// Trains an adapter; returns the losses of rank 0, or the error.
fn adapted(mesh: &str, sizes: StepSizes) -> std::result::Result<Vec<f32>, String> {
    let made = |comm: Option<Arc<Comm>>| -> std::result::Result<Vec<f32>, String> {
        let model = llama(&[]);
        let options = AdapterOptions::from(&LoraOptions::parse("rank=4,alpha=8,targets=q,v,down").unwrap());
        let adapter = Adapter::new_untrained(&model, "tiny", options, 3).map_err(|e| e.to_string())?;
        let backend = match &comm {
            Some(comm) => Cpu::new(1).with_communicator(comm.clone()),
            None => Cpu::new(1),
        };
        let how = ObjectiveOptions { comm: comm.as_ref(), ..ObjectiveOptions::default() };
        let mut trainer =
            LanguageModelTrainer::new(model, Some(adapter), sizes, ADAM, &how, &backend).map_err(|e| e.to_string())?;
        let mut losses = Vec::new();
        for step in 0..3 {
            let batch = batch(sizes.micro_batch_size * sizes.gradient_accumulation_steps, sizes.seq_len, step as u64);
            losses.push(trainer.step(&batch, 1e-2, step).map_err(|e| e.to_string())?.loss);
        }
        Ok(losses)
    };
    if mesh.is_empty() {
        return made(None);
    }
    let ran =
        thread_transport::spawn(&Mesh::parse(mesh).unwrap(), |comm| made(Some(comm)).map_err(dist::Error::InvalidCall));
    ran.map(|all| all[0].clone()).map_err(|e| e.to_string())
}

#[test]
fn adapters_train_on_meshes_or_say_why_not() {
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: 2 };
    let want = adapted("", sizes).unwrap();
    for mesh in ["dp=2", "tp=2", "fsdp=2", "dp=2,tp=2", "sp=2"] {
        let got = adapted(mesh, sizes).unwrap_or_else(|e| panic!("{mesh}: {e}"));
        got.iter().zip(&want).for_each(|(a, b)| close(*a, *b, mesh));
    }
    let e = adapted("pp=2", sizes).unwrap_err();
    assert!(e.contains("remove `pp`"), "{e}");
}

/// In bf16, losses differ by rounding errors; they are bitwise reproducible.
#[test]
fn narrow_numbers_on_meshes() {
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: 1 };
    let narrow = || Model::new_random(llama(&[]).architecture, DType::BF16, 5).unwrap();
    let want = alone(narrow(), sizes, 3);
    for mesh in ["dp=2", "tp=2", "fsdp=2", "pp=2"] {
        let ran = on_mesh(mesh, &narrow, sizes, None, 0..3);
        for (got, want) in ran[0].losses.iter().zip(&want.losses) {
            assert!((got.0 - want.0).abs() < 0.01 * want.0, "{mesh}: {} {}", got.0, want.0);
        }
        assert_eq!(ran, on_mesh(mesh, &narrow, sizes, None, 0..3), "{mesh}");
    }
}

/// Nothing is sent between the products of an expert: the traffic does not grow with the experts' width.
#[test]
fn experts_are_told_tokens_alone() {
    use tensorloom_models::plan::{DEVICES, TrainJob, cost};
    for mesh in ["ep=2", "ep=4"] {
        let sent = [48, 480].map(|wide| {
            let architecture = model("mixtral", &[("experts", 4), ("top_k", 2), ("d_ff", wide)]).architecture;
            let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: 1 };
            let job = TrainJob { architecture, dtype: DType::F32, sizes, chunks: 1 };
            cost(&job, &Mesh::parse(mesh).unwrap(), &DEVICES[0], true).unwrap().counts.bytes_sent()
        });
        println!("{mesh}: {sent:?} bytes a rank and step");
        assert_eq!(sent[0], sent[1], "{mesh}");
    }
}

/// A model with explicit collectives.
const TALKS: &str = r#"
from std.modules.linear import Linear

module Gradual(width: int, inner: int):
  """A layer with a backward pass of its own, whose gradients go in buckets."""
  params:
    up: [inner, width] @shard(column)
    down: [width, inner] @shard(row)

  forward:
    in: [B, T, width]
    out: [B, T, width]
    graph:
      in -> rmsnorm() -> whole @shard(FIRST)
      whole -> Linear(up) -> silu() -> wide @shard(column)
      wide -> Linear(down) -> back @comm(SECOND)
      (in, back) -> add() -> out @shard(THIRD)

model Talks(vocab_size: int = 48, width: int = 32, inner: int = 64):
  params:
    embedding: [vocab_size, width]
    first: Gradual(width, inner)
    second: Gradual(width, inner)
    lm_head: [vocab_size, width] @shard(column)

  forward:
    in: [B, T, int32]
    out: [B, T, vocab_size]
    graph:
      in -> embedding(embedding) -> x0
      x0 -> first() -> x1
      x1 -> second() -> x2
      x2 -> Linear(lm_head) -> out
"#;

/// Sharding annotations of results change the traffic, and no number.
#[test]
fn models_that_say_where_ranks_talk() {
    let sizes = StepSizes { micro_batch_size: 4, seq_len: 16, gradient_accumulation_steps: 1 };
    let mut sent = Vec::new();
    for (k, [first, second, third]) in [
        ["replicated", "all_reduce, group=\"tp\"", "replicated"],
        ["sequence", "reduce_scatter, group=\"tp\", async=false", "sequence"],
        ["batch", "all_gather, group=\"tp\"", "column"],
        ["sequence", "all_to_all", "head"],
    ]
    .into_iter()
    .enumerate()
    {
        let text = TALKS.replace("FIRST", first).replace("SECOND", second).replace("THIRD", third);
        let path = std::env::temp_dir().join(format!("tensorloom-talks-{}-{k}.module", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let made = || {
            let architecture = tensorloom_models::plan::architecture(path.to_str().unwrap(), "");
            let architecture = architecture.unwrap_or_else(|e| panic!("{e}"));
            Model::new_random(architecture, DType::F32, 5).unwrap_or_else(|e| panic!("{e}"))
        };
        let want = alone(made(), sizes, 2);
        for mesh in ["tp=2", "dp=2,tp=2"] {
            let ran = on_mesh(mesh, &made, sizes, None, 0..2);
            same_numbers(&format!("{mesh} {first} {second} {third}"), &ran, &want);
            sent.push(ran[0].sent);
        }
        let _ = std::fs::remove_file(path);
    }
    println!("bytes sent by turns on tp=2 and dp=2,tp=2: {sent:?}");
    sent.dedup();
    assert!(sent.len() > 4, "annotations change nothing: {sent:?}");
}

#[test]
fn what_can_not_be_is_refused_with_a_remedy() {
    let cases: &[(&str, usize, StepSizes, &str)] = &[
        (
            "pp=2",
            2,
            StepSizes { micro_batch_size: 4, seq_len: 8, gradient_accumulation_steps: 3 },
            "multiple of 2 micro-batches",
        ),
        (
            "sp=3",
            1,
            StepSizes { micro_batch_size: 2, seq_len: 8, gradient_accumulation_steps: 1 },
            "`--seq-len 8` is not divisible by 3",
        ),
        (
            "dp=2,fsdp=2",
            1,
            StepSizes { micro_batch_size: 6, seq_len: 8, gradient_accumulation_steps: 1 },
            "give a multiple of 4",
        ),
    ];
    for (mesh, chunks, sizes, said) in cases {
        let parsed = Mesh::parse(mesh).unwrap();
        let e = thread_transport::spawn(&parsed, |comm| {
            let backend = Cpu::new(1).with_communicator(comm.clone());
            let how = ObjectiveOptions { chunks: *chunks, comm: Some(&comm), ..ObjectiveOptions::default() };
            let model = llama(&[("n_layers", 4)]);
            let made = LanguageModelTrainer::new(model, None, *sizes, ADAM, &how, &backend);
            Ok(made.err().map_or(String::new(), |e| e.to_string()))
        });
        for text in e.unwrap() {
            assert!(text.contains(said), "{mesh}: `{text}`");
        }
    }
}
