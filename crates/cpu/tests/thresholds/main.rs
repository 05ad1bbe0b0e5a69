//! Tests both sides of every size at which this backend switches to another algorithm,
//! on 1, 2, 3 and 5 threads, against the interpreter.
//!
//! `tensorloom_cpu::thresholds` lists the sizes; this test makes graphs of such a size. A threshold without a maker, a maker
//! without a threshold, and a constant that neither list names are failures.

#[path = "../harness/mod.rs"]
mod harness;
mod kernels;
mod products;
mod routines;

use harness::{Random, close, run, same};
use ir::{DType, Graph, Literal, interp};
use std::collections::BTreeMap;
use std::time::Instant;
use tensorloom_cpu::{Cpu, Threshold, thresholds};

const THREADS: [usize; 4] = [1, 2, 3, 5];

/// A graph with a given quantity.
struct Case {
    /// The quantity that is compared with the threshold.
    quantity: usize,
    graph: Graph,
    /// The tolerance relative to the largest result; 0 compares bits.
    tolerance: f64,
}

impl Case {
    fn new(quantity: usize, graph: Graph) -> Case {
        let narrow = |d: DType| d.is_float() && d.size() == 2;
        let types = [graph.input_types(), graph.output_types()].concat();
        let tolerance = match types {
            t if t.iter().any(|t| narrow(t.dtype)) => 2e-2,
            t if t.iter().all(|t| !t.dtype.is_float()) => 0.0,
            t if t.iter().all(|t| t.dtype != DType::F32) => 1e-12,
            _ => 3e-5,
        };
        Case { quantity, graph, tolerance }
    }
}

/// Makes graphs whose quantity is the given size, or the nearest possible: not above it (`Down`) or not below (`Up`).
type Maker = fn(usize, Round) -> Vec<Case>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Round {
    Down,
    Up,
}

impl Round {
    /// Returns `n / by`, rounded in this direction, and at least 1.
    fn divide(self, n: usize, by: usize) -> usize {
        match self {
            Round::Down => n / by,
            Round::Up => n.div_ceil(by),
        }
        .max(1)
    }
}

fn makers() -> Vec<(&'static str, Maker)> {
    [products::MAKERS, kernels::MAKERS, routines::MAKERS].concat()
}

fn inputs(graph: &Graph) -> Vec<Literal> {
    let mut r = Random(graph.num_values() as u64 + 17);
    graph.input_types().iter().map(|t| r.literal(t)).collect()
}

/// Runs a case on every number of threads: results are close to the interpreter's, with the same bits.
fn check(what: &str, case: &Case) {
    let x = inputs(&case.graph);
    let want = interp::run(&case.graph, &x).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut first = None;
    for threads in THREADS {
        let what = format!("{what}, {threads} threads");
        let got = run(&Cpu::new(threads), &case.graph, &x, true);
        match case.tolerance {
            0.0 => same(&what, &got, &want),
            t => close(&what, &got, &want, t),
        }
        same(&what, &got, first.get_or_insert_with(|| got.clone()));
    }
}

#[test]
fn results_agree_on_both_sides_of_every_threshold() {
    let makers: BTreeMap<&str, Maker> = makers().into_iter().collect();
    let only = std::env::var("TENSORLOOM_THRESHOLD").ok();
    let mut lines = Vec::new();
    for Threshold { name, meaning, value } in thresholds() {
        if only.as_deref().is_some_and(|o| o != name) {
            continue;
        }
        let started = Instant::now();
        let make = makers.get(name).unwrap_or_else(|| panic!("{name} ({meaning}) has no cases"));
        let mut sides = [0, 0];
        for (size, round) in [(value - 1, Round::Down), (value, Round::Down), (value + 1, Round::Up)] {
            for (k, case) in make(size, round).into_iter().enumerate() {
                let what = format!("{name} = {value}: case {k} of size {}", case.quantity);
                check(&what, &case);
                match round {
                    Round::Down => assert!(case.quantity <= size, "{what} is not below"),
                    Round::Up => assert!(case.quantity >= size, "{what} is not above"),
                }
                sides[(case.quantity > value) as usize] += 1;
                // If the algorithm changes at the value itself, that is the far side.
                sides[0] -= (case.quantity == value) as i32;
            }
        }
        assert!(sides.iter().all(|&n| n > 0), "{name}: {sides:?} cases below and above");
        let [below, above] = sides.map(|n| n.to_string());
        lines.push(format!(
            "{name:24} {value:>8} {below:>6} {above:>6}  {THREADS:?}  {:.1?}  {meaning}",
            started.elapsed()
        ));
    }
    println!("{:24} {:>8} {:>6} {:>6}  threads", "threshold", "value", "below", "above");
    println!("{}", lines.join("\n"));
    println!("{} thresholds, both sides, {} thread counts, no differences", lines.len(), THREADS.len());
}

#[test]
fn every_case_belongs_to_a_threshold() {
    let known: Vec<&str> = thresholds().iter().map(|t| t.name).collect();
    let lost: Vec<&str> = makers().into_iter().map(|(n, _)| n).filter(|n| !known.contains(n)).collect();
    assert!(lost.is_empty(), "no threshold is called {lost:?}");
    let mut names = known.clone();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), known.len(), "two thresholds have one name");
}

/// Constants that are not thresholds, with the reason.
const OTHERS: &[(&str, &str)] = &[
    ("OPERAND", "the offset of a helper's operands in memory"),
    ("RESULT", "the offset of a helper's result in memory"),
    ("FREE", "arenas kept, not a way of computing"),
    ("CACHE", "kernels kept"),
    ("PAGE", "a page of memory"),
    ("SPINS", "how long a worker waits"),
    ("YIELDS", "how long a worker waits"),
    ("EVERY", "milliseconds between two questions whether a run shall stop"),
    ("FEW_ARGS", "room for the buffers of most kernels: others have more room"),
    ("ON_STACK", "an arena is an arena, wherever it lies"),
    ("ONE_SET_BYTES", "a stride; `gemm.one_set_rows` lists the rows from which on it matters"),
    ("PACKED_B_BYTES", "the most bytes of what `gemm.packed_b` lists the least of"),
    ("PACKED_B_ROW_BYTES", "how that grows with the rows, in between"),
    ("MIN_STEALING_THREADS", "threads, not a size; every case runs below and above"),
    ("TEAM", "threads, not a size; a row has the same bits whoever takes it"),
    ("PIECES", "how often a thread's work is cut, from `MIN_STEALING_THREADS` on"),
    ("AXES", "the most axes; more are refused or interpreted"),
    ("BATCH_AXES", "the most batch axes"),
    ("MAX_LEVELS", "the most nested loops; more are refused"),
    ("MAX_ARGS", "the most buffers; more are refused"),
    ("MAX_MR", "the size of a table"),
    ("MAX_NV", "the size of a table"),
    ("MAX_UNROLL", "the size of a table"),
    ("TEMP", "the size of scratch"),
    ("TEMP_BYTES", "the size of scratch"),
    ("ITERATIONS", "when an iteration gives up"),
    ("MOST", "the most points, and more memory than a test should take; more go another way"),
    ("BLOCKS", "how many blocks a part takes, from `gemm.few_parts` on"),
    ("BLOCK_CYCLES", "a figure of the model that chooses how work is split"),
    ("BLOCK", "follows `linalg.least` and `convolve.least`"),
    ("R", "another name of `ROWS`"),
    ("ROWS", "follows `convolve.least`, or rows at a time; `ragged.rows` is listed"),
    ("OUT", "a place in memory"),
    ("AREA", "the size of scratch"),
    ("UNSEEN", "no size"),
    ("SMALL", "2^28 elements: how an address is written, and more memory than a test should take"),
    ("MAGIC", "no size"),
    ("NARROW", "follows `linalg.least`; `conv.narrow` is listed"),
    ("L", "lanes of a vector, whatever the sizes are"),
    ("BOTH", "twice `BLOCK`"),
    ("TILE_PAIR", "two tiles of the machine, whatever the sizes are"),
    ("COPIED", "1024 rows of a strip: larger matrices take longer than a test should"),
    ("MOST_LINES", "lanes of the widest vector"),
    ("PICKED", "keys that are picked at a time, whatever the sizes are"),
    ("SHUFFLED", "the most parts of a line that vectors are shuffled into; more are copied to the same bits"),
    ("OUTS", "features of a group; more take the road of all convolutions, to results as near"),
    ("EIGHT", "results that are put together at a time, whatever the sizes are"),
    ("MASKED", "the size of a table of masks; longer lines are copied as they lie"),
    ("STEPS", "the most parts of a line; more go another way"),
    ("JOBS", "how much work is wanted at least, of tiles that the shape decides"),
    ("PUT_OFF", "how many sweeps of rotations wait, whatever the sizes are"),
    ("TILE", "the shape of a tile; `rearrange.tile` says from which size on there are tiles"),
    ("LINES", "the shape of a block that is packed, whatever the sizes are"),
    ("PLAIN_ROWS", "the shape of a tile, whatever the sizes are"),
    ("PLAIN_ALL", "`conv.results` in vectors"),
    ("PLAIN_HALF", "`conv.lanes` in vectors"),
    ("LEAF", "where `linalg.least` divides no further, whatever the sizes are"),
    ("TURNED", "the shape of a block that is copied"),
    ("NUMBERED", "2^24 rows: more memory than a test should take"),
    ("PER_LANE", "the shape of a bound; `sort.bounded` says from which size on there is one"),
    ("AT_ONCE", "lines or elements gone through at a time, whatever the sizes are"),
    ("PARTS", "threads, not a size; more share runs"),
    ("SHARED_A_BYTES", "more memory than a test should take; on either side the same is packed"),
    ("SHARED_A_WORK", "a figure of the model that chooses how work is split"),
    ("PANELS", "how often the packing of A is cut, which changes nothing that is packed"),
    ("UNITS", "how often the packing of B is cut, which changes nothing that is packed"),
    ("UNIT_LINES", "the least that such a cut leaves"),
    ("TILES_LANES", "a figure of the model that chooses how work is split"),
    ("SIDE_BY_SIDE", "lanes or vectors beside each other, whatever the sizes are"),
    ("KEPT", "what is kept at a time, of images or of runs; each is computed alike"),
    ("SLACK", "lanes of a vector, whatever the sizes are"),
    ("NONE", "no size"),
    ("READ", "no size; who uses a buffer"),
    ("RUN_READS", "no size; who uses a buffer"),
    ("WRITE", "no size; who uses a buffer"),
    ("RUN_WRITES", "no size; who uses a buffer"),
    ("RUNS", "no size; who uses a buffer"),
    ("TURN", "no size; the number of a kind of call"),
    ("SHARE", "what a thread takes at least; each column is computed alike"),
    ("TILE_SIDE", "the shape of a tile of the machine, whatever the sizes are"),
    ("SUPER", "the shape of GGUF's blocks"),
    ("BYTES", "the shape of GGUF's blocks"),
    ("AHEAD", "how far ahead memory is asked for, whatever the sizes are"),
    ("LATE_BYTES", "products of so many results take longer than a test should; those of `gemm.packed_b` have fewer"),
    ("REGISTER", "elements of a register, whatever the sizes are"),
    ("PANEL_LINES", "the shape of a block that is packed, whatever the sizes are"),
    ("LEAST_LINES", "the lines of such a block; others are packed to the same bits"),
    ("CHUNK", "`gemv.chunk`, and the memory that code is written to"),
    ("PASSES", "a limit of a search that is never met"),
    ("OWN_B", "how work is shared on tiles; bits are the same"),
    ("ROOT_HALF", "bits of a number"),
    ("KERNEL", "how large a kernel is that images are smaller than; larger ones go another way, to results as near"),
    ("LONG", "how long windows are multiplied in pairs; longer ones are not, to results as near"),
    ("WRITTEN", "a figure of the model that chooses how windows are read"),
    ("PER_LINE", "a figure of the model that chooses how windows are read"),
    ("SQUARE", "the shape of windows that have loops of their own, to results as near"),
    ("MOVED", "a figure of the model that chooses how work is shared"),
    ("UNIT", "elements that a thread takes at least; each is computed alike"),
    ("MIN_RECURSIVE_COLUMNS", "columns that are gone through at a time, whatever the sizes are"),
    ("COPIES", "vectors that a loop of the portable generator goes on with at once"),
    ("LANES", "lanes of a vector of 128 bits"),
    ("L2_BYTES", "a figure of the model that chooses between bundles and matrices; lengths decide as much"),
    ("SAME_PLACE", "a figure of that model, too"),
    ("VECTOR", "bytes of the widest vector, by which that model counts"),
    ("TOGETHER", "bundles that are read at once from `fourier.pages` on"),
    ("SHARED", "how threads share lines; each is computed alike"),
    ("FEW_BUNDLES", "bundles for each thread; lines of narrower ones have the same bits"),
];

/// Every numeric constant in the backend's sources is listed as a threshold or as an exception with a reason.
#[test]
fn every_constant_is_listed_or_says_why_not() {
    fn files(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("the sources are there") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_string();
            if path.is_dir() && name != "tests" && name != "math" {
                files(&path, found);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                found.push(path);
            }
        }
    }
    let mut sources = Vec::new();
    files(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    let mut unlisted = Vec::new();
    for path in sources {
        let text = std::fs::read_to_string(&path).expect("a source");
        for line in text.lines().map(str::trim_start) {
            let Some(rest) = line.strip_prefix("pub").map_or(Some(line), |l| l.split_once("const ").map(|_| line))
            else {
                continue;
            };
            let Some((_, rest)) = rest.split_once("const ") else { continue };
            let Some((name, rest)) = rest.split_once(':') else { continue };
            let number = ["usize", "u64", "i64", "u32"].iter().any(|t| rest.trim_start().starts_with(t));
            let defined =
                rest.contains('=') && !line.starts_with("//") && !rest.contains("$lanes") && !rest.contains("= N;");
            if !(number && defined) || OTHERS.iter().any(|(n, _)| *n == name) {
                continue;
            }
            // A constant that is used in a list of thresholds, in its own file or another.
            let listed = |text: &str| {
                text.split("Threshold::new(").skip(1).any(|t| {
                    let end = t.find("\")").unwrap_or(t.len());
                    t[..end].split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|w| w == name)
                })
            };
            let above = path.parent().map(|d| d.join("mod.rs")).and_then(|p| std::fs::read_to_string(p).ok());
            let beside = path.with_extension("rs");
            let parent = beside.parent().and_then(|d| {
                let stem = d.file_name()?.to_string_lossy().to_string();
                std::fs::read_to_string(d.parent()?.join(format!("{stem}.rs"))).ok()
            });
            if !listed(&text) && !above.as_deref().is_some_and(listed) && !parent.as_deref().is_some_and(listed) {
                unlisted.push(format!("{name} in {}", path.display()));
            }
        }
    }
    assert!(unlisted.is_empty(), "neither thresholds nor excused: {unlisted:#?}");
}
