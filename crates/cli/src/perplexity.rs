//! `loom perplexity` compares the perplexity of a model in several dtypes and quantization formats.

use crate::ExitStatus;
use crate::command::{self, UsageError};
use crate::device::DeviceArgs;
use crate::output::outln;
use crate::run::usage_error;
use ir::DType;
use models::train::{DocumentPart, TextDataset, write_stories};
use models::{Model, QuantizationConfig, Tokenizer};
use std::path::Path;

/// Options of `loom perplexity`.
#[derive(clap::Args)]
pub(crate) struct Perplexity {
    /// A HuggingFace model directory or a GGUF file
    dir: String,
    /// Dtypes (f32, bf16, f16) and quantization formats (q8, q4, nf4, fp8, ..), separated by commas
    #[arg(long, value_name = "LIST", default_value = "f32,bf16,q8,q4,nf4")]
    formats: String,
    /// Evaluation text, a file or folder; default: synthetic stories that are not used in training
    #[arg(long, value_name = "PATH")]
    data: Option<String>,
    /// Tokens per sequence
    #[arg(long, alias = "seq", value_name = "N", default_value = "128", value_parser = command::size)]
    seq_len: usize,
    /// Maximum number of tokens to evaluate
    #[arg(long, alias = "most", value_name = "N", default_value = "32768", value_parser = command::size)]
    max_tokens: usize,
    #[command(flatten)]
    precise: crate::compile::PrecisionArgs,
    #[command(flatten)]
    machine: DeviceArgs,
}

/// The storage format of the parameters: a dtype or a quantization format.
enum WeightFormat {
    Unquantized(DType),
    Quantized(QuantizationConfig),
}

fn parse_weight_format(name: &str) -> Result<WeightFormat, UsageError> {
    Ok(match name {
        "f32" => WeightFormat::Unquantized(DType::F32),
        "bf16" => WeightFormat::Unquantized(DType::BF16),
        "f16" => WeightFormat::Unquantized(DType::F16),
        other => {
            WeightFormat::Quantized(other.parse().map_err(|why| UsageError(format!("`--formats`: `{other}` {why}")))?)
        }
    })
}

/// The seed of the stories for evaluation. Training uses small seeds, so it never generates the same stories.
const EVALUATION_SEED: u64 = 0x5EED_0F57_0121_E5;

/// Returns at most `most` token IDs of the text of a file or folder, or of generated stories if none is given.
pub(crate) fn evaluation_tokens(
    data: Option<&str>,
    most: usize,
    tokenizer: &Tokenizer,
) -> Result<Vec<i32>, UsageError> {
    // A token has at least one byte.
    let text = match data {
        None => write_stories(EVALUATION_SEED, most.saturating_mul(8).max(1 << 16)),
        Some(path) => {
            let mut all = String::new();
            let texts = TextDataset::open(Path::new(path)).map_err(usage_error)?;
            texts
                .documents(|part| {
                    if let DocumentPart::Text(text) = part {
                        all.push_str(text);
                    }
                    Ok(all.len() < most.saturating_mul(16))
                })
                .map_err(usage_error)?;
            all
        }
    };
    let mut ids = tokenizer.encode(&text).map_err(usage_error)?;
    ids.truncate(most);
    Ok(ids)
}

pub(crate) fn perplexity(args: &Perplexity) -> Result<ExitStatus, UsageError> {
    let dir = Path::new(&args.dir);
    let names: Vec<&str> = args.formats.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let formats = names.iter().map(|name| parse_weight_format(name)).collect::<Result<Vec<_>, _>>()?;
    let tokenizer = Tokenizer::from_dir(dir).map_err(usage_error)?;
    let ids = evaluation_tokens(args.data.as_deref(), args.max_tokens, &tokenizer)?;
    let rows: Vec<Vec<i32>> = ids.chunks_exact(args.seq_len).map(<[i32]>::to_vec).collect();
    if rows.is_empty() {
        return Err(UsageError(format!(
            "the text has {} tokens, fewer than one sequence of {}: give more text or a smaller `--seq-len`",
            ids.len(),
            args.seq_len
        )));
    }
    let backend = args.machine.open()?;
    outln!("{} sequences of {} tokens", rows.len(), args.seq_len);
    outln!("{:<10}{:>10}{:>12}{:>10}", "format", "loss", "perplexity", "vs. first");
    let mut first = None;
    for (name, format) in names.iter().zip(formats) {
        let dtype = if let WeightFormat::Unquantized(dtype) = format { dtype } else { DType::F32 };
        let mut model = Model::load(dir, dtype).map_err(usage_error)?;
        if let WeightFormat::Quantized(scheme) = &format {
            model.quantize(scheme).map_err(usage_error)?;
        }
        if let Some(recipe) = args.precise.recipe()? {
            model = model.with_recipe(recipe);
        }
        let loss = model.mean_loss(&rows, 8, &*backend).map_err(usage_error)?;
        let base = *first.get_or_insert(loss);
        outln!("{name:<10}{loss:>10.5}{:>12.4}{:>9.2}%", loss.exp(), ((loss - base).exp() - 1.0) * 100.0);
    }
    Ok(ExitStatus::Success)
}
