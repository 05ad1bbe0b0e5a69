//! Training objectives: the next token, or another one selected in the settings.
//!
//! Every objective reads a batch of token IDs and labels of one shape, so that the step, gradient accumulation and checkpoints
//! are the same for all. The meaning of labels differs; `losses` has the formulas.
//!
//! | objective | rows of a batch | labels |
//! | --- | --- | --- |
//! | next, distill | sequences | the next token |
//! | dpo, orpo | alternately a chosen and a rejected answer | the next token in answers; -100 in prompts, [`PAD_LABEL`] after the end |
//! | classify | sequences | the class at the last token |
//! | mlm | sequences with masked tokens | the original token at masked positions |
//! | contrast | alternately a text and its partner | 1 at every token of the text |

use super::batches::Batch;
use crate::error::{Error, Result};
use std::fmt;

/// The label of positions after the end of a text.
pub const PAD_LABEL: i32 = -101;

/// A training objective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Objective {
    /// Next-token prediction.
    #[default]
    CausalLm,
    /// DPO: preferred answers, relative to a reference model (Rafailov et al. 2023).
    Dpo {
        /// The strength of the regularization towards the reference.
        beta: f64,
        /// The function of the margin.
        form: DpoForm,
        /// Label smoothing: the assumed fraction of pairs in wrong order.
        smoothing: f64,
    },
    /// ORPO: preferred answers, without a reference model (Hong et al. 2024).
    Orpo {
        /// The weight of the odds ratio term.
        beta: f64,
    },
    /// Distillation from a teacher model (Agarwal et al. 2024).
    Distill {
        /// 0: the forward KL divergence; 1: the reverse one; between: relative to a mixture of student and teacher.
        beta: f64,
        /// The temperature by which logits are divided.
        temperature: f64,
        /// The weight of the cross-entropy with the text itself.
        hard: f64,
    },
    /// Text classification, with a classification head.
    Classify {
        /// Number of classes.
        classes: usize,
    },
    /// Masked language modelling, with bidirectional attention.
    MaskedLm {
        /// The fraction of masked tokens.
        share: f64,
    },
    /// Contrastive learning of embeddings, with in-batch negatives.
    Contrastive {
        /// The factor of cosine similarities.
        scale: f64,
    },
}

/// The function of the margin between two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DpoForm {
    /// `-log σ(β·margin)`.
    Sigmoid,
    /// `max(0, 1 - β·margin)`.
    Hinge,
    /// `(margin - 1/2β)²`, of means over tokens.
    Ipo,
}

impl Objective {
    /// Parses `dpo,beta=0.1`.
    pub fn parse(text: &str) -> Result<Objective> {
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
            "causal-lm" => Objective::CausalLm,
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
                Objective::Dpo { beta, form, smoothing }
            }
            "orpo" => Objective::Orpo { beta: number("beta", 0.1, 1e3)? },
            "distillation" => Objective::Distill {
                beta: number("beta", 0.0, 1.0)?,
                temperature: above("temperature", number("temperature", 1.0, 1e3)?)?,
                hard: number("hard-label-weight", 0.0, 1.0)?,
            },
            "classification" => {
                let classes = number("num-labels", 0.0, 1e6)?;
                if classes.fract() != 0.0 || classes == 1.0 {
                    return Err(Error::Input("`num-labels` must be an integer of at least 2".into()));
                }
                Objective::Classify { classes: classes as usize }
            }
            "masked-lm" => {
                Objective::MaskedLm { share: above("mlm-probability", number("mlm-probability", 0.15, 1.0)?)? }
            }
            "contrastive" => Objective::Contrastive { scale: above("scale", number("scale", 20.0, 1e4)?)? },
            other => {
                let close = lang::suggest::closest(other, OBJECTIVE_NAMES.iter().copied());
                let remedy = close.map_or_else(
                    || format!("use one of {}", OBJECTIVE_NAMES.join(", ")),
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
            Objective::CausalLm => "next",
            Objective::Dpo { .. } => "dpo",
            Objective::Orpo { .. } => "orpo",
            Objective::Distill { .. } => "distill",
            Objective::Classify { .. } => "classify",
            Objective::MaskedLm { .. } => "mlm",
            Objective::Contrastive { .. } => "contrast",
        }
    }

    /// The number of rows of an example.
    pub fn rows_per_example(&self) -> usize {
        match self {
            Objective::Dpo { .. } | Objective::Orpo { .. } | Objective::Contrastive { .. } => 2,
            _ => 1,
        }
    }

    /// Whether hidden states are trained, not the logits of a language model head.
    pub(crate) fn trains_hidden_states(&self) -> bool {
        matches!(self, Objective::Classify { .. } | Objective::Contrastive { .. })
    }

    /// Whether a second model is needed.
    pub(crate) fn needs_second_model(&self) -> bool {
        matches!(self, Objective::Dpo { .. } | Objective::Distill { .. })
    }

    /// The number of classes of labels that are not ignored.
    pub(crate) fn classes(&self, vocabulary: Option<usize>) -> Option<usize> {
        match self {
            Objective::Classify { classes } => Some(*classes),
            Objective::Contrastive { .. } => Some(2),
            _ => vocabulary,
        }
    }

    /// The number of loss terms with different divisors.
    pub(crate) fn num_loss_terms(&self) -> usize {
        if matches!(self, Objective::Orpo { .. }) { 2 } else { 1 }
    }

    /// The divisor of each loss term: the number of trained tokens, or of row pairs. `end` is the token between documents with
    /// masked attention; its label is ignored.
    pub(crate) fn counts(&self, batch: &Batch, seq: usize, end: Option<i32>) -> Vec<f64> {
        let labels = || {
            let all = batch.ids.iter().zip(&batch.labels);
            all.map(|(id, label)| if end == Some(*id) { -100 } else { *label })
        };
        let trained = |label: &i32| *label >= 0;
        if self.rows_per_example() == 1 {
            return vec![labels().filter(trained).count() as f64];
        }
        let labels: Vec<i32> = labels().collect();
        let pairs: Vec<&[i32]> =
            labels.chunks(2 * seq.max(1)).filter(|rows| rows[..rows.len() / 2].iter().any(trained)).collect();
        let mut counts = vec![pairs.len() as f64];
        if self.num_loss_terms() == 2 {
            // In the chosen text: the answer, and the prompt except for its last position.
            let chosen = |rows: &&[i32]| {
                let within = |(i, label): &(usize, &i32)| trained(label) || **label != PAD_LABEL && i + 1 < seq;
                rows[..seq].iter().enumerate().filter(within).count()
            };
            counts.insert(0, pairs.iter().map(chosen).sum::<usize>() as f64);
        }
        counts
    }

    /// The weight of a batch in an average over batches.
    pub(crate) fn weight(&self, batch: &Batch, seq: usize, end: Option<i32>) -> f64 {
        self.counts(batch, seq, end).last().copied().unwrap_or(0.0)
    }
}

/// Names of objectives.
pub(crate) const OBJECTIVE_NAMES: &[&str] =
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

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objective::CausalLm => write!(f, "causal-lm"),
            Objective::Dpo { beta, form, smoothing } => {
                let form = match form {
                    DpoForm::Sigmoid => "sigmoid",
                    DpoForm::Hinge => "hinge",
                    DpoForm::Ipo => "ipo",
                };
                write!(f, "dpo,beta={beta},loss-type={form},label-smoothing={smoothing}")
            }
            Objective::Orpo { beta } => write!(f, "orpo,beta={beta}"),
            Objective::Distill { beta, temperature, hard } => {
                write!(f, "distillation,beta={beta},temperature={temperature},hard-label-weight={hard}")
            }
            Objective::Classify { classes } => write!(f, "classification,num-labels={classes}"),
            Objective::MaskedLm { share } => write!(f, "masked-lm,mlm-probability={share}"),
            Objective::Contrastive { scale } => write!(f, "contrastive,scale={scale}"),
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
            let aim = Objective::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(Objective::parse(&aim.to_string()).expect("written"), aim, "{text}");
        }
        for (old, new) in [
            ("next", "causal-lm"),
            ("dpo,form=ipo,smoothing=0.2", "dpo,loss-type=ipo,label-smoothing=0.2"),
            ("distill,hard=0.5", "distillation,hard-label-weight=0.5"),
            ("classify,classes=3", "classification,num-labels=3"),
            ("mlm,share=0.3", "masked-lm,mlm-probability=0.3"),
            ("contrast,scale=5", "contrastive,scale=5"),
        ] {
            assert_eq!(Objective::parse(old).expect(old), Objective::parse(new).expect(new), "{old}");
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
            let error = Objective::parse(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
