//! IA³: a vector that multiplies what a projection gives, or what it takes where it stands in the feed-forward.
//!
//! Both are a factor of the weight: of its rows (and the bias), or of its columns.

use crate::adapter::{means, names};
use crate::error::{Error, Result};
use serde_json::Value as Json;

/// What may be chosen about an adapter of factors.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ia3Options {
    /// Modules by the last part of their name, with or without `_proj`: `k`, `down_proj`.
    pub targets: Vec<String>,
    /// Those of them whose inputs are multiplied, not their results.
    pub feedforward: Vec<String>,
}

impl Ia3Options {
    /// Reads `targets=k,v,down,feedforward=down`; without words, that is what is meant.
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
                Some(_) => return Err(fault(format!("`{word}` means nothing to an adapter of factors"))),
                None => word,
            };
            match list {
                Some("targets") => options.targets.push(name.to_string()),
                Some(_) => options.feedforward.push(name.to_string()),
                None => return Err(fault(format!("`{word}` belongs to no list"))),
            }
        }
        if options.targets.is_empty() && options.feedforward.is_empty() {
            options.targets = ["k", "v", "down"].map(String::from).to_vec();
            options.feedforward = vec!["down".into()];
        }
        options.checked().map_err(fault)
    }

    /// What PEFT's configuration says.
    pub(crate) fn read(config: &Json) -> std::result::Result<Ia3Options, String> {
        let feedforward = match config.get("feedforward_modules") {
            None | Some(Json::Null) => Vec::new(),
            Some(_) => names(config, "feedforward_modules")?,
        };
        Ia3Options { targets: names(config, "target_modules")?, feedforward }.checked()
    }

    fn checked(self) -> std::result::Result<Ia3Options, String> {
        match self.feedforward.iter().find(|name| !self.targets.contains(name)) {
            Some(name) => Err(format!("`{name}` stands in the feed-forward list, but is no target")),
            None => Ok(self),
        }
    }

    /// Whether a module's inputs are multiplied.
    pub(crate) fn is_feedforward(&self, module: &str) -> bool {
        self.feedforward.iter().any(|name| means(name, module))
    }

    /// A weight at (out, in) times its factor.
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
