//! The test suite for all backends: the table of ops, random graphs, exact expressions compared bit for bit,
//! scalar functions at points with representable results, and the other guarantees of a device: ordering, donation,
//! aliasing, fences, threads, determinism, out-of-memory errors, invalid bindings.
//!
//! A report counts the comparisons, so that a suite that compares nothing does not pass.

mod compare_results;
mod contract;
mod exact_points;
mod queue;

pub use compare_results::{
    CompareOutcome, bind, donations, has_types, load, matches_bitwise, matches_function_values, matches_interpreter,
    results, run,
};
pub use exact_points::{ExactPoints, exact_function_points};
pub use queue::{QUEUE_CHECKS, QueueCheck, QueueWorkload};

use crate::random::{Sample, SampleOptions as Shape, exact_expressions, sample, shrink};
use compiler::{Backend, Options};
use ir::{Graph, Literal};
use std::collections::BTreeMap;
use std::fmt;

/// The size of a run of the suite.
#[derive(Clone, Copy, Debug)]
pub struct BackendSuite {
    /// The seed of the first random graph; the others have the following seeds.
    pub seed: u64,
    /// The number of random graphs; for every five of them there is one of exact expressions.
    pub graphs: u64,
    /// Uses every n-th sample of the table of ops.
    pub every: usize,
}

/// The results of a suite.
#[derive(Debug, Default)]
pub struct SuiteReport {
    /// For each part the numbers of graphs that were compared, that ran without comparison, and that were rejected for a dtype.
    pub counts: BTreeMap<&'static str, [usize; 3]>,
    /// The reasons for runs without comparison.
    pub unjudged: BTreeMap<&'static str, usize>,
    /// The failures.
    pub failures: Vec<String>,
}

impl SuiteReport {
    fn add(&mut self, part: &'static str, name: &str, verdict: Result<CompareOutcome, String>) {
        let count = self.counts.entry(part).or_default();
        match verdict {
            Ok(CompareOutcome::Compared) => count[0] += 1,
            Ok(CompareOutcome::Undetermined(why)) => {
                count[1] += 1;
                *self.unjudged.entry(why).or_default() += 1;
            }
            Ok(CompareOutcome::Unsupported) => count[2] += 1,
            Err(e) => self.failures.push(format!("{part}, {name}: {e}")),
        }
    }

    /// The number of comparisons of a part.
    pub fn num_compared(&self, part: &str) -> usize {
        self.counts.get(part).map_or(0, |c| c[0])
    }

    /// Panics if there are failures, or if a part has fewer comparisons than its minimum.
    #[track_caller]
    pub fn assert_passed(&self, floors: &[(&str, usize)]) {
        println!("{self}");
        let first = |n: usize| self.failures.iter().take(n).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(self.failures.is_empty(), "{} failures, the first: {}", self.failures.len(), first(3));
        for (part, floor) in floors {
            assert!(
                self.num_compared(part) >= *floor,
                "{part}: {} judged, at least {floor} expected",
                self.num_compared(part)
            );
        }
    }
}

impl fmt::Display for SuiteReport {
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
pub fn run_suite(backend: &dyn Backend, what: &BackendSuite) -> SuiteReport {
    let mut report = SuiteReport::default();
    for row in crate::samples::all_samples().iter().step_by(what.every.max(1)) {
        report.add("table", &row.name, matches_interpreter(backend, &row.graph, &row.inputs));
    }
    for k in 0..what.graphs {
        let s = sample(what.seed.wrapping_add(k), &Shape::ANY);
        let verdict = matches_interpreter(backend, &s.graph, &s.inputs);
        let verdict = verdict.map_err(|e| shrunk(backend, &s, &e, matches_interpreter));
        report.add("random", &format!("seed {}", s.seed), verdict);
        if report.failures.len() > 20 {
            break;
        }
    }
    for k in 0..what.graphs.div_ceil(5) {
        let s = exact_expressions(what.seed.wrapping_add(k));
        let verdict = matches_bitwise(backend, &s.graph, &s.inputs);
        let verdict = verdict.map_err(|e| shrunk(backend, &s, &e, matches_bitwise));
        report.add("exact", &format!("seed {}", s.seed), verdict);
        if report.failures.len() > 20 {
            break;
        }
    }
    for case in exact_function_points() {
        let verdict = compare_results::matches_function_values(backend, &case.graph, &case.inputs, &case.want);
        report.add("representable", &case.name, verdict);
    }
    for (name, promise) in contract::ALL {
        report.add("promises", name, promise(backend).map(|()| CompareOutcome::Compared));
    }
    for (name, check) in QUEUE_CHECKS {
        report.add("queue", name, check(backend, &QueueWorkload::SMALL));
    }
    report
}

type Judge = fn(&dyn Backend, &Graph, &[Literal]) -> Result<CompareOutcome, String>;

/// Minimizes a failing graph, and adds its program.
fn shrunk(backend: &dyn Backend, s: &Sample, first: &str, judge: Judge) -> String {
    let fails = |s: &Sample| judge(backend, &s.graph, &s.inputs).err();
    let small = shrink(s, |c| fails(c).is_some());
    let program = compiler::compile(&small.graph, backend, &Options::default());
    let program = program.map_or_else(|e| e.to_string(), |p| p.to_string());
    format!("{}\n{small}\n{program}", fails(&small).unwrap_or_else(|| first.to_string()))
}
