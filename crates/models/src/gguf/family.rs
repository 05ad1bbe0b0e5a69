//! Model families that exist in both GGUF and HuggingFace: their names of tensors and settings.

use super::header::Header;
use serde_json::Value as Json;

/// A family, as data: a new one is an entry of [`FAMILIES`].
#[derive(Debug)]
pub(crate) struct GgufFamily {
    /// The GGUF architecture name.
    pub(super) name: &'static str,
    /// The HuggingFace class.
    pub(super) class: &'static str,
    /// The HuggingFace `model_type`.
    pub(super) kind: &'static str,
    /// The prefix of a layer's number in HuggingFace's names.
    layers: &'static str,
    /// Names of a layer's modules: after `blk.N.`, and in HuggingFace. `{}` is the index of
    /// one of several that GGUF stores in one tensor.
    layer: &'static [&'static [(&'static str, &'static str)]],
    /// Tensors of a layer whose GGUF name has no suffix.
    bare: &'static [(&'static str, &'static str)],
    /// Modules outside the layers.
    top: &'static [(&'static str, &'static str)],
    /// Hyper-parameters.
    pub(super) settings: &'static [&'static [Hyperparameter]],
    /// Which dimensions of a head are rotated.
    pub(super) rotation: RotaryDims,
    /// The order of rows.
    rows: RowOrder,
    /// Whether the weights of norms are offset by one: around one in GGUF, around zero in HuggingFace's files.
    norms_from_one: bool,
}

/// A hyper-parameter: its GGUF key after the family's name, and its field in `config.json`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hyperparameter {
    /// A required integer.
    Size(&'static str, &'static str),
    /// An optional number.
    Number(&'static str, &'static str),
    /// A flag.
    Flag(&'static str, &'static str),
    /// A field that is true if this tensor exists.
    HasTensor(&'static str, &'static str),
    /// A field with a constant text.
    ConstText(&'static str, &'static str),
    /// A field with a constant boolean.
    ConstBool(&'static str, bool),
    /// A key that readers require and that has a constant value.
    RequiredKey(&'static str, u32),
}

/// Which dimensions of a head are rotated by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RotaryDims {
    /// None.
    None,
    /// All.
    All,
    /// The leading ones.
    Leading,
    /// All; layers with a sliding window have a different theta.
    PerLayerTheta,
}

/// The order in which a family's GGUF file stores the rows of queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowOrder {
    /// The same as HuggingFace.
    Same,
    /// The two halves of a head's rotated dimensions are interleaved, in queries and keys.
    Interleaved,
    /// All queries, all keys, all values; HuggingFace stores them head by head.
    Sorted,
}

use Hyperparameter::*;

const LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];
/// Phi-3 fuses gate and up under the name of up.
const PHI3: &[(&str, &str)] = &[("ffn_up", "mlp.gate_up_proj")];
/// Norms before and after each sublayer of a layer.
const POST_NORM_LAYER: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];
const MIXTRAL: &[(&str, &str)] = &[
    ("ffn_gate_inp", "block_sparse_moe.gate"),
    ("ffn_gate_exps", "block_sparse_moe.experts.{}.w1"),
    ("ffn_down_exps", "block_sparse_moe.experts.{}.w2"),
    ("ffn_up_exps", "block_sparse_moe.experts.{}.w3"),
];
const QWEN_MOE: &[(&str, &str)] = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.{}.gate_proj"),
    ("ffn_down_exps", "mlp.experts.{}.down_proj"),
    ("ffn_up_exps", "mlp.experts.{}.up_proj"),
];
const PHI2: &[(&str, &str)] = &[("attn_output", "self_attn.dense"), ("ffn_up", "mlp.fc1"), ("ffn_down", "mlp.fc2")];
const STABLELM: &[(&str, &str)] =
    &[("attn_q_norm", "self_attn.q_layernorm.norms.{}"), ("attn_k_norm", "self_attn.k_layernorm.norms.{}")];
const GPT2_LAYER: &[(&str, &str)] = &[
    ("attn_norm", "ln_1"),
    ("ffn_norm", "ln_2"),
    ("attn_qkv", "attn.c_attn"),
    ("attn_output", "attn.c_proj"),
    ("ffn_up", "mlp.c_fc"),
    ("ffn_down", "mlp.c_proj"),
];
const NEOX_LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("attn_qkv", "attention.query_key_value"),
    ("attn_output", "attention.dense"),
    ("ffn_up", "mlp.dense_h_to_4h"),
    ("ffn_down", "mlp.dense_4h_to_h"),
];
const FALCON_LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_norm", "ln_mlp"),
    ("attn_norm_2", "ln_attn"),
    ("attn_qkv", "self_attention.query_key_value"),
    ("attn_output", "self_attention.dense"),
    ("ffn_up", "mlp.dense_h_to_4h"),
    ("ffn_down", "mlp.dense_4h_to_h"),
];

const MAMBA_LAYER: &[(&str, &str)] = &[
    ("attn_norm", "norm"),
    ("ssm_in", "mixer.in_proj"),
    ("ssm_conv1d", "mixer.conv1d"),
    ("ssm_x", "mixer.x_proj"),
    ("ssm_dt", "mixer.dt_proj"),
    ("ssm_out", "mixer.out_proj"),
];

const TOP: &[(&str, &str)] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];
const PHI2_TOP: &[(&str, &str)] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.final_layernorm"), ("output", "lm_head")];
const GPT2_TOP: &[(&str, &str)] = &[
    ("token_embd", "transformer.wte"),
    ("position_embd", "transformer.wpe"),
    ("output_norm", "transformer.ln_f"),
    ("output", "lm_head"),
];
const NEOX_TOP: &[(&str, &str)] =
    &[("token_embd", "gpt_neox.embed_in"), ("output_norm", "gpt_neox.final_layer_norm"), ("output", "embed_out")];
const FALCON_TOP: &[(&str, &str)] =
    &[("token_embd", "transformer.word_embeddings"), ("output_norm", "transformer.ln_f"), ("output", "lm_head")];

const MAMBA_TOP: &[(&str, &str)] =
    &[("token_embd", "backbone.embeddings"), ("output_norm", "backbone.norm_f"), ("output", "lm_head")];

const SIZES: &[Hyperparameter] = &[
    Size("context_length", "max_position_embeddings"),
    Size("embedding_length", "hidden_size"),
    Size("block_count", "num_hidden_layers"),
    Size("feed_forward_length", "intermediate_size"),
    Size("attention.head_count", "num_attention_heads"),
];
const GROUPS: &[Hyperparameter] = &[Number("attention.head_count_kv", "num_key_value_heads")];
const RMS: &[Hyperparameter] = &[Number("attention.layer_norm_rms_epsilon", "rms_norm_eps")];
const LAYER_NORM: &[Hyperparameter] = &[Number("attention.layer_norm_epsilon", "layer_norm_eps")];
const HEAD: &[Hyperparameter] = &[Number("attention.key_length", "head_dim")];
const SILU: &[Hyperparameter] = &[ConstText("hidden_act", "silu")];
const GELU: &[Hyperparameter] = &[ConstText("hidden_activation", "gelu_pytorch_tanh")];
const BIASES: &[Hyperparameter] = &[HasTensor("attention_bias", "blk.0.attn_q.bias")];
const WINDOW: &[Hyperparameter] = &[Number("attention.sliding_window", "sliding_window")];

const DEFAULT_FAMILY: GgufFamily = GgufFamily {
    name: "llama",
    class: "LlamaForCausalLM",
    kind: "llama",
    layers: "model.layers.",
    layer: &[LAYER],
    bare: &[],
    top: TOP,
    settings: &[SIZES, GROUPS, RMS, HEAD, SILU, BIASES, &[HasTensor("mlp_bias", "blk.0.ffn_gate.bias")]],
    rotation: RotaryDims::All,
    rows: RowOrder::Interleaved,
    norms_from_one: false,
};

/// All supported families.
const FAMILIES: &[GgufFamily] = &[
    DEFAULT_FAMILY,
    GgufFamily {
        class: "MixtralForCausalLM",
        kind: "mixtral",
        layer: &[MIXTRAL, LAYER],
        settings: &[
            SIZES,
            GROUPS,
            RMS,
            HEAD,
            SILU,
            &[Size("expert_count", "num_local_experts"), Size("expert_used_count", "num_experts_per_tok")],
        ],
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "qwen2",
        class: "Qwen2ForCausalLM",
        kind: "qwen2",
        settings: &[SIZES, GROUPS, RMS, HEAD, SILU],
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "qwen3",
        class: "Qwen3ForCausalLM",
        kind: "qwen3",
        settings: &[SIZES, GROUPS, RMS, HEAD, SILU, BIASES],
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "qwen3moe",
        class: "Qwen3MoeForCausalLM",
        kind: "qwen3_moe",
        layer: &[QWEN_MOE, LAYER],
        settings: &[
            SIZES,
            GROUPS,
            RMS,
            HEAD,
            SILU,
            BIASES,
            &[
                Size("expert_count", "num_experts"),
                Size("expert_used_count", "num_experts_per_tok"),
                Size("expert_feed_forward_length", "moe_intermediate_size"),
                ConstBool("norm_topk_prob", true),
            ],
        ],
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "gemma",
        class: "GemmaForCausalLM",
        kind: "gemma",
        settings: &[SIZES, GROUPS, RMS, HEAD, GELU, BIASES],
        rows: RowOrder::Same,
        norms_from_one: true,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "gemma2",
        class: "Gemma2ForCausalLM",
        kind: "gemma2",
        layer: &[POST_NORM_LAYER, LAYER],
        settings: &[
            SIZES,
            GROUPS,
            RMS,
            HEAD,
            GELU,
            WINDOW,
            &[
                Number("attn_logit_softcapping", "attn_logit_softcapping"),
                Number("final_logit_softcapping", "final_logit_softcapping"),
            ],
        ],
        rows: RowOrder::Same,
        norms_from_one: true,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "gemma3",
        class: "Gemma3ForCausalLM",
        kind: "gemma3_text",
        layer: &[POST_NORM_LAYER, LAYER],
        settings: &[
            SIZES,
            GROUPS,
            RMS,
            HEAD,
            GELU,
            WINDOW,
            &[Number("final_logit_softcapping", "final_logit_softcapping")],
        ],
        rotation: RotaryDims::PerLayerTheta,
        rows: RowOrder::Same,
        norms_from_one: true,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "olmo2",
        class: "Olmo2ForCausalLM",
        kind: "olmo2",
        layer: &[POST_NORM_LAYER, LAYER],
        settings: &[SIZES, GROUPS, RMS, SILU],
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "phi2",
        class: "PhiForCausalLM",
        kind: "phi",
        layer: &[PHI2, LAYER],
        top: PHI2_TOP,
        settings: &[SIZES, GROUPS, LAYER_NORM, &[ConstText("hidden_act", "gelu_new")]],
        rotation: RotaryDims::Leading,
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "phi3",
        class: "Phi3ForCausalLM",
        kind: "phi3",
        layer: &[PHI3, LAYER],
        settings: &[SIZES, GROUPS, RMS, SILU, WINDOW],
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "stablelm",
        class: "StableLmForCausalLM",
        kind: "stablelm",
        layer: &[STABLELM, LAYER],
        settings: &[
            SIZES,
            GROUPS,
            LAYER_NORM,
            SILU,
            &[
                Flag("use_parallel_residual", "use_parallel_residual"),
                HasTensor("use_qkv_bias", "blk.0.attn_q.bias"),
                HasTensor("qk_layernorm", "blk.0.attn_q_norm.weight"),
            ],
        ],
        rotation: RotaryDims::Leading,
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "gpt2",
        class: "GPT2LMHeadModel",
        kind: "gpt2",
        layers: "transformer.h.",
        layer: &[GPT2_LAYER],
        top: GPT2_TOP,
        settings: &[&[
            Size("context_length", "n_positions"),
            Size("embedding_length", "n_embd"),
            Size("block_count", "n_layer"),
            Number("feed_forward_length", "n_inner"),
            Size("attention.head_count", "n_head"),
            Number("attention.layer_norm_epsilon", "layer_norm_epsilon"),
            ConstText("activation_function", "gelu_new"),
        ]],
        rotation: RotaryDims::None,
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "gptneox",
        class: "GPTNeoXForCausalLM",
        kind: "gpt_neox",
        layers: "gpt_neox.layers.",
        layer: &[NEOX_LAYER],
        top: NEOX_TOP,
        settings: &[
            SIZES,
            LAYER_NORM,
            &[Flag("use_parallel_residual", "use_parallel_residual"), ConstText("hidden_act", "gelu")],
        ],
        rotation: RotaryDims::Leading,
        rows: RowOrder::Sorted,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "falcon",
        class: "FalconForCausalLM",
        kind: "falcon",
        layers: "transformer.h.",
        layer: &[FALCON_LAYER],
        top: FALCON_TOP,
        settings: &[&[
            Size("context_length", "max_position_embeddings"),
            Size("embedding_length", "hidden_size"),
            Size("block_count", "num_hidden_layers"),
            Number("feed_forward_length", "ffn_hidden_size"),
            Size("attention.head_count", "num_attention_heads"),
            Number("attention.layer_norm_epsilon", "layer_norm_epsilon"),
            ConstText("activation", "gelu"),
            ConstBool("alibi", false),
            ConstBool("bias", false),
            ConstBool("parallel_attn", true),
        ]],
        rows: RowOrder::Sorted,
        ..DEFAULT_FAMILY
    },
    GgufFamily {
        name: "mamba",
        class: "MambaForCausalLM",
        kind: "mamba",
        layers: "backbone.layers.",
        layer: &[MAMBA_LAYER],
        bare: &[("ssm_a", "mixer.A_log"), ("ssm_d", "mixer.D")],
        top: MAMBA_TOP,
        settings: &[&[
            RequiredKey("context_length", 1 << 20),
            RequiredKey("feed_forward_length", 0),
            RequiredKey("attention.head_count", 0),
            Size("embedding_length", "hidden_size"),
            Size("block_count", "num_hidden_layers"),
            Size("ssm.conv_kernel", "conv_kernel"),
            Size("ssm.inner_size", "intermediate_size"),
            Size("ssm.state_size", "state_size"),
            Size("ssm.time_step_rank", "time_step_rank"),
            Number("attention.layer_norm_rms_epsilon", "layer_norm_epsilon"),
            ConstText("hidden_act", "silu"),
            HasTensor("use_conv_bias", "blk.0.ssm_conv1d.bias"),
            ConstBool("use_bias", false),
        ]],
        rotation: RotaryDims::None,
        rows: RowOrder::Same,
        ..DEFAULT_FAMILY
    },
];

/// Element values that GGUF stores in another form.
enum ValueTransform {
    /// The weight of a norm is around one; in HuggingFace's files it is around zero.
    FromOne,
    /// A decay; HuggingFace's files store the logarithm of its negative.
    Decay,
}

/// The place of a HuggingFace tensor in a GGUF file.
pub(super) struct GgufTensorRef {
    pub(super) name: String,
    /// The index among several that the file stores in one tensor.
    pub(super) index: Option<usize>,
}

impl GgufFamily {
    fn family_names() -> String {
        let mut names: Vec<&str> = FAMILIES.iter().map(|f| f.name).collect();
        names.dedup();
        names.join(", ")
    }

    /// Returns the family of a file.
    pub(super) fn of(header: &Header) -> Result<&'static GgufFamily, String> {
        let name = header.text("general.architecture").ok_or("`general.architecture` is missing")?;
        let experts = header.int(&format!("{name}.expert_count")).is_some_and(|n| n > 0);
        let mut named = FAMILIES.iter().filter(|f| f.name == name).peekable();
        if named.peek().is_none() {
            return Err(format!("architecture `{name}` is not supported: use one of {}", GgufFamily::family_names()));
        }
        let found = named.find(|f| f.has_experts() == experts);
        found.ok_or_else(|| format!("`{name}` with or without `{name}.expert_count` is not supported"))
    }

    /// Returns the family of a configuration.
    pub(super) fn of_config(config: &Json) -> Result<&'static GgufFamily, String> {
        let class = config.get("architectures").and_then(|a| a.get(0)).and_then(Json::as_str).unwrap_or("");
        // Mistral is Llama with a sliding window, which GGUF's llama does not have.
        let plain = class == "MistralForCausalLM" && config.get("sliding_window").is_none_or(Json::is_null);
        let class = if plain { "LlamaForCausalLM" } else { class };
        let found = FAMILIES.iter().find(|f| f.class == class);
        found.ok_or_else(|| format!("`{class}` cannot be written as GGUF: use one of {}", GgufFamily::family_names()))
    }

    fn has_experts(&self) -> bool {
        self.settings.concat().iter().any(|s| matches!(s, Size("expert_count", _)))
    }

    /// Returns the place of a tensor in a GGUF file.
    pub(super) fn tensor_ref(&self, tensor: &str) -> Option<GgufTensorRef> {
        let (module, end) = tensor.rsplit_once('.')?;
        if let Some(rest) = module.strip_prefix(self.layers) {
            let (number, inner) = rest.split_once('.')?;
            number.parse::<u32>().ok()?;
            let whole = format!("{inner}.{end}");
            if let Some((short, _)) = self.bare.iter().find(|(_, long)| *long == whole) {
                return Some(GgufTensorRef { name: format!("blk.{number}.{short}"), index: None });
            }
            let (short, index) = self.layer.concat().into_iter().find_map(|(short, long)| {
                let index = match long.split_once("{}") {
                    Some((before, after)) => {
                        Some(inner.strip_prefix(before)?.strip_suffix(after)?.parse::<usize>().ok()?)
                    }
                    None if long == inner => None,
                    None => return None,
                };
                Some((short, index))
            })?;
            return Some(GgufTensorRef { name: format!("blk.{number}.{short}.{end}"), index });
        }
        let (short, _) = self.top.iter().find(|(_, long)| *long == module)?;
        Some(GgufTensorRef { name: format!("{short}.{end}"), index: None })
    }

    /// For each row of HuggingFace's tensor, the row of the file's tensor, if the orders differ.
    pub(super) fn row_order(&self, config: &Json, tensor: &str, rows: usize) -> Option<Vec<usize>> {
        let module = tensor.rsplit('.').nth(1)?;
        let count = |field: &str| config.get(field).and_then(Json::as_u64).and_then(|n| usize::try_from(n).ok());
        let heads = count("num_attention_heads")?.max(1);
        match self.rows {
            RowOrder::Interleaved if matches!(module, "q_proj" | "k_proj") => {
                let groups = count("num_key_value_heads").unwrap_or(heads).max(1);
                let size = rows / if module == "q_proj" { heads } else { groups };
                let half = size / 2;
                let turned = half > 0 && size % 2 == 0;
                let at = |i: usize| i / size * size + 2 * (i % size % half) + i % size / half;
                Some((0..rows).map(|i| if turned { at(i) } else { i }).collect())
            }
            RowOrder::Sorted if module == "query_key_value" => {
                let groups = falcon_groups(config).unwrap_or(heads).max(1);
                // The queries of a group, then its key and its value.
                let (each, size) = (heads / groups, rows / (heads + 2 * groups).max(1));
                let at = |i: usize| {
                    let (group, inside) = (i / (each + 2) / size.max(1), i / size.max(1) % (each + 2));
                    let head = match inside {
                        q if q < each => group * each + q,
                        k if k == each => heads + group,
                        _ => heads + groups + group,
                    };
                    head * size + i % size.max(1)
                };
                Some((0..rows).map(at).collect())
            }
            _ => None,
        }
    }

    /// The function from HuggingFace's elements to GGUF's, if they differ: norm weights around one, decays instead of logarithms.
    pub(super) fn to_gguf_value(&self, tensor: &str) -> Option<fn(f32) -> f32> {
        match self.stored_other(tensor)? {
            ValueTransform::FromOne => Some(|x| x + 1.0),
            ValueTransform::Decay => Some(|x| -f64::from(x).exp() as f32),
        }
    }

    /// The inverse of `written`.
    pub(super) fn from_gguf_value(&self, tensor: &str) -> Option<fn(f32) -> f32> {
        match self.stored_other(tensor)? {
            ValueTransform::FromOne => Some(|x| x - 1.0),
            ValueTransform::Decay => Some(|x| f64::from(-x).ln() as f32),
        }
    }

    fn stored_other(&self, tensor: &str) -> Option<ValueTransform> {
        if self.norms_from_one && tensor.ends_with("norm.weight") {
            return Some(ValueTransform::FromOne);
        }
        (self.name == "mamba" && tensor.ends_with(".A_log")).then_some(ValueTransform::Decay)
    }

    /// The shape of a tensor in GGUF: a depthwise convolution is a matrix.
    pub(super) fn shape(&self, tensor: &str, shape: Vec<usize>) -> Vec<usize> {
        match shape[..] {
            [n, 1, k] if tensor.ends_with("conv1d.weight") => vec![n, k],
            _ => shape,
        }
    }

    /// Whether a tensor is f32 in every file: vectors, expert routers, and weights that are not used in matrix products.
    pub(super) fn is_always_f32(&self, tensor: &str, shape: &[usize]) -> bool {
        let ends = [".A_log", "conv1d.weight", ".mlp.gate.weight", ".block_sparse_moe.gate.weight"];
        shape.len() == 1 || ends.iter().any(|end| tensor.ends_with(end))
    }
}

/// The number of key and value heads in Falcon, which stores it in three ways. None for others.
pub(super) fn falcon_groups(config: &Json) -> Option<usize> {
    let flag = |field: &str| config.get(field).and_then(Json::as_bool);
    let count = |field: &str| config.get(field).and_then(Json::as_u64).and_then(|n| usize::try_from(n).ok());
    let grouped = flag("new_decoder_architecture")?;
    let heads = count("num_attention_heads");
    if grouped {
        count("num_kv_heads").or(heads)
    } else if flag("multi_query").unwrap_or(true) {
        Some(1)
    } else {
        heads
    }
}
