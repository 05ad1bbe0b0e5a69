//! The text of a sequence as it grows: whole characters, up to the first stop word.

/// Holds back what may become a stop word. The word that is complete first ends the text; of two that are complete at the same place, the
/// longer one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stops {
    words: Vec<Word>,
    held: String,
}

/// A stop word, and how much of it the text so far ends with (Knuth, Morris and Pratt).
#[derive(Clone, Debug)]
struct Word {
    text: String,
    /// For each length of a beginning, the longest shorter one that it ends with.
    shorter: Vec<usize>,
    at: usize,
}

impl Word {
    fn new(text: String) -> Word {
        let bytes = text.as_bytes();
        let mut shorter = vec![0; bytes.len() + 1];
        for i in 1..bytes.len() {
            let mut length = shorter[i];
            while length > 0 && bytes[length] != bytes[i] {
                length = shorter[length];
            }
            shorter[i + 1] = if bytes[length] == bytes[i] { length + 1 } else { 0 };
        }
        Word { text, shorter, at: 0 }
    }

    /// One more byte; whether the word is complete.
    fn push(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.at > 0 && bytes.get(self.at) != Some(&byte) {
            self.at = self.shorter[self.at];
        }
        self.at += usize::from(bytes[self.at] == byte);
        self.at == bytes.len()
    }
}

impl Stops {
    pub(crate) fn new(words: Vec<String>) -> Stops {
        let words = words.into_iter().filter(|word| !word.is_empty()).map(Word::new);
        Stops { words: words.collect(), held: String::new() }
    }

    /// Text that can be shown after one more piece, and the stop word that ended it.
    pub(crate) fn push(&mut self, piece: &str) -> (String, Option<String>) {
        for (i, byte) in piece.bytes().enumerate() {
            let mut found: Option<usize> = None;
            for word in &mut self.words {
                if word.push(byte) {
                    found = found.max(Some(word.text.len()));
                }
            }
            if let Some(length) = found {
                self.held.push_str(&piece[..=i]);
                let word = self.held.split_off(self.held.len() - length);
                return (std::mem::take(&mut self.held), Some(word));
            }
        }
        self.held.push_str(piece);
        let keep = self.words.iter().map(|word| word.at).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), None)
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
            ("abcdef", &["abcdef", "cd"], Some("ab")),
            ("abcd", &["bcd", "cd", "d"], Some("a")),
            ("aabaabaaab", &["aabaaa"], Some("aab")),
        ];
        for (text, words, want) in cases {
            for size in 1..=text.chars().count() {
                let mut stops = Stops::new(words.iter().map(|w| w.to_string()).collect());
                let characters: Vec<char> = text.chars().collect();
                let (mut shown, mut stopped) = (String::new(), false);
                for piece in characters.chunks(size) {
                    let (new, stop) = stops.push(&piece.iter().collect::<String>());
                    shown += &new;
                    if let Some(word) = stop {
                        assert!(words.contains(&&*word) && text.starts_with(&format!("{shown}{word}")));
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
