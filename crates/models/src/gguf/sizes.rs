//! Hyper-parameters: GGUF's pairs and `config.json`.

use super::family::{Family, Rotation, Setting, falcon_groups};
use super::header::{Header, Value};
use super::turns;
use super::write::Pair;
use serde_json::{Map, Value as Json, json};

/// Layers of Gemma 2 and 3 at which queries are scaled by the width over heads instead of by the size of a head.
const LARGEST_GEMMA: [(&str, i64); 2] = [("gemma2", 46), ("gemma3", 62)];
/// The angle of Gemma 3's layers with a window, which its files don't say.
const LOCAL_THETA: f64 = 10000.0;
/// One layer of so many has no window.
const PERIODS: [(&str, i64); 2] = [("gemma2", 2), ("gemma3", 6)];

/// A value by the family's name in a short list.
fn listed(list: &[(&str, i64)], family: &Family) -> Option<i64> {
    list.iter().find(|(name, _)| *name == family.name).map(|(_, n)| *n)
}

/// A number as people wrote it: files keep 0.000001 in 32 bits, which is another number in 64.
fn plain(x: f64) -> f64 {
    let narrow = x as f32;
    if f64::from(narrow) == x { narrow.to_string().parse().unwrap_or(x) } else { x }
}

/// The configuration that a file's pairs describe. `turned` is what its tensor of rotations holds.
pub(super) fn to_config(header: &Header, family: &Family, turned: Option<&[f32]>) -> Result<Json, String> {
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
            Setting::Size(name, field) => (field, json!(need(name)?)),
            Setting::Number(name, field) => match header.pairs.get(&key(name)) {
                Some(Value::Int(n)) => {
                    (field, json!(i64::try_from(*n).map_err(|_| format!("`{}` is too large", key(name)))?))
                }
                Some(Value::Float(x)) => (field, json!(plain(*x))),
                // Llama.cpp has no default for it either.
                _ if field == "rms_norm_eps" => return Err(format!("`{}` is missing", key(name))),
                _ => continue,
            },
            Setting::Flag(name, field) => {
                (field, json!(matches!(header.pairs.get(&key(name)), Some(Value::Bool(true)))))
            }
            Setting::Seen(field, tensor) => (field, json!(has(tensor))),
            Setting::Word(field, word) => (field, json!(word)),
            Setting::Is(field, value) => (field, json!(value)),
            Setting::Fixed(..) => continue,
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
        if header.pairs.get(&key("ssm.dt_b_c_rms")) == Some(&Value::Bool(true)) {
            return Err("normalized dt, B and C (`mamba.ssm.dt_b_c_rms`) are not supported".into());
        }
        return Ok(Json::Object(config));
    }
    let (heads, width, layers) = (need("attention.head_count")?, need("embedding_length")?, need("block_count")?);
    let head = header.int(&key("attention.key_length")).unwrap_or(width / heads);
    if let Some(period) = listed(&PERIODS, family) {
        let kind = |layer: i64| if (layer + 1) % period == 0 { "full_attention" } else { "sliding_attention" };
        set("layer_types", json!((0..layers.min(1 << 16)).map(kind).collect::<Vec<_>>()));
        let largest = listed(&LARGEST_GEMMA, family) == Some(layers);
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
    if family.rotation == Rotation::None {
        return Ok(Json::Object(config));
    }
    let theta = plain(header.float(&key("rope.freq_base")).unwrap_or(10000.0));
    let mut rope = json!({ "rope_type": "default", "rope_theta": theta });
    match (header.int(&key("rope.dimension_count")).unwrap_or(head), family.rotation) {
        (n, Rotation::Part) => rope["partial_rotary_factor"] = json!(n as f64 / head as f64),
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
            rope["factor"] = json!(plain(factor.ok_or("linear RoPE scaling without a factor")?));
        }
        Some(other) => return Err(format!("RoPE scaling `{other}` is not supported in GGUF files")),
    }
    if let Some(turned) = turned {
        let first = header.int(&key("rope.scaling.original_context_length"));
        turns::to_rope(turned, usize::try_from(head).unwrap_or(0), first, &mut rope)?;
    }
    let rope = match family.rotation {
        Rotation::Two => json!({
            "full_attention": rope,
            "sliding_attention": { "rope_type": "default", "rope_theta": LOCAL_THETA },
        }),
        _ => rope,
    };
    config.insert("rope_parameters".into(), rope);
    Ok(Json::Object(config))
}

/// The pairs that describe a configuration, and what the tensor of rotations holds, if there has to be one.
pub(super) fn to_pairs(config: &Json, family: &Family) -> Result<(Vec<(String, Pair)>, Option<Vec<f32>>), String> {
    let short = family.name;
    let mut pairs = vec![("general.architecture".to_string(), Pair::Text(short.into()))];
    let get = |field: &str| match field {
        // Transformers says it in two ways.
        "num_experts" => config.get(field).or(config.get("num_local_experts")),
        _ => config.get(field),
    };
    let number = |field: &str| get(field).and_then(Json::as_u64).and_then(|n| u32::try_from(n).ok());
    let need = |field: &str| number(field).ok_or_else(|| format!("the configuration has no `{field}`"));
    let mut put = |name: &str, pair: Pair| pairs.push((format!("{short}.{name}"), pair));
    let float = |field: &str| config.get(field).and_then(Json::as_f64);
    put("vocab_size", Pair::U32(need("vocab_size")?));
    for setting in family.settings.concat() {
        match setting {
            Setting::Size(name, field) => put(name, Pair::U32(need(field)?)),
            Setting::Number("attention.key_length", _) => {}
            Setting::Number(name, field) => match (number(field), float(field)) {
                // Fields of floats may be written without a point.
                (Some(n), _) if !name.contains("epsilon") && !name.contains("softcapping") => put(name, Pair::U32(n)),
                (_, Some(x)) => put(name, Pair::F32(x as f32)),
                _ => {}
            },
            Setting::Flag(name, field) => put(name, Pair::Flag(get(field).and_then(Json::as_bool).unwrap_or(false))),
            Setting::Fixed(name, n) => put(name, Pair::U32(n)),
            Setting::Seen(..) | Setting::Word(..) | Setting::Is(..) => {}
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
        "gpt2" if number("n_inner").is_none() => put("feed_forward_length", Pair::U32(4 * width)),
        "falcon" => {
            let groups = falcon_groups(config).ok_or("the configuration has no `new_decoder_architecture`")?;
            put("attention.head_count_kv", Pair::U32(u32::try_from(groups).map_err(|e| e.to_string())?));
            if number("ffn_hidden_size").is_none() {
                put("feed_forward_length", Pair::U32(4 * width));
            }
        }
        "gptneox" | "gpt2" => {}
        _ if number("num_key_value_heads").is_none() => put("attention.head_count_kv", Pair::U32(heads)),
        _ => {}
    }
    if family.rotation == Rotation::None {
        return Ok((pairs, None));
    }
    let head = number("head_dim").unwrap_or(width / heads.max(1));
    put("attention.key_length", Pair::U32(head));
    put("attention.value_length", Pair::U32(head));
    let rope = ["rope_parameters", "rope_scaling"].iter().find_map(|name| config.get(*name).filter(|r| r.is_object()));
    let rope = rope.map(|r| r.get("full_attention").unwrap_or(r));
    let inside = |name: &str| rope.and_then(|rope| rope.get(name));
    let theta = inside("rope_theta").and_then(Json::as_f64).or(float("rope_theta")).or(float("rotary_emb_base"));
    let theta = theta.unwrap_or(10000.0);
    put("rope.freq_base", Pair::F32(theta as f32));
    let share = inside("partial_rotary_factor").and_then(Json::as_f64);
    let share = share.or(float("partial_rotary_factor")).or(float("rotary_pct"));
    let turned = match (family.rotation, share) {
        (Rotation::Part, Some(share)) => (f64::from(head) * share) as u32,
        _ => head,
    };
    put("rope.dimension_count", Pair::U32(turned));
    let mut factors = None;
    match inside("rope_type").or_else(|| inside("type")).and_then(Json::as_str) {
        None | Some("default") => {}
        Some("linear") => {
            put("rope.scaling.type", Pair::Text("linear".into()));
            let factor = inside("factor").and_then(Json::as_f64).ok_or("linear RoPE scaling without a factor")?;
            put("rope.scaling.factor", Pair::F32(factor as f32));
        }
        Some("llama3") if short == "llama" => {
            let scaling = turns::Scaling::of(&inside).ok_or("`llama3` RoPE scaling without its factors")?;
            factors = Some(scaling.factors(theta, head as usize));
            if let Some(first) = inside("original_max_position_embeddings").and_then(Json::as_u64) {
                put(
                    "rope.scaling.original_context_length",
                    Pair::U32(u32::try_from(first).map_err(|e| e.to_string())?),
                );
            }
        }
        Some(other) => return Err(format!("RoPE scaling `{other}` cannot be written as GGUF")),
    }
    Ok((pairs, factors))
}

/// A list of texts.
pub(super) fn texts<'a>(header: &'a Header, name: &str) -> Result<Vec<&'a str>, String> {
    let list = header.list(name).ok_or_else(|| format!("the array `{name}` is missing"))?;
    let text = |v: &'a Value| match v {
        Value::Text(text) => Ok(text.as_str()),
        _ => Err(format!("`{name}` must be an array of strings")),
    };
    list.iter().map(text).collect()
}
