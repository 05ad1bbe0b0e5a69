//! Checks that every field of a `config.json` is used, known to be irrelevant, or rejected by name.
//!
//! The model's `param_mapping` reads the used fields. Some of the others never change what a model computes; some do, and are
//! accepted only with the values that describe the library's model. Anything else might mean a different model.

use crate::config::Config;
use lang::ast::{ConfigEntry, ConfigValue, Expr, ExprKind};
use lang::consteval::ConstValue;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Names, tokens, output options, initialization, and dropout: inference has none, and training here uses its own settings.
const IGNORED_FIELDS: &[&str] = &[
    // File metadata.
    "_name_or_path",
    "_commit_hash",
    "architectures",
    "model_type",
    "transformers_version",
    "auto_map",
    "dtype",
    "torch_dtype",
    "tokenizer_class",
    "tensorloom",
    "unsloth_version",
    "unsloth_fixed",
    "_attn_implementation",
    "attn_implementation",
    "_attn_implementation_autoset",
    "_experts_implementation",
    "_flash_attn_2_enabled",
    "use_flash_attn",
    "gradient_checkpointing",
    "torchscript",
    "use_bfloat16",
    "tf_legacy_loss",
    "finetuning_task",
    "task_specific_params",
    "problem_type",
    "id2label",
    "label2id",
    "num_labels",
    // Outputs of a call.
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "return_dict_in_generate",
    "use_cache",
    "cache_implementation",
    "output_past",
    "chunk_size_feed_forward",
    "pretraining_tp",
    "is_decoder",
    "n_ctx",
    // Tokens and generation options.
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "prefix",
    "max_length",
    "min_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_decoder_ids",
    // Initialization.
    "initializer_range",
    "initializer_factor",
    "init_std",
    "logit_scale_init_value",
    "rescale_prenorm_residual",
    "time_step_floor",
    "time_step_init_scheme",
    "time_step_max",
    "time_step_min",
    "time_step_scale",
    // Dropout.
    "attention_dropout",
    "hidden_dropout",
    "classifier_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "dropout",
    "dropout_rate",
    "activation_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "layerdrop",
    "encoder_layerdrop",
    "decoder_layerdrop",
    // Masking of audio in training, and timestamps.
    "apply_spec_augment",
    "mask_time_prob",
    "mask_time_length",
    "mask_time_min_masks",
    "mask_feature_prob",
    "mask_feature_length",
    "mask_feature_min_masks",
    "median_filter_width",
    // Heads that score whole texts.
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    // Selects between equivalent implementations; sums here are never narrower than f32.
    "use_mambapy",
    "use_associative_scan",
    "residual_in_fp32",
    "reorder_and_upcast_attn",
    // Only used with a field that is rejected if it is set, or in a loss term that is not added.
    "router_aux_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    // The number of devices that share the experts.
    "ep_size",
];

/// Fields of published files that no class of transformers reads, or that do not affect its results, each with the reason.
const UNREAD_FIELDS: &[(&str, &str)] = &[
    ("is_llama_config", "a mark of the program that converted the file"),
    ("_num_labels", "the number of classes, which `id2label` says"),
    ("eos_token_ids", "an older name of `eos_token_id`"),
    ("bos_token", "a token by its text; the tokenizer has it"),
    ("eos_token", "a token by its text; the tokenizer has it"),
    ("pad_token", "a token by its text; the tokenizer has it"),
    ("unk_token_id", "a token of the tokenizer"),
    ("mask_token_id", "a token of the tokenizer"),
    ("cls_token_id", "a token of the tokenizer"),
    ("transformers.js_config", "settings of transformers.js"),
    ("max_new_tokens", "a setting of generation"),
    ("min_p", "a setting of generation"),
    ("max_sequence_length", "a length that a trainer noted; `max_position_embeddings` counts"),
    ("model_max_length", "the tokenizer's length"),
    ("tokenizer_model_max_length", "the tokenizer's length"),
    ("tokenizer_padding_side", "the side on which batches are padded"),
    ("padding_side", "the side on which batches are padded"),
    ("use_flash_attention_2", "which of two ways computes the same"),
    ("_flash_attn_version", "which of two ways computes the same"),
    ("use_flash_attention", "which of two ways computes the same"),
    ("_flash_attn_implementation", "which of two ways computes the same"),
    ("_attn_implementation_internal", "which of two ways computes the same"),
    ("_pre_quantization_dtype", "the dtype before a quantisation that has been undone"),
    ("model_name", "a name"),
    ("name_or_path", "a name"),
    ("base_model", "a name"),
    ("license", "a licence"),
    ("language", "the languages of the data"),
    ("vocab_file", "a file of the tokenizer"),
    ("keys_to_ignore_at_inference", "which results a trainer leaves out"),
    ("_output_attentions", "what a call returns"),
    ("return_attention", "what a call returns"),
    ("model_parallel", "how a program laid the model on devices"),
    ("tensor_parallel_size", "how a program laid the model on devices"),
    ("loss_type", "which loss a trainer adds up"),
    ("ignore_index", "labels that a trainer leaves out"),
    ("label_smoothing", "a setting of a trainer"),
    ("gradient_checkpointing_kwargs", "a setting of a trainer"),
    ("rescale_layer", "a setting of a trainer's first weights"),
    ("n_special", "OpenAI's first program had it, with the value 0"),
    ("predict_special_tokens", "OpenAI's first program had it"),
];

/// Fields inside `rope_scaling` that transformers doesn't read: YaRN's `finetuned` describes how the weights were trained.
pub(crate) const UNREAD_ROPE_FIELDS: &[&str] = &["finetuned"];

/// Quantized checkpoints by their `quant_method`: the format of the weights, and what can read them.
const QUANT_METHODS: &[(&str, &str, &str)] = &[
    ("gptq", "integers of 2 to 8 bits with scales of groups (GPTQ)", "transformers with gptqmodel, vLLM"),
    ("awq", "integers of 4 bits with scales of groups (AWQ)", "transformers with gptqmodel or autoawq, vLLM"),
    ("bitsandbytes", "blocks of 4 bits (NF4, FP4) or rows of 8 bits", "transformers with bitsandbytes, vLLM"),
    ("bitsandbytes_4bit", "blocks of 4 bits (NF4, FP4)", "transformers with bitsandbytes, vLLM"),
    ("bitsandbytes_8bit", "rows of 8-bit integers", "transformers with bitsandbytes, vLLM"),
    (
        "compressed-tensors",
        "integers or floats of few bits (compressed-tensors)",
        "transformers with compressed-tensors, vLLM",
    ),
    ("fp8", "8-bit floats with scales of blocks", "transformers, vLLM, SGLang"),
    ("fbgemm_fp8", "8-bit floats with scales of rows", "transformers with fbgemm-gpu, vLLM"),
    ("modelopt", "8- or 4-bit floats of TensorRT's model optimizer", "TensorRT-LLM, vLLM"),
    ("mxfp4", "4-bit floats with scales of blocks (MXFP4)", "transformers, vLLM"),
    ("hqq", "integers of 1 to 8 bits with scales of groups (HQQ)", "transformers with hqq"),
    ("quanto", "integers of 2 to 8 bits or 8-bit floats", "transformers with optimum-quanto"),
    ("eetq", "rows of 8-bit integers", "transformers with eetq"),
    ("aqlm", "codes of several code books (AQLM)", "transformers with aqlm, vLLM"),
    ("vptq", "codes of vectors (VPTQ)", "transformers with vptq"),
    ("spqr", "integers of 3 bits with sparse outliers (SpQR)", "transformers with spqr_quant"),
    ("higgs", "points of a grid (HIGGS)", "transformers with flute-kernel"),
    ("bitnet", "weights of three values", "transformers, bitnet.cpp"),
    ("torchao", "a layout of torchao", "transformers with torchao, vLLM"),
    ("auto-round", "integers of 2 to 8 bits with scales of groups", "transformers with auto-round, vLLM"),
    ("exl2", "a mixture of 2 to 8 bits", "ExLlamaV2"),
    ("exl3", "a trellis code of 1 to 8 bits", "ExLlamaV3"),
    ("quark", "integers or floats of few bits", "transformers with amd-quark, vLLM"),
];

/// Why a quantized checkpoint is rejected, and the remedy.
fn check_quantization(fields: &serde_json::Map<String, Json>) -> Result<(), String> {
    let names = ["quantization_config", "compression_config"];
    let found = names.iter().find_map(|name| Some((name, fields.get(*name).filter(|value| !value.is_null())?)));
    let Some((name, value)) = found else { return Ok(()) };
    let flag = |name: &str| value.get(name) == Some(&Json::Bool(true));
    let method = value.get("quant_method").and_then(Json::as_str);
    let method = method.or((flag("load_in_4bit") || flag("load_in_8bit")).then_some("bitsandbytes"));
    if method == Some("tensorloom") {
        return Ok(());
    }
    let known = method.and_then(|method| QUANT_METHODS.iter().find(|(known, _, _)| *known == method));
    let what = match (known, method) {
        (Some((method, what, readers)), _) => {
            format!("its weights are quantized by {method}: {what}, supported by {readers}")
        }
        (None, Some(method)) => format!("its weights are quantized by the unknown method `{method}`"),
        (None, None) => "its weights are quantized, but `quant_method` is missing".to_string(),
    };
    Err(format!(
        "`{name}`: {what}. This format is not supported: use the original checkpoint with `loom quantize`, or a GGUF \
         file"
    ))
}

/// Fields that change the results, with the values that agree with the library's model.
fn supported_values(architecture: &str, field: &str) -> Option<Vec<Json>> {
    Some(match (architecture, field) {
        ("T5ForConditionalGeneration" | "WhisperForConditionalGeneration", "is_encoder_decoder") => vec![json!(true)],
        (_, "is_encoder_decoder" | "tie_encoder_decoder" | "add_cross_attention") => vec![json!(false)],
        (_, "position_embedding_type") => vec![json!("absolute")],
        ("WhisperForConditionalGeneration", "scale_embedding" | "use_weighted_layer_sum") => vec![json!(false)],
        // V2 never normalizes the weights of the chosen experts to a sum of 1.
        ("DeepseekV2ForCausalLM", "norm_topk_prob") => vec![json!(false)],
        ("DeepseekV2ForCausalLM", "scoring_func") => vec![json!("softmax")],
        ("DeepseekV3ForCausalLM", "scoring_func") => vec![json!("sigmoid")],
        ("DeepseekV3ForCausalLM", "topk_method") => vec![json!("noaux_tc")],
        ("DeepseekV2ForCausalLM" | "DeepseekV3ForCausalLM", "moe_layer_freq") => vec![json!(1)],
        ("FalconForCausalLM", "apply_residual_connection_post_layernorm") => vec![json!(false)],
        ("MambaForCausalLM" | "Mamba2ForCausalLM", "rms_norm") => vec![json!(true)],
        ("Phi3ForCausalLM", "full_attn_mod" | "interpolate_factor") => vec![json!(1)],
        (_, "use_mrope") => vec![json!(false)],
        // Adjacent pairs would be rotated, as in GPT-J; transformers' classes don't do this.
        (_, "rope_interleaved" | "rotary_interleaved") => vec![json!(false)],
        ("BertModel" | "BertForSequenceClassification", "directionality") => vec![json!("bidi")],
        (_, "pruned_heads") => vec![json!({}), json!([])],
        (_, "cross_attention_hidden_size") => vec![],
        (_, "use_bidirectional_attention") => vec![json!(false)],
        // The load-balancing loss is not added.
        (_, "output_router_logits") => vec![json!(false)],
        (_, "router_jitter_noise") => vec![json!(0.0), json!(0)],
        // Older files contain fields that their class no longer reads.
        (_, "attention_bias" | "mlp_bias" | "use_sliding_window" | "use_qk_norm" | "alibi" | "lm_head_bias") => {
            vec![json!(false)]
        }
        ("GemmaForCausalLM", "hidden_activation") => vec![json!("gelu_pytorch_tanh")],
        (_, "hidden_act") => vec![json!("silu")],
        (_, "partial_rotary_factor") => vec![json!(1.0), json!(1)],
        (_, "attention_multiplier" | "residual_multiplier" | "embedding_multiplier" | "logits_scaling") => {
            vec![json!(1.0), json!(1)]
        }
        _ => return None,
    })
}

/// Fields that have no effect for a class: they follow from other fields, or concern parts that it does not have.
fn is_redundant(architecture: &str, field: &str) -> bool {
    let headless = |name: &str| name.starts_with("ViT") || name.ends_with("SequenceClassification");
    match (architecture, field) {
        ("Mamba2ForCausalLM", "chunk_size" | "time_step_rank") => true,
        // transformers' class multiplies by the gate first, whatever the file says; it reads neither field.
        ("Mamba2ForCausalLM", "norm_before_gate" | "fused_add_norm") => true,
        // Sizes of a pooler in the original implementation that differs from the one in use.
        (name, _) if name.starts_with("Bert") && field.starts_with("pooler_") => true,
        // Alternative names of sizes, and fields that only the original implementation reads.
        ("MambaForCausalLM", "d_inner" | "d_model" | "n_layer" | "ssm_cfg" | "fused_add_norm") => true,
        ("MambaForCausalLM", "pad_vocab_size_multiple") => true,
        // Concerns sliding windows, which must be disabled.
        ("Qwen3MoeForCausalLM", "max_window_layers") => true,
        ("T5ForConditionalGeneration", "n_positions") => true,
        ("DeepseekV2ForCausalLM" | "DeepseekV3ForCausalLM", "qk_head_dim") => true,
        // Layers for multi-token prediction are not read.
        ("DeepseekV3ForCausalLM", "num_nextn_predict_layers" | "num_mtp_layers") => true,
        ("T5ForConditionalGeneration", "dense_act_fn" | "is_gated_act" | "tie_word_embeddings") => true,
        ("WhisperForConditionalGeneration", "classifier_proj_size" | "num_hidden_layers") => true,
        ("CLIPModel", "text_config.projection_dim" | "vision_config.projection_dim") => true,
        ("CLIPModel", "text_config.tie_word_embeddings" | "vision_config.tie_word_embeddings") => true,
        ("BertModel" | "RobertaModel" | "CLIPModel", "tie_word_embeddings") => true,
        (name, "tie_word_embeddings") if headless(name) => true,
        // Only used for image reconstruction.
        (name, "encoder_stride") if name.starts_with("ViT") => true,
        ("ViTForImageClassification", "pooler_output_size" | "pooler_act") => true,
        _ => false,
    }
}

/// Returns an error for a field that is not supported, if there is one.
pub(crate) fn check_fields(config: &Config, architecture: &str, entries: &[ConfigEntry]) -> Result<(), String> {
    let Some(fields) = config.json.as_object() else { return Ok(()) };
    let mut used = read_fields(entries);
    if used.contains("rope_parameters") || used.iter().any(|path| path.starts_with("rope_parameters.")) {
        // Older names of the same fields.
        let older = ["rope_parameters", "rope_scaling", "rope_theta", "original_max_position_embeddings"];
        used.extend(older.map(String::from));
        if used.contains("rope_parameters.partial_rotary_factor") {
            used.insert("partial_rotary_factor".to_string());
        }
    }
    check_quantization(fields)?;
    check_duplicates(&config.json)?;
    // Gemma 3's configuration inherits the field from Gemma 2; transformers' class ignores it and does not cap the scores.
    let capped = fields.get("attn_logit_softcapping").filter(|value| !value.is_null());
    if let (Some(value), "Gemma3ForCausalLM") = (capped, architecture) {
        return Err(format!("`attn_logit_softcapping` is {value}, but only null is supported for Gemma 3"));
    }
    unread_fields(config, architecture, "", fields, &used)
}

/// Checks the fields of an object, whose names begin with `prefix`.
fn unread_fields(
    config: &Config,
    architecture: &str,
    prefix: &str,
    fields: &serde_json::Map<String, Json>,
    used: &BTreeSet<String>,
) -> Result<(), String> {
    for (field, value) in fields {
        let name = &format!("{prefix}{field}");
        if used.contains(name) || value.is_null() || IGNORED_FIELDS.contains(&field.as_str()) {
            continue;
        }
        if UNREAD_FIELDS.iter().any(|(known, _)| known == field) || names_quantization(field) {
            continue;
        }
        let inside = format!("{name}.");
        if let (Json::Object(inner), true) = (value, used.iter().any(|path| path.starts_with(&inside))) {
            unread_fields(config, architecture, &inside, inner, used)?;
            continue;
        }
        if is_redundant(architecture, name) {
            continue;
        }
        if name == "layer_types" {
            check_layer_types(config, value)?;
            continue;
        }
        match supported_values(architecture, field) {
            Some(values) if values.iter().any(|meant| meant == value) => {}
            Some(values) => {
                let known: Vec<String> = values.iter().map(Json::to_string).collect();
                let known = if known.is_empty() { "null".to_string() } else { known.join(" or ") };
                return Err(format!("`{name}` is {value}, but only {known} is supported"));
            }
            None => {
                return Err(format!(
                    "`{name}` is not a known field of {architecture} and may change the model: remove it if it has no \
                     effect"
                ));
            }
        }
    }
    Ok(())
}

/// Whether a field describes the quantization that `check_quantization` has accepted.
fn names_quantization(field: &str) -> bool {
    matches!(field, "quantization_config" | "compression_config")
}

/// Parameters of rotary embeddings that occur in two places must agree: only one of them is read.
fn check_duplicates(json: &Json) -> Result<(), String> {
    let field = |name: &str| json.get(name).filter(|value| !value.is_null());
    let Some(rope) = field("rope_parameters") else { return Ok(()) };
    let both = ["rope_theta", "partial_rotary_factor"].map(|name| (name, rope.get(name)));
    for (name, inside) in both.into_iter().chain([("rope_scaling", Some(rope))]) {
        if let (Some(outside), Some(inside)) = (field(name), inside)
            && outside != inside
        {
            return Err(format!("`{name}` is {outside}, but `rope_parameters` says {inside}: remove one of them"));
        }
    }
    Ok(())
}

/// Checks that a field's value has the kind of its parameter's default.
pub(crate) fn check_value_kind(name: &str, value: &ConstValue, default: Option<&ConstValue>) -> Result<(), String> {
    let number = |value: &ConstValue| value.as_int().is_some() || matches!(value, ConstValue::Float(_));
    let (fits, wanted) = match default {
        Some(ConstValue::Bool(_)) => (matches!(value, ConstValue::Bool(_)), "true or false"),
        Some(ConstValue::Str(_)) => (matches!(value, ConstValue::Str(_)), "a word"),
        Some(ConstValue::Float(_)) => (number(value), "a number"),
        Some(default) if default.as_int().is_some() => (value.as_int().is_some(), "an integer"),
        _ => return Ok(()),
    };
    if fits { Ok(()) } else { Err(format!("`{name}` is {value}, but it must be {wanted}")) }
}

/// `layer_types` must agree with the sliding window settings.
fn check_layer_types(config: &Config, value: &Json) -> Result<(), String> {
    let field = |name: &str| config.json.get(name).filter(|value| !value.is_null());
    let windows =
        field("use_sliding_window").and_then(Json::as_bool).unwrap_or(false) && field("sliding_window").is_some();
    let full = field("max_window_layers").and_then(Json::as_u64).unwrap_or(28);
    let layers = field("num_hidden_layers").and_then(Json::as_u64);
    let kind = |i: u64| if windows && i >= full { "sliding_attention" } else { "full_attention" };
    let list = value.as_array().ok_or("`layer_types` must be a list")?;
    let same = list.iter().zip(0..).all(|(found, i)| found == kind(i));
    match same && layers.is_none_or(|n| n == list.len() as u64) {
        true => Ok(()),
        false => {
            Err("`layer_types` disagrees with `use_sliding_window` and `max_window_layers`, which is not supported"
                .into())
        }
    }
}

/// The fields that a `param_mapping` reads, by their dotted names.
fn read_fields(entries: &[ConfigEntry]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.key.name == "param_mapping") {
        let ConfigValue::Map(pairs) = &entry.value else { continue };
        for pair in pairs {
            if let ConfigValue::Expr(expr) = &pair.value {
                collect_fields(expr, &mut found);
            }
        }
    }
    found
}

fn collect_fields(expr: &Expr, found: &mut BTreeSet<String>) {
    match &expr.peel().kind {
        ExprKind::Call(_, args) => args.iter().for_each(|arg| collect_fields(&arg.value, found)),
        ExprKind::Binary(_, a, b) => {
            collect_fields(a, found);
            collect_fields(b, found);
        }
        _ => {
            found.extend(expr.peel().as_path().map(|path| path.to_string()));
        }
    }
}
