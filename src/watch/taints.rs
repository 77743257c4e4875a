//! Which nodes are about to be taken away, as far as a node object says so.

/// Taint keys that announce the end of a node, each with who sets it. A cordon by itself
/// (`kubectl cordon`, `kubectl drain`) is a field of the node and no entry here.
pub const LEAVING: [(&str, &str); 11] = [
    (
        "ToBeDeletedByClusterAutoscaler",
        "cluster-autoscaler: the node is being drained and deleted",
    ),
    (
        "DeletionCandidateOfClusterAutoscaler",
        "cluster-autoscaler: the node is not needed and will be deleted unless that changes",
    ),
    (
        "karpenter.sh/disrupted",
        "Karpenter 1.0 and later: the node is being drained and deleted",
    ),
    ("karpenter.sh/disruption", "Karpenter before 1.0: the same"),
    (
        "node.kubernetes.io/out-of-service",
        "an administrator: the node is down for good (non-graceful node shutdown)",
    ),
    (
        "node.cloudprovider.kubernetes.io/shutdown",
        "cloud controller manager: the machine is shut down",
    ),
    (
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler: two minutes until the spot instance is reclaimed",
    ),
    (
        "aws-node-termination-handler/rebalance-recommendation",
        "aws-node-termination-handler: the spot instance is likely to be reclaimed",
    ),
    (
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler: AWS has announced maintenance of the machine",
    ),
    (
        "aws-node-termination-handler/asg-lifecycle-termination",
        "aws-node-termination-handler: the autoscaling group ends the instance",
    ),
    (
        "cloud.google.com/impending-node-termination",
        "GKE: the machine is about to be ended or maintained",
    ),
];

/// Whether a taint with this key announces the end of its node.
#[must_use]
pub fn announces_end(key: &str) -> bool {
    LEAVING.iter().any(|(known, _)| *known == key)
}
