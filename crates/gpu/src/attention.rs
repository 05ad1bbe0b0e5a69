//! The parameters of an attention composite, for the kernels of every device.

use ir::ops::Composite;
use ir::{DType, Type};

/// The window size without a window.
pub(crate) const FAR: i64 = 1 << 30;

/// An attention or its backward, without masks, segments and slopes, which the compiler inlines.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionCall {
    pub(crate) backward: bool,
    pub(crate) dtype: DType,
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    /// The number of query heads for each key head.
    pub(crate) group: usize,
    pub(crate) tq: usize,
    pub(crate) tk: usize,
    pub(crate) d: usize,
    pub(crate) dv: usize,
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
    pub(crate) causal: bool,
    pub(crate) window: Option<i64>,
    /// Its position among the operands, and the number of batches that share an entry.
    pub(crate) offset: Option<(usize, usize)>,
    pub(crate) lengths: Option<(usize, usize)>,
    /// The number of operands before the results that backward takes.
    pub(crate) operands: usize,
}

impl AttentionCall {
    /// The parameters of a composite, if it is a supported attention.
    pub(crate) fn of(c: &Composite, args: &[Type]) -> Option<AttentionCall> {
        let backward = match c.name.as_str() {
            "attention" => false,
            "attention_backward" => true,
            _ => return None,
        };
        if c.flag("segments") || c.flag("slopes") || c.param("mask").is_some() {
            return None;
        }
        let [q, k, v, ..] = args else { return None };
        let n = q.rank().checked_sub(3)?;
        let mut at = 3;
        let mut shared = |flag: bool| -> Option<Option<(usize, usize)>> {
            if !flag {
                return Some(None);
            }
            let every = q.shape[args.get(at)?.rank()..n].iter().product();
            at += 1;
            Some(Some((at - 1, every)))
        };
        let offset = shared(c.flag("q_offset"))?;
        let lengths = shared(c.flag("lengths"))?;
        Some(AttentionCall {
            backward,
            dtype: q.dtype,
            batch: q.shape[..n].iter().product(),
            heads: q.shape[n],
            group: q.shape[n].checked_div(k.shape[n])?,
            tq: q.shape[n + 1],
            tk: k.shape[n + 1],
            d: q.shape[n + 2],
            dv: v.shape[n + 2],
            scale: c.float("scale")? as f32,
            cap: c.float("softcap").map(|x| x as f32),
            causal: c.flag("causal"),
            window: c.int("window"),
            offset,
            lengths,
            operands: at,
        })
    }
}
