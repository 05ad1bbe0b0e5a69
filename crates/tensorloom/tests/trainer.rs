//! The training loop for modules: against loops written by hand, stopped and resumed, and with arguments that can't be.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use tensorloom::nn::{BatchNorm, CrossEntropy, Dropout, Layer, Linear, Module, StateDict};
use tensorloom::prelude::*;
use tensorloom::train::{AdamW, Schedule, Settings, StepProgress, TrainObserver, Trainer};
use tensorloom::{engine, optimizer};

const ROWS: usize = 8;
const WIDTH: usize = 5;
const CLASSES: usize = 3;

/// Layers with all kinds of tensors: parameters, running means, a frozen table, and one matrix in two places.
#[derive(Module, Tree)]
struct Net {
    up: Linear,
    norm: BatchNorm,
    drop: Dropout,
    mid: Linear,
    again: Linear,
    down: Linear,
    table: Tensor,
}

fn fixed(shape: &[usize], seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (((i * 37 + seed * 101) % 89) as f32 / 44.0 - 1.0) * 0.4).collect();
    engine().tensor(&values, shape)
}

impl Net {
    fn new(dropout: f64) -> Net {
        let linear = |from: usize, to: usize, seed: usize| {
            let layer = Linear::new(from, to);
            no_grad(|| layer.weight.copy_(&fixed(&[to, from], seed)).check()).unwrap();
            let Some(bias) = &layer.bias else { return layer };
            no_grad(|| bias.0.copy_(&fixed(&[to], seed + 1)).check()).unwrap();
            layer
        };
        let mid = linear(6, 6, 3);
        Net {
            // What is added before a mean is taken away has no gradient but noise.
            up: Linear { bias: None, ..linear(WIDTH, 6, 1) },
            norm: BatchNorm::new(6),
            drop: Dropout::new(dropout),
            again: Linear { weight: mid.weight.clone(), bias: mid.bias.clone() },
            mid,
            down: linear(6, CLASSES, 5),
            table: fixed(&[6], 7),
        }
    }

    fn logits(&self, x: &Tensor) -> Tensor {
        let h = self.norm.forward(&self.up.forward(x)).relu() + &self.table;
        let h = self.drop.forward(&self.mid.forward(&h).tanh());
        self.down.forward(&self.again.forward(&h).tanh())
    }
}

type Batch = (Tensor, Tensor);

fn loss(net: &Net, (x, y): Batch) -> Tensor {
    nn::cross_entropy(&net.logits(&x), &y, CrossEntropy::default())
}

/// The batch with a number, of which everything follows.
fn batch(n: u64) -> tensorloom::Result<Batch> {
    let x = fixed(&[ROWS, WIDTH], 11 + n as usize);
    let labels: Vec<i64> = (0..ROWS).map(|i| ((i as u64 * 7 + n * 3) % CLASSES as u64) as i64).collect();
    Ok((x, engine().tensor(&labels, &[ROWS])))
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tensorloom-trainer-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings(folder: &Path, steps: usize) -> Settings {
    Settings {
        out: folder.to_path_buf(),
        steps,
        rate: Schedule::warmup_cosine(0.05, 4, 30, 0.1),
        optimizer: AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 0.5 },
        seed: 7,
        log_every: 5,
        eval_every: 10,
        checkpoint_every: 6,
        ..Settings::default()
    }
}

/// Stops after some steps.
struct Until(usize, Cell<usize>);

impl TrainObserver for Until {
    fn on_message(&mut self, _: &str) {}
    fn on_train_begin(&mut self, _: usize, _: usize) {}
    fn on_step_end(&mut self, progress: &StepProgress) {
        self.1.set(progress.step);
    }
    fn on_sample(&mut self, _: usize, _: &str) {}
    fn should_stop(&self) -> bool {
        self.1.get() >= self.0
    }
}

fn far(a: &StateDict, b: &StateDict) -> f32 {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    let worst = |name: &String| {
        let both = (a[name].to_vec::<f32>(), b[name].to_vec::<f32>());
        both.0.iter().zip(&both.1).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
    };
    a.keys().filter(|name| a[*name].ty().dtype.is_float()).map(worst).fold(0.0, f32::max)
}

/// The same steps with `backward` and PyTorch's optimiser: masters decay only where they are matrices.
fn by_hand(steps: usize, accumulate: u64) -> Net {
    let net = Net::new(0.0);
    let s = settings(Path::new(""), steps);
    let (matrices, vectors): (Vec<Tensor>, Vec<Tensor>) = net.parameters().into_iter().partition(|t| t.rank() > 1);
    let AdamW { beta1, beta2, weight_decay: decay, max_grad_norm: clip, .. } = s.optimizer;
    let decaying = optimizer::AdamW::new(matrices.clone(), 0.0).betas(beta1, beta2).weight_decay(decay);
    let others = optimizer::AdamW::new(vectors.clone(), 0.0).betas(beta1, beta2).weight_decay(0.0);
    for i in 0..steps {
        net.zero_grad();
        for k in 0..accumulate {
            let value = loss(&net, batch(i as u64 * accumulate + k).unwrap()) / accumulate as f64;
            value.backward().unwrap();
        }
        nn::clip_grad_norm_(&net.parameters(), clip);
        for o in [&decaying, &others] {
            o.set_lr(s.rate.value_at(i));
            o.step().unwrap();
        }
    }
    net
}

#[test]
fn a_module_ends_where_a_loop_by_hand_ends() {
    for accumulate in [1, 3] {
        let folder = Folder::new(&format!("hand-{accumulate}"));
        let trainer = Trainer::new(Net::new(0.0), loss);
        let settings = Settings { accumulate, ..settings(&folder.0, 12) };
        let held_out = [batch(1000).unwrap(), batch(1001).unwrap()];
        let done = trainer.run(&settings, batch, &held_out).unwrap();
        assert!(done.complete && done.step == 12 && done.loss.is_finite());
        let hand = by_hand(12, accumulate as u64);
        let (found, wanted) = (trainer.module().state_dict().unwrap(), hand.state_dict().unwrap());
        assert!(far(&found, &wanted) < 2e-5, "{accumulate} micro-batches: off by {}", far(&found, &wanted));
        // Running means moved, the table did not.
        let start = Net::new(0.0).state_dict().unwrap();
        assert_ne!(found["norm.running_mean"], start["norm.running_mean"]);
        assert_eq!(found["table"], start["table"]);
        assert_eq!(found["mid.weight"], found["again.weight"]);
        // Held-out batches are judged without dropout and by running means.
        hand.train(false);
        let judged: f32 = held_out.iter().map(|b| loss(&hand, b.clone()).item::<f32>().unwrap()).sum::<f32>() / 2.0;
        assert!((done.valid.unwrap() - judged).abs() < 1e-4, "{:?}, by hand {judged}", done.valid);
        // The folder has all that a run has.
        let saved = tensorloom::load(folder.0.join("model.safetensors")).unwrap();
        assert_eq!(saved, found);
        let log = std::fs::read_to_string(folder.0.join("log.jsonl")).unwrap();
        assert!(log.lines().count() >= 5 && log.contains("examples_per_s") && log.contains("\"eval_loss\""), "{log}");
        assert!(std::fs::read_to_string(folder.0.join("index.html")).unwrap().contains("examples a second"));
        assert!(done.files.iter().all(|file| file.exists()), "{:?}", done.files);
    }
}

#[test]
fn a_run_that_is_stopped_and_resumed_has_the_bits_of_one_that_was_not() {
    for accumulate in [1, 2] {
        let whole = Folder::new(&format!("whole-{accumulate}"));
        let steps = 14;
        let trainer = Trainer::new(Net::new(0.3), loss);
        let all = Settings { accumulate, ..settings(&whole.0, steps) };
        trainer.run(&all, batch, &[batch(1000).unwrap()]).unwrap();
        let wanted = trainer.module().state_dict().unwrap();
        for stop in [1, 6, 9] {
            let folder = Folder::new(&format!("parts-{accumulate}-{stop}"));
            let first = Settings { out: folder.0.clone(), ..all.clone() };
            let begun = Trainer::new(Net::new(0.3), loss);
            let done = begun.run_with(&first, batch, &[batch(1000).unwrap()], &mut Until(stop, Cell::new(0))).unwrap();
            assert_eq!((done.step, done.complete), (stop, false));
            // Another process has other tensors at first.
            let other = Net::new(0.3);
            no_grad(|| other.up.weight.fill_(0.25).check()).unwrap();
            let rest = Trainer::new(other, loss);
            let done = rest.run(&Settings { resume: true, ..first }, batch, &[batch(1000).unwrap()]).unwrap();
            assert!(done.complete);
            assert_eq!(rest.module().state_dict().unwrap(), wanted, "{accumulate} micro-batches, stopped at {stop}");
            let lines = |folder: &Path| -> Vec<String> {
                let text = std::fs::read_to_string(folder.join("log.jsonl")).unwrap();
                let loss = |line: &str| line.split("\"examples_per_s\"").next().unwrap_or_default().to_string();
                text.lines().map(loss).collect()
            };
            assert_eq!(lines(&folder.0), lines(&whole.0));
        }
    }
}

#[test]
fn dropout_draws_by_seed_and_step() {
    let ends: Vec<StateDict> = [7, 7, 8]
        .iter()
        .map(|seed| {
            let folder = Folder::new(&format!("seed-{seed}"));
            let trainer = Trainer::new(Net::new(0.5), loss);
            trainer.run(&Settings { seed: *seed, ..settings(&folder.0, 4) }, batch, &[]).unwrap();
            trainer.module().state_dict().unwrap()
        })
        .collect();
    assert_eq!(ends[0], ends[1]);
    assert!(far(&ends[0], &ends[2]) > 1e-4);
}

#[test]
fn a_loader_gives_its_batches_by_number() {
    let loader = DataLoader::new(arange(10)).unwrap().batch_size(4).shuffle(3).drop_last();
    for n in [0u64, 1, 2, 5, 4, 3, 7] {
        let (epoch, within) = (n / 2, (n % 2) as usize);
        let wanted = loader.epoch(epoch).nth(within).unwrap().unwrap().to_vec::<i64>().unwrap();
        assert_eq!(loader.at(n).unwrap().to_vec::<i64>().unwrap(), wanted, "batch {n}");
    }
    let none = DataLoader::new(arange(3)).unwrap().batch_size(4).drop_last();
    assert!(none.at(0).unwrap_err().to_string().contains("no batches"));
}

#[test]
fn what_can_not_be_trained_is_refused_with_a_remedy() {
    let folder = Folder::new("refused");
    let good = settings(&folder.0, 3);
    let check = |settings: &Settings, wanted: &str| {
        let error = Trainer::new(Net::new(0.0), loss).run(settings, batch, &[]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}, not {wanted}");
    };
    check(&Settings { steps: 0, ..good.clone() }, "`steps` is 0");
    check(&Settings { accumulate: 0, ..good.clone() }, "`accumulate` is 0");
    check(&Settings { rate: Schedule::Constant(f64::NAN), ..good.clone() }, "learning rate of step 0");
    check(&Settings { optimizer: AdamW { beta1: 1.0, ..good.optimizer }, ..good.clone() }, "`optimizer.beta1` is 1");
    check(
        &Settings { optimizer: AdamW { max_grad_norm: -1.0, ..good.optimizer }, ..good.clone() },
        "`optimizer.clip` is -1",
    );
    check(&Settings { resume: true, ..good.clone() }, "no run to resume");

    let run = |f: fn(&Net, Batch) -> Tensor| Trainer::new(Net::new(0.0), f).run(&good, batch, &[]);
    let error = run(|net, (x, _)| net.logits(&x)).unwrap_err().to_string();
    assert!(error.contains("f32[8,3]") && error.contains("rank 0"), "{error}");
    let error =
        run(|net, (x, _)| net.logits(&x).sum().item::<f32>().map_or_else(Tensor::from_error, |v| zeros(()) + v));
    assert!(error.is_err());
    let ragged = |n: u64| {
        let (x, y) = batch(n)?;
        Ok(if n == 2 { (x.narrow(0, 0, 5), y.narrow(0, 0, 5)) } else { (x, y) })
    };
    let error = Trainer::new(Net::new(0.0), loss).run(&good, ragged, &[]).unwrap_err().to_string();
    assert!(error.contains("batch 2") && error.contains("drop_last"), "{error}");
    let _ = std::fs::remove_dir_all(&folder.0);

    // A module without parameters, and one whose parameters are too narrow.
    let plain = Linear { weight: fixed(&[2, WIDTH], 1), bias: None };
    let error = Trainer::new(plain, |m: &Linear, x: Tensor| m.forward(&x).sum())
        .run(&good, |n| Ok(batch(n)?.0), &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("no parameters"), "{error}");
    let narrow = Linear { weight: fixed(&[2, WIDTH], 1).cast(DType::BF16).requires_grad_(), bias: None };
    let error = Trainer::new(narrow, |m: &Linear, x: Tensor| m.forward(&x.cast(DType::BF16)).sum().cast(DType::F32))
        .run(&good, |n| Ok(batch(n)?.0), &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("bf16") && error.contains("autocast"), "{error}");

    // A folder that holds a run, and a run that can't go on with other things.
    let _ = std::fs::remove_dir_all(&folder.0);
    Trainer::new(Net::new(0.0), loss).run(&good, batch, &[]).unwrap();
    check(&good, "already contains a run");
    let more = Settings { resume: true, steps: 5, ..good.clone() };
    check(&Settings { seed: 8, ..more.clone() }, "`seed` is 8");
    check(&Settings { optimizer: AdamW { weight_decay: 0.0, ..good.optimizer }, ..more.clone() }, "`optimizer` is");
    let error = Trainer::new(Net::new(0.0), |net: &Net, b: Batch| loss(net, b) * 2.0).run(&more, batch, &[]);
    assert!(error.unwrap_err().to_string().contains("its loss does not match the checkpoint"));
    let error = Trainer::new(Net::new(0.0), loss).run(&more, |n| batch(n + 1), &[]);
    assert!(error.unwrap_err().to_string().contains("first batch does not match the checkpoint"));
    // More steps of the same are fine.
    let done = Trainer::new(Net::new(0.0), loss).run(&more, batch, &[]).unwrap();
    assert_eq!((done.step, done.complete), (5, true));
}

#[test]
fn parameters_of_64_bits_are_trained_in_64_bits() {
    let folder = Folder::new("wide");
    let weight = fixed(&[2, WIDTH], 1).cast(DType::F64).requires_grad_();
    let model = Linear { weight: weight.clone(), bias: None };
    let trainer = Trainer::new(model, |m: &Linear, x: Tensor| m.forward(&x).square().mean());
    let settings = Settings { rate: Schedule::Constant(0.05), ..settings(&folder.0, 40) };
    let done = trainer.run(&settings, |n| Ok(batch(n % 2)?.0.cast(DType::F64)), &[]).unwrap();
    assert_eq!(trainer.module().weight.dtype(), DType::F64);
    assert!(done.loss < 0.02, "{}", done.loss);
    let values = weight.to_vec::<f64>().unwrap();
    assert!(values.iter().any(|x| *x != f64::from(*x as f32)), "nothing has more than 24 bits");
}
