//! The standard library: `.module` files that are embedded in the program.

use crate::resolve::{LoadedFile, Loader};

/// The version of all library files.
const VERSION: &str = "v1.0.0";

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$((concat!("std/", $path), include_str!(concat!("../std/", $path, ".module")))),*]
    };
}

/// Paths and source texts.
const FILES: &[(&str, &str)] = files![
    "primitives/matmul",
    "primitives/rmsnorm",
    "primitives/activation",
    "primitives/attention",
    "primitives/shape",
    "primitives/elementwise",
    "primitives/reduce",
    "primitives/embedding",
    "primitives/moe",
    "primitives/mamba",
    "primitives/utility",
    "primitives/collective",
    "primitives/conv",
    "modules/linear",
    "modules/norm",
    "modules/mlp",
    "modules/attention",
    "modules/attention/mha",
    "modules/attention/gqa",
    "modules/attention/mqa",
    "modules/attention/multi_head",
    "modules/experts",
    "modules/moe/router",
    "modules/moe/expert",
    "modules/embedding",
    "modules/activation",
    "blocks/dense",
    "blocks/parallel",
    "blocks/moe",
    "blocks/mamba",
    "blocks/decoder",
    "blocks/layernorm_decoder",
    "blocks/encoder",
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
    "models/gemma2",
    "models/gemma3",
    "models/olmo2",
    "models/qwen3_moe",
    "models/phi",
    "models/stablelm",
    "models/falcon",
    "models/opt",
    "models/deepseek_v2",
    "models/deepseek_v3",
    "models/llama4",
    "models/mamba2",
    "models/bert",
    "models/roberta",
    "models/vit",
    "models/clip",
    "models/whisper",
    "models/t5",
];

/// Aliases of files.
const FILE_ALIASES: &[(&str, &str)] = &[("std/models/qwen", "std/models/qwen2")];

/// Puts the library in front of another loader: paths under `std` that the library has are loaded
/// from it, others may be a project's own (§4.7.1).
pub struct LibraryLoader<L>(pub L);

impl<L: Loader> Loader for LibraryLoader<L> {
    fn read(&self, path: &str, major: Option<u32>) -> Option<LoadedFile> {
        let path = FILE_ALIASES.iter().find(|(also, _)| *also == path).map_or(path, |(_, path)| path);
        let Some((_, text)) = FILES.iter().find(|(name, _)| *name == path) else {
            return self.0.read(path, major);
        };
        match major.is_none_or(|major| major == 1) {
            true => Some(LoadedFile {
                name: format!("{path}.module"),
                text: (*text).to_string(),
                version: VERSION.to_string(),
            }),
            // A project may have a different version.
            false => self.0.read(path, major),
        }
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let inside = |path: &&str| {
            path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| !rest.contains('/'))
        };
        let mut paths: Vec<String> = FILES.iter().map(|(path, _)| *path).filter(inside).map(str::to_string).collect();
        for own in self.0.list(folder) {
            if !paths.contains(&own) {
                paths.push(own);
            }
        }
        paths
    }

    fn read_error(&self, path: &str, major: Option<u32>) -> Option<String> {
        self.0.read_error(path, major)
    }

    fn lock(&self) -> Option<String> {
        self.0.lock()
    }
}

/// Paths of all files.
pub fn files() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, _)| *path)
}

/// The source text of a library file.
pub fn text(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

/// Paths of the models, such as `std/models/llama`.
pub fn models() -> impl Iterator<Item = &'static str> {
    files().filter(|path| path.starts_with("std/models/"))
}
