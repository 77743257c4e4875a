//! The shape of the source: which module may use which, that each module opens with what it is, and
//! that nothing outside tests ends the process by a panic.
//!
//! The table of imports is read from the text, not from the compiler: `crate::` paths and the names
//! of outside crates, comments and test modules left out. A new arrow between modules is a decision;
//! it is made in [`ALLOWED`], where a reviewer sees it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Module, other modules of this crate that it may use, outside names that it may use of those in
/// [`WATCHED`]. What is not listed is forbidden, and what is listed is used.
const ALLOWED: &[(&str, &[&str], &[&str])] = &[
    ("api", &[], &[]),
    // Facts of the API's types alone; what a watch decodes comes in as a Change.
    ("facts", &["api"], &[]),
    ("action", &[], &[]),
    // The planner sees the snapshot and never the index; it has no clock, client or log.
    ("plan", &["action", "api", "facts::observed"], &[]),
    (
        "watch",
        &["api", "facts", "queue"],
        &["futures", "kube", "tokio", "tracing"],
    ),
    // `facts` and `watch::slim`: the answer to a write is decoded like a watch event and goes back
    // through the same door, so the writer names the decoders and the decoded form.
    (
        "write",
        &["action", "api", "facts", "metrics", "watch::slim"],
        &["http", "kube", "rand_core", "tokio"],
    ),
    ("queue", &[], &["tokio"]),
    ("metrics", &[], &[]),
    // Health tells whether this process still leads.
    ("serve", &["lease", "metrics"], &["axum", "tokio"]),
    ("lease", &[], &["kube", "rand_core", "tokio", "tracing"]),
    ("args", &[], &["std::env"]),
    (
        "reconcile",
        &["action", "facts", "metrics", "plan", "watch", "write"],
        &["futures", "tokio", "tracing"],
    ),
    (
        "runtime",
        &[
            "args",
            "facts",
            "lease",
            "metrics",
            "plan",
            "queue",
            "reconcile",
            "serve",
            "watch",
            "write",
        ],
        &["http", "kube", "std::env", "tokio", "tracing"],
    ),
    ("lib", &[], &[]),
    ("bin", &[], &["std::env"]),
    ("main", &[], &["std::env", "tokio", "tracing"]),
];

/// Outside names that some modules must not use.
const WATCHED: &[&str] = &[
    "axum",
    "futures",
    "http",
    "kube",
    "rand",
    "rand_core",
    "std::env",
    "tokio",
    "tracing",
];

/// Modules of the kubectl plugin that call nobody: what they show or decide is a matter of the
/// objects alone.
const PURE_IN_PLUGIN: &[&str] = &["mpijob", "pods", "scale_in", "table", "view"];

/// A source file without comments and test modules.
struct Source {
    path: String,
    module: String,
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn rust_files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root().join(folder), &mut found);
    assert!(!found.is_empty(), "nothing in {folder}");
    found
        .into_iter()
        .map(|path| {
            let shown = path.strip_prefix(root()).unwrap().display().to_string();
            (shown, fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// The files of `src` that are not tests.
fn sources() -> Vec<Source> {
    sources_of("src")
}

fn sources_of(folder: &str) -> Vec<Source> {
    rust_files(folder)
        .into_iter()
        .filter(|(path, _)| !path.ends_with("/tests.rs"))
        .map(|(path, raw)| {
            let inner = path.strip_prefix(&format!("{folder}/")).unwrap();
            let module = inner.split('/').next().unwrap().trim_end_matches(".rs");
            Source {
                module: module.to_owned(),
                code: code(&raw),
                path,
            }
        })
        .collect()
}

/// Text up to the test module, without comments.
fn code(raw: &str) -> String {
    let mut lines = Vec::new();
    let mut rest = raw.lines().peekable();
    while let Some(line) = rest.next() {
        let test_module = line.trim() == "#[cfg(test)]"
            && rest
                .peek()
                .is_some_and(|next| next.contains("mod ") && next.ends_with('{'));
        if test_module {
            break;
        }
        lines.push(line.split("//").next().unwrap_or_default());
    }
    lines.join("\n")
}

/// The paths behind each `crate::`, two segments deep, braces opened.
fn crate_paths(source: &Source) -> BTreeSet<String> {
    let at_root = !source.path.trim_start_matches("src/").contains('/')
        || source.path.matches('/').count() == 2 && source.path.ends_with("/mod.rs");
    let mut heads = vec!["crate::"];
    if at_root {
        heads.push("super::");
    }
    let mut found = BTreeSet::new();
    for head in heads {
        for (at, _) in source.code.match_indices(head) {
            let before = source.code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            expand(&source.code[at + head.len()..], "", &mut found);
        }
    }
    found
}

/// `a::b` and `{a::b, c}` as `a::b`, `c`.
fn expand(text: &str, prefix: &str, found: &mut BTreeSet<String>) {
    let text = text.trim_start();
    if let Some(inner) = text.strip_prefix('{') {
        let mut depth = 0_i32;
        let mut item = String::new();
        for c in inner.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&item, prefix, found);
                    item.clear();
                    continue;
                }
                _ => {}
            }
            item.push(c);
        }
        expand(&item, prefix, found);
        return;
    }
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    if end == 0 {
        return;
    }
    let name = &text[..end];
    let path = if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}::{name}")
    };
    match text[end..].strip_prefix("::") {
        Some(rest) if prefix.is_empty() => expand(rest, &path, found),
        _ => {
            found.insert(path);
        }
    }
}

fn uses(code: &str, name: &str) -> bool {
    let needle = format!("{name}::");
    code.match_indices(&needle).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':'))
    })
}

#[test]
fn modules_use_only_what_the_table_allows() {
    let table: BTreeMap<&str, (&[&str], &[&str])> = ALLOWED
        .iter()
        .map(|(module, inside, outside)| (*module, (*inside, *outside)))
        .collect();
    let mut wrong = Vec::new();
    let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
    let all = sources();
    for source in &all {
        let Some((inside, outside)) = table.get(source.module.as_str()) else {
            wrong.push(format!(
                "{}: module {} is not in the table",
                source.path, source.module
            ));
            continue;
        };
        for path in crate_paths(source) {
            let allowed = inside
                .iter()
                .find(|allowed| path == **allowed || path.starts_with(&format!("{allowed}::")));
            let own = path.split("::").next() == Some(&source.module);
            match allowed {
                None if own => {}
                Some(allowed) => {
                    used.insert((&source.module, allowed));
                }
                None => wrong.push(format!("{} uses crate::{path}", source.path)),
            }
        }
        for name in WATCHED {
            if uses(&source.code, name) {
                if !outside.contains(name) {
                    wrong.push(format!("{} uses {name}", source.path));
                }
                used.insert((&source.module, name));
            }
        }
    }
    for (module, inside, outside) in ALLOWED {
        for allowed in inside.iter().chain(*outside) {
            if !used.contains(&(module, allowed)) {
                wrong.push(format!("{module} may use {allowed}, and does not"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_a_few_places_read_a_clock() {
    let allowed = [
        "src/lease.rs",
        "src/queue.rs",
        "src/reconcile.rs",
        "src/runtime.rs",
        "src/write/mod.rs",
    ];
    for source in sources() {
        let reads = ["Timestamp::now(", "Instant::now(", "SystemTime::now("]
            .iter()
            .any(|call| source.code.contains(call));
        let listed = allowed.contains(&source.path.as_str());
        assert!(!reads || listed, "{} reads a clock", source.path);
    }
}

#[test]
fn the_kubectl_plugin_sees_what_a_user_sees_and_decides_without_calls() {
    let mut pure = BTreeSet::new();
    for source in sources_of("kubectl-mpi/src") {
        assert!(!uses(&source.code, "mpi_operator"), "{}", source.path);
        if !PURE_IN_PLUGIN.contains(&source.module.as_str()) {
            continue;
        }
        for name in WATCHED.iter().chain(&["std::process", "std::io"]) {
            assert!(!uses(&source.code, name), "{} uses {name}", source.path);
        }
        for module in ["args", "cluster", "handover", "run"] {
            let path = format!("crate::{module}");
            assert!(!uses(&source.code, &path), "{} uses {path}", source.path);
        }
        pure.insert(source.module);
    }
    assert_eq!(pure.len(), PURE_IN_PLUGIN.len(), "{pure:?}");
    let manifest = fs::read_to_string(root().join("kubectl-mpi").join("Cargo.toml")).unwrap();
    assert!(!manifest.contains("mpi-operator"));
}

#[test]
fn every_module_opens_with_what_it_is() {
    let mut bare = Vec::new();
    for folder in ["src", "tests", "e2e", "kubectl-mpi"] {
        for (path, text) in rust_files(folder) {
            if !text.starts_with("//! ") {
                bare.push(path);
            }
        }
    }
    assert!(bare.is_empty(), "without //!: {}", bare.join(", "));
}

#[test]
fn nothing_outside_tests_ends_by_a_panic() {
    let banned = [
        ".unwrap()",
        ".expect(",
        "panic!(",
        "todo!(",
        "unimplemented!(",
        "unreachable!(",
        "dbg!(",
    ];
    let mut found = Vec::new();
    for source in sources().into_iter().chain(sources_of("kubectl-mpi/src")) {
        for (number, line) in source.code.lines().enumerate() {
            for text in banned.iter().filter(|text| line.contains(**text)) {
                found.push(format!("{}:{}: {text}", source.path, number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_test_is_ignored() {
    let mark = ["#[", "ignore"].concat();
    for folder in ["src", "tests", "e2e", "kubectl-mpi"] {
        for (path, text) in rust_files(folder) {
            assert!(!text.contains(&mark), "{path} has an ignored test");
        }
    }
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    // In two parts, so that this file does not name them itself.
    let places: Vec<String> = [("/wo", "rk/"), ("/ho", "me/"), ("/Us", "ers/")]
        .iter()
        .map(|(a, b)| format!("{a}{b}"))
        .collect();
    for folder in ["src", "tests", "e2e", "kubectl-mpi"] {
        for (path, text) in rust_files(folder) {
            for place in &places {
                for (at, _) in text.match_indices(place.as_str()) {
                    let before = text[..at].chars().next_back();
                    let absolute =
                        before.is_none_or(|c| c.is_whitespace() || "\"'`(=:".contains(c));
                    // The home of the user in the published worker image is part of the contract.
                    let image = text[at..].starts_with(&format!("{}mpiuser", places[1]));
                    assert!(!absolute || image, "{path} names {place}");
                }
            }
        }
    }
}

#[test]
fn the_text_of_a_source_is_read_as_meant() {
    let source = Source {
        path: "src/plan/x.rs".to_owned(),
        module: "plan".to_owned(),
        code: code(
            "use crate::{api::{names, reasons}, action};\n// crate::write\nfn f() { crate::facts::observed::g() }\n#[cfg(test)]\nmod tests {\nuse crate::runtime;\n}",
        ),
    };
    let paths: Vec<String> = crate_paths(&source).into_iter().collect();
    assert_eq!(
        paths,
        ["action", "api::names", "api::reasons", "facts::observed"]
    );
    assert!(uses("kube::Client", "kube"));
    assert!(!uses("crate::kube::x", "kube"));
}
