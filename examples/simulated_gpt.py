"""GPT-2 of the smallest size, for `weftgrad simulate`: one step here, its scaling on 10,000 GPUs.

    weftgrad simulate examples/simulated_gpt.py --machine dgx-a100 --step-time 0.027 --plot gpt.png

`--step-time` is what a step takes on one device of the machine. The step here is of one sequence of 64 tokens, and
only the shares of its parts count.
"""

import argparse
import runpy
from pathlib import Path

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.distributed.simulate import DGX_A100, Plan, predict_scaling, record_timeline

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 50_257, 64, 768, 12, 12  # Radford et al. 2019, but for the context


def build_step(vocabulary=VOCABULARY, context=CONTEXT, width=WIDTH, heads=HEADS, layers=LAYERS):
    """Return a function that trains one step, and the model."""
    gpt = runpy.run_path(str(Path(__file__).with_name("char_gpt.py")))["GPT"]
    model = gpt(vocabulary, context, width, heads, layers)
    optimizer = optim.AdamW(model.parameters(), lr=6e-4)
    codes = wg.randint(vocabulary, (1, context + 1))

    def step():
        optimizer.zero_grad()
        scores = model(codes[:, :-1])
        nn.functional.cross_entropy(scores.flatten(0, 1), codes[:, 1:].flatten()).backward()
        optimizer.step()

    return step, model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    options = parser.parse_args()
    step, model = build_step(options.vocabulary, width=options.width, layers=options.layers)
    timeline = record_timeline(step, model, name="GPT-2", warmup=1, repeats=1).with_step_seconds(0.027)
    for plan in (Plan(), Plan("zero3"), Plan(tensor=8)):
        for prediction in predict_scaling(timeline, DGX_A100, plan, [8, 128, 1024, 8192]):
            print(
                f"{plan} on {prediction.devices} devices: {prediction.step_seconds * 1e3:.2f} ms, "
                f"efficiency {prediction.efficiency:.1%}, {prediction.memory_bytes / 1e9:.3f} GB of memory"
            )


if __name__ == "__main__":
    main()
