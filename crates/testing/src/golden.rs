//! Golden values: results of JAX and PyTorch for our graphs, read from `golden/data` at the root of the repository.
//! The format is described in `golden/make.py`, which writes it.

use crate::compare::{Tolerance, compare};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Type, Value, interp};
use std::path::PathBuf;

/// One graph with inputs and the results of another framework.
#[derive(Clone, Debug)]
pub struct GoldenCase {
    /// `op/variant`.
    pub name: String,
    /// The framework that computed it.
    pub by: String,
    /// The graph.
    pub graph: Graph,
    /// Inputs.
    pub inputs: Vec<Literal>,
    /// Expected outputs.
    pub outputs: Vec<Literal>,
    /// Cotangents by output.
    pub cotangents: Vec<(usize, Literal)>,
    /// Expected cotangents by input.
    pub grads: Vec<(usize, Literal)>,
    /// Tangents by input.
    pub tangents: Vec<(usize, Literal)>,
    /// Expected tangents by output.
    pub output_tangents: Vec<(usize, Literal)>,
    /// A tolerance that replaces the default, with the reason.
    pub tolerance: Option<(Tolerance, String)>,
}

/// Folder of the golden data.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden/data")
}

/// The files of cases: every `.golden` file except the promotion table, by name.
pub fn files() -> std::io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if path.extension().is_some_and(|e| e == "golden") && stem != "promotion" {
            files.push((stem, std::fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// The cases of a file.
pub fn parse(text: &str) -> Result<Vec<GoldenCase>, String> {
    text.split("\n\n")
        .filter(|chunk| !chunk.trim().is_empty())
        .map(|chunk| {
            parse_case(chunk).map_err(|e| format!("{e} in\n{}", chunk.lines().take(4).collect::<Vec<_>>().join("\n")))
        })
        .collect()
}

fn parse_case(chunk: &str) -> Result<GoldenCase, String> {
    let mut case = GoldenCase {
        name: String::new(),
        by: String::new(),
        graph: Graph::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        cotangents: Vec::new(),
        grads: Vec::new(),
        tangents: Vec::new(),
        output_tangents: Vec::new(),
        tolerance: None,
    };
    let mut lines = chunk.trim().lines();
    while let Some(line) = lines.next() {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "case" => case.name = rest.to_string(),
            "by" => case.by = rest.to_string(),
            "exact" => case.tolerance = Some((Tolerance::EXACT, "exact".into())),
            "tolerance" => case.tolerance = Some(parse_tolerance(rest)?),
            "graph" => {
                let mut text = line.to_string();
                for line in lines.by_ref() {
                    text.push('\n');
                    text.push_str(line);
                    if line == "}" {
                        break;
                    }
                }
                case.graph = ir::text::parse(&text).map_err(|e| format!("{e}\n{text}"))?;
            }
            "composite" => case.graph = composite(rest)?,
            "in" => case.inputs.push(tensor(rest)?),
            "out" => case.outputs.push(tensor(rest)?),
            "ct" => case.cotangents.push(numbered(rest)?),
            "grad" => case.grads.push(numbered(rest)?),
            "tan" => case.tangents.push(numbered(rest)?),
            "dout" => case.output_tangents.push(numbered(rest)?),
            other => return Err(format!("unknown line `{other}`")),
        }
    }
    Ok(case)
}

fn parse_tolerance(text: &str) -> Result<(Tolerance, String), String> {
    let mut words = text.splitn(3, ' ');
    let mut number = || words.next().and_then(|w| w.parse().ok()).ok_or("a tolerance is two numbers and a reason");
    let tolerance = Tolerance::new(number()?, number()?);
    Ok((tolerance, words.next().unwrap_or_default().to_string()))
}

fn numbered(text: &str) -> Result<(usize, Literal), String> {
    let (n, rest) = text.split_once(' ').ok_or("a number comes first")?;
    Ok((n.parse().map_err(|_| format!("`{n}` is not a number"))?, tensor(rest)?))
}

/// Parses `f32[2] 0000803f00000040`; an empty tensor is written `-`.
fn tensor(text: &str) -> Result<Literal, String> {
    let (ty, hex) = text.split_once(' ').ok_or("a tensor is a type and bytes")?;
    let ty = parse_type(ty)?;
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8).ok_or("not hex");
    let hex = hex.trim_start_matches('-').as_bytes();
    let bytes: Result<Vec<u8>, &str> =
        hex.chunks(2).map(|p| Ok(digit(p[0])? << 4 | digit(*p.get(1).ok_or("odd")?)?)).collect();
    Literal::from_bytes(ty.clone(), &bytes?).ok_or_else(|| format!("bytes don't fill {ty}"))
}

/// Parses `f32[2,3]`.
pub fn parse_type(text: &str) -> Result<Type, String> {
    let bad = || format!("`{text}` is not a type");
    let (dtype, rest) = text.split_once('[').ok_or_else(bad)?;
    let sizes = rest.strip_suffix(']').ok_or_else(bad)?;
    let shape: Result<Vec<usize>, _> = sizes.split(',').filter(|s| !s.is_empty()).map(|s| s.trim().parse()).collect();
    Ok(Type::new(dtype.parse().map_err(|()| bad())?, &shape.map_err(|_| bad())?))
}

/// Parses `name [[key, value], ..] (type, ..)` to a graph of one composite, with its public outputs.
fn composite(text: &str) -> Result<Graph, String> {
    let (name, rest) = text.split_once(' ').ok_or("a composite has a name")?;
    let (params, types) = rest.rsplit_once(" (").ok_or("a composite has types")?;
    let types = split_types(types.trim_end_matches(')'))?;
    // The parameters are parsed by the parser of the text form.
    let carrier = format!(
        "graph () {{\n composite() {{name={name}, params={params}, public=0, body=graph () {{ return }}}}\n return }}"
    );
    let carrier = ir::text::parse(&carrier).map_err(|e| e.to_string())?;
    let Op::Composite(c) = &carrier.nodes()[0].op else {
        return Err("not a composite".into());
    };
    let built = ir::composites::build(name, &c.params, &types).map_err(|e| e.to_string())?;
    let public = built.num_public_outputs;
    let mut b = Builder::new();
    let args: Vec<Value> = types.into_iter().map(|t| b.graph.input(t)).collect();
    let outs = b.emit(built.into(), &args).map_err(|e| e.to_string())?;
    Ok(b.finish(&outs[..public]))
}

/// Parses `f32[2,3], i32[]`.
fn split_types(text: &str) -> Result<Vec<Type>, String> {
    text.split(", ").filter(|t| !t.is_empty()).map(parse_type).collect()
}

/// The default tolerances for another framework: 1e-5 relative for f32.
pub fn default_tolerance(dtype: DType) -> Tolerance {
    match dtype {
        DType::F64 => Tolerance::new(1e-9, 1e-11),
        DType::F32 => Tolerance::new(1e-5, 1e-6),
        other => Tolerance::for_dtype(other),
    }
}

impl GoldenCase {
    fn check(&self, what: &str, got: &Literal, want: &Literal) -> Result<(), String> {
        let tolerance = match &self.tolerance {
            Some((t, _)) => *t,
            None => default_tolerance(want.ty().dtype),
        };
        compare(got, want, tolerance).map_err(|m| format!("{} (by {}): {what}: {m}", self.name, self.by))
    }

    /// Runs values, reverse mode and forward mode, and compares each with the golden values.
    pub fn run(&self) -> Result<(), String> {
        let err = |what: &'static str| move |e: ir::Error| format!("{}: {what}: {e}\n{}", self.name, self.graph);
        ir::verify::verify(&self.graph).map_err(err("verify"))?;
        let outs = interp::run(&self.graph, &self.inputs).map_err(err("run"))?;
        if outs.len() != self.outputs.len() {
            return Err(format!("{}: {} outputs, want {}", self.name, outs.len(), self.outputs.len()));
        }
        for (i, (got, want)) in outs.iter().zip(&self.outputs).enumerate() {
            self.check(&format!("output {i}"), got, want)?;
        }
        if !self.grads.is_empty() {
            let wrt: Vec<usize> = self.grads.iter().map(|g| g.0).collect();
            let back = transform::vjp(&self.graph, &wrt).map_err(err("vjp"))?;
            ir::verify::verify(&back).map_err(err("verify vjp"))?;
            let mut args = self.inputs.clone();
            for (k, y) in outs.iter().enumerate().filter(|(_, y)| y.ty().dtype.is_float()) {
                let given = self.cotangents.iter().find(|c| c.0 == k);
                args.push(given.map_or_else(|| Literal::zeros(y.ty().clone()), |c| c.1.clone()));
            }
            let got = interp::run(&back, &args).map_err(err("run vjp"))?;
            for ((i, want), got) in self.grads.iter().zip(&got[outs.len()..]) {
                self.check(&format!("gradient of input {i}"), got, want)?;
            }
        }
        if !self.tangents.is_empty() {
            let active: Vec<bool> = (0..self.inputs.len()).map(|i| self.tangents.iter().any(|t| t.0 == i)).collect();
            let (forward, has) = transform::jvp(&self.graph, &active, &vec![true; outs.len()]).map_err(err("jvp"))?;
            ir::verify::verify(&forward).map_err(err("verify jvp"))?;
            let args: Vec<Literal> = self.inputs.iter().chain(self.tangents.iter().map(|t| &t.1)).cloned().collect();
            let got = interp::run(&forward, &args).map_err(err("run jvp"))?;
            for (k, want) in &self.output_tangents {
                let at = outs.len() + has[..*k].iter().filter(|h| **h).count();
                self.check(&format!("tangent of output {k}"), &got[at], want)?;
            }
        }
        Ok(())
    }
}
