//! `module.lock`: the resolved versions of a project's imports (§4.7.1).
//!
//! ```text
//! version: 1
//! resolved_modules:
//!   std.modules.linear: v1.0.0
//!   models.mine: local@1f3a
//!   gates: v1.0.0, v2.1.0
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Resolved versions by dotted path; a file may have several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleLock {
    /// The resolved versions of each path.
    pub modules: BTreeMap<String, BTreeSet<String>>,
}

impl ModuleLock {
    /// Parses a lock file; lines with an unknown format are ignored.
    pub fn parse(text: &str) -> ModuleLock {
        let mut modules = BTreeMap::new();
        let mut inside = false;
        for line in text.lines() {
            let content = line.split('#').next().unwrap_or_default();
            if !content.starts_with([' ', '\t']) {
                inside = content.trim() == "resolved_modules:" || (inside && content.trim().is_empty());
                continue;
            }
            if let (true, Some((path, version))) = (inside, content.split_once(':')) {
                let versions = version.split(',').map(|version| version.trim().to_string());
                modules.insert(path.trim().to_string(), versions.collect());
            }
        }
        ModuleLock { modules }
    }
}

impl fmt::Display for ModuleLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version: 1\nresolved_modules:")?;
        for (path, versions) in &self.modules {
            let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
            writeln!(f, "  {path}: {}", versions.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ModuleLock;

    #[test]
    fn reads_what_it_writes() {
        let text = "version: 1\nresolved_modules:\n  gates: v1.0.0, v2.1.0\n  models.mine: local@1f3a\n  std.modules.linear: v1.0.0\n";
        assert_eq!(ModuleLock::parse(text).to_string(), text);
        assert_eq!(ModuleLock::parse("# nothing\n").modules.len(), 0);
    }
}
