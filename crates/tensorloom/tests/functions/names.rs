//! Every public function has a golden line.

use super::catalog;
use std::collections::BTreeSet;
use std::path::Path;

/// The functions of a module that are declared in it.
fn public(module: &str) -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let own = |f: &catalog::Function| f.module == module && f.is_own();
    catalog::catalog(&sources).into_iter().filter(own).map(|f| f.name).collect()
}

/// `docs/functions.json` and `calls.rs` are what the sources say, and the conformance page names functions that are there.
#[test]
fn the_catalog_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (all, file) = (catalog::catalog(&root.join("src")), root.join("../../docs/functions.json"));
    for (file, text) in [(file, catalog::json(&all)), (root.join("tests/functions/calls.rs"), catalog::calls(&all))] {
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let found = std::fs::read_to_string(&file).unwrap();
        let differs = text.lines().zip(found.lines()).find(|(a, b)| a != b);
        assert!(text == found, "{} is old, write it anew with UPDATE=1: {differs:?}", file.display());
    }
    assert!(all.len() > 550, "only {} functions were found", all.len());
    let without = all.iter().find(|f| !f.is_documented());
    assert!(without.is_none(), "{without:?} has no documentation");
    let page = include_str!("../../../../docs/conformance/functions.md");
    let names: BTreeSet<String> = all.iter().map(|f| f.path()).collect();
    let claimed = catalog::claimed(page);
    let missing: Vec<&String> = claimed.difference(&names).collect();
    assert!(claimed.len() > 380 && missing.is_empty(), "{} claimed, not there: {missing:?}", claimed.len());
}

/// Facts and choices rather than functions of tensors; they have tests of their own.
const OTHERS: [&str; 6] = ["np.along", "np.finfo", "np.iinfo", "np.promote_types", "np.result_type", "random.key"];

#[test]
fn every_function_has_a_line() {
    let mut covered: BTreeSet<String> = OTHERS.iter().map(|s| s.to_string()).collect();
    let modules = ["np", "nn", "special", "linalg", "fft", "lax", "optim"];
    for file in modules {
        covered.extend(super::line::read(file).lines().map(|l| l.split(' ').next().unwrap().to_string()));
    }
    let random = super::line::read("../random/random");
    covered.extend(random.lines().map(|l| format!("random.{}", l.split(' ').next().unwrap())));
    // Layers and losses are compared with PyTorch, in programs and by themselves.
    for programs in [include_str!("../programs.rs"), include_str!("../layers.rs")] {
        for words in programs.split("nn::").skip(1) {
            let name: String = words.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            covered.insert(format!("nn.{name}"));
        }
    }
    let mut missing = Vec::new();
    let mut count = 0;
    for module in modules.into_iter().chain(["random"]) {
        let names = public(module);
        assert!(names.len() > 10, "{module} has {} functions", names.len());
        count += names.len();
        missing.extend(names.iter().map(|n| format!("{module}.{n}")).filter(|n| !covered.contains(n)));
    }
    println!("{count} public functions");
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn facts_about_dtypes() {
    use tensorloom::{DType, np, zeros};
    let f = np::finfo(DType::F32).unwrap();
    assert_eq!((f.bits, f.eps, f.max), (32, f64::from(f32::EPSILON), f64::from(f32::MAX)));
    assert!(np::finfo(DType::I32).is_none() && np::iinfo(DType::F32).is_none());
    assert_eq!(np::iinfo(DType::I8).unwrap(), (-128, 127));
    assert_eq!(np::promote_types(DType::I32, DType::F16), Some(DType::F16));
    assert_eq!(np::result_type(&[&zeros(&[1]), &np::zeros(&[], DType::F64)]), Some(DType::F64));
}
