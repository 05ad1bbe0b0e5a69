//! The library of composites: functions that people know by name and backends may claim whole.
//!
//! Each family's file has the functions that build it and its line in [`FAMILIES`]. A composite is rebuilt from its
//! name, parameters and operand types when it is batched, so leading axes of its row operands must be free.

use crate::attr::Attr;
use crate::error::{Error, Result};
use crate::ops::{Composite, Saves};
use crate::types::Type;

pub mod norm;

/// How a composite takes an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leading axes are batch axes.
    Rows,
    /// The same for all rows.
    Shared,
}

/// A composite that can be built from data.
pub struct Family {
    /// The composite's name.
    pub name: &'static str,
    /// Roles of the operands; the last one repeats for further operands.
    pub roles: &'static [Role],
    /// Builds it for operand types.
    pub build: fn(&Params<'_>, &[Type]) -> Result<Composite>,
    /// What PyTorch would keep for backward: operands, results.
    pub saves: (&'static [usize], &'static [usize]),
}

/// All families.
pub const FAMILIES: &[Family] = &[norm::RMSNORM];

/// Parameters of a composite, read by name.
pub struct Params<'a> {
    name: &'a str,
    params: &'a [(String, Attr)],
}

impl Params<'_> {
    /// A float.
    pub fn float(&self, name: &str) -> Result<f64> {
        match self.get(name) {
            Some(Attr::Scalar(s)) => Ok(s.to_f64()),
            _ => Err(Error::Invalid(format!(
                "{} needs a float parameter `{name}`",
                self.name
            ))),
        }
    }

    /// An integer, if given.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Attr::Int(i)) => Some(*i),
            _ => None,
        }
    }

    /// A flag; absent is false.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Attr::Bool(true)))
    }

    /// A word, if given.
    pub fn word(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Attr::Word(w)) => Some(w),
            _ => None,
        }
    }

    fn get(&self, name: &str) -> Option<&Attr> {
        self.params.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }
}

fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|f| f.name == name)
}

/// Builds a composite of the library.
pub fn build(name: &str, params: &[(String, Attr)], types: &[Type]) -> Result<Composite> {
    let family = family(name).ok_or_else(|| Error::Invalid(format!("there is no composite `{name}`")))?;
    (family.build)(&Params { name, params }, types)
}

/// Which operands a library composite shares between rows; `None` for other composites.
pub(crate) fn shared_operands(name: &str, operands: usize) -> Option<Vec<bool>> {
    let roles = family(name)?.roles;
    Some(
        (0..operands)
            .map(|i| roles[i.min(roles.len() - 1)] == Role::Shared)
            .collect(),
    )
}

/// What PyTorch would keep for backward.
pub(crate) fn saves(name: &str, operands: usize) -> Saves {
    match family(name) {
        Some(f) => {
            let inputs: Vec<usize> = f.saves.0.iter().copied().filter(|&i| i < operands).collect();
            Saves {
                outputs: f.saves.1.iter().copied().collect(),
                ..Saves::inputs(&inputs)
            }
        }
        None => Saves::nothing(),
    }
}
