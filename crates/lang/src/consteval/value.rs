//! Values of constant expressions. Integers are symbolic, because a module is checked for all sizes at once.

use crate::dims::Dim;
use std::fmt;

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstValue {
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
    List(Vec<ConstValue>),
    /// An identifier that is its own value: `NT`, `silu`, `bf16`.
    Identifier(String),
    /// A parameter of a type that the checker does not track, or a value after a reported error.
    Unknown,
}

/// A three-valued boolean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ternary {
    /// The value is known.
    Known(bool),
    /// The value depends on this condition on parameters without values.
    Undecided(String),
}

impl From<i32> for ConstValue {
    fn from(value: i32) -> ConstValue {
        ConstValue::int(value.into())
    }
}

impl From<i64> for ConstValue {
    fn from(value: i64) -> ConstValue {
        ConstValue::int(value)
    }
}

impl From<u32> for ConstValue {
    fn from(value: u32) -> ConstValue {
        ConstValue::int(value.into())
    }
}

impl From<f64> for ConstValue {
    fn from(value: f64) -> ConstValue {
        ConstValue::Float(Some(value))
    }
}

impl From<bool> for ConstValue {
    fn from(value: bool) -> ConstValue {
        ConstValue::bool(value)
    }
}

impl From<&str> for ConstValue {
    fn from(value: &str) -> ConstValue {
        ConstValue::Str(value.to_string())
    }
}

impl From<String> for ConstValue {
    fn from(value: String) -> ConstValue {
        ConstValue::Str(value)
    }
}

impl ConstValue {
    /// A known boolean.
    pub fn bool(value: bool) -> ConstValue {
        ConstValue::Bool(Ternary::Known(value))
    }

    /// An integer.
    pub fn int(value: i64) -> ConstValue {
        ConstValue::Int(Dim::constant(value))
    }

    /// The type of the value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            ConstValue::Int(_) => "an int",
            ConstValue::Float(_) => "a float",
            ConstValue::Bool(_) => "a bool",
            ConstValue::Str(_) => "a string",
            ConstValue::None => "None",
            ConstValue::List(_) => "a list",
            ConstValue::Identifier(_) => "a word",
            ConstValue::Unknown => "unknown",
        }
    }

    /// The integer, if it is a constant.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            ConstValue::Int(dim) => dim.as_constant(),
            _ => None,
        }
    }
}

impl fmt::Display for ConstValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstValue::Int(dim) => write!(f, "{dim}"),
            ConstValue::Float(Some(value)) => write!(f, "{value}"),
            ConstValue::Bool(Ternary::Known(value)) => write!(f, "{value}"),
            ConstValue::Bool(Ternary::Undecided(condition)) => f.write_str(condition),
            ConstValue::Str(text) => write!(f, "\"{text}\""),
            ConstValue::None => f.write_str("None"),
            ConstValue::List(items) => {
                let items: Vec<String> = items.iter().map(ConstValue::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            ConstValue::Identifier(word) => f.write_str(word),
            ConstValue::Float(None) | ConstValue::Unknown => f.write_str("?"),
        }
    }
}
