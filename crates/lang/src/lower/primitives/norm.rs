//! §6.2: normalisation, and `qk_norm` of §6.4.

use super::{LowerResult, Lowerer, PrimitiveCall, PrimitiveError, types};
use ir::composites::norm;
use ir::{GraphBuilder, Value};

pub(super) fn lower(l: &mut Lowerer<'_>, p: &PrimitiveCall) -> LowerResult<Vec<Value>> {
    let eps = p.float("eps").unwrap_or(1e-6);
    let args = p.tensors()?;
    let t = types(l, &args);
    // A bias without a weight: the norm without both, then the bias.
    if p.name == "layernorm"
        && p.optional(1)?.is_none()
        && let Some(bias) = p.optional(2)?
    {
        let plain = norm::layernorm(&t[0], None, None, eps)?;
        let mut results = l.b.emit(plain.into(), &args[..1])?.to_vec();
        let bias = l.b.broadcast_to(bias, &t[0].shape)?;
        results[0] = l.b.add(results[0], bias)?;
        return Ok(results);
    }
    let composite = match (p.name, &t[..]) {
        ("rmsnorm", [x]) => norm::rmsnorm_plain(x, eps)?,
        ("layernorm", [x]) => norm::layernorm(x, None, None, eps)?,
        ("rmsnorm", [x, w]) => norm::rmsnorm(x, w, eps)?,
        ("fused_residual_rmsnorm", [residual, x, w]) => norm::fused_residual_rmsnorm(residual, x, w, eps)?,
        ("layernorm", [x, w]) => norm::layernorm(x, Some(w), None, eps)?,
        ("layernorm", [x, w, bias]) => norm::layernorm(x, Some(w), Some(bias), eps)?,
        ("qk_norm", [q, k, wq, wk]) => norm::qk_norm(q, k, wq, wk, eps)?,
        ("group_rmsnorm", [x, w]) => {
            // Groups of channels are normalized separately; the weight spans all of them.
            let groups = p.int("groups").and_then(|n| usize::try_from(n).ok()).unwrap_or(1).max(1);
            let width = x.shape.last().copied().unwrap_or(0);
            if width == 0 || width % groups != 0 {
                return Err(PrimitiveError::InvalidArgument(format!(
                    "cannot divide {width} channels into {groups} groups"
                )));
            }
            let mut shape = x.shape.to_vec();
            shape.pop();
            shape.extend([groups, width / groups]);
            let rows = l.b.reshape(args[0], &shape)?;
            let plain = norm::rmsnorm_plain(&l.b.ty(rows), eps)?;
            let y = l.b.emit(plain.into(), &[rows])?[0];
            let y = l.b.reshape(y, &x.shape)?;
            let w = l.b.broadcast_to(args[1], &w.shape.clone()).and_then(|w| l.b.broadcast_to(w, &x.shape))?;
            return Ok(vec![l.b.mul(y, w)?]);
        }
        (_, t) => return Err(PrimitiveError::InvalidArgument(format!("does not take {} tensors", t.len()))),
    };
    Ok(l.b.emit(composite.into(), &args)?.to_vec())
}
