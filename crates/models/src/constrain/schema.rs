//! JSON schemas as regular expressions: the part of them that is regular, in a compact form.
//!
//! Properties come in the order of the schema, with at most one space behind `,` and `:`. What is not understood is refused
//! by name rather than ignored, save for annotations.

use super::automaton::Automaton;
use serde_json::{Map, Value as Json};

type Made = Result<String, String>;

/// References are followed this deep.
const DEEPEST: usize = 12;
/// Integers of a range are listed up to this many.
const LISTED: i64 = 1000;
/// Elements of a list, or entries of a map, unless the schema says.
const MANY: u64 = 64;
/// Levels of what has no schema.
const LEVELS: usize = 2;

const CHARACTER: &str = r#"(?:[^"\\\x00-\x1F\x7F]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))"#;
const INTEGER: &str = "(?:0|[1-9][0-9]{0,14})";
const NUMBER: &str = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?";

/// Fields that say something about a value, or nothing that matters here.
const KNOWN: &[&str] = &[
    "type",
    "enum",
    "const",
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "$schema",
    "$id",
    "$comment",
    "strict",
    "deprecated",
    "readOnly",
    "writeOnly",
    "uniqueItems",
    "nullable",
];

/// The expression of a schema.
pub(super) fn expression(schema: &Json) -> Made {
    of(schema, schema, 0)
}

/// Some object.
pub(super) fn any_object() -> String {
    object_of(&any(LEVELS))
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

/// Any value, so many levels deep.
fn any(levels: usize) -> String {
    let plain = format!("{}|{NUMBER}|true|false|null", text_of(0, None));
    if levels == 0 {
        return format!("(?:{plain})");
    }
    let inner = any(levels - 1);
    format!(r"(?:{plain}|\[(?:{inner}(?:, ?{inner})*)?\]|{})", object_of(&inner))
}

fn of(schema: &Json, root: &Json, depth: usize) -> Made {
    if depth > DEEPEST {
        return Err("the schema refers to itself, or is nested too deeply: only so much is regular".into());
    }
    let fields = match schema {
        Json::Bool(true) => return Ok(any(LEVELS)),
        Json::Object(fields) => fields,
        other => return Err(format!("a schema must be an object, got `{other}`")),
    };
    if let Some(unknown) = fields.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        return Err(format!("the schema's `{unknown}` is not supported"));
    }
    let made = whole(fields, root, depth)?;
    Ok(match fields.get("nullable") {
        Some(Json::Bool(true)) => format!("(?:{made}|null)"),
        _ => made,
    })
}

fn whole(fields: &Map<String, Json>, root: &Json, depth: usize) -> Made {
    if let Some(reference) = fields.get("$ref") {
        let path = reference.as_str().and_then(|path| path.strip_prefix('#'));
        let found = path.and_then(|path| root.pointer(path));
        return of(found.ok_or_else(|| format!("`$ref` {reference} is not in the schema"))?, root, depth + 1);
    }
    if let Some(value) = fields.get("const") {
        return Ok(literal(value));
    }
    if let Some(values) = fields.get("enum") {
        let values = values.as_array().filter(|values| !values.is_empty()).ok_or("`enum` must be a list of values")?;
        return Ok(either(values.iter().map(literal)));
    }
    for name in ["anyOf", "oneOf", "allOf"] {
        let Some(list) = fields.get(name) else { continue };
        let list = list.as_array().filter(|list| !list.is_empty()).ok_or_else(|| format!("`{name}` must be a list"))?;
        if name == "allOf" && list.len() > 1 {
            return Err("`allOf` of several schemas is not supported: write them as one".into());
        }
        let parts = list.iter().map(|part| of(part, root, depth + 1)).collect::<Result<Vec<_>, _>>()?;
        return Ok(either(parts.into_iter()));
    }
    match fields.get("type") {
        Some(Json::String(kind)) => typed(kind, fields, root, depth),
        Some(Json::Array(kinds)) if !kinds.is_empty() => {
            let kinds = kinds.iter().map(|kind| typed(kind.as_str().unwrap_or(""), fields, root, depth));
            Ok(either(kinds.collect::<Result<Vec<_>, _>>()?.into_iter()))
        }
        None if fields.contains_key("properties") => typed("object", fields, root, depth),
        None if fields.contains_key("items") => typed("array", fields, root, depth),
        None => Ok(any(LEVELS)),
        Some(other) => Err(format!("`type` {other} is not known")),
    }
}

fn either(parts: impl Iterator<Item = String>) -> String {
    format!("(?:{})", parts.collect::<Vec<_>>().join("|"))
}

fn literal(value: &Json) -> String {
    regex_syntax::escape(&value.to_string())
}

fn size(fields: &Map<String, Json>, name: &str) -> Result<Option<u64>, String> {
    match fields.get(name) {
        None => Ok(None),
        Some(n) => match n.as_u64().filter(|n| *n <= 10_000) {
            Some(n) => Ok(Some(n)),
            None => Err(format!("`{name}` must be a whole number up to 10000")),
        },
    }
}

fn typed(kind: &str, fields: &Map<String, Json>, root: &Json, depth: usize) -> Made {
    match kind {
        "string" => string(fields),
        "integer" => integer(fields),
        "number" => {
            for name in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
                let zero = name == "minimum" && fields.get(name).and_then(Json::as_f64) == Some(0.0);
                if fields.contains_key(name) && !zero {
                    return Err(format!("`{name}` of a number is not regular: only `minimum: 0` is"));
                }
            }
            let signed = !fields.contains_key("minimum");
            Ok(if signed { NUMBER.into() } else { NUMBER.trim_start_matches("-?").into() })
        }
        "boolean" => Ok("(?:true|false)".into()),
        "null" => Ok("null".into()),
        "array" => {
            let item = match fields.get("items") {
                Some(items) => of(items, root, depth + 1)?,
                None => any(LEVELS - 1),
            };
            let least = size(fields, "minItems")?.unwrap_or(0);
            let most = size(fields, "maxItems")?.unwrap_or(MANY.max(least));
            list(&item, least, most)
        }
        "object" => object(fields, root, depth),
        other => Err(format!("`type` {other} is not known")),
    }
}

fn list(item: &str, least: u64, most: u64) -> Made {
    if least > most {
        return Err("`minItems` is above `maxItems`".into());
    }
    if most == 0 {
        return Ok(r"\[\]".into());
    }
    // A list without a bound of its own is a loop, which is smaller.
    let more = match (most == MANY.max(least), least) {
        (true, 0 | 1) => format!("(?:, ?{item})*"),
        (true, _) => format!("(?:, ?{item}){{{},}}", least - 1),
        (false, _) => format!("(?:, ?{item}){{{},{}}}", least.saturating_sub(1), most - 1),
    };
    Ok(match least {
        0 => format!(r"\[(?:{item}{more})?\]"),
        _ => format!(r"\[{item}{more}\]"),
    })
}

fn string(fields: &Map<String, Json>) -> Made {
    if let Some(pattern) = fields.get("pattern") {
        let pattern = pattern.as_str().ok_or("`pattern` must be a text")?;
        let inner = match (pattern.strip_prefix('^'), pattern.ends_with('$') && !pattern.ends_with("\\$")) {
            (Some(rest), true) => rest[..rest.len() - 1].to_string(),
            _ => return Err(format!("`pattern` {pattern}: write it from ^ to $")),
        };
        // In JSON these would have to be escaped.
        let special = || (0..0x20u8).chain([b'"', b'\\', 0x7F]);
        if Automaton::new(&inner)?.has(special()) {
            return Err(format!(
                "`pattern` {pattern} matches quotes, backslashes or control characters: leave them out"
            ));
        }
        return Ok(format!("\"(?:{inner})\""));
    }
    let date = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])";
    let time = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-][0-2][0-9]:[0-5][0-9])";
    match fields.get("format").and_then(Json::as_str) {
        Some("date") => return Ok(format!("\"{date}\"")),
        Some("time") => return Ok(format!("\"{time}\"")),
        Some("date-time") => return Ok(format!("\"{date}T{time}\"")),
        Some("uuid") => return Ok("\"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\"".into()),
        Some(other) => return Err(format!("`format` {other} is not supported: give a `pattern`")),
        None => {}
    }
    let (least, most) = (size(fields, "minLength")?.unwrap_or(0), size(fields, "maxLength")?);
    if most.is_some_and(|most| most < least) {
        return Err("`minLength` is above `maxLength`".into());
    }
    Ok(text_of(least, most))
}

fn integer(fields: &Map<String, Json>) -> Made {
    let bound = |name: &str, exclusive: &str, by: i64| -> Result<Option<i64>, String> {
        let read = |name: &str| match fields.get(name) {
            None => Ok(None),
            Some(n) => n.as_i64().map(Some).ok_or_else(|| format!("`{name}` must be a whole number")),
        };
        Ok(read(name)?.or(read(exclusive)?.map(|n| n.saturating_add(by))))
    };
    let (least, most) = (bound("minimum", "exclusiveMinimum", 1)?, bound("maximum", "exclusiveMaximum", -1)?);
    match (least, most) {
        (None, None) => Ok(format!("-?{INTEGER}")),
        (Some(0), None) => Ok(INTEGER.into()),
        (Some(1), None) => Ok("[1-9][0-9]{0,14}".into()),
        (Some(least), Some(most)) if least <= most && most.saturating_sub(least) <= LISTED => {
            Ok(either((least..=most).map(|n| n.to_string())))
        }
        _ => Err(format!("bounds of an integer must be 0 or 1 from below, or at most {LISTED} apart")),
    }
}

fn object(fields: &Map<String, Json>, root: &Json, depth: usize) -> Made {
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
        return Err(format!("`required` names `{missing}`, which `properties` does not have"));
    }
    if properties.is_empty() {
        let value = match fields.get("additionalProperties") {
            Some(Json::Bool(false)) => return Ok(r"\{\}".into()),
            Some(schema @ Json::Object(_)) => of(schema, root, depth + 1)?,
            _ => any(LEVELS - 1),
        };
        return Ok(object_of(&value));
    }
    // What follows where something came before, and where nothing did; from the last property to the first.
    let (mut after, mut first): (String, Option<String>) = (String::new(), Some(String::new()));
    for (name, schema) in properties.iter().rev() {
        let pair = format!("{}: ?{}", literal(&Json::from(name.as_str())), of(schema, root, depth + 1)?);
        let optional = !required.contains(&name.as_str());
        first = Some(match (optional, &first) {
            (true, Some(rest)) => format!("(?:{pair}{after}|{rest})"),
            _ => format!("{pair}{after}"),
        });
        after = match optional {
            true => format!("(?:, ?{pair})?{after}"),
            false => format!(", ?{pair}{after}"),
        };
    }
    Ok(format!(r"\{{{}\}}", first.unwrap_or_default()))
}
