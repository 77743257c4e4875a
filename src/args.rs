//! Command line and environment, turned into one [`Config`].
//!
//! The syntax is that of Go's `flag` package, because Deployments of the Go operator are taken over
//! as they are: `-f` and `--f`, `-f=v` and `-f v`, booleans only bare or `=v`, and the first
//! argument that is no flag ends the flags. No argument parser on crates.io reads it that way.

use std::fmt;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One line for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Everything that the command line and the environment decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The one namespace to look at; `None` means all. A valid namespace name.
    pub namespace: Option<String>,
    /// Namespace of the election's Lease; has to exist. A valid namespace name.
    pub lock_namespace: String,
    /// `None` is off, `volcano` is volcano, any other text is the name of a scheduler-plugins
    /// scheduler. Never empty.
    pub gang_scheduling: Option<String>,
    /// Appended to host names in the hostfile; empty for none.
    pub cluster_domain: String,
    /// Reconciles in parallel, at least 1.
    pub threadiness: usize,
    /// Port of `/metrics`; 0 is off.
    pub monitoring_port: u16,
    /// Port of health and readiness; never 0.
    pub health_port: u16,
    /// Requests a second to the API server, at least 1; `None` is no limit.
    pub kube_api_qps: Option<u32>,
    /// Requests that may go out at once above the rate, at least 1.
    pub kube_api_burst: u32,
    /// Keys a second that the queue hands out, at least 1.
    pub queue_rate_limit: u32,
    /// Keys that the queue may hand out at once above the rate, at least 1.
    pub queue_burst: u32,
    /// URL of the API server, over the one in the kubeconfig.
    pub master: Option<String>,
    /// Path of a kubeconfig; with neither this nor [`Config::master`] the pod's own account is used.
    pub kubeconfig: Option<String>,
    /// klog's `-v`; 4 and more is debug.
    pub verbosity: i32,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Elect a leader before writing anything. Off only where nobody else runs.
    pub leader_elect: bool,
    /// Seconds that workers stay bound to an unreachable node, where the user set no toleration; at
    /// least 0, `None` leaves the cluster's default (300).
    pub unreachable_toleration_seconds: Option<i64>,
    /// Force the deletion of launcher pods that are stuck on a NotReady node.
    pub force_delete_unreachable: bool,
    /// Delete the MPIJob itself at the end of `ttlSecondsAfterFinished`.
    pub delete_finished_jobs: bool,
    /// klog flags that were given and do nothing here, as `-name`, for one line in the log.
    pub ignored_flags: Vec<String>,
    /// Arguments behind the last flag; Go ignores them as well.
    pub ignored_arguments: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespace: None,
            lock_namespace: "mpi-operator".to_owned(),
            gang_scheduling: None,
            cluster_domain: String::new(),
            threadiness: 2,
            monitoring_port: 0,
            health_port: 8080,
            kube_api_qps: Some(DEFAULT_QPS),
            kube_api_burst: DEFAULT_BURST,
            queue_rate_limit: 10,
            queue_burst: 100,
            master: None,
            kubeconfig: None,
            verbosity: 0,
            log_format: LogFormat::Text,
            leader_elect: true,
            unreachable_toleration_seconds: None,
            force_delete_unreachable: false,
            delete_finished_jobs: false,
            ignored_flags: Vec::new(),
            ignored_arguments: Vec::new(),
        }
    }
}

impl Config {
    /// Name of the log level that `-v` asks for: `info`, or `debug` from 4 on.
    #[must_use]
    pub fn log_level(&self) -> &'static str {
        if self.verbosity >= 4 { "debug" } else { "info" }
    }
}

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// Run with this.
    Run(Box<Config>),
    /// Print [`version_text`] and end with code 0.
    Version,
    /// Print [`usage_text`] and end with code 0.
    Help,
}

/// A command line that cannot be used; the process ends with code 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{USAGE_LINE}", self.0)
    }
}

impl std::error::Error for UsageError {}

/// client-go's own rate, also meant by 0.
const DEFAULT_QPS: u32 = 5;
/// client-go's own burst, also meant by 0.
const DEFAULT_BURST: u32 = 10;

const USAGE_LINE: &str = "usage: mpi-operator [flags] (-help lists them)";

type Set = fn(&mut State, &str) -> Result<(), String>;

#[derive(Default)]
struct State {
    config: Config,
    version: bool,
}

/// One flag. `set` of a boolean only ever gets `true` or `false`.
struct Flag {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
    set: Set,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Value,
    /// klog's; does nothing here.
    IgnoredBool,
    IgnoredValue,
}

macro_rules! flags {
    ($($kind:ident $name:literal $default:literal $help:literal $set:expr;)*) => {
        &[$(Flag { name: $name, kind: Kind::$kind, default: $default, help: $help, set: $set }),*]
    };
}

const FLAGS: &[Flag] = flags! {
    Value "namespace" "" "the one namespace to look at (default: environment KUBEFLOW_NAMESPACE, else all)"
        |s, v| namespace(v).map(|n| s.config.namespace = n);
    Value "lock-namespace" "mpi-operator" "namespace of the election's Lease; has to exist"
        |s, v| {
            s.config.lock_namespace = namespace(v)?.ok_or("must be a namespace name")?;
            Ok(())
        };
    Value "gang-scheduling" "" "volcano, or the name of a scheduler-plugins scheduler; empty is off"
        |s, v| { s.config.gang_scheduling = text(v); Ok(()) };
    Value "cluster-domain" "" "appended to host names, as in cluster.local"
        |s, v| { s.config.cluster_domain = v.to_owned(); Ok(()) };
    Value "threadiness" "2" "reconciles in parallel; at least 16 are used"
        |s, v| within(v, 1, 1000).map(|n| s.config.threadiness = n);
    Value "monitoring-port" "0" "port of /metrics; 0 is off"
        |s, v| within(v, 0, 65535).map(|n| s.config.monitoring_port = n);
    Value "health-port" "8080" "port of /healthz and /readyz"
        |s, v| within(v, 1, 65535).map(|n| s.config.health_port = n);
    Value "kube-api-qps" "5" "checked, but no limit is applied: API Priority and Fairness does that"
        |s, v| {
            // As in client-go: 0 is its default, and a negative rate switches the limit off.
            s.config.kube_api_qps = match integer(v)? {
                0 => Some(DEFAULT_QPS),
                n if n < 0 => None,
                n => Some(u32::try_from(n).map_err(|_| OUT_OF_RANGE)?),
            };
            Ok(())
        };
    Value "kube-api-burst" "10" "checked, but no limit is applied"
        |s, v| within::<u32>(v, 0, i64::from(u32::MAX))
            .map(|n| s.config.kube_api_burst = if n == 0 { DEFAULT_BURST } else { n });
    Value "controller-queue-rate-limit" "10" "checked, but no limit is applied"
        |s, v| within(v, 1, i64::from(u32::MAX)).map(|n| s.config.queue_rate_limit = n);
    Value "controller-queue-burst" "100" "checked, but no limit is applied"
        |s, v| within(v, 1, i64::from(u32::MAX)).map(|n| s.config.queue_burst = n);
    Value "master" "" "URL of the API server, over the one in the kubeconfig"
        |s, v| { s.config.master = text(v); Ok(()) };
    Value "kubeConfig" "" "path of a kubeconfig; environment KUBECONFIG goes first"
        |s, v| { s.config.kubeconfig = text(v); Ok(()) };
    Bool "version" "false" "print the version and end"
        |s, v| { s.version = v == "true"; Ok(()) };
    Value "log-format" "text" "text or json"
        |s, v| {
            s.config.log_format = match v {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err("must be text or json".to_owned()),
            };
            Ok(())
        };
    Bool "leader-elect" "true" "elect a leader by Lease; off only where nobody else runs"
        |s, v| { s.config.leader_elect = v == "true"; Ok(()) };
    Value "unreachable-toleration-seconds" "" "seconds that workers stay on an unreachable node, where the user set no toleration (default: the cluster's)"
        |s, v| within(v, 0, i64::from(i32::MAX))
            .map(|n| s.config.unreachable_toleration_seconds = Some(n));
    Bool "force-delete-unreachable" "false" "force the deletion of launcher pods that are stuck on a NotReady node"
        |s, v| { s.config.force_delete_unreachable = v == "true"; Ok(()) };
    Bool "delete-finished-jobs" "false" "ttlSecondsAfterFinished also deletes the MPIJob itself"
        |s, v| { s.config.delete_finished_jobs = v == "true"; Ok(()) };
    Value "v" "0" "log level as in klog; 4 and more is debug"
        |s, v| {
            // klog reads its level in base 10 only.
            let level = v.parse::<i64>().map_err(|_| PARSE_ERROR)?;
            s.config.verbosity = i32::try_from(level).map_err(|_| OUT_OF_RANGE)?;
            Ok(())
        };
    IgnoredBool "add_dir_header" "" "" ignore;
    IgnoredBool "alsologtostderr" "" "" ignore;
    IgnoredBool "legacy_stderr_threshold_behavior" "" "" ignore;
    IgnoredBool "logtostderr" "" "" ignore;
    IgnoredBool "one_output" "" "" ignore;
    IgnoredBool "skip_headers" "" "" ignore;
    IgnoredBool "skip_log_headers" "" "" ignore;
    IgnoredValue "alsologtostderrthreshold" "" "" ignore;
    IgnoredValue "log_backtrace_at" "" "" ignore;
    IgnoredValue "log_dir" "" "" ignore;
    IgnoredValue "log_file" "" "" ignore;
    IgnoredValue "log_file_max_size" "" "" ignore;
    IgnoredValue "stderrthreshold" "" "" ignore;
    IgnoredValue "vmodule" "" "" ignore;
};

/// Go's words for a number that is none.
const PARSE_ERROR: &str = "parse error";
/// Go's words for a number that does not fit.
const OUT_OF_RANGE: &str = "value out of range";

fn ignore(_: &mut State, _: &str) -> Result<(), String> {
    Ok(())
}

fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

/// A namespace becomes part of request paths, so nothing but a name may pass.
fn namespace(value: &str) -> Result<Option<String>, String> {
    let fits = value.len() <= 63
        && !value.starts_with('-')
        && !value.ends_with('-')
        && value
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        Ok(text(value))
    } else {
        Err("must be a namespace name".to_owned())
    }
}

/// Go's `ParseInt(s, 0, 64)`: an optional sign, then decimal, `0x`, `0o`, `0b` or a leading 0 for
/// octal, with single underscores between digits where the base comes from a prefix.
fn integer(value: &str) -> Result<i64, &'static str> {
    let (negative, digits) = match value.as_bytes().first() {
        Some(b'-') => (true, &value[1..]),
        Some(b'+') => (false, &value[1..]),
        _ => (false, value),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, rest) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let prefixed = rest.len() < lower.len();
    if rest.is_empty() || rest.ends_with('_') || rest.contains("__") {
        return Err(PARSE_ERROR);
    }
    if (rest.contains('_') && !prefixed) || !rest.chars().all(|c| c == '_' || c.is_digit(radix)) {
        return Err(PARSE_ERROR);
    }
    let plain = rest.replace('_', "");
    let signed = if negative { format!("-{plain}") } else { plain };
    i64::from_str_radix(&signed, radix).map_err(|_| OUT_OF_RANGE)
}

fn within<T: TryFrom<i64>>(value: &str, low: i64, high: i64) -> Result<T, String> {
    let number = integer(value)?;
    if number < low {
        return Err(format!("must be at least {low}"));
    }
    if number > high {
        return Err(format!("must be at most {high}"));
    }
    T::try_from(number).map_err(|_| OUT_OF_RANGE.to_owned())
}

/// Go's `ParseBool`.
fn boolean(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Read the command line (without the program's name) and the environment.
///
/// `env` returns the value of an environment variable. Read are `KUBEFLOW_NAMESPACE`, the default
/// of `-namespace`, and `KUBECONFIG`, which wins over `-kubeConfig` as in the Go operator.
///
/// # Errors
///
/// An unknown flag, a value that does not fit, or a flag without its value. Flags that were read
/// before are not applied.
pub fn parse(
    mut args: impl Iterator<Item = String>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Parsed, UsageError> {
    let mut state = State::default();
    if let Some(value) = env("KUBEFLOW_NAMESPACE") {
        state.config.namespace = namespace(&value).map_err(|why| {
            UsageError(format!(
                "invalid value {value:?} in environment variable KUBEFLOW_NAMESPACE: {why}"
            ))
        })?;
    }
    while let Some(arg) = args.next() {
        // A lone dash and everything without one is not a flag and ends them.
        let Some(body) = arg.strip_prefix('-').filter(|body| !body.is_empty()) else {
            state.config.ignored_arguments.push(arg);
            break;
        };
        if body == "-" {
            break;
        }
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.is_empty() || body.starts_with('-') || body.starts_with('=') {
            return Err(UsageError(format!("bad flag syntax: {arg}")));
        }
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else {
            if name == "help" || name == "h" {
                return Ok(Parsed::Help);
            }
            return Err(UsageError(format!(
                "flag provided but not defined: -{name}"
            )));
        };
        let value = match (flag.kind, inline) {
            (Kind::Bool | Kind::IgnoredBool, None) => "true".to_owned(),
            (Kind::Bool | Kind::IgnoredBool, Some(value)) => {
                let Some(on) = boolean(&value) else {
                    return Err(UsageError(format!(
                        "invalid boolean value {value:?} for -{name}: {PARSE_ERROR}"
                    )));
                };
                on.to_string()
            }
            (Kind::Value | Kind::IgnoredValue, Some(value)) => value,
            (Kind::Value | Kind::IgnoredValue, None) => args
                .next()
                .ok_or_else(|| UsageError(format!("flag needs an argument: -{name}")))?,
        };
        (flag.set)(&mut state, &value).map_err(|why| {
            UsageError(format!("invalid value {value:?} for flag -{name}: {why}"))
        })?;
        if matches!(flag.kind, Kind::IgnoredBool | Kind::IgnoredValue) {
            state.config.ignored_flags.push(format!("-{name}"));
        }
    }
    state.config.ignored_arguments.extend(args);
    if let Some(path) = env("KUBECONFIG").filter(|path| !path.is_empty()) {
        state.config.kubeconfig = Some(path);
    }
    Ok(if state.version {
        Parsed::Version
    } else {
        Parsed::Run(Box::new(state.config))
    })
}

/// What `-help` prints, with a newline at the end.
#[must_use]
pub fn usage_text() -> String {
    let mut out = String::from("usage: mpi-operator [flags]\n");
    for flag in FLAGS {
        let value = match flag.kind {
            Kind::Bool => "",
            Kind::Value => " <value>",
            Kind::IgnoredBool | Kind::IgnoredValue => continue,
        };
        out.push_str(&format!("  -{}{value}\n        {}", flag.name, flag.help));
        if !matches!(flag.default, "" | "0" | "false") {
            out.push_str(&format!(" (default {})", flag.default));
        }
        out.push('\n');
    }
    out.push_str("Accepted and ignored, as klog is not used here:\n ");
    for flag in FLAGS {
        if matches!(flag.kind, Kind::IgnoredBool | Kind::IgnoredValue) {
            out.push_str(&format!(" -{}", flag.name));
        }
    }
    out.push('\n');
    out
}

/// What `-version` prints: six lines, as the Go operator does, with a newline at the end.
///
/// Commit, build time and compiler come from `MPI_OPERATOR_GIT_SHA`, `MPI_OPERATOR_BUILT` and
/// `MPI_OPERATOR_RUSTC` in the environment of the build.
#[must_use]
pub fn version_text() -> String {
    const UNKNOWN: &str = "Not provided.";
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    };
    format!(
        "API Version: v2\nVersion: v{}\nGit SHA: {}\nBuilt: {}\nRust Version: {}\nOS/Arch: {}/{arch}\n",
        env!("CARGO_PKG_VERSION"),
        option_env!("MPI_OPERATOR_GIT_SHA").unwrap_or(UNKNOWN),
        option_env!("MPI_OPERATOR_BUILT").unwrap_or(UNKNOWN),
        option_env!("MPI_OPERATOR_RUSTC").unwrap_or(UNKNOWN),
        std::env::consts::OS,
    )
}

#[cfg(test)]
mod tests;
