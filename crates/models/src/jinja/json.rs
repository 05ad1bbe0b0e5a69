//! Python's `json.dumps`.

use super::budget::{enter_level, use_steps};
use super::value::{TextBuilder, Value, ValueResult, type_name};

pub(super) struct DumpOptions {
    pub(super) ascii: bool,
    pub(super) sort: bool,
    /// The indentation of each level.
    pub(super) indent: Option<String>,
    /// The separators between items, and after keys.
    pub(super) separators: [String; 2],
}

pub(super) fn dumps(value: &Value, options: &DumpOptions) -> ValueResult<Value> {
    let mut out = TextBuilder::default();
    write(value, options, 0, &mut out)?;
    out.finish()
}

fn newline(options: &DumpOptions, level: usize, out: &mut TextBuilder) -> ValueResult<()> {
    if let Some(indent) = &options.indent {
        out.push("\n")?;
        out.repeat(indent, level)?;
    }
    Ok(())
}

fn write(value: &Value, options: &DumpOptions, level: usize, out: &mut TextBuilder) -> ValueResult<()> {
    let _level = enter_level()?;
    match value {
        Value::Str(s) => quoted(s, options.ascii, out),
        Value::List(all) | Value::Tuple(all) => {
            if all.items.is_empty() {
                return out.push("[]");
            }
            out.push("[")?;
            for (i, item) in all.items.iter().enumerate() {
                out.push(if i > 0 { &options.separators[0] } else { "" })?;
                newline(options, level + 1, out)?;
                write(item, options, level + 1, out)?;
            }
            newline(options, level, out)?;
            out.push("]")
        }
        Value::Dict(dict) => {
            if dict.entries.is_empty() {
                return out.push("{}");
            }
            let mut entries = dict.entries.iter().map(|(k, v)| (k.clone(), v)).collect();
            if options.sort {
                entries = super::ops::sort(entries, false)?;
            }
            out.push("{")?;
            for (i, (key, item)) in entries.iter().enumerate() {
                out.push(if i > 0 { &options.separators[0] } else { "" })?;
                newline(options, level + 1, out)?;
                match key {
                    Value::Str(s) => quoted(s, options.ascii, out)?,
                    _ => match scalar(key) {
                        Some(key) => quoted(&key, options.ascii, out)?,
                        None => {
                            let kind = type_name(key);
                            return Err(format!("keys must be str, int, float, bool or None, not {kind}"));
                        }
                    },
                }
                out.push(&options.separators[1])?;
                write(item, options, level + 1, out)?;
            }
            newline(options, level, out)?;
            out.push("}")
        }
        other => match scalar(other) {
            Some(text) => out.push(&text),
            None => Err(format!("Object of type {} is not JSON serializable", type_name(other))),
        },
    }
}

fn scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::None => "null".into(),
        Value::Bool(x) => x.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Float(x) if x.is_nan() => "NaN".into(),
        Value::Float(x) if x.is_infinite() => if *x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Value::Float(x) => super::format::float_repr(*x),
        _ => return None,
    })
}

fn quoted(s: &str, ascii: bool, out: &mut TextBuilder) -> ValueResult<()> {
    out.push("\"")?;
    let mut from = 0;
    for (at, c) in s.char_indices() {
        let escaped = match c {
            '"' => "\\\"".to_string(),
            '\\' => "\\\\".to_string(),
            '\n' => "\\n".to_string(),
            '\r' => "\\r".to_string(),
            '\t' => "\\t".to_string(),
            '\x08' => "\\b".to_string(),
            '\x0c' => "\\f".to_string(),
            c if c < ' ' || ascii && c > '~' => {
                c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
            }
            _ => continue,
        };
        use_steps(1)?;
        out.push(&s[from..at])?;
        out.push(&escaped)?;
        from = at + c.len_utf8();
    }
    out.push(&s[from..])?;
    out.push("\"")
}

/// Parses the arguments of `tojson`.
pub(super) fn options(
    ascii: bool,
    indent: Option<&Value>,
    separators: Option<&Value>,
    sort: bool,
) -> ValueResult<DumpOptions> {
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(s)) => Some(s.to_string()),
        Some(n) => {
            let n = usize::try_from(super::ops::int(n)?).unwrap_or(0);
            super::budget::check_size(n, 1)?;
            Some(" ".repeat(n))
        }
    };
    let given = match separators {
        None | Some(Value::None) => None,
        Some(pair) => Some(super::value::items(pair)?),
    };
    let separators = match given.as_deref() {
        None => [if indent.is_some() { "," } else { ", " }.into(), ": ".into()],
        Some([Value::Str(item), Value::Str(key)]) => [item.to_string(), key.to_string()],
        Some(_) => return Err("separators are two strings".into()),
    };
    Ok(DumpOptions { ascii, sort, indent, separators })
}
