//! What became of a graph: per step, what was fused into it, and why not more.

use std::fmt;

/// One step of a program, explained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Note {
    /// Which step: its number, behind those of the loops and branches around it.
    pub step: String,
    /// What it is.
    pub what: String,
    /// What it computes, a line for each result: the ops that were fused into it, and where they were written.
    pub fused: Vec<String>,
    /// What could have been part of it, and why it isn't.
    pub apart: Vec<String>,
}

/// All steps, explained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// In the order of the steps.
    pub notes: Vec<Note>,
    /// Numbers of the loops and branches around what is being lowered.
    pub(crate) path: Vec<String>,
}

impl Explanation {
    /// Adds a note for the step of a number.
    pub(crate) fn add(&mut self, step: usize, what: String, fused: Vec<String>, apart: Vec<String>) {
        let mut path = self.path.clone();
        path.push(step.to_string());
        self.notes.push(Note { step: path.join("."), what, fused, apart });
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for n in &self.notes {
            writeln!(f, "{}: {}", n.step, n.what)?;
            n.fused.iter().try_for_each(|l| writeln!(f, "    {l}"))?;
            n.apart.iter().try_for_each(|l| writeln!(f, "    apart: {l}"))?;
        }
        Ok(())
    }
}
