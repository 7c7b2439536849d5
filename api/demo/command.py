"""The command `weftgrad demo`. The demo itself is imported only when the command runs."""

from __future__ import annotations

import argparse

__all__ = ["add_options"]


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the demo's description and options to a parser."""
    parser.description = "Learn handwritten digits, and say what it cost."
    parser.add_argument(
        "--epochs", type=_count, default=15, help="how often to go through the training images (default: 15)"
    )
    parser.add_argument("--steps", type=_count, default=None, help="batches per epoch, for slow devices (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, order and dropout (default: 0)")
    parser.add_argument("--device", default=None, help="cpu, opencl:0, … (default: the default device)")
    parser.add_argument(
        "--output",
        default="weftgrad-demo.png",
        help="the picture to write, .png (with matplotlib also .svg, .pdf); '' for none (default: weftgrad-demo.png)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from .train import run  # lazy: start-up

    return run(options)
