//! Shardings and names of axes as they are written.

use super::Spec;
use crate::function::call_error;
use crate::{Result, Tree};
use ir::Loc;

/// Shardings for a tree: one for all leaves, one for each item at the top, or one for each leaf.
///
/// Each is a text with an entry for each axis of the tensor: names of axes of the mesh joined by `+`, or `_` for an axis that
/// is not cut; what is left out at the end is not cut either. Or it is a [`Spec`].
#[derive(Clone, Debug)]
pub struct Specs(std::result::Result<Vec<Spec>, String>);

fn read(text: &str) -> std::result::Result<Spec, String> {
    let mut dims = Vec::new();
    for entry in text.split(',').map(str::trim) {
        let names: Vec<&str> = entry.split('+').map(str::trim).filter(|n| !matches!(*n, "" | "_")).collect();
        if let Some(bad) = names.iter().find(|n| !n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')) {
            return Err(format!("`{bad}` in the sharding `{text}` is not an axis name; write `dp, _, tp` or `dp+tp`"));
        }
        dims.push(names.into_iter().map(str::to_string).collect());
    }
    Ok(Spec(dims).trimmed())
}

impl From<&str> for Specs {
    fn from(text: &str) -> Specs {
        Specs(read(text).map(|s| vec![s]))
    }
}

impl<const N: usize> From<[&str; N]> for Specs {
    fn from(texts: [&str; N]) -> Specs {
        Specs(texts.iter().map(|t| read(t)).collect())
    }
}

impl From<Spec> for Specs {
    fn from(spec: Spec) -> Specs {
        Specs(Ok(vec![spec]))
    }
}

impl From<Vec<Spec>> for Specs {
    fn from(specs: Vec<Spec>) -> Specs {
        Specs(Ok(specs))
    }
}

impl Specs {
    /// The one sharding that was given.
    pub(super) fn single(self) -> std::result::Result<Spec, String> {
        match &self.0?[..] {
            [one] => Ok(one.clone()),
            many => Err(format!("one sharding is needed, not {}", many.len())),
        }
    }

    /// One for each leaf.
    pub(super) fn spread<T: Tree>(&self, tree: &T, what: &str, at: &Loc) -> Result<Vec<Spec>> {
        let given = self.0.as_ref().map_err(|text| call_error("shard_map", text.clone(), at))?;
        let items = tree.items();
        let leaves: usize = items.iter().sum();
        if given.len() == 1 {
            return Ok(vec![given[0].clone(); leaves]);
        }
        if given.len() == items.len() {
            let each = given.iter().zip(&items);
            return Ok(each.flat_map(|(s, &n)| std::iter::repeat_n(s.clone(), n)).collect());
        }
        if given.len() == leaves {
            return Ok(given.clone());
        }
        let text = format!("{} {what} for {} items with {leaves} tensors", given.len(), items.len());
        Err(call_error("shard_map", text, at))
    }
}

/// Names of axes of a mesh: `"dp"`, `["dp", "tp"]`; the last runs fastest.
pub trait AxisNames {
    /// The names in order.
    fn names(&self) -> Vec<&str>;
}

impl AxisNames for &str {
    fn names(&self) -> Vec<&str> {
        vec![self]
    }
}

impl<const N: usize> AxisNames for [&str; N] {
    fn names(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl AxisNames for &[&str] {
    fn names(&self) -> Vec<&str> {
        self.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shardings_are_read() {
        let table = [("", "[]"), ("dp", "[dp]"), ("_, tp", "[-, tp]"), ("a+b, _, _", "[a+b]"), (" , x", "[-, x]")];
        for (text, shown) in table {
            assert_eq!(read(text).unwrap().to_string(), shown, "{text}");
        }
        assert!(read("dp;tp").unwrap_err().contains("is not an axis name"));
    }
}
