//! Scalar functions at points with representable results: on each code generator, on the portable one and in the interpreter.

use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;
use testing::backend::{exact_function_points, matches_function_values};

#[test]
fn each_generator_gives_representable_results() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    let targets = Target::available().into_iter().map(Some).chain([None]);
    for target in targets {
        let cpu = Cpu::with_target(1, target);
        for case in exact_function_points() {
            count += case.want.ty().numel();
            if let Err(e) = matches_function_values(&cpu, &case.graph, &case.inputs, &case.want) {
                wrong.push(format!("{target:?}: {}: {e}", case.name));
            }
        }
    }
    println!("{count} values");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_interpreter_gives_representable_results() {
    let mut wrong = Vec::new();
    for case in exact_function_points() {
        let got = ir::interp::run(&case.graph, &case.inputs).unwrap();
        for i in 0..case.want.ty().numel() {
            let (g, w) = (got[0].get(i), case.want.get(i));
            if g != w && !(g.to_f64().is_nan() && w.to_f64().is_nan()) {
                let args: Vec<_> = case.inputs.iter().map(|x| x.get(i)).collect();
                wrong.push(format!("{} {args:?} is {g:?}, not {w:?}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}
