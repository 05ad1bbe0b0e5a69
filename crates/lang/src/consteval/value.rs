//! Values of constant expressions. Integers are symbolic, because a module is checked for all sizes at once.

use crate::dims::Dim;
use std::fmt;

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A size or other integer.
    Int(Dim),
    /// A float; `None` if it depends on a parameter without a value.
    Float(Option<f64>),
    /// A boolean.
    Bool(Ternary),
    /// A string.
    Str(String),
    /// `None`.
    None,
    /// A list or tuple.
    List(Vec<Value>),
    /// A word that names itself: `NT`, `silu`, `bf16`.
    Word(String),
    /// A parameter of a type the checker does not follow, or a value after a reported mistake.
    Unknown,
}

/// Whether a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ternary {
    /// It is decided.
    Known(bool),
    /// It depends on this condition, which parameters without values leave open.
    Open(String),
}

impl Value {
    /// A decided boolean.
    pub fn bool(value: bool) -> Value {
        Value::Bool(Ternary::Known(value))
    }

    /// An integer.
    pub fn int(value: i64) -> Value {
        Value::Int(Dim::constant(value))
    }

    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Int(_) => "an int",
            Value::Float(_) => "a float",
            Value::Bool(_) => "a bool",
            Value::Str(_) => "a string",
            Value::None => "None",
            Value::List(_) => "a list",
            Value::Word(_) => "a word",
            Value::Unknown => "unknown",
        }
    }

    /// The integer, if it is a number.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(dim) => dim.as_constant(),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(dim) => write!(f, "{dim}"),
            Value::Float(Some(value)) => write!(f, "{value}"),
            Value::Bool(Ternary::Known(value)) => write!(f, "{value}"),
            Value::Bool(Ternary::Open(condition)) => f.write_str(condition),
            Value::Str(text) => write!(f, "\"{text}\""),
            Value::None => f.write_str("None"),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(Value::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Value::Word(word) => f.write_str(word),
            Value::Float(None) | Value::Unknown => f.write_str("?"),
        }
    }
}
