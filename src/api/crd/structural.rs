//! JSON Schema as schemars writes it -> structural schema as the API server wants it.
//!
//! The pod template is the largest part. Its schema comes from k8s-openapi, which knows types and
//! descriptions but not how lists and maps merge, so that stands in tables here. Every object of
//! the template keeps fields that its schema does not know: a cluster newer than this operator
//! must get the pod that the user wrote.

use schemars::Schema;
use serde_json::{Map, Value, json};

/// Longest description of a field of the pod template, in bytes. Plain `kubectl apply` stores the
/// whole definition in an annotation, which holds 256 KiB.
const MAX_DESCRIPTION: usize = 120;

/// Types whose names start so belong to the pod template.
const KUBERNETES: &str = "io.k8s.";

/// What a quantity looks like; the API server does not check it by itself.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Lists that merge by key, as (type, field, keys). All other lists of the template are replaced
/// as a whole.
const KEYED_LISTS: [(&str, &str, &[&str]); 14] = [
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "volumes", &["name"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "schedulingGates", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    (
        "PodSpec",
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("ResourceRequirements", "claims", &["name"]),
];

/// Defaults of the template, as (type, field, place below it, value): the keys of the lists above
/// that users leave out.
const DEFAULTS: [(&str, &str, &str, &str); 2] = [
    ("Container", "ports", "/items/properties/protocol", "TCP"),
    ("PodSpec", "imagePullSecrets", "/items/properties/name", ""),
];

/// Objects that are replaced as a whole.
const ATOMIC_OBJECTS: [&str; 11] = [
    "ConfigMapKeySelector",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretKeySelector",
    "SecretReference",
    "TypedLocalObjectReference",
];

/// Types whose `name` k8s-openapi requires although the API takes them without.
const NAME_IS_OPTIONAL: [&str; 9] = [
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
    "SecretVolumeSource",
];

/// The structural schema of the type that `root` describes.
pub(super) fn schema_of(root: Schema) -> Value {
    let mut root = Value::from(root);
    let definitions = match root.pointer_mut("/$defs").map(Value::take) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    Inliner { definitions }.node(&root, None)
}

/// Takes every default out of `schema`: the API server would write them into each object.
pub(super) fn without_defaults(schema: &mut Value) {
    if let Value::Object(schema) = schema {
        schema.shift_remove("default");
        for (keyword, value) in schema.iter_mut() {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    properties.values_mut().for_each(without_defaults);
                }
                ("items" | "additionalProperties", value) => without_defaults(value),
                _ => {}
            }
        }
    }
}

struct Inliner {
    definitions: Map<String, Value>,
}

impl Inliner {
    /// The structural form of `node`, which is (part of) the Kubernetes type `owner` if that is
    /// given, or else of a type of ours.
    fn node(&self, node: &Value, owner: Option<&str>) -> Value {
        let description = text(node, "description");
        let node = without_null(node);
        let description = description.or_else(|| text(node, "description"));
        if let Some(name) = text(node, "$ref").and_then(|path| path.rsplit('/').next()) {
            return self.referenced(description, name);
        }
        let mut out = Map::new();
        if let Some(description) = description {
            let description = match owner {
                Some(_) => first_sentence(description),
                None => one_line(description),
            };
            out.insert("description".to_owned(), description.into());
        }
        if let Some(type_) = type_of(node) {
            out.insert("type".to_owned(), type_.into());
        }
        for (keyword, value) in node.as_object().into_iter().flatten() {
            match keyword.as_str() {
                "properties" => {
                    let properties = self.properties(value, owner);
                    out.insert(keyword.clone(), properties);
                }
                "items" | "additionalProperties" => {
                    let mut item = self.node(value, owner);
                    // The list's own says enough; without this one the file is a tenth smaller.
                    if let (Some(_), Value::Object(item)) = (owner, &mut item) {
                        item.shift_remove("description");
                    }
                    out.insert(keyword.clone(), item);
                }
                "required" => {
                    if let Some(required) = required(value, owner) {
                        out.insert(keyword.clone(), required);
                    }
                }
                "enum" | "default" | "format" | "maxItems" | "maxLength" | "maximum"
                | "minimum" | "pattern" => {
                    out.insert(keyword.clone(), value.clone());
                }
                extension if extension.starts_with("x-kubernetes-") => {
                    out.insert(keyword.clone(), value.clone());
                }
                // `$schema`, `title` and what else JSON Schema knows and the API server does not.
                _ => {}
            }
        }
        if owner.is_some() {
            let has_type = |type_| out.get("type").is_some_and(|found| found == type_);
            if has_type("object") && !out.contains_key("additionalProperties") {
                out.insert(PRESERVE.to_owned(), true.into());
            } else if has_type("array") {
                out.insert(LIST_TYPE.to_owned(), "atomic".into());
            }
        }
        out.into()
    }

    /// The type `name` in the place of a field, which may bring a description of its own.
    fn referenced(&self, description: Option<&str>, name: &str) -> Value {
        let Some(definition) = self.definitions.get(name) else {
            return json!({ PRESERVE: true });
        };
        let owner = name
            .starts_with(KUBERNETES)
            .then(|| name.rsplit('.').next().unwrap_or(name));
        let mut out = match owner {
            Some("Quantity") => int_or_string(Some(QUANTITY)),
            Some("IntOrString") => int_or_string(None),
            Some("ObjectMeta") => object_meta(),
            // The API server refuses them in every pod template.
            Some("EphemeralContainer") => json!({
                "type": "object",
                "properties": {
                    "name": {
                        "description": "Name of the ephemeral container.",
                        "type": "string",
                    },
                },
                "required": ["name"],
                PRESERVE: true,
            }),
            _ => self.node(definition, owner),
        };
        if let Value::Object(out) = &mut out {
            if owner.is_some_and(|owner| ATOMIC_OBJECTS.contains(&owner)) {
                out.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
            }
            let own = description.map(one_line);
            let inherited = text(definition, "description").map(first_sentence);
            if let Some(description) = own.or(inherited) {
                out.shift_remove("description");
                out.shift_insert(0, "description".to_owned(), description.into());
            }
        }
        out
    }

    fn properties(&self, properties: &Value, owner: Option<&str>) -> Value {
        let mut out = Map::new();
        for (field, schema) in properties.as_object().into_iter().flatten() {
            let mut schema = self.node(schema, owner);
            if let (Some(owner), Value::Object(schema)) = (owner, &mut schema) {
                if let Some(description) = schema.get("description").and_then(Value::as_str) {
                    let description = first_sentence(description);
                    schema.insert("description".to_owned(), description.into());
                }
                if (owner, field.as_str()) == ("PodSpec", "initContainers") {
                    // The same fields as under `containers`, where the inner ones are described.
                    strip_descriptions(schema.get_mut("items"), 1);
                }
                for (type_, list, keys) in KEYED_LISTS {
                    if type_ == owner && list == field {
                        schema.insert(LIST_TYPE.to_owned(), "map".into());
                        schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
                    }
                }
            }
            for (type_, name, place, default) in DEFAULTS {
                if Some(type_) == owner
                    && name == field
                    && let Some(Value::Object(key)) = schema.pointer_mut(place)
                {
                    key.insert("default".to_owned(), default.into());
                }
            }
            out.insert(field.clone(), schema);
        }
        out.into()
    }
}

/// Takes the descriptions out of all fields below the first `kept` levels of `schema`.
fn strip_descriptions(schema: Option<&mut Value>, kept: usize) {
    let Some(Value::Object(schema)) = schema else {
        return;
    };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            if let (0, Value::Object(property)) = (kept, &mut *property) {
                property.shift_remove("description");
            }
            strip_descriptions(Some(property), kept.saturating_sub(1));
        }
    }
    strip_descriptions(schema.get_mut("items"), kept);
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const LIST_TYPE: &str = "x-kubernetes-list-type";

fn text<'a>(node: &'a Value, keyword: &str) -> Option<&'a str> {
    node.get(keyword).and_then(Value::as_str)
}

/// `anyOf: [<schema>, {type: null}]` is how schemars writes `Option`; the API server drops a null
/// where the schema allows none, so the schema alone says the same.
fn without_null(node: &Value) -> &Value {
    node.get("anyOf")
        .and_then(Value::as_array)
        .and_then(|choices| {
            choices
                .iter()
                .find(|choice| type_of(choice) != Some("null"))
        })
        .unwrap_or(node)
}

/// The type, null aside.
fn type_of(node: &Value) -> Option<&str> {
    match node.get("type") {
        Some(Value::String(type_)) => Some(type_),
        Some(Value::Array(types)) => types
            .iter()
            .filter_map(Value::as_str)
            .find(|type_| *type_ != "null"),
        _ => None,
    }
}

/// The required fields of `owner`; of our own types none, they say so themselves.
fn required(required: &Value, owner: Option<&str>) -> Option<Value> {
    let optional = |field: &&Value| {
        owner.is_some_and(|owner| NAME_IS_OPTIONAL.contains(&owner)) && *field == "name"
    };
    let required: Vec<&Value> = required
        .as_array()?
        .iter()
        .filter(|field| !optional(field))
        .collect();
    (!required.is_empty()).then(|| json!(required))
}

fn int_or_string(pattern: Option<&str>) -> Value {
    let mut schema = json!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "x-kubernetes-int-or-string": true,
    });
    if let (Some(pattern), Value::Object(schema)) = (pattern, &mut schema) {
        schema.insert("pattern".to_owned(), pattern.into());
    }
    schema
}

/// The metadata that a template can carry; all else is kept too.
fn object_meta() -> Value {
    let map = |description: &str| {
        json!({
            "description": description,
            "type": "object",
            "additionalProperties": { "type": "string" },
        })
    };
    let name = |description: &str| json!({ "description": description, "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "annotations": map("Annotations, all of which the pods get."),
            "finalizers": {
                "description": "Not used.",
                "type": "array",
                "items": { "type": "string" },
            },
            "labels": map("Labels, all of which the pods get."),
            "name": name("Not used."),
            "namespace": name("Not used."),
        },
        PRESERVE: true,
    })
}

/// The lines of a doc comment as one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What fits of the first sentence of `text`. Doing it twice changes nothing.
fn first_sentence(text: &str) -> String {
    let text = one_line(text);
    if text.ends_with("...") && text.len() <= MAX_DESCRIPTION + "...".len() {
        return text;
    }
    let end = text
        .match_indices(". ")
        .map(|(end, _)| end)
        .find(|end| !text[..*end].ends_with("e.g") && !text[..*end].ends_with("i.e"));
    let text = end.map_or(text.as_str(), |end| &text[..end]);
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.len() <= MAX_DESCRIPTION {
        return format!("{text}.");
    }
    let mut out = String::new();
    for word in text.split(' ') {
        if out.len() + word.len() > MAX_DESCRIPTION {
            break;
        }
        out.push_str(word);
        out.push(' ');
    }
    format!("{}...", out.trim_end())
}
