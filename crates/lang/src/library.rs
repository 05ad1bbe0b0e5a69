//! The standard library: files of the language that travel inside the program.

use crate::resolve::{Loaded, Loader};

/// Version of every file of the library.
const VERSION: &str = "v1.0.0";

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$((concat!("std/", $path), include_str!(concat!("../std/", $path, ".module")))),*]
    };
}

/// Paths and texts.
const FILES: &[(&str, &str)] = files![
    "modules/linear",
    "modules/norm",
    "modules/mlp",
    "modules/attention",
    "modules/experts",
    "modules/embedding",
    "modules/activation",
    "blocks/dense",
    "blocks/parallel",
    "blocks/moe",
    "blocks/mamba",
    "models/llama",
    "models/qwen2",
    "models/mistral",
    "models/qwen3",
    "models/gemma",
    "models/gpt2",
    "models/phi3",
    "models/gpt_neox",
    "models/mixtral",
    "models/mamba",
];

/// The library in front of another loader; paths that begin with `std` are the library's alone.
pub struct WithLibrary<L>(pub L);

impl<L: Loader> Loader for WithLibrary<L> {
    fn read(&self, path: &str, major: Option<u32>) -> Option<Loaded> {
        if !path.starts_with("std/") {
            return self.0.read(path, major);
        }
        let (_, text) = FILES.iter().find(|(name, _)| *name == path)?;
        major.is_none_or(|major| major == 1).then(|| Loaded {
            name: format!("{path}.module"),
            text: (*text).to_string(),
            version: VERSION.to_string(),
        })
    }

    fn list(&self, folder: &str) -> Vec<String> {
        if folder != "std" && !folder.starts_with("std/") {
            return self.0.list(folder);
        }
        let inside = |path: &&str| {
            path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| !rest.contains('/'))
        };
        let paths = FILES.iter().map(|(path, _)| *path);
        paths.filter(inside).map(str::to_string).collect()
    }

    fn lock(&self) -> Option<String> {
        self.0.lock()
    }
}

/// Paths of all files.
pub fn files() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, _)| *path)
}

/// Paths of the models, such as `std/models/llama`.
pub fn models() -> impl Iterator<Item = &'static str> {
    files().filter(|path| path.starts_with("std/models/"))
}
