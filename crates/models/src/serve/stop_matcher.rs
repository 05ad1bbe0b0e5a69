//! The text of a growing sequence: whole characters, up to the first stop string.

/// Holds back text that may become a stop string. The string that is completed first ends the text; of two that are completed at
/// the same position, the longer one.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopMatcher {
    words: Vec<StopWord>,
    pending: String,
}

/// A stop string, and the length of its prefix that the text so far ends with (Knuth–Morris–Pratt).
#[derive(Clone, Debug)]
struct StopWord {
    text: String,
    /// For each length of a prefix, the longest shorter prefix that is also its suffix.
    failure_table: Vec<usize>,
    matched: usize,
}

impl StopWord {
    fn new(text: String) -> StopWord {
        let bytes = text.as_bytes();
        let mut shorter = vec![0; bytes.len() + 1];
        for i in 1..bytes.len() {
            let mut length = shorter[i];
            while length > 0 && bytes[length] != bytes[i] {
                length = shorter[length];
            }
            shorter[i + 1] = if bytes[length] == bytes[i] { length + 1 } else { 0 };
        }
        StopWord { text, failure_table: shorter, matched: 0 }
    }

    /// Advances by one byte; returns whether the string is complete.
    fn push(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && bytes.get(self.matched) != Some(&byte) {
            self.matched = self.failure_table[self.matched];
        }
        self.matched += usize::from(bytes[self.matched] == byte);
        self.matched == bytes.len()
    }
}

impl StopMatcher {
    pub(crate) fn new(words: Vec<String>) -> StopMatcher {
        let words = words.into_iter().filter(|word| !word.is_empty()).map(StopWord::new);
        StopMatcher { words: words.collect(), pending: String::new() }
    }

    /// Returns the text that can be sent after one more piece, and the stop string that ended it.
    pub(crate) fn push(&mut self, piece: &str) -> (String, Option<String>) {
        for (i, byte) in piece.bytes().enumerate() {
            let mut found: Option<usize> = None;
            for word in &mut self.words {
                if word.push(byte) {
                    found = found.max(Some(word.text.len()));
                }
            }
            if let Some(length) = found {
                self.pending.push_str(&piece[..=i]);
                let word = self.pending.split_off(self.pending.len() - length);
                return (std::mem::take(&mut self.pending), Some(word));
            }
        }
        self.pending.push_str(piece);
        let keep = self.words.iter().map(|word| word.matched).max().unwrap_or(0);
        let rest = self.pending.split_off(self.pending.len() - keep);
        (std::mem::replace(&mut self.pending, rest), None)
    }

    /// Returns the text that was held back, at the end.
    pub(crate) fn flush(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However a text is split into pieces, the same is returned: all of it up to the first stop string.
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
                let mut stops = StopMatcher::new(words.iter().map(|w| w.to_string()).collect());
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
                    shown += &stops.flush();
                }
                assert_eq!((shown.as_str(), stopped), (want.unwrap_or(text), want.is_some()), "{text} by {size}");
            }
        }
    }
}
