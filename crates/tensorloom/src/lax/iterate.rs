//! Scans whose iterations are calls of a program.

use super::scan::{Scan, ScanPath};
use crate::{Error, Result, Tensor, trace};
use engine::extension::Arguments;
use ir::{DType, Loc};

impl Scan {
    /// Runs the loop by calls of its body: all recorded ahead, or each waited for.
    pub(crate) fn iterate(
        &self,
        path: ScanPath,
        body: trace::TracedFn,
        carries: &[Tensor],
        slices: &[Tensor],
        length: usize,
        at: &Loc,
    ) -> Result<Vec<Tensor>> {
        compiler::debug::say(1, || format!("== scan at {at}: path {path:?}, {length} iterations"));
        let all = carries.iter().chain(slices).chain(&body.captures);
        let engine = all.clone().find_map(|t| t.engine()).unwrap_or_else(|| crate::engine());
        let outs = body.graph.output_types();
        let program = engine.program(body.graph, &[])?;
        // The host knows how many iterations there are if it may wait; else each asks for itself whether it counts.
        let counts = self.bound().map(|c| c.cast(DType::I32));
        let runs = match (path, &counts) {
            (ScanPath::Fallback, Some(c)) => usize::try_from(c.item::<i32>()?).unwrap_or(0).min(length),
            _ => length,
        };
        let mut state = carries.to_vec();
        let mut ys: Vec<Vec<Option<Tensor>>> = vec![vec![None; length]; outs.len() - carries.len()];
        for k in 0..runs {
            let i = if self.is_reverse() { runs - 1 - k } else { k };
            let mut args: Arguments = state.iter().cloned().collect();
            args.extend(slices.iter().map(|x| x.index(0, i as isize)));
            args.extend(body.captures.iter().cloned());
            let mut results = match path {
                ScanPath::Fallback => program.call(at, args),
                _ => program.record(at, args),
            }
            .into_vec();
            if path == ScanPath::Fallback {
                let failed =
                    |e: Error| Error::Call { op: "scan", reason: format!("iteration {k}: {e}"), at: at.clone() };
                results.iter().try_for_each(|t| t.check()).map_err(failed)?;
                engine.force(&results).map_err(failed)?;
            }
            if let (ScanPath::Preencoded, Some(c)) = (path, &counts) {
                let counts = c.gt(&engine.full(DType::I32, &[], i as i64));
                for (j, t) in results.iter_mut().enumerate() {
                    let old = state.get(j).cloned();
                    let old = old.unwrap_or_else(|| engine.zeros(t.dtype(), t.shape()));
                    *t = counts.select(&*t, &old);
                }
            }
            let made = results.split_off(carries.len());
            state = results;
            for (list, y) in ys.iter_mut().zip(made) {
                list[i] = Some(y);
            }
        }
        for (list, ty) in ys.into_iter().zip(&outs[carries.len()..]) {
            let zero = engine.zeros(ty.dtype, &ty.shape);
            let list: Vec<Tensor> = list.into_iter().map(|y| y.unwrap_or_else(|| zero.clone())).collect();
            state.push(if list.is_empty() {
                engine.zeros(ty.dtype, &ty.batched(0).shape)
            } else {
                Tensor::stack(&list.iter().collect::<Vec<_>>(), 0)
            });
        }
        Ok(state)
    }
}
