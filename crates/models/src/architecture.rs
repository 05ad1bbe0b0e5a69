//! From a configuration to a model of the standard library and its sizes.

use crate::config::Config;
use crate::error::{Error, Result};
use ir::{DType, Type};
use lang::ast::{ConfigEntry, ConfigValue, ExprKind, SectionKind, WeightMapping};
use lang::consteval::Value;
use lang::diagnostic::{Style, render_all};
use lang::library::{WithLibrary, models};
use lang::lower::{Lowered, Options, lower};
use lang::resolve::{ItemRef, MemoryLoader, Program};
use std::collections::BTreeMap;
use std::path::Path;

/// A model of the library with its sizes given.
#[derive(Clone, Debug)]
pub struct Architecture {
    /// Its file and what that imports.
    pub program: Program,
    /// The model's declaration.
    pub item: ItemRef,
    /// Its name, such as `Llama`.
    pub name: String,
    /// Values of its parameters, as far as the configuration gives them.
    pub given: BTreeMap<String, Value>,
}

impl Architecture {
    /// The model that a `config.json` asks for.
    pub(crate) fn of(config: &Config, path: &Path) -> Result<Architecture> {
        let fault = |reason: String| Error::Config { path: path.to_path_buf(), reason };
        let wanted =
            config.architecture().ok_or_else(|| fault("the field `architectures` must name a model".into()))?;
        let mut known = Vec::new();
        for file in models() {
            let program = Program::load(file, &WithLibrary(MemoryLoader::new()));
            let items = 0..program.files[0].ast.items.len();
            for item in items.map(|item| ItemRef { file: 0, item }) {
                let Some(entries) = hf_config(&program, item) else { continue };
                let Some(architecture) = text(entries, "architecture") else { continue };
                if architecture != wanted {
                    known.push(architecture.to_string());
                    continue;
                }
                let given = given(entries, config);
                let name = program.decl(item).map_or(String::new(), |decl| decl.name.name.clone());
                return Ok(Architecture { program, item, name, given });
            }
        }
        known.sort();
        Err(fault(format!("no model for architecture `{wanted}`; known are {}", known.join(", "))))
    }

    /// The forward graph for a batch of sequences, or one step of decoding with caches.
    pub fn lower(&self, batch: usize, steps: usize, dtype: DType, decode: Option<usize>) -> Result<Lowered> {
        let options = Options { dtype, decode, ..Options::default() };
        let ids = Type::new(DType::I32, &[batch, steps]);
        lower(&self.program, self.item, &self.given, &[ids], &options)
            .map_err(|found| Error::Language(render_all(&self.program.sources, &[*found], Style::Plain)))
    }

    /// The model's weight mapping.
    pub(crate) fn mappings(&self) -> &[WeightMapping] {
        let sections = self.program.decl(self.item).map_or(&[][..], |decl| &decl.sections);
        sections
            .iter()
            .find_map(|section| match &section.kind {
                SectionKind::HfMapping(mappings) => Some(&mappings[..]),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// An integer parameter, if the configuration gave it.
    pub(crate) fn size(&self, name: &str) -> Option<usize> {
        self.given.get(name)?.as_int().and_then(|n| usize::try_from(n).ok())
    }
}

fn hf_config(program: &Program, item: ItemRef) -> Option<&[ConfigEntry]> {
    let sections = &program.decl(item)?.sections;
    sections.iter().find_map(|section| match &section.kind {
        SectionKind::HfConfig(entries) => Some(&entries[..]),
        _ => None,
    })
}

fn text<'a>(entries: &'a [ConfigEntry], key: &str) -> Option<&'a str> {
    let entry = entries.iter().find(|entry| entry.key.name == key)?;
    match &entry.value {
        ConfigValue::Expr(expr) => match &expr.kind {
            ExprKind::Str(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Parameters whose field is missing keep the model's default.
fn given(entries: &[ConfigEntry], config: &Config) -> BTreeMap<String, Value> {
    let maps = entries.iter().filter(|entry| entry.key.name == "param_mapping");
    let pairs = maps.filter_map(|entry| match &entry.value {
        ConfigValue::Map(entries) => Some(entries),
        _ => None,
    });
    pairs
        .flatten()
        .filter_map(|entry| match &entry.value {
            ConfigValue::Expr(expr) => Some((entry.key.name.clone(), config.value(expr)?)),
            _ => None,
        })
        .collect()
}
