//! The CUDA source of grids, compiled by the host's C++ compiler with a header that emulates CUDA, and run: every bit must equal
//! that of the grid interpreter. Skipped if there is no C++ compiler.

mod grids;

use grids::device::Device;
use grids::rows::random_kernel;
use grids::{Prepared, is_nan, kernels, prepare, slices};
use ir::{DType, Unary};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tensorloom_gpu::cuda;
use tensorloom_gpu::grid::{self, AddressSpace, GridKernel, GridLimits, Launch, View};
use testing::random::{SampleOptions as Shape, sample};
use testing::{Rng, rng::run_seed};

/// The C++ compiler, if there is one.
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

/// A launch of one of the kernels.
struct Run {
    kernel: usize,
    sizes: Vec<i64>,
    regions: Vec<Vec<u8>>,
    views: Vec<View>,
}

/// Compiles kernels into one program and returns the regions after each run.
fn host(cxx: &str, name: &str, kernels: &[GridKernel], runs: &[Run], flags: &[&str]) -> Vec<Vec<Vec<u8>>> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let names: Vec<String> = (0..kernels.len()).map(|i| format!("k{i}")).collect();
    let pairs: Vec<(&str, &GridKernel)> = names.iter().map(String::as_str).zip(kernels).collect();
    let mut text = format!("#include \"{}/tests/shim.h\"\n", env!("CARGO_MANIFEST_DIR"));
    text += &cuda::print(&pairs);
    for (i, k) in kernels.iter().enumerate() {
        let pointers = k.memory.iter().filter(|m| !matches!(m.space, AddressSpace::Shared(_)));
        let mut args: Vec<String> = pointers
            .enumerate()
            .map(|(n, m)| {
                let t = match m.dtype {
                    DType::Bool | DType::F8E4M3 | DType::F8E5M2 => "u8",
                    DType::F16 | DType::BF16 => "u16",
                    d => d.name(),
                };
                format!("({t}*)a[{n}]")
            })
            .collect();
        args.extend((0..k.sizes).map(|n| format!("s[{n}]")));
        let _ = writeln!(text, "static void call{i}(u8** a, i64* s) {{ k{i}({}); }}", args.join(", "));
    }
    let table: Vec<String> = (0..kernels.len()).map(|i| format!("call{i}")).collect();
    let _ = writeln!(text, "static const Entry table[] = {{{}}};", table.join(", "));
    let _ = writeln!(text, "int main() {{ return serve(table); }}");
    let (source, program) = (folder.join(format!("{name}.cpp")), folder.join(name));
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new(cxx);
    command.args(["-std=c++17", "-O0", "-ffp-contract=off", "-w"]).args(flags);
    let built = command.arg("-o").arg(&program).arg(&source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut input = Vec::new();
    let number = |to: &mut Vec<u8>, n: i64| to.extend(n.to_le_bytes());
    number(&mut input, runs.len() as i64);
    let mut lengths = Vec::new();
    for r in runs {
        let k = &kernels[r.kernel];
        let blocks = k.blocks(&r.sizes);
        let waits = k.to_string().contains("barrier") || k.to_string().contains("exchange");
        for n in [r.kernel as i64, k.threads as i64, blocks as i64, waits as i64, r.sizes.len() as i64] {
            number(&mut input, n);
        }
        r.sizes.iter().for_each(|n| number(&mut input, *n));
        let spills = k.spill_bytes(blocks);
        number(&mut input, (r.regions.len() + spills.len()) as i64);
        for bytes in r.regions.iter().cloned().chain(spills.iter().map(|n| vec![0xA5; *n])) {
            number(&mut input, bytes.len() as i64);
            input.extend(&bytes);
        }
        lengths.push(r.regions.iter().map(Vec::len).chain(spills).collect::<Vec<_>>());
        let pointers: Vec<AddressSpace> =
            k.memory.iter().map(|m| m.space).filter(|s| !matches!(s, AddressSpace::Shared(_))).collect();
        number(&mut input, pointers.len() as i64);
        let (mut views, mut spilled) = (r.views.iter(), r.regions.len());
        for space in pointers {
            let (region, offset) = match space {
                AddressSpace::Spill(_) => {
                    spilled += 1;
                    (spilled - 1, 0)
                }
                _ => views.next().map(|v| (v.region, v.offset)).unwrap(),
            };
            number(&mut input, region as i64);
            number(&mut input, offset as i64);
        }
    }
    let mut child =
        Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let mut rest = &output.stdout[..];
    lengths
        .into_iter()
        .map(|all| {
            all.into_iter()
                .map(|n| {
                    let (own, after) = rest.split_at(n);
                    rest = after;
                    own.to_vec()
                })
                .collect()
        })
        .collect()
}

/// Whether a kernel uses functions of f64 that the host's library and the reference compute differently.
fn inexact(k: &GridKernel) -> bool {
    let text = k.to_string();
    let names = ["asinh", "acosh", "atanh", "erf", "lgamma", "digamma", "zeta"];
    names.iter().any(|n| text.contains(&format!("= {n}")))
}

#[test]
fn the_text_computes_what_the_evaluator_does() {
    let Some(cxx) = compiler() else { return };
    let seed = run_seed();
    let count: u64 = std::env::var("TENSORLOOM_TEXTS").ok().and_then(|r| r.parse().ok()).unwrap_or(60);
    let (mut grids, mut runs, mut expected, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for k in 0..count {
        let s = sample(seed.wrapping_add(k), &Shape::ANY);
        let mut rng = Rng::new(s.seed);
        let mut cases = kernels(&s.graph, &Device::random(&mut rng), Vec::new()).unwrap();
        cases.push(random_kernel(&mut rng));
        for case in cases {
            let limits = grids::limits(&mut rng);
            let Some(p) = prepare(&case, limits, &mut rng).unwrap() else { continue };
            let mut after = p.regions.clone();
            let launch = Launch { sizes: &p.sizes, seed: 1 };
            if grid::eval(&p.grid, &mut slices(&mut after), &p.views, launch).is_err() || inexact(&p.grid) {
                continue;
            }
            runs.push(Run {
                kernel: grids.len(),
                sizes: p.sizes.clone(),
                regions: p.regions.clone(),
                views: p.views.clone(),
            });
            grids.push(p.grid.clone());
            expected.push(after);
            all.push((s.seed, p));
        }
    }
    let got = host(
        &cxx,
        "random_kernels",
        &grids,
        &runs,
        &["-DTENSORLOOM_REFERENCE", "-fsanitize=undefined", "-fno-sanitize-recover=all"],
    );
    for (((seed, p), want), got) in all.iter().zip(&expected).zip(&got) {
        if let Some(wrong) = differs(p, want, got) {
            panic!("TENSORLOOM_SEED={seed}: {wrong}\n{}\n{}", cuda::function("k", &p.grid), p.grid);
        }
    }
    println!("{} kernels", grids.len());
    assert!(grids.len() as u64 > count);
}

fn differs(p: &Prepared, want: &[Vec<u8>], got: &[Vec<u8>]) -> Option<String> {
    let globals = p.grid.memory.iter().filter(|m| matches!(m.space, AddressSpace::Global(_)));
    for (m, v) in globals.zip(&p.views) {
        let n = m.dtype.size();
        let part = |r: &[Vec<u8>]| r[v.region][v.offset..v.offset + v.bytes].to_vec();
        let (want, got) = (part(want), part(got));
        for (i, (a, b)) in want.chunks_exact(n).zip(got.chunks_exact(n)).enumerate() {
            if a != b && !(is_nan(m.dtype, a) && is_nan(m.dtype, b)) {
                return Some(format!("{} element {i}: {b:?}, expected {a:?}", m.dtype));
            }
        }
    }
    None
}

/// The difference of two numbers of a float dtype in ulps, as f32 or f64.
fn ulps(d: DType, got: f64, want: f64) -> f64 {
    if got == want || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    let digits = if d == DType::F64 { 52 } else { 23 };
    let unit = 2f64.powi((want.abs().log2().floor() as i32).max(if d == DType::F64 { -1022 } else { -126 }) - digits);
    (got - want).abs() / unit
}

#[test]
fn functions_are_as_exact_as_promised() {
    let Some(cxx) = compiler() else { return };
    let ops: Vec<Unary> =
        Unary::ALL.iter().copied().filter(|op| op.domain() == ir::scalar::DTypeDomain::Float).collect();
    let mut rng = Rng::new(run_seed());
    let mut inputs: Vec<f64> =
        vec![0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, -1e-30, 1e30, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    inputs.extend((0..400).map(|_| rng.uniform(-1.0, 1.0) * 10f64.powf(rng.uniform(-8.0, 2.5))));
    let n = inputs.len();
    let (mut grids, mut runs) = (Vec::new(), Vec::new());
    for d in [DType::F32, DType::F64] {
        for &op in &ops {
            let mut b = compiler::loops::KernelBuilder::new(op.name());
            let x = b.buffer(d, compiler::loops::AccessMode::Read);
            let y = b.buffer(op.result(d), compiler::loops::AccessMode::Write);
            b.for_loop(compiler::loops::LoopKind::Vector, compiler::loops::Size::Const(n as i64), |b, i| {
                let v = b.load(x, i);
                let w = b.unary(op, v);
                b.store(y, i, w);
            });
            let g = grid::lower(&b.finish(), &GridLimits::CUDA, &grid::LaunchInfo::default()).unwrap();
            let bytes: Vec<u8> = inputs
                .iter()
                .flat_map(|x| ir::Scalar::from_f64(d, *x).bits().to_le_bytes()[..d.size()].to_vec())
                .collect();
            let out = n * op.result(d).size();
            let views = vec![View::whole_region(0, bytes.len()), View::whole_region(1, out)];
            runs.push(Run { kernel: grids.len(), sizes: vec![], regions: vec![bytes, vec![0; out]], views });
            grids.push(g);
        }
    }
    let got = host(&cxx, "functions", &grids, &runs, &[]);
    let mut wrong = Vec::new();
    for (k, got) in got.iter().enumerate() {
        let (d, op) = ([DType::F32, DType::F64][k / ops.len()], ops[k % ops.len()]);
        use Unary::*;
        let allowed = match (d, op) {
            // Functions that the reference computes by series are compared with their precision.
            (DType::F64, Digamma | ErfInv | Lgamma) => 1e5,
            (DType::F64, _) => 8.0,
            // The tolerances in docs/ir.md.
            (_, Sqrt | Reciprocal) => 0.5,
            (_, Exp | Exp2 | Log) => 1.0,
            (_, Rsqrt) => 1.5,
            (_, Sin | Cos | Expm1 | Log2 | Log1p | Erf) => 2.0,
            (_, Tanh | Logistic) => 2.5,
            _ => 4.0,
        };
        for (i, x) in inputs.iter().enumerate() {
            let x = ir::Scalar::from_f64(d, *x);
            let want = op.eval(x);
            let size = want.dtype().size();
            let mut word = [0; 8];
            word[..size].copy_from_slice(&got[1][i * size..(i + 1) * size]);
            let value = ir::Scalar::from_bits(want.dtype(), u64::from_le_bytes(word));
            let exact = match op {
                IsFinite => want.to_f64(),
                _ => ir::special::unary_f64(op, x.to_f64()),
            };
            // The nearest number is accepted, however far its neighbours are.
            if value != want
                && (ulps(d, value.to_f64(), exact) > allowed || want.to_f64() == 0.0)
                && !both_nan(value, want)
            {
                wrong.push(format!("{op:?} of {d} {x:?}: {value:?}, exactly {exact:e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn both_nan(a: ir::Scalar, b: ir::Scalar) -> bool {
    a.to_f64().is_nan() && b.to_f64().is_nan()
}
