//! Evaluation. Every failure names the part of the expression that caused it.

use super::value::{Truth, Value};
use crate::ast::{Arg, BinaryOp, CompareOp, Expr, ExprKind, IndexItem, UnaryOp};
use crate::dims::Dim;
use crate::span::Span;

/// Where names get their values.
pub trait Names {
    /// The value of a name; `None` if it has no constant one.
    fn value(&self, name: &str) -> Option<Value>;

    /// Whether a name stands for a tensor, which is never constant.
    fn is_tensor(&self, name: &str) -> bool;

    /// Whether an optional tensor is there; `None` if that is not known.
    fn given(&self, name: &str) -> Option<bool> {
        let _ = name;
        None
    }

    /// What is assumed about a condition that parameters leave open.
    fn assumed(&self, condition: &str) -> Option<bool>;

    /// Told of a condition that an `if else` needs decided; a checker may come back with it assumed both ways.
    fn wish(&self, condition: &str) {
        let _ = condition;
    }
}

/// Why an expression has no constant value.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalError {
    /// The part of the expression that is to blame.
    pub span: Span,
    /// What is wrong with it.
    pub kind: EvalErrorKind,
}

/// What can be wrong with an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum EvalErrorKind {
    /// No such name.
    Undefined(String),
    /// It depends on a tensor.
    Runtime(String),
    /// The operation does not fit its operands; the words say how.
    Type(String),
    /// Division by zero.
    ZeroDivision,
    /// Not a function of constant expressions.
    NotAFunction(String),
}

type EvalResult = Result<Value, EvalError>;

/// Sizes with more terms than any architecture has are not followed; this bounds the work on strange files.
const MAX_TERMS: usize = 4096;

/// The functions that constant expressions may call (§3.7.1).
pub(crate) const INTRINSICS: &[&str] =
    &["sqrt", "ceil_div", "min", "max", "abs", "log", "exp", "len", "contains", "given"];

/// The name under which an array's elements find their index: what `{layer}` stands for among their arguments.
pub(crate) const INDEX: &str = "{index}";

/// Evaluates a constant expression.
pub fn eval(expr: &Expr, names: &dyn Names) -> EvalResult {
    let fail = |kind| Err(EvalError { span: expr.span, kind });
    match &expr.kind {
        // Ints and floats have 32 bits (§3.1).
        ExprKind::Int(value) if i32::try_from(*value).is_err() => {
            fail(EvalErrorKind::Type(format!("{value} does not fit in an int of 32 bits")))
        }
        ExprKind::Float(value) if value.is_finite() && (*value as f32).is_infinite() => {
            fail(EvalErrorKind::Type(format!("{value:e} does not fit in a float of 32 bits")))
        }
        ExprKind::Int(value) => Ok(Value::int(*value)),
        ExprKind::Float(value) => Ok(Value::Float(Some(*value))),
        ExprKind::Str(text) => Ok(Value::Str(text.clone())),
        ExprKind::Bool(value) => Ok(Value::bool(*value)),
        ExprKind::None => Ok(Value::None),
        ExprKind::Name(name) => match names.value(name) {
            Some(Value::Bool(Truth::Open(condition))) => Ok(Value::Bool(decide(condition, names))),
            Some(value) => Ok(value),
            None if names.is_tensor(name) => fail(EvalErrorKind::Runtime(name.clone())),
            None => fail(EvalErrorKind::Undefined(name.clone())),
        },
        ExprKind::Paren(inner) => eval(inner, names),
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            Ok(Value::List(items.iter().map(|item| eval(item, names)).collect::<Result<_, _>>()?))
        }
        ExprKind::Unary(op, inner) => {
            // The smallest int is one further from 0 than the largest.
            let value = match (op, &inner.kind) {
                (UnaryOp::Neg, ExprKind::Int(2_147_483_648)) => Value::int(2_147_483_648),
                _ => eval(inner, names)?,
            };
            unary(*op, value).map_err(|words| EvalError { span: expr.span, kind: EvalErrorKind::Type(words) })
        }
        ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), left, right) => logic(*op, left, right, names),
        ExprKind::Binary(op, left, right) => {
            let (a, b) = (eval(left, names)?, eval(right, names)?);
            arithmetic(*op, a, b).map_err(|kind| EvalError { span: expr.span, kind })
        }
        ExprKind::Compare(first, rest) => {
            let mut left = eval(first, names)?;
            let mut result = Truth::Known(true);
            for (op, right) in rest {
                let right_value = eval(right, names)?;
                let truth = compare(*op, &left, &right_value, names)
                    .map_err(|words| EvalError { span: expr.span, kind: EvalErrorKind::Type(words) })?;
                match truth {
                    Truth::Known(true) => {}
                    Truth::Known(false) => return Ok(Value::bool(false)),
                    open if result == Truth::Known(true) => result = open,
                    Truth::Open(_) => {}
                }
                left = right_value;
            }
            Ok(Value::Bool(result))
        }
        ExprKind::IfElse { then, condition, otherwise } => match truth(condition, names)? {
            Truth::Known(true) => eval(then, names),
            Truth::Known(false) => eval(otherwise, names),
            Truth::Open(open) => {
                names.wish(&open);
                let (a, b) = (eval(then, names)?, eval(otherwise, names)?);
                Ok(if a == b { a } else { Value::Unknown })
            }
        },
        ExprKind::Call(callee, args) => {
            let Some(name) = callee.as_name() else {
                return fail(EvalErrorKind::NotAFunction("this".to_string()));
            };
            if name == "given" {
                return match &args[..] {
                    [Arg { value, name: None, .. }] if value.as_name().is_some_and(|name| names.is_tensor(name)) => {
                        let tensor = value.as_name().unwrap_or_default();
                        let open = || decide(format!("given({tensor})"), names);
                        Ok(Value::Bool(names.given(tensor).map_or_else(open, Truth::Known)))
                    }
                    _ => fail(EvalErrorKind::Type("`given` needs the name of an optional tensor".to_string())),
                };
            }
            if !INTRINSICS.contains(&name) {
                return fail(EvalErrorKind::NotAFunction(name.to_string()));
            }
            let values = args.iter().map(|arg| eval(&arg.value, names)).collect::<Result<Vec<_>, _>>()?;
            intrinsic(name, values).map_err(|kind| EvalError { span: expr.span, kind })
        }
        ExprKind::Index(base, items) if !is_shape(expr) && root(base).is_none_or(|name| !names.is_tensor(name)) => {
            element(expr, base, items, names)
        }
        ExprKind::Placeholder(name) => match names.value(INDEX) {
            Some(index) => Ok(index),
            None => fail(EvalErrorKind::Type(format!(
                "`{{{}}}` is the index of an array element and is only allowed in its arguments",
                name.name
            ))),
        },
        ExprKind::Attr(base, _) | ExprKind::Index(base, _) => match root(base) {
            Some(name) if names.is_tensor(name) => fail(EvalErrorKind::Runtime(name.to_string())),
            // Only tensors have a shape, whether this one is there or not.
            Some(name) if is_shape(expr) => fail(EvalErrorKind::Runtime(name.to_string())),
            Some(name) if names.value(name).is_none() => fail(EvalErrorKind::Undefined(name.to_string())),
            _ => fail(EvalErrorKind::Type("constants have no members".to_string())),
        },
        ExprKind::Dict(_) | ExprKind::Spread(_) | ExprKind::Ellipsis | ExprKind::Star => {
            fail(EvalErrorKind::Type("not a constant expression".to_string()))
        }
    }
}

/// `list[i]`; negative numbers count from the end.
fn element(expr: &Expr, base: &Expr, items: &[IndexItem], names: &dyn Names) -> EvalResult {
    let fail = |span, words: String| Err(EvalError { span, kind: EvalErrorKind::Type(words) });
    let list = eval(base, names)?;
    let [IndexItem::At(place)] = items else {
        return fail(expr.span, "a list takes one index, such as `list[0]`".to_string());
    };
    let index = eval(place, names)?;
    match (list, &index) {
        (Value::Unknown, _) | (_, Value::Unknown) => Ok(Value::Unknown),
        (Value::List(list), Value::Int(n)) => {
            let Some(n) = n.as_constant() else { return Ok(Value::Unknown) };
            let at = if n < 0 { n + list.len() as i64 } else { n };
            match usize::try_from(at).ok().and_then(|at| list.get(at)) {
                Some(found) => Ok(found.clone()),
                None => fail(place.span, format!("index {n} is out of range for a list of {} elements", list.len())),
            }
        }
        (Value::List(_), other) => fail(place.span, format!("an index must be an int, found {}", other.kind())),
        (other, _) => fail(base.span, format!("only a list can be indexed, this is {}", other.kind())),
    }
}

/// Evaluates a condition.
pub(crate) fn truth(expr: &Expr, names: &dyn Names) -> Result<Truth, EvalError> {
    match eval(expr, names)? {
        Value::Bool(truth) => Ok(truth),
        Value::Unknown => Ok(decide("?".to_string(), names)),
        other => {
            let kind = EvalErrorKind::Type(format!("expected a condition, found {}", other.kind()));
            Err(EvalError { span: expr.span, kind })
        }
    }
}

fn root(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Name(name) => Some(name),
        ExprKind::Attr(base, _) | ExprKind::Index(base, _) => root(base),
        _ => None,
    }
}

fn decide(condition: String, names: &dyn Names) -> Truth {
    names.assumed(&condition).map_or(Truth::Open(condition), Truth::Known)
}

fn unary(op: UnaryOp, value: Value) -> Result<Value, String> {
    match (op, value) {
        (_, Value::Unknown) => Ok(Value::Unknown),
        (UnaryOp::Neg, Value::Int(dim)) => Ok(Value::Int(-dim)),
        (UnaryOp::Neg, Value::Float(value)) => Ok(Value::Float(value.map(|v| -v))),
        (UnaryOp::Not | UnaryOp::Bang, Value::Bool(Truth::Known(value))) => Ok(Value::bool(!value)),
        (UnaryOp::Not | UnaryOp::Bang, open @ Value::Bool(_)) => Ok(open),
        (UnaryOp::Neg, other) => Err(format!("cannot negate {}", other.kind())),
        (_, other) => Err(format!("`not` needs a condition, found {}", other.kind())),
    }
}

fn logic(op: BinaryOp, left: &Expr, right: &Expr, names: &dyn Names) -> EvalResult {
    let a = truth(left, names)?;
    let b = truth(right, names)?;
    let deciding = op == BinaryOp::Or;
    Ok(Value::Bool(match (a, b) {
        (Truth::Known(x), _) | (_, Truth::Known(x)) if x == deciding => Truth::Known(deciding),
        (Truth::Known(_), other) | (other, Truth::Known(_)) => other,
        (first @ Truth::Open(_), Truth::Open(_)) => first,
    }))
}

/// `x.shape`, or an element of it.
fn is_shape(expr: &Expr) -> bool {
    match &expr.peel().kind {
        ExprKind::Attr(_, member) => member.name == "shape",
        ExprKind::Index(base, _) => is_shape(base),
        _ => false,
    }
}

fn arithmetic(op: BinaryOp, a: Value, b: Value) -> Result<Value, EvalErrorKind> {
    let float = |value: &Value| match value {
        Value::Float(value) => Some(*value),
        Value::Int(dim) => Some(dim.as_constant().map(|n| n as f64)),
        _ => None,
    };
    if matches!((&a, &b), (Value::Unknown, _) | (_, Value::Unknown)) {
        return Ok(Value::Unknown);
    }
    if let (Value::Int(x), Value::Int(y)) = (&a, &b) {
        if x.term_count() * y.term_count() > MAX_TERMS {
            return Ok(Value::Unknown);
        }
        let zero = y.is_zero();
        let result = match op {
            BinaryOp::Add => Some(x.clone() + y.clone()),
            BinaryOp::Sub => Some(x.clone() - y.clone()),
            BinaryOp::Mul => Some(x.clone() * y.clone()),
            BinaryOp::FloorDiv | BinaryOp::Mod | BinaryOp::Div if zero => return Err(EvalErrorKind::ZeroDivision),
            BinaryOp::FloorDiv => Some(x.floor_div(y)),
            BinaryOp::Mod => Some(x.modulo(y)),
            BinaryOp::Pow => power(x, y),
            _ => None,
        };
        if let Some(dim) = result {
            return Ok(Value::Int(dim));
        }
    }
    match (float(&a), float(&b)) {
        (Some(x), Some(y)) => {
            let divides = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod);
            if divides && y == Some(0.0) {
                return Err(EvalErrorKind::ZeroDivision);
            }
            let apply = |x: f64, y: f64| match op {
                BinaryOp::Add => x + y,
                BinaryOp::Sub => x - y,
                BinaryOp::Mul => x * y,
                BinaryOp::Div => x / y,
                BinaryOp::FloorDiv => (x / y).floor(),
                BinaryOp::Mod => x - y * (x / y).floor(),
                _ => x.powf(y),
            };
            Ok(Value::Float(x.zip(y).map(|(x, y)| apply(x, y))))
        }
        _ => Err(EvalErrorKind::Type(format!("`{}` cannot be applied to {} and {}", op.symbol(), a.kind(), b.kind()))),
    }
}

/// An integer power, where it is one and not too large.
fn power(base: &Dim, exponent: &Dim) -> Option<Dim> {
    let exponent = u32::try_from(exponent.as_constant()?).ok()?;
    match base.as_constant() {
        Some(base) => base.checked_pow(exponent).map(Dim::constant),
        None if exponent <= 8 && base.term_count().pow(exponent) <= MAX_TERMS => Some(base.pow(exponent)),
        None => None,
    }
}

fn compare(op: CompareOp, a: &Value, b: &Value, names: &dyn Names) -> Result<Truth, String> {
    use std::cmp::Ordering;
    let open = || decide(format!("{a} {} {b}", op.symbol()), names);
    let test = |order: Option<Ordering>| match order {
        None => Truth::Known(op == CompareOp::Ne),
        Some(order) => Truth::Known(match op {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }),
    };
    let equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
    let same = |same: bool| Ok(Truth::Known(same == (op == CompareOp::Eq)));
    match (a, b) {
        (Value::Unknown, _) | (_, Value::Unknown) => Ok(open()),
        (Value::Int(x), Value::Int(y)) => {
            Ok((x.clone() - y.clone()).as_constant().map_or_else(open, |difference| test(Some(difference.cmp(&0)))))
        }
        (Value::Float(x), Value::Float(y)) => Ok(x.zip(*y).map_or_else(open, |(x, y)| test(x.partial_cmp(&y)))),
        (Value::Int(x), Value::Float(y)) => {
            Ok(x.as_constant().zip(*y).map_or_else(open, |(x, y)| test((x as f64).partial_cmp(&y))))
        }
        (Value::Float(x), Value::Int(y)) => {
            Ok(x.zip(y.as_constant()).map_or_else(open, |(x, y)| test(x.partial_cmp(&(y as f64)))))
        }
        (Value::None, Value::None) if equality => same(true),
        (Value::None, _) | (_, Value::None) if equality => same(false),
        (Value::Bool(Truth::Known(x)), Value::Bool(Truth::Known(y))) if equality => same(x == y),
        (Value::Bool(_), Value::Bool(_)) if equality => Ok(open()),
        (Value::Str(x) | Value::Word(x), Value::Str(y) | Value::Word(y)) if equality => same(x == y),
        (Value::List(x), Value::List(y)) if equality => same(x == y),
        _ => Err(format!("`{}` cannot compare {} with {}", op.symbol(), a.kind(), b.kind())),
    }
}

fn intrinsic(name: &str, values: Vec<Value>) -> Result<Value, EvalErrorKind> {
    let wrong = || EvalErrorKind::Type(format!("`{name}` does not take these arguments"));
    if values.contains(&Value::Unknown) {
        return Ok(Value::Unknown);
    }
    match (name, &values[..]) {
        ("sqrt", [Value::Int(x)]) => Ok(Value::Float(x.as_constant().map(|n| (n as f64).sqrt()))),
        ("sqrt", [Value::Float(x)]) => Ok(Value::Float(x.map(f64::sqrt))),
        ("log", [Value::Int(x)]) => Ok(Value::Float(x.as_constant().map(|n| (n as f64).ln()))),
        ("log", [Value::Float(x)]) => Ok(Value::Float(x.map(f64::ln))),
        ("exp", [Value::Int(x)]) => Ok(Value::Float(x.as_constant().map(|n| (n as f64).exp()))),
        ("exp", [Value::Float(x)]) => Ok(Value::Float(x.map(f64::exp))),
        ("len", [Value::List(items)]) => Ok(Value::int(items.len() as i64)),
        ("len", [Value::None]) => Ok(Value::int(0)),
        ("contains", [Value::None, _]) => Ok(Value::bool(false)),
        ("contains", [Value::List(items), Value::Int(x)]) if !items.is_empty() && x.as_constant().is_none() => {
            Ok(Value::Unknown)
        }
        ("contains", [Value::List(items), x]) => Ok(Value::bool(items.contains(x))),
        ("abs", [Value::Float(x)]) => Ok(Value::Float(x.map(f64::abs))),
        ("abs", [Value::Int(x)]) => Ok(Value::Int(x.clone().max(-x.clone()))),
        ("ceil_div", [Value::Int(_), Value::Int(b)]) if b.is_zero() => Err(EvalErrorKind::ZeroDivision),
        ("ceil_div", [Value::Int(a), Value::Int(b)]) => match a.divide_exactly(b) {
            Some(quotient) => Ok(Value::Int(quotient)),
            None => Ok(Value::Int((a.clone() + b.clone() - Dim::constant(1)).floor_div(b))),
        },
        ("min" | "max", [Value::Int(a), Value::Int(b)]) => {
            Ok(Value::Int(if name == "min" { a.clone().min(b.clone()) } else { a.clone().max(b.clone()) }))
        }
        ("min" | "max", [Value::Float(a), Value::Float(b)]) => {
            Ok(Value::Float(a.zip(*b).map(|(a, b)| if name == "min" { a.min(b) } else { a.max(b) })))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{Item, LetItem, SectionKind};
    use crate::dims::Symbol;
    use crate::span::FileId;

    /// `n`, `m` are sizes, `flag` is open, `half` is 0.5, `x` is a tensor.
    struct Given;

    impl Names for Given {
        fn value(&self, name: &str) -> Option<Value> {
            let symbol = |rank| Value::Int(Dim::symbol(Symbol { scope: 0, rank, name: name.into() }));
            Some(match name {
                "n" => symbol(0),
                "m" => symbol(1),
                "flag" => Value::Bool(Truth::Open("flag".to_string())),
                "half" => Value::Float(Some(0.5)),
                _ => return None,
            })
        }

        fn is_tensor(&self, name: &str) -> bool {
            name == "x"
        }

        fn assumed(&self, _condition: &str) -> Option<bool> {
            None
        }
    }

    fn value(text: &str) -> String {
        let file = crate::parser::parse(FileId::default(), &format!("module M():\n  let:\n    v = {text}\n")).file;
        let Item::Decl(decl) = &file.items[0] else { panic!("{text}") };
        let SectionKind::Let(items) = &decl.sections[0].kind else { panic!("{text}") };
        let LetItem::Bind { value, .. } = &items[0] else { panic!("{text}") };
        match eval(value, &Given) {
            Ok(value) => value.to_string(),
            Err(error) => format!("{:?}", error.kind),
        }
    }

    #[test]
    fn expressions_and_their_values() {
        for (text, expected) in [
            ("7 // 2 + 7 % 4", "6"),
            ("-7 // 2", "-4"),
            ("2 ** 3 ** 2", "512"),
            ("-2 ** 2", "-4"),
            ("(n + m) * 2 - n", "n + 2·m"),
            ("n * m // m", "n"),
            ("ceil_div(n, 8)", "(n + 7) // 8"),
            ("ceil_div(17, 8)", "3"),
            ("(2 * n - 1) // 2 + 1", "n"),
            ("(4 * n + 6 * m - 1) // 2", "2·n + 3·m - 1"),
            ("min(n, n + 1)", "n"),
            ("max(n, m)", "max(n, m)"),
            ("1.0 / sqrt(16)", "0.25"),
            ("1 / 4", "0.25"),
            ("1 < 2 <= 2 < 3", "true"),
            ("1 < 2 < 2", "false"),
            ("n < n + 1", "true"),
            ("n == m", "n == m"),
            ("n % n == 0", "true"),
            ("flag and false", "false"),
            ("flag or true", "true"),
            ("not flag", "flag"),
            ("1 if true else 2", "1"),
            ("n if flag else n", "n"),
            ("n if flag else m", "?"),
            ("None == None", "true"),
            ("\"a\" == \"b\"", "false"),
            ("half * 2", "1"),
            ("1 // 0", "ZeroDivision"),
            ("x.shape[0]", "Runtime(\"x\")"),
            ("k + 1", "Undefined(\"k\")"),
            ("reduce(n)", "NotAFunction(\"reduce\")"),
            ("log(exp(2))", "2"),
            ("[3, 5, 7][1] + [3, 5, 7][-1]", "12"),
            ("[3, 5][n]", "?"),
            ("[3, 5][2]", "Type(\"the list has 2 elements, none at 2\")"),
            ("half[0]", "Type(\"only a list has elements, this is a float\")"),
            ("len([3, 5]) + len(None)", "2"),
            ("contains([3, 5], 5) and not contains(None, 5)", "true"),
            ("contains([], n)", "false"),
            ("given(x)", "given(x)"),
            ("given(n)", "Type(\"`given` takes the name of an optional tensor\")"),
            (
                "{layer} + 1",
                "Type(\"`{layer}` is the index of an array's element, and stands among the arguments of one\")",
            ),
        ] {
            let shown = value(text);
            assert_eq!(shown, expected, "{text}");
        }
    }
}
