"""MobileNet, versions 1 and 2: depthwise 3x3 convolutions, which mix no channels, between 1x1 ones, which do.

Papers: A. Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision applications" (2017),
table 1; M. Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks" (CVPR 2018), table 2. Both scale
all channels by a width multiplier. Read `gnmt` next, a network of a quite different kind.

    >>> import weftgrad as wg
    >>> small_mobilenet_v2(classes=10)(wg.zeros(2, 3, 32, 32)).shape
    weftgrad.Size([2, 10])
"""

from __future__ import annotations

from weftgrad import Tensor, nn

__all__ = [
    "InvertedResidual",
    "MobileNetV1",
    "MobileNetV2",
    "mobilenet_v1",
    "mobilenet_v2",
    "small_mobilenet_v1",
    "small_mobilenet_v2",
]

# Version 1, after the first convolution: channels and stride of each depthwise separable convolution.
_SEPARABLE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
# Version 2: expansion factor, channels, number of blocks, and stride of the first of them.
_INVERTED = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class MobileNetV1(nn.Module):
    """Classify images by depthwise separable convolutions.

    Args:
        classes: Number of classes.
        multiplier: Factor of all channels, the paper's alpha.

    Shapes: images `(N, 3, H, W)`, logits `(N, classes)`.
    """

    def __init__(self, classes: int = 1000, multiplier: float = 1.0):
        super().__init__()
        channels = round(32 * multiplier)
        layers = [_normalized(3, channels, 3, stride=2, activation=nn.ReLU)]
        for full_width, stride in _SEPARABLE:
            width = round(full_width * multiplier)
            layers.append(_normalized(channels, channels, 3, stride=stride, groups=channels, activation=nn.ReLU))
            layers.append(_normalized(channels, width, 1, activation=nn.ReLU))
            channels = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        self.apply(_initialize)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.features(images)).flatten(1))


class InvertedResidual(nn.Module):
    """A block that expands the channels, convolves each of them, and projects them without an activation.

    The input is added to the output if both have the same shape.

    Args:
        channels: Channels of the input.
        out_channels: Channels of the output.
        expansion: Factor of the channels in between.
        stride: Stride of the depthwise convolution.
    """

    def __init__(self, channels: int, out_channels: int, expansion: int, stride: int):
        super().__init__()
        width = expansion * channels
        layers = [_normalized(channels, width, 1, activation=nn.ReLU6)] if expansion != 1 else []
        layers.append(_normalized(width, width, 3, stride=stride, groups=width, activation=nn.ReLU6))
        self.conv = nn.Sequential(*layers, nn.Conv2d(width, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels))
        self.is_residual = stride == 1 and channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.is_residual else self.conv(x)


class MobileNetV2(nn.Module):
    """Classify images by inverted residual blocks. Parameters have torchvision's names.

    Args:
        classes: Number of classes.
        multiplier: Factor of all channels but the last convolution's, which never has less than 1280.
        dropout: Probability of zeroing an input of the linear layer.
        last_channels: Channels of the last convolution; by default as in the paper.

    Shapes: images `(N, 3, H, W)`, logits `(N, classes)`.
    """

    def __init__(
        self, classes: int = 1000, multiplier: float = 1.0, dropout: float = 0.2, last_channels: int | None = None
    ):
        super().__init__()
        channels = _round_to_eight(32 * multiplier)
        layers: list[nn.Module] = [_normalized(3, channels, 3, stride=2, activation=nn.ReLU6)]
        for expansion, full_width, blocks, first_stride in _INVERTED:
            width = _round_to_eight(full_width * multiplier)
            for index in range(blocks):
                layers.append(InvertedResidual(channels, width, expansion, 1 if index else first_stride))
                channels = width
        last_channels = last_channels or _round_to_eight(1280 * max(1.0, multiplier))
        layers.append(_normalized(channels, last_channels, 1, activation=nn.ReLU6))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last_channels, classes))
        self.apply(_initialize)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def _normalized(
    channels: int, out_channels: int, kernel: int, activation: type[nn.Module], stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution without bias, batch normalization and an activation."""
    padding = kernel // 2
    convolution = nn.Conv2d(channels, out_channels, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out_channels), activation())


def _round_to_eight(channels: float) -> int:
    """Return the multiple of 8 nearest to a number of channels, 8 at least and not more than a tenth below it."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _initialize(module: nn.Module) -> None:
    """Draw convolutions by He's rule, and the linear layer from a narrow normal distribution."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0.0, 0.01)
        nn.init.zeros_(module.bias)


def mobilenet_v1(classes: int = 1000, multiplier: float = 1.0) -> MobileNetV1:
    """Return version 1: 4.2 million parameters with 1000 classes."""
    return MobileNetV1(classes, multiplier)


def mobilenet_v2(classes: int = 1000, multiplier: float = 1.0) -> MobileNetV2:
    """Return version 2: 3.5 million parameters with 1000 classes."""
    return MobileNetV2(classes, multiplier)


def small_mobilenet_v1(classes: int = 10) -> MobileNetV1:
    """Return version 1 for tests, with a quarter of the channels."""
    return MobileNetV1(classes, 0.25)


def small_mobilenet_v2(classes: int = 10, dropout: float = 0.0) -> MobileNetV2:
    """Return version 2 for tests, with a quarter of the channels."""
    return MobileNetV2(classes, 0.25, dropout, last_channels=64)
