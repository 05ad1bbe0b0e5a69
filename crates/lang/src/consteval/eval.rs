//! Evaluates constant expressions. Every error has the span of the subexpression that caused it.

use super::value::{ConstValue, Ternary};
use crate::ast::{Arg, BinaryOp, CompareOp, Expr, ExprKind, IndexItem, UnaryOp};
use crate::dims::Dim;
use crate::span::Span;

/// Resolves names to values.
pub trait NameResolver {
    /// The value of a name; `None` if it is not constant.
    fn value(&self, name: &str) -> Option<ConstValue>;

    /// Whether a name is a tensor, which is never constant.
    fn is_tensor(&self, name: &str) -> bool;

    /// Whether an optional tensor is present; `None` if that is unknown.
    fn is_present(&self, name: &str) -> Option<bool> {
        let _ = name;
        None
    }

    /// The assumption about an open condition on parameters.
    fn assumed_truth(&self, condition: &str) -> Option<bool>;

    /// Receives a condition that an `if else` needs decided; a checker may then assume both values in turn.
    fn request_decision(&self, condition: &str) {
        let _ = condition;
    }
}

/// Why an expression has no constant value.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalError {
    /// The subexpression that caused the error.
    pub span: Span,
    /// The kind of the error.
    pub kind: EvalErrorKind,
}

/// The kinds of evaluation errors.
#[derive(Clone, Debug, PartialEq)]
pub enum EvalErrorKind {
    /// An undefined name.
    Undefined(String),
    /// It depends on a tensor.
    Runtime(String),
    /// The operation does not accept its operands; the message explains why.
    Type(String),
    /// Division by zero.
    ZeroDivision,
    /// Not a function of constant expressions.
    NotAFunction(String),
}

type EvalResult = Result<ConstValue, EvalError>;

/// The maximum number of terms of a size; this bounds the work on malicious files.
const MAX_TERMS: usize = 4096;

/// The functions that constant expressions may call (§3.7.1).
pub(crate) const INTRINSICS: &[&str] =
    &["sqrt", "ceil_div", "min", "max", "abs", "log", "exp", "len", "contains", "given"];

/// The name under which the arguments of an array's elements find their index, which is written `{layer}`.
pub(crate) const INDEX: &str = "{index}";

/// Evaluates a constant expression.
pub fn eval(expr: &Expr, names: &dyn NameResolver) -> EvalResult {
    let fail = |kind| Err(EvalError { span: expr.span, kind });
    match &expr.kind {
        // Integers and floats have 32 bits (§3.1).
        ExprKind::Int(value) if i32::try_from(*value).is_err() => {
            fail(EvalErrorKind::Type(format!("{value} does not fit in an int of 32 bits")))
        }
        ExprKind::Float(value) if value.is_finite() && (*value as f32).is_infinite() => {
            fail(EvalErrorKind::Type(format!("{value:e} does not fit in a float of 32 bits")))
        }
        ExprKind::Int(value) => Ok(ConstValue::int(*value)),
        ExprKind::Float(value) => Ok(ConstValue::Float(Some(*value))),
        ExprKind::Str(text) => Ok(ConstValue::Str(text.clone())),
        ExprKind::Bool(value) => Ok(ConstValue::bool(*value)),
        ExprKind::None => Ok(ConstValue::None),
        ExprKind::Name(name) => match names.value(name) {
            Some(ConstValue::Bool(Ternary::Undecided(condition))) => {
                Ok(ConstValue::Bool(decide_condition(condition, names)))
            }
            Some(value) => Ok(value),
            None if names.is_tensor(name) => fail(EvalErrorKind::Runtime(name.clone())),
            None => fail(EvalErrorKind::Undefined(name.clone())),
        },
        ExprKind::Paren(inner) => eval(inner, names),
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            Ok(ConstValue::List(items.iter().map(|item| eval(item, names)).collect::<Result<_, _>>()?))
        }
        ExprKind::Unary(op, inner) => {
            // The magnitude of the smallest integer exceeds the largest integer by one.
            let value = match (op, &inner.kind) {
                (UnaryOp::Neg, ExprKind::Int(2_147_483_648)) => ConstValue::int(2_147_483_648),
                _ => eval(inner, names)?,
            };
            unary(*op, value).map_err(|words| EvalError { span: expr.span, kind: EvalErrorKind::Type(words) })
        }
        ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), left, right) => eval_logic(*op, left, right, names),
        ExprKind::Binary(op, left, right) => {
            let (a, b) = (eval(left, names)?, eval(right, names)?);
            arithmetic(*op, a, b).map_err(|kind| EvalError { span: expr.span, kind })
        }
        ExprKind::Compare(first, rest) => {
            let mut left = eval(first, names)?;
            let mut result = Ternary::Known(true);
            for (op, right) in rest {
                let right_value = eval(right, names)?;
                let truth = compare(*op, &left, &right_value, names)
                    .map_err(|words| EvalError { span: expr.span, kind: EvalErrorKind::Type(words) })?;
                match truth {
                    Ternary::Known(true) => {}
                    Ternary::Known(false) => return Ok(ConstValue::bool(false)),
                    open if result == Ternary::Known(true) => result = open,
                    Ternary::Undecided(_) => {}
                }
                left = right_value;
            }
            Ok(ConstValue::Bool(result))
        }
        ExprKind::IfElse { then, condition, otherwise } => match truth(condition, names)? {
            Ternary::Known(true) => eval(then, names),
            Ternary::Known(false) => eval(otherwise, names),
            Ternary::Undecided(open) => {
                names.request_decision(&open);
                let (a, b) = (eval(then, names)?, eval(otherwise, names)?);
                Ok(if a == b { a } else { ConstValue::Unknown })
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
                        let open = || decide_condition(format!("given({tensor})"), names);
                        Ok(ConstValue::Bool(names.is_present(tensor).map_or_else(open, Ternary::Known)))
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
            // Only tensors have a shape, also absent optional ones.
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
fn element(expr: &Expr, base: &Expr, items: &[IndexItem], names: &dyn NameResolver) -> EvalResult {
    let fail = |span, words: String| Err(EvalError { span, kind: EvalErrorKind::Type(words) });
    let list = eval(base, names)?;
    let [IndexItem::At(place)] = items else {
        return fail(expr.span, "a list takes one index, such as `list[0]`".to_string());
    };
    let index = eval(place, names)?;
    match (list, &index) {
        (ConstValue::Unknown, _) | (_, ConstValue::Unknown) => Ok(ConstValue::Unknown),
        (ConstValue::List(list), ConstValue::Int(n)) => {
            let Some(n) = n.as_constant() else { return Ok(ConstValue::Unknown) };
            let at = if n < 0 { n + list.len() as i64 } else { n };
            match usize::try_from(at).ok().and_then(|at| list.get(at)) {
                Some(found) => Ok(found.clone()),
                None => fail(place.span, format!("index {n} is out of range for a list of {} elements", list.len())),
            }
        }
        (ConstValue::List(_), other) => fail(place.span, format!("an index must be an int, found {}", other.kind())),
        (other, _) => fail(base.span, format!("only a list can be indexed, this is {}", other.kind())),
    }
}

/// Evaluates a condition to a three-valued boolean.
pub(crate) fn truth(expr: &Expr, names: &dyn NameResolver) -> Result<Ternary, EvalError> {
    match eval(expr, names)? {
        ConstValue::Bool(truth) => Ok(truth),
        ConstValue::Unknown => Ok(decide_condition("?".to_string(), names)),
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

fn decide_condition(condition: String, names: &dyn NameResolver) -> Ternary {
    names.assumed_truth(&condition).map_or(Ternary::Undecided(condition), Ternary::Known)
}

fn unary(op: UnaryOp, value: ConstValue) -> Result<ConstValue, String> {
    match (op, value) {
        (_, ConstValue::Unknown) => Ok(ConstValue::Unknown),
        (UnaryOp::Neg, ConstValue::Int(dim)) => Ok(ConstValue::Int(-dim)),
        (UnaryOp::Neg, ConstValue::Float(value)) => Ok(ConstValue::Float(value.map(|v| -v))),
        (UnaryOp::Not | UnaryOp::Bang, ConstValue::Bool(Ternary::Known(value))) => Ok(ConstValue::bool(!value)),
        (UnaryOp::Not | UnaryOp::Bang, open @ ConstValue::Bool(_)) => Ok(open),
        (UnaryOp::Neg, other) => Err(format!("cannot negate {}", other.kind())),
        (_, other) => Err(format!("`not` needs a condition, found {}", other.kind())),
    }
}

fn eval_logic(op: BinaryOp, left: &Expr, right: &Expr, names: &dyn NameResolver) -> EvalResult {
    let a = truth(left, names)?;
    let b = truth(right, names)?;
    let deciding = op == BinaryOp::Or;
    Ok(ConstValue::Bool(match (a, b) {
        (Ternary::Known(x), _) | (_, Ternary::Known(x)) if x == deciding => Ternary::Known(deciding),
        (Ternary::Known(_), other) | (other, Ternary::Known(_)) => other,
        (first @ Ternary::Undecided(_), Ternary::Undecided(_)) => first,
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

fn arithmetic(op: BinaryOp, a: ConstValue, b: ConstValue) -> Result<ConstValue, EvalErrorKind> {
    let float = |value: &ConstValue| match value {
        ConstValue::Float(value) => Some(*value),
        ConstValue::Int(dim) => Some(dim.as_constant().map(|n| n as f64)),
        _ => None,
    };
    if matches!((&a, &b), (ConstValue::Unknown, _) | (_, ConstValue::Unknown)) {
        return Ok(ConstValue::Unknown);
    }
    if let (ConstValue::Int(x), ConstValue::Int(y)) = (&a, &b) {
        if x.term_count() * y.term_count() > MAX_TERMS {
            return Ok(ConstValue::Unknown);
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
            return Ok(ConstValue::Int(dim));
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
            Ok(ConstValue::Float(x.zip(y).map(|(x, y)| apply(x, y))))
        }
        _ => Err(EvalErrorKind::Type(format!("`{}` cannot be applied to {} and {}", op.symbol(), a.kind(), b.kind()))),
    }
}

/// An integer power, if the exponent is a constant that is not too large.
fn power(base: &Dim, exponent: &Dim) -> Option<Dim> {
    let exponent = u32::try_from(exponent.as_constant()?).ok()?;
    match base.as_constant() {
        Some(base) => base.checked_pow(exponent).map(Dim::constant),
        None if exponent <= 8 && base.term_count().pow(exponent) <= MAX_TERMS => Some(base.pow(exponent)),
        None => None,
    }
}

fn compare(op: CompareOp, a: &ConstValue, b: &ConstValue, names: &dyn NameResolver) -> Result<Ternary, String> {
    use std::cmp::Ordering;
    let open = || decide_condition(format!("{a} {} {b}", op.symbol()), names);
    let test = |order: Option<Ordering>| match order {
        None => Ternary::Known(op == CompareOp::Ne),
        Some(order) => Ternary::Known(match op {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }),
    };
    let equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
    let same = |same: bool| Ok(Ternary::Known(same == (op == CompareOp::Eq)));
    match (a, b) {
        (ConstValue::Unknown, _) | (_, ConstValue::Unknown) => Ok(open()),
        (ConstValue::Int(x), ConstValue::Int(y)) => {
            Ok((x.clone() - y.clone()).as_constant().map_or_else(open, |difference| test(Some(difference.cmp(&0)))))
        }
        (ConstValue::Float(x), ConstValue::Float(y)) => {
            Ok(x.zip(*y).map_or_else(open, |(x, y)| test(x.partial_cmp(&y))))
        }
        (ConstValue::Int(x), ConstValue::Float(y)) => {
            Ok(x.as_constant().zip(*y).map_or_else(open, |(x, y)| test((x as f64).partial_cmp(&y))))
        }
        (ConstValue::Float(x), ConstValue::Int(y)) => {
            Ok(x.zip(y.as_constant()).map_or_else(open, |(x, y)| test(x.partial_cmp(&(y as f64)))))
        }
        (ConstValue::None, ConstValue::None) if equality => same(true),
        (ConstValue::None, _) | (_, ConstValue::None) if equality => same(false),
        (ConstValue::Bool(Ternary::Known(x)), ConstValue::Bool(Ternary::Known(y))) if equality => same(x == y),
        (ConstValue::Bool(_), ConstValue::Bool(_)) if equality => Ok(open()),
        (ConstValue::Str(x) | ConstValue::Identifier(x), ConstValue::Str(y) | ConstValue::Identifier(y))
            if equality =>
        {
            same(x == y)
        }
        (ConstValue::List(x), ConstValue::List(y)) if equality => same(x == y),
        _ => Err(format!("`{}` cannot compare {} with {}", op.symbol(), a.kind(), b.kind())),
    }
}

fn intrinsic(name: &str, values: Vec<ConstValue>) -> Result<ConstValue, EvalErrorKind> {
    let wrong = || EvalErrorKind::Type(format!("`{name}` does not take these arguments"));
    if values.contains(&ConstValue::Unknown) {
        return Ok(ConstValue::Unknown);
    }
    match (name, &values[..]) {
        ("sqrt", [ConstValue::Int(x)]) => Ok(ConstValue::Float(x.as_constant().map(|n| (n as f64).sqrt()))),
        ("sqrt", [ConstValue::Float(x)]) => Ok(ConstValue::Float(x.map(f64::sqrt))),
        ("log", [ConstValue::Int(x)]) => Ok(ConstValue::Float(x.as_constant().map(|n| (n as f64).ln()))),
        ("log", [ConstValue::Float(x)]) => Ok(ConstValue::Float(x.map(f64::ln))),
        ("exp", [ConstValue::Int(x)]) => Ok(ConstValue::Float(x.as_constant().map(|n| (n as f64).exp()))),
        ("exp", [ConstValue::Float(x)]) => Ok(ConstValue::Float(x.map(f64::exp))),
        ("len", [ConstValue::List(items)]) => Ok(ConstValue::int(items.len() as i64)),
        ("len", [ConstValue::None]) => Ok(ConstValue::int(0)),
        ("contains", [ConstValue::None, _]) => Ok(ConstValue::bool(false)),
        ("contains", [ConstValue::List(items), ConstValue::Int(x)])
            if !items.is_empty() && x.as_constant().is_none() =>
        {
            Ok(ConstValue::Unknown)
        }
        ("contains", [ConstValue::List(items), x]) => Ok(ConstValue::bool(items.contains(x))),
        ("abs", [ConstValue::Float(x)]) => Ok(ConstValue::Float(x.map(f64::abs))),
        ("abs", [ConstValue::Int(x)]) => Ok(ConstValue::Int(x.clone().max(-x.clone()))),
        ("ceil_div", [ConstValue::Int(_), ConstValue::Int(b)]) if b.is_zero() => Err(EvalErrorKind::ZeroDivision),
        ("ceil_div", [ConstValue::Int(a), ConstValue::Int(b)]) => match a.divide_exactly(b) {
            Some(quotient) => Ok(ConstValue::Int(quotient)),
            None => Ok(ConstValue::Int((a.clone() + b.clone() - Dim::constant(1)).floor_div(b))),
        },
        ("min" | "max", [ConstValue::Int(a), ConstValue::Int(b)]) => {
            Ok(ConstValue::Int(if name == "min" { a.clone().min(b.clone()) } else { a.clone().max(b.clone()) }))
        }
        ("min" | "max", [ConstValue::Float(a), ConstValue::Float(b)]) => {
            Ok(ConstValue::Float(a.zip(*b).map(|(a, b)| if name == "min" { a.min(b) } else { a.max(b) })))
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

    /// Test names: `n`, `m` are sizes, `flag` is open, `half` is 0.5, `x` is a tensor.
    struct Given;

    impl NameResolver for Given {
        fn value(&self, name: &str) -> Option<ConstValue> {
            let symbol = |rank| ConstValue::Int(Dim::symbol(Symbol { scope: 0, rank, name: name.into() }));
            Some(match name {
                "n" => symbol(0),
                "m" => symbol(1),
                "flag" => ConstValue::Bool(Ternary::Undecided("flag".to_string())),
                "half" => ConstValue::Float(Some(0.5)),
                _ => return None,
            })
        }

        fn is_tensor(&self, name: &str) -> bool {
            name == "x"
        }

        fn assumed_truth(&self, _condition: &str) -> Option<bool> {
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
            ("[3, 5][2]", "Type(\"index 2 is out of range for a list of 2 elements\")"),
            ("half[0]", "Type(\"only a list can be indexed, this is a float\")"),
            ("len([3, 5]) + len(None)", "2"),
            ("contains([3, 5], 5) and not contains(None, 5)", "true"),
            ("contains([], n)", "false"),
            ("given(x)", "given(x)"),
            ("given(n)", "Type(\"`given` needs the name of an optional tensor\")"),
            (
                "{layer} + 1",
                "Type(\"`{layer}` is the index of an array element and is only allowed in its arguments\")",
            ),
        ] {
            let shown = value(text);
            assert_eq!(shown, expected, "{text}");
        }
    }
}
