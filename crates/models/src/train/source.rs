//! The source of a run's batches: token streams or examples, from one data set or a weighted mixture.
//!
//! All batches are a function of the seed and a position that counts rows, so a run can be resumed at any step, also in the
//! middle of an epoch over many files, with bitwise equal results.

use super::batches::{Batch, BatchSampler, validation_batches};
use super::examples::ExampleDataset;
use super::mixture::DatasetMixture;
use super::objective_kind::Objective;
use super::settings::TrainSettings;
use super::text::TextDataset;
use super::tokens::{ReadProgress, TokenDataset};
use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use crate::pooling::PoolingMode;
use crate::random::SplitMix64;
use crate::tokenizer::Tokenizer;
use std::path::{Path, PathBuf};

/// The random streams of masks in training and in validation.
const MASK_STREAM: u64 = 1 << 43;
const VALIDATION_MASK_STREAM: u64 = 1 << 44;
/// Names of mask tokens; the last is used for models without one.
const MASK_TOKEN_NAMES: &[&str] = &["[MASK]", "<mask>", "<|mask|>", "_"];

/// The data of a run.
pub(crate) struct TrainData {
    sets: Vec<DataSet>,
    mix: DatasetMixture,
    aim: Objective,
    masks: Option<TokenMasking>,
}

enum DataSet {
    Ids { tokens: TokenDataset, batches: BatchSampler, end: Option<i32> },
    Examples(ExampleDataset),
}

/// How tokens are masked.
struct TokenMasking {
    share: f64,
    token: i32,
    vocabulary: usize,
    seq: usize,
    seed: u64,
}

/// Parses a list of data sets: a path, or several with weights, `a.jsonl=0.7,b=0.3`.
pub(crate) fn parse_data_sets(text: &str) -> Result<Vec<(PathBuf, f64)>> {
    if Path::new(text).exists() || !text.contains([',', '=']) {
        return Ok(vec![(text.into(), 1.0)]);
    }
    let mut found = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (path, weight) = match word.rsplit_once('=').filter(|_| !Path::new(word).exists()) {
            None => (word, 1.0),
            Some((path, weight)) => match weight.trim().parse::<f64>() {
                Ok(weight) if weight > 0.0 && weight.is_finite() => (path.trim(), weight),
                _ => {
                    return Err(Error::Input(format!(
                        "`data`: the weight of {path} must be a positive number, got `{weight}`"
                    )));
                }
            },
        };
        found.push((path.into(), weight));
    }
    match found.is_empty() {
        true => Err(Error::Input("`data` names no file or folder".into())),
        false => Ok(found),
    }
}

impl TrainData {
    /// Prepares the data: tokenizes data that is not cached. `texts` are the data sets with their weights.
    pub(crate) fn prepare(
        settings: &TrainSettings,
        texts: &[(TextDataset, f64)],
        (tokenizer, template): (&Tokenizer, &ChatTemplate),
        (vocabulary, pooling): (usize, PoolingMode),
        folder: &Path,
        reading: ReadProgress<'_>,
    ) -> Result<TrainData> {
        let (aim, seq, seed) = (settings.objective, settings.seq, settings.seed);
        let rows_only = matches!(
            aim,
            Objective::Dpo { .. } | Objective::Orpo { .. } | Objective::Classify { .. } | Objective::Contrastive { .. }
        );
        let mut sets = Vec::new();
        for (i, (texts, _)) in texts.iter().enumerate() {
            let own = if i == 0 { folder.to_path_buf() } else { folder.join(i.to_string()) };
            let examples = rows_only
                || matches!(aim, Objective::CausalLm | Objective::Distill { .. }) && texts.holds_examples()?;
            sets.push(match examples {
                true => DataSet::Examples(ExampleDataset::prepare(
                    texts,
                    (tokenizer, template),
                    (aim, seq, seed, pooling),
                    &own,
                    &mut *reading,
                )?),
                false => {
                    let tokens = TokenDataset::prepare(texts, tokenizer, vocabulary, &own, &mut *reading)?;
                    let batches = BatchSampler::new(&tokens, seq, tokenizer.eos_id(), seed)?;
                    DataSet::Ids { tokens, batches, end: tokenizer.eos_id() }
                }
            });
        }
        let masks = match aim {
            Objective::MaskedLm { share } => {
                let token = MASK_TOKEN_NAMES.iter().find_map(|name| tokenizer.id(name)).ok_or_else(|| {
                    Error::Input("`masked-lm` needs a tokenizer with a mask token: [MASK] or <mask>".into())
                })?;
                Some(TokenMasking { share, token, vocabulary, seq, seed })
            }
            _ => None,
        };
        let weights: Vec<f64> = texts.iter().map(|(_, weight)| *weight).collect();
        Ok(TrainData { sets, mix: DatasetMixture::new(&weights, seed), aim, masks })
    }

    /// A checksum of the data and the tokenizer.
    pub(crate) fn fingerprint(&self) -> u32 {
        let each = |set: &DataSet| match set {
            DataSet::Ids { tokens, .. } => tokens.fingerprint(),
            DataSet::Examples(examples) => examples.fingerprint(),
        };
        match &self.sets[..] {
            [one] => each(one),
            all => {
                let mut hasher = crc32fast::Hasher::new();
                all.iter().for_each(|set| hasher.update(&each(set).to_le_bytes()));
                hasher.finalize()
            }
        }
    }

    /// Sizes of the training set and the validation set, in tokens or examples.
    pub(crate) fn counts(&self) -> [usize; 2] {
        self.sets.iter().fold([0, 0], |[train, valid], set| {
            let [a, b] = match set {
                DataSet::Ids { tokens, .. } => [tokens.train_len(), tokens.valid_len()],
                DataSet::Examples(examples) => examples.counts().map(|n| n as usize),
            };
            [train + a, valid + b]
        })
    }

    /// The unit of these sizes.
    pub(crate) fn unit(&self) -> &'static str {
        match self.sets.iter().all(|set| matches!(set, DataSet::Examples(_))) {
            true => "examples",
            false => "tokens",
        }
    }

    /// Number of examples without trainable tokens within the sequence length.
    pub(crate) fn num_skipped(&self) -> u64 {
        let each = |set: &DataSet| if let DataSet::Examples(examples) = set { examples.skipped } else { 0 };
        self.sets.iter().map(each).sum()
    }

    /// Number of examples whose answer starts before the end of their prompt's tokens.
    pub(crate) fn num_misaligned(&self) -> u64 {
        let each = |set: &DataSet| if let DataSet::Examples(examples) = set { examples.misaligned } else { 0 };
        self.sets.iter().map(each).sum()
    }

    /// The class names that were found.
    pub(crate) fn classes(&self) -> Vec<String> {
        let each = |set: &DataSet| match set {
            DataSet::Examples(examples) => examples.classes().to_vec(),
            DataSet::Ids { .. } => Vec::new(),
        };
        self.sets.iter().map(each).max_by_key(Vec::len).unwrap_or_default()
    }

    /// Fills a batch with the rows from a position on.
    pub(crate) fn fill(&self, position: u64, rows: usize, batch: &mut Batch) -> Result<()> {
        batch.ids.clear();
        batch.labels.clear();
        let each = self.aim.rows_per_example() as u64;
        for at in (position / each..).take(rows / each as usize) {
            let (set, place) = self.mix.dataset_at(at);
            match &self.sets[set] {
                DataSet::Ids { tokens, batches, .. } => batches.add(tokens, place, batch)?,
                DataSet::Examples(examples) => examples.add(place, batch)?,
            }
        }
        if let Some(masks) = &self.masks {
            masks.mask_batch(batch, MASK_STREAM + position);
        }
        Ok(())
    }

    /// Batches from the validation sets of all data sets.
    pub(crate) fn validation_batches(&self, rows: usize, most: usize) -> Result<Vec<Batch>> {
        let mut found = Vec::new();
        for (i, set) in self.sets.iter().enumerate() {
            let share = most * (i + 1) / self.sets.len() - most * i / self.sets.len();
            found.extend(match set {
                DataSet::Ids { tokens, batches, end } => {
                    validation_batches(tokens, batches.length(), *end, rows, share.max(1))?
                }
                DataSet::Examples(examples) => examples.validation_batches(rows, share.max(1))?,
            });
        }
        if let Some(masks) = &self.masks {
            for (i, batch) in found.iter_mut().enumerate() {
                masks.mask_batch(batch, VALIDATION_MASK_STREAM + i as u64 * rows as u64);
            }
        }
        Ok(found)
    }
}

impl TokenMasking {
    /// Masks tokens of each row, which become its labels: most by the mask token, some by a random one, some not at all, as in BERT.
    fn mask_batch(&self, batch: &mut Batch, stream: u64) {
        let rows = batch.ids.chunks_mut(self.seq).zip(batch.labels.chunks_mut(self.seq));
        for (i, (ids, labels)) in rows.enumerate() {
            let mut random = SplitMix64::new(self.seed, stream + i as u64);
            // Padding positions after the end of the data are unchanged.
            let real = labels.iter().take_while(|label| **label >= 0).count();
            let sure = if real == 0 { 0 } else { random.below(real) };
            for at in 0..ids.len() {
                labels[at] = -100;
                if at < real && (random.uniform() < self.share || at == sure) {
                    labels[at] = ids[at];
                    match random.below(10) {
                        0..8 => ids[at] = self.token,
                        8 => ids[at] = random.below(self.vocabulary) as i32,
                        _ => {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_weights_are_read() {
        let check = |text: &str, expected: &[(&str, f64)]| {
            let expected: Vec<(PathBuf, f64)> = expected.iter().map(|(path, weight)| (path.into(), *weight)).collect();
            assert_eq!(parse_data_sets(text).unwrap_or_else(|e| panic!("{e}")), expected);
        };
        check("no/such/file.txt", &[("no/such/file.txt", 1.0)]);
        check("a.jsonl=0.7,b=0.3", &[("a.jsonl", 0.7), ("b", 0.3)]);
        check("a.jsonl, b.parquet", &[("a.jsonl", 1.0), ("b.parquet", 1.0)]);
        for wrong in ["a=0,b=1", "a=x,b", "a=inf,b", ","] {
            assert!(parse_data_sets(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn masks_take_their_share_and_no_more() {
        let masks = TokenMasking { share: 0.15, token: 3, vocabulary: 100, seq: 200, seed: 5 };
        let ids: Vec<i32> = (0..4000).map(|i| 10 + i % 90).collect();
        let mut labels = ids.clone();
        labels[3900..].fill(-100);
        let mut batch = Batch { ids: ids.clone(), labels };
        masks.mask_batch(&mut batch, 77);
        let (mut chosen, mut masked, mut kept) = (0, 0, 0);
        for (at, (id, label)) in batch.ids.iter().zip(&batch.labels).enumerate() {
            if *label == -100 {
                assert_eq!(*id, ids[at]);
                continue;
            }
            assert!(*label == ids[at] && at < 3900);
            chosen += 1;
            masked += usize::from(*id == 3);
            kept += usize::from(*id == ids[at]);
        }
        assert!((450..750).contains(&chosen), "{chosen}");
        assert!(masked * 10 > chosen * 7 && masked * 10 < chosen * 9 && kept > 0, "{masked} {kept} {chosen}");
        let mut again = Batch { ids: ids.clone(), labels: ids };
        again.labels[3900..].fill(-100);
        masks.mask_batch(&mut again, 77);
        assert_eq!(again, batch);
    }
}
