//! Values, gradients and tangents equal those of JAX and PyTorch.

use ir::DType;
use tensorloom_testing::golden;

#[test]
fn golden_cases() {
    let (mut count, mut grads, mut tangents) = (0, 0, 0);
    let mut failures: Vec<String> = Vec::new();
    for (file, text) in golden::files().expect("golden data is in the repository") {
        for case in golden::parse(&text).unwrap_or_else(|e| panic!("{file}: {e}")) {
            count += 1;
            grads += !case.grads.is_empty() as usize;
            tangents += !case.tangents.is_empty() as usize;
            failures.extend(case.run().err());
        }
    }
    println!("{count} golden cases, {grads} with gradients, {tangents} with tangents");
    let names: Vec<&str> = failures.iter().filter_map(|f| f.split(' ').next()).collect();
    assert!(failures.is_empty(), "{} of {count} cases fail: {names:?}\n{}", failures.len(), failures.join("\n\n"));
    assert!(count >= 1500, "only {count} cases");
}

#[test]
fn promotion_table() {
    let text =
        std::fs::read_to_string(golden::folder().join("promotion.golden")).expect("golden data is in the repository");
    let mut count = 0;
    let mut wrong = Vec::new();
    for line in text.lines().filter(|l| !l.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, a, b, want] = words[..] else { panic!("{line}") };
        let (a, b): (DType, DType) = (a.parse().expect("a dtype"), b.parse().expect("a dtype"));
        let got = a.promote(b).map_or("none", DType::name);
        if got != want {
            wrong.push(format!("{a} with {b} is {got}, want {want}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(count, 15 * 15);
}
