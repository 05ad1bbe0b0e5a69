//! Unification: solves for the sizes of a signature.

use super::ExactDivision;
use super::poly::{Dim, Symbol};
use std::collections::BTreeMap;

/// Two sizes that cannot agree, with all solved symbols substituted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeMismatch {
    /// The size in the signature.
    pub expected: Dim,
    /// The actual size.
    pub found: Dim,
}

/// Collects the values of a signature's symbols, which belong to one scope; symbols of other scopes are constants.
#[derive(Clone, Debug)]
pub struct Unifier {
    scope: u32,
    values: BTreeMap<Symbol, Dim>,
    /// Undecided pairs, such as `D // 2` with unknown `D`.
    deferred: Vec<(Dim, Dim)>,
    exact_divisions: Vec<ExactDivision>,
}

impl Unifier {
    /// Solves for the symbols of `scope`.
    pub fn new(scope: u32) -> Self {
        Unifier { scope, values: BTreeMap::new(), deferred: Vec::new(), exact_divisions: Vec::new() }
    }

    /// Sets the value of a symbol.
    pub fn bind(&mut self, symbol: Symbol, value: Dim) {
        self.values.insert(symbol, value);
    }

    /// The value of a symbol, if known.
    pub fn value(&self, symbol: &Symbol) -> Option<&Dim> {
        self.values.get(symbol)
    }

    /// Substitutes all solved symbols in a size.
    pub fn apply(&self, dim: &Dim) -> Dim {
        dim.substitute(&|symbol| self.values.get(symbol).cloned())
    }

    /// The first unsolved symbol of the signature in `dim`.
    pub fn unsolved(&self, dim: &Dim) -> Option<Symbol> {
        self.apply(dim).symbols().into_iter().find(|s| s.scope == self.scope).cloned()
    }

    /// Unifies a size of the signature with an actual one.
    pub fn unify(&mut self, pattern: &Dim, found: &Dim) -> Result<(), SizeMismatch> {
        let expected = self.apply(pattern);
        let unknown: Vec<Symbol> = expected.symbols().into_iter().filter(|s| s.scope == self.scope).cloned().collect();
        match &unknown[..] {
            [] => match expected.equal(found) {
                Some(exact) => {
                    self.exact_divisions.extend(exact);
                    Ok(())
                }
                None => Err(SizeMismatch { expected, found: found.clone() }),
            },
            [symbol] => match solve(&expected, symbol, found) {
                Some(value) => {
                    self.values.insert(symbol.clone(), value);
                    self.retry()
                }
                None => {
                    self.deferred.push((expected, found.clone()));
                    Ok(())
                }
            },
            _ => {
                self.deferred.push((expected, found.clone()));
                Ok(())
            }
        }
    }

    fn retry(&mut self) -> Result<(), SizeMismatch> {
        for (pattern, found) in std::mem::take(&mut self.deferred) {
            self.unify(&pattern, &found)?;
        }
        Ok(())
    }

    /// The divisions that must be exact for the unification.
    pub fn exactness(&self) -> &[ExactDivision] {
        &self.exact_divisions
    }
}

/// Solves `c·symbol + r = found`, if the equation has that form and `c` divides evenly.
fn solve(expected: &Dim, symbol: &Symbol, found: &Dim) -> Option<Dim> {
    let at = |value: i64| expected.substitute(&|s| (s == symbol).then(|| Dim::constant(value)));
    let rest = at(0);
    let slope = at(1) - rest.clone();
    let linear = slope.clone() * Dim::symbol(symbol.clone()) + rest.clone();
    if linear != *expected || slope.is_zero() {
        return None;
    }
    (found.clone() - rest).divide_exactly(&slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(scope: u32, name: &str) -> Dim {
        Dim::symbol(Symbol { scope, rank: 0, name: name.into() })
    }

    #[test]
    fn solves_linear_sizes_and_waits_for_the_rest() {
        let mut unifier = Unifier::new(1);
        let (n, d, e) = (symbol(1, "n"), symbol(1, "d"), symbol(0, "E"));
        let half = d.floor_div(&Dim::constant(2));
        unifier.unify(&half, &symbol(0, "F").floor_div(&Dim::constant(2))).unwrap();
        unifier
            .unify(
                &(Dim::constant(2) * n.clone() + Dim::constant(1)),
                &(Dim::constant(4) * e.clone() + Dim::constant(1)),
            )
            .unwrap();
        assert_eq!(unifier.apply(&n), Dim::constant(2) * e.clone());
        unifier.unify(&d, &symbol(0, "F")).unwrap();
        let wrong = unifier.unify(&d, &e).unwrap_err();
        assert_eq!((wrong.expected.to_string(), wrong.found.to_string()), ("F".into(), "E".into()));
    }
}
