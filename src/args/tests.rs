//! A case is one line over `run`, `fails` or `all`.

use super::*;

fn with_env(args: &[&str], env: &[(&str, &str)]) -> Result<Parsed, UsageError> {
    parse(args.iter().map(|a| (*a).to_owned()), &|name| {
        env.iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

#[track_caller]
fn run(args: &[&str]) -> Config {
    match with_env(args, &[]) {
        Ok(Parsed::Run(config)) => *config,
        other => panic!("{args:?}: {other:?}"),
    }
}

#[track_caller]
fn fails(args: &[&str], line: &str) {
    match with_env(args, &[]) {
        Err(error) => assert_eq!(error.0, line, "{args:?}"),
        Ok(parsed) => panic!("{args:?}: {parsed:?}"),
    }
}

#[test]
fn defaults_are_those_of_the_go_operator() {
    let config = run(&[]);
    assert_eq!(config, Config::default());
    assert_eq!(config.namespace, None);
    assert_eq!(config.lock_namespace, "mpi-operator");
    assert_eq!((config.threadiness, config.monitoring_port), (2, 0));
    assert_eq!((config.kube_api_qps, config.kube_api_burst), (Some(5), 10));
    assert_eq!((config.queue_rate_limit, config.queue_burst), (10, 100));
    assert_eq!(config.health_port, 8080);
    assert!(config.leader_elect);
}

#[test]
fn each_flag_is_read_in_all_four_forms() {
    type Read = fn(&Config) -> String;
    let cases: &[(&str, &str, Read)] = &[
        ("namespace", "team-a", |c| {
            c.namespace.clone().unwrap_or_default()
        }),
        ("lock-namespace", "kubeflow", |c| c.lock_namespace.clone()),
        ("gang-scheduling", "volcano", |c| {
            c.gang_scheduling.clone().unwrap_or_default()
        }),
        ("cluster-domain", "cluster.local", |c| {
            c.cluster_domain.clone()
        }),
        ("threadiness", "7", |c| c.threadiness.to_string()),
        ("monitoring-port", "9090", |c| c.monitoring_port.to_string()),
        ("health-port", "8081", |c| c.health_port.to_string()),
        ("kube-api-qps", "50", |c| {
            c.kube_api_qps.unwrap_or_default().to_string()
        }),
        ("kube-api-burst", "100", |c| c.kube_api_burst.to_string()),
        ("controller-queue-rate-limit", "20", |c| {
            c.queue_rate_limit.to_string()
        }),
        ("controller-queue-burst", "200", |c| {
            c.queue_burst.to_string()
        }),
        ("master", "https://10.0.0.1:6443", |c| {
            c.master.clone().unwrap_or_default()
        }),
        ("kubeConfig", "/etc/kubeconfig", |c| {
            c.kubeconfig.clone().unwrap_or_default()
        }),
        ("v", "4", |c| c.verbosity.to_string()),
        ("log-format", "json", |c| {
            format!("{:?}", c.log_format).to_lowercase()
        }),
        ("unreachable-toleration-seconds", "30", |c| {
            c.unreachable_toleration_seconds
                .unwrap_or_default()
                .to_string()
        }),
    ];
    for (name, value, read) in cases {
        let (one, two) = (format!("-{name}"), format!("--{name}"));
        let (one_eq, two_eq) = (format!("-{name}={value}"), format!("--{name}={value}"));
        for args in [
            vec![one.as_str(), value],
            vec![two.as_str(), value],
            vec![one_eq.as_str()],
            vec![two_eq.as_str()],
        ] {
            assert_eq!(read(&run(&args)), *value, "{args:?}");
        }
        fails(&[one.as_str()], &format!("flag needs an argument: -{name}"));
    }
}

#[test]
fn booleans_are_bare_or_with_an_equals_sign() {
    for on in ["1", "t", "T", "TRUE", "true", "True"] {
        let arg = format!("-delete-finished-jobs={on}");
        assert!(run(&[&arg]).delete_finished_jobs, "{on}");
    }
    for off in ["0", "f", "F", "FALSE", "false", "False"] {
        let arg = format!("--leader-elect={off}");
        assert!(!run(&[&arg]).leader_elect, "{off}");
    }
    assert!(run(&["-force-delete-unreachable"]).force_delete_unreachable);
    // A word behind a bare boolean is no value of it but the end of the flags.
    let config = run(&["-leader-elect", "false", "-threadiness=5"]);
    assert!(config.leader_elect);
    assert_eq!(config.threadiness, 2);
    assert_eq!(config.ignored_arguments, ["false", "-threadiness=5"]);
    fails(
        &["-leader-elect=yes"],
        r#"invalid boolean value "yes" for -leader-elect: parse error"#,
    );
    fails(
        &["-leader-elect="],
        r#"invalid boolean value "" for -leader-elect: parse error"#,
    );
}

#[test]
fn parsing_stops_at_the_first_word_and_at_two_dashes() {
    for stop in ["--", "-", "word", ""] {
        let config = run(&["-threadiness=3", stop, "-threadiness=4"]);
        assert_eq!(config.threadiness, 3, "{stop:?}");
        assert_eq!(
            config.ignored_arguments.last().map(String::as_str),
            Some("-threadiness=4")
        );
    }
}

#[test]
fn the_last_of_two_wins_and_values_may_look_like_flags() {
    assert_eq!(run(&["-v=1", "-v", "5"]).verbosity, 5);
    assert_eq!(run(&["-cluster-domain", "-v"]).cluster_domain, "-v");
    assert_eq!(run(&["-master=a=b"]).master.as_deref(), Some("a=b"));
    assert_eq!(run(&["-master="]).master, None);
}

#[test]
fn klog_flags_are_taken_and_named() {
    let config = run(&[
        "-alsologtostderr",
        "--lock-namespace=kubeflow",
        "-logtostderr=false",
        "-alsologtostderrthreshold=1",
        "-stderrthreshold",
        "WARNING",
        "-legacy_stderr_threshold_behavior=false",
        "-log_dir=/tmp",
        "-log_file=x",
        "-log_file_max_size=1800",
        "-log_backtrace_at=:0",
        "-add_dir_header",
        "-skip_headers=1",
        "-skip_log_headers",
        "-one_output",
        "-vmodule=a=1",
        "-v=4",
    ]);
    assert_eq!(config.lock_namespace, "kubeflow");
    assert_eq!(config.log_level(), "debug");
    assert_eq!(config.ignored_flags.len(), 14);
    assert_eq!(config.ignored_flags[0], "-alsologtostderr");
    assert!(config.ignored_arguments.is_empty());
    assert_eq!(run(&["-v=3"]).log_level(), "info");
}

#[test]
fn bad_values_are_named_in_go_style() {
    fails(
        &["-threadiness=x"],
        r#"invalid value "x" for flag -threadiness: parse error"#,
    );
    fails(
        &["-threadiness=0"],
        r#"invalid value "0" for flag -threadiness: must be at least 1"#,
    );
    fails(
        &["--threadiness", "-3"],
        r#"invalid value "-3" for flag -threadiness: must be at least 1"#,
    );
    fails(
        &["-monitoring-port=65536"],
        r#"invalid value "65536" for flag -monitoring-port: must be at most 65535"#,
    );
    fails(
        &["-health-port=0"],
        r#"invalid value "0" for flag -health-port: must be at least 1"#,
    );
    fails(
        &["-kube-api-burst=-1"],
        r#"invalid value "-1" for flag -kube-api-burst: must be at least 0"#,
    );
    fails(
        &["-kube-api-qps=99999999999999999999"],
        r#"invalid value "99999999999999999999" for flag -kube-api-qps: value out of range"#,
    );
    fails(
        &["-log-format=xml"],
        r#"invalid value "xml" for flag -log-format: must be text or json"#,
    );
    fails(
        &["-lock-namespace="],
        r#"invalid value "" for flag -lock-namespace: must be a namespace name"#,
    );
    fails(
        &["-namespace=../nodes"],
        r#"invalid value "../nodes" for flag -namespace: must be a namespace name"#,
    );
    fails(
        &["-v=0x4"],
        r#"invalid value "0x4" for flag -v: parse error"#,
    );
    fails(&["-nope=1"], "flag provided but not defined: -nope");
    fails(
        &["--kubeconfig=x"],
        "flag provided but not defined: -kubeconfig",
    );
    fails(&["---v"], "bad flag syntax: ---v");
    fails(&["-=v"], "bad flag syntax: -=v");
    fails(&["--=v"], "bad flag syntax: --=v");
}

#[test]
fn numbers_are_read_as_go_reads_them() {
    for (text, value) in [
        ("10", 10),
        ("+10", 10),
        ("-10", -10),
        ("0", 0),
        ("0x1F", 31),
        ("0b11", 3),
        ("0o17", 15),
        ("017", 15),
        ("0x_1f", 31),
        ("-0x10", -16),
    ] {
        assert_eq!(integer(text), Ok(value), "{text}");
    }
    for text in [
        "", "-", "1_000", "0x", "0x__1", "0x1_", "08", "1.5", " 1", "1 ", "--1", "é", "+-1",
    ] {
        assert_eq!(integer(text), Err(PARSE_ERROR), "{text}");
    }
}

#[test]
fn rates_of_zero_and_below_mean_what_client_go_means() {
    assert_eq!(run(&["-kube-api-qps=0"]).kube_api_qps, Some(5));
    assert_eq!(run(&["-kube-api-qps=-1"]).kube_api_qps, None);
    assert_eq!(run(&["-kube-api-burst=0"]).kube_api_burst, 10);
}

#[test]
fn the_environment_is_honoured() {
    let env = [("KUBEFLOW_NAMESPACE", "team-a"), ("KUBECONFIG", "/env")];
    let Ok(Parsed::Run(config)) = with_env(&["-kubeConfig=/flag"], &env) else {
        panic!("refused");
    };
    assert_eq!(config.namespace.as_deref(), Some("team-a"));
    assert_eq!(config.kubeconfig.as_deref(), Some("/env"));
    let Ok(Parsed::Run(config)) = with_env(&["-namespace="], &env) else {
        panic!("refused");
    };
    assert_eq!(config.namespace, None);
    let empty = [("KUBEFLOW_NAMESPACE", ""), ("KUBECONFIG", "")];
    let Ok(Parsed::Run(config)) = with_env(&["-kubeConfig=/flag"], &empty) else {
        panic!("refused");
    };
    assert_eq!(config.namespace, None);
    assert_eq!(config.kubeconfig.as_deref(), Some("/flag"));
    assert!(with_env(&[], &[("KUBEFLOW_NAMESPACE", "A/b")]).is_err());
}

#[test]
fn help_and_version_end_the_process_without_an_error() {
    for args in [&["-h"][..], &["--help"], &["-v=1", "-help"]] {
        assert_eq!(with_env(args, &[]), Ok(Parsed::Help));
    }
    assert_eq!(with_env(&["-version"], &[]), Ok(Parsed::Version));
    assert_eq!(with_env(&["--version=true"], &[]), Ok(Parsed::Version));
    assert!(matches!(
        with_env(&["-version=false"], &[]),
        Ok(Parsed::Run(_))
    ));
    let version = version_text();
    assert_eq!(version.lines().count(), 6);
    assert!(version.starts_with("API Version: v2\nVersion: v"));
}

#[test]
fn the_usage_text_names_every_flag_and_its_true_default() {
    let usage = usage_text();
    for flag in FLAGS {
        assert!(usage.contains(&format!(" -{}", flag.name)), "{}", flag.name);
        // The shown default, given as a flag, changes nothing.
        if flag.kind == Kind::Value && !flag.default.is_empty() {
            let arg = format!("-{}={}", flag.name, flag.default);
            assert_eq!(run(&[&arg]), Config::default(), "{arg}");
        }
        if flag.kind == Kind::Bool && flag.name != "version" {
            let arg = format!("-{}={}", flag.name, flag.default);
            assert_eq!(run(&[&arg]), Config::default(), "{arg}");
        }
    }
    let error = UsageError("flag provided but not defined: -x".to_owned());
    assert_eq!(
        error.to_string(),
        "flag provided but not defined: -x\nusage: mpi-operator [flags] (-help lists them)"
    );
}
