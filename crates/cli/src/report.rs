//! `loom report RUN…` compares runs on one page.

use crate::ExitStatus;
use crate::command::UsageError;
use crate::output::outln;
use crate::run::usage_error;
use std::path::{Path, PathBuf};

/// Options of `loom report`.
#[derive(clap::Args)]
pub(crate) struct Report {
    /// Output folders of `loom train`
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The HTML file to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: String,
}

pub(crate) fn report(args: &Report) -> Result<ExitStatus, UsageError> {
    models::train::compare(&args.runs, Path::new(&args.out), &models::train::current_setting).map_err(usage_error)?;
    outln!("{}: {} runs", args.out, args.runs.len());
    Ok(ExitStatus::Success)
}
