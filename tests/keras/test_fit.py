"""to_keras: fit, evaluate and predict on each Keras backend, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

BACKENDS = [
    "tensorflow",
    pytest.param("jax", marks=pytest.mark.long),
    pytest.param("torch", marks=pytest.mark.long),
]

BEGIN = """
import json, os, warnings
if os.environ["KERAS_BACKEND"] == "tensorflow":
    import tests.quick_tensorflow
    import tensorflow as tf
    # To optimize graphs takes longer than all steps.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
import keras, numpy as np, flowdsl as fl

def row(i):
    return np.full(3, i, np.float32), np.float32(i)

def numbers(batches):
    return [batch[1].tolist() for batch in batches]

flow = fl.from_range(10).shuffle(seed=1).map(row).batch(4)

class Watched:
    '''A dataset, and what Keras took of it: a list for each pass.'''

    def __init__(self, flow):
        self.data, self.passes = flow.to_keras(), []
        begin = self.data._pass
        def noted():
            taken = []
            self.passes.append(taken)
            for batch in begin():
                taken.append(batch[1].tolist())
                yield batch
        self.data._pass = noted

    def forget_looks(self):
        '''A model that is not built yet takes a batch of its own, to see what it is.'''
        if len(self.passes[0]) == 1:
            del self.passes[0]

def model_of(run_eagerly=True):
    '''A model whose steps are compiled only where asked: compiling takes longer than all steps.'''
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    adam = keras.optimizers.Adam(0.1)
    model.compile(loss="mse", optimizer=adam, run_eagerly=run_eagerly, jit_compile=False)
    return model

warnings.filterwarnings("ignore", ".*__array__ implementation.*")
model = model_of(run_eagerly=False)
"""

FITS = """
warnings.filterwarnings("error", "Your input ran out")
watched = Watched(flow.prefetch(procs=2))
model.fit(watched.data, epochs=3, verbose=0, shuffle=True, validation_data=flow.to_keras())
watched.forget_looks()
assert watched.passes == [numbers(flow.epoch(k)) for k in range(3)], watched.passes
model.fit(watched.data, initial_epoch=3, epochs=4, verbose=0)
watched.forget_looks()
assert watched.passes[3] == numbers(flow.epoch(3))
assert watched.data.epoch == 4

watched = Watched(flow.repeat())
model.fit(watched.data, epochs=2, steps_per_epoch=4, verbose=0)
*_, taken = watched.passes
assert taken[:8] == [x for k, x in zip(range(8), numbers(flow.repeat().take(8)))]
watched.data.close()
"""

FOLLOWS = """
watched = Watched(flow)
data = watched.data
states = []
class Saving(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        states.append(data.state_dict())
model_of().fit(data, initial_epoch=2, epochs=4, verbose=0, callbacks=[data.follows, Saving()])
watched.forget_looks()
assert watched.passes == [numbers(flow.epoch(k)) for k in (2, 3)], watched.passes
assert data.epoch == 4
assert [(s["epoch"], s["position"]) for s in states] == [
    (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (4, 0)
], states
model_of().fit(data, initial_epoch=1, epochs=2, verbose=0, callbacks=[data.follows])
*_, taken = watched.passes
assert taken == numbers(flow.epoch(1))
assert data.epoch == 2
seen = Watched(flow)
seen.data.load_state_dict(states[3])
model_of().fit(seen.data, initial_epoch=3, epochs=4, verbose=0, callbacks=[seen.data.follows])
*_, taken = seen.passes
assert taken == numbers(flow.epoch(3))[1:], seen.passes
data, states = flow.to_keras(), []
class Forgetful(Saving):
    def on_epoch_end(self, epoch, logs=None):
        states.append(data.state_dict())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model_of().fit(data, verbose=0, callbacks=[Forgetful()])
assert [(s["epoch"], s["position"]) for s in states] == [(0, 0), (0, 0), (0, 0), (1, 0)], states
said = [str(w.message) for w in caught if "to_keras" in str(w.message)]
assert len(said) == 3 and "callbacks=[data.follows, ...]" in said[0], said
"""

ORDER = """
def said_of(*callbacks):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model_of().fit(data, initial_epoch=data.epoch, epochs=data.epoch + 1, verbose=0,
                       callbacks=list(callbacks))
    return [str(w.message) for w in caught if "to_keras" in str(w.message)]

data, states = flow.to_keras(), []
class Begins(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        states.append(data.state_dict())
def lambdas():
    return keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: states.append(data.state_dict())
    )
class Explicit(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        states.append(data.state_dict(batch + 1))
for saving in (Saving(), lambdas()):
    said = said_of(saving, data.follows)
    assert len(said) == 3 and "put data.follows before the callback" in said[0], said
    assert [s["position"] for s in states] == [0, 1, 2], states
    assert said_of(data.follows, saving) == []
    states.clear()
for callbacks in ((Begins(), data.follows), (data.follows, Begins()), (Explicit(), data.follows)):
    assert said_of(*callbacks) == []
class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise ZeroDivisionError
try:
    said_of(Fails(), data.follows)
except ZeroDivisionError:
    assert said_of(Begins(), data.follows, Saving()) == []
else:
    raise AssertionError("no error")
"""

FOLLOWS_ON = """
endless = fl.keras.Fit(flow.repeat())
places = []
class Places(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        places.append(endless.state_dict()["position"])
    def on_train_batch_end(self, batch, logs=None):
        places.append(endless.state_dict()["position"])
model_of().fit(
    endless, epochs=2, steps_per_epoch=4, verbose=0, callbacks=[endless.follows, Places()]
)
endless.close()
assert places == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8], places
other = fl.keras.Fit(flow)
other.load_state_dict(states[3])
try:
    model_of().fit(other, epochs=1, verbose=0, callbacks=[other.follows])
except fl.FlowError as error:
    assert "pass initial_epoch=data.epoch" in str(error), error
else:
    raise AssertionError("the loaded state was dropped")
"""

LOOKS = """
expected = [x for x, _ in fl.from_range(10).map(row)]
plain = fl.from_range(10).map(row).batch(4)
got = model.predict(plain.to_keras(), verbose=0)
np.testing.assert_allclose(got, model.predict(np.stack(expected), verbose=0), rtol=1e-5)
loss = model.evaluate(plain.to_keras(), verbose=0)
np.testing.assert_allclose(
    loss, model.evaluate(np.stack(expected), np.arange(10.0), batch_size=4, verbose=0), rtol=1e-5
)
only_inputs = fl.from_range(10).map(lambda i: row(i)[0]).batch(4)
assert model.predict(only_inputs.to_keras(), verbose=0).shape == (10, 1)
inputs = {name: keras.Input((3,), name=name) for name in "ab"}
two = keras.Model(inputs, inputs["a"] + 2 * inputs["b"])
named = fl.from_range(5).map(lambda i: ({"b": np.full(3, i, "f4"), "a": np.full(3, 9, "f4")}, 1.0))
assert two.predict(named.batch(2).to_keras(), verbose=0)[:, 0].tolist() == [9, 11, 13, 15, 17]
"""

UNKNOWN = """
warnings.filterwarnings("ignore", "Your input ran out")
watched = Watched(flow.unbatch().filter(lambda pair: pair[1] != 3).batch(4))
model.fit(watched.data, epochs=2, verbose=0)
watched.forget_looks()
expected = [[[y for y in ys if y != 3] for ys in numbers(flow.epoch(k))] for k in range(2)]
assert [sorted(sum(taken, [])) for taken in watched.passes] == [
    sorted(sum(epoch, [])) for epoch in expected
], watched.passes
"""

FAILS = """
warnings.filterwarnings("ignore", "Your input ran out")
def bad(i):
    if i == 6:
        raise ValueError("the disk is on fire")
    return row(i)
steps = []
class Count(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        steps.append(batch)
for procs in (0, 2):
    steps.clear()
    failing = fl.from_range(10).map(bad).batch(2).prefetch(procs=procs)
    try:
        model_of().fit(failing.to_keras(), verbose=0, callbacks=[Count()])
    except fl.ElementError as error:
        assert "failed on element 6 (row 6 of from_range(10))" in str(error), error
        assert "the disk is on fire" in str(error), error  # Keras drops the cause itself
    else:
        raise AssertionError("no error")
    assert steps == [0, 1, 2], steps
masked = fl.from_range(4).map(row).batch(2).map(lambda batch: (np.ma.array(batch[0]), batch[1]))
try:
    model_of().fit(masked.to_keras(), verbose=0)
except fl.SpecMismatch as error:
    assert "to_keras: component '0' of element 0 is a masked array" in str(error), error
else:
    raise AssertionError("a mask was lost")

def swapped(batch):
    return tuple(part.astype(part.dtype.newbyteorder(">")) for part in batch)

batches = fl.from_range(4).map(row).batch(2)
native, other = (
    model_of().predict(each.to_keras(), verbose=0)
    for each in (batches, batches.map(swapped))
)
assert np.array_equal(native, other), (native, other)
"""

EMPTY = """
def refusal(use, *args, **options):
    try:
        use(*args, **options)
    except fl.FlowError as error:
        return str(error)
    raise AssertionError("no error")

dropped = fl.from_range(3).map(row).batch(4, drop_remainder=True)
filtered = fl.from_range(3).map(row).filter(lambda pair: pair[1] > 3).batch(2)
for use in (model_of().fit, model_of().evaluate, model_of().predict):
    text = refusal(use, dropped.to_keras(), verbose=0)
    assert "to_keras: from_range(3).map(row).batch(4, drop_remainder=True) has no" in text, text
    text = refusal(use, filtered.to_keras(), verbose=0)
    assert "to_keras: epoch 0 of from_range(3)" in text, text
assert "flow must be a flow, got list" in refusal(fl.keras.Fit, [1, 2])
text = refusal(
    model_of().fit, fl.from_items([({"a": "x", "b": 1.0}, 1.0)] * 4).batch(2).to_keras(), verbose=0
)
assert "component '0.a' of element 0 is " in text and ("text" in text or "str" in text), text
"""

RESUMES = """
warnings.filterwarnings("ignore", "Your input ran out")
undisturbed = model_of(run_eagerly=False)
undisturbed.fit(flow.to_keras(), epochs=3, verbose=0)

class Stop(Exception):
    pass
class Save(keras.callbacks.Callback):
    def __init__(self, data):
        super().__init__()
        self.data, self.steps = data, 0
    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == 5:  # the second batch of the second epoch
            self.model.save(path)
            self.state = json.loads(json.dumps(self.data.state_dict(batch + 1)))
        if self.steps == 6:
            raise Stop

import tempfile
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/model.keras"
    data = flow.to_keras()
    saving = Save(data)
    try:
        model_of(run_eagerly=False).fit(data, epochs=3, verbose=0, callbacks=[saving])
    except Stop:
        pass
    data.close()
    resumed = keras.models.load_model(path)
data = flow.prefetch(procs=2).to_keras()
data.load_state_dict(saving.state)
assert data.epoch == 1
assert data.state_dict(0)["position"] == saving.state["position"]
warnings.filterwarnings("error", "Your input ran out")
resumed.fit(data, initial_epoch=1, epochs=2, verbose=0)
resumed.fit(data, initial_epoch=2, epochs=3, verbose=0)
for one, other in zip(undisturbed.weights, resumed.weights):
    one, other = map(keras.ops.convert_to_numpy, (one, other))
    np.testing.assert_array_equal(one, other)
"""

REFUSES = """
data.load_state_dict(saving.state)
try:
    resumed.fit(data, initial_epoch=1, epochs=3, verbose=0)
except fl.FlowError as error:
    assert "in a call of its own" in str(error)
else:
    raise AssertionError("the epochs after a short one were as short")
rows = fl.from_range(3).map(row)
for wrong, said in (
    (fl.from_range(3).map(lambda i: (i, i, i, i)).batch(2), "4 components"),
    (fl.from_range(3), "write .batch(n)"),
    (rows, "write .batch(n)"),
    (rows.batch(2).repeat(), "steps_per_epoch=n to fit, validation_steps=n"),
):
    try:
        model_of().fit(wrong.to_keras(), verbose=0)
    except fl.FlowError as error:
        assert "to_keras" in str(error) and said in str(error), error
    else:
        raise AssertionError("no error")
endless = rows.batch(2).repeat().to_keras()
model_of().fit(endless, steps_per_epoch=3, epochs=2, verbose=0)
endless.close()
assert isinstance(model_of().evaluate(endless, steps=2, verbose=0), float)
endless.close()
try:
    flow.to_keras().load_state_dict(flow.take(1).to_keras().state_dict(0))
except fl.StateMismatch:
    pass
else:
    raise AssertionError("a state of another flow was loaded")
import threading
assert not [thread for thread in threading.enumerate() if thread.name == "to_keras"]
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_on_each_backend(backend: str) -> None:
    pytest.importorskip(backend)
    program = "\n".join(
        [
            BEGIN,
            FITS,
            FOLLOWS,
            ORDER,
            FOLLOWS_ON,
            LOOKS,
            UNKNOWN,
            FAILS,
            EMPTY,
            RESUMES,
            REFUSES,
            "print('all')",
        ]
    )
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["all"], done.stdout + done.stderr
