"""A Ray cluster on this machine, whose head computes nothing; tests add nodes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster


def new_cluster() -> Cluster:
    import ray._private.utils
    from ray.cluster_utils import Cluster

    # A node's handler of SIGTERM drains the node first. Whatever another test forks from this process would inherit it,
    # and a pool of multiprocessing, which ends its processes by SIGTERM, would wait for them for ever.
    ray._private.utils.set_sigterm_handler = lambda handler: None
    return Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
