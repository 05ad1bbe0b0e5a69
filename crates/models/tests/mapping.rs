//! Weight mappings beyond names: elementwise transforms, and optional weights.

use cpu::Cpu;
use ir::DType;
use std::path::{Path, PathBuf};
use tensorloom_models::{Model, NamedTensor, write_tensors};

const TEXT: &str = r#"from std.modules.linear import Linear

model M(vocab_size: int = 5, width: int = 3):
  params:
    table: [vocab_size, width]
    decay: [width]
    weight: [vocab_size, width]
    bias: [vocab_size]?

  forward:
    in: [B, T, int32]
    out: [B, T, vocab_size]
    graph:
      in -> embedding(table) -> x
      (x, decay) -> mul() -> y
      y -> Linear(weight, bias) -> out

  hf_mapping:
    table: "table"
    decay: transform("A_log", fn: negate_exp)
    weight: transform("head.T", fn: transpose)
    bias?: "head.bias"
"#;

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + seed * 11) % 19) as f32 / 19.0 - 0.4).collect()
}

fn directory(name: &str, bias: bool, a_log: &[f32]) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("tensorloom-mapping-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let own = serde_json::json!({ "file": "m", "model": "M", "given": {}, "files": { "m": TEXT } });
    let config = serde_json::json!({ "architectures": ["M"], "tensorloom": own });
    std::fs::write(dir.join("config.json"), config.to_string()).expect("written");
    let tensor = |name: &str, shape: &[usize], values: &[f32]| NamedTensor {
        name: name.to_string(),
        shape: shape.to_vec(),
        dtype: DType::F32,
        bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    let mut tensors = vec![
        tensor("table", &[5, 3], &numbers(15, 1)),
        tensor("A_log", &[3], a_log),
        tensor("head.T", &[3, 5], &numbers(15, 2)),
    ];
    if bias {
        tensors.push(tensor("head.bias", &[5], &numbers(5, 3)));
    }
    write_tensors(&dir.join("model.safetensors"), &tensors).expect("written");
    dir
}

fn load(dir: &Path) -> Model {
    Model::load(dir, DType::F32).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn functions_and_optional_weights() {
    let (a_log, ids, cpu) = ([0.3f32, -0.7, 0.1], vec![vec![1, 4, 2, 0]], Cpu::new(1));
    let (table, head, bias) = (numbers(15, 1), numbers(15, 2), numbers(5, 3));
    for with_bias in [true, false] {
        let dir = directory(&format!("values-{with_bias}"), with_bias, &a_log);
        let model = load(&dir);
        assert_eq!(model.params.len(), if with_bias { 4 } else { 3 });
        let found = model.evaluate_on(&ids, Some(&ids), &cpu).unwrap_or_else(|e| panic!("{e}"));
        for (t, &id) in ids[0].iter().enumerate() {
            for o in 0..5 {
                let sum = (0..3).map(|i| -table[id as usize * 3 + i] * a_log[i].exp() * head[i * 5 + o]).sum::<f32>();
                let wanted = sum + if with_bias { bias[o] } else { 0.0 };
                assert!((found.logits.to_f32_vec()[t * 5 + o] - wanted).abs() < 1e-6);
            }
        }
        // The gradient is that of the tensor in the checkpoint.
        let gradient = found.gradients.iter().find(|g| g.name == "grad.A_log").expect("a gradient").to_f32_vec();
        let loss = |a_log: &[f32]| -> f32 {
            let dir = directory("moved", with_bias, a_log);
            load(&dir).evaluate_on(&ids, Some(&ids), &cpu).expect("runs").loss.expect("labels").to_f32_vec()[0]
        };
        for (i, gradient) in gradient.iter().enumerate() {
            let step = 1e-2;
            let mut moved = [a_log, a_log];
            moved[0][i] += step;
            moved[1][i] -= step;
            let slope = (loss(&moved[0]) - loss(&moved[1])) / (2.0 * step);
            assert!((gradient - slope).abs() < 1e-4, "{i}: {gradient} {slope}");
        }
        // The export equals the original.
        let out = dir.join("out");
        model.export(&out).unwrap_or_else(|e| panic!("{e}"));
        let bytes = std::fs::read(out.join("model.safetensors")).expect("written");
        let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
        assert_eq!(tensors.tensor("head.bias").is_ok(), with_bias);
        let again = tensors.tensor("A_log").expect("there").data().chunks_exact(4);
        let again: Vec<f32> = again.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert!(again.iter().zip(a_log).all(|(a, b)| (a - b).abs() < 1e-6), "{again:?}");
        let _ = std::fs::remove_dir_all(&dir);
    }
    let _ = std::fs::remove_dir_all(directory("moved", true, &a_log));
}
