//! Polynomials in canonical form, so that equality is equality of terms.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

/// A named dimension. Symbols are ordered by their introduction, which is also the order in printed sizes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol {
    /// The module or call that introduced it; 0 is the module under check.
    pub scope: u32,
    /// Its index among the symbols of its scope.
    pub rank: u32,
    /// Its name.
    pub name: Arc<str>,
}

/// An indivisible factor of a polynomial.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Atom {
    /// A dimension.
    Symbol(Symbol),
    /// `a // b`, not known to be exact.
    FloorDiv(Box<Dim>, Box<Dim>),
    /// `a % b`, not known to be zero.
    Mod(Box<Dim>, Box<Dim>),
    /// The minimum of two sizes.
    Min(Box<Dim>, Box<Dim>),
    /// The maximum of two sizes.
    Max(Box<Dim>, Box<Dim>),
}

/// A product of atoms with exponents, sorted by atom.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Monomial(pub(super) Vec<(Atom, u32)>);

/// Lexicographic order of exponents, which is compatible with multiplication: division relies on it.
impl Ord for Monomial {
    fn cmp(&self, other: &Self) -> Ordering {
        for pair in self.0.iter().zip(&other.0) {
            let ((a, n), (b, m)) = pair;
            let order = b.cmp(a).then(n.cmp(m));
            if order != Ordering::Equal {
                return order;
            }
        }
        self.0.len().cmp(&other.0.len())
    }
}

impl PartialOrd for Monomial {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Monomial {
    pub(super) fn times(&self, other: &Monomial) -> Monomial {
        let mut exponents: BTreeMap<&Atom, u32> = BTreeMap::new();
        for (atom, n) in self.0.iter().chain(&other.0) {
            *exponents.entry(atom).or_default() += n;
        }
        Monomial(exponents.into_iter().map(|(atom, n)| (atom.clone(), n)).collect())
    }
}

/// A size: a polynomial with integer coefficients.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Dim {
    /// Coefficients by monomial; none is zero.
    pub(super) terms: BTreeMap<Monomial, i64>,
}

impl Dim {
    /// A number.
    pub fn constant(value: i64) -> Dim {
        Dim::term(Monomial::default(), value)
    }

    /// A named dimension.
    pub fn symbol(symbol: Symbol) -> Dim {
        Dim::atom(Atom::Symbol(symbol))
    }

    pub(super) fn atom(atom: Atom) -> Dim {
        Dim::term(Monomial(vec![(atom, 1)]), 1)
    }

    pub(super) fn term(monomial: Monomial, coefficient: i64) -> Dim {
        let terms = if coefficient == 0 { BTreeMap::new() } else { BTreeMap::from([(monomial, coefficient)]) };
        Dim { terms }
    }

    fn add_term(&mut self, monomial: Monomial, coefficient: i64) {
        let sum = self.terms.get(&monomial).copied().unwrap_or(0).saturating_add(coefficient);
        if sum == 0 {
            self.terms.remove(&monomial);
        } else {
            self.terms.insert(monomial, sum);
        }
    }

    /// The number, if it is constant.
    pub fn as_constant(&self) -> Option<i64> {
        match self.terms.first_key_value() {
            None => Some(0),
            Some((monomial, value)) if self.terms.len() == 1 && monomial.0.is_empty() => Some(*value),
            _ => None,
        }
    }

    /// The symbol, if it is a single symbol.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        let (monomial, coefficient) = self.terms.first_key_value()?;
        match (&monomial.0[..], coefficient, self.terms.len()) {
            ([(Atom::Symbol(symbol), 1)], 1, 1) => Some(symbol),
            _ => None,
        }
    }

    /// The number of terms.
    pub fn term_count(&self) -> usize {
        self.terms.len()
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }

    /// The power with a constant exponent.
    pub fn pow(&self, exponent: u32) -> Dim {
        (0..exponent).fold(Dim::constant(1), |power, _| power * self.clone())
    }

    /// The minimum, evaluated if the difference is constant.
    pub fn min(self, other: Dim) -> Dim {
        match (self.clone() - other.clone()).as_constant() {
            Some(difference) if difference <= 0 => self,
            Some(_) => other,
            None => {
                let (a, b) = if self >= other { (self, other) } else { (other, self) };
                Dim::atom(Atom::Min(Box::new(a), Box::new(b)))
            }
        }
    }

    /// The maximum, evaluated if the difference is constant.
    pub fn max(self, other: Dim) -> Dim {
        match (self.clone() - other.clone()).as_constant() {
            Some(difference) if difference >= 0 => self,
            Some(_) => other,
            None => {
                let (a, b) = if self >= other { (self, other) } else { (other, self) };
                Dim::atom(Atom::Max(Box::new(a), Box::new(b)))
            }
        }
    }

    /// All symbols in it, including those inside divisions.
    pub fn symbols(&self) -> Vec<&Symbol> {
        let mut found = Vec::new();
        for monomial in self.terms.keys() {
            for (atom, _) in &monomial.0 {
                match atom {
                    Atom::Symbol(symbol) => found.push(symbol),
                    Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                        found.extend(a.symbols());
                        found.extend(b.symbols());
                    }
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    /// Substitutes symbols; those for which `replace` returns none are unchanged.
    pub fn substitute(&self, replace: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
        let mut sum = Dim::default();
        for (monomial, coefficient) in &self.terms {
            let product = monomial.0.iter().fold(Dim::constant(*coefficient), |product, (atom, exponent)| {
                let value = match atom {
                    Atom::Symbol(symbol) => replace(symbol).unwrap_or_else(|| Dim::symbol(symbol.clone())),
                    Atom::FloorDiv(a, b) => a.substitute(replace).floor_div(&b.substitute(replace)),
                    Atom::Mod(a, b) => a.substitute(replace).modulo(&b.substitute(replace)),
                    Atom::Min(a, b) => a.substitute(replace).min(b.substitute(replace)),
                    Atom::Max(a, b) => a.substitute(replace).max(b.substitute(replace)),
                };
                product * value.pow(*exponent)
            });
            sum = sum + product;
        }
        sum
    }
}

impl Add for Dim {
    type Output = Dim;

    fn add(mut self, other: Dim) -> Dim {
        for (monomial, coefficient) in other.terms {
            let sum = self.terms.get(&monomial).copied().unwrap_or(0).saturating_add(coefficient);
            if sum == 0 {
                self.terms.remove(&monomial);
            } else {
                self.terms.insert(monomial, sum);
            }
        }
        self
    }
}

impl Neg for Dim {
    type Output = Dim;

    fn neg(mut self) -> Dim {
        for coefficient in self.terms.values_mut() {
            *coefficient = coefficient.saturating_neg();
        }
        self
    }
}

impl Sub for Dim {
    type Output = Dim;

    fn sub(self, other: Dim) -> Dim {
        self + -other
    }
}

impl Mul for Dim {
    type Output = Dim;

    fn mul(self, other: Dim) -> Dim {
        let mut product = Dim::default();
        for (a, n) in &self.terms {
            for (b, m) in &other.terms {
                product.add_term(a.times(b), n.saturating_mul(*m));
            }
        }
        product
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::constant(value)
    }
}
