//! Digests of what was written, kept as an annotation, so that a watch of metadata alone can tell
//! whether an object is still wanted.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// 16 hex digits that stand for `value`.
///
/// The order of object keys does not count: what comes from the server may be sorted otherwise than
/// what a user sent.
#[must_use]
pub fn template_digest(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    short(Sha256::digest(text.as_bytes()).iter())
}

/// The first 8 bytes as 16 hex digits: plenty against chance, and short enough to compare by eye.
fn short<'a>(bytes: impl Iterator<Item = &'a u8>) -> String {
    bytes.take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes `value` as JSON with sorted keys. Depth is bounded by the parser that made the value.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            text.push('{');
            for key in keys {
                text.push_str(&Value::String(key.clone()).to_string());
                text.push(':');
                if let Some(field) = fields.get(key) {
                    canonical(field, text);
                }
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_does_not_count_but_list_order_does() {
        let one = json!({"a": 1, "b": {"c": [1, 2], "d": null}});
        let same = json!({"b": {"d": null, "c": [1, 2]}, "a": 1});
        let other = json!({"a": 1, "b": {"c": [2, 1], "d": null}});
        assert_eq!(template_digest(&one), template_digest(&same));
        assert_ne!(template_digest(&one), template_digest(&other));
        assert_eq!(template_digest(&one).len(), 16);
    }
}
