//! Attributes: the static data of an op in the text form.

use crate::dtype::DType;
use crate::graph::Graph;
use crate::literal::Literal;
use crate::scalar::Scalar;
use std::sync::Arc;

/// One attribute value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Attr {
    /// An integer.
    Int(i64),
    /// `true` or `false`.
    Bool(bool),
    /// A bare word, such as a kind, a mode or a dtype.
    Word(String),
    /// A quoted string.
    Str(String),
    /// `[a, b]`.
    List(Vec<Attr>),
    /// A typed scalar, written `f32 1.5`.
    Scalar(Scalar),
    /// A constant tensor.
    Literal(Literal),
    /// A sub-graph.
    Graph(Arc<Graph>),
}

/// Named attributes in printing order.
pub type Attrs = Vec<(&'static str, Attr)>;

impl From<bool> for Attr {
    fn from(x: bool) -> Attr {
        Attr::Bool(x)
    }
}

impl From<usize> for Attr {
    fn from(x: usize) -> Attr {
        Attr::Int(x as i64)
    }
}

impl From<i64> for Attr {
    fn from(x: i64) -> Attr {
        Attr::Int(x)
    }
}

impl From<DType> for Attr {
    fn from(x: DType) -> Attr {
        Attr::Word(x.name().to_string())
    }
}

impl From<&str> for Attr {
    fn from(x: &str) -> Attr {
        Attr::Word(x.to_string())
    }
}

impl From<Scalar> for Attr {
    fn from(x: Scalar) -> Attr {
        Attr::Scalar(x)
    }
}

impl From<&Arc<Graph>> for Attr {
    fn from(x: &Arc<Graph>) -> Attr {
        Attr::Graph(x.clone())
    }
}

impl<T: Copy + Into<Attr>> From<&[T]> for Attr {
    fn from(x: &[T]) -> Attr {
        Attr::List(x.iter().map(|&a| a.into()).collect())
    }
}

/// Parsed attributes, which an op's `parse` takes one by one.
pub struct AttrReader {
    attrs: Vec<(String, Attr)>,
}

/// The result of reading an attribute: an error if it is missing or of the wrong kind.
pub type AttrResult<T> = std::result::Result<T, String>;

impl AttrReader {
    /// Wraps parsed attributes.
    pub fn new(attrs: Vec<(String, Attr)>) -> AttrReader {
        AttrReader { attrs }
    }

    /// Takes an attribute, if present.
    pub fn take(&mut self, name: &str) -> Option<Attr> {
        let i = self.attrs.iter().position(|(n, _)| n == name)?;
        Some(self.attrs.remove(i).1)
    }

    /// The name of an attribute that was not taken.
    pub fn leftover(&self) -> Option<&str> {
        self.attrs.first().map(|(n, _)| n.as_str())
    }

    fn need<T>(&mut self, name: &str, kind: &str, f: impl FnOnce(Attr) -> Option<T>) -> AttrResult<T> {
        let attr = self.take(name).ok_or_else(|| format!("attribute `{name}` is missing"))?;
        f(attr).ok_or_else(|| format!("attribute `{name}` must be {kind}"))
    }

    /// An integer.
    pub fn int(&mut self, name: &str) -> AttrResult<i64> {
        self.need(name, "an integer", |a| match a {
            Attr::Int(x) => Some(x),
            _ => None,
        })
    }

    /// A size or axis.
    pub fn usize(&mut self, name: &str) -> AttrResult<usize> {
        self.need(name, "a non-negative integer", |a| match a {
            Attr::Int(x) => usize::try_from(x).ok(),
            _ => None,
        })
    }

    /// A flag.
    pub fn bool(&mut self, name: &str) -> AttrResult<bool> {
        self.need(name, "true or false", |a| match a {
            Attr::Bool(x) => Some(x),
            _ => None,
        })
    }

    /// A dtype.
    pub fn dtype(&mut self, name: &str) -> AttrResult<DType> {
        self.need(name, "a dtype", |a| match a {
            Attr::Word(w) => w.parse().ok(),
            _ => None,
        })
    }

    /// A bare word that `f` accepts.
    pub fn word<T>(&mut self, name: &str, f: impl FnOnce(&str) -> Option<T>) -> AttrResult<T> {
        self.need(name, "a known word", |a| match a {
            Attr::Word(w) => f(&w),
            _ => None,
        })
    }

    /// A quoted string.
    pub fn string(&mut self, name: &str) -> AttrResult<String> {
        self.need(name, "a quoted string", |a| match a {
            Attr::Str(s) => Some(s),
            _ => None,
        })
    }

    /// A list of sizes or axes.
    pub fn usizes<C: FromIterator<usize>>(&mut self, name: &str) -> AttrResult<C> {
        self.need(name, "a list of non-negative integers", |a| match a {
            Attr::List(xs) => xs
                .into_iter()
                .map(|x| match x {
                    Attr::Int(i) => usize::try_from(i).ok(),
                    _ => None,
                })
                .collect(),
            _ => None,
        })
    }

    /// A list of integers.
    pub fn ints<C: FromIterator<i64>>(&mut self, name: &str) -> AttrResult<C> {
        self.need(name, "a list of integers", |a| match a {
            Attr::List(xs) => xs
                .into_iter()
                .map(|x| match x {
                    Attr::Int(i) => Some(i),
                    _ => None,
                })
                .collect(),
            _ => None,
        })
    }

    /// A list of flags.
    pub fn bools(&mut self, name: &str) -> AttrResult<Vec<bool>> {
        self.need(name, "a list of flags", |a| match a {
            Attr::List(xs) => xs
                .into_iter()
                .map(|x| match x {
                    Attr::Bool(b) => Some(b),
                    _ => None,
                })
                .collect(),
            _ => None,
        })
    }

    /// A typed scalar.
    pub fn scalar(&mut self, name: &str) -> AttrResult<Scalar> {
        self.need(name, "a typed scalar", |a| match a {
            Attr::Scalar(x) => Some(x),
            _ => None,
        })
    }

    /// A constant.
    pub fn literal(&mut self, name: &str) -> AttrResult<Literal> {
        self.need(name, "a constant", |a| match a {
            Attr::Literal(x) => Some(x),
            _ => None,
        })
    }

    /// A sub-graph.
    pub fn graph(&mut self, name: &str) -> AttrResult<Arc<Graph>> {
        self.need(name, "a graph", |a| match a {
            Attr::Graph(g) => Some(g),
            _ => None,
        })
    }

    /// A list of sub-graphs.
    pub fn graphs(&mut self, name: &str) -> AttrResult<Vec<Arc<Graph>>> {
        self.need(name, "a list of graphs", |a| match a {
            Attr::List(xs) => xs
                .into_iter()
                .map(|x| match x {
                    Attr::Graph(g) => Some(g),
                    _ => None,
                })
                .collect(),
            _ => None,
        })
    }
}
