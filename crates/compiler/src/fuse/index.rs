//! Index arithmetic: affine forms over loop variables, with exact division where ranges allow it.
//!
//! Views become arithmetic on these forms. A form that no affine map describes (a quotient of a variable that does not
//! split, a loaded index) becomes an *atom*.

use super::expr::ExprId;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Index of an atom in [`Atoms`].
pub(crate) type AtomId = u32;

/// `c + Σ coefficient · atom`, terms sorted by atom, coefficients not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AffineIndex {
    pub(crate) c: i64,
    pub(crate) terms: SmallVec<[(AtomId, i64); 3]>,
}

/// The kind of an atom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AtomKind {
    /// A loop variable of the domain.
    Var(usize),
    /// A truncated quotient of a non-negative form.
    Div(AffineIndex, i64),
    /// A remainder of a non-negative form.
    Mod(AffineIndex, i64),
    /// A computed index, already clamped to its range.
    Computed(ExprId),
}

#[derive(Clone, Debug)]
pub(crate) struct Atom {
    pub(crate) kind: AtomKind,
    /// The range of the atom, inclusive.
    pub(crate) lo: i64,
    pub(crate) hi: i64,
    /// The loop variables that the atom depends on, as a bit set.
    pub(crate) vars: u64,
}

/// All atoms of one kernel.
#[derive(Default)]
pub(crate) struct Atoms {
    list: Vec<Atom>,
    known: FxHashMap<AtomKind, AtomId>,
}

/// A change to the iteration space that makes an index affine or a condition static.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpaceRefinement {
    /// Splits a variable into outer · inner_extent + inner.
    Split { var: usize, inner: i64 },
    /// Splits the range of a variable in two: below `at`, and `at` and above.
    SplitRange { var: usize, at: i64 },
}

impl AffineIndex {
    pub(crate) fn constant(c: i64) -> AffineIndex {
        AffineIndex { c, terms: SmallVec::new() }
    }

    pub(crate) fn atom(a: AtomId) -> AffineIndex {
        AffineIndex { c: 0, terms: SmallVec::from_slice(&[(a, 1)]) }
    }

    pub(crate) fn add(&self, other: &AffineIndex) -> AffineIndex {
        let mut out = AffineIndex { c: self.c + other.c, terms: SmallVec::new() };
        let (mut i, mut j) = (0, 0);
        while i < self.terms.len() || j < other.terms.len() {
            let a = self.terms.get(i);
            let b = other.terms.get(j);
            let (atom, k) = match (a, b) {
                (Some(x), Some(y)) if x.0 == y.0 => {
                    i += 1;
                    j += 1;
                    (x.0, x.1 + y.1)
                }
                (Some(x), Some(y)) if x.0 < y.0 => {
                    i += 1;
                    *x
                }
                (Some(x), None) => {
                    i += 1;
                    *x
                }
                (_, Some(y)) => {
                    j += 1;
                    *y
                }
                (None, None) => break,
            };
            if k != 0 {
                out.terms.push((atom, k));
            }
        }
        out
    }

    pub(crate) fn plus(&self, c: i64) -> AffineIndex {
        AffineIndex { c: self.c + c, terms: self.terms.clone() }
    }

    pub(crate) fn scale(&self, k: i64) -> AffineIndex {
        if k == 0 {
            return AffineIndex::default();
        }
        AffineIndex { c: self.c * k, terms: self.terms.iter().map(|&(a, x)| (a, x * k)).collect() }
    }

    /// The coefficient of an atom.
    pub(crate) fn coefficient(&self, atom: AtomId) -> i64 {
        self.terms.iter().find(|t| t.0 == atom).map_or(0, |t| t.1)
    }
}

impl Atoms {
    pub(crate) fn get(&self, id: AtomId) -> &Atom {
        &self.list[id as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Atom> {
        self.list.iter()
    }

    pub(crate) fn var(&mut self, var: usize, extent: i64) -> AtomId {
        self.insert(Atom { kind: AtomKind::Var(var), lo: 0, hi: (extent - 1).max(0), vars: 1 << var })
    }

    pub(crate) fn computed(&mut self, ex: ExprId, lo: i64, hi: i64, vars: u64) -> AtomId {
        self.insert(Atom { kind: AtomKind::Computed(ex), lo, hi, vars })
    }

    fn insert(&mut self, atom: Atom) -> AtomId {
        if let Some(id) = self.known.get(&atom.kind) {
            return *id;
        }
        let id = self.list.len() as AtomId;
        self.known.insert(atom.kind.clone(), id);
        self.list.push(atom);
        id
    }

    /// The loop variables that a form depends on, as a bit set.
    pub(crate) fn vars(&self, lin: &AffineIndex) -> u64 {
        lin.terms.iter().fold(0, |m, t| m | self.get(t.0).vars)
    }

    /// The inclusive range of a form.
    pub(crate) fn range(&self, lin: &AffineIndex) -> (i64, i64) {
        lin.terms.iter().fold((lin.c, lin.c), |(lo, hi), &(a, k)| {
            let atom = self.get(a);
            let (x, y) = (atom.lo * k, atom.hi * k);
            (lo + x.min(y), hi + x.max(y))
        })
    }

    /// Quotient and remainder of a non-negative form. Exact where the remainder part stays below the divisor. If splitting a
    /// variable would make the division exact, the split is returned as an error; all other terms become atoms.
    pub(crate) fn div_rem(
        &mut self,
        lin: &AffineIndex,
        by: i64,
    ) -> Result<(AffineIndex, AffineIndex), SpaceRefinement> {
        if by == 1 {
            return Ok((lin.clone(), AffineIndex::default()));
        }
        let (mut whole, mut part) = (AffineIndex::default(), AffineIndex::default());
        for &(a, k) in &lin.terms {
            if k % by == 0 {
                whole.terms.push((a, k / by));
            } else {
                part.terms.push((a, k));
            }
        }
        whole.c = lin.c.div_euclid(by);
        part.c = lin.c.rem_euclid(by);
        // A negative remainder part borrows from the quotient.
        let (lo, _) = self.range(&part);
        if lo < 0 {
            let borrow = (-lo + by - 1) / by;
            part.c += borrow * by;
            whole.c -= borrow;
        }
        let (lo, hi) = self.range(&part);
        if lo >= 0 && hi < by {
            return Ok((whole, part));
        }
        if let Some((var, inner)) = part.terms.iter().find_map(|t| self.split(&part, *t, by)) {
            return Err(SpaceRefinement::Split { var, inner });
        }
        let vars = self.vars(&part);
        let q = self.insert(Atom { kind: AtomKind::Div(part.clone(), by), lo: lo.max(0) / by, hi: hi / by, vars });
        let r = self.insert(Atom { kind: AtomKind::Mod(part, by), lo: 0, hi: by - 1, vars });
        Ok((whole.add(&AffineIndex::atom(q)), AffineIndex::atom(r)))
    }

    /// Finds the split of a variable that makes a form divisible: the outer part is a multiple of the divisor, and the inner
    /// part plus all other terms stays below it.
    fn split(&self, part: &AffineIndex, (a, k): (AtomId, i64), by: i64) -> Option<(usize, i64)> {
        let atom = self.get(a);
        let AtomKind::Var(var) = atom.kind else { return None };
        let rest = part.add(&AffineIndex::atom(a).scale(-k));
        let (lo, hi) = self.range(&rest);
        let divides = k > 0 && by % k == 0 && k < by && (atom.hi + 1) % (by / k) == 0;
        (divides && lo >= 0 && hi < k).then_some((var, by / k))
    }

    /// Recombines a quotient and a remainder of the same form: `k·n·(x / n) + k·(x mod n)` becomes `k·x`. Dense memory that is read
    /// under another shape is then indexed by the loop variable directly.
    pub(crate) fn recombine_div_rem(&self, lin: AffineIndex) -> AffineIndex {
        let pair = lin.terms.iter().find_map(|&(q, k)| {
            let AtomKind::Div(part, by) = &self.get(q).kind else { return None };
            let r = *self.known.get(&AtomKind::Mod(part.clone(), *by))?;
            let factor = lin.coefficient(r);
            (factor != 0 && k == factor * by).then(|| (q, r, part.scale(factor)))
        });
        let Some((q, r, whole)) = pair else { return lin };
        let rest =
            AffineIndex { c: lin.c, terms: lin.terms.iter().copied().filter(|t| t.0 != q && t.0 != r).collect() };
        self.recombine_div_rem(rest.add(&whole))
    }

    /// If the form is `±v + c` for one loop variable, that variable with its sign.
    pub(crate) fn single_var(&self, lin: &AffineIndex) -> Option<(usize, i64)> {
        match lin.terms.as_slice() {
            [(a, k)] if *k == 1 || *k == -1 => match self.get(*a).kind {
                AtomKind::Var(v) => Some((v, *k)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Maps an index under `from`'s shape to the index under `to`'s shape with the same row-major position. Axes are matched group
/// by group, so that merged and split axes stay affine.
pub(crate) fn reshape(
    atoms: &mut Atoms,
    index: &[AffineIndex],
    from: &[usize],
    to: &[usize],
) -> Result<Vec<AffineIndex>, SpaceRefinement> {
    if from.contains(&0) || to.contains(&0) {
        // The tensor has no elements.
        return Ok(vec![AffineIndex::default(); to.len()]);
    }
    let mut out = Vec::with_capacity(to.len());
    let (mut i, mut j) = (0, 0);
    while j < to.len() {
        if to[j] == 1 {
            out.push(AffineIndex::default());
            j += 1;
            continue;
        }
        // The shortest groups of axes on both sides with equal products.
        let (start_i, start_j) = (i, j);
        let (mut a, mut b) = (1usize, 1usize);
        loop {
            if a == b && a != 1 {
                break;
            }
            if a <= b && i < from.len() {
                a *= from[i];
                i += 1;
            } else if j < to.len() {
                b *= to[j];
                j += 1;
            } else {
                break;
            }
        }
        let mut flat = AffineIndex::default();
        for k in start_i..i {
            flat = flat.scale(from[k] as i64).add(&index[k]);
        }
        // Divide the flat index by the result's axes, innermost first.
        let mut group = Vec::with_capacity(j - start_j);
        for k in (start_j + 1..j).rev() {
            let (q, r) = atoms.div_rem(&flat, to[k] as i64)?;
            group.push(r);
            flat = q;
        }
        group.push(flat);
        out.extend(group.into_iter().rev());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_and_split_axes_stay_affine() {
        let mut atoms = Atoms::default();
        let a = AffineIndex::atom(atoms.var(0, 4));
        let b = AffineIndex::atom(atoms.var(1, 6));
        // [4, 6] seen from [24]: the flat index of (a, b) is divided again.
        let flat = reshape(&mut atoms, &[a.clone(), b.clone()], &[4, 6], &[24]).unwrap();
        assert_eq!(flat, [a.scale(6).add(&b)]);
        assert_eq!(reshape(&mut atoms, &flat, &[24], &[4, 6]).unwrap(), [a.clone(), b.clone()]);
        assert_eq!(
            reshape(&mut atoms, &flat, &[24], &[4, 1, 6]).unwrap(),
            [a.clone(), AffineIndex::default(), b.clone()]
        );
        // [24] viewed as [8, 3] with one variable of extent 24 needs a split.
        let v = AffineIndex::atom(atoms.var(2, 24));
        assert_eq!(reshape(&mut atoms, &[v], &[24], &[8, 3]), Err(SpaceRefinement::Split { var: 2, inner: 3 }));
        // (a, b) of [8, 3] viewed as [4, 6]: a splits into quotient and remainder by 2.
        let (a, b) = (AffineIndex::atom(atoms.var(3, 8)), AffineIndex::atom(atoms.var(4, 3)));
        assert_eq!(reshape(&mut atoms, &[a, b], &[8, 3], &[4, 6]), Err(SpaceRefinement::Split { var: 3, inner: 2 }));
        // (a, b) of [9, 4] viewed as [6, 6]: neither splits, but in dense memory the flat index is affine.
        let (a, b) = (AffineIndex::atom(atoms.var(5, 9)), AffineIndex::atom(atoms.var(6, 4)));
        let turned = reshape(&mut atoms, &[a.clone(), b.clone()], &[9, 4], &[6, 6]).unwrap();
        let at = turned[0].scale(6).add(&turned[1]);
        assert_eq!(atoms.recombine_div_rem(at.scale(5).plus(7)), a.scale(20).add(&b.scale(5)).plus(7));
        assert_eq!(atoms.recombine_div_rem(turned[0].scale(6)), turned[0].scale(6));
        // (a, b) of [4, 6] seen as [8, 3]: b splits by 3.
        assert_eq!(reshape(&mut atoms, &flat, &[24], &[8, 3]), Err(SpaceRefinement::Split { var: 1, inner: 3 }));
    }
}
