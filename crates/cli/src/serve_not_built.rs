//! `loom serve` in a build without the feature `serve`.

use crate::ExitStatus;
use crate::command::{NotBuilt, UsageError, not_built};

pub(crate) type Serve = NotBuilt;

pub(crate) fn serve(_: &Serve) -> Result<ExitStatus, UsageError> {
    Err(not_built("loom serve", "serve"))
}
