//! What a model is trained for: the next token, or something else that its settings name.
//!
//! Every aim reads a batch of ids and labels of one shape, so that the step, accumulation and checkpoints are the same for
//! all. What labels mean differs; `losses` has the formulas.
//!
//! | aim | rows of a batch | labels |
//! | --- | --- | --- |
//! | next, distill | sequences | the id that follows |
//! | dpo, orpo | a chosen and a rejected answer, in turns | the id that follows in answers; -100 in prompts, [`PAD`] behind the end |
//! | classify | sequences | the class at the last id |
//! | mlm | sequences with ids masked | the id that was there, at masked places |
//! | contrast | a text and its like, in turns | 1 at every id of the text |

use super::batches::Batch;
use crate::error::{Error, Result};
use std::fmt;

/// The label of places behind the end of a text.
pub const PAD: i32 = -101;

/// What a model is trained for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Aim {
    /// The next token.
    #[default]
    Next,
    /// Answers that people preferred, against a reference (Rafailov et al. 2023).
    Dpo {
        /// How far the model may go from the reference.
        beta: f64,
        /// Which function of the margin.
        form: DpoForm,
        /// The share of pairs whose order may be wrong.
        smoothing: f64,
    },
    /// Answers that people preferred, without a reference (Hong et al. 2024).
    Orpo {
        /// The weight of the odds.
        beta: f64,
    },
    /// What a second model would say (Agarwal et al. 2024).
    Distill {
        /// 0: the teacher's divergence from the student; 1: the student's from the teacher; between: from their mixture.
        beta: f64,
        /// Logits are divided by it.
        temperature: f64,
        /// The share of the loss on the texts themselves.
        hard: f64,
    },
    /// The class of a text, by a head of its own.
    Classify {
        /// How many there are.
        classes: usize,
    },
    /// Ids that were masked, from both sides.
    Masked {
        /// The share of ids that are.
        share: f64,
    },
    /// Like texts near each other, among those of a batch.
    Contrast {
        /// Cosines are multiplied by it.
        scale: f64,
    },
}

/// Functions of the margin between two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DpoForm {
    /// `-log σ(β·margin)`.
    Sigmoid,
    /// `max(0, 1 - β·margin)`.
    Hinge,
    /// `(margin - 1/2β)²`, of means over tokens.
    Ipo,
}

impl Aim {
    /// Reads `dpo,beta=0.1`.
    pub fn parse(text: &str) -> Result<Aim> {
        let mut words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let name = words.next().unwrap_or("causal-lm");
        let name = current(&OLD_NAMES, name);
        let mut options = Vec::new();
        for word in words {
            let pair = word.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
            let (option, value) = pair.ok_or_else(|| {
                Error::Input(format!("options of `objective` must have the form name=value, got `{word}`"))
            })?;
            options.push((current(&OLD_OPTIONS, option), value));
        }
        let mut number = |wanted: &str, default: f64, most: f64| -> Result<f64> {
            let Some(at) = options.iter().position(|(name, _)| *name == wanted) else { return Ok(default) };
            let (_, value) = options.remove(at);
            match value.parse::<f64>() {
                Ok(x) if (0.0..=most).contains(&x) => Ok(x),
                _ => {
                    Err(Error::Input(format!("`{name}`: `{wanted}` must be a number from 0 to {most}, got `{value}`")))
                }
            }
        };
        let above = |what: &str, x: f64| match x > 0.0 {
            true => Ok(x),
            false => Err(Error::Input(format!("`{name}`: `{what}` must be greater than 0, got {x}"))),
        };
        let aim = match name {
            "causal-lm" => Aim::Next,
            "dpo" => {
                let (beta, smoothing) =
                    (above("beta", number("beta", 0.1, 1e3)?)?, number("label-smoothing", 0.0, 0.5)?);
                let at = options.iter().position(|(name, _)| *name == "loss-type");
                let form = match at.map(|at| options.remove(at).1) {
                    None | Some("sigmoid") => DpoForm::Sigmoid,
                    Some("hinge") => DpoForm::Hinge,
                    Some("ipo") => DpoForm::Ipo,
                    Some(other) => {
                        return Err(Error::Input(format!(
                            "`{name}`: `loss-type` must be sigmoid, hinge or ipo, got `{other}`"
                        )));
                    }
                };
                Aim::Dpo { beta, form, smoothing }
            }
            "orpo" => Aim::Orpo { beta: number("beta", 0.1, 1e3)? },
            "distillation" => Aim::Distill {
                beta: number("beta", 0.0, 1.0)?,
                temperature: above("temperature", number("temperature", 1.0, 1e3)?)?,
                hard: number("hard-label-weight", 0.0, 1.0)?,
            },
            "classification" => {
                let classes = number("num-labels", 0.0, 1e6)?;
                if classes.fract() != 0.0 || classes == 1.0 {
                    return Err(Error::Input("`num-labels` must be an integer of at least 2".into()));
                }
                Aim::Classify { classes: classes as usize }
            }
            "masked-lm" => Aim::Masked { share: above("mlm-probability", number("mlm-probability", 0.15, 1.0)?)? },
            "contrastive" => Aim::Contrast { scale: above("scale", number("scale", 20.0, 1e4)?)? },
            other => {
                let close = lang::suggest::closest(other, NAMED.iter().copied());
                let remedy = close.map_or_else(
                    || format!("use one of {}", NAMED.join(", ")),
                    |close| format!("did you mean `{close}`?"),
                );
                return Err(Error::Input(format!("unknown objective `{other}`: {remedy}")));
            }
        };
        match options.first() {
            None => Ok(aim),
            Some((option, _)) => Err(Error::Input(format!("`{name}` has no option `{option}`"))),
        }
    }

    /// A key of the data that is prepared for it; rows don't depend on its options. Folders of prepared data have this key, so it
    /// stays the same where names on the command line change.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Aim::Next => "next",
            Aim::Dpo { .. } => "dpo",
            Aim::Orpo { .. } => "orpo",
            Aim::Distill { .. } => "distill",
            Aim::Classify { .. } => "classify",
            Aim::Masked { .. } => "mlm",
            Aim::Contrast { .. } => "contrast",
        }
    }

    /// How many rows of a batch belong together.
    pub fn rows_each(&self) -> usize {
        match self {
            Aim::Dpo { .. } | Aim::Orpo { .. } | Aim::Contrast { .. } => 2,
            _ => 1,
        }
    }

    /// Whether states are what is trained, not what a head makes of them.
    pub(crate) fn reads_states(&self) -> bool {
        matches!(self, Aim::Classify { .. } | Aim::Contrast { .. })
    }

    /// Whether a second model is asked.
    pub(crate) fn asks_second(&self) -> bool {
        matches!(self, Aim::Dpo { .. } | Aim::Distill { .. })
    }

    /// Whether labels are one of some classes, where they count.
    pub(crate) fn classes(&self, vocabulary: Option<usize>) -> Option<usize> {
        match self {
            Aim::Classify { classes } => Some(*classes),
            Aim::Contrast { .. } => Some(2),
            _ => vocabulary,
        }
    }

    /// How many terms the loss has that are means over different things.
    pub(crate) fn terms(&self) -> usize {
        if matches!(self, Aim::Orpo { .. }) { 2 } else { 1 }
    }

    /// What each term of the loss is a mean over: trained tokens, or pairs of rows. `end` is the token that divides documents which
    /// don't see each other; nothing is predicted from it.
    pub(crate) fn counts(&self, batch: &Batch, seq: usize, end: Option<i32>) -> Vec<f64> {
        let labels = || {
            let all = batch.ids.iter().zip(&batch.labels);
            all.map(|(id, label)| if end == Some(*id) { -100 } else { *label })
        };
        let trained = |label: &i32| *label >= 0;
        if self.rows_each() == 1 {
            return vec![labels().filter(trained).count() as f64];
        }
        let labels: Vec<i32> = labels().collect();
        let pairs: Vec<&[i32]> =
            labels.chunks(2 * seq.max(1)).filter(|rows| rows[..rows.len() / 2].iter().any(trained)).collect();
        let mut counts = vec![pairs.len() as f64];
        if self.terms() == 2 {
            // The chosen text: the answer, and the prompt but for its last position.
            let chosen = |rows: &&[i32]| {
                let within = |(i, label): &(usize, &i32)| trained(label) || **label != PAD && i + 1 < seq;
                rows[..seq].iter().enumerate().filter(within).count()
            };
            counts.insert(0, pairs.iter().map(chosen).sum::<usize>() as f64);
        }
        counts
    }

    /// How much a batch counts among others.
    pub(crate) fn weight(&self, batch: &Batch, seq: usize, end: Option<i32>) -> f64 {
        self.counts(batch, seq, end).last().copied().unwrap_or(0.0)
    }
}

/// Names of aims.
pub(crate) const NAMED: &[&str] =
    &["causal-lm", "masked-lm", "classification", "contrastive", "dpo", "orpo", "distillation"];

/// Earlier names, which are still accepted.
const OLD_NAMES: [(&str, &str); 5] = [
    ("next", "causal-lm"),
    ("mlm", "masked-lm"),
    ("classify", "classification"),
    ("contrast", "contrastive"),
    ("distill", "distillation"),
];

/// Earlier names of options, which are still accepted.
const OLD_OPTIONS: [(&str, &str); 5] = [
    ("form", "loss-type"),
    ("smoothing", "label-smoothing"),
    ("hard", "hard-label-weight"),
    ("classes", "num-labels"),
    ("share", "mlm-probability"),
];

/// The current name for one that may be an earlier one.
fn current<'a>(old: &[(&'static str, &'static str)], name: &'a str) -> &'a str {
    old.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Aim::Next => write!(f, "causal-lm"),
            Aim::Dpo { beta, form, smoothing } => {
                let form = match form {
                    DpoForm::Sigmoid => "sigmoid",
                    DpoForm::Hinge => "hinge",
                    DpoForm::Ipo => "ipo",
                };
                write!(f, "dpo,beta={beta},loss-type={form},label-smoothing={smoothing}")
            }
            Aim::Orpo { beta } => write!(f, "orpo,beta={beta}"),
            Aim::Distill { beta, temperature, hard } => {
                write!(f, "distillation,beta={beta},temperature={temperature},hard-label-weight={hard}")
            }
            Aim::Classify { classes } => write!(f, "classification,num-labels={classes}"),
            Aim::Masked { share } => write!(f, "masked-lm,mlm-probability={share}"),
            Aim::Contrast { scale } => write!(f, "contrastive,scale={scale}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aims_are_read_as_they_are_written() {
        for text in [
            "next",
            "dpo",
            "dpo,beta=0.5,form=ipo",
            "dpo,form=hinge,smoothing=0.1",
            "orpo,beta=0.2",
            "distill,beta=1,temperature=2,hard=0.5",
            "classify,classes=3",
            "classify",
            "mlm,share=0.3",
            "contrast,scale=5",
            "causal-lm",
            "dpo,loss-type=hinge,label-smoothing=0.1",
            "distillation,hard-label-weight=0.5",
            "classification,num-labels=3",
            "masked-lm,mlm-probability=0.3",
            "contrastive",
        ] {
            let aim = Aim::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(Aim::parse(&aim.to_string()).expect("written"), aim, "{text}");
        }
        for (old, new) in [
            ("next", "causal-lm"),
            ("dpo,form=ipo,smoothing=0.2", "dpo,loss-type=ipo,label-smoothing=0.2"),
            ("distill,hard=0.5", "distillation,hard-label-weight=0.5"),
            ("classify,classes=3", "classification,num-labels=3"),
            ("mlm,share=0.3", "masked-lm,mlm-probability=0.3"),
            ("contrast,scale=5", "contrastive,scale=5"),
        ] {
            assert_eq!(Aim::parse(old).expect(old), Aim::parse(new).expect(new), "{old}");
        }
        for (text, word) in [
            ("dqo", "`dpo`"),
            ("dpo,beta", "name=value"),
            ("dpo,beta=0", "greater than 0"),
            ("dpo,beta=x", "a number"),
            ("dpo,form=round", "sigmoid"),
            ("orpo,form=ipo", "no option `loss-type`"),
            ("classify,classes=1", "at least 2"),
            ("mlm,share=2", "from 0 to 1"),
        ] {
            let error = Aim::parse(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
