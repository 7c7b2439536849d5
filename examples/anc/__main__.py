"""Train the paper's tasks and print what came of them.

python -m examples.anc access --seeds 64
python -m examples.anc access swap --seeds 256 --improved
python -m examples.anc access swap --seeds 64 --output results.json --picture controllers.png
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from . import kernel, machine
from .programs import GENERIC
from .tasks import IMPROVED, TASKS
from .train import train
from .weights import decompile


def print_beside(titles, texts):
    """Print listings beside each other."""
    columns = [[title, *text.splitlines()] for title, text in zip(titles, texts, strict=True)]
    width = max(map(len, columns[0])) + 4
    for number in range(max(map(len, columns))):
        left, right = (column[number] if number < len(column) else "" for column in columns)
        print(f"{left:{width}}{right}".rstrip())


def print_training(training):
    """Print the success rates, the steps, and the best seed's program beside the generic one."""
    row = training.summary()

    def states(name):
        return "-" if row[name] is None else f"{row[name]:.1f}"

    print(f"{row['task']}: {row['seeds']} seeds, {row['updates']} updates in {row['seconds']:.0f} s")
    for kind in ("soft", "hard"):
        low, high = row[f"{kind} interval"]
        print(
            f"  {kind} programs: {row[f'right {kind}']} right, {row[f'{kind} successes']} right and faster:"
            f" {100 * row[f'{kind} successes'] / row['seeds']:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
        )
    if training.snapshots:
        print(f"  {row['successes at some snapshot']} right and faster at one of {len(training.snapshots)} snapshots")
    print(
        f"  states (steps + 1): generic {states('generic states')}, learnt median {states('learnt states, median')}"
        f" and best {states('learnt states, best')} (hard {states('hard states, best')}),"
        f" ideal {states('ideal states')}"
    )
    best = training.best_seed()
    print_beside(
        ("generic program", f"program of seed {best}"),
        (str(GENERIC[training.task]), str(decompile(training.final[best]))),
    )


def as_json(training):
    """Return a training's summary, losses and verdicts as JSON's types; its weights are left out."""
    verdicts = {kind: [asdict(verdict) for verdict in getattr(training, kind)] for kind in ("soft", "hard")}
    best = training.best_seed()
    listing = str(decompile(training.final[best])).splitlines()
    return training.summary() | {"losses": training.losses, "best seed": best, "best program": listing} | verdicts


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m examples.anc", description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=16, help="trainings of each task, all at once")
    parser.add_argument("--updates", type=int, help="number of updates (default: the paper's)")
    parser.add_argument("--lr", type=float, help="learning rate (default: the task's)")
    parser.add_argument(
        "--improved", action="store_true", help="use the settings IMPROVED in tasks.py, not the paper's"
    )
    parser.add_argument("--exact-stop", action="store_true", help="use the true gradient of the stop probability")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers")
    parser.add_argument("--snapshots", type=int, default=0, help="how often to judge all seeds during the training")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plain", action="store_true", help="run the machine by tensor code, not by the kernel")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="write the results as JSON")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="draw the best seed's controller (matplotlib)")
    options = parser.parse_args(arguments)

    results = []
    for name in options.tasks:
        task = (IMPROVED if options.improved else TASKS)[name]
        if options.lr is not None:
            task = replace(task, lr=options.lr)

        def report(update, median, least, name=name):
            print(f"{name} update {update:5d}  loss: median {median:8.3f}  best {least:8.3f}", flush=True)

        training = train(
            task,
            options.seeds,
            updates=options.updates,
            exact_stop=options.exact_stop,
            random_seed=options.seed,
            snapshots=options.snapshots,
            device=options.device,
            report=report,
            run=machine.run if options.plain else kernel.run,
        )
        print_training(training)
        settings = {"lr": task.lr, "exact stop": options.exact_stop, "improved": options.improved}
        results.append(as_json(training) | settings)
        if options.output:
            options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        if options.picture:
            from .picture import draw_controllers  # matplotlib is optional

            best = training.best_seed()
            stem = options.picture.stem + (f"-{name}" if len(options.tasks) > 1 else "")
            draw_controllers(training.initial[best], training.final[best], name, options.picture.with_stem(stem))


if __name__ == "__main__":
    main()
