//! Sets of worker indexes as short text. Pure.

use std::fmt::Write as _;

/// `[0, 1, 2, 5]` as `0-2,5`; an ascending list without repeats is expected.
#[must_use]
pub fn format(indexes: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = indexes.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while rest.peek() == Some(&(last + 1)) {
            last += 1;
            rest.next();
        }
        if !text.is_empty() {
            text.push(',');
        }
        // Writing to a String cannot fail.
        let _ = if first == last {
            write!(text, "{first}")
        } else {
            write!(text, "{first}-{last}")
        };
    }
    text
}

/// The reverse of [`format`]; None for a text of another form or beyond what one Job can hold.
#[must_use]
pub fn parse(text: &str) -> Option<Vec<u32>> {
    const LIMIT: u32 = 100_000;
    let mut indexes = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= LIMIT || first > last || indexes.last().is_some_and(|end| *end >= first) {
            return None;
        }
        indexes.extend(first..=last);
    }
    Some(indexes)
}

#[cfg(test)]
mod tests {
    use super::{format, parse};

    #[test]
    fn text_and_back() {
        let cases: [(&[u32], &str); 5] = [
            (&[], ""),
            (&[0], "0"),
            (&[0, 1, 2], "0-2"),
            (&[0, 2, 3, 7], "0,2-3,7"),
            (&[4, 5], "4-5"),
        ];
        for (list, text) in cases {
            assert_eq!(format(list), text);
            assert_eq!(parse(text).as_deref(), Some(list));
        }
    }

    #[test]
    fn odd_text_is_none() {
        for text in ["x", "3-1", "1,1", "0-4000000000", "-"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
