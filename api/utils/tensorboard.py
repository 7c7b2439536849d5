"""Write event files for TensorBoard, with PyTorch's `SummaryWriter`. The package `tensorboardX` writes the files."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from ..runtime import host_data
from ..runtime.dtypes import Array
from ..runtime.errors import DriverNotFound
from ..runtime.tensor import Tensor

__all__ = ["SummaryWriter"]


def _writer_class() -> Any:
    try:
        import tensorboardX  # lazy: optional dependency
    except ImportError as error:
        raise DriverNotFound(
            f"SummaryWriter needs the package tensorboardX ({error}); pip install 'weftgrad[tensorboard]'"
        ) from None
    return tensorboardX.SummaryWriter


def _as_array(value: Any) -> Any:
    """Return tensors, also those in lists and dicts, as NumPy arrays; other values as they are."""
    if isinstance(value, Tensor):
        array: Array = np.array(host_data.host_array(value.detach()))
        return array
    if isinstance(value, Mapping):
        return {key: _as_array(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_array(item) for item in value]
    return value


def _as_number(value: Any) -> float:
    return float(value.item()) if isinstance(value, (Tensor, np.generic, np.ndarray)) else float(value)


class SummaryWriter:
    """Writes numbers, histograms, pictures, texts and graphs to a folder, in which TensorBoard shows them.

    Args:
        log_dir: The folder; None for `runs/DATE_TIME_HOST` followed by `comment`.
        comment: End of the default folder's name.
        purge_step: If a run starts again after a crash, the first step from which older events are hidden.
        max_queue: Events to hold before they are written.
        flush_secs: Seconds after which they are written.
        filename_suffix: End of the names of event files.

    Raises:
        DriverNotFound: The package `tensorboardX` is not installed.

    Example:
        >>> from weftgrad.utils.tensorboard import SummaryWriter
        >>> with SummaryWriter('runs/first') as writer:  # doctest: +SKIP
        ...     writer.add_scalar('loss', wg.tensor(0.5), 1)
    """

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", purge_step: int | None = None,
        max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "",
    ):  # fmt: skip
        folder = None if log_dir is None else os.fspath(log_dir)
        self._writer = _writer_class()(
            folder, comment=comment, purge_step=purge_step, max_queue=max_queue, flush_secs=flush_secs,
            filename_suffix=filename_suffix,
        )  # fmt: skip

    @property
    def log_dir(self) -> str:
        """The folder of the event files."""
        return str(self._writer.logdir)

    def get_logdir(self) -> str:
        """Return the folder of the event files.

        Returns:
            The path.

        Example:
            >>> SummaryWriter('runs/first').get_logdir()  # doctest: +SKIP
            'runs/first'
        """
        return self.log_dir

    # --- numbers ---

    def add_scalar(
        self, tag: str, scalar_value: float | Tensor, global_step: int | None = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """Write a number.

        Args:
            tag: Its name.
            scalar_value: The number, or a tensor of one element.
            global_step: Step of the training.
            walltime: Seconds since 1970; None for now.
            new_style: Ignored: the file has the older form, which TensorBoard reads as well.
            double_precision: Ignored: numbers are float32 in it.

        Example:
            >>> writer.add_scalar('loss', loss, step)  # doctest: +SKIP
        """
        self._writer.add_scalar(tag, _as_number(scalar_value), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, float | Tensor], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write several numbers that are shown in one diagram.

        Args:
            main_tag: Name of the diagram.
            tag_scalar_dict: The numbers by name.
            global_step: Step of the training.
            walltime: Seconds since 1970; None for now.

        Example:
            >>> writer.add_scalars('loss', {'train': 0.5, 'test': 0.7}, step)  # doctest: +SKIP
        """
        numbers = {name: _as_number(value) for name, value in tag_scalar_dict.items()}
        self._writer.add_scalars(main_tag, numbers, global_step, walltime)

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, float | Tensor],
        hparam_domain_discrete: Mapping[str, Any] | None = None, run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Write the hyperparameters of a run and what it has reached.

        Args:
            hparam_dict: Hyperparameters by name: bool, str, float or int.
            metric_dict: Results by name.
            hparam_domain_discrete: Ignored.
            run_name: Name of the run; None for the time.
            global_step: Step of the training.

        Example:
            >>> writer.add_hparams({'lr': 0.1}, {'accuracy': 0.9})  # doctest: +SKIP
        """
        metrics = {name: _as_number(value) for name, value in metric_dict.items()}
        self._writer.add_hparams(_as_array(hparam_dict), metrics, name=run_name, global_step=global_step)

    def add_histogram(
        self, tag: str, values: Tensor | Array, global_step: int | None = None, bins: str = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Write a histogram.

        Args:
            tag: Its name.
            values: The values.
            global_step: Step of the training.
            bins: `tensorflow`, or a rule of `numpy.histogram` such as `auto`.
            walltime: Seconds since 1970; None for now.
            max_bins: The largest number of bins.

        Example:
            >>> writer.add_histogram('weight', model.weight, step)  # doctest: +SKIP
        """
        self._writer.add_histogram(tag, _as_array(values), global_step, bins, walltime, max_bins)

    def add_pr_curve(
        self, tag: str, labels: Tensor | Array, predictions: Tensor | Array, global_step: int | None = None,
        num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Write a curve of precision over recall.

        Args:
            tag: Its name.
            labels: Whether each example is positive.
            predictions: The probability of each that it is.
            global_step: Step of the training.
            num_thresholds: Number of points.
            weights: Weight of each example.
            walltime: Seconds since 1970; None for now.

        Example:
            >>> writer.add_pr_curve('test', labels, probabilities, step)  # doctest: +SKIP
        """
        labels, predictions, weights = _as_array(labels), _as_array(predictions), _as_array(weights)
        self._writer.add_pr_curve(tag, labels, predictions, global_step, num_thresholds, weights, walltime)

    # --- pictures and texts ---

    def add_image(
        self, tag: str, img_tensor: Tensor | Array, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """Write a picture.

        Args:
            tag: Its name.
            img_tensor: Floats from 0 to 1, or uint8.
            global_step: Step of the training.
            walltime: Seconds since 1970; None for now.
            dataformats: Order of the dimensions: `CHW`, `HWC` or `HW`.

        Example:
            >>> writer.add_image('digit', wg.rand(1, 8, 8), step)  # doctest: +SKIP
        """
        self._writer.add_image(tag, _as_array(img_tensor), global_step, walltime, dataformats)

    def add_images(
        self, tag: str, img_tensor: Tensor | Array, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Write several pictures as one.

        Args:
            tag: Their name.
            img_tensor: Floats from 0 to 1, or uint8.
            global_step: Step of the training.
            walltime: Seconds since 1970; None for now.
            dataformats: Order of the dimensions: `NCHW` or `NHWC`.

        Example:
            >>> writer.add_images('digits', wg.rand(4, 1, 8, 8), step)  # doctest: +SKIP
        """
        self._writer.add_images(tag, _as_array(img_tensor), global_step, walltime, dataformats)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Write a figure of matplotlib as a picture.

        Args:
            tag: Its name.
            figure: The figure, or several.
            global_step: Step of the training.
            close: Whether to close it.
            walltime: Seconds since 1970; None for now.

        Example:
            >>> writer.add_figure('curve', plt.gcf(), step)  # doctest: +SKIP
        """
        self._writer.add_figure(tag, figure, global_step, close, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Write a text.

        Args:
            tag: Its name.
            text_string: The text, in Markdown.
            global_step: Step of the training.
            walltime: Seconds since 1970; None for now.

        Example:
            >>> writer.add_text('sample', 'to be or not', step)  # doctest: +SKIP
        """
        self._writer.add_text(tag, text_string, global_step, walltime)

    # --- graphs ---

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Write the graph of a model, as `weftgrad.onnx.export` records it; that needs the package `onnx`.

        Args:
            model: The module.
            input_to_model: Its arguments: a tensor, or a tuple.
            verbose: Whether to print the graph.
            use_strict_trace: Ignored.

        Raises:
            OnnxExporterError: The model cannot be exported.

        Example:
            >>> writer.add_graph(model, wg.ones(1, 3))  # doctest: +SKIP
        """
        from ..onnx import export  # lazy: start-up

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.onnx")
            export(model, () if input_to_model is None else input_to_model, path, verbose=verbose)
            with contextlib.redirect_stdout(io.StringIO()):  # tensorboardX prints the names of all nodes
                self._writer.add_onnx_graph(path)

    # --- files ---

    def flush(self) -> None:
        """Write everything to the file.

        Example:
            >>> writer.flush()  # doctest: +SKIP
        """
        self._writer.flush()

    def close(self) -> None:
        """Write everything, and close the file.

        Example:
            >>> writer.close()  # doctest: +SKIP
        """
        self._writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
