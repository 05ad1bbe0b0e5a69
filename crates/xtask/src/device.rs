//! `device FOLDER` collects everything that a GPU machine needs to test and measure Tensorloom. The GPU machine builds nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// Programs: the cargo arguments that build them, the path of the result, and the name in the folder.
const PROGRAMS: [(&[&str], &str, &str); 4] = [
    (&["-p", "tensorloom-gpu", "--example", "conformance"], "examples/conformance", "gpu_conformance"),
    (&["-p", "tensorloom-gpu", "--example", "gpu_bench"], "examples/gpu_bench", "gpu_bench"),
    (&["-p", "tensorloom-bench"], "tensorloom-bench", "tensorloom-bench"),
    (&["-p", "tensorloom-cli"], "loom", "loom"),
];

/// Scripts: their names, and the commands that they run in the folder.
const SCRIPTS: [(&str, &str); 3] = [
    ("conformance", "exec ./gpu_conformance --out \"${OUT:-out}\" \"$@\"\n"),
    (
        "bench",
        "cases=${*:-chain1g softmax1g layernorm1g attention_12x64 attention_32x64 attention_16x128 train_124m}\n\
         for case in $cases; do\n  echo $case | ./tensorloom-bench --device cuda --reps 7\n  \
         echo $case | python3 peers.py torch_cuda 7 | sed 's/^/torch.compile /'\ndone\n",
    ),
    ("train", "exec ./loom train --device cuda \"$@\"\n"),
];

/// Builds the programs, strips them, and writes them and the scripts to the folder.
pub(crate) fn device(root: &Path, folder: &str) -> Result<(), String> {
    let folder = std::path::absolute(folder).map_err(|e| format!("{folder}: {e}"))?;
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut bytes = 0;
    for (words, built, name) in PROGRAMS {
        crate::run("cargo", &[&["build", "--release"], words].concat())?;
        let from = target.join("release").join(built);
        let to = folder.join(name);
        let _ = fs::remove_file(&to);
        fs::copy(&from, &to).map_err(|e| format!("{}: {e}", to.display()))?;
        // If `strip` is missing, the folder is larger but works.
        let _ = crate::run("strip", &[&to.to_string_lossy()]);
        bytes += fs::metadata(&to).map_err(|e| format!("{}: {e}", to.display()))?.len();
    }
    for name in ["peers.py", "peers_cuda.py"] {
        let (from, to) = (root.join("bench").join(name), folder.join(name));
        fs::copy(&from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
    }
    for (name, text) in SCRIPTS {
        let to = folder.join(name);
        fs::write(&to, format!("#!/bin/sh\ncd \"$(dirname \"$0\")\" || exit 1\n{text}"))
            .map_err(|e| format!("{}: {e}", to.display()))?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let _ = fs::set_permissions(&to, fs::Permissions::from_mode(0o755));
        }
    }
    println!("{}: {} MiB; run ./conformance, ./bench or ./train there", folder.display(), bytes >> 20);
    Ok(())
}
