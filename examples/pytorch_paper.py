"""Run the two listings of the PyTorch paper: a layer of your own in a classifier, and an adversarial network.

    python examples/pytorch_paper.py

The listings are those of Paszke et al. 2019, "PyTorch: An Imperative Style, High-Performance Deep Learning Library",
section 4.1, with weftgrad's imports and with one parenthesis that is missing in print. The other functions supply what
the paper leaves open: data, networks, losses and noise.
"""

import argparse
import warnings

import weftgrad as torch
from weftgrad import nn, optim
from weftgrad.demo import digits
from weftgrad.nn import Module

torch.manual_seed(0)


# Listing 1 of the paper: a layer of your own, and a network that uses it.
class LinearLayer(Module):
    def __init__(self, in_sz, out_sz):
        super().__init__()
        t1 = torch.randn(in_sz, out_sz)
        self.w = nn.Parameter(t1)
        t2 = torch.randn(out_sz)
        self.b = nn.Parameter(t2)

    def forward(self, activations):
        t = torch.mm(activations, self.w)
        return t + self.b


class FullBasicModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 128, 3)
        self.fc = LinearLayer(128, 10)

    def forward(self, x):
        t1 = self.conv(x)
        t2 = nn.functional.relu(t1)
        t3 = self.fc(t1)
        return nn.functional.softmax(t3)


def train_classifier(images, labels, epochs, batch_size=64):
    """Return a `FullBasicModel` that classifies images `(N, 1, 8, 8)`."""
    model = FullBasicModel()
    # The listing leaves out a step between convolution and matrix product: here, the maximum of each feature map.
    model.conv.register_forward_hook(lambda conv, inputs, maps: maps.amax((2, 3)))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(batch_size):
            optimizer.zero_grad()
            log_probabilities = model(images[batch]).clamp(min=1e-30).log()
            nn.functional.nll_loss(log_probabilities, labels[batch]).backward()
            optimizer.step()
    return model


def create_discriminator():
    """Return a network that scores images `(N, 64)`: above 0 for real ones."""
    return nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(128, 1))


def create_generator():
    """Return a network that draws images `(N, 64)` in [0, 1] from noise `(N, 16)`."""
    return nn.Sequential(nn.Linear(16, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())


def get_noise():
    return torch.randn(64, 16)


loss = nn.BCEWithLogitsLoss()
real_label, fake_label = torch.ones(64, 1), torch.zeros(64, 1)

# Listing 2 of the paper: two networks, two optimizers, and `detach` between them.
discriminator = create_discriminator()
generator = create_generator()
optimD = optim.Adam(discriminator.parameters())
optimG = optim.Adam(generator.parameters())


def step(real_sample):
    # (1) Update Discriminator
    errD_real = loss(discriminator(real_sample), real_label)
    errD_real.backward()
    fake = generator(get_noise())
    errD_fake = loss(discriminator(fake.detach()), fake_label)
    errD_fake.backward()
    optimD.step()
    # (2) Update Generator
    errG = loss(discriminator(fake), real_label)
    errG.backward()
    optimG.step()


def distance_to_real(real_images):
    with torch.no_grad():
        return torch.cdist(generator(get_noise()), real_images).amin(1).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8, help="epochs of the classifier")
    parser.add_argument("--steps", type=int, default=1500, help="steps of the adversarial networks")
    options = parser.parse_args()
    # Listing 1 leaves out the dimension of softmax, which PyTorch has deprecated since: both libraries warn.
    warnings.filterwarnings("ignore", "softmax: Implicit dimension choice")

    images, labels, test_images, test_labels = (torch.tensor(array) for array in digits.load())
    model = train_classifier(images, labels, options.epochs)
    accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"listing 1: test accuracy {accuracy:.1%}")

    images = images.flatten(1)
    before = distance_to_real(images)
    for _ in range(options.steps):
        optimD.zero_grad()  # the listing leaves out that gradients are cleared
        optimG.zero_grad()
        step(images[torch.randint(len(images), (64,))])
    print(f"listing 2: distance to the nearest real digit {before:.2f} before and {distance_to_real(images):.2f} after")


if __name__ == "__main__":
    main()
