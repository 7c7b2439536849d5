"""VGG: blocks of 3x3 convolutions, each followed by pooling, then three linear layers.

Paper: K. Simonyan, A. Zisserman, "Very deep convolutional networks for large-scale image recognition" (ICLR 2015),
table 1: column E is VGG-19. Weights are initialized as in K. He et al., "Delving deep into rectifiers" (2015), which
trains all depths without the paper's pre-training. Parameters have torchvision's names. Read `resnet` next, which goes
deeper by adding each block's input to its output.

    >>> import weftgrad as wg
    >>> small_vgg(classes=10)(wg.zeros(2, 3, 32, 32)).shape
    weftgrad.Size([2, 10])
"""

from __future__ import annotations

from weftgrad import Tensor, nn

__all__ = ["VGG", "small_vgg", "vgg19"]

_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}  # by depth
_MULTIPLES = (1, 2, 4, 8, 8)  # channels of each block, in multiples of the first block's
_POOLED = 7  # rows and columns of the last feature map, for images of any size


class VGG(nn.Module):
    """Classify images of at least 32x32 pixels.

    Args:
        depth: Number of layers with weights: 11, 13, 16 or 19.
        classes: Number of classes.
        width: Channels of the first block. The others have 2, 4, 8 and 8 times as many.
        hidden: Units of the two hidden linear layers.
        batch_norm: Whether batch normalization follows each convolution.
        dropout: Probability of zeroing an output of the hidden linear layers.

    Shapes: images `(N, 3, H, W)`, logits `(N, classes)`.
    """

    def __init__(
        self, depth: int = 19, classes: int = 1000, width: int = 64, hidden: int = 4096, batch_norm: bool = False,
        dropout: float = 0.5,
    ):  # fmt: skip
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for repeats, multiple in zip(_CONVOLUTIONS[depth], _MULTIPLES, strict=True):
            for _ in range(repeats):
                layers.append(nn.Conv2d(channels, multiple * width, 3, padding=1))
                if batch_norm:
                    layers.append(nn.BatchNorm2d(multiple * width))
                layers.append(nn.ReLU())
                channels = multiple * width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(_POOLED)
        last = nn.Linear(hidden, classes)
        self.classifier = nn.Sequential(
            nn.Linear(channels * _POOLED**2, hidden), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout),
            last,
        )  # fmt: skip
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
        nn.init.normal_(last.weight, 0.0, 0.01)  # all classes start about equally probable

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def vgg19(classes: int = 1000, batch_norm: bool = False) -> VGG:
    """Return the network of the paper's column E: 143.7 million parameters with 1000 classes."""
    return VGG(19, classes, batch_norm=batch_norm)


def small_vgg(classes: int = 10, batch_norm: bool = True, dropout: float = 0.0) -> VGG:
    """Return a network for tests: 11 layers, with 8 channels in the first block."""
    return VGG(11, classes, width=8, hidden=64, batch_norm=batch_norm, dropout=dropout)
