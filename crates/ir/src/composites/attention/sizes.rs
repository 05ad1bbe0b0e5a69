//! The dimensions of an attention: checks of its operands, and its contractions.

use super::super::operand_mismatch;
use super::{AttentionOptions, POSITION};
use crate::build::{Builder, GraphBuilder};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::Value;
use crate::ops::Dot;
use crate::types::{Shape, Type};

/// The dimensions of one attention.
pub(super) struct AttentionDims<'a> {
    pub(super) q: &'a Type,
    pub(super) k: &'a Type,
    v: &'a Type,
    /// Number of batch axes.
    pub(super) batch: usize,
    /// The number of query heads for each key head.
    group: usize,
    pub(super) scale: f64,
}

impl<'a> AttentionDims<'a> {
    pub(super) fn new(
        name: &str,
        q: &'a Type,
        k: &'a Type,
        v: &'a Type,
        options: &AttentionOptions,
    ) -> Result<AttentionDims<'a>> {
        let mut all = vec![q, k, v];
        all.extend(options.operands());
        let bad = |text: String| Err(operand_mismatch(name, &all, text));
        if !q.dtype.is_float() || k.dtype != q.dtype || v.dtype != q.dtype {
            return bad("needs q, k and v of one float dtype".into());
        }
        let Some(batch) = q.rank().checked_sub(3) else {
            return bad("needs q of [.., heads, queries, features]".into());
        };
        let lead = &q.shape[..batch];
        let fits = |t: &Type| t.rank() == q.rank() && t.shape[..batch] == *lead;
        if !fits(k) || !fits(v) || k.shape[batch..batch + 2] != v.shape[batch..batch + 2] {
            return bad(format!("needs k and v of [{lead:?}.., key heads, keys, features]"));
        }
        let (heads, groups) = (q.shape[batch], k.shape[batch]);
        if groups == 0 || heads % groups != 0 {
            return bad(format!("needs a number of query heads that is divisible by {groups} key heads, got {heads}"));
        }
        let (d, dk) = (q.shape[batch + 2], k.shape[batch + 2]);
        if d != dk {
            return bad(format!("needs q and k of equal features, got {d} and {dk}"));
        }
        let sizes = AttentionDims {
            q,
            k,
            v,
            batch,
            group: heads / groups,
            scale: options.scale.unwrap_or(1.0 / (d.max(1) as f64).sqrt()),
        };
        if let Some(text) = sizes.invalid_option(options) {
            return bad(text);
        }
        Ok(sizes)
    }

    /// The error in the options, if any.
    fn invalid_option(&self, options: &AttentionOptions) -> Option<String> {
        let n = self.batch;
        let (heads, tq, tk) = (self.q.shape[n], self.q.shape[n + 1], self.k.shape[n + 1]);
        let lead = &self.q.shape[..n];
        // Whether an operand has these trailing sizes after the first batch axes.
        let prefixed = |t: &Type, own: &[usize]| {
            t.rank().checked_sub(own.len()).is_some_and(|p| t.shape[p..] == *own && lead.starts_with(&t.shape[..p]))
        };
        for (name, t) in [("q_offset", &options.q_offset), ("lengths", &options.kv_lengths)] {
            if let Some(t) = t
                && (t.dtype != POSITION || !prefixed(t, &[]))
            {
                return Some(format!("needs {name} of i32 with the first of the axes {lead:?}, got {t}"));
            }
        }
        if let Some((a, c)) = &options.segment_ids
            && (!a.dtype.is_int() || a.dtype != c.dtype || !prefixed(a, &[tq]) || !prefixed(c, &[tk]))
        {
            return Some(format!("needs integer segments of [{tq}] and [{tk}], got {a} and {c}"));
        }
        if let Some(t) = &options.alibi_slopes
            && (!t.dtype.is_float() || !prefixed(t, &[heads]))
        {
            return Some(format!("needs float slopes of [{heads}], got {t}"));
        }
        if let Some(t) = &options.mask {
            let p = t.rank().saturating_sub(3);
            let own = [heads, tq, tk];
            let fits = t.rank() >= 3
                && p <= n
                && (t.dtype.is_float() || t.dtype == DType::Bool)
                && (t.shape.iter()).zip(lead[..p].iter().chain(&own)).all(|(&a, &s)| a == s || a == 1);
            if !fits {
                return Some(format!(
                    "needs a bool or float mask of {own:?} (or 1 instead) with the first of the axes {lead:?}, got {t}"
                ));
            }
        }
        match (options.window, options.softcap) {
            (Some(0), _) => Some("needs a window of 1 or more, got 0".into()),
            (_, Some(c)) if !(c > 0.0 && c.is_finite()) => Some(format!("needs a positive softcap, got {c}")),
            _ if !self.scale.is_finite() => Some(format!("needs a finite scale, got {}", self.scale)),
            _ => None,
        }
    }

    /// The types of all operands.
    pub(super) fn operands<'s>(&'s self, options: &'s AttentionOptions) -> impl Iterator<Item = &'s Type> {
        [self.q, self.k, self.v].into_iter().chain(options.operands())
    }

    /// The dtype of scores.
    pub(super) fn acc_dtype(&self) -> DType {
        self.q.dtype.accumulator()
    }

    /// Type of the first result.
    pub(super) fn out_type(&self) -> Type {
        let mut shape = self.q.shape.clone();
        shape[self.batch + 2] = self.v.shape[self.batch + 2];
        self.q.with_shape(&shape)
    }

    /// Type of the second result.
    pub(super) fn lse_type(&self) -> Type {
        Type::new(self.acc_dtype(), &self.q.shape[..self.batch + 2])
    }

    /// Number of axes of the scores.
    pub(super) fn rank(&self) -> usize {
        self.batch + 4
    }

    /// Shape of the scores.
    pub(super) fn scores_shape(&self) -> Shape {
        let n = self.batch;
        let mut shape = Shape::from_slice(&self.k.shape[..n + 1]);
        shape.extend([self.group, self.q.shape[n + 1], self.k.shape[n + 1]]);
        shape
    }

    /// Splits the head axis, at `axis`, into key heads and groups; size 1 becomes two axes of size 1.
    pub(super) fn split_heads(&self, b: &mut Builder, x: Value, axis: usize) -> Result<Value> {
        let mut shape = b.ty(x).shape;
        let pair = match shape[axis] {
            1 => [1, 1],
            heads => [heads / self.group, self.group],
        };
        shape[axis] = pair[0];
        shape.insert(axis + 1, pair[1]);
        b.reshape(x, &shape)
    }

    /// Reshapes `[.., Hq, T, ..]` to `[.., Hkv, G, T, ..]`.
    pub(super) fn group_heads(&self, b: &mut Builder, x: Value) -> Result<Value> {
        let mut shape = b.ty(x).shape;
        shape[self.batch] = self.k.shape[self.batch];
        shape.insert(self.batch + 1, self.group);
        b.reshape(x, &shape)
    }

    fn dot(&self, lhs: &[usize], rhs: &[usize], out: DType) -> Dot {
        let batch: Shape = (0..self.batch + 1).collect();
        Dot {
            lhs_batch: batch.clone(),
            rhs_batch: batch,
            lhs_contract: Shape::from_slice(lhs),
            rhs_contract: Shape::from_slice(rhs),
            acc: self.acc_dtype(),
            out,
        }
    }

    /// The contraction of `[.., G, Tq, D]` and `[.., Tk, D]` to scores.
    pub(super) fn qk_dot(&self, out: DType) -> Dot {
        let n = self.batch;
        self.dot(&[n + 3], &[n + 2], out)
    }

    /// The contraction of scores and `[.., Tk, D]` to `[.., G, Tq, D]`.
    pub(super) fn scores_v_dot(&self, out: DType) -> Dot {
        let n = self.batch;
        self.dot(&[n + 3], &[n + 1], out)
    }

    /// The contraction of scores, over all queries of the group, and `[.., G, Tq, D]` to `[.., Tk, D]`.
    pub(super) fn scores_transposed_dot(&self, out: DType) -> Dot {
        let n = self.batch;
        self.dot(&[n + 1, n + 2], &[n + 1, n + 2], out)
    }
}
