//! Formats numbers as Python does; `%`, and `str.format`.

use super::budget::{check_size, enter_level};
use super::ops::{Numeric, attribute, int, item};
use super::value::{TextBuilder, Value, ValueResult, repr, string, type_name};

/// Maximum number of digits of a float.
const MAX_FLOAT_DIGITS: usize = 2000;

/// `repr(x)`.
pub(super) fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let shortest = format!("{x:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..16 => {
            let plain = x.to_string();
            if plain.contains('.') { plain } else { plain + ".0" }
        }
        e => format!("{digits}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs()),
    }
}

/// The format specification of both ways of formatting.
#[derive(Clone, Debug, Default)]
struct FormatSpec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    width: usize,
    comma: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// Formats a float as `e`, `f` or `g`, in either case.
fn float_of(x: f64, kind: char, precision: usize, alternate: bool) -> ValueResult<String> {
    if precision > MAX_FLOAT_DIGITS {
        return Err(format!("a float can't be printed with {precision} digits: the limit is {MAX_FLOAT_DIGITS}"));
    }
    if !x.is_finite() {
        let word = if x.is_nan() { "nan" } else { "inf" };
        return Ok(if kind.is_uppercase() { word.to_uppercase() } else { word.into() });
    }
    let exponential = |precision: usize| {
        let text = format!("{x:.precision$e}");
        let (digits, e) = text.split_once('e').map_or((text.clone(), 0), |(d, e)| (d.into(), e.parse().unwrap_or(0)));
        (digits, e)
    };
    let with_exponent = |digits: &str, e: i32| format!("{digits}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs());
    let text = match kind.to_ascii_lowercase() {
        'e' => {
            let (digits, e) = exponential(precision);
            with_exponent(&digits, e)
        }
        'f' => format!("{x:.precision$}"),
        _ => {
            let precision = precision.max(1);
            let (digits, e) = exponential(precision - 1);
            let trim = |digits: String| match digits.contains('.') && !alternate {
                true => digits.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => digits,
            };
            match (-4..precision as i32).contains(&e) {
                true => trim(format!("{x:.*}", (precision as i32 - 1 - e) as usize)),
                false => with_exponent(&trim(digits), e),
            }
        }
    };
    Ok(if kind.is_uppercase() { text.to_uppercase() } else { text })
}

/// The digits of an integer without its sign.
fn digits(n: i64, kind: char) -> String {
    let n = n.unsigned_abs();
    match kind {
        'x' => format!("{n:x}"),
        'X' => format!("{n:X}"),
        'o' => format!("{n:o}"),
        'b' => format!("{n:b}"),
        _ => n.to_string(),
    }
}

fn grouped(digits: &str, by: char) -> String {
    let (whole, rest) = digits.split_at(digits.find(['.', 'e']).unwrap_or(digits.len()));
    let mut text = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            text.push(by);
        }
        text.push(c);
    }
    text + rest
}

/// Pads to the width. With zeros as padding, sign and prefix come first.
fn pad_to_width(head: &str, body: &str, spec: &FormatSpec, default: char, out: &mut TextBuilder) -> ValueResult<()> {
    let len = head.chars().count() + body.chars().count();
    let missing = spec.width.saturating_sub(len);
    check_size(missing, 4)?;
    let fill = spec.fill.unwrap_or(' ').to_string();
    let (left, inner, right) = match spec.align.unwrap_or(default) {
        '<' => (0, 0, missing),
        '^' => (missing / 2, 0, missing - missing / 2),
        '=' => (0, missing, 0),
        _ => (missing, 0, 0),
    };
    out.repeat(&fill, left)?;
    out.push(head)?;
    out.repeat(&fill, inner)?;
    out.push(body)?;
    out.repeat(&fill, right)
}

fn sign(negative: bool, spec: &FormatSpec) -> &'static str {
    match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    }
}

/// `format % value`.
pub(super) fn percent_format(format: &str, value: &Value) -> ValueResult<Value> {
    let mut out = TextBuilder::default();
    let (mut next, mut mapped) = (0, false);
    let all = match value {
        Value::Tuple(all) => all.items.clone(),
        other => vec![other.clone()],
    };
    let mut take = || {
        next += 1;
        all.get(next - 1).cloned().ok_or_else(|| "not enough arguments for format string".to_string())
    };
    let mut rest = format;
    while let Some((text, directive)) = rest.split_once('%') {
        out.push(text)?;
        let mut at = directive;
        let mut keyed = None;
        if let Some(key) = at.strip_prefix('(') {
            let (key, behind) = key.split_once(')').ok_or("incomplete format key")?;
            let Value::Dict(dict) = value else { return Err("format requires a mapping".into()) };
            keyed = Some(dict.text(key)?.cloned().ok_or_else(|| format!("KeyError: '{key}'"))?);
            (at, mapped) = (behind, true);
        }
        let mut spec = FormatSpec::default();
        let mut zero = false;
        while let Some(flag) = at.chars().next().filter(|c| "#0- +".contains(*c)) {
            match flag {
                '#' => spec.alternate = true,
                '0' => zero = true,
                '-' => spec.align = Some('<'),
                ' ' if spec.sign.is_some() => {}
                sign => spec.sign = Some(sign),
            }
            at = &at[1..];
        }
        let mut number = |at: &mut &str| -> ValueResult<Option<i64>> {
            if let Some(behind) = at.strip_prefix('*') {
                *at = behind;
                return int(&take()?).map(Some);
            }
            let end = at.find(|c: char| !c.is_ascii_digit()).unwrap_or(at.len());
            let digits = &at[..end];
            *at = &at[end..];
            if digits.is_empty() { Ok(None) } else { digits.parse().map(Some).map_err(|_| "width too big".into()) }
        };
        let width = number(&mut at)?.unwrap_or(0);
        if width < 0 {
            spec.align = Some('<');
        }
        spec.width = width.unsigned_abs() as usize;
        if let Some(behind) = at.strip_prefix('.') {
            at = behind;
            spec.precision = Some(usize::try_from(number(&mut at)?.unwrap_or(0)).unwrap_or(0));
        }
        at = at.trim_start_matches(['h', 'l', 'L']);
        let kind = at.chars().next().ok_or("incomplete format")?;
        rest = &at[kind.len_utf8()..];
        if kind == '%' {
            out.push("%")?;
            continue;
        }
        let value = match keyed {
            Some(value) => value,
            None => take()?,
        };
        if zero && spec.align.is_none() && !matches!(kind, 's' | 'r' | 'a' | 'c') {
            (spec.fill, spec.align) = (Some('0'), Some('='));
        }
        format_directive(&value, kind, &spec, &mut out)?;
    }
    out.push(rest)?;
    let used = match value {
        Value::Tuple(all) => next >= all.items.len(),
        Value::Dict(_) | Value::List(_) | Value::Range(_) => true,
        _ => next > 0,
    };
    if !used && !mapped {
        return Err("not all arguments converted during string formatting".into());
    }
    out.finish()
}

/// Formats one directive of `%`.
fn format_directive(value: &Value, kind: char, spec: &FormatSpec, out: &mut TextBuilder) -> ValueResult<()> {
    match kind {
        's' | 'r' | 'a' => {
            let mut text = TextBuilder::default();
            if kind == 's' {
                text.push(&string(value)?)?
            } else {
                repr(value, &mut text)?
            }
            let end =
                text.text.char_indices().nth(spec.precision.unwrap_or(usize::MAX)).map_or(text.text.len(), |c| c.0);
            pad_to_width("", &text.text[..end], spec, '>', out)
        }
        'c' => {
            let text = match value {
                Value::Str(s) if s.chars().count() == 1 => s.to_string(),
                Value::Int(n) => {
                    let c = u32::try_from(*n).ok().and_then(char::from_u32);
                    c.ok_or("%c arg not in range(0x110000)")?.to_string()
                }
                _ => return Err("%c requires int or char".into()),
            };
            pad_to_width("", &text, spec, '>', out)
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let (negative, mut body) = match Numeric::of(value) {
                Some(Numeric::Int(n)) => (n < 0, digits(n, kind)),
                Some(Numeric::Float(x)) if matches!(kind, 'd' | 'i' | 'u') && x.is_finite() => {
                    (x <= -1.0, format!("{:.0}", x.abs().trunc()))
                }
                _ => return Err(format!("%{kind} format: a real number is required, not {}", type_name(value))),
            };
            if let Some(precision) = spec.precision {
                check_size(precision, 1)?;
                body = "0".repeat(precision.saturating_sub(body.len())) + &body;
            }
            let prefix = match (spec.alternate, kind) {
                (true, 'x') => "0x",
                (true, 'X') => "0X",
                (true, 'o') => "0o",
                _ => "",
            };
            pad_to_width(&format!("{}{prefix}", sign(negative, spec)), &body, spec, '>', out)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let Some(x) = Numeric::of(value).map(Numeric::float) else {
                return Err(format!("must be real number, not {}", type_name(value)));
            };
            let body = float_of(x.abs(), kind, spec.precision.unwrap_or(6), spec.alternate)?;
            pad_to_width(sign(x.is_sign_negative() && !x.is_nan(), spec), &body, spec, '>', out)
        }
        _ => Err(format!("unsupported format character '{kind}'")),
    }
}

/// `format.format(*args, **named)`.
pub(super) fn format(format: &str, args: &[Value], named: &dyn Fn(&str) -> ValueResult<Value>) -> ValueResult<Value> {
    let mut out = TextBuilder::default();
    fields(format, args, named, &mut (0, false), 3, &mut out)?;
    out.finish()
}

fn fields(
    format: &str,
    args: &[Value],
    named: &dyn Fn(&str) -> ValueResult<Value>,
    // The index of the next argument, and whether one was selected by its index.
    next: &mut (usize, bool),
    levels: u32,
    out: &mut TextBuilder,
) -> ValueResult<()> {
    let _level = enter_level()?;
    if levels == 0 {
        return Err("Max string recursion exceeded".into());
    }
    let mut rest = format;
    while let Some(at) = rest.find(['{', '}']) {
        out.push(&rest[..at])?;
        let (brace, behind) = (&rest[at..=at], &rest[at + 1..]);
        if let Some(behind) = behind.strip_prefix(brace) {
            out.push(brace)?;
            rest = behind;
            continue;
        }
        if brace == "}" {
            return Err("Single '}' encountered in format string".into());
        }
        let mut open = 1;
        let end = behind.char_indices().find(|(_, c)| {
            open += i32::from(*c == '{') - i32::from(*c == '}');
            open == 0
        });
        let (end, _) = end.ok_or("expected '}' before end of string")?;
        let (field, behind) = (&behind[..end], &behind[end + 1..]);
        rest = behind;
        let split = field.char_indices().scan(0, |depth, (at, c)| {
            *depth += i32::from(c == '[') - i32::from(c == ']');
            Some((at, c, *depth))
        });
        let cut =
            split.into_iter().find(|(_, c, depth)| *depth <= 0 && matches!(c, '!' | ':')).map_or(field.len(), |x| x.0);
        let (name, tail) = field.split_at(cut);
        let (conversion, spec) = match tail.strip_prefix('!') {
            Some(tail) => {
                let mut chars = tail.chars();
                let conversion = chars.next().ok_or("unmatched '{' in format spec")?;
                let spec = chars.as_str();
                (
                    Some(conversion),
                    spec.strip_prefix(':')
                        .or(spec.is_empty().then_some(""))
                        .ok_or("expected ':' after conversion specifier")?,
                )
            }
            None => (None, tail.strip_prefix(':').unwrap_or("")),
        };
        let first = name.find(['.', '[']).unwrap_or(name.len());
        let mut value = match &name[..first] {
            "" if next.1 => {
                return Err("cannot switch from manual field specification to automatic field numbering".into());
            }
            "" => {
                next.0 += 1;
                args.get(next.0 - 1).cloned().ok_or("Replacement index out of range for positional args tuple")?
            }
            key if key.bytes().all(|b| b.is_ascii_digit()) => {
                if next.0 > 0 {
                    return Err("cannot switch from automatic field numbering to manual field specification".into());
                }
                next.1 = true;
                let found = key.parse::<usize>().ok().and_then(|i| args.get(i));
                found.cloned().ok_or("Replacement index out of range for positional args tuple")?
            }
            key => named(key)?,
        };
        let mut path = &name[first..];
        while !path.is_empty() {
            if let Some(behind) = path.strip_prefix('[') {
                let (key, behind) = behind.split_once(']').ok_or("Missing ']' in format string")?;
                let number = key.parse::<i64>().ok().filter(|_| key.bytes().all(|b| b.is_ascii_digit()));
                let key = number.map_or_else(|| super::value::text(key), |n| Ok(Value::Int(n)))?;
                (value, path) = (item(&value, &key)?, behind);
            } else {
                let behind = &path[1..];
                let end = behind.find(['.', '[']).unwrap_or(behind.len());
                (value, path) = (attribute(&value, &behind[..end], true)?, &behind[end..]);
            }
        }
        match conversion {
            None => {}
            Some('s') => value = Value::Str(string(&value)?),
            Some('r') => {
                let mut text = TextBuilder::default();
                repr(&value, &mut text)?;
                value = text.finish()?;
            }
            Some(c) => return Err(format!("Unknown conversion specifier {c}")),
        }
        let mut inner = TextBuilder::default();
        fields(spec, args, named, next, levels - 1, &mut inner)?;
        apply(&value, &inner.text, out)?;
    }
    out.push(rest)
}

fn parse_spec(text: &str) -> ValueResult<FormatSpec> {
    let mut spec = FormatSpec::default();
    let chars: Vec<char> = text.chars().take(64).collect();
    let mut at = 0;
    if chars.get(1).is_some_and(|c| "<>=^".contains(*c)) {
        (spec.fill, spec.align, at) = (Some(chars[0]), Some(chars[1]), 2);
    } else if chars.first().is_some_and(|c| "<>=^".contains(*c)) {
        (spec.align, at) = (Some(chars[0]), 1);
    }
    let mut take = |of: &str| {
        let found = chars.get(at).copied().filter(|c| of.contains(*c));
        at += usize::from(found.is_some());
        found
    };
    spec.sign = take("+- ");
    spec.alternate = take("#").is_some();
    if take("0").is_some() {
        spec.fill = spec.fill.or(Some('0'));
        spec.align = spec.align.or(Some('='));
    }
    let number = |take: &mut dyn FnMut(&str) -> Option<char>| {
        let mut text = String::new();
        while let Some(digit) = take("0123456789") {
            text.push(digit);
        }
        text
    };
    let width = number(&mut take);
    spec.width =
        if width.is_empty() { 0 } else { width.parse().map_err(|_| "Too many decimal digits in format string")? };
    spec.comma = take(",_");
    if take(".").is_some() {
        spec.precision = Some(number(&mut take).parse().map_err(|_| "Format specifier missing precision")?);
    }
    spec.kind = take("bcdeEfFgGnosxX%");
    if at < text.chars().take(65).count() {
        return Err("Invalid format specifier".into());
    }
    Ok(spec)
}

/// `format(value, spec)`.
fn apply(value: &Value, text: &str, out: &mut TextBuilder) -> ValueResult<()> {
    if text.is_empty() {
        return out.push(&string(value)?);
    }
    let spec = parse_spec(text)?;
    let kind = spec.kind;
    let wrong = || Err(format!("Unknown format code for object of type '{}'", type_name(value)));
    match (value, Numeric::of(value)) {
        (Value::Str(s), _) => {
            if kind.is_some_and(|k| k != 's') || spec.sign.is_some() || spec.comma.is_some() || spec.alternate {
                return wrong();
            }
            if spec.align == Some('=') {
                if spec.fill != Some('0') {
                    return Err("'=' alignment not allowed in string format specifier".into());
                }
                // A zero before the width only sets the fill character.
                return pad_to_width(
                    "",
                    &truncate_chars(s, spec.precision),
                    &FormatSpec { align: Some('<'), ..spec.clone() },
                    '<',
                    out,
                );
            }
            pad_to_width("", &truncate_chars(s, spec.precision), &spec, '<', out)
        }
        (_, Some(Numeric::Int(n))) if kind.is_none_or(|k| "dnbxXoc".contains(k)) => {
            if spec.precision.is_some() {
                return Err("Precision not allowed in integer format specifier".into());
            }
            if kind == Some('c') {
                let c = u32::try_from(n).ok().and_then(char::from_u32).ok_or("%c arg not in range(0x110000)")?;
                return pad_to_width("", &c.to_string(), &spec, '<', out);
            }
            let prefix = match (spec.alternate, kind) {
                (true, Some(k @ ('x' | 'X' | 'o' | 'b'))) => format!("0{k}"),
                _ => String::new(),
            };
            let body = digits(n, kind.unwrap_or('d'));
            let body = spec.comma.map_or(body.clone(), |by| grouped(&body, by));
            pad_to_width(&format!("{}{prefix}", sign(n < 0, &spec)), &body, &spec, '>', out)
        }
        (_, Some(n)) if kind.is_none_or(|k| "eEfFgGn%".contains(k)) => {
            let x = n.float();
            let precision = spec.precision.unwrap_or(6);
            let body = match kind {
                None if spec.precision.is_none() => float_repr(x.abs()),
                None => {
                    let body = float_of(x.abs(), 'g', precision, spec.alternate)?;
                    if body.contains(['.', 'e', 'n']) { body } else { body + ".0" }
                }
                Some('%') => float_of(x.abs() * 100.0, 'f', precision, spec.alternate)? + "%",
                Some(k) => float_of(x.abs(), if k == 'n' { 'g' } else { k }, precision, spec.alternate)?,
            };
            let body = spec.comma.map_or(body.clone(), |by| grouped(&body, by));
            pad_to_width(sign(x.is_sign_negative() && !x.is_nan(), &spec), &body, &spec, '>', out)
        }
        _ => Err(format!("unsupported format string passed to {}.__format__", type_name(value))),
    }
}

fn truncate_chars(s: &str, chars: Option<usize>) -> String {
    s.chars().take(chars.unwrap_or(usize::MAX)).collect()
}
