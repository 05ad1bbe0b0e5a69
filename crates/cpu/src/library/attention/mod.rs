//! Attention and its backward, claimed whole: blocks of queries against blocks of keys, never all scores at once.
//!
//! Scores are kept transposed, `[keys, queries]`: a vector holds one key's scores of adjacent queries. So keys and values
//! are read where they lie, as the scalars that a micro-kernel broadcasts; softmax needs no sums across lanes; and only
//! queries (and results) are transposed. The query heads that share a key head are one list of rows, so a block may hold
//! rows of several heads.
//!
//! Causal order, windows and lengths leave each query one interval of keys; blocks outside all intervals are never
//! touched, those inside need no mask.

mod backward;
mod block;
mod decode;
mod forward;
mod lanes;
mod problem;

pub(super) use problem::supports;

use super::{CpuContext, OpRoutine};
use crate::thresholds::Threshold;
use ir::Type;
use ir::ops::Composite;
use problem::AttentionProblem;

/// Below this many rows a key head's queries don't fill a vector, and each is taken for itself.
const FEW_ROWS: usize = 4;

pub(super) fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new("attention.few_rows", FEW_ROWS, "queries of a key head: beyond, they are computed in blocks"),
        Threshold::new("attention.keys", block::KEYS, "keys: beyond, there are several blocks of them"),
        Threshold::new("attention.queries", lanes::MAX_WIDTH, "queries: beyond, there are several blocks of them"),
        Threshold::new("attention.span", decode::SPAN, "keys of few queries: beyond, spans of them are joined"),
        Threshold::new("attention.keys_back", backward::KEYS, "keys in backward: beyond, there are several blocks"),
    ]
}

/// The routine of a claimed composite.
pub(super) fn prepare(c: &Composite, args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let problem = AttentionProblem::new(c, args)?;
    Some(match c.name.as_str() {
        "attention" if problem.rows() <= FEW_ROWS => Box::new(decode::Decode::new(problem, machine)),
        "attention" => Box::new(forward::Forward::new(problem, machine)),
        _ => Box::new(backward::Backward::new(problem, machine)),
    })
}
