//! Attention with the layout of `jax.nn`.

use crate::{Tensor, record};
use ir::composites::attention::{self, AttentionOptions as Options};

/// Choices about attention.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// Queries see keys up to their own position.
    pub causal: bool,
    /// Queries see this many positions back, their own included.
    pub window: Option<usize>,
    /// The factor of the scores; `1/√D` unless given.
    pub scale: Option<f64>,
    /// Bool `[B, N or 1, T or 1, S]`: what is visible.
    pub mask: Option<Tensor>,
    /// Floats `[B, N or 1, T or 1, S]`: added to the scores.
    pub bias: Option<Tensor>,
}

/// Attention of queries `[B, T, N, H]` over keys and values `[B, S, K, H]`, with `N` a multiple of `K`; without `B` too.
///
/// ```
/// use tensorloom::nn::{Attention, dot_product_attention};
/// use tensorloom::ones;
///
/// let (q, k) = (ones(&[2, 5, 4, 8]), ones(&[2, 7, 2, 8]));
/// assert_eq!(dot_product_attention(&q, &k, &k, &Attention::default()).shape(), [2, 5, 4, 8]);
/// ```
#[track_caller]
pub fn dot_product_attention(q: &Tensor, k: &Tensor, v: &Tensor, options: &Attention) -> Tensor {
    let _here = crate::record::here();
    let mask = options.mask.as_ref();
    let given = [q, k, v].into_iter().chain(mask).chain(&options.bias);
    if let Some(e) = given.clone().find_map(|t| t.error()) {
        return Tensor::from_error(e);
    }
    if [k, v].iter().any(|t| t.rank() != q.rank()) || !(3..=4).contains(&q.rank()) {
        let text = format!("{}, {}, {} are not all [B, T, N, H] or [T, N, H]", q.ty(), k.ty(), v.ty());
        return record::invalid("dot_product_attention", text);
    }
    // One of the two goes in; a mask becomes −∞ where there is a bias too.
    let added = match (&options.bias, mask) {
        (Some(b), Some(m)) => Some(m.select(b, &crate::np::full_like(b, f64::NEG_INFINITY))),
        (Some(b), None) => Some(b.clone()),
        (None, Some(m)) => Some(m.clone()),
        (None, None) => None,
    };
    let heads = |t: &Tensor| t.transpose(-3, -2);
    let (qh, kh, vh) = (heads(q), heads(k), heads(v));
    // Positions count from the first query and the first key, as in JAX.
    let start = crate::engine_of(q).zeros(crate::DType::I32, &[]);
    let ordered = options.causal || options.window.is_some();
    let mut args = vec![&qh, &kh, &vh];
    args.extend(ordered.then_some(&start));
    args.extend(&added);
    let y = record::one(&args, |b, v| {
        let o = Options {
            causal: options.causal,
            window: options.window,
            scale: options.scale,
            q_offset: ordered.then(|| b.ty(v[3])),
            mask: v.get(3 + usize::from(ordered)).map(|&m| b.ty(m)),
            ..Options::default()
        };
        let types: Vec<_> = v.iter().map(|&v| b.ty(v)).collect();
        let (window, scale) = (options.window.map_or(-1.0, |w| w as f64), options.scale.unwrap_or(f64::NAN));
        let numbers = [f64::from(u8::from(options.causal)), window, scale, f64::from(u8::from(ordered))];
        let make = || attention::attention(&types[0], &types[1], &types[2], &o);
        let op = engine::composite("attention", &types, &numbers, make)?;
        Ok(b.emit(op.into(), v)?[0])
    });
    heads(&y)
}
