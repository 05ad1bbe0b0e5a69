//! Configurations with the fields of published files, from several versions of transformers: none is rejected. (`fields.rs` tests
//! the effect of single fields.)

#![recursion_limit = "512"]

use ir::DType;
use serde_json::{Map, Value as Json, json};
use tensorloom_models::Model;

/// Fields of nested configurations in files from before version 4.40.
fn dumped() -> Json {
    json!({
        "_name_or_path": "", "add_cross_attention": false, "architectures": null, "bad_words_ids": null, "bos_token_id": 0,
        "chunk_size_feed_forward": 0, "cross_attention_hidden_size": null, "decoder_start_token_id": null, "diversity_penalty": 0.0,
        "do_sample": false, "early_stopping": false, "encoder_no_repeat_ngram_size": 0, "eos_token_id": 2, "finetuning_task": null,
        "forced_bos_token_id": null, "forced_eos_token_id": null, "id2label": { "0": "LABEL_0" }, "is_decoder": false,
        "is_encoder_decoder": false, "label2id": { "LABEL_0": 0 }, "length_penalty": 1.0, "max_length": 20, "min_length": 0,
        "no_repeat_ngram_size": 0, "num_beam_groups": 1, "num_beams": 1, "num_return_sequences": 1, "output_attentions": false,
        "output_hidden_states": false, "output_scores": false, "pad_token_id": 1, "prefix": null, "problem_type": null,
        "pruned_heads": {}, "remove_invalid_values": false, "repetition_penalty": 1.0, "return_dict": true,
        "return_dict_in_generate": false, "sep_token_id": null, "task_specific_params": null, "temperature": 1.0,
        "tie_encoder_decoder": false, "tie_word_embeddings": true, "tokenizer_class": null, "top_k": 50, "top_p": 1.0,
        "torch_dtype": null, "torchscript": false, "typical_p": 1.0, "use_bfloat16": false
    })
}

/// The fields of each published file, besides those that every file has.
fn published() -> Vec<(&'static str, &'static str, Json)> {
    let decoder = json!({
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "vocab_size": 96, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
        "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02, "attention_dropout": 0.0
    });
    let with = |more: Json| joined(&decoder, &more);
    let clip = |more: Json| joined(&dumped(), &more);
    vec![
        (
            "gpt2",
            "GPT2LMHeadModel",
            json!({
                "activation_function": "gelu_new", "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "n_ctx": 64,
                "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64, "summary_activation": null, "summary_first_dropout": 0.1,
                "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true, "vocab_size": 96,
                "task_specific_params": { "text-generation": { "do_sample": true, "max_length": 50 } }
            }),
        ),
        (
            "pythia",
            "GPTNeoXForCausalLM",
            json!({
                "hidden_act": "gelu", "hidden_size": 64, "intermediate_size": 96, "layer_norm_eps": 1e-5, "max_position_embeddings": 128,
                "num_attention_heads": 4, "num_hidden_layers": 2, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
                "use_parallel_residual": true, "vocab_size": 96, "classifier_dropout": 0.1
            }),
        ),
        ("llama 2", "LlamaForCausalLM", with(json!({ "pretraining_tp": 1, "rope_scaling": null }))),
        (
            "smollm 2",
            "LlamaForCausalLM",
            with(json!({
                "pretraining_tp": 1, "rope_scaling": null, "is_llama_config": true, "rope_interleaved": false,
                "transformers.js_config": { "kv_cache_dtype": { "q4f16": "float16", "fp16": "float16" } }
            })),
        ),
        (
            "yarn llama 2",
            "LlamaForCausalLM",
            with(json!({
                "pretraining_tp": 1, "tokenizer_padding_side": "right", "model_max_length": 4096,
                "rope_scaling": { "factor": 16.0, "original_max_position_embeddings": 64, "type": "yarn", "finetuned": true }
            })),
        ),
        (
            "mamba codestral",
            "Mamba2ForCausalLM",
            json!({
                "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "expand": 2,
                "conv_kernel": 4, "vocab_size": 96, "hidden_act": "silu", "layer_norm_epsilon": 1e-5, "norm_before_gate": true,
                "chunk_size": 256, "rms_norm": true, "residual_in_fp32": true, "tie_word_embeddings": false, "time_step_rank": 4,
                "use_bias": false, "use_conv_bias": true, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
                "rescale_prenorm_residual": false, "time_step_floor": 1e-4, "time_step_limit": [0.0, 1e30], "time_step_max": 0.1,
                "time_step_min": 0.001, "initializer_range": 0.1
            }),
        ),
        (
            "bert multilingual",
            "BertModel",
            joined(
                &dumped(),
                &json!({
                    "_num_labels": 2, "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu",
                    "hidden_dropout_prob": 0.1, "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 96,
                    "layer_norm_eps": 1e-12, "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
                    "pad_token_id": 0, "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
                    "pooler_size_per_head": 128, "pooler_type": "first_token_transform", "type_vocab_size": 2, "vocab_size": 96
                }),
            ),
        ),
        (
            "llama 3.1",
            "LlamaForCausalLM",
            with(json!({
                "attention_bias": false, "mlp_bias": false, "pretraining_tp": 1, "rope_theta": 500000.0, "head_dim": 16,
                "rope_scaling": {
                    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64, "rope_type": "llama3"
                }
            })),
        ),
        ("mistral", "MistralForCausalLM", with(json!({ "rope_theta": 10000.0, "sliding_window": 4096 }))),
        (
            "mixtral",
            "MixtralForCausalLM",
            with(json!({
                "num_experts_per_tok": 2, "num_local_experts": 4, "output_router_logits": false, "rope_theta": 1e6, "router_aux_loss_coef": 0.02,
                "sliding_window": null
            })),
        ),
        (
            "gemma",
            "GemmaForCausalLM",
            with(json!({
                "attention_bias": false, "head_dim": 16, "hidden_act": "gelu", "hidden_activation": null, "rope_scaling": null, "rope_theta": 10000.0
            })),
        ),
        (
            "gemma 2",
            "Gemma2ForCausalLM",
            with(json!({
                "attention_bias": false, "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "final_logit_softcapping": 30.0,
                "head_dim": 16, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16,
                "rope_theta": 10000.0, "sliding_window": 32, "pad_token_id": 0
            })),
        ),
        (
            "gemma 3",
            "Gemma3ForCausalLM",
            with(json!({
                "attention_bias": false, "attn_logit_softcapping": null, "cache_implementation": "hybrid", "final_logit_softcapping": null,
                "head_dim": 16, "hidden_act": null, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16,
                "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 32, "sliding_window_pattern": 6
            })),
        ),
        (
            "qwen 2.5",
            "Qwen2ForCausalLM",
            with(json!({
                "max_window_layers": 24, "rope_theta": 1000000.0, "sliding_window": 32768, "use_mrope": false, "use_sliding_window": false
            })),
        ),
        (
            "qwen 3",
            "Qwen3ForCausalLM",
            with(json!({
                "attention_bias": false, "head_dim": 16, "max_window_layers": 28, "rope_scaling": null, "rope_theta": 1000000,
                "sliding_window": null, "use_sliding_window": false
            })),
        ),
        (
            "qwen 3 moe",
            "Qwen3MoeForCausalLM",
            with(json!({
                "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 16, "max_window_layers": 48, "mlp_only_layers": [],
                "moe_intermediate_size": 32, "norm_topk_prob": true, "num_experts": 4, "num_experts_per_tok": 2, "output_router_logits": false,
                "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null, "use_sliding_window": false
            })),
        ),
        (
            "phi 2",
            "PhiForCausalLM",
            with(json!({
                "embd_pdrop": 0.0, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "num_key_value_heads": 4, "partial_rotary_factor": 0.5,
                "qk_layernorm": false, "resid_pdrop": 0.1, "rms_norm_eps": null, "rope_scaling": null, "rope_theta": 10000.0
            })),
        ),
        (
            "phi 3",
            "Phi3ForCausalLM",
            with(json!({
                "attention_bias": false, "auto_map": { "AutoConfig": "configuration_phi3.Phi3Config" }, "embd_pdrop": 0.0,
                "original_max_position_embeddings": 128, "resid_pdrop": 0.0, "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047
            })),
        ),
        (
            "phi 4 mini",
            "Phi3ForCausalLM",
            with(json!({
                "attention_bias": false, "embd_pdrop": 0.0, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": false, "mlp_bias": false,
                "original_max_position_embeddings": 128, "partial_rotary_factor": 0.5, "resid_pdrop": 0.0, "rope_scaling": null,
                "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true
            })),
        ),
        (
            "stablelm 2",
            "StableLmForCausalLM",
            with(json!({
                "hidden_dropout": 0.0, "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "qk_layernorm": false, "rms_norm_eps": null,
                "rope_scaling": null, "rope_theta": 10000, "use_parallel_residual": false, "use_qkv_bias": true
            })),
        ),
        (
            "olmo 2",
            "Olmo2ForCausalLM",
            with(json!({ "attention_bias": false, "rope_scaling": null, "rope_theta": 500000 })),
        ),
        (
            "falcon",
            "FalconForCausalLM",
            json!({
                "alibi": false, "apply_residual_connection_post_layernorm": false, "attention_dropout": 0.0, "bias": false, "hidden_dropout": 0.0,
                "auto_map": { "AutoConfig": "configuration_falcon.FalconConfig" }, "hidden_size": 64, "layer_norm_epsilon": 1e-5,
                "multi_query": true, "new_decoder_architecture": false, "num_attention_heads": 4, "num_hidden_layers": 2, "parallel_attn": true,
                "vocab_size": 96
            }),
        ),
        (
            "opt",
            "OPTForCausalLM",
            json!({
                "_remove_final_layer_norm": false, "activation_dropout": 0.0, "activation_function": "relu", "attention_dropout": 0.0,
                "do_layer_norm_before": true, "dropout": 0.1, "ffn_dim": 96, "hidden_size": 64, "init_std": 0.02, "layerdrop": 0.0,
                "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "prefix": "</s>", "vocab_size": 96,
                "word_embed_proj_dim": 64
            }),
        ),
        (
            "mamba",
            "MambaForCausalLM",
            json!({
                "conv_kernel": 4, "d_inner": 128, "d_model": 64, "expand": 2, "fused_add_norm": true, "hidden_act": "silu", "hidden_size": 64,
                "initializer_range": 0.1, "intermediate_size": 128, "layer_norm_epsilon": 1e-5, "n_layer": 2, "num_hidden_layers": 2,
                "pad_vocab_size_multiple": 8, "rescale_prenorm_residual": false, "residual_in_fp32": true, "rms_norm": true, "ssm_cfg": {},
                "state_size": 16, "time_step_floor": 0.0001, "time_step_init_scheme": "random", "time_step_max": 0.1, "time_step_min": 0.001,
                "time_step_rank": 4, "time_step_scale": 1.0, "use_bias": false, "use_conv_bias": true, "vocab_size": 96
            }),
        ),
        (
            "deepseek v2 lite",
            "DeepseekV2ForCausalLM",
            with(json!({
                "attention_bias": false, "aux_loss_alpha": 0.001, "ep_size": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16,
                "moe_intermediate_size": 32, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 4, "n_shared_experts": 2,
                "norm_topk_prob": false, "num_experts_per_tok": 2, "num_key_value_heads": 4, "pretraining_tp": 1, "q_lora_rank": null,
                "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
                "topk_group": 1, "topk_method": "greedy", "v_head_dim": 16, "rope_theta": 10000,
                "rope_scaling": {
                    "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
                    "original_max_position_embeddings": 64, "type": "yarn"
                }
            })),
        ),
        (
            "deepseek v3",
            "DeepseekV3ForCausalLM",
            with(json!({
                "attention_bias": false, "ep_size": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16, "moe_intermediate_size": 32,
                "moe_layer_freq": 1, "n_group": 2, "n_routed_experts": 4, "n_shared_experts": 1, "norm_topk_prob": true, "num_experts_per_tok": 2,
                "num_key_value_heads": 4, "num_nextn_predict_layers": 1, "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_group": 1, "topk_method": "noaux_tc", "v_head_dim": 16,
                "rope_theta": 10000,
                "rope_scaling": {
                    "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                    "original_max_position_embeddings": 64, "type": "yarn"
                }
            })),
        ),
        (
            "bert",
            "BertForMaskedLM",
            json!({
                "attention_probs_dropout_prob": 0.1, "classifier_dropout": null, "gradient_checkpointing": false, "hidden_act": "gelu",
                "hidden_dropout_prob": 0.1, "hidden_size": 64, "intermediate_size": 96, "layer_norm_eps": 1e-12,
                "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "pad_token_id": 0,
                "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": 96
            }),
        ),
        (
            "vit",
            "ViTForImageClassification",
            json!({
                "attention_probs_dropout_prob": 0.0, "encoder_stride": 16, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 64,
                "id2label": { "0": "a", "1": "b" }, "image_size": 32, "initializer_range": 0.02, "intermediate_size": 96,
                "label2id": { "a": 0, "b": 1 }, "layer_norm_eps": 1e-12, "num_attention_heads": 4, "num_channels": 3, "num_hidden_layers": 2,
                "patch_size": 16, "qkv_bias": true
            }),
        ),
        (
            "clip",
            "CLIPModel",
            json!({
                "initializer_factor": 1.0, "logit_scale_init_value": 2.6592, "projection_dim": 32, "text_config_dict": null,
                "vision_config_dict": null,
                "text_config": clip(json!({
                    "attention_dropout": 0.0, "dropout": 0.0, "hidden_act": "quick_gelu", "hidden_size": 64, "initializer_factor": 1.0,
                    "initializer_range": 0.02, "intermediate_size": 96, "layer_norm_eps": 1e-5, "max_position_embeddings": 77,
                    "model_type": "clip_text_model", "num_attention_heads": 4, "num_hidden_layers": 2, "projection_dim": 32, "vocab_size": 96
                })),
                "vision_config": clip(json!({
                    "attention_dropout": 0.0, "dropout": 0.0, "hidden_act": "quick_gelu", "hidden_size": 64, "image_size": 32,
                    "initializer_factor": 1.0, "initializer_range": 0.02, "intermediate_size": 96, "layer_norm_eps": 1e-5,
                    "model_type": "clip_vision_model", "num_attention_heads": 4, "num_channels": 3, "num_hidden_layers": 2, "patch_size": 16,
                    "projection_dim": 32
                }))
            }),
        ),
        (
            "whisper",
            "WhisperForConditionalGeneration",
            json!({
                "activation_dropout": 0.0, "activation_function": "gelu", "apply_spec_augment": false, "attention_dropout": 0.0,
                "begin_suppress_tokens": [1, 2], "classifier_proj_size": 256, "d_model": 64, "decoder_attention_heads": 4, "decoder_ffn_dim": 96,
                "decoder_layerdrop": 0.0, "decoder_layers": 2, "decoder_start_token_id": 3, "dropout": 0.0, "encoder_attention_heads": 4,
                "encoder_ffn_dim": 96, "encoder_layerdrop": 0.0, "encoder_layers": 2, "forced_decoder_ids": [[1, 5], [2, 6]], "init_std": 0.02,
                "is_encoder_decoder": true, "mask_feature_length": 10, "mask_feature_min_masks": 0, "mask_feature_prob": 0.0,
                "mask_time_length": 10, "mask_time_min_masks": 2, "mask_time_prob": 0.05, "max_length": 448, "max_source_positions": 30,
                "max_target_positions": 32, "median_filter_width": 7, "num_hidden_layers": 2, "num_mel_bins": 16, "pad_token_id": 0,
                "scale_embedding": false, "suppress_tokens": [1], "use_weighted_layer_sum": false, "vocab_size": 96
            }),
        ),
        (
            "t5",
            "T5ForConditionalGeneration",
            json!({
                "d_ff": 96, "d_kv": 16, "d_model": 64, "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1,
                "initializer_factor": 1.0, "is_encoder_decoder": true, "layer_norm_epsilon": 1e-6, "n_positions": 512, "num_heads": 4,
                "num_layers": 2, "output_past": true, "pad_token_id": 0, "relative_attention_num_buckets": 32,
                "task_specific_params": { "summarization": { "early_stopping": true, "prefix": "summarize: " } }, "vocab_size": 96
            }),
        ),
    ]
}

fn joined(a: &Json, b: &Json) -> Json {
    let fields = |json: &Json| json.as_object().cloned().unwrap_or_default();
    Json::Object(fields(a).into_iter().chain(fields(b)).collect::<Map<_, _>>())
}

#[test]
fn no_field_of_a_published_file_is_refused() {
    let folder = std::env::temp_dir().join(format!("tensorloom-published-{}", std::process::id()));
    let mut refused = Vec::new();
    for (name, architecture, fields) in published() {
        let dir = folder.join(name.replace(' ', "-"));
        std::fs::create_dir_all(&dir).expect("a folder");
        let every = json!({
            "_name_or_path": "someone/something", "architectures": [architecture], "model_type": "", "torch_dtype": "bfloat16",
            "transformers_version": "4.40.0", "use_cache": true
        });
        std::fs::write(dir.join("config.json"), joined(&fields, &every).to_string()).expect("written");
        // The only error is the missing weights.
        let error = Model::load(&dir, DType::F32).err().map_or(String::new(), |e| e.to_string());
        if error.contains("config.json") || !error.contains("safetensors") {
            refused.push(format!("{name}: {error}"));
        }
    }
    std::fs::remove_dir_all(&folder).expect("gone");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
