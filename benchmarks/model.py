"""The network: parameters per part, and its cost beyond the backbone.

`enteron bench model` prints them; `enteron bench model -- --write` also updates the table in
docs/model.md. Costs are per frame of a study, each frame encoded once, against a ViT-B/16 of
BiomedCLIP's shapes with random weights.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from enteron.model.backbones import Backbone
from enteron.model.network import AnatomyContextHead, Network, empty_backbone
from enteron.model.options import BackboneName, BackboneSpec, ModelOptions
from enteron.model.preprocessing import Preprocessing

DOCUMENT = Path(__file__).parents[1] / "docs" / "model.md"
BEGIN, END = "<!-- parameters: begin -->", "<!-- parameters: end -->"
TRUNKS: dict[BackboneName, str] = {
    "biomedclip": "vit_base_patch16_224",
    "lite": "tf_efficientnet_lite0",
    "vit-tiny": "vit_tiny_patch16_224",
}
BATCH = 8
ROUNDS = 5
REPEATS = 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="update the table in docs/model.md")
    arguments = parser.parse_args()
    table = parameter_table()
    print(table)
    if arguments.write:
        before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
        print("written: docs/model.md")
    print()
    costs()
    print(f"import enteron: {1e3 * import_seconds():.1f} ms, without torch")


def network(name: BackboneName) -> Network:
    spec = BackboneSpec(name=name, trunk=TRUNKS[name], preprocessing=Preprocessing())
    return Network(empty_backbone(spec), ModelOptions(backbone=name))


def parameter_table() -> str:
    """The table in Markdown; networks are built on the meta device, without allocating memory."""
    with torch.device("meta"):
        networks = {name: network(name) for name in TRUNKS}
    paper = networks["biomedclip"]
    head, prototypes, contrast = paper.head, paper.prototypes, paper.contrast
    assert isinstance(head, AnatomyContextHead)
    assert prototypes is not None
    assert contrast is not None
    rows = [
        ("Local Differencing Attention (eq. 1)", paper.differencing),
        ("excitation block (eq. 2)", head.excitation),
        ("anatomy logits, W_anat", head.anatomy),
        ("pathology network (eq. 3)", head.pathology),
        ("prototypes and s (eq. 4)", prototypes),
        ("text features and tau (eq. 5)", contrast),
    ]
    lines = ["| part | parameters |", "|---|---:|"]
    lines += [f"| {name} | {count(part):,} |" for name, part in rows]
    beyond = sum(count(part) for _, part in rows)
    lines.append(f"| **everything beyond the backbone** | **{beyond:,}** |")
    for name, built in networks.items():
        backbone = built.backbone
        assert count(built) == count(backbone) + beyond
        lines.append(f"| backbone `{name}`: trunk | {count(backbone.trunk):,} |")
        lines.append(f"| backbone `{name}`: projection | {count(backbone.projection):,} |")
    return "\n".join(lines)


def count(part: torch.nn.Module) -> int:
    return sum(p.numel() for p in part.parameters())


def costs() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vit = network("biomedclip").eval()
    images = torch.randn(BATCH, 3, 224, 224)
    windows = torch.randn(BATCH, 3, 512)
    encode, classify = call(vit.backbone, images), call(vit.classify, windows)
    backbone_flops, rest_flops = flops(encode) / BATCH, flops(classify) / BATCH
    print(f"operations per frame: ViT-B/16 {backbone_flops / 1e9:.2f} G, ", end="")
    print(f"beyond {rest_flops / 1e6:.2f} M, {100 * rest_flops / backbone_flops:.4f} %")
    # Alternating, so that other load on the machine slows both alike.
    # The short one is repeated within a round: a single run of 2 ms would measure the scheduler.
    for run in (encode, classify):
        run()
    seconds = [(timed(encode, 1), timed(classify, REPEATS)) for _ in range(ROUNDS)]
    slow, fast = (statistics.median(column) for column in zip(*seconds, strict=True))
    print(f"time per frame, batches of {BATCH}, one thread, median of {ROUNDS}: ", end="")
    print(f"ViT-B/16 {1e3 * slow / BATCH:.1f} ms, beyond {1e3 * fast / BATCH:.3f} ms, ", end="")
    print(f"{100 * fast / slow:.3f} %")


def import_seconds() -> float:
    """Median seconds that `import enteron` adds to a fresh interpreter."""
    code = (
        "import sys, time; begin = time.perf_counter(); import enteron; "
        "print(time.perf_counter() - begin); assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, check=True, capture_output=True) for _ in range(ROUNDS)]
    return statistics.median(float(done.stdout) for done in runs)


def call(part: Backbone | Callable[[torch.Tensor], object], inputs: torch.Tensor) -> Callable:
    def run() -> None:
        # Not in inference mode, where attention is one fused operation that the counter cannot see.
        part(inputs)

    return run


def flops(run: Callable[[], None]) -> int:
    """Operations of a run; a multiplication and an addition count as two.

    Products with weights only: the counter does not see those inside attention, which would add
    4 % to ViT-B/16 and almost nothing to the rest.
    """
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def timed(run: Callable[[], None], repeats: int) -> float:
    """Mean seconds of a run."""
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


if __name__ == "__main__":
    main()
