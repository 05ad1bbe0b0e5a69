//! Files under `tests/files`: a graph, what to do with it, and what comes out.
//!
//! A file begins with `# pass: NAME` (one pass) or `# show: program | loops | explain` (the whole compiler), followed by the
//! graph, then `# gives` and the expected text. Run with `BLESS=1` to accept the actual output. A pass must also preserve
//! the semantics of the graph: both graphs are interpreted on edge-case inputs, and every bit of the results is compared.

mod plain;

use ir::{DType, Graph, Literal, Scalar};
use plain::{Plain, TARGET};
use std::path::{Path, PathBuf};
use tensorloom_compiler::loops::Kernel;
use tensorloom_compiler::program::{LoopStep, Step};
use tensorloom_compiler::{Backend, Options, Pass};

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn every_file_gives_what_it_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut wrong = Vec::new();
    let mut passes = std::collections::BTreeSet::new();
    let plain = Plain(TARGET);
    for path in files(&dir) {
        let name = path.file_name().unwrap().to_string_lossy().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once("# gives\n").unwrap_or((&text, ""));
        let (first, _) = input.split_once('\n').expect("a first line");
        let graph = ir::text::parse(input).unwrap_or_else(|e| panic!("{name}: {e}"));
        let given = match first.strip_prefix("# pass: ").map(Pass::from_name) {
            Some(pass) => {
                let pass = pass.unwrap_or_else(|| panic!("{name}: there is no such pass"));
                passes.insert(pass.name());
                let after = pass.run(&graph, &|c, t| plain.supports_composite(c, t), plain.target()).unwrap();
                ir::verify::verify(&after).unwrap();
                same_meaning(&name, &graph, &after);
                after.to_string()
            }
            None => shown(first.strip_prefix("# show: ").expect("a first line that says what to do"), &graph),
        };
        if given.trim_end() == expected.trim_end() {
            continue;
        }
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, format!("{input}# gives\n{}\n", given.trim_end())).unwrap();
        } else {
            wrong.push(format!("{name} gives (BLESS=1 accepts)\n{given}\ninstead of\n{expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all: std::collections::BTreeSet<&str> = Pass::PIPELINE.iter().map(|p| p.name()).collect();
    assert_eq!(passes, all, "every pass has a file");
}

fn shown(what: &str, graph: &Graph) -> String {
    let (program, explanation) = tensorloom_compiler::explain(graph, &Plain(TARGET), &Options::default()).unwrap();
    match what {
        "program" => program.to_string(),
        "explain" => explanation.to_string(),
        "loops" => {
            let mut text = String::new();
            kernels(&program.steps, &mut |k| {
                tensorloom_compiler::loops::verify(k).unwrap();
                text.push_str(&k.to_string());
            });
            text
        }
        other => panic!("{other}: program, loops or explain"),
    }
}

fn kernels(steps: &[Step], f: &mut dyn FnMut(&Kernel)) {
    for s in steps {
        match s {
            Step::Kernel { kernel, .. } => f(kernel),
            Step::Matmul { epilogue: Some(e), .. } => f(&e.kernel),
            Step::Loop(l) => {
                let LoopStep { body, .. } = &**l;
                kernels(body, f);
            }
            Step::Branch { branches, .. } => branches.iter().for_each(|b| kernels(b, f)),
            _ => {}
        }
    }
}

fn same_meaning(name: &str, before: &Graph, after: &Graph) {
    const AWKWARD: [f64; 11] =
        [-0.0, 0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5, -2.25, 1e30, 3.0];
    for shift in 0..AWKWARD.len() {
        let inputs: Vec<Literal> = (before.input_types().iter().enumerate())
            .map(|(n, t)| {
                Literal::from_fn(t.clone(), |i| match t.dtype {
                    DType::Bool => Scalar::from_i64(t.dtype, ((i + shift) % 2) as i64),
                    d if d.is_float() => Scalar::from_f64(d, AWKWARD[(i * (n + 1) + 3 * n + shift) % AWKWARD.len()]),
                    d => Scalar::from_i64(d, ((i + shift + n) % 5) as i64 - (d == DType::I32) as i64 * 2),
                })
            })
            .collect();
        let (a, b) = (ir::interp::run(before, &inputs).unwrap(), ir::interp::run(after, &inputs).unwrap());
        for (a, b) in a.iter().zip(&b) {
            for i in 0..a.ty().numel() {
                let (x, y) = (a.get(i), b.get(i));
                let nan = a.ty().dtype.is_float() && x.to_f64().is_nan() && y.to_f64().is_nan();
                assert!(nan || x == y, "{name}: element {i} was {x}, is {y}");
            }
        }
    }
}
