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
        let name = words.next().unwrap_or("next");
        let mut options = Vec::new();
        for word in words {
            let pair = word.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
            options.push(pair.ok_or_else(|| Error::Input(format!("`objective` needs name=value, got `{word}`")))?);
        }
        let mut number = |wanted: &str, default: f64, most: f64| -> Result<f64> {
            let Some(at) = options.iter().position(|(name, _)| *name == wanted) else { return Ok(default) };
            let (_, value) = options.remove(at);
            match value.parse::<f64>() {
                Ok(x) if (0.0..=most).contains(&x) => Ok(x),
                _ => Err(Error::Input(format!("`{name}`: `{wanted}` is a number from 0 to {most}, got `{value}`"))),
            }
        };
        let above = |what: &str, x: f64| match x > 0.0 {
            true => Ok(x),
            false => Err(Error::Input(format!("`{name}`: `{what}` must be above 0"))),
        };
        let aim = match name {
            "next" => Objective::CausalLm,
            "dpo" => {
                let (beta, smoothing) = (above("beta", number("beta", 0.1, 1e3)?)?, number("smoothing", 0.0, 0.5)?);
                let at = options.iter().position(|(name, _)| *name == "form");
                let form = match at.map(|at| options.remove(at).1) {
                    None | Some("sigmoid") => DpoForm::Sigmoid,
                    Some("hinge") => DpoForm::Hinge,
                    Some("ipo") => DpoForm::Ipo,
                    Some(other) => {
                        return Err(Error::Input(format!("`form` is sigmoid, hinge or ipo, got `{other}`")));
                    }
                };
                Objective::Dpo { beta, form, smoothing }
            }
            "orpo" => Objective::Orpo { beta: number("beta", 0.1, 1e3)? },
            "distill" => Objective::Distill {
                beta: number("beta", 0.0, 1.0)?,
                temperature: above("temperature", number("temperature", 1.0, 1e3)?)?,
                hard: number("hard", 0.0, 1.0)?,
            },
            "classify" => {
                let classes = number("classes", 0.0, 1e6)?;
                if classes.fract() != 0.0 || classes == 1.0 {
                    return Err(Error::Input("`classes` is how many there are: two at least".into()));
                }
                Objective::Classify { classes: classes as usize }
            }
            "mlm" => Objective::MaskedLm { share: above("share", number("share", 0.15, 1.0)?)? },
            "contrast" => Objective::Contrastive { scale: above("scale", number("scale", 20.0, 1e4)?)? },
            other => {
                let close = lang::suggest::closest(other, OBJECTIVE_NAMES.iter().copied());
                let remedy =
                    close.map_or_else(|| OBJECTIVE_NAMES.join(", "), |close| format!("did you mean `{close}`?"));
                return Err(Error::Input(format!("unknown objective `{other}`: {remedy}")));
            }
        };
        match options.first() {
            None => Ok(aim),
            Some((option, _)) => Err(Error::Input(format!("`{name}` has no option `{option}`"))),
        }
    }

    /// The name without options: the rows of a batch don't depend on them.
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
pub(crate) const OBJECTIVE_NAMES: &[&str] = &["next", "dpo", "orpo", "distill", "classify", "mlm", "contrast"];

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objective::CausalLm => write!(f, "next"),
            Objective::Dpo { beta, form, smoothing } => {
                let form = match form {
                    DpoForm::Sigmoid => "sigmoid",
                    DpoForm::Hinge => "hinge",
                    DpoForm::Ipo => "ipo",
                };
                write!(f, "dpo,beta={beta},form={form},smoothing={smoothing}")
            }
            Objective::Orpo { beta } => write!(f, "orpo,beta={beta}"),
            Objective::Distill { beta, temperature, hard } => {
                write!(f, "distill,beta={beta},temperature={temperature},hard={hard}")
            }
            Objective::Classify { classes } => write!(f, "classify,classes={classes}"),
            Objective::MaskedLm { share } => write!(f, "mlm,share={share}"),
            Objective::Contrastive { scale } => write!(f, "contrast,scale={scale}"),
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
        ] {
            let aim = Objective::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(Objective::parse(&aim.to_string()).expect("written"), aim, "{text}");
        }
        for (text, word) in [
            ("dqo", "`dpo`"),
            ("dpo,beta", "name=value"),
            ("dpo,beta=0", "above 0"),
            ("dpo,beta=x", "a number"),
            ("dpo,form=round", "sigmoid"),
            ("orpo,form=ipo", "no option `form`"),
            ("classify,classes=1", "two at least"),
            ("mlm,share=2", "from 0 to 1"),
        ] {
            let error = Objective::parse(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
