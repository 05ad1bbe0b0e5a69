//! Compares the probes of a model on a batch, results and gradients, with values computed from the logits.

use cpu::Cpu;
use ir::DType;
use std::path::Path;
use tensorloom_models::Model;

#[test]
fn probes_show_results_and_gradients() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/scaled");
    let dir = std::env::temp_dir().join(format!("tensorloom-probes-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::copy(data.join("model.safetensors"), dir.join("model.safetensors")).expect("a copy");
    let config = std::fs::read_to_string(data.join("config.json")).expect("the configuration");
    let marked = config
        .replace("-> out\\n", "-> out @probe(\\\"scores\\\", capture=grad_full)\\n")
        .replace("-> s\\n", "-> s @probe(\\\"s\\\") @probe(\\\"s_gradient\\\", capture=grad_stats)\\n");
    assert_ne!(config, marked);
    std::fs::write(dir.join("config.json"), marked).expect("written");
    let model = Model::load(&dir, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let (ids, labels) = (vec![vec![1, 5, 7, 2]], vec![vec![1, 5, -100, 9]]);
    let cpu = Cpu::new(2);
    let found = model.capture(&ids, Some(&labels), &cpu).unwrap_or_else(|e| panic!("{e}"));
    let seen: Vec<_> = found.iter().map(|p| (p.value.name.as_str(), p.path.as_str(), p.capture.as_str())).collect();
    assert_eq!(seen, [("s", "s", "stats"), ("s_gradient", "s", "grad_stats"), ("scores", "out", "grad_full")]);
    assert_eq!((found[0].value.shape.as_slice(), found[1].value.shape.as_slice()), (&[5][..], &[5][..]));
    assert!(found[1].value.to_f32_vec()[4] > 1e-3, "the gradient has a length");

    // The gradient of a mean cross-entropy: probabilities minus the one-hot label, divided by the two labels in use.
    let logits = model.evaluate_on(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec();
    let gradient = found[2].value.to_f32_vec();
    for (t, label) in [(0, Some(5)), (1, None), (2, Some(9)), (3, None)] {
        let row = &logits[t * 12..][..12];
        let top = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = row.iter().map(|x| (x - top).exp()).sum();
        for (i, x) in row.iter().enumerate() {
            let probability = (x - top).exp() / sum - f32::from(label == Some(i));
            let wanted = if label.is_some() { probability / 2.0 } else { 0.0 };
            assert!((gradient[t * 12 + i] - wanted).abs() < 1e-5, "{t} {i}: {} {wanted}", gradient[t * 12 + i]);
        }
    }
    let forward = model.capture(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((forward.len(), &forward[0]), (1, &found[0]));
    let _ = std::fs::remove_dir_all(&dir);
}
