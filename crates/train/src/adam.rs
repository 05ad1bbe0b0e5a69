//! Adam and AdamW as graph functions. Every front end's Adam is this one.
//!
//! `m ← β₁m + (1 − β₁)g`, `v ← β₂v + (1 − β₂)g²`, `u = (m/c₁) / (√(v/c₂) + ε)` with `cᵢ = 1 − βᵢᵗ`, and `p ← p − rate·(u + λp)`.
//!
//! The references compute this formula in different orders, which round differently in the last bit. A resumed run must be
//! bitwise reproducible, so each front end keeps its own order: [`BiasCorrection`] selects it.

use ir::{GraphBuilder, Result, Unary, Value};

/// Hyperparameters of Adam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Decay rate of the first moment (β₁).
    pub beta1: f64,
    /// Decay rate of the second moment (β₂).
    pub beta2: f64,
    /// Added to the square root in the denominator.
    pub eps: f64,
    /// Added under the square root in the denominator.
    pub eps_root: f64,
}

impl Default for Adam {
    fn default() -> Adam {
        Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, eps_root: 0.0 }
    }
}

/// How the bias of moments that start at 0 is corrected. All values are of rank 0 and of the parameter's dtype.
#[derive(Clone, Copy, Debug)]
pub enum BiasCorrection {
    /// Divides by `c₁` and `c₂`, as optax does. With `ahead`, the `c₁` of the next step, the update uses Nesterov momentum.
    OptaxOrder {
        /// `1 − β₁ᵗ`.
        c1: Value,
        /// `1 − β₂ᵗ`.
        c2: Value,
        /// `1 − β₁ᵗ⁺¹`.
        ahead: Option<Value>,
    },
    /// Multiplies by `1/c₁` and `1/c₂`, which the trainer has computed once: this saves a division per element.
    Multiplied {
        /// `1/(1 − β₁ᵗ)`.
        k1: Value,
        /// `1/(1 − β₂ᵗ)`.
        k2: Value,
    },
    /// Divides `√v` by `√c₂`, as PyTorch does; the learning rate includes `c₁`, and the first moment is updated by `lerp`.
    PyTorchOrder {
        /// `√(1 − β₂ᵗ)`.
        root2: Value,
    },
}

/// The result of an Adam update.
#[derive(Clone, Copy, Debug)]
pub struct AdamUpdate {
    /// The update direction, to be subtracted from the parameter.
    pub direction: Value,
    /// The new first moment.
    pub first_moment: Value,
    /// The new second moment.
    pub second_moment: Value,
}

/// `decay·m + (1 − decay)·x`.
pub fn update_ema<B: GraphBuilder + ?Sized>(b: &mut B, m: Value, x: Value, decay: f64) -> Result<Value> {
    let (kept, added) = (b.scale(m, decay)?, b.scale(x, 1.0 - decay)?);
    b.add(kept, added)
}

/// `m + (1 − decay)·(x − m)`: equal to `update_ema` up to rounding; it rounds as PyTorch's `lerp` does.
pub fn lerp<B: GraphBuilder + ?Sized>(b: &mut B, m: Value, x: Value, decay: f64) -> Result<Value> {
    let distance = b.sub(x, m)?;
    let part = b.scale(distance, 1.0 - decay)?;
    b.add(m, part)
}

impl Adam {
    /// Returns the update direction of a gradient and both new moments.
    pub fn update<B: GraphBuilder + ?Sized>(
        &self,
        b: &mut B,
        [m, v]: [Value; 2],
        g: Value,
        corrections: BiasCorrection,
    ) -> Result<AdamUpdate> {
        let mean = match corrections {
            BiasCorrection::PyTorchOrder { .. } => lerp(b, m, g, self.beta1)?,
            _ => update_ema(b, m, g, self.beta1)?,
        };
        let square = b.mul(g, g)?;
        let square = update_ema(b, v, square, self.beta2)?;
        let shape = b.ty(g).shape;
        let (first, root) = match corrections {
            BiasCorrection::OptaxOrder { c1, c2, ahead } => {
                let (c1, c2) = (b.splat(c1, &shape)?, b.splat(c2, &shape)?);
                let first = match ahead {
                    None => b.div(mean, c1)?,
                    Some(next) => {
                        let next = b.splat(next, &shape)?;
                        let (far, near) = (b.scale(mean, self.beta1)?, b.scale(g, 1.0 - self.beta1)?);
                        let (far, near) = (b.div(far, next)?, b.div(near, c1)?);
                        b.add(far, near)?
                    }
                };
                let second = b.div(square, c2)?;
                (first, self.denominator(b, second)?)
            }
            BiasCorrection::Multiplied { k1, k2 } => {
                let (k1, k2) = (b.splat(k1, &shape)?, b.splat(k2, &shape)?);
                let (first, second) = (b.mul(mean, k1)?, b.mul(square, k2)?);
                (first, self.denominator(b, second)?)
            }
            BiasCorrection::PyTorchOrder { root2 } => {
                let root = self.denominator(b, square)?;
                let root2 = b.splat(root2, &shape)?;
                (mean, b.div(root, root2)?)
            }
        };
        let below = b.offset(root, self.eps)?;
        let direction = b.div(first, below)?;
        Ok(AdamUpdate { direction, first_moment: mean, second_moment: square })
    }

    fn denominator<B: GraphBuilder + ?Sized>(&self, b: &mut B, square: Value) -> Result<Value> {
        let under = if self.eps_root == 0.0 { square } else { b.offset(square, self.eps_root)? };
        b.unary(Unary::Sqrt, under)
    }
}

/// `p − rate·(direction + decay·p)`: a step of AdamW, or of Adam where `decay` is 0. `rate` is of rank 0.
pub fn apply_update<B: GraphBuilder + ?Sized>(
    b: &mut B,
    p: Value,
    direction: Value,
    decay: f64,
    rate: Value,
) -> Result<Value> {
    let mut change = direction;
    if decay != 0.0 {
        let decay = b.scale(p, decay)?;
        change = b.add(change, decay)?;
    }
    let shape = b.ty(p).shape;
    let rate = b.splat(rate, &shape)?;
    let change = b.mul(change, rate)?;
    b.sub(p, change)
}
