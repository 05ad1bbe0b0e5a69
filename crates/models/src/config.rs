//! Reads `config.json`: fields by the dotted names of `param_mapping`.

use crate::error::{Error, Result};
use lang::ast::{Expr, ExprKind};
use lang::consteval::ConstValue;
use serde_json::{Map, Value as Json};
use std::path::Path;
use train::files;

/// A configuration, with older field names converted to the newest.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) json: Json,
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Config> {
        let text = files::read_text(path, files::MAX_CONFIG_BYTES)?;
        // Python writes infinities as bare words, which JSON does not have.
        let parsed =
            serde_json::from_str(&text).or_else(|e| serde_json::from_str(&tag_infinities(&text)).map_err(|_| e));
        let json: Json =
            parsed.map_err(|e| Error::Config { path: path.to_path_buf(), reason: format!("not valid JSON: {e}") })?;
        if !json.is_object() {
            return Err(Error::Config { path: path.to_path_buf(), reason: "expected an object of fields".into() });
        }
        Ok(Config { json })
    }

    /// The first entry of `architectures`.
    pub(crate) fn architecture(&self) -> Option<&str> {
        self.json.get("architectures")?.get(0)?.as_str()
    }

    /// Evaluates an expression of `param_mapping`: a field, a literal, or the first field that is present in `first(a, b)`.
    pub(crate) fn value(&self, expr: &Expr) -> Option<ConstValue> {
        match &expr.peel().kind {
            ExprKind::Int(n) => Some(ConstValue::int(*n)),
            ExprKind::Float(x) => Some(ConstValue::Float(Some(*x))),
            ExprKind::Str(text) => Some(ConstValue::Str(text.clone())),
            ExprKind::Bool(value) => Some(ConstValue::bool(*value)),
            ExprKind::Call(callee, args) if callee.as_name() == Some("first") => {
                args.iter().find_map(|arg| self.value(&arg.value))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                use lang::ast::BinaryOp;
                Some(match op {
                    BinaryOp::Mul => int_if_integral(a * b),
                    BinaryOp::Add => int_if_integral(a + b),
                    BinaryOp::FloorDiv => int_if_integral((a / b).floor()),
                    _ => return None,
                })
            }
            _ => match &expr.as_path()?.to_string()[..] {
                "rope_parameters" => constant_from_json(&self.rope_parameters()?),
                path => constant_from_json(self.field(path)?),
            },
        }
    }

    fn number(&self, expr: &Expr) -> Option<f64> {
        match self.value(expr)? {
            ConstValue::Float(x) => x,
            other => other.as_int().map(|n| n as f64),
        }
    }

    /// The parameters of the rotary embedding, with those that some files store outside of it.
    fn rope_parameters(&self) -> Option<Json> {
        let inside = |name: &str| self.json.get(name).and_then(Json::as_object);
        let mut rope = inside("rope_parameters").or_else(|| inside("rope_scaling"))?.clone();
        rope.retain(|name, value| {
            !value.is_null() && !crate::config_fields::UNREAD_ROPE_FIELDS.contains(&name.as_str())
        });
        for inner in rope.values_mut().filter_map(Json::as_object_mut) {
            inner.retain(|name, _| !crate::config_fields::UNREAD_ROPE_FIELDS.contains(&name.as_str()));
        }
        let original = "original_max_position_embeddings";
        if let (false, Some(outside)) = (rope.contains_key(original), self.json.get(original)) {
            rope.insert(original.into(), outside.clone());
        }
        Some(Json::Object(rope))
    }

    /// Returns a field by its dotted name; null counts as absent.
    fn field(&self, path: &str) -> Option<&Json> {
        let direct = path.split('.').try_fold(&self.json, |json, part| json.get(part));
        let found = direct.or_else(|| {
            // Before transformers 5, `rope_theta` stood beside `rope_scaling`, whose kind was once called `type`.
            let name = path.strip_prefix("rope_parameters.")?;
            let scaling = self.json.get("rope_scaling").and_then(Json::as_object);
            let inside = |name: &str| scaling.and_then(|map: &Map<String, Json>| map.get(name));
            inside(name)
                .or_else(|| (name == "rope_type").then(|| inside("type")).flatten())
                .or_else(|| self.json.get(name))
        })?;
        (!found.is_null()).then_some(found)
    }
}

/// The key under which transformers writes floats that JSON does not have.
const FLOAT_KEY: &str = "__float__";

/// Replaces Python's `Infinity` and `-Infinity` outside of strings by objects that represent them.
fn tag_infinities(text: &str) -> String {
    let mut found = String::new();
    let (mut rest, mut inside) = (text, false);
    while let Some(c) = rest.chars().next() {
        let word = ["-Infinity", "Infinity"].into_iter().find(|word| !inside && rest.starts_with(word));
        if let Some(word) = word {
            found.push_str(&format!("{{\"{FLOAT_KEY}\": \"{word}\"}}"));
            rest = &rest[word.len()..];
            continue;
        }
        let escaped = inside && c == '\\';
        let length = c.len_utf8() + if escaped { rest[1..].chars().next().map_or(0, char::len_utf8) } else { 0 };
        inside ^= c == '"';
        found.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    found
}

/// Converts a number without a fraction to an integer.
fn int_if_integral(x: f64) -> ConstValue {
    if x.fract() == 0.0 { ConstValue::int(x as i64) } else { ConstValue::Float(Some(x)) }
}

/// Converts a field to a constant of the language; an object becomes a list of pairs.
pub(crate) fn constant_from_json(json: &Json) -> Option<ConstValue> {
    match json {
        Json::Bool(value) => Some(ConstValue::bool(*value)),
        Json::Number(number) => match number.as_i64() {
            Some(n) => Some(ConstValue::int(n)),
            None => number.as_f64().map(|x| ConstValue::Float(Some(x))),
        },
        Json::String(text) => Some(ConstValue::Str(text.clone())),
        Json::Array(items) => items.iter().map(constant_from_json).collect::<Option<_>>().map(ConstValue::List),
        Json::Object(fields) if fields.len() == 1 && fields.contains_key(FLOAT_KEY) => {
            let word = fields.get(FLOAT_KEY).and_then(Json::as_str)?;
            word.parse().ok().map(|x| ConstValue::Float(Some(x)))
        }
        Json::Object(fields) => {
            let pair = |(name, value): (&String, &Json)| {
                Some(ConstValue::List(vec![ConstValue::Str(name.clone()), constant_from_json(value)?]))
            };
            fields.iter().map(pair).collect::<Option<_>>().map(ConstValue::List)
        }
        Json::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{constant_from_json, tag_infinities};

    #[test]
    fn infinities_of_python_are_read() {
        let text = r#"{"a": [0.0, Infinity], "b": -Infinity, "c": "Infinity \" Infinity"}"#;
        let json: serde_json::Value = serde_json::from_str(&tag_infinities(text)).expect("JSON");
        assert_eq!(constant_from_json(&json["a"]).expect("a list").to_string(), "[0, inf]");
        assert_eq!(constant_from_json(&json["b"]).expect("a number").to_string(), "-inf");
        assert_eq!(json["c"], "Infinity \" Infinity");
    }
}
