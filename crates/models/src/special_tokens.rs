//! Special tokens: those that begin, end and pad a text, and those that stop generation.
//!
//! They are read from the files of a directory as transformers 5 does:
//!
//! - The tokenizer's tokens (`bos_token`, `eos_token`, `pad_token`, ..) are those of `tokenizer_config.json`. If that has no
//!   `added_tokens_decoder`, `special_tokens_map.json` takes precedence. The default of the tokenizer's class is used for other tokens.
//! - Generation stops at `eos_token_id` of `generation_config.json`, or else of `config.json`, one ID or a list. Where neither
//!   has one, it stops at the tokenizer's `eos_token`. `bos_token_id` and `pad_token_id` are looked up in the same order.
//! - The `post_processor` of `tokenizer.json` determines whether BOS and EOS are added to a text; with that file transformers
//!   reads neither `add_bos_token` nor `add_eos_token`. The class of GPT-NeoX adds none.
//!
//! In training, a document or the answer to a prompt ends with the tokenizer's `eos_token`.

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use train::files;

/// The names of special tokens in transformers.
pub(crate) const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The special tokens of a tokenizer and of its model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// The tokenizer's special tokens by name (`eos_token`); a chat template may use them as variables.
    pub named: BTreeMap<String, String>,
    /// The ID of the tokenizer's `bos_token`.
    pub bos: Option<i32>,
    /// The ID of the tokenizer's `eos_token`, which ends a document in training.
    pub eos: Option<i32>,
    /// The ID of the tokenizer's `pad_token`.
    pub pad: Option<i32>,
    /// The tokens that stop generation.
    pub eos_ids: Vec<i32>,
    /// The first token of a generation without a prompt.
    pub start: Option<i32>,
    /// The first token of an encoder-decoder's output.
    pub decoder_start: Option<i32>,
}

impl SpecialTokens {
    /// Reads the special tokens of a directory or a GGUF file. The IDs of the tokenizer's tokens need the tokenizer.
    pub fn from_dir(dir: &Path, tokenizer: Option<&Tokenizer>) -> Result<SpecialTokens> {
        if crate::gguf::is_gguf(dir) {
            let gguf = crate::gguf::GgufFile::open(dir)?;
            return gguf.special_tokens();
        }
        let named = TokenizerMetadata::of_dir(&dir_with_file(dir, "tokenizer.json"))?.tokens;
        let id = |name: &str| named.get(name).and_then(|token| tokenizer?.id(token));
        let (bos, eos, pad) = (id("bos_token"), id("eos_token"), id("pad_token"));
        let mut found = SpecialTokens { bos, eos, pad, ..SpecialTokens::default() };
        found.named = named;
        let configurations = generation_configs(dir)?;
        let first = |name: &str| configurations.iter().map(|json| ids(json, name)).find(|ids| !ids.is_empty());
        found.eos_ids = first("eos_token_id").unwrap_or_else(|| eos.into_iter().collect());
        let one = |name: &str| first(name).and_then(|ids| ids.first().copied());
        found.start = one("bos_token_id").or(bos);
        found.decoder_start = one("decoder_start_token_id");
        if found.eos.is_none() && !found.named.contains_key("eos_token") && tokenizer.is_some_and(Tokenizer::is_bare) {
            // No file describes the tokenizer: a text ends with the token that stops generation.
            found.eos = found.eos_ids.first().copied();
        }
        Ok(found)
    }
}

/// The tokens that stop generation.
pub fn eos_ids(dir: &Path, tokenizer: Option<&Tokenizer>) -> Result<Vec<i32>> {
    Ok(SpecialTokens::from_dir(dir, tokenizer)?.eos_ids)
}

/// The first token of an encoder-decoder's output.
pub fn decoder_start_id(dir: &Path) -> Result<i32> {
    let none = || {
        Error::file(&dir.join("config.json"), "`decoder_start_token_id` is missing: the decoder needs a start token")
    };
    let found = SpecialTokens::from_dir(dir, None)?;
    found.decoder_start.or(found.start).ok_or_else(none)
}

/// The directory that contains a file: this one, or that of an adapter's base model.
pub(crate) fn dir_with_file(dir: &Path, name: &str) -> PathBuf {
    if !dir.join(name).is_file() && dir.join("adapter_config.json").is_file() {
        let base = crate::adapter::Adapter::base_of(dir).ok().map(PathBuf::from);
        if let Some(base) = base.filter(|base| base.join(name).is_file()) {
            return base;
        }
    }
    dir.to_path_buf()
}

/// Reads a JSON object of a directory, if the file exists.
pub(crate) fn read_object(dir: &Path, name: &str) -> Result<Option<Map<String, Json>>> {
    let path = dir.join(name);
    if !path.is_file() {
        return Ok(None);
    }
    let text = files::read_text(&path, files::MAX_TEXT_BYTES)?;
    let json = serde_json::from_str(&text).map_err(|e| Error::file(&path, format!("not valid JSON: {e}")))?;
    match json {
        Json::Object(fields) => Ok(Some(fields)),
        _ => Err(Error::file(&path, "not a JSON object")),
    }
}

/// The generation configs of a directory, in the order of their precedence.
fn generation_configs(dir: &Path) -> Result<Vec<Map<String, Json>>> {
    let mut found = Vec::new();
    for name in ["generation_config.json", "config.json"] {
        found.extend(read_object(&dir_with_file(dir, name), name)?);
    }
    // Models of several parts store the IDs in the config of their text model.
    let inner = found.iter().flat_map(|json| ["decoder", "generator", "text_config"].map(|name| json.get(name)));
    let inner: Vec<_> = inner.flatten().filter_map(|json| json.as_object().cloned()).collect();
    found.extend(inner);
    Ok(found)
}

/// The token IDs of a field: one or a list.
fn ids(json: &Map<String, Json>, name: &str) -> Vec<i32> {
    let id = |value: &Json| value.as_i64().and_then(|id| i32::try_from(id).ok()).filter(|id| *id >= 0);
    match json.get(name) {
        Some(Json::Array(list)) => list.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// What the files beside a `tokenizer.json` specify about its tokens.
#[derive(Default)]
pub(crate) struct TokenizerMetadata {
    /// Tokens by name.
    pub(crate) tokens: BTreeMap<String, String>,
    /// Tokens with flags that override those of `tokenizer.json`.
    pub(crate) added: Vec<Json>,
    /// Special tokens, which are added if `tokenizer.json` doesn't contain them; and whether a file names them explicitly.
    pub(crate) special: Vec<(Json, bool)>,
    /// Whether any file describes the tokenizer.
    pub(crate) described: bool,
    /// Whether the class adds no special tokens, whatever the `post_processor` specifies.
    pub(crate) unframed: bool,
}

impl TokenizerMetadata {
    pub(crate) fn of_dir(dir: &Path) -> Result<TokenizerMetadata> {
        let config = read_object(dir, "tokenizer_config.json")?;
        let mut fields = config.clone().unwrap_or_default();
        let decoder = fields.get("added_tokens_decoder").and_then(Json::as_object).cloned();
        let mut found = TokenizerMetadata { described: config.is_some(), ..TokenizerMetadata::default() };
        match decoder {
            Some(decoder) => {
                let mut listed: Vec<(u64, Json)> =
                    decoder.into_iter().filter_map(|(id, token)| Some((id.parse().ok()?, token))).collect();
                listed.sort_by_key(|(id, _)| *id);
                found.added = listed.into_iter().map(|(_, token)| token).collect();
            }
            None => {
                let map = read_object(dir, "special_tokens_map.json")?;
                found.described |= map.is_some();
                fields.extend(map.unwrap_or_default());
                let mut listed: Vec<(u64, String)> = read_object(dir, "added_tokens.json")?
                    .unwrap_or_default()
                    .into_iter()
                    .filter_map(|(token, id)| Some((id.as_u64()?, token)))
                    .collect();
                listed.sort();
                found.added = listed.into_iter().map(|(_, token)| Json::String(token)).collect();
            }
        }
        let model = read_object(&dir_with_file(dir, "config.json"), "config.json")?.unwrap_or_default();
        let class = tokenizer_class(&fields, &model, dir);
        found.unframed = class.as_deref() == Some("GPTNeoXTokenizer");
        let defaults = class.and_then(|class| defaults(&class));
        for name in NAMES {
            let token = match fields.get(name) {
                // A null token disables the default of the class.
                Some(value) => text(value),
                None => defaults.and_then(|of| of.iter().find(|(known, _)| *known == name)).map(|(_, t)| t.to_string()),
            };
            if let Some(token) = token {
                found.tokens.insert(name.to_string(), token);
            }
        }
        // Model-specific names, such as `image_token`.
        let further = fields.iter().filter(|(name, _)| name.ends_with("_token") && !NAMES.contains(&name.as_str()));
        found.tokens.extend(further.filter_map(|(name, value)| Some((name.clone(), text(value)?))));
        if let Some(Json::Object(own)) = fields.get("extra_special_tokens") {
            found.tokens.extend(own.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))));
        }
        let named = NAMES.iter().filter_map(|name| Some((*name, found.tokens.get(*name)?)));
        let named = named
            .chain(found.tokens.iter().map(|(name, token)| (name.as_str(), token)).filter(|(n, _)| !NAMES.contains(n)));
        let one = |(name, token): (&str, &String)| {
            (fields.get(name).cloned().unwrap_or(token.as_str().into()), fields.contains_key(name))
        };
        found.special = named.map(one).collect();
        // The older name is only used if the newer one is absent.
        let list = ["extra_special_tokens", "additional_special_tokens"].map(|name| fields.get(name));
        let list = list.into_iter().flatten().find_map(Json::as_array).cloned().unwrap_or_default();
        found.special.extend(list.into_iter().map(|token| (token, true)));
        Ok(found)
    }
}

/// The text of a token, which may be an object with its flags.
pub(crate) fn text(value: &Json) -> Option<String> {
    value.as_str().or_else(|| value.get("content")?.as_str()).map(String::from)
}

/// Tokenizer classes by model type, if `tokenizer_config.json` has none.
const REGISTERED: &[(&str, &str)] = &[
    ("bart", "RobertaTokenizer"),
    ("bert", "BertTokenizer"),
    ("clip", "CLIPTokenizer"),
    ("codegen", "GPT2Tokenizer"),
    ("cohere", "CohereTokenizer"),
    ("cohere2", "CohereTokenizer"),
    ("distilbert", "BertTokenizer"),
    ("electra", "BertTokenizer"),
    ("gemma", "GemmaTokenizer"),
    ("gemma2", "GemmaTokenizer"),
    ("gemma3", "GemmaTokenizer"),
    ("gemma3_text", "GemmaTokenizer"),
    ("gpt2", "GPT2Tokenizer"),
    ("gpt_neo", "GPT2Tokenizer"),
    ("gpt_neox", "GPTNeoXTokenizer"),
    ("gptj", "GPT2Tokenizer"),
    ("granite", BACKEND),
    ("mamba", "GPTNeoXTokenizer"),
    ("mamba2", "GPTNeoXTokenizer"),
    ("mistral", BACKEND),
    ("mixtral", BACKEND),
    ("modernbert", BACKEND),
    ("mpnet", "MPNetTokenizer"),
    ("mpt", "GPTNeoXTokenizer"),
    ("olmo", "GPTNeoXTokenizer"),
    ("olmo2", BACKEND),
    ("olmoe", "GPTNeoXTokenizer"),
    ("opt", "GPT2Tokenizer"),
    ("phi", "GPT2Tokenizer"),
    ("phi3", BACKEND),
    ("qwen2", "Qwen2Tokenizer"),
    ("qwen3", "Qwen2Tokenizer"),
    ("qwen3_moe", "Qwen2Tokenizer"),
    ("roberta", "RobertaTokenizer"),
    ("stablelm", BACKEND),
    ("starcoder2", "GPT2Tokenizer"),
    ("t5", "T5Tokenizer"),
    ("whisper", "WhisperTokenizer"),
    ("xlm-roberta", "XLMRobertaTokenizer"),
];

/// Model types whose registered class takes precedence over their files.
const MISNAMED: &[&str] = &["qwen2"];

/// The class without default tokens.
const BACKEND: &str = "TokenizersBackend";

/// The class of a directory's tokenizer, as transformers' `AutoTokenizer` chooses it.
fn tokenizer_class(fields: &Map<String, Json>, model: &Map<String, Json>, dir: &Path) -> Option<String> {
    let name = |json: &Map<String, Json>, field: &str| json.get(field).and_then(Json::as_str).map(String::from);
    let class = name(fields, "tokenizer_class").or_else(|| name(model, "tokenizer_class"));
    let class = class.map(|class| class.trim_end_matches("Fast").to_string());
    let kind = name(model, "model_type");
    let registered = REGISTERED.iter().find(|(known, _)| kind.as_deref() == Some(known)).map(|(_, class)| *class);
    match (class, registered) {
        // Files of these models are known to contain a wrong class.
        (Some(_), Some(registered)) if MISNAMED.contains(&kind.as_deref().unwrap_or_default()) => {
            Some(registered.into())
        }
        (Some(class), _) if class == "LlamaTokenizer" && is_byte_level(dir) => None,
        (Some(_), Some(BACKEND)) => None,
        (Some(class), _) => Some(class),
        (None, registered) => registered.map(String::from),
    }
}

/// Whether the `tokenizer.json` of a directory has GPT-2's byte-level decoder.
fn is_byte_level(dir: &Path) -> bool {
    let json = read_object(dir, "tokenizer.json").ok().flatten().unwrap_or_default();
    let says = |json: &Json| json.to_string().contains("\"ByteLevel\"");
    ["pre_tokenizer", "decoder"].iter().filter_map(|name| json.get(*name)).any(says)
}

type Defaults = &'static [(&'static str, &'static str)];

/// The default tokens of a class.
fn defaults(class: &str) -> Option<Defaults> {
    const GPT: Defaults =
        &[("bos_token", "<|endoftext|>"), ("eos_token", "<|endoftext|>"), ("unk_token", "<|endoftext|>")];
    const BERT: Defaults = &[
        ("unk_token", "[UNK]"),
        ("sep_token", "[SEP]"),
        ("pad_token", "[PAD]"),
        ("cls_token", "[CLS]"),
        ("mask_token", "[MASK]"),
    ];
    const ROBERTA: Defaults = &[
        ("bos_token", "<s>"),
        ("eos_token", "</s>"),
        ("sep_token", "</s>"),
        ("cls_token", "<s>"),
        ("unk_token", "<unk>"),
        ("pad_token", "<pad>"),
        ("mask_token", "<mask>"),
    ];
    Some(match class {
        "GPT2Tokenizer" | "WhisperTokenizer" | "CodeGenTokenizer" => GPT,
        "GPTNeoXTokenizer" => &[
            ("bos_token", "<|endoftext|>"),
            ("eos_token", "<|endoftext|>"),
            ("unk_token", "<|endoftext|>"),
            ("pad_token", "<|padding|>"),
        ],
        "Qwen2Tokenizer" => {
            &[("eos_token", "<|endoftext|>"), ("unk_token", "<|endoftext|>"), ("pad_token", "<|endoftext|>")]
        }
        "LlamaTokenizer" | "CodeLlamaTokenizer" => {
            &[("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")]
        }
        "GemmaTokenizer" => &[
            ("bos_token", "<bos>"),
            ("eos_token", "<eos>"),
            ("unk_token", "<unk>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
        "CohereTokenizer" => &[
            ("bos_token", "<BOS_TOKEN>"),
            ("eos_token", "<|END_OF_TURN_TOKEN|>"),
            ("unk_token", "<UNK>"),
            ("pad_token", "<PAD>"),
            ("cls_token", "<CLS>"),
            ("sep_token", "<SEP>"),
            ("mask_token", "<MASK_TOKEN>"),
        ],
        "CLIPTokenizer" => &[
            ("bos_token", "<|startoftext|>"),
            ("eos_token", "<|endoftext|>"),
            ("unk_token", "<|endoftext|>"),
            ("pad_token", "<|endoftext|>"),
        ],
        "T5Tokenizer" => &[("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")],
        "BertTokenizer" | "DistilBertTokenizer" | "ElectraTokenizer" => BERT,
        "RobertaTokenizer" | "BartTokenizer" | "XLMRobertaTokenizer" | "CamembertTokenizer" => ROBERTA,
        "MPNetTokenizer" => &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("sep_token", "</s>"),
            ("cls_token", "<s>"),
            ("unk_token", "[UNK]"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
        "DebertaTokenizer" | "DebertaV2Tokenizer" => &[
            ("bos_token", "[CLS]"),
            ("eos_token", "[SEP]"),
            ("unk_token", "[UNK]"),
            ("sep_token", "[SEP]"),
            ("pad_token", "[PAD]"),
            ("cls_token", "[CLS]"),
            ("mask_token", "[MASK]"),
        ],
        "AlbertTokenizer" => &[
            ("bos_token", "[CLS]"),
            ("eos_token", "[SEP]"),
            ("unk_token", "<unk>"),
            ("sep_token", "[SEP]"),
            ("pad_token", "<pad>"),
            ("cls_token", "[CLS]"),
            ("mask_token", "[MASK]"),
        ],
        _ => return None,
    })
}
