//! What a name of a model stands for while it is imported.

use crate::elem::Elem;
use ir::Value;

/// A tensor, or a list of things whose length is known, or something that may be absent, which is known too.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Tensor(Tensor),
    Sequence(Vec<Item>),
    Optional(Option<Box<Item>>),
}

/// A value of the graph; `carried` names an element type that the value's dtype only carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub(crate) v: Value,
    pub(crate) carried: Option<Elem>,
}

impl From<Value> for Tensor {
    fn from(v: Value) -> Tensor {
        Tensor { v, carried: None }
    }
}

impl From<Value> for Item {
    fn from(v: Value) -> Item {
        Item::Tensor(v.into())
    }
}

impl From<Tensor> for Item {
    fn from(t: Tensor) -> Item {
        Item::Tensor(t)
    }
}

impl Item {
    /// What kind of thing it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Item::Tensor(_) => "a tensor",
            Item::Sequence(_) => "a sequence",
            Item::Optional(_) => "an optional",
        }
    }

    /// The same with each tensor replaced.
    pub(crate) fn map<E>(&self, f: &mut impl FnMut(Tensor) -> Result<Tensor, E>) -> Result<Item, E> {
        Ok(match self {
            Item::Tensor(t) => Item::Tensor(f(*t)?),
            Item::Sequence(items) => Item::Sequence(items.iter().map(|i| i.map(f)).collect::<Result<_, E>>()?),
            Item::Optional(None) => Item::Optional(None),
            Item::Optional(Some(i)) => Item::Optional(Some(Box::new(i.map(f)?))),
        })
    }
}
