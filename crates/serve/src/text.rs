//! The text of a sequence as it grows: whole characters, up to the first stop word.

/// Holds back what may become a stop word.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stops {
    words: Vec<String>,
    held: String,
}

impl Stops {
    pub(crate) fn new(words: Vec<String>) -> Stops {
        Stops { words: words.into_iter().filter(|word| !word.is_empty()).collect(), held: String::new() }
    }

    /// Text that can be shown after one more piece, and whether a stop word ended it.
    pub(crate) fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let first = self.words.iter().filter_map(|word| self.held.find(word.as_str())).min();
        if let Some(at) = first {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let begun = |word: &String| {
            let ends = word.char_indices().map(|(at, _)| at).skip(1);
            ends.filter(|at| self.held.ends_with(&word[..*at])).max().unwrap_or(0)
        };
        let keep = self.words.iter().map(begun).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What was held back, when nothing more comes.
    pub(crate) fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However a text is cut into pieces, the same is shown: all of it up to the first stop word.
    #[test]
    fn pieces_make_no_difference() {
        let cases = [
            ("one two three", &["two"][..], Some("one ")),
            ("ababac", &["abac"], Some("ab")),
            ("Zoë — end", &["—", "end"], Some("Zoë ")),
            ("nothing here", &["nowhere", "heres"], None),
            ("aaa", &["aaaa"], None),
            ("xÿ\nUser:", &["\nUser:"], Some("xÿ")),
        ];
        for (text, words, want) in cases {
            for size in 1..=text.chars().count() {
                let mut stops = Stops::new(words.iter().map(|w| w.to_string()).collect());
                let characters: Vec<char> = text.chars().collect();
                let (mut shown, mut stopped) = (String::new(), false);
                for piece in characters.chunks(size) {
                    let (new, stop) = stops.push(&piece.iter().collect::<String>());
                    shown += &new;
                    if stop {
                        stopped = true;
                        break;
                    }
                }
                if !stopped {
                    shown += &stops.rest();
                }
                assert_eq!((shown.as_str(), stopped), (want.unwrap_or(text), want.is_some()), "{text} by {size}");
            }
        }
    }
}
