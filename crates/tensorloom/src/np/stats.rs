//! Covariance and correlation.

use crate::Tensor;

/// The covariance of variables, which are rows, over `n − ddof`.
#[track_caller]
pub fn cov(x: &Tensor, ddof: usize) -> Tensor {
    let _here = crate::write::here();
    if let Some(e) = super::need_rank("cov", x, 1) {
        return e;
    }
    let flat = x.rank() == 1;
    let x = if flat { x.unsqueeze(0) } else { x.clone() };
    let d = &x - super::mean(&x, super::along(1).keep());
    let n = x.size(1) as f64 - ddof as f64;
    let c = d.matmul(&super::matrix_transpose(&d)) / n;
    if flat { c.reshape(&[]) } else { c }
}

/// The correlation coefficients of variables, which are rows.
#[track_caller]
pub fn corrcoef(x: &Tensor) -> Tensor {
    let _here = crate::write::here();
    let c = cov(x, 1);
    if c.rank() == 0 {
        return &c / &c;
    }
    let s = super::diag(&c, 0).sqrt();
    let r = &c / s.unsqueeze(-1) / &s;
    r.clamp(-1.0, 1.0)
}
