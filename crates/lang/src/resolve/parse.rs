//! A program from one text.

use super::{MemoryLoader, ModuleProgram};
use crate::Diagnostic;
use crate::diagnostic::{ColorStyle, render_all};
use crate::library::LibraryLoader;
use std::fmt;

/// The mistakes of a program. Shown, it is the drawing of each.
#[derive(Clone, Debug)]
pub struct ProgramError {
    /// The mistakes.
    pub diagnostics: Vec<Diagnostic>,
    text: String,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ProgramError {}

impl ModuleProgram {
    /// A program from a text that imports nothing but the standard library, checked; `name` is what diagnostics call it.
    ///
    /// ```
    /// use tensorloom_lang::ModuleProgram;
    ///
    /// let text = "module Double(n: int):\n  forward:\n    in: [n]\n    out: [n]\n    graph:\n      (in, in) -> add() -> out\n";
    /// assert!(ModuleProgram::parse("double", text).is_ok());
    /// let wrong = ModuleProgram::parse("double", "module Double(").unwrap_err();
    /// assert!(wrong.to_string().contains("double.module:1"));
    /// ```
    pub fn parse(name: &str, text: &str) -> Result<ModuleProgram, ProgramError> {
        let program = ModuleProgram::load(name, &LibraryLoader(MemoryLoader::new().with(name, "local", text)));
        let mut diagnostics = program.diagnostics.clone();
        diagnostics.extend(crate::check::check(&program).diagnostics);
        diagnostics.retain(Diagnostic::is_error);
        if diagnostics.is_empty() {
            return Ok(program);
        }
        let text = render_all(&program.sources, &diagnostics, ColorStyle::Plain);
        Err(ProgramError { diagnostics, text })
    }
}
