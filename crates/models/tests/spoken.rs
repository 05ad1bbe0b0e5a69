//! Tests the annotations and mappings of a module: assertions, exports, ties, adapters of a base model.

use cpu::Cpu;
use ir::DType;
use lang::library::LibraryLoader;
use lang::resolve::{MemoryLoader, ModuleProgram};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{AdamW, Batch, LanguageModelTrainer, ObjectiveOptions, StepSizes};
use tensorloom_models::{Architecture, Checkpoint, Error, Model};

fn model(text: &str) -> Model {
    let program = ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1.0.0", text)));
    let architecture = Architecture::from_program(program, None, BTreeMap::new()).unwrap_or_else(|e| panic!("{e}"));
    Model::new_random(architecture, DType::F32, 3).unwrap_or_else(|e| panic!("{e}"))
}

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-spoken-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn names(dir: &Path) -> Vec<String> {
    Checkpoint::open(dir).expect("a checkpoint").names().map(String::from).collect()
}

fn logits(model: &Model) -> Vec<f32> {
    model.evaluate_on(&[vec![1, 4, 2, 3]], None, &Cpu::new(1)).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec()
}

const ASSERTING: &str = "\
from std.modules.linear import Linear

block Layer(width: int, limit: float):
  params:
    w: [width, width]

  forward:
    in: [B, T, width]
    out: [B, T, width]
    graph:
      in -> Linear(w) -> y @assert(all(y < limit), message=\"y is wild\")
      y -> silu() -> out

model M(vocab_size: int = 8, width: int = 4, layers: int = 2, limit: float = 1000.0, wide: int = 4):
  params:
    table: [vocab_size, width]
    blocks: [layers] x Layer(width, limit)
    head: [vocab_size, width]

  forward:
    in: [B, T, int32]
    out: [B, T, vocab_size]
    graph:
      in -> embedding(table) -> x @assert(x.shape[-1] == wide, message=\"not wide\") @assert(!has_nan(x), enabled=false)
      x -> StackedBlocks(blocks, layers) -> h
      h -> Linear(head) -> out
";

/// `@assert` fails evaluation, generation, probing and training, with a message and the tensor, and only at a violation.
#[test]
fn assertions_raise_wherever_a_model_runs() {
    let cpu = Cpu::new(1);
    let ids = [vec![1, 4, 2, 3]];
    let fine = model(ASSERTING);
    fine.evaluate_on(&ids, Some(&ids), &cpu).expect("nothing is wild");
    fine.generate_greedy(&ids[0], 4, &cpu).expect("nothing is wild");
    let broken = model(&ASSERTING.replace("limit: float = 1000.0", "limit: float = -1000.0"));
    let raised = |result: std::result::Result<(), Error>, what: &str| match result {
        Err(Error::Assertion { path, message }) => {
            assert_eq!((path.as_str(), message.as_str()), ("blocks[0].y", "y is wild"), "{what}");
        }
        other => panic!("{what}: {other:?}"),
    };
    raised(broken.evaluate_on(&ids, None, &cpu).map(|_| ()), "logits");
    raised(broken.evaluate_on(&ids, Some(&ids), &cpu).map(|_| ()), "loss");
    raised(broken.generate_greedy(&ids[0], 4, &cpu).map(|_| ()), "generation");
    raised(broken.capture(&ids, None, &cpu).map(|_| ()), "probes");
    let adam = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };
    for accumulate in [1, 2] {
        let sizes = StepSizes { micro_batch_size: 1, seq_len: 4, gradient_accumulation_steps: accumulate };
        let batch = Batch { ids: ids[0].repeat(accumulate), labels: ids[0].repeat(accumulate) };
        let step = |text: &str| {
            let mut trainer =
                LanguageModelTrainer::new(model(text), None, sizes, adam, &ObjectiveOptions::default(), &cpu)
                    .unwrap_or_else(|e| panic!("{e}"));
            trainer.step(&batch, 1e-3, 0).map(|_| ())
        };
        step(ASSERTING).expect("nothing is wild");
        raised(step(&ASSERTING.replace("limit: float = 1000.0", "limit: float = -1000.0")), "training");
    }
    // Constant conditions are checked at compile time.
    let program = ModuleProgram::load(
        "m",
        &LibraryLoader(MemoryLoader::new().with("m", "v1", &ASSERTING.replace("wide: int = 4", "wide: int = 5"))),
    );
    let architecture = Architecture::from_program(program, None, BTreeMap::new()).expect("no mistakes");
    let known = Model::new_random(architecture, DType::F32, 3).expect("weights");
    match known.evaluate_on(&ids, None, &cpu) {
        Err(Error::Language(text)) => assert!(text.contains("not wide"), "{text}"),
        other => panic!("{other:?}"),
    }
}

const SPOKEN: &str = "\
from std.modules.linear import Linear

model M(vocab_size: int = 8, width: int = 4):
  let:
    rest = vocab_size - 3

  params:
    table: [vocab_size, width]
    mix: [2 * width, width]
    head: [vocab_size, width]

  forward:
    in: [B, T, int32]
    out: [B, T, vocab_size]
    graph:
      in -> embedding(table) -> x
      x -> Linear(mix) -> both
      both -> split([width, width], dim=-1) -> (a, b)
      (a, b) -> mul() -> h
      h -> Linear(head) -> out

  hf_mapping:
    table: split(\"low\": [0, 3], \"high\": [3, 3 + rest], dim=0)
    mix: \"mix\"
    head: HEAD
EXPORT";

/// `hf_export` determines which tensors are written; those that it does not mention are written as they were read.
#[test]
fn exports_are_what_hf_export_says() {
    let text = |export: &str| SPOKEN.replace("HEAD", "\"head\"").replace("EXPORT", export);
    let dir = temporary("plain");
    let plain = model(&text(""));
    plain.export(&dir).expect("written");
    assert_eq!(names(&dir), ["head", "high", "low", "mix"]);
    let back = Model::load(&dir, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(logits(&back), logits(&plain));

    let export = "\n  hf_export:\n    mix -> split(\"gate\": [0, width], \"up\": [width, 2 * width], dim=0)\n    \
                  head -> transform(\"head.T\", fn: transpose)\n";
    let apart = temporary("apart");
    model(&text(export)).export(&apart).expect("written");
    assert_eq!(names(&apart), ["gate", "head.T", "high", "low", "up"]);
    // The contents are correct: loaded with the corresponding mapping, the model is the same.
    let mapped = text("")
        .replace("mix: \"mix\"", "mix: fuse(\"gate\", \"up\", dim=0)")
        .replace("head: \"head\"", "head: transform(\"head.T\", fn: transpose)");
    let other = temporary("other");
    model(&mapped).export(&other).expect("written");
    let config = std::fs::read_to_string(other.join("config.json")).expect("there");
    std::fs::write(apart.join("config.json"), config).expect("written");
    let back = Model::load(&apart, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(logits(&back), logits(&plain));

    let twice = "\n  hf_export:\n    mix -> \"head\"\n";
    let fault = model(&text(twice)).export(&temporary("twice")).expect_err("one name twice");
    assert!(fault.to_string().contains("`head` twice"), "{fault}");
    let uneven = "\n  hf_export:\n    mix -> split(\"gate\": [0, width], \"up\": [width, width + 1], dim=0)\n";
    let fault = model(&text(uneven)).export(&temporary("uneven")).expect_err("not all of it");
    assert!(fault.to_string().contains("end at 5"), "{fault}");
    for name in ["plain", "apart", "other", "twice", "uneven"] {
        let _ = std::fs::remove_dir_all(temporary(name));
    }
}

/// A parameter that the mapping ties to another is shared: read once, trained together, written once.
#[test]
fn ties_of_the_mapping_are_ties() {
    let tied = model(&SPOKEN.replace("HEAD", "tied_to(table)").replace("EXPORT", ""));
    assert_eq!(tied.params.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(), ["table", "mix"]);
    let dir = temporary("tied");
    tied.export(&dir).expect("written");
    assert_eq!(names(&dir), ["high", "low", "mix"]);
    let back = Model::load(&dir, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(logits(&back), logits(&tied));
    let _ = std::fs::remove_dir_all(&dir);
    let program = |text: &str| ModuleProgram::load("m", &LibraryLoader(MemoryLoader::new().with("m", "v1", text)));
    let wrong = program(&SPOKEN.replace("HEAD", "tied_to(mix)").replace("EXPORT", "").replace("int = 8", "int = 9"));
    let architecture = Architecture::from_program(wrong, None, BTreeMap::new()).expect("no mistakes of names");
    let fault = Model::new_random(architecture, DType::F32, 1).err().expect("two types");
    assert!(fault.to_string().contains("tied parameters have one type"), "{fault}");
    let nowhere = program(&SPOKEN.replace("HEAD", "tied_to(tabel)").replace("EXPORT", ""));
    let fault = Architecture::from_program(nowhere, None, BTreeMap::new()).expect_err("no such parameter");
    assert!(fault.to_string().contains("did you mean `table`?"), "{fault}");
}

/// `@adapter` on a checkpoint of the base model: its weights start without effect, are trained, and are saved.
#[test]
fn adapters_start_beside_a_base_checkpoint() {
    let base = SPOKEN.replace("HEAD", "\"head\"").replace("EXPORT", "");
    let dir = temporary("base");
    let plain = model(&base);
    plain.export(&dir).expect("written");
    let adapted = base
        .replace("-> both\n", "-> both @adapter(lora, rank=2, alpha=4.0, targets=[a, b])\n")
        .replace("-> out\n\n", "-> out @adapter(ia3)\n\n");
    let config = temporary("config");
    model(&adapted).export(&config).expect("written");
    let stored = names(&config);
    assert!(stored.iter().any(|name| name.ends_with("lora_A")), "{stored:?}");
    std::fs::copy(config.join("config.json"), dir.join("config.json")).expect("copied");
    let beside = Model::load(&dir, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let added: Vec<&str> = beside.params.iter().filter(|p| p.adapter).map(|p| p.path.as_str()).collect();
    assert_eq!(added, ["both.a.lora_A", "both.a.lora_B", "both.b.lora_A", "both.b.lora_B", "out.ia3"]);
    assert_eq!(logits(&beside), logits(&plain), "an adapter starts without effect");

    let adam = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.0, max_grad_norm: 1.0 };
    let sizes = StepSizes { micro_batch_size: 1, seq_len: 4, gradient_accumulation_steps: 1 };
    let mut trainer = LanguageModelTrainer::new(beside, None, sizes, adam, &ObjectiveOptions::default(), &Cpu::new(1))
        .unwrap_or_else(|e| panic!("{e}"));
    let batch = Batch { ids: vec![1, 4, 2, 3], labels: vec![4, 2, 3, 1] };
    for step in 0..3 {
        trainer.step(&batch, 0.05, step).unwrap_or_else(|e| panic!("{e}"));
    }
    let trained = trainer.model().unwrap_or_else(|e| panic!("{e}"));
    let out = temporary("trained");
    trained.export(&out).expect("written");
    let back = Model::load(&out, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(logits(&back), logits(&trained));
    assert_ne!(logits(&back), logits(&plain));
    for name in ["base", "config", "trained"] {
        let _ = std::fs::remove_dir_all(temporary(name));
    }
}
