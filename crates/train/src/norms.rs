//! Lengths of gradients and weights, layer by layer.

/// The layer of a tensor: its name up to the first number, or its first component.
pub fn layer_name(name: &str) -> String {
    let mut at = 0;
    for part in name.split(['.', '[', ']']) {
        let end = at + part.len();
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            let end = if name[end..].starts_with(']') { end + 1 } else { end };
            return strip_adapter_prefix(&name[..end]).to_string();
        }
        at = end + 1;
    }
    name.split('.').next().unwrap_or(name).to_string()
}

/// Strips the common prefix of adapter names.
fn strip_adapter_prefix(name: &str) -> &str {
    let name = name.strip_prefix("base_model.model.").unwrap_or(name);
    name.strip_prefix("model.").unwrap_or(name)
}

/// Combines the norms of tensors by layer, in the order of their first tensors.
pub fn norms_by_layer(names: &[String], gradients: &[f32], weights: &[f32]) -> Vec<(String, f32, f32)> {
    let mut found: Vec<(String, f64, f64)> = Vec::new();
    for ((name, gradient), weight) in names.iter().zip(gradients).zip(weights) {
        let layer = layer_name(name);
        let at = found.iter().position(|(known, ..)| *known == layer).unwrap_or_else(|| {
            found.push((layer, 0.0, 0.0));
            found.len() - 1
        });
        found[at].1 += f64::from(*gradient).powi(2);
        found[at].2 += f64::from(*weight).powi(2);
    }
    found.into_iter().map(|(name, g, w)| (name, g.sqrt() as f32, w.sqrt() as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_belong_to_layers() {
        for (name, expected) in [
            ("blocks[3].attention.qkv_weight", "blocks[3]"),
            ("base_model.model.model.layers.11.self_attn.q_proj.lora_A.weight", "layers.11"),
            ("embedding", "embedding"),
            ("final_norm.weight", "final_norm"),
            ("h.0.ln_1.weight", "h.0"),
        ] {
            assert_eq!(layer_name(name), expected);
        }
        let names: Vec<String> = ["a[0].x", "b", "a[0].y"].map(String::from).to_vec();
        let found = norms_by_layer(&names, &[3.0, 1.0, 4.0], &[0.0, 2.0, 1.0]);
        assert_eq!(found, [("a[0]".to_string(), 5.0, 1.0), ("b".to_string(), 1.0, 2.0)]);
    }
}
