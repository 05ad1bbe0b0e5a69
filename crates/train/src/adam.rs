//! Adam and AdamW as graph functions. Every front end's Adam is this one.
//!
//! `m ← β₁m + (1 − β₁)g`, `v ← β₂v + (1 − β₂)g²`, `u = (m/c₁) / (√(v/c₂) + ε)` with `cᵢ = 1 − βᵢᵗ`, and `p ← p − rate·(u + λp)`.
//!
//! The references write this algebra differently, and what they round differs in the last bit. A run must resume to the bits that it
//! would have had, so each front end keeps the form that it began with: [`Corrections`] says which.

use ir::{Build, Result, Unary, Value};

/// Adam's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Decay of the mean.
    pub beta1: f64,
    /// Decay of the mean square.
    pub beta2: f64,
    /// Added to the root.
    pub eps: f64,
    /// Added under the root.
    pub eps_root: f64,
}

impl Default for Adam {
    fn default() -> Adam {
        Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, eps_root: 0.0 }
    }
}

/// How means that began at 0 are corrected. All values are of rank 0 and of the parameter's dtype.
#[derive(Clone, Copy, Debug)]
pub enum Corrections {
    /// Divided by `c₁` and `c₂`, as optax does. With `ahead`, `c₁` of the next step, the mean looks ahead as Nesterov's does.
    Divided {
        /// `1 − β₁ᵗ`.
        c1: Value,
        /// `1 − β₂ᵗ`.
        c2: Value,
        /// `1 − β₁ᵗ⁺¹`.
        ahead: Option<Value>,
    },
    /// Multiplied by `1/c₁` and `1/c₂`, which somebody else has computed: the trainer's, a division less for each element.
    Multiplied {
        /// `1/(1 − β₁ᵗ)`.
        k1: Value,
        /// `1/(1 − β₂ᵗ)`.
        k2: Value,
    },
    /// As PyTorch does: `√v` divided by `√c₂`, while `c₁` is left to the step's length; the mean moves by a share of its distance.
    Folded {
        /// `√(1 − β₂ᵗ)`.
        root2: Value,
    },
}

/// What an update makes of a gradient.
#[derive(Clone, Copy, Debug)]
pub struct Updated {
    /// The direction, uphill.
    pub direction: Value,
    /// The mean.
    pub mean: Value,
    /// The mean square.
    pub square: Value,
}

/// `decay·m + (1 − decay)·x`.
pub fn moment<B: Build + ?Sized>(b: &mut B, m: Value, x: Value, decay: f64) -> Result<Value> {
    let (kept, added) = (b.scale(m, decay)?, b.scale(x, 1.0 - decay)?);
    b.add(kept, added)
}

/// `m + (1 − decay)·(x − m)`: the same, rounded as PyTorch's `lerp`.
pub fn lerp<B: Build + ?Sized>(b: &mut B, m: Value, x: Value, decay: f64) -> Result<Value> {
    let distance = b.sub(x, m)?;
    let part = b.scale(distance, 1.0 - decay)?;
    b.add(m, part)
}

impl Adam {
    /// The direction of a gradient, and both moments after it.
    pub fn update<B: Build + ?Sized>(
        &self,
        b: &mut B,
        [m, v]: [Value; 2],
        g: Value,
        corrections: Corrections,
    ) -> Result<Updated> {
        let mean = match corrections {
            Corrections::Folded { .. } => lerp(b, m, g, self.beta1)?,
            _ => moment(b, m, g, self.beta1)?,
        };
        let square = b.mul(g, g)?;
        let square = moment(b, v, square, self.beta2)?;
        let shape = b.ty(g).shape;
        let (first, root) = match corrections {
            Corrections::Divided { c1, c2, ahead } => {
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
                (first, self.root(b, second)?)
            }
            Corrections::Multiplied { k1, k2 } => {
                let (k1, k2) = (b.splat(k1, &shape)?, b.splat(k2, &shape)?);
                let (first, second) = (b.mul(mean, k1)?, b.mul(square, k2)?);
                (first, self.root(b, second)?)
            }
            Corrections::Folded { root2 } => {
                let root = self.root(b, square)?;
                let root2 = b.splat(root2, &shape)?;
                (mean, b.div(root, root2)?)
            }
        };
        let below = b.offset(root, self.eps)?;
        let direction = b.div(first, below)?;
        Ok(Updated { direction, mean, square })
    }

    fn root<B: Build + ?Sized>(&self, b: &mut B, square: Value) -> Result<Value> {
        let under = if self.eps_root == 0.0 { square } else { b.offset(square, self.eps_root)? };
        b.unary(Unary::Sqrt, under)
    }
}

/// `p − rate·(direction + decay·p)`: a step of AdamW, or of Adam where nothing decays. `rate` is of rank 0.
pub fn descend<B: Build + ?Sized>(b: &mut B, p: Value, direction: Value, decay: f64, rate: Value) -> Result<Value> {
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
