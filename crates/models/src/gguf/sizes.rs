//! Hyper-parameters: GGUF's pairs and `config.json`.

use super::header::{Header, Value};
use super::names::Family;
use super::write::Pair;
use serde_json::{Map, Value as Json, json};

/// The configuration that a file's pairs describe.
pub(super) fn to_config(header: &Header, family: &Family) -> Result<Json, String> {
    let (short, class, kind) = family.words();
    let key = |name: &str| format!("{short}.{name}");
    let need = |name: &str| {
        let n = header.int(&key(name)).filter(|n| *n > 0);
        n.ok_or_else(|| format!("it doesn't say `{}`, or not as a positive number", key(name)))
    };
    let mut config = Map::new();
    let mut set = |name: &str, value: Json| {
        config.insert(name.to_string(), value);
    };
    set("architectures", json!([class]));
    set("model_type", json!(kind));
    let tokens = header.list("tokenizer.ggml.tokens").map(|list| list.len() as i64);
    let table = header.tensors.iter().find(|t| t.name == "token_embd.weight").and_then(|t| t.shape.first());
    let vocabulary = table.map(|n| *n as i64).or(header.int(&key("vocab_size"))).or(tokens);
    set("vocab_size", json!(vocabulary.ok_or("it has no `token_embd.weight`")?));
    let tied = !header.tensors.iter().any(|t| t.name == "output.weight");
    set("tie_word_embeddings", json!(tied));
    let (heads, width) = (need("attention.head_count")?, need("embedding_length")?);
    if let Some(end) = header.int("tokenizer.ggml.eos_token_id") {
        set("eos_token_id", json!(end));
    }
    if let Some(start) = header.int("tokenizer.ggml.bos_token_id") {
        set("bos_token_id", json!(start));
    }
    if *family == Family::Gpt2 {
        set("n_embd", json!(width));
        set("n_layer", json!(need("block_count")?));
        set("n_head", json!(heads));
        set("n_inner", json!(need("feed_forward_length")?));
        set("n_positions", json!(need("context_length")?));
        let eps = header.float(&key("attention.layer_norm_epsilon")).unwrap_or(1e-5);
        set("layer_norm_epsilon", json!(eps));
        set("activation_function", json!("gelu_new"));
        return Ok(Json::Object(config));
    }
    set("hidden_size", json!(width));
    set("num_hidden_layers", json!(need("block_count")?));
    set("num_attention_heads", json!(heads));
    set("num_key_value_heads", json!(header.int(&key("attention.head_count_kv")).unwrap_or(heads)));
    set("intermediate_size", json!(need("feed_forward_length")?));
    set("max_position_embeddings", json!(need("context_length")?));
    let eps = header.float(&key("attention.layer_norm_rms_epsilon"));
    set(
        "rms_norm_eps",
        json!(eps.ok_or_else(|| format!("it doesn't say `{}`", key("attention.layer_norm_rms_epsilon")))?),
    );
    let head = header.int(&key("attention.key_length")).unwrap_or(width / heads);
    if !matches!(family, Family::Phi3) {
        set("head_dim", json!(head));
    }
    if let Some(turned) = header.int(&key("rope.dimension_count")).filter(|n| *n != head) {
        return Err(format!(
            "rotations of {turned} of {head} dimensions (`{}`) are not read",
            key("rope.dimension_count")
        ));
    }
    match *family {
        Family::Gemma => set("hidden_activation", json!("gelu_pytorch_tanh")),
        _ => set("hidden_act", json!("silu")),
    }
    let bias = |name: &str| header.tensors.iter().any(|t| t.name == name);
    if matches!(family, Family::Llama | Family::Qwen3 | Family::Gemma) {
        set("attention_bias", json!(bias("blk.0.attn_q.bias")));
    }
    let mut rope =
        json!({ "rope_type": "default", "rope_theta": header.float(&key("rope.freq_base")).unwrap_or(10000.0) });
    match header.text(&key("rope.scaling.type")) {
        None | Some("none") => {}
        Some("linear") => {
            let factor = header.float(&key("rope.scaling.factor"));
            rope["rope_type"] = json!("linear");
            rope["factor"] = json!(factor.ok_or("linear scaling of rotations without a factor")?);
        }
        Some(other) => return Err(format!("rotations scaled by `{other}` are not read from GGUF")),
    }
    if let Some(window) = header.int(&key("attention.sliding_window")).filter(|n| *n > 0) {
        match *family {
            Family::Phi3 => set("sliding_window", json!(window)),
            _ => return Err(format!("a sliding window (`{}`) is not read from GGUF", key("attention.sliding_window"))),
        }
    }
    set("rope_parameters", rope);
    Ok(Json::Object(config))
}

/// The pairs that describe a configuration.
pub(super) fn to_pairs(config: &Json, family: &Family) -> Result<Vec<(String, Pair)>, String> {
    let (short, _, _) = family.words();
    let mut pairs = vec![("general.architecture".to_string(), Pair::Text(short.into()))];
    let number = |field: &str| config.get(field).and_then(Json::as_u64).and_then(|n| u32::try_from(n).ok());
    let need = |field: &str| number(field).ok_or_else(|| format!("the configuration has no `{field}`"));
    let mut put = |name: &str, pair: Pair| pairs.push((format!("{short}.{name}"), pair));
    let float = |field: &str| config.get(field).and_then(Json::as_f64);
    if *family == Family::Gpt2 {
        let width = need("n_embd")?;
        put("context_length", Pair::U32(need("n_positions")?));
        put("embedding_length", Pair::U32(width));
        put("block_count", Pair::U32(need("n_layer")?));
        put("feed_forward_length", Pair::U32(number("n_inner").unwrap_or(4 * width)));
        put("attention.head_count", Pair::U32(need("n_head")?));
        put("attention.layer_norm_epsilon", Pair::F32(float("layer_norm_epsilon").unwrap_or(1e-5) as f32));
        let kind = config.get("activation_function").and_then(Json::as_str).unwrap_or("gelu_new");
        if !matches!(kind, "gelu_new" | "gelu_pytorch_tanh") {
            return Err(format!("GGUF's gpt2 has the activation gelu_new, not `{kind}`"));
        }
        return Ok(pairs);
    }
    let (width, heads) = (need("hidden_size")?, need("num_attention_heads")?);
    put("context_length", Pair::U32(need("max_position_embeddings")?));
    put("embedding_length", Pair::U32(width));
    put("block_count", Pair::U32(need("num_hidden_layers")?));
    put("feed_forward_length", Pair::U32(need("intermediate_size")?));
    put("attention.head_count", Pair::U32(heads));
    put("attention.head_count_kv", Pair::U32(number("num_key_value_heads").unwrap_or(heads)));
    put("attention.layer_norm_rms_epsilon", Pair::F32(float("rms_norm_eps").unwrap_or(1e-6) as f32));
    let head = number("head_dim").unwrap_or(width / heads.max(1));
    put("attention.key_length", Pair::U32(head));
    put("attention.value_length", Pair::U32(head));
    put("rope.dimension_count", Pair::U32(head));
    put("vocab_size", Pair::U32(need("vocab_size")?));
    let rope = ["rope_parameters", "rope_scaling"].iter().find_map(|name| config.get(*name).filter(|r| r.is_object()));
    let inside = |name: &str| rope.and_then(|rope| rope.get(name));
    let theta = inside("rope_theta").and_then(Json::as_f64).or(float("rope_theta")).unwrap_or(10000.0);
    put("rope.freq_base", Pair::F32(theta as f32));
    match inside("rope_type").or_else(|| inside("type")).and_then(Json::as_str) {
        None | Some("default") => {}
        Some("linear") => {
            put("rope.scaling.type", Pair::Text("linear".into()));
            let factor = inside("factor").and_then(Json::as_f64).ok_or("linear scaling without a factor")?;
            put("rope.scaling.factor", Pair::F32(factor as f32));
        }
        Some(other) => return Err(format!("rotations scaled by `{other}` are not written as GGUF")),
    }
    if config.get("use_sliding_window").and_then(Json::as_bool) == Some(true) {
        return Err("sliding windows are not written as GGUF".into());
    }
    if let (Family::Phi3, Some(window)) = (family, number("sliding_window")) {
        put("attention.sliding_window", Pair::U32(window));
    }
    Ok(pairs)
}

/// A list of texts.
pub(super) fn texts<'a>(header: &'a Header, name: &str) -> Result<Vec<&'a str>, String> {
    let list = header.list(name).ok_or_else(|| format!("it has no list `{name}`"))?;
    let text = |v: &'a Value| match v {
        Value::Text(text) => Ok(text.as_str()),
        _ => Err(format!("`{name}` holds other things than texts")),
    };
    list.iter().map(text).collect()
}
