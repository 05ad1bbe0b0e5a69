//! Pools token states to one embedding: `modules.json` and the pooling's `config.json` of sentence-transformers.

use crate::error::{Error, Result};
use serde_json::{Map, Value as Json};
use std::path::Path;
use train::files;

/// A pooling mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolingMode {
    /// The mean.
    Mean,
    /// The state of the first token.
    First,
    /// The state of the last token.
    Last,
    /// The maximum of each dimension.
    Max,
    /// The sum divided by the square root of the number of tokens.
    MeanSqrt,
    /// A weighted mean: the n-th token has weight n.
    WeightedMean,
}

/// Fields of the older file format, which is a list of booleans.
const MODE_FLAGS: [(&str, PoolingMode); 6] = [
    ("pooling_mode_cls_token", PoolingMode::First),
    ("pooling_mode_mean_tokens", PoolingMode::Mean),
    ("pooling_mode_max_tokens", PoolingMode::Max),
    ("pooling_mode_mean_sqrt_len_tokens", PoolingMode::MeanSqrt),
    ("pooling_mode_weightedmean_tokens", PoolingMode::WeightedMean),
    ("pooling_mode_lasttoken", PoolingMode::Last),
];

/// Names in the newer format.
const MODE_NAMES: [(&str, PoolingMode); 6] = [
    ("cls", PoolingMode::First),
    ("mean", PoolingMode::Mean),
    ("max", PoolingMode::Max),
    ("mean_sqrt_len_tokens", PoolingMode::MeanSqrt),
    ("weightedmean", PoolingMode::WeightedMean),
    ("lasttoken", PoolingMode::Last),
];

/// The pooling of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pooling {
    pub(crate) mode: PoolingMode,
    /// Whether embeddings are normalized to length 1.
    pub(crate) normalize: bool,
    /// Why the directory's embeddings are not supported.
    pub(crate) unsupported: Option<String>,
}

impl Default for Pooling {
    /// The default, for models without a pooling configuration.
    fn default() -> Pooling {
        Pooling { mode: PoolingMode::Mean, normalize: true, unsupported: None }
    }
}

impl Pooling {
    /// Reads the pooling of a directory. An unknown module is an error only when an embedding is computed.
    pub(crate) fn of_dir(dir: &Path) -> Result<Pooling> {
        let modules = dir.join("modules.json");
        if !modules.is_file() {
            return match dir.join("1_Pooling/config.json").is_file() {
                true => Ok(Pooling { normalize: false, ..Pooling::read(dir, "1_Pooling")? }),
                false => Ok(Pooling::default()),
            };
        }
        let refused = |why: String| Pooling { unsupported: Some(why), ..Pooling::default() };
        let list: Json = read(&modules)?;
        let mut found = Pooling { normalize: false, ..Pooling::default() };
        let mut pooled = false;
        for module in list.as_array().into_iter().flatten() {
            let field = |name: &str| module.get(name).and_then(Json::as_str).unwrap_or_default();
            match field("type").rsplit('.').next().unwrap_or_default() {
                "Transformer" if field("path").is_empty() => {}
                "Pooling" if !pooled && is_inside_dir(field("path")) => {
                    (pooled, found) =
                        (true, Pooling { normalize: found.normalize, ..Pooling::read(dir, field("path"))? });
                }
                "Normalize" => found.normalize = true,
                _ => {
                    return Ok(refused(format!(
                        "{}: the module `{}` is not supported",
                        modules.display(),
                        field("type")
                    )));
                }
            }
        }
        Ok(if pooled { found } else { refused(format!("{}: no pooling module", modules.display())) })
    }

    fn read(dir: &Path, folder: &str) -> Result<Pooling> {
        let path = dir.join(folder).join("config.json");
        let json: Json = read(&path)?;
        let fields: &Map<String, Json> = json.as_object().ok_or_else(|| Error::file(&path, "not a JSON object"))?;
        let named = fields.get("pooling_mode").filter(|value| !value.is_null());
        let modes: Vec<PoolingMode> = match named {
            Some(value) => {
                let list = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                let mode = |value: &Json| {
                    MODE_NAMES.iter().find(|(name, _)| value.as_str() == Some(name)).map(|(_, mode)| *mode)
                };
                let known: Option<Vec<PoolingMode>> = list.iter().map(mode).collect();
                known.ok_or_else(|| {
                    let known: Vec<&str> = MODE_NAMES.iter().map(|(name, _)| *name).collect();
                    Error::file(&path, format!("`pooling_mode` is {value}, but it must be one of {}", known.join(", ")))
                })?
            }
            None => MODE_FLAGS
                .iter()
                .filter(|(name, _)| fields.get(*name) == Some(&Json::Bool(true)))
                .map(|(_, mode)| *mode)
                .collect(),
        };
        let mut found = Pooling { normalize: false, ..Pooling::default() };
        match &modes[..] {
            [mode] => found.mode = *mode,
            [] if named.is_none() => {}
            modes => found.unsupported = Some(format!("{}: {} pooling modes at once", path.display(), modes.len())),
        }
        Ok(found)
    }

    /// Accumulates the state of token `n` of `count`; `pooled` is empty before the first.
    pub(crate) fn add(&self, pooled: &mut Vec<f64>, row: &[f32], n: usize, count: usize) {
        let row = row.iter().map(|x| f64::from(*x));
        let weight = match self.mode {
            PoolingMode::Mean | PoolingMode::MeanSqrt | PoolingMode::Max => 1.0,
            PoolingMode::First => f64::from(u8::from(n == 0)),
            PoolingMode::Last => f64::from(u8::from(n + 1 == count)),
            PoolingMode::WeightedMean => (n + 1) as f64,
        };
        match self.mode {
            _ if pooled.is_empty() => *pooled = row.map(|x| x * weight).collect(),
            PoolingMode::Max => pooled.iter_mut().zip(row).for_each(|(most, x)| *most = most.max(x)),
            _ => pooled.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x),
        }
    }

    /// The embedding of a text after `count` states were accumulated.
    pub(crate) fn finish(&self, pooled: &[f64], count: usize) -> Vec<f32> {
        let count = count as f64;
        let divisor = match self.mode {
            PoolingMode::Mean => count,
            PoolingMode::MeanSqrt => count.sqrt(),
            PoolingMode::WeightedMean => count * (count + 1.0) / 2.0,
            PoolingMode::First | PoolingMode::Last | PoolingMode::Max => 1.0,
        };
        let length = match self.normalize {
            true => (pooled.iter().map(|x| x * x).sum::<f64>().sqrt() / divisor).max(f64::MIN_POSITIVE),
            false => 1.0,
        };
        pooled.iter().map(|x| (x / divisor / length) as f32).collect()
    }
}

fn read(path: &Path) -> Result<Json> {
    let text = files::read_text(path, files::MAX_TEXT_BYTES)?;
    serde_json::from_str(&text).map_err(|e| Error::file(path, format!("not valid JSON: {e}")))
}

/// Whether a path of `modules.json` stays inside the directory.
fn is_inside_dir(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn folder(name: &str, modules: &Json, config: &Json) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("tensorloom-pooling-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("1_Pooling")).expect("made");
        std::fs::write(dir.join("modules.json"), modules.to_string()).expect("written");
        std::fs::write(dir.join("1_Pooling/config.json"), config.to_string()).expect("written");
        dir
    }

    fn modules(types: &[(&str, &str)]) -> Json {
        let module = |(path, kind): &(&str, &str)| json!({ "path": path, "type": format!("sentence_transformers.models.{kind}") });
        types.iter().map(module).collect()
    }

    /// The expected values are sentence-transformers' formulas, computed by hand.
    #[test]
    fn states_are_pooled_as_the_directory_says() {
        let states: [&[f32]; 3] = [&[3.0, -1.0], &[0.0, 5.0], &[1.0, 2.0]];
        let both = [("", "Transformer"), ("1_Pooling", "Pooling")];
        for (n, (config, want)) in [
            (json!({ "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false }), [4.0 / 3.0, 2.0]),
            (json!({ "pooling_mode_cls_token": true }), [3.0, -1.0]),
            (json!({ "pooling_mode_lasttoken": true }), [1.0, 2.0]),
            (json!({ "pooling_mode_max_tokens": true }), [3.0, 5.0]),
            (json!({ "pooling_mode_mean_sqrt_len_tokens": true }), [4.0 / 3f64.sqrt(), 6.0 / 3f64.sqrt()]),
            (json!({ "pooling_mode_weightedmean_tokens": true }), [1.0, 2.5]),
            (json!({ "pooling_mode": "lasttoken" }), [1.0, 2.0]),
            (json!({}), [4.0 / 3.0, 2.0]),
        ]
        .into_iter()
        .enumerate()
        {
            for normalize in [false, true] {
                let list: &[(&str, &str)] = &[both[0], both[1], ("2_Normalize", "Normalize")];
                let dir = folder(&format!("{n}{normalize}"), &modules(&list[..2 + usize::from(normalize)]), &config);
                let (pooling, mut pooled) = (Pooling::of_dir(&dir).expect("known"), Vec::new());
                states.iter().enumerate().for_each(|(n, row)| pooling.add(&mut pooled, row, n, states.len()));
                let found = pooling.finish(&pooled, states.len());
                let length = if normalize { (want[0] * want[0] + want[1] * want[1]).sqrt() } else { 1.0 };
                for (found, want) in found.iter().zip(want) {
                    assert!((f64::from(*found) - want / length).abs() < 1e-6, "{config} {normalize}: {found} {want}");
                }
                std::fs::remove_dir_all(dir).expect("gone");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_named_where_embeddings_are_asked_for() {
        let dense = modules(&[("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")]);
        let outside = modules(&[("", "Transformer"), ("../1_Pooling", "Pooling")]);
        let two = json!({ "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true });
        let plain = modules(&[("", "Transformer"), ("1_Pooling", "Pooling")]);
        for (n, (modules, config, word)) in
            [(dense, json!({}), "Dense"), (outside, json!({}), "Pooling"), (plain.clone(), two, "at once")]
                .into_iter()
                .enumerate()
        {
            let dir = folder(&format!("refused{n}"), &modules, &config);
            let why = Pooling::of_dir(&dir).expect("read").unsupported.expect("refused");
            assert!(why.contains(word), "{why}");
            std::fs::remove_dir_all(dir).expect("gone");
        }
        let dir = folder("unheard", &plain, &json!({ "pooling_mode": "unheard" }));
        let error = Pooling::of_dir(&dir).expect_err("refused").to_string();
        assert!(error.contains("unheard") && error.contains("lasttoken"), "{error}");
        std::fs::remove_dir_all(&dir).expect("gone");
        assert_eq!(Pooling::of_dir(&dir).expect("absent"), Pooling::default());
    }
}
