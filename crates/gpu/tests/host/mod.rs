//! Runs launch sequences on the host: their source is compiled by the host's C++ compiler, with headers that emulate CUDA and
//! Hopper.

use ir::{Builder, Graph, GraphBuilder, Literal, Op, Type};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tensorloom_gpu::cuda::{LaunchSequence, PRELUDE, TemplateArg, TemplateLaunch};

/// The host's C++ compiler, if there is one.
pub(crate) fn compiler() -> Option<String> {
    let named = std::env::var("CXX").ok();
    let all = named.into_iter().chain(["c++", "g++", "clang++"].map(String::from));
    let works = |c: &String| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = all.into_iter().find(works);
    if found.is_none() {
        println!("skipped: no C++ compiler (set CXX)");
    }
    found
}

/// A launch sequence with its operands and the types of its results.
pub(crate) struct Run {
    pub(crate) routine: LaunchSequence,
    pub(crate) operands: Vec<Literal>,
    pub(crate) results: Vec<Type>,
}

/// Compiles all kernels into one program, runs the sequences, and returns their results.
pub(crate) fn host(cxx: &str, name: &str, runs: &[Run]) -> Vec<Vec<Literal>> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let tests = format!("{}/tests", env!("CARGO_MANIFEST_DIR"));
    let mut text = format!("#include \"{tests}/shim.h\"\n{PRELUDE}\n#include \"{tests}/hopper.h\"\n");
    let mut known: Vec<&TemplateLaunch> = Vec::new();
    for c in runs.iter().flat_map(|r| &r.routine.calls) {
        if known.iter().any(|k| k.entry_point == c.entry_point) {
            continue;
        }
        text += &c.source;
        // The pointer types do not matter to the machine.
        let args: Vec<String> = (0..c.args.len()).map(|n| format!("Any{{a[{n}]}}")).collect();
        let sizes: Vec<String> = (0..c.sizes.len()).map(|n| format!("s[{n}]")).collect();
        let all = [args, sizes].concat().join(", ");
        let _ = writeln!(text, "static void call{}(u8** a, i64* s) {{ {}({all}); }}", known.len(), c.entry_point);
        known.push(c);
    }
    let table: Vec<String> = (0..known.len()).map(|i| format!("call{i}")).collect();
    let _ = writeln!(text, "static const Entry table[] = {{{}}};", table.join(", "));
    let _ = writeln!(text, "int main() {{ return serve(table); }}");
    let text = text.replacen(
        "// Formats.",
        "struct Any { u8* p; template <class T> operator T*() const { return (T*)p; } };\n",
        1,
    );
    let (source, program) = (folder.join(format!("{name}.cpp")), folder.join(name));
    std::fs::write(&source, text).unwrap();
    let flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-fsanitize=undefined", "-fno-sanitize-recover=all"];
    let built = Command::new(cxx).args(flags).arg("-o").arg(&program).arg(&source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut finished = Vec::new();
    for r in runs {
        let mut regions: Vec<Vec<u8>> = r.operands.iter().map(|l| l.bytes().to_vec()).collect();
        regions.extend(r.results.iter().map(|t| vec![0xA5; t.bytes()]));
        regions.push(vec![0xA5; r.routine.scratch]);
        for c in &r.routine.calls {
            let index = known.iter().position(|k| k.entry_point == c.entry_point).unwrap();
            regions = launch(&program, index, c, regions, r.operands.len());
        }
        let made = r.results.iter().zip(&regions[r.operands.len()..]);
        finished.push(made.map(|(t, bytes)| Literal::from_bytes(t.clone(), bytes).unwrap()).collect());
    }
    finished
}

fn launch(program: &PathBuf, index: usize, c: &TemplateLaunch, regions: Vec<Vec<u8>>, operands: usize) -> Vec<Vec<u8>> {
    let mut input = Vec::new();
    let mut number = |n: usize| input.extend((n as i64).to_le_bytes());
    [1, index, c.threads as usize, c.blocks, 1, c.sizes.len()].into_iter().for_each(&mut number);
    c.sizes.iter().for_each(|n| number(*n as usize));
    number(regions.len());
    for bytes in &regions {
        input.extend((bytes.len() as i64).to_le_bytes());
        input.extend(bytes);
    }
    let mut number = |n: usize| input.extend((n as i64).to_le_bytes());
    number(c.args.len());
    for a in &c.args {
        let (region, offset) = match *a {
            TemplateArg::Operand(i) => (i, 0),
            TemplateArg::Result(i) => (operands + i, 0),
            TemplateArg::Scratch(offset) => (regions.len() - 1, offset),
        };
        number(region);
        number(offset);
    }
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} of {}: {said}", output.status, c.entry_point);
    let mut rest = &output.stdout[..];
    let lengths: Vec<usize> = regions.iter().map(Vec::len).collect();
    lengths
        .into_iter()
        .map(|n| {
            let (own, after) = rest.split_at(n);
            rest = after;
            own.to_vec()
        })
        .collect()
}

/// A graph of one op.
pub(crate) fn single(op: &Op, types: &[Type]) -> Graph {
    let mut b = Builder::new();
    let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(op.clone(), &args).unwrap();
    b.finish(&outs)
}
