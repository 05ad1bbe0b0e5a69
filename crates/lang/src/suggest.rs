//! "Did you mean" suggestions: the closest known name.

/// The candidate closest to `name`, if it is probably meant: at most one edit per three letters. Of equally close candidates, the
/// one with the longest common prefix.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = name.chars().count() / 3;
    let shared = |candidate: &str| candidate.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
    candidates
        .into_iter()
        .filter(|candidate| *candidate != name)
        .map(|candidate| (distance(name, candidate), std::cmp::Reverse(shared(candidate)), candidate))
        .filter(|(distance, ..)| *distance <= limit)
        .min()
        .map(|(_, _, candidate)| candidate)
}

/// The number of insertions, deletions, replacements and swaps of adjacent letters that turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    if a.len().abs_diff(b.len()) > 8 {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn finds_slips_and_nothing_else() {
        let known = ["forward", "backward", "params"];
        assert_eq!(closest("foward", known), Some("forward"));
        assert_eq!(closest("fowrard", known), Some("forward"));
        assert_eq!(closest("Params", known), Some("params"));
        assert_eq!(closest("graph", known), None);
        assert_eq!(closest("modul", ["model", "module"]), Some("module"));
        assert_eq!(closest("v", ["w"]), None);
    }
}
