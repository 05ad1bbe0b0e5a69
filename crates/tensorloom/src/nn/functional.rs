//! Layers as functions of their parameters.

use super::Module;
use crate::{DType, Result, Tensor, Tree, random, record};
use std::collections::BTreeMap;

/// A module with other tensors in place of its own, by name; what is not named stays.
///
/// Parameters by name are a tree, so `grad`, `jit`, `vmap` and `optim` take them; the module only says what is computed.
///
/// ```
/// use std::collections::BTreeMap;
/// use tensorloom::prelude::*;
///
/// let model = nn::Linear::new(3, 1);
/// let (x, y) = (ones((4, 3)), zeros((4, 1)));
/// let loss = move |params: BTreeMap<String, Tensor>| match nn::functional_call(&model, &params) {
///     Ok(model) => nn::mse_loss(&model.forward(&x), &y),
///     Err(e) => Tensor::from_error(e),
/// };
/// # let model = nn::Linear::new(3, 1);
/// let slopes = jit(grad(loss)).call(model.params());
/// assert_eq!(slopes["weight"].shape(), [1, 3]);
/// ```
#[track_caller]
pub fn functional_call<M: Module + Tree>(module: &M, tensors: &BTreeMap<String, Tensor>) -> Result<M> {
    let _here = record::here();
    let fail = |reason: String| record::error("functional_call", reason);
    let own = module.named_tensors();
    for (name, new) in tensors {
        new.check()?;
        match own.iter().find(|(n, _)| n == name) {
            None => return Err(fail(format!("the module has no {name}"))),
            Some((_, old)) if old.shape() != new.shape() => {
                return Err(fail(format!("{name} is {}, the module has {}", new.ty(), old.ty())));
            }
            Some(_) => {}
        }
    }
    Ok(module.map(|leaf| {
        let name = own.iter().find(|(name, t)| t.is_same(leaf) && tensors.contains_key(name));
        name.map_or_else(|| leaf.clone(), |(name, _)| tensors[name].clone())
    }))
}

/// `x/(1 − rate)` where a draw by a key keeps it, else 0: dropout for pure functions.
///
/// ```
/// use tensorloom::prelude::*;
///
/// let noisy = jit(|(x, key): (Tensor, Tensor)| nn::dropout(&x, 0.5, &key));
/// let y = noisy.call((ones(1000), random::key(1))).to_vec::<f32>()?;
/// assert!(y.iter().all(|v| *v == 0.0 || *v == 2.0));
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn dropout(x: &Tensor, rate: f64, key: &Tensor) -> Tensor {
    let _here = record::here();
    if !(0.0..1.0).contains(&rate) {
        return record::invalid("dropout", format!("the rate must be at least 0 and less than 1, got {rate}"));
    }
    let keep = random::bernoulli(key, x.shape(), 1.0 - rate);
    x.dropout_mask(&keep.cast(DType::Bool), rate)
}
