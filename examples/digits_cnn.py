"""Train a small convolutional network on handwritten digits, and print which digits it confuses.

    python examples/digits_cnn.py
    python examples/digits_cnn.py --epochs 3 --device opencl:0

The 1,797 digits come with weftgrad. `train.py` is the longer version: it saves, resumes and uses half types.
"""

import argparse

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.demo import digits
from weftgrad.nn import functional as F
from weftgrad.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A classifier of grey images `(N, 1, 8, 8)` into ten classes `(N, 10)`."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.3)
        self.classes = nn.Linear(32 * 4 * 4, 10)

    def forward(self, images):
        features = F.relu(self.conv1(images))
        features = self.pool(F.relu(self.conv2(features)))
        return self.classes(self.dropout(features.flatten(1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    wg.manual_seed(0)
    train_images, train_labels, test_images, test_labels = (wg.tensor(a, device=options.device) for a in digits.load())
    loader = DataLoader(TensorDataset(train_images, train_labels), batch_size=64, shuffle=True)
    net = Net().to(options.device)
    optimizer = optim.Adam(net.parameters(), lr=3e-3)

    for epoch in range(options.epochs):
        net.train()
        total = 0.0
        for images, labels in loader:
            loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        net.eval()
        with wg.no_grad():
            guesses = net(test_images).argmax(1)
        accuracy = (guesses == test_labels).float().mean().item()
        print(f"epoch {epoch + 1:2d}  loss {total / len(train_labels):.4f}  test accuracy {100 * accuracy:.2f} %")

    wrong = guesses != test_labels
    pairs = sorted(zip(test_labels[wrong].tolist(), guesses[wrong].tolist(), strict=True))
    print("mistakes:", ", ".join(f"{label} read as {guess}" for label, guess in pairs) or "none")


if __name__ == "__main__":
    main()
