//! The value of a name during import.

use crate::elem::Elem;
use ir::Value;

/// A tensor, a sequence of known length, or an optional value whose presence is known.
#[derive(Clone, Debug)]
pub(crate) enum ImportedValue {
    Tensor(ImportedTensor),
    Sequence(Vec<ImportedValue>),
    Optional(Option<Box<ImportedValue>>),
}

/// A value of the graph; `carried` is the element type that the value's dtype emulates, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImportedTensor {
    pub(crate) v: Value,
    pub(crate) elem: Option<Elem>,
}

impl From<Value> for ImportedTensor {
    fn from(v: Value) -> ImportedTensor {
        ImportedTensor { v, elem: None }
    }
}

impl From<Value> for ImportedValue {
    fn from(v: Value) -> ImportedValue {
        ImportedValue::Tensor(v.into())
    }
}

impl From<ImportedTensor> for ImportedValue {
    fn from(t: ImportedTensor) -> ImportedValue {
        ImportedValue::Tensor(t)
    }
}

impl ImportedValue {
    /// The kind of the value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            ImportedValue::Tensor(_) => "a tensor",
            ImportedValue::Sequence(_) => "a sequence",
            ImportedValue::Optional(_) => "an optional",
        }
    }

    /// Applies a function to each tensor.
    pub(crate) fn map<E>(
        &self,
        f: &mut impl FnMut(ImportedTensor) -> Result<ImportedTensor, E>,
    ) -> Result<ImportedValue, E> {
        Ok(match self {
            ImportedValue::Tensor(t) => ImportedValue::Tensor(f(*t)?),
            ImportedValue::Sequence(items) => {
                ImportedValue::Sequence(items.iter().map(|i| i.map(f)).collect::<Result<_, E>>()?)
            }
            ImportedValue::Optional(None) => ImportedValue::Optional(None),
            ImportedValue::Optional(Some(i)) => ImportedValue::Optional(Some(Box::new(i.map(f)?))),
        })
    }
}
