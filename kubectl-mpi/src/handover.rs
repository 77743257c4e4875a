//! The rest is kubectl's: this process becomes it.

use std::ffi::OsString;

use crate::args::Global;

/// Arguments of kubectl that do `verb` on `pod` of `namespace` as the same user, with these `flags`;
/// `command` goes behind `--`.
#[must_use]
pub fn arguments(
    verb: &str,
    global: &Global,
    namespace: &str,
    pod: &str,
    flags: &[OsString],
    command: &[OsString],
) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec![verb.into()];
    let mut flag = |name: &str, value: OsString| {
        let mut text = OsString::from(format!("--{name}="));
        text.push(value);
        all.push(text);
    };
    flag("namespace", namespace.into());
    if let Some(context) = &global.context {
        flag("context", context.into());
    }
    if let Some(file) = &global.kubeconfig {
        flag("kubeconfig", file.into());
    }
    if let Some(user) = &global.as_user {
        flag("as", user.into());
    }
    for group in &global.as_groups {
        flag("as-group", group.into());
    }
    all.extend(flags.iter().cloned());
    all.push(pod.into());
    if !command.is_empty() {
        all.push("--".into());
        all.extend(command.iter().cloned());
    }
    all
}

/// Becomes `kubectl` with these arguments. Returns only if that cannot be, with the cause.
#[must_use]
pub fn hand_over(arguments: &[OsString]) -> std::io::Error {
    use std::os::unix::process::CommandExt as _;
    std::process::Command::new("kubectl").args(arguments).exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_the_same_cluster_user_and_namespace() {
        let global = Global {
            namespace: None,
            context: Some("c".to_owned()),
            kubeconfig: Some("/k".into()),
            as_user: Some("u".to_owned()),
            as_groups: vec!["g".to_owned(), "h".to_owned()],
            request_timeout: None,
        };
        let flags = ["--stdin".into(), "--tty".into()];
        let command = ["sh".into(), "-c".into(), "ls -l".into()];
        assert_eq!(
            arguments("exec", &global, "ns", "pi-worker-1-x", &flags, &command),
            [
                "exec",
                "--namespace=ns",
                "--context=c",
                "--kubeconfig=/k",
                "--as=u",
                "--as-group=g",
                "--as-group=h",
                "--stdin",
                "--tty",
                "pi-worker-1-x",
                "--",
                "sh",
                "-c",
                "ls -l",
            ]
        );
        assert_eq!(
            arguments("logs", &Global::default(), "ns", "p", &[], &[]),
            ["logs", "--namespace=ns", "p"]
        );
    }
}
