//! The PodGroup `J`, by which a gang scheduler places all pods of a job or none.

use serde_json::{Value, json};

use super::pod::Object;
use super::quantity::Quantity;
use super::{BuildContext, Gang, metadata, object_labels, template_digest};
use crate::api::validate::Role;

/// What the planner knows beyond the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodGroupParams<'a> {
    /// The launcher pod exists or may be created. While the gate holds it, a gang that waits for it
    /// would never be whole.
    pub launcher_counts: bool,
    /// Value of the launcher's PriorityClass; 0 if none or unknown.
    pub launcher_priority: i32,
    /// Value of the workers' PriorityClass; 0 if none or unknown.
    pub worker_priority: i32,
    /// The MPIJob's annotation `scheduling.volcano.sh/queue-name`.
    pub queue_annotation: Option<&'a str>,
}

/// The PodGroup; None without gang scheduling.
#[must_use]
pub fn pod_group(ctx: &BuildContext, params: &PodGroupParams) -> Option<Value> {
    let gang = ctx.settings.gang.as_ref()?;
    let spec = spec(ctx, gang, params);
    let content = template_digest(&spec);
    Some(json!({
        "apiVersion": api_version(gang),
        "kind": "PodGroup",
        "metadata": metadata(ctx, ctx.name, object_labels(ctx), Some(&content)),
        "spec": spec,
    }))
}

/// `apiVersion` of the PodGroups that `gang` reads.
#[must_use]
pub fn api_version(gang: &Gang) -> &'static str {
    match gang {
        Gang::Volcano => "scheduling.volcano.sh/v1beta1",
        Gang::SchedulerPlugins { .. } => "scheduling.x-k8s.io/v1alpha1",
    }
}

fn spec(ctx: &BuildContext, gang: &Gang, params: &PodGroupParams) -> Value {
    let policy = &ctx.job.scheduling;
    let members = Members::of(ctx, params);

    let mut spec = Object::new();
    spec.insert("minMember".to_owned(), json!(members.min));
    let resources = policy
        .min_resources
        .clone()
        .filter(|given| !given.is_null())
        .or_else(|| min_resources(ctx, params, &members));
    if let Some(resources) = resources {
        spec.insert("minResources".to_owned(), resources);
    }
    match gang {
        Gang::Volcano => {
            let queue = policy.queue.as_deref().filter(|queue| !queue.is_empty());
            if let Some(queue) = queue.or(params.queue_annotation) {
                spec.insert("queue".to_owned(), json!(queue));
            }
            if let Some(class) = priority_class(ctx) {
                spec.insert("priorityClassName".to_owned(), json!(class));
            }
        }
        Gang::SchedulerPlugins { .. } => {
            let seconds = policy.schedule_timeout_seconds.unwrap_or(0);
            spec.insert("scheduleTimeoutSeconds".to_owned(), json!(seconds));
        }
    }
    Value::Object(spec)
}

/// How many pods the gang has, and how many of them have to be placed at once.
struct Members {
    launchers: u32,
    workers: u32,
    min: u32,
}

impl Members {
    fn of(ctx: &BuildContext, params: &PodGroupParams) -> Self {
        let workers = ctx.job.workers;
        // A launcher-only job has no gang without its launcher.
        let launchers = u32::from(params.launcher_counts || workers == 0);
        let all = workers.saturating_add(launchers);
        let min = match ctx.job.scheduling.min_available {
            None => all,
            Some(wish) => {
                let wish = u32::try_from(wish).unwrap_or(0);
                // A wish that counts the launcher in cannot be met while the launcher is held.
                if launchers == 0 { wish.min(all) } else { wish }
            }
        };
        Self {
            launchers,
            workers,
            min,
        }
    }
}

/// What the `min` most important pods ask for; at equal priority the launcher comes first.
fn min_resources(ctx: &BuildContext, params: &PodGroupParams, members: &Members) -> Option<Value> {
    let launcher = (Some(&ctx.job.launcher), members.launchers);
    let worker = (ctx.job.worker.as_ref(), members.workers);
    let order = if params.worker_priority > params.launcher_priority {
        [worker, launcher]
    } else {
        [launcher, worker]
    };
    let mut left = members.min;
    let mut sums: Vec<(String, Quantity)> = Vec::new();
    for (role, count) in order {
        let count = count.min(left);
        left -= count;
        let Some(role) = role.filter(|_| count > 0) else {
            continue;
        };
        for (name, quantity) in requests(role) {
            let quantity = quantity.times(count);
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.plus(quantity),
                None => sums.push((name, quantity)),
            }
        }
    }
    if sums.is_empty() {
        return None;
    }
    let resources: Object = sums
        .into_iter()
        .map(|(name, sum)| (name, json!(sum.to_string())))
        .collect();
    Some(Value::Object(resources))
}

/// What each container of `role` asks for: its requests, and its limits where it requests nothing. Init
/// containers and overhead do not count, as in the Go operator.
fn requests(role: &Role) -> Vec<(String, Quantity)> {
    let containers = role
        .template
        .get("spec")
        .and_then(|spec| spec.get("containers"))
        .and_then(Value::as_array);
    let mut all = Vec::new();
    for container in containers.into_iter().flatten() {
        let amounts = |key: &str| {
            container
                .get("resources")
                .and_then(|resources| resources.get(key))
                .and_then(Value::as_object)
        };
        let requests = amounts("requests");
        let requested = requests.into_iter().flatten();
        let limited = amounts("limits")
            .into_iter()
            .flatten()
            .filter(|(name, _)| requests.is_none_or(|requests| !requests.contains_key(*name)));
        for (name, value) in requested.chain(limited) {
            if let Some(quantity) = Quantity::parse(value) {
                all.push((name.clone(), quantity));
            }
        }
    }
    all
}

/// The policy's class, else the launcher's, else the workers'.
fn priority_class<'a>(ctx: &BuildContext<'a>) -> Option<&'a str> {
    let of_role = |role: &'a Role| {
        role.template
            .get("spec")
            .and_then(|spec| spec.get("priorityClassName"))
            .and_then(Value::as_str)
    };
    let job = ctx.job;
    [
        job.scheduling.priority_class.as_deref(),
        of_role(&job.launcher),
        job.worker.as_ref().and_then(of_role),
    ]
    .into_iter()
    .flatten()
    .find(|class| !class.is_empty())
}
