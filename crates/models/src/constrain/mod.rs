//! Constrained decoding: a regular expression, or a JSON schema converted to one, determines the allowed tokens at each step.
//!
//! The expression is compiled to a byte automaton. Tokens are stored in a trie; walking both together gives the tokens that a
//! state allows, which are cached for each state. An end token is allowed where the automaton accepts.

mod automaton;
mod keywords;
mod one_of;
mod pattern;
mod schema;
#[cfg(test)]
mod schema_tests;

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use automaton::{Automaton, DEAD, WorkBudget};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes of cached masks per expression, and bytes of cached expressions with their masks.
const MAX_MASK_BYTES: usize = 1 << 20;
const MAX_CACHE_BYTES: usize = 16 << 20;
/// Number of cached rejections, and maximum bytes of an expression.
const MAX_REJECTED: usize = 64;
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Creates constraints for the vocabulary of one tokenizer.
#[derive(Clone)]
pub struct Constrainer {
    inner: Arc<ConstraintCompiler>,
}

struct ConstraintCompiler {
    tokenizer: Tokenizer,
    tokens: OnceLock<TokenTrie>,
    known: Mutex<PatternCache>,
}

/// The cache of expressions.
#[derive(Default)]
struct PatternCache {
    expressions: BTreeMap<String, CacheEntry>,
    bytes: usize,
    /// A counter of uses.
    clock: u64,
    /// Why schemas and expressions were rejected, by their length and a hash: the check may take long.
    refused: BTreeMap<(usize, u64), String>,
    hash: std::hash::RandomState,
}

struct CacheEntry {
    masked: Arc<MaskedAutomaton>,
    bytes: usize,
    used: u64,
}

impl PatternCache {
    fn find(&mut self, pattern: &str) -> Option<Arc<MaskedAutomaton>> {
        self.clock += 1;
        let clock = self.clock;
        let entry = self.expressions.get_mut(pattern)?;
        entry.used = clock;
        Some(entry.masked.clone())
    }

    fn keep(&mut self, pattern: &str, masked: &Arc<MaskedAutomaton>) {
        let bytes = pattern.len() + masked.automaton.bytes() + MAX_MASK_BYTES;
        let new = CacheEntry { masked: masked.clone(), bytes, used: self.clock };
        self.bytes += bytes;
        if let Some(old) = self.expressions.insert(pattern.to_string(), new) {
            self.bytes -= old.bytes;
        }
        while self.bytes > MAX_CACHE_BYTES && self.expressions.len() > 1 {
            let oldest = self.expressions.iter().min_by_key(|(_, entry)| entry.used).map(|(name, _)| name.clone());
            let entry = oldest.and_then(|name| self.expressions.remove(&name));
            self.bytes -= entry.map_or(0, |entry| entry.bytes);
        }
    }

    fn refused(&self, name: &str) -> Option<&String> {
        self.refused.get(&(name.len(), self.hash.hash_one(name)))
    }

    fn refuse(&mut self, name: &str, reason: String) {
        if self.refused.len() >= MAX_REJECTED {
            self.refused.clear();
        }
        self.refused.insert((name.len(), self.hash.hash_one(name)), reason);
    }
}

/// The bytes of tokens, and their trie.
struct TokenTrie {
    bytes: Vec<Option<Vec<u8>>>,
    tree: Vec<TrieNode>,
}

#[derive(Default)]
struct TrieNode {
    next: Vec<(u8, u32)>,
    ids: Vec<u32>,
}

/// An automaton with the masks of allowed tokens of its states.
struct MaskedAutomaton {
    automaton: Automaton,
    masks: Mutex<BTreeMap<u32, Arc<Vec<u64>>>>,
}

/// The state of an expression's automaton after the text so far.
#[derive(Clone)]
pub struct Constraint {
    compiler: Arc<ConstraintCompiler>,
    masked: Arc<MaskedAutomaton>,
    state: u32,
}

impl Constrainer {
    /// Creates a constrainer for a tokenizer; the vocabulary is read when the first constraint is created.
    pub fn new(tokenizer: &Tokenizer) -> Constrainer {
        let inner =
            ConstraintCompiler { tokenizer: tokenizer.clone(), tokens: OnceLock::new(), known: Mutex::default() };
        Constrainer { inner: Arc::new(inner) }
    }

    /// The number of bytes of the longest token.
    pub fn max_token_bytes(&self) -> usize {
        self.inner.tokens().bytes.iter().flatten().map(Vec::len).max().unwrap_or(1)
    }

    /// The bytes of a token.
    pub fn bytes(&self, id: i32) -> Option<Vec<u8>> {
        self.inner.tokens().bytes.get(usize::try_from(id).ok()?)?.clone()
    }

    /// Constrains text to match a whole expression. `\d`, `\w` and `\s` are the classes of ECMA-262.
    pub fn regex(&self, pattern: &str) -> Result<Constraint> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(Error::Input(format!(
                "the regular expression has more than {MAX_PATTERN_BYTES} bytes: shorten it"
            )));
        }
        self.cached(pattern, |budget| pattern::expand_classes(pattern).and_then(|text| self.made(&text, budget)))
    }

    /// Constrains text to a JSON value of this schema, in a compact form.
    pub fn json_schema(&self, schema: &Json) -> Result<Constraint> {
        self.cached(&format!("schema {schema}"), |budget| {
            let expression = schema::compile_schema(schema, budget)?;
            self.made(&expression, budget)
        })
    }

    /// Constrains text to a JSON object, a few levels deep.
    pub fn json_object(&self) -> Result<Constraint> {
        self.regex(&schema::any_object())
    }

    /// Constrains text to one of these.
    pub fn choice(&self, texts: &[String]) -> Result<Constraint> {
        let texts: Vec<String> = texts.iter().map(|text| regex_syntax::escape(text)).collect();
        self.regex(&format!("(?:{})", texts.join("|")))
    }

    /// Returns the cached automaton, or builds it. Other threads do not wait meanwhile.
    fn cached(
        &self,
        name: &str,
        make: impl FnOnce(&mut WorkBudget) -> std::result::Result<Arc<MaskedAutomaton>, String>,
    ) -> Result<Constraint> {
        let lock = || self.inner.known.lock().unwrap_or_else(|e| e.into_inner());
        let found = {
            let mut known = lock();
            if let Some(reason) = known.refused(name) {
                return Err(Error::Input(reason.clone()));
            }
            known.find(name)
        };
        let masked = match found {
            Some(masked) => masked,
            None => match make(&mut WorkBudget::new()) {
                Ok(masked) => {
                    lock().keep(name, &masked);
                    masked
                }
                Err(reason) => {
                    lock().refuse(name, reason.clone());
                    return Err(Error::Input(reason));
                }
            },
        };
        let state = masked.automaton.start();
        Ok(Constraint { compiler: self.inner.clone(), masked, state })
    }

    fn made(&self, pattern: &str, budget: &mut WorkBudget) -> std::result::Result<Arc<MaskedAutomaton>, String> {
        let automaton = Automaton::new(pattern, budget)?;
        if automaton.start() == DEAD {
            return Err(format!("no string matches `{}`", shortened(pattern)));
        }
        Ok(Arc::new(MaskedAutomaton { automaton, masks: Mutex::new(BTreeMap::new()) }))
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_string(),
    }
}

impl ConstraintCompiler {
    fn tokens(&self) -> &TokenTrie {
        self.tokens.get_or_init(|| {
            let bytes = self.tokenizer.token_bytes();
            let mut tree = vec![TrieNode::default()];
            for (id, token) in bytes.iter().enumerate() {
                let Some(token) = token.as_ref().filter(|token| !token.is_empty()) else { continue };
                let mut at = 0;
                for byte in token {
                    let found = tree[at].next.iter().find(|(own, _)| own == byte).map(|(_, to)| *to as usize);
                    at = found.unwrap_or_else(|| {
                        let new = tree.len();
                        tree[at].next.push((*byte, new as u32));
                        tree.push(TrieNode::default());
                        new
                    });
                }
                tree[at].ids.push(id as u32);
            }
            TokenTrie { bytes, tree }
        })
    }
}

impl Constraint {
    /// The allowed tokens as a bit mask.
    fn allowed(&self) -> Arc<Vec<u64>> {
        let mut masks = self.masked.masks.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(mask) = masks.get(&self.state) {
            return mask.clone();
        }
        let tokens = self.compiler.tokens();
        let mut mask = vec![0u64; tokens.bytes.len().div_ceil(64)];
        let mut open = vec![(0usize, self.state)];
        while let Some((at, state)) = open.pop() {
            for id in &tokens.tree[at].ids {
                mask[*id as usize / 64] |= 1 << (id % 64);
            }
            for &(byte, to) in &tokens.tree[at].next {
                let state = self.masked.automaton.next(state, byte);
                if state != DEAD {
                    open.push((to as usize, state));
                }
            }
        }
        let mask = Arc::new(mask);
        if (masks.len() + 1) * 8 * mask.len() > MAX_MASK_BYTES {
            masks.clear();
        }
        masks.insert(self.state, mask.clone());
        mask
    }

    /// Masks the logits of every token that is not allowed; `ends` are allowed where the text is complete, or where no other token is.
    pub fn mask(&self, logits: &mut [f32], ends: &[i32]) {
        let mask = self.allowed();
        let mut any = false;
        let kept: Vec<(usize, f32)> =
            ends.iter().filter_map(|id| usize::try_from(*id).ok()).filter_map(|i| Some((i, *logits.get(i)?))).collect();
        for (i, x) in logits.iter_mut().enumerate() {
            let allowed = mask.get(i / 64).is_some_and(|word| word >> (i % 64) & 1 == 1);
            any |= allowed;
            if !allowed {
                *x = f32::NEG_INFINITY;
            }
        }
        if self.is_complete() || !any {
            for (i, x) in kept {
                // Minus infinity could not be sampled even if it is the only allowed token.
                logits[i] = if x == f32::NEG_INFINITY { f32::MIN } else { x };
            }
        }
    }

    /// Advances by a token; after a token that was not allowed, nothing is allowed.
    pub fn push(&mut self, id: i32) {
        let bytes = usize::try_from(id).ok().and_then(|id| self.compiler.tokens().bytes.get(id)?.as_ref());
        self.state = match bytes {
            Some(bytes) => bytes.iter().fold(self.state, |state, byte| self.masked.automaton.next(state, *byte)),
            None => DEAD,
        };
    }

    /// Whether the text may end here.
    pub fn is_complete(&self) -> bool {
        self.masked.automaton.accepts(self.state)
    }

    /// Whether no token may follow.
    pub fn is_finished(&self) -> bool {
        self.masked.automaton.is_final(self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use serde_json::json;

    fn constrainer() -> Constrainer {
        let text = r#"{"name": "Zoë", "age": 37, "tags": ["a", "b"], "ok": true, "none": null, "x": -1.5e3}"#;
        let tokenizer =
            Tokenizer::train([text, "the cat sat on the mat"].into_iter().cycle().take(60), 340).expect("trains");
        Constrainer::new(&tokenizer)
    }

    /// Samples random texts from the allowed tokens, including the end.
    fn drawn(constraint: &Constraint, maker: &Constrainer, seed: u64, longest: usize) -> (Vec<u8>, bool) {
        let mut random = SplitMix64::new(seed, 0);
        let (mut at, mut text) = (constraint.clone(), Vec::new());
        for _ in 0..longest {
            if at.is_finished() {
                return (text, true);
            }
            let end = maker.inner.tokenizer.eos_id().expect("there");
            let mut logits: Vec<f32> = (0..maker.inner.tokenizer.size()).map(|_| random.uniform() as f32).collect();
            // Long texts are made to end.
            logits[end as usize] = if text.len() > 30 { 5.0 } else { 0.1 };
            at.mask(&mut logits, &[end]);
            let best = (0..logits.len()).fold(0, |b, i| if logits[i] > logits[b] { i } else { b });
            assert!(logits[best] > f32::NEG_INFINITY);
            if best as i32 == end {
                return (text, true);
            }
            text.extend(maker.bytes(best as i32).expect("a text"));
            at.push(best as i32);
        }
        (text, false)
    }

    #[test]
    fn drawn_texts_match() {
        let maker = constrainer();
        for pattern in ["[a-c]{2,5}", "a|ab|abc", "(the|a) (cat|mat)s?", "-?[0-9]{1,4}(\\.[0-9]{2})?", "[ë-ö]{3}", "x*"]
        {
            let whole = regex_automata::meta::Regex::new(&format!("^(?:{pattern})$")).expect("valid");
            let constraint = maker.regex(pattern).expect("valid");
            for seed in 0..40 {
                let (text, ended) = drawn(&constraint, &maker, seed, 200);
                assert!(ended && whole.is_match(&text[..]), "{pattern}: {}", String::from_utf8_lossy(&text));
            }
        }
    }

    #[test]
    fn drawn_json_has_its_schema() {
        let maker = constrainer();
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "maxLength": 6 },
                "age": { "type": "integer", "minimum": 0, "maximum": 120 },
                "kind": { "enum": ["a\"b", 3, null] },
                "tags": { "type": "array", "items": { "$ref": "#/$defs/tag" }, "minItems": 1, "maxItems": 3 },
                "more": { "anyOf": [{ "type": "boolean" }, { "type": "number" }] },
            },
            "required": ["age", "tags"],
            "$defs": { "tag": { "type": "string", "pattern": "^[a-z]{1,3}$" } },
        });
        let constraint = maker.json_schema(&schema).expect("supported");
        for seed in 0..60 {
            let (text, ended) = drawn(&constraint, &maker, seed, 300);
            let text = String::from_utf8(text).expect("text");
            let value: Json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {ended}"));
            let fields = value.as_object().expect("an object");
            assert!(fields.get("age").and_then(Json::as_i64).is_some_and(|age| (0..=120).contains(&age)), "{text}");
            let tags = fields["tags"].as_array().expect("a list");
            let fine = |tag: &Json| {
                tag.as_str().is_some_and(|t| (1..=3).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_lowercase()))
            };
            assert!((1..=3).contains(&tags.len()) && tags.iter().all(fine), "{text}");
            assert!(
                fields.get("name").is_none_or(|name| name.as_str().is_some_and(|n| n.chars().count() <= 6)),
                "{text}"
            );
            assert!(
                fields.get("kind").is_none_or(|kind| [json!("a\"b"), json!(3), Json::Null].contains(kind)),
                "{text}"
            );
            assert!(fields.keys().all(|key| schema["properties"].get(key).is_some()), "{text}");
        }
        let object = maker.json_object().expect("supported");
        for seed in 0..20 {
            let (text, ended) = drawn(&object, &maker, seed, 2000);
            if ended {
                let text = String::from_utf8(text).expect("text");
                assert!(serde_json::from_str::<Json>(&text).is_ok_and(|value| value.is_object()), "{text}");
            }
        }
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let maker = constrainer();
        for pattern in ["(", "[^\\x00-\\x{10FFFF}]", "(a{1000}){1000}", "\\b\\bx\\Bz"] {
            let error = maker.regex(pattern).err().unwrap_or_else(|| panic!("{pattern}")).to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let endless =
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "array", "items": { "$ref": "#/$defs/a" } } } });
        for schema in [
            endless,
            json!({ "type": "thing" }),
            json!({ "not": {} }),
            json!(3),
            json!({ "type": "string", "pattern": ".*" }),
        ] {
            assert!(maker.json_schema(&schema).is_err(), "{schema}");
        }
    }
}
