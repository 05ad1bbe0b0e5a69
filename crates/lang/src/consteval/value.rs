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
    Bool(Truth),
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
pub enum Truth {
    /// It is decided.
    Known(bool),
    /// It depends on this condition, which parameters without values leave open.
    Open(String),
}

impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::int(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::int(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(Some(value))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Str(value.to_string())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Str(value)
    }
}

impl Value {
    /// A decided boolean.
    pub fn bool(value: bool) -> Value {
        Value::Bool(Truth::Known(value))
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
            Value::Bool(Truth::Known(value)) => write!(f, "{value}"),
            Value::Bool(Truth::Open(condition)) => f.write_str(condition),
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
