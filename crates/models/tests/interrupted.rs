//! Runs with failing disk operations: a run can always be resumed with bitwise equal results.
//!
//! `LOOM_FAULTS=all` lets every single operation fail; without it, some of each kind.

use cpu::Cpu;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tensorloom_models::files::{FileOperation, FileSystemLayer, with_layer};
use tensorloom_models::train::{NoProgress, StepProgress, TrainObserver, TrainSettings, checkpoint, run};

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-interrupted-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn settings(out: &Path, pairs: &[(&str, &str)]) -> TrainSettings {
    let mut settings = TrainSettings { out: out.to_path_buf(), ..TrainSettings::default() };
    let own = [
        ("set", "d_model=8,n_layers=1,heads=2,kv_heads=1,d_ff=8,max_seq=16,tied=true"),
        ("stories", "4000"),
        ("vocab", "260"),
        ("steps", "6"),
        ("batch", "2"),
        ("seq", "8"),
        ("warmup", "2"),
        ("checkpoint-every", "2"),
        ("eval-every", "3"),
        ("eval-batches", "1"),
        ("sample-every", "1000"),
        ("prompt", "a"),
    ];
    for (name, value) in own.iter().chain(pairs) {
        settings.set(name, value).unwrap_or_else(|e| panic!("{e}"));
    }
    settings
}

/// Lets one operation fail, alone or with all that follow, like a full disk or a power failure.
#[derive(Default)]
struct Failing {
    at: Option<usize>,
    for_good: bool,
    seen: RefCell<Vec<FileOperation>>,
}

impl FileSystemLayer for Failing {
    fn before(&self, operation: FileOperation, _: &Path) -> io::Result<()> {
        let n = self.seen.borrow().len();
        self.seen.borrow_mut().push(operation);
        match self.at.is_some_and(|at| n == at || self.for_good && n > at) {
            true => Err(io::Error::from_raw_os_error(28)),
            false => Ok(()),
        }
    }
}

fn model(out: &Path) -> Vec<u8> {
    std::fs::read(out.join("model.safetensors")).expect("a model")
}

/// Starts a run, or resumes it if there is something to resume.
fn go_on(out: &Path, cpu: &Cpu) {
    let resume = !checkpoint::list_checkpoints(&out.join("checkpoints")).is_empty();
    run(&settings(out, &[]), resume, &[], cpu, &mut NoProgress).unwrap_or_else(|e| panic!("resume {resume}: {e}"));
}

#[test]
fn whatever_fails_a_run_goes_on_to_the_same_bits() {
    let cpu = Cpu::new(1);
    let out = temporary("straight");
    let layer = Rc::new(Failing::default());
    with_layer(layer.clone(), || run(&settings(&out, &[]), false, &[], &cpu, &mut NoProgress))
        .unwrap_or_else(|e| panic!("{e}"));
    let expected = model(&out);
    let seen = layer.seen.borrow().clone();
    assert!(seen.len() > 60, "{seen:?}");
    // The operations that fail: all of each kind, or the first, a middle one, and the last.
    let all = std::env::var_os("LOOM_FAULTS").is_some();
    let mut places = Vec::new();
    for kind in [
        FileOperation::CreateDir,
        FileOperation::Create,
        FileOperation::Write,
        FileOperation::Sync,
        FileOperation::Rename,
        FileOperation::SyncDir,
    ] {
        let of_kind: Vec<usize> = (0..seen.len()).filter(|i| seen[*i] == kind).collect();
        assert!(!of_kind.is_empty(), "{kind:?}");
        match all {
            true => places.extend(of_kind),
            false => places.extend([0, of_kind.len() / 3, of_kind.len() * 2 / 3].map(|i| of_kind[i])),
        }
    }
    places.sort_unstable();
    places.dedup();
    for (i, at) in places.into_iter().enumerate() {
        for for_good in [false, true] {
            if !all && (i % 2 == 0) == for_good {
                continue;
            }
            let out = temporary("failing");
            let layer = Rc::new(Failing { at: Some(at), for_good, ..Failing::default() });
            let result = with_layer(layer, || run(&settings(&out, &[]), false, &[], &cpu, &mut NoProgress));
            match result {
                Ok(_) => assert!(!for_good && model(&out) == expected, "operation {at}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("No space left") && !error.contains('\n'), "operation {at}: {error}");
                    go_on(&out, &cpu);
                    assert!(model(&out) == expected, "operation {at}, {:?}", seen[at]);
                }
            }
            let left = |folder: &Path| -> Vec<String> {
                let entries = std::fs::read_dir(folder).expect("a folder").flatten();
                entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.ends_with(".partial")).collect()
            };
            for folder in [out.clone(), out.join("checkpoints"), out.join("data")] {
                assert_eq!(left(&folder), [""; 0], "operation {at}");
            }
            let _ = std::fs::remove_dir_all(&out);
        }
    }
    let _ = std::fs::remove_dir_all(&out);
}

/// Every subset of a stopped run's checkpoints is damaged: it resumes from the latest valid one
/// with bitwise equal results, or reports the faults.
#[test]
fn any_good_checkpoint_is_enough() {
    let cpu = Cpu::new(1);
    let (straight, stopped) = (temporary("whole"), temporary("stopped"));
    run(&settings(&straight, &[]), false, &[], &cpu, &mut NoProgress).unwrap_or_else(|e| panic!("{e}"));
    let ended = run(&settings(&stopped, &[("keep", "3")]), false, &[], &cpu, &mut StopAt(4, 0));
    assert!(!ended.unwrap_or_else(|e| panic!("{e}")).complete);
    let names = [0, 2, 4].map(|step| format!("checkpoints/step-{step:08}.safetensors"));
    let bytes: Vec<Vec<u8>> = names.iter().map(|name| std::fs::read(stopped.join(name)).expect(name)).collect();
    for subset in 0..8 {
        let damaged = |i: usize| subset >> i & 1 == 1;
        for (i, name) in names.iter().enumerate() {
            let cut = if damaged(i) { bytes[i].len() / (2 + i) } else { bytes[i].len() };
            std::fs::write(stopped.join(name), &bytes[i][..cut]).expect("written");
        }
        let result = run(&settings(&stopped, &[("keep", "1")]), true, &["keep".into()], &cpu, &mut NoProgress);
        match result {
            Ok(_) => {
                assert!(subset < 7 && model(&stopped) == model(&straight), "subset {subset}");
                let left = checkpoint::list_checkpoints(&stopped.join("checkpoints"));
                assert_eq!(left.len(), 1, "{left:?}");
                std::fs::remove_file(&left[0]).expect("removed");
            }
            Err(error) => {
                let error = error.to_string();
                assert_eq!(subset, 7, "{error}");
                for word in
                    ["none of its 3", "step-00000004", "its header declares", "--out"].iter().chain(&["step-00000000"])
                {
                    assert!(error.contains(word), "{error}");
                }
                // Nothing was changed.
                assert_eq!(checkpoint::list_checkpoints(&stopped.join("checkpoints")).len(), 3);
            }
        }
    }
    let _ = std::fs::remove_dir_all(&straight);
    let _ = std::fs::remove_dir_all(&stopped);
}

/// An observer that stops after this many steps.
struct StopAt(usize, usize);

impl TrainObserver for StopAt {
    fn on_message(&mut self, _: &str) {}
    fn on_train_begin(&mut self, _: usize, _: usize) {}
    fn on_step_end(&mut self, progress: &StepProgress) {
        self.1 = progress.step;
    }
    fn on_sample(&mut self, _: usize, _: &str) {}
    fn should_stop(&self) -> bool {
        self.1 >= self.0
    }
}

/// Calls a function at a step.
struct At<F: FnMut()>(usize, F);

impl<F: FnMut()> TrainObserver for At<F> {
    fn on_message(&mut self, _: &str) {}
    fn on_train_begin(&mut self, _: usize, _: usize) {}
    fn on_step_end(&mut self, progress: &StepProgress) {
        if progress.step == self.0 {
            (self.1)();
        }
    }
    fn on_sample(&mut self, _: usize, _: &str) {}
    fn should_stop(&self) -> bool {
        false
    }
}

#[test]
fn resuming_refuses_what_is_not_there_and_what_has_changed() {
    let cpu = Cpu::new(1);
    let folder = temporary("refused");
    std::fs::create_dir_all(&folder).expect("a folder");
    let refuse = |out: &Path, resume: bool, pairs: &[(&str, &str)], words: &[&str]| {
        let error = run(&settings(out, pairs), resume, &[], &cpu, &mut NoProgress).expect_err("refused").to_string();
        for word in words {
            assert!(error.contains(word), "`{word}` is missing: {error}");
        }
        assert!(!error.contains('\n'), "{error}");
    };
    // A mistyped name creates no folder, and the error names the similar one.
    let right = folder.join("first");
    let data = folder.join("data.txt");
    let text = "the cat sat on the mat and the dog ran. ".repeat(200);
    std::fs::write(&data, &text).expect("written");
    let data_path = data.to_str().expect("a path");
    run(&settings(&right, &[("data", data_path), ("steps", "2")]), false, &[], &cpu, &mut NoProgress)
        .unwrap_or_else(|e| panic!("{e}"));
    refuse(&folder.join("frst"), true, &[], &["does not exist", "did you mean", "first"]);
    assert!(!folder.join("frst").exists());
    std::fs::create_dir(folder.join("other")).expect("a folder");
    refuse(&folder.join("other"), true, &[], &["empty", "there is a run in", "first"]);
    std::fs::write(folder.join("other/notes.txt"), "mine").expect("written");
    refuse(&folder.join("other"), true, &[], &["notes.txt"]);
    // A folder that contains a model, or a run.
    std::fs::copy(right.join("model.safetensors"), folder.join("other/model.safetensors")).expect("a copy");
    refuse(&folder.join("other"), false, &[], &["already contains a model", "--out"]);
    refuse(&right, false, &[], &["already contains a run", "--resume"]);
    // Different data of the same length: four fifths replaced, or a single byte.
    let replaced = format!("{}{}", &text[..1600], "x".repeat(text.len() - 1600));
    let one = text.replacen("dog ran. the cat", "dog ran. tha cat", 1);
    for other in [replaced, one] {
        assert_eq!(other.len(), text.len());
        std::fs::write(&data, other).expect("written");
        refuse(&right, true, &[("steps", "4")], &["data", "--out"]);
    }
    std::fs::write(&data, &text).expect("written");
    // A second run in the same folder at the same time.
    let mut tried = 0;
    let mut second = At(1, || {
        tried += 1;
        refuse(&folder.join("busy"), false, &[], &["another run", "--out"]);
        refuse(&folder.join("busy"), true, &[], &["another run", "--out"]);
    });
    run(&settings(&folder.join("busy"), &[]), false, &[], &cpu, &mut second).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(tried, 1);
    // A token file that is truncated while it is read.
    let cut = folder.join("cut");
    let tokens = cut.join("data/tokens.bin");
    let mut cutting = At(1, || {
        std::fs::OpenOptions::new().write(true).open(&tokens).and_then(|file| file.set_len(0)).expect("cut");
    });
    let error = run(&settings(&cut, &[]), false, &[], &cpu, &mut cutting).expect_err("cut off").to_string();
    assert!(error.contains("tokens.bin") && error.contains("shorter"), "{error}");
    go_on(&cut, &cpu);
    let _ = std::fs::remove_dir_all(&folder);
}

/// Resuming with another base model or a changed module is rejected.
#[test]
fn resuming_refuses_another_base() {
    let cpu = Cpu::new(1);
    let folder = temporary("base");
    std::fs::create_dir_all(&folder).expect("a folder");
    let data = folder.join("data.txt");
    std::fs::write(&data, "the cat sat on the mat and the dog ran. ".repeat(100)).expect("written");
    let data = data.to_str().expect("a path");
    // A first run creates a model and a tokenizer; a second one starts from them.
    let base = folder.join("base");
    run(&settings(&base, &[("data", data), ("steps", "2")]), false, &[], &cpu, &mut NoProgress)
        .unwrap_or_else(|e| panic!("{e}"));
    let text = "from std.modules.linear import Linear\n\nmodel Bigram(vocab_size: int, width: int = 8):\n  params:\n    table: \
                [vocab_size, width]\n    head: [vocab_size, width]\n\n  forward:\n    in: [B, T, int32]\n    out: [B, T, \
                vocab_size]\n\n    graph:\n      in -> embedding(table) -> x\n      x -> Linear(head) -> out\n";
    let file = folder.join("own.module");
    std::fs::write(&file, text).expect("written");
    let change_base: &dyn Fn() = &|| {
        let path = base.join("model.safetensors");
        let mut bytes = std::fs::read(&path).expect("there");
        // The sign of one weight.
        let last = bytes.len() - 1;
        bytes[last] ^= 0x80;
        std::fs::write(&path, bytes).expect("written");
    };
    let change_text: &dyn Fn() = &|| {
        std::fs::write(&file, text.replace("in -> embedding(table) -> x", "in -> embedding(table) -> silu() -> x"))
            .expect("written")
    };
    for (name, model, change) in [("weights", &base, change_base), ("text", &file, change_text)] {
        let out = folder.join(name);
        let model = model.to_str().expect("a path");
        let mut own = settings(&out, &[("data", data), ("steps", "2"), ("model", model)]);
        own.set.clear();
        run(&own, false, &[], &cpu, &mut NoProgress).unwrap_or_else(|e| panic!("{e}"));
        own.steps = 3;
        run(&own, true, &["steps".into()], &cpu, &mut NoProgress).unwrap_or_else(|e| panic!("{e}"));
        change();
        own.steps = 4;
        let error = run(&own, true, &["steps".into()], &cpu, &mut NoProgress).expect_err("another").to_string();
        assert!(error.contains("does not match the checkpoint"), "{error}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// In a user's model, 0 and negative parameters are valid; in a library model they are not.
#[test]
fn numbers_of_ones_own_models_are_taken_as_they_are() {
    let text = "from std.modules.linear import Linear\n\nmodel Own(vocab_size: int = 16, width: int = 4, shift: int = 2):\n  \
                params:\n    table: [vocab_size, width]\n    head: [vocab_size, width]\n\n  forward:\n    in: [B, T, int32]\n    \
                out: [B, T, vocab_size]\n\n    graph:\n      in -> embedding(table) -> x\n      x -> Linear(head) -> out\n";
    let given = |name: &str, n: i64| {
        std::collections::BTreeMap::from([(name.to_string(), lang::consteval::ConstValue::int(n))])
    };
    for n in [0, -3] {
        let loader = lang::resolve::MemoryLoader::new().with("m", "v1.0.0", text);
        let program = lang::resolve::ModuleProgram::load("m", &lang::library::LibraryLoader(loader));
        tensorloom_models::Architecture::from_program(program, None, given("shift", n))
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(tensorloom_models::Architecture::from_library("llama", given("heads", n)).is_err());
    }
}
