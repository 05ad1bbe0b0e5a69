//! Bounds how much a tokenizer's rules can lengthen a text: a chain of replacements may grow exponentially.

use crate::charsmap;
use serde_json::Value as Json;

/// The maximum growth factor; more is a mistake, or an attack.
const MAX_EXPANSION: f64 = 1000.0;
/// The maximum length of a text that a tokenizer may prepend.
const MAX_PREFIX_BYTES: usize = 1000;

/// Returns why the rules of a `tokenizer.json` can't be applied to any text, if they can't.
pub(crate) fn check_expansion(json: &Json) -> Result<(), String> {
    for name in ["normalizer", "decoder"] {
        let Some(rule) = json.get(name) else { continue };
        let (growth, prefix) = (growth_bound(rule)?, prefix_bytes(rule));
        if growth > MAX_EXPANSION || prefix > MAX_PREFIX_BYTES {
            return Err(format!(
                "its {name} may expand texts {growth:.0} times and by {prefix} bytes: the limits are {MAX_EXPANSION} times and \
                 {MAX_PREFIX_BYTES} bytes"
            ));
        }
    }
    Ok(())
}

/// An upper bound of the growth by a normalizer or a decoder, in bytes per byte.
fn growth_bound(rule: &Json) -> Result<f64, String> {
    let kind = rule.get("type").and_then(Json::as_str).unwrap_or("");
    let list = |name: &str| rule.get(name).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let content = || rule.get("content").and_then(Json::as_str).map_or(0, str::len) as f64;
    Ok(match kind {
        "Sequence" => {
            list("normalizers").iter().chain(list("decoders")).map(growth_bound).product::<Result<f64, String>>()?
        }
        "Replace" => {
            let pattern = rule.get("pattern");
            let text = pattern.and_then(|p| p.get("String")).and_then(Json::as_str).map_or(0, str::len);
            match text {
                // A regular expression may match single bytes, and the empty string between all of them.
                0 => 1.0 + content(),
                n => f64::max(1.0, content() / n as f64),
            }
        }
        // Unicode normalization: at most a factor of 18.
        "NFD" | "NFKD" | "NFC" | "NFKC" | "Nmt" | "BertNormalizer" => 18.0,
        "Precompiled" => {
            charsmap::check_charsmap(rule.get("precompiled_charsmap").and_then(Json::as_str).unwrap_or(""))
                .map(|n| n.max(1.0))?
        }
        // A space becomes a character of three bytes, a byte one of at most two.
        "Metaspace" | "ByteLevel" => 3.0,
        _ => 1.0,
    })
}

/// The length of the text that is prepended to every text.
fn prefix_bytes(rule: &Json) -> usize {
    let own = rule.get("prepend").and_then(Json::as_str).map_or(0, str::len);
    let list = rule.get("normalizers").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    own + list.iter().map(prefix_bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn chains_multiply() {
        let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
        let of = |rule: &Json| growth_bound(rule).unwrap();
        assert_eq!(of(&replace(" ", "▁")), 3.0);
        assert_eq!(of(&replace("``", "\"")), 1.0);
        let bomb = replace("a", "aaaaaaaaaa");
        assert_eq!(of(&json!({ "type": "Sequence", "normalizers": [bomb, bomb, bomb] })), 1000.0);
        let any = json!({ "type": "Replace", "pattern": { "Regex": "" }, "content": "xyz" });
        assert_eq!(of(&any), 4.0);
        assert_eq!(of(&Json::Null), 1.0);
        assert_eq!(
            prefix_bytes(&json!({ "type": "Sequence", "normalizers": [{ "type": "Prepend", "prepend": "▁" }] })),
            3
        );
    }
}
