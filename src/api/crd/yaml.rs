//! Any JSON value -> YAML with short objects on one line.
//!
//! Block style throughout would double the size of the definition: the pod template is nested so
//! deeply that most of a file in that style is indentation.

use std::fmt::Write;

use serde_json::Value;

/// Longest object or list on one line, in bytes, without its key.
const MAX_FLOW: usize = 260;

/// `value` as a YAML document.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    if is_block(value) {
        block(&mut out, value, 0);
    } else {
        out.push_str(&flow(value));
        out.push('\n');
    }
    out
}

/// Whether `value` takes lines of its own.
fn is_block(value: &Value) -> bool {
    let items = match value {
        Value::Object(map) => map.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    };
    items > 0 && flow(value).len() > MAX_FLOW
}

/// Lines of a non-empty object or list, each indented by `indent` blanks.
fn block(out: &mut String, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                out.push_str(&pad);
                entry(out, key, value, indent);
            }
        }
        Value::Array(list) => {
            for value in list {
                // The first line of the item stands behind the dash.
                let mut item = String::new();
                if is_block(value) {
                    block(&mut item, value, indent + 2);
                } else {
                    let _ = writeln!(item, "{pad}  {}", flow(value));
                }
                let _ = write!(out, "{pad}- {}", item.trim_start());
            }
        }
        scalar => {
            let _ = writeln!(out, "{pad}{}", flow(scalar));
        }
    }
}

fn entry(out: &mut String, key: &str, value: &Value, indent: usize) {
    let key = plain_or_quoted(key);
    if !is_block(value) {
        let _ = writeln!(out, "{key}: {}", flow(value));
        return;
    }
    let _ = writeln!(out, "{key}:");
    // Lists stand at the column of their key, as in the manifests of Kubernetes.
    let inner = if value.is_array() { indent } else { indent + 2 };
    block(out, value, inner);
}

/// `value` on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", plain_or_quoted(key), flow(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => plain_or_quoted(text),
        scalar => scalar.to_string(),
    }
}

/// A text that no YAML reader takes for anything else stays bare; the rest is quoted as in JSON,
/// which is YAML too.
fn plain_or_quoted(text: &str) -> String {
    let bare = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/' | '_'));
    // YAML 1.1 takes these for booleans and null, whatever their case.
    const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let word = WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    if bare && !word {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}
