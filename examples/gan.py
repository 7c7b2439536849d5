"""Train a generative adversarial network on handwritten digits, and print digits that it draws.

    python examples/gan.py
    python examples/gan.py --steps 6000

The training step is the one that the PyTorch paper lists (Paszke et al. 2019, section 4.1): two networks, two
optimizers, and `detach` where the discriminator's gradient must not reach the generator.
"""

import argparse

import weftgrad as torch
from weftgrad import nn, optim
from weftgrad.demo import digits

NOISE = 16
BATCH_SIZE = 64


def create_discriminator():
    """Return a network that scores images `(N, 64)`: above 0 for real ones."""
    return nn.Sequential(
        nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(128, 128), nn.LeakyReLU(0.2),
        nn.Dropout(0.3), nn.Linear(128, 1),
    )  # fmt: skip


def create_generator():
    """Return a network that draws images `(N, 64)` in [0, 1] from noise `(N, NOISE)`."""
    return nn.Sequential(
        nn.Linear(NOISE, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(),
        nn.Linear(128, 64), nn.Sigmoid(),
    )  # fmt: skip


class Gan:
    """Both networks and their optimizers."""

    def __init__(self):
        self.discriminator, self.generator = create_discriminator(), create_generator()
        self.optimizer_d = optim.Adam(self.discriminator.parameters(), lr=5e-4, betas=(0.5, 0.999))
        self.optimizer_g = optim.Adam(self.generator.parameters(), lr=5e-4, betas=(0.5, 0.999))
        self.loss = nn.BCEWithLogitsLoss()
        self.real_label, self.fake_label = torch.full((BATCH_SIZE, 1), 0.9), torch.zeros(BATCH_SIZE, 1)

    def step(self, real_images):
        """Update both networks, and return the losses of the discriminator and the generator."""
        self.optimizer_d.zero_grad()
        error_real = self.loss(self.discriminator(real_images), self.real_label)
        error_real.backward()
        fake_images = self.generator(torch.randn(BATCH_SIZE, NOISE))
        error_fake = self.loss(self.discriminator(fake_images.detach()), self.fake_label)
        error_fake.backward()
        self.optimizer_d.step()

        self.optimizer_g.zero_grad()
        error_generator = self.loss(self.discriminator(fake_images), self.real_label)
        error_generator.backward()
        self.optimizer_g.step()
        return (error_real + error_fake).detach(), error_generator.detach()


def print_images(images):
    """Print images `(N, 8, 8)` in [0, 1] beside each other."""
    for row in range(8):
        shades = (images[:, row] * 9.99).long().tolist()
        print("   ".join("".join(2 * " .:-=+*#%@"[level] for level in image) for image in shades))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    options = parser.parse_args()

    torch.manual_seed(0)
    real_images = torch.tensor(digits.load()[0]).flatten(1)
    gan = Gan()
    for step in range(1, options.steps + 1):
        batch = real_images[torch.randint(len(real_images), (BATCH_SIZE,))]
        error_discriminator, error_generator = gan.step(batch)
        if step % 500 == 0 or step == options.steps:
            print(f"step {step:5d}  discriminator {error_discriminator.item():.3f}  "
                  f"generator {error_generator.item():.3f}")  # fmt: skip

    gan.generator.eval()
    with torch.no_grad():
        drawn = gan.generator(torch.randn(200, NOISE))
    # For scale: images of real digits that were left out of training have 1.06, images of uniform noise 3.6.
    distance = torch.cdist(drawn, real_images).amin(1).mean().item()
    print(f"mean distance of a drawn digit to the nearest real one: {distance:.2f}")
    print_images(drawn[:5].view(-1, 8, 8))


if __name__ == "__main__":
    main()
