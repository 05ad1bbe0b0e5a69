//! Every public function has a golden line.

use std::collections::BTreeSet;

/// Functions of the library whose files are named here: `pub fn` items and names that macros make functions of.
fn public(module: &str) -> BTreeSet<String> {
    let root = format!("{}/src/{module}", env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![std::path::PathBuf::from(format!("{root}.rs"))];
    files.extend(std::fs::read_dir(&root).into_iter().flatten().map(|f| f.unwrap().path()));
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|f| f.exists()) {
        let text = std::fs::read_to_string(file).unwrap();
        let mut documented = false;
        for line in text.lines() {
            let head = line.trim_start();
            if let Some(rest) = line.strip_prefix("pub fn ") {
                names.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            }
            // A name under a doc comment in a macro's list: `/// ..`, then `asin | arcsin => Asin,`.
            if let (true, true, Some((list, _))) = (documented, line.starts_with("    "), head.split_once(" => ")) {
                let words = list.split(" | ").map(str::to_string);
                // Types, which begin with a capital, are layers over functions of the same name.
                names.extend(words.filter(|w| w.chars().all(|c| c.is_alphanumeric() && !c.is_uppercase() || c == '_')));
            }
            documented = head.starts_with("///");
        }
    }
    names
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
