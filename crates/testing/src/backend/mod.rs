//! One suite for any backend: the table of ops, random graphs, expressions of which every bit counts,
//! scalar functions where their results are representable, and what a device promises beyond numbers: order, donation,
//! aliasing, fences, threads, determinism, memory that isn't there, bindings that don't fit.
//!
//! A report counts what was judged, so that a suite that judges nothing can't look green.

mod judge;
mod promises;
mod queue;
mod representable;

pub use judge::{Verdict, agrees, bind, donations, equals, gives, has_types, load, results, run};
pub use queue::{QUEUE, QueueCheck, Work};
pub use representable::{Exact, representable};

use crate::random::{Options as Shape, Sample, exact, sample, shrink};
use compiler::{Backend, Options};
use ir::{Graph, Literal};
use std::collections::BTreeMap;
use std::fmt;

/// How much of the suite to run.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Seed of the first random graph; the others follow.
    pub seed: u64,
    /// How many random graphs; for every five of them there is one of exact expressions.
    pub graphs: u64,
    /// Every n-th row of the table of ops.
    pub every: usize,
}

/// What a suite found.
#[derive(Debug, Default)]
pub struct Report {
    /// For each part: how many were judged, ran without being judged, and were refused for a type.
    pub counts: BTreeMap<&'static str, [usize; 3]>,
    /// Why some ran without being judged.
    pub unjudged: BTreeMap<&'static str, usize>,
    /// What is wrong.
    pub failures: Vec<String>,
}

impl Report {
    fn add(&mut self, part: &'static str, name: &str, verdict: Result<Verdict, String>) {
        let count = self.counts.entry(part).or_default();
        match verdict {
            Ok(Verdict::Judged) => count[0] += 1,
            Ok(Verdict::Ran(why)) => {
                count[1] += 1;
                *self.unjudged.entry(why).or_default() += 1;
            }
            Ok(Verdict::Refused) => count[2] += 1,
            Err(e) => self.failures.push(format!("{part}, {name}: {e}")),
        }
    }

    /// How many of a part were judged.
    pub fn judged(&self, part: &str) -> usize {
        self.counts.get(part).map_or(0, |c| c[0])
    }

    /// Panics if something is wrong, or if less was judged than the floors say.
    #[track_caller]
    pub fn expect(&self, floors: &[(&str, usize)]) {
        println!("{self}");
        let first = |n: usize| self.failures.iter().take(n).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(self.failures.is_empty(), "{} failures, the first: {}", self.failures.len(), first(3));
        for (part, floor) in floors {
            assert!(self.judged(part) >= *floor, "{part}: {} judged, at least {floor} expected", self.judged(part));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, [judged, ran, refused]) in &self.counts {
            writeln!(f, "{part}: {judged} judged, {ran} ran unjudged, {refused} refused for a type")?;
        }
        for (why, n) in &self.unjudged {
            writeln!(f, "  {n} unjudged: {why}")?;
        }
        write!(f, "{} failures", self.failures.len())
    }
}

/// Runs the suite.
pub fn suite(backend: &dyn Backend, what: &Suite) -> Report {
    let mut report = Report::default();
    for row in crate::rows::all().iter().step_by(what.every.max(1)) {
        report.add("table", &row.name, agrees(backend, &row.graph, &row.inputs));
    }
    for k in 0..what.graphs {
        let s = sample(what.seed.wrapping_add(k), &Shape::ANY);
        let verdict = agrees(backend, &s.graph, &s.inputs);
        let verdict = verdict.map_err(|e| shrunk(backend, &s, &e, agrees));
        report.add("random", &format!("seed {}", s.seed), verdict);
        if report.failures.len() > 20 {
            break;
        }
    }
    for k in 0..what.graphs.div_ceil(5) {
        let s = exact(what.seed.wrapping_add(k));
        let verdict = equals(backend, &s.graph, &s.inputs);
        let verdict = verdict.map_err(|e| shrunk(backend, &s, &e, equals));
        report.add("exact", &format!("seed {}", s.seed), verdict);
        if report.failures.len() > 20 {
            break;
        }
    }
    for case in representable() {
        let verdict = judge::gives(backend, &case.graph, &case.inputs, &case.want);
        report.add("representable", &case.name, verdict);
    }
    for (name, promise) in promises::ALL {
        report.add("promises", name, promise(backend).map(|()| Verdict::Judged));
    }
    for (name, check) in QUEUE {
        report.add("queue", name, check(backend, &Work::SMALL));
    }
    report
}

type Judge = fn(&dyn Backend, &Graph, &[Literal]) -> Result<Verdict, String>;

/// A failing graph made small, with its program.
fn shrunk(backend: &dyn Backend, s: &Sample, first: &str, judge: Judge) -> String {
    let fails = |s: &Sample| judge(backend, &s.graph, &s.inputs).err();
    let small = shrink(s, |c| fails(c).is_some());
    let program = compiler::compile(&small.graph, backend, &Options::default());
    let program = program.map_or_else(|e| e.to_string(), |p| p.to_string());
    format!("{}\n{small}\n{program}", fails(&small).unwrap_or_else(|| first.to_string()))
}
