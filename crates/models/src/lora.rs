//! LoRA: `W + α/r · B·A`.

use crate::adapter::string_list;
use crate::error::{Error, Result};
use crate::random::SplitMix64;
use ir::{Builder, Value};
use serde_json::Value as Json;

/// The maximum rank; a larger one than that of any matrix is a mistake.
const MAX_RANK: usize = 1 << 16;

/// Options of a LoRA adapter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LoraOptions {
    /// Rank of the update.
    pub rank: usize,
    /// The update is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The dropout probability of the update's inputs during training.
    pub dropout: f64,
    /// Target modules by the last part of their name, with or without `_proj`: `q`, `v_proj`.
    pub targets: Vec<String>,
}

impl LoraOptions {
    /// Parses `rank=8,alpha=16,dropout=0.1,targets=q,v`.
    pub fn parse(text: &str) -> Result<LoraOptions> {
        let fault = |what: String| Error::Input(format!("{what}: write it as rank=8,alpha=16,dropout=0.1,targets=q,v"));
        let mut options = LoraOptions { rank: 8, alpha: 16.0, dropout: 0.0, targets: Vec::new() };
        let mut in_targets = false;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None if in_targets => options.targets.push(word.to_string()),
                Some(("rank", value)) => {
                    let rank = value.parse().ok().filter(|rank| (1..=MAX_RANK).contains(rank));
                    let what = || format!("rank `{value}` must be a positive integer up to {MAX_RANK}");
                    options.rank = rank.ok_or_else(|| fault(what()))?;
                }
                Some(("alpha", value)) => {
                    let alpha = value.parse().ok().filter(|alpha: &f64| alpha.is_finite());
                    options.alpha = alpha.ok_or_else(|| fault(format!("alpha `{value}` must be a number")))?;
                }
                Some(("dropout", value)) => {
                    let share = value.parse().ok().filter(|share| (0.0..1.0).contains(share));
                    options.dropout =
                        share.ok_or_else(|| fault(format!("dropout `{value}` must be at least 0 and less than 1")))?;
                }
                Some(("targets", value)) => options.targets.push(value.to_string()),
                _ => return Err(fault(format!("unknown LoRA option `{word}`"))),
            }
            in_targets = word.starts_with("targets=") || in_targets && !word.contains('=');
        }
        if options.targets.is_empty() {
            options.targets = vec!["q".into(), "v".into()];
        }
        Ok(options)
    }

    /// Parses PEFT's configuration.
    pub(crate) fn read(config: &Json) -> std::result::Result<LoraOptions, String> {
        for (field, name) in [("use_dora", "DoRA"), ("use_rslora", "rank-stabilized LoRA")] {
            if config.get(field).and_then(Json::as_bool) == Some(true) {
                return Err(format!("{name} is not supported yet"));
            }
        }
        for field in ["rank_pattern", "alpha_pattern"] {
            if config.get(field).and_then(Json::as_object).is_some_and(|map| !map.is_empty()) {
                return Err(format!("`{field}` is not supported yet"));
            }
        }
        if config.get("bias").and_then(Json::as_str).is_some_and(|bias| bias != "none") {
            return Err("adapters with trained biases are not supported yet".into());
        }
        let rank = config.get("r").and_then(Json::as_u64).ok_or("the rank `r` is missing")?;
        if !(1..=MAX_RANK as u64).contains(&rank) {
            return Err(format!("the rank `r` is {rank}, but it must be from 1 to {MAX_RANK}"));
        }
        let alpha = config.get("lora_alpha").and_then(Json::as_f64).filter(|alpha| alpha.is_finite());
        let alpha = alpha.ok_or("the number `lora_alpha` is missing")?;
        let dropout = config.get("lora_dropout").and_then(Json::as_f64).unwrap_or(0.0);
        if !(0.0..1.0).contains(&dropout) {
            return Err(format!("`lora_dropout` is {dropout}, but it must be at least 0 and less than 1"));
        }
        Ok(LoraOptions { rank: rank as usize, alpha, dropout, targets: string_list(config, "target_modules")? })
    }

    pub(crate) fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// The initial values of A and B: B is zero.
    pub(crate) fn init_matrices(&self, [out, inner]: [usize; 2], random: &mut SplitMix64) -> [Vec<f32>; 2] {
        let bound = 1.0 / (inner as f64).sqrt();
        let a = (0..self.rank * inner).map(|_| (bound * (2.0 * random.uniform() - 1.0)) as f32).collect();
        [a, vec![0.0; out * self.rank]]
    }

    /// Returns the weight at (out, in) with the update added.
    pub(crate) fn merge_into<'a>(
        &self,
        [_, inner]: [usize; 2],
        values: &'a [Vec<f32>],
    ) -> impl Fn(usize, usize, f64) -> f64 + use<'a> {
        let (rank, scale) = (self.rank, self.scale());
        move |o, i, weight| {
            let (a, b) = (&values[0], &values[1]);
            let products = (0..rank).map(|r| f64::from(b[o * rank + r]) * f64::from(a[r * inner + i]));
            weight + scale * products.sum::<f64>()
        }
    }

    /// The term that is added to a projection of `x` `[.., in]`: `[.., out]`.
    pub(crate) fn delta(&self, b: &mut Builder, x: Value, ab: &[Value]) -> ir::Result<Value> {
        train::lora::delta(b, x, [ab[0], ab[1]], self.scale())
    }
}

impl std::fmt::Display for LoraOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank={},alpha={},", self.rank, self.alpha)?;
        if self.dropout != 0.0 {
            write!(f, "dropout={},", self.dropout)?;
        }
        write!(f, "targets={}", self.targets.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_written() {
        let options = LoraOptions::parse("rank=4,alpha=32,targets=q,v_proj").expect("valid");
        let targets = vec!["q".into(), "v_proj".into()];
        assert_eq!(options, LoraOptions { rank: 4, alpha: 32.0, dropout: 0.0, targets });
        assert_eq!(options.to_string(), "rank=4,alpha=32,targets=q,v_proj");
        let dropped = LoraOptions::parse("targets=q,dropout=0.25").expect("valid");
        assert_eq!((dropped.dropout, dropped.targets.len()), (0.25, 1));
        assert_eq!(LoraOptions::parse(&dropped.to_string()).expect("valid"), dropped);
        for wrong in ["rank=0", "rank=x", "alpha=y", "depth=3", "q", "dropout=1", "dropout=-0.1", "dropout=x"] {
            assert!(LoraOptions::parse(wrong).is_err(), "{wrong}");
        }
    }
}
