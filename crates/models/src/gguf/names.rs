//! Tensor names of GGUF and of HuggingFace, by family of models.

use super::header::Header;
use serde_json::Value as Json;

/// Families whose names are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Llama,
    Qwen2,
    Qwen3,
    Gemma,
    Phi3,
    Gpt2,
}

use Family::*;

/// `blk.N.` and what stands there in HuggingFace's names.
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
/// Phi-3 keeps gate and up together, under the name of up.
const PHI3: &[(&str, &str)] = &[("ffn_up", "mlp.gate_up_proj")];
const GPT2_LAYER: &[(&str, &str)] = &[
    ("attn_norm", "ln_1"),
    ("ffn_norm", "ln_2"),
    ("attn_qkv", "attn.c_attn"),
    ("attn_output", "attn.c_proj"),
    ("ffn_up", "mlp.c_fc"),
    ("ffn_down", "mlp.c_proj"),
];
const TOP: &[(&str, &str)] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];
const GPT2_TOP: &[(&str, &str)] = &[
    ("token_embd", "transformer.wte"),
    ("position_embd", "transformer.wpe"),
    ("output_norm", "transformer.ln_f"),
    ("output", "lm_head"),
];

impl Family {
    const ALL: [Family; 6] = [Llama, Qwen2, Qwen3, Gemma, Phi3, Gpt2];

    /// What GGUF calls it, and the class that HuggingFace has for it.
    pub(super) fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Llama => ("llama", "LlamaForCausalLM", "llama"),
            Qwen2 => ("qwen2", "Qwen2ForCausalLM", "qwen2"),
            Qwen3 => ("qwen3", "Qwen3ForCausalLM", "qwen3"),
            Gemma => ("gemma", "GemmaForCausalLM", "gemma"),
            Phi3 => ("phi3", "Phi3ForCausalLM", "phi3"),
            Gpt2 => ("gpt2", "GPT2LMHeadModel", "gpt2"),
        }
    }

    fn known() -> String {
        Family::ALL.map(|f| f.words().0).join(", ")
    }

    /// The family that a file names.
    pub(super) fn of(header: &Header) -> Result<Family, String> {
        let name = header.text("general.architecture").ok_or("it doesn't say `general.architecture`")?;
        let found = Family::ALL.into_iter().find(|f| f.words().0 == name);
        let family = found.ok_or_else(|| format!("architecture `{name}` is not read: {} are", Family::known()))?;
        if header.int(&format!("{name}.expert_count")).is_some_and(|n| n > 0) {
            return Err(format!("a mixture of experts (`{name}.expert_count`) is not read from GGUF"));
        }
        Ok(family)
    }

    /// The family of a configuration.
    pub(super) fn named(config: &Json) -> Result<Family, String> {
        let class = config.get("architectures").and_then(|a| a.get(0)).and_then(Json::as_str).unwrap_or("");
        // Mistral is Llama with windows, which GGUF's llama doesn't have.
        let plain = class == "MistralForCausalLM" && config.get("sliding_window").is_none_or(Json::is_null);
        let found = Family::ALL.into_iter().find(|f| f.words().1 == class || plain && *f == Llama);
        found.ok_or_else(|| format!("`{class}` can't be written as GGUF: {} can", Family::known()))
    }

    /// GGUF's name of a tensor.
    pub(super) fn to_gguf(self, name: &str) -> Option<String> {
        let (module, end) = name.rsplit_once('.')?;
        let (layers, layer, top) = match self {
            Gpt2 => ("transformer.h.", GPT2_LAYER, GPT2_TOP),
            _ => ("model.layers.", LAYER, TOP),
        };
        if let Some(rest) = module.strip_prefix(layers) {
            let (number, inner) = rest.split_once('.')?;
            number.parse::<u32>().ok()?;
            let own = if self == Phi3 { PHI3 } else { &[] };
            let (short, _) = own.iter().chain(layer).find(|(_, long)| *long == inner)?;
            return Some(format!("blk.{number}.{short}.{end}"));
        }
        let (short, _) = top.iter().find(|(_, long)| *long == module)?;
        Some(format!("{short}.{end}"))
    }

    /// How many heads the rows of a tensor are interleaved for: llama's queries and keys.
    fn interleaves(self, name: &str) -> Option<bool> {
        let module = name.rsplit('.').nth(1)?;
        match (self, module) {
            (Llama, "q_proj") => Some(true),
            (Llama, "k_proj") => Some(false),
            _ => None,
        }
    }

    /// The number of such heads, by a configuration.
    pub(super) fn heads(self, config: &Json, name: &str) -> Option<usize> {
        let count = |field: &str| config.get(field).and_then(Json::as_u64).and_then(|n| usize::try_from(n).ok());
        let all = count("num_attention_heads");
        if self.interleaves(name)? { all } else { count("num_key_value_heads").or(all) }
    }

    /// The number of such heads, by a file's head.
    pub(super) fn heads_of(self, header: &Header, name: &str) -> Option<usize> {
        let count = |field: &str| header.int(&format!("llama.attention.{field}")).and_then(|n| usize::try_from(n).ok());
        let all = count("head_count");
        if self.interleaves(name)? { all } else { count("head_count_kv").or(all) }
    }

    /// Whether a norm's weight counts from one in GGUF and from zero in HuggingFace's files.
    pub(super) fn norms_from_one(self, name: &str) -> bool {
        self == Gemma && name.ends_with("norm.weight")
    }
}
