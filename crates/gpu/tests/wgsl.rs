//! The WGSL source of kernels, parsed and validated like in every WebGPU implementation; no adapter is needed.

#![cfg(feature = "wgpu")]

mod grids;

use compiler::{Backend, DeviceBuffer, Error, Executable, Options, Program, Result, Target};
use ir::ops::Composite;
use ir::{Graph, Type};
use std::collections::BTreeSet;
use std::sync::Arc;
use tensorloom_gpu::grid::{self, AddressSpace, GridLimits};
use tensorloom_gpu::wgpu::{print, target};
use testing::random::{SampleOptions as Shape, sample};
use testing::rng::run_seed;
use wgpu::naga::{front::wgsl, valid};

/// An adapter with default limits that programs are compiled for but never run on.
struct Adapter(Target);

impl Backend for Adapter {
    fn name(&self) -> String {
        "an adapter for tests".into()
    }

    fn target(&self) -> &Target {
        &self.0
    }

    fn supports_composite(&self, _: &Composite, _: &[Type]) -> bool {
        false
    }

    fn alloc(&self, _: usize) -> Result<Arc<dyn DeviceBuffer>> {
        Err(Error::Backend("nothing runs here".into()))
    }

    fn load(&self, _: Program) -> Result<Arc<dyn Executable>> {
        Err(Error::Backend("nothing runs here".into()))
    }
}

fn validate(source: &str, capabilities: valid::Capabilities) -> std::result::Result<(), String> {
    let module = wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
    let mut validator = valid::Validator::new(valid::ValidationFlags::all(), capabilities);
    validator.validate(&module).map(drop).map_err(|e| e.emit_to_string(source))
}

/// The numbers of validated kernels, of kernels with atomic words, of kernels with barriers, and the sources.
#[derive(Default, Debug)]
struct Seen {
    kernels: usize,
    atomic: usize,
    waiting: usize,
    words: usize,
    texts: BTreeSet<String>,
}

/// Checks that no register is a float that a driver knows, and that signs, quotients and roots do not use the driver's operations.
fn knows_no_number(source: &str) -> std::result::Result<(), String> {
    let main = source.split("@compute").nth(1).unwrap_or_default();
    for line in main.lines() {
        let Some((_, value)) = line.split_once(": f32 = ") else { continue };
        let starts = |all: &[&str]| all.iter().any(|x| value.starts_with(x));
        let literal = value.starts_with(|c: char| c.is_ascii_digit()) || starts(&["(-", "-", "real("]);
        let own = starts(&["f32(", "select(", "sqrt(", "bitcast<f32>(bitcast"]) || value.contains(" / ");
        if literal || own {
            return Err(format!("a driver computes with this by itself: {line}"));
        }
    }
    Ok(())
}

fn check(graph: &Graph, limits: &GridLimits, seen: &mut Seen) -> std::result::Result<(), String> {
    let adapter = Adapter(target(8, 128 << 20));
    // Dtypes that the adapter does not support are rejected with a clear error.
    let program = match compiler::compile(graph, &adapter, &Options::default()) {
        Ok(p) => p,
        Err(e) if e.to_string().contains("wgpu does not support") => return Ok(()),
        Err(e) => return Err(e.to_string()),
    };
    for case in grids::cases(&program) {
        let g = grid::lower(&case.kernel, limits, &case.given).map_err(|e| e.to_string())?;
        let mut next = 0;
        let homes: Vec<usize> = g
            .memory
            .iter()
            .map(|m| {
                let own = next;
                next += !matches!(m.space, AddressSpace::Shared(_)) as usize;
                own
            })
            .collect();
        let text = print(&grid::GridKernel { name: String::new(), ..g.clone() }, &homes);
        if text.shared > limits.max_shared_bytes {
            return Err(format!("{} bytes of shared memory\n{g}", text.shared));
        }
        seen.kernels += 1;
        seen.atomic += text.source.contains("atomic<u32>") as usize;
        seen.waiting += text.source.contains("workgroupBarrier()") as usize;
        let stores = |line: &str| line.trim_start().starts_with("sw");
        seen.words += text.source.lines().any(stores) as usize;
        if seen.texts.insert(text.source.clone()) {
            knows_no_number(&text.source).map_err(|e| format!("{e}\n{}\n{g}", text.source))?;
            let capabilities = match limits.subgroup_size {
                Some(_) => valid::Capabilities::SUBGROUP | valid::Capabilities::SUBGROUP_BARRIER,
                None => valid::Capabilities::empty(),
            };
            validate(&text.source, capabilities).map_err(|e| format!("{e}\n{}\n{g}", text.source))?;
        }
    }
    Ok(())
}

#[test]
fn every_row_of_the_table_of_ops_is_valid() {
    let mut seen = Seen::default();
    let only = std::env::var("TENSORLOOM_ROW").unwrap_or_default();
    for row in testing::samples::all_samples().into_iter().filter(|r| r.name.starts_with(&only)) {
        check(&row.graph, &GridLimits::WEBGPU, &mut seen)
            .unwrap_or_else(|e| panic!("{}: {e}\n{}", row.name, row.graph));
    }
    println!("{} kernels, {} texts", seen.kernels, seen.texts.len());
    assert!(
        !only.is_empty() || (seen.kernels > 500 && seen.texts.len() > 300),
        "{} {}",
        seen.kernels,
        seen.texts.len()
    );
}

#[test]
fn kernels_of_random_graphs_are_valid() {
    let graphs: u64 = std::env::var("TENSORLOOM_GRIDS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let seed = run_seed();
    let mut seen = Seen::default();
    let subgroups = GridLimits { subgroup_size: Some(32), ..GridLimits::WEBGPU };
    for k in 0..graphs {
        let s = sample(seed.wrapping_add(k), &Shape::ANY);
        let limits = if k % 4 == 0 { &subgroups } else { &GridLimits::WEBGPU };
        check(&s.graph, limits, &mut seen).unwrap_or_else(|e| panic!("TENSORLOOM_SEED={}: {e}\n{}", s.seed, s.graph));
    }
    println!(
        "{} kernels, {} texts, {} wait, {} exchange parts of words, {} store whole ones",
        seen.kernels,
        seen.texts.len(),
        seen.waiting,
        seen.atomic,
        seen.words
    );
    let enough = seen.kernels > 300 && seen.waiting > 10 && seen.atomic > 5 && seen.words > 5;
    assert!(enough, "{} {} {} {}", seen.kernels, seen.waiting, seen.atomic, seen.words);
}

#[test]
fn the_whole_prelude_is_valid() {
    let prelude = include_str!("../src/wgpu/prelude.wgsl");
    validate(prelude, valid::Capabilities::empty()).unwrap();
}

#[test]
fn templates_are_valid() {
    let (mut names, mut units) = (BTreeSet::new(), 0);
    for t in tensorloom_gpu::wgpu::templates() {
        use valid::Capabilities as Has;
        let own = Has::SHADER_FLOAT16 | Has::SHADER_FLOAT16_IN_FLOAT32 | Has::COOPERATIVE_MATRIX;
        let capabilities = if t.units { own } else { valid::Capabilities::empty() };
        if let Err(e) = validate(&t.text.source, capabilities) {
            panic!("{}: {e}\n{}", t.name, t.text.source);
        }
        assert!(t.text.shared <= 32 << 10, "{}: {} bytes", t.name, t.text.shared);
        units += t.units as usize;
        names.insert(t.name);
    }
    println!("{} templates, {units} for matrix units", names.len());
    assert!(names.len() > 200 && units > 50);
}

/// A graph with one op over x (`%0`), 0 (`%1`), -1 (`%2`), a bool (`%3`), a product (`%4`), and another product and a quotient
/// with a common factor.
fn one_op(text: &str) -> Graph {
    let full = |x: &str| format!("const() {{value=f32[4] [{x}, {x}, {x}, {x}]}} : f32[4]");
    let source = format!(
        "graph (%0: f32[4], %7: f32[4]) {{\n  %1 = {}\n  %2 = {}\n  %3 = lt(%0, %2) : bool[4]\n  %4 = mul(%0, %7) : f32[4]\n  \
         %5 = mul(%7, %7) : f32[4]\n  %6 = div(%0, %7) : f32[4]\n  %8 = {text}\n  return %8\n}}",
        full("0.0"),
        full("-1.0")
    );
    ir::text::parse(&source).unwrap_or_else(|e| panic!("{source}: {e}"))
}

/// Numbers with which a driver could optimize NaN away are hidden from it.
#[test]
fn what_loses_nan_is_hidden() {
    for (text, expected) in [
        ("mul(%0, %1) : f32[4]", "hidden(0.0f, nothing * "),
        ("mul(%1, %0) : f32[4]", "hidden(0.0f, nothing * "),
        ("fma(%0, %1, %1) : f32[4]", "hidden(0.0f, nothing * "),
        ("fma(%0, %2, %0) : f32[4]", "hidden((-1.0f), nothing * "),
        ("fma(%0, %2, %0) : f32[4]", ", hidden(r"),
        ("fma(%0, %4, %4) : f32[4]", ", hidden(r"),
        ("add(%4, %5) : f32[4]", "+ hidden(r"),
        ("add(%4, %6) : f32[4]", "+ hidden(r"),
        ("add(%0, %4) : f32[4]", "+ hidden(r"),
        ("fma(%6, %2, %4) : f32[4]", ", hidden(r"),
        ("add(%0, %2) : f32[4]", "hidden((-1.0f), nothing * "),
        ("div(%1, %0) : f32[4]", "over("),
        ("div(%0, %0) : f32[4]", "over("),
        ("reciprocal(%0) : f32[4]", "over("),
        ("sub(%0, %0) : f32[4]", "negated("),
        ("neg(%0) : f32[4]", "negated("),
        ("sqrt(%0) : f32[4]", "root_of("),
        ("max(%0, %1) : f32[4]", "max_of("),
        ("select(%3, %0, %1) : f32[4]", "pick("),
        ("select(%3, %2, %1) : f32[4]", "hidden(0.0f, nothing * "),
        ("cast(%3) {dtype=f32} : f32[4]", "hidden(select(0.0f, 1.0f,"),
        ("eq(%0, %0) : bool[4]", "&& !nan_of("),
        ("ne(%0, %0) : bool[4]", "|| nan_of("),
    ] {
        let mut seen = Seen::default();
        check(&one_op(text), &GridLimits::WEBGPU, &mut seen).unwrap();
        let main = |t: &String| t.split("@compute").nth(1).is_some_and(|t| t.contains(expected));
        assert!(seen.texts.iter().any(main), "{text}: {:?}", seen.texts);
    }
}

/// A value that is hidden twice stays hidden: hiding is not an involution that would cancel.
#[test]
fn hiding_twice_hides() {
    let prelude = include_str!("../src/wgpu/prelude.wgsl");
    for name in ["hidden", "negated"] {
        let own = prelude.lines().find(|l| l.starts_with(&format!("fn {name}("))).expect("it is there");
        assert!(own.contains("bitcast<u32>(x) + ") && own.contains("nothing)") && !own.contains('^'), "{own}");
    }
}
