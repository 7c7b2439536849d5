"""Programs that use third-party packages written for PyTorch: one for each row of docs/third-party.md.

python programs.py NAME RESULTS.npz                          on PyTorch
python -m weftgrad.as_torch programs.py NAME RESULTS.npz     on weftgrad
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from registration import Results, fill, image, main, program, run_backward, tokens


@program("einops")
def einops_functions() -> Results:
    """`rearrange`, `reduce`, `repeat`, `einsum`, `pack`."""
    import einops

    x = image(8).requires_grad_()
    patches = einops.rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
    pooled = einops.reduce(patches, "b n d -> b d", "mean")
    repeated = einops.repeat(pooled, "b d -> b r d", r=3)
    product = einops.einsum(repeated, patches, "b r d, b n d -> b r n")
    packed, _ = einops.pack([product, pooled], "b *")
    (packed**2).sum().backward()
    return {"output": packed.detach().numpy(), "grad.x": x.grad.numpy()}


@program("einops")
def einops_layers() -> Results:
    """`Rearrange`, `Reduce` and `EinMix` in a `Sequential`."""
    from einops.layers.torch import EinMix, Rearrange, Reduce

    model = torch.nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        EinMix("b n d -> b n e", weight_shape="d e", bias_shape="e", d=48, e=16),
        Reduce("b n e -> b e", "max"),
    )
    return run_backward(fill(model), model(image(8)))


@program("torchmetrics")
def torchmetrics_classification() -> Results:
    """Accuracy, F1, AUROC, average precision and a confusion matrix over two batches."""
    from torchmetrics import MetricCollection, classification

    metrics = MetricCollection(
        [
            classification.MulticlassAccuracy(4), classification.MulticlassF1Score(4),
            classification.MulticlassAUROC(4, thresholds=20), classification.MulticlassConfusionMatrix(4),
            classification.MulticlassAveragePrecision(4),
        ]
    )  # fmt: skip
    generator = np.random.default_rng(0)
    for _ in range(2):
        scores = torch.from_numpy(generator.standard_normal((20, 4)).astype(np.float32)).softmax(-1)
        metrics.update(scores, torch.from_numpy(generator.integers(0, 4, 20)))
    return {name: value.numpy() for name, value in metrics.compute().items()}


@program("torchmetrics")
def torchmetrics_regression() -> Results:
    """Mean squared error, R², Pearson and Spearman correlation."""
    from torchmetrics import regression

    generator = np.random.default_rng(0)
    prediction = torch.from_numpy(generator.standard_normal(50).astype(np.float32))
    target = prediction + torch.from_numpy(generator.standard_normal(50).astype(np.float32))
    metrics = [regression.MeanSquaredError, regression.R2Score, regression.PearsonCorrCoef, regression.SpearmanCorrCoef]
    return {metric.__name__: metric()(prediction, target).numpy() for metric in metrics}


def timm_model(name: str, size: int = 64, **options: object) -> Results:
    """Run a model of timm forward and backward."""
    import timm

    model = fill(timm.create_model(name, pretrained=False, num_classes=10, **options))
    return run_backward(model, model(image(size)))


@program("timm")
def timm_resnet18() -> Results:
    """`create_model("resnet18")`."""
    return timm_model("resnet18")


@program("timm")
def timm_vit_tiny() -> Results:
    """`create_model("vit_tiny_patch16_224", img_size=64)`."""
    return timm_model("vit_tiny_patch16_224", img_size=64)


@program("timm")
def timm_convnext() -> Results:
    """`create_model("convnext_atto")`."""
    return timm_model("convnext_atto")


@program("timm")
def timm_efficientnet() -> Results:
    """`create_model("efficientnet_b0")`, in evaluation."""
    import timm

    model = fill(timm.create_model("efficientnet_b0", pretrained=False, num_classes=10)).eval()
    return run_backward(model, model(image()))


def torchvision_model(name: str, size: int = 64, **options: object) -> Results:
    """Run a model of torchvision forward and backward, in evaluation, so that nothing is dropped."""
    import torchvision

    model = fill(getattr(torchvision.models, name)(num_classes=10, **options)).eval()
    return run_backward(model, model(image(size)))


@program("torchvision")
def torchvision_resnet18() -> Results:
    """`models.resnet18()`."""
    return torchvision_model("resnet18")


@program("torchvision")
def torchvision_mobilenet_v2() -> Results:
    """`models.mobilenet_v2()`."""
    return torchvision_model("mobilenet_v2")


@program("torchvision")
def torchvision_vit() -> Results:
    """`models.VisionTransformer` of two layers."""
    import torchvision

    model = torchvision.models.VisionTransformer(64, 16, 2, 4, 64, 128, num_classes=10)
    return run_backward(fill(model), model.eval()(image()))


@program("torchvision", bound=1e-2)  # one of 256 levels is 9e-3 after normalising
def torchvision_transforms() -> Results:
    """`transforms.v2`: resizing, cropping, flipping, normalising, from a PIL image too."""
    from PIL import Image
    from torchvision.transforms import v2

    pipeline = v2.Compose(
        [
            v2.ToImage(), v2.Resize(40, antialias=True), v2.CenterCrop(32), v2.RandomHorizontalFlip(1.0),
            v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )  # fmt: skip
    pixels = np.random.default_rng(0).integers(0, 256, (48, 56, 3), dtype=np.uint8)
    return {"picture": np.asarray(pipeline(Image.fromarray(pixels)))}


def boxes() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 40 boxes of shape `(40, 4)`, and their scores."""
    generator = np.random.default_rng(0)
    corners = generator.uniform(0, 30, (40, 2)).astype(np.float32)
    sizes = generator.uniform(2, 20, (40, 2)).astype(np.float32)
    scores = generator.uniform(0, 1, 40).astype(np.float32)
    return torch.from_numpy(np.hstack([corners, corners + sizes])), torch.from_numpy(scores)


@program("torchvision")
def torchvision_boxes() -> Results:
    """`ops.box_iou`, `ops.generalized_box_iou`, `ops.sigmoid_focal_loss`, `ops.FrozenBatchNorm2d`."""
    from torchvision import ops

    first, scores = boxes()
    loss = ops.sigmoid_focal_loss(scores.requires_grad_(), (scores > 0.5).float(), reduction="mean")
    loss.backward()
    return {
        "iou": ops.box_iou(first, first).numpy(), "giou": ops.generalized_box_iou(first, first).numpy(),
        "loss": loss.detach().numpy(), "grad.scores": scores.grad.numpy(),
        "normalized": ops.FrozenBatchNorm2d(3)(image(8)).numpy(),
    }  # fmt: skip


@program("torchvision", needs_extension=True)
def torchvision_nms() -> Results:
    """`ops.nms`, `ops.batched_nms`, `ops.roi_align`, `ops.roi_pool`."""
    from torchvision import ops

    first, scores = boxes()
    results = {
        "nms": ops.nms(first, scores, 0.3).numpy(),
        "batched_nms": ops.batched_nms(first, scores, torch.arange(len(scores)) % 3, 0.3).numpy(),
    }
    picture = image(16, 1).requires_grad_()
    aligned = ops.roi_align(picture, [first[:5]], output_size=4, sampling_ratio=-1, aligned=True)
    pooled = ops.roi_pool(picture, [first[:5]], output_size=4)
    (aligned.square().sum() + pooled.square().sum()).backward()
    return results | {
        "roi_align": aligned.detach().numpy(), "roi_pool": pooled.detach().numpy(), "grad.image": picture.grad.numpy(),
    }  # fmt: skip


TINY = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100}


@program("transformers")
def transformers_bert() -> Results:
    """`BertModel` of two layers, with an attention mask."""
    from transformers import BertConfig, BertModel

    model = fill(BertModel(BertConfig(**TINY))).eval()
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 10:] = 0
    return run_backward(model, model(tokens(), attention_mask=mask).last_hidden_state)


@program("transformers")
def transformers_gpt2() -> Results:
    """`GPT2LMHeadModel` of two layers, with its loss."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = fill(GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=100, n_positions=32))).eval()
    output = model(tokens(), labels=tokens())
    return run_backward(model, output.logits) | {"language_loss": output.loss.detach().numpy()}


@program("transformers")
def transformers_llama() -> Results:
    """`LlamaForCausalLM` of two layers, with grouped queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = fill(LlamaForCausalLM(LlamaConfig(**TINY, num_key_value_heads=2, max_position_embeddings=32))).eval()
    return run_backward(model, model(tokens()).logits)


@program("transformers")
def transformers_generate() -> Results:
    """`LlamaForCausalLM.generate`: greedy, with a cache of keys and values."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = fill(LlamaForCausalLM(LlamaConfig(**TINY, max_position_embeddings=32))).eval()
    return {"tokens": model.generate(tokens(4), max_new_tokens=6, do_sample=False, pad_token_id=0).numpy()}


@program("transformers")
def transformers_save_pretrained() -> Results:
    """`save_pretrained` and `from_pretrained` through a safetensors file."""
    import tempfile

    from transformers import BertConfig, BertModel

    model = fill(BertModel(BertConfig(**TINY))).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model = BertModel.from_pretrained(folder).eval()
    return run_backward(model, model(tokens()).last_hidden_state)


@program("safetensors")
def safetensors_numpy() -> Results:
    """`safetensors.numpy`: a state_dict as arrays, there and back."""
    from safetensors.numpy import load, save

    layer = fill(torch.nn.Linear(3, 4))
    data = save({name: value.numpy() for name, value in layer.state_dict().items()})
    return load(data)


@program("safetensors")
def safetensors_torch() -> Results:
    """`safetensors.torch`: `save_file`, `load_file`, `safe_open`, `save_model`."""
    import tempfile

    from safetensors import safe_open
    from safetensors.torch import load_file, load_model, save_file, save_model

    layer = fill(torch.nn.Linear(3, 4))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        save_file(layer.state_dict() | {"half": torch.arange(4).half()}, path)
        results = {name: value.float().numpy() for name, value in load_file(path).items()}
        with safe_open(path, framework="pt") as file:
            results["part"] = file.get_slice("weight")[1:3].numpy()
        save_model(layer, str(path))
        other = torch.nn.Linear(3, 4)
        load_model(other, str(path))
    return results | {"model": other.weight.detach().numpy()}


def regression_data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs of shape `(32, 4)` and targets of shape `(32, 1)`."""
    x = np.random.default_rng(3).standard_normal((32, 4)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy((x.sum(1, keepdims=True) ** 2).astype(np.float32))


@program("lightning")
def lightning_trainer() -> Results:
    """`Trainer.fit` for two epochs of a `LightningModule`."""
    import lightning

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = fill(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*regression_data()), batch_size=8)
    model = Regression()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


@program("ignite")
def ignite_engine() -> Results:
    """`create_supervised_trainer` and an evaluator with metrics."""
    from ignite.engine import create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Loss, MeanSquaredError

    model = fill(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*regression_data()), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    create_supervised_trainer(model, optimizer, torch.nn.MSELoss()).run(loader, max_epochs=2)
    metrics = {"loss": Loss(torch.nn.MSELoss()), "mse": MeanSquaredError()}
    state = create_supervised_evaluator(model, metrics).run(loader)
    return {name: np.float64(value) for name, value in state.metrics.items()} | {
        name: value.detach().numpy() for name, value in model.named_parameters()
    }


@program("accelerate")
def accelerate_loop() -> Results:
    """`Accelerator.prepare`, `backward`, `clip_grad_norm_`, `accumulate`."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = fill(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*regression_data()), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01), loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


if __name__ == "__main__":
    main()
