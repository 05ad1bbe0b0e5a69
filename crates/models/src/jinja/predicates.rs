//! Jinja's tests: `value is name(args)`.

use super::ast::TemplateCompareOp;
use super::budget::use_steps;
use super::eval::EvaluatedArgs;
use super::filters::FILTERS;
use super::ops::{binary, compare, contains, equal, is_same};
use super::value::{IterSource, Value, ValueResult, hashable, is_truthy, length, string};

/// Names of tests.
pub(super) const TESTS: [&str; 39] = [
    "odd",
    "even",
    "divisibleby",
    "defined",
    "undefined",
    "filter",
    "test",
    "none",
    "boolean",
    "false",
    "true",
    "integer",
    "float",
    "lower",
    "upper",
    "string",
    "mapping",
    "number",
    "sequence",
    "iterable",
    "callable",
    "sameas",
    "escaped",
    "in",
    "==",
    "eq",
    "equalto",
    "!=",
    "ne",
    ">",
    "gt",
    "greaterthan",
    "ge",
    ">=",
    "<",
    "lt",
    "lessthan",
    "<=",
    "le",
];

/// Applies a test.
pub(super) fn test(name: &str, value: &Value, args: &EvaluatedArgs) -> ValueResult<bool> {
    let count = match name {
        "divisibleby" | "sameas" | "in" | "==" | "eq" | "equalto" | "!=" | "ne" | ">" | "gt" | "greaterthan" | "ge"
        | ">=" | "<" | "lt" | "lessthan" | "<=" | "le" => 1,
        _ => 0,
    };
    if args.positional.len() != count || !args.named.is_empty() {
        return Err(format!("the test `{name}` takes {count} arguments"));
    }
    if let (Value::Str(s), "lower" | "upper" | "sameas") = (value, name) {
        use_steps(s.len() as u64 / 8)?;
    }
    let other = || args.positional.first().cloned().unwrap_or(Value::None);
    let rest = |by: &Value| binary(super::ast::TemplateBinaryOp::Mod, value, by);
    let compared = |op| compare(op, value, &other());
    Ok(match name {
        "odd" => equal(&rest(&Value::Int(2))?, &Value::Int(1))?,
        "even" => equal(&rest(&Value::Int(2))?, &Value::Int(0))?,
        "divisibleby" => equal(&rest(&other())?, &Value::Int(0))?,
        "defined" => !matches!(value, Value::Undefined(_)),
        "undefined" => matches!(value, Value::Undefined(_)),
        "filter" | "test" if hashable(value).is_err() => hashable(value).map(|()| false)?,
        "filter" => matches!(value, Value::Str(name) if FILTERS.contains(&&**name)),
        "test" => matches!(value, Value::Str(name) if TESTS.contains(&&**name)),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "false" => matches!(value, Value::Bool(false)),
        "true" => matches!(value, Value::Bool(true)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "lower" => super::methods::is_lower(&string(value)?),
        "upper" => super::methods::is_upper(&string(value)?),
        "string" => matches!(value, Value::Str(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "number" => matches!(value, Value::Bool(_) | Value::Int(_) | Value::Float(_)),
        "sequence" => length(value).is_some() && !matches!(value, Value::View(..)),
        "iterable" => IterSource::of(value).is_ok(),
        "callable" => matches!(
            value,
            Value::Macro(_) | Value::Function(_) | Value::Method(_) | Value::Loop(_) | Value::Undefined(_)
        ),
        "sameas" => is_same(value, &other()),
        "escaped" => matches!(value, Value::Str(text) if text.is_safe()),
        "in" => contains(value, &other())?,
        "==" | "eq" | "equalto" => compared(TemplateCompareOp::Eq)?,
        "!=" | "ne" => compared(TemplateCompareOp::Ne)?,
        ">" | "gt" | "greaterthan" => compared(TemplateCompareOp::Gt)?,
        ">=" | "ge" => compared(TemplateCompareOp::Ge)?,
        "<" | "lt" | "lessthan" => compared(TemplateCompareOp::Lt)?,
        "<=" | "le" => compared(TemplateCompareOp::Le)?,
        _ => return Err(format!("there is no test `{name}`")),
    })
}

/// Applies a test whose name is the first argument. Without a name, tests the truth of the value.
pub(super) fn apply_test(value: &Value, args: &EvaluatedArgs) -> ValueResult<bool> {
    match args.positional.split_first() {
        None => Ok(is_truthy(value)),
        Some((name, rest)) => {
            test(&string(name)?, value, &EvaluatedArgs { positional: rest.to_vec(), named: args.named.clone() })
        }
    }
}
