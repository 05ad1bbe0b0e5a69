//! C and C++ programs against the header and the library: built without warnings, clean under valgrind, and right.

use compiler::Options;
use cpu::Cpu;
use ir::DType;
use models::Model;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the libraries are: beside the test, or one folder up.
fn library(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    let places = [deps.join(name), deps.parent().unwrap().join(name)];
    let newest = places.iter().filter(|p| p.exists()).max_by_key(|p| p.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("{name} is not in {}", deps.display())).clone()
}

fn run(what: &str, command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{what}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{what}: {}\n{text}{}", out.status, String::from_utf8_lossy(&out.stderr));
    text
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tensorloom-c-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The tiny Llama that transformers made, as a program file; and what it writes after a prompt.
fn story(to: &Path) -> (Vec<i32>, Vec<i32>) {
    let dir = root().join("../models/tests/data/llama");
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("expected.json")).unwrap()).unwrap();
    let ints = |v: &serde_json::Value| v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as i32).collect();
    let model = Model::load(&dir, DType::F32).unwrap();
    let cpu = Cpu::new(1);
    let program = compiler::compile(&model.frozen(1, 24).unwrap(), &cpu, &Options::default()).unwrap();
    std::fs::write(to, program.to_bytes().unwrap()).unwrap();
    (ints(&json["prompt"]), ints(&json["tokens"]))
}

fn built(source: &Path, to: &Path, cpp: bool) {
    let (compiler, standard) = if cpp { ("c++", "-std=c++11") } else { ("cc", "-std=c11") };
    let mut cc = Command::new(compiler);
    cc.args([standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-g", "-I"]).arg(root().join("include"));
    cc.arg(source).arg(library("libtensorloom_c.a")).args(["-lm", "-lpthread", "-ldl", "-o"]).arg(to);
    run(compiler, &mut cc);
}

#[test]
fn a_c_program_lets_a_model_write_without_a_leak() {
    let folder = folder("story");
    let (program, exe) = (folder.join("story.loom"), folder.join("story"));
    let (prompt, tokens) = story(&program);
    let source = root().join("examples/story.c");
    assert!(std::fs::read_to_string(&source).unwrap().lines().count() <= 60);
    built(&source, &exe, false);
    let count = 12.to_string();
    let words: Vec<String> = prompt.iter().map(i32::to_string).collect();
    let told = |command: &mut Command| -> Vec<i32> {
        let text = run("story", command.arg(&program).arg(&count).args(&words));
        text.lines().map(|l| l.parse().unwrap()).collect()
    };
    assert_eq!(told(&mut Command::new(&exe)), tokens[..12]);
    if Command::new("valgrind").arg("--version").output().is_ok() {
        let mut v = Command::new("valgrind");
        v.args(["-q", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite,indirect"]);
        v.args(["--errors-for-leak-kinds=definite,indirect"]).arg(&exe);
        assert_eq!(told(&mut v), tokens[..12]);
    } else {
        eprintln!("valgrind is not here; the program ran without it");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn misuse_is_an_error_with_a_message_and_cpp_throws_it() {
    let folder = folder("misuse");
    let (program, source, exe) = (folder.join("story.loom"), folder.join("misuse.cpp"), folder.join("misuse"));
    story(&program);
    std::fs::write(
        &source,
        r#"#include <cassert>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include "tensorloom.hpp"
int main(int, char **argv) {
  tensorloom::Program p = tensorloom::Program::open(argv[1], 2);
  assert(p.inputs() == 1 && p.outputs() == 1 && p.input(0).shape.size() == 2 && p.output(0).dtype == LOOM_F32);
  std::vector<std::int32_t> ids(24, 3);
  std::vector<float> logits(p.output(0).bytes / 4), again(logits.size()), third(logits.size());
  p.run({ids.data()}, {logits.data()});
  std::vector<char> room(p.arena() + 128);
  char *arena = room.data() + (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64) % 64;
  p.run({ids.data()}, {again.data()}, arena, p.arena());
  assert(logits == again);
  std::thread other([&] { p.run({ids.data()}, {third.data()}); });
  p.run({ids.data()}, {again.data()});
  other.join();
  assert(logits == third);
  std::ifstream f(argv[1], std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(f)), std::istreambuf_iterator<char>());
  tensorloom::Program q = tensorloom::Program::load(bytes.data(), bytes.size(), 1);
  q = std::move(p);
  int wrong = 0;
  auto fails = [&](loom_status status, loom_status want) {
    if (status != want || !*loom_last_error()) std::printf("%d: %s\n", status, loom_last_error()), wrong++;
  };
  loom_program *none = nullptr;
  fails(loom_program_open("/nowhere", 1, &none), LOOM_ERR_FILE);
  fails(loom_program_open(nullptr, 1, &none), LOOM_ERR_ARGUMENT);
  fails(loom_program_open(argv[1], 1, nullptr), LOOM_ERR_ARGUMENT);
  fails(loom_program_load(nullptr, 3, 1, &none), LOOM_ERR_ARGUMENT);
  for (std::size_t cut : {std::size_t(0), std::size_t(5), bytes.size() / 2, bytes.size() - 1})
    fails(loom_program_load(bytes.data(), cut, 1, &none), LOOM_ERR_FILE);
  bytes[8] ^= 64;
  fails(loom_program_load(bytes.data(), bytes.size(), 1, &none), LOOM_ERR_FILE);
  assert(std::strstr(loom_last_error(), "format"));
  const void *in[] = {nullptr}; void *out[] = {logits.data()};
  loom_program *raw; loom_program_open(argv[1], 1, &raw);
  fails(loom_program_run(raw, in, out, nullptr, 0), LOOM_ERR_ARGUMENT);
  in[0] = reinterpret_cast<char *>(ids.data()) + 1;
  fails(loom_program_run(raw, in, out, nullptr, 0), LOOM_ERR_ARGUMENT);
  in[0] = ids.data();
  fails(loom_program_run(raw, in, out, arena, 1), LOOM_ERR_ARGUMENT);
  fails(loom_program_run(raw, in, out, arena + 1, 1u << 30), LOOM_ERR_ARGUMENT);
  fails(loom_program_run(nullptr, in, out, nullptr, 0), LOOM_ERR_ARGUMENT);
  loom_type t;
  fails(loom_program_input(raw, 1, &t), LOOM_ERR_ARGUMENT);
  loom_program_free(raw);
  loom_program_free(nullptr);
  try { tensorloom::Program::open("/nowhere"); wrong++; } catch (const tensorloom::Error &e) { wrong += e.status() != LOOM_ERR_FILE; }
  return wrong;
}
"#,
    )
    .unwrap();
    built(&source, &exe, true);
    run("misuse", Command::new(&exe).arg(&program));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The book's snippets as programs: what they include in front, the rest in `main`.
#[test]
fn the_book_s_snippets_are_programs() {
    let folder = folder("book");
    std::fs::create_dir_all(folder.join("story")).unwrap();
    let program = folder.join("story/my_model.loom");
    story(&program);
    std::fs::write(
        folder.join("my_model.h"),
        "#include \"tensorloom.h\"\n#include <stdio.h>\n\
         static loom_status my_model_open(uint32_t threads, loom_program **out) { return loom_program_open(\"story/my_model.loom\", threads, out); }\n\
         static int32_t ids[24];\nstatic float logits[1 << 20];\n",
    )
    .unwrap();
    let page = std::fs::read_to_string(root().join("../../book/src/c.md")).unwrap();
    let mut seen = 0;
    for (fence, cpp) in [("```c\n", false), ("```cpp\n", true)] {
        for snippet in page.split(fence).skip(1).map(|s| s.split("```").next().unwrap()) {
            let (front, rest): (Vec<&str>, Vec<&str>) = snippet.lines().partition(|l| l.starts_with("#include"));
            let text = format!("{}\nint main(void) {{\n{}\nreturn 0;\n}}\n", front.join("\n"), rest.join("\n"));
            let source = folder.join(if cpp { "snippet.cpp" } else { "snippet.c" });
            std::fs::write(&source, text).unwrap();
            let exe = folder.join("snippet");
            built(&source, &exe, cpp);
            run("snippet", Command::new(&exe).current_dir(&folder));
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_header_is_valid_and_names_what_is_exported() {
    let header = root().join("include/tensorloom.h");
    for (compiler, args) in [("cc", ["-std=c99", "-xc"]), ("c++", ["-std=c++11", "-xc++"])] {
        let mut c = Command::new(compiler);
        c.args(args).args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]);
        run(compiler, c.arg(&header));
    }
    let symbols = run("nm", Command::new("nm").args(["-D", "--defined-only"]).arg(library("libtensorloom_c.so")));
    for name in tensorloom_c::FUNCTIONS {
        assert!(tensorloom_c::HEADER.contains(&format!("{name}(")), "{name} is not in the header");
        assert!(symbols.lines().any(|l| l.ends_with(&format!(" {name}"))), "{name} is not exported");
    }
    let exported = symbols.lines().filter(|l| l.contains(" T loom_")).count();
    assert_eq!(exported, tensorloom_c::FUNCTIONS.len(), "{symbols}");
    assert!(tensorloom_c::HEADER.contains(&format!("#define LOOM_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))));
}
