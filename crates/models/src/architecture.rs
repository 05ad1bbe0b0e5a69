//! Maps a configuration to a model of the standard library and its sizes.

use crate::budget;
use crate::config::{Config, constant_from_json};
use crate::config_fields;
use crate::error::{Error, Result};
use crate::mapping::ParamSources;
use ir::{DType, Type};
use lang::ast::{ConfigEntry, ConfigValue, DeclKind, ExprKind, Param, TypeKind, WeightMapping};
use lang::consteval::ConstValue;
use lang::diagnostic::{ColorStyle, render_all};
use lang::library::{LibraryLoader, models};
use lang::lower::{LowerOptions, Lowered, Parameter, SequenceLimits, lower};
use lang::resolve::{ItemRef, MemoryLoader, ModuleProgram, ModuleView};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A model with the values of its constant parameters.
#[derive(Clone, Debug)]
pub struct Architecture {
    /// The model's file and its imports.
    pub program: ModuleProgram,
    /// The model's declaration.
    pub item: ItemRef,
    /// The model's name, such as `Llama`.
    pub name: String,
    /// Values of its constant parameters, as far as the configuration gives them.
    pub constants: BTreeMap<String, ConstValue>,
    /// Paths of optional weights that are absent.
    pub absent_weights: BTreeSet<String>,
    /// A precision recipe that replaces the model's own.
    pub recipe: Option<lang::lower::PrecisionRecipe>,
}

/// An input of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInput {
    /// The input's name; `in` where the model gives none.
    pub name: String,
    /// Whether the input is optional.
    pub optional: bool,
}

/// Suffixes of the class names of causal language models.
pub(crate) const DECODERS: [&str; 2] = ["ForCausalLM", "LMHeadModel"];

impl Architecture {
    /// Returns the model that a `config.json` describes.
    pub(crate) fn from_config(config: &Config, path: &Path) -> Result<Architecture> {
        let fault = |reason: String| Error::Config { path: path.to_path_buf(), reason };
        if let Some(own) = config.json.get("tensorloom") {
            return embedded_architecture(own).ok_or_else(|| fault("the field `tensorloom` names no model".into()))?;
        }
        let wanted =
            config.architecture().ok_or_else(|| fault("the field `architectures` must name a model".into()))?;
        let mut known = Vec::new();
        let quoted = format!("\"{wanted}\"");
        for file in models() {
            // Files that do not contain the name need not be parsed.
            if !lang::library::text(file).is_some_and(|text| text.contains(&quoted)) {
                let named = lang::library::text(file).unwrap_or_default().lines();
                let named = named.filter_map(|line| line.trim().strip_prefix("architecture: \""));
                known.extend(named.map(|name| name.trim_end_matches('"').to_string()));
                continue;
            }
            let program = ModuleProgram::load(file, &LibraryLoader(MemoryLoader::new()));
            let items = 0..program.files[0].ast.items.len();
            for item in items.map(|item| ItemRef { file: 0, item }) {
                let Some(entries) = hf_config(&program, item) else { continue };
                let entries = &entries[..];
                let Some(architecture) = text(entries, "architecture") else { continue };
                if architecture != wanted {
                    known.push(architecture.to_string());
                    continue;
                }
                config_fields::check_fields(config, wanted, entries).map_err(fault)?;
                let given = config_constants(entries, config);
                let (defaults, mapped) = (defaults(&program, item), mapped_fields(entries));
                for (key, value) in &given {
                    let field = mapped.iter().find(|(name, _)| name == key).map_or(&key[..], |(_, field)| field);
                    config_fields::check_value_kind(field, value, defaults.get(key)).map_err(fault)?;
                    budget::check_value(key, field, value, defaults.get(key)).map_err(fault)?;
                }
                let name = program.decl(item).map_or(String::new(), |decl| decl.name.name.clone());
                return Ok(Architecture {
                    program,
                    item,
                    name,
                    constants: given,
                    absent_weights: BTreeSet::new(),
                    recipe: None,
                });
            }
        }
        known.sort();
        let stem = wanted.strip_suffix("ForSequenceClassification");
        let decoder =
            |stem: &str| known.iter().any(|name| name.strip_prefix(stem).is_some_and(|end| DECODERS.contains(&end)));
        if stem.is_some_and(decoder) {
            return Err(fault(format!("`{wanted}` is a classifier: use `loom classify`")));
        }
        Err(fault(format!("unknown architecture `{wanted}`: the library has {}", known.join(", "))))
    }

    /// Returns the model of a program for a checkpoint, by the fields that its `hf_config` reads;
    /// the class name of the checkpoint is ignored.
    pub(crate) fn from_program_config(program: ModuleProgram, config: &Config, path: &Path) -> Result<Architecture> {
        let items = program.files.first().map_or(0, |file| file.ast.items.len());
        let models = (0..items).map(|item| ItemRef { file: 0, item });
        let described: Vec<_> = models.filter_map(|item| Some((item, hf_config(&program, item)?))).collect();
        // Of several models, this is the one with the checkpoint's name, or else the first.
        let own = |(_, entries): &&(ItemRef, Vec<ConfigEntry>)| {
            text(entries, "architecture").is_some_and(|name| Some(name) == config.architecture())
        };
        let Some((item, entries)) = described.iter().find(own).or(described.first()).cloned() else {
            let file = program.sources.iter().next().map_or("", |(_, file)| file.name());
            return Err(Error::Input(format!(
                "{file}: no model has `hf_config`, which maps fields of {} to its parameters",
                path.display()
            )));
        };
        let name = program.decl(item).map(|decl| decl.name.name.clone());
        let given = config_constants(&entries, config);
        Architecture::from_program(program, name.as_deref(), given)
    }

    /// Returns a library model by its short name, such as `llama`.
    pub fn from_library(name: &str, given: BTreeMap<String, ConstValue>) -> Result<Architecture> {
        let path = format!("std/models/{name}");
        if !models().any(|known| known == path) {
            let names: Vec<&str> = models().filter_map(|path| path.rsplit('/').next()).collect();
            return Err(Error::Input(format!("unknown model `{name}`: the library has {}", names.join(", "))));
        }
        Architecture::from_program(ModuleProgram::load(&path, &LibraryLoader(MemoryLoader::new())), None, given)
    }

    /// Returns the model of a program with this name, or the first.
    pub fn from_program(
        program: ModuleProgram,
        name: Option<&str>,
        given: BTreeMap<String, ConstValue>,
    ) -> Result<Architecture> {
        let mut findings = program.diagnostics.clone();
        findings.extend(lang::check::check(&program).diagnostics);
        findings.retain(lang::Diagnostic::is_error);
        if !findings.is_empty() {
            return Err(Error::Language(render_all(&program.sources, &findings, ColorStyle::Plain)));
        }
        let items = program.files.first().map_or(0, |file| file.ast.items.len());
        let found = (0..items).map(|item| ItemRef { file: 0, item }).find(|item| {
            let decl = program.decl(*item).filter(|decl| decl.kind == DeclKind::Model);
            decl.is_some_and(|decl| name.is_none_or(|name| decl.name.name == name))
        });
        let item = found.ok_or_else(|| {
            let file = program.sources.iter().next().map_or("", |(_, file)| file.name());
            Error::Input(format!("{file}: declares no model{}", name.map_or(String::new(), |n| format!(" `{n}`"))))
        })?;
        let mut all = defaults(&program, item);
        if given.keys().all(|key| header(&program, item).contains(key)) {
            lang::lower::check_given(&program, item, &given).map_err(Error::Input)?;
        }
        for (key, value) in given {
            if !all.contains_key(&key) && !header(&program, item).contains(&key) {
                let known = header(&program, item).join(", ");
                return Err(Error::Input(format!("the model has no parameter `{key}`: its parameters are {known}")));
            }
            // The meaning of a user's own parameters is unknown here: 0 may be a valid value.
            if program.files.first().is_some_and(|file| file.path.starts_with("std/")) {
                budget::check_value(&key, &key, &value, all.get(&key)).map_err(Error::Input)?;
            }
            all.insert(key, value);
        }
        let name = program.decl(item).map_or(String::new(), |decl| decl.name.name.clone());
        Ok(Architecture { program, item, name, constants: all, absent_weights: BTreeSet::new(), recipe: None })
    }

    /// The parameter names of a program's first model.
    pub(crate) fn parameters(program: &ModuleProgram) -> Vec<String> {
        let items = program.files.first().map_or(0, |file| file.ast.items.len());
        let is_model = |item: &ItemRef| program.decl(*item).is_some_and(|decl| decl.kind == DeclKind::Model);
        let found = (0..items).map(|item| ItemRef { file: 0, item }).find(is_model);
        found.map_or(Vec::new(), |item| header(program, item))
    }

    /// Returns a configuration from which [`Architecture::from_config`] restores this model. Library models get HuggingFace's
    /// fields; others embed their source files.
    pub(crate) fn to_config(&self) -> Json {
        let mut json = serde_json::Map::new();
        let entries = hf_config(&self.program, self.item).unwrap_or_default();
        let architecture = text(&entries, "architecture");
        let file = self.program.files.first().map_or("", |file| file.path.as_str());
        json.insert("architectures".into(), vec![architecture.unwrap_or(&self.name)].into());
        json.insert("model_type".into(), file.strip_prefix("std/models/").unwrap_or("tensorloom").into());
        let usual = defaults(&self.program, self.item);
        for (name, field) in mapped_fields(&entries) {
            let Some(value) = self.constants.get(&name).and_then(to_json) else { continue };
            // A size of 0 means "default", as do other numbers whose default is 0.
            let zero = |value: &Json| value.as_f64() == Some(0.0);
            let unset = value == 0 || zero(&value) && usual.get(&name).and_then(to_json).as_ref().is_some_and(zero);
            if !unset {
                set(&mut json, &field, value);
            }
        }
        if let Some(own) = self.embedded_module() {
            json.insert("tensorloom".into(), own);
        }
        Json::Object(json)
    }

    /// A model outside the library as a field of `config.json`: its source files and the values of its parameters.
    pub(crate) fn embedded_module(&self) -> Option<Json> {
        let file = self.program.files.first().map_or("", |file| file.path.as_str());
        (!file.starts_with("std/")).then(|| {
            let files = self.program.files.iter().filter(|file| !file.path.starts_with("std/"));
            let texts: serde_json::Map<String, Json> =
                files.map(|file| (file.path.clone(), self.program.sources.file(file.id).text().into())).collect();
            let given: serde_json::Map<String, Json> =
                self.constants.iter().filter_map(|(name, value)| Some((name.clone(), to_json(value)?))).collect();
            serde_json::json!({ "file": file, "model": self.name, "given": given, "files": texts })
        })
    }

    /// Lowers the forward graph for a batch of sequences, or for one decode step with KV caches.
    pub fn lower(&self, batch: usize, steps: usize, dtype: DType, decode: Option<usize>) -> Result<Lowered> {
        self.lower_with(batch, steps, &LowerOptions { dtype, decode, ..LowerOptions::default() })
    }

    /// [`lower`](Self::lower) with all options: hooks, probes, stacked parameters.
    pub fn lower_with(&self, batch: usize, steps: usize, options: &LowerOptions) -> Result<Lowered> {
        let inputs = self.inputs();
        let optional = inputs.iter().filter(|input| input.optional).map(|input| input.name.clone());
        let absent = self.absent_weights.iter().cloned().chain(optional).collect();
        let options = LowerOptions { absent, ..options.clone() };
        let mut types = self.input_types(batch, steps, options.dtype)?.into_iter().zip(&inputs);
        let types: Vec<Type> = types.by_ref().filter(|(_, input)| !input.optional).map(|(ty, _)| ty).collect();
        self.lower_for(&types, &options)
    }

    /// Lowers the forward graph for inputs of these types, without those that `absent` of the options names.
    pub(crate) fn lower_for(&self, inputs: &[Type], options: &LowerOptions) -> Result<Lowered> {
        let absent = self.absent_weights.iter().chain(&options.absent).cloned().collect();
        let recipe = options.recipe.or(self.recipe);
        let options = LowerOptions { absent, recipe, ..options.clone() };
        lower(&self.program, self.item, &self.constants, inputs, &options).map_err(|found| self.config_error(*found))
    }

    fn config_error(&self, found: lang::Diagnostic) -> Error {
        Error::Language(render_all(&self.program.sources, &[found], ColorStyle::Plain))
    }

    /// The model's inputs, in order.
    pub fn inputs(&self) -> Vec<ModelInput> {
        let view = ModuleView::new(&self.program, self.item);
        let slots = view.iter().flat_map(|view| &view.forward.inputs);
        slots
            .map(|slot| {
                let optional = matches!(slot.ty.as_ref().map(|ty| &ty.kind), Some(TypeKind::Optional(_)));
                let name = slot.name.as_ref().map_or("in", |name| name.name.as_str()).to_string();
                ModelInput { name, optional: optional || slot.optional }
            })
            .collect()
    }

    /// The names of the model's outputs, in order.
    pub fn outputs(&self) -> Vec<String> {
        let view = ModuleView::new(&self.program, self.item);
        let slots = view.iter().flat_map(|view| &view.forward.outputs);
        slots.map(|slot| slot.name.as_ref().map_or("out", |name| name.name.as_str()).to_string()).collect()
    }

    /// The types of all inputs, with `steps` for every size that is not given, except the batch size.
    pub(crate) fn input_types(&self, batch: usize, steps: usize, dtype: DType) -> Result<Vec<Type>> {
        let free =
            |name: &str, role: Option<&str>| Some(if role == Some("batch_dim") || name == "B" { batch } else { steps });
        lang::lower::input_types(&self.program, self.item, &self.constants, &free, &[batch, steps], dtype)
            .map_err(|found| self.config_error(*found))
    }

    /// The limits on sequences that follow from the model's graph.
    pub(crate) fn limits(&self, dtype: DType) -> SequenceLimits {
        let inputs = self.inputs();
        let whole = |why: String| SequenceLimits { not_incremental: Some(why), ..SequenceLimits::default() };
        let Ok(types) = self.input_types(1, 1, dtype) else { return whole("its inputs have no known sizes".into()) };
        let optional = inputs.iter().filter(|input| input.optional).map(|input| input.name.clone());
        let absent = self.absent_weights.iter().cloned().chain(optional).collect();
        let options = LowerOptions { dtype, absent, recipe: self.recipe, ..LowerOptions::default() };
        let types: Vec<Type> = types.into_iter().zip(&inputs).filter(|(_, i)| !i.optional).map(|(ty, _)| ty).collect();
        if types.len() != 1 || types.iter().any(|ty| ty.rank() != 2 || ty.dtype != DType::I32) {
            return whole("it has inputs other than token IDs".into());
        }
        let found = lang::lower::limits(&self.program, self.item, &self.constants, &types, &options);
        // A model that can't be lowered incrementally recomputes the whole sequence.
        found.unwrap_or_else(|found| whole(found.message.clone()))
    }

    /// The checkpoint tensors that each parameter is assembled from, in order.
    pub fn sources(&self, params: &[Parameter]) -> Result<Vec<ParamSources>> {
        crate::mapping::sources(self, params)
    }

    /// The model's weight mapping, including inherited entries.
    pub(crate) fn mappings(&self) -> Vec<WeightMapping> {
        self.mappings_of(|view| view.mappings)
    }

    /// The model's mapping of exported tensors.
    pub(crate) fn exports(&self) -> Vec<WeightMapping> {
        self.mappings_of(|view| view.exports)
    }

    fn mappings_of<'a>(&'a self, pick: fn(ModuleView<'a>) -> Vec<&'a WeightMapping>) -> Vec<WeightMapping> {
        ModuleView::new(&self.program, self.item).map_or(Vec::new(), |view| pick(view).into_iter().cloned().collect())
    }

    /// The maximum sequence length, if positions are learned; rotary embeddings have none.
    pub(crate) fn max_positions(&self) -> Option<usize> {
        let rotates = header(&self.program, self.item).iter().any(|name| name == "theta");
        self.size("max_seq").filter(|_| !rotates)
    }

    /// Whether rotary embeddings may depend on the sequence length, by the configuration or by a user's module.
    pub(crate) fn rotates_by_length(&self) -> bool {
        const LENGTH_DEPENDENT_ROPE: [&str; 3] = ["dynamic", "longrope", "su"];
        let named =
            |value: &ConstValue| matches!(value, ConstValue::Str(kind) if LENGTH_DEPENDENT_ROPE.contains(&&**kind));
        let has = |value: &ConstValue| match value {
            ConstValue::List(fields) => fields.iter().any(|field| match field {
                ConstValue::List(pair) => pair.iter().any(named),
                other => named(other),
            }),
            _ => false,
        };
        let own = self.program.files.iter().filter(|file| !file.path.starts_with("std/"));
        let mut texts = own.map(|file| self.program.sources.file(file.id).text());
        self.constants.values().any(has)
            || texts.any(|text| LENGTH_DEPENDENT_ROPE.iter().any(|kind| text.contains(&format!("\"{kind}\""))))
    }

    /// The sequence length above which all positions get other rotation factors.
    pub(crate) fn long_rope_threshold(&self) -> Option<usize> {
        let Some(ConstValue::List(fields)) = self.constants.get("rope") else { return None };
        let field = |name: &str| {
            let mut pairs = fields.iter().filter_map(|field| match field {
                ConstValue::List(pair) => Some((pair.first()?, pair.get(1)?)),
                _ => None,
            });
            pairs.find(|(key, _)| **key == ConstValue::Str(name.into())).map(|(_, value)| value)
        };
        let kind = field("rope_type").or_else(|| field("type"))?;
        let long = [ConstValue::Str("longrope".into()), ConstValue::Str("su".into())].contains(kind);
        let original = field("original_max_position_embeddings").and_then(ConstValue::as_int);
        if long { original.and_then(|n| usize::try_from(n).ok()).or_else(|| self.size("max_seq")) } else { None }
    }

    /// Returns an integer parameter, if the configuration gave it.
    pub(crate) fn size(&self, name: &str) -> Option<usize> {
        self.constants.get(name)?.as_int().and_then(|n| usize::try_from(n).ok())
    }
}

/// The `hf_config` of a model, including inherited entries, if it has one.
fn hf_config(program: &ModuleProgram, item: ItemRef) -> Option<Vec<ConfigEntry>> {
    program.decl(item).filter(|decl| decl.kind == DeclKind::Model)?;
    Some(ModuleView::new(program, item)?.config).filter(|entries| !entries.is_empty())
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
fn config_constants(entries: &[ConfigEntry], config: &Config) -> BTreeMap<String, ConstValue> {
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

/// The model that `to_config` embedded.
fn embedded_architecture(own: &Json) -> Option<Result<Architecture>> {
    let mut loader = MemoryLoader::new();
    for (path, text) in own.get("files")?.as_object()? {
        loader = loader.with(path, "v1.0.0", text.as_str()?);
    }
    let given = own.get("given")?.as_object()?;
    let given = given.iter().filter_map(|(name, value)| Some((name.clone(), constant_from_json(value)?))).collect();
    let program = ModuleProgram::load(own.get("file")?.as_str()?, &LibraryLoader(loader));
    Some(Architecture::from_program(program, own.get("model")?.as_str(), given))
}

fn header(program: &ModuleProgram, item: ItemRef) -> Vec<String> {
    let view = ModuleView::new(program, item);
    let params = view.iter().flat_map(|view| &view.header);
    params
        .filter_map(|param| match param {
            Param::Named { name, .. } => Some(name.name.clone()),
            Param::Elided(_) => None,
        })
        .collect()
}

/// Parameters whose default is a plain number, name or boolean.
fn defaults(program: &ModuleProgram, item: ItemRef) -> BTreeMap<String, ConstValue> {
    let view = ModuleView::new(program, item);
    let params = view.iter().flat_map(|view| &view.header);
    params
        .filter_map(|param| {
            let Param::Named { name, default: Some(default), .. } = param else { return None };
            let value = match &default.peel().kind {
                ExprKind::Int(n) => ConstValue::int(*n),
                ExprKind::Float(x) => ConstValue::Float(Some(*x)),
                ExprKind::Str(text) => ConstValue::Str(text.clone()),
                ExprKind::Bool(value) => ConstValue::bool(*value),
                _ => return None,
            };
            Some((name.name.clone(), value))
        })
        .collect()
}

/// Pairs of a parameter and the field that holds it.
fn mapped_fields(entries: &[ConfigEntry]) -> Vec<(String, String)> {
    let maps = entries.iter().filter(|entry| entry.key.name == "param_mapping");
    let pairs = maps.filter_map(|entry| match &entry.value {
        ConfigValue::Map(entries) => Some(entries),
        _ => None,
    });
    let field = |expr: &lang::ast::Expr| match &expr.peel().kind {
        ExprKind::Call(callee, args) if callee.as_name() == Some("first") => {
            Some(args.first()?.value.as_path()?.to_string())
        }
        _ => Some(expr.as_path()?.to_string()),
    };
    let pairs = pairs.flatten().filter_map(|entry| match &entry.value {
        ConfigValue::Expr(expr) => Some((entry.key.name.clone(), field(expr)?)),
        _ => None,
    });
    pairs.collect()
}

fn to_json(value: &ConstValue) -> Option<Json> {
    Some(match value {
        ConstValue::Int(_) => value.as_int()?.into(),
        ConstValue::Float(x) => (*x)?.into(),
        ConstValue::Bool(lang::consteval::Ternary::Known(value)) => (*value).into(),
        ConstValue::Str(text) | ConstValue::Identifier(text) => text.as_str().into(),
        ConstValue::List(items) => {
            let pair = |item: &ConstValue| match item {
                ConstValue::List(pair) => match &pair[..] {
                    [ConstValue::Str(name), value] => Some((name.clone(), to_json(value)?)),
                    _ => None,
                },
                _ => None,
            };
            match items.iter().map(pair).collect::<Option<serde_json::Map<String, Json>>>() {
                Some(object) if !items.is_empty() => Json::Object(object),
                _ => Json::Array(items.iter().map(to_json).collect::<Option<_>>()?),
            }
        }
        _ => return None,
    })
}

/// Sets a field by its dotted name.
fn set(json: &mut serde_json::Map<String, Json>, path: &str, value: Json) {
    match path.split_once('.') {
        None => match (json.get_mut(path), value) {
            (Some(Json::Object(old)), Json::Object(new)) => old.extend(new),
            (_, value) => {
                json.insert(path.to_string(), value);
            }
        },
        Some((first, rest)) => {
            let inner = json.entry(first).or_insert_with(|| Json::Object(serde_json::Map::new()));
            if let Some(inner) = inner.as_object_mut() {
                set(inner, rest, value);
            }
        }
    }
}
