//! Where objects come from: a watch on a cluster, or a directory of manifests.
