//! Mutation testing of the sources: changes one place at a time in a copy of the workspace; the suite must then fail.
//!
//! ```text
//! cargo run -p tensorloom-testing --example mutants            # all, some minutes
//! cargo run -p tensorloom-testing --example mutants            # all, takes some minutes
//! cargo run -p tensorloom-oracle --example mutants -- scan    # those whose file or text contains `scan`
//!
//! A surviving mutant is a gap in the tests; a snippet that is no longer found must be updated.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A mutant: the file, the original text, which must occur exactly once, and its replacement.
type Mutant = (&'static str, &'static str, &'static str);

#[rustfmt::skip]
const MUTANTS: &[Mutant] = &[
    ("crates/ir/src/ops/elementwise.rs", "Log1p => Over(cx.offset(x, 1.0)?)", "Log1p => Over(cx.offset(x, 2.0)?)"),
    ("crates/ir/src/ops/elementwise.rs", "Sin => Times(cx.unary(Cos, x)?)", "Sin => Times(cx.unary(Sin, x)?)"),
    ("crates/ir/src/ops/elementwise.rs", "let half = cx.scale(y, -0.5)?;", "let half = cx.scale(y, 0.5)?;"),
    ("crates/ir/src/ops/elementwise.rs", "(Binary::Mul, Arg::Known(k), Arg::Linear(_)) => vec![None, Some(cx.mul(*k, c)?)]", "(Binary::Mul, Arg::Known(k), Arg::Linear(_)) => vec![None, Some(cx.add(*k, c)?)]"),
    ("crates/ir/src/ops/elementwise.rs", "Max => tie_weighted(cx, Compare::Gt, b, a, d)?", "Max => tie_weighted(cx, Compare::Gt, a, b, d)?"),
    ("crates/ir/src/ops/elementwise.rs", "Some(cx.select(*cond, zero, c)?)", "Some(cx.select(*cond, c, zero)?)"),
    ("crates/ir/src/ops/view.rs", "inverse[p] = i;", "inverse[i] = p;"),
    ("crates/ir/src/ops/view.rs", "low.push(start as i64);", "low.push(0);"),
    ("crates/ir/src/ops/view.rs", "Some(i) => ty.shape[i] != self.shape[*d],", "Some(_) => false,"),
    ("crates/ir/src/ops/reduce.rs", "cx.div(total, count)", "Ok(total)"),
    ("crates/ir/src/ops/reduce.rs", "let (l, r) = (b.mul(v[1], v[2])?, b.mul(v[0], v[3])?);", "let (l, r) = (b.mul(v[1], v[2])?, b.mul(v[1], v[3])?);"),
    ("crates/ir/src/ops/dot.rs", "order.sort_by_key(|&i| other_contract[i]);", ""),
    ("crates/ir/src/ops/dot.rs", "Ok(vec![(cx.move_axis(v, at, 0)?, true)])", "Ok(vec![(cx.move_axis(v, 0, at)?, true)])"),
    ("crates/ir/src/ops/scan.rs", "back_scan.reverse = !self.reverse;", "back_scan.reverse = self.reverse;"),
    ("crates/ir/src/ops/scan.rs", "Some(g) => b.add(s, g)?,", "Some(g) => g,"),
    ("crates/ir/src/ops/scan.rs", "let old = if i < nk { inner[nc + i] } else { b.zeros(&ty)? };", "let old = b.zeros(&ty)?;"),
    ("crates/ir/src/ops/composite.rs", "*v = b.sum(*v, &[0])?;", "*v = b.slice_axis(*v, 0, 0, 1)?; let t = b.ty(*v); *v = b.reshape(*v, &t.shape[1..])?;"),
    ("crates/ir/src/ops/cumulative.rs", "kind: if self.reverse { ReduceKind::Min } else { ReduceKind::Max },", "kind: ReduceKind::Max,"),
    ("crates/ir/src/composites/softmax.rs", "let shifted = b.sub(x, wide)?;\n    let e = b.unary(Unary::Exp, shifted)?;\n    let s = row_sum(b, e)?;\n    let l = b.unary(Unary::Log, s)?;", "let shifted = b.sub(x, wide)?;\n    let e = b.unary(Unary::Exp, shifted)?;\n    let s = row_sum(b, e)?;\n    let l = b.unary(Unary::Log2, s)?;"),
    ("crates/ir/src/scalar.rs", "Div if y == 0 => -1,", "Div if y == 0 => 0,"),
    ("crates/ir/src/special.rs", "Round => x.round_ties_even(),", "Round => x.round(),"),
    ("crates/ir/src/interp.rs", "let i = index[a] as i64 - low[a];", "let i = index[a] as i64 + low[a];"),
    ("crates/transform/src/transpose.rs", "cts[a.0 as usize] = cx.add_opt(cts[a.0 as usize], g)?;", "cts[a.0 as usize] = g.or(cts[a.0 as usize]);"),
    ("crates/transform/src/vmap.rs", "*v = cx.move_axis(*v, 0, a)?;", "let _ = a;"),
    ("crates/transform/src/split.rs", "known_outputs.extend(kept.iter().map(|(k, _)| *k));", "known_outputs.extend(kept.iter().rev().map(|(k, _)| *k));"),
];

fn main() -> ExitCode {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let copy = std::env::temp_dir().join("tensorloom-mutants");
    let sources = ["Cargo.toml", "Cargo.lock", "crates", "golden/data"];
    for source in sources {
        if let Err(e) = copy_tree(&root.join(source), &copy.join(source)) {
            eprintln!("copying {source}: {e}");
            return ExitCode::FAILURE;
        }
    }
    if suite_passes(&copy) != Ok(true) {
        eprintln!("the suite fails without any fault in it");
        return ExitCode::FAILURE;
    }
    let (mut caught, mut wrong) = (0, Vec::new());
    for (file, from, to) in MUTANTS.iter().filter(|m| m.0.contains(&filter) || m.1.contains(&filter)) {
        let path = copy.join(file);
        let original = std::fs::read_to_string(&path).unwrap_or_default();
        let what = format!("{file}: {} -> {}", first_line(from), first_line(to));
        if original.matches(from).count() != 1 {
            wrong.push(format!(
                "{what}: the snippet must occur once, but occurs {} times",
                original.matches(from).count()
            ));
            continue;
        }
        let put = |text: &str| std::fs::write(&path, text).is_ok();
        let written = put(&original.replace(from, to));
        let outcome = suite_passes(&copy);
        if !put(&original) || !written {
            eprintln!("{} can't be written", path.display());
            return ExitCode::FAILURE;
        }
        match outcome {
            Ok(false) => {
                println!("caught {what}");
                caught += 1;
            }
            Ok(true) => wrong.push(what),
            Err(e) => wrong.push(format!("{what}: {e}")),
        }
    }
    println!("{caught} faults caught");
    for w in &wrong {
        eprintln!("not caught: {w}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("nothing")
}

/// Runs the table and the golden values. A mutant that does not compile is an error, because the compiler and not the tests
/// would detect it.
fn suite_passes(root: &Path) -> Result<bool, String> {
    if !cargo(root, &["--no-run", "--test", "table", "--test", "golden"]) {
        return Err("it does not compile".into());
    }
    Ok(cargo(root, &["--test", "table"]) && cargo(root, &["--test", "golden"]))
}

/// `cargo test` in the copy, built without optimization, because building takes most of the time.
fn cargo(root: &Path, args: &[&str]) -> bool {
    let status = Command::new("cargo")
        .args(["test", "-q", "-p", "tensorloom-testing"])
        .args(args)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    status.is_ok_and(|s| s.success())
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_file() {
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // An unchanged file keeps its modification time, so that the copy's build is reused.
        if std::fs::read(from)? != std::fs::read(to).unwrap_or_default() {
            std::fs::copy(from, to)?;
        }
        return Ok(());
    }
    for entry in std::fs::read_dir(from)? {
        let path: PathBuf = entry?.path();
        if let Some(name) = path.file_name() {
            copy_tree(&path, &to.join(name))?;
        }
    }
    Ok(())
}
