//! Methods of Python's strings, lists, dicts and numbers. Mutating methods are rejected, as in the sandbox of transformers.

use super::budget::{check_size, use_bytes, use_steps};
use super::eval::EvaluatedArgs;
use super::ops::{int, slice};
use super::value::{
    Dict, DictView, Str, TextBuilder, Value, ValueResult, is_truthy, items, length, list, string, text, tuple,
    type_name, undefined,
};
use std::sync::OnceLock;

pub(super) type Table = &'static [(&'static str, &'static [&'static str])];

/// Methods by type.
pub(super) const METHODS: Table = &[
    (
        "str",
        &[
            "capitalize",
            "casefold",
            "center",
            "count",
            "endswith",
            "expandtabs",
            "find",
            "format",
            "format_map",
            "index",
            "isalnum",
            "isalpha",
            "isascii",
            "isdecimal",
            "isdigit",
            "isidentifier",
            "islower",
            "isnumeric",
            "isprintable",
            "isspace",
            "istitle",
            "isupper",
            "join",
            "ljust",
            "lower",
            "lstrip",
            "partition",
            "removeprefix",
            "removesuffix",
            "replace",
            "rfind",
            "rindex",
            "rjust",
            "rpartition",
            "rsplit",
            "rstrip",
            "split",
            "splitlines",
            "startswith",
            "strip",
            "swapcase",
            "title",
            "upper",
            "zfill",
        ],
    ),
    ("list", &["copy", "count", "index"]),
    ("tuple", &["count", "index"]),
    ("range", &["count", "index"]),
    ("dict", &["copy", "get", "items", "keys", "values"]),
    ("int", &["bit_length", "conjugate"]),
    ("bool", &["bit_length", "conjugate"]),
    ("float", &["is_integer", "conjugate"]),
    ("function", &["fromkeys"]),
    ("LoopContext", &["cycle", "changed"]),
];

/// Methods that templates may not use: these attributes are undefined.
pub(super) const FORBIDDEN_METHODS: Table = &[
    ("str", &["encode", "maketrans", "translate"]),
    ("list", &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"]),
    ("dict", &["clear", "fromkeys", "pop", "popitem", "setdefault", "update"]),
];

/// Whether a character is white space for Python's `str.isspace`.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Whether a character is in a Unicode class.
fn in_class(class: &'static OnceLock<Vec<(char, char)>>, pattern: &str, c: char) -> bool {
    let ranges = class.get_or_init(|| match regex_syntax::parse(pattern).map(regex_syntax::hir::Hir::into_kind) {
        Ok(regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => {
            class.ranges().iter().map(|range| (range.start(), range.end())).collect()
        }
        _ => Vec::new(),
    });
    let at = ranges.partition_point(|(_, end)| *end < c);
    ranges.get(at).is_some_and(|(start, _)| *start <= c)
}

/// Whether `repr` writes a character unescaped.
pub(super) fn is_printable(c: char) -> bool {
    static CLASS: OnceLock<Vec<(char, char)>> = OnceLock::new();
    c == ' ' || !in_class(&CLASS, r"[\p{C}\p{Z}]", c)
}

fn is_alpha(c: char) -> bool {
    static CLASS: OnceLock<Vec<(char, char)>> = OnceLock::new();
    c.is_ascii_alphabetic() || in_class(&CLASS, r"\p{L}", c)
}

fn is_decimal(c: char) -> bool {
    static CLASS: OnceLock<Vec<(char, char)>> = OnceLock::new();
    c.is_ascii_digit() || in_class(&CLASS, r"\p{Nd}", c)
}

fn is_digit(c: char) -> bool {
    is_decimal(c) || matches!(c, '²' | '³' | '¹' | '⁰' | '⁴'..='⁹' | '₀'..='₉' | '①'..='⑨' | '⑴'..='⑼' | '⒈'..='⒐')
}

fn is_numeric(c: char) -> bool {
    static CLASS: OnceLock<Vec<(char, char)>> = OnceLock::new();
    in_class(&CLASS, r"\p{N}", c) || "一二三四五六七八九十百千万億兆零〇".contains(c)
}

fn is_title_case(c: char) -> bool {
    static CLASS: OnceLock<Vec<(char, char)>> = OnceLock::new();
    in_class(&CLASS, r"\p{Lt}", c)
}

pub(super) fn is_lower(s: &str) -> bool {
    s.chars().any(char::is_lowercase) && !s.chars().any(|c| c.is_uppercase() || is_title_case(c))
}

pub(super) fn is_upper(s: &str) -> bool {
    s.chars().any(char::is_uppercase) && !s.chars().any(|c| c.is_lowercase() || is_title_case(c))
}

/// The title case of a word's first letter: if its upper case has several letters, only the first is upper case.
fn title_case(c: char) -> String {
    match c {
        'Ǆ'..='ǆ' => "ǅ".into(),
        'Ǉ'..='ǉ' => "ǈ".into(),
        'Ǌ'..='ǌ' => "ǋ".into(),
        'Ǳ'..='ǳ' => "ǲ".into(),
        _ => {
            let mut upper = c.to_uppercase();
            let first: String = upper.next().into_iter().collect();
            first + &upper.flat_map(char::to_lowercase).collect::<String>()
        }
    }
}

pub(super) fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    chars.next().map_or(String::new(), |c| title_case(c) + &lower(s)[lower_len(c)..])
}

fn lower_len(c: char) -> usize {
    c.to_lowercase().map(char::len_utf8).sum()
}

pub(super) fn lower(s: &str) -> String {
    s.to_lowercase()
}

/// The lines of a text, with their line ends if `ends`.
pub(super) fn lines(s: &str, ends: bool) -> impl Iterator<Item = &str> {
    let mut rest = s;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let breaks =
            |c: char| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let at = rest.find(breaks).unwrap_or(rest.len());
        let end = match &rest[at..] {
            tail if tail.starts_with("\r\n") => at + 2,
            tail => at + tail.chars().next().map_or(0, char::len_utf8),
        };
        let line = &rest[..if ends { end } else { at }];
        rest = &rest[end..];
        Some(line)
    })
}

/// Calls a method.
pub(super) fn call(value: &Value, name: &str, args: &EvaluatedArgs) -> ValueResult<Value> {
    match value {
        Value::Str(s) => {
            use_bytes(s.len())?;
            match name {
                "count" | "endswith" | "find" | "index" | "rfind" | "rindex" | "startswith" => search(s, name, args),
                "partition" | "rpartition" | "rsplit" | "split" | "splitlines" => partition(s, name, args),
                name if name.starts_with("is") => {
                    args.bind(name, [])?;
                    use_steps(s.len() as u64 / 8)?;
                    Ok(Value::Bool(test_predicate(s, name)))
                }
                _ => change_case(s, name, args),
            }
        }
        Value::List(all) | Value::Tuple(all) if name == "copy" => {
            args.bind(name, [])?;
            list(all.items.clone())
        }
        Value::List(_) | Value::Tuple(_) | Value::Range(_) => {
            let [wanted, start, stop] = args.bind(name, ["value", "start", "stop"])?;
            if name == "count" && start.is_some() {
                return Err("count() takes exactly one argument".into());
            }
            let wanted = wanted.ok_or("expected an argument")?;
            let all = items(&slice(
                value,
                [start.as_ref().map(int).transpose()?, stop.as_ref().map(int).transpose()?, None],
            )?)?;
            let mut found = all.iter().enumerate().map(|(i, item)| Ok((i, super::ops::equal(item, &wanted)?)));
            if name == "count" {
                return Ok(Value::Int(
                    found
                        .filter_map(|x: ValueResult<_>| x.map(|x| x.1.then_some(())).transpose())
                        .collect::<ValueResult<Vec<_>>>()?
                        .len() as i64,
                ));
            }
            let start = start.as_ref().map_or(Ok(0), int)?;
            let start = if start < 0 { start.saturating_add(length(value).unwrap_or(0) as i64).max(0) } else { start };
            match found.find_map(|x| x.map(|x| x.1.then_some(x.0)).transpose()).transpose()? {
                Some(at) => Ok(Value::Int((at as i64).saturating_add(start))),
                None => Err("the value is not in the list".into()),
            }
        }
        Value::Dict(dict) => match name {
            "get" => {
                let [key, default] = args.bind(name, ["key", "default"])?;
                let key = key.ok_or("get expected at least 1 argument, got 0")?;
                Ok(dict.get(&key)?.cloned().or(default).unwrap_or(Value::None))
            }
            _ => {
                args.bind(name, [])?;
                Ok(match name {
                    "items" => Value::View(DictView::Items, dict.clone()),
                    "keys" => Value::View(DictView::Keys, dict.clone()),
                    "values" => Value::View(DictView::Values, dict.clone()),
                    _ => Value::Dict(Dict::of_unique(dict.entries.clone())?),
                })
            }
        },
        Value::Int(_) | Value::Bool(_) | Value::Float(_) => {
            args.bind(name, [])?;
            match (name, value) {
                ("is_integer", Value::Float(x)) => Ok(Value::Bool(x.is_finite() && x.fract() == 0.0)),
                ("bit_length", _) => Ok(Value::Int(i64::from(64 - int(value)?.unsigned_abs().leading_zeros()))),
                _ => super::ops::plus(value),
            }
        }
        Value::Function(_) => {
            let [keys, default] = args.bind(name, ["iterable", "value"])?;
            let keys = items(&keys.ok_or("fromkeys expected at least 1 argument, got 0")?)?;
            let default = default.unwrap_or(Value::None);
            Ok(Value::Dict(Dict::new(keys.into_iter().map(|key| (key, default.clone())).collect())?))
        }
        _ => Err(format!("'{}' object has no method '{name}'", type_name(value))),
    }
}

fn test_predicate(s: &str, name: &str) -> bool {
    let all = |is: fn(char) -> bool| !s.is_empty() && s.chars().all(is);
    match name {
        "isalnum" => all(|c| is_alpha(c) || is_digit(c) || is_numeric(c)),
        "isalpha" => all(is_alpha),
        "isascii" => s.is_ascii(),
        "isdecimal" => all(is_decimal),
        "isdigit" => all(is_digit),
        "isnumeric" => all(|c| is_digit(c) || is_numeric(c)),
        "isspace" => all(is_space),
        "isprintable" => s.chars().all(is_printable),
        "islower" => is_lower(s),
        "isupper" => is_upper(s),
        "isidentifier" => {
            !s.starts_with(|c: char| !is_alpha(c) && c != '_') && all(|c| is_alpha(c) || is_decimal(c) || c == '_')
        }
        _ => {
            let (mut inside, mut any) = (false, false);
            for c in s.chars() {
                let (large, small) = (c.is_uppercase() || is_title_case(c), c.is_lowercase());
                if large && inside || small && !inside {
                    return false;
                }
                (inside, any) = (large || small, any || large || small);
            }
            any
        }
    }
}

fn expected(value: &Value) -> ValueResult<&Str> {
    match value {
        Value::Str(s) => Ok(s),
        Value::Undefined(why) => Err(why.to_string()),
        other => Err(format!("must be str, not {}", type_name(other))),
    }
}

fn search(s: &Str, name: &str, args: &EvaluatedArgs) -> ValueResult<Value> {
    let [wanted, start, stop] = args.bind(name, ["sub", "start", "end"])?;
    let wanted = wanted.ok_or_else(|| format!("{name}() takes at least 1 argument (0 given)"))?;
    let bound = |at: Option<Value>| match at {
        None | Some(Value::None) => Ok(None),
        Some(n) => int(&n).map(Some),
    };
    let (start, stop) = (bound(start)?, bound(stop)?);
    let len = s.chars().count() as i64;
    let from_end = |n: i64| if n < 0 { n.saturating_add(len).max(0) } else { n };
    let (first, last) = (start.map_or(0, from_end), stop.map_or(len, from_end).min(len));
    // An empty slice that starts after its end contains nothing, not even an empty string.
    let part = if start.is_none() && stop.is_none() {
        Some(s.clone())
    } else if first <= last && first <= len {
        Some(string(&slice(&Value::Str(s.clone()), [Some(first), Some(last), None])?)?)
    } else {
        None
    };
    if let "startswith" | "endswith" = name {
        let all = match &wanted {
            Value::Tuple(all) => all.items.clone(),
            _ => vec![wanted],
        };
        for end in &all {
            let end = expected(end)?;
            use_bytes(end.len())?;
            let is = |part: &Str| if name == "startswith" { part.starts_with(&**end) } else { part.ends_with(&**end) };
            if part.as_ref().is_some_and(is) {
                return Ok(Value::Bool(true));
            }
        }
        return Ok(Value::Bool(false));
    }
    let wanted = expected(&wanted)?;
    if name == "count" {
        let count = part.map_or(0, |part| part.matches(&**wanted).count());
        return Ok(Value::Int(count as i64));
    }
    let found = part.and_then(|part| {
        let at = if name.starts_with('r') { part.rfind(&**wanted) } else { part.find(&**wanted) }?;
        Some(part[..at].chars().count() as i64 + first)
    });
    match found {
        Some(at) => Ok(Value::Int(at)),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err("substring not found".into()),
    }
}

/// Splits at separators, or at white space, at most `most` times; from the right if `right`.
fn split(s: &str, by: Option<&str>, most: usize, right: bool) -> ValueResult<Vec<Value>> {
    let most = most.saturating_add(1);
    let mut parts = match (by, right) {
        (Some(by), false) => return s.splitn(most, by).map(text).collect(),
        (Some(by), true) => s.rsplitn(most, by).map(text).collect::<ValueResult<Vec<_>>>()?,
        (None, _) => {
            let (mut parts, mut rest) = (Vec::new(), s);
            loop {
                rest = if right { rest.trim_end_matches(is_space) } else { rest.trim_start_matches(is_space) };
                if rest.is_empty() {
                    break;
                }
                let cut = if right { rest.rfind(is_space) } else { rest.find(is_space) };
                let Some(cut) = cut.filter(|_| parts.len() + 1 < most) else {
                    parts.push(text(rest)?);
                    break;
                };
                if right {
                    let next = rest[cut..].chars().next().map_or(0, char::len_utf8);
                    parts.push(text(&rest[cut + next..])?);
                    rest = &rest[..cut];
                } else {
                    parts.push(text(&rest[..cut])?);
                    rest = &rest[cut..];
                }
            }
            parts
        }
    };
    if right {
        parts.reverse();
    }
    Ok(parts)
}

fn partition(s: &Str, name: &str, args: &EvaluatedArgs) -> ValueResult<Value> {
    let texts = |parts: Vec<&str>| parts.into_iter().map(text).collect::<ValueResult<Vec<_>>>();
    match name {
        "splitlines" => {
            let [ends] = args.bind(name, ["keepends"])?;
            list(lines(s, ends.is_some_and(|x| is_truthy(&x))).map(text).collect::<ValueResult<_>>()?)
        }
        "split" | "rsplit" => {
            let [by, most] = args.bind(name, ["sep", "maxsplit"])?;
            let by = match &by {
                None | Some(Value::None) => None,
                Some(by) => Some(expected(by)?),
            };
            if by.is_some_and(|by| by.is_empty()) {
                return Err("empty separator".into());
            }
            let most = most.as_ref().map_or(Ok(-1), int)?;
            list(split(s, by.map(|by| &**by), usize::try_from(most).unwrap_or(usize::MAX), name == "rsplit")?)
        }
        _ => {
            let [by] = args.bind(name, ["sep"])?;
            let by = by.ok_or_else(|| format!("{name}() takes exactly one argument (0 given)"))?;
            let by = expected(&by)?;
            if by.is_empty() {
                return Err("empty separator".into());
            }
            let right = name == "rpartition";
            tuple(texts(match if right { s.rsplit_once(&**by) } else { s.split_once(&**by) } {
                Some((before, after)) => vec![before, by, after],
                None if right => vec!["", "", s],
                None => vec![s, "", ""],
            })?)
        }
    }
}

/// `str.replace`.
pub(super) fn replace(s: &str, old: &str, new: &str, count: i64) -> ValueResult<Value> {
    use_bytes(s.len())?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut out = TextBuilder::default();
    let mut from = 0;
    for (at, found) in s.match_indices(old).take(count) {
        out.push(&s[from..at])?;
        out.push(new)?;
        from = at + found.len();
    }
    out.push(&s[from..])?;
    out.finish()
}

pub(super) fn strip(s: &str, chars: Option<&Value>, left: bool, right: bool) -> ValueResult<Value> {
    let chars = match chars {
        None | Some(Value::None) => None,
        Some(chars) => Some(expected(chars)?),
    };
    let in_it = |c: char| chars.map_or(is_space(c), |chars| chars.contains(c));
    use_bytes(chars.map_or(0, |chars| chars.len().saturating_mul(s.len().min(1 << 20) / 8)))?;
    let s = if left { s.trim_start_matches(in_it) } else { s };
    text(if right { s.trim_end_matches(in_it) } else { s })
}

/// Pads a text to a width: centred, or at one side.
pub(super) fn pad(s: &str, width: i64, fill: &str, side: &str) -> ValueResult<Value> {
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(s.chars().count());
    let left = match side {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width as usize & 1),
    };
    let mut out = TextBuilder::default();
    out.repeat(fill, left)?;
    out.push(s)?;
    out.repeat(fill, missing - left)?;
    out.finish()
}

/// `sep.join(all)`.
pub(super) fn join(by: &str, all: &[Value], strict: bool) -> ValueResult<Value> {
    let mut out = TextBuilder::default();
    for (i, item) in all.iter().enumerate() {
        out.push(if i > 0 { by } else { "" })?;
        match item {
            Value::Str(s) => out.push(s)?,
            other if strict => {
                return Err(format!("sequence item {i}: expected str instance, {} found", type_name(other)));
            }
            other => super::value::print(other, &mut out)?,
        }
    }
    out.finish()
}

fn change_case(s: &Str, name: &str, args: &EvaluatedArgs) -> ValueResult<Value> {
    check_size(s.len(), 3)?;
    match name {
        "format" => {
            let named = |key: &str| {
                let found = args.named.iter().find(|(name, _)| **name == *key).map(|(_, value)| value.clone());
                found.ok_or_else(|| format!("KeyError: '{key}'"))
            };
            return super::format::format(s, &args.positional, &named);
        }
        "format_map" => {
            let [map] = args.bind(name, ["mapping"])?;
            let map = map.ok_or("format_map() takes exactly one argument (0 given)")?;
            let named = |key: &str| match &map {
                Value::Dict(dict) => dict.text(key)?.cloned().ok_or_else(|| format!("KeyError: '{key}'")),
                other => Err(format!("'{}' object is not a mapping", type_name(other))),
            };
            return super::format::format(s, &[], &named);
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"])?;
            let (Some(old), Some(new)) = (old, new) else { return Err("replace expected at least 2 arguments".into()) };
            return replace(s, expected(&old)?, expected(&new)?, count.as_ref().map_or(Ok(-1), int)?);
        }
        "join" => {
            let [all] = args.bind(name, ["iterable"])?;
            return join(s, &items(&all.ok_or("join() takes exactly one argument (0 given)")?)?, true);
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.bind(name, ["chars"])?;
            return strip(s, chars.as_ref(), name != "rstrip", name != "lstrip");
        }
        "removeprefix" | "removesuffix" => {
            let [part] = args.bind(name, ["part"])?;
            let part = part.ok_or_else(|| format!("{name}() takes exactly one argument (0 given)"))?;
            let part = expected(&part)?;
            let cut = if name == "removeprefix" { s.strip_prefix(&**part) } else { s.strip_suffix(&**part) };
            return text(cut.unwrap_or(s));
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = args.bind(name, ["width", "fillchar"])?;
            let width = int(&width.ok_or_else(|| format!("{name} expected at least 1 argument, got 0"))?)?;
            let fill = fill.as_ref().map_or(Ok(" "), |fill| expected(fill).map(|fill| &**fill))?;
            if fill.chars().count() != 1 {
                return Err("The fill character must be exactly one character long".into());
            }
            return pad(s, width, fill, name);
        }
        "zfill" => {
            let [width] = args.bind(name, ["width"])?;
            let width = int(&width.ok_or("zfill() takes exactly one argument (0 given)")?)?;
            let (sign, digits) = s.split_at(usize::from(s.starts_with(['+', '-'])));
            let body = pad(digits, width.saturating_sub(sign.len() as i64), "0", "rjust")?;
            return text(sign.to_string() + expected(&body)?);
        }
        "expandtabs" => {
            let [size] = args.bind(name, ["tabsize"])?;
            return expand_tabs(s, size.as_ref().map_or(Ok(8), int)?);
        }
        _ => {}
    }
    args.bind(name, [])?;
    use_steps(s.len() as u64 / 8)?;
    text(match name {
        "upper" => s.to_uppercase(),
        "lower" => lower(s),
        "casefold" => lower(s).replace('ß', "ss").replace('ς', "σ"),
        "capitalize" => capitalize(s),
        "swapcase" => {
            let swap = |c: char| -> String {
                if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
            };
            s.chars().map(|c| if c.is_uppercase() || c.is_lowercase() { swap(c) } else { c.to_string() }).collect()
        }
        _ => {
            let (mut title, mut inside) = (String::new(), false);
            for c in s.chars() {
                if inside {
                    title.extend(c.to_lowercase())
                } else {
                    title += &title_case(c)
                }
                inside = c.is_lowercase() || c.is_uppercase() || is_title_case(c);
            }
            title
        }
    })
}

fn expand_tabs(s: &str, size: i64) -> ValueResult<Value> {
    let (size, mut column) = (usize::try_from(size).unwrap_or(0), 0);
    let mut out = TextBuilder::default();
    for c in s.chars() {
        if c == '\t' {
            let blanks = if size == 0 { 0 } else { size - column % size };
            out.repeat(" ", blanks)?;
            column += blanks;
        } else {
            out.push_char(c)?;
            column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
        }
    }
    out.finish()
}

/// The result of an empty sequence where one item is expected.
pub(super) fn empty_sequence(what: &str) -> ValueResult<Value> {
    undefined(format!("No {what} item, sequence was empty."))
}
