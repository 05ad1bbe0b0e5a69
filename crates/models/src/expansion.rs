//! How much longer a tokenizer's rules can make a text: a chain of replacements may grow without bound.

use crate::charsmap;
use serde_json::Value as Json;

/// Texts that grow more than this many times are a mistake, or an attack.
const MOST: f64 = 1000.0;
/// The longest text that a tokenizer may put in front of others.
const LONGEST_PREFIX: usize = 1000;

/// Whether the rules of a `tokenizer.json` can be applied to any text: why not, if they can't.
pub(crate) fn check(json: &Json) -> Result<(), String> {
    for name in ["normalizer", "decoder"] {
        let Some(rule) = json.get(name) else { continue };
        let (growth, prefix) = (of(rule)?, prefix(rule));
        if growth > MOST || prefix > LONGEST_PREFIX {
            return Err(format!(
                "its {name} may expand texts {growth:.0} times and by {prefix} bytes: the limits are {MOST} times and \
                 {LONGEST_PREFIX} bytes"
            ));
        }
    }
    Ok(())
}

/// An upper bound of the growth by a normalizer or a decoder, in bytes a byte.
fn of(rule: &Json) -> Result<f64, String> {
    let kind = rule.get("type").and_then(Json::as_str).unwrap_or("");
    let list = |name: &str| rule.get(name).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let content = || rule.get("content").and_then(Json::as_str).map_or(0, str::len) as f64;
    Ok(match kind {
        "Sequence" => list("normalizers").iter().chain(list("decoders")).map(of).product::<Result<f64, String>>()?,
        "Replace" => {
            let pattern = rule.get("pattern");
            let text = pattern.and_then(|p| p.get("String")).and_then(Json::as_str).map_or(0, str::len);
            match text {
                // A regular expression may match single bytes, and between all of them.
                0 => 1.0 + content(),
                n => f64::max(1.0, content() / n as f64),
            }
        }
        // Canonical and compatible forms of one character: at most 18 of them.
        "NFD" | "NFKD" | "NFC" | "NFKC" | "Nmt" | "BertNormalizer" => 18.0,
        "Precompiled" => charsmap::check(rule.get("precompiled_charsmap").and_then(Json::as_str).unwrap_or(""))
            .map(|n| n.max(1.0))?,
        // A space becomes a sign of three bytes, a byte at most two.
        "Metaspace" | "ByteLevel" => 3.0,
        _ => 1.0,
    })
}

/// What is added in front of every text.
fn prefix(rule: &Json) -> usize {
    let own = rule.get("prepend").and_then(Json::as_str).map_or(0, str::len);
    let list = rule.get("normalizers").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    own + list.iter().map(prefix).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn chains_multiply() {
        let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
        let of = |rule: &Json| of(rule).unwrap();
        assert_eq!(of(&replace(" ", "▁")), 3.0);
        assert_eq!(of(&replace("``", "\"")), 1.0);
        let bomb = replace("a", "aaaaaaaaaa");
        assert_eq!(of(&json!({ "type": "Sequence", "normalizers": [bomb, bomb, bomb] })), 1000.0);
        let any = json!({ "type": "Replace", "pattern": { "Regex": "" }, "content": "xyz" });
        assert_eq!(of(&any), 4.0);
        assert_eq!(of(&Json::Null), 1.0);
        assert_eq!(prefix(&json!({ "type": "Sequence", "normalizers": [{ "type": "Prepend", "prepend": "▁" }] })), 3);
    }
}
