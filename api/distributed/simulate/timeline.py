"""The timeline of one training step: seconds and bytes of its layers, and its gradients in the order they arrived."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ...runtime.errors import ArgumentError

__all__ = ["ROLES", "Gradient", "Layer", "Timeline"]

_FORMAT = 1  # of the JSON
ROLES = ("column", "row", "block", "table", "replicated")
"""How tensor parallelism splits a layer."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A module that owns parameters, in the order of forward.

    Args:
        name: Name of the module.
        forward_seconds: Time from its start to the start of the next layer, so that layers add up to the forward pass.
        output_bytes: Bytes of its output, which a pipeline sends when it is cut behind the layer.
        activation_bytes: Bytes that memory in use grew by in that time.
        parameter_bytes: Bytes of its parameters.
        role: How tensor parallelism splits it: `column` (a matrix split by outputs), `row` (the matrix after it, split
            by inputs), `block` (both in one module, such as attention), `table` (an embedding, split by rows), or
            `replicated`.

    Example:
        >>> from weftgrad.distributed.simulate import Layer
        >>> Layer("fc", 0.125, 4096, 4096, 1 << 20).name
        'fc'
    """

    name: str
    forward_seconds: float
    output_bytes: int
    activation_bytes: int
    parameter_bytes: int
    role: str = "replicated"


@dataclass(frozen=True, slots=True)
class Gradient:
    """A parameter's gradient, in the order in which the backward pass finished them.

    Args:
        name: Name of the parameter.
        layer: Index of its layer in `Timeline.layers`.
        nbytes: Bytes.
        seconds: Time since the gradient before it, or since the start of the backward pass.

    Example:
        >>> from weftgrad.distributed.simulate import Gradient
        >>> Gradient("fc.weight", 0, 1 << 20, 0.05).nbytes
        1048576
    """

    name: str
    layer: int
    nbytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """One training step on one device.

    Args:
        name: Name of the model.
        device: Device that it was recorded on.
        layers: Layers in the order of forward.
        gradients: Gradients in the order in which they arrived.
        update_seconds: Time after the backward pass: gradient clipping and the optimizer.
        optimizer_bytes: Bytes of the optimizer's state.

    Raises:
        ArgumentError: There is no layer, a number is negative, or a gradient names a layer that does not exist.

    Example:
        >>> from weftgrad.distributed.simulate import Gradient, Layer, Timeline
        >>> layer = Layer("fc", 0.125, 4096, 4096, 1 << 20)
        >>> Timeline("net", "cpu", (layer,), (Gradient("fc.weight", 0, 1 << 20, 0.25),), 0.125, 0).step_seconds
        0.5
    """

    name: str
    device: str
    layers: tuple[Layer, ...]
    gradients: tuple[Gradient, ...]
    update_seconds: float
    optimizer_bytes: int

    def __post_init__(self) -> None:
        numbers = [self.update_seconds, self.optimizer_bytes]
        for layer in self.layers:
            numbers += [layer.forward_seconds, layer.output_bytes, layer.activation_bytes, layer.parameter_bytes]
        numbers += [number for gradient in self.gradients for number in (gradient.nbytes, gradient.seconds)]
        if not self.layers or not all(0 <= number < float("inf") for number in numbers):
            raise ArgumentError(
                f"Timeline {self.name!r}: needs a layer or more, and finite times and bytes of 0 or more"
            )
        unknown_roles = {layer.role for layer in self.layers} - {*ROLES}
        if unknown_roles:
            raise ArgumentError(
                f"Timeline {self.name!r}: a layer's role is one of {', '.join(ROLES)}, not {unknown_roles.pop()!r}"
            )
        if any(not 0 <= gradient.layer < len(self.layers) for gradient in self.gradients):
            raise ArgumentError(f"Timeline {self.name!r}: a gradient names a layer outside 0 to {len(self.layers) - 1}")

    @property
    def forward_seconds(self) -> float:
        """Seconds of the forward pass."""
        return sum(layer.forward_seconds for layer in self.layers)

    @property
    def backward_seconds(self) -> float:
        """Seconds of the backward pass."""
        return sum(gradient.seconds for gradient in self.gradients)

    @property
    def step_seconds(self) -> float:
        """Seconds of the step."""
        return self.forward_seconds + self.backward_seconds + self.update_seconds

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(layer.parameter_bytes for layer in self.layers)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(gradient.nbytes for gradient in self.gradients)

    @property
    def activation_bytes(self) -> int:
        """Bytes that the forward pass keeps for the backward pass."""
        return sum(layer.activation_bytes for layer in self.layers)

    def with_step_seconds(self, seconds: float) -> Timeline:
        """Return the timeline of a device on which the step takes another time, with the same shares.

        Args:
            seconds: Duration of the step.

        Returns:
            `Timeline`.

        Raises:
            ArgumentError: `seconds` is not positive.
        """
        if not seconds > 0:
            raise ArgumentError(f"with_step_seconds: a step takes more than 0 seconds, not {seconds}")
        factor = seconds / self.step_seconds
        return replace(
            self,
            layers=tuple(replace(layer, forward_seconds=layer.forward_seconds * factor) for layer in self.layers),
            gradients=tuple(replace(gradient, seconds=gradient.seconds * factor) for gradient in self.gradients),
            update_seconds=self.update_seconds * factor,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline to a file, as JSON.

        Args:
            path: File.

        Raises:
            ArgumentError: The file cannot be written.
        """
        try:
            Path(path).write_text(json.dumps({"format": _FORMAT, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise ArgumentError(f"Timeline.save: {os.fspath(path)} cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Timeline:
        """Read a timeline that `save` has written.

        Args:
            path: File.

        Returns:
            `Timeline`.

        Raises:
            ArgumentError: The file cannot be read, or is no timeline.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ArgumentError(f"Timeline.load: {os.fspath(path)} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ArgumentError(f"Timeline.load: {os.fspath(path)} is not JSON: {error}") from None
        if not isinstance(content, Mapping) or content.get("format") != _FORMAT:
            raise ArgumentError(f"Timeline.load: {os.fspath(path)} is no timeline of format {_FORMAT}")
        try:
            return cls(
                str(content["name"]),
                str(content["device"]),
                tuple(Layer(**layer) for layer in content["layers"]),
                tuple(Gradient(**gradient) for gradient in content["gradients"]),
                float(content["update_seconds"]),
                int(content["optimizer_bytes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"Timeline.load: {os.fspath(path)} is malformed: {error}") from None
