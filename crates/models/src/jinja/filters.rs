//! Jinja's filters, and `tojson` of transformers.

use super::ast::TemplateBinaryOp;
use super::budget::{check_size, enter_level, use_steps};
use super::eval::EvaluatedArgs;
use super::methods::{self, empty_sequence, lines, pad, strip};
use super::ops::{Numeric, attribute, binary, equal, escape, int, item, order, slice, sort};
use super::predicates;
use super::value::{
    DictView, Iter, IterSource, List, Str, TextBuilder, Value, ValueResult, hashable, is_truthy, items, length, list,
    string, text, tuple, type_name,
};
use std::cmp::Ordering;

/// Names of filters.
pub(super) const FILTERS: [&str; 49] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
    "xmlattr",
];

/// Applies a filter.
pub(super) fn apply(name: &str, value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    let _level = enter_level()?;
    match name {
        "capitalize" | "center" | "e" | "escape" | "forceescape" | "format" | "indent" | "lower" | "replace"
        | "safe" | "string" | "title" | "trim" | "truncate" | "upper" | "urlencode" | "wordcount" | "xmlattr" => {
            text_filter(name, value, args)
        }
        "abs" | "filesizeformat" | "float" | "int" | "round" => number_filter(name, value, args),
        "map" | "reject" | "rejectattr" | "select" | "selectattr" => select_filter(name, value, args),
        "dictsort" | "groupby" | "max" | "min" | "sort" | "sum" | "unique" => sort_filter(name, value, args),
        _ => sequence_filter(name, value, args),
    }
}

fn required_arg(value: Option<Value>, name: &str) -> ValueResult<Value> {
    value.ok_or_else(|| format!("the filter needs the argument `{name}`"))
}

fn flag(value: &Option<Value>) -> bool {
    value.as_ref().is_some_and(is_truthy)
}

/// Converts `none` to a missing argument.
fn not_none(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !matches!(value, Value::None))
}

fn text_filter(name: &str, value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    let s = string(value)?;
    check_size(s.len(), 3)?;
    use_steps(s.len() as u64 / 16)?;
    match name {
        "center" => {
            let [width] = args.bind(name, ["width"])?;
            pad(&s, width.as_ref().map_or(Ok(80), int)?, " ", "center")
        }
        "format" => super::format::percent_format(
            &s,
            &match (args.positional.is_empty(), args.named.is_empty()) {
                (false, false) => return Err("can't handle positional and keyword arguments at the same time".into()),
                (true, false) => {
                    let named = args.named.iter().map(|(name, value)| Ok((text(&**name)?, value.clone())));
                    Value::Dict(super::value::Dict::of_unique(named.collect::<ValueResult<_>>()?)?)
                }
                _ => tuple(args.positional.clone())?,
            },
        ),
        "indent" => indent(value, args),
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"])?;
            let (old, new) = (string(&required_arg(old, "old")?)?, string(&required_arg(new, "new")?)?);
            methods::replace(&s, &old, &new, not_none(count).as_ref().map_or(Ok(-1), int)?)
        }
        "trim" => {
            let [chars] = args.bind(name, ["chars"])?;
            strip(&s, chars.as_ref(), true, true)
        }
        "truncate" => truncate(value, args),
        "xmlattr" => {
            let [space] = args.bind(name, ["autospace"])?;
            let Value::Dict(dict) = value else {
                return Err(format!("'{}' object has no attribute 'items'", type_name(value)));
            };
            let mut out = TextBuilder::default();
            for (key, value) in dict.entries.iter().filter(|(_, v)| !matches!(v, Value::None | Value::Undefined(_))) {
                let Value::Str(key) = key else { return Err("expected string or bytes-like object".into()) };
                if key.contains([' ', '\t', '\n', '\r', '\x0b', '\x0c', '/', '>', '=']) {
                    return Err(format!("Invalid character in attribute name: '{}'", &**key));
                }
                out.push(if out.text.is_empty() && !space.as_ref().is_none_or(is_truthy) { "" } else { " " })?;
                out.push(&format!("{}=\"{}\"", escape(key)?, escaped(value)?))?;
            }
            out.finish()
        }
        _ => {
            args.bind(name, [])?;
            match name {
                "capitalize" => text(methods::capitalize(&s)),
                "lower" => text(methods::lower(&s)),
                "upper" => text(s.to_uppercase()),
                "title" => title(&s),
                "safe" => Ok(Value::Str(Str::safe(&*s)?)),
                "forceescape" => Ok(Value::Str(Str::safe(escape(&s)?)?)),
                "e" | "escape" => Ok(Value::Str(Str::safe(escaped(value)?)?)),
                "wordcount" => Ok(Value::Int(
                    s.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).count() as i64,
                )),
                "urlencode" => url(value),
                _ => Ok(Value::Str(s)),
            }
        }
    }
}

fn escaped(value: &Value) -> ValueResult<String> {
    match value {
        Value::Str(s) if s.is_safe() => Ok(s.to_string()),
        other => escape(&string(other)?),
    }
}

fn title(s: &str) -> ValueResult<Value> {
    let (mut out, mut begins) = (TextBuilder::default(), true);
    let splits = |c: char| methods::is_space(c) || "-({[<".contains(c);
    for part in s.split_inclusive(splits) {
        let word = part.trim_end_matches(splits);
        if begins || !word.is_empty() {
            let mut chars = word.chars();
            let first = chars.next().map_or(String::new(), |c| c.to_uppercase().collect());
            out.push(&(first + &methods::lower(chars.as_str())))?;
        }
        out.push(&part[word.len()..])?;
        begins = word.len() < part.len();
    }
    out.finish()
}

fn indent(value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"])?;
    let Value::Str(s) = value else { return binary(TemplateBinaryOp::Add, value, &text("\n")?) };
    let by = match &width {
        Some(Value::Str(by)) => by.to_string(),
        width => {
            let n = usize::try_from(width.as_ref().map_or(Ok(4), int)?).unwrap_or(0);
            check_size(n, 1)?;
            " ".repeat(n)
        }
    };
    let whole = [s, "\n"].concat();
    let mut out = TextBuilder::default();
    out.push(if flag(&first) { &by } else { "" })?;
    for (i, line) in lines(&whole, false).enumerate() {
        if i > 0 {
            out.push("\n")?;
            out.push(if line.is_empty() && !flag(&blank) { "" } else { &by })?;
        }
        out.push(line)?;
    }
    out.finish()
}

fn truncate(value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    let [to, kill, end, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let to = to.as_ref().map_or(Ok(255), int)?;
    let end = end.as_ref().map_or_else(|| Str::new("..."), string)?;
    let leeway = not_none(leeway).as_ref().map_or(Ok(5), int)?;
    let keep = to.saturating_sub(end.chars().count() as i64);
    if keep < 0 || leeway < 0 {
        return Err("truncate needs a length of at least that of its end, and a leeway that isn't negative".into());
    }
    let Some(len) = length(value) else { return Err(format!("object of type '{}' has no len()", type_name(value))) };
    if len as i64 <= to.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let start = slice(value, [None, Some(keep), None])?;
    if flag(&kill) {
        return binary(TemplateBinaryOp::Add, &start, &Value::Str(end));
    }
    let Value::Str(start) = &start else {
        return Err(format!("'{}' object has no attribute 'rsplit'", type_name(value)));
    };
    let start = start.rsplit_once(' ').map_or(&**start, |(before, _)| before);
    text([start, &end].concat())
}

fn url(value: &Value) -> ValueResult<Value> {
    let mut out = TextBuilder::default();
    if matches!(value, Value::Str(_)) || IterSource::of(value).is_err() {
        quote(value, false, &mut out)?;
        return out.finish();
    }
    let pairs = match value {
        Value::Dict(dict) => IterSource::Dict(DictView::Items, dict.clone(), 0).rest()?,
        other => items(other)?,
    };
    for pair in pairs {
        let pair = items(&pair)?;
        let [key, value] = pair.as_slice() else { return Err("expected pairs of keys and values".into()) };
        out.push(if out.text.is_empty() { "" } else { "&" })?;
        quote(key, true, &mut out)?;
        out.push("=")?;
        quote(value, true, &mut out)?;
    }
    out.finish()
}

fn quote(value: &Value, query: bool, out: &mut TextBuilder) -> ValueResult<()> {
    for byte in string(value)?.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push_char(char::from(byte))?,
            b'/' if !query => out.push("/")?,
            b' ' if query => out.push("+")?,
            byte => out.push(&format!("%{byte:02X}"))?,
        }
    }
    Ok(())
}

fn number_filter(name: &str, value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    match name {
        "abs" => {
            args.bind(name, [])?;
            match Numeric::of(value) {
                Some(Numeric::Int(n)) => {
                    n.checked_abs().map(Value::Int).ok_or_else(|| "an integer has more than 64 bits".into())
                }
                Some(Numeric::Float(x)) => Ok(Value::Float(x.abs())),
                None => Err(format!("bad operand type for abs(): '{}'", type_name(value))),
            }
        }
        "int" => {
            let [default, base] = args.bind(name, ["default", "base"])?;
            let default = default.unwrap_or(Value::Int(0));
            if let Value::Undefined(why) = value {
                return Err(why.to_string());
            }
            let base = base.as_ref().map_or(Ok(10), int)?;
            let whole = match value {
                Value::Str(s) => parse_int(s, base),
                _ => None,
            };
            if let Some(n) = whole {
                return Ok(Value::Int(n));
            }
            let number = match value {
                Value::Str(s) => parse_float(s).map(Numeric::Float),
                other => Numeric::of(other),
            };
            match number {
                Some(Numeric::Int(n)) => Ok(Value::Int(n)),
                Some(Numeric::Float(x)) if x.abs() < 9_223_372_036_854_775_808.0 => Ok(Value::Int(x as i64)),
                Some(Numeric::Float(x)) if x.is_finite() => {
                    Err("an integer has more than 64 bits, which is the limit".into())
                }
                _ if matches!(value, Value::Float(x) if x.is_infinite()) => {
                    Err("cannot convert float infinity to integer".into())
                }
                _ => Ok(default),
            }
        }
        "float" => {
            let [default] = args.bind(name, ["default"])?;
            match value {
                Value::Undefined(why) => Err(why.to_string()),
                Value::Str(s) => Ok(parse_float(s).map_or(default.unwrap_or(Value::Float(0.0)), Value::Float)),
                other => {
                    Ok(Numeric::of(other).map_or(default.unwrap_or(Value::Float(0.0)), |n| Value::Float(n.float())))
                }
            }
        }
        "filesizeformat" => {
            let [binary] = args.bind(name, ["binary"])?;
            let bytes = match value {
                Value::Str(s) => parse_float(s),
                other => Numeric::of(other).map(Numeric::float),
            };
            let bytes = bytes.ok_or_else(|| format!("could not convert to float: '{}'", type_name(value)))?;
            let (base, i) = if flag(&binary) { (1024f64, "iB") } else { (1000f64, "B") };
            if bytes == 1.0 {
                return text("1 Byte");
            }
            if bytes < base {
                return text(format!("{:.0} Bytes", bytes.trunc() + 0.0));
            }
            let prefixes = if flag(&binary) { "KMGTPEZY" } else { "kMGTPEZY" };
            let at = (0..8).find(|at| bytes < base.powi(at + 2)).unwrap_or(7);
            let prefix = prefixes.chars().nth(at as usize).unwrap_or('Y');
            text(format!("{:.1} {prefix}{i}", base * bytes / base.powi(at + 2)))
        }
        _ => {
            let [precision, method] = args.bind(name, ["precision", "method"])?;
            let precision = precision.as_ref().map_or(Ok(0), int)?;
            let method = method.as_ref().map_or_else(|| Str::new("common"), string)?;
            let number = Numeric::of(value).ok_or_else(|| match value {
                Value::Undefined(why) => why.to_string(),
                other => format!("type {} doesn't define __round__ method", type_name(other)),
            })?;
            round(number, precision, &method)
        }
    }
}

fn round(number: Numeric, precision: i64, method: &str) -> ValueResult<Value> {
    let scale = 10f64.powi(precision.clamp(-400, 400) as i32);
    match (method, number) {
        ("common", Numeric::Int(n)) if precision >= 0 => Ok(Value::Int(n)),
        ("common", Numeric::Int(n)) => {
            // Rounds to the nearest multiple, ties to even.
            let Some(unit) = 10i128.checked_pow(precision.unsigned_abs().min(30) as u32) else {
                return Ok(Value::Int(0));
            };
            let n = i128::from(n);
            let (floor, rest) = (n.div_euclid(unit), n.rem_euclid(unit));
            let up = rest * 2 > unit || rest * 2 == unit && floor % 2 != 0;
            let rounded = (floor + i128::from(up)) * unit;
            i64::try_from(rounded).map(Value::Int).map_err(|_| "an integer has more than 64 bits".into())
        }
        ("common", Numeric::Float(x)) if !x.is_finite() || precision > 330 => Ok(Value::Float(x)),
        ("common", Numeric::Float(x)) if precision >= 0 => {
            Ok(Value::Float(format!("{x:.*}", precision as usize).parse().unwrap_or(x)))
        }
        ("common", Numeric::Float(x)) => {
            let unit = 10f64.powi(precision.unsigned_abs().min(400) as i32);
            let rounded = if unit.is_infinite() { 0f64.copysign(x) } else { (x / unit).round_ties_even() * unit };
            Ok(Value::Float(rounded))
        }
        ("ceil" | "floor", number) => {
            let scaled = number.float() * scale;
            if !scaled.is_finite() {
                return Err("cannot convert float infinity or NaN to integer".into());
            }
            let whole = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
            Ok(Value::Float((whole + 0.0) / scale))
        }
        _ => Err("method must be common, ceil or floor".into()),
    }
}

/// `int(text, base)`.
fn parse_int(s: &str, base: i64) -> Option<i64> {
    let s = s.trim_matches(methods::is_space);
    let (negative, digits) = match s.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, s.strip_prefix('+').unwrap_or(s)),
    };
    let lower = digits.to_lowercase();
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find(|(p, of)| (base == *of || base == 0) && lower.starts_with(p));
    let (digits, radix) = match prefixed {
        Some((prefix, of)) => (lower[prefix.len()..].strip_prefix('_').unwrap_or(&lower[prefix.len()..]), of),
        None => (&*lower, if base == 0 { 10 } else { base }),
    };
    let radix = u32::try_from(radix).ok().filter(|radix| (2..=36).contains(radix))?;
    let wrong = digits.is_empty() || digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if wrong || digits.starts_with(['+', '-']) {
        return None;
    }
    let value = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    i64::try_from(if negative { -value } else { value }).ok()
}

/// `float(text)`.
fn parse_float(s: &str) -> Option<f64> {
    let s = s.trim_matches(methods::is_space);
    let wrong = s.starts_with('_') || s.ends_with('_') || s.contains("__");
    if wrong { None } else { s.replace('_', "").parse().ok() }
}

fn sequence_filter(name: &str, value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    match name {
        "attr" => {
            let [attr] = args.bind(name, ["name"])?;
            match required_arg(attr, "name")? {
                Value::Str(name) => attribute(value, &name, false),
                other => Err(format!("attribute name must be string, not '{}'", type_name(&other))),
            }
        }
        "batch" | "slice" => batch_filter(name, value, args),
        "d" | "default" => {
            let [default, boolean] = args.bind(name, ["default_value", "boolean"])?;
            let missing = matches!(value, Value::Undefined(_)) || flag(&boolean) && !is_truthy(value);
            if missing { default.map_or_else(|| text(""), Ok) } else { Ok(value.clone()) }
        }
        "join" => {
            let [by, attr] = args.bind(name, ["d", "attribute"])?;
            let by = by.as_ref().map_or_else(|| Str::new(""), string)?;
            let all = items(value)?;
            let path = attribute_path(not_none(attr).as_ref());
            let all = all.into_iter().map(|item| get_path(item, &path)).collect::<ValueResult<Vec<_>>>()?;
            methods::join(&by, &all, false)
        }
        "tojson" => {
            let [ascii, indent, separators, sort] =
                args.bind(name, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
            let options = super::json::options(flag(&ascii), indent.as_ref(), separators.as_ref(), flag(&sort))?;
            super::json::dumps(value, &options)
        }
        _ => {
            args.bind(name, [])?;
            match name {
                "first" => IterSource::of(value)?.next()?.map_or_else(|| empty_sequence("first"), Ok),
                "last" => match value {
                    Value::Iter(_) => Err("'generator' object is not reversible".into()),
                    other => items(other)?.pop().map_or_else(|| empty_sequence("last"), Ok),
                },
                "count" | "length" => match length(value) {
                    Some(n) => Ok(Value::Int(n as i64)),
                    None => Err(format!("object of type '{}' has no len()", type_name(value))),
                },
                "list" => list(items(value)?),
                "items" => match value {
                    Value::Undefined(_) => Iter::new(Vec::new(), None),
                    Value::Dict(dict) => Iter::new(IterSource::Dict(DictView::Items, dict.clone(), 0).rest()?, None),
                    _ => Iter::new(Vec::new(), Some("Can only get item pairs from a mapping.".into())),
                },
                "reverse" => match value {
                    Value::Str(s) => text(s.chars().rev().collect::<String>()),
                    Value::Iter(_) => list(items(value)?.into_iter().rev().collect()),
                    other => {
                        let all = items(other).map_err(|_| "argument must be iterable")?;
                        Iter::new(all.into_iter().rev().collect(), None)
                    }
                },
                _ => Err(format!("there is no filter `{name}`")),
            }
        }
    }
}

fn batch_filter(name: &str, value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    let [count, fill] = args.bind(name, [if name == "batch" { "linecount" } else { "slices" }, "fill_with"])?;
    let (count, fill) = (required_arg(count, "count")?, not_none(fill));
    let all = match items(value) {
        Ok(all) => all,
        Err(fault) => return Iter::new(Vec::new(), Some(fault)),
    };
    let mut parts = Vec::new();
    if name == "batch" {
        let size = usize::try_from(int(&count)?).ok();
        let mut part = Vec::new();
        for item in all {
            if Some(part.len()) == size {
                parts.push(list(std::mem::take(&mut part))?);
            }
            part.push(item);
        }
        if let (Some(fill), Some(size)) = (fill, size)
            && !part.is_empty()
        {
            check_size(size, size_of::<Value>())?;
            use_steps(size as u64)?;
            part.resize(size.max(part.len()), fill);
        }
        if !part.is_empty() {
            parts.push(list(part)?);
        }
        return Iter::new(parts, None);
    }
    let slices = match int(&count) {
        Ok(0) => return Iter::new(parts, Some("division by zero".into())),
        Ok(n) => usize::try_from(n).unwrap_or(0),
        Err(fault) => return Iter::new(parts, Some(fault)),
    };
    check_size(slices, 64 + size_of::<Value>())?;
    let (each, more) = (all.len() / slices.max(1), all.len() % slices.max(1));
    let mut all = all.into_iter();
    for i in 0..slices {
        let mut part: Vec<Value> = all.by_ref().take(each + usize::from(i < more)).collect();
        if i >= more {
            part.extend(fill.clone());
        }
        use_steps(1)?;
        parts.push(list(part)?);
    }
    Iter::new(parts, None)
}

/// Splits an attribute path at dots; digits are indices.
fn attribute_path(attr: Option<&Value>) -> Vec<Value> {
    match attr {
        None | Some(Value::None) => Vec::new(),
        Some(Value::Str(name)) => {
            let part = |part: &str| match part.parse() {
                Ok(n) if part.bytes().all(|b| b.is_ascii_digit()) => Value::Int(n),
                _ => text(part).unwrap_or(Value::None),
            };
            name.split('.').map(part).collect()
        }
        Some(other) => vec![other.clone()],
    }
}

fn get_path(mut value: Value, path: &[Value]) -> ValueResult<Value> {
    for part in path {
        use_steps(1)?;
        value = item(&value, part)?;
    }
    Ok(value)
}

/// `get_path` with a default for missing attributes.
fn get_path_or(mut value: Value, path: &[Value], default: Option<&Value>) -> ValueResult<Value> {
    for part in path {
        value = get_path(value, std::slice::from_ref(part))?;
        if let (Value::Undefined(_), Some(default)) = (&value, default) {
            value = default.clone();
        }
    }
    Ok(value)
}

/// The key for a comparison that may be case-insensitive.
fn fold_case(value: Value, case: bool) -> ValueResult<Value> {
    match &value {
        Value::Str(s) if !case => text(methods::lower(s)),
        _ => Ok(value),
    }
}

/// Filters that select or change items. Errors are raised when their item is reached, as generators do.
fn select_filter(name: &str, value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    let mut found = Vec::new();
    let fault = if is_truthy(value) { apply_to_each(name, value, args, &mut found).err() } else { None };
    Iter::new(found, fault)
}

fn apply_to_each(name: &str, value: &Value, args: &EvaluatedArgs, found: &mut Vec<Value>) -> ValueResult<()> {
    let mut source = IterSource::of(value)?;
    let named = |name: &str| args.named.iter().find(|(known, _)| **known == *name).map(|(_, value)| value.clone());
    let attribute = named("attribute").filter(|_| args.positional.is_empty());
    if let (Some(other), true) =
        (args.named.iter().find(|(n, _)| !matches!(&**n, "attribute" | "default")), attribute.is_some())
    {
        return Err(format!("Unexpected keyword argument '{}'", other.0));
    }
    let rest = |from: usize| EvaluatedArgs { positional: args.positional[from..].to_vec(), named: args.named.clone() };
    match (name, args.positional.first()) {
        ("map", None) if attribute.is_some() => {
            let (path, default) = (attribute_path(attribute.as_ref()), not_none(named("default")));
            while let Some(item) = source.next()? {
                found.push(get_path_or(item, &path, default.as_ref())?);
            }
        }
        ("map", None) => return Err("map requires a filter argument".into()),
        ("map", Some(filter)) => {
            let (filter, rest) = (string(filter)?, rest(1));
            while let Some(item) = source.next()? {
                found.push(apply(&filter, &item, &rest)?);
            }
        }
        ("selectattr" | "rejectattr", None) => return Err("Missing parameter for attribute name".into()),
        _ => {
            let of_attribute = name.ends_with("attr");
            let path = if of_attribute { attribute_path(args.positional.first()) } else { Vec::new() };
            let (rest, wanted) = (rest(usize::from(of_attribute)), name.starts_with("select"));
            while let Some(item) = source.next()? {
                if predicates::apply_test(&get_path(item.clone(), &path)?, &rest)? == wanted {
                    found.push(item);
                }
            }
        }
    }
    Ok(())
}

fn sort_filter(name: &str, value: &Value, args: &EvaluatedArgs) -> ValueResult<Value> {
    match name {
        "dictsort" => {
            let [case, by, reverse] = args.bind(name, ["case_sensitive", "by", "reverse"])?;
            let at = match by.as_ref().map(string).transpose()?.as_deref() {
                None | Some("key") => 0,
                Some("value") => 1,
                _ => return Err("You can only sort by either \"key\" or \"value\"".into()),
            };
            let Value::Dict(dict) = value else {
                return Err(format!("'{}' object has no attribute 'items'", type_name(value)));
            };
            let keyed = dict.entries.iter().map(|(key, value)| {
                Ok((fold_case([key, value][at].clone(), flag(&case))?, tuple(vec![key.clone(), value.clone()])?))
            });
            let sorted = sort(keyed.collect::<ValueResult<_>>()?, flag(&reverse))?;
            list(sorted.into_iter().map(|(_, pair)| pair).collect())
        }
        "sort" => {
            let [reverse, case, attr] = args.bind(name, ["reverse", "case_sensitive", "attribute"])?;
            let paths: Vec<Vec<Value>> = match &attr {
                Some(Value::Str(names)) => {
                    names.split(',').map(|n| text(n).map(|n| attribute_path(Some(&n)))).collect::<ValueResult<_>>()?
                }
                other => vec![attribute_path(other.as_ref())],
            };
            let key = |item: &Value| {
                list(
                    paths
                        .iter()
                        .map(|path| fold_case(get_path(item.clone(), path)?, flag(&case)))
                        .collect::<ValueResult<_>>()?,
                )
            };
            let keyed = items(value)?.into_iter().map(|item| Ok((key(&item)?, item)));
            let sorted = sort(keyed.collect::<ValueResult<_>>()?, flag(&reverse))?;
            list(sorted.into_iter().map(|(_, item)| item).collect())
        }
        "sum" => {
            let [attr, start] = args.bind(name, ["attribute", "start"])?;
            let path = attribute_path(not_none(attr).as_ref());
            let mut sum = start.unwrap_or(Value::Int(0));
            if matches!(sum, Value::Str(_)) {
                return Err("sum() can't sum strings [use ''.join(seq) instead]".into());
            }
            let mut source = IterSource::of(value)?;
            while let Some(item) = source.next()? {
                sum = binary(TemplateBinaryOp::Add, &sum, &get_path(item, &path)?)?;
            }
            Ok(sum)
        }
        "min" | "max" => {
            let [case, attr] = args.bind(name, ["case_sensitive", "attribute"])?;
            let path = attribute_path(not_none(attr).as_ref());
            let better = if name == "min" { Ordering::Less } else { Ordering::Greater };
            let mut best: Option<(Value, Value)> = None;
            let mut source = IterSource::of(value)?;
            while let Some(item) = source.next()? {
                let key = fold_case(get_path(item.clone(), &path)?, flag(&case))?;
                let replace = match &best {
                    None => true,
                    Some((known, _)) => order(&key, known, if name == "min" { "<" } else { ">" })? == Some(better),
                };
                if replace {
                    best = Some((key, item));
                }
            }
            best.map_or_else(|| empty_sequence("aggregated"), |(_, item)| Ok(item))
        }
        "unique" => {
            let [case, attr] = args.bind(name, ["case_sensitive", "attribute"])?;
            let path = attribute_path(not_none(attr).as_ref());
            let (mut keys, mut found) = (Vec::<Value>::new(), Vec::new());
            let mut run = || -> ValueResult<()> {
                let mut source = IterSource::of(value)?;
                while let Some(item) = source.next()? {
                    let key = fold_case(get_path(item.clone(), &path)?, flag(&case))?;
                    hashable(&key)?;
                    let mut known = false;
                    for other in &keys {
                        known = known || equal(&key, other)?;
                    }
                    if !known {
                        keys.push(key);
                        found.push(item);
                    }
                }
                Ok(())
            };
            let fault = run().err();
            Iter::new(found, fault)
        }
        _ => {
            let [attr, default, case] = args.bind(name, ["attribute", "default", "case_sensitive"])?;
            let (path, default) = (attribute_path(Some(&required_arg(attr, "attribute")?)), not_none(default));
            let real = |item: &Value| get_path_or(item.clone(), &path, default.as_ref());
            let keyed = items(value)?.into_iter().map(|item| Ok((fold_case(real(&item)?, flag(&case))?, item)));
            let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
            for (key, item) in sort(keyed.collect::<ValueResult<_>>()?, false)? {
                match groups.last_mut() {
                    Some((known, all)) if equal(known, &key)? => all.push(item),
                    _ => groups.push((key, vec![item])),
                }
            }
            let group = |(_, all): (Value, Vec<Value>)| List::group(real(&all[0])?, all);
            list(groups.into_iter().map(group).collect::<ValueResult<_>>()?)
        }
    }
}
