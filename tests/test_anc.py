"""Check examples/anc: programs, compiler, interpreter, the differentiable machine, its loss and its training."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import weftgrad as wg

EXAMPLES = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent) / "examples"
if not (EXAMPLES / "anc").is_dir():
    pytest.skip("needs the checkout: set WEFTGRAD_CHECKOUT", allow_module_level=True)
sys.path.append(str(EXAMPLES))

from anc import interpreter, language, loss, machine, program, programs, tasks, train, weights  # noqa: E402

NAMES = list(tasks.TASKS)
COUNTED_STEPS = {"access": 6, "increment": 40, "swap": 10, "listk": 15.0, "addition": 20.05, "sort": 36.9}
IDEAL_STEPS = {"access": 4, "increment": 26, "swap": 6, "listk": 10, "addition": 6, "sort": 8}


def draw(name, count, biased=True, seed=0):
    return tasks.TASKS[name].draw(np.random.default_rng(seed), count, biased)


def as_tensors(samples, seeds=1):
    return [wg.tensor(part.reshape(seeds, -1, part.shape[-1])) for part in samples]


# --- Programs, on integers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("biased", [False, True], ids=["generic-data", "biased-data"])
@pytest.mark.parametrize("name", NAMES)
def test_generic_programs_are_right(name, biased):
    samples = draw(name, 2000, biased)
    cells, _, halted = interpreter.execute(programs.GENERIC[name], samples.cells, 500)
    assert halted.all()
    assert ((cells == samples.targets) | (samples.mask == 0)).all()
    assert samples.mask.any(1).all()


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_generic_programs(name):
    """Compare mean counted steps on the data of the paper's runs with the table of an earlier implementation."""
    steps = interpreter.execute(programs.GENERIC[name], draw(name, 2000, tasks.TASKS[name].is_biased).cells, 500).steps
    assert abs(steps.mean() + 1 - COUNTED_STEPS[name]) < 4 * steps.std() / 2000**0.5 + 0.15


@pytest.mark.parametrize("name", NAMES)
def test_ideal_programs_are_right(name):
    samples = draw(name, 2000, tasks.TASKS[name].is_biased)
    cells, steps, halted = interpreter.execute(programs.IDEAL[name], samples.cells, tasks.TASKS[name].max_steps)
    assert halted.all()
    assert ((cells == samples.targets) | (samples.mask == 0)).all()
    assert (steps + 1 == IDEAL_STEPS[name]).all()


def test_steps_depend_on_the_input_as_counted_by_hand():
    increment, listk = draw("increment", 100, False).cells, draw("listk", 100, False).cells
    steps = interpreter.execute(programs.GENERIC["increment"], increment, 100).steps
    assert (steps == 6 * (increment > 0).sum(1) + 3).all()
    assert (interpreter.execute(programs.GENERIC["listk"], listk, 100).steps == 4 * listk[:, 1] + 5).all()


def test_the_interpreter_names_a_missing_line():
    endless = program.from_listing(5, "1", "r0 = INC r0; r0 = INC r0")
    with pytest.raises(ValueError, match="reaches line 2"):
        interpreter.execute(endless, np.zeros((3, 5), int), 10)


# --- Language and listings --------------------------------------------------------------------------------------------

ADDITION = """
r4 = READ r4 r5; r3 = READ r3 r5; r5 = JEZ r3 r0; r3 = DEC r3 r5; r4 = INC r4 r5; r5 = JEZ r2 r1; r5 = WRITE r2 r4
r5 = STOP r5 r5
"""
SORT = """
r5 = READ r8 r9; r8 = INC r8 r9; r4 = READ r8 r9; r9 = JEZ r4 r1; r3 = MIN r5 r4; r3 = SUB r4 r3; r9 = JEZ r3 r2
r9 = JEZ r6 r6; r3 = SUB r5 r4; r9 = JEZ r3 r6; r9 = WRITE r8 r5; r8 = DEC r8 r9; r9 = WRITE r8 r4; r8 = INC r8 r9
r7 = ZERO r9 r9; r9 = JEZ r6 r6; r9 = JEZ r7 r0; r9 = STOP r9 r9; r8 = ZERO r9 r9; r7 = INC r7 r9; r9 = JEZ r6 r6
"""


def test_the_compiler_makes_the_tables_of_the_authors():
    assert programs.GENERIC["addition"] == program.from_listing(15, "6 2 0 1 0 0", ADDITION)
    assert programs.GENERIC["sort"] == program.from_listing(21, "18 16 8 0 0 0 0 1 0 0", SORT)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("var x = 3;\nx = ADD(x, y);", "line 2: y is not declared"),
        ("var left = 3;\n\nx = READ(left);", "line 3: x is not declared; write 'var x"),
        ("var left = 3;\nvar y = READ(lefd);", "line 2: lefd is not declared; did you mean left"),
        ("var x = ADDD(x);", "line 1: unknown function ADDD; did you mean ADD"),
        ("STOP();\nvar x = ADD(x, x, x);", "line 2: ADD has 3 arguments"),
        ("var x = ADD(x, 3);", "line 1: argument '3' of ADD"),
        ("var x = 9;", "line 1: x = 9 is above the largest value, 6"),
        ("var x = 1;\nvar x = 2;", "line 2: x is declared twice"),
        ("# nothing\na: STOP();\n\na: STOP();", "line 4: a is declared twice"),
        ("STOP();\nSTOP()\n", "line 2: ';' is missing"),
        ("STOP();\n\nwhile x;", "line 3: 'while x' is not a statement"),
        ("STOP();" * 8, "8 lines; a machine of 7 cells"),
    ],
)
def test_the_compiler_names_line_and_fault(source, message):
    with pytest.raises(program.ProgramError) as fault:
        language.compile_source(7, source)
    assert message in str(fault.value)


def test_constants_and_labels():
    """A constant emits no line, a second one does nothing, and labels may stand above each other."""
    compiled = language.compile_source(9, "var x = 3; x = 5; a: b:\nZERO(); c: var y = INC(x); JEZ(y, c);")
    assert compiled == program.from_listing(9, "0 1 0 0 3 0", "r5 = ZERO r5 r5; r0 = INC r4 r5; r5 = JEZ r0 r1")


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        ("r0 = STOP; r0 + 1", "line 1: 'r0 \\+ 1' is not of the form"),
        ("r0 = HALT", "line 0: unknown opcode HALT"),
        ("r0 = STOP; r4 = INC r0", "line 1: there is no register r4"),
    ],
)
def test_faults_of_listings(listing, message):
    with pytest.raises(program.ProgramError, match=message):
        program.from_listing(5, "0 0", listing)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["GENERIC", "IDEAL"])
def test_decompiling_returns_the_program(name, kind):
    original = getattr(programs, kind)[name]
    logits = weights.compile_weights(original, 8, np.random.default_rng(0), seeds=3)
    assert [weights.decompile(weight) for weight in logits] == [original] * 3
    header, *lines = str(original).splitlines()
    assert program.from_listing(original.cells, header.removeprefix("registers "), "\n".join(lines)) == original
    assert weights.decompile(logits[0], 0).lines[: len(original.lines)] != ()


def test_weights_have_the_documented_layout():
    logits = weights.compile_weights(programs.GENERIC["access"], 2, np.random.default_rng(0), seeds=2)
    parts = weights.split(logits)
    assert [part.shape for part in parts] == [(2, rows, 10) for rows in (1, 3, 3, 3, 3, 11)]
    assert parts.line[0, 0].tolist() == [2] + [0] * 9
    assert parts.registers[0, :2, 0].tolist() == [2, 2]
    assert not parts.registers[0, 2].any()
    assert parts.opcode[1, :, 3].tolist() == [0] * 9 + [2, 0]
    assert parts.second[1, :, 3].tolist() == [0, 2, 0]  # r2 = WRITE r0 r1
    assert not parts.second[1, :, 0].any()  # flat
    random = parts.output[:, :, 5:]
    assert (random[0] != random[1]).all()
    assert 0.2 < np.abs(random).max() < 10**-0.5


# --- The differentiable machine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_sharp_machine_does_what_the_interpreter_does(name):
    task = tasks.TASKS[name]
    samples = draw(name, 12, task.is_biased)
    logits = weights.compile_weights(programs.GENERIC[name], 50, np.random.default_rng(1), seeds=2)
    trace = machine.run(wg.tensor(logits), *as_tensors(samples, 2), 120)
    cells, steps, _ = interpreter.execute(programs.GENERIC[name], samples.cells, 120)
    expected = np.eye(samples.cells.shape[1])[cells].reshape(trace.memory.shape)
    np.testing.assert_allclose(trace.memory.numpy(), expected, atol=1e-5)
    assert loss.count_states(trace.halting).flatten().tolist() == (steps + 1).tolist()
    assert trace.errors.shape == trace.halting.shape == (2, 6, steps.max() + 1)
    assert trace.errors[..., -1].max().item() < 1e-6


def random_problem():
    """Return float64 logits of two seeds, and integer tensors of memory, target and mask for three samples each.

    The first seed's program halts after 3 steps if cell 0 is 0 and after 5 if not; the second one is cut off.
    """
    rng = np.random.default_rng(0)
    listing = "r0 = READ r1; r1 = JEZ r0 r2; r0 = INC r0; r1 = WRITE r1 r0; r1 = STOP"
    logits = rng.normal(size=(2, 24, 5))
    logits[:1] += weights.compile_weights(program.from_listing(5, "0 0 4", listing), 8, rng)
    cells, targets = rng.integers(1, 5, size=(2, 2, 3, 5))
    cells[0, 1, 0] = 0
    mask = rng.integers(2, size=(2, 3, 5))
    return logits, *map(wg.tensor, (cells, targets, mask))


ALL_TERMS = loss.LossWeights(1.5, 0.7, 0.2, 3.0)


def total_loss(logits, arrays, exact_stop):
    return loss.compute_loss(machine.run(logits, *arrays, 7, exact_stop), ALL_TERMS)


def test_the_true_gradient_equals_finite_differences():
    values, *arrays = random_problem()
    logits = wg.tensor(values, requires_grad=True)
    total_loss(logits, arrays, exact_stop=True).sum().backward()
    gradient, step = logits.grad.numpy(), 1e-6
    rng = np.random.default_rng(1)
    for _ in range(12):
        direction = rng.normal(size=values.shape)
        ends = [total_loss(wg.tensor(values + s * direction), arrays, True).sum().item() for s in (step, -step)]
        assert (gradient * direction).sum() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-6)


def test_the_gradient_of_the_stop_probability():
    """Compare with dp_t/ds_k = 1 - p_(k-1), where s_k is the probability of STOP in step k; by the true one, later
    steps multiply that by 1 - s. The program has one register and runs from line to line.
    """
    size, registers = 5, 1
    values = np.zeros((1, 4 * registers + 12, size))
    values[0, 0, 0] = values[0, 1, 1] = 60
    values[0, -11:, :] = -60
    stop = np.array([0.3, 0.2, 0.4])
    values[0, -10, :] = 0  # ZERO, the alternative of STOP
    values[0, -11, :3] = np.log(stop / (1 - stop))
    arrays = [wg.tensor(np.zeros((1, 1, size), int))] * 3
    for exact, later in ((False, [1, 1, 1]), (True, [0.8 * 0.6, 0.6, 1])):
        logits = wg.tensor(values, requires_grad=True)
        halting = machine.run(logits, *arrays, 3, exact).halting
        np.testing.assert_allclose(halting[0, 0].tolist(), [0, *(1 - np.cumprod(1 - stop))])
        halting[0, 0, -1].backward()
        before = np.concatenate([[1], np.cumprod(1 - stop)[:-1]])
        expected = before * later * stop * (1 - stop)  # the last factors are the derivative of the softmax
        np.testing.assert_allclose(logits.grad[0, -11, :3].tolist(), expected)


def reference_loss(values, cells, targets, mask, max_steps, terms):
    """Run one program on one sample in NumPy, step by step as the paper says, and return its loss."""
    size, parts = len(cells), weights.probabilities(values)
    raw = weights.split(values)
    memory, goal = np.eye(size)[cells], np.eye(size)[targets]
    registers, line, p = parts.registers, parts.line[0], 0.0

    def error():
        return (mask[:, None] * (memory - goal) ** 2).sum()

    states = [(p, error())]
    while p <= 0.9 and len(states) <= max_steps:
        a, b, o, c = (
            np.exp(w @ line) / np.exp(w @ line).sum() for w in (raw.first, raw.second, raw.output, raw.opcode)
        )
        x, y = a @ registers, b @ registers
        outs = np.zeros((11, size))
        for u in range(size):
            for v in range(size):
                results = [0, 0, u + 1, u + v, u - v, u - 1, min(u, v), max(u, v), None, 0, 0]
                for code, result in enumerate(results):
                    if result is not None:
                        outs[code, result % size] += x[u] * y[v]
        outs[8] = x @ memory
        memory = (1 - c[9]) * memory + c[9] * ((1 - x)[:, None] * memory + np.outer(x, y))
        registers = (1 - o)[:, None] * registers + np.outer(o, c @ outs)
        jump = c[10] * x[0]
        line = jump * y + (1 - jump) * np.roll(line, 1)
        p = p + c[0] * (1 - p)
        states.append((p, error()))
    total = terms.correctness * states[-1][1] + terms.efficiency * sum(1 - p for p, _ in states)
    total += terms.confidence * sum((p - q) * e for (q, _), (p, e) in pairwise(states))
    return total + (terms.halting * (1 - p) if p < 0.9 else 0), len(states)


def test_the_loss_equals_an_independent_computation():
    values, *arrays = random_problem()
    trace = machine.run(wg.tensor(values), *arrays, 7)
    losses = loss.compute_loss(trace, ALL_TERMS).tolist()
    counts = loss.count_states(trace.halting).numpy()
    for seed in range(2):
        samples = zip(*(array.numpy()[seed] for array in arrays), strict=True)
        expected = [reference_loss(values[seed], *sample, 7, ALL_TERMS) for sample in samples]
        assert losses[seed] == pytest.approx(sum(value for value, _ in expected), rel=1e-9)
        assert counts[seed].tolist() == [count for _, count in expected]
    assert counts.tolist() == [[6, 4, 6], [8, 8, 8]]


def test_seeds_do_not_influence_each_other():
    values, *arrays = random_problem()
    gradients = []
    for seeds in (slice(0, 2), slice(1, 2)):
        logits = wg.tensor(values[seeds], requires_grad=True)
        total_loss(logits, [array[seeds] for array in arrays], exact_stop=False).sum().backward()
        gradients.append(logits.grad.numpy()[-1])
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-9, atol=1e-12)


# --- Training ---------------------------------------------------------------------------------------------------------


def test_training_lowers_the_loss(capsys):
    task = tasks.TASKS["access"]
    training = train.train(task, seeds=8, updates=60, snapshots=2)
    assert training.initial.shape == training.final.shape == (8, 24, 10)
    assert len(training.losses) == 20
    assert training.losses[-1][1] < 0.8 * training.losses[0][1]
    assert (training.generic.right, training.generic.states) == (1, 6)
    assert (training.ideal.right, training.ideal.states) == (1, 4)
    assert training.summary()["soft interval"][1] < 1
    assert [len(verdicts) for verdicts in training.snapshots] == [8, 8]
    assert training.snapshots[-1] == training.soft


def test_success_is_being_right_and_faster():
    training = train.train(replace(tasks.TASKS["access"], lr=0), seeds=2, updates=1)
    assert training.successes(training.soft) == training.successes(training.hard) == []
    ideal = weights.compile_weights(programs.IDEAL["access"], 9, np.random.default_rng(0), seeds=2)
    (verdict, _) = train.judge_weights(wg.tensor(ideal), draw("access", 50), 10)
    assert verdict == train.Verdict(1.0, 4.0)
    assert replace(training, soft=[verdict, train.Verdict(0.99, 4.0)]).successes([verdict]) == [0]
    assert not train.Verdict(1.0, 6.0).is_success(6)


def test_best_weights_are_kept():
    """With a learning rate that destroys the program, the compiled one is kept; a better one replaces it."""
    task = replace(tasks.TASKS["access"], selections=2)
    sharp = replace(task, sharpness=20, lr=1e3, batch_size=2)
    training = train.train(sharp, seeds=2, updates=5)
    assert [verdict.right for verdict in training.soft] == [1, 1]
    np.testing.assert_array_equal(training.final, training.initial)
    ideal, generic = (
        wg.tensor(weights.compile_weights(kind["access"], 9, np.random.default_rng(0), seeds=2))
        for kind in (programs.IDEAL, programs.GENERIC)
    )
    best = train.BestWeights(task, 0, generic, machine.run)
    mixed = wg.stack([ideal[0], wg.zeros_like(ideal[0])])
    best.update(mixed)
    assert [verdict.states for verdict in best.verdicts] == [4, 6]
    np.testing.assert_array_equal(best.logits.numpy(), np.stack([ideal[0].numpy(), generic[1].numpy()]))


def test_selection_leaves_the_training_as_it_is():
    """The selection has random numbers of its own: data and weights of the training stay the same."""
    task = replace(tasks.TASKS["access"], batch_size=2)
    trainings = [train.train(replace(task, selections=count), seeds=2, updates=4) for count in (0, 2)]
    assert trainings[0].losses == trainings[1].losses
    np.testing.assert_array_equal(trainings[0].initial, trainings[1].initial)


def test_efficiency_counts_in_the_second_half():
    """A program that never changes has the early loss first, and then more by the late weight times the states."""
    task = replace(tasks.TASKS["access"], lr=0, sharpness=50, late_efficiency=2)
    losses = [value for _, value, _ in train.train(task, seeds=1, updates=4).losses]
    np.testing.assert_allclose(losses, [0, 0, 10, 10], atol=1e-3)  # states 0 .. 4 still run


def test_wilson_intervals():
    """Compare with the values of Wilson's formula that Newcombe (1998), table I, prints."""
    np.testing.assert_allclose(train.wilson_interval(81, 263), [0.2553, 0.3662], atol=1e-4)
    np.testing.assert_allclose(train.wilson_interval(0, 20), [0, 0.1611], atol=1e-4)


@pytest.mark.parametrize("module", ["program", "language"])
def test_examples_of_docstrings(module):
    import doctest

    source = sys.modules[f"anc.{module}"]
    assert doctest.testmod(source).attempted
    assert not doctest.testmod(source).failed


def test_command(tmp_path):
    command = [sys.executable, "-W", "error", "-m", "anc", "access", "--seeds", "2", "--updates", "20"]
    options = ["--output", str(tmp_path / "result.json")]
    process = subprocess.run([*command, *options], cwd=EXAMPLES, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "access: 2 seeds, 20 updates" in process.stdout
    assert "generic program" in process.stdout
    assert (tmp_path / "result.json").stat().st_size > 500
