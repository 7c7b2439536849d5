"""Check predictions of training on many devices against closed forms, limits and messages played one by one."""

import itertools
import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.bench import simulating
from weftgrad.cli import main
from weftgrad.distributed import simulate as sim
from weftgrad.runtime.errors import ArgumentError

LINK = sim.Link(latency=3e-6, bandwidth=2e9)


def machine(devices=8, **changes):
    """Return a machine whose nodes have `devices` devices; the network is slower than the links in a node."""
    return sim.Machine("test", devices, intra=LINK, inter=sim.Link(20e-6, 5e8), **changes)


def free_machine():
    """Return a machine on which communication costs nothing."""
    free = sim.Link(0.0, math.inf)
    return sim.Machine("free", 8, intra=free, inter=free)


def timeline(layers=8, update=0.004, mbytes=4, role="replicated"):
    """Return a step of equal layers: 2 ms forward and 4 ms backward each, gradients from the last to the first."""
    return sim.Timeline(
        "net", "cpu",
        tuple(sim.Layer(f"l{i}", 0.002, 1 << 16, 1 << 18, mbytes << 20, role) for i in range(layers)),
        tuple(sim.Gradient(f"l{i}.weight", i, mbytes << 20, 0.004) for i in reversed(range(layers))),
        update, 2 * layers * mbytes << 20,
    )  # fmt: skip


# --- Collectives: what Thakur, Rabenseifner and Gropp (2005) write, in numbers ----------------------------------------


@pytest.mark.parametrize("p", [2, 3, 4, 8, 100])
@pytest.mark.parametrize("n", [8, 1 << 20])
def test_times_of_collectives_are_the_published_ones(p, n):
    alpha, beta, gamma = 3e-6, 0.5e-9, 0.1e-9
    ring = 2 * (p - 1) * alpha + 2 * (p - 1) / p * n * beta + (p - 1) / p * n * gamma
    assert sim.all_reduce_ring(p, n, LINK, gamma) == pytest.approx(ring)
    assert sim.all_gather_bruck(p, n, LINK) == pytest.approx(math.ceil(math.log2(p)) * alpha + (p - 1) / p * n * beta)
    trees = 2 * math.ceil(math.log2(p)) * alpha + 2 * n * beta + n * gamma
    assert sim.all_reduce_two_trees(p, n, LINK, gamma) == pytest.approx(trees)
    assert sim.broadcast_binomial(p, n, LINK) == pytest.approx(math.ceil(math.log2(p)) * (alpha + n * beta))
    if p in (2, 4, 8):
        steps = math.log2(p)
        doubling = steps * (alpha + n * beta + n * gamma)
        assert sim.all_reduce_recursive_doubling(p, n, LINK, gamma) == pytest.approx(doubling)
        halving = 2 * steps * alpha + 2 * (p - 1) / p * n * beta + (p - 1) / p * n * gamma
        assert sim.all_reduce_recursive_halving(p, n, LINK, gamma) == pytest.approx(halving)


@pytest.mark.parametrize("p", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("algorithm", "formula"),
    [
        ("ring", sim.all_reduce_ring),
        ("recursive halving", sim.all_reduce_recursive_halving),
        ("recursive doubling", sim.all_reduce_recursive_doubling),
    ],
)
def test_messages_one_by_one_take_the_time_of_the_formula(algorithm, formula, p):
    rounds = sim.all_reduce_messages(algorithm, p, 1 << 20)
    assert sim.play_messages(machine(p), rounds) == pytest.approx(formula(p, 1 << 20, LINK))


@pytest.mark.parametrize("algorithm", ["recursive halving", "recursive doubling"])
def test_messages_of_an_all_reduce_carry_every_part_to_every_rank(algorithm):
    """Follow which ranks' contributions each rank has: after the reducing rounds every one."""
    p = 8
    rounds = sim.all_reduce_messages(algorithm, p, 8.0)
    known = [{rank} for rank in range(p)]
    for messages in rounds:
        before = [set(ranks) for ranks in known]
        for sender, receiver, _ in messages:
            known[receiver] |= before[sender]
    assert known == [set(range(p))] * p
    assert {sum(nbytes for s, _, nbytes in itertools.chain(*rounds) if s == rank) for rank in range(p)} == {
        14.0 if algorithm == "recursive halving" else 24.0  # 2 (p-1)/p n, and n log2 p
    }


def test_a_recursive_pass_over_nodes_is_what_its_messages_take():
    """Partners far away are on other nodes: the long messages of halving cross the network."""
    cluster = machine(4, adapters_per_node=4)
    costs = sim.CollectiveCosts(cluster, "recursive")
    played = sim.play_messages(cluster, sim.all_reduce_messages("recursive halving", 16, 1 << 22))
    assert costs.all_reduce(cluster.group(16), 1 << 22) == pytest.approx(played)


def test_auto_is_the_fastest_algorithm_and_long_vectors_prefer_the_hierarchy():
    cluster = sim.DGX_H100
    names = ("ring", "tree", "recursive", "hierarchical")
    for devices, nbytes in itertools.product((8, 64, 4096), (1 << 10, 1 << 20, 1 << 30)):
        group = cluster.group(devices)
        times = {name: sim.CollectiveCosts(cluster, name).all_reduce(group, nbytes) for name in names}
        assert sim.CollectiveCosts(cluster).all_reduce(group, nbytes) == min(times.values())
    long_times = {n: sim.CollectiveCosts(cluster, n).all_reduce(cluster.group(4096), 1 << 30) for n in names}
    assert long_times["hierarchical"] < long_times["ring"]  # 8190 network latencies


@pytest.mark.parametrize("algorithm", ["ring", "tree", "hierarchical", "auto"])
def test_collectives_never_get_faster_with_more_nodes_or_bytes(algorithm):
    costs = sim.CollectiveCosts(sim.ETHERNET_CLUSTER, algorithm)
    for function in (costs.all_reduce, costs.all_gather, costs.reduce_scatter):
        by_nodes = [function(sim.ETHERNET_CLUSTER.group(8 << i), 1 << 24) for i in range(10)]
        by_bytes = [function(sim.ETHERNET_CLUSTER.group(64), 1 << i) for i in range(4, 30)]
        assert by_nodes == sorted(by_nodes)
        assert by_bytes == sorted(by_bytes)


def test_groups_on_nodes():
    assert sim.DGX_H100.group(64).nodes == 8
    assert sim.DGX_H100.group(64, stride=8).nodes == 64  # one rank of each tensor group in a node
    assert sim.DGX_H100.group(64, stride=2).per_node == 4
    assert sim.DGX_H100.network_share.bandwidth == 50e9
    assert sim.ETHERNET_CLUSTER.network_share.bandwidth == 12.5e9 / 8


# --- The event simulation --------------------------------------------------------------------------------------------


def test_a_stream_runs_one_task_at_a_time_and_a_collective_waits_for_the_last_rank():
    simulation = sim.EventSimulation()
    first = simulation.add("a", 2.0, [0])
    simulation.add("b", 5.0, [1])
    both = simulation.add("all-reduce", 1.0, [0, 1])
    after = simulation.add("c", 1.0, [2], after=[first])
    assert simulation.run() == 6.0
    assert (simulation.tasks[both].begin, simulation.tasks[after].begin) == (5.0, 2.0)


def test_tasks_share_cores_equally():
    """Three tasks of 1, 2 and 3 s on two cores: all run at 2/3 until 1.5, then each has a core."""
    simulation = sim.EventSimulation({0: 2})
    for stream, seconds in enumerate((1.0, 2.0, 3.0)):
        simulation.add("work", seconds, [stream], node=0)
    assert simulation.run() == pytest.approx(3.5)
    assert [task.end for task in simulation.tasks] == pytest.approx([1.5, 2.5, 3.5])


def test_a_task_that_starts_later_slows_the_running_one_down():
    """1 core: one task alone for 1 s, then two at half speed."""
    simulation = sim.EventSimulation({0: 1})
    simulation.add("long", 2.0, ["a"], node=0)
    delay = simulation.add("message", 1.0, ["network"])
    simulation.add("late", 1.0, ["b"], after=[delay], node=0)
    assert simulation.run() == pytest.approx(3.0)
    assert simulation.tasks[0].end == simulation.tasks[2].end == pytest.approx(3.0)


def test_wrong_tasks_are_refused():
    simulation = sim.EventSimulation()
    with pytest.raises(ArgumentError, match="nan s after tasks"):
        simulation.add("x", math.nan, [0])
    with pytest.raises(ArgumentError, match=r"after tasks \[3\]"):
        simulation.add("x", 1.0, [0], after=[3])
    with pytest.raises(ArgumentError, match="cores of node 0"):
        simulation.add("x", 1.0, [0], node=0)


# --- Predictions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [sim.Plan(s, overlap=o) for s in sim.SHARDINGS for o in (True, False)], ids=str)
def test_one_device_takes_the_recorded_step(plan):
    prediction = sim.predict(timeline(), machine(), plan, 1)
    assert prediction.step_seconds == pytest.approx(0.052)
    assert prediction.efficiency == pytest.approx(1.0)
    assert prediction.communication_seconds == 0.0
    assert prediction.memory_bytes == (8 * 4 + 8 * 4 + 2 * 8 * 4 << 20) + (8 << 18)


@pytest.mark.parametrize("sharding", sim.SHARDINGS)
def test_free_communication_leaves_the_computation(sharding):
    prediction = sim.predict(timeline(), free_machine(), sim.Plan(sharding), 64)
    assert prediction.step_seconds == pytest.approx(0.048 + 0.004 / (1 if sharding == "ddp" else 64))
    assert prediction.exposed_seconds == 0.0


def test_without_overlap_the_collectives_of_the_buckets_add_up():
    plan = sim.Plan(overlap=False, bucket_bytes=8 << 20, first_bucket_bytes=1 << 20)  # buckets of 1, 2, 2, 2, 1 layers
    prediction = sim.predict(timeline(), machine(), plan, 8, algorithm="ring")
    reductions = sum(14 * LINK.latency + 14 / 8 * (layers * 4 << 20) / LINK.bandwidth for layers in (1, 2, 2, 2, 1))
    assert prediction.step_seconds == pytest.approx(0.052 + reductions)
    assert prediction.communication_seconds == pytest.approx(reductions)


def test_with_overlap_only_the_last_bucket_is_exposed_if_communication_is_fast():
    plan = sim.Plan(bucket_bytes=4 << 20)
    fast = replace(machine(), intra=sim.Link(3e-6, 20e9))
    prediction = sim.predict(timeline(), fast, plan, 8, algorithm="ring")
    last = 14 * 3e-6 + 14 / 8 * (4 << 20) / 20e9  # 0.4 ms, and a layer's backward takes 4 ms
    assert prediction.step_seconds == pytest.approx(0.052 + last)
    assert prediction.exposed_seconds == pytest.approx(last)


def test_with_overlap_slow_communication_begins_with_the_first_bucket():
    """The network is the bottleneck: after the first gradient it never pauses."""
    plan = sim.Plan(bucket_bytes=4 << 20)
    slow = replace(machine(), intra=sim.Link(3e-6, 1e8))
    prediction = sim.predict(timeline(), slow, plan, 8, algorithm="ring")
    reductions = 8 * (14 * 3e-6 + 14 / 8 * (4 << 20) / 1e8)
    assert prediction.step_seconds == pytest.approx(8 * 0.002 + 0.004 + reductions + 0.004)


def test_buckets_follow_the_order_of_arrival():
    """The embedding's gradient arrives first here, so that its bucket is reduced first."""
    step = timeline(layers=2)
    swapped = replace(step, gradients=step.gradients[::-1])
    tasks = sim.simulate_step(swapped, machine(), sim.Plan(bucket_bytes=1 << 20), 2).tasks
    computing = [task for task in tasks if task.name.startswith("backward")]
    assert [task.seconds for task in computing] == [0.004, 0.004]
    reductions = [task for task in tasks if task.name == "all-reduce"]
    assert reductions[0].begin == computing[0].end


@pytest.mark.parametrize("sharding", sim.SHARDINGS)
@pytest.mark.parametrize("cluster", [sim.DGX_H100, sim.ETHERNET_CLUSTER], ids=lambda m: m.name)
def test_more_nodes_never_raise_efficiency(sharding, cluster):
    step = timeline(update=0.0)
    rows = sim.predict_scaling(step, cluster, sim.Plan(sharding), [8 << i for i in range(11)])
    efficiencies = [row.efficiency for row in rows]
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert 0 < efficiencies[-1] < efficiencies[0] <= 1


def test_overlap_never_hurts_and_never_beats_the_longer_of_both():
    for sharding, devices in itertools.product(sim.SHARDINGS, (2, 8, 64, 512)):
        hidden = sim.predict(timeline(), machine(), sim.Plan(sharding), devices)
        blocking = sim.predict(timeline(), machine(), sim.Plan(sharding, overlap=False), devices)
        assert hidden.step_seconds <= blocking.step_seconds + 1e-12
        assert hidden.step_seconds >= max(hidden.compute_seconds, hidden.communication_seconds)
        assert blocking.step_seconds == pytest.approx(blocking.compute_seconds + blocking.communication_seconds)


@pytest.mark.parametrize(("stages", "batches"), [(2, 1), (2, 4), (4, 4), (4, 16), (8, 3)])
def test_the_bubble_of_a_pipeline_is_the_published_one(stages, batches):
    """Of a step of equal stages, (s-1) / (m+s-1) is idle (Narayanan et al. 2021, section 2.2)."""
    plan = sim.Plan(pipeline=stages, microbatches=batches)
    prediction = sim.predict(timeline(update=0.0), free_machine(), plan, stages)
    bubble = (stages - 1) / (batches + stages - 1)
    assert prediction.efficiency == pytest.approx(1 - bubble)
    assert prediction.step_seconds == pytest.approx((batches + stages - 1) * 0.048 / stages)


def test_a_pipeline_holds_activations_of_as_many_microbatches_as_it_has_stages():
    """1F1B: the first stage has min(m, s) microbatches in flight, PipeDream's advantage over GPipe."""
    step = timeline()
    of_one = step.activation_bytes / 4
    state = (4 * 8 * 4 << 20) / 4
    for batches, in_flight in ((2, 2), (4, 4), (64, 4)):
        plan = sim.Plan(pipeline=4, microbatches=batches)
        assert sim.predict(step, machine(), plan, 4).memory_bytes == state + in_flight * of_one


def test_stages_are_cut_for_the_least_maximum():
    """Compare with all possible cuts."""
    random = np.random.default_rng(1)
    seconds = random.uniform(0.1, 2.0, 9)
    step = sim.Timeline("net", "cpu", tuple(sim.Layer(str(i), s, 8, 8, 8) for i, s in enumerate(seconds)), (), 0.0, 0)
    best = min(
        max(sum(seconds[a:b]) for a, b in itertools.pairwise((0, *cuts, 9)))
        for cuts in itertools.combinations(range(1, 9), 3)
    )
    tasks = sim.simulate_step(step, free_machine(), sim.Plan(pipeline=4), 4).tasks
    assert max(task.seconds for task in tasks if task.name == "forward 0") == pytest.approx(best)


def test_tensor_parallel_layers_divide_the_work_and_reduce_twice_per_pair():
    """Megatron: of a pair of matrices, one all-reduce in forward, and one in backward but for the model's input."""
    step = timeline(layers=4, update=0.0)
    roles = ("column", "row", "column", "row")
    step = replace(step, layers=tuple(replace(x, role=r) for x, r in zip(step.layers, roles, strict=True)))
    prediction = sim.predict(step, machine(), sim.Plan(tensor=4), 4, algorithm="ring")
    one = 6 * LINK.latency + 6 / 4 * (1 << 16) / LINK.bandwidth
    assert prediction.communication_seconds == pytest.approx(3 * one)
    assert prediction.step_seconds == pytest.approx(0.024 / 4 + 3 * one)
    assert sim.predict(timeline(), machine(), sim.Plan(tensor=4), 4).compute_seconds == pytest.approx(0.052)
    blocks = replace(step, layers=tuple(replace(layer, role="block") for layer in step.layers))
    prediction = sim.predict(blocks, machine(), sim.Plan(tensor=4), 4, algorithm="ring")
    assert prediction.communication_seconds == pytest.approx(7 * one)  # a block is a pair in one module
    shared = sim.Plan(tensor=4, sequence_parallel=True)
    assert sim.predict(timeline(), machine(), shared, 4).compute_seconds == pytest.approx(0.048 / 4 + 0.004)


def test_memory_of_sharded_plans_is_what_the_paper_counts():
    """Rajbhandari et al. 2020, figure 1: each stage divides one more of state, gradients and parameters."""
    step = timeline(mbytes=40)
    parameters, state, activations = 8 * 40 << 20, 2 * 8 * 40 << 20, 8 << 18
    bucket, unit = 25 << 20, 40 << 20
    expected = {
        "ddp": 2 * parameters + state + activations,
        "zero1": 2 * parameters + state / 64 + activations,
        "zero2": parameters + (parameters + state) / 64 + bucket + activations,
        "zero3": (2 * parameters + state) / 64 + bucket + 2 * unit + activations,
    }
    for sharding, nbytes in expected.items():
        assert sim.predict(step, machine(), sim.Plan(sharding), 64).memory_bytes == round(nbytes)


def test_zero3_gathers_one_unit_ahead():
    """While a unit computes the next one is gathered, and not the one behind it."""
    plan = sim.Plan("zero3", bucket_bytes=4 << 20)
    tasks = sim.simulate_step(timeline(layers=4), replace(machine(), intra=sim.Link(0.0, 1e11)), plan, 8).tasks
    forward = [task for task in tasks if task.name.startswith("forward")]
    gathers = [task for task in tasks if task.name == "all-gather"]
    assert len(gathers) == 4 + 3  # the last unit stays whole between forward and backward
    assert [gather.begin for gather in gathers[2:4]] == pytest.approx([forward[0].end, forward[1].end])
    assert all(gather.end <= unit.begin for gather, unit in zip(gathers, forward, strict=False))


@pytest.mark.parametrize(
    ("plan", "devices"),
    [
        (sim.Plan(), 6), (sim.Plan("zero1"), 16), (sim.Plan("zero3"), 5), (sim.Plan("zero2", microbatches=2), 3),
        (sim.Plan(tensor=2, pipeline=2, microbatches=3), 12), (sim.Plan(overlap=False), 4),
    ],
    ids=str,
)  # fmt: skip
def test_one_rank_of_each_stage_stands_for_all_equal_ranks(plan, devices):
    step = timeline(role="column")
    few = sim.simulate_step(step, machine(4), plan, devices)
    every = sim.simulate_step(step, machine(4), plan, devices, every_rank=True)
    assert max(t.end for t in few.tasks) == pytest.approx(max(t.end for t in every.tasks), rel=1e-12)
    computing = {stream[0] for task in every.tasks for stream in task.streams if stream[1] == "compute"}
    assert computing == set(range(devices))


def test_noise_repeats_with_its_seed_and_slows_the_step_down():
    plan = sim.Plan()
    quiet = sim.predict(timeline(), machine(), plan, 64).step_seconds
    noisy = [sim.predict(timeline(), machine(), plan, 64, noise=sim.Noise(0.1, seed=s)).step_seconds for s in (1, 1, 2)]
    assert noisy[0] == noisy[1] != noisy[2]
    assert min(noisy) > quiet


def test_one_slow_rank_slows_every_rank_down():
    noise = sim.Noise(slow_share=1 / 64, slow_factor=1.5)
    slow = sim.predict(timeline(), free_machine(), sim.Plan(), 64, noise=noise)
    assert slow.step_seconds == pytest.approx(1.5 * 0.052)
    assert sim.simulate_step(timeline(), free_machine(), sim.Plan(), 64, noise=noise).tasks[-1].end > 0.052


def test_the_wait_for_the_slowest_of_many_grows_as_the_expected_maximum():
    """With one computation per rank, the step is the maximum of p lognormal durations: compare with sampling them."""
    step = sim.Timeline("net", "cpu", (sim.Layer("l", 1.0, 8, 8, 8),), (sim.Gradient("l", 0, 8, 0.0),), 0.0, 0)
    for devices in (16, 1024):
        seconds = [
            sim.predict(step, free_machine(), sim.Plan(), devices, noise=sim.Noise(0.1, seed=seed)).step_seconds
            for seed in range(20)
        ]
        random = np.random.default_rng(99)
        expected = np.exp(0.1 * random.standard_normal((4000, devices)).max(1)).mean()
        assert np.mean(seconds) == pytest.approx(expected, rel=0.04)


def test_ranks_on_shared_cores():
    """Four ranks on two cores take twice as long, whether the waiting ones spin or not, if all compute at once."""
    spinning = sim.Machine("s", 4, LINK, LINK, cores_per_node=2, waits_spin=True)
    yielding = replace(spinning, waits_spin=False)
    step = timeline(mbytes=0)
    for kind in (spinning, yielding):
        assert sim.predict(step, kind, sim.Plan(), 2).step_seconds == pytest.approx(0.052)
        assert sim.predict(step, kind, sim.Plan(), 4).step_seconds == pytest.approx(0.104)
    # A pipeline's stages wait for each other: those that wait leave their core to the others only if they do not spin.
    plan = sim.Plan(pipeline=4)
    assert sim.predict(step, yielding, plan, 4).step_seconds < 0.6 * sim.predict(step, spinning, plan, 4).step_seconds


def test_shared_memory_slows_computation_down_by_the_number_of_ranks():
    shared = replace(free_machine(), slowdown=1.7)
    assert sim.predict(timeline(), shared, sim.Plan(), 1).step_seconds == pytest.approx(0.052)
    assert sim.predict(timeline(), shared, sim.Plan(), 8).step_seconds == pytest.approx(0.052 * 1.7)


def test_ten_thousand_devices_with_noise():
    prediction = sim.predict(timeline(layers=2), sim.DGX_H100, sim.Plan(), 10_000, noise=sim.Noise(0.02))
    assert 0.5 < prediction.efficiency < 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sim.Plan("zero4"), "sharding is one of ddp, zero1"),
        (lambda: sim.Plan(tensor=0), "1 or more, not 0"),
        (lambda: sim.Plan("zero3", pipeline=2), "combine pipelines with ddp or zero1"),
        (lambda: sim.predict(timeline(), machine(), sim.Plan(tensor=4), 6), "needs a multiple of 4 devices"),
        (lambda: sim.predict(timeline(), machine(), sim.Plan(pipeline=9), 9), "8 layers, too few for 9"),
        (lambda: sim.CollectiveCosts(machine(), "star"), "algorithm is one of auto, ring"),
        (lambda: sim.Link(-1.0, 1.0), "latency is 0 or more"),
        (lambda: sim.Noise(slow_factor=0.5), "slow_factor 1 or more"),
        (lambda: sim.Machine("m", 0, LINK, LINK), "1 or more"),
        (lambda: sim.all_reduce_messages("recursive halving", 6, 1.0), "power of two"),
        (lambda: sim.Timeline("n", "cpu", (), (), 0.0, 0), "needs a layer"),
        (lambda: replace(timeline(), update_seconds=math.nan), "finite times"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


# --- The recorded step -----------------------------------------------------------------------------------------------


class Residual(wg.nn.Module):
    """Query, key and value matrices with one input, a matrix behind them, and an embedding before."""

    def __init__(self):
        super().__init__()
        self.table = wg.nn.Embedding(10, 8)
        self.norm = wg.nn.LayerNorm(8)
        self.q, self.k, self.v = (wg.nn.Linear(8, 8, bias=False) for _ in range(3))
        self.out = wg.nn.Linear(8, 8)

    def forward(self, codes):
        x = self.norm(self.table(codes))
        return self.out(self.q(x) * self.k(x) + self.v(x))


def record(model, batch, **options):
    optimizer = wg.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        optimizer.step()

    return sim.record_timeline(step, model, repeats=2, **options)


def test_a_recorded_step_has_layers_gradients_and_bytes():
    recorded = record(Residual(), wg.zeros(4, 3, dtype=wg.int64), name="r")
    assert [layer.name for layer in recorded.layers] == ["table", "norm", "q", "k", "v", "out"]
    assert [layer.role for layer in recorded.layers] == ["table", "replicated", "column", "column", "column", "row"]
    assert [layer.output_bytes for layer in recorded.layers] == [4 * 3 * 8 * 4] * 6
    assert [layer.parameter_bytes for layer in recorded.layers] == [320, 64, 256, 256, 256, 288]
    names = [gradient.name for gradient in recorded.gradients]
    assert sorted(names[:2]) == ["out.bias", "out.weight"]
    assert names[-1] == "table.weight"
    assert recorded.layers[recorded.gradients[-1].layer].name == "table"
    assert recorded.gradient_bytes == recorded.parameter_bytes == 1440
    assert 2 * 1440 <= recorded.optimizer_bytes <= 2 * 1440 + 6 * 64  # Adam's two moments, and counters of steps
    assert recorded.forward_seconds > 0
    assert recorded.backward_seconds > 0
    assert recorded.update_seconds > 0
    assert sim.predict(recorded, machine(), sim.Plan(), 1).step_seconds == pytest.approx(recorded.step_seconds)


class Sleep(wg.autograd.Function):
    """Return the input, 80 ms later; so does the gradient."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.08)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.08)
        return grad.clone()


class Slow(wg.nn.Linear):
    """A linear layer that takes 80 ms in forward, and before its gradients."""

    def forward(self, x):
        return Sleep.apply(super().forward(x))


def test_a_slow_layer_takes_its_share_of_the_step():
    model = wg.nn.Sequential(wg.nn.Linear(4, 4), Slow(4, 4), wg.nn.Linear(4, 4))
    recorded = record(model, wg.ones(2, 4), warmup=1)
    seconds = {gradient.name: gradient.seconds for gradient in recorded.gradients}
    forward = [layer.forward_seconds for layer in recorded.layers]
    assert forward[1] > 2 * max(forward[0], forward[2])
    assert seconds["1.weight"] + seconds["1.bias"] > 2 * (seconds["2.weight"] + seconds["2.bias"])
    assert recorded.step_seconds >= 0.16


def test_activations_are_what_memory_grew_by():
    recorded = record(wg.nn.Sequential(wg.nn.Linear(16, 4096), wg.nn.Linear(4096, 16)), wg.ones(256, 16), warmup=1)
    assert 256 * 4096 * 4 <= recorded.layers[0].activation_bytes < 1.5 * 256 * 4096 * 4


def test_parameters_used_twice_and_frozen_ones():
    """A shared matrix arrives once, with its last use; a frozen one never."""
    shared, frozen = wg.nn.Linear(8, 8), wg.nn.Linear(8, 8)
    frozen.requires_grad_(False)
    recorded = record(wg.nn.Sequential(shared, frozen, shared), wg.ones(2, 8))
    assert sorted(gradient.name for gradient in recorded.gradients) == ["0.bias", "0.weight"]
    assert [layer.name for layer in recorded.layers] == ["0", "1"]
    assert recorded.parameter_bytes == 2 * recorded.gradient_bytes


def test_parameters_of_a_module_that_is_not_called_belong_to_the_caller():
    model = wg.nn.MultiheadAttention(8, 2, batch_first=True)
    optimizer = wg.optim.SGD(model.parameters(), lr=0.1)
    x = wg.ones(2, 3, 8)

    def step():
        optimizer.zero_grad()
        model(x, x, x)[0].sum().backward()
        optimizer.step()

    recorded = sim.record_timeline(step, model, repeats=1)
    assert recorded.parameter_bytes == sum(4 * p.numel() for p in model.parameters())
    assert len(recorded.gradients) == 4
    assert [layer.role for layer in recorded.layers] == ["block"]


def test_an_asynchronous_device_is_timed_by_its_kernels():
    if "opencl:0" not in [str(device) for device in wg.devices()]:
        pytest.skip("needs an OpenCL device")
    model = wg.nn.Sequential(wg.nn.Linear(8, 8), wg.nn.Linear(8, 8)).to("opencl:0")
    recorded = record(model, wg.ones(4, 8, device="opencl:0"))
    assert recorded.device == "opencl:0"
    assert len(recorded.gradients) == 4
    assert recorded.backward_seconds > 0


def test_a_step_without_gradients_is_refused():
    model = wg.nn.Linear(2, 2)
    with pytest.raises(ArgumentError, match="1 calls of layers and 0 gradients"):
        sim.record_timeline(lambda: model(wg.ones(1, 2)), model)
    with pytest.raises(ArgumentError, match="needs parameters"):
        sim.record_timeline(lambda: None, wg.nn.ReLU())


def test_recording_leaves_no_hooks():
    model = wg.nn.Linear(2, 2)
    record(model, wg.ones(1, 2))
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


def test_a_timeline_is_saved_and_loaded(tmp_path):
    step = timeline()
    step.save(tmp_path / "step.json")
    assert sim.Timeline.load(tmp_path / "step.json") == step
    assert step.with_step_seconds(1.0).step_seconds == pytest.approx(1.0)
    content = json.loads((tmp_path / "step.json").read_text())
    for change, message in (
        ({"format": 9}, "no timeline of format 1"),
        ({"gradients": [{"name": "x"}]}, "malformed"),
        ({"layers": []}, "needs a layer"),
        ({"gradients": [{"name": "x", "layer": 99, "nbytes": 1, "seconds": 1.0}]}, "outside 0 to 7"),
        ({"layers": [{**content["layers"][0], "role": "diagonal"}]}, "role is one of"),
    ):
        (tmp_path / "bad.json").write_text(json.dumps(content | change))
        with pytest.raises(ArgumentError, match=message):
            sim.Timeline.load(tmp_path / "bad.json")
    with pytest.raises(ArgumentError, match="cannot be read"):
        sim.Timeline.load(tmp_path / "missing.json")


# --- Calibration -----------------------------------------------------------------------------------------------------


def test_a_fit_finds_the_link_of_exact_times():
    sizes = [1 << i for i in range(10, 24, 2)]
    fit = sim.fit_link(sizes, [LINK.seconds(n) for n in sizes])
    assert fit.link.latency == pytest.approx(LINK.latency)
    assert fit.link.bandwidth == pytest.approx(LINK.bandwidth)
    reductions = [2 * 3 * 3e-6 + 1.5 * n / 2e9 for n in sizes]
    fit = sim.fit_all_reduce(4, sizes, reductions)
    assert (fit.link.latency, fit.link.bandwidth) == pytest.approx((3e-6, 2e9))
    assert fit.largest_error < 1e-6


def test_a_fit_never_has_a_negative_latency():
    fit = sim.fit_link([1000, 2000], [1.0, 2.5])
    assert fit.link.latency == 0.0
    assert fit.largest_error > 0.05
    with pytest.raises(ArgumentError, match="two or more sizes"):
        sim.fit_link([8, 8], [1.0, 1.0])
    with pytest.raises(ArgumentError, match="two ranks"):
        sim.fit_all_reduce(1, [8, 16], [1.0, 2.0])


def test_measuring_needs_ranks():
    for measure in (sim.measure_messages, sim.measure_all_reduce):
        with pytest.raises(ArgumentError, match="mpiexec -n 2"):
            measure()


# --- The command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_table(tmp_path, capsys):
    timeline().save(tmp_path / "step.json")
    assert main(["simulate", str(tmp_path / "step.json"), "--plan", "ddp,tensor=2", "--devices", "2,64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ddp, tensor 2" in lines
    assert [line.split()[0] for line in lines[-2:]] == ["2", "64"]


def test_the_command_prints_json(tmp_path, capsys):
    timeline().save(tmp_path / "step.json")
    assert main(["simulate", str(tmp_path / "step.json"), "--json", "--step-time", "0.1", "--jitter", "0.1"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["step_seconds"] == pytest.approx(0.1)
    assert list(content["plans"]) == ["ddp", "zero1", "zero3"]
    assert [row["devices"] for row in content["plans"]["ddp"]] == list(sim.DEVICE_COUNTS)


def test_the_command_records_a_script_and_draws(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "tiny.py").write_text(
        "import weftgrad as wg\n"
        "def build_step():\n"
        "    model = wg.nn.Linear(4, 4)\n"
        "    return lambda: model(wg.ones(1, 4)).sum().backward(), model\n"
    )
    arguments = [str(tmp_path / "tiny.py"), "--plot", str(tmp_path / "p.png"), "--save", str(tmp_path / "t.json")]
    assert main(["simulate", *arguments, "--devices", "1,8"]) == 0
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    assert sim.Timeline.load(tmp_path / "t.json").name == "tiny"
    assert capsys.readouterr().out.startswith("tiny on ")


def test_the_command_records_a_model_by_name(capsys):
    assert main(["simulate", "ncf", "--device", "cpu", "--devices", "1,8", "--plan", "zero1"]) == 0
    assert capsys.readouterr().out.startswith("NCF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody"], "no model is called 'nobody'"),
        (["missing.py"], "no script"),
        (["missing.json"], "cannot be read"),
        (["step.json", "--plan", "ddp,width=2"], "no option 'width'"),
        (["step.json", "--plan", "ddp,tensor=x"], "tensor is a number"),
        (["step.json", "--plan", "ddp,overlap=2"], "overlap is yes or no"),
        (["step.json", "--devices", "0"], "numbers with commas"),
        (["step.json", "--plan", "ddp,tensor=8", "--devices", "4"], "none of --devices is"),
        (["step.json", "--step-time", "0"], "more than 0 seconds"),
    ],
)
def test_the_command_explains_wrong_arguments(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    timeline().save("step.json")
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (3e-8, "0.03 us"),
        (99.96e-6, "100 us"),
        (999.7e-6, "1 ms"),
        (0.9996, "1 s"),
        (12.34, "12.3 s"),
        (4321, "4321 s"),
    ],
)
def test_times_have_three_digits(seconds, text):
    assert simulating._time(seconds) == text


def test_sizes_have_three_digits():
    assert [simulating._size(n) for n in (0, 999, 1000, 999_700, 4.5e9)] == ["0 B", "999 B", "1 KB", "1 MB", "4.5 GB"]


def test_plans_are_parsed():
    plan = simulating.parse_plan("zero1,tensor=8,pipeline=4,microbatches=16,overlap=no,sequence_parallel=yes")
    assert plan == sim.Plan("zero1", 8, 4, 16, overlap=False, sequence_parallel=True)


# --- Real ranks ------------------------------------------------------------------------------------------------------


def test_two_ranks_measure_their_links():
    pytest.importorskip("mpi4py")
    program = """
import weftgrad as wg
from weftgrad.distributed.simulate import fit_link, measure_all_reduce, measure_messages

wg.distributed.init_process_group()
sizes = [1 << 12, 1 << 20, 1 << 25]  # the last takes longer than another process delays a message
times = measure_messages(sizes, device="cpu"), measure_all_reduce(sizes, device="cpu")
link = fit_link(sizes, times[0]).link
assert 0 <= link.latency < 1 and 1e6 < link.bandwidth < 1e12, link
everywhere = [None, None]
wg.distributed.all_gather_object(everywhere, times)
assert everywhere == [times] * 2
wg.distributed.destroy_process_group()
"""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.is_file():
        pytest.skip("needs mpiexec beside Python")
    result = subprocess.run(
        [str(mpiexec), "-n", "2", sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
