//! Attention's templates, compiled by the host's C++ compiler with headers of CUDA's and Hopper's words: as close to the interpreter
//! as their types allow. Skipped where there is no C++ compiler.

use gpu::cuda::{Arg, Attention as Template, Call, PRELUDE, Routine};
use ir::composites::attention::{Attention, attention, attention_backward};
use ir::ops::Composite;
use ir::{Build, Builder, DType, Graph, Literal, Op, Scalar, Type};
use oracle::{Rng, rng::run_seed};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn compiler() -> Option<String> {
    let named = std::env::var("CXX").ok();
    let all = named.into_iter().chain(["c++", "g++", "clang++"].map(String::from));
    let works = |c: &String| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = all.into_iter().find(works);
    if found.is_none() {
        println!("skipped: no C++ compiler (set CXX)");
    }
    found
}

#[derive(Debug)]
struct Case {
    batch: usize,
    heads: (usize, usize),
    t: (usize, usize),
    d: (usize, usize),
    dtype: DType,
    options: Attention,
    backward: bool,
}

impl Case {
    fn composites(&self) -> (Composite, Composite) {
        let ty = |own: &[usize]| Type::new(self.dtype, &[&[self.batch], own].concat());
        let (q, k) = (ty(&[self.heads.0, self.t.0, self.d.0]), ty(&[self.heads.1, self.t.1, self.d.0]));
        let v = ty(&[self.heads.1, self.t.1, self.d.1]);
        (attention(&q, &k, &v, &self.options).unwrap(), attention_backward(&q, &k, &v, &self.options).unwrap())
    }

    fn inputs(&self, types: &[Type], rng: &mut Rng) -> Vec<Literal> {
        let literal = |t: &Type, rng: &mut Rng| match t.dtype {
            DType::I32 => {
                Literal::from_fn(t.clone(), |_| Scalar::from_i64(DType::I32, rng.range(-2, self.t.1 as i64 + 3)))
            }
            d => Literal::from_fn(t.clone(), |_| Scalar::from_f64(d, rng.between(-1.5, 1.5))),
        };
        types.iter().map(|t| literal(t, rng)).collect()
    }
}

/// A routine with its operands and the types of its results.
struct Run {
    routine: Routine,
    operands: Vec<Literal>,
    results: Vec<Type>,
}

/// Compiles all kernels into one program, runs the routines, and gives their results.
fn host(cxx: &str, runs: &[Run]) -> Vec<Vec<Literal>> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let tests = format!("{}/tests", env!("CARGO_MANIFEST_DIR"));
    let mut text = format!("#include \"{tests}/shim.h\"\n{PRELUDE}\n#include \"{tests}/hopper.h\"\n");
    let mut known: Vec<&Call> = Vec::new();
    for c in runs.iter().flat_map(|r| &r.routine.calls) {
        if known.iter().any(|k| k.entry == c.entry) {
            continue;
        }
        text += &c.text;
        // What each pointer is doesn't matter to the machine.
        let args: Vec<String> = (0..c.args.len()).map(|n| format!("Any{{a[{n}]}}")).collect();
        let sizes: Vec<String> = (0..c.sizes.len()).map(|n| format!("s[{n}]")).collect();
        let all = [args, sizes].concat().join(", ");
        let _ = writeln!(text, "static void call{}(u8** a, i64* s) {{ {}({all}); }}", known.len(), c.entry);
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
    let (source, program) = (folder.join("attention.cpp"), folder.join("attention"));
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
            let index = known.iter().position(|k| k.entry == c.entry).unwrap();
            regions = launch(&program, index, c, regions, r.operands.len());
        }
        let made = r.results.iter().zip(&regions[r.operands.len()..]);
        finished.push(made.map(|(t, bytes)| Literal::from_bytes(t.clone(), bytes).unwrap()).collect());
    }
    finished
}

fn launch(program: &PathBuf, index: usize, c: &Call, regions: Vec<Vec<u8>>, operands: usize) -> Vec<Vec<u8>> {
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
            Arg::Operand(i) => (i, 0),
            Arg::Result(i) => (operands + i, 0),
            Arg::Scratch(offset) => (regions.len() - 1, offset),
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
    assert!(output.status.success(), "{} of {}: {said}", output.status, c.entry);
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

fn cases(rng: &mut Rng) -> Vec<Case> {
    let case = |heads, t, d| Case {
        batch: 2,
        heads,
        t,
        d,
        dtype: DType::BF16,
        options: Attention { causal: true, ..Attention::default() },
        backward: true,
    };
    let mut all = vec![
        case((1, 1), (130, 130), (64, 64)),
        Case { dtype: DType::F16, options: Attention::default(), ..case((2, 1), (40, 70), (40, 72)) },
        Case {
            options: Attention { causal: true, window: Some(20), softcap: Some(2.0), ..Attention::default() },
            ..case((2, 2), (100, 100), (32, 32))
        },
        Case { backward: false, ..case((1, 1), (70, 70), (200, 256)) },
        Case {
            options: Attention {
                window: Some(30),
                q_offset: Some(Type::new(DType::I32, &[2])),
                lengths: Some(Type::new(DType::I32, &[])),
                ..Attention::default()
            },
            ..case((4, 2), (70, 90), (128, 128))
        },
    ];
    for _ in 0..3 {
        let kv = 1 + rng.below(2);
        let wide = [8, 16, 64, 80, 96][rng.below(5)];
        all.push(Case {
            batch: 1 + rng.below(2),
            dtype: *rng.pick(&[DType::BF16, DType::F16]),
            options: Attention {
                causal: rng.chance(0.5),
                window: rng.chance(0.3).then(|| 1 + rng.below(80)),
                lengths: rng.chance(0.3).then(|| Type::new(DType::I32, &[])),
                q_offset: rng.chance(0.3).then(|| Type::new(DType::I32, &[])),
                ..Attention::default()
            },
            ..case((kv * (1 + rng.below(3)), kv), (16 + rng.below(150), 1 + rng.below(150)), (wide, wide))
        });
    }
    all
}

fn close(what: &str, got: &[Literal], want: &[Literal], dtype: DType) {
    let tolerance = if dtype == DType::F16 { 4e-3 } else { 3e-2 };
    for (n, (g, w)) in got.iter().zip(want).enumerate() {
        // Sums of many terms are as large as their largest elements.
        let largest =
            (0..w.ty().numel()).map(|i| w.get(i).to_f64()).filter(|x| x.is_finite()).fold(0.5, |a, x| x.abs().max(a));
        for i in 0..w.ty().numel() {
            let (a, b) = (g.get(i).to_f64(), w.get(i).to_f64());
            let same = a == b || (a - b).abs() <= tolerance * largest.max(b.abs()) * 0.5 + tolerance * b.abs() * 0.5;
            assert!(same, "{what}: result {n}, element {i} is {a}, expected {b}");
        }
    }
}

#[test]
fn templates_compute_attention_and_its_backward() {
    let Some(cxx) = compiler() else { return };
    let seed = run_seed();
    let mut rng = Rng::new(seed);
    let cases = cases(&mut rng);
    let (mut runs, mut expected) = (Vec::new(), Vec::new());
    for case in &cases {
        let (forward, backward) = case.composites();
        let types = forward.body.input_types();
        let inputs = case.inputs(&types, &mut rng);
        let template = Template::of(&forward, &types).unwrap_or_else(|| panic!("{case:?}"));
        let results = ir::interp::run(&single(&forward, &types), &inputs).unwrap();
        let of = |all: &[Literal]| all.iter().map(|l| l.ty().clone()).collect::<Vec<_>>();
        runs.push(Run { routine: template.routine(), operands: inputs.clone(), results: of(&results) });
        expected.push((case, results.clone()));
        let types = backward.body.input_types();
        let template = Template::of(&backward, &types);
        assert_eq!(template.is_some(), case.backward, "{case:?}");
        if let Some(template) = template {
            let cotangents = case.inputs(&of(&results), &mut rng);
            let operands = [inputs, results, cotangents].concat();
            let grads = ir::interp::run(&single(&backward, &types), &operands).unwrap();
            runs.push(Run { routine: template.routine(), operands, results: of(&grads) });
            expected.push((case, grads));
        }
    }
    for (got, (case, want)) in host(&cxx, &runs).iter().zip(&expected) {
        close(&format!("TENSORLOOM_SEED={seed} {case:?}"), got, want, case.dtype);
    }
}

fn single(c: &Composite, types: &[Type]) -> Graph {
    let mut b = Builder::new();
    let args: Vec<_> = types.iter().map(|t| b.graph.input(t.clone())).collect();
    let outs = b.emit(Op::from(c.clone()), &args).unwrap();
    b.finish(&outs)
}

#[test]
fn what_the_template_lacks_is_left_to_the_compiler() {
    let claimed = |c: Case| {
        let (forward, _) = c.composites();
        Template::of(&forward, &forward.body.input_types()).is_some()
    };
    let case = |options: Attention| Case {
        batch: 1,
        heads: (2, 1),
        t: (32, 32),
        d: (64, 64),
        dtype: DType::BF16,
        options,
        backward: true,
    };
    let plain = Attention::default;
    assert!(claimed(case(plain())));
    assert!(!claimed(case(Attention { mask: Some(Type::new(DType::Bool, &[1, 32, 32])), ..plain() })));
    assert!(!claimed(case(Attention { slopes: Some(Type::new(DType::F32, &[2])), ..plain() })));
    let ids = Type::new(DType::I32, &[32]);
    assert!(!claimed(case(Attention { segments: Some((ids.clone(), ids)), ..plain() })));
    assert!(!claimed(case(Attention { scale: Some(-1.0), ..plain() })));
    assert!(!claimed(Case { d: (60, 64), ..case(plain()) }));
    assert!(!claimed(Case { d: (264, 64), ..case(plain()) }));
    assert!(!claimed(Case { t: (4, 32), ..case(plain()) }));
    assert!(!claimed(Case { dtype: DType::F32, ..case(plain()) }));
}
