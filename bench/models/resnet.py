"""ResNet with bottleneck blocks: three convolutions whose output is added to the block's input.

Paper: K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition" (CVPR 2016), table 1: the
50-layer column. This is the variant known as v1.5, in which a block's 3x3 convolution has the stride, not its first 1x1
one. The last normalization of each block can start at zero, so that all blocks start as identities (P. Goyal et al.,
"Accurate, large minibatch SGD", 2017). Parameters have torchvision's names. Read `mobilenet` next, whose blocks are
cheaper.

    >>> import weftgrad as wg
    >>> small_resnet(classes=10)(wg.zeros(2, 3, 32, 32)).shape
    weftgrad.Size([2, 10])
"""

from __future__ import annotations

from collections.abc import Sequence

from weftgrad import Tensor, nn
from weftgrad.nn import functional as F

__all__ = ["Bottleneck", "ResNet", "resnet50", "small_resnet"]

_EXPANSION = 4  # output channels of a block, in multiples of its 3x3 convolution's


class Bottleneck(nn.Module):
    """A block that reduces the channels to `width`, convolves, and expands them to `4 * width`.

    Shapes: input `(N, channels, H, W)`, output `(N, 4 * width, H / stride, W / stride)`.
    """

    def __init__(self, channels: int, width: int, stride: int = 1):
        super().__init__()
        out_channels = _EXPANSION * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + shortcut)


class ResNet(nn.Module):
    """Classify images.

    Args:
        blocks: Number of blocks in each of the four stages.
        classes: Number of classes.
        width: Channels of the first convolution. The stages' 3x3 convolutions have 1, 2, 4 and 8 times as many.
        zero_init: Whether the last normalization of each block starts at zero.

    Shapes: images `(N, 3, H, W)`, logits `(N, classes)`.
    """

    def __init__(
        self, blocks: Sequence[int] = (3, 4, 6, 3), classes: int = 1000, width: int = 64, zero_init: bool = False
    ):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(width, width, blocks[0], stride=1)
        self.layer2 = _stage(_EXPANSION * width, 2 * width, blocks[1], stride=2)
        self.layer3 = _stage(_EXPANSION * 2 * width, 4 * width, blocks[2], stride=2)
        self.layer4 = _stage(_EXPANSION * 4 * width, 8 * width, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(_EXPANSION * 8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Bottleneck) and zero_init:
                nn.init.zeros_(module.bn3.weight)

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    """Return `blocks` bottlenecks, of which the first has the stride."""
    first = Bottleneck(channels, width, stride)
    return nn.Sequential(first, *(Bottleneck(_EXPANSION * width, width) for _ in range(blocks - 1)))


def resnet50(classes: int = 1000, zero_init: bool = True) -> ResNet:
    """Return the paper's 50-layer network: 25.6 million parameters with 1000 classes."""
    return ResNet((3, 4, 6, 3), classes, zero_init=zero_init)


def small_resnet(classes: int = 10, zero_init: bool = True) -> ResNet:
    """Return a network for tests: 14 layers, with 8 channels in the first convolution."""
    return ResNet((1, 1, 1, 1), classes, width=8, zero_init=zero_init)
