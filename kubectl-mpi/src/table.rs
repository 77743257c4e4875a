//! Columns and ages as text. Pure.

use jiff::Timestamp;

/// What stands in a cell that has nothing to say.
pub const NOTHING: &str = "-";

/// Rows under their heads, in columns as wide as their widest cell; the last column is as long as
/// it is. The same on a terminal and in a pipe.
#[must_use]
pub fn table(indent: &str, heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&heads).chain(rows).collect();
    let width = |column: usize| {
        let cells = all.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    for row in all {
        let mut line = indent.to_owned();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 3));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `text`, or a dash if it is empty; without line breaks.
#[must_use]
pub fn cell(text: &str) -> String {
    let text = one_line(text);
    if text.is_empty() {
        NOTHING.to_owned()
    } else {
        text
    }
}

/// White space of every kind as single spaces.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Time from `then` to `now`, in kubectl's form: `90s`, `5m30s`, `3h`, `2d4h`.
#[must_use]
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    let Some(then) = then else {
        return "<unknown>".to_owned();
    };
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () if days < 730 => format!("{days}d"),
        () if days < 365 * 8 => two(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

/// Numbers as `0-3,5`, which is also how the operator writes them.
#[must_use]
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    if runs.is_empty() {
        return "none".to_owned();
    }
    let shown: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    shown.join(",")
}

/// What [`ranges`] writes, read back; what is no such text is empty.
#[must_use]
pub fn numbers(text: &str) -> Vec<u32> {
    let part = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(part).flatten().collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_have_no_blanks_at_the_end() {
        let rows = [
            vec!["a".to_owned(), "long text".to_owned(), "x".to_owned()],
            vec!["abcdef".to_owned(), "y".to_owned(), String::new()],
        ];
        assert_eq!(
            table("  ", &["N", "TEXT", "Z"], &rows),
            "  N        TEXT        Z\n  a        long text   x\n  abcdef   y\n"
        );
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_172_000, "2y1d"),
        ] {
            let then = Timestamp::UNIX_EPOCH;
            let now = then + SignedDuration::from_secs(seconds);
            assert_eq!(age(Some(then), now), text, "{seconds}");
        }
        assert_eq!(age(None, Timestamp::UNIX_EPOCH), "<unknown>");
    }

    #[test]
    fn sets_of_indexes_are_written_as_ranges() {
        assert_eq!(ranges([]), "none");
        assert_eq!(ranges([0, 1, 2, 3, 5, 7, 8]), "0-3,5,7-8");
        assert_eq!(ranges([u32::MAX]), "4294967295");
        assert_eq!(numbers("0-3,5,7-8"), [0, 1, 2, 3, 5, 7, 8]);
        assert!(numbers("").is_empty() && numbers("none").is_empty());
    }
}
