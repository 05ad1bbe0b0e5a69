//! Attention and its backward as single routines: blocks of queries times blocks of keys, without materializing all scores.
//!
//! Scores are stored transposed, `[keys, queries]`: a vector contains one key's scores with adjacent queries. So keys and values
//! are read in place, as the scalars that a micro-kernel broadcasts; softmax needs no sums across lanes; and only
//! queries (and results) are transposed. The query heads that share a key head form one list of rows, so a block may contain
//! rows of several heads.
//!
//! Causal order, windows and lengths give each query one interval of keys. Blocks outside all intervals are skipped,
//! and blocks inside all intervals need no mask.

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

/// The number of rows below which a key head's queries do not fill a vector, so each query is processed by itself.
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

/// Returns the routine of a supported composite.
pub(super) fn prepare(c: &Composite, args: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let problem = AttentionProblem::new(c, args)?;
    Some(match c.name.as_str() {
        "attention" if problem.rows() <= FEW_ROWS => Box::new(decode::Decode::new(problem, machine)),
        "attention" => Box::new(forward::Forward::new(problem, machine)),
        _ => Box::new(backward::Backward::new(problem, machine)),
    })
}
