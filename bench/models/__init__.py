"""The six models of the PyTorch paper's benchmark, as plain programs of `weftgrad.nn`.

A. Paszke et al., "PyTorch: an imperative style, high-performance deep learning library" (NeurIPS 2019), table 1,
measures AlexNet, VGG-19, ResNet-50, MobileNet, GNMTv2 and NCF. Read the models in that order: `alexnet`, `vgg`,
`resnet`, `mobilenet`, `gnmt` (with `translation`, its search) and `ncf`. Each module has a class, a function for the
network of the paper and one for a small network that trains within seconds.

`data` has something for each of them to learn, `training` their losses and optimizers, `loading` runs the same programs
on another library, and `suite` measures training steps: `weftgrad bench --suite models`.
"""

from .loading import NAMES, load

__all__ = ["NAMES", "load"]
