"""A Ray head and two worker nodes as processes of this machine, and a fleet run on them.

`python -m tests.fleet.ray_nodes ROOT OUT MODEL [--kill]` ends with the exit code of the run and
prints what it said. With `--kill` the raylet of one worker node is killed when a third of the
studies is finished. In a process of its own, since Ray changes the process it is started in.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def finished(out: Path) -> int:
    """Readings that are finished."""
    count = 0
    for path in out.glob("*/run.json"):
        try:
            count += json.loads(path.read_text()).get("state") == "finished"
        except (OSError, ValueError):
            continue
    return count


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--split-above", default="20000")
    arguments = parser.parse_args()
    # The token of this cluster; a user's own is not touched.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    # On a busy machine the parts of a node wait for each other.
    os.environ |= {"RAY_raylet_start_wait_time_s": "180", "RAY_agent_register_timeout_ms": "180000"}
    os.environ |= {"RAY_worker_register_timeout_seconds": "180"}
    from ray.cluster_utils import Cluster

    settings = {"include_dashboard": False, "num_cpus": 0}
    cluster: Any = Cluster(True, head_node_args=settings)  # Ray's own types are wrong here
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    try:
        run = subprocess.Popen(
            [
                sys.executable, "-m", "enteron", "fleet", "run", arguments.root,
                "--out", arguments.out, "--model", arguments.model, "--ray", cluster.address,
                "--split-above", arguments.split_above, "--reserve", "0",
            ]
        )  # fmt: skip
        if arguments.kill:
            studies = len(list(arguments.root.iterdir()))
            while run.poll() is None and finished(arguments.out) < studies // 3:
                time.sleep(0.1)
            print(f"killing a node after {finished(arguments.out)} studies", flush=True)
            cluster.remove_node(nodes[0], allow_graceful=False)
        return run.wait()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
