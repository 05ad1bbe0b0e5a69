//! A tour of the language by section: every construct in the specification's examples occurs in a file of `modules/tour`. Each
//! file parses, checks and is formatted; each module in it runs, and its gradients, derived or explicit, equal finite differences.

use ir::{DType, Literal, Scalar, Type, interp};
use std::collections::BTreeMap;
use std::path::Path;
use tensorloom_lang::Code;
use tensorloom_lang::ast::{DeclKind, DimExpr, Expr, ExprKind, Param, TypeKind};
use tensorloom_lang::consteval::{ConstValue, NameResolver, eval};
use tensorloom_lang::diagnostic::{ColorStyle, render_all};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, lower};
use tensorloom_lang::resolve::{ItemRef, MemoryLoader, ModuleProgram, ModuleView};
use tensorloom_lang::verify::{GradientCheck, GradientCheckError, verify_backward};

fn load(text: &str, silent: &[Code]) -> ModuleProgram {
    let program = ModuleProgram::load("main", &LibraryLoader(MemoryLoader::new().with("main", "v1.0.0", text)));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    found.retain(|d| !silent.contains(&d.code));
    assert!(found.is_empty(), "{}", render_all(&program.sources, &found, ColorStyle::Plain));
    program
}

/// Sizes by name: header parameters by their defaults, and the two sizes that all files share.
struct Sizes(BTreeMap<String, ConstValue>);

impl NameResolver for Sizes {
    fn value(&self, name: &str) -> Option<ConstValue> {
        self.0.get(name).cloned()
    }

    fn is_tensor(&self, _: &str) -> bool {
        false
    }

    fn assumed_truth(&self, _: &str) -> Option<bool> {
        None
    }
}

fn sizes(view: &ModuleView<'_>) -> Sizes {
    let mut all = BTreeMap::from([("B", 2), ("T", 3), ("n", 5)].map(|(n, v)| (n.to_string(), ConstValue::int(v))));
    for param in &view.header {
        if let Param::Named { name, default: Some(default), .. } = param
            && let ExprKind::Int(n) = default.kind
        {
            all.insert(name.name.clone(), ConstValue::int(n));
        }
    }
    Sizes(all)
}

fn inputs(view: &ModuleView<'_>) -> Vec<Type> {
    let sizes = sizes(view);
    let size = |expr: &Expr| match eval(expr, &sizes).ok().and_then(|value| value.as_int()) {
        Some(n) => usize::try_from(n).expect("a size"),
        None => panic!("{}: a size without a value", view.decl.name.name),
    };
    let optional = |ty: &tensorloom_lang::ast::TypeExpr| matches!(ty.kind, TypeKind::Optional(_));
    let given = view.forward.inputs.iter().filter_map(|input| input.ty.as_ref()).filter(|ty| !optional(ty));
    let types = given.map(|ty| {
        let TypeKind::Tensor { dims, dtype, .. } = &ty.kind else { panic!("a tensor") };
        let mut shape = Vec::new();
        for dim in dims {
            match dim {
                DimExpr::Variadic(_) => shape.extend([2, 3]),
                DimExpr::Size(expr) => shape.push(size(expr)),
                DimExpr::Elided(_) => panic!("a shape"),
            }
        }
        let ints = dtype.as_ref().is_some_and(|name| name.name == "int32");
        Type::new(if ints { DType::I32 } else { DType::F32 }, &shape)
    });
    let types: Vec<Type> = types.collect();
    match (types.is_empty(), view.pattern.is_some()) {
        (true, true) => vec![Type::new(DType::F32, &[2, 3, 4])],
        _ => types,
    }
}

fn sample(ty: &Type, seed: usize) -> Literal {
    Literal::from_fn(ty.clone(), |i| {
        let mixed = ((i + 1) * 7919 + (seed + 3) * 104_729) % 1009;
        match ty.dtype.is_int() {
            // Integers that are valid both as token IDs and as offsets of two groups in six rows.
            true => Scalar::from_i64(ty.dtype, (3 * i as i64).min(6)),
            false => Scalar::from_f64(ty.dtype, mixed as f64 / 1009.0 - 0.48),
        }
    })
}

/// Runs every module of a file with its defaults.
fn tour(name: &str, silent: &[Code], expected: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/modules/tour").join(name);
    let text = std::fs::read_to_string(&path).expect("the file");
    let program = load(&text, silent);
    let tidy = tensorloom_lang::fmt::format(&text).expect("no mistakes");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &tidy).expect("written");
    } else {
        assert_eq!(tidy, text, "{name} is not formatted");
    }
    let mut ran = 0;
    for item in (0..program.files[0].ast.items.len()).map(|item| ItemRef { file: 0, item }) {
        let Some(view) = ModuleView::new(&program, item) else { continue };
        let module = view.decl.name.name.clone();
        let runs = view.forward.graph.is_some() || view.pattern.is_some();
        let complete = view.header.iter().all(|param| matches!(param, Param::Named { default: Some(_), .. }));
        if view.decl.kind == DeclKind::Primitive || !runs || !complete {
            continue;
        }
        let inputs = inputs(&view);
        let draw = |found: Box<tensorloom_lang::Diagnostic>| render_all(&program.sources, &[*found], ColorStyle::Plain);
        for (probes, training) in [(false, false), (true, false), (false, true)] {
            let options = LowerOptions { probes, asserts: probes, training, ..LowerOptions::default() };
            let lowered = lower(&program, item, &BTreeMap::new(), &inputs, &options)
                .unwrap_or_else(|found| panic!("{module}: {}", draw(found)));
            let types = lowered.graph.input_types();
            let given: Vec<Literal> = types.iter().enumerate().map(|(i, ty)| sample(ty, i)).collect();
            let outs = interp::run(&lowered.graph, &given).unwrap_or_else(|e| panic!("{module}: {e}"));
            let wild = |l: &Literal| l.ty().dtype.is_float() && l.scalars().any(|s| !s.to_f64().is_finite());
            assert!(!outs.iter().any(wild), "{module} gives something that is no number");
        }
        let checks =
            verify_backward(&program, item, &BTreeMap::new(), &inputs).unwrap_or_else(|failure| match failure {
                GradientCheckError::Diagnostic(found) => panic!("{module}: {}", draw(found)),
                GradientCheckError::Graph(e) => panic!("{module}: {e}"),
            });
        // A gradient that is modified by an annotation differs from the derivative.
        if module != "Trained" {
            let wrong: Vec<&GradientCheck> = checks.iter().filter(|check| !check.passes()).collect();
            assert!(wrong.is_empty(), "{module}: {wrong:?}");
        }
        ran += 1;
    }
    assert_eq!(ran, expected, "modules that ran in {name}");
}

#[test]
fn types_and_constants() {
    // `Tensor<..>` is the deprecated spelling.
    tour("types.module", &[Code::L101], 4);
}

#[test]
fn declarations() {
    tour("declarations.module", &[Code::W001], 5);
}

#[test]
fn graphs() {
    tour("graphs.module", &[], 6);
}

#[test]
fn primitives() {
    tour("primitives.module", &[], 14);
}

#[test]
fn annotations() {
    // Temporary tensors are recomputed on purpose; kernels can't be selected by name.
    tour("annotations.module", &[Code::W003, Code::L102], 6);
}

#[test]
fn annotations_for_several_devices() {
    tour("distributed.module", &[Code::L102], 2);
}

#[test]
fn examples() {
    tour("examples.module", &[], 4);
}

#[test]
fn beyond_the_specification() {
    tour("more.module", &[], 8);
}
