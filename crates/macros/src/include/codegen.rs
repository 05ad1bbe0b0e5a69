//! Generates the Rust code of a `.module` program: a struct for every declaration, and the text of its files.

use lang::ast::{DeclKind, Expr, ExprKind, Param, TypeExpr, TypeKind};
use lang::resolve::{ItemRef, ModuleProgram, ModuleView};
use std::fmt::Write;
use std::path::PathBuf;

/// A parameter of a declaration as a field of the generated struct.
struct StructField {
    name: String,
    ty: &'static str,
    /// The expression that converts the field to a value of the model language.
    value: String,
    default: Option<String>,
}

/// Generates the expansion of `include_module!`.
pub(crate) fn program(program: &ModuleProgram, stem: &str, files: &[(String, PathBuf, String)]) -> String {
    let mut out = String::new();
    let mut loader = "::tensorloom::lang::resolve::MemoryLoader::new()".to_string();
    for (path, file, _) in files {
        // `include_str!` makes the crate depend on the file: it is checked again when the file changes.
        let _ = write!(loader, ".with({path:?}, \"local\", ::core::include_str!({:?}))", file.display().to_string());
    }
    let mut wrote = false;
    for item in (0..program.files[0].ast.items.len()).map(|item| ItemRef { file: 0, item }) {
        let Some(view) = ModuleView::new(program, item) else { continue };
        if view.decl.kind == DeclKind::Primitive || view.forward.graph.is_none() && view.pattern.is_none() {
            continue;
        }
        if let Some(fields) = fields(&view) {
            declaration(&mut out, &view, &fields, stem, &loader);
            wrote = true;
        }
    }
    if !wrote {
        out += "::core::compile_error!(\"the file declares no model or module\");";
    }
    out
}

/// Returns the fields of a declaration, or `None` if a parameter has no counterpart in Rust.
fn fields(view: &ModuleView<'_>) -> Option<Vec<StructField>> {
    let mut fields = Vec::new();
    for param in &view.header {
        let Param::Named { name, ty, default, .. } = param else { return None };
        let (ty, make) = match (rust_type(ty.as_ref()), default.as_ref().map(|d| &d.peel().kind)) {
            (Some("int"), _) | (None, Some(ExprKind::Int(_))) => {
                ("i64", "::tensorloom::lang::consteval::ConstValue::int(self.{})")
            }
            (Some("float"), _) | (None, Some(ExprKind::Float(_))) => {
                ("f64", "::tensorloom::lang::consteval::ConstValue::Float(::core::option::Option::Some(self.{}))")
            }
            (Some("bool"), _) | (None, Some(ExprKind::Bool(_))) => {
                ("bool", "::tensorloom::lang::consteval::ConstValue::bool(self.{})")
            }
            (Some("string"), _) | (None, Some(ExprKind::Str(_))) => {
                ("::std::string::String", "::tensorloom::lang::consteval::ConstValue::Str(self.{}.clone())")
            }
            // This is a size without a type annotation.
            (None, None) => ("i64", "::tensorloom::lang::consteval::ConstValue::int(self.{})"),
            _ => return None,
        };
        let name = escape_keyword(&name.name);
        let default = match default {
            None => None,
            Some(expr) => Some(literal(expr, ty)?),
        };
        fields.push(StructField { value: make.replace("{}", &name), name, ty, default });
    }
    Some(fields)
}

fn rust_type(ty: Option<&TypeExpr>) -> Option<&'static str> {
    match &ty?.kind {
        TypeKind::Named { path, args: None } => {
            let name = path.to_string();
            ["int", "float", "bool", "string"].into_iter().find(|known| *known == name).or(Some("other"))
        }
        _ => Some("other"),
    }
}

fn literal(expr: &Expr, ty: &str) -> Option<String> {
    Some(match (&expr.peel().kind, ty) {
        (ExprKind::Int(n), "i64") => format!("{n}i64"),
        (ExprKind::Int(n), "f64") => format!("{n}f64"),
        (ExprKind::Float(x), "f64") => format!("{x:?}f64"),
        (ExprKind::Bool(value), "bool") => value.to_string(),
        (ExprKind::Str(text), "::std::string::String") => format!("::std::string::String::from({text:?})"),
        _ => return None,
    })
}

fn declaration(out: &mut String, view: &ModuleView<'_>, fields: &[StructField], stem: &str, loader: &str) {
    let name = &view.decl.name.name;
    let doc = format!("`{name}` of `{stem}.module`, by its parameters.");
    let _ = write!(out, "#[doc = {doc:?}] #[derive(Clone, Debug, PartialEq)] pub struct {name} {{");
    for field in fields {
        let doc = format!("The parameter `{}`.", field.name);
        let _ = write!(out, "#[doc = {doc:?}] pub {}: {},", field.name, field.ty);
    }
    out.push('}');

    let required: Vec<&StructField> = fields.iter().filter(|field| field.default.is_none()).collect();
    let args: Vec<String> = required.iter().map(|field| format!("{}: {}", field.name, field.ty)).collect();
    let values: Vec<String> = fields
        .iter()
        .map(|field| match &field.default {
            Some(default) => format!("{}: {default}", field.name),
            None => field.name.clone(),
        })
        .collect();
    if required.is_empty() {
        let _ = write!(
            out,
            "impl ::core::default::Default for {name} {{ fn default() -> Self {{ Self {{ {} }} }} }}",
            values.join(", ")
        );
    }
    let inputs: Vec<String> = match view.forward.inputs.is_empty() {
        true => vec!["in_".to_string()],
        false => {
            let names = view.forward.inputs.iter();
            names
                .map(|tensor| tensor.name.as_ref().map_or("in_".to_string(), |name| escape_keyword(&name.name)))
                .collect()
        }
    };
    let typed: Vec<String> = inputs.iter().map(|input| format!("{input}: ::tensorloom::Type")).collect();
    let given: Vec<String> = fields
        .iter()
        .map(|field| format!("(::std::string::String::from({:?}), {})", unescape_keyword(&field.name), field.value))
        .collect();
    let _ = write!(
        out,
        "impl {name} {{
            #[doc = \"With the parameters that have no default.\"]
            #[allow(clippy::too_many_arguments, clippy::new_without_default)]
            pub fn new({}) -> Self {{ Self {{ {} }} }}

            #[doc = \"The graph for inputs of these types; a mistake comes with its drawing.\"]
            #[allow(clippy::too_many_arguments)]
            pub fn lower(&self, {}, options: &::tensorloom::lang::lower::LowerOptions) -> ::core::result::Result<::tensorloom::lang::lower::Lowered, ::std::string::String> {{
                let loader = ::tensorloom::lang::library::LibraryLoader({loader});
                let program = ::tensorloom::lang::resolve::ModuleProgram::load({stem:?}, &loader);
                let item = program.export(0, {name:?}).ok_or_else(|| ::std::string::String::from(\"no such declaration\"))?;
                let given = ::std::collections::BTreeMap::from([{}]);
                ::tensorloom::lang::lower::lower(&program, item, &given, &[{}], options).map_err(|found| {{
                    ::tensorloom::lang::diagnostic::render(&program.sources, &found, ::tensorloom::lang::diagnostic::ColorStyle::Plain)
                }})
            }}
        }}",
        args.join(", "),
        values.join(", "),
        typed.join(", "),
        given.join(", "),
        inputs.join(", "),
    );
}

/// Appends an underscore to a name that is a Rust keyword.
fn escape_keyword(name: &str) -> String {
    const RUST: &[&str] = &[
        "as", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn", "for", "if",
        "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "static", "struct",
        "super", "trait", "true", "type", "unsafe", "use", "where", "while", "async", "await", "options",
    ];
    if RUST.contains(&name) { format!("{name}_") } else { name.to_string() }
}

fn unescape_keyword(field: &str) -> &str {
    field.strip_suffix('_').filter(|name| escape_keyword(name) == field).unwrap_or(field)
}
