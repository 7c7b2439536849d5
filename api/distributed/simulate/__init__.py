"""Predict training on more devices than there are, by simulating a recorded step.

    timeline = record_timeline(step, model)                    # a real step on one device
    for prediction in predict_scaling(timeline, DGX_H100, Plan("zero3")):
        print(prediction.devices, prediction.step_seconds, prediction.efficiency)

`machines` has links and described machines, `collectives` the published times of collectives, `timeline` and
`recording` the recorded step, `plans` and `programs` what each rank does, `events` the simulation, `prediction` its
outcome, and `calibration` the fit of a machine's links to measurements.
"""

from __future__ import annotations

from .calibration import LinkFit, fit_all_reduce, fit_link, measure_all_reduce, measure_messages
from .collectives import (
    CollectiveCosts,
    all_gather_bruck,
    all_gather_recursive_doubling,
    all_gather_ring,
    all_reduce_recursive_doubling,
    all_reduce_recursive_halving,
    all_reduce_ring,
    all_reduce_two_trees,
    broadcast_binomial,
    reduce_scatter_recursive_halving,
    reduce_scatter_ring,
)
from .events import EventSimulation, Task
from .machines import DGX_A100, DGX_H100, ETHERNET_CLUSTER, MACHINES, Group, Link, Machine
from .messages import all_reduce_messages, play_messages
from .plans import SHARDINGS, Plan
from .prediction import DEVICE_COUNTS, Noise, Prediction, predict, predict_scaling, simulate_step
from .recording import record_timeline
from .timeline import Gradient, Layer, Timeline

__all__ = [
    # the recorded step
    "Gradient", "Layer", "Timeline", "record_timeline",
    # machines
    "DGX_A100", "DGX_H100", "ETHERNET_CLUSTER", "MACHINES", "Group", "Link", "LinkFit", "Machine", "fit_all_reduce",
    "fit_link", "measure_all_reduce", "measure_messages",
    # collectives
    "CollectiveCosts", "all_gather_bruck", "all_gather_recursive_doubling", "all_gather_ring", "all_reduce_messages",
    "all_reduce_recursive_doubling", "all_reduce_recursive_halving", "all_reduce_ring", "all_reduce_two_trees",
    "broadcast_binomial", "play_messages", "reduce_scatter_recursive_halving", "reduce_scatter_ring",
    # predictions
    "DEVICE_COUNTS", "SHARDINGS", "EventSimulation", "Noise", "Plan", "Prediction", "Task", "predict",
    "predict_scaling", "simulate_step",
]  # fmt: skip
