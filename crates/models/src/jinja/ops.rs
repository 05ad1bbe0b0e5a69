//! Operators, comparisons, items and attributes, as Python has them.

use super::ast::{Binary, Comparison};
use super::budget::{enter, pass, room, step};
use super::format::percent;
use super::methods::{METHODS, REFUSED, Table};
use super::value::{Builder, Range, Res, Source, Str, Value, View, list, string, text, tuple, type_name, undefined};
use std::cmp::Ordering;
use std::rc::Rc;

/// A number. `True` and `False` are 1 and 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Num {
    Int(i64),
    Float(f64),
}

impl Num {
    pub(super) fn of(value: &Value) -> Option<Num> {
        match value {
            Value::Bool(x) => Some(Num::Int(i64::from(*x))),
            Value::Int(n) => Some(Num::Int(*n)),
            Value::Float(x) => Some(Num::Float(*x)),
            _ => None,
        }
    }

    pub(super) fn float(self) -> f64 {
        match self {
            Num::Int(n) => n as f64,
            Num::Float(x) => x,
        }
    }
}

/// An integer, of what Python takes for one.
pub(super) fn int(value: &Value) -> Res<i64> {
    match (Num::of(value), value) {
        (Some(Num::Int(n)), _) => Ok(n),
        (_, Value::Undefined(why)) => Err(why.to_string()),
        _ => Err(format!("'{}' object cannot be interpreted as an integer", type_name(value))),
    }
}

fn large<T>(n: Option<T>) -> Res<T> {
    n.ok_or_else(|| "an integer has more than 64 bits, which is the limit".into())
}

pub(super) fn negate(value: &Value) -> Res<Value> {
    match Num::of(value) {
        Some(Num::Int(n)) => large(n.checked_neg()).map(Value::Int),
        Some(Num::Float(x)) => Ok(Value::Float(-x)),
        None => Err(unsupported("unary -", value)),
    }
}

pub(super) fn plus(value: &Value) -> Res<Value> {
    match Num::of(value) {
        Some(Num::Int(n)) => Ok(Value::Int(n)),
        Some(Num::Float(x)) => Ok(Value::Float(x)),
        None => Err(unsupported("unary +", value)),
    }
}

fn unsupported(op: &str, value: &Value) -> String {
    match value {
        Value::Undefined(why) => why.to_string(),
        _ => format!("bad operand type for {op}: '{}'", type_name(value)),
    }
}

pub(super) fn binary(op: Binary, a: &Value, b: &Value) -> Res<Value> {
    if let (Value::Undefined(why), _) | (_, Value::Undefined(why)) = (a, b)
        && !matches!((op, a), (Binary::Mod, Value::Str(_)))
    {
        return Err(why.to_string());
    }
    match (op, a, b) {
        (Binary::Mod, Value::Str(format), _) => percent(format, b),
        (Binary::Add, Value::Str(x), Value::Str(y)) => {
            room(1, x.len() + y.len())?;
            if !x.is_safe() && !y.is_safe() {
                return text([&**x, &**y].concat());
            }
            let (x, y) = (if x.is_safe() { x.to_string() } else { escape(x)? }, y);
            let y = if y.is_safe() { y.to_string() } else { escape(y)? };
            Ok(Value::Str(Str::safe(x + &y)?))
        }
        (Binary::Add, Value::List(x), Value::List(y)) | (Binary::Add, Value::Tuple(x), Value::Tuple(y)) => {
            room(x.items.len() + y.items.len(), size_of::<Value>())?;
            step((x.items.len() + y.items.len()) as u64)?;
            let all = x.items.iter().chain(&y.items).cloned().collect();
            if matches!(a, Value::List(_)) { list(all) } else { tuple(all) }
        }
        (Binary::Mul, x, Value::Int(_) | Value::Bool(_)) if is_sequence(x) => repeat(x, int(b)?),
        (Binary::Mul, Value::Int(_) | Value::Bool(_), y) if is_sequence(y) => repeat(y, int(a)?),
        _ => match (Num::of(a), Num::of(b)) {
            (Some(Num::Int(x)), Some(Num::Int(y))) => integers(op, x, y),
            (Some(x), Some(y)) => floats(op, x.float(), y.float()).map(Value::Float),
            _ => Err(match (op, a, b) {
                (Binary::Add, Value::Str(_), _) => {
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

fn repeat(value: &Value, times: i64) -> Res<Value> {
    let times = usize::try_from(times).unwrap_or(0);
    match value {
        Value::List(all) | Value::Tuple(all) => {
            room(times.saturating_mul(all.items.len()), size_of::<Value>())?;
            step((times * all.items.len()) as u64)?;
            let times = if all.items.is_empty() { 0 } else { times };
            let items = (0..times).flat_map(|_| all.items.iter().cloned()).collect();
            if matches!(value, Value::List(_)) { list(items) } else { tuple(items) }
        }
        other => {
            let unit = string(other)?;
            room(times, unit.len())?;
            text(unit.repeat(if unit.is_empty() { 0 } else { times }))
        }
    }
}

fn integers(op: Binary, x: i64, y: i64) -> Res<Value> {
    let zero = || Err("division by zero".to_string());
    Ok(Value::Int(match op {
        Binary::Add => large(x.checked_add(y))?,
        Binary::Sub => large(x.checked_sub(y))?,
        Binary::Mul => large(x.checked_mul(y))?,
        Binary::Div | Binary::FloorDiv | Binary::Mod if y == 0 => return zero(),
        Binary::Div => return Ok(Value::Float(x as f64 / y as f64)),
        Binary::FloorDiv => large(x.checked_div(y))? - i64::from(x.wrapping_rem(y) != 0 && (x < 0) != (y < 0)),
        Binary::Mod => {
            let rest = x.wrapping_rem(y);
            if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
        }
        Binary::Pow if y < 0 => return floats(op, x as f64, y as f64).map(Value::Float),
        Binary::Pow => match (x, u32::try_from(y)) {
            (0 | 1, _) => x.pow(u32::from(y > 0)),
            (-1, _) => [1, -1][usize::from(y % 2 != 0)],
            (_, Ok(y)) => large(x.checked_pow(y))?,
            _ => large(None)?,
        },
    }))
}

fn floats(op: Binary, x: f64, y: f64) -> Res<f64> {
    let modulo = || {
        let rest = x % y;
        match rest != 0.0 {
            true if (rest < 0.0) != (y < 0.0) => rest + y,
            true => rest,
            false => 0f64.copysign(y),
        }
    };
    Ok(match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div | Binary::FloorDiv | Binary::Mod if y == 0.0 => return Err("division by zero".into()),
        Binary::Div => x / y,
        Binary::Mod => modulo(),
        Binary::FloorDiv => {
            let quotient = (x - modulo()) / y;
            let floor = quotient.floor();
            match quotient == 0.0 {
                true => 0f64.copysign(x / y),
                false => floor + f64::from(u8::from(quotient - floor > 0.5)),
            }
        }
        Binary::Pow if x == 0.0 && y < 0.0 => return Err("0.0 cannot be raised to a negative power".into()),
        Binary::Pow if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 => {
            return Err("a power is a complex number".into());
        }
        Binary::Pow => match x.powf(y) {
            power if power.is_infinite() && x.is_finite() && y.is_finite() => {
                return Err("a power is too large for a float".into());
            }
            power => power,
        },
    })
}

/// How two numbers compare. Integers are not rounded for it.
fn numbers(x: Num, y: Num) -> Option<Ordering> {
    match (x, y) {
        (Num::Int(x), Num::Int(y)) => Some(x.cmp(&y)),
        (Num::Int(x), Num::Float(y)) => match y {
            y if y.is_nan() => None,
            y if y >= 9_223_372_036_854_775_808.0 => Some(Ordering::Less),
            y if y < -9_223_372_036_854_775_808.0 => Some(Ordering::Greater),
            y => Some(x.cmp(&(y.floor() as i64)).then(if y.fract() != 0.0 { Ordering::Less } else { Ordering::Equal })),
        },
        (Num::Float(_), Num::Int(_)) => numbers(y, x).map(Ordering::reverse),
        (Num::Float(x), Num::Float(y)) => x.partial_cmp(&y),
    }
}

/// `a is b`, where that follows from the values.
pub(super) fn same(a: &Value, b: &Value) -> bool {
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

pub(super) fn equal(a: &Value, b: &Value) -> Res<bool> {
    let _level = enter()?;
    if let (Some(x), Some(y)) = (Num::of(a), Num::of(b)) {
        return Ok(numbers(x, y) == Some(Ordering::Equal));
    }
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) => true,
        (Value::Str(x), Value::Str(y)) => {
            pass(x.len().min(y.len()))?;
            **x == **y
        }
        _ if same(a, b) => true,
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
        (Value::View(View::Keys | View::Items, x), Value::View(View::Keys | View::Items, y)) => {
            let (x, y) = (Source::of(a)?.rest().map(|all| (all, x))?, Source::of(b)?.rest().map(|all| (all, y))?);
            x.0.len() == y.0.len()
                && x.0.iter().map(|item| contains(item, b)).collect::<Res<Vec<_>>>()?.iter().all(|x| *x)
        }
        (Value::Range(x), Value::Range(y)) => {
            x.len == y.len && (x.len == 0 || x.start == y.start && (x.len == 1 || x.step == y.step))
        }
        _ => false,
    })
}

/// How two values compare; nothing where one isn't a number.
pub(super) fn order(a: &Value, b: &Value, op: &str) -> Res<Option<Ordering>> {
    let _level = enter()?;
    if let (Some(x), Some(y)) = (Num::of(a), Num::of(b)) {
        return Ok(numbers(x, y));
    }
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            pass(x.len().min(y.len()))?;
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

pub(super) fn compare(op: Comparison, a: &Value, b: &Value) -> Res<bool> {
    Ok(match op {
        Comparison::Eq => equal(a, b)?,
        Comparison::Ne => !equal(a, b)?,
        Comparison::In => contains(a, b)?,
        Comparison::NotIn => !contains(a, b)?,
        Comparison::Lt => order(a, b, "<")? == Some(Ordering::Less),
        Comparison::Le => order(a, b, "<=")?.is_some_and(Ordering::is_le),
        Comparison::Gt => order(a, b, ">")? == Some(Ordering::Greater),
        Comparison::Ge => order(a, b, ">=")?.is_some_and(Ordering::is_ge),
    })
}

/// `item in all`.
pub(super) fn contains(item: &Value, all: &Value) -> Res<bool> {
    match (all, item) {
        (Value::Str(all), Value::Str(item)) => {
            pass(all.len() + item.len())?;
            Ok(all.contains(&**item))
        }
        (Value::Str(_), _) => Err(format!("'in <string>' requires string as left operand, not {}", type_name(item))),
        (Value::Dict(dict) | Value::View(View::Keys, dict), _) => Ok(dict.get(item)?.is_some()),
        _ => {
            let mut source =
                Source::of(all).map_err(|_| format!("argument of type '{}' is not iterable", type_name(all)))?;
            while let Some(found) = source.next()? {
                if equal(&found, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Sorts by keys, keeping the order of equal ones.
pub(super) fn sort<T>(mut items: Vec<(Value, T)>, reverse: bool) -> Res<Vec<(Value, T)>> {
    if items.len() < 2 {
        return Ok(items);
    }
    let _level = enter()?;
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

/// A place counted from the beginning, of one that may be counted from the end.
fn place(at: i64, len: usize) -> Option<usize> {
    let at = if at < 0 { at.checked_add(len as i64)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// `value[key]`.
pub(super) fn item(value: &Value, key: &Value) -> Res<Value> {
    let missing = || match key {
        Value::Str(name) => attribute(value, name, false),
        _ => undefined(format!("'{} object' has no element {}", type_name(value), string(key)?.to_string())),
    };
    let at = match Num::of(key) {
        Some(Num::Int(at)) => Some(at),
        _ => None,
    };
    let found = match (value, at) {
        (Value::Undefined(why), _) => return Err(why.to_string()),
        (Value::Str(text), Some(at)) => {
            pass(text.len())?;
            let c = if at < 0 {
                text.chars().rev().nth(usize::try_from(-(at + 1)).unwrap_or(usize::MAX))
            } else {
                text.chars().nth(usize::try_from(at).unwrap_or(usize::MAX))
            };
            c.map(|c| Str::new(c).map(Value::Str)).transpose()?
        }
        (Value::List(list) | Value::Tuple(list), Some(at)) => {
            place(at, list.items.len()).map(|at| list.items[at].clone())
        }
        (Value::Range(range), Some(at)) => place(at, range.len).map(|at| range.at(at)),
        (Value::Dict(dict), _) => match super::value::hashable(key) {
            Ok(()) => dict.get(key)?.cloned(),
            Err(_) => None,
        },
        _ => None,
    };
    found.map_or_else(missing, Ok)
}

/// The name of a method in a table of those of types.
pub(super) fn method(value: &Value, name: &str, table: Table) -> Option<&'static str> {
    let names = table.iter().find(|(kind, _)| *kind == type_name(value))?.1;
    names.iter().find(|known| **known == name).copied()
}

/// `value.name`, which is `value['name']` where there is no attribute and `items`.
pub(super) fn attribute(value: &Value, name: &str, items: bool) -> Res<Value> {
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
            "arguments" => Some(tuple(m.def.params.iter().map(|(name, _)| text(&**name)).collect::<Res<_>>()?)?),
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
    if method(value, name, REFUSED).is_some() || name.starts_with("__") && name.ends_with("__") {
        return undefined(format!("access to attribute '{name}' of '{kind}' object is unsafe."));
    }
    if let (Value::Dict(dict), true) = (value, items)
        && let Some(found) = dict.text(name)?
    {
        return Ok(found.clone());
    }
    step(2)?;
    undefined(format!("'{kind} object' has no attribute '{name}'"))
}

/// `value[start:stop:step]`.
pub(super) fn slice(value: &Value, parts: [Option<i64>; 3]) -> Res<Value> {
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
    step(count as u64 / 8)?;
    match value {
        Value::List(list_) => list(places.map(|at| list_.items[at].clone()).collect()),
        Value::Tuple(tuple_) => tuple(places.map(|at| tuple_.items[at].clone()).collect()),
        Value::Range(range) => {
            let at = |i: i64| large(range.step.checked_mul(i).and_then(|distance| range.start.checked_add(distance)));
            let by = large(range.step.checked_mul(step_by))?;
            Ok(Value::Range(Rc::new(Range { start: at(start)?, stop: at(stop)?, step: by, len: count })))
        }
        other => {
            let of = string(other)?;
            pass(of.len())?;
            let mut out = Builder::default();
            if step_by == 1 {
                let place = |at: i64| of.char_indices().nth(at as usize).map_or(of.len(), |(at, _)| at);
                out.push(if count > 0 { &of[place(start)..place(stop)] } else { "" })?;
            } else {
                room(of.len(), 4)?;
                let chars: Vec<char> = of.chars().collect();
                places.map(|at| out.push_char(chars[at])).collect::<Res<()>>()?;
            }
            out.finish()
        }
    }
}

/// A text with the characters of HTML written as such.
pub(super) fn escape(of: &str) -> Res<String> {
    room(of.len(), 6)?;
    let text = of.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Ok(text.replace('\'', "&#39;").replace('"', "&#34;"))
}
