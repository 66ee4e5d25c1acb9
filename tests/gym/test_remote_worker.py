"""What crosses between two processes comes out as it went in, bit for bit, without pickle."""

import json
from collections import OrderedDict

import numpy as np
import pytest
from gymnasium import spaces

from tether.gym.remote_env import _space
from tether.gym.remote_worker import NotSent, decode, described, encode, sendable

VALUES = [
    None, True, -3, 0.1, float("inf"), "τ", [1, [2.5]], (1, "a", (None,)), {"a": 1, 2: (3,)}, {}, (),
    np.array([[0.1, np.nan], [-0.0, 1e-310]]), np.zeros((0, 3), np.float32), np.arange(3, dtype=">i2"),
    np.array([True, False]), {"array": "of the environment's own", "tuple": [1]}, np.int64(7),
    np.float32(0.1), np.bool_(True),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_out_as_it_went_in(value):
    again = decode(json.loads(json.dumps(encode(value))))
    assert type(again) is type(value)
    if isinstance(value, np.ndarray):
        assert (again.dtype, again.shape, again.tobytes()) == (value.dtype, value.shape, value.tobytes())
        again[...] = 0  # it is the receiver's own
    else:
        assert again == value


def test_what_has_no_form_is_refused_and_in_info_left_out():
    hidden = np.ma.array([0.5, 0.2], mask=[False, True])  # its bytes would be 0.5 and 1e20
    for value in (object(), {1, 2}, np.array([object()]), [lambda: 0], hidden, np.ma.masked):
        with pytest.raises(NotSent):
            encode(value)
    assert sendable({"cost": 0.5, "env": object()}) == {"cost": 0.5, "not_sent": ["env"]}
    assert sendable(OrderedDict(cost=0.5)) == {"cost": 0.5}
    assert decode(encode(np.ma.array([0.5]))).tolist() == [0.5]


def test_spaces_come_out_as_they_went_in():
    nested = spaces.Dict(
        {
            "n": spaces.Discrete(3, start=-1),
            "box": spaces.Box(np.array([-np.inf, 0.0], np.float32), np.array([1.0, 2.0], np.float32)),
            "several": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4)]),
        }
    )
    assert _space(json.loads(json.dumps(described(nested)))) == nested
    box = type("Box", (), {"low": np.zeros(2), "high": np.ones(2)})()  # of Gym 0.9, which simglucose pins
    assert _space(described(box)) == spaces.Box(0.0, 1.0, (2,), np.float64)
    with pytest.raises(NotSent, match="Text"):
        described(spaces.Text(5))
