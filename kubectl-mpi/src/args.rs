//! What was typed. Flags that kubectl has too mean the same here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

/// How long the API server may take for one answer, unless `--request-timeout` says otherwise.
const REQUEST_TIMEOUT: &str = "30s";

/// How long `scale-in --wait` waits, unless `--timeout` says otherwise.
const WAIT_TIMEOUT: &str = "5m";

/// The answer to a command line.
#[derive(Debug)]
pub enum Parsed {
    /// Something is to be done.
    Run(Box<Invocation>),
    /// Help was asked for; this is it.
    Help(String),
}

/// What is to be done, and as whom.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Which cluster and who.
    pub global: Global,
    /// What.
    pub task: Task,
}

/// Flags that every subcommand takes.
#[derive(Debug, Clone, Default)]
pub struct Global {
    /// `-n`: namespace, instead of the context's.
    pub namespace: Option<String>,
    /// `--context`.
    pub context: Option<String>,
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--as`.
    pub as_user: Option<String>,
    /// `--as-group`.
    pub as_groups: Vec<String>,
    /// `--request-timeout`; None waits for ever.
    pub request_timeout: Option<Duration>,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// For people.
    Text,
    /// For people, with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// `mpijob.kubeflow.org/NAME`.
    Name,
}

/// A subcommand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Jobs, one a line.
    List {
        /// Of all namespaces.
        all_namespaces: bool,
        /// Form.
        output: Output,
    },
    /// All about one job.
    Describe {
        /// Its name.
        job: String,
        /// Form.
        output: Output,
        /// With its last events.
        events: bool,
    },
    /// The log of one pod.
    Logs {
        /// Its name.
        job: String,
        /// Of this worker; None is the launcher.
        worker: Option<u32>,
        /// How many tries before the newest.
        previous_try: usize,
        /// Flags for kubectl.
        kubectl: Vec<OsString>,
    },
    /// A command in a worker.
    Exec {
        /// Its name.
        job: String,
        /// In this worker.
        worker: u32,
        /// Flags for kubectl.
        kubectl: Vec<OsString>,
        /// The command.
        command: Vec<OsString>,
    },
    /// Workers that leave.
    ScaleIn {
        /// Its name.
        job: String,
        /// Their indexes.
        workers: BTreeSet<u32>,
        /// Wait at most this long until they are gone.
        wait: Option<Duration>,
    },
    /// Hold a job, or let it go on.
    Suspend {
        /// Its name.
        job: String,
        /// Hold.
        suspend: bool,
    },
    /// The version of this program.
    Version,
}

/// Reads a command line, the program's name included.
///
/// # Errors
/// The text for stderr if it is not understood.
pub fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Parsed, String> {
    match command().try_get_matches_from(line) {
        Ok(matches) => {
            let invocation =
                invocation(&matches).ok_or("not understood: see kubectl mpi --help\n")?;
            Ok(Parsed::Run(Box::new(invocation)))
        }
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp => Ok(Parsed::Help(error.to_string())),
            _ => Err(error.to_string()),
        },
    }
}

fn command() -> Command {
    let job = || {
        Arg::new("job")
            .value_name("JOB")
            .required(true)
            .value_parser(job_name)
            .help("Name of the MPIJob; mpijob/NAME is taken too")
    };
    let worker = || {
        Arg::new("worker")
            .long("worker")
            .short('w')
            .value_name("INDEX")
            .value_parser(value_parser!(u32))
    };
    let container = || {
        Arg::new("container")
            .long("container")
            .short('c')
            .value_name("NAME")
            .help("Container, instead of the pod's main one")
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let output = |values: &'static [&'static str]| {
        Arg::new("output")
            .long("output")
            .short('o')
            .value_parser(PossibleValuesParser::new(values))
            .help("Form of the output")
    };
    Command::new("kubectl-mpi")
        .bin_name("kubectl mpi")
        .about("MPIJobs: workers by index, the gate, logs, exec, scale-in by index")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .args(global_args())
        .subcommand(
            Command::new("list")
                .visible_alias("ls")
                .about("MPIJobs and where they stand")
                .arg(flag("all-namespaces", "Of all namespaces").short('A'))
                .arg(output(&["wide", "json", "yaml", "name"])),
        )
        .subcommand(
            Command::new("describe")
                .about("One MPIJob: the gate, its tries, its workers by index")
                .arg(job())
                .arg(flag("events", "Its last events too"))
                .arg(output(&["wide", "json", "yaml", "name"])),
        )
        .subcommand(
            Command::new("logs")
                .about("The log of the launcher's newest try, of an earlier one, or of a worker")
                .arg(job())
                .arg(worker().help("Of this worker, not of the launcher"))
                .arg(
                    Arg::new("previous-try")
                        .long("previous-try")
                        .value_name("K")
                        .value_parser(value_parser!(u32).range(1..))
                        .conflicts_with("worker")
                        .help("Of the try K before the newest: 1 is the last but one"),
                )
                .arg(flag("follow", "Go on as the log grows").short('f'))
                .arg(
                    Arg::new("tail")
                        .long("tail")
                        .value_name("N")
                        .allow_negative_numbers(true)
                        .value_parser(value_parser!(i64).range(-1..))
                        .help("The last N lines; -1 is all"),
                )
                .arg(flag("timestamps", "A time before each line"))
                .arg(container()),
        )
        .subcommand(
            Command::new("exec")
                .about("Run a command in a worker")
                .arg(job())
                .arg(worker().required(true).help("In this worker"))
                .arg(flag("stdin", "Pass stdin to it").short('i'))
                .arg(flag("tty", "Its stdin is a terminal").short('t'))
                .arg(container())
                .arg(
                    Arg::new("command")
                        .value_name("CMD")
                        .last(true)
                        .required(true)
                        .num_args(1..)
                        .value_parser(value_parser!(OsString))
                        .help("The command and its arguments, behind --"),
                ),
        )
        .subcommand(
            Command::new("scale-in")
                .about("Let named workers leave a job that runs")
                .arg(job())
                .arg(
                    worker()
                        .required(true)
                        .action(ArgAction::Append)
                        .value_delimiter(',')
                        .help("A worker that leaves; again for each"),
                )
                .arg(flag(
                    "wait",
                    "Wait until they are gone, and show who is left",
                ))
                .arg(
                    Arg::new("timeout")
                        .long("timeout")
                        .value_name("TIME")
                        .default_value(WAIT_TIMEOUT)
                        .value_parser(duration)
                        .help("How long --wait waits; 0 is for ever"),
                ),
        )
        .subcommand(
            Command::new("suspend")
                .about("Stop a job: all its pods end, the MPIJob stays")
                .arg(job()),
        )
        .subcommand(
            Command::new("resume")
                .about("Start a suspended job again")
                .arg(job()),
        )
        .subcommand(Command::new("version").about("The version of this program"))
}

fn global_args() -> [Arg; 6] {
    let global = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .global(true)
            .help(help)
            .help_heading("Global options, as of kubectl")
    };
    [
        global("namespace", "NS", "Namespace, instead of the context's").short('n'),
        global("context", "NAME", "Context of the kubeconfig"),
        global(
            "kubeconfig",
            "FILE",
            "Instead of KUBECONFIG and ~/.kube/config",
        )
        .value_parser(value_parser!(PathBuf)),
        global("as", "USER", "Act as this user"),
        global(
            "as-group",
            "GROUP",
            "Act as a member of this group; again for each",
        )
        .action(ArgAction::Append),
        global(
            "request-timeout",
            "TIME",
            "Longest wait for one answer, as 5s or 1m; 0 is for ever",
        )
        .default_value(REQUEST_TIMEOUT)
        .value_parser(duration),
    ]
}

fn invocation(matches: &ArgMatches) -> Option<Invocation> {
    let (name, given) = matches.subcommand()?;
    let text = |key: &str| given.get_one::<String>(key).cloned();
    let global = Global {
        namespace: text("namespace"),
        context: text("context"),
        kubeconfig: given.get_one::<PathBuf>("kubeconfig").cloned(),
        as_user: text("as"),
        as_groups: given
            .get_many("as-group")
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        request_timeout: *given.get_one::<Option<Duration>>("request-timeout")?,
    };
    let output = || match given.get_one::<String>("output").map(String::as_str) {
        Some("wide") => Output::Wide,
        Some("json") => Output::Json,
        Some("yaml") => Output::Yaml,
        Some("name") => Output::Name,
        _ => Output::Text,
    };
    let job = || text("job");
    let task = match name {
        "list" => Task::List {
            all_namespaces: given.get_flag("all-namespaces"),
            output: output(),
        },
        "describe" => Task::Describe {
            job: job()?,
            output: output(),
            events: given.get_flag("events"),
        },
        "logs" => Task::Logs {
            job: job()?,
            worker: given.get_one("worker").copied(),
            previous_try: given
                .get_one::<u32>("previous-try")
                .map_or(0, |back| *back as usize),
            kubectl: flags(given, &["follow", "timestamps"], &["tail", "container"]),
        },
        "exec" => Task::Exec {
            job: job()?,
            worker: *given.get_one("worker")?,
            kubectl: flags(given, &["stdin", "tty"], &["container"]),
            command: given.get_many("command")?.cloned().collect(),
        },
        "scale-in" => Task::ScaleIn {
            job: job()?,
            workers: given.get_many("worker")?.copied().collect(),
            wait: given.get_flag("wait").then(|| {
                let timeout = given.get_one::<Option<Duration>>("timeout");
                timeout.copied().flatten().unwrap_or(Duration::MAX)
            }),
        },
        "suspend" | "resume" => Task::Suspend {
            job: job()?,
            suspend: name == "suspend",
        },
        "version" => Task::Version,
        _ => return None,
    };
    Some(Invocation { global, task })
}

/// Flags that kubectl gets as they were typed, in their long form.
fn flags(given: &ArgMatches, switches: &[&str], values: &[&str]) -> Vec<OsString> {
    let switches = switches.iter().filter(|name| given.get_flag(name));
    let mut all: Vec<OsString> = switches.map(|name| format!("--{name}").into()).collect();
    for name in values {
        let raw = given.get_raw(name).and_then(|mut raw| raw.next());
        if let Some(value) = raw {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(value);
            all.push(flag);
        }
    }
    all
}

/// `pi`, or `mpijob/pi` as `-o name` writes it.
fn job_name(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        None => text,
        Some(("mpijob" | "mpijobs" | "mpijob.kubeflow.org" | "mj" | "mpij", name)) => name,
        Some((kind, _)) => return Err(format!("{kind} is not mpijob")),
    };
    // What the API server would take for another path.
    if name.is_empty() || name.contains(['/', '?', '#', '%']) {
        return Err("is no name of an MPIJob".to_owned());
    }
    Ok(name.to_owned())
}

/// A time as kubectl takes it: `0`, `90`, `500ms`, `5s`, `1m30s`, `2h`. None is no limit.
fn duration(text: &str) -> Result<Option<Duration>, String> {
    let wrong = || "is no time such as 5s or 1m30s".to_owned();
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok((seconds > 0).then_some(Duration::from_secs(seconds)));
    }
    let mut rest = text;
    let mut milliseconds: u64 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let units = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(units);
        let factor = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(factor).ok_or_else(wrong)?;
        milliseconds = milliseconds.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    if text.is_empty() {
        return Err(wrong());
    }
    Ok((milliseconds > 0).then(|| Duration::from_millis(milliseconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Parsed, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn run(line: &str) -> Invocation {
        match typed(line) {
            Ok(Parsed::Run(invocation)) => *invocation,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_definition_of_the_flags_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn flags_stand_before_or_behind_the_subcommand() {
        for line in [
            "kubectl-mpi -n x --context c list -o wide --as u --as-group g --as-group h",
            "kubectl-mpi list -o wide --namespace=x --context=c --as=u --as-group=g --as-group=h",
        ] {
            let got = run(line);
            assert_eq!(got.global.namespace.as_deref(), Some("x"));
            assert_eq!(got.global.context.as_deref(), Some("c"));
            assert_eq!(got.global.as_user.as_deref(), Some("u"));
            assert_eq!(got.global.as_groups, ["g", "h"], "{line}");
            assert_eq!(got.global.request_timeout, Some(Duration::from_secs(30)));
            let list = Task::List {
                all_namespaces: false,
                output: Output::Wide,
            };
            assert_eq!(got.task, list);
        }
    }

    #[test]
    fn workers_are_named_one_by_one_or_in_a_list() {
        for line in [
            "kubectl-mpi scale-in pi --worker 1 --worker 4",
            "kubectl-mpi scale-in mpijob.kubeflow.org/pi -w 4,1,1",
        ] {
            let task = run(line).task;
            let workers = BTreeSet::from([1, 4]);
            assert_eq!(
                task,
                Task::ScaleIn {
                    job: "pi".to_owned(),
                    workers,
                    wait: None
                }
            );
        }
        let Task::ScaleIn { wait, .. } = run("kubectl-mpi scale-in pi -w 1 --wait").task else {
            panic!("no scale-in");
        };
        assert_eq!(wait, Some(Duration::from_secs(300)));
    }

    #[test]
    fn flags_of_kubectl_are_handed_on() {
        let task = run("kubectl-mpi logs pi --worker 3 -f --tail -1 -c side").task;
        let Task::Logs {
            worker,
            kubectl,
            previous_try,
            ..
        } = task
        else {
            panic!("no logs");
        };
        assert_eq!((worker, previous_try), (Some(3), 0));
        assert_eq!(kubectl, ["--follow", "--tail=-1", "--container=side"]);
        let task = run("kubectl-mpi exec pi --worker 3 -it -- sh -c ls --worker").task;
        let Task::Exec {
            worker,
            kubectl,
            command,
            ..
        } = task
        else {
            panic!("no exec");
        };
        assert_eq!(worker, 3);
        assert_eq!(kubectl, ["--stdin", "--tty"]);
        assert_eq!(command, ["sh", "-c", "ls", "--worker"]);
    }

    #[test]
    fn what_is_not_understood_is_an_error_and_help_is_none() {
        for line in [
            "kubectl-mpi",
            "kubectl-mpi frobnicate",
            "kubectl-mpi list --frobnicate",
            "kubectl-mpi list -o xml",
            "kubectl-mpi describe",
            "kubectl-mpi describe pod/pi",
            "kubectl-mpi describe pi/log",
            "kubectl-mpi logs pi --worker x",
            "kubectl-mpi logs pi --worker 1 --previous-try 1",
            "kubectl-mpi logs pi --previous-try 0",
            "kubectl-mpi exec pi --worker 1",
            "kubectl-mpi exec pi -- ls",
            "kubectl-mpi scale-in pi",
            "kubectl-mpi list --request-timeout soon",
        ] {
            let Err(text) = typed(line) else {
                panic!("{line} is understood");
            };
            assert!(!text.is_empty(), "{line}");
        }
        for line in ["kubectl-mpi --help", "kubectl-mpi logs -h"] {
            let Ok(Parsed::Help(text)) = typed(line) else {
                panic!("{line} is no help");
            };
            assert!(text.contains("Usage: kubectl mpi"), "{text}");
        }
    }

    #[test]
    fn times_are_those_of_kubectl() {
        let seconds = |n| Ok(Some(Duration::from_secs(n)));
        assert_eq!(duration("0"), Ok(None));
        assert_eq!(duration("0s"), Ok(None));
        assert_eq!(duration("90"), seconds(90));
        assert_eq!(duration("1m30s"), seconds(90));
        assert_eq!(duration("2h"), seconds(7200));
        assert_eq!(duration("500ms"), Ok(Some(Duration::from_millis(500))));
        for wrong in ["", "s", "5x", "-1s", "1.5s", "99999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
