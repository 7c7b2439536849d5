"""Checks of tensor parallel layers, pipelines and checkpoints, which `distributed_training_checks` runs."""

from __future__ import annotations

import numpy as np
import pytest
from distributed_training_models import (
    CLASSES,
    FEATURES,
    assert_close,
    check,
    make_batch,
    make_model,
    shard_model,
    train,
    values_of,
    whole_values,
)

import weftgrad as wg
from weftgrad import distributed as dist
from weftgrad import nn
from weftgrad.distributed import checkpoint
from weftgrad.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from weftgrad.distributed.tensor import Replicate, Shard
from weftgrad.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from weftgrad.nn import functional as F
from weftgrad.nn.parallel import DistributedDataParallel

# tensor parallel, pipeline


class Feedforward(nn.Module):
    def __init__(self):
        super().__init__()
        wg.manual_seed(2)
        self.embed, self.norm = nn.Embedding(12, 8), nn.LayerNorm(8)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 12, bias=False)

    def forward(self, x):
        return self.head(self.down(self.up(self.norm(self.embed(x))).relu()))


@check
def tensor_parallel_layers(folder):
    rng = np.random.default_rng(4)
    tokens = wg.from_numpy(rng.integers(0, 12, (3, 8)))
    plans = (
        {
            "embed": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel(),
            "head": ColwiseParallel(output_layouts=Replicate()),
        },
        {"embed": ColwiseParallel(output_layouts=Replicate()), "up": ColwiseParallel(), "down": RowwiseParallel()},
        {
            "embed": RowwiseParallel(output_layouts=Shard(1)), "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1)),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )  # fmt: skip
    for plan in plans:
        plain, model = Feedforward(), parallelize_module(Feedforward(), None, plan)
        expected, output = plain(tokens), model(tokens)
        assert_close([output.detach().numpy()], [expected.detach().numpy()], atol=1e-5)
        F.cross_entropy(expected.flatten(0, 1), tokens.flatten()).backward()
        F.cross_entropy(output.flatten(0, 1), tokens.flatten()).backward()
        for (name, param), (_, whole) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
            grad = whole.grad.numpy()
            if hasattr(param, "shard_layout"):
                grad = param.shard_layout.cut(grad)
                assert param.numel() * dist.get_world_size() == whole.numel()
            np.testing.assert_allclose(param.grad.numpy(), grad, rtol=1e-4, atol=1e-6, err_msg=name)


@check
def pipeline_schedules(folder):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    inputs, targets = make_batch(1)[0]
    whole = nn.Sequential(nn.Linear(FEATURES, 8), *[nn.Linear(8, 8) for _ in range(6)], nn.Linear(8, CLASSES))
    for param in whole.parameters():
        dist.broadcast(param.detach(), 0)
    F.mse_loss(whole(inputs), targets).backward()
    expected = [p.grad.clone() for p in whole.parameters()]
    layers = 8 // world_size
    stage_module = whole[rank * layers : (rank + 1) * layers]
    for schedule_class in (ScheduleGPipe, Schedule1F1B):
        whole.zero_grad()
        stage = PipelineStage(stage_module, rank, world_size)
        schedule = schedule_class(stage, 8, F.mse_loss)
        for _ in range(2):
            losses = []
            args = (inputs,) if stage.is_first else ()
            output = schedule.step(*args, target=targets if stage.is_last else None, losses=losses)
        if stage.is_last:
            assert len(losses) == 8
            assert_close([output.numpy()], [whole_output(whole, inputs)])
        for param, grad in zip(whole.parameters(), expected, strict=True):
            if any(param is own for own in stage_module.parameters()):
                np.testing.assert_allclose(param.grad.numpy(), 2 * grad.numpy(), rtol=1e-4, atol=1e-6)


def whole_output(model, inputs):
    with wg.no_grad():
        return model(inputs).numpy()


# checkpoints


def _checkpointed_state(model, optimizer):
    model_state, optimizer_state = checkpoint.get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "epoch": 0}


@check
def save_checkpoint(folder):
    model = shard_model()
    optimizer = wg.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer)
    state = _checkpointed_state(model, optimizer)
    checkpoint.save({**state, "epoch": 3}, checkpoint_id=folder / "sharded")
    train(model, optimizer, 2)
    values = whole_values(model)
    if dist.get_rank() == 0:
        np.savez(folder / "after.npz", *values)
    plan = {"embed": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    tensor_parallel = parallelize_module(Feedforward(), None, plan)
    checkpoint.save(checkpoint.get_model_state_dict(tensor_parallel), checkpoint_id=folder / "tensor-parallel")


@check
def load_checkpoint_of_other_ranks(folder):
    """Continue a run of another number of ranks, sharded and not."""
    expected = list(np.load(folder / "after.npz").values())
    for sharded in (True, False):
        model = shard_model() if sharded else make_model(seed=9)
        optimizer = wg.optim.AdamW(model.parameters(), lr=0.7)
        state = _checkpointed_state(model, optimizer)
        checkpoint.load(state, checkpoint_id=folder / "sharded")
        assert state["epoch"] == 3
        checkpoint.set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        trained = model if sharded else DistributedDataParallel(model)
        train(trained, optimizer, 2)
        values = whole_values(model) if sharded else values_of(model)
        assert_close(values, expected, rtol=1e-4, atol=1e-5)
    plain = Feedforward()
    with wg.no_grad():
        for param in plain.parameters():
            param.zero_()
    checkpoint.load(checkpoint.get_model_state_dict(plain), checkpoint_id=folder / "tensor-parallel")
    assert_close(values_of(plain), values_of(Feedforward()), rtol=0, atol=0)


@check
def incomplete_checkpoint(folder):
    with pytest.raises(RuntimeError) as caught:
        checkpoint.load({}, checkpoint_id=folder / "none")
    assert "has no complete checkpoint" in str(caught.value)
