//! The two files that MPI reads in the launcher, byte for byte as people's scripts parse them: one
//! host a line, nothing else, each line closed by a newline.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::build::BuildContext;
use crate::api::names;
use crate::api::validate::Implementation;

/// Pod addresses by worker index, where MPI is to reach workers by address.
pub type Addresses = BTreeMap<u32, IpAddr>;

/// First line of `discover_hosts.sh`. Scripts count the lines that follow it.
const SHEBANG: &str = "#!/bin/sh\n";

/// The hostfile: the launcher first if it is a rank host, then `workers` by number. Without
/// `addresses` they stand there by hostname; with them, those that have none are left out.
///
/// It is empty for a launcher-only job whose launcher is no rank host.
#[must_use]
pub fn hostfile(ctx: &BuildContext, workers: &[u32], addresses: Option<&Addresses>) -> String {
    let slots = ctx.job.slots;
    let mut text = String::new();
    for host in hosts(ctx, workers, addresses) {
        text.push_str(&match ctx.job.implementation {
            Implementation::OpenMpi => format!("{host} slots={slots}\n"),
            Implementation::Intel | Implementation::Mpich => format!("{host}:{slots}\n"),
        });
    }
    text
}

/// `discover_hosts.sh`: prints the launcher, if it is a rank host, and the `live` workers by number.
#[must_use]
pub fn discover_hosts(ctx: &BuildContext, live: &[u32], addresses: Option<&Addresses>) -> String {
    let mut text = SHEBANG.to_owned();
    for host in hosts(ctx, live, addresses) {
        text.push_str(&format!("echo {host}\n"));
    }
    text
}

/// Both files: hostfile and `discover_hosts.sh`.
#[must_use]
pub fn files(
    ctx: &BuildContext,
    workers: &[u32],
    live: &[u32],
    addresses: Option<&Addresses>,
) -> (String, String) {
    (
        hostfile(ctx, workers, addresses),
        discover_hosts(ctx, live, addresses),
    )
}

/// Rank hosts in the order of both files. Indexes are sorted here, as numbers, so that no caller can
/// bring 10 before 2.
fn hosts(ctx: &BuildContext, workers: &[u32], addresses: Option<&Addresses>) -> Vec<String> {
    let mut indexes = workers.to_vec();
    indexes.sort_unstable();
    indexes.dedup();
    let named = |hostname: &str| {
        names::host(
            hostname,
            ctx.name,
            ctx.namespace,
            &ctx.settings.cluster_domain,
        )
    };
    // Always by name: it is in the launcher's own /etc/hosts, and its address is not known before
    // it starts.
    let launcher = ctx
        .job
        .launcher_as_worker
        .then(|| named(&names::launcher_job(ctx.name)));
    let workers = indexes.into_iter().filter_map(|index| match addresses {
        Some(addresses) => addresses.get(&index).map(IpAddr::to_string),
        None => Some(named(&names::worker_hostname(ctx.name, index))),
    });
    launcher.into_iter().chain(workers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::build::tests::{job, with_ctx};

    fn files(
        implementation: Implementation,
        launcher_as_worker: bool,
        domain: &str,
    ) -> (String, String) {
        let mut job = job(3);
        job.implementation = implementation;
        job.launcher_as_worker = launcher_as_worker;
        job.slots = 2;
        with_ctx(&job, domain, |ctx| {
            (
                hostfile(ctx, &[10, 2, 0], None),
                discover_hosts(ctx, &[10, 2], None),
            )
        })
    }

    #[test]
    fn open_mpi_lines_name_slots_in_numeric_order() {
        let (hostfile, discover) = files(Implementation::OpenMpi, false, "");
        assert_eq!(
            hostfile,
            "pi-worker-0.pi.default.svc slots=2\npi-worker-2.pi.default.svc slots=2\n\
             pi-worker-10.pi.default.svc slots=2\n"
        );
        assert_eq!(
            discover,
            "#!/bin/sh\necho pi-worker-2.pi.default.svc\necho pi-worker-10.pi.default.svc\n"
        );
    }

    #[test]
    fn intel_and_mpich_lines_use_a_colon() {
        for implementation in [Implementation::Intel, Implementation::Mpich] {
            let (hostfile, _) = files(implementation, false, "");
            assert_eq!(
                hostfile.lines().next(),
                Some("pi-worker-0.pi.default.svc:2")
            );
        }
    }

    #[test]
    fn launcher_leads_both_files_when_it_is_a_rank_host() {
        let (hostfile, discover) = files(Implementation::OpenMpi, true, "example.org");
        assert_eq!(
            hostfile.lines().next(),
            Some("pi-launcher.pi.default.svc.example.org slots=2")
        );
        assert_eq!(
            discover.lines().nth(1),
            Some("echo pi-launcher.pi.default.svc.example.org")
        );
        assert_eq!(discover.lines().count(), 4);
    }

    #[test]
    fn launcher_only_hostfile_is_empty_and_the_script_is_its_header() {
        let job = job(0);
        with_ctx(&job, "", |ctx| {
            assert_eq!(hostfile(ctx, &[], None), "");
            assert_eq!(discover_hosts(ctx, &[], None), "#!/bin/sh\n");
        });
    }

    #[test]
    fn zero_slots_are_written_as_they_are() {
        let mut job = job(1);
        job.slots = 0;
        with_ctx(&job, "", |ctx| {
            assert_eq!(
                hostfile(ctx, &[0], None),
                "pi-worker-0.pi.default.svc slots=0\n"
            );
        });
    }

    #[test]
    fn addresses_stand_for_hostnames_in_the_form_of_each_implementation() {
        let addresses: Addresses = [(0, "10.0.0.7"), (2, "10.0.0.5"), (10, "fd00::1")]
            .into_iter()
            .map(|(index, text)| (index, text.parse().unwrap()))
            .collect();
        let mut job = job(3);
        job.slots = 2;
        let cases = [
            (
                Implementation::OpenMpi,
                "10.0.0.7 slots=2\n10.0.0.5 slots=2\nfd00::1 slots=2\n",
            ),
            (Implementation::Intel, "10.0.0.7:2\n10.0.0.5:2\nfd00::1:2\n"),
            (Implementation::Mpich, "10.0.0.7:2\n10.0.0.5:2\nfd00::1:2\n"),
        ];
        for (implementation, wanted) in cases {
            job.implementation = implementation;
            with_ctx(&job, "", |ctx| {
                // Worker 1 has no address.
                assert_eq!(hostfile(ctx, &[10, 2, 1, 0], Some(&addresses)), wanted);
                assert_eq!(
                    discover_hosts(ctx, &[2, 0], Some(&addresses)),
                    "#!/bin/sh\necho 10.0.0.7\necho 10.0.0.5\n"
                );
            });
        }
    }

    #[test]
    fn a_launcher_that_is_a_rank_host_keeps_its_name_among_addresses() {
        let addresses: Addresses = [(0, "10.0.0.7".parse().unwrap())].into();
        let mut job = job(1);
        job.launcher_as_worker = true;
        with_ctx(&job, "", |ctx| {
            assert_eq!(
                hostfile(ctx, &[0], Some(&addresses)),
                "pi-launcher.pi.default.svc slots=1\n10.0.0.7 slots=1\n"
            );
        });
    }
}
