//! The cases with random shapes: other extents, windows, strides, groups and numbers of parts, but the same ops, dtypes and axes.

use crate::case::Case;

/// The number of elements of a random case: enough that call overhead is negligible, few enough that all cases take minutes.
const ELEMENTS: std::ops::RangeInclusive<usize> = 1 << 10..=4 << 20;

/// A linear congruential random number generator.
pub(crate) struct Lot(u64);

impl Lot {
    pub(crate) fn new(seed: u64) -> Lot {
        let mut lot = Lot(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        for _ in 0..4 {
            lot.unit();
        }
        lot
    }

    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.unit() * of.len() as f64) as usize % of.len()]
    }

    /// Returns an extent near `n`: round and odd numbers equally often, from a quarter of `n` to twice `n`.
    fn near(&mut self, n: usize) -> usize {
        let drawn = (n as f64 * 2f64.powf(3.0 * self.unit() - 2.0)).round().max(1.0) as usize;
        match drawn {
            0..8 => drawn,
            _ if self.unit() < 0.5 => drawn.next_multiple_of(if drawn < 64 { 4 } else { 16 }),
            _ => drawn | 1,
        }
    }

    /// Returns a case like `c`, with other extents.
    pub(crate) fn redraw(&mut self, c: &Case) -> Case {
        loop {
            let drawn = self.attempt(c);
            let parts = drawn.number("parts");
            let wanted = if c.shape.iter().product::<usize>() < *ELEMENTS.start() { 1..=1 << 12 } else { ELEMENTS };
            if wanted.contains(&(drawn.shape.iter().product::<usize>() * parts)) {
                return drawn;
            }
        }
    }

    fn attempt(&mut self, c: &Case) -> Case {
        let mut new = Case { params: vec![], ..c.clone() };
        let s = &mut new.shape;
        // A permutation of extents of 1 is a no-op, which the other frameworks detect.
        let least = if c.op == "permute" { 2 } else { 1 };
        s.iter_mut().for_each(|n| *n = self.near(*n).max(least));
        let square = matches!(c.op.as_str(), "cholesky" | "lu" | "eigh" | "triangular_solve")
            || (matches!(c.op.as_str(), "qr" | "svd" | "svd_values") && self.unit() < 0.5);
        let (rank, convolves) = (s.len(), c.op.starts_with("conv"));
        if square && rank >= 2 {
            s[rank - 1] = s[rank - 2];
        }
        if convolves || c.op.starts_with("pool") {
            // Make room for a window.
            s[2.min(rank - 1)..].iter_mut().for_each(|n| *n = (*n).max(12));
        }
        let groups = match c.number("groups") {
            1 => 1,
            g if convolves && g == c.shape[1] => s[1],
            g => self.one_of(&[2, 4, g]),
        };
        s[1.min(rank - 1)] = if groups > 1 { s[1].next_multiple_of(groups) } else { s[1.min(rank - 1)] };
        let (axis, features) = (c.number("axis").min(rank - 1), s[1.min(rank - 1)]);
        if c.op == "roll" {
            s[axis] = s[axis].max(128);
        }
        let window = self.one_of(&[2, 3, 5]);
        let drawn = |lot: &mut Lot, name: &str, value: &str, s: &[usize]| -> String {
            let old: usize = value.parse().unwrap_or(1);
            let new = match name {
                "classes" if c.op == "histogram" => lot.near(old),
                "classes" if c.op == "cross_entropy" => s[1],
                "classes" => s[axis],
                "n" => lot.near(old),
                "k" if old == 1 => 1,
                "k" => lot.near(old).min(s[rank - 1]),
                "parts" => lot.near(old).max(2),
                "out" if groups == features => features,
                "out" => lot.near(old).next_multiple_of(groups),
                "kernel" => lot.one_of(&if old < 5 { [old, 2, 3, 5] } else { [old, 3, 5, 7] }),
                "stride" if old > 1 => lot.one_of(&[2, 3]),
                "window" => {
                    if old > 10 {
                        lot.near(old)
                    } else {
                        window
                    }
                }
                "groups" => groups,
                _ => return value.into(),
            };
            new.to_string()
        };
        new.params = c.params.iter().map(|(k, v)| (k.clone(), drawn(self, k, v, &new.shape))).collect();
        new
    }
}
