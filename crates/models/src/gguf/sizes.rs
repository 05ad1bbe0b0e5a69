//! Converts hyper-parameters between GGUF's metadata and `config.json`.

use super::family::{GgufFamily, Hyperparameter, RotaryDims, falcon_groups};
use super::header::{GgufValue, Header};
use super::rope_scaling;
use super::write::MetadataValue;
use serde_json::{Map, Value as Json, json};

/// Number of layers at which Gemma 2 and 3 scale queries by the width over the number of heads instead of the head size.
const LARGEST_GEMMA: [(&str, i64); 2] = [("gemma2", 46), ("gemma3", 62)];
/// The theta of Gemma 3's layers with a sliding window, which its files do not contain.
const LOCAL_THETA: f64 = 10000.0;
/// One of this many layers has no sliding window.
const PERIODS: [(&str, i64); 2] = [("gemma2", 2), ("gemma3", 6)];

/// Looks up a value by the family's name.
fn lookup_family(list: &[(&str, i64)], family: &GgufFamily) -> Option<i64> {
    list.iter().find(|(name, _)| *name == family.name).map(|(_, n)| *n)
}

/// Returns a decimal number in its shortest form: files store 0.000001 as f32, which is a different number in f64.
fn round_to_f32_decimal(x: f64) -> f64 {
    let narrow = x as f32;
    if f64::from(narrow) == x { narrow.to_string().parse().unwrap_or(x) } else { x }
}

/// Returns the configuration that a file's metadata describes. `turned` is the content of its tensor of rotary factors.
pub(super) fn to_config(header: &Header, family: &GgufFamily, turned: Option<&[f32]>) -> Result<Json, String> {
    let key = |name: &str| format!("{}.{name}", family.name);
    let need = |name: &str| {
        let n = header.int(&key(name)).filter(|n| *n > 0);
        n.ok_or_else(|| format!("`{}` is missing or not a positive number", key(name)))
    };
    let has = |name: &str| header.tensors.iter().any(|t| t.name == name);
    let mut config = Map::new();
    config.insert("architectures".into(), json!([family.class]));
    config.insert("model_type".into(), json!(family.kind));
    for setting in family.settings.concat() {
        let (field, value) = match setting {
            Hyperparameter::Size(name, field) => (field, json!(need(name)?)),
            Hyperparameter::Number(name, field) => match header.pairs.get(&key(name)) {
                Some(GgufValue::Int(n)) => {
                    (field, json!(i64::try_from(*n).map_err(|_| format!("`{}` is too large", key(name)))?))
                }
                Some(GgufValue::Float(x)) => (field, json!(round_to_f32_decimal(*x))),
                // llama.cpp has no default for it either.
                _ if field == "rms_norm_eps" => return Err(format!("`{}` is missing", key(name))),
                _ => continue,
            },
            Hyperparameter::Flag(name, field) => {
                (field, json!(matches!(header.pairs.get(&key(name)), Some(GgufValue::Bool(true)))))
            }
            Hyperparameter::HasTensor(field, tensor) => (field, json!(has(tensor))),
            Hyperparameter::ConstText(field, word) => (field, json!(word)),
            Hyperparameter::ConstBool(field, value) => (field, json!(value)),
            Hyperparameter::RequiredKey(..) => continue,
        };
        config.insert(field.to_string(), value);
    }
    let mut set = |name: &str, value: Json| {
        config.insert(name.to_string(), value);
    };
    let tokens = header.list("tokenizer.ggml.tokens").map(|list| list.len() as i64);
    let table = header.tensors.iter().find(|t| t.name == "token_embd.weight").and_then(|t| t.shape.first());
    let vocabulary = table.map(|n| *n as i64).or(header.int(&key("vocab_size"))).or(tokens);
    set("vocab_size", json!(vocabulary.ok_or("`token_embd.weight` is missing")?));
    set("tie_word_embeddings", json!(!has("output.weight")));
    if let Some(end) = header.int("tokenizer.ggml.eos_token_id") {
        set("eos_token_id", json!(end));
    }
    if let Some(start) = header.int("tokenizer.ggml.bos_token_id") {
        set("bos_token_id", json!(start));
    }
    if family.name == "mamba" {
        if header.pairs.get(&key("ssm.dt_b_c_rms")) == Some(&GgufValue::Bool(true)) {
            return Err("normalized dt, B and C (`mamba.ssm.dt_b_c_rms`) are not supported".into());
        }
        return Ok(Json::Object(config));
    }
    let (heads, width, layers) = (need("attention.head_count")?, need("embedding_length")?, need("block_count")?);
    let head = header.int(&key("attention.key_length")).unwrap_or(width / heads);
    if let Some(period) = lookup_family(&PERIODS, family) {
        let kind = |layer: i64| if (layer + 1) % period == 0 { "full_attention" } else { "sliding_attention" };
        set("layer_types", json!((0..layers.min(1 << 16)).map(kind).collect::<Vec<_>>()));
        let largest = lookup_family(&LARGEST_GEMMA, family) == Some(layers);
        set("query_pre_attn_scalar", json!(if largest { width / heads } else { head }));
    } else if header.int(&key("attention.sliding_window")).is_some_and(|n| n > 0) && family.name != "phi3" {
        return Err(format!("a sliding window (`{}`) is not supported in GGUF files", key("attention.sliding_window")));
    }
    if family.name == "falcon" {
        let groups = header.int(&key("attention.head_count_kv")).unwrap_or(1);
        let two = has("blk.0.attn_norm_2.weight");
        set("new_decoder_architecture", json!(two || groups != 1));
        set("num_kv_heads", json!(groups));
        set("num_ln_in_parallel_attn", json!(if two { 2 } else { 1 }));
        set("multi_query", json!(true));
    }
    if family.rotation == RotaryDims::None {
        return Ok(Json::Object(config));
    }
    let theta = round_to_f32_decimal(header.float(&key("rope.freq_base")).unwrap_or(10000.0));
    let mut rope = json!({ "rope_type": "default", "rope_theta": theta });
    match (header.int(&key("rope.dimension_count")).unwrap_or(head), family.rotation) {
        (n, RotaryDims::Leading) => rope["partial_rotary_factor"] = json!(n as f64 / head as f64),
        (n, _) if n != head => {
            return Err(format!(
                "partial RoPE of {n} of {head} dimensions (`{}`) is not supported",
                key("rope.dimension_count")
            ));
        }
        _ => {}
    }
    match header.text(&key("rope.scaling.type")) {
        None | Some("none") => {}
        Some("linear") => {
            let factor = header.float(&key("rope.scaling.factor"));
            rope["rope_type"] = json!("linear");
            rope["factor"] = json!(round_to_f32_decimal(factor.ok_or("linear RoPE scaling without a factor")?));
        }
        Some(other) => return Err(format!("RoPE scaling `{other}` is not supported in GGUF files")),
    }
    if let Some(turned) = turned {
        let first = header.int(&key("rope.scaling.original_context_length"));
        rope_scaling::to_rope(turned, usize::try_from(head).unwrap_or(0), first, &mut rope)?;
    }
    let rope = match family.rotation {
        RotaryDims::PerLayerTheta => json!({
            "full_attention": rope,
            "sliding_attention": { "rope_type": "default", "rope_theta": LOCAL_THETA },
        }),
        _ => rope,
    };
    config.insert("rope_parameters".into(), rope);
    Ok(Json::Object(config))
}

/// Returns the metadata that describes a configuration, and the content of the tensor of rotary factors, if one is needed.
pub(super) fn to_pairs(
    config: &Json,
    family: &GgufFamily,
) -> Result<(Vec<(String, MetadataValue)>, Option<Vec<f32>>), String> {
    let short = family.name;
    let mut pairs = vec![("general.architecture".to_string(), MetadataValue::Text(short.into()))];
    let get = |field: &str| match field {
        // transformers has two names for it.
        "num_experts" => config.get(field).or(config.get("num_local_experts")),
        _ => config.get(field),
    };
    let number = |field: &str| get(field).and_then(Json::as_u64).and_then(|n| u32::try_from(n).ok());
    let need = |field: &str| number(field).ok_or_else(|| format!("the configuration has no `{field}`"));
    let mut put = |name: &str, pair: MetadataValue| pairs.push((format!("{short}.{name}"), pair));
    let float = |field: &str| config.get(field).and_then(Json::as_f64);
    put("vocab_size", MetadataValue::U32(need("vocab_size")?));
    for setting in family.settings.concat() {
        match setting {
            Hyperparameter::Size(name, field) => put(name, MetadataValue::U32(need(field)?)),
            Hyperparameter::Number("attention.key_length", _) => {}
            Hyperparameter::Number(name, field) => match (number(field), float(field)) {
                // Float fields may be written without a decimal point.
                (Some(n), _) if !name.contains("epsilon") && !name.contains("softcapping") => {
                    put(name, MetadataValue::U32(n))
                }
                (_, Some(x)) => put(name, MetadataValue::F32(x as f32)),
                _ => {}
            },
            Hyperparameter::Flag(name, field) => {
                put(name, MetadataValue::Flag(get(field).and_then(Json::as_bool).unwrap_or(false)))
            }
            Hyperparameter::RequiredKey(name, n) => put(name, MetadataValue::U32(n)),
            Hyperparameter::HasTensor(..) | Hyperparameter::ConstText(..) | Hyperparameter::ConstBool(..) => {}
        }
    }
    if short == "mamba" {
        return Ok((pairs, None));
    }
    let (width, heads) = match short {
        "gpt2" => (need("n_embd")?, need("n_head")?),
        _ => (need("hidden_size")?, need("num_attention_heads")?),
    };
    match short {
        "gpt2" if number("n_inner").is_none() => put("feed_forward_length", MetadataValue::U32(4 * width)),
        "falcon" => {
            let groups = falcon_groups(config).ok_or("the configuration has no `new_decoder_architecture`")?;
            put("attention.head_count_kv", MetadataValue::U32(u32::try_from(groups).map_err(|e| e.to_string())?));
            if number("ffn_hidden_size").is_none() {
                put("feed_forward_length", MetadataValue::U32(4 * width));
            }
        }
        "gptneox" | "gpt2" => {}
        _ if number("num_key_value_heads").is_none() => put("attention.head_count_kv", MetadataValue::U32(heads)),
        _ => {}
    }
    if family.rotation == RotaryDims::None {
        return Ok((pairs, None));
    }
    let head = number("head_dim").unwrap_or(width / heads.max(1));
    put("attention.key_length", MetadataValue::U32(head));
    put("attention.value_length", MetadataValue::U32(head));
    let rope = ["rope_parameters", "rope_scaling"].iter().find_map(|name| config.get(*name).filter(|r| r.is_object()));
    let rope = rope.map(|r| r.get("full_attention").unwrap_or(r));
    let inside = |name: &str| rope.and_then(|rope| rope.get(name));
    let theta = inside("rope_theta").and_then(Json::as_f64).or(float("rope_theta")).or(float("rotary_emb_base"));
    let theta = theta.unwrap_or(10000.0);
    put("rope.freq_base", MetadataValue::F32(theta as f32));
    let share = inside("partial_rotary_factor").and_then(Json::as_f64);
    let share = share.or(float("partial_rotary_factor")).or(float("rotary_pct"));
    let turned = match (family.rotation, share) {
        (RotaryDims::Leading, Some(share)) => (f64::from(head) * share) as u32,
        _ => head,
    };
    put("rope.dimension_count", MetadataValue::U32(turned));
    let mut factors = None;
    match inside("rope_type").or_else(|| inside("type")).and_then(Json::as_str) {
        None | Some("default") => {}
        Some("linear") => {
            put("rope.scaling.type", MetadataValue::Text("linear".into()));
            let factor = inside("factor").and_then(Json::as_f64).ok_or("linear RoPE scaling without a factor")?;
            put("rope.scaling.factor", MetadataValue::F32(factor as f32));
        }
        Some("llama3") if short == "llama" => {
            let scaling =
                rope_scaling::Llama3Scaling::from_config(&inside).ok_or("`llama3` RoPE scaling without its factors")?;
            factors = Some(scaling.factors(theta, head as usize));
            if let Some(first) = inside("original_max_position_embeddings").and_then(Json::as_u64) {
                put(
                    "rope.scaling.original_context_length",
                    MetadataValue::U32(u32::try_from(first).map_err(|e| e.to_string())?),
                );
            }
        }
        Some(other) => return Err(format!("RoPE scaling `{other}` cannot be written as GGUF")),
    }
    Ok((pairs, factors))
}

/// Returns a list of strings.
pub(super) fn string_list<'a>(header: &'a Header, name: &str) -> Result<Vec<&'a str>, String> {
    let list = header.list(name).ok_or_else(|| format!("the array `{name}` is missing"))?;
    let text = |v: &'a GgufValue| match v {
        GgufValue::Text(text) => Ok(text.as_str()),
        _ => Err(format!("`{name}` must be an array of strings")),
    };
    list.iter().map(text).collect()
}
