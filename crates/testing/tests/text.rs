//! Errors of the text form, and its behaviour on damaged text.

use ir::Error;
use ir::text::parse;
use tensorloom_testing::random::{SampleOptions, sample};
use tensorloom_testing::{Rng, rng::run_seed, samples};

#[test]
fn errors_point_at_line_and_column() {
    let rows: &[(&str, u32, u32, &str)] = &[
        ("", 1, 1, "expected a word"),
        ("grph () {\n return }", 1, 1, "starts with `graph`"),
        ("graph (%0 f32[2]) {\n  return %0\n}", 1, 11, "expected `:`"),
        ("graph (%0: f33[2]) {\n  return %0\n}", 1, 12, "not a dtype"),
        ("graph (%0: f32[-2]) {\n  return %0\n}", 1, 16, "not an axis size"),
        ("graph (%0: f32[x]) {\n  return %0\n}", 1, 16, "axis size"),
        ("graph (%0: f32[2], %0: f32[2]) {\n  return %0\n}", 1, 20, "defined twice"),
        ("graph (%0: f32[99999999999,99999999999]) {\n  return %0\n}", 1, 15, "overflows"),
        ("graph (%0: f32[2]) {\n  return %1\n}", 2, 10, "%1 is not defined"),
        ("graph (%0: f32[2]) {\n  %1 = frob(%0) : f32[2]\n  return %1\n}", 2, 8, "unknown op `frob`"),
        ("graph (%0: f32[2]) {\n  %1 = exp(%0) : f32[3]\n  return %1\n}", 2, 18, "declared f32[3]"),
        ("graph (%0: f32[2]) {\n  %1 = exp(%0)\n  return %1\n}", 3, 3, "expected `:`"),
        ("graph (%0: f32[2]) {\n  %1 = exp(%0, %0) : f32[2]\n  return %1\n}", 2, 8, "takes 1 operands"),
        ("graph (%0: f32[2]) {\n  %1 = exp(%2) : f32[2]\n  return %1\n}", 2, 12, "%2 is not defined"),
        ("graph (%0: f32[2]) {\n  %0 = exp(%0) : f32[2]\n  return %0\n}", 2, 3, "defined twice"),
        ("graph (%0: f32[2]) {\n  %1, %2 = exp(%0) : f32[2]\n  return %1\n}", 2, 12, "has 1 results, but 2 are named"),
        ("graph (%0: i32[2]) {\n  %1 = exp(%0) : i32[2]\n  return %1\n}", 2, 8, "a float dtype"),
        ("graph (%0: f32[2]) {\n  %1 = permute(%0) : f32[2]\n  return %1\n}", 2, 8, "`perm` is missing"),
        ("graph (%0: f32[2]) {\n  %1 = permute(%0) {perm=3} : f32[2]\n  return %1\n}", 2, 8, "must be a list"),
        ("graph (%0: f32[2]) {\n  %1 = permute(%0) {perm=[0], x=1} : f32[2]\n  return %1\n}", 2, 8, "no attribute `x`"),
        ("graph (%0: f32[2]) {\n  %1 = permute(%0) {perm=[0} : f32[2]\n  return %1\n}", 2, 28, "expected"),
        ("graph (%0: f32[2]) {\n  %1 = exp(%0) : f32[2]\n  return %1\n} more", 4, 3, "after the end"),
        ("graph (%0: f32[2]) {\n  %1 = exp(%0) : f32[2]\n", 3, 1, "the end"),
        ("graph () {\n  %0 = const() {value=f32[2] [1.0]} : f32[2]\n  return %0\n}", 2, 26, "needs 2 elements"),
        ("graph () {\n  %0 = const() {value=i8[1] [300]} : i8[1]\n  return %0\n}", 2, 30, "not a i8"),
        ("graph () {\n  %0 = const() {value=f32[1] [\"a\"]} : f32[1]\n  return %0\n}", 2, 31, "expected a f32"),
        ("graph (%0: f32[2]) {\n  % = exp(%0) : f32[2]\n  return %0\n}", 2, 3, "must follow"),
        ("graph (%0: f32[2]) {\n  %1 = name(%0) {name=\"abc} : f32[2]\n", 2, 23, "without its end"),
        ("graph (%0: f32[2]) {\n  ; \n}", 2, 3, "unexpected character"),
    ];
    for (text, line, column, message) in rows {
        match parse(text) {
            Err(Error::Parse { line: l, column: c, message: m }) => {
                assert!(m.contains(message), "{text:?}: {m}");
                assert_eq!((l, c), (*line, *column), "{text:?}: {m}");
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

#[test]
fn an_error_inside_a_sub_graph_points_there() {
    let text = "graph (%0: f32[2]) {\n  %1 = call(%0) {body=graph (%0: f32[2]) {\n    %1 = exp(%7) : f32[2]\n    return %1\n  }} : f32[2]\n  return %1\n}";
    let Err(Error::Parse { line, column, .. }) = parse(text) else { panic!("it must not parse") };
    assert_eq!((line, column), (3, 14));
}

#[test]
fn hostile_nesting_is_refused() {
    let lists = format!("graph () {{\n  %0 = iota() {{shape={}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let graphs = "graph () { %0 = call() {body=".repeat(100_000);
    for text in [lists, graphs] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("nested more than"), "{error}");
    }
}

/// One random change of a text.
fn mutated(text: &str, rng: &mut Rng) -> String {
    const SPICE: [&str; 28] = [
        "%",
        "%0",
        "%99",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "=",
        "-1",
        "0",
        "1",
        "4294967296",
        "18446744073709551615",
        "-9223372036854775808",
        "1e999",
        "0x",
        "f32",
        "bool",
        "graph",
        "return",
        "\"",
        "\\",
        "é",
        "\n",
    ];
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(chars.len() + 1);
        let len = rng.below(6).min(chars.len() - at);
        match rng.below(5) {
            0 => drop(chars.drain(at..at + len)),
            1 => {
                let spice = rng.pick(&SPICE).chars();
                chars.splice(at..at, spice);
            }
            2 => {
                let spice = rng.pick(&SPICE).chars();
                chars.splice(at..at + len, spice);
            }
            3 => {
                let from = rng.below(chars.len());
                let piece: Vec<char> = chars[from..chars.len().min(from + 12)].to_vec();
                chars.splice(at..at, piece);
            }
            _ => {
                // Replaces a number: sizes, axes and attributes are where arithmetic may overflow.
                let digits: Vec<usize> = (0..chars.len()).filter(|&i| chars[i].is_ascii_digit()).collect();
                if let Some(&i) = digits.get(rng.below(digits.len())) {
                    let spice =
                        *rng.pick(&["0", "1", "7", "-1", "999999999", "9223372036854775807", "18446744073709551615"]);
                    chars.splice(i..i + 1, spice.chars());
                }
            }
        }
        if chars.is_empty() {
            break;
        }
    }
    chars.into_iter().collect()
}

/// Whether the interpreter can run it quickly: no large sizes or counts, and no loop that may not terminate.
fn affordable(graph: &ir::Graph, text: &str) -> bool {
    let small = |t: &ir::Type| t.numel() <= 5_000;
    let all = (0..graph.num_values() as u32).all(|v| small(graph.ty(ir::Value(v))));
    let mut run = 0;
    let mut before = ' ';
    let mut large = false;
    for c in text.chars() {
        if c.is_ascii_digit() && (run > 0 || !(before == '.' || before.is_ascii_alphanumeric())) {
            run += 1;
        } else {
            run = 0;
        }
        large |= run > 3;
        before = c;
    }
    all && !large && !text.contains("while(")
}

/// Runs a graph that type-checks on random data, which must not panic.
fn run_filled(graph: &ir::Graph, rng: &mut Rng) -> Result<(), String> {
    let inputs: Vec<ir::Literal> =
        graph.input_types().iter().map(|t| tensorloom_testing::FillKind::Special.random_tensor(t, rng)).collect();
    match std::panic::catch_unwind(|| ir::interp::run(graph, &inputs)) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) => Err(format!("it type-checks but does not run: {e}")),
        Err(_) => Err("it type-checks but its evaluation panics".into()),
    }
}

#[test]
fn damaged_text_never_panics() {
    let seed = run_seed();
    let mut rng = Rng::new(seed);
    let rows: Vec<String> = samples::all_samples().iter().map(|r| r.graph.to_string()).collect();
    let (mut accepted, mut refused) = (0, 0);
    for k in 0..12_000u64 {
        let text = match k % 4 {
            0 => sample(seed.wrapping_add(k), &SampleOptions::ANY).graph.to_string(),
            _ => rng.pick(&rows).clone(),
        };
        let text = mutated(&text, &mut rng);
        match std::panic::catch_unwind(|| parse(&text)) {
            Ok(Ok(graph)) => {
                // Accepted text is a valid graph, which can be printed.
                ir::verify::verify(&graph).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
                let again = graph.to_string();
                assert_eq!(parse(&again).map(|g| g.to_string()), Ok(again.clone()), "seed {seed}");
                if affordable(&graph, &again) {
                    run_filled(&graph, &mut rng).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{again}"));
                }
                accepted += 1;
            }
            Ok(Err(Error::Parse { .. })) => refused += 1,
            Ok(Err(e)) => panic!("seed {seed}: an error without a place: {e}\n{text}"),
            Err(_) => panic!("seed {seed}: parsing panicked on\n{text}"),
        }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 100 && refused > 1000);
}
