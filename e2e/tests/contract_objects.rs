//! The objects that the operator makes for an MPIJob have the names, owners, labels and contents
//! that users, scripts and other controllers rely on. Each test is one line of the contract.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use e2e::Namespace;
use e2e::mpi::{self, job, pi};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};

/// Everything as JSON, which is what is compared here.
async fn read<K>(ns: &Namespace, name: &str) -> anyhow::Result<Value>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    Ok(serde_json::to_value(ns.api::<K>().get(name).await?)?)
}

#[tokio::test]
async fn contract_07_05_the_children_have_the_names_and_the_owner_of_the_contract() {
    e2e::in_namespace("objects", async |ns| {
        let created = ns.create(&job("obj").workers(2)).await?;
        ns.until_launcher_runs("obj", &[]).await?;
        let owner = json!([{
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "name": "obj",
            "uid": created.uid(),
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
        let children = [
            ("Service", read::<Service>(ns, "obj").await?),
            ("ConfigMap", read::<ConfigMap>(ns, "obj-config").await?),
            ("Secret", read::<Secret>(ns, "obj-ssh").await?),
            ("launcher Job", read::<Job>(ns, "obj-launcher").await?),
            ("worker Job", read::<Job>(ns, "obj-worker").await?),
        ];
        for (kind, child) in &children {
            assert_eq!(
                child["metadata"]["ownerReferences"], owner,
                "owner of the {kind}"
            );
            assert_eq!(
                child["metadata"]["labels"]["app"], "obj",
                "label app of the {kind}"
            );
            assert!(
                child["metadata"]["finalizers"].is_null(),
                "finalizers of the {kind}"
            );
        }
        let [
            (_, service),
            (_, config),
            (_, secret),
            (_, launcher),
            (_, worker),
        ] = children;
        assert_eq!(service["spec"]["clusterIP"], "None");
        assert!(service["spec"]["ports"].is_null());
        assert_ne!(service["spec"]["publishNotReadyAddresses"], true);
        let keys: Vec<&String> = config["data"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["discover_hosts.sh", "hostfile"]);
        assert_eq!(secret["type"], "kubernetes.io/ssh-auth");
        let keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["ssh-privatekey", "ssh-publickey"]);
        assert_eq!(launcher["spec"]["podReplacementPolicy"], "Failed");
        assert_eq!(worker["spec"]["completionMode"], "Indexed");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_06_a_foreign_object_under_a_name_of_ours_is_reported_and_left_alone() {
    e2e::in_namespace("foreign", async |ns| {
        let once = PostParams::default();
        let config: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": "a-config"}, "data": {"hostfile": "mine"},
        }))?;
        ns.api::<ConfigMap>().create(&once, &config).await?;
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "b-ssh"}, "stringData": {"ssh-privatekey": "mine"},
        }))?;
        ns.api::<Secret>().create(&once, &secret).await?;
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "c"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "mine"}},
        }))?;
        ns.api::<Service>().create(&once, &service).await?;
        let other: Job = serde_json::from_value(json!({
            "metadata": {"name": "d-worker"},
            "spec": {"suspend": true, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "mine", "image": "mine"}],
            }}},
        }))?;
        ns.api::<Job>().create(&once, &other).await?;
        let before = [
            read::<ConfigMap>(ns, "a-config").await?,
            read::<Secret>(ns, "b-ssh").await?,
            read::<Service>(ns, "c").await?,
            read::<Job>(ns, "d-worker").await?,
        ];
        for (name, taken) in [("a", "a-config"), ("b", "b-ssh"), ("c", "c"), ("d", "d-worker")] {
            ns.create(&pi(name).workers(1)).await?;
            let event = ns.until_event(name, "ErrResourceExists").await?;
            assert_eq!(event.type_.as_deref(), Some("Warning"));
            let said = event.message.unwrap_or_default();
            assert!(
                said.contains(&format!("\"{taken}\""))
                    && said.ends_with("already exists and is not managed by MPIJob"),
                "{said}"
            );
        }
        // A job with free names goes on.
        ns.create(&pi("free").workers(1).script("true")).await?;
        ns.until_succeeded("free").await?;
        let after = [
            read::<ConfigMap>(ns, "a-config").await?,
            read::<Secret>(ns, "b-ssh").await?,
            read::<Service>(ns, "c").await?,
            read::<Job>(ns, "d-worker").await?,
        ];
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
            assert_eq!(before["metadata"]["labels"], after["metadata"]["labels"]);
            assert_eq!(before["metadata"]["ownerReferences"], after["metadata"]["ownerReferences"]);
            assert_eq!(before["spec"], after["spec"]);
            assert_eq!(before["data"], after["data"]);
        }
        for name in ["a", "b", "c", "d"] {
            assert_eq!(ns.launchers_ever(name).len(), 0, "{name} cannot run");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_07_workers_resolve_by_their_hostname_in_the_domain_of_the_job() {
    e2e::in_namespace("dns", async |ns| {
        ns.create(&job("dns").workers(2)).await?;
        let launcher = ns.until_launcher_runs("dns", &[]).await?;
        let workers = ns.until_workers_ready("dns", 2).await?;
        let full = format!("dns-worker-1.dns.{}.svc", ns.name);
        for name in ["dns-worker-1.dns", &full] {
            let found = ns.exec(&launcher, &["getent", "ahosts", name]).await?;
            let address = found.split_whitespace().next().unwrap_or_default();
            let status = workers[&1].status.clone().unwrap_or_default();
            assert_eq!(Some(address.to_owned()), status.pod_ip, "{name}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_08_the_hostfile_in_the_launcher_is_right_byte_for_byte() {
    e2e::in_namespace("hostfile", async |ns| {
        let host = |job: &str, host: &str| format!("{job}-{host}.{job}.{}.svc", ns.name);
        for (name, mpi, launcher_too) in [
            ("open", "OpenMPI", false),
            ("open-l", "OpenMPI", true),
            ("intel", "Intel", false),
            ("mpich-l", "MPICH", true),
        ] {
            let job = job(name).workers(2).spec(json!({
                "mpiImplementation": mpi,
                "runLauncherAsWorker": launcher_too,
                "slotsPerWorker": 3,
            }));
            ns.create(&job).await?;
            let launcher = ns.until_launcher_runs(name, &[]).await?;
            let slots = if mpi == "OpenMPI" { " slots=3" } else { ":3" };
            let mut hosts = vec!["launcher", "worker-0", "worker-1"];
            if !launcher_too {
                hosts.remove(0);
            }
            let wanted: String = hosts
                .iter()
                .map(|one| format!("{}{slots}\n", host(name, one)))
                .collect();
            let found = ns.exec(&launcher, &["cat", "/etc/mpi/hostfile"]).await?;
            assert_eq!(found, wanted, "{mpi}, runLauncherAsWorker {launcher_too}");
            ns.tell(&launcher).await?;
            ns.until_succeeded(name).await?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_09_discover_hosts_lists_live_workers_and_follows_them_in_a_running_launcher() {
    e2e::in_namespace("discover", async |ns| {
        ns.create(&job("disc").workers(2)).await?;
        let launcher = ns.until_launcher_runs("disc", &[]).await?;
        ns.until_workers_ready("disc", 2).await?;
        let script = |count: u32| {
            let hosts: String = (0..count)
                .map(|i| format!("echo disc-worker-{i}.disc.{}.svc\n", ns.name))
                .collect();
            format!("#!/bin/sh\n{hosts}")
        };
        let shows = async |count: u32| {
            e2e::wait::poll(
                &format!("{count} hosts in the launcher"),
                e2e::LATER,
                async || {
                    let now = ns
                        .exec(&launcher, &["cat", "/etc/mpi/discover_hosts.sh"])
                        .await?;
                    Ok((now == script(count)).then_some(()))
                },
            )
            .await
        };
        shows(2).await?;
        ns.patch(
            "disc",
            json!({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}}),
        )
        .await?;
        shows(3).await?;
        let said = ns.exec(&launcher, &["/etc/mpi/discover_hosts.sh"]).await?;
        assert_eq!(said.lines().count(), 3);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_10_the_files_in_etc_mpi_have_modes_0444_and_0555() {
    e2e::in_namespace("modes", async |ns| {
        ns.create(&job("modes").workers(1)).await?;
        let launcher = ns.until_launcher_runs("modes", &[]).await?;
        let stat = [
            "stat",
            "-L",
            "-c",
            "%a %n",
            "/etc/mpi/hostfile",
            "/etc/mpi/discover_hosts.sh",
        ];
        assert_eq!(
            ns.exec(&launcher, &stat).await?,
            "444 /etc/mpi/hostfile\n555 /etc/mpi/discover_hosts.sh\n"
        );
        let files = ns.exec(&launcher, &["ls", "/etc/mpi"]).await?;
        assert_eq!(files, "discover_hosts.sh\nhostfile\n");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_11_the_key_files_are_0600_for_root_and_readable_by_others_elsewhere() {
    e2e::in_namespace("keys", async |ns| {
        let list = |path: &str| {
            format!("cd {path} && stat -L -c '%a %n' authorized_keys id_rsa id_rsa.pub")
        };
        ns.create(&job("user").workers(1)).await?;
        let root = job("root").spec(json!({"sshAuthMountPath": "/root/.ssh"}));
        let as_root = json!({"securityContext": {"runAsUser": 0}});
        ns.create(&root.launcher_container(as_root)).await?;
        let launcher = ns.until_launcher_runs("user", &[]).await?;
        let workers = ns.until_workers_ready("user", 1).await?;
        for pod in [&launcher, &workers[&0]] {
            assert_eq!(
                ns.exec(pod, &["sh", "-c", &list("/home/mpiuser/.ssh")])
                    .await?,
                "644 authorized_keys\n644 id_rsa\n644 id_rsa.pub\n"
            );
        }
        let same = "cmp /home/mpiuser/.ssh/authorized_keys /home/mpiuser/.ssh/id_rsa.pub && \
                    ssh-keygen -l -f /home/mpiuser/.ssh/id_rsa.pub";
        let print = ns.exec(&launcher, &["sh", "-c", same]).await?;
        assert!(
            print.starts_with("521 ") && print.contains("ECDSA"),
            "{print}"
        );
        let worker = format!("user-worker-0.user.{}.svc", ns.name);
        assert_eq!(
            ns.exec(&launcher, &["ssh", &worker, "hostname"]).await?,
            "user-worker-0\n"
        );
        let launcher = ns.until_launcher_runs("root", &[]).await?;
        assert_eq!(
            ns.exec(&launcher, &["sh", "-c", &list("/root/.ssh")])
                .await?,
            "600 authorized_keys\n600 id_rsa\n600 id_rsa.pub\n"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_13_workers_carry_hostname_subdomain_labels_and_index() {
    e2e::in_namespace("labels", async |ns| {
        ns.create(&job("lab").workers(2)).await?;
        let launcher = ns.until_launcher_runs("lab", &[]).await?;
        let workers = ns.until_workers_ready("lab", 2).await?;
        for (index, pod) in &workers {
            let spec = pod.spec.clone().unwrap_or_default();
            assert_eq!(
                spec.hostname.as_deref(),
                Some(&*format!("lab-worker-{index}"))
            );
            assert_eq!(spec.subdomain.as_deref(), Some("lab"));
            assert_eq!(pod.annotations()[mpi::INDEX], index.to_string());
            assert_eq!(pod.labels()[mpi::OPERATOR_NAME], "mpi-operator");
            assert_eq!(pod.labels()[mpi::JOB_NAME], "lab");
            assert_eq!(pod.labels()[mpi::JOB_ROLE], "worker");
            assert!(pod.name_any().starts_with(&format!("lab-worker-{index}-")));
        }
        let spec = launcher.spec.clone().unwrap_or_default();
        assert_eq!(spec.hostname.as_deref(), Some("lab-launcher"));
        assert_eq!(spec.subdomain.as_deref(), Some("lab"));
        assert_eq!(launcher.labels()[mpi::JOB_ROLE], "launcher");
        assert_eq!(launcher.labels()["job-name"], "lab-launcher");
        assert!(launcher.name_any().starts_with("lab-launcher-"));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_14_a_worker_without_command_and_args_runs_sshd_and_root_can_use_it() {
    e2e::in_namespace("default-cmd", async |ns| {
        let root = json!({"runAsUser": 0});
        let plain = pi("plain")
            .workers(2)
            .spec(json!({"sshAuthMountPath": "/root/.ssh"}))
            .worker_container(json!({"command": null, "args": null, "securityContext": root}))
            .launcher_container(json!({"securityContext": root}));
        ns.create(&plain).await?;
        ns.until_succeeded("plain").await?;
        let worker = ns
            .worker_ever("plain", 0)
            .pop()
            .expect("there was a worker");
        let main = worker.spec.clone().unwrap_or_default().containers[0].clone();
        assert_eq!(
            main.command,
            Some(vec!["/usr/sbin/sshd".to_owned(), "-De".to_owned()])
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_15_the_environment_goes_to_the_main_container_and_the_users_value_wins() {
    e2e::in_namespace("env", async |ns| {
        let side = json!({"name": "side", "image": mpi::IMAGE, "command": ["sleep", "1000"]});
        let mut job = job("env").workers(1).launcher_container(json!({"env": [
            {"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=3"},
            {"name": "MINE", "value": "1"},
        ]}));
        let spec =
            job.object()?.data["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"].clone();
        job = job.launcher_template(json!({"spec": {"containers": [spec["containers"][0], side]}}));
        ns.create(&job).await?;
        let launcher = ns.until_launcher_runs("env", &[]).await?;
        let printed = ns.exec_in(&launcher, Some("launcher"), &["env"]).await?;
        for line in [
            "K_MPI_JOB_ROLE=launcher",
            "OMPI_MCA_orte_keep_fqdn_hostnames=true",
            "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",
            "OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=3",
            "OMPI_MCA_orte_set_default_slots=1",
            "NVIDIA_VISIBLE_DEVICES=",
            "NVIDIA_DRIVER_CAPABILITIES=",
            "MINE=1",
        ] {
            assert!(
                printed.lines().any(|one| one == line),
                "{line} is not in:\n{printed}"
            );
        }
        let beside = ns.exec_in(&launcher, Some("side"), &["env"]).await?;
        assert!(!beside.contains("K_MPI_JOB_ROLE"), "{beside}");
        let workers = ns.until_workers_ready("env", 1).await?;
        let there = ns.exec(&workers[&0], &["env"]).await?;
        assert!(there.contains("K_MPI_JOB_ROLE=worker\n"), "{there}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_16_a_restart_policy_in_the_template_is_overridden_and_told() {
    e2e::in_namespace("restart-policy", async |ns| {
        let always = json!({"spec": {"restartPolicy": "Always"}});
        let job = pi("over")
            .workers(1)
            .script("true")
            .launcher_template(always.clone());
        ns.create(&job.worker_template(always)).await?;
        ns.until_succeeded("over").await?;
        let event = ns
            .until_event("over", "SetPodTemplateRestartPolicy")
            .await?;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(
            event.message.as_deref(),
            Some("Restart policy in pod template overridden by restart policy in replica spec")
        );
        let policy = |pod: &Pod| pod.spec.clone().unwrap_or_default().restart_policy;
        assert_eq!(
            policy(&ns.launchers_ever("over")[0]).as_deref(),
            Some("Never")
        );
        assert_eq!(
            policy(&ns.worker_ever("over", 0)[0]).as_deref(),
            Some("Never")
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_17_labels_annotations_and_tolerations_of_the_templates_reach_the_pods() {
    e2e::in_namespace("copied", async |ns| {
        let extra = |role: &str| {
            json!({
                "metadata": {
                    "labels": {"example.com/label": role},
                    "annotations": {"example.com/annotation": role},
                },
                "spec": {"tolerations": [{"key": "example.com/taint", "operator": "Exists"}]},
            })
        };
        let job = job("copied").workers(1);
        ns.create(
            &job.launcher_template(extra("l"))
                .worker_template(extra("w")),
        )
        .await?;
        let launcher = ns.until_launcher_runs("copied", &[]).await?;
        let workers = ns.until_workers_ready("copied", 1).await?;
        for (pod, role) in [(&launcher, "l"), (&workers[&0], "w")] {
            assert_eq!(pod.labels()["example.com/label"], role);
            assert_eq!(pod.annotations()["example.com/annotation"], role);
            let tolerations = pod
                .spec
                .clone()
                .unwrap_or_default()
                .tolerations
                .unwrap_or_default();
            assert!(
                tolerations
                    .iter()
                    .any(|t| t.key.as_deref() == Some("example.com/taint"))
            );
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_18_ttl_deadline_and_backoff_limit_reach_the_launcher_job() {
    e2e::in_namespace("passed", async |ns| {
        let policy = json!({
            "ttlSecondsAfterFinished": 777,
            "activeDeadlineSeconds": 888,
            "backoffLimit": 5,
        });
        ns.create(&job("passed").workers(1).run_policy(policy))
            .await?;
        let launcher = ns.until_launcher_runs("passed", &[]).await?;
        let spec = ns
            .api::<Job>()
            .get("passed-launcher")
            .await?
            .spec
            .unwrap_or_default();
        assert_eq!(spec.backoff_limit, Some(5));
        let seconds = spec.active_deadline_seconds.unwrap_or(0);
        assert!(
            (800..=888).contains(&seconds),
            "what remains of 888 s: {seconds}"
        );
        let workers = ns
            .api::<Job>()
            .get("passed-worker")
            .await?
            .spec
            .unwrap_or_default();
        assert_eq!(workers.ttl_seconds_after_finished, None);
        assert_eq!(workers.active_deadline_seconds, None);
        // The time to live may be set when the end is on record, so that it cannot be lost.
        ns.tell(&launcher).await?;
        ns.until_succeeded("passed").await?;
        ns.until_job("passed-launcher", "time to live", |job| {
            let spec = job.spec.as_ref();
            spec.is_some_and(|s| s.ttl_seconds_after_finished == Some(777))
        })
        .await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_08_under_run_launcher_as_worker_ranks_run_on_the_launcher_too() {
    e2e::in_namespace("as-worker", async |ns| {
        // As published images do: the launcher's own record is a moment younger than its program.
        let program = "h=$(head -n1 /etc/mpi/hostfile | cut -d' ' -f1); \
                       until getent hosts $h; do sleep 0.2; done; mpirun -n 2 /home/mpiuser/pi";
        let job = pi("all")
            .workers(1)
            .script(program)
            .spec(json!({"runLauncherAsWorker": true}));
        ns.create(&job).await?;
        ns.until_succeeded("all").await?;
        let launchers = ns.launchers_ever("all");
        assert_eq!(launchers.len(), 1);
        let log = ns.log(&launchers[0]).await?;
        assert_eq!(
            mpi::rank_hosts(&log),
            ["all-launcher", "all-worker-0"],
            "{log}"
        );
        ns.until_job("all-launcher", "ended", |job| {
            job.status.as_ref().is_some_and(|s| s.succeeded == Some(1))
        })
        .await?;
        let service = ns
            .api::<Service>()
            .get("all")
            .await?
            .spec
            .unwrap_or_default();
        assert_eq!(service.publish_not_ready_addresses, Some(true));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn contract_07_16_workers_in_the_network_of_the_node_resolve_and_are_reached_at_their_port() {
    e2e::in_namespace("host-network", async |ns| {
        // Another port than that of the image, so that the node's own and other pods are left alone.
        let job = pi("host")
            .workers(1)
            .launcher_container(json!({"env": [
                {"name": "OMPI_MCA_plm_rsh_args", "value": "-p 22722 -o ConnectionAttempts=10"},
            ]}))
            .worker_template(json!({"spec": {"hostNetwork": true}}))
            .worker_container(json!({
                "args": ["-De", "-f", "/home/mpiuser/.sshd_config", "-p", "22722"],
                "ports": [{"containerPort": 22722}],
            }));
        let told = "ssh -p 22722 $(head -n1 /etc/mpi/hostfile | cut -d' ' -f1) echo reached";
        ns.create(&job.script(told)).await?;
        ns.until_succeeded("host").await?;
        let launcher = ns.launchers_ever("host").pop().expect("there was one");
        assert_eq!(ns.log(&launcher).await?, "reached\n");
        let worker = ns.worker_ever("host", 0).pop().expect("there was a worker");
        let spec = worker.spec.clone().unwrap_or_default();
        assert_eq!(spec.host_network, Some(true));
        assert_eq!(spec.dns_policy.as_deref(), Some("ClusterFirstWithHostNet"));
        let other = launcher.spec.clone().unwrap_or_default().dns_policy;
        assert_eq!(other.as_deref(), Some("ClusterFirst"));
        Ok(())
    })
    .await;
}
