"""AlexNet in its one-tower form: five convolutions and three linear layers.

Paper: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014), which merges the two
towers of A. Krizhevsky, I. Sutskever, G. Hinton, "ImageNet classification with deep convolutional neural networks"
(NIPS 2012) and drops the response normalization. Weights are initialized as in K. He et al., "Delving deep into
rectifiers" (2015), with which networks of any width learn from the first steps. Parameters have torchvision's names.
Read `vgg` next: the same plan, deeper, with 3x3 filters only.

    >>> import weftgrad as wg
    >>> small_alexnet(classes=10)(wg.zeros(2, 3, 64, 64)).shape
    weftgrad.Size([2, 10])
"""

from __future__ import annotations

from weftgrad import Tensor, nn

__all__ = ["AlexNet", "alexnet", "small_alexnet"]

_POOLED = 6  # rows and columns of the last feature map, for images of any size


class AlexNet(nn.Module):
    """Classify images of at least 63x63 pixels.

    Args:
        classes: Number of classes.
        width: Channels of the first convolution. The others have 3, 6, 4 and 4 times as many.
        hidden: Units of the two hidden linear layers.
        dropout: Probability of zeroing an input of the hidden linear layers.

    Shapes: images `(N, 3, H, W)`, logits `(N, classes)`.
    """

    def __init__(self, classes: int = 1000, width: int = 64, hidden: int = 4096, dropout: float = 0.5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 11, stride=4, padding=2), nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(width, 3 * width, 5, padding=2), nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(3 * width, 6 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(6 * width, 4 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d(_POOLED)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(4 * width * _POOLED**2, hidden), nn.ReLU(),
            nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, classes),
        )  # fmt: skip
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def alexnet(classes: int = 1000) -> AlexNet:
    """Return the network of the paper: 61.1 million parameters with 1000 classes."""
    return AlexNet(classes)


def small_alexnet(classes: int = 10, dropout: float = 0.0) -> AlexNet:
    """Return a network for tests, with 8 channels in the first convolution."""
    return AlexNet(classes, width=8, hidden=64, dropout=dropout)
