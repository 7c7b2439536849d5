"""Draw a controller before and after training: what each line of a program selects, as probabilities."""

from .program import OPCODES
from .weights import probabilities


def draw_controllers(initial, final, title, path):
    """Write a picture of two machines' weights `(4 R + 12, M)`, one in each row. Needs matplotlib."""
    from matplotlib.figure import Figure

    rows = [probabilities(logits) for logits in (initial, final)]
    registers, size = rows[0].registers.shape
    figure = Figure(figsize=(16, 2 * (1.2 + max(registers, len(OPCODES)) * 0.22)), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 6, width_ratios=[1, 4, 4, 4, 4, 4])
    names = ("start", "registers at the start", "first argument", "second argument", "output", "opcode")
    for row, (parts, state) in enumerate(zip(rows, ("compiled", "trained"), strict=True)):
        parts = parts._replace(line=parts.line.T)
        for axis, name, part in zip(axes[row], names, parts, strict=True):
            image = axis.imshow(part, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
            axis.set_title(f"{name}, {state}" if name == names[0] else name, fontsize=9)
            axis.set_xticks([] if name == "start" else range(0, size, 1 if size < 12 else 4))
            axis.set_xlabel("" if name == "start" else "value" if name == names[1] else "line", fontsize=8)
            if name == "opcode":
                axis.set_yticks(range(len(OPCODES)), OPCODES)
            elif name == "start":
                axis.set_yticks(range(0, size, 1 if size < 12 else 4))
            else:
                axis.set_yticks(range(registers), [f"r{register}" for register in range(registers)])
            axis.tick_params(labelsize=7)
    figure.colorbar(image, ax=axes, shrink=0.6, label="probability")
    figure.savefig(path, dpi=110)
