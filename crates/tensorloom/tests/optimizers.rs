//! Optimisers and learning rates against PyTorch; `golden/programs/optimizers.py` explains the form.

use tensorloom::optimizer::*;
use tensorloom::{Tensor, engine, tensor};

fn floats(hex: &str) -> Vec<f32> {
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    (0..hex.len() / 8).map(|i| f32::from_le_bytes([0, 1, 2, 3].map(|k| byte(4 * i + k)))).collect()
}

fn numbers(words: &[&str]) -> Vec<f64> {
    words.iter().map(|w| w.parse().unwrap()).collect()
}

fn optimizer(words: &[&str], params: Vec<Tensor>) -> Box<dyn Optimizer> {
    let n = numbers(&words[1..]);
    match words[0] {
        "sgd" => {
            let mut sgd = Sgd::with_momentum(params, 0.1, n[0]).weight_decay(n[3]);
            (sgd.dampening, sgd.nesterov) = (n[1], n[2] == 1.0);
            Box::new(sgd)
        }
        "adam" => Box::new(Adam::new(params, 0.1).betas(n[0], n[1]).weight_decay(n[2])),
        "adamw" => Box::new(AdamW::new(params, 0.1).betas(n[0], n[1]).weight_decay(n[2])),
        _ => Box::new(Lion::new(params, 0.1).betas(n[0], n[1]).weight_decay(n[2])),
    }
}

fn rate(words: &[&str], base: f64, step: u64) -> f64 {
    let n = numbers(&words[1..]);
    match words[0] {
        "steps" => StepLr { every: n[0] as u64, gamma: n[1] }.lr(base, step),
        "cosine" => CosineAnnealingLr { steps: n[0] as u64, min: n[1] }.lr(base, step),
        "linear" => LinearLr { start: n[0], end: n[1], steps: n[2] as u64 }.lr(base, step),
        "onecycle" => OneCycleLr { steps: n[0] as u64, up: n[1], div: n[2], final_div: n[3] }.lr(base, step),
        _ => LambdaLr(|i: u64| 0.95f64.powi(i as i32)).lr(base, step),
    }
}

#[test]
fn optimisers_and_schedules_do_what_pytorch_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/programs/optimizers.golden");
    let text = std::fs::read_to_string(path).unwrap();
    let mut now: Option<(Box<dyn Optimizer>, Tensor)> = None;
    let (mut what, mut compared) = (Vec::new(), 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match &words[..] {
            ["optimizer" | "schedule", rest @ ..] => what = rest.to_vec(),
            ["param", hex] => {
                let p = tensor(&floats(hex), &[6]).requires_grad_();
                now = Some((optimizer(&what, vec![p.clone()]), p));
            }
            ["grad", hex] => {
                let (o, p) = now.as_ref().unwrap();
                // The gradient of a product with a constant is that constant.
                o.zero_grad();
                (p * tensor(&floats(hex), &[6])).sum().backward().unwrap();
                o.step().unwrap();
            }
            ["after", hex] => {
                let got = now.as_ref().unwrap().1.to_vec::<f32>().unwrap();
                for (a, b) in got.iter().zip(floats(hex)) {
                    assert!((a - b).abs() < 2e-6, "{what:?}: {a}, PyTorch {b}");
                }
                compared += 1;
            }
            ["lrs", rest @ ..] => {
                for (i, expected) in numbers(rest).into_iter().enumerate() {
                    let got = rate(&what, 0.5, i as u64);
                    assert!((got - expected).abs() < 1e-9, "{what:?}, step {i}: {got}, PyTorch {expected}");
                }
                compared += 1;
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!(compared, 55);
}

#[test]
fn an_optimiser_goes_on_from_its_saved_state() {
    let start = |values: &[f32]| tensor(values, &[2]).requires_grad_();
    let step = |o: &Adam, p: &Tensor| {
        o.zero_grad();
        p.square().sum().backward().unwrap();
        o.step().unwrap();
    };
    let p = start(&[1.0, -2.0]);
    let o = Adam::new(vec![p.clone()], 0.1);
    (0..3).for_each(|_| step(&o, &p));
    let (state, values) = (o.state_dict().unwrap(), p.to_vec::<f32>().unwrap());
    let q = start(&values);
    let other = Adam::new(vec![q.clone()], 0.1);
    other.load_state_dict(&state).unwrap();
    (0..3).for_each(|_| step(&o, &p));
    (0..3).for_each(|_| step(&other, &q));
    assert_eq!(p.to_vec::<f32>().unwrap(), q.to_vec::<f32>().unwrap());
    let mut wrong = state.clone();
    wrong.insert("7.0".into(), state["0.0"].clone());
    assert!(other.load_state_dict(&wrong).is_err());
    engine().mark_step().unwrap();
}

#[test]
fn short_cycles_have_rates_at_every_step() {
    for steps in 1..12 {
        for up in [0.0, 0.1, 0.3, 0.5, 1.0] {
            let cycle = OneCycleLr { steps, up, div: 25.0, final_div: 1e4 };
            let rates: Vec<f64> = (0..steps + 3).map(|step| cycle.lr(0.5, step)).collect();
            // A top that would lie before the first step was 0/0.
            assert!(rates.iter().all(|rate| (0.0..=0.5 + 1e-12).contains(rate)), "{steps} steps, up {up}: {rates:?}");
        }
    }
}
