//! Near names: the known name that a writer probably meant.

/// Longer names are not compared: no suggestion would help.
const NAME_LEN_MAX: usize = 64;

/// Most wrong letters of a typo.
const DISTANCE_MAX: usize = 3;

/// Most letters that are compared for one name, of all candidates together: a client may send wrong names as often as it likes, and
/// this takes less than a millisecond.
const LETTERS_MAX: usize = 1 << 16;

/// Most names that a problem carries; a message shows one less and says that there are more.
pub const KNOWN_MAX: usize = 25;

/// The first of the known names.
pub fn known<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names
        .into_iter()
        .take(KNOWN_MAX)
        .map(str::to_owned)
        .collect()
}

/// The candidate nearest to `name`, if it is near enough to be a typo; of equally near ones the first. Of very many candidates
/// only the first are looked at.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let name: Vec<char> = name.chars().take(NAME_LEN_MAX + 1).collect();
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return None;
    }
    // A typo has at most a third of its letters wrong, and three of a long name. More is another word.
    let distance_max = (name.len() / 3).clamp(1, DISTANCE_MAX);
    let mut left = LETTERS_MAX;
    candidates
        .into_iter()
        .map_while(|candidate| {
            let letters: Vec<char> = candidate.chars().take(NAME_LEN_MAX + 1).collect();
            // Where lengths differ by too much, no letter is compared.
            let compared = match letters.len().abs_diff(name.len()) <= distance_max {
                true => letters.len() * (2 * distance_max + 1),
                false => letters.len(),
            };
            left = left.checked_sub(compared.max(1))?;
            Some((candidate, letters))
        })
        .filter_map(|(candidate, letters)| {
            let d = distance(&name, &letters, distance_max)?;
            (d <= distance_max).then_some((d, candidate))
        })
        .min_by_key(|(d, _)| *d)
        .map(|(_, candidate)| candidate.to_owned())
}

/// Letters to insert, delete, replace, or swap with their neighbour (optimal string alignment);
/// upper and lower case count as equal. `None` where it is more than `max` for sure. Only the cells
/// near the diagonal are looked at: a file may hold many names, all of them wrong.
fn distance(a: &[char], b: &[char], max: usize) -> Option<usize> {
    const FAR: usize = usize::MAX / 2;
    if a.len().abs_diff(b.len()) > max {
        return None;
    }
    let same = |x: char, y: char| x.eq_ignore_ascii_case(&y);
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![FAR; b.len() + 1];
        row[0] = i;
        let mut least = FAR;
        for j in i.saturating_sub(max).max(1)..=(i + max).min(b.len()) {
            let replaced = last[j - 1] + usize::from(!same(a[i - 1], b[j - 1]));
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) {
                best = best.min(before[j - 2] + 1);
            }
            row[j] = best;
            least = least.min(best);
        }
        if least > max && i > max {
            return None;
        }
        before = std::mem::replace(&mut last, row);
    }
    Some(last[b.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_near_and_other_words_are_not() {
        let names = ["detect", "plates", "faces"];
        for typo in ["detct", "dtecet", "Detect", "detects", "edtect"] {
            assert_eq!(nearest(typo, names), Some("detect".to_owned()), "{typo}");
        }
        assert_eq!(nearest("track", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest("x", [""]), Some(String::new()));
        assert_eq!(nearest(&"x".repeat(100_000), names), None);
    }

    #[test]
    fn the_search_has_an_end_however_many_names_there_are() {
        let names: Vec<String> = (0..12_000).map(|i| format!("{i:052}")).collect();
        for letters in [1, 48, 52, 64] {
            let mut looked_at = 0;
            let candidates = names.iter().inspect(|_| looked_at += 1);
            let found = nearest(&"x".repeat(letters), candidates.map(String::as_str));
            assert_eq!(found, None);
            assert!(looked_at * 52 <= LETTERS_MAX + 52, "{looked_at} names");
        }
        let found = nearest(&format!("{:052}", 123), names.iter().map(String::as_str));
        assert_eq!(found, Some(format!("{:052}", 123)));
    }
}
