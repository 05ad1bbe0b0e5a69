//! Layers, losses, clipping, scaling and printing against PyTorch and NumPy (`golden/layers/make.py`).

use std::collections::BTreeMap;
use tensorloom::nn::{BatchNorm, CrossEntropy, Gru, Lstm, Recurrence, Reduction, StateDict};
use tensorloom::prelude::*;
use tensorloom::{engine, load, memory, save};

struct Golden(StateDict);

impl Golden {
    fn open() -> Golden {
        Golden(load(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/layers/layers.safetensors")).unwrap())
    }

    #[track_caller]
    fn get(&self, name: &str) -> Tensor {
        engine().literal(self.0.get(name).unwrap_or_else(|| panic!("no {name}")))
    }

    fn cases(&self, begin: &str) -> Vec<String> {
        let mut all: Vec<String> =
            self.0.keys().filter_map(|k| k.split_once('/')).map(|(c, _)| c.to_string()).collect();
        all.retain(|c| c.starts_with(begin));
        all.dedup();
        assert!(!all.is_empty(), "no cases of {begin}");
        all
    }

    /// The parameters of a case.
    fn state(&self, case: &str) -> StateDict {
        let begin = format!("{case}/param/");
        self.0.iter().filter_map(|(k, v)| Some((k.strip_prefix(&begin)?.to_string(), v.clone()))).collect()
    }

    #[track_caller]
    fn check(&self, name: &str, got: &Tensor) {
        let (expected, found) = (self.get(name).to_vec::<f64>().unwrap(), got.to_vec::<f64>().unwrap());
        assert_eq!(got.shape(), self.get(name).shape(), "{name}");
        let scale = expected.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() <= 2e-5 * scale || (a.is_nan() && b.is_nan()), "{name}: {found:?} for {expected:?}");
        }
    }

    fn gradients(&self, case: &str, model: &impl Module) {
        for (name, p) in model.named_parameters() {
            self.check(&format!("{case}/grad/{name}"), &p.grad().unwrap());
        }
    }
}

fn recurrence(case: &str) -> (Recurrence, bool, bool) {
    let mut words = case.split('.').skip(1);
    let layers = words.next().unwrap().parse().unwrap();
    let flags: Vec<bool> = words.next().unwrap().chars().map(|c| c == '1').collect();
    let r = Recurrence { layers, bidirectional: flags[0], batch_first: flags[1], bias: flags[2] };
    (r, flags[3], flags[4])
}

#[test]
fn lstm_and_gru_are_pytorch_s() {
    let golden = Golden::open();
    for case in golden.cases("lstm") {
        let (r, given, _) = recurrence(&case);
        let model = Lstm::with(3, 4, r);
        model.load_state_dict(&golden.state(&case)).unwrap();
        let x = golden.get(&format!("{case}/x")).requires_grad_();
        let begin = given.then(|| ["h", "c"].map(|n| golden.get(&format!("{case}/{n}")).requires_grad_()));
        let (y, (h, c)) = model.run(&x, begin.clone().map(|[h, c]| (h, c)));
        golden.check(&format!("{case}/y"), &y);
        golden.check(&format!("{case}/hn"), &h);
        golden.check(&format!("{case}/cn"), &c);
        (y * golden.get(&format!("{case}/weights"))).sum().backward().unwrap();
        golden.gradients(&case, &model);
        golden.check(&format!("{case}/grad/x"), &x.grad().unwrap());
        for (n, t) in ["h", "c"].iter().zip(begin.iter().flatten()) {
            golden.check(&format!("{case}/grad/{n}"), &t.grad().unwrap());
        }
    }
    for case in golden.cases("gru") {
        let (r, given, _) = recurrence(&case);
        let model = Gru::with(3, 4, r);
        model.load_state_dict(&golden.state(&case)).unwrap();
        let x = golden.get(&format!("{case}/x")).requires_grad_();
        let begin = given.then(|| golden.get(&format!("{case}/h")).requires_grad_());
        let (y, h) = model.run(&x, begin.clone());
        golden.check(&format!("{case}/y"), &y);
        golden.check(&format!("{case}/hn"), &h);
        (y * golden.get(&format!("{case}/weights"))).sum().backward().unwrap();
        golden.gradients(&case, &model);
        golden.check(&format!("{case}/grad/x"), &x.grad().unwrap());
        if let Some(h) = begin {
            golden.check(&format!("{case}/grad/h"), &h.grad().unwrap());
        }
    }
}

/// Lazily, as a pure function, compiled, and outside of training.
#[test]
fn batch_norm_is_pytorch_s() {
    let golden = Golden::open();
    for case in golden.cases("batch_norm") {
        let model = BatchNorm::new(golden.get(&format!("{case}/param/weight")).numel());
        model.load_state_dict(&golden.state(&case)).unwrap();
        let mut pure = model.map(|t| t.copy());
        let pure_step = jit(|(layer, x): (BatchNorm, Tensor)| layer.apply(&x));
        let region = model.map(|t| t.copy());
        let compiled = compile(|x: Tensor| region.forward(&x));
        for i in 0..3 {
            let x = golden.get(&format!("{case}/x{i}")).requires_grad_();
            let y = model.forward(&x);
            golden.check(&format!("{case}/y{i}"), &y);
            let py;
            (py, pure) = pure_step.call((pure, x.detach()));
            golden.check(&format!("{case}/y{i}"), &py);
            golden.check(&format!("{case}/y{i}"), &compiled.call(x.detach()).unwrap());
            for layer in [&model, &pure, &region] {
                golden.check(&format!("{case}/running_mean{i}"), &layer.running_mean);
                golden.check(&format!("{case}/running_var{i}"), &layer.running_var);
                golden.check(&format!("{case}/num_batches_tracked{i}"), &layer.num_batches_tracked);
            }
            if i == 2 {
                (y * golden.get(&format!("{case}/weights"))).sum().backward().unwrap();
                golden.gradients(&case, &model);
                golden.check(&format!("{case}/grad/x2"), &x.grad().unwrap());
            }
        }
        model.train(false);
        golden.check(&format!("{case}/y"), &model.forward(&golden.get(&format!("{case}/x"))));
    }
    // A captured layer can't be changed by a pure function: it says what can be done.
    let layer = BatchNorm::new(2);
    let error = jit(move |x: Tensor| layer.forward(&x)).call(ones((3, 2))).to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("apply") && error.contains("layers.rs"), "{error}");
    let error = BatchNorm::new(2).forward(&ones((1, 2))).to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("one value per feature"), "{error}");
}

#[test]
fn cross_entropy_is_pytorch_s() {
    let golden = Golden::open();
    let logits = golden.get("cross_entropy/logits");
    let weights = golden.get("cross_entropy/weights");
    let mut count = 0;
    for case in golden.cases("cross_entropy.") {
        let words: Vec<&str> = case.splitn(4, '.').collect();
        let (smoothing, weighted) = words[3].rsplit_once('.').unwrap();
        let options = CrossEntropy {
            ignore_index: (words[1] == "ignore").then_some(2),
            label_smoothing: smoothing.parse().unwrap(),
            weight: (weighted == "1").then(|| golden.get("cross_entropy/class_weights")),
            reduction: match words[2] {
                "mean" => Reduction::Mean,
                "sum" => Reduction::Sum,
                _ => Reduction::None,
            },
            ..CrossEntropy::default()
        };
        let target =
            golden.get(if words[1] == "soft" { "cross_entropy/probabilities" } else { "cross_entropy/labels" });
        for staged in [false, true] {
            let x = logits.copy().requires_grad_();
            let rows = options.reduction == Reduction::None;
            let (o, t, w) = (options.clone(), target.clone(), weights.clone());
            let f = move |x: Tensor| {
                let y = nn::cross_entropy(&x, &t, o.clone());
                if rows { (y * &w).sum() } else { y }
            };
            let slope = if staged {
                jit(grad(f)).call(x.detach())
            } else {
                golden.check(&format!("{case}/y"), &nn::cross_entropy(&x, &target, options.clone()));
                f(x.clone()).backward().unwrap();
                x.grad().unwrap()
            };
            golden.check(&format!("{case}/grad/logits"), &slope);
            count += 1;
        }
    }
    assert_eq!(count, 72);
}

#[test]
fn clipping_is_pytorch_s() {
    let golden = Golden::open();
    for case in golden.cases("clip.") {
        let words: Vec<&str> = case.strip_prefix("clip.").unwrap().rsplitn(2, '.').collect();
        // "2.0.100.0" and "inf.0.5": the last number has one point.
        let rest = case.strip_prefix("clip.").unwrap();
        let (norm, limit) = rest.split_at(rest.rfind('.').and_then(|i| rest[..i].rfind('.')).unwrap());
        let (norm, limit): (f64, f64) = (norm.parse().unwrap(), limit[1..].parse().unwrap());
        assert_eq!(words.len(), 2);
        let params: Vec<Tensor> =
            [vec![3usize, 2], vec![4], vec![2]].iter().map(|s| zeros(s).requires_grad_()).collect();
        for (i, p) in params[..2].iter().enumerate() {
            (p * golden.get(&format!("{case}/before{i}"))).sum().backward().unwrap();
        }
        let total = nn::clip_grad_norm_by_(&params, limit, norm);
        golden.check(&format!("{case}/norm"), &total);
        for (i, p) in params[..2].iter().enumerate() {
            golden.check(&format!("{case}/after{i}"), &p.grad().unwrap());
        }
        assert!(params[2].grad().is_none());
    }
    let p = zeros(5).requires_grad_();
    (&p * golden.get("clip_value/before")).sum().backward().unwrap();
    nn::clip_grad_value_(&[p.clone()], 0.7);
    golden.check("clip_value/after", &p.grad().unwrap());
    assert_eq!(nn::clip_grad_norm_(&[zeros(2)], 1.0).item::<f32>().unwrap(), 0.0);
}

#[test]
fn grad_scaler_is_pytorch_s() {
    let golden = Golden::open();
    let w = golden.get("scaler/w").requires_grad_();
    let optimizer = optimizer::Adam::new(vec![w.clone()], 0.1);
    let mut scaler = GradScaler::with(8.0, 2.0, 0.5, 2);
    let factors = golden.get("scaler/factors").to_vec::<f64>().unwrap();
    let scales = golden.get("scaler/scales").to_vec::<f64>().unwrap();
    for (i, f) in factors.iter().enumerate() {
        optimizer.zero_grad();
        let loss = (&w * &w).sum() * *f;
        scaler.scale(&loss).backward().unwrap();
        assert_eq!(scaler.step(&optimizer).unwrap(), f.is_finite());
        scaler.update();
        assert_eq!(scaler.get_scale(), scales[i], "after step {i}");
        golden.check("scaler/ws", &golden.get("scaler/ws"));
        let expected = golden.get("scaler/ws").i(i).to_vec::<f32>().unwrap();
        for (a, b) in w.to_vec::<f32>().unwrap().iter().zip(&expected) {
            assert!((a - b).abs() < 1e-5, "{i}: {a} {b}");
        }
        // Saved and loaded between any two steps.
        let other = GradScaler::with(1.0, 2.0, 0.5, 2);
        other.load_state_dict(&scaler.state_dict()).unwrap();
        scaler = other;
    }
    let twice = scaler.step(&optimizer).and_then(|_| scaler.step(&optimizer));
    assert!(twice.unwrap_err().to_string().contains("update()"));
    let region = compile(|x: Tensor| {
        let error = GradScaler::new().step(&optimizer).unwrap_err().to_string();
        assert!(error.contains("outside"), "{error}");
        x
    });
    region.call(ones(1)).unwrap();
}

#[test]
fn tensors_print_as_numpy_prints_them() {
    let golden = Golden::open();
    let text = include_str!("../../../golden/layers/show.txt");
    let texts: Vec<&str> = text.trim_end_matches('\n').split("\n---\n").collect();
    let names: Vec<&String> = golden.0.keys().filter(|k| k.starts_with("show/")).collect();
    assert_eq!(texts.len(), names.len());
    for (name, expected) in names.into_iter().zip(texts) {
        let x = golden.get(name);
        let shown = x.to_text().unwrap();
        let body = shown.strip_prefix("tensor(").unwrap().rsplit_once(", dtype=").unwrap().0;
        let body = body.rsplit_once(", shape=").map_or(body, |(b, _)| b);
        assert_eq!(body, expected, "{name} {}", x.ty());
    }
    assert_eq!(ones((20, 60)).to_text().unwrap().rsplit_once(", shape").unwrap().1, "=[20, 60], dtype=f32)");
}

/// What is printed when no other test computes on the same engine: printing waits for nobody, and shows no data meanwhile.
fn shown(x: &Tensor) -> String {
    for _ in 0..2000 {
        let text = format!("{x:?}");
        if text.starts_with("tensor(") {
            return text;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    format!("{x}")
}

#[test]
fn debug_shows_data_once_it_was_read() {
    let x = ones(3) * 2;
    assert!(format!("{x:?}").starts_with("Tensor(f32[3], id"), "{x:?}");
    x.to_vec::<f32>().unwrap();
    assert_eq!(shown(&x), "tensor([2., 2., 2.], dtype=f32)");
    let part = x.i(1..);
    assert!(format!("{part:?}").ends_with(", view)"), "{part:?}");
    part.to_text().unwrap();
    assert_eq!(shown(&part), "tensor([2., 2.], dtype=f32)");
    // With its fraction: a tensor's number is an integer that may well be 42.
    assert!(!format!("{:?}", tensor(&[42.5], 1)).contains("42.5"));
    x.add_(1);
    assert!(format!("{x:?}").starts_with("Tensor(f32[3], id"), "{x:?}");
    x.to_vec::<f32>().unwrap();
    assert_eq!(shown(&x), "tensor([3., 3., 3.], dtype=f32)");
    let bad = x.matmul(&ones(4));
    assert!(format!("{bad:?}").starts_with("Tensor(invalid: matmul"), "{bad:?}");
    assert!(bad.to_text().is_err());
    jit(|y: Tensor| {
        assert!(format!("{y:?}").contains("of trace"));
        y
    })
    .call(x);
}

/// Layers are trees: transforms take them, and what they give is a layer too.
#[test]
fn transforms_take_layers() {
    let x = randn((5, 3));
    let model = (nn::Linear::new(3, 4), nn::Tanh, nn::LayerNorm::new(4), nn::Linear::new(4, 2));
    type Net = (nn::Linear, nn::Tanh, nn::LayerNorm, nn::Linear);
    let data = x.clone();
    let loss = move |m: Net| m.forward(&data).square().sum();
    loss(model.clone()).backward().unwrap();
    for slopes in [grad(&loss).call(model.clone()), jit(grad(&loss)).call(model.clone())] {
        for (g, p) in slopes.leaves().iter().zip(model.leaves()) {
            assert!((g - p.grad().unwrap()).abs().max().item::<f32>().unwrap() < 1e-4);
        }
    }
    // Parameters by name.
    let (by_name, data) = (model.clone(), x.clone());
    let named =
        move |p: BTreeMap<String, Tensor>| nn::functional_call(&by_name, &p).unwrap().forward(&data).square().sum();
    let slopes = jit(grad(named)).call(model.params());
    for (name, p) in model.named_parameters() {
        assert!((&slopes[&name] - p.grad().unwrap()).abs().max().item::<f32>().unwrap() < 1e-4, "{name}");
    }
    let wrong: BTreeMap<String, Tensor> = [("nothing".to_string(), ones(1))].into();
    assert!(nn::functional_call(&model, &wrong).is_err_and(|e| e.to_string().contains("no nothing")));
    // A batch of models.
    let two = tree::stack(&[model.clone(), model.map(|t| t * 2)]);
    let y = vmap(|(m, x): (Net, Tensor)| m.forward(&x)).call((two, tree::stack(&[x.clone(), x.clone()])));
    assert_eq!(y.shape(), [2, 5, 2]);
    assert!((y.i(0) - model.forward(&x)).abs().max().item::<f32>().unwrap() < 1e-5);
    // Layers whose kinds are known only now, and training as part of what is compiled for.
    let net = nn::Sequential::default().add(nn::Linear::new(3, 4)).add(nn::Dropout::new(0.5)).add(nn::Relu);
    net.train(false);
    let data = x.clone();
    let slope = grad(move |m: nn::Sequential| m.forward(&data).sum()).call(net);
    assert_eq!(slope.named_tensors()[0].1.shape(), [4, 3]);
    let run = jit(|(m, x): (nn::BatchNorm, Tensor)| m.apply(&x).0);
    let bn = nn::BatchNorm::new(3);
    let trained = run.call((bn.clone(), x.clone())).to_vec::<f32>().unwrap();
    bn.train(false);
    assert_ne!(run.call((bn, x)).to_vec::<f32>().unwrap(), trained);
}

#[test]
fn files_hold_what_was_saved() {
    let path = std::env::temp_dir().join(format!("layers-{}.safetensors", std::process::id()));
    let all =
        [DType::Bool, DType::U8, DType::I8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64];
    let floats = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::F8E4M3, DType::F8E5M2];
    let mut state = StateDict::new();
    for (i, d) in all.into_iter().chain(floats).enumerate() {
        for shape in [vec![], vec![0, 2], vec![2, 3]] {
            let n: usize = shape.iter().product();
            let x = (arange(n).float() / 2 - 1).reshape(&shape).cast(d);
            state.insert(format!("{i}.{}", shape.len()), x.to_literal().unwrap());
        }
    }
    save(&path, &state).unwrap();
    let back = load(&path).unwrap();
    assert_eq!(back.len(), state.len());
    for (k, v) in &state {
        assert_eq!((back[k].ty(), back[k].bytes()), (v.ty(), v.bytes()), "{k}");
    }
    // Damaged, missing, and for another model: errors with the file's name that change nothing.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("layers-"));
    std::fs::remove_file(&path).unwrap();
    let error = nn::Linear::new(2, 2).load(&path).unwrap_err().to_string();
    assert!(error.contains("layers-") && error.contains("layers.rs:"), "{error}");
    let error = save("/no/such/folder/x.safetensors", &state).unwrap_err().to_string();
    assert!(error.contains("/no/such/folder"), "{error}");
}

#[test]
fn loaders_go_through_all_examples() {
    let data = (arange(10).float(), arange(10));
    for (size, drop) in [(1, false), (3, false), (3, true), (10, false), (16, false), (16, true)] {
        let mut loader = DataLoader::new(data.clone()).unwrap().batch_size(size).shuffle(3);
        if drop {
            loader = loader.drop_last();
        }
        let order = |epoch| -> Vec<i64> {
            let mut seen = Vec::new();
            for batch in loader.epoch(epoch) {
                let (x, y) = batch.unwrap();
                assert_eq!(x.to_vec::<i64>().unwrap(), y.to_vec::<i64>().unwrap());
                assert!(y.numel() == size || (!drop && y.numel() == 10 % size));
                seen.extend(y.to_vec::<i64>().unwrap());
            }
            seen
        };
        let (first, second) = (order(0), order(1));
        assert_eq!(loader.epoch(0).len(), loader.len());
        assert_eq!(first, order(0));
        if first.len() > 3 {
            assert_ne!(first, second);
        }
        let mut sorted = first.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), if drop { 10 / size * size } else { 10 });
    }
    let key = random::fold_in(&random::key(3), 0);
    let expected = random::permutation(&key, 10).to_vec::<i64>().unwrap();
    let loader = DataLoader::new(data.1.clone()).unwrap().batch_size(10).shuffle(3);
    assert_eq!(loader.epoch(0).next().unwrap().unwrap().to_vec::<i64>().unwrap(), expected);
    let squares = DataLoader::from_fn(5, |ids| Ok(ids.iter().map(|i| i * i).collect::<Vec<_>>())).batch_size(2);
    assert_eq!(squares.into_iter().map(|b| b.unwrap()).collect::<Vec<_>>(), [vec![0, 1], vec![4, 9], vec![16]]);
    assert!(DataLoader::new((ones(3), ones(4))).is_err_and(|e| e.to_string().contains("4 examples")));
    assert!(DataLoader::new(ones(())).is_err());
}

#[test]
fn snapshots_name_lines() {
    let before = memory::snapshot();
    let kept: Vec<Tensor> = (0..3).map(|i| full(1000 + i, 1.5).exp()).collect();
    kept.iter().for_each(|t| assert!(t.to_vec::<f32>().is_ok()));
    let line = line!() - 2;
    let new = memory::snapshot().since(&before);
    let found = new.by_line().into_iter().find(|(at, ..)| at.contains(&format!("layers.rs:{line}"))).unwrap();
    assert_eq!((found.1, found.2), (3, 4 * (1000 + 1001 + 1002)), "{new}");
    assert!(new.to_string().contains("3 tensors"));
}

/// Functions that are smooth have their derivatives at 0 too, where their usual formulas have corners.
#[test]
fn smooth_functions_have_no_corner_at_zero() {
    type F = fn(Tensor) -> Tensor;
    let all: [(&str, F, [f64; 3]); 6] = [
        ("softplus", |x| nn::softplus(&x), [2f64.ln(), 0.5, 0.25]),
        ("log_sigmoid", |x| nn::log_sigmoid(&x), [-(2f64.ln()), 0.5, -0.25]),
        ("logaddexp", |x| np::logaddexp(&x, -&x), [2f64.ln(), 0.0, 1.0]),
        ("logaddexp2", |x| np::logaddexp2(&x, 0), [1.0, 0.5, 0.25 * 2f64.ln()]),
        ("bce of 0", |x| nn::binary_cross_entropy_with_logits(&x, &np::zeros_like(&x)), [2f64.ln(), 0.5, 0.25]),
        ("bce of 1", |x| nn::binary_cross_entropy_with_logits(&x, &np::ones_like(&x)), [2f64.ln(), -0.5, 0.25]),
    ];
    let zero = tensor_of::<f64>(&[0.0], ());
    for (name, f, expected) in all {
        let got = [f(zero.clone()), grad(f).call(zero.clone()), grad(grad(f)).call(zero.clone())];
        for (g, e) in got.iter().zip(expected) {
            assert!((g.item::<f64>().unwrap() - e).abs() < 1e-12, "{name}: {got:?} for {expected:?}");
        }
    }
    // Small digits stay.
    let tail = nn::binary_cross_entropy_with_logits(&full((), 30), &ones(())).item::<f32>().unwrap();
    assert!((tail / (-30f32).exp() - 1.0).abs() < 1e-5);
}

#[test]
fn dropout_by_a_key_keeps_the_mean() {
    let f = jit(|(x, key): (Tensor, Tensor)| nn::dropout(&x, 0.25, &key));
    let x = ones((100, 100));
    let y = f.call((x.clone(), random::key(1)));
    let kept = y.ne(0).float().mean().item::<f64>().unwrap();
    assert!((kept - 0.75).abs() < 0.02, "{kept}");
    assert!((y.max().item::<f64>().unwrap() - 1.0 / 0.75).abs() < 1e-6);
    assert_eq!(y.to_vec::<f32>().unwrap(), f.call((x.clone(), random::key(1))).to_vec::<f32>().unwrap());
    assert_ne!(y.to_vec::<f32>().unwrap(), f.call((x.clone(), random::key(2))).to_vec::<f32>().unwrap());
    assert!(nn::dropout(&x, 1.0, &random::key(0)).error().is_some());
}
