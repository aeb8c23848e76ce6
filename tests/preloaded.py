"""What the server of processes in `tests.two_readings` imports before it forks them."""

import torch  # noqa: F401

import enteron.cli.console
import enteron.inference.embed
import enteron.inference.runtimes
import enteron.inference.score
import enteron.inference.torch_runtime
import enteron.model.network
import enteron.reading  # noqa: F401
from enteron.model import torchvision_operators

torchvision_operators.declare()

import timm  # noqa: E402, F401
