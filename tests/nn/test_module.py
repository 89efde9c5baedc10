"""Modules: what is found in them, modes, state dicts, files, and how they print."""

from __future__ import annotations

from pathlib import Path

import pytest

import candle
from candle import (
    Activation,
    DType,
    FormatError,
    Generator,
    OptionError,
    ShapeError,
    Tensor,
    Var,
    Weights,
    nn,
)


class Net(nn.Module):
    """Every kind of place a parameter may stand in."""

    def __init__(self, vb: nn.VarBuilder) -> None:
        self.first = nn.Linear.new(3, 4, vb.pp("first"), activation=Activation.RELU)
        self.noise = nn.Dropout(0.5)
        self.norm = nn.BatchNorm2d.new(2, vb.pp("norm"))
        self.heads = [nn.Linear.new(4, 2, vb.pp("heads", k), bias=False) for k in range(2)]
        self.named = {"gain": vb.get((2,), "named.gain", nn.init.ones)}
        self.fixed = Tensor([1.0, 2.0])


def net() -> Net:
    return Net(nn.VarBuilder(generator=Generator(3)))


NAMES = [
    "named.gain",
    "fixed",
    "first.weight",
    "first.bias",
    "norm.weight",
    "norm.bias",
    "heads.0.weight",
    "heads.1.weight",
]
BUFFERS = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]


def test_parameters_are_found_in_attributes_lists_and_dictionaries() -> None:
    model = net()
    assert [name for name, _ in model.named_parameters()] == NAMES
    assert [name for name, _ in model.named_buffers()] == BUFFERS
    assert set(model.state_dict()) == {*NAMES, *BUFFERS}


def test_only_vars_are_for_the_optimiser_and_each_once() -> None:
    model = net()
    model.tied = model.first  # type: ignore[attr-defined]
    found = model.parameters()
    assert all(isinstance(v, Var) for v in found)
    assert len(found) == len({id(v) for v in found}) == len(NAMES) - 1


def test_train_and_eval_reach_every_module() -> None:
    model = net()
    assert all(m.training for m in model.modules())
    assert model.eval() is model
    assert not any(m.training for m in model.modules())
    assert model.train().noise.training


def test_a_state_dict_moves_a_model() -> None:
    model, other = net(), Net(nn.VarBuilder(generator=Generator(4)))
    model.norm(candle.randn((2, 2, 3, 3)))
    variables = other.parameters()
    other.load_state_dict(model.state_dict())
    for name, value in other.state_dict().items():
        assert value.to_vec() == model.state_dict()[name].to_vec(), name
    assert all(a is b for a, b in zip(variables, other.parameters(), strict=True))
    assert isinstance(other.first.weight, Var)


def test_all_problems_of_a_state_dict_are_told_at_once_and_nothing_changes() -> None:
    """burn#333's rule for files: one run, all errors."""
    model = net()
    state = dict(model.state_dict())
    before = model.first.weight.to_vec()
    state["first.weight"] = Tensor.zeros((9, 9))
    state["first.bias"] = Tensor.zeros((4,), DType.I64)
    state["other"] = state.pop("heads.1.weight")
    with pytest.raises(FormatError) as error:
        model.load_state_dict(state)
    told = str(error.value)
    assert "4 problems" in told and "Net" in told
    assert "shape of first.weight: [4, 3] wanted, got [9, 9]" in told
    assert "dtype of first.bias: f32 wanted, got i64" in told
    assert "missing: heads.1.weight" in told and "unexpected: other" in told
    assert model.first.weight.to_vec() == before


def test_a_loose_load_permits_names_but_no_shapes() -> None:
    model = net()
    model.load_state_dict({"heads.0.weight": Tensor.ones((2, 4)), "x": Tensor(1.0)}, strict=False)
    assert model.heads[0].weight.to_vec() == [[1.0] * 4] * 2
    with pytest.raises(FormatError, match=r"shape of heads\.0"):
        model.load_state_dict({"heads.0.weight": Tensor.ones((1, 4))}, strict=False)


def test_half_precision_values_are_converted() -> None:
    model = nn.Linear.new(2, 1, bias=False)
    model.load_state_dict({"weight": Tensor([[1.5, -2.0]], DType.F16)})
    assert model.weight.dtype is DType.F32 and model.weight.to_vec() == [[1.5, -2.0]]


def test_a_tensor_in_a_tuple_cannot_be_replaced() -> None:
    model = nn.Module()
    model.pair = (Tensor([1.0]), Var([2.0]))  # type: ignore[attr-defined]
    model.load_state_dict({"pair.1": Tensor([3.0])}, strict=False)
    assert model.pair[1].to_vec() == [3.0]  # type: ignore[attr-defined]
    with pytest.raises(OptionError, match="tuple at pair"):
        model.load_state_dict({"pair.0": Tensor([3.0])}, strict=False)


def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model, other = net(), net()
    model.first.weight.set(Tensor.ones((4, 3)))
    model.save_safetensors(tmp_path / "m.safetensors", {"made": "here"})
    other.load_safetensors(tmp_path / "m.safetensors")
    assert other.first.weight.to_vec() == [[1.0] * 3] * 4
    with Weights.open(tmp_path / "m.safetensors") as weights:
        assert weights.metadata["made"] == "here"
    (tmp_path / "bad.safetensors").write_bytes(b"\x00" * 7)
    with pytest.raises(FormatError):
        other.load_safetensors(tmp_path / "bad.safetensors")


def test_print_shows_layers_counts_and_a_total() -> None:
    text = repr(net()).splitlines()
    assert text[0].split() == ["Net(named.gain", "[2],", "fixed", "[2])", "40"]
    assert text[1].split() == ["first:", "Linear(3", "->", "4,", "relu)", "16"]
    assert text[-1] == "40 parameters, 38 trainable, 160 bytes"
    assert len({line.rstrip()[-3:] and len(line) for line in text[:-1]}) == 1  # one right edge


def test_tied_weights_count_once() -> None:
    model = nn.Sequential(nn.Linear.new(5, 5, bias=False))
    model.append(model[0])
    assert repr(model).endswith("25 parameters, 100 bytes")
    assert [name for name, _ in model.named_parameters()] == ["0.weight", "1.weight"]


def test_sequential_runs_modules_and_functions() -> None:
    model = nn.Sequential(nn.Linear.new(2, 2), Tensor.relu, nn.Sequential(nn.Linear.new(2, 1)))
    x = Tensor([[1.0, -1.0]])
    wanted = model[2][0](model[0](x).relu())
    assert model(x).to_vec() == wanted.to_vec()
    assert list(model.state_dict()) == ["0.weight", "0.bias", "2.0.weight", "2.0.bias"]
    assert "1: relu" in repr(model) and len(model) == 3


# -- VarBuilder ------------------------------------------------------------------------------------


def test_a_builder_names_parameters_by_its_path() -> None:
    vb = nn.VarBuilder()
    value = vb.pp("layer", 3).pp("norm").get(4, "weight", nn.init.ones)
    assert isinstance(value, Var) and value.shape == (4,)
    assert list(vb.made) == ["layer.3.norm.weight"] and vb.variables() == [value]


def test_the_same_name_is_the_same_parameter() -> None:
    vb = nn.VarBuilder()
    first = vb.get((2, 3), "w", nn.init.zeros)
    assert vb.get((2, 3), "w") is first
    with pytest.raises(ShapeError, match="parameter w"):
        vb.get((3, 2), "w")


def test_a_new_parameter_needs_an_initialiser() -> None:
    with pytest.raises(OptionError, match=r"parameter a\.w"):
        nn.VarBuilder().pp("a").get(2, "w")


def test_a_builder_reads_a_file(tmp_path: Path) -> None:
    made = nn.VarBuilder(generator=Generator(1))
    model = Net(made)
    model.save_safetensors(tmp_path / "w.safetensors")
    vb = nn.VarBuilder.open(tmp_path / "w.safetensors")
    again = Net(vb)
    assert again.first.weight.to_vec() == model.first.weight.to_vec()
    assert isinstance(again.first.weight, Var) and "first.bias" in vb and "nothing" not in vb
    with pytest.raises(FormatError, match="absent"):
        vb.get(3, "absent", nn.init.zeros)
    with pytest.raises(ShapeError):
        nn.Linear.new(4, 4, vb.pp("first"))
    frozen = Net(nn.VarBuilder.open(tmp_path / "w.safetensors", trainable=False))
    assert frozen.parameters() == []


def test_a_builder_saves_what_it_made(tmp_path: Path) -> None:
    vb = nn.VarBuilder()
    nn.Linear.new(2, 2, vb.pp("a"))
    vb.save_safetensors(tmp_path / "v.safetensors")
    assert set(candle.load_safetensors(tmp_path / "v.safetensors")) == {"a.weight", "a.bias"}


def test_a_seeded_builder_repeats_itself() -> None:
    draws = [Net(nn.VarBuilder(generator=Generator(9))).first.weight.to_vec() for _ in range(2)]
    assert draws[0] == draws[1]


def test_a_builder_takes_float_dtypes_only() -> None:
    with pytest.raises(candle.DTypeError):
        nn.VarBuilder(dtype="i64")
    half = nn.Linear.new(2, 2, nn.VarBuilder(dtype="f16"))
    assert half.weight.dtype is DType.F16
