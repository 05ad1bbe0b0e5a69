//! The surface of the package, from `docs/functions.json`: which functions JavaScript gets, by which names, and what their
//! arguments may be. `build.rs` makes the Rust side of it, `cargo xtask web` the types.

use serde_json::Value;

/// A function that both sides know.
pub(crate) struct Function {
    /// `np`, `nn`, ..; empty for the top.
    pub(crate) module: String,
    /// As in Rust.
    pub(crate) name: String,
    /// Name, Rust type, value when left out.
    pub(crate) args: Vec<(String, String, Option<f64>)>,
    /// Rust type.
    pub(crate) returns: String,
    /// First sentence or more.
    pub(crate) doc: String,
}

/// What JavaScript may give for a Rust type: how Rust takes it, and the type's name in TypeScript.
fn argument(module: &str, ty: &str) -> Option<(&'static str, &'static str)> {
    Some(match ty {
        "&Tensor" => ("&take::<Tensor>(a)?", "ArrayLike"),
        "impl Into<Operand>" => ("take::<Operand>(a)?", "ArrayLike"),
        "Option<Operand>" => ("take::<Option<Operand>>(a)?", "ArrayLike | null"),
        "&Operand" => ("&take::<Operand>(a)?", "ArrayLike"),
        "Option<&Tensor>" => ("take::<Option<Tensor>>(a)?.as_ref()", "ArrayLike | null"),
        "f64" => ("take::<f64>(a)?", "number"),
        "Option<f64>" => ("take::<Option<f64>>(a)?", "number | null"),
        "Option<(f64, f64)>" => ("take::<Option<(f64, f64)>>(a)?", "[number, number] | null"),
        "usize" => ("take::<usize>(a)?", "number"),
        "Option<usize>" => ("take::<Option<usize>>(a)?", "number | null"),
        "isize" => ("take::<i64>(a)? as isize", "number"),
        "i64" => ("take::<i64>(a)?", "number"),
        "i32" => ("take::<i64>(a)? as i32", "number"),
        "u32" => ("take::<usize>(a)? as u32", "number"),
        "u64" => ("take::<usize>(a)? as u64", "number"),
        "bool" => ("take::<bool>(a)?", "boolean"),
        "&str" => ("&take::<String>(a)?", "string"),
        "DType" => ("take::<DType>(a)?", "DType"),
        "impl Into<ReduceAxes>" => ("take::<ReduceAxes>(a)?", "number | number[] | null"),
        "impl Dims" => ("take::<Vec<usize>>(a)?", "number | number[]"),
        "&[usize]" => ("&take::<Vec<usize>>(a)?", "number | number[]"),
        "Option<&[usize]>" => ("take::<Option<Vec<usize>>>(a)?.as_deref()", "number[] | null"),
        "&[isize]" => ("&take::<Vec<i64>>(a)?.iter().map(|x| *x as isize).collect::<Vec<_>>()", "number | number[]"),
        "&[&Tensor]" => ("&take::<Vec<Tensor>>(a)?.iter().collect::<Vec<_>>()", "ArrayLike[]"),
        "&[Tensor]" => ("&take::<Vec<Tensor>>(a)?", "ArrayLike[]"),
        "(&[usize], &[usize])" => ("pair(&take::<Vec<Vec<usize>>>(a)?)?", "[number[], number[]]"),
        "impl Into<Number>" => ("take::<Number>(a)?", "number"),
        "impl Into<Schedule>" => ("take::<Schedule>(a)?", "number | Schedule"),
        "impl Into<Complex>" => ("&take::<Complex>(a)?", "ArrayLike | Complex"),
        "Betas" => ("take::<Betas>(a)?", "Betas"),
        "Norm" if module == "fft" => ("take::<fft::Norm>(a)?", "\"backward\" | \"ortho\" | \"forward\""),
        "impl Into<Norm>" => ("take::<linalg::Norm>(a)?", "number | \"fro\" | \"nuc\" | null"),
        "PoolOptions" => {
            ("take::<nn::PoolOptions>(a)?", "number | { window: number; stride?: number; padding?: number }")
        }
        "Sliding" => {
            ("take::<nn::Sliding>(a)?", "{ stride?: number; padding?: number; dilation?: number; groups?: number }")
        }
        "CrossEntropy" => (
            "take::<nn::CrossEntropy>(a)?",
            "{ ignoreIndex?: number; labelSmoothing?: number; zLoss?: number; reduction?: \"mean\" | \"sum\" | \"none\" }",
        ),
        "&Attention" => (
            "&take::<nn::Attention>(a)?",
            "{ causal?: boolean; window?: number; scale?: number; mask?: ArrayLike; bias?: ArrayLike }",
        ),
        "&ConvOptions" => (
            "&take::<lax::ConvOptions>(a)?",
            "{ strides?: number[]; padding?: Padding; lhsDilation?: number[]; rhsDilation?: number[]; featureGroupCount?: number }",
        ),
        "Padding" => ("take::<lax::Padding>(a)?", "Padding"),
        "ReduceKind" => ("take::<ReduceKind>(a)?", "\"sum\" | \"prod\" | \"max\" | \"min\""),
        "&[(usize, usize)]" => ("&take::<Vec<(usize, usize)>>(a)?", "[number, number][]"),
        "PadMode" => ("take::<np::PadMode>(a)?", "\"edge\" | \"reflect\" | \"symmetric\" | \"wrap\" | number"),
        "impl IntoIterator<Item = GradientTransformation>" => ("take::<Vec<GradientTransformation>>(a)?", "Chain[]"),
        "&[Schedule]" => ("&take::<Vec<Schedule>>(a)?", "Schedule[]"),
        "&[(usize, f64)]" => ("&take::<Vec<(usize, f64)>>(a)?", "[number, number][]"),
        _ => return None,
    })
}

/// A result's type in TypeScript.
fn result(ty: &str) -> Option<&'static str> {
    Some(match ty {
        "Tensor" => "Tensor",
        "(Tensor, Tensor)" => "[Tensor, Tensor]",
        "(Tensor, Tensor, Tensor)" => "[Tensor, Tensor, Tensor]",
        "(Tensor, Tensor, Tensor, Tensor)" => "[Tensor, Tensor, Tensor, Tensor]",
        "Vec<Tensor>" => "Tensor[]",
        "(Tensor, Vec<Tensor>)" => "[Tensor, Tensor[]]",
        "Complex" => "Complex",
        "GradientTransformation" => "Chain",
        "Schedule" => "Schedule",
        "()" | "Result<()>" => "void",
        "bool" | "Result<bool>" => "boolean",
        "usize" => "number",
        "Vec<usize>" => "number[]",
        _ => return None,
    })
}

/// What an argument is when it is left out.
fn default(function: &str, arg: &str, ty: &str) -> Option<f64> {
    let forward = ["concatenate", "stack", "split", "array_split", "split_at", "unstack", "shuffle"];
    Some(match (arg, ty) {
        ("axis", "isize") if forward.contains(&function) || function.contains("_in_dim") => 0.0,
        ("axis", "isize") => -1.0,
        ("a", "isize") => 0.0,
        ("b", "isize") => 1.0,
        ("k", "i32") => 1.0,
        ("k" | "ddof" | "decimals", _) if ty != "usize" || arg == "ddof" => 0.0,
        ("alpha" | "delta" | "dx" | "step" | "d" | "beta", "f64") if function != "kaiser" => 1.0,
        ("slope", "f64") => 0.01,
        ("b", "f64") => 4.0,
        ("axes", _) if function == "standardize" => -1.0,
        ("minval", "impl Into<Operand>") => 0.0,
        ("maxval", "impl Into<Operand>") => 1.0,
        ("rtol", "f64") => 1e-5,
        ("atol", "f64") => 1e-8,
        ("eps", "f64") if function == "standardize" => 1e-5,
        ("eps", "f64") => 1e-8,
        ("base", "f64") => 10.0,
        ("n", "usize") if matches!(function, "linspace" | "logspace" | "geomspace") => 50.0,
        ("n", "usize") if function == "split" => 2.0,
        ("n" | "m", "usize") if matches!(function, "diff" | "polyder" | "polyint") => 1.0,
        ("bins", "usize") => 10.0,
        ("endpoint" | "replace" | "left" | "lower" | "approximate", "bool") => 1.0,
        _ => return None,
    })
}

fn optional(ty: &str) -> bool {
    let more =
        ["bool", "DType", "impl Into<ReduceAxes>", "Betas", "Norm", "impl Into<Norm>", "Sliding", "CrossEntropy"];
    ty.starts_with("Option<")
        || more.contains(&ty)
        || matches!(ty, "&Attention" | "&ConvOptions" | "PadMode" | "Padding")
}

/// All functions that both sides know, in the order of the file.
pub(crate) fn functions(json: &str) -> Vec<Function> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let all: Value = serde_json::from_str(json).expect("docs/functions.json is JSON");
    let mut found = Vec::new();
    for f in all.as_array().expect("a list") {
        let (module, name) = (text(&f["module"]), text(&f["name"]));
        let args = f["args"].as_array().expect("a list").iter().map(|a| (text(&a[0]), text(&a[1])));
        let args: Vec<(String, String, Option<f64>)> =
            args.map(|(a, t)| (a.clone(), t.clone(), default(&name, &a, &t))).collect();
        let returns = text(&f["returns"]);
        let left_out =
            matches!(module.as_str(), "testing" | "memory" | "tree") || (name.ends_with('_') && name != "where_");
        let generic = !f["generics"].is_null() && !text(&f["generics"]).is_empty();
        let known = args.iter().all(|(_, t, _)| argument(&module, t).is_some()) && result(&returns).is_some();
        if known && !generic && !left_out {
            found.push(Function { module, name, args, returns, doc: text(&f["doc"]) });
        }
    }
    found
}

/// `value_and_grad` → `valueAndGrad`.
pub(crate) fn camel(name: &str) -> String {
    let mut out = String::new();
    let mut up = false;
    for c in name.chars() {
        match c {
            '_' if !out.is_empty() => up = true,
            c if up => {
                out.extend(c.to_uppercase());
                up = false;
            }
            c => out.push(c),
        }
    }
    out
}

/// The Rust side: a function by its number, and the list of names for JavaScript.
#[allow(dead_code, reason = "xtask has no use for it")]
pub(crate) fn rust(all: &[Function]) -> String {
    let mut arms = String::new();
    let mut names = Vec::new();
    for (i, f) in all.iter().enumerate() {
        let path = if f.module.is_empty() { String::new() } else { format!("{}::", f.module) };
        let args: Vec<String> = f
            .args
            .iter()
            .enumerate()
            .map(|(k, (_, t, _))| argument(&f.module, t).expect("known").0.replace("(a)", &format!("(a, {k})")))
            .collect();
        let result = if f.returns.starts_with("Result<") { ".map_err(fault)?" } else { "" };
        arms += &format!("        {i} => give(tensorloom::{path}{}({}){result}, out),\n", f.name, args.join(", "));
        // Name, default, and whether a number is promoted with the tensors beside it.
        let arg = |(a, t, d): &(String, String, Option<f64>)| serde_json::json!([camel(a), d, t.contains("Operand")]);
        let args: Vec<Value> = f.args.iter().map(arg).collect();
        names.push(serde_json::json!([f.module, f.name, camel(&f.name), args, f.returns]));
    }
    let list = serde_json::to_string(&names).expect("plain data");
    format!(
        "pub(crate) const NAMES: &str = {list:?};\n\npub(crate) fn call(index: usize, a: &[Value], out: &mut Vec<f64>) -> \
         Result<(), String> {{\n    match index {{\n{arms}        _ => return Err(format!(\"no function {{index}}\")),\n    \
         }}\n    Ok(())\n}}\n"
    )
}

/// The types of one module's functions, for TypeScript.
#[allow(dead_code, reason = "build.rs has no use for it")]
pub(crate) fn types(all: &[Function], module: &str) -> String {
    let mut out = String::new();
    for f in all.iter().filter(|f| f.module == module) {
        // What may be left out must stand last.
        let leaves = |t: &str, d: &Option<f64>| d.is_some() || optional(t);
        let last = f.args.iter().rposition(|(_, t, d)| !leaves(t, d)).map_or(0, |i| i + 1);
        let args: Vec<String> = f
            .args
            .iter()
            .enumerate()
            .map(|(i, (a, t, _))| {
                let (mark, ty) = (if i >= last { "?" } else { "" }, argument(&f.module, t).expect("known").1);
                let a = camel(a);
                let a = if matches!(a.as_str(), "default" | "function") { format!("{a}_") } else { a };
                format!("{a}{mark}: {ty}")
            })
            .collect();
        let doc = f.doc.replace("*/", "* /");
        let (name, result) = (camel(&f.name), result(&f.returns).expect("known"));
        out += &format!("  /** {doc} */\n  {name}({}): {result};\n", args.join(", "));
        // The same by names: what may be left out in a last object, with what reductions have beside it.
        if last < args.len() {
            let mut options = vec![format!("{{ {} }}", args[last..].join("; "))];
            if f.args.iter().any(|(_, t, _)| t == "impl Into<ReduceAxes>") && result == "Tensor" {
                options.push("ReduceAxes".into());
                let all = options.join(" & ");
                let axes = [&args[..last], &["axis: Axes".to_string(), format!("options: {all}")]].concat();
                out += &format!("  {name}({}): {result};\n", axes.join(", "));
            }
            let named = [&args[..last], &[format!("options: {}", options.join(" & "))]].concat();
            out += &format!("  {name}({}): {result};\n", named.join(", "));
        }
    }
    out
}
