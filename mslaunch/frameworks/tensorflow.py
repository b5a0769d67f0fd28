"""TensorFlow: TF_CONFIG, from which tf.distribute's strategies read the cluster and the task of each process.

It is JSON as tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py reads it (TensorFlow 2.21): all
ranks are workers, of which the first is the chief.  Each rank serves at an address of its own.
"""

from __future__ import annotations

from mslaunch.frameworks.contract import Framework, RankInfo


def rank_env(place: RankInfo) -> dict[str, object]:
    """One rank's own; nothing where no addresses are known."""
    if not place.rank_addresses:
        return {}
    import json

    task = {"type": "worker", "index": place.rank}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": place.rank_addresses}, "task": task})}


TENSORFLOW = Framework("TensorFlow", rank=rank_env, rank_port=True)
