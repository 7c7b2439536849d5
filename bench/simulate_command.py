"""The options of `weftgrad simulate`. The module that predicts, `simulating`, is imported only when it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["register"]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `simulate` to the command line."""
    _add_options(subparsers.add_parser("simulate", help="predict a training step on up to 10,000 devices"))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Records a training step here, and predicts it on many devices of a described machine: time of a step, "
        "efficiency, memory of a device."
    )
    parser.add_argument(
        "source",
        help="a model by name (resnet, alexnet, vgg, mobilenet, mobilenetv2, gnmt, ncf), a script that defines "
        "build_step(), which returns a function that trains one step and its model, or a timeline (.json)",
    )
    parser.add_argument("--device", default=None, help="the device to record on (default: the default one)")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="write the recorded timeline")
    parser.add_argument(
        "--machine", default="dgx-h100", help="the machine to predict for: dgx-h100 (default), dgx-a100, …"
    )
    parser.add_argument(
        "--step-time", type=float, metavar="SECONDS",
        help="what the step takes on one device of the machine (default: what it takes here)",
    )  # fmt: skip
    parser.add_argument(
        "--plan", action="append", metavar="PLAN",
        help="ddp, zero1, zero2 or zero3, and options such as tensor=8, pipeline=4, microbatches=16, "
        "bucket_bytes=1000000 or overlap=no after commas; several times for several plans (default: ddp, zero1, zero3)",
    )  # fmt: skip
    parser.add_argument("--devices", metavar="N,N", help="numbers of devices (default: 1, 2, 4, … 8192, 10000)")
    parser.add_argument(
        "--algorithm", default="auto", help="of collectives: ring, tree, recursive, hierarchical, or auto (default)"
    )
    parser.add_argument("--jitter", type=float, default=0.0, help="relative variation of each computation")
    parser.add_argument("--slow-share", type=float, default=0.0, help="part of the devices that are slow")
    parser.add_argument("--slow-factor", type=float, default=1.0, help="how many times longer slow devices compute")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers for the last three")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw efficiency and time by number of devices")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    """Predict, and return the exit status."""
    from .simulating import run  # lazy: start-up of the command line

    return run(options)
