//! Muon: momentum made orthogonal.

use super::{
    Betas, GradientTransformation, Schedule, Transform, chain, moment, per_leaf, scale_by_adam, scale_by_learning_rate,
};
use crate::{Tensor, linalg};

/// Coefficients of the quintic iteration, chosen for a steep slope at 0.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.775, 2.0315];

/// A matrix with about the same singular vectors and singular values near 1, by Newton and Schulz's iteration.
fn orthogonal(x: &Tensor, steps: usize) -> Tensor {
    let tall = x.size(-2) > x.size(-1);
    let x = if tall { x.t() } else { x.clone() };
    let start = &x / (linalg::matrix_norm(&x, (), true) + 1e-8);
    let [a, b, c] = COEFFICIENTS;
    let y = (0..steps).fold(start, |x, _| {
        let square = x.matmul(&x.t());
        let inner = &square * b + square.matmul(&square) * c;
        &x * a + inner.matmul(&x)
    });
    if tall { y.t() } else { y }
}

/// Nesterov's momentum of matrices, made orthogonal; others are an error.
pub fn scale_by_muon(beta: f64) -> GradientTransformation {
    per_leaf(&[0.0], move |c, g, _, s| {
        if g.rank() != 2 {
            return (crate::record::invalid("muon", format!("{} is not a matrix", g.ty())), s.to_vec());
        }
        let mu = moment(&s[0], g, beta);
        let ahead = &mu * beta / c.correction(beta, 1.0, g) + g * (1.0 - beta) / c.correction(beta, 0.0, g);
        (orthogonal(&ahead, 5), vec![mu])
    })
}

/// Muon for matrices, NAdam for the rest.
struct Either {
    matrices: GradientTransformation,
    others: GradientTransformation,
}

impl Either {
    fn part(&self, leaves: &[Tensor], matrices: bool) -> Vec<Tensor> {
        leaves.iter().filter(|t| (t.rank() == 2) == matrices).cloned().collect()
    }
}

impl Transform for Either {
    fn init(&self, params: &[Tensor]) -> Vec<Tensor> {
        let (m, o) = (self.part(params, true), self.part(params, false));
        [self.matrices.links[0].init(&m), self.others.links[0].init(&o)].concat()
    }

    fn update(&self, updates: Vec<Tensor>, state: &[Tensor], params: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
        let (m, o) = (self.part(&updates, true), self.part(&updates, false));
        let (mine, rest) = state.split_at(1 + m.len());
        let (mu, ms) = self.matrices.links[0].update(m, mine, &self.part(params, true));
        let (ou, os) = self.others.links[0].update(o, rest, &self.part(params, false));
        let (mut mu, mut ou) = (mu.into_iter(), ou.into_iter());
        let next = |t: &Tensor| if t.rank() == 2 { mu.next() } else { ou.next() };
        let all: Option<Vec<Tensor>> = updates.iter().map(next).collect();
        (all.expect("one for each leaf"), [ms, os].concat())
    }
}

/// Muon for matrices, whose updates are as large as `√max(1, rows/columns)`; NAdam for all else.
pub fn muon(learning_rate: impl Into<Schedule>) -> GradientTransformation {
    let sized = super::each(|g, _| match g.rank() {
        2 => g * (g.size(1) as f64 / g.size(0).max(1) as f64).max(1.0).sqrt(),
        _ => g.clone(),
    });
    let either = GradientTransformation::new(Either {
        matrices: scale_by_muon(0.95),
        others: scale_by_adam(Betas { nesterov: true, ..Betas::default() }),
    });
    chain([either, sized, scale_by_learning_rate(learning_rate)])
}
