//! IA³: a vector that scales the outputs of a projection, or its inputs in the feed-forward block.
//!
//! Both scale the weight: its rows (and the bias), or its columns.

use crate::adapter::{matches_target, string_list};
use crate::error::{Error, Result};
use serde_json::Value as Json;

/// Options of an IA³ adapter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ia3Options {
    /// Target modules by the last part of their name, with or without `_proj`: `k`, `down_proj`.
    pub targets: Vec<String>,
    /// The targets whose inputs are scaled, not their outputs.
    pub feedforward: Vec<String>,
}

impl Ia3Options {
    /// Parses `targets=k,v,down,feedforward=down`, which is also the default.
    pub fn parse(text: &str) -> Result<Ia3Options> {
        let fault = |what: String| Error::Input(format!("{what}: write it as targets=k,v,down,feedforward=down"));
        let mut options = Ia3Options { targets: Vec::new(), feedforward: Vec::new() };
        let mut list = None;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let name = match word.split_once('=') {
                Some((key @ ("targets" | "feedforward"), name)) => {
                    list = Some(key);
                    name
                }
                Some(_) => return Err(fault(format!("unknown IA3 option `{word}`"))),
                None => word,
            };
            match list {
                Some("targets") => options.targets.push(name.to_string()),
                Some(_) => options.feedforward.push(name.to_string()),
                None => return Err(fault(format!("`{word}` has no option name before it"))),
            }
        }
        if options.targets.is_empty() && options.feedforward.is_empty() {
            options.targets = ["k", "v", "down"].map(String::from).to_vec();
            options.feedforward = vec!["down".into()];
        }
        options.checked().map_err(fault)
    }

    /// Parses PEFT's configuration.
    pub(crate) fn read(config: &Json) -> std::result::Result<Ia3Options, String> {
        let feedforward = match config.get("feedforward_modules") {
            None | Some(Json::Null) => Vec::new(),
            Some(_) => string_list(config, "feedforward_modules")?,
        };
        Ia3Options { targets: string_list(config, "target_modules")?, feedforward }.checked()
    }

    fn checked(self) -> std::result::Result<Ia3Options, String> {
        match self.feedforward.iter().find(|name| !self.targets.contains(name)) {
            Some(name) => Err(format!("`{name}` is in `feedforward`, but is no target: add it to `targets`")),
            None => Ok(self),
        }
    }

    /// Whether a module's inputs are scaled.
    pub(crate) fn is_feedforward(&self, module: &str) -> bool {
        self.feedforward.iter().any(|name| matches_target(name, module))
    }

    /// Returns the scaled weight at (out, in).
    pub(crate) fn merged<'a>(
        &self,
        module: &str,
        values: &'a [Vec<f32>],
    ) -> impl Fn(usize, usize, f64) -> f64 + use<'a> {
        let inputs = self.is_feedforward(module);
        move |o, i, weight| weight * f64::from(values[0][if inputs { i } else { o }])
    }
}

impl std::fmt::Display for Ia3Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "targets={}", self.targets.join(","))?;
        if !self.feedforward.is_empty() {
            write!(f, ",feedforward={}", self.feedforward.join(","))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_written() {
        let options = Ia3Options::parse("targets=k,v,down,feedforward=down").expect("valid");
        assert_eq!(options, Ia3Options::parse("").expect("the usual"));
        assert_eq!(Ia3Options::parse(&options.to_string()).expect("valid"), options);
        assert!(options.is_feedforward("x.mlp.down_proj") && !options.is_feedforward("x.self_attn.k_proj"));
        for wrong in ["k", "rank=4", "targets=k,feedforward=down"] {
            assert!(Ia3Options::parse(wrong).is_err(), "{wrong}");
        }
    }
}
