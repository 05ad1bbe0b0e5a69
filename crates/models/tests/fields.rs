//! Every field of every configuration class in transformers for the library's models is used, known to be irrelevant, or rejected
//! by name; `golden/hf_fields.py` lists them.

use cpu::Cpu;
use ir::DType;
use lang::consteval::ConstValue;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensorloom_models::{Architecture, Model};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Golden checkpoints, by class.
const GOLDEN: &[(&str, &str)] = &[
    ("GemmaForCausalLM", "gemma"),
    ("GPT2LMHeadModel", "gpt2"),
    ("GPTNeoXForCausalLM", "gpt_neox"),
    ("LlamaForCausalLM", "llama"),
    ("MambaForCausalLM", "mamba"),
    ("MistralForCausalLM", "mistral"),
    ("MixtralForCausalLM", "mixtral"),
    ("Phi3ForCausalLM", "phi3"),
    ("Qwen2ForCausalLM", "qwen2"),
    ("Qwen3ForCausalLM", "qwen3"),
];

/// A golden directory with another configuration.
struct Copy(PathBuf, Map<String, Json>);

impl Copy {
    fn new(test: &str, name: &str) -> Copy {
        let dir = std::env::temp_dir().join(format!("tensorloom-fields-{test}-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        std::fs::copy(data(name).join("model.safetensors"), dir.join("model.safetensors")).expect("a copy");
        let text = std::fs::read_to_string(data(name).join("config.json")).expect("the configuration");
        Copy(dir, serde_json::from_str(&text).expect("JSON"))
    }

    /// Loads the model with these fields; returns the logits, or the error.
    fn with(&self, fields: &[(&str, Json)]) -> Result<Vec<f32>, String> {
        let mut config = self.1.clone();
        config.extend(fields.iter().map(|(name, value)| (name.to_string(), value.clone())));
        std::fs::write(self.0.join("config.json"), Json::Object(config).to_string()).expect("written");
        let model = Model::load(&self.0, DType::F32).map_err(|e| e.to_string())?;
        let found = model.evaluate_on(&[vec![1, 5, 7, 2, 40]], None, &cpu::Cpu::new(1)).map_err(|e| e.to_string())?;
        Ok(found.logits.to_f32_vec())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Other values of the same type.
fn other(value: &Json) -> Vec<Json> {
    match value {
        Json::Null => vec![json!(3), json!(true), json!("other")],
        Json::Bool(value) => vec![json!(!value)],
        Json::Number(n) if n.is_f64() => vec![json!(n.as_f64().unwrap_or(0.0) * 0.5 + 0.25)],
        Json::Number(n) => vec![json!(n.as_i64().unwrap_or(0) + 1)],
        Json::String(_) => vec![json!("other")],
        Json::Array(_) => vec![json!(["other"])],
        Json::Object(_) => vec![json!({ "other": 2.0 })],
    }
}

/// With another value, a field changes the logits, is rejected by name, or is in the list below of fields without effect on the
/// results. The list is independent of the library's list of irrelevant fields, which it checks.
#[test]
fn each_field_of_each_class_counts_is_refused_or_says_nothing() {
    const NOTHING: &[&str] = &[
        "_name_or_path",
        "architectures",
        "model_type",
        "transformers_version",
        "dtype",
        "id2label",
        "label2id",
        "problem_type",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "use_cache",
        "chunk_size_feed_forward",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "initializer_range",
        "rescale_prenorm_residual",
        "time_step_floor",
        "time_step_init_scheme",
        "time_step_max",
        "time_step_min",
        "time_step_scale",
        "attention_dropout",
        "hidden_dropout",
        "classifier_dropout",
        "attn_pdrop",
        "embd_pdrop",
        "resid_pdrop",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "use_mambapy",
        "use_associative_scan",
        "residual_in_fp32",
        "reorder_and_upcast_attn",
        "router_aux_loss_coef",
        "pretraining_tp",
        "is_decoder",
        // These have an effect only with longer inputs than this test's.
        "max_position_embeddings",
        "max_window_layers",
        "use_sliding_window",
        "original_max_position_embeddings",
        // The product of two others where it is given itself.
        "expand",
    ];
    let golden: Json = serde_json::from_slice(&std::fs::read(data("fields.json")).expect("golden")).expect("JSON");
    let classes = golden["classes"].as_object().expect("classes");
    assert_eq!(classes.len(), GOLDEN.len());
    let (mut counted, mut refused, mut nothing) = (0, 0, 0);
    for (class, name) in GOLDEN {
        let copy = Copy::new("each", name);
        let plain = copy.with(&[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (field, default) in classes[*class].as_object().expect("fields") {
            let value = copy.1.get(field).unwrap_or(default).clone();
            // The default of the class is accepted, if the model's size does not differ.
            if !["architectures", "rope_parameters", "layer_types"].contains(&field.as_str()) && value.is_null() {
                assert!(copy.with(&[(field, value.clone())]).is_ok(), "{name}: {field}");
            }
            for value in other(&value) {
                match copy.with(&[(field, value.clone())]) {
                    Err(error) => {
                        // Sizes and windows may be rejected because of their value.
                        let sizes = ["architectures", "window", "position"];
                        let expected = !NOTHING.contains(&&**field) || sizes.iter().any(|word| field.contains(word));
                        assert!(expected, "{name}: {error}");
                        refused += 1;
                    }
                    Ok(found) if found != plain => counted += 1,
                    Ok(_) => {
                        // Qwen uses its window only with `use_sliding_window`.
                        let silent =
                            NOTHING.contains(&&**field) || name.starts_with("qwen") && field == "sliding_window";
                        assert!(silent, "{name}: `{field}` = {value} changes nothing, without a word");
                        nothing += 1;
                    }
                }
            }
        }
    }
    println!("{counted} values counted, {refused} were refused, {nothing} say nothing");
    assert!(counted > 20 && refused > 60, "{counted} {refused}");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (name, field, value) in [
        ("mixtral", "output_router_logits", json!(true)),
        ("mixtral", "router_jitter_noise", json!(0.1)),
        ("mixtral", "hidden_act", json!("laplace")),
        ("mamba", "hidden_act", json!("laplace")),
        ("gpt2", "activation_function", json!("laplace")),
        ("gpt_neox", "rope_scaling", json!({ "rope_type": "unheard", "factor": 2.0 })),
        ("gemma", "use_bidirectional_attention", json!(true)),
        ("gpt2", "add_cross_attention", json!(true)),
        ("llama", "quantization_config", json!({ "quant_method": "gptq" })),
        ("llama", "a_field_of_the_future", json!(2)),
        ("qwen2", "layer_types", json!(["sliding_attention", "full_attention"])),
        ("phi3", "attention_bias", json!(true)),
    ] {
        let error = Copy::new("refused", name).with(&[(field, value.clone())]).err();
        let error = error.unwrap_or_else(|| panic!("{name}: {field} = {value} was taken"));
        let named = error.contains(field) || error.contains("activation is \"laplace\"");
        assert!(error.contains("config.json") && (named || error.contains("unheard")), "{name}: {error}");
        assert!(!error.trim_end().contains('\n'), "{error}");
    }
}

/// A quantized checkpoint is rejected with its format and a program that reads it; removing the field would not help.
#[test]
fn quantised_checkpoints_are_refused_with_what_reads_them() {
    for (value, words) in [
        (json!({ "quant_method": "gptq", "bits": 4 }), ["gptq", "gptqmodel"]),
        (json!({ "quant_method": "awq" }), ["awq", "vLLM"]),
        (json!({ "load_in_4bit": true, "bnb_4bit_quant_type": "nf4" }), ["bitsandbytes", "NF4"]),
        (json!({ "quant_method": "compressed-tensors" }), ["compressed-tensors", "vLLM"]),
        (json!({ "quant_method": "fp8", "weight_block_size": [128, 128] }), ["8-bit floats", "vLLM"]),
        (json!({ "quant_method": "mxfp4" }), ["MXFP4", "transformers"]),
        (json!({ "quant_method": "of-the-future" }), ["`of-the-future`", "unknown method"]),
        (json!({ "bits": 4 }), ["quant_method", "missing"]),
    ] {
        let error = Copy::new("quantised", "llama").with(&[("quantization_config", value.clone())]).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(
            error.contains("config.json") && error.contains("loom quantize") && !error.contains("remove it if"),
            "{error}"
        );
    }
    assert!(Copy::new("quantised", "llama").with(&[("quantization_config", Json::Null)]).is_ok());
}

/// No class rotates adjacent pairs: the field is accepted only with the value that disables it.
#[test]
fn fields_that_nobody_reads_are_taken_with_the_values_that_say_nothing() {
    let copy = Copy::new("unread", "llama");
    let plain = copy.with(&[]);
    for (field, value) in [
        ("is_llama_config", json!(true)),
        ("_num_labels", json!(2)),
        ("rope_interleaved", json!(false)),
        ("transformers.js_config", json!({ "dtype": "q4" })),
    ] {
        assert_eq!(copy.with(&[(field, value)]), plain, "{field}");
    }
    let error = copy.with(&[("rope_interleaved", json!(true))]).unwrap_err();
    assert!(error.contains("rope_interleaved"), "{error}");
    let yarn = |more: &[(&str, Json)]| {
        let mut rope = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0 });
        more.iter().for_each(|(name, value)| rope[*name] = value.clone());
        copy.with(&[("rope_parameters", rope)])
    };
    assert_eq!(yarn(&[("finetuned", json!(true))]), yarn(&[]));
    assert!(yarn(&[]).is_ok() && yarn(&[("unheard", json!(true))]).is_err());
}

/// The form in files of Phi-2, StableLM and others from before transformers 5.
#[test]
fn the_share_of_a_head_that_is_rotated_may_stand_outside() {
    for name in ["phi3", "gpt_neox"] {
        let copy = Copy::new("share", name);
        let logits = |share: f64| {
            let inside = json!({ "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share });
            copy.with(&[("rope_parameters", inside)]).expect("known")
        };
        let outside = |share: f64| {
            let older = [("rope_theta", json!(10000.0)), ("partial_rotary_factor", json!(share))];
            copy.with(&[("rope_parameters", Json::Null), older[0].clone(), older[1].clone()])
                .expect("an older spelling")
        };
        assert_eq!(outside(0.5), logits(0.5), "{name}");
        assert_ne!(outside(0.5), outside(1.0), "{name}");
        let both = json!({ "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5 });
        let error =
            copy.with(&[("rope_parameters", both.clone()), ("partial_rotary_factor", json!(0.25))]).unwrap_err();
        assert!(error.contains("partial_rotary_factor") && error.contains("remove one of them"), "{error}");
        assert_eq!(copy.with(&[("rope_parameters", both), ("partial_rotary_factor", json!(0.5))]), Ok(logits(0.5)));
    }
}

/// Small values of the sizes of all library models.
const SMALL: &[(&str, i64)] = &[
    ("vocab_size", 48),
    ("d_model", 32),
    ("n_layers", 2),
    ("heads", 4),
    ("kv_heads", 2),
    ("head_dim", 8),
    ("d_ff", 40),
    ("max_seq", 32),
    ("experts", 4),
    ("top_k", 2),
    ("d_expert", 16),
    ("q_rank", 12),
    ("kv_rank", 16),
    ("plain_dim", 8),
    ("rope_dim", 8),
    ("value_dim", 8),
    ("d_dense", 40),
    ("d_state", 8),
    ("d_kv", 8),
    ("padding", 0),
    ("end", 47),
    ("picture", 16),
    ("patch", 8),
    ("mels", 8),
    ("sources", 16),
    ("space", 16),
    ("encoder_layers", 1),
    ("encoder_heads", 2),
    ("encoder_ff", 40),
    ("decoder_layers", 1),
    ("decoder_heads", 2),
    ("decoder_ff", 40),
    ("text_width", 32),
    ("text_layers", 1),
    ("text_heads", 2),
    ("text_ff", 40),
    ("vision_width", 32),
    ("vision_layers", 1),
    ("vision_heads", 2),
    ("vision_ff", 40),
];

/// Sizes that must be consistent with others.
const OWN: &[(&str, &str, i64)] = &[
    ("deepseek_v2", "kv_heads", 0),
    ("deepseek_v3", "kv_heads", 0),
    ("deepseek_v3", "groups", 2),
    ("deepseek_v3", "top_groups", 2),
    ("deepseek_v3", "first_dense", 1),
    ("mamba2", "heads", 8),
    ("mamba2", "groups", 2),
];

#[test]
fn what_a_fresh_model_of_the_library_writes_reads_back() {
    let names: Vec<&str> = lang::library::files().filter_map(|file| file.strip_prefix("std/models/")).collect();
    assert!(names.len() > 25, "{names:?}");
    let mut scored = 0;
    // Models with other inputs than token IDs can't be trained from scratch.
    let others = ["bert", "clip", "roberta", "t5", "vit", "whisper"];
    for name in names.into_iter().filter(|name| !others.contains(name)) {
        let none = BTreeMap::from([("nothing".to_string(), ConstValue::int(1))]);
        let known = Architecture::from_library(name, none).err().map_or(String::new(), |e| e.to_string());
        let known: Vec<&str> = known.rsplit("there are ").next().unwrap_or("").split(", ").collect();
        let own = OWN.iter().filter(|own| own.0 == name).map(|own| (own.1, own.2));
        // The others could have experts, but their configurations have no field for them.
        let sparse = ["mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "llama4"].contains(&name);
        let fits = |size: &str| match size {
            "experts" | "top_k" => sparse,
            "d_expert" => sparse && name != "mixtral",
            _ => true,
        };
        let given = SMALL.iter().copied().chain(own).filter(|(size, _)| known.contains(size) && fits(size));
        let given: BTreeMap<String, ConstValue> =
            given.map(|(size, n)| (size.to_string(), ConstValue::int(n))).collect();
        let folder = std::env::temp_dir().join(format!("tensorloom-fresh-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let fresh = Architecture::from_library(name, given).and_then(|found| Model::new_random(found, DType::F32, 3));
        let fresh = fresh.unwrap_or_else(|e| panic!("{name}: {e}"));
        fresh.export(&folder).unwrap_or_else(|e| panic!("{name}: {e}"));
        let read = Model::load(&folder, DType::F32).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(read.parameter_count(), fresh.parameter_count(), "{name}");
        let ids = [vec![1, 5, 7, 2, 9]];
        if let Ok(want) = fresh.evaluate_on(&ids, None, &Cpu::new(1)) {
            let found = read.evaluate_on(&ids, None, &Cpu::new(1)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(found.logits.to_f32_vec(), want.logits.to_f32_vec(), "{name}");
            scored += 1;
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
    assert!(scored > 20, "{scored}");
}
