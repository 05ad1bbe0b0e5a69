//! Where a run's batches come from: streams of ids or examples, one set or several by weight.
//!
//! Everything is a function of the seed and a position that counts rows, so a run goes on anywhere, in the middle of a pass
//! over many files too, with the bits of a run that never stopped.

use super::aim::Aim;
use super::batches::{Batch, Batches, held_out};
use super::examples::Examples;
use super::mix::Mix;
use super::settings::Settings;
use super::text::Texts;
use super::tokens::{Reading, Tokens};
use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use crate::pooling::Mode;
use crate::random::Random;
use crate::tokenizer::Tokenizer;
use std::path::{Path, PathBuf};

/// Random streams of masks: those of training, and those of validation.
const MASKS: u64 = 1 << 43;
const HELD_OUT_MASKS: u64 = 1 << 44;
/// Names of tokens that stand for what is masked; the last is what models without one are taught with.
const MASK_TOKENS: &[&str] = &["[MASK]", "<mask>", "<|mask|>", "_"];

/// The data of a run.
pub(crate) struct Source {
    sets: Vec<Set>,
    mix: Mix,
    aim: Aim,
    masks: Option<Masks>,
}

enum Set {
    Ids { tokens: Tokens, batches: Batches, end: Option<i32> },
    Examples(Examples),
}

/// How ids are masked.
struct Masks {
    share: f64,
    token: i32,
    vocabulary: usize,
    seq: usize,
    seed: u64,
}

/// Sets of data as a setting names them: a path, or several with weights, `a.jsonl=0.7,b=0.3`.
pub(crate) fn sets(text: &str) -> Result<Vec<(PathBuf, f64)>> {
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

impl Source {
    /// Makes the data ready: encodes what is not yet encoded. `texts` are the sets with their weights.
    pub(crate) fn prepare(
        settings: &Settings,
        texts: &[(Texts, f64)],
        (tokenizer, template): (&Tokenizer, &ChatTemplate),
        (vocabulary, pooling): (usize, Mode),
        folder: &Path,
        reading: Reading<'_>,
    ) -> Result<Source> {
        let (aim, seq, seed) = (settings.objective, settings.seq, settings.seed);
        let rows_only = matches!(aim, Aim::Dpo { .. } | Aim::Orpo { .. } | Aim::Classify { .. } | Aim::Contrast { .. });
        let mut sets = Vec::new();
        for (i, (texts, _)) in texts.iter().enumerate() {
            let own = if i == 0 { folder.to_path_buf() } else { folder.join(i.to_string()) };
            let examples = rows_only || matches!(aim, Aim::Next | Aim::Distill { .. }) && texts.holds_examples()?;
            sets.push(match examples {
                true => Set::Examples(Examples::prepare(
                    texts,
                    (tokenizer, template),
                    (aim, seq, seed, pooling),
                    &own,
                    &mut *reading,
                )?),
                false => {
                    let tokens = Tokens::prepare(texts, tokenizer, vocabulary, &own, &mut *reading)?;
                    let batches = Batches::new(&tokens, seq, tokenizer.end(), seed)?;
                    Set::Ids { tokens, batches, end: tokenizer.end() }
                }
            });
        }
        let masks = match aim {
            Aim::Masked { share } => {
                let token = MASK_TOKENS.iter().find_map(|name| tokenizer.id(name)).ok_or_else(|| {
                    Error::Input("`masked-lm` needs a tokenizer with a mask token: [MASK] or <mask>".into())
                })?;
                Some(Masks { share, token, vocabulary, seq, seed })
            }
            _ => None,
        };
        let weights: Vec<f64> = texts.iter().map(|(_, weight)| *weight).collect();
        Ok(Source { sets, mix: Mix::new(&weights, seed), aim, masks })
    }

    /// A number that changes when the data or what encodes it does.
    pub(crate) fn fingerprint(&self) -> u32 {
        let each = |set: &Set| match set {
            Set::Ids { tokens, .. } => tokens.fingerprint(),
            Set::Examples(examples) => examples.fingerprint(),
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

    /// What there is to train on and what is held out, in tokens or examples.
    pub(crate) fn counts(&self) -> [usize; 2] {
        self.sets.iter().fold([0, 0], |[train, valid], set| {
            let [a, b] = match set {
                Set::Ids { tokens, .. } => [tokens.train_len(), tokens.valid_len()],
                Set::Examples(examples) => examples.counts().map(|n| n as usize),
            };
            [train + a, valid + b]
        })
    }

    /// What is counted.
    pub(crate) fn unit(&self) -> &'static str {
        match self.sets.iter().all(|set| matches!(set, Set::Examples(_))) {
            true => "examples",
            false => "tokens",
        }
    }

    /// Examples of which nothing is learned within a sequence.
    pub(crate) fn left_out(&self) -> u64 {
        let each = |set: &Set| if let Set::Examples(examples) = set { examples.left_out } else { 0 };
        self.sets.iter().map(each).sum()
    }

    /// Examples whose answer begins before the end of their prompt's tokens.
    pub(crate) fn crossed(&self) -> u64 {
        let each = |set: &Set| if let Set::Examples(examples) = set { examples.crossed } else { 0 };
        self.sets.iter().map(each).sum()
    }

    /// Names of the classes that were found.
    pub(crate) fn classes(&self) -> Vec<String> {
        let each = |set: &Set| match set {
            Set::Examples(examples) => examples.classes().to_vec(),
            Set::Ids { .. } => Vec::new(),
        };
        self.sets.iter().map(each).max_by_key(Vec::len).unwrap_or_default()
    }

    /// The rows from a position on.
    pub(crate) fn fill(&self, position: u64, rows: usize, batch: &mut Batch) -> Result<()> {
        batch.ids.clear();
        batch.labels.clear();
        let each = self.aim.rows_each() as u64;
        for at in (position / each..).take(rows / each as usize) {
            let (set, place) = self.mix.at(at);
            match &self.sets[set] {
                Set::Ids { tokens, batches, .. } => batches.add(tokens, place, batch)?,
                Set::Examples(examples) => examples.add(place, batch)?,
            }
        }
        if let Some(masks) = &self.masks {
            masks.apply(batch, MASKS + position);
        }
        Ok(())
    }

    /// Batches of what is held out, of all sets.
    pub(crate) fn held_out(&self, rows: usize, most: usize) -> Result<Vec<Batch>> {
        let mut found = Vec::new();
        for (i, set) in self.sets.iter().enumerate() {
            let share = most * (i + 1) / self.sets.len() - most * i / self.sets.len();
            found.extend(match set {
                Set::Ids { tokens, batches, end } => held_out(tokens, batches.length(), *end, rows, share.max(1))?,
                Set::Examples(examples) => examples.held_out(rows, share.max(1))?,
            });
        }
        if let Some(masks) = &self.masks {
            for (i, batch) in found.iter_mut().enumerate() {
                masks.apply(batch, HELD_OUT_MASKS + i as u64 * rows as u64);
            }
        }
        Ok(found)
    }
}

impl Masks {
    /// Masks ids of each row, which are then its labels: most by the token, some by another id, some not at all, as BERT's.
    fn apply(&self, batch: &mut Batch, stream: u64) {
        let rows = batch.ids.chunks_mut(self.seq).zip(batch.labels.chunks_mut(self.seq));
        for (i, (ids, labels)) in rows.enumerate() {
            let mut random = Random::new(self.seed, stream + i as u64);
            // Places behind the end of the data stay what they are.
            let real = labels.iter().take_while(|label| **label >= 0).count();
            let sure = if real == 0 { 0 } else { random.below(real) };
            for at in 0..ids.len() {
                labels[at] = -100;
                if at < real && (random.unit() < self.share || at == sure) {
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
            assert_eq!(sets(text).unwrap_or_else(|e| panic!("{e}")), expected);
        };
        check("no/such/file.txt", &[("no/such/file.txt", 1.0)]);
        check("a.jsonl=0.7,b=0.3", &[("a.jsonl", 0.7), ("b", 0.3)]);
        check("a.jsonl, b.parquet", &[("a.jsonl", 1.0), ("b.parquet", 1.0)]);
        for wrong in ["a=0,b=1", "a=x,b", "a=inf,b", ","] {
            assert!(sets(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn masks_take_their_share_and_no_more() {
        let masks = Masks { share: 0.15, token: 3, vocabulary: 100, seq: 200, seed: 5 };
        let ids: Vec<i32> = (0..4000).map(|i| 10 + i % 90).collect();
        let mut labels = ids.clone();
        labels[3900..].fill(-100);
        let mut batch = Batch { ids: ids.clone(), labels };
        masks.apply(&mut batch, 77);
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
        masks.apply(&mut again, 77);
        assert_eq!(again, batch);
    }
}
