//! Formats sizes in the usual notation: `B·T`, `(Hq + 2·Hkv)·D`, `d_model // H`.

use super::poly::{Atom, Dim, Monomial};
use std::fmt;

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.len() > 1 {
            let common = self.common_factor();
            let content = self.terms.values().fold(0u64, |gcd, n| greatest_common_divisor(gcd, n.unsigned_abs()));
            if content > 1 || !common.0.is_empty() {
                let factor = Dim::term(common.clone(), content.max(1) as i64);
                if let Some(rest) = self.divide_exactly(&factor) {
                    if content > 1 {
                        write!(f, "{content}·")?;
                    }
                    write!(f, "({rest})")?;
                    return if common.0.is_empty() { Ok(()) } else { write!(f, "·{}", Product(&common, true)) };
                }
            }
        }
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        for (index, (monomial, coefficient)) in self.terms.iter().rev().enumerate() {
            let size = coefficient.unsigned_abs();
            match (index, *coefficient < 0) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                (_, false) => f.write_str(" + ")?,
                (_, true) => f.write_str(" - ")?,
            }
            match (size, monomial.0.is_empty()) {
                (_, true) => write!(f, "{size}")?,
                (1, false) => write!(f, "{}", Product(monomial, self.terms.len() > 1))?,
                (_, false) => write!(f, "{size}·{}", Product(monomial, true))?,
            }
        }
        Ok(())
    }
}

impl Dim {
    /// The common factor of all terms.
    fn common_factor(&self) -> Monomial {
        let mut monomials = self.terms.keys();
        let mut common = monomials.next().cloned().unwrap_or_default();
        for monomial in monomials {
            for (atom, exponent) in &mut common.0 {
                let here = monomial.0.iter().find(|(other, _)| other == atom).map_or(0, |(_, n)| *n);
                *exponent = (*exponent).min(here);
            }
            common.0.retain(|(_, n)| *n > 0);
        }
        common
    }
}

/// A product of atoms; the flag says whether divisions in it need parentheses.
struct Product<'a>(&'a Monomial, bool);

impl fmt::Display for Product<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = self.1 || self.0.0.len() > 1;
        for (index, (atom, exponent)) in self.0.0.iter().enumerate() {
            if index > 0 {
                f.write_str("·")?;
            }
            match atom {
                Atom::Symbol(symbol) => f.write_str(&symbol.name)?,
                Atom::FloorDiv(a, b) if several || *exponent > 1 => write!(f, "({} // {})", Operand(a), Operand(b))?,
                Atom::FloorDiv(a, b) => write!(f, "{} // {}", Operand(a), Operand(b))?,
                Atom::Mod(a, b) if several || *exponent > 1 => write!(f, "({} % {})", Operand(a), Operand(b))?,
                Atom::Mod(a, b) => write!(f, "{} % {}", Operand(a), Operand(b))?,
                Atom::Min(a, b) => write!(f, "min({a}, {b})")?,
                Atom::Max(a, b) => write!(f, "max({a}, {b})")?,
            }
            if *exponent > 1 {
                write!(f, "^{exponent}")?;
            }
        }
        Ok(())
    }
}

/// An operand of `//` or `%`, in parentheses unless it is a single word.
struct Operand<'a>(&'a Dim);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simple = self.0.as_symbol().is_some() || self.0.as_constant().is_some();
        if simple { write!(f, "{}", self.0) } else { write!(f, "({})", self.0) }
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::{Dim, Symbol};

    fn symbols<const N: usize>(names: [&str; N]) -> [Dim; N] {
        let mut rank = 0;
        names.map(|name| {
            rank += 1;
            Dim::symbol(Symbol { scope: 0, rank, name: name.into() })
        })
    }

    #[test]
    fn prints_factored() {
        let [hq, hkv, d, b, t] = symbols(["Hq", "Hkv", "D", "B", "T"]);
        let two = Dim::constant(2);
        let qkv = hq.clone() * d.clone() + two.clone() * hkv.clone() * d.clone();
        assert_eq!(qkv.to_string(), "(Hq + 2·Hkv)·D");
        assert_eq!((b.clone() * t.clone()).to_string(), "B·T");
        assert_eq!((t.clone() * b.clone() - Dim::constant(1)).to_string(), "B·T - 1");
        assert_eq!((two.clone() * b.clone() + two.clone() * t.clone()).to_string(), "2·(B + T)");
        assert_eq!(qkv.floor_div(&d).to_string(), "Hq + 2·Hkv");
        assert_eq!(qkv.floor_div(&b).to_string(), "((Hq + 2·Hkv)·D) // B");
        assert_eq!((hq.clone() * d.floor_div(&hq)).to_string(), "Hq·(D // Hq)");
        let head = d.floor_div(&hq);
        assert_eq!((hkv * head.clone() + b.clone() * head.clone()).to_string(), "(Hkv + B)·(D // Hq)");
        assert_eq!((two * head).to_string(), "2·(D // Hq)");
        assert_eq!(b.pow(2).to_string(), "B^2");
        assert_eq!((b - t).to_string(), "B - T");
        assert_eq!(Dim::default().to_string(), "0");
    }

    #[test]
    fn equality_names_the_divisions_it_needs() {
        let [c, h, b] = symbols(["C", "H", "B"]);
        let head = c.floor_div(&h);
        assert_eq!(c.equal(&c), Some(vec![]));
        assert_eq!(c.equal(&b), None);
        assert_eq!((h.clone() * head.clone()).equal(&c), Some(vec![(c.clone(), h.clone())]));
        let half = head.floor_div(&Dim::constant(2));
        assert!((Dim::constant(2) * half * h.clone()).equal(&c).is_some());
        assert_eq!((head.clone() * b.clone()).equal(&c), None);
        assert_eq!(c.modulo(&c), Dim::default());
        assert_eq!(Dim::constant(-7).floor_div(&Dim::constant(2)), Dim::constant(-4));
        assert_eq!(Dim::constant(-7).modulo(&Dim::constant(2)), Dim::constant(1));
    }
}
