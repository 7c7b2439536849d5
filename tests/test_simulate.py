"""Check the simulation of many devices: collectives, events, calibration and the command."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_machines import LINK, machine, timeline

from weftgrad.bench import simulating
from weftgrad.cli import main
from weftgrad.distributed import simulate as sim
from weftgrad.runtime.errors import ArgumentError

# Collectives: what Thakur, Rabenseifner and Gropp (2005) write, in numbers


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


# The event simulation


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


# Calibration


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


# The command


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


# Real ranks


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
