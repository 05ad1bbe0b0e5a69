//! Programs as bytes, loaded by another process.

mod harness;

use compiler::{Backend, Options, Program};
use harness::{Random, bindings, read};
use ir::{Graph, Literal};
use std::path::{Path, PathBuf};
use tensorloom_cpu::Cpu;
use testing::random::{SampleOptions as Shape, sample};
use testing::rng::run_seed;

/// A directory that is deleted when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tensorloom-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn graphs() -> Vec<(Graph, Vec<Literal>)> {
    let seed = run_seed();
    println!("seed {seed}");
    let mut found: Vec<_> =
        (0..80).map(|k| sample(seed.wrapping_add(k), &Shape::ANY)).map(|s| (s.graph, s.inputs)).collect();
    // A composite that runs as a routine, an op with a routine, and a loop over steps.
    let text = "graph (%x: f32[4,8], %w: f32[8,8], %h: f32[8]) {
      %s = sort(%x) {axis=1, num_keys=1, descending=false} : f32[4,8]
      %l, %a = scan(%w, %h, %s) {consts=1, carries=1, length=4, reverse=true, bounded=false, checkpoint=0, body=graph (%0: f32[8,8], %1: f32[8], %2: f32[8]) {
        %3 = dot(%0, %1) {lhs_contract=[1], rhs_contract=[0], lhs_batch=[], rhs_batch=[], acc=f32, out=f32} : f32[8]
        %4 = add(%3, %2) : f32[8]
        return %4, %4
      }} : f32[8], f32[4,8]
      return %l, %a
    }";
    let mut add = |g: Graph| {
        let mut r = Random(7);
        let x = g.input_types().iter().map(|t| r.literal(t)).collect();
        found.push((g, x));
    };
    add(ir::text::parse(text).unwrap());
    add(attention());
    found
}

fn attention() -> Graph {
    use ir::composites::attention::{AttentionOptions, attention};
    use ir::{Builder, DType, GraphBuilder, Type};
    let t = Type::new(DType::F32, &[2, 3, 16, 8]);
    let op = attention(&t, &t, &t, &AttentionOptions::default()).unwrap();
    let mut b = Builder::new();
    let args: Vec<_> = op.body.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.emit(op.into(), &args).unwrap();
    b.finish(&outs)
}

fn run(cpu: &Cpu, program: Program, inputs: &[Literal]) -> Vec<u8> {
    let exe = cpu.load(program).unwrap();
    let mut b = bindings(cpu, &*exe, inputs);
    exe.run(&mut b).unwrap();
    read(&*exe, &b).iter().flat_map(|l| l.bytes().to_vec()).collect()
}

#[test]
fn another_process_gives_the_same_bits() {
    let folder = Folder::new("saved");
    let cpu = Cpu::new(2);
    let mut wanted = Vec::new();
    for (i, (graph, inputs)) in graphs().iter().enumerate() {
        let program = compiler::compile(graph, &cpu, &Options::default()).unwrap();
        let bytes = program.to_bytes().unwrap();
        assert_eq!(Program::from_bytes(&bytes).unwrap().verify().unwrap(), program);
        std::fs::write(folder.0.join(format!("{i}.program")), &bytes).unwrap();
        let data: Vec<u8> = inputs.iter().flat_map(|l| l.bytes().to_vec()).collect();
        std::fs::write(folder.0.join(format!("{i}.in")), data).unwrap();
        wanted.push(run(&cpu, program, inputs));
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--ignored"])
        .env("TENSORLOOM_SAVED", &folder.0)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    for (i, want) in wanted.iter().enumerate() {
        let got = std::fs::read(folder.0.join(format!("{i}.out"))).unwrap();
        assert!(got == *want, "program {i} gives other bits in another process");
    }
}

#[test]
#[ignore = "runs as a process of its own"]
fn the_other_process() {
    let Some(folder) = std::env::var_os("TENSORLOOM_SAVED") else { return };
    let folder = Path::new(&folder);
    let cpu = Cpu::new(2);
    for i in 0.. {
        let Ok(bytes) = std::fs::read(folder.join(format!("{i}.program"))) else { break };
        let program = Program::from_bytes(&bytes).unwrap().verify().unwrap();
        let data = std::fs::read(folder.join(format!("{i}.in"))).unwrap();
        let mut at = 0;
        let mut inputs = Vec::new();
        for t in &program.inputs {
            inputs.push(Literal::from_bytes(t.clone(), &data[at..at + t.bytes()]).unwrap());
            at += t.bytes();
        }
        std::fs::write(folder.join(format!("{i}.out")), run(&cpu, program, &inputs)).unwrap();
    }
}

#[test]
fn damaged_programs_are_refused() {
    let (graph, _) = graphs().swap_remove(80);
    let bytes = compiler::compile(&graph, &Cpu::new(1), &Options::default()).unwrap().to_bytes().unwrap();
    for cut in [0, 1, 7, 8, 11, 19, 20, 21, bytes.len() / 2, bytes.len() - 1] {
        Program::from_bytes(&bytes[..cut]).unwrap_err();
    }
    let mut r = Random(run_seed());
    for _ in 0..500 {
        let mut bad = bytes.clone();
        let at = r.below(bad.len());
        bad[at] ^= 1 << r.below(8);
        let text = Program::from_bytes(&bad).unwrap_err().to_string();
        assert!(text.starts_with("a saved program: "), "{text}");
    }
}
