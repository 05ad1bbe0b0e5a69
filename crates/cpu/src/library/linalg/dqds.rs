//! Singular values of a bidiagonal matrix without vectors: the dqds algorithm with shifts (Fernando and Parlett, 1994; the choice
//! of shifts is that of LAPACK's `dlasq4`). An element of a pass takes one division, where a rotation takes two square
//! roots and four divisions.

use super::Real;
use super::tridiagonal_dc::split_as;
use crate::gemm::Isa;
use smallvec::SmallVec;

/// The maximum number of passes per value; after that the algorithm gives up.
const PASSES: usize = 30;

/// The squares of the diagonal (`q`), and the couplings of neighbours (`e`).
struct SquaredBidiagonal<'a> {
    q: &'a mut [f64],
    e: &'a mut [f64],
}

/// The statistics of a pass: the last remainders, the last one first; the minimum of all remainders, of all but the last, and of
/// all but the last two; and the smallest coupling.
#[derive(Clone, Copy)]
struct DqdsPassResult {
    last: [f64; 3],
    least: [f64; 3],
    coupling: f64,
}

/// A block that no coupling connects with other blocks: its range, and the total shift so far with its rounding error.
#[derive(Clone, Copy)]
struct UnreducedBlock {
    from: usize,
    to: usize,
    side: usize,
    shift: f64,
    lost: f64,
}

impl UnreducedBlock {
    fn subtracted(&mut self, t: f64) {
        let sum;
        if t < self.shift {
            self.lost += t;
            sum = self.shift + self.lost;
            self.lost -= sum - self.shift;
        } else {
            sum = self.shift + t;
            self.lost += self.shift - (sum - t);
        }
        self.shift = sum;
    }
}

/// The blocks that are still to be solved.
type Parts = SmallVec<[UnreducedBlock; 16]>;

/// Computes the singular values of the matrix with diagonal `d` and superdiagonal `e[1..]`, in place of `d` and unordered. `room`
/// has seven f64 per value and a few more. If it does not converge, `d` is unchanged and the result is `false`.
#[inline(always)]
pub(super) fn singular_values<T: Real>(d: &mut [T], e: &[T], isa: Isa, room: &mut [T]) -> bool {
    let n = d.len();
    let (values, rest) = split_as::<f64, T>(room, n);
    let (beside, rest) = split_as::<f64, T>(rest, n);
    let (room, _) = split_as::<f64, T>(rest, 5 * n);
    values.iter_mut().zip(&*d).for_each(|(to, d)| *to = d.wide());
    beside.iter_mut().zip(e).for_each(|(to, e)| *to = e.wide());
    // A tolerance well below the precision of the results.
    let tolerance = if size_of::<T>() == 4 { 1e-9 } else { 1e-14 };
    let found = singular_values_f64(values, beside, tolerance, isa, room);
    if found {
        d.iter_mut().zip(values).for_each(|(d, x)| *d = T::of(*x));
    }
    found
}

/// Computes the singular values of a bidiagonal f64 matrix.
/// Couplings that change values by less than `tolerance`, relatively, count as zero.
fn singular_values_f64(d: &mut [f64], e: &[f64], tolerance: f64, isa: Isa, room: &mut [f64]) -> bool {
    let n = d.len();
    let (q, rest) = room.split_at_mut(n);
    let (other_q, rest) = rest.split_at_mut(n);
    let (coupling, rest) = rest.split_at_mut(n);
    let (other_coupling, done) = rest.split_at_mut(n);
    for i in 0..n {
        q[i] = d[i] * d[i];
        coupling[i] = if i + 1 < n { e[i + 1] * e[i + 1] } else { 0.0 };
    }
    let mut sides = [SquaredBidiagonal { q, e: coupling }, SquaredBidiagonal { q: other_q, e: other_coupling }];
    let mut parts = Parts::new();
    parts.push(UnreducedBlock { from: 0, to: n, side: 0, shift: 0.0, lost: 0.0 });
    let mut passes = PASSES * n;
    while let Some(part) = parts.pop() {
        if !one(part, &mut sides, tolerance * tolerance, isa, &mut parts, &mut passes, done) {
            return false;
        }
    }
    let done = &done[..n];
    let found = done.iter().all(|x| x.is_finite());
    if found {
        d.iter_mut().zip(done).for_each(|(d, q)| *d = q.max(0.0).sqrt());
    }
    found
}

/// Computes the squared singular values of one block into `done`; blocks that split off go to `parts`.
fn one(
    mut part: UnreducedBlock,
    sides: &mut [SquaredBidiagonal<'_>; 2],
    nothing: f64,
    isa: Isa,
    parts: &mut Parts,
    passes: &mut usize,
    done: &mut [f64],
) -> bool {
    let [a, b] = sides;
    let (mut now, mut next) = if part.side == 0 { (a, b) } else { (b, a) };
    // The statistics of the last pass, the number of values found since,
    // and the fraction of an upper bound to try as a shift without them.
    let (mut met, mut came, mut dared) = (None::<DqdsPassResult>, 0, 0.25);
    loop {
        while part.to > part.from {
            let (n, count) = (part.to, part.to - part.from);
            let (q, e) = (&*now.q, &*now.e);
            if count == 1 || e[n - 2] <= nothing * (part.shift + q[n - 1]) {
                done[n - 1] = q[n - 1] + part.shift;
                part.to -= 1;
                came += 1;
            } else if count == 2 || e[n - 3] <= nothing * (part.shift + q[n - 2].min(q[n - 1])) {
                let (low, high) = singular_values_2x2(q[n - 2], e[n - 2], q[n - 1], nothing);
                (done[n - 1], done[n - 2]) = (low + part.shift, high + part.shift);
                part.to -= 2;
                came += 2;
            } else {
                break;
            }
        }
        if part.to == part.from {
            return true;
        }
        // Split off what no coupling connects with the end.
        if met.is_none_or(|m| m.coupling <= nothing * (part.shift + 4.0)) {
            let none = |&k: &usize| now.e[k] <= nothing * (part.shift + now.q[k].min(now.q[k + 1]));
            if let Some(k) = (part.from..part.to - 2).rev().find(none) {
                parts.push(UnreducedBlock { to: k + 1, ..part });
                (part.from, met) = (k + 1, None);
            }
        }
        let own = part.from..part.to;
        // Small values converge fastest at the end.
        if (met.is_none() || came > 0) && 1.5 * now.q[own.start] < now.q[own.end - 1] {
            now.q[own.clone()].reverse();
            now.e[own.start..own.end - 1].reverse();
            met = None;
        }
        let (q, e) = (&now.q[own.clone()], &now.e[own.clone()]);
        let mut t = match &met {
            Some(m) => choose_shift(m, q, e, came, &mut dared),
            None => gershgorin_shift(q, e),
        };
        let mut failures = 0;
        let m = loop {
            let Some(left) = passes.checked_sub(1) else { return false };
            *passes = left;
            if t < f64::EPSILON * part.shift {
                t = 0.0;
            }
            let (to_q, to_e) = (&mut next.q[own.clone()], &mut next.e[own.clone()]);
            let mut m = dqds_pass(isa, q, e, to_q, to_e, t);
            if m.least[0] >= 0.0 && m.last[0] >= 0.0 {
                break m;
            }
            let near = |x: f64, to: f64| x.abs() <= nothing.sqrt() * to;
            let n = q.len();
            if m.least[1] > 0.0 && near(to_e[n - 2], part.shift + m.last[1]) && near(m.last[0], part.shift) {
                // The value has converged up to rounding.
                to_q[n - 1] = 0.0;
                (m.last[0], m.least[0]) = (0.0, 0.0);
                break m;
            }
            if t == 0.0 {
                return false;
            }
            // The shift was too large; the negative remainder at the end says by how much.
            t = match failures {
                0 if m.least[1] > 0.0 && m.last[0] < 0.0 => (t + m.last[0]).max(0.0) * (1.0 - 2.0 * f64::EPSILON),
                0 | 1 => 0.25 * t,
                _ => 0.0,
            };
            (dared, failures) = (0.25 * dared, failures + 1);
        };
        part.subtracted(t);
        std::mem::swap(&mut now, &mut next);
        part.side = 1 - part.side;
        (met, came) = (Some(m), 0);
    }
}

/// Computes both squared singular values of a 2 × 2 block, the smaller one first.
fn singular_values_2x2(a: f64, e: f64, b: f64, nothing: f64) -> (f64, f64) {
    let (high, low) = if b > a { (b, a) } else { (a, b) };
    let t = 0.5 * ((high - low) + e);
    if e <= low * nothing || t == 0.0 {
        return (low, high);
    }
    let s = low * (e / t);
    let s = if s <= t {
        low * (e / (t * (1.0 + (1.0 + s / t).sqrt())))
    } else {
        low * (e / (t + t.sqrt() * (t + s).sqrt()))
    };
    let most = high + (s + e);
    (low * (high / most), most)
}

/// Does one dqds pass, which subtracts `t` from all squared values.
fn dqds_pass(isa: Isa, q: &[f64], e: &[f64], to_q: &mut [f64], to_e: &mut [f64], t: f64) -> DqdsPassResult {
    #[cfg(target_arch = "x86_64")]
    if isa != Isa::Portable {
        #[target_feature(enable = "fma")]
        fn fused(q: &[f64], e: &[f64], to_q: &mut [f64], to_e: &mut [f64], t: f64) -> DqdsPassResult {
            pass_by(q, e, to_q, to_e, t, |d, by| d.mul_add(by, -t))
        }
        // SAFETY: every instruction set but the portable one has FMA.
        return unsafe { fused(q, e, to_q, to_e, t) };
    }
    let _ = isa;
    pass_by(q, e, to_q, to_e, t, |d, by| d * by - t)
}

/// Does a pass in which each remainder is `less(previous remainder, quotient)`.
#[inline(always)]
fn pass_by(
    q: &[f64],
    e: &[f64],
    to_q: &mut [f64],
    to_e: &mut [f64],
    t: f64,
    less: impl Fn(f64, f64) -> f64,
) -> DqdsPassResult {
    let n = q.len();
    let (e, to_q, to_e) = (&e[..n], &mut to_q[..n], &mut to_e[..n]);
    let mut d = q[0] - t;
    let (mut least, mut coupling) = (d, f64::INFINITY);
    let mut m = DqdsPassResult { last: [d; 3], least: [f64::INFINITY; 3], coupling };
    let mut step = |k: usize, d: f64| {
        let own = d + e[k];
        let by = q[k + 1] / own;
        (to_q[k], to_e[k]) = (own, e[k] * by);
        coupling = if to_e[k] < coupling { to_e[k] } else { coupling };
        less(d, by)
    };
    for k in 0..n.saturating_sub(3) {
        d = step(k, d);
        least = if d < least { d } else { least };
    }
    for k in n.saturating_sub(3)..n - 1 {
        (m.last[2], m.last[1], m.least[2], m.least[1]) = (m.last[1], d, m.least[1], least);
        d = step(k, d);
        least = if d < least { d } else { least };
    }
    m.last[0] = d;
    m.least[0] = least;
    m.coupling = coupling;
    to_q[n - 1] = d;
    m
}

/// The first shift, a lower bound from Gershgorin's discs.
fn gershgorin_shift(q: &[f64], e: &[f64]) -> f64 {
    let least = q.iter().fold(f64::INFINITY, |m, &x| m.min(x));
    let most = e[..e.len() - 1].iter().fold(0f64, |m, &x| m.max(x));
    (least - 2.0 * least.sqrt() * most.sqrt()).max(0.0)
}

/// Bounds the squared norm of the tail of an approximate eigenvector that starts with 1, from the ratios of couplings at `k` and
/// before. `None` where they grow.
fn tail_norm(q: &[f64], e: &[f64], k: usize, mut b: f64, enough: f64) -> Option<f64> {
    let mut sum = b;
    for k in (0..k).rev() {
        if b == 0.0 {
            break;
        }
        let before = b;
        if e[k] > q[k] {
            return None;
        }
        b *= e[k] / q[k];
        sum += b;
        if 100.0 * b.max(before) < sum || sum > enough {
            break;
        }
    }
    Some(1.05 * sum)
}

/// Chooses the shift from the statistics of the last pass and the number of values found since:
/// close to the smallest value, rarely larger.
fn choose_shift(m: &DqdsPassResult, q: &[f64], e: &[f64], came: usize, dared: &mut f64) -> f64 {
    const ENOUGH: f64 = 0.563;
    let n = q.len();
    let ([last, last1, last2], [least, least1, least2]) = (m.last, m.least);
    match came {
        0 if least == last && least1 == last1 => {
            // The last two remainders are the smallest: use a Rayleigh quotient minus the coupling with the rest.
            let (b1, b2) = ((q[n - 1] * e[n - 2]).sqrt(), if n > 2 { (q[n - 2] * e[n - 3]).sqrt() } else { 0.0 });
            let a = q[n - 2] + e[n - 2];
            let gap2 = least2 - a - 0.25 * least2;
            let gap = a - last - if gap2 > 0.0 && gap2 > b2 { b2 / gap2 * b2 } else { b1 + b2 };
            if gap > 0.0 && gap > b1 {
                return (last - b1 / gap * b1).max(0.5 * least);
            }
            let s = if last > b1 { last - b1 } else { 0.0 };
            let s = if a > b1 + b2 { s.min(a - (b1 + b2)) } else { s };
            s.max(least / 3.0)
        }
        0 if least == last => match e[n - 2] <= q[n - 2] {
            true => match tail_norm(q, e, n - 2, e[n - 2] / q[n - 2], ENOUGH) {
                Some(a) if a < ENOUGH => last * (1.0 - a.sqrt()) / (1.0 + a),
                _ => 0.25 * least,
            },
            false => 0.25 * least,
        },
        0 => {
            *dared = if *dared >= 0.25 { *dared + (1.0 - *dared) / 3.0 } else { 0.25 };
            if *dared > 0.9 {
                *dared = 0.25;
            }
            *dared * least
        }
        1 if least1 == last1 && least2 == last2 => {
            let s = least1 / 3.0;
            if n < 2 || e[n - 2] > q[n - 2] {
                return s;
            }
            let Some(b) = tail_norm(q, e, n - 2, e[n - 2] / q[n - 2], f64::INFINITY) else { return s };
            let (b, a) = (b.sqrt(), least1 / (1.0 + b));
            let gap = 0.5 * least2 - a;
            s.max(a * if gap > 0.0 && gap > b * a { 1.0 - 1.01 * a * (b / gap) * b } else { 1.0 - 1.01 * b })
        }
        1 if least1 == last1 => 0.5 * least1,
        1 => 0.25 * least1,
        2 => 0.25 * least2,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Isa, singular_values_f64};

    /// Computes the singular values by bisection: they are the positive eigenvalues of a tridiagonal matrix with a zero diagonal
    /// and the elements of both diagonals, alternating, beside it.
    fn bisected(d: &[f64], e: &[f64]) -> Vec<f64> {
        let n = d.len();
        let beside: Vec<f64> = (0..n).flat_map(|i| [d[i], *e.get(i + 1).unwrap_or(&0.0)]).take(2 * n - 1).collect();
        let top = 2.1 * d.iter().chain(e).fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
        let below = |x: f64| {
            let mut p = -x;
            let mut count = usize::from(p < 0.0);
            for b in &beside {
                p = -x - b * b / if p == 0.0 { 1e-300 } else { p };
                count += usize::from(p < 0.0);
            }
            count
        };
        let value = |k: usize| {
            let (mut low, mut high) = (0.0, top);
            loop {
                let middle = 0.5 * (low + high);
                if middle <= low || middle >= high {
                    return middle;
                }
                if below(middle) > n + k { high = middle } else { low = middle }
            }
        };
        (0..n).map(value).collect()
    }

    #[test]
    fn values_are_those_of_bisection() {
        let mut state = 1u64;
        let mut unit = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        for n in [1usize, 2, 3, 4, 5, 8, 16, 33, 100] {
            for kind in 0..8 {
                let mut d: Vec<f64> = (0..n).map(|_| unit()).collect();
                let mut e: Vec<f64> = (0..n).map(|_| unit()).collect();
                for i in 0..n {
                    let graded = |k: usize| 0.1f64.powi((k / 4) as i32);
                    match kind {
                        1 => (d[i], e[i]) = (d[i] * graded(i), e[i] * graded(i)),
                        2 => (d[i], e[i]) = (d[i] * graded(n - i), e[i] * graded(n - i)),
                        3 if unit() < -0.6 => d[i] = 0.0,
                        3 if unit() < -0.6 => e[i] = 0.0,
                        4 => (d[i], e[i]) = (1.0, 1.0),
                        5 => (d[i], e[i]) = (1.0, 1e-9),
                        6 => d[i] = 0.0,
                        7 => (d[i], e[i]) = ((n - i) as f64, (n - i) as f64),
                        _ => {}
                    }
                }
                e[0] = 0.0;
                let want = bisected(&d, &e);
                for &isa in Isa::available() {
                    let mut got = d.clone();
                    assert!(
                        singular_values_f64(&mut got, &e, 1e-14, isa, &mut vec![0.0; 5 * n]),
                        "{n} of kind {kind} on {isa:?}"
                    );
                    got.sort_by(f64::total_cmp);
                    let most = want[n - 1];
                    for (got, want) in got.iter().zip(&want) {
                        // The error relative to each value, however small it is.
                        let off = (got - want).abs();
                        assert!(off <= 1e-13 * want + 1e-150 * most, "{n} of kind {kind} on {isa:?}: {got:e} {want:e}");
                    }
                }
            }
        }
    }
}
