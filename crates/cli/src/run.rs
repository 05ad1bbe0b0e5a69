//! `loom eval`, `loom generate` and `loom export`: HuggingFace directories.

use crate::Outcome;
use crate::args::{Args, Flag, Usage};
use crate::compile::{dtype, threads};
use cpu::Cpu;
use models::{Error, Model, NamedTensor};
use std::path::Path;

pub(crate) const EVAL: &[Flag] = &[("ids", true), ("labels", true), ("out", true), ("dtype", true), ("threads", true)];
pub(crate) const GENERATE: &[Flag] =
    &[("ids", true), ("max-new", true), ("greedy", false), ("json", false), ("dtype", true), ("threads", true)];
pub(crate) const EXPORT: &[Flag] = &[("out", true), ("dtype", true)];

fn load(args: &Args) -> Result<Model, Usage> {
    let dir = args.word("the directory")?;
    if !Path::new(dir).is_dir() {
        return Err(Usage(format!("{dir}: not a directory; give a HuggingFace model directory")));
    }
    Model::load(Path::new(dir), dtype(args)?).map_err(usage)
}

/// One line, whatever went wrong.
fn usage(error: Error) -> Usage {
    Usage(error.to_string().trim_end().to_string())
}

fn backend(args: &Args) -> Result<Cpu, Usage> {
    Ok(Cpu::new(args.number("threads", threads())?))
}

pub(crate) fn eval(args: &Args) -> Result<Outcome, Usage> {
    args.required("ids")?;
    let (ids, labels) = (args.ids("ids")?, args.ids("labels")?);
    let out = args.required("out")?.to_string();
    let model = load(args)?;
    let labels = (!labels.is_empty()).then_some(&labels[..]);
    let found = model.evaluate(&ids, labels, &backend(args)?).map_err(usage)?;
    let mut tensors: Vec<NamedTensor> = vec![found.logits];
    if let Some(loss) = found.loss {
        println!("loss {}", loss.floats()[0]);
        tensors.push(loss);
    }
    tensors.extend(found.gradients);
    models::write_tensors(Path::new(&out), &tensors).map_err(usage)?;
    Ok(Outcome::Clean)
}

pub(crate) fn generate(args: &Args) -> Result<Outcome, Usage> {
    args.required("ids")?;
    let ids = args.ids("ids")?;
    let [prompt] = &ids[..] else {
        return Err(Usage("`--ids` may be given once: one prompt at a time".into()));
    };
    let max_new = args.number("max-new", 32)?;
    let model = load(args)?;
    let found = model.generate(prompt, max_new, &backend(args)?).map_err(usage)?;
    let text: Vec<String> = found.ids.iter().map(i32::to_string).collect();
    if args.has("json") {
        println!("[{}]", text.join(", "));
    } else {
        println!("{}", text.join(","));
    }
    let rest = found.ids.len().saturating_sub(1) as f64 / found.rest.as_secs_f64().max(1e-9);
    let first = found.first.as_secs_f64();
    if found.ids.len() > 1 {
        eprintln!("first token after {first:.3} s, then {rest:.0} tokens/s");
    } else {
        eprintln!("first token after {first:.3} s");
    }
    Ok(Outcome::Clean)
}

pub(crate) fn export(args: &Args) -> Result<Outcome, Usage> {
    let out = args.required("out")?.to_string();
    let model = load(args)?;
    model.export(Path::new(&out)).map_err(usage)?;
    println!("{out}: {} parameters", model.parameter_count());
    Ok(Outcome::Clean)
}
