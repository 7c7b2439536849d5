"""Train a task's compiled program on its data, many seeds at once, and judge what came of each seed.

Seeds lose what they have learnt. A task with `selections` therefore keeps each seed's best weights, by samples that
are drawn for this alone: neither the training nor the final judgement sees them.
"""

import time
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

import weftgrad as wg
from weftgrad import optim

from . import machine
from .interpreter import execute
from .loss import compute_loss, count_states
from .programs import GENERIC, IDEAL
from .tasks import Samples
from .weights import compile_weights, decompile

VALIDATION_SIZE = 100
SELECTION_SIZE = 100


@dataclass(frozen=True)
class Verdict:
    """What a program does on the validation samples: the share of right samples, and the mean number of states."""

    right: float
    states: float

    def is_success(self, generic_states):
        """Return True if all samples are right, and faster than by the generic program."""
        return self.right == 1 and self.states < generic_states

    def is_better(self, other):
        """Return True if more samples are right than by the other verdict, or as many with fewer states."""
        return (self.right, -self.states) > (other.right, -other.states)


@dataclass(frozen=True)
class Training:
    """A task's training: weights of all seeds before and after, and the verdicts."""

    task: str
    seeds: int
    updates: int
    seconds: float
    losses: list[tuple[int, float, float]]  # update, median and smallest mean loss of a seed since the last row
    initial: np.ndarray  # logits (S, 4 R + 12, M)
    final: np.ndarray  # the last weights, or the best ones of a task with selections
    soft: list[Verdict]  # of each seed: the mixture of programs, and the most likely program run on integers
    hard: list[Verdict]
    snapshots: list[list[Verdict]]  # soft verdicts on all seeds at some updates
    generic: Verdict
    ideal: Verdict

    def successes(self, verdicts):
        """Return the numbers of the seeds whose verdict is a success."""
        return [seed for seed, verdict in enumerate(verdicts) if verdict.is_success(self.generic.states)]

    def best_seed(self):
        """Return the seed of the fastest right program: hard if there is one, else soft, else any."""
        for verdicts in (self.hard, self.soft):
            if seeds := self.successes(verdicts):
                return min(seeds, key=lambda seed: (verdicts[seed].states, self.soft[seed].states))
        return max(range(self.seeds), key=lambda seed: self.soft[seed].right)

    def summary(self):
        """Return what a table shows, as a dictionary of plain values."""
        soft, hard = self.successes(self.soft), self.successes(self.hard)
        snapshots = {seed for verdicts in [*self.snapshots, self.soft] for seed in self.successes(verdicts)}
        states = [self.soft[seed].states for seed in soft]
        return {
            "task": self.task, "seeds": self.seeds, "updates": self.updates, "seconds": round(self.seconds, 1),
            "soft successes": len(soft), "soft interval": wilson_interval(len(soft), self.seeds),
            "hard successes": len(hard), "hard interval": wilson_interval(len(hard), self.seeds),
            "successes at some snapshot": len(snapshots),
            "right soft": sum(v.right == 1 for v in self.soft), "right hard": sum(v.right == 1 for v in self.hard),
            "generic states": self.generic.states, "ideal states": self.ideal.states,
            "learnt states, median": median(states) if states else None,
            "learnt states, best": min(states, default=None),
            "hard states, best": min((self.hard[seed].states for seed in hard), default=None),
        }  # fmt: skip


def wilson_interval(successes, trials, z=1.96):
    """Return the 95 % confidence interval of a success rate (Wilson 1927)."""
    rate, width = successes / trials, z * z / trials
    center = (rate + width / 2) / (1 + width)
    half = z * np.sqrt(rate * (1 - rate) / trials + width / (4 * trials)) / (1 + width)
    return max(0.0, float(center - half)), min(1.0, float(center + half))


def judge_program(program, samples, max_steps):
    """Return the `Verdict` on a program that runs on integers."""
    try:
        cells, steps, _ = execute(program, samples.cells, max_steps)
    except ValueError:
        return Verdict(0.0, float("nan"))
    right = ((cells == samples.targets) | (samples.mask == 0)).all(-1)
    return Verdict(float(right.mean()), float(steps.mean()) + 1)


def judge_weights(logits, samples, max_steps, run=machine.run):
    """Return the `Verdict` on each seed's weights `(S, 4 R + 12, M)`, run softly; a cell's most likely value counts."""
    verdicts = []
    with wg.no_grad():
        for seed in range(len(logits)):
            batch = [wg.tensor(part[None], device=logits.device) for part in samples]
            trace = run(logits[seed : seed + 1], *batch, max_steps)
            right = (trace.memory.argmax(-1).cpu().numpy()[0] == samples.targets) | (samples.mask == 0)
            states = count_states(trace.halting).float().mean().item()
            verdicts.append(Verdict(float(right.all(-1).mean()), states))
    return verdicts


def create_optimizer(task, logits):
    """Return the task's optimizer. Both work elementwise, so that each seed trains as if it were alone."""
    if task.optimizer == "SGD":
        return optim.SGD([logits], lr=task.lr)
    return optim.Adam([logits], lr=task.lr)


def draw_batch(task, rng, seeds, device):
    """Return samples as tensors `(S, B, M)`."""
    samples = task.draw(rng, seeds * task.batch_size, task.is_biased)
    return Samples(*(wg.tensor(part.reshape(seeds, task.batch_size, -1), device=device) for part in samples))


class BestWeights:
    """Each seed's best weights so far, by soft verdicts on `SELECTION_SIZE` samples of the training's distribution."""

    def __init__(self, task, random_seed, logits, run):
        rng = np.random.default_rng([random_seed, 1])  # other samples than those of training and validation
        self.samples = task.draw(rng, SELECTION_SIZE, task.is_biased)
        self.max_steps, self.run = task.max_steps, run
        self.logits = logits.detach().clone()
        self.verdicts = judge_weights(self.logits, self.samples, self.max_steps, run)

    def update(self, logits):
        """Replace the weights of the seeds that are better now."""
        logits = logits.detach()
        for seed, verdict in enumerate(judge_weights(logits, self.samples, self.max_steps, self.run)):
            if verdict.is_better(self.verdicts[seed]):
                self.verdicts[seed] = verdict
                self.logits[seed] = logits[seed]


def train(
    task, seeds, updates=None, exact_stop=False, random_seed=0, snapshots=0, device="cpu", report=None, run=machine.run
):  # fmt: skip
    """Compile the task's generic program and train it.

    Args:
        task: A `Task`.
        seeds: Number of trainings, all at once.
        updates: Number of updates; None for the task's own.
        exact_stop: Train with the true gradient of the stop probability, see `machine.step`.
        random_seed: Seed of the random numbers: data, and weights of unused lines.
        snapshots: How often to judge all seeds during the training; what a seed has learnt it can lose again.
        device: Device that trains.
        run: Function that runs the machine, `machine.run` or `kernel.run`.
        report: Function that is called some 20 times with the number of updates, the median and the least loss.

    Returns:
        The `Training`.
    """
    rng = np.random.default_rng(random_seed)
    generic = GENERIC[task.name]
    validation = task.draw(rng, VALIDATION_SIZE, task.is_biased)
    initial = compile_weights(generic, task.sharpness, rng, seeds)
    logits = wg.tensor(initial, device=device).requires_grad_()
    optimizer = create_optimizer(task, logits)
    updates = task.updates if updates is None else updates
    interval = max(1, updates // 20)
    losses, recent, judged = [], wg.zeros(seeds, device=device), []
    early = late = task.loss
    if task.late_efficiency is not None:
        late = replace(task.loss, efficiency=task.late_efficiency)
    best = BestWeights(task, random_seed, logits, run) if task.selections else None
    begin = time.perf_counter()
    for update in range(1, updates + 1):
        trace = run(logits, *draw_batch(task, rng, seeds, device), task.max_steps, exact_stop)
        loss = compute_loss(trace, early if 2 * update <= updates else late)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
        recent += loss.detach() / interval
        if update % interval == 0:
            losses.append((update, recent.median().item(), recent.min().item()))
            recent.zero_()
            if report:
                report(*losses[-1])
        if snapshots and update % max(1, updates // snapshots) == 0:
            judged.append(judge_weights(logits, validation, task.max_steps, run))
        if best and (update % max(1, updates // task.selections) == 0 or update == updates):
            best.update(logits)
    seconds = time.perf_counter() - begin
    final = best.logits if best else logits.detach()
    hard = [decompile(weights, threshold=0) for weights in final.cpu().numpy()]
    return Training(
        task.name, seeds, updates, seconds, losses, initial, final.cpu().numpy(),
        judge_weights(final, validation, task.max_steps, run),
        [judge_program(program, validation, task.max_steps) for program in hard], judged,
        judge_program(generic, validation, 1000), judge_program(IDEAL[task.name], validation, 1000),
    )  # fmt: skip
