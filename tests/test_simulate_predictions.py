"""Check predictions of training on many devices against closed forms and limits."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from simulated_machines import LINK, machine, timeline

from weftgrad.distributed import simulate as sim
from weftgrad.runtime.errors import ArgumentError


def free_machine():
    """Return a machine on which communication costs nothing."""
    free = sim.Link(0.0, math.inf)
    return sim.Machine("free", 8, intra=free, inter=free)


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
