//! Compares schemas with other validators, and bounds the cost of hostile ones.

use super::keywords::{self, KEYWORDS, KeywordSupport};
use super::*;
use serde_json::json;
use std::time::{Duration, Instant};

fn constrainer() -> Constrainer {
    Constrainer::new(&Tokenizer::train(["the cat sat on the mat"].into_iter().cycle().take(9), 270).expect("trains"))
}

fn matches(constraint: &Constraint, text: &str) -> bool {
    let automaton = &constraint.masked.automaton;
    let state = text.bytes().fold(constraint.state, |state, byte| automaton.next(state, byte));
    state != DEAD && automaton.accepts(state)
}

/// Formats a value with or without spaces and escapes.
fn written(value: &Json, spaced: bool, escaped: bool) -> String {
    let (comma, colon) = if spaced { (", ", ": ") } else { (",", ":") };
    let text = |text: &str| match escaped {
        false => Json::from(text).to_string(),
        true => format!("\"{}\"", text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>()),
    };
    match value {
        Json::String(own) => text(own),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| written(item, spaced, escaped)).collect();
            format!("[{}]", items.join(comma))
        }
        Json::Object(fields) => {
            let one = |(name, own): (&String, &Json)| {
                format!("{}{colon}{}", Json::from(&**name), written(own, spaced, escaped))
            };
            format!("{{{}}}", fields.iter().map(one).collect::<Vec<_>>().join(comma))
        }
        other => other.to_string(),
    }
}

fn golden() -> Json {
    let text = include_str!("../../tests/data/schemas.json");
    serde_json::from_str(text).expect("JSON")
}

/// All keywords of a schema, with their values.
fn used<'a>(schema: &'a Json, to: &mut Vec<(&'a str, &'a Json)>) {
    let Json::Object(fields) = schema else { return };
    for (name, value) in fields {
        to.push((name, value));
        match (&**name, value) {
            ("properties", Json::Object(own)) => own.values().for_each(|own| used(own, to)),
            ("anyOf" | "oneOf" | "allOf", Json::Array(own)) => own.iter().for_each(|own| used(own, to)),
            ("items" | "additionalProperties", own) => used(own, to),
            _ => {}
        }
    }
}

/// No value that `jsonschema` rejects is accepted, and many of those that it accepts are.
#[test]
fn what_is_accepted_is_valid() {
    let (maker, golden) = (constrainer(), golden());
    let (mut accepted, mut valid, mut wrong) = (0, 0, 0);
    let mut enforced: Vec<&str> = Vec::new();
    for entry in golden["schemas"].as_array().expect("a list") {
        let schema = &entry[0];
        let Ok(constraint) = maker.json_schema(schema) else { continue };
        accepted += 1;
        let mut names = Vec::new();
        used(schema, &mut names);
        for (name, value) in names {
            match keywords::keyword_support(name).expect("known") {
                KeywordSupport::Refused(harmless) => {
                    assert_eq!(Some(value.to_string()).as_deref(), harmless, "`{name}` was accepted in {schema}");
                }
                _ => enforced.push(name),
            }
        }
        for (values, fine) in [(&entry[1], true), (&entry[2], false)] {
            for value in values.as_array().expect("a list") {
                for (spaced, escaped) in [(false, false), (true, false), (false, true)] {
                    let text = written(value, spaced, escaped);
                    let found = matches(&constraint, &text);
                    assert!(fine || !found, "{text} is accepted for {schema}");
                    valid += usize::from(fine && found);
                    wrong += usize::from(!fine);
                }
            }
        }
    }
    assert!(accepted > 120 && valid > 300 && wrong > 800, "{accepted} schemas, {valid} and {wrong} values");
    for (name, keyword) in KEYWORDS {
        let elsewhere = ["$ref", "nullable", "$anchor"].contains(name) || *keyword != KeywordSupport::Enforced;
        assert!(elsewhere || enforced.contains(name), "no schema with `{name}` was accepted");
    }
}

/// The official suite: `TENSORLOOM_JSON_SCHEMA_SUITE` is its directory `tests/draft2020-12`.
#[test]
fn the_official_suite_agrees() {
    let Some(dir) = std::env::var_os("TENSORLOOM_JSON_SCHEMA_SUITE") else { return };
    let (maker, mut accepted, mut refused, mut values) = (constrainer(), 0, 0, 0);
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("read").path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for case in serde_json::from_str::<Json>(&text).expect("JSON").as_array().expect("a list") {
            let Ok(constraint) = maker.json_schema(&case["schema"]) else {
                refused += 1;
                continue;
            };
            accepted += 1;
            for test in case["tests"].as_array().expect("a list").iter().filter(|test| test["valid"] == false) {
                let found = matches(&constraint, &test["data"].to_string());
                assert!(!found, "{}: {} {}", path.display(), case["schema"], test["data"]);
                values += 1;
            }
        }
    }
    println!("{accepted} schemas accepted, {refused} refused; none of {values} invalid values accepted");
    assert!(accepted > 50);
}

/// Every keyword of the specification is in the table; unsupported ones are rejected by name, and annotations change nothing.
#[test]
fn every_keyword_is_known() {
    let maker = constrainer();
    for name in golden()["keywords"].as_array().expect("a list").iter().filter_map(Json::as_str) {
        assert!(keywords::keyword_support(name).is_some(), "`{name}` is not in the table");
    }
    assert!(KEYWORDS.windows(2).all(|two| two[0].0 < two[1].0), "sorted by name");
    let base = json!({ "type": "array", "items": { "type": "integer" }, "maxItems": 3 });
    let with = |name: &str, value: Json| {
        let mut schema = base.clone();
        schema[name] = value;
        schema
    };
    for (name, keyword) in KEYWORDS {
        match keyword {
            KeywordSupport::Enforced => {}
            KeywordSupport::Annotation => {
                let own =
                    schema::compile_schema(&with(name, json!({ "a": 1 })), &mut WorkBudget::new()).expect("accepted");
                assert_eq!(own, schema::compile_schema(&base, &mut WorkBudget::new()).expect("accepted"), "{name}");
            }
            KeywordSupport::Refused(harmless) => {
                let error = maker.json_schema(&with(name, json!({ "type": "null" }))).err().expect(name).to_string();
                assert!(error.contains(&format!("`{name}`")), "{error}");
                if let Some(text) = harmless {
                    assert!(
                        maker.json_schema(&with(name, serde_json::from_str(text).expect("JSON"))).is_ok(),
                        "{name}"
                    );
                }
            }
        }
    }
    let error = maker.json_schema(&with("maxlength", json!(3))).err().expect("refused").to_string();
    assert!(error.contains("`maxlength`"), "{error}");
    // Combinations of keywords that can't be enforced together.
    for (schema, name) in [
        (json!({ "$ref": "#/$defs/a", "minLength": 2, "$defs": { "a": { "type": "string" } } }), "minLength"),
        (json!({ "enum": ["a", "b"], "maxLength": 1 }), "maxLength"),
        (json!({ "anyOf": [{ "type": "string" }], "properties": {} }), "properties"),
        (json!({ "type": "string", "pattern": "^a+$", "maxLength": 2 }), "maxLength"),
        (json!({ "type": "array", "uniqueItems": true }), "uniqueItems"),
        (json!({ "oneOf": [{ "type": "integer" }, { "type": "number" }] }), "oneOf"),
        (json!({ "type": "string", "enum": [1, 2] }), "enum"),
    ] {
        let error = maker.json_schema(&schema).err().unwrap_or_else(|| panic!("{schema}")).to_string();
        assert!(error.contains(&format!("`{name}`")), "{schema}: {error}");
    }
}

#[test]
fn digits_are_those_of_ascii() {
    let maker = constrainer();
    for constraint in [
        maker.json_schema(&json!({ "type": "string", "pattern": "^\\d{2}$" })).expect("supported"),
        maker.regex("\"\\d{2}\"").expect("valid"),
    ] {
        assert!(matches(&constraint, "\"42\"") && !matches(&constraint, "\"४२\"") && !matches(&constraint, "\"٤٢\""));
    }
    let choice = maker.choice(&["a.b".into(), "c|d".into()]).expect("valid");
    assert!(matches(&choice, "a.b") && matches(&choice, "c|d") && !matches(&choice, "axb") && !matches(&choice, "c"));
}

/// Even a large or unusual expression has a bounded cost; a repeated request costs nothing.
#[test]
fn hostile_expressions_are_bounded() {
    let maker = constrainer();
    let properties = |count: usize| -> Json {
        (0..count)
            .map(|i| (format!("property number {i}"), json!({ "type": "string", "description": "x".repeat(40) })))
            .collect()
    };
    // Each level references the next one ten times.
    let mut fan = serde_json::Map::new();
    for level in 0..11 {
        let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
        let list: serde_json::Map<String, Json> = (0..10).map(|i| (format!("p{i}"), next.clone())).collect();
        fan.insert(format!("l{level}"), json!({ "type": "object", "properties": list }));
    }
    fan.insert("l11".into(), json!({ "type": "string" }));
    let patterns: Json = (0..200).map(|i| (format!("p{i}"), json!({ "pattern": "^(a|b)*a(a|b){12}$" }))).collect();
    let words: Vec<String> = (0..20_000).map(|i| format!("word {}", i * 7919 % 20_011)).collect();
    let deep = (0..100).fold(json!({ "type": "string" }), |inner, _| json!({ "type": "array", "items": inner }));
    let schemas = [
        json!({ "type": "object", "properties": properties(250) }),
        json!({ "type": "object", "properties": properties(1500) }),
        json!({ "$ref": "#/$defs/l0", "$defs": fan }),
        json!({ "type": "object", "properties": patterns }),
        json!({ "enum": words }),
        json!({ "type": "string", "maxLength": 10_000 }),
        json!({ "type": "array", "items": { "type": "string", "minLength": 900 }, "maxItems": 900 }),
        json!({ "type": "string", "pattern": format!("^{}a$", "(a|b|c|d)?".repeat(3000)) }),
        deep,
    ];
    let begun = Instant::now();
    let mut refused = 0;
    for schema in &schemas {
        let first = maker.json_schema(schema);
        if let Err(error) = &first {
            refused += 1;
            let error = error.to_string();
            assert!(["too large", "too long", "entries", "nested"].iter().any(|why| error.contains(why)), "{error}");
        }
        let again = Instant::now();
        let second = maker.json_schema(schema);
        assert!(again.elapsed() < Duration::from_secs(1));
        match (first, second) {
            (Ok(a), Ok(b)) => assert!(Arc::ptr_eq(&a.masked, &b.masked)),
            (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
            _ => panic!("accepted and refused: {}", shortened(&schema.to_string())),
        }
    }
    for pattern in [
        "(a|b)*a(a|b){24}",
        "(a{1000}){1000}",
        "((a?){60}){60}a{60}",
        "(\\w|\\d|\\s)*(x|y)\\w{40}",
        "((((a*)*)*)*)*b{3}",
    ] {
        refused += usize::from(maker.regex(pattern).is_err());
    }
    assert!(refused >= 6, "{refused}");
    // Fourteen expressions; the bound is far above the time on an idle machine.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let known = maker.inner.known.lock().expect("fine");
    assert!(known.bytes <= MAX_CACHE_BYTES + (16 << 20), "{}", known.bytes);
}
