//! Converts JSON schemas to regular expressions: the regular subset, in a compact form.
//!
//! Properties appear in the order of the schema, with at most one space after `,` and `:`. Every text that matches the expression
//! is valid; some valid values match in no form. A keyword is enforced, does not constrain values, or is rejected by name
//! (`keywords.rs`); a combination of keywords that can't be enforced together is rejected too.

use super::automaton::{Automaton, WorkBudget};
use super::keywords::{self, KeywordSupport};
use super::one_of;
use super::pattern;
use serde_json::{Map, Value as Json};

type PatternResult = Result<String, String>;
pub(super) type SchemaFields = Map<String, Json>;

/// Maximum depth to which references are followed.
pub(super) const MAX_REFERENCE_DEPTH: usize = 12;
/// Maximum size of an expression in bytes. Each level of a schema includes its contents.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// Maximum number of integers of a range that are listed.
const MAX_LISTED_INTEGERS: i64 = 1000;
/// Default maximum of elements of a list, or entries of a map.
const DEFAULT_MAX_ITEMS: u64 = 64;
/// Depth of values without a schema.
const DEFAULT_VALUE_DEPTH: usize = 2;

/// A character, or an escape of one, but not of a surrogate.
const CHARACTER: &str =
    r#"(?:[^"\\\x00-\x1F\x7F]|\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})))"#;
const INTEGER: &str = "(?:0|[1-9][0-9]{0,14})";
const NUMBER: &str = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?";

/// Keywords that apply to one type of values and not to other types.
const TYPE_KEYWORDS: [(&str, &[&str]); 4] = [
    ("string", &["pattern", "format", "minLength", "maxLength"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
    ("array", &["items", "minItems", "maxItems"]),
    ("object", &["properties", "required", "additionalProperties"]),
];

/// Converts a schema to an expression.
pub(super) fn compile_schema(schema: &Json, budget: &mut WorkBudget) -> PatternResult {
    SchemaCompiler { root: schema, budget, left: MAX_PATTERN_BYTES }.of(schema, 0)
}

/// An expression for any object.
pub(super) fn any_object() -> String {
    object_of(&any(DEFAULT_VALUE_DEPTH))
}

fn text_of(least: u64, most: Option<u64>) -> String {
    let most = most.map_or(String::new(), |most| most.to_string());
    match (least, most.is_empty()) {
        (0, true) => format!("\"{CHARACTER}*\""),
        _ => format!("\"{CHARACTER}{{{least},{most}}}\""),
    }
}

fn object_of(value: &str) -> String {
    let key = text_of(0, None);
    format!(r"\{{(?:{key}: ?{value}(?:, ?{key}: ?{value})*)?\}}")
}

/// An expression for any value up to this depth.
fn any(levels: usize) -> String {
    let plain = format!("{}|{NUMBER}|true|false|null", text_of(0, None));
    if levels == 0 {
        return format!("(?:{plain})");
    }
    let inner = any(levels - 1);
    format!(r"(?:{plain}|\[(?:{inner}(?:, ?{inner})*)?\]|{})", object_of(&inner))
}

struct SchemaCompiler<'a> {
    root: &'a Json,
    budget: &'a mut WorkBudget,
    /// The remaining number of bytes of the expression.
    left: usize,
}

impl SchemaCompiler<'_> {
    fn of(&mut self, schema: &Json, depth: usize) -> PatternResult {
        if depth > MAX_REFERENCE_DEPTH {
            return Err(
                "the schema is recursive or nested too deeply, which is not supported: it is compiled to a regular \
                 expression"
                    .into(),
            );
        }
        let made = match schema {
            Json::Bool(true) => any(DEFAULT_VALUE_DEPTH),
            Json::Bool(false) => return Err("the schema `false` matches no value".into()),
            Json::Object(fields) => {
                check(fields, depth)?;
                let made = self.compile_fields(fields, depth)?;
                match fields.get("nullable") {
                    None | Some(Json::Bool(false)) => made,
                    Some(Json::Bool(true)) => format!("(?:{made}|null)"),
                    Some(_) => return Err("`nullable` must be true or false".into()),
                }
            }
            other => return Err(format!("a schema must be an object, got `{}`", super::shortened(&other.to_string()))),
        };
        self.left = self.left.checked_sub(made.len() + 1).ok_or_else(|| {
            format!(
                "the schema is too large, its regular expression has more than {MAX_PATTERN_BYTES} bytes: use fewer optional \
                 properties, references and untyped values"
            )
        })?;
        Ok(made)
    }

    fn compile_fields(&mut self, fields: &SchemaFields, depth: usize) -> PatternResult {
        if let Some(reference) = fields.get("$ref") {
            check_siblings(fields, "$ref", &[])?;
            let found = resolve_reference(reference, self.root)?;
            return self.of(found, depth + 1);
        }
        if fields.contains_key("const") || fields.contains_key("enum") {
            let name = if fields.contains_key("const") { "const" } else { "enum" };
            check_siblings(fields, name, &["enum", "type"])?;
            let values = values(fields)?;
            return Ok(alternation(values.into_iter().map(literal)));
        }
        for name in ["anyOf", "oneOf", "allOf"] {
            let Some(list) = fields.get(name) else { continue };
            check_siblings(fields, name, &["type"])?;
            let list =
                list.as_array().filter(|list| !list.is_empty()).ok_or_else(|| format!("`{name}` must be a list"))?;
            if name == "allOf" && list.len() > 1 {
                return Err("`allOf` of several schemas is not supported: write them as one".into());
            }
            if name == "oneOf" {
                one_of::check_one_of(list, self.root)?;
            }
            let parts = list.iter().map(|part| match inherit_type(part, fields.get("type"))? {
                Some(part) => self.of(&part, depth + 1),
                None => self.of(part, depth + 1),
            });
            return Ok(alternation(parts.collect::<Result<Vec<_>, _>>()?.into_iter()));
        }
        let kinds: Vec<&str> = match fields.get("type") {
            Some(Json::String(kind)) => vec![kind],
            Some(Json::Array(kinds)) if !kinds.is_empty() => {
                kinds.iter().map(|kind| kind.as_str().unwrap_or("")).collect()
            }
            None => {
                let named = |names: &[&str]| names.iter().any(|name| fields.contains_key(*name));
                TYPE_KEYWORDS.iter().filter(|(_, names)| named(names)).map(|(kind, _)| *kind).collect()
            }
            Some(other) => return Err(format!("unknown `type` {other}")),
        };
        match &kinds[..] {
            [] => Ok(any(DEFAULT_VALUE_DEPTH)),
            [kind] => self.compile_type(kind, fields, depth),
            _ => {
                let kinds = kinds.iter().map(|kind| self.compile_type(kind, fields, depth));
                Ok(alternation(kinds.collect::<Result<Vec<_>, _>>()?.into_iter()))
            }
        }
    }

    fn compile_type(&mut self, kind: &str, fields: &SchemaFields, depth: usize) -> PatternResult {
        match kind {
            "string" => string(fields, self.budget),
            "integer" => integer(fields),
            "number" => number(fields),
            "boolean" => Ok("(?:true|false)".into()),
            "null" => Ok("null".into()),
            "array" => {
                let item = match fields.get("items") {
                    Some(items) => self.of(items, depth + 1)?,
                    None => any(DEFAULT_VALUE_DEPTH - 1),
                };
                let least = size(fields, "minItems")?.unwrap_or(0);
                let most = size(fields, "maxItems")?.unwrap_or(DEFAULT_MAX_ITEMS.max(least));
                list(&item, least, most)
            }
            "object" => self.object(fields, depth),
            other => Err(format!("unknown `type` {other}")),
        }
    }

    fn object(&mut self, fields: &SchemaFields, depth: usize) -> PatternResult {
        let required: Vec<&str> = match fields.get("required") {
            None => Vec::new(),
            Some(list) => {
                let names = list.as_array().map(|list| list.iter().map(Json::as_str).collect::<Option<Vec<_>>>());
                names.flatten().ok_or("`required` must be a list of names")?
            }
        };
        let empty = Map::new();
        let properties = match fields.get("properties") {
            None => &empty,
            Some(map) => map.as_object().ok_or("`properties` must be an object")?,
        };
        if let Some(missing) = required.iter().find(|name| !properties.contains_key(**name)) {
            return Err(format!("`required` has `{missing}`, which is not in `properties`"));
        }
        if properties.is_empty() {
            let value = match fields.get("additionalProperties") {
                Some(Json::Bool(false)) => return Ok(r"\{\}".into()),
                Some(schema @ Json::Object(_)) => self.of(schema, depth + 1)?,
                None | Some(Json::Bool(true)) => any(DEFAULT_VALUE_DEPTH - 1),
                Some(_) => return Err("`additionalProperties` must be a schema".into()),
            };
            return Ok(object_of(&value));
        }
        // The expression of the remaining properties if another property precedes, and if none
        // does; built from the last property to the first.
        let (mut after, mut first): (String, Option<String>) = (String::new(), Some(String::new()));
        for (name, schema) in properties.iter().rev() {
            let pair = format!("{}: ?{}", literal(&Json::from(name.as_str())), self.of(schema, depth + 1)?);
            let optional = !required.contains(&name.as_str());
            first = Some(match (optional, &first) {
                (true, Some(rest)) => format!("(?:{pair}{after}|{rest})"),
                _ => format!("{pair}{after}"),
            });
            after = match optional {
                true => format!("(?:, ?{pair})?{after}"),
                false => format!(", ?{pair}{after}"),
            };
            // Each optional property repeats the expression of all following ones.
            if after.len() + first.as_ref().map_or(0, String::len) > self.left {
                return Err(format!(
                    "the schema is too large: the regular expression of an object with {} properties has more than {} \
                     bytes; make more of them required",
                    properties.len(),
                    self.left
                ));
            }
        }
        Ok(format!(r"\{{{}\}}", first.unwrap_or_default()))
    }
}

/// Checks that every keyword is enforced, or does not constrain values.
fn check(fields: &SchemaFields, depth: usize) -> Result<(), String> {
    for (name, value) in fields {
        match keywords::keyword_support(name) {
            None => return Err(format!("the schema's `{}` is not supported", super::shortened(name))),
            Some(KeywordSupport::Refused(harmless)) if harmless.is_none_or(|text| value.to_string() != text) => {
                return Err(format!("the schema's `{name}` is not supported: remove it"));
            }
            _ => {}
        }
    }
    if depth > 0 && fields.contains_key("$id") {
        return Err("a nested `$id` is not supported, because references would be relative to it: remove it".into());
    }
    Ok(())
}

/// Checks that no enforced keyword is combined with `name`, except `others`.
fn check_siblings(fields: &SchemaFields, name: &str, others: &[&str]) -> Result<(), String> {
    let allowed = |own: &str| own == name || own == "nullable" || others.contains(&own);
    match fields.keys().find(|own| !allowed(own) && keywords::keyword_support(own) == Some(KeywordSupport::Enforced)) {
        Some(other) => Err(format!("`{other}` next to `{name}` is not supported: combine them in one schema")),
        None => Ok(()),
    }
}

/// Resolves a reference.
pub(super) fn resolve_reference<'a>(reference: &Json, root: &'a Json) -> Result<&'a Json, String> {
    let path = reference.as_str().and_then(|path| path.strip_prefix('#'));
    let found = path.and_then(|path| root.pointer(path));
    found.ok_or_else(|| format!("`$ref` {reference} was not found in the schema"))
}

/// The values of `const` and `enum` that have the schema's `type`.
pub(super) fn values(fields: &SchemaFields) -> Result<Vec<&Json>, String> {
    let listed = match fields.get("enum") {
        None => None,
        Some(Json::Array(values)) if !values.is_empty() => Some(values),
        Some(_) => return Err("`enum` must be a list of values".into()),
    };
    let mut values: Vec<&Json> = match (fields.get("const"), listed) {
        (Some(value), None) => vec![value],
        (Some(value), Some(listed)) => listed.iter().filter(|own| *own == value).collect(),
        (None, listed) => listed.into_iter().flatten().collect(),
    };
    match fields.get("type") {
        None => {}
        Some(Json::String(kind)) => values.retain(|value| has_type(value, kind)),
        Some(Json::Array(kinds)) => {
            values.retain(|value| kinds.iter().any(|kind| kind.as_str().is_some_and(|kind| has_type(value, kind))));
        }
        Some(other) => return Err(format!("unknown `type` {other}")),
    }
    match values.is_empty() {
        true => Err("no value of `enum` or `const` matches the other keywords next to it".into()),
        false => Ok(values),
    }
}

fn has_type(value: &Json, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.as_f64().is_some_and(|x| x.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// Adds the `type` of the surrounding schema to a schema of a list, unless it has its own.
fn inherit_type(part: &Json, kind: Option<&Json>) -> Result<Option<Json>, String> {
    let Some(kind) = kind else { return Ok(None) };
    let Some(fields) = part.as_object() else {
        return Err("`type` next to a list of schemas that are not objects is not supported".into());
    };
    match fields.get("type") {
        Some(own) if own == kind => Ok(None),
        None if !["$ref", "anyOf", "oneOf", "allOf"].iter().any(|name| fields.contains_key(*name)) => {
            let mut fields = fields.clone();
            fields.insert("type".into(), kind.clone());
            Ok(Some(Json::Object(fields)))
        }
        _ => Err("`type` next to a list of schemas with another `type` is not supported: remove it".into()),
    }
}

fn alternation(parts: impl Iterator<Item = String>) -> String {
    format!("(?:{})", parts.collect::<Vec<_>>().join("|"))
}

fn literal(value: &Json) -> String {
    regex_syntax::escape(&value.to_string())
}

fn size(fields: &SchemaFields, name: &str) -> Result<Option<u64>, String> {
    match fields.get(name) {
        None => Ok(None),
        Some(n) => match n.as_u64().filter(|n| *n <= 10_000) {
            Some(n) => Ok(Some(n)),
            None => Err(format!("`{name}` must be an integer from 0 to 10000")),
        },
    }
}

fn list(item: &str, least: u64, most: u64) -> PatternResult {
    if least > most {
        return Err("`minItems` is greater than `maxItems`".into());
    }
    if most == 0 {
        return Ok(r"\[\]".into());
    }
    // A list without an explicit bound becomes a loop, which is smaller.
    let more = match (most == DEFAULT_MAX_ITEMS.max(least), least) {
        (true, 0 | 1) => format!("(?:, ?{item})*"),
        (true, _) => format!("(?:, ?{item}){{{},}}", least - 1),
        (false, _) => format!("(?:, ?{item}){{{},{}}}", least.saturating_sub(1), most - 1),
    };
    Ok(match least {
        0 => format!(r"\[(?:{item}{more})?\]"),
        _ => format!(r"\[{item}{more}\]"),
    })
}

fn string(fields: &SchemaFields, budget: &mut WorkBudget) -> PatternResult {
    for (name, others) in
        [("pattern", &["format", "minLength", "maxLength"][..]), ("format", &["minLength", "maxLength"])]
    {
        if let (true, Some(other)) = (fields.contains_key(name), others.iter().find(|own| fields.contains_key(**own))) {
            return Err(format!("`{other}` next to `{name}` is not supported: write one `pattern`"));
        }
    }
    if let Some(pattern) = fields.get("pattern") {
        let pattern = pattern.as_str().ok_or("`pattern` must be a string")?;
        let shown = super::shortened(pattern);
        let inner = match (pattern.strip_prefix('^'), pattern.ends_with('$') && !pattern.ends_with("\\$")) {
            (Some(rest), true) if !rest.is_empty() => pattern::json_string_pattern(&rest[..rest.len() - 1])?,
            _ => return Err(format!("`pattern` {shown} must be anchored: begin it with ^ and end it with $")),
        };
        // These characters would have to be escaped in JSON.
        let special = || (0..0x20u8).chain([b'"', b'\\', 0x7F]);
        if Automaton::new(&inner, budget)?.may_contain(special()) {
            return Err(format!(
                "`pattern` {shown} matches quotes, backslashes or control characters, which is not supported: exclude \
                 them"
            ));
        }
        return Ok(format!("\"(?:{inner})\""));
    }
    if let Some(format) = fields.get("format") {
        let date = "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
        let hour = "(?:[01][0-9]|2[0-3])";
        let time = format!(r"{hour}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{hour}:[0-5][0-9])");
        return match format.as_str() {
            Some("date") => Ok(format!("\"{date}\"")),
            Some("time") => Ok(format!("\"{time}\"")),
            Some("date-time") => Ok(format!("\"{date}T{time}\"")),
            Some("uuid") => Ok("\"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\"".into()),
            _ => Err(format!("`format` {format} is not supported: give a `pattern`")),
        };
    }
    let (least, most) = (size(fields, "minLength")?.unwrap_or(0), size(fields, "maxLength")?);
    if most.is_some_and(|most| most < least) {
        return Err("`minLength` is greater than `maxLength`".into());
    }
    Ok(text_of(least, most))
}

fn number(fields: &SchemaFields) -> PatternResult {
    for name in TYPE_KEYWORDS[1].1 {
        let zero = *name == "minimum" && fields.get(*name).and_then(Json::as_f64) == Some(0.0);
        if fields.contains_key(*name) && !zero {
            return Err(format!("`{name}` of a number is not supported: only `minimum: 0` is"));
        }
    }
    let signed = !fields.contains_key("minimum");
    Ok(if signed { NUMBER.into() } else { NUMBER.trim_start_matches("-?").into() })
}

fn integer(fields: &SchemaFields) -> PatternResult {
    let read = |name: &str, by: i64| match fields.get(name) {
        None => Ok(None),
        Some(n) => n.as_i64().map(|n| Some(n.saturating_add(by))).ok_or_else(|| format!("`{name}` must be an integer")),
    };
    // If both are given, both apply; `None` is below every number.
    let least = read("minimum", 0)?.max(read("exclusiveMinimum", 1)?);
    let most = match (read("maximum", 0)?, read("exclusiveMaximum", -1)?) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    match (least, most) {
        (None, None) => Ok(format!("-?{INTEGER}")),
        (Some(0), None) => Ok(INTEGER.into()),
        (Some(1), None) => Ok("[1-9][0-9]{0,14}".into()),
        (Some(least), Some(most)) if least <= most && most.saturating_sub(least) <= MAX_LISTED_INTEGERS => {
            Ok(alternation((least..=most).map(|n| n.to_string())))
        }
        _ => Err(format!("the bounds of an integer must be `minimum` 0 or 1, or at most {MAX_LISTED_INTEGERS} apart")),
    }
}
