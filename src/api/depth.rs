//! JSON of bounded depth.
//!
//! The API server stores an MPIJob whose template nests deeper than a JSON decoder goes, because
//! unknown fields of templates are kept. Decoded as usual it would end the whole list or watch that
//! it stands in, for the MPIJobs of everybody. Here what is too deep is skipped, without recursion,
//! and the whole value is replaced by [`TOO_DEEP`], which [`super::validate::decode`] reports.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Deepest nesting that is kept. A pod template needs about 12 levels; the decoder ends at 128.
const MOST_LEVELS: usize = 64;

/// Stands for a value that nests too deep.
pub const TOO_DEEP: &str = "nested deeper than 64 levels";

/// A value, or [`TOO_DEEP`] as a string. For `#[serde(deserialize_with)]`.
///
/// # Errors
///
/// Those of the deserializer.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let (value, too_deep) = bounded(deserializer)?;
    Ok(if too_deep { TOO_DEEP.into() } else { value })
}

/// An object of the API; its `spec` is [`TOO_DEEP`] if anything in the object nests too deep.
///
/// # Errors
///
/// If `bytes` is no JSON.
pub fn object_from_slice(bytes: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let (mut value, too_deep) = bounded(&mut deserializer)?;
    deserializer.end()?;
    if too_deep && let Some(spec) = value.get_mut("spec") {
        *spec = TOO_DEEP.into();
    }
    Ok(value)
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(Value, bool), D::Error> {
    let too_deep = Cell::new(false);
    let seed = Level {
        left: MOST_LEVELS,
        too_deep: &too_deep,
    };
    let value = seed.deserialize(deserializer)?;
    Ok((value, too_deep.get()))
}

#[derive(Clone, Copy)]
struct Level<'a> {
    left: usize,
    too_deep: &'a Cell<bool>,
}

impl Level<'_> {
    fn below(self) -> Self {
        Self {
            left: self.left.saturating_sub(1),
            ..self
        }
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.left == 0 {
            self.too_deep.set(true);
            deserializer.deserialize_ignored_any(IgnoredAny)?;
            return Ok(Value::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = serde_json::Number::from_f64(value);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that JSON does not have"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(self.below())? {
            list.push(value);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(self.below())?;
            map.insert(key, value);
        }
        Ok(map.into())
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Value, E> {
        Err(E::custom("bytes are no JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::{TOO_DEEP, deserialize, object_from_slice};
    use serde_json::{Value, json};

    fn nested(levels: usize) -> String {
        format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
    }

    #[test]
    fn what_is_not_deep_stays_as_it_is() {
        let value = json!({ "a": [1, -2, 2.5, "x", null, true, { "b": {} }] });
        let mut text =
            serde_json::Deserializer::from_str("{\"a\":[1,-2,2.5,\"x\",null,true,{\"b\":{}}]}");
        assert_eq!(deserialize(&mut text).unwrap(), value);
        let text = nested(60);
        let mut reader = serde_json::Deserializer::from_str(&text);
        let plain: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(deserialize(&mut reader).unwrap(), plain);
    }

    #[test]
    fn what_is_too_deep_is_replaced_whole() {
        let text = nested(100_000);
        let mut reader = serde_json::Deserializer::from_str(&text);
        assert_eq!(deserialize(&mut reader).unwrap(), TOO_DEEP);
        let object = format!(
            "{{\"metadata\":{{\"uid\":\"u\"}},\"spec\":{}}}",
            nested(500)
        );
        let read = object_from_slice(object.as_bytes()).unwrap();
        assert_eq!(
            read,
            json!({ "metadata": { "uid": "u" }, "spec": TOO_DEEP })
        );
    }
}
