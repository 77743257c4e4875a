//! Counters for Prometheus: the five of the Go operator by their exact names and help, and ours.
//!
//! No label carries a name that users choose, but for `mpi_operator_job_info`, which is the Go
//! operator's and whose series end with their MPIJob.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// `Content-Type` of what [`Metrics::render`] returns: the text format that every Prometheus reads.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Upper bounds in seconds of one pass or one request: 1 ms to 30 s.
const CALL_SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0,
];

/// Upper bounds in seconds of the gate: from one pass to a cluster that is in trouble.
const GATE_SECONDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobInfo {
    launcher: String,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteKind {
    verb: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteError {
    verb: &'static str,
    resource: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone)]
struct CallSeconds;

impl MetricConstructor<Histogram> for CallSeconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(CALL_SECONDS)
    }
}

/// All metrics of the process; clones share the same values.
#[derive(Debug, Clone)]
pub struct Metrics {
    values: Arc<Values>,
    registry: Arc<Registry>,
}

#[derive(Debug)]
struct Values {
    jobs_created: Counter,
    jobs_successful: Counter,
    jobs_failed: Counter,
    job_info: Family<JobInfo, Gauge>,
    is_leader: Gauge,
    queue_depth: Gauge,
    reconcile_seconds: Histogram,
    write_seconds: Family<WriteKind, Histogram, CallSeconds>,
    write_errors: Family<WriteError, Counter>,
    gate_seconds: Histogram,
    gate_opened: Counter,
    gate_held: Counter,
    retired: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A fresh set, all at zero.
    #[must_use]
    pub fn new() -> Self {
        let values = Arc::new(Values {
            jobs_created: Counter::default(),
            jobs_successful: Counter::default(),
            jobs_failed: Counter::default(),
            job_info: Family::default(),
            is_leader: Gauge::default(),
            queue_depth: Gauge::default(),
            reconcile_seconds: Histogram::new(CALL_SECONDS),
            write_seconds: Family::new_with_constructor(CallSeconds),
            write_errors: Family::default(),
            gate_seconds: Histogram::new(GATE_SECONDS),
            gate_opened: Counter::default(),
            gate_held: Counter::default(),
            retired: Counter::default(),
        });
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Exposed(Arc::clone(&values))));
        Self {
            values,
            registry: Arc::new(registry),
        }
    }

    /// An MPIJob got its Created condition.
    pub fn job_created(&self) {
        self.values.jobs_created.inc();
    }

    /// An MPIJob got its Succeeded condition.
    pub fn job_succeeded(&self) {
        self.values.jobs_successful.inc();
    }

    /// An MPIJob got its Failed condition.
    pub fn job_failed(&self) {
        self.values.jobs_failed.inc();
    }

    /// An MPIJob with this launcher Job exists.
    pub fn set_job_info(&self, namespace: &str, launcher: &str) {
        self.values
            .job_info
            .get_or_create(&job_info(namespace, launcher))
            .set(1);
    }

    /// The MPIJob with this launcher Job is gone; nothing happens if it was not there.
    pub fn remove_job_info(&self, namespace: &str, launcher: &str) {
        self.values.job_info.remove(&job_info(namespace, launcher));
    }

    /// Whether this process leads.
    pub fn set_leader(&self, leader: bool) {
        self.values.is_leader.set(i64::from(leader));
    }

    /// MPIJobs that wait for a pass.
    pub fn set_queue_depth(&self, depth: usize) {
        self.values
            .queue_depth
            .set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// One pass over one MPIJob took this many seconds.
    pub fn observe_reconcile(&self, seconds: f64) {
        self.values.reconcile_seconds.observe(seconds);
    }

    /// One request to the API server took this many seconds.
    ///
    /// `verb` is as in RBAC (`create`, `patch`), `resource` the plural with its subresource
    /// (`mpijobs/status`). A failed one names its reason: a short word of a fixed set.
    pub fn observe_write(
        &self,
        verb: &'static str,
        resource: &'static str,
        seconds: f64,
        outcome: Result<(), &'static str>,
    ) {
        self.values
            .write_seconds
            .get_or_create(&WriteKind { verb, resource })
            .observe(seconds);
        if let Err(reason) = outcome {
            self.values
                .write_errors
                .get_or_create(&WriteError {
                    verb,
                    resource,
                    reason,
                })
                .inc();
        }
    }

    /// A launcher try was released this many seconds after its last worker became Ready; `None`
    /// if no such moment is known (a launcher without workers, one that starts at once).
    pub fn gate_opened(&self, latency: Option<f64>) {
        self.values.gate_opened.inc();
        if let Some(seconds) = latency {
            self.values.gate_seconds.observe(seconds);
        }
    }

    /// A launcher try is held back from now on.
    pub fn gate_held(&self) {
        self.values.gate_held.inc();
    }

    /// A worker pod was taken off the Job controller's books.
    pub fn retired(&self) {
        self.values.retired.inc();
    }

    /// Everything in the text format of [`CONTENT_TYPE`], with the process's own memory, CPU and
    /// start time as Prometheus clients name them.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(8 * 1024);
        // Writing into a String cannot fail; if a metric ever does, the rest still gets out.
        let _ = prometheus_text::encode(&mut out, &self.registry);
        out
    }
}

fn job_info(namespace: &str, launcher: &str) -> JobInfo {
    JobInfo {
        launcher: launcher.to_owned(),
        namespace: namespace.to_owned(),
    }
}

/// Own collector, because `Registry::register` ends each help text with a period, and the Go
/// operator's have none. Counter names get their `_total` when encoded.
#[derive(Debug)]
struct Exposed(Arc<Values>);

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let v = &self.0;
        let mut one = |name: &str, help: &str, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        one(
            "mpi_operator_jobs_created",
            "Counts number of MPI jobs created",
            &v.jobs_created,
        )?;
        one(
            "mpi_operator_jobs_successful",
            "Counts number of MPI jobs successful",
            &v.jobs_successful,
        )?;
        one(
            "mpi_operator_jobs_failed",
            "Counts number of MPI jobs failed",
            &v.jobs_failed,
        )?;
        one(
            "mpi_operator_job_info",
            "Information about MPIJob",
            &v.job_info,
        )?;
        one(
            "mpi_operator_is_leader",
            "Is this client the leader of this mpi-operator client set?",
            &v.is_leader,
        )?;
        one(
            "mpi_operator_queue_depth",
            "MPIJobs that wait for a pass",
            &v.queue_depth,
        )?;
        one(
            "mpi_operator_reconcile_duration_seconds",
            "Seconds of one pass over one MPIJob",
            &v.reconcile_seconds,
        )?;
        one(
            "mpi_operator_write_duration_seconds",
            "Seconds of one write to the API server",
            &v.write_seconds,
        )?;
        one(
            "mpi_operator_write_errors",
            "Writes that the API server refused or that did not reach it",
            &v.write_errors,
        )?;
        one(
            "mpi_operator_gate_latency_seconds",
            "Seconds from the last worker becoming Ready to the release of the launcher being sent",
            &v.gate_seconds,
        )?;
        one(
            "mpi_operator_gate_openings",
            "Launcher tries that were released",
            &v.gate_opened,
        )?;
        one(
            "mpi_operator_gate_holds",
            "Launcher tries that were held back for missing workers",
            &v.gate_held,
        )?;
        one(
            "mpi_operator_workers_retired",
            "Worker pods that were taken off the Job controller's books",
            &v.retired,
        )?;
        if let Some(process) = Process::read() {
            one(
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
                &ConstGauge::new(process.resident_bytes),
            )?;
            one(
                "process_cpu_seconds",
                "Total user and system CPU time spent in seconds.",
                &ConstCounter::new(process.cpu_seconds),
            )?;
            one(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                &ConstGauge::new(process.start_seconds),
            )?;
        }
        Ok(())
    }
}

/// Figures of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Process {
    resident_bytes: f64,
    cpu_seconds: f64,
    start_seconds: f64,
}

/// The kernel shows times to user space in hundredths of a second on every architecture that the
/// operator is built for, whatever it ticks at itself.
const TICKS: f64 = 100.0;

impl Process {
    fn read() -> Option<Self> {
        Self::parse(
            &std::fs::read_to_string("/proc/self/stat").ok()?,
            &std::fs::read_to_string("/proc/self/status").ok()?,
            &std::fs::read_to_string("/proc/stat").ok()?,
        )
    }

    fn parse(stat: &str, status: &str, system: &str) -> Option<Self> {
        // The program's name may hold spaces and parentheses, so count from its end. Behind it
        // utime is the 12th field, stime the 13th and starttime the 20th.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |n: usize| fields.get(n - 1)?.parse::<f64>().ok();
        let resident = line_value(status, "VmRSS:")?;
        let boot = line_value(system, "btime")?;
        Some(Self {
            resident_bytes: resident * 1024.0,
            cpu_seconds: (ticks(12)? + ticks(13)?) / TICKS,
            start_seconds: boot + ticks(20)? / TICKS,
        })
    }
}

fn line_value(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_five_of_the_go_operator_come_out_to_the_letter() {
        let metrics = Metrics::new();
        metrics.job_created();
        metrics.job_created();
        metrics.job_succeeded();
        metrics.job_failed();
        metrics.set_job_info("default", "pi-launcher");
        metrics.set_leader(true);
        let want = "\
# HELP mpi_operator_jobs_created_total Counts number of MPI jobs created
# TYPE mpi_operator_jobs_created_total counter
mpi_operator_jobs_created_total 2
# HELP mpi_operator_jobs_successful_total Counts number of MPI jobs successful
# TYPE mpi_operator_jobs_successful_total counter
mpi_operator_jobs_successful_total 1
# HELP mpi_operator_jobs_failed_total Counts number of MPI jobs failed
# TYPE mpi_operator_jobs_failed_total counter
mpi_operator_jobs_failed_total 1
# HELP mpi_operator_job_info Information about MPIJob
# TYPE mpi_operator_job_info gauge
mpi_operator_job_info{launcher=\"pi-launcher\",namespace=\"default\"} 1
# HELP mpi_operator_is_leader Is this client the leader of this mpi-operator client set?
# TYPE mpi_operator_is_leader gauge
mpi_operator_is_leader 1
";
        let text = metrics.render();
        assert!(text.starts_with(want), "{text}");
    }

    #[test]
    fn job_info_ends_with_its_job() {
        let metrics = Metrics::new();
        metrics.set_job_info("a", "pi-launcher");
        metrics.set_job_info("a", "pi-launcher");
        metrics.set_job_info("b", "pi-launcher");
        metrics.remove_job_info("a", "pi-launcher");
        metrics.remove_job_info("a", "never-there");
        let series: Vec<String> = metrics
            .render()
            .lines()
            .filter(|line| line.starts_with("mpi_operator_job_info{"))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            series,
            [r#"mpi_operator_job_info{launcher="pi-launcher",namespace="b"} 1"#]
        );
    }

    #[test]
    fn ours_are_there_and_clones_share_them() {
        let metrics = Metrics::new();
        let clone = metrics.clone();
        clone.set_queue_depth(7);
        clone.observe_reconcile(0.004);
        clone.observe_write("patch", "jobs", 0.02, Ok(()));
        clone.observe_write("create", "jobs", 0.02, Err("Conflict"));
        clone.gate_opened(Some(0.02));
        clone.gate_opened(None);
        clone.gate_held();
        clone.retired();
        let text = metrics.render();
        for line in [
            "mpi_operator_queue_depth 7",
            "mpi_operator_reconcile_duration_seconds_bucket{le=\"0.005\"} 1",
            "mpi_operator_reconcile_duration_seconds_count 1",
            "mpi_operator_write_duration_seconds_count{verb=\"patch\",resource=\"jobs\"} 1",
            "mpi_operator_write_duration_seconds_count{verb=\"create\",resource=\"jobs\"} 1",
            "mpi_operator_write_errors_total{verb=\"create\",resource=\"jobs\",reason=\"Conflict\"} 1",
            "mpi_operator_gate_latency_seconds_bucket{le=\"0.025\"} 1",
            "mpi_operator_gate_latency_seconds_count 1",
            "mpi_operator_gate_openings_total 2",
            "mpi_operator_gate_holds_total 1",
            "mpi_operator_workers_retired_total 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(
            !text.contains("# EOF"),
            "that is OpenMetrics, not {CONTENT_TYPE}"
        );
        assert!(!text.contains("_total_total"));
    }

    #[test]
    fn label_values_are_escaped() {
        let metrics = Metrics::new();
        metrics.set_job_info("a\"b\\c\nd", "x");
        assert!(metrics.render().contains(r#"namespace="a\"b\\c\nd""#));
    }

    #[test]
    fn process_figures_are_read_from_proc() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 250 50 0 0 20 0 9 0 1200 1 2 3";
        let read = Process::parse(stat, "Name:\tx\nVmRSS:\t  2048 kB\n", "cpu 1\nbtime 1000\n");
        assert_eq!(
            read,
            Some(Process {
                resident_bytes: 2_097_152.0,
                cpu_seconds: 3.0,
                start_seconds: 1012.0,
            })
        );
        assert_eq!(Process::parse("", "", ""), None);
        let text = Metrics::new().render();
        assert!(text.contains("# TYPE process_cpu_seconds_total counter"));
        assert!(text.contains("process_resident_memory_bytes "));
        assert!(text.contains("process_start_time_seconds "));
    }
}
