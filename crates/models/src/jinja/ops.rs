//! Operators, comparisons, items and attributes, as in Python.

use super::ast::{TemplateBinaryOp, TemplateCompareOp};
use super::budget::{check_size, enter_level, use_bytes, use_steps};
use super::format::percent_format;
use super::methods::{FORBIDDEN_METHODS, METHODS, Table};
use super::value::{
    DictView, IterSource, Range, Str, TextBuilder, Value, ValueResult, list, string, text, tuple, type_name, undefined,
};
use std::cmp::Ordering;
use std::rc::Rc;

/// A number. `True` and `False` are 1 and 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numeric {
    Int(i64),
    Float(f64),
}

impl Numeric {
    pub(super) fn of(value: &Value) -> Option<Numeric> {
        match value {
            Value::Bool(x) => Some(Numeric::Int(i64::from(*x))),
            Value::Int(n) => Some(Numeric::Int(*n)),
            Value::Float(x) => Some(Numeric::Float(*x)),
            _ => None,
        }
    }

    pub(super) fn float(self) -> f64 {
        match self {
            Numeric::Int(n) => n as f64,
            Numeric::Float(x) => x,
        }
    }
}

/// Converts a value to an integer where Python accepts it as one.
pub(super) fn int(value: &Value) -> ValueResult<i64> {
    match (Numeric::of(value), value) {
        (Some(Numeric::Int(n)), _) => Ok(n),
        (_, Value::Undefined(why)) => Err(why.to_string()),
        _ => Err(format!("'{}' object cannot be interpreted as an integer", type_name(value))),
    }
}

fn check_overflow<T>(n: Option<T>) -> ValueResult<T> {
    n.ok_or_else(|| "an integer has more than 64 bits, which is the limit".into())
}

pub(super) fn negate(value: &Value) -> ValueResult<Value> {
    match Numeric::of(value) {
        Some(Numeric::Int(n)) => check_overflow(n.checked_neg()).map(Value::Int),
        Some(Numeric::Float(x)) => Ok(Value::Float(-x)),
        None => Err(unsupported("unary -", value)),
    }
}

pub(super) fn plus(value: &Value) -> ValueResult<Value> {
    match Numeric::of(value) {
        Some(Numeric::Int(n)) => Ok(Value::Int(n)),
        Some(Numeric::Float(x)) => Ok(Value::Float(x)),
        None => Err(unsupported("unary +", value)),
    }
}

fn unsupported(op: &str, value: &Value) -> String {
    match value {
        Value::Undefined(why) => why.to_string(),
        _ => format!("bad operand type for {op}: '{}'", type_name(value)),
    }
}

pub(super) fn binary(op: TemplateBinaryOp, a: &Value, b: &Value) -> ValueResult<Value> {
    if let (Value::Undefined(why), _) | (_, Value::Undefined(why)) = (a, b)
        && !matches!((op, a), (TemplateBinaryOp::Mod, Value::Str(_)))
    {
        return Err(why.to_string());
    }
    match (op, a, b) {
        (TemplateBinaryOp::Mod, Value::Str(format), _) => percent_format(format, b),
        (TemplateBinaryOp::Add, Value::Str(x), Value::Str(y)) => {
            check_size(1, x.len() + y.len())?;
            if !x.is_safe() && !y.is_safe() {
                return text([&**x, &**y].concat());
            }
            let (x, y) = (if x.is_safe() { x.to_string() } else { escape(x)? }, y);
            let y = if y.is_safe() { y.to_string() } else { escape(y)? };
            Ok(Value::Str(Str::safe(x + &y)?))
        }
        (TemplateBinaryOp::Add, Value::List(x), Value::List(y))
        | (TemplateBinaryOp::Add, Value::Tuple(x), Value::Tuple(y)) => {
            check_size(x.items.len() + y.items.len(), size_of::<Value>())?;
            use_steps((x.items.len() + y.items.len()) as u64)?;
            let all = x.items.iter().chain(&y.items).cloned().collect();
            if matches!(a, Value::List(_)) { list(all) } else { tuple(all) }
        }
        (TemplateBinaryOp::Mul, x, Value::Int(_) | Value::Bool(_)) if is_sequence(x) => repeat(x, int(b)?),
        (TemplateBinaryOp::Mul, Value::Int(_) | Value::Bool(_), y) if is_sequence(y) => repeat(y, int(a)?),
        _ => match (Numeric::of(a), Numeric::of(b)) {
            (Some(Numeric::Int(x)), Some(Numeric::Int(y))) => integers(op, x, y),
            (Some(x), Some(y)) => floats(op, x.float(), y.float()).map(Value::Float),
            _ => Err(match (op, a, b) {
                (TemplateBinaryOp::Add, Value::Str(_), _) => {
                    format!("can only concatenate str (not \"{}\") to str", type_name(b))
                }
                _ => format!(
                    "unsupported operand type(s) for {}: '{}' and '{}'",
                    op.symbol(),
                    type_name(a),
                    type_name(b)
                ),
            }),
        },
    }
}

fn is_sequence(value: &Value) -> bool {
    matches!(value, Value::Str(_) | Value::List(_) | Value::Tuple(_))
}

fn repeat(value: &Value, times: i64) -> ValueResult<Value> {
    let times = usize::try_from(times).unwrap_or(0);
    match value {
        Value::List(all) | Value::Tuple(all) => {
            check_size(times.saturating_mul(all.items.len()), size_of::<Value>())?;
            use_steps((times * all.items.len()) as u64)?;
            let times = if all.items.is_empty() { 0 } else { times };
            let items = (0..times).flat_map(|_| all.items.iter().cloned()).collect();
            if matches!(value, Value::List(_)) { list(items) } else { tuple(items) }
        }
        other => {
            let unit = string(other)?;
            check_size(times, unit.len())?;
            text(unit.repeat(if unit.is_empty() { 0 } else { times }))
        }
    }
}

fn integers(op: TemplateBinaryOp, x: i64, y: i64) -> ValueResult<Value> {
    let zero = || Err("division by zero".to_string());
    Ok(Value::Int(match op {
        TemplateBinaryOp::Add => check_overflow(x.checked_add(y))?,
        TemplateBinaryOp::Sub => check_overflow(x.checked_sub(y))?,
        TemplateBinaryOp::Mul => check_overflow(x.checked_mul(y))?,
        TemplateBinaryOp::Div | TemplateBinaryOp::FloorDiv | TemplateBinaryOp::Mod if y == 0 => return zero(),
        TemplateBinaryOp::Div => return Ok(Value::Float(x as f64 / y as f64)),
        TemplateBinaryOp::FloorDiv => {
            check_overflow(x.checked_div(y))? - i64::from(x.wrapping_rem(y) != 0 && (x < 0) != (y < 0))
        }
        TemplateBinaryOp::Mod => {
            let rest = x.wrapping_rem(y);
            if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
        }
        TemplateBinaryOp::Pow if y < 0 => return floats(op, x as f64, y as f64).map(Value::Float),
        TemplateBinaryOp::Pow => match (x, u32::try_from(y)) {
            (0 | 1, _) => x.pow(u32::from(y > 0)),
            (-1, _) => [1, -1][usize::from(y % 2 != 0)],
            (_, Ok(y)) => check_overflow(x.checked_pow(y))?,
            _ => check_overflow(None)?,
        },
    }))
}

fn floats(op: TemplateBinaryOp, x: f64, y: f64) -> ValueResult<f64> {
    let modulo = || {
        let rest = x % y;
        match rest != 0.0 {
            true if (rest < 0.0) != (y < 0.0) => rest + y,
            true => rest,
            false => 0f64.copysign(y),
        }
    };
    Ok(match op {
        TemplateBinaryOp::Add => x + y,
        TemplateBinaryOp::Sub => x - y,
        TemplateBinaryOp::Mul => x * y,
        TemplateBinaryOp::Div | TemplateBinaryOp::FloorDiv | TemplateBinaryOp::Mod if y == 0.0 => {
            return Err("division by zero".into());
        }
        TemplateBinaryOp::Div => x / y,
        TemplateBinaryOp::Mod => modulo(),
        TemplateBinaryOp::FloorDiv => {
            let quotient = (x - modulo()) / y;
            let floor = quotient.floor();
            match quotient == 0.0 {
                true => 0f64.copysign(x / y),
                false => floor + f64::from(u8::from(quotient - floor > 0.5)),
            }
        }
        TemplateBinaryOp::Pow if x == 0.0 && y < 0.0 => return Err("0.0 cannot be raised to a negative power".into()),
        TemplateBinaryOp::Pow if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 => {
            return Err("a power is a complex number".into());
        }
        TemplateBinaryOp::Pow => match x.powf(y) {
            power if power.is_infinite() && x.is_finite() && y.is_finite() => {
                return Err("a power is too large for a float".into());
            }
            power => power,
        },
    })
}

/// Compares two numbers, without rounding integers.
fn compare_numbers(x: Numeric, y: Numeric) -> Option<Ordering> {
    match (x, y) {
        (Numeric::Int(x), Numeric::Int(y)) => Some(x.cmp(&y)),
        (Numeric::Int(x), Numeric::Float(y)) => match y {
            y if y.is_nan() => None,
            y if y >= 9_223_372_036_854_775_808.0 => Some(Ordering::Less),
            y if y < -9_223_372_036_854_775_808.0 => Some(Ordering::Greater),
            y => Some(x.cmp(&(y.floor() as i64)).then(if y.fract() != 0.0 { Ordering::Less } else { Ordering::Equal })),
        },
        (Numeric::Float(_), Numeric::Int(_)) => compare_numbers(y, x).map(Ordering::reverse),
        (Numeric::Float(x), Numeric::Float(y)) => x.partial_cmp(&y),
    }
}

/// `a is b`, if it follows from the values.
pub(super) fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::Int(x), Value::Int(y)) => x == y,
        (Value::Float(x), Value::Float(y)) => x.to_bits() == y.to_bits(),
        (Value::Str(x), Value::Str(y)) => **x == **y,
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => Rc::ptr_eq(x, y),
        (Value::Dict(x), Value::Dict(y)) => Rc::ptr_eq(x, y),
        (Value::Iter(x), Value::Iter(y)) => Rc::ptr_eq(x, y),
        (Value::Namespace(x), Value::Namespace(y)) => Rc::ptr_eq(x, y),
        (Value::Macro(x), Value::Macro(y)) => Rc::ptr_eq(x, y),
        (Value::Loop(x), Value::Loop(y)) => Rc::ptr_eq(x, y),
        (Value::Function(x), Value::Function(y)) => x == y,
        _ => false,
    }
}

pub(super) fn equal(a: &Value, b: &Value) -> ValueResult<bool> {
    let _level = enter_level()?;
    if let (Some(x), Some(y)) = (Numeric::of(a), Numeric::of(b)) {
        return Ok(compare_numbers(x, y) == Some(Ordering::Equal));
    }
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) => true,
        (Value::Str(x), Value::Str(y)) => {
            use_bytes(x.len().min(y.len()))?;
            **x == **y
        }
        _ if is_same(a, b) => true,
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            if x.items.len() != y.items.len() {
                return Ok(false);
            }
            for (x, y) in x.items.iter().zip(&y.items) {
                if !equal(x, y)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(x), Value::Dict(y)) => {
            if x.entries.len() != y.entries.len() {
                return Ok(false);
            }
            for (key, value) in &x.entries {
                match y.get(key)? {
                    Some(other) if equal(value, other)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::View(DictView::Keys | DictView::Items, x), Value::View(DictView::Keys | DictView::Items, y)) => {
            let (x, y) =
                (IterSource::of(a)?.rest().map(|all| (all, x))?, IterSource::of(b)?.rest().map(|all| (all, y))?);
            x.0.len() == y.0.len()
                && x.0.iter().map(|item| contains(item, b)).collect::<ValueResult<Vec<_>>>()?.iter().all(|x| *x)
        }
        (Value::Range(x), Value::Range(y)) => {
            x.len == y.len && (x.len == 0 || x.start == y.start && (x.len == 1 || x.step == y.step))
        }
        _ => false,
    })
}

/// Compares two values; none if one of them is NaN.
pub(super) fn order(a: &Value, b: &Value, op: &str) -> ValueResult<Option<Ordering>> {
    let _level = enter_level()?;
    if let (Some(x), Some(y)) = (Numeric::of(a), Numeric::of(b)) {
        return Ok(compare_numbers(x, y));
    }
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            use_bytes(x.len().min(y.len()))?;
            Ok(Some((**x).cmp(&**y)))
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            for (x, y) in x.items.iter().zip(&y.items) {
                if !equal(x, y)? {
                    return order(x, y, op);
                }
            }
            Ok(Some(x.items.len().cmp(&y.items.len())))
        }
        (Value::Undefined(why), _) | (_, Value::Undefined(why)) => Err(why.to_string()),
        _ => Err(format!("'{op}' not supported between instances of '{}' and '{}'", type_name(a), type_name(b))),
    }
}

pub(super) fn compare(op: TemplateCompareOp, a: &Value, b: &Value) -> ValueResult<bool> {
    Ok(match op {
        TemplateCompareOp::Eq => equal(a, b)?,
        TemplateCompareOp::Ne => !equal(a, b)?,
        TemplateCompareOp::In => contains(a, b)?,
        TemplateCompareOp::NotIn => !contains(a, b)?,
        TemplateCompareOp::Lt => order(a, b, "<")? == Some(Ordering::Less),
        TemplateCompareOp::Le => order(a, b, "<=")?.is_some_and(Ordering::is_le),
        TemplateCompareOp::Gt => order(a, b, ">")? == Some(Ordering::Greater),
        TemplateCompareOp::Ge => order(a, b, ">=")?.is_some_and(Ordering::is_ge),
    })
}

/// `item in all`.
pub(super) fn contains(item: &Value, all: &Value) -> ValueResult<bool> {
    match (all, item) {
        (Value::Str(all), Value::Str(item)) => {
            use_bytes(all.len() + item.len())?;
            Ok(all.contains(&**item))
        }
        (Value::Str(_), _) => Err(format!("'in <string>' requires string as left operand, not {}", type_name(item))),
        (Value::Dict(dict) | Value::View(DictView::Keys, dict), _) => Ok(dict.get(item)?.is_some()),
        _ => {
            let mut source =
                IterSource::of(all).map_err(|_| format!("argument of type '{}' is not iterable", type_name(all)))?;
            while let Some(found) = source.next()? {
                if equal(&found, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Sorts stably by keys.
pub(super) fn sort<T>(mut items: Vec<(Value, T)>, reverse: bool) -> ValueResult<Vec<(Value, T)>> {
    if items.len() < 2 {
        return Ok(items);
    }
    let _level = enter_level()?;
    let right = items.split_off(items.len() / 2);
    let (left, right) = (sort(items, reverse)?, sort(right, reverse)?);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let later = match reverse {
            false => order(&b.0, &a.0, "<")? == Some(Ordering::Less),
            true => order(&a.0, &b.0, "<")? == Some(Ordering::Less),
        };
        merged.extend(if later { right.next() } else { left.next() });
    }
    merged.extend(left.chain(right));
    Ok(merged)
}

/// Converts an index that may be negative to an offset from the start.
fn resolve_index(at: i64, len: usize) -> Option<usize> {
    let at = if at < 0 { at.checked_add(len as i64)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// `value[key]`.
pub(super) fn item(value: &Value, key: &Value) -> ValueResult<Value> {
    let missing = || match key {
        Value::Str(name) => attribute(value, name, false),
        _ => undefined(format!("'{} object' has no element {}", type_name(value), string(key)?.to_string())),
    };
    let at = match Numeric::of(key) {
        Some(Numeric::Int(at)) => Some(at),
        _ => None,
    };
    let found = match (value, at) {
        (Value::Undefined(why), _) => return Err(why.to_string()),
        (Value::Str(text), Some(at)) => {
            use_bytes(text.len())?;
            let c = if at < 0 {
                text.chars().rev().nth(usize::try_from(-(at + 1)).unwrap_or(usize::MAX))
            } else {
                text.chars().nth(usize::try_from(at).unwrap_or(usize::MAX))
            };
            c.map(|c| Str::new(c).map(Value::Str)).transpose()?
        }
        (Value::List(list) | Value::Tuple(list), Some(at)) => {
            resolve_index(at, list.items.len()).map(|at| list.items[at].clone())
        }
        (Value::Range(range), Some(at)) => resolve_index(at, range.len).map(|at| range.at(at)),
        (Value::Dict(dict), _) => match super::value::hashable(key) {
            Ok(()) => dict.get(key)?.cloned(),
            Err(_) => None,
        },
        _ => None,
    };
    found.map_or_else(missing, Ok)
}

/// Finds the name of a method in a table by type.
pub(super) fn method(value: &Value, name: &str, table: Table) -> Option<&'static str> {
    let names = table.iter().find(|(kind, _)| *kind == type_name(value))?.1;
    names.iter().find(|known| **known == name).copied()
}

/// `value.name`; if there is no attribute, `value['name']`, provided that `items` is true.
pub(super) fn attribute(value: &Value, name: &str, items: bool) -> ValueResult<Value> {
    let found = match value {
        Value::Undefined(why) => return Err(why.to_string()),
        Value::Namespace(scope) => scope.own(name)?,
        Value::List(pair) | Value::Tuple(pair) if pair.group && matches!(name, "grouper" | "list") => {
            Some(pair.items[usize::from(name == "list")].clone())
        }
        Value::Range(range) => match name {
            "start" => Some(Value::Int(range.start)),
            "stop" => Some(Value::Int(range.stop)),
            "step" => Some(Value::Int(range.step)),
            _ => None,
        },
        Value::Int(_) | Value::Bool(_) | Value::Float(_) => match name {
            "real" => Some(plus(value)?),
            "imag" if matches!(value, Value::Float(_)) => Some(Value::Float(0.0)),
            "numerator" if !matches!(value, Value::Float(_)) => Some(plus(value)?),
            "imag" => Some(Value::Int(0)),
            "denominator" if !matches!(value, Value::Float(_)) => Some(Value::Int(1)),
            _ => None,
        },
        Value::Macro(m) => match name {
            "name" => Some(m.def.name.as_ref().map_or(Ok(Value::None), |name| text(&**name))?),
            "arguments" => {
                Some(tuple(m.def.params.iter().map(|(name, _)| text(&**name)).collect::<ValueResult<_>>()?)?)
            }
            "caller" => Some(Value::Bool(m.def.named[0])),
            "catch_kwargs" => Some(Value::Bool(m.def.named[1])),
            "catch_varargs" => Some(Value::Bool(m.def.named[2])),
            _ => None,
        },
        _ => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let kind = type_name(value);
    if let Some(name) = method(value, name, METHODS) {
        return Ok(Value::Method(Rc::new((value.clone(), name))));
    }
    if method(value, name, FORBIDDEN_METHODS).is_some() || name.starts_with("__") && name.ends_with("__") {
        return undefined(format!("access to attribute '{name}' of '{kind}' object is unsafe."));
    }
    if let (Value::Dict(dict), true) = (value, items)
        && let Some(found) = dict.text(name)?
    {
        return Ok(found.clone());
    }
    use_steps(2)?;
    undefined(format!("'{kind} object' has no attribute '{name}'"))
}

/// `value[start:stop:step]`.
pub(super) fn slice(value: &Value, parts: [Option<i64>; 3]) -> ValueResult<Value> {
    let step_by = parts[2].unwrap_or(1);
    if step_by == 0 {
        return Err("slice step cannot be zero".into());
    }
    let len = match value {
        Value::Undefined(why) => return Err(why.to_string()),
        Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Range(_) => super::value::length(value).unwrap_or(0),
        Value::Dict(_) => return Err("unhashable type: 'slice'".into()),
        _ => return Err(format!("'{}' object is not subscriptable", type_name(value))),
    };
    let n = len as i64;
    let (low, high) = if step_by > 0 { (0, n) } else { (-1, n - 1) };
    let bound = |part: Option<i64>, default: i64| {
        part.map_or(default, |at| if at < 0 { at.saturating_add(n) } else { at }.clamp(low, high))
    };
    let (start, stop) = match step_by > 0 {
        true => (bound(parts[0], 0), bound(parts[1], n)),
        false => (bound(parts[0], n - 1), bound(parts[1], -1)),
    };
    let distance = if step_by > 0 { stop - start } else { start - stop };
    let count = if distance > 0 { (distance as u64).div_ceil(step_by.unsigned_abs()) as usize } else { 0 };
    let places = (0..count).map(|i| (start + i as i64 * step_by) as usize);
    use_steps(count as u64 / 8)?;
    match value {
        Value::List(list_) => list(places.map(|at| list_.items[at].clone()).collect()),
        Value::Tuple(tuple_) => tuple(places.map(|at| tuple_.items[at].clone()).collect()),
        Value::Range(range) => {
            let at = |i: i64| {
                check_overflow(range.step.checked_mul(i).and_then(|distance| range.start.checked_add(distance)))
            };
            let by = check_overflow(range.step.checked_mul(step_by))?;
            Ok(Value::Range(Rc::new(Range { start: at(start)?, stop: at(stop)?, step: by, len: count })))
        }
        other => {
            let of = string(other)?;
            use_bytes(of.len())?;
            let mut out = TextBuilder::default();
            if step_by == 1 {
                let place = |at: i64| of.char_indices().nth(at as usize).map_or(of.len(), |(at, _)| at);
                out.push(if count > 0 { &of[place(start)..place(stop)] } else { "" })?;
            } else {
                check_size(of.len(), 4)?;
                let chars: Vec<char> = of.chars().collect();
                places.map(|at| out.push_char(chars[at])).collect::<ValueResult<()>>()?;
            }
            out.finish()
        }
    }
}

/// Escapes the special characters of HTML.
pub(super) fn escape(of: &str) -> ValueResult<String> {
    check_size(of.len(), 6)?;
    let text = of.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Ok(text.replace('\'', "&#39;").replace('"', "&#34;"))
}
