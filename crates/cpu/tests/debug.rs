//! What each level of `LOOM_DEBUG` prints.

use compiler::{Backend, Options, debug};
use std::process::Command;
use std::sync::{Arc, Mutex};
use tensorloom_cpu::Cpu;

/// A graph of six nodes: `exp(%x) * 1` is `exp(%x)`, and the sum is fused with it.
const GRAPH: &str = "graph (%x: f32[64,48]) {
  %e = exp(%x) : f32[64,48]
  %o = const() {value=f32[] [1]} : f32[]
  %b = broadcast(%o) {shape=[64,48], dims=[]} : f32[64,48]
  %m = mul(%e, %b) : f32[64,48]
  %s = reduce_sum(%m) {axes=[1]} : f32[64]
  %r = sqrt(%s) : f32[64]
  return %r
}";

/// A text of every section, and the level that it appears at.
const SECTIONS: [(u8, &str); 10] = [
    (1, ": 6 nodes, cpu\ngraph (%0: f32[64,48])"),
    (1, "mul("),
    (2, "-- pass simplify: 6 -> 3 nodes\ngraph ("),
    (3, "-- steps and what is fused into them\n0: kernel over [64, 48], reduced over [1]\n"),
    (3, "= exp, reduce_sum\n"),
    (3, "-- schedule: 1 step, 2 buffers\nprogram: arena 0 bytes\n"),
    (4, "-- loops of "),
    (4, "parallel v0 < 64"),
    (5, ": code, cpu ("),
    (5, "-- code of "),
];

fn run_program(cpu: &Cpu) {
    let graph = ir::text::parse(GRAPH).unwrap();
    let program = compiler::compile(&graph, cpu, &Options::default()).unwrap();
    cpu.load(program).unwrap();
}

/// What a process prints that compiles the program twice, on two threads.
fn printed(variable: Option<&str>) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child", "--ignored", "--nocapture"]).env_remove("LOOM_DEBUG");
    if let Some(level) = variable {
        child.env("LOOM_DEBUG", level);
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
#[ignore = "the other tests run it in a process of its own"]
fn child() {
    let cpu = Cpu::new(1);
    std::thread::scope(|s| (0..2).for_each(|_| drop(s.spawn(|| run_program(&cpu)))));
}

#[test]
fn each_level_prints_more() {
    for level in 1..=5u8 {
        let text = printed(Some(&level.to_string()));
        for (from, part) in SECTIONS {
            let count = text.matches(part).count();
            assert_eq!(count >= 2, level >= from, "level {level}: `{part}`\n{text}");
        }
        assert!(text.starts_with("== program ") && !text.contains("warning"), "{text}");
        // Each program is one text, and its code says which program it is of.
        for number in 1..=2 {
            assert_eq!(text.matches(&format!("== program {number}: 6 nodes, cpu\n")).count(), 1, "{text}");
            let code = text.matches(&format!("== program {number}: code, cpu (")).count();
            assert_eq!(code, usize::from(level >= 5), "{text}");
        }
    }
}

#[test]
fn level_0_prints_nothing() {
    for variable in [None, Some(""), Some("0")] {
        assert_eq!(printed(variable), "", "{variable:?}");
    }
}

#[test]
fn a_wrong_value_warns_once_and_counts_as_0() {
    for wrong in ["6", "-1", "on", "2.5", "256"] {
        let text = printed(Some(wrong));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with(&format!("warning: LOOM_DEBUG={wrong} is not a level")), "{text}");
    }
}

/// The only test that uses this process's level and output.
#[test]
fn code_is_that_of_the_backend() {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let into = said.clone();
    debug::set_output(move |text| into.lock().unwrap().push(text.to_string()));
    debug::set_level(9);
    assert_eq!(debug::level(), debug::MAX_LEVEL);
    let best = Cpu::new(1);
    let graph = ir::text::parse(GRAPH).unwrap();
    let program = compiler::compile(&graph, &best, &Options::default()).unwrap();
    let mut kernel = None;
    program.steps.iter().for_each(|s| s.kernels(&mut |k| kernel = Some(k.clone())));
    best.load(program).unwrap();
    let texts = std::mem::take(&mut *said.lock().unwrap());
    let [_, code] = &texts[..] else { panic!("{texts:?}") };
    match best.machine_code(&kernel.unwrap()) {
        Ok(bytes) => {
            assert!(code.contains(&format!("{} bytes\n     0 ", bytes.len())), "{code}");
            let shown: Vec<u8> = (code.lines().filter(|l| l.starts_with("  ")))
                .flat_map(|l| l.split_whitespace().skip(1))
                .map(|b| u8::from_str_radix(b, 16).unwrap())
                .collect();
            assert_eq!(shown, bytes);
        }
        Err(_) => assert!(code.contains("reference evaluator"), "{code}"),
    }

    // Without a code generator, and at level 0 again.
    run_program(&Cpu::with_target(1, None));
    let texts = std::mem::take(&mut *said.lock().unwrap());
    assert!(texts.len() == 2 && texts[1].contains("the reference evaluator runs the loops"), "{texts:?}");
    debug::set_level(0);
    run_program(&best);
    assert!(said.lock().unwrap().is_empty());

    // A level as text.
    debug::set_level_from("2");
    assert_eq!(debug::level(), 2);
    debug::set_level_from("two");
    assert_eq!(debug::level(), 0);
    assert!(said.lock().unwrap()[0].contains("LOOM_DEBUG=two is not a level"));
}
