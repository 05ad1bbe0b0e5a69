//! `oneOf`: no value may match two of its schemas. A regular expression can't state this, so schemas that might overlap are rejected.

use super::schema::{MAX_REFERENCE_DEPTH, SchemaFields, resolve_reference, values};
use serde_json::Value as Json;

/// Rejects schemas of which two may match the same value.
pub(super) fn check_one_of(list: &[Json], root: &Json) -> Result<(), String> {
    if list.len() > 64 {
        return Err("`oneOf` of more than 64 schemas is not supported".into());
    }
    for (i, a) in list.iter().enumerate() {
        for (j, b) in list.iter().enumerate().skip(i + 1) {
            if !disjoint(a, b, root, 0) {
                return Err(format!(
                    "`oneOf`: a value may match both schemas {i} and {j}; use `anyOf`, or give each a required \
                     property with a different `const`"
                ));
            }
        }
    }
    Ok(())
}

/// Whether it is certain that no value matches both.
fn disjoint(a: &Json, b: &Json, root: &Json, depth: usize) -> bool {
    let (Some(a), Some(b)) = (resolve_references(a, root), resolve_references(b, root)) else { return false };
    if depth > MAX_REFERENCE_DEPTH || [a, b].iter().any(|fields| fields.get("nullable").is_some_and(|n| *n != false)) {
        return false;
    }
    if let (Some(a), Some(b)) = (types(a), types(b))
        && a.iter().all(|kind| !b.contains(kind))
    {
        return true;
    }
    let listed = |fields: &SchemaFields| fields.contains_key("const") || fields.contains_key("enum");
    if listed(a) && listed(b) {
        let (Ok(a), Ok(b)) = (values(a), values(b)) else { return false };
        return a.len() * b.len() <= 10_000 && a.iter().all(|x| b.iter().all(|y| !equal(x, y)));
    }
    let object = |fields: &SchemaFields| types(fields).is_some_and(|kinds| kinds == ["object"]);
    object(a) && object(b) && (distinguished_by(a, b, root, depth) || distinguished_by(b, a, root, depth))
}

/// Whether a property that `a` requires can't match the schema that `b` has for it.
fn distinguished_by(a: &SchemaFields, b: &SchemaFields, root: &Json, depth: usize) -> bool {
    let required = a.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let property =
        |fields: &'_ SchemaFields, name: &str| fields.get("properties").and_then(|map| map.get(name)).cloned();
    required.take(64).any(|name| match (property(a, name), property(b, name)) {
        (Some(own), Some(other)) => disjoint(&own, &other, root, depth + 1),
        (Some(_), None) => b.get("additionalProperties").is_some_and(|more| *more == false),
        _ => false,
    })
}

/// Follows references to a schema.
fn resolve_references<'a>(schema: &'a Json, root: &'a Json) -> Option<&'a SchemaFields> {
    let mut fields = schema.as_object()?;
    for _ in 0..MAX_REFERENCE_DEPTH {
        match fields.get("$ref") {
            Some(reference) => fields = resolve_reference(reference, root).ok()?.as_object()?,
            None => return Some(fields),
        }
    }
    None
}

/// The types that its values may have; an integer is a number.
fn types(fields: &SchemaFields) -> Option<Vec<&str>> {
    let of = |value: &Json| match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    if fields.contains_key("const") || fields.contains_key("enum") {
        return values(fields).ok().map(|values| values.into_iter().map(of).collect());
    }
    let plain = |kind: &'_ Json| match kind.as_str()? {
        "null" => Some("null"),
        "boolean" => Some("boolean"),
        "number" | "integer" => Some("number"),
        "string" => Some("string"),
        "array" => Some("array"),
        "object" => Some("object"),
        _ => None,
    };
    match fields.get("type")? {
        Json::Array(kinds) => kinds.iter().map(plain).collect(),
        kind => Some(vec![plain(kind)?]),
    }
}

/// Equality of JSON Schema: 1 equals 1.0.
fn equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}
