//! Covariance and correlation.

use crate::{Tensor, record};

/// The covariance of variables, which are rows, over `n − ddof`.
#[track_caller]
pub fn cov(x: &Tensor, ddof: usize) -> Tensor {
    let _here = crate::record::here();
    if let Some(e) = super::need_rank("cov", x, 1) {
        return e;
    }
    let flat = x.rank() == 1;
    let x = x.cast(record::float_of(x.dtype()));
    record::rounded([&x], |[x]| {
        let c = covariance(&if flat { x.unsqueeze(0) } else { x }, ddof);
        if flat { c.reshape(&[]) } else { c }
    })
}

/// The covariance of rows in their own dtype; infinite or NaN without degrees of freedom.
fn covariance(x: &Tensor, ddof: usize) -> Tensor {
    let d = x - super::mean(x, super::axes(1).keep());
    let n = x.size(1).saturating_sub(ddof) as f64;
    d.matmul(&super::matrix_transpose(&d)) / n
}

/// The correlation coefficients of variables, which are rows.
#[track_caller]
pub fn corrcoef(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let x = x.cast(record::float_of(x.dtype()));
    record::rounded([&x], |[x]| {
        let c = cov(&x, 1);
        if c.rank() == 0 {
            return &c / &c;
        }
        let s = super::diag(&c, 0).sqrt();
        let r = &c / s.unsqueeze(-1) / &s;
        r.clamp(-1.0, 1.0)
    })
}
