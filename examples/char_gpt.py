"""Train a character-level GPT on Python's own documentation strings, and let it write.

    python examples/char_gpt.py
    python examples/char_gpt.py --steps 1000 --prompt "Return the "

A decoder-only transformer with pre-norm blocks and causal attention (Radford et al. 2019), small enough for two cores.
The text is that of docstrings in the standard library of the running Python.
"""

import argparse
import ast
import math
import sysconfig
from pathlib import Path

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.nn import functional as F

MODULES = ("argparse", "collections/__init__", "datetime", "difflib", "fractions", "random", "statistics", "textwrap")


def read_docstrings():
    """Return the docstrings of some modules of the standard library, as one ASCII text."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = []
    for name in MODULES:
        file = Path(sysconfig.get_path("stdlib"), f"{name}.py")
        if file.is_file():
            nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            texts += [ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)]
    return "\n\n".join(filter(None, texts)).encode("ascii", "ignore").decode()


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each added to its input `(N, T, width)`."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (N, heads, T, width / heads)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attention.transpose(1, 2).reshape(n, t, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Map characters `(N, T)` to scores of the next ones `(N, T, vocabulary)`."""

    def __init__(self, vocabulary, context, width=128, heads=4, layers=2):
        super().__init__()
        self.context = context
        self.characters, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        for embedding in (self.characters, self.positions):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, codes):
        positions = wg.arange(codes.shape[1], device=codes.device)
        return self.scores(self.norm(self.blocks(self.characters(codes) + self.positions(positions))))

    @wg.no_grad()
    def write(self, codes, count, temperature=0.7):
        """Append `count` sampled characters to `codes`, of shape `(1, T)`."""
        for _ in range(count):
            scores = self(codes[:, -self.context :])[:, -1] / temperature
            codes = wg.cat([codes, wg.multinomial(F.softmax(scores, dim=-1), 1)], dim=1)
        return codes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--context", type=int, default=64, help="characters that the model sees (default: 64)")
    parser.add_argument("--length", type=int, default=300, help="characters to write (default: 300)")
    parser.add_argument("--prompt", default="Return ")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    wg.manual_seed(0)
    text = read_docstrings()
    alphabet = sorted(set(text) | set(options.prompt))
    code_of = {character: code for code, character in enumerate(alphabet)}
    data = wg.tensor([code_of[c] for c in text], device=options.device)
    uniform_loss = math.log(len(alphabet))
    print(f"{len(text):,} characters, {len(alphabet)} different; a uniform guess has loss {uniform_loss:.2f}")

    model = GPT(len(alphabet), options.context).to(options.device)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=options.steps, cycle_momentum=False)
    window = wg.arange(options.context + 1, device=options.device)
    for step in range(1, options.steps + 1):
        starts = wg.randint(len(text) - options.context, (24, 1), device=options.device)
        batch = data[starts + window]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == options.steps:
            print(f"step {step:4d}  loss {loss.item():.3f}")

    prompt = wg.tensor([[code_of[c] for c in options.prompt]], device=options.device)
    print("".join(alphabet[code] for code in model.eval().write(prompt, options.length)[0].tolist()))


if __name__ == "__main__":
    main()
