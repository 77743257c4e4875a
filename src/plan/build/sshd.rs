//! Does a container run sshd, and on which port? Only what the template says counts: published images
//! set the port in a file that cannot be seen from here, and a probe of a wrong port would keep a
//! healthy worker from ever being Ready.

use serde_json::Value;

use super::pod::Object;

/// sshd's options that take an argument (sshd.c, `getopt`).
const OPTIONS_WITH_ARGUMENT: &str = "CEbcfghkopu";

/// Whether `container` starts sshd itself. A shell that starts it does not count: what such a script
/// does before and after is unknown.
pub(super) fn is_sshd(container: &Object) -> bool {
    command_line(container)
        .and_then(|words| words.first().copied())
        .is_some_and(|program| program.rsplit('/').next() == Some("sshd"))
}

/// The port on which the sshd of `container` is known to listen.
pub(super) fn known_port(container: &Object) -> Option<u16> {
    match option_port(&command_line(container)?) {
        OptionPort::Is(port) => Some(port),
        OptionPort::Unreadable => None,
        OptionPort::Absent => declared_port(container),
    }
}

/// Command and arguments, if they are lists of texts.
fn command_line(container: &Object) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    for key in ["command", "args"] {
        match container.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                for item in items {
                    words.push(item.as_str()?);
                }
            }
            Some(_) => return None,
        }
    }
    Some(words)
}

/// What the options of sshd say about its port.
#[derive(Debug, PartialEq, Eq)]
enum OptionPort {
    /// Nothing.
    Absent,
    /// Something that is no number, such as a variable or the name of a service.
    Unreadable,
    /// This port.
    Is(u16),
}

/// Reads options as getopt does: `-p 2222`, `-p2222`, `-Dep 2222`, `-o Port=2222`, `-oPort=2222`,
/// `-o 'Port 2222'`. `-p` stands over `-o`, as in sshd.
fn option_port(words: &[&str]) -> OptionPort {
    let mut by_keyword = OptionPort::Absent;
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        let Some(cluster) = word.strip_prefix('-') else {
            continue;
        };
        if cluster == "-" {
            break;
        }
        for (at, letter) in cluster.char_indices() {
            if !OPTIONS_WITH_ARGUMENT.contains(letter) {
                continue;
            }
            let attached = cluster.get(at + letter.len_utf8()..).unwrap_or_default();
            let argument = if attached.is_empty() {
                rest.next().copied().unwrap_or_default()
            } else {
                attached
            };
            if letter == 'p' {
                return number(argument);
            }
            if letter == 'o'
                && by_keyword == OptionPort::Absent
                && let Some(value) = port_keyword(argument)
            {
                by_keyword = number(value);
            }
            break;
        }
    }
    by_keyword
}

/// The value of `Port=N` or `Port N`; the case of the keyword does not matter.
fn port_keyword(setting: &str) -> Option<&str> {
    let is_separator = |c: char| c == '=' || c.is_ascii_whitespace();
    let (keyword, value) = setting.trim().split_once(is_separator)?;
    keyword
        .eq_ignore_ascii_case("port")
        .then(|| value.trim_matches(is_separator))
}

fn number(text: &str) -> OptionPort {
    match text.parse::<u16>() {
        Ok(port) if port > 0 => OptionPort::Is(port),
        _ => OptionPort::Unreadable,
    }
}

/// The TCP port named `ssh`, else the only one.
fn declared_port(container: &Object) -> Option<u16> {
    let declared: Vec<(&Value, u16)> = container
        .get("ports")?
        .as_array()?
        .iter()
        .filter(|port| {
            port.get("protocol")
                .and_then(Value::as_str)
                .is_none_or(|protocol| protocol == "TCP")
        })
        .filter_map(|port| {
            let number = port.get("containerPort")?.as_u64()?;
            Some((port, u16::try_from(number).ok().filter(|n| *n > 0)?))
        })
        .collect();
    let named = declared
        .iter()
        .find(|(port, _)| port.get("name").and_then(Value::as_str) == Some("ssh"));
    match (named, declared.as_slice()) {
        (Some((_, number)), _) | (None, [(_, number)]) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn port(container: Value) -> Option<u16> {
        let container = container.as_object().cloned().unwrap_or_default();
        if is_sshd(&container) {
            known_port(&container)
        } else {
            None
        }
    }

    #[test]
    fn port_is_read_from_options() {
        for args in [
            json!(["-De", "-p", "2222"]),
            json!(["-De", "-p2222"]),
            json!(["-Dep", "2222"]),
            json!(["-Dep2222"]),
            json!(["-D", "-o", "Port=2222"]),
            json!(["-D", "-oPort=2222"]),
            json!(["-D", "-o", "port 2222"]),
            json!(["-D", "-o", "Port = 2222"]),
            json!(["-f", "/etc/my_config", "-p", "2222"]),
            json!(["-o", "Port=1", "-p", "2222"]),
        ] {
            let case = args.to_string();
            assert_eq!(
                port(json!({"command": ["/usr/sbin/sshd"], "args": args})),
                Some(2222),
                "{case}"
            );
        }
        assert_eq!(port(json!({"args": ["sshd", "-p", "22"]})), Some(22));
    }

    #[test]
    fn port_is_never_guessed() {
        for container in [
            json!({"command": ["/usr/sbin/sshd", "-De"]}),
            json!({"command": ["/usr/sbin/sshd", "-f", "-p2222"]}),
            json!({"command": ["/usr/sbin/sshd", "-p", "$(PORT)"], "ports": [{"containerPort": 80}]}),
            json!({"command": ["/usr/sbin/sshd", "-p"]}),
            json!({"command": ["/usr/sbin/sshd", "-p", "0"]}),
            json!({"command": ["/usr/sbin/sshd", "-p", "70000"]}),
            json!({"command": ["/usr/sbin/sshd"], "ports": [{"containerPort": 1}, {"containerPort": 2}]}),
            json!({"command": ["/usr/sbin/sshd"], "ports": [{"containerPort": 53, "protocol": "UDP"}]}),
            json!({"command": ["/usr/sbin/sshd"], "ports": "2222"}),
            json!({"command": ["sh", "-c", "/usr/sbin/sshd -p 2222"]}),
            json!({"command": ["/usr/sbin/sshd-wrapper", "-p", "2222"]}),
            json!({"command": "sshd -p 2222"}),
            json!({"command": [1, 2]}),
            json!({}),
        ] {
            let case = container.to_string();
            assert_eq!(port(container), None, "{case}");
        }
    }

    #[test]
    fn port_is_read_from_declared_ports() {
        let command = json!(["/usr/sbin/sshd", "-De"]);
        assert_eq!(
            port(json!({"command": command, "ports": [{"containerPort": 2222}]})),
            Some(2222)
        );
        assert_eq!(
            port(json!({"command": command, "ports": [
                {"containerPort": 9090, "name": "metrics", "protocol": "TCP"},
                {"containerPort": 2222, "name": "ssh", "protocol": "TCP"},
            ]})),
            Some(2222)
        );
    }
}
