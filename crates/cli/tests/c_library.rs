//! `loom compile DIR --emit c-library`: sources that a C compiler takes, and one library that is all of the model.

use std::path::{Path, PathBuf};
use std::process::Command;

fn loom(args: &[&str]) -> (bool, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_loom")).args(args).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    (out.status.success(), text)
}

/// The static library that cargo made beside the tests.
fn runtime() -> PathBuf {
    let exe = Path::new(env!("CARGO_BIN_EXE_loom")).parent().unwrap();
    let places = [exe.join("libtensorloom_c.a"), exe.join("deps/libtensorloom_c.a")];
    let found = places.iter().filter(|p| p.exists()).max_by_key(|p| p.metadata().unwrap().modified().unwrap());
    found.expect("cargo builds it with loom").clone()
}

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include "tiny.h"
int main(void) {
  loom_program *p;
  if (tiny_open(1, &p)) { puts(loom_last_error()); return 1; }
  static int32_t ids[TINY_BATCH * TINY_SEQ] = {1, 5, 7};
  static float logits[TINY_BATCH * TINY_SEQ * TINY_VOCABULARY];
  const void *in[] = {ids};
  void *out[] = {logits};
  for (int n = 3; n < 10; n++) {
    if (loom_program_run(p, in, out, NULL, 0)) { puts(loom_last_error()); return 1; }
    const float *row = logits + (n - 1) * TINY_VOCABULARY;
    int best = 0;
    for (int v = 1; v < TINY_VOCABULARY; v++) if (row[v] > row[best]) best = v;
    printf("%d ", ids[n] = best);
  }
  size_t length = 7;
  int none = tiny_token(-1, &length) == NULL && length == 0;
  loom_program_free(p);
  return !none;
}
"#;

#[test]
fn a_trained_model_becomes_one_library() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/data/llama");
    let folder = std::env::temp_dir().join(format!("loom-c-library-{}", std::process::id()));
    let (dir, out, runtime) = (model.to_str().unwrap(), folder.to_str().unwrap(), runtime());
    let words = ["compile", dir, "--emit", "c-library", "--seq-len", "12", "--name", "tiny", "--out", out, "--runtime"];
    let (fine, text) = loom(&[&words[..], &[runtime.to_str().unwrap()]].concat());
    assert!(fine, "{text}");
    for file in ["tiny.loom", "tiny.h", "tiny.c", "tensorloom.h", "CMakeLists.txt", "libtiny.so"] {
        assert!(folder.join(file).exists(), "{file}: {text}");
    }
    std::fs::write(folder.join("main.c"), PROGRAM).unwrap();
    let mut cc = Command::new("cc");
    cc.current_dir(&folder).args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "main.c",
        "-L.",
        "-ltiny",
        "-Wl,-rpath,.",
    ]);
    let made = cc.args(["-o", "main"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let told = Command::new("./main").current_dir(&folder).output().unwrap();
    // What transformers writes after these ids.
    assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "40 7 0 7 31 0 62");
    assert!(told.status.success());
    let symbols =
        Command::new("nm").args(["-D", "--defined-only", "libtiny.so"]).current_dir(&folder).output().unwrap();
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    for name in ["tiny_open", "tiny_token", "loom_program_run", "loom_program_open", "loom_last_error"] {
        assert!(symbols.contains(&format!(" T {name}\n")), "{name}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn mistakes_are_one_line() {
    for (words, said) in [
        (&["compile", "llama", "--emit", "c-library", "--out", "x"][..], "trained model"),
        (&["compile", "nowhere", "--emit", "c-library", "--out", "x"], "trained model"),
        (&["compile", env!("CARGO_MANIFEST_DIR"), "--emit", "c-library"], "--out"),
        (&["compile", ".", "--emit", "c-library", "--out", "x", "--name", "3x"], "C identifier"),
    ] {
        let (fine, text) = loom(words);
        assert!(!fine && text.contains(said) && text.trim().lines().count() == 1, "{words:?}: {text}");
    }
}
