//! Graph → Graph passes of the compiler, each in its own file.

pub mod cse;
pub mod dots;
pub mod inline;
pub mod recompute;
pub mod simplify;

use ir::{Graph, Op, Result};
use std::sync::Arc;

/// The op with every sub-graph that runs as such replaced by `f` of it.
pub(crate) fn map_bodies(op: &Op, f: &mut dyn FnMut(&Graph) -> Result<Graph>) -> Result<Op> {
    Ok(match op {
        Op::Scan(s) => {
            let mut s = s.clone();
            s.body = Arc::new(f(&s.body)?);
            s.into()
        }
        Op::While(w) => {
            let mut w = w.clone();
            w.cond = Arc::new(f(&w.cond)?);
            w.body = Arc::new(f(&w.body)?);
            w.into()
        }
        Op::Cond(c) => {
            let mut c = c.clone();
            for b in &mut c.branches {
                *b = Arc::new(f(b)?);
            }
            c.into()
        }
        Op::Remat(r) => {
            let mut r = r.clone();
            r.body = Arc::new(f(&r.body)?);
            r.into()
        }
        other => other.clone(),
    })
}
