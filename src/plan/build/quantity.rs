//! Exact sums of Kubernetes resource quantities, such as `500m`, `1.5Gi` or `2e3`.
//!
//! Amounts are kept in billionths, the finest step that the API knows; what is finer is rounded up, as
//! the API server does. An `i128` of those holds 10^11 containers of one exbibyte each.

use serde_json::Value;

/// Billionths in one unit.
const NANO: i128 = 1_000_000_000;

/// Decimal suffixes as powers of ten, from the largest.
const DECIMAL: [(&str, i32); 10] = [
    ("E", 18),
    ("P", 15),
    ("T", 12),
    ("G", 9),
    ("M", 6),
    ("k", 3),
    ("", 0),
    ("m", -3),
    ("u", -6),
    ("n", -9),
];

/// Binary suffixes as powers of two, from the largest.
const BINARY: [(&str, u32); 6] = [
    ("Ei", 60),
    ("Pi", 50),
    ("Ti", 40),
    ("Gi", 30),
    ("Mi", 20),
    ("Ki", 10),
];

/// An amount that is not negative, and the family of suffixes it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quantity {
    nano: i128,
    binary: bool,
}

impl Quantity {
    /// Reads a quantity as it stands in a pod: a text or a number. None if it is none, is negative, or
    /// is beyond measure; the API server refuses such a pod.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse_text(text),
            Value::Number(number) => Self::parse_text(&number.to_string()),
            _ => None,
        }
    }

    fn parse_text(text: &str) -> Option<Self> {
        let text = text.strip_prefix('+').unwrap_or(text);
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at_checked(end)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || fraction.contains('.') {
            return None;
        }
        let mantissa: i128 = digits.parse().ok()?;
        let fraction_len = i32::try_from(fraction.len()).ok()?;

        let (factor, exponent, binary) =
            if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
                (1_i128 << power, 0, true)
            } else if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
                (1, *exponent, false)
            } else {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                (1, exponent.parse().ok()?, false)
            };
        let scaled = mantissa.checked_mul(factor)?;
        let nano = shift_ten(scaled, exponent.checked_add(9)?.checked_sub(fraction_len)?)?;
        Some(Self { nano, binary })
    }

    /// This amount `count` times.
    pub(super) fn times(self, count: u32) -> Self {
        Self {
            nano: self.nano.saturating_mul(i128::from(count)),
            ..self
        }
    }

    /// The sum, written in the family of `self` unless that is nothing.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_add(other.nano),
            binary: if self.nano == 0 {
                other.binary
            } else {
                self.binary
            },
        }
    }
}

/// `value` times ten to the power of `exponent`, rounded up.
fn shift_ten(value: i128, exponent: i32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    if exponent >= 0 {
        value.checked_mul(power?)
    } else {
        // Below one billionth there is one billionth.
        Some(power.map_or(1, |power| value / power + i128::from(value % power != 0)))
    }
}

/// The canonical text: no fraction, and the largest suffix that allows it.
impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        if self.binary && self.nano % NANO == 0 {
            let units = self.nano / NANO;
            for (suffix, power) in BINARY {
                if units % (1_i128 << power) == 0 {
                    return write!(f, "{}{suffix}", units >> power);
                }
            }
            // The API server writes 1536 as such, but 1000 as 1k: below 1024 binary is decimal.
            if units >= 1024 {
                return write!(f, "{units}");
            }
        }
        for (suffix, exponent) in DECIMAL {
            let step = 10_i128.pow(exponent.saturating_add(9).unsigned_abs());
            if self.nano % step == 0 {
                return write!(f, "{}{suffix}", self.nano / step);
            }
        }
        write!(f, "{}n", self.nano)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sum(parts: &[&str]) -> String {
        let zero = Quantity {
            nano: 0,
            binary: false,
        };
        parts
            .iter()
            .filter_map(|part| Quantity::parse(&json!(part)))
            .fold(zero, Quantity::plus)
            .to_string()
    }

    #[test]
    fn sums_are_exact_and_canonical() {
        assert_eq!(sum(&["500m", "500m"]), "1");
        assert_eq!(sum(&["100m", "1"]), "1100m");
        assert_eq!(sum(&["512Mi", "1.5Gi"]), "2Gi");
        assert_eq!(sum(&["1Gi", "1G"]), "2073741824");
        assert_eq!(sum(&["1G", "1Gi"]), "2073741824");
        assert_eq!(sum(&["2e3", "1E3"]), "3k");
        assert_eq!(sum(&["1E"]), "1E");
        assert_eq!(sum(&["0.1n"]), "1n");
        assert_eq!(sum(&["1e-40"]), "1n");
        assert_eq!(sum(&["0", "0Ki"]), "0");
        assert_eq!(sum(&["+1", ".5", "1."]), "2500m");
        assert_eq!(sum(&["0.5Ki"]), "512");
        assert_eq!(sum(&["1.5Ki"]), "1536");
        assert_eq!(sum(&["0.3Ki"]), "307200m");
    }

    #[test]
    fn numbers_count_and_nonsense_does_not() {
        assert_eq!(
            Quantity::parse(&json!(2)).map(|q| q.times(3).to_string()),
            Some("6".to_owned())
        );
        assert_eq!(
            Quantity::parse(&json!(0.5)).map(|q| q.to_string()),
            Some("500m".to_owned())
        );
        for nonsense in [
            json!("-1"),
            json!(""),
            json!("."),
            json!("1.2.3"),
            json!("1x"),
            json!("1e"),
            json!("1e99999999999"),
            json!("1e999"),
            json!("9".repeat(60)),
            json!("ü"),
            json!(null),
            json!([1]),
        ] {
            assert_eq!(Quantity::parse(&nonsense), None, "{nonsense}");
        }
    }
}
