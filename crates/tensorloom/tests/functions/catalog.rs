//! The public functions as data: `docs/functions.json`, made of the sources and kept equal to them.
//!
//! Sources are where functions are declared: name, arguments, result, documentation. The tests, the conformance page and
//! packages for other languages read the data. `UPDATE=1 cargo test -p tensorloom --test functions catalog` writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Modules, and the files of the root that hold functions.
const MODULES: [&str; 11] =
    ["fft", "function", "lax", "linalg", "nn", "np", "optim", "random", "special", "testing", "tree"];
/// Modules whose functions golden lines call by name.
const COMPARED: [&str; 6] = ["fft", "lax", "linalg", "nn", "np", "special"];
const ROOT: [&str; 5] = ["device.rs", "leaks.rs", "lib.rs", "memory.rs", "save.rs"];

/// One public function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Function {
    /// `np`; empty for the root.
    pub(crate) module: String,
    /// Its name.
    pub(crate) name: String,
    /// The function that this is another name of.
    alias_of: Option<String>,
    /// What stands between `<` and `>`.
    generics: String,
    /// Names and types.
    args: Vec<(String, String)>,
    /// The type of its result.
    returns: String,
    /// The first paragraph of its documentation.
    doc: String,
    /// Where it is, from the sources' root.
    file: String,
}

impl Function {
    /// `np::sum`.
    pub(crate) fn path(&self) -> String {
        if self.module.is_empty() { self.name.clone() } else { format!("{}::{}", self.module, self.name) }
    }

    /// Whether it is declared in its module rather than taken over from another.
    pub(crate) fn is_own(&self) -> bool {
        self.alias_of.as_ref().is_none_or(|of| !of.contains("::"))
    }

    pub(crate) fn is_documented(&self) -> bool {
        !self.doc.is_empty()
    }
}

/// The parts of a list at its outermost commas.
fn parts(list: &str) -> Vec<String> {
    let (mut all, mut depth) = (vec![String::new()], 0i32);
    let mut before = ' ';
    for c in list.chars() {
        match c {
            '(' | '[' | '<' | '{' => depth += 1,
            // The arrow of a function's type closes nothing.
            '>' if before == '-' => {}
            ')' | ']' | '>' | '}' => depth -= 1,
            _ => {}
        }
        before = c;
        if c == ',' && depth == 0 {
            all.push(String::new());
        } else if let Some(last) = all.last_mut() {
            last.push(c);
        }
    }
    all.into_iter().map(|p| p.trim().to_string()).filter(|p| !p.is_empty()).collect()
}

/// Where the bracket that opens at the first character closes.
fn closing(text: &str) -> usize {
    let (mut depth, mut before) = (0i32, ' ');
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' | '<' | '{' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '>' | '}' => depth -= 1,
            _ => {}
        }
        before = c;
        if depth == 0 {
            return i;
        }
    }
    text.len()
}

/// Name, generics, arguments and result of `name<..>(..) -> .. {`.
fn signature(text: &str) -> Function {
    let end = text.find(['<', '(']).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let mut generics = String::new();
    if rest.starts_with('<') {
        let at = closing(rest);
        generics = rest[1..at].trim().to_string();
        rest = &rest[at + 1..];
    }
    let at = closing(rest);
    let pair = |p: String| p.split_once(": ").map(|(n, t)| (n.replace("mut ", ""), t.to_string()));
    let args = parts(&rest[1..at]).into_iter().filter_map(pair).collect();
    let after = rest[at + 1..].split(" where").next().unwrap_or_default().trim();
    let returns = after.strip_prefix("->").map_or("()", str::trim).to_string();
    let (module, doc, file) = (String::new(), String::new(), String::new());
    Function { module, name: name.trim().to_string(), alias_of: None, generics, args, returns, doc, file }
}

/// The first paragraph of doc lines.
fn paragraph(doc: &[&str]) -> String {
    let lines = doc.iter().map(|l| l.trim_start_matches("///").trim());
    lines.take_while(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The functions of one file: `pub fn` at the margin, and names in the lists of macros that make functions.
fn functions(module: &str, file: &str, text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = Vec::new();
    let mut macros: BTreeMap<&str, Function> = BTreeMap::new();
    let mut list: Option<Function> = None;
    let mut doc: Vec<&str> = Vec::new();
    let mut defining = None;
    for (i, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        // A signature that begins here, on one line or several.
        let whole = || {
            let text: Vec<&str> = lines[i..].iter().map(|l| l.trim()).collect();
            let text = text.join(" ");
            let end = text.find(" {").unwrap_or(text.len());
            text[..end].replace("( ", "(").replace(", )", ")")
        };
        if let Some(rest) = line.strip_prefix("macro_rules! ") {
            defining = rest.split(' ').next();
        }
        if let (Some(name), Some(_)) = (defining, head.strip_prefix("pub fn $name(")) {
            macros.insert(name, signature(whole().strip_prefix("pub fn ").unwrap_or_default()));
        }
        if *line == "}" {
            (defining, list) = (None, None);
        }
        if let Some((name, _)) = line.split_once("! {") {
            list = list.or_else(|| macros.get(name).cloned());
        }
        if head.starts_with("///") {
            doc.push(head);
            continue;
        }
        if head.starts_with("#[") || head.starts_with("note = ") || head.starts_with("message = ") {
            continue;
        }
        if line.starts_with("pub fn ") {
            let found = signature(whole().strip_prefix("pub fn ").unwrap_or_default());
            all.push(Function { module: module.into(), doc: paragraph(&doc), file: file.into(), ..found });
        } else if let (Some(like), false, true) = (&list, doc.is_empty(), line.starts_with("    ")) {
            let names = head.split(" => ").next().unwrap_or_default();
            let names = names.split(" | ").map(|w| w.split(' ').next().unwrap_or_default());
            let names: Vec<&str> = names.map(|w| w.trim_end_matches(',')).filter(|w| is_name(w)).collect();
            for (k, name) in names.iter().enumerate() {
                all.push(Function {
                    module: module.into(),
                    name: (*name).into(),
                    alias_of: (k > 0).then(|| names[0].to_string()),
                    doc: paragraph(&doc),
                    file: file.into(),
                    ..like.clone()
                });
            }
        }
        doc.clear();
    }
    all
}

/// Names that a file takes over: `pub use crate::np::{cross, dot as inner};` gives (`np`, `cross`, `cross`) and so on.
fn taken(module: &str, text: &str) -> Vec<(String, String, String)> {
    let joined = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let uses = joined.split("pub use ").skip(1).filter_map(|u| u.split(';').next());
    let mut all = Vec::new();
    for path in uses {
        let (from, names) = match (path.strip_prefix("crate::"), path.strip_prefix("self::")) {
            (Some(rest), _) => rest.rsplit_once("::").unwrap_or(("", rest)),
            (None, Some(rest)) => (module, rest),
            _ => continue,
        };
        for name in parts(names.trim_start_matches('{').trim_end_matches('}')) {
            let (name, new) = name.split_once(" as ").unwrap_or((&name, &name));
            if is_name(name) && is_name(new) {
                all.push((from.to_string(), name.to_string(), new.to_string()));
            }
        }
    }
    all
}

/// All public functions, by module and name.
pub(crate) fn catalog(sources: &Path) -> Vec<Function> {
    let (mut all, mut others) = (Vec::new(), Vec::new());
    let mut read = |module: &str, file: &str| {
        if let Ok(text) = std::fs::read_to_string(sources.join(file)) {
            // What comes behind the tests of a file is no part of the library.
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            all.extend(functions(module, file, text));
            others.extend(taken(module, text).into_iter().map(|t| (module.to_string(), t)));
        }
    };
    ROOT.iter().for_each(|f| read(if *f == "memory.rs" { "memory" } else { "" }, f));
    for module in MODULES {
        // Transforms are used from the root.
        let name = if module == "function" { "" } else { module };
        read(name, &format!("{module}.rs"));
        let folder = std::fs::read_dir(sources.join(module)).into_iter().flatten();
        let mut files: Vec<String> = folder.filter_map(|f| f.ok()?.file_name().into_string().ok()).collect();
        files.sort();
        files.iter().for_each(|f| read(name, &format!("{module}/{f}")));
    }
    for (module, (from, name, new)) in others {
        let known: Option<Function> = all.iter().find(|f: &&Function| f.module == from && f.name == name).cloned();
        let is_there = all.iter().any(|f| f.module == module && f.name == new);
        if let (Some(f), false) = (known, is_there) {
            let of = if from == module { name } else { format!("{from}::{name}") };
            all.push(Function { module, name: new, alias_of: Some(of), ..f });
        }
    }
    all.sort();
    all
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// One function a line.
pub(crate) fn json(all: &[Function]) -> String {
    let mut text = String::from("[\n");
    for (i, f) in all.iter().enumerate() {
        let pair = |(n, t): &(String, String)| format!("[{}, {}]", quoted(n), quoted(t));
        let args: Vec<String> = f.args.iter().map(pair).collect();
        write!(text, "  {{\"module\": {}, \"name\": {}", quoted(&f.module), quoted(&f.name)).expect("text grows");
        if let Some(of) = &f.alias_of {
            write!(text, ", \"alias_of\": {}", quoted(of)).expect("text grows");
        }
        if !f.generics.is_empty() {
            write!(text, ", \"generics\": {}", quoted(&f.generics)).expect("text grows");
        }
        write!(text, ", \"args\": [{}], \"returns\": {}", args.join(", "), quoted(&f.returns)).expect("text grows");
        write!(text, ", \"doc\": {}, \"file\": {}}}", quoted(&f.doc), quoted(&f.file)).expect("text grows");
        text.push_str(if i + 1 < all.len() { ",\n" } else { "\n" });
    }
    text + "]\n"
}

/// How a test reads an argument of a type from a golden line; nothing where a line has no way to say it.
fn read(name: &str, ty: &str) -> Option<String> {
    Some(match ty {
        "&Tensor" | "impl Into<Operand>" => "a.tensor()".into(),
        "Option<&Tensor>" => "a.maybe_tensor()".into(),
        "&[&Tensor]" => "&a.tensors()".into(),
        "&[Tensor]" => "&a.owned()".into(),
        "impl Into<ReduceAxes>" => format!("a.along({name:?})"),
        "f64" => format!("a.number({name:?})"),
        "usize" | "isize" | "i64" | "i32" => format!("a.number({name:?}) as {ty}"),
        "Option<f64>" => format!("a.maybe({name:?})"),
        "Option<usize>" => format!("a.maybe({name:?}).map(|x| x as usize)"),
        "Option<Operand>" => format!("a.maybe_operand({name:?})"),
        "impl Into<Number>" => format!("a.number({name:?})"),
        "bool" => format!("a.flag({name:?})"),
        "DType" => "a.dtype()".into(),
        "&str" => format!("a.text({name:?})"),
        "&[usize]" => format!("&a.sizes({name:?})"),
        "&[isize]" | "impl Dims" => format!("&a.list({name:?})"),
        _ => return None,
    })
}

/// The functions that golden lines can call as they are: those of tensors and plain parameters.
pub(crate) fn calls(all: &[Function]) -> String {
    let results =
        ["Tensor", "Vec<Tensor>", "(Tensor, Tensor)", "(Tensor, Tensor, Tensor)", "(Tensor, Tensor, Tensor, Tensor)"];
    let mut text = String::from(
        "//! Written by `UPDATE=1 cargo test --test functions`: functions by their names, with arguments from a line.\n\n\
         use crate::arguments::{Arguments, Results};\nuse tensorloom::{Tensor, fft, lax, linalg, nn, np, special};\n\n\
         pub(crate) fn call(name: &str, a: &Arguments<'_>) -> Option<Vec<Tensor>> {\n    Some(match name {\n",
    );
    for f in all.iter().filter(|f| COMPARED.contains(&f.module.as_str()) && f.generics.is_empty()) {
        let args: Option<Vec<String>> = f.args.iter().map(|(name, ty)| read(name, ty)).collect();
        // A list is what is left of the inputs.
        let behind = f.args.iter().skip_while(|(_, ty)| !ty.ends_with("Tensor]")).skip(1);
        let last = behind.into_iter().all(|(_, ty)| !ty.contains("Tensor") && ty != "impl Into<Operand>");
        if let (Some(args), true) = (args, last && results.contains(&f.returns.as_str())) {
            writeln!(text, "        \"{}.{}\" => {}({}).list(),", f.module, f.name, f.path(), args.join(", "))
                .expect("text grows");
        }
    }
    text + "        _ => return None,\n    })\n}\n"
}

/// Names that the conformance page says are here: `np::sum` and so on.
pub(crate) fn claimed(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|l| l.split("| here |").nth(1));
    let names = rows.filter_map(|r| r.split('`').nth(1));
    names.filter(|n| n.contains("::") && !n.starts_with("DType")).map(str::to_string).collect()
}
