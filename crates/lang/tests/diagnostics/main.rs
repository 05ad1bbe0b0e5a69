//! One case per diagnostic code: a file with the error, and the expected output.
//!
//! A case is a file `cases/CODE.module`; lines `#@ file PATH VERSION` and `#@ lock` start further files. The rendered output is
//! compared with `../snapshots/CODE.txt`; `BLESS=1` accepts the current output.

use std::path::{Path, PathBuf};
use tensorloom_lang::diagnostic::{Code, ColorStyle, Diagnostic, render_all, sort_and_dedup, to_json};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn loader(text: &str) -> MemoryLoader {
    let mut parts = vec![("file main local".to_string(), String::new())];
    for line in text.lines() {
        match line.strip_prefix("#@ ") {
            Some(head) => parts.push((head.to_string(), String::new())),
            None => {
                let body = &mut parts.last_mut().unwrap().1;
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    parts.iter().fold(MemoryLoader::new(), |loader, (head, body)| match head.split(' ').collect::<Vec<_>>()[..] {
        ["file", path, version] => loader.with(path, version, body),
        ["lock"] => loader.with_lock(body),
        _ => panic!("unknown heading `{head}`"),
    })
}

fn findings(text: &str) -> (ModuleProgram, Vec<Diagnostic>) {
    let program = ModuleProgram::load("main", &loader(text));
    let mut found = program.diagnostics.clone();
    found.extend(tensorloom_lang::check::check(&program).diagnostics);
    sort_and_dedup(&mut found);
    (program, found)
}

fn compare(name: &str, drawn: &str) {
    let path = here("snapshots").join(name);
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(path, drawn).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(drawn == expected, "{name} differs (BLESS=1 accepts):\n--- expected\n{expected}\n--- drawn\n{drawn}");
}

#[test]
fn every_code_has_a_case_that_raises_it() {
    let mut wrong = Vec::new();
    for code in Code::ALL {
        let path = here("diagnostics/cases").join(format!("{code}.module"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("no case for {code}"));
        let (program, mut found) = findings(&text);
        // Pipeline stages are checked although they are a later feature.
        if *code == Code::E025 {
            found.retain(|d| d.code != Code::L102);
        }
        let drawn = render_all(&program.sources, &found, ColorStyle::Plain);
        let strangers: Vec<_> = found.iter().filter(|d| d.code != *code).map(|d| d.code.name()).collect();
        if !found.iter().any(|d| d.code == *code) || !strangers.is_empty() {
            wrong.push(format!("the case for {code} should raise it alone:\n{drawn}"));
        } else {
            compare(&format!("{code}.txt"), &drawn);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n----\n"));
}

#[test]
fn good_files_have_no_findings() {
    let folder = here("modules/check");
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut loader = MemoryLoader::new();
    let mut names = Vec::new();
    for path in &paths {
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        loader = loader.with(&name, "local", &std::fs::read_to_string(path).unwrap());
        names.push(name);
    }
    for name in names {
        let program = ModuleProgram::load(&name, &loader);
        let mut found = program.diagnostics.clone();
        found.extend(tensorloom_lang::check::check(&program).diagnostics);
        found.retain(|d| d.code != Code::L102);
        assert!(found.is_empty(), "{}", render_all(&program.sources, &found, ColorStyle::Plain));
    }
}

#[test]
fn types_of_every_variant() {
    let text = |name: &str| std::fs::read_to_string(here("modules/check").join(format!("{name}.module"))).unwrap();
    let loader =
        MemoryLoader::new().with("linear", "local", &text("linear")).with("attention", "local", &text("attention"));
    let program = ModuleProgram::load("attention", &loader);
    let mut page = String::new();
    for module in tensorloom_lang::check::check(&program).modules {
        for variant in module.variants {
            page += &format!("{} {:?}\n", module.name, variant.assumptions);
            for (pass, types) in [("forward", variant.forward), ("backward", variant.backward)] {
                for (name, ty) in types {
                    page += &format!("  {pass} {name}: {ty}\n");
                }
            }
            for (a, b) in variant.exact_divisions {
                page += &format!("  needs {a} divisible by {b}\n");
            }
        }
    }
    compare("types.txt", &page);
}

#[test]
fn findings_as_json() {
    let text = std::fs::read_to_string(here("diagnostics/cases/E004.module")).unwrap();
    let (program, found) = findings(&text);
    compare("json.txt", &to_json(&program.sources, &found));
}

#[test]
fn codes_explain_themselves() {
    let page: String = Code::ALL
        .iter()
        .map(|code| format!("{code} ({}): {}\n    {}\n", code.severity(), code.title(), code.explanation()))
        .collect();
    compare("codes.txt", &page);
}

/// Products with mode TN where `A·Bᵀ` is intended, in every form: each is a mismatch with a hint that names the right mode.
#[test]
fn crossed_products_say_which_mode_fits() {
    let module = |params: &str, io: &str, flow: &str| {
        format!("module M(i: int, o: int, g: int):\n  params:\n{params}  forward:\n{io}    graph:\n      {flow}\n")
    };
    let plain = "    in: [B, T, i]\n    out: [B, T, o]\n";
    let grouped = "    in: (x: [n, i], offsets: [g + 1, int32])\n    out: [n, o]\n";
    let cases = [
        module("    w: [o, i]\n", plain, "(in, w) -> matmul(transpose=TN) -> out"),
        module("    w: [o, i]\n", plain, "in -> matmul(w, transpose=TN) -> out"),
        module("    w: [o, i]\n", plain, "in -> matmul(w) -> out"),
        module("    w: [g, o, i]\n", grouped, "(x, w, offsets) -> grouped_gemm(transpose=TN) -> out"),
    ];
    for text in cases {
        let (program, found) = findings(&text);
        let drawn = render_all(&program.sources, &found, ColorStyle::Plain);
        assert!(found.iter().any(|d| d.code == Code::E004), "{text}\n{drawn}");
        assert!(drawn.contains("transpose=NT would fit"), "{text}\n{drawn}");
    }
    // In a backward graph, where the gradient of a weight is intended.
    let text = "module M(i: int, o: int):\n  params:\n    w: [o, i]\n  forward:\n    in: [B, T, i]\n    out: [B, T, o]\n    \
                graph:\n      in -> matmul(w, transpose=NT) -> out\n    save: [in]\n  backward:\n    d_out: [B, T, o]\n    \
                d_in: [B, T, i]\n    graph:\n      (d_out, w) -> matmul() -> d_in\n      \
                (saved.in, d_out) -> matmul(transpose=NT, accumulate=true) -> d_w\n";
    let (program, found) = findings(text);
    let drawn = render_all(&program.sources, &found, ColorStyle::Plain);
    assert!(found.iter().any(|d| matches!(d.code, Code::E004 | Code::E018)), "{drawn}");
}
