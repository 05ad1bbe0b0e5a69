//! Quantized models: compared with the dequantized model, saved and loaded, as GGUF, and with adapters.
//!
//! `golden/gguf.py` and `golden/qlora.py` generate the data.

use cpu::Cpu;
use ir::DType;
use ir::composites::quantized::QuantFormat;
use lang::lower::PrecisionRecipe;
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use tensorloom_models::train::{AdamW, Batch, LanguageModelTrainer, ObjectiveOptions, StepSizes};
use tensorloom_models::{Adapter, Model, QuantizationConfig, Tokenizer};

const IDS: [[i32; 8]; 2] = [[1, 5, 7, 2, 40, 33, 12, 9], [3, 60, 21, 8, 8, 17, 50, 11]];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-quantised-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let size = b.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0f32, |m, (x, y)| {
        assert!(x.is_finite() && y.is_finite());
        m.max((x - y).abs() / size)
    })
}

fn load(path: &Path) -> Model {
    Model::load(path, DType::F32).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn logits(model: &Model) -> Vec<f32> {
    let ids: Vec<Vec<i32>> = IDS.iter().map(|row| row.to_vec()).collect();
    model.evaluate_on(&ids, None, &Cpu::new(2)).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec()
}

/// Every family that GGUF supports: an exported model is read back bit for bit.
#[test]
fn gguf_keeps_every_number() {
    let names = [
        "llama",
        "llama3",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen3",
        "gemma",
        "phi3",
        "gpt2",
        "gpt_neox",
        "gpt_neox_linear",
    ];
    for name in names {
        let model = load(&data(name));
        let path = temporary(name).with_extension("gguf");
        match model.save_gguf(&path, None) {
            Ok(()) => {
                let again = load(&path);
                assert_eq!(logits(&model), logits(&again), "{name}");
                assert_eq!(model.max_sequence(), again.max_sequence(), "{name}");
            }
            Err(e) => assert!(name == "mistral" && e.to_string().contains("cannot be written"), "{name}: {e}"),
        }
        let _ = std::fs::remove_file(&path);
    }
}

/// Experts are quantized in files, one tensor per layer, and are read back bit for bit.
#[test]
fn experts_are_packed_in_files() {
    for text in ["q8", "q4", "q5_1", "nf4"] {
        let mut model = load(&data("mixtral"));
        let wide = logits(&model);
        let mut scheme: QuantizationConfig = text.parse().expect("a scheme");
        scheme.group_size = Some(32);
        // Rows of 48 don't divide into groups of 32.
        let left = model.quantize(&scheme).expect("quantises");
        assert!(left.iter().all(|path| path.contains("down")), "{left:?}");
        let found = logits(&model);
        assert_ne!(found, wide);
        let matrices = 2 * (4 * 96 * 32) as usize;
        let packed: usize = model.storage_formats().iter().filter(|(name, _)| *name != "f32").map(|(_, n)| n).sum();
        assert!(packed > matrices, "{:?}", model.storage_formats());
        let folder = temporary(&format!("experts-{text}"));
        model.save_quantized(&folder).expect("writes");
        let again = load(&folder);
        assert_eq!(
            (found.clone(), model.storage_formats()),
            (logits(&again), again.storage_formats()),
            "{text}: read back"
        );
        let path = folder.with_extension("gguf");
        let written = model.save_gguf(&path, None);
        if text == "nf4" {
            assert!(written.expect_err("refused").to_string().contains("q8 or q4"));
        } else {
            written.expect("writes");
            let bytes = std::fs::read(&path).expect("read");
            let header = tensorloom_models::gguf::parse(&bytes, bytes.len() as u64).expect("a head");
            let experts: Vec<_> = header.tensors.iter().filter(|t| t.name.contains("ffn_up_exps")).collect();
            assert_eq!(experts.len(), 2);
            for tensor in experts {
                assert!(matches!(tensor.kind, tensorloom_models::gguf::GgufTensorType::Packed(_)), "{tensor:?}");
                assert_eq!(tensor.shape, [4, 48, 32]);
            }
            let mut routers = header.tensors.iter().filter(|t| t.name.contains("ffn_gate_inp"));
            assert!(
                routers.all(|t| t.kind == tensorloom_models::gguf::GgufTensorType::Plain(DType::F32)),
                "{:?}",
                header.tensors
            );
            let again = load(&path);
            assert_eq!((found, model.storage_formats()), (logits(&again), again.storage_formats()), "{text}: as GGUF");
        }
        let _ = (std::fs::remove_dir_all(&folder), std::fs::remove_file(&path));
    }
}

/// GGUF stores Mamba's decays without the logarithm, so they are read back approximately.
#[test]
fn mamba_goes_through_gguf() {
    for format in [None, Some("q8"), Some("q4")] {
        let mut model = load(&data("mamba"));
        if let Some(format) = format {
            model.quantize(&format.parse().expect("a scheme")).expect("quantises");
        }
        let path = temporary(&format!("mamba-{format:?}")).with_extension("gguf");
        model.save_gguf(&path, None).expect("writes");
        let again = load(&path);
        assert_eq!(model.storage_formats(), again.storage_formats());
        let far = worst(&logits(&again), &logits(&model));
        assert!(far < 1e-5, "{format:?}: {far}");
        let _ = std::fs::remove_file(&path);
    }
    let path = temporary("gelu").with_extension("gguf");
    let error = load(&data("mamba_gelu")).save_gguf(&path, None).expect_err("llama.cpp has silu alone").to_string();
    assert!(error.contains("activation"), "{error}");
}

/// With calibrated scales, results are nearer to those of the full-precision model, on the calibration text and on another.
#[test]
fn calibrated_scales_are_nearer() {
    let rows = |seed: i32| -> Vec<Vec<i32>> {
        (0..6).map(|r| (0..24).map(|i| (seed + r * 31 + i * i * 7 + i * r) % 60).collect()).collect()
    };
    let cpu = Cpu::new(2);
    let apart = |model: &Model, rows: &[Vec<i32>], want: &[f32]| -> f64 {
        let found = model.evaluate_on(rows, None, &cpu).expect("runs").logits.to_f32_vec();
        found.iter().zip(want).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
    };
    for text in ["q4", "int4", "nf4", "q4_1"] {
        let mut scheme: QuantizationConfig = text.parse().expect("a scheme");
        scheme.group_size = Some(32);
        let (mut plain, mut better) = (0.0, 0.0);
        for name in ["llama", "qwen3", "phi3"] {
            let wide = load(&data(name));
            let calibration = wide.calibrate(&rows(3), &cpu).expect("runs");
            assert!(calibration.len() >= 8, "{name}: {}", calibration.len());
            let (mut a, mut b) = (wide.clone(), wide.clone());
            a.quantize(&scheme).expect("quantises");
            b.quantize_with_calibration(&scheme, Some(&calibration)).expect("quantises");
            assert_eq!(a.storage_formats(), b.storage_formats(), "{name} {text}");
            for seed in [3, 17] {
                let want = wide.evaluate_on(&rows(seed), None, &cpu).expect("runs").logits.to_f32_vec();
                plain += apart(&a, &rows(seed), &want);
                better += apart(&b, &rows(seed), &want);
            }
            assert!(a.calibrate(&rows(3), &cpu).expect_err("too late").to_string().contains("already quantized"));
        }
        assert!(better < plain, "{text}: {better} of {plain}");
        println!("{text}: {:.3} of the squared error", better / plain);
    }
}

/// A file by the `gguf` package with a tensor of every type, compared with transformers.
#[test]
fn every_kind_of_tensor_equals_transformers() {
    let folder = data("gguf");
    let bytes = std::fs::read(folder.join("expected.safetensors")).expect("golden tensors");
    let expected = SafeTensors::deserialize(&bytes).expect("golden tensors");
    let want = floats(expected.tensor("logits").expect("logits").data());
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("golden ids");
    let json: serde_json::Value = serde_json::from_str(&text).expect("golden ids");
    let row =
        |r: &serde_json::Value| r.as_array().expect("ids").iter().map(|n| n.as_i64().expect("id") as i32).collect();
    let ids: Vec<Vec<i32>> = json["ids"].as_array().expect("rows").iter().map(row).collect();
    let model = load(&folder.join("kinds.gguf"));
    let kinds: Vec<String> = model.storage_formats().into_keys().collect();
    assert!(kinds.len() >= 5, "{kinds:?}");
    let cpu = Cpu::new(2);
    let found = model.evaluate_on(&ids, None, &cpu).unwrap_or_else(|e| panic!("{e}")).logits.to_f32_vec();
    assert!(worst(&found, &want) < 2e-5, "{}", worst(&found, &want));
    // Incremental decoding gives the same.
    let mut decoding = model.decode_session(8, &cpu).expect("decodes");
    let mut last = Vec::new();
    for id in &ids[0] {
        last = decoding.append(&[*id]).expect("runs");
    }
    assert!(worst(&last, &want[7 * 64..8 * 64]) < 2e-5);
    let tokenizer = Tokenizer::from_dir(&folder.join("kinds.gguf")).expect("a tokenizer");
    assert_eq!(tokenizer.encode("!\"#").expect("encodes"), [0, 1, 2]);
    assert_eq!(tokenizer.eos_id(), Some(63));
}

/// A quantized model computes the same as the dequantized one, also after saving and loading.
#[test]
fn quantised_models_compute_with_the_numbers_they_store() {
    let schemes =
        ["q8", "q4", "nf4", "fp8", "q4_1", "q5_0", "q5_1", "mxfp4", "int8", "int4", "u4", "fp4_e2m1", "fp8_e5m2"];
    for (k, text) in schemes.iter().enumerate() {
        let name = ["llama", "qwen3", "gemma", "phi3", "gpt2", "qwen2"][k % 6];
        let mut scheme: QuantizationConfig = text.parse().expect("a scheme");
        if scheme.group_size == Some(64) {
            scheme.group_size = Some(32);
        }
        let wide = load(&data(name));
        let mut model = load(&data(name));
        model.quantize(&scheme).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(model.is_quantized(), "{text}");
        let found = logits(&model);
        let far = worst(&found, &logits(&wide));
        assert!(far > 1e-5 && far < 1.0, "{name} {text}: {far} from the wide model");
        let folder = temporary(text);
        model.save_quantized(&folder).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found, logits(&load(&folder)), "{text}: read back");
        // The dequantized export computes the same.
        let out = temporary(&format!("{text}-wide"));
        load(&folder).export(&out).unwrap_or_else(|e| panic!("{e}"));
        let again = load(&out);
        assert!(!again.is_quantized());
        assert!(worst(&found, &logits(&again)) < 5e-6, "{text}: {}", worst(&found, &logits(&again)));
        let path = folder.with_extension("gguf");
        match model.save_gguf(&path, None) {
            Ok(()) => assert_eq!(found, logits(&load(&path)), "{text}: as GGUF"),
            Err(e) => assert!(e.to_string().contains("which GGUF does not have"), "{text}: {e}"),
        }
        let _ = (std::fs::remove_dir_all(&folder), std::fs::remove_dir_all(&out), std::fs::remove_file(&path));
    }
}

/// Incremental decoding, with the kernels for one row, gives the same as the whole sequence.
#[test]
fn decoding_a_quantised_model_gives_what_the_whole_gives() {
    for (text, dtype, bound) in
        [("q4", DType::F32, 1e-5), ("q8", DType::F32, 1e-5), ("nf4", DType::BF16, 3e-2), ("q4", DType::BF16, 3e-2)]
    {
        let mut model = Model::load(&data("llama"), dtype).expect("loads");
        let mut scheme: QuantizationConfig = text.parse().expect("a scheme");
        scheme.group_size = Some(32);
        model.quantize(&scheme).expect("quantises");
        let cpu = Cpu::new(2);
        let ids = IDS[0].to_vec();
        let whole = model.evaluate_on(std::slice::from_ref(&ids), None, &cpu).expect("runs").logits.to_f32_vec();
        let mut decoding = model.decode_session(8, &cpu).expect("decodes");
        for (i, id) in ids.iter().enumerate() {
            let found = decoding.append(&[*id]).expect("runs");
            let far = worst(&found, &whole[i * 64..(i + 1) * 64]);
            assert!(far < bound, "{text} {dtype} at {i}: {far}");
        }
    }
}

#[test]
fn tokenizers_go_through_gguf() {
    let texts =
        ["The cat sat on the mat.", "A dog — and \"Zoë\" — sang: 1, 2, 3!\n\nThe end.", "日本語 tabs\tand\r\nreturns"];
    let tokenizer = Tokenizer::train(texts.iter().copied().cycle().take(40), 300).expect("trains");
    let model = load(&data("llama"));
    let path = temporary("words").with_extension("gguf");
    model.save_gguf(&path, Some(&tokenizer)).expect("writes");
    let again = Tokenizer::from_dir(&path).expect("reads");
    for text in texts.iter().chain(&["", "  spaces   and 1234567 <|endoftext|> x"]) {
        let ids = tokenizer.encode(text).expect("encodes");
        assert_eq!(ids, again.encode(text).expect("encodes"), "{text}");
        assert_eq!(tokenizer.decode(&ids).expect("decodes"), again.decode(&ids).expect("decodes"));
    }
    assert_eq!(tokenizer.eos_id(), again.eos_id());
    let _ = std::fs::remove_file(&path);
}

/// QLoRA: compared with PEFT on bitsandbytes weights: outputs, gradients, and steps.
#[test]
fn adapters_beside_nf4_equal_peft() {
    let folder = data("qlora");
    let bytes = std::fs::read(folder.join("expected.safetensors")).expect("golden tensors");
    let expected = SafeTensors::deserialize(&bytes).expect("golden tensors");
    let want = |name: &str| floats(expected.tensor(name).unwrap_or_else(|_| panic!("{name}")).data());
    let mut model = load(&data("llama"));
    let scheme = QuantizationConfig { format: QuantFormat::Nf4, group_size: Some(32), scale_dtype: DType::F32 };
    model.quantize(&scheme).expect("quantises");
    let adapter = Adapter::read(&data("lora/llama"), &model).expect("an adapter");
    let ids: Vec<Vec<i32>> = IDS.iter().map(|row| row.to_vec()).collect();
    let cpu = Cpu::new(2);
    let beside = model.evaluate_adapted(&adapter, &ids, &cpu).unwrap_or_else(|e| panic!("{e}")).to_f32_vec();
    assert!(worst(&beside, &want("logits")) < 2e-5, "{}", worst(&beside, &want("logits")));
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("golden steps");
    let json: serde_json::Value = serde_json::from_str(&text).expect("golden steps");
    let ints = |json: &serde_json::Value| -> Vec<i32> {
        json.as_array().expect("a list").iter().map(|n| n.as_i64().expect("an int") as i32).collect()
    };
    let adam = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };
    let sizes = StepSizes { micro_batch_size: 2, seq_len: 7, gradient_accumulation_steps: 1 };
    let mut trainer = LanguageModelTrainer::new(model, Some(adapter), sizes, adam, &ObjectiveOptions::default(), &cpu)
        .expect("compiles");
    for (step, expected) in json["steps"].as_array().expect("steps").iter().enumerate() {
        let batch = Batch { ids: ints(&expected["ids"]), labels: ints(&expected["labels"]) };
        let rate = expected["rate"].as_f64().expect("a rate");
        let found = trainer.step(&batch, rate, step).unwrap_or_else(|e| panic!("{e}"));
        for (what, found, expected) in
            [("loss", found.loss, &expected["loss"]), ("norm", found.grad_norm, &expected["norm"])]
        {
            let expected = expected.as_f64().expect("a number");
            assert!((f64::from(found) - expected).abs() < 2e-4 * expected, "step {step}: {what} {found} {expected}");
        }
        if step == 0 {
            // The first moment is a tenth of the gradient.
            let mut checked = 0;
            for tensor in trainer.state().expect("a state").iter().filter(|t| t.name.starts_with("first.")) {
                let short = tensor.name.trim_start_matches("first.").replace(".weight", "");
                let names = expected_names(&bytes);
                let name = names.iter().find(|n| n.replace(".default", "").replace(".weight", "").ends_with(&short));
                let name = name.unwrap_or_else(|| panic!("{short} among {names:?}"));
                let gradient: Vec<f32> = tensor.to_f32_vec().iter().map(|x| x * 10.0).collect();
                assert!(worst(&gradient, &want(name)) < 1e-4, "{name}: {}", worst(&gradient, &want(name)));
                checked += 1;
            }
            assert_eq!(checked, expected_names(&bytes).len());
        }
    }
    let merged = logits(&trainer.model().expect("merges"));
    assert!(worst(&merged, &want("merged")) < 5e-4, "{}", worst(&merged, &want("merged")));
}

fn expected_names(bytes: &[u8]) -> Vec<String> {
    let tensors = SafeTensors::deserialize(bytes).expect("golden tensors");
    tensors.names().into_iter().filter(|n| n.starts_with("grad.")).map(String::from).collect()
}

#[test]
fn quantised_models_train_by_adapters_alone() {
    let mut model = load(&data("llama"));
    model.quantize(&"q8".parse().expect("a scheme")).expect("quantises");
    let adam = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_grad_norm: 1.0 };
    let sizes = StepSizes { micro_batch_size: 2, seq_len: 7, gradient_accumulation_steps: 1 };
    let error = LanguageModelTrainer::new(model, None, sizes, adam, &ObjectiveOptions::default(), &Cpu::new(1))
        .err()
        .expect("refused")
        .to_string();
    assert!(error.contains("--lora"), "{error}");
}

/// A few steps on one batch: low-precision products learn it as well as full-precision ones, with different numbers.
#[test]
fn steps_in_few_bits_learn() {
    let adam = AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.0, max_grad_norm: 1.0 };
    let sizes = StepSizes { micro_batch_size: 2, seq_len: 7, gradient_accumulation_steps: 1 };
    let ids: Vec<i32> = IDS.iter().flat_map(|row| row[..7].to_vec()).collect();
    let labels: Vec<i32> = IDS.iter().flat_map(|row| row[1..].to_vec()).collect();
    let batch = Batch { ids, labels };
    let losses = |how: Option<PrecisionRecipe>, dtype: DType| -> Vec<f32> {
        let model = Model::load(&data("llama"), dtype).expect("loads");
        let mut trainer = LanguageModelTrainer::new(
            model,
            None,
            sizes,
            adam,
            &ObjectiveOptions { recipe: how.as_ref(), ..ObjectiveOptions::default() },
            &Cpu::new(2),
        )
        .expect("compiles");
        (0..30).map(|step| trainer.step(&batch, 3e-3, step).expect("runs").loss).collect()
    };
    let wide = losses(None, DType::F32);
    let [hybrid, fp4] = ["fp8_hybrid", "fp4"].map(|name| PrecisionRecipe::model_policy(name).expect("known"));
    for (name, how, dtype, bound) in [
        ("fp8_hybrid", hybrid, DType::F32, 0.1),
        ("fp8_hybrid", hybrid, DType::BF16, 0.1),
        ("fp4", fp4, DType::F32, 0.3),
    ] {
        let found = losses(Some(how), dtype);
        let (first, last) = (found[0], found[29]);
        assert!(found != wide && last.is_finite(), "{name}");
        assert!(last < 0.6 * first, "{name}: {first} to {last}");
        // The decrease of the loss is similar.
        let fell = wide[0] - wide[29];
        assert!(((first - last) - fell).abs() < bound * fell, "{name}: fell by {} instead of {fell}", first - last);
    }
}
