//! Exact division, and equality under the assumption of exact divisions.

use super::ExactDivision;
use super::poly::{Atom, Dim, Monomial};

impl Dim {
    /// The quotient, if there is no remainder: `(Hq·D + 2·Hkv·D) / D = Hq + 2·Hkv`.
    pub fn divide_exactly(&self, divisor: &Dim) -> Option<Dim> {
        let (lead, lead_coefficient) = divisor.terms.last_key_value()?;
        let mut rest = self.clone();
        let mut quotient = Dim::default();
        while let Some((monomial, coefficient)) = rest.terms.last_key_value() {
            let coefficient = coefficient
                .checked_rem(*lead_coefficient)
                .filter(|r| *r == 0)
                .map(|_| coefficient / lead_coefficient)?;
            let term = Dim::term(divide_monomial(monomial, lead)?, coefficient);
            quotient = quotient + term.clone();
            rest = rest - term * divisor.clone();
        }
        Some(quotient)
    }

    /// `self // divisor`.
    pub fn floor_div(&self, divisor: &Dim) -> Dim {
        match (self.as_constant(), divisor.as_constant()) {
            (Some(a), Some(b)) if b != 0 => Dim::constant(floor_div(a, b)),
            _ => self
                .divide_exactly(divisor)
                .or_else(|| self.divide_but_constant(divisor))
                .unwrap_or_else(|| Dim::atom(Atom::FloorDiv(Box::new(self.clone()), Box::new(divisor.clone())))),
        }
    }

    /// The quotient by a number that divides all terms except the constant: `(2·n - 1) // 2 = n - 1`.
    fn divide_but_constant(&self, divisor: &Dim) -> Option<Dim> {
        let by = divisor.as_constant().filter(|by| *by > 0)?;
        let constant = self.terms.get(&Monomial::default()).copied().unwrap_or(0);
        let whole = (self.clone() - Dim::constant(constant)).divide_exactly(divisor)?;
        Some(whole + Dim::constant(floor_div(constant, by)))
    }

    /// `self % divisor`.
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        match (self.as_constant(), divisor.as_constant()) {
            (Some(a), Some(b)) if b != 0 => Dim::constant(a - floor_div(a, b).saturating_mul(b)),
            _ if self.divide_exactly(divisor).is_some() => Dim::default(),
            _ => Dim::atom(Atom::Mod(Box::new(self.clone()), Box::new(divisor.clone()))),
        }
    }

    /// Whether two sizes agree for all values of their symbols; returns the divisions that must be exact for that.
    ///
    /// `H·(C // H)` agrees with `C` if `H` divides `C`; the caller turns that into a constraint.
    pub fn equal(&self, other: &Dim) -> Option<Vec<ExactDivision>> {
        let mut difference = self.clone() - other.clone();
        let mut exact = Vec::new();
        // Each iteration eliminates one quotient q = a // b: multiplies by a power of b and replaces b·q by a. Nested quotients
        // become visible one level per iteration.
        for _ in 0..16 {
            let Some((quotient, a, b)) = difference.some_quotient() else {
                return difference.is_zero().then_some(exact);
            };
            let degree = |m: &Monomial| m.0.iter().find(|(atom, _)| *atom == quotient).map_or(0, |(_, n)| *n);
            let highest = difference.terms.keys().map(degree).max().unwrap_or(0);
            let mut cleared = Dim::default();
            for (monomial, coefficient) in &difference.terms {
                let power = degree(monomial);
                let rest = Monomial(monomial.0.iter().filter(|(atom, _)| *atom != quotient).cloned().collect());
                cleared = cleared + Dim::term(rest, *coefficient) * a.pow(power) * b.pow(highest - power);
            }
            exact.push((a, b));
            difference = cleared;
        }
        None
    }

    fn some_quotient(&self) -> Option<(Atom, Dim, Dim)> {
        self.terms.keys().flat_map(|m| &m.0).find_map(|(atom, _)| match atom {
            Atom::FloorDiv(a, b) => Some((atom.clone(), (**a).clone(), (**b).clone())),
            _ => None,
        })
    }
}

fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn divide_monomial(dividend: &Monomial, divisor: &Monomial) -> Option<Monomial> {
    let mut rest = dividend.0.clone();
    for (atom, exponent) in &divisor.0 {
        let place = rest.iter().position(|(other, n)| other == atom && n >= exponent)?;
        rest[place].1 -= exponent;
    }
    rest.retain(|(_, n)| *n > 0);
    Some(Monomial(rest))
}
