//! `loom serve` without the feature `serve`.

use crate::Outcome;
use crate::command::{NotBuilt, Usage, not_built};

pub(crate) type Serve = NotBuilt;

pub(crate) fn serve(_: &Serve) -> Result<Outcome, Usage> {
    Err(not_built("loom serve", "serve"))
}
