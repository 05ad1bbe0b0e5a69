//! `@assert` (§7.7.1): a violated assertion makes a run fail with its message.

use crate::error::{Error, Result};
use crate::session::ProgramSession;
use ir::{Builder, DType, GraphBuilder, Unary, Value};
use lang::lower::{Observation, ObservationKind};

/// Checks the assertions among the observed values of a run; `first` is the output of the first observation.
pub(crate) fn check_assertions(session: &ProgramSession, observed: &[Observation], first: usize) -> Result<()> {
    for (i, seen) in observed.iter().enumerate() {
        let ObservationKind::Assert { message } = &seen.kind else { continue };
        if session.read(first + i)?.1.contains(&0) {
            return Err(assertion_error(&(seen.path.clone(), message.clone())));
        }
    }
    Ok(())
}

/// The error of a violated assertion, from its tensor and its message.
pub(crate) fn assertion_error((path, message): &(String, String)) -> Error {
    Error::Assertion { path: path.clone(), message: message.clone() }
}

/// The tensors and messages of all assertions.
pub(crate) fn list_assertions(observed: &[Observation]) -> Vec<(String, String)> {
    let asserts = observed.iter().filter_map(|seen| match &seen.kind {
        ObservationKind::Assert { message } => Some((seen.path.clone(), message.clone())),
        _ => None,
    });
    asserts.collect()
}

/// Counts the violations of each assertion as `f32[n]`, from boolean tensors of any shape.
pub(crate) fn count_violations(b: &mut Builder, truths: &[Value]) -> ir::Result<Value> {
    let mut counts = Vec::new();
    for truth in truths {
        let broken = b.unary(Unary::Not, *truth)?;
        let broken = b.cast(broken, DType::F32)?;
        let count = b.sum_all(broken)?;
        counts.push(b.reshape(count, &[1])?);
    }
    b.concat(&counts, 0)
}
